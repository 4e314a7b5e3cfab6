"""matmul_integer and qlinear_matmul: products of bytes with zero points and scales (docs/integers.md).

ONNX MatMulInteger 10, QLinearMatMul 10 and 21.  This module turns zero points and scales of every allowed shape into what a
`Call` carries: vectors of int32 and float64, one number a row of A or a column of B, with a step for each batch axis.
"""
cimport numpy as cnp

import ml_dtypes
import numpy as np

from gemmkit._kernels._calls cimport Call, bind, finish
from gemmkit._kernels._registry cimport (GK_E4M3FN, GK_E5M2FNUZ, GK_F32, GK_I4, GK_I8, GK_I32, GK_U4, GK_U8)
from gemmkit._kernels._schedule cimport AUTO
from gemmkit._kernels._types cimport Types, dtype_of, plain_type, type_of
from libc.stdint cimport int32_t

from gemmkit._packed import PackedInt4

cnp.import_array()

INT4, UINT4 = np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)
INT8, UINT8 = np.dtype(np.int8), np.dtype(np.uint8)
BYTES = {INT8: GK_I8, UINT8: GK_U8}
LIMITS = {INT8: (-128, 127), UINT8: (0, 255), INT4: (-8, 7), UINT4: (0, 15)}
cdef double TINY = 16 * 16 * 16  # multiply-adds of a product in a stack
cdef double MOST_WIDENED = 16e6  # elements of both operands: 64 MB as int32
cdef ptrdiff_t SHALLOW = 8

SCALE_TYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


# ---- operands ---------------------------------------------------------------------------------------------------

cdef class Operand:
    def __cinit__(self):
        self.added = 0


cdef bint is_float8(int type) noexcept:
    return GK_E4M3FN <= type <= GK_E5M2FNUZ


cdef Operand read_operand(object x, str name, bint floats):
    """x as an operand of bytes, or of float8 too if `floats`."""
    cdef Operand o = Operand()
    o.type = plain_type(x)
    if o.type == GK_I8 or o.type == GK_U8 or (floats and is_float8(o.type)):
        o.array, o.dtype = x, x.dtype
        return o
    if isinstance(x, PackedInt4):
        o.array = nibbles_like(x.buffer, x.shape)
        o.type, o.dtype, o.keep = GK_I4 if x.signed else GK_U4, x.dtype, x
        return o
    try:
        x = np.asarray(x)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    o.dtype = x.dtype
    if o.dtype in BYTES:
        o.array, o.type = x, BYTES[o.dtype]
    elif o.dtype == INT4 or o.dtype == UINT4:
        # Only the low half of such a byte counts.  Signed values go up by 8, to which zero points follow.
        x = x.view(np.uint8) & 15
        if o.dtype == INT4:
            x ^= 8
            o.added = 8
        o.array, o.type = x, GK_U8
    elif floats and is_float8(type_code(o.dtype)):
        o.array, o.type = x, type_code(o.dtype)
    else:
        raise TypeError(f"{name}: expected int8, uint8, int4, uint4{', a float8 type' if floats else ''} or PackedInt4, "
                        f"got dtype {o.dtype}")
    return o


cdef int type_code(object dtype) except -2:
    try:
        return type_of(dtype, "")
    except TypeError:
        return -1


cdef cnp.ndarray nibbles_like(object buffer, tuple shape):
    """An array of `shape` with strides in nibbles on a buffer of packed ones; never to be read through numpy."""
    steps, step = [], 1
    for s in reversed(shape):
        steps.append(step)
        step *= max(s, 1)
    return np.lib.stride_tricks.as_strided(buffer, shape, tuple(reversed(steps)))


