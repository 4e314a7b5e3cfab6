"""``python -m gemmkit``: what this machine does; ``python -m gemmkit explain M N K``: what a plan is and why."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

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
ROUNDS = 7
BURST_SECONDS = 0.02


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
    """Largest error against a sum in wider arithmetic, as a fraction of (K + 8) u (|a| @ |b|); some rows are checked."""
    wide = np.float64 if a.dtype == np.float32 else np.longdouble
    rows = np.unique(np.linspace(0, len(a) - 1, 4).astype(int))
    x, y = a[rows].astype(wide), b.astype(wide)
    exact = np.einsum("ik,kj->ij", x, y, optimize=False)
    size = np.einsum("ik,kj->ij", abs(x), abs(y), optimize=False)
    bound = (a.shape[1] + 8) * (np.finfo(a.dtype).eps / 2) * size
    return float((abs(result[rows] - exact) / bound).max())


def tour() -> int:
    """The main job: what was found, then each shape and type against numpy in the same run, on one thread."""
    gemmkit.show_config()
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        print("numpy     on its own number of threads (install threadpoolctl to hold it to one)")
        limits = None
    else:
        limits = threadpool_limits(1)
    rng = np.random.default_rng(0)
    with gemmkit.threads(1):
        for dtype in ("float32", "float64"):
            peak = measure_peak(dtype)
            print(f"\n{dtype}, one thread; peak of this core {peak:.0f} GFLOP/s with {_registry.active_isa()}")
            print(f"{'M x N x K':>18} {'algorithm':>10} {'GFLOP/s':>8} {'of peak':>8} {'x numpy':>8} {'error/bound':>12}")
            for m, n, k in SHAPES:
                a = rng.standard_normal((m, k)).astype(dtype)
                b = rng.standard_normal((k, n)).astype(dtype)
                plan = gemmkit.GemmPlan(m, n, k, dtype)
                ours, numpys = alternate(lambda: gemmkit.matmul(a, b), lambda: np.matmul(a, b))
                rate = 2e-9 * m * n * k / ours
                error = worst_error(a, b, gemmkit.matmul(a, b))
                print(
                    f"{f'{m} x {n} x {k}':>18} {plan.algorithm:>10} {rate:8.1f} {rate / peak:8.0%} "
                    f"{numpys / ours:8.2f} {error:12.3f}",
                    flush=True,
                )
                if not error <= 1:
                    print("gemmkit: a result is outside its error bound", file=sys.stderr)
                    return 1
    if limits is not None:
        limits.restore_original_limits()
    return 0


def explain(args: argparse.Namespace) -> int:
    """Print a plan, the blocks, and why each other algorithm and each faster row was not taken."""
    m, n, k = args.M, args.N, args.K
    if args.batch is None:
        plan = gemmkit.GemmPlan(m, n, k, args.dtype, trans_a=args.trans_a, trans_b=args.trans_b)
    else:
        plan = gemmkit.StridedBatchedGemm(
            args.batch, m, n, k, args.dtype, trans_a=args.trans_a, trans_b=args.trans_b
        )
    print(plan)
    print(f"\nalgorithm  {plan.algorithm}: {ALGORITHMS[plan.algorithm]}")
    for name in _schedule.CODES:
        if name in ("auto", plan.algorithm):
            continue
        why = plan.refusal(name)
        print(f"  not {name:9} {why if why else 'possible, but not chosen for this shape and layout: ' + ALGORITHMS[name]}")
    print(f"\nblocks     MC {plan.mc}, NC {plan.nc}, KC {plan.kc}, NB {plan.nb}"
          + (f", K in {plan.splits} parts" if plan.splits > 1 else ""))
    cpu = _registry.cpu_info()
    print("           from " + ", ".join(f"{c.upper()} {cpu[c]['size'] >> 10} KiB" for c in ("l1d", "l2", "l3")))
    print(f"packs      {' and '.join(plan.packs) or 'nothing: operands are read in place'}; "
          f"workspace {plan.workspace_bytes:,} bytes")
    print(f"threads    {plan.num_threads}")
    role = plan.kernel.split("_")[1]
    print(f"\nrows of the table for {role}, {args.dtype}, best first:")
    for name, why in _registry.why_refused(role, args.dtype, n):
        print(f"  {name:40} {'chosen' if why is None else why}")
    return 0


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
    one.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    one.add_argument("--trans-a", action="store_true")
    one.add_argument("--trans-b", action="store_true")
    one.add_argument("--batch", type=int)
    args = parser.parse_args(argv)
    try:
        return explain(args) if args.command == "explain" else tour()
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
