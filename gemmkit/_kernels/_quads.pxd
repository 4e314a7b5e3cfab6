"""Products of bytes with few rows or few columns."""
from gemmkit._kernels._loops cimport Job, Place

cdef void run_quad_stream(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil
cdef void run_quad_dot(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil
cdef size_t quads_bytes(const Job *job, int num_threads) noexcept nogil
