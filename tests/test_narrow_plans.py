"""Half precision and float8 through all plans; and what is refused, by name, with out left alone."""
import itertools

import numpy as np
import pytest
from hypothesis import given
from narrow import (
    BF16,
    E4M3FN,
    F16,
    F32,
    F64,
    FLAGS,
    PAIRS,
    SINGLE,
    by_pair,
    by_type,
    cast,
    check,
    check_close,
    decoded,
    exact,
    full,
    name,
    problem,
    random_values,
    result_type,
    some_integers,
    turned,
)

import gemmkit

# ---- Plans

def test_plans_tell_their_types():
    for pair in PAIRS:
        for out_dtype in (None, *SINGLE):
            types = {"b_dtype": pair[1], "out_dtype": out_dtype}
            plans = [gemmkit.GemmPlan(4, 5, 3, pair[0], **types), gemmkit.MatMulPlan((4, 3), (3, 5), pair[0], **types),
                     gemmkit.StridedBatchedGemm(2, 4, 5, 3, pair[0], **types),
                     *gemmkit.GroupedGemm([(4, 5, 3)], pair[0], **types).plans]
            for plan in plans:
                assert plan.dtype == pair[0] and plan.b_dtype == pair[1]
                assert plan.out_dtype == (out_dtype or result_type(*pair))
                assert name(pair[0]) in repr(plan)
                with pytest.raises(AttributeError):
                    plan.out_dtype = F32
    for dtype in (*SINGLE, F64):
        plan = gemmkit.GemmPlan(4, 5, 3, dtype)
        assert plan.b_dtype == plan.dtype == dtype and plan.out_dtype == result_type(dtype, dtype)


@by_type
def test_plans_of_float64_and_a_narrow_type(dtype):
    rng = np.random.default_rng(30)
    a, b = random_values(rng, (4, 30), F64), random_values(rng, (30, 5), dtype)
    plan = gemmkit.GemmPlan(4, 5, 30, F64, b_dtype=dtype)
    assert plan.out_dtype == F64
    check_close(plan(a, b), a, b, F64)
    plan = gemmkit.MatMulPlan((5, 30), (30, 4), dtype, b_dtype=F64)
    assert plan.out_dtype == F64
    check_close(plan(b.T, a.T), b.T, a.T, F64)


@pytest.mark.parametrize("own_b", [False, True])
@by_pair
def test_gemm_plan(pair, own_b, isa):
    for (trans_a, trans_b), (m, n, k) in itertools.product(FLAGS, ((5, 7, 3), (1, 40, 30), (40, 1, 30), (33, 51, 700),
                                                                    (70, 48, 0))):
        a, b, product, integral = problem(m, n, k, pair, trans_a, trans_b)
        product = 0.5 * product
        for dtype in dict.fromkeys((result_type(*pair), *pair)):
            plan = gemmkit.GemmPlan(m, n, k, pair[0], trans_a=trans_a, trans_b=trans_b, alpha=0.5, beta=-2.0,
                                    b=b if own_b else None, b_dtype=pair[1], out_dtype=dtype)
            given = () if own_b else (b,)
            check(plan(a, *given), product, dtype)
            c = integral.astype(dtype)
            for bias in (c, c[0], c[:, :1], np.asfortranarray(c),
                         c[:1, :1]) if dtype == result_type(*pair) else (c[:, :1],):
                check(plan(a, *given, c=bias), product - 2 * decoded(bias, F64), dtype)
            for out in (full((n, m), 113, dtype).T, full((2 * m, 2 * n), 113, dtype)[::-2, ::-2]):
                assert plan(a, *given, c=c, out=out) is out
                check(out, product - 2 * decoded(c, F64), dtype)


@by_type
def test_plans_take_c_of_every_narrow_type(dtype):
    a, b = some_integers(33, ((9, 20), dtype), ((20, 33), dtype))
    for c_dtype in SINGLE:
        c, = some_integers(34, ((9, 33), c_dtype))
        plan = gemmkit.GemmPlan(9, 33, 20, dtype, out_dtype=F32)
        check(plan(a, b, c), exact(a, b) + decoded(c, F64), F32)


