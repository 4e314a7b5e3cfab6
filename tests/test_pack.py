"""Packers: every element goes to its place, widened exactly, the rest of the last micro-panel is zero, nothing else is touched.

A packer belongs to an instruction set and two types, not to one row; R is whatever the caller says.  Those of QUADS and
NIBBLES are in test_pack_quads.py.
"""
import numpy as np
import pytest
from narrow import codes
from support import EDGES, GuardedBuffer, as_params, bits_of, check_values, guarded, random_bits

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
WHOLE = ("int16", "int32", "int64")
FORMS = ("panels", "lines")
MOST_R = 64
TRAILER = 64
POISON = 0xFF
DEPTHS = (*range(10), 15, 16, 17, 33)


def packers(where=lambda packer: True):
    """The packers, each with the panel widths of rows that its panels are for: its own set's, or the next below it."""
    rows = [r for r in _registry.rows() if r["role"] == "gemm" and r["a"] == r["b"]]

    def widths(packer):
        sets = list(_registry.ISA_BITS)
        below = sets[: sets.index(packer["isa"]) + 1]
        of = next(i for i in reversed(below) if any((r["isa"], r["a"]) == (i, packer["to"]) for r in rows))
        return {r[x] for r in rows for x in ("mr", "nr") if (r["isa"], r["a"]) == (of, packer["to"])}

    found = [p for p in _registry.packers() if p["to"] not in ("quads_u8", "quads_i8", "nibbles") and where(p)]
    return as_params({**p, "widths": widths(p)} for p in found)


def to_pairs(packer):
    return packer["to"] == "bfloat16"


def widened(src, to):
    """Exact, by numpy or ml_dtypes; of a mask what is added to scores, whatever byte stands for True."""
    return np.where(src.view(np.uint8) != 0, 0, -np.inf).astype(to) if src.dtype == bool else src.astype(to)


