"""The engine: decides a product, and runs one, a batch of equal ones or a group of unequal ones.

Who owns what: a `Job` is immutable, a `Place` points into the callers' arrays, workspace is borrowed for one call from
_parallel and given back by it.
"""
from libc.string cimport memset

from gemmkit._kernels._numbers cimport ceil_div, least, round_up
from gemmkit._kernels._registry cimport (GK_DOT, GK_GEMM, GK_STREAM, current_cpu, gk_cpu, gk_epi_args, gk_ukr, gk_ukr_args,
                                         select_epilogue, select_row)
from gemmkit._kernels._parallel cimport give, parallel_for, take, threads_for
from gemmkit._kernels._schedule cimport (AUTO, DIRECT, GENERAL, INNER_DOT, INNER_GEMM, INNER_STREAM, SPLIT_K, Choice,
                                         Problem, choose, refusal, rows_at_once)
from gemmkit._kernels._loops cimport (Epilogue, Job, Place, finish_tile, run_dot, run_stream, run_tiles, takes_columns,
                                      tiles_bytes)

cdef enum:
    LINE = 64  # partial sums and private workspaces start on a line
    ALONE = 16  # a product of a batch gets all threads from 16 times the work on that would do outside of one
    TASKS_PER_THREAD = 8  # a batch is handed out in runs of products, smaller than a thread's share


# ---- deciding ---------------------------------------------------------------------------------------------------

cdef void describe(const Job *job, Problem *p) noexcept nogil:
    """The numbers that the choosers need, read off a job, the table and the machine."""
    cdef const gk_cpu *cpu = current_cpu()
    cdef const gk_ukr *gemm = select_row(GK_GEMM, job.type, job.n)
    cdef const gk_ukr *dot = select_row(GK_DOT, job.type, job.n)
    p.m, p.n, p.k, p.item = job.m, job.n, job.k, job.item
    p.rs_a, p.cs_a, p.rs_b, p.cs_b = job.rs_a, job.cs_a, job.rs_b, job.cs_b
    p.b_prepacked = job.b_prepacked
    p.mr, p.nr, p.vl = gemm.mr, gemm.nr, gemm.vl
    p.dot_mr, p.dot_nr = dot.mr, dot.nr
    p.l1d, p.l2, p.l3 = cpu.l1d, cpu.l2, cpu.l3


cdef void prepare(Job *job, int forced) noexcept nogil:
    """Choose rows, algorithm and blocks for a job whose sizes, strides and epilogue are set."""
    cdef Problem p
    describe(job, &p)
    choose(&p, forced, &job.how)
    job.gemm = select_row(GK_GEMM, job.type, job.n)
    if job.how.inner == INNER_DOT:
        job.inner = select_row(GK_DOT, job.type, job.n)
    elif job.how.inner == INNER_STREAM:
        job.inner = select_row(GK_STREAM, job.type, job.n)
    else:
        job.inner = job.gemm
    job.finish = select_epilogue(job.type)
    settle_epilogue(job)


cdef void settle_epilogue(Job *job) noexcept nogil:
    cdef const Epilogue *e = &job.epilogue
    job.bias_starts = (e.has_bias and e.alpha == 1.0 and e.beta == 1.0
                       and (e.cs_bias == job.item or job.n == 1) and job.how.algorithm != SPLIT_K)
    job.finishes = e.alpha != 1.0 or (e.has_bias and not job.bias_starts)


cdef bint same_layout(const Job *job, const Job *planned) noexcept nogil:
    return (job.m == planned.m and job.n == planned.n and job.k == planned.k and job.rs_a == planned.rs_a
            and job.cs_a == planned.cs_a and job.rs_b == planned.rs_b and job.cs_b == planned.cs_b)


