"""attention: each rule of the definition by itself, for all types; test_attention_plans.py has memory, threads and plans."""
import itertools

import ml_dtypes
import numpy as np
import pytest
import support
from attention_oracle import (
    INF,
    MASK_TYPES,
    OUTPUTS,
    TYPES,
    attend,
    check_call,
    check_output,
    check_problem,
    check_within,
    heads_last,
    memories,
    normal,
    qkv,
    some,
    turned,
)
from narrow import BF16, F16, F32, F64, UNITS, cast, full, name

import gemmkit

by_type = pytest.mark.parametrize("dtype", TYPES, ids=name)
BLOCK = 128  # keys are taken so many at a time, and what is said about a block should be tested at its ends
LENGTHS = (1, 2, 15, 16, 17, 47, 48, 49, 95, 96, 97)  # of queries: around whole panels of any width
KEYS = (1, 3, 127, 128, 129, 130, 511, 512, 513, 514)


# ---- Heads, layouts and sizes

@by_type
def test_consecutive_query_heads_share_a_key_head(dtype):
    """One key: its weight is 1, so Y is V and shows which head was read."""
    one = full((1, 4, 1, 1), 1, dtype)
    y = gemmkit.attention(one, one[:, :2], full((1, 2, 1, 1), [[[[10]], [[20]]]], dtype))
    assert y.dtype == dtype and y.astype(F64).ravel().tolist() == [10, 10, 20, 20]
    for heads, kv_heads, queries in ((6, 1, 2), (6, 2, 1), (6, 3, 9), (6, 6, 1), (32, 4, 3)):
        q, k, v = qkv(1, dtype, 2, heads, kv_heads, queries, 1, 5)
        want = np.broadcast_to(np.repeat(v, heads // kv_heads, 1), q.shape)
        np.testing.assert_array_equal(gemmkit.attention(q, k, v).astype(F64), want.astype(F64))
        y = gemmkit.attention(*map(heads_last, (q, k, v)), q_num_heads=heads, kv_num_heads=kv_heads)
        np.testing.assert_array_equal(y.astype(F64), heads_last(want).astype(F64))


@by_type
@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (4, 2), (6, 1), (9, 3)], ids=str)
def test_heads_in_both_layouts(heads, dtype):
    for batch, queries, keys, size, v_size in ((1, 1, 9, 8, 8), (2, 5, 7, 3, 4), (3, 20, 130, 16, 5)):
        q, k, v = qkv(2, dtype, batch, *heads, queries, keys, size, v_size)
        for causal in (False, True):
            check_call(q, k, v, is_causal=causal)
            y = check_call(*map(heads_last, (q, k, v)), q_num_heads=heads[0], kv_num_heads=heads[1], is_causal=causal)
            assert y.shape == (batch, queries, heads[0] * v_size)


SIZES = [(1, 1), (1, 9), (2, 3), (3, 1), (5, 16), (7, 33), (16, 7), (31, 2), (33, 17), (64, 80), (65, 64), (128, 31), (256, 8)]


@by_type
def test_sizes_of_k_and_v(dtype, isa):
    for (size, v_size), rows in itertools.product(SIZES, (1, 5, 18)):
        check_problem(dtype, (1, 2, 1, rows, 21, size, v_size))


@by_type
def test_block_edges(dtype, isa):
    for queries in LENGTHS:
        check_problem(dtype, (1, 2, 1, queries, BLOCK + 2, 8, 8))
        check_problem(dtype, (1, 1, 1, queries, BLOCK + 2, 8, 8), is_causal=True, past=3)
    for keys in KEYS:
        check_problem(dtype, (1, 2, 2, 19, keys, 8, 8))
        check_problem(dtype, (1, 2, 1, 2, keys, 8, 8))
        check_problem(dtype, (1, 2, 1, 3, keys, 8, 8), is_causal=True, past=BLOCK - 1)


