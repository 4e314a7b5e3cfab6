"""Attention in every backend, and the list of all backends.

Each library gets one call, as its users write it, on arrays in the layout of the case.
Where it has no such attention it is given what means the same (a mask in place of a
window, a mask spelt out for each query, K and V put together); ``stand_in`` among what
it is described by says so, and the report marks the time.  Making these is outside the
timed part: a user makes them once for all layers of a model.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.attention_corpus import ATTENTION, AttentionCase, element
from benchmarks.attention_verify import AttentionArrays, in_reach, split_heads
from benchmarks.backends import CODED, Backend, Call, Prepared
from benchmarks.corpus import HALVES, Case
from benchmarks.int_backends import (
    BACKENDS as _PRODUCTS, GemmkitIntegers, NumpyFloatIntegers, NumpyIntegers, OnnxruntimeIntegers, TorchIntegers,
)
from benchmarks.verify import Array, Arrays

_WINDOW = "the window as a mask"
_PAST = "causality as a mask, K and V put together beforehand"
_EXPANDED = "the mask spelt out for each query"
_SCALED = "Q times the scale beforehand, as it keeps the scale's root in float32"
_NUMPY_SCORES = 1 << 21  # more of them leave the caches, again for each step of the softmax
_GRAPH_SCORES = 1 << 25  # onnxruntime takes seconds where it has no kernel


def _plain_mask(case: AttentionCase, arrays: AttentionArrays) -> tuple[Array | None, str]:
    """A mask that says all that a plain causal flag doesn't, and what it stands for."""
    if case.window:
        return in_reach(case), _WINDOW
    if case.past:
        return in_reach(case), _PAST
    return arrays.c, ""


def _told(function: str, stand_in: str) -> dict[str, Any]:
    return {"function": function} | ({"stand_in": stand_in} if stand_in else {})


class GemmkitAttention(GemmkitIntegers):
    """gemmkit: the plain function."""

    _PLAN = (
        "path", "isa", "kernels", "br", "bc", "splits", "layout", "group_size", "num_threads", "workspace_bytes",
    )

    def lacks(self, dtype: str) -> str:
        if dtype not in ATTENTION:
            return super().lacks(dtype)
        if not hasattr(self.lib, "attention"):
            return "this gemmkit has no attention"
        return super().lacks(element(dtype))

    @staticmethod
    def _options(case: AttentionCase) -> dict[str, Any]:
        """Only what differs from the defaults."""
        options: dict[str, Any] = {}
        if case.causal:
            options["is_causal"] = True
        if case.window:
            options["left_window_size"] = case.window - 1  # beside the query's own key
        if case.rank3:
            options |= {"q_num_heads": case.heads, "kv_num_heads": case.kv_heads}
        return options

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        if not isinstance(case, AttentionCase):
            return super().prepare(case, dtype, arrays)
        assert isinstance(arrays, AttentionArrays)
        lacking = self.lacks(dtype)
        if lacking:
            return None, lacking
        options = self._options(case)
        if arrays.c is not None:
            options["attn_mask"] = arrays.c
        if arrays.past is not None:
            options["past_key"], options["past_value"] = arrays.past
        return partial(self.lib.attention, arrays.a[0], arrays.b[0], arrays.v, **options), ""

    def describe(self, case: Case, dtype: str) -> dict[str, Any]:
        """Attributes of a plan made like the case, as the function hands out none."""
        if not isinstance(case, AttentionCase):
            return super().describe(case, dtype)
        wired = ["q", "k", "v"] + ["attn_mask"] * bool(case.mask) + ["past_key", "past_value"] * bool(case.past)
        mask: dict[str, Any] = {}
        if case.mask:
            kind = element(dtype) if case.mask == "alibi" else "bool"
            mask = {"mask_shape": case.mask_shape, "mask_dtype": np.dtype(kind)}
        try:
            descriptor = self.lib.AttentionDescriptor(inputs=tuple(wired), **self._options(case))
            plan = self.lib.AttentionPlan(
                descriptor, case.a_shape, case.b_shape, case.b_shape, np.dtype(element(dtype)),
                past_length=case.past, **mask,
            )
        except Exception as error:  # a missing description costs no timing
            return {"undescribed": f"{type(error).__name__}: {error}"}
        told = {name: getattr(plan, name, None) for name in self._PLAN}
        return {
            name: value if isinstance(value, (int, str)) else str(value)
            for name, value in told.items() if value is not None
        }


