from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, SupportsFloat, SupportsIndex, TextIO, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from gemmkit._cache import KVCache as KVCache
from gemmkit._packed import PackedInt4 as PackedInt4
from gemmkit._quantize import dequantize as dequantize
from gemmkit._quantize import dynamic_quantize_linear as dynamic_quantize_linear
from gemmkit._quantize import quantize as quantize

__version__: str

_Algorithm = Literal["auto", "general", "direct", "small_k", "skinny_m", "skinny_n", "split_k"]
_Isa = Literal[
    "scalar", "sse2", "avx", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512vbmi", "avx512bf16", "avx512fp16", "amxint8", "amxbf16"
]
_Quantized = ArrayLike | PackedInt4

# Two vectors give a scalar; anything else an array.
def matmul(
    a: ArrayLike, b: ArrayLike, out: NDArray[Any] | None = None, *, out_dtype: DTypeLike | None = None
) -> Any: ...
def gemm(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
    out: NDArray[Any] | None = None,
    out_dtype: DTypeLike | None = None,
) -> NDArray[Any]: ...

def matmul_integer(
    a: _Quantized,
    b: _Quantized,
    a_zero_point: ArrayLike | None = None,
    b_zero_point: ArrayLike | None = None,
    *,
    out: NDArray[np.int32] | None = None,
) -> Any: ...
def qlinear_matmul(
    a: _Quantized,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike,
    b: _Quantized,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike,
    *,
    out: NDArray[Any] | None = None,
) -> Any: ...

_Output = Literal["y", "present_key", "present_value", "qk_matmul_output"]
_Input = Literal["q", "k", "v", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen", "cache"]

@overload
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    attn_mask: ArrayLike | None = None,
    past_key: ArrayLike | None = None,
    past_value: ArrayLike | None = None,
    nonpad_kv_seqlen: ArrayLike | None = None,
    *,
    scale: SupportsFloat | None = None,
    is_causal: bool | np.bool_ = False,
    softcap: SupportsFloat = 0.0,
    q_num_heads: SupportsIndex | None = None,
    kv_num_heads: SupportsIndex | None = None,
    qk_matmul_output_mode: SupportsIndex = 0,
    softmax_precision: DTypeLike | None = None,
    left_window_size: SupportsIndex = -1,
    right_window_size: SupportsIndex = -1,
    out: NDArray[Any] | None = None,
    cache: KVCache | None = None,
) -> NDArray[Any]: ...

# An array for ("y",), else a named tuple of those asked for.
@overload
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    attn_mask: ArrayLike | None = None,
    past_key: ArrayLike | None = None,
    past_value: ArrayLike | None = None,
    nonpad_kv_seqlen: ArrayLike | None = None,
    *,
    scale: SupportsFloat | None = None,
    is_causal: bool | np.bool_ = False,
    softcap: SupportsFloat = 0.0,
    q_num_heads: SupportsIndex | None = None,
    kv_num_heads: SupportsIndex | None = None,
    qk_matmul_output_mode: SupportsIndex = 0,
    softmax_precision: DTypeLike | None = None,
    left_window_size: SupportsIndex = -1,
    right_window_size: SupportsIndex = -1,
    outputs: Sequence[_Output],
    out: NDArray[Any] | None = None,
    cache: KVCache | None = None,
) -> Any: ...

class AttentionDescriptor:
    def __init__(
        self,
        inputs: Sequence[_Input] = ("q", "k", "v"),
        outputs: Sequence[_Output] = ("y",),
        *,
        scale: SupportsFloat | None = None,
        is_causal: bool | np.bool_ = False,
        softcap: SupportsFloat = 0.0,
        q_num_heads: SupportsIndex | None = None,
        kv_num_heads: SupportsIndex | None = None,
        qk_matmul_output_mode: SupportsIndex = 0,
        softmax_precision: DTypeLike | None = None,
        left_window_size: SupportsIndex = -1,
        right_window_size: SupportsIndex = -1,
    ) -> None: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def scale(self) -> float | None: ...
    @property
    def is_causal(self) -> bool: ...
    @property
    def softcap(self) -> float: ...
    @property
    def q_num_heads(self) -> int | None: ...
    @property
    def kv_num_heads(self) -> int | None: ...
    @property
    def qk_matmul_output_mode(self) -> int: ...
    @property
    def softmax_precision(self) -> np.dtype[Any] | None: ...
    @property
    def left_window_size(self) -> int: ...
    @property
    def right_window_size(self) -> int: ...

class AttentionPlan:
    def __init__(
        self,
        descriptor: AttentionDescriptor,
        q_shape: Iterable[int],
        k_shape: Iterable[int],
        v_shape: Iterable[int],
        dtype: DTypeLike,
        *,
        mask_shape: Iterable[int] | None = None,
        mask_dtype: DTypeLike = ...,
        past_length: int = 0,
        v_dtype: DTypeLike | None = None,
        path: Literal["auto", "streaming", "materialized", "decode"] = "auto",
    ) -> None: ...
    def __call__(
        self,
        q: ArrayLike,
        k: ArrayLike,
        v: ArrayLike,
        attn_mask: ArrayLike | None = None,
        past_key: ArrayLike | None = None,
        past_value: ArrayLike | None = None,
        nonpad_kv_seqlen: ArrayLike | None = None,
        *,
        out: NDArray[Any] | None = None,
        cache: KVCache | None = None,
    ) -> Any: ...
    @property
    def descriptor(self) -> AttentionDescriptor: ...
    @property
    def q_shape(self) -> tuple[int, ...]: ...
    @property
    def k_shape(self) -> tuple[int, ...]: ...
    @property
    def v_shape(self) -> tuple[int, ...]: ...
    @property
    def y_shape(self) -> tuple[int, ...]: ...
    @property
    def mask_shape(self) -> tuple[int, ...] | None: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def v_dtype(self) -> np.dtype[Any]: ...
    @property
    def layout(self) -> Literal["BHLD", "BLHD"]: ...
    @property
    def group_size(self) -> int: ...
    @property
    def head_map(self) -> tuple[int, ...]: ...
    @property
    def total_length(self) -> int: ...
    @property
    def mask_broadcast(self) -> tuple[bool, bool, bool, bool] | None: ...
    @property
    def path(self) -> Literal["streaming", "materialized", "decode"]: ...
    @property
    def br(self) -> int: ...
    @property
    def bc(self) -> int: ...
    @property
    def panels(self) -> int: ...
    @property
    def splits(self) -> int: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def workspace_bytes(self) -> int: ...
    @property
    def isa(self) -> str: ...
    @property
    def kernels(self) -> tuple[str, str, str]: ...

