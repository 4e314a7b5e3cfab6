"""A decided product, and the loops that run it."""
from gemmkit._kernels._registry cimport gk_epi_fn, gk_ukr
from gemmkit._kernels._schedule cimport Choice

# The epilogue of a product: C = alpha * AB + beta * bias.  The bias is read where it lies, by strides of which zero
# repeats; no expanded copy is made.
cdef struct Epilogue:
    double alpha, beta
    bint has_bias
    ptrdiff_t rs_bias, cs_bias  # bytes

# One product, fully decided.  Immutable once `prepare` has filled it, so any number of threads may run it.
cdef struct Job:
    int type
    ptrdiff_t m, n, k
    ptrdiff_t item
    ptrdiff_t rs_a, cs_a, rs_b, cs_b, rs_c  # bytes; C's columns are adjacent
    bint b_prepacked
    Epilogue epilogue
    Choice how
    const gk_ukr *gemm
    const gk_ukr *inner  # the row that the inner loop calls: gemm, a dot row or a stream row
    gk_epi_fn finish
    bint bias_starts  # the kernel starts its sum from the bias: alpha and beta are 1 and its columns adjacent
    bint finishes  # the tile needs `finish` after its last KC block

# Where one product's operands lie.
cdef struct Place:
    const char *a
    const char *b  # prepacked micro-panels when job.b_prepacked
    char *c
    const char *bias

cdef void finish_tile(const Job *job, const Place *at, ptrdiff_t i, ptrdiff_t j, ptrdiff_t m, ptrdiff_t n) noexcept nogil
cdef void run_tiles(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil
cdef void run_stream(const Job *job, const Place *at, int num_threads) noexcept nogil
cdef void run_dot(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil
cdef size_t tiles_bytes(const Job *job) noexcept nogil
cdef bint takes_columns(const Job *job, int num_threads) noexcept nogil