class NumpyAttention(NumpyIntegers):
    """numpy: two products and a softmax over all scores, in float32 or float64."""

    _TYPES: tuple[str, ...] = ("float32", "float64")

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        if not isinstance(case, AttentionCase):
            return super().prepare(case, dtype, arrays)
        assert isinstance(arrays, AttentionArrays)
        return _numpy_attention(case, dtype, arrays, self._TYPES)


class NumpyFloatAttention(NumpyFloatIntegers):
    """The same of float16 and bfloat16, through float32 and back."""

    _TYPES = HALVES

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        if not isinstance(case, AttentionCase):
            return super().prepare(case, dtype, arrays)
        assert isinstance(arrays, AttentionArrays)
        self._wide = "float32"
        return _numpy_attention(case, dtype, arrays, self._TYPES)


def _numpy_attention(case: AttentionCase, dtype: str, arrays: AttentionArrays, types: tuple[str, ...]) -> Prepared:
    """What is written where there is no function: heads of a group are rows of one matrix."""
    kind = element(dtype)
    if kind not in types:
        return None, f"{kind} is measured by {'numpy-f32' if kind in HALVES else 'numpy'}"
    if case.batch * case.heads * case.m * case.n > _NUMPY_SCORES:
        return None, "too slow: numpy passes over all scores for each step of a softmax"
    wide: Any = np.dtype("float32" if kind in HALVES else kind)
    scale = wide.type(case.k ** -0.5)
    mask, _ = _plain_mask(case, arrays)
    if mask is None and case.causal:
        mask = in_reach(case)
    if mask is not None:
        given = mask if mask.dtype != np.bool_ else np.where(mask, 0.0, -np.inf)
        mask = given.astype(wide)
    shape = case.batch, case.kv_heads, -1

    def attention(q: Array, k: Array, v: Array) -> Array:
        q, k, v = (array.astype(wide, copy=False) for array in (q, k, v))
        q = split_heads(case, q, case.heads) * scale
        k, v = split_heads(case, k, case.kv_heads), split_heads(case, v, case.kv_heads)
        scores = q.reshape(*shape, case.k) @ k.swapaxes(-1, -2)
        scores = scores.reshape(case.batch, case.heads, case.m, case.n)
        if mask is not None:
            scores += mask
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(-1, keepdims=True)
        y = (scores.reshape(*shape, case.n) @ v).reshape(case.batch, case.heads, case.m, case.k)
        if case.rank3:
            y = y.swapaxes(1, 2).reshape(case.a_shape)
        return y.astype(kind, copy=False)

    return partial(attention, arrays.a[0], arrays.keys, arrays.values), ""


