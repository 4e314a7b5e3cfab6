"""One small class a library, all with the same interface.

``prepare`` does what a user of that library does once (build a session, share
memory, pack a constant B) and returns a callable without arguments that
performs one product.  What the callable returns is whatever that library hands
its users; ``to_numpy`` turns it into arrays, outside the timed part.  Every
call returns fresh memory, none writes into a buffer given by the caller, so
that all of them pay for their output.

A library that cannot multiply a narrow type is measured the way its users get
round that: operands are widened in the call.  A constant B is widened once,
outside, as gemmkit's plans prepare theirs.

``functools.partial`` rather than a lambda: it adds the least to a call, which
matters where a product takes less than a microsecond, and it adds the same to
every backend.
"""

from __future__ import annotations

import ctypes
import importlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.corpus import FLOAT8, HALVES, INTEGERS, WIDE, Case
from benchmarks.verify import Array, Arrays, result_dtype, transposed

Call = Callable[[], Any]
Prepared = tuple[Call | None, str]  # the callable, or None and the reason

# Types that come from ml_dtypes: other libraries know them, but not as arrays.
CODED = HALVES[1:] + FLOAT8

# numpy multiplies float16 and integers at about one Gop/s; more takes seconds.
LOOP_FLOPS = 500_000_000


def all_of(calls: Sequence[Call]) -> Call:
    """One call for all members of a group."""
    return lambda: [call() for call in calls]


def factor(value: float, dtype: str) -> float:
    """alpha or beta of a case, a whole number for integers."""
    return int(value) if dtype in INTEGERS else value


def widened(
    function: Callable[..., Any], operands: Sequence[Any], constant: Sequence[bool],
    widen: Callable[[Any], Any],
) -> Call:
    """``function`` of the widened operands, constant ones widened here and now.

    ``widen`` returns what is wide already as it is.
    """
    held = [widen(x) if once else x for x, once in zip(operands, constant)]
    return lambda: function(*[widen(x) for x in held])


class Backend:
    """What the worker needs of a library."""

    name = ""
    strict = False  # one rounding to the result type is all its error may be

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


def fastest(calls: dict[str, Call]) -> str:
    """Name of the call whose best time of a few is the lowest."""
    best: dict[str, float] = {}
    for name, call in calls.items():
        call()
        times = []
        for _ in range(5):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        best[name] = min(times)
    return min(best, key=lambda name: best[name])


class GemmkitBackend(Backend):
    """gemmkit: a plan where B is constant, else the plain functions."""

    name = "gemmkit"
    strict = True
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

    def lacks(self, dtype: str) -> str:
        """Why a dtype is not supported: asv measures older commits too."""
        if dtype not in WIDE:
            try:
                self.lib.GemmPlan(1, 1, 1, dtype)
            except TypeError as error:
                return f"this gemmkit has no {dtype}: {error}"
        return ""

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        lib, a, b, c = self.lib, arrays.a[0], arrays.b[0], arrays.c
        lacking = self.lacks(dtype)
        if lacking:
            return None, lacking
        # Only what differs from the defaults, as a user would write it.
        options: dict[str, Any] = {}
        if case.trans_a:
            options["trans_a"] = True
        if case.trans_b:
            options["trans_b"] = True
        if case.alpha != 1.0:
            options["alpha"] = factor(case.alpha, dtype)
        if case.beta != 1.0:
            options["beta"] = factor(case.beta, dtype)
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
                    alpha=factor(case.alpha, dtype), beta=factor(case.beta, dtype),
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
    """numpy: ``alpha * (a @ b) + beta * c``, leaving out factors of one.

    float16 is a scalar loop.  For bfloat16 and float8 numpy.matmul falls back on
    its float32 loop by itself, and that is the type of the result.
    """

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
        loops = dtype == "float16" or dtype in INTEGERS
        if loops and case.flops > LOOP_FLOPS:
            return None, (
                f"too slow: {case.flops / 1e9:.2g} GFLOP in numpy's scalar loop"
            )
        formula = self._formula(case, np.dtype(dtype).type)
        calls = [
            partial(formula, *operands) for operands in self._operands(case, arrays)
        ]
        return calls[0] if case.op != "grouped" else all_of(calls), ""

    @staticmethod
    def _operands(case: Case, arrays: Arrays) -> list[list[Array]]:
        """A, B and any C of each product, transposed views ready-made."""
        addend = [] if arrays.c is None else [arrays.c]
        return [
            [transposed(a, case.trans_a), transposed(b, case.trans_b), *addend]
            for a, b in zip(arrays.a, arrays.b)
        ]

    @staticmethod
    def _formula(case: Case, kind: Callable[[float], Any]) -> Callable[..., Any]:
        """The product as a function of A, B and any C, factors being of ``kind``."""
        alpha, beta = kind(case.alpha), kind(case.beta)
        if case.bias_shape is None:
            if case.alpha == 1.0:
                return np.matmul
            return lambda a, b: alpha * (a @ b)
        if case.alpha == 1.0 and case.beta == 1.0:
            return lambda a, b, c: a @ b + c
        return lambda a, b, c: alpha * (a @ b) + beta * c


