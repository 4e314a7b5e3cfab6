"""Detection on machines that are not here: hand-made CPUID answers and operating system states.

An instruction set counts when the processor has it and the operating system keeps its registers.
"""
import struct

import pytest

from gemmkit._kernels import _registry

KIB, MIB = 1 << 10, 1 << 20

# XCR0: bit 0 x87, 1 xmm, 2 upper halves of ymm, 5 to 7 the mask registers and both parts of zmm, 17 and
# 18 the configuration and data of tiles.
OS_SSE, OS_AVX, OS_AVX512, OS_TILES = 0x03, 0x07, 0xE7, 0x600E7

# Leaf 1, edx and ecx; leaf 7, ebx, edx and ecx; its subleaf 1, eax; leaf 0x80000001, ecx.
SSE2 = 1 << 26
FMA, XSAVE, OSXSAVE, AVX, F16C = 1 << 12, 1 << 26, 1 << 27, 1 << 28, 1 << 29
AVX2, AVX512F, AVX512DQ, AVX512BW, AVX512VL = 1 << 5, 1 << 16, 1 << 17, 1 << 30, 1 << 31
AVX512 = AVX512F | AVX512DQ | AVX512BW | AVX512VL
AVX512FP16 = 1 << 23
AMXBF16, AMXINT8 = 1 << 22 | 1 << 24, 1 << 24 | 1 << 25  # tiles and their products
AVX512VBMI, AVX512VNNI = 1 << 1, 1 << 11
AVXVNNI, AVX512BF16 = 1 << 4, 1 << 5
TOPOLOGY = 1 << 22

MODERN = FMA | XSAVE | OSXSAVE | AVX | F16C
CHAIN = ("scalar", "sse2", "avx", "avx2", "avx512")  # each needs those before it; others need these alone
ORDER = ("scalar", "sse2", "avx", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512vbmi", "avx512bf16", "avx512fp16",
         "amxint8", "amxbf16")
EXTENSIONS = {"avxvnni": ("eax71", AVXVNNI), "avx512vnni": ("ecx7", AVX512VNNI), "avx512vbmi": ("ecx7", AVX512VBMI),
              "avx512bf16": ("eax71", AVX512BF16), "avx512fp16": ("edx7", AVX512FP16), "amxint8": ("edx7", AMXINT8),
              "amxbf16": ("edx7", AMXBF16)}
DATA, INSTRUCTIONS, UNIFIED = 1, 2, 3


def words(text, count):
    return struct.unpack(f"<{count}I", text.encode().ljust(4 * count, b"\0"))


def cache(kind, level, size, ways, line=64, sharing=1):
    """One subleaf of leaf 4 (or of AMD's 0x8000001D)."""
    sets = size // (ways * line)
    return (kind | level << 5 | (sharing - 1) << 14, (line - 1) | (ways - 1) << 22, sets - 1, 0)


def machine(vendor="GenuineIntel", signature=0x306C3, ecx=MODERN, edx=SSE2, features=AVX2, caches=(), caches_at=4,
            brand="", highest=0xD, extended_ecx=0, edx7=0, eax71=0, ecx7=0, subleaves=1):
    """A CPUID table."""
    ebx0, edx0, ecx0 = words(vendor, 3)
    table = {
        (0, 0): (highest, ebx0, ecx0, edx0),
        (1, 0): (signature, 0, ecx, edx),
        (7, 0): (subleaves, features, ecx7, edx7),
        (7, 1): (eax71, 0, 0, 0),
        (0x80000000, 0): (0x80000021 if caches_at == 0x8000001D else 0x80000008, 0, 0, 0),
        (0x80000001, 0): (0, 0, extended_ecx, 0),
    }
    for i, answer in enumerate(caches):
        table[(caches_at, i)] = answer
    text = words(brand, 12)
    for i in range(3):
        table[(0x80000002 + i, 0)] = text[4 * i:4 * i + 4]
    return table


ZEN4 = machine(
    vendor="AuthenticAMD", signature=0x00A10F11, features=AVX2 | AVX512, caches_at=0x8000001D, extended_ecx=TOPOLOGY,
    eax71=AVX512BF16, ecx7=AVX512VBMI | AVX512VNNI, brand="AMD EPYC 9554 64-Core Processor",
    caches=[cache(DATA, 1, 32 * KIB, 8, sharing=2), cache(INSTRUCTIONS, 1, 64 * KIB, 8, sharing=2),
            cache(UNIFIED, 2, 1 * MIB, 8, sharing=2), cache(UNIFIED, 3, 32 * MIB, 16, sharing=16)])
