"""qlinear_matmul on bytes: one rounding to even ahead of the zero point, saturation, every form of scales."""
import functools
import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from integers import (
    BF16,
    BOOL,
    BYTES,
    COLUMN,
    COUNTS,
    F16,
    F32,
    F64,
    I4,
    I8,
    I16,
    I32,
    I64,
    ROW,
    SCALES,
    U4,
    U8,
    check,
    check_between,
    forms,
    frozen,
    layouts,
    limits,
    name,
    onnx_cases,
    onnxruntime,
    qlinear_matmul,
    some,
    values,
    windows,
)

import gemmkit

TRIPLES = list(itertools.product(BYTES, repeat=3))  # a, b, y
by_triple = pytest.mark.parametrize("types", TRIPLES, ids=name)
ONE = F32(1)


def scales(rng, shape, dtype=F32, dyadic=False):
    """Around 1/16; with few bits where a result must be exact."""
    if dyadic:
        return np.asarray(2.0 ** rng.integers(-6, -2, shape)).astype(dtype)
    return np.asarray(rng.uniform(0.01, 0.2, shape)).astype(dtype)


def arguments(rng, a, b, y_type, a_scale=(), a_zero=(), b_scale=(), b_zero=(), dtype=F32, dyadic=False):
    """Scales and zero points of these shapes around a and b, with a y_scale that leaves few results to saturate."""
    k = a.shape[-1]
    spread = 100.0 * max(k, 1) ** 0.5 / 2 ** 5
    y_scale = 2.0 ** np.rint(np.log2(spread)) if dyadic else spread
    return [a, scales(rng, a_scale, dtype, dyadic), values(rng, a_zero, a.dtype, *near(a.dtype)), b,
            scales(rng, b_scale, dtype, dyadic), values(rng, b_zero, b.dtype, *near(b.dtype)),
            np.asarray(y_scale).astype(dtype), values(rng, (), y_type, *near(y_type))]


def near(dtype):
    """Around the middle of the range."""
    low, high = limits(dtype)
    middle = (low + high + 1) // 2
    return middle - (high - low) // 8, middle + (high - low) // 8


@functools.lru_cache(1024)
def problem(m, n, k, types, kind):
    rng = np.random.default_rng((m, n, k))
    a, b = values(rng, (m, k), types[0]), values(rng, (k, n), types[1])
    shapes = {"tensor": {}, "vectors": {"a_scale": (m,), "a_zero": (m,), "b_scale": (n,), "b_zero": (n,)},
              "columns": {"b_scale": (1, n), "b_zero": (n,)}, "scales": {"a_scale": (m, 1), "b_scale": (n,)},
              "zeros": {"a_zero": (m, 1), "b_zero": (1, n)},
              "dyadic": {"a_scale": (m,), "b_scale": (n,), "dyadic": True}}
    given = frozen(*arguments(rng, a, b, types[2], **shapes[kind]))
    bounds = qlinear_matmul(*given)
    return given, frozen(*bounds)


KINDS = ("tensor", "vectors", "columns", "scales", "zeros", "dyadic")
SIZES = [(1, 1, 1), (1, 1, 9), (1, 70, 5), (64, 1, 33), (3, 2, 64), (5, 7, 3), (8, 33, 16), (13, 17, 31), (7, 16, 129),
         (1, 69, 300), (33, 20, 258)]


# ---- Values

@by_triple
def test_tails(types, isa):
    for (m, n, k), kind in itertools.product(SIZES, KINDS):
        given_, bounds = problem(m, n, k, types, kind)
        check_between(gemmkit.qlinear_matmul(*given_), bounds)


def column(numbers, dtype=I8):
    return np.array(numbers, dtype)[:, None]


def test_ties_go_to_even_before_the_zero_point(isa):
    """x = n / 2 for n from -9 to 9, in rows of one product and in rows of sums."""
    numbers = np.arange(-9, 10)
    want = {n: round(n / 2) for n in numbers.tolist()}
    for zero, width in itertools.product((0, 1, -3, 7), (1, 3, 40)):
        for a, b in ((column(numbers), np.ones((1, width), I8)),
                     (np.concatenate([column(numbers)] * 5 + [-4 * column(numbers)], 1), np.ones((6, width), I8))):
            got = gemmkit.qlinear_matmul(a, F32(0.5), I8(0), b, ONE, I8(0), ONE, I8(zero))
            check(got, np.repeat(column([want[n] + zero for n in numbers.tolist()]), width, 1))
            got = gemmkit.qlinear_matmul(b.T, ONE, I8(0), a.T, F32(0.25), I8(0), F32(0.5), U8(100 + zero))
            check(got, np.repeat(column([want[n] + 100 + zero for n in numbers.tolist()], U8), width, 1).T)
    got = gemmkit.qlinear_matmul(column([1, 3, 5, 7]), F32(0.5), I8(0), column([1]), ONE, I8(0), ONE, U8(1))
    check(got, column([1, 3, 3, 5], U8))


