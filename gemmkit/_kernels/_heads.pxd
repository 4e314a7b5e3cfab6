"""One decided call of attention, and what its paths share: which keys a query sees, masks as numbers."""
from libc.stdint cimport int64_t

from gemmkit._kernels._registry cimport GK_F64, gk_epi_fn, gk_pack, gk_soft, gk_ukr

cdef enum Path:
    PATH_AUTO = 0
    PATH_STREAMING = 1
    PATH_MATERIALIZED = 2
    PATH_DECODE = 3

# An operand [batch, heads, length, size] where it lies; strides are bytes.
cdef struct Tensor:
    char *at
    ptrdiff_t b, h, l, d

# One piece of the sequence of keys: the past, or the new ones.
cdef struct Piece:
    Tensor k, v
    ptrdiff_t count  # keys

# Keys j0 <= j < j1 of one batch and key head, where they lie or where they were copied to.
cdef struct Block:
    ptrdiff_t j0, j1
    char *k
    char *v
    ptrdiff_t k_l, k_d, v_l, v_d

# One call of attention, fully decided.  Threads share it and change nothing.
cdef struct Attend:
    ptrdiff_t batch, heads, kv_heads, group, lq, total, d, dv
    ptrdiff_t past  # keys before the first query's own, if nonpad does not say
    int acc  # of scores, sums and softmax: GK_F32 or GK_F64
    int q_type, v_type, mask_type  # q_type is K's and Y's too; mask_type -1: no mask
    ptrdiff_t item, q_item, v_item
    Tensor q, y, qk, mask  # y's and qk's last axis is contiguous; of the mask d is the step along keys
    Piece piece[2]
    ptrdiff_t mask_keys  # keys that the mask has: those past it are -inf
    const int64_t *nonpad  # keys of each batch that are not padding; NULL: all
    ptrdiff_t left, right  # the window; -1 is open
    bint causal
    int mode  # what qk_matmul_output shows; -1: it is not asked for
    double power, factor  # their product is the scale, power is one of two
    double softcap
    int path
    # What the paths have chosen.
    ptrdiff_t bc  # keys of a block
    ptrdiff_t rows, r, panels, groups  # rows a key head, most rows of a panel, panels a task, tasks a key head
    ptrdiff_t vectors, all_panels  # of a key head's rows, whole vectors and panels, to which vectors are dealt out evenly
    ptrdiff_t splits, chunk  # chunks of blocks whose results are merged, and blocks of each
    int qk_panel, pv_panel  # types of packed panels
    bint packs_k, packs_v, v_lines
    bint cold  # K and V are more than L2 holds, so they are prefetched
    const gk_ukr *qk_row
    const gk_ukr *qk_exact
    const gk_ukr *pv_row
    const gk_ukr *pv_exact
    const gk_pack *widen_q  # to the type of sums
    const gk_pack *pack_q
    const gk_pack *pack_k
    const gk_pack *pack_v
    const gk_pack *turn  # panels of the type of sums
    const gk_pack *widen_mask
    const gk_pack *turn_mask  # panels of the type of sums from the mask as it lies; NULL: rows are converted one by one
    gk_epi_fn finish_q, finish_y
    const gk_soft *soft
    char *parts  # where chunks leave their results
    size_t each  # bytes of workspace a thread
    char *space

# Keys that query i of a batch sees: low <= key < high.
cdef void interval(const Attend *a, ptrdiff_t b, ptrdiff_t i, ptrdiff_t *low, ptrdiff_t *high) noexcept nogil
# Block x of the keys, bc of them.  One that begins in the past and ends in the new keys is copied to `space`, block_bytes of
# it, so that sums don't depend on where the past ends.
cdef void locate(const Attend *a, ptrdiff_t b, ptrdiff_t kvh, ptrdiff_t x, char *space, Block *at) noexcept nogil
cdef size_t block_bytes(const Attend *a) noexcept nogil
# w queries from row r0 on, widened to the type of sums: [w][d].
cdef void gather_rows(const Attend *a, ptrdiff_t b, ptrdiff_t kvh, ptrdiff_t r0, ptrdiff_t w, char *rows) noexcept nogil
# Rows of sums [w][n], each rs bytes apart, become rows of a result; `real` rows from r0 on.
cdef void write_rows(const Attend *a, const Tensor *to, ptrdiff_t b, ptrdiff_t kvh, ptrdiff_t r0, ptrdiff_t w, const char *rows,
                     ptrdiff_t rs, ptrdiff_t column, ptrdiff_t n, double alpha) noexcept nogil

# Numbers of the type of sums.
cdef inline void store(const Attend *a, char *at, ptrdiff_t i, double x) noexcept nogil:
    if a.acc == GK_F64:
        (<double *>at)[i] = x
    else:
        (<float *>at)[i] = <float>x


cdef inline double fetch(const Attend *a, const char *at, ptrdiff_t i) noexcept nogil:
    return (<const double *>at)[i] if a.acc == GK_F64 else (<const float *>at)[i]
