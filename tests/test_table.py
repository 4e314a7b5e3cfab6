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
from support import disassemble, row_params

import gemmkit
from gemmkit._kernels import _registry

ROLES = ("gemm", "dot", "stream")
TYPES = {"f32": "float32", "f64": "float64"}
KERNEL_NAME = re.compile(r"gk_(?P<role>[a-z]+)_(?P<a>f\d\d)(?P<b>f\d\d)_ukr_(?P<mr>\d+)x(?P<nr>\d+)_(?P<isa>[a-z0-9]+)")
EPILOGUE_NAME = re.compile(r"gk_epilogue_(?P<type>f\d\d)_(?P<isa>[a-z0-9]+)")
VECTOR_BYTES = {"sse2": 16, "avx": 32, "avx2": 32, "avx512": 64}

ALL_ROWS = [pytest.param(r, id=r["name"]) for r in _registry.rows()]


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
    item = np.dtype(row["acc"]).itemsize
    assert row["acc"] == row["a"] == row["b"] and row["kr"] == 1
    if row["isa"] == "scalar":
        assert row["vl"] == 1
    else:  # full vectors, or halves for narrow tiles
        assert row["vl"] * item in (VECTOR_BYTES[row["isa"]], VECTOR_BYTES[row["isa"]] // 2)
    if row["role"] == "gemm":
        assert row["nr"] % row["vl"] == 0
    if row["role"] == "stream":
        assert row["nr"] == row["vl"]


@pytest.mark.parametrize("row", _registry.epilogues(), ids=lambda r: r["name"])
def test_an_epilogues_name_says_what_its_row_says(row):
    name = EPILOGUE_NAME.fullmatch(row["name"])
    assert name and (TYPES[name["type"]], name["isa"]) == (row["type"], row["isa"])


def test_names_and_indices_are_unique():
    for table in (_registry.rows(), _registry.epilogues()):
        assert len({r["name"] for r in table}) == len(table)
        assert [r["index"] for r in table] == list(range(len(table)))


# ---- Completeness and selection

@pytest.mark.parametrize("dtype", TYPES.values())
@pytest.mark.parametrize("isa", _registry.compiled_isas())
def test_every_set_has_every_role(isa, dtype):
    have = {r["role"] for r in _registry.rows() if (r["isa"], r["acc"]) == (isa, dtype)}
    assert have == set(ROLES)
    assert [r for r in _registry.epilogues() if (r["isa"], r["type"]) == (isa, dtype)]


def test_stronger_sets_come_first():
    """activate() takes the first row that the machine can run."""
    strength = {name: i for i, name in enumerate(_registry.ISA_BITS)}
    for dtype in TYPES.values():
        order = [strength[e["isa"]] for e in _registry.epilogues() if e["type"] == dtype]
        assert order == sorted(order, reverse=True)
        for role in ROLES:
            order = [strength[r["isa"]] for r in _registry.rows() if (r["role"], r["acc"]) == (role, dtype)]
            assert order == sorted(order, reverse=True)


def chosen(role, dtype, n):
    names = [name for name, reason in _registry.why_refused(role, dtype, n) if reason is None]
    assert len(names) == 1
    return names[0]


@pytest.mark.parametrize("row", row_params())
def test_every_row_is_chosen_for_some_width(row):
    with gemmkit.isa(row["isa"]):
        assert row["name"] in {chosen(row["role"], row["acc"], n) for n in (*range(1, row["nr"] + 2), 1 << 30)}


@pytest.mark.parametrize("dtype", TYPES.values())
@pytest.mark.parametrize("role", ROLES)
def test_a_choice_is_of_the_forced_set_and_refusals_say_why(isa, role, dtype):
    by_name = {r["name"]: r for r in _registry.rows()}
    for n in (*range(1, 60), 1 << 30):
        name = chosen(role, dtype, n)
        assert by_name[name]["isa"] == isa
        same = [r for r in by_name.values() if (r["role"], r["acc"], r["isa"]) == (role, dtype, isa)]
        if role == "gemm":  # the narrowest that holds n columns, else the widest
            holding = [r["nr"] for r in same if r["nr"] >= n]
            assert by_name[name]["nr"] == (min(holding) if holding else same[0]["nr"])
        for other, reason in _registry.why_refused(role, dtype, n):
            assert other == name or reason


# ---- Machine code

X86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="not run: x86-64 instructions on x86-64 only")
DISPATCHED = re.compile(r"gk_\w+_(avx512|avx2|avx)(_m\d+(_v\d+_p\d+|_n\d+)?)?")
LIBRARIES = sorted(glob.glob(os.path.join(os.path.dirname(_registry.__file__), "*.so")))

