"""matmul on booleans and integers: numpy's types and wrap-around, whatever the shape, memory, algorithm or set."""
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from integers import (
    ALGORITHMS,
    BF16,
    BOOL,
    BYTES,
    COUNTS,
    F16,
    F32,
    F64,
    FLOAT8,
    I8,
    I16,
    I32,
    I64,
    SIZES,
    U8,
    U16,
    U32,
    U64,
    WHOLE,
    bools,
    check,
    check_by_projection,
    layouts,
    limits,
    matmul,
    name,
    pairs,
    problem,
    values,
    windows,
)

import gemmkit

ALL = (BOOL, *BYTES, *WHOLE)
KINDS = (BOOL, I8, U8, I16, I32, U64)  # one of each kernel, and of each treatment of its sums
NARROW = (BOOL, *BYTES)  # one byte an element

by_type = pytest.mark.parametrize("dtype", ALL, ids=name)
by_kind = pytest.mark.parametrize("dtype", KINDS, ids=name)


def some(seed, dtype, *shapes):
    rng = np.random.default_rng(seed)
    return [bools(rng, shape, shape[-1]) if dtype == BOOL else values(rng, shape, dtype) for shape in shapes]


# ---- Types

@pairs(ALL)
def test_mixed_types_have_numpys_result(pair):
    rng = np.random.default_rng(1)
    floating = np.result_type(*pair).kind == "f"  # int64 with uint64: kept small, so that float64 is exact
    for shapes in (((5, 9), (9, 7)), ((9,), (9, 40)), ((2, 1, 40, 9), (3, 9, 1)), ((9,), (9,)), ((4, 0), (0, 3))):
        a, b = (bools(rng, shape, 9) if dtype == BOOL else values(rng, shape, dtype, *((0, 1000) if floating else ()))
                if not (floating and dtype == I64) else values(rng, shape, dtype, -1000, 1000)
                for shape, dtype in zip(shapes, pair))
        check(gemmkit.matmul(a, b), matmul(a, b))


@pytest.mark.parametrize("pair,dtype", [
    ((I8, F16), F16), ((U8, F16), F16), ((BOOL, F16), F16), ((I16, F16), F32), ((U16, F16), F32), ((I32, F16), F64),
    ((I8, BF16), BF16), ((U8, BF16), BF16), ((BOOL, BF16), BF16), ((I8, F32), F32), ((U16, F32), F32),
    ((BOOL, F32), F32), ((I32, F32), F64), ((U32, F32), F64), ((U64, F32), F64), ((I64, F64), F64), ((BOOL, F64), F64),
    ((I8, F64), F64)], ids=name)
def test_integers_with_floats_have_numpys_result(pair, dtype):
    assert np.result_type(*pair) == dtype
    rng = np.random.default_rng(2)
    for m, n, k in ((4, 5, 6), (1, 40, 9), (40, 1, 9), (33, 50, 40)):
        a = values(rng, (m, k), pair[0], 0, 1 if pair[0] == BOOL else 7)
        b = values(rng, (k, n), I8, -4, 4).astype(pair[1])
        check(gemmkit.matmul(a, b), matmul(a, b))
        check(gemmkit.matmul(b.T, a.T), matmul(b.T, a.T))


@pytest.mark.parametrize("pair", list(itertools.product((I16, U16, I32, U32, I64, U64), (BF16, FLOAT8[0]))), ids=name)
def test_types_without_a_common_one_are_refused(pair):
    a, b, out = np.ones((2, 3), pair[0]), np.ones((3, 4), pair[1]), np.full((2, 4), 7, F32)
    for operands in ((a, b), (b.T, a.T)):
        with pytest.raises(TypeError):
            gemmkit.matmul(*operands)
    with pytest.raises(TypeError):
        gemmkit.matmul(a, b, out=out)
    assert (out == 7).all()


