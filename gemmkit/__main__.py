"""``python -m gemmkit``: what this machine does; ``python -m gemmkit explain M N K``: what a plan is and why."""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import gemmkit
from gemmkit._config import measure_peak
from gemmkit._kernels import _registry, _schedule

SHAPES = (
    (1, 64, 64),
    (128, 128, 128),
    (512, 512, 512),
    (1024, 1024, 1024),
    (1, 4096, 1024),
    (1024, 1, 1024),
    (1024, 1024, 8),
    (32, 32, 4096),
    (128, 3072, 768),
)
NARROW_SHAPES = ((1, 64, 64), (128, 128, 128), (512, 512, 512), (1024, 1024, 1024), (1, 4096, 1024), (128, 3072, 768))
WIDE = ("float32", "float64")
NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "int32", "int64")
ALL = WIDE + NARROW + ("float8_e4m3fnuz", "float8_e5m2fnuz")
ATTENTION = (("prefill", 8, 8, 256, 256, 64, False), ("causal", 8, 8, 512, 512, 64, True), ("grouped", 16, 4, 256, 512, 128, False),
             ("decode", 16, 4, 1, 2048, 128, False))
GEMM_TYPES = ("int32", "uint32", "int64", "uint64")  # the integers of Gemm
WHOLE = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
ROUNDS = 7
BURST_SECONDS = 0.02
# numpy multiplies narrow types element by element, for seconds where that is a large product.
MOST_SCALAR_WORK = 128 * 128 * 128


def burst(f: Callable[[], object], count: int) -> float:
    """Seconds a call, over `count` calls."""
    start = time.perf_counter()
    for _ in range(count):
        f()
    return (time.perf_counter() - start) / count


def alternate(*functions: Callable[[], object]) -> list[float]:
    """Median seconds a call of each function, timed by turns so that a drifting clock hits all alike."""
    counts = []
    for f in functions:
        f()
        counts.append(max(1, int(BURST_SECONDS / max(burst(f, 1), 1e-7))))
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(ROUNDS):
        for f, count, own in zip(functions, counts, times):
            own.append(burst(f, count))
    return [statistics.median(own) for own in times]


def worst_error(a: np.ndarray, b: np.ndarray, result: np.ndarray) -> float:
    """Largest error against a sum in wider arithmetic, as a fraction of what is allowed; some rows are checked.

    Allowed are (K + 8) u (|a| @ |b|), u the unit roundoff of the sums' type, and one rounding to the result's type.
    """
    wide: type[np.floating] = np.longdouble if a.dtype == np.float64 else np.float64
    sums = np.finfo(np.float64 if a.dtype == np.float64 else np.float32)
    rows = np.unique(np.linspace(0, len(a) - 1, 4).astype(int))
    x, y = a[rows].astype(wide), b.astype(wide)
    exact = np.einsum("ik,kj->ij", x, y, optimize=False)
    size = np.einsum("ik,kj->ij", abs(x), abs(y), optimize=False)
    bound = (a.shape[1] + 8) * (sums.eps / 2) * size
    info = ml_dtypes.finfo(result.dtype)
    if info.bits < sums.bits:
        bound += float(info.eps) / 2 * (abs(exact) + bound) + float(info.smallest_subnormal) / 2
    return float((abs(result[rows].astype(wide) - exact) / bound).max())


def measure(dtype: str, peak: float, m: int, n: int, k: int) -> bool:
    """Print one line of the tour; whether the result was within its error bound."""
    rng = np.random.default_rng(0)
    kind = np.dtype(dtype)
    a, b = (rng.uniform(-1, 1, shape).astype(kind) for shape in ((m, k), (k, n)))
    plan = gemmkit.GemmPlan(m, n, k, kind)
    calls: list[Callable[[], object]] = [lambda: gemmkit.matmul(a, b)]
    slow = dtype in WIDE or m * n * k <= MOST_SCALAR_WORK
    if slow:
        calls.append(lambda: np.matmul(a, b))
    if dtype not in WIDE:
        out = np.float32 if kind.itemsize == 1 else kind
        calls.append(lambda: np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(out))
    ours, *numpys = alternate(*calls)
    ratios = [f"{one / ours:8.2f}" for one in numpys]
    if not slow:
        ratios.insert(0, f"{'-':>8}")
    error = worst_error(a, b, gemmkit.matmul(a, b))
    rate = 2e-9 * m * n * k / ours
    print(f"{f'{m} x {n} x {k}':>18} {plan.algorithm:>10} {rate:8.1f} {rate / peak:8.0%} {' '.join(ratios)} {error:12.3f}",
          flush=True)
    return error <= 1


