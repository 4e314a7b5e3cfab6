"""Plans: what they tell, what they own, what they refuse, and that nothing changes them once they are made."""
import contextlib
import copy
import itertools
import pickle
import sys
import threading

import numpy as np
import pytest
import support

import gemmkit
from gemmkit._kernels import _registry

FLOATS = (np.float32, np.float64)
FLAGS = [(False, False), (False, True), (True, False), (True, True)]  # trans_a, trans_b
ATTRIBUTES = ("dtype", "algorithm", "isa", "kernel", "mr", "nr", "mc", "nc", "nb", "kc", "packs", "splits",
              "num_threads", "workspace_bytes", "work", "packed_bytes")


def integers(seed, *shapes, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [support.small_integers(rng, shape, dtype) for shape in shapes]


def expected(a, b):
    """a @ b with batch axes and rank 1, exact for small integers."""
    left, right = ("ik" if a.ndim > 1 else "k"), ("kj" if b.ndim > 1 else "k")
    result = "i" * (a.ndim > 1) + "j" * (b.ndim > 1)
    return np.einsum(f"...{left},...{right}->...{result}", a.astype(np.float64), b.astype(np.float64), optimize=False)


def turned(x, flag):
    return x.swapaxes(-1, -2) if flag else x


def every_kind_of_plan():
    a, b = integers(0, (3, 20, 30), (3, 30, 50))
    return [(gemmkit.GemmPlan(20, 50, 30, np.float32), a[0], b[0]),
            (gemmkit.MatMulPlan((3, 20, 30), (30, 50), np.float32), a, b[0]),
            (gemmkit.StridedBatchedGemm(3, 20, 50, 30, np.float32), a, b)]


# ---- What a plan tells

def test_attributes_and_repr():
    for plan, _, _ in every_kind_of_plan():
        row = next(row for row in _registry.rows() if row["name"] == plan.kernel)
        assert (plan.mr, plan.nr, plan.isa) == (row["mr"], row["nr"], row["isa"])
        assert plan.dtype == np.float32 and plan.algorithm in ("general", "direct")
        assert plan.kc == 30 and plan.nc >= 50 and plan.mc >= 20 and plan.splits == 1 and plan.packed_bytes == 0
        assert set(plan.packs) <= {"a", "b"} and plan.num_threads >= 1
        text = repr(plan)
        for part in (type(plan).__name__, "float32", plan.algorithm, plan.kernel, str(plan.kc)):
            assert part in text
    assert "M 20 N 50 K 30" in repr(gemmkit.GemmPlan(20, 50, 30, np.float32))
    assert "(3, 20, 30) @ (30, 50)" in repr(gemmkit.MatMulPlan((3, 20, 30), (30, 50), np.float32))
    assert "batch 3" in repr(gemmkit.StridedBatchedGemm(3, 20, 50, 30, np.float32))
    assert "packed" in repr(gemmkit.GemmPlan(2, 2, 2, np.float32, b=np.ones((2, 2), np.float32)))
    assert [plan.work for plan, _, _ in every_kind_of_plan()] == [30_000, 90_000, 90_000]


def test_workspace_is_told_where_operands_are_packed():
    for algorithm, trans_a, trans_b in itertools.product(("auto", "general"), (False, True), (False, True)):
        plan = gemmkit.GemmPlan(300, 400, 500, np.float32, trans_a=trans_a, trans_b=trans_b, algorithm=algorithm)
        assert bool(plan.packs) == bool(plan.workspace_bytes)
        if "b" in plan.packs:
            assert plan.workspace_bytes >= 400 * 500 * 4
    assert gemmkit.GemmPlan(64, 64, 4096, np.float32, algorithm="split_k").workspace_bytes > 64 * 64 * 4
    assert gemmkit.GemmPlan(300, 0, 500, np.float32).workspace_bytes == 0


def test_num_threads_follows_the_work_and_the_limit():
    with gemmkit.threads(3):
        assert gemmkit.GemmPlan(1000, 1000, 1000, np.float32).num_threads == 3
        assert gemmkit.StridedBatchedGemm(1000, 100, 100, 100, np.float32).num_threads == 3
        assert gemmkit.GemmPlan(3, 3, 3, np.float32).num_threads == 1
        plan = gemmkit.GemmPlan(1000, 1000, 1000, np.float32)
        with gemmkit.threads(2):
            assert plan.num_threads == 2


def test_refusal_says_why():
    plan = gemmkit.GemmPlan(9, 9, 600, np.float32)
    assert plan.refusal("general") is None and plan.refusal("direct") is None
    assert "not small" in plan.refusal("small_k")
    with pytest.raises(ValueError, match="unknown"):
        plan.refusal("fast")


# ---- Results

@pytest.mark.parametrize("trans_a,trans_b", FLAGS)
@pytest.mark.parametrize("own_b", [False, True])
def test_gemm_plan(trans_a, trans_b, own_b, wide_isa):
    sizes = ((5, 7, 3), (1, 40, 30), (40, 1, 30), (33, 100, 700), (70, 48, 0))
    for dtype, (m, n, k) in itertools.product(FLOATS, sizes):
        a, b, c = integers(1, (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n), (m, n), dtype=dtype)
        flags = {"trans_a": trans_a, "trans_b": trans_b, "alpha": 0.5, "beta": -2.0}
        plan = gemmkit.GemmPlan(m, n, k, dtype, b=b if own_b else None, **flags)
        product = 0.5 * expected(turned(a, trans_a), turned(b, trans_b))
        given = () if own_b else (b,)
        assert plan.isa == wide_isa and plan.dtype == dtype and (plan.packed_bytes > 0) == own_b
        np.testing.assert_array_equal(plan(a, *given), product)
        for bias in (c, c[0], c[:, :1], np.asfortranarray(c), dtype(3)):
            np.testing.assert_array_equal(plan(a, *given, c=bias), product - 2 * bias)
        for out in (np.empty((m, n), dtype), np.empty((n, m), dtype).T, np.empty((2 * m, 2 * n), dtype)[::-2, ::-2]):
            assert plan(a, *given, c=c, out=out) is out
            np.testing.assert_array_equal(out, product - 2 * c)


MATMUL_SHAPES = [((3,), (3,)), ((40,), (40, 70)), ((70, 40), (40,)), ((4, 30), (30, 5)), ((6, 4, 30), (30, 50)),
                 ((6, 1, 30), (30, 50)), ((2, 6, 9, 30), (6, 30, 50)), ((9, 30), (4, 30, 20)),
                 ((2, 1, 9, 30), (3, 30, 20)), ((30,), (4, 30, 20)), ((0, 9, 30), (30, 5)),
                 ((3, 0, 9, 30), (1, 1, 30, 5)), ((2, 9, 0), (2, 0, 5))]


@pytest.mark.parametrize("shapes", MATMUL_SHAPES, ids=str)
def test_matmul_plan(shapes, wide_isa):
    for dtype in FLOATS:
        a, b = integers(2, *shapes, dtype=dtype)
        want = expected(a, b)
        for plan, given in ((gemmkit.MatMulPlan(*shapes, dtype), (b,)), (gemmkit.MatMulPlan(*shapes, dtype, b=b), ())):
            got = plan(a, *given)
            assert got.dtype == dtype and got.shape == want.shape
            np.testing.assert_array_equal(got, want)
            if want.ndim:
                turned_out = np.full(want.shape[::-1], 113, dtype).T
                assert plan(a, *given, out=turned_out) is turned_out
                np.testing.assert_array_equal(turned_out, want)


@pytest.mark.parametrize("trans_a,trans_b", FLAGS)
def test_strided_batched_gemm(trans_a, trans_b, wide_isa):
    sizes = ((1, 5, 7, 3), (4, 9, 50, 30), (7, 1, 40, 20), (3, 70, 20, 600))
    for dtype, (batch, m, n, k) in itertools.product(FLOATS, sizes):
        a, b, c = integers(3, (batch, k, m) if trans_a else (batch, m, k), (batch, n, k) if trans_b else (batch, k, n),
                           (batch, m, n), dtype=dtype)
        product = 2 * expected(turned(a, trans_a), turned(b, trans_b))
        flags = {"trans_a": trans_a, "trans_b": trans_b, "alpha": 2.0, "beta": 0.5}
        for plan, given in ((gemmkit.StridedBatchedGemm(batch, m, n, k, dtype, **flags), (b,)),
                            (gemmkit.StridedBatchedGemm(batch, m, n, k, dtype, b=b, **flags), ())):
            np.testing.assert_array_equal(plan(a, *given), product)
            for bias in (c, c[0], c[:1], c[:, :1], c[:, :, :1], c[0, 0], c[::-1], c[:, ::-1, ::-1]):
                np.testing.assert_array_equal(plan(a, *given, c=bias), product + 0.5 * bias)
            interleaved = np.full((m, batch, n), 113, dtype).swapaxes(0, 1)
            plan(a.swapaxes(0, 1).copy().swapaxes(0, 1), *given, c=c, out=interleaved)
            np.testing.assert_array_equal(interleaved, product + 0.5 * c)


@pytest.mark.parametrize("trans_a,trans_b", FLAGS)
def test_grouped_gemm(trans_a, trans_b, wide_isa):
    shapes = [(5, 7, 3), (150, 160, 170), (1, 40, 30), (0, 4, 5), (4, 5, 0), (40, 1, 300), (9, 9, 2000),
              (130, 120, 140)]
    for dtype, count in itertools.product(FLOATS, (0, 1, 3, len(shapes))):
        a = integers(4, *[(k, m) if trans_a else (m, k) for m, n, k in shapes[:count]], dtype=dtype)
        b = integers(5, *[(n, k) if trans_b else (k, n) for m, n, k in shapes[:count]], dtype=dtype)
        group = gemmkit.GroupedGemm(shapes[:count], dtype, trans_a=trans_a, trans_b=trans_b, alpha=0.5)
        wants = [0.5 * expected(turned(x, trans_a), turned(y, trans_b)) for x, y in zip(a, b)]
        assert [plan.dtype for plan in group.plans] == [dtype] * count and f"{count} products" in repr(group)
        outs = [np.full(want.shape[::-1], 113, dtype).T for want in wants]
        for threads in (1, 3):
            with gemmkit.threads(threads):
                for got in (group(a, b), group(a, b, out=outs)):
                    assert len(got) == count
                    for x, want in zip(got, wants):
                        np.testing.assert_array_equal(x, want)
        assert all(x is y for x, y in zip(group(a, b, outs), outs))


def test_grouped_outputs_may_lie_over_any_operand():
    a, b = integers(6, (3, 20, 20), (3, 20, 20))
    want = expected(a, b)
    group = gemmkit.GroupedGemm([(20, 20, 20)] * 3, np.float32)
    group(a, b, out=[a[1], b[2], a[0]])
    for got, right in zip((a[1], b[2], a[0]), want):
        np.testing.assert_array_equal(got, right)


# ---- The plan's own B

@pytest.mark.parametrize("layout", [
    np.ascontiguousarray, np.asfortranarray, lambda b: np.repeat(b, 2, -1)[..., ::-2][..., ::-1],
    lambda b: np.broadcast_to(b[..., :1], b.shape), lambda b: b.astype(b.dtype.newbyteorder())],
    ids=["rows", "columns", "gaps", "repeated", "byte-swapped"])
def test_an_owned_b_is_a_copy(layout):
    for shape in ((30, 50), (600, 97), (3, 30, 50), (2, 3, 30, 5), (30,)):
        a, values = integers(7, (2, 3, 9, shape[-2] if len(shape) > 1 else shape[0]), shape)
        b = layout(values)
        want, references = expected(a, b), sys.getrefcount(b)
        plan = gemmkit.MatMulPlan(a.shape, shape, np.float32, b=b)
        assert sys.getrefcount(b) == references
        if b.flags.writeable:
            b[...] = np.nan
        np.testing.assert_array_equal(plan(a), want)
        del b, values
        poison = [np.full(shape, np.nan, np.float32) for _ in range(4)]
        np.testing.assert_array_equal(plan(a), want)
        del poison


def test_b_is_passed_to_a_plan_without_and_only_then():
    for plan, a, b in every_kind_of_plan():
        with pytest.raises(ValueError, match="owns no B"):
            plan(a)
    a, b = integers(8, (20, 30), (30, 50))
    with pytest.raises(ValueError, match="owns its B"):
        gemmkit.GemmPlan(20, 50, 30, np.float32, b=b)(a, b)


def test_unfit_arguments_are_refused_and_out_is_left_alone():
    for plan, a, b in every_kind_of_plan():
        out = np.full(expected(a, b).shape, 7, np.float32)
        for operands in ((a[..., :-1], b), (a, b[..., :-1]), (a[None], b), (turned(a, True), b)):
            with pytest.raises(ValueError, match="^[ab]: expected shape"):
                plan(*operands, out=out)
        for operands in ((a.astype(np.float64), b), (a, b.astype(np.float64)), (a.astype(np.int32), b)):
            with pytest.raises(TypeError, match="^[ab]: expected dtype"):
                plan(*operands, out=out)
        with pytest.raises(ValueError, match="out: "):
            plan(a, b, out=out[..., :-1])
        for unfit in (out.astype(np.float64), out.tolist()):
            with pytest.raises(TypeError, match="out: "):
                plan(a, b, out=unfit)
        assert (out == 7).all()
    plan, a, b = every_kind_of_plan()[0]
    for shape in ((20,), (1, 20, 50), (20, 49)):
        with pytest.raises(ValueError, match="c: shape"):
            plan(a, b, np.ones(shape, np.float32))
    with pytest.raises(TypeError, match="c: expected dtype"):
        plan(a, b, np.ones(50))
    group = gemmkit.GroupedGemm([(20, 50, 30)] * 2, np.float32)
    for operands in (([a], [b, b]), ([a, a], [b]), ([a, a[:1]], [b, b]), ([a, a], [b, b], [None])):
        with pytest.raises(ValueError):
            group(*operands)
    with pytest.raises(TypeError, match=r"b\[1\]"):
        group([a, a], [b, b.astype(np.float64)])


@pytest.mark.parametrize("kind,arguments,options,error", [
    ("GemmPlan", (-1, 2, 2), {}, ValueError), ("GemmPlan", (2.0, 2, 2), {}, TypeError),
    ("GemmPlan", (True, 2, 2), {}, TypeError), ("GemmPlan", (2 ** 61, 1, 1), {}, ValueError),
    ("GemmPlan", (2, 2, 2), {"alpha": "x"}, TypeError), ("GemmPlan", (2, 2, 2), {"beta": 1j}, TypeError),
    ("GemmPlan", (2, 3, 4), {"b": np.ones((3, 4), np.float32)}, ValueError),
    ("GemmPlan", (2, 3, 4), {"b": np.ones((4, 3))}, TypeError),
    ("MatMulPlan", ((), (2, 2)), {}, ValueError), ("MatMulPlan", ((2, 3), (2, 3)), {}, ValueError),
    ("MatMulPlan", (5, (2, 3)), {}, TypeError), ("MatMulPlan", ((2, 3, 4), (3, 4, 5)), {}, ValueError),
    ("StridedBatchedGemm", (-1, 2, 2, 2), {}, ValueError), ("GroupedGemm", ([(2, 3)],), {}, ValueError),
    ("GroupedGemm", ([2],), {}, TypeError)])
def test_plans_that_cannot_be_made(kind, arguments, options, error):
    with pytest.raises(error):
        getattr(gemmkit, kind)(*arguments, np.float32, **options)


@pytest.mark.parametrize("dtype", ["F", "g", object, "S3", "M8[s]", "nonsense"])
def test_plans_of_foreign_types_are_refused(dtype):
    for kind, arguments in (("GemmPlan", (2, 2, 2)), ("MatMulPlan", ((2, 2), (2, 2))), ("GroupedGemm", ([(2, 2, 2)],))):
        with pytest.raises(TypeError):
            getattr(gemmkit, kind)(*arguments, dtype)


# ---- Nothing changes a plan

def test_plans_are_immutable():
    for plan, a, b in every_kind_of_plan():
        before = repr(plan)
        for name in (*ATTRIBUTES, "anything"):
            with pytest.raises(AttributeError):
                setattr(plan, name, 3)
            with pytest.raises(AttributeError):
                delattr(plan, name)
        for duplicate in (copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                duplicate(plan)
        assert repr(plan) == before
    group = gemmkit.GroupedGemm([(2, 2, 2)], np.float32)
    with pytest.raises(AttributeError):
        group.plans = ()
    with pytest.raises(TypeError):
        gemmkit.GemmPlan.__base__()


@pytest.mark.parametrize("own_b", [False, True])
def test_a_plan_keeps_its_kernels_under_another_set(own_b):
    names = support.wide_isas()
    rng = np.random.default_rng(9)
    a, b, c = (support.random_values(rng, shape, np.float32) for shape in ((33, 300), (300, 101), (101,)))
    for made in names:
        with gemmkit.isa(made):
            plan = gemmkit.GemmPlan(33, 101, 300, np.float32, b=b if own_b else None)
            before = plan(a, c=c) if own_b else plan(a, b, c)
        for used in names:
            with gemmkit.isa(used):
                assert plan.isa == made
                assert support.same_bits(plan(a, c=c) if own_b else plan(a, b, c), before)
                for left, out in ((np.asfortranarray(a), None), (a, np.empty((101, 33), np.float32).T)):
                    got = plan(left, None if own_b else b, c, out)
                    assert (abs(got - before) <= 2 * support.bound(a, b, np.broadcast_to(c, before.shape))).all()


def test_other_layouts_than_planned_and_many_threads_on_one_plan():
    a, b, c = integers(10, (90, 300), (300, 110), (90, 110))
    want = expected(a, b) + c
    plans = [gemmkit.GemmPlan(90, 110, 300, np.float32), gemmkit.GemmPlan(90, 110, 300, np.float32, b=b)]
    forms = (lambda x: x, np.asfortranarray, lambda x: np.repeat(x, 3, 1)[:, ::3], lambda x: x[::-1].copy()[::-1])
    outs = (lambda: np.empty((90, 110), np.float32), lambda: np.empty((110, 90), np.float32).T,
            lambda: np.empty((90, 220), np.float32)[:, ::2])
    failures = []

    def work(seed):
        order = np.random.default_rng(seed)
        for _ in range(40):
            owned, left, right, bias, out = order.integers(0, (2, 4, 4, 4, 3))
            given = None if owned else forms[right](b)
            got = plans[owned](forms[left](a), given, forms[bias](c), outs[out]())
            if not np.array_equal(got, want):
                failures.append((owned, left, right, bias, out))

    with gemmkit.threads(2):
        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not failures


def test_a_plan_is_never_half_made_nor_made_again():
    for kind in (gemmkit.GemmPlan, gemmkit.MatMulPlan, gemmkit.StridedBatchedGemm, gemmkit.GroupedGemm):
        with pytest.raises(TypeError):
            kind.__new__(kind)
    plan = gemmkit.GemmPlan(2, 3, 4, np.float32, b=np.ones((4, 3), np.float32))
    before = repr(plan)
    with contextlib.suppress(TypeError):
        plan.__init__(5, 6, 7, np.float64)
    assert repr(plan) == before
    np.testing.assert_array_equal(plan(np.ones((2, 4), np.float32)), np.full((2, 3), 4))


@pytest.mark.parametrize("k", [2**59, 2**58])
def test_a_constant_larger_than_memory_is_refused(k):
    b = np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (k, 1), (0, 0))
    with pytest.raises(MemoryError):
        gemmkit.GemmPlan(1, 1, k, np.float32, b=b)
