/* Products of bytes with AVX-512, without VNNI by vpmaddwd as in avx2_bytes.h, and with AVX512-VNNI's vpdpbusd, whose 64 products
 * an instruction run at the rate of two a cycle on Sapphire Rapids and Zen 4.
 *
 * Sums are vectors of 32-bit elements, not __m512i: gcc 12 moves __m512i accumulators of vpdpbusd to the stack and back, at
 * half the speed.  SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AVX512_BYTES_H
#define GK_AVX512_BYTES_H

GK_TARGET_BEGIN(GK_T_AVX512)

GK_INLINE __m512i gk_dp_avx512(__m512i c, __m512i a, __m512i b)
{
    const __m512i a_even = _mm512_and_si512(a, _mm512_set1_epi16(255)), a_odd = _mm512_srli_epi16(a, 8);
    const __m512i b_even = _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 8), b_odd = _mm512_srai_epi16(b, 8);
    return _mm512_add_epi32(_mm512_add_epi32(c, _mm512_madd_epi16(a_even, b_even)), _mm512_madd_epi16(a_odd, b_odd));
}

GK_INLINE void gk_to_bytes_avx512(char *p, int n, gk_u32v64 x)
{
    const __m128i bytes = _mm512_cvtepi32_epi8((__m512i)x);
    if (n == 16)
        _mm_storeu_si128((__m128i *)p, bytes);
    else
        _mm_mask_storeu_epi8(p, (__mmask16)(0xffffu >> (16 - n)), bytes);
}

GK_INLINE gk_u32v64 gk_rounded_avx512(gk_u32v64 x, double row, const double *col, int n, double least, double most)
{
    const __m512i v = (__m512i)x;
    __m512d low = _mm512_set1_pd(row), high = low;
    if (col && n == 16) {
        low = _mm512_mul_pd(low, _mm512_loadu_pd(col));
        high = _mm512_mul_pd(high, _mm512_loadu_pd(col + 8));
    } else if (col) {
        const uint32_t mask = 0xffffu >> (16 - n);
        low = _mm512_mul_pd(low, _mm512_maskz_loadu_pd((__mmask8)mask, col));
        high = _mm512_mul_pd(high, _mm512_maskz_loadu_pd((__mmask8)(mask >> 8), col + 8));
    }
    low = _mm512_mul_pd(_mm512_cvtepi32_pd(_mm512_castsi512_si256(v)), low);
    high = _mm512_mul_pd(_mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(v, 1)), high);
    /* Of a NaN, vminpd gives the other. */
    low = _mm512_max_pd(_mm512_min_pd(low, _mm512_set1_pd(most)), _mm512_set1_pd(least));
    high = _mm512_max_pd(_mm512_min_pd(high, _mm512_set1_pd(most)), _mm512_set1_pd(least));
    return (gk_u32v64)_mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtpd_epi32(low)), _mm512_cvtpd_epi32(high), 1);
}

GK_INLINE gk_u32v64 gk_rounded_single_avx512(gk_u32v64 x, float row, const float *col, int n, float least, float most)
{
    __m512 scale = _mm512_set1_ps(row);
    if (col)
        scale = _mm512_mul_ps(scale, n < 16 ? _mm512_maskz_loadu_ps((__mmask16)(0xffffu >> (16 - n)), col) : _mm512_loadu_ps(col));
    const __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps((__m512i)x), scale);
    return (gk_u32v64)_mm512_cvtps_epi32(_mm512_max_ps(_mm512_min_ps(y, _mm512_set1_ps(most)), _mm512_set1_ps(least)));
}

/* Four vectors' sums: pairs, then quarters of 128 bits with one sum of each, which are added. */
GK_INLINE void gk_sum_four_avx512(__m512i a, __m512i b, __m512i c, __m512i d, const char *add, char *to)
{
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    __m128i sums = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    if (add)
        sums = _mm_add_epi32(sums, _mm_loadu_si128((const __m128i *)add));
    _mm_storeu_si128((__m128i *)to, sums);
}

#define W_ELEM uint32_t
#define W_VECTOR gk_u32v64
#include "vocabulary_bytes_avx512.inc.h"
#define V_DP(c, a, b) ((gk_u32v64)gk_dp_avx512((__m512i)(c), (__m512i)(a), (__m512i)(b)))
#define B_SET avx512
#define B_MR 8
#define B_NV 2
#define B_TILE 8x32
#define B_DOT_MR 2
#define B_DOT_NR 4
#define B_DOT_ACC 8
#define B_DOT_TILE 2x4
#define B_STREAM_TILE 8x64
#include "tmpl_bytes.inc.h"
#define E_SET avx512
#define E_TO_BYTES(p, n, x) gk_to_bytes_avx512(p, n, x)
#define E_IS(x) ((gk_u32v64)_mm512_maskz_set1_epi32(_mm512_test_epi32_mask((__m512i)(x), (__m512i)(x)), 1))
#define E_ROUNDED(x, row, col, n, least, most) gk_rounded_avx512(x, row, col, n, least, most)
#define E_ROUNDED_SINGLE(x, row, col, n, least, most) gk_rounded_single_avx512(x, row, col, n, least, most)
#define E_FITS_MASK(x) _mm512_cmple_epu32_mask(_mm512_abs_epi32((__m512i)(x)), _mm512_set1_epi32(1 << 24))
#define E_FITS(x) (E_FITS_MASK(x) == 0xffff)
#define E_WHERE_FITS(x, y, z) ((gk_u32v64)_mm512_mask_mov_epi32((__m512i)(z), E_FITS_MASK(x), (__m512i)(y)))
#include "tmpl_quantized.inc.h"
#undef E_FITS_MASK
#include "tmpl_undef.inc.h"

GK_TARGET_END

GK_TARGET_BEGIN(GK_T_AVX512VNNI)

#include "vocabulary_bytes_avx512.inc.h"
#define V_DP(c, a, b) ((gk_u32v64)_mm512_dpbusd_epi32((__m512i)(c), (__m512i)(a), (__m512i)(b)))
#define B_SET avx512vnni
#define B_MR 8
#define B_NV 3
#define B_TILE 8x48
#define B_DOT_MR 4
#define B_DOT_NR 4
#define B_DOT_ACC 8 /* one chain of a 1 x 4 tile would do: the long operand comes from L2 at best */
#define B_DOT_TILE 4x4
#define B_STREAM_TILE 8x64
#include "tmpl_bytes.inc.h"
#include "tmpl_undef.inc.h"
#undef W_ELEM
#undef W_VECTOR

GK_TARGET_END
#endif
