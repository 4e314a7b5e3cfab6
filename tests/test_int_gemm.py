"""gemm on 32- and 64-bit integers: exact modulo 2^bits for whole alpha and beta, through float64 for others."""
import itertools
from fractions import Fraction

import numpy as np
import pytest
import support
from integers import (
    BOOL,
    BYTES,
    COUNTS,
    F32,
    F64,
    I16,
    I32,
    I64,
    U16,
    U32,
    U64,
    check,
    layouts,
    limits,
    modular,
    name,
    onnx_reference,
    some,
    values,
    windows,
    wrap,
)

import gemmkit

TYPES = (I32, I64, U32, U64)
FLAGS = [(False, False), (False, True), (True, False), (True, True)]  # trans_a, trans_b
SIZES = [(1, 1, 1), (3, 17, 16), (33, 1, 40), (1, 40, 9), (50, 49, 31), (5, 7, 3), (37, 51, 130)]  # m, n, k
FACTORS = [(1, 1), (-1, 1), (2.0, -3.0), (0, 5), (-7, 0), (2 ** 31, -2 ** 31 - 1), (2 ** 63 + 5, 3 - 2 ** 64),
           (2 ** 200 + 7, -(2 ** 70) - 11), (1e300, 2.0 ** 53)]  # whole numbers

by_type = pytest.mark.parametrize("dtype", TYPES, ids=name)


def c_shapes(m, n):
    """Every shape that broadcasts one way to (m, n)."""
    return [(), (1,), (n,), (1, 1), (1, n), (m, 1), (m, n)]


def turned(x, flag):
    return x.T if flag else x


def expected(a, b, c=None, alpha=1, beta=1):
    """The definition for whole alpha and beta, modulo 2^bits."""
    with np.errstate(over="ignore"):
        total = modular(a, b) * U64(int(alpha) % 2 ** 64)
        if c is not None:
            total = total + np.asarray(c).astype(I64).view(U64) * U64(int(beta) % 2 ** 64)
    return wrap(total, a.dtype)


def truncated(a, b, c, alpha, beta):
    """The same for dyadic alpha and beta and for sums that float64 holds with all their fractions."""
    value = alpha * modular(a, b).view(I64).astype(F64) + (0 if c is None else beta * c.astype(F64))
    assert abs(value).max() < 2 ** 40
    return np.trunc(value).astype(a.dtype)


def check_fractional(got, a, b, c, alpha, beta):
    """Truncated from float64, whose roundings may move what is nearly whole."""
    product = wrap(modular(a, b), a.dtype).astype(object)
    bias = np.broadcast_to(np.asarray(0 if c is None else c).astype(object), product.shape)
    assert got.dtype == a.dtype and got.shape == product.shape
    exact_alpha, exact_beta = Fraction(alpha), Fraction(beta)
    for x, p, q in zip(got.ravel().tolist(), product.ravel().tolist(), bias.ravel().tolist()):
        value = exact_alpha * p + exact_beta * q
        exact = all(abs(term) < 2 ** 53 for term in (p, q)) and 2 ** 20 * value == int(2 ** 20 * value)
        slack = 0 if exact else Fraction(4, 2 ** 53) * (abs(exact_alpha * p) + abs(exact_beta * q))
        assert int(value - slack) <= x <= int(value + slack), (x, p, q)


# ---- Whole numbers

@pytest.mark.parametrize("trans_a,trans_b", FLAGS)
@by_type
def test_transpositions_alpha_beta_and_every_c(dtype, trans_a, trans_b, isa):
    for m, n, k in SIZES:
        a, b = some(1, ((k, m) if trans_a else (m, k), dtype), ((n, k) if trans_b else (k, n), dtype))
        left, right = turned(a, trans_a), turned(b, trans_b)
        flags = {"trans_a": trans_a, "trans_b": trans_b}
        check(gemmkit.gemm(a, b, **flags), expected(left, right))
        for shape, (alpha, beta) in zip(itertools.cycle(c_shapes(m, n)), FACTORS):
            c, = some(2, (shape, dtype))
            got = gemmkit.gemm(a, b, c, alpha=alpha, beta=beta, **flags)
            assert type(got) is np.ndarray
            check(got, expected(left, right, c, alpha, beta))


