"""From arrays to a job: shapes, strides, broadcasting, and where the result goes.

All operators come through here.  `bind` reads the operands' shapes as numpy.matmul does (with transpositions for Gemm),
`result_for` makes or checks the output, `bind_result` settles strides, the bias and the epilogue, and `finish` runs.
Everything is checked before anything is computed.  Operands are read where they lie, whatever their strides.
"""
cimport numpy as cnp
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

import numpy as np

from gemmkit._kernels._engine cimport Batch, adopt, prepare, run_batch, run_one
from gemmkit._kernels._loops cimport Job, Place
from gemmkit._kernels._numbers cimport magnitude
from gemmkit._kernels._parallel cimport threads_for
from gemmkit._kernels._registry cimport gk_item, is_quads
from gemmkit._kernels._types cimport Types, dtype_of, kernel_type, numpy_type, plain_type

cnp.import_array()

cdef enum: MOST = 64  # numpy's own limit of dimensions

# Below this many multiply-adds (about a microsecond) the call keeps the GIL, which costs more to hand over.
cdef double GIL_WORK = 32 * 1024.0


cdef double real(object x, str name) except? -1.0:
    """A scalar argument: a number or what converts to one, but no text."""
    if isinstance(x, float):
        return x
    if isinstance(x, (str, bytes, bytearray)) or not (hasattr(x, "__float__") or hasattr(x, "__index__")):
        raise TypeError(f"{name}: expected a real number, got {type(x).__name__}")
    try:
        return float(x)
    except OverflowError as error:
        raise OverflowError(f"{name}: {error}") from None
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a real number, got {type(x).__name__}") from None


cdef int64_t whole_number(object x, str name, bint *whole) except? -1:
    cdef double value
    cdef uint64_t low
    if not isinstance(x, float):
        try:
            x = x.__index__()
        except (AttributeError, TypeError):
            x = real(x, name)
    if isinstance(x, float):
        value = x
        whole[0] = value == value and value - value == 0.0 and value.is_integer()
        if not whole[0]:
            return 0
        x = int(value)
    whole[0] = True
    low = x & 0xffffffffffffffff
    return <int64_t>low


# ---- shapes -----------------------------------------------------------------------------------------------------

cdef str shapes(cnp.ndarray a, cnp.ndarray b, const Prepacked *prepacked):
    cdef int d
    b_shape = tuple([prepacked.shape[d] for d in range(prepacked.ndim)]) if prepacked != NULL else (<object>b).shape
    return f"a has shape {(<object>a).shape}, b has shape {b_shape}"


