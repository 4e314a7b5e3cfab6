"""Four-bit integers, two in a byte."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

_INT4: np.dtype[Any] = np.dtype(ml_dtypes.int4)
_UINT4: np.dtype[Any] = np.dtype(ml_dtypes.uint4)


class PackedInt4:
    """A tensor of 4-bit integers in a buffer with two values a byte, as ONNX stores them; nothing is copied.

    The low nibble comes first.  Rows follow each other without padding, so a row may start in the middle of a byte.

    Parameters
    ----------
    buffer : bytes-like, or ndarray of uint8 or int8
        One-dimensional and contiguous, of at least ``ceil(prod(shape) / 2)`` bytes; a memory map will do.  It must not
        change while this object is in use.
    shape : tuple of int
        1 to 64 sizes.
    signed : bool
        Values are -8 to 7 (int4), else 0 to 15 (uint4).

    Raises
    ------
    ValueError
        A `buffer` that is too short, not contiguous or not one-dimensional; a negative size, no sizes or too many.
    TypeError
        A `buffer` of another type, sizes that are no integers, a `signed` that is no bool.
    """

    __slots__ = ("_buffer", "_shape", "_signed")

    _buffer: NDArray[np.uint8]
    _shape: tuple[int, ...]
    _signed: bool

    def __new__(cls, buffer: Any, shape: Iterable[int], signed: bool = True) -> PackedInt4:
        sizes = _shape_of(shape)
        if not isinstance(signed, (bool, np.bool_)):
            raise TypeError(f"signed: expected a bool, got {type(signed).__name__}")
        data = _bytes_of(buffer)
        needed = (math.prod(sizes) + 1) // 2
        if data.size < needed:
            raise ValueError(f"buffer: expected at least {needed} bytes for shape {sizes}, got {data.size}")
        data = data[:needed]
        data.flags.writeable = False
        self = super().__new__(cls)
        for name, value in (("_buffer", data), ("_shape", sizes), ("_signed", bool(signed))):
            object.__setattr__(self, name, value)
        return self

    @classmethod
    def pack(cls, array: ArrayLike, signed: bool | None = None) -> PackedInt4:
        """Pack an array into a new buffer.

        Parameters
        ----------
        array : array_like
            ml_dtypes' int4 or uint4, or any other integers whose values fit.
        signed : bool, optional
            By default as `array`'s dtype is.

        Returns
        -------
        PackedInt4
            Of `array`'s shape.

        Raises
        ------
        ValueError
            A value that does not fit, or a rank of 0.
        TypeError
            Another dtype.
        """
        x = np.asarray(array)
        if x.dtype in (_INT4, _UINT4):
            kind, x = x.dtype, x.astype(np.int8)
        elif x.dtype.kind in "iu":
            kind = _INT4 if x.dtype.kind == "i" else _UINT4
        else:
            raise TypeError(f"array: expected int4, uint4 or other integers, got dtype {x.dtype}")
        if x.ndim == 0:
            raise ValueError("array: expected at least one dimension, got shape ()")
        if signed is None:
            signed = kind == _INT4
        low, high = (-8, 7) if signed else (0, 15)
        if x.size and not (low <= x.min() and x.max() <= high):
            bad = (x < low) | (x > high)
            where = tuple(int(i) for i in np.unravel_index(np.argmax(bad), x.shape))
            fits = _INT4 if signed else _UINT4
            raise ValueError(f"array: {x[where]} at {where} does not fit {fits}, {low} to {high}")
        nibbles = x.astype(np.uint8, copy=False).reshape(-1)
        buffer = nibbles[::2] & 15
        buffer[: x.size // 2] |= nibbles[1::2] << 4
        return cls(buffer, x.shape, signed)

    @property
    def buffer(self) -> NDArray[np.uint8]:
        """The bytes that hold the nibbles: a read-only view of what was given."""
        return self._buffer

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def signed(self) -> bool:
        """Whether values are -8 to 7; else 0 to 15."""
        return self._signed

    @property
    def dtype(self) -> np.dtype[Any]:
        """ml_dtypes' int4 or uint4."""
        return _INT4 if self._signed else _UINT4

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of values."""
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes that hold them: half as many, rounded up."""
        return self._buffer.size

    def unpack(self) -> NDArray[Any]:
        """The values as a new array, one a byte.

        Returns
        -------
        ndarray of int8, or uint8 if not `signed`
            In this shape, C order.
        """
        data = self._buffer.view(np.int8 if self._signed else np.uint8)
        out = np.empty(self._shape, data.dtype)
        flat = out.reshape(-1)
        low, high = flat[::2], flat[1::2]
        np.left_shift(data, 4, out=low)  # shifted back with the sign, if there is one
        np.right_shift(low, 4, out=low)
        np.right_shift(data[: high.size], 4, out=high)
        return out

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """An int4 or uint4 array, or one of `dtype`; always a copy."""
        if copy is False:
            raise ValueError("copy: an array of a PackedInt4 is always a copy; expected None or True, got False")
        return self.unpack().astype(self.dtype if dtype is None else dtype, copy=False)

    def __len__(self) -> int:
        return self._shape[0]

    def __repr__(self) -> str:
        return f"PackedInt4(<{self.nbytes} bytes>, shape={self._shape}, signed={self._signed})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._buffer, self._shape, self._signed)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name}: a PackedInt4 can't be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name}: a PackedInt4 can't be changed")


def _shape_of(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, (str, bytes)) or not hasattr(shape, "__iter__"):
        raise TypeError(f"shape: expected a tuple of sizes, got {type(shape).__name__}")
    sizes = tuple(shape)
    for size in sizes:
        if isinstance(size, (bool, np.bool_)) or not hasattr(size, "__index__"):
            raise TypeError(f"shape: expected integers, got {type(size).__name__}")
    sizes = tuple(size.__index__() for size in sizes)
    if not 1 <= len(sizes) <= 64:
        raise ValueError(f"shape: expected 1 to 64 dimensions, got {len(sizes)}")
    if min(sizes) < 0:
        raise ValueError(f"shape: expected sizes of at least 0, got {sizes}")
    return sizes


def _bytes_of(buffer: Any) -> NDArray[np.uint8]:
    """A buffer as a vector of bytes in the same memory."""
    if not isinstance(buffer, np.ndarray):
        try:
            buffer = memoryview(buffer)
        except TypeError:
            raise TypeError(
                f"buffer: expected bytes or a uint8 or int8 array, got {type(buffer).__name__}"
                " (PackedInt4.pack packs an array)"
            ) from None
    data = np.asarray(buffer)
    if data.dtype not in (np.uint8, np.int8):
        raise TypeError(f"buffer: expected dtype uint8 or int8, got {data.dtype} (PackedInt4.pack packs an array)")
    if data.ndim != 1:
        raise ValueError(f"buffer: expected one dimension, got shape {data.shape}")
    if not data.flags.c_contiguous:
        raise ValueError(f"buffer: expected contiguous bytes, got stride {data.strides[0]}")
    return data.view(np.uint8)
