"""Plans of integer products: what they tell and own, that they agree with the functions, and what they refuse."""
import functools
import itertools
import threading

import numpy as np
import pytest
from integers import (
    ALGORITHMS,
    BYTES,
    COLUMN,
    COUNTS,
    F16,
    F32,
    FLOAT8,
    I4,
    I8,
    I32,
    I64,
    NIBBLES,
    ROW,
    SIZES,
    U4,
    U8,
    U32,
    check,
    check_between,
    check_float8,
    forms,
    frozen,
    matmul,
    matmul_integer,
    modular,
    name,
    packed,
    qlinear_float8,
    qlinear_matmul,
    some,
    values,
    wrap,
)

import gemmkit
from gemmkit._kernels import _registry

SMALL = (*BYTES, *NIBBLES)
PAIRS = [(U8, I8), (I8, I8), (U8, U8), (I8, U8), (U8, I4), (I8, U4), (I4, U8), (U4, I4)]
by_pair = pytest.mark.parametrize("pair", PAIRS, ids=name)
ATTRIBUTES = ("algorithm", "kernel", "isa", "packed_bytes", "workspace_bytes", "num_threads")


def kept(b):
    """b in the forms in which a plan may be given it for good."""
    return (b, np.asfortranarray(b), packed(b)) if b.dtype in NIBBLES else (b, np.asfortranarray(b))


@functools.lru_cache(1024)
def problem(m, n, k, pair):
    a, b, za, zb = frozen(*some(m + n + k, ((m, k), pair[0]), ((k, n), pair[1]), ((m,), pair[0]), ((n,), pair[1])))
    return a, b, za, zb, *frozen(matmul_integer(a, b, za, zb), matmul_integer(a, b))


# ---- MatMulIntegerPlan

@by_pair
def test_integer_plans_agree_with_the_definition(pair, isa):
    for m, n, k in (*SIZES[::2], SIZES[-1]):
        a, b, za, zb, want, plain = problem(m, n, k, pair)
        plan = gemmkit.MatMulIntegerPlan((m, k), (k, n), *pair)
        assert plan.packed_bytes == 0
        check(plan(a, b), plain)
        check(plan(a, b, za, zb), want)
        for own in kept(b):
            plan = gemmkit.MatMulIntegerPlan((m, k), (k, n), *pair, b=own, b_zero_point=zb)
            assert plan.packed_bytes > 0
            check(plan(a, a_zero_point=za), want)
            check(plan(np.asfortranarray(a), a_zero_point=za[:, None]), want)
            check(gemmkit.MatMulIntegerPlan((m, k), (k, n), *pair, b=own)(a), plain)
            out = np.full((n, m), 113, I32).T
            assert plan(a, a_zero_point=za, out=out) is out
            check(out, want)


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((40,), (40, 70)), ((70, 40), (40,)), ((6, 4, 30), (30, 50)),
                                    ((2, 3, 9, 30), (3, 30, 20)), ((9, 30), (4, 30, 20)), ((2, 1, 5, 9), (3, 9, 6)),
                                    ((0, 9, 30), (30, 5)), ((2, 9, 0), (2, 0, 5)), ((0,), (0,))], ids=str)
def test_integer_plans_take_every_shape_and_form(shapes):
    for pair in PAIRS:
        a, b = some(1, (shapes[0], pair[0]), (shapes[1], pair[1]))
        rng = np.random.default_rng(2)
        plan = gemmkit.MatMulIntegerPlan(*shapes, *pair)
        for x, y in itertools.zip_longest(forms(a, ROW), forms(b, COLUMN), fillvalue=()):
            za, zb = values(rng, x, pair[0]), values(rng, y, pair[1])
            want = matmul_integer(a, b, za, zb)
            check(plan(a, b, za, zb), want)
            check(gemmkit.MatMulIntegerPlan(*shapes, *pair, b=b, b_zero_point=zb)(a, None, za), want)


@by_pair
def test_one_row_and_many_with_one_b(pair, isa):
    for n, k in ((130, 130), (65, 515)):
        for m in (1, 2, 5, 64, 101):
            a, b, za, zb, want, _ = problem(m, n, k, pair)
            for own in kept(b):
                plan = gemmkit.MatMulIntegerPlan((m, k), (k, n), *pair, b=own, b_zero_point=zb)
                check(plan(a, None, za), want)


