"""Matrix multiplication and attention on the CPU: numpy in, numpy out, at the speed of the hardware.

    matmul, gemm                        the functions            gemmkit._kernels._matmul
    matmul_integer, qlinear_matmul      quantized products       gemmkit._kernels._integers
    MatMulIntegerPlan,
    QLinearMatMulPlan                   their plans              gemmkit._kernels._integer_plans
    quantize, PackedInt4, ...           numbers to and from      gemmkit._quantize, gemmkit._packed
    attention, AttentionDescriptor,
    AttentionPlan, KVCache              attention                gemmkit._kernels._attention, gemmkit._cache
    GemmPlan, MatMulPlan,
    StridedBatchedGemm, GroupedGemm     decisions made once      gemmkit._kernels._plans
    threads, isa, show_config, ...      what is used             gemmkit._config, gemmkit._kernels._parallel

A call passes these layers:

    _matmul, _plans   types and arguments of an operator
    _calls            shapes, strides, broadcasting; where the result goes
    _engine           decides (with _schedule, pure functions), then runs one product, a batch or a group
    _loops            the loops over micro-kernels; _parallel hands out their tasks
    _registry         the kernel table; the kernels are C headers in gemmkit/_isa

docs/architecture.md is the tour.
"""

from gemmkit._threads import cgroup_quota as _cgroup_quota
from gemmkit._threads import spin_policy as _spin_policy

with _spin_policy():
    from gemmkit._kernels import _parallel

from gemmkit._cache import KVCache
from gemmkit._config import config, isa, show_config, threads
from gemmkit._kernels._attention import AttentionPlan, attention
from gemmkit._kernels._descriptor import AttentionDescriptor
from gemmkit._kernels._integer_plans import MatMulIntegerPlan, QLinearMatMulPlan
from gemmkit._kernels._integers import matmul_integer, qlinear_matmul
from gemmkit._kernels._matmul import gemm, matmul
from gemmkit._kernels._parallel import get_num_threads, set_num_threads
from gemmkit._kernels._plans import GemmPlan, GroupedGemm, MatMulPlan, StridedBatchedGemm
from gemmkit._packed import PackedInt4
from gemmkit._quantize import dequantize, dynamic_quantize_linear, quantize

__version__ = "0.1.0"

__all__ = [
    "AttentionDescriptor",
    "AttentionPlan",
    "GemmPlan",
    "GroupedGemm",
    "KVCache",
    "MatMulIntegerPlan",
    "MatMulPlan",
    "PackedInt4",
    "QLinearMatMulPlan",
    "StridedBatchedGemm",
    "attention",
    "config",
    "dequantize",
    "dynamic_quantize_linear",
    "gemm",
    "get_num_threads",
    "isa",
    "matmul",
    "matmul_integer",
    "qlinear_matmul",
    "quantize",
    "set_num_threads",
    "show_config",
    "threads",
]

_parallel.set_quota(_cgroup_quota())
