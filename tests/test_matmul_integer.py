"""matmul_integer: every mixture of 8- and 4-bit operands, every form of zero points, sums that are exact or wrap."""
import functools
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from integers import (
    BOOL,
    BYTES,
    COLUMN,
    COUNTS,
    F16,
    F32,
    F64,
    FLOAT8,
    I4,
    I8,
    I16,
    I32,
    I64,
    NIBBLES,
    ROW,
    SIZES,
    U4,
    U8,
    U16,
    U32,
    centred,
    check,
    check_by_projection,
    forms,
    frozen,
    layouts,
    limits,
    matmul_integer,
    modular,
    name,
    onnx_cases,
    onnx_reference,
    onnxruntime,
    packed,
    pairs,
    some,
    values,
    windows,
    wrap,
)

import gemmkit

SMALL = (*BYTES, *NIBBLES)


@functools.lru_cache(4096)
def problem(m, n, k, pair, kind):
    """a, b, their zero points and the product; shared by the tests of all instruction sets."""
    rng = np.random.default_rng((m, n, k))
    a, b = values(rng, (m, k), pair[0]), values(rng, (k, n), pair[1])
    a_shape, b_shape = {"none": (None, None), "a": ((), None), "b": (None, ()), "both": ((1,), ()),
                        "rows": ((m,), None), "columns": (None, (n,)), "vectors": ((m, 1), (1, n))}[kind]
    za, zb = (None if shape is None else values(rng, shape, dtype)
              for shape, dtype in ((a_shape, pair[0]), (b_shape, pair[1])))
    return (*frozen(a, b), za, zb, *frozen(matmul_integer(a, b, za, zb)))


KINDS = ("none", "a", "b", "both", "rows", "columns", "vectors")


# ---- Values

@pairs(SMALL)
def test_tails(pair, isa):
    for (m, n, k), kind in itertools.product(SIZES, KINDS):
        a, b, za, zb, want = problem(m, n, k, pair, kind)
        check(gemmkit.matmul_integer(a, b, za, zb), want)


@pairs(BYTES)
def test_bytes_of_every_value(pair, isa):
    """All products of two bytes: as an outer product, in pairs along k, and one by one against ones."""
    a, b = (np.arange(limits(dtype)[0], limits(dtype)[1] + 1).astype(dtype) for dtype in pair)
    want = wrap(np.multiply.outer(a.astype(I64), b.astype(I64)), I32)
    check(gemmkit.matmul_integer(a[:, None], b[None]), want)
    twice = np.ascontiguousarray(np.repeat(a[:, None], 2, 1)), np.ascontiguousarray(np.repeat(b[None], 2, 0))
    check(gemmkit.matmul_integer(*twice), 2 * want)
    check(gemmkit.matmul_integer(a[:, None], np.ones((1, 3), pair[1])), np.repeat(a[:, None].astype(I32), 3, 1))
    check(gemmkit.matmul_integer(np.ones((3, 1), pair[0]), b[None]), np.repeat(b[None].astype(I32), 3, 0))


@pairs(BYTES)
def test_extremes_do_not_saturate_in_pairs(pair, isa):
    """16-bit sums of two such products would clip."""
    ends = [limits(dtype) for dtype in pair]
    for left, right in itertools.product(itertools.product(ends[0], repeat=2), itertools.product(ends[1], repeat=2)):
        for m, n, k in ((1, 1, 2), (3, 50, 33), (50, 3, 64), (17, 40, 258)):
            a, b = np.empty((m, k), pair[0]), np.empty((k, n), pair[1])
            a[:, ::2], a[:, 1::2], b[::2], b[1::2] = *left, *right
            for za, zb in ((None, None), (ends[0][0], ends[1][1]), (ends[0][1], ends[1][0])):
                want = matmul_integer(a[0], b[:, 0], None if za is None else pair[0](za),
                                      None if zb is None else pair[1](zb))
                check(gemmkit.matmul_integer(a, b, za, zb), np.full((m, n), want.item(), I32))


