"""PackedInt4: two values a byte, rows that may start in the middle of one, as either operand of either product."""
import itertools

import numpy as np
import pytest
from integers import (
    COUNTS,
    F32,
    I4,
    I8,
    I16,
    I32,
    NIBBLES,
    SIZES,
    U4,
    U8,
    check,
    check_between,
    frozen,
    limits,
    matmul_integer,
    name,
    nibbles,
    packed,
    qlinear_matmul,
    some,
    values,
)

import gemmkit

SHAPES = [(1,), (2,), (7,), (1, 1), (3, 5), (4, 6), (5, 1), (1, 9), (2, 3, 5), (3, 1, 7), (2, 2, 2, 3), (0, 3),
          (3, 0), (0,)]
PARTNERS = (I8, U8, I4, U4)

by_type = pytest.mark.parametrize("dtype", NIBBLES, ids=name)


# ---- The container

@by_type
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_packing_and_unpacking(shape, dtype):
    x, = some(1, (shape, dtype))
    for p in (gemmkit.PackedInt4.pack(x), packed(x), gemmkit.PackedInt4.pack(np.asfortranarray(x)),
              gemmkit.PackedInt4.pack(np.repeat(x, 2, -1)[..., ::2])):
        assert p.shape == shape and p.signed == (dtype == I4)
        np.testing.assert_array_equal(np.asarray(p.unpack()).astype(I32), x.astype(I32), strict=True)


def test_the_low_nibble_is_the_first():
    p = gemmkit.PackedInt4(np.array([0x21, 0xf3], U8), (3,))
    assert p.signed and p.unpack().astype(I32).tolist() == [1, 2, 3]
    p = gemmkit.PackedInt4(np.array([0x8f, 0x07], U8), (3,))
    assert p.unpack().astype(I32).tolist() == [-1, -8, 7]
    p = gemmkit.PackedInt4(np.array([0x8f, 0x07], U8), (3,), signed=False)
    assert not p.signed and p.unpack().astype(I32).tolist() == [15, 8, 7]
    got = gemmkit.matmul_integer(gemmkit.PackedInt4(np.array([0x21, 0x43, 0x65], U8), (2, 3)), np.eye(3, dtype=I8))
    check(got, np.array([[1, 2, 3], [4, 5, 6]], I32))


def test_every_value_survives():
    for dtype in NIBBLES:
        low, high = limits(dtype)
        x = np.arange(low, high + 1).astype(dtype)
        pairs = np.stack(np.meshgrid(x.astype(I8), x.astype(I8)), -1).reshape(-1, 2).astype(dtype)  # every byte
        p = gemmkit.PackedInt4.pack(pairs)
        np.testing.assert_array_equal(p.unpack().astype(I8), pairs.astype(I8))
        check(gemmkit.matmul_integer(p, np.eye(2, dtype=I8)), pairs.astype(I32))


def test_unfit_buffers_are_refused():
    for size, shape in ((1, (3,)), (7, (3, 5)), (0, (1,)), (2, (2, 0, 5))):
        if np.prod(shape):
            with pytest.raises(ValueError):
                gemmkit.PackedInt4(np.zeros(size, U8), shape)
    for shape in ((-1,), (3, -5)):
        with pytest.raises(ValueError):
            gemmkit.PackedInt4(np.zeros(8, U8), shape)
    for buffer in (np.zeros(8, I16), np.zeros(8, F32), [0, 1], None, "ab"):
        with pytest.raises((TypeError, ValueError)):
            gemmkit.PackedInt4(buffer, (3, 5))


# ---- Products

@pytest.mark.parametrize("partner", PARTNERS, ids=name)
@by_type
def test_either_operand(dtype, partner, isa):
    """Odd lengths of rows put every other row in the middle of a byte."""
    for m, n, k in SIZES:
        x, other, y = some(2, ((m, k), dtype), ((k, n), partner), ((k, n), dtype))
        left, = some(3, ((m, k), partner))
        za, zb = values(np.random.default_rng(4), (m,), dtype), values(np.random.default_rng(5), (1, n), partner)
        check(gemmkit.matmul_integer(packed(x), other), matmul_integer(x, other))
        check(gemmkit.matmul_integer(packed(x), other, za, zb), matmul_integer(x, other, za, zb))
        za, zb = values(np.random.default_rng(6), (), partner), values(np.random.default_rng(7), (n,), dtype)
        check(gemmkit.matmul_integer(left, packed(y)), matmul_integer(left, y))
        check(gemmkit.matmul_integer(left, packed(y), za, zb), matmul_integer(left, y, za, zb))
        if partner in NIBBLES:
            check(gemmkit.matmul_integer(packed(left), packed(y), za, zb), matmul_integer(left, y, za, zb))


