"""qlinear_matmul on float8: sums in float32, one rounding to even, saturation to the largest finite value."""
import functools
import itertools

import numpy as np
import pytest
from integers import (
    BF16,
    COLUMN,
    COUNTS,
    F16,
    F32,
    F64,
    FLOAT8,
    I8,
    ROW,
    SCALES,
    U8,
    check_float8,
    forms,
    frozen,
    layouts,
    name,
    positive_values,
    qlinear_float8,
)

import gemmkit

E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ = FLOAT8
LARGEST = {E4M3FN: 8, E4M3FNUZ: 8, E5M2: 4, E5M2FNUZ: 4}  # integers up to these are exact, and float32 holds their sums
TRIPLES = [(t, t, t) for t in FLOAT8] + [(E4M3FN, E5M2, E4M3FN), (E5M2FNUZ, E4M3FNUZ, E5M2), (E4M3FN, E4M3FN, E5M2FNUZ),
                                         (E5M2, E5M2, E4M3FNUZ)]
by_type = pytest.mark.parametrize("dtype", FLOAT8, ids=name)
by_triple = pytest.mark.parametrize("types", TRIPLES, ids=name)
ONE = F32(1)


def whole(rng, shape, dtype):
    return np.asarray(rng.integers(-LARGEST[dtype], LARGEST[dtype], shape, endpoint=True)).astype(F32).astype(dtype)


def powers(rng, shape, dtype=F32):
    return np.asarray(2.0 ** rng.integers(-3, 3, shape)).astype(dtype)


def arguments(rng, a, b, y_type, a_scale=(), a_zero=None, b_scale=(), b_zero=None, dtype=F32):
    """Scales and zero points of these shapes around a and b; a zero point of no shape is zero."""
    za, zb = (np.zeros((), x.dtype) if shape is None else whole(rng, shape, x.dtype.type)
              for x, shape in ((a, a_zero), (b, b_zero)))
    y_scale = np.asarray(2.0 ** np.ceil(np.log2(max(a.shape[-1], 1)) / 2)).astype(dtype)
    return [a, powers(rng, a_scale, dtype), za, b, powers(rng, b_scale, dtype), zb, y_scale, whole(rng, (), y_type)]


SIZES = [(1, 1, 1), (1, 1, 9), (1, 70, 5), (64, 1, 33), (5, 7, 3), (13, 66, 31), (7, 16, 129), (1, 69, 300),
         (33, 49, 64)]


@functools.lru_cache(1024)
def problem(m, n, k, types, kind):
    rng = np.random.default_rng((m, n, k))
    a, b = whole(rng, (m, k), types[0]), whole(rng, (k, n), types[1])
    shapes = {"plain": {}, "scales": {"a_scale": (m,), "b_scale": (1, n)}, "zeros": {"a_zero": (), "b_zero": (1,)},
              "vectors": {"a_scale": (m, 1), "a_zero": (m,), "b_scale": (n,), "b_zero": (1, n)}}
    given = frozen(*arguments(rng, a, b, types[2], **shapes[kind]))
    return given, qlinear_float8(*given)


# ---- Values

@by_triple
def test_tails(types, isa):
    for (m, n, k), kind in itertools.product(SIZES, ("plain", "scales", "zeros", "vectors")):
        given, want = problem(m, n, k, types, kind)
        check_float8(gemmkit.qlinear_matmul(*given), want, types[2])


def as_row(numbers, dtype):
    return np.asarray(numbers, F64)[:, None].astype(F32).astype(dtype)


@by_type
def test_ties_and_their_neighbours(dtype, isa):
    """Halfway between two values, and a little less or more, over the whole range and both signs."""
    table = positive_values(dtype)
    below, above = table[:-1], table[1:]
    a_little = np.array([table[table <= x / 16].max() for x in below])
    b = np.ones((3, 5), dtype)
    for sign, off in itertools.product((1, -1), (-1, 0, 1)):
        a = np.concatenate([as_row(sign * x, dtype) for x in (below, above, off * a_little)], 1)
        want = np.repeat(sign * (below + above + off * a_little)[:, None], 5, 1) / 2
        zero = np.zeros((), dtype)
        for scale in ((F32(0.5), ONE, ONE), (F32(2), F32(0.25), ONE), (BF16(1), BF16(1), BF16(2))):
            got = gemmkit.qlinear_matmul(a, scale[0], zero, b, scale[1], zero, scale[2], zero)
            check_float8(got, want, dtype)
        got = gemmkit.qlinear_matmul(b.T, ONE, zero, a.T, F32(0.5), zero, ONE, zero)
        check_float8(got, want.T, dtype)