cdef void adopt(Job *job, const Job *planned, int forced) noexcept nogil:
    """Take over a plan's decisions; decide anew when this call's operands are laid out otherwise.

    A prepacked B keeps the row and blocks that it was packed for, whatever set is in use now; only what concerns A
    follows A's layout.
    """
    cdef Problem p
    if not job.b_prepacked and not same_layout(job, planned):
        # A forced algorithm binds the plan's own layout; one that can't read this call's operands gives way.
        describe(job, &p)
        prepare(job, forced if refusal(&p, forced) == NULL else AUTO)
        return
    job.how, job.gemm, job.inner, job.finish = planned.how, planned.gemm, planned.inner, planned.finish
    if not same_layout(job, planned):
        job.how.pack_a = job.cs_a != job.item and job.k > 1
        job.how.ms = job.gemm.mr if job.how.pack_a else ceil_div(job.m, ceil_div(job.m, job.gemm.mr)) if job.m else 1
        job.how.mc = rows_at_once(job.m, job.how.kc * job.item, job.gemm.mr, job.how.pack_a)
    settle_epilogue(job)


cdef size_t workspace_bytes(const Job *job) noexcept nogil:
    """Workspace that one thread, or all together on one product, need: packed panels and partial sums."""
    cdef const Choice *how = &job.how
    cdef size_t sum = 0
    cdef Job part
    if how.algorithm == SPLIT_K:
        chunk_of(job, &part)
        return how.splits * (partial_bytes(job) + workspace_bytes(&part))
    if how.inner == INNER_DOT:
        # Whole lines of K, so that vectors run along it.
        if how.pack_a:
            sum += round_up(job.m * job.k * job.item, LINE)
        if how.pack_b:
            sum += round_up(job.n * job.k * job.item, LINE)
    elif how.inner == INNER_GEMM:
        sum = tiles_bytes(job)
    return sum


# ---- split K ----------------------------------------------------------------------------------------------------

cdef struct Split:
    const Job *job
    const Place *at
    Job part
    char *partials  # splits x M x N, each a whole number of lines
    char *private  # a chunk's own packing space
    ptrdiff_t rows


cdef size_t partial_bytes(const Job *job) noexcept nogil:
    return round_up(job.m * job.n * job.item, LINE)


cdef void chunk_of(const Job *job, Job *part) noexcept nogil:
    """One chunk of K as a job of its own, into contiguous partial sums, without epilogue."""
    part[0] = job[0]
    part.k = job.how.chunk
    part.rs_c = job.n * job.item
    part.epilogue.alpha, part.epilogue.has_bias = 1.0, False
    part.bias_starts = part.finishes = False
    part.how.splits, part.how.chunk = 1, part.k
    part.how.algorithm = DIRECT if not (job.how.pack_a or job.how.pack_b) else GENERAL


cdef void split_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    cdef Split *s = <Split *>context
    cdef Job part = s.part
    cdef Place at
    cdef ptrdiff_t p = task * part.k
    at.a, at.b = s.at.a + p * part.cs_a, s.at.b + p * part.rs_b
    at.c, at.bias = s.partials + task * partial_bytes(s.job), NULL
    part.k = least(part.k, s.job.k - p)
    run_serial(&part, &at, s.private + task * workspace_bytes(&s.part))


cdef void join_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """Adds the partial sums of some rows in the order of K, then the epilogue."""
    cdef Split *s = <Split *>context
    cdef const Job *job = s.job
    cdef ptrdiff_t i = task * s.rows, m = least(s.rows, job.m - i), chunk
    cdef gk_epi_args e
    e.m, e.n = m, job.n
    e.alpha, e.beta = 1.0, 1.0
    e.c, e.rs_c = s.partials + i * job.n * job.item, job.n * job.item
    e.rs_bias, e.cs_bias = e.rs_c, job.item
    for chunk in range(1, job.how.splits):
        e.bias = e.c + chunk * partial_bytes(job)
        job.finish(&e)
    # Into C as a sum that starts at zero rows of K: the GEMM row is the one that can copy.
    copy_rows(job, e.c, s.at.c + i * job.rs_c, m)
    if job.finishes:
        finish_tile(job, s.at, i, 0, m, job.n)


