/* Products of bytes with AVX2 and AVX-VNNI.
 *
 * vpmaddubsw would multiply quads, but saturates the sum of two products (255 * 127 + 255 * 127 > 32767).  So even and odd
 * bytes are widened to 16 bits, and vpmaddwd adds two products exactly: for 32 products 2 vpmaddwd and 2 vpaddd; widening is
 * shared, A's by the vectors of a tile row, B's by its rows.  AVX-VNNI has vpdpbusd: 32 products an instruction.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AVX2_BYTES_H
#define GK_AVX2_BYTES_H

GK_TARGET_BEGIN(GK_T_AVX2)

/* ---- packers */
static void gk_fetch_bytes_avx2(const char *src, ptrdiff_t step, ptrdiff_t n, int turn, uint8_t *dst)
{
    const __m256i turns = _mm256_set1_epi8((char)turn);
    if (step == 1) {
        for (; n >= 32; n -= 32, src += 32, dst += 32)
            _mm256_storeu_si256((__m256i *)dst, _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)src), turns));
        if (n >= 16) {
            _mm_storeu_si128((__m128i *)dst, _mm_xor_si128(_mm_loadu_si128((const __m128i *)src), _mm256_castsi256_si128(turns)));
            n -= 16, src += 16, dst += 16;
        }
    }
    for (ptrdiff_t i = 0; i < n; i++)
        dst[i] = (uint8_t)(src[i * step] ^ turn);
}

static void gk_fetch_nibbles_avx2(const char *src, ptrdiff_t step, ptrdiff_t n, int to, int turn, uint8_t *dst)
{
    if (step == 1 && n >= 17) {
        const __m128i halves = _mm_set1_epi8(15), turns = _mm_set1_epi8((char)turn);
        const __m128i less = _mm_set1_epi8((char)(to == GK_QUADS_I8 ? turn : 0));
        if ((uintptr_t)src & 1) {
            gk_fetch_nibbles(src, 1, 1, to, turn, dst);
            src++, dst++, n--;
        }
        for (; n >= 16; n -= 16, src += 16, dst += 16) {
            const __m128i x = _mm_loadl_epi64((const __m128i *)((uintptr_t)src >> 1));
            const __m128i low = _mm_and_si128(x, halves), high = _mm_and_si128(_mm_srli_epi16(x, 4), halves);
            const __m128i v = _mm_sub_epi8(_mm_xor_si128(_mm_unpacklo_epi8(low, high), turns), less);
            _mm_storeu_si128((__m128i *)dst, v);
        }
    }
    gk_fetch_nibbles(src, step, n, to, turn, dst);
}

static uint32_t gk_sum_bytes_avx2(const uint8_t *line, ptrdiff_t n, int is_signed)
{
    /* vpsadbw adds unsigned bytes: signed ones go up by 128 first. */
    const __m256i turn = _mm256_set1_epi8(is_signed ? (char)0x80 : 0);
    __m256i total = _mm256_setzero_si256();
    const ptrdiff_t whole = n / 32 * 32;
    for (ptrdiff_t p = 0; p < whole; p += 32) {
        const __m256i x = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(line + p)), turn);
        total = _mm256_add_epi64(total, _mm256_sad_epu8(x, _mm256_setzero_si256()));
    }
    const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
    uint32_t sum = (uint32_t)_mm_cvtsi128_si64(_mm_add_epi64(half, _mm_unpackhi_epi64(half, half)));
    sum -= is_signed ? 128 * (uint32_t)whole : 0;
    return sum + gk_sum_bytes_scalar(line + whole, n - whole, is_signed);
}

