"""The engine: one product, or many, as decided by `_schedule` and computed by the table's kernels."""
from gemmkit._kernels._loops cimport Epilogue, Job, Place
from gemmkit._kernels._schedule cimport Problem

cdef enum: MOST_DIMS = 64

# A batch: places by strides over broadcast dimensions.
cdef struct Batch:
    int ndim
    ptrdiff_t count
    ptrdiff_t shape[64]
    ptrdiff_t step_a[64]
    ptrdiff_t step_b[64]
    ptrdiff_t step_c[64]
    ptrdiff_t step_bias[64]
    bint quantized  # zero points and scales have steps too, in elements
    ptrdiff_t step_za[64]
    ptrdiff_t step_zb[64]
    ptrdiff_t step_row_scale[64]
    ptrdiff_t step_col_scale[64]

cdef void prepare(Job *job, int forced) noexcept nogil
cdef void adopt(Job *job, const Job *planned, int forced) noexcept nogil
cdef void describe(const Job *job, Problem *p) noexcept nogil
cdef size_t workspace_bytes(const Job *job, int num_threads) noexcept nogil
cdef int run_one(const Job *job, const Place *at, int num_threads) noexcept nogil
cdef int run_batch(const Job *job, const Place *at, const Batch *batch) noexcept nogil
cdef int run_group(const Job *jobs, const Place *places, ptrdiff_t count, const ptrdiff_t *order) noexcept nogil
cdef size_t prepacked_bytes(const Job *job) noexcept nogil
cdef void prepack_b(const Job *job, const char *b, ptrdiff_t rs_b, ptrdiff_t cs_b, char *dst) noexcept nogil
