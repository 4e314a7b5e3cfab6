"""Number types: the table's codes and numpy's dtypes."""
cimport numpy as cnp

# What a product's operands and result are: settled before any shape is looked at.
cdef struct Types:
    int acc  # of sums: GK_F32 or GK_F64
    int a, b, c

cdef object dtype_of(int type)
cdef int numpy_type(int type) noexcept
# The type of an ndarray that kernels can read in place: aligned and in native byte order.  -1 for anything else.
cdef int plain_type(object x) noexcept
cdef int type_of(object dtype, str name) except -1
cdef int settle(Types *types, object out_dtype, object out, int bias) except -1
cdef cnp.ndarray operand(object x, str name, int type)
# Whether x is a Python number, which takes the type of what it meets; numpy's scalars have types of their own.
cdef bint is_number(object x)
