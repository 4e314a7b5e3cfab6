"""Epilogues of integers and of requantization: sums that wrap, low bytes, zero points as products of rows and columns,
scales and one rounding to nearest even; and float32 sums that a scale takes to float8.
"""

import numpy as np
import pytest
from integers import rounded_to_float8
from support import EDGES, as_params, guarded, poisoned_output

from gemmkit._kernels import _registry

BIASES = {
    "full": lambda n: (n + 3, 1),
    "full reversed": lambda n: (-(n + 3), 1),
    "row": lambda n: (0, 1),
    "column": lambda n: (1, 0),
    "column reversed": lambda n: (-1, 0),
    "scalar": lambda n: (0, 0),
}
WIDTHS = (*range(1, 36), 63, 64, 65, 100, 129)
HEIGHTS = (1, 2, 5)
WHOLE = ((1, 1), (3, -7), (-1, 1), (0, 1), (1, 0), (2 ** 15 + 1, -2 ** 15), (2 ** 31 - 1, 2 ** 33 + 5),
         (-2 ** 63, 2 ** 63 - 1))
RANGES = {"int8": (-128, 127), "uint8": (0, 255)}
TERMS = [(rows, columns, products) for rows in (0, 1) for columns in (0, 1) for products in (0, 1, 2)]


def epilogues(where):
    return as_params(e for e in _registry.epilogues() if where(e))


KEEPING = epilogues(lambda e: e["acc"] == e["out"] and e["acc"].startswith("int"))
LOW = epilogues(lambda e: e["acc"] == "int32" != e["out"])
QUANTIZING = epilogues(lambda e: e["acc"] == "int32q")
REQUANTIZING = epilogues(lambda e: e["acc"] == "int32q" and e["out"] != "int32")
SCALING = epilogues(lambda e: e["acc"] == "float32q")


def whole_range(rng, shape, dtype=np.int32):
    """Any values, of which a fourth are the least or the largest one."""
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return np.where(rng.random(shape) < 0.25, rng.choice(np.array([info.min, info.max], dtype), shape), x)


def wrapped(x, dtype):
    """int64, known modulo 2^64, modulo the type's 2^bits."""
    size = np.dtype(dtype).itemsize
    return np.ascontiguousarray(x, np.int64).view(np.uint64).astype(f"u{size}").view(dtype)


def run(row, acc, edge=None, in_place=False, alpha=1, beta=1, bias=None, **options):
    """C, after checking that nothing else was written; in place, acc is copied to C before."""
    out = poisoned_output(*acc.shape, row["out"], edge=edge)
    if in_place:
        out.c[...] = acc
        placed = out.c
    else:
        placed = guarded(acc, ((acc.shape[1] + 5) * acc.itemsize, acc.itemsize), edge or "end")
    _registry.run_epilogue(row["index"], placed, out.c, alpha, beta, bias, **options)
    out.check_margin()
    assert in_place or np.array_equal(placed.view(f"u{acc.itemsize}"), acc.view(f"u{acc.itemsize}"))
    return out.c


# ---- alpha acc + beta bias

@pytest.mark.parametrize("bias_layout", ["none", *BIASES])
@pytest.mark.parametrize("row", KEEPING)
def test_whole_scales_and_a_bias_wrap(row, bias_layout):
    """At every remainder of a vector, in place and apart, with c and the bias against a guard page."""
    rng = np.random.default_rng(row["index"])
    dtype, item = np.dtype(row["acc"]), np.dtype(row["acc"]).itemsize
    for turn, n in enumerate(WIDTHS):
        m, edge = HEIGHTS[turn % 3], EDGES[turn % 2]
        acc, bias = whole_range(rng, (m, n), dtype), None
        if bias_layout != "none":
            bias = guarded(whole_range(rng, (m, n), dtype), tuple(s * item for s in BIASES[bias_layout](n)), edge)
        for alpha, beta in WHOLE[turn % 2::2]:
            start = 0 if bias is None else bias.astype(object) * beta
            half = 1 << 8 * item - 1
            want = [[(x + half) % (2 * half) - half for x in line] for line in acc.astype(object) * alpha + start]
            for in_place in (False, True):
                got = run(row, acc, edge, in_place, alpha, beta, bias)
                assert np.array_equal(got, np.array(want, dtype)), (n, alpha, beta, in_place)


