"""Few queries a key head: memory decides, so K and V are read once, where they lie, for all rows of the group.

For a block of keys: scores by dot rows, a few rows of Q by a few keys; the softmax on each row of scores as vectors of
neighbouring keys, by the same rows that serve panels; then rows of V are added up by stream rows.
"""
from libc.math cimport INFINITY, exp
from libc.string cimport memcpy, memset

from gemmkit._kernels._heads cimport Attend, Block, block_bytes, gather_rows, interval, locate, write_rows
from gemmkit._kernels._masks cimport is_dead, mask_row
from gemmkit._kernels._numbers cimport ceil_div, clamp, least, round_up
from gemmkit._kernels._parallel cimport give, parallel_for, take
from gemmkit._kernels._registry cimport (GK_BF16, GK_DOT, GK_F64, GK_GEMM, GK_STREAM, gk_epi_args, gk_soft_args, gk_ukr_args, panel_type, select_epilogue,
                                         select_pack, select_row, select_soft)

cdef extern from "prefetch.h" nogil:
    void gk_prefetch_rows(const char *p, ptrdiff_t rows, ptrdiff_t apart, ptrdiff_t bytes)

cdef enum:
    AHEAD = 16  # keys
    LINE = 64
    BC = 256  # keys of a block: K's part stays in L2 while further rows of Q pass
    TASKS = 32
    LEAST_CHUNK = 2  # blocks
    STREAMED = 4  # rows up to which stream rows add up V: MR of them

ctypedef fused real:
    float
    double


# One thread's workspace.
cdef struct Space:
    char *q  # [rows][d]
    char *s  # [rows][bc] scores, then weights
    char *o  # [rows][dv]
    char *max  # [rows]
    char *sum
    char *vectors  # max, next, alpha, sum of the softmax rows: a vector each
    char *bias  # [bc]
    char *k  # a block whose last axis is not contiguous, or of a type without rows
    char *v
    char *block
    size_t bytes


cdef size_t carve(const Attend *a, char *base, Space *s) noexcept nogil:
    cdef char *at = base
    s.q = at
    at += round_up(a.rows * a.d * a.item, LINE)
    s.s = at
    at += a.rows * a.bc * a.item
    s.o = at
    at += round_up(a.rows * a.dv * a.item, LINE)
    s.max = at
    at += round_up(a.rows * a.item, LINE)
    s.sum = at
    at += round_up(a.rows * a.item, LINE)
    s.vectors = at
    at += 4 * LINE
    s.bias = at
    at += a.bc * a.item
    s.k = at
    if a.packs_k:
        at += round_up(a.bc * a.d * a.item, LINE)
    s.v = at
    if a.packs_v:
        at += round_up(a.bc * a.dv * a.item, LINE)
    s.block = at
    at += block_bytes(a)
    s.bytes = round_up(at - base, 4096)
    return s.bytes


# What a chunk of the keys leaves: O, maxima, sums.
cdef inline size_t part_bytes(const Attend *a) noexcept nogil:
    return round_up(a.rows * (a.dv + 2) * a.item, LINE)


cdef bint suits_decode(const Attend *a) noexcept nogil:
    """Measured: rows from which a panel of one vector is faster.  Panels of BF16 win early; where K and V would be widened for
    panels, late."""
    cdef ptrdiff_t rows = a.lq * a.group, vl = select_soft(a.acc, a.acc).vl
    cdef int eighths = 3 if panel_type(a.q_type, a.q_type) == GK_BF16 else 6 if a.q_type == a.acc else 8
    return rows <= MOST_ROWS and (rows <= 1 or 8 * rows <= eighths * vl)