@pytest.mark.parametrize("y_type", BYTES, ids=name)
def test_saturation_after_the_zero_point(y_type, isa):
    low, high = limits(y_type)
    a = column([-128, -100, -2, -1, 0, 1, 2, 100, 127])
    for zero, width, factor in itertools.product((low, low + 1, (low + high) // 2, high - 1, high), (1, 33), (1, 127)):
        b = np.full((1, width), factor, I8)
        want = [min(max(x * factor + zero, low), high) for x in a[:, 0].tolist()]
        got = gemmkit.qlinear_matmul(a, ONE, I8(0), b, ONE, I8(0), ONE, y_type(zero))
        check(got, np.repeat(column(want, y_type), width, 1))
    # what is far outside the range of 32 bits, too
    for big in (F32(2.0 ** 60), F32(3e38)):
        got = gemmkit.qlinear_matmul(a, big, I8(0), np.ones((1, 33), I8), ONE, I8(0), F32(2.0 ** -60), y_type(1))
        want = [min(max(int(np.sign(x)) * 2 ** 99 + 1, low), high) for x in a[:, 0].tolist()]
        check(got, np.repeat(column(want, y_type), 33, 1))


def row_of_sum(total):
    """A row of bytes and a column of bytes whose products sum up to this."""
    full, rest = divmod(total, 255 * 255)
    a = [255] * full + [rest // 255, rest % 255]
    return a, [255] * full + [255, 1]


@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (40, 3), (1, 65), (17, 33)], ids=str)
def test_large_sums_are_told_from_a_tie(shape, isa):
    """One more or less than a tie at 2^27 and above: float32 couldn't hold the sums."""
    m, n = shape
    shift = 20
    for whole, off in itertools.product((100, 101, 200), (-1, 0, 1)):
        total = whole * 2 ** shift + 2 ** (shift - 1) + off
        left, right = row_of_sum(total)
        a, b = np.repeat(np.array([left], U8), m, 0), np.repeat(np.array(right, U8)[:, None], n, 1)
        want = whole + (off > 0 or (off == 0 and whole % 2))
        for scale in ((F32(2.0 ** -10), F32(2.0 ** -10), ONE), (F16(2.0 ** -6), F16(2.0 ** -10), F16(16))):
            got = gemmkit.qlinear_matmul(a, scale[0], U8(0), b, scale[1], U8(0), scale[2], U8(3))
            check(got, np.full((m, n), want + 3, U8))
        signed_a, signed_b = ((x.astype(I32) - 128).astype(I8) for x in (a, b))  # the same sum through zero points
        for x, x_zero, y, y_zero in ((signed_a, I8(-128), b, U8(0)), (a, U8(0), signed_b, I8(-128)),
                                     (signed_a, I8(-128), signed_b, np.full(n, -128, I8))):
            got = gemmkit.qlinear_matmul(x, F32(2.0 ** -20), x_zero, y, ONE, y_zero, ONE, U8(3))
            check(got, np.full((m, n), want + 3, U8))


def test_powers_of_two_far_from_one(isa):
    """The product of these scales would be nothing, or infinite, in float32."""
    a, b = column(range(-9, 10)), np.ones((1, 17), I8)
    for exponents in ((-75, -75, -149), (-149, 0, -148), (-126, -24, -149), (100, 26, 127), (100, 28, 127),
                      (127, 1, 127), (127, -127, 1), (-149, 127, -21)):
        a_scale, b_scale, y_scale = (F32(2.0 ** exponent) for exponent in exponents)
        bounds = qlinear_matmul(a, a_scale, I8(0), b, b_scale, I8(0), y_scale, I8(5))
        assert len(np.unique(bounds[0])) > 8 and (bounds[0] == bounds[1]).all()
        check_between(gemmkit.qlinear_matmul(a, a_scale, I8(0), b, b_scale, I8(0), y_scale, I8(5)), bounds)
        scale = np.full(17, b_scale)
        check_between(gemmkit.qlinear_matmul(a, a_scale, I8(0), b, scale, I8(0), y_scale, I8(5)), bounds)


@pytest.mark.parametrize("dtype", SCALES, ids=name)
def test_scales_are_widened_before_they_are_multiplied(dtype, isa):
    rng = np.random.default_rng(1)
    for (a_scale, b_scale, y_scale), (m, n, k) in itertools.product(
            ((0.0066, 0.00705, 0.0107), (2.0 ** -14, 2.0 ** -12, 2.0 ** -14), (6e-5, 3e-4, 2e-6), (250, 300, 5e4)),
            ((2, 3, 4), (1, 40, 33), (17, 9, 64))):
        a, b = values(rng, (m, k), U8), values(rng, (k, n), I8)
        given_ = [a, np.asarray(a_scale).astype(dtype), U8(99), b, np.asarray(b_scale).astype(dtype), I8(3),
                  np.asarray(y_scale).astype(dtype), U8(113)]
        check_between(gemmkit.qlinear_matmul(*given_), qlinear_matmul(*given_))
        given_[1] = scales(rng, (m,), dtype) * np.asarray(0.01).astype(dtype)
        given_[4] = scales(rng, (1, n), dtype) * np.asarray(0.01).astype(dtype)
        check_between(gemmkit.qlinear_matmul(*given_), qlinear_matmul(*given_))


def test_python_floats_are_single_scales():
    a, b = some(2, ((9, 20), U8), ((20, 33), I8))
    given_ = [a, 0.1, 7, b, 0.3, -7, 17.7, I8(-3)]
    bounds = qlinear_matmul(a, 0.1, U8(7), b, 0.3, I8(-7), 17.7, I8(-3))
    check_between(gemmkit.qlinear_matmul(*given_), bounds)
    singles = [F32(x) if isinstance(x, float) else x for x in given_]
    check(gemmkit.qlinear_matmul(*given_), gemmkit.qlinear_matmul(*singles))


def test_unusual_y_scales(isa):
    a, b = some(3, ((9, 20), U8), ((20, 33), I8))
    given_ = [a, F32(0.25), U8(3), b, F32(0.5), I8(0), F32(-8), I8(-3)]
    check_between(gemmkit.qlinear_matmul(*given_), qlinear_matmul(*given_))
    given_[1], given_[4] = F32(-0.25), -scales(np.random.default_rng(4), (33,))
    check_between(gemmkit.qlinear_matmul(*given_), qlinear_matmul(*given_))
    for y_scale, a_scale in itertools.product((0.0, -0.0, np.nan, np.inf, 1.0), (0.25, np.nan, np.inf, 0.0)):
        for y_zero in (I8(-3), U8(9)):
            got = gemmkit.qlinear_matmul(a, F32(a_scale), U8(3), b, F32(0.5), I8(0), F32(y_scale), y_zero)
            assert got.shape == (9, 33) and got.dtype == y_zero.dtype
            if a_scale == 0.0 and y_scale == 1.0 or a_scale == 0.25 and y_scale == np.inf:
                assert (got == y_zero).all()


# ---- Forms of scales and zero points

@functools.cache
def batched():
    """(arguments, bounds): every form of each parameter, with others of the other three."""
    rng = np.random.default_rng(5)
    a, b = values(rng, (2, 3, 5, 9), U8), values(rng, (3, 9, 6), I8)
    rows, columns = forms(a, ROW), forms(b, COLUMN)
    mixtures = [(s, s, t, t) for s, t in itertools.zip_longest(rows, columns, fillvalue=())]
    mixtures += [(s, rows[-i], columns[i % len(columns)], columns[-1 - i % len(columns)]) for i, s in enumerate(rows)]
    result = []
    for shapes, types in itertools.product(mixtures, ((U8, I8, U8), (I8, U8, I8))):
        x, y = a.astype(types[0]), b.astype(types[1])
        keys = ("a_scale", "a_zero", "b_scale", "b_zero")
        given_ = arguments(rng, x, y, types[2], **dict(zip(keys, shapes)))
        result.append((given_, qlinear_matmul(*given_)))
    return result


def test_every_form_on_batches(isa):
    for given_, bounds in batched():
        check_between(gemmkit.qlinear_matmul(*given_), bounds)


@pytest.mark.parametrize("dtype", SCALES, ids=name)
@pytest.mark.parametrize("shapes", [
    ((33, 70), (70, 20)), ((1, 130), (130, 99)), ((99, 130), (130, 1)), ((3, 1, 64), (64, 20)),
    ((2, 9, 17), (2, 17, 20)), ((9, 40), (3, 40, 10)), ((40, 40), (40, 40))], ids=str)
def test_forms_on_other_shapes(shapes, dtype):
    rng = np.random.default_rng(6)
    a, b = values(rng, shapes[0], I8), values(rng, shapes[1], U8)
    for x, y in itertools.islice(itertools.zip_longest(forms(a, ROW), forms(b, COLUMN), fillvalue=()), 4):
        for mixture in ((x, x, y, y), (x, (), (), y), ((), x, y, ())):
            given_ = arguments(rng, a, b, U8, *mixture, dtype=dtype, dyadic=dtype != F32)
            check_between(gemmkit.qlinear_matmul(*given_), qlinear_matmul(*given_))


def test_one_y_scale_and_zero_point_of_any_rank_below_two():
    a, b = some(7, ((9, 20), U8), ((20, 33), I8))
    want = qlinear_matmul(a, F32(0.25), U8(3), b, F32(0.5), I8(0), F32(8), I8(-3))
    for y_scale, y_zero in itertools.product((F32(8), np.array(8, F32), np.array([8], F32)),
                                             (I8(-3), np.array(-3, I8), np.array([-3], I8))):
        check_between(gemmkit.qlinear_matmul(a, F32(0.25), U8(3), b, F32(0.5), I8(0), y_scale, y_zero), want)


# ---- Shapes and memory

SHAPES = [((3,), (3,)), ((1,), (1,)), ((40,), (40, 70)), ((70, 40), (40,)), ((2, 4, 3), (3, 5)), ((4, 3), (2, 3, 5)),
          ((2, 1, 4, 3), (6, 3, 5)), ((30,), (2, 30, 5)), ((2, 4, 30), (30,)), ((3, 2, 30, 1), (1, 9)),
          ((0, 3), (3, 4)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 4)), ((64, 0), (0, 48)), ((3, 9, 0), (0, 5)),
          ((0,), (0, 48)), ((64, 0), (0,)), ((0,), (0,)), ((0, 0), (0, 0))]


