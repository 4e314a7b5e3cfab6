"""Every algorithm, forced by a plan: tails, blocks that products outgrow, transpositions, epilogues, and refusals.

The choosers hide algorithms from each other: here each one multiplies shapes that it would never be chosen for.
"""
import itertools

import numpy as np
import pytest
import support

import gemmkit
from gemmkit._kernels import _registry

FLOATS = (np.float32, np.float64)
ALGORITHMS = ("general", "direct", "small_k", "skinny_m", "skinny_n", "split_k")
FLAGS = [(False, False), (False, True), (True, False), (True, True)]  # trans_a, trans_b

# m, n, k: one element, tails of every tile size, single rows and columns, more tiles than one in each direction
TAILS = [(1, 1, 1), (1, 1, 9), (1, 70, 5), (64, 1, 33), (3, 2, 64), (5, 7, 3), (8, 48, 16), (9, 49, 17), (7, 47, 15),
         (13, 97, 31), (50, 31, 70), (2, 64, 2), (64, 2, 3), (61, 63, 129)]


def plan_or_none(*args, **kwargs):
    """A plan, or None where the forced algorithm refuses; test_refusals checks when it may."""
    try:
        return gemmkit.GemmPlan(*args, **kwargs)
    except ValueError as error:
        assert str(error).startswith("algorithm: ")
        return None


def operands(rng, m, n, k, dtype, trans_a=False, trans_b=False, values=support.small_integers):
    return (values(rng, (k, m) if trans_a else (m, k), dtype), values(rng, (n, k) if trans_b else (k, n), dtype),
            values(rng, (m, n), dtype))


def transposed(x, flag):
    return x.T if flag else x


def exact_product(a, b):
    """Of small integers: float64 holds every partial sum."""
    return support.product(a.astype(np.float64), b.astype(np.float64))


def check_plan(plan, m, n, k, trans_a=False, trans_b=False, alpha=1.0, beta=1.0):
    """The plan against the exact product: without c and with every broadcast of it, into a window of other memory."""
    a, b, c = operands(np.random.default_rng(m + n + k), m, n, k, plan.dtype, trans_a, trans_b)
    product = alpha * exact_product(transposed(a, trans_a), transposed(b, trans_b))
    np.testing.assert_array_equal(plan(a, b), product)
    buffer = np.full((m + 2, n + 3), 7, plan.dtype)
    for bias in (c, c[0], c[:, :1], c[:1, :1], np.asfortranarray(c), c[::-1, ::-1]):
        plan(a, b, bias, out=buffer[1:-1, 1:-2])
        np.testing.assert_array_equal(buffer[1:-1, 1:-2], product + beta * bias)
    buffer[1:-1, 1:-2] = 7
    assert (buffer == 7).all()


# ---- Shapes

@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("trans_a,trans_b", FLAGS)
def test_tails(algorithm, trans_a, trans_b, wide_isa):
    ran = 0
    flags = {"trans_a": trans_a, "trans_b": trans_b}
    for dtype, (m, n, k), (alpha, beta) in itertools.product(FLOATS, TAILS, ((1.0, 1.0), (0.5, -2.0))):
        plan = plan_or_none(m, n, k, dtype, alpha=alpha, beta=beta, algorithm=algorithm, **flags)
        if plan is not None:
            assert plan.algorithm == algorithm and plan.isa == wide_isa
            check_plan(plan, m, n, k, trans_a, trans_b, alpha, beta)
            ran += 1
    assert ran >= 8  # direct takes few transposed B's, skinny_n few transposed A's: those that are vectors


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rounding_stays_within_the_bound(algorithm, wide_isa):
    rng = np.random.default_rng(1)
    for dtype, (m, n, k) in itertools.product(FLOATS, TAILS):
        plan = plan_or_none(m, n, k, dtype, algorithm=algorithm)
        if plan is not None:
            a, b, c = operands(rng, m, n, k, dtype, values=support.random_values)
            support.check_close(plan(a, b), a, b)
            support.check_close(plan(a, b, c), a, b, c)


def most_kc(dtype, **kwargs):
    """The longest KC block there is: that of a sum too long for one."""
    return max(gemmkit.GemmPlan(64, 200, k, dtype, **kwargs).kc for k in (10 ** 5, 10 ** 5 + 4096))