cdef int bind(Call *call, const Types *types, cnp.ndarray a, bint trans_a, cnp.ndarray b, const Prepacked *prepacked,
              bint trans_b) except -1:
    """Set sizes, strides and batch axes of the product from its operands' shapes.

    numpy.matmul's rules: a rank-1 a gets a leading axis of 1, a rank-1 b a trailing one, dropped from the result; axes
    before the last two broadcast.  `prepacked` stands for b when a plan owns it.
    """
    cdef Job *job = &call.job
    cdef int na = cnp.PyArray_NDIM(a), nb, d, da, db, batch_ndim
    cdef const cnp.npy_intp *sa = cnp.PyArray_DIMS(a)
    cdef const cnp.npy_intp *ta = cnp.PyArray_STRIDES(a)
    cdef const cnp.npy_intp *sb
    cdef const cnp.npy_intp *tb
    cdef cnp.npy_intp packed_steps[64]
    cdef ptrdiff_t x, y, k_of_b
    job.acc, job.a_type, job.b_type, job.c_type = types.acc, types.kernel_a, types.kernel_b, types.kernel_c
    call.result = types.c
    job.quads, job.nibble_panels = is_quads(job.a_type), False
    memset(&job.q, 0, sizeof(job.q))
    job.epilogue.whole_alpha, job.epilogue.whole_beta = 1, 1
    call.at.za = call.at.zb = NULL
    call.at.row_scale = call.at.col_scale = NULL
    call.at.col_single = NULL
    call.at.terms = NULL
    call.batch.quantized = False
    job.item, job.a_item, job.b_item, job.c_item = gk_item[job.acc], gk_item[job.a_type], gk_item[job.b_type], gk_item[job.c_type]
    job.b_prepacked = prepacked != NULL
    call.at.a = cnp.PyArray_BYTES(a)
    if prepacked != NULL:
        nb, sb = prepacked.ndim, <const cnp.npy_intp *>prepacked.shape
        call.at.b = prepacked.panels
        x = prepacked.each
        for d in range(nb - 3, -1, -1):
            packed_steps[d] = x
            x *= sb[d]
        tb = packed_steps
    else:
        nb, sb, tb = cnp.PyArray_NDIM(b), cnp.PyArray_DIMS(b), cnp.PyArray_STRIDES(b)
        call.at.b = cnp.PyArray_BYTES(b)
    if na == 0 or nb == 0:
        raise ValueError(f"{'a' if na == 0 else 'b'}: expected at least 1 dimension; {shapes(a, b, prepacked)}")

    call.drop_m, call.drop_n = na == 1, nb == 1
    if na == 1:
        job.m, job.k, job.rs_a, job.cs_a = 1, sa[0], sa[0] * ta[0], ta[0]
    elif trans_a:
        job.m, job.k, job.rs_a, job.cs_a = sa[na - 1], sa[na - 2], ta[na - 1], ta[na - 2]
    else:
        job.m, job.k, job.rs_a, job.cs_a = sa[na - 2], sa[na - 1], ta[na - 2], ta[na - 1]
    if nb == 1:
        k_of_b, job.n = sb[0], 1
    elif trans_b:
        k_of_b, job.n = sb[nb - 1], sb[nb - 2]
    else:
        k_of_b, job.n = sb[nb - 2], sb[nb - 1]
    if prepacked != NULL:
        job.rs_b, job.cs_b = 0, job.b_item
    elif nb == 1:
        job.rs_b, job.cs_b = tb[0], job.b_item
    elif trans_b:
        job.rs_b, job.cs_b = tb[nb - 1], tb[nb - 2]
    else:
        job.rs_b, job.cs_b = tb[nb - 2], tb[nb - 1]
    if job.k != k_of_b:
        raise ValueError(f"a and b: the inner dimensions disagree, {job.k} is not {k_of_b}; {shapes(a, b, prepacked)}"
                         + (f", trans_a={bool(trans_a)}, trans_b={bool(trans_b)}" if trans_a or trans_b else ""))

    batch_ndim = (na if na > nb else nb) - 2
    if batch_ndim < 0:
        batch_ndim = 0
    call.batch_ndim = batch_ndim
    for d in range(batch_ndim):
        da, db = na - 2 - batch_ndim + d, nb - 2 - batch_ndim + d
        x = sa[da] if da >= 0 else 1
        y = sb[db] if db >= 0 else 1
        if x != y and x != 1 and y != 1:
            raise ValueError(f"a and b: batch axes of {x} and {y} don't broadcast; {shapes(a, b, prepacked)}")
        call.shape[d] = y if x == 1 else x
        call.step_a[d] = ta[da] if x != 1 else 0
        call.step_b[d] = tb[db] if y != 1 else 0
    call.ndim = batch_ndim
    if na > 1:
        call.shape[call.ndim] = job.m
        call.ndim += 1
    if nb > 1:
        call.shape[call.ndim] = job.n
        call.ndim += 1
    return 0


# ---- the result -------------------------------------------------------------------------------------------------

cdef void extent(cnp.ndarray x, char **low, char **high) noexcept:
    """First byte of an array and the one after its last."""
    cdef int d
    cdef ptrdiff_t reach
    low[0] = cnp.PyArray_BYTES(x)
    high[0] = low[0] + cnp.PyArray_ITEMSIZE(x)
    for d in range(cnp.PyArray_NDIM(x)):
        if cnp.PyArray_DIMS(x)[d] == 0:
            high[0] = low[0]
            return
        reach = (cnp.PyArray_DIMS(x)[d] - 1) * cnp.PyArray_STRIDES(x)[d]
        if reach > 0:
            high[0] += reach
        else:
            low[0] += reach


cdef bint may_overlap(cnp.ndarray x, cnp.ndarray y) noexcept:
    cdef char *x0
    cdef char *x1
    cdef char *y0
    cdef char *y1
    extent(x, &x0, &x1)
    extent(y, &y0, &y1)
    return x0 < y1 and y0 < x1


cdef bint elements_apart(cnp.ndarray x):
    """Whether no two elements of x share a byte, by a test that may say no to an odd but valid layout."""
    if cnp.PyArray_IS_C_CONTIGUOUS(x) or cnp.PyArray_IS_F_CONTIGUOUS(x):
        return True
    cdef ptrdiff_t reach = cnp.PyArray_ITEMSIZE(x)
    for step, size in sorted((abs(s), n) for s, n in zip((<object>x).strides, (<object>x).shape) if n > 1):
        if step < reach:
            return False
        reach += (size - 1) * step
    return True


