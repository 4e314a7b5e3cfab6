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

Threads share packed panels, which one phase writes and the next reads; `parallel_for` ends with a barrier.  Which part
of C a thread computes depends on the thread count, but the order in which any element of C is summed up does not: tiles
sum over k in sequence, and dot tiles lie at fixed places.
"""
from gemmkit._kernels._numbers cimport ceil_div, least, round_up
from gemmkit._kernels._registry cimport gk_epi_args, gk_ukr_args
from gemmkit._kernels._parallel cimport parallel_for

cdef enum:
    LINE = 64  # panels start on a line: no line is written by two threads
    TASKS_PER_THREAD = 2  # so that a thread which the system holds up can be helped out


# ---- tiles ------------------------------------------------------------------------------------------------------

# One step of the jc, pc and ic loops: the part of a product that a phase packs or computes.
cdef struct Phase:
    const Job *job
    const Place *at
    char *a_panel  # NULL: A is read in place
    const char *b_panel  # NULL: B is read in place
    ptrdiff_t jc, nc, pc, kc
    ptrdiff_t i0, i1  # rows of this phase
    ptrdiff_t i_step, j_step  # the grid of tasks
    ptrdiff_t j_tasks
    ptrdiff_t b_tasks, pack_step  # packing: tasks on B come first


cdef void finish_tile(const Job *job, const Place *at, ptrdiff_t i, ptrdiff_t j, ptrdiff_t m, ptrdiff_t n) noexcept nogil:
    """Scale and bias a tile that has just been stored, while it is in L1."""
    cdef gk_epi_args e
    e.c, e.rs_c = at.c + i * job.rs_c + j * job.item, job.rs_c
    e.alpha, e.beta = job.epilogue.alpha, job.epilogue.beta
    e.bias = NULL
    if job.epilogue.has_bias:
        e.rs_bias, e.cs_bias = job.epilogue.rs_bias, job.epilogue.cs_bias
        e.bias = at.bias + i * e.rs_bias + j * e.cs_bias
    e.m, e.n = m, n
    job.finish(&e)


cdef inline void start_sum(const Job *job, const Place *at, ptrdiff_t i, ptrdiff_t j, bint first, gk_ukr_args *g) noexcept nogil:
    """Where the kernel's sum starts: C when an earlier KC block is in it, else a plain bias, else zero."""
    if not first:
        g.add, g.rs_add = g.c, g.rs_c
    elif job.bias_starts:
        g.add = at.bias + i * job.epilogue.rs_bias + j * job.item
        g.rs_add = job.epilogue.rs_bias
    else:
        g.add, g.rs_add = NULL, 0


cdef void tiles(const Phase *f, ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t j0, ptrdiff_t j1) noexcept nogil:
    """The jb, ir and jr loops over rows i0..i1 and columns j0..j1 of C, for one KC block."""
    cdef const Job *job = f.job
    cdef const Place *at = f.at
    cdef ptrdiff_t item = job.item, ms = job.how.ms, ns = job.how.ns
    cdef ptrdiff_t jb, jb_end, i, j
    cdef bint first = f.pc == 0, last = f.pc + f.kc >= job.k
    cdef gk_ukr_args g
    g.k = f.kc
    g.rs_c = job.rs_c
    g.rs_a, g.cs_a = job.rs_a, job.cs_a
    g.rs_b, g.cs_b = job.rs_b, item
    if f.a_panel != NULL:
        g.rs_a, g.cs_a = item, job.gemm.mr * item
    if f.b_panel != NULL:
        g.rs_b = job.gemm.nr * item
    jb = j0
    while jb < j1:
        jb_end = least(jb + job.how.nb, j1)
        i = i0
        while i < i1:
            g.m = least(ms, i1 - i)
            if f.a_panel != NULL:
                g.a = f.a_panel + (i - f.i0) * f.kc * item
            else:
                g.a = at.a + i * job.rs_a + f.pc * job.cs_a
            j = jb
            while j < jb_end:
                g.n = least(ns, jb_end - j)
                if f.b_panel != NULL:
                    g.b = f.b_panel + (j - f.jc) * f.kc * item
                else:
                    g.b = at.b + f.pc * job.rs_b + j * item
                g.c = at.c + i * job.rs_c + j * item
                start_sum(job, at, i, j, first, &g)
                job.gemm.fn(&g)
                if last and job.finishes:
                    finish_tile(job, at, i, j, g.m, g.n)
                j += ns
            i += ms
        jb = jb_end