@pairs(BYTES)
def test_sums_past_32_bits_wrap(pair):
    k = 70_001
    ends = [limits(dtype) for dtype in pair]
    for x, y in itertools.product(*ends):
        for m, n in ((1, 1), (1, 40), (5, 3)):
            a, b = np.full((m, k), x, pair[0]), np.full((k, n), y, pair[1])
            check(gemmkit.matmul_integer(a, b), np.full((m, n), wrap(np.array(k * x * y, object), I32).item(), I32))
            za, zb = sum(ends[0]) - x, sum(ends[1]) - y  # the other ends: 255 off each
            want = wrap(np.array(k * (x - za) * (y - zb), object), I32).item()
            check(gemmkit.matmul_integer(a, b, za, zb), np.full((m, n), want, I32))
    assert gemmkit.matmul_integer(np.full((1, 70_000), 255, U8), np.full((70_000, 1), 255, U8)) == 256_782_704


@pairs(SMALL)
def test_several_blocks_of_k(pair):
    """Zero points count once, with the sums of all blocks."""
    for (m, n, k), kind in itertools.product(((9, 53, 9001), (2, 3, 40_003), (65, 33, 2050)), KINDS[3:]):
        a, b, za, zb, want = problem(m, n, k, pair, kind)
        check(gemmkit.matmul_integer(a, b, za, zb), want)


# ---- Zero points

@pairs(BYTES)
def test_every_form_with_every_form(pair, isa):
    a, b, za, zb, wants = batched(pair)
    for (i, x), (j, y) in itertools.product(enumerate(za), enumerate(zb)):
        check(gemmkit.matmul_integer(a, b, x, y), wants[i, j])


@functools.cache
def batched(pair):
    a, b = some(1, ((2, 3, 5, 9), pair[0]), ((3, 9, 6), pair[1]))
    rng = np.random.default_rng(2)
    za = [None, *(values(rng, shape, pair[0]) for shape in forms(a, ROW))]
    zb = [None, *(values(rng, shape, pair[1]) for shape in forms(b, COLUMN))]
    assert len(za) == 18 and len(zb) == 10
    return a, b, za, zb, {(i, j): matmul_integer(a, b, x, y)
                          for (i, x), (j, y) in itertools.product(enumerate(za), enumerate(zb))}


@pytest.mark.parametrize("shapes", [((40, 70), (70, 66)), ((1, 130), (130, 300)), ((300, 130), (130, 1)),
                                    ((1, 9), (9, 1)), ((3, 1, 64), (64, 40)), ((2, 33, 17), (2, 17, 50)),
                                    ((20, 40), (3, 40, 30)), ((4, 1, 2, 30), (1, 5, 30, 2))], ids=str)
def test_forms_on_other_shapes(shapes, isa):
    for pair in ((U8, I8), (I8, U8), (U8, U4), (I4, I8)):
        a, b = some(3, (shapes[0], pair[0]), (shapes[1], pair[1]))
        rng = np.random.default_rng(4)
        for x, y in itertools.zip_longest(forms(a, ROW), forms(b, COLUMN), fillvalue=()):
            za, zb = values(rng, x, pair[0]), values(rng, y, pair[1])
            check(gemmkit.matmul_integer(a, b, za, zb), matmul_integer(a, b, za, zb))
            check(gemmkit.matmul_integer(a, b, b_zero_point=zb), matmul_integer(a, b, None, zb))
            check(gemmkit.matmul_integer(a, b, za), matmul_integer(a, b, za))


@pytest.mark.parametrize("n", [1, 2, 3, 16, 65])
def test_a_vector_of_a_square_operand_is_per_row_and_per_column(n):
    for pair in itertools.product(BYTES, repeat=2):
        a, b, za, zb = some(5, ((n, n), pair[0]), ((n, n), pair[1]), ((n,), pair[0]), ((n,), pair[1]))
        want = wrap(modular(a.astype(I64) - za.astype(I64)[:, None], b.astype(I64) - zb.astype(I64)[None]), I32)
        check(gemmkit.matmul_integer(a, b, za, zb), want)