@by_triple
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes_follow_numpy(shapes, types):
    rng = np.random.default_rng(8)
    a, b = values(rng, shapes[0], types[0]), values(rng, shapes[1], types[1])
    for one in ((), (1,)):
        given_ = arguments(rng, a, b, types[2], one, one, one, one)
        given_[6:] = [x.reshape(one) for x in given_[6:]]
        bounds = qlinear_matmul(*given_)
        if 0 in a.shape[-1:]:
            assert (bounds[0] == given_[7]).all() and (bounds[1] == given_[7]).all()
        got = gemmkit.qlinear_matmul(*given_)
        check_between(got, bounds)
        assert isinstance(got, np.generic) == (a.ndim == b.ndim == 1)
        out = np.full(got.shape[::-1], 77, types[2]).T
        assert gemmkit.qlinear_matmul(*given_, out=out) is out
        check_between(out, bounds)


def test_empty_sums_are_the_zero_point(isa):
    for (m, n), y_zero in itertools.product(((33, 48), (1, 70), (70, 1), (5, 3)), (U8(200), I8(-100), I8(0))):
        a, b = np.empty((m, 0), U8), np.empty((0, n), I8)
        for za, zb in itertools.product((U8(7), np.arange(m).astype(U8)), (I8(-7), np.arange(n).astype(I8)[None])):
            got = gemmkit.qlinear_matmul(a, F32(0.3), za, b, np.full(n, 0.7, F32), zb, F32(0.1), y_zero)
            check(got, np.full((m, n), y_zero))


