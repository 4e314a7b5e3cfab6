/* The one translation unit with kernels: every instruction set's header, then the table.
 * SPDX-License-Identifier: Apache-2.0 */
#include "target.h"
#include "ukr.h"

#include "scalar.h"
#ifdef GK_X86
#include "sse2.h"
#include "avx.h"
#include "avx2.h"
#include "avx512.h"
#endif

#define GK_UKR(role, isa, a, b, acc, mr, nr, kr, vl, flags, pack_a, pack_b, fn) \
    {#fn, isa, role, a, b, acc, mr, nr, kr, vl, flags, pack_a, pack_b, fn},
#define GK_VEC(isa, type, epilogue, peak)
const gk_ukr gk_rows[] = {
#include "rows.inc.h"
};
#undef GK_UKR
#undef GK_VEC
const int gk_num_rows = (int)(sizeof gk_rows / sizeof gk_rows[0]);

#define GK_UKR(role, isa, a, b, acc, mr, nr, kr, vl, flags, pack_a, pack_b, fn)
#define GK_VEC(isa, type, epilogue, peak) {#epilogue, isa, type, epilogue, peak},
const gk_vec gk_vecs[] = {
#include "rows.inc.h"
};
const int gk_num_vecs = (int)(sizeof gk_vecs / sizeof gk_vecs[0]);
