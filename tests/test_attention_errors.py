"""What attention, its descriptors and its plans refuse: before anything is computed, and by the argument's name."""
import ml_dtypes
import numpy as np
import pytest
from attention_oracle import MASK_TYPES, OUTPUTS, TYPES, attend, check_output, heads_last, qkv, some
from narrow import BF16, F16, F32, F64, full, name

import gemmkit

I64 = np.int64
SIZES = (2, 4, 2, 3, 6, 8, 5)  # batch, query heads, key heads, queries, keys, size, size of V
Y_SHAPE = (2, 4, 3, 5)
FLAT = {"q_num_heads": 4, "kv_num_heads": 2}
NOT_FLOATS = (np.bool_, np.int8, np.int32, np.int64, np.uint8, np.complex64, object, "U3", ml_dtypes.float8_e4m3fn,
              ml_dtypes.int4)


def arrays(dtype=F32, **others):
    return dict(zip("qkv", qkv(1, dtype, *SIZES))) | others


def past(dtype=F32, batch=2, heads=2, length=4, size=8, v_size=5):
    k, v = some(2, dtype, (batch, heads, length, size), (batch, heads, length, v_size))
    return {"past_key": k, "past_value": v}


def flat(**others):
    return {n: heads_last(x) for n, x in arrays().items()} | FLAT | others


def refused(names, error=ValueError, out=None, **given):
    """Refused with an out and (unless that is to blame) without, by a message that begins with a name; the out is left alone."""
    given = given if "q" in given else arrays() | given
    match = rf"^({names}): \S"
    if names != "out":
        with pytest.raises(error, match=match):
            gemmkit.attention(**given)
    if out is None:
        out = np.full((2, 3, 20) if np.ndim(given["q"]) == 3 else Y_SHAPE, 7, F32)
    before = out.tobytes()
    with pytest.raises(error, match=match):
        gemmkit.attention(**given, out=out)
    assert out.tobytes() == before


def test_what_the_others_change_is_accepted():
    """So that nothing below is refused for another reason."""
    for given in (arrays(), arrays(**past()), arrays(nonpad_kv_seqlen=np.array([6, 0])), flat(), flat(**past())):
        out = np.full((2, 3, 20) if given["q"].ndim == 3 else Y_SHAPE, 7, F32)
        assert gemmkit.attention(**given, out=out) is out
        check_output(out, attend(**given))


# ---- Attributes

@pytest.mark.parametrize("values", [("scale", (-1.0, -1e-30, np.inf, -np.inf, np.nan)), ("softcap", (-1.0, -1e-30, -np.inf)),
                                    ("qk_matmul_output_mode", (-1, 4, 100)), ("left_window_size", (-2, -100)),
                                    ("right_window_size", (-2, -(2 ** 40)))], ids=lambda values: values[0])
def test_values_of_attributes(values):
    attribute, bad = values
    for value in bad:
        refused(attribute, **{attribute: value})
        refused(attribute, **flat(**{attribute: value}))
        refused(attribute, outputs=("y", "qk_matmul_output"), **{attribute: value})
        with pytest.raises(ValueError, match=f"^{attribute}: "):
            gemmkit.AttentionDescriptor(**{attribute: value})


def test_softmax_precision_is_a_float_type():
    for bad in (np.int32, np.bool_, np.complex64, object, "no type", ml_dtypes.float8_e5m2):
        refused("softmax_precision", (TypeError, ValueError), softmax_precision=bad)
        with pytest.raises((TypeError, ValueError), match="^softmax_precision: "):
            gemmkit.AttentionDescriptor(softmax_precision=bad)


def test_head_counts():
    """Rank 3 needs both, above 0, one a multiple of the other, and sizes that are multiples of them."""
    heads = "q_num_heads|kv_num_heads"
    for counts in ({}, {"q_num_heads": 4}, {"kv_num_heads": 2}, {"q_num_heads": 0, "kv_num_heads": 2},
                   {"q_num_heads": 4, "kv_num_heads": 0}, {"q_num_heads": -4, "kv_num_heads": 2},
                   {"q_num_heads": 4, "kv_num_heads": -2}, {"q_num_heads": 2, "kv_num_heads": 4}):
        refused(heads, **{n: heads_last(x) for n, x in arrays().items()}, **counts)
        if "q_num_heads" in counts and "kv_num_heads" in counts:
            with pytest.raises(ValueError, match=f"^({heads}): "):
                gemmkit.AttentionDescriptor(**counts)
    for counts in ((3, 1), (5, 1), (4, 3), (64, 2), (33, 1)):  # 32 elements a query, 16 a key
        refused(f"q|k|v|{heads}", **flat(q_num_heads=counts[0], kv_num_heads=counts[1]))
    refused(f"v|{heads}", **flat(v=np.zeros((2, 6, 9), F32)))
    refused(f"q|k|v|{heads}", q_num_heads=3, kv_num_heads=3)  # of arrays with 4 and 2
    refused(f"q|k|v|{heads}", q_num_heads=8, kv_num_heads=4)


