"""Hygiene of the kernel table: names, completeness, reachability, and that no instruction is where its set isn't.

The last part reads the built library with objdump: a vector instruction in a function that runs before dispatch would
end the process on an older processor, which no test on a newer one would notice.
"""
import glob
import os
import platform
import re
from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from support import (
    FLUSHES_DENORMALS,
    SERVES_MANY,
    WANTS_LINES,
    disassemble,
    flushes,
    is_narrow,
    row_params,
    sums_integers,
)

import gemmkit
from gemmkit._kernels import _registry

ROLES = ("gemm", "dot", "stream")
WIDE = {"f32": "float32", "f64": "float64"}
NARROW = {"f16": "float16", "bf16": "bfloat16", "e4m3fn": "float8_e4m3fn", "e4m3fnuz": "float8_e4m3fnuz",
          "e5m2": "float8_e5m2", "e5m2fnuz": "float8_e5m2fnuz"}
WHOLE = {"i16": "int16", "i32": "int32", "i64": "int64"}
FLOATS = {**WIDE, **NARROW}
SOURCES = {"i8": "int8", "u8": "uint8", "i4": "packed_int4", "u4": "packed_uint4"}  # of panels of quads
PANELS = {"quads_u8": "quads_u8", "quads_i8": "quads_i8", "nibbles": "nibbles"}
SUMS = {"i32q": "int32q", "f32q": "float32q"}
TYPES = {**FLOATS, **WHOLE, **SOURCES, **PANELS, **SUMS, "bool": "bool"}
TYPE = "(" + "|".join(sorted(TYPES, key=len, reverse=True)) + ")"
KERNEL_NAME = re.compile(fr"gk_(?P<role>[a-z]+)_(?P<a>{TYPE})(?P<b>{TYPE})_ukr_(?P<mr>\d+)x(?P<nr>\d+)_(?P<isa>[a-z0-9]+)")
EPILOGUE_NAME = re.compile(fr"gk_epilogue_(?P<acc>{TYPE})(?P<out>{TYPE})_(?P<isa>[a-z0-9]+)")
WEIGH_NAME = re.compile(fr"gk_weigh_(?P<acc>{TYPE})(?P<out>{TYPE})?_(?P<isa>[a-z0-9]+)")
PACKER_NAME = re.compile(fr"(?P<from>{TYPE})(?P<to>{TYPE})_(?P<isa>[a-z0-9]+)")
VECTOR_BYTES = {"sse2": 16, "avx": 32, "avx2": 32, "avxvnni": 32, "avx512": 64, "avx512vnni": 64, "avx512vbmi": 64,
                "avx512bf16": 64, "avx512fp16": 64, "amxint8": 64, "amxbf16": 64}
BYTES = {("gemm", "quads_u8", "quads_i8"), ("gemm", "quads_u8", "nibbles"), ("dot", "quads_u8", "int8"),
         ("dot", "quads_u8", "uint8"), ("dot", "uint8", "quads_i8"), ("dot", "int8", "quads_i8"),
         ("stream", "quads_u8", "int8"), ("stream", "quads_u8", "uint8")}

ROWS, PACKERS, EPILOGUES, SOFTS = _registry.rows(), _registry.packers(), _registry.epilogues(), _registry.softs()
ALL_ROWS = [pytest.param(r, id=f"{r['name']}-{r['a']}-{r['b']}") for r in ROWS]
FLOAT_ROWS, INTEGER_ROWS = ([p for p in ALL_ROWS if sums_integers(p.values[0]) == whole] for whole in (False, True))
STRENGTH = {name: i for i, name in enumerate(_registry.ISA_BITS)}
ISAS = _registry.compiled_isas()
# Sets that can do everything for a type by themselves; others only add rows to those below them.
BASES = [isa for isa in ISAS if any((r["isa"], r["a"], r["b"]) == (isa, "float32", "float32") for r in ROWS)]


