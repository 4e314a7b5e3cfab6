"""Half precision and float8 through gemm, and every algorithm by force."""
import itertools

import numpy as np
import pytest
import support
from narrow import (
    ALGORITHMS,
    E4M3FN,
    F32,
    F64,
    FLAGS,
    SINGLE,
    TAILS,
    UNLIKE,
    by_pair,
    by_type,
    cast,
    check,
    check_close,
    decoded,
    exact,
    forced,
    full,
    integers,
    most_kc,
    name,
    problem,
    random_values,
    result_type,
    rounded,
    same_values,
    some_integers,
    turned,
)

import gemmkit

# ---- gemm

def c_shapes(m, n):
    return [(), (1,), (n,), (1, n), (m, 1), (m, n)]


@pytest.mark.parametrize("trans_a,trans_b", FLAGS)
@by_type
def test_transpositions_alpha_beta_and_every_c(dtype, trans_a, trans_b, isa):
    """alpha, beta and c count before the one rounding: a sum rounded first would differ."""
    flags = {"trans_a": trans_a, "trans_b": trans_b}
    for m, n, k in ((1, 1, 1), (1, 2, 7), (3, 17, 16), (33, 1, 40), (1, 40, 9), (50, 49, 31), (67, 51, 130)):
        a, b, product, _ = problem(m, n, k, (dtype, dtype), trans_a, trans_b)
        for shape in (None, *c_shapes(m, n)):
            c = None if shape is None else some_integers(15, (shape, dtype))[0]
            for alpha, beta in ((1.0, 1.0), (0.5, -2.0), (-2.0, 0.5), (0.0625, 0.0)):
                value = alpha * product + (0 if c is None else beta * decoded(c, F64))
                check(gemmkit.gemm(a, b, c, alpha=alpha, beta=beta, **flags), value, result_type(dtype, dtype))
                check(gemmkit.gemm(a, b, c, alpha=alpha, beta=beta, out_dtype=dtype, **flags), value, dtype)


@by_pair
def test_c_of_every_type(pair):
    """c is read in its own type, and counts where the type of the result is chosen."""
    for m, n, k in ((5, 7, 9), (40, 33, 64), (1, 50, 20), (50, 1, 20), (64, 48, 0)):
        a, b = some_integers(16, ((m, k), pair[0]), ((k, n), pair[1]))
        for c_dtype, shape in itertools.product((*SINGLE, F64), c_shapes(m, n)):
            c = some_integers(17, (shape, c_dtype))[0]
            value = 0.5 * exact(a, b) - 2 * decoded(c, F64)
            want = result_type(*pair, c_dtype)
            for view in (c, np.asfortranarray(c), np.broadcast_to(c, (m, n))):
                check(gemmkit.gemm(a, b, view, alpha=0.5, beta=-2.0), value, want)
            if c_dtype != F64:
                for out_dtype in {F32, *pair, E4M3FN}:
                    check(gemmkit.gemm(a, b, c, alpha=0.5, beta=-2.0, out_dtype=out_dtype), value, out_dtype)


@pytest.mark.parametrize("fill", [np.nan, np.inf])
@by_type
def test_beta_zero_never_reads_c(dtype, fill, isa):
    for m, n, k in ((1, 1, 1), (5, 7, 3), (64, 48, 32), (67, 51, 33), (1, 40, 9), (40, 1, 300), (20, 20, 2000)):
        a, b, product, _ = problem(m, n, k, (dtype, dtype))
        for shape in c_shapes(m, n):
            for out_dtype in (dtype, F32):
                got = gemmkit.gemm(a, b, full(shape, fill, dtype), beta=0.0, out_dtype=out_dtype)
                check(got, product, out_dtype)


@by_type
def test_empty_sums_leave_beta_times_c(dtype):
    for m, n in ((4, 5), (64, 48), (1, 70), (70, 1)):
        a, b = np.empty((m, 0), dtype), np.empty((0, n), dtype)
        for out_dtype in (dtype, F32):
            poison = [full((m, n), 113, out_dtype) for _ in range(3)]
            del poison
            check(gemmkit.matmul(a, b, out_dtype=out_dtype), np.zeros((m, n)), out_dtype)
            for shape, beta in itertools.product(c_shapes(m, n), (1.0, -2.0, 0.0)):
                c, = some_integers(19, (shape, dtype))
                got = gemmkit.gemm(a, b, c, alpha=3.0, beta=beta, out=full((n, m), 113, out_dtype).T)
                check(got, np.broadcast_to(beta * decoded(c, F64), (m, n)), out_dtype)


