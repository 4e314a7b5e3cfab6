"""The choice of algorithm and blocks: clear cases, and what must hold for any product on any machine.

Constants may be tuned: nothing here depends on where exactly one algorithm gives way to another.
"""
import inspect
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmkit
from gemmkit._kernels import _registry
from gemmkit._kernels._schedule import choose_algorithm, fits

KIB, MIB = 1 << 10, 1 << 20
# (size, ways, line) of L1d, L2, L3.
ZEN4 = {"l1d": (32 * KIB, 8, 64), "l2": (1 * MIB, 8, 64), "l3": (32 * MIB, 16, 64)}
SAPPHIRE_RAPIDS = {"l1d": (48 * KIB, 12, 64), "l2": (2 * MIB, 16, 64), "l3": (300 * MIB, 20, 64)}
HASWELL = {"l1d": (32 * KIB, 8, 64), "l2": (256 * KIB, 8, 64), "l3": (8 * MIB, 16, 64)}
NO_L3 = {"l1d": (64 * KIB, 4, 64), "l2": (1 * MIB, 16, 64), "l3": (0, 0, 0)}
MACHINES = (ZEN4, SAPPHIRE_RAPIDS, HASWELL, NO_L3)
ALGORITHMS = ("direct", "general", "small_k", "skinny_m", "skinny_n", "split_k")
TILES = ("direct", "general", "small_k")


def row_blocks():
    """Register blocks of every GEMM row but those of bytes, whose choice is another."""
    return [{"item": np.dtype(g["acc"]).itemsize, "mr": g["mr"], "nr": g["nr"], "vl": g["vl"]}
            for g in _registry.rows() if g["role"] == "gemm" and g["a"] != "quads_u8"]


def transposed(rows, item=4):
    """Strides of a transposed contiguous matrix with so many rows."""
    return (item, rows * item)


# ---- Clear cases

@pytest.mark.parametrize("size", [8, 16, 31, 64, 100])
@pytest.mark.parametrize("blocks", row_blocks(), ids=str)
def test_small_squares_are_read_in_place(size, blocks):
    choice = choose_algorithm(size, size, size, **blocks, **ZEN4)
    assert not choice["pack_a"] and not choice["pack_b"]
    # Eight rows may be few enough to stream B; small K means deep for narrow tiles, so that 31 may be either.
    assert size < 31 or choice["algorithm"] in ("direct", "small_k")
    assert size < 64 or choice["algorithm"] == "direct"


CASES = [
    ((64, 64, 64), {}, "direct", "gemm"),
    ((2048, 2048, 2048), {}, "general", "gemm"),
    ((4096, 4096, 4096), {}, "general", "gemm"),
    ((512, 512, 512), {"b_strides": transposed(512)}, "general", "gemm"),
    ((1, 4096, 4096), {}, "skinny_m", "stream"),
    ((1, 30000, 500), {}, "skinny_m", "stream"),
    ((2, 30000, 300), {}, "skinny_m", "stream"),
    ((1, 4096, 4096), {"b_strides": transposed(4096)}, "skinny_m", "dot"),
    ((1, 30000, 500), {"b_strides": transposed(500)}, "skinny_m", "dot"),
    ((4096, 1, 4096), {}, "skinny_n", "dot"),
    ((30000, 1, 500), {}, "skinny_n", "dot"),
    ((1000, 1, 1000), {"a_strides": (1000 * 4 + 4, 4)}, "skinny_n", "dot"),
    ((32, 32, 4096), {}, "split_k", "gemm"),
    ((16, 16, 100000), {}, "split_k", "gemm"),
    ((1024, 1024, 8), {}, "small_k", "gemm"),
    ((2000, 2000, 2), {}, "small_k", "gemm"),
]


@pytest.mark.parametrize("shape, operands, algorithm, inner", CASES)
def test_clear_cases(shape, operands, algorithm, inner):
    choice = choose_algorithm(*shape, **operands, **ZEN4)
    assert (choice["algorithm"], choice["inner"]) == (algorithm, inner)


