"""Few queries: K and V are read once, where they lie."""
from gemmkit._kernels._heads cimport Attend

cdef enum: MOST_ROWS = 16  # queries of a key head up to which this path can be taken

# Whether it is worth taking.
cdef bint suits_decode(const Attend *a) noexcept nogil
cdef void prepare_decode(Attend *a) noexcept nogil
# Runs a decided call; 1 if memory is out.
cdef int run_decode(const Attend *a, int num_threads) noexcept nogil
cdef size_t decode_bytes(const Attend *a, int num_threads) noexcept nogil
