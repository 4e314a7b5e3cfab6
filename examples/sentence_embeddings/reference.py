"""The same network in float64, written as plainly as possible, to check against.

One sentence at a time, so there is no padding and no mask; numpy's own float64
products; the C library's erf. It shares the checkpoint with minilm.py and no
other code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from checkpoint import Checkpoint

Array = npt.NDArray[np.float64]


def encode_float64(checkpoint: Checkpoint, sentences: Sequence[str]) -> Array:
    """Embed sentences: an (n, 384) float64 array of unit rows."""
    tensors = {k: v.astype(np.float64) for k, v in checkpoint.tensors.items()}
    rows = [_embed(checkpoint, tensors, ids) for ids in checkpoint.token_ids(sentences)]
    return np.array(rows).reshape(len(rows), checkpoint.config.hidden)


def _embed(checkpoint: Checkpoint, tensors: dict[str, Array], ids: list[int]) -> Array:
    config = checkpoint.config

    def linear(x: Array, name: str) -> Array:
        return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(axis=1, keepdims=True)
        scale = np.sqrt(x.var(axis=1, keepdims=True) + config.norm_eps)
        return centred / scale * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    x = norm(
        tensors["embeddings.word_embeddings.weight"][ids]
        + tensors["embeddings.position_embeddings.weight"][: len(ids)]
        + tensors["embeddings.token_type_embeddings.weight"][0],
        "embeddings.LayerNorm",
    )
    for i in range(config.layers):
        layer = f"encoder.layer.{i}"
        q = linear(x, f"{layer}.attention.self.query")
        k = linear(x, f"{layer}.attention.self.key")
        v = linear(x, f"{layer}.attention.self.value")
        attended = _attend(q, k, v, config.heads)
        x = norm(
            x + linear(attended, f"{layer}.attention.output.dense"),
            f"{layer}.attention.output.LayerNorm",
        )
        wide = _gelu(linear(x, f"{layer}.intermediate.dense"))
        x = norm(x + linear(wide, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    mean = x.mean(axis=0)
    return mean / np.linalg.norm(mean)


def _attend(q: Array, k: Array, v: Array, heads: int) -> Array:
    """Each head has its own columns of q, k and v, which are (T, hidden)."""
    size = q.shape[1] // heads
    out = np.empty_like(q)
    for head in range(heads):
        columns = slice(head * size, (head + 1) * size)
        scores = q[:, columns] @ k[:, columns].T / math.sqrt(size)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, columns] = p @ v[:, columns] / p.sum(axis=1, keepdims=True)
    return out


def _gelu(x: Array) -> Array:
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return 0.5 * x * (1.0 + erf(x * math.sqrt(0.5)))
