"""C declarations of the kernel table and of the selection that runs on it."""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef extern from "ukr.h" nogil:
    enum: GK_F32, GK_F64, GK_F16, GK_BF16, GK_E4M3FN, GK_E4M3FNUZ, GK_E5M2, GK_E5M2FNUZ
    enum: GK_I8, GK_U8, GK_I16, GK_I32, GK_I64, GK_U16, GK_U32, GK_U64, GK_BOOL, GK_I4, GK_U4
    enum: GK_QUADS_U8, GK_QUADS_I8, GK_NIBBLES, GK_I32Q, GK_F32Q, GK_NUM_TYPES
    enum: GK_GEMM, GK_DOT, GK_STREAM, GK_NUM_ROLES
    enum: GK_FLUSHES_DENORMALS, GK_WANTS_LINES, GK_SERVES_MANY
    enum: GK_MOST_R

    const signed char gk_item[]

    ctypedef struct gk_ukr_args:
        const char *a
        ptrdiff_t rs_a
        ptrdiff_t cs_a
        const char *b
        ptrdiff_t rs_b
        ptrdiff_t cs_b
        char *c
        ptrdiff_t rs_c
        const char *add
        ptrdiff_t rs_add
        ptrdiff_t m
        ptrdiff_t n
        ptrdiff_t k

    ctypedef void (*gk_ukr_fn)(const gk_ukr_args *) noexcept nogil

    ctypedef struct gk_ukr:
        const char *name
        uint32_t isa
        int role
        int a_type
        int b_type
        int acc_type
        int mr
        int nr
        int kr
        int vl
        uint32_t flags
        gk_ukr_fn fn
        void (*release)() noexcept nogil

    ctypedef void (*gk_pack_fn)(const char *, ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t, char *,
                               int32_t *) noexcept nogil

    ctypedef struct gk_pack:
        const char *name
        uint32_t isa
        int source "from"
        int to
        gk_pack_fn panels
        gk_pack_fn lines

    ptrdiff_t gk_depth(int type, ptrdiff_t k)
    int gk_shift(int source, int to)
    ptrdiff_t gk_panel_bytes(int type, ptrdiff_t R, ptrdiff_t k)
    int gk_least_of(const char *panel, ptrdiff_t R, ptrdiff_t k)
    bint gk_flush_free(int least_a, int least_b)

    ctypedef struct gk_epi_args:
        const char *acc
        ptrdiff_t rs_acc
        char *c
        ptrdiff_t rs_c
        const char *bias
        ptrdiff_t rs_bias
        ptrdiff_t cs_bias
        double alpha
        double beta
        int64_t whole_alpha
        int64_t whole_beta
        const int32_t *row_add
        const int32_t *col_add
        const int32_t *row_mul[2]
        const int32_t *col_mul[2]
        const double *row_scale
        const double *col_scale
        int single
        const float *col_single
        double scale
        double zero
        ptrdiff_t m
        ptrdiff_t n

    ctypedef void (*gk_epi_fn)(const gk_epi_args *) noexcept nogil

    ctypedef struct gk_epi:
        const char *name
        uint32_t isa
        int acc
        int out
        gk_epi_fn fn

    ctypedef struct gk_soft_args:
        char *s
        ptrdiff_t rs_s
        ptrdiff_t n
        ptrdiff_t lanes
        double factor
        double softcap
        const char *bias
        ptrdiff_t rs_bias
        int one_bias
        const char *low
        const char *high
        char *max
        char *next
        char *alpha
        char *sum
        char *p
        ptrdiff_t rs_p

    ctypedef void (*gk_soft_fn)(const gk_soft_args *) noexcept nogil
    ctypedef int (*gk_weigh_fn)(const gk_soft_args *) noexcept nogil

    ctypedef struct gk_soft:
        const char *name
        uint32_t isa
        int acc
        int out
        int vl
        gk_soft_fn scan
        gk_soft_fn rescale
        gk_soft_fn divide
        gk_weigh_fn weigh

    ctypedef double (*gk_peak_fn)(long) noexcept nogil

    ctypedef struct gk_peak:
        const char *name
        uint32_t isa
        int type
        gk_peak_fn fn


cdef extern from "cpu_features.h" nogil:
    ctypedef struct gk_cache:
        ptrdiff_t size
        int ways
        int line
        int sharing

    ctypedef struct gk_cpu:
        uint32_t isa_mask
        uint32_t slow_mask
        char *vendor
        char *brand
        int family
        int model
        gk_cache l1d
        gk_cache l2
        gk_cache l3
        int caches_known


# The row for a role and the types that it reads; of GEMM rows the narrowest that holds n columns, so that a small tile is
# just a row.  NULL if there is none; activate() has made sure of those that the engine relies on.
cdef const gk_ukr *select_row(int role, int a_type, int b_type, ptrdiff_t n) noexcept nogil
# The row that reads the same panels and does not flush.
cdef const gk_ukr *select_exact(const gk_ukr *row) noexcept nogil
cdef const gk_pack *select_pack(int source, int to) noexcept nogil
# The softmax rows for scores of a type and weights of another.
cdef const gk_soft *select_soft(int acc, int out) noexcept nogil
cdef gk_epi_fn select_epilogue(int acc, int out) noexcept nogil
# The type of the panels that the best GEMM row for these float or whole-integer operands reads.
cdef int panel_type(int a_type, int b_type) noexcept nogil
# Whether operands are bytes or nibbles, whose panels are of two types: QUADS_U8 for A, QUADS_I8 or NIBBLES for B.
cdef inline bint is_quads(int type) noexcept nogil:
    return type == GK_I8 or type == GK_U8 or type == GK_I4 or type == GK_U4
cdef const gk_cpu *current_cpu() noexcept nogil
