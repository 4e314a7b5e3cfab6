"""Packers: every element goes to its place bit by bit, the rest of the last micro-panel is zero, nothing else is touched.

A packer belongs to an instruction set and a type, not to one row; R is whatever the caller says.
"""
import numpy as np
import pytest
from support import EDGES, GuardedBuffer, as_params, guarded, random_bits, same_bits

from gemmkit._kernels import _registry

# Strides in elements of the source, lines x steps of K, from (lines, depth).
LAYOUTS = {
    "lines adjacent": lambda w, k: (1, w + 3),
    "lines adjacent, k reversed": lambda w, k: (1, -(w + 3)),
    "k adjacent": lambda w, k: (k + 3, 1),
    "k adjacent, lines reversed": lambda w, k: (-(k + 3), 1),
    "neither": lambda w, k: (2, 2 * w + 5),
    "lines reversed": lambda w, k: (-1, w + 3),
    "k reversed": lambda w, k: (k + 3, -1),
    "lines far apart": lambda w, k: (3 * k + 5, 3),
    "one line": lambda w, k: (0, 1),
    "one step": lambda w, k: (1, 0),
    "one step of far lines": lambda w, k: (3, 0),
    "overlapping lines": lambda w, k: (1, 1),
}


def packers():
    """One row for each packer, with the panel widths that rows with this packer use."""
    found = {}
    for row in _registry.rows():
        entry = found.setdefault((row["isa"], row["b"]), {**row, "name": f"{row['isa']}-{row['b']}", "widths": set()})
        entry["widths"] |= {row["mr"], row["nr"]}
    return as_params(found.values())


def panels(src, R):
    """What a packer must produce: [panel][k][R], zero past the last line."""
    w, k = src.shape
    count = -(-w // R)
    whole = np.zeros((count * R, k), src.dtype)
    whole[:w] = src
    return whole.reshape(count, R, k).transpose(0, 2, 1).copy()


def check(packer, src, R, edge):
    w, k = src.shape
    shape = (-(-w // R), k, R)
    size = int(np.prod(shape)) * src.itemsize
    buffer = GuardedBuffer(size + 64)
    dst = buffer.place(np.full(shape, np.nan, src.dtype), edge=edge)
    dst.view(np.uint8)[...] = 0xFF
    _registry.run_pack(packer["index"], src, R, dst)
    assert same_bits(dst, panels(src, R)), (w, k, R)
    rest = buffer.raw()[:-size if size else None] if edge == "end" else buffer.raw()[size:]
    assert (rest == 0xFF).all(), "a byte outside the panels was written"


def lines_to_try(R):
    return sorted({1, 2, 3, R - 1, R, R + 1, 2 * R, 2 * R + 3} - {0})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packer", packers())
def test_layouts_and_tails(packer, layout):
    """Each layout, with the widths of the table's panels and others, all remainders of lines and of K."""
    rng = np.random.default_rng(packer["index"])
    for R in sorted(packer["widths"] | {1, 3, 5, 12}):
        for turn, w in enumerate(lines_to_try(R)):
            for k in (*range(0, 10), 15, 16, 17, 33):
                bits = random_bits(rng, (w, k), packer["b"])
                strides = tuple(s * bits.itemsize for s in LAYOUTS[layout](w, k))
                edge = EDGES[(turn + k) % 2]
                check(packer, guarded(bits, strides, edge), R, edge)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packer", packers())
def test_a_panel_as_wide_as_k(packer, layout):
    """One panel that holds all lines turns a matrix over: how a dot row gets contiguous columns."""
    rng = np.random.default_rng(packer["index"])
    for R in (37, 257):
        for k in (1, 4, 9):
            bits = random_bits(rng, (R, k), packer["b"])
            strides = tuple(s * bits.itemsize for s in LAYOUTS[layout](R, k))
            check(packer, guarded(bits, strides), R, "end")


@pytest.mark.parametrize("packer", packers())
def test_no_lines(packer):
    """Nothing to pack is no error."""
    check(packer, guarded(np.ones((0, 5), packer["b"])), 4, "end")
