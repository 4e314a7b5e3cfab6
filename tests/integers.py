"""What the tests of integer products share: types, values, zero points and scales by their table, and exact oracles.

Sums are taken modulo 2^64 in numpy's integers (einsum without a contraction path calls no BLAS) and cut to the result's
width at the end; a requantized value is a fraction until it is rounded.
"""
import functools
import importlib
import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import gemmkit

BOOL, I8, U8, I16, U16 = np.bool_, np.int8, np.uint8, np.int16, np.uint16
I32, U32, I64, U64 = np.int32, np.uint32, np.int64, np.uint64
I4, U4 = ml_dtypes.int4, ml_dtypes.uint4
BYTES, NIBBLES, WHOLE = (I8, U8), (I4, U4), (I16, U16, I32, U32, I64, U64)
F16, BF16, F32, F64 = np.float16, ml_dtypes.bfloat16, np.float32, np.float64
SCALES = (F32, F16, BF16)
FLOAT8 = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz)
COUNTS = (1, 2, 3)  # of threads
ALGORITHMS = ("general", "direct", "small_k", "skinny_m", "skinny_n", "split_k")

# m, n, k: one element, tails of tiles and of quads, single rows and columns, several tiles in each direction
SIZES = [(1, 1, 1), (1, 1, 9), (1, 70, 5), (64, 1, 33), (3, 2, 64), (5, 7, 3), (8, 48, 16), (9, 49, 17), (7, 47, 15),
         (13, 66, 31), (50, 31, 70), (2, 64, 2), (17, 33, 129), (1, 69, 300), (70, 1, 131), (33, 65, 258)]


def name(x):
    """Of a type, or of several: for the ids of parameters."""
    return " ".join(map(name, x)) if isinstance(x, tuple) else np.dtype(x).name


def pairs(types):
    return pytest.mark.parametrize("pair", list(itertools.product(types, types)), ids=name)


# ---- Values

def limits(dtype):
    if np.dtype(dtype) == BOOL:
        return 0, 1
    info = ml_dtypes.iinfo(dtype) if np.dtype(dtype) in map(np.dtype, NIBBLES) else np.iinfo(dtype)
    return int(info.min), int(info.max)


def values(rng, shape, dtype, low=None, high=None):
    """Anything in the range of the type, or between two bounds."""
    low, high = (limits(dtype)[0] if low is None else low), (limits(dtype)[1] if high is None else high)
    wide = U64 if high > limits(I64)[1] else I64
    return np.asarray(rng.integers(low, high, shape, wide, endpoint=True)).astype(dtype)


def bools(rng, shape, k):
    """So many that a sum of k products is about as often empty as not."""
    return rng.random(shape) < 0.8 / max(k, 1) ** 0.5


def some(seed, *shapes_and_types):
    rng = np.random.default_rng(seed)
    return [values(rng, shape, dtype) for shape, dtype in shapes_and_types]


@functools.lru_cache(4096)
def problem(m, n, k, pair):
    """Full-range a and b, and their product by numpy's rules; shared by the tests of all instruction sets."""
    rng = np.random.default_rng((m, n, k))
    a, b = (bools(rng, shape, k) if dtype == BOOL else values(rng, shape, dtype)
            for shape, dtype in (((m, k), pair[0]), ((k, n), pair[1])))
    return frozen(a, b, matmul(a, b))


def frozen(*arrays):
    for x in arrays:
        x.flags.writeable = False
    return arrays


# ---- Memory

def layouts(x):
    """The same matrix in every memory layout that a view can have; what lies in the gaps must not count."""
    m, n = x.shape
    gaps = np.full((2 * m + 1, 3 * n + 2), np.nan if x.dtype in FLOAT8 else limits(x.dtype)[1], x.dtype)
    gaps[1::2, 1:-1:3] = x
    return {"rows": x, "columns": np.asfortranarray(x), "upside down": x[::-1].copy()[::-1],
            "mirrored": x[:, ::-1].copy()[:, ::-1], "columns turned round": x.T[::-1, ::-1].copy()[::-1, ::-1].T,
            "gaps": gaps[1::2, 1:-1:3], "column gaps": np.asfortranarray(gaps)[1::2, 1:-1:3]}