@by_type
def test_vectors_give_a_scalar_and_the_rest_fresh_arrays(dtype):
    a, b = some(3, dtype, (4, 9), (9, 5))
    scalar = gemmkit.matmul(a[0], b[:, 1])
    assert type(scalar) is dtype
    check(scalar, matmul(a[0], b[:, 1]))
    assert type(gemmkit.matmul(a[0, :0], b[:0, 1])) is dtype and gemmkit.matmul(a[0, :0], b[:0, 1]) == 0
    got = gemmkit.matmul(a, b)
    assert type(got) is np.ndarray and got.flags.c_contiguous and got.flags.owndata and got.flags.writeable
    check(gemmkit.matmul(a, b, out_dtype=dtype), matmul(a, b))


def test_lists_are_what_numpy_makes_of_them():
    for a, b in (([[1, -2], [3, 4]], [[5, 6], [-7, 8]]), ([True, False], [[True], [True]])):
        check(gemmkit.matmul(a, b), matmul(np.asarray(a), np.asarray(b)))
        check(gemmkit.matmul(np.asarray(a), b), matmul(np.asarray(a), np.asarray(b)))
    check(gemmkit.matmul([1, 2], np.array([3, 4], I8)), np.asarray(I64(11)))


def test_any_byte_but_zero_is_true():
    a, b = np.zeros((2, 9, 40), U8)
    a[:, ::3], b[:, ::4] = 1, 255  # summed as signed bytes, a 1 and a 255 would be nothing
    a[3, 1:3], a[4, 5:9] = 128, 255
    b = np.ascontiguousarray(b.T)
    for left, right in ((a, b), (a[:1], b), (a, b[:, :1]), (a[3], b[:, 3])):
        check(gemmkit.matmul(left.view(BOOL), right.view(BOOL)), matmul(left != 0, right != 0))


# ---- Shapes

SHAPES = [((3,), (3,)), ((1,), (1,)), ((3,), (3, 5)), ((4, 3), (3,)), ((1, 1), (1, 1)), ((2, 4, 3), (3, 5)),
          ((4, 3), (2, 3, 5)), ((2, 1, 4, 3), (6, 3, 5)), ((1, 6, 4, 3), (2, 1, 3, 5)), ((3,), (2, 3, 5)),
          ((2, 4, 3), (3,)), ((7, 2, 1, 3), (3, 5)), ((2, 3, 1, 4, 3), (1, 3, 2, 3, 1)), ((33, 40), (40, 50)),
          ((5, 33, 40), (40, 17)), ((3, 2, 70, 1), (1, 90))]
EMPTY = [((0, 3), (3, 4)), ((2, 3), (3, 0)), ((3,), (3, 0)), ((0, 2, 3), (3, 4)), ((0, 0), (0, 0)),
         ((1, 2, 3), (0, 3, 4)), ((3,), (0, 3, 4)), ((0, 2, 0), (0, 4))]
NO_SUM = [((64, 0), (0, 48)), ((3, 64, 0), (0, 48)), ((0,), (0, 48)), ((64, 0), (0,)), ((0,), (0,)),
          ((9, 0), (2, 0, 1))]


@by_type
@pytest.mark.parametrize("shapes", SHAPES + EMPTY + NO_SUM, ids=str)
def test_shapes_follow_numpy(shapes, dtype):
    a, b = some(4, dtype, *shapes)
    want = matmul(a, b)
    assert want.shape == np.matmul(np.zeros(shapes[0]), np.zeros(shapes[1])).shape
    poison = [np.full(max(want.size, 1), 1, dtype) for _ in range(4)]
    del poison  # its memory is likely to come back as the result's
    check(gemmkit.matmul(a, b), want)
    out = np.full(want.shape, 1, dtype)
    assert gemmkit.matmul(a, b, out=out) is out
    check(out, want)


@pytest.mark.parametrize("shapes", [((), (2, 2)), ((2, 2), ()), ((3,), (4,)), ((2, 3), (2, 3)), ((2, 4, 5), (3, 5, 6)),
                                    ((4, 1), (2, 4))], ids=str)
def test_unfit_shapes_are_refused_by_name(shapes):
    for dtype in KINDS:
        with pytest.raises(ValueError) as error:
            gemmkit.matmul(np.ones(shapes[0], dtype), np.ones(shapes[1], dtype))
        assert str(shapes[0]) in str(error.value) and str(shapes[1]) in str(error.value)


