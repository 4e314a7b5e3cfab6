"""The engine: decides a product, and runs one, a batch of equal ones or a group of unequal ones.

Who owns what: a `Job` is immutable, a `Place` points into the callers' arrays, workspace is borrowed for one call from
_parallel and given back by it.
"""
from libc.stdint cimport int32_t
from libc.string cimport memset

from gemmkit._kernels._numbers cimport ceil_div, least, round_up
from gemmkit._kernels._registry cimport (GK_DOT, GK_F32Q, GK_FLUSHES_DENORMALS, GK_GEMM, GK_I4, GK_I8, GK_I32, GK_I32Q, GK_NIBBLES, GK_QUADS_I8,
                                         GK_QUADS_U8, GK_SERVES_MANY, GK_STREAM, GK_U4, GK_U8, GK_WANTS_LINES, current_cpu, gk_cpu,
                                         gk_epi_args, gk_epi_fn, gk_item, gk_panel_bytes, gk_shift, gk_ukr, gk_ukr_args, panel_type,
                                         select_epilogue, select_exact, select_pack, select_row)
from gemmkit._kernels._parallel cimport give, parallel_for, take, threads_for
from gemmkit._kernels._schedule cimport (AUTO, DIRECT, GENERAL, INNER_DOT, INNER_GEMM, INNER_STREAM, SPLIT_K, Choice,
                                         Problem, choose, refusal, rows_at_once, rows_of_sums)
from gemmkit._kernels._loops cimport (Epilogue, Job, Place, aligned, column_bytes, finish_tile, loops_bytes, prepacked_sums,
                                      run_dot, run_stream, run_tiles)
from gemmkit._kernels._quads cimport quads_bytes, run_quad_dot, run_quad_stream

cdef enum:
    LINE = 64  # partial sums and private workspaces start on a line
    ALONE = 16  # a product of a batch gets all threads from 16 times the work on that would do outside of one
    TASKS_PER_THREAD = 8  # a batch is handed out in runs of products, smaller than a thread's share


# ---- deciding ---------------------------------------------------------------------------------------------------

cdef const gk_ukr *select_place(const Job *job) noexcept nogil:
    """The tile row that reads B where it lies, and A too if there is one that does, else an A of sums."""
    cdef const gk_ukr *row = select_row(GK_GEMM, job.a_type, job.b_type, job.n)
    return row if row != NULL and row.kr == 1 else select_row(GK_GEMM, job.acc, job.b_type, job.n)


cdef inline int quads_of_b(const Job *job) noexcept nogil:
    return GK_NIBBLES if job.nibble_panels else GK_QUADS_I8


cdef void settle_sums(Job *job) noexcept nogil:
    """Which sums the zero points of a product of quads ask for."""
    job.q.shift_a, job.q.shift_b = gk_shift(job.a_type, GK_QUADS_U8), gk_shift(job.b_type, quads_of_b(job))
    if not job.q.on:
        job.q.sums_of_a = job.q.sums_of_b = False
        return
    job.q.sums_of_a = job.q.inc_zb or job.q.vary_zb or job.q.zb + job.q.shift_b != 0
    job.q.sums_of_b = job.q.inc_za or job.q.vary_za or job.q.za + job.q.shift_a != 0


cdef bint must_pack_a(const Job *job, const gk_ukr *gemm) noexcept nogil:
    """Whether a row that reads quads can't have A's where they lie."""
    return job.a_type != GK_U8 or job.q.sums_of_a or job.cs_a != 1 or job.k % gemm.kr != 0


