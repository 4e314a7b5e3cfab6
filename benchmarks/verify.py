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

from benchmarks.corpus import FLOAT8, WIDE, Case, Shape

Array = npt.NDArray[Any]

# numpy multiplies long doubles without BLAS, at about one GFLOP/s; above this
# many operations the reference of a float64 product is float64 itself.
_LONGDOUBLE_FLOPS = 20_000_000

# Roundings to the type of the result that a peer is granted on top: as many as
# numpy makes where it multiplies by alpha and by beta and adds C, one at a time.
_PEER_ROUNDINGS = 3


@dataclass(frozen=True)
class Arrays:
    """Operands of one case: one pair, or a list of pairs for a grouped case."""

    a: list[Array]
    b: list[Array]
    c: Array | None


def make_arrays(case: Case, dtype: str) -> Arrays:
    """Operands of a case, the same in every process.

    The seed comes from the name, so that each worker can make its own operands
    and none has to be sent through a pipe.
    """
    rng = np.random.default_rng(zlib.crc32(f"{case.name}/{dtype}".encode()))

    def fill(shape: Shape) -> Array:
        drawn: Any = np.dtype(dtype if dtype in WIDE else "float32")
        return np.asarray(rng.random(shape, dtype=drawn) * 2 - 1, dtype=dtype)

    if case.group:
        return Arrays(
            [fill((m, k)) for m, _, k in case.group],
            [fill((k, n)) for _, n, k in case.group],
            None,
        )
    c = None if case.bias_shape is None else fill(case.bias_shape)
    return Arrays([fill(case.a_shape)], [fill(case.b_shape)], c)


def transposed(array: Array, swap: bool) -> Array:
    """A view with the last two axes exchanged, if ``swap``."""
    return array.swapaxes(-1, -2) if swap else array


def result_dtype(dtype: str) -> np.dtype[Any]:
    """Type of a product of two ``dtype`` arrays: float32 for the float8 types."""
    return np.dtype("float32" if dtype in FLOAT8 else dtype)


def _peer_dtypes(dtype: str) -> set[str]:
    """Result types a peer may choose: gemmkit's, or what it widened to."""
    if dtype in WIDE:
        return {dtype}
    return {str(result_dtype(dtype)), "float32"} | (
        {"bfloat16"} if dtype in FLOAT8 else set()
    )


def _rounding(dtype: Any) -> tuple[float, float]:
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
    type as well: they get ``_PEER_ROUNDINGS`` units of it, relative to the
    sums of absolute values.  That number does not grow with K, since a bound
    which did would soon let zeros pass for a result.

    Above a size limit a float64 result has only a float64 reference, whose own
    rounding is then part of the fraction (and numpy's is its own reference).
    """
    dtype = str(arrays.a[0].dtype)
    long = dtype == "float64" and case.flops <= _LONGDOUBLE_FLOPS
    wide: Any = np.longdouble if long else np.float64
    unit, _ = _rounding(dtype if dtype in WIDE else "float32")
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
            relative, absolute = _rounding(got.dtype)
            bound = bound + relative * (np.abs(want) + bound) + absolute
            if not strict:
                bound = bound + _PEER_ROUNDINGS * relative * terms
        error = np.abs(got.astype(wide) - want)
        tiny = np.finfo(wide).tiny
        fraction = float(np.max(error / np.maximum(bound, tiny), initial=0.0))
        worst = max(worst, fraction) if fraction == fraction else float("inf")
    return worst
