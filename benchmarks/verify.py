"""Inputs for a case, and the check of a result against a wider reference.

A fast wrong product is worth nothing, so no time is reported for a backend
before its first result has passed this check.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.corpus import Case, Shape

Array = npt.NDArray[Any]

# numpy multiplies long doubles without BLAS, at about one GFLOP/s; above this
# many operations the reference of a float64 product is float64 itself.
_LONGDOUBLE_FLOPS = 20_000_000


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
        kind: Any = np.dtype(dtype)
        return np.asarray(rng.random(shape, dtype=kind) * 2 - 1, dtype=kind)

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


def error_fraction(case: Case, arrays: Arrays, results: Sequence[Array]) -> float:
    """Largest error as a fraction of what rounding alone may cause.

    A dot product of length K summed in any order is off by at most about
    ``K * u * (|a| @ |b|)``; a few more roundings come from alpha, beta and C.
    A fraction above 1 is a wrong result, not an unlucky one: typical errors
    grow as the square root of K and stay far below the bound.  Infinity means a
    wrong shape, a wrong dtype, or a NaN.

    Above a size limit a float64 result has only a float64 reference, whose own
    rounding is then part of the fraction (and numpy's is its own reference).
    """
    dtype = arrays.a[0].dtype
    narrow = dtype == np.float64 and case.flops <= _LONGDOUBLE_FLOPS
    wide = np.longdouble if narrow else np.float64
    unit = float(np.finfo(dtype).eps) / 2
    if len(results) != len(arrays.a):
        return float("inf")
    worst = 0.0
    for a, b, got in zip(arrays.a, arrays.b, results):
        left = transposed(a, case.trans_a).astype(wide)
        right = transposed(b, case.trans_b).astype(wide)
        want = np.multiply(np.matmul(left, right), case.alpha)
        factor = (left.shape[-1] + 8) * unit * abs(case.alpha)
        bound = np.multiply(np.matmul(np.abs(left), np.abs(right)), factor)
        if arrays.c is not None:
            addend: Array = np.multiply(arrays.c.astype(wide), case.beta)
            want = want + addend
            bound = bound + 8 * unit * np.abs(addend)
        if got.shape != want.shape or got.dtype != dtype:
            return float("inf")
        error = np.abs(got.astype(wide) - want)
        tiny = np.finfo(wide).tiny
        fraction = float(np.max(error / np.maximum(bound, tiny), initial=0.0))
        worst = max(worst, fraction) if fraction == fraction else float("inf")
    return worst
