"""Medians, spreads, ratios, and the tables made of them.

Kept apart from the measuring so that a saved JSON file holds only raw samples
and plain facts; everything printed is computed from those here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median, quantiles
from typing import Any

from benchmarks.attention_corpus import ATTENTION
from benchmarks.corpus import ALL_DTYPES

SUBJECT = "gemmkit"
Row = dict[str, Any]
_FLOATS = (*ALL_DTYPES, *ATTENTION)


def spread(samples: Sequence[float]) -> float:
    """Interquartile range over the median; 0 where there is one sample."""
    if len(samples) < 2:
        return 0.0
    low, _, high = quantiles(samples, n=4, method="inclusive")
    middle = median(samples)
    return (high - low) / middle if middle else 0.0


def summarise_row(row: Row) -> None:
    """Add medians, the best peer and the ratio to a row of raw samples.

    A backend whose result was wrong has no time worth comparing with, so it
    neither wins nor has a ratio; it is shown as wrong instead.

    Where reading is the cost there is gemmkit's rate of it too, and what fraction that
    is of the reads measured between the bursts: of as many bytes, of memory.
    """
    usable: dict[str, float] = {}
    for name, entry in row["backends"].items():
        if entry.get("samples"):
            entry["median"] = median(entry["samples"])
            entry["spread"] = spread(entry["samples"])
            if entry["verified"]:
                usable[name] = entry["median"]
    mine = usable.pop(SUBJECT, None)
    row["best_peer"] = min(usable, key=lambda name: usable[name]) if usable else None
    row["ratio"] = row["gflops"] = row["peak_fraction"] = None
    row["gbytes"] = row["same_fraction"] = row["memory_fraction"] = None
    if mine:
        row["gflops"] = row["flops"] / mine / 1e9
        if row["best_peer"]:
            row["ratio"] = usable[row["best_peer"]] / mine
        if row.get("peak_gflops"):
            row["peak_fraction"] = row["gflops"] / row["peak_gflops"]
        if row["read_bytes"]:
            row["gbytes"] = row["read_bytes"] / mine / 1e9
            for kind in ("same", "memory"):
                if row["read"].get(kind):
                    row[f"{kind}_fraction"] = row["gbytes"] * 1e9 / median(row["read"][kind])


def _clearly_slower(row: Row) -> bool:
    """Whether a ratio is below 1 by more than the spread of either time."""
    entries = row["backends"]
    noise = max(entries[name]["spread"] for name in (SUBJECT, row["best_peer"]))
    return bool(row["ratio"] * (1 + noise) < 1.0)


def summaries(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """One summary for each number of threads and dtype."""
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["threads"], row["dtype"]), []).append(row)
    result = []
    for (threads, dtype), members in groups.items():
        rated = [row for row in members if row["ratio"] is not None]
        wrong = sorted(
            f"{row['case']} ({name})"
            for row in members
            for name, entry in row["backends"].items()
            if entry.get("verified") is False
        )
        reused = sorted({
            name
            for row in members
            for name, entry in row["backends"].items()
            if entry.get("fresh_output") is False
        })
        failed = sorted(
            f"{row['case']} ({name}: {entry['failed']})"
            for row in members
            for name, entry in row["backends"].items()
            if "failed" in entry
        )
        summary: dict[str, Any] = {
            "threads": threads, "dtype": dtype, "cases": len(members),
            "rated": len(rated), "wrong": wrong, "failed": failed,
            "output_reused": reused, "stand_ins": _stand_ins(members),
            "memory_read": _memory_read(members),
        }
        if rated:
            ranked = sorted(rated, key=lambda row: row["ratio"])
            summary |= {
                "min_ratio": ranked[0]["ratio"],
                "min_case": ranked[0]["case"],
                "median_ratio": median(row["ratio"] for row in ranked),
                "below_one": sum(row["ratio"] < 1.0 for row in ranked),
                "clearly_below_one": sum(map(_clearly_slower, ranked)),
                "lowest": [(row["case"], row["ratio"]) for row in ranked[:5]],
            }
        result.append(summary)
    return result


def _stand_in(entry: Row) -> str:
    """What a backend was given for what it hasn't got."""
    return str(entry.get("described", {}).get("stand_in", ""))


def _stand_ins(members: Sequence[Row]) -> list[str]:
    return sorted({
        f"{name}: {part}"
        for row in members
        for name, entry in row["backends"].items()
        for part in _stand_in(entry).split("; ") if part
    })


def _memory_read(members: Sequence[Row]) -> str:
    """The rate of reading memory over all rounds of all cases, and how it was read."""
    reads = [row["read"] for row in members if row["read"].get("memory")]
    if not reads:
        return ""
    rates = [rate for read in reads for rate in read["memory"]]
    return (f"{median(rates) / 1e9:.1f} GB/s ±{spread(rates) * 100:.0f}% "
            f"({reads[0]['memory_how'][0]}, {reads[0]['memory_bytes'][0] >> 20} MiB)")