@by_type
def test_every_pair_of_c_and_factors(dtype):
    m, n, k = 9, 40, 17
    a, b = some(3, ((m, k), dtype), ((k, n), dtype))
    for shape, (alpha, beta) in itertools.product(c_shapes(m, n), FACTORS):
        c, = some(4, (shape, dtype))
        check(gemmkit.gemm(a, b, c, alpha=alpha, beta=beta), expected(a, b, c, alpha, beta))


@by_type
def test_factors_of_every_kind_of_number(dtype):
    a, b, c = some(5, ((5, 6), dtype), ((6, 7), dtype), ((7,), dtype))
    for whole in (3, 3.0, F32(3), F64(3), np.int64(3), np.uint8(3), np.array(3.0)):
        check(gemmkit.gemm(a, b, c, alpha=whole, beta=whole), expected(a, b, c, 3, 3))
    for minus in (-2, -2.0, F32(-2), np.int16(-2)):
        check(gemmkit.gemm(a, b, c, alpha=minus, beta=minus), expected(a, b, c, -2, -2))


def test_64_bits_are_not_sent_through_float64():
    for dtype in (I64, U64):
        big = np.array([[2 ** 53 + 1, 2 ** 62 + 1]], dtype)
        one, c = np.ones((1, 1), dtype), np.array([2 ** 60 + 3, 2 ** 55 + 5], dtype)
        check(gemmkit.gemm(one, big), big)
        check(gemmkit.gemm(one, big, c, alpha=1.0, beta=1.0), big + c)
        check(gemmkit.gemm(one, big, c, alpha=-1.0, beta=2.0), expected(one, big, c, -1, 2))
        check(gemmkit.gemm(big.T, one, c[:, None], alpha=2 ** 53 + 1), expected(big.T, one, c[:, None], 2 ** 53 + 1))
        check(gemmkit.gemm(np.zeros((3, 0), dtype), np.zeros((0, 2), dtype), c, beta=3),
              np.broadcast_to(wrap(c.astype(object) * 3, dtype), (3, 2)))


@by_type
def test_extremes_wrap(dtype, isa):
    low, high = limits(dtype)
    for (x, y, z), (m, n, k) in itertools.product(((low, low, high), (high, high, high), (low, high, low)),
                                                  ((1, 40, 33), (40, 1, 33), (20, 49, 64))):
        a, b, c = np.full((m, k), x, dtype), np.full((k, n), y, dtype), np.full((m, n), z, dtype)
        for alpha, beta in FACTORS[:4]:
            want = wrap(np.array(int(alpha) * k * x * y + int(beta) * z, object), dtype)
            check(gemmkit.gemm(a, b, c, alpha=alpha, beta=beta), np.full((m, n), want))


@by_type
def test_several_blocks_of_k(dtype, isa):
    """alpha and c count once."""
    for m, n, k in ((9, 53, 9001), (40, 70, 2003)):
        a, b, c = some(6, ((m, k), dtype), ((k, n), dtype), ((m, n), dtype))
        check(gemmkit.gemm(a, b, c, alpha=3, beta=-2), expected(a, b, c, 3, -2))


# ---- Other numbers

DYADIC = [(0.5, 1), (-0.5, -0.25), (1.5, 0.75), (1, 0.5), (3, -0.125), (0.25, 0), (0, 0.5)]


@by_type
def test_fractions_are_truncated_toward_zero(dtype, isa):
    signed = limits(dtype)[0] < 0
    rng = np.random.default_rng(7)
    for m, n, k in SIZES:
        # a result below zero is nothing that an unsigned type could have been given
        a, b, c = (values(rng, shape, dtype, -99 if signed else 0, 99) for shape in ((m, k), (k, n), (m, n)))
        for alpha, beta in DYADIC if signed else [(abs(x), abs(y)) for x, y in DYADIC]:
            check(gemmkit.gemm(a, b, alpha=alpha, beta=beta), truncated(a, b, None, alpha, beta))
            for bias in (c, c[0], c[:, :1], c[:1, :1]):
                check(gemmkit.gemm(a, b, bias, alpha=alpha, beta=beta), truncated(a, b, bias, alpha, beta))


