"""Epilogues: c = alpha * acc + beta * bias, each product and the sum rounded once, whatever the vector length; then, if
C is of a narrow type, the sum is rounded once more to that, as a cast does.
"""
import numpy as np
import pytest
from narrow import finite_codes
from support import EDGES, as_params, check_values, guarded, poisoned_output, random_values, same_bits

from gemmkit._kernels import _registry

# Strides in elements of a bias, from its columns: adjacent, or one that is repeated.
BIASES = {
    "full": lambda n: (n + 3, 1),
    "full reversed": lambda n: (-(n + 3), 1),
    "row": lambda n: (0, 1),
    "column": lambda n: (1, 0),
    "column reversed": lambda n: (-1, 0),
    "scalar": lambda n: (0, 0),
}
SCALES = ((1.0, 1.0), (0.1, -0.3), (-2.5, 1.0), (0.0, 1.0), (1.0, 0.0), (1 / 3, 7.7e5))
HEIGHTS = (1, 2, 5)
WIDTHS = (*range(1, 36), 63, 64, 65, 100)
MOST_VECTOR = 64  # bytes


def epilogue_rows(where=lambda row: True):
    """Those of finished float sums; test_epilogue_int.py has the others."""
    return as_params(row for row in _registry.epilogues() if row["acc"] in ("float32", "float64") and where(row))


def keeps_type(row):
    return row["acc"] == row["out"]


def narrows(row):
    return not keeps_type(row)


def expected(row, acc, alpha, beta, bias):
    """numpy's arithmetic in the accumulator's type: one rounding an operation; and a cast."""
    scalar = acc.dtype.type
    with np.errstate(all="ignore"):
        scaled = scalar(alpha) * acc
        return (scaled if bias is None else scaled + scalar(beta) * bias).astype(row["out"])


def run(row, acc, alpha, beta, bias, edge, in_place=False):
    """C, after checking that nothing else was written; in place, acc is copied to C before."""
    out = poisoned_output(*acc.shape, row["out"], edge=edge)
    if in_place:
        out.c[...] = acc
        acc = out.c
    else:
        placed = guarded(acc, ((acc.shape[1] + 5) * acc.itemsize, acc.itemsize), edge or "end")
        before, acc = acc, placed
    _registry.run_epilogue(row["index"], acc, out.c, alpha, beta, bias)
    out.check_margin()
    if not in_place:
        assert same_bits(np.ascontiguousarray(acc), np.ascontiguousarray(before))
    return out.c


def check(row, acc, alpha, beta, bias, edge, in_place=False):
    want = np.ascontiguousarray(expected(row, acc, alpha, beta, bias))
    c = run(row, acc, alpha, beta, bias, edge, in_place)
    assert same_bits(np.ascontiguousarray(c), want), (acc.shape, alpha, beta)


@pytest.mark.parametrize("bias_layout", ["none", *BIASES])
@pytest.mark.parametrize("row", epilogue_rows())
def test_exact(row, bias_layout):
    """Bit for bit numpy's result, at every remainder of a vector, with c and the bias against a guard page."""
    rng = np.random.default_rng(row["index"])
    item = np.dtype(row["acc"]).itemsize
    for m in HEIGHTS if keeps_type(row) else HEIGHTS[1:2]:
        for turn, n in enumerate(WIDTHS):
            acc, edge = random_values(rng, (m, n), row["acc"]), EDGES[turn % 2]
            bias = None
            if bias_layout != "none":
                strides = tuple(s * item for s in BIASES[bias_layout](n))
                bias = guarded(random_values(rng, (m, n), row["acc"]), strides, edge)
            for alpha, beta in SCALES if keeps_type(row) else SCALES[turn % 2::2]:
                check(row, acc, alpha, beta, bias, edge, in_place=keeps_type(row))


