"""Products of bytes with few rows or few columns: the long operand is read once, where it lies.

The short one is laid out as lines of quads.  If the sums of the long operand's lines are needed, it gets one line more, of
ones, whose products are those sums; so sums are formed beside C and finished from there, a block at a time.
"""
from libc.stdint cimport int32_t
from libc.string cimport memset

from gemmkit._kernels._loops cimport aligned, finish_tile
from gemmkit._kernels._numbers cimport ceil_div, least, round_up
from gemmkit._kernels._parallel cimport parallel_for
from gemmkit._kernels._registry cimport GK_QUADS_I8, GK_QUADS_U8, gk_depth, gk_ukr_args
from gemmkit._kernels._schedule cimport INNER_STREAM, STREAM_STEP
from gemmkit._kernels._terms cimport Terms, column_terms, row_terms, terms_bytes

cdef enum:
    LINE = 64
    TASKS_PER_THREAD = 2
    BLOCK = 64  # lines of the long operand whose dot products are finished together
    MOST_SHORT = 64 + 1  # lines of the short one, ones included

cdef struct Phase:
    const Job *job
    const Place *at
    char *short  # the short operand's lines
    ptrdiff_t lines, depth  # how many, ones included, and bytes a line
    int32_t *sums  # of its lines
    Terms terms  # its own; the long operand's are added block by block
    char *private  # each thread's space
    ptrdiff_t private_bytes
    ptrdiff_t step  # lines of the long operand a task
    bint ones


cdef inline bint short_is_a(const Job *job) noexcept nogil:
    return job.how.pack_a


cdef inline bint needs_ones(const Job *job) noexcept nogil:
    return job.q.on and (job.q.sums_of_b if short_is_a(job) else job.q.sums_of_a)


cdef inline ptrdiff_t short_lines(const Job *job) noexcept nogil:
    return (job.m if short_is_a(job) else job.n) + (1 if needs_ones(job) else 0)


cdef inline ptrdiff_t short_depth(const Job *job) noexcept nogil:
    return gk_depth(GK_QUADS_U8 if short_is_a(job) else GK_QUADS_I8, job.k)


cdef inline ptrdiff_t stream_width(const Job *job) noexcept nogil:
    return least(job.how.nc, job.n)


cdef inline ptrdiff_t sums_stride(ptrdiff_t n) noexcept nogil:
    """Bytes from row to row of sums beside C: an odd number of lines, so that rows fall into different sets of L1."""
    return round_up(n * sizeof(int32_t), 2 * LINE) + LINE


cdef inline bint sums_apart(const Job *job) noexcept nogil:
    """Whether a stream's sums wait beside C: also for many rows, which C's own stride may send to the same sets of L1."""
    return job.narrow or needs_ones(job) or job.m > STREAM_STEP


cdef inline size_t private_space(const Job *job) noexcept nogil:
    """A stream's sums and terms of as many columns as one pass has."""
    if job.how.inner != INNER_STREAM:
        return 0
    return round_up(short_lines(job) * sums_stride(stream_width(job)) + terms_bytes(0, stream_width(job)), LINE)


cdef inline size_t shared_space(const Job *job) noexcept nogil:
    return (round_up(short_lines(job) * short_depth(job) + 8, LINE)
            + round_up(terms_bytes(job.m, 0) if short_is_a(job) else terms_bytes(0, job.n), LINE))


cdef size_t quads_bytes(const Job *job, int num_threads) noexcept nogil:
    return shared_space(job) + num_threads * private_space(job)


cdef void lay_out(const Job *job, const Place *at, char *workspace, Phase *f) noexcept nogil:
    """The short operand's lines, their sums and terms; one thread does it."""
    cdef ptrdiff_t own = job.m if short_is_a(job) else job.n
    cdef char *ones
    f.job, f.at = job, at
    f.lines, f.depth, f.ones = short_lines(job), short_depth(job), needs_ones(job)
    f.short = workspace
    workspace += round_up(f.lines * f.depth + 8, LINE)
    f.sums = <int32_t *>workspace
    workspace += round_up(terms_bytes(own, 0), LINE)
    f.private, f.private_bytes = workspace, private_space(job)
    memset(f.sums, 0, own * sizeof(int32_t))
    memset(&f.terms, 0, sizeof(Terms))
    if short_is_a(job):
        job.pack_a.lines(at.a, job.rs_a, job.cs_a, job.m, job.k, job.m, f.short, f.sums if job.q.sums_of_a else NULL)
        if job.q.on:
            row_terms(job, at, f.sums, f.sums + own, 0, own, &f.terms)
    else:
        job.pack_b.lines(at.b, job.cs_b, job.rs_b, job.n, job.k, job.n, f.short, f.sums if job.q.sums_of_b else NULL)
        if job.q.on:
            column_terms(job, at, f.sums, f.sums + own, 0, own, &f.terms)
    if f.ones:
        ones = f.short + own * f.depth
        memset(ones, 1, job.k)
        memset(ones + job.k, 0, f.depth - job.k)


