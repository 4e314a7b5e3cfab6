"""What zero points add to a product of quads, as numbers a row and a column."""
from gemmkit._kernels._loops cimport Job, Place
from libc.stdint cimport int32_t

# For row i and column j of C: row_add[i] + col_add[j] + the sum of row_mul[t][i] * col_mul[t][j].  Members may be NULL; rows
# are counted from i0, columns from j0.
cdef struct Terms:
    const int32_t *row_add
    const int32_t *col_add
    const int32_t *row_mul[2]
    const int32_t *col_mul[2]
    ptrdiff_t i0, j0

# Bytes of workspace that `rows` rows and `columns` columns take: sums of both sides and two numbers each.
cdef size_t terms_bytes(ptrdiff_t rows, ptrdiff_t columns) noexcept nogil
# Set the members for rows i0..i0 + m (columns j0..j0 + n) from the sums of A's lines (B's), which start there, using
# `space`, two numbers a row (column), which must stay while `t` is used.
cdef void row_terms(const Job *job, const Place *at, const int32_t *sums, int32_t *space, ptrdiff_t i0, ptrdiff_t m, Terms *t) noexcept nogil
cdef void column_terms(const Job *job, const Place *at, const int32_t *sums, int32_t *space, ptrdiff_t j0, ptrdiff_t n, Terms *t) noexcept nogil
