"""`attention`, and `AttentionPlan` underneath: arguments, shapes, types; where results go.

Everything is checked before anything is computed.  Operands are read where they lie, whatever their strides.
"""
cimport numpy as cnp
from libc.stdint cimport int64_t
from libc.string cimport memset

from collections import namedtuple

import numpy as np

from gemmkit._cache import KVCache
from gemmkit._kernels._attend cimport (decide, lengths, read_mask, read_past, read_shapes, run, set_mask, set_numbers, tensor,
                                       work_of)
from gemmkit._kernels._calls cimport Call, result_for
from gemmkit._kernels._decode cimport decode_bytes
from gemmkit._kernels._descriptor cimport AttentionDescriptor
from gemmkit._kernels._flash cimport panels_bytes
from gemmkit._kernels._heads cimport PATH_AUTO, PATH_DECODE, Attend, Tensor
from gemmkit._kernels._parallel cimport threads_for
from gemmkit._kernels._plans cimport shape_of
from gemmkit._kernels._registry cimport GK_BF16, GK_E4M3FN, GK_E5M2FNUZ, GK_F16, GK_F32, GK_F64, gk_item
from gemmkit._kernels._types cimport dtype_of, plain_type, type_of

from gemmkit._kernels import _registry
from gemmkit._kernels._attend import PATH_NAMES, PATHS

cnp.import_array()

NAMED = {}  # outputs -> the class of tuples that holds them


cdef class AttentionPlan


# Everything that one call reads, as arrays of types that kernels know.
cdef class Operands:
    cdef cnp.ndarray q, k, v, mask, past_key, past_value, nonpad
    cdef object cache
    cdef cnp.ndarray new_k, new_v  # what the cache is to take
    cdef tuple y_shape


cdef bint is_float(int type) noexcept:
    return type == GK_F32 or type == GK_F64 or type == GK_F16 or type == GK_BF16


cdef cnp.ndarray native(object x, str name):
    """x as an aligned array of its own type in native byte order, and no subclass."""
    cdef cnp.ndarray a
    try:
        a = np.asarray(x)
    except (TypeError, ValueError) as error:  # ragged lists
        raise ValueError(f"{name}: {error}") from None
    a = np.asarray(a, a.dtype.newbyteorder("="))
    return a if cnp.PyArray_ISALIGNED(a) else a.copy()


cdef cnp.ndarray float_array(object x, str name):
    """x as an aligned native array of a type that attention has."""
    cdef cnp.ndarray a
    cdef int type = plain_type(x)
    if is_float(type):
        return x
    if x is None:
        raise TypeError(f"{name}: expected an array, got None")
    a = native(x, name)
    if not is_float(plain_type(a)):
        raise TypeError(f"{name}: expected float32, float64, float16 or bfloat16, got {a.dtype}")
    return a


cdef cnp.ndarray mask_array(object x):
    cdef cnp.ndarray a
    cdef int type = plain_type(x)
    if type < 0:
        x = a = native(x, "attn_mask")
        type = plain_type(a)
    if type < 0 or GK_E4M3FN <= type <= GK_E5M2FNUZ:
        raise TypeError(f"attn_mask: expected bool, an integer type, float32, float64, float16 or bfloat16, got {(<object>x).dtype}")
    return x


cdef int same_type(cnp.ndarray x, str name, cnp.ndarray as_, str as_name) except -1:
    if cnp.PyArray_TYPE(x) != cnp.PyArray_TYPE(as_):
        raise TypeError(f"{name}: expected dtype {as_.dtype}, as {as_name}, got {x.dtype}")
    return 0


# ---- a call -----------------------------------------------------------------------------------------------------

cdef cnp.ndarray empty(tuple shape, int type):
    return np.empty(shape, dtype_of(type))


