"""asv: plans that own a constant B, and what a call costs before arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.corpus import DTYPES
from benchmarks.suite import BACKEND_NAMES, CaseBenchmark, gemmkit_for, names
from benchmarks.verify import result_dtype


class ConstantB(CaseBenchmark):
    """Time of one call of a plan made with ``b=``; numpy has no such thing."""

    params = [names(lambda case: case.constant_b), list(DTYPES), BACKEND_NAMES]

    def time_call(self, name: str, dtype: str, backend: str) -> None:
        self.call()


class CallOverhead:
    """Time of a product of almost no arithmetic, by way of calling.

    A 2x2x2 product is a few nanoseconds of work, so this is the checking of
    arguments, the choice of a kernel and the allocation of the output.
    """

    _WAYS = (
        "numpy", "numpy_out", "matmul", "matmul_out", "gemm", "plan", "plan_out",
        "plan_constant_b",
    )
    params = [list(_WAYS), list(DTYPES)]
    param_names = ["way", "dtype"]
    call: Callable[[], Any]

    def setup(self, way: str, dtype: str) -> None:
        gemmkit = gemmkit_for(dtype)
        a, b = np.ones((2, 2), dtype), np.ones((2, 2), dtype)
        out = np.empty((2, 2), result_dtype(dtype))
        plan = gemmkit.GemmPlan(2, 2, 2, dtype)
        constant = gemmkit.GemmPlan(2, 2, 2, dtype, b=b)
        self.call = {
            "numpy": partial(np.matmul, a, b),
            "numpy_out": partial(np.matmul, a, b, out=out),
            "matmul": partial(gemmkit.matmul, a, b),
            "matmul_out": partial(gemmkit.matmul, a, b, out=out),
            "gemm": partial(gemmkit.gemm, a, b),
            "plan": partial(plan, a, b),
            "plan_out": partial(plan, a, b, out=out),
            "plan_constant_b": partial(constant, a),
        }[way]

    def time_call(self, way: str, dtype: str) -> None:
        self.call()


class Construction:
    """Time to make a plan: after how many calls it has paid for itself."""

    params = [[64, 512], list(DTYPES), [False, True]]
    param_names = ["size", "dtype", "constant_b"]

    def setup(self, size: int, dtype: str, constant_b: bool) -> None:
        gemmkit = gemmkit_for(dtype)
        options = {"b": np.ones((size, size), dtype)} if constant_b else {}
        self.make: Callable[[], Any] = partial(
            gemmkit.GemmPlan, size, size, size, dtype, **options
        )

    def time_construction(self, size: int, dtype: str, constant_b: bool) -> None:
        self.make()