@by_type
def test_empty_sizes(dtype):
    """No key: zeros.  No query, head, batch or size of V: nothing.  No size of K: all scores are 0."""
    for zero in itertools.chain.from_iterable(itertools.combinations(range(5), n) for n in range(1, 6)):
        batch, queries, keys, size, v_size = (0 if axis in zero else n for axis, n in enumerate((2, 3, 4, 5, 6)))
        q, k, v = qkv(3, dtype, batch, 4, 2, queries, keys, size, v_size)
        poison = [full((2, 4, 3, 6), np.nan, dtype) for _ in range(4)]
        del poison  # its memory is likely to come back as the result's
        y = check_call(q, k, v)
        if keys == 0:
            assert y.shape == (batch, 4, queries, v_size) and (y == 0).all()
        check_call(q, k, v, np.zeros((queries, keys), dtype), is_causal=True)
        check_call(q, k, v, nonpad_kv_seqlen=np.full(batch, keys))
        check_call(*map(heads_last, (q, k, v)), q_num_heads=4, kv_num_heads=2)
        out = full(y.shape, np.nan, dtype)
        assert gemmkit.attention(q, k, v, out=out) is out
        np.testing.assert_array_equal(out.astype(F64), y.astype(F64))
        for mode in range(4):
            check_call(q, k, v, outputs=OUTPUTS, qk_matmul_output_mode=mode)
        past = some(4, dtype, (batch, 2, 2, size), (batch, 2, 2, v_size))
        check_call(q, k, v, None, *past, outputs=OUTPUTS)
        check_call(q, k, v, None, *(x[:, :, :0] for x in past), is_causal=True, outputs=OUTPUTS)
    q, k, v = qkv(3, dtype, 2, 4, 2, 3, 4, 5, 6)
    assert gemmkit.attention(q[:, :0], k, v).shape == (2, 0, 3, 6)


def test_without_a_size_of_k_every_weight_is_the_same():
    v = np.arange(24, dtype=F32).reshape(1, 1, 6, 4)
    y = gemmkit.attention(np.empty((1, 1, 3, 0), F32), np.empty((1, 1, 6, 0), F32), v, is_causal=True)
    np.testing.assert_allclose(y[0, 0], [v[0, 0, :n].mean(0) for n in (1, 2, 3)], rtol=1e-6)


# ---- Masks

@by_type
@pytest.mark.parametrize("kind", ["bool", "number"])
def test_masks_of_every_shape(kind, dtype):
    """Aligned at the right; a last axis that is shorter, or 1, or 0, is completed with what takes no part."""
    shape = (2, 4, 5, 7)
    q, k, v = qkv(5, dtype, 2, 4, 2, 5, 7, 6)
    rng = np.random.default_rng(6)
    whole = rng.random(shape) < 0.6 if kind == "bool" else normal(rng, shape, dtype)
    for rank, last in itertools.product((1, 2, 3, 4), (0, 1, 3, 7)):
        for axes in itertools.product((0, 1), repeat=rank - 1):
            mask = whole[(0,) * (4 - rank)][tuple(slice(None) if keep else slice(1) for keep in axes)][..., :last]
            check_call(q, k, v, mask)
            check_call(q, k, v, mask, nonpad_kv_seqlen=[7, 3], is_causal=True)


@pytest.mark.parametrize("mask_type", MASK_TYPES, ids=name)
def test_masks_of_every_type(mask_type):
    """Only bool says which keys take part; 0 and 1 of any other type are numbers to add."""
    rng = np.random.default_rng(7)
    for dtype in TYPES:
        q, k, v = qkv(8, dtype, 2, 2, 2, 4, 140, 6)
        for shape in ((140,), (4, 140), (2, 1, 1, 140), (2, 2, 4, 140), (4, 3), (2, 4, 140)):
            for low, high in ((0, 2), (0, 1), (1, 2), (-3 if np.dtype(mask_type).kind not in "bu" else 0, 6)):
                check_call(q, k, v, cast(rng.integers(low, high, shape), mask_type))
    one = np.zeros((1, 1, 1, 1), F32)
    y = gemmkit.attention(one, np.zeros((1, 1, 2, 1), F32), np.eye(2, dtype=F32)[None, None], np.array([0, 1], mask_type))
    np.testing.assert_allclose(y[0, 0, 0], [0, 1] if mask_type == np.bool_ else np.exp([0, 1]) / (1 + np.e), rtol=1e-6)