cdef cnp.ndarray result(tuple shape, int type, object out, tuple inputs):
    """An array to compute into: `out` where that is possible."""
    cdef Call call
    cdef int x
    cdef cnp.ndarray y
    if out is None:
        return empty(shape, type)
    call.ndim, call.result = <int>len(shape), type
    for x in range(call.ndim):
        call.shape[x] = shape[x]
    y = result_for(&call, out, inputs)
    if y is not out and y is not (out[0] if isinstance(out, tuple) else None):
        return y
    if cnp.PyArray_STRIDES(y)[call.ndim - 1] != gk_item[type] and shape[call.ndim - 1] > 1:
        return empty(shape, type)
    return y


cdef object whole_of(cnp.ndarray past, cnp.ndarray new, tuple new4):
    """present_key or present_value: past, then new, of rank 4."""
    cdef object x = new
    if cnp.PyArray_NDIM(new) == 3:
        x = x.reshape(new4[0], new4[2], new4[1], new4[3]).transpose(0, 2, 1, 3)
    return np.array(x) if past is None else np.concatenate((past, x), 2)


cdef object bundle(tuple names, dict found):
    if names == ("y",):
        return found["y"]
    return named(names, [found[name] for name in names])


def named(tuple names, values):
    """A named tuple of outputs; also how one comes out of a pickle."""
    kind = NAMED.get(names)
    if kind is None:
        kind = namedtuple("AttentionOutputs", names, module="gemmkit")
        kind.__reduce__ = lambda self: (named, (self._fields, tuple(self)))
        kind = NAMED.setdefault(names, kind)
    return kind(*values)


cdef int copy_rounded(cnp.ndarray to, cnp.ndarray wide) except -1:
    """float64 to a narrower type, rounded once: ml_dtypes casts by way of float32, to which odd rounding loses nothing."""
    if to.dtype.name == "bfloat16":
        with np.errstate(all="ignore"):
            half = wide.astype(np.float32)
            bits, wide_bits = half.view(np.uint32), np.isfinite(half) & (half != wide)
            bits -= (wide_bits & (np.abs(half) > np.abs(wide))).astype(np.uint32)
            bits |= wide_bits
            wide = half
    with np.errstate(all="ignore"):
        cnp.PyArray_CopyInto(to, wide)
    return 0


cdef Operands gather(AttentionDescriptor d, object q, object k, object v, object mask, object past_key, object past_value, object nonpad,
                     object cache, AttentionPlan plan, Attend *a):
    """Reads and checks every operand, and fills the call with them."""
    cdef Operands o = Operands()
    cdef ptrdiff_t past = 0
    cdef int mask_type = -1
    memset(a, 0, sizeof(Attend))
    o.q, o.k, o.v = float_array(q, "q"), float_array(k, "k"), float_array(v, "v")
    if plan is not None:
        plan.check(o.q, "q", plan.q_shape, plan.a.q_type)
        plan.check(o.k, "k", plan.k_shape, plan.a.q_type)
        plan.check(o.v, "v", plan.v_shape, plan.a.v_type)
    same_type(o.k, "k", o.q, "q")
    if (cnp.PyArray_TYPE(o.v) == cnp.NPY_DOUBLE) != (cnp.PyArray_TYPE(o.q) == cnp.NPY_DOUBLE):
        raise TypeError(f"v: expected dtype {o.q.dtype if o.q.dtype == np.float64 else 'float32, float16 or bfloat16'}, as q is {o.q.dtype}, "
                        f"got {o.v.dtype}")
    if d.has_past:
        o.past_key, o.past_value = float_array(past_key, "past_key"), float_array(past_value, "past_value")
        same_type(o.past_key, "past_key", o.k, "k")
        same_type(o.past_value, "past_value", o.v, "v")
        past = cnp.PyArray_DIMS(o.past_key)[2] if cnp.PyArray_NDIM(o.past_key) == 4 else 0
    if d.has_cache:
        if not isinstance(cache, KVCache):
            raise TypeError(f"cache: expected a KVCache, got {type(cache).__name__}")
        o.cache = cache
        past = cache.length
    o.y_shape = read_shapes(d, (<object>o.q).shape, (<object>o.k).shape, (<object>o.v).shape, a, past)
    if d.has_past:
        read_past((<object>o.past_key).shape, (<object>o.past_value).shape, a)
    if plan is not None and a.total != plan.a.total:
        raise ValueError(f"{'cache' if d.has_cache else 'past_key'}: expected length {plan.a.total - a.total + past}, the "
                         f"plan's, got {past}")
    a.q_type, a.v_type = plain_type(o.q), plain_type(o.v)
    if d.has_cache:
        if (cache.batch, cache.heads, cache.head_size, cache.v_head_size) != (a.batch, a.kv_heads, a.d, a.dv):
            raise ValueError(f"cache: expected batch {a.batch}, {a.kv_heads} heads of sizes {a.d} and {a.dv}, as k and v, got {cache!r}")
        o.new_k, o.new_v = cache._check(o.k, o.v)
    a.mask_type = -1
    if d.has_mask:
        o.mask = mask_array(mask)
        mask_type = plain_type(o.mask)
        if plan is not None:
            plan.check(o.mask, "attn_mask", plan.mask_shape, plan.a.mask_type)
        read_mask((<object>o.mask).shape, a)
        set_mask(o.mask, mask_type, a)
    if d.has_nonpad:
        o.nonpad = lengths(nonpad, a)
        a.nonpad = <const int64_t *>cnp.PyArray_BYTES(o.nonpad)
    return o


