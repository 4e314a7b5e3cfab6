"""C declarations of the kernel table and of the selection that runs on it."""
from libc.stdint cimport uint32_t, uint64_t


cdef extern from "ukr.h" nogil:
    enum: GK_F32, GK_F64, GK_NUM_TYPES
    enum: GK_GEMM, GK_DOT, GK_STREAM, GK_NUM_ROLES

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

    ctypedef struct gk_epi_args:
        char *c
        ptrdiff_t rs_c
        const char *bias
        ptrdiff_t rs_bias
        ptrdiff_t cs_bias
        double alpha
        double beta
        ptrdiff_t m
        ptrdiff_t n

    ctypedef void (*gk_ukr_fn)(const gk_ukr_args *) noexcept nogil
    ctypedef void (*gk_pack_fn)(const char *, ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t, ptrdiff_t, char *) noexcept nogil
    ctypedef void (*gk_epi_fn)(const gk_epi_args *) noexcept nogil

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
        gk_pack_fn pack_a
        gk_pack_fn pack_b
        gk_ukr_fn fn

    ctypedef double (*gk_peak_fn)(long) noexcept nogil

    ctypedef struct gk_vec:
        const char *name
        uint32_t isa
        int type
        gk_epi_fn epilogue
        gk_peak_fn peak


cdef extern from "cpu_features.h" nogil:
    ctypedef struct gk_cache:
        ptrdiff_t size
        int ways
        int line
        int sharing

    ctypedef struct gk_cpu:
        uint32_t isa_mask
        char *vendor
        char *brand
        int family
        int model
        gk_cache l1d
        gk_cache l2
        gk_cache l3
        int caches_known


# The row for a role and type; of GEMM rows the narrowest that holds n columns, so that a small tile is just a row.
cdef const gk_ukr *select_row(int role, int type, ptrdiff_t n) noexcept nogil
cdef gk_epi_fn select_epilogue(int type) noexcept nogil
cdef const gk_cpu *current_cpu() noexcept nogil
