"""From arrays to a job: shapes, strides, broadcasting, and where the result goes."""
cimport numpy as cnp
from libc.stdint cimport int32_t, int64_t
from gemmkit._kernels._engine cimport Batch
from gemmkit._kernels._loops cimport Job, Place
from gemmkit._kernels._types cimport Types

# A B that a plan owns: micro-panels of each of its matrices, and the shape that it had.
cdef struct Prepacked:
    char *panels
    int ndim
    ptrdiff_t shape[64]
    ptrdiff_t each  # bytes a matrix

cdef struct Call:
    Job job
    Place at
    Batch batch
    int ndim
    ptrdiff_t shape[64]  # of the result
    ptrdiff_t step_a[64]  # of its batch axes
    ptrdiff_t step_b[64]
    ptrdiff_t step_za[64]  # where batch.quantized: of zero points and scales, in elements
    ptrdiff_t step_zb[64]
    ptrdiff_t step_row_scale[64]
    ptrdiff_t step_col_scale[64]
    int batch_ndim
    int result  # the type of the result's array
    int32_t one_za, one_zb  # zero points of whole operands: Place points here
    bint drop_m, drop_n  # rank-1 operands: the axis of 1 that the result lacks

cdef double real(object x, str name) except? -1.0
# A scalar argument of integer sums, modulo 2^64, if it is a whole number; whole[0] tells.
cdef int64_t whole_number(object x, str name, bint *whole) except? -1
cdef int bind(Call *call, const Types *types, cnp.ndarray a, bint trans_a, cnp.ndarray b, const Prepacked *prepacked,
              bint trans_b) except -1
cdef object finish(Call *call, object out, cnp.ndarray c, double alpha, double beta, const Job *planned, int forced,
                   tuple inputs)
cdef int bind_result(Call *call, cnp.ndarray result, cnp.ndarray c, double alpha, double beta, const Job *planned,
                     int forced) except -1
# An array to compute into: `out` itself, or a fresh one to copy to `out` from when `out` can't be computed into.
cdef cnp.ndarray result_for(Call *call, object out, tuple inputs, str name=*)
