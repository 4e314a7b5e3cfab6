"""asv: ``gemmkit.matmul`` on two matrices or vectors."""

from __future__ import annotations

from benchmarks.corpus import DTYPES
from benchmarks.suite import BACKEND_NAMES, CaseBenchmark, names, rate

_CASES = names(lambda case: case.op == "matmul" and not case.constant_b)


class Matmul(CaseBenchmark):
    """Time of one call, from tiny to large."""

    params = [_CASES, list(DTYPES), BACKEND_NAMES]

    def time_matmul(self, name: str, dtype: str, backend: str) -> None:
        self.call()


class MatmulRate(CaseBenchmark):
    """GFLOP/s where arithmetic is the cost, to be read against the peak."""

    params = [
        names(
            lambda case: case.op == "matmul" and not case.constant_b
            and case.family in ("square", "odd", "transformer")
            and case.flops > 10_000_000
        ),
        list(DTYPES),
        BACKEND_NAMES,
    ]

    def track_gflops(self, name: str, dtype: str, backend: str) -> float:
        return rate(self.call, self.case.flops)

    track_gflops.unit = "GFLOP/s"  # type: ignore[attr-defined]