def measure_integers(dtype: str, peak: float, m: int, n: int, k: int) -> bool:
    """One line of the tour for exact products; int8 is `matmul_integer` of uint8 by int8."""
    rng = np.random.default_rng(0)
    a: np.ndarray
    b: np.ndarray
    plan: gemmkit.MatMulIntegerPlan | gemmkit.MatMulPlan
    if dtype == "int8":
        a, b = rng.integers(0, 256, (m, k)).astype(np.uint8), rng.integers(-128, 128, (k, n)).astype(np.int8)
        plan, ours = gemmkit.MatMulIntegerPlan((m, k), (k, n), a.dtype, b.dtype), lambda: gemmkit.matmul_integer(a, b)
    else:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        a, b = (rng.integers(low, high, shape, dtype=dtype) for shape in ((m, k), (k, n)))
        plan, ours = gemmkit.MatMulPlan((m, k), (k, n), dtype), lambda: gemmkit.matmul(a, b)
    wide = np.dtype(np.int32 if dtype == "int8" else dtype)
    calls: list[Callable[[], object]] = [ours]
    if m * n * k <= 64 * MOST_SCALAR_WORK:
        calls.append(lambda: np.matmul(a.astype(wide, copy=False), b.astype(wide, copy=False)))
    if dtype == "int8":
        calls.append(lambda: np.matmul(a.astype(np.float32), b.astype(np.float32)))
    seconds, *numpys = alternate(*calls)
    ratios = [f"{one / seconds:8.2f}" for one in numpys]
    if m * n * k > 64 * MOST_SCALAR_WORK:
        ratios.insert(0, f"{'-':>8}")
    rows = np.unique(np.linspace(0, m - 1, 4).astype(int))
    with np.errstate(over="ignore"):
        exact = np.einsum("ik,kj->ij", a[rows].astype(np.int64), b.astype(np.int64), optimize=False).astype(wide)
    right = bool((np.asarray(ours())[rows] == exact).all())
    rate = 2e-9 * m * n * k / seconds
    print(f"{f'{m} x {n} x {k}':>18} {plan.algorithm:>10} {rate:8.1f} {rate / peak:8.0%} {' '.join(ratios)} "
          f"{'exact' if right else 'WRONG':>12}", flush=True)
    return right


