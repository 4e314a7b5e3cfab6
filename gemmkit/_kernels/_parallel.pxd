"""The one parallel loop of the package, thread counts, and workspace."""

ctypedef void (*task_fn)(void *context, ptrdiff_t task, int thread) noexcept nogil

# Runs fn(context, task, thread) for each task; thread < num_threads indexes private workspace.
cdef void parallel_for(task_fn fn, void *context, ptrdiff_t num_tasks, int num_threads) noexcept nogil
# How many threads a large call may use now.
cdef int thread_limit() noexcept nogil
# How many threads `work` multiply-adds can use now; 1 is always right.
cdef int threads_for(double work) noexcept nogil

cdef extern from "workspace.h" nogil:
    void *workspace_take "gk_workspace_take"(size_t bytes)
    void workspace_give "gk_workspace_give"(void *p)

cdef void *take(size_t bytes) noexcept nogil
cdef void give(void *p) noexcept nogil
