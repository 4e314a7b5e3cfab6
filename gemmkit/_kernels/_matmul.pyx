"""matmul and gemm: the functions.  ONNX MatMul 13 (numpy.matmul's shapes) and ONNX Gemm 13, for every float type."""
cimport numpy as cnp

import numpy as np

from gemmkit._kernels._calls cimport Call, bind, finish, real
from gemmkit._kernels._registry cimport GK_F64
from gemmkit._kernels._schedule cimport AUTO
from gemmkit._kernels._types cimport Types, is_number, operand, plain_type, settle, type_of

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


cdef inline cnp.ndarray readable(cnp.ndarray x, str name, int type):
    """x, converted or copied if kernels can't read it as `type` where it lies."""
    return x if plain_type(x) == type else operand(x, name, type)


def matmul(a, b, out=None, *, out_dtype=None):
    """Matrix product of two arrays, as numpy.matmul and ONNX MatMul (opset 13) define it.

    Parameters
    ----------
    a : array_like, shape (..., M, K) or (K,)
        float64, float32, float16, or ml_dtypes' bfloat16, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz.
        Any strides.  A rank-1 `a` is a row; its axis of 1 is dropped from the result.
    b : array_like, shape (..., K, N) or (K,)
        The same types; they may differ.  A rank-1 `b` is a column.  Axes before the last two broadcast against `a`'s.
    out : ndarray, optional
        Receives the result: its exact shape, writeable, any strides.  It may overlap `a` or `b`.
    out_dtype : dtype, optional
        float32 or a narrower type, unless an operand is float64.  By default the dtype of `out`; without one float64 if
        an operand is, float16 or bfloat16 if both operands are, else float32.

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
    """
    cdef Call call
    cdef Types types
    cdef cnp.ndarray x = as_array(a, "a", &types.a), y = as_array(b, "b", &types.b)
    settle(&types, out_dtype, out, -1)
    x, y = readable(x, "a", types.a), readable(y, "b", types.b)
    bind(&call, &types, x, False, y, NULL, False)
    return finish(&call, out, None, 1.0, 0.0, NULL, AUTO, (x, y) if out is not None else ())


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
        The types of `matmul`.
    b : array_like, shape (K, N), or (N, K) with `trans_b`
    c : array_like, optional
        The same types.  Broadcasts one way to (M, N): (), (1,), (N,), (1, N), (M, 1), (1, 1) or (M, N); read in place.  A
        Python number takes the type of the sums; numpy's scalars have types of their own.
    alpha, beta : float
        Used at the precision of the sums.  With ``beta == 0`` c is not read; ``alpha == 0`` still multiplies.
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
    cdef double al = real(alpha, "alpha"), be = real(beta, "beta")
    cdef cnp.ndarray x = as_array(a, "a", &types.a), y = as_array(b, "b", &types.b), bias = None
    cdef bint weak = is_number(c)
    if c is not None and not weak:
        bias = as_array(c, "c", &bias_type)
    settle(&types, out_dtype, out, bias_type)
    if weak:
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
    return finish(&call, out, bias, al, be, NULL, AUTO, (x, y, bias) if out is not None else ())
