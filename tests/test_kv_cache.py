"""KVCache: what it holds, and when its memory grows."""
import copy
import gc
import re

import numpy as np
import pytest
from kv_caches import DTYPES, dtypes, filled, holds, poison, rank3, same, state, tokens
from ml_dtypes import bfloat16, float8_e4m3fn

from gemmkit import KVCache


@dtypes
def test_attributes(dtype):
    cache = KVCache(2, 3, 4, 5, dtype, capacity=7)
    assert (cache.batch, cache.heads, cache.head_size, cache.v_head_size) == (2, 3, 4, 5)
    assert cache.dtype == np.dtype(dtype) and type(cache.dtype) is type(np.dtype(dtype))
    assert cache.length == len(cache) == 0 and cache.capacity == 7 and not cache
    assert cache.nbytes == 2 * 3 * 7 * (4 + 5) * np.dtype(dtype).itemsize
    assert cache.k.shape == (2, 3, 0, 4) and cache.v.shape == (2, 3, 0, 5)
    cache.append(*tokens(cache, 0, 2))
    assert cache and len(cache) == 2 and cache.capacity == 7
    name = np.dtype(dtype).name
    assert repr(cache) == f"KVCache(batch=2, heads=3, head_size=4, v_head_size=5, dtype={name}, length=2, capacity=7)"


def test_defaults():
    cache = KVCache(1, 2, 8)
    assert cache.v_head_size == 8 and cache.dtype == np.float32 and cache.capacity == cache.nbytes == 0
    cache = KVCache(np.int64(1), np.uint8(2), np.int16(8), None, ">f4", capacity=np.int32(3))
    assert cache.dtype == np.float32 and cache.dtype.isnative and cache.capacity == 3
    assert all(type(size) is int for size in (cache.batch, cache.heads, cache.head_size, cache.v_head_size))
    assert KVCache(1, 1, 1, dtype="float16").dtype == np.float16
    assert KVCache(1, 1, 1, dtype="bfloat16").dtype == bfloat16


def test_nothing_can_be_set():
    cache, k, v = filled(2)
    for name in ("length", "capacity", "dtype", "batch", "heads", "head_size", "v_head_size", "nbytes", "k", "v", "other"):
        with pytest.raises(AttributeError):
            setattr(cache, name, 1)
    holds(cache, k, v)


@pytest.mark.parametrize(("args", "kwargs", "error", "message"), [
    ((-1, 2, 4), {}, ValueError, "batch: expected at least 0, got -1"),
    ((1, 0, 4), {}, ValueError, "heads: expected at least 1, got 0"),
    ((1, 2, -4), {}, ValueError, "head_size: expected at least 0, got -4"),
    ((1, 2, 4, -1), {}, ValueError, "v_head_size: expected at least 0, got -1"),
    ((1, 2, 4), {"capacity": -1}, ValueError, "capacity: expected at least 0, got -1"),
    ((True, 2, 4), {}, TypeError, "batch: expected an integer, got bool"),
    ((1, np.bool_(1), 4), {}, TypeError, "heads: expected an integer, got bool"),
    ((1, 2, 4.0), {}, TypeError, "head_size: expected an integer, got float"),
    ((1, 2, 4, False), {}, TypeError, "v_head_size: expected an integer, got bool"),
    ((1, 2, 4), {"capacity": "3"}, TypeError, "capacity: expected an integer, got str"),
    ((1, 2, 4), {"capacity": None}, TypeError, "capacity: expected an integer, got NoneType"),
    ((1, 2, 4), {"dtype": np.float64}, TypeError, "dtype: float64 is not supported; expected one of float32, float16, "),
    ((1, 2, 4), {"dtype": np.int8}, TypeError, "dtype: int8 is not supported"),
    ((1, 2, 4), {"dtype": float8_e4m3fn}, TypeError, "dtype: float8_e4m3fn is not supported"),
    ((1, 2, 4), {"dtype": "V2"}, TypeError, "dtype: "),
    ((1, 2, 4), {"dtype": None}, TypeError, "dtype: expected one of float32, float16, bfloat16, got None"),
    ((1, 2, 4), {"dtype": "no such type"}, TypeError, "dtype: "),
], ids=str)
def test_refused_arguments(args, kwargs, error, message):
    with pytest.raises(error, match="^" + re.escape(message)):
        KVCache(*args, **kwargs)


