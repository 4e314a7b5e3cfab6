"""What plans have in common, for those of other modules."""
cimport numpy as cnp

from gemmkit._kernels._calls cimport Call, Prepacked
from gemmkit._kernels._loops cimport Job
from gemmkit._kernels._types cimport Types
from libc.stdint cimport int64_t

cdef tuple shape_of(object x, str name)
# An array with `shape` and contiguous strides, but no memory behind it: never to be read.
cdef cnp.ndarray contiguous_shape(tuple shape, object dtype)

cdef class Plan:
    cdef Job job
    cdef Prepacked packed
    cdef object storage  # the memory of packed.panels
    cdef cnp.ndarray own_b  # a B that is owned but not packed
    cdef Types types
    cdef int forced, a_given, b_given  # the caller's types; with a float64 operand the other is converted
    cdef ptrdiff_t count  # products a call
    cdef double alpha, beta
    cdef int64_t whole_alpha, whole_beta
    cdef bint trans_a, trans_b, owns_b
    cdef tuple a_shape, b_shape  # as given by the caller, transposed or not
    cdef tuple out_shape
    cdef int settle_whole(self, object alpha, object beta) except -1
    cdef int set_up(self, tuple a_shape, tuple b_shape, tuple dtypes, object alpha, object beta, bint trans_a, bint trans_b,
                    object b, str algorithm) except -1
    # From a bound call to a decided job; b_array, if any, is packed and owned.
    cdef int decide(self, Call *call, cnp.ndarray b_array, str algorithm) except -1
    cdef int pack(self, cnp.ndarray b) except -1
    cdef cnp.ndarray checked_c(self, object c)
    cdef object run(self, object a, object b, object c, object out)
    cdef str described(self, str what)