def test_python_integers_and_scalars_are_zero_points():
    a, b = some(6, ((5, 9), U8), ((9, 7), I8))
    want = matmul_integer(a, b, U8(200), I8(-100))
    for za, zb in ((200, -100), (U8(200), I8(-100)), (np.array(200, U8), np.array([-100], I8))):
        check(gemmkit.matmul_integer(a, b, za, zb), want)
        check(gemmkit.matmul_integer(a, b, a_zero_point=za, b_zero_point=zb), want)
    for za, zb in ((256, 0), (-1, 0), (0, 128), (0, -129), (2 ** 70, 0)):
        with pytest.raises((OverflowError, ValueError)):
            gemmkit.matmul_integer(a, b, za, zb)


@pytest.mark.parametrize("form", ["gaps", "backwards", "repeated", "read-only", "record"])
def test_zero_points_in_any_memory(form):
    a, b, za, zb = some(7, ((2, 33, 20), U8), ((2, 20, 50), I8), ((2, 33, 1), U8), ((2, 1, 50), I8))

    def placed(z):
        if form == "gaps":
            return np.repeat(np.repeat(z, 3, -1), 2, -2)[..., 1::2, 2::3]
        if form == "backwards":
            return z[::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1]
        if form == "repeated":
            return np.broadcast_to(z[:, :1, :1], z.shape)
        if form == "record":
            record = np.zeros(z.shape, [("tag", "S3"), ("x", z.dtype)])["x"]
            record[...] = z
            return record
        return frozen(z.copy())[0]

    x, y = placed(za), placed(zb)
    check(gemmkit.matmul_integer(a, b, x, y), matmul_integer(a, b, x, y))
    check(gemmkit.matmul_integer(a[0], b[0], x[0, :, 0], y[0, 0]), matmul_integer(a[0], b[0], x[0], y[0]))


# ---- Shapes

SHAPES = [((3,), (3,)), ((1,), (1,)), ((40,), (40, 70)), ((70, 40), (40,)), ((2, 4, 3), (3, 5)), ((4, 3), (2, 3, 5)),
          ((2, 1, 4, 3), (6, 3, 5)), ((30,), (2, 30, 5)), ((2, 4, 30), (30,)), ((7, 2, 1, 3), (3, 5)),
          ((5, 33, 40), (40, 17)), ((3, 2, 70, 1), (1, 90)), ((0, 3), (3, 4)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 4)),
          ((1, 2, 3), (0, 3, 4)), ((64, 0), (0, 48)), ((3, 64, 0), (0, 5)), ((0,), (0, 48)), ((64, 0), (0,)),
          ((0,), (0,)), ((0, 0), (0, 0))]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes_follow_numpy(shapes):
    for pair in itertools.product(SMALL, repeat=2):
        a, b = some(8, (shapes[0], pair[0]), (shapes[1], pair[1]))
        for za, zb in ((None, None), (values(np.random.default_rng(9), (), pair[0]), np.array([1], pair[1]))):
            want = matmul_integer(a, b, za, zb)
            poison = [np.full(max(want.size, 1), 113, I32) for _ in range(4)]
            del poison  # its memory is likely to come back as the result's
            check(gemmkit.matmul_integer(a, b, za, zb), want)
            out = np.full(want.shape, 113, I32)
            assert gemmkit.matmul_integer(a, b, za, zb, out=out) is out
            check(out, want)
    assert (type(gemmkit.matmul_integer(a, b)) is I32) == (a.ndim == b.ndim == 1)


def test_empty_sums_are_zero_with_any_zero_points(isa):
    for m, n in ((64, 48), (1, 70), (70, 1), (5, 3)):
        a, b = np.empty((m, 0), U8), np.empty((0, n), I8)
        for za, zb in itertools.product((None, 7, np.arange(m).astype(U8)), (None, -7, np.arange(n).astype(I8)[None])):
            check(gemmkit.matmul_integer(a, b, za, zb), np.zeros((m, n), I32))


# ---- Memory

