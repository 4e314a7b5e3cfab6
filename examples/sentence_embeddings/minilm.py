"""MiniLM-L6 sentence embeddings with every matrix product, and attention, in gemmkit."""

from __future__ import annotations

from collections.abc import Sequence

import gemmkit
import numpy as np
from checkpoint import Checkpoint, load_checkpoint
from elementwise import Array, gelu_rows, layer_norm, mean_pool, unit_rows
from linear import FLOAT32, Precision, linear


class LayerNorm:
    def __init__(self, weight: Array, bias: Array, eps: float) -> None:
        self.weight = weight
        self.bias = bias
        self.eps = eps

    def __call__(self, x: Array) -> Array:
        return layer_norm(x, self.weight, self.bias, self.eps)


class Block:
    """One transformer layer; hidden states are rank 2, (B * T, hidden)."""

    def __init__(self, checkpoint: Checkpoint, index: int, precision: Precision) -> None:
        tensors = checkpoint.tensors
        prefix = f"encoder.layer.{index}."

        def pair(name: str) -> tuple[Array, Array]:
            return tensors[f"{prefix}{name}.weight"], tensors[f"{prefix}{name}.bias"]

        # Q, K and V read the same input: one product with N = 3 * hidden
        # keeps the kernels busier than three with N = hidden.
        parts = [pair(f"attention.self.{part}") for part in ("query", "key", "value")]
        self.qkv = linear(
            np.concatenate([weight for weight, _ in parts]),
            np.concatenate([bias for _, bias in parts]),
            precision,
            narrow=True,
        )
        eps = checkpoint.config.norm_eps
        self.attention_out = linear(*pair("attention.output.dense"), precision)
        self.attention_norm = LayerNorm(*pair("attention.output.LayerNorm"), eps)
        self.widen = linear(*pair("intermediate.dense"), precision)
        self.narrow = linear(*pair("output.dense"), precision)
        self.output_norm = LayerNorm(*pair("output.LayerNorm"), eps)
        self.heads = checkpoint.config.heads

    def __call__(self, x: Array, mask: Array) -> Array:
        x = self.attention_norm(x + self.attention_out(self._attend(x, mask)))
        return self.output_norm(x + self.narrow(gelu_rows(self.widen(x))))

    def _attend(self, x: Array, mask: Array) -> Array:
        """Attention of every head; mask is (B, T), true at tokens, so that none sees padding."""
        batch, tokens = mask.shape
        # (B, T, 3, hidden): Q, K and V are strided views, whose last axis gemmkit.attention
        # takes for heads beside each other. It reads them where they lie.
        q, k, v = np.moveaxis(self.qkv(x).reshape(batch, tokens, 3, -1), 2, 0)
        attended = gemmkit.attention(
            q, k, v, mask[:, None, None, :], q_num_heads=self.heads, kv_num_heads=self.heads
        )
        merged: Array = attended.reshape(batch * tokens, -1)
        return merged


class MiniLM:
    """The network all-MiniLM-L6-v2: text in, unit vectors of length 384 out.

    `dtype` is the type of the products' weights: float32, bfloat16, float16,
    float8_e4m3fn or int8. Everything else (embedding tables, layer norms,
    biases, and the result) is float32.
    """

    def __init__(self, checkpoint: Checkpoint | None = None, dtype: str = "float32") -> None:
        precision = Precision.of(dtype)
        self.checkpoint = load_checkpoint() if checkpoint is None else checkpoint
        tensors = self.checkpoint.tensors
        config = self.checkpoint.config
        self.words = tensors["embeddings.word_embeddings.weight"]
        # Every token here is of type 0, so that row joins the positions.
        self.positions = (
            tensors["embeddings.position_embeddings.weight"]
            + tensors["embeddings.token_type_embeddings.weight"][0]
        )
        self.embedding_norm = LayerNorm(
            tensors["embeddings.LayerNorm.weight"],
            tensors["embeddings.LayerNorm.bias"],
            config.norm_eps,
        )
        self.blocks = [Block(self.checkpoint, i, precision) for i in range(config.layers)]

    def encode(self, sentences: Sequence[str], batch_size: int = 32) -> Array:
        """Embed sentences: an (n, 384) float32 array of unit rows, in order."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        ids = self.checkpoint.token_ids(sentences)
        # Sentences of like length share a batch, so little of it is padding.
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        out = np.empty((len(ids), self.checkpoint.config.hidden), self.words.dtype)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            out[rows] = self.forward(*pad([ids[i] for i in rows]))
        return out

    def forward(self, ids: Array, mask: Array) -> Array:
        """Embed one padded batch: ids and mask are (B, T), mask true at tokens."""
        batch, tokens = ids.shape
        x = (self.words[ids] + self.positions[:tokens]).reshape(batch * tokens, -1)
        x = self.embedding_norm(x)
        # What the padding rows themselves compute is finite and never read.
        for block in self.blocks:
            x = block(x, mask)
        return unit_rows(mean_pool(x.reshape(batch, tokens, -1), mask))


def pad(ids: Sequence[Sequence[int]], tokens: int | None = None) -> tuple[Array, Array]:
    """Token ids as a (B, T) array filled up with 0, and the mask of real ones."""
    lengths = np.array([len(row) for row in ids])
    tokens = int(lengths.max()) if tokens is None else tokens
    padded = np.zeros((len(ids), tokens), np.int64)
    for row, sentence in zip(padded, ids, strict=True):
        row[: len(sentence)] = sentence
    return padded, np.arange(tokens) < lengths[:, None]