def test_packing_of_clear_cases():
    big = choose_algorithm(2048, 2048, 2048, **ZEN4)
    assert big["pack_b"] and not big["pack_a"]  # A's rows are contiguous along K already
    assert choose_algorithm(2048, 2048, 2048, a_strides=transposed(2048), **ZEN4)["pack_a"]
    turned = choose_algorithm(1024, 1024, 8, b_strides=transposed(8), **ZEN4)
    assert turned["algorithm"] == "small_k" and turned["pack_b"]
    assert choose_algorithm(1000, 1, 1000, b_strides=(400, 400), **ZEN4)["pack_b"]
    ready = choose_algorithm(64, 64, 64, b_prepacked=True, **ZEN4)
    assert ready["algorithm"] == "general" and not ready["pack_b"]


def test_split_k_covers_k():
    choice = choose_algorithm(32, 32, 4096, **ZEN4)
    assert choice["splits"] > 1
    check_split(choice, 4096)


def check_split(choice, k):
    """The chunks cover K once, and none is empty."""
    assert choice["splits"] >= 1 and (choice["splits"] - 1) * choice["chunk"] < max(k, 1)
    assert choice["splits"] * choice["chunk"] >= k


# ---- Forcing

REFUSED = [
    ("direct", (64, 64, 64), {"b_strides": transposed(64)}, "B's rows"),
    ("direct", (64, 64, 64), {"b_prepacked": True}, "prepacked"),
    ("small_k", (64, 64, 5000), {}, "K is not small"),
    ("skinny_m", (1000, 64, 64), {}, "M is not small"),
    ("skinny_m", (2, 64, 64), {"b_strides": (2 * 64 * 4, 8)}, "neither B's rows nor its columns"),
    ("skinny_n", (64, 1000, 64), {}, "N is not small"),
    ("skinny_n", (64, 2, 64), {"a_strides": transposed(64)}, "A's rows"),
    ("split_k", (5000, 5000, 64), {}, "output is not small"),
    ("split_k", (5, 5, 1), {}, "no K to split"),
]


@pytest.mark.parametrize("algorithm, shape, operands, reason", REFUSED)
def test_an_algorithm_that_cant_run_says_why(algorithm, shape, operands, reason):
    m, n, k = shape
    with pytest.raises(ValueError, match=re.escape(f"algorithm: {algorithm} can't run {m} x {n} x {k}: ")) as error:
        choose_algorithm(m, n, k, algorithm=algorithm, **operands)
    assert reason in str(error.value)


# ---- What holds always

@st.composite
def problems(draw):
    """Any product of positive sizes: (sizes, keyword arguments of choose_algorithm)."""
    sizes = st.one_of(st.integers(1, 80), st.integers(1, 5000), st.sampled_from([1, 2, 512, 1024, 4096, 100_000]))
    m, n, k = draw(sizes), draw(sizes), draw(sizes)
    blocks = draw(st.sampled_from(row_blocks()))

    def strides(rows, columns):
        item, pad = blocks["item"], draw(st.integers(0, 70))
        steps = draw(st.sampled_from([(columns + pad, 1), (1, rows + pad), (2 * columns + pad, 2), (-columns - pad, 1),
                                      (0, 1), (1, 0), (0, 0)]))
        return tuple(s * item for s in steps)

    keywords = {**blocks, **draw(st.sampled_from(MACHINES)), "a_strides": strides(m, k), "b_strides": strides(k, n)}
    return (m, n, k), keywords


def chosen_or_refused(sizes, keywords, algorithm):
    try:
        return choose_algorithm(*sizes, **keywords, algorithm=algorithm)
    except ValueError as error:
        assert algorithm not in ("auto", "general"), error
        return None


