"""Half precision and float8 stay narrow in memory, and give the same bits for any number of threads."""
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import support
from narrow import (
    BF16,
    E4M3FN,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    F16,
    F32,
    NARROW,
    PAIRS,
    exact,
    name,
    random_values,
    result_type,
)

import gemmkit

# ---- No widened copies

MEASURE = """
    import resource
    import numpy as np, ml_dtypes, gemmkit

    def status(key):
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))

    def grown(call):
        '''The bytes that the process held at most during a call, beyond those that it held before.'''
        try:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # the peak begins again from here
            before = status("VmRSS")
            assert status("VmHWM") <= before + (1 << 20)
        except (OSError, AssertionError):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            call()
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        call()
        return status("VmHWM") - before

    def filled(shape, value, dtype):
        x = np.empty(shape, dtype)
        x[...] = np.array(value, np.float32).astype(dtype)  # no array of another type beside it
        return x

    m, n, k, a_type, b_type, out_type, trans_a, trans_b, own_b = {arguments}
    a = filled((k, m) if trans_a else (m, k), 0.5, a_type)
    b = filled((n, k) if trans_b else (k, n), 0.25, b_type)
    out = filled((m, n), 7, out_type)
    product = np.float32(k / 8 * {alpha}).astype(out_type)
    with gemmkit.threads(2):
        small = filled((64, 64), 1, a_type)
        gemmkit.matmul(small, small.astype(b_type))  # what is loaded and started once
        options = dict(trans_a=trans_a, trans_b=trans_b, alpha={alpha})
        if own_b:
            plan = gemmkit.GemmPlan(m, n, k, a_type, b=b, b_dtype=b_type, out_dtype=out_type, **options)
            size = grown(lambda: plan(a, out=out))
        else:
            size = grown(lambda: gemmkit.gemm(a, b, out=out, **options))
    assert (out[::97] == product).all() and (out[:, ::97] == product).all(), (out[0, 0], product)
    print(size)
"""


def extra_memory(m, n, k, a_type, b_type, out_type, trans_a=False, trans_b=False, own_b=False):
    """What one call needs at its peak beside its operands and its result, measured by the system in a new process."""
    types = tuple(name(dtype) for dtype in (a_type, b_type, out_type))
    script = textwrap.dedent(MEASURE).format(arguments=repr((m, n, k, *types, trans_a, trans_b, own_b)), alpha=64 / k)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def check_stays_narrow(m, n, k, *types, **options):
    """At most half of what the largest operand alone would take as float32."""
    widened = 4 * max(m * k, k * n)
    size = extra_memory(m, n, k, *types, **options)
    assert size <= widened / 2, f"{size / 1e6:.1f} MB more in use; a widened operand takes {widened / 1e6:.1f}"


@pytest.mark.parametrize("types", [(F16, F16, F16), (BF16, BF16, BF16), (E4M3FN, E5M2, F32), (BF16, BF16, F32),
                                   (E5M2FNUZ, BF16, E4M3FNUZ),
                                   (F32, F32, F16)], ids=name)
def test_a_square_product_widens_no_matrix(types):
    """Nor is the result kept in float32 beside a narrow out: that would be four times the limit."""
    check_stays_narrow(4096, 4096, 1024, *types)


@pytest.mark.parametrize("types", [(F16, F16, F16), (BF16, BF16, BF16), (E4M3FNUZ, E4M3FNUZ, F32), (E5M2, BF16, E5M2)],
                         ids=name)
@pytest.mark.parametrize("size", [(256, 4096, 4096), (4096, 256, 4096)], ids=str)
def test_a_large_operand_is_not_widened(size, types):
    """A, B or both read against their order in memory."""
    for trans_a, trans_b in ((False, False), (True, True)):
        check_stays_narrow(*size, *types, trans_a=trans_a, trans_b=trans_b)


@pytest.mark.parametrize("dtype", NARROW, ids=name)
def test_a_vector_times_a_matrix_widens_nothing(dtype):
    for size, trans in (((1, 8192, 4096), False), ((1, 8192, 4096), True), ((8192, 1, 4096), False),
                        ((8192, 3, 4096), True)):
        check_stays_narrow(*size, dtype, dtype, F32, trans_a=trans and size[0] > 1, trans_b=trans and size[0] == 1)


@pytest.mark.parametrize("dtype", [F16, BF16, E4M3FN], ids=name)
def test_a_call_with_a_constant_b_widens_nothing(dtype):
    check_stays_narrow(512, 4096, 4096, dtype, dtype, dtype if dtype != E4M3FN else F32, own_b=True)


# ---- The same bits

# m, n, k: for each algorithm, more than one thread's work
SIZES = [(300, 200, 700), (1, 5000, 300), (5000, 1, 300), (64, 64, 20_000), (500, 500, 8), (33, 4099, 301),
         (7, 9, 30_001)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("pair", PAIRS, ids=name)
def test_the_number_of_threads_changes_no_bit(pair, size):
    m, n, k = size
    rng = np.random.default_rng(1)
    a, b, c = (random_values(rng, shape, dtype) for shape,
               dtype in (((m, k), pair[0]), ((k, n), pair[1]), ((m, n), pair[0])))
    for out_dtype in dict.fromkeys((result_type(*pair), pair[0], F32)):
        with gemmkit.threads(7):
            assert gemmkit.GemmPlan(m, n, k, pair[0], b_dtype=pair[1],
                                    out_dtype=out_dtype).num_threads > 1 or k * m * n < 10 ** 7
        results = []
        for threads in (1, 2, 3, 7):
            with gemmkit.threads(threads):
                results.append((gemmkit.matmul(a, b, out_dtype=out_dtype),
                                gemmkit.gemm(a, b, c, alpha=0.3, beta=0.7, out_dtype=out_dtype),
                                gemmkit.gemm(a.T.copy(), b.T.copy(), trans_a=True, trans_b=True, out_dtype=out_dtype)))
        for others in results[1:]:
            for got, first in zip(others, results[0]):
                assert support.same_bits(got, first)


@pytest.mark.parametrize("dtype", NARROW, ids=name)
def test_the_number_of_threads_changes_no_bit_of_batches_groups_and_constant_b(dtype):
    rng = np.random.default_rng(2)
    a, b = random_values(rng, (24, 60, 70), dtype), random_values(rng, (24, 70, 90), dtype)
    shapes = [(60, 90, 70)] * 24
    plans = [gemmkit.GemmPlan(300, 200, 700, dtype, b=random_values(rng, (700, 200), dtype), out_dtype=out)
             for out in (dtype, F32)]
    left = random_values(rng, (300, 700), dtype)
    results = []
    for threads in (1, 2, 3, 7):
        with gemmkit.threads(threads):
            results.append([gemmkit.matmul(a, b), gemmkit.matmul(a, b, out_dtype=dtype), gemmkit.matmul(a, b[0]),
                            *gemmkit.GroupedGemm(shapes, dtype, out_dtype=dtype)(list(a), list(b)),
                            *(plan(left) for plan in plans)])
    for others in results[1:]:
        for got, first in zip(others, results[0]):
            assert support.same_bits(got, first)
    error = abs(results[0][0].astype(np.float64) - exact(a, b))
    assert error.max() < 0.5  # the bits are those of a product
