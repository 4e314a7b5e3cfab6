"""Epilogues: c = alpha * c + beta * bias, each product and the sum rounded once, whatever the vector length."""
import numpy as np
import pytest
from support import EDGES, as_params, guarded, poisoned_output, random_values, same_bits

from gemmkit._kernels import _registry

# Strides in elements of a bias, from its columns.
BIASES = {
    "full": lambda n: (n + 3, 1),
    "full reversed": lambda n: (-(n + 3), 1),
    "row": lambda n: (0, 1),
    "column": lambda n: (1, 0),
    "column reversed": lambda n: (-1, 0),
    "scalar": lambda n: (0, 0),
    "transposed": lambda n: (1, 7),
    "row reversed": lambda n: (0, -1),
    "every other": lambda n: (2 * n + 1, 2),
}
SCALES = ((1.0, 1.0), (0.1, -0.3), (-2.5, 1.0), (0.0, 1.0), (1.0, 0.0), (1 / 3, 7.7e5))
HEIGHTS = (1, 2, 5)
WIDTHS = (*range(1, 36), 63, 64, 65, 100)
MOST_VECTOR = 64  # bytes


def epilogue_rows():
    return as_params(_registry.epilogues())


def expected(c, alpha, beta, bias):
    """numpy's arithmetic in the row's own type: one rounding an operation."""
    scalar = c.dtype.type
    with np.errstate(all="ignore"):
        scaled = scalar(alpha) * c
        return scaled if bias is None else scaled + scalar(beta) * bias


def run(row, values, alpha, beta, bias, edge):
    out = poisoned_output(*values.shape, row["type"], edge=edge)
    out.c[...] = values
    _registry.run_epilogue(row["index"], out.c, alpha, beta, bias)
    out.check_margin()
    return out.c


def check(row, values, alpha, beta, bias, edge):
    c = run(row, values, alpha, beta, bias, edge)
    want = expected(values, alpha, beta, bias)
    assert same_bits(np.ascontiguousarray(c), np.ascontiguousarray(want)), (values.shape, alpha, beta)


@pytest.mark.parametrize("bias_layout", ["none", *BIASES])
@pytest.mark.parametrize("row", epilogue_rows())
def test_exact(row, bias_layout):
    """Bit for bit numpy's result, at every remainder of a vector, with c and the bias against a guard page."""
    rng = np.random.default_rng(row["index"])
    item = np.dtype(row["type"]).itemsize
    for m in HEIGHTS:
        for turn, n in enumerate(WIDTHS):
            values, edge = random_values(rng, (m, n), row["type"]), EDGES[turn % 2]
            bias = None
            if bias_layout != "none":
                strides = tuple(s * item for s in BIASES[bias_layout](n))
                bias = guarded(random_values(rng, (m, n), row["type"]), strides, edge)
            for alpha, beta in SCALES:
                check(row, values, alpha, beta, bias, edge)


@pytest.mark.parametrize("row", epilogue_rows())
def test_no_fused_multiply_add(row):
    """Products whose low bits a fused operation would keep: they must be gone."""
    scalar = np.dtype(row["type"]).type
    u = float(np.finfo(row["type"]).eps)
    n = 2 * MOST_VECTOR // np.dtype(row["type"]).itemsize + 1
    values, bias = np.full((1, n), scalar(1 + 2 * u)), np.full((1, n), scalar(-1))
    c = run(row, values, 1 + 2 * u, 1.0, guarded(bias), None)
    assert (c == scalar(4 * u)).all()  # fused: 4 u + 4 u u


@pytest.mark.parametrize("row", epilogue_rows())
def test_special_values_stay_where_they_are(row):
    """NaN and infinity in c or the bias reach their own element; zero times them is NaN, as in numpy."""
    rng = np.random.default_rng(row["index"])
    n = 2 * MOST_VECTOR // np.dtype(row["type"]).itemsize + 3
    for special in (np.nan, np.inf, -np.inf, -0.0):
        for j in (0, n // 2, n - 1):
            values, bias = random_values(rng, (2, n), row["type"]), random_values(rng, (2, n), row["type"])
            values[1, j] = special
            bias[0, j] = special
            for alpha, beta in SCALES:
                got, want = run(row, values, alpha, beta, guarded(bias), None), expected(values, alpha, beta, bias)
                nan = np.isnan(want)
                assert np.array_equal(np.isnan(got), nan)
                assert same_bits(got[~nan], want[~nan])


@pytest.mark.parametrize("row", epilogue_rows())
def test_scales_are_rounded_to_the_type(row):
    """alpha and beta arrive as doubles and are used at the accumulator's precision."""
    scalar = np.dtype(row["type"]).type
    values = np.full((1, 19), scalar(3))
    bias = guarded(np.full((1, 19), scalar(5)))
    c = run(row, values, 0.1, 0.7, bias, "end")
    assert (c == scalar(0.1) * scalar(3) + scalar(0.7) * scalar(5)).all()


@pytest.mark.parametrize("row", epilogue_rows())
def test_without_bias_beta_is_not_used(row):
    values = np.ones((3, 19), row["type"])
    assert (run(row, values, 2.0, np.nan, None, "end") == 2).all()
