"""What the tests of half precision and float8 share: the types, casts, exact references and the promised bound."""
import functools

import ml_dtypes
import numpy as np
import pytest

import gemmkit

F16, BF16, F32, F64 = np.float16, ml_dtypes.bfloat16, np.float32, np.float64
E4M3FN, E4M3FNUZ = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz
E5M2, E5M2FNUZ = ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz
HALVES, FLOAT8 = (F16, BF16), (E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ)
NARROW = HALVES + FLOAT8
# What a kernel may meet as A and B: each type alone, and every kind of mixture.
MIXED = ((E4M3FN, E5M2), (E5M2FNUZ, E4M3FNUZ), (BF16, F32), (F32, F16), (F16, BF16), (E5M2FNUZ, BF16), (F16, E4M3FN),
         (F32, E5M2))
PAIRS = tuple((dtype, dtype) for dtype in NARROW) + MIXED

FLAGS = [(False, False), (False, True), (True, False), (True, True)]  # trans_a, trans_b

UNITS = {F64: 0, F32: 0, F16: 2.0 ** -11, BF16: 2.0 ** -8, E4M3FN: 2.0 ** -4, E4M3FNUZ: 2.0 ** -4, E5M2: 2.0 ** -3,
         E5M2FNUZ: 2.0 ** -3}  # of the rounding to the result type
# Integers up to these are exact in their type, and sums of 4096 products of any two types are exact in float32;
# the sums of half a hundred already need a rounding to a narrow type.
LARGEST = {F64: 100, F32: 100, F16: 30, BF16: 15, E4M3FN: 8, E4M3FNUZ: 8, E5M2: 4, E5M2FNUZ: 4}


def name(x):
    """Of a type, or of several: for the ids of parameters."""
    return " ".join(map(name, x)) if isinstance(x, tuple) else np.dtype(x).name


def result_type(*dtypes):
    """The type of a product, c included, by the rule that is promised."""
    if F64 in dtypes:
        return F64
    return dtypes[0] if dtypes[0] in HALVES and len(set(dtypes)) == 1 else F32


# ---- Casts

def cast(x, dtype):
    """One rounding to nearest even, as numpy and ml_dtypes do it; of a value that is exact in float32."""
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(dtype)


def decoded(x, dtype=F32):
    """The exact values of any of the types."""
    return cast(x, dtype)


def bits(x):
    x = np.ascontiguousarray(x)
    return x.view(f"u{x.dtype.itemsize}")


@functools.cache
def codes(dtype):
    """Every code of a narrow type, in order."""
    size = np.dtype(dtype).itemsize
    return np.arange(256 ** size, dtype=f"u{size}").view(dtype)


@functools.cache
def finite_codes(dtype):
    every = codes(dtype)
    return every[np.isfinite(decoded(every))]


# ---- Values

def integers(rng, shape, dtype):
    return rng.integers(-LARGEST[dtype], LARGEST[dtype] + 1, shape).astype(F32).astype(dtype)


def some_integers(seed, *shapes_and_types):
    """Integer-valued arrays of (shape, type) each."""
    rng = np.random.default_rng(seed)
    return [integers(rng, shape, dtype) for shape, dtype in shapes_and_types]


@functools.lru_cache(4096)
def problem(m, n, k, pair, trans_a=False, trans_b=False):
    """Integers a and b of these types, perhaps transposed in memory, their exact product, and float32 integers for c.

    The tests of each instruction set share them: the reference costs more than what is tested.
    """
    a, b, c = some_integers(m + n + k, ((k, m) if trans_a else (m, k), pair[0]),
                            ((n, k) if trans_b else (k, n), pair[1]),
                            ((m, n), E5M2))
    answer = a, b, exact(a.T if trans_a else a, b.T if trans_b else b), c.astype(F32)
    for x in answer:
        x.flags.writeable = False
    return answer


def random_values(rng, shape, dtype):
    return rng.uniform(-1, 1, shape).astype(F32 if dtype != F64 else F64).astype(dtype)


# ---- References

def exact(a, b):
    """a @ b by numpy.matmul's rules in float64: einsum without a contraction path is a plain sum of products."""
    a, b = np.asarray(a), np.asarray(b)
    left, right = ("ik" if a.ndim > 1 else "k"), ("kj" if b.ndim > 1 else "k")
    result = "i" * (a.ndim > 1) + "j" * (b.ndim > 1)
    with np.errstate(all="ignore"):
        return np.einsum(f"...{left},...{right}->...{result}", decoded(a, F64), decoded(b, F64), optimize=False)


def rounded(value, dtype):
    """An exact float64 result in a type, by one rounding; it must be exact in float32, or the test is wrong."""
    single = cast(value, F32)
    assert dtype == F64 or ((single == value) | (value != value)).all(), "the reference itself would round twice"
    return cast(value, F64) if dtype == F64 else cast(single, dtype)


def same_values(got, want):
    """Equal types, shapes and values; NaN equals NaN, and zeros may differ in sign."""
    if type(got) is not type(want) and not isinstance(got, np.ndarray):
        got = np.asarray(got)
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.ndim and got.flags.c_contiguous and want.flags.c_contiguous and got.tobytes() == want.tobytes():
        return True  # the usual case, without a slow cast
    return np.array_equal(decoded(got, F64), decoded(want, F64), equal_nan=True)


