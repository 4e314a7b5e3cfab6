"""The kernel table: detection, selection, and the door through which tests call one micro-kernel.

This is the only extension that contains kernels.  The others get ``const gk_ukr *`` from `select_row`.
The instruction set in use belongs to the process: `set_isa` changes it for later calls and plans.
"""
cimport numpy as cnp
from libc.string cimport memset

import os
import time

import numpy as np

cnp.import_array()

cdef extern from "ukr.h" nogil:
    const gk_ukr *const gk_rows
    const int gk_num_rows
    const gk_pack *const gk_packs
    const int gk_num_packs
    const gk_epi *const gk_epis
    const int gk_num_epis
    const gk_soft *const gk_softs
    const int gk_num_softs
    const gk_peak *const gk_peaks
    const int gk_num_peaks
    enum: GK_ISA_SCALAR, GK_ISA_SSE2, GK_ISA_AVX, GK_ISA_AVX2, GK_ISA_AVXVNNI, GK_ISA_AVX512
    enum: GK_ISA_AVX512VNNI, GK_ISA_AVX512VBMI, GK_ISA_AVX512BF16, GK_ISA_AVX512FP16, GK_ISA_AMXINT8, GK_ISA_AMXBF16

cdef extern from *:
    """
    #if defined(__clang__)
    #define GK_COMPILER "clang " __clang_version__
    #elif defined(__GNUC__)
    #define GK_COMPILER "gcc " __VERSION__
    #else
    #define GK_COMPILER "unknown"
    #endif
    """
    const char *GK_COMPILER

cdef extern from "cpu_features.h":
    ctypedef void (*gk_cpuid_fn)(void *, uint32_t, uint32_t, uint32_t *) noexcept
    void gk_cpu_decode_x86(gk_cpuid_fn, void *, uint64_t, gk_cpu *)
    void gk_cpu_detect(gk_cpu *)

# Ordered from the weakest to the strongest; forcing one leaves it and those below it.
ISA_BITS = {"scalar": GK_ISA_SCALAR, "sse2": GK_ISA_SSE2, "avx": GK_ISA_AVX, "avx2": GK_ISA_AVX2,
            "avxvnni": GK_ISA_AVXVNNI, "avx512": GK_ISA_AVX512, "avx512vnni": GK_ISA_AVX512VNNI,
            "avx512vbmi": GK_ISA_AVX512VBMI, "avx512bf16": GK_ISA_AVX512BF16, "avx512fp16": GK_ISA_AVX512FP16,
            "amxint8": GK_ISA_AMXINT8, "amxbf16": GK_ISA_AMXBF16}
ROLE_NAMES = {GK_GEMM: "gemm", GK_DOT: "dot", GK_STREAM: "stream"}
# Panels and unfinished sums have names of their own; signed and unsigned are one type to kernels from 16 bits on.
TYPE_NAMES = {GK_F32: "float32", GK_F64: "float64", GK_F16: "float16", GK_BF16: "bfloat16",
              GK_E4M3FN: "float8_e4m3fn", GK_E4M3FNUZ: "float8_e4m3fnuz", GK_E5M2: "float8_e5m2",
              GK_E5M2FNUZ: "float8_e5m2fnuz", GK_I8: "int8", GK_U8: "uint8", GK_I16: "int16", GK_I32: "int32",
              GK_I64: "int64", GK_U16: "uint16", GK_U32: "uint32", GK_U64: "uint64", GK_BOOL: "bool",
              GK_I4: "packed_int4", GK_U4: "packed_uint4", GK_QUADS_U8: "quads_u8", GK_QUADS_I8: "quads_i8",
              GK_NIBBLES: "nibbles", GK_I32Q: "int32q", GK_F32Q: "float32q"}
# The dtypes of arrays that stand for panels and unfinished sums where tests call a row.
MEMORY = {"quads_u8": "uint8", "quads_i8": "int8", "nibbles": "uint8", "int32q": "int32", "float32q": "float32"}
TYPE_CODES = {name: code for code, name in TYPE_NAMES.items()}
ROLE_CODES = {name: code for code, name in ROLE_NAMES.items()}