@by_pair
@pytest.mark.parametrize("shapes", [((3,), (3,)), ((40,), (40, 70)), ((70, 40), (40,)), ((6, 4, 30), (30, 50)),
                                    ((6, 1, 30), (30, 50)), ((2, 6, 9, 30), (6, 30, 50)), ((9, 30), (4, 30, 20)),
                                    ((2, 1, 9, 30), (3, 30, 20)), ((0, 9, 30), (30, 5)), ((2, 9, 0), (2, 0, 5))],
                         ids=str)
def test_matmul_plan(shapes, pair):
    a, b = some_integers(35, (shapes[0], pair[0]), (shapes[1], pair[1]))
    value = exact(a, b)
    for dtype in (None, *SINGLE):
        for own, given in ((None, (b,)), (b, ()), (np.asfortranarray(b), ())):
            plan = gemmkit.MatMulPlan(*shapes, pair[0], b=own, b_dtype=pair[1], out_dtype=dtype)
            check(plan(a, *given), value, dtype or result_type(*pair))
            if value.ndim:
                out = full(value.shape[::-1], 113, dtype or result_type(*pair)).T
                check(plan(a, *given, out=out), value, dtype or result_type(*pair))


@by_pair
def test_an_owned_b_is_a_copy(pair):
    for shape in ((30, 50), (600, 97), (3, 30, 50), (30,)):
        a, b = some_integers(36, ((2, 3, 9, shape[-2] if len(shape) > 1 else shape[0]), pair[0]), (shape, pair[1]))
        value = exact(a, b)
        plan = gemmkit.MatMulPlan(a.shape, shape, pair[0], b=b, b_dtype=pair[1])
        b[...] = cast(np.nan, pair[1])
        check(plan(a), value, result_type(*pair))
        del b
        poison = [full(shape, np.nan, pair[1]) for _ in range(4)]
        check(plan(a), value, result_type(*pair))
        del poison


@by_pair
def test_strided_batched_gemm(pair):
    for (trans_a, trans_b), (batch, m, n, k) in itertools.product(FLAGS,
                                                                  ((1, 5, 7, 3), (4, 9, 50, 30), (7, 1, 40, 20))):
        a, b = some_integers(37, ((batch, k, m) if trans_a else (batch, m, k), pair[0]),
                             ((batch, n, k) if trans_b else (batch, k, n), pair[1]))
        product = 2 * exact(turned(a, trans_a), turned(b, trans_b))
        for dtype in dict.fromkeys((result_type(*pair), *pair)):
            c, = some_integers(38, ((batch, m, n), dtype))
            options = {"trans_a": trans_a, "trans_b": trans_b, "alpha": 2.0, "beta": 0.5, "b_dtype": pair[1],
                       "out_dtype": dtype}
            for plan, given in ((gemmkit.StridedBatchedGemm(batch, m, n, k, pair[0], **options), (b,)),
                                (gemmkit.StridedBatchedGemm(batch, m, n, k, pair[0], b=b, **options), ())):
                check(plan(a, *given), product, dtype)
                for bias in (c, c[0], c[:, :1], c[:, :, :1], c[::-1]):
                    check(plan(a, *given, c=bias), product + 0.5 * decoded(bias, F64), dtype)
                out = full((m, batch, n), 113, dtype).swapaxes(0, 1)
                check(plan(a, *given, c=c, out=out), product + 0.5 * decoded(c, F64), dtype)


@pytest.mark.parametrize("trans_a,trans_b", FLAGS)
@by_pair
def test_grouped_gemm(pair, trans_a, trans_b):
    shapes = [(5, 7, 3), (150, 160, 70), (1, 40, 30), (0, 4, 5), (4, 5, 0), (40, 1, 300), (9, 9, 2000)]
    a = some_integers(39, *[((k, m) if trans_a else (m, k), pair[0]) for m, n, k in shapes])
    b = some_integers(40, *[((n, k) if trans_b else (k, n), pair[1]) for m, n, k in shapes])
    values = [0.5 * exact(turned(x, trans_a), turned(y, trans_b)) for x, y in zip(a, b)]
    for dtype in dict.fromkeys((result_type(*pair), *pair)):
        group = gemmkit.GroupedGemm(shapes, pair[0], trans_a=trans_a, trans_b=trans_b, alpha=0.5, b_dtype=pair[1],
                                    out_dtype=dtype)
        outs = [full(value.shape[::-1], 113, dtype).T for value in values]
        for threads in (1, 3):
            with gemmkit.threads(threads):
                for got in (group(a, b), group(a, b, out=outs)):
                    for x, value in zip(got, values):
                        check(x, value, dtype)