# What betrays an instruction set, weakest first; a function of one set may hold the kinds of those before it.
KINDS = ("avx", "avx2", "avx512")
AVX512_ONLY = re.compile(r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])|\{%")
FMA = re.compile(r"vf(n?m)(add|sub|addsub|subadd)\d{3}[ps][sd]")
AVX2_ONLY = re.compile(FMA.pattern + r"|v(insert|extract|broadcast|perm2)i128|vp?gather\w+|vpbroadcast\w+"
                       r"|vperm(q|pd|d|ps)|vpblendd|vps[lr][la]v\w+|vpmaskmov\w+")
WIDE_INTEGERS = re.compile(r"vp(?!erm2f128|ermilp[sd]|test)\w+")  # on ymm: AVX has these three alone


def kind(mnemonic, operands):
    """The least instruction set that has an instruction, or None for those that every x86-64 has."""
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
    """{function: {kind: an example}}, for every function of a library."""
    found = defaultdict(dict)
    for function, mnemonic, operands in disassemble(library):
        found[function].setdefault(kind(mnemonic, operands), f"{mnemonic} {operands}")
        if FMA.fullmatch(mnemonic):
            found[function]["fma"] = f"{mnemonic} {operands}"
    return found


@X86
@pytest.mark.parametrize("library", LIBRARIES, ids=os.path.basename)
def test_no_instruction_outside_its_sets_functions(library):
    """ymm, zmm and other VEX code only in functions named for its set; FMA only where AVX2 or AVX-512 is named."""
    wrong = []
    for function, kinds in kinds_by_function(library).items():
        name = DISPATCHED.fullmatch(function)
        allowed = KINDS[: KINDS.index(name[1]) + 1] if name else ()
        wrong += [f"{function}: {example}" for k, example in kinds.items() if k in KINDS and k not in allowed]
        if "fma" in kinds and (not name or name[1] == "avx"):
            wrong.append(f"{function}: {kinds['fma']}")
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
        if function == row["name"] or function.startswith(row["name"] + "_m"):
            kinds |= found.keys()
    assert ("fma" in kinds) == (row["isa"] in ("avx2", "avx512"))
    assert ("avx" in kinds) == (row["isa"] in KINDS)
    assert ("avx512" in kinds) == (row["isa"] == "avx512")


@pytest.mark.parametrize("mnemonic, operands, expected", [
    ("movups", "(%rdi),%xmm0", None), ("verw", "%ax", None), ("vmovss", "(%rax),%xmm1", "avx"),
    ("vmulps", "%ymm1,%ymm2,%ymm3", "avx"), ("vpaddd", "%ymm1,%ymm2,%ymm3", "avx2"), ("vpaddd", "%xmm1,%xmm2,%xmm3", "avx"),
    ("vperm2f128", "$0x20,%ymm1,%ymm2,%ymm3", "avx"), ("vinserti128", "$1,%xmm1,%ymm2,%ymm3", "avx2"),
    ("vfmadd231ps", "%ymm1,%ymm2,%ymm3", "avx2"), ("vbroadcastss", "(%rax),%ymm0", "avx"), ("vbroadcastss", "%xmm0,%ymm0", "avx2"),
    ("vmovups", "%zmm0,(%rax)", "avx512"), ("vmovups", "(%rax),%ymm17", "avx512"), ("vmovups", "(%rax),%ymm1{%k1}{z}", "avx512"),
    ("kmovw", "%eax,%k1", "avx512"),
])
def test_kinds_of_instructions(mnemonic, operands, expected):
    assert kind(mnemonic, operands) == expected