@pytest.mark.parametrize("capacity", [2 ** 52, 2 ** 62, 2 ** 70])
def test_more_than_there_is_memory_for(capacity):
    with pytest.raises(MemoryError):
        KVCache(1, 2, 64, capacity=capacity)


# ---- Appending

@dtypes
def test_rank_4(dtype):
    cache = KVCache(2, 3, 4, 5, dtype)
    parts = [tokens(cache, i, n) for i, n in enumerate((3, 1, 0, 20, 1))]
    for i, (k, v) in enumerate(parts):
        assert cache.append(k, v) is None
        k[...], v[...] = 0, 0  # a cache has copies
        parts[i] = tokens(cache, i, k.shape[2])
        poison(cache)
        holds(cache, *(np.concatenate(side, axis=2) for side in zip(*parts[:i + 1], strict=True)))


@dtypes
def test_rank_3(dtype):
    cache = KVCache(2, 3, 4, 5, dtype)
    (k, v), (k2, v2), (k3, v3) = (tokens(cache, i, n) for i, n in enumerate((3, 2, 1)))
    cache.append(rank3(k), rank3(v))
    cache.append(rank3(k2), v2)  # each of them as it likes
    cache.append(k3, rank3(v3))
    holds(cache, np.concatenate((k, k2, k3), axis=2), np.concatenate((v, v2, v3), axis=2))


def test_layout_by_hand():
    cache = KVCache(1, 2, 2, 1)
    cache.append(np.arange(12, dtype=np.float32).reshape(1, 3, 4), np.arange(6, dtype=np.float32).reshape(1, 3, 2))
    assert cache.k.tolist() == [[[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]]]
    assert cache.v.tolist() == [[[[0], [2], [4]], [[1], [3], [5]]]]
    cache = KVCache(1, 2, 2, 2, capacity=5)
    cache.append(np.zeros((1, 2, 3, 2), np.float32), np.zeros((1, 2, 3, 2), np.float32))
    assert cache.k.strides == cache.v.strides == (80, 40, 8, 4)


@dtypes
def test_any_strides_and_byte_order(dtype):
    cache = KVCache(2, 3, 4, 4, dtype)
    x, y = tokens(cache, 0, 6)
    swapped = x.dtype.newbyteorder()
    wide = np.zeros((2, 3, 12, 9), dtype)
    wide[:, :, ::2, 1::2] = x
    backward = x[::-1, ::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1, ::-1]
    turned = x.transpose(3, 1, 0, 2).copy().transpose(2, 1, 3, 0)
    wide3 = np.zeros((2, 12, 24), dtype)
    wide3[:, ::2, ::2] = rank3(x)
    readonly = x.copy()
    readonly.flags.writeable = False
    odd = np.zeros(x.nbytes + 1, np.uint8)[1:].view(dtype).reshape(x.shape)
    odd[...] = x
    for k in (x, wide[:, :, ::2, 1::2], backward, turned, wide3[:, ::2, ::2], readonly, odd, np.asfortranarray(x),
              x.astype(swapped), rank3(x).astype(swapped)):
        for given in ((k, y), (y, k)):
            cache.reset()
            cache.append(*given)
            poison(cache)
            holds(cache, *((x, y) if given[1] is y else (y, x)))
    once = x[:1, :, 1:2, :1]
    cache.reset()
    cache.append(np.broadcast_to(once, x.shape), y)
    holds(cache, np.tile(once, (2, 1, 6, 4)), y)


@pytest.mark.parametrize("args", [(0, 1, 4), (2, 3, 0), (2, 3, 4, 0), (2, 3, 0, 4), (0, 1, 0)], ids=str)
@pytest.mark.parametrize("form", [np.copy, rank3], ids=["rank 4", "rank 3"])
def test_empty_sizes(args, form):
    cache = KVCache(*args)
    parts = [tokens(cache, i, n) for i, n in enumerate((3, 0, 17))]
    for k, v in parts:
        cache.append(form(k), form(v))
    holds(cache, *(np.concatenate(side, axis=2) for side in zip(*parts, strict=True)))
    cache.truncate(2)
    assert cache.k.shape == (cache.batch, cache.heads, 2, cache.head_size)


