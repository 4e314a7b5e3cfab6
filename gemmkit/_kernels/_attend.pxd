"""From shapes to a decided call of attention."""
cimport numpy as cnp

from gemmkit._kernels._descriptor cimport AttentionDescriptor
from gemmkit._kernels._heads cimport Attend, Tensor

# Where an array lies: (batch, heads, length, size), or (batch, length, heads * size).
cdef Tensor tensor(cnp.ndarray x, ptrdiff_t heads) noexcept
cdef tuple read_shapes(AttentionDescriptor d, tuple q, tuple k, tuple v, Attend *a, ptrdiff_t past)
cdef int read_past(tuple key, tuple value, Attend *a) except -1
cdef int read_mask(tuple shape, Attend *a) except -1
cdef void set_mask(cnp.ndarray mask, int type, Attend *a) noexcept
# nonpad_kv_seqlen as a copy that no other thread writes.
cdef cnp.ndarray lengths(object x, Attend *a)
# Scale, softcap, windows: what the descriptor says in numbers.
cdef int set_numbers(AttentionDescriptor d, Attend *a) except -1
cdef int decide(Attend *a, int path) except -1
cdef double work_of(const Attend *a) noexcept nogil
cdef int run(const Attend *a) except -1
