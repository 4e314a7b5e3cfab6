"""What the products of quantized operands share: operands, zero points and scales as a call takes them."""
cimport numpy as cnp

from gemmkit._kernels._calls cimport Call
from gemmkit._kernels._types cimport Types
from libc.stdint cimport int32_t

# An operand: an array that `bind` can read (of nibble strides for packed nibbles), its type, its dtype for zero points, and what was
# added to its values besides.
cdef class Operand:
    cdef cnp.ndarray array
    cdef int type
    cdef object dtype
    cdef int added
    cdef object keep

cdef Operand read_operand(object x, str name, bint floats)
# An operand without data, for plans.
cdef Operand like_operand(tuple shape, object dtype, str name)
# The types of a product of two operands of bytes.
cdef void set_types(Types *types, Operand x, Operand y, int result) noexcept
# After `bind`: nibble addresses instead of bytes' where an operand has them; `b` is None when a plan owns it.
cdef void settle_addresses(Call *call, Operand x, Operand y) noexcept
# Zero points, checked and set; the list keeps their memory alive.  x is the operand's shape, side 0 for A, 1 for B.
cdef int set_zero(Call *call, int side, object zero, tuple shape, Operand x, str name, list keep) except -1
cdef int set_scales(Call *call, object a_scale, tuple a_shape, object b_scale, tuple b_shape, object y_scale, list keep) except -1
cdef int set_result_zero(Call *call, object zero, int type) except -1
cdef bint is_float8(int type) noexcept
cdef bint is_zero(object zero, Operand x, str name)
cdef void settle_batch(Call *call) noexcept