cdef void place(Operands o, AttentionDescriptor d, Attend *a) noexcept:
    """Where Q, K and V lie."""
    a.q = tensor(o.q, d.q_heads)
    a.piece[1].k, a.piece[1].v = tensor(o.k, d.k_heads), tensor(o.v, d.k_heads)
    if o.past_key is not None:
        a.piece[0].k, a.piece[0].v = tensor(o.past_key, 0), tensor(o.past_value, 0)


cdef object compute(AttentionDescriptor d, object q, object k, object v, object mask, object past_key, object past_value, object nonpad,
                    object cache, object out, int path, AttentionPlan plan):
    cdef Attend a
    cdef Operands o = gather(d, q, k, v, mask, past_key, past_value, nonpad, cache, plan, &a)
    cdef cnp.ndarray y, qk = None
    cdef int shown = a.q_type
    cdef dict found = {}
    set_numbers(d, &a)
    y = result(o.y_shape, shown, out, (o.q, o.k, o.v, o.mask, o.past_key, o.past_value))
    if "present_key" in d.outputs and o.cache is None:
        found["present_key"] = whole_of(o.past_key, o.k, (a.batch, a.kv_heads, a.piece[1].count, a.d))
    if "present_value" in d.outputs and o.cache is None:
        found["present_value"] = whole_of(o.past_value, o.v, (a.batch, a.kv_heads, a.piece[1].count, a.dv))
    if a.mode >= 0:
        qk = empty((a.batch, a.heads, a.lq, a.total), shown)
        found["qk_matmul_output"] = qk
    cdef ptrdiff_t held = 0
    if o.cache is not None:
        held = o.cache.length
        for x in (o.cache._store.k, o.cache._store.v):  # views of tokens that were cut off: their memory is written now
            if np.may_share_memory(o.q, x):
                o.q = o.q.copy()
            if o.mask is not None and np.may_share_memory(o.mask, x):
                o.mask = o.mask.copy()
                set_mask(o.mask, a.mask_type, &a)
        o.cache._write(o.new_k, o.new_v)
        o.k, o.v = o.cache.k, o.cache.v
        a.piece[0].count, a.piece[1].count = 0, a.total
        if "present_key" in d.outputs:
            found["present_key"] = o.k
        if "present_value" in d.outputs:
            found["present_value"] = o.v
    cdef cnp.ndarray into = y, into_qk = qk
    try:
        if d.softmax_precision == np.float64 and a.q_type != GK_F64:
            # All of it in float64: more than is asked for, and the products need no rows of their own.
            o.q, o.k, o.v = o.q.astype(np.float64), o.k.astype(np.float64), o.v.astype(np.float64)
            if o.past_key is not None:
                o.past_key, o.past_value = o.past_key.astype(np.float64), o.past_value.astype(np.float64)
            a.q_type = a.v_type = GK_F64
            into = empty(o.y_shape, GK_F64)
            if qk is not None:
                into_qk = empty((<object>qk).shape, GK_F64)
        place(o, d, &a)
        decide(&a, path)
        a.y = tensor(into, a.heads if a.heads else 1)
        if qk is not None:
            a.qk = tensor(into_qk, 1)
        if cnp.PyArray_SIZE(into) or (qk is not None and cnp.PyArray_SIZE(qk)):
            run(&a)
    except MemoryError:
        if o.cache is not None:  # as if it had not been called
            o.cache.truncate(held)
        raise
    if into is not y:
        copy_rounded(y, into)
        if qk is not None:
            copy_rounded(qk, into_qk)
    if out is not None:
        out = out[0] if isinstance(out, tuple) else out
        if y is not out:
            cnp.PyArray_CopyInto(<cnp.ndarray>out, y)
            y = out
    found["y"] = y
    return bundle(d.outputs, found)