@pytest.mark.parametrize("mask_type", [t for t in MASK_TYPES if np.dtype(t).kind in "iu"], ids=name)
def test_the_ends_of_integer_masks_are_numbers(mask_type):
    low, high = np.iinfo(mask_type).min, np.iinfo(mask_type).max
    for dtype in TYPES:
        q, k, v = qkv(9, dtype, 1, 1, 1, 2, 5, 4)
        y = gemmkit.attention(q, k, v, np.array([low, high, low, low, low], mask_type))
        np.testing.assert_allclose(y.astype(F64), np.broadcast_to(v[:, :, 1:2], y.shape).astype(F64), rtol=0, atol=1e-6)
        check_call(q, k, v, np.full(5, low, mask_type))  # no dead row: low is finite
        assert gemmkit.attention(q, k, v, np.full(5, low, mask_type)).any()


@by_type
def test_masks_in_any_memory(dtype):
    q, k, v = qkv(10, dtype, 2, 3, 1, 4, 5, 6)
    rng = np.random.default_rng(11)
    for mask in (rng.random((2, 3, 4, 5)) < 0.6, normal(rng, (2, 3, 4, 5), dtype), rng.integers(-3, 4, (2, 3, 4, 5), np.int16)):
        want = attend(q, k, v, mask)
        for x in memories(mask).values():
            check_output(gemmkit.attention(q, k, v, x), want)
        for axis in range(3):
            some_of_it = mask[tuple(slice(1) if d == axis else slice(None) for d in range(4))]
            check_call(q, k, v, np.broadcast_to(some_of_it, mask.shape))
        check_call(q, k, v, np.broadcast_to(mask[..., :1], mask.shape))  # 5 keys of the same bias, unlike an axis of 1
        if mask.dtype != dtype:
            check_call(q, k, v, mask.tolist())


def test_a_mask_of_rank_3_has_heads_not_batches():
    q, k, v = qkv(12, F32, 2, 2, 2, 3, 4, 5)
    mask = np.ones((2, 3, 4), bool)
    mask[1, :, 2:] = False
    y = check_call(q, k, v, mask)
    check_within(y[:, 1], attend(q[:, 1:], k[:, 1:, :2], v[:, 1:, :2]).y[:, 0], np.full(y[:, 1].shape, 1e-5), F32)
    check_within(y[:, 0], attend(q[:, :1], k[:, :1], v[:, :1]).y[:, 0], np.full(y[:, 0].shape, 1e-5), F32)


@by_type
@pytest.mark.parametrize("low", [-1e4, "min"])
def test_a_very_low_mask_is_a_number(low, dtype):
    """A row of it isn't dead: what is left of the scores decides, nothing at all if the number is low enough."""
    low = float(ml_dtypes.finfo(dtype).min) if low == "min" else low
    for queries in (2, 40):
        q, k, v = qkv(13, dtype, 1, 2, 1, queries, 150, 8)
        mask = cast(np.zeros((queries, 150)), dtype)
        mask[0] = low
        mask[1, :140] = low
        y = check_call(q, k, v, mask)
        assert y[:, :, 0].any()
        if abs(low) > 1e30:
            mean = np.broadcast_to(v.astype(F64).mean(2), y[:, :, 0].shape)
            check_within(y[:, :, 0], mean, np.full(mean.shape, 5e-6), dtype)