@pytest.mark.parametrize("shape", [(21, 19, 18), (1, 40, 70), (70, 33, 1)], ids=str)
def test_every_pair_of_layouts(shape, isa):
    m, k, n = shape
    given_, bounds = problem(m, n, k, (U8, I8, U8), "vectors")
    a, a_scale, a_zero, b, b_scale, b_zero, *rest = given_
    for x, y in itertools.product(layouts(a).values(), layouts(b).values()):
        check_between(gemmkit.qlinear_matmul(x, a_scale, a_zero, y, b_scale, b_zero, *rest), bounds)
    strided = [np.repeat(x, 3)[1::3] for x in (a_scale, a_zero, b_scale, b_zero)]
    backwards = [x[::-1].copy()[::-1] for x in (a_scale, a_zero, b_scale, b_zero)]
    swapped = [x.astype(x.dtype.newbyteorder()) for x in (a_scale, a_zero, b_scale, b_zero)]
    for sa, za, sb, zb in (strided, backwards, swapped):
        check_between(gemmkit.qlinear_matmul(a, sa, za, b, sb, zb, *rest), bounds)


@pytest.mark.parametrize("edge", ["end", "start"])
def test_nothing_around_the_operands_is_touched(edge, isa, guarded):
    for (m, n, k), kind in itertools.product(SIZES[1::2], ("tensor", "vectors")):
        for types in ((U8, I8, U8), (I8, I8, I8)):
            given_, bounds = problem(m, n, k, types, kind)
            out = guarded(np.zeros((m, n), types[2]), edge=edge)
            gemmkit.qlinear_matmul(*(guarded(x, edge=edge) for x in given_), out=out)
            check_between(out, bounds)