@by_type
def test_a_c_that_would_widen_the_result_is_refused(dtype):
    for m, n, shape in ((3, 1, (1, 4)), (3, 1, (4,)), (1, 4, (2, 4)), (3, 4, (3,)), (3, 4, (1, 3, 4)), (3, 4, (2, 4))):
        for beta in (1.0, 0.0):
            with pytest.raises(ValueError, match="c: shape"):
                gemmkit.gemm(full((m, 2), 1, dtype), full((2, n), 1, dtype), full(shape, 1, dtype), beta=beta)


# ---- Algorithms

@pytest.mark.parametrize("algorithm", ALGORITHMS)
@by_pair
def test_every_algorithm(algorithm, pair, isa):
    """Tails, transpositions, epilogues and outs of each type, where an algorithm is forced."""
    ran, dtypes = 0, itertools.cycle(dict.fromkeys((result_type(*pair), *pair, F32)))
    for (trans_a, trans_b), (m, n, k) in itertools.product(FLAGS, TAILS):
        dtype = next(dtypes)
        alpha, beta = ((1.0, 1.0), (0.5, -2.0))[ran % 2]
        plan = forced(m, n, k, pair, algorithm, trans_a=trans_a, trans_b=trans_b, alpha=alpha, beta=beta,
                      out_dtype=dtype)
        if plan is None:
            continue
        ran += 1
        assert plan.algorithm == algorithm
        a, b, product, c = problem(m, n, k, pair, trans_a, trans_b)
        product, c = alpha * product, c.astype(dtype)
        assert same_values(plan(a, b), rounded(product, dtype))
        buffer = full((m + 2, n + 3), 7, dtype)
        window = buffer[1:-1, 1:-2]
        for bias in (c, c[0], c[:, :1]):
            plan(a, b, bias, out=window)
            assert same_values(window, rounded(product + beta * decoded(bias, F64), dtype))
        window[...] = cast(7.0, dtype)
        assert (decoded(buffer) == 7).all()
    if not ran:
        assert algorithm != "general"
        pytest.skip(f"not run: {algorithm} refuses {name(pair)}; general, which refuses none, runs it")


@pytest.mark.parametrize("algorithm", ["auto", *ALGORITHMS])
@by_pair
def test_any_values_stay_within_the_bound(algorithm, pair, isa):
    """|error| <= (K + 8) 2^-24 |A| |B|, and one rounding: no operand was rounded to a narrower type on the way."""
    rng = np.random.default_rng(20)
    for m, n, k in TAILS:
        for dtype in dict.fromkeys((result_type(*pair), pair[0], F32)):
            plan = forced(m, n, k, pair, algorithm, out_dtype=dtype) if algorithm != "auto" else None
            call = plan or (lambda x, y, z=None, out=dtype: gemmkit.gemm(x, y, z, out_dtype=out))
            if plan is None and algorithm != "auto":
                continue
            a, b, c = (random_values(rng, shape, t) for shape,
                       t in (((m, k), pair[0]), ((k, n), pair[1]), ((m, n), dtype)))
            check_close(call(a, b), a, b, dtype)
            check_close(call(a, b, c), a, b, dtype, add=decoded(c, F64))


@by_pair
def test_several_blocks_of_k(pair, isa):
    """Sums that wait between blocks wait in float32: what they are rounded to, they are rounded to once."""
    k = 2 * most_kc(pair) + 5
    assert k <= 4096
    for algorithm, (trans_a, trans_b) in itertools.product(("general", "direct", "split_k"), FLAGS):
        (m, n), alpha = ((9, 53), 1.0) if trans_a == trans_b else ((29, 18), 2.0 ** -6)
        a, b, product, c = problem(m, n, k, pair, trans_a, trans_b)
        for dtype in dict.fromkeys((result_type(*pair), *pair)):
            plan = forced(m, n, k, pair, algorithm, trans_a=trans_a, trans_b=trans_b, alpha=alpha, out_dtype=dtype)
            if plan is not None:
                assert plan.kc < k or algorithm != "general"
                check(plan(a, b), alpha * product, dtype)
                out = full((m, 2 * n), 113, dtype)[:, ::2]
                check(plan(a, b, c[0].astype(dtype), out=out), alpha * product + c[0], dtype)


