"""quantize, dequantize and dynamic_quantize_linear: byte for byte what exact fractions, and ONNX, say."""
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import int4, uint4
from narrow import BF16, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, F16, F32, F64, FLOAT8, bits, cast, codes, name

import gemmkit

FLOATS = (F32, F64, F16, BF16)
INTS = (np.int8, np.uint8, int4, uint4)
KINDS = [(dtype, symmetric) for dtype in INTS for symmetric in (False, True)] + [(dtype, False) for dtype in FLOAT8]
RANGES = {np.int8: (-128, 127, 0), np.uint8: (0, 255, 128), int4: (-8, 7, 0), uint4: (0, 15, 8)}  # and the middle
# Bits of the significand, exponent of the smallest subnormal, largest finite value: from the formats' definitions.
FORMATS = {F16: (11, -24, 65504), BF16: (8, -133, None), F32: (24, -149, 2 ** 128 - 2 ** 104), F64: (53, -1074, None),
           E4M3FN: (4, -9, 448), E4M3FNUZ: (4, -10, 240), E5M2: (3, -16, 57344), E5M2FNUZ: (3, -17, 57344)}

by_kind = pytest.mark.parametrize("dtype,symmetric", KINDS, ids=lambda x: name(x) if isinstance(x, type) else str(x))
by_code = pytest.mark.parametrize("dtype", INTS + FLOAT8, ids=name)
by_float = pytest.mark.parametrize("float_type", FLOATS, ids=name)


# ---- References

def rounded(value, dtype):
    """A fraction in a float type, to nearest even, as a fraction; without an upper end."""
    precision, least, _ = FORMATS[dtype]
    if value == 0:
        return Fraction(0)
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    exponent -= abs(value) < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - precision + 1, least)
    return round(value / unit) * unit


def clipped(value, low, high):
    return min(max(value, low), high)


def expected(values, dtype, symmetric, work, least):
    """Codes (or float8 values), scale and zero point of one range, every operation rounded to the type `work`."""
    low, high = min([0, *values]), max([0, *values])
    top = max(high, -low)
    bottom, end, mid = (0, 0, 0) if dtype in FLOAT8 else RANGES[dtype]
    centred = symmetric or dtype in FLOAT8
    if low == high:
        scale = Fraction(1)
    elif dtype in FLOAT8:
        scale = rounded(top / FORMATS[dtype][2], work)
    elif symmetric:
        scale = rounded(top / (end - mid), work)
    else:
        span = rounded(high - low, work)
        if work == F32 and span > FORMATS[F32][2]:
            span = rounded(high - low, F64)
            scale = rounded(span / (end - bottom), F64)
        else:
            scale = rounded(span / (end - bottom), work)
    scale = max(rounded(scale, F32), least)
    zero_point = mid if centred else 0
    if not centred and low != high:
        zero_point = round(clipped(rounded(bottom - rounded(low / scale, work), work), bottom, end))
    quotients = [rounded(value / scale, work) for value in values]
    if dtype in FLOAT8:
        limit = FORMATS[dtype][2]
        q = [rounded(clipped(quotient, -limit, limit), dtype) for quotient in quotients]
    else:
        q = [clipped(round(quotient) + zero_point, bottom, end) for quotient in quotients]
    return q, scale, zero_point


def check(x, dtype, symmetric, axis=None):
    q, scale, zero_point = gemmkit.quantize(x, dtype, axis=axis, symmetric=symmetric)
    work = F64 if x.dtype == F64 else F32
    assert q.dtype == dtype and q.shape == x.shape and type(q) is np.ndarray
    if axis is None:
        assert type(scale) is np.float32 and type(zero_point) is dtype
    else:
        assert scale.dtype == F32 and zero_point.dtype == dtype
        assert scale.shape == zero_point.shape == (x.shape[axis],)
    slices = [(x, q, scale, zero_point)] if axis is None else zip(
        np.moveaxis(x, axis, 0), np.moveaxis(q, axis, 0), scale, zero_point)
    for values, got, s, z in slices:
        exact = [Fraction(float(value)) for value in values.ravel()]
        want, want_scale, want_zero = expected(exact, dtype, symmetric, work, Fraction(2) ** -126)
        assert Fraction(float(s)) == want_scale
        assert float(z) == want_zero
        assert got.astype(F64).ravel().tolist() == [float(value) for value in want]
        if dtype in FLOAT8:  # the sign of a zero, where the format has one
            signs = np.signbit(values) if dtype in (E4M3FN, E5M2) else np.signbit(values) & (got.astype(F32) != 0)
            np.testing.assert_array_equal(np.signbit(got.astype(F32)), signs)


