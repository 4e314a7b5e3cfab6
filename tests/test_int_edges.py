"""Where integer products meet what is around them: packed operands of plans, stacks that become one product, borders
between paths, arguments beyond what a type holds.
"""

import itertools
import warnings

import ml_dtypes
import numpy as np
import pytest
from integers import wrap

import gemmkit

F32 = np.float32


def int64_product(a, b, zero_a=0, zero_b=0):
    """By multiply and add in int64, which holds these sums."""
    x, y = np.asarray(a).astype(np.int64) - zero_a, np.asarray(b).astype(np.int64) - zero_b
    return np.einsum("...ik,...kj->...ij", x, y, optimize=False)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4], ids=["int4", "uint4"])
@pytest.mark.parametrize("b_dtype", [np.int8, np.uint8, ml_dtypes.int4], ids=["int8", "uint8", "int4"])
def test_a_plan_that_owns_b_takes_nibbles_packed_or_not(dtype, b_dtype, isa):
    rng = np.random.default_rng(1)
    for shape, n in (((1, 33), 70), ((5, 40), 30), ((40, 129), 50), ((3, 5, 65), 17)):
        low, high = (-8, 8) if dtype == ml_dtypes.int4 else (0, 16)
        a = rng.integers(low, high, shape).astype(np.int8).astype(dtype)
        b = rng.integers(-8 if b_dtype != np.uint8 else 0, 8, (shape[-1], n)).astype(np.int8).astype(b_dtype)
        plan = gemmkit.MatMulIntegerPlan(shape, b.shape, dtype, b_dtype, b=b)
        packed = gemmkit.PackedInt4.pack(a)
        for zero in (None, dtype(3)):
            want = int64_product(a, b, 0 if zero is None else 3)
            assert (plan(a, a_zero_point=zero) == want).all() and (plan(packed, a_zero_point=zero) == want).all()
        quantized = gemmkit.QLinearMatMulPlan(shape, b.shape, dtype, b_dtype, np.int8, b=b, b_scale=F32(1))
        got = quantized(packed, F32(1), dtype(0), F32(16), np.int8(1))
        assert (got == np.clip(np.rint(int64_product(a, b) / 16) + 1, -128, 127)).all()


def test_plans_of_bool_take_any_byte_but_0_for_true():
    x, y = np.array([[1, 1]], np.uint8).view(bool), np.array([[255, 0], [1, 64]], np.uint8).view(bool)
    assert gemmkit.MatMulPlan((1, 2), (2, 2), bool)(x, y).tolist() == [[True, True]]
    assert gemmkit.MatMulPlan((1, 2), (2, 2), bool, b=y)(x).tolist() == [[True, True]]


@pytest.mark.parametrize("k", [40, 1500])
@pytest.mark.parametrize("batch, m", [(300, 1), (70, 5), (9, 40)])
def test_stacks_of_rows_over_a_constant_b(batch, m, k, isa):
    """The stack runs as one product of all its rows, which the plan was not made for, beside C and with zero points."""
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 256, (batch, m, k)).astype(np.uint8), rng.integers(-128, 128, (k, 60)).astype(np.int8)
    plan = gemmkit.MatMulIntegerPlan(a.shape, b.shape, a.dtype, b.dtype, b=b, b_zero_point=np.int8(-7))
    for zero in (None, np.uint8(9)):
        assert (plan(a, a_zero_point=zero) == int64_product(a, b, int(zero or 0), -7)).all()
    wrapping = gemmkit.MatMulPlan(b.T.shape, (k, 60), np.int8, b=b)
    assert (wrapping(b.T) == wrap(int64_product(b.T, b), np.int8)).all()
    floats = gemmkit.MatMulPlan((batch, m, k), (k, 60), F32, b=b.astype(F32))
    assert np.allclose(floats(a.astype(F32)), int64_product(a, b), rtol=1e-4, atol=1)
    halves = gemmkit.MatMulPlan((batch, m, k), (k, 60), np.float16, b=(b % 2).astype(np.float16))
    assert (halves((a % 2).astype(np.float16)) == int64_product(a % 2, b % 2)).all()


