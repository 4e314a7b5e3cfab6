"""Panels of queries: the streaming and the materialized path of attention.

A lane is a query: S' = K Q' and O' += V' P are products of the tile row whose A lies as K and V do, and the softmax between
them is vertical.  docs/attention.md has the loops, and which of these tiles stays where.
"""
from libc.math cimport INFINITY, exp
from libc.string cimport memcpy, memset

from gemmkit._kernels._heads cimport PATH_MATERIALIZED, Attend, Block, block_bytes, fetch, gather_rows, interval, locate, store, write_rows
from gemmkit._kernels._masks cimport MASK_NONE_LEFT, is_dead, mask_tile
from gemmkit._kernels._numbers cimport ceil_div, clamp, least, round_up
from gemmkit._kernels._parallel cimport give, parallel_for, take, thread_limit
from gemmkit._kernels._registry cimport (GK_BF16, GK_BOOL, GK_F32, GK_F64, GK_GEMM, GK_MOST_R, GK_WANTS_LINES, current_cpu, gk_depth, gk_epi_args,
                                         gk_flush_free, gk_least_of, gk_panel_bytes, gk_soft_args, gk_ukr_args, gk_ukr_fn, panel_type,
                                         select_epilogue, select_exact, select_pack, select_row, select_soft)

cdef extern from "prefetch.h" nogil:
    void gk_prefetch_rows(const char *p, ptrdiff_t rows, ptrdiff_t apart, ptrdiff_t bytes)

cdef enum:
    LINE = 64
    BC = 128
    BC_BF16 = 256  # half the bytes, and products so fast that what is done once a block shows
    MOST_PANELS = 32
    TASKS_PER_THREAD = 4  # for balance
    TASKS = 32  # keys are cut into chunks if there are fewer panels
    LEAST_CHUNK = 4  # blocks
    FAR_ROWS = 2048  # bytes from one row of V to the next from which strips of columns touch too many pages
    SAFE_LEAST = 27  # biased exponent of 2^-100

ctypedef fused real:
    float
    double


# One thread's workspace.
cdef struct Space:
    char *q  # [panels] of packed queries
    char *o  # [panels][dv][r]: sums, queries in lanes
    char *max  # [panels][r]
    char *sum
    char *next  # [r], of the panel at hand
    char *alpha
    char *low
    char *high
    char *s  # [bc][r] scores; all keys in the materialized path
    char *p  # weights, if they are not of the scores' type
    char *k  # a block, widened
    char *v
    char *bias  # [bc][r]
    char *stage  # [r] rows of queries, masks or results
    char *narrow  # [r] rows of queries as they are packed
    char *block  # a copied one
    size_t bytes


cdef size_t carve(const Attend *a, char *base, Space *s) noexcept nogil:
    cdef ptrdiff_t r = a.r, item = a.item, line = round_up(r * item, LINE)
    cdef ptrdiff_t keys = a.total if a.path == PATH_MATERIALIZED else a.bc
    cdef ptrdiff_t longest = a.bc
    cdef char *at = base
    if a.d > longest:
        longest = a.d
    if a.dv > longest:
        longest = a.dv
    s.q = at
    at += a.panels * round_up(gk_panel_bytes(a.qk_panel, r, a.d), LINE)
    s.o = at
    at += round_up(a.panels * a.dv * r * item, LINE)
    s.max = at
    at += a.panels * line
    s.sum = at
    at += a.panels * line
    s.next, s.alpha, s.low, s.high = at, at + line, at + 2 * line, at + 3 * line
    at += 4 * line
    s.s = at
    at += round_up(keys * r * item, LINE)
    s.p = at
    if a.pv_panel == GK_BF16:
        at += round_up(ceil_div(a.bc, 2) * r * 4, LINE)
    else:
        s.p = s.s
    s.k = at
    if a.packs_k:
        at += round_up(ceil_div(a.bc, a.qk_row.mr) * gk_panel_bytes(a.qk_panel, a.qk_row.mr, a.d), LINE)
    s.v = at
    at += round_up(ceil_div(a.dv, a.pv_row.mr) * gk_panel_bytes(a.pv_panel, a.pv_row.mr, a.bc), LINE)
    s.bias = at
    if a.mask_type >= 0:
        at += a.bc * line
    s.stage = at
    at += round_up(r * round_up(longest, GK_MOST_R) * item, LINE)  # results are turned over in pieces of GK_MOST_R columns
    s.narrow = at
    if a.qk_panel == GK_BF16:
        at += round_up(r * a.d * 2, LINE)
    s.block = at
    at += block_bytes(a)
    s.bytes = round_up(at - base, 4096)
    return s.bytes


