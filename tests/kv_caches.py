"""Helpers of the KVCache tests."""
import numpy as np
import pytest
from ml_dtypes import bfloat16

from gemmkit import KVCache

DTYPES = [np.float32, np.float16, bfloat16]
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)


def some(seed, shape, dtype=np.float32):
    """Any bits at all, NaN among them: a cache keeps them."""
    dtype = np.dtype(dtype)
    return np.random.default_rng(seed).integers(0, 256, (*shape, dtype.itemsize), np.uint8).view(dtype)[..., 0]


def tokens(cache, seed, n):
    """Keys and values for a cache."""
    lead = (cache.batch, cache.heads, n)
    return (some(2 * seed, (*lead, cache.head_size), cache.dtype),
            some(2 * seed + 1, (*lead, cache.v_head_size), cache.dtype))


def same(got, want):
    bits = f"u{want.dtype.itemsize}"
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got.view(bits), want.view(bits))


def holds(cache, k, v):
    same(cache.k, k)
    same(cache.v, v)
    assert len(cache) == cache.length == k.shape[2]


def filled(n, *args, capacity=0, seed=0, **kwargs):
    """A cache of n tokens, and copies of them."""
    cache = KVCache(*(args or (2, 3, 4, 5)), **kwargs, capacity=capacity)
    k, v = tokens(cache, seed, n)
    cache.append(k, v)
    return cache, k, v


def poison(cache):
    """Overwrites the room that is left."""
    for whole in (cache._store.k, cache._store.v):
        whole[:, :, cache.length:].view(f"u{whole.itemsize}")[...] = 0x7FFF


def state(cache):
    return cache._store, cache.length, cache.capacity, cache._store.k.tobytes(), cache._store.v.tobytes()


def rank3(x):
    batch, heads, n, size = x.shape
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(batch, n, heads * size)
