"""What rows with narrow operands promise beyond test_ukr.py: every code is read exactly, subnormals too, by whole and
partial loads; the row that flushes does so as documented, and `flush_free` says truly when that can't show.
"""
from fractions import Fraction

import numpy as np
import pytest
from narrow import codes, decoded
from support import check_values, flushes, is_narrow, product, row_params

from gemmkit._kernels import _registry

BF16 = np.dtype("bfloat16")
LEAST_NORMAL = Fraction(2) ** -126  # of float32 and bfloat16
FLUSHING = row_params(where=flushes)


def narrow_params(*roles, operand):
    return row_params(*roles, where=lambda row: is_narrow(row) and row[operand] != row["acc"] and row["kr"] == 1)


def every_code(dtype):
    return codes(np.dtype(dtype).type)


def check_decoded(got, x):
    """got: x times one, added to zero."""
    check_values(got, np.broadcast_to(decoded(x), got.shape), zeros_have_signs=False)


# ---- Decoding

@pytest.mark.parametrize("row", narrow_params("gemm", "stream", operand="b"))
def test_every_code_of_b(row):
    """One step of K with A = 1: C is B as it was read, by whole vectors and by partial ones."""
    every, vl = every_code(row["b"]), row["vl"]
    a = np.ones((2, 1), row["a"])
    for n in {row["nr"] if row["role"] == "gemm" else 1024 * vl, *([vl - 1] if vl > 1 else [])}:
        lines = np.resize(every, (-(-every.size // n), n))
        c = np.empty((len(lines), 2, n), row["acc"])
        for i in range(len(lines)):
            _registry.run_row(row["index"], a, lines[i:i + 1], c[i])
        check_decoded(c, lines[:, None, :])


@pytest.mark.parametrize("row", narrow_params("gemm", "stream", operand="b"))
def test_partial_loads_of_b_take_any_code(row):
    """Each number of columns up to two vectors, with codes of all bits: small integers have many bits that are zero."""
    rng = np.random.default_rng(row["index"])
    every = every_code(row["b"])
    a = np.ones((1, 1), row["a"])
    for n in range(1, min(2 * row["vl"], row["nr"]) + 1):
        for _ in range(20):
            b, c = rng.choice(every, (1, n)), np.empty((1, n), row["acc"])
            _registry.run_row(row["index"], a, b, c)
            check_decoded(c, b)


def dot_once(row, narrow, places, chunk, one):
    """C of a dot row whose narrow operand has chunk[i] in line i at places[i], zeros elsewhere, the other being one."""
    narrow[...] = 0
    narrow[np.arange(len(chunk)), places] = chunk
    if row["b"] != row["acc"]:
        c = np.empty((len(one), len(chunk)), row["acc"])
        _registry.run_row(row["index"], one, narrow.T, c)
        return c
    c = np.empty((len(chunk), len(one)), row["acc"])
    _registry.run_row(row["index"], narrow, one.T, c)
    return c.T


@pytest.mark.parametrize("row", [*narrow_params("dot", operand="b"), *narrow_params("dot", operand="a")])
def test_every_code_of_a_dot_row(row):
    """Each code alone in a line of zeros, at all places of whole vectors and of a partial one by turns."""
    operand = "b" if row["b"] != row["acc"] else "a"
    every, lines = every_code(row[operand]), row["nr" if operand == "b" else "mr"]
    k = 5 * row["vl"] - 1 if row["vl"] > 1 else 5
    narrow, one = np.zeros((lines, k), row[operand]), np.ones((1, k), row["acc"])
    got = np.concatenate([dot_once(row, narrow, (i + np.arange(lines)) % k, chunk, one)[0]
                          for i, chunk in enumerate(every.reshape(-1, lines))])
    check_decoded(got, every)


@pytest.mark.parametrize("row", [*narrow_params("dot", operand="b"), *narrow_params("dot", operand="a")])
def test_partial_loads_of_a_dot_row_take_any_code(row):
    """Each depth up to two vectors: sums of finite codes of all bits, against zeros at all places but one."""
    rng = np.random.default_rng(row["index"])
    operand = "b" if row["b"] != row["acc"] else "a"
    every = every_code(row[operand])
    finite = every[np.isfinite(decoded(every))]
    for k in range(1, 2 * row["vl"] + 1):
        for p in range(k):
            narrow, unit = rng.choice(finite, (2, k)), np.zeros((1, k), row["acc"])
            unit[0, p] = 1
            c = np.empty((1, 2) if operand == "b" else (2, 1), row["acc"])
            _registry.run_row(row["index"], *((unit, narrow.T) if operand == "b" else (narrow, unit.T)), c)
            check_decoded(c.ravel(), narrow[:, p])


@pytest.mark.parametrize("operand", "ab")
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("row", row_params(where=lambda row: row["kr"] == 2))
def test_every_code_in_panels_of_pairs(row, at, operand):
    """One pair of steps, a code and a zero, times ones: exact, but that a row that flushes reads subnormals as zero."""
    every, width = every_code(row[operand]), row["mr" if operand == "a" else "nr"]
    lines = np.resize(every, (-(-every.size // width), width))
    pairs = np.zeros((*lines.shape, 2), row[operand])
    pairs[..., at] = lines
    c = np.empty((len(lines), *((width, 1) if operand == "a" else (1, width))), row["acc"])
    one = np.ones((1, 1, 2), row["b" if operand == "a" else "a"])
    for i, pair in enumerate(pairs):
        a, b = (pair[:, None], one) if operand == "a" else (one, pair[None])
        _registry.run_row(row["index"], a, b, c[i])
    want = decoded(lines).copy()
    if flushes(row):
        subnormal = (abs(want) < float(LEAST_NORMAL)) & (want != 0)
        assert subnormal.sum() >= 2 * 127
        want[subnormal] = 0
    check_values(c.reshape(lines.shape), want, zeros_have_signs=False)


# ---- Rows that flush

def twin(row):
    """The row that stands in for one that flushes."""
    same = ("role", "a", "b", "acc", "mr", "nr", "kr", "vl")
    found = [r for r in _registry.rows() if all(r[x] == row[x] for x in same) and not flushes(r)]
    assert len(found) == 1
    return found[0]


def multiply(row, a, b):
    """Lines of A times columns of B, (m, k) and (k, n) with even k, through panels of pairs."""
    c = np.full((len(a), b.shape[1]), np.nan, np.float32)
    _registry.run_row(row["index"], a.reshape(len(a), -1, 2),
                      np.ascontiguousarray(b.reshape(-1, 2, b.shape[1]).transpose(0, 2, 1)), c)
    return c


def numbers(*values):
    x = np.array(values, np.float64).astype(BF16)
    assert (x.astype(np.float64) == values).all()
    return x


@pytest.mark.parametrize("row", FLUSHING)
@pytest.mark.parametrize("a, b, exact", [
    ([2.0 ** -127, 0], [2.0, 0], 2.0 ** -126),  # a subnormal operand
    ([1.0, 0], [127 * 2.0 ** -133, 0], 127 * 2.0 ** -133),
    ([2.0 ** -64, 0], [2.0 ** -64, 0], 2.0 ** -128),  # a subnormal product
    ([1.5 * 2.0 ** -63, 2.0 ** -63], [2.0 ** -63, -(2.0 ** -63)], 2.0 ** -127),  # a subnormal sum of two normal ones
])
def test_subnormals_are_zero_to_a_row_that_flushes_and_not_to_its_twin(row, a, b, exact):
    a, b = numbers(*a)[None], numbers(*b)[:, None]
    assert multiply(row, a, b) == 0
    assert multiply(twin(row), a, b) == exact


@pytest.mark.parametrize("row", FLUSHING)
def test_other_values_are_the_same_to_both(row):
    """Exact sums over the whole range of exponents: nothing but subnormals is told apart."""
    rng = np.random.default_rng(row["index"])
    for shift_a in range(-100, 101, 20):
        for shift_b in range(-100, 101, 20):
            if abs(shift_a + shift_b) > 100:
                continue
            a = (rng.integers(-128, 129, (row["mr"], 64)) * 2.0 ** shift_a).astype(BF16)
            b = (rng.integers(-128, 129, (64, row["nr"])) * 2.0 ** shift_b).astype(BF16)
            exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
            assert np.array_equal(multiply(row, a, b), exact) and np.array_equal(multiply(twin(row), a, b), exact)


# ---- flush_free

def number_of(bits):
    """The exact value of a finite bfloat16's bits."""
    exponent, fraction = bits >> 7 & 255, bits & 127
    size = Fraction(2) ** (max(exponent, 1) - 134) * (fraction + (128 if exponent else 0))
    return -size if bits & 0x8000 else size


def test_subnormal_operands_are_never_free():
    others = (1, 0x7f, 0x80, 0x3f80, 0x7f7f, 0x7f80, 0x7fff)
    for subnormal in range(1, 0x80):
        for other in others:
            assert not _registry.flush_free(subnormal, other) and not _registry.flush_free(other, subnormal)


def test_what_every_product_is_a_multiple_of():
    """Where it is free, all products are multiples of the least normal number, and so is any sum, rounded or not.

    A number at or above an exponent is a multiple of that exponent's last place; a float32 that is a multiple of a power
    of two stays one when it is rounded, as rounding only drops lower bits.
    """
    for least_a in range(0x80, 0x7f80, 0x80):
        for least_b in range(0x80, 0x7f80, 0x80):
            place = number_of(least_a) * number_of(least_b) / 128 ** 2
            assert _registry.flush_free(least_a, least_b) == (place >= LEAST_NORMAL)
    for least_a in (0x2380, 0x23ff, 0x2400, 0x7f80, 0x7fff):  # the fraction changes nothing; zeros are above all numbers
        for least_b in (0x2280, 0x2300, 0x237f, 0x7fff):
            assert _registry.flush_free(least_a, least_b) == ((least_a >> 7) + (least_b >> 7) >= 142)
    assert _registry.flush_free(0x7fff, 0x7fff)  # all zeros


def rounded(x):
    """A multiple of 2^-149 rounded to float32 to nearest even, in Python's integers."""
    units = x * 2 ** 149
    assert units.denominator == 1
    whole, drop = abs(units.numerator), max(0, abs(units.numerator).bit_length() - 24)
    half, rest = (1 << drop) >> 1, whole & (1 << drop) - 1
    kept = whole >> drop
    if drop and (rest > half or (rest == half and kept & 1)):
        kept += 1
    return Fraction((kept << drop) * (-1 if units < 0 else 1), 2 ** 149)


def at_least(rng, least, count, spread):
    """Bits of any sign whose magnitude is `least` or more, in the first `spread` exponents from there."""
    bits = rng.integers(least, (least & 0x7f80) + 0x80 * spread, count)
    return bits | rng.integers(0, 2, count) << 15


def edge_of_freedom(rng):
    """Least magnitudes whose exponents are just large enough together."""
    exponent = int(rng.integers(1, 142))
    return [e << 7 | int(rng.integers(0, 128)) for e in (exponent, 142 - exponent)]


def test_no_partial_sum_is_subnormal_where_it_is_free():
    """Python's fractions sum in random orders, rounding each time: what is left after cancellation is zero or normal."""
    rng = np.random.default_rng(7)
    for _ in range(300):
        least = edge_of_freedom(rng)
        assert _registry.flush_free(*least) and not _registry.flush_free(least[0], least[1] - 0x80)
        a, b = (at_least(rng, x, 8, 1 + int(rng.integers(0, 4))) for x in least)
        products = [number_of(int(x)) * number_of(int(y)) for x, y in zip(a, b)]
        products += [-p for p in products[:6]]  # and much that cancels
        for _ in range(4):
            total = Fraction(0)
            for i in rng.permutation(len(products)):
                total = rounded(total + products[i])
                assert total == 0 or abs(total) >= LEAST_NORMAL
            assert rounded(sum(products)) == 0 or abs(rounded(sum(products))) >= LEAST_NORMAL


def least_of(packer, x, R):
    """The trailer of the only panel of lines x."""
    w, k = x.shape
    panel = np.empty(_registry.panel_bytes("bfloat16", R, k), np.uint8)
    _registry.run_pack(packer["index"], x, R, panel)
    return int(panel[-64:].view(np.uint16)[0])


@pytest.mark.parametrize("row", FLUSHING)
def test_results_are_exact_where_it_is_free(row):
    """At the edge of freedom each sum is a small multiple of the least normal number, exact in any order of summation.

    One binade lower the row that flushes loses some of them, so the edge is where it must be; its twin never does.
    """
    rng = np.random.default_rng(row["index"])
    packer = next(p for p in _registry.packers() if (p["from"], p["to"]) == ("bfloat16", row["a"]))
    lost = 0
    for turn in range(60):
        exponents = [int(rng.integers(1, 142))]
        exponents.append(142 - exponents[0])
        # Fractions close to each other, with signs that make neighbours cancel almost.
        a, b = (rng.integers(0, 4, shape) | e << 7 | rng.integers(0, 2, shape) << 15
                for shape, e in zip(((row["mr"], 16), (row["nr"], 16)), exponents))
        a, b = a.astype(np.uint16), b.astype(np.uint16)
        for lower in (0, 1):
            if lower and min(exponents) == 1:
                continue
            left, right = a.view(BF16), (b - 0x80 * lower).astype(np.uint16).view(BF16)
            free = _registry.flush_free(least_of(packer, left, row["mr"]), least_of(packer, right, row["nr"]))
            assert free == (not lower)
            exact = left.astype(np.float64) @ right.T.astype(np.float64)
            assert np.array_equal(exact.astype(np.float32), exact)
            assert np.array_equal(multiply(twin(row), left, right.T), exact)
            same = multiply(row, left, right.T) == exact
            if free:
                assert same.all()
            lost += (~same).sum()
    assert lost


@pytest.mark.parametrize("row", FLUSHING)
def test_random_results_are_within_the_bound_where_it_is_free(row):
    """No part of the bound is for underflow, however small the sums are."""
    rng = np.random.default_rng(row["index"])
    u = 2.0 ** -24
    for k in (2, 16, 200):
        for _ in range(30):
            least = edge_of_freedom(rng)
            a, b = (at_least(rng, x, shape, 3).astype(np.uint16).view(BF16)
                    for x, shape in zip(least, ((row["mr"], k), (k, row["nr"]))))
            wide_a, wide_b = a.astype(np.longdouble), b.astype(np.longdouble)
            exact, size = product(wide_a, wide_b), product(abs(wide_a), abs(wide_b))
            for r in (row, twin(row)):
                assert (abs(multiply(r, a, b) - exact) <= (k + 8) * u * size).all()
