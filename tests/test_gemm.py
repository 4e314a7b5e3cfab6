"""gemm as ONNX Gemm 13 defines it: transpositions, alpha and beta, every c, and what the epilogue may read or cost."""
import itertools
import subprocess
import sys
import textwrap
import tracemalloc

import numpy as np
import pytest
import support

import gemmkit

FLOATS = (np.float32, np.float64)
FLAGS = [(False, False), (False, True), (True, False), (True, True)]  # trans_a, trans_b
SIZES = [(1, 1, 1), (1, 2, 7), (3, 17, 16), (33, 1, 40), (1, 40, 9), (50, 49, 31), (5, 7, 3), (67, 51, 130)]  # m, n, k
BETAS = (1.0, -2.0, 0.5, 0.0)


def c_shapes(m, n):
    """Every shape that broadcasts one way to (m, n)."""
    return [(), (1,), (n,), (1, 1), (1, n), (m, 1), (m, n)]


def expected(a, b, c=None, alpha=1.0, beta=1.0, trans_a=False, trans_b=False):
    """The definition, in a wider type; exact for small integers and dyadic alpha and beta."""
    a, b = a.T if trans_a else a, b.T if trans_b else b
    result = alpha * support.product(*(x.astype(support.wider(a.dtype)) for x in (a, b)))
    return result if c is None or beta == 0 else result + beta * np.asarray(c, result.dtype)


