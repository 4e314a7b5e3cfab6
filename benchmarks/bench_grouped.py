"""asv: ``GroupedGemm`` on members of unlike sizes, numpy in a loop beside it."""

from __future__ import annotations

from benchmarks.corpus import DTYPES
from benchmarks.suite import BACKEND_NAMES, CaseBenchmark, names, rate

_CASES = names(lambda case: case.op == "grouped")


class Grouped(CaseBenchmark):
    """Time of one group, and its rate."""

    params = [_CASES, list(DTYPES), BACKEND_NAMES]

    def time_group(self, name: str, dtype: str, backend: str) -> None:
        self.call()

    def track_gflops(self, name: str, dtype: str, backend: str) -> float:
        return rate(self.call, self.case.flops)

    track_gflops.unit = "GFLOP/s"  # type: ignore[attr-defined]