def attention(q, k, v, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, scale=None, is_causal=False,
              softcap=0.0, q_num_heads=None, kv_num_heads=None, qk_matmul_output_mode=0, softmax_precision=None,
              left_window_size=-1, right_window_size=-1, outputs=("y",), out=None, cache=None):
    """Scaled dot-product attention: softmax(scale q k' + mask) v, for each batch and head (ONNX Attention 25).

    Parameters
    ----------
    q : array_like, (batch, heads, Lq, D) or (batch, Lq, heads * D)
        Queries: float32, float64, float16 or bfloat16, read where they lie, whatever the strides.
    k, v : array_like, (batch, kv_heads, Lkv, D) and (batch, kv_heads, Lkv, Dv), or of rank 3 as q
        Keys, of q's dtype, and values, of q's too, or another of float32, float16 and bfloat16.  Query head h reads head
        h // (heads / kv_heads); heads must be a multiple of kv_heads.
    attn_mask : array_like, optional
        Broadcast to (batch, heads, Lq, T), T = past length + Lkv, from the right: rank 3 is heads, not batches.  bool: True takes
        part.  Numbers of any float or integer type: added to the scores (so pass 0 and 1 as bool).  The last axis does not
        broadcast: shorter than T, or 1, it leaves out the keys behind it.
    past_key, past_value : array_like, (batch, kv_heads, P, D) and (batch, kv_heads, P, Dv), optional
        Keys and values before k and v.
    nonpad_kv_seqlen : array_like of int64, (batch,), optional
        How many keys of each batch are valid; what lies behind is not read, but for K's part of score outputs 0 to 2.  Instead of a
        past: k and v are a cache that holds the newest tokens last.  (For padded prompts use attn_mask.)
    scale : float, optional
        1 / sqrt(D) by default; 0 makes all scores 0.
    is_causal : bool
        Query i sees keys up to i + offset: P with a past or cache, nonpad - Lq with nonpad_kv_seqlen, else 0 (the upper left corner).
    softcap : float
        If not 0, scores become softcap * tanh(score / softcap) before the mask.
    q_num_heads, kv_num_heads : int, optional
        Required for rank 3.
    qk_matmul_output_mode : int
        What qk_matmul_output holds: 0 scaled scores, 1 after softcap, 2 after the mask, 3 the weights.
    softmax_precision : dtype, optional
        At least this precision; never less than float32 or that of q.
    left_window_size, right_window_size : int
        Query i sees keys from i + offset - left to i + offset + right; -1 is open.
    outputs : tuple of str
        Out of "y", "present_key", "present_value", "qk_matmul_output".
    out : ndarray, optional
        For y.
    cache : KVCache, optional
        In place of a past: k and v are appended to it, and queries see all that it holds then.

    Returns
    -------
    ndarray or named tuple
        y, of q's dtype and rank, if outputs is ("y",), else a named tuple of the outputs in the order asked for.  A row that no key
        takes part in is zero.  Present keys and values are past and new ones, (batch, kv_heads, T, D or Dv); with a cache,
        read-only views of it.  qk_matmul_output is (batch, heads, Lq, T).

    Raises
    ------
    ValueError, TypeError
        Naming the argument, before anything is computed or appended: shapes that don't fit, dtypes that differ, inputs or
        outputs that exclude each other, numbers out of range.

    Notes
    -----
    Values that a mask, causality or a window hides must still be numbers: a weight of 0 times NaN is NaN.

    See Also
    --------
    AttentionPlan : the decisions, made once.

    Examples
    --------
    >>> import numpy as np
    >>> q = np.ones((1, 2, 3, 4), np.float32)
    >>> attention(q, q, q, is_causal=True).shape
    (1, 2, 3, 4)
    """
    inputs = ("q", "k", "v")
    if attn_mask is not None:
        inputs += ("attn_mask",)
    if past_key is not None:
        inputs += ("past_key",)
    if past_value is not None:
        inputs += ("past_value",)
    if nonpad_kv_seqlen is not None:
        inputs += ("nonpad_kv_seqlen",)
    if cache is not None:
        inputs += ("cache",)
    cdef AttentionDescriptor d = AttentionDescriptor(
        inputs, outputs, scale=scale, is_causal=is_causal, softcap=softcap, q_num_heads=q_num_heads, kv_num_heads=kv_num_heads,
        qk_matmul_output_mode=qk_matmul_output_mode, softmax_precision=softmax_precision, left_window_size=left_window_size,
        right_window_size=right_window_size)
    return compute(d, q, k, v, attn_mask, past_key, past_value, nonpad_kv_seqlen, cache, out, PATH_AUTO, None)