def check(got, value, dtype):
    """The result of exact sums: `value`, rounded once to `dtype`, and of that type."""
    want = rounded(value, dtype)
    assert np.asarray(got).dtype == dtype
    if not same_values(got, want):
        np.testing.assert_array_equal(decoded(got, F64), decoded(want, F64))
        raise AssertionError("shapes differ")


def bound(value, size, k, dtype):
    """What may lie between a result of `dtype` and the exact value, where `size` is |A| @ |B| (plus |c|)."""
    if dtype == F64:
        return (k + 8) * 2.0 ** -52 * size
    summed = (k + 8) * 2.0 ** -24 * size
    least = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    return summed + UNITS[dtype] * (abs(value) + summed) + least / 2


def check_close(got, a, b, dtype, add=0.0, alpha=1.0):
    """A result of any values against the promised bound."""
    value = alpha * exact(a, b) + add
    size = abs(alpha) * exact(abs(decoded(a, F64)), abs(decoded(b, F64))) + abs(add)
    got = np.asarray(got)
    assert got.dtype == dtype and got.shape == value.shape
    error = abs(decoded(got, F64) - value)
    assert (error <= bound(value, size, a.shape[-1], dtype)).all(), f"largest error {error.max()}"


def layouts(x):
    """The same values in every memory layout that a view can have; x is a matrix."""
    m, n = x.shape
    gaps = np.full((2 * m + 1, 3 * n + 2), np.nan, F32).astype(x.dtype)
    gaps[1::2, 1:-1:3] = x
    return {"rows": x, "columns": np.asfortranarray(x), "upside down": x[::-1].copy()[::-1],
            "mirrored": x[:, ::-1].copy()[:, ::-1], "columns turned round": x.T[::-1, ::-1].copy()[::-1, ::-1].T,
            "gaps": gaps[1::2, 1:-1:3], "column gaps": np.asfortranarray(gaps)[1::2, 1:-1:3]}


# ---- Parameters and plans

ALGORITHMS = ("general", "direct", "small_k", "skinny_m", "skinny_n", "split_k")
SINGLE = (*NARROW, F32)  # whatever is summed in float32
# One pair of each kind, for what takes long: alone, mixed within float8, and with a wider type on either side.
UNLIKE = ((F16, F16), (BF16, BF16), (E4M3FN, E4M3FN), (E5M2, E4M3FNUZ), (BF16, F32), (F32, E5M2FNUZ), (E5M2FNUZ, BF16))
by_type = pytest.mark.parametrize("dtype", NARROW, ids=name)
by_pair = pytest.mark.parametrize("pair", PAIRS, ids=name)

SHAPES = [((3,), (3,)), ((1,), (1,)), ((3,), (3, 5)), ((4, 3), (3,)), ((4, 3), (3, 5)), ((1, 1), (1, 1)),
          ((2, 4, 3), (3, 5)), ((4, 3), (2, 3, 5)), ((2, 1, 4, 3), (6, 3, 5)), ((3,), (2, 3, 5)), ((2, 4, 3), (3,)),
          ((2, 3, 1, 4, 3), (1, 3, 2, 3, 1)), ((33, 40), (40, 50)), ((5, 33, 40), (40, 17)), ((3, 2, 70, 1), (1, 90)),
          ((70,), (70, 300)), ((300, 70), (70,)), ((1500,), (1500,)), ((4, 1500), (1500, 3)),
          ((0, 3), (3, 4)), ((2, 3), (3, 0)), ((3,), (3, 0)), ((0, 3), (3,)), ((0, 2, 3), (3, 4)), ((0, 0), (0, 0)),
          ((2, 3), (0, 3, 4)), ((64, 0), (0, 48)), ((3, 64, 0), (0, 48)), ((0,), (0, 48)), ((64, 0), (0,)),
          ((0,), (0,))]

# m, n, k: one element, tails of every tile size, odd sums (a pair with one half missing), rows and columns
TAILS = [(1, 1, 1), (1, 1, 9), (1, 70, 5), (64, 1, 33), (3, 2, 64), (5, 7, 3), (8, 48, 16), (9, 49, 17), (7, 47, 15),
         (13, 97, 31), (50, 31, 70), (2, 64, 2), (64, 2, 3), (61, 63, 129)]


def turned(x, flag):
    return x.swapaxes(-1, -2) if flag else x


def full(shape, value, dtype):
    return cast(np.full(shape, value, F32), dtype)


def forced(m, n, k, pair, algorithm, **options):
    """A plan of one algorithm, or None where another plan of the same product says that it can't run."""
    options = {"b_dtype": pair[1], **options}
    if gemmkit.GemmPlan(m, n, k, pair[0], **options).refusal(algorithm) is not None:
        return None
    return gemmkit.GemmPlan(m, n, k, pair[0], algorithm=algorithm, **options)


def most_kc(pair):
    """The longest KC block there is: that of a sum too long for one."""
    return max(gemmkit.GemmPlan(64, 200, k, pair[0], b_dtype=pair[1], algorithm="general").kc
               for k in (10 ** 5, 10 ** 5 + 4096))
