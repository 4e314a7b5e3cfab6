"""Every micro-kernel of the table, alone: all tile sizes, depths, layouts; it reads and writes what it must, no more.

Operands end or begin at a page that can't be touched, so reading one element too many ends the process (pytest's
faulthandler then names the test).  Gaps between elements hold NaN, and so does C.
"""
import os
import signal
import subprocess
import sys
from itertools import cycle

import numpy as np
import pytest
from support import (
    EDGES,
    check_close,
    guarded,
    integer_product,
    poisoned_output,
    random_values,
    row_params,
    same_bits,
    small_integers,
)

from gemmkit._kernels._registry import run_row

DEPTHS = (*range(10), 63, 64, 65, 255, 256, 257)
GRID_DEPTHS = (1, 4, 37)


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


def rows_with(pairs_of):
    """Parameters (row, layout of A, layout of B) for every row of the table."""
    return [pytest.param(p.values[0], *pair, id=f"{p.id}-{' + '.join(pair)}", marks=p.marks)
            for p in row_params() for pair in pairs_of(p.values[0]["role"])]


def place_a(row, layout, values, edge="end"):
    steps = A_LAYOUTS[layout](*values.shape, row["mr"])
    return guarded(values, tuple(s * values.itemsize for s in steps), edge)


def place_b(row, layout, values, edge="end"):
    steps = (DOT_B_LAYOUTS if row["role"] == "dot" else B_LAYOUTS)[layout](*values.shape, row["nr"])
    return guarded(values, tuple(s * values.itemsize for s in steps), edge)


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
    out = poisoned_output(a.shape[0], b.shape[1], a.dtype, margin, edge)
    if add_is_c:
        out.c[...] = add
    run_row(row["index"], a, b, out.c, out.c if add_is_c else add)
    out.check_margin()
    return out.c


@pytest.mark.parametrize("edge, offset", [("end", 24), ("start", -1)])
def test_the_guard_pages_are_there(edge, offset):
    """What the tests below rely on: one byte past either end can't be read."""
    program = (f"import ctypes, numpy, support; x = support.guarded(numpy.zeros(3), edge={edge!r}); print(x.sum(), flush=True);"
               f"ctypes.string_at(x.ctypes.data + {offset}, 1)")
    result = subprocess.run([sys.executable, "-c", program], cwd=os.path.dirname(__file__), capture_output=True, text=True)
    assert result.stdout == "0.0\n" and result.returncode in (-signal.SIGSEGV, -signal.SIGBUS), result.stderr


@pytest.mark.parametrize("row, a_layout, b_layout", rows_with(plain_pairs))
def test_every_tile_size(row, a_layout, b_layout):
    """All m x n the row allows, with small integers: the result is exact, so any wrong element shows."""
    rng = np.random.default_rng(row["index"])
    dtype, mr, most = row["acc"], row["mr"], max(widths(row))
    start = small_integers(rng, (mr, most), dtype)
    for k in GRID_DEPTHS:
        a, b = small_integers(rng, (mr, k), dtype), small_integers(rng, (k, most), dtype)
        expected = integer_product(a, b)
        tall = [place_a(row, a_layout, a[:m]) for m in range(1, mr + 1)]
        for n in widths(row):
            wide = place_b(row, b_layout, b[:, :n])
            for part in tall:
                m = len(part)
                exact = expected[:m, :n]
                assert np.array_equal(run(row, part, wide), exact), (m, n, k)
                assert np.array_equal(run(row, part, wide, start[:m, :n], add_is_c=True), exact + start[:m, :n]), (m, n, k)


@pytest.mark.parametrize("row, a_layout, b_layout", rows_with(layout_pairs))
def test_every_depth_and_layout(row, a_layout, b_layout):
    """All depths at the edge tiles with random values, in every layout the role takes: within the rounding bound."""
    rng = np.random.default_rng(row["index"])
    dtype = row["acc"]
    for turn, (m, n) in enumerate(edge_tiles(row)):
        edge = EDGES[turn % 2]
        for k in DEPTHS:
            a = place_a(row, a_layout, random_values(rng, (m, k), dtype), edge)
            b = place_b(row, b_layout, random_values(rng, (k, n), dtype), edge)
            check_close(run(row, a, b, edge=None), a, b)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("row", row_params())
