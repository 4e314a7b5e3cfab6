"""asv: integer products, requantized ones, and plans with a constant 8- or 4-bit B."""

from __future__ import annotations

from benchmarks.corpus import MODES
from benchmarks.suite import BACKEND_NAMES, CaseBenchmark, names, rate

_WHOLE = ("int32",)
_BYTES = ("u8s8", "qu8s8")
_CONSTANT = ("u8s8", "qu8s8", "qu8s8c", "int4")
_FAMILIES = ("tiny", "square", "odd", "skinny-m", "transformer", "batched")


class Integers(CaseBenchmark):
    """Time of one call of the function of a type or mode.

    numpy's loops beside them are left out where they would take seconds.
    """

    params = [
        names(
            lambda case: case.family in _FAMILIES and not case.constant_b,
            _WHOLE + _BYTES,
        ),
        list(_WHOLE + _BYTES),
        BACKEND_NAMES,
    ]

    def time_product(self, name: str, dtype: str, backend: str) -> None:
        self.call()


class IntegerRate(CaseBenchmark):
    """Gop/s where arithmetic is the cost, to be read against the peak."""

    params = [
        names(
            lambda case: case.op == "matmul" and not case.constant_b
            and case.family in ("square", "transformer")
            and case.flops > 10_000_000,
            _WHOLE + _BYTES,
        ),
        list(_WHOLE + _BYTES),
        ["gemmkit"],
    ]

    def track_gops(self, name: str, dtype: str, backend: str) -> float:
        return rate(self.call, self.case.flops)

    track_gops.unit = "Gop/s"  # type: ignore[attr-defined]


class ConstantIntegers(CaseBenchmark):
    """Time of one call of a plan made with ``b=``; int4 beside the same as bytes."""

    params = [
        names(lambda case: case.constant_b and not case.trans_b, _CONSTANT),
        list(_CONSTANT),
        ["gemmkit", "gemmkit-int8"],
    ]

    def setup(self, name: str, dtype: str, backend: str) -> None:
        if backend == "gemmkit-int8" and MODES[dtype].bits == 8:
            raise NotImplementedError  # it would be gemmkit again
        super().setup(name, dtype, backend)

    def time_call(self, name: str, dtype: str, backend: str) -> None:
        self.call()