/* 16 lines at a time: four rows of 16 bytes become four vectors of quads. */
GK_INLINE void gk_interleave_part_avx2(const uint8_t *rows, ptrdiff_t step, __m128i turn, ptrdiff_t quads, ptrdiff_t R, char *dst,
                                       const int whole, ptrdiff_t some, int32_t *sums, ptrdiff_t w, const int is_signed)
{
    const __m256i ones8 = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
    __m256i low = _mm256_setzero_si256(), high = low;
    for (ptrdiff_t q = 0; q < quads; q++, rows += 4 * step, dst += 4 * R) {
        const __m128i r0 = _mm_xor_si128(_mm_loadu_si128((const __m128i *)rows), turn);
        const __m128i r1 = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(rows + step)), turn);
        const __m128i r2 = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(rows + 2 * step)), turn);
        const __m128i r3 = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(rows + 3 * step)), turn);
        const __m128i a = _mm_unpacklo_epi8(r0, r1), b = _mm_unpackhi_epi8(r0, r1);
        const __m128i c = _mm_unpacklo_epi8(r2, r3), d = _mm_unpackhi_epi8(r2, r3);
        const __m256i x = _mm256_set_m128i(_mm_unpackhi_epi16(a, c), _mm_unpacklo_epi16(a, c));
        const __m256i y = _mm256_set_m128i(_mm_unpackhi_epi16(b, d), _mm_unpacklo_epi16(b, d));
        if (whole) {
            _mm256_storeu_si256((__m256i *)dst, x);
            _mm256_storeu_si256((__m256i *)(dst + 32), y);
        } else {
            const __m256i both[2] = {x, y};
            memcpy(dst, both, (size_t)(4 * some));
        }
        if (sums) {
            /* With ones for one side, pairs add up to 510 at most: vpmaddubsw is exact. */
            const __m256i px = is_signed ? _mm256_maddubs_epi16(ones8, x) : _mm256_maddubs_epi16(x, ones8);
            const __m256i py = is_signed ? _mm256_maddubs_epi16(ones8, y) : _mm256_maddubs_epi16(y, ones8);
            low = _mm256_add_epi32(low, _mm256_madd_epi16(px, ones16));
            high = _mm256_add_epi32(high, _mm256_madd_epi16(py, ones16));
        }
    }
    if (!sums || w <= 0)
        return;
    if (w >= 16) {
        __m256i *s = (__m256i *)sums;
        _mm256_storeu_si256(s, _mm256_add_epi32(_mm256_loadu_si256(s), low));
        _mm256_storeu_si256(s + 1, _mm256_add_epi32(_mm256_loadu_si256(s + 1), high));
        return;
    }
    uint32_t found[16];
    _mm256_storeu_si256((__m256i *)found, low);
    _mm256_storeu_si256((__m256i *)(found + 8), high);
    for (ptrdiff_t j = 0; j < w; j++)
        sums[j] = (int32_t)((uint32_t)sums[j] + found[j]);
}

GK_INLINE void gk_interleave_avx2(const uint8_t *rows, ptrdiff_t step, int turn, ptrdiff_t quads, ptrdiff_t R, ptrdiff_t columns,
                                  char *dst, int32_t *sums, ptrdiff_t w, const int is_signed)
{
    const __m128i turns = _mm_set1_epi8((char)turn);
    ptrdiff_t i = 0;
    for (; i + 16 <= columns; i += 16)
        gk_interleave_part_avx2(rows + i, step, turns, quads, R, dst + 4 * i, 1, 16, sums ? sums + i : NULL, w - i, is_signed);
    if (i < columns)
        gk_interleave_part_avx2(rows + i, step, turns, quads, R, dst + 4 * i, 0, columns - i, sums ? sums + i : NULL, w - i, is_signed);
}

static void gk_spread_avx2(const char *quads, ptrdiff_t w, ptrdiff_t n, char *dst, ptrdiff_t rs_dst)
{
    ptrdiff_t i = 0;
    if (n == 8) {
        for (; i + 8 <= w; i += 8)
            gk_transpose_f32_avx(quads + 4 * i, 4 * GK_MOST_R, dst + i * rs_dst, rs_dst);
    }
    gk_spread_scalar(quads + 4 * i, w - i, n, dst + i * rs_dst, rs_dst);
}

#define P_SET avx2
#define P_PLAIN_PANELS gk_panels_f32f32_avx2
#include "tmpl_quads_all.inc.h"

/* ---- kernels */
GK_INLINE __m256i gk_dp_avx2(__m256i c, __m256i a, __m256i b)
{
    const __m256i a_even = _mm256_and_si256(a, _mm256_set1_epi16(255)), a_odd = _mm256_srli_epi16(a, 8);
    const __m256i b_even = _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8), b_odd = _mm256_srai_epi16(b, 8);
    return _mm256_add_epi32(_mm256_add_epi32(c, _mm256_madd_epi16(a_even, b_even)), _mm256_madd_epi16(a_odd, b_odd));
}

GK_INLINE gk_u32v32 gk_load_quads_avx2(const char *p, ptrdiff_t n)
{
    gk_u32v32 v = {0};
    memcpy(&v, p, (size_t)n);
    return v;
}

GK_INLINE void gk_to_bytes_avx2(char *p, int n, gk_u32v32 x)
{
    const __m256i bytes = _mm256_and_si256((__m256i)x, _mm256_set1_epi32(255));
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    const __m128i packed = _mm_packus_epi16(words, words);
    if (n == 8)
        _mm_storel_epi64((__m128i *)p, packed);
    else
        memcpy(p, &packed, (size_t)n);
}