# ---- Errors

FOREIGN = [np.complex64, np.complex128, np.longdouble, object, "U3", "S2", "M8[s]"]


@pytest.mark.parametrize("foreign", FOREIGN, ids=str)
@by_type
def test_foreign_types_are_refused_by_name(dtype, foreign):
    a, b, c = full((4, 3), 1, dtype), full((3, 5), 1, dtype), full((5,), 1, dtype)
    out = full((4, 5), 7, dtype)
    for call, operands in ((gemmkit.matmul, (a, b)), (gemmkit.gemm, (a, b, c))):
        for at, label in enumerate("abc"[:len(operands)]):
            unfit = list(operands)
            unfit[at] = np.zeros(operands[at].shape, foreign)
            with pytest.raises(TypeError, match=f"^{label}: "):
                call(*unfit, out=out)
        with pytest.raises(TypeError, match="^out: "):
            call(*operands, out=np.zeros((4, 5), foreign))
        with pytest.raises(TypeError, match="out_dtype"):
            call(*operands, out_dtype=foreign)
        with pytest.raises(TypeError, match="out_dtype"):
            call(*operands, out=out, out_dtype=foreign)
    assert (decoded(out) == 7).all()
    for kind, sizes in (("GemmPlan", (4, 5, 3)), ("MatMulPlan", ((4, 3), (3, 5))), ("StridedBatchedGemm", (2, 4, 5, 3)),
                        ("GroupedGemm", ([(4, 5, 3)],))):
        make = getattr(gemmkit, kind)
        with pytest.raises(TypeError, match="out_dtype"):
            make(*sizes, dtype, out_dtype=foreign)
        with pytest.raises(TypeError, match="b_dtype"):
            make(*sizes, dtype, b_dtype=foreign)
        with pytest.raises(TypeError, match="dtype"):
            make(*sizes, foreign)


@pytest.mark.parametrize("integer", [np.int32, np.uint64, np.int8, bool], ids=str)
@by_type
def test_integers_do_not_mix_with_narrow_types_in_gemm_nor_take_their_results(dtype, integer):
    a, b, c = full((4, 3), 1, dtype), full((3, 5), 1, dtype), full((5,), 1, dtype)
    out = full((4, 5), 7, dtype)
    for at in range(3):
        unfit = [a, b, c]
        unfit[at] = np.zeros(unfit[at].shape, integer)
        with pytest.raises(TypeError):
            gemmkit.gemm(*unfit, out=out)
    for call, operands in ((gemmkit.matmul, (a, b)), (gemmkit.gemm, (a, b, c))):
        with pytest.raises(TypeError, match="^out: "):
            call(*operands, out=np.zeros((4, 5), integer))
        with pytest.raises(TypeError, match="out_dtype"):
            call(*operands, out_dtype=integer)
    assert (decoded(out) == 7).all()
    for kind, sizes in (("GemmPlan", (4, 5, 3)), ("MatMulPlan", ((4, 3), (3, 5))), ("StridedBatchedGemm", (2, 4, 5, 3)),
                        ("GroupedGemm", ([(4, 5, 3)],))):
        with pytest.raises(TypeError, match="out_dtype"):
            getattr(gemmkit, kind)(*sizes, dtype, out_dtype=integer)