cdef Operand like_operand(tuple shape, object dtype, str name):
    """What read_operand would give for a contiguous array of that dtype, without data."""
    cdef Operand o = Operand()
    dtype = np.dtype(dtype)
    if dtype in BYTES:
        o.type = BYTES[dtype]
    elif dtype == INT4 or dtype == UINT4:
        o.type, o.added = GK_U8, 8 if dtype == INT4 else 0
    elif is_float8(type_code(dtype)):
        o.type = type_code(dtype)
    else:
        raise TypeError(f"{name}: expected int8, uint8, int4 or uint4, got {dtype}")
    o.dtype = dtype
    o.array = nibbles_like(np.empty(1, np.uint8), shape)  # strides of bytes are the same
    return o


cdef void set_types(Types *types, Operand x, Operand y, int result) noexcept:
    types.acc, types.a, types.b, types.c = GK_F32 if is_float8(y.type) or y.type == GK_F32 else GK_I32, x.type, y.type, result
    types.kernel_a, types.kernel_b, types.kernel_c = x.type, y.type, result


cdef void settle_addresses(Call *call, Operand x, Operand y) noexcept:
    if x.type == GK_I4 or x.type == GK_U4:
        call.at.a = <const char *>(2 * <size_t>call.at.a)
    if y is not None and (y.type == GK_I4 or y.type == GK_U4):
        call.at.b = <const char *>(2 * <size_t>call.at.b)


# ---- zero points and scales -------------------------------------------------------------------------------------

cdef object spread(object x, int side, tuple shape, str name):
    """x as (axes of the operand's batch..., M or N or 1), by the table of docs/integers.md; None if it is one number."""
    if x.size == 1 and x.ndim <= 1:
        return None
    cdef int rank = len(shape)
    expected = f"for an operand of shape {shape}"
    if rank <= 1:
        raise ValueError(f"{name}: expected one element {expected}, got shape {x.shape}")
    n = shape[rank - 2] if side == 0 else shape[rank - 1]
    forms = f"one element, ({n},) or (..., {n}, 1)" if side == 0 else f"one element, ({n},) or (..., 1, {n})"
    if x.ndim == 1:
        if x.shape[0] != n:
            raise ValueError(f"{name}: expected {forms} {expected}, got shape {x.shape}")
        return x
    along, across = (x.shape[x.ndim - 2], x.shape[x.ndim - 1]) if side == 0 else (x.shape[x.ndim - 1], x.shape[x.ndim - 2])
    lead = x.shape[:x.ndim - 2]
    own = shape[:rank - 2]
    if (x.ndim > rank or across != 1 or along not in (1, n)
            or any(s not in (1, t) for s, t in zip(lead[::-1], own[::-1]))):
        raise ValueError(f"{name}: expected {forms} {expected}, got shape {x.shape}")
    x = x[..., 0] if side == 0 else x[..., 0, :]
    return None if x.size == 1 and rank == 2 else x


cdef int set_steps(Call *call, object x, int side, tuple shape, ptrdiff_t *steps) except -1:
    """Steps of x (axes of the operand's batch..., n or 1), contiguous, along the batch axes of the result."""
    cdef int d, at, rank = len(shape)
    cdef ptrdiff_t step = x.shape[x.ndim - 1], varies = 0
    for d in range(call.batch_ndim):
        steps[d] = 0
    for at in range(x.ndim - 2, -1, -1):
        d = call.batch_ndim - (x.ndim - 1) + at
        if x.shape[at] != 1:
            steps[d] = step
            varies = 1
        step *= x.shape[at]
    return varies


cdef object single(object x):
    """The only number of a scalar or an array of one element, numpy's or Python's; None for anything else."""
    if isinstance(x, np.generic):
        return x
    if isinstance(x, np.ndarray) and cnp.PyArray_SIZE(<cnp.ndarray>x) == 1 and cnp.PyArray_NDIM(<cnp.ndarray>x) <= 1:
        x = x[()] if cnp.PyArray_NDIM(<cnp.ndarray>x) == 0 else x[0]
        return x if isinstance(x, np.generic) else None  # an object array has anything
    return None


cdef object parameter(object x, str name):
    try:
        return np.asarray(x)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


