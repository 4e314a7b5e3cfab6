"""attention on anything at once, against the oracle and the bounds that it derives; see attention_oracle."""
import numpy as np
import pytest
from attention_oracle import (
    INF,
    MASK_TYPES,
    OUTPUTS,
    TYPES,
    attend,
    backwards,
    check_outputs,
    frozen,
    gaps,
    heads_last,
    normal,
    paths_for,
    plan_for,
    turned,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from narrow import BF16, F16, F32, F64, cast, name

import gemmkit

SETTINGS = {"deadline": None, "derandomize": True, "database": None,
            "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]}

BATCHES = st.sampled_from((1, 1, 2, 2, 3, 0))
HEADS = st.sampled_from(((1, 1), (2, 1), (2, 2), (3, 3), (4, 2), (6, 2), (8, 1), (0, 1)))
QUERIES = st.one_of(st.sampled_from((1, 1, 2, 3, 16, 17, 33, 48, 97)), st.integers(0, 24))
KEYS = st.one_of(st.sampled_from((1, 2, 63, 127, 128, 129, 130, 255, 257, 300)), st.integers(0, 40))
SIZES = st.one_of(st.sampled_from((1, 4, 8, 16, 31, 33)), st.integers(0, 20))
PASTS = st.sampled_from((0, 1, 5, 127, 129, 200))
WINDOWS = st.sampled_from((-1, -1, -1, 0, 1, 7, 40, 150, 1000))
MEMORIES = (lambda x: x, lambda x: x, gaps, backwards, frozen, lambda x: turned(x, range(x.ndim)[::-1]),
            lambda x: turned(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)) if x.ndim > 1 else x)


V_TYPES = {F32: (F16, BF16), F64: (F64,), F16: (F32,), BF16: (F32,)}  # that differ from Q's, where there are any


def some_of(options):
    return st.sampled_from(options)


@st.composite
def masks(draw, rng, shape):
    """A mask of any type and any shape that broadcasts to this one, perhaps with a shorter last axis; or none."""
    kind = draw(some_of(("none", "none", "bool", "any", "numbers", "dead")))
    if kind == "none":
        return None
    rank = draw(st.integers(1, 4))
    axes = [n if draw(st.booleans()) else 1 for n in shape[4 - rank:-1]]
    last = draw(some_of((shape[3], shape[3], shape[3], max(shape[3] - 1, 0), shape[3] // 2, 0)))
    size = (*axes, last)
    if kind == "bool":
        return rng.random(size) < draw(some_of((0.1, 0.6, 0.95, 1.0)))
    mask_type = draw(some_of(TYPES if kind == "dead" else MASK_TYPES))
    if np.dtype(mask_type).kind in "iu":
        return rng.integers(0 if np.dtype(mask_type).kind == "u" else -9, 10, size).astype(mask_type)
    mask = rng.standard_normal(size) * draw(some_of((1.0, 1.0, 20.0)))
    if kind == "dead":
        mask = np.where(rng.random(size) < draw(some_of((0.3, 0.95))), -INF, mask)
    elif draw(st.booleans()):
        mask = np.where(rng.random(size) < 0.3, -1e4, mask)
    return cast(mask, mask_type)


@st.composite
def calls(draw):
    """(arrays, attributes, outputs, rows a key head)"""
    rng = np.random.default_rng(draw(st.integers(0, 2 ** 16)))
    dtype = draw(some_of(TYPES))
    v_type = dtype if draw(st.integers(0, 3)) else draw(some_of(V_TYPES[dtype]))
    batch, (heads, kv_heads), queries, keys = draw(BATCHES), draw(HEADS), draw(QUERIES), draw(KEYS)
    size, v_size = draw(SIZES), draw(SIZES)
    extra = draw(some_of(("none", "none", "past", "nonpad")))
    past = draw(PASTS) if extra == "past" else 0
    louder = draw(some_of((1.0, 1.0, 1.0, 8.0, 0.01)))
    arrays = {"q": normal(rng, (batch, heads, queries, size), dtype, louder),
              "k": normal(rng, (batch, kv_heads, keys, size), dtype),
              "v": normal(rng, (batch, kv_heads, keys, v_size), v_type, draw(some_of((1.0, 1.0, 100.0))))}
    if extra == "past":
        arrays["past_key"] = normal(rng, (batch, kv_heads, past, size), dtype)
        arrays["past_value"] = normal(rng, (batch, kv_heads, past, v_size), v_type)
    if extra == "nonpad":
        arrays["nonpad_kv_seqlen"] = rng.integers(0, keys + 1, batch) if draw(st.booleans()) else np.full(batch, keys)
    mask = draw(masks(rng, (batch, heads, queries, past + keys)))
    if mask is not None:
        arrays["attn_mask"] = mask
    attributes = {"scale": draw(some_of((None, None, None, 1.0, 0.3, 0.0, 2.5))), "is_causal": draw(st.booleans()),
                  "softcap": draw(some_of((0.0, 0.0, 0.0, 0.7, 5.0, 50.0))), "left_window_size": draw(WINDOWS),
                  "right_window_size": draw(WINDOWS), "qk_matmul_output_mode": draw(st.integers(0, 3)),
                  "softmax_precision": draw(some_of((None, None, None, *TYPES)))}
    if heads and draw(st.booleans()):
        arrays |= {n: heads_last(arrays[n]) for n in "qkv"}
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    some = [x for x in OUTPUTS if x == "y" or draw(st.integers(0, 3)) == 0]
    some = [x for x in some if extra != "nonpad" or not x.startswith("present")]
    return arrays, attributes, tuple(draw(st.permutations(some))), queries * heads // kv_heads


def hidden(arrays, attributes, outputs):
    """NaN in the padding of V, and in that of K unless raw scores are asked for: it must not show."""
    counts = arrays.get("nonpad_kv_seqlen")
    if counts is None or "q_num_heads" in attributes:
        return arrays
    scores = "qk_matmul_output" in outputs and attributes["qk_matmul_output_mode"] < 3
    dirty = {n: arrays[n].copy() for n in ("v",) if scores} or {n: arrays[n].copy() for n in ("k", "v")}
    for x in dirty.values():
        for b, n in enumerate(counts):
            x[b, :, n:] = np.nan
    return arrays | dirty


@settings(max_examples=1800, **SETTINGS)
@given(call=calls(), data=st.data())
def test_any_call(call, data):
    arrays, attributes, outputs, _ = call
    answer = attend(**arrays, **attributes)
    arrays = {n: data.draw(some_of(MEMORIES))(x) for n, x in hidden(arrays, attributes, outputs).items()}
    before = {n: x.tobytes() for n, x in arrays.items()}
    out = None
    if data.draw(st.booleans()):
        out = data.draw(some_of(MEMORIES[:4]))(cast(np.full(answer.y.shape, np.nan), answer.dtype))
    got = gemmkit.attention(**arrays, **attributes, outputs=outputs, out=out)
    if out is not None:
        assert (got if outputs == ("y",) else got.y) is out
    check_outputs(got, answer, outputs)
    assert before == {n: x.tobytes() for n, x in arrays.items()}


@settings(max_examples=900, **SETTINGS)
@given(call=calls(), data=st.data())
def test_any_path_of_a_plan(call, data):
    arrays, attributes, outputs, rows = call
    path = data.draw(some_of(("auto", *paths_for(rows, outputs))))
    plan = plan_for(**arrays, **attributes, outputs=outputs, path=path)
    answer = attend(**arrays, **attributes)
    with gemmkit.threads(data.draw(st.integers(1, 3))):
        for form in (arrays, {n: data.draw(some_of(MEMORIES))(x) for n, x in arrays.items()}):
            check_outputs(plan(**form), answer, outputs)


@pytest.mark.parametrize("dtype", TYPES, ids=name)
def test_the_bounds_are_not_loose(dtype):
    """They hold for what rounding does, and for nothing as large as the loss of one key in a few hundred."""
    rng = np.random.default_rng(1)
    q, k, v = (normal(rng, (1, 2, n, 64), dtype) for n in (20, 300, 300))
    answer = attend(q, k, v)
    fewer = attend(q, k[:, :, :-1], v[:, :, :-1])
    size = abs(v.astype(F64)).max()
    assert answer.y_error.max() < {F64: 1e-13, F32: 6e-5, F16: 6e-5, BF16: 1.2e-2}[dtype] * size
    wrong = abs(fewer.y - answer.y) > answer.y_error
    assert wrong.mean() > {F64: 0.99, F32: 0.9, F16: 0.9, BF16: 0.1}[dtype]
