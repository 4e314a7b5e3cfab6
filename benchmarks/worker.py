"""Child process of ``compare.py``: owns one library and times it on request.

Run as ``worker.py BACKEND THREADS CPU[,CPU...]``.  It reads one JSON object a
line from its standard input and answers each with one line; between requests
it is blocked in the read and uses no CPU.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any, TextIO

if not __package__:
    # Import this folder as a package without leaving the repository in front
    # of the search path, where the source tree would hide an installed gemmkit.
    _ROOT = str(Path(__file__).resolve().parent.parent)
    sys.path.insert(0, _ROOT)
    import benchmarks  # noqa: F401

    sys.path.remove(_ROOT)
    sys.path.append(_ROOT)

_QUIET_STEP = 0.004
_QUIET_SHARE = 0.25
_QUIET_LIMIT = 0.4
_MAX_LOOPS = 1_000_000
_WARM_LIMIT = 0.2  # seconds of a call beside which those of cold caches are nothing


def _burst(call: Callable[[], Any], loops: int, *, warm: bool = True) -> float:
    """Seconds of ``loops`` calls, after one untimed call if ``warm``.

    The untimed call refills caches and wakes the thread pool: another backend
    has run since the previous burst.
    """
    if warm:
        call()
    counter = repeat(None, loops)
    start = time.perf_counter()
    for _ in counter:
        call()
    return time.perf_counter() - start


def _calibrate(call: Callable[[], Any], target: float) -> int:
    """Number of calls that fill about ``target`` seconds; at least one."""
    loops = 1
    while True:
        seconds = _burst(call, loops)
        if seconds >= target / 2 or loops >= _MAX_LOOPS:
            break
        growth = target / seconds if seconds > 0 else 10.0
        loops = min(_MAX_LOOPS, math.ceil(loops * min(10.0, max(2.0, growth))))
    if seconds > 0:
        loops = round(loops * target / seconds)
    return min(_MAX_LOOPS, max(1, loops))


def _settle() -> float:
    """Wait until this process's threads have stopped spinning; seconds waited.

    Pools keep their threads spinning for a while after work (OpenBLAS: tens of
    milliseconds), on the very CPUs the next backend is about to be timed on.
    CPU time that grows while this thread sleeps can only be theirs.
    """
    start = time.perf_counter()
    while time.perf_counter() - start < _QUIET_LIMIT:
        cpu, wall = time.process_time(), time.perf_counter()
        time.sleep(_QUIET_STEP)
        share = (time.process_time() - cpu) / (time.perf_counter() - wall)
        if share < _QUIET_SHARE:
            break
    return time.perf_counter() - start


def _peak(dtype: str) -> float | None:
    """GFLOP/s or Gop/s of one core, if this gemmkit can measure it."""
    from benchmarks.attention_corpus import element
    from benchmarks.corpus import MODES

    try:
        config = importlib.import_module("gemmkit._config")
    except ImportError:
        return None
    measure = getattr(config, "measure_peak", None)
    if measure is None:
        return None
    try:  # one rate for all modes: their operands run through the same kernel
        return float(measure("uint8" if dtype in MODES else element(dtype)))
    except (KeyError, TypeError, ValueError):  # a type it has no loop for
        return None


class _Worker:
    """State between requests: the prepared call of the current case."""

    def __init__(self, name: str, threads: int) -> None:
        from benchmarks.attention_backends import BACKENDS

        self.backend, self.threads = BACKENDS[name](threads), threads
        self.call: Callable[[], Any] | None = None
        self.loops, self.seconds = 1, 0.0
        self.reader: Any = None
        # What an import left behind is never garbage; without this a collection
        # walks all of it before every burst (50 ms where torch is loaded).
        gc.collect()
        gc.freeze()

    def hello(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"info": self.backend.info()}

    def peak(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"gflops": _peak(request["dtype"])}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Set a case up, check its first result, find the number of loops."""
        import numpy as np

        from benchmarks.attention_corpus import BY_NAME
        from benchmarks.attention_verify import error_fraction, make_arrays

        case, dtype = BY_NAME[request["case"]], request["dtype"]
        self.call = None  # free the previous case before allocating this one
        arrays = make_arrays(case, dtype)
        call, reason = self.backend.prepare(case, dtype, arrays)
        if call is None:
            return {"skipped": reason}
        first = self.backend.to_numpy(call())
        fraction = error_fraction(case, arrays, first, strict=self.backend.strict)
        start = time.perf_counter()
        second = self.backend.to_numpy(call())
        self.seconds = time.perf_counter() - start
        fresh = not any(np.may_share_memory(x, y) for x, y in zip(first, second))
        result_dtype = str(first[0].dtype)
        del first, second
        self.call = call
        self.loops = _calibrate(call, request["target"])
        return {
            "loops": self.loops,
            # JSON has no infinity
            "error_fraction": fraction if math.isfinite(fraction) else None,
            "verified": fraction <= 1.0,
            "result_dtype": result_dtype,
            "fresh_output": fresh,
            "described": self.backend.describe(case, dtype),
            "settle": _settle(),
        }

    def burst(self, request: dict[str, Any]) -> dict[str, Any]:
        """Seconds of one call, as the mean over one burst."""
        if self.call is None:
            raise RuntimeError("no case is prepared")
        gc.collect()
        gc.disable()
        try:
            warm = self.loops > 1 or self.seconds < _WARM_LIMIT
            seconds = _burst(self.call, self.loops, warm=warm) / self.loops
        finally:
            gc.enable()
        return {"seconds": seconds, "settle": _settle()}

    def read(self, request: dict[str, Any]) -> dict[str, Any]:
        """Bytes a second that numpy reads, of as much as a case does and of memory."""
        from benchmarks.bandwidth import Reader

        if self.reader is None:
            self.reader = Reader(self.threads)
        same, same_how = self.reader.rate(request["bytes"])
        memory, memory_how = self.reader.rate(self.reader.size)
        _settle()
        return {"same": same, "same_how": same_how, "memory": memory,
                "memory_how": memory_how, "memory_bytes": self.reader.size}


def _answer(out: TextIO, reply: dict[str, Any]) -> None:
    out.write(json.dumps(reply) + "\n")
    out.flush()


def main(arguments: list[str]) -> int:
    """Serve requests until the pipe closes."""
    name, threads, cpus = arguments[0], int(arguments[1]), arguments[2]
    # Libraries print; keep the protocol's pipe for the protocol.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Before any library is imported: a pool is sized and placed on import.
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    try:
        worker = _Worker(name, threads)
    except (ImportError, OSError) as error:
        _answer(out, {"unavailable": f"{type(error).__name__}: {error}"})
        return 0
    commands = {
        "hello": worker.hello,
        "peak": worker.peak,
        "prepare": worker.prepare,
        "burst": worker.burst,
        "read": worker.read,
    }
    _answer(out, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        if request["cmd"] == "quit":
            break
        try:
            reply = commands[request["cmd"]](request)
        except Exception as error:  # one failing case must not end the run
            reply = {"failed": f"{type(error).__name__}: {error}"}
        _answer(out, reply)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
