"""What gemmkit found and what it uses: instruction sets, threads, caches; and how to force them."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from gemmkit._kernels import _parallel, _registry


@contextmanager
def isa(name: str | None) -> Iterator[None]:
    """Use one instruction set inside a ``with`` block, for the whole process.

    Parameters
    ----------
    name : str or None
        "scalar", "sse2", "avx", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512vbmi", "avx512bf16",
        "avx512fp16", "amxint8" or "amxbf16"; None for what is used by default: all sets that are worth it on this processor.  Kernels of that set are used, and weaker ones only for what it lacks.
        Plans keep the kernels that they were made with.

    Raises
    ------
    ValueError
        The name is unknown, or this build or processor lacks the set.
    """
    before = _registry.settings()
    _registry.set_isa(name)
    try:
        yield
    finally:
        _registry.restore(before)


@contextmanager
def threads(n: int | None) -> Iterator[None]:
    """Let calls use up to `n` threads inside a ``with`` block, for the whole process; see `set_num_threads`."""
    before = _parallel.get_requested()
    _parallel.set_num_threads(n)
    try:
        yield
    finally:
        _parallel.restore_requested(before)


def config() -> dict[str, Any]:
    """Return what `show_config` prints, as a dict."""
    from gemmkit import __version__

    return {
        "version": __version__,
        "cpu": _registry.cpu_info(),
        "isa": {
            "compiled": _registry.compiled_isas(),
            "detected": _registry.detected_isas(),
            "in use": _registry.active_isa(),
            "slow": _registry.cpu_info()["slow"],
        },
        "threads": {
            "in use": _parallel.get_num_threads(),
            "requested": _parallel.get_requested() or None,
        },
        "workspace kept": _parallel.workspace_kept(),
        "compiler": _registry.compiler(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def show_config(file: TextIO | None = None) -> None:
    """Print the processor, its caches, instruction sets (compiled, detected, in use), compiler and threads.

    Parameters
    ----------
    file : text file, optional
        Standard output by default.
    """
    c = config()
    cpu = c["cpu"]
    caches = ", ".join(
        f"{name.upper()} {cpu[name]['size'] >> 10:,} KiB {cpu[name]['ways']}-way"
        for name in ("l1d", "l2", "l3")
        if cpu[name]["size"]
    )
    lines = [
        f"gemmkit   {c['version']}, Python {c['python']}, {c['machine']}",
        f"cpu       {cpu['brand'] or cpu['vendor']} (family {cpu['family']}, model {cpu['model']})",
        f"caches    {caches}{'' if cpu['caches_known'] else ' (guessed)'}",
        f"isa       in use {c['isa']['in use']}; compiled {' '.join(c['isa']['compiled'])}; "
        f"detected {' '.join(c['isa']['detected'])}"
        + (f"; slow here, unless forced {' '.join(c['isa']['slow'])}" if c["isa"]["slow"] else ""),
        f"threads   {c['threads']['in use']}"
        + (" (set)" if c["threads"]["requested"] else ""),
        f"compiler  {c['compiler']}",
        f"workspace {c['workspace kept']:,} bytes kept for the next call",
    ]
    print("\n".join(lines), file=file or sys.stdout)


def measure_peak(dtype: str) -> float:
    """Measure this core's peak of multiply-adds for a dtype's name with the sets in use, in GFLOP/s.

    A loop of independent multiply-adds in registers: no memory, so no product can be faster.  A narrow type has the peak of
    the type that its panels are made of: float32, or bfloat16 where its dot instruction is used; int8 that of quads of bytes.
    """
    return float(_registry.measure_peak(dtype))
