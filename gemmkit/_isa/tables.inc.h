/* A translation unit with kernels: every instruction set's header, then the table, in which the functions of other units are
 * NULL.  The compiler drops what a unit's table doesn't name, so that units share the work of compiling, side by side.
 *
 * Needs GK_UNIT: base, avx512 or more.  SPDX-License-Identifier: Apache-2.0 */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "target.h"
#include "ukr.h"

#include "fetch.h"
#include "narrow.h"
#include "vectors.h"
#include "scalar_narrow.h"
#include "scalar.h"
#include "scalar_int.h"
#include "scalar_bytes.h"
#ifdef GK_X86
#include "sse2.h"
#include "avx.h"
#include "avx2_narrow.h"
#include "avx2.h"
#include "avx2_int.h"
#include "avx2_bytes.h"
#include "avx512_narrow.h"
#include "avx512.h"
#include "avx512_int.h"
#include "avx512_bytes.h"
#include "avx512bf16.h"
#include "avx512vbmi.h"
#include "avx512fp16.h"
#include "amx.h"
#include "amxbf16.h"
#include "amxint8.h"
#endif

/* Which sets a unit's table names: GK_PICK(isa, x) is x, or NULL. */
#define GK_NO(x) NULL
#define GK_YES(x) x
#define GK_UNIT_base 1
#define GK_UNIT_avx512 2
#define GK_UNIT_more 3
#define GK_THIS GK_CAT(GK_UNIT_, GK_UNIT)
#if GK_THIS == 1
#define GK_BASE GK_YES
#define GK_512 GK_NO
#define GK_MORE GK_NO
#elif GK_THIS == 2
#define GK_BASE GK_NO
#define GK_512 GK_YES
#define GK_MORE GK_NO
#elif GK_THIS == 3
#define GK_BASE GK_NO
#define GK_512 GK_NO
#define GK_MORE GK_YES
#endif
#define GK_PICK_GK_ISA_SCALAR GK_BASE
#define GK_PICK_GK_ISA_SSE2 GK_BASE
#define GK_PICK_GK_ISA_AVX GK_BASE
#define GK_PICK_GK_ISA_AVX2 GK_BASE
#define GK_PICK_GK_ISA_AVXVNNI GK_MORE
#define GK_PICK_GK_ISA_AVX512 GK_512
#define GK_PICK_GK_ISA_AVX512VNNI GK_MORE
#define GK_PICK_GK_ISA_AVX512VBMI GK_MORE
#define GK_PICK_GK_ISA_AVX512BF16 GK_MORE
#define GK_PICK_GK_ISA_AVX512FP16 GK_MORE
#define GK_PICK_GK_ISA_AMXINT8 GK_MORE
#define GK_PICK_GK_ISA_AMXBF16 GK_MORE
#define GK_PICK(isa, x) GK_PICK_##isa(x)

/* The table is read once for each kind of line. */
#define GK_UKR(role, isa, a, b, acc, mr, nr, kr, vl, flags, fn) \
    {#fn, isa, role, a, b, acc, mr, nr, kr, vl, flags, GK_PICK(isa, fn), NULL},
#define GK_UKR_RELEASED(role, isa, a, b, acc, mr, nr, kr, vl, flags, fn, release) \
    {#fn, isa, role, a, b, acc, mr, nr, kr, vl, flags, GK_PICK(isa, fn), GK_PICK(isa, release)},
#define GK_PACK(isa, from, to, of)
#define GK_PANELS_ONLY(isa, from, to, of)
#define GK_EPI(isa, acc, out, fn)
#define GK_SOFT(isa, acc, out, vl, of, weigh)
#define GK_PEAK(isa, type, fn)
static const gk_ukr unit_rows[] = {
#include "rows.inc.h"
};
#undef GK_UKR
#undef GK_UKR_RELEASED
#undef GK_PACK
#undef GK_PANELS_ONLY
#define GK_UKR(...)
#define GK_UKR_RELEASED(...)
#define GK_PACK(isa, from, to, of) {#of, isa, from, to, GK_PICK(isa, gk_panels_##of), GK_PICK(isa, gk_lines_##of)},
#define GK_PANELS_ONLY(isa, from, to, of) {#of, isa, from, to, GK_PICK(isa, gk_panels_##of), NULL},
static const gk_pack unit_packs[] = {
#include "rows.inc.h"
};
#undef GK_PACK
#undef GK_PANELS_ONLY
#undef GK_EPI
#define GK_PACK(isa, from, to, of)
#define GK_PANELS_ONLY(isa, from, to, of)
#define GK_EPI(isa, acc, out, fn) {#fn, isa, acc, out, GK_PICK(isa, fn)},
static const gk_epi unit_epis[] = {
#include "rows.inc.h"
};
#undef GK_EPI
#undef GK_SOFT
#define GK_EPI(isa, acc, out, fn)
#define GK_SOFT(isa, acc, out, vl, of, weigh)                                                                    \
    {#weigh, isa, acc, out, vl, GK_PICK(isa, gk_scan_##of), GK_PICK(isa, gk_rescale_##of), GK_PICK(isa, gk_divide_##of), GK_PICK(isa, weigh)},
static const gk_soft unit_softs[] = {
#include "rows.inc.h"
};
#undef GK_SOFT
#undef GK_PEAK
#define GK_SOFT(isa, acc, out, vl, of, weigh)
#define GK_PEAK(isa, type, fn) {#fn, isa, type, GK_PICK(isa, fn)},
static const gk_peak unit_peaks[] = {
#include "rows.inc.h"
};

const gk_tables GK_CAT(gk_tables_, GK_UNIT) = {
    unit_rows, unit_packs, unit_epis, unit_softs, unit_peaks,
    sizeof unit_rows / sizeof unit_rows[0], sizeof unit_packs / sizeof unit_packs[0],
    sizeof unit_epis / sizeof unit_epis[0], sizeof unit_softs / sizeof unit_softs[0], sizeof unit_peaks / sizeof unit_peaks[0],
};
