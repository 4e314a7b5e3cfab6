"""A decided product, and the loops that run it."""
from gemmkit._kernels._registry cimport gk_epi_fn, gk_pack, gk_ukr
from gemmkit._kernels._schedule cimport Choice

# The epilogue of a product: C = alpha * AB + beta * bias.  The bias is read where it lies, by strides of which zero
# repeats; no expanded copy is made.
cdef struct Epilogue:
    double alpha, beta
    bint has_bias
    int bias_type
    ptrdiff_t rs_bias, cs_bias  # bytes

# One product, fully decided.  Immutable once `prepare` has filled it, so any number of threads may run it.
cdef struct Job:
    int acc  # the type of sums: GK_F32 or GK_F64
    int a_type, b_type, c_type  # as the operands and the result lie
    ptrdiff_t m, n, k
    ptrdiff_t item, a_item, b_item, c_item, panel_item  # bytes an element; item is a sum's
    ptrdiff_t rs_a, cs_a, rs_b, cs_b, rs_c  # bytes; C's columns are adjacent
    bint b_prepacked
    Epilogue epilogue
    Choice how
    int panel  # the type of packed panels: acc, or GK_BF16
    const gk_ukr *gemm  # the tile row
    const gk_ukr *exact  # where the tile row would flush, this one reads the same panels; NULL if it never does
    const gk_ukr *inner  # the row that the inner loop calls: gemm, a dot row or a stream row
    const gk_pack *pack_a
    const gk_pack *pack_b
    const gk_pack *pack_bias
    gk_epi_fn finish
    bint bias_starts  # the kernel starts its sum from the bias: alpha and beta are 1, it is of type acc, columns adjacent
    bint finishes  # a tile of sums needs `finish` after its last KC block
    bint narrow  # C is not of type acc: sums are held elsewhere until they are finished

# Where one product's operands lie.
cdef struct Place:
    const char *a
    const char *b  # prepacked micro-panels when job.b_prepacked
    char *c
    const char *bias

# C = alpha * acc + beta * bias for the m x n elements at (i, j), whose sums lie at `acc`.
cdef void finish_tile(const Job *job, const Place *at, const char *acc, ptrdiff_t rs_acc, ptrdiff_t i, ptrdiff_t j,
                      ptrdiff_t m, ptrdiff_t n) noexcept nogil
cdef void run_tiles(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil
cdef void run_stream(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil
cdef void run_dot(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil
# Bytes of workspace that the loops take.
cdef size_t loops_bytes(const Job *job, int num_threads) noexcept nogil
# Bytes of prepacked micro-panels: of one as wide as NR and as deep as K, in KC blocks.
cdef ptrdiff_t column_bytes(const Job *job) noexcept nogil
# The first line of a buffer on the stack.
cdef char *aligned(char *p) noexcept nogil