def rank(isa, role, a, b):
    """Where a set stands among those with such a row: 256 bits of vpdpbusd do more than 512 of vpmaddwd."""
    return STRENGTH["avx2"] + 0.5 if isa == "avx512" and (role, a, b) in BYTES else STRENGTH[isa]


def ids(entry):
    """One function may stand in several lines, for types that it can't tell apart."""
    return "-".join((entry["name"], *(entry[x] for x in ("a", "b", "from", "to") if x in entry)))


def memory(type):
    """The type that an operand's memory has."""
    return _registry.MEMORY.get(type, type)


def item(type):
    return np.dtype(memory(type)).itemsize


# ---- Names and fields

@pytest.mark.parametrize("row", ALL_ROWS)
def test_a_name_says_what_its_row_says(row):
    name = KERNEL_NAME.fullmatch(row["name"])
    assert name, "gk_<role>_<a><b>_ukr_<MR>x<NR>_<isa>"
    assert (name["role"], name["isa"]) == (row["role"], row["isa"])
    assert [TYPES[name[x]] for x in "ab"] == [row[x] if row[x] == "nibbles" else memory(row[x]) for x in "ab"]
    assert (int(name["mr"]), int(name["nr"])) == (row["mr"], row["nr"])


@pytest.mark.parametrize("row", FLOAT_ROWS)
def test_fields_agree(row):
    assert row["role"] in ROLES and {row["a"], row["b"], row["acc"]} <= set(FLOATS.values())
    assert item(row["acc"]) >= max(item(row[x]) for x in "ab")
    if is_narrow(row) and row["kr"] == 1:  # one operand is widened as it is loaded, the other is of the accumulator's type,
        # unless the set has an instruction that widens one element into all lanes
        assert row["acc"] in (row["a"], row["b"]) and row["a"] != row["b"] or row["isa"] == "avx512fp16"
    if row["kr"] > 1:  # interleaved panels of one type, whose groups are as wide as what they are summed in
        assert row["role"] == "gemm" and row["a"] == row["b"] and row["kr"] * item(row["a"]) == item(row["acc"])
    check_tile(row, item(row["acc"]))
    assert row["flags"] in (0, FLUSHES_DENORMALS, FLUSHES_DENORMALS | WANTS_LINES)