@pytest.mark.parametrize("shapes", [((4, 3), (3, 5)), ((4, 2, 3), (4, 3, 5)), ((30,), (30, 70)), ((33, 40), (40, 20)),
                                    ((5, 0), (0, 4))], ids=str)
def test_out_is_filled_and_nothing_around_it(shapes):
    rng = np.random.default_rng(9)
    given_ = arguments(rng, values(rng, shapes[0], U8), values(rng, shapes[1], I8), I8)
    bounds = qlinear_matmul(*given_)
    for buffer, out in windows(bounds[0].shape, I8):
        assert gemmkit.qlinear_matmul(*given_, out=out) is out
        check_between(out, bounds)
        out[...] = 7
        assert (buffer == 7).all()


@pytest.mark.parametrize("n", [6, 40])
def test_out_may_overlap_what_is_read(n):
    for over in (0, 2, 3, 5):
        for view in (lambda x: x, lambda x: x.T, lambda x: x[::-1]):
            rng = np.random.default_rng(10)
            given_ = arguments(rng, values(rng, (n, n), U8), values(rng, (n, n), U8), U8)
            memory = values(rng, (n, n), U8)
            out = view(given_[over] if over in (0, 3) else memory)
            if over not in (0, 3):  # a vector of zero points within the result
                given_[over] = memory[1]
            bounds = qlinear_matmul(*given_)
            gemmkit.qlinear_matmul(*given_, out=out)
            check_between(out, bounds)


# ---- Errors

def test_unfit_arguments_are_refused_and_out_is_left_alone():
    rng = np.random.default_rng(11)
    good = arguments(rng, values(rng, (4, 3), U8), values(rng, (3, 5), I8), U8)
    out = np.full((4, 5), 7, U8)

    def refused(error, match=None, **changes):
        names = ("a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point", "y_scale", "y_zero_point")
        given_ = [changes.get(key, x) for key, x in zip(names, good)]
        with pytest.raises(error, match=match):
            gemmkit.qlinear_matmul(*given_)
        with pytest.raises(error, match=match):
            gemmkit.qlinear_matmul(*given_, out=out)
        assert (out == 7).all()

    for shape in ((3,), (5,), (0,), (1, 3), (4, 3), (1, 4), (1, 1, 1), (2, 4, 1)):
        refused(ValueError, "a_scale", a_scale=np.ones(shape, F32))
        refused(ValueError, "a_zero_point", a_zero_point=np.ones(shape, U8))
    for shape in ((3,), (4,), (0,), (3, 1), (3, 5), (5, 1), (1, 1, 1), (2, 1, 5)):
        refused(ValueError, "b_scale", b_scale=np.ones(shape, F32))
        refused(ValueError, "b_zero_point", b_zero_point=np.ones(shape, I8))
    for shape in ((2,), (0,), (5,), (4, 1), (1, 5), (4, 5)):
        refused(ValueError, "y_scale", y_scale=np.ones(shape, F32))
        refused(ValueError, "y_zero_point", y_zero_point=np.ones(shape, U8))
    for dtype in (F64, I32, U8, "F", object, ml_dtypes.float8_e4m3fn):
        for key in ("a_scale", "b_scale", "y_scale"):
            refused(TypeError, key, **{key: np.ones((1,), dtype)})
    for dtype in (I8, I32, F32, U4, BOOL):
        refused(TypeError, "a_zero_point", a_zero_point=np.ones((), dtype))
    for dtype in (U8, I32, F32, I4, BOOL):
        refused(TypeError, "b_zero_point", b_zero_point=np.ones((), dtype))
    for dtype in (I32, I16, F32, F16, BOOL, I4):
        refused(TypeError, "y_zero_point", y_zero_point=np.ones((), dtype))
    for dtype in (I16, I32, I64, BOOL, F32, BF16):
        refused(TypeError, a=good[0].astype(dtype))
        refused(TypeError, b=good[3].astype(dtype))
    refused(ValueError, a=good[0].T)
    refused(ValueError, b=good[3][:2])
    refused(ValueError, a=good[0][0, 0])
    refused(ValueError, "a_scale", a=good[0][0], a_scale=np.ones(3, F32))
    refused(ValueError, "b_zero_point", b=good[3][:, 0], b_zero_point=np.ones(3, I8))
    for unfit in (out[:3], out.T, out[None], np.broadcast_to(out[0], (4, 5))):
        with pytest.raises(ValueError, match="out: "):
            gemmkit.qlinear_matmul(*good, out=unfit)
    for dtype in (I8, I32, F32):
        with pytest.raises(TypeError, match="out: "):
            gemmkit.qlinear_matmul(*good, out=out.astype(dtype))
    assert (out == 7).all()