@pytest.mark.parametrize("row", epilogue_rows(keeps_type))
def test_c_apart_from_the_sums(row):
    """A row that can work in place need not."""
    rng = np.random.default_rng(row["index"])
    for turn, n in enumerate(WIDTHS):
        acc, bias = random_values(rng, (2, n), row["acc"]), random_values(rng, (2, n), row["acc"])
        for x in (None, guarded(bias)):
            check(row, acc, 0.1, -0.3, x, EDGES[turn % 2])


@pytest.mark.parametrize("row", epilogue_rows())
def test_the_strides_of_a_single_column_are_not_used(row):
    item = np.dtype(row["acc"]).itemsize
    acc, bias = (guarded(np.full((3, 1), x, row["acc"]), (3 * item, 1000 * item)) for x in (3, 5))
    c = np.zeros((3, 1), row["out"])
    _registry.run_epilogue(row["index"], acc, c, 2.0, 3.0, bias)
    assert (c.astype(row["acc"]) == np.full((), 21).astype(row["out"]).astype(row["acc"])).all()


# ---- Rounding

def values_around_codes(dtype):
    """float32 values: all of a narrow type, the middles between neighbours, one last place beside each, and the extremes."""
    finite = np.unique(finite_codes(np.dtype(dtype).type).astype(np.float32))
    with np.errstate(over="ignore"):
        beyond = finite[-1] + (finite[-1] - finite[-2]) * np.float32([0.5, 1, 1.5])  # where overflow begins, and after
        middles = np.concatenate([finite[:-1] + np.diff(finite) / 2, beyond, -beyond])
        x = np.concatenate([finite, middles])
        x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
    info = np.finfo(np.float32)
    tiny = np.float32([0, info.smallest_subnormal, info.tiny, info.tiny / 2, info.eps, 1e-30, 1, 1e30, info.max, np.inf])
    x = np.concatenate([x, tiny, -tiny])
    return x[~np.isnan(x)]