@pytest.mark.parametrize("k", range(1, 12))
def test_shallow_products_on_both_sides_of_each_border(k, isa):
    """Outer products and tiny stacks go another way than deeper and larger ones."""
    rng = np.random.default_rng(k)
    for (m, n), stack in itertools.product(((1, 40), (31, 40), (32, 32), (33, 100), (16, 16), (17, 23)), ((), (1,), (7,))):
        a, b = rng.integers(-128, 128, (*stack, m, k)).astype(np.int8), rng.integers(0, 256, (*stack, k, n)).astype(np.uint8)
        rows, columns = rng.integers(-128, 128, m).astype(np.int8), rng.integers(0, 256, n).astype(np.uint8)
        want = int64_product(a, b, rows.astype(int)[:, None], columns.astype(int))
        assert (gemmkit.matmul_integer(a, b, rows, columns) == want).all()
        got = gemmkit.qlinear_matmul(a, F32(1), rows, b, F32(0.5), columns, F32(64), np.uint8(7))
        assert (got == np.clip(np.rint(want / 128) + 7, 0, 255)).all()


def test_without_k_no_scale_counts():
    a, b = np.ones((2, 0), np.uint8), np.ones((0, 3), np.int8)
    for scale in (F32(np.inf), F32(np.nan), np.array([np.inf, 1], F32)):
        got = gemmkit.qlinear_matmul(a, scale, np.uint8(0), b, F32(1), np.int8(0), F32(1), np.uint8(7))
        assert (got == 7).all() and got.shape == (2, 3)


def test_factors_beyond_any_float():
    a, b = np.arange(6, dtype=np.int64).reshape(2, 3), np.arange(6, dtype=np.int64).reshape(3, 2)
    alpha = 10 ** 400 + 3
    want = wrap(int64_product(a, b).astype(object) * alpha, np.int64)
    assert (gemmkit.gemm(a, b, alpha=alpha) == want).all()
    assert (gemmkit.GemmPlan(2, 2, 3, np.int64, alpha=alpha)(a, b) == want).all()
    for product in (lambda: gemmkit.gemm(a * 1.0, b * 1.0, alpha=alpha),
                    lambda: gemmkit.GemmPlan(2, 2, 3, np.float64, alpha=alpha)):
        with pytest.raises(OverflowError, match="^alpha"):
            product()


def test_a_scale_beyond_float32_is_infinite_and_silent():
    a, b = np.ones((2, 20), np.uint8), np.ones((20, 3), np.int8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = gemmkit.qlinear_matmul(a, 1e300, np.uint8(0), b, 1.0, np.int8(0), 1.0, np.uint8(7))
    assert (got == 255).all()


def test_ragged_parameters_are_named():
    a, b = np.ones((2, 20), np.uint8), np.ones((20, 3), np.int8)
    with pytest.raises(ValueError, match="^a_zero_point"):
        gemmkit.matmul_integer(a, b, [[1], [2, 3]])
    with pytest.raises(ValueError, match="^b_scale"):
        gemmkit.qlinear_matmul(a, 1.0, 0, b, [[1.0], [2.0, 3.0]], 0, 1.0, np.uint8(7))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_many_columns(count, isa):
    """More columns than one panel of B has, and than one thread takes: A is packed again for each panel, column by column
    numbers move along."""
    rng = np.random.default_rng(3)
    m, n, k = 40, 2500, 132
    a, b = rng.integers(0, 256, (m, k)).astype(np.uint8), rng.integers(-128, 128, (k, n)).astype(np.int8)
    rows, columns = rng.integers(0, 256, m).astype(np.uint8), rng.integers(-128, 128, n).astype(np.int8)
    scales = 2.0 ** rng.integers(-3, 3, n).astype(F32)
    with gemmkit.threads(count):
        for za, zb in itertools.product((np.uint8(0), np.uint8(5), rows), (np.int8(0), np.int8(-3), columns)):
            want = int64_product(a, b, za.astype(int)[..., None] if za.ndim else int(za), zb.astype(int))
            assert (gemmkit.matmul_integer(a, b, za, zb) == want).all()
            got = gemmkit.qlinear_matmul(a, F32(1), za, b, scales, zb, F32(2048), np.uint8(100))
            assert (got == np.clip(np.rint(want * scales / 2048) + 100, 0, 255)).all()