def test_a_constant_of_nibbles_takes_half_the_memory(isa):
    m, n, k = 1, 512, 1024
    for dtype in NIBBLES:
        a, b = some(3, ((m, k), U8), ((k, n), dtype))
        want = matmul_integer(a, b)
        of_bytes = gemmkit.MatMulIntegerPlan((m, k), (k, n), U8, I8, b=b.astype(I8))
        assert of_bytes.packed_bytes >= n * k
        check(of_bytes(a), want)
        for own in (b, packed(b)):
            plan = gemmkit.MatMulIntegerPlan((m, k), (k, n), U8, dtype, b=own)
            check(plan(a), want)
            if "nibbles" in plan.kernel:
                assert n * k // 2 <= plan.packed_bytes < 0.6 * of_bytes.packed_bytes


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("pair", [(U8, I8), (I8, U8), (I4, U4)], ids=name)
def test_forced_algorithms(algorithm, pair, isa):
    ran = 0
    for m, n, k in (*SIZES[::2], SIZES[-1], (9, 53, 3001)):
        a, b, za, zb, want, plain = problem(m, n, k, pair)
        for own in ({}, {"b": b, "b_zero_point": zb}):
            shapes = (m, k), (k, n)
            if gemmkit.MatMulIntegerPlan(*shapes, *pair, **own).refusal(algorithm) is not None:
                with pytest.raises(ValueError, match="^algorithm: "):
                    gemmkit.MatMulIntegerPlan(*shapes, *pair, **own, algorithm=algorithm)
                continue
            plan = gemmkit.MatMulIntegerPlan(*shapes, *pair, **own, algorithm=algorithm)
            assert plan.algorithm == algorithm
            given = (None, za) if own else (b, za, zb)
            check(plan(a, *given), want)
            check(plan(np.asfortranarray(a), *given), want)
            if not own:
                check(plan(a, np.asfortranarray(b)), plain)
            ran += 1
    assert ran == 0 if algorithm in ("direct", "small_k") else ran >= 6


def test_unknown_algorithms_are_refused():
    for name_ in ("", "fast"):
        with pytest.raises(ValueError, match="known are auto, direct"):
            gemmkit.MatMulIntegerPlan((2, 3), (3, 4), U8, I8, algorithm=name_)
        with pytest.raises(ValueError, match="known are auto, direct"):
            gemmkit.QLinearMatMulPlan((2, 3), (3, 4), U8, I8, U8, algorithm=name_)


# ---- QLinearMatMulPlan

def qlinear_problem(shapes, types, seed=4):
    """a, its scale and zero point, b, its, y's; per row and per column where the operands are matrices."""
    rng = np.random.default_rng(seed)
    a, b = values(rng, shapes[0], types[0]), values(rng, shapes[1], types[1])
    rows = (a.shape[-2],) if a.ndim > 1 else ()
    columns = (b.shape[-1],) if b.ndim > 1 else ()
    return [a, np.asarray(rng.uniform(0.01, 0.2, rows)).astype(F32), values(rng, rows, types[0]),
            b, np.asarray(rng.uniform(0.01, 0.2, columns)).astype(F32), values(rng, columns, types[1]),
            F32(3.0 * max(a.shape[-1], 1) ** 0.5), types[2](5)]


