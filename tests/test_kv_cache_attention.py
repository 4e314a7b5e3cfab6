"""Attention with a KVCache."""
import copy

import numpy as np
import pytest
from kv_caches import dtypes, holds, poison, rank3, same, some, state, tokens

import gemmkit
from gemmkit import KVCache


def inputs(seed, dtype, steps, batch=2, heads=4, kv_heads=2, size=16, v_size=8):
    """q, k and v of some steps, each of so many tokens."""
    rng = np.random.default_rng(seed)
    shapes = [[(batch, heads, n, size), (batch, kv_heads, n, size), (batch, kv_heads, n, v_size)] for n in steps]
    return [[rng.standard_normal(shape).astype(dtype) for shape in step] for step in shapes]


OPTIONS = [{}, {"is_causal": True}, {"is_causal": True, "softcap": 5.0, "scale": 0.2},
           {"is_causal": True, "left_window_size": 9}]


@dtypes
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("capacity", [0, 100])
def test_attention_step_by_step(dtype, options, capacity):
    """Prefill, decode, a few at a time: the same bits as with all that was before, concatenated."""
    cache = KVCache(2, 2, 16, 8, dtype, capacity=capacity)
    steps = inputs(0, dtype, (33, 1, 1, 4, 1, 40, 1))
    past_k, past_v = np.zeros((2, 2, 0, 16), dtype), np.zeros((2, 2, 0, 8), dtype)
    for q, k, v in steps:
        want = gemmkit.attention(q, k, v, past_key=past_k, past_value=past_v, **options)
        got = gemmkit.attention(q, k, v, cache=cache, **options)
        poison(cache)
        same(got, want)
        past_k, past_v = np.concatenate((past_k, k), axis=2), np.concatenate((past_v, v), axis=2)
        holds(cache, past_k, past_v)


@dtypes
def test_attention_rank_3(dtype):
    cache = KVCache(2, 2, 16, 8, dtype)
    past_k, past_v = np.zeros((2, 2, 0, 16), dtype), np.zeros((2, 2, 0, 8), dtype)
    options = {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": True}
    for q, k, v in inputs(1, dtype, (5, 1, 3, 1)):
        given = [rank3(x) for x in (q, k, v)]
        want = gemmkit.attention(*given, past_key=past_k, past_value=past_v, **options)
        same(gemmkit.attention(*given, cache=cache, **options), want)
        past_k, past_v = np.concatenate((past_k, k), axis=2), np.concatenate((past_v, v), axis=2)
        holds(cache, past_k, past_v)


@dtypes
def test_attention_outputs(dtype):
    cache = KVCache(2, 2, 16, 8, dtype)
    past_k, past_v = np.zeros((2, 2, 0, 16), dtype), np.zeros((2, 2, 0, 8), dtype)
    outputs = ("y", "present_key", "present_value")
    for q, k, v in inputs(2, dtype, (7, 1, 1)):
        mask = np.random.default_rng(3).random((q.shape[2], len(cache) + k.shape[2])) < 0.7
        want = gemmkit.attention(q, k, v, mask, past_k, past_v, outputs=outputs)
        got = gemmkit.attention(q, k, v, mask, outputs=outputs, cache=cache)
        assert got._fields == outputs
        for name in outputs:
            same(getattr(got, name), np.ascontiguousarray(getattr(want, name)))
        past_k, past_v = np.concatenate((past_k, k), axis=2), np.concatenate((past_v, v), axis=2)
        same(got.present_key, past_k)
        same(got.present_value, past_v)
        for present, held in ((got.present_key, cache.k), (got.present_value, cache.v)):
            assert not present.flags.writeable and present.ctypes.data == held.ctypes.data


def test_attention_forks():
    """One prompt, several ways to go on."""
    (prompt, *steps) = inputs(4, np.float32, (20, 1, 1, 1))
    root = KVCache(2, 2, 16, 8)
    gemmkit.attention(*prompt, cache=root, is_causal=True)
    forks = [root.fork() for _ in steps]
    for (q, k, v), fork in zip(steps, forks, strict=True):
        want = gemmkit.attention(q, k, v, past_key=prompt[1], past_value=prompt[2], is_causal=True)
        same(gemmkit.attention(q, k, v, cache=fork, is_causal=True), want)
    for (_, k, v), fork in zip(steps, forks, strict=True):
        holds(fork, np.concatenate((prompt[1], k), axis=2), np.concatenate((prompt[2], v), axis=2))
    holds(root, *prompt[1:])


def test_attention_views_of_the_cache():
    """Keys and values that are the cache's own, and a result where the queries are."""
    (first, second) = inputs(5, np.float32, (6, 6))
    cache = KVCache(2, 2, 16, 8, capacity=40)
    cache.append(*first[1:])
    k, v = cache.k, cache.v
    cache.truncate(2)
    want = gemmkit.attention(second[0], *first[1:], past_key=first[1][:, :, :2], past_value=first[2][:, :, :2])
    q = second[0].copy()
    got = gemmkit.attention(q, k, v, cache=cache, out=q[..., :8])
    same(np.ascontiguousarray(got), want)
    holds(cache, *(np.concatenate((x[:, :, :2], x), axis=2) for x in first[1:]))


@pytest.mark.parametrize(("change", "error"), [
    ({"attn_mask": np.zeros((5, 6), bool)}, ValueError),
    ({"attn_mask": np.zeros((3, 7), np.complex64)}, TypeError),
    ({"past_key": np.zeros((2, 2, 1, 16), np.float32), "past_value": np.zeros((2, 2, 1, 8), np.float32)}, ValueError),
    ({"nonpad_kv_seqlen": np.array([3, 3])}, ValueError),
    ({"out": np.zeros((2, 4, 3, 7), np.float32)}, ValueError),
    ({"out": np.zeros((2, 4, 3, 8), np.float64)}, TypeError),
    ({"outputs": ("y", "z")}, ValueError),
    ({"softcap": -1.0}, ValueError),
    ({"qk_matmul_output_mode": 4}, ValueError),
    ({"softmax_precision": np.int32}, TypeError),
    ({"q": np.zeros((2, 3, 3, 16), np.float32)}, ValueError),
    ({"q": np.zeros((2, 4, 3, 15), np.float32)}, ValueError),
    ({"q": np.zeros((2, 4, 3, 16), np.float16)}, TypeError),
    ({"k": np.zeros((2, 2, 3, 15), np.float32)}, ValueError),
    ({"k": np.zeros((2, 2, 3, 16), np.float64)}, TypeError),
    ({"v": np.zeros((2, 2, 2, 8), np.float32)}, ValueError),
    ({"v": np.zeros((2, 2, 3, 8), np.float16)}, TypeError),
    ({"v": np.zeros((1, 2, 3, 8), np.float32)}, ValueError),
], ids=lambda value: " ".join(value) if isinstance(value, dict) else value.__name__)
@pytest.mark.parametrize("shared", [False, True])
def test_attention_refused(change, error, shared):
    (before, (q, k, v)) = inputs(6, np.float32, (4, 3))
    for capacity in (4, 40):
        cache = KVCache(2, 2, 16, 8, capacity=capacity)
        cache.append(*before[1:])
        twin = cache.fork() if shared else None
        was = state(cache)
        with pytest.raises(error, match=r"^\w+: "):
            gemmkit.attention(**{"q": q, "k": k, "v": v, **change}, cache=cache)
        assert state(cache) == was
        holds(cache, *before[1:])
        assert twin is None or twin._store is cache._store