cdef cnp.ndarray result_for(Call *call, object out, tuple inputs, str name="out"):
    """An array to compute into: `out` itself where that is possible, else a fresh one."""
    cdef cnp.ndarray o
    cdef int d
    cdef bint right
    if out is None:
        return cnp.PyArray_EMPTY(call.ndim, <cnp.npy_intp *>call.shape, numpy_type(call.result), 0)
    if isinstance(out, tuple) and len(out) == 1:  # as numpy's ufuncs take it
        out = out[0]
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{name}: expected an ndarray, got {type_name(out)}")
    o = out
    right = cnp.PyArray_NDIM(o) == call.ndim
    if right:
        for d in range(call.ndim):
            right = right and cnp.PyArray_DIMS(o)[d] == call.shape[d]
    if not right:
        raise ValueError(f"{name}: expected shape {tuple([call.shape[d] for d in range(call.ndim)])}, got {out.shape}")
    if out.dtype.newbyteorder("=") != dtype_of(call.result):
        raise TypeError(f"{name}: expected dtype {dtype_of(call.result)}, got {out.dtype}")
    if not cnp.PyArray_ISWRITEABLE(o):
        raise ValueError(f"{name}: the array is read-only")
    for d in range(call.ndim):
        if cnp.PyArray_STRIDES(o)[d] == 0 and cnp.PyArray_DIMS(o)[d] > 1 and cnp.PyArray_SIZE(o) > 0:
            raise ValueError(f"{name}: axis {d} has stride 0, so its elements are one and the same")
    right = cnp.PyArray_ISALIGNED(o) and cnp.PyArray_ISNOTSWAPPED(o) and elements_apart(o)
    if right:
        for x in inputs:
            right = right and (x is None or not may_overlap(o, <cnp.ndarray>x))
    if right:
        return o
    return cnp.PyArray_EMPTY(call.ndim, <cnp.npy_intp *>call.shape, numpy_type(call.result), 0)


cdef str type_name(object x):
    return type(x).__name__


cdef void swap_operands(Call *call, ptrdiff_t *step_a, ptrdiff_t *step_b, ptrdiff_t *rs_c, ptrdiff_t *cs_c) noexcept nogil:
    """C' = B' A': for a C whose columns are contiguous."""
    cdef Job *job = &call.job
    job.m, job.n = job.n, job.m
    job.rs_a, job.cs_a, job.rs_b, job.cs_b = job.cs_b, job.rs_b, job.cs_a, job.rs_a
    job.a_type, job.a_item, job.b_type, job.b_item = job.b_type, job.b_item, job.a_type, job.a_item
    job.epilogue.rs_bias, job.epilogue.cs_bias = job.epilogue.cs_bias, job.epilogue.rs_bias
    call.at.a, call.at.b = call.at.b, call.at.a
    rs_c[0], cs_c[0] = cs_c[0], rs_c[0]
    cdef int d
    for d in range(call.batch_ndim):
        step_a[d], step_b[d] = step_b[d], step_a[d]