class NumpyF32Backend(NumpyBackend):
    """numpy through float32: ``(a.astype(f4) @ b.astype(f4)).astype(half)``.

    What users of the narrow types write, since numpy has no BLAS for them.
    """

    name = "numpy-f32"

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        if dtype in WIDE:
            return None, f"{dtype} needs no widening"
        if dtype in INTEGERS:
            return None, f"no float type holds the sums of {dtype}"
        formula = self._formula(case, np.float32)
        constant = (False, case.constant_b, case.constant_b)

        def widen(array: Array) -> Array:
            return array.astype(np.float32, copy=False)

        def narrowed(*operands: Array) -> Any:
            return formula(*operands).astype(dtype)

        function = narrowed if dtype in HALVES else formula
        calls = [
            widened(function, operands, constant, widen)
            for operands in self._operands(case, arrays)
        ]
        return calls[0] if case.op != "grouped" else all_of(calls), ""


class TorchBackend(Backend):
    """torch: matmul, addmm where there is a C, linear where B is stored NT."""

    name = "torch"
    # torch.matmul of float8 is a scalar loop that rounds to float8, and
    # torch._scaled_mm is slower still: users widen, exactly, to one of these.
    _ROUTES = ("bfloat16", "float32")

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.lib: Any = importlib.import_module("torch")
        self.lib.set_num_threads(threads)
        self.lib.set_num_interop_threads(1)
        self._route = ""
        # Entered once and never left: entering it for each call would charge
        # torch for something its users do once around a whole model.
        self._mode = self.lib.inference_mode()
        self._mode.__enter__()

    def info(self) -> dict[str, Any]:
        blas = "MKL" if self.lib.backends.mkl.is_available() else "other BLAS"
        capability = self.lib.backends.cpu.get_cpu_capability()
        return {
            "version": self.lib.__version__, "kernel": f"{blas}, {capability}",
            "float8": f"widened to the faster of {' and '.join(self._ROUTES)}",
        }

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        self._route = ""
        if dtype not in FLOAT8:
            return self._call(case, arrays, None), ""
        calls = {
            route: self._call(case, arrays, getattr(self.lib, route))
            for route in self._ROUTES
        }
        self._route = fastest(calls)
        return calls[self._route], ""

    def to_numpy(self, result: Any) -> list[Array]:
        results = result if isinstance(result, list) else [result]
        return [
            item.view(self.lib.uint16).numpy().view("bfloat16")
            if item.dtype == self.lib.bfloat16 else np.asarray(item)
            for item in results
        ]

    def describe(self, case: Case, dtype: str) -> dict[str, Any]:
        return {"widened_to": self._route} if self._route else {}

    def _tensor(self, array: Array) -> Any:
        """A tensor on the memory of ``array``; torch takes only codes of most types."""
        if array.dtype.name not in CODED:
            return self.lib.from_numpy(array)
        codes = array.view(f"u{array.dtype.itemsize}")
        return self.lib.from_numpy(codes).view(getattr(self.lib, array.dtype.name))

    def _call(self, case: Case, arrays: Arrays, wide: Any) -> Call:
        """The product, as it is or in the type ``wide``."""
        c = None if arrays.c is None else self._tensor(arrays.c)
        calls: list[Call] = []
        for x, y in zip(arrays.a, arrays.b):
            a = self._tensor(x)
            if case.trans_a:
                a = a.transpose(-1, -2)
            function, operands = self._product(case, a, self._tensor(y), c)
            if wide is None:
                calls.append(partial(function, *operands))
                continue
            constant = [case.constant_b and operand is not a for operand in operands]
            calls.append(
                widened(function, operands, constant, lambda tensor: tensor.to(wide))
            )
        return calls[0] if case.op != "grouped" else all_of(calls)

    def _product(
        self, case: Case, a: Any, b: Any, c: Any
    ) -> tuple[Callable[..., Any], list[Any]]:
        """The function torch has for a case, and its operands in their order."""
        torch = self.lib
        plain = case.alpha == 1.0 and (c is None or case.beta == 1.0)
        row = c is None or c.dim() == 1
        if case.op == "gemm" and case.trans_b and plain and row:
            return torch.nn.functional.linear, [a, b] if c is None else [a, b, c]
        if case.trans_b:
            b = b.transpose(-1, -2)
        if c is not None:
            alpha, beta = case.alpha, case.beta
            if not c.dtype.is_floating_point:
                alpha, beta = int(alpha), int(beta)
            return partial(torch.addmm, alpha=alpha, beta=beta), [c, a, b]
        if case.alpha != 1.0:
            alpha = case.alpha if a.dtype.is_floating_point else int(case.alpha)
            return (lambda a, b: torch.matmul(a, b).mul_(alpha)), [a, b]
        return torch.matmul, [a, b]


