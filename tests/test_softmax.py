"""Softmax rows: scan, weigh, rescale and divide, each alone, on tiles of any number of keys whose rows lie apart.

Every array ends or begins at a page that can't be touched, lies among poison that must stay, and what a function only
reads is the same afterwards.  Results are compared with numpy's exp and tanh in a wider type.  Units of the last place:

    exp     1.0 with FMA (of all float32 the worst is 0.88), 1.25 without (1.18);  0 below the least normal number;  1 of 0
    tanh    1.5 (1.37 was found)
    bfloat16 weights    half a unit of bfloat16 beside that of exp
"""
from functools import cache
from itertools import product
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from support import (
    EDGES,
    POISON,
    GuardedBuffer,
    as_params,
    bits_of,
    check_values,
    contiguous_strides,
    extent,
    same_bits,
    wider,
)

import gemmkit
from gemmkit._kernels import _registry

ROWS = _registry.softs()
KEYS = (0, 1, 2, 3, 4, 5, 7, 8, 31, 128, 129)
VECTORS = (1, 2, 3)
FUSED = ("avx2", "avx512")  # sets whose rows multiply and add in one rounding
TANH = 1.5  # units of the last place
FACTORS = (1.0, 1.37, 1.9999)
INF = np.inf
GAPS = {"s": 5, "p": 3, "bias": 7}  # elements from the end of a row to the next
WRITES = {"scan": ("s", "next"), "weigh": ("max", "alpha", "sum", "p"), "rescale": ("s",), "divide": ("s",)}
NEEDS = {"scan": ("max", "next"), "weigh": ("max", "next", "alpha", "sum"), "rescale": ("alpha",), "divide": ("sum",)}


def rows(where=lambda row: True):
    return as_params(row for row in ROWS if where(row))


def exp_bound(row):
    return 1.0 if row["isa"] in FUSED else 1.25


def in_pairs(row):
    return row["out"] == "bfloat16"


def weight_bound(row):
    """In units of the type of weights."""
    return 0.5 + exp_bound(row) / 2 ** 16 if in_pairs(row) else exp_bound(row)


def unit(row):
    return float(np.finfo(row["acc"]).eps) / 2


def ulps(got, want, dtype):
    """|got - want| in units of the last place that `want`, of a wider type, would have in dtype."""
    info = ml_dtypes.finfo(dtype)
    exponent = np.maximum(np.frexp(want)[1] - 1, info.minexp)
    return abs(got.astype(want.dtype) - want) / np.ldexp(want.dtype.type(1), exponent - info.nmant)


# ---- Calls

class Placed:
    """A copy of an array beside a page that can't be touched; bytes that are not the array's are poison."""

    def __init__(self, values, strides=None, edge="end"):
        values = np.asarray(values)
        strides = contiguous_strides(values.shape, values.itemsize) if strides is None else strides
        below, above = extent(values.shape, strides, values.itemsize)
        self.buffer = GuardedBuffer(above - below)
        self.x = self.buffer.place(values, strides, edge)
        self.first, self.before = values, self.buffer.raw().copy()

    def take(self):
        """What it holds now, after a look at the bytes between its rows and around it."""
        got = self.x.copy()
        self.x[...] = self.first
        assert np.array_equal(self.buffer.raw(), self.before), "a byte outside the array was written"
        return got


def poisoned(shape, dtype):
    x = np.empty(shape, dtype)
    x.view(np.uint8)[...] = POISON
    return x


def apart(x, name):
    """Strides of rows that don't touch."""
    item = x.itemsize
    within = contiguous_strides(x.shape[1:], item)
    return (int(np.prod(x.shape[1:])) + GAPS[name]) * (2 if name == "p" and x.ndim == 3 else 1) * item, *within