cdef int bind_result(Call *call, cnp.ndarray result, cnp.ndarray c, double alpha, double beta, const Job *planned,
                     int forced) except -1:
    """Settle C's strides, the bias and the batch; then decide, or take a plan's decision if the layout is its own.

    Returns 1, having decided nothing, when neither C's rows nor its columns are contiguous: the caller then computes
    into a contiguous array instead.
    """
    cdef Job *job = &call.job
    cdef Batch *batch = &call.batch
    cdef const cnp.npy_intp *s = cnp.PyArray_STRIDES(result)
    cdef ptrdiff_t item = job.c_item, rs_c, cs_c, x
    cdef ptrdiff_t step_c[64]
    cdef ptrdiff_t step_bias[64]
    cdef int d, at, nc
    if cnp.PyArray_SIZE(result) == 0:
        # Nothing to compute, and numpy gives the strides of an empty array as zeros.
        job.m = job.k = batch.count = 0
        return 0
    at = call.batch_ndim
    rs_c = job.n * item
    cs_c = item
    if not call.drop_m:
        rs_c = s[at]
        at += 1
    if not call.drop_n:
        cs_c = s[at]
    for d in range(call.batch_ndim):
        step_c[d] = s[d]
        step_bias[d] = 0
    call.at.c = cnp.PyArray_BYTES(result)

    job.epilogue.alpha, job.epilogue.beta = alpha, beta
    job.epilogue.has_bias = c is not None
    job.epilogue.rs_bias = job.epilogue.cs_bias = 0
    call.at.bias = NULL
    if c is not None:
        call.at.bias = cnp.PyArray_BYTES(c)
        job.epilogue.bias_type = kernel_type(plain_type(c))
        nc = cnp.PyArray_NDIM(c)
        if nc >= 1 and cnp.PyArray_DIMS(c)[nc - 1] != 1:
            job.epilogue.cs_bias = cnp.PyArray_STRIDES(c)[nc - 1]
        if nc >= 2 and cnp.PyArray_DIMS(c)[nc - 2] != 1:
            job.epilogue.rs_bias = cnp.PyArray_STRIDES(c)[nc - 2]
        for d in range(nc - 2):
            if cnp.PyArray_DIMS(c)[d] != 1:
                step_bias[call.batch_ndim - (nc - 2) + d] = cnp.PyArray_STRIDES(c)[d]

    if job.n > 1 and cs_c != item or (job.n == 1 and rs_c == item and not job.b_prepacked and not job.quads and not job.q.on
                                      and job.cs_a != job.a_item and job.rs_a == job.a_item and job.m > 1):
        # Columns of C are contiguous; or C is one column and A lies by columns, which pass as rows of A'.
        if (job.m > 1 and rs_c != item) or job.b_prepacked or job.quads or job.q.on:
            return 1
        swap_operands(call, call.step_a, call.step_b, &rs_c, &cs_c)
    job.rs_c = rs_c

    # Batch axes of 1 vanish, and neighbours merge where every operand steps evenly through both.
    batch.ndim, batch.count = 0, 1
    for d in range(call.batch_ndim):
        x = call.shape[d]
        batch.count *= x
        if x == 1:
            continue
        at = batch.ndim - 1
        if (at >= 0 and not batch.quantized and batch.step_a[at] == call.step_a[d] * x and batch.step_b[at] == call.step_b[d] * x
                and batch.step_c[at] == step_c[d] * x and batch.step_bias[at] == step_bias[d] * x):
            batch.shape[at] *= x
        else:
            at = batch.ndim
            batch.ndim += 1
            batch.shape[at] = x
        batch.step_a[at], batch.step_b[at] = call.step_a[d], call.step_b[d]
        batch.step_c[at], batch.step_bias[at] = step_c[d], step_bias[d]
        if batch.quantized:
            batch.step_za[at], batch.step_zb[at] = call.step_za[d], call.step_zb[d]
            batch.step_row_scale[at], batch.step_col_scale[at] = call.step_row_scale[d], call.step_col_scale[d]
    # One B for a stack of A's that lie evenly below each other: a single product of all their rows.
    if (batch.ndim == 1 and batch.step_b[0] == 0 and not job.epilogue.has_bias and not batch.quantized
            and job.q.inc_za == 0 and call.at.row_scale == NULL):
        if job.m == 1:
            job.rs_a, job.rs_c = batch.step_a[0], batch.step_c[0]
        if batch.step_a[0] == job.m * job.rs_a and batch.step_c[0] == job.m * job.rs_c:
            job.m *= batch.count
            batch.ndim, batch.count = 0, 1

    if planned != NULL:
        adopt(job, planned, forced)
    else:
        prepare(job, forced)
    return 0


cdef object finish(Call *call, object out, cnp.ndarray c, double alpha, double beta, const Job *planned, int forced,
                   tuple inputs):
    """Make or check the result, decide, compute."""
    cdef cnp.ndarray result = result_for(call, out, inputs)
    cdef int status, num_threads
    cdef double work
    if bind_result(call, result, c, alpha, beta, planned, forced):
        result = cnp.PyArray_EMPTY(call.ndim, <cnp.npy_intp *>call.shape, numpy_type(call.result), 0)
        bind_result(call, result, c, alpha, beta, planned, forced)
    work = <double>call.job.m * call.job.n * call.job.k * call.batch.count
    if work < GIL_WORK:
        if call.batch.count == 1:
            status = run_one(&call.job, &call.at, 1)
        else:
            status = run_batch(&call.job, &call.at, &call.batch)
    else:
        with nogil:
            if call.batch.count == 1:
                num_threads = threads_for(work)
                status = run_one(&call.job, &call.at, num_threads)
            else:
                status = run_batch(&call.job, &call.at, &call.batch)
    if status:
        raise MemoryError("no memory for the workspace of a product")
    if out is None:
        return result[()] if call.ndim == 0 else result
    if isinstance(out, tuple):
        out = out[0]
    if result is not out:
        cnp.PyArray_CopyInto(<cnp.ndarray>out, result)
    return out