def integers(seed, *shapes, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [support.small_integers(rng, shape, dtype) for shape in shapes]


def views(c):
    """The same c in other memory: gaps, backwards, by columns, repeated where it can be."""
    yield c
    yield np.asfortranarray(c)
    backwards = (..., *[slice(None, None, -1)] * c.ndim)
    yield c[backwards].copy()[backwards]
    gaps = np.full([3 * size for size in c.shape], np.nan, c.dtype)[(..., *[slice(1, None, 3)] * c.ndim)]
    gaps[...] = c
    yield gaps


# ---- The definition

@pytest.mark.parametrize("trans_a,trans_b", FLAGS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_transpositions_alpha_beta_and_every_c(size, trans_a, trans_b, wide_isa):
    m, n, k = size
    for dtype in FLOATS:
        a, b = integers(1, (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n), dtype=dtype)
        flags = {"trans_a": trans_a, "trans_b": trans_b}
        for shape in [None, *c_shapes(m, n)]:
            c = None if shape is None else integers(2, shape, dtype=dtype)[0]
            for alpha, beta in itertools.product((1.0, 0.5, -2.0), BETAS):
                got = gemmkit.gemm(a, b, c, alpha=alpha, beta=beta, **flags)
                assert type(got) is np.ndarray and got.dtype == dtype
                np.testing.assert_array_equal(got, expected(a, b, c, alpha, beta, **flags))


@pytest.mark.parametrize("trans_a,trans_b", FLAGS)
def test_transposed_operands_in_any_memory(trans_a, trans_b):
    m, n, k = 37, 50, 41
    a, b = integers(3, (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n))
    want = expected(a, b, trans_a=trans_a, trans_b=trans_b)
    for x, y in itertools.product(views(a), views(b)):
        np.testing.assert_array_equal(gemmkit.gemm(x, y, trans_a=trans_a, trans_b=trans_b), want)


@pytest.mark.parametrize("size", [(9, 40, 30), (40, 1, 30), (1, 70, 30), (64, 64, 64), (70, 97, 300)], ids=str)
def test_c_is_read_in_any_memory(size, wide_isa):
    m, n, k = size
    a, b = integers(4, (m, k), (k, n))
    column_major = np.empty((n, m), np.float32).T
    for shape, beta in itertools.product(c_shapes(m, n), (1.0, 0.5)):
        c, = integers(5, shape)
        want = expected(a, b, c, beta=beta)
        for view in (*views(c), np.broadcast_to(c, (m, n)), np.broadcast_to(c, (m, n))[::-1, ::-1][::-1, ::-1]):
            np.testing.assert_array_equal(gemmkit.gemm(a, b, view, beta=beta), want)
            np.testing.assert_array_equal(gemmkit.gemm(a, b, view, beta=beta, out=column_major), want)


def test_rounding_stays_within_the_bound(wide_isa):
    rng = np.random.default_rng(6)
    for dtype, (m, n, k) in itertools.product(FLOATS, SIZES):
        a, b, c = (support.random_values(rng, shape, dtype) for shape in ((m, k), (k, n), (m, n)))
        support.check_close(gemmkit.gemm(a, b, c), a, b, c)
        got = gemmkit.gemm(a, b, c, alpha=0.3, beta=-1.7)
        size = expected(abs(a), abs(b), abs(c), 0.3, 1.7)
        assert (abs(got - expected(a, b, c, 0.3, -1.7)) <= (k + 10) * np.finfo(dtype).eps * size).all()


@pytest.mark.parametrize("n", [1, 2, 4, 33])
def test_a_rank_1_c_is_a_row_on_square_results_too(n):
    a, b, c = integers(7, (n, 5), (5, n), (n,))
    np.testing.assert_array_equal(gemmkit.gemm(a, b, c), expected(a, b) + c[None, :])
    np.testing.assert_array_equal(gemmkit.gemm(a, b, c[:, None]), expected(a, b) + c[:, None])


def test_mixed_types_promote():
    a, b, c = integers(8, (5, 6), (6, 7), (7,))
    assert gemmkit.gemm(a, b, c).dtype == np.float32
    for operands in ((a.astype(np.float64), b, c), (a, b.astype(np.float64), c), (a, b, c.astype(np.float64))):
        got = gemmkit.gemm(*operands)
        assert got.dtype == np.float64
        np.testing.assert_array_equal(got, expected(a, b, c))


def test_read_only_unaligned_and_byte_swapped_operands():
    a, b, c = integers(9, (5, 6), (6, 7), (7,))
    want = expected(a, b, c)
    record = np.dtype([("tag", "S1"), ("x", np.float32)])
    for place in (lambda shape: np.zeros(shape, record)["x"], lambda shape: np.zeros(shape, ">f4"), np.zeros):
        operands = [place(x.shape) for x in (a, b, c)]
        for x, values in zip(operands, (a, b, c)):
            x[...] = values
            x.flags.writeable = False
        np.testing.assert_array_equal(gemmkit.gemm(*operands), want)


# ---- Special values

@pytest.mark.parametrize("fill", [np.nan, np.inf])
@pytest.mark.parametrize("size", [*SIZES, (64, 48, 32), (40, 1, 300), (20, 20, 5000)], ids=str)
def test_beta_zero_never_reads_c(size, fill, wide_isa):
    m, n, k = size
    for dtype in FLOATS:
        a, b = integers(10, (m, k), (k, n), dtype=dtype)
        for shape in c_shapes(m, n):
            got = gemmkit.gemm(a, b, np.full(shape, fill, dtype), beta=0.0)
            np.testing.assert_array_equal(got, expected(a, b))


@pytest.mark.parametrize("size", [(5, 7, 3), (67, 51, 33), (1, 40, 9), (40, 1, 300)], ids=str)
def test_alpha_zero_still_multiplies(size, wide_isa):
    m, n, k = size
    a, b, c = integers(11, (m, k), (k, n), (n,))
    np.testing.assert_array_equal(gemmkit.gemm(a, b, c, alpha=0.0), np.broadcast_to(c, (m, n)))
    a[m // 2, k - 1] = np.nan
    got = gemmkit.gemm(a, b, c, alpha=0.0)
    assert np.isnan(got[m // 2]).all()
    got[m // 2] = c
    np.testing.assert_array_equal(got, np.broadcast_to(c, (m, n)))


@pytest.mark.parametrize("size", [(0, 4), (4, 0), (0, 0), (0, 100), (100, 0)], ids=str)
def test_empty_results(size):
    m, n = size
    for k, shape in itertools.product((0, 3), c_shapes(m, n)):
        a, b, c = (np.ones(s, np.float32) for s in ((m, k), (k, n), shape))
        got = gemmkit.gemm(a, b, c, alpha=2.0)
        assert got.shape == (m, n) and got.dtype == np.float32


def test_an_empty_sum_leaves_beta_times_c(wide_isa):
    for dtype, (m, n) in itertools.product(FLOATS, ((4, 5), (64, 48), (1, 70), (70, 1))):
        a, b = np.empty((m, 0), dtype), np.empty((0, n), dtype)
        poison = [np.full((m, n), 113, dtype) for _ in range(3)]
        del poison
        np.testing.assert_array_equal(gemmkit.gemm(a, b), np.zeros((m, n)))
        for shape, beta in itertools.product(c_shapes(m, n), BETAS):
            c, = integers(12, shape, dtype=dtype)
            for out in (None, np.full((n, m), 113, dtype).T):
                got = gemmkit.gemm(a, b, c, alpha=3.0, beta=beta, out=out)
                np.testing.assert_array_equal(got, np.broadcast_to(beta * c, (m, n)))


# ---- out

@pytest.mark.parametrize("size", [(6, 6, 6), (70, 70, 70), (1, 40, 9), (40, 1, 9)], ids=str)
def test_out_in_any_memory_and_over_any_operand(size):
    m, n, k = size
    a, b, c = integers(13, (m, k), (k, n), (m, n))
    want = expected(a, b, c, 0.5, -2.0)
    buffer = np.full((2 * m + 3, 2 * n + 3), 7, np.float32)
    for view in (buffer[1:m + 1, 1:n + 1], buffer[2 * m:0:-2, 2 * n:0:-2], buffer.reshape(2 * n + 3, -1)[:n, :m].T):
        assert gemmkit.gemm(a, b, c, alpha=0.5, beta=-2.0, out=view) is view
        np.testing.assert_array_equal(view, want)
        view[...] = 7
        assert (buffer == 7).all()
    for over, beta in itertools.product(range(3), (1.0, -2.0)):
        operands = [a.copy(), b.copy(), c.copy()]
        out = operands[over]
        if out.shape == (m, n):
            np.testing.assert_array_equal(gemmkit.gemm(*operands, beta=beta, out=out), expected(a, b, c, beta=beta))
    # c as a window that is shifted against out, or a row or column of it
    for index in ((slice(1, None), slice(1, None)), (slice(None, -1), slice(1, None)), (slice(2, 3), slice(1, None)),
                  (slice(1, None), slice(2, 3)), (slice(0, 1), slice(0, 1))):
        memory = np.resize(c, (m + 1, max(n + 1, 3))) if m > 1 else np.resize(c, (3, n + 1))
        window, out = memory[index], memory[:m, :n]
        if window.shape in c_shapes(m, n):
            want = expected(a, b, window, beta=2.0)
            np.testing.assert_array_equal(gemmkit.gemm(a, b, window, beta=2.0, out=out), want)


# ---- Errors

def test_a_c_that_would_widen_the_result_is_refused():
    for m, n, shape in ((3, 1, (1, 4)), (3, 1, (4,)), (1, 4, (2, 4)), (3, 4, (3,)), (3, 4, (1, 3, 4)), (3, 4, (2, 4)),
                        (3, 4, (4, 3)), (3, 4, (0,)), (0, 4, (2, 4)), (4, 4, (4, 4, 1))):
        for beta in (1.0, 0.0):
            with pytest.raises(ValueError, match="c: shape"):
                gemmkit.gemm(np.ones((m, 2)), np.ones((2, n)), np.ones(shape), beta=beta)


def test_unfit_arguments_are_refused_and_out_is_left_alone():
    a, b, c = integers(14, (4, 3), (3, 5), (5,))
    out = np.full((4, 5), 7, np.float32)
    one = np.float32(1)
    for operands in ((a[0], b), (a, b[:, 0]), (a[None], b), (a, b[None]), (one, b), (a, one), (a, b[:2]), (a.T, b)):
        with pytest.raises(ValueError):
            gemmkit.gemm(*operands, out=out)
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(3, 5\).*trans_a=True"):
        gemmkit.gemm(a, b, trans_a=True, out=out)
    with pytest.raises(ValueError):
        gemmkit.gemm(a, b, trans_b=True, out=out)
    for foreign in (np.int32, np.longdouble, np.complex64, bool, object, "S3"):  # integers don't mix with floats
        for operands in ((a.astype(foreign), b, c), (a, b.astype(foreign), c), (a, b, c.astype(foreign))):
            with pytest.raises(TypeError):
                gemmkit.gemm(*operands, out=out)
    for bad in (None, 1j, [1.0, 2.0], "x", "2", b"2"):
        with pytest.raises(TypeError, match="alpha"):
            gemmkit.gemm(a, b, c, alpha=bad, out=out)
        with pytest.raises(TypeError, match="beta"):
            gemmkit.gemm(a, b, c, beta=bad, out=out)
    for unfit, error in ((out[:3], ValueError), (out.astype(np.float64), TypeError), (out.T, ValueError)):
        with pytest.raises(error, match="out"):
            gemmkit.gemm(a, b, c, out=unfit)
    with pytest.raises(TypeError):
        gemmkit.gemm(a, b, c, 2.0)  # alpha goes by its name
    assert (out == 7).all()


# ---- What c costs

@pytest.mark.parametrize("shape", [(2000,), (1, 2000), (500, 1), ()], ids=str)
def test_no_expanded_copy_of_c_is_made(shape):
    a, b = np.ones((500, 8), np.float32), np.ones((8, 2000), np.float32)
    c, out = np.ones(shape, np.float32), np.empty((500, 2000), np.float32)
    tracemalloc.start()
    try:
        for beta in (1.0, 0.5):
            gemmkit.gemm(a, b, c, beta=beta, out=out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (out == 8.5).all()
    assert peak < out.nbytes // 100


def test_a_row_of_c_costs_no_resident_memory():
    """The same, counted by the system: also a copy that numpy doesn't know of would show."""
    script = """
        import resource
        import numpy as np, gemmkit
        a, b, c = np.ones((2048, 8), np.float32), np.ones((8, 8192), np.float32), np.ones(8192, np.float32)
        out = np.ones((2048, 8192), np.float32)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for beta in (1.0, 0.5):
            gemmkit.gemm(a, b, c, beta=beta, out=out)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        assert (out == 8.5).all() and grown < out.nbytes // 2, grown
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)


def test_alpha_scales_no_empty_sum():
    a, b, c = np.empty((2, 0), np.float32), np.empty((0, 3), np.float32), np.full(3, 2, np.float32)
    for alpha in (np.nan, np.inf, 0.0):
        np.testing.assert_array_equal(gemmkit.gemm(a, b, alpha=alpha), np.zeros((2, 3)))
        np.testing.assert_array_equal(gemmkit.gemm(a, b, c, alpha=alpha, beta=3), np.full((2, 3), 6))
