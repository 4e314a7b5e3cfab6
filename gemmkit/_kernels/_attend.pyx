"""From shapes to a decided call of attention: what fits, which keys are seen, which path."""
cimport numpy as cnp
from libc.math cimport frexp, ldexp, sqrt
from libc.stdint cimport int64_t

import numpy as np

from gemmkit._kernels._decode cimport MOST_ROWS, prepare_decode, run_decode, suits_decode
from gemmkit._kernels._descriptor cimport AttentionDescriptor
from gemmkit._kernels._flash cimport prepare_panels, run_panels
from gemmkit._kernels._heads cimport PATH_AUTO, PATH_DECODE, PATH_MATERIALIZED, PATH_STREAMING, Attend, Tensor
from gemmkit._kernels._parallel cimport threads_for
from gemmkit._kernels._registry cimport GK_BF16, GK_F16, GK_F32, GK_F64, current_cpu, gk_item, select_epilogue, select_pack

cnp.import_array()

PATHS = {"auto": PATH_AUTO, "streaming": PATH_STREAMING, "materialized": PATH_MATERIALIZED, "decode": PATH_DECODE}
PATH_NAMES = {code: name for name, code in PATHS.items()}

# No sum of bytes overflows below these; broadcast arrays may claim any size.
MOST_ELEMENTS = 1 << 48
MOST_SIZE = 1 << 31

# Below this many multiply-adds (about a microsecond) the call keeps the GIL, which costs more to hand over.
cdef double GIL_WORK = 16 * 1024.0


# ---- shapes -----------------------------------------------------------------------------------------------------

cdef Tensor tensor(cnp.ndarray x, ptrdiff_t heads) noexcept:
    """(batch, heads, length, size), or (batch, length, heads * size), which differs by strides alone."""
    cdef Tensor t
    cdef const cnp.npy_intp *s = cnp.PyArray_STRIDES(x)
    cdef ptrdiff_t size
    t.at = cnp.PyArray_BYTES(x)
    t.b = s[0]
    if cnp.PyArray_NDIM(x) == 4:
        t.h, t.l, t.d = s[1], s[2], s[3]
    else:
        size = cnp.PyArray_DIMS(x)[2] // heads
        t.h, t.l, t.d = size * s[2], s[1], s[2]
    return t


cdef tuple split_heads(tuple shape, ptrdiff_t heads, str name, str count):
    """(batch, heads, length, size) of either rank."""
    if len(shape) == 4:
        if heads and shape[1] != heads:
            raise ValueError(f"{name}: expected {heads} heads, as {count} says, got shape {shape}")
        return shape
    if shape[2] % heads:
        raise ValueError(f"{name}: expected a last axis that {count}, {heads}, divides, got shape {shape}")
    return shape[0], heads, shape[1], shape[2] // heads