cdef object zero_array(object zero, Operand x, str name):
    """A zero point as an array of the operand's dtype."""
    if isinstance(zero, int) and not isinstance(zero, bool) and zero == 0:
        return np.zeros((), x.dtype)
    if isinstance(zero, int) and not isinstance(zero, bool) and x.dtype in LIMITS:
        low, high = LIMITS[x.dtype]
        if not low <= zero <= high:
            raise ValueError(f"{name}: expected {low} to {high}, as {x.dtype} has, got {zero}")
        return np.asarray(zero, np.int32)
    z = parameter(zero, name)
    if z.dtype != x.dtype:
        raise TypeError(f"{name}: expected the operand's dtype {x.dtype}, got {z.dtype}")
    return z


cdef int set_zero(Call *call, int side, object zero, tuple shape, Operand x, str name, list keep) except -1:
    cdef cnp.ndarray values
    cdef int32_t first
    cdef ptrdiff_t inc = 0
    cdef bint varies = False
    cdef int32_t *one = &call.one_za if side == 0 else &call.one_zb
    cdef const int32_t *numbers = one
    one[0] = x.added
    number = single(zero)
    if number is not None and (<object>number).dtype == x.dtype:
        one[0] += <int32_t>int(number)
    elif zero is not None:
        z = zero_array(zero, x, name)
        s = spread(z, side, shape, name)
        if s is None:
            one[0] += <int32_t>int(z.reshape(-1)[0])
        else:
            values = np.ascontiguousarray(s.astype(np.int32))
            inc = 1 if values.shape[values.ndim - 1] != 1 else 0
            varies = set_steps(call, values, side, shape, &call.step_za[0] if side == 0 else &call.step_zb[0])
            if x.added:
                values += x.added
            keep.append(values)
            numbers = <const int32_t *>cnp.PyArray_BYTES(values)
            one[0] = numbers[0] if cnp.PyArray_SIZE(values) else 0
    first = one[0]
    if side == 0:
        call.at.za = numbers
        call.job.q.za, call.job.q.inc_za, call.job.q.vary_za = first, inc, varies
    else:
        call.at.zb = numbers
        call.job.q.zb, call.job.q.inc_zb, call.job.q.vary_zb = first, inc, varies
    call.job.q.on = True
    return 0


cdef object plain_scale(object scale):
    """A scale that is one number, as a float; None for anything else."""
    if type(scale) is float:
        return <double><float><double>scale
    number = single(scale)
    return float(number) if number is not None and (<object>number).dtype in SCALE_TYPES else None


cdef object scale_array(object scale, str name):
    s = parameter(scale, name)
    if s.dtype.newbyteorder("=") not in SCALE_TYPES:
        raise TypeError(f"{name}: expected float32, float16, bfloat16 or a Python float, got dtype {s.dtype}")
    return s.astype(np.float64)


cdef double one_number(object x, str name) except? -1.0:
    if x.size != 1:
        raise ValueError(f"{name}: expected one element, got shape {x.shape}")
    return x.reshape(-1)[0]


cdef inline bint moderate(double size) noexcept:
    """Whether products of three such scales are far from the limits of float32."""
    return 2.0 ** -40 < size < 2.0 ** 40