def test_truncation_and_not_rounding():
    a, b = np.array([[-7], [-5], [-1], [0], [1], [5], [7]], I32), np.ones((1, 1), I32)
    for alpha, want in ((0.5, [-3, -2, 0, 0, 0, 2, 3]), (0.75, [-5, -3, 0, 0, 0, 3, 5]),
                        (-0.5, [3, 2, 0, 0, 0, -2, -3])):
        check(gemmkit.gemm(a, b, alpha=alpha), np.array(want, I32)[:, None])
    # once, of the whole sum: -3.5 + 0.25, not -3 + 0
    check(gemmkit.gemm(a[:1], b, np.array([1], I32), alpha=0.5, beta=0.25), np.array([[-3]], I32))
    check(gemmkit.gemm(a[:1], b, np.array([1], I32), alpha=0.5, beta=0.5), np.array([[-3]], I32))
    check(gemmkit.gemm(a[:1], b, np.array([3], I32), alpha=0.5, beta=0.5), np.array([[-2]], I32))


@by_type
def test_any_fractions(dtype):
    rng = np.random.default_rng(8)
    signed = limits(dtype)[0] < 0
    most = 2 ** 14 if np.dtype(dtype).itemsize == 4 else 2 ** 29  # products of 28 and 58 bits
    for m, n, k in ((5, 7, 3), (1, 40, 5), (33, 20, 4)):
        a, b, c = (values(rng, shape, dtype, -most if signed else 0, most) for shape in ((m, k), (k, n), (m, n)))
        for alpha, beta in ((0.3, 1.7), (1 / 3, 1), (1, 0.1), (0.7, 0)) + (((-0.3, 0.9),) if signed else ()):
            check_fractional(gemmkit.gemm(a, b, c, alpha=alpha, beta=beta), a, b, c, alpha, beta)


@by_type
def test_a_fraction_of_a_wrapped_product(dtype):
    high = limits(dtype)[1]
    a, b = np.array([[high, 3]], dtype), np.array([[5], [1]], dtype)
    product = wrap(np.array(5 * high + 3, object), dtype)
    assert 0 < product < high
    check_fractional(gemmkit.gemm(a, b, alpha=0.5), a, b, None, 0.5, 1)


# ---- c

class Untouchable:
    """Matrices in a page that ends the process when it is read."""

    def __init__(self):
        self.buffer = support.GuardedBuffer(1)

    def matrix(self, shape, dtype):
        return np.ndarray(shape, dtype, self.buffer.map, 0)


@by_type
def test_beta_zero_never_reads_c(dtype, isa):
    page = Untouchable()
    for m, n, k in ((3, 17, 16), (20, 1, 40), (1, 40, 9), (5, 7, 0)):
        a, b = some(9, ((m, k), dtype), ((k, n), dtype))
        for shape, alpha in itertools.product(c_shapes(m, n), (1, -2)):
            check(gemmkit.gemm(a, b, page.matrix(shape, dtype), alpha=alpha, beta=0), expected(a, b, None, alpha))


@by_type
def test_an_empty_sum_leaves_beta_times_c(dtype, isa):
    for m, n in ((4, 5), (64, 48), (1, 70), (70, 1)):
        a, b = np.empty((m, 0), dtype), np.empty((0, n), dtype)
        check(gemmkit.gemm(a, b), np.zeros((m, n), dtype))
        for shape in c_shapes(m, n):
            c, = some(10, (shape, dtype))
            for beta, out in itertools.product((1, -3, 0, 2 ** 64 + 1), (None, np.full((n, m), 113, dtype).T)):
                check(gemmkit.gemm(a, b, c, alpha=5, beta=beta, out=out), expected(a, b, c, 5, beta))
        c = np.full((m, n), 7, dtype)
        check(gemmkit.gemm(a, b, c, beta=0.5), np.full((m, n), 3, dtype))