@pytest.mark.parametrize("row", LOW)
def test_the_low_byte_and_whether_there_is_anything(row):
    """Sums whose low byte is zero are something all the same; a bool is 0 or 1 in memory."""
    rng = np.random.default_rng(row["index"])
    special = np.array([0, 1, -1, 127, 128, -128, -129, 255, 256, 1 << 16, 1 << 24, -2 ** 31, 2 ** 31 - 1, 0x7F00],
                       np.int32)
    for turn, n in enumerate(WIDTHS):
        for m in HEIGHTS:
            acc = np.where(rng.random((m, n)) < 0.5, rng.choice(special, (m, n)), whole_range(rng, (m, n)))
            want = acc != 0 if row["out"] == "bool" else wrapped(acc, np.int8)
            got = run(row, acc, EDGES[turn % 2])
            assert np.array_equal(got.view(np.uint8), want.view(np.uint8)), n


@pytest.mark.parametrize("row", [*KEEPING, *LOW, *QUANTIZING, *SCALING])
def test_the_strides_of_a_single_column_are_not_used(row):
    dtype = np.dtype({"int32q": "int32", "float32q": "float32"}.get(row["acc"], row["acc"]))
    acc = guarded(np.array([[3], [0], [7]], dtype), (3 * dtype.itemsize, 1000 * dtype.itemsize))
    c = np.zeros((3, 1), row["out"])
    _registry.run_epilogue(row["index"], acc, c)
    assert np.array_equal(c.astype(np.float64), acc != 0 if row["out"] == "bool" else acc)


# ---- Zero points

def some_terms(rng, m, n, rows, columns, products, values=whole_range, edge="end"):
    """run_epilogue's options."""
    def vector(size):
        return guarded(values(rng, size), edge=edge)

    return {"row_add": vector(m) if rows else None, "col_add": vector(n) if columns else None,
            "products": [(vector(m), vector(n)) for _ in range(products)]}


def corrected(acc, terms):
    """The sums with all that zero points add, modulo 2^32."""
    x = acc.astype(np.int64)
    if terms["row_add"] is not None:
        x = x + terms["row_add"][:, None]
    if terms["col_add"] is not None:
        x = x + terms["col_add"]
    for left, right in terms["products"]:
        x = x + wrapped(np.multiply.outer(left.astype(np.int64), right.astype(np.int64)), np.int32)
    return wrapped(x, np.int32)


@pytest.mark.parametrize("rows, columns, products", TERMS)
@pytest.mark.parametrize("row", [p for p in QUANTIZING if p.values[0]["out"] == "int32"])
def test_terms_are_added_modulo_2_to_the_32(row, rows, columns, products):
    """Each combination, in place and apart, vectors against a guard page."""
    rng = np.random.default_rng(row["index"])
    for turn, n in enumerate(WIDTHS):
        for m in HEIGHTS:
            edge = EDGES[(turn + m) % 2]
            acc, terms = whole_range(rng, (m, n)), some_terms(rng, m, n, rows, columns, products, edge=edge)
            for in_place in (False, True):
                assert np.array_equal(run(row, acc, edge, in_place, **terms), corrected(acc, terms)), (m, n, in_place)


# ---- Requantization

def rounded(row, x, multiplier, zero, exact, single):
    """The least and the largest result: the same if products are exact, else ties may go either way.

    longdouble has 11 bits more than the float64 products that are tested.
    """
    product = np.asarray(x).astype(np.longdouble) * multiplier
    reach = 0 if exact else abs(product) * np.longdouble(2.0 ** (-22 if single else -51))
    return [np.clip(np.rint(product + side) + zero, *RANGES[row["out"]]).astype(row["out"]) for side in (-reach, reach)]