GK_INLINE gk_u32v32 gk_rounded_avx2(gk_u32v32 x, double row, const double *col, int n, double least, double most)
{
    const __m256i v = (__m256i)x;
    __m256d low = _mm256_set1_pd(row), high = low;
    double part[8] = {0};
    if (col && n < 8) {
        memcpy(part, col, (size_t)n * sizeof part[0]);
        col = part;
    }
    if (col) {
        low = _mm256_mul_pd(low, _mm256_loadu_pd(col));
        high = _mm256_mul_pd(high, _mm256_loadu_pd(col + 4));
    }
    low = _mm256_mul_pd(_mm256_cvtepi32_pd(_mm256_castsi256_si128(v)), low);
    high = _mm256_mul_pd(_mm256_cvtepi32_pd(_mm256_extracti128_si256(v, 1)), high);
    /* Of a NaN, vminpd gives the other. */
    low = _mm256_max_pd(_mm256_min_pd(low, _mm256_set1_pd(most)), _mm256_set1_pd(least));
    high = _mm256_max_pd(_mm256_min_pd(high, _mm256_set1_pd(most)), _mm256_set1_pd(least));
    return (gk_u32v32)_mm256_set_m128i(_mm256_cvtpd_epi32(high), _mm256_cvtpd_epi32(low));
}

GK_INLINE gk_u32v32 gk_rounded_single_avx2(gk_u32v32 x, float row, const float *col, int n, float least, float most)
{
    __m256 scale = _mm256_set1_ps(row);
    if (col)
        scale = _mm256_mul_ps(scale, n < 8 ? _mm256_maskload_ps(col, gk_mask_f32_avx(n)) : _mm256_loadu_ps(col));
    const __m256 y = _mm256_mul_ps(_mm256_cvtepi32_ps((__m256i)x), scale);
    return (gk_u32v32)_mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(y, _mm256_set1_ps(most)), _mm256_set1_ps(least)));
}

/* Ones in lanes of 2^24 at most in magnitude: the lesser of that and the magnitude, unsigned as that of -2^31 is. */
GK_INLINE gk_u32v32 gk_fits_avx2(gk_u32v32 x)
{
    const __m256i size = _mm256_abs_epi32((__m256i)x);
    return (gk_u32v32)_mm256_cmpeq_epi32(_mm256_min_epu32(size, _mm256_set1_epi32(1 << 24)), size);
}

#define W_ELEM uint32_t
#define W_VECTOR gk_u32v32
#include "vocabulary_bytes_avx2.inc.h"
#define V_DP(c, a, b) ((gk_u32v32)gk_dp_avx2((__m256i)(c), (__m256i)(a), (__m256i)(b)))
#define B_SET avx2
#define B_MR 4
#define B_NV 2
#define B_TILE 4x16
#define B_DOT_MR 2
#define B_DOT_NR 2
#define B_DOT_ACC 4
#define B_DOT_TILE 2x2
#define B_STREAM_TILE 8x32
#include "tmpl_bytes.inc.h"
#define E_SET avx2
#define E_TO_BYTES(p, n, x) gk_to_bytes_avx2(p, n, x)
#define E_IS(x) ((gk_u32v32)((x) != 0) & 1)
#define E_ROUNDED(x, row, col, n, least, most) gk_rounded_avx2(x, row, col, n, least, most)
#define E_ROUNDED_SINGLE(x, row, col, n, least, most) gk_rounded_single_avx2(x, row, col, n, least, most)
#define E_FITS(x) (_mm256_movemask_epi8((__m256i)gk_fits_avx2(x)) == -1)
#define E_WHERE_FITS(x, y, z) ((gk_u32v32)_mm256_blendv_epi8((__m256i)(z), (__m256i)(y), (__m256i)gk_fits_avx2(x)))
#include "tmpl_quantized.inc.h"
#include "tmpl_undef.inc.h"

GK_TARGET_END

GK_TARGET_BEGIN(GK_T_AVXVNNI)

#include "vocabulary_bytes_avx2.inc.h"
#define V_DP(c, a, b) ((gk_u32v32)_mm256_dpbusd_avx_epi32((__m256i)(c), (__m256i)(a), (__m256i)(b)))
#define B_SET avxvnni
#define B_MR 6
#define B_NV 2
#define B_TILE 6x16
#define B_DOT_MR 2
#define B_DOT_NR 4
#define B_DOT_ACC 8
#define B_DOT_TILE 2x4
#define B_STREAM_TILE 8x32
#include "tmpl_bytes.inc.h"
#include "tmpl_undef.inc.h"
#undef W_ELEM
#undef W_VECTOR

GK_TARGET_END
#endif
