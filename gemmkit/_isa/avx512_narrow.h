/* Loads and stores of the narrow types with AVX-512: vectors of sixteen, partial ones by mask.  float8 goes through
 * float16 as in avx2_narrow.h.  SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AVX512_NARROW_H
#define GK_AVX512_NARROW_H

GK_TARGET_BEGIN(GK_T_AVX512)

GK_INLINE __mmask16 gk_first_avx512(int n) { return (__mmask16)(0xffffu >> (16 - n)); }

GK_INLINE __m512 gk_widen_f16_avx512(__m256i x) { return _mm512_cvtph_ps(x); }

GK_INLINE __m512 gk_widen_bf16_avx512(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

GK_INLINE __m512 gk_nan_where_avx512(__m512 v, __mmask16 where)
{
    return _mm512_mask_mov_ps(v, where, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
}

GK_INLINE __m512 gk_widen_e4m3_avx512(__m256i x, float scale)
{
    const __m256i half = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(x, 8), 1), _mm256_set1_epi16((short)0xbfff));
    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(scale));
}

GK_INLINE __m512 gk_widen_e4m3fn_avx512(__m256i x)
{
    const __m256i low = _mm256_set1_epi16(0x7f);
    return gk_nan_where_avx512(gk_widen_e4m3_avx512(x, 256), _mm256_cmpeq_epi16_mask(_mm256_and_si256(x, low), low));
}

GK_INLINE __m512 gk_widen_e4m3fnuz_avx512(__m256i x)
{
    return gk_nan_where_avx512(gk_widen_e4m3_avx512(x, 128), _mm256_cmpeq_epi16_mask(x, _mm256_set1_epi16(0x80)));
}

GK_INLINE __m512 gk_widen_e5m2_avx512(__m256i x) { return _mm512_cvtph_ps(_mm256_slli_epi16(x, 8)); }

/* The largest exponent is infinity in float16 and none here: it is taken down by one first, and not halved after. */
GK_INLINE __m512 gk_widen_e5m2fnuz_avx512(__m256i x)
{
    const __m256i half = _mm256_slli_epi16(x, 8);
    const __mmask16 high = _mm256_cmpgt_epi16_mask(_mm256_and_si256(x, _mm256_set1_epi16(0x7f)), _mm256_set1_epi16(0x7b));
    const __m512 v = _mm512_cvtph_ps(_mm256_mask_sub_epi16(half, high, half, _mm256_set1_epi16(0x400)));
    return gk_nan_where_avx512(_mm512_mask_mul_ps(v, (__mmask16)~high, v, _mm512_set1_ps(0.5f)),
                               _mm256_cmpeq_epi16_mask(x, _mm256_set1_epi16(0x80)));
}

#define GK_CODE_NAME gk_code_avx512
#define V_TYPE __m512
#define V_ADD(a, b) _mm512_add_ps(a, b)
#define I_TYPE __m512i
#define I_ALL(x) _mm512_set1_epi32(x)
#define I_BITS(v) _mm512_castps_si512(v)
#define I_FLOATS(i) _mm512_castsi512_ps(i)
#define I_PLUS(a, b) _mm512_add_epi32(a, b)
#define I_MINUS(a, b) _mm512_sub_epi32(a, b)
#define I_AND(a, b) _mm512_and_si512(a, b)
#define I_OR(a, b) _mm512_or_si512(a, b)
#define I_RIGHT(a, n) _mm512_srli_epi32(a, n)
#define I_MORE(a, b, x, y) _mm512_mask_mov_epi32(y, _mm512_cmpgt_epi32_mask(a, b), x)
#include "tmpl_code.inc.h"
#undef V_TYPE
#undef V_ADD

GK_INLINE __m256i gk_narrow_f16_avx512(__m512 v) { return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }
GK_INLINE __m256i gk_narrow_bf16_avx512(__m512 v) { return _mm512_cvtepi32_epi16(gk_code_avx512(v, 16, GK_FORMAT_bf16)); }

#define GK_HALF_AVX512(type)                                                                                      \
    GK_INLINE __m512 gk_load_##type##_avx512(const char *p)                                                       \
    {                                                                                                             \
        return gk_widen_##type##_avx512(_mm256_loadu_si256((const __m256i *)p));                                  \
    }                                                                                                             \
    GK_INLINE __m512 gk_load_part_##type##_avx512(const char *p, int n)                                           \
    {                                                                                                             \
        return gk_widen_##type##_avx512(_mm256_maskz_loadu_epi16(gk_first_avx512(n), p));                         \
    }                                                                                                             \
    GK_INLINE void gk_store_##type##_avx512(char *p, __m512 v)                                                    \
    {                                                                                                             \
        _mm256_storeu_si256((__m256i *)p, gk_narrow_##type##_avx512(v));                                          \
    }                                                                                                             \
    GK_INLINE void gk_store_part_##type##_avx512(char *p, int n, __m512 v)                                        \
    {                                                                                                             \
        _mm256_mask_storeu_epi16(p, gk_first_avx512(n), gk_narrow_##type##_avx512(v));                            \
    }
#define GK_FLOAT8_AVX512(type)                                                                                    \
    GK_INLINE __m512 gk_load_##type##_avx512(const char *p)                                                       \
    {                                                                                                             \
        return gk_widen_##type##_avx512(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p)));               \
    }                                                                                                             \
    GK_INLINE __m512 gk_load_part_##type##_avx512(const char *p, int n)                                           \
    {                                                                                                             \
        return gk_widen_##type##_avx512(_mm256_cvtepu8_epi16(_mm_maskz_loadu_epi8(gk_first_avx512(n), p)));       \
    }                                                                                                             \
    GK_INLINE void gk_store_##type##_avx512(char *p, __m512 v)                                                    \
    {                                                                                                             \
        _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(gk_code_avx512(v, 8, GK_FORMAT_##type)));             \
    }                                                                                                             \
    GK_INLINE void gk_store_part_##type##_avx512(char *p, int n, __m512 v)                                        \
    {                                                                                                             \
        const __m128i codes = _mm512_cvtepi32_epi8(gk_code_avx512(v, 8, GK_FORMAT_##type));                       \
        _mm_mask_storeu_epi8(p, gk_first_avx512(n), codes);                                                       \
    }

GK_INLINE __m512 gk_widen_bool_avx512(__m128i x) { return _mm512_maskz_mov_ps(_mm_testn_epi8_mask(x, x), _mm512_set1_ps(-__builtin_inff())); }
GK_INLINE __m512 gk_load_bool_avx512(const char *p) { return gk_widen_bool_avx512(_mm_loadu_si128((const __m128i *)p)); }
GK_INLINE __m512 gk_load_part_bool_avx512(const char *p, int n) { return gk_widen_bool_avx512(_mm_maskz_loadu_epi8(gk_first_avx512(n), p)); }

GK_HALF_AVX512(f16)
GK_HALF_AVX512(bf16)
GK_FLOAT8_AVX512(e4m3fn)
GK_FLOAT8_AVX512(e4m3fnuz)
GK_FLOAT8_AVX512(e5m2)
GK_FLOAT8_AVX512(e5m2fnuz)
#undef GK_HALF_AVX512
#undef GK_FLOAT8_AVX512

GK_TARGET_END
#endif