def check_tile(row, lane):
    """Vectors of so many bytes an element."""
    if row["isa"] == "scalar":
        assert row["vl"] * lane == item(row["acc"])
    elif row["isa"] == "avx512vbmi":  # a vector of codes
        assert row["vl"] * min(item(row[x]) for x in "ab") == VECTOR_BYTES[row["isa"]]
    else:  # full vectors, or halves for narrow tiles
        assert row["vl"] * lane in (VECTOR_BYTES[row["isa"]], VECTOR_BYTES[row["isa"]] // 2)
    if row["role"] == "gemm":
        assert row["nr"] % row["vl"] == 0
        assert max(row["mr"], row["nr"]) <= 64  # what a packer takes
    if row["role"] == "stream":
        assert row["nr"] == row["vl"]


@pytest.mark.parametrize("row", INTEGER_ROWS)
def test_fields_of_integers_agree(row):
    """One type throughout; or bytes, of which panels hold four or eight steps of k, and whose other rows take one."""
    if row["a"] == row["b"]:
        assert row["acc"] == row["a"] and row["a"] in WHOLE.values() and row["kr"] == 1
        check_tile(row, item(row["acc"]))
    else:
        assert (row["role"], row["a"], row["b"]) in BYTES and row["acc"] == "int32"
        assert row["kr"] == (1 if row["role"] != "gemm" else 8 if row["b"] == "nibbles" else 4)
        check_tile(row, 4 if row["role"] == "gemm" else 1)  # a vector of sums, or of bytes
    vnni = is_stream_of_bytes(row) and row["isa"] in ("avxvnni", "avx512vnni")
    assert row["flags"] == (WANTS_LINES if row["isa"] == "amxint8" else SERVES_MANY if vnni else 0)


def is_stream_of_bytes(row):
    return row["role"] == "stream" and row["a"] == "quads_u8"


@pytest.mark.parametrize("row", EPILOGUES, ids=ids)
def test_an_epilogues_name_says_what_its_row_says(row):
    name = EPILOGUE_NAME.fullmatch(row["name"])
    assert name and (TYPES[name["acc"]], TYPES[name["out"]], name["isa"]) == (row["acc"], row["out"], row["isa"])


@pytest.mark.parametrize("row", SOFTS, ids=ids)
def test_a_softmax_rows_name_says_what_its_row_says(row):
    """It is that of weigh; a vector is of scores, whatever weights are."""
    name = WEIGH_NAME.fullmatch(row["name"])
    assert name and (TYPES[name["acc"]], TYPES[name["out"] or name["acc"]], name["isa"]) == (row["acc"], row["out"], row["isa"])
    assert row["vl"] * item(row["acc"]) == VECTOR_BYTES.get(row["isa"], item(row["acc"]))


@pytest.mark.parametrize("packer", PACKERS, ids=ids)
def test_a_packers_name_says_what_it_says(packer):
    name = PACKER_NAME.fullmatch(packer["name"])
    assert name and name["isa"] == packer["isa"]
    said, meant = (TYPES[name["from"]], TYPES[name["to"]]), (packer["from"], packer["to"])
    if said != meant:  # elements of a width are moved, whatever they mean
        assert meant[0] == meant[1] in WHOLE.values() and said[0] == said[1] and item(said[0]) == item(meant[0])


@pytest.mark.parametrize("table", [ROWS, PACKERS, EPILOGUES, SOFTS], ids=["rows", "packers", "epilogues", "softmax"])
def test_names_and_indices_are_unique(table):
    assert len(set(map(ids, table))) == len(table)
    assert [r["index"] for r in table] == list(range(len(table)))


# ---- Completeness and selection

def rows_of(isa):
    return {(r["role"], r["a"], r["b"]) for r in ROWS if r["isa"] == isa}


def packers_of(isa):
    return {(p["from"], p["to"]) for p in PACKERS if p["isa"] == isa}


def epilogues_of(isa):
    return {(e["acc"], e["out"]) for e in EPILOGUES if e["isa"] == isa}


def softs_of(isa):
    return {(s["acc"], s["out"]) for s in SOFTS if s["isa"] == isa}


def test_which_sets_are_whole():
    """All that other sets are built on, in order; nothing is compiled for others that has no use on its own."""
    assert BASES == [isa for isa in _registry.ISA_BITS if isa in BASES] and BASES[0] == "scalar"
    assert {"sse2", "avx", "avx2", "avx512"} <= set(BASES) or BASES == ["scalar"]
    for table in (PACKERS, EPILOGUES, SOFTS):
        assert {x["isa"] for x in table} <= set(ISAS)


@pytest.mark.parametrize("dtype", WIDE.values())
@pytest.mark.parametrize("isa", BASES)
def test_every_whole_set_has_every_role(isa, dtype):
    assert {(role, dtype, dtype) for role in ROLES} <= rows_of(isa)
    assert (dtype, dtype) in packers_of(isa) and (dtype, dtype) in epilogues_of(isa) and (dtype, dtype) in softs_of(isa)


@pytest.mark.parametrize("dtype", NARROW.values())
@pytest.mark.parametrize("isa", BASES)
def test_a_set_has_all_of_a_narrow_type_or_nothing(isa, dtype):
    """B read in place by each role, a dot row for a narrow A, the packer that widens, the epilogue that rounds; and masks."""
    rows = {(role, "float32", dtype) for role in ROLES} | {("dot", dtype, "float32")}
    have = ((rows & rows_of(isa)), (dtype, "float32") in packers_of(isa), ("float32", dtype) in epilogues_of(isa))
    nothing = (set(), False, False)
    if isa in ("scalar", "avx2", "avx512"):
        assert have == (rows, True, True)
    else:
        assert have in ((rows, True, True), nothing)
    assert (("bool", "float32") in packers_of(isa)) == (have != nothing)


@pytest.mark.parametrize("isa", ISAS)
def test_a_set_has_all_of_a_whole_type_or_nothing(isa):
    """Every role, an epilogue and a packer of each width, in the sets that integers are built on."""
    for dtype in WHOLE.values():
        rows = {(role, dtype, dtype) for role in ROLES}
        have = rows & rows_of(isa), (dtype, dtype) in packers_of(isa), (dtype, dtype) in epilogues_of(isa)
        assert have == ((rows, True, True) if isa in ("scalar", "avx2", "avx512") else (set(), False, False))


@pytest.mark.parametrize("isa", ISAS)
def test_a_set_multiplies_bytes_in_every_role_or_has_tiles(isa):
    """A set with a product of bytes uses it everywhere; tiles add what the set below them does not do as well."""
    products = {"scalar": BYTES, "avx2": BYTES, "avxvnni": BYTES, "avx512": BYTES, "avx512vnni": BYTES,
                "amxint8": {("gemm", "quads_u8", "quads_i8")}}
    assert BYTES & rows_of(isa) == products.get(isa, set())
    types = {x for kind in rows_of(isa) for x in kind[1:]}
    assert types & {*PANELS, "int8", "uint8"} == {x for kind in products.get(isa, ()) for x in kind[1:]}


@pytest.mark.parametrize("isa", ISAS)
def test_packers_and_epilogues_of_bytes(isa):
    """Quads in plain C and for AVX2, nibbles once; what ends a product of bytes, in the sets integers are built on."""
    quads = {(source, to) for source in SOURCES.values() for to in ("quads_u8", "quads_i8")}
    nibbles = {(source, "nibbles") for source in SOURCES.values()}
    want = quads | nibbles if isa == "scalar" else quads if isa == "avx2" else set()
    assert {p for p in packers_of(isa) if p[1] in PANELS or p[0] in SOURCES.values()} == want
    ends = {("int32", "int8"), ("int32", "bool"), ("int32q", "int32"), ("int32q", "int8"), ("int32q", "uint8"),
            *(("float32q", x) for x in NARROW.values() if x.startswith("float8"))}
    found = {e for e in epilogues_of(isa) if e[0] in SUMS.values() or (e[0] == "int32" != e[1])}
    assert found == (ends if isa in ("scalar", "avx2", "avx512") else set())


@pytest.mark.parametrize("row", [p for p in FLOAT_ROWS if p.values[0]["kr"] > 1])
def test_panels_of_groups_have_their_packers(row):
    """The set, or one below it, packs the type itself and every narrower one, each of which is exact in it."""
    below = set.union(*(packers_of(isa) for isa in ISAS if STRENGTH[isa] <= STRENGTH[row["isa"]]))
    assert {(t, row["a"]) for t in FLOATS.values() if t == row["a"] or item(t) < item(row["a"])} <= below


@pytest.mark.parametrize("row", [p for p in FLOAT_ROWS if p.values[0]["kr"] > 1])
def test_panels_of_groups_have_their_softmax(row):
    """Attention multiplies such panels of values by weights: the set, or one below it, makes them."""
    below = set.union(*(softs_of(isa) for isa in ISAS if STRENGTH[isa] <= STRENGTH[row["isa"]]))
    assert (row["acc"], row["a"]) in below


@pytest.mark.parametrize("row", [p for p in ALL_ROWS if flushes(p.values[0])])
def test_a_row_that_flushes_has_a_stand_in(row):
    """One that reads the same panels and doesn't flush, of a set that is there whenever the row's own is."""
    same = ("role", "a", "b", "acc", "mr", "nr", "kr")
    found = [r for r in ROWS if all(r[x] == row[x] for x in same) and not flushes(r)]
    assert found and all(STRENGTH[r["isa"]] < STRENGTH[row["isa"]] and r["isa"] in BASES for r in found)


def test_stronger_sets_come_first():
    """activate() takes the first entry that the machine can run."""
    order = defaultdict(list)
    for r in ROWS:
        order[r["role"], r["a"], r["b"]].append(rank(r["isa"], r["role"], r["a"], r["b"]))
    for p in PACKERS:
        order["pack", p["from"], p["to"]].append(STRENGTH[p["isa"]])
    for e in EPILOGUES:
        order["epilogue", e["acc"], e["out"]].append(STRENGTH[e["isa"]])
    for s in SOFTS:
        order["softmax", s["acc"], s["out"]].append(STRENGTH[s["isa"]])
    for found in order.values():
        assert found == sorted(found, reverse=True)


def chosen(role, a, b, n):
    """The name of the row in use, None where there is none."""
    names = [name for name, reason in _registry.why_refused(role, a, b, n) if reason is None]
    assert len(names) <= 1
    return names[0] if names else None


def used_when_forced(isa):
    """The sets in use when one is forced: it and those below, but none that is slow unless it is the one asked for."""
    slow = _registry.cpu_info()["slow"]
    return [x for x in _registry.usable_isas() if STRENGTH[x] <= STRENGTH[isa] and (x == isa or x not in slow)]


@pytest.mark.parametrize("row", row_params(integers=None))
def test_every_row_is_chosen_for_some_width(row):
    with gemmkit.isa(row["isa"]):
        if row["isa"] == "avx512" and (row["role"], row["a"], row["b"]) in BYTES:  # for machines without AVX-VNNI
            _registry.restore(_registry.settings() & ~_registry.ISA_BITS["avxvnni"])
        widths = (*range(1, row["nr"] + 2), 1 << 30)
        assert row["name"] in {chosen(row["role"], row["a"], row["b"], n) for n in widths}


KINDS_OF_ROWS = sorted({(r["role"], r["a"], r["b"]) for r in ROWS})


@pytest.mark.parametrize("role, a, b", KINDS_OF_ROWS)
def test_a_choice_is_of_the_strongest_set_and_refusals_say_why(isa, role, a, b):
    kind = {r["name"]: r for r in ROWS if (r["role"], r["a"], r["b"]) == (role, a, b)}
    used = sorted(used_when_forced(isa), key=lambda x: rank(x, role, a, b))
    strongest = [x for x in used if x in {r["isa"] for r in kind.values()}][-1:]
    same = [r for r in kind.values() if [r["isa"]] == strongest]
    for n in (*range(1, 60), 1 << 30):
        name = chosen(role, a, b, n)
        if strongest:
            assert kind[name] in same
        else:
            assert name is None and a != "float32" != b  # only panels of groups may have no row
        if strongest and role == "gemm":  # the narrowest that holds n columns, else the widest
            holding = [r["nr"] for r in same if r["nr"] >= n]
            assert kind[name]["nr"] == (min(holding) if holding else same[0]["nr"])
        refusals = _registry.why_refused(role, a, b, n)
        assert [other for other, _ in refusals] == list(kind)
        assert all(other == name or reason for other, reason in refusals)


def test_slow_sets_are_used_only_when_forced():
    slow = [isa for isa in _registry.usable_isas() if isa in _registry.cpu_info()["slow"]]
    for row in ROWS:
        if row["isa"] not in slow:
            continue
        with gemmkit.isa(row["isa"]):
            assert chosen(row["role"], row["a"], row["b"], 1 << 30) == row["name"]
        with gemmkit.isa(None):
            refusals = dict(_registry.why_refused(row["role"], row["a"], row["b"]))
            assert "slower" in refusals[row["name"]]
    assert _registry.default_isas() == tuple(isa for isa in _registry.usable_isas() if isa not in slow)


# ---- Machine code

X86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="not run: x86-64 instructions on x86-64 only; names, fields and selection are tested everywhere")
SETS = "amx|amxbf16|amxint8|avx512fp16|avx512bf16|avx512vbmi|avx512vnni|avx512|avxvnni|avx2|avx"  # amx: what both share
DISPATCHED = re.compile(fr"gk_\w+_({SETS})(_m\d+(_v\d+_p\d+|_n\d+)?)?")
LIBRARIES = sorted(glob.glob(os.path.join(os.path.dirname(_registry.__file__), "*.so")))