def test_outputs_are_known_and_named_once():
    for outputs in (("x",), ("y", "z"), ("y", "y"), ("present_key", "y", "present_key"), ("Y",)):
        refused("outputs", outputs=outputs)
        with pytest.raises(ValueError, match="^outputs: "):
            gemmkit.AttentionDescriptor(outputs=outputs)
    for inputs in (("q", "k"), ("k", "v"), ("q", "k", "v", "mask"), ("q", "k", "v", "v"), ()):
        with pytest.raises(ValueError, match="^inputs: "):
            gemmkit.AttentionDescriptor(inputs)


# ---- What excludes what

def test_past_key_and_past_value_come_together():
    for n, x in past().items():
        refused("past_key|past_value", **{n: x})
        with pytest.raises(ValueError, match="^(past_key|past_value|inputs): "):
            gemmkit.AttentionDescriptor(("q", "k", "v", n))


def test_nonpad_excludes_past_and_present():
    counts = np.array([6, 3])
    refused("nonpad_kv_seqlen|past_key|past_value", nonpad_kv_seqlen=counts, **past())
    for outputs in (("y", "present_key"), ("y", "present_value"), OUTPUTS, ("present_value",)):
        refused("nonpad_kv_seqlen|outputs", nonpad_kv_seqlen=counts, outputs=outputs)
        with pytest.raises(ValueError, match="^(nonpad_kv_seqlen|outputs|inputs): "):
            gemmkit.AttentionDescriptor(("q", "k", "v", "nonpad_kv_seqlen"), outputs)
    with pytest.raises(ValueError, match="^(nonpad_kv_seqlen|past_key|past_value|inputs): "):
        gemmkit.AttentionDescriptor(("q", "k", "v", "past_key", "past_value", "nonpad_kv_seqlen"))


def test_a_cache_excludes_past_and_nonpad():
    for others in (("past_key", "past_value"), ("nonpad_kv_seqlen",)):
        with pytest.raises(ValueError, match="^(cache|nonpad_kv_seqlen|past_key|past_value|inputs): "):
            gemmkit.AttentionDescriptor(("q", "k", "v", "cache", *others))


# ---- Shapes

def zeros(*shape):
    return np.zeros(shape, F32)


@pytest.mark.parametrize("given", [
    ("q", zeros(2, 4, 8)), ("q", zeros(3, 8)), ("q", zeros(8)), ("q", zeros()), ("q", zeros(1, 2, 4, 3, 8)),
    ("k", zeros(2, 6, 16)), ("k", zeros(6, 8)), ("k", zeros(1, 2, 2, 6, 8)), ("v", zeros(2, 6, 10)), ("v", zeros(6, 5)),
    ("v", zeros(1, 2, 2, 6, 5)), ("k", zeros()), ("v", zeros())], ids=lambda given: f"{given[0]} {given[1].shape}")
def test_ranks(given):
    refused("q|k|v|q_num_heads|kv_num_heads" if given[1].ndim == 3 else given[0] if given[0] != "q" else "q|k",
            **arrays(**dict([given])))


@pytest.mark.parametrize("shape", [(1, 2, 6, 8), (3, 2, 6, 8), (2, 2, 6, 7), (2, 2, 6, 9), (2, 2, 6, 1), (2, 2, 6, 0)], ids=str)
def test_k_has_the_batch_and_the_size_of_q(shape):
    """Nothing is broadcast, not even a batch of 1."""
    v = zeros(*shape[:3], 5)
    refused("q|k", k=zeros(*shape), v=v)
    refused("q|k", **flat(k=heads_last(zeros(*shape)), v=heads_last(v)))


@pytest.mark.parametrize("shape", [(1, 2, 6, 5), (3, 2, 6, 5), (2, 2, 5, 5), (2, 2, 7, 5), (2, 2, 1, 5), (2, 2, 0, 5),
                                   (2, 1, 6, 5), (2, 4, 6, 5)], ids=str)
def test_v_has_the_batch_heads_and_length_of_k(shape):
    refused("k|v", v=zeros(*shape))


@pytest.mark.parametrize("heads", [(4, 3), (2, 4), (4, 0), (5, 2), (1, 2)], ids=str)
def test_query_heads_are_a_multiple_of_key_heads(heads):
    refused("q|k|q_num_heads|kv_num_heads", q=zeros(2, heads[0], 3, 8), k=zeros(2, heads[1], 6, 8), v=zeros(2, heads[1], 6, 5))


