"""Every code of every narrow type: decoded exactly, and every value between two codes encoded by one rounding.

A product with an exact 1 shows what an operand was read as; a sum of zero products plus c shows how a float32 result
was written.  Both are compared code by code with numpy's and ml_dtypes' casts.
"""
import functools

import ml_dtypes
import numpy as np
import pytest
from narrow import (
    BF16,
    E4M3FNUZ,
    E5M2FNUZ,
    F16,
    F32,
    F64,
    FLOAT8,
    NARROW,
    bits,
    cast,
    codes,
    decoded,
    finite_codes,
    layouts,
    name,
)

import gemmkit

ALGORITHMS = ("general", "direct", "small_k", "skinny_m", "skinny_n", "split_k")
by_type = pytest.mark.parametrize("dtype", NARROW, ids=name)


def check_decoded(got, x):
    """got = x * 1 summed from zero: the same float32 bits as x's, but for the sign of a zero and a NaN's payload."""
    want = decoded(x)
    assert got.dtype == F32 and got.shape == want.shape
    same = (bits(got) == bits(want)) | ((got == 0) & (want == 0)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), f"{(~same).sum()} wrong, first {want[~same][0]!r} as {got[~same][0]!r}"


def folded(x, width):
    """x in rows of some width; the last row begins again with the first values."""
    return np.resize(x, (-(-x.size // width), width))


def one(dtype):
    return np.ones((1, 1), F32).astype(dtype)


def eye(n, dtype):
    return np.eye(n, dtype=F32).astype(dtype)


# ---- The formats

@pytest.mark.parametrize("dtype", FLOAT8, ids=name)
def test_every_float8_is_an_ordinary_bfloat16(dtype):
    """Widening float8 to bfloat16 loses nothing, and makes no subnormal that an instruction could take for zero."""
    values = decoded(codes(dtype))
    np.testing.assert_array_equal(decoded(values.astype(BF16)), values)
    nonzero = abs(values[np.isfinite(values) & (values != 0)])
    assert (nonzero >= float(ml_dtypes.finfo(BF16).smallest_normal)).all()


@by_type
def test_the_reference_decodes_as_the_format_says(dtype):
    """Sign, exponent and fraction, by hand: so that the other tests don't rest on one library's word."""
    fraction, bias = {F16: (10, 15), BF16: (7, 127), E4M3FNUZ: (3, 8), E5M2FNUZ: (2, 16)}.get(
        dtype, (3, 7) if "e4m3" in name(dtype) else (2, 15))
    width = 8 * np.dtype(dtype).itemsize
    code = np.arange(2 ** width)
    exponent, low = code >> fraction & (1 << (width - 1 - fraction)) - 1, code & (1 << fraction) - 1
    size = np.ldexp((low + np.where(exponent > 0, 1 << fraction, 0)).astype(F64),
                    np.maximum(exponent, 1) - bias - fraction)
    values = np.where(code >> (width - 1), -size, size)
    finite = np.isfinite(decoded(codes(dtype)))
    np.testing.assert_array_equal(decoded(codes(dtype))[finite], values[finite])
    not_finite = {"float8_e4m3fn": 2, "float8_e4m3fnuz": 1, "float8_e5m2": 8, "float8_e5m2fnuz": 1, "float16": 2048,
                  "bfloat16": 256}[name(dtype)]
    assert (~finite).sum() == not_finite


# ---- Decoding

@by_type
def test_every_code_is_read_exactly(dtype, isa):
    """NaN, infinities, zeros and subnormals too, wherever the operand stands: sums of one product."""
    x = codes(dtype)
    repeated, backwards = np.repeat(x, 3)[::3], x[::-1].copy()[::-1]
    for partner in {dtype, F32, BF16, F16}:
        for view in (x, repeated, backwards):
            check_decoded(gemmkit.matmul(view[:, None], one(partner), out_dtype=F32), x[:, None])
            check_decoded(gemmkit.matmul(one(partner), view[None], out_dtype=F32), x[None])
        check_decoded(gemmkit.matmul(one(partner)[0], x[None], out_dtype=F32), x)
        check_decoded(gemmkit.matmul(x[:, None], one(partner)[0], out_dtype=F32), x)
        ones = np.ones((1, 5), F32).astype(partner)
        check_decoded(gemmkit.matmul(x[:, None], ones, out_dtype=F32), np.repeat(x[:, None], 5, 1))
        check_decoded(gemmkit.matmul(ones.T, x[None], out_dtype=F32), np.repeat(x[None], 5, 0))
        for width in (1, 7, 64):
            block = folded(x, width)
            check_decoded(gemmkit.matmul(block[:, :, None], one(partner), out_dtype=F32), block[:, :, None])
            check_decoded(gemmkit.matmul(one(partner), block[:, None, :], out_dtype=F32), block[:, None, :])


@by_type
def test_every_finite_code_is_read_exactly_among_others(dtype, isa):
    """Whole vectors and tails along K, in every layout, left and right: products with a unit matrix."""
    for width in (1, 3, 16, 37, 64, 130) if dtype in FLOAT8 else (3, 37, 64):
        block = folded(finite_codes(dtype), width)
        for partner in (dtype, F32):
            unit = eye(width, partner)
            for view in layouts(block).values():
                check_decoded(gemmkit.matmul(view, unit, out_dtype=F32), block)
            for view in layouts(block.T).values():
                check_decoded(gemmkit.matmul(unit, view, out_dtype=F32), block.T)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@by_type
def test_every_finite_code_is_read_exactly_by_each_algorithm(dtype, algorithm, isa):
    """A forced plan, with the codes as A, as B, and transposed, 256 rows at a time."""
    ran, refusal = 0, None
    for width in (2, 33, 50):
        x = finite_codes(dtype)
        m = min(256, -(-x.size // width))
        blocks = np.resize(x, (-(-x.size // (m * width)), m, width))
        unit = eye(width, dtype)
        for flag in (False, True):
            for left in (True, False):
                size = (m, width, width) if left else (width, m, width)
                plan = gemmkit.GemmPlan(*size, dtype, trans_a=flag and left, trans_b=flag and not left, out_dtype=F32)
                refusal = plan.refusal(algorithm)
                if refusal is not None:
                    continue
                plan = gemmkit.GemmPlan(*size, dtype, trans_a=flag and left, trans_b=flag and not left, out_dtype=F32,
                                        algorithm=algorithm)
                for block in blocks:
                    if left:
                        check_decoded(plan(block.T.copy() if flag else block, unit), block)
                    else:
                        check_decoded(plan(unit, block if flag else block.T.copy()), block.T)
                ran += 1
    if not ran:
        assert algorithm != "general"
        pytest.skip(f"not run: {algorithm} refuses all of these ({refusal}); general, which refuses none, runs them")


@by_type
def test_every_finite_code_is_read_exactly_from_a_constant_b(dtype, isa):
    for width in (1, 37, 64):
        block = folded(finite_codes(dtype), width)
        for b, trans_b in ((block.T, False), (block, True)):
            plan = gemmkit.GemmPlan(width, len(block), width, dtype, trans_b=trans_b, b=b, out_dtype=F32)
            check_decoded(plan(eye(width, dtype)), block.T)


# ---- Encoding

@functools.cache
def telling_values(dtype):
    """float32 values that tell right rounding from wrong: codes, ties, what lies next to ties, and the far ends."""
    finite = np.unique(decoded(finite_codes(dtype))).astype(F64)  # sorted; one zero
    middle = (finite[1:] + finite[:-1]) / 2
    beyond = finite[-1] + (finite[-1] - finite[-2]) / 2  # the first value that would round up to a power of two
    ties = np.concatenate([middle, [beyond, -beyond]])
    assert (ties.astype(F32) == ties).all()
    ties = ties.astype(F32)
    largest = np.finfo(F32).max
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, largest, -largest, 2 * finite[-1], -2 * finite[-1]])
    with np.errstate(over="ignore"):
        ends = ends.astype(F32)
    tiny = np.concatenate([np.ldexp(np.ones(40), -np.arange(110, 150)),
                           np.ldexp(3.0, -np.arange(110, 150))]).astype(F32)
    any_bits = np.random.default_rng(0).integers(0, 2 ** 32, 5000, np.uint32).view(F32)
    return np.concatenate([finite.astype(F32), ties, np.nextafter(ties, F32(np.inf)), np.nextafter(ties, F32(-np.inf)),
                           ends, tiny, -tiny, any_bits])


@functools.cache
def tables(dtype):
    """Which codes are NaN, and which are zero."""
    values = decoded(codes(dtype))
    return np.isnan(values), values == 0


def check_encoded(got, x):
    """got = 0 + x in a narrow type: the cast's code, but any NaN for NaN, and a zero of any sign for zero."""
    dtype = got.dtype.type
    is_nan, is_zero = tables(dtype)
    assert got.shape == x.shape
    got, want = bits(got), bits(cast(x, dtype))
    same = np.where(np.isnan(decoded(want.view(dtype))), is_nan[got], np.where(x == 0, is_zero[got], got == want))
    assert same.all(), f"{(~same).sum()} wrong, first {x[~same][0]!r} as {got[~same][0]:#x}, not {want[~same][0]:#x}"


@by_type
def test_every_rounding_in_rows_of_every_width(dtype, isa):
    """Full vectors and tails of 1 to 50 columns each see every value, as a c that zero products are added to."""
    x = telling_values(dtype)
    for width in range(1, 51):
        c = folded(x, width)
        a, b = np.zeros((len(c), 1), F32), np.zeros((1, width), F32)
        check_encoded(gemmkit.gemm(a, b, c, out_dtype=dtype), c)


@by_type
def test_every_rounding_of_products(dtype, isa):
    """As columns, rows and matrices of products; no c."""
    x = telling_values(dtype)
    unit = np.ones((1, 1), F32)
    check_encoded(gemmkit.matmul(x[:, None], unit, out_dtype=dtype), x[:, None])
    check_encoded(gemmkit.matmul(unit, x[None], out_dtype=dtype), x[None])
    check_encoded(gemmkit.matmul(x[:, None], unit[0], out_dtype=dtype), x)
    check_encoded(gemmkit.matmul(unit[0], x[None], out_dtype=dtype), x)
    check_encoded(gemmkit.gemm(np.empty((x.size, 0), F32), np.empty((0, 1), F32), x[:, None], out_dtype=dtype),
                  x[:, None])
    finite = x[np.isfinite(x)]
    for width in (1, 2, 7, 16, 33, 48, 100):
        block = folded(finite, width)
        check_encoded(gemmkit.matmul(block, eye(width, F32), out_dtype=dtype), block)
        check_encoded(gemmkit.matmul(eye(width, F32), block.T, out_dtype=dtype), block.T)
        check_encoded(gemmkit.matmul(folded(x, width)[:, None, :].swapaxes(1, 2), unit, out_dtype=dtype),
                      folded(x, width)[:, :, None])


@by_type
def test_every_rounding_in_any_memory(dtype, isa):
    """A strided, turned or column-major out gets the same codes, and nothing around it changes."""
    for width in (1, 5, 37):
        c = folded(telling_values(dtype), width)
        rows = len(c)
        a, b = np.zeros((rows, 1), F32), np.zeros((1, width), F32)
        for view in (lambda x: x[1:rows + 1, 1:width + 1], lambda x: x[1:-1:2, 1:-1:2][:rows, :width],
                     lambda x: x[2 * rows:0:-2, width:0:-1], lambda x: x.reshape(2 * width + 3, -1)[:width, :rows].T):
            buffer = cast(np.full((2 * rows + 3, 2 * width + 3), 7, F32), dtype)
            out = view(buffer)
            assert gemmkit.gemm(a, b, c, out=out) is out
            check_encoded(out, c)
            out[...] = cast(7.0, dtype)
            assert (decoded(buffer) == 7).all()


@by_type
def test_every_code_in_every_other_type(dtype, isa):
    """From one narrow type to another: what is read exactly is rounded once."""
    x = codes(dtype)
    for other in NARROW:
        check_encoded(gemmkit.matmul(x[:, None], one(dtype), out_dtype=other), decoded(x[:, None]))
        check_encoded(gemmkit.matmul(one(other), folded(x, 64)[:, None, :], out_dtype=other),
                      decoded(folded(x, 64)[:, None, :]))


@by_type
def test_every_code_of_c(dtype, isa):
    """c is read exactly in each type, in rows of every tail, and broadcast from a row and a column."""
    x = codes(dtype)
    for width in (1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 47, 50):
        c = folded(x, width)
        a, b = np.zeros((len(c), 1), dtype), np.zeros((1, width), dtype)
        check_decoded(gemmkit.gemm(a, b, c, out_dtype=F32), c)
        check_decoded(gemmkit.gemm(a, b, np.asfortranarray(c), out_dtype=F32), c)
    zero = np.zeros((3, 1), dtype)
    check_decoded(gemmkit.gemm(zero, np.zeros((1, x.size), dtype), x, out_dtype=F32), np.repeat(x[None], 3, 0))
    column = np.repeat(x[:, None], 3, 1)
    check_decoded(gemmkit.gemm(np.zeros((x.size, 1), dtype), zero.T, x[:, None], out_dtype=F32), column)


@by_type
def test_nan_and_negative_zero_have_the_formats_codes(dtype, isa):
    """fnuz formats have one NaN, 0x80, and no negative zero, however the zero came about."""
    for width in (1, 7, 40):
        b = np.ones((1, width), F32)
        nan = bits(gemmkit.matmul(np.full((3, 1), np.nan, F32), b, out_dtype=dtype))
        assert tables(dtype)[0][nan].all()
        zero = gemmkit.gemm(np.zeros((3, 1), F32), b, alpha=-1.0)
        got = gemmkit.gemm(np.zeros((3, 1), F32), b, alpha=-1.0, out_dtype=dtype)
        assert (bits(got) == bits(cast(zero, dtype))).all()
        small = gemmkit.matmul(np.full((3, 1), -1e-45, F32), b, out_dtype=dtype)
        assert (bits(small) == bits(cast(F32(-1e-45), dtype))).all()
        if dtype in (E4M3FNUZ, E5M2FNUZ):
            assert (nan == 0x80).all() and not bits(got).any() and not bits(small).any()
