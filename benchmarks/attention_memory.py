"""How much memory an attention takes beside its inputs and its output.

    python benchmarks/attention_memory.py
    python benchmarks/attention_memory.py --dtypes attention-bf16 --cases '*-2048'

Each case of each backend has a process of its own: an allocator keeps what it was once
given, so a second measurement in one process would find less than the first.  The child
makes its inputs, runs a small attention (which loads kernels and starts threads), asks
the kernel to forget the process's peak of resident memory, and calls once.  What the
peak then has above the memory before the call, less the output, is reported: workspace,
scores, converted copies.  Linux only.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

if not __package__:
    # As in worker.py: the package, without the source tree in front.
    _ROOT = str(Path(__file__).resolve().parent.parent)
    sys.path.insert(0, _ROOT)
    import benchmarks  # noqa: F401

    sys.path.remove(_ROOT)
    sys.path.append(_ROOT)

from benchmarks.attention_corpus import ATTENTION, MEMORY_CASES, AttentionCase
from benchmarks.compare import child_environment

BACKEND_NAMES = ("gemmkit", "onnxruntime", "torch")
_LIMIT = 300.0  # seconds of one child
_WARM = 64  # queries and keys of the call that comes first
_CHILD = "--child"


def _status(field: str) -> int:
    """Bytes of a line of /proc/self/status."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise OSError(f"/proc/self/status has no {field}")


def _small(case: AttentionCase) -> AttentionCase:
    """The same attention with few queries and keys."""
    return replace(
        case, m=_WARM, n=_WARM, a_shape=(1, case.heads, _WARM, case.k), b_shape=(1, case.kv_heads, _WARM, case.k),
        window=min(case.window, _WARM // 2),
    )


def _child(backend_name: str, case_name: str, dtype: str, threads: int) -> dict[str, Any]:
    """Measure in this process, which does nothing else."""
    from benchmarks.attention_backends import BACKENDS
    from benchmarks.attention_verify import AttentionArrays, error_fraction, make_arrays

    case = MEMORY_CASES[case_name]
    backend = BACKENDS[backend_name](threads)
    small = _small(case)
    call, reason = backend.prepare(small, dtype, make_arrays(small, dtype))
    if call is None:
        return {"skipped": reason}
    call()
    arrays = make_arrays(case, dtype)
    assert isinstance(arrays, AttentionArrays)
    call, reason = backend.prepare(case, dtype, arrays)
    if call is None:  # too large, though the small one was not
        return {"skipped": reason}
    gc.collect()
    try:  # what was freed and is still resident would hide what the call takes
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:  # not glibc
        pass
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _status("VmRSS")
    result = call()
    peak = _status("VmHWM")
    results = backend.to_numpy(result)
    beside = peak - before - sum(array.nbytes for array in results)
    fraction = error_fraction(case, arrays, results, strict=backend.strict)
    inputs = sum(array.nbytes for array in (*arrays.a, *arrays.b, arrays.v))
    return {"bytes": max(0, beside), "inputs": inputs, "verified": fraction <= 1.0,
            "described": backend.describe(case, dtype)}


def measure(backend: str, case: str, dtype: str, threads: int = 1) -> dict[str, Any]:
    """``bytes`` beside inputs and output, or ``skipped`` or ``failed`` with the reason."""
    command = [sys.executable, str(Path(__file__).resolve()), _CHILD, backend, case, dtype, str(threads)]
    try:
        done = subprocess.run(
            command, env=child_environment(threads), capture_output=True, text=True, timeout=_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer in {_LIMIT:g} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"process ended with status {done.returncode}"]
        return {"failed": lines[-1]}
    reply: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return reply


def _cell(entry: dict[str, Any]) -> str:
    for word, text in (("failed", "FAILED"), ("skipped", "n/a")):
        if word in entry:
            return text
    if not entry["verified"]:
        return "WRONG"
    mark = " *" if "stand_in" in entry["described"] else ""
    return f"{entry['bytes'] / (1 << 20):.1f}{mark}"


def table(rows: list[dict[str, Any]], names: list[str], *, markdown: bool) -> str:
    head = ["case", "dtype", *(f"{name} MiB" for name in names), "Q, K, V MiB"]
    body = []
    for row in rows:
        sizes = [entry["inputs"] for entry in row["backends"].values() if "inputs" in entry]
        body.append([
            row["case"], row["dtype"], *(_cell(row["backends"][name]) for name in names),
            f"{sizes[0] / (1 << 20):.1f}" if sizes else "-",
        ])
    widths = [max(map(len, column)) for column in zip(head, *body)]
    rule = ["-" * width if index < 2 else "-" * (width - 1) + ":" for index, width in enumerate(widths)]
    lines = []
    for cells in [head, rule if markdown else ["-" * width for width in widths], *body]:
        padded = [
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths))
        ]
        lines.append("| " + " | ".join(padded) + " |" if markdown else "  ".join(padded).rstrip())
    return "\n".join(lines)


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def main(arguments: list[str]) -> int:
    """Exit status 1 where a result was wrong or a child failed."""
    if arguments[:1] == [_CHILD]:
        backend, case, dtype, threads = arguments[1:]
        out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # libraries print
        try:
            reply = _child(backend, case, dtype, int(threads))
        except ImportError as error:
            reply = {"skipped": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(reply) + "\n")
        out.flush()
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--dtypes", type=_list, default=["attention"], help=f"any of {', '.join(ATTENTION)} (default attention)")
    add("--cases", type=_list, default=["*"], metavar="PATTERN[,PATTERN]", help=f"of {', '.join(MEMORY_CASES)}")
    add("--backends", type=_list, default=list(BACKEND_NAMES), help=f"default {','.join(BACKEND_NAMES)}")
    add("--threads", type=int, default=1, help="default 1")
    add("--markdown", action="store_true", help="print a markdown table")
    add("--json", metavar="FILE", help="write everything to FILE")
    options = parser.parse_args(arguments)
    for kind, given, known in (("dtype", options.dtypes, tuple(ATTENTION)),
                               ("backend", options.backends, (*BACKEND_NAMES, "numpy", "numpy-f32"))):
        for value in given:
            if value not in known:
                parser.error(f"unknown {kind} {value!r}; known: {', '.join(known)}")
    names = [name for name in MEMORY_CASES if any(fnmatchcase(name, pattern) for pattern in options.cases)]
    if not names:
        parser.error("no case matches")
    rows = []
    for dtype in options.dtypes:
        for name in names:
            entries = {}
            for backend in options.backends:
                entry = entries[backend] = measure(backend, name, dtype, options.threads)
                if "bytes" not in entry:
                    print(f"{dtype} {name} {backend}: {entry}", file=sys.stderr, flush=True)
            rows.append({"case": name, "dtype": dtype, "threads": options.threads, "backends": entries})
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"Memory beside inputs and output, {options.threads} thread(s)\n")
    print(table(rows, options.backends, markdown=options.markdown))
    told = sorted({
        f"{backend}: {part}" for row in rows for backend, entry in row["backends"].items()
        for part in entry.get("described", {}).get("stand_in", "").split("; ") if part
    })
    if told:
        print(f"\n* given instead: {'; '.join(told)}")
    bad = any("failed" in entry or entry.get("verified") is False for row in rows for entry in row["backends"].values())
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