@pytest.mark.parametrize("shape", [(1, 2, 4, 8), (3, 2, 4, 8), (2, 1, 4, 8), (2, 4, 4, 8), (2, 2, 4, 7), (2, 2, 4, 1), (2, 4, 16),
                                   (2, 4, 8), (4, 8), (1, 2, 2, 4, 8)], ids=str)
def test_past_key_fits(shape):
    refused("past_key", **arrays(**past() | {"past_key": zeros(*shape)}))
    refused("past_key", **flat(**past() | {"past_key": zeros(*shape)}))


@pytest.mark.parametrize("shape", [(1, 2, 4, 5), (3, 2, 4, 5), (2, 1, 4, 5), (2, 4, 4, 5), (2, 2, 4, 8), (2, 2, 4, 1), (2, 4, 10),
                                   (4, 5), (1, 2, 2, 4, 5)], ids=str)
def test_past_value_fits(shape):
    refused("past_value", **arrays(**past() | {"past_value": zeros(*shape)}))


@pytest.mark.parametrize("length", [0, 3, 5])
def test_past_key_and_past_value_have_one_length(length):
    refused("past_key|past_value", **arrays(**past() | {"past_value": zeros(2, 2, length, 5)}))


@pytest.mark.parametrize("shape", [
    (), (7,), (100,), (2, 6), (4, 6), (0, 6), (3, 7), (2, 3, 6), (3, 3, 6), (4, 2, 6), (0, 3, 6), (3, 4, 3, 6), (2, 2, 3, 6),
    (2, 4, 2, 6), (2, 4, 3, 7), (4, 4, 3, 6), (0, 4, 3, 6), (1, 2, 4, 3, 6), (1, 1, 1, 1, 6)], ids=str)
def test_masks_that_do_not_fit(shape):
    """A mask of rank 3 has heads, 4 of them here; a batch has 2.  Longer than the keys is an error, shorter isn't."""
    refused("attn_mask", attn_mask=zeros(*shape))
    refused("attn_mask", attn_mask=np.ones(shape, bool))
    refused("attn_mask", **flat(attn_mask=zeros(*shape)))
    refused("attn_mask", attn_mask=zeros(*shape), nonpad_kv_seqlen=np.array([6, 6]))


def test_a_mask_counts_the_past():
    refused("attn_mask", **arrays(**past(), attn_mask=zeros(11)))
    given = arrays(**past(), attn_mask=zeros(10))
    check_output(gemmkit.attention(**given), attend(**given))


def test_counts_of_keys():
    for bad in ([7, 0], [-1, 3], [3, 100], [2 ** 40, 1], [0, -(2 ** 62)]):
        refused("nonpad_kv_seqlen", nonpad_kv_seqlen=np.array(bad))
        refused("nonpad_kv_seqlen", **flat(nonpad_kv_seqlen=np.array(bad)))
    for shape in ((), (1,), (3,), (0,), (2, 1), (1, 2), (2, 2)):
        refused("nonpad_kv_seqlen", nonpad_kv_seqlen=np.zeros(shape, I64))
    for dtype in (np.int32, np.uint64, np.uint8, np.bool_, F32, F64, object):
        refused("nonpad_kv_seqlen", (TypeError, ValueError), nonpad_kv_seqlen=np.zeros(2, dtype))


# ---- Types

@pytest.mark.parametrize("dtype", NOT_FLOATS, ids=str)
def test_types_that_are_no_floats(dtype):
    for n in ("q", "k", "v"):
        refused(n, TypeError, **arrays(**{n: arrays()[n].astype(dtype)}))
    refused("q", TypeError, **{n: x.astype(dtype) for n, x in arrays().items()})
    for n, x in past().items():
        refused(n, TypeError, **arrays(**past() | {n: x.astype(dtype)}))


@pytest.mark.parametrize("types", [(a, b) for a in TYPES for b in TYPES if a != b], ids=name)
def test_q_k_and_past_key_have_one_type_and_v_and_past_value_too(types):
    one, other = types
    refused("k", TypeError, out=full(Y_SHAPE, 7, one), **arrays(one, k=arrays(other)["k"]))
    for n, x in past(other).items():
        refused(n, TypeError, out=full(Y_SHAPE, 7, one), **arrays(one, **past(one) | {n: x}))
    if F64 in types:
        refused("v", TypeError, out=full(Y_SHAPE, 7, one), **arrays(one, v=arrays(other)["v"]))


def test_types_of_masks():
    for dtype in (np.complex64, object, "U3", "M8[s]", ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ml_dtypes.uint4):
        refused("attn_mask", TypeError, attn_mask=np.ones((3, 6), F32).astype(np.int64).astype(dtype))
    for dtype in MASK_TYPES:
        mask = np.ones((3, 6), F32).astype(dtype)
        check_output(gemmkit.attention(**arrays(attn_mask=mask)), attend(**arrays(attn_mask=mask)))


