"""matmul and gemm: the functions.  ONNX MatMul 13 (numpy.matmul's shapes) and ONNX Gemm 13, for every float and
integer type; products of bytes that end in int32 or are requantized are in _integers."""
cimport numpy as cnp
from libc.stdint cimport int64_t

import numpy as np

from gemmkit._kernels._calls cimport Call, bind, finish, real, result_for, whole_number
from gemmkit._kernels._registry cimport GK_F64, GK_I32, GK_I64, GK_U32, GK_U64
from gemmkit._kernels._schedule cimport AUTO
from gemmkit._kernels._types cimport Types, clean_bools, dtype_of, is_integer, is_number, operand, plain_type, settle, type_of

cnp.import_array()


cdef cnp.ndarray as_array(object x, str name, int *type):
    """x as an array, with the code of its type; not converted yet."""
    type[0] = plain_type(x)
    if type[0] < 0:
        try:
            x = np.asarray(x)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        type[0] = type_of(x.dtype, name)
    return x


cdef cnp.ndarray readable(cnp.ndarray x, str name, int type):
    """x, converted or copied if kernels can't read it as `type` where it lies."""
    if plain_type(x) != type:
        x = operand(x, name, type)
    return clean_bools(x, type)


def matmul(a, b, out=None, *, out_dtype=None):
    """Matrix product of two arrays, as numpy.matmul and ONNX MatMul (opset 13) define it.

    Parameters
    ----------
    a : array_like, shape (..., M, K) or (K,)
        float64, float32, float16, or ml_dtypes' bfloat16, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz.
        Or bool, int8 to int64, uint8 to uint64.  Any strides.  A rank-1 `a` is a row; its axis of 1 is dropped from the
        result.
    b : array_like, shape (..., K, N) or (K,)
        The same types; they may differ.  A rank-1 `b` is a column.  Axes before the last two broadcast against `a`'s.
    out : ndarray, optional
        Receives the result: its exact shape, writeable, any strides.  It may overlap `a` or `b`.
    out_dtype : dtype, optional
        Of floats: float32 or a narrower type, unless an operand is float64.  By default the dtype of `out`; without one float64 if
        an operand is, float16 or bfloat16 if both operands are, else float32.  Integers have numpy's common type and no other
        (`matmul_integer` gives int32 for bytes).

    Returns
    -------
    ndarray or scalar
        Shape (..., M, N), `out` if given.  Two vectors give a scalar.

    Raises
    ------
    ValueError
        An operand of rank 0, inner dimensions that differ, batch axes that don't broadcast, or an unfit `out`.
    TypeError
        Another dtype, or an `out` or `out_dtype` that the result can't have.

    Notes
    -----
    Inputs are only read.  One that is unaligned or byte-swapped is copied first, and so is one that meets a float64
    operand; an `out` that is, or that overlaps an input, costs a temporary of its size.  Narrow types are widened block by
    block.  Sums are in float32 (float64 with a float64 operand), ``|error| <= (K + 8) u (|a| @ |b|)``, u its unit
    roundoff, and rounded once, to nearest even, to the result's type.  The same bits for any number of threads.  K = 0
    gives zeros.

    Integers wrap around in the result's type, like numpy's; of bools the result is whether any product is true.  Two
    different integer types are converted to numpy's common type, and an integer that meets a float likewise.
    """
    cdef Call call
    cdef Types types
    cdef cnp.ndarray x = as_array(a, "a", &types.a), y = as_array(b, "b", &types.b)
    settle(&types, out_dtype, out, -1)
    x, y = readable(x, "a", types.a), readable(y, "b", types.b)
    bind(&call, &types, x, False, y, NULL, False)
    return finish(&call, out, None, 1.0, 0.0, NULL, AUTO, (x, y) if out is not None else ())


cdef int check_gemm_types(int a, int b, int c) except -1:
    """ONNX Gemm has four integer types and no mixture with floats."""
    given = [(type, name) for type, name in ((a, "a"), (b, "b"), (c, "c")) if type >= 0]
    whole = [is_integer(type) for type, _ in given]
    for type, name in given:
        # Of a mixture, the operand that is unlike a is named.
        if (is_integer(type) and type not in (GK_I32, GK_I64, GK_U32, GK_U64)) or is_integer(type) != whole[0]:
            raise TypeError(f"{name}: expected floats, or int32, int64, uint32 or uint64 for all operands, as ONNX Gemm has them; "
                            f"got {', '.join(f'{n} {dtype_of(t)}' for t, n in given)}")
    return 0


cdef int check_bias(cnp.ndarray c, ptrdiff_t m, ptrdiff_t n) except -1:
    """c must broadcast one way to (m, n)."""
    shape = (<object>c).shape
    if len(shape) > 2 or (len(shape) >= 1 and shape[-1] not in (1, n)) or (len(shape) == 2 and shape[0] not in (1, m)):
        raise ValueError(f"c: shape {shape} doesn't broadcast to the result's ({m}, {n})")
    return 0