@by_type
def test_empty_results(dtype):
    for (m, n), k in itertools.product(((0, 4), (4, 0), (0, 0)), (0, 3)):
        a, b = np.ones((m, k), dtype), np.ones((k, n), dtype)
        for shape in c_shapes(m, n):
            check(gemmkit.gemm(a, b, np.ones(shape, dtype), alpha=2), np.ones((m, n), dtype))


@by_type
def test_a_rank_1_c_is_a_row_on_square_results_too(dtype):
    for n in (1, 2, 4, 33):
        a, b, c = some(11, ((n, 5), dtype), ((5, n), dtype), ((n,), dtype))
        check(gemmkit.gemm(a, b, c), expected(a, b, c[None, :]))
        check(gemmkit.gemm(a, b, c[:, None]), expected(a, b, c[:, None]))


@by_type
def test_a_python_integer_is_a_c(dtype):
    a, b = some(12, ((5, 6), dtype), ((6, 7), dtype))
    check(gemmkit.gemm(a, b, 3, beta=2), expected(a, b, 6))


# ---- Memory

@pytest.mark.parametrize("size", [(21, 18, 19), (1, 40, 30), (40, 1, 30)], ids=str)
@by_type
def test_operands_in_any_memory(dtype, size, isa):
    m, n, k = size
    a, b, c = some(13, ((m, k), dtype), ((k, n), dtype), ((m, n), dtype))
    want = expected(a, b, c, -1, 3)
    for x, y in itertools.product(layouts(a).values(), layouts(b).values()):
        check(gemmkit.gemm(x, y, c, alpha=-1, beta=3), want)
    for z in layouts(c).values():
        check(gemmkit.gemm(a, b, z, alpha=-1, beta=3), want)
        check(gemmkit.gemm(a.T, b.T, z, alpha=-1, beta=3, trans_a=True, trans_b=True), want)
    for z in (c[:1], c[:, :1], c[:1, :1]):
        check(gemmkit.gemm(a, b, np.broadcast_to(z, (m, n))), expected(a, b, z))


@by_type
def test_unaligned_swapped_and_read_only_operands(dtype):
    a, b, c = some(14, ((5, 6), dtype), ((6, 7), dtype), ((7,), dtype))
    record = np.dtype([("tag", "S1"), ("x", dtype)])
    swapped = np.dtype(dtype).newbyteorder()
    for place in (lambda shape: np.zeros(shape, record)["x"], lambda shape: np.zeros(shape, swapped)):
        operands = [place(x.shape) for x in (a, b, c)]
        for x, content in zip(operands, (a, b, c)):
            x[...] = content
            x.flags.writeable = False
        check(gemmkit.gemm(*operands, beta=-2), expected(a, b, c, 1, -2))


@by_type
@pytest.mark.parametrize("size", [(6, 6, 6), (33, 33, 33), (1, 40, 9), (40, 1, 9)], ids=str)
def test_out_in_any_memory_and_over_any_operand(size, dtype):
    m, n, k = size
    a, b, c = some(15, ((m, k), dtype), ((k, n), dtype), ((m, n), dtype))
    for buffer, out in windows((m, n), dtype):
        assert gemmkit.gemm(a, b, c, alpha=5, beta=-2, out=out) is out
        check(out, expected(a, b, c, 5, -2))
        out[...] = 7
        assert (buffer == 7).all()
    for over, beta in itertools.product(range(3), (1, -2, 0.5)):
        operands = [x % 50 for x in (a, b, c)]
        out, want = operands[over], gemmkit.gemm(*operands, beta=beta)
        if out.shape == (m, n):
            check(gemmkit.gemm(*operands, beta=beta, out=out), want)
        if beta != 0.5:
            check(want, expected(a % 50, b % 50, c % 50, 1, beta))


@by_type
def test_any_number_of_threads_gives_the_same_bits(dtype):
    for m, n, k in ((301, 199, 203), (1, 4999, 303), (2003, 3, 103), (3, 5, 100_003)):
        a, b, c = some(16, ((m, k), dtype), ((k, n), dtype), ((m, 1), dtype))
        results = []
        for count in COUNTS:
            with gemmkit.threads(count):
                results.append(gemmkit.gemm(a, b, c, alpha=-3, beta=7))
        for got in results:
            check(got, wrap(-3 * modular(a, b).view(I64) + 7 * c.astype(I64), dtype))  # numpy's 64 bits wrap