def by_plan(given, own=None, out=None, **options):
    """The product by a plan; `own` is b in the form that the plan keeps."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = given
    types = a.dtype, b.dtype, y_zero.dtype
    if own is None:
        plan = gemmkit.QLinearMatMulPlan(a.shape, b.shape, *types, **options)
        return plan(a, a_scale, a_zero, y_scale, y_zero, b, b_scale, b_zero, out)
    plan = gemmkit.QLinearMatMulPlan(a.shape, b.shape, *types, b=own, b_scale=b_scale, b_zero_point=b_zero, **options)
    return plan(a, a_scale, a_zero, y_scale, y_zero, out=out)


@functools.lru_cache(256)
def qlinear_case(m, n, k, pair, y_type):
    given = qlinear_problem(((m, k), (k, n)), (*pair, y_type))
    return given, qlinear_matmul(*given)


@pytest.mark.parametrize("y_type", BYTES, ids=name)
@by_pair
def test_qlinear_plans_agree_with_the_definition(pair, y_type, isa):
    for m, n, k in ((1, 1, 9), (5, 7, 3), (1, 70, 33), (64, 1, 17), (33, 20, 130)):
        given, bounds = qlinear_case(m, n, k, pair, y_type)
        for own in (None, *kept(given[3])):
            check_between(by_plan(given, own), bounds)
            out = np.full((n, m), 77, y_type).T
            assert by_plan(given, own, out) is out
            check(out, gemmkit.qlinear_matmul(*given))


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((40,), (40, 20)), ((20, 40), (40,)), ((3, 4, 30), (30, 20)),
                                    ((2, 3, 4, 30), (3, 30, 5)), ((9, 30), (4, 30, 5)), ((0, 9, 30), (30, 5)),
                                    ((2, 9, 0), (2, 0, 5))], ids=str)
def test_qlinear_plans_take_every_shape(shapes):
    for types in ((U8, I8, U8), (I8, U8, I8), (U8, U4, I8)):
        given = qlinear_problem(shapes, types)
        bounds = qlinear_matmul(*given)
        check_between(by_plan(given), bounds)
        check_between(by_plan(given, given[3]), bounds)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_forced_algorithms_of_qlinear_plans(algorithm, isa):
    ran = 0
    for m, n, k in ((1, 70, 33), (64, 1, 17), (33, 20, 130), (9, 23, 5001)):
        given, bounds = qlinear_case(m, n, k, (U8, I8), U8)
        plan = gemmkit.QLinearMatMulPlan((m, k), (k, n), U8, I8, U8)
        if plan.refusal(algorithm) is None:
            check_between(by_plan(given, algorithm=algorithm), bounds)
            ran += 1
    assert ran == 0 if algorithm in ("direct", "small_k") else ran >= 2


@pytest.mark.parametrize("dtype", FLOAT8, ids=name)
def test_qlinear_plans_of_float8(dtype):
    rng = np.random.default_rng(5)
    for m, n, k in ((1, 40, 33), (17, 33, 40)):
        a, b = (rng.integers(-4, 5, shape).astype(F32).astype(dtype) for shape in ((m, k), (k, n)))
        zero = np.zeros((), dtype)
        given = [a, np.full(m, 0.25, F32), zero, b, F32(0.5), zero, F32(2), np.asarray(-1).astype(dtype)]
        for own in (None, b, np.asfortranarray(b)):
            check_float8(by_plan(given, own), qlinear_float8(*given), dtype)


# ---- What plans tell, own and refuse

def every_kind_of_plan(**own):
    return [gemmkit.MatMulIntegerPlan((20, 30), (30, 50), U8, I8, **own),
            gemmkit.QLinearMatMulPlan((20, 30), (30, 50), U8, I8, U8,
                                      **({**own, "b_scale": F32(1)} if own else {}))]


def test_attributes_and_repr(isa):
    for own in ({}, {"b": np.ones((30, 50), I8)}):
        for plan in every_kind_of_plan(**own):
            row = next(row for row in _registry.rows() if row["name"] == plan.kernel)
            assert plan.isa == row["isa"] and plan.isa in _registry.usable_isas()
            assert plan.algorithm in ALGORITHMS and plan.refusal(plan.algorithm) is None
            assert (plan.packed_bytes >= 1500) == bool(own) and (plan.packed_bytes == 0) == (not own)
            assert plan.workspace_bytes >= 0 and plan.num_threads >= 1
            text = repr(plan)
            for part in (type(plan).__name__, "(20, 30) @ (30, 50)", "uint8", "int8", plan.algorithm, plan.kernel):
                assert part in text
            for attribute in ATTRIBUTES:
                with pytest.raises(AttributeError):
                    setattr(plan, attribute, 3)
            assert repr(plan) == text


def test_an_owned_b_is_a_copy():
    for dtype, shape in itertools.product((I8, U8, I4), ((30, 50), (600, 97), (3, 30, 5), (30,))):
        k = shape[-2] if len(shape) > 1 else shape[0]
        a, values_, = some(6, ((2, 3, 9, k), U8), (shape, dtype))
        zb, b_scale = some(7, (shape[-1:] if len(shape) > 1 else (), dtype))[0], np.array([0.5], F32)
        want = matmul_integer(a, values_, None, zb)
        for b in (values_.copy(), np.asfortranarray(values_), np.repeat(values_, 2, -1)[..., ::2]):
            zero, scale = zb.copy(), b_scale.copy()
            plan = gemmkit.MatMulIntegerPlan(a.shape, shape, U8, dtype, b=b, b_zero_point=zero)
            other = gemmkit.QLinearMatMulPlan(a.shape, shape, U8, dtype, U8, b=b, b_scale=scale, b_zero_point=zero)
            before = other(a, F32(1), U8(3), F32(100), U8(9))
            b[...], zero[...], scale[...] = 1, 1, np.nan
            check(plan(a), want)
            check(other(a, F32(1), U8(3), F32(100), U8(9)), before)


def test_an_owned_buffer_of_nibbles_is_a_copy():
    a, b = some(8, ((1, 130), U8), ((130, 65), I4))
    p = gemmkit.PackedInt4.pack(b)
    plan = gemmkit.MatMulIntegerPlan((1, 130), (130, 65), U8, I4, b=p)
    del p
    poison = [np.full(130 * 65 // 2 + 1, 0x77, U8) for _ in range(4)]
    check(plan(a), matmul_integer(a, b))
    del poison


def test_b_is_passed_to_a_plan_without_and_only_then():
    a, b = some(9, ((20, 30), U8), ((30, 50), I8))
    plan, qlinear = every_kind_of_plan()
    y = F32(1), U8(0)
    for call in (lambda: plan(a), lambda: qlinear(a, F32(1), U8(0), *y),
                 lambda: qlinear(a, F32(1), U8(0), *y, None, F32(1))):
        with pytest.raises(ValueError):
            call()
    plan, qlinear = every_kind_of_plan(b=b)
    for call in (lambda: plan(a, b), lambda: plan(a, None, None, I8(1)), lambda: qlinear(a, F32(1), U8(0), *y, b),
                 lambda: qlinear(a, F32(1), U8(0), *y, None, F32(1)),
                 lambda: qlinear(a, F32(1), U8(0), *y, None, None, I8(1))):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ValueError):  # a zero point of no b
        gemmkit.MatMulIntegerPlan((20, 30), (30, 50), U8, I8, b_zero_point=I8(1))


def test_unfit_arguments_are_refused_and_out_is_left_alone():
    a, b = some(10, ((20, 30), U8), ((30, 50), I8))
    for own, plan in ((False, every_kind_of_plan()[0]), (True, every_kind_of_plan(b=b)[0])):
        out = np.full((20, 50), 7, I32)
        rest = () if own else (b,)
        for x in (a[:, :-1], a[:-1], a[None], a.T):
            with pytest.raises(ValueError, match="^a: expected shape"):
                plan(x, *rest, out=out)
        for x in (a.astype(I8), a.astype(I32), a.astype(F32)):
            with pytest.raises(TypeError, match="^a: expected"):
                plan(x, *rest, out=out)
        for zero, error in ((np.zeros(30, U8), ValueError), (I8(0), TypeError), (np.zeros((1, 30), U8), ValueError)):
            with pytest.raises(error, match="a_zero_point"):
                plan(a, *(rest or (None,)), zero, out=out)
        for unfit, error in ((out[:-1], ValueError), (out.astype(I64), TypeError), (out.astype(U32), TypeError)):
            with pytest.raises(error, match="out: "):
                plan(a, *rest, out=unfit)
        assert (out == 7).all()
    qlinear, out = every_kind_of_plan()[1], np.full((20, 50), 7, U8)
    good = [a, F32(1), U8(0), F32(1), U8(0), b, F32(1), I8(0)]
    for index, bad, error in ((0, a[1:], ValueError), (0, a.astype(I8), TypeError), (1, np.ones(30, F32), ValueError),
                              (1, np.ones((), np.float64), TypeError), (2, I8(0), TypeError), (4, I8(0), TypeError),
                              (3, np.ones(2, F32), ValueError), (5, b[1:], ValueError), (5, b.astype(U8), TypeError),
                              (6, np.ones(30, F32), ValueError), (7, U8(0), TypeError)):
        with pytest.raises(error):
            qlinear(*good[:index], bad, *good[index + 1:], out=out)
    for unfit, error in ((out[:-1], ValueError), (out.astype(I8), TypeError)):
        with pytest.raises(error, match="out: "):
            qlinear(*good, out=unfit)
    assert (out == 7).all()


@pytest.mark.parametrize("arguments,options,error", [
    (((2, 3), (2, 3), U8, I8), {}, ValueError), (((), (2, 2), U8, I8), {}, ValueError),
    ((5, (2, 3), U8, I8), {}, TypeError), (((2, 3), (3, 4), I32, I8), {}, TypeError),
    (((2, 3), (3, 4), U8, F32), {}, TypeError),
    (((2, 3), (3, 4), bool, I8), {}, TypeError), (((2, 3), (3, 4), U8, "nonsense"), {}, TypeError),
    (((2, 3), (3, 4), U8, I8), {"b": np.ones((4, 3), I8)}, ValueError),
    (((2, 3), (3, 4), U8, I8), {"b": np.ones((3, 4), U8)}, TypeError),
    (((2, 3), (3, 4), U8, I8), {"b": np.ones((3, 4), I8), "b_zero_point": np.zeros(3, I8)}, ValueError),
    (((2, 3), (3, 4), U8, I8), {"b": np.ones((3, 4), I8), "b_zero_point": U8(0)}, TypeError)])
def test_plans_that_cannot_be_made(arguments, options, error):
    with pytest.raises(error):
        gemmkit.MatMulIntegerPlan(*arguments, **options)
    with pytest.raises(error):
        gemmkit.QLinearMatMulPlan(*arguments, U8, **options, **({"b_scale": F32(1)} if options else {}))
    for y_type in (I32, F16, F32, I4):
        with pytest.raises(TypeError):
            gemmkit.QLinearMatMulPlan((2, 3), (3, 4), U8, I8, y_type)


# ---- Threads and sets

def test_many_python_threads_on_one_plan():
    k, n = 130, 110
    b, zb = some(11, ((k, n), I4), ((n,), I4))
    jobs = []
    for m in (1, 90):
        a, za = some(12, ((m, k), U8), ((m,), U8))
        want = matmul_integer(a, b, za, zb)
        for own in (b, packed(b)):
            plan = gemmkit.MatMulIntegerPlan((m, k), (k, n), U8, I4, b=own, b_zero_point=zb)
            jobs.append((lambda plan=plan, a=a, za=za: plan(a, None, za), want))
        plan = gemmkit.MatMulIntegerPlan((m, k), (k, n), U8, I4)
        jobs.append((lambda plan=plan, a=a, za=za: plan(a, b, za, zb), want))
        given = qlinear_problem(((m, k), (k, n)), (U8, I8, U8))
        jobs.append((lambda given=given: by_plan(given, given[3]), gemmkit.qlinear_matmul(*given)))
    failures = []

    def work(seed):
        for index in np.random.default_rng(seed).integers(0, len(jobs), 60):
            if not np.array_equal(jobs[index][0](), jobs[index][1]):
                failures.append(index)

    with gemmkit.threads(2):
        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not failures


@pytest.mark.parametrize("algorithm", ["general", "skinny_m", "skinny_n", "split_k"])
def test_any_number_of_threads_gives_the_same_result(algorithm):
    m, n, k = {"general": (301, 199, 203), "skinny_m": (7, 3003, 203), "skinny_n": (3003, 5, 203),
               "split_k": (7, 9, 30_003)}[algorithm]
    a, b, za, zb, want, _ = problem(m, n, k, (I8, U8))
    plan = gemmkit.MatMulIntegerPlan((m, k), (k, n), I8, U8, algorithm=algorithm)
    for count in COUNTS:
        with gemmkit.threads(count):
            check(plan(a, b, za, zb), want)


def test_a_plan_keeps_its_kernels_under_another_set():
    a, b, za, zb, want, _ = problem(33, 49, 130, (U8, I4))
    names = _registry.usable_isas()
    for made in names:
        with gemmkit.isa(made):
            plans = [gemmkit.MatMulIntegerPlan((33, 130), (130, 49), U8, I4, b=own, b_zero_point=zb) for own in kept(b)]
        kernels = [plan.kernel for plan in plans]
        for used in (names[0], names[-1]):
            with gemmkit.isa(used):
                for plan in plans:
                    check(plan(a, None, za), want)
                assert [plan.kernel for plan in plans] == kernels


# ---- The other plans on integers

@pytest.mark.parametrize("dtype", [I32, I64, U32], ids=name)
def test_gemm_plans_of_integers(dtype, isa):
    for m, n, k in ((5, 7, 3), (1, 40, 30), (40, 1, 30), (33, 50, 130)):
        a, b, c = some(13, ((m, k), dtype), ((k, n), dtype), ((n,), dtype))
        want = wrap(-3 * modular(a, b).view(I64) + 5 * c.astype(I64), dtype)  # numpy's 64 bits wrap
        for own, given in ((None, (b,)), (b, ())):
            plan = gemmkit.GemmPlan(m, n, k, dtype, alpha=-3, beta=5, b=own)
            check(plan(a, *given, c=c), want)
            plan = gemmkit.MatMulPlan((2, m, k), (k, n), dtype, b=own)
            check(plan(np.stack([a, a[::-1]]), *given), np.stack([matmul(a, b), matmul(a[::-1], b)]))