cdef void describe_quads(const Job *job, Problem *p) noexcept nogil:
    cdef const gk_ukr *gemm = select_row(GK_GEMM, GK_QUADS_U8, quads_of_b(job), job.n)
    p.quads, p.nibble_a, p.nibble_b = True, job.a_type == GK_I4 or job.a_type == GK_U4, job.b_type == GK_I4 or job.b_type == GK_U4
    p.pack_a = must_pack_a(job, gemm)
    p.serves_many = select_row(GK_STREAM, GK_QUADS_U8, GK_I8, job.n).flags & GK_SERVES_MANY != 0
    p.panel_item = 1
    p.widen_a = p.widen_b = True
    p.narrow_c, p.place_a, p.lines_a = job.c_type != job.acc, False, gemm.flags & GK_WANTS_LINES != 0
    p.mr, p.nr, p.vl = gemm.mr, gemm.nr, gemm.vl
    p.place_mr, p.place_nr, p.place_vl = gemm.mr, gemm.nr, gemm.vl


cdef void describe(const Job *job, Problem *p) noexcept nogil:
    """The numbers that the choosers need, read off a job, the table and the machine."""
    p.m, p.n, p.k = job.m, job.n, job.k
    p.item, p.a_item, p.b_item = job.item, job.a_item, job.b_item
    p.rs_a, p.cs_a, p.rs_b, p.cs_b = job.rs_a, job.cs_a, job.rs_b, job.cs_b
    p.b_prepacked = job.b_prepacked
    if job.quads:
        describe_quads(job, p)
    else:
        describe_plain(job, p)
    cdef const gk_cpu *cpu = current_cpu()
    p.l1d, p.l2, p.l3 = cpu.l1d, cpu.l2, cpu.l3


cdef void describe_plain(const Job *job, Problem *p) noexcept nogil:
    cdef int panel = panel_type(job.a_type, job.b_type)
    cdef const gk_ukr *gemm = select_row(GK_GEMM, panel, panel, job.n)
    cdef const gk_ukr *place = select_place(job)
    p.quads = p.nibble_a = p.nibble_b = p.serves_many = p.pack_a = False
    p.panel_item = gk_item[panel]
    p.widen_a, p.widen_b, p.narrow_c = job.a_type != job.acc, job.b_type != job.acc, job.c_type != job.acc
    p.place_a = place.a_type == job.a_type
    p.lines_a = gemm.flags & GK_WANTS_LINES != 0
    p.mr, p.nr, p.vl = gemm.mr, gemm.nr, gemm.vl
    p.place_mr, p.place_nr, p.place_vl = place.mr, place.nr, place.vl


cdef void prepare(Job *job, int forced) noexcept nogil:
    """Choose rows, algorithm and blocks for a job whose types, sizes, strides and epilogue are set."""
    cdef Problem p
    cdef Choice *how = &job.how
    if job.quads:
        settle_sums(job)
    describe(job, &p)
    choose(&p, forced, how)
    if job.quads:
        select_quads(job)
        return
    job.panel = panel_type(job.a_type, job.b_type) if how.panels else job.acc
    job.panel_b = job.panel
    job.panel_item = gk_item[job.panel]
    cdef bint in_panels = how.pack_b or job.b_prepacked
    job.gemm = select_row(GK_GEMM, job.panel, job.panel, job.n) if in_panels else select_place(job)
    job.exact = select_exact(job.gemm) if job.gemm.flags & GK_FLUSHES_DENORMALS else NULL
    job.inner = job.gemm
    if how.inner == INNER_STREAM:
        job.inner = select_row(GK_STREAM, job.acc, job.b_type, job.n)
    elif how.inner == INNER_DOT:
        # One operand is laid out in the sums' type, the other read as it lies.
        job.inner = select_row(GK_DOT, job.acc if how.pack_a else job.a_type, job.acc if how.pack_b else job.b_type, job.n)
        how.ms, how.ns = job.inner.mr, job.inner.nr
    job.pack_a, job.pack_b = select_pack(job.a_type, job.panel), select_pack(job.b_type, job.panel)
    job.finish = select_epilogue(unfinished(job), job.c_type)
    settle_epilogue(job)


cdef inline int unfinished(const Job *job) noexcept nogil:
    """The sums as the epilogue sees them."""
    return job.acc if not job.q.on else GK_I32Q if job.acc == GK_I32 else GK_F32Q


