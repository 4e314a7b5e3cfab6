/* The one translation unit with kernels: every instruction set's header, then the table.
 * SPDX-License-Identifier: Apache-2.0 */
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

/* The table is read once for each kind of line. */
#define GK_UKR(...) GK_UKR_RELEASED(__VA_ARGS__, NULL)
#define GK_UKR_RELEASED(role, isa, a, b, acc, mr, nr, kr, vl, flags, fn, release) \
    {#fn, isa, role, a, b, acc, mr, nr, kr, vl, flags, fn, release},
#define GK_PACK(isa, from, to, of)
#define GK_PANELS_ONLY(isa, from, to, of)
#define GK_EPI(isa, acc, out, fn)
#define GK_PEAK(isa, type, fn)
const gk_ukr gk_rows[] = {
#include "rows.inc.h"
};
const int gk_num_rows = (int)(sizeof gk_rows / sizeof gk_rows[0]);
#undef GK_UKR
#undef GK_UKR_RELEASED
#undef GK_PACK
#undef GK_PANELS_ONLY
#define GK_UKR(...)
#define GK_UKR_RELEASED(...)
#define GK_PACK(isa, from, to, of) {#of, isa, from, to, gk_panels_##of, gk_lines_##of},
#define GK_PANELS_ONLY(isa, from, to, of) {#of, isa, from, to, gk_panels_##of, NULL},
const gk_pack gk_packs[] = {
#include "rows.inc.h"
};
const int gk_num_packs = (int)(sizeof gk_packs / sizeof gk_packs[0]);
#undef GK_PACK
#undef GK_PANELS_ONLY
#undef GK_EPI
#define GK_PACK(isa, from, to, of)
#define GK_PANELS_ONLY(isa, from, to, of)
#define GK_EPI(isa, acc, out, fn) {#fn, isa, acc, out, fn},
const gk_epi gk_epis[] = {
#include "rows.inc.h"
};
const int gk_num_epis = (int)(sizeof gk_epis / sizeof gk_epis[0]);
#undef GK_EPI
#undef GK_PEAK
#define GK_EPI(isa, acc, out, fn)
#define GK_PEAK(isa, type, fn) {#fn, isa, type, fn},
const gk_peak gk_peaks[] = {
#include "rows.inc.h"
};
const int gk_num_peaks = (int)(sizeof gk_peaks / sizeof gk_peaks[0]);