@pytest.mark.parametrize("shape", [(21, 19, 18), (1, 40, 70), (70, 33, 1), (6, 132, 40)], ids=str)
@pytest.mark.parametrize("pair", [(U8, I8), (I8, U8), (U4, I4)], ids=name)
def test_every_pair_of_layouts(pair, shape, isa):
    m, k, n = shape
    a, b, za, zb, want = problem(m, n, k, pair, "vectors")
    plain = problem(m, n, k, pair, "none")[-1]
    for x, y in itertools.product(layouts(a).values(), layouts(b).values()):
        check(gemmkit.matmul_integer(x, y, za, zb), want)
        check(gemmkit.matmul_integer(x, y), plain)
        check(gemmkit.matmul_integer(x[-1], y), plain[-1])
        check(gemmkit.matmul_integer(x, y[:, n // 2]), plain[:, n // 2])


def test_repeated_rows_columns_and_matrices(isa):
    one, row, column, matrix = some(10, ((1, 1), U8), ((1, 19), U8), ((21, 1), U8), ((21, 19), U8))
    b, zb = some(11, ((19, 18), I8), ((18,), I8))
    for a in (np.broadcast_to(one, (21, 19)), np.broadcast_to(row, (21, 19)), np.broadcast_to(column, (21, 19)),
              np.broadcast_to(matrix, (4, 21, 19)), np.broadcast_to(row, (5, 1, 19))):
        check(gemmkit.matmul_integer(a, b, 3, zb), matmul_integer(a, b, U8(3), zb))
        turned = a.swapaxes(-1, -2)
        check(gemmkit.matmul_integer(b.T, turned, zb, 3), matmul_integer(b.T, turned, zb, U8(3)))


@pytest.mark.parametrize("edge", ["end", "start"])
@pytest.mark.parametrize("pair", [(U8, I8), (I8, I8), (I4, U8)], ids=name)
def test_nothing_around_the_operands_is_touched(pair, edge, isa, guarded):
    """Each operand borders a page that can't be read, and quads of steps reach over an odd end."""
    for (m, n, k), kind in itertools.product(SIZES[1::2], ("none", "vectors")):
        a, b, za, zb, want = problem(m, n, k, pair, kind)
        out = guarded(np.zeros((m, n), I32), edge=edge)
        za, zb = (None if z is None else guarded(z, edge=edge) for z in (za, zb))
        gemmkit.matmul_integer(guarded(a, edge=edge), guarded(b, edge=edge), za, zb, out=out)
        check(out, want)
        check(gemmkit.matmul_integer(guarded(a.T.copy(), edge=edge).T, guarded(b.T.copy(), edge=edge).T, za, zb), want)


def test_operands_are_only_read():
    for pair in itertools.product(SMALL, repeat=2):
        a, b, za, zb = frozen(*some(12, ((33, 70), pair[0]), ((70, 40), pair[1]), ((33,), pair[0]), ((40,), pair[1])))
        before = [x.tobytes() for x in (a, b, za, zb)]
        check(gemmkit.matmul_integer(a, b, za, zb), matmul_integer(a, b, za, zb))
        assert [x.tobytes() for x in (a, b, za, zb)] == before


# ---- out and errors

@pytest.mark.parametrize("shapes", [((4, 3), (3, 5)), ((4, 2, 3), (4, 3, 5)), ((30,), (30, 70)), ((70, 30), (30,)),
                                    ((50, 40), (40, 60)), ((5, 0), (0, 4)), ((0, 3), (3, 5))], ids=str)
def test_out_is_filled_and_nothing_around_it(shapes):
    a, b = some(13, (shapes[0], U8), (shapes[1], U8))
    want = matmul_integer(a, b, U8(9), U8(200))
    for buffer, out in windows(want.shape, I32):
        assert gemmkit.matmul_integer(a, b, 9, 200, out=out) is out
        check(out, want)
        out[...] = 7
        assert (buffer == 7).all()


def test_out_may_overlap_what_is_read():
    for m, n, k in ((6, 8, 24), (64, 40, 128)):
        memory, b = some(14, ((8 * m * k,), U8), ((k, n), I8))
        memory = memory[-memory.ctypes.data % 4:]
        for at in (0, 1, m * n, 4 * m * n - m * k):
            shared = memory.copy()
            out = shared[:4 * m * n].view(I32).reshape(m, n)
            a, za = shared[at:at + m * k].reshape(m, k), shared[at + 3:at + 3 + m]
            want = matmul_integer(a, b, za, I8(5))
            check(gemmkit.matmul_integer(a, b, za, 5, out=out), want)
    zb = np.arange(12, dtype=I8)
    a, b, out = *some(15, ((1, 9), U8), ((9, 3), I8)), zb.view(I32)[None]
    want = matmul_integer(a, b, None, zb[4:7].copy())
    check(gemmkit.matmul_integer(a, b, None, zb[4:7], out=out), want)


def refused(error, *args, match=None, **kwargs):
    """Refused with and without an out, and that left alone."""
    out = np.full((4, 5), 7, I32)
    with pytest.raises(error, match=match):
        gemmkit.matmul_integer(*args, **kwargs)
    with pytest.raises(error, match=match):
        gemmkit.matmul_integer(*args, **kwargs, out=out)
    assert (out == 7).all()


def test_unfit_zero_points_are_refused():
    a, b = some(16, ((4, 3), U8), ((3, 5), I8))
    for shape in ((3,), (5,), (0,), (1, 3), (4, 3), (1, 4), (4, 4), (1, 1, 1), (1, 4, 1), (2, 4, 1), (3, 1), (0, 1)):
        refused(ValueError, a, b, np.zeros(shape, U8), match="a_zero_point")
    for shape in ((3,), (4,), (0,), (3, 1), (3, 5), (5, 1), (5, 5), (1, 1, 1), (1, 1, 5), (2, 1, 5), (1, 3), (1, 0)):
        refused(ValueError, a, b, None, np.zeros(shape, I8), match="b_zero_point")
    for dtype in (I8, I32, I64, BOOL, F32, F64, U16, U4, object):
        refused(TypeError, a, b, np.ones((), dtype), match="a_zero_point")
    for dtype in (U8, I16, I32, U32, BOOL, F16, I4):
        refused(TypeError, a, b, None, np.ones(5, dtype), match="b_zero_point")
    for bad in (1.0, "1", 1j):
        refused(TypeError, a, b, bad, match="a_zero_point")


def test_zero_points_may_not_enlarge_a_batch():
    a, b = some(17, ((2, 1, 4, 3), U8), ((3, 3, 5), I8))
    for shape in ((3, 1, 1), (2, 3, 4, 1), (2, 3, 1, 1), (3, 1, 4, 1), (1, 2, 1, 4, 1), (2, 2, 1, 1), (3, 4, 1),
                  (0, 4, 1)):
        with pytest.raises(ValueError, match="a_zero_point"):
            gemmkit.matmul_integer(a, b, np.zeros(shape, U8))
    for shape in ((2, 1, 5), (1, 3, 1, 5), (2, 3, 1, 5), (2, 1, 1, 1), (3, 3, 1), (3, 3, 5)):
        with pytest.raises(ValueError, match="b_zero_point"):
            gemmkit.matmul_integer(a, b, None, np.zeros(shape, I8))


def test_vectors_take_one_zero_point_only():
    a, b, v, w = some(18, ((4, 3), U8), ((3, 5), I8), ((3,), U8), ((3,), I8))
    for shape in ((3,), (1, 1), (3, 1), (1, 3), (4,)):
        for right in (b, w):
            with pytest.raises(ValueError, match="a_zero_point"):
                gemmkit.matmul_integer(v, right, np.zeros(shape, U8))
        for left in (a, v):
            with pytest.raises(ValueError, match="b_zero_point"):
                gemmkit.matmul_integer(left, w, None, np.zeros(shape, I8))
    za = np.arange(4).astype(U8)
    check(gemmkit.matmul_integer(a, w, za, 3), matmul_integer(a, w, za, I8(3)))


def test_unfit_operands_and_outs_are_refused():
    a, b = some(19, ((4, 3), U8), ((3, 5), I8))
    for dtype in (BOOL, I16, U16, I32, U32, I64, F16, F32, F64, *FLOAT8[:1], "F", object, "U3"):
        refused(TypeError, a.astype(dtype), b)
        refused(TypeError, a, b.astype(dtype))
    for left, right in ((a, b[:2]), (a.T, b), (a[0, 0], b), (a, b[0, 0]),
                        (np.zeros((2, 4, 3), U8), np.zeros((3, 3, 5), I8))):
        refused(ValueError, left, right)
    good = np.full((4, 5), 7, I32)
    read_only, = frozen(good.copy())
    for out in (good[:, :4], good[None], good[0], good.T, read_only, np.broadcast_to(good[0], (4, 5))):
        with pytest.raises(ValueError, match="out: "):
            gemmkit.matmul_integer(a, b, out=out)
    for dtype in (U8, I8, I64, U32, F32):
        out = np.full((4, 5), 7, dtype)
        with pytest.raises(TypeError, match="out: "):
            gemmkit.matmul_integer(a, b, out=out)
        assert (out == 7).all()
    with pytest.raises(TypeError):
        gemmkit.matmul_integer(a, b, None, None, good)  # out goes by its name
    assert (good == 7).all() and (read_only == 7).all()


# ---- Threads

@pytest.mark.parametrize("pair", [(U8, I8), (I8, U8), (I8, I4)], ids=name)
@pytest.mark.parametrize("size", [(301, 299, 303), (1, 4999, 503), (2003, 3, 203), (13, 903, 1003), (3, 5, 100_003)],
                         ids=str)
def test_any_number_of_threads_gives_the_same_bits(size, pair):
    m, n, k = size
    a, b, za, zb = some(20, ((m, k), pair[0]), ((k, n), pair[1]), ((m,), pair[0]), ((n,), pair[1]))
    x, y = centred(a, za, ROW), centred(b, zb, COLUMN)
    for count in COUNTS:
        with gemmkit.threads(count):
            check_by_projection(gemmkit.matmul_integer(a, b, za, zb), x, y)
            check_by_projection(gemmkit.matmul_integer(np.asfortranarray(a), np.asfortranarray(b), za, zb), x, y)


# ---- Other implementations

def test_the_onnx_node_test():
    cases = onnx_cases("MatMulInteger")
    assert cases
    for _, inputs, outputs in cases:
        check(gemmkit.matmul_integer(*inputs), outputs[0])


@pairs(BYTES)
def test_other_implementations_agree(pair):
    for shapes, z_shape in ((((40, 70), (70, 33)), ()), (((2, 5, 9), (2, 9, 7)), (2, 1, 7)),
                            (((40, 70), (70, 33)), (33,)), (((70,), (70, 3)), (1,)), (((3, 1, 9), (9,)), ())):
        a, b, za, zb = some(21, (shapes[0], pair[0]), (shapes[1], pair[1]), ((), pair[0]), (z_shape, pair[1]))
        got = gemmkit.matmul_integer(a, b, za, zb)
        for other in (onnxruntime, onnx_reference):
            check(got, np.asarray(other("MatMulInteger", [a, b, za, zb], I32, 10)))
        check(gemmkit.matmul_integer(a, b), np.asarray(onnxruntime("MatMulInteger", [a, b], I32, 10)))


# ---- Anything

SIDES = st.one_of(st.integers(0, 9), st.integers(0, 70), st.sampled_from((1, 4, 8, 16, 48, 64, 97, 130)))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), m=SIDES, n=SIDES, k=SIDES, types=st.tuples(st.sampled_from(SMALL), st.sampled_from(SMALL)),
       seed=st.integers(0, 2 ** 16),
       batches=mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=3, max_dims=2))
def test_any_operands(data, m, n, k, types, seed, batches):
    a_batch, b_batch = batches.input_shapes
    a_shape = data.draw(st.sampled_from(((*a_batch, m, k), (k,))))
    b_shape = data.draw(st.sampled_from(((*b_batch, k, n), (k,))))
    a, b = some(seed, (a_shape, types[0]), (b_shape, types[1]))
    rng = np.random.default_rng(seed)
    za, zb = (None if shape is None else values(rng, shape, x.dtype)
              for x, axis in ((a, ROW), (b, COLUMN)) for shape in [data.draw(st.sampled_from([None, *forms(x, axis)]))])
    want = matmul_integer(a, b, za, zb)
    forms_of_memory = (lambda x: x, lambda x: np.repeat(x, 2, -1)[..., ::2], lambda x: x.T.copy().T)
    x, y = (data.draw(st.sampled_from((*forms_of_memory, packed) if x.dtype in NIBBLES else forms_of_memory))(x)
            for x in (a, b))
    check(gemmkit.matmul_integer(x, y, za, zb), want)