# ---- Threads and other implementations

@pytest.mark.parametrize("size", [(301, 199, 203), (1, 4999, 303), (1003, 3, 203), (13, 403, 503), (3, 5, 30_003)],
                         ids=str)
def test_any_number_of_threads_gives_the_same_bits(size):
    m, n, k = size
    for types in ((U8, I8, U8), (I8, U8, I8)):
        rng = np.random.default_rng(12)
        a, b = values(rng, (m, k), types[0]), values(rng, (k, n), types[1])
        given_ = arguments(rng, a, b, types[2], (m,), (), (n,), (n,))
        results = []
        for count in COUNTS:
            with gemmkit.threads(count):
                results.append(gemmkit.qlinear_matmul(*given_))
        for other in results[1:]:
            check(other, results[0])
        rows = [0, m // 2, m - 1] if m > 3 else list(range(m))
        columns = np.unique(np.linspace(0, n - 1, 40).astype(int))
        part = [a[rows], given_[1][rows], given_[2], b[:, columns], given_[4][columns], given_[5][columns], *given_[6:]]
        check_between(results[0][np.ix_(rows, columns)], qlinear_matmul(*part))


def test_the_onnx_node_tests():
    cases = onnx_cases("QLinearMatMul")
    assert len(cases) >= 8
    for _, inputs, outputs in cases:
        check(gemmkit.qlinear_matmul(*inputs), outputs[0])


@pytest.mark.parametrize("types", [(U8, U8, U8), (U8, I8, U8), (I8, I8, I8)], ids=name)
def test_onnxruntime_agrees(types):
    """On powers of two: there it is exact, too."""
    for (m, n, k), b_form in itertools.product(((9, 33, 40), (1, 70, 17), (40, 1, 64)), ("tensor", "columns")):
        rng = np.random.default_rng(13)
        a, b = values(rng, (m, k), types[0]), values(rng, (k, n), types[1])
        form = (n,) if b_form == "columns" else ()
        given_ = arguments(rng, a, b, types[2], (), (), form, form, dyadic=True)
        check(gemmkit.qlinear_matmul(*given_), onnxruntime("QLinearMatMul", given_, types[2], 10))


# ---- Anything

@settings(max_examples=100, deadline=None)
@given(data=st.data(), m=st.integers(0, 20), n=st.integers(0, 20), k=st.integers(0, 70), types=st.sampled_from(TRIPLES),
       dtype=st.sampled_from(SCALES), dyadic=st.booleans(), seed=st.integers(0, 2 ** 16),
       batches=st.sampled_from(((), (2,), (1, 2))))
def test_any_operands(data, m, n, k, types, dtype, dyadic, seed, batches):
    rng = np.random.default_rng(seed)
    a = values(rng, data.draw(st.sampled_from(((*batches, m, k), (m, k), (k,)))), types[0])
    b = values(rng, data.draw(st.sampled_from(((*batches, k, n), (k, n), (k,)))), types[1])
    shapes = [data.draw(st.sampled_from(forms(x, axis))) for x, axis in ((a, ROW), (a, ROW), (b, COLUMN), (b, COLUMN))]
    given_ = arguments(rng, a, b, types[2], *shapes, dtype=dtype, dyadic=dyadic)
    check_between(gemmkit.qlinear_matmul(*given_), qlinear_matmul(*given_))
