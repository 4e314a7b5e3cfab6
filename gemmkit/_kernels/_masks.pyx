"""Masks as numbers to add: rows for a few queries, tiles of queries in lanes for panels.

A mask keeps its type and strides until a tile of it is needed.  bool becomes 0 and -inf.
"""
from libc.math cimport INFINITY
from libc.string cimport memcpy

from gemmkit._kernels._heads cimport Attend, interval, store
from gemmkit._kernels._numbers cimport least
from gemmkit._kernels._registry cimport GK_BF16, GK_BOOL, GK_F16, GK_F32, GK_F64, gk_soft_args

cdef extern from "masks.h" nogil:
    enum: GK_MASK_NONE, GK_MASK_SOME, GK_MASK_ALL
    int gk_mask_kind(const char *src, ptrdiff_t step, ptrdiff_t n)
    ptrdiff_t gk_mask_row_f32(int type, const char *src, ptrdiff_t step, ptrdiff_t n, float *dst)
    ptrdiff_t gk_mask_row_f64(int type, const char *src, ptrdiff_t step, ptrdiff_t n, double *dst)

cdef enum: AT_ONCE = 256  # elements of a mask row that are converted on the stack


cdef ptrdiff_t mask_row(const Attend *a, ptrdiff_t b, ptrdiff_t h, ptrdiff_t i, ptrdiff_t j, ptrdiff_t n, char *dst) noexcept nogil:
    cdef const char *src = a.mask.at + b * a.mask.b + h * a.mask.h + i * a.mask.l + j * a.mask.d
    cdef float wide[AT_ONCE]
    cdef ptrdiff_t at, some, live
    if a.mask_type != GK_F16 and a.mask_type != GK_BF16:
        if a.acc == GK_F64:
            return gk_mask_row_f64(a.mask_type, src, a.mask.d, n, <double *>dst)
        return gk_mask_row_f32(a.mask_type, src, a.mask.d, n, <float *>dst)
    at = live = 0
    while at < n:
        some = least(AT_ONCE, n - at)
        a.widen_mask.lines(src + at * a.mask.d, 0, a.mask.d, 1, some, 1, <char *>&wide[0], NULL)
        if a.acc == GK_F64:
            live += gk_mask_row_f64(GK_F32, <char *>&wide[0], 4, some, <double *>dst + at)
        else:
            live += gk_mask_row_f32(GK_F32, <char *>&wide[0], 4, some, <float *>dst + at)
        at += some
    return live


cdef bint is_dead(const Attend *a, ptrdiff_t b, ptrdiff_t h, ptrdiff_t i) noexcept nogil:
    cdef double row[AT_ONCE]
    cdef ptrdiff_t j, high
    interval(a, b, i, &j, &high)
    if a.mask_type < 0:
        return j >= high
    while j < high:
        if mask_row(a, b, h, i, j, least(AT_ONCE, high - j), <char *>&row[0]):
            return False
        j += AT_ONCE
    return True


cdef void fill(const Attend *a, char *row, ptrdiff_t j, ptrdiff_t n) noexcept nogil:
    """-inf for keys that the mask does not have."""
    while j < n:
        store(a, row, j, -INFINITY)
        j += 1


cdef bint looks_dead(const Attend *a, ptrdiff_t b, ptrdiff_t kvh, ptrdiff_t r0, ptrdiff_t w, ptrdiff_t js, ptrdiff_t n) noexcept nogil:
    """Whether the corners of a tile of a float mask are -inf, so that it is worth counting."""
    cdef double corner
    cdef ptrdiff_t x
    for x in range(4):
        if mask_row(a, b, kvh, r0 + (w - 1 if x & 1 else 0), js + (n - 1 if x & 2 else 0), 1, <char *>&corner):
            return False
    return True


cdef int bools(const Attend *a, ptrdiff_t b, ptrdiff_t kvh, ptrdiff_t r0, ptrdiff_t w, ptrdiff_t js, ptrdiff_t n) noexcept nogil:
    """What w rows of a bool mask have in common."""
    cdef ptrdiff_t x, i, h
    cdef int kind = GK_MASK_SOME, one
    for x in range(w):
        i, h = (r0 + x) // a.group, kvh * a.group + (r0 + x) % a.group
        one = gk_mask_kind(a.mask.at + b * a.mask.b + h * a.mask.h + i * a.mask.l + js * a.mask.d, a.mask.d, n)
        if one == GK_MASK_SOME or (x and one != kind):
            return GK_MASK_SOME
        kind = one
    return kind


cdef int mask_tile(const Attend *a, ptrdiff_t b, ptrdiff_t kvh, ptrdiff_t r0, ptrdiff_t w, ptrdiff_t js, ptrdiff_t n, char *stage,
                   char *tile, gk_soft_args *f) noexcept nogil:
    """The mask of w rows and n keys, as the softmax rows add it."""
    cdef int kind
    cdef ptrdiff_t x, i, h, live = 0, some = least(n, a.mask_keys - js)
    cdef const char *before = NULL
    cdef const char *here
    cdef char *row
    f.bias = NULL
    if a.mask_type < 0:
        return MASK_NOTHING
    if some <= 0:
        return MASK_NONE_LEFT
    if a.mask.h == 0 and a.mask.l == 0:
        live = mask_row(a, b, 0, 0, js, some, tile)
        fill(a, tile, some, n)
        f.bias, f.rs_bias, f.one_bias = tile, a.item, True
        if a.mask_type == GK_BOOL and live == n:
            f.bias = NULL
            return MASK_NOTHING
        return MASK_BIAS if live else MASK_NONE_LEFT
    f.rs_bias, f.one_bias = a.r * a.item, False
    if a.mask_type == GK_BOOL:
        kind = bools(a, b, kvh, r0, w, js, some)
        if kind == GK_MASK_NONE:
            return MASK_NONE_LEFT
        if kind == GK_MASK_ALL and some == n:
            return MASK_NOTHING
    if a.turn_mask != NULL and a.group == 1 and (a.mask_type == GK_BOOL or not looks_dead(a, b, kvh, r0, w, js, some)):
        f.bias = tile
        a.turn_mask.panels(a.mask.at + b * a.mask.b + kvh * a.mask.h + r0 * a.mask.l + js * a.mask.d, a.mask.l, a.mask.d, w, some,
                           a.r, tile, NULL)
        fill(a, tile, some * a.r, n * a.r)
        return MASK_BIAS
    for x in range(w):
        i, h = (r0 + x) // a.group, kvh * a.group + (r0 + x) % a.group
        here = <const char *>(h * a.mask.h + i * a.mask.l)
        row = stage + x * n * a.item
        if x and here == before:
            memcpy(row, row - n * a.item, n * a.item)
            continue
        before = here
        live += mask_row(a, b, h, i, js, some, row)
        fill(a, row, some, n)
    if live == 0:
        return MASK_NONE_LEFT
    a.turn.panels(stage, n * a.item, a.item, w, n, a.r, tile, NULL)
    f.bias = tile
    return MASK_BIAS