# ---- out

def test_outs_that_do_not_fit():
    good = full(Y_SHAPE, 7, F32)
    read_only = good.copy()
    read_only.flags.writeable = False
    repeated = np.lib.stride_tricks.as_strided(good.copy(), Y_SHAPE, (0, 60, 20, 4))
    for out in (good[:1], good[..., :4], good[0], good[None], good.swapaxes(1, 2), good.reshape(2, 3, 20), read_only, repeated):
        refused("out", out=out)
        refused("out", out=out, outputs=("present_key", "y"))
    refused("out", out=good, **flat())
    for dtype in (F64, F16, BF16, np.int32, np.uint8, object, np.complex64):
        refused("out", TypeError, out=full(Y_SHAPE, 7, dtype))
    for out in (good.tolist(), 7.0, "out"):
        with pytest.raises(TypeError, match="^out: "):
            gemmkit.attention(**arrays(), out=out)
    assert (good == 7).all()


# ---- Plans

def test_plans_of_what_does_not_fit():
    plan, q, k, v = gemmkit.AttentionDescriptor(), (2, 4, 3, 8), (2, 2, 6, 8), (2, 2, 6, 5)
    for names, shapes in (("q|k", ((2, 4, 8), k, v)), ("q|k", ((1, 4, 3, 8), k, v)), ("q|k", (q, (2, 2, 6, 7), v)),
                          ("k|v", (q, k, (2, 2, 7, 5))), ("k|v", (q, k, (2, 1, 6, 5)))):
        with pytest.raises(ValueError, match=f"^({names})(_shape|_num_heads)?: "):
            gemmkit.AttentionPlan(plan, *shapes, F32)
    for path in ("fast", "", "Streaming"):
        with pytest.raises(ValueError, match="^path: "):
            gemmkit.AttentionPlan(plan, q, k, v, F32, path=path)
    for dtype in (np.int32, np.complex64, object, ml_dtypes.float8_e4m3fn):
        with pytest.raises(TypeError, match="^(dtype|q|k): "):
            gemmkit.AttentionPlan(plan, q, k, v, dtype)
        with pytest.raises(TypeError, match="^(v_dtype|v): "):
            gemmkit.AttentionPlan(plan, q, k, v, F32, v_dtype=dtype)
    masked = gemmkit.AttentionDescriptor(("q", "k", "v", "attn_mask"))
    for shape in ((7,), (4, 6), (2, 3, 6), (1, 1, 1, 1, 6)):
        with pytest.raises(ValueError, match="^(attn_mask|mask_shape): "):
            gemmkit.AttentionPlan(masked, q, k, v, F32, mask_shape=shape, mask_dtype=F32)
    with pytest.raises(TypeError, match="^(attn_mask|mask_dtype): "):
        gemmkit.AttentionPlan(masked, q, k, v, F32, mask_shape=(6,), mask_dtype=np.complex64)


def test_calls_that_do_not_fit_their_plan():
    given = arrays(**past(), attn_mask=zeros(3, 10))
    descriptor = gemmkit.AttentionDescriptor(tuple(given))
    shapes = [given[n].shape for n in "qkv"]
    plan = gemmkit.AttentionPlan(descriptor, *shapes, F32, mask_shape=(3, 10), mask_dtype=F32, past_length=4)
    check_output(plan(**given), attend(**given))
    out = full(Y_SHAPE, 7, F32)
    shorter = {n: x[:, :, :-1] for n, x in given.items() if n != "attn_mask"} | {"attn_mask": zeros(3, 9)}
    for n, x in given.items():
        names = "past_key|past_value" if n.startswith("past") else n
        with pytest.raises(ValueError, match=f"^({names}): "):
            plan(**given | {n: shorter[n]}, out=out)
        with pytest.raises(TypeError, match=f"^{n}: "):
            plan(**given | {n: x.astype(F64)}, out=out)
        if n not in "qkv":
            with pytest.raises(ValueError, match=f"^({names}): "):
                plan(**given | {n: None}, out=out)
    with pytest.raises(ValueError, match="^nonpad_kv_seqlen: "):
        plan(**given, nonpad_kv_seqlen=np.array([1, 1]), out=out)
    plain = gemmkit.AttentionPlan(gemmkit.AttentionDescriptor(), *shapes, F32)
    for n in ("attn_mask", "past_key", "past_value"):
        with pytest.raises(ValueError, match=f"^({'past_key|past_value' if n.startswith('past') else n}): "):
            plain(**arrays(**{n: given[n]}), out=out)
    with pytest.raises(ValueError, match="^out: "):
        plan(**given, out=out[:1])
    assert (out == 7).all()
    check_output(plan(**given, out=out), attend(**given))