@pytest.mark.parametrize("pair", UNLIKE, ids=name)
def test_several_blocks_in_every_direction(pair):
    """Blocks of K and N, panels of a packed A and a remainder of each; one thread and several."""
    k = 2 * most_kc(pair) + 3
    options = {"b_dtype": pair[1], "algorithm": "general"}
    nc = gemmkit.GemmPlan(19, 10 ** 6, k, pair[0], **options).nc
    mc = gemmkit.GemmPlan(10 ** 6, 101, k, pair[0], trans_a=True, **options).mc
    for m, n, trans_a in ((19, nc + 53, False), (min(2 * mc, 4000) + 41, 101, True)):
        a, b = some_integers(22, ((k, m) if trans_a else (m, k), pair[0]), ((k, n), pair[1]))
        rng = np.random.default_rng(23)
        weights = rng.integers(1, 100, n).astype(F64), rng.integers(1, 100, m).astype(F64)
        left, right = decoded(turned(a, trans_a), F64), decoded(b, F64)
        for threads in (1, 3):
            with gemmkit.threads(threads):
                single = gemmkit.GemmPlan(m, n, k, pair[0], trans_a=trans_a, out_dtype=F32, **options)(a, b)
                half = gemmkit.GemmPlan(m, n, k, pair[0], trans_a=trans_a, out_dtype=pair[0], **options)(a, b)
            # exact: the rows and columns of the product, weighted, are sums of integers below 2^53
            np.testing.assert_array_equal((single * weights[0]).sum(1), (left * (right * weights[0]).sum(1)).sum(1))
            np.testing.assert_array_equal((single.T * weights[1]).sum(1),
                                          (right.T * (left.T * weights[1]).sum(1)).sum(1))
            assert same_values(half, cast(single, pair[0]))


@pytest.mark.parametrize("edge", support.EDGES)
@pytest.mark.parametrize("algorithm", ["auto", *ALGORITHMS])
@pytest.mark.parametrize("pair", UNLIKE, ids=name)
def test_nothing_around_the_operands_is_touched(pair, algorithm, edge, isa):
    """Each operand borders a page that can't be read: one element too many, or half a pair, ends the process."""
    for (m, n, k), (trans_a, trans_b) in itertools.product(TAILS[1::3], FLAGS):
        for dtype in {result_type(*pair), pair[0]}:
            if algorithm == "auto":
                plan = gemmkit.GemmPlan(m, n, k, pair[0], trans_a=trans_a, trans_b=trans_b, b_dtype=pair[1],
                                        out_dtype=dtype)
            else:
                plan = forced(m, n, k, pair, algorithm, trans_a=trans_a, trans_b=trans_b, out_dtype=dtype)
            if plan is None:
                continue
            a, b, product, c = problem(m, n, k, pair, trans_a, trans_b)
            c = c.astype(dtype)
            left, right, out = (support.guarded(x, edge=edge) for x in (a, b, np.zeros((m, n), dtype)))
            for bias in (c, c[0], c[:, :1]):
                plan(left, right, support.guarded(bias, edge=edge), out=out)
                assert same_values(np.asarray(out), rounded(product + decoded(bias, F64), dtype))


@by_pair
def test_a_call_gives_the_bits_of_its_plan(pair, isa):
    rng = np.random.default_rng(25)
    for m, n, k in ((23, 50, 40), (1, 90, 64), (90, 1, 64), (3, 3, 640), (64, 200, 3)):
        a, b = random_values(rng, (m, k), pair[0]), random_values(rng, (k, n), pair[1])
        for dtype in (None, *SINGLE):
            plan = gemmkit.MatMulPlan((m, k), (k, n), pair[0], b_dtype=pair[1], out_dtype=dtype)
            assert support.same_bits(gemmkit.matmul(a, b, out_dtype=dtype), plan(a, b))
