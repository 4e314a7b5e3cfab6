"""Number types: the table's codes and numpy's dtypes."""
cimport numpy as cnp

# What a product's operands and result are: settled before any shape is looked at.
cdef struct Types:
    int acc  # of sums: GK_F32, GK_F64, GK_I16, GK_I32 or GK_I64
    int a, b, c  # of the arrays, to which operands are converted
    int kernel_a, kernel_b, kernel_c  # as kernels know them: signed and unsigned may be one

cdef object dtype_of(int type)
cdef int numpy_type(int type) noexcept
# The type of an ndarray that kernels can read in place: aligned and in native byte order.  -1 for anything else.
cdef int plain_type(object x) noexcept
# The type that kernels know an array's type as: from 16 bits on, signed and unsigned are one.
cdef int kernel_type(int type) noexcept
cdef int type_of(object dtype, str name) except -1
cdef bint is_integer(int type) noexcept
cdef int settle(Types *types, object out_dtype, object out, int bias) except -1
# bools as kernels want them, 0 and 1; anything else as it is.
cdef cnp.ndarray clean_bools(cnp.ndarray x, int type)
cdef cnp.ndarray operand(object x, str name, int type)
# Whether x is a Python number, which takes the type of what it meets; numpy's scalars have types of their own.
cdef bint is_number(object x)