@by_type
def test_every_value_passes_through(dtype, isa):
    codes = np.arange(256, dtype=U8).view(dtype)
    codes = codes[np.isfinite(codes.astype(F32))]
    zero, one = np.zeros((), dtype), np.ones((1, 1), dtype)
    for a, b in ((codes[:, None], one), (one, codes[None]), (codes[:, None], np.ones((1, 33), dtype))):
        want = a.astype(F64) * b.astype(F64)
        check_float8(gemmkit.qlinear_matmul(a, ONE, zero, b, ONE, zero, ONE, zero), want, dtype)


@by_type
def test_saturation_infinity_and_nan(dtype, isa):
    largest, zero = positive_values(dtype)[-1], np.zeros((), dtype)
    a = as_row([largest, -largest, largest / 2, 1, 0], dtype)
    for n in (1, 5, 40):
        b = np.full((1, n), largest, F32).astype(dtype)
        for scale in (ONE, F32(2.0 ** 100), F32(2.0 ** -20)):
            want = a.astype(F64) * b.astype(F64) * float(scale)
            check_float8(gemmkit.qlinear_matmul(a, scale, zero, b, ONE, zero, ONE, zero), want, dtype)
    if dtype == E5M2:
        a[3] = np.inf
        a[4] = -np.inf
    a[1] = np.nan
    b = np.ones((1, 7), dtype)
    b[0, 3] = np.nan
    with np.errstate(invalid="ignore"):
        want = a.astype(F64) * b.astype(F64)
    assert np.isnan(want).sum() == 7 + len(a) - 1
    check_float8(gemmkit.qlinear_matmul(a, ONE, zero, b, ONE, zero, ONE, zero), want, dtype)


@by_type
def test_zero_points_decode_to_numbers(dtype, isa):
    rng = np.random.default_rng(1)
    for m, n, k in ((5, 7, 3), (1, 40, 33), (17, 33, 40)):
        a, b = whole(rng, (m, k), dtype), whole(rng, (k, n), dtype)
        half = np.asarray(0.5).astype(dtype)
        for za, zb, zy in itertools.product((np.zeros((), dtype), half, whole(rng, (m,), dtype)),
                                            (np.zeros((), dtype), -half, whole(rng, (1, n), dtype)), (half, -half)):
            given = [a, F32(0.25), za, b, F32(0.5), zb, F32(2), zy]
            check_float8(gemmkit.qlinear_matmul(*given), qlinear_float8(*given), dtype)


@by_type
def test_the_zero_point_is_added_before_the_only_rounding(dtype):
    """x alone and x + zero point would round to different places."""
    table = positive_values(dtype)
    value = table[np.searchsorted(table, 1.0)]
    step = table[np.searchsorted(table, 1.0) + 1] - value
    a = as_row([value * 0.25, step / 4, step / 2, step], dtype)
    zero, one = np.zeros((), dtype), np.ones((1, 9), dtype)
    for y_zero in (value, value + step, -value, step / 2):
        zy = np.asarray(y_zero).astype(F32).astype(dtype)
        want = np.repeat(a.astype(F64), 9, 1) + float(zy.astype(F64))
        check_float8(gemmkit.qlinear_matmul(a, ONE, zero, one, ONE, zero, ONE, zy), want, dtype)


def test_other_scales_leave_a_neighbour_at_most(isa):
    """Not powers of two: the exact value to a few float32 roundings, and what those may do to a rounding."""
    rng = np.random.default_rng(2)
    for types, (m, n, k) in itertools.product(TRIPLES, ((1, 40, 33), (17, 33, 40))):
        a, b = whole(rng, (m, k), types[0]), whole(rng, (k, n), types[1])
        a_scale, b_scale = (rng.uniform(0.1, 1, size).astype(F32) for size in (m, n))
        zero = [np.zeros((), t) for t in types]
        total = np.einsum("ik,kj->ij", a.astype(F64), b.astype(F64), optimize=False)
        exact = total * (a_scale.astype(F64)[:, None] * b_scale.astype(F64)) / float(F32(3.3))
        got = gemmkit.qlinear_matmul(a, a_scale, zero[0], b, b_scale, zero[1], F32(3.3), zero[2])
        assert got.dtype == types[2] and got.shape == (m, n)
        table = np.concatenate([-positive_values(types[2])[::-1], positive_values(types[2])])
        slack = 8 * 2.0 ** -24 * abs(exact)
        nearest = abs(table - np.clip(exact, table[0], table[-1])[..., None]).min(-1)
        error = abs(got.astype(F64) - np.clip(exact, table[0], table[-1]))
        assert (error <= nearest + 2 * slack).all()


# ---- Forms, shapes, memory

