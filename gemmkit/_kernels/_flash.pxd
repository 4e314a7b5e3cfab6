"""Panels of queries: the streaming and the materialized path."""
from gemmkit._kernels._heads cimport Attend

# Chooses rows, packers and blocks from sizes, types and strides.
cdef void prepare_panels(Attend *a) noexcept nogil
# Runs a decided call; 1 if memory is out.
cdef int run_panels(const Attend *a, int num_threads) noexcept nogil
cdef size_t panels_bytes(const Attend *a, int num_threads) noexcept nogil