cdef enum:
    ROLES = 3
    TYPES = 24
    MOST_WIDTHS = 2

# What selection has settled for the mask in use: for each role and types the rows of the best instruction set, in the
# order of the table; packers and epilogues likewise.  A running call has read its rows already when they change.
cdef struct Chosen:
    const gk_ukr *rows[ROLES][TYPES][TYPES][MOST_WIDTHS]
    const gk_pack *packs[TYPES][TYPES]
    const gk_epi *epilogues[TYPES][TYPES]
    const gk_soft *softs[TYPES][TYPES]

cdef Chosen chosen
cdef gk_cpu machine
cdef uint32_t active_mask


cdef const gk_ukr *select_row(int role, int a_type, int b_type, ptrdiff_t n) noexcept nogil:
    cdef const gk_ukr *best = chosen.rows[role][a_type][b_type][0]
    cdef const gk_ukr *row
    cdef int i
    if role == GK_GEMM:
        for i in range(1, MOST_WIDTHS):
            row = chosen.rows[role][a_type][b_type][i]
            if row == NULL:
                break
            if n <= row.nr < best.nr:
                best = row
    return best


cdef const gk_ukr *select_exact(const gk_ukr *row) noexcept nogil:
    cdef int i
    for i in range(gk_num_rows):
        if (gk_rows[i].role == row.role and gk_rows[i].a_type == row.a_type and gk_rows[i].b_type == row.b_type
                and gk_rows[i].mr == row.mr and gk_rows[i].nr == row.nr and gk_rows[i].kr == row.kr
                and not gk_rows[i].isa & ~active_mask and not gk_rows[i].flags & GK_FLUSHES_DENORMALS):
            return &gk_rows[i]
    return NULL


cdef const gk_pack *select_pack(int source, int to) noexcept nogil:
    return chosen.packs[source][to]


cdef const gk_soft *select_soft(int acc, int out) noexcept nogil:
    return chosen.softs[acc][out]


cdef gk_epi_fn select_epilogue(int acc, int out) noexcept nogil:
    return chosen.epilogues[acc][out].fn


cdef int panel_type(int a_type, int b_type) noexcept nogil:
    if a_type == GK_F64 or a_type == GK_I16 or a_type == GK_I32 or a_type == GK_I64:
        return a_type
    # BF16 panels pay only where an instruction multiplies their pairs: the row that flushes.
    cdef const gk_ukr *row = chosen.rows[GK_GEMM][GK_BF16][GK_BF16][0]
    if (row != NULL and row.flags & GK_FLUSHES_DENORMALS and chosen.packs[a_type][GK_BF16] != NULL
            and chosen.packs[b_type][GK_BF16] != NULL):
        return GK_BF16
    return GK_F32


cdef const gk_cpu *current_cpu() noexcept nogil:
    return &machine