cdef void select_quads(Job *job) noexcept nogil:
    """Rows for a product of quads whose algorithm is chosen."""
    cdef Choice *how = &job.how
    job.panel, job.panel_b, job.panel_item = GK_QUADS_U8, quads_of_b(job), 1
    job.gemm = select_row(GK_GEMM, job.panel, job.panel_b, job.n)
    job.exact, job.inner = NULL, job.gemm
    if how.inner == INNER_STREAM:
        job.inner = select_row(GK_STREAM, GK_QUADS_U8, job.b_type, job.n)
    elif how.inner == INNER_DOT:
        job.inner = select_row(GK_DOT, GK_QUADS_U8 if how.pack_a else job.a_type, GK_QUADS_I8 if how.pack_b else job.b_type, job.n)
        how.ms, how.ns = job.inner.mr, job.inner.nr
    job.pack_a, job.pack_b = select_pack(job.a_type, job.panel), select_pack(job.b_type, job.panel_b)
    job.finish = select_epilogue(unfinished(job), job.c_type)
    settle_epilogue(job)


cdef void settle_epilogue(Job *job) noexcept nogil:
    cdef const Epilogue *e = &job.epilogue
    cdef bint terms = job.q.sums_of_a or job.q.sums_of_b
    # A tile that zero points are still to be added to lies in L1 by itself: rows of C may share a few of its sets.
    job.narrow = job.c_type != job.acc or (terms and job.how.inner == INNER_GEMM and job.how.kc >= job.k)
    job.pack_bias = select_pack(e.bias_type, job.acc) if e.has_bias else NULL
    job.bias_starts = (e.has_bias and e.alpha == 1.0 and e.beta == 1.0 and e.bias_type == job.acc
                       and (e.cs_bias == job.item or job.n == 1) and job.how.algorithm != SPLIT_K)
    if job.quads and job.how.inner == INNER_DOT:
        job.finishes = True  # its sums lie beside C
        return
    job.finishes = job.narrow or terms or e.alpha != 1.0 or (e.has_bias and not job.bias_starts)


cdef bint same_layout(const Job *job, const Job *planned) noexcept nogil:
    return (job.m == planned.m and job.n == planned.n and job.k == planned.k and job.rs_a == planned.rs_a
            and job.cs_a == planned.cs_a and job.rs_b == planned.rs_b and job.cs_b == planned.cs_b
            # A call may exchange its operands, and with them their types.
            and job.a_type == planned.a_type and job.b_type == planned.b_type and job.c_type == planned.c_type)


cdef void adopt(Job *job, const Job *planned, int forced) noexcept nogil:
    """Take over a plan's decisions; decide anew when this call's operands are laid out otherwise.

    A prepacked B keeps the row and blocks that it was packed for, whatever set is in use now; only what concerns A
    follows A's layout.
    """
    cdef Problem p
    cdef bint adjacent
    if not job.b_prepacked and not same_layout(job, planned):
        # A forced algorithm binds the plan's own layout; one that can't read this call's operands gives way.
        describe(job, &p)
        prepare(job, forced if refusal(&p, forced) == NULL else AUTO)
        return
    job.how, job.gemm, job.exact, job.inner = planned.how, planned.gemm, planned.exact, planned.inner
    job.panel, job.panel_b, job.panel_item = planned.panel, planned.panel_b, planned.panel_item
    job.pack_a, job.pack_b, job.finish = planned.pack_a, planned.pack_b, planned.finish
    if job.b_prepacked and job.m != planned.m:
        # A stack of A's that has become one product of all their rows: blocks of rows are cut anew.
        job.how.mb = job.m
        if job.c_type != job.acc and job.how.kc < job.k:
            job.how.mb = rows_of_sums(job.m, job.how.nc, job.item, job.gemm.mr, job.gemm.nr)
    if job.quads:
        job.pack_a = select_pack(job.a_type, job.panel)  # packed nibbles where the plan was made for bytes
        settle_sums(job)
        if job.how.inner == INNER_GEMM:
            job.how.pack_a = must_pack_a(job, job.gemm)
            job.how.ms = job.gemm.mr if job.how.pack_a else ceil_div(job.m, ceil_div(job.m, job.gemm.mr)) if job.m else 1
            job.how.mc = rows_at_once(least(job.m, job.how.mb), job.how.kc, job.gemm.mr, job.how.pack_a)
    elif not same_layout(job, planned):
        adjacent = job.cs_a == job.a_item or job.k <= 1
        job.how.a_lines = adjacent or job.gemm.flags & GK_WANTS_LINES
        job.how.pack_a = job.a_type != job.acc or not adjacent
        job.how.ms = job.gemm.mr if job.how.pack_a else ceil_div(job.m, ceil_div(job.m, job.gemm.mr)) if job.m else 1
        job.how.mc = rows_at_once(least(job.m, job.how.mb), job.how.kc * job.panel_item, job.gemm.mr, job.how.pack_a)
    settle_epilogue(job)


