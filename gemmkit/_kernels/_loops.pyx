"""The loops over micro-kernels: tiles (general, direct, small K) and the two skinny kinds.

Loop order and residency of the tile loops (general algorithm; the others leave loops out):

    jc  NC columns of B and C       B's KC x NC panel, packed once, shared by all threads: last-level cache
    pc    KC steps of K             partial sums wait in C between steps
    ic      MC rows of A and C      A's MC x KC panel, packed once if at all
    jb        NB columns            B's KC x NB block: half of L2
    ir          MR rows             A's MR x KC micro-panel: half of L1
    jr            NR columns        B's KC x NR micro-panel streams from L2; the MR x NR tile of C: registers

The roles of A and B are exchanged against the usual order, in which a block of A stays in L2: here rows of A are read
where they lie, eight at a time, which touches eight pages, where a block of A would touch as many as it has rows.

Sums are formed in C itself if C has their type.  For a narrow C they are formed in a tile on the stack, when one KC block
is all of K, else in an MB x NC buffer, and each is rounded into C once, after the last KC block.

Threads share packed panels, which one phase writes and the next reads; `parallel_for` ends with a barrier.  Which part
of C a thread computes depends on the thread count, but the order in which any element of C is summed up does not: tiles
sum over k in sequence, and micro-panels and dot tiles lie at fixed places.
"""
from libc.stdint cimport int32_t, uintptr_t
from libc.string cimport memset

from gemmkit._kernels._numbers cimport ceil_div, least, round_up
from gemmkit._kernels._registry cimport (GK_NIBBLES, gk_depth, gk_epi_args, gk_flush_free, gk_item, gk_least_of, gk_panel_bytes,
                                         gk_ukr_args, gk_ukr_fn)
from gemmkit._kernels._parallel cimport parallel_for
from gemmkit._kernels._schedule cimport INNER_DOT, INNER_STREAM
from gemmkit._kernels._terms cimport Terms, column_terms, row_terms, terms_bytes

cdef enum:
    LINE = 64  # panels start on a line: no line is written by two threads
    TASKS_PER_THREAD = 2  # so that a thread which the system holds up can be helped out
    TILE = 512 * 8 + LINE  # bytes that hold any tile of sums, 8 x 48 float32 being the largest, and its alignment
    BIAS_BYTES = 4096  # of a bias that are widened at once


cdef inline char *aligned_to_item(char *p) noexcept nogil:
    return <char *>((<uintptr_t>p + 7) & ~<uintptr_t>7)


# ---- the end of a sum -------------------------------------------------------------------------------------------