def expected(packer, src, R, lines):
    """What must be in the panels, trailers apart: [panel][k][R], [panel][k / 2][R][2] or, for lines, [panel][R][k].

    Where nothing may be written it is whatever poisoned memory holds.
    """
    w, k = src.shape
    count, steps = -(-w // R), k + k % 2 if to_pairs(packer) else k
    filled = np.zeros((count * R, steps), packer["to"])
    with np.errstate(all="ignore"):
        filled[:w, :k] = widened(src, packer["to"])
    if lines:
        filled[w:] = np.full(filled.itemsize, POISON, np.uint8).view(packer["to"])
        return filled.reshape(count, R, steps)
    if to_pairs(packer):
        return filled.reshape(count, R, steps // 2, 2).transpose(0, 2, 1, 3)
    return filled.reshape(count, R, steps).transpose(0, 2, 1)


def check_trailers(trailers, panels, in_last):
    """The least nonzero magnitude of each panel's elements, of which the last panel has so many, and zeros behind it."""
    words = trailers.view(np.uint16)
    sizes = (bits_of(panels) & 0x7fff).reshape(len(panels), -1)
    sizes[sizes == 0] = 0x7fff
    sizes[-1, in_last:] = 0x7fff
    assert np.array_equal(words[:, 0], sizes.min(axis=1, initial=0x7fff)) and not words[:, 1:].any()


def check(packer, src, R, edge, form):
    """A packer's whole output, trailers and untouched bytes included."""
    w, k = src.shape
    bytes_each = _registry.panel_bytes(packer["to"], R, k)
    size = -(-w // R) * bytes_each
    buffer = GuardedBuffer(size + 64)
    dst = buffer.place(np.full(size, POISON, np.uint8), edge=edge)
    _registry.run_pack(packer["index"], src, R, dst, form == "lines")
    want = expected(packer, src, R, form == "lines")
    if size:
        whole = dst.reshape(-1, bytes_each)
        panels, trailers = (whole[:, :-TRAILER], whole[:, -TRAILER:]) if to_pairs(packer) else (whole, None)
        got = panels.copy().view(packer["to"]).reshape(want.shape)
        if packer["from"] == packer["to"]:
            assert np.array_equal(bits_of(got), bits_of(want)), (w, k, R)
        else:
            check_values(got, want)
        if trailers is not None:
            lines = (w - 1) % R + 1 if form == "lines" else R
            check_trailers(trailers.copy(), got, lines * (k + k % 2))
    rest = buffer.raw()[:-size if size else None] if edge == "end" else buffer.raw()[size:]
    assert (rest == POISON).all(), "a byte outside the panels was written"


def lines_to_try(R):
    return sorted({1, 2, 3, R - 1, R, R + 1, 2 * R, 2 * R + 3} - {0})


def place(values, layout, edge="end"):
    return guarded(values, tuple(s * values.itemsize for s in LAYOUTS[layout](*values.shape)), edge)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packer", packers())
def test_layouts_and_tails(packer, layout):
    """Each layout, with the widths of the table's panels and others, all remainders of lines and of K."""
    rng = np.random.default_rng(packer["index"])
    widens = packer["from"] != packer["to"] or to_pairs(packer)
    for R in sorted(({max(packer["widths"]), 5} if widens else packer["widths"] | {1, 3, 5, 12})):
        for turn, w in enumerate(lines_to_try(R)):
            # Those that widen move lines by the code of those that don't, which takes all depths with each number of lines.
            for k in DEPTHS[(turn + R) % 4::4] if widens else DEPTHS:
                bits, edge = random_bits(rng, (w, k), packer["from"]), EDGES[(turn + k) % 2]
                check(packer, place(bits, layout, edge), R, edge, "panels")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packer", packers())
def test_the_widest_and_deepest_panels(packer, layout, form):
    """The most lines that a panel may have, and depths that take several rounds of any inner block."""
    rng = np.random.default_rng(packer["index"])
    for R, w in ((MOST_R, MOST_R), (MOST_R, MOST_R + 33), (MOST_R - 1, 50), (7, 9)):
        for k in (31, 64, 65, 130) if R != MOST_R else (33, 257):
            bits = random_bits(rng, (w, k), packer["from"])
            check(packer, place(bits, layout), R, "end", form)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packer", packers())
def test_lines(packer, layout):
    """Each line by itself, how a dot row gets contiguous columns; lines past the last are left alone."""
    rng = np.random.default_rng(packer["index"])
    for R in (1, 4, 9):
        for turn, w in enumerate(lines_to_try(R)):
            for k in DEPTHS[turn % 5::5]:
                bits, edge = random_bits(rng, (w, k), packer["from"]), EDGES[(turn + k) % 2]
                check(packer, place(bits, layout, edge), R, edge, "lines")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packer", packers())
def test_no_lines(packer, form):
    """Nothing to pack is no error."""
    check(packer, guarded(np.ones((0, 5), packer["from"])), 4, "end", form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layout", ["lines adjacent", "k adjacent", "neither"])
@pytest.mark.parametrize("packer", packers(lambda packer: packer["from"] not in ("float32", "float64", *WHOLE)))
def test_every_code(packer, layout, form):
    """All codes of a narrow type or bool, by whole vectors and partial ones: bit for bit what a cast gives; a NaN is a NaN."""
    every = codes(np.dtype(packer["from"]).type)
    for k in (64, 13):
        lines = np.resize(every, (-(-every.size // k), k))
        for R in (48, 21):
            check(packer, place(lines, layout), R, "end", form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layout", ["lines adjacent", "k adjacent", "k reversed", "neither", "one line"])
@pytest.mark.parametrize("packer", packers(to_pairs))
def test_the_trailer_takes_each_element_into_account(packer, layout, form):
    """The least magnitude is that of one element among larger ones and zeros, at every place by turns."""
    from_type = np.dtype(packer["from"])
    sign, one, small, none = (np.array(x).astype(from_type) for x in (-1, 1, 0.5, 0))
    R = 19
    for w, k in ((R, 1), (R - 1, 2), (R + 2, 7), (3, 37), (2 * R, 4), (2, 131)):
        cases = [np.full((w, k), none), np.full((w, k), one), np.full((w, k), sign)]
        for place_of in np.ndindex(w, k):
            for rest in (none,) if layout == "one line" else (none, one):
                x = np.full((w, k), rest)
                x[place_of] = small if sum(place_of) % 2 else -small
                cases.append(x)
        for x in cases[:: 1 if len(cases) < 100 else 5]:
            check(packer, place(x, layout), R, "end", form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packer", packers(to_pairs))
def test_the_trailer_of_single_codes(packer, form):
    """Every code as the only one that is not zero: subnormals, infinities and NaNs have magnitudes too, -0 has none."""
    every = codes(np.dtype(packer["from"]).type)
    x = np.zeros((len(every), 3), packer["from"])
    x[:, 1] = every
    for layout in ("lines adjacent", "k adjacent"):
        check(packer, place(x, layout), 1, "end", form)