cdef size_t workspace_bytes(const Job *job, int num_threads) noexcept nogil:
    """Workspace that `num_threads` threads together need on one product: packed panels and sums."""
    cdef Job part
    if job.m == 0 or job.n == 0 or job.k == 0:
        return 0
    if job.how.algorithm == SPLIT_K:
        chunk_of(job, &part)
        return job.how.splits * partial_bytes(job) + least(num_threads, job.how.splits) * private_bytes(&part)
    if job.quads and job.how.inner != INNER_GEMM:
        return quads_bytes(job, num_threads)
    return loops_bytes(job, num_threads)


# ---- split K ----------------------------------------------------------------------------------------------------

cdef struct Split:
    const Job *job
    const Place *at
    Job part
    char *partials  # splits x M x N, each a whole number of lines
    char *private  # each thread's packing space
    ptrdiff_t rows


cdef inline size_t private_bytes(const Job *part) noexcept nogil:
    return round_up(workspace_bytes(part, 1), LINE)


cdef size_t partial_bytes(const Job *job) noexcept nogil:
    return round_up(job.m * job.n * job.item, LINE)


cdef void chunk_of(const Job *job, Job *part) noexcept nogil:
    """One chunk of K as a job of its own, into contiguous partial sums, without epilogue."""
    part[0] = job[0]
    part.k = job.how.chunk
    part.c_type, part.c_item, part.rs_c = job.acc, job.item, job.n * job.item
    part.epilogue.alpha, part.epilogue.whole_alpha, part.epilogue.has_bias = 1.0, 1, False
    part.bias_starts = part.finishes = part.narrow = False
    part.q.on = job.q.on and job.quads  # zero points need the sums of a chunk, scales the whole sum
    part.finish = select_epilogue(unfinished(part), part.acc)
    part.finishes = part.q.sums_of_a or part.q.sums_of_b or (job.quads and job.how.inner == INNER_DOT)
    part.how.splits, part.how.chunk = 1, part.k
    part.how.algorithm = DIRECT if not (job.how.pack_a or job.how.pack_b) else GENERAL


cdef void split_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    cdef Split *s = <Split *>context
    cdef Job part = s.part
    cdef Place at
    cdef ptrdiff_t p = task * part.k
    at = s.at[0]
    at.a, at.b = s.at.a + p * part.cs_a, s.at.b + p * part.rs_b
    at.row_scale = at.col_scale = NULL
    at.col_single = NULL
    at.c, at.bias = s.partials + task * partial_bytes(s.job), NULL
    part.k = least(part.k, s.job.k - p)
    run_serial(&part, &at, s.private + thread * private_bytes(&s.part))