def attention_in_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool, dtype: Any) -> np.ndarray:
    """The textbook's attention, all scores at once."""
    k, v = (np.repeat(x.astype(dtype), q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = q.astype(dtype) @ k.swapaxes(-1, -2) / dtype(math.sqrt(q.shape[-1]))
    if causal:
        scores[..., np.arange(q.shape[2])[:, None] < np.arange(k.shape[2])] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    y: np.ndarray = weights @ v / weights.sum(axis=-1, keepdims=True)
    return y


def measure_attention(dtype: str, name: str, heads: int, kv_heads: int, queries: int, keys: int, size: int, causal: bool) -> bool:
    """One line of the tour for attention."""
    rng = np.random.default_rng(0)
    shapes = ((1, heads, queries, size), (1, kv_heads, keys, size), (1, kv_heads, keys, size))
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    plan = gemmkit.AttentionPlan(gemmkit.AttentionDescriptor(is_causal=causal), *shapes, dtype)
    seconds, numpys = alternate(lambda: gemmkit.attention(q, k, v, is_causal=causal),
                                lambda: attention_in_numpy(q, k, v, causal, np.float32))
    exact = attention_in_numpy(q, k, v, causal, np.float64)
    error = np.abs(gemmkit.attention(q, k, v, is_causal=causal).astype(np.float64) - exact).max()
    # Weights that add up to 1 and values within some 5: a few roundings of the type that holds the weights, or the result.
    bound = 32 * (2.0**-24 if dtype == "float32" else 2.0**-9)
    rate = 4e-9 * heads * queries * keys * size / (2 if causal else 1) / seconds
    sizes = f"{queries} x {keys}, {heads}/{kv_heads} x {size}"
    print(f"{name:>10} {sizes:>24} {plan.path:>12} {rate:8.1f} {numpys / seconds:8.2f} {error / bound:12.3f}", flush=True)
    return bool(error <= bound)


def tour() -> int:
    """The main job: what was found, then each shape and type against numpy in the same run, on one thread."""
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        # numpy's pool is sized on import, which is over: once more, with one thread for it.
        one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1")
        return subprocess.run([sys.executable, "-m", "gemmkit"], env=os.environ | one).returncode
    gemmkit.show_config()
    right = True
    with gemmkit.threads(1):
        for dtype in WIDE + NARROW:
            peak = measure_peak(dtype)
            upcast = "" if dtype in WIDE else f" {'x f32':>8}"
            print(f"\n{dtype}, one thread; peak of this core {peak:.0f} GFLOP/s")
            print(f"{'M x N x K':>18} {'algorithm':>10} {'GFLOP/s':>8} {'of peak':>8} {'x numpy':>8}{upcast} {'error/bound':>12}")
            for m, n, k in SHAPES if dtype in WIDE else NARROW_SHAPES:
                right = measure(dtype, peak, m, n, k) and right
        for dtype in INTEGERS:
            peak = measure_peak(dtype)
            what, upcast = ("matmul_integer, uint8 x int8", f" {'x f32':>8}") if dtype == "int8" else (dtype, "")
            print(f"\n{what}, one thread; peak of this core {peak:.0f} Gop/s")
            print(f"{'M x N x K':>18} {'algorithm':>10} {'Gop/s':>8} {'of peak':>8} {'x numpy':>8}{upcast} {'result':>12}")
            for m, n, k in NARROW_SHAPES[:-1] if dtype != "int8" else NARROW_SHAPES:
                right = measure_integers(dtype, peak, m, n, k) and right
        for dtype in ("float32", "bfloat16"):
            print(f"\nattention, {dtype}, one thread; queries x keys, query heads / key heads x head size")
            print(f"{'':>10} {'':>24} {'path':>12} {'GFLOP/s':>8} {'x numpy':>8} {'error/bound':>12}")
            for case in ATTENTION:
                right = measure_attention(dtype, *case) and right
    print("\nx numpy: numpy.matmul's time over gemmkit's, arrays as they are (bytes as int32); x f32: through float32 copies and back;"
          "\nattention beside the textbook formula in numpy, in float32")
    if not right:
        print("gemmkit: a result is wrong or outside its error bound", file=sys.stderr)
    return 0 if right else 1


def explain(args: argparse.Namespace) -> int:
    """Print a plan, the blocks, and why each other algorithm and each faster row was not taken."""
    m, n, k = args.M, args.N, args.K
    layout = {"trans_a": args.trans_a, "trans_b": args.trans_b}
    types = {"b_dtype": args.b_dtype, "out_dtype": args.out_dtype}
    b_dtype = args.b_dtype or args.dtype
    stack = () if args.batch is None else (args.batch,)
    b = np.zeros((*stack, *((n, k) if args.trans_b else (k, n))), b_dtype) if args.constant_b else None
    plan: gemmkit.GemmPlan | gemmkit.StridedBatchedGemm | gemmkit.MatMulPlan | gemmkit.MatMulIntegerPlan
    if (args.dtype in WHOLE and args.dtype not in GEMM_TYPES) or "int4" in args.dtype + b_dtype:
        plan = explained_integers(args, b_dtype, b, stack)
    elif args.batch is None:
        plan = gemmkit.GemmPlan(m, n, k, args.dtype, b=b, **layout, **types)
    else:
        plan = gemmkit.StridedBatchedGemm(args.batch, m, n, k, args.dtype, b=b, **layout, **types)
    print(plan)
    print(f"\nalgorithm  {plan.algorithm}: {ALGORITHMS[plan.algorithm]}")
    for name in _schedule.CODES:
        if name in ("auto", plan.algorithm):
            continue
        why = plan.refusal(name)
        print(f"  not {name:9} {why if why else 'possible here: ' + ALGORITHMS[name]}")
    print(f"\nblocks     MC {plan.mc}, NC {plan.nc}, KC {plan.kc}, NB {plan.nb}"
          + (f", K in {plan.splits} parts" if plan.splits > 1 else ""))
    cpu = _registry.cpu_info()
    print("           from " + ", ".join(f"{c.upper()} {cpu[c]['size'] >> 10} KiB" for c in ("l1d", "l2", "l3")))
    print(f"packs      {' and '.join(plan.packs) or 'nothing: operands are read in place'}; "
          f"workspace {plan.workspace_bytes:,} bytes")
    if plan.packs or args.constant_b:
        print(f"panels     {plan.panel_dtype}")
    print(f"threads    {plan.num_threads}")
    row = next(r for r in _registry.rows() if r["name"] == plan.kernel)
    reads = [(row["role"], row["a"], row["b"])]
    narrow = {args.dtype, b_dtype} - set(WIDE + WHOLE) - {"float16", "int4", "uint4"}
    if narrow and not {args.dtype, b_dtype} & {*WIDE, "float16"} and reads[0][1:] != ("bfloat16", "bfloat16"):
        reads.append(("gemm", "bfloat16", "bfloat16"))  # the panels that it was not
    for role, a_type, b_type in reads:
        print(f"\nrows of the table for {role}, {a_type} x {b_type}, best first:")
        for name, why in _registry.why_refused(role, a_type, b_type, n):
            chosen = "chosen" if name == plan.kernel else "panels are float32" if why is None else why
            print(f"  {name:44} {chosen}")
    return 0


def explained_integers(
    args: argparse.Namespace, b_dtype: str, b: np.ndarray | None, stack: tuple[int, ...]
) -> gemmkit.MatMulPlan | gemmkit.MatMulIntegerPlan:
    """The plan of `matmul`, or of `matmul_integer` where the result is to be int32 or the types are its own."""
    if args.trans_a or args.trans_b:
        raise ValueError("bytes and 16 bits are explained without --trans-a and --trans-b")
    shapes = (*stack, args.M, args.K), (*stack, args.K, args.N)
    small = ("int8", "uint8", "int4", "uint4")
    if args.dtype in small and b_dtype in small and (args.out_dtype == "int32" or "int4" in args.dtype + b_dtype):
        return gemmkit.MatMulIntegerPlan(*shapes, args.dtype, b_dtype, b=b)
    return gemmkit.MatMulPlan(*shapes, args.dtype, b=b, b_dtype=b_dtype, out_dtype=args.out_dtype)


ALGORITHMS = {
    "general": "operands packed into micro-panels as needed, blocked for every cache level",
    "direct": "operands read in place",
    "small_k": "read in place, C written row by row",
    "skinny_m": "few rows: B passes once",
    "skinny_n": "few columns: vectors along K",
    "split_k": "tiny output: K summed up in parts",
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmkit", description="What gemmkit does on this machine.")
    commands = parser.add_subparsers(dest="command")
    one = commands.add_parser("explain", help="print the plan for a shape, and the reasons for it")
    for size in "MNK":
        one.add_argument(size, type=int)
    one.add_argument("--dtype", choices=ALL + WHOLE + ("int4", "uint4"), default="float32", help="of A, and of B and the result by default")
    one.add_argument("--b-dtype", choices=ALL + WHOLE + ("int4", "uint4"), help="of B")
    one.add_argument("--out-dtype", choices=ALL + WHOLE, help="of the result; int32 for bytes, and any 4-bit type, mean matmul_integer")
    one.add_argument("--trans-a", action="store_true", help="A is stored as (K, M)")
    one.add_argument("--trans-b", action="store_true", help="B is stored as (N, K)")
    one.add_argument("--constant-b", action="store_true", help="the plan owns B, packed once")
    one.add_argument("--batch", type=int, help="so many products of this shape")
    args = parser.parse_args(argv)
    try:
        return explain(args) if args.command == "explain" else tour()
    except (TypeError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
