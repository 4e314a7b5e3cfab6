"""Every micro-kernel of the table, alone: all tile sizes, depths, layouts; it reads and writes what it must, no more.

Memory is guarded and poisoned as tiles.py says.  Rows of narrow types share their templates with those of float32, so
grids that cost much are thinned out for them; what is theirs alone is in test_ukr_narrow.py.
"""
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from support import (
    EDGES,
    check_close,
    guarded,
    integer_product,
    is_narrow,
    random_values,
    row_params,
    same_bits,
    small_integers,
)
from tiles import (
    add_cases,
    by_role,
    edge_tiles,
    flat_a,
    flat_b,
    grouped_a,
    grouped_b,
    layout_pairs,
    odd,
    place,
    place_a,
    place_b,
    plain_pairs,
    rows_with,
    run,
    widths,
)

DEPTHS = (*range(10), 63, 64, 65, 255, 256, 257)
GRID_DEPTHS = (1, 4, 37)


@pytest.mark.parametrize("edge, offset", [("end", 24), ("start", -1)])
def test_the_guard_pages_are_there(edge, offset):
    """What the tests below rely on: one byte past either end can't be read."""
    program = (f"import ctypes, numpy, support; x = support.guarded(numpy.zeros(3), edge={edge!r}); print(x.sum(), flush=True);"
               f"ctypes.string_at(x.ctypes.data + {offset}, 1)")
    result = subprocess.run([sys.executable, "-c", program], cwd=os.path.dirname(__file__), capture_output=True, text=True)
    assert result.stdout == "0.0\n" and result.returncode in (-signal.SIGSEGV, -signal.SIGBUS), result.stderr


@pytest.mark.parametrize("row, a_layout, b_layout", rows_with(by_role(plain_pairs)))
def test_every_tile_size(row, a_layout, b_layout):
    """All m x n the row allows, with small integers: the result is exact, so any wrong element shows."""
    rng = np.random.default_rng(row["index"])
    mr, most = row["mr"], max(widths(row))
    start = small_integers(rng, (mr, most), row["acc"])
    for k in GRID_DEPTHS[-1:] if is_narrow(row) else GRID_DEPTHS:
        a, b = small_integers(rng, (mr, k), row["a"]), small_integers(rng, (k, most), row["b"])
        expected = integer_product(a, b)
        tall = [place_a(row, a_layout, a[:m]) for m in range(1, mr + 1)]
        for n in widths(row):
            wide = place_b(row, b_layout, b[:, :n])
            for part in tall:
                m = len(part)
                exact = expected[:m, :n]
                assert np.array_equal(run(row, part, wide), exact), (m, n, k)
                assert np.array_equal(run(row, part, wide, start[:m, :n], add_is_c=True), exact + start[:m, :n]), (m, n, k)


@pytest.mark.parametrize("row, a_layout, b_layout", rows_with(by_role(layout_pairs)))
def test_every_depth_and_layout(row, a_layout, b_layout):
    """All depths at the edge tiles with random values, in every layout the role takes: within the rounding bound."""
    rng = np.random.default_rng(row["index"])
    for turn, (m, n) in enumerate(edge_tiles(row)):
        edge = EDGES[turn % 2]
        for k in DEPTHS[turn % 8::8] if is_narrow(row) else DEPTHS:
            a = place_a(row, a_layout, random_values(rng, (m, k), row["a"]), edge)
            b = place_b(row, b_layout, random_values(rng, (k, n), row["b"]), edge)
            check_close(run(row, a, b, edge=None), flat_a(a), flat_b(b))


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("row", row_params())
def test_every_start_of_the_sum(row, edge):
    """add: absent, C itself, a matrix of its own, one row repeated; exact and random values."""
    rng = np.random.default_rng(row["index"])
    a_layout, b_layout = plain_pairs(row["role"])[0]
    for values in (small_integers, random_values):
        for m, n in edge_tiles(row)[:: 5 if is_narrow(row) else 1]:
            for k in (0, 1, 2 * row["vl"] + 3):
                a = place_a(row, a_layout, values(rng, (m, k), row["a"]), edge)
                b = place_b(row, b_layout, values(rng, (k, n), row["b"]), edge)
                flat = flat_a(a), flat_b(b)
                for name, add in add_cases(values(rng, (m, n), row["acc"]), edge):
                    c = run(row, a, b, add, name == "c", edge)
                    check_close(c, *flat, add)
                    if values is small_integers:
                        assert np.array_equal(c, integer_product(*flat) + (0 if add is None else add)), (name, m, n, k)


