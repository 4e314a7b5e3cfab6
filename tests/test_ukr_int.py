"""Every micro-kernel of integers, alone: all tile sizes, depths and layouts, whole ranges of values; sums wrap.

Memory is guarded and poisoned as tiles.py says.  Bytes come in quads (docs/integers.md): the oracle sees A as unsigned
and B as signed bytes, as many steps of k as the memory holds.
"""
import os
import subprocess
import sys

import numpy as np
import pytest
from support import EDGES, PAGE, GuardedBuffer, guarded, row_params
from tiles import (
    A_LAYOUTS,
    B_LAYOUTS,
    DOT_A_LAYOUTS,
    DOT_B_LAYOUTS,
    add_cases,
    edge_tiles,
    grouped_b,
    layout_pairs,
    odd,
    place,
    plain_pairs,
    rows_with,
    run,
    widths,
)

DEPTHS = (*range(10), 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
GRID_DEPTHS = (1, 4, 37)
AHEAD = 8  # lines of quads are read by so many bytes, and, without k, these at least


def is_bytes(row):
    return row["a"] != row["b"]


def reads_lines(row):
    return is_bytes(row) and row["role"] == "stream"


def pairs_of(row):
    """Layouts that each role takes; a stream row of bytes reads whole quads from lines of A."""
    pairs = layout_pairs("stream" if row["role"] == "stream" else row["role"])
    return [pair for pair in pairs if not reads_lines(row) or pair[0] in DOT_A_LAYOUTS]


def plain_pairs_of(row):
    return [("rows", "rows")] if reads_lines(row) else plain_pairs(row["role"])


INTEGERS = row_params(integers=True)
GROUPED = row_params("gemm", "stream", where=is_bytes, integers=True)


# ---- Operands

def memory(row, operand):
    return np.dtype({"quads_u8": "uint8", "quads_i8": "int8", "nibbles": "uint8"}.get(row[operand], row[operand])).type


def whole_range(rng, shape, dtype):
    """Any values, of which a fourth are the least or the largest one."""
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return np.where(rng.random(shape) < 0.25, rng.choice(np.array([info.min, info.max], dtype), shape), x)


def up(k, step):
    return -(-k // step) * step


def nibbles_of(steps):
    """(k / 8, n, 8) values of 0..15 as (k / 8, n, 4) bytes: four steps in low halves, the next four in high ones."""
    return steps[..., :4] | steps[..., 4:] << 4


def operands(rng, row, m, n, k, values=whole_range, behind=None):
    """A and B as the row takes them, with any bytes of A, or `behind`, where its memory goes on behind k."""
    step = AHEAD if reads_lines(row) else row["kr"]
    deep = max(up(k, step), AHEAD if reads_lines(row) else 0)
    a = values(rng, (m, deep), memory(row, "a"))
    if deep > k:
        a[:, k:] = whole_range(rng, (m, deep - k), a.dtype.type) if behind is None else behind
    if row["b"] == "nibbles":
        b = nibbles_of(grouped_b(values(rng, (k, n), np.uint8) & 15, 8))
    else:
        b = grouped_b(values(rng, (k, n), memory(row, "b")), row["kr"])
    return (a if row["kr"] == 1 else a.reshape(m, -1, row["kr"])), b


def put_a(row, layout, a, k, edge="end"):
    """A in guarded memory; to a stream row of bytes k steps are passed of whole octets that are there."""
    placed = place(a, A_LAYOUTS[layout](*a.shape[:2], row["mr"]), edge)
    return placed[:, :k] if reads_lines(row) else placed


def put_b(row, layout, b, edge="end"):
    layouts = DOT_B_LAYOUTS if row["role"] == "dot" else B_LAYOUTS
    return place(b, layouts[layout](*b.shape[:2], row["nr"]), edge)


# ---- Oracle

def factors(row, a, b):
    """(m, k) and (k, n) in int64, as the row multiplies them; a group's zeros and garbage included."""
    left = a.reshape(len(a), -1).astype(np.int64)
    if row["b"] == "nibbles":
        b = np.concatenate([b & 15, b >> 4], axis=2)
    right = (b if b.ndim == 2 else b.transpose(0, 2, 1).reshape(-1, b.shape[1])).astype(np.int64)
    return left + 128 * (row["a"] == "int8"), right - 128 * (row["b"] == "uint8")


def wrapped(x, dtype):
    """int64, known modulo 2^64, modulo the type's 2^bits."""
    size = np.dtype(dtype).itemsize
    return np.asarray(x).astype(np.int64).view(np.uint64).astype(f"u{size}").view(dtype)


def exact(row, a, b, add=None):
    left, right = factors(row, a, b)
    total = np.einsum("ik,kj->ij", left.view(np.uint64), right.view(np.uint64), optimize=False)
    return wrapped((total if add is None else total + add.astype(np.int64).view(np.uint64)).view(np.int64), row["acc"])


def in_python(row, a, b, add=None):
    """The same in Python's integers."""
    left, right = (x.astype(object) for x in factors(row, a, b))
    half = 1 << 8 * np.dtype(row["acc"]).itemsize - 1
    start = 0 if add is None else add.astype(object)
    total = left @ right + start if left.shape[1] else np.zeros((len(left), right.shape[1]), object) + start
    return np.array([[(x + half) % (2 * half) - half for x in line] for line in total], row["acc"])


# ---- Tiles, depths, layouts

def columns(row):
    """Every number of columns of a tile; a stream row's, through three of its vectors and on."""
    return widths(row) if not reads_lines(row) else [*range(1, 2 * row["vl"] + 2), 3 * row["vl"] - 1, 259]


@pytest.mark.parametrize("row, a_layout, b_layout", rows_with(plain_pairs_of, INTEGERS))
def test_every_tile_size(row, a_layout, b_layout):
    """All m x n the row allows, by turns at each of a few depths, from nothing and from C itself."""
    rng = np.random.default_rng(row["index"])
    mr, most = row["mr"], max(columns(row))
    start = whole_range(rng, (mr, most), row["acc"])
    problems = []
    for k in GRID_DEPTHS:
        a, b = operands(rng, row, mr, most, k)
        tall = [put_a(row, a_layout, a[:m], k) for m in range(1, mr + 1)]
        whole = put_a(row, a_layout, a, k)
        problems.append((k, tall, b, exact(row, whole, b)))
    for turn, n in enumerate(columns(row)):
        placed = {k: put_b(row, b_layout, b[:, :n]) for k, _, b, _ in problems}
        for m in range(1, mr + 1):
            k, tall, _, want = problems[(turn + m) % len(problems)]
            want, first = want[:m, :n], start[:m, :n]
            if (m + n) % 2:
                assert np.array_equal(run(row, tall[m - 1], placed[k]), want), (m, n, k)
            else:
                got = run(row, tall[m - 1], placed[k], first, add_is_c=True)
                assert np.array_equal(got, wrapped(want.astype(np.int64) + first, row["acc"])), (m, n, k)


def tiles_of(row):
    """edge_tiles, and next to the boundaries within a stream's vector of bytes and AMX's tiles of 16."""
    more = set()
    if reads_lines(row):
        quarter = max(row["vl"] // 4, 1)
        more = {(m, n) for m in (1, 5, row["mr"]) for n in (quarter, quarter + 1, 3 * quarter - 1, 2 * row["vl"] - 1)}
    elif row["isa"] == "amxint8":
        more = {(m, n) for m in (15, 16, 17) for n in (1, 15, 16, 17, 32)}
    return sorted(more | set(edge_tiles(row)))


@pytest.mark.parametrize("row, a_layout, b_layout", rows_with(pairs_of, INTEGERS))
def test_every_depth_and_layout(row, a_layout, b_layout):
    """All depths at the edge tiles with values of the whole range, in every layout the role takes."""
    rng = np.random.default_rng(row["index"])
    for turn, (m, n) in enumerate(tiles_of(row)):
        edge = EDGES[turn % 2]
        for k in DEPTHS[turn % 5::5]:
            a, b = operands(rng, row, m, n, k)
            placed_a, placed_b = put_a(row, a_layout, a, k, edge), put_b(row, b_layout, b, edge)
            got = run(row, placed_a, placed_b, edge=None)
            assert np.array_equal(got, exact(row, placed_a, placed_b)), (m, n, k)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("row", INTEGERS)
def test_every_start_of_the_sum(row, edge):
    """add: absent, C itself, a matrix of its own, one row repeated; the sum wraps past either end."""
    rng = np.random.default_rng(row["index"])
    a_layout, b_layout = plain_pairs_of(row)[0]
    for m, n in tiles_of(row):
        for k in (0, 1, 2 * AHEAD + 3):
            a, b = operands(rng, row, m, n, k)
            a, b = put_a(row, a_layout, a, k, edge), put_b(row, b_layout, b, edge)
            for name, add in add_cases(whole_range(rng, (m, n), row["acc"]), edge):
                c = run(row, a, b, add, name == "c", edge)
                assert np.array_equal(c, exact(row, a, b, add)), (name, m, n, k)


@pytest.mark.parametrize("row", INTEGERS)
def test_the_stride_of_a_single_step_is_not_used(row):
    """One column, one row or one step of K has nothing adjacent: any stride goes, also where the role asks for one."""
    rng = np.random.default_rng(row["index"])
    item = np.dtype(row["acc"]).itemsize
    for k in (1, 3, 8, 37):
        a, b = operands(rng, row, row["mr"], 1, k)
        a = put_a(row, "rows", a, k)
        b = place(b, (1 if row["role"] == "dot" else 5, 1000))
        assert np.array_equal(run(row, a, b), exact(row, a, b)), k
        add = guarded(np.ones((row["mr"], 1), row["acc"]), (3 * item, 1000 * item))
        assert np.array_equal(run(row, a, b, add), exact(row, a, b, add)), k
    if not reads_lines(row):
        a, b = operands(rng, row, row["mr"], row["nr"], row["kr"])
        a, b = place(a, (3, 1000)), place(b, (1000, 3 if row["role"] == "dot" else 1))
        assert np.array_equal(run(row, a, b), exact(row, a, b))


# ---- Values

def full_of(y):
    return lambda rng, shape, dtype: np.full(shape, y).astype(dtype)


def ends(dtype):
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


@pytest.mark.parametrize("row", INTEGERS)
def test_extreme_values_everywhere(row):
    """Each pair of extremes alone, and both by turns: pairs of 16-bit sums, where they are taken, hold them all."""
    a_layout, b_layout = plain_pairs_of(row)[0]
    low, high = ends(row["acc"])
    m, n = row["mr"], max(edge_tiles(row))[1]
    turns = np.arange(3 * AHEAD + 5)
    for k in (1, 4, len(turns)):
        for x in (*ends(memory(row, "a")), None):
            for y in ((0, 255) if row["b"] == "nibbles" else ends(memory(row, "b"))):
                a, b = operands(np.random.default_rng(0), row, m, n, k, full_of(y))
                flat = a.reshape(m, -1)
                flat[:] = x if x is not None else np.array(ends(a.dtype))[(np.arange(flat.shape[1]) + 1) % 2]
                a, b = put_a(row, a_layout, a, k), put_b(row, b_layout, b)
                for start in (None, low, high):
                    add = None if start is None else np.full((m, n), start, row["acc"])
                    assert np.array_equal(run(row, a, b, add), in_python(row, a, b, add)), (k, x, y, start)


@pytest.mark.parametrize("row", row_params(where=is_bytes, integers=True))
def test_pairs_that_16_bits_do_not_hold(row):
    """255 x 127 + 255 x 127 is more than 32767: an instruction that saturates there gives another sum."""
    a_layout, b_layout = plain_pairs_of(row)[0]
    least, most = {"int8": (-128, 127), "quads_i8": (-128, 127), "uint8": (0, 255), "nibbles": (0, 15)}[row["b"]]
    m, n, k = row["mr"], max(edge_tiles(row))[1], 64
    for y, product in ((least, -128), (most, 127)):
        a, b = operands(np.random.default_rng(0), row, m, n, k, full_of(y))
        a[...] = 127 if row["a"] == "int8" else 255  # 255 in any case
        want = k * 255 * (y if row["b"] == "nibbles" else product)
        assert (run(row, put_a(row, a_layout, a, k), put_b(row, b_layout, b)) == want).all()


@pytest.mark.parametrize("row", INTEGERS)
def test_the_oracle_agrees_with_pythons_integers(row):
    rng = np.random.default_rng(row["index"])
    a, b = operands(rng, row, 2, 3, 24)
    add = whole_range(rng, (2, 3), row["acc"])
    for start in (None, add):
        assert np.array_equal(exact(row, a, b, start), in_python(row, a, b, start))


@pytest.mark.parametrize("row", row_params("dot", "stream", where=is_bytes, integers=True))
def test_every_pair_of_bytes(row):
    """All 65536 products, each alone in its sum, among bytes that stand for zero."""
    every_a, every_b = (np.arange(256, dtype=np.uint8).view(memory(row, x)) for x in "ab")
    none_a, none_b = (-128 if row["a"] == "int8" else 0), (128 if row["b"] == "uint8" else 0)
    most = row["nr"] if row["role"] == "dot" else 256
    want = exact(row, every_a[:, None], every_b[None])
    for at, k in ((0, 1), (6, 7)):
        a = np.full((256, up(k, AHEAD)), none_a, every_a.dtype)
        b = np.full((k, 256), none_b, every_b.dtype)
        a[:, at], b[at] = every_a, every_b
        a[:, k:] = 99
        b = np.asfortranarray(b) if row["role"] == "dot" else b
        got = np.concatenate([np.concatenate([run(row, a[i:i + row["mr"], :k], b[:, j:j + most], edge=None, margin=0)
                                              for j in range(0, 256, most)], axis=1) for i in range(0, 256, row["mr"])])
        assert np.array_equal(got, want), (at, k)


# ---- What is read

@pytest.mark.parametrize("row", GROUPED)
def test_what_lies_behind_k_in_a_does_not_count(row):
    """Where B's group has zeros, or a stream row no rows of B, A's bytes may be anything."""
    a_layout, b_layout = plain_pairs_of(row)[0]
    m, n = max(edge_tiles(row))
    for k in (0, 1, 3, 5, 7, 9, 30, 39, 65):
        results = []
        for behind in (0, 1, 127, 255):
            a, b = operands(np.random.default_rng(k), row, m, n, k, behind=behind)
            placed = put_a(row, a_layout, a, k)
            results.append(run(row, placed, put_b(row, b_layout, b)).copy())
        left, right = a.reshape(m, -1)[:, :k], factors(row, a, b)[1][:k]
        want = wrapped(left.astype(np.int64) @ right, row["acc"])
        assert all(np.array_equal(c, want) for c in results), k


@pytest.mark.parametrize("row", INTEGERS)
def test_bytes_beside_the_operands_do_not_count(row):
    """Gaps between lines hold anything, as do bytes before and behind: the sums are the same bits."""
    rng = np.random.default_rng(row["index"])
    a_layout, b_layout = plain_pairs_of(row)[0]
    for turn, (m, n) in enumerate(tiles_of(row)[::2]):
        k = (5, 23, 70)[turn % 3]
        a, b = operands(rng, row, m, n, k)
        want = exact(row, a[:, :k] if a.ndim == 2 else a, b)
        for filler in (0x00, 0x7F, 0x80):
            left, right = (filled(*x, filler) for x in ((put_a(row, a_layout, a, k), a), (put_b(row, b_layout, b), b)))
            assert np.array_equal(run(row, left[:, :k] if reads_lines(row) else left, right), want), (m, n, k)


def filled(like, values, filler):
    """Values with the strides of a placed array, in the middle of bytes that are all the same."""
    buffer = GuardedBuffer(values.size * 8 + sum(abs(s) * n for s, n in zip(like.strides, values.shape)))
    buffer.raw()[:] = filler
    below = sum(s * (n - 1) for s, n in zip(like.strides, values.shape) if s < 0)
    view = np.ndarray(values.shape, values.dtype, buffer.map, PAGE + 64 - below & ~7, like.strides)
    view[...] = values
    return view


@pytest.mark.parametrize("row", row_params("stream", where=is_bytes, integers=True))
def test_no_depth_reads_nothing(row):
    """In a process of its own, which the guard page ends."""
    program = (f"import numpy, support; from gemmkit._kernels import _registry; c = numpy.full((2, 5), 9, 'int32');"
               f"a, b = (support.guarded(numpy.zeros(s, t)) for s, t in (((2, 0), 'uint8'), ((0, 5), {row['b']!r})));"
               f"_registry.run_row({row['index']}, a, b, c); print(c.any())")
    here = os.path.dirname(__file__)
    result = subprocess.run([sys.executable, "-c", program], cwd=here, capture_output=True, text=True)
    assert result.stdout == "False\n", result.returncode


def test_layouts_of_lines_are_known():
    """What pairs_of relies on: every role keeps a layout of A with negative and zero steps."""
    assert set(DOT_A_LAYOUTS) < set(A_LAYOUTS) and {"rows reversed", "one row"} < set(DOT_A_LAYOUTS)
    assert {p[0] for p in pairs_of({"role": "stream", "a": "quads_u8", "b": "int8"})} == set(DOT_A_LAYOUTS)
    assert odd(4) == 7