@by_type
def test_dead_rows_are_zero_whatever_v_holds(dtype, isa):
    for queries, keys, junk in itertools.product((3, 35), (4, 300), (np.nan, INF)):
        q, k, v = qkv(14, dtype, 1, 2, 1, queries, keys, 8)
        v[...] = junk
        mask = np.ones((queries, keys), bool)
        mask[1], mask[-1] = False, False
        numbers = np.where(mask, 0, -INF).astype(F32)
        for given in ({"attn_mask": mask}, {"attn_mask": numbers}, {"attn_mask": numbers.astype(BF16), "is_causal": True}):
            y = gemmkit.attention(q, k, v, out=full(q.shape, 7, dtype), **given)
            assert (y[:, :, [1, -1]] == 0).all() and not np.isfinite(y[:, :, 0].astype(F32)).any()
            p = gemmkit.attention(q, k, v, outputs=("qk_matmul_output",), qk_matmul_output_mode=3, **given)[0]
            assert (p[:, :, [1, -1]] == 0).all() and (p[:, :, 0] > 0).any()
        assert (gemmkit.attention(q, k, v, mask[1]) == 0).all()
        assert (gemmkit.attention(q, k, v, nonpad_kv_seqlen=[0]) == 0).all()
        # Rows before the first valid key, and a window that has passed the last one
        early = gemmkit.attention(q, k, v, nonpad_kv_seqlen=[2], is_causal=True)
        assert (early[:, :, :queries - 2] == 0).all() and not (early[:, :, queries - 2:] == 0).any()
        if queries > keys + 1:
            late = gemmkit.attention(q, k, v, left_window_size=1)
            assert (late[:, :, keys + 1:] == 0).all() and not (late[:, :, :keys + 1] == 0).any()


@by_type
def test_whole_blocks_without_a_key(dtype, isa):
    """The running maximum is -inf for hundreds of keys, then a number; or keys end long before the last block."""
    keys = 600
    for queries in (2, 33):
        q, k, v = qkv(15, dtype, 1, 2, 2, queries, keys, 8)
        for first, end in ((400, 600), (599, 600), (0, 100), (256, 384), (0, 1)):
            mask = np.zeros(keys, bool)
            mask[first:end] = True
            numbers = np.where(mask, 0, -INF).astype(dtype)
            want = attend(q, k[:, :, first:end], v[:, :, first:end])
            for given in (mask, mask[:end], numbers, np.broadcast_to(numbers, (queries, keys))):
                check_output(gemmkit.attention(q, k, v, given), want)
            if first == 400:
                several = np.broadcast_to(mask, (2, queries, keys)).copy()
                several[0, 1, :3] = True  # one row of one head begins early
                check_call(q, k, v, several)


# ---- Causality, windows and padding

def seen(queries, keys, past=0, dtype=F32, **options):
    """Which keys each query sees, for each batch: with scale 0 and V the identity, Y has the weights."""
    batch = len(options.get("nonpad_kv_seqlen", [0]))
    q, k = full((batch, 1, queries, 1), 1, dtype), full((batch, 1, past + keys, 1), 1, dtype)
    v = np.broadcast_to(cast(np.eye(past + keys), dtype), (batch, 1, past + keys, past + keys))
    if past:
        options |= {"past_key": k[:, :, :past], "past_value": v[:, :, :past]}
    y = gemmkit.attention(q, k[:, :, past:], v[:, :, past:], scale=0.0, **options).astype(F64)[:, 0]
    weight = 1 / np.maximum((y > 0).sum(-1, keepdims=True), 1)
    np.testing.assert_allclose(y, np.where(y > 0, weight, 0), rtol=UNITS[dtype] + 1e-6)
    return y > 0


def rows(*text):
    return np.array([[c == "x" for c in row] for row in text])