cdef void stream_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """Columns of C: B passes once for every MR rows, and from L2 after the first of them."""
    cdef const Phase *f = <const Phase *>context
    cdef const Job *job = f.job
    cdef Place at = f.at[0]
    cdef Terms terms = f.terms
    cdef ptrdiff_t j = task * f.step, j_end = least(job.n, j + f.step), n, pc, kc, i
    cdef bint apart = sums_apart(job)
    cdef char *private = f.private + thread * f.private_bytes
    cdef char *sums
    cdef gk_ukr_args g
    g.rs_a, g.cs_a = f.depth, 1
    g.rs_b, g.cs_b = job.rs_b, 1
    at.terms = &terms
    while j < j_end:
        n = least(job.how.nc, j_end - j)
        sums = private if apart else at.c + j * job.c_item
        g.rs_c = sums_stride(n) if apart else job.rs_c
        pc = 0
        while pc < job.k:
            kc = least(job.how.kc, job.k - pc)
            i = 0
            while i < f.lines:
                g.m, g.n, g.k = least(job.how.ms, f.lines - i), n, kc
                g.a = f.short + i * f.depth + pc
                g.b = at.b + pc * job.rs_b + j
                g.c = sums + i * g.rs_c
                g.add, g.rs_add = NULL if pc == 0 else g.c, g.rs_c
                job.inner.fn(&g)
                i += g.m
            pc += kc
        if job.q.on:
            column_terms(job, &at, <int32_t *>(sums + job.m * g.rs_c), <int32_t *>(private + f.lines * sums_stride(n)),
                         j, n, &terms)
        if job.finishes or apart:
            finish_tile(job, &at, sums, g.rs_c, 0, j, job.m, n)
        j += n


cdef void run_quad_stream(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil:
    cdef Phase f
    lay_out(job, at, workspace, &f)
    f.step = job.n
    if num_threads > 1:
        # One piece a thread: the longer the pieces of B's rows, the better prefetchers follow.
        f.step = round_up(ceil_div(job.n, num_threads), job.inner.vl)
    parallel_for(stream_task, &f, ceil_div(job.n, f.step), num_threads)


cdef void dot_task(void *context, ptrdiff_t task, int thread) noexcept nogil:
    """Lines of the long operand, a block of them at a time; the short one's lines stay in L1 or L2."""
    cdef const Phase *f = <const Phase *>context
    cdef const Job *job = f.job
    cdef Place at = f.at[0]
    cdef Terms terms = f.terms
    cdef bint short_a = short_is_a(job)
    cdef ptrdiff_t most = job.n if short_a else job.m
    cdef ptrdiff_t x = task * f.step, end = least(most, x + f.step), some, i, j, rows, columns
    cdef int32_t sums[MOST_SHORT * BLOCK + 16]
    cdef int32_t space[3 * BLOCK]
    cdef gk_ukr_args g
    at.terms = &terms
    g.k, g.add, g.rs_add = job.k, NULL, 0
    while x < end:
        some = least(BLOCK, end - x)
        rows = f.lines if short_a else some
        columns = some if short_a else f.lines
        g.rs_c = columns * sizeof(int32_t)
        j = 0
        while j < columns:
            i = 0
            while i < rows:
                g.m, g.n = least(job.inner.mr, rows - i), least(job.inner.nr, columns - j)
                if short_a:
                    g.a, g.rs_a, g.cs_a = f.short + i * f.depth, f.depth, 1
                    g.b, g.rs_b, g.cs_b = at.b + (x + j) * job.cs_b, 1, job.cs_b
                else:
                    g.a, g.rs_a, g.cs_a = at.a + (x + i) * job.rs_a, job.rs_a, 1
                    g.b, g.rs_b, g.cs_b = f.short + j * f.depth, 1, f.depth
                g.c = <char *>(sums + i * columns + j)
                job.inner.fn(&g)
                i += g.m
            j += g.n
        if job.q.on:
            if short_a:
                column_terms(job, &at, sums + job.m * columns, space, x, some, &terms)
            else:
                # The sums of A's lines are the column of ones.
                for i in range(some if f.ones else 0):
                    space[2 * BLOCK + i] = sums[i * columns + job.n]
                row_terms(job, &at, space + 2 * BLOCK, space, x, some, &terms)
        if short_a:
            finish_tile(job, &at, <char *>sums, g.rs_c, 0, x, job.m, some)
        else:
            finish_tile(job, &at, <char *>sums, g.rs_c, x, 0, some, job.n)
        x += some


cdef void run_quad_dot(const Job *job, const Place *at, char *workspace, int num_threads) noexcept nogil:
    cdef Phase f
    cdef ptrdiff_t most = job.n if short_is_a(job) else job.m
    lay_out(job, at, workspace, &f)
    f.step = most
    if num_threads > 1:
        f.step = ceil_div(most, num_threads * TASKS_PER_THREAD)
    parallel_for(dot_task, &f, ceil_div(most, f.step), num_threads)