@by_type
def test_tails(dtype, isa):
    for m, n, k in SIZES:
        a, b, want = problem(m, n, k, (dtype, dtype))
        check(gemmkit.matmul(a, b), want)
        check(gemmkit.matmul(b.T, a.T), want.T)


# ---- Memory

@by_kind
@pytest.mark.parametrize("shape", [(21, 19, 18), (1, 30, 70), (70, 33, 1), (6, 130, 40)], ids=str)
def test_every_pair_of_layouts(shape, dtype, isa):
    m, k, n = shape
    a, b, want = problem(m, n, k, (dtype, dtype))
    last_row, column = matmul(a[-1], b), matmul(a, b[:, n // 2])
    for x, y in itertools.product(layouts(a).values(), layouts(b).values()):
        check(gemmkit.matmul(x, y), want)
        check(gemmkit.matmul(x[-1], y), last_row)
        check(gemmkit.matmul(x, y[:, n // 2]), column)


@by_kind
def test_repeated_rows_columns_and_matrices(dtype):
    one, row, column, matrix, b = some(5, dtype, (1, 1), (1, 19), (21, 1), (21, 19), (19, 18))
    for a in (np.broadcast_to(one, (21, 19)), np.broadcast_to(row, (21, 19)), np.broadcast_to(column, (21, 19)),
              np.broadcast_to(matrix, (4, 21, 19)), np.broadcast_to(row, (5, 1, 19))):
        check(gemmkit.matmul(a, b), matmul(a, b))
        turned = a.swapaxes(-1, -2)
        check(gemmkit.matmul(b.T, turned), matmul(b.T, turned))


@by_kind
@pytest.mark.parametrize("inner", [(5, 7, 9), (1, 7, 40), (9, 30, 1), (20, 33, 30)], ids=str)
def test_batch_axes_of_any_order_and_step(inner, dtype):
    m, k, n = inner
    a, b = some(6, dtype, (3, 2, 4, m, k), (3, 2, 4, k, n))
    stacks = (lambda x: x, lambda x: np.repeat(x, 2, 0)[::-2], lambda x: x[:, ::-1, 1:3], lambda x: x[:, :1],
              lambda x: x[0, 0, :1], lambda x: np.moveaxis(np.moveaxis(x, 3, 0).copy(), 0, 3))
    for left, right in itertools.product(stacks, stacks):
        x, y = left(a), right(b)
        if (x.shape[-3], y.shape[-3]) not in ((4, 2), (2, 4)):
            check(gemmkit.matmul(x, y), matmul(x, y))


@by_type
def test_unaligned_swapped_and_read_only_operands(dtype):
    a, b = some(7, dtype, (6, 9), (9, 7))
    want = matmul(a, b)
    record, swapped = np.dtype([("tag", "S1"), ("x", dtype)]), np.dtype(dtype).newbyteorder()
    for place in (lambda shape: np.zeros(shape, record)["x"], lambda shape: np.zeros(shape, swapped),
                  lambda shape: np.zeros(shape, np.dtype([("tag", "S1"), ("x", swapped)]))["x"]):
        left, right, out = place((6, 9)), place((9, 7)), place((6, 7))
        left[...], right[...] = a, b
        left.flags.writeable = right.flags.writeable = False
        assert gemmkit.matmul(left, right).dtype.isnative
        check(gemmkit.matmul(left, right), want)
        check(gemmkit.matmul(left, b), want)
        assert gemmkit.matmul(a, right, out=out) is out
        np.testing.assert_array_equal(out, want)
        if out.base is not None and out.base.dtype.names:
            assert (out.base["tag"] == b"").all()
    assert (left == a).all() and (right == b).all()


@pytest.mark.parametrize("edge", ["end", "start"])
@by_kind
def test_nothing_around_the_operands_is_touched(dtype, edge, isa, guarded):
    """Each operand borders a page that can't be read, and quads of steps reach over an odd end."""
    for m, n, k in SIZES[1::2]:
        a, b, want = problem(m, n, k, (dtype, dtype))
        out = guarded(np.zeros((m, n), dtype), edge=edge)
        gemmkit.matmul(guarded(a, edge=edge), guarded(b, edge=edge), out=out)
        check(out, want)
        check(gemmkit.matmul(guarded(b.T, edge=edge), guarded(a.T, edge=edge)), want.T)
        check(gemmkit.matmul(a, guarded(b.T.copy(), edge=edge).T), want)


# ---- Extremes

@by_type
def test_extremes_wrap(dtype, isa):
    low, high = limits(dtype)
    for m, n, k in ((3, 5, 7), (1, 40, 258), (40, 1, 64), (17, 49, 100)):
        for left, right in itertools.product(((low, low), (high, high), (low, high), (high, low)), repeat=2):
            a, b = np.empty((m, k), dtype), np.empty((k, n), dtype)
            a[:, ::2], a[:, 1::2], b[::2], b[1::2] = *left, *right
            want = matmul(a[:1], b[:, :1])
            check(gemmkit.matmul(a, b), np.full((m, n), want.item(), dtype))


def test_long_sums_of_bytes_wrap_at_eight_bits():
    for dtype, value in ((U8, 255), (I8, -128), (I8, 127), (I16, -(2 ** 15)), (U16, 2 ** 16 - 1)):
        for m, n, k in ((1, 1, 66_051), (3, 5, 66_051)):  # more than 2^32 of the largest bytes' products
            a, b = np.full((m, k), value, dtype), np.full((k, n), value, dtype)
            check(gemmkit.matmul(a, b), np.full((m, n), matmul(a[0], b[:, 0]).item(), dtype))
    ones = np.ones((3, 256), BOOL)
    assert gemmkit.matmul(ones, ones.T).all()  # a count of 256 is no low byte of 0


# ---- Algorithms and threads

def forced(a, b, algorithm):
    """The product by one algorithm, or None where it refuses."""
    if gemmkit.MatMulPlan(a.shape, b.shape, a.dtype).refusal(algorithm) is not None:
        with pytest.raises(ValueError, match="^algorithm: "):
            gemmkit.MatMulPlan(a.shape, b.shape, a.dtype, algorithm=algorithm)
        return None
    plan = gemmkit.MatMulPlan(a.shape, b.shape, a.dtype, algorithm=algorithm)
    assert plan.algorithm == algorithm and plan.dtype == a.dtype
    return plan(a, b)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@by_kind
def test_forced_algorithms(algorithm, dtype, isa):
    ran = 0
    for m, n, k in SIZES:
        a, b, want = problem(m, n, k, (dtype, dtype))
        got = forced(a, b, algorithm)
        if got is not None:
            check(got, want)
            ran += 1
    if algorithm in ("direct", "small_k") and dtype in NARROW:
        assert ran == 0  # bytes must be packed
    else:
        assert ran >= 8


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@by_kind
def test_several_blocks_of_k(algorithm, dtype):
    """What a block leaves for the next is the whole sum, not yet a byte or a truth."""
    for m, n, k in ((9, 53, 20_011), (2, 3, 66_051)):
        a, b, want = problem(m, n, k, (dtype, dtype))
        got = forced(a, b, algorithm)
        if got is None:
            assert algorithm in ("direct", "small_k")
        else:
            check(got, want)


@by_kind
@pytest.mark.parametrize("size", [(301, 299, 303), (1, 4999, 503), (2003, 3, 203), (13, 903, 1003), (3, 5, 200_003)],
                         ids=str)
def test_any_number_of_threads_gives_the_same_bits(size, dtype):
    m, n, k = size
    a, b = some(8, dtype, (m, k), (k, n))
    results = []
    for count in COUNTS:
        with gemmkit.threads(count):
            results += [gemmkit.matmul(a, b), gemmkit.matmul(a.T.copy().T, b)]
    for other in results[1:]:
        check(other, results[0])
    if dtype == BOOL:
        check(results[0], matmul(a, b))
    else:
        check_by_projection(results[0], a, b)


# ---- out

@by_kind
@pytest.mark.parametrize("shapes", [((4, 3), (3, 5)), ((4, 2, 3), (4, 3, 5)), ((3, 1, 40), (40, 70)), ((30,), (30, 70)),
                                    ((70, 30), (30,)), ((50, 40), (40, 60)), ((5, 0), (0, 4)), ((0, 3), (3, 5))],
                         ids=str)
def test_out_is_filled_and_nothing_around_it(shapes, dtype):
    a, b = some(9, dtype, *shapes)
    want = matmul(a, b)
    for buffer, out in windows(want.shape, dtype):
        before = buffer.copy()
        assert gemmkit.matmul(a, b, out=out) is out
        check(out, want)
        out[...] = 7
        np.testing.assert_array_equal(buffer, before)


@by_kind
@pytest.mark.parametrize("n", [6, 70])
def test_out_may_overlap_its_operands(n, dtype):
    a, b = some(10, dtype, (n, n), (n, n))
    for view in (lambda x: x, lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::-1].T):
        for own in ("a", "b", "both"):
            left = a.copy()
            right = left if own == "both" else b.copy()
            want = matmul(left, right)
            out = view(right if own == "b" else left)
            check(gemmkit.matmul(left, right, out=out), want)
    memory, = some(11, dtype, (3 * n * n,))
    for shift in (-n - 1, -1, 1, n):
        shared = memory.copy()
        left, out = (shared[at:at + n * n].reshape(n, n) for at in (n * n, n * n + shift))
        want = matmul(left, b)
        check(gemmkit.matmul(left, b, out=out), want)


@by_type
def test_unfit_out_is_refused_and_left_alone(dtype):
    a, b = some(12, dtype, (4, 3), (3, 5))
    good = np.ones((4, 5), dtype)
    read_only = good.copy()
    read_only.flags.writeable = False
    for out in (good[:, :4], good[None], good[0], good.T, read_only, np.broadcast_to(good[:1], (4, 5))):
        with pytest.raises(ValueError, match="out: "):
            gemmkit.matmul(a, b, out=out)
    others = [np.ones((4, 5), other) for other in (*ALL, F32, F64, "c8") if other != dtype]
    for out in (*others, good.tolist()):
        with pytest.raises(TypeError):
            gemmkit.matmul(a, b, out=out)
        assert (np.asarray(out) == 1).all()
    for other in others:
        with pytest.raises(TypeError):
            gemmkit.matmul(a, b, out_dtype=other.dtype)
    with pytest.raises(ValueError, match=r"\(4, 3\)"):
        gemmkit.matmul(a, b[:2], out=good)
    assert (good == 1).all() and (read_only == 1).all()


# ---- Anything

SIDES = st.one_of(st.integers(0, 9), st.integers(0, 70), st.sampled_from((1, 4, 8, 16, 48, 64, 96, 97)))


def drawn(draw, shape, dtype, seed):
    """Any values of a shape, in memory of any axis order, with gaps or backwards."""
    content, = some(seed, dtype, shape) if shape else (np.asarray(0, dtype),)
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from((1, 1, -1, 2, -3))) for _ in shape]
    view = np.full([shape[axis] * abs(steps[axis]) for axis in order], 1, dtype).transpose(np.argsort(order))
    view = view[tuple(slice(None, None, step) for step in steps)]
    view[...] = content
    return view


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), m=SIDES, n=SIDES, k=SIDES, types=st.tuples(st.sampled_from(ALL), st.sampled_from(ALL)),
       seed=st.integers(0, 2 ** 16),
       batches=mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=3, max_dims=2))
def test_any_operands(data, m, n, k, types, seed, batches):
    if np.result_type(*types).kind == "f":
        types = types[:1] * 2
    a_batch, b_batch = batches.input_shapes
    a = drawn(data.draw, data.draw(st.sampled_from(((*a_batch, m, k), (k,)))), types[0], seed)
    b = drawn(data.draw, data.draw(st.sampled_from(((*b_batch, k, n), (k,)))), types[1], seed + 1)
    want = matmul(a, b)
    check(gemmkit.matmul(a, b), want)
    if want.ndim:
        out = drawn(data.draw, want.shape, want.dtype, seed + 2)
        gemmkit.matmul(a, b, out=out)
        check(out, want)
