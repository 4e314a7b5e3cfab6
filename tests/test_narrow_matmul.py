"""Half precision and float8 through every function, plan and algorithm: types, exact sums, one rounding, the bound.

Sums of the integers used here are exact in float32, so a result has one right value: theirs, rounded once.
"""
import itertools
import subprocess
import sys
import textwrap
import time

import ml_dtypes
import numpy as np
import pytest
import support
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from narrow import (
    BF16,
    E4M3FN,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    F16,
    F32,
    F64,
    FLAGS,
    FLOAT8,
    NARROW,
    PAIRS,
    cast,
    check,
    check_close,
    decoded,
    exact,
    layouts,
    name,
    problem,
    random_values,
    result_type,
    rounded,
    same_values,
    some_integers,
)
from test_large import FAR, place, sparse

import gemmkit

ALGORITHMS = ("general", "direct", "small_k", "skinny_m", "skinny_n", "split_k")
SINGLE = (*NARROW, F32)  # whatever is summed in float32
# One pair of each kind, for what takes long: alone, mixed within float8, and with a wider type on either side.
UNLIKE = ((F16, F16), (BF16, BF16), (E4M3FN, E4M3FN), (E5M2, E4M3FNUZ), (BF16, F32), (F32, E5M2FNUZ), (E5M2FNUZ, BF16))
by_type = pytest.mark.parametrize("dtype", NARROW, ids=name)
by_pair = pytest.mark.parametrize("pair", PAIRS, ids=name)

SHAPES = [((3,), (3,)), ((1,), (1,)), ((3,), (3, 5)), ((4, 3), (3,)), ((4, 3), (3, 5)), ((1, 1), (1, 1)),
          ((2, 4, 3), (3, 5)), ((4, 3), (2, 3, 5)), ((2, 1, 4, 3), (6, 3, 5)), ((3,), (2, 3, 5)), ((2, 4, 3), (3,)),
          ((2, 3, 1, 4, 3), (1, 3, 2, 3, 1)), ((33, 40), (40, 50)), ((5, 33, 40), (40, 17)), ((3, 2, 70, 1), (1, 90)),
          ((70,), (70, 300)), ((300, 70), (70,)), ((1500,), (1500,)), ((4, 1500), (1500, 3)),
          ((0, 3), (3, 4)), ((2, 3), (3, 0)), ((3,), (3, 0)), ((0, 3), (3,)), ((0, 2, 3), (3, 4)), ((0, 0), (0, 0)),
          ((2, 3), (0, 3, 4)), ((64, 0), (0, 48)), ((3, 64, 0), (0, 48)), ((0,), (0, 48)), ((64, 0), (0,)),
          ((0,), (0,))]

# m, n, k: one element, tails of every tile size, odd sums (a pair with one half missing), rows and columns
TAILS = [(1, 1, 1), (1, 1, 9), (1, 70, 5), (64, 1, 33), (3, 2, 64), (5, 7, 3), (8, 48, 16), (9, 49, 17), (7, 47, 15),
         (13, 97, 31), (50, 31, 70), (2, 64, 2), (64, 2, 3), (61, 63, 129)]


def turned(x, flag):
    return x.swapaxes(-1, -2) if flag else x


def full(shape, value, dtype):
    return cast(np.full(shape, value, F32), dtype)


def forced(m, n, k, pair, algorithm, **options):
    """A plan of one algorithm, or None where another plan of the same product says that it can't run."""
    options = {"b_dtype": pair[1], **options}
    if gemmkit.GemmPlan(m, n, k, pair[0], **options).refusal(algorithm) is not None:
        return None
    return gemmkit.GemmPlan(m, n, k, pair[0], algorithm=algorithm, **options)


def most_kc(pair):
    """The longest KC block there is: that of a sum too long for one."""
    return max(gemmkit.GemmPlan(64, 200, k, pair[0], b_dtype=pair[1], algorithm="general").kc
               for k in (10 ** 5, 10 ** 5 + 4096))


# ---- Shapes and types of results

@by_pair
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes_follow_numpy(shapes, pair):
    a, b = some_integers(0, (shapes[0], pair[0]), (shapes[1], pair[1]))
    value = exact(a, b)
    got = gemmkit.matmul(a, b)
    assert got.shape == np.matmul(np.zeros(shapes[0]), np.zeros(shapes[1])).shape
    check(got, value, result_type(*pair))
    for out_dtype in SINGLE:
        check(gemmkit.matmul(a, b, out_dtype=out_dtype), value, out_dtype)
        out = full(got.shape, 7, out_dtype)
        assert gemmkit.matmul(a, b, out=out) is out
        check(out, value, out_dtype)
        check(gemmkit.matmul(a, b, out=out, out_dtype=out_dtype), value, out_dtype)


@pytest.mark.parametrize("other", (*SINGLE, F64), ids=name)
@pytest.mark.parametrize("dtype", (*SINGLE, F64), ids=name)
def test_a_result_has_one_type_whatever_its_rank_and_size(dtype, other):
    """Two halves of a kind stay so, float64 wins, all else is float32: vectors, stacks and empty results alike."""
    want = result_type(dtype, other)
    for a, b in (((4, 4), (4, 4)), ((4,), (4, 4)), ((4, 4), (4,)), ((2, 4, 4), (4, 4)), ((0, 4), (4, 4)),
                 ((4, 0), (0, 4)), ((100, 70), (70, 90)), ((1, 4), (4, 1))):
        got = gemmkit.matmul(full(a, 1, dtype), full(b, 1, other))
        assert type(got) is np.ndarray and got.dtype == want
        assert got.flags.c_contiguous and got.flags.owndata and got.flags.writeable
        if len(a) == len(b) == 2:
            assert gemmkit.gemm(full(a, 1, dtype), full(b, 1, other)).dtype == want
    for k in (4, 0, 300):
        for out_dtype in (None, *(SINGLE if want != F64 else (F64,))):
            scalar = gemmkit.matmul(full(k, 1, dtype), full(k, 1, other), out_dtype=out_dtype)
            assert type(scalar) is (out_dtype or want)
            check(scalar, np.float64(k), out_dtype or want)


