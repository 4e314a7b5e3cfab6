"""Masks as numbers to add."""
from gemmkit._kernels._heads cimport Attend
from gemmkit._kernels._registry cimport gk_soft_args

cdef enum MaskTile:
    MASK_NOTHING = 0  # every key of the tile takes part as it is
    MASK_BIAS = 1
    MASK_NONE_LEFT = 2  # no key takes part

# Numbers of the mask for one query: n keys from j on, of the type of sums; returns how many take part.
cdef ptrdiff_t mask_row(const Attend *a, ptrdiff_t b, ptrdiff_t h, ptrdiff_t i, ptrdiff_t j, ptrdiff_t n, char *dst) noexcept nogil
# Whether the bias leaves a query no key at all.
cdef bint is_dead(const Attend *a, ptrdiff_t b, ptrdiff_t h, ptrdiff_t i) noexcept nogil
# The mask of w rows and n keys from js on, as the softmax rows add it; `tile` receives it, `stage` holds rows on the way.
cdef int mask_tile(const Attend *a, ptrdiff_t b, ptrdiff_t kvh, ptrdiff_t r0, ptrdiff_t w, ptrdiff_t js, ptrdiff_t n, char *stage,
                   char *tile, gk_soft_args *f) noexcept nogil
