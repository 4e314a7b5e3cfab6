"""Writes docs/kernels.md from the kernel table: ``python docs/make_kernels_md.py``."""

from pathlib import Path

from gemmkit._kernels import _registry


def table() -> str:
    lines = [
        "# The kernel table",
        "",
        "Made from `gemmkit/_isa/rows.inc.h` by `docs/make_kernels_md.py`. Best first within a role and type; selection",
        "takes the first row that the processor and a forced set allow, and the narrower of two GEMM rows that hold N.",
        "",
        "| row | instruction set | role | type | MR | NR | vector |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{r['name']}` | {r['isa']} | {r['role']} | {r['acc']} | {r['mr']} | "
        f"{'any' if r['role'] == 'stream' else r['nr']} | {r['vl']} |"
        for r in _registry.rows()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("kernels.md").write_text(table())