cdef void tile_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    cdef const Phase *f = <const Phase *>context
    cdef ptrdiff_t i = f.i0 + task // f.j_tasks * f.i_step, j = f.jc + task % f.j_tasks * f.j_step
    tiles(f, i, least(i + f.i_step, f.i1), j, least(j + f.j_step, f.jc + f.nc))


cdef void pack_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """Packs a few micro-panels: of B for the first b_tasks tasks, of A for the rest."""
    cdef const Phase *f = <const Phase *>context
    cdef const Job *job = f.job
    cdef ptrdiff_t item = job.item, r, at, lines
    if task < f.b_tasks:
        r = job.gemm.nr
        at = task * f.pack_step * r
        lines = least(f.pack_step * r, f.nc - at)
        job.gemm.pack_b(f.at.b + f.pc * job.rs_b + (f.jc + at) * job.cs_b, job.cs_b, job.rs_b, lines, f.kc, r,
                        <char *>f.b_panel + at * f.kc * item)
    else:
        r = job.gemm.mr
        at = (task - f.b_tasks) * f.pack_step * r
        lines = least(f.pack_step * r, f.i1 - f.i0 - at)
        job.gemm.pack_a(f.at.a + (f.i0 + at) * job.rs_a + f.pc * job.cs_a, job.rs_a, job.cs_a, lines, f.kc, r,
                        f.a_panel + at * f.kc * item)


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
    cdef const Choice *how = &job.how
    cdef Phase f
    cdef ptrdiff_t jc, pc, i0, rows_at_once = job.m, panels, tasks
    cdef char *b_space = NULL
    if takes_columns(job, num_threads):
        run_columns(job, at, workspace, num_threads)
        return
    f.job, f.at = job, at
    f.a_panel, f.b_panel = NULL, NULL
    if how.pack_a:
        rows_at_once = how.mc
        f.a_panel = workspace
        workspace += round_up(rows_at_once * how.kc * job.item, LINE)
    if how.pack_b:
        b_space = workspace
    jc = 0
    while jc < job.n:
        f.jc, f.nc = jc, least(how.nc, job.n - jc)
        pc = 0
        while pc < job.k:
            f.pc, f.kc = pc, least(how.kc, job.k - pc)
            if how.pack_b:
                f.b_panel = b_space
            elif job.b_prepacked:
                # Panel after panel as this loop visits them: all columns before jc lie at full K.
                f.b_panel = at.b + (jc * job.k + round_up(f.nc, job.gemm.nr) * pc) * job.item
            i0 = 0
            while i0 < job.m:
                f.i0, f.i1 = i0, least(i0 + rows_at_once, job.m)
                if how.pack_a or (how.pack_b and i0 == 0):
                    panels = ceil_div(f.nc, job.gemm.nr) if how.pack_b and i0 == 0 else 0
                    tasks = ceil_div(f.i1 - i0, job.gemm.mr) if how.pack_a else 0
                    f.pack_step = ceil_div(panels + tasks, num_threads * 2 * TASKS_PER_THREAD)
                    f.b_tasks = ceil_div(panels, f.pack_step)
                    parallel_for(pack_task, &f, f.b_tasks + ceil_div(tasks, f.pack_step), num_threads)
                set_grid(&f, num_threads)
                parallel_for(tile_task, &f, f.j_tasks * ceil_div(f.i1 - f.i0, f.i_step), num_threads)
                i0 += rows_at_once
            pc += how.kc
        jc += how.nc


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
    at.c += j * part.item
    if at.bias != NULL:
        at.bias += j * part.epilogue.cs_bias
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


cdef size_t tiles_bytes(const Job *job) noexcept nogil:
    """Workspace of the tile loops: packed panels of A and B."""
    cdef const Choice *how = &job.how
    cdef size_t sum = 0
    if how.pack_a:
        sum += round_up(least(how.mc, round_up(job.m, how.ms)) * how.kc * job.item, LINE)
    if how.pack_b:
        sum += round_up(round_up(least(how.nc, job.n), job.gemm.nr) * how.kc * job.item, LINE)
    return sum