# The first row of a panel.  Vectors are dealt out evenly, since a panel of one vector multiplies at half the speed.
cdef inline ptrdiff_t row_of(const Attend *a, ptrdiff_t panel) noexcept nogil:
    return least(panel * a.vectors // a.all_panels * a.soft.vl, a.rows)


# What a chunk of the keys leaves of a panel: O', maxima, sums.
cdef inline size_t part_bytes(const Attend *a) noexcept nogil:
    return round_up((a.dv + 2) * a.r * a.item, LINE)


cdef void prepare_panels(Attend *a) noexcept nogil:
    cdef ptrdiff_t heads = a.batch * a.kv_heads, per_panel, most
    cdef Space s
    cdef bint materialized = a.path == PATH_MATERIALIZED
    a.qk_panel = panel_type(a.q_type, a.q_type)
    # The materialized path shows weights as they are before they would be rounded to BF16.
    a.pv_panel = a.acc if materialized else panel_type(a.v_type, a.v_type)
    a.qk_row = select_row(GK_GEMM, a.qk_panel, a.qk_panel, 1 << 30)
    a.pv_row = select_row(GK_GEMM, a.pv_panel, a.pv_panel, 1 << 30)
    a.qk_exact = select_exact(a.qk_row) if a.qk_panel == GK_BF16 else NULL
    a.pv_exact = select_exact(a.pv_row) if a.pv_panel == GK_BF16 else NULL
    a.widen_q, a.pack_q = select_pack(a.q_type, a.acc), select_pack(a.qk_panel, a.qk_panel)
    a.finish_q = select_epilogue(a.acc, a.qk_panel)
    a.pack_k, a.pack_v = select_pack(a.q_type, a.qk_panel), select_pack(a.v_type, a.pv_panel)
    a.packs_k = a.qk_panel == GK_BF16 or a.q_type != a.acc
    a.packs_v = a.pv_panel == GK_BF16 or a.v_type != a.acc
    a.v_lines = a.pv_panel == GK_BF16 and a.pv_row.flags & GK_WANTS_LINES != 0
    a.turn = select_pack(a.acc, a.acc)
    a.soft = select_soft(a.acc, a.pv_panel)
    a.r = least(a.qk_row.nr, a.pv_row.nr)
    a.rows = a.lq * a.group
    a.bc = BC_BF16 if a.pv_panel == GK_BF16 else BC
    a.splits, a.chunk = 1, ceil_div(a.total, a.bc)
    a.panels = 1
    a.vectors = ceil_div(a.rows, a.soft.vl)
    a.all_panels = ceil_div(a.vectors, a.r // a.soft.vl)
    if a.mask_type == a.acc or (a.acc == GK_F32 and (a.widen_mask != NULL or a.mask_type == GK_BOOL)):
        a.turn_mask = select_pack(a.mask_type, a.acc)
    if not materialized and a.rows:
        # Bits don't depend on how many panels share a pass over the keys, so the number of threads may decide.
        per_panel = a.r * (a.d + a.dv) * a.item
        most = clamp(current_cpu().l2.size // 2 // per_panel, 1, MOST_PANELS) if per_panel else 1
        a.panels = clamp(heads * a.all_panels // (TASKS_PER_THREAD * thread_limit()), 1, most)
        if 0 < heads * a.all_panels < TASKS and a.chunk >= 2 * LEAST_CHUNK:
            a.splits = least(ceil_div(TASKS, heads * a.all_panels), a.chunk // LEAST_CHUNK)
            a.chunk = ceil_div(a.chunk, a.splits)
            a.splits = ceil_div(ceil_div(a.total, a.bc), a.chunk)
            a.panels = 1
    a.groups = ceil_div(a.all_panels, a.panels)
    a.each = carve(a, NULL, &s)


# ---- Q ----------------------------------------------------------------------------------------------------------

cdef void pack_queries(const Attend *a, const Space *s, ptrdiff_t b, ptrdiff_t kvh, ptrdiff_t r0, ptrdiff_t w, char *panel) noexcept nogil:
    """Gathers w rows, multiplies them by a power of two, and packs them."""
    cdef char *rows = s.stage
    cdef gk_epi_args e
    gather_rows(a, b, kvh, r0, w, rows)
    if a.power != 1 or a.qk_panel == GK_BF16:
        e.acc, e.rs_acc, e.m, e.n = rows, a.d * a.item, w, a.d
        e.c = s.narrow if a.qk_panel == GK_BF16 else rows
        e.rs_c = a.d * (2 if a.qk_panel == GK_BF16 else a.item)
        e.alpha, e.beta, e.bias, e.rs_bias, e.cs_bias = a.power, 0.0, NULL, 0, 0
        a.finish_q(&e)
        rows = e.c
    if a.qk_panel == GK_BF16:
        a.pack_q.panels(rows, a.d * 2, 2, w, a.d, a.r, panel, NULL)
    else:
        a.pack_q.panels(rows, a.d * a.item, a.item, w, a.d, a.r, panel, NULL)


# ---- one block of keys for one panel ----------------------------------------------------------------------------

# What a task does at the moment.
cdef struct At:
    const Attend *a
    Space s
    ptrdiff_t b, kvh
    Block block
    bint packed_k, packed_v, fresh  # fresh: no panel has read the block yet, which waits for memory
    ptrdiff_t keys  # of the block that were packed: those that some query of the task sees


cdef void multiply_keys(At *t, const char *panel, ptrdiff_t js, ptrdiff_t n, ptrdiff_t lanes, char *scores) noexcept nogil:
    """S' = K Q' for n keys from js on."""
    cdef const Attend *a = t.a
    cdef gk_ukr_args g
    cdef gk_ukr_fn fn = a.qk_row.fn
    cdef ptrdiff_t i = 0, mr = a.qk_row.mr, kr = a.qk_row.kr, bytes = 0, line = a.r * a.item
    cdef const char *k = t.block.k + (js - t.block.j0) * t.block.k_l
    cdef int least_q = 0
    cdef bint bf16 = a.qk_panel == GK_BF16
    g.rs_a, g.cs_a = t.block.k_l, t.block.k_d
    if a.packs_k:
        if not t.packed_k:
            a.pack_k.lines(t.block.k, t.block.k_l, t.block.k_d, t.keys, a.d, mr, t.s.k, NULL)
            t.packed_k = True
        if bf16:
            bytes = gk_panel_bytes(GK_BF16, mr, a.d)
            k = t.s.k + (js - t.block.j0) // mr * bytes
            g.rs_a, g.cs_a = gk_depth(GK_BF16, a.d) * 2, 4
            least_q = gk_least_of(panel, a.r, a.d)
        else:
            k = t.s.k + (js - t.block.j0) * a.d * a.item
            g.rs_a, g.cs_a = a.d * a.item, a.item
    if not bf16:
        bytes = mr * g.rs_a
    g.b, g.cs_b = panel, 4 if bf16 else a.item
    g.rs_b = a.r * g.cs_b
    g.rs_c, g.add, g.rs_add = line, NULL, 0
    g.n, g.k = lanes, ceil_div(a.d, kr)
    while i < n:
        g.m = least(mr, n - i)
        g.a, g.c = k, scores + i * line
        if bf16 and a.qk_exact != NULL:
            fn = a.qk_row.fn if gk_flush_free(gk_least_of(k, mr, a.d), least_q) else a.qk_exact.fn
        if t.fresh:
            # The first panel waits for memory: the next keys, and the values that go with these.
            if not a.packs_k and i + mr < n:
                gk_prefetch_rows(k + bytes, least(mr, n - i - mr), t.block.k_l, a.d * a.q_item)
            gk_prefetch_rows(t.block.v + (js - t.block.j0 + i) * t.block.v_l, g.m, t.block.v_l, a.dv * a.v_item)
        fn(&g)
        k += bytes
        i += mr
    t.fresh = False


cdef void multiply_values(At *t, const char *weights, ptrdiff_t js, ptrdiff_t n, ptrdiff_t lanes, char *o, bint begun) noexcept nogil:
    """O' (+)= V' P for n keys from js on."""
    cdef const Attend *a = t.a
    cdef gk_ukr_args g
    cdef gk_ukr_fn fn = a.pv_row.fn
    cdef ptrdiff_t i = 0, mr = a.pv_row.mr, kr = a.pv_row.kr, bytes, line = a.r * a.item, skipped = js - t.block.j0
    cdef bint bf16 = a.pv_panel == GK_BF16
    cdef const char *v
    cdef const char *first
    cdef int least_v
    g.n, g.k = lanes, ceil_div(n, kr)
    g.cs_b = 4 if bf16 else a.item
    g.rs_b = a.r * g.cs_b
    g.b, g.rs_c, g.rs_add = weights, line, line
    if a.packs_v or t.block.v_l >= FAR_ROWS or t.block.v_l <= -FAR_ROWS:
        bytes = gk_panel_bytes(a.pv_panel, mr, t.keys)
        if not t.packed_v:
            if a.v_lines:
                a.pack_v.lines(t.block.v, t.block.v_d, t.block.v_l, a.dv, t.keys, mr, t.s.v, NULL)
            else:
                a.pack_v.panels(t.block.v, t.block.v_d, t.block.v_l, a.dv, t.keys, mr, t.s.v, NULL)
            t.packed_v = True
        v = t.s.v
        if a.v_lines:
            g.rs_a, g.cs_a = gk_depth(GK_BF16, t.keys) * 2, 4
            skipped *= 2
        elif bf16:
            g.rs_a, g.cs_a = 4, mr * 4
            skipped *= mr * 2
        else:
            g.rs_a, g.cs_a = a.item, mr * a.item
            skipped *= mr * a.item
    else:
        v, g.rs_a, g.cs_a = t.block.v, t.block.v_d, t.block.v_l
        bytes, skipped = mr * t.block.v_d, skipped * t.block.v_l
    while i < a.dv:
        g.m = least(mr, a.dv - i)
        g.a, g.c = v + skipped, o + i * line
        g.add = g.c if begun else NULL
        if bf16 and a.pv_exact != NULL:
            # A weight is beside one of 1: what its product loses below 2^-126 shows only if all of V is near that.
            least_v = gk_least_of(v, mr, t.keys) >> 7
            fn = a.pv_row.fn if least_v >= SAFE_LEAST else a.pv_exact.fn
        fn(&g)
        v += bytes
        i += mr


cdef void set_bounds(const At *t, ptrdiff_t r0, ptrdiff_t w, ptrdiff_t js, ptrdiff_t n, gk_soft_args *f) noexcept nogil:
    """Which of the tile's keys each lane sees."""
    cdef ptrdiff_t x, i, before = -1, low = 0, high = 0
    for x in range(w):
        i = (r0 + x) // t.a.group
        if i != before:
            interval(t.a, t.b, i, &low, &high)
            low, high = clamp(low - js, 0, n), clamp(high - js, 0, n)
            before = i
        store(t.a, t.s.low, x, <double>low)
        store(t.a, t.s.high, x, <double>high)
    for x in range(w, f.lanes):
        store(t.a, t.s.low, x, 0)
        store(t.a, t.s.high, x, <double>n)
    f.low, f.high = t.s.low, t.s.high


cdef inline void start_softmax(const At *t, ptrdiff_t panel, ptrdiff_t w, gk_soft_args *f) noexcept nogil:
    cdef const Attend *a = t.a
    cdef ptrdiff_t line = round_up(a.r * a.item, LINE)
    memset(f, 0, sizeof(gk_soft_args))
    f.lanes = round_up(w, a.soft.vl)
    f.rs_s = a.r * a.item
    f.rs_p = a.r * 4 if a.pv_panel == GK_BF16 else f.rs_s
    f.max, f.sum, f.next, f.alpha = t.s.max + panel * line, t.s.sum + panel * line, t.s.next, t.s.alpha


cdef void visit(At *t, ptrdiff_t panel, ptrdiff_t r0, ptrdiff_t w, bint *begun) noexcept nogil:
    """The block at hand for one panel of w queries: two products and the softmax between them."""
    cdef const Attend *a = t.a
    cdef ptrdiff_t low, high, least_high, most_low, js, n
    cdef char *o = t.s.o + panel * a.dv * a.r * a.item
    cdef gk_soft_args f
    cdef int mask, changed
    interval(a, t.b, r0 // a.group, &low, &least_high)
    interval(a, t.b, (r0 + w - 1) // a.group, &most_low, &high)
    js, high = t.block.j0, least(high, t.block.j1)
    if low > js:  # whole micro-panels are left out
        js += (low - js) // a.qk_row.mr * a.qk_row.mr
    n = high - js
    if n <= 0:
        return
    start_softmax(t, panel, w, &f)
    mask = mask_tile(a, t.b, t.kvh, r0, w, js, n, t.s.stage, t.s.bias, &f)
    if mask == MASK_NONE_LEFT:
        return
    if most_low > js or least_high < high:
        set_bounds(t, r0, w, js, n, &f)
    multiply_keys(t, t.s.q + panel * round_up(gk_panel_bytes(a.qk_panel, a.r, a.d), LINE), js, n, f.lanes, t.s.s)
    f.s, f.n, f.p, f.factor, f.softcap = t.s.s, n, t.s.p, a.factor, a.softcap
    a.soft.scan(&f)
    if f.bias != NULL or f.low != NULL or f.softcap > 0:
        f.factor = 1
    changed = a.soft.weigh(&f)
    if begun[0] and changed:
        f.s, f.n = o, a.dv
        a.soft.rescale(&f)
    multiply_values(t, t.s.p, js, n, f.lanes, o, begun[0])
    begun[0] = True


# ---- results ----------------------------------------------------------------------------------------------------

cdef void write_panel(const At *t, const gk_soft_args *f, ptrdiff_t r0, ptrdiff_t w, const bint *dead, bint begun) noexcept nogil:
    """O / l, turned over, into Y; f.s is O."""
    cdef const Attend *a = t.a
    cdef ptrdiff_t wide = a.dv if a.dv < GK_MOST_R else GK_MOST_R, at = 0, x
    cdef char *piece = t.s.stage
    if not begun:
        memset(f.s, 0, a.dv * f.rs_s)
    a.soft.divide(f)
    if wide:
        a.turn.panels(f.s, f.rs_s, a.item, a.dv, w, wide, t.s.stage, NULL)
    while at < a.dv:
        for x in range(w):
            if dead[x]:
                memset(piece + x * wide * a.item, 0, wide * a.item)
        write_rows(a, &a.y, t.b, t.kvh, r0, w, piece, wide * a.item, at, least(wide, a.dv - at), 1.0)
        piece += w * wide * a.item
        at += wide


cdef void find_dead(const At *t, const gk_soft_args *f, ptrdiff_t r0, ptrdiff_t w, bint *dead) noexcept nogil:
    """A lane whose weights add up to something is alive; another, NaN included, is dead if the bias leaves it no key."""
    cdef ptrdiff_t x
    for x in range(w):
        dead[x] = not fetch(t.a, f.sum, x) > 0 and is_dead(t.a, t.b, t.kvh * t.a.group + (r0 + x) % t.a.group, (r0 + x) // t.a.group)


cdef void finish_panel(const At *t, ptrdiff_t panel, ptrdiff_t r0, ptrdiff_t w, bint begun) noexcept nogil:
    cdef gk_soft_args f
    cdef bint dead[GK_MOST_R]
    start_softmax(t, panel, w, &f)
    f.s, f.n = t.s.o + panel * t.a.dv * t.a.r * t.a.item, t.a.dv
    find_dead(t, &f, r0, w, dead)
    write_panel(t, &f, r0, w, dead, begun)


cdef void leave_part(const At *t, ptrdiff_t panel, ptrdiff_t index, bint begun) noexcept nogil:
    """(O', m, l) of a chunk of the keys."""
    cdef const Attend *a = t.a
    cdef ptrdiff_t line = a.r * a.item, apart = round_up(line, LINE)
    cdef char *part = a.parts + index * part_bytes(a)
    if begun:
        memcpy(part, t.s.o + panel * a.dv * line, a.dv * line)
    else:
        memset(part, 0, a.dv * line)
    memcpy(part + a.dv * line, t.s.max + panel * apart, line)
    memcpy(part + (a.dv + 1) * line, t.s.sum + panel * apart, line)


cdef void merge(const Attend *a, real *into, const real *part, ptrdiff_t lanes) noexcept nogil:
    """The sums of two chunks brought to a common maximum; the order of chunks is that of the keys."""
    cdef ptrdiff_t x, c, r = a.r
    cdef real *max = into + a.dv * r
    cdef real *sum = max + r
    cdef const real *other_max = part + a.dv * r
    cdef const real *other_sum = other_max + r
    cdef real here[GK_MOST_R]
    cdef real there[GK_MOST_R]
    cdef real m
    for x in range(lanes):
        m = max[x] if max[x] >= other_max[x] or other_max[x] != other_max[x] else other_max[x]
        # Chunks without a key have a maximum of -inf and sums of 0; NaN has its way through the sums.
        here[x] = <real>exp(max[x] - m) if sum[x] != 0 else <real>0
        there[x] = <real>exp(other_max[x] - m) if other_sum[x] != 0 else <real>0
        max[x], sum[x] = m, sum[x] * here[x] + other_sum[x] * there[x]
    for c in range(a.dv):
        for x in range(lanes):
            into[c * r + x] = into[c * r + x] * here[x] + part[c * r + x] * there[x]


# ---- tasks ------------------------------------------------------------------------------------------------------

cdef void panels_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """A group of panels over a chunk of the keys."""
    cdef const Attend *a = <const Attend *>context
    cdef At t
    cdef bint begun[MOST_PANELS]
    cdef ptrdiff_t heads = a.batch * a.kv_heads, head = task % heads, part = task // heads % a.splits
    # The last queries first: with causality they take longest.
    cdef ptrdiff_t group = a.groups - 1 - task // heads // a.splits
    cdef ptrdiff_t first = group * a.panels, panels = least(a.all_panels - first, a.panels)
    cdef ptrdiff_t x, p, r0, low, high, unused
    t.a, t.b, t.kvh = a, head // a.kv_heads, head % a.kv_heads
    carve(a, a.space + thread * a.each, &t.s)
    for p in range(panels):
        r0 = row_of(a, first + p)
        pack_queries(a, &t.s, t.b, t.kvh, r0, row_of(a, first + p + 1) - r0, t.s.q + p * round_up(gk_panel_bytes(a.qk_panel, a.r, a.d), LINE))
        begun[p] = False
        for x in range(a.r):
            store(a, t.s.max + p * round_up(a.r * a.item, LINE), x, -INFINITY)
            store(a, t.s.sum + p * round_up(a.r * a.item, LINE), x, 0)
    interval(a, t.b, row_of(a, first) // a.group, &low, &unused)
    interval(a, t.b, (row_of(a, first + panels) - 1) // a.group, &unused, &high)
    for x in range(part * a.chunk, least((part + 1) * a.chunk, ceil_div(a.total, a.bc))):
        if x * a.bc >= high or (x + 1) * a.bc <= low:
            continue
        locate(a, t.b, t.kvh, x, t.s.block, &t.block)
        t.packed_k, t.packed_v, t.fresh, t.keys = False, False, a.cold, least(t.block.j1, high) - t.block.j0
        for p in range(panels):
            r0 = row_of(a, first + p)
            visit(&t, p, r0, row_of(a, first + p + 1) - r0, &begun[p])
    for p in range(panels):
        r0 = row_of(a, first + p)
        if a.splits > 1:
            leave_part(&t, p, (head * a.all_panels + first + p) * a.splits + part, begun[p])
        else:
            finish_panel(&t, p, r0, row_of(a, first + p + 1) - r0, begun[p])
    release(a)


cdef void release(const Attend *a) noexcept nogil:
    if a.qk_row.release != NULL:
        a.qk_row.release()
    if a.pv_row.release != NULL and a.pv_row.release != a.qk_row.release:
        a.pv_row.release()


cdef void merge_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """The chunks of one panel, in order."""
    cdef const Attend *a = <const Attend *>context
    cdef At t
    cdef ptrdiff_t head = task // a.all_panels, r0 = row_of(a, task % a.all_panels), w = row_of(a, task % a.all_panels + 1) - r0
    cdef ptrdiff_t x, line = a.r * a.item
    cdef char *into = a.parts + task * a.splits * part_bytes(a)
    t.a, t.b, t.kvh = a, head // a.kv_heads, head % a.kv_heads
    carve(a, a.space + thread * a.each, &t.s)
    for x in range(1, a.splits):
        if a.acc == GK_F64:
            merge(a, <double *>into, <const double *>(into + x * part_bytes(a)), w)
        else:
            merge(a, <float *>into, <const float *>(into + x * part_bytes(a)), w)
    memcpy(t.s.o, into, a.dv * line)
    memcpy(t.s.max, into + a.dv * line, line)
    memcpy(t.s.sum, into + (a.dv + 1) * line, line)
    finish_panel(&t, 0, r0, w, True)


# ---- the materialized path --------------------------------------------------------------------------------------

cdef void show_scores(const At *t, ptrdiff_t r0, ptrdiff_t w, double alpha, const bint *dead) noexcept nogil:
    """The tile of all keys' scores as rows of qk_matmul_output, 64 keys at a time."""
    cdef const Attend *a = t.a
    cdef ptrdiff_t j = 0, x, line = a.r * a.item
    while j < a.total:
        a.turn.panels(t.s.s + j * line, line, a.item, least(GK_MOST_R, a.total - j), w, GK_MOST_R, t.s.stage, NULL)
        for x in range(w):
            if dead != NULL and dead[x]:
                memset(t.s.stage + x * GK_MOST_R * a.item, 0, GK_MOST_R * a.item)
        write_rows(a, &a.qk, t.b, t.kvh, r0, w, t.s.stage, GK_MOST_R * a.item, j, least(GK_MOST_R, a.total - j), alpha)
        j += GK_MOST_R


cdef void materialized_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """One panel over all keys: scores, then one softmax, then values, with what the mode shows in between."""
    cdef const Attend *a = <const Attend *>context
    cdef At t
    cdef gk_soft_args f
    cdef bint dead[GK_MOST_R]
    cdef bint begun = False
    cdef ptrdiff_t heads = a.batch * a.kv_heads, head = task % heads, r0 = row_of(a, task // heads), w = row_of(a, task // heads + 1) - r0
    cdef ptrdiff_t x, line = a.r * a.item, n, blocks = ceil_div(a.total, a.bc), keys = a.total, low, high, j0
    cdef double factor = a.factor
    t.a, t.b, t.kvh = a, head // a.kv_heads, head % a.kv_heads
    carve(a, a.space + thread * a.each, &t.s)
    pack_queries(a, &t.s, t.b, t.kvh, r0, w, t.s.q)
    start_softmax(&t, 0, w, &f)
    for x in range(a.r):
        store(a, f.max, x, -INFINITY)
        store(a, f.sum, x, 0)
    if a.nonpad != NULL and (a.mode < 0 or a.mode == 3):  # padding is read only to be shown
        keys = a.nonpad[t.b]
    for x in range(ceil_div(keys, a.bc)):
        locate(a, t.b, t.kvh, x, t.s.block, &t.block)
        t.packed_k, t.fresh, t.keys = False, False, least(t.block.j1, keys) - t.block.j0
        multiply_keys(&t, t.s.q, t.block.j0, t.keys, f.lanes, t.s.s + t.block.j0 * line)
    if a.mode == 0:
        show_scores(&t, r0, w, factor, NULL)
    if a.softcap > 0:
        f.s, f.n, f.factor, f.softcap = t.s.s, a.total, factor, a.softcap
        a.soft.scan(&f)  # for the scores; its maxima are not of masked ones
        f.softcap, factor = 0, 1
    if a.mode == 1:
        show_scores(&t, r0, w, factor, NULL)
    f.factor = factor
    for x in range(blocks):
        j0 = x * a.bc
        f.s, f.n = t.s.s + j0 * line, least(a.bc, a.total - j0)
        set_bounds(&t, r0, w, j0, f.n, &f)  # always, so that scan stores what it has multiplied
        if mask_tile(a, t.b, t.kvh, r0, w, j0, f.n, t.s.stage, t.s.bias, &f) == MASK_NONE_LEFT:
            for n in range(f.lanes):
                store(a, t.s.high, n, 0)
        a.soft.scan(&f)
        memcpy(f.max, f.next, line)
    f.factor, f.bias, f.low, f.high = 1, NULL, NULL, NULL
    if a.mode == 2:
        show_scores(&t, r0, w, 1, NULL)
    interval(a, t.b, r0 // a.group, &low, &n)
    interval(a, t.b, (r0 + w - 1) // a.group, &n, &high)
    for x in range(blocks):
        j0 = x * a.bc
        f.s, f.n = t.s.s + j0 * line, least(a.bc, a.total - j0)
        f.p = f.s
        a.soft.weigh(&f)
        if j0 >= high or j0 + f.n <= low:
            continue
        locate(a, t.b, t.kvh, x, t.s.block, &t.block)
        t.packed_v, t.keys = False, least(t.block.j1, high) - j0
        multiply_values(&t, f.s, j0, t.keys, f.lanes, t.s.o, begun)
        begun = True
    find_dead(&t, &f, r0, w, dead)
    if a.mode == 3:
        f.s, f.n = t.s.s, a.total
        a.soft.divide(&f)
        show_scores(&t, r0, w, 1, dead)
    f.s, f.n = t.s.o, a.dv
    write_panel(&t, &f, r0, w, dead, begun)
    release(a)


# ---- a call -----------------------------------------------------------------------------------------------------

cdef inline ptrdiff_t tasks(const Attend *a) noexcept nogil:
    return a.batch * a.kv_heads * a.groups * a.splits


cdef inline size_t parts_bytes(const Attend *a) noexcept nogil:
    return tasks(a) * a.panels * part_bytes(a) if a.splits > 1 else 0


cdef size_t panels_bytes(const Attend *a, int num_threads) noexcept nogil:
    return a.each * least(num_threads, tasks(a)) + parts_bytes(a)


cdef int run_panels(const Attend *decided, int num_threads) noexcept nogil:
    cdef Attend a = decided[0]
    num_threads = <int>least(num_threads, tasks(&a))
    if tasks(&a) == 0:
        return 0
    a.space = <char *>take(panels_bytes(&a, num_threads))
    if a.space == NULL:
        return 1
    a.parts = a.space + a.each * num_threads
    parallel_for(materialized_task if a.path == PATH_MATERIALIZED else panels_task, &a, tasks(&a), num_threads)
    if a.splits > 1:
        parallel_for(merge_task, &a, a.batch * a.kv_heads * a.all_panels, num_threads)
    give(a.space)
    return 0