class _Plan:
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def b_dtype(self) -> np.dtype[Any]: ...
    @property
    def out_dtype(self) -> np.dtype[Any]: ...
    @property
    def panel_dtype(self) -> np.dtype[Any]: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def kernel(self) -> str: ...
    @property
    def mr(self) -> int: ...
    @property
    def nr(self) -> int: ...
    @property
    def mc(self) -> int: ...
    @property
    def nc(self) -> int: ...
    @property
    def nb(self) -> int: ...
    @property
    def kc(self) -> int: ...
    @property
    def packs(self) -> tuple[str, ...]: ...
    @property
    def splits(self) -> int: ...
    @property
    def work(self) -> int: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def workspace_bytes(self) -> int: ...
    @property
    def packed_bytes(self) -> int: ...
    def refusal(self, algorithm: str) -> str | None: ...

class GemmPlan(_Plan):
    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        dtype: DTypeLike,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 1.0,
        b: ArrayLike | None = None,
        algorithm: _Algorithm = "auto",
        b_dtype: DTypeLike | None = None,
        out_dtype: DTypeLike | None = None,
    ) -> None: ...
    def __call__(
        self,
        a: ArrayLike,
        b: ArrayLike | None = None,
        c: ArrayLike | None = None,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]: ...

class MatMulPlan(_Plan):
    def __init__(
        self,
        a_shape: Iterable[int],
        b_shape: Iterable[int],
        dtype: DTypeLike,
        *,
        b: ArrayLike | None = None,
        algorithm: _Algorithm = "auto",
        b_dtype: DTypeLike | None = None,
        out_dtype: DTypeLike | None = None,
    ) -> None: ...
    def __call__(
        self, a: ArrayLike, b: ArrayLike | None = None, out: NDArray[Any] | None = None
    ) -> Any: ...

class StridedBatchedGemm(_Plan):
    def __init__(
        self,
        batch: int,
        m: int,
        n: int,
        k: int,
        dtype: DTypeLike,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 1.0,
        b: ArrayLike | None = None,
        algorithm: _Algorithm = "auto",
        b_dtype: DTypeLike | None = None,
        out_dtype: DTypeLike | None = None,
    ) -> None: ...
    def __call__(
        self,
        a: ArrayLike,
        b: ArrayLike | None = None,
        c: ArrayLike | None = None,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]: ...

class MatMulIntegerPlan(_Plan):
    def __init__(
        self,
        a_shape: Iterable[int],
        b_shape: Iterable[int],
        a_dtype: DTypeLike,
        b_dtype: DTypeLike,
        *,
        b: _Quantized | None = None,
        b_zero_point: ArrayLike | None = None,
        algorithm: _Algorithm = "auto",
    ) -> None: ...
    def __call__(
        self,
        a: _Quantized,
        b: _Quantized | None = None,
        a_zero_point: ArrayLike | None = None,
        b_zero_point: ArrayLike | None = None,
        out: NDArray[np.int32] | None = None,
    ) -> Any: ...

class QLinearMatMulPlan(_Plan):
    def __init__(
        self,
        a_shape: Iterable[int],
        b_shape: Iterable[int],
        a_dtype: DTypeLike,
        b_dtype: DTypeLike,
        y_dtype: DTypeLike,
        *,
        b: _Quantized | None = None,
        b_scale: ArrayLike | None = None,
        b_zero_point: ArrayLike | None = None,
        algorithm: _Algorithm = "auto",
    ) -> None: ...
    def __call__(
        self,
        a: _Quantized,
        a_scale: ArrayLike,
        a_zero_point: ArrayLike,
        y_scale: ArrayLike,
        y_zero_point: ArrayLike,
        b: _Quantized | None = None,
        b_scale: ArrayLike | None = None,
        b_zero_point: ArrayLike | None = None,
        out: NDArray[Any] | None = None,
    ) -> Any: ...

class GroupedGemm:
    plans: tuple[GemmPlan, ...]
    def __init__(
        self,
        shapes: Iterable[Iterable[int]],
        dtype: DTypeLike,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        b_dtype: DTypeLike | None = None,
        out_dtype: DTypeLike | None = None,
    ) -> None: ...
    def __call__(
        self,
        a: Sequence[ArrayLike],
        b: Sequence[ArrayLike],
        out: Sequence[NDArray[Any] | None] | None = None,
    ) -> list[NDArray[Any]]: ...

def set_num_threads(n: int | None) -> None: ...
def get_num_threads() -> int: ...
def threads(n: int | None) -> AbstractContextManager[None]: ...
def isa(name: _Isa | None) -> AbstractContextManager[None]: ...
def config() -> dict[str, Any]: ...
def show_config(file: TextIO | None = None) -> None: ...
