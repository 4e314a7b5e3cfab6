/* AVX-512 F, BW, DQ, VL: 32 registers of 512 bits and mask registers.
 *
 *   instruction              Golden Cove / Sapphire Rapids    Zen 4
 *   vfmadd231ps zmm          2 a cycle, latency 4              1 a cycle, latency 4
 *   vmovups / vbroadcastss   2 a cycle                         1 a cycle (512 bits), 2 (broadcast)
 *   masked load, zeroing     also takes an arithmetic port     as the load
 *
 * so a tile needs at least 8 accumulators to hide the latency and fewer loads than FMAs: 8 x 3 vectors has 24, and
 * 11 loads for 24 FMAs.  SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AVX512_H
#define GK_AVX512_H

GK_TARGET_BEGIN(GK_T_AVX512)

/* Sums of four vectors, transposed and added by halves: 13 operations where one by one would be 36. */
GK_INLINE void gk_sum_four_f32_avx512(__m512 a, __m512 b, __m512 c, __m512 d, const char *add, char *to)
{
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512 all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    gk_store_four_f32_avx(_mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1)), add, to);
}

#include "vocabulary_avx512.inc.h"
#define V_SQUARE 8
#define V_TRANSPOSE gk_transpose_f32_avx
#define GK_PACK_OF f32f32_avx512
#include "tmpl_pack.inc.h"
#define GK_EPI_NAME gk_epilogue_f32f32_avx512
#include "tmpl_epilogue.inc.h"
#define GK_SOFT_OF f32_avx512
#include "softmax_f32.inc.h"
#include "tmpl_softmax.inc.h"
#define GK_PEAK_NAME gk_peak_f32_avx512
#define GK_PEAK_ACC 24
#include "tmpl_peak.inc.h"
#define GK_UKR_NAME gk_gemm_f32f32_ukr_8x48_avx512
#define GK_MR 8
#define GK_NV 3
#include "tmpl_gemm.inc.h"
#define GK_UKR_NAME gk_dot_f32f32_ukr_4x4_avx512
#define GK_MR 4
#define GK_NR 4
#define GK_ACC 16
#include "tmpl_dot.inc.h"
#define GK_UKR_NAME gk_stream_f32f32_ukr_4x16_avx512
#define GK_MR 4
#define GK_SCALARS 16
#include "tmpl_stream.inc.h"
#define N_SET avx512
#define N_PLAIN_PANELS gk_panels_f32f32_avx512
#define N_MR 8
#define N_NV 3
#define N_TILE 8x48
#define N_DOT_MR 4
#define N_DOT_NR 4
#define N_DOT_ACC 16
#define N_DOT_TILE 4x4
#define N_SCALARS 16
#define N_STREAM_TILE 4x16
#include "tmpl_narrow_all.inc.h"
#include "tmpl_undef.inc.h"

