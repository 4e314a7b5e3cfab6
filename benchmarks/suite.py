"""What the asv benchmark modules share.

asv follows one library over its history, in one process with numpy beside it
as a yardstick for the machine; ``compare.py`` is what compares libraries.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.attention_backends import BACKENDS, GemmkitAttention
from benchmarks.attention_corpus import BY_NAME, select
from benchmarks.attention_verify import error_fraction, make_arrays
from benchmarks.backends import Call
from benchmarks.corpus import DTYPES, Case

BACKEND_NAMES = ["gemmkit", "numpy"]
_RATE_SECONDS = 0.05
_RATE_REPEATS = 5


def names(
    keep: Callable[[Case], bool], dtypes: Iterable[str] = DTYPES
) -> list[str]:
    """Names of the priority cases that a module takes, in corpus order."""
    cases = select(priority_only=True, dtypes=dtypes)
    return [case.name for case in cases if keep(case)]


def thread_count() -> int:
    """Threads for gemmkit: exactly as many as numpy's pool will have.

    A rate beside a yardstick of another thread count would say nothing, so the
    variables that numpy's BLAS reads decide, and GEMMKIT_NUM_THREADS does not.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return len(os.sched_getaffinity(0))


def gemmkit_for(dtype: str) -> Any:
    """gemmkit with its threads set; a commit without ``dtype`` is skipped."""
    backend = GemmkitAttention(thread_count())
    if backend.lacks(dtype):
        raise NotImplementedError  # asv's word for a skipped combination
    return backend.lib


def rate(call: Callable[[], Any], flops: int) -> float:
    """Best GFLOP/s of a few short series.

    The best, unlike the mean, does not move with what else the machine does.
    """
    call()
    loops, best = 1, float("inf")
    for _ in range(_RATE_REPEATS):
        while True:
            start = time.perf_counter()
            for _ in range(loops):
                call()
            seconds = time.perf_counter() - start
            if seconds >= _RATE_SECONDS / _RATE_REPEATS:
                break
            loops *= 2
        best = min(best, seconds / loops)
    return flops / best / 1e9


class CaseBenchmark:
    """Base of the benchmarks over corpus cases; ``call`` is one product."""

    param_names = ["case", "dtype", "backend"]
    call: Call

    def setup(self, name: str, dtype: str, backend: str) -> None:
        """Prepare one case and refuse to time a wrong result."""
        self.case = BY_NAME[name]
        if dtype not in self.case.dtypes:
            raise NotImplementedError
        self.backend = BACKENDS[backend](thread_count())
        arrays = make_arrays(self.case, dtype)
        call, _ = self.backend.prepare(self.case, dtype, arrays)
        if call is None:
            raise NotImplementedError
        fraction = error_fraction(
            self.case, arrays, self.backend.to_numpy(call()),
            strict=self.backend.strict,
        )
        if not fraction <= 1.0:
            raise AssertionError(f"{name}: error is {fraction:g} times the bound")
        self.call = call