SKYLAKE_X = machine(
    signature=0x00050654, features=AVX2 | AVX512, brand="   Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", highest=0x16, subleaves=0,
    caches=[cache(DATA, 1, 32 * KIB, 8, sharing=2), cache(INSTRUCTIONS, 1, 32 * KIB, 8, sharing=2),
            cache(UNIFIED, 2, 1 * MIB, 16, sharing=2), cache(UNIFIED, 3, 28160 * KIB, 11, sharing=64)])
SAPPHIRE_RAPIDS = machine(
    signature=0x000806F8, features=AVX2 | AVX512, brand="Intel(R) Xeon(R) Platinum 8480+", highest=0x20,
    edx7=AVX512FP16, eax71=AVX512BF16 | AVXVNNI, ecx7=AVX512VBMI | AVX512VNNI, subleaves=2,
    caches=[cache(DATA, 1, 48 * KIB, 12, sharing=2), cache(INSTRUCTIONS, 1, 32 * KIB, 8, sharing=2),
            cache(UNIFIED, 2, 2 * MIB, 16, sharing=2), cache(UNIFIED, 3, 105 * MIB, 15, sharing=128)])
ALDER_LAKE = machine(
    signature=0x00090672, features=AVX2, eax71=AVXVNNI, highest=0x20,
    caches=[cache(DATA, 1, 48 * KIB, 12, sharing=2), cache(INSTRUCTIONS, 1, 32 * KIB, 8, sharing=2),
            cache(UNIFIED, 2, 1280 * KIB, 10, sharing=2), cache(UNIFIED, 3, 30 * MIB, 12, sharing=64)])
HASWELL = machine(
    signature=0x000306C3, features=AVX2, subleaves=0,
    caches=[cache(DATA, 1, 32 * KIB, 8, sharing=2), cache(INSTRUCTIONS, 1, 32 * KIB, 8, sharing=2),
            cache(UNIFIED, 2, 256 * KIB, 8, sharing=2), cache(UNIFIED, 3, 8 * MIB, 16, sharing=16)])
NEHALEM = machine(signature=0x000106A5, ecx=0, features=0, highest=0xB)


def isas(table, xcr0):
    return _registry.decode_cpuid(table, xcr0)["isas"]


def ordered(*names):
    return tuple(name for name in ORDER if name in names)


def sizes(cpu):
    return tuple((cpu[level]["size"], cpu[level]["ways"]) for level in ("l1d", "l2", "l3"))


# ---- Processors

def test_zen4():
    cpu = _registry.decode_cpuid(ZEN4, OS_AVX512)
    assert (cpu["vendor"], cpu["family"], cpu["model"]) == ("AuthenticAMD", 25, 0x11)
    assert cpu["brand"] == "AMD EPYC 9554 64-Core Processor"
    assert cpu["isas"] == (*CHAIN, "avx512vnni", "avx512vbmi", "avx512bf16") and cpu["slow"] == ()
    assert cpu["caches_known"]
    assert sizes(cpu) == ((32 * KIB, 8), (1 * MIB, 8), (32 * MIB, 16))
    assert [cpu[level]["sharing"] for level in ("l1d", "l2", "l3")] == [2, 2, 16]
    assert {cpu[level]["line"] for level in ("l1d", "l2", "l3")} == {64}


def test_skylake_x():
    cpu = _registry.decode_cpuid(SKYLAKE_X, OS_AVX512)
    assert (cpu["vendor"], cpu["family"], cpu["model"]) == ("GenuineIntel", 6, 0x55)
    assert cpu["brand"] == "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz"
    assert cpu["isas"] == CHAIN and cpu["slow"] == ()
    assert sizes(cpu) == ((32 * KIB, 8), (1 * MIB, 16), (28160 * KIB, 11))


def test_sapphire_rapids():
    """Its BF16 instruction is slower than float32's."""
    cpu = _registry.decode_cpuid(SAPPHIRE_RAPIDS, OS_AVX512)
    assert (cpu["family"], cpu["model"]) == (6, 0x8F)
    assert cpu["isas"] == ordered(*CHAIN, "avxvnni", "avx512vnni", "avx512vbmi", "avx512bf16", "avx512fp16")
    assert cpu["slow"] == ("avx512bf16",)
    assert sizes(cpu) == ((48 * KIB, 12), (2 * MIB, 16), (105 * MIB, 15))