def test_no_tokens():
    cache, k, v = filled(3)
    twin = cache.fork()
    before = state(cache)
    cache.append(k[:, :, :0], v[:, :, :0])
    cache.append(rank3(k)[:, :0], rank3(v)[:, :0])
    assert state(cache) == before and twin._store is cache._store
    empty = KVCache(2, 3, 4, 5)
    empty.append(k[:, :, :0], v[:, :, :0])
    assert empty.capacity == len(empty) == 0


def test_lists_have_a_dtype_of_their_own():
    with pytest.raises(TypeError, match="^k: expected dtype float32, the cache's, got float64"):
        KVCache(1, 1, 1).append([[[[1.0]]]], [[[[1.0]]]])


K, V = (2, 3, 2, 4), (2, 3, 2, 5)


@pytest.mark.parametrize(("k", "v", "message"), [
    ((2, 3, 2, 5), V, "k: expected shape (2, 3, any, 4), got (2, 3, 2, 5)"),
    ((1, 3, 2, 4), V, "k: expected shape (2, 3, any, 4), got (1, 3, 2, 4)"),
    ((2, 1, 2, 4), V, "k: expected shape (2, 3, any, 4), got (2, 1, 2, 4)"),
    ((2, 2, 11), V, "k: expected shape (2, any, 12), got (2, 2, 11)"),
    ((1, 2, 12), V, "k: expected shape (2, any, 12), got (1, 2, 12)"),
    ((3, 4), V, "k: expected shape (2, 3, any, 4) or (2, any, 12), got (3, 4)"),
    ((), V, "k: expected shape (2, 3, any, 4) or (2, any, 12), got ()"),
    ((1, 2, 3, 2, 4), V, "k: expected shape (2, 3, any, 4) or (2, any, 12), got (1, 2, 3, 2, 4)"),
    (K, K, "v: expected shape (2, 3, 2, 5), got (2, 3, 2, 4)"),
    (K, (2, 3, 1, 5), "v: expected shape (2, 3, 2, 5), got (2, 3, 1, 5)"),
    (K, (2, 3, 15), "v: expected shape (2, 2, 15), got (2, 3, 15)"),
    (K, (2, 2, 12), "v: expected shape (2, 2, 15), got (2, 2, 12)"),
    (K, (2, 5), "v: expected shape (2, 3, 2, 5) or (2, 2, 15), got (2, 5)"),
    ((2, 2, 12), (2, 3, 0, 5), "v: expected shape (2, 3, 2, 5), got (2, 3, 0, 5)"),
], ids=str)
def test_refused_shapes_change_nothing(k, v, message):
    for shared in (False, True):
        for n in (3, 16):  # with room, and without
            cache, *held = filled(n)
            twin = cache.fork() if shared else None
            before = state(cache)
            for change in (cache.append, cache._check):
                with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
                    change(np.zeros(k, np.float32), np.zeros(v, np.float32))
                assert state(cache) == before
            holds(cache, *held)
            if shared:
                assert twin._store is cache._store
                holds(twin, *held)


@dtypes
def test_refused_dtypes_change_nothing(dtype):
    cache, *held = filled(3, 2, 3, 4, 5, dtype)
    before = state(cache)
    for other in (*DTYPES, np.float64, np.int32, np.uint16, np.complex64, object, "V2", float8_e4m3fn):
        if np.dtype(other) == cache.dtype:
            continue
        for name, types in (("k", (other, dtype)), ("v", (dtype, other)), ("k", (other, other))):
            with pytest.raises(TypeError, match=f"^{name}: expected dtype {cache.dtype}, the cache's, got "):
                cache.append(np.zeros(K, types[0]), np.zeros(V, types[1]))
            assert state(cache) == before
    holds(cache, *held)


def test_what_check_returns():
    cache, *held = filled(3)
    before = state(cache)
    k, v = tokens(cache, 1, 2)
    got = cache._check(k, v)
    assert got[0].ctypes.data == k.ctypes.data and got[1].ctypes.data == v.ctypes.data
    for k3, v3 in ((rank3(k), rank3(v)), (np.repeat(rank3(k), 2, axis=2)[..., ::2], np.repeat(rank3(v), 2, axis=0)[::2])):
        got = cache._check(k3, v3)
        same(got[0], k)
        same(got[1], v)
        assert np.shares_memory(got[0], k3) and np.shares_memory(got[1], v3)
    got = cache._check(k.astype(">f4"), rank3(v).astype(">f4"))
    assert got[0].dtype.isnative and got[1].dtype.isnative
    same(got[0], k)
    same(got[1], v)
    assert state(cache) == before
    cache._write(*got)
    holds(cache, *(np.concatenate(side, axis=2) for side in zip(held, (k, v), strict=True)))


