"""matmul and gemm: the functions.  ONNX MatMul 13 (numpy.matmul's shapes) and ONNX Gemm 13, for float32 and float64."""
cimport numpy as cnp

import numpy as np

from gemmkit._kernels._calls cimport Call, bind, common_type, finish, is_plain, operand, real
from gemmkit._kernels._registry cimport GK_F32, GK_F64
from gemmkit._kernels._schedule cimport AUTO

cnp.import_array()


def matmul(a, b, out=None):
    """Matrix product of two arrays, as numpy.matmul and ONNX MatMul (opset 13) define it.

    Parameters
    ----------
    a : array_like, float32 or float64, shape (..., M, K) or (K,)
        Any strides.  A rank-1 `a` is a row; its axis of 1 is dropped from the result.
    b : array_like, float32 or float64, shape (..., K, N) or (K,)
        A rank-1 `b` is a column.  Axes before the last two broadcast against those of `a`.
    out : ndarray, optional
        Receives the result: its exact shape and dtype, writeable, any strides.  It may overlap `a` or `b`.

    Returns
    -------
    ndarray or scalar
        Shape (..., M, N) in the wider of the two types, `out` if given.  Two vectors give a scalar.

    Raises
    ------
    ValueError
        An operand of rank 0, inner dimensions that differ, batch axes that don't broadcast, or an unfit `out`.
    TypeError
        A dtype other than float32 and float64, or an `out` of another dtype than the result.

    Notes
    -----
    Inputs are only read.  One that is unaligned, byte-swapped or of the narrower of two float types is copied first,
    alone; an `out` that is, or that overlaps an input, costs a temporary of its size.  Sums are in the result's type:
    ``|error| <= (K + 8) u (|a| @ |b|)``, u the unit roundoff, and the same bits for any number of threads.
    K = 0 gives zeros.
    """
    cdef Call call
    cdef int type
    cdef cnp.ndarray x, y
    if is_plain(a) and is_plain(b) and cnp.PyArray_TYPE(<cnp.ndarray>a) == cnp.PyArray_TYPE(<cnp.ndarray>b):
        x, y = a, b
        type = GK_F32 if cnp.PyArray_TYPE(x) == cnp.NPY_FLOAT32 else GK_F64
    else:
        a, b = np.asarray(a), np.asarray(b)
        type = common_type((a, b), ("a", "b"))
        x, y = operand(a, "a", type), operand(b, "b", type)
    bind(&call, x, False, y, NULL, False)
    return finish(&call, type, out, None, 1.0, 0.0, NULL, AUTO, (x, y) if out is not None else ())


cdef cnp.ndarray bias_of(object c, ptrdiff_t m, ptrdiff_t n):
    """c, checked to broadcast one way to (m, n)."""
    shape = c.shape
    if len(shape) > 2 or (len(shape) >= 1 and shape[-1] not in (1, n)) or (len(shape) == 2 and shape[0] not in (1, m)):
        raise ValueError(f"c: shape {shape} doesn't broadcast to the result's ({m}, {n})")
    return c


def gemm(a, b, c=None, *, alpha=1.0, beta=1.0, bint trans_a=False, bint trans_b=False, out=None):
    """alpha * A @ B + beta * C, as ONNX Gemm (opset 13) defines it, where A = a or a.T and B = b or b.T.

    Parameters
    ----------
    a : array_like, float32 or float64, shape (M, K), or (K, M) with `trans_a`
    b : array_like, float32 or float64, shape (K, N), or (N, K) with `trans_b`
    c : array_like, float32 or float64, optional
        Broadcasts one way to (M, N): (), (1,), (N,), (1, N), (M, 1), (1, 1) or (M, N); read in place.
    alpha, beta : float
        Used at the precision of the result.  With ``beta == 0`` c is not read; ``alpha == 0`` still multiplies.
    trans_a, trans_b : bool
    out : ndarray, optional
        Receives the result: shape (M, N), its dtype, writeable, any strides; may overlap an input.

    Returns
    -------
    ndarray
        Shape (M, N), float64 if any operand is, else float32; `out` if given.

    Raises
    ------
    ValueError
        An operand that is not a matrix, inner dimensions that differ, a `c` that doesn't broadcast, an unfit `out`.
    TypeError
        A dtype other than float32 and float64.

    Notes
    -----
    Rounded once at the end of each element's sum, after alpha and c.  K = 0 gives ``beta * c``, or zeros.
    """
    cdef Call call
    cdef int type
    cdef cnp.ndarray x, y, bias = None
    cdef double al = real(alpha, "alpha"), be = real(beta, "beta")
    if (c is None and is_plain(a) and is_plain(b)
            and cnp.PyArray_TYPE(<cnp.ndarray>a) == cnp.PyArray_TYPE(<cnp.ndarray>b)):
        x, y = a, b
        type = GK_F32 if cnp.PyArray_TYPE(x) == cnp.NPY_FLOAT32 else GK_F64
    else:
        a, b = np.asarray(a), np.asarray(b)
        if c is None:
            type = common_type((a, b), ("a", "b"))
        else:
            c = np.asarray(c)
            type = common_type((a, b, c), ("a", "b", "c"))
        x, y = operand(a, "a", type), operand(b, "b", type)
    if cnp.PyArray_NDIM(x) != 2 or cnp.PyArray_NDIM(y) != 2:
        name, bad = ("a", x) if cnp.PyArray_NDIM(x) != 2 else ("b", y)
        raise ValueError(f"{name}: expected a matrix, got shape {(<object>bad).shape}")
    bind(&call, x, trans_a, y, NULL, trans_b)
    if c is not None:
        bias = bias_of(c, call.job.m, call.job.n)
        bias = operand(bias, "c", type) if be != 0.0 else None
    return finish(&call, type, out, bias, al, be, NULL, AUTO, (x, y, bias) if out is not None else ())