def test_alder_lake():
    """A product of bytes without AVX-512."""
    cpu = _registry.decode_cpuid(ALDER_LAKE, OS_AVX)
    assert (cpu["family"], cpu["model"]) == (6, 0x97)
    assert cpu["isas"] == ("scalar", "sse2", "avx", "avx2", "avxvnni") and cpu["slow"] == ()
    assert sizes(cpu) == ((48 * KIB, 12), (1280 * KIB, 10), (30 * MIB, 12))


def test_haswell():
    cpu = _registry.decode_cpuid(HASWELL, OS_AVX)
    assert (cpu["family"], cpu["model"]) == (6, 0x3C)
    assert cpu["isas"] == ("scalar", "sse2", "avx", "avx2")
    assert sizes(cpu) == ((32 * KIB, 8), (256 * KIB, 8), (8 * MIB, 16))


def test_nehalem():
    cpu = _registry.decode_cpuid(NEHALEM, OS_SSE)
    assert (cpu["family"], cpu["model"]) == (6, 0x1A)
    assert cpu["isas"] == ("scalar", "sse2")


def test_nothing_is_known():
    """A processor that answers nothing gets plain C and guessed caches."""
    cpu = _registry.decode_cpuid({}, 0)
    assert cpu["isas"] == ("scalar",)
    assert (cpu["vendor"], cpu["brand"]) == ("", "")
    assert not cpu["caches_known"]


# ---- What the operating system allows

@pytest.mark.parametrize("xcr0, strongest", [
    (OS_AVX512, "avx512"), (OS_AVX, "avx2"), (OS_SSE, "sse2"), (0, "sse2"),
    (OS_AVX | 0x20, "avx2"), (OS_AVX | 0x60, "avx2"), (OS_AVX | 0xC0, "avx2"),  # masks or zmm kept in part
    (0x05, "sse2"),  # ymm without xmm
    (OS_SSE | 0xE0, "sse2"),  # zmm without ymm
    (OS_AVX512 | 0x60200, "avx512"),  # later states change nothing
])
@pytest.mark.parametrize("table", [ZEN4, SKYLAKE_X, SAPPHIRE_RAPIDS], ids=["zen4", "skylake-x", "sapphire-rapids"])
def test_register_state_that_the_system_keeps(table, xcr0, strongest):
    found = isas(table, xcr0)
    assert [name for name in found if name in CHAIN][-1] == strongest
    if strongest != "avx512":  # nor are extensions of AVX-512 there without it
        assert set(found) - set(CHAIN) == ({"avxvnni"} if strongest == "avx2" and table is SAPPHIRE_RAPIDS else set())


def test_without_osxsave_xcr0_means_nothing():
    assert isas(machine(ecx=FMA | XSAVE | AVX, features=AVX2 | AVX512), OS_AVX512) == ("scalar", "sse2")


# ---- Sets that need others

def everything():
    """Every bit of the words that extensions have theirs in."""
    return dict.fromkeys(("edx7", "eax71", "ecx7"), 0xFFFFFFFF)


@pytest.mark.parametrize("missing", [AVX512F, AVX512DQ, AVX512BW, AVX512VL])
def test_avx512_is_all_four_parts(missing):
    """And nothing that extends it counts without it."""
    table = machine(features=(AVX2 | AVX512) & ~missing, **everything())
    assert isas(table, OS_TILES) == (*CHAIN[:-1], "avxvnni")


@pytest.mark.parametrize("missing", [FMA, F16C])
def test_avx2_needs_fma_and_f16c(missing):
    assert isas(machine(ecx=MODERN & ~missing), OS_AVX) == ("scalar", "sse2", "avx")
    table = machine(ecx=MODERN & ~missing, features=AVX2 | AVX512, **everything())
    assert isas(table, OS_TILES) == ("scalar", "sse2", "avx")


@pytest.mark.parametrize("name", EXTENSIONS)
def test_an_extension_is_its_own_bits(name):
    """All of them and nothing else, whatever the other bits are."""
    word, bits = EXTENSIONS[name]
    assert isas(machine(features=AVX2 | AVX512, **{word: bits}), OS_TILES) == ordered(*CHAIN, name)
    assert isas(machine(features=AVX2 | AVX512, **everything()), OS_TILES) == ORDER
    for bit in (1 << i for i in range(32) if bits >> i & 1):
        there = isas(machine(features=AVX2 | AVX512, **{**everything(), word: 0xFFFFFFFF & ~bit}), OS_TILES)
        lost = [other for other, (where, theirs) in EXTENSIONS.items() if where == word and theirs & bit]
        assert name in lost and there == tuple(x for x in ORDER if x not in lost)
    assert isas(machine(features=AVX2 | AVX512), OS_TILES) == CHAIN