def _time(seconds: float) -> str:
    """Microseconds to three significant digits."""
    value = seconds * 1e6
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _cell(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "-"
    if "failed" in entry:
        return "FAILED"
    if "skipped" in entry:
        return "n/a"
    if "median" not in entry:
        return "-"
    if not entry["verified"]:
        return "WRONG"
    mark = " *" if _stand_in(entry) else ""
    return f"{_time(entry['median'])} ±{entry['spread'] * 100:.0f}%{mark}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.0f}"


def table(rows: Sequence[Row], names: Sequence[str], *, markdown: bool) -> str:
    """All rows as a table: times in microseconds, spread beside them."""
    floats = all(row["dtype"] in _FLOATS for row in rows)
    with_read = any(row["gbytes"] is not None for row in rows)
    with_peak = any(row["peak_fraction"] is not None for row in rows)
    head = ["case", "dtype", "thr", *(f"{name} µs" for name in names),
            "best peer", "ratio", "GFLOP/s" if floats else "Gop/s"]
    if with_peak:
        head.append("% peak")
    if with_read:
        head += ["GB/s", "% same read", "% memory"]
    body = []
    for row in rows:
        cells = [row["case"], row["dtype"], str(row["threads"])]
        cells += [_cell(row["backends"].get(name)) for name in names]
        cells.append(row["best_peer"] or "-")
        cells.append("-" if row["ratio"] is None else f"{row['ratio']:.2f}")
        cells.append("-" if row["gflops"] is None else f"{row['gflops']:.3g}")
        if with_peak:
            cells.append(_percent(row["peak_fraction"]))
        if with_read:
            cells.append("-" if row["gbytes"] is None else f"{row['gbytes']:.3g}")
            cells += [_percent(row["same_fraction"]), _percent(row["memory_fraction"])]
        body.append(cells)
    texts = 3  # the first columns hold text, the others numbers
    widths = [max(map(len, column)) for column in zip(head, *body)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if index < texts else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths))
        ]
        if markdown:
            return "| " + " | ".join(padded) + " |"
        return "  ".join(padded).rstrip()

    rule = [
        "-" * width if index < texts else "-" * (width - 1) + ":"
        for index, width in enumerate(widths)
    ]
    lines = [line(head), line(rule if markdown else ["-" * w for w in widths])]
    return "\n".join(lines + [line(cells) for cells in body])


def summary_text(rows: Sequence[Row], *, markdown: bool) -> str:
    """The summaries as lines, with the lowest ratios named."""
    lines = []
    bullet = "- " if markdown else ""
    for summary in summaries(rows):
        threads, dtype = summary["threads"], summary["dtype"]
        head = f"{bullet}{dtype}, {threads} thread{'s' if threads != 1 else ''}: "
        head += f"{summary['cases']} cases"
        if "min_ratio" in summary:
            head += (
                f", min ratio {summary['min_ratio']:.2f} ({summary['min_case']})"
                f", median ratio {summary['median_ratio']:.2f}"
                f", {summary['below_one']} of {summary['rated']} below 1"
                f" ({summary['clearly_below_one']} by more than the spread)"
            )
        else:
            head += ", no ratio (gemmkit or every peer is missing)"
        lines.append(head)
        lowest = summary.get("lowest", [])
        if len(lowest) > 1:
            named = ", ".join(f"{name} {ratio:.2f}" for name, ratio in lowest)
            lines.append(f"  {bullet}lowest: {named}")
        for kind in ("wrong", "failed"):
            if summary[kind]:
                lines.append(f"  {bullet}{kind.upper()}: {'; '.join(summary[kind])}")
        if summary["memory_read"]:
            lines.append(f"  {bullet}memory is read at {summary['memory_read']}")
        if summary["stand_ins"]:
            lines.append(f"  {bullet}* given instead: {'; '.join(summary['stand_ins'])}")
        if summary["output_reused"]:
            names = ", ".join(summary["output_reused"])
            lines.append(f"  {bullet}output memory shared between calls: {names}")
    return "\n".join(lines)


def header_text(environment: dict[str, Any], *, markdown: bool) -> str:
    """What ran where; a backend that is missing is named with the reason."""
    bullet = "- " if markdown else ""
    lines = [
        f"{bullet}CPU: {environment['cpu']}, "
        f"{environment['usable_cpus']} usable, load {environment['load']:.2f} at start",
        f"{bullet}Python {environment['python']}, {environment['platform']}",
        f"{bullet}{environment['rounds']} alternating rounds, bursts of about "
        f"{environment['burst_ms']:g} ms",
    ]
    for threads, pool in environment["pools"].items():
        for name, told in pool["backends"].items():
            prefix = f"{bullet}{threads} thread(s) on CPU {pool['cpus']}: {name}"
            if "unavailable" in told:
                lines.append(f"{prefix} NOT MEASURED: {told['unavailable']}")
            else:
                lines.append(f"{prefix} {told['version']} ({told['kernel']})")
        for dtype, peak in pool.get("peak", {}).items():
            text = "skipped, gemmkit._config.measure_peak cannot tell"
            if peak is not None:
                unit = "GFLOP/s" if dtype in _FLOATS else "Gop/s"
                text = f"{peak:.1f} {unit} a core"
            lines.append(f"{bullet}peak {dtype}: {text}")
    return "\n".join(lines)
