"""The one parallel loop of the package, thread counts, and workspace.

Every parallel phase is `parallel_for`: a flat range of tasks handed out one by one, so that a thread which the
system has put aside holds up only its own task.  Nothing nests: a task never calls `parallel_for`.
docs/threads.md says what sleeping and spinning workers cost.
"""
from cython.parallel cimport prange, threadid
from libc.stdlib cimport malloc, free

import os

cdef extern from "omp.h" nogil:
    int omp_get_max_threads()

cdef extern from * nogil:
    """
    #if defined(__linux__)
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sched.h>
    /* Processors that the calling thread may run on: 0 when the system won't say. */
    static int gk_allowed_processors(void)
    {
        cpu_set_t set;
        return sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);
    }
    #else
    static int gk_allowed_processors(void) { return 0; }
    #endif
    #include <omp.h>
    /* libgomp only: LLVM's libomp looks after forks itself.  gcc has had this since 9 but still announces OpenMP 4.5. */
    #if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 9
    static void gk_pause(void) { omp_pause_resource_all(omp_pause_hard); }
    #else
    static void gk_pause(void) {}
    #endif
    """
    int gk_allowed_processors()
    void gk_pause()

cdef extern from "workspace.h" nogil:
    size_t gk_workspace_kept()
    void gk_workspace_trim()

cdef extern from "team.h" nogil:
    int gk_team_grant(int wanted)
    void gk_team_forget()

# Multiply-adds that pay for one more thread.  Waking a spinning worker takes about a microsecond and one that sleeps
# 60 to 100; half a million multiply-adds are 5 to 15 microseconds of one core.
cdef double WORK_PER_THREAD = 512.0 * 1024

cdef int requested = 0  # set_num_threads, GEMMKIT_NUM_THREADS; 0: decide by the machine
cdef int quota = 0  # whole processors that the cgroup grants; 0: no limit
cdef int omp_initially = omp_get_max_threads()


cdef void parallel_for(task_fn fn, void *context, ptrdiff_t num_tasks, int num_threads) noexcept nogil:
    cdef ptrdiff_t task
    if num_threads > num_tasks:
        num_threads = <int>num_tasks
    if num_threads > 1:
        num_threads = gk_team_grant(num_threads)
    if num_threads <= 1:  # a region of one thread costs 0.6 us
        for task in range(num_tasks):
            fn(context, task, 0)
        return
    for task in prange(num_tasks, num_threads=num_threads, schedule='dynamic', chunksize=1):
        fn(context, task, threadid())


cdef int thread_limit() noexcept nogil:
    cdef int n = requested, now = omp_get_max_threads(), allowed
    if n == 0:
        n = now
        allowed = gk_allowed_processors()
        if 0 < allowed < n:
            n = allowed
        if 0 < quota < n:
            n = quota
    elif now != omp_initially and now < n:
        # threadpoolctl or omp_set_num_threads has limited this thread since the import: it overrides.
        n = now
    return n if n > 1 else 1


cdef int threads_for(double work) noexcept nogil:
    cdef double most
    if work < 2 * WORK_PER_THREAD:
        return 1
    most = work / WORK_PER_THREAD
    cdef int limit = thread_limit()
    return limit if most >= limit else <int>most


cdef void *take(size_t bytes) noexcept nogil:
    return workspace_take(bytes)


cdef void give(void *p) noexcept nogil:
    workspace_give(p)


def set_num_threads(n):
    """Set how many threads a call may use, for the whole process.

    Parameters
    ----------
    n : int or None
        At least 1.  None returns to the default: GEMMKIT_NUM_THREADS if set, else OMP_NUM_THREADS, the processors
        in the affinity mask and the cgroup's quota, whichever is least.

    Raises
    ------
    TypeError, ValueError
        `n` is no integer, or less than 1.
    """
    global requested
    if n is None:
        requested = environment_threads()
        return
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise TypeError(f"n: expected an integer or None, got {type(n).__name__}")
    n = n.__index__()
    if not 1 <= n <= 1024:
        raise ValueError(f"n: expected 1 to 1024 threads, got {n}")
    requested = n


def get_num_threads():
    """Return how many threads a large call made now by this thread may use."""
    return thread_limit()


def get_requested():
    """The number set by the user, 0 when the machine decides."""
    return requested


def restore_requested(int n):
    global requested
    requested = n


def environment_threads():
    text = os.environ.get("GEMMKIT_NUM_THREADS", "").strip()
    if not text:
        return 0
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise ValueError(f"GEMMKIT_NUM_THREADS: expected an integer from 1 to 1024, got {text!r}")
    return int(text)


def set_quota(int n):
    """Whole processors that the control group grants; 0 for no limit."""
    global quota
    quota = n


def workspace_kept():
    """Bytes of workspace that wait for the next call."""
    return gk_workspace_kept()


def workspace_trim():
    """Free the workspace that waits for the next call."""
    gk_workspace_trim()


def before_fork():
    """libgomp's workers don't survive a fork, and a child that waits for them hangs: send them home first."""
    gk_pause()
    gk_team_forget()  # the parent's next team is a new one too


def after_fork_in_child():
    gk_team_forget()


requested = environment_threads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=before_fork, after_in_child=after_fork_in_child)