def gemm(a, b, c=None, *, alpha=1.0, beta=1.0, bint trans_a=False, bint trans_b=False, out=None, out_dtype=None):
    """alpha * A @ B + beta * C, as ONNX Gemm (opset 13) defines it, where A = a or a.T and B = b or b.T.

    Parameters
    ----------
    a : array_like, shape (M, K), or (K, M) with `trans_a`
        Floats as for `matmul`; or int32, int64, uint32, uint64, which wrap around.
    b : array_like, shape (K, N), or (N, K) with `trans_b`
    c : array_like, optional
        The same types.  Broadcasts one way to (M, N): (), (1,), (N,), (1, N), (M, 1), (1, 1) or (M, N); read in place.  A
        Python number takes the type of the sums; numpy's scalars have types of their own.
    alpha, beta : float
        Used at the precision of the sums.  Whole numbers are exact, modulo the integer type's range; with a fraction, the
        integer product is scaled and added to in float64 and truncated toward zero.  With ``beta == 0`` c is not read; ``alpha == 0`` still multiplies.
    trans_a, trans_b : bool
    out : ndarray, optional
        Receives the result: shape (M, N), writeable, any strides; may overlap an input.
    out_dtype : dtype, optional
        As for `matmul`; c counts as an operand.

    Returns
    -------
    ndarray
        Shape (M, N); `out` if given.

    Raises
    ------
    ValueError
        An operand that is not a matrix, inner dimensions that differ, a `c` that doesn't broadcast, an unfit `out`.
    TypeError
        Another dtype, or an `out` or `out_dtype` that the result can't have.

    Notes
    -----
    Rounded once to the result's type at the end of each element's sum, after alpha and c.  K = 0 gives ``beta * c``, or
    zeros.
    """
    cdef Call call
    cdef Types types
    cdef int bias_type = -1
    cdef double al, be
    cdef bint whole_alpha, whole_beta, fractional = False
    cdef int64_t wa = 0, wb = 0
    cdef cnp.ndarray x = as_array(a, "a", &types.a), y = as_array(b, "b", &types.b), bias = None
    cdef bint weak = is_number(c)
    if c is not None and not weak:
        bias = as_array(c, "c", &bias_type)
    check_gemm_types(types.a, types.b, bias_type)
    settle(&types, out_dtype, out, bias_type)
    if is_integer(types.c):
        wa, wb = whole_number(alpha, "alpha", &whole_alpha), whole_number(beta, "beta", &whole_beta)
        fractional = not whole_alpha or not (whole_beta or c is None)
    if is_integer(types.c) and not fractional:
        # Any but 1 and 0 will do: what counts are the whole numbers, which may be beyond a float.
        al, be = 1.0 if wa == 1 else 2.0, 0.0 if beta == 0 else 1.0 if wb == 1 else 2.0
    else:
        al, be = real(alpha, "alpha"), real(beta, "beta")
    if is_integer(types.c):
        bias_type = types.c if c is not None else -1
        if weak:
            if isinstance(c, float) and not c.is_integer():
                raise TypeError(f"c: expected a whole number beside {dtype_of(types.c)} operands, got {c}")
            bias = operand(int(c), "c", types.c)
    elif weak:
        bias_type = types.acc
        bias = operand(c, "c", bias_type)
    elif types.acc == GK_F64:
        bias_type = GK_F64
    if cnp.PyArray_NDIM(x) != 2 or cnp.PyArray_NDIM(y) != 2:
        name, bad = ("a", x) if cnp.PyArray_NDIM(x) != 2 else ("b", y)
        raise ValueError(f"{name}: expected a matrix, got shape {(<object>bad).shape}")
    x, y = readable(x, "a", types.a), readable(y, "b", types.b)
    bind(&call, &types, x, trans_a, y, NULL, trans_b)
    if bias is not None:
        check_bias(bias, call.job.m, call.job.n)
        bias = readable(bias, "c", bias_type) if be != 0.0 else None
    inputs = (x, y, bias) if out is not None else ()
    if fractional:
        return scaled_integers(&call, out, bias, al, be, inputs)
    if is_integer(types.c):
        call.job.epilogue.whole_alpha, call.job.epilogue.whole_beta = wa, wb
    return finish(&call, out, bias, al, be, NULL, AUTO, inputs)


cdef object scaled_integers(Call *call, object out, cnp.ndarray bias, double alpha, double beta, tuple inputs):
    """Integers with fractions: the product wraps, the rest is float64 and truncated toward zero, as ONNX's reference does."""
    cdef cnp.ndarray result = result_for(call, out, inputs)  # refuses an unfit `out`
    dtype = dtype_of(call.result)
    exact = finish(call, None, None, 1.0, 0.0, NULL, AUTO, ())
    with np.errstate(all="ignore"):
        y = exact * np.float64(alpha)
        if bias is not None:
            y += bias * np.float64(beta)
        y = y.astype(dtype)
    if out is None:
        return y
    if isinstance(out, tuple):
        out = out[0]
    out[...] = y
    return out
