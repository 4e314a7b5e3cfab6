/* AVX: 16 registers of 256 bits, no FMA.  Also the 256-bit pieces that avx2.h and avx512.h share: their regions'
 * features include AVX, so these functions inline there.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AVX_H
#define GK_AVX_H

/* The first n lanes of a 256-bit vector: a window that slides over ones and zeros.  Plain integers, not a vector
 * constant, which would be built by code that runs before dispatch. */
static const int32_t gk_window_f32[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
static const int64_t gk_window_f64[8] = {-1, -1, -1, -1, 0, 0, 0, 0};

GK_TARGET_BEGIN(GK_T_AVX)

GK_INLINE __m256i gk_mask_f32_avx(int n) { return _mm256_loadu_si256((const __m256i *)(gk_window_f32 + 8 - n)); }
GK_INLINE __m256i gk_mask_f64_avx(int n) { return _mm256_loadu_si256((const __m256i *)(gk_window_f64 + 4 - n)); }

GK_INLINE float gk_sum_f32_avx(__m256 v)
{
    return gk_sum_f32_sse2(_mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)));
}

GK_INLINE double gk_sum_f64_avx(__m256d v)
{
    return gk_sum_f64_sse2(_mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1)));
}

/* The two halves of a vector of four sums each, plus `add` if there is one. */
GK_INLINE void gk_store_four_f32_avx(__m256 v, const char *add, char *to)
{
    const __m128 sums = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    _mm_storeu_ps((float *)to, add ? _mm_add_ps(sums, _mm_loadu_ps((const float *)add)) : sums);
}

GK_INLINE void gk_sum_four_f32_avx(__m256 a, __m256 b, __m256 c, __m256 d, const char *add, char *to)
{
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    gk_store_four_f32_avx(_mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee)), add, to);
}

/* 8 x 8 floats: pairs, then quads, then halves of 128 bits. */
GK_INLINE void gk_transpose_f32_avx(const char *src, ptrdiff_t s_w, char *dst, ptrdiff_t s_dst)
{
    __m256 r[8], t[8];
    GK_UNROLL
    for (int i = 0; i < 8; i++)
        r[i] = _mm256_loadu_ps((const float *)(src + i * s_w));
    GK_UNROLL
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    GK_UNROLL
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    GK_UNROLL
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps((float *)(dst + i * s_dst), _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps((float *)(dst + (i + 4) * s_dst), _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

GK_INLINE void gk_transpose_f64_avx(const char *src, ptrdiff_t s_w, char *dst, ptrdiff_t s_dst)
{
    __m256d r[4], t[4];
    GK_UNROLL
    for (int i = 0; i < 4; i++)
        r[i] = _mm256_loadu_pd((const double *)(src + i * s_w));
    t[0] = _mm256_unpacklo_pd(r[0], r[1]);
    t[1] = _mm256_unpackhi_pd(r[0], r[1]);
    t[2] = _mm256_unpacklo_pd(r[2], r[3]);
    t[3] = _mm256_unpackhi_pd(r[2], r[3]);
    GK_UNROLL
    for (int i = 0; i < 2; i++) {
        _mm256_storeu_pd((double *)(dst + i * s_dst), _mm256_permute2f128_pd(t[i], t[i + 2], 0x20));
        _mm256_storeu_pd((double *)(dst + (i + 2) * s_dst), _mm256_permute2f128_pd(t[i], t[i + 2], 0x31));
    }
}

/* 2^n of whole n: added to GK_POW2 it stands in the low bits, biased; 128 bits at a time, as AVX has no wider integers. */
GK_INLINE __m256 gk_pow2_f32_avx(__m256 n)
{
    const __m256 x = _mm256_add_ps(n, _mm256_set1_ps(GK_POW2_F32));
    const __m128i low = _mm_slli_epi32(_mm_castps_si128(_mm256_castps256_ps128(x)), 23);
    const __m128i high = _mm_slli_epi32(_mm_castps_si128(_mm256_extractf128_ps(x, 1)), 23);
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_castsi128_ps(low)), _mm_castsi128_ps(high), 1);
}

GK_INLINE __m256d gk_pow2_f64_avx(__m256d n)
{
    const __m256d x = _mm256_add_pd(n, _mm256_set1_pd(GK_POW2_F64));
    const __m128i low = _mm_slli_epi64(_mm_castpd_si128(_mm256_castpd256_pd128(x)), 52);
    const __m128i high = _mm_slli_epi64(_mm_castpd_si128(_mm256_extractf128_pd(x, 1)), 52);
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_castsi128_pd(low)), _mm_castsi128_pd(high), 1);
}

#define V_POW2_F32(n) gk_pow2_f32_avx(n)
#define V_POW2_F64(n) gk_pow2_f64_avx(n)
#define V_FMA_F32(a, b, c) _mm256_add_ps(_mm256_mul_ps(a, b), c)
#define V_FMA_F64(a, b, c) _mm256_add_pd(_mm256_mul_pd(a, b), c)
#define GK_ISA_NAME avx
#include "tmpl_avx.inc.h"

GK_TARGET_END
#endif
