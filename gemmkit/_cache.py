"""Keys and values of a sequence that grows, for attention one step at a time."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

_DTYPES: tuple[np.dtype[Any], ...] = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
_LEAST_GROWTH = 16  # tokens


class _Store:
    """The memory of a cache, or of several that were forked; `users` knows which of them still exist and use it."""

    __slots__ = ("k", "users", "v")

    k: NDArray[Any]
    v: NDArray[Any]
    users: WeakSet[KVCache]

    def __init__(self, cache: KVCache, capacity: int) -> None:
        shape = (cache._batch, cache._heads, capacity)
        try:
            self.k = np.empty((*shape, cache._head_size), cache._dtype)
            self.v = np.empty((*shape, cache._v_head_size), cache._dtype)
        except ValueError:  # numpy's, for more than addresses reach
            sizes = f"{cache._head_size} and {cache._v_head_size} elements"
            raise MemoryError(f"capacity: no memory can hold {shape} keys and values of {sizes}") from None
        self.users = WeakSet((cache,))


class KVCache:
    """Keys and values of the tokens so far, to which `attention` or `append` adds those of the next ones.

    Parameters
    ----------
    batch : int
        The number of sequences; all have the same length.
    heads : int
        The number of key and value heads, at least 1.
    head_size : int
        The elements of a key in a head.
    v_head_size : int, optional
        The elements of a value in a head; by default `head_size`.
    dtype : dtype
        float32, float16 or ml_dtypes' bfloat16.
    capacity : int
        The tokens to make room for at once.  It grows by half when it is full, so that a token is copied a few times
        at most on average, even if they come one by one.

    Raises
    ------
    ValueError
        A negative size, or no heads.
    TypeError
        Another dtype, sizes that are no integers.
    MemoryError
        A capacity that there is no memory for.

    Notes
    -----
    Keys lie in memory as (batch, heads, capacity, head_size), values as (batch, heads, capacity, v_head_size).

    `k` and `v`, and what `attention` returns as present_key and present_value, are views.  A view keeps its values when
    tokens are appended, also when the memory grows.  But once `truncate` or `reset` has cut off tokens, of this cache or
    of a fork that shared its memory, those that are appended later take their places, and views of these places show
    the new ones: copy what has to last, or keep a `fork`, which changes only by its own methods.

    One cache must not be changed by two threads at once, nor read by one while another changes it.  Forks are caches of
    their own: each may be in a thread of its own, once it has been made.

    A cache without tokens is false, as every empty container: to see whether there is one, compare with None.

    Examples
    --------
    >>> cache = KVCache(1, 2, 64, capacity=128)
    >>> cache.append(np.ones((1, 2, 5, 64), np.float32), np.ones((1, 2, 5, 64), np.float32))
    >>> len(cache), cache.k.shape
    (5, (1, 2, 5, 64))
    """

    __slots__ = ("__weakref__", "_batch", "_dtype", "_head_size", "_heads", "_length", "_store", "_v_head_size")

    _batch: int
    _heads: int
    _head_size: int
    _v_head_size: int
    _dtype: np.dtype[Any]
    _store: _Store
    _length: int

    def __init__(
        self,
        batch: int,
        heads: int,
        head_size: int,
        v_head_size: int | None = None,
        dtype: DTypeLike = np.float32,
        *,
        capacity: int = 0,
    ) -> None:
        self._batch = _size("batch", batch)
        self._heads = _size("heads", heads, 1)
        self._head_size = _size("head_size", head_size)
        self._v_head_size = self._head_size if v_head_size is None else _size("v_head_size", v_head_size)
        self._dtype = _float(dtype)
        self._length = 0
        self._store = _Store(self, _size("capacity", capacity))

    def append(self, k: ArrayLike, v: ArrayLike) -> None:
        """Add tokens at the end.

        Parameters
        ----------
        k : array_like
            Of the cache's dtype, shape (batch, heads, n, head_size) or (batch, n, heads * head_size).  Any strides and
            byte order; it may be a view of this cache.
        v : array_like
            Of the cache's dtype, shape (batch, heads, n, v_head_size) or (batch, n, heads * v_head_size); likewise.

        Raises
        ------
        ValueError
            Another shape, or other tokens in `v` than in `k`.
        TypeError
            Another dtype.
        MemoryError
            No memory to grow.

        Notes
        -----
        Nothing has changed after an error.
        """
        self._write(*self._check(k, v))

    def truncate(self, n: int) -> None:
        """Keep the first `n` tokens, and the memory.

        Parameters
        ----------
        n : int
            0 to the length.

        Raises
        ------
        ValueError
            An `n` that is out of range.
        TypeError
            An `n` that is no integer.
        """
        kept = _size("n", n)
        if kept > self._length:
            raise ValueError(f"n: expected 0 to {self._length}, the tokens there are, got {kept}")
        self._length = kept

    def reset(self) -> None:
        """Forget all tokens, but keep the memory: ``truncate(0)``."""
        self._length = 0

    def fork(self) -> KVCache:
        """A cache with the same tokens and a life of its own; `copy.copy` makes one too.

        Returns
        -------
        KVCache
            Of the same capacity.  It shares memory with this one; the first of them that appends takes a copy and
            leaves the memory to the others, and the last one that is there needs none.
        """
        twin = KVCache.__new__(KVCache)
        twin._batch, twin._heads, twin._dtype = self._batch, self._heads, self._dtype
        twin._head_size, twin._v_head_size = self._head_size, self._v_head_size
        twin._length, twin._store = self._length, self._store
        self._store.users.add(twin)
        return twin

    @property
    def batch(self) -> int:
        return self._batch

    @property
    def heads(self) -> int:
        """The number of key and value heads."""
        return self._heads

    @property
    def head_size(self) -> int:
        return self._head_size

    @property
    def v_head_size(self) -> int:
        return self._v_head_size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def length(self) -> int:
        """The number of tokens, as len() gives it."""
        return self._length

    @property
    def capacity(self) -> int:
        """The number of tokens that there is room for."""
        tokens: int = self._store.k.shape[2]
        return tokens

    @property
    def nbytes(self) -> int:
        """The bytes allocated for `capacity` tokens; each fork counts shared memory as its own."""
        return self._store.k.nbytes + self._store.v.nbytes

    @property
    def k(self) -> NDArray[Any]:
        """The keys: a read-only view of shape (batch, heads, length, head_size)."""
        return _held(self._store.k, self._length)

    @property
    def v(self) -> NDArray[Any]:
        """The values: a read-only view of shape (batch, heads, length, v_head_size)."""
        return _held(self._store.v, self._length)

    def _check(self, k: ArrayLike, v: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
        """What `_write` takes: rank 4, in this dtype and native byte order, without a copy where possible."""
        k4 = self._rank4("k", k, self._head_size, None)
        return k4, self._rank4("v", v, self._v_head_size, k4.shape[2])

    def _rank4(self, name: str, given: ArrayLike, size: int, tokens: int | None) -> NDArray[Any]:
        x = np.asarray(given)
        if x.dtype.newbyteorder("=") != self._dtype:
            raise TypeError(f"{name}: expected dtype {self._dtype}, the cache's, got {x.dtype}")
        n: Any = x.shape[-2] if tokens is None and x.ndim in (3, 4) else tokens
        if x.shape == (self._batch, n, self._heads * size):  # splitting an axis never copies
            x = x.reshape(self._batch, n, self._heads, size).transpose(0, 2, 1, 3)
        elif x.shape != (self._batch, self._heads, n, size):
            count = "any" if tokens is None else tokens
            rank3 = f"({self._batch}, {count}, {self._heads * size})"
            rank4 = f"({self._batch}, {self._heads}, {count}, {size})"
            expected = rank3 if x.ndim == 3 else rank4 if x.ndim == 4 else f"{rank4} or {rank3}"
            raise ValueError(f"{name}: expected shape {expected}, got {x.shape}")
        return x.astype(self._dtype, copy=False)

    def _write(self, k4: NDArray[Any], v4: NDArray[Any]) -> None:
        """Append what `_check` returned.  What can fail comes first; the new state is set at the end."""
        start, store = self._length, self._store
        end, capacity = start + k4.shape[2], self.capacity
        if end == start:
            return
        if end > capacity or len(store.users) > 1:
            if end > capacity:
                capacity = max(end, capacity + capacity // 2, _LEAST_GROWTH)
            store = _Store(self, capacity)
            store.k[:, :, :start] = self._store.k[:, :, :start]
            store.v[:, :, :start] = self._store.v[:, :, :start]
        to_k, to_v = store.k[:, :, start:end], store.v[:, :, start:end]
        # Views of this memory itself, of tokens that truncate cut off.  Values may come from where the keys go, so it is
        # not enough that numpy's assignment allows for overlap.
        k4, v4 = (x.copy() if np.may_share_memory(x, to_k) or np.may_share_memory(x, to_v) else x for x in (k4, v4))
        to_k[...] = k4
        to_v[...] = v4
        shared, self._store, self._length = self._store, store, end
        if store is not shared:
            shared.users.discard(self)  # only now, when nothing more is read there, may a fork write in place

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        sizes = f"batch={self._batch}, heads={self._heads}, head_size={self._head_size}, v_head_size={self._v_head_size}"
        return f"KVCache({sizes}, dtype={self._dtype}, length={self._length}, capacity={self.capacity})"

    def __copy__(self) -> KVCache:
        return self.fork()

    def __deepcopy__(self, memo: dict[int, Any]) -> KVCache:
        return _cache_of(self.k, self.v, self.capacity)

    def __reduce__(self) -> tuple[Any, ...]:
        return _cache_of, (self.k, self.v)


def _cache_of(k: NDArray[Any], v: NDArray[Any], capacity: int | None = None) -> KVCache:
    """A cache with a copy of keys and values of rank 4, by default without room for more."""
    batch, heads, tokens, size = k.shape
    cache = KVCache(batch, heads, size, v.shape[3], k.dtype, capacity=tokens if capacity is None else capacity)
    cache._write(k, v)
    return cache


def _held(whole: NDArray[Any], length: int) -> NDArray[Any]:
    view = whole[:, :, :length]
    view.flags.writeable = False
    return view


def _size(name: str, value: Any, least: int = 0) -> int:
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}")
    size: int = value.__index__()
    if size < least:
        raise ValueError(f"{name}: expected at least {least}, got {size}")
    return size


def _float(dtype: DTypeLike) -> np.dtype[Any]:
    expected = ", ".join(known.name for known in _DTYPES)
    if dtype is None:  # numpy would take it for float64
        raise TypeError(f"dtype: expected one of {expected}, got None")
    try:
        found = np.dtype(dtype).newbyteorder("=")
    except TypeError as error:
        raise TypeError(f"dtype: {error}") from None
    if found not in _DTYPES:
        raise TypeError(f"dtype: {found} is not supported; expected one of {expected}")
    return found
