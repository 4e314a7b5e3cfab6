"""Half precision and float8: sums in float32, NaN and infinity where they belong, subnormals that count."""
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from narrow import (
    ALGORITHMS,
    BF16,
    E4M3FN,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    F16,
    F32,
    FLOAT8,
    bits,
    by_pair,
    by_type,
    cast,
    check,
    decoded,
    exact,
    forced,
    full,
    integers,
    most_kc,
    name,
    result_type,
    rounded,
    same_values,
    some_integers,
    turned,
)

import gemmkit

# ---- Sums in float32

def every_way(a, b, out_dtype=None):
    """Results of a @ b by matmul and by each algorithm that takes it, from both sides."""
    pair, (m, k), n = (a.dtype.type, b.dtype.type), a.shape, b.shape[1]
    yield "matmul", gemmkit.matmul(a, b, out_dtype=out_dtype)
    yield "turned", gemmkit.matmul(b.T, a.T, out_dtype=out_dtype).T
    yield "by columns", gemmkit.matmul(np.asfortranarray(a), np.asfortranarray(b), out_dtype=out_dtype)
    yield "constant b", gemmkit.GemmPlan(m, n, k, pair[0], b=b, b_dtype=pair[1], out_dtype=out_dtype)(a)
    for algorithm in ALGORITHMS:
        plan = forced(m, n, k, pair, algorithm, out_dtype=out_dtype)
        if plan is not None:
            yield algorithm, plan(a, b)


def check_every_way(a, b, value, out_dtype=None):
    want = rounded(value, out_dtype or result_type(a.dtype.type, b.dtype.type))
    for way, got in every_way(a, b, out_dtype):
        assert same_values(got, want), (way, a.shape, b.shape, out_dtype)


SUMS = [(BF16, 4096), (BF16, 300), (BF16, 257), (F16, 2050), (F16, 4096), (F16, 60000), (E4M3FN, 256), (E4M3FNUZ, 128),
        (E5M2, 1024), (E5M2FNUZ, 1024), (E5M2, 4096), (E4M3FN, 20000)]


@pytest.mark.parametrize("dtype,k", SUMS, ids=lambda x: x if isinstance(x, int) else name(x))
def test_long_sums_of_ones_come_out_whole(dtype, k, isa):
    for m, n in ((1, 1), (3, 5), (33, 40), (1, 40)) if k <= 2050 else ((1, 1), (3, 5)):
        a, b = full((m, k), 1, dtype), full((k, n), 1, dtype)
        check_every_way(a, b, np.full((m, n), float(k)))
        check_every_way(a, b, np.full((m, n), float(k)), dtype)
    check(gemmkit.matmul(a[0], b[:, 0]), np.float64(k), result_type(dtype, dtype))