@pytest.mark.parametrize("shapes", [
    ((3,), (3,)), ((7,), (7, 5)), ((5, 7), (7,)), ((3, 5, 7), (7, 3)), ((5, 7), (3, 7, 3)), ((2, 1, 5, 7), (3, 7, 1)),
    ((1, 3, 3), (2, 3, 3)), ((0, 3), (3, 5)), ((3, 0), (0, 5)), ((2, 3, 5), (2, 5, 0)), ((2, 33, 65), (2, 65, 31))],
    ids=str)
def test_shapes_follow_numpy(shapes):
    for pair in itertools.product(NIBBLES, repeat=2):
        a, b = some(8, (shapes[0], pair[0]), (shapes[1], pair[1]))
        for za, zb in ((None, None), (np.array(5, pair[0]), np.array([7], pair[1]))):
            want = matmul_integer(a, b, za, zb)
            for x, y in ((packed(a), packed(b)), (packed(a), b), (a, packed(b))):
                check(gemmkit.matmul_integer(x, y, za, zb), want)
                out = np.full(want.shape[::-1], 113, I32).T
                gemmkit.matmul_integer(x, y, za, zb, out=out)
                np.testing.assert_array_equal(out, want)


@by_type
def test_python_integers_are_zero_points(dtype):
    a, b = some(9, ((5, 7), dtype), ((7, 3), dtype))
    low, high = limits(dtype)
    check(gemmkit.matmul_integer(packed(a), packed(b), low, high), matmul_integer(a, b, dtype(low), dtype(high)))
    for bad in (low - 1, high + 1):
        with pytest.raises((OverflowError, ValueError)):
            gemmkit.matmul_integer(packed(a), packed(b), bad)
    with pytest.raises(TypeError):
        gemmkit.matmul_integer(packed(a), packed(b), None, np.array(1, U4 if dtype == I4 else I4))


@pytest.mark.parametrize("edge", ["end", "start"])
@by_type
def test_nothing_around_the_buffer_is_touched(dtype, edge, isa, guarded):
    for m, n, k in SIZES[1::2]:
        a, b, bytes_ = some(10, ((m, k), dtype), ((k, n), dtype), ((m, k), U8))
        x, y = (gemmkit.PackedInt4(guarded(nibbles(z), edge=edge), z.shape, signed=dtype == I4) for z in (a, b))
        check(gemmkit.matmul_integer(x, y, 3, 1), matmul_integer(a, b, dtype(3), dtype(1)))
        check(gemmkit.matmul_integer(bytes_, y), matmul_integer(bytes_, b))
        check(gemmkit.matmul_integer(x, bytes_.T), matmul_integer(a, bytes_.T))


@by_type
def test_any_number_of_threads(dtype):
    for m, n, k in ((1, 4999, 301), (201, 99, 303), (3, 5, 50_001)):
        a, b, zb = some(11, ((m, k), U8), ((k, n), dtype), ((n,), dtype))
        want = matmul_integer(a, b, U8(9), zb)
        for count in COUNTS:
            with gemmkit.threads(count):
                check(gemmkit.matmul_integer(a, packed(b), 9, zb), want)


def test_buffers_are_only_read_and_may_be_of_bytes():
    a, b = some(12, ((5, 7), U8), ((7, 3), I4))
    want = matmul_integer(a, b)
    buffer, = frozen(nibbles(b))
    check(gemmkit.matmul_integer(a, gemmkit.PackedInt4(buffer, (7, 3))), want)
    for other in (buffer.tobytes(), bytearray(buffer.tobytes()), memoryview(buffer.tobytes())):
        check(gemmkit.matmul_integer(a, gemmkit.PackedInt4(other, (7, 3))), want)


@by_type
def test_requantized(dtype, isa):
    for m, n, k in ((5, 7, 3), (1, 40, 33), (17, 33, 129)):
        a, b, za, zb = some(13, ((m, k), U8), ((k, n), dtype), ((m,), U8), ((n,), dtype))
        rest = F32(0.25), F32(4), I8(-3)
        want = qlinear_matmul(a, rest[0], za, b, F32(0.125), zb, *rest[1:])
        check_between(gemmkit.qlinear_matmul(a, rest[0], za, packed(b), F32(0.125), zb, *rest[1:]), want)
        want = qlinear_matmul(b.T, rest[0], zb, a.T, F32(0.5), za, *rest[1:])
        check_between(gemmkit.qlinear_matmul(packed(b.T), rest[0], zb, a.T, F32(0.5), za, *rest[1:]), want)