def check_rounded(row, acc, terms, row_scale=None, col_scale=None, scale=1.0, zero=0, exact=True, edge=None):
    multiplier = np.longdouble(scale)
    multiplier = multiplier if row_scale is None else multiplier * row_scale[:, None].astype(np.longdouble)
    multiplier = multiplier if col_scale is None else multiplier * col_scale.astype(np.longdouble)
    for single in (False, True):  # also with leave to take float32 where the sum is one
        low, high = rounded(row, corrected(acc, terms), multiplier, zero, exact, single)
        got = run(row, acc, edge, row_scale=row_scale, col_scale=col_scale, scale=scale, zero=zero, single=single, **terms)
        assert ((low <= got) & (got <= high)).all(), (acc.shape, scale, zero, single)
    return got


def powers(rng, size, low, high, edge="end"):
    return guarded(2.0 ** rng.integers(low, high, size, endpoint=True), edge=edge)


NOTHING = {"row_add": None, "col_add": None, "products": []}


@pytest.mark.parametrize("rows, columns, products", TERMS)
@pytest.mark.parametrize("row", REQUANTIZING)
def test_terms_scales_and_zero_points(row, rows, columns, products):
    """Every combination of terms with every one of scales: exact for powers of two, else to within a tie's reach."""
    rng = np.random.default_rng(row["index"])
    low, high = RANGES[row["out"]]
    for turn, n in enumerate(WIDTHS):
        m, edge = HEIGHTS[turn % 3], EDGES[turn % 2]
        # Sums of 31 bits, that wrap; or of a few hundred, most of which fit.
        for values in (whole_range, lambda rng, shape: rng.integers(-20, 21, shape).astype(np.int32)):
            wide = values is whole_range
            acc = values(rng, (m, n)) if wide else rng.integers(-700, 700, (m, n)).astype(np.int32)
            terms = some_terms(rng, m, n, rows, columns, products, values, edge)
            own, other = turn // 2 % 2, turn // 4 % 2
            zero = int(rng.choice([low, high, 0, 7]))
            down = -28 if wide else -3
            scales = {"row_scale": powers(rng, m, -3, 1, edge) if own else None,
                      "col_scale": powers(rng, n, -3, 1, edge) if other else None}
            check_rounded(row, acc, terms, **scales, scale=2.0 ** (down + 2 * own + 2 * other), zero=zero, edge=edge)
            scales = {"row_scale": guarded(rng.uniform(0.3, 2, m), edge=edge) if own else None,
                      "col_scale": guarded(rng.uniform(0.3, 2, n), edge=edge) if other else None}
            check_rounded(row, acc, terms, **scales, scale=0.7 * 2.0 ** down, zero=zero, exact=False, edge=edge)


@pytest.mark.parametrize("row", REQUANTIZING)
def test_ties_go_to_even_before_the_zero_point(row):
    """All halves in reach and their neighbours, on both sides; an odd zero point would move ties if added first."""
    low, high = RANGES[row["out"]]
    x = np.arange(-2100, 2100, dtype=np.int32).reshape(-1, 200)
    for zero in (low, low + 1, 0, 3, high - 1, high):
        for scale in (0.5, 0.25, 0.125, 1.0, -0.5):
            check_rounded(row, x, NOTHING, scale=scale, zero=zero)


@pytest.mark.parametrize("row", REQUANTIZING)
def test_sums_of_31_bits_are_told_from_a_tie(row):
    """One beside the middle of two results, where float32 sees the middle."""
    middles = np.array([(2 * i + 1) << 22 for i in range(-128, 128)])
    x = np.concatenate([middles - 1, middles, middles + 1]).astype(np.int32)[None]
    got = check_rounded(row, x, NOTHING, scale=2.0 ** -23, zero=0)
    assert len(np.unique(got)) > 100
    for part in (("row_scale", np.array([2.0 ** -23])), ("col_scale", np.full(x.size, 2.0 ** -23))):
        assert np.array_equal(check_rounded(row, x, NOTHING, **dict([part])), got)


@pytest.mark.parametrize("row", REQUANTIZING)
def test_sums_around_the_end_of_float32(row):
    """Vectors with one sum at, below and above 2^24, from where not every sum is a float32."""
    for middle in (2 ** 24, -2 ** 24, 2 ** 25, -2 ** 31, 2 ** 31 - 4):
        x = np.clip(middle + np.arange(-3, 4, dtype=np.int64), -2 ** 31, 2 ** 31 - 1).astype(np.int32)
        x = np.concatenate([x, np.arange(-300, 300, 7, dtype=np.int32)])[None]
        for scale in (2.0 ** -18, 2.0 ** -25, 1.0):
            for turn in range(0, x.size, 5):
                check_rounded(row, np.roll(x, turn, 1), NOTHING, scale=scale, zero=3)