@pytest.mark.parametrize("bias", [None, "zero"])
@pytest.mark.parametrize("row", epilogue_rows(narrows))
def test_every_code_every_middle_and_their_neighbours(row, bias):
    """Bit for bit the cast of numpy or ml_dtypes: to nearest, halves to even, overflow as the format has it.

    By whole vectors, and by a partial one of each length.
    """
    x = values_around_codes(row["out"])
    most = MOST_VECTOR // 4
    for n in (4 * most, *range(1, 2 * most)) if x.size < 1 << 16 else (4 * most, most - 1, most // 2 - 1, 2 * most - 3):
        acc = np.resize(x, (-(-x.size // n), n))
        zero = None if bias is None else np.broadcast_to(np.float32(-0.0), acc.shape)  # x + -0 is x
        c = np.empty(acc.shape, row["out"])
        _registry.run_epilogue(row["index"], acc, c, 1.0, 1.0, zero)
        with np.errstate(all="ignore"):
            want = acc.astype(row["out"])
        check_values(c, want)


@pytest.mark.parametrize("row", epilogue_rows(narrows))
def test_random_float32_are_rounded_as_a_cast_does(row):
    """Any bits, of which most overflow or vanish, and magnitudes that the type has."""
    rng = np.random.default_rng(row["index"])
    top = float(finite_codes(np.dtype(row["out"]).type).astype(np.float64).max())
    scaled = rng.uniform(-1, 1, 1 << 16) * top * 2.0 ** -rng.integers(-1, 40, 1 << 16)
    with np.errstate(over="ignore"):
        scaled = scaled.astype(np.float32)
    for x in (rng.integers(0, 1 << 32, 1 << 16, np.uint32).view(np.float32), scaled):
        acc = np.concatenate([x, x[:5]])[None]
        c = np.empty(acc.shape, row["out"])
        _registry.run_epilogue(row["index"], acc, c, 1.0, 1.0)
        with np.errstate(all="ignore"):
            check_values(c, acc.astype(row["out"]))


@pytest.mark.parametrize("row", epilogue_rows(narrows))
def test_a_nan_is_the_formats_own(row):
    """The arithmetic's NaN becomes the code that a cast gives, sign included where NaNs have signs."""
    acc = np.repeat(np.uint32([0x7fc00000, 0xffc00000]).view(np.float32), 21)[None]
    c = np.empty(acc.shape, row["out"])
    _registry.run_epilogue(row["index"], acc, c, 1.0, 1.0)
    assert same_bits(c, acc.astype(row["out"]))


# ---- Arithmetic

@pytest.mark.parametrize("row", epilogue_rows(keeps_type))
def test_no_fused_multiply_add(row):
    """Products whose low bits a fused operation would keep: they must be gone."""
    scalar = np.dtype(row["acc"]).type
    u = float(np.finfo(row["acc"]).eps)
    n = 2 * MOST_VECTOR // np.dtype(row["acc"]).itemsize + 1
    acc, bias = np.full((1, n), scalar(1 + 2 * u)), np.full((1, n), scalar(-1))
    c = run(row, acc, 1 + 2 * u, 1.0, guarded(bias), None)
    assert (c == scalar(4 * u)).all()  # fused: 4 u + 4 u u


@pytest.mark.parametrize("row", epilogue_rows(narrows))
def test_no_fused_multiply_add_before_a_rounding(row):
    """A product whose last bit a fused operation would keep, and with it go past the middle of two neighbours."""
    finite = finite_codes(np.dtype(row["out"]).type).astype(np.float64)
    step = finite[finite > 1].min() - 1
    scale, factor, middle = step * 2.0 ** 22, 1 + 2.0 ** -12, 1 + step / 2
    acc, bias = np.float32(scale * factor), np.float32(middle - scale * (1 + 2.0 ** -11))
    assert float(acc) == scale * factor and float(bias) + scale * (1 + 2.0 ** -11) == middle
    assert np.float32(factor) * acc + bias == middle and factor * float(acc) + float(bias) > middle  # fused
    for beta_bias in (np.full((1, 37), bias), np.broadcast_to(bias, (1, 37))):
        c = run(row, np.full((1, 37), acc), factor, 1.0, beta_bias, None)
        assert (c.astype(np.float64) == 1).all()  # fused: 1 + step


@pytest.mark.parametrize("row", epilogue_rows())
def test_special_values_stay_where_they_are(row):
    """NaN and infinity in acc or the bias reach their own element; zero times them is NaN, as in numpy."""
    rng = np.random.default_rng(row["index"])
    n = 2 * MOST_VECTOR // np.dtype(row["acc"]).itemsize + 3
    for special in (np.nan, np.inf, -np.inf, -0.0):
        for j in (0, n // 2, n - 1):
            acc, bias = random_values(rng, (2, n), row["acc"]), random_values(rng, (2, n), row["acc"])
            acc[1, j] = special
            bias[0, j] = special
            for alpha, beta in SCALES:
                check_values(run(row, acc, alpha, beta, guarded(bias), None), expected(row, acc, alpha, beta, bias))


@pytest.mark.parametrize("row", epilogue_rows())
def test_scales_are_rounded_to_the_type(row):
    """alpha and beta arrive as doubles and are used at the accumulator's precision."""
    scalar = np.dtype(row["acc"]).type
    acc = np.full((1, 19), scalar(3))
    bias = guarded(np.full((1, 19), scalar(5)))
    c = run(row, acc, 0.1, 0.7, bias, "end")
    assert (c == (scalar(0.1) * scalar(3) + scalar(0.7) * scalar(5)).astype(row["out"])).all()


@pytest.mark.parametrize("row", epilogue_rows())
def test_without_bias_beta_is_not_used(row):
    acc = np.ones((3, 19), row["acc"])
    assert (run(row, acc, 2.0, np.nan, None, "end").astype(np.float64) == 2).all()