@settings(max_examples=300, deadline=None)
@given(problems(), st.sampled_from(("auto", *ALGORITHMS)))
def test_every_choice_can_run(problem, algorithm):
    """Kernels get the operands their role needs, packed when the caller's are not so."""
    (m, n, k), key = problem
    choice = chosen_or_refused((m, n, k), key, algorithm)
    if choice is None:
        return
    assert choice["algorithm"] == algorithm or (algorithm == "auto" and choice["algorithm"] in ALGORITHMS)
    item, inner = key["item"], choice["inner"]
    a_k_unit = key["a_strides"][1] == item or k == 1
    b_n_unit, b_k_unit = key["b_strides"][1] == item or n == 1, key["b_strides"][0] == item or k == 1
    if inner == "dot":
        assert (a_k_unit or choice["pack_a"]) and (b_k_unit or choice["pack_b"])
    elif inner == "stream":
        assert b_n_unit and not choice["pack_b"]
    else:
        assert b_n_unit or choice["pack_b"]
    if choice["algorithm"] == "direct":
        assert not choice["pack_a"] and not choice["pack_b"]


def check_blocks(choice, sizes, key):
    """Steps are tiles that a kernel takes; blocks are positive, whole tiles, and chunks cover K."""
    m, n, k = sizes
    assert min(choice[name] for name in ("mc", "nc", "kc", "nb", "ms", "ns")) >= 1
    check_split(choice, k)
    if choice["algorithm"] != "split_k":
        assert (choice["splits"], choice["chunk"]) == (1, k)
    if choice["inner"] == "gemm":
        assert choice["ms"] <= key["mr"] and choice["ns"] <= key["nr"] and choice["ns"] % key["vl"] == 0
        assert choice["ms"] == key["mr"] or not choice["pack_a"]
        assert choice["ns"] == key["nr"] or not choice["pack_b"]
        assert choice["nb"] % choice["ns"] == 0
        assert choice["mc"] % choice["ms"] == 0 or choice["mc"] >= m
        assert choice["nc"] % choice["ns"] == 0 or choice["nc"] >= n


@settings(max_examples=300, deadline=None)
@given(problems(), st.sampled_from(("auto", *ALGORITHMS)))
def test_every_choice_has_sound_blocks(problem, algorithm):
    sizes, key = problem
    choice = chosen_or_refused(sizes, key, algorithm)
    if choice is not None:
        check_blocks(choice, sizes, key)


@pytest.mark.parametrize("algorithm", TILES)
@pytest.mark.parametrize("blocks", row_blocks(), ids=str)
def test_every_small_size_has_sound_blocks(blocks, algorithm):
    """Every remainder of a few tiles, packed and in place: few of them are cut otherwise than into full tiles."""
    for n in range(1, 4 * blocks["nr"] + 2):
        for m in (n % (3 * blocks["mr"]) + 1, 40):
            for a_strides in (None, transposed(m, blocks["item"])):
                choice = choose_algorithm(m, n, 100, algorithm=algorithm, a_strides=a_strides, **blocks)
                check_blocks(choice, (m, n, 100), blocks)


def last_level(key):
    return max(key["l2"][0], key["l3"][0])