# ---- Errors

@pytest.mark.parametrize("other", [BOOL, *BYTES, I16, U16], ids=name)
def test_other_integers_are_refused(other):
    for dtype in TYPES:
        a, b, c, out = np.ones((4, 3), dtype), np.ones((3, 5), dtype), np.ones(5, dtype), np.full((4, 5), 7, dtype)
        for operands in ((a.astype(other), b), (a, b.astype(other)), (a, b, c.astype(other)),
                         (a.astype(other), b.astype(other)), (a.astype(other), b.astype(other), c.astype(other))):
            with pytest.raises(TypeError):
                gemmkit.gemm(*operands)
            with pytest.raises(TypeError):
                gemmkit.gemm(*operands, out=out)
        assert (out == 7).all()


@by_type
def test_unfit_arguments_are_refused_and_out_is_left_alone(dtype):
    a, b, c = some(17, ((4, 3), dtype), ((3, 5), dtype), ((5,), dtype))
    out = np.full((4, 5), 7, dtype)
    for operands in ((a[0], b), (a, b[:, 0]), (a[None], b), (a, b[None]), (a, b[:2]), (a.T, b)):
        with pytest.raises(ValueError):
            gemmkit.gemm(*operands, out=out)
    for shape, beta in itertools.product(((4,), (1, 4, 5), (2, 5), (5, 4), (0,), (5, 1)), (1, 0, 0.5)):
        with pytest.raises(ValueError, match="c: shape"):
            gemmkit.gemm(a, b, np.ones(shape, dtype), beta=beta, out=out)
    for bad in (None, 1j, [1, 2], "2"):
        for which in ("alpha", "beta"):
            with pytest.raises(TypeError, match=which):
                gemmkit.gemm(a, b, c, **{which: bad}, out=out)
    for other in (*TYPES, F32, F64):
        if other != dtype:
            with pytest.raises(TypeError):
                gemmkit.gemm(a, b, c, out=out.astype(other))
            with pytest.raises(TypeError):
                gemmkit.gemm(a, b, c, out_dtype=other)
    for unfit in (out[:3], out.T, np.broadcast_to(out[0], (4, 5))):
        with pytest.raises(ValueError, match="out"):
            gemmkit.gemm(a, b, c, out=unfit)
    assert (out == 7).all()
    check(gemmkit.gemm(a, b, c, out_dtype=dtype), expected(a, b, c))


def test_32_and_64_bits_meet_in_their_common_type():
    for pair, common in (((I32, I64), I64), ((I32, U32), I64), ((U32, I64), I64), ((U32, U64), U64)):
        a, b, c = some(18, ((5, 6), pair[0]), ((6, 7), pair[1]), ((7,), common))
        check(gemmkit.gemm(a, b, alpha=-3), expected(a.astype(common), b.astype(common), None, -3))
        check(gemmkit.gemm(b.T, a.T, c[:5], beta=3), expected(b.T.astype(common), a.T.astype(common), c[:5], 1, 3))


# ---- Another implementation

@by_type
def test_the_onnx_reference_agrees_where_float64_holds_the_sums(dtype):
    rng = np.random.default_rng(19)
    signed = limits(dtype)[0] < 0
    m, n, k, low = 4, 6, 5, -99 if signed else 0
    factors = ((1.0, 1.0), (2.0, 3.0), (0.5, 0.25), (1.5, 1.0))
    for (trans_a, trans_b), (alpha, beta) in itertools.product(FLAGS, factors):
        a = values(rng, (k, m) if trans_a else (m, k), dtype, low, 99)
        b = values(rng, (n, k) if trans_b else (k, n), dtype, low, 99)
        for shape in c_shapes(m, n):
            c = values(rng, shape, dtype, low, 99)
            want = onnx_reference("Gemm", [a, b, c], dtype, 13, alpha=alpha, beta=beta, transA=int(trans_a),
                                  transB=int(trans_b))
            check(gemmkit.gemm(a, b, c, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b), want)
