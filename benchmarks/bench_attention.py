"""asv: ``attention``, from prompts to steps of decoding; its memory and its calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.attention_corpus import ATTENTION, MEMORY_CASES, element, read_bytes
from benchmarks.attention_memory import measure
from benchmarks.bandwidth import Reader
from benchmarks.corpus import Case
from benchmarks.suite import BACKEND_NAMES, CaseBenchmark, gemmkit_for, names, rate, thread_count

_DTYPES = list(ATTENTION)


def _reads(case: Case) -> bool:
    return bool(read_bytes(case, "attention"))


class Attention(CaseBenchmark):
    """Time of one call; numpy keeps all scores and is left out where they are many."""

    params = [names(lambda case: not _reads(case), ATTENTION), _DTYPES, BACKEND_NAMES]

    def time_attention(self, name: str, dtype: str, backend: str) -> None:
        self.call()


class AttentionRate(CaseBenchmark):
    """GFLOP/s of long prompts, to be read against those of products."""

    params = [
        names(
            lambda case: case.family in ("prefill", "causal", "gqa", "mask", "window") and case.flops > 500_000_000,
            ATTENTION,
        ),
        _DTYPES,
        ["gemmkit"],
    ]

    def track_gflops(self, name: str, dtype: str, backend: str) -> float:
        return rate(self.call, self.case.flops)

    track_gflops.unit = "GFLOP/s"  # type: ignore[attr-defined]


class Decode(CaseBenchmark):
    """Time of a few queries over many keys, and the rate at which K and V are read."""

    params = [names(_reads, ATTENTION), _DTYPES, BACKEND_NAMES]

    def time_step(self, name: str, dtype: str, backend: str) -> None:
        self.call()

    def track_gbytes(self, name: str, dtype: str, backend: str) -> float:
        return rate(self.call, read_bytes(self.case, dtype))

    track_gbytes.unit = "GB/s"  # type: ignore[attr-defined]


class MemoryRead:
    """The yardstick of ``Decode.track_gbytes``: what the machine reads at the time."""

    def setup(self) -> None:
        self.reader = Reader(thread_count())

    def track_memory(self) -> float:
        return self.reader.rate(self.reader.size)[0] / 1e9

    track_memory.unit = "GB/s"  # type: ignore[attr-defined]


class CachedStep:
    """Time of one token with a ``KVCache``: append, then attend to all there is.

    The place of the token is given back each time, so the length stays the same.
    """

    params = [[1, 256, 4096], _DTYPES]
    param_names = ["length", "dtype"]
    _HEADS, _KV_HEADS, _SIZE = 16, 4, 128

    def setup(self, length: int, dtype: str) -> None:
        gemmkit, kind = gemmkit_for(dtype), element(dtype)
        if not hasattr(gemmkit, "KVCache") or kind == "float64":
            raise NotImplementedError  # a cache has no float64
        self.attention, self.length = gemmkit.attention, length
        self.cache = gemmkit.KVCache(1, self._KV_HEADS, self._SIZE, dtype=kind, capacity=length + 1)
        past = np.ones((1, self._KV_HEADS, length, self._SIZE), kind)
        self.cache.append(past, past)
        self.q = np.ones((1, self._HEADS, 1, self._SIZE), kind)
        self.token = np.ones((1, self._KV_HEADS, 1, self._SIZE), kind)

    def time_step(self, length: int, dtype: str) -> None:
        self.cache.truncate(self.length)
        self.attention(self.q, self.token, self.token, is_causal=True, cache=self.cache)


class AttentionMemory:
    """MiB beside inputs and output; asv's own peak would count those and the imports."""

    params = [list(MEMORY_CASES), _DTYPES]
    param_names = ["case", "dtype"]

    def track_temporary(self, name: str, dtype: str) -> float:
        entry = measure("gemmkit", name, dtype, thread_count())
        if "skipped" in entry:
            raise NotImplementedError
        if not entry.get("verified"):
            raise AssertionError(f"{name}: {entry}")
        return float(entry["bytes"]) / (1 << 20)

    track_temporary.unit = "MiB"  # type: ignore[attr-defined]
    track_temporary.timeout = 600  # type: ignore[attr-defined]


def _tiny(gemmkit: Any, kind: str) -> tuple[Any, tuple[Any, ...]]:
    """A plan of almost no arithmetic, and its operands."""
    x = np.ones((1, 2, 2, 4), kind)
    descriptor = gemmkit.AttentionDescriptor(is_causal=True)
    return gemmkit.AttentionPlan(descriptor, x.shape, x.shape, x.shape, kind), (x, x, x)


class AttentionOverhead:
    """Time of an attention of almost no arithmetic, by way of calling."""

    params = [["attention", "attention_out", "plan", "plan_out"], _DTYPES]
    param_names = ["way", "dtype"]
    call: Callable[[], Any]

    def setup(self, way: str, dtype: str) -> None:
        gemmkit, kind = gemmkit_for(dtype), element(dtype)
        plan, operands = _tiny(gemmkit, kind)
        out = np.empty_like(operands[0])
        self.call = {
            "attention": partial(gemmkit.attention, *operands, is_causal=True),
            "attention_out": partial(gemmkit.attention, *operands, is_causal=True, out=out),
            "plan": partial(plan, *operands),
            "plan_out": partial(plan, *operands, out=out),
        }[way]

    def time_call(self, way: str, dtype: str) -> None:
        self.call()


class AttentionConstruction:
    """Time to make a descriptor and a plan."""

    params = [_DTYPES]
    param_names = ["dtype"]

    def setup(self, dtype: str) -> None:
        self.make: Callable[[], Any] = partial(_tiny, gemmkit_for(dtype), element(dtype))
        self.make()

    def time_construction(self, dtype: str) -> None:
        self.make()
