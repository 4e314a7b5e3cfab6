"""Linear layers with weights in one of several number types.

The products take narrow operands and add up in float32. Whatever stands between
them (bias, layer norm, GELU, softmax, the residual sum) is float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import gemmkit
import numpy as np
from elementwise import Array

FLOAT32 = np.dtype(np.float32)

# The type of the weights gives the type of the other operand. With float8
# weights that is bfloat16: it holds every float8 value exactly, has the range
# of float32 and so needs no scale of its own. Activations in float8, scaled row
# by row, nearly double the loss: the smallest cosine with float32 over
# sentences.txt falls from 0.991 to 0.985.
ACTIVATIONS = {
    "float32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float8_e4m3fn": "bfloat16",
}

LARGEST = 448.0  # of float8_e4m3fn
SMALLEST_PEAK = 1e-20  # keeps a scale from 0, and a bias divided by it finite

# A plan has the weights packed for one number of rows. Rounding that up lets
# sentences of different length share a plan; keeping only the last few plans
# bounds the memory: each is another copy of the narrow weights.
ROW_STEP = 16
PLANS_KEPT = 4


@dataclass(frozen=True)
class Precision:
    """The types of a product's operands."""

    weights: np.dtype[Any]
    activations: np.dtype[Any]

    @classmethod
    def of(cls, name: str) -> Precision:
        """The precision that is called after the type of its weights."""
        if name not in ACTIVATIONS:
            raise ValueError(f"unknown dtype {name!r}; known are {', '.join(ACTIVATIONS)}")
        return cls(np.dtype(name), np.dtype(ACTIVATIONS[name]))


def quantize(weight: Array) -> tuple[Array, Array]:
    """An (N, K) weight as float8, and the N scales that its outputs are short of.

    float8_e4m3fn has 4 significant bits only down to 2^-6, so the largest
    weight of each output goes to the top of the range. A scale per output and
    not per tensor: an output of small weights keeps its bits.
    """
    peaks = np.maximum(np.abs(weight).max(axis=1), SMALLEST_PEAK)
    scale = peaks / LARGEST
    # A peak's quotient may lie a rounding error above 448; below 464 the cast
    # still gives 448, beyond NaN.
    return (weight / scale[:, None]).astype("float8_e4m3fn"), scale


class Linear:
    """x W^T + b, with W as the checkpoint has it: (N, K), K the inputs.

    The result is float32, or of the activations' type if `narrow`: for one
    that goes into the next product as it is, and would be rounded there.
    """

    def __init__(
        self, weight: Array, bias: Array, precision: Precision, *, narrow: bool = False
    ) -> None:
        self.inputs = precision.activations
        self.result = self.inputs if narrow else FLOAT32
        self.scale: Array | None = None
        if precision.weights.itemsize == 1:
            self.weight, self.scale = quantize(weight)
            # The outputs are scaled after the product has added the bias, and
            # rounded after that.
            self.bias = bias / self.scale
            product = FLOAT32
        else:
            self.weight = weight.astype(precision.weights, copy=False)
            self.bias = bias
            product = self.result
        self.plan = lru_cache(PLANS_KEPT)(partial(plan, self.weight, self.inputs, product))

    def __call__(self, x: Array) -> Array:
        if self.weight.dtype == FLOAT32:
            # Read where they lie, in the checkpoint: no copies for plans.
            return gemmkit.gemm(x, self.weight, self.bias, trans_b=True)
        rows = len(x)
        padded = np.zeros((-(-rows // ROW_STEP) * ROW_STEP, x.shape[1]), self.inputs)
        padded[:rows] = x  # rounds to the narrow type
        y = self.plan(len(padded))(padded, c=self.bias)[:rows]
        if self.scale is not None:
            y *= self.scale
        return y.astype(self.result, copy=False)


def plan(
    weight: Array, inputs: np.dtype[Any], result: np.dtype[Any], rows: int
) -> gemmkit.GemmPlan:
    """x W^T + c for that many rows, with the weights packed into the plan."""
    n, k = weight.shape
    return gemmkit.GemmPlan(
        rows, n, k, inputs, trans_b=True, b=weight, b_dtype=weight.dtype, out_dtype=result
    )
