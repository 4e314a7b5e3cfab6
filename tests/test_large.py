"""Sizes and offsets past 2^31: results too large for 32-bit counts, operands too far apart for 32-bit strides.

Operands with vast strides are windows of memory that the system backs only where it is touched, so they cost nothing.
"""
import mmap
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import support

import gemmkit

MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
GIB = 1 << 30


def available_bytes():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))


def sparse(shape, strides, dtype):
    """A zeroed array with the given strides in bytes, on pages that exist only once they are written."""
    below, above = support.extent(shape, strides, np.dtype(dtype).itemsize)
    try:
        memory = mmap.mmap(-1, above - below, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    except OSError as error:
        pytest.skip(f"not run: {above - below} bytes of address space are not to be had here ({error}); test_sizes_past_32_bits_with_nothing_in_them runs")
    return np.ndarray(shape, dtype, memory, -below, strides)


def place(values, strides):
    x = sparse(values.shape, strides, values.dtype)
    x[...] = values
    return x


def small_integers(seed, *shapes, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [support.small_integers(rng, shape, dtype) for shape in shapes]


# ---- Far apart

FAR = 4 * GIB + 64  # bytes from one row, column or matrix to the next: past 2^32


@pytest.mark.parametrize("shape", [(3, 5, 4), (3, 40, 3), (1, 5, 3), (3, 5, 1), (2, 4100, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_and_columns_far_apart(shape, dtype):
    m, k, n = shape
    a, b = small_integers(1, (m, k), (k, n), dtype=dtype)
    want = support.integer_product(a, b)
    item = np.dtype(dtype).itemsize
    far_rows, far_columns = place(a, (FAR, item)), place(b, (item, FAR))
    np.testing.assert_array_equal(gemmkit.matmul(far_rows, b), want)
    np.testing.assert_array_equal(gemmkit.matmul(a, far_columns), want)
    np.testing.assert_array_equal(gemmkit.matmul(far_rows, far_columns), want)
    np.testing.assert_array_equal(gemmkit.gemm(far_columns, far_rows, trans_a=True, trans_b=True), want.T)
    backwards = place(a[::-1], (FAR, item))[::-1]
    np.testing.assert_array_equal(gemmkit.matmul(backwards, b), want)


def test_steps_of_the_sum_far_apart():
    a, b = small_integers(2, (40, 5), (5, 50))
    np.testing.assert_array_equal(gemmkit.matmul(a, place(b, (FAR, 4))), support.integer_product(a, b))
    np.testing.assert_array_equal(gemmkit.matmul(place(a, (4, FAR)), b), support.integer_product(a, b))


@pytest.mark.parametrize("strides", [(FAR, 4), (4, FAR), (-FAR, 4), (FAR, 8)], ids=str)
def test_results_far_apart(strides):
    shape = (3, 40) if strides[1] != FAR else (40, 3)
    a, b, c = small_integers(3, (shape[0], 20), (20, shape[1]), shape)
    out = sparse(shape, strides, np.float32)
    gemmkit.gemm(a, b, place(c, strides), alpha=2.0, beta=3.0, out=out)
    np.testing.assert_array_equal(out, 2 * support.integer_product(a, b) + 3 * c)


def test_matrices_of_a_batch_far_apart():
    a, b = small_integers(4, (3, 9, 20), (3, 20, 30))
    out = sparse((3, 9, 30), (FAR, 120, 4), np.float32)
    far_a, far_b = place(a, (FAR, 80, 4)), place(b, (FAR, 120, 4))
    want = np.stack([support.integer_product(x, y) for x, y in zip(a, b)])
    assert gemmkit.matmul(far_a, far_b, out=out) is out
    np.testing.assert_array_equal(out, want)
    plan = gemmkit.MatMulPlan(a.shape, b.shape, np.float32, b=far_b)
    np.testing.assert_array_equal(plan(far_a), want)


# ---- Memory that runs out

def test_no_memory_for_workspace_raises_and_leaves_out_alone():
    script = """
        import resource
        import numpy as np, gemmkit
        k = 4_000_000  # the columns of b are packed: 48 MB
        plan = gemmkit.MatMulPlan((1, k), (k, 3), np.float32, algorithm="skinny_n")
        a, b, out = np.ones((1, k), np.float32), np.ones((k, 3), np.float32), np.full((1, 3), 7, np.float32)
        assert plan.workspace_bytes >= 48e6
        with open("/proc/self/statm") as file:
            in_use = int(file.read().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (in_use + (16 << 20), before[1]))
        try:
            plan(a, b, out=out)
        except MemoryError as error:
            assert "workspace" in str(error)
        else:
            raise AssertionError("no MemoryError")
        assert (out == 7).all()
        assert (gemmkit.matmul(a, b, out=out) == k).all()  # which takes K in parts and needs less
        resource.setrlimit(resource.RLIMIT_AS, before)
        out[...] = 0
        assert (plan(a, b, out=out) == k).all()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)


# ---- Many elements

def test_sizes_past_32_bits_with_nothing_in_them():
    for m, n in ((2 ** 33, 0), (0, 2 ** 33)):
        a, b = np.broadcast_to(np.float32(1), (m, 3)), np.broadcast_to(np.float32(1), (3, n))
        assert gemmkit.matmul(a, b).shape == (m, n)
    assert gemmkit.GemmPlan(2 ** 33, 3, 2 ** 20, np.float32).work == 3 * 2 ** 53


def test_a_result_of_more_than_2_to_the_31_elements():
    """An outer product, each element of which tells its row and column; a few whole rows are checked."""
    n = 46341  # n * n > 2^31
    needed, available = n * n * 4, available_bytes()
    if available < 12 * GIB:
        pytest.skip(f"not run: {available / GIB:.1f} GiB of memory free, 12 wanted for a result of {needed / GIB:.1f}; "
                    "offsets past 2^31 are tested on sparse operands instead")
    rows, columns = np.arange(n, dtype=np.float32) % 251 + 1, np.arange(n, dtype=np.float32) % 241 + 1
    out = gemmkit.matmul(rows[:, None], columns[None])
    assert out.shape == (n, n)
    for i in (0, 1, n // 4, n // 2, n - 2, n - 1):
        np.testing.assert_array_equal(out[i], rows[i] * columns)