@pytest.mark.parametrize("row", REQUANTIZING)
def test_a_result_does_not_depend_on_its_neighbours(row):
    """Beside sums of 31 bits or alone: the same byte, near ties too, where float32 and float64 may differ."""
    rng = np.random.default_rng(row["index"])
    x = rng.integers(2 ** 20, 2 ** 24, (1, 1000)).astype(np.int32)
    mixed = np.where(np.arange(1000) % 5 == 0, np.int32(2 ** 30), x)
    beside_a_tie = (rng.integers(0, 100, 1000) + 0.5) * (1 + 2.0 ** -30 * rng.choice([-1, 1], 1000))
    options = {"col_scale": beside_a_tie / x[0], "zero": 3, "single": True}
    alone, beside = run(row, x, **options), run(row, mixed, **options)
    kept = np.arange(1000) % 5 != 0
    assert np.array_equal(alone[:, kept], beside[:, kept])
    # There are results here by which float32 and float64 can be told apart.
    assert not np.array_equal(alone, run(row, x, **{**options, "single": False}))


@pytest.mark.parametrize("row", REQUANTIZING)
def test_what_does_not_fit_saturates(row):
    """However far out, where a conversion to an integer type would not be defined; infinity too."""
    low, high = RANGES[row["out"]]
    x = np.array([1, -1, 2 ** 31 - 1, -2 ** 31, 300, -300] * 7, np.int32)[None]
    for scale in (300.0, 2.0 ** 33, 1e30, 1.7e308, np.inf):
        for zero in (low, 0, high):
            got = run(row, x, scale=scale, zero=zero)
            assert np.array_equal(got, np.where(x > 0, high, low)), (scale, zero)
    for zero in (low, 0, high):  # with nothing to saturate
        assert (run(row, np.zeros((2, 37), np.int32), scale=1e30, zero=zero) == zero).all()
        assert (run(row, x, scale=1e-30, zero=zero) == zero).all()


