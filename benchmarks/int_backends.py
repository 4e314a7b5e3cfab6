"""The integer modes of every backend, and the list of the backends of products.

int32 and int64 go the way of the float types. A mode of 8- or 4-bit integers is
a function of its own in most libraries, and where it isn't, the users' way round
is measured: operands are widened in the call, a constant B beforehand.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.backends import (
    LOOP_FLOPS, Backend, Call, GemmkitBackend, NumpyBackend, NumpyF32Backend,
    OnnxruntimeBackend, Prepared, TorchBackend, factor, fastest, widened,
)
from benchmarks.corpus import INTEGERS, MODES, Case, Mode
from benchmarks.verify import Array, Arrays, quantization, transposed

_TRIAL_FLOPS = 20_000_000  # torch's loop over int32 isn't tried above this


def _operands(case: Case, arrays: Arrays) -> tuple[Array, Array]:
    """A and B as they are multiplied, transposed views ready-made."""
    return (
        transposed(arrays.a[0], case.trans_a), transposed(arrays.b[0], case.trans_b)
    )


def _largest_sum(case: Case, mode: Mode) -> int:
    """What a sum of products, without zero points, may come to at most."""
    reach = {"uint8": 255, "int8": 128}
    right = 1 << mode.bits - 1 if mode.bits < 8 else reach[mode.b]
    left = reach[mode.a]
    if mode.qlinear:
        left, right = 255, 255  # whatever the zero point is
    return case.k * left * right


def _requantized(
    product: Callable[[Any, Any], Any], case: Case, mode: Mode
) -> Callable[[Any, Any], Any]:
    """``product`` of operands less their zero points, back to bytes; numpy's."""
    given, limits = quantization(case, mode), np.iinfo(mode.y)
    a_zero, b_zero, multiplier = given.a_zero, given.b_zero, given.multiplier

    def function(a: Any, b: Any) -> Any:
        sums = product(a - a_zero if a_zero else a, b - b_zero if b_zero else b)
        rounded = np.rint(sums * multiplier) + given.y_zero
        return np.clip(rounded, limits.min, limits.max).astype(mode.y)

    return function


class GemmkitIntegers(GemmkitBackend):
    """gemmkit: ``matmul_integer`` and ``qlinear_matmul``, or plans of them."""

    def lacks(self, dtype: str) -> str:
        mode = MODES.get(dtype)
        if mode is None:
            return super().lacks(dtype)
        needed = "qlinear_matmul" if mode.qlinear else "matmul_integer"
        if mode.bits == 4:
            needed = "PackedInt4"
        return "" if hasattr(self.lib, needed) else f"this gemmkit has no {needed}"

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        mode = MODES.get(dtype)
        if mode is None:
            return super().prepare(case, dtype, arrays)
        lacking = self.lacks(dtype)
        if lacking:
            return None, lacking
        return self._mode_call(case, mode, *_operands(case, arrays)), ""

    def _mode_call(self, case: Case, mode: Mode, a: Array, b: Array) -> Call:
        lib, self._plan = self.lib, None
        if mode.qlinear:
            a_side, b_side, y_side = self._sides(case, mode)
            if not case.constant_b:
                return partial(lib.qlinear_matmul, a, *a_side, b, *b_side, *y_side)
            self._plan = lib.QLinearMatMulPlan(
                a.shape, b.shape, mode.a, mode.b, mode.y,
                b=b, b_scale=b_side[0], b_zero_point=b_side[1],
            )
            return partial(self._plan, a, *a_side, *y_side)
        if not case.constant_b:
            return partial(lib.matmul_integer, a, b)
        if mode.bits == 4:
            packed = lib.PackedInt4.pack(b.astype("int4"))
            self._plan = lib.MatMulIntegerPlan(
                a.shape, b.shape, mode.a, "int4", b=packed
            )
        else:
            self._plan = lib.MatMulIntegerPlan(a.shape, b.shape, mode.a, mode.b, b=b)
        return partial(self._plan, a)

    @staticmethod
    def _sides(case: Case, mode: Mode) -> tuple[tuple[Any, Any], ...]:
        """Scale and zero point of A, B and the result."""
        given = quantization(case, mode)

        def zero(value: int, dtype: str) -> Any:
            return np.dtype(dtype).type(value)

        return (
            (given.a_scale, zero(given.a_zero, mode.a)),
            (given.b_scale, zero(given.b_zero, mode.b)),
            (given.y_scale, zero(given.y_zero, mode.y)),
        )

    def describe(self, case: Case, dtype: str) -> dict[str, Any]:
        mode = MODES.get(dtype)
        if mode is not None and self._plan is None:
            try:
                shapes = (
                    transposed(np.empty(case.a_shape, mode.a), case.trans_a).shape,
                    transposed(np.empty(case.b_shape, mode.b), case.trans_b).shape,
                )
                if mode.qlinear:
                    self._plan = self.lib.QLinearMatMulPlan(
                        *shapes, mode.a, mode.b, mode.y
                    )
                else:
                    self._plan = self.lib.MatMulIntegerPlan(*shapes, mode.a, mode.b)
            except Exception as error:  # a missing description costs no timing
                return {"undescribed": f"{type(error).__name__}: {error}"}
        return super().describe(case, dtype)


