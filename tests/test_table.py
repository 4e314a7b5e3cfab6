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
from support import FLUSHES_DENORMALS, WANTS_LINES, disassemble, flushes, is_narrow, row_params

import gemmkit
from gemmkit._kernels import _registry

ROLES = ("gemm", "dot", "stream")
WIDE = {"f32": "float32", "f64": "float64"}
NARROW = {"f16": "float16", "bf16": "bfloat16", "e4m3fn": "float8_e4m3fn", "e4m3fnuz": "float8_e4m3fnuz",
          "e5m2": "float8_e5m2", "e5m2fnuz": "float8_e5m2fnuz"}
TYPES = {**WIDE, **NARROW}
TYPE = "(" + "|".join(sorted(TYPES, key=len, reverse=True)) + ")"
KERNEL_NAME = re.compile(fr"gk_(?P<role>[a-z]+)_(?P<a>{TYPE})(?P<b>{TYPE})_ukr_(?P<mr>\d+)x(?P<nr>\d+)_(?P<isa>[a-z0-9]+)")
EPILOGUE_NAME = re.compile(fr"gk_epilogue_(?P<acc>{TYPE})(?P<out>{TYPE})_(?P<isa>[a-z0-9]+)")
PACKER_NAME = re.compile(fr"(?P<from>{TYPE})(?P<to>{TYPE})_(?P<isa>[a-z0-9]+)")
VECTOR_BYTES = {"sse2": 16, "avx": 32, "avx2": 32, "avx512": 64, "avx512vbmi": 64, "avx512bf16": 64,
                "avx512fp16": 64, "amxbf16": 64}

ROWS, PACKERS, EPILOGUES = _registry.rows(), _registry.packers(), _registry.epilogues()
ALL_ROWS = [pytest.param(r, id=r["name"]) for r in ROWS]
STRENGTH = {name: i for i, name in enumerate(_registry.ISA_BITS)}
ISAS = _registry.compiled_isas()
# Sets that can do everything for a type by themselves; others only add rows to those below them.
WHOLE = [isa for isa in ISAS if any((r["isa"], r["a"], r["b"]) == (isa, "float32", "float32") for r in ROWS)]


def ids(entry):
    return entry["name"]


# ---- Names and fields

@pytest.mark.parametrize("row", ALL_ROWS)
def test_a_name_says_what_its_row_says(row):
    name = KERNEL_NAME.fullmatch(row["name"])
    assert name, "gk_<role>_<a><b>_ukr_<MR>x<NR>_<isa>"
    assert (name["role"], name["isa"]) == (row["role"], row["isa"])
    assert (TYPES[name["a"]], TYPES[name["b"]]) == (row["a"], row["b"])
    assert (int(name["mr"]), int(name["nr"])) == (row["mr"], row["nr"])


