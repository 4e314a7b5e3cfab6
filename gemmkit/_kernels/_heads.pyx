"""What the paths of attention share.  docs/attention.md has the scheme.

Row r of a key head is query r // group of query head `key head * group + r % group`.
"""
from libc.string cimport memcpy

from gemmkit._kernels._numbers cimport ceil_div, least, round_up
from gemmkit._kernels._registry cimport gk_epi_args


cdef void interval(const Attend *a, ptrdiff_t b, ptrdiff_t i, ptrdiff_t *low, ptrdiff_t *high) noexcept nogil:
    cdef ptrdiff_t n = a.total, p = i + a.past
    if a.nonpad != NULL:
        n = a.nonpad[b]
        p = i + n - a.lq
    low[0] = 0
    # Bounds may be any integer: compared, not added, so that nothing overflows.
    if a.left >= 0 and p > a.left:
        low[0] = p - a.left
    if a.causal:
        n = least(n, p + 1)
    if a.right >= 0 and a.right < n - p - 1:
        n = p + a.right + 1
    if a.mask_type >= 0:
        n = least(n, a.mask_keys)
    high[0] = n if n > 0 else 0


cdef void copy_rows(char *to, const char *src, ptrdiff_t s_l, ptrdiff_t s_d, ptrdiff_t l, ptrdiff_t d, ptrdiff_t item) noexcept nogil:
    cdef ptrdiff_t i, c
    for i in range(l):
        if s_d == item:
            memcpy(to + i * d * item, src + i * s_l, d * item)
            continue
        for c in range(d):
            memcpy(to + (i * d + c) * item, src + i * s_l + c * s_d, item)


cdef size_t block_bytes(const Attend *a) noexcept nogil:
    if not a.piece[0].count:
        return 0
    return round_up(a.bc * a.d * a.q_item, 64) + round_up(a.bc * a.dv * a.v_item, 64)


cdef void locate(const Attend *a, ptrdiff_t b, ptrdiff_t kvh, ptrdiff_t x, char *space, Block *at) noexcept nogil:
    cdef ptrdiff_t first = a.piece[0].count, j0 = x * a.bc, j1 = least(a.total, j0 + a.bc), n
    cdef bint is_past = j0 < first
    cdef const Piece *piece = &a.piece[not is_past]
    cdef const Piece *rest = &a.piece[1]
    cdef ptrdiff_t start = 0 if is_past else first
    at.j0, at.j1 = j0, j1
    at.k_l, at.k_d, at.v_l, at.v_d = piece.k.l, piece.k.d, piece.v.l, piece.v.d
    at.k = piece.k.at + b * piece.k.b + kvh * piece.k.h + (j0 - start) * piece.k.l
    at.v = piece.v.at + b * piece.v.b + kvh * piece.v.h + (j0 - start) * piece.v.l
    if j0 >= first or j1 <= first:
        return
    n = first - j0
    copy_rows(space, at.k, at.k_l, at.k_d, n, a.d, a.q_item)
    copy_rows(space + n * a.d * a.q_item, rest.k.at + b * rest.k.b + kvh * rest.k.h, rest.k.l, rest.k.d, j1 - first, a.d, a.q_item)
    at.k, at.k_l, at.k_d = space, a.d * a.q_item, a.q_item
    space += round_up(a.bc * a.d * a.q_item, 64)
    copy_rows(space, at.v, at.v_l, at.v_d, n, a.dv, a.v_item)
    copy_rows(space + n * a.dv * a.v_item, rest.v.at + b * rest.v.b + kvh * rest.v.h, rest.v.l, rest.v.d, j1 - first, a.dv, a.v_item)
    at.v, at.v_l, at.v_d = space, a.dv * a.v_item, a.v_item


cdef void gather_rows(const Attend *a, ptrdiff_t b, ptrdiff_t kvh, ptrdiff_t r0, ptrdiff_t w, char *rows) noexcept nogil:
    cdef const char *q = a.q.at + b * a.q.b + kvh * a.group * a.q.h
    cdef ptrdiff_t r
    if a.group == 1:
        a.widen_q.lines(q + r0 * a.q.l, a.q.l, a.q.d, w, a.d, 1, rows, NULL)
        return
    for r in range(r0, r0 + w):
        a.widen_q.lines(q + r % a.group * a.q.h + r // a.group * a.q.l, 0, a.q.d, 1, a.d, 1, rows + (r - r0) * a.d * a.item, NULL)


cdef void write_rows(const Attend *a, const Tensor *to, ptrdiff_t b, ptrdiff_t kvh, ptrdiff_t r0, ptrdiff_t w, const char *rows,
                     ptrdiff_t rs, ptrdiff_t column, ptrdiff_t n, double alpha) noexcept nogil:
    """Rounds them once; a head's rows are an even stack, so one call writes them."""
    cdef gk_epi_args e
    cdef ptrdiff_t g = 0, r
    e.alpha, e.beta, e.bias, e.rs_bias, e.cs_bias = alpha, 0.0, NULL, 0, 0
    e.n, e.rs_acc, e.rs_c = n, a.group * rs, to.l
    while g < least(a.group, w):
        r = r0 + g
        e.acc = rows + g * rs
        e.c = to.at + b * to.b + (kvh * a.group + r % a.group) * to.h + r // a.group * to.l + column * to.d
        e.m = ceil_div(w - g, a.group)
        a.finish_y(&e)
        g += 1