def test_every_start_of_the_sum(row, edge):
    """add: absent, C itself, a matrix of its own, one row repeated; exact and random values."""
    rng = np.random.default_rng(row["index"])
    dtype = row["acc"]
    a_layout, b_layout = plain_pairs(row["role"])[0]
    for values in (small_integers, random_values):
        for m, n in edge_tiles(row):
            for k in (0, 1, 2 * row["vl"] + 3):
                a = place_a(row, a_layout, values(rng, (m, k), dtype), edge)
                b = place_b(row, b_layout, values(rng, (k, n), dtype), edge)
                for name, add in add_cases(values(rng, (m, n), dtype), edge):
                    c = run(row, a, b, add, name == "c", edge)
                    check_close(c, a, b, add)
                    if values is small_integers:
                        assert np.array_equal(c, integer_product(a, b) + (0 if add is None else add)), (name, m, n, k)


@pytest.mark.parametrize("row", row_params())
def test_the_stride_of_a_single_step_is_not_used(row):
    """One column, one row or one step of K has nothing adjacent: any stride goes, also where the role asks for one."""
    rng = np.random.default_rng(row["index"])
    dtype, item, mr = row["acc"], np.dtype(row["acc"]).itemsize, row["mr"]
    for k in DEPTHS:
        a, b = small_integers(rng, (mr, k), dtype), small_integers(rng, (k, 1), dtype)
        placed_a = guarded(a, (odd(k) * item, item))
        placed_b = guarded(b, (item if row["role"] == "dot" else 5 * item, 1000 * item))
        assert np.array_equal(run(row, placed_a, placed_b), integer_product(a, b)), k
        add = guarded(np.ones((mr, 1), dtype), (3 * item, 1000 * item))
        assert np.array_equal(run(row, placed_a, placed_b, add), integer_product(a, b) + 1), k
    a, b = small_integers(rng, (mr, 1), dtype), small_integers(rng, (1, row["nr"]), dtype)
    steps = (1000, 3) if row["role"] == "dot" else (1000, 1)
    placed_a, placed_b = guarded(a, (3 * item, 1000 * item)), guarded(b, tuple(s * item for s in steps))
    assert np.array_equal(run(row, placed_a, placed_b), integer_product(a, b))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", row_params())
def test_special_values_reach_their_own_row_and_column_only(row, special):
    """One NaN or infinity in A changes one row of C, one in B changes one column; the other bits stay."""
    rng = np.random.default_rng(row["index"])
    dtype, k = row["acc"], 2 * row["vl"] + 3
    a_layout, b_layout = plain_pairs(row["role"])[0]
    tall, wide = max(edge_tiles(row))
    for m, n in {(tall, wide), (max(tall - 1, 1), max(wide - 1, 1))}:
        # Positive, so that an infinity keeps its sign and never meets another or a zero.
        a, b = (rng.uniform(0.5, 1, shape).astype(dtype) for shape in ((m, k), (k, n)))
        clean = run(row, place_a(row, a_layout, a), place_b(row, b_layout, b)).copy()
        for p in (0, row["vl"], k - 1):
            for i in (0, m - 1):
                spoiled = a.copy()
                spoiled[i, p] = special
                expected = clean.copy()
                expected[i] = special
                check_special(run(row, place_a(row, a_layout, spoiled), place_b(row, b_layout, b)), expected)
            for j in (0, n // 2, n - 1):
                spoiled = b.copy()
                spoiled[p, j] = special
                expected = clean.copy()
                expected[:, j] = special
                check_special(run(row, place_a(row, a_layout, a), place_b(row, b_layout, spoiled)), expected)


def check_special(c, expected):
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(c), nan)
    assert same_bits(c[~nan], expected[~nan])


@pytest.mark.parametrize("row", row_params())
def test_the_same_call_gives_the_same_bits(row):
    """Where a tile lies in memory changes nothing, and nor does its layout."""
    rng = np.random.default_rng(row["index"])
    dtype, k = row["acc"], 37
    for m, n in edge_tiles(row):
        a, b = random_values(rng, (m, k), dtype), random_values(rng, (k, n), dtype)
        results = [run(row, place_a(row, x, a, edge), place_b(row, y, b, edge), edge=where).copy()
                   for x, y in plain_pairs(row["role"]) for edge in EDGES for where in (None, *EDGES)]
        assert all(same_bits(c, results[0]) for c in results), (m, n)