cdef void copy_rows(const Job *job, const char *src, char *dst, ptrdiff_t m) noexcept nogil:
    cdef gk_ukr_args g
    cdef ptrdiff_t i, j
    g.a, g.rs_a, g.cs_a, g.b, g.rs_b, g.cs_b, g.k = src, 0, 0, src, 0, job.item, 0
    g.rs_c, g.rs_add = job.rs_c, job.n * job.item
    i = 0
    while i < m:
        g.m = least(job.gemm.mr, m - i)
        j = 0
        while j < job.n:
            g.n = least(job.gemm.nr, job.n - j)
            g.c, g.add = dst + i * g.rs_c + j * job.item, src + i * g.rs_add + j * job.item
            job.gemm.fn(&g)
            j += g.n
        i += g.m


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
        run_dot(job, at, workspace, num_threads)
    elif job.how.inner == INNER_STREAM:
        run_stream(job, at, num_threads)
    else:
        run_tiles(job, at, workspace, num_threads)


cdef void run_serial(const Job *job, const Place *at, char *workspace) noexcept nogil:
    run_with(job, at, workspace, 1)


cdef void run_empty_sum(const Job *job, const Place *at) noexcept nogil:
    """K = 0: zeros, or beta times the bias; A and B are not read."""
    cdef ptrdiff_t i
    cdef Job scaled = job[0]
    for i in range(job.m):
        memset(at.c + i * job.rs_c, 0, job.n * job.item)
    if job.epilogue.has_bias:
        # alpha scales no sum, so it can't make NaN of one.
        scaled.epilogue.alpha = 1.0
        finish_tile(&scaled, at, 0, 0, job.m, job.n)


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
    bytes = workspace_bytes(job)
    if job.how.algorithm != SPLIT_K and job.how.inner == INNER_GEMM and takes_columns(job, num_threads):
        bytes *= num_threads
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
        d -= 1


cdef inline bint is_one_tile(const Job *job) noexcept nogil:
    """Whether a product is one call of a micro-kernel on operands read in place: then a batch needs no loops inside."""
    cdef const Choice *how = &job.how
    return (how.inner == INNER_GEMM and how.algorithm != SPLIT_K and not how.pack_a and not how.pack_b
            and not job.b_prepacked and job.m <= job.gemm.mr and job.n <= job.gemm.nr and job.k <= how.kc)


cdef inline void one_tile(const Job *job, gk_ukr_args *g) noexcept nogil:
    """What stays the same from product to product."""
    g.m, g.n, g.k = job.m, job.n, job.k
    g.rs_a, g.cs_a, g.rs_b, g.cs_b, g.rs_c = job.rs_a, job.cs_a, job.rs_b, job.item, job.rs_c
    g.add, g.rs_add = NULL, job.epilogue.rs_bias


cdef void items_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    cdef const Items *t = <const Items *>context
    cdef ptrdiff_t index, end = least(t.batch.count, (task + 1) * t.step)
    cdef char *workspace = t.workspace + thread * t.private_bytes
    cdef Place at
    cdef gk_ukr_args g
    if is_one_tile(t.job):
        one_tile(t.job, &g)
        for index in range(task * t.step, end):
            place_of(t.at, t.batch, index, &at)
            g.a, g.b, g.c = at.a, at.b, at.c
            if t.job.bias_starts:
                g.add = at.bias
            t.job.gemm.fn(&g)
            if t.job.finishes:
                finish_tile(t.job, &at, 0, 0, g.m, g.n)
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
    t.private_bytes = round_up(workspace_bytes(job), 4096) if job.k else 0
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
        if jobs[order[at]].k and workspace_bytes(&jobs[order[at]]) > t.private_bytes:
            t.private_bytes = workspace_bytes(&jobs[order[at]])
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
    """Bytes of all of B in micro-panels of NR columns, the last one padded."""
    return round_up(job.n, job.gemm.nr) * job.k * job.item


cdef void prepack_b(const Job *job, const char *b, ptrdiff_t rs_b, ptrdiff_t cs_b, char *dst) noexcept nogil:
    """All of B, panel after panel in the order in which run_tiles visits them."""
    cdef ptrdiff_t jc = 0, pc, nc, kc
    while jc < job.n:
        nc = least(job.how.nc, job.n - jc)
        pc = 0
        while pc < job.k:
            kc = least(job.how.kc, job.k - pc)
            job.gemm.pack_b(b + pc * rs_b + jc * cs_b, cs_b, rs_b, nc, kc, job.gemm.nr,
                            dst + (jc * job.k + round_up(nc, job.gemm.nr) * pc) * job.item)
            pc += kc
        jc += nc