@pytest.mark.parametrize("row", row_params())
def test_the_stride_of_a_single_step_is_not_used(row):
    """One column, one row or one step of K has nothing adjacent: any stride goes, also where the role asks for one."""
    rng = np.random.default_rng(row["index"])
    mr, kr, item = row["mr"], row["kr"], np.dtype(row["acc"]).itemsize
    for k in DEPTHS:
        a, b = small_integers(rng, (mr, k), row["a"]), small_integers(rng, (k, 1), row["b"])
        placed_a = place(grouped_a(a, kr), (odd(k), 1))
        placed_b = place(grouped_b(b, kr), (1 if row["role"] == "dot" else 5, 1000))
        assert np.array_equal(run(row, placed_a, placed_b), integer_product(a, b)), k
        add = guarded(np.ones((mr, 1), row["acc"]), (3 * item, 1000 * item))
        assert np.array_equal(run(row, placed_a, placed_b, add), integer_product(a, b) + 1), k
    a, b = small_integers(rng, (mr, kr), row["a"]), small_integers(rng, (kr, row["nr"]), row["b"])
    placed_a = place(grouped_a(a, kr), (3, 1000))
    placed_b = place(grouped_b(b, kr), (1000, 3 if row["role"] == "dot" else 1))
    assert np.array_equal(run(row, placed_a, placed_b), integer_product(a, b))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", row_params())
def test_special_values_reach_their_own_row_and_column_only(row, special):
    """One NaN or infinity in A changes one row of C, one in B changes one column; the other bits stay.

    A type without infinities makes NaN of them.
    """
    rng = np.random.default_rng(row["index"])
    k = 2 * row["vl"] + 3
    a_layout, b_layout = plain_pairs(row["role"])[0]
    tall, wide = max(edge_tiles(row))
    special_a, special_b = (np.full((), special).astype(row[x]) for x in "ab")
    for m, n in {(tall, wide), (max(tall - 1, 1), max(wide - 1, 1))}:
        # Positive, so that an infinity keeps its sign and never meets another or a zero.
        a, b = (rng.uniform(0.5, 1, shape).astype(row[x]) for x, shape in zip("ab", ((m, k), (k, n))))
        clean = run(row, place_a(row, a_layout, a), place_b(row, b_layout, b)).copy()
        for p in (0, row["vl"], k - 1):
            for i in (0, m - 1):
                spoiled = a.copy()
                spoiled[i, p] = special_a
                expected = clean.copy()
                expected[i] = special_a
                check_special(run(row, place_a(row, a_layout, spoiled), place_b(row, b_layout, b)), expected)
            for j in (0, n // 2, n - 1):
                spoiled = b.copy()
                spoiled[p, j] = special_b
                expected = clean.copy()
                expected[:, j] = special_b
                check_special(run(row, place_a(row, a_layout, a), place_b(row, b_layout, spoiled)), expected)


def check_special(c, expected):
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(c), nan)
    assert same_bits(c[~nan], expected[~nan])


@pytest.mark.parametrize("row", row_params())
def test_the_same_call_gives_the_same_bits(row):
    """Where a tile lies in memory changes nothing, and nor does its layout."""
    rng = np.random.default_rng(row["index"])
    k = 37
    for m, n in edge_tiles(row)[:: 3 if is_narrow(row) else 1]:
        a, b = random_values(rng, (m, k), row["a"]), random_values(rng, (k, n), row["b"])
        results = [run(row, place_a(row, x, a, edge), place_b(row, y, b, edge), edge=where).copy()
                   for x, y in plain_pairs(row["role"]) for edge in EDGES for where in (None, *EDGES)]
        assert all(same_bits(c, results[0]) for c in results), (m, n)
