"""Inputs for a case, and the check of a result against a wider reference.

A fast wrong product is worth nothing, so no time is reported for a backend
before its first result has passed this check.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # also gives numpy the names "bfloat16" and "float8_..."
import numpy as np
import numpy.typing as npt

from benchmarks.corpus import FLOAT8, INTEGERS, MODES, WIDE, Case, Mode, Shape

Array = npt.NDArray[Any]

# numpy multiplies long doubles without BLAS, at about one GFLOP/s; above this
# many operations the reference of a float64 product is float64 itself.
_LONGDOUBLE_FLOPS = 20_000_000

# Roundings to the type of the result that a peer is granted on top: as many as
# numpy makes where it multiplies by alpha and by beta and adds C, one at a time.
PEER_ROUNDINGS = 3


@dataclass(frozen=True)
class Arrays:
    """Operands of one case: one pair, or a list of pairs for a grouped case."""

    a: list[Array]
    b: list[Array]
    c: Array | None
    dtype: str  # as it was asked for: that of the arrays, or the name of a mode


def make_arrays(case: Case, dtype: str) -> Arrays:
    """Operands of a case, the same in every process.

    The seed comes from the name, so that each worker can make its own operands
    and none has to be sent through a pipe.
    """
    rng = np.random.default_rng(zlib.crc32(f"{case.name}/{dtype}".encode()))

    def fill(shape: Shape, dtype: str = dtype, bits: int = 0) -> Array:
        if np.dtype(dtype).kind in "iu":
            # All values: a product that wraps or saturates elsewhere shows.
            limits = np.iinfo(dtype)
            low, high = int(limits.min), int(limits.max)
            if bits:
                low, high = -(1 << bits - 1), (1 << bits - 1) - 1
            return rng.integers(low, high, shape, dtype, endpoint=True)
        drawn: Any = np.dtype(dtype if dtype in WIDE else "float32")
        return np.asarray(rng.random(shape, dtype=drawn) * 2 - 1, dtype=dtype)

    if dtype in MODES:
        mode = MODES[dtype]
        return Arrays(
            [fill(case.a_shape, mode.a)],
            [fill(case.b_shape, mode.b, 4 if mode.bits == 4 else 0)],
            None, dtype,
        )
    if case.group:
        return Arrays(
            [fill((m, k)) for m, _, k in case.group],
            [fill((k, n)) for _, n, k in case.group],
            None, dtype,
        )
    c = None if case.bias_shape is None else fill(case.bias_shape)
    return Arrays([fill(case.a_shape)], [fill(case.b_shape)], c, dtype)


def transposed(array: Array, swap: bool) -> Array:
    """A view with the last two axes exchanged, if ``swap``."""
    return array.swapaxes(-1, -2) if swap else array


def result_dtype(dtype: str) -> np.dtype[Any]:
    """Type of a product of two ``dtype`` arrays: float32 for the float8 types."""
    if dtype in MODES:
        return np.dtype(MODES[dtype].y)
    return np.dtype("float32" if dtype in FLOAT8 else dtype)


def _peer_dtypes(dtype: str) -> set[str]:
    """Result types a peer may choose: gemmkit's, or what it widened to."""
    if dtype in WIDE:
        return {dtype}
    return {str(result_dtype(dtype)), "float32"} | (
        {"bfloat16"} if dtype in FLOAT8 else set()
    )


def rounding(dtype: Any) -> tuple[float, float]:
    """Largest relative error of one rounding to ``dtype``, and absolute near 0."""
    limits: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return float(limits.eps) / 2, float(limits.smallest_subnormal) / 2


def error_fraction(
    case: Case, arrays: Arrays, results: Sequence[Array], *, strict: bool
) -> float:
    """Largest error as a fraction of what rounding alone may cause.

    A dot product of length K summed in any order is off by at most about
    ``K * u * (|a| @ |b|)``; a few more roundings come from alpha, beta and C.
    A fraction above 1 is a wrong result, not an unlucky one: typical errors
    grow as the square root of K and stay far below the bound.  Infinity means a
    wrong shape, a wrong dtype, or a NaN.

    ``u`` is that of the type summed in: float32 for the narrow types, whose sums
    are then rounded once to the type of the result.  That is all a ``strict``
    result may be off by, and only gemmkit's own dtype is accepted of it.  Other
    libraries may round the steps around alpha and C, or partial sums, to a half
    type as well: they get ``PEER_ROUNDINGS`` units of it, relative to the
    sums of absolute values.  That number does not grow with K, since a bound
    which did would soon let zeros pass for a result.

    Above a size limit a float64 result has only a float64 reference, whose own
    rounding is then part of the fraction (and numpy's is its own reference).

    Products of integers have no such bound: see ``_integer_fraction``.
    """
    dtype = arrays.dtype
    if dtype in MODES or dtype in INTEGERS:
        if len(results) != len(arrays.a):
            return float("inf")
        return max(
            _integer_fraction(case, arrays, index, got, strict)
            for index, got in enumerate(results)
        )
    long = dtype == "float64" and case.flops <= _LONGDOUBLE_FLOPS
    wide: Any = np.longdouble if long else np.float64
    unit, _ = rounding(dtype if dtype in WIDE else "float32")
    accepted = {str(result_dtype(dtype))} if strict else _peer_dtypes(dtype)
    if len(results) != len(arrays.a):
        return float("inf")
    worst = 0.0
    for a, b, got in zip(arrays.a, arrays.b, results):
        left = transposed(a, case.trans_a).astype(wide)
        right = transposed(b, case.trans_b).astype(wide)
        want = np.multiply(np.matmul(left, right), case.alpha)
        terms = np.multiply(np.matmul(np.abs(left), np.abs(right)), abs(case.alpha))
        bound = (left.shape[-1] + 8) * unit * terms
        if arrays.c is not None:
            addend: Array = np.multiply(arrays.c.astype(wide), case.beta)
            want = want + addend
            terms = terms + np.abs(addend)
            bound = bound + 8 * unit * np.abs(addend)
        if got.shape != want.shape or str(got.dtype) not in accepted:
            return float("inf")
        if str(got.dtype) not in WIDE:
            relative, absolute = rounding(got.dtype)
            bound = bound + relative * (np.abs(want) + bound) + absolute
            if not strict:
                bound = bound + PEER_ROUNDINGS * relative * terms
        error = np.abs(got.astype(wide) - want)
        tiny = np.finfo(wide).tiny
        fraction = float(np.max(error / np.maximum(bound, tiny), initial=0.0))
        worst = max(worst, fraction) if fraction == fraction else float("inf")
    return worst