class GemmkitInt8(GemmkitIntegers):
    """What 4 bits are to be compared with: the same values, a byte each."""

    name = "gemmkit-int8"

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        if dtype != "int4":
            return None, "runs the values of int4 only"
        if not hasattr(self.lib, "matmul_integer"):
            return None, "this gemmkit has no matmul_integer"
        return self._mode_call(case, MODES["u8s8"], *_operands(case, arrays)), ""


class NumpyIntegers(NumpyBackend):
    """numpy: a scalar loop over int32, as numpy.matmul has none to wider sums."""

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        mode = MODES.get(dtype)
        if mode is None:
            return super().prepare(case, dtype, arrays)
        if mode.bits == 4:
            return None, "no 4-bit integers"
        if case.flops > LOOP_FLOPS:
            return None, f"too slow: {case.flops / 1e9:.2g} Gop in numpy's scalar loop"
        operands = _operands(case, arrays)
        if not mode.qlinear:
            return partial(np.matmul, *operands, dtype=np.int32), ""
        function = _requantized(np.matmul, case, mode)
        return widened(
            function, operands, (False, case.constant_b),
            lambda array: array.astype(np.int32, copy=False),
        ), ""


class NumpyFloatIntegers(NumpyF32Backend):
    """numpy through BLAS: float32 where it holds every sum exactly, else float64."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self._wide = ""

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        mode, self._wide = MODES.get(dtype), ""
        if mode is None:
            return super().prepare(case, dtype, arrays)
        if mode.bits == 4:
            return None, "no 4-bit integers"
        largest = _largest_sum(case, mode)
        self._wide = wide = "float32" if largest <= 1 << 24 else "float64"

        def product(a: Array, b: Array) -> Any:
            sums = np.matmul(a, b)
            if largest >= 1 << 31:  # a float outside int32 converts to anything
                sums = sums.astype(np.int64)
            return sums.astype(np.int32)

        function: Callable[..., Any] = product
        if mode.qlinear:
            function = _requantized(np.matmul, case, mode)
        return widened(
            function, _operands(case, arrays), (False, case.constant_b),
            lambda array: array.astype(wide, copy=False),
        ), ""

    def describe(self, case: Case, dtype: str) -> dict[str, Any]:
        return {"widened_to": self._wide} if self._wide else {}


class TorchIntegers(TorchBackend):
    """torch: the fastest of what it has for a mode.

    ``torch._int_mm`` multiplies matrices of any signed or unsigned A by a signed B.
    Everything else is widened. Requantized products are ``quantized.linear`` with
    packed weights, or ``quantized.matmul`` of two operands of one type.
    """

    _ENGINES = ("x86", "onednn", "fbgemm")

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        # Once a process, of no use here: these tensors will move to torchao.
        warnings.filterwarnings("ignore", message="torch.quantize_per_tensor")

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        mode = MODES.get(dtype)
        if mode is None:
            return super().prepare(case, dtype, arrays)
        self._route = ""
        if mode.bits == 4:
            return None, "4-bit weights for float activations only"
        a, b = map(self.lib.from_numpy, _operands(case, arrays))
        if mode.qlinear:
            calls, reason = self._quantized(case, mode, a, b)
        else:
            calls, reason = self._integer(case, mode, a, b), ""
        if not calls:
            return None, reason
        self._route = fastest(calls)
        return calls[self._route], ""

    def to_numpy(self, result: Any) -> list[Array]:
        if getattr(result, "is_quantized", False):
            result = result.int_repr()
        return super().to_numpy(result)

    def describe(self, case: Case, dtype: str) -> dict[str, Any]:
        if dtype in MODES:
            return {"function": self._route} if self._route else {}
        return super().describe(case, dtype)

    def _integer(self, case: Case, mode: Mode, a: Any, b: Any) -> dict[str, Call]:
        torch = self.lib
        largest = _largest_sum(case, mode)
        wide = "float32" if largest <= 1 << 24 else "float64"
        kinds = [wide] + ["int32"] * (case.flops <= _TRIAL_FLOPS)
        calls: dict[str, Call] = {}

        def product(kind: Any, a: Any, b: Any) -> Any:
            sums = torch.matmul(a, b)
            if largest >= 1 << 31 and kind.is_floating_point:
                sums = sums.to(torch.int64)
            return sums.to(torch.int32)

        for name in kinds:
            kind = getattr(torch, name)
            calls[name] = widened(
                partial(product, kind), (a, b), (False, case.constant_b),
                # the loop's kind is bound now, not when it is called
                partial(lambda kind, tensor: tensor.to(kind), kind),
            )
        if mode.b == "int8" and b.dim() == 2:
            shape = (*a.shape[:-1], b.shape[1])

            def flat() -> Any:
                return torch._int_mm(a.reshape(-1, a.shape[-1]), b).reshape(shape)

            call = partial(torch._int_mm, a, b) if a.dim() == 2 else flat
            try:
                call()
            except RuntimeError:  # its own words on a shape or an old CPU
                return calls
            calls["_int_mm"] = call
        return calls

    def _quantized(
        self, case: Case, mode: Mode, a: Any, b: Any
    ) -> tuple[dict[str, Call], str]:
        """Calls that work, and why there are none."""
        torch, given = self.lib, quantization(case, mode)
        make = torch._make_per_tensor_quantized_tensor
        x = make(a.contiguous(), float(given.a_scale), given.a_zero)
        result = float(given.y_scale), given.y_zero
        calls: dict[str, Call] = {}
        reason = ""
        if mode.b == "int8" and b.dim() == 2 and case.constant_b:
            weights = b.t().contiguous()
            if mode.columns:
                weights = torch._make_per_channel_quantized_tensor(
                    weights, torch.from_numpy(given.b_scale).double(),
                    torch.zeros(case.n, dtype=torch.int64), 0,
                )
            else:
                weights = make(weights, float(given.b_scale), 0)
            for engine in self._ENGINES:
                try:
                    torch.backends.quantized.engine = engine  # packing reads it
                    packed = torch.ops.quantized.linear_prepack(weights, None)
                    call = partial(torch.ops.quantized.linear, x, packed, *result)
                    call()
                except RuntimeError as error:
                    reason = reason or f"{engine}: {str(error).splitlines()[0]}"
                    continue
                calls[f"quantized.linear, {engine}"] = call
        if mode.a == mode.b and not mode.columns:
            y = make(b.contiguous(), float(given.b_scale), given.b_zero)
            call = partial(torch.ops.quantized.matmul, x, y, *result)
            try:
                call()
            except RuntimeError as error:
                reason = reason or f"quantized.matmul: {str(error).splitlines()[0]}"
            else:
                calls["quantized.matmul"] = call
        return calls, reason or (
            "quantized.linear has constant signed weights only, quantized.matmul "
            "one scale and one type for both operands"
        )


class OnnxruntimeIntegers(OnnxruntimeBackend):
    """onnxruntime: ``MatMulInteger``, ``QLinearMatMul`` and ``MatMul``.

    It has no ``Gemm`` of integers, so factors and a C are nodes of their own.
    Four bits are ``MatMulNBits``, which isn't the same function: A and the result
    are float32, and it may round A to 8 bits in blocks.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self._told: dict[str, Any] = {}

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        self._told = {}
        mode = MODES.get(dtype)
        if mode is None and not (dtype in INTEGERS and case.op == "gemm"):
            return super().prepare(case, dtype, arrays)
        if mode is not None and mode.bits == 4:
            return self._four_bits(case, *_operands(case, arrays)), ""
        try:
            return self._graph_call(case, dtype, arrays), ""
        except Exception as error:  # its exceptions share no public base
            if "NOT_IMPLEMENTED" not in str(error):
                raise
            return None, str(error)

    def describe(self, case: Case, dtype: str) -> dict[str, Any]:
        return self._told

    def _graph_call(self, case: Case, dtype: str, arrays: Arrays) -> Call:
        helper, mode = self.onnx.helper, MODES.get(dtype)
        feeds: dict[str, Array] = {}
        constants: list[Any] = []
        nodes: list[Any] = []

        def given(name: str, value: Any, constant: bool = True) -> str:
            value = np.asarray(value)
            if constant:
                constants.append(self.onnx.numpy_helper.from_array(value, name))
            else:
                feeds[name] = value
            return name

        def node(op: str, inputs: list[str], **attributes: Any) -> str:
            name = f"t{len(nodes)}"
            nodes.append(helper.make_node(op, inputs, [name], **attributes))
            return name

        a, b = arrays.a[0], arrays.b[0]
        names = [given("a", a, False), given("b", b, case.constant_b)]
        for side, (swap, rank) in enumerate(
            ((case.trans_a, a.ndim), (case.trans_b, b.ndim))
        ):
            if swap:
                axes = [*range(rank - 2), rank - 1, rank - 2]
                names[side] = node("Transpose", [names[side]], perm=axes)
        if mode is None:
            result = np.dtype(dtype)
            product = node("MatMul", names)
            if case.alpha != 1.0:
                alpha = np.array(factor(case.alpha, dtype), dtype)
                product = node("Mul", [product, given("alpha", alpha)])
            if arrays.c is not None:
                addend = given("c", arrays.c, case.constant_b)
                if case.beta != 1.0:
                    beta = np.array(factor(case.beta, dtype), dtype)
                    addend = node("Mul", [addend, given("beta", beta)])
                product = node("Add", [product, addend])
        elif mode.qlinear:
            result = np.dtype(mode.y)
            scales = quantization(case, mode)
            b_zero: Array = np.array(scales.b_zero, mode.b)
            if mode.columns:  # it wants one for each scale
                b_zero = np.full(case.n, b_zero)
            product = node("QLinearMatMul", [
                names[0], given("a_scale", scales.a_scale),
                given("a_zero", np.array(scales.a_zero, mode.a)),
                names[1], given("b_scale", scales.b_scale), given("b_zero", b_zero),
                given("y_scale", scales.y_scale),
                given("y_zero", np.array(scales.y_zero, mode.y)),
            ])
        else:
            result = np.dtype(mode.y)
            product = node("MatMulInteger", names)
        return self._session_call(nodes, feeds, product, result, constants)

    def _session_call(
        self, nodes: list[Any], feeds: dict[str, Array], output: str, result: Any,
        constants: list[Any],
    ) -> Call:
        info = self.onnx.helper.make_tensor_value_info
        graph = self.onnx.helper.make_graph(
            nodes, "product",
            [info(name, self._kind(value.dtype), value.shape)
             for name, value in feeds.items()],
            [info(output, self._kind(result), None)], constants,
        )
        return partial(self._load(graph).run, [output], feeds)

    def _four_bits(self, case: Case, a: Array, b: Array) -> Call:
        """The faster of float32 sums and of ones over A rounded to 8 bits."""
        k, n = b.shape
        # Longer blocks have fewer scales; gemmkit's zero point and scale are one.
        block = 128 if k % 128 == 0 else 32
        count = -(-k // block)
        codes = np.full((n, count * block), 8, np.uint8)  # a zero, as kept there
        codes[:, :k] = b.T + 8
        packed = (codes[:, 0::2] | codes[:, 1::2] << 4).reshape(n, count, block // 2)
        from_array = self.onnx.numpy_helper.from_array
        constants = [
            from_array(packed, "b"),
            from_array(np.ones((n, count), np.float32), "scales"),
        ]
        feeds = {"a": a.astype(np.float32)}
        calls: dict[str, Call] = {}
        for level in (0, 4):
            node = self.onnx.helper.make_node(
                "MatMulNBits", ["a", "b", "scales"], ["y"], domain="com.microsoft",
                K=k, N=n, bits=4, block_size=block, accuracy_level=level,
            )
            calls[f"MatMulNBits, accuracy level {level}, blocks of {block}"] = (
                self._session_call([node], feeds, "y", "float32", constants)
            )
        name = fastest(calls)
        self._told = {"function": name}
        return calls[name]


BACKENDS: dict[str, type[Backend]] = {
    backend.name: backend
    for backend in (
        GemmkitIntegers, GemmkitInt8, NumpyIntegers, NumpyFloatIntegers,
        OnnxruntimeIntegers, TorchIntegers,
    )
}
