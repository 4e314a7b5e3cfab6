/* Loads and stores of the narrow types with AVX2 and F16C: vectors of eight.
 *
 * float8 goes through float16, whose instruction also handles subnormals at full speed: a code's exponent and fraction are
 * placed in those of a float16, which then is the value times a power of two.  SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AVX2_NARROW_H
#define GK_AVX2_NARROW_H

GK_TARGET_BEGIN(GK_T_AVX2)

/* 1 to 15 bytes, no more, zeros behind them: two loads that overlap. */
GK_INLINE __m128i gk_load_bytes_avx2(const char *p, int bytes)
{
    uint64_t low = 0, high = 0, part = 0;
    if (bytes >= 8) {
        memcpy(&low, p, 8);
        memcpy(&high, p + bytes - 8, 8);
        high = bytes == 8 ? 0 : high >> (8 * (16 - bytes));
    } else if (bytes >= 4) {
        memcpy(&low, p, 4);
        memcpy(&part, p + bytes - 4, 4);
        low |= part << (8 * (bytes - 4));
    } else if (bytes >= 2) {
        memcpy(&low, p, 2);
        memcpy(&part, p + bytes - 2, 2);
        low |= part << (8 * (bytes - 2));
    } else {
        memcpy(&low, p, 1);
    }
    return _mm_set_epi64x((long long)high, (long long)low);
}

GK_INLINE __m256 gk_widen_bool_avx2(__m128i x)
{
    const __m256i none = _mm256_cvtepi8_epi32(_mm_cmpeq_epi8(x, _mm_setzero_si128()));
    return _mm256_and_ps(_mm256_castsi256_ps(none), _mm256_set1_ps(-__builtin_inff()));
}
GK_INLINE __m256 gk_load_bool_avx2(const char *p) { return gk_widen_bool_avx2(_mm_loadl_epi64((const __m128i *)p)); }
GK_INLINE __m256 gk_load_part_bool_avx2(const char *p, int n) { return gk_widen_bool_avx2(gk_load_bytes_avx2(p, n)); }

GK_INLINE __m256 gk_widen_f16_avx2(__m128i x) { return _mm256_cvtph_ps(x); }

GK_INLINE __m256 gk_widen_bf16_avx2(__m128i x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

/* x: codes in the low bytes of eight words.  4 exponent bits: sign to the sign, the rest one place lower. */
GK_INLINE __m256 gk_widen_e4m3_avx2(__m128i x, float scale)
{
    const __m128i half = _mm_and_si128(_mm_srai_epi16(_mm_slli_epi16(x, 8), 1), _mm_set1_epi16((short)0xbfff));
    return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(scale));
}

/* NaN where words are equal. */
GK_INLINE __m256 gk_nan_where_avx2(__m256 v, __m128i x, int code)
{
    const __m256i where = _mm256_cvtepi16_epi32(_mm_cmpeq_epi16(x, _mm_set1_epi16((short)code)));
    return _mm256_or_ps(v, _mm256_and_ps(_mm256_castsi256_ps(where), _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000))));
}

GK_INLINE __m256 gk_widen_e4m3fn_avx2(__m128i x)
{
    return gk_nan_where_avx2(gk_widen_e4m3_avx2(x, 256), _mm_and_si128(x, _mm_set1_epi16(0x7f)), 0x7f);
}

GK_INLINE __m256 gk_widen_e4m3fnuz_avx2(__m128i x) { return gk_nan_where_avx2(gk_widen_e4m3_avx2(x, 128), x, 0x80); }

GK_INLINE __m256 gk_widen_e5m2_avx2(__m128i x) { return _mm256_cvtph_ps(_mm_slli_epi16(x, 8)); }

