/* AMX tiles: 8 registers of 16 rows x 64 bytes.  tdpbf16ps adds the product of 16 x 32 and 32 x 16 bfloat16 numbers to
 * 16 x 16 float32 sums, 8192 multiply-adds in 16 cycles: sixteen times what two FMA ports do.
 *
 *   tmm0..3   C, 32 x 32        per 32 steps of k: 4 tdpbf16ps, 64 cycles, for 4 loads of 1 KiB, about 32 cycles from L1
 *   tmm4, 5   A, two of 16 rows, from a micro-panel of lines, which is what a tile load wants
 *   tmm6, 7   B, two of 16 columns: pairs along k, exactly a BF16 panel
 *
 * Every tile has the size of its part of C, so nothing past an edge is read or written; only the last steps of k, if
 * fewer than 16 pairs, are copied and filled up with zeros.  Sums start at zero and `add` is added after, by vector
 * instructions, because tdpbf16ps flushes subnormal numbers like vdpbf16ps.  SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AMXBF16_H
#define GK_AMXBF16_H

GK_TARGET_BEGIN(GK_T_AVX512)

/* The stand-in for tiles that would be flushed: the 8-row kernel of the same panels, four times. */
#include "vocabulary_avx512.inc.h"
#undef V_BROADCAST
#define V_BROADCAST(p) _mm512_castsi512_ps(_mm512_set1_epi32(gk_load_pair(p)))
#undef V_FMA
#define V_FMA(a, b, c) GK_FMA_OF_PAIRS(a, b, c)
#define GK_UKR_NAME gk_gemm_bf16bf16_ukr_32x32_part_avx512
#define GK_MR 8
#define GK_NV 2
#include "tmpl_gemm.inc.h"
#include "tmpl_undef.inc.h"

static void gk_gemm_bf16bf16_ukr_32x32_avx512(const gk_ukr_args *g)
{
    gk_ukr_args part = *g;
    for (ptrdiff_t i = 0; i < g->m; i += 8) {
        part.m = g->m - i < 8 ? g->m - i : 8;
        part.a = g->a + i * g->rs_a;
        part.c = g->c + i * g->rs_c;
        if (g->add)
            part.add = g->add + i * g->rs_add;
        gk_gemm_bf16bf16_ukr_32x32_part_avx512(&part);
    }
}

GK_TARGET_END

GK_TARGET_BEGIN(GK_T_AMXBF16)

#define GK_UKR_NAME gk_gemm_bf16bf16_ukr_32x32_amxbf16
#define GK_PEAK_NAME gk_peak_bf16_amxbf16
#define T_PRODUCT _tile_dpbf16ps
#define T_ADD(x, y) _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y)))
#define T_OPS (2 * 16 * 16 * 32)
#include "tmpl_amx.inc.h"

GK_TARGET_END
#endif