def windows(shape, dtype):
    """(buffer, view) pairs: views of a shape in a buffer of sevens, in some axis orders, directions and steps."""
    for order in {tuple(range(len(shape))), tuple(reversed(range(len(shape))))}:
        for steps in itertools.product((1, -1, 2), repeat=len(shape)):
            buffer = np.full([2 * shape[axis] + 3 for axis in order], 7, dtype)
            index = tuple(slice(1, 1 + size * step, step) if step > 0 else slice(size * -step, 0, step)
                          for size, step in zip(shape, steps))
            yield buffer, buffer.transpose(np.argsort(order))[index]


def nibbles(x):
    """4-bit values two to a byte, the first in the low half; an unused half is not zero, so that reading it shows."""
    flat = x.astype(I64).ravel() & 15
    flat = np.append(flat, 15) if flat.size % 2 else flat
    return (flat[::2] | flat[1::2] << 4).astype(U8)


def packed(x):
    return gemmkit.PackedInt4(nibbles(x), x.shape, signed=x.dtype == I4)


# ---- Sums

def modular(a, b):
    """a @ b by numpy.matmul's rules of shape, modulo 2^64."""
    a, b = (np.asarray(x).astype(I64).view(U64) for x in (a, b))
    left, right = ("ik" if a.ndim > 1 else "k"), ("kj" if b.ndim > 1 else "k")
    result = "i" * (a.ndim > 1) + "j" * (b.ndim > 1)
    return np.asarray(np.einsum(f"...{left},...{right}->...{result}", a, b, optimize=False))


def wrap(x, dtype):
    """Integers, known modulo 2^64 or of Python's, modulo the type's 2^bits."""
    x, dtype = np.asarray(x), np.dtype(dtype)
    x = np.asarray(x % 2 ** 64 if x.dtype == object else x).astype(U64)
    cut = np.asarray(x & U64(2 ** (8 * dtype.itemsize) - 1))
    return cut.astype(f"u{dtype.itemsize}").view(dtype)


def matmul(a, b):
    """numpy.matmul's result; sums of floating-point results must be exact in float64, or the test is wrong."""
    dtype = np.result_type(a.dtype, b.dtype)
    if dtype == BOOL:
        return np.asarray(modular(a, b) != 0)
    if dtype.kind in "iu":
        return wrap(modular(a, b), dtype)
    left, right = (np.asarray(x).astype(F64) for x in (a, b))
    size = modular(abs(left), abs(right)).max(initial=0)
    assert size < 2 ** 53 and (left == np.rint(left)).all() and (right == np.rint(right)).all()
    return modular(left, right).view(I64).astype(F64).astype(dtype)


def check(got, want):
    """Bit for bit, of the right type and shape; two vectors give a numpy scalar."""
    assert isinstance(got, (np.ndarray, np.generic)) and got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got, want)


def check_by_projection(product, a, b):
    """Whether product = a @ b modulo its type's 2^bits, by sums of its rows and columns with random weights."""
    rng = np.random.default_rng(3)
    for _ in range(2):
        right, left = values(rng, (b.shape[1],), I64), values(rng, (a.shape[0],), I64)
        for got, want in ((modular(product, right), modular(a, modular(b, right))),
                          (modular(left, product), modular(modular(left, a), b))):
            np.testing.assert_array_equal(wrap(got, product.dtype), wrap(want, product.dtype))


# ---- Zero points and scales

ROW, COLUMN = -2, -1  # the axis of an operand along which its parameter may vary: a's rows, b's columns


