"""The kernel table: detection, selection, and the door through which tests call one micro-kernel.

This is the only extension that contains kernels.  The others get ``const gk_ukr *`` from `select_row`.
The instruction set in use belongs to the process: `set_isa` changes it for later calls and plans.
"""
cimport numpy as cnp
from libc.string cimport memset

import os
import time

cnp.import_array()

cdef extern from "ukr.h" nogil:
    const gk_ukr gk_rows[]
    const int gk_num_rows
    const gk_vec gk_vecs[]
    const int gk_num_vecs
    enum: GK_ISA_SCALAR, GK_ISA_SSE2, GK_ISA_AVX, GK_ISA_AVX2, GK_ISA_AVX512

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
            "avx512": GK_ISA_AVX512}
ROLE_NAMES = {GK_GEMM: "gemm", GK_DOT: "dot", GK_STREAM: "stream"}
TYPE_NAMES = {GK_F32: "float32", GK_F64: "float64"}

cdef enum: MOST_WIDTHS = 4

# What selection has settled for the mask in use: for each role and type the rows of the best instruction set,
# in the order of the table.  Replaced as a whole while the GIL is held; a running call has read its rows already.
cdef const gk_ukr *chosen[3][2][4]
cdef gk_epi_fn chosen_epilogue[2]
cdef gk_cpu machine
cdef uint32_t active_mask


cdef const gk_ukr *select_row(int role, int type, ptrdiff_t n) noexcept nogil:
    cdef const gk_ukr *best = chosen[role][type][0]
    cdef int i
    if role == GK_GEMM:
        for i in range(1, MOST_WIDTHS):
            if chosen[role][type][i] == NULL:
                break
            if n <= chosen[role][type][i].nr < best.nr:
                best = chosen[role][type][i]
    return best


cdef gk_epi_fn select_epilogue(int type) noexcept nogil:
    return chosen_epilogue[type]


cdef const gk_cpu *current_cpu() noexcept nogil:
    return &machine


cdef int activate(uint32_t mask) except -1:
    """Settle every choice for `mask`.  Fails, and changes nothing, when a role or type would have no row."""
    global active_mask
    cdef const gk_ukr *rows[3][2][4]
    cdef gk_epi_fn epilogues[2]
    cdef const gk_ukr *row
    cdef int i, role, type, at
    memset(rows, 0, sizeof(rows))
    memset(epilogues, 0, sizeof(epilogues))
    for i in range(gk_num_rows):
        row = &gk_rows[i]
        if row.isa & ~mask:
            continue
        for at in range(MOST_WIDTHS):
            if rows[row.role][row.acc_type][at] == NULL:
                if at == 0 or rows[row.role][row.acc_type][0].isa == row.isa:
                    rows[row.role][row.acc_type][at] = row
                break
    for i in range(gk_num_vecs):
        if not gk_vecs[i].isa & ~mask and epilogues[gk_vecs[i].type] == NULL:
            epilogues[gk_vecs[i].type] = gk_vecs[i].epilogue
    for type in range(GK_NUM_TYPES):
        for role in range(GK_NUM_ROLES):
            if rows[role][type][0] == NULL:
                raise RuntimeError(f"the kernel table has no {ROLE_NAMES[role]} row for {TYPE_NAMES[type]}")
        if epilogues[type] == NULL:
            raise RuntimeError(f"the kernel table has no epilogue for {TYPE_NAMES[type]}")
    for type in range(GK_NUM_TYPES):
        for role in range(GK_NUM_ROLES):
            for at in range(MOST_WIDTHS):
                chosen[role][type][at] = rows[role][type][at]
        chosen_epilogue[type] = epilogues[type]
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
    names = isa_names(active_mask)
    return names[-1]


def set_isa(name):
    """Use instruction set `name` and weaker ones from now on; None: the strongest there is.

    Raises
    ------
    ValueError
        The name is unknown, this build has no kernels for it, or the processor lacks it.
    """
    if name is None:
        name = usable_isas()[-1]
    if name not in ISA_BITS:
        raise ValueError(f"isa: unknown instruction set {name!r}; known are {', '.join(ISA_BITS)}")
    if name not in compiled_isas():
        raise ValueError(f"isa: this build has no {name} kernels, only {', '.join(compiled_isas())}")
    if name not in detected_isas():
        raise ValueError(f"isa: this processor or its operating system lacks {name}; it has {', '.join(detected_isas())}")
    activate((ISA_BITS[name] << 1) - 1)


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


def epilogues():
    """The epilogue rows of the table as a list of dicts."""
    return [{"index": i, "name": gk_vecs[i].name.decode(), "isa": isa_names(gk_vecs[i].isa)[-1],
             "type": TYPE_NAMES[gk_vecs[i].type]} for i in range(gk_num_vecs)]


def why_refused(str role, str type, ptrdiff_t n=1 << 30):
    """For each row of a role and type, best first: (name, None if it is the one chosen, else the reason)."""
    cdef int i, r, t
    r = {v: k for k, v in ROLE_NAMES.items()}[role]
    t = {v: k for k, v in TYPE_NAMES.items()}[type]
    cdef const gk_ukr *best = select_row(r, t, n)
    cdef const gk_ukr *row
    out = []
    for i in range(gk_num_rows):
        row = &gk_rows[i]
        if row.role != r or row.acc_type != t:
            continue
        isa = isa_names(row.isa)[-1]
        if row == best:
            reason = None
        elif row.isa & ~machine.isa_mask:
            reason = f"the processor lacks {isa}"
        elif row.isa & ~active_mask:
            reason = f"{isa} is switched off: {active_isa()} is forced"
        elif row.isa == best.isa:
            reason = f"tile of {row.nr} columns, {best.nr} fit N better"
        else:
            reason = f"{isa_names(best.isa)[-1]} comes first in the table"
        out.append((row.name.decode(), reason))
    return out


