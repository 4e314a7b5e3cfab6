"""Inputs and the check of attention cases; the others go on to ``verify``.

``make_arrays`` and ``error_fraction`` have the names and the meaning that they have
there, so that whoever measures need not know which kind of case it has.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import verify
from benchmarks.attention_corpus import DOCUMENTS, AttentionCase, element
from benchmarks.corpus import WIDE, Case, Shape
from benchmarks.verify import Array, Arrays

# A reference is all rows of the scores up to this many of them. Above, it is every
# 13th row, so that the rows fall on all places of a register tile or a block.
_ALL_SCORES = 1 << 23
_EVERY_ROW = 13

# Q is drawn that wide for scores of a standard deviation of 2: some tens of keys then
# have most of the weight, as in a trained model. Were all weights alike, the results of
# many keys would be so near 0 that zeros might pass for them.
_SPREAD = 6.0

# How many standard deviations of rounding errors of D random signs a peer is granted.
_PEER_DEVIATIONS = 4


@dataclass(frozen=True)
class AttentionArrays(Arrays):
    """Operands of an attention: Q is ``a``, the new K ``b``, any mask ``c``."""

    v: Array
    past: tuple[Array, Array] | None

    @property
    def keys(self) -> Array:
        """Past and new K in one array."""
        return self.b[0] if self.past is None else np.concatenate([self.past[0], self.b[0]], -2)

    @property
    def values(self) -> Array:
        return self.v if self.past is None else np.concatenate([self.past[1], self.v], -2)


def in_reach(case: AttentionCase, rows: Any = None) -> Array:
    """Bool ``(rows, T)``: what causality and the window leave, as a mask would say it."""
    place = case.past + (np.arange(case.m) if rows is None else rows)[:, None]
    keys = np.arange(case.n)
    seen: Array = keys <= place if case.causal else np.ones((len(place), case.n), np.bool_)
    return seen & (keys > place - case.window) if case.window else seen


def make_mask(case: AttentionCase, dtype: str, rng: np.random.Generator) -> Array | None:
    """The mask of a case, bool or of the type of Q (the one type that all peers take)."""
    rows, keys = np.arange(case.m), np.arange(case.n)
    if case.mask == "padding":
        return np.asarray(keys < np.array(case.lengths)[:, None, None, None])
    if case.mask == "scattered":
        return np.asarray((rng.random((case.m, case.n)) < 0.9) | (rows[:, None] == keys))
    if case.mask == "documents":
        size = case.n // DOCUMENTS
        return np.asarray(rows[:, None] // size == keys // size)
    if case.mask == "alibi":
        slopes = 0.5 ** (8 * np.arange(1, case.heads + 1) / case.heads)
        distance = np.abs(rows[:, None] - keys)
        return np.asarray(-slopes[:, None, None] * distance, dtype)[None]
    return None


def make_arrays(case: Case, dtype: str) -> Arrays:
    """Operands of a case, the same in every process."""
    if not isinstance(case, AttentionCase):
        return verify.make_arrays(case, dtype)
    rng = np.random.default_rng(zlib.crc32(f"{case.name}/{dtype}".encode()))
    kind = element(dtype)
    drawn: Any = np.dtype(kind if kind in WIDE else "float32")

    def fill(shape: Shape, reach: float = 1.0) -> Array:
        values = rng.random(shape, dtype=drawn)
        values *= 2 * reach
        values -= reach
        return values.astype(kind, copy=False)

    q, k, v = fill(case.a_shape, _SPREAD), fill(case.b_shape), fill(case.b_shape)
    past = None
    if case.past:
        before = (*case.b_shape[:2], case.past, case.k)
        past = fill(before), fill(before)
    return AttentionArrays([q], [k], make_mask(case, kind, rng), dtype, v, past)


def split_heads(case: AttentionCase, array: Array, heads: int) -> Array:
    """``[B, H, L, D]`` of an array in the case's layout."""
    if not case.rank3:
        return array
    return array.reshape(*array.shape[:2], heads, -1).swapaxes(1, 2)


