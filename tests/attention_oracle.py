"""Attention by its definition, in float64, one step after the other, and how far rounding may lead from it.

The bound of an output is derived for each element, not chosen.  Sums are taken in float32 or float64 with unit roundoff
u.  A score z of D products is off by at most e = (D + 8) u scale |q||k| plus a few u of each number that went into it.
Its weight is then off by a factor of at most 1 + d with d = exp(e + u |z - max| + 16 u) - 1; bfloat16 weights are also
rounded to 8 bits, d += 2^-8.  So with weights p that sum up to 1

    |error of Y| <= (sum p d |v| + |Y| sum p d) / (1 - sum p d) + (T + 16) u sum p |v|

beside numbers below the least normal one, which count as nothing.  At |scores| < 10, T = 600 and D = 64 that is some
3e-5 of max|v| in float32.  The last rounding isn't estimated: a result has to lie between the two ends of the interval,
each rounded to the result's type.
"""
import dataclasses
import functools
import itertools

import numpy as np
import support
from narrow import BF16, F16, F32, F64, cast

import gemmkit

TYPES = (F32, F64, F16, BF16)
MASK_TYPES = (*TYPES, np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
INPUTS = ("q", "k", "v", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("y", "present_key", "present_value", "qk_matmul_output")
INF = np.inf


# ---- The definition

@dataclasses.dataclass(frozen=True)
class Answer:
    """Every output, those that are computed in float64 with a bound for each element; `dtype` is theirs when rounded."""

    y: np.ndarray
    y_error: np.ndarray
    qk_matmul_output: np.ndarray
    qk_matmul_output_error: np.ndarray
    present_key: np.ndarray
    present_value: np.ndarray
    dtype: type


def heads_first(x, heads):
    """[B, L, H * D] as [B, H, L, D]."""
    batch, length, hidden = x.shape
    return np.moveaxis(x.reshape(batch, length, heads, hidden // heads), 2, 1)


def heads_last(x):
    batch, heads, length, size = x.shape
    return np.moveaxis(x, 1, 2).reshape(batch, length, heads * size)


def mask_as_bias(mask, shape, acc):
    """The mask as numbers to add, -inf where it is False or has ended, in the precision of the sums."""
    mask = np.asarray(mask)
    bias = np.where(mask, 0.0, -INF) if mask.dtype == bool else mask.astype(acc).astype(F64)
    missing = shape[-1] - bias.shape[-1]
    bias = np.concatenate([bias, np.full((*bias.shape[:-1], missing), -INF)], -1)
    return np.broadcast_to(bias, shape)


@np.errstate(all="ignore")
def attend(q, k, v, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, scale=None, is_causal=False,
           softcap=0.0, q_num_heads=None, kv_num_heads=None, qk_matmul_output_mode=0, softmax_precision=None,
           left_window_size=-1, right_window_size=-1):
    q, k, v = map(np.asarray, (q, k, v))
    flat = q.ndim == 3
    if flat:
        q, k, v = heads_first(q, q_num_heads), heads_first(k, kv_num_heads), heads_first(v, kv_num_heads)
    dtype, kinds = q.dtype.newbyteorder("="), (q.dtype, v.dtype)
    acc = F64 if F64 in kinds or softmax_precision is not None and np.dtype(softmax_precision) == F64 else F32
    past = 0 if past_key is None else past_key.shape[2]
    present_key = k if past_key is None else np.concatenate([past_key, k], 2)
    present_value = v if past_value is None else np.concatenate([past_value, v], 2)

    (batch, q_heads, queries, size), (_, kv_heads, keys, _) = q.shape, present_key.shape
    of_head = np.arange(q_heads) // max(q_heads // max(kv_heads, 1), 1)
    wide_q, wide_k = q.astype(F64), present_key.astype(F64)[:, of_head]
    wide_v = present_value.astype(F64)[:, of_head]
    counts = np.full(batch, keys) if nonpad_kv_seqlen is None else np.asarray(nonpad_kv_seqlen)
    for b, count in enumerate(counts):
        wide_v[b, :, count:] = 0  # never read

    # Scores
    factor = scale if scale is not None else 1 / np.sqrt(size) if size else 0.0
    raw = np.einsum("bhqd,bhkd->bhqk", wide_q * factor, wide_k, optimize=False)
    magnitude = np.einsum("bhqd,bhkd->bhqk", abs(wide_q * factor), abs(wide_k), optimize=False)
    capped = softcap * np.tanh(raw / softcap) if softcap > 0 else raw

    # What takes part: key and query as numbers of one sequence
    shift = np.full(batch, past) if nonpad_kv_seqlen is None else counts - queries
    key = np.arange(keys)
    place = (shift[:, None] + np.arange(queries))[:, None, :, None]
    shown = np.broadcast_to(key < counts[:, None, None, None], (batch, 1, queries, keys))
    if is_causal:
        shown = shown & (key <= place)
    if left_window_size >= 0:
        shown = shown & (key >= place - left_window_size)
    if right_window_size >= 0:
        shown = shown & (key <= place + right_window_size)
    bias = np.where(shown, 0.0 if attn_mask is None else mask_as_bias(attn_mask, raw.shape, acc), -INF)
    bias = np.broadcast_to(bias, raw.shape)
    sees = bias != -INF
    dead = ~sees.any(-1, keepdims=True)

    # Weights
    z = np.where(sees, capped + bias, -INF)
    top = z.max(-1, keepdims=True, initial=-INF)
    weight = np.exp(z - top)
    p = np.where(dead, 0.0, weight / weight.sum(-1, keepdims=True))
    y = np.where(dead, 0.0, np.einsum("bhqk,bhkv->bhqv", p, wide_v, optimize=False))

    # Bounds
    u = np.finfo(acc).eps / 2 + np.finfo(F64).eps / 2
    least = float(np.finfo(acc).tiny)
    raw_error = (size + 8) * u * magnitude + 4 * u * abs(raw) + (size + 1) * least
    capped_error = raw_error + 4 * u * abs(capped)
    z_error = capped_error + 4 * u * (abs(z) + abs(bias))
    d = np.expm1(np.minimum(z_error + u * abs(z - top) + 16 * u, 1)) + 2.0 ** -8 * (acc == F32 and BF16 in kinds)
    pd = np.where(p > 0, p * d, 0)
    rest = np.maximum(1 - pd.sum(-1, keepdims=True), 0.1)
    p_error = (pd + p * pd.sum(-1, keepdims=True)) / rest + (keys + 16) * u * p + least
    p_error = np.where(sees, p_error, 0)
    size_v = np.where(np.isfinite(wide_v), abs(wide_v), 0)
    spread = np.einsum("bhqk,bhkv->bhqv", pd / rest + (keys + 16) * u * p, size_v, optimize=False)
    y_error = spread + abs(y) * pd.sum(-1, keepdims=True) / rest
    y_error += (keys + 1) * least * (1 + size_v.max(initial=0))
    y_error = np.where(dead, 0, y_error)
    scores, error = [(raw, raw_error), (capped, capped_error), (z, z_error), (p, p_error)][qk_matmul_output_mode]
    if flat:
        y, y_error = heads_last(y), heads_last(y_error)
    return Answer(y, y_error, scores, error, present_key, present_value, dtype)


# ---- Comparison

def check_within(got, value, error, dtype, what="y"):
    """Whether a result is what its type makes of some number within `error` of `value`; NaN has to be NaN."""
    assert isinstance(got, np.ndarray) and got.dtype == dtype, f"{what}: {type(got)} of {got.dtype}"
    assert got.shape == value.shape, f"{what}: {got.shape}, not {value.shape}"
    error = np.where(np.isfinite(value), error, 0)
    with np.errstate(invalid="ignore"):
        low, high, x = (cast(n, dtype).astype(F64) for n in (value - error, value + error, got))
        right = (low <= x) & (x <= high) | np.isnan(x) & np.isnan(value)
    if not right.all():
        at = tuple(np.argwhere(~right)[0])
        raise AssertionError(f"{what}: {(~right).sum()} of {right.size} wrong, first {x[at]} for {value[at]} +- "
                             f"{error[at]:.2g} at {tuple(map(int, at))}")


def check_output(got, answer, output="y"):
    if output.startswith("present"):
        assert support.same_bits(np.ascontiguousarray(got), np.ascontiguousarray(getattr(answer, output))), output
    else:
        check_within(got, getattr(answer, output), getattr(answer, f"{output}_error"), answer.dtype, output)


def check_outputs(got, answer, outputs=("y",)):
    if outputs == ("y",):
        return check_output(got, answer)
    assert isinstance(got, tuple) and got._fields == tuple(outputs)
    for output, x in zip(outputs, got):
        assert getattr(got, output) is x
        check_output(x, answer, output)


def check_call(*arguments, outputs=("y",), **attributes):
    """gemmkit.attention against the definition; returns its result."""
    got = gemmkit.attention(*arguments, outputs=outputs, **attributes)
    check_outputs(got, attend(*arguments, **attributes), outputs)
    return got


# ---- Plans

def plan_for(*arguments, path="auto", outputs=("y",), **attributes):
    """A plan of one call's shapes and types."""
    given = dict(zip(INPUTS, arguments)) | {n: attributes.pop(n) for n in INPUTS if n in attributes}
    given = {n: np.asarray(x) for n, x in given.items() if x is not None}
    q, k, v, mask, past = (given.get(n) for n in INPUTS[:5])
    descriptor = gemmkit.AttentionDescriptor(tuple(given), outputs, **attributes)
    masked = {} if mask is None else {"mask_shape": mask.shape, "mask_dtype": mask.dtype}
    return gemmkit.AttentionPlan(descriptor, q.shape, k.shape, v.shape, q.dtype, v_dtype=v.dtype, path=path,
                                 past_length=0 if past is None else past.shape[2], **masked)


def paths_for(rows, outputs=("y",)):
    """The paths that can run so many rows a key head, with these outputs."""
    if "qk_matmul_output" in outputs:
        return ("materialized",)
    return ("streaming", "materialized", "decode") if rows <= 16 else ("streaming", "materialized")


# ---- Values and memory

def normal(rng, shape, dtype, factor=1.0):
    return cast(rng.standard_normal(shape) * factor, dtype)


def some(seed, dtype, *shapes):
    rng = np.random.default_rng(seed)
    return [normal(rng, shape, dtype) for shape in shapes]


def qkv(seed, dtype, batch, q_heads, kv_heads, queries, keys, size, v_size=None):
    v_size = size if v_size is None else v_size
    return some(seed, dtype, (batch, q_heads, queries, size), (batch, kv_heads, keys, size), (batch, kv_heads, keys, v_size))


def filler(dtype):
    """What must not be read: NaN, or the largest number."""
    dtype = np.dtype(dtype)
    return True if dtype == bool else np.iinfo(dtype).max if dtype.kind in "iu" else np.nan


def gaps(x):
    """Every second element along every axis."""
    buffer = np.full([2 * n + 1 for n in x.shape], filler(x.dtype), x.dtype)
    view = buffer[tuple(slice(1, None, 2) for _ in x.shape)]
    view[...] = x
    return view


def turned(x, order):
    """The same array whose memory has its axes in another order."""
    return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))


def backwards(x):
    flip = (slice(None, None, -1),) * x.ndim
    return np.ascontiguousarray(x[flip])[flip]


def unaligned(x):
    buffer = np.full(x.nbytes + 1, 0xFF, np.uint8)
    view = buffer[1:].view(x.dtype).reshape(x.shape) if x.size else x
    view[...] = x
    return view


def frozen(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def memories(x):
    """The same values in every memory that a view can have."""
    forms = {"plain": x, "gaps": gaps(x), "backwards": backwards(x), "read-only": frozen(x), "unaligned": unaligned(x)}
    for order in itertools.permutations(range(x.ndim)):
        forms[f"turned {order}"] = turned(x, order)
    if np.dtype(x.dtype).byteorder != "|" and x.dtype != BF16:
        forms["byte-swapped"] = x.astype(x.dtype.newbyteorder())
    return forms


# ---- Problems

@functools.lru_cache(512)
def problem(dtype, sizes, mask=None, nonpad=None, past=0, **attributes):
    """The inputs of a call and its answer: what all instruction sets are asked, and the oracle only once.

    sizes: batch, query heads, key heads, queries, keys, size, size of V.
    """
    batch, heads, kv_heads, queries, keys, size, v_size = sizes
    rng = np.random.default_rng(sizes)
    given = dict(zip("qkv", qkv(rng, dtype, *sizes)))
    if past:
        given["past_key"], given["past_value"] = some(rng, dtype, (batch, kv_heads, past, size), (batch, kv_heads, past, v_size))
    shape = (batch, heads, queries, past + keys)
    if mask == "bool":
        given["attn_mask"] = rng.random(shape) < 0.6
    elif mask == "number":
        given["attn_mask"] = cast(np.where(rng.random(shape[2:]) < 0.8, rng.standard_normal(shape[2:]), -INF), dtype)
    if nonpad is not None:
        given["nonpad_kv_seqlen"] = np.array(nonpad)
    return given, attend(**given, **attributes)


def check_problem(*problem_of, path=None, outputs=("y",), **options):
    """One problem as a call, or as a plan of one path."""
    given, answer = problem(*problem_of, **options)
    attributes = {key: x for key, x in options.items() if key not in ("mask", "nonpad", "past")}
    run = gemmkit.attention if path is None else plan_for(**given, path=path, outputs=outputs, **attributes)
    got = run(**given, outputs=outputs, **attributes) if path is None else run(**given)
    check_outputs(got, answer, outputs)
    return got
