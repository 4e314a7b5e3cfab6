"""Linear layers with weights in one of several number types.

The products take narrow operands and add up in float32; with int8 weights they
take bytes and add up in int32. Whatever stands between them (bias, layer norm,
GELU, softmax, the residual sum) is float32.
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
# sentences.txt falls from 0.991 to 0.985. With int8 weights this is the type
# between the layers, which quantise what they get, and in attention.
ACTIVATIONS = {
    "float32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float8_e4m3fn": "bfloat16",
    "int8": "float32",
}

LARGEST = 448.0  # of float8_e4m3fn
SMALLEST_PEAK = 1e-20  # keeps a scale from 0, and what is divided by it finite
# Of uint8's 255 steps: the zero point is rounded, so the values may end half a
# step off either side. Leaving one step out costs less than clipping.
STEPS = 254

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


class IntegerLinear:
    """x W^T + b with W in int8, a scale per output, and x in uint8, quantised per call."""

    def __init__(self, weight: Array, bias: Array) -> None:
        # symmetric: zero points of W would cost the sum of every row of x.
        self.weight, self.scale, _ = gemmkit.quantize(weight, np.int8, axis=0, symmetric=True)
        self.bias = bias
        self.plan = lru_cache(PLANS_KEPT)(partial(integer_plan, self.weight))

    def __call__(self, x: Array) -> Array:
        rows = len(x)
        codes, scale, zero = quantize_rows(x, -(-rows // ROW_STEP) * ROW_STEP)
        sums = self.plan(len(codes))(codes, a_zero_point=zero)
        # Sums of up to 26 bits are rounded to 24 here, far below a step of x.
        y = sums[:rows].astype(FLOAT32)
        y *= self.scale
        y *= scale
        y += self.bias
        return y


def quantize_rows(x: Array, rows: int) -> tuple[Array, Array, Array]:
    """x as uint8 with `rows` rows; a scale for each of its own, a zero point for each of all.

    x is (codes - zero) * scale. By row and not for all of x, as
    gemmkit.dynamic_quantize_linear would: a token then does not depend on the
    others of its batch, nor on padding, and small ones keep their bits.
    """
    # 0 belongs to the range, so that the zero point is one of the codes.
    low = np.minimum(x.min(axis=1, keepdims=True), 0.0)
    scale = np.maximum(x.max(axis=1, keepdims=True), 0.0)
    scale -= low
    np.maximum(scale, SMALLEST_PEAK, out=scale)
    scale /= STEPS
    shift = np.rint(low / -scale)
    codes = np.zeros((rows, x.shape[1]), np.uint8)
    zero = np.zeros(rows, np.uint8)
    zero[: len(x)] = shift[:, 0]
    y = x * (1.0 / scale)
    # The cast cuts off: with the half it rounds, and nothing is below 0.
    shift += 0.5
    y += shift
    codes[: len(x)] = y
    return codes, scale, zero


def linear(
    weight: Array, bias: Array, precision: Precision, *, narrow: bool = False
) -> Linear | IntegerLinear:
    """The layer for that precision; int8 has float32 results, `narrow` or not."""
    if precision.weights == np.int8:
        return IntegerLinear(weight, bias)
    return Linear(weight, bias, precision, narrow=narrow)


def integer_plan(weight: Array, rows: int) -> gemmkit.MatMulIntegerPlan:
    """Sums of (x - zero) W^T for that many rows, with the weights packed into the plan."""
    n, k = weight.shape
    return gemmkit.MatMulIntegerPlan((rows, k), (k, n), np.uint8, np.int8, b=weight.T)


def plan(
    weight: Array, inputs: np.dtype[Any], result: np.dtype[Any], rows: int
) -> gemmkit.GemmPlan:
    """x W^T + c for that many rows, with the weights packed into the plan."""
    n, k = weight.shape
    return gemmkit.GemmPlan(
        rows, n, k, inputs, trans_b=True, b=weight, b_dtype=weight.dtype, out_dtype=result
    )
