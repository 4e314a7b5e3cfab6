"""PackedInt4 itself: nibbles in a buffer that stays where it is."""
import array
import copy
import math
import mmap
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import int4, uint4

import gemmkit

SHAPES = [(1,), (2,), (7,), (16,), (3, 5), (4, 6), (5, 1), (1, 9), (3, 3, 3), (2, 3, 1, 5), (2, 0), (0,), (0, 3, 5),
          (1,) * 64, (31, 33)]
signs = pytest.mark.parametrize("signed", [True, False], ids=["int4", "uint4"])


def values_of(data, count, signed):
    """Nibble by nibble: even ones are low halves."""
    nibbles = [data[i // 2] >> 4 * (i % 2) & 15 for i in range(count)]
    return [n - 16 if signed and n > 7 else n for n in nibbles]


def bytes_of(values):
    """The same, the other way; the half that is left over is 0."""
    nibbles = [v % 16 for v in values] + [0] * (len(values) % 2)
    return bytes(low + 16 * high for low, high in zip(nibbles[::2], nibbles[1::2], strict=True))


def some(shape, signed):
    low, high = (-8, 8) if signed else (0, 16)
    return np.random.default_rng(0).integers(low, high, shape, np.int8)


# ---- Reading

@signs
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unpack_reads_low_nibbles_first(shape, signed):
    count = math.prod(shape)
    data = np.random.default_rng(1).integers(0, 256, (count + 1) // 2, np.uint8).tobytes()
    got = gemmkit.PackedInt4(data, shape, signed).unpack()
    assert got.dtype == (np.int8 if signed else np.uint8) and got.shape == shape
    assert got.ravel().tolist() == values_of(data, count, signed)
    assert got.flags.c_contiguous and got.flags.writeable


def test_the_layout_by_hand():
    """Rows of three: the second begins in the middle of the second byte."""
    data = b"\x21\xf3\x8e"
    assert gemmkit.PackedInt4(data, (2, 3)).unpack().tolist() == [[1, 2, 3], [-1, -2, -8]]
    assert gemmkit.PackedInt4(data, (2, 3), signed=False).unpack().tolist() == [[1, 2, 3], [15, 14, 8]]
    assert gemmkit.PackedInt4(data, (5,)).unpack().tolist() == [1, 2, 3, -1, -2]
    assert gemmkit.PackedInt4.pack(np.array([[1, 2, 3], [-1, -2, -8]])).buffer.tobytes() == data
    assert gemmkit.PackedInt4.pack(np.array([1, 2, -1])).buffer.tobytes() == b"\x21\x0f"


@signs
def test_every_byte(signed):
    every = bytes(range(256))
    assert gemmkit.PackedInt4(every, (512,), signed).unpack().tolist() == values_of(every, 512, signed)


@signs
def test_the_layout_is_onnx(signed):
    onnx = pytest.importorskip("onnx", reason="not run: needs onnx; test_the_layout_by_hand has the bytes")
    x = some((3, 5), signed).astype(int4 if signed else uint4)
    tensor = onnx.numpy_helper.from_array(x)
    packed = gemmkit.PackedInt4(tensor.raw_data, tuple(tensor.dims), signed)
    np.testing.assert_array_equal(packed.unpack(), x.astype(np.int8))
    assert gemmkit.PackedInt4.pack(x).buffer.tobytes() == tensor.raw_data


@signs
def test_as_an_array(signed):
    x = some((3, 5), signed)
    packed = gemmkit.PackedInt4(bytes_of(x.ravel().tolist()), (3, 5), signed)
    dtype = int4 if signed else uint4
    got = np.asarray(packed)
    assert got.dtype == packed.dtype == dtype and got.shape == (3, 5)
    np.testing.assert_array_equal(got.astype(np.int8), x)
    for wider in (np.int8, np.int64, np.float32, dtype):
        got = np.array(packed, dtype=wider)
        assert got.dtype == wider
        np.testing.assert_array_equal(got, x.astype(wider))
    with pytest.raises(ValueError, match="^copy: "):
        np.array(packed, copy=False)


# ---- Attributes

@signs
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attributes(shape, signed):
    count = math.prod(shape)
    packed = gemmkit.PackedInt4(bytes((count + 1) // 2), shape, signed)
    assert packed.shape == shape and packed.ndim == len(shape) and packed.size == count
    assert packed.nbytes == (count + 1) // 2 == packed.buffer.nbytes
    assert packed.signed is signed and packed.dtype == np.dtype(int4 if signed else uint4)
    assert len(packed) == shape[0]
    assert repr(packed) == f"PackedInt4(<{packed.nbytes} bytes>, shape={shape}, signed={signed})"


def test_shapes_may_be_any_integers():
    packed = gemmkit.PackedInt4(bytes(8), [np.int64(3), np.uint8(5)], np.bool_(False))
    assert packed.shape == (3, 5) and all(type(size) is int for size in packed.shape) and packed.signed is False
    assert gemmkit.PackedInt4(bytes(8), iter((4, 4))).shape == (4, 4)
    assert gemmkit.PackedInt4(b"", (2 ** 40, 0, 2 ** 40)).size == 0


def test_nothing_can_be_changed():
    packed = gemmkit.PackedInt4(bytearray(b"\x21\x43"), (4,))
    for attribute in ("buffer", "shape", "signed", "dtype", "ndim", "size", "nbytes", "_buffer", "_shape", "_signed",
                      "other"):
        with pytest.raises(AttributeError, match=f"^{attribute}: "):
            setattr(packed, attribute, 1)
        with pytest.raises(AttributeError, match=f"^{attribute}: "):
            delattr(packed, attribute)
    with pytest.raises(ValueError, match="read-only"):
        packed.buffer[0] = 0
    packed.__init__(b"\0\0", (4,), False)
    assert packed.signed and packed.unpack().tolist() == [1, 2, 3, 4]
    assert not hasattr(packed, "__dict__")


def test_identity_is_equality():
    one, other = gemmkit.PackedInt4(b"\x21", (2,)), gemmkit.PackedInt4(b"\x21", (2,))
    assert one == one and one != other and len({one, other, one}) == 2


@signs
def test_copies_and_pickles(signed):
    packed = gemmkit.PackedInt4.pack(some((3, 5), signed), signed)
    for twin in (copy.copy(packed), copy.deepcopy(packed), pickle.loads(pickle.dumps(packed))):
        assert type(twin) is gemmkit.PackedInt4 and twin.shape == (3, 5) and twin.signed is signed
        np.testing.assert_array_equal(twin.unpack(), packed.unpack())


# ---- Buffers

def test_buffers_are_not_copied(tmp_path):
    raw = bytes(range(1, 21))
    path = tmp_path / "nibbles"
    path.write_bytes(raw)
    plain = np.frombuffer(raw, np.uint8)
    mapped = np.memmap(path, np.uint8, "r")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        buffers = [raw, bytearray(raw), memoryview(raw), memoryview(bytearray(raw))[:], plain, plain.view(np.int8),
                   plain.copy(), mapped, mapping, array.array("B", raw), array.array("b", raw),
                   np.frombuffer(raw + b"77", np.uint8)[:-1], memoryview(plain.view(np.int8))]
        for buffer in buffers:
            packed = gemmkit.PackedInt4(buffer, (8, 5))
            assert type(packed.buffer) is np.ndarray and packed.buffer.dtype == np.uint8
            assert packed.buffer.shape == (20,) and not packed.buffer.flags.writeable
            assert packed.buffer.ctypes.data == np.frombuffer(buffer, np.uint8).ctypes.data
            assert packed.unpack().ravel().tolist() == values_of(raw, 40, True)
        del packed, buffer, buffers  # a map can't be closed while it is in use


def test_a_view_shows_what_its_owner_writes_and_leaves_it_writeable():
    data = np.zeros(2, np.uint8)
    packed = gemmkit.PackedInt4(data, (3,))
    data[0] = 0x21
    assert data.flags.writeable and packed.unpack().tolist() == [1, 2, 0]


def test_more_bytes_than_needed_are_left_out():
    packed = gemmkit.PackedInt4(b"\x21\xf3\x55\x66", (3,))
    assert packed.nbytes == packed.buffer.size == 2 and packed.unpack().tolist() == [1, 2, 3]


def test_the_owner_lives_as_long_as_the_view():
    packed = gemmkit.PackedInt4(np.full(1 << 16, 0x21, np.uint8), (1 << 16, 2))
    filler = [np.full(1 << 16, 0x77, np.uint8) for _ in range(4)]  # its memory, if it had been freed
    assert (packed.unpack() == [1, 2]).all()
    del filler


# ---- Packing

@signs
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pack_writes_low_nibbles_first(shape, signed):
    x = some(shape, signed)
    want = bytes_of(x.ravel().tolist())
    types = ("i1", "i2", "i4", "i8", ">i4", int4) if signed else ("u1", "u2", "u4", "u8", ">u4", uint4)
    for dtype in types:
        given = x.astype(dtype)
        packed = gemmkit.PackedInt4.pack(given)
        assert packed.buffer.tobytes() == want and packed.shape == shape and packed.signed is signed
        np.testing.assert_array_equal(given.astype(np.int8), x)
        np.testing.assert_array_equal(packed.unpack(), x)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=20), st.booleans(), st.booleans())
def test_there_and_back(data, odd, signed):
    count = max(2 * len(data) - odd, 0)
    again = gemmkit.PackedInt4.pack(gemmkit.PackedInt4(data, (count,), signed).unpack())
    assert again.signed is signed and again.shape == (count,)
    if odd and data:
        data = data[:-1] + bytes([data[-1] & 15])
    assert again.buffer.tobytes() == data


def test_pack_any_layout():
    x = some((6, 7), True)
    want = bytes_of(x.ravel().tolist())
    gaps = np.full((12, 21), 99, np.int8)
    gaps[::2, 1::3] = x
    for given_ in (np.asfortranarray(x), gaps[::2, 1::3], x[::-1].copy()[::-1], x.tolist(), gemmkit.PackedInt4.pack(x)):
        assert gemmkit.PackedInt4.pack(given_).buffer.tobytes() == want
    x = some((6, 7), False).astype(np.uint8)  # needs no conversion, and must not be written to
    before = x.copy()
    packed = gemmkit.PackedInt4.pack(x)
    assert packed.buffer.tobytes() == bytes_of(x.ravel().tolist())
    np.testing.assert_array_equal(x, before)
    assert not np.shares_memory(packed.buffer, x)


def test_signed_says_how_values_are_read():
    assert gemmkit.PackedInt4.pack(np.array([1, 15, 7]), signed=False).unpack().tolist() == [1, 15, 7]
    assert gemmkit.PackedInt4.pack(np.array([1, 7], np.uint8), signed=True).dtype == int4
    assert gemmkit.PackedInt4.pack(np.array([1, 7], int4), signed=False).dtype == uint4
    assert gemmkit.PackedInt4.pack([1, 2]).signed is True


@pytest.mark.parametrize("x,signed,message", [
    (np.array([[1, 2], [8, 9]]), None, r"8 at \(1, 0\) does not fit int4, -8 to 7"),
    (np.array([[1, -9], [8, 9]], np.int8), None, r"-9 at \(0, 1\) does not fit int4"),
    (np.array([[1, -9], [7, 7]], np.int8), None, r"-9 at \(0, 1\) does not fit int4"),
    (np.array([3, 16], np.uint8), None, r"16 at \(1,\) does not fit uint4, 0 to 15"),
    (np.array([3, -1]), False, r"-1 at \(1,\) does not fit uint4"),
    (np.array([3, -1], int4), False, r"-1 at \(1,\) does not fit uint4"),
    (np.array([3, 8], uint4), True, r"8 at \(1,\) does not fit int4"),
    (np.array([0, 2 ** 64 - 1], np.uint64), None, r"18446744073709551615 at \(1,\) does not fit uint4"),
    (np.array([0, 2 ** 63], np.uint64), True, r"9223372036854775808 at \(1,\) does not fit int4"),
    (np.array([256, -2 ** 63]), None, r"256 at \(0,\) does not fit int4"),
    (np.asfortranarray([[0, 99], [98, 0]]), None, r"99 at \(0, 1\) does not fit int4"),
], ids=str)
def test_the_first_value_that_does_not_fit_is_named(x, signed, message):
    with pytest.raises(ValueError, match=f"^array: {message}"):
        gemmkit.PackedInt4.pack(x, signed)


def test_only_the_low_nibble_of_a_4_bit_value_counts():
    """ml_dtypes leaves the other half of the byte as it comes."""
    every = np.arange(256, dtype=np.uint8)
    for dtype in (int4, uint4):
        assert gemmkit.PackedInt4.pack(every.view(dtype)).buffer.tobytes() == bytes_of([i & 15 for i in range(256)])


def test_subclasses_pack_to_themselves():
    class Named(gemmkit.PackedInt4):
        __slots__ = ()

    assert type(Named.pack(np.ones(3, np.int8))) is Named and type(copy.copy(Named(b"\0", (2,)))) is Named


# ---- Refusals

def test_unfit_buffers_are_refused_by_name():
    good = np.zeros(16, np.uint8)
    for bad in (good.view(np.uint16), good.astype(np.float32), good.view(bool), np.zeros(16, int4), np.zeros(16, uint4),
                memoryview(array.array("f", [1, 2, 3, 4])), array.array("i", [1, 2, 3, 4]), [0] * 16, None, "0" * 16,
                16):
        with pytest.raises(TypeError, match="^buffer: "):
            gemmkit.PackedInt4(bad, (4,))
    for bad in (good[::2], good[::-1], memoryview(good)[::2], memoryview(bytes(16))[::-1]):
        with pytest.raises(ValueError, match="^buffer: .*contiguous"):
            gemmkit.PackedInt4(bad, (4,))
    for bad in (good.reshape(4, 4), np.zeros((), np.uint8), good.reshape(1, 16)):
        with pytest.raises(ValueError, match="^buffer: .*one dimension"):
            gemmkit.PackedInt4(bad, (4,))
    for shape, needed in (((33,), 17), ((5, 7), 18), ((2 ** 40, 2 ** 40), 2 ** 79)):
        with pytest.raises(ValueError, match=rf"^buffer: expected at least {needed} bytes .*got 16"):
            gemmkit.PackedInt4(good, shape)
    assert gemmkit.PackedInt4(good, (32,)).size == 32
    with pytest.raises(ValueError, match="^buffer: expected at least 1 bytes .*got 0"):
        gemmkit.PackedInt4(b"", (1,))


def test_unfit_shapes_are_refused_by_name():
    for bad in ((), (1,) * 65, (2, -1), (-1, -1)):
        with pytest.raises(ValueError, match="^shape: "):
            gemmkit.PackedInt4(bytes(16), bad)
    for bad in (4, None, "44", b"44", (2.0,), (2, "2"), (True, 2), (2, None)):
        with pytest.raises(TypeError, match="^shape: "):
            gemmkit.PackedInt4(bytes(16), bad)


def test_other_unfit_arguments_are_refused_by_name():
    for bad in (1, 0, None, "True", np.int8):
        with pytest.raises(TypeError, match="^signed: "):
            gemmkit.PackedInt4(bytes(2), (4,), bad)
    for bad in (np.ones(3), np.ones(3, bool), np.ones(3, np.float16), [], [0.5], "ab", None):
        with pytest.raises(TypeError, match="^array: "):
            gemmkit.PackedInt4.pack(bad)
    with pytest.raises(ValueError, match="^array: "):
        gemmkit.PackedInt4.pack(np.int8(3))
    with pytest.raises(TypeError, match="^signed: "):
        gemmkit.PackedInt4.pack(np.ones(3, np.int8), 1)