# ---- skinny products --------------------------------------------------------------------------------------------

cdef void stream_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """Columns of C: B passes once for every MR rows, and from L2 after the first of them."""
    cdef const Phase *f = <const Phase *>context
    cdef const Job *job = f.job
    cdef const Place *at = f.at
    cdef ptrdiff_t j = task * f.j_step, j_end = least(job.n, j + f.j_step), n, pc, kc, i, m
    cdef gk_ukr_args g
    g.rs_a, g.cs_a = job.rs_a, job.cs_a
    g.rs_b, g.cs_b = job.rs_b, job.item
    g.rs_c = job.rs_c
    while j < j_end:
        n = least(job.how.nc, j_end - j)
        pc = 0
        while pc < job.k:
            kc = least(job.how.kc, job.k - pc)
            i = 0
            while i < job.m:
                m = least(job.how.ms, job.m - i)
                g.a = at.a + i * job.rs_a + pc * job.cs_a
                g.b = at.b + pc * job.rs_b + j * job.item
                g.c = at.c + i * job.rs_c + j * job.item
                g.m, g.n, g.k = m, n, kc
                start_sum(job, at, i, j, pc == 0, &g)
                job.inner.fn(&g)
                i += m
            pc += kc
        if job.finishes:
            finish_tile(job, at, 0, j, job.m, n)
        j += n


cdef void run_stream(const Job *job, const Place *at, int num_threads) noexcept nogil:
    cdef Phase f
    cdef ptrdiff_t unit = 4 * job.inner.vl
    f.job, f.at = job, at
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
    cdef ptrdiff_t item = job.item, i, j, pc
    cdef const char *a = at.a
    cdef const char *b = at.b
    cdef gk_ukr_args g
    g.rs_a, g.cs_a, g.rs_b, g.cs_b = job.rs_a, item, item, job.cs_b
    g.rs_c = job.rs_c
    if f.a_panel != NULL:
        a, g.rs_a = f.a_panel, job.k * item
    if f.b_panel != NULL:
        b, g.cs_b = f.b_panel, job.k * item
    j = j0
    while j < j1:
        pc = 0
        while pc < job.k:
            g.k = least(job.how.kc, job.k - pc)
            i = i0
            while i < i1:
                g.m, g.n = least(job.how.ms, i1 - i), least(job.how.ns, j1 - j)
                g.a = a + i * g.rs_a + pc * item
                g.b = b + j * g.cs_b + pc * item
                g.c = at.c + i * job.rs_c + j * item
                start_sum(job, at, i, j, pc == 0, &g)
                job.inner.fn(&g)
                if job.finishes and pc + g.k >= job.k:
                    finish_tile(job, at, i, j, g.m, g.n)
                i += g.m
            pc += g.k
        j += job.how.ns


cdef void run_dot(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil:
    cdef Phase f
    cdef ptrdiff_t rows = ceil_div(job.m, job.how.ms), columns = ceil_div(job.n, job.how.ns)
    cdef ptrdiff_t wanted = num_threads * TASKS_PER_THREAD
    f.job, f.at = job, at
    f.a_panel, f.b_panel = NULL, NULL
    # The short operand laid out line by line of K.  It is a sixteenth of the work at most, so one thread does it.
    if job.how.pack_a:
        f.a_panel = workspace
        workspace += round_up(job.m * job.k * job.item, LINE)
        job.inner.pack_a(at.a, job.cs_a, job.rs_a, job.k, job.m, job.k, f.a_panel)
    if job.how.pack_b:
        f.b_panel = workspace
        job.inner.pack_b(at.b, job.rs_b, job.cs_b, job.k, job.n, job.k, workspace)
    f.i_step, f.j_step = job.m, job.n
    if num_threads > 1:
        # The long side is cut, in whole tiles: where a dot tile lies decides its order of summation.
        if columns >= rows:
            f.j_step = ceil_div(columns, least(wanted, columns)) * job.how.ns
        else:
            f.i_step = ceil_div(rows, least(wanted, rows)) * job.how.ms
    f.j_tasks = ceil_div(job.n, f.j_step)
    parallel_for(dot_task, &f, f.j_tasks * ceil_div(job.m, f.i_step), num_threads)