@pytest.mark.parametrize("algorithm", ["general", "direct", "split_k"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_several_blocks_of_k(algorithm, dtype, wide_isa):
    """Sums that wait in C between blocks: c and alpha count once, at the right end."""
    k = 2 * most_kc(dtype, algorithm="general") + 5
    sizes, factors = ((9, 53), (29, 18)), ((1.0, 1.0), (0.5, -2.0))
    for (trans_a, trans_b), (m, n), (alpha, beta) in itertools.product(FLAGS, sizes, factors):
        plan = plan_or_none(m, n, k, dtype, trans_a=trans_a, trans_b=trans_b, alpha=alpha, beta=beta,
                            algorithm=algorithm)
        if plan is not None:
            assert plan.splits > 1 if algorithm == "split_k" else plan.kc < k
            check_plan(plan, m, n, k, trans_a, trans_b, alpha, beta)


@pytest.mark.parametrize("dtype", FLOATS)
def test_several_blocks_in_every_direction(dtype):
    """Blocks of K and N, panels of a packed A, and a remainder of each."""
    k = 2 * most_kc(dtype, algorithm="general") + 3
    nc = gemmkit.GemmPlan(19, 10 ** 6, k, dtype, algorithm="general").nc
    mc = gemmkit.GemmPlan(10 ** 6, 101, k, dtype, trans_a=True, algorithm="general").mc
    for m, n, trans_a in ((19, nc + 53, False), (2 * mc + 41, 101, True), (2 * mc + 41, 101, False)):
        plan = gemmkit.GemmPlan(m, n, k, dtype, trans_a=trans_a, algorithm="general")
        assert plan.kc < k and plan.packs == (("a", "b") if trans_a else ("b",))
        assert plan.mc < m if trans_a else plan.nc < n or n == 101
        a, b, c = operands(np.random.default_rng(2), m, n, k, dtype, trans_a)
        for threads in (1, 3):
            with gemmkit.threads(threads):
                got = plan(a, b, c)
            check_by_projection(got - c, transposed(a, trans_a), b)


def check_by_projection(product, a, b):
    """Whether product = a @ b, by exact sums of its rows and columns with random weights: errors don't cancel."""
    rng = np.random.default_rng(3)
    product, a, b = product.astype(np.int64), a.astype(np.int64), b.astype(np.int64)
    for _ in range(2):
        right, left = rng.integers(1, 1000, b.shape[1]), rng.integers(1, 1000, a.shape[0])
        np.testing.assert_array_equal((product * right).sum(1), (a * (b * right).sum(1)).sum(1))
        np.testing.assert_array_equal((product.T * left).sum(1), (b.T * (a.T * left).sum(1)).sum(1))


@pytest.mark.parametrize("dtype", FLOATS)
def test_skinny_blocks(dtype, wide_isa):
    """More rows, columns and steps than a skinny algorithm's blocks hold."""
    for m, n, k, trans_b in ((1, 20_011, 37, False), (7, 9001, 130, False), (33, 4099, 301, False), (5, 30, 9001, True),
                             (11, 39, 20_005, True)):
        check_plan(gemmkit.GemmPlan(m, n, k, dtype, trans_b=trans_b, algorithm="skinny_m"), m, n, k, trans_b=trans_b)
    for m, n, k, trans_b in ((1001, 1, 300, False), (203, 4, 1001, True), (39, 13, 20_005, False),
                             (64, 64, 5003, True)):
        check_plan(gemmkit.GemmPlan(m, n, k, dtype, trans_b=trans_b, algorithm="skinny_n"), m, n, k, trans_b=trans_b)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [(1, 1, 9), (3, 5, 1000), (64, 64, 1100), (1, 1, 100_003), (40, 300, 1031),
                                  (300, 2, 4099)], ids=str)
def test_split_sums(size, dtype, wide_isa):
    m, n, k = size
    for trans_a, trans_b in FLAGS:
        plan = gemmkit.GemmPlan(m, n, k, dtype, trans_a=trans_a, trans_b=trans_b, algorithm="split_k")
        assert plan.splits >= 2
        check_plan(plan, m, n, k, trans_a, trans_b)


# ---- Other layouts than the plan was made for

@pytest.mark.parametrize("algorithm", ["auto", *ALGORITHMS])
def test_a_forced_algorithm_meets_another_layout(algorithm, wide_isa):
    for m, n, k in ((20, 40, 30), (9, 7, 64), (1, 50, 40), (50, 1, 40)):
        plan = gemmkit.GemmPlan(m, n, k, np.float32, algorithm=algorithm)
        a, b, _ = operands(np.random.default_rng(4), m, n, k, np.float32)
        want = support.reference(a, b)
        forms = (lambda x: x, np.asfortranarray, lambda x: np.repeat(x, 2, 1)[:, ::2], lambda x: x[::-1].copy()[::-1])
        outs = (np.empty((m, n), np.float32), np.empty((n, m), np.float32).T, np.empty((m, 2 * n), np.float32)[:, ::2])
        for left, right, out in itertools.product(forms, forms, outs):
            np.testing.assert_array_equal(plan(left(a), right(b), out=out), want)


# ---- Memory around the operands

@pytest.mark.parametrize("edge", support.EDGES)
@pytest.mark.parametrize("algorithm", ["auto", *ALGORITHMS])
def test_nothing_around_the_operands_is_touched(algorithm, edge, wide_isa, guarded):
    """Each operand borders a page that can't be read: one element too many ends the process."""
    for dtype, (m, n, k), (trans_a, trans_b) in itertools.product(FLOATS, TAILS[1::2], FLAGS):
        plan = plan_or_none(m, n, k, dtype, trans_a=trans_a, trans_b=trans_b, alpha=0.5, algorithm=algorithm)
        if plan is not None:
            a, b, c = operands(np.random.default_rng(6), m, n, k, dtype, trans_a, trans_b)
            want = 0.5 * exact_product(transposed(a, trans_a), transposed(b, trans_b))
            out = guarded(np.zeros((m, n), dtype), edge=edge)
            for bias in (c, c[0], c[:, :1]):
                plan(guarded(a, edge=edge), guarded(b, edge=edge), guarded(bias, edge=edge), out=out)
                np.testing.assert_array_equal(out, want + bias)


# ---- Special values

@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nan_and_infinity_follow_ieee(algorithm, wide_isa):
    for dtype, (m, n, k) in itertools.product(FLOATS, ((5, 7, 40), (16, 50, 33), (64, 30, 64), (3, 64, 9))):
        plan = plan_or_none(m, n, k, dtype, algorithm=algorithm)
        if plan is None:
            continue
        a, b, c = operands(np.random.default_rng(5), m, n, k, dtype)
        a[m // 2] = 0
        a[m - 1, k - 1], b[k // 2, n // 2], b[k - 1, 0], c[0, n - 1] = -np.inf, np.nan, np.inf, -np.inf
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(plan(a, b, c), support.reference(a, b, c))


# ---- Refusals

@pytest.mark.parametrize("algorithm,size,flags,reason", [
    ("direct", (9, 9, 9), {"trans_b": True}, "B's rows are not contiguous"),
    ("small_k", (9, 9, 513), {}, "K is not small"),
    ("skinny_m", (65, 9, 9), {}, "M is not small"),
    ("skinny_n", (9, 65, 9), {}, "N is not small"),
    ("skinny_n", (9, 9, 9), {"trans_a": True}, "A's rows are not contiguous"),
    ("split_k", (1000, 1000, 1000), {}, "the output is not small"),
    ("split_k", (9, 9, 1), {}, "no K to split"),
    *((name, (9, 9, 9), {"b": np.ones((9, 9), np.float32)}, "B is prepacked") for name in ALGORITHMS[1:]),
])
def test_refusals(algorithm, size, flags, reason):
    with pytest.raises(ValueError, match=f"algorithm: {algorithm} can't run") as error:
        gemmkit.GemmPlan(*size, np.float32, algorithm=algorithm, **flags)
    assert reason in str(error.value)
    assert " x ".join(map(str, size)) in str(error.value)


def test_general_never_refuses_and_unknown_names_do():
    for (m, n, k), (trans_a, trans_b) in itertools.product(((1, 1, 1), (0, 0, 0), (70, 1, 600), (1, 300, 5)), FLAGS):
        plan = gemmkit.GemmPlan(m, n, k, np.float64, trans_a=trans_a, trans_b=trans_b, algorithm="general")
        assert plan.algorithm == "general"
    for name in ("", "Direct", "fast"):
        with pytest.raises(ValueError, match="known are auto, direct"):
            gemmkit.GemmPlan(3, 3, 3, np.float32, algorithm=name)
    with pytest.raises(TypeError):
        gemmkit.GemmPlan(3, 3, 3, np.float32, algorithm=1)


@pytest.mark.parametrize("algorithm", ["auto", *ALGORITHMS])
def test_sizes_of_zero(algorithm):
    for m, n, k in itertools.product((0, 1, 64, 70), repeat=3):
        plan = plan_or_none(m, n, k, np.float32, algorithm=algorithm)
        if plan is not None:
            assert plan.workspace_bytes >= 0 and repr(plan)
            got = plan(np.ones((m, k), np.float32), np.ones((k, n), np.float32))
            np.testing.assert_array_equal(got, np.full((m, n), k))


# ---- Which kernels ran

@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(23, 40, 50), (1, 64, 90), (90, 64, 1), (3, 64, 3), (64, 3, 200)], ids=str)
def test_calls_reach_the_forced_set(shape, dtype, wide_isa):
    m, k, n = shape
    rng = np.random.default_rng(10)
    a, b = support.random_values(rng, (m, k), dtype), support.random_values(rng, (k, n), dtype)
    plan = gemmkit.MatMulPlan((m, k), (k, n), dtype)
    assert gemmkit.config()["isa"]["in use"] == wide_isa
    assert plan.isa == wide_isa and plan.kernel.endswith("_" + wide_isa)
    got = gemmkit.matmul(a, b)
    assert support.same_bits(got, plan(a, b))
    support.check_close(got, a, b)


def test_sets_differ_in_bits_where_their_instructions_differ():
    if not {"sse2", "avx2"} <= set(_registry.usable_isas()):
        pytest.skip("not run: this processor has no set with and one without FMA to compare; each set's values are checked above")
    rng = np.random.default_rng(11)
    a, b = (support.random_values(rng, (40, 40), np.float32) for _ in range(2))
    with gemmkit.isa("sse2"):
        rounded_twice = gemmkit.matmul(a, b)
    with gemmkit.isa("avx2"):
        fused = gemmkit.matmul(a, b)
    assert not support.same_bits(rounded_twice, fused)