# ---- Memory

def test_growth():
    """By half, to 16 at least, and to what is needed."""
    cache = KVCache(1, 1, 2)
    seen = []
    for _ in range(60):
        cache.append(*tokens(cache, 0, 1))
        seen.append(cache.capacity)
        assert cache.nbytes == cache._store.k.nbytes + cache._store.v.nbytes == cache.capacity * 16
    assert sorted(set(seen)) == [16, 24, 36, 54, 81] and seen == sorted(seen)
    cache.append(*tokens(cache, 0, 100))
    assert cache.capacity == 160
    cache.append(*tokens(cache, 0, 1))
    assert cache.capacity == 240
    exact, *_ = filled(3, 1, 1, 2, capacity=3)
    assert exact.capacity == 3
    exact.append(*tokens(exact, 0, 1))
    assert exact.capacity == 16


@dtypes
def test_appending_one_by_one_copies_a_few_times(dtype):
    n = 4000
    cache = KVCache(1, 2, 3, 1, dtype)
    k, v = tokens(cache, 0, n)
    stores, copied = 0, 0
    for i in range(n):
        before = cache._store
        cache.append(k[:, :, i:i + 1], v[:, :, i:i + 1])
        if cache._store is not before:
            stores, copied = stores + 1, copied + i
    holds(cache, k, v)
    assert stores < 20 and copied < 3 * n


@pytest.mark.parametrize("shared", [False, True])
def test_only_the_places_of_new_tokens_are_written(shared):
    cache, *held = filled(4, capacity=12)
    poison(cache)
    before = [cache._store.k.copy(), cache._store.v.copy()]
    old = [cache._store.k, cache._store.v]
    twin = cache.fork() if shared else None
    k, v = tokens(cache, 1, 3)
    cache.append(k, v)
    for was, new, now in zip(before, (k, v), (cache._store.k, cache._store.v), strict=True):
        want = was.copy()
        want[:, :, 4:7] = new
        same(now[:, :, :7], want[:, :, :7])
        if not shared:
            same(now, want)
    if shared:
        same(old[0], before[0])
        same(old[1], before[1])
        holds(twin, *held)


def test_views_are_read_only():
    cache, k, v = filled(3)
    for view in (cache.k, cache.v):
        assert type(view) is np.ndarray and not view.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            view[...] = 0
    assert np.shares_memory(cache.k, cache._store.k) and np.shares_memory(cache.v, cache._store.v)
    assert cache._store.k.flags.writeable and cache._store.k.flags.c_contiguous
    cache.append(k, v)
    holds(cache, np.concatenate((k, k), axis=2), np.concatenate((v, v), axis=2))


def test_older_views_keep_their_values():
    cache = KVCache(2, 3, 4, 5)
    k, v = tokens(cache, 0, 100)
    views = []
    for i in range(100):
        cache.append(k[:, :, i:i + 1], v[:, :, i:i + 1])
        views.append((cache.k, cache.v))
    assert len({view.ctypes.data for view, _ in views}) >= 5
    cache.append(*tokens(cache, 1, 500))
    poison(cache)
    last = cache.k
    del cache
    gc.collect()
    filler = [np.full((2, 3, 150, 4), 7, np.float32) for _ in range(8)]  # what memory would be, if it had been freed
    for i, (old_k, old_v) in enumerate(views):
        same(old_k, k[:, :, :i + 1])
        same(old_v, v[:, :, :i + 1])
    same(last[:, :, :100], k)
    del filler


def test_a_view_after_truncate_and_append():
    """As the docstring warns: the places of tokens that were cut off are used again."""
    cache, k, v = filled(4, capacity=8)
    view = cache.k
    cache.truncate(2)
    same(view, k)
    new = tokens(cache, 1, 1)
    cache.append(*new)
    same(view, np.concatenate((k[:, :, :2], new[0], k[:, :, 3:]), axis=2))
    holds(cache, view[:, :, :3], np.concatenate((v[:, :, :2], new[1]), axis=2))


