"""asv: ``gemmkit.gemm`` with transposed operands, C, alpha and beta."""

from __future__ import annotations

from benchmarks.corpus import DTYPES
from benchmarks.suite import BACKEND_NAMES, CaseBenchmark, names, rate


class Gemm(CaseBenchmark):
    """Time of one call; numpy makes a separate pass for each extra."""

    params = [
        names(lambda case: case.op == "gemm" and not case.constant_b),
        list(DTYPES),
        BACKEND_NAMES,
    ]

    def time_gemm(self, name: str, dtype: str, backend: str) -> None:
        self.call()


class TransposeRate(CaseBenchmark):
    """GFLOP/s of each storage order, which should differ little."""

    params = [
        names(lambda case: case.family == "transpose"), list(DTYPES), BACKEND_NAMES
    ]

    def track_gflops(self, name: str, dtype: str, backend: str) -> float:
        return rate(self.call, self.case.flops)

    track_gflops.unit = "GFLOP/s"  # type: ignore[attr-defined]
