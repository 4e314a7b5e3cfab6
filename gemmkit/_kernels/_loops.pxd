"""A decided product, and the loops that run it."""
from libc.stdint cimport int32_t, int64_t

from gemmkit._kernels._registry cimport gk_epi_fn, gk_pack, gk_ukr
from gemmkit._kernels._schedule cimport Choice

# The epilogue of a product: C = alpha * AB + beta * bias.  The bias is read where it lies, by strides of which zero
# repeats; no expanded copy is made.
cdef struct Epilogue:
    double alpha, beta
    int64_t whole_alpha, whole_beta  # of integer sums, instead
    bint has_bias
    int bias_type
    ptrdiff_t rs_bias, cs_bias  # bytes

# What zero points and scales of one product's operands are; their numbers lie where Place says.
cdef struct Quantized:
    bint on  # the epilogue applies zero points or scales
    ptrdiff_t inc_za, inc_zb  # 0: one zero point for all rows of A (columns of B), 1: one each
    bint vary_za, vary_zb  # they differ within a batch
    int32_t za, zb  # the zero point where there is only one
    int shift_a, shift_b  # what packing adds to A's and B's bytes
    bint sums_of_a, sums_of_b  # whether they are needed: the other side's zero points, as shifted, are not all zero
    double scale  # of all elements
    bint single  # scales are far from the limits of float32
    double zero  # the result's zero point

# One product, fully decided.  Immutable once `prepare` has filled it, so any number of threads may run it.
cdef struct Job:
    int acc  # the type of sums: GK_F32, GK_F64, GK_I16, GK_I32 or GK_I64
    int a_type, b_type, c_type  # as the operands and the result lie
    ptrdiff_t m, n, k
    ptrdiff_t item, a_item, b_item, c_item, panel_item  # bytes an element; item is a sum's
    ptrdiff_t rs_a, cs_a, rs_b, cs_b, rs_c  # bytes; C's columns are adjacent
    bint b_prepacked
    Epilogue epilogue
    Choice how
    bint quads  # operands are bytes or nibbles
    bint nibble_panels  # a constant B is kept as GK_NIBBLES
    Quantized q
    int panel, panel_b  # the types of packed panels of A and of B: acc, GK_BF16, or those of quads
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
    const int32_t *za  # zero points of A's rows and B's columns
    const int32_t *zb
    const double *row_scale  # NULL: 1
    const double *col_scale
    const float *col_single  # col_scale as float32, if job.q.single
    const void *terms  # _terms.Terms, set by the loops

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
# Where the sums of a prepacked B's columns lie: behind its panels.
cdef size_t prepacked_sums(const Job *job) noexcept nogil
# The first line of a buffer on the stack.
cdef char *aligned(char *p) noexcept nogil