# ---- plans ------------------------------------------------------------------------------------------------------

cdef Tensor contiguous(tuple shape, ptrdiff_t item, ptrdiff_t heads) noexcept:
    """Strides of an operand that is not there yet."""
    cdef Tensor t
    t.at = NULL
    if len(shape) == 4:
        t.d, t.l = item, shape[3] * item
        t.h = t.l * shape[2]
        t.b = t.h * shape[1]
    else:
        t.d, t.l = item, shape[2] * item
        t.h, t.b = shape[2] // heads * item, t.l * shape[1]
    return t


cdef class AttentionPlan:
    """AttentionPlan(descriptor, q_shape, k_shape, v_shape, dtype, *, mask_shape=None, mask_dtype=bool, past_length=0, v_dtype=None, path="auto")

    `gemmkit.attention` of fixed shapes: what was decided, readable, and callable any number of times, from several threads too.
    Lengths are fixed, so a sequence that grows calls `gemmkit.attention`.

    Parameters
    ----------
    descriptor : AttentionDescriptor
        Attributes and wiring.
    q_shape, k_shape, v_shape : tuple of int
        As for `gemmkit.attention`, of rank 4 or 3; k and v without the past.
    dtype : dtype
        Of q, k and the result.
    mask_shape, mask_dtype : tuple of int and dtype
        Required, and bool by default, if attn_mask is wired.
    past_length : int
        P, if past_key and past_value or a cache are wired.
    v_dtype : dtype, optional
        Of v; dtype by default.
    path : str
        "streaming", "materialized" or "decode" (up to 16 queries a key head); "auto" chooses.

    Raises
    ------
    ValueError, TypeError
        As `gemmkit.attention`, for what is known when the plan is made; a path that can't run.
    """
    cdef Attend a
    cdef readonly AttentionDescriptor descriptor
    cdef readonly tuple q_shape, k_shape, v_shape, y_shape, mask_shape
    cdef int forced

    def __cinit__(self, descriptor, q_shape, k_shape, v_shape, dtype, *, mask_shape=None, mask_dtype=np.bool_,
                  past_length=0, v_dtype=None, path="auto"):
        cdef Attend *a = &self.a
        cdef ptrdiff_t past
        if not isinstance(descriptor, AttentionDescriptor):
            raise TypeError(f"descriptor: expected an AttentionDescriptor, got {type(descriptor).__name__}")
        self.descriptor = descriptor
        self.wire(q_shape, k_shape, v_shape, dtype, mask_shape, mask_dtype, past_length, v_dtype, path)

    cdef int wire(self, q_shape, k_shape, v_shape, dtype, mask_shape, mask_dtype, past_length, v_dtype, path) except -1:
        cdef AttentionDescriptor descriptor = self.descriptor
        cdef Attend *a = &self.a
        cdef ptrdiff_t past
        self.q_shape, self.k_shape, self.v_shape = shape_of(q_shape, "q_shape"), shape_of(k_shape, "k_shape"), shape_of(v_shape, "v_shape")
        if not isinstance(path, str):
            raise TypeError(f"path: expected a name, got {type(path).__name__}")
        if path not in PATHS:
            raise ValueError(f"path: expected one of {', '.join(PATHS)}, got {path!r}")
        memset(a, 0, sizeof(Attend))
        a.q_type = type_of(dtype, "dtype")
        a.v_type = a.q_type if v_dtype is None else type_of(v_dtype, "v_dtype")
        for x, name in ((a.q_type, "dtype"), (a.v_type, "v_dtype")):
            if not is_float(x) or (x == GK_F64) != (a.q_type == GK_F64):
                raise TypeError(f"{name}: expected float32, float64, float16 or bfloat16, and float64 for both or neither, got {dtype_of(x)}")
        past, = shape_of((past_length,), "past_length")
        if past and not descriptor.has_past and not descriptor.has_cache:
            raise ValueError(f"past_length: {past}, but the descriptor has neither a past nor a cache")
        self.y_shape = read_shapes(descriptor, self.q_shape, self.k_shape, self.v_shape, a, past)
        a.mask_type = -1
        if (mask_shape is not None) != descriptor.has_mask:
            raise ValueError(f"mask_shape: expected {'a shape' if descriptor.has_mask else 'None'}, as the descriptor says, got {mask_shape}")
        if descriptor.has_mask:
            self.mask_shape = shape_of(mask_shape, "mask_shape")
            a.mask_type = type_of(mask_dtype, "mask_dtype")
            if GK_E4M3FN <= a.mask_type <= GK_E5M2FNUZ:
                raise TypeError(f"mask_dtype: expected bool, an integer type, float32, float64, float16 or bfloat16, got {mask_dtype}")
            read_mask(self.mask_shape, a)
        set_numbers(descriptor, a)
        self.forced = PATHS[path]
        wide = descriptor.softmax_precision == np.float64 and a.q_type != GK_F64
        q_type, v_type = a.q_type, a.v_type
        if wide:
            a.q_type = a.v_type = GK_F64
        a.piece[1].k = contiguous(self.k_shape, gk_item[a.q_type], descriptor.k_heads)
        a.piece[1].v = contiguous(self.v_shape, gk_item[a.v_type], descriptor.k_heads)
        if descriptor.has_past:
            a.piece[0].k = contiguous((a.batch, a.kv_heads, past, a.d), gk_item[a.q_type], 0)
            a.piece[0].v = contiguous((a.batch, a.kv_heads, past, a.dv), gk_item[a.v_type], 0)
        if descriptor.has_cache:
            a.piece[0].count, a.piece[1].count = 0, a.total
        decide(a, self.forced)
        a.q_type, a.v_type = q_type, v_type
        return 0

    def __call__(self, q, k, v, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, out=None, cache=None):
        """Return the outputs of the descriptor; arguments as for `gemmkit.attention`, of the plan's own shapes and types."""
        cdef AttentionDescriptor d = self.descriptor
        for x, wired, name in ((attn_mask, d.has_mask, "attn_mask"), (past_key, d.has_past, "past_key"), (past_value, d.has_past, "past_value"),
                               (nonpad_kv_seqlen, d.has_nonpad, "nonpad_kv_seqlen"), (cache, d.has_cache, "cache")):
            if (x is not None) != wired:
                raise ValueError(f"{name}: expected {'an array' if wired else 'None'}, as the descriptor says, got {'None' if x is None else 'one'}")
        return compute(d, q, k, v, attn_mask, past_key, past_value, nonpad_kv_seqlen, cache, out, self.forced, self)

    cdef int check(self, cnp.ndarray x, str name, tuple shape, int type) except -1:
        if plain_type(x) != type:
            raise TypeError(f"{name}: expected dtype {dtype_of(type)}, the plan's, got {x.dtype}")
        if (<object>x).shape != shape:
            raise ValueError(f"{name}: expected shape {shape}, the plan's, got {(<object>x).shape}")
        return 0

    @property
    def dtype(self):
        """The number type of q, k and the result."""
        return dtype_of(self.a.q_type)

    @property
    def v_dtype(self):
        """The number type of v."""
        return dtype_of(self.a.v_type)

    @property
    def layout(self):
        """"BHLD" for operands of rank 4, "BLHD" for rank 3."""
        return "BHLD" if len(self.q_shape) == 4 else "BLHD"

    @property
    def group_size(self):
        """Query heads that share a key head."""
        return self.a.group

    @property
    def head_map(self):
        """The key head of each query head."""
        return tuple([h // self.a.group for h in range(self.a.heads)])

    @property
    def total_length(self):
        """T: past and new keys."""
        return self.a.total

    @property
    def mask_broadcast(self):
        """For batch, heads, queries and keys whether the mask repeats along them; None without a mask."""
        if self.mask_shape is None:
            return None
        whole = (1,) * (4 - len(self.mask_shape)) + self.mask_shape
        return tuple([x == 1 and n != 1 for x, n in zip(whole, (self.a.batch, self.a.heads, self.a.lq))]) + (False,)

    @property
    def path(self):
        """streaming, materialized or decode."""
        return PATH_NAMES[self.a.path]

    @property
    def br(self):
        """Queries that are multiplied at once: lanes of a panel, or rows of a key head in the decode path."""
        return self.a.r

    @property
    def bc(self):
        """Keys of a block."""
        return self.a.bc

    @property
    def panels(self):
        """Panels that share a pass over the keys."""
        return self.a.panels

    @property
    def splits(self):
        """Chunks of the keys whose results are merged."""
        return self.a.splits

    @property
    def num_threads(self):
        """How many threads a call made now would use."""
        cdef ptrdiff_t tasks = self.a.batch * self.a.kv_heads * self.a.groups * self.a.splits
        return max(1, min(threads_for(work_of(&self.a)), tasks))

    @property
    def workspace_bytes(self):
        """Memory that a call made now borrows beside its operands and results."""
        cdef int n = self.num_threads
        return decode_bytes(&self.a, n) if self.a.path == PATH_DECODE else panels_bytes(&self.a, n)

    @property
    def isa(self):
        """The instruction set of the plan's first product."""
        return _registry.isa_names(self.a.qk_row.isa)[-1]

    @property
    def kernels(self):
        """Names of the rows for q k', softmax and the product with v."""
        return self.a.qk_row.name.decode(), self.a.soft.name.decode(), self.a.pv_row.name.decode()

    def __repr__(self):
        heads = f"{self.a.heads} heads" if self.a.group == 1 else f"{self.a.heads} heads over {self.a.kv_heads}"
        mask = "" if self.mask_shape is None else f", mask {self.mask_shape} {dtype_of(self.a.mask_type)}"
        return (f"<AttentionPlan {self.dtype} {self.layout} batch {self.a.batch}, {heads}, Lq {self.a.lq}, T {self.a.total}, D {self.a.d}, "
                f"Dv {self.a.dv}{mask}: {self.path}, {self.br} queries x {self.bc} keys at once, {self.splits} split(s), {self.isa}, "
                f"{self.num_threads} thread(s), workspace {self.workspace_bytes} bytes>")