def test_truncate_and_reset():
    cache, k, v = filled(20)
    memory = cache._store
    for n in (20, np.int64(17), 17, 3):
        cache.truncate(n)
        poison(cache)
        holds(cache, k[:, :, :n], v[:, :, :n])
        assert type(cache.length) is int and cache._store is memory and cache.capacity == 20
    cache.append(k[:, :, 5:9], v[:, :, 5:9])
    holds(cache, np.concatenate((k[:, :, :3], k[:, :, 5:9]), axis=2), np.concatenate((v[:, :, :3], v[:, :, 5:9]), axis=2))
    cache.reset()
    assert len(cache) == 0 and cache._store is memory
    cache.append(k, v)
    holds(cache, k, v)
    cache.truncate(0)
    assert len(cache) == 0 and cache._store is memory


@pytest.mark.parametrize(("n", "error", "message"), [
    (4, ValueError, "n: expected 0 to 3, the tokens there are, got 4"), (-1, ValueError, "n: expected at least 0, got -1"),
    (True, TypeError, "n: expected an integer, got bool"), (1.0, TypeError, "n: expected an integer, got float"),
    (None, TypeError, "n: expected an integer, got NoneType")], ids=str)
def test_refused_truncation(n, error, message):
    cache, k, v = filled(3)
    with pytest.raises(error, match="^" + re.escape(message)):
        cache.truncate(n)
    holds(cache, k, v)


@pytest.mark.parametrize("sizes", [(64, 64), (1, 2 ** 50), (2 ** 50, 1)], ids=["both", "values", "keys"])
@pytest.mark.parametrize("swapped", [False, True])
def test_no_memory_changes_nothing(sizes, swapped):
    """Tokens that exist only as strides of 0."""
    cache = KVCache(1, 1, *sizes)
    if sizes == (64, 64):
        cache.append(*tokens(cache, 0, 3))
    twin, before = cache.fork(), state(cache)
    n = 2 ** 50 if sizes == (64, 64) else 1
    one = np.ones((1, 1, 1, 1), ">f4" if swapped else np.float32)
    with pytest.raises(MemoryError):
        cache.append(*(np.broadcast_to(one, (1, 1, n, size)) for size in sizes))
    assert state(cache) == before == state(twin)
    if sizes == (64, 64):
        cache.append(*tokens(cache, 1, 1))
        assert len(cache) == 4 and len(twin) == 3


# ---- A cache's own memory as what is appended

@dtypes
@pytest.mark.parametrize("capacity", [0, 64], ids=["growth", "in place"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("swap", [False, True], ids=["keys as keys", "keys as values"])
@pytest.mark.parametrize("cut", [slice(0, 8), slice(3, 8), slice(2, 7), slice(7, 1, -1), slice(None, None, 2)], ids=str)
def test_its_own_views(dtype, capacity, shared, swap, cut):
    for kept in (0, 2, 3, 5, 8):
        cache, k, v = filled(8, 2, 3, 4, 4, dtype, capacity=capacity)
        twin = cache.fork() if shared else None
        views = (cache.v, cache.k) if swap else (cache.k, cache.v)
        cache.truncate(kept)
        cache.append(*(view[:, :, cut] for view in views))
        poison(cache)
        given = (v, k) if swap else (k, v)
        holds(cache, *(np.concatenate((x[:, :, :kept], y[:, :, cut]), axis=2)
                       for x, y in zip((k, v), given, strict=True)))
        if shared:
            holds(twin, k, v)


def test_its_own_memory_in_another_order():
    """Heads and batches exchanged: writes for one place would change what the next one reads."""
    for flip in (np.s_[::-1], np.s_[:, ::-1], np.s_[::-1, ::-1, ::-1, ::-1]):
        cache, k, v = filled(6, 2, 3, 4, 5, capacity=20)
        views = cache.k, cache.v
        cache.truncate(2)
        cache.append(views[0][flip], views[1][flip])
        holds(cache, np.concatenate((k[:, :, :2], k[flip]), axis=2), np.concatenate((v[:, :, :2], v[flip]), axis=2))