@by_type
def test_types_may_be_given_in_every_way(dtype):
    a, b = some_integers(1, ((4, 3), dtype), ((3, 5), dtype))
    for way in (dtype, np.dtype(dtype), name(dtype)):
        check(gemmkit.matmul(a, b, out_dtype=way), exact(a, b), dtype)
        check(gemmkit.gemm(a, b, out_dtype=way), exact(a, b), dtype)
        for plan in (gemmkit.GemmPlan(4, 5, 3, way, out_dtype=way, b_dtype=way),
                     gemmkit.MatMulPlan((4, 3), (3, 5), way, out_dtype=way, b_dtype=way)):
            assert (plan.dtype, plan.b_dtype, plan.out_dtype) == (np.dtype(dtype),) * 3
            check(plan(a, b), exact(a, b), dtype)


@pytest.mark.parametrize("dtype", NARROW, ids=name)
def test_float64_beside_a_narrow_type_stays_float64(dtype, isa):
    """Nothing is rounded to float32 on the way: not the operand, not the sum."""
    rng = np.random.default_rng(2)
    for m, n, k in ((17, 20, 30), (1, 70, 130), (70, 1, 130), (1, 1, 1000)):
        a, b = random_values(rng, (m, k), dtype), random_values(rng, (k, n), F64)
        check_close(gemmkit.matmul(a, b), a, b, F64)
        check_close(gemmkit.matmul(b.T, a.T), b.T, a.T, F64)
        check_close(gemmkit.matmul(a, b, out_dtype=F64), a, b, F64)
        c = random_values(rng, (m, n), dtype)
        check_close(gemmkit.gemm(a, b, c), a, b, F64, add=decoded(c, F64))
        narrow = random_values(rng, (k, n), dtype)
        wide_c = random_values(rng, (m, n), F64)
        check_close(gemmkit.gemm(a, narrow, wide_c), a, narrow, F64, add=wide_c)


# ---- Memory layouts