#define V_ELEM double
#define V_TYPE __m512d
#define V_LEN 8
#define V_MASK __mmask8
#define V_TAIL_MASK(n) ((__mmask8)(0xffu >> (8 - (n))))
#define V_ZERO() _mm512_setzero_pd()
#define V_LOAD(p) _mm512_loadu_pd((const double *)(p))
#define V_LOAD_TAIL(p, mask) _mm512_maskz_loadu_pd(mask, (const double *)(p))
#define V_STORE(p, v) _mm512_storeu_pd((double *)(p), v)
#define V_STORE_TAIL(p, mask, v) _mm512_mask_storeu_pd((double *)(p), mask, v)
#define V_BROADCAST(p) _mm512_set1_pd(*(const double *)(p))
#define V_FMA(a, b, c) _mm512_fmadd_pd(a, b, c)
#define V_ADD(a, b) _mm512_add_pd(a, b)
#define V_MUL(a, b) _mm512_mul_pd(a, b)
#define V_SUM(v) gk_sum_f64_avx(_mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1)))
#define V_SUB(a, b) _mm512_sub_pd(a, b)
#define V_DIV(a, b) _mm512_div_pd(a, b)
#define V_MAX(a, b) _mm512_max_pd(a, b)
#define V_SET(x) _mm512_set1_pd(x)
#define V_POW2_FROM(x, least, v, n) _mm512_maskz_scalef_pd(_mm512_cmp_pd_mask(x, least, _CMP_NLT_UQ), v, n)
#define V_LESS(a, b, x, y) _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_LT_OQ), y, x)
#define V_SQUARE 4
#define V_TRANSPOSE gk_transpose_f64_avx
#define GK_PACK_OF f64f64_avx512
#include "tmpl_pack.inc.h"
#define GK_EPI_NAME gk_epilogue_f64f64_avx512
#include "tmpl_epilogue.inc.h"
#define GK_SOFT_OF f64_avx512
#include "softmax_f64.inc.h"
#include "tmpl_softmax.inc.h"
#define GK_PEAK_NAME gk_peak_f64_avx512
#define GK_PEAK_ACC 24
#include "tmpl_peak.inc.h"
#define GK_UKR_NAME gk_gemm_f64f64_ukr_8x24_avx512
#define GK_MR 8
#define GK_NV 3
#include "tmpl_gemm.inc.h"
#define GK_UKR_NAME gk_dot_f64f64_ukr_4x4_avx512
#define GK_MR 4
#define GK_NR 4
#define GK_ACC 16
#include "tmpl_dot.inc.h"
#define GK_UKR_NAME gk_stream_f64f64_ukr_4x8_avx512
#define GK_MR 4
#define GK_SCALARS 16
#include "tmpl_stream.inc.h"
#include "tmpl_undef.inc.h"

/* Half-width tiles for narrow products: the same body over 256-bit vectors with mask registers. */
#define V_ELEM float
#define V_TYPE __m256
#define V_LEN 8
#define V_MASK __mmask8
#define V_TAIL_MASK(n) ((__mmask8)(0xffu >> (8 - (n))))
#define V_ZERO() _mm256_setzero_ps()
#define V_LOAD(p) _mm256_loadu_ps((const float *)(p))
#define V_LOAD_TAIL(p, mask) _mm256_maskz_loadu_ps(mask, (const float *)(p))
#define V_STORE(p, v) _mm256_storeu_ps((float *)(p), v)
#define V_STORE_TAIL(p, mask, v) _mm256_mask_storeu_ps((float *)(p), mask, v)
#define V_BROADCAST(p) _mm256_broadcast_ss((const float *)(p))
#define V_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define V_ADD(a, b) _mm256_add_ps(a, b)
#define GK_UKR_NAME gk_gemm_f32f32_ukr_8x8_avx512
#define GK_MR 8
#define GK_NV 1
#include "tmpl_gemm.inc.h"
#include "tmpl_undef.inc.h"

#define V_ELEM double
#define V_TYPE __m256d
#define V_LEN 4
#define V_MASK __mmask8
#define V_TAIL_MASK(n) ((__mmask8)(0xfu >> (4 - (n))))
#define V_ZERO() _mm256_setzero_pd()
#define V_LOAD(p) _mm256_loadu_pd((const double *)(p))
#define V_LOAD_TAIL(p, mask) _mm256_maskz_loadu_pd(mask, (const double *)(p))
#define V_STORE(p, v) _mm256_storeu_pd((double *)(p), v)
#define V_STORE_TAIL(p, mask, v) _mm256_mask_storeu_pd((double *)(p), mask, v)
#define V_BROADCAST(p) _mm256_broadcast_sd((const double *)(p))
#define V_FMA(a, b, c) _mm256_fmadd_pd(a, b, c)
#define V_ADD(a, b) _mm256_add_pd(a, b)
#define GK_UKR_NAME gk_gemm_f64f64_ukr_8x4_avx512
#define GK_MR 8
#define GK_NV 1
#include "tmpl_gemm.inc.h"
#include "tmpl_undef.inc.h"

GK_TARGET_END
#endif