@pytest.mark.parametrize("dtype", SCALES, ids=name)
@by_triple
def test_every_form_on_batches(types, dtype):
    rng = np.random.default_rng(3)
    a, b = whole(rng, (2, 3, 5, 9), types[0]), whole(rng, (3, 9, 6), types[1])
    rows, columns = forms(a, ROW), forms(b, COLUMN)
    for i, x in enumerate(rows):
        y = columns[i % len(columns)]
        for mixture in ((x, None, y, None), (x, rows[-i], y, columns[-1 - i % len(columns)])):
            given = arguments(rng, a, b, types[2], *mixture, dtype=dtype)
            check_float8(gemmkit.qlinear_matmul(*given), qlinear_float8(*given), types[2])


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((30,), (30, 5)), ((5, 30), (30,)), ((2, 4, 3), (3, 5)),
                                    ((4, 3), (2, 3, 5)), ((2, 1, 4, 3), (6, 3, 5)), ((0, 3), (3, 4)), ((2, 3), (3, 0)),
                                    ((4, 0), (0, 5)), ((2, 33, 0), (0, 40)), ((0,), (0,)), ((0,), (0, 40))], ids=str)
@by_type
def test_shapes_follow_numpy(dtype, shapes):
    rng = np.random.default_rng(4)
    a, b = whole(rng, shapes[0], dtype), whole(rng, shapes[1], dtype)
    for a_zero, b_zero in ((None, None), ((), (1,))):
        given = arguments(rng, a, b, dtype, (), a_zero, (1,), b_zero)
        given[7] = np.asarray(-3).astype(dtype)
        want = qlinear_float8(*given)
        if not a.shape[-1]:
            assert (want == -3).all()
        got = gemmkit.qlinear_matmul(*given)
        check_float8(got, want, dtype)
        assert isinstance(got, np.generic) == (a.ndim == b.ndim == 1)
        out = np.full(got.shape[::-1], 7, F32).astype(dtype).T
        assert gemmkit.qlinear_matmul(*given, out=out) is out
        check_float8(out, want, dtype)


@by_triple
def test_every_pair_of_layouts(types):
    for m, n, k in ((9, 18, 11), (1, 70, 40), (70, 1, 33)):
        (a, *left, b, b_scale, b_zero, y_scale, y_zero), want = problem(m, n, k, types, "vectors")
        for x, y in itertools.product(layouts(a).values(), layouts(b).values()):
            got = gemmkit.qlinear_matmul(x, *left, y, b_scale, b_zero, y_scale, y_zero)
            check_float8(got, want, types[2])


@by_type
def test_any_number_of_threads_gives_the_same_bits(dtype):
    rng = np.random.default_rng(5)
    for m, n, k in ((201, 199, 203), (1, 3999, 303), (3, 5, 30_003)):
        given = arguments(rng, whole(rng, (m, k), dtype), whole(rng, (k, n), dtype), dtype, (m,), None, (n,), None)
        results = []
        for count in COUNTS:
            with gemmkit.threads(count):
                results.append(gemmkit.qlinear_matmul(*given))
        assert all((x.view(U8) == results[0].view(U8)).all() for x in results)
        check_float8(results[0][:3, :40], qlinear_float8(given[0][:3], given[1][:3], given[2], given[3][:, :40],
                                                         given[4][:40], *given[5:]), dtype)


def test_unfit_arguments_are_refused_and_out_is_left_alone():
    rng = np.random.default_rng(6)
    good = arguments(rng, whole(rng, (4, 3), E4M3FN), whole(rng, (3, 5), E5M2), E4M3FN)
    out = np.full((4, 5), 7, F32).astype(E4M3FN)
    bad = [(2, good[2].astype(E5M2), TypeError), (5, good[5].astype(E4M3FN), TypeError), (2, U8(0), TypeError),
           (5, F32(0), TypeError), (7, F16(0), TypeError), (7, BF16(0), TypeError), (0, good[0].astype(F16), TypeError),
           (3, good[3].astype(BF16), TypeError), (2, np.zeros(3, E4M3FN), ValueError),
           (5, np.zeros(3, E5M2), ValueError), (1, np.ones(3, F32), ValueError), (4, np.ones((3, 1), F32), ValueError),
           (6, np.ones(2, F32), ValueError),
           (7, np.zeros(5, E4M3FN), ValueError), (0, good[0].T, ValueError)]
    for index, value, error in bad:
        given = [*good[:index], value, *good[index + 1:]]
        with pytest.raises(error):
            gemmkit.qlinear_matmul(*given)
        with pytest.raises(error):
            gemmkit.qlinear_matmul(*given, out=out)
    for dtype in (E5M2, E4M3FNUZ, F32, I8):
        with pytest.raises(TypeError, match="out: "):
            gemmkit.qlinear_matmul(*good, out=np.zeros((4, 5), dtype))
    with pytest.raises(ValueError, match="out: "):
        gemmkit.qlinear_matmul(*good, out=out.T)
    assert (out.astype(F32) == 7).all()