cdef int activate(uint32_t mask) except -1:
    """Settle every choice for `mask`.  Fails, and changes nothing, when something that must exist would be missing."""
    global active_mask, chosen
    cdef Chosen new
    cdef const gk_ukr *row
    cdef const gk_ukr **widths
    cdef int i, role, type, at
    memset(&new, 0, sizeof(new))
    for i in range(gk_num_rows):
        row = &gk_rows[i]
        if row.isa & ~mask:
            continue
        widths = new.rows[row.role][row.a_type][row.b_type]
        for at in range(MOST_WIDTHS):
            if widths[at] == NULL:
                if at == 0 or widths[0].isa == row.isa:
                    widths[at] = row
                break
    for i in range(gk_num_packs):
        if not gk_packs[i].isa & ~mask and new.packs[gk_packs[i].source][gk_packs[i].to] == NULL:
            new.packs[gk_packs[i].source][gk_packs[i].to] = &gk_packs[i]
    for i in range(gk_num_epis):
        if not gk_epis[i].isa & ~mask and new.epilogues[gk_epis[i].acc][gk_epis[i].out] == NULL:
            new.epilogues[gk_epis[i].acc][gk_epis[i].out] = &gk_epis[i]
    for i in range(gk_num_softs):
        if not gk_softs[i].isa & ~mask and new.softs[gk_softs[i].acc][gk_softs[i].out] == NULL:
            new.softs[gk_softs[i].acc][gk_softs[i].out] = &gk_softs[i]
    for type in (GK_F32, GK_F64):
        if new.softs[type][type] == NULL:
            raise RuntimeError(f"the kernel table has no softmax for {TYPE_NAMES[type]}")
    for type in range(GK_E5M2FNUZ + 1):
        acc = GK_F64 if type == GK_F64 else GK_F32
        complete = new.packs[type][acc] != NULL and new.epilogues[acc][type] != NULL
        for role in range(GK_NUM_ROLES):
            complete = complete and new.rows[role][acc][type][0] != NULL
        if not complete or new.rows[GK_DOT][type][acc][0] == NULL:
            raise RuntimeError(f"the kernel table is incomplete for {TYPE_NAMES[type]}")
    for type in (GK_I16, GK_I32, GK_I64):
        complete = new.packs[type][type] != NULL and new.epilogues[type][type] != NULL
        for role in range(GK_NUM_ROLES):
            complete = complete and new.rows[role][type][type][0] != NULL
        if not complete:
            raise RuntimeError(f"the kernel table is incomplete for {TYPE_NAMES[type]}")
    for type in (GK_I8, GK_U8, GK_I4, GK_U4):
        for panel in (GK_QUADS_U8, GK_QUADS_I8, GK_NIBBLES):
            if new.packs[type][panel] == NULL:
                raise RuntimeError(f"the kernel table has no packer from {TYPE_NAMES[type]} to {TYPE_NAMES[panel]}")
    for role, a, b in ((GK_GEMM, GK_QUADS_U8, GK_QUADS_I8), (GK_GEMM, GK_QUADS_U8, GK_NIBBLES), (GK_DOT, GK_QUADS_U8, GK_I8),
                       (GK_DOT, GK_QUADS_U8, GK_U8), (GK_DOT, GK_U8, GK_QUADS_I8), (GK_DOT, GK_I8, GK_QUADS_I8),
                       (GK_STREAM, GK_QUADS_U8, GK_I8), (GK_STREAM, GK_QUADS_U8, GK_U8)):
        if new.rows[role][a][b][0] == NULL:
            raise RuntimeError(f"the kernel table has no {ROLE_NAMES[role]} row for {TYPE_NAMES[a]} and {TYPE_NAMES[b]}")
    for acc, out in ((GK_I32, GK_I8), (GK_I32, GK_BOOL), (GK_I32Q, GK_I32), (GK_I32Q, GK_I8), (GK_I32Q, GK_U8),
                     (GK_F32Q, GK_E4M3FN), (GK_F32Q, GK_E4M3FNUZ), (GK_F32Q, GK_E5M2), (GK_F32Q, GK_E5M2FNUZ)):
        if new.epilogues[acc][out] == NULL:
            raise RuntimeError(f"the kernel table has no epilogue from {TYPE_NAMES[acc]} to {TYPE_NAMES[out]}")
    chosen = new
    active_mask = mask
    return 0


def isa_names(uint32_t mask):
    """Names of the instruction sets in a mask, weakest first."""
    return tuple(name for name, bit in ISA_BITS.items() if mask & bit)


def compiled_isas():
    """Instruction sets that this build has kernels for."""
    cdef uint32_t mask = 0
    cdef int i
    for i in range(gk_num_rows):
        mask |= gk_rows[i].isa
    return isa_names(mask)


def detected_isas():
    """Instruction sets that the processor has and the operating system supports."""
    return isa_names(machine.isa_mask)


def usable_isas():
    """Instruction sets that are both compiled and detected: those `set_isa` accepts."""
    have = detected_isas()
    return tuple(name for name in compiled_isas() if name in have)