@by_type
def test_causal_offsets(dtype):
    """The first query sees the first key; with a past, all of it too; with a count of keys, the last one sees the last."""
    for queries, keys, past, want in (
            (2, 4, 0, rows("x...", "xx..")), (4, 2, 0, rows("x.", "xx", "xx", "xx")), (3, 3, 0, rows("x..", "xx.", "xxx")),
            (1, 4, 0, rows("x...")), (2, 2, 3, rows("xxxx.", "xxxxx")), (1, 3, 2, rows("xxx..")),
            (3, 1, 2, rows("xxx", "xxx", "xxx"))):
        np.testing.assert_array_equal(seen(queries, keys, past, dtype, is_causal=True)[0], want)
        np.testing.assert_array_equal(seen(queries, keys, past, dtype)[0], np.ones_like(want))
        last = np.arange(past + keys) > 0  # the frontier doesn't depend on a mask
        np.testing.assert_array_equal(seen(queries, keys, past, dtype, is_causal=True, attn_mask=last)[0], want & last)
    got = seen(2, 4, 0, dtype, is_causal=True, nonpad_kv_seqlen=[4, 2, 1, 0])
    np.testing.assert_array_equal(got, [rows("xxx.", "xxxx"), rows("x...", "xx.."), rows("....", "x..."), rows("....", "....")])
    np.testing.assert_array_equal(seen(2, 4, 0, dtype, nonpad_kv_seqlen=[3, 0]), [rows("xxx.", "xxx."), rows("....", "....")])


