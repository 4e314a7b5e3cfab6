"""How fast numpy reads memory: what a decoding attention is to be measured by.

A step of decoding reads K and V once and computes little, so its bound is the rate at
which these threads read.  No single function of numpy is the fastest reader everywhere:
a reduction follows one stream, a product of a vector and a matrix several, which keeps
more reads under way.  All are tried, and the fastest is the yardstick.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.verify import Array

_LEAST = 256 << 20
_MOST = 1 << 30
_COLUMNS = 1024
_PASSES, _TRIAL = 3, 6  # of which the best counts; the trial of all functions is made once


def last_level_cache() -> int:
    """Bytes of the largest cache that this CPU tells of."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        if text[:-1].isdigit():
            sizes.append(int(text[:-1]) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0))
    return max(sizes)


class Reader:
    """Best rates of reading, and which function reached them.

    Functions of BLAS use the threads that it has; the others are run on a slice for
    each thread, as they let go of the interpreter's lock.
    """

    def __init__(self, threads: int) -> None:
        self.size = min(_MOST, max(_LEAST, 2 * last_level_cache()))
        self._values = np.ones(self.size // 4, np.float32)
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._fastest: dict[int, str] = {}

    def rate(self, size: int) -> tuple[float, str]:
        """Bytes a second over ``size`` bytes, or all there are, and the function's name."""
        size = min(size, self.size)
        methods = self._methods(self._values[: size // 4])
        chosen = self._fastest.get(size)
        passes = _PASSES if chosen else _TRIAL
        best = {name: self._best(methods[name], passes) for name in ([chosen] if chosen else methods)}
        self._fastest[size] = name = min(best, key=lambda name: best[name])
        return size / best[name], name

    @staticmethod
    def _best(call: Callable[[], object], passes: int) -> float:
        times = []
        for _ in range(passes):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times)

    def _methods(self, x: Array) -> dict[str, Callable[[], object]]:
        wide = x[: x.size & -2].view(np.float64)
        matrix = x[: x.size - x.size % _COLUMNS].reshape(-1, _COLUMNS)
        left, right = np.ones(len(matrix), np.float32), np.ones(_COLUMNS, np.float32)

        def reduced(values: Array) -> object:
            if self._pool is None:
                return np.maximum.reduce(values)
            return list(self._pool.map(np.maximum.reduce, np.array_split(values, self._threads)))

        return {
            "dot of float32": lambda: np.dot(x, x),
            "dot of float64": lambda: np.dot(wide, wide),
            "maximum.reduce of float64": lambda: reduced(wide),
            "vector @ matrix": lambda: np.matmul(left, matrix),
            "matrix @ vector": lambda: np.matmul(matrix, right),
        }

