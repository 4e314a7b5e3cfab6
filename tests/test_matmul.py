"""matmul by numpy.matmul's rules: shapes, memory layouts, types, out and special values."""
import itertools
import time

import numpy as np
import pytest
import support
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import gemmkit

FLOATS = (np.float32, np.float64)


def expected(a, b):
    """a @ b by numpy.matmul's rules in a wider type: einsum without a contraction path is a plain sum of products."""
    a, b = np.asarray(a), np.asarray(b)
    wide = support.wider(np.result_type(a, b))
    left, right = ("ik" if a.ndim > 1 else "k"), ("kj" if b.ndim > 1 else "k")
    result = "i" * (a.ndim > 1) + "j" * (b.ndim > 1)
    with np.errstate(all="ignore"):
        return np.einsum(f"...{left},...{right}->...{result}", a.astype(wide), b.astype(wide), optimize=False)


def check(got, a, b, dtype):
    """The result of integer-valued operands: exact, NaN where NaN is due, and of the right type and shape."""
    want = expected(a, b)
    assert got.dtype == dtype
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)


def integers(seed, *shapes, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [support.small_integers(rng, shape, dtype) for shape in shapes]


def layouts(x):
    """The same values in every memory layout that a view can have; x is a matrix."""
    m, n = x.shape
    gaps = np.full((2 * m + 1, 3 * n + 2), np.nan, x.dtype)
    gaps[1::2, 1:-1:3] = x
    return {"rows": x, "columns": np.asfortranarray(x), "upside down": x[::-1].copy()[::-1],
            "mirrored": x[:, ::-1].copy()[:, ::-1], "columns turned round": x.T[::-1, ::-1].copy()[::-1, ::-1].T,
            "gaps": gaps[1::2, 1:-1:3], "column gaps": np.asfortranarray(gaps)[1::2, 1:-1:3]}


# ---- Shapes

SHAPES = [((3,), (3,)), ((1,), (1,)), ((3,), (3, 5)), ((4, 3), (3,)), ((4, 3), (3, 5)), ((1, 1), (1, 1)),
          ((2, 4, 3), (3, 5)), ((4, 3), (2, 3, 5)), ((2, 4, 3), (2, 3, 5)), ((2, 1, 4, 3), (6, 3, 5)),
          ((1, 6, 4, 3), (2, 1, 3, 5)), ((3,), (2, 3, 5)), ((2, 4, 3), (3,)), ((7, 2, 1, 3), (3, 5)),
          ((2, 3, 1, 4, 3), (1, 3, 2, 3, 1)), ((33, 40), (40, 50)), ((5, 33, 40), (40, 17)), ((3, 2, 70, 1), (1, 90))]
EMPTY = [((0, 3), (3, 4)), ((2, 3), (3, 0)), ((3,), (3, 0)), ((0, 3), (3,)), ((0, 2, 3), (3, 4)), ((0, 0), (0, 0)),
         ((0, 1, 2, 3), (5, 3, 4)), ((1, 2, 3), (0, 3, 4)), ((2, 3), (0, 3, 4)), ((3,), (0, 3, 4)), ((0, 2, 0), (0, 4))]
NO_SUM = [((64, 0), (0, 48)), ((3, 64, 0), (0, 48)), ((0,), (0, 48)), ((64, 0), (0,)), ((0,), (0,)),
          ((9, 0), (2, 0, 1))]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shapes", SHAPES + EMPTY, ids=str)
def test_shapes_follow_numpy(shapes, dtype):
    a, b = integers(0, *shapes, dtype=dtype)
    got = gemmkit.matmul(a, b)
    assert got.shape == np.matmul(np.zeros(shapes[0]), np.zeros(shapes[1])).shape
    check(got, a, b, dtype)
    out = np.full(got.shape, 7, dtype)
    assert gemmkit.matmul(a, b, out=out) is out
    check(out, a, b, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_result_is_a_fresh_contiguous_array_or_a_scalar(dtype):
    a, b = integers(1, (4, 3), (3, 5), dtype=dtype)
    result = gemmkit.matmul(a.T.copy().T, b)
    assert type(result) is np.ndarray
    assert result.flags.c_contiguous and result.flags.owndata and result.flags.writeable
    for vectors in ((a[0], b[:, 1]), (a[0, :0], b[:0, 1])):
        scalar = gemmkit.matmul(*vectors)
        assert type(scalar) is dtype
        assert scalar == expected(*vectors)


def test_as_many_dimensions_as_numpy_has():
    a, b = integers(2, (2, 3), (3, 4))
    got = gemmkit.matmul(a.reshape((1,) * 62 + (2, 3)), b.reshape((1,) * 40 + (3, 4)))
    assert got.shape == (1,) * 62 + (2, 4)
    np.testing.assert_array_equal(got.reshape(2, 4), expected(a, b))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shapes", NO_SUM, ids=str)
def test_empty_sums_are_zero_whatever_the_heap_held(shapes, dtype):
    a, b = np.zeros(shapes[0], dtype), np.zeros(shapes[1], dtype)
    size = max(expected(a, b).size, 1)
    poison = [np.full(size, 113, dtype) for _ in range(4)]
    del poison  # its memory is likely to come back as the result's
    check(gemmkit.matmul(a, b), a, b, dtype)
    out = np.full(expected(a, b).shape, 113, dtype)
    gemmkit.matmul(a, b, out=out)
    check(out, a, b, dtype)


@pytest.mark.parametrize("shapes", [((), (2, 2)), ((2, 2), ()), ((), ()), ((3,), (4,)), ((2, 3), (2, 3)),
                                    ((2, 3), (4,)), ((2, 4, 5), (3, 5, 6)), ((0, 4, 5), (3, 5, 6)), ((4, 1), (2, 4)),
                                    ((3,), (2, 4, 5))], ids=str)
def test_unfit_shapes_are_refused_by_name(shapes):
    with pytest.raises(ValueError) as error:
        gemmkit.matmul(np.ones(shapes[0]), np.ones(shapes[1]))
    assert str(shapes[0]) in str(error.value) and str(shapes[1]) in str(error.value)


# ---- Memory layouts

@pytest.mark.parametrize("shape", [(21, 19, 18), (1, 30, 70), (70, 33, 1), (2, 40, 3), (130, 5, 100)], ids=str)
def test_every_pair_of_layouts(shape, wide_isa):
    m, k, n = shape
    for dtype in FLOATS:
        a, b = integers(3, (m, k), (k, n), dtype=dtype)
        want, last_row, column = expected(a, b), expected(a[-1], b), expected(a, b[:, n // 2])
        for (_, x), (_, y) in itertools.product(layouts(a).items(), layouts(b).items()):
            np.testing.assert_array_equal(gemmkit.matmul(x, y), want)
            np.testing.assert_array_equal(gemmkit.matmul(x[-1], y), last_row)
            np.testing.assert_array_equal(gemmkit.matmul(x, y[:, n // 2]), column)


def test_repeated_rows_columns_and_matrices():
    one, row, column, b = integers(4, (1, 1), (1, 19), (21, 1), (19, 18))
    matrix, = integers(5, (21, 19))
    for a in (np.broadcast_to(one, (21, 19)), np.broadcast_to(row, (21, 19)), np.broadcast_to(column, (21, 19)),
              np.broadcast_to(matrix, (4, 21, 19)), np.broadcast_to(row, (5, 1, 19)),
              np.broadcast_to(row, (3, 2, 40, 19))):
        check(gemmkit.matmul(a, b), a, b, np.float32)
        turned = a.swapaxes(-1, -2)
        check(gemmkit.matmul(b.T, turned), b.T, turned, np.float32)


@pytest.mark.parametrize("inner", [(5, 7, 9), (1, 7, 40), (9, 30, 1), (40, 33, 70)], ids=str)
def test_batch_axes_of_any_order_and_step(inner, wide_isa):
    m, k, n = inner
    a, b = integers(6, (3, 2, 4, m, k), (3, 2, 4, k, n))
    stacks = (lambda x: x, lambda x: np.repeat(x, 2, 0)[::-2], lambda x: x.transpose(1, 0, 2, 3, 4),
              lambda x: x[:, ::-1, 1:3], lambda x: x[:, :1], lambda x: x[0, 0, :1],
              lambda x: np.moveaxis(np.moveaxis(x, 3, 0).copy(), 0, 3))
    for left, right in itertools.product(stacks, stacks):
        x, y = left(a), right(b)
        try:
            np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        except ValueError:
            continue
        check(gemmkit.matmul(x, y), x, y, np.float32)


# ---- What an operand may be

@pytest.mark.parametrize("dtype", FLOATS)
def test_record_fields_and_foreign_byte_order(dtype):
    a, b = integers(7, (6, 9), (9, 7), dtype=dtype)
    packed = np.dtype([("tag", "S1"), ("x", dtype)])
    pairs = np.dtype([("x", dtype), ("y", dtype)])
    for record in (packed, pairs, np.dtype([("x", np.dtype(dtype).newbyteorder())])):
        left, right, out = np.zeros((6, 9), record), np.zeros((9, 7), record), np.zeros((6, 7), record)
        left["x"], right["x"] = a, b
        assert gemmkit.matmul(left["x"], right["x"]).dtype.isnative
        check(gemmkit.matmul(left["x"], right["x"]), a, b, dtype)
        check(gemmkit.matmul(left["x"], b), a, b, dtype)
        assert gemmkit.matmul(a, right["x"], out=out["x"]).base is out
        np.testing.assert_array_equal(out["x"], expected(a, b))
        if "tag" in record.names:
            assert (out["tag"] == b"").all()


class Subclass(np.ndarray):
    pass


def test_read_only_mapped_listed_and_subclassed_operands(tmp_path):
    a, b = integers(8, (5, 6), (6, 7))
    for x, name in ((a, "a"), (b, "b")):
        x.tofile(tmp_path / name)
        x.flags.writeable = False
    mapped_a, mapped_b = (np.memmap(tmp_path / name, np.float32, "r", shape=x.shape)
                          for name, x in (("a", a), ("b", b)))
    for x, y in ((a, b), (mapped_a, mapped_b), (mapped_a[::-1], b[:, ::2]), (a.view(Subclass), b),
                 (a, b.view(Subclass))):
        result = gemmkit.matmul(x, y)
        assert type(result) is np.ndarray
        check(result, x, y, np.float32)
    check(gemmkit.matmul(a.tolist(), b.tolist()), a, b, np.float64)
    check(gemmkit.matmul(tuple(map(tuple, a.tolist())), b), a, b, np.float64)
    check(gemmkit.matmul([1.0, 2.0], [3.0, 4.0]), [1.0, 2.0], [3.0, 4.0], np.float64)


def test_mixed_types_promote_and_leave_the_operands_alone():
    rng = np.random.default_rng(9)
    a, b = rng.standard_normal((17, 30)).astype(np.float32), rng.standard_normal((30, 20))
    before = a.tobytes(), b.tobytes()
    for x, y in ((a, b), (b.T, a.T), (a[::-1], b[:, ::-1]), (a[0], b)):
        got = gemmkit.matmul(x, y)
        assert got.dtype == np.float64
        size = expected(abs(x), abs(y))
        assert (abs(got - expected(x, y)) <= 38 * 2.0 ** -53 * size).all()  # not rounded to float32 anywhere
    assert (a.tobytes(), b.tobytes()) == before


@pytest.mark.parametrize("dtype", ["g", "F", "D", "G", object, "U3", "S2", "S3", "V4", "M8[s]", "m8[s]",
                                   [("x", "f4")]], ids=str)
def test_foreign_types_are_refused(dtype):
    foreign, ours = np.zeros((2, 2), dtype), np.zeros((2, 2), np.float32)
    for operands in ((foreign, foreign), (ours, foreign), (foreign, ours)):
        with pytest.raises(TypeError):
            gemmkit.matmul(*operands)
    with pytest.raises(TypeError):
        gemmkit.matmul(ours, ours, out=foreign)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "i8", "u8"])
def test_integers_do_not_take_a_result_of_floats(dtype):
    """Nor floats one of integers."""
    foreign, ours = np.zeros((2, 2), dtype), np.zeros((2, 2), np.float32)
    for operands in ((ours, ours), (foreign, ours), (ours, foreign)):
        with pytest.raises(TypeError, match="^out: "):
            gemmkit.matmul(*operands, out=foreign)
    with pytest.raises(TypeError, match="^out: "):
        gemmkit.matmul(foreign, foreign, out=ours)


# ---- out

def windows(shape, dtype):
    """(buffer, out) pairs: views of a shape within a buffer full of 7, in any axis order, direction and step."""
    for order in itertools.permutations(range(len(shape))):
        for steps in itertools.product((1, 2, -1, -2), repeat=len(shape)):
            buffer = np.full([2 * shape[axis] + 3 for axis in order], 7, dtype)
            index = tuple(slice(1, 1 + size * step, step) if step > 0 else slice(size * -step, 0, step)
                          for size, step in zip(shape, steps))
            yield buffer, buffer.transpose(np.argsort(order))[index]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shapes", [((4, 3), (3, 5)), ((4, 2, 3), (4, 3, 5)), ((3, 1, 40), (40, 70)),
                                    ((2, 70, 33), (33, 1)), ((30,), (30, 70)), ((70, 30), (30,)), ((70, 40), (40, 100)),
                                    ((5, 0), (0, 4)), ((0, 3), (3, 5)), ((4, 0, 3), (3, 5)), ((2, 4, 3), (3, 0))],
                         ids=str)
def test_out_is_filled_and_nothing_around_it(shapes, dtype):
    a, b = integers(12, *shapes, dtype=dtype)
    want = expected(a, b)
    for buffer, out in windows(want.shape, dtype):
        assert gemmkit.matmul(a, b, out=out) is out
        np.testing.assert_array_equal(out, want)
        out[...] = 7
        assert (buffer == 7).all()


def test_out_of_two_vectors_and_as_a_tuple():
    a, b = integers(13, (9,), (9,))
    out = np.full((), np.nan, np.float32)
    assert gemmkit.matmul(a, b, out=out) is out and out == expected(a, b)
    out = np.empty((1, 1), np.float32)
    assert gemmkit.matmul(a[None], b[:, None], out=(out,)) is out and out == expected(a, b)


@pytest.mark.parametrize("n", [6, 70])
def test_out_may_overlap_its_operands(n):
    a, b = integers(14, (n, n), (n, n))
    for view in (lambda x: x, lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::-1].T):
        for own in ("a", "b", "both"):
            left = a.copy()
            right = left if own == "both" else b.copy()
            want = expected(left, right)
            out = view(right if own == "b" else left)
            np.testing.assert_array_equal(gemmkit.matmul(left, right, out=out), want)
    memory, = integers(15, (3 * n * n,))
    for shift in (-n - 1, -1, 1, n, n * n - 1, n * n):
        shared = memory.copy()
        left, out = (shared[at:at + n * n].reshape(n, n) for at in (n * n, n * n + shift))
        want = expected(left, b)
        np.testing.assert_array_equal(gemmkit.matmul(left, b, out=out), want)
    stack = np.concatenate([a, b]).reshape(2, n, n)
    want = expected(stack, stack[::-1])
    np.testing.assert_array_equal(gemmkit.matmul(stack, stack[::-1], out=stack), want)


def test_unfit_out_is_refused_and_left_alone():
    a, b = integers(16, (4, 3), (3, 5))
    good = np.full((4, 5), 7, np.float32)
    read_only = good.copy()
    read_only.flags.writeable = False
    repeated = np.lib.stride_tricks.as_strided(good, (4, 5), (0, 4))
    for out in (good[:, :4], good[None], good[0], good.T, read_only, repeated):
        with pytest.raises(ValueError, match="out: "):
            gemmkit.matmul(a, b, out=out)
        assert (out == 7).all()
    for out in (good.astype(np.float64), good.astype(np.int32), good.tolist(), (good, good)):
        with pytest.raises(TypeError, match="out: "):
            gemmkit.matmul(a, b, out=out)
        assert (np.asarray(out) == 7).all()
    with pytest.raises(ValueError, match=r"\(4, 3\)"):
        gemmkit.matmul(a, b[:2], out=good)
    with pytest.raises(TypeError):
        gemmkit.matmul(a, b.astype(np.float64), out=good)
    assert (good == 7).all()


# ---- Special values and accuracy

@pytest.mark.parametrize("shape", [(1, 4, 5), (4, 1, 5), (6, 9, 17), (70, 50, 40), (1, 100, 64), (100, 2, 64),
                                   (3, 3, 4096)], ids=str)
def test_zero_times_nan_or_infinity_is_nan(shape, wide_isa):
    m, n, k = shape
    for dtype in FLOATS:
        a, b = np.zeros((m, k), dtype), np.ones((k, n), dtype)
        a[m // 2] = 1
        b[k // 2, 0], b[k - 1, n - 1] = np.nan, np.inf
        check(gemmkit.matmul(a, b), a, b, dtype)
        check(gemmkit.matmul(b.T, a.T), b.T, a.T, dtype)
        check(gemmkit.matmul(a, np.asfortranarray(b)), a, b, dtype)
        a[-1, 0] = -np.inf
        check(gemmkit.matmul(a, b), a, b, dtype)


def test_subnormals_count(wide_isa):
    for dtype, tiny in ((np.float32, 1e-40), (np.float64, 1e-310)):
        x, eye = np.full((40, 40), tiny, dtype), np.eye(40, dtype=dtype)
        for left, right in ((x, eye), (eye, x), (x[:1], eye), (eye, x[:, :1])):
            assert (gemmkit.matmul(left, right) == dtype(tiny)).all()
    assert np.float32(1e-45) * np.float32(1) > 0 and np.finfo(np.float64).tiny / 2 > 0


@pytest.mark.parametrize("shape", [(2, 3, 200_000), (1, 1, 200_000), (20, 20, 30_000)], ids=str)
def test_long_sums_do_not_drift(shape, wide_isa):
    m, n, k = shape
    for value in (0.1, 0.3, 0.7):
        a, b = np.full((m, k), value, np.float32), np.full((k, n), 0.1, np.float32)
        want = k * float(a[0, 0]) * float(b[0, 0])
        assert abs(gemmkit.matmul(a, b) - want).max() <= 1.5e-4 * want


# ---- Anything that a shape and strides can be

@st.composite
def operand(draw, shape, dtype, seed):
    """Random values of a shape, in memory of any axis order, with gaps, backwards or repeated."""
    values = support.random_values(np.random.default_rng(seed), shape, dtype)
    steps = [draw(st.sampled_from((1, 1, 1, -1, 2, -3, 0))) for _ in shape]
    for axis, step in enumerate(steps):
        if step == 0 and shape[axis] > 1:
            values = np.broadcast_to(values.take([0], axis), shape)
    order = draw(st.permutations(range(len(shape))))
    lengths = [1 if steps[axis] == 0 else shape[axis] * abs(steps[axis]) for axis in order]
    view = np.full(lengths, np.nan, dtype).transpose(np.argsort(order))
    view = np.broadcast_to(view[tuple(slice(None, None, step or 1) for step in steps)], shape)
    view.flags.writeable = True
    view[...] = values
    return view


SIDES = st.one_of(st.integers(0, 9), st.integers(0, 70), st.sampled_from((1, 4, 8, 16, 48, 96, 97, 130)))


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), m=SIDES, n=SIDES, k=SIDES, dtype=st.sampled_from(FLOATS), seed=st.integers(0, 2 ** 16),
       batches=mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=3, max_dims=3))
def test_any_operands(wide_isa, data, m, n, k, dtype, seed, batches):
    a_batch, b_batch = batches.input_shapes
    a_shape = data.draw(st.sampled_from(((*a_batch, m, k), (k,))))
    b_shape = data.draw(st.sampled_from(((*b_batch, k, n), (k,))))
    a, b = data.draw(operand(a_shape, dtype, seed)), data.draw(operand(b_shape, dtype, seed + 1))
    want, size = expected(a, b), expected(abs(a), abs(b))
    got = gemmkit.matmul(a, b)
    assert got.dtype == dtype and got.shape == want.shape
    assert (abs(got - want) <= (k + 8) * (np.finfo(dtype).eps / 2 + 2.0 ** -53) * size).all()
    out = data.draw(operand(want.shape, dtype, seed + 2))
    if 0 not in [stride for stride, length in zip(out.strides, out.shape) if length > 1]:
        gemmkit.matmul(a, b, out=out)
        assert (abs(out - want) <= (k + 8) * (np.finfo(dtype).eps / 2 + 2.0 ** -53) * size).all()


# ---- Speed of stacks

@pytest.mark.parametrize("shape", [(20_000, 3, 3), (5_000, 8, 8), (2_000, 1, 16, 4)], ids=str)
def test_stacks_of_small_matrices_are_not_slow(shape):
    a = np.ones(shape)
    b = np.ascontiguousarray(a.swapaxes(-1, -2))

    def seconds(function):
        start = time.perf_counter()
        function(a, b)
        return time.perf_counter() - start

    tries = [(seconds(gemmkit.matmul), seconds(np.matmul)) for _ in range(9)]
    ours, theirs = map(min, zip(*tries))
    assert ours <= 2 * theirs + 1e-3