def active_isa():
    """The strongest instruction set in use."""
    return isa_names(active_mask)[-1]


cdef uint32_t mask_of(names) except 0:
    cdef uint32_t mask = 0
    for name in names:
        mask |= <uint32_t>ISA_BITS[name]
    return mask


def default_isas():
    """What is used when nothing is forced: the usable sets without those that are slow on this processor."""
    return tuple(name for name in usable_isas() if not ISA_BITS[name] & machine.slow_mask)


def set_isa(name):
    """Use instruction set `name` and weaker ones from now on; None: all that are worth it on this processor.

    Raises
    ------
    ValueError
        The name is unknown, this build has no kernels for it, or the processor lacks it.
    """
    if name is None:
        activate(mask_of(default_isas()))
        return
    if name not in ISA_BITS:
        raise ValueError(f"isa: unknown instruction set {name!r}; known are {', '.join(ISA_BITS)}")
    if name not in compiled_isas():
        raise ValueError(f"isa: this build has no {name} kernels, only {', '.join(compiled_isas())}")
    if name not in detected_isas():
        raise ValueError(f"isa: this processor or its operating system lacks {name}; it has {', '.join(detected_isas())}")
    # Sets below it as far as the processor has them, a slow one only if it is the one asked for.
    activate(((ISA_BITS[name] << 1) - 1) & machine.isa_mask & (~machine.slow_mask | <uint32_t>ISA_BITS[name]))


def rows():
    """The kernel table as a list of dicts, in its order."""
    cdef int i
    cdef const gk_ukr *r
    out = []
    for i in range(gk_num_rows):
        r = &gk_rows[i]
        out.append({"index": i, "name": r.name.decode(), "isa": isa_names(r.isa)[-1], "role": ROLE_NAMES[r.role],
                    "a": TYPE_NAMES[r.a_type], "b": TYPE_NAMES[r.b_type], "acc": TYPE_NAMES[r.acc_type],
                    "mr": r.mr, "nr": r.nr, "kr": r.kr, "vl": r.vl, "flags": r.flags})
    return out


def packers():
    """The packers of the table as a list of dicts, in its order."""
    return [{"index": i, "name": gk_packs[i].name.decode(), "isa": isa_names(gk_packs[i].isa)[-1],
             "from": TYPE_NAMES[gk_packs[i].source], "to": TYPE_NAMES[gk_packs[i].to]} for i in range(gk_num_packs)]


def epilogues():
    """The epilogue rows of the table as a list of dicts, in its order."""
    return [{"index": i, "name": gk_epis[i].name.decode(), "isa": isa_names(gk_epis[i].isa)[-1],
             "acc": TYPE_NAMES[gk_epis[i].acc], "out": TYPE_NAMES[gk_epis[i].out]} for i in range(gk_num_epis)]


def softs():
    """The softmax rows of the table as a list of dicts, in its order."""
    return [{"index": i, "name": gk_softs[i].name.decode(), "isa": isa_names(gk_softs[i].isa)[-1],
             "acc": TYPE_NAMES[gk_softs[i].acc], "out": TYPE_NAMES[gk_softs[i].out], "vl": gk_softs[i].vl}
            for i in range(gk_num_softs)]


def why_refused(str role, str a_type, str b_type, ptrdiff_t n=1 << 30):
    """For each row of a role and types, best first: (name, None if it is the one chosen, else the reason)."""
    cdef int i, r = ROLE_CODES[role], a = TYPE_CODES[a_type], b = TYPE_CODES[b_type]
    cdef const gk_ukr *best = select_row(r, a, b, n)
    cdef const gk_ukr *row
    out = []
    for i in range(gk_num_rows):
        row = &gk_rows[i]
        if row.role != r or row.a_type != a or row.b_type != b:
            continue
        isa = isa_names(row.isa)[-1]
        if row == best:
            reason = None
        elif row.isa & ~machine.isa_mask:
            reason = f"the processor lacks {isa}"
        elif row.isa & machine.slow_mask & ~active_mask:
            reason = f"{isa} is slower than others on this processor, and not forced"
        elif row.isa & ~active_mask:
            reason = f"{isa} is switched off: {active_isa()} is forced"
        elif row.isa == best.isa:
            reason = f"tile of {row.nr} columns, {best.nr} fit N better"
        else:
            reason = f"{isa_names(best.isa)[-1]} comes first in the table"
        out.append((row.name.decode(), reason))
    return out