class OnnxruntimeBackend(Backend):
    """onnxruntime: a model of one node, run as users run it.

    It has no product of bfloat16 or float8, so the model casts these to float32;
    a bfloat16 model casts its result back.  Constants are cast when the session
    is made.
    """

    name = "onnxruntime"

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.lib: Any = importlib.import_module("onnxruntime")
        self.onnx: Any = importlib.import_module("onnx")

    def info(self) -> dict[str, Any]:
        return {"version": self.lib.__version__, "kernel": "MLAS"}

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        session, outputs, feeds = self._session(case, dtype, arrays)
        if dtype not in CODED:
            return partial(session.run, outputs, feeds), ""
        return self._bound(session, outputs, feeds, self._kind(dtype)), ""

    def _bound(
        self, session: Any, outputs: list[str], feeds: dict[str, Array], kind: int
    ) -> Call:
        """A run on tensors of codes, as arrays of these types are not taken.

        A call on bound ones takes a fraction of what ``run_with_ort_values`` does.
        """
        make = self.lib.OrtValue.ortvalue_from_numpy_with_onnx_type
        tensors = {
            name: make(value.view(f"u{value.dtype.itemsize}"), kind)
            for name, value in feeds.items()
        }
        binding = session.io_binding()
        for name, tensor in tensors.items():
            binding.bind_ortvalue_input(name, tensor)

        def call(owners: Any = tensors) -> Any:  # a binding does not own its inputs
            for name in outputs:
                binding.bind_output(name)  # anew, for fresh memory
            session.run_with_iobinding(binding)
            return binding.get_outputs()

        return call

    def to_numpy(self, result: Any) -> list[Array]:
        return [
            item if isinstance(item, np.ndarray) else self._copied(item)
            for item in result
        ]

    @staticmethod
    def _copied(tensor: Any) -> Array:
        """A tensor's values; ``numpy()`` of onnxruntime knows no bfloat16."""
        if tensor.data_type() != "tensor(bfloat16)":
            return np.asarray(tensor.numpy())
        size = tensor.tensor_size_in_bytes()
        codes = ctypes.string_at(tensor.data_ptr(), size)
        return np.frombuffer(codes, "bfloat16").reshape(tensor.shape())

    def _kind(self, dtype: Any) -> int:
        """The number by which ONNX knows a type."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def _session(
        self, case: Case, dtype: str, arrays: Arrays
    ) -> tuple[Any, list[str], dict[str, Array]]:
        """A session, the names of its outputs, and what to feed it."""
        helper = self.onnx.helper
        cast = dtype in CODED
        feeds: dict[str, Array] = {}
        constants: list[Any] = []
        nodes: list[Any] = []
        outputs: list[str] = []

        def node(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
            nodes.append(helper.make_node(op, inputs, [output], **attributes))
            return output

        def operand(name: str, value: Array, constant: bool) -> str:
            if constant:
                constants.append(self.onnx.numpy_helper.from_array(value, name))
            else:
                feeds[name] = value
            if not cast:
                return name
            return node("Cast", [name], f"{name}_f", to=self._kind("float32"))

        for index, (a, b) in enumerate(zip(arrays.a, arrays.b)):
            names = [
                operand(f"a{index}", a, False),
                operand(f"b{index}", b, case.constant_b),
            ]
            back = cast and dtype in HALVES
            product = f"y{index}_f" if back else f"y{index}"
            if case.op == "gemm":
                if arrays.c is not None:
                    names.append(operand("c", arrays.c, case.constant_b))
                node(
                    "Gemm", names, product, alpha=case.alpha, beta=case.beta,
                    transA=int(case.trans_a), transB=int(case.trans_b),
                )
            else:
                # A stack has no transposition flag; the session fuses the node.
                for side, (swap, rank) in enumerate(
                    ((case.trans_a, a.ndim), (case.trans_b, b.ndim))
                ):
                    if swap:
                        axes = [*range(rank - 2), rank - 1, rank - 2]
                        names[side] = node(
                            "Transpose", [names[side]], f"{names[side]}_t", perm=axes
                        )
                node("MatMul", names, product)
            if back:
                product = node("Cast", [product], f"y{index}", to=self._kind(dtype))
            outputs.append(product)
        kind = self._kind(dtype)
        result = self._kind(result_dtype(dtype))
        graph = helper.make_graph(
            nodes, "product",
            [helper.make_tensor_value_info(name, kind, value.shape)
             for name, value in feeds.items()],
            [helper.make_tensor_value_info(name, result, None) for name in outputs],
            constants,
        )
        return self._load(graph), outputs, feeds

    def _load(self, graph: Any, *, opset: int = 19, ir_version: int = 9) -> Any:
        """A session of a graph."""
        helper = self.onnx.helper
        # Fixed versions, the first that know float8: a newer onnx would write a
        # model that an older onnxruntime refuses, though both know these operators.
        domains = (("", opset), ("com.microsoft", 1))
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid(*each) for each in domains],
            ir_version=ir_version,
        )
        options = self.lib.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        return self.lib.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