@pytest.mark.parametrize("name", EXTENSIONS)
def test_what_an_extension_needs(name):
    """AVX-VNNI needs AVX2 and ymm; the others need AVX-512 and its registers, tiles theirs too."""
    word, bits = EXTENSIONS[name]
    own = {word: bits}
    vnni = (name,) if name == "avxvnni" else ()
    assert isas(machine(features=AVX2, **own), OS_TILES) == (*CHAIN[:-1], *vnni)
    assert isas(machine(features=AVX2 | AVX512, **own), OS_AVX) == (*CHAIN[:-1], *vnni)
    assert isas(machine(features=AVX512, **own), OS_TILES) == CHAIN[:3]
    assert isas(machine(features=AVX2 | AVX512, **own), OS_SSE) == CHAIN[:2]
    tiles = name.startswith("amx")
    assert (name in isas(machine(features=AVX2 | AVX512, **own), OS_AVX512)) != tiles


def test_subleaf_1_is_not_asked_where_there_is_none():
    """Leaf 7 says how many it has; beyond that a processor answers what it likes."""
    bits = AVX512BF16 | AVXVNNI
    assert isas(machine(features=AVX2 | AVX512, eax71=bits, subleaves=0), OS_AVX512) == CHAIN
    for subleaves in (1, 2):
        table = machine(features=AVX2 | AVX512, eax71=bits, subleaves=subleaves)
        assert isas(table, OS_AVX512) == ordered(*CHAIN, "avxvnni", "avx512bf16")


@pytest.mark.parametrize("edx, xcr0, expected", [
    (AMXBF16, OS_TILES, ("amxbf16",)), (AMXINT8, OS_TILES, ("amxint8",)),
    (AMXBF16 | AMXINT8, OS_TILES, ("amxint8", "amxbf16")), (AMXBF16 | AMXINT8, OS_AVX | 0x60000, ()),
    *((AMXBF16 | AMXINT8, system, ()) for system in (OS_AVX512, OS_AVX512 | 1 << 17, OS_AVX512 | 1 << 18)),
    *((bits, OS_TILES, ()) for bits in (1 << 22, 1 << 24, 1 << 25, 1 << 22 | 1 << 25))])
def test_tiles_need_their_product_and_the_systems_help(edx, xcr0, expected):
    wide = CHAIN if xcr0 & 0xE0 == 0xE0 else CHAIN[:-1]
    assert isas(machine(features=AVX2 | AVX512, edx7=edx), xcr0) == (*wide, *expected)
    assert isas(machine(features=AVX2, edx7=edx), xcr0) == CHAIN[:-1]


@pytest.mark.parametrize("vendor, slow", [("GenuineIntel", ("avx512bf16",)), ("AuthenticAMD", ()), ("HygonGenuine", ()),
                                          ("TransmetaCPU", ())])
def test_bf16_is_slow_on_intel(vendor, slow):
    """It is still among the sets: whoever forces it gets it."""
    cpu = _registry.decode_cpuid(machine(vendor=vendor, features=AVX2 | AVX512, eax71=AVX512BF16), OS_AVX512)
    assert cpu["isas"] == (*CHAIN, "avx512bf16") and cpu["slow"] == slow


@pytest.mark.parametrize("table", [SKYLAKE_X, HASWELL], ids=["skylake-x", "haswell"])
def test_a_set_that_is_not_there_is_not_slow(table):
    assert _registry.decode_cpuid(table, OS_AVX512)["slow"] == ()


def test_fma_without_avx2_is_avx():
    assert isas(machine(features=0), OS_AVX)[-1] == "avx"


def test_avx2_without_avx_is_nothing():
    assert isas(machine(ecx=MODERN & ~AVX), OS_AVX)[-1] == "sse2"


def test_leaf_7_is_not_asked_where_there_is_none():
    """Beyond the highest leaf a processor answers what it likes."""
    assert isas(machine(features=AVX2 | AVX512, highest=4, **everything()), OS_TILES)[-1] == "avx"


@pytest.mark.parametrize("xcr0", [0, OS_SSE, OS_AVX, OS_AVX512])
@pytest.mark.parametrize("table", [ZEN4, SKYLAKE_X, SAPPHIRE_RAPIDS, ALDER_LAKE, HASWELL, NEHALEM, {}],
                         ids=["zen4", "skylake-x", "sapphire-rapids", "alder-lake", "haswell", "nehalem", "none"])