@pytest.mark.parametrize("left", [-1, 0, 1, 3, 9])
@pytest.mark.parametrize("right", [-1, 0, 1, 3, 9])
def test_windows(left, right):
    """By the words of the standard, key by key."""
    for queries, keys, past, causal in itertools.product((1, 5, 8), (1, 4, 7), (0, 3), (False, True)):
        counts = None if past else [keys, keys // 2, 0]
        for nonpad in (None, counts) if counts else (None,):
            want = np.zeros((len(nonpad or [0]), queries, past + keys), bool)
            for b, i, j in np.ndindex(want.shape):
                p = i + (nonpad[b] - queries if nonpad else past)
                want[b, i, j] = ((left < 0 or p - left <= j) and (right < 0 or j <= p + right) and (not causal or j <= p)
                                 and (not nonpad or j < nonpad[b]))
            options = {"nonpad_kv_seqlen": nonpad} if nonpad else {}
            got = seen(queries, keys, past, is_causal=causal, left_window_size=left, right_window_size=right, **options)
            np.testing.assert_array_equal(got, want)


@by_type
def test_long_windows(dtype, isa):
    for left, right, causal in ((40, -1, True), (100, 20, False), (0, 0, False), (-1, 130, False), (300, 5, True)):
        options = {"left_window_size": left, "right_window_size": right, "is_causal": causal}
        check_problem(dtype, (1, 2, 2, 70, 300, 8, 8), **options)
        check_problem(dtype, (1, 2, 1, 5, 270, 8, 8), past=130, **options)
        check_problem(dtype, (2, 1, 1, 40, 300, 8, 8), mask="bool", nonpad=(300, 131), **options)


@by_type
def test_padding_is_never_read(dtype, isa):
    """NaN there reaches neither Y nor the weights; scores are shown for padded keys too, and then K is read."""
    for queries, junk, causal in itertools.product((1, 20), (np.nan, INF), (False, True)):
        q, k, v = qkv(16, dtype, 3, 2, 1, queries, 150, 8)
        counts = np.array([0, 33, 150])
        clean = gemmkit.attention(q, k, v, nonpad_kv_seqlen=counts, is_causal=causal)
        check_output(clean, attend(q, k, v, nonpad_kv_seqlen=counts, is_causal=causal))
        dirty_k, dirty_v = k.copy(), v.copy()
        for b, n in enumerate(counts):
            dirty_k[b, :, n:] = dirty_v[b, :, n:] = junk
        assert support.same_bits(gemmkit.attention(q, dirty_k, dirty_v, nonpad_kv_seqlen=counts, is_causal=causal), clean)
        for keys in (dirty_k, turned(dirty_k, (0, 2, 1, 3))):
            y, p = gemmkit.attention(q, keys, dirty_v, nonpad_kv_seqlen=counts, is_causal=causal,
                                     outputs=("y", "qk_matmul_output"), qk_matmul_output_mode=3)
            want = attend(q, k, v, nonpad_kv_seqlen=counts, is_causal=causal, qk_matmul_output_mode=3)
            check_output(y, want)
            check_output(p, want, "qk_matmul_output")
        for mode in (0, 1, 2):
            check_call(q, k, dirty_v, nonpad_kv_seqlen=counts, is_causal=causal, outputs=("qk_matmul_output", "y"),
                       qk_matmul_output_mode=mode, softcap=2.0)


@by_type
@pytest.mark.parametrize("queries", [1, 4, 40])
def test_padding_may_be_memory_that_cannot_be_read(queries, dtype, isa, guarded):
    q, k, v = qkv(17, dtype, 1, 1, 1, queries, 37, 8)
    reach = [np.lib.stride_tricks.as_strided(guarded(x), (1, 1, 90, 8), x.strides) for x in (k, v)]
    for options in ({}, {"is_causal": True}, {"attn_mask": np.ones((1, 90), bool)}):
        valid = options | ({"attn_mask": np.ones((1, 37), bool)} if "attn_mask" in options else {})
        got = gemmkit.attention(q, *reach, nonpad_kv_seqlen=[37], **options)
        check_output(got, attend(q, k, v, nonpad_kv_seqlen=[37], **valid))


# ---- Numbers

@by_type
def test_large_scores(dtype, isa):
    """Exactly +-10^4, where exp of anything but differences would overflow or vanish."""
    for queries, keys in ((1, 9), (20, 300)):
        sign = np.where(np.arange(keys) % 3 == 1, 1.0, -1.0)
        v = qkv(18, dtype, 1, 1, 1, queries, keys, 8)[2]
        q = full((1, 1, queries, 1), 100, dtype)
        for signs in (sign, np.full(keys, -1.0), np.full(keys, 1.0), np.where(np.arange(keys) == keys - 1, 1.0, -1.0)):
            y = gemmkit.attention(q, cast(100 * signs, dtype)[None, None, :, None], v, scale=1.0)
            mean = v[0, 0, signs == signs.max()].astype(F64).mean(0)
            check_within(y, np.broadcast_to(mean, y.shape), np.full(y.shape, 5e-6), dtype)
    for factor in (30.0, 100.0):
        q, k, v = qkv(19, dtype, 1, 1, 1, 20, 200, 4)
        check_call(cast(q * dtype(factor), dtype), k, v, scale=factor)


@by_type
def test_tiny_scores_are_all_the_same(dtype, isa):
    q, k, v = qkv(20, dtype, 1, 2, 1, 20, 140, 8)
    mean = np.broadcast_to(v.astype(F64).mean(2, keepdims=True), q.shape)
    for scale in (1e-30, 1e-44, 0.0):
        y = gemmkit.attention(q, k, v, scale=scale)
        check_within(y, mean, np.full(y.shape, 5e-6), dtype)


@pytest.mark.parametrize("dtype,size,scale", [(F32, 1e19, 2e-38), (BF16, 1e19, 2e-38), (F64, 1e154, 3e-308), (F16, 6e4, 3e-10)],
                         ids=["float32", "bfloat16", "float64", "float16"])
def test_products_that_overflow_before_they_are_scaled(dtype, size, scale):
    for queries in (1, 30):
        q, k, v = qkv(21, dtype, 1, 1, 1, queries, 40, 16)
        q, k = (cast(np.clip(x.astype(F64), -1, 1) * size, dtype) for x in (q, k))
        check_call(q, k, v, scale=scale)
        check_call(q, k, v, scale=scale, outputs=("y", "qk_matmul_output"))


def test_scores_that_overflow_float16():
    v = normal(np.random.default_rng(22), (1, 1, 3, 4), F16)
    q, k = full((1, 1, 2, 4), 200, F16), full((1, 1, 3, 4), 200, F16)
    k[0, 0, 1] = -200
    y, scores = gemmkit.attention(q, k, v, outputs=("y", "qk_matmul_output"))
    assert (scores[0, 0] == [INF, -INF, INF]).all()
    mean = np.broadcast_to(v[:, :, ::2].astype(F64).mean(2, keepdims=True), y.shape)
    for got in (y, gemmkit.attention(q, k, v), gemmkit.attention(q.repeat(20, 2), k, v)[:, :, 38:]):
        check_within(got, mean, np.full(y.shape, 1e-6), F16)


@by_type
def test_scale(dtype, isa):
    for scale in (1.0, 0.5, 0.3, 1.7, 2.0 ** -40, 3.0):
        check_problem(dtype, (1, 2, 1, 20, 60, 8, 8), scale=scale)
        check_problem(dtype, (1, 1, 1, 2, 60, 8, 8), scale=scale)


@by_type
def test_softcap(dtype, isa):
    """Before the mask: neither -inf nor a bias is capped."""
    for softcap, scale in itertools.product((1e-3, 0.5, 2.0, 30.0, 1e4), (0.1, 1.0, 40.0)):
        for queries, mask in itertools.product((2, 20), (None, "number")):
            check_problem(dtype, (1, 2, 1, queries, 60, 8, 8), mask=mask, softcap=softcap, scale=scale)
    one = full((1, 1, 1, 1), 1, dtype)
    y = gemmkit.attention(one, full((1, 1, 2, 1), 0, dtype), cast(np.eye(2), dtype)[None, None], np.array([0, 3.0]), softcap=1.0)
    check_within(y[0, 0, 0], np.exp([0, 3.0]) / np.exp([0, 3.0]).sum(), np.array([2.0 ** -10] * 2), dtype)


@by_type
@pytest.mark.parametrize("precision", TYPES, ids=name)
def test_softmax_precision_is_a_lower_bound(precision, dtype):
    for queries, keys in ((1, 9), (3, 140), (33, 140)):
        q, k, v = qkv(23, dtype, 2, 2, 1, queries, keys, 8)
        for kind in (precision, np.dtype(precision)):
            check_call(q, k, v, softmax_precision=kind)
            check_call(q, k, v, softmax_precision=kind, softcap=3.0, is_causal=True, outputs=OUTPUTS, qk_matmul_output_mode=3)


@pytest.mark.parametrize("types", [(F32, F16), (F32, BF16), (F16, F32), (BF16, F32)], ids=name)
def test_v_of_another_type(types):
    for queries in (1, 3, 40):
        q, k, _ = qkv(24, types[0], 2, 4, 2, queries, 140, 8)
        v = qkv(25, types[1], 2, 4, 2, queries, 140, 8, 5)[2]
        past_k, past_v = some(26, types[0], (2, 2, 3, 8))[0], some(27, types[1], (2, 2, 3, 5))[0]
        check_call(q, k, v)
        got = check_call(q, k, v, None, past_k, past_v, is_causal=True, outputs=OUTPUTS[:3])
        assert got.y.dtype == got.present_key.dtype == types[0] and got.present_value.dtype == types[1]


@by_type
def test_a_nan_stays_in_its_row_or_column(dtype, isa):
    """In Q its query, in K every query that reads the head, in V their column, in a mask its query."""
    for queries, keys in ((3, 9), (40, 300)):
        q, k, v = qkv(28, dtype, 2, 4, 2, queries, keys, 8)
        clean, answer = gemmkit.attention(q, k, v), attend(q, k, v)
        mask = np.zeros((queries, keys), F32)
        for x, at, there in ((q, (1, 0, 1, 3), np.s_[1, 0, 1]), (k, (0, 1, 2, 3), np.s_[0, 2:]),
                             (v, (1, 0, -1, 5), np.s_[1, :2, :, 5]), (mask, (1, 2), np.s_[:, :, 1])):
            before, x[at] = x[at], np.nan
            y = gemmkit.attention(q, k, v, mask)
            x[at] = before
            assert np.isnan(y[there].astype(F32)).all()
            y[there] = clean[there]
            check_output(y, answer)