cdef tuple read_shapes(AttentionDescriptor d, tuple q, tuple k, tuple v, Attend *a, ptrdiff_t past):
    """Sizes of a call from three shapes of rank 3 or 4; `past` is how many keys come before k's.  Returns Y's shape."""
    if len(q) != 3 and len(q) != 4:
        raise ValueError(f"q: expected rank 4, (batch, heads, length, size), or rank 3, (batch, length, heads * size), got shape {q}")
    for x, name in ((k, "k"), (v, "v")):
        if len(x) != len(q):
            raise ValueError(f"{name}: expected rank {len(q)}, as q, got shape {x}")
    if len(q) == 3:
        for count, name in ((d.q_heads, "q_num_heads"), (d.k_heads, "kv_num_heads")):
            if not count:
                raise ValueError(f"{name}: expected the number of heads for operands of rank 3, got None")
    q4, k4 = split_heads(q, d.q_heads, "q", "q_num_heads"), split_heads(k, d.k_heads, "k", "kv_num_heads")
    v4 = split_heads(v, d.k_heads, "v", "kv_num_heads")
    if k4[0] != q4[0] or k4[3] != q4[3]:
        raise ValueError(f"k: expected batch {q4[0]} and head size {q4[3]}, as q, got shape {k}")
    if v4[0] != q4[0] or v4[1] != k4[1] or v4[2] != k4[2]:
        raise ValueError(f"v: expected batch {q4[0]}, {k4[1]} heads and length {k4[2]}, as k of shape {k}, got shape {v}")
    if q4[1] and (k4[1] == 0 or q4[1] % k4[1]):
        raise ValueError(f"q: expected heads to be a multiple of k's {k4[1]}, got {q4[1]}; shapes (batch, heads, length, size) are {q4} and {k4}")
    a.batch, a.heads, a.lq, a.d = q4
    a.kv_heads, a.dv = k4[1], v4[3]
    a.group = a.heads // a.kv_heads if a.kv_heads else 1
    for size, name in ((q4[0] * q4[1] * q4[2] * max(q4[3], 1), "q"), (k4[0] * k4[1] * (past + k4[2]) * max(k4[3], 1), "k"),
                       (v4[0] * v4[1] * (past + v4[2]) * max(v4[3], 1), "v")):
        if size >= MOST_ELEMENTS or q4[3] > MOST_SIZE or v4[3] > MOST_SIZE:
            raise ValueError(f"{name}: no memory holds shapes {q}, {k} and {v}")
    a.piece[0].count, a.piece[1].count = past, k4[2]
    a.total = past + k4[2]
    a.past = past
    if len(q) == 4:
        return a.batch, a.heads, a.lq, a.dv
    return a.batch, a.lq, a.heads * a.dv


cdef int read_past(tuple key, tuple value, Attend *a) except -1:
    for x, name, size in ((key, "past_key", a.d), (value, "past_value", a.dv)):
        if len(x) != 4 or x[0] != a.batch or x[1] != a.kv_heads or x[3] != size:
            raise ValueError(f"{name}: expected shape ({a.batch}, {a.kv_heads}, any, {size}), got {x}")
    if key[2] != value[2]:
        raise ValueError(f"past_value: expected length {key[2]}, as past_key, got shape {value}")
    return 0


cdef int read_mask(tuple shape, Attend *a) except -1:
    cdef tuple to = (a.batch, a.heads, a.lq, a.total)
    right = 1 <= len(shape) <= 4
    if right:
        whole = (1,) * (4 - len(shape)) + shape
        right = all([x == 1 or x == n for x, n in zip(whole[:3], to)]) and whole[3] <= to[3]
    if not right and shape == (1,) * len(shape) and len(shape) and len(shape) <= 4:  # no keys at all
        right = True
    if not right:
        raise ValueError(f"attn_mask: expected a shape that broadcasts to {to}, its last axis up to {to[3]}, got {shape}; "
                         "axes are (batch, heads, queries, keys), so that a mask for each batch is mask[:, None, None, :]")
    a.mask_keys = shape[len(shape) - 1]
    if a.mask_keys > a.total:
        a.mask_keys = a.total
    return 0


cdef void set_mask(cnp.ndarray mask, int type, Attend *a) noexcept:
    cdef int n = cnp.PyArray_NDIM(mask), x
    cdef ptrdiff_t steps[4]
    for x in range(4):
        steps[x] = 0
        if x >= 4 - n and cnp.PyArray_DIMS(mask)[x - 4 + n] != 1:
            steps[x] = cnp.PyArray_STRIDES(mask)[x - 4 + n]
    a.mask_type = type
    a.mask.at, a.mask.b, a.mask.h, a.mask.l, a.mask.d = cnp.PyArray_BYTES(mask), steps[0], steps[1], steps[2], steps[3]


cdef cnp.ndarray lengths(object x, Attend *a):
    cdef cnp.ndarray n
    try:
        n = np.asarray(x)
    except (TypeError, ValueError) as error:  # ragged lists
        raise ValueError(f"nonpad_kv_seqlen: {error}") from None
    if n.dtype.newbyteorder("=") != np.int64:
        raise TypeError(f"nonpad_kv_seqlen: expected dtype int64, as ONNX has it, got {n.dtype}")
    if (<object>n).shape != (a.batch,):
        raise ValueError(f"nonpad_kv_seqlen: expected shape ({a.batch},), got {(<object>n).shape}")
    n = np.array(n, np.int64)  # read while other threads may write the caller's
    if n.size and not (0 <= n.min() and n.max() <= a.total):
        raise ValueError(f"nonpad_kv_seqlen: expected lengths from 0 to {a.total}, got {n.tolist()}")
    return n