def settings():
    """(active mask,) to restore with `restore`: which sets are in use, also ones that no name stands for."""
    return active_mask


def restore(uint32_t mask):
    """Use exactly the sets that `settings` told."""
    activate(mask)


include "_doors.pxi"


def measure_peak(str type):
    """The highest rate of multiply-adds of one core with the sets in use, in GFLOP/s: best of ten short runs.

    For a type without an instruction of its own in use, that of the type it is widened to.
    """
    if type not in TYPE_CODES:
        raise ValueError(f"type: expected one of {', '.join(TYPE_CODES)}, got {type!r}")
    if type in MEMORY or type == "bool":
        raise ValueError(f"type: expected one that is multiplied, got {type!r}")
    cdef int i, t = TYPE_CODES[type]
    cdef gk_peak_fn peak = NULL
    cdef double start, seconds, flops, best = 0
    if is_quads(t):
        t = GK_QUADS_U8
    elif t in (GK_U16, GK_U32, GK_U64):
        t = {GK_U16: GK_I16, GK_U32: GK_I32, GK_U64: GK_I64}[t]
    else:
        t = panel_type(t, t)
    for i in range(gk_num_peaks):
        if gk_peaks[i].type == t and not gk_peaks[i].isa & ~active_mask:
            peak = gk_peaks[i].fn
            break
    for i in range(10):
        start = time.perf_counter()
        with nogil:
            flops = peak(1000000)
        seconds = time.perf_counter() - start
        best = max(best, flops / seconds / 1e9)
    return best


def compiler():
    """The compiler that built the kernels."""
    return GK_COMPILER.decode()


cdef dict cache_of(gk_cache c):
    return {"size": c.size, "ways": c.ways, "line": c.line, "sharing": c.sharing}


cdef dict cpu_of(gk_cpu *cpu):
    return {"vendor": (<bytes>cpu.vendor).decode("ascii", "replace"),
            "brand": (<bytes>cpu.brand).decode("ascii", "replace").strip(),
            "family": cpu.family, "model": cpu.model, "isas": isa_names(cpu.isa_mask),
            "slow": isa_names(cpu.isa_mask & cpu.slow_mask),
            "caches_known": bool(cpu.caches_known),
            "l1d": cache_of(cpu.l1d), "l2": cache_of(cpu.l2), "l3": cache_of(cpu.l3)}


def cpu_info():
    """What was detected: vendor, brand, family, model, instruction sets, caches (sizes in bytes)."""
    return cpu_of(&machine)


cdef void ask_table(void *context, uint32_t leaf, uint32_t subleaf, uint32_t *regs) noexcept:
    cdef int i
    answer = (<dict>context).get((leaf, subleaf), (0, 0, 0, 0))
    for i in range(4):
        regs[i] = answer[i]


def decode_cpuid(dict table, uint64_t xcr0):
    """What another processor would be taken for.

    Parameters
    ----------
    table : dict
        (leaf, subleaf) -> (eax, ebx, ecx, edx); an absent leaf answers zeros.
    xcr0 : int
        The operating system's register state mask.
    """
    cdef gk_cpu cpu
    gk_cpu_decode_x86(ask_table, <void *>table, xcr0, &cpu)
    return cpu_of(&cpu)


gk_cpu_detect(&machine)
try:
    set_isa(os.environ.get("GEMMKIT_ISA") or None)
except ValueError as error:
    raise ValueError(f"GEMMKIT_ISA: {str(error).removeprefix('isa: ')}") from None