def spread(parameter, operand, axis):
    """A zero point or scale in a shape that broadcasts against its operand; ValueError for what the table lacks."""
    parameter = np.asarray(parameter)
    if parameter.shape in ((), (1,)):
        return parameter.reshape(())
    if operand.ndim == 1 or parameter.ndim > operand.ndim:
        raise ValueError(parameter.shape)
    length, summed = operand.shape[axis], ROW + COLUMN - axis
    if parameter.ndim == 1:
        if len(parameter) != length:
            raise ValueError(parameter.shape)
        return np.expand_dims(parameter, summed)
    batch = parameter.shape[:-2]
    if parameter.shape[summed] != 1 or parameter.shape[axis] not in (1, length):
        raise ValueError(parameter.shape)
    for got, own in zip(reversed(batch), reversed(operand.shape[:-2])):
        if got not in (1, own):
            raise ValueError(parameter.shape)
    return parameter


def forms(operand, axis):
    """Every shape that a parameter of this operand may have."""
    shapes = [(), (1,)]
    if operand.ndim > 1:
        n = operand.shape[axis]
        tails = [(n, 1), (1, 1)] if axis == ROW else [(1, n), (1, 1)]
        shapes.append((n,))
        batch = operand.shape[:-2]
        for rank in range(len(batch) + 1):
            own = batch[len(batch) - rank:]
            for axes in itertools.product(*((1, size) for size in own)):
                shapes += [(*axes, *tail) for tail in tails]
    return list(dict.fromkeys(shapes))


def centred(operand, zero_point, axis):
    zero_point = 0 if zero_point is None else zero_point
    return operand.astype(I64) - spread(zero_point, operand, axis).astype(I64)


def matmul_integer(a, b, a_zero_point=None, b_zero_point=None):
    return wrap(modular(centred(a, a_zero_point, ROW), centred(b, b_zero_point, COLUMN)), I32)


# ---- Requantization

def single(scale):
    """A Python float counts as float32."""
    return F32(scale) if type(scale) is float else np.asarray(scale)


def power_of_two(x):
    return all(abs(n) & (abs(n) - 1) == 0 for n in (x.numerator, x.denominator))


def multipliers(a, a_scale, b, b_scale, y_scale):
    """Fractions that broadcast against the product of matrices, and whether the scales are all powers of two."""
    exact = np.vectorize(Fraction, otypes=[object])
    left = exact(spread(single(a_scale), a, ROW).astype(F64))
    right = exact(spread(single(b_scale), b, COLUMN).astype(F64))
    divisor = Fraction(float(single(y_scale).reshape(())))
    plain = all(map(power_of_two, [divisor, *left.ravel(), *right.ravel()]))
    return np.asarray(left * right / divisor), plain


def as_matrices(a, b):
    """Two operands of rank 2 or more, and what takes the extra axes from their product."""
    dropped = (ROW,) * (a.ndim == 1) + (COLUMN,) * (b.ndim == 1)
    return (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b), lambda x: x.squeeze(dropped)


def qlinear_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    """The least and the largest value that each element may have, of the result's type.

    They are the same if all scales are powers of two; else what lies within 8 * 2^-24 |x| of a tie may go either way.
    """
    multiplier, plain = multipliers(a, a_scale, b, b_scale, y_scale)
    left, right, squeezed = as_matrices(centred(a, a_zero_point, ROW), centred(b, b_zero_point, COLUMN))
    total = modular(left, right).view(I64)
    assert abs(total).max(initial=0) < 2 ** 31, "sums past 32 bits are nobody's promise"
    total, multiplier = np.broadcast_arrays(total, multiplier)
    zero, dtype = int(np.asarray(y_zero_point).reshape(())), np.asarray(y_zero_point).dtype
    low, high = limits(dtype)
    slack = Fraction(0 if plain else 8, 2 ** 24)
    bounds = np.empty((2, total.size), I64)
    for i, (s, m) in enumerate(zip(total.ravel().tolist(), multiplier.ravel().tolist())):
        x = s * m
        reach = slack * abs(x)
        bounds[:, i] = [min(max(round(end) + zero, low), high) for end in (x - reach, x + reach)]
    return tuple(squeezed(x.reshape(total.shape)).astype(dtype) for x in bounds)


def check_between(got, bounds):
    low, high = bounds
    assert isinstance(got, (np.ndarray, np.generic)) and got.dtype == low.dtype and got.shape == low.shape
    wrong = (got < low) | (got > high)
    assert not wrong.any(), (f"{wrong.sum()} of {wrong.size} wrong, first {np.asarray(got)[wrong][0]} for "
                             f"{low[wrong][0]}..{high[wrong][0]} at {np.argwhere(wrong)[0]}")


