"""Time gemmkit beside numpy, onnxruntime and torch, fairly.

    python benchmarks/compare.py --quick
    python benchmarks/compare.py --quick --dtypes bfloat16,float8_e5m2
    python benchmarks/compare.py --quick --dtypes ints,int4
    python benchmarks/compare.py --quick --dtypes attention
    python benchmarks/compare.py --threads 1,2 --json results.json --markdown

Each library has a process of its own, since thread pools and allocators of two
BLAS libraries in one process get in each other's way.  The processes take
turns on the same CPUs, a short burst each, so that a slow spell of the machine
meets all of them; medians then drop it.  README.md has the details.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if not __package__:
    # As in worker.py: the package, without the source tree in front.
    _ROOT = str(Path(__file__).resolve().parent.parent)
    sys.path.insert(0, _ROOT)
    import benchmarks  # noqa: F401

    sys.path.remove(_ROOT)

from benchmarks import report
from benchmarks.attention_corpus import ALL_NAMES, ATTENTION, GROUPS, read_bytes, select as select_cases
from benchmarks.corpus import DTYPES, WIDE, Case

BACKEND_NAMES = ("gemmkit", "numpy", "numpy-f32", "onnxruntime", "torch")
_BESIDE_INT4 = "gemmkit-int8"  # measured for int4 only
_ATTENTION_TYPES = {"numpy": WIDE, "numpy-f32": ()}  # through float32 is never the fastest: by request
# Settings of a user's shell that would hold a peer back, or place its threads.
_UNSET = (
    "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_VERBOSE",
    "OPENBLAS_THREAD_TIMEOUT", "GOTO_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES",
    "OMP_DYNAMIC", "OMP_WAIT_POLICY", "OMP_SCHEDULE", "OMP_THREAD_LIMIT",
    "GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT", "KMP_AFFINITY", "KMP_BLOCKTIME",
    "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "MKL_DYNAMIC", "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "NPY_DISABLE_CPU_FEATURES",
)
_THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GEMMKIT_NUM_THREADS"
)
_ANSWER_LIMIT = 600.0  # seconds after which a silent child is given up


def child_environment(threads: int) -> dict[str, str]:
    """This process's variables, less those in a peer's way, and a number of threads."""
    environment = {k: v for k, v in os.environ.items() if k not in _UNSET}
    return environment | {key: str(threads) for key in _THREADS}


class WorkerError(RuntimeError):
    """A child process ended or fell silent."""


class Worker:
    """The parent's end of one child process."""

    def __init__(self, name: str, threads: int, cpus: list[int]) -> None:
        self.name, self._threads, self._cpus = name, threads, cpus
        self.unavailable = ""
        self._start()

    def _start(self) -> None:
        script = str(Path(__file__).resolve().with_name("worker.py"))
        cpus = ",".join(map(str, self._cpus))
        self._process = subprocess.Popen(
            [sys.executable, script, self.name, str(self._threads), cpus],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=child_environment(self._threads),
            text=True, encoding="utf-8",
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        try:
            self.unavailable = self._read().get("unavailable", "")
        except WorkerError as error:
            self.unavailable = str(error)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _ANSWER_LIMIT)[0]:
            self._process.kill()
            raise WorkerError(f"no answer in {_ANSWER_LIMIT:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"process ended with status {self._process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def ask(self, cmd: str, **values: Any) -> dict[str, Any]:
        """One request and its answer; the parent sleeps in the read."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"cmd": cmd, **values}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerError(f"process is gone: {error}") from error
        return self._read()

    def restart(self) -> None:
        """Replace a child that a case has killed."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the child by closing its pipe, or else by force."""
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:
                pass
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _ask(worker: Worker, entry: dict[str, Any], cmd: str, **values: Any) -> bool:
    """Merge an answer into a backend's entry; False where it has no times."""
    try:
        reply = worker.ask(cmd, **values)
    except WorkerError as error:
        reply = {"failed": str(error)}
        worker.restart()
    if "failed" in reply:
        entry.pop("samples", None)  # half a series is no measurement
    if "seconds" in reply:
        entry["samples"].append(reply.pop("seconds"))
    entry.update(reply)
    return "failed" not in entry and "skipped" not in entry


def measure(
    workers: list[Worker], case: Case, dtype: str, options: argparse.Namespace
) -> dict[str, Any]:
    """All rounds of one case, backends taking turns in rotated order."""
    pause = options.settle_ms / 1e3
    entries: dict[str, dict[str, Any]] = {}
    able: list[Worker] = []
    row = {"case": case.name, "family": case.family, "op": case.op, "dtype": dtype,
           "flops": case.flops, "read_bytes": read_bytes(case, dtype), "read": {},
           "backends": entries}
    for worker in workers:
        entry = entries[worker.name] = {"samples": []}
        if _ask(worker, entry, "prepare", case=case.name, dtype=dtype,
                target=options.burst_ms / 1e3):
            able.append(worker)
    for turn in range(options.rounds):
        start = turn % len(able) if able else 0
        for worker in able[start:] + able[:start]:
            time.sleep(pause)
            if not _ask(worker, entries[worker.name], "burst"):
                able = [other for other in able if other is not worker]
        _read(workers, row)
    return row


def _read(workers: list[Worker], row: dict[str, Any]) -> None:
    """Add to a row how fast memory is now, in turn with the bursts, if it has a use."""
    if not row["read_bytes"]:
        return
    reader = next((w for w in workers if w.name == report.SUBJECT), workers[0])
    try:
        reply = reader.ask("read", bytes=row["read_bytes"])
    except WorkerError:  # its case failed as well, and that is reported
        return
    for key, value in reply.items():
        row["read"].setdefault(key, []).append(value)


def _physical_first(usable: set[int]) -> list[int]:
    """Usable CPUs, one of each core before any core's second hardware thread."""
    first: list[int] = []
    second: list[int] = []
    seen: set[str] = set()
    for cpu in sorted(usable):
        topology = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            core = Path(topology).read_text(encoding="ascii").strip()
        except OSError:
            core = str(cpu)
        (second if core in seen else first).append(cpu)
        seen.add(core)
    return first + second


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    for line in text.splitlines():
        if line.lower().startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _environment(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "cpu": _cpu_model(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rounds": options.rounds,
        "burst_ms": options.burst_ms,
        "settle_ms": options.settle_ms,
        "pools": {},
    }


def _open_pool(
    options: argparse.Namespace, threads: int, cpus: list[int], pool: dict[str, Any]
) -> list[Worker]:
    """Start the children of one thread count and note what they are."""
    workers = []
    for name in options.backends:
        worker = Worker(name, threads, cpus)
        told: dict[str, Any] = {"unavailable": worker.unavailable}
        if not worker.unavailable:
            try:
                reply = worker.ask("hello")
                told = reply.get("info", {"unavailable": reply.get("failed", "")})
                if name == report.SUBJECT and options.peak:
                    pool["peak"] = {
                        dtype: worker.ask("peak", dtype=dtype).get("gflops")
                        for dtype in options.dtypes
                    }
            except WorkerError as error:
                told = {"unavailable": str(error)}
        pool["backends"][name] = told
        if "unavailable" in told:
            worker.close()
            print(f"{name} is not measured: {told['unavailable']}", file=sys.stderr)
            continue
        workers.append(worker)
    return workers


def run(
    options: argparse.Namespace, cases: list[Case], environment: dict[str, Any],
    rows: list[dict[str, Any]],
) -> None:
    """Measure everything, appending to ``rows`` so that a stop loses nothing."""
    usable = set(options.cpus or os.sched_getaffinity(0))
    order = _physical_first(usable)
    total = len(options.threads) * sum(
        dtype in case.dtypes for dtype in options.dtypes for case in cases
    )
    for threads in options.threads:
        if threads > len(order):
            print(f"{threads} threads left out: {len(order)} CPUs", file=sys.stderr)
            continue
        cpus = sorted(order[:threads])
        pool: dict[str, Any] = {"cpus": cpus, "backends": {}}
        environment["pools"][str(threads)] = pool
        workers = _open_pool(options, threads, cpus, pool)
        try:
            for dtype in options.dtypes:
                for case in cases:
                    if dtype not in case.dtypes or not workers:
                        continue
                    row = measure(workers, case, dtype, options)
                    row["threads"] = threads
                    peak = pool.get("peak", {}).get(dtype)
                    row["peak_gflops"] = peak * threads if peak else None
                    report.summarise_row(row)
                    rows.append(row)
                    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
                    print(f"[{len(rows)}/{total}] {threads} thr {dtype} {case.name} "
                          f"{ratio}", file=sys.stderr, flush=True)
        finally:
            for worker in workers:
                worker.close()


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _dtypes(text: str) -> list[str]:
    """Names of types and modes, with groups spelt out and none twice."""
    names = [name for part in _list(text) for name in GROUPS.get(part, (part,))]
    return list(dict.fromkeys(names))


def _numbers(text: str) -> list[int]:
    return [int(part) for part in _list(text)]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Command line; --quick only changes what was not given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--threads", type=_numbers, help="thread counts (default 1,2; quick: 1)")
    add("--dtypes", type=_dtypes, default=list(DTYPES),
        help=f"any of {', '.join(ALL_NAMES)}, or groups of these: "
             f"{', '.join(GROUPS)} (default {','.join(DTYPES)})")
    add("--cases", type=_list, default=[], metavar="PATTERN[,PATTERN]",
        help="shell patterns of case names or families")
    add("--rounds", type=int, help="default 7; quick: 5")
    add("--burst-ms", type=float, help="aimed length of a burst (30; quick: 10)")
    add("--settle-ms", type=float, help="pause before a burst (15; quick: 5)")
    add("--quick", action="store_true", help="priority cases, few short rounds")
    add("--backends", type=_list,
        help=f"default {','.join(BACKEND_NAMES)}; for int4 {_BESIDE_INT4} too; "
             "for attention alone without numpy-f32")
    add("--cpus", type=_numbers, default=[], help="CPUs to use (default: usable)")
    add("--peak", action="store_true", help="percent of the measured FMA peak")
    add("--markdown", action="store_true", help="print a markdown table")
    add("--json", metavar="FILE", help="write samples and environment to FILE")
    add("--list", action="store_true", help="print the cases and stop")
    options = parser.parse_args(arguments)
    quick = options.quick
    for name, short, full in (
        ("threads", [1], [1, 2]), ("rounds", 5, 7),
        ("burst_ms", 10.0, 30.0), ("settle_ms", 5.0, 15.0),
    ):
        if getattr(options, name) is None:
            setattr(options, name, short if quick else full)
    backends = [*BACKEND_NAMES, _BESIDE_INT4]
    if options.backends is None:
        options.backends = backends if "int4" in options.dtypes else backends[:-1]
        if all(name in ATTENTION for name in options.dtypes):
            kinds = {ATTENTION[name] for name in options.dtypes}
            options.backends = [
                name for name in BACKEND_NAMES if kinds.intersection(_ATTENTION_TYPES.get(name, kinds))
            ]
    for kind, given, known in (("dtype", options.dtypes, ALL_NAMES),
                               ("backend", options.backends, backends)):
        for value in given:
            if value not in known:
                parser.error(f"unknown {kind} {value!r}; known: {', '.join(known)}")
    if options.rounds < 1 or any(count < 1 for count in options.threads):
        parser.error("rounds and threads must be at least 1")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Exit status 1 where a result was wrong or a backend failed on a case."""
    options = parse(arguments)
    cases = select_cases(
        options.cases, priority_only=options.quick, dtypes=options.dtypes
    )
    if not cases:
        print("no case matches", file=sys.stderr)
        return 2
    if options.list:
        for case in cases:
            print(f"{case.family:12} {case.op:16} {case.name}")
        return 0
    environment = _environment(options)
    rows: list[dict[str, Any]] = []
    try:
        run(options, cases, environment, rows)
    except KeyboardInterrupt:
        print("stopped; reporting what was measured", file=sys.stderr)
        environment["stopped"] = True
    if options.json:
        # Before printing: a closed pipe must not cost the samples.
        Path(options.json).write_text(json.dumps({
            "schema": 1, "environment": environment, "results": rows,
            "summary": report.summaries(rows),
        }, indent=1) + "\n", encoding="utf-8")
    print(report.header_text(environment, markdown=options.markdown), end="\n\n")
    if rows:
        print(report.table(rows, options.backends, markdown=options.markdown))
        print()
        print(report.summary_text(rows, markdown=options.markdown))
    bad = any(summary["wrong"] or summary["failed"]
              for summary in report.summaries(rows))
    return 1 if bad or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
