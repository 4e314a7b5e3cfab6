"""Packers of quads and nibbles (docs/integers.md): every byte in its place, shifted as the panel's sign wants it, zeros
behind k and past w, sums of lines added to what is there; nothing else is read or written.
"""
import numpy as np
import pytest
from support import EDGES, GuardedBuffer, as_params, extent, guarded

from gemmkit._kernels import _registry

# Strides of the source, lines x steps of K, from (lines, depth); in bytes, or in nibbles where two lie in a byte.
LAYOUTS = {
    "lines adjacent": lambda w, k: (1, w + 3),
    "lines adjacent, k reversed": lambda w, k: (1, -(w + 3)),
    "k adjacent": lambda w, k: (k + 3, 1),
    "k adjacent, odd lines": lambda w, k: ((k + 2) | 1, 1),
    "k adjacent, lines reversed": lambda w, k: (-(k + 3), 1),
    "neither": lambda w, k: (2, 2 * w + 5),
    "neither, odd": lambda w, k: (3, (3 * w + 4) | 1),
    "lines reversed": lambda w, k: (-1, w + 3),
    "k reversed": lambda w, k: (k + 3, -1),
    "lines far apart": lambda w, k: (3 * k + 5, 3),
    "one line": lambda w, k: (0, 1),
    "one step": lambda w, k: (1, 0),
    "one step of far lines": lambda w, k: (3, 0),
    "one number": lambda w, k: (0, 0),
    "overlapping lines": lambda w, k: (1, 1),
}
FORMS = ("panels", "lines")
WIDTHS = (1, 2, 4, 5, 6, 8, 15, 16, 17, 32, 33, 48, 63, 64)
MOST_R = 64
POISON = 0xFF
DEPTHS = (*range(10), 11, 15, 16, 17, 23, 31, 32, 33, 40)
LONG = (63, 64, 65, 129, 255, 256, 257, 300)
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "packed_int4": (-8, 7), "packed_uint4": (0, 15)}
STEPS = {"quads_u8": 8, "quads_i8": 4, "nibbles": 8}  # to which k is rounded up


def packers(where=lambda packer: True):
    return as_params(p for p in _registry.packers() if p["to"] in STEPS and where(p))


def with_forms(layouts=None):
    """(packer, form[, layout]): nibbles have panels only."""
    return [pytest.param(*p.values, form, *([layout] if layout else []), marks=p.marks,
                         id="-".join(filter(None, (p.id, form, layout))))
            for p in packers() for form in FORMS for layout in (layouts or [None])
            if form == "panels" or p.values[0]["to"] != "nibbles"]


def limits(packer):
    """Bytes that go to nibbles hold four bits."""
    low, high = RANGES[packer["from"]]
    return (max(low, -8), min(high, 15 if low == 0 else 7)) if packer["to"] == "nibbles" else (low, high)


def in_nibbles(packer):
    return packer["from"].startswith("packed")


# ---- Sources