cdef int set_scales(Call *call, object a_scale, tuple a_shape, object b_scale, tuple b_shape, object y_scale,
                    list keep) except -1:
    cdef cnp.ndarray values
    cdef int d
    cdef double scale = 1.0, divisor
    cdef cnp.ndarray narrow
    cdef bint single = True
    for side, name, given, shape in ((0, "a_scale", a_scale, a_shape), (1, "b_scale", b_scale, b_shape)):
        number = plain_scale(given)
        if number is not None:
            scale = scale * <double>number
            continue
        x = scale_array(given, name)
        s = spread(x, side, shape, name)
        if s is None:
            scale = scale * float(x.reshape(-1)[0])
            continue
        n = shape[len(shape) - 2] if side == 0 else shape[len(shape) - 1]
        values = np.ascontiguousarray(np.broadcast_to(s, s.shape[:s.ndim - 1] + (n,)))
        keep.append(values)
        if values.size:
            sizes = np.abs(values)
            single = single and moderate(sizes.min()) and moderate(sizes.max())
        if side == 0:
            set_steps(call, values, 0, shape, &call.step_row_scale[0])
            call.at.row_scale = <const double *>cnp.PyArray_BYTES(values)
        else:
            set_steps(call, values, 1, shape, &call.step_col_scale[0])
            call.at.col_scale = <const double *>cnp.PyArray_BYTES(values)
            with np.errstate(all="ignore"):
                narrow = values.astype(np.float32)
            keep.append(narrow)
            call.at.col_single = <const float *>cnp.PyArray_BYTES(narrow)
    number = plain_scale(y_scale)
    divisor = number if number is not None else one_number(scale_array(y_scale, "y_scale"), "y_scale")
    call.job.q.scale = scale / divisor
    size = call.job.q.scale if call.job.q.scale >= 0.0 else -call.job.q.scale
    call.job.q.single = single and moderate(size)
    call.job.q.on = True
    return 0


cdef int set_result_zero(Call *call, object zero, int type) except -1:
    number = single(zero)
    if number is not None and (<object>number).dtype == dtype_of(type):
        call.job.q.zero = float(number)
        return 0
    z = np.asarray(zero)
    if z.dtype != dtype_of(type):
        raise TypeError(f"y_zero_point: expected dtype {dtype_of(type)}, got {z.dtype}")
    call.job.q.zero = float(one_number(z, "y_zero_point"))
    return 0


cdef void settle_batch(Call *call) noexcept:
    """Whether anything varies along the batch, once zero points and scales are set."""
    cdef int d
    for d in range(call.batch_ndim):
        if not (call.job.q.vary_za):
            call.step_za[d] = 0
        if not (call.job.q.vary_zb):
            call.step_zb[d] = 0
        if call.at.row_scale == NULL:
            call.step_row_scale[d] = 0
        if call.at.col_scale == NULL:
            call.step_col_scale[d] = 0
        if call.step_za[d] or call.step_zb[d] or call.step_row_scale[d] or call.step_col_scale[d]:
            call.batch.quantized = True


cdef bint better_widened(const Call *call) noexcept:
    """Whether a product had better go the way of int32 operands: stacks of tiny ones, which packing into quads would slow
    down, and outer products, which only stores bound.  Operands are small beside the result, or the stack is."""
    cdef int d
    cdef double count = 1, tile = <double>call.job.m * call.job.n * call.job.k
    for d in range(call.batch_ndim):
        count *= call.shape[d]
    if count > 1:
        return tile <= TINY and count * (call.job.m + call.job.n) * call.job.k <= MOST_WIDENED
    return call.job.k <= SHALLOW and call.job.m >= 4 * SHALLOW and call.job.n >= 4 * SHALLOW


cdef Operand widened(Operand x, object zero, int side, str name):
    """The operand less its zero points, as int32."""
    cdef Operand o = Operand()
    o.keep = x.array  # what `out` must not overlap
    values = (x.keep.unpack() if x.keep is not None else x.array).astype(np.int32)
    if x.added:
        values -= x.added
    if zero is not None:
        z = zero_array(zero, x, name)
        s = spread(z, side, (<object>x.array).shape, name)
        if s is None:
            values -= np.int32(int(z.reshape(-1)[0]))
        else:
            s = s.astype(np.int32)
            values -= s[..., None, :] if side else s[..., None]
    o.array, o.type, o.dtype = values, GK_I32, x.dtype
    return o


# ---- the functions ----------------------------------------------------------------------------------------------