@by_type
def test_out_types_that_cannot_be_are_refused(dtype):
    """float64 stays among itself, and out and out_dtype agree."""
    a, b = full((4, 3), 1, dtype), full((3, 5), 1, dtype)
    wide_a, wide_b, wide_c = np.ones((4, 3)), np.ones((3, 5)), np.ones(5)
    out = full((4, 5), 7, dtype)
    for operands in ((wide_a, b), (a, wide_b), (wide_a, wide_b), (a, b, wide_c)):
        call = gemmkit.gemm if len(operands) == 3 else gemmkit.matmul
        with pytest.raises(TypeError, match="^out: "):
            call(*operands, out=out)
        for out_dtype in (dtype, F32):
            with pytest.raises(TypeError, match="out_dtype"):
                call(*operands, out_dtype=out_dtype)
    for call in (gemmkit.matmul, gemmkit.gemm):
        with pytest.raises(TypeError, match="out_dtype"):
            call(a, b, out_dtype=F64)
        with pytest.raises(TypeError, match="^out: "):
            call(a, b, out=np.full((4, 5), 7.0))
        for other in SINGLE:
            if other != dtype:
                with pytest.raises(TypeError, match="out"):
                    call(a, b, out=out, out_dtype=other)
        for unfit in (out.tolist(), (out, out)):
            with pytest.raises(TypeError, match="out: "):
                call(a, b, out=unfit)
    with pytest.raises(TypeError, match="out_dtype"):
        gemmkit.matmul(a, b, out_dtype="nonsense")
    for unfit in (out[:3], out.T, out[None]):
        with pytest.raises(ValueError, match="out: "):
            gemmkit.matmul(a, b, out=unfit)
    with pytest.raises(ValueError):
        gemmkit.matmul(a, b[:2], out=out)
    for x, y in ((a[0, 0], b), (a, b[0, 0]), (a[0], b[0]), (a, a)):
        with pytest.raises(ValueError):
            gemmkit.matmul(x, y, out=out)
    assert (decoded(out) == 7).all()


@by_pair
def test_plans_refuse_other_types_than_planned(pair):
    """Those that they were made for are theirs alone: no conversion, also not a harmless one."""
    a, b = some_integers(41, ((4, 3), pair[0]), ((3, 5), pair[1]))
    for plan, x, y in ((gemmkit.GemmPlan(4, 5, 3, pair[0], b_dtype=pair[1]), a, b),
                       (gemmkit.MatMulPlan((4, 3), (3, 5), pair[0], b_dtype=pair[1]), a, b),
                       (gemmkit.StridedBatchedGemm(2, 4, 5, 3, pair[0], b_dtype=pair[1]), np.stack([a] * 2),
                        np.stack([b] * 2))):
        out = full(exact(x, y).shape, 7, plan.out_dtype.type)
        for other in (*SINGLE, F64):
            if other != pair[0]:
                with pytest.raises(TypeError, match="^a: "):
                    plan(decoded(x, F64).astype(other), y, out=out)
            if other != pair[1]:
                with pytest.raises(TypeError, match="^b: "):
                    plan(x, decoded(y, F64).astype(other), out=out)
            if other != plan.out_dtype:
                with pytest.raises(TypeError, match="^out: "):
                    plan(x, y, out=full(out.shape, 7, other))
        assert (decoded(out) == 7).all()
    if pair[0] != pair[1]:
        with pytest.raises(TypeError, match="b: "):
            gemmkit.GemmPlan(4, 5, 3, pair[0], b_dtype=pair[0], b=b)


@pytest.mark.parametrize("c_shape", [(), (5,), (4, 1), (4, 5), (9, 4, 5)], ids=str)
@pytest.mark.parametrize("dtypes", [(F32, F32), (F16, F16), (E4M3FN, F32), (BF16, F32)], ids=name)
def test_stacks_of_single_tiles_with_a_c(dtypes, c_shape):
    """Too small for the loops: the sum starts at c, or the epilogue adds it, for each product."""
    dtype, c_type = dtypes
    rng = np.random.default_rng(31)
    a, b, c = (rng.integers(-3, 4, shape).astype(F32) for shape in ((9, 4, 6), (9, 6, 5), c_shape))
    plan = gemmkit.StridedBatchedGemm(9, 4, 5, 6, dtype, out_dtype=F32)
    got = plan(cast(a, dtype), cast(b, dtype), cast(c, c_type))
    np.testing.assert_array_equal(got, np.einsum("bik,bkj->bij", a, b, optimize=False) + c)
