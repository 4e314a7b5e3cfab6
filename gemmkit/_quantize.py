"""From floats to 8 and 4 bits and back, as ONNX QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear define it.

Only numpy: these passes are bound by memory, and products of quantized operands requantize in their epilogue.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from gemmkit._packed import PackedInt4

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_FLOATS = (_F32, _F64, np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
_SCALES = (_F32, np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
_INT32 = np.dtype(np.int32)


class _Range(NamedTuple):
    low: int
    high: int
    mid: int  # the zero point of symmetric quantization


_INTS = {
    np.dtype(np.int8): _Range(-128, 127, 0),
    np.dtype(np.uint8): _Range(0, 255, 128),
    np.dtype(ml_dtypes.int4): _Range(-8, 7, 0),
    np.dtype(ml_dtypes.uint4): _Range(0, 15, 8),
}
_FLOAT8 = {
    np.dtype(dtype): float(ml_dtypes.finfo(dtype).max)
    for dtype in (
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
    )
}

_SMALLEST_NORMAL = np.float32(2.0**-126)
_SMALLEST_SUBNORMAL = np.float32(2.0**-149)


def quantize(
    x: ArrayLike, dtype: DTypeLike, *, axis: int | None = None, symmetric: bool = False
) -> tuple[NDArray[Any], Any, Any]:
    """Quantize floats, with the scale and the zero point that their range asks for.

    Parameters
    ----------
    x : array_like
        float32, float64, float16 or ml_dtypes' bfloat16; finite.  Any shape and strides.
    dtype : dtype
        int8, uint8, or ml_dtypes' int4, uint4, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz.
    axis : int, optional
        One scale and zero point for each index along this axis, as ONNX's `axis`: 1 or -1 for the columns of a weight
        (K, N).  By default one for all of `x`.
    symmetric : bool
        Zero maps to 0, in uint8 to 128 and in uint4 to 8, and the scale is ``max|x| / 127``, with 4 bits
        ``max|x| / 7``.  float8 is always symmetric: ``max|x|`` becomes the largest finite value.

    Returns
    -------
    q : ndarray
        Of `dtype` and `x`'s shape, laid out as `x`.
    scale : float32 scalar, or ndarray of shape (x.shape[axis],)
    zero_point : scalar or ndarray
        Of `dtype`, in the form of `scale`.

    Raises
    ------
    ValueError
        NaN or infinity in `x`, an `x` beyond any float32 scale, an `axis` that `x` hasn't.
    TypeError
        Another dtype; an `axis` that is no integer.

    Notes
    -----
    The range always includes 0.  With least and largest value ``min`` and ``max`` of it, and qmin and qmax of `dtype`::

        scale = (max - min) / (qmax - qmin)
        zero_point = saturate(qmin - min / scale)
        q = saturate(round(x / scale) + zero_point)

    rounded to nearest even, in float32, or float64 for a float64 `x`; so q is ONNX QuantizeLinear's for this scale and
    zero point.  A range of nothing but zeros has scale 1 and the zero point 0 (of symmetric uint8 128, of uint4 8).  No
    scale is below the smallest normal float32.
    """
    x = np.asarray(x)
    if x.dtype.newbyteorder("=") not in _FLOATS:
        raise TypeError(f"x: dtype {x.dtype} is not supported; expected one of {_names(_FLOATS)}")
    return _quantize(x, _dtype(dtype, (*_INTS, *_FLOAT8)), _axis(axis, x.shape), symmetric, _SMALLEST_NORMAL)


def dequantize(
    q: ArrayLike | PackedInt4,
    scale: ArrayLike,
    zero_point: ArrayLike | None = None,
    *,
    axis: int | None = None,
    dtype: DTypeLike = np.float32,
) -> NDArray[Any]:
    """(q - zero_point) * scale, as ONNX DequantizeLinear defines it.

    Parameters
    ----------
    q : array_like or PackedInt4
        Every type that `quantize` makes, or int32.
    scale : array_like or float
        float32, float16 or bfloat16; a Python float is taken as float32.  Shape () or (1,), with an `axis` also
        (q.shape[axis],).
    zero_point : array_like or int, optional
        Of `q`'s dtype (a Python integer takes it), in the same shapes; by default 0.  int32 has no other.
    axis : int, optional
        The axis that a `scale` or `zero_point` with several elements belongs to.
    dtype : dtype
        float32, float64, float16 or bfloat16.

    Returns
    -------
    ndarray
        Of `dtype` and `q`'s shape, laid out as `q`.

    Raises
    ------
    ValueError
        A `scale` or `zero_point` of another shape, an integer `zero_point` that `q`'s dtype can't hold, one that is not
        0 for int32, an `axis` that `q` hasn't.
    TypeError
        Another dtype; an `axis` that is no integer.

    Notes
    -----
    The difference and the product are in float32, rounded once more to a float16 or bfloat16 result.  A float64 result
    is computed in float64, exactly unless `q` is int32.
    """
    codes = q.dtype if isinstance(q, PackedInt4) else None
    x = q.unpack() if isinstance(q, PackedInt4) else np.asarray(q)
    codes = codes or x.dtype.newbyteorder("=")
    known = (*_INTS, *_FLOAT8, _INT32)
    if codes not in known:
        raise TypeError(f"q: dtype {x.dtype} is not supported; expected PackedInt4 or one of {_names(known)}")
    result = _dtype(dtype, _FLOATS)
    work = _F64 if result == _F64 else _F32
    along = _axis(axis, x.shape)
    factor = _parameter(_scale(scale), "scale", along, x.shape)
    shift = _parameter(_zero_point(zero_point, codes), "zero_point", along, x.shape)
    with np.errstate(all="ignore"):  # float8 has NaN and may have infinity; float16 overflows to it
        values = x.astype(work)
        if zero_point is not None and codes != _INT32:
            np.subtract(values, shift.astype(work), out=values)
        np.multiply(values, factor.astype(work), out=values)
        return values.astype(result, copy=False)


def dynamic_quantize_linear(x: ArrayLike) -> tuple[NDArray[np.uint8], np.float32, np.uint8]:
    """Quantize to uint8 by the range of the values, as ONNX DynamicQuantizeLinear (opset 11) defines it.

    Parameters
    ----------
    x : array_like
        float32, finite.  Any shape and strides.

    Returns
    -------
    y : ndarray of uint8
        In `x`'s shape, laid out as `x`.
    y_scale : float32
    y_zero_point : uint8

    Raises
    ------
    ValueError
        NaN or infinity in `x`.
    TypeError
        Another dtype.

    Notes
    -----
    The same bits as onnxruntime's, all in float32: the formulas of `quantize`, with subnormal scales too.  Where ONNX
    says nothing: an `x` of nothing but zeros, or empty, has scale 1 and zero point 0, as in onnxruntime (ONNX's
    reference has 1 / 255); a scale that would underflow to 0 is the smallest subnormal; a ``max - min`` that overflows
    is computed in float64.
    """
    x = np.asarray(x)
    if x.dtype.newbyteorder("=") != _F32:
        raise TypeError(f"x: expected dtype float32, got {x.dtype}")
    return _quantize(x, np.dtype(np.uint8), None, False, _SMALLEST_SUBNORMAL)


def _quantize(
    x: NDArray[Any], dtype: np.dtype[Any], axis: int | None, symmetric: bool, least: np.float32
) -> tuple[NDArray[Any], Any, Any]:
    """`quantize` with checked arguments; `least` is the smallest scale."""
    values = x.astype(_F64 if x.dtype.newbyteorder("=") == _F64 else _F32, copy=False)
    over = None if axis is None else tuple(i for i in range(x.ndim) if i != axis)
    with np.errstate(all="ignore"):
        # 0 as the initial value includes it in the range, and is the range of nothing.
        low = np.asarray(np.min(values, axis=over, initial=0))
        high = np.asarray(np.max(values, axis=over, initial=0))
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError(f"x: expected finite values, got NaN or infinity in an array of shape {x.shape}")
        if dtype in _FLOAT8:
            scale = np.maximum(high, -low) / values.dtype.type(_FLOAT8[dtype])
        elif symmetric:
            scale = np.maximum(high, -low) / values.dtype.type(_INTS[dtype].high - _INTS[dtype].mid)
        else:
            steps = values.dtype.type(_INTS[dtype].high - _INTS[dtype].low)
            wide = (high.astype(_F64) - low) / steps
            span = high - low
            scale = np.where(np.isfinite(span), span / steps, wide)
        scale = np.asarray(scale, _F32)
        if not np.isfinite(scale).all():
            raise ValueError(f"x: a range of {low.min()} to {high.max()} needs a scale beyond float32")
        zeros = low == high
        scale = np.where(zeros, np.float32(1), np.maximum(scale, least))

        if dtype in _FLOAT8:
            zero_point = np.zeros(scale.shape, dtype)
        elif symmetric:
            zero_point = np.full(scale.shape, _INTS[dtype].mid, np.int16).astype(dtype)
        else:
            # Only a subnormal scale, of few bits, can leave the range.
            shift = np.clip(_INTS[dtype].low - low / scale, _INTS[dtype].low, _INTS[dtype].high)
            zero_point = np.where(zeros, 0, np.rint(shift)).astype(np.int16).astype(dtype)

        out = np.empty_like(values) if values is x else values
        np.divide(values, _along(scale, axis, x.ndim), out=out)
        if dtype in _FLOAT8:
            # Nothing to saturate: the scale is within 2 ** -24 of the exact one, so the largest quotient rounds to the
            # largest finite value.
            q = _single(out).astype(dtype)
        else:
            np.rint(out, out=out)
            np.add(out, _along(zero_point.astype(out.dtype), axis, x.ndim), out=out)
            np.clip(out, _INTS[dtype].low, _INTS[dtype].high, out=out)
            q = out.astype(np.uint8 if _INTS[dtype].low == 0 else np.int8).astype(dtype, copy=False)
    return q, scale[()], zero_point[()]


def _single(x: NDArray[Any]) -> NDArray[Any]:
    """float32 for a cast to float8, which rounds as if from x itself; a float64 x is overwritten.

    ml_dtypes casts float64 by way of float32, where a value next to a tie becomes one.  Rounding to odd keeps it apart:
    what a float32 lacks of the significand leaves a one in the last place.
    """
    if x.dtype == _F64:
        bits = x.view(np.uint64)
        rest = np.uint64(2**29 - 1)
        sticky = bits & rest
        sticky += rest  # carries into float32's last place unless all are zero
        bits |= sticky
        bits &= ~rest
    return x.astype(_F32, copy=False)


def _names(dtypes: Any) -> str:
    return ", ".join(dtype.name for dtype in dtypes)


def _dtype(dtype: DTypeLike, known: tuple[np.dtype[Any], ...]) -> np.dtype[Any]:
    if dtype is None:  # numpy would take it for float64
        raise TypeError(f"dtype: expected one of {_names(known)}, got None")
    try:
        found = np.dtype(dtype).newbyteorder("=")
    except TypeError as error:
        raise TypeError(f"dtype: {error}") from None
    if found not in known:
        raise TypeError(f"dtype: {found} is not supported; expected one of {_names(known)}")
    return found


def _axis(axis: Any, shape: tuple[int, ...]) -> int | None:
    """An axis of an array, counted from the front."""
    if axis is None:
        return None
    if isinstance(axis, (bool, np.bool_)) or not hasattr(axis, "__index__"):
        raise TypeError(f"axis: expected an integer or None, got {type(axis).__name__}")
    index = operator.index(axis)
    if not -len(shape) <= index < len(shape):
        raise ValueError(f"axis: an array of shape {shape} has no axis {index}")
    return index % len(shape)


def _along(x: NDArray[Any], axis: int | None, ndim: int) -> NDArray[Any]:
    """A vector in the shape that broadcasts along an axis."""
    return x if axis is None else x.reshape([-1 if i == axis else 1 for i in range(ndim)])


def _parameter(x: NDArray[Any], name: str, axis: int | None, shape: tuple[int, ...]) -> NDArray[Any]:
    """A scale or zero point in a shape that broadcasts to `shape`."""
    if x.shape in ((), (1,)):
        return x.reshape(())
    expected = "() or (1,)" if axis is None else f"(), (1,) or ({shape[axis]},) for axis {axis} of {shape}"
    if axis is None or x.shape != (shape[axis],):
        raise ValueError(f"{name}: expected shape {expected}, got {x.shape}")
    return _along(x, axis, len(shape))


def _is_number(x: Any, kinds: tuple[type, ...]) -> bool:
    """Python's numbers take a dtype; numpy's scalars have one of their own."""
    return isinstance(x, kinds) and not isinstance(x, (bool, np.generic))


def _scale(scale: Any) -> NDArray[Any]:
    if _is_number(scale, (int, float)):
        return np.asarray(scale, _F32)
    found = np.asarray(scale)
    if found.dtype.newbyteorder("=") not in _SCALES:
        raise TypeError(f"scale: dtype {found.dtype} is not supported; expected one of {_names(_SCALES)}")
    return found


def _zero_point(zero_point: Any, codes: np.dtype[Any]) -> NDArray[Any]:
    if zero_point is None:
        return np.zeros((), codes)
    if _is_number(zero_point, (int,)):
        if codes in _INTS:
            low, high = _INTS[codes].low, _INTS[codes].high
            if not low <= zero_point <= high:
                raise ValueError(f"zero_point: {zero_point} is not in the range of {codes}, {low} to {high}")
        elif codes in _FLOAT8 and abs(zero_point) > _FLOAT8[codes]:
            raise ValueError(f"zero_point: {zero_point} is beyond the largest {codes}, {_FLOAT8[codes]:g}")
        elif codes == _INT32 and zero_point != 0:
            raise ValueError(f"zero_point: expected 0 or None for an int32 q, got {zero_point}")
        found = np.asarray(zero_point).astype(codes)
        if codes in _FLOAT8 and float(found) != zero_point:
            raise ValueError(f"zero_point: {zero_point} is not exact in {codes}")
        return found
    found = np.asarray(zero_point)
    if found.dtype.newbyteorder("=") != codes:
        raise TypeError(f"zero_point: expected q's dtype {codes}, got {found.dtype}")
    if codes == _INT32 and found.any():
        raise ValueError("zero_point: expected 0 or None for an int32 q, got other values")
    return found