/* The largest exponent is infinity in float16 and none here: it is taken down by one first, and not halved after. */
GK_INLINE __m256 gk_widen_e5m2fnuz_avx2(__m128i x)
{
    const __m128i high = _mm_cmpgt_epi16(_mm_and_si128(x, _mm_set1_epi16(0x7f)), _mm_set1_epi16(0x7b));
    const __m128i half = _mm_sub_epi16(_mm_slli_epi16(x, 8), _mm_and_si128(high, _mm_set1_epi16(0x400)));
    const __m256 v = _mm256_cvtph_ps(half), scale = _mm256_blendv_ps(
        _mm256_set1_ps(0.5f), _mm256_set1_ps(1), _mm256_castsi256_ps(_mm256_cvtepi16_epi32(high)));
    return gk_nan_where_avx2(_mm256_mul_ps(v, scale), x, 0x80);
}

#define GK_CODE_NAME gk_code_avx2
#define V_TYPE __m256
#define V_ADD(a, b) _mm256_add_ps(a, b)
#define I_TYPE __m256i
#define I_ALL(x) _mm256_set1_epi32(x)
#define I_BITS(v) _mm256_castps_si256(v)
#define I_FLOATS(i) _mm256_castsi256_ps(i)
#define I_PLUS(a, b) _mm256_add_epi32(a, b)
#define I_MINUS(a, b) _mm256_sub_epi32(a, b)
#define I_AND(a, b) _mm256_and_si256(a, b)
#define I_OR(a, b) _mm256_or_si256(a, b)
#define I_RIGHT(a, n) _mm256_srli_epi32(a, n)
#define I_MORE(a, b, x, y) _mm256_blendv_epi8(y, x, _mm256_cmpgt_epi32(a, b))
#include "tmpl_code.inc.h"
#undef V_TYPE
#undef V_ADD

GK_INLINE __m128i gk_words_avx2(__m256i codes)
{
    return _mm_packus_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
}

GK_INLINE void gk_store_f16_avx2(char *p, __m256 v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

GK_INLINE void gk_store_bf16_avx2(char *p, __m256 v)
{
    _mm_storeu_si128((__m128i *)p, gk_words_avx2(gk_code_avx2(v, 16, GK_FORMAT_bf16)));
}

#define GK_NARROW_AVX2(type, item, words)                                                                         \
    GK_INLINE __m256 gk_load_part_##type##_avx2(const char *p, int n)                                             \
    {                                                                                                             \
        return gk_widen_##type##_avx2(words(gk_load_bytes_avx2(p, n * item)));                                    \
    }                                                                                                             \
    GK_INLINE void gk_store_part_##type##_avx2(char *p, int n, __m256 v)                                          \
    {                                                                                                             \
        char whole[16];                                                                                           \
        gk_store_##type##_avx2(whole, v);                                                                         \
        memcpy(p, whole, (size_t)(n * item));                                                                     \
    }
#define GK_HALF_AVX2(type)                                                                                        \
    GK_INLINE __m256 gk_load_##type##_avx2(const char *p)                                                         \
    {                                                                                                             \
        return gk_widen_##type##_avx2(_mm_loadu_si128((const __m128i *)p));                                       \
    }                                                                                                             \
    GK_NARROW_AVX2(type, 2, )
#define GK_FLOAT8_AVX2(type)                                                                                      \
    GK_INLINE __m256 gk_load_##type##_avx2(const char *p)                                                         \
    {                                                                                                             \
        return gk_widen_##type##_avx2(_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)p)));                    \
    }                                                                                                             \
    GK_INLINE void gk_store_##type##_avx2(char *p, __m256 v)                                                      \
    {                                                                                                             \
        const __m128i words = gk_words_avx2(gk_code_avx2(v, 8, GK_FORMAT_##type));                                \
        _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(words, words));                                           \
    }                                                                                                             \
    GK_NARROW_AVX2(type, 1, _mm_cvtepu8_epi16)

GK_HALF_AVX2(f16)
GK_HALF_AVX2(bf16)
GK_FLOAT8_AVX2(e4m3fn)
GK_FLOAT8_AVX2(e4m3fnuz)
GK_FLOAT8_AVX2(e5m2)
GK_FLOAT8_AVX2(e5m2fnuz)
#undef GK_HALF_AVX2
#undef GK_FLOAT8_AVX2
#undef GK_NARROW_AVX2

GK_TARGET_END
#endif