class TorchAttention(TorchIntegers):
    """torch: ``scaled_dot_product_attention``, heads of groups by ``enable_gqa``.

    Its ``is_causal`` counts places from the first key, so queries behind a past need a
    mask; it has no window either.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self._attended: dict[str, Any] = {}

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        self._attended = {}
        if not isinstance(case, AttentionCase):
            return super().prepare(case, dtype, arrays)
        assert isinstance(arrays, AttentionArrays)
        q, k, v = (self._tensor(array) for array in (arrays.a[0], arrays.keys, arrays.values))
        mask, stand_in = _plain_mask(case, arrays)
        options: dict[str, Any] = {}
        if mask is not None:
            options["attn_mask"] = self._tensor(mask)
        elif case.causal:
            options["is_causal"] = True
        if case.heads != case.kv_heads:
            options["enable_gqa"] = True
        self._attended = _told("scaled_dot_product_attention", stand_in)
        function = partial(self.lib.nn.functional.scaled_dot_product_attention, **options)
        if not case.rank3:
            return partial(function, q, k, v), ""
        return lambda: self._rank3(function, case, q, k, v), ""

    @staticmethod
    def _rank3(function: Any, case: AttentionCase, q: Any, k: Any, v: Any) -> Any:
        """Heads apart, as views, and together again, as modules of models write it."""
        q = q.view(case.batch, case.m, case.heads, case.k).transpose(1, 2)
        k, v = (x.view(case.batch, case.n, case.kv_heads, case.k).transpose(1, 2) for x in (k, v))
        return function(q, k, v).transpose(1, 2).reshape(case.a_shape)

    def describe(self, case: Case, dtype: str) -> dict[str, Any]:
        return self._attended or super().describe(case, dtype)


class OnnxruntimeAttention(OnnxruntimeIntegers):
    """onnxruntime: a model of one ``Attention`` node of opset 23.

    Types that its session refuses are not available; nothing is cast around the node,
    since the node is what is compared.  A mask has to have a row for each query, and
    where there is a past the node also makes the present.
    """

    _OPSET, _IR = 23, 11  # the first that know the operator

    def prepare(self, case: Case, dtype: str, arrays: Arrays) -> Prepared:
        if not isinstance(case, AttentionCase):
            return super().prepare(case, dtype, arrays)
        assert isinstance(arrays, AttentionArrays)
        self._told, stand_ins = {}, []
        if element(dtype) == "float64" and case.batch * case.heads * case.m * case.n > _GRAPH_SCORES:
            return None, "too slow: float64 has no kernel and runs as a graph of single operators"
        feeds = {"q": arrays.a[0], "k": arrays.b[0], "v": arrays.v}
        mask = arrays.c
        if case.window:
            mask = in_reach(case)
            stand_ins.append(_WINDOW)
        elif case.mask == "padding":
            assert mask is not None
            mask = np.repeat(mask, case.m, -2)
            stand_ins.append(_EXPANDED)
        if mask is not None:
            feeds["attn_mask"] = mask
        outputs = ["y"]
        if arrays.past is not None:
            feeds["past_key"], feeds["past_value"] = arrays.past
            outputs += ["present_key", "present_value"]
        names = ("q", "k", "v", "attn_mask", "past_key", "past_value")
        wired = [name if name in feeds else "" for name in names]
        attributes: dict[str, Any] = {"is_causal": int(case.causal and not case.window)}
        if element(dtype) == "float64":
            feeds["q"] = feeds["q"] * case.k ** -0.5
            attributes["scale"] = 1.0
            stand_ins.append(_SCALED)
        if case.rank3:
            attributes |= {"q_num_heads": case.heads, "kv_num_heads": case.kv_heads}
        while not wired[-1]:
            wired.pop()
        info, kind = self.onnx.helper.make_tensor_value_info, self._kind(element(dtype))
        graph = self.onnx.helper.make_graph(
            [self.onnx.helper.make_node("Attention", wired, outputs, **attributes)], "attention",
            [info(name, self._kind(array.dtype), array.shape) for name, array in feeds.items()],
            [info(name, kind, None) for name in outputs],
        )
        try:
            session = self._load(graph, opset=self._OPSET, ir_version=self._IR)
            call: Call = partial(session.run, outputs[:1], feeds)
            if element(dtype) in CODED:
                call = self._bound(session, outputs[:1], feeds, kind)
        except Exception as error:  # its exceptions share no public base
            return None, f"not available: {str(error).splitlines()[0]}"
        self._told = _told(f"Attention of opset {self._OPSET}", "; ".join(stand_ins))
        return call, ""


BACKENDS: dict[str, type[Backend]] = _PRODUCTS | {
    backend.name: backend
    for backend in (GemmkitAttention, NumpyAttention, NumpyFloatAttention, OnnxruntimeAttention, TorchAttention)
}