cdef int check_runnable(uint32_t isa) except -1:
    if isa & ~machine.isa_mask:
        raise ValueError(f"row: this processor lacks {isa_names(isa)[-1]}")
    return 0


def run_row(int index, cnp.ndarray a, cnp.ndarray b, cnp.ndarray c, cnp.ndarray add=None):
    """Call one micro-kernel: c = add + a @ b, in the arrays' own memory and strides.

    For tests and benchmarks of single kernels: a (m, k), b (k, n), c and add (m, n) hold the row's types; m <= MR, and
    n <= NR unless it is a stream row; c's and add's columns are adjacent, and the operands as the row's role needs.
    """
    cdef gk_ukr_args g
    cdef const gk_ukr *r
    if not 0 <= index < gk_num_rows:
        raise ValueError(f"index: {index} is no row of the table")
    r = &gk_rows[index]
    check_runnable(r.isa)
    code = cnp.NPY_FLOAT32 if r.acc_type == GK_F32 else cnp.NPY_FLOAT64
    for x in (a, b, c) if add is None else (a, b, c, add):
        if cnp.PyArray_NDIM(x) != 2 or cnp.PyArray_TYPE(x) != code or not cnp.PyArray_ISALIGNED(x):
            raise ValueError(f"run_row: expected aligned {TYPE_NAMES[r.acc_type]} matrices")
    item = c.itemsize
    g.m, g.n, g.k = c.shape[0], c.shape[1], a.shape[1]
    if a.shape[0] != g.m or b.shape[0] != g.k or b.shape[1] != g.n:
        raise ValueError("run_row: shapes disagree")
    if not 1 <= g.m <= r.mr or g.n < 1 or (r.role != GK_STREAM and g.n > r.nr):
        raise ValueError(f"run_row: a tile of {g.m} x {g.n} does not fit {r.mr} x {r.nr}")
    g.a, g.rs_a, g.cs_a = cnp.PyArray_BYTES(a), a.strides[0], a.strides[1]
    g.b, g.rs_b, g.cs_b = cnp.PyArray_BYTES(b), b.strides[0], b.strides[1]
    g.c, g.rs_c = cnp.PyArray_BYTES(c), c.strides[0]
    g.add, g.rs_add = NULL, 0
    if add is not None:
        if add.shape[0] != g.m or add.shape[1] != g.n:
            raise ValueError("run_row: add has another shape than c")
        g.add, g.rs_add = cnp.PyArray_BYTES(add), add.strides[0]
    if (g.n > 1 and c.strides[1] != item) or (add is not None and g.n > 1 and add.strides[1] != item):
        raise ValueError("run_row: the columns of c and add must be adjacent")
    if r.role == GK_DOT:
        if g.k > 1 and (g.cs_a != item or g.rs_b != item):
            raise ValueError("run_row: a dot row needs a's rows and b's columns contiguous")
    elif g.n > 1 and g.cs_b != item:
        raise ValueError("run_row: this row needs b's rows contiguous")
    with nogil:
        r.fn(&g)


def run_pack(int index, cnp.ndarray src, ptrdiff_t R, cnp.ndarray dst, str operand="b"):
    """Call a row's packer of operand "a" or "b": src (w, k) into dst (ceil(w / R), k, R), for tests."""
    cdef const gk_ukr *r = &gk_rows[index]
    check_runnable(r.isa)
    cdef ptrdiff_t w = src.shape[0], k = src.shape[1]
    if (<object>dst).shape != ((w + R - 1) // R, k, R) or not dst.flags.c_contiguous or dst.dtype != src.dtype \
            or src.dtype.name != TYPE_NAMES[r.b_type]:
        raise ValueError("run_pack: dst must be a contiguous (ceil(w / R), k, R) array of the row's type")
    (r.pack_a if operand == "a" else r.pack_b)(
        cnp.PyArray_BYTES(src), src.strides[0], src.strides[1], w, k, R, cnp.PyArray_BYTES(dst))


def run_epilogue(int index, cnp.ndarray c, double alpha, double beta, cnp.ndarray bias=None):
    """Call one epilogue row: c = alpha * c + beta * bias in place; bias has c's shape (zero strides repeat)."""
    cdef gk_epi_args e
    check_runnable(gk_vecs[index].isa)
    if c.dtype.name != TYPE_NAMES[gk_vecs[index].type] or (c.shape[1] > 1 and c.strides[1] != c.itemsize):
        raise ValueError("run_epilogue: c must have the row's type and adjacent columns")
    e.c, e.rs_c, e.m, e.n = cnp.PyArray_BYTES(c), c.strides[0], c.shape[0], c.shape[1]
    e.alpha, e.beta, e.bias = alpha, beta, NULL
    if bias is not None:
        if not ((<object>bias).shape == (<object>c).shape and bias.dtype == c.dtype):
            raise ValueError("run_epilogue: bias must have c's shape and type")
        e.bias, e.rs_bias, e.cs_bias = cnp.PyArray_BYTES(bias), bias.strides[0], bias.strides[1]
    gk_vecs[index].epilogue(&e)


def measure_peak(str type):
    """The highest rate of multiply-adds of one core with the set in use, in GFLOP/s: best of ten short runs."""
    cdef int i, t = {v: k for k, v in TYPE_NAMES.items()}[type]
    cdef gk_peak_fn peak = NULL
    cdef double start, seconds, rate, best = 0, flops
    for i in range(gk_num_vecs):
        if gk_vecs[i].type == t and not gk_vecs[i].isa & ~active_mask:
            peak = gk_vecs[i].peak
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
set_isa(os.environ.get("GEMMKIT_ISA") or None)