def matmul_integer(a, b, a_zero_point=None, b_zero_point=None, *, out=None):
    """Exact product of integers less their zero points, ``(a - a_zero_point) @ (b - b_zero_point)``: ONNX MatMulInteger 10.

    Parameters
    ----------
    a : array_like or PackedInt4, shape (..., M, K) or (K,)
        int8, uint8, or ml_dtypes' int4 or uint4.  Any strides; `matmul`'s rules for vectors and batches.
    b : array_like or PackedInt4, shape (..., K, N) or (K,)
        The same types, independently.
    a_zero_point, b_zero_point : array_like, optional
        Of their operand's dtype (a Python int takes it; 0 by default): one element, of shape () or (1,); one a row of a,
        (M,) or (..., M, 1), one a column of b, (N,) or (..., 1, N), where axes before the last two are batch axes of the
        operand or 1.  A vector operand takes one element only.
    out : ndarray of int32, optional
        Receives the result: its exact shape, writeable, any strides; it may overlap an input.

    Returns
    -------
    ndarray of int32 or scalar
        Shape (..., M, N), modulo 2^32; `out` if given.  Two vectors give a scalar.

    Raises
    ------
    ValueError
        Shapes that don't fit, a zero point along K or of another length, an unfit `out`.
    TypeError
        Another dtype.

    Notes
    -----
    A vector of zero points of length M is one a row of a even if M = K.  Every product is exact and only the 32-bit sum
    wraps.  K = 0 gives zeros.  int4 arrays, which have one value a byte, are copied; `PackedInt4` is not.
    """
    cdef Call call
    cdef Types types
    cdef Operand x = read_operand(a, "a", False), y = read_operand(b, "b", False)
    keep = []
    set_types(&types, x, y, GK_I32)
    bind(&call, &types, x.array, False, y.array, NULL, False)
    if better_widened(&call):
        x, y = widened(x, a_zero_point, 0, "a_zero_point"), widened(y, b_zero_point, 1, "b_zero_point")
        types.a = types.b = types.kernel_a = types.kernel_b = GK_I32
        bind(&call, &types, x.array, False, y.array, NULL, False)
        return finish(&call, out, None, 1.0, 0.0, NULL, AUTO, ((<Operand>x).keep, (<Operand>y).keep) if out is not None else ())
    settle_addresses(&call, x, y)
    set_zero(&call, 0, a_zero_point, (<object>x.array).shape, x, "a_zero_point", keep)
    set_zero(&call, 1, b_zero_point, (<object>y.array).shape, y, "b_zero_point", keep)
    settle_batch(&call)
    return finish(&call, out, None, 1.0, 0.0, NULL, AUTO, (x.array, y.array) if out is not None else ())


cdef bint is_zero(object zero, Operand x, str name):
    return not np.any(zero_array(zero, x, name).astype(np.float32))


cdef Operand less_zero(Operand x, object zero, int side, str name):
    """A float8 operand with nonzero zero points, as float32 numbers less them."""
    cdef Operand o = Operand()
    shape = (<object>x.array).shape
    z = zero_array(zero, x, name)
    s = spread(z, side, shape, name)
    z = z.astype(np.float32).reshape(()) if s is None else s.astype(np.float32)[..., None, :] if side else s.astype(np.float32)[..., None]
    o.array, o.type, o.dtype = x.array.astype(np.float32) - z, GK_F32, x.dtype
    return o