@pytest.mark.parametrize("row", ALL_ROWS)
def test_fields_agree(row):
    assert row["role"] in ROLES and {row["a"], row["b"], row["acc"]} <= set(TYPES.values())
    item = np.dtype(row["acc"]).itemsize
    assert item >= max(np.dtype(row[x]).itemsize for x in "ab")
    if is_narrow(row) and row["kr"] == 1:  # one operand is widened as it is loaded, the other is of the accumulator's type,
        # unless the set has an instruction that widens one element into all lanes
        assert row["acc"] in (row["a"], row["b"]) and row["a"] != row["b"] or row["isa"] == "avx512fp16"
    if row["kr"] > 1:  # interleaved panels of one type, whose groups are as wide as what they are summed in
        assert row["role"] == "gemm" and row["a"] == row["b"] and row["kr"] * np.dtype(row["a"]).itemsize == item
    if row["isa"] == "scalar":
        assert row["vl"] == 1
    elif row["isa"] == "avx512vbmi":  # a vector of codes
        assert row["vl"] * min(np.dtype(row[x]).itemsize for x in "ab") == VECTOR_BYTES[row["isa"]]
    else:  # full vectors, or halves for narrow tiles
        assert row["vl"] * item in (VECTOR_BYTES[row["isa"]], VECTOR_BYTES[row["isa"]] // 2)
    if row["role"] == "gemm":
        assert row["nr"] % row["vl"] == 0
        assert max(row["mr"], row["nr"]) <= 64  # what a packer takes
    if row["role"] == "stream":
        assert row["nr"] == row["vl"]
    assert row["flags"] in (0, FLUSHES_DENORMALS, FLUSHES_DENORMALS | WANTS_LINES)


@pytest.mark.parametrize("row", EPILOGUES, ids=ids)
def test_an_epilogues_name_says_what_its_row_says(row):
    name = EPILOGUE_NAME.fullmatch(row["name"])
    assert name and (TYPES[name["acc"]], TYPES[name["out"]], name["isa"]) == (row["acc"], row["out"], row["isa"])


@pytest.mark.parametrize("packer", PACKERS, ids=ids)
def test_a_packers_name_says_what_it_says(packer):
    name = PACKER_NAME.fullmatch(packer["name"])
    assert name and (TYPES[name["from"]], TYPES[name["to"]], name["isa"]) == (packer["from"], packer["to"], packer["isa"])


@pytest.mark.parametrize("table", [ROWS, PACKERS, EPILOGUES], ids=["rows", "packers", "epilogues"])
def test_names_and_indices_are_unique(table):
    assert len({r["name"] for r in table}) == len(table)
    assert [r["index"] for r in table] == list(range(len(table)))


# ---- Completeness and selection

def rows_of(isa):
    return {(r["role"], r["a"], r["b"]) for r in ROWS if r["isa"] == isa}


def packers_of(isa):
    return {(p["from"], p["to"]) for p in PACKERS if p["isa"] == isa}


def epilogues_of(isa):
    return {(e["acc"], e["out"]) for e in EPILOGUES if e["isa"] == isa}


def test_which_sets_are_whole():
    """All that other sets are built on, in order; nothing is compiled for others that has no use on its own."""
    assert WHOLE == [isa for isa in _registry.ISA_BITS if isa in WHOLE] and WHOLE[0] == "scalar"
    assert {"sse2", "avx", "avx2", "avx512"} <= set(WHOLE) or WHOLE == ["scalar"]
    for table in (PACKERS, EPILOGUES):
        assert {x["isa"] for x in table} <= set(ISAS)


@pytest.mark.parametrize("dtype", WIDE.values())
@pytest.mark.parametrize("isa", WHOLE)
def test_every_whole_set_has_every_role(isa, dtype):
    assert {(role, dtype, dtype) for role in ROLES} <= rows_of(isa)
    assert (dtype, dtype) in packers_of(isa) and (dtype, dtype) in epilogues_of(isa)


@pytest.mark.parametrize("dtype", NARROW.values())
@pytest.mark.parametrize("isa", WHOLE)
def test_a_set_has_all_of_a_narrow_type_or_nothing(isa, dtype):
    """B read in place by each role, a dot row for a narrow A, the packer that widens, the epilogue that rounds."""
    rows = {(role, "float32", dtype) for role in ROLES} | {("dot", dtype, "float32")}
    have = ((rows & rows_of(isa)), (dtype, "float32") in packers_of(isa), ("float32", dtype) in epilogues_of(isa))
    nothing = (set(), False, False)
    if isa in ("scalar", "avx2", "avx512"):
        assert have == (rows, True, True)
    else:
        assert have in ((rows, True, True), nothing)


@pytest.mark.parametrize("row", [p for p in ALL_ROWS if p.values[0]["kr"] > 1])
def test_panels_of_groups_have_their_packers(row):
    """The set, or one below it, packs the type itself and every narrower one, each of which is exact in it."""
    below = set.union(*(packers_of(isa) for isa in ISAS if STRENGTH[isa] <= STRENGTH[row["isa"]]))
    item = np.dtype(row["a"]).itemsize
    assert {(t, row["a"]) for t in TYPES.values() if t == row["a"] or np.dtype(t).itemsize < item} <= below


@pytest.mark.parametrize("row", [p for p in ALL_ROWS if flushes(p.values[0])])
def test_a_row_that_flushes_has_a_stand_in(row):
    """One that reads the same panels and doesn't flush, of a set that is there whenever the row's own is."""
    same = ("role", "a", "b", "acc", "mr", "nr", "kr")
    found = [r for r in ROWS if all(r[x] == row[x] for x in same) and not flushes(r)]
    assert found and all(STRENGTH[r["isa"]] < STRENGTH[row["isa"]] and r["isa"] in WHOLE for r in found)


def test_stronger_sets_come_first():
    """activate() takes the first entry that the machine can run."""
    order = defaultdict(list)
    for r in ROWS:
        order[r["role"], r["a"], r["b"]].append(STRENGTH[r["isa"]])
    for p in PACKERS:
        order["pack", p["from"], p["to"]].append(STRENGTH[p["isa"]])
    for e in EPILOGUES:
        order["epilogue", e["acc"], e["out"]].append(STRENGTH[e["isa"]])
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


@pytest.mark.parametrize("row", row_params())
def test_every_row_is_chosen_for_some_width(row):
    with gemmkit.isa(row["isa"]):
        widths = (*range(1, row["nr"] + 2), 1 << 30)
        assert row["name"] in {chosen(row["role"], row["a"], row["b"], n) for n in widths}


KINDS_OF_ROWS = sorted({(r["role"], r["a"], r["b"]) for r in ROWS})


@pytest.mark.parametrize("role, a, b", KINDS_OF_ROWS)
def test_a_choice_is_of_the_strongest_set_and_refusals_say_why(isa, role, a, b):
    kind = {r["name"]: r for r in ROWS if (r["role"], r["a"], r["b"]) == (role, a, b)}
    used = used_when_forced(isa)
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
DISPATCHED = re.compile(r"gk_\w+_(amxbf16|avx512fp16|avx512bf16|avx512vbmi|avx512|avx2|avx)(_m\d+(_v\d+_p\d+|_n\d+)?)?")
LIBRARIES = sorted(glob.glob(os.path.join(os.path.dirname(_registry.__file__), "*.so")))

# What betrays an instruction set, and which kinds a function of each set may hold.
CHAIN = ("avx", "avx2", "avx512")
ALLOWED = {"avx": CHAIN[:1], "avx2": CHAIN[:2], "avx512": CHAIN, "avx512vbmi": (*CHAIN, "avx512vbmi"), "avx512bf16": (*CHAIN, "avx512bf16"),
           "avx512fp16": (*CHAIN, "avx512fp16"), "amxbf16": (*CHAIN, "amxbf16")}
AVX512_ONLY = re.compile(r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])|\{")
FMA = re.compile(r"vf(n?m)(add|sub|addsub|subadd)\d{3}[ps][sd]")
F16C = re.compile(r"vcvtph2ps|vcvtps2ph")
AVX2_ONLY = re.compile(FMA.pattern + "|" + F16C.pattern + r"|v(insert|extract|broadcast|perm2)i128|vp?gather\w+|vpbroadcast\w+"
                       r"|vperm(q|pd|d|ps)|vpblendd|vps[lr][la]v\w+|vpmaskmov\w+")
WIDE_INTEGERS = re.compile(r"vp(?!erm2f128|ermilp[sd]|test)\w+")  # on ymm: AVX has these three alone
AMX_ONLY = re.compile(r"tile\w+|(ld|st)tilecfg|tdp\w+")
VBMI_ONLY = re.compile(r"vperm[it]2b|vpermb|vpmultishiftqb")
BF16_ONLY = re.compile(r"vdpbf16ps|vcvtne2?ps2bf16[xyz]?")
FP16_ONLY = re.compile(r"v(?!cvtps2ph)\w+[ps]h|vcvtps2phx\w?|vcvtt?[ps]h2(?!ps\b)\w+|vcvt\w+2ph[xyz]|vmovw")


def kind(mnemonic, operands):
    """The least instruction set that has an instruction, or None for those that every x86-64 has."""
    if AMX_ONLY.fullmatch(mnemonic):
        return "amxbf16"
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
    assert ("fma" in kinds) == (row["isa"] in ("avx2", "avx512", "avx512vbmi", "avx512fp16"))
    for isa in ALLOWED:  # what only a stronger set has is not there, what is the set's own is
        if isa not in ALLOWED.get(row["isa"], ()):
            assert isa not in kinds
    assert row["isa"] not in ALLOWED or row["isa"] in kinds
    # All narrow types but bfloat16, whose float32 is itself shifted, are read through float16; avx512vbmi has tables.
    types = {row["a"], row["b"]} & set(NARROW.values()) - {"bfloat16"}
    assert ("f16c" in kinds) == (bool(types) and row["isa"] in ("avx2", "avx512"))


@X86
@pytest.mark.parametrize("name", [*(f"gk_{form}_{p['name']}" for form in ("panels", "lines") for p in PACKERS),
                                  *(e["name"] for e in EPILOGUES)])
def test_the_disassembly_shows_packers_and_epilogues(name):
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
    ("tdpbf16ps", "%tmm1,%tmm2,%tmm3", "amxbf16"), ("ldtilecfg", "(%rax)", "amxbf16"), ("tilerelease", "", "amxbf16"),
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