def put(packer, rng, values, strides, edge="end", phase=0):
    """(source, its arguments, the values that it holds) in guarded memory; overlapping places keep one value each.

    `phase` is the half of a byte that the lowest nibble lies in; nibbles that are not the source's are random.
    """
    if not in_nibbles(packer):
        source = guarded(values.astype(packer["from"]), strides, edge)
        return source, {}, source.astype(np.int64)
    below, above = extent(values.shape, strides, 1)
    nibbles = rng.integers(0, 16, 2 * max(-(-(above - below + phase) // 2), 1))
    at = phase - below + np.add.outer(*(np.arange(n) * s for n, s in zip(values.shape, strides)))
    nibbles[at] = values & 15
    held = nibbles[at] - 16 * (nibbles[at] >= 8) if packer["from"] == "packed_int4" else nibbles[at]
    source = guarded((nibbles[::2] | nibbles[1::2] << 4).astype(np.uint8), edge=edge)
    return source, {"offset": phase - below, "shape": values.shape, "strides": strides}, held.astype(np.int64)


# ---- Oracle

def shifted(packer, values):
    """What the panel holds: A's bytes unsigned and B's signed; signed nibbles go up by 8 where there is no sign."""
    if packer["to"] == "quads_i8":
        return values - 128 * (packer["from"] == "uint8")
    if packer["from"] == "packed_int4" or (packer["to"] == "nibbles" and packer["from"] == "int8"):
        return values + 8
    return values + 128 * (packer["from"] == "int8")


def expected(packer, held, R, form):
    """The bytes of all micro-panels; where nothing may be written, whatever poisoned memory holds."""
    w, k = held.shape
    count, step = -(-w // R), STEPS[packer["to"]]
    filled = np.zeros((count * R, -(-k // step) * step), np.int64)
    filled[:w, :k] = shifted(packer, held)
    if form == "lines":
        filled[w:] = POISON
        return (filled & 255).astype(np.uint8).ravel()
    group = 8 if packer["to"] == "nibbles" else 4
    panels = filled.reshape(count, R, filled.shape[1] // group, group).transpose(0, 2, 1, 3)
    if packer["to"] == "nibbles":
        panels = panels[..., :4] | panels[..., 4:] << 4
    return (panels & 255).astype(np.uint8).ravel()


def check(packer, rng, values, strides, R, form, edge="end", phase=0, start="random"):
    """A packer's whole output: panels, sums, untouched bytes."""
    source, arguments, held = put(packer, rng, values, strides, edge, phase)
    before = source.tobytes()
    w, k = values.shape
    size = -(-w // R) * _registry.panel_bytes(packer["to"], R, k)
    buffer = GuardedBuffer(size + 64)
    dst = buffer.place(np.full(size, POISON, np.uint8), edge=edge)
    sums = None
    if start is not None:
        least, most = -2 ** 31, 2 ** 31 - 1
        first = rng.choice([least, most, -1, 0, 12345], w) if start == "random" else np.full(w, start)
        sums = guarded(first.astype(np.int32), edge=edge)
    _registry.run_pack(packer["index"], source, R, dst, form == "lines", sums, **arguments)
    want = expected(packer, held, R, form)
    assert dst.size == want.size and np.array_equal(dst, want), (w, k, R, phase, np.flatnonzero(dst != want)[:5])
    rest = buffer.raw()[:-size if size else None] if edge == "end" else buffer.raw()[size:]
    assert (rest == POISON).all(), "a byte outside the panels was written"
    if sums is not None:
        total = (first + shifted(packer, held).sum(axis=1) + 2 ** 31) % 2 ** 32 - 2 ** 31
        assert np.array_equal(sums, total), (w, k, R, phase)
    assert source.tobytes() == before


def some_values(packer, rng, shape):
    """Of the whole range, of which a fourth are its ends."""
    low, high = limits(packer)
    x = rng.integers(low, high, shape, endpoint=True)
    return np.where(rng.random(shape) < 0.25, rng.choice([low, high], shape), x)


def lines_to_try(R):
    return sorted({1, 2, R - 1, R, R + 1, 2 * R + 3} - {0})


# ---- Tests

@pytest.mark.parametrize("packer, form, layout", with_forms(LAYOUTS))
def test_layouts_and_tails(packer, form, layout):
    """Each layout, all widths of panels, remainders of lines and of K; nibbles from both halves of a byte on."""
    rng = np.random.default_rng(packer["index"])
    for R in WIDTHS:
        for turn, w in enumerate(lines_to_try(R)):
            for k in DEPTHS[(turn + R) % 6::6]:
                edge, start = EDGES[(turn + k) % 2], None if (k + R) % 4 == 0 else "random"
                for phase in (0, 1) if in_nibbles(packer) else (0,):
                    values = some_values(packer, rng, (w, k))
                    check(packer, rng, values, LAYOUTS[layout](w, k), R, form, edge, phase, start)


@pytest.mark.parametrize("packer, form, layout", with_forms(LAYOUTS))
def test_long_lines(packer, form, layout):
    """Several rounds of any inner block, also with the most lines that a panel may have."""
    rng = np.random.default_rng(packer["index"])
    for turn, k in enumerate(LONG):
        several, few = ((16, 19), (48, 48), (MOST_R, MOST_R + 33)), ((6, 8),) if turn % 2 else ((MOST_R, 7),)
        for R, w in several if k < 129 else few:
            check(packer, rng, some_values(packer, rng, (w, k)), LAYOUTS[layout](w, k), R, form, phase=turn % 2)


@pytest.mark.parametrize("packer, form", with_forms())
def test_no_lines(packer, form):
    """Nothing to pack is no error."""
    rng = np.random.default_rng(0)
    check(packer, rng, np.zeros((0, 5), np.int64), (5, 1), 4, form)


@pytest.mark.parametrize("packer, form", with_forms())
def test_every_value(packer, form):
    """All values that the source may hold, at every place of a group of eight and on either side of a vector."""
    low, high = limits(packer)
    every, rng = np.arange(low, high + 1), np.random.default_rng(0)
    for turn, layout in enumerate(("lines adjacent", "k adjacent", "k reversed", "neither")):
        for k in (8, 41):
            w = len(every) if len(every) > 100 else 5 * len(every)
            values = np.resize(every, (w * k + w))[np.add.outer(np.arange(w), np.arange(k))]
            check(packer, rng, values, LAYOUTS[layout](w, k), (16, 48, 5)[turn % 3], form, phase=turn % 2)


@pytest.mark.parametrize("packer, form", with_forms())
def test_sums_are_added_modulo_2_to_the_32(packer, form):
    """All values at one end of the range, from sums next to where they wrap: past it, and to it exactly."""
    rng = np.random.default_rng(0)
    for layout in ("lines adjacent", "k adjacent", "neither"):
        for value in limits(packer):
            for w, k in ((18, 37), (3, 260)):
                total = int(shifted(packer, np.int64(value))) * k
                for start in (2 ** 31 - 1, -2 ** 31, max(min(-total, 2 ** 31 - 1), -2 ** 31), 5):
                    check(packer, rng, np.full((w, k), value), LAYOUTS[layout](w, k), 16, form, start=start)


@pytest.mark.parametrize("packer", packers(in_nibbles))
def test_nibbles_of_a_byte_are_told_apart(packer):
    """One nibble that is not zero among others, at every place and in either half, by all ways to fetch it."""
    rng = np.random.default_rng(1)
    for layout in ("k adjacent", "k adjacent, odd lines", "lines adjacent", "k reversed", "lines far apart"):
        for phase in (0, 1):
            for place in np.ndindex(3, 9):
                values = np.zeros((3, 9), np.int64)
                values[place] = 5
                check(packer, rng, values, LAYOUTS[layout](3, 9), 4, "panels", EDGES[phase], phase)


def test_what_packers_refuse():
    """The test's own door checks what the kernels can't."""
    nibbles = next(p for p in _registry.packers() if p["to"] == "nibbles")
    quads = next(p for p in _registry.packers() if (p["from"], p["to"]) == ("int8", "quads_i8"))
    source = np.zeros((4, 8), nibbles["from"])
    panel = np.zeros(_registry.panel_bytes("nibbles", 4, 8), np.uint8)
    assert panel.size == 16 and [_registry.panel_bytes(to, 4, 9) for to in ("quads_u8", "quads_i8")] == [64, 48]
    with pytest.raises(ValueError, match="panels only"):
        _registry.run_pack(nibbles["index"], source, 4, panel, True)
    source, panel = source.astype(np.int8), np.zeros(32, np.uint8)
    for sums in (np.zeros(3, np.int32), np.zeros(4, np.int64), np.zeros(8, np.int32)[::2]):
        with pytest.raises(ValueError, match="sums"):
            _registry.run_pack(quads["index"], source, 4, panel, False, sums)
    for R in (0, MOST_R + 1):
        with pytest.raises(ValueError):
            _registry.run_pack(quads["index"], source, R, panel)
