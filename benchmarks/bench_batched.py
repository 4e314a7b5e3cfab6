"""asv: stacks of products, among them many tiny ones and broadcast operands."""

from __future__ import annotations

from benchmarks.corpus import DTYPES
from benchmarks.suite import BACKEND_NAMES, CaseBenchmark, names, rate

_OPS = ("batched", "tiny_batch", "strided_batched")


class Batched(CaseBenchmark):
    """Time of one whole stack."""

    params = [
        names(lambda case: case.op in _OPS and not case.constant_b),
        list(DTYPES),
        BACKEND_NAMES,
    ]

    def time_stack(self, name: str, dtype: str, backend: str) -> None:
        self.call()


class TinyBatchRate(CaseBenchmark):
    """GFLOP/s over tiny members, where looping over them is the cost."""

    params = [
        names(lambda case: case.family == "tiny-batch"), list(DTYPES), BACKEND_NAMES
    ]

    def track_gflops(self, name: str, dtype: str, backend: str) -> float:
        return rate(self.call, self.case.flops)

    track_gflops.unit = "GFLOP/s"  # type: ignore[attr-defined]
