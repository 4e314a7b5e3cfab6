"""Attention at its limits: sizes that no block divides, empty batches, numbers near the ends of a type, padding, pickles."""
import pickle
from copy import copy, deepcopy

import ml_dtypes
import numpy as np
import pytest
from attention_oracle import attend
from support import GuardedBuffer

import gemmkit
from gemmkit import AttentionDescriptor, AttentionPlan, KVCache

F32, F64, BF16 = np.float32, np.float64, ml_dtypes.bfloat16


def randn(seed, *shape, dtype=F32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def planned(path, q, k, v, mask=None, **attributes):
    inputs = ("q", "k", "v") + (("attn_mask",) if mask is not None else ())
    more = {} if mask is None else {"mask_shape": mask.shape, "mask_dtype": mask.dtype}
    return AttentionPlan(AttentionDescriptor(inputs, **attributes), q.shape, k.shape, v.shape, q.dtype, path=path, **more)(q, k, v, mask)


@pytest.mark.parametrize("dtype", [F32, F64, np.float16, BF16], ids=lambda t: np.dtype(t).name)
@pytest.mark.parametrize("size", [63, 65, 129, 160, 191, 200, 263, 326])
def test_value_sizes_between_pieces(dtype, size):
    """Results are turned over in pieces of columns; with threads, one's workspace borders on the next one's."""
    q, k, v = randn(size, 1, 3, 100, 16, dtype=dtype), randn(1, 1, 3, 130, 16, dtype=dtype), randn(2, 1, 3, 130, size, dtype=dtype)
    want = attend(q, k, v).y
    unit = {F32: 2e-6, F64: 1e-14, np.float16: 2e-3, BF16: 2e-2}[dtype]
    for path in ("streaming", "materialized"):
        with gemmkit.threads(1):
            one = planned(path, q, k, v)
        np.testing.assert_allclose(one.astype(F64), want, rtol=0, atol=unit * 4)
        for _ in range(4):
            with gemmkit.threads(3):
                assert planned(path, q, k, v).tobytes() == one.tobytes()


@pytest.mark.parametrize("shape", [(0, 1, 40, 8), (2, 0, 40, 8), (0, 0, 1, 8), (0, 4, 1, 8)])
def test_no_heads_and_many_keys(shape):
    q, k = np.zeros(shape, F32), np.zeros((*shape[:2], 2000, 8), F32)
    for path in ("auto", "streaming", "materialized"):
        assert planned(path, q, k, k).shape == shape


@pytest.mark.parametrize("dtype", [F32, F64, BF16], ids=lambda t: np.dtype(t).name)
@pytest.mark.parametrize("size", [5, 24, 80])
@pytest.mark.parametrize("queries", [1, 40])
def test_scores_far_beyond_exp(isa, dtype, size, queries):
    """Where one unit of the largest score is more than exp can bear, the largest takes all: with any scale."""
    large = 1e12 if dtype == F64 else 3e5
    q, k, v = np.full((1, 1, queries, size), large, dtype), (randn(size, 1, 1, 50, size) * 1e6).astype(dtype), randn(1, 1, 1, 50, 8, dtype=dtype)
    scores = k[0, 0].astype(F64).sum(-1)
    for path in ("streaming", "materialized") + (("decode",) if queries == 1 else ()):
        y = planned(path, q, k, v)[0, 0].astype(F64)
        assert np.isfinite(y).all()
        np.testing.assert_allclose(y, np.broadcast_to(v[0, 0, scores.argmax()].astype(F64), y.shape), rtol=2e-2 if dtype == BF16 else 1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mask", ["bool", "float", "causal and bool"])
@pytest.mark.parametrize("path", ["streaming", "materialized", "decode"])
def test_dead_rows_whatever_their_scores(bad, mask, path):
    """The bias decides: a row without a key is zero, even if its query is no number."""
    queries = 3 if path == "decode" else 40
    q, k, v = randn(0, 1, 1, queries, 8), randn(1, 1, 1, 50, 8), randn(2, 1, 1, 50, 8)
    q[0, 0, 1] = bad
    m = np.ones((queries, 50), bool)
    m[1] = False
    if mask == "causal and bool":
        m[1, 2:] = True
    given = np.where(m, 0, -np.inf).astype(F32) if mask == "float" else m
    y = planned(path, q, k, v, given, is_causal=mask.startswith("causal"))
    assert (y[0, 0, 1] == 0).all() and np.isfinite(y).all()
    outputs = gemmkit.attention(q, k, v, given, is_causal=mask.startswith("causal"), outputs=("y", "qk_matmul_output"), qk_matmul_output_mode=3)
    assert (outputs.y[0, 0, 1] == 0).all() and (outputs.qk_matmul_output[0, 0, 1] == 0).all()


@pytest.mark.parametrize("path", ["streaming", "materialized", "decode"])
@pytest.mark.parametrize("kind", [bool, F32])
def test_masked_keys_may_be_no_numbers(path, kind):
    q, k, v = randn(0, 1, 1, 5, 8), randn(1, 1, 1, 50, 8), randn(2, 1, 1, 50, 8)
    m = np.arange(50) % 7 != 3
    want = planned(path, q, k[:, :, m], v[:, :, m])
    k[:, :, ~m] = np.nan
    given = np.broadcast_to(m if kind is bool else np.where(m, 0, -np.inf).astype(F32), (5, 50))
    np.testing.assert_allclose(planned(path, q, k, v, given), want, rtol=1e-5)


def test_numbers_beyond_the_softmax():
    q = randn(0, 1, 1, 4, 8)
    for name, values in (("softcap", (1e39, 1e-46, 1e300)), ("scale", (1e75, 1e300))):
        for value in values:
            with pytest.raises(ValueError, match=f"^{name}: "):
                gemmkit.attention(q, q, q, **{name: value})
            wide = gemmkit.attention(q.astype(F64), q.astype(F64), q.astype(F64), **{name: value})
            assert np.isfinite(wide).all()
    for scale in (1e-300, 1e-60):
        np.testing.assert_allclose(gemmkit.attention(q, q, q, scale=scale), np.broadcast_to(q.mean(2, keepdims=True), q.shape), rtol=1e-5, atol=1e-6)
    small, large = (randn(1, 1, 1, 4, 8).astype(F64) * 1e-15).astype(F32), 1e30
    np.testing.assert_allclose(gemmkit.attention(small, small, q, scale=large),
                               gemmkit.attention(small * F32(1e15), small * F32(1e15), q, scale=1.0), rtol=1e-4, atol=1e-5)


def test_sizes_that_no_memory_holds():
    """Arrays of zero strides may claim any size."""
    one = np.broadcast_to(np.float16(1), (1, 1, 40, 2 ** 50))
    for q, k, v in ((one, one, np.ones((1, 1, 40, 4), np.float16)), (np.ones((1, 1, 40, 4), np.float16),) * 2 + (one,),
                    (np.ones((1, 1, 4, 1), F32), np.broadcast_to(F32(1), (1, 1, 2 ** 56, 1)), np.broadcast_to(F32(1), (1, 1, 2 ** 56, 1)))):
        with pytest.raises(ValueError, match="^[qkv]: "):
            gemmkit.attention(q, k, v)
    for shape in ((2 ** 32, 2 ** 32, 40, 1), (2 ** 61, 8, 40, 1)):
        with pytest.raises(ValueError, match="^[qkv]: "):
            AttentionPlan(AttentionDescriptor(), shape, (*shape[:2], 2000, 1), (*shape[:2], 2000, 1), F32)


@pytest.mark.parametrize("path", ["streaming", "materialized", "decode"])
def test_padded_keys_may_be_unreadable(path):
    """Keys that padding hides lie beyond the end of readable memory."""
    valid, size = 37, 16
    k, v = randn(1, 1, 1, 64, size), randn(2, 1, 1, 64, size)
    q, descriptor = randn(3, 1, 1, 5, size), AttentionDescriptor(("q", "k", "v", "nonpad_kv_seqlen"))
    n = np.array([valid])
    want = AttentionPlan(descriptor, q.shape, k.shape, v.shape, F32, path=path)(q, k, v, nonpad_kv_seqlen=n)
    held = [GuardedBuffer(valid * size * 4) for _ in range(2)]
    shorts = [b.place(x[:, :, :valid].copy(), edge="end") for b, x in zip(held, (k, v), strict=True)]
    longs = [np.lib.stride_tricks.as_strided(x, k.shape, x.strides) for x in shorts]
    plan = AttentionPlan(descriptor, q.shape, k.shape, v.shape, F32, path=path)
    np.testing.assert_array_equal(plan(q, *longs, nonpad_kv_seqlen=n), want)
    if path == "materialized":
        outputs = gemmkit.attention(q, *longs, nonpad_kv_seqlen=n, outputs=("y", "qk_matmul_output"), qk_matmul_output_mode=3)
        assert (outputs.qk_matmul_output[..., valid:] == 0).all()


def test_queries_that_were_cut_off_the_cache():
    """What truncate left over is read before new tokens are written over it."""
    cache = KVCache(1, 1, 8)
    cache.append(randn(0, 1, 1, 6, 8), randn(1, 1, 1, 6, 8))
    old, bias = cache.k[:, :, 2:6], cache.v[:, :, 2:6, :6]
    cache.truncate(2)
    k, v = randn(2, 1, 1, 4, 8), randn(3, 1, 1, 4, 8)
    want = gemmkit.attention(old.copy(), k, v, bias.copy(), cache=cache.fork())
    np.testing.assert_array_equal(gemmkit.attention(old, k, v, bias, cache=cache), want)


def test_float64_softmax_rounds_once():
    """The weights of 1 and 1 + 2^-7 make a number just above a tie of bfloat16."""
    q, k = np.ones((1, 1, 1, 1), BF16), np.zeros((1, 1, 2, 1), BF16)
    v = np.array([1, 1 + 2 ** -7], BF16).reshape(1, 1, 2, 1)
    for bias, want in ((2.0 ** -24, 1 + 2 ** -7), (-(2.0 ** -24), 1)):
        for sign in (1, -1):
            y = gemmkit.attention(q, k, (sign * v.astype(F32)).astype(BF16), np.array([0.0, bias]), softmax_precision=F64)
            assert y.dtype == BF16 and float(y[0, 0, 0, 0]) == sign * want


def test_copies_and_pickles():
    descriptor = AttentionDescriptor(("q", "k", "v", "attn_mask"), ("present_key", "y"), is_causal=True, scale=0.5, softmax_precision=F64,
                                     left_window_size=3)
    for twin in (copy(descriptor), deepcopy(descriptor), pickle.loads(pickle.dumps(descriptor))):
        assert repr(twin) == repr(descriptor) and twin.inputs == descriptor.inputs and twin.softmax_precision == F64
    q = randn(0, 1, 1, 3, 4)
    outputs = gemmkit.attention(q, q, q, outputs=("present_key", "y"))
    twin = pickle.loads(pickle.dumps(outputs))
    assert type(twin) is type(outputs) and twin._fields == ("present_key", "y")
    np.testing.assert_array_equal(twin.y, outputs.y)


@pytest.mark.parametrize(("change", "error"), [
    ({"q": [[1.0], [1.0, 2.0]]}, ValueError), ({"attn_mask": [[True], [True, False]]}, ValueError),
    ({"q_num_heads": np.array([1, 2])}, TypeError), ({"qk_matmul_output_mode": np.array([1, 2])}, TypeError),
    ({"left_window_size": np.array([1.0])}, TypeError), ({"is_causal": np.array([True, False])}, TypeError),
    ({"is_causal": "no"}, TypeError), ({"outputs": np.array(["y"])}, TypeError), ({"outputs": (np.zeros(2),)}, ValueError)])
def test_messages_name_the_argument(change, error):
    q = randn(0, 1, 1, 3, 4)
    with pytest.raises(error, match=f"^{next(iter(change))}: "):
        gemmkit.attention(**{"q": q, "k": q, "v": q, **change})


def test_subnormal_bfloat16(isa):
    """What tile instructions would take for zero counts: values, and queries whose products with keys are of ordinary size."""
    q, k = randn(0, 1, 1, 40, 32, dtype=BF16), randn(1, 1, 1, 300, 32, dtype=BF16)
    for least in (1e-39, 1e-35):
        v = np.full((1, 1, 300, 16), least, BF16)
        np.testing.assert_allclose(gemmkit.attention(q, k, v).astype(F64), np.broadcast_to(v[:, :, :40].astype(F64), (1, 1, 40, 16)), rtol=2e-2)
    tiny, huge, v = (q.astype(F64) * 2.0 ** -130).astype(BF16), (k[:, :, :8].astype(F64) * 2.0 ** 125).astype(BF16), randn(2, 1, 1, 8, 16, dtype=BF16)
    want = attend(tiny, huge, v, scale=4.0).y
    assert np.abs(want - v.astype(F64).mean(2, keepdims=True)).max() > 0.2  # the scores show
    np.testing.assert_allclose(gemmkit.attention(tiny, huge, v, scale=4.0).astype(F64), want, rtol=0, atol=3e-2)