@by_pair
@pytest.mark.parametrize("shape", [(21, 19, 18), (1, 30, 70), (70, 33, 1), (2, 40, 3), (130, 5, 100)], ids=str)
def test_every_pair_of_layouts(shape, pair, isa):
    m, k, n = shape
    a, b = some_integers(3, ((m, k), pair[0]), ((k, n), pair[1]))
    dtype = result_type(*pair)
    want, row, column = (rounded(exact(*x), dtype) for x in ((a, b), (a[-1], b), (a, b[:, n // 2])))
    for (left, x), (right, y) in itertools.product(layouts(a).items(), layouts(b).items()):
        assert same_values(gemmkit.matmul(x, y), want), (left, right)
        if "gaps" not in left or "gaps" not in right:
            assert same_values(gemmkit.matmul(x[-1], y), row), (left, right)
            assert same_values(gemmkit.matmul(x, y[:, n // 2]), column), (left, right)


@by_pair
def test_repeated_rows_columns_and_matrices(pair):
    one, row, column, matrix = some_integers(4, *[(shape, pair[0]) for shape in ((1, 1), (1, 19), (21, 1), (21, 19))])
    b, = some_integers(5, ((19, 18), pair[1]))
    for a in (np.broadcast_to(one, (21, 19)), np.broadcast_to(row, (21, 19)), np.broadcast_to(column, (21, 19)),
              np.broadcast_to(matrix, (4, 21, 19)), np.broadcast_to(row, (3, 2, 40, 19))):
        check(gemmkit.matmul(a, b), exact(a, b), result_type(*pair))
        check(gemmkit.matmul(b.T, a.swapaxes(-1, -2)), exact(b.T, a.swapaxes(-1, -2)), result_type(*pair))


@by_pair
@pytest.mark.parametrize("inner", [(5, 7, 9), (1, 7, 40), (9, 30, 1), (40, 33, 70)], ids=str)
def test_batch_axes_of_any_order_and_step(inner, pair):
    m, k, n = inner
    a, b = some_integers(6, ((3, 2, 4, m, k), pair[0]), ((3, 2, 4, k, n), pair[1]))
    stacks = (lambda x: x, lambda x: np.repeat(x, 2, 0)[::-2], lambda x: x[:, ::-1, 1:3], lambda x: x[:, :1],
              lambda x: x[0, 0, :1], lambda x: np.moveaxis(np.moveaxis(x, 3, 0).copy(), 0, 3))
    for left, right in itertools.product(stacks, stacks):
        x, y = left(a), right(b)
        try:
            np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        except ValueError:
            continue
        check(gemmkit.matmul(x, y), exact(x, y), result_type(*pair))


@pytest.mark.parametrize("pair", [(F16, F16), (BF16, BF16), (E4M3FN, E4M3FN), (E5M2FNUZ, BF16)], ids=name)
def test_rows_columns_and_results_far_apart(pair):
    """Offsets past 2^32 bytes, in operands of one and two bytes an element."""
    a, b = some_integers(7, ((3, 5), pair[0]), ((5, 4), pair[1]))
    far_rows, far_columns = place(a, (FAR, a.itemsize)), place(b, (b.itemsize, FAR))
    for out_dtype in (result_type(*pair), *pair):
        out = sparse((3, 4), (FAR, np.dtype(out_dtype).itemsize), out_dtype)
        check(gemmkit.matmul(far_rows, far_columns, out=out), exact(a, b), out_dtype)
        check(gemmkit.matmul(a, far_columns, out_dtype=out_dtype), exact(a, b), out_dtype)
        check(gemmkit.matmul(far_rows, b, out_dtype=out_dtype), exact(a, b), out_dtype)


# ---- What an operand may be

@by_type
def test_record_fields_and_foreign_byte_order(dtype):
    """Unaligned elements whose strides are no multiple of their size; float16 also byte by byte turned round."""
    a, b, c = some_integers(8, ((6, 9), dtype), ((9, 7), dtype), ((6, 7), dtype))
    records = [np.dtype([("tag", "S1"), ("x", dtype)]), np.dtype([("x", dtype), ("y", dtype)])]
    if dtype == F16:
        records += [np.dtype([("x", ">f2")]), np.dtype([("tag", "S1"), ("x", ">f2")])]
    native = result_type(dtype, dtype)
    for record in records:
        left, right, bias, out = (np.zeros(shape, record) for shape in ((6, 9), (9, 7), (6, 7), (6, 7)))
        left["x"], right["x"], bias["x"] = a, b, c
        check(gemmkit.matmul(left["x"], right["x"]), exact(a, b), native)
        check(gemmkit.matmul(left["x"], b), exact(a, b), native)
        check(gemmkit.matmul(a, right["x"][:, 2]), exact(a, b[:, 2]), native)
        check(gemmkit.gemm(a, b, bias["x"]), exact(a, b) + decoded(c, F64), native)
        for plan, given in ((gemmkit.GemmPlan(6, 7, 9, dtype), (b,)),
                            (gemmkit.GemmPlan(6, 7, 9, dtype, b=right["x"]), ())):
            check(plan(left["x"], *given), exact(a, b), native)
        assert gemmkit.matmul(a, right["x"], out=out["x"]).base is out
        np.testing.assert_array_equal(decoded(out["x"]), decoded(rounded(exact(a, b), dtype)))
        if "tag" in record.names:
            assert (out["tag"] == b"").all()


@by_type
def test_read_only_and_mapped_operands(dtype, tmp_path):
    a, b, c = some_integers(9, ((5, 6), dtype), ((6, 7), dtype), ((7,), dtype))
    mapped = []
    for label, x in zip("abc", (a, b, c)):
        x.tofile(tmp_path / label)
        x.flags.writeable = False
        mapped.append(np.memmap(tmp_path / label, dtype, "r", shape=x.shape))
    for x, y, z in ((a, b, c), mapped):
        got = gemmkit.matmul(x, y)
        assert type(got) is np.ndarray
        check(got, exact(a, b), result_type(dtype, dtype))
        check(gemmkit.gemm(x, y, z), exact(a, b) + decoded(c, F64), result_type(dtype, dtype))
        check(gemmkit.GemmPlan(5, 7, 6, dtype, b=y)(x, c=z), exact(a, b) + decoded(c, F64), result_type(dtype, dtype))


# ---- out

def windows(shape, dtype):
    """(buffer, out) pairs: views of a shape within a buffer full of 7, in any axis order, direction and step."""
    for order in itertools.permutations(range(len(shape))):
        for steps in itertools.product((1, 2, -1, -2), repeat=len(shape)):
            buffer = full([2 * shape[axis] + 3 for axis in order], 7, dtype)
            index = tuple(slice(1, 1 + size * step, step) if step > 0 else slice(size * -step, 0, step)
                          for size, step in zip(shape, steps))
            yield buffer, buffer.transpose(np.argsort(order))[index]


@pytest.mark.parametrize("shapes", [((4, 3), (3, 5)), ((3, 1, 40), (40, 70)), ((30,), (30, 70)), ((70, 30), (30,)),
                                    ((2, 70, 33), (33, 1)), ((70, 40), (40, 100)), ((5, 0), (0, 4)),
                                    ((3, 1500), (1500, 20))],
                         ids=str)
@by_type
def test_out_is_filled_and_nothing_around_it(shapes, dtype):
    for operand in (dtype, F32):
        a, b = some_integers(10, (shapes[0], operand), (shapes[1], operand))
        want = rounded(exact(a, b), dtype)
        for buffer, out in windows(want.shape, dtype):
            assert gemmkit.matmul(a, b, out=out) is out
            assert same_values(out, want)
            out[...] = cast(7.0, dtype)
            assert (decoded(buffer) == 7).all()


@pytest.mark.parametrize("n", [6, 70])
@by_pair
def test_out_may_overlap_its_operands(n, pair):
    """Also where an element of out covers several of an operand, or half of one."""
    a, b = some_integers(11, ((n, n), pair[0]), ((n, n), pair[1]))
    value = exact(a, b)
    for view in (lambda x: x, lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::-1].T):
        for own in range(2):
            operands = [a.copy(), b.copy()]
            out = view(operands[own])
            check(gemmkit.matmul(*operands, out=out), value, pair[own])
    for out_dtype in SINGLE:
        for shift in (0, 1, n, n * n):
            memory = np.zeros(8 * n * n + 64, np.uint8)
            left = memory[8 * shift % 64:][:a.nbytes].view(pair[0]).reshape(n, n)
            left[...] = a
            start = shift * np.dtype(out_dtype).itemsize
            out = memory[start:start + n * n * np.dtype(out_dtype).itemsize].view(out_dtype).reshape(n, n)
            check(gemmkit.matmul(left, b, out=out), value, out_dtype)
            left[...] = a
            check(gemmkit.gemm(b.T, left, out=out, trans_b=True), exact(b.T, a.T), out_dtype)
    stack = np.concatenate([a, a[::-1]]).reshape(2, n, n)
    value = exact(stack, stack[::-1])
    check(gemmkit.matmul(stack, stack[::-1], out=stack), value, pair[0])


@by_type
def test_out_may_be_c(dtype):
    for m, n, k in ((6, 6, 6), (70, 50, 40), (1, 40, 9), (40, 1, 9)):
        a, b, c = some_integers(12, ((m, k), dtype), ((k, n), dtype), ((m, n), dtype))
        value = exact(a, b) - 2 * decoded(c, F64)
        check(gemmkit.gemm(a, b, c, beta=-2.0, out=c), value, dtype)
        memory = some_integers(13, ((m + 1, n + 1), dtype))[0]
        window, out = memory[1:, 1:], memory[:m, :n]
        value = exact(a, b) + 2 * decoded(window, F64)
        check(gemmkit.gemm(a, b, window, beta=2.0, out=out), value, dtype)


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
        pytest.skip(f"not run: {algorithm} refuses {name(pair)}")


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


# ---- Sums in float32

def every_way(a, b, out_dtype=None):
    """Results of a @ b by matmul and by each algorithm that takes it, from both sides."""
    pair, (m, k), n = (a.dtype.type, b.dtype.type), a.shape, b.shape[1]
    yield "matmul", gemmkit.matmul(a, b, out_dtype=out_dtype)
    yield "turned", gemmkit.matmul(b.T, a.T, out_dtype=out_dtype).T
    yield "by columns", gemmkit.matmul(np.asfortranarray(a), np.asfortranarray(b), out_dtype=out_dtype)
    yield "constant b", gemmkit.GemmPlan(m, n, k, pair[0], b=b, b_dtype=pair[1], out_dtype=out_dtype)(a)
    for algorithm in ALGORITHMS:
        plan = forced(m, n, k, pair, algorithm, out_dtype=out_dtype)
        if plan is not None:
            yield algorithm, plan(a, b)


def check_every_way(a, b, value, out_dtype=None):
    want = rounded(value, out_dtype or result_type(a.dtype.type, b.dtype.type))
    for way, got in every_way(a, b, out_dtype):
        assert same_values(got, want), (way, a.shape, b.shape, out_dtype)


SUMS = [(BF16, 4096), (BF16, 300), (BF16, 257), (F16, 2050), (F16, 4096), (F16, 60000), (E4M3FN, 256), (E4M3FNUZ, 128),
        (E5M2, 1024), (E5M2FNUZ, 1024), (E5M2, 4096), (E4M3FN, 20000)]


@pytest.mark.parametrize("dtype,k", SUMS, ids=lambda x: x if isinstance(x, int) else name(x))
def test_long_sums_of_ones_come_out_whole(dtype, k, isa):
    for m, n in ((1, 1), (3, 5), (33, 40), (1, 40)) if k <= 2050 else ((1, 1), (3, 5)):
        a, b = full((m, k), 1, dtype), full((k, n), 1, dtype)
        check_every_way(a, b, np.full((m, n), float(k)))
        check_every_way(a, b, np.full((m, n), float(k)), dtype)
    check(gemmkit.matmul(a[0], b[:, 0]), np.float64(k), result_type(dtype, dtype))


def test_a_sum_may_leave_the_range_of_float16_and_come_back(isa):
    """60000 + 60000 - 60000 is 60000; 60000 + 60000 is infinite, once it is rounded."""
    for m, n, k in ((1, 1, 3), (5, 7, 3), (20, 50, 40), (33, 40, 700), (1, 70, 9), (70, 1, 9)):
        for at in {(0, 1, 2), (0, k // 2, k - 1)}:
            a, b = full((m, k), 0, F16), full((k, n), 1, F16)
            a[:, at] = np.array([60000, 60000, -60000], F16)
            check_every_way(a, b, np.full((m, n), 60000.0))
            a[:, at[2]] = 0
            check_every_way(a, b, np.full((m, n), 120000.0))
            check_every_way(a, b, np.full((m, n), 120000.0), F32)
            check(gemmkit.gemm(a, b, full((n,), -60000, F16)), np.full((m, n), 60000.0), F16)
            check(gemmkit.gemm(a, b, alpha=0.5), np.full((m, n), 60000.0), F16)
        a, b = full((m, 1), 300, F16), full((1, n), 300, F16)
        check_every_way(a, b, np.full((m, n), 90000.0))
        check_every_way(a, b, np.full((m, n), 90000.0), BF16)


def test_float16_products_keep_all_their_bits(isa):
    """(1 + 2^-10)^2 has 21 bits; a product or a sum rounded to float16 loses the last."""
    for m, n, k in ((1, 1, 2), (3, 5, 2), (20, 50, 2), (1, 50, 34), (50, 1, 34), (33, 40, 34)):
        a, b = full((m, k), 0, F16), full((k, n), 0, F16)
        a[:, :2], b[0], b[1] = 1 + 2.0 ** -10, 1 + 2.0 ** -10, -1
        check_every_way(a, b, np.full((m, n), (1 + 2.0 ** -10) * 2.0 ** -10), F32)
        a[:, 1] = 1
        check_every_way(a, b, np.full((m, n), 2.0 ** -9 + 2.0 ** -20), F32)


@pytest.mark.parametrize("dtype", FLOAT8, ids=name)
def test_float8_results_out_of_range(dtype, isa):
    """What the cast from float32 makes of them; never the largest number instead."""
    top = float(ml_dtypes.finfo(dtype).max)
    factors = np.array([[1, -1, 2, -2, 16, -16, 1.0625, 0.5, 1.03125]], F32)
    for m in (1, 3, 20):
        for a, b in ((full((m, 1), top, dtype), np.repeat(factors, 7, 1)),
                     (full((m, 1), top, BF16), np.repeat(factors, 7, 1))):
            b = b.astype(BF16)
            check_every_way(a, b, exact(a, b), dtype)
            check_every_way(a, b, exact(a, b))
        a, b = full((m, 2), top, dtype), full((2, 40), 1, dtype)
        check_every_way(a, b, np.full((m, 40), 2 * top), dtype)
        b[1] = cast(-0.5, dtype)
        check_every_way(a, b, np.full((m, 40), top / 2), dtype)


# ---- NaN and infinity

@by_pair
@pytest.mark.parametrize("shape", [(1, 4, 5), (4, 1, 5), (6, 9, 17), (70, 50, 40), (1, 100, 64), (3, 3, 3001)], ids=str)
def test_nan_and_infinity_reach_their_own_row_and_column(shape, pair, isa):
    """Zero times NaN or infinity is NaN, and nothing beside the row and the column changes."""
    m, n, k = shape
    a, b = some_integers(26, ((m, k), pair[0]), ((k, n), pair[1]))
    a[m // 2] = 0
    for dtype in dict.fromkeys((result_type(*pair), F32)):
        value = exact(a, b)
        x = a.copy()
        x[m - 1, k - 1] = cast(np.nan, pair[0])
        value[m - 1] = np.nan
        check_every_way(x, b, value, dtype)
        y = b.copy()
        y[k // 2, n - 1] = cast(np.nan, pair[1])
        value[:, n - 1] = np.nan
        check_every_way(x, y, value, dtype)
    if np.isinf(decoded(cast(np.inf, pair[1]))):
        y = b.copy()
        y[k // 2, 0] = cast(np.inf, pair[1])
        check_every_way(a, y, exact(a, y))
        y[k // 2, n - 1] = cast(-np.inf, pair[1])
        check_every_way(a, y, exact(a, y), F32)


# ---- Subnormals

SIZES = [(1, 1, 1), (5, 4, 3), (40, 50, 34), (1, 70, 33), (70, 1, 33), (3, 3, 301)]


def check_subnormal(m, n, k, pair, low, high, value, out_dtype):
    """One of the two operands is full of 2^low; of the other one row alone counts."""
    a, b = full((m, k), 0, pair[0]), full((k, n), 0, pair[1])
    for at in {0, k // 2, k - 1}:
        a[...], b[...] = cast(2.0 ** low, pair[0]), 0
        b[at] = cast(2.0 ** high, pair[1])
        check_every_way(a, b, np.full((m, n), value), out_dtype)


@pytest.mark.parametrize("low,high", [(-130, 120), (-133, 127), (-127, 1), (-128, 1), (-133, 0), (-129, 2)])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_subnormal_bfloat16_operands_count(size, low, high, isa):
    """As A and, turned round, as B; the result ordinary or subnormal."""
    for out_dtype in (BF16, F32):
        check_subnormal(*size, (BF16, BF16), low, high, 2.0 ** (low + high), out_dtype)
    check_subnormal(*size, (BF16, F32), low, high, 2.0 ** (low + high), F32)


@pytest.mark.parametrize("low,high", [(-70, -70), (-64, -63), (-100, -49), (-75, -74), (-126, -1), (-120, -9),
                                      (-120, -8)])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_of_ordinary_bfloat16_may_be_subnormal(size, low, high, isa):
    check_subnormal(*size, (BF16, BF16), low, high, 2.0 ** (low + high), F32)
    if high >= -9:
        check_subnormal(*size, (BF16, E4M3FN), low, high, 2.0 ** (low + high), F32)  # 2^-9 is a subnormal there
        check_subnormal(*size, (BF16, E5M2FNUZ), low, high, 2.0 ** (low + high), F32)
        check_subnormal(*size, (BF16, F16), low, high, 2.0 ** (low + high), F32)


def test_subnormal_products_add_up(isa):
    """128 of 2^-140 make 2^-133, bfloat16's least; and a subnormal sum is not lost when an ordinary product follows."""
    for m, n in ((1, 1), (5, 7), (33, 40), (1, 70)):
        a, b = full((m, 128), 2.0 ** -70, BF16), full((128, n), 2.0 ** -70, BF16)
        check_every_way(a, b, np.full((m, n), 2.0 ** -133))
        check_every_way(a, b, np.full((m, n), 2.0 ** -133), F32)
        check(gemmkit.gemm(a, b, full((n,), 2.0 ** -133, BF16)), np.full((m, n), 2.0 ** -132), BF16)
    for m, n, k in ((1, 1, 2), (5, 7, 3), (20, 50, 34), (1, 70, 35), (70, 1, 35), (3, 3, 1501)):
        for first, second in {(0, 1), (k // 2, k - 1), (0, k - 1)}:
            if first == second:
                continue
            # Both products are ordinary numbers, their difference isn't.
            a, b = full((m, k), 0, BF16), full((k, n), 0, BF16)
            a[:, first], a[:, second] = cast(1.5 * 2.0 ** -63, BF16), cast(-2.0 ** -63, BF16)
            b[first] = b[second] = cast(2.0 ** -63, BF16)
            check_every_way(a, b, np.full((m, n), 2.0 ** -127), F32)
            check_every_way(a, b, np.full((m, n), 2.0 ** -127), BF16)
            a[:, second] = cast(2.0 ** -90, BF16)
            b[first], b[second] = cast(2.0 ** -63, BF16), cast(2.0 ** -50, BF16)
            check_every_way(a, b, np.full((m, n), 1.5 * 2.0 ** -126 + 2.0 ** -140), F32)


@pytest.mark.parametrize("out_dtype", [BF16, F32], ids=name)
def test_a_subnormal_times_infinity_is_infinite(out_dtype, isa):
    """It isn't the NaN that a zero would make."""
    for m, n, k in SIZES:
        a, b = full((m, k), 2.0 ** -130, BF16), full((k, n), 1, BF16)
        b[k - 1] = np.inf
        check_every_way(a, b, np.full((m, n), np.inf), out_dtype)
        b[k // 2] = np.nan
        check_every_way(a, b, np.full((m, n), np.nan), out_dtype)


@pytest.mark.parametrize("second", [BF16, F32, E5M2, F16], ids=name)
def test_one_subnormal_among_ordinary_numbers(second, isa):
    """In the first and last row and column, and in each block of K: wherever it stands, it counts."""
    pair, kc = (BF16, second), most_kc((BF16, second))
    high = 120 if second in (BF16, F32) else 14
    value = 2.0 ** (high - 130)
    for m, n, k in ((1, 1, 9), (5, 7, 31), (33, 70, 64), (64, 1, 33), (1, 64, 33), (9, 50, 2 * kc + 5)):
        for i, at in {(0, 0), (m - 1, k - 1), (m // 2, k // 2), (m // 2, min(kc, k - 1)),
                      (m - 1, min(2 * kc + 1, k - 1))}:
            a, b = some_integers(27, ((m, k), BF16), ((k, n), second))
            if high == 14:
                a, b = full((m, k), 0, BF16), full((k, n), 1, second)  # 2^-116 would drown in a sum of integers
            elif k > 64:
                a[:, 64:] = 0  # leave the sums short, so that 2^-10 fits below them
            a[:, at] = 0
            a[i, at], b[at] = cast(2.0 ** -130, BF16), cast(2.0 ** high, second)
            want = exact(a, b)
            assert abs(want[i] - np.round(want[i])).max() == value
            check_every_way(a, b, want, F32)
            check(gemmkit.matmul(b.T, a.T, out_dtype=F32), want.T, F32)


def test_subnormals_among_matrices_of_a_batch_and_calls_of_a_plan(isa):
    """Only one matrix holds them: the others keep theirs exact, and a plan's next call is not misled by the last."""
    for m, n, k in ((5, 7, 9), (40, 50, 34), (1, 40, 33)):
        ordinary, = some_integers(28, ((m, k), BF16))
        ordinary[:, 0] = 0
        small = ordinary.copy()
        small[m - 1, 0] = cast(2.0 ** -130, BF16)
        b, = some_integers(29, ((k, n), BF16))
        b[0] = cast(2.0 ** 120, BF16)
        stack = np.stack([ordinary, small, ordinary])
        check(gemmkit.matmul(stack, b, out_dtype=F32), exact(stack, b), F32)
        strided = gemmkit.StridedBatchedGemm(3, m, n, k, BF16, out_dtype=F32)
        check(strided(stack, np.stack([b] * 3)), exact(stack, b), F32)
        group = gemmkit.GroupedGemm([(m, n, k)] * 3, BF16, out_dtype=F32)
        for got, x in zip(group(list(stack), [b] * 3), stack):
            check(got, exact(x, b), F32)
        for plan, given in ((gemmkit.GemmPlan(m, n, k, BF16, out_dtype=F32), (b,)),
                            (gemmkit.GemmPlan(m, n, k, BF16, out_dtype=F32, b=b), ())):
            for x in (ordinary, small, ordinary, small):
                check(plan(x, *given), exact(x, b), F32)
        plan = gemmkit.GemmPlan(n, m, k, BF16, trans_a=True, trans_b=True, b=small, out_dtype=F32)
        check(plan(b), exact(b.T, small.T), F32)


@by_type
def test_subnormals_of_each_type_count(dtype, isa):
    tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    for m, n, k in SIZES:
        a, b = full((m, k), tiny, dtype), full((k, n), 0, dtype)
        b[k // 2] = 1
        check_every_way(a, b, np.full((m, n), tiny), dtype)
        check_every_way(a, b, np.full((m, n), tiny), F32)


def test_the_processor_goes_on_to_count_subnormals():
    """Also in threads, after products of bfloat16 were computed in them."""
    script = """
        import sys, threading
        import numpy as np, gemmkit, ml_dtypes
        def fine():
            return sys.float_info.min / 2 > 0 and np.float32(1e-45) * np.float32(1) > 0
        assert fine()
        for dtype in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
            for threads in (1, 2):
                with gemmkit.threads(threads):
                    x = np.full((300, 300), 2.0 ** -9, np.float32).astype(dtype)
                    gemmkit.matmul(x, x)
                    y = np.full((300, 300), 1e-40, np.float32)
                    assert (gemmkit.matmul(np.eye(300, dtype=np.float32), y) == y).all()
        assert fine()
        seen = []
        thread = threading.Thread(target=lambda: seen.append(fine()))
        thread.start()
        thread.join()
        assert seen == [True]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)


# ---- Plans

def test_plans_tell_their_types():
    for pair in PAIRS:
        for out_dtype in (None, *SINGLE):
            types = {"b_dtype": pair[1], "out_dtype": out_dtype}
            plans = [gemmkit.GemmPlan(4, 5, 3, pair[0], **types), gemmkit.MatMulPlan((4, 3), (3, 5), pair[0], **types),
                     gemmkit.StridedBatchedGemm(2, 4, 5, 3, pair[0], **types),
                     *gemmkit.GroupedGemm([(4, 5, 3)], pair[0], **types).plans]
            for plan in plans:
                assert plan.dtype == pair[0] and plan.b_dtype == pair[1]
                assert plan.out_dtype == (out_dtype or result_type(*pair))
                assert name(pair[0]) in repr(plan)
                with pytest.raises(AttributeError):
                    plan.out_dtype = F32
    for dtype in (*SINGLE, F64):
        plan = gemmkit.GemmPlan(4, 5, 3, dtype)
        assert plan.b_dtype == plan.dtype == dtype and plan.out_dtype == result_type(dtype, dtype)


@by_type
def test_plans_of_float64_and_a_narrow_type(dtype):
    rng = np.random.default_rng(30)
    a, b = random_values(rng, (4, 30), F64), random_values(rng, (30, 5), dtype)
    plan = gemmkit.GemmPlan(4, 5, 30, F64, b_dtype=dtype)
    assert plan.out_dtype == F64
    check_close(plan(a, b), a, b, F64)
    plan = gemmkit.MatMulPlan((5, 30), (30, 4), dtype, b_dtype=F64)
    assert plan.out_dtype == F64
    check_close(plan(b.T, a.T), b.T, a.T, F64)


@pytest.mark.parametrize("own_b", [False, True])
@by_pair
def test_gemm_plan(pair, own_b, isa):
    for (trans_a, trans_b), (m, n, k) in itertools.product(FLAGS, ((5, 7, 3), (1, 40, 30), (40, 1, 30), (33, 51, 700),
                                                                    (70, 48, 0))):
        a, b, product, integral = problem(m, n, k, pair, trans_a, trans_b)
        product = 0.5 * product
        for dtype in dict.fromkeys((result_type(*pair), *pair)):
            plan = gemmkit.GemmPlan(m, n, k, pair[0], trans_a=trans_a, trans_b=trans_b, alpha=0.5, beta=-2.0,
                                    b=b if own_b else None, b_dtype=pair[1], out_dtype=dtype)
            given = () if own_b else (b,)
            check(plan(a, *given), product, dtype)
            c = integral.astype(dtype)
            for bias in (c, c[0], c[:, :1], np.asfortranarray(c),
                         c[:1, :1]) if dtype == result_type(*pair) else (c[:, :1],):
                check(plan(a, *given, c=bias), product - 2 * decoded(bias, F64), dtype)
            for out in (full((n, m), 113, dtype).T, full((2 * m, 2 * n), 113, dtype)[::-2, ::-2]):
                assert plan(a, *given, c=c, out=out) is out
                check(out, product - 2 * decoded(c, F64), dtype)


@by_type
def test_plans_take_c_of_every_narrow_type(dtype):
    a, b = some_integers(33, ((9, 20), dtype), ((20, 33), dtype))
    for c_dtype in SINGLE:
        c, = some_integers(34, ((9, 33), c_dtype))
        plan = gemmkit.GemmPlan(9, 33, 20, dtype, out_dtype=F32)
        check(plan(a, b, c), exact(a, b) + decoded(c, F64), F32)


@by_pair
@pytest.mark.parametrize("shapes", [((3,), (3,)), ((40,), (40, 70)), ((70, 40), (40,)), ((6, 4, 30), (30, 50)),
                                    ((6, 1, 30), (30, 50)), ((2, 6, 9, 30), (6, 30, 50)), ((9, 30), (4, 30, 20)),
                                    ((2, 1, 9, 30), (3, 30, 20)), ((0, 9, 30), (30, 5)), ((2, 9, 0), (2, 0, 5))],
                         ids=str)
def test_matmul_plan(shapes, pair):
    a, b = some_integers(35, (shapes[0], pair[0]), (shapes[1], pair[1]))
    value = exact(a, b)
    for dtype in (None, *SINGLE):
        for own, given in ((None, (b,)), (b, ()), (np.asfortranarray(b), ())):
            plan = gemmkit.MatMulPlan(*shapes, pair[0], b=own, b_dtype=pair[1], out_dtype=dtype)
            check(plan(a, *given), value, dtype or result_type(*pair))
            if value.ndim:
                out = full(value.shape[::-1], 113, dtype or result_type(*pair)).T
                check(plan(a, *given, out=out), value, dtype or result_type(*pair))


@by_pair
def test_an_owned_b_is_a_copy(pair):
    for shape in ((30, 50), (600, 97), (3, 30, 50), (30,)):
        a, b = some_integers(36, ((2, 3, 9, shape[-2] if len(shape) > 1 else shape[0]), pair[0]), (shape, pair[1]))
        value = exact(a, b)
        plan = gemmkit.MatMulPlan(a.shape, shape, pair[0], b=b, b_dtype=pair[1])
        b[...] = cast(np.nan, pair[1])
        check(plan(a), value, result_type(*pair))
        del b
        poison = [full(shape, np.nan, pair[1]) for _ in range(4)]
        check(plan(a), value, result_type(*pair))
        del poison


@by_pair
def test_strided_batched_gemm(pair):
    for (trans_a, trans_b), (batch, m, n, k) in itertools.product(FLAGS,
                                                                  ((1, 5, 7, 3), (4, 9, 50, 30), (7, 1, 40, 20))):
        a, b = some_integers(37, ((batch, k, m) if trans_a else (batch, m, k), pair[0]),
                             ((batch, n, k) if trans_b else (batch, k, n), pair[1]))
        product = 2 * exact(turned(a, trans_a), turned(b, trans_b))
        for dtype in dict.fromkeys((result_type(*pair), *pair)):
            c, = some_integers(38, ((batch, m, n), dtype))
            options = {"trans_a": trans_a, "trans_b": trans_b, "alpha": 2.0, "beta": 0.5, "b_dtype": pair[1],
                       "out_dtype": dtype}
            for plan, given in ((gemmkit.StridedBatchedGemm(batch, m, n, k, pair[0], **options), (b,)),
                                (gemmkit.StridedBatchedGemm(batch, m, n, k, pair[0], b=b, **options), ())):
                check(plan(a, *given), product, dtype)
                for bias in (c, c[0], c[:, :1], c[:, :, :1], c[::-1]):
                    check(plan(a, *given, c=bias), product + 0.5 * decoded(bias, F64), dtype)
                out = full((m, batch, n), 113, dtype).swapaxes(0, 1)
                check(plan(a, *given, c=c, out=out), product + 0.5 * decoded(c, F64), dtype)


@pytest.mark.parametrize("trans_a,trans_b", FLAGS)
@by_pair
def test_grouped_gemm(pair, trans_a, trans_b):
    shapes = [(5, 7, 3), (150, 160, 70), (1, 40, 30), (0, 4, 5), (4, 5, 0), (40, 1, 300), (9, 9, 2000)]
    a = some_integers(39, *[((k, m) if trans_a else (m, k), pair[0]) for m, n, k in shapes])
    b = some_integers(40, *[((n, k) if trans_b else (k, n), pair[1]) for m, n, k in shapes])
    values = [0.5 * exact(turned(x, trans_a), turned(y, trans_b)) for x, y in zip(a, b)]
    for dtype in dict.fromkeys((result_type(*pair), *pair)):
        group = gemmkit.GroupedGemm(shapes, pair[0], trans_a=trans_a, trans_b=trans_b, alpha=0.5, b_dtype=pair[1],
                                    out_dtype=dtype)
        outs = [full(value.shape[::-1], 113, dtype).T for value in values]
        for threads in (1, 3):
            with gemmkit.threads(threads):
                for got in (group(a, b), group(a, b, out=outs)):
                    for x, value in zip(got, values):
                        check(x, value, dtype)


# ---- Errors

FOREIGN = [np.int32, np.int8, bool, np.complex64, np.longdouble, object, "U3", "M8[s]"]


@pytest.mark.parametrize("foreign", FOREIGN, ids=str)
@by_type
def test_foreign_types_are_refused_by_name(dtype, foreign):
    a, b, c = full((4, 3), 1, dtype), full((3, 5), 1, dtype), full((5,), 1, dtype)
    out = full((4, 5), 7, dtype)
    for call, operands in ((gemmkit.matmul, (a, b)), (gemmkit.gemm, (a, b, c))):
        for at, label in enumerate("abc"[:len(operands)]):
            unfit = list(operands)
            unfit[at] = np.zeros(operands[at].shape, foreign)
            with pytest.raises(TypeError, match=f"^{label}: "):
                call(*unfit, out=out)
        with pytest.raises(TypeError, match="^out: "):
            call(*operands, out=np.zeros((4, 5), foreign))
        with pytest.raises(TypeError, match="out_dtype"):
            call(*operands, out_dtype=foreign)
        with pytest.raises(TypeError, match="out_dtype"):
            call(*operands, out=out, out_dtype=foreign)
    assert (decoded(out) == 7).all()
    for kind, sizes in (("GemmPlan", (4, 5, 3)), ("MatMulPlan", ((4, 3), (3, 5))), ("StridedBatchedGemm", (2, 4, 5, 3)),
                        ("GroupedGemm", ([(4, 5, 3)],))):
        make = getattr(gemmkit, kind)
        with pytest.raises(TypeError, match="out_dtype"):
            make(*sizes, dtype, out_dtype=foreign)
        with pytest.raises(TypeError, match="b_dtype"):
            make(*sizes, dtype, b_dtype=foreign)
        with pytest.raises(TypeError, match="dtype"):
            make(*sizes, foreign)


@by_type
def test_out_types_that_cannot_be_are_refused(dtype):
    """float64 stays among itself, and out and out_dtype agree."""
    a, b = full((4, 3), 1, dtype), full((3, 5), 1, dtype)
    wide_a, wide_b, wide_c = np.ones((4, 3)), np.ones((3, 5)), np.ones(5)
    out = full((4, 5), 7, dtype)
    for operands in ((wide_a, b), (a, wide_b), (wide_a, wide_b), (a, b, wide_c)):
        call = gemmkit.gemm if len(operands) == 3 else gemmkit.matmul
        with pytest.raises(TypeError, match="^out: "):
            call(*operands, out=out)
        for out_dtype in (dtype, F32):
            with pytest.raises(TypeError, match="out_dtype"):
                call(*operands, out_dtype=out_dtype)
    for call in (gemmkit.matmul, gemmkit.gemm):
        with pytest.raises(TypeError, match="out_dtype"):
            call(a, b, out_dtype=F64)
        with pytest.raises(TypeError, match="^out: "):
            call(a, b, out=np.full((4, 5), 7.0))
        for other in SINGLE:
            if other != dtype:
                with pytest.raises(TypeError, match="out"):
                    call(a, b, out=out, out_dtype=other)
        for unfit in (out.tolist(), (out, out)):
            with pytest.raises(TypeError, match="out: "):
                call(a, b, out=unfit)
    with pytest.raises(TypeError, match="out_dtype"):
        gemmkit.matmul(a, b, out_dtype="nonsense")
    for unfit in (out[:3], out.T, out[None]):
        with pytest.raises(ValueError, match="out: "):
            gemmkit.matmul(a, b, out=unfit)
    with pytest.raises(ValueError):
        gemmkit.matmul(a, b[:2], out=out)
    for x, y in ((a[0, 0], b), (a, b[0, 0]), (a[0], b[0]), (a, a)):
        with pytest.raises(ValueError):
            gemmkit.matmul(x, y, out=out)
    assert (decoded(out) == 7).all()


@by_pair
def test_plans_refuse_other_types_than_planned(pair):
    """Those that they were made for are theirs alone: no conversion, also not a harmless one."""
    a, b = some_integers(41, ((4, 3), pair[0]), ((3, 5), pair[1]))
    for plan, x, y in ((gemmkit.GemmPlan(4, 5, 3, pair[0], b_dtype=pair[1]), a, b),
                       (gemmkit.MatMulPlan((4, 3), (3, 5), pair[0], b_dtype=pair[1]), a, b),
                       (gemmkit.StridedBatchedGemm(2, 4, 5, 3, pair[0], b_dtype=pair[1]), np.stack([a] * 2),
                        np.stack([b] * 2))):
        out = full(exact(x, y).shape, 7, plan.out_dtype.type)
        for other in (*SINGLE, F64):
            if other != pair[0]:
                with pytest.raises(TypeError, match="^a: "):
                    plan(decoded(x, F64).astype(other), y, out=out)
            if other != pair[1]:
                with pytest.raises(TypeError, match="^b: "):
                    plan(x, decoded(y, F64).astype(other), out=out)
            if other != plan.out_dtype:
                with pytest.raises(TypeError, match="^out: "):
                    plan(x, y, out=full(out.shape, 7, other))
        assert (decoded(out) == 7).all()
    if pair[0] != pair[1]:
        with pytest.raises(TypeError, match="b: "):
            gemmkit.GemmPlan(4, 5, 3, pair[0], b_dtype=pair[0], b=b)


# ---- Anything that a shape and strides can be

@st.composite
def operand(draw, shape, dtype, seed):
    """Random values of a shape, in memory of any axis order, with gaps, backwards or repeated."""
    values = random_values(np.random.default_rng(seed), shape, dtype)
    steps = [draw(st.sampled_from((1, 1, 1, -1, 2, -3, 0))) for _ in shape]
    for axis, step in enumerate(steps):
        if step == 0 and shape[axis] > 1:
            values = np.broadcast_to(values.take([0], axis), shape)
    order = draw(st.permutations(range(len(shape))))
    lengths = [1 if steps[axis] == 0 else shape[axis] * abs(steps[axis]) for axis in order]
    view = full(lengths, np.nan, dtype).transpose(np.argsort(order))
    view = np.broadcast_to(view[tuple(slice(None, None, step or 1) for step in steps)], shape)
    view.flags.writeable = True
    view[...] = values
    return view


SIDES = st.one_of(st.integers(0, 9), st.integers(0, 70), st.sampled_from((1, 4, 8, 16, 48, 96, 97, 130)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), m=SIDES, n=SIDES, k=SIDES, dtypes=st.tuples(*[st.sampled_from(SINGLE)] * 3),
       seed=st.integers(0, 2 ** 16),
       batch=st.sampled_from(((), (2,), (3, 1))))
def test_any_operands(isa, data, m, n, k, dtypes, seed, batch):
    a_shape = data.draw(st.sampled_from(((*batch, m, k), (k,))))
    b_shape = data.draw(st.sampled_from(((k, n), (2, k, n), (k,))))
    a, b = data.draw(operand(a_shape, dtypes[0], seed)), data.draw(operand(b_shape, dtypes[1], seed + 1))
    check_close(gemmkit.matmul(a, b), a, b, result_type(*dtypes[:2]))
    out = data.draw(operand(exact(a, b).shape, dtypes[2], seed + 2))
    if 0 not in [stride for stride, length in zip(out.strides, out.shape) if length > 1]:
        gemmkit.matmul(a, b, out=out)
        check_close(out, a, b, dtypes[2])


# ---- Speed

@by_type
def test_products_are_not_an_order_of_magnitude_slower_than_float32(dtype):
    n = 384

    def seconds(operand_type):
        x, times = full((n, n), 1, operand_type), []
        for _ in range(7):
            start = time.perf_counter()
            gemmkit.matmul(x, x)
            times.append(time.perf_counter() - start)
        return min(times)

    assert seconds(dtype) <= 10 * seconds(F32) + 5e-3