@settings(max_examples=300, deadline=None)
@given(problems(), st.sampled_from(("auto", *ALGORITHMS)))
def test_blocks_respect_the_caches(problem, algorithm):
    """A's micro-panel in L1, a block of B in L2, B's packed panel in the last level; unless one tile alone is larger.

    A packed panel of A is only bounded, whatever M is, as its micro-panels are used one after the other.
    """
    (m, n, k), key = problem
    choice = chosen_or_refused((m, n, k), key, algorithm)
    if choice is None:
        return
    item, kc, l1, l2 = key["item"], choice["kc"], key["l1d"][0], key["l2"][0]
    if choice["inner"] == "gemm":
        if choice["algorithm"] == "general":
            assert key["mr"] * kc * item <= l1
        if choice["pack_b"]:
            assert kc * choice["nc"] * item <= last_level(key) or choice["nc"] <= key["nr"]
        if choice["pack_a"]:
            assert kc * choice["mc"] * item <= 32 * MIB
        assert kc * choice["nb"] * item <= l2 or choice["nb"] <= key["nr"]
    elif choice["inner"] == "stream":
        assert min(m, 4) * choice["nc"] * item <= l1
        assert m <= 4 or kc * min(choice["nc"], n) * item <= l2 or kc <= 8


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 8), st.sampled_from(row_blocks()), st.integers(1, 20000), st.integers(1, 20000), st.integers(1, 20000))
def test_larger_caches_never_make_smaller_blocks(times, blocks, m, n, k):
    small = choose_algorithm(m, n, k, algorithm="general", **blocks, **HASWELL)
    for level, block in (("l1d", "kc"), ("l2", "nb"), ("l3", "nc")):
        size, ways, line = HASWELL[level]
        large = choose_algorithm(m, n, k, algorithm="general", **blocks, **{**HASWELL, level: (times * size, ways, line)})
        even = 0 if block == "kc" else blocks["nr"]  # cutting more columns evenly may take a tile off each block
        assert large[block] >= small[block] - even


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(row_blocks()), st.integers(1, 20000), st.integers(1, 20000), st.integers(1, 20000))
def test_blocks_are_even(blocks, m, n, k):
    """No short last block: all blocks of a dimension together are at most one tile a block longer than it."""
    turned = transposed(m, blocks["item"])  # so that A is packed too
    choice = choose_algorithm(m, n, k, algorithm="general", a_strides=turned, **blocks, **HASWELL)
    for size, block, tile in ((m, choice["mc"], blocks["mr"]), (n, choice["nc"], blocks["nr"]), (k, choice["kc"], 8)):
        count = -(-size // block)
        assert count == 1 or count * block < size + count * tile


@settings(max_examples=100, deadline=None)
@given(problems())
def test_a_choice_depends_on_the_numbers_alone(problem):
    sizes, key = problem
    first = choose_algorithm(*sizes, **key)
    with gemmkit.threads(1), gemmkit.isa("scalar"):
        assert choose_algorithm(*sizes, **key) == first


def test_no_thread_count_goes_in():
    """What decides the order of summation must not know it, or results would change with it."""
    assert not [p for p in inspect.signature(choose_algorithm).parameters if "thread" in p]


@pytest.mark.parametrize("algorithm", ("auto", *ALGORITHMS))
def test_empty_products(algorithm):
    """Some size is 0: a choice or a refusal.  In a process of its own, as a division by zero would end this one."""
    program = f"""
from itertools import product
from gemmkit._kernels._schedule import choose_algorithm
for m, n, k in product((0, 1, 5, 100), repeat=3):
    for item in (4, 8):
        for b_strides in (None, (item, k * item)):
            try:
                choose_algorithm(m, n, k, item=item, b_strides=b_strides, algorithm={algorithm!r})
            except ValueError:
                pass
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, f"exit status {result.returncode} {result.stderr}"


# ---- Cache associativity

L2 = ZEN4["l2"]


def test_fits_clear_cases():
    assert fits(64, 192, 192, L2)  # packed: 12 KiB
    assert fits(256, 192, 8192 + 64, L2)
    assert not fits(256, 192, 8192, L2)  # a power of two sends every row to the same 16 groups of sets
    assert not fits(10_000, 192, 192, L2)  # larger than the cache
    assert fits(0, 192, 192, L2)
    assert not fits(256, 192, -8192, L2) and fits(256, 192, -8192 - 64, L2)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 4000), st.integers(1, 3), st.integers(3, 3000), st.sampled_from([c["l2"] for c in MACHINES]))
def test_fits_agrees_with_a_simulated_cache(rows, lines, step, cache):
    """Lines counted set by set: what fits overloads no set, and what does not fit fills the busiest set by half."""
    size, ways, line = cache
    sets = size // (ways * line)
    loads = Counter((r * step + i) % sets for r in range(rows) for i in range(lines))
    busiest = max(loads.values())
    if fits(rows, lines * line, step * line, cache):
        assert busiest <= ways
    else:
        assert busiest > ways // 2


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4000), st.integers(1, 500), st.integers(0, 20000), st.sampled_from([c["l2"] for c in MACHINES]))
def test_fewer_rows_and_more_ways_fit_as_well(rows, width, stride, cache):
    if fits(rows, width, stride, cache):
        size, ways, line = cache
        assert fits(rows // 2, width, stride, cache) and fits(rows - 1, width, stride, cache)
        assert fits(rows, width, stride, (2 * size, 2 * ways, line))
