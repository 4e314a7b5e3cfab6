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
static void gk_interleave_avx2(const uint8_t *rows, ptrdiff_t quads, ptrdiff_t R, char *dst, int32_t *sums, ptrdiff_t w, int is_signed)
{
    const __m256i ones8 = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
    for (ptrdiff_t i = 0; i < R; i += 16) {
        const ptrdiff_t some = R - i < 16 ? R - i : 16;
        __m256i low = _mm256_setzero_si256(), high = low;
        for (ptrdiff_t q = 0; q < quads; q++) {
            const uint8_t *r = rows + 4 * q * GK_MOST_R + i;
            const __m128i r0 = _mm_loadu_si128((const __m128i *)r), r1 = _mm_loadu_si128((const __m128i *)(r + GK_MOST_R));
            const __m128i r2 = _mm_loadu_si128((const __m128i *)(r + 2 * GK_MOST_R));
            const __m128i r3 = _mm_loadu_si128((const __m128i *)(r + 3 * GK_MOST_R));
            const __m128i a = _mm_unpacklo_epi8(r0, r1), b = _mm_unpackhi_epi8(r0, r1);
            const __m128i c = _mm_unpacklo_epi8(r2, r3), d = _mm_unpackhi_epi8(r2, r3);
            const __m256i x = _mm256_set_m128i(_mm_unpackhi_epi16(a, c), _mm_unpacklo_epi16(a, c));
            const __m256i y = _mm256_set_m128i(_mm_unpackhi_epi16(b, d), _mm_unpacklo_epi16(b, d));
            char *to = dst + 4 * (q * R + i);
            if (some == 16) {
                _mm256_storeu_si256((__m256i *)to, x);
                _mm256_storeu_si256((__m256i *)(to + 32), y);
            } else {
                const __m256i both[2] = {x, y};
                memcpy(to, both, (size_t)(4 * some));
            }
            if (sums) {
                /* With ones for one side, pairs add up to 510 at most: vpmaddubsw is exact. */
                const __m256i px = is_signed ? _mm256_maddubs_epi16(ones8, x) : _mm256_maddubs_epi16(x, ones8);
                const __m256i py = is_signed ? _mm256_maddubs_epi16(ones8, y) : _mm256_maddubs_epi16(y, ones8);
                low = _mm256_add_epi32(low, _mm256_madd_epi16(px, ones16));
                high = _mm256_add_epi32(high, _mm256_madd_epi16(py, ones16));
            }
        }
        if (sums && i < w) {
            uint32_t found[16];
            _mm256_storeu_si256((__m256i *)found, low);
            _mm256_storeu_si256((__m256i *)(found + 8), high);
            for (ptrdiff_t j = 0; j < 16 && i + j < w; j++)
                sums[i + j] = (int32_t)((uint32_t)sums[i + j] + found[j]);
        }
    }
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