# What betrays an instruction set, and which kinds a function of each set may hold.
CHAIN = ("avx", "avx2", "avx512")
ALLOWED = {"avx": CHAIN[:1], "avx2": CHAIN[:2], "avx512": CHAIN, "avx512vbmi": (*CHAIN, "avx512vbmi"), "avx512bf16": (*CHAIN, "avx512bf16"),
           "avx512fp16": (*CHAIN, "avx512fp16"),
           "avx512vnni": (*CHAIN, "avx512vnni"), "avxvnni": ("avx", "avx2", "avxvnni"),
           "amx": (*CHAIN, "amx"), "amxint8": (*CHAIN, "amx", "amxint8"), "amxbf16": (*CHAIN, "amx", "amxbf16")}
AVX512_ONLY = re.compile(r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])|\{")
FMA = re.compile(r"vf(n?m)(add|sub|addsub|subadd)\d{3}[ps][sd]")
F16C = re.compile(r"vcvtph2ps|vcvtps2ph")
AVX2_ONLY = re.compile(FMA.pattern + "|" + F16C.pattern + r"|v(insert|extract|broadcast|perm2)i128|vp?gather\w+|vpbroadcast\w+"
                       r"|vperm(q|pd|d|ps)|vpblendd|vps[lr][la]v\w+|vpmaskmov\w+")
WIDE_INTEGERS = re.compile(r"vp(?!erm2f128|ermilp[sd]|test)\w+")  # on ymm: AVX has these three alone
AMX_ONLY = re.compile(r"tile\w+|(ld|st)tilecfg")
VNNI_ONLY = re.compile(r"vpdp(bus|wss)ds?")
VBMI_ONLY = re.compile(r"vperm[it]2b|vpermb|vpmultishiftqb")
BF16_ONLY = re.compile(r"vdpbf16ps|vcvtne2?ps2bf16[xyz]?")
FP16_ONLY = re.compile(r"v(?!cvtps2ph)\w+[ps]h|vcvtps2phx\w?|vcvtt?[ps]h2(?!ps\b)\w+|vcvt\w+2ph[xyz]|vmovw")


def kind(mnemonic, operands):
    """The least instruction set that has an instruction, or None for those that every x86-64 has."""
    if mnemonic == "{vex}":  # objdump's, where an instruction has a form of AVX-512 too
        assert VNNI_ONLY.match(operands), operands
        return "avxvnni"
    if VNNI_ONLY.fullmatch(mnemonic):
        return "avx512vnni"
    if AMX_ONLY.fullmatch(mnemonic):
        return "amx"
    if re.fullmatch("tdp[a-z0-9]+", mnemonic):
        return "amxbf16" if mnemonic == "tdpbf16ps" else "amxint8"
    if VBMI_ONLY.fullmatch(mnemonic):
        return "avx512vbmi"
    if BF16_ONLY.fullmatch(mnemonic):
        return "avx512bf16"
    if FP16_ONLY.fullmatch(mnemonic):
        return "avx512fp16"
    if AVX512_ONLY.search(operands):
        return "avx512"
    if AVX2_ONLY.fullmatch(mnemonic) or (WIDE_INTEGERS.fullmatch(mnemonic) and "%ymm" in operands):
        return "avx2"
    if re.match(r"vbroadcasts[sd]", mnemonic) and operands.startswith("%"):  # from a register
        return "avx2"
    if mnemonic.startswith("v") and mnemonic not in ("verr", "verw"):
        return "avx"
    return None


@cache
def kinds_by_function(library):
    """{function: {kind: an example}}, for every function of a library; "fma" and "f16c" are kinds beside the others."""
    found = defaultdict(dict)
    for function, mnemonic, operands in disassemble(library):
        found[function].setdefault(kind(mnemonic, operands), f"{mnemonic} {operands}")
        for name, pattern in (("fma", FMA), ("f16c", F16C)):
            if pattern.fullmatch(mnemonic):
                found[function][name] = f"{mnemonic} {operands}"
    return found


@X86
@pytest.mark.parametrize("library", LIBRARIES, ids=os.path.basename)
def test_no_instruction_outside_its_sets_functions(library):
    """VEX and EVEX code only in functions named for its set; FMA and F16C, of whatever width, only from AVX2 on."""
    wrong = []
    for function, kinds in kinds_by_function(library).items():
        name = DISPATCHED.fullmatch(function)
        allowed = ALLOWED[name[1]] if name else ()
        wrong += [f"{function}: {example}" for k, example in kinds.items() if k in ALLOWED and k not in allowed]
        if not name or name[1] == "avx":
            wrong += [f"{function}: {kinds[k]}" for k in ("fma", "f16c") if k in kinds]
    assert not wrong, "\n".join(wrong)


@X86
@pytest.mark.parametrize("row", ALL_ROWS)
def test_the_disassembly_shows_each_kernel_with_its_instructions(row):
    """The check above sees what it should: each kernel is there by name, and uses its own set."""
    functions = kinds_by_function(_registry.__file__)
    if row["name"] not in functions:
        pytest.fail(f"{row['name']} is no symbol of {_registry.__file__}: strip removed the names this test reads")
    kinds = set()
    for function, found in functions.items():
        stem, _, isa = row["name"].rpartition("_")
        if function == row["name"] or function.startswith((row["name"] + "_m", f"{stem}_part_{isa}")):
            kinds |= found.keys()
    fused = row["isa"] in ("avx2", "avx512", "avx512vbmi", "avx512fp16") and not sums_integers(row)
    assert ("fma" in kinds) == fused
    for isa in ALLOWED:  # what only a stronger set has is not there, what is the set's own is
        if isa not in ALLOWED.get(row["isa"], ()):
            assert isa not in kinds
    assert row["isa"] not in ALLOWED or row["isa"] in kinds
    # All narrow types but bfloat16, whose float32 is itself shifted, are read through float16; avx512vbmi has tables.
    types = {row["a"], row["b"]} & set(NARROW.values()) - {"bfloat16"}
    assert ("f16c" in kinds) == (bool(types) and row["isa"] in ("avx2", "avx512"))


WIDE_SOFTS = [s["name"].removeprefix("gk_weigh_") for s in SOFTS if s["acc"] == s["out"]]  # the others share all but weigh
FUNCTIONS = dict.fromkeys([*(f"gk_panels_{p['name']}" for p in PACKERS), *(e["name"] for e in EPILOGUES),
                           *(f"gk_lines_{p['name']}" for p in PACKERS if p["to"] != "nibbles"),
                           *(f"gk_{x}_{of}" for x in ("scan", "rescale", "divide") for of in WIDE_SOFTS),
                           *(s["name"] for s in SOFTS)])


@X86
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_disassembly_shows_packers_epilogues_and_softmax(name):
    """Under names that tell their set: the check above would take code under another name for anyone's."""
    kinds = kinds_by_function(_registry.__file__)[name]
    assert kinds, f"{name} is no symbol"
    match = DISPATCHED.fullmatch(name)
    assert bool(match) == (name.rpartition("_")[2] in ALLOWED)
    if match and not name.startswith("gk_lines"):  # those may leave all the work to another function
        assert kinds.keys() & ALLOWED.keys()


@pytest.mark.parametrize("mnemonic, operands, expected", [
    ("movups", "(%rdi),%xmm0", None), ("verw", "%ax", None), ("vmovss", "(%rax),%xmm1", "avx"),
    ("vmulps", "%ymm1,%ymm2,%ymm3", "avx"), ("vpaddd", "%ymm1,%ymm2,%ymm3", "avx2"), ("vpaddd", "%xmm1,%xmm2,%xmm3", "avx"),
    ("vperm2f128", "$0x20,%ymm1,%ymm2,%ymm3", "avx"), ("vinserti128", "$1,%xmm1,%ymm2,%ymm3", "avx2"),
    ("vfmadd231ps", "%ymm1,%ymm2,%ymm3", "avx2"), ("vbroadcastss", "(%rax),%ymm0", "avx"), ("vbroadcastss", "%xmm0,%ymm0", "avx2"),
    ("vmovups", "%zmm0,(%rax)", "avx512"), ("vmovups", "(%rax),%ymm17", "avx512"), ("vmovups", "(%rax),%ymm1{%k1}{z}", "avx512"),
    ("kmovw", "%eax,%k1", "avx512"), ("vaddps", "(%rax){1to8},%ymm1,%ymm2", "avx512"),
    ("vcvtph2ps", "%xmm0,%ymm1", "avx2"), ("vcvtps2ph", "$0x0,%ymm0,%xmm1", "avx2"), ("vcvtph2ps", "%ymm0,%zmm1", "avx512"),
    ("tdpbf16ps", "%tmm1,%tmm2,%tmm3", "amxbf16"), ("ldtilecfg", "(%rax)", "amx"), ("tilerelease", "", "amx"),
    ("tdpbusd", "%tmm1,%tmm2,%tmm3", "amxint8"), ("tdpbssd", "%tmm1,%tmm2,%tmm3", "amxint8"),
    ("tileloadd", "(%rax,%rbx,1),%tmm4", "amx"), ("vpmullq", "%zmm1,%zmm2,%zmm3", "avx512"),
    ("{vex}", "vpdpbusd (%rax),%ymm1,%ymm2", "avxvnni"), ("vpdpbusd", "%ymm1,%ymm2,%ymm3", "avx512vnni"),
    ("vpdpbusd", "(%rax){1to16},%zmm1,%zmm2", "avx512vnni"), ("vpmaddwd", "%ymm1,%ymm2,%ymm3", "avx2"),
    ("vpermb", "%zmm1,%zmm2,%zmm3", "avx512vbmi"), ("vpermt2b", "%zmm1,%zmm2,%zmm3", "avx512vbmi"),
    ("vpermw", "%zmm1,%zmm2,%zmm3", "avx512"), ("vdpbf16ps", "%ymm1,%ymm2,%ymm3", "avx512bf16"), ("vcvtneps2bf16", "%zmm1,%ymm2", "avx512bf16"),
    ("vcvtne2ps2bf16", "%zmm1,%zmm2,%zmm3", "avx512bf16"), ("vcvtneps2bf16y", "(%rax),%xmm2", "avx512bf16"),
    ("vfmadd231ph", "%zmm1,%zmm2,%zmm3", "avx512fp16"), ("vaddph", "%ymm1,%ymm2,%ymm3", "avx512fp16"),
    ("vmovsh", "(%rax),%xmm1", "avx512fp16"), ("vmovw", "%eax,%xmm1", "avx512fp16"), ("vmulsh", "%xmm1,%xmm2,%xmm3", "avx512fp16"),
    ("vcvtps2phx", "%ymm1,%xmm2", "avx512fp16"), ("vcvtph2psx", "%xmm1,%ymm2", "avx512fp16"),
    ("vcvttph2dq", "%xmm1,%ymm2", "avx512fp16"), ("vcvtw2ph", "%ymm1,%ymm2", "avx512fp16"),
    ("vcvtsh2ss", "%xmm1,%xmm2,%xmm3", "avx512fp16"), ("vfcmaddcph", "%xmm1,%xmm2,%xmm3", "avx512fp16"),
    ("vpshufb", "%xmm1,%xmm2,%xmm3", "avx"), ("vpunpckhwd", "%xmm1,%xmm2,%xmm3", "avx"), ("vunpckhps", "%xmm1,%xmm2,%xmm3", "avx"),
])
def test_kinds_of_instructions(mnemonic, operands, expected):
    assert kind(mnemonic, operands) == expected