def call(row, which, s, *, edge="end", in_place=False, factor=1.0, softcap=0.0, **given):
    """Every argument as one function has left it; `returned` is what it returns.  Outputs that aren't given are poison."""
    n, lanes = s.shape
    given = {"s": s, **{name: poisoned(lanes, s.dtype) for name in NEEDS[which]}, **given}
    if which == "weigh" and not in_place:
        given["p"] = poisoned((-(-n // 2), lanes, 2), "bfloat16") if in_pairs(row) else poisoned((n, lanes), s.dtype)
    placed = {name: Placed(x, apart(x, name) if name in GAPS else None, edge) for name, x in given.items()}
    arrays = {name: x.x for name, x in placed.items()}
    if in_place:
        arrays["p"] = arrays["s"]
    returned = _registry.run_soft(row["index"], which, arrays.pop("s"), **arrays, factor=factor, softcap=softcap)
    after = {name: x.take() for name, x in placed.items()}
    written = {*WRITES[which], *(("s",) if in_place else ())}
    for name in after.keys() - written:
        assert same_bits(after[name], np.ascontiguousarray(given[name])), f"{which} has changed {name}"
    if in_place:
        after["p"] = after["s"]
    return SimpleNamespace(**after, returned=returned)


def weights(row, p, n):
    """Weights as the type of the scores; the second of the last pair of an odd number is 0."""
    if not in_pairs(row):
        return p
    assert n % 2 == 0 or not bits_of(p[-1, :, 1]).any()
    return p.astype(np.float32).transpose(0, 2, 1).reshape(-1, p.shape[1])[:n]


def weigh_all(row, x):
    """The weights of any numbers, beside a maximum of 0."""
    lanes = 8 * row["vl"]
    n = -(-x.size // lanes)
    s = np.zeros((n, lanes), row["acc"])
    s.reshape(-1)[:x.size] = x
    p = np.empty((-(-n // 2), lanes, 2) if in_pairs(row) else s.shape, row["out"])
    zeros = [np.zeros(lanes, row["acc"]) for _ in range(4)]
    assert not _registry.run_soft(row["index"], "weigh", s, *zeros, p)
    return weights(row, p, n).reshape(-1)[:x.size]


def tiles(row):
    """All numbers of keys and vectors, at either end of memory."""
    for turn, (n, vectors) in enumerate(product(KEYS, VECTORS)):
        yield turn, n, vectors * row["vl"], EDGES[turn % 2]


def some_scores(rng, n, lanes, dtype, turn):
    """Lanes of seven kinds, in an order that turns: any keys, none, few, all far below one, all the same, large, tiny."""
    s = rng.normal(0, 10, (n, lanes))
    kind = (np.arange(lanes) + turn) % 7
    s[:, kind == 1] = -INF
    s[(kind == 2) & (rng.random((n, lanes)) < 0.7)] = -INF
    s[1:, kind == 3] = -1e20 * abs(s[1:, kind == 3])
    s[:, kind == 4] = 3
    s[:, kind == 5] *= 20
    s[:, kind == 6] *= 1e-30
    return s.astype(dtype)


def some_maxima(rng, lanes, dtype, turn):
    """What a lane may have seen: nothing, or a maximum below or above what comes."""
    x = rng.normal(0, 20, lanes).astype(dtype)
    x[(np.arange(lanes) + turn) % 7 % 3 == 1] = -INF
    return x


# ---- exp

def values_of_exponent(dtype, exponent, count=None):
    """All float32 of an exponent, or some of a type."""
    if count is None:
        return (np.arange(1 << 23, dtype=np.uint32) | np.uint32(127 + exponent << 23)).view(np.float32)
    return np.ldexp(np.random.default_rng(exponent & 0xffff).uniform(1, 2, count), exponent).astype(dtype)


def neighbours(x, dtype, count):
    """x rounded, and as many numbers on either side."""
    x = np.asarray(x).astype(dtype)
    out = [x]
    for to in (-INF, INF):
        y = x
        for _ in range(count):
            y = np.nextafter(y, np.dtype(dtype).type(to))
            out.append(y)
    return np.concatenate(out)


@cache
def arguments(dtype):
    """1 down to where weights have vanished: each exponent, all values of two, where n = round(x / ln 2) turns, others."""
    rng = np.random.default_rng(5)
    info = np.finfo(dtype)
    lowest = np.log(info.tiny) - 1
    turns = (np.arange(info.minexp - 2, 3) + 0.5) * np.log(2)
    parts = [-values_of_exponent(dtype, e, 4096 if dtype == "float32" else 512) for e in range(info.minexp - info.nmant, 10)]
    parts += [-x[:512] for x in parts]  # up to 1
    parts += [neighbours(turns, dtype, 40), neighbours([np.log(info.tiny), np.log(info.tiny) + 5e-5, -1, 1], dtype, 2000)]
    parts += [rng.uniform(lowest, 1, 1 << 18).astype(dtype), rng.uniform(-2, 1, 1 << 18).astype(dtype)]
    if dtype == "float32":
        parts += [-values_of_exponent(dtype, e) for e in (-2, 6)]
    x = np.concatenate(parts)
    return x[(x >= lowest) & (x <= 1)]


@pytest.mark.parametrize("row", rows())
def test_weights_of_all_magnitudes(row):
    """Within the bound wherever exp is a normal number, and 0 below."""
    every, least = arguments(row["acc"]), np.finfo(row["acc"]).tiny
    for x in np.array_split(every, -(-every.size // (1 << 20))):
        got, want = weigh_all(row, x), np.exp(x.astype(wider(row["acc"])))
        check_weights(got, want, row["out"], weight_bound(row))
        assert not got[want < least].any()


@pytest.mark.parametrize("row", rows())
def test_weights_that_are_exact(row):
    """1 of both zeros and of what is too small to tell from them; 0 of whatever is far below, -inf among it."""
    info = np.finfo(row["acc"])
    small = np.array([0, -0.0, info.tiny, info.smallest_subnormal, info.eps / 8], row["acc"])
    assert (weigh_all(row, np.concatenate([small, -small])) == 1).all()
    far = np.array([-INF, info.min, info.min / 3, -1e30, -1e6, -2000, 1.001 * np.log(info.tiny)], row["acc"])
    got = weigh_all(row, far)
    assert not got.any() and not np.signbit(got).any()


@pytest.mark.parametrize("row", rows())
def test_a_nan_stays_one_whatever_its_bits(row):
    """Of float32 each of them; of float64 each bit of it alone, and others."""
    if row["acc"] == "float32":
        payloads = np.arange(1, 1 << 23, dtype=np.uint32) | np.uint32(0xff << 23)
        signs = np.uint32([0, 1 << 31])
    else:
        some = np.random.default_rng(row["index"]).integers(1, 1 << 52, 1 << 18, np.uint64)
        payloads = np.concatenate([some, np.uint64(1) << np.arange(52, dtype=np.uint64)]) | np.uint64(0x7ff << 52)
        signs = np.uint64([0, 1 << 63])
    for part in np.array_split(payloads, 8):
        for sign in signs:
            assert np.isnan(weigh_all(row, (part | sign).view(row["acc"]))).all()


# ---- weigh

def weighed(s, factor, m):
    """Weights beside maxima m in a wider type: exp of what a product and a difference, each rounded, leave."""
    with np.errstate(invalid="ignore"):
        return np.exp((s * s.dtype.type(factor) - m).astype(wider(s.dtype)))


def check_weights(got, want, dtype, bound):
    """Within so many units of the last place; below the least normal number 0, and nothing is ever subnormal."""
    least, gone = float(ml_dtypes.finfo(dtype).tiny), got == 0
    assert want[gone].max(initial=0) < least * 1.0001 and got[~gone].min(initial=1) >= least
    worst = ulps(got[~gone], want[~gone], dtype).max(initial=0)
    assert worst <= bound, f"{worst} units of the last place"


def check_weigh(row, s, factor, edge, **vectors):
    """One tile whose maxima have been found: weights, alpha, sums, maxima and the answer."""
    after = call(row, "weigh", s, edge=edge, factor=factor, alpha=poisoned(s.shape[1], s.dtype), **vectors)
    n, before, m, sums = len(s), vectors["max"], vectors["next"], vectors["sum"]
    of = np.where(m == -INF, m.dtype.type(0), m)  # of a lane without a key any number
    p = weights(row, after.p, n)
    check_weights(p, weighed(s, factor, of), row["out"], weight_bound(row))
    assert not p[:, m == -INF].any()
    check_weights(after.alpha, weighed(before, 1, of), row["acc"], exp_bound(row))
    assert not after.alpha[before == -INF].any() and (after.alpha[(before == m) & (m > -INF)] == 1).all()
    total = sums.astype(wider(s.dtype)) * after.alpha + p.astype(wider(s.dtype)).sum(0)
    assert (abs(after.sum - total) <= (n + 4) * unit(row) * total).all()
    assert same_bits(after.max, m)
    assert bool(after.returned) == bool((after.alpha != 1).any())
    return after


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("row", rows())
def test_weigh(row, factor):
    """All numbers of keys and lanes, of every kind: none, the first ones, larger or smaller ones than before."""
    rng = np.random.default_rng(row["index"])
    for turn, n, lanes, edge in tiles(row):
        s, before = some_scores(rng, n, lanes, row["acc"], turn), some_maxima(rng, lanes, row["acc"], turn // 2)
        found = np.maximum(before, s.max(0, initial=-INF) * before.dtype.type(factor))
        sums = np.where(before == -INF, 0, rng.uniform(1, 30, lanes)).astype(row["acc"])
        check_weigh(row, s, factor, edge, max=before, next=found, sum=sums)


@pytest.mark.parametrize("row", rows())
def test_weigh_tells_whether_any_alpha_is_not_one(row):
    rng = np.random.default_rng(row["index"])
    lanes = 3 * row["vl"]
    s, m = np.full((3, lanes), 2, row["acc"]), rng.uniform(2, 9, lanes).astype(row["acc"])
    sums = np.ones(lanes, row["acc"])
    assert not check_weigh(row, s, 1, "end", max=m, next=m, sum=sums).returned
    for lane in range(lanes):
        for lower in (m[lane] - 1, -INF):
            before = m.copy()
            before[lane] = lower
            assert check_weigh(row, s, 1, "end", max=before, next=m, sum=sums).returned
        for spoiled in ("max", "next"):
            vectors = {"max": m.copy(), "next": m.copy()}
            vectors[spoiled][lane] = np.nan
            after = call(row, "weigh", s, sum=sums, **vectors)
            assert after.returned and np.array_equal(np.isnan(after.alpha), np.arange(lanes) == lane)


@pytest.mark.parametrize("row", rows(lambda row: not in_pairs(row)))
def test_weights_in_the_place_of_scores(row):
    rng = np.random.default_rng(row["index"])
    for turn, n, lanes, edge in tiles(row):
        s = some_scores(rng, n, lanes, row["acc"], turn)
        vectors = {"max": some_maxima(rng, lanes, row["acc"], turn), "sum": np.ones(lanes, row["acc"])}
        vectors["next"] = np.maximum(vectors["max"], s.max(0, initial=-INF))
        plain, placed = (call(row, "weigh", s, edge=edge, in_place=x, **vectors) for x in (False, True))
        for name in ("p", "alpha", "sum", "max"):
            assert same_bits(getattr(plain, name), getattr(placed, name))


# ---- scan

@pytest.mark.parametrize("row", rows())
def test_the_maximum_is_found_wherever_it_is(row):
    lanes = 2 * row["vl"]
    for n in KEYS[1:]:
        for key in range(n):
            s = np.full((n, lanes), -7, row["acc"])
            s[key, key % lanes] = 5
            got = call(row, "scan", s, max=np.full(lanes, -9, row["acc"])).next
            assert np.array_equal(got, np.where(np.arange(lanes) == key % lanes, 5, -7))


def scanned(s, factor, softcap, bias, low, high, u):
    """z in the scores' type as it is rounded step by step, or with a cap in a wider type, and how far off it may be."""
    dtype, wide = s.dtype.type, wider(s.dtype)
    with np.errstate(all="ignore"):
        z, error = s * dtype(factor), wide(0)
        if softcap:
            c = wide(dtype(softcap))
            z = c * np.tanh(z.astype(wide) / c)
            error = (2 * TANH + 2.5) * u * abs(z) + (c + 1) * np.finfo(dtype).smallest_subnormal
        if bias is not None:
            z = np.where(bias == -INF, dtype(-INF), z + bias)  # which decides whatever the score is
            error = error + (u * np.where(np.isfinite(z), abs(z), 0) if softcap else 0)
        if low is not None:
            key = np.arange(len(s))[:, None]
            z = np.where((key >= low) & (key < high), z, z.dtype.type(-INF))
    return z, np.broadcast_to(error, z.shape)


def check_scan(row, s, before, edge, factor, softcap, bias, low, high):
    """What is stored, and the largest number seen: of a lane with a NaN it may be any."""
    given = {name: x for name, x in (("bias", bias), ("low", low), ("high", high)) if x is not None}
    after = call(row, "scan", s, edge=edge, factor=factor, softcap=softcap, max=before, **given)
    z, error = scanned(s, factor, softcap, bias, low, high, unit(row))
    stored = after.s
    if softcap:
        with np.errstate(invalid="ignore"):
            off = abs(stored - z) <= np.where(np.isfinite(error), error, 0)
        assert (off | (stored == z) | (np.isnan(stored) & np.isnan(z))).all()
    elif given:
        check_values(stored, z)
    else:  # weigh is to multiply
        assert same_bits(stored, s)
        stored = z
    sound = ~(np.isnan(stored).any(0) | np.isnan(before))
    check_values(after.next[sound], np.maximum(before, stored.max(0, initial=-INF))[sound], zeros_have_signs=False)


def some_bounds(rng, n, lanes, dtype, turn):
    """Intervals of keys: all, none of either kind, some, one, wider than the tile, up to its end, from its beginning."""
    low, high = np.sort(rng.integers(0, n + 1, (2, lanes)), axis=0)
    kind = (np.arange(lanes) + turn) % 8
    low[kind == 0], high[kind == 0] = 0, n
    high[kind == 1] = low[kind == 1]
    low[kind == 2], high[kind == 2] = n, 0
    high[kind == 3] = low[kind == 3] + 1
    low[kind == 4], high[kind == 4] = -3, n + 3
    high[kind == 5], low[kind == 6] = n, 0
    return low.astype(dtype), high.astype(dtype)


@pytest.mark.parametrize("softcap", [0.0, 1.0, 30.3])
@pytest.mark.parametrize("with_bounds", [False, True], ids=["all keys", "bounds"])
@pytest.mark.parametrize("with_bias", ["no bias", "bias", "one a key"])
@pytest.mark.parametrize("row", rows())
def test_scan(row, with_bias, with_bounds, softcap):
    """What changes scores, nothing, alone and together: each step rounds once, what is left out is -inf."""
    rng = np.random.default_rng(row["index"])
    for turn, n, lanes, edge in tiles(row):
        s, before = some_scores(rng, n, lanes, row["acc"], turn), some_maxima(rng, lanes, row["acc"], turn // 2)
        bias, low, high = None, None, None
        if with_bias != "no bias":
            bias = rng.normal(0, 5, (n, 1 if with_bias == "one a key" else lanes)).astype(row["acc"])
            bias[rng.random(bias.shape) < 0.2] = -INF
        if with_bounds:
            low, high = some_bounds(rng, n, lanes, row["acc"], turn)
        check_scan(row, s, before, edge, FACTORS[turn % 3], softcap, bias, low, high)


@pytest.mark.parametrize("softcap", [0.0, 20.0])
@pytest.mark.parametrize("row", rows())
def test_scan_of_special_numbers(row, softcap):
    """As IEEE 754 says, but that a bias of -inf, or being outside the bounds, makes -inf even of NaN."""
    special = np.array([np.nan, INF, -INF, 0, -0.0, 3, -3, np.finfo(row["acc"]).max, np.finfo(row["acc"]).tiny], row["acc"])
    x, y = (a.reshape(-1) for a in np.meshgrid(special, special))
    lanes = -(-x.size // (2 * row["vl"])) * 2 * row["vl"]
    s, bias = (np.resize(a, lanes)[None].repeat(3, 0) for a in (x, y))
    before = np.full(lanes, -INF, row["acc"])
    for low, high in ((None, None), (np.full(lanes, 1, row["acc"]), np.full(lanes, 2, row["acc"]))):
        for b in (bias, bias[:, :1], bias[:, 20:21], None):
            check_scan(row, s, before, "end", 1.5, softcap, b, low, high)


@cache
def tanh_arguments(dtype):
    """Each exponent, all values of the two around the seam of tanh's two forms, and what is beyond all."""
    info = np.finfo(dtype)
    parts = [values_of_exponent(dtype, e, 2048) for e in range(info.minexp - info.nmant, info.maxexp)]
    parts += [np.random.default_rng(3).uniform(0, 25, 1 << 18).astype(dtype), neighbours([0.625, 1, 10, 20], dtype, 2000)]
    parts += [values_of_exponent(dtype, e) for e in (-1, 0)] if dtype == "float32" else []
    parts += [np.array([0, INF, np.nan, info.max, info.tiny, info.smallest_subnormal], dtype)]
    x = np.concatenate(parts)
    return np.concatenate([x, -x])


@pytest.mark.parametrize("row", rows(lambda row: not in_pairs(row)))
def test_the_cap_is_a_tanh_of_all_magnitudes(row):
    """A cap of 1 shows tanh itself: within 1.5 units of the last place, never above 1; subnormal numbers are exact."""
    every, worst, lanes = tanh_arguments(row["acc"]), 0, 4 * row["vl"]
    for x in np.array_split(every, -(-every.size // (1 << 20))):
        s = np.resize(x, (-(-x.size // lanes), lanes))
        ends = np.empty((2, lanes), row["acc"])
        ends[0] = -INF
        _registry.run_soft(row["index"], "scan", s, *ends, softcap=1.0)
        got, want = s.reshape(-1)[:x.size], np.tanh(x.astype(wider(row["acc"])))
        assert np.array_equal(np.isnan(got), np.isnan(x))
        got, want, x = got[~np.isnan(x)], want[~np.isnan(x)], x[~np.isnan(x)]
        assert (abs(got) <= 1).all() and (got[abs(x) > 20] == np.sign(x[abs(x) > 20])).all()
        tiny = abs(x) < np.finfo(row["acc"]).tiny
        assert np.array_equal(got[tiny], x[tiny])
        worst = max(worst, ulps(got, want, row["acc"]).max(initial=0))
    assert worst <= TANH, f"{worst} units of the last place"


# ---- rescale, divide

@pytest.mark.parametrize("which", ["rescale", "divide"])
@pytest.mark.parametrize("row", rows())
def test_rescale_and_divide(row, which):
    """One rounding for each element, as numpy has it; zeros, infinities and NaN too."""
    rng = np.random.default_rng(row["index"])
    for turn, n, lanes, edge in tiles(row):
        o, x = rng.normal(0, 3, (n, lanes)).astype(row["acc"]), rng.uniform(0, 5, lanes).astype(row["acc"])
        for special in (np.nan, INF, -INF, 0, -0.0):
            o[rng.random(o.shape) < 0.03] = special
            x[rng.random(lanes) < 0.05] = abs(special)
        with np.errstate(all="ignore"):
            want = o * x if which == "rescale" else o / x
        check_values(call(row, which, o, edge=edge, **{"alpha" if which == "rescale" else "sum": x}).s, want)


# ---- scan and weigh, one after the other

def softmax(row, s, before, sums, *, edge="end", factor=1.0, softcap=0.0, **given):
    """A tile as the engine does it; scan has multiplied the scores unless there was nothing else to do."""
    found = call(row, "scan", s, edge=edge, factor=factor, softcap=softcap, max=before, **given)
    factor = 1.0 if given or softcap else factor
    return call(row, "weigh", found.s, edge=edge, factor=factor, max=before, next=found.next, sum=sums)


@pytest.mark.parametrize("row", rows())
def test_special_scores_reach_their_own_lane_only(row):
    """NaN or +inf: a weight and the sum are NaN, and stay so; -inf: as if the key weren't there.  Other lanes keep their bits."""
    rng = np.random.default_rng(row["index"])
    lanes = 3 * row["vl"]
    before, sums = some_maxima(rng, lanes, row["acc"], 0), rng.uniform(1, 2, lanes).astype(row["acc"])
    for n in (1, 2, 5, 8, 31):
        s = rng.normal(0, 4, (n, lanes)).astype(row["acc"])
        clean = softmax(row, s, before, sums, factor=1.3)
        for special, key, lane in product((np.nan, INF, -INF), {0, n // 2, n - 1}, {0, row["vl"] - 1, lanes - 1}):
            spoiled = s.copy()
            spoiled[key, lane] = special
            after, others = softmax(row, spoiled, before, sums, factor=1.3), np.arange(lanes) != lane
            p, q = weights(row, after.p, n), weights(row, clean.p, n)
            assert same_bits(p[:, others], q[:, others])
            for name in ("max", "alpha", "sum"):
                assert same_bits(getattr(after, name)[others], getattr(clean, name)[others])
            if special == -INF:
                rest = np.delete(s, key, 0)
                alone = softmax(row, rest, before, sums, factor=1.3)
                assert p[key, lane] == 0 and same_bits(np.delete(p, key, 0)[:, lane], weights(row, alone.p, n - 1)[:, lane])
                continue
            assert np.isnan(p[key, lane]) and np.isnan(after.sum[lane])
            if special == INF:
                assert after.max[lane] == INF and not np.delete(p[:, lane], key).any() and after.alpha[lane] == 0
            again = softmax(row, s, after.max, after.sum, factor=1.3)
            assert np.array_equal(np.isnan(again.sum), ~others)


@pytest.mark.parametrize("row", rows())
def test_a_lane_does_not_know_its_neighbours(row):
    """The same bits whatever lies beside a vector, and wherever it lies in memory."""
    rng = np.random.default_rng(row["index"])
    vl = row["vl"]
    for n in (1, 4, 31):
        s, before = some_scores(rng, n, 3 * vl, row["acc"], n), some_maxima(rng, 3 * vl, row["acc"], 1)
        bias, sums = rng.normal(0, 1, s.shape).astype(row["acc"]), np.ones(3 * vl, row["acc"])
        whole = softmax(row, s, before, sums, factor=1.7, softcap=9.0, bias=bias)
        for at, edge in product(range(0, 3 * vl, vl), EDGES):
            part = slice(at, at + vl)
            alone = softmax(row, s[:, part], before[part], sums[part], edge=edge, factor=1.7, softcap=9.0, bias=bias[:, part])
            assert same_bits(np.ascontiguousarray(whole.p[:, part]), alone.p)
            for name in ("max", "alpha", "sum"):
                assert same_bits(getattr(whole, name)[part], getattr(alone, name))


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("row", rows())
def test_tiles_one_after_the_other(row, factor):
    """All four functions over a sequence in pieces, of which the first has no key: the softmax of all of it."""
    rng = np.random.default_rng(row["index"])
    lanes, lengths, wide = 2 * row["vl"], (2, 0, 3, 1, 8, 31, 4, 129, 5), wider(row["acc"])
    s = (rng.normal(0, 4, (sum(lengths), lanes)) + np.linspace(-9, 9, sum(lengths))[:, None]).astype(row["acc"])
    s[:2] = -INF
    v = rng.normal(0, 1, (len(s), 3)).astype(row["acc"])
    m, sums, o = np.full(lanes, -INF, row["acc"]), np.zeros(lanes, row["acc"]), np.zeros((3, lanes), row["acc"])
    for end, length in zip(np.cumsum(lengths), lengths):
        at = slice(end - length, end)
        after = softmax(row, s[at], m, sums, factor=factor)
        if after.returned:
            o = call(row, "rescale", o, alpha=after.alpha).s
        m, sums = after.max, after.sum
        o = (o + v[at].T.astype(wide) @ weights(row, after.p, length).astype(wide)).astype(row["acc"])
    y = call(row, "divide", o, sum=sums).s
    z = s.astype(wide) * wide(s.dtype.type(factor))
    p = np.exp(z - z.max(0))
    p /= p.sum(0)
    bound = (2.0 ** -7 if in_pairs(row) else 400 * unit(row)) * (p.T @ abs(v.astype(wide))).T
    assert (abs(y - v.T.astype(wide) @ p) <= bound).all()


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("row", rows())
def test_scores_however_large_have_weights(row, factor):
    """One key far above the others takes all of the weight: neither is the largest weight 0, nor does it overflow."""
    rng, lanes = np.random.default_rng(row["index"]), 4 * row["vl"]
    before, sums = np.full(lanes, -INF, row["acc"]), np.zeros(lanes, row["acc"])
    for exponent in range(20, np.finfo(row["acc"]).maxexp - 2, 3):
        s = np.zeros((2, lanes), row["acc"])
        s[1] = np.ldexp(rng.uniform(1, 2, lanes), exponent)
        after = softmax(row, s, before, sums, factor=factor)
        p = weights(row, after.p, 2)
        with np.errstate(all="ignore"):
            share = p / after.sum
        assert (share == [[0], [1]]).all(), f"scores near 2^{exponent}: the largest has {share[1]}"


# ---- selection

def in_use():
    return [name for name, bit in _registry.ISA_BITS.items() if bit & _registry.settings()]


@pytest.mark.parametrize("path", ["streaming", "materialized", "decode"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_forced_set_has_its_softmax(isa, dtype, path):
    """The row of the strongest set in use; weights in bfloat16 where the product with v wants pairs."""
    queries = 4 if path == "decode" else 70
    shape = (1, 2, 50, 8)
    plan = gemmkit.AttentionPlan(gemmkit.AttentionDescriptor(), (1, 2, queries, 8), shape, shape, dtype, path=path)
    acc = "float64" if dtype == "float64" else "float32"
    pairs = dtype == "bfloat16" and path == "streaming" and {"avx512bf16", "amxbf16"} & {*in_use()}
    found = [row for row in ROWS if (row["acc"], row["out"]) == (acc, "bfloat16" if pairs else acc) and row["isa"] in in_use()]
    strongest = max(found, key=lambda row: list(_registry.ISA_BITS).index(row["isa"]))
    assert plan.kernels[1] == strongest["name"]
    assert strongest["isa"] == isa or isa not in {row["isa"] for row in ROWS}
    assert ("bf16bf16" in plan.kernels[2]) == bool(pairs)