# ---- decisions --------------------------------------------------------------------------------------------------

cdef int set_numbers(AttentionDescriptor d, Attend *a) except -1:
    cdef double scale, most = 1.7e308 if a.q_type == GK_F64 or d.softmax_precision == np.float64 else 3.4e38
    cdef int e, limit = 900 if most > 1e300 else 100
    if d.softcap and not 4 / most < d.softcap < most:
        raise ValueError(f"softcap: expected a number that the softmax's type can hold, got {d.softcap}")
    if d.scale is None:
        scale = 1 / sqrt(<double>a.d) if a.d else 1.0
    else:
        scale = d.scale
    a.power, a.factor = 0.0, 1.0  # a scale of 0: then Q is 0, and a factor never meets a score of -inf
    if scale:
        a.factor = 2 * frexp(scale, &e)
        # 2^e is exact as a float32 and so is what it makes of most numbers; of the rest of an extreme one the factor takes care.
        e = max(-limit, min(e - 1, limit))
        a.power = ldexp(1.0, e)
        a.factor = scale / a.power
        if a.factor > most:
            raise ValueError(f"scale: expected at most about {a.power * most:.2g} for scores of this type, got {scale}")
        if a.factor < 4 / most:
            a.power, a.factor = 0.0, 1.0
    a.softcap = d.softcap
    a.causal, a.left, a.right = d.is_causal, d.left_window_size, d.right_window_size
    a.mode = d.qk_matmul_output_mode if "qk_matmul_output" in d.outputs else -1
    return 0


cdef int decide(Attend *a, int path) except -1:
    """Path, blocks, rows of the table."""
    a.acc = GK_F64 if a.q_type == GK_F64 else GK_F32
    a.item, a.q_item, a.v_item = gk_item[a.acc], gk_item[a.q_type], gk_item[a.v_type]
    if a.mode >= 0:
        if path != PATH_AUTO and path != PATH_MATERIALIZED:
            raise ValueError(f"path: qk_matmul_output is a result of the materialized path only, got {PATH_NAMES[path]!r}")
        path = PATH_MATERIALIZED
    elif path == PATH_AUTO:
        path = PATH_DECODE if suits_decode(a) else PATH_STREAMING
    if path == PATH_DECODE and a.lq * a.group > MOST_ROWS:
        raise ValueError(f"path: 'decode' takes up to {MOST_ROWS} queries a key head, here are {a.lq * a.group}")
    a.path = path
    a.finish_y = select_epilogue(a.acc, a.q_type)
    if a.mask_type == GK_F16 or a.mask_type == GK_BF16:
        a.widen_mask = select_pack(a.mask_type, GK_F32)
    a.cold = a.batch * a.kv_heads * a.total * (a.d * a.q_item + a.dv * a.v_item) > current_cpu().l2.size
    if path == PATH_DECODE:
        prepare_decode(a)
    else:
        prepare_panels(a)
    return 0


cdef double work_of(const Attend *a) noexcept nogil:
    cdef double work = <double>a.batch * a.heads * a.lq * a.total * (a.d + a.dv)
    return work / 2 if a.causal and a.lq > 1 else work


cdef int run(const Attend *a) except -1:
    cdef int status, num_threads
    cdef double work = work_of(a)
    if work < GIL_WORK:
        status = run_decode(a, 1) if a.path == PATH_DECODE else run_panels(a, 1)
    else:
        with nogil:
            num_threads = threads_for(work)
            status = run_decode(a, num_threads) if a.path == PATH_DECODE else run_panels(a, num_threads)
    if status:
        raise MemoryError("no memory for the workspace of attention")
    return 0