@dataclass(frozen=True)
class Quantization:
    """Scales and zero points of a qlinear case, as every backend is given them."""

    a_scale: np.float32
    a_zero: int
    b_scale: np.float32 | Array  # one, or one a column
    b_zero: int
    y_scale: np.float32
    y_zero: int

    @property
    def multiplier(self) -> Any:
        """What the sums are multiplied by, in float64."""
        scale = np.float64(self.a_scale) * np.asarray(self.b_scale, np.float64)
        return scale / np.float64(self.y_scale)


def quantization(case: Case, mode: Mode) -> Quantization:
    """Parameters that use most of the result's range and saturate a little of it.

    A signed B is symmetric, as weights are and as torch requires; the others are
    off the middle of their types.
    """
    deviation = 74.0 ** 2 * max(1, case.k) ** 0.5  # of a sum of uniform bytes
    a_scale, b_scale = np.float32(0.02), np.float32(0.01)
    y_scale = np.float32(float(a_scale) * float(b_scale) * 2.5 * deviation / 127)
    columns = np.linspace(0.5, 1.5, case.n, dtype=np.float32) * b_scale
    return Quantization(
        a_scale, 113 if mode.a == "uint8" else -7,
        columns if mode.columns else b_scale, 131 if mode.b == "uint8" else 0,
        y_scale, 121 if mode.y == "uint8" else 5,
    )


def _wrapped_product(a: Array, b: Array) -> Array:
    """``a @ b`` of equal integer types modulo their width, through float64.

    Digits of 16 bits make sums of at most K * 2^32, exact for any K here, and
    BLAS is a hundred times faster than numpy's loops over integers.
    """
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    digits = a.dtype.itemsize // 2

    def digit(array: Array, index: int) -> Array:
        return ((array.view(unsigned) >> (16 * index)) & 0xFFFF).astype(np.float64)

    total: Any = 0
    for i in range(digits):
        for j in range(digits - i):  # what lies above the width is lost
            part = np.matmul(digit(a, i), digit(b, j)).astype(np.uint64)
            with np.errstate(over="ignore"):  # numpy warns where it is a scalar
                total = total + (part << np.uint64(16 * (i + j)))
    return np.asarray(total).astype(unsigned).view(a.dtype)


def _integer_fraction(
    case: Case, arrays: Arrays, index: int, got: Array, strict: bool
) -> float:
    """0 where a result is exact, else infinity; a fraction for roundings.

    A requantized value is off by half a unit at most, and by what roundings add to
    that: of float64 factors in gemmkit, of float32 sums in some peers.  So it may
    be the other neighbour next to a tie only.  A float result of 4-bit values is a
    peer's that rounds A to 8 bits in blocks: half a step of 2/127 of the largest.
    """
    a = transposed(arrays.a[index], case.trans_a)
    b = transposed(arrays.b[index], case.trans_b)
    mode = MODES.get(arrays.dtype)
    if mode is None:
        kind: Any = a.dtype.type
        want: Any = _wrapped_product(a, b)
        if case.alpha != 1.0:
            want = want * kind(case.alpha)
        if arrays.c is not None:
            want = want + arrays.c * kind(case.beta)
        return _exact(got, want)
    zeros = quantization(case, mode) if mode.qlinear else None
    # Bytes: exact up to K of 2^37.
    left = a.astype(np.float64) - (zeros.a_zero if zeros else 0)
    right = b.astype(np.float64) - (zeros.b_zero if zeros else 0)
    sums = np.matmul(left, right)
    if zeros is None:
        if mode.bits == 4 and not strict and got.dtype.kind == "f":
            if got.shape != sums.shape:
                return float("inf")
            half = np.max(np.abs(left), initial=0.0) / 254
            error = np.abs(got - sums) / (np.abs(right).sum(-2) * half + 1)
            return _worst(error)
        return _exact(got, np.asarray(sums.astype(np.int64).astype(np.int32)))
    if got.shape != sums.shape or str(got.dtype) != mode.y:
        return float("inf")
    real = sums * zeros.multiplier
    limits = np.iinfo(mode.y)
    clipped = np.clip(real + zeros.y_zero, int(limits.min), int(limits.max))
    slack = np.abs(real) * 2.0 ** (-22 if strict else -21)
    bound = 0.5 + slack + (0.0 if strict else 2.0 ** -10)
    return _worst(np.abs(got.astype(np.float64) - clipped) / bound)


def _worst(fractions: Any) -> float:
    worst = float(np.max(fractions, initial=0.0))
    return worst if worst == worst else float("inf")


def _exact(got: Array, want: Array) -> float:
    same = got.shape == want.shape and got.dtype == want.dtype
    return 0.0 if same and bool(np.array_equal(got, want)) else float("inf")