@pytest.mark.parametrize("row", REQUANTIZING)
def test_scales_that_are_no_numbers_stay_in_their_row_and_column(row):
    """What they give is in the range, as any byte is; their neighbours don't change, and nothing ends."""
    rng = np.random.default_rng(0)
    for n in (1, 7, 16, 37):
        x = rng.integers(-1000, 1000, (3, n)).astype(np.int32)
        row_scale, col_scale = rng.uniform(0.01, 0.2, 3), rng.uniform(0.5, 1, n)
        clean = run(row, x, row_scale=row_scale, col_scale=col_scale).copy()
        for special in (np.nan, np.inf):
            spoiled = row_scale.copy()
            spoiled[1] = special
            got = run(row, x, row_scale=spoiled, col_scale=col_scale, zero=0)
            assert np.array_equal(got[[0, 2]], clean[[0, 2]])
            spoiled = col_scale.copy()
            spoiled[n // 2] = special
            got = run(row, x, row_scale=row_scale, col_scale=spoiled)
            others = np.arange(n) != n // 2
            assert np.array_equal(got[:, others], clean[:, others])
        run(row, x, scale=np.nan)


# ---- float8

def check_float8(row, acc, row_scale=None, col_scale=None, scale=1.0, zero=0.0, edge=None):
    """Products and sums that are exact in float32, so that what rounds is the code."""
    with np.errstate(invalid="ignore", over="ignore"):
        y = acc.astype(np.float64) * scale
        y = y if row_scale is None else y * row_scale[:, None]
        y = (y if col_scale is None else y * col_scale) + zero
    got = run(row, acc, edge, row_scale=row_scale, col_scale=col_scale, scale=scale, zero=zero)
    np.testing.assert_array_equal(got.astype(np.float64), rounded_to_float8(y, np.dtype(row["out"]).type))
    return got


def codes(row):
    x = np.arange(256, dtype=np.uint8).view(row["out"]).astype(np.float32)
    return np.unique(x[np.isfinite(x)])


@pytest.mark.parametrize("row", SCALING)
def test_float8_codes_middles_and_their_neighbours(row):
    """To nearest, ties to even, by whole vectors and parts; what is past the largest becomes it in every format."""
    finite = codes(row)
    middles = finite[:-1] + np.diff(finite) / 2
    top = finite[-1] * np.float32([1, 1.03, 1.0625, 1.07, 1.5, 2, 1e30])
    x = np.concatenate([finite, middles, top, -top, np.float32([np.inf, -np.inf, 1e-30, -1e-30])])
    with np.errstate(over="ignore"):
        x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
    x = x[~np.isnan(x)]
    for n in (*range(1, 20), 63, 64, 65, 130):
        acc = np.resize(x, (-(-x.size // n), n))
        check_float8(row, acc, edge=EDGES[n % 2])
    for scale in (2.0 ** -3, 2.0 ** 5, -1.0):
        with np.errstate(over="ignore"):
            acc = x[None] / np.float32(scale)
        check_float8(row, acc, scale=scale)


@pytest.mark.parametrize("row", SCALING)
def test_float8_scales_and_zero_points(row):
    """Each combination of scales, which are powers of two, and zero points that the type has."""
    rng = np.random.default_rng(row["index"])
    finite = codes(row)
    for turn, n in enumerate(WIDTHS):
        m, edge = HEIGHTS[turn % 3], EDGES[turn % 2]
        acc = rng.integers(-2 ** 10, 2 ** 10, (m, n)).astype(np.float32)
        for own in (False, True):
            for other in (False, True):
                zero = float(rng.choice([0, 1, -2.5, finite[-1], finite[0]]))
                row_scale = powers(rng, m, -2, 2, edge) if own else None
                col_scale = powers(rng, n, -2, 2, edge) if other else None
                check_float8(row, acc, row_scale, col_scale, 2.0 ** rng.integers(-6, 3), zero, edge)


@pytest.mark.parametrize("row", SCALING)
def test_a_nan_stays_a_nan_and_alone(row):
    """Of a sum or a scale; infinity times zero is one too."""
    for n in (1, 5, 16, 37, 70):
        acc = np.ones((2, n), np.float32)
        acc[1, n // 2] = np.nan
        got = check_float8(row, acc, scale=0.5)
        assert np.isnan(got.astype(np.float32)).sum() == 1
        spoiled = np.ones(n)
        spoiled[n - 1] = np.nan
        check_float8(row, np.ones((2, n), np.float32), col_scale=spoiled)
        check_float8(row, np.ones((2, n), np.float32), row_scale=np.array([np.nan, 1.0]))
        assert np.isnan(check_float8(row, np.zeros((1, n), np.float32), scale=np.inf).astype(np.float32)).all()


@pytest.mark.parametrize("row", SCALING)
def test_float8_is_rounded_once(row):
    """A hair above the middle of two codes, less than float32 sees, is nearer to the upper one."""
    finite = codes(row)
    at = np.searchsorted(finite, 1)
    middle = (float(finite[at]) + float(finite[at + 1])) / 2  # from 1 up: the tie would go down to 1, which is even
    acc = np.full((1, 37), np.float32(2.0 ** -30))
    assert float(acc[0, 0]) + middle > middle
    got = run(row, acc, zero=middle)
    assert (got.astype(np.float32) == finite[at + 1]).all()


def test_unfit_vectors_are_refused():
    """The door of these tests checks lengths and types, which the kernels can't."""
    row = next(e for e in _registry.epilogues() if (e["acc"], e["out"]) == ("int32q", "int8"))
    acc, c = np.zeros((2, 3), np.int32), np.zeros((2, 3), np.int8)
    two, three = np.zeros(2, np.int32), np.zeros(3, np.int32)
    for bad in ({"row_add": three}, {"col_add": three.astype(np.int64)}, {"row_scale": two.astype(np.float32)},
                {"col_scale": np.zeros(2)}, {"products": [(two, two)]}):
        with pytest.raises(ValueError, match="contiguous"):
            _registry.run_epilogue(row["index"], acc, c, **bad)
