"""How the tests of single micro-kernels lay operands out: layouts of each role, groups of KR, tile sizes, poisoned outputs.

Operands end or begin at a page that can't be touched, so reading one element too many ends the process (pytest's
faulthandler then names the test).  Gaps between elements hold NaN, and so does C.
"""
from itertools import cycle

import numpy as np
import pytest
from support import guarded, poisoned_output, row_params

from gemmkit._kernels import _registry


def odd(length):
    return (length + 2) | 1


# Strides in elements of a row x column operand; `panel` is the width of a micro-panel.
A_LAYOUTS = {
    "packed": lambda m, k, panel: (1, panel),
    "rows": lambda m, k, panel: (odd(k), 1),
    "columns": lambda m, k, panel: (1, odd(m)),
    "neither": lambda m, k, panel: (2, 2 * odd(m)),
    "rows reversed": lambda m, k, panel: (-odd(k), 1),
    "k reversed": lambda m, k, panel: (1, -odd(m)),
    "one row": lambda m, k, panel: (0, 1),
    "one column": lambda m, k, panel: (1, 0),
    "one number": lambda m, k, panel: (0, 0),
}
B_LAYOUTS = {
    "packed": lambda k, n, panel: (panel, 1),
    "rows": lambda k, n, panel: (odd(n), 1),
    "rows reversed": lambda k, n, panel: (-odd(n), 1),
    "one row": lambda k, n, panel: (0, 1),
    "overlapping rows": lambda k, n, panel: (1, 1),
}
DOT_A_LAYOUTS = {name: A_LAYOUTS[name] for name in ("rows", "rows reversed", "one row")}
DOT_B_LAYOUTS = {
    "columns": lambda k, n, panel: (1, odd(k)),
    "columns reversed": lambda k, n, panel: (1, -odd(k)),
    "one column": lambda k, n, panel: (1, 0),
    "overlapping columns": lambda k, n, panel: (1, 1),
}


def layout_pairs(role):
    """Layouts of A and B so that each occurs at least once, as (a, b) pairs of names."""
    a, b = (DOT_A_LAYOUTS, DOT_B_LAYOUTS) if role == "dot" else (A_LAYOUTS, B_LAYOUTS)
    return list(zip(a, cycle(b)) if len(a) >= len(b) else zip(cycle(a), b))


def plain_pairs(role):
    """Layouts without overlap: packed micro-panels (a stream row reads B in place always), and the caller's arrays."""
    if role == "dot":
        return [("rows", "columns")]
    return [("packed", "rows" if role == "stream" else "packed"), ("rows", "rows"), ("columns", "rows")]


def by_role(pairs):
    """Layouts of a role as those of a row."""
    return lambda row: pairs(row["role"])


def rows_with(pairs_of, params=None):
    """Parameters (row, layout of A, layout of B) for every row of float sums, or for other rows of the table."""
    return [pytest.param(p.values[0], *pair, id=f"{p.id}-{' + '.join(pair)}", marks=p.marks)
            for p in (row_params() if params is None else params) for pair in pairs_of(p.values[0])]


def grouped_a(values, kr):
    """(m, k) as a row of this KR takes it: (m, k / KR, KR), zeros after the last group; for KR 1 as it is."""
    if kr == 1:
        return values
    m, k = values.shape
    whole = np.zeros((m, -(-k // kr) * kr), values.dtype)
    whole[:, :k] = values
    return whole.reshape(m, -1, kr)


def grouped_b(values, kr):
    """(k, n) as (k / KR, n, KR)."""
    return values if kr == 1 else grouped_a(values.T, kr).transpose(1, 0, 2)


def flat_a(a):
    """What `grouped_a` was made of, zeros included."""
    return a if a.ndim == 2 else a.reshape(len(a), -1)


def flat_b(b):
    return b if b.ndim == 2 else b.transpose(0, 2, 1).reshape(-1, b.shape[1])


def place(grouped, steps, edge="end"):
    """An operand in guarded memory; `steps` count elements, or groups of KR of them."""
    item, group = grouped.itemsize, grouped.shape[2:]
    unit = item * int(np.prod(group))
    return guarded(grouped, (*(s * unit for s in steps), *(item for _ in group)), edge)


def place_a(row, layout, values, edge="end"):
    grouped = grouped_a(values, row["kr"])
    return place(grouped, A_LAYOUTS[layout](*grouped.shape[:2], row["mr"]), edge)


def place_b(row, layout, values, edge="end"):
    grouped = grouped_b(values, row["kr"])
    return place(grouped, (DOT_B_LAYOUTS if row["role"] == "dot" else B_LAYOUTS)[layout](*grouped.shape[:2], row["nr"]), edge)


def widths(row):
    """Every number of columns that a tile may have."""
    return [*range(1, 4 * row["vl"] + 2), 100, 259] if row["role"] == "stream" else range(1, row["nr"] + 1)


def edge_tiles(row):
    """Tile sizes next to every boundary that a kernel has: its rows, its vectors, its columns."""
    vl, nr = row["vl"], 4 * row["vl"] if row["role"] == "stream" else row["nr"]
    heights = {1, 2, row["mr"] - 1, row["mr"]}
    columns = {1, vl - 1, vl, vl + 1, nr - vl + 1, nr - 1, nr} & set(widths(row))
    return [(m, n) for m in sorted(heights) for n in sorted(columns)]


def add_cases(values, edge="end"):
    """Where a sum may start: nothing, C itself, another matrix, and one row or one number repeated, all m x n."""
    item = values.itemsize
    ld = odd(values.shape[1]) * item
    yield "nothing", None
    yield "c", values
    yield "matrix", guarded(values, (ld, item), edge)
    yield "matrix reversed", guarded(values, (-ld, item), edge)
    yield "row", guarded(values, (0, item), edge)


def run(row, a, b, add=None, add_is_c=False, edge="end", margin=3):
    """c = add + a @ b into a poisoned output; returns C after checking that nothing around it changed."""
    out = poisoned_output(a.shape[0], b.shape[1], row["acc"], margin, edge)
    if add_is_c:
        out.c[...] = add
    _registry.run_row(row["index"], a, b, out.c, out.c if add_is_c else add)
    out.check_margin()
    return out.c