def error_fraction(case: Case, arrays: Arrays, results: Sequence[Array], *, strict: bool) -> float:
    """Largest error as a fraction of what rounding alone may cause.

    With weights w and a relative error e of each, y is off by no more than
    ``w e |v| + |y| w e``, and the sums of numerator and denominator add ``2 T u w |v|``.
    e comes from the scores: a product of D terms (here bounded by the norms of q and
    k), the bias, the exponent's argument.  BF16 kernels round weights to bfloat16, so
    this is part of e there.  Peers may round more to a half type than gemmkit does,
    which promises sums and a softmax in float32: scores, weights, q and k times the
    root of the scale, and partial results.

    Where only some rows have a reference, the others still have to lie within V.
    """
    if not isinstance(case, AttentionCase):
        return verify.error_fraction(case, arrays, results, strict=strict)
    assert isinstance(arrays, AttentionArrays)
    kind = element(arrays.dtype)
    if len(results) != 1 or results[0].shape != case.a_shape or str(results[0].dtype) != kind:
        return float("inf")
    got = split_heads(case, results[0], case.heads)
    q = split_heads(case, arrays.a[0], case.heads)
    k, v = (split_heads(case, array, case.kv_heads) for array in (arrays.keys, arrays.values))
    few = case.batch * case.heads * case.m * case.n <= _ALL_SCORES
    rows = np.unique(np.append(np.arange(0, case.m, 1 if few else _EVERY_ROW), case.m - 1))
    reach = in_reach(case, rows)
    bias: Array | None = None
    if arrays.c is not None:
        bias = np.broadcast_to(arrays.c, (case.batch, case.heads, case.m, case.n))
    worst = 0.0
    for batch in range(case.batch):
        for head in range(case.heads):
            at = batch, head // (case.heads // case.kv_heads)
            values = v[at].astype(np.float64)
            all_rows = got[batch, head].astype(np.float64)
            if not np.all(np.abs(all_rows) <= 1.02 * np.abs(values).max()):  # a NaN as well
                return float("inf")
            want, bound = _reference(
                case, kind, strict, q[batch, head][rows].astype(np.float64), k[at].astype(np.float64), values,
                reach, None if bias is None else bias[batch, head][rows],
            )
            worst = max(worst, float(np.max(np.abs(all_rows[rows] - want) / bound, initial=0.0)))
    return worst


def _reference(
    case: AttentionCase, kind: str, strict: bool, q: Array, k: Array, v: Array, reach: Array, bias: Array | None
) -> tuple[Array, Array]:
    """Some rows of one head in float64, and what each value may be off by."""
    unit, _ = verify.rounding(kind if kind in WIDE else "float32")
    half, absolute = verify.rounding(kind)
    scale = case.k ** -0.5
    scores = q @ k.T
    scores *= scale
    norms = np.linalg.norm(q, axis=-1)[:, None] * np.linalg.norm(k, axis=-1) * scale
    size = np.abs(scores)
    error = (case.k + 8) * unit * norms
    if bias is not None and bias.dtype == np.bool_:
        reach = reach & bias
    elif bias is not None:
        added = bias.astype(np.float64)
        scores += added
        size += np.abs(added)
    scores[~reach] = -np.inf
    size[~reach] = 0.0
    top = scores.max(-1, keepdims=True)
    error += unit * (4 * (size + np.abs(top)) + 16)
    if kind == "bfloat16":
        error += half
    if not strict and kind not in WIDE:
        error += half * (verify.PEER_ROUNDINGS * (1 + size) + _PEER_DEVIATIONS * norms * case.k ** -0.5)
    weights = np.exp(scores - top)
    weights /= weights.sum(-1, keepdims=True)
    want: Array = weights @ v
    sums = weights @ np.abs(v)
    error *= weights
    bound: Array = error @ np.abs(v) + np.abs(want) * error.sum(-1, keepdims=True)
    bound += (2 * case.n + 16) * unit * sums
    if kind not in WIDE:
        bound += half * (np.abs(want) + bound) + absolute
        if not strict:
            bound += verify.PEER_ROUNDINGS * half * sums
    return want, np.maximum(bound, np.finfo(np.float64).tiny)