def same(got, want):
    """Dtype, shape and bits; any NaN is any other."""
    assert got.dtype == want.dtype and got.shape == want.shape
    nan = np.isnan(got.astype(F32)) & np.isnan(want.astype(F32))
    np.testing.assert_array_equal(np.where(nan, 0, bits(got)), np.where(nan, 0, bits(want)))


def onnx_reference(op, *inputs, opset=23, **attributes):
    """What onnx.reference makes of one node."""
    onnx = pytest.importorskip("onnx", reason="not run: needs onnx; the same values are checked against fractions")
    from onnx.reference import ReferenceEvaluator
    helper = onnx.helper
    inputs = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs)}
    typed = [helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
             for key, x in inputs.items()]
    outputs = ["y", "y_scale", "y_zero_point"] if op == "DynamicQuantizeLinear" else ["y"]
    graph = helper.make_graph([helper.make_node(op, list(inputs), outputs, **attributes)], "g", typed,
                              [helper.make_tensor_value_info(key, 0, None) for key in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"):
        result = ReferenceEvaluator(model).run(None, inputs)
    return result if len(outputs) > 1 else result[0]


def some(seed, shape, dtype=F32, centre=0.0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + centre).astype(dtype)


# ---- quantize

@by_kind
@by_float
@pytest.mark.parametrize("axis", [None, 0, 1, -1, -3])
def test_every_type_along_every_axis(dtype, symmetric, float_type, axis):
    x = some(0, (3, 4, 5), float_type)
    x[0] = abs(x[0])  # zero is an end of the range, or not in it
    x[1] = -1 - abs(x[1])
    x[:, 2] = 0
    x[2, 1, 3:] = 0, -0.0
    x[:, :, 4] *= 1000
    check(x, dtype, symmetric, axis)


@by_kind
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_values(dtype, symmetric, data):
    width = data.draw(st.sampled_from([16, 32, 64]))
    limit = 1e38 if width == 64 else None  # larger ones may have no scale
    floats = st.floats(-limit if limit else None, limit, width=width, allow_nan=False, allow_infinity=False)
    values = data.draw(st.lists(floats, max_size=8))
    check(np.array(values, f"f{width // 8}"), dtype, symmetric)


@by_float
@pytest.mark.parametrize("step", [2.0 ** -3, 1, 2.0 ** 5])
def test_ties_go_to_the_even_code(float_type, step):
    halves = np.arange(-126.5, 127) if float_type != BF16 else np.arange(-63.5, 64)  # bfloat16 has 8 bits
    x = np.append(halves, [127, -127]) * step
    q, scale, zero_point = gemmkit.quantize(x.astype(float_type), np.int8, symmetric=True)
    assert scale == step and zero_point == 0
    even = [int(half - 0.5) if (half - 0.5) % 2 == 0 else int(half + 0.5) for half in halves]
    assert q.tolist() == [*even, 127, -127]


@pytest.mark.parametrize("dtype,top,mid", [(np.uint8, 127, 128), (uint4, 7, 8), (np.int8, 127, 0), (int4, 7, 0)])
def test_symmetric_maps_zero_to_the_middle(dtype, top, mid):
    x = np.array([-top, -2.5, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5, top], F32)
    q, scale, zero_point = gemmkit.quantize(x, dtype, symmetric=True)
    assert scale == 1 and zero_point == mid
    assert q.astype(int).tolist() == [mid + i for i in (-top, -2, -2, 0, 0, 0, 2, 2, top)]


@pytest.mark.parametrize("low,zero_point,ends", [(-0.5, 0, (0, 254)), (-1.5, 2, (0, 255)), (-2.5, 2, (0, 254)),
                                                 (-253.5, 254, (0, 255)), (-254.5, 254, (0, 254))])
def test_ties_of_the_zero_point_and_saturation(low, zero_point, ends):
    """A range of 255 beside the integers: zero point and both ends are ties; 254 + 2 must not wrap to 0."""
    x = np.array([low, low + 255], F32)
    q, scale, got = gemmkit.quantize(x, np.uint8)
    assert (scale, got, tuple(q.tolist())) == (1, zero_point, ends)
    check(x, np.uint8, False)
    check(x, np.int8, False)


@pytest.mark.parametrize("symmetric", [False, True])
@by_code
def test_zeros_and_nothing_have_scale_one(dtype, symmetric):
    mid = RANGES[dtype][2] if symmetric and dtype in INTS else 0
    for x in (np.zeros(5, F32), np.zeros((2, 0, 3), F64), np.zeros((), F16), np.array([], BF16)):
        q, scale, zero_point = gemmkit.quantize(x, dtype, symmetric=symmetric)
        assert q.shape == x.shape and q.dtype == dtype and scale == 1 and float(zero_point) == mid
        assert (q.astype(F32) == mid).all()
    x = np.array([[0, 1], [0, -2]], F32)
    q, scale, zero_point = gemmkit.quantize(x, dtype, axis=1, symmetric=symmetric)
    assert scale[0] == 1 and scale[1] < 1 and float(zero_point[0]) == mid and (q[:, 0].astype(F32) == mid).all()
    q, scale, zero_point = gemmkit.quantize(np.zeros((3, 0), F32), dtype, axis=0, symmetric=symmetric)
    assert scale.tolist() == [1, 1, 1] and zero_point.astype(F32).tolist() == [mid] * 3
    q, scale, zero_point = gemmkit.quantize(np.zeros((3, 0), F32), dtype, axis=1, symmetric=symmetric)
    assert q.shape == (3, 0) and scale.shape == zero_point.shape == (0,)


@by_kind
def test_scales_stay_normal(dtype, symmetric):
    tiny = 2.0 ** -126
    for x in (np.array([2.0 ** -149, -(2.0 ** -149)], F32), np.array([1e-38, -3e-39, 1e-40], F32),
              np.array([1e-300, -1e-310]), np.array([5e-324])):
        _, scale, _ = gemmkit.quantize(x, dtype, symmetric=symmetric)
        assert scale == tiny
        check(x, dtype, symmetric)
    check(np.array([1e-36, -1e-37, 3e-38], F32), dtype, symmetric)


@by_kind
def test_the_widest_ranges(dtype, symmetric):
    """max - min overflows in every type but float64."""
    for float_type in (F16, BF16, F32):
        top = np.array(np.inf, F32).astype(float_type)
        top = np.nextafter(top, top.dtype.type(0))
        check(np.array([top, -top, top / top.dtype.type(3)], float_type), dtype, symmetric)
    check(np.array([3e38, -3.5e38, 1e39]), dtype, symmetric)


@by_code
def test_no_float32_scale_is_large_enough(dtype):
    for x in ([1e308, -1e308], [0.0, 1.7e308], [1e300]):
        with pytest.raises(ValueError, match="^x: .*float32"):
            gemmkit.quantize(np.array(x), dtype)


@pytest.mark.parametrize("dtype", FLOAT8, ids=name)
def test_float8_saturates_and_rounds_once(dtype):
    """Whatever the scale was rounded to, the largest value becomes the largest finite one."""
    for float_type in (F32, F64):
        x = abs(some(1, 4000, float_type)).reshape(-1, 1) * [[1, -1]] + float_type(1e-30)
        q, _, _ = gemmkit.quantize(x, dtype, axis=0)
        limit = FORMATS[dtype][2]
        np.testing.assert_array_equal(abs(q.astype(F32)).max(1), limit)
        assert np.isfinite(q.astype(F32)).all()
    # Next to a tie by less than float32 can tell: a cast by way of float32 would see the tie.
    limit, unit = FORMATS[dtype][2], Fraction(1, 2 ** (FORMATS[dtype][0] - 1))
    near = [float(1 + unit * n / 2 + sign * Fraction(1, 2 ** 45)) for n in (1, 3) for sign in (-1, 0, 1)]
    x = np.array([limit, *near, *(-v for v in near)], F64)
    q, scale, _ = gemmkit.quantize(x, dtype)
    assert scale == 1
    up = [1, 1, 1 + unit, 1 + unit, 1 + 2 * unit, 1 + 2 * unit]
    assert q.astype(F64).tolist() == [limit, *map(float, up), *(-float(v) for v in up)]
    check(x, dtype, False)


@by_kind
@by_float
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_onnx_quantize_linear(dtype, symmetric, float_type, axis):
    x = some(2, (33, 47), float_type, 0.3)
    x[:, 5] = 0
    x[3, 7:9] = -0.0, 1e-6
    q, scale, zero_point = gemmkit.quantize(x, dtype, axis=axis, symmetric=symmetric)
    if float_type == F64 and dtype in FLOAT8:
        x = x.astype(F32)  # ONNX has no such operands, its reference would round twice
        q, scale, zero_point = gemmkit.quantize(x, dtype, axis=axis, symmetric=symmetric)
    want = onnx_reference("QuantizeLinear", x, scale, zero_point, **({} if axis is None else {"axis": axis}))
    same(q, want)


def test_any_layout():
    x = some(3, (6, 10))
    for float_type in FLOATS:
        base = x.astype(float_type)
        want = [np.asarray(y) for y in gemmkit.quantize(base, np.uint8, axis=1)]
        gaps = np.zeros((12, 31), float_type)
        gaps[1::2, 1::3] = base
        unaligned = np.frombuffer(b"x" + base.tobytes(), float_type, offset=1).reshape(base.shape)
        views = [np.asfortranarray(base), gaps[1::2, 1::3], base[::-1].copy()[::-1], unaligned]
        if float_type != BF16:
            views.append(base.astype(base.dtype.newbyteorder()))
        for view in views:
            before = view.tobytes()
            view.flags.writeable = False
            for got, one in zip(gemmkit.quantize(view, np.uint8, axis=-1), want, strict=True):
                same(got, one)
            assert view.tobytes() == before
        assert gemmkit.quantize(views[0], int4)[0].flags.f_contiguous
    repeated = np.broadcast_to(x[0], (4, 10))
    same(gemmkit.quantize(repeated, np.int8)[0], np.stack([gemmkit.quantize(x[0], np.int8)[0]] * 4))
    q, scale, _ = gemmkit.quantize([[1.0, -2.0]], "int8", symmetric=True)
    assert q.tolist() == [[64, -127]] and scale == np.float32(2 / 127)
    q, scale, zero_point = gemmkit.quantize(np.float32(-3), np.uint8)
    assert type(q) is np.ndarray and q.shape == () and (q, zero_point) == (0, 255)


@by_float
@by_kind
def test_operands_are_only_read(dtype, symmetric, float_type):
    x = some(4, 100, float_type)
    before = x.tobytes()
    gemmkit.quantize(x, dtype, symmetric=symmetric)
    assert x.tobytes() == before


@pytest.mark.parametrize("make", [lambda x: gemmkit.quantize(x, np.int8, axis=1), lambda x: gemmkit.quantize(x, uint4),
                                  lambda x: gemmkit.quantize(x, E4M3FN), gemmkit.dynamic_quantize_linear,
                                  lambda x: gemmkit.dequantize(x.view(np.uint8), 0.5, 3)])
def test_no_more_memory_than_one_float32_copy_and_the_result(make):
    x = some(5, (512, 1024))
    tracemalloc.start()
    try:
        make(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    limit = (4 + 1 + 1) * x.size if make(x)[0].dtype != F32 else 4 * x.nbytes  # dequantize reads the bytes of x
    assert x.size < peak < limit + 100_000


def test_quantize_refuses():
    x = np.ones((2, 3), F32)
    for bad in (np.ones(3, np.int32), [1, 2], np.ones(3, bool), np.ones(3, complex), np.ones(3, np.longdouble),
                np.ones(3, E5M2), ["a"], None):
        with pytest.raises(TypeError, match="^x: dtype "):
            gemmkit.quantize(bad, np.int8)
    for bad in (None, np.int16, F32, bool, "int5", BF16, np.uint32):
        with pytest.raises(TypeError, match="^dtype: "):
            gemmkit.quantize(x, bad)
    for bad in (np.nan, np.inf, -np.inf):
        for float_type in FLOATS:
            y = x.astype(float_type)
            y[1, 1] = bad
            for axis in (None, 0, 1):
                with pytest.raises(ValueError, match=r"^x: .*\(2, 3\)"):
                    gemmkit.quantize(y, np.int8, axis=axis)
    for bad in (2, -3, 100):
        with pytest.raises(ValueError, match=rf"^axis: .*\(2, 3\).* {bad}$"):
            gemmkit.quantize(x, np.int8, axis=bad)
    with pytest.raises(ValueError, match=r"^axis: "):
        gemmkit.quantize(np.float32(1), np.int8, axis=0)
    for bad in (1.0, "1", True, (0,)):
        with pytest.raises(TypeError, match="^axis: "):
            gemmkit.quantize(x, np.int8, axis=bad)
    with pytest.raises(TypeError):
        gemmkit.quantize(x, np.int8, 1)


# ---- dequantize

def zero_points(dtype):
    return [None, *codes(np.dtype(dtype))[[1, 60, 200]]] if dtype in (np.int8, np.uint8, *FLOAT8) else \
        [None, *np.array(RANGES[dtype][:2], np.int8).astype(dtype)]


def every_code(dtype):
    return np.arange(RANGES[dtype][0], RANGES[dtype][1] + 1, dtype=np.int16).astype(dtype) if dtype in INTS \
        else codes(dtype)


@by_code
def test_every_code_is_one_difference_and_one_product(dtype):
    """Each rounded to float32, as fractions know it."""
    q = every_code(dtype)
    q = q[np.isfinite(q.astype(F32))]
    for zero_point in zero_points(dtype):
        shift = 0 if zero_point is None else Fraction(float(zero_point))
        for scale in (np.float32(1 / 3), np.float32(2.0 ** -149), np.float32(1e30), np.float32(-7)):
            want = [rounded(rounded(Fraction(float(v)) - shift, F32) * Fraction(float(scale)), F32) for v in q]
            got = gemmkit.dequantize(q, scale, zero_point)
            assert got.dtype == F32 and [Fraction(float(v)) for v in got] == want
            wide = gemmkit.dequantize(q, scale, zero_point, dtype=F64)
            exact = [rounded(rounded(Fraction(float(v)) - shift, F64) * Fraction(float(scale)), F64) for v in q]
            assert wide.dtype == F64 and [Fraction(float(v)) for v in wide] == exact


@by_code
@by_float
def test_results_of_other_types_are_float32_rounded_once_more(dtype, float_type):
    q = every_code(dtype)
    for scale in (np.float32(1 / 3), np.float32(1e-6), np.float32(700), np.float16(0.1), BF16(0.1), 0.1, 2):
        got = gemmkit.dequantize(q, scale, dtype=float_type)
        assert got.dtype == float_type
        if float_type != F64:
            single = np.float32(scale)
            same(got, cast(cast(q, F32) * single, float_type))


@by_code
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("scale_type,float_type", [(F32, F32), (F32, F16), (F16, F16), (BF16, BF16), (F32, BF16)],
                         ids=name)
def test_onnx_dequantize_linear(dtype, axis, scale_type, float_type):
    rng = np.random.default_rng(6)
    q = rng.choice(every_code(dtype), (9, 31))
    shape = () if axis is None else (q.shape[axis],)
    scale = np.asarray(rng.uniform(0.01, 2, shape)).astype(scale_type)
    # ONNX's reference refuses what its text allows: a float8 zero point that is not 0.
    zero_point = np.zeros(shape, dtype) if dtype in FLOAT8 else np.asarray(rng.choice(every_code(dtype), shape))
    onnx = pytest.importorskip("onnx", reason="not run: needs onnx; the same values are checked against fractions")
    attributes = {"output_dtype": onnx.helper.np_dtype_to_tensor_dtype(np.dtype(float_type))}
    if axis is not None:
        attributes["axis"] = axis
    want = onnx_reference("DequantizeLinear", q, scale, zero_point, **attributes)
    same(gemmkit.dequantize(q, scale, zero_point, axis=axis, dtype=float_type), want)
    if dtype in FLOAT8:
        same(gemmkit.dequantize(q, scale, axis=axis, dtype=float_type), want)


def test_int32_takes_scales_and_no_zero_point():
    q = np.array([[2 ** 31 - 1, -2 ** 31, 2 ** 24 + 1], [2 ** 24 + 3, -7, 0]], np.int32)
    scale = np.array([1 / 3, 0.5, 1], F32)
    for zero_point in (None, 0, np.int32(0), np.zeros(3, np.int32)):
        got = gemmkit.dequantize(q, scale, zero_point, axis=1)
        want = [[rounded(rounded(Fraction(int(v)), F32) * Fraction(float(s)), F32) for v, s in zip(row, scale)]
                for row in q]
        assert [[Fraction(float(v)) for v in row] for row in got] == want
        same(got, onnx_reference("DequantizeLinear", q, scale, axis=1))
    assert gemmkit.dequantize(q, 1.0, dtype=F64).tolist() == q.tolist()
    for bad in (1, -1, np.int32(5), np.array([0, 0, 1], np.int32)):
        with pytest.raises(ValueError, match="^zero_point: .*int32"):
            gemmkit.dequantize(q, scale, bad, axis=1)


@pytest.mark.parametrize("dtype", [int4, uint4], ids=name)
def test_packed_operands_are_their_values(dtype):
    q = np.random.default_rng(7).choice(every_code(dtype), (5, 7))
    packed = gemmkit.PackedInt4.pack(q)
    scale, zero_point = np.linspace(0.1, 2, 7).astype(F32), q[0]
    for float_type in FLOATS:
        same(gemmkit.dequantize(packed, scale, zero_point, axis=1, dtype=float_type),
             gemmkit.dequantize(q, scale, zero_point, axis=1, dtype=float_type))
    same(gemmkit.dequantize(packed, 0.5, 3), (q.astype(F32) - 3) / 2)
    with pytest.raises(TypeError, match=f"^zero_point: .*{name(dtype)}"):
        gemmkit.dequantize(packed, 1.0, np.int8(0))


@pytest.mark.parametrize("dtype", [int4, uint4], ids=name)
def test_only_the_low_nibble_of_a_4_bit_value_counts(dtype):
    """ml_dtypes leaves the other half of the byte as it comes: zeros, the sign, or what a view brought."""
    every = np.arange(256, dtype=np.uint8)
    same(gemmkit.dequantize(every.view(dtype), 1.0), gemmkit.dequantize((every & 15).view(dtype), 1.0))
    values = np.arange(16) if dtype == uint4 else (np.arange(16) + 8) % 16 - 8
    assert gemmkit.dequantize(every.view(dtype), 1.0).tolist() == np.tile(values, 16).tolist()


@by_kind
@by_float
def test_there_and_back(dtype, symmetric, float_type):
    """Within half a step, which is one of float8's for float8."""
    x = some(8, (40, 50), float_type)
    q, scale, zero_point = gemmkit.quantize(x, dtype, axis=1, symmetric=symmetric)
    error = abs(gemmkit.dequantize(q, scale, zero_point, axis=1, dtype=F64) - x.astype(F64))
    step = scale.astype(F64)
    if dtype in FLOAT8:
        precision, least, _ = FORMATS[dtype]
        step = np.maximum(abs(x.astype(F64)) * 2.0 ** (1 - precision), step * 2.0 ** least)
    # An end of the range is cut by as much as the zero point was rounded.
    slack = 1.00001 if symmetric or dtype in FLOAT8 else 2.00001
    assert (error <= step / 2 * slack).all()


def test_scales_and_zero_points_of_different_forms():
    q = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    scale, zero_point = np.array([1, 2, 4, 8], F32), np.array([1, 0, -1, 5], np.int8)
    plain = q.astype(F32)
    for axis in (1, -1):
        same(gemmkit.dequantize(q, scale, axis=axis), plain * scale)
        same(gemmkit.dequantize(q, scale, 3, axis=axis), (plain - 3) * scale)
        same(gemmkit.dequantize(q, scale, np.array([3], np.int8), axis=axis), (plain - 3) * scale)
        same(gemmkit.dequantize(q, 0.5, zero_point, axis=axis), (plain - zero_point) / 2)
        same(gemmkit.dequantize(q, scale.reshape(4), zero_point, axis=axis), (plain - zero_point) * scale)
    same(gemmkit.dequantize(q, scale[:3], zero_point[:3], axis=0), ((plain.T - zero_point[:3]) * scale[:3]).T)
    same(gemmkit.dequantize(q, scale[1:2], zero_point[:1]), (plain - 1) * 2)
    same(gemmkit.dequantize(np.int8(5), 2.0, -3), np.array(16, F32))
    same(gemmkit.dequantize(np.zeros((0, 4), np.uint8), scale, axis=1), np.zeros((0, 4), F32))
    swapped = scale.astype(">f4")
    same(gemmkit.dequantize(q[:, ::-1], swapped[::-1], axis=1), (plain * scale)[:, ::-1].copy())
    assert gemmkit.dequantize(np.asfortranarray(q), 1.0).flags.f_contiguous


def test_dequantize_refuses():
    q = np.ones((3, 4), np.int8)
    for bad in (np.ones(3, np.int64), [1, 2], np.ones(3, F32), np.ones(3, np.int16), np.ones(3, bool), None):
        with pytest.raises(TypeError, match="^q: dtype "):
            gemmkit.dequantize(bad, 1.0)
    for bad in (np.ones((), F64), np.float64(1), np.int32(1), None, "1", True):
        with pytest.raises(TypeError, match="^scale: dtype "):
            gemmkit.dequantize(q, bad)
    for axis, shape in ((None, (4,)), (None, (1, 1)), (1, (3,)), (0, (4,)), (1, (1, 4)), (0, (0,))):
        with pytest.raises(ValueError, match="^scale: expected shape "):
            gemmkit.dequantize(q, np.ones(shape, F32), axis=axis)
        with pytest.raises(ValueError, match="^zero_point: expected shape "):
            gemmkit.dequantize(q, 1.0, np.ones(shape, np.int8), axis=axis)
    for bad in (np.uint8(1), np.zeros(3, np.int64), 1.0, np.zeros((), int4), True):
        with pytest.raises(TypeError, match="^zero_point: .*int8"):
            gemmkit.dequantize(q, 1.0, bad, axis=0)
    for dtype, low, high in ((np.int8, -128, 127), (np.uint8, 0, 255), (int4, -8, 7), (uint4, 0, 15)):
        one = np.ones(2, np.int8).astype(dtype)
        assert gemmkit.dequantize(one, 1.0, low).tolist() == [1 - low] * 2
        assert gemmkit.dequantize(one, 1.0, high).tolist() == [1 - high] * 2
        for bad in (low - 1, high + 1, 2 ** 70, -2 ** 70):
            with pytest.raises(ValueError, match=rf"^zero_point: {bad} .*{name(dtype)}, {low} to {high}$"):
                gemmkit.dequantize(one, 1.0, bad)
    one = np.ones(2, F32).astype(E5M2)
    assert gemmkit.dequantize(one, 1.0, 5).tolist() == [-4, -4]
    for bad in (9, 57345, 2 ** 70):
        with pytest.raises(ValueError, match=f"^zero_point: {bad} .*float8_e5m2"):
            gemmkit.dequantize(one, 1.0, bad)
    for bad in (None, np.int8, E4M3FN, "float7"):
        with pytest.raises(TypeError, match="^dtype: "):
            gemmkit.dequantize(q, 1.0, dtype=bad)
    for bad in (2, -3):
        with pytest.raises(ValueError, match=r"^axis: .*\(3, 4\)"):
            gemmkit.dequantize(q, 1.0, axis=bad)
    with pytest.raises(TypeError, match="^axis: "):
        gemmkit.dequantize(q, 1.0, axis=0.0)


# ---- dynamic_quantize_linear

def check_dynamic(x):
    y, scale, zero_point = gemmkit.dynamic_quantize_linear(x)
    assert type(y) is np.ndarray and y.dtype == np.uint8 and y.shape == x.shape
    assert type(scale) is np.float32 and type(zero_point) is np.uint8
    exact = [Fraction(float(value)) for value in x.ravel()]
    want, want_scale, want_zero = expected(exact, np.uint8, False, F32, Fraction(2) ** -149)
    assert Fraction(float(scale)) == want_scale and zero_point == want_zero
    assert y.ravel().tolist() == want


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=8))
def test_dynamic_of_any_values(values):
    check_dynamic(np.array(values, F32))


DYNAMIC = [some(9, 1000), some(10, (17, 61), centre=3), some(11, (3, 5, 7), centre=-8), abs(some(12, 33)),
           -abs(some(13, 65)), some(14, 257) * np.float32(1e30), some(15, 99) * np.float32(1e-35),
           np.float32(some(16, 99) * 2e-38), np.array([[0, 2, -3, -2.5, 1.34, 0.5]], F32), np.array([-3.5], F32),
           np.array([1.0, 2.1, 1.3, 2.5, 3.34, 4.0], F32), np.array(2.5, F32), np.array([-0.5, 254.5], F32),
           np.array([-1.5, 253.5, 1.5, 2.5], F32), np.array([-2.5, 252.5], F32), np.array([-0.0, 1e-44 * 40], F32),
           np.array([-382, -100, 0], F32) * np.float32(2.0 ** -149)]  # the scale 382 / 255 becomes 1: 382 saturates


@pytest.mark.parametrize("x", DYNAMIC, ids=lambda x: str(x.shape))
def test_dynamic_is_what_onnx_reference_gives(x):
    check_dynamic(x)
    for got, want in zip(gemmkit.dynamic_quantize_linear(x), onnx_reference("DynamicQuantizeLinear", x), strict=True):
        same(np.asarray(got), want)


def test_dynamic_is_what_onnxruntime_gives():
    ort = pytest.importorskip("onnxruntime", reason="not run: needs onnxruntime; test_dynamic_of_any_values has an "
                                                    "exact reference")
    onnx = pytest.importorskip("onnx", reason="not run: needs onnx; test_dynamic_of_any_values has an exact reference")
    helper, types = onnx.helper, onnx.TensorProto
    outputs = [helper.make_tensor_value_info(key, kind, None)
               for key, kind in (("y", types.UINT8), ("s", types.FLOAT), ("z", types.UINT8))]
    graph = helper.make_graph([helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])], "g",
                              [helper.make_tensor_value_info("x", types.FLOAT, None)], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    nothing = [np.zeros(3, F32), np.array([-0.0, 0.0], F32), np.zeros((2, 0), F32)]
    for x in [*DYNAMIC, *nothing, some(17, (129, 257), centre=0.5)]:
        for got, want in zip(gemmkit.dynamic_quantize_linear(x), session.run(None, {"x": x}), strict=True):
            same(np.asarray(got), np.asarray(want))


