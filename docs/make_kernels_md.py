"""Writes docs/kernels.md from the kernel table: ``python docs/make_kernels_md.py``."""

from pathlib import Path

from gemmkit._kernels import _registry


def table() -> str:
    lines = [
        "# The kernel table",
        "",
        "Made from `gemmkit/_isa/rows.inc.h` by `docs/make_kernels_md.py`. Best first within a role and types; selection",
        "takes the first row that the processor and a forced set allow, without sets that are slow on this processor unless",
        "forced, and the narrower of two GEMM rows that hold N.",
        "",
        "| row | instruction set | role | A x B -> sums | MR | NR | KR | vector |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{r['name']}` | {r['isa']} | {r['role']} | {r['a']} x {r['b']} -> {r['acc']} | {r['mr']} | "
        f"{'any' if r['role'] == 'stream' else r['nr']} | {r['kr']} | {r['vl']} |"
        for r in _registry.rows()
    ]
    for title, rows, left, right in (
        ("Packers", _registry.packers(), "from", "to"),
        ("Epilogues", _registry.epilogues(), "acc", "out"),
        ("Softmax rows, from scores to weights", _registry.softs(), "acc", "out"),
    ):
        lines += ["", f"## {title}", "", "| from | to | instruction sets, best first |", "| --- | --- | --- |"]
        found: dict[tuple[str, str], list[str]] = {}
        for r in rows:
            found.setdefault((r[left], r[right]), []).append(r["isa"])
        lines += [f"| {x} | {y} | {', '.join(sets)} |" for (x, y), sets in sorted(found.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("kernels.md").write_text(table())