@functools.cache
def positive_values(dtype):
    """The finite float8 values from zero up, so that an even index is an even code."""
    value = np.arange(128, dtype=U8).view(dtype).astype(F64)
    value = value[np.isfinite(value)]
    assert (np.diff(value) > 0).all() and value[0] == 0
    return value


def rounded_to_float8(x, dtype):
    """float64 to the nearest value of a float8 type, ties to the even code, capped by the largest; still float64."""
    table, x = positive_values(dtype), np.asarray(x)
    size = np.minimum(abs(x), table[-1])
    above = np.minimum(np.searchsorted(table, size), len(table) - 1)
    below = np.maximum(above - 1, 0)
    middle = (table[below] + table[above]) / 2
    nearest = np.where((size > middle) | ((size == middle) & (above % 2 == 0)), above, below)
    return np.where(np.isnan(x), np.nan, np.copysign(table[nearest], x))


def qlinear_float8(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    """The exact value before the last rounding, in float64; for scales that are powers of two and short sums."""
    multiplier, plain = multipliers(a, a_scale, b, b_scale, y_scale)
    assert plain
    left = a.astype(F64) - spread(a_zero_point, a, ROW).astype(F64)
    right = b.astype(F64) - spread(b_zero_point, b, COLUMN).astype(F64)
    left, right, squeezed = as_matrices(left, right)
    with np.errstate(invalid="ignore"):
        total = np.einsum("...ik,...kj->...ij", left, right, optimize=False)
        exact = total * multiplier.astype(F64) + float(np.asarray(y_zero_point).astype(F64).reshape(()))
    return squeezed(exact)


def check_float8(got, exact, dtype):
    assert isinstance(got, (np.ndarray, np.generic)) and got.dtype == dtype and got.shape == exact.shape
    np.testing.assert_array_equal(got.astype(F64), rounded_to_float8(exact, dtype))


# ---- Other implementations

def onnx_cases(operator):
    """(name, inputs, output) of the ONNX node tests of an operator; a skip without onnx, which only these need."""
    pytest.importorskip("onnx", reason="not run: onnx isn't installed; the oracles of this file's tests need none")
    importlib.import_module(f"onnx.backend.test.case.node.{operator.lower()}")
    node = importlib.import_module("onnx.backend.test.case.node")
    return [(case.name, *case.data_sets[0]) for case in node._NodeTestCases
            if case.model.graph.node[0].op_type == operator]


def onnx_model(operator, inputs, dtype, opset, **attributes):
    """A model of one node whose inputs have these arrays' types and ranks; None is an absent input."""
    from onnx import TensorProto, helper

    def value(label, element, rank):
        return helper.make_tensor_value_info(label, element, [None] * rank)

    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    given = [value(label, helper.np_dtype_to_tensor_dtype(x.dtype), x.ndim)
             for label, x in zip(names, inputs) if x is not None]
    result = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)
    assert TensorProto.UNDEFINED not in [x.type.tensor_type.elem_type for x in (*given, result)]
    graph = helper.make_graph([helper.make_node(operator, names, ["y"], **attributes)], operator, given, [result])
    feed = {label: x for label, x in zip(names, inputs) if x is not None}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), feed


def onnx_reference(operator, inputs, dtype, opset, **attributes):
    pytest.importorskip("onnx", reason="not run: onnx isn't installed; the oracles of this file's tests need none")
    from onnx.reference import ReferenceEvaluator

    model, feed = onnx_model(operator, inputs, dtype, opset, **attributes)
    return ReferenceEvaluator(model).run(None, feed)[0]


def onnxruntime(operator, inputs, dtype, opset):
    reason = "not run: onnxruntime isn't installed; the oracles of this file's tests need none"
    pytest.importorskip("onnx", reason=reason)
    runtime = pytest.importorskip("onnxruntime", reason=reason)
    model, feed = onnx_model(operator, inputs, dtype, opset)
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]