cdef void join_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """Adds the partial sums of some rows in the order of K, then the epilogue."""
    cdef Split *s = <Split *>context
    cdef const Job *job = s.job
    cdef ptrdiff_t i = task * s.rows, m = least(s.rows, job.m - i), chunk
    cdef gk_epi_fn plus = select_epilogue(job.acc, job.acc)
    cdef gk_epi_args e
    e.m, e.n = m, job.n
    e.alpha, e.beta, e.whole_alpha, e.whole_beta = 1.0, 1.0, 1, 1
    e.c, e.rs_c = s.partials + i * job.n * job.item, job.n * job.item
    e.acc, e.rs_acc = e.c, e.rs_c
    e.rs_bias, e.cs_bias = e.rs_c, job.item
    for chunk in range(1, job.how.splits):
        e.bias = e.c + chunk * partial_bytes(job)
        plus(&e)
    finish_tile(job, s.at, e.acc, e.rs_acc, i, 0, m, job.n)


cdef void run_split(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil:
    cdef Split s
    s.job, s.at = job, at
    chunk_of(job, &s.part)
    s.partials = workspace
    s.private = workspace + job.how.splits * partial_bytes(job)
    parallel_for(split_task, &s, job.how.splits, num_threads)
    s.rows = ceil_div(job.m, num_threads)
    parallel_for(join_task, &s, ceil_div(job.m, s.rows), num_threads)


# ---- one product, a batch, a group ------------------------------------------------------------------------------

cdef void run_with(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil:
    if job.how.algorithm == SPLIT_K:
        run_split(job, at, workspace, num_threads)
    elif job.how.inner == INNER_DOT:
        (run_quad_dot if job.quads else run_dot)(job, at, workspace, num_threads)
    elif job.how.inner == INNER_STREAM:
        (run_quad_stream if job.quads else run_stream)(job, at, workspace, num_threads)
    else:
        run_tiles(job, at, workspace, num_threads)


cdef void run_serial(const Job *job, const Place *at, char *workspace) noexcept nogil:
    run_with(job, at, workspace, 1)


cdef void run_empty_sum(const Job *job, const Place *at) noexcept nogil:
    """K = 0: zeros, or beta times the bias; A and B are not read."""
    cdef double zeros[512]
    cdef ptrdiff_t j = 0
    cdef Job scaled = job[0]
    cdef Place unscaled = at[0]
    memset(zeros, 0, sizeof(zeros))
    scaled.epilogue.alpha = 1.0  # it scales no sum, so it can't make NaN of one
    scaled.q.sums_of_a = scaled.q.sums_of_b = False
    scaled.q.scale = 1.0
    unscaled.row_scale = unscaled.col_scale = NULL
    scaled.bias_starts = False  # no kernel has
    while j < job.n:
        finish_tile(&scaled, &unscaled, <const char *>zeros, 0, 0, j, job.m, least(512, job.n - j))
        j += 512


cdef inline double work_of(const Job *job) noexcept nogil:
    return <double>job.m * job.n * job.k


cdef int run_one(const Job *job, const Place *at, int num_threads) noexcept nogil:
    """One product.  Returns -1, having written nothing, when there is no memory for the workspace."""
    cdef size_t bytes
    cdef char *workspace = NULL
    if job.m == 0 or job.n == 0:
        return 0
    if job.k == 0:
        run_empty_sum(job, at)
        return 0
    bytes = workspace_bytes(job, num_threads)
    if bytes:
        workspace = <char *>take(bytes)
        if workspace == NULL:
            return -1
    run_with(job, at, workspace, num_threads)
    give(workspace)
    return 0


cdef struct Items:
    const Job *job
    const Place *at
    const Batch *batch
    char *workspace
    size_t private_bytes
    ptrdiff_t step  # products a task


cdef inline void place_of(const Place *base, const Batch *batch, ptrdiff_t index, Place *at) noexcept nogil:
    """Operands of product `index`: the last dimension runs fastest."""
    cdef int d = batch.ndim - 1
    cdef ptrdiff_t x
    at[0] = base[0]
    while d >= 0:
        if d == 0:
            x = index
        else:
            x = index % batch.shape[d]
            index //= batch.shape[d]
        at.a += x * batch.step_a[d]
        at.b += x * batch.step_b[d]
        at.c += x * batch.step_c[d]
        if at.bias != NULL:
            at.bias += x * batch.step_bias[d]
        if batch.quantized:
            at.za += x * batch.step_za[d]
            at.zb += x * batch.step_zb[d]
            if at.row_scale != NULL:
                at.row_scale += x * batch.step_row_scale[d]
            if at.col_scale != NULL:
                at.col_scale += x * batch.step_col_scale[d]
                at.col_single += x * batch.step_col_scale[d]
        d -= 1


cdef enum: SMALL_A = 4096  # bytes of a narrow A that a batch of single tiles widens on the stack

cdef inline bint is_one_tile(const Job *job) noexcept nogil:
    """Whether a product is one call of a micro-kernel on a B read in place: then a batch needs no loops inside."""
    cdef const Choice *how = &job.how
    return (how.inner == INNER_GEMM and how.algorithm != SPLIT_K and not how.pack_b and not job.b_prepacked
            and job.m <= job.gemm.mr and job.n <= job.gemm.nr and 0 < job.k <= how.kc
            and (not how.pack_a or gk_panel_bytes(job.panel, job.gemm.mr, job.k) <= SMALL_A))


cdef void one_tile_items(const Items *t, ptrdiff_t first, ptrdiff_t end) noexcept nogil:
    """Products that are one tile each: widen A if need be, one kernel, the epilogue if need be."""
    cdef const Job *job = t.job
    cdef char a[SMALL_A + LINE]
    cdef char sums[512 * 8 + LINE]
    cdef ptrdiff_t index, item = job.item
    cdef Place at
    cdef gk_ukr_args g
    g.m, g.n, g.k = job.m, job.n, job.k
    g.rs_a, g.cs_a, g.rs_b, g.cs_b, g.rs_c = job.rs_a, job.cs_a, job.rs_b, job.b_item, job.rs_c
    g.add, g.rs_add = NULL, job.epilogue.rs_bias
    if job.how.pack_a:
        g.a = aligned(a)
        g.rs_a, g.cs_a = (job.k * item, item) if job.how.a_lines else (item, job.gemm.mr * item)
    if job.narrow:
        g.c, g.rs_c = aligned(sums), job.gemm.nr * item
    for index in range(first, end):
        place_of(t.at, t.batch, index, &at)
        if job.how.pack_a:
            (job.pack_a.lines if job.how.a_lines else job.pack_a.panels)(
                at.a, job.rs_a, job.cs_a, job.m, job.k, job.gemm.mr, <char *>g.a, NULL)
        else:
            g.a = at.a
        g.b = at.b
        if not job.narrow:
            g.c = at.c
        if job.bias_starts:
            g.add = at.bias
        job.gemm.fn(&g)
        if job.finishes:
            finish_tile(job, &at, g.c, g.rs_c, 0, 0, g.m, g.n)


cdef void items_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    cdef const Items *t = <const Items *>context
    cdef ptrdiff_t index, end = least(t.batch.count, (task + 1) * t.step)
    cdef char *workspace = t.workspace + thread * t.private_bytes
    cdef Place at
    if is_one_tile(t.job):
        one_tile_items(t, task * t.step, end)
        return
    for index in range(task * t.step, end):
        place_of(t.at, t.batch, index, &at)
        if t.job.k == 0:
            run_empty_sum(t.job, &at)
        else:
            run_serial(t.job, &at, workspace)


cdef int run_batch(const Job *job, const Place *at, const Batch *batch) noexcept nogil:
    """Equal products at strided places.

    Products go to threads whole, unless one alone can use them all: then they run one after the other.
    """
    cdef int all_threads, num_threads
    cdef ptrdiff_t index
    cdef Items t
    cdef Place each
    if batch.count == 0 or job.m == 0 or job.n == 0:
        return 0
    all_threads = threads_for(work_of(job) * batch.count)
    num_threads = threads_for(work_of(job) / (ALONE if batch.count >= all_threads else 1))
    if batch.count == 1 or (num_threads == all_threads and num_threads > 1):
        for index in range(batch.count):
            place_of(at, batch, index, &each)
            if run_one(job, &each, num_threads):
                return -1
        return 0
    t.job, t.at, t.batch = job, at, batch
    t.private_bytes = round_up(workspace_bytes(job, 1), 4096)
    t.workspace = NULL
    num_threads = <int>least(all_threads, batch.count)
    if t.private_bytes:
        t.workspace = <char *>take(t.private_bytes * num_threads)
        if t.workspace == NULL:
            return -1
    t.step = batch.count
    if num_threads > 1:
        t.step = ceil_div(batch.count, num_threads * TASKS_PER_THREAD)
    parallel_for(items_task, &t, ceil_div(batch.count, t.step), num_threads)
    give(t.workspace)
    return 0


cdef struct Group:
    const Job *jobs
    const Place *places
    const ptrdiff_t *order
    char *workspace
    size_t private_bytes


cdef void group_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    cdef const Group *t = <const Group *>context
    cdef ptrdiff_t index = t.order[task]
    if t.jobs[index].m == 0 or t.jobs[index].n == 0:
        return
    if t.jobs[index].k == 0:
        run_empty_sum(&t.jobs[index], &t.places[index])
    else:
        run_serial(&t.jobs[index], &t.places[index], t.workspace + thread * t.private_bytes)


cdef int run_group(const Job *jobs, const Place *places, ptrdiff_t count, const ptrdiff_t *order) noexcept nogil:
    """Unequal products, largest first: those that can use all threads one by one, the rest side by side."""
    cdef double work = 0
    cdef ptrdiff_t at, large = 0
    cdef int num_threads
    cdef Group t
    for at in range(count):
        work += work_of(&jobs[at])
    num_threads = threads_for(work)
    while large < count and num_threads > 1 and threads_for(work_of(&jobs[order[large]])) == num_threads:
        if run_one(&jobs[order[large]], &places[order[large]], num_threads):
            return -1
        large += 1
    t.jobs, t.places, t.order = jobs, places, order + large
    t.private_bytes, t.workspace = 0, NULL
    for at in range(large, count):
        if workspace_bytes(&jobs[order[at]], 1) > t.private_bytes:
            t.private_bytes = workspace_bytes(&jobs[order[at]], 1)
    t.private_bytes = round_up(t.private_bytes, 4096)
    if t.private_bytes:
        t.workspace = <char *>take(t.private_bytes * num_threads)
        if t.workspace == NULL:
            return -1
    parallel_for(group_task, &t, count - large, num_threads)
    give(t.workspace)
    return 0


# ---- constant B -------------------------------------------------------------------------------------------------

cdef size_t prepacked_bytes(const Job *job) noexcept nogil:
    """Bytes of all of B in micro-panels of NR columns, the last one padded, and of its columns' sums if it is of quads."""
    return prepacked_sums(job) + (job.n * sizeof(int32_t) if job.quads else 0)


cdef void prepack_b(const Job *job, const char *b, ptrdiff_t rs_b, ptrdiff_t cs_b, char *dst) noexcept nogil:
    """All of B, panel after panel in the order in which run_tiles visits them."""
    cdef ptrdiff_t jc = 0, pc, nc, kc, nr = job.gemm.nr
    cdef int32_t *sums = NULL
    if job.quads:
        sums = <int32_t *>(dst + prepacked_sums(job))
        memset(sums, 0, job.n * sizeof(int32_t))
    while jc < job.n:
        nc = least(job.how.nc, job.n - jc)
        pc = 0
        while pc < job.k:
            kc = least(job.how.kc, job.k - pc)
            job.pack_b.panels(b + pc * rs_b + jc * cs_b, cs_b, rs_b, nc, kc, nr, dst,
                              sums + jc if sums != NULL else NULL)
            dst += ceil_div(nc, nr) * gk_panel_bytes(job.panel_b, nr, kc)
            pc += kc
        jc += nc