cdef void prepare_decode(Attend *a) noexcept nogil:
    cdef Space s
    cdef ptrdiff_t heads = a.batch * a.kv_heads, blocks
    cdef int x
    a.packs_k = a.packs_v = False
    for x in range(2):  # rows of dot products read along K's last axis, streams along V's
        if a.piece[x].count:
            a.packs_k = a.packs_k or (a.piece[x].k.d != a.q_item and a.d > 1)
            a.packs_v = a.packs_v or (a.piece[x].v.d != a.v_item and a.dv > 1)
    a.qk_row = select_row(GK_DOT, a.acc, a.acc if a.packs_k else a.q_type, 1)
    # A few rows stream V; more keep a tile of O in registers.
    a.rows = a.lq * a.group
    a.pv_row = select_row(GK_GEMM if a.rows > STREAMED else GK_STREAM, a.acc, a.acc if a.packs_v else a.v_type, 1 << 30)
    a.qk_panel = a.pv_panel = a.acc
    a.widen_q, a.finish_q = select_pack(a.q_type, a.acc), select_epilogue(a.acc, a.acc)
    a.pack_k, a.pack_v = select_pack(a.q_type, a.acc), select_pack(a.v_type, a.acc)
    a.soft = select_soft(a.acc, a.acc)
    a.r, a.panels, a.groups = a.rows, 1, 1
    a.bc = BC
    blocks = ceil_div(a.total, BC)
    a.splits, a.chunk = 1, blocks
    if heads and heads < TASKS and blocks >= 2 * LEAST_CHUNK:
        a.splits = least(ceil_div(TASKS, heads), blocks // LEAST_CHUNK)
        a.chunk = ceil_div(blocks, a.splits)
        a.splits = ceil_div(blocks, a.chunk)
    a.each = carve(a, NULL, &s)


cdef void lay_out_queries(const Attend *a, ptrdiff_t b, ptrdiff_t kvh, char *q) noexcept nogil:
    """Rows of the type of sums, times a power of two."""
    cdef gk_epi_args e
    gather_rows(a, b, kvh, 0, a.rows, q)
    if a.power != 1:
        e.acc, e.c, e.m, e.n = q, q, a.rows, a.d
        e.rs_acc = e.rs_c = a.d * a.item
        e.alpha, e.beta, e.bias, e.rs_bias, e.cs_bias = a.power, 0.0, NULL, 0, 0
        a.finish_q(&e)


cdef void multiply_keys(const Attend *a, const Space *s, const Block *at, ptrdiff_t js, ptrdiff_t n) noexcept nogil:
    """Scores of n keys from js on, all rows."""
    cdef gk_ukr_args g
    cdef ptrdiff_t i = 0, j, mr = a.qk_row.mr, nr = a.qk_row.nr
    cdef const char *k = at.k + (js - at.j0) * at.k_l
    g.rs_a, g.cs_a = a.d * a.item, a.item
    g.cs_b, g.rs_b = at.k_l, at.k_d
    if a.packs_k:
        a.pack_k.lines(k, at.k_l, at.k_d, n, a.d, 1, s.k, NULL)
        k, g.cs_b, g.rs_b = s.k, a.d * a.item, a.item
    g.rs_c, g.add, g.rs_add, g.k = a.bc * a.item, NULL, 0, a.d
    while i < a.rows:
        g.a, g.m = s.q + i * g.rs_a, least(mr, a.rows - i)
        j = 0
        while j < n:
            g.b, g.n = k + j * g.cs_b, least(nr, n - j)
            g.c = s.s + i * g.rs_c + j * a.item
            if i == 0 and a.cold:
                gk_prefetch_rows(g.b + AHEAD * g.cs_b, nr, g.cs_b, a.d * a.q_item)
            a.qk_row.fn(&g)
            j += nr
        i += mr


cdef void multiply_values(const Attend *a, const Space *s, const Block *at, ptrdiff_t js, ptrdiff_t n, bint begun) noexcept nogil:
    """O (+)= P V."""
    cdef gk_ukr_args g
    cdef ptrdiff_t i = 0, j, step = a.dv
    cdef const char *v
    g.b, g.rs_b, g.cs_b = at.v + (js - at.j0) * at.v_l, at.v_l, at.v_d
    if a.packs_v:
        a.pack_v.lines(g.b, at.v_l, at.v_d, n, a.dv, 1, s.v, NULL)
        g.b, g.rs_b, g.cs_b = s.v, a.dv * a.item, a.item
    g.rs_a, g.cs_a = a.bc * a.item, a.item
    g.rs_c = g.rs_add = a.dv * a.item
    g.k, v = n, g.b
    if a.pv_row.role == GK_GEMM:  # columns in even strips of whole vectors
        step = round_up(ceil_div(a.dv, ceil_div(a.dv, a.pv_row.nr)), a.pv_row.vl)
    while i < a.rows:
        g.m = least(a.pv_row.mr, a.rows - i)
        g.a, j = s.s + i * g.rs_a, 0
        while j < a.dv:
            g.b, g.c, g.n = v + j * g.cs_b, s.o + i * g.rs_c + j * a.item, least(step, a.dv - j)
            g.add = g.c if begun else NULL
            a.pv_row.fn(&g)
            j += step
        i += g.m


cdef void none_left(real *row, ptrdiff_t low, ptrdiff_t high, real x) noexcept nogil:
    cdef ptrdiff_t j
    for j in range(low, high):
        row[j] = x


cdef bint weigh_row(const Attend *a, const Space *s, ptrdiff_t b, ptrdiff_t kvh, ptrdiff_t r, ptrdiff_t js, ptrdiff_t n, bint begun,
                    real *o) noexcept nogil:
    """Scores of one row become weights; what was added up before is rescaled.  The row's type says which of its arrays is meant."""
    cdef ptrdiff_t vl = a.soft.vl, whole = round_up(n, vl), low, high, c, i = r // a.group, some
    cdef real *row = <real *>s.s + r * a.bc
    cdef real *max = <real *>s.vectors
    cdef real *next = <real *>(s.vectors + LINE)
    cdef real *alpha = <real *>(s.vectors + 2 * LINE)
    cdef real *sum = <real *>(s.vectors + 3 * LINE)
    cdef real *row_max = <real *>s.max + r
    cdef real *row_sum = <real *>s.sum + r
    cdef real most, total
    cdef gk_soft_args f
    interval(a, b, i, &low, &high)
    low, high = clamp(low - js, 0, n), clamp(high - js, 0, n)
    memset(&f, 0, sizeof(f))
    f.s, f.rs_s, f.n, f.lanes = <char *>row, vl * a.item, whole // vl, vl
    f.p, f.rs_p, f.factor, f.softcap = f.s, f.rs_s, a.factor, a.softcap
    f.max, f.next, f.alpha, f.sum = <char *>max, <char *>next, <char *>alpha, <char *>sum
    none_left(max, 0, vl, <real>(-INFINITY))
    none_left(sum, 0, vl, <real>0)
    if a.mask_type >= 0:
        some = least(n, a.mask_keys - js)
        if low >= high or some <= 0 or not mask_row(a, b, kvh * a.group + r % a.group, i, js, some, s.bias):
            high = low  # no key
        else:
            none_left(<real *>s.bias, some, whole, <real>(-INFINITY))
            f.bias, f.rs_bias = s.bias, f.rs_s
    if low >= high:
        none_left(row, 0, n, <real>0)
        return False
    if f.bias != NULL or a.softcap > 0:
        none_left(row, n, whole, <real>0)
        a.soft.scan(&f)
        f.bias, f.softcap, f.factor = NULL, 0, 1
    none_left(row, 0, low, <real>(-INFINITY))
    none_left(row, high, whole, <real>(-INFINITY))
    a.soft.scan(&f)
    most = row_max[0]
    for c in range(vl):
        if next[c] > most:
            most = next[c]
    none_left(max, 0, vl, row_max[0])
    none_left(next, 0, vl, most)
    a.soft.weigh(&f)
    total = 0
    for c in range(vl):
        total += sum[c]
    row_sum[0] = row_sum[0] * alpha[0] + total
    row_max[0] = most
    if begun and alpha[0] != 1:
        for c in range(a.dv):
            o[r * a.dv + c] *= alpha[0]
    return True


cdef bint weigh(const Attend *a, const Space *s, ptrdiff_t b, ptrdiff_t kvh, ptrdiff_t js, ptrdiff_t n, bint begun) noexcept nogil:
    cdef ptrdiff_t r
    cdef bint some = False
    for r in range(a.rows):
        if a.acc == GK_F64:
            some |= weigh_row(a, s, b, kvh, r, js, n, begun, <double *>s.o)
        else:
            some |= weigh_row(a, s, b, kvh, r, js, n, begun, <float *>s.o)
    return some


cdef void merge(const Attend *a, real *into, const real *part) noexcept nogil:
    """The sums of two chunks brought to a common maximum; chunks without a key have sums of 0."""
    cdef ptrdiff_t r, c, dv = a.dv
    cdef real *max = into + a.rows * dv
    cdef real *sum = max + a.rows
    cdef const real *other_max = part + a.rows * dv
    cdef const real *other_sum = other_max + a.rows
    cdef real m, here, there
    for r in range(a.rows):
        m = max[r] if max[r] >= other_max[r] or other_max[r] != other_max[r] else other_max[r]
        here = <real>exp(max[r] - m) if sum[r] != 0 else <real>0
        there = <real>exp(other_max[r] - m) if other_sum[r] != 0 else <real>0
        max[r], sum[r] = m, sum[r] * here + other_sum[r] * there
        for c in range(dv):
            into[r * dv + c] = into[r * dv + c] * here + part[r * dv + c] * there


cdef void divide(const Attend *a, ptrdiff_t b, ptrdiff_t kvh, real *o, const real *sum) noexcept nogil:
    cdef ptrdiff_t r, c
    for r in range(a.rows):
        if not sum[r] > 0 and is_dead(a, b, kvh * a.group + r % a.group, r // a.group):
            none_left(o + r * a.dv, 0, a.dv, <real>0)
            continue
        for c in range(a.dv):
            o[r * a.dv + c] /= sum[r]


cdef void finish(const Attend *a, ptrdiff_t b, ptrdiff_t kvh, char *o, const char *sum) noexcept nogil:
    if a.acc == GK_F64:
        divide(a, b, kvh, <double *>o, <const double *>sum)
    else:
        divide(a, b, kvh, <float *>o, <const float *>sum)
    write_rows(a, &a.y, b, kvh, 0, a.rows, o, a.dv * a.item, 0, a.dv, 1.0)


cdef void decode_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """All rows of a key head over a chunk of its keys."""
    cdef const Attend *a = <const Attend *>context
    cdef Space s
    cdef Block at
    cdef ptrdiff_t heads = a.batch * a.kv_heads, head = task // a.splits, part = task % a.splits, b = head // a.kv_heads
    cdef ptrdiff_t kvh = head % a.kv_heads, x, low, high, unused, js, n
    cdef bint begun = False
    cdef char *into
    carve(a, a.space + thread * a.each, &s)
    lay_out_queries(a, b, kvh, s.q)
    if a.acc == GK_F64:
        none_left(<double *>s.max, 0, a.rows, <double>(-INFINITY))
    else:
        none_left(<float *>s.max, 0, a.rows, <float>(-INFINITY))
    memset(s.sum, 0, a.rows * a.item)
    interval(a, b, 0, &low, &unused)
    interval(a, b, a.lq - 1, &unused, &high)
    for x in range(part * a.chunk, least((part + 1) * a.chunk, ceil_div(a.total, a.bc))):
        js, n = x * a.bc, least(high, (x + 1) * a.bc)
        if js < low:
            js = low
        n -= js
        if n <= 0:
            continue
        locate(a, b, kvh, x, s.block, &at)
        multiply_keys(a, &s, &at, js, n)
        if weigh(a, &s, b, kvh, js, n, begun):
            multiply_values(a, &s, &at, js, n, begun)
            begun = True
    if not begun:
        memset(s.o, 0, a.rows * a.dv * a.item)
    if a.splits == 1:
        finish(a, b, kvh, s.o, s.sum)
        return
    into = a.parts + task * part_bytes(a)
    memcpy(into, s.o, a.rows * a.dv * a.item)
    into += a.rows * a.dv * a.item
    memcpy(into, s.max, a.rows * a.item)
    memcpy(into + a.rows * a.item, s.sum, a.rows * a.item)


cdef void merge_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """The chunks of one key head, in the order of the keys."""
    cdef const Attend *a = <const Attend *>context
    cdef char *into = a.parts + task * a.splits * part_bytes(a)
    cdef ptrdiff_t x
    for x in range(1, a.splits):
        if a.acc == GK_F64:
            merge(a, <double *>into, <const double *>(into + x * part_bytes(a)))
        else:
            merge(a, <float *>into, <const float *>(into + x * part_bytes(a)))
    finish(a, task // a.kv_heads, task % a.kv_heads, into, into + a.rows * (a.dv + 1) * a.item)


cdef inline ptrdiff_t tasks(const Attend *a) noexcept nogil:
    return a.batch * a.kv_heads * a.splits


cdef size_t decode_bytes(const Attend *a, int num_threads) noexcept nogil:
    return a.each * least(num_threads, tasks(a)) + (tasks(a) * part_bytes(a) if a.splits > 1 else 0)


cdef int run_decode(const Attend *decided, int num_threads) noexcept nogil:
    cdef Attend a = decided[0]
    if tasks(&a) == 0 or a.rows == 0:
        return 0
    num_threads = <int>least(num_threads, tasks(&a))
    a.space = <char *>take(decode_bytes(&a, num_threads))
    if a.space == NULL:
        return 1
    a.parts = a.space + a.each * num_threads
    parallel_for(decode_task, &a, tasks(&a), num_threads)
    if a.splits > 1:
        parallel_for(merge_task, &a, a.batch * a.kv_heads, num_threads)
    give(a.space)
    return 0