def qlinear_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point, *, out=None):
    """Product of quantized operands, quantized again: ONNX QLinearMatMul 10 and 21.

    ``y = saturate(round(sum((a - a_zero_point) * (b - b_zero_point)) * a_scale * b_scale / y_scale) + y_zero_point)``,
    rounded to nearest even before the zero point is added.

    Parameters
    ----------
    a : array_like or PackedInt4, shape (..., M, K) or (K,)
        int8, uint8, int4, uint4; or one of ml_dtypes' float8 types, if b is too.
    a_scale, b_scale : array_like or float
        float32, float16 or bfloat16 (a Python float is taken as float32), of the shapes that zero points may have,
        independently of those.  Half types are widened before anything is multiplied.
    a_zero_point, b_zero_point : array_like or int
        As for `matmul_integer`, and required.
    b : array_like or PackedInt4, shape (..., K, N) or (K,)
    y_scale : array_like or float
        One element.
    y_zero_point : array_like
        One element; its dtype, int8 or uint8 (a float8 type for float8 operands), is the result's.
    out : ndarray, optional
        Receives the result: exact shape and dtype, writeable, any strides.

    Returns
    -------
    ndarray or scalar
        Shape (..., M, N), of `y_zero_point`'s dtype.

    Raises
    ------
    ValueError
        Shapes that don't fit.
    TypeError
        Another dtype.

    Notes
    -----
    The 32-bit sum wraps.  It is scaled in float32 if at most 2^24, in float64 if larger: powers of two as scales give the
    exact result, others a neighbour at most within ``4 * 2^-24`` of its size of a tie.  A `y_scale` of zero, below zero or NaN
    is not refused: division gives what it gives, saturated.  K = 0 gives `y_zero_point`.  float8: sums in float32, scaled in float64, saturated to the largest finite value, NaN stays NaN; an
    operand with nonzero zero points is converted to float32 first.
    """
    cdef Call call
    cdef Types types
    cdef Operand x = read_operand(a, "a", True), y = read_operand(b, "b", True)
    cdef int result = result_type(y_zero_point, x, y)
    cdef bint floats = is_float8(x.type)
    keep = []
    for zero, name in ((a_zero_point, "a_zero_point"), (b_zero_point, "b_zero_point")):
        if zero is None:
            raise TypeError(f"{name}: expected a zero point, got None")
    a_shape, b_shape = (<object>x.array).shape, (<object>y.array).shape
    if floats:
        x, y = float_operands(x, a_zero_point, y, b_zero_point)
    set_types(&types, x, y, result)
    bind(&call, &types, x.array, False, y.array, NULL, False)
    if not floats and better_widened(&call):
        x, y = widened(x, a_zero_point, 0, "a_zero_point"), widened(y, b_zero_point, 1, "b_zero_point")
        set_types(&types, x, y, result)
        types.acc = GK_I32
        bind(&call, &types, x.array, False, y.array, NULL, False)
    elif not floats:
        settle_addresses(&call, x, y)
        set_zero(&call, 0, a_zero_point, a_shape, x, "a_zero_point", keep)
        set_zero(&call, 1, b_zero_point, b_shape, y, "b_zero_point", keep)
    set_scales(&call, a_scale, a_shape, b_scale, b_shape, y_scale, keep)
    set_result_zero(&call, y_zero_point, result)
    settle_batch(&call)
    return finish(&call, out, None, 1.0, 0.0, NULL, AUTO, (x.array, y.array) if out is not None else ())


cdef tuple float_operands(Operand x, object a_zero_point, Operand y, object b_zero_point):
    """Float8 operands, of which zero points that are not zero have been subtracted."""
    for o, zero, side, name in ((x, a_zero_point, 0, "a_zero_point"), (y, b_zero_point, 1, "b_zero_point")):
        spread(zero_array(zero, o, name), side, (<object>(<Operand>o).array).shape, name)
    if not is_zero(a_zero_point, x, "a_zero_point"):
        x = less_zero(x, a_zero_point, 0, "a_zero_point")
    if not is_zero(b_zero_point, y, "b_zero_point"):
        y = less_zero(y, b_zero_point, 1, "b_zero_point")
    return x, y


cdef int result_type(object y_zero_point, Operand x, Operand y) except -1:
    """The type of y, which that of its zero point is."""
    if is_float8(x.type) != is_float8(y.type):
        raise TypeError(f"a and b: expected both integers or both float8, got {x.dtype} and {y.dtype}")
    dtype = y_zero_point.dtype if isinstance(y_zero_point, (np.ndarray, np.generic)) else np.asarray(y_zero_point).dtype
    cdef int result = type_code(dtype)
    if is_float8(x.type):
        if not is_float8(result):
            raise TypeError(f"y_zero_point: expected a float8 type for float8 operands, got dtype {dtype}")
    elif dtype not in BYTES:
        raise TypeError(f"y_zero_point: expected int8 or uint8, whose dtype is the result's, got dtype {dtype}")
    return result