cdef void finish_tile(const Job *job, const Place *at, const char *acc, ptrdiff_t rs_acc, ptrdiff_t i, ptrdiff_t j,
                      ptrdiff_t m, ptrdiff_t n) noexcept nogil:
    cdef const Epilogue *bias = &job.epilogue
    cdef gk_epi_args e
    cdef char wide[BIAS_BYTES + 8]
    cdef ptrdiff_t r, c
    e.acc, e.rs_acc, e.c, e.rs_c = acc, rs_acc, at.c + i * job.rs_c + j * job.c_item, job.rs_c
    e.alpha, e.beta, e.whole_alpha, e.whole_beta = bias.alpha, bias.beta, bias.whole_alpha, bias.whole_beta
    e.m, e.n = m, n
    e.bias, e.rs_bias, e.cs_bias = NULL, 0, 0
    if job.q.on:
        set_quantized(job, at, i, j, &e)
    if not bias.has_bias or job.bias_starts:
        job.finish(&e)
        return
    e.bias = at.bias + i * bias.rs_bias + j * bias.cs_bias
    if bias.bias_type == job.acc and (bias.cs_bias == job.item or bias.cs_bias == 0):
        e.rs_bias, e.cs_bias = bias.rs_bias, bias.cs_bias
        job.finish(&e)
        return
    # Of another type, or with gaps: widened or gathered into L1, as many rows at once as fit; a repeated row or column is
    # one row or column there too.
    cdef const char *source = e.bias
    cdef ptrdiff_t rows = m if bias.rs_bias else 1, width
    cdef ptrdiff_t columns = least(n, BIAS_BYTES // job.item) if bias.cs_bias else n
    cdef ptrdiff_t line = (columns if bias.cs_bias else 1) * job.item, most = BIAS_BYTES // line
    e.bias, e.cs_bias = aligned_to_item(wide), job.item if bias.cs_bias else 0
    c = 0
    while c < n:
        e.n = least(columns, n - c)
        r = 0
        while r < m:
            e.m = m if rows == 1 else least(most, m - r)
            width = e.n if bias.cs_bias else 1
            if bias.cs_bias:
                job.pack_bias.lines(source + r * bias.rs_bias + c * bias.cs_bias, bias.rs_bias, bias.cs_bias,
                                    1 if rows == 1 else e.m, width, 1, <char *>e.bias, NULL)
            else:  # a column is one line
                job.pack_bias.lines(source + r * bias.rs_bias, 0, bias.rs_bias, 1, 1 if rows == 1 else e.m, 1, <char *>e.bias, NULL)
            e.rs_bias = 0 if rows == 1 else width * job.item
            e.acc = acc + r * rs_acc + c * job.item
            e.c = at.c + (i + r) * job.rs_c + (j + c) * job.c_item
            job.finish(&e)
            r += e.m
        c += e.n


cdef void set_quantized(const Job *job, const Place *at, ptrdiff_t i, ptrdiff_t j, gk_epi_args *e) noexcept nogil:
    """Zero points and scales of the elements from (i, j) on."""
    cdef const Terms *t = <const Terms *>at.terms
    cdef int x
    memset(&e.row_add, 0, <char *>&e.row_scale - <char *>&e.row_add)
    if t != NULL:
        if t.row_add != NULL:
            e.row_add = t.row_add + (i - t.i0)
        if t.col_add != NULL:
            e.col_add = t.col_add + (j - t.j0)
        for x in range(2):
            if t.row_mul[x] != NULL:
                e.row_mul[x], e.col_mul[x] = t.row_mul[x] + (i - t.i0), t.col_mul[x] + (j - t.j0)
    e.row_scale = at.row_scale + i if at.row_scale != NULL else NULL
    e.col_scale = at.col_scale + j if at.col_scale != NULL else NULL
    e.col_single = at.col_single + j if at.col_single != NULL else NULL
    e.single, e.scale, e.zero = job.q.single, job.q.scale, job.q.zero


cdef inline void start_sum(const Job *job, const Place *at, ptrdiff_t i, ptrdiff_t j, bint first, gk_ukr_args *g) noexcept nogil:
    """Where the kernel's sum starts: at the earlier KC blocks' sum, else at a plain bias, else at zero."""
    if not first:
        g.add, g.rs_add = g.c, g.rs_c
    elif job.bias_starts:
        g.add = at.bias + i * job.epilogue.rs_bias + j * job.item
        g.rs_add = job.epilogue.rs_bias
    else:
        g.add, g.rs_add = NULL, 0


cdef char *aligned(char *p) noexcept nogil:
    return <char *>((<uintptr_t>p + LINE - 1) & ~<uintptr_t>(LINE - 1))


# ---- tiles ------------------------------------------------------------------------------------------------------

# One step of the jc, pc and ic loops: the part of a product that a phase packs or computes.
cdef struct Phase:
    const Job *job
    const Place *at
    char *a_panel  # NULL: A is read in place
    const char *b_panel  # NULL: B is read in place
    ptrdiff_t a_bytes, b_bytes  # from one micro-panel to the next
    char *sums  # NULL: sums are formed in C, or in one tile if all of K is one block; else an MB x NC buffer for column jc on
    ptrdiff_t rs_sums
    ptrdiff_t jc, nc, pc, kc
    ptrdiff_t i0, i1  # rows of this phase
    ptrdiff_t i_step, j_step  # the grid of tasks
    ptrdiff_t j_tasks
    ptrdiff_t b_tasks, pack_step  # packing: tasks on B come first
    int32_t *sums_a  # where packing adds up lines of A and of B; NULL: nowhere
    int32_t *sums_b


cdef void tiles(const Phase *f, ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t j0, ptrdiff_t j1) noexcept nogil:
    """The jb, ir and jr loops over rows i0..i1 and columns j0..j1 of C, for one KC block."""
    cdef const Job *job = f.job
    cdef const Place *at = f.at
    cdef ptrdiff_t ms = job.how.ms, ns = job.how.ns, mr = job.gemm.mr, nr = job.gemm.nr, kr = job.gemm.kr
    cdef ptrdiff_t jb, jb_end, i, j, step = kr * job.panel_item, b_step = 4 if job.panel_b == GK_NIBBLES else step
    cdef bint first = f.pc == 0, last = f.pc + f.kc >= job.k
    cdef bint guarded = job.exact != NULL
    cdef int least_a = 0
    cdef char room[TILE]
    cdef char *tile = aligned(room)
    cdef gk_ukr_args g
    cdef gk_ukr_fn fn = job.gemm.fn
    g.k = f.kc if kr == 1 else ceil_div(f.kc, kr)
    g.rs_a, g.cs_a = job.rs_a, kr * job.cs_a
    g.rs_b, g.cs_b = job.rs_b, job.b_item
    g.rs_c = job.rs_c
    if f.a_panel != NULL:
        if job.how.a_lines:
            g.rs_a, g.cs_a = gk_depth(job.panel, f.kc) * job.panel_item, step
        else:
            g.rs_a, g.cs_a = step, mr * step
    if f.b_panel != NULL:
        g.rs_b, g.cs_b = nr * b_step, b_step
    if job.narrow:
        g.rs_c = nr * job.item if f.sums == NULL else f.rs_sums
    jb = j0
    while jb < j1:
        jb_end = least(jb + job.how.nb, j1)
        i = i0
        while i < i1:
            g.m = least(ms, i1 - i)
            if f.a_panel != NULL:
                g.a = f.a_panel + (i - f.i0) // mr * f.a_bytes
                if guarded:
                    least_a = gk_least_of(g.a, mr, f.kc)
            else:
                g.a = at.a + i * job.rs_a + f.pc * job.cs_a
            j = jb
            while j < jb_end:
                g.n = least(ns, jb_end - j)
                if f.b_panel != NULL:
                    g.b = f.b_panel + (j - f.jc) // nr * f.b_bytes
                    if guarded:
                        fn = job.gemm.fn if gk_flush_free(least_a, gk_least_of(g.b, nr, f.kc)) else job.exact.fn
                else:
                    g.b = at.b + f.pc * job.rs_b + j * job.b_item
                if not job.narrow:
                    g.c = at.c + i * job.rs_c + j * job.c_item
                elif f.sums == NULL:
                    g.c = tile
                else:
                    g.c = f.sums + i * f.rs_sums + (j - f.jc) * job.item
                start_sum(job, at, i, j, first, &g)
                fn(&g)
                if last and job.finishes:
                    finish_tile(job, at, g.c, g.rs_c, i, j, g.m, g.n)
                j += ns
            i += ms
        jb = jb_end
    if job.gemm.release != NULL:
        job.gemm.release()


cdef void tile_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    cdef const Phase *f = <const Phase *>context
    cdef ptrdiff_t i = f.i0 + task // f.j_tasks * f.i_step, j = f.jc + task % f.j_tasks * f.j_step
    tiles(f, i, least(i + f.i_step, f.i1), j, least(j + f.j_step, f.jc + f.nc))


cdef void pack_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """Packs a few micro-panels: of B for the first b_tasks tasks, of A for the rest."""
    cdef const Phase *f = <const Phase *>context
    cdef const Job *job = f.job
    cdef ptrdiff_t r, at, lines
    if task < f.b_tasks:
        r = job.gemm.nr
        at = task * f.pack_step * r
        lines = least(f.pack_step * r, f.nc - at)
        job.pack_b.panels(f.at.b + f.pc * job.rs_b + (f.jc + at) * job.cs_b, job.cs_b, job.rs_b, lines, f.kc, r,
                          <char *>f.b_panel + task * f.pack_step * f.b_bytes,
                          f.sums_b + f.jc + at if f.sums_b != NULL else NULL)
    else:
        task -= f.b_tasks
        r = job.gemm.mr
        at = task * f.pack_step * r
        lines = least(f.pack_step * r, f.i1 - f.i0 - at)
        (job.pack_a.lines if job.how.a_lines else job.pack_a.panels)(
            f.at.a + (f.i0 + at) * job.rs_a + f.pc * job.cs_a, job.rs_a, job.cs_a, lines, f.kc, r,
            f.a_panel + task * f.pack_step * f.a_bytes, f.sums_a + f.i0 + at if f.sums_a != NULL else NULL)


cdef void set_grid(Phase *f, int num_threads) noexcept nogil:
    """Cut the phase into tasks: by rows as far as they go, since a task then packs or walks whole strips of B."""
    cdef const Choice *how = &f.job.how
    cdef ptrdiff_t rows = ceil_div(f.i1 - f.i0, how.ms), columns = ceil_div(f.nc, how.ns)
    cdef ptrdiff_t wanted = num_threads * TASKS_PER_THREAD, row_tasks, j_tasks = 1
    f.i_step, f.j_step = f.i1 - f.i0, f.nc
    if num_threads > 1:
        row_tasks = least(wanted, rows)
        if rows < 4 * wanted or columns >= 8 * rows:
            # Few rows: a task should have four tiles of them at least, and not all of a wide B.
            row_tasks = ceil_div(rows, 4) if columns < 8 * rows else 1
            j_tasks = least(ceil_div(2 * wanted, row_tasks), columns)
        f.i_step = ceil_div(rows, row_tasks) * how.ms
        f.j_step = ceil_div(columns, j_tasks) * how.ns
    f.j_tasks = ceil_div(f.nc, f.j_step)


cdef void run_tiles(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil:
    """The jc, pc and ic loops: direct, small-K and general."""
    cdef ptrdiff_t i = 0
    cdef Job part
    cdef Place part_at
    if takes_columns(job, num_threads):
        run_columns(job, at, workspace, num_threads)
        return
    if job.how.mb >= job.m:
        run_rows(job, at, workspace, num_threads)
        return
    # Rows in blocks whose partial sums are held at once; B is packed again for each.
    while i < job.m:
        part, part_at = job[0], at[0]
        part.m = least(job.how.mb, job.m - i)
        part_at.a += i * job.rs_a
        part_at.c += i * job.rs_c
        if part_at.bias != NULL:
            part_at.bias += i * job.epilogue.rs_bias
        if job.q.on:
            part_at.za += i * job.q.inc_za
            if part_at.row_scale != NULL:
                part_at.row_scale += i
        run_rows(&part, &part_at, workspace, num_threads)
        i += job.how.mb


cdef void run_rows(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil:
    cdef const Choice *how = &job.how
    cdef Phase f
    cdef ptrdiff_t jc, pc, i0, rows_at_once = job.m, panels, tasks, blocks
    cdef ptrdiff_t nr = job.gemm.nr, mr = job.gemm.mr, column = column_bytes(job) if job.b_prepacked else 0
    cdef char *b_space = NULL
    cdef Place with_terms = at[0]
    cdef Terms terms
    cdef const int32_t *sums_b = NULL
    cdef int32_t *row_space = NULL
    cdef int32_t *column_space = NULL
    cdef bint last
    f.job, f.at = job, &with_terms
    f.a_panel, f.b_panel, f.sums = NULL, NULL, NULL
    f.sums_a, f.sums_b = NULL, NULL
    if has_terms(job):
        # Sums of lines, then two numbers a row, two a column.
        memset(workspace, 0, (job.m + job.n) * sizeof(int32_t))
        f.sums_a, f.sums_b = <int32_t *>workspace, <int32_t *>workspace + job.m
        row_space = f.sums_b + job.n
        column_space = row_space + 2 * job.m
        sums_b = f.sums_b
        if job.b_prepacked:
            sums_b = <const int32_t *>(at.b + prepacked_sums(job))
        if not job.q.sums_of_a:
            f.sums_a = NULL
        if not job.q.sums_of_b:
            f.sums_b = NULL
        with_terms.terms = &terms
        workspace += round_up(terms_bytes(job.m, job.n), LINE)
    f.rs_sums = sums_stride(job)
    if how.pack_a:
        rows_at_once = how.mc
        f.a_panel = workspace
        workspace += a_space(job)
    if keeps_sums(job):
        f.sums = workspace
        workspace += sums_space(job)
    if how.pack_b:
        b_space = workspace
    jc = 0
    while jc < job.n:
        f.jc, f.nc = jc, least(how.nc, job.n - jc)
        pc = blocks = 0
        while pc < job.k:
            f.pc, f.kc = pc, least(how.kc, job.k - pc)
            last = pc + f.kc >= job.k
            f.a_bytes, f.b_bytes = gk_panel_bytes(job.panel, mr, f.kc), gk_panel_bytes(job.panel_b, nr, f.kc)
            if how.pack_b:
                f.b_panel = b_space
            elif job.b_prepacked:
                # Panel after panel as this loop visits them: all columns before jc lie at full K.
                f.b_panel = at.b + jc // nr * column + ceil_div(f.nc, nr) * blocks * gk_panel_bytes(job.panel_b, nr, how.kc)
            i0 = 0
            while i0 < job.m:
                f.i0, f.i1 = i0, least(i0 + rows_at_once, job.m)
                if how.pack_a or (how.pack_b and i0 == 0):
                    panels = ceil_div(f.nc, nr) if how.pack_b and i0 == 0 else 0
                    tasks = ceil_div(f.i1 - i0, mr) if how.pack_a else 0
                    f.pack_step = ceil_div(panels + tasks, num_threads * 2 * TASKS_PER_THREAD)
                    f.b_tasks = ceil_div(panels, f.pack_step)
                    parallel_for(pack_task, &f, f.b_tasks + ceil_div(tasks, f.pack_step), num_threads)
                if last and row_space != NULL:
                    if i0 == 0:
                        column_terms(job, at, sums_b + jc, column_space, jc, f.nc, &terms)
                    row_terms(job, at, <const int32_t *>(row_space - job.n - job.m) + i0, row_space, i0, f.i1 - i0, &terms)
                set_grid(&f, num_threads)
                parallel_for(tile_task, &f, f.j_tasks * ceil_div(f.i1 - f.i0, f.i_step), num_threads)
                i0 += rows_at_once
            pc += how.kc
            blocks += 1
        jc += how.nc
        f.sums_a = NULL  # A is packed again for more columns, but has been added up


cdef inline bint has_terms(const Job *job) noexcept nogil:
    return job.q.on and (job.q.sums_of_a or job.q.sums_of_b)


cdef size_t prepacked_sums(const Job *job) noexcept nogil:
    """Where the sums of a prepacked B's columns lie: behind its panels."""
    return round_up(ceil_div(job.n, job.gemm.nr) * column_bytes(job), LINE)


cdef ptrdiff_t column_bytes(const Job *job) noexcept nogil:
    cdef ptrdiff_t whole = job.k // job.how.kc if job.how.kc else 0, rest = job.k - whole * job.how.kc
    cdef ptrdiff_t sum = whole * gk_panel_bytes(job.panel_b, job.gemm.nr, job.how.kc)
    return sum + gk_panel_bytes(job.panel_b, job.gemm.nr, rest) if rest else sum


cdef inline bint keeps_sums(const Job *job) noexcept nogil:
    """Whether partial sums have to wait outside of C for further KC blocks."""
    return job.narrow and job.how.kc < job.k


cdef inline ptrdiff_t sums_stride(const Job *job) noexcept nogil:
    # An odd number of lines: rows of a tile then fall into different sets of L1.
    return (round_up(least(job.how.nc, round_up(job.n, job.gemm.nr)) * job.item, 2 * LINE) + LINE)


cdef inline size_t sums_space(const Job *job) noexcept nogil:
    return least(job.how.mb, job.m) * sums_stride(job)


cdef inline size_t a_space(const Job *job) noexcept nogil:
    return round_up(ceil_div(least(job.how.mc, job.m), job.gemm.mr)
                    * gk_panel_bytes(job.panel, job.gemm.mr, least(job.how.kc, job.k)), LINE)


cdef inline size_t b_space(const Job *job) noexcept nogil:
    return round_up(ceil_div(least(job.how.nc, job.n), job.gemm.nr)
                    * gk_panel_bytes(job.panel_b, job.gemm.nr, least(job.how.kc, job.k)), LINE)


cdef size_t tiles_bytes(const Job *job) noexcept nogil:
    """Workspace of the tile loops: packed panels of A and B, partial sums."""
    cdef size_t sum = round_up(terms_bytes(job.m, job.n), LINE) if has_terms(job) else 0
    if job.how.pack_a:
        sum += a_space(job)
    if job.how.pack_b:
        sum += b_space(job)
    if keeps_sums(job):
        sum += sums_space(job)
    return sum


# ---- columns shared out ----------------------------------------------------------------------------------------

cdef bint takes_columns(const Job *job, int num_threads) noexcept nogil:
    """Whether threads had better take columns of C, each packing the part of B that no other needs.

    Nothing is shared then but A, read in place: no barrier, and no panel that another core has just written.
    """
    cdef ptrdiff_t strips = ceil_div(job.n, job.gemm.nr)
    return (num_threads > 1 and job.how.pack_b and not job.how.pack_a and strips >= num_threads * TASKS_PER_THREAD
            and job.m <= 8 * job.n)


cdef void column_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """The product of A with some columns of B: a smaller job, run by one thread."""
    cdef const Phase *f = <const Phase *>context
    cdef Job part = f.job[0]
    cdef Place at = f.at[0]
    cdef ptrdiff_t j = task * f.j_step
    part.n = least(f.j_step, f.job.n - j)
    at.b += j * part.cs_b
    at.c += j * part.c_item
    if at.bias != NULL:
        at.bias += j * part.epilogue.cs_bias
    if part.q.on:
        at.zb += j * part.q.inc_zb
        if at.col_scale != NULL:
            at.col_scale += j
            at.col_single += j
    run_tiles(&part, &at, f.a_panel + thread * tiles_bytes(f.job), 1)


cdef void run_columns(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil:
    cdef Phase f
    cdef ptrdiff_t strips = ceil_div(job.n, job.gemm.nr), most = job.how.nc // job.gemm.nr, tasks
    f.job, f.at, f.a_panel = job, at, workspace
    # A whole number of rounds for all threads, of blocks that are no wider than L2 has room for.
    tasks = num_threads * (TASKS_PER_THREAD if strips >= 4 * num_threads * TASKS_PER_THREAD else 1)
    tasks = round_up(ceil_div(strips, least(most, ceil_div(strips, tasks))), num_threads)
    f.j_step = ceil_div(strips, tasks) * job.gemm.nr
    parallel_for(column_task, &f, ceil_div(job.n, f.j_step), num_threads)


# ---- skinny products --------------------------------------------------------------------------------------------

# The short operand is `wide`: as lines of the sums' type in workspace, unless it lies so already.

cdef inline size_t short_space(const Job *job) noexcept nogil:
    cdef size_t sum = 0
    if job.how.pack_a:
        sum += round_up(job.m * job.k * job.item, LINE)
    if job.how.pack_b:
        sum += round_up(job.n * job.k * job.item, LINE)
    return sum


cdef char *lay_out_short(const Job *job, const Place *at, char *workspace, Phase *f) noexcept nogil:
    """Lays out the short operand, a sixteenth of the work at most, so that one thread does it; returns what is left."""
    f.job, f.at = job, at
    f.a_panel, f.b_panel = NULL, NULL
    if job.how.pack_a:
        f.a_panel = workspace
        job.pack_a.lines(at.a, job.rs_a, job.cs_a, job.m, job.k, 1, workspace, NULL)
        workspace += round_up(job.m * job.k * job.item, LINE)
    if job.how.pack_b:
        f.b_panel = workspace
        job.pack_b.lines(at.b, job.cs_b, job.rs_b, job.n, job.k, 1, workspace, NULL)
        workspace += round_up(job.n * job.k * job.item, LINE)
    return workspace


cdef inline size_t stream_sums(const Job *job) noexcept nogil:
    """Bytes of sums that one thread keeps beside a narrow C."""
    return round_up(job.m * least(job.how.nc, round_up(job.n, job.how.ns)) * job.item, LINE) if job.narrow else 0


cdef void stream_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """Columns of C: B passes once for every MR rows, and from L2 after the first of them."""
    cdef const Phase *f = <const Phase *>context
    cdef const Job *job = f.job
    cdef const Place *at = f.at
    cdef ptrdiff_t j = task * f.j_step, j_end = least(job.n, j + f.j_step), n, pc, kc, i, m
    cdef const char *a = at.a
    cdef char *sums = f.sums + thread * stream_sums(job)
    cdef gk_ukr_args g
    g.rs_a, g.cs_a = job.rs_a, job.cs_a
    g.rs_b, g.cs_b = job.rs_b, job.b_item
    if f.a_panel != NULL:
        a, g.rs_a, g.cs_a = f.a_panel, job.k * job.item, job.item
    while j < j_end:
        n = least(job.how.nc, j_end - j)
        if not job.narrow:
            sums = at.c + j * job.c_item
        g.rs_c = n * job.item if job.narrow else job.rs_c
        pc = 0
        while pc < job.k:
            kc = least(job.how.kc, job.k - pc)
            i = 0
            while i < job.m:
                m = least(job.how.ms, job.m - i)
                g.a = a + i * g.rs_a + pc * g.cs_a
                g.b = at.b + pc * job.rs_b + j * job.b_item
                g.c = sums + i * g.rs_c
                g.m, g.n, g.k = m, n, kc
                start_sum(job, at, i, j, pc == 0, &g)
                job.inner.fn(&g)
                i += m
            pc += kc
        if job.finishes:
            finish_tile(job, at, sums, g.rs_c, 0, j, job.m, n)
        j += n


cdef void run_stream(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil:
    cdef Phase f
    cdef ptrdiff_t unit = 4 * job.inner.vl
    f.sums = lay_out_short(job, at, workspace, &f)
    f.j_step = job.n
    if num_threads > 1:
        # One piece a thread: the longer the pieces of B's rows, the better prefetchers follow.
        f.j_step = round_up(ceil_div(job.n, num_threads), unit)
    parallel_for(stream_task, &f, ceil_div(job.n, f.j_step), num_threads)


cdef void dot_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """Tiles of dot products, a block of K at a time; a few lines of the longer operand stay in L1 or L2."""
    cdef const Phase *f = <const Phase *>context
    cdef const Job *job = f.job
    cdef const Place *at = f.at
    cdef ptrdiff_t i0 = task // f.j_tasks * f.i_step, j0 = task % f.j_tasks * f.j_step
    cdef ptrdiff_t i1 = least(i0 + f.i_step, job.m), j1 = least(j0 + f.j_step, job.n)
    cdef ptrdiff_t i, j, pc
    cdef const char *a = at.a
    cdef const char *b = at.b
    cdef char room[TILE]
    cdef gk_ukr_args g
    g.rs_a, g.cs_a, g.rs_b, g.cs_b = job.rs_a, job.a_item, job.b_item, job.cs_b
    g.c, g.rs_c = aligned(room), job.how.ns * job.item
    if f.a_panel != NULL:
        a, g.rs_a, g.cs_a = f.a_panel, job.k * job.item, job.item
    if f.b_panel != NULL:
        b, g.cs_b, g.rs_b = f.b_panel, job.k * job.item, job.item
    j = j0
    while j < j1:
        i = i0
        while i < i1:
            g.m, g.n = least(job.how.ms, i1 - i), least(job.how.ns, j1 - j)
            if not job.narrow:
                g.c, g.rs_c = at.c + i * job.rs_c + j * job.c_item, job.rs_c
            pc = 0
            while pc < job.k:
                g.k = least(job.how.kc, job.k - pc)
                g.a = a + i * g.rs_a + pc * g.cs_a
                g.b = b + j * g.cs_b + pc * g.rs_b
                start_sum(job, at, i, j, pc == 0, &g)
                job.inner.fn(&g)
                pc += g.k
            if job.finishes:
                finish_tile(job, at, g.c, g.rs_c, i, j, g.m, g.n)
            i += g.m
        j += job.how.ns


cdef void run_dot(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil:
    cdef Phase f
    cdef ptrdiff_t rows = ceil_div(job.m, job.how.ms), columns = ceil_div(job.n, job.how.ns)
    cdef ptrdiff_t wanted = num_threads * TASKS_PER_THREAD
    lay_out_short(job, at, workspace, &f)
    f.i_step, f.j_step = job.m, job.n
    if num_threads > 1:
        # The long side is cut, in whole tiles: where a dot tile lies decides its order of summation.
        if columns >= rows:
            f.j_step = ceil_div(columns, least(wanted, columns)) * job.how.ns
        else:
            f.i_step = ceil_div(rows, least(wanted, rows)) * job.how.ms
    f.j_tasks = ceil_div(job.n, f.j_step)
    parallel_for(dot_task, &f, f.j_tasks * ceil_div(job.m, f.i_step), num_threads)


cdef size_t loops_bytes(const Job *job, int num_threads) noexcept nogil:
    if job.how.inner == INNER_DOT:
        return short_space(job)
    if job.how.inner == INNER_STREAM:
        return short_space(job) + num_threads * stream_sums(job)
    return tiles_bytes(job) * (num_threads if takes_columns(job, num_threads) else 1)