def test_a_sum_may_leave_the_range_of_float16_and_come_back(isa):
    """60000 + 60000 - 60000 is 60000; 60000 + 60000 is infinite, once it is rounded."""
    for m, n, k in ((1, 1, 3), (5, 7, 3), (20, 50, 40), (33, 40, 700), (1, 70, 9), (70, 1, 9)):
        for at in {(0, 1, 2), (0, k // 2, k - 1)}:
            a, b = full((m, k), 0, F16), full((k, n), 1, F16)
            a[:, at] = np.array([60000, 60000, -60000], F16)
            check_every_way(a, b, np.full((m, n), 60000.0))
            a[:, at[2]] = 0
            check_every_way(a, b, np.full((m, n), 120000.0))
            check_every_way(a, b, np.full((m, n), 120000.0), F32)
            check(gemmkit.gemm(a, b, full((n,), -60000, F16)), np.full((m, n), 60000.0), F16)
            check(gemmkit.gemm(a, b, alpha=0.5), np.full((m, n), 60000.0), F16)
        a, b = full((m, 1), 300, F16), full((1, n), 300, F16)
        check_every_way(a, b, np.full((m, n), 90000.0))
        check_every_way(a, b, np.full((m, n), 90000.0), BF16)


def test_float16_products_keep_all_their_bits(isa):
    """(1 + 2^-10)^2 has 21 bits; a product or a sum rounded to float16 loses the last."""
    for m, n, k in ((1, 1, 2), (3, 5, 2), (20, 50, 2), (1, 50, 34), (50, 1, 34), (33, 40, 34)):
        a, b = full((m, k), 0, F16), full((k, n), 0, F16)
        a[:, :2], b[0], b[1] = 1 + 2.0 ** -10, 1 + 2.0 ** -10, -1
        check_every_way(a, b, np.full((m, n), (1 + 2.0 ** -10) * 2.0 ** -10), F32)
        a[:, 1] = 1
        check_every_way(a, b, np.full((m, n), 2.0 ** -9 + 2.0 ** -20), F32)


@pytest.mark.parametrize("dtype", FLOAT8, ids=name)
def test_float8_results_out_of_range(dtype, isa):
    """What the cast from float32 makes of them; never the largest number instead."""
    top = float(ml_dtypes.finfo(dtype).max)
    factors = np.array([[1, -1, 2, -2, 16, -16, 1.0625, 0.5, 1.03125]], F32)
    for m in (1, 3, 20):
        for a, b in ((full((m, 1), top, dtype), np.repeat(factors, 7, 1)),
                     (full((m, 1), top, BF16), np.repeat(factors, 7, 1))):
            b = b.astype(BF16)
            check_every_way(a, b, exact(a, b), dtype)
            check_every_way(a, b, exact(a, b))
        a, b = full((m, 2), top, dtype), full((2, 40), 1, dtype)
        check_every_way(a, b, np.full((m, 40), 2 * top), dtype)
        b[1] = cast(-0.5, dtype)
        check_every_way(a, b, np.full((m, 40), top / 2), dtype)


# ---- NaN and infinity

@by_pair
@pytest.mark.parametrize("shape", [(1, 4, 5), (4, 1, 5), (6, 9, 17), (70, 50, 40), (1, 100, 64), (3, 3, 3001)], ids=str)
def test_nan_and_infinity_reach_their_own_row_and_column(shape, pair, isa):
    """Zero times NaN or infinity is NaN, and nothing beside the row and the column changes."""
    m, n, k = shape
    a, b = some_integers(26, ((m, k), pair[0]), ((k, n), pair[1]))
    a[m // 2] = 0
    for dtype in dict.fromkeys((result_type(*pair), F32)):
        value = exact(a, b)
        x = a.copy()
        x[m - 1, k - 1] = cast(np.nan, pair[0])
        value[m - 1] = np.nan
        check_every_way(x, b, value, dtype)
        y = b.copy()
        y[k // 2, n - 1] = cast(np.nan, pair[1])
        value[:, n - 1] = np.nan
        check_every_way(x, y, value, dtype)
    if np.isinf(decoded(cast(np.inf, pair[1]))):
        y = b.copy()
        y[k // 2, 0] = cast(np.inf, pair[1])
        check_every_way(a, y, exact(a, y))
        y[k // 2, n - 1] = cast(-np.inf, pair[1])
        check_every_way(a, y, exact(a, y), F32)


# ---- Subnormals

SIZES = [(1, 1, 1), (5, 4, 3), (40, 50, 34), (1, 70, 33), (70, 1, 33), (3, 3, 301)]


def check_subnormal(m, n, k, pair, low, high, value, out_dtype):
    """One of the two operands is full of 2^low; of the other one row alone counts."""
    a, b = full((m, k), 0, pair[0]), full((k, n), 0, pair[1])
    for at in {0, k // 2, k - 1}:
        a[...], b[...] = cast(2.0 ** low, pair[0]), 0
        b[at] = cast(2.0 ** high, pair[1])
        check_every_way(a, b, np.full((m, n), value), out_dtype)


@pytest.mark.parametrize("low,high", [(-130, 120), (-133, 127), (-127, 1), (-128, 1), (-133, 0), (-129, 2)])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_subnormal_bfloat16_operands_count(size, low, high, isa):
    """As A and, turned round, as B; the result ordinary or subnormal."""
    for out_dtype in (BF16, F32):
        check_subnormal(*size, (BF16, BF16), low, high, 2.0 ** (low + high), out_dtype)
    check_subnormal(*size, (BF16, F32), low, high, 2.0 ** (low + high), F32)


@pytest.mark.parametrize("low,high", [(-70, -70), (-64, -63), (-100, -49), (-75, -74), (-126, -1), (-120, -9),
                                      (-120, -8)])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_of_ordinary_bfloat16_may_be_subnormal(size, low, high, isa):
    check_subnormal(*size, (BF16, BF16), low, high, 2.0 ** (low + high), F32)
    if high >= -9:
        check_subnormal(*size, (BF16, E4M3FN), low, high, 2.0 ** (low + high), F32)  # 2^-9 is a subnormal there
        check_subnormal(*size, (BF16, E5M2FNUZ), low, high, 2.0 ** (low + high), F32)
        check_subnormal(*size, (BF16, F16), low, high, 2.0 ** (low + high), F32)


def test_subnormal_products_add_up(isa):
    """128 of 2^-140 make 2^-133, bfloat16's least; and a subnormal sum is not lost when an ordinary product follows."""
    for m, n in ((1, 1), (5, 7), (33, 40), (1, 70)):
        a, b = full((m, 128), 2.0 ** -70, BF16), full((128, n), 2.0 ** -70, BF16)
        check_every_way(a, b, np.full((m, n), 2.0 ** -133))
        check_every_way(a, b, np.full((m, n), 2.0 ** -133), F32)
        check(gemmkit.gemm(a, b, full((n,), 2.0 ** -133, BF16)), np.full((m, n), 2.0 ** -132), BF16)
    for m, n, k in ((1, 1, 2), (5, 7, 3), (20, 50, 34), (1, 70, 35), (70, 1, 35), (3, 3, 1501)):
        for first, second in {(0, 1), (k // 2, k - 1), (0, k - 1)}:
            if first == second:
                continue
            # Both products are ordinary numbers, their difference isn't.
            a, b = full((m, k), 0, BF16), full((k, n), 0, BF16)
            a[:, first], a[:, second] = cast(1.5 * 2.0 ** -63, BF16), cast(-2.0 ** -63, BF16)
            b[first] = b[second] = cast(2.0 ** -63, BF16)
            check_every_way(a, b, np.full((m, n), 2.0 ** -127), F32)
            check_every_way(a, b, np.full((m, n), 2.0 ** -127), BF16)
            a[:, second] = cast(2.0 ** -90, BF16)
            b[first], b[second] = cast(2.0 ** -63, BF16), cast(2.0 ** -50, BF16)
            check_every_way(a, b, np.full((m, n), 1.5 * 2.0 ** -126 + 2.0 ** -140), F32)


@pytest.mark.parametrize("out_dtype", [BF16, F32], ids=name)
def test_a_subnormal_times_infinity_is_infinite(out_dtype, isa):
    """It isn't the NaN that a zero would make."""
    for m, n, k in SIZES:
        a, b = full((m, k), 2.0 ** -130, BF16), full((k, n), 1, BF16)
        b[k - 1] = np.inf
        check_every_way(a, b, np.full((m, n), np.inf), out_dtype)
        b[k // 2] = np.nan
        check_every_way(a, b, np.full((m, n), np.nan), out_dtype)


@pytest.mark.parametrize("second", [BF16, F32, E5M2, F16], ids=name)
def test_one_subnormal_among_ordinary_numbers(second, isa):
    """In the first and last row and column, and in each block of K: wherever it stands, it counts."""
    pair, kc = (BF16, second), most_kc((BF16, second))
    high = 120 if second in (BF16, F32) else 14
    value = 2.0 ** (high - 130)
    for m, n, k in ((1, 1, 9), (5, 7, 31), (33, 70, 64), (64, 1, 33), (1, 64, 33), (9, 50, 2 * kc + 5)):
        for i, at in {(0, 0), (m - 1, k - 1), (m // 2, k // 2), (m // 2, min(kc, k - 1)),
                      (m - 1, min(2 * kc + 1, k - 1))}:
            a, b = some_integers(27, ((m, k), BF16), ((k, n), second))
            if high == 14:
                a, b = full((m, k), 0, BF16), full((k, n), 1, second)  # 2^-116 would drown in a sum of integers
            elif k > 64:
                a[:, 64:] = 0  # leave the sums short, so that 2^-10 fits below them
            a[:, at] = 0
            a[i, at], b[at] = cast(2.0 ** -130, BF16), cast(2.0 ** high, second)
            want = exact(a, b)
            assert abs(want[i] - np.round(want[i])).max() == value
            check_every_way(a, b, want, F32)
            check(gemmkit.matmul(b.T, a.T, out_dtype=F32), want.T, F32)


def test_subnormals_among_matrices_of_a_batch_and_calls_of_a_plan(isa):
    """Only one matrix holds them: the others keep theirs exact, and a plan's next call is not misled by the last."""
    for m, n, k in ((5, 7, 9), (40, 50, 34), (1, 40, 33)):
        ordinary, = some_integers(28, ((m, k), BF16))
        ordinary[:, 0] = 0
        small = ordinary.copy()
        small[m - 1, 0] = cast(2.0 ** -130, BF16)
        b, = some_integers(29, ((k, n), BF16))
        b[0] = cast(2.0 ** 120, BF16)
        stack = np.stack([ordinary, small, ordinary])
        check(gemmkit.matmul(stack, b, out_dtype=F32), exact(stack, b), F32)
        strided = gemmkit.StridedBatchedGemm(3, m, n, k, BF16, out_dtype=F32)
        check(strided(stack, np.stack([b] * 3)), exact(stack, b), F32)
        group = gemmkit.GroupedGemm([(m, n, k)] * 3, BF16, out_dtype=F32)
        for got, x in zip(group(list(stack), [b] * 3), stack):
            check(got, exact(x, b), F32)
        for plan, given in ((gemmkit.GemmPlan(m, n, k, BF16, out_dtype=F32), (b,)),
                            (gemmkit.GemmPlan(m, n, k, BF16, out_dtype=F32, b=b), ())):
            for x in (ordinary, small, ordinary, small):
                check(plan(x, *given), exact(x, b), F32)
        plan = gemmkit.GemmPlan(n, m, k, BF16, trans_a=True, trans_b=True, b=small, out_dtype=F32)
        check(plan(b), exact(b.T, small.T), F32)


@by_type
def test_subnormals_of_each_type_count(dtype, isa):
    tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    for m, n, k in SIZES:
        a, b = full((m, k), tiny, dtype), full((k, n), 0, dtype)
        b[k // 2] = 1
        check_every_way(a, b, np.full((m, n), tiny), dtype)
        check_every_way(a, b, np.full((m, n), tiny), F32)


def test_the_processor_goes_on_to_count_subnormals():
    """Also in threads, after products of bfloat16 were computed in them."""
    script = """
        import sys, threading
        import numpy as np, gemmkit, ml_dtypes
        def fine():
            return sys.float_info.min / 2 > 0 and np.float32(1e-45) * np.float32(1) > 0
        assert fine()
        for dtype in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
            for threads in (1, 2):
                with gemmkit.threads(threads):
                    x = np.full((300, 300), 2.0 ** -9, np.float32).astype(dtype)
                    gemmkit.matmul(x, x)
                    y = np.full((300, 300), 1e-40, np.float32)
                    assert (gemmkit.matmul(np.eye(300, dtype=np.float32), y) == y).all()
        assert fine()
        seen = []
        thread = threading.Thread(target=lambda: seen.append(fine()))
        thread.start()
        thread.join()
        assert seen == [True]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)