def test_dynamic_where_onnx_says_nothing():
    for x in (np.zeros(4, F32), np.array([-0.0], F32), np.zeros((0, 3), F32), np.zeros((), F32)):
        y, scale, zero_point = gemmkit.dynamic_quantize_linear(x)
        assert y.shape == x.shape and not y.any() and scale == 1 and zero_point == 0
    least = np.float32(2.0 ** -149)
    y, scale, zero_point = gemmkit.dynamic_quantize_linear(np.array([100, -7, 0], F32) * least)
    assert (y.tolist(), scale, zero_point) == ([107, 0, 7], least, 7)
    y, scale, zero_point = gemmkit.dynamic_quantize_linear(np.array([3e38, 0, -3e38], F32))
    assert y.tolist() == [255, 128, 0] and zero_point == 128 and abs(float(scale) - 6e38 / 255) < 1e30


def test_dynamic_refuses():
    for bad in ([1.0], np.ones(3), np.ones(3, F16), np.ones(3, np.uint8), np.ones(3, BF16)):
        with pytest.raises(TypeError, match="^x: .*float32, got "):
            gemmkit.dynamic_quantize_linear(bad)
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match=r"^x: .*\(3,\)"):
            gemmkit.dynamic_quantize_linear(np.array([0, bad, 1], F32))
    swapped = DYNAMIC[0].astype(">f4")
    for got, want in zip(gemmkit.dynamic_quantize_linear(swapped), gemmkit.dynamic_quantize_linear(DYNAMIC[0]),
                         strict=True):
        same(np.asarray(got), np.asarray(want))
