"""One small class a library, all with the same interface.

``prepare`` does what a user of that library does once (build a session, share
memory, pack a constant B) and returns a callable without arguments that
performs one product.  What the callable returns is whatever that library hands
its users; ``to_numpy`` turns it into arrays, outside the timed part.  Every
call returns fresh memory, none writes into a buffer given by the caller, so
that all of them pay for their output.

``functools.partial`` rather than a lambda: it adds the least to a call, which
matters where a product takes less than a microsecond, and it adds the same to
every backend.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.corpus import Case
from benchmarks.verify import Array, Arrays, transposed

Call = Callable[[], Any]
Prepared = tuple[Call | None, str]  # the callable, or None and the reason


class Backend:
    """What the worker needs of a library."""

    name = ""

    def __init__(self, threads: int) -> None:
        """Import the library and fix its number of threads.

        Raises ImportError where it is not installed.
        """
        self.threads = threads

    def info(self) -> dict[str, Any]:
        """Version, and which kernels it chose on this CPU where it tells."""
        raise NotImplementedError

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        """A callable for one product, or None with the reason."""
        raise NotImplementedError

    def to_numpy(self, result: Any) -> list[Array]:
        """The arrays of one result; several for a grouped case."""
        results = result if isinstance(result, (list, tuple)) else [result]
        return [np.asarray(item) for item in results]

    def describe(self, case: Case, dtype: str) -> dict[str, Any]:
        """How the library says it computes the case, where it tells."""
        return {}


class GemmkitBackend(Backend):
    """gemmkit: a plan where B is constant, else the plain functions."""

    name = "gemmkit"
    _TOLD = (
        "algorithm", "isa", "kernel", "mr", "nr", "mc", "nc", "kc",
        "num_threads", "workspace_bytes",
    )

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.lib: Any = importlib.import_module("gemmkit")
        self.lib.set_num_threads(threads)
        self._plan: Any = None

    def info(self) -> dict[str, Any]:
        path = str(getattr(self.lib, "__file__", ""))
        plan = self.lib.GemmPlan(64, 64, 64, "float32")
        return {
            "version": str(getattr(self.lib, "__version__", "unknown")),
            "kernel": str(getattr(plan, "isa", "unknown")),
            "installed": "site-packages" in path,
        }

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        lib, a, b, c = self.lib, arrays.a[0], arrays.b[0], arrays.c
        # Only what differs from the defaults, as a user would write it.
        options: dict[str, Any] = {}
        if case.trans_a:
            options["trans_a"] = True
        if case.trans_b:
            options["trans_b"] = True
        if case.alpha != 1.0:
            options["alpha"] = case.alpha
        if case.beta != 1.0:
            options["beta"] = case.beta
        self._plan = None
        if case.op == "grouped":
            self._plan = lib.GroupedGemm(list(case.group), dtype)
            return partial(self._plan, arrays.a, arrays.b), ""
        if case.op == "strided_batched":
            constant = {"b": b} if case.constant_b else {}
            self._plan = lib.StridedBatchedGemm(
                case.batch, case.m, case.n, case.k, dtype, **options, **constant
            )
            call = partial(self._plan, a) if constant else partial(self._plan, a, b)
            return call, ""
        if case.op == "gemm":
            if not case.constant_b:
                operands = (a, b) if c is None else (a, b, c)
                return partial(lib.gemm, *operands, **options), ""
            self._plan = lib.GemmPlan(case.m, case.n, case.k, dtype, b=b, **options)
            return (
                partial(self._plan, a) if c is None else partial(self._plan, a, c=c)
            ), ""
        if case.constant_b:
            self._plan = lib.MatMulPlan(a.shape, b.shape, dtype, b=b)
            return partial(self._plan, a), ""
        return partial(lib.matmul, a, b), ""

    def describe(self, case: Case, dtype: str) -> dict[str, Any]:
        """Attributes of the case's plan, or of one made like it to be asked.

        The plain functions hand out no plan, yet whoever looks into a slow case
        first asks which algorithm it took.
        """
        plan = self._plan
        try:
            if plan is None and case.op == "gemm":
                plan = self.lib.GemmPlan(
                    case.m, case.n, case.k, dtype,
                    trans_a=case.trans_a, trans_b=case.trans_b,
                    alpha=case.alpha, beta=case.beta,
                )
            elif plan is None:
                plan = self.lib.MatMulPlan(case.a_shape, case.b_shape, dtype)
        except Exception as error:  # a missing description costs no timing
            return {"undescribed": f"{type(error).__name__}: {error}"}
        told = {name: getattr(plan, name, None) for name in self._TOLD}
        return {
            name: value if isinstance(value, (int, str)) else str(value)
            for name, value in told.items()
            if value is not None
        }


class NumpyBackend(Backend):
    """numpy: ``alpha * (a @ b) + beta * c``, leaving out factors of one."""

    name = "numpy"

    def info(self) -> dict[str, Any]:
        kernel = "unknown (threadpoolctl is not installed)"
        try:
            pools = importlib.import_module("threadpoolctl").threadpool_info()
        except ImportError:
            pools = []
        for pool in pools:
            if pool.get("user_api") == "blas":
                kernel = " ".join(
                    str(pool.get(key)) for key in ("internal_api", "architecture")
                )
                threads = pool.get("num_threads")
                if threads != self.threads:
                    kernel += f" ({threads} threads)"
        return {"version": np.__version__, "kernel": kernel, "pools": [
            {key: pool.get(key) for key in
             ("internal_api", "version", "architecture", "num_threads")}
            for pool in pools
        ]}

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        if case.op == "grouped":
            pairs = list(zip(arrays.a, arrays.b))
            return (lambda: [np.matmul(x, y) for x, y in pairs]), ""
        a = transposed(arrays.a[0], case.trans_a)
        b = transposed(arrays.b[0], case.trans_b)
        c = arrays.c
        alpha, beta = np.dtype(dtype).type(case.alpha), np.dtype(dtype).type(case.beta)
        if c is None:
            if case.alpha == 1.0:
                return partial(np.matmul, a, b), ""
            return (lambda: alpha * (a @ b)), ""
        if case.alpha == 1.0 and case.beta == 1.0:
            return (lambda: a @ b + c), ""
        return (lambda: alpha * (a @ b) + beta * c), ""


class TorchBackend(Backend):
    """torch: matmul, addmm where there is a C, linear where B is stored NT."""

    name = "torch"

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.lib: Any = importlib.import_module("torch")
        self.lib.set_num_threads(threads)
        self.lib.set_num_interop_threads(1)
        # Entered once and never left: entering it for each call would charge
        # torch for something its users do once around a whole model.
        self._mode = self.lib.inference_mode()
        self._mode.__enter__()

    def info(self) -> dict[str, Any]:
        blas = "MKL" if self.lib.backends.mkl.is_available() else "other BLAS"
        capability = self.lib.backends.cpu.get_cpu_capability()
        return {"version": self.lib.__version__, "kernel": f"{blas}, {capability}"}

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        torch = self.lib
        if case.op == "grouped":
            pairs = [
                (torch.from_numpy(x), torch.from_numpy(y))
                for x, y in zip(arrays.a, arrays.b)
            ]
            return (lambda: [torch.matmul(x, y) for x, y in pairs]), ""
        a, b = torch.from_numpy(arrays.a[0]), torch.from_numpy(arrays.b[0])
        c = None if arrays.c is None else torch.from_numpy(arrays.c)
        if case.trans_a:
            a = a.transpose(-1, -2)
        plain = case.alpha == 1.0 and (c is None or case.beta == 1.0)
        row = c is None or c.dim() == 1
        if case.op == "gemm" and case.trans_b and plain and row:
            linear = torch.nn.functional.linear
            return partial(linear, a, b) if c is None else partial(linear, a, b, c), ""
        if case.trans_b:
            b = b.transpose(-1, -2)
        if c is not None:
            return partial(
                torch.addmm, c, a, b, alpha=case.alpha, beta=case.beta
            ), ""
        if case.alpha != 1.0:
            return (lambda: torch.matmul(a, b).mul_(case.alpha)), ""
        return partial(torch.matmul, a, b), ""


class OnnxruntimeBackend(Backend):
    """onnxruntime: a model of one node, run as users run it."""

    name = "onnxruntime"

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.lib: Any = importlib.import_module("onnxruntime")
        self.onnx: Any = importlib.import_module("onnx")

    def info(self) -> dict[str, Any]:
        return {"version": self.lib.__version__, "kernel": "MLAS"}

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        helper = self.onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        feeds: dict[str, Array] = {}
        constants: list[Any] = []
        nodes: list[Any] = []
        outputs: list[str] = []

        def operand(name: str, value: Array, constant: bool) -> str:
            if constant:
                constants.append(self.onnx.numpy_helper.from_array(value, name))
            else:
                feeds[name] = value
            return name

        for index, (a, b) in enumerate(zip(arrays.a, arrays.b)):
            names = [
                operand(f"a{index}", a, False),
                operand(f"b{index}", b, case.constant_b),
            ]
            outputs.append(f"y{index}")
            if case.op == "gemm":
                if arrays.c is not None:
                    names.append(operand("c", arrays.c, case.constant_b))
                nodes.append(helper.make_node(
                    "Gemm", names, [outputs[-1]], alpha=case.alpha, beta=case.beta,
                    transA=int(case.trans_a), transB=int(case.trans_b),
                ))
                continue
            # A stack has no transposition flag; the session fuses the node.
            for side, (swap, rank) in enumerate(
                ((case.trans_a, a.ndim), (case.trans_b, b.ndim))
            ):
                if swap:
                    axes = [*range(rank - 2), rank - 1, rank - 2]
                    turned = names[side] + "_t"
                    nodes.append(helper.make_node(
                        "Transpose", [names[side]], [turned], perm=axes
                    ))
                    names[side] = turned
            nodes.append(helper.make_node("MatMul", names, [outputs[-1]]))
        graph = helper.make_graph(
            nodes, "product",
            [helper.make_tensor_value_info(name, kind, value.shape)
             for name, value in feeds.items()],
            [helper.make_tensor_value_info(name, kind, None) for name in outputs],
            constants,
        )
        # Fixed versions: a newer onnx would write a model that an older
        # onnxruntime refuses, though both know these two operators.
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        )
        options = self.lib.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        session = self.lib.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return partial(session.run, outputs, feeds), ""


BACKENDS: dict[str, type[Backend]] = {
    backend.name: backend
    for backend in (GemmkitBackend, NumpyBackend, OnnxruntimeBackend, TorchBackend)
}