def test_sets_are_a_chain(table, xcr0):
    """Forcing a set leaves those below it, so none may be missing in between; extensions need the whole chain."""
    found = isas(table, xcr0)
    assert tuple(_registry.ISA_BITS) == ORDER and found == ordered(*found)
    chain = tuple(name for name in found if name in CHAIN)
    assert chain == CHAIN[: len(chain)]
    extensions = set(found) - set(CHAIN)
    assert chain == CHAIN or (extensions <= {"avxvnni"} if chain == CHAIN[:-1] else not extensions)


# ---- Caches

def check_guessed(cpu):
    assert not cpu["caches_known"]
    for level in ("l1d", "l2", "l3"):
        c = cpu[level]
        assert c["size"] > 0 and c["ways"] > 0 and c["line"] == 64 and c["size"] % (c["ways"] * c["line"]) == 0
    assert cpu["l1d"]["size"] < cpu["l2"]["size"] < cpu["l3"]["size"]


def test_caches_are_guessed_without_leaf_4():
    check_guessed(_registry.decode_cpuid(machine(highest=2), OS_AVX))
    check_guessed(_registry.decode_cpuid(machine(), OS_AVX))  # the leaf exists and says nothing


def test_amd_without_topology_extensions_is_guessed():
    """Then 0x8000001D is reserved, and leaf 4 is Intel's."""
    table = {**ZEN4, (0x80000001, 0): (0, 0, 0, 0), (4, 0): cache(DATA, 1, 99 * KIB, 1)}
    check_guessed(_registry.decode_cpuid(table, OS_AVX512))


def test_hygon_is_read_as_amd():
    table = {**ZEN4, (0, 0): machine(vendor="HygonGenuine")[(0, 0)]}
    assert sizes(_registry.decode_cpuid(table, OS_AVX)) == ((32 * KIB, 8), (1 * MIB, 8), (32 * MIB, 16))


def test_no_l3_is_a_fact_when_the_others_are_known():
    cpu = _registry.decode_cpuid(machine(caches=[cache(DATA, 1, 48 * KIB, 12), cache(UNIFIED, 2, 2 * MIB, 16)]), OS_AVX)
    assert cpu["caches_known"]
    assert sizes(cpu)[:2] == ((48 * KIB, 12), (2 * MIB, 16)) and cpu["l3"]["size"] == 0


def test_instruction_caches_are_not_data_caches():
    caches = [cache(INSTRUCTIONS, 1, 64 * KIB, 4), cache(DATA, 1, 32 * KIB, 8), cache(UNIFIED, 2, 1 * MIB, 8)]
    assert _registry.decode_cpuid(machine(caches=caches), OS_AVX)["l1d"]["size"] == 32 * KIB


# ---- Names

def test_unknown_vendor():
    cpu = _registry.decode_cpuid(machine(vendor="TransmetaCPU", caches=[cache(DATA, 1, 64 * KIB, 8)]), OS_AVX)
    assert cpu["vendor"] == "TransmetaCPU" and cpu["isas"][-1] == "avx2"
    assert cpu["l1d"]["size"] == 64 * KIB


@pytest.mark.parametrize("brand", ["x" * 48, "A Processor", ""])
def test_brand(brand):
    """48 bytes, with or without a zero at the end."""
    assert _registry.decode_cpuid(machine(brand=brand), OS_AVX)["brand"] == brand


def test_brand_needs_its_leaves():
    table = {**machine(brand="not there"), (0x80000000, 0): (0x80000001, 0, 0, 0)}
    assert _registry.decode_cpuid(table, OS_AVX)["brand"] == ""


def test_family_and_model_of_old_families():
    """Extended family counts from family 15 on, extended model for families 6 and 15."""
    for signature, family, model in ((0x00000F4A, 15, 4), (0x00100F23, 16, 2), (0x000005AB, 5, 0xA), (0x000306C3, 6, 0x3C)):
        cpu = _registry.decode_cpuid(machine(signature=signature), OS_AVX)
        assert (cpu["family"], cpu["model"]) == (family, model)


def test_this_machine():
    cpu = _registry.cpu_info()
    assert cpu["isas"] == _registry.detected_isas() and cpu["isas"][0] == "scalar"
    assert set(cpu["slow"]) <= set(cpu["isas"])
    assert _registry.default_isas() == tuple(name for name in _registry.usable_isas() if name not in cpu["slow"])
    assert cpu["l1d"]["size"] > 0 and cpu["l2"]["size"] > 0
