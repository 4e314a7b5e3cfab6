/* BF16 panels, and the two rows that read them.
 *
 *   vdpbf16ps zmm      multiply-adds    cycles                  against vfmadd231ps
 *   Zen 4              32               as one vfmadd231ps      twice the rate
 *   Sapphire Rapids    32               about four times that   half the rate: cpu_features.c calls it slow there
 *
 * The instruction takes subnormal operands for zero and flushes subnormal sums; it ignores MXCSR, rounds to nearest even.
 * Micro-panels know their least magnitude, and a tile for which that could matter takes the second row, which reads the
 * same panels and multiplies by float32 FMA.  Packers and the second row need AVX-512 only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AVX512BF16_H
#define GK_AVX512BF16_H

GK_TARGET_BEGIN(GK_T_AVX512)

/* Word by word the lesser magnitude, less one: so that zero, which doesn't count, is the largest. */
GK_INLINE __m512i gk_lesser_bf16_avx512(__m512i least, __m512i x)
{
    return _mm512_min_epu16(least, _mm512_sub_epi16(_mm512_and_si512(x, _mm512_set1_epi16(0x7fff)), _mm512_set1_epi16(1)));
}

/* Takes n words into account in a trailer. */
GK_INLINE void gk_update_least_avx512(const char *words, ptrdiff_t n, char *trailer)
{
    __m512i least = _mm512_loadu_si512(trailer);
    for (; n >= 32; n -= 32, words += 64)
        least = gk_lesser_bf16_avx512(least, _mm512_loadu_si512(words));
    if (n > 0)
        least = gk_lesser_bf16_avx512(least, _mm512_maskz_loadu_epi16((__mmask32)(0xffffffffu >> (32 - n)), words));
    _mm512_storeu_si512(trailer, least);
}

/* A trailer's vector becomes the number that gk_least_of reads. */
static void gk_settle_least_avx512(char *trailer)
{
    uint16_t words[32], least = 0xffff;
    memcpy(words, trailer, sizeof words);
    for (int i = 0; i < 32; i++)
        least = words[i] < least ? words[i] : least;
    least = least == 0xffff ? 0x7fff : (uint16_t)(least + 1);
    memset(trailer, 0, GK_TRAILER);
    memcpy(trailer, &least, sizeof least);
}

GK_INLINE void gk_words_bf16_avx512(const char *src, ptrdiff_t n, uint16_t *dst) { memcpy(dst, src, (size_t)(2 * n)); }

/* Every float8 is exact in bfloat16: the upper half of its float32. */
#define GK_WORDS_AVX512(type)                                                                                     \
    GK_INLINE void gk_words_##type##_avx512(const char *src, ptrdiff_t n, uint16_t *dst)                          \
    {                                                                                                             \
        for (; n > 0; n -= 16, src += 16, dst += 16) {                                                            \
            const int some = n < 16 ? (int)n : 16;                                                                \
            const __m512 v = some < 16 ? gk_load_part_##type##_avx512(src, some) : gk_load_##type##_avx512(src);  \
            const __m256i x = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(v), 16));               \
            _mm256_mask_storeu_epi16(dst, gk_first_avx512(some), x);                                              \
        }                                                                                                         \
    }
GK_WORDS_AVX512(e4m3fn)
GK_WORDS_AVX512(e4m3fnuz)
GK_WORDS_AVX512(e5m2)
GK_WORDS_AVX512(e5m2fnuz)
#undef GK_WORDS_AVX512

#define GK_PACK_OF bf16bf16_avx512
#define N_ITEM 2
#define N_WORDS gk_words_bf16_avx512
#define N_IS_WORDS 1
#include "tmpl_pairs.inc.h"
#define GK_PACK_OF e4m3fnbf16_avx512
#define N_ITEM 1
#define N_WORDS gk_words_e4m3fn_avx512
#define N_IS_WORDS 0
#include "tmpl_pairs.inc.h"
#define GK_PACK_OF e4m3fnuzbf16_avx512
#define N_ITEM 1
#define N_WORDS gk_words_e4m3fnuz_avx512
#define N_IS_WORDS 0
#include "tmpl_pairs.inc.h"
#define GK_PACK_OF e5m2bf16_avx512
#define N_ITEM 1
#define N_WORDS gk_words_e5m2_avx512
#define N_IS_WORDS 0
#include "tmpl_pairs.inc.h"
#define GK_PACK_OF e5m2fnuzbf16_avx512
#define N_ITEM 1
#define N_WORDS gk_words_e5m2fnuz_avx512
#define N_IS_WORDS 0
#include "tmpl_pairs.inc.h"

/* Weights of attention as BF16 in the upper halves, rounded by half a unit upwards: a tie is as near to one side as to the
 * other.  The minimum leaves numbers up to 1 alone and makes every NaN one that the sum does not carry over. */
GK_INLINE __m512 gk_round_bf16_avx512(__m512 v)
{
    const __m512i bits = _mm512_min_epu32(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fc00000));
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)), _mm512_set1_epi32((int)0xffff0000u)));
}

/* Vectors of pairs for A and B, of float32 for C. */
#include "vocabulary_avx512.inc.h"
#include "softmax_f32.inc.h"
#define GK_EXP gk_exp_f32_avx512
#define GK_WEIGH_OF f32bf16_avx512
#define P_NARROW(v) gk_round_bf16_avx512(v)
#define P_STORE_PAIR(p, v, w) \
    _mm512_storeu_si512(p, _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(v), 16), _mm512_castps_si512(w)))
#include "tmpl_weigh.inc.h"
#undef GK_EXP
#include "softmax_end.inc.h"
#undef V_BROADCAST
#define V_BROADCAST(p) _mm512_castsi512_ps(_mm512_set1_epi32(gk_load_pair(p)))
GK_INLINE int32_t gk_load_pair(const char *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

GK_INLINE __m512 gk_even_avx512(__m512 x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 16)); }

GK_INLINE __m512 gk_odd_avx512(__m512 x)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000u)));
}

#undef V_FMA
#define GK_FMA_OF_PAIRS(a, b, c)                                                                                  \
    _mm512_fmadd_ps(gk_odd_avx512(a), gk_odd_avx512(b), _mm512_fmadd_ps(gk_even_avx512(a), gk_even_avx512(b), c))
#define V_FMA(a, b, c) GK_FMA_OF_PAIRS(a, b, c)
#define GK_UKR_NAME gk_gemm_bf16bf16_ukr_8x48_avx512
#define GK_MR 8
#define GK_NV 3
#include "tmpl_gemm.inc.h"
#undef V_FMA

GK_TARGET_END

GK_TARGET_BEGIN(GK_T_AVX512BF16)

#define V_FMA(a, b, c) _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b))
#define GK_UKR_NAME gk_gemm_bf16bf16_ukr_8x48_avx512bf16
#define GK_MR 8
#define GK_NV 3
#include "tmpl_gemm.inc.h"
#define GK_PEAK_NAME gk_peak_bf16_avx512bf16
#define GK_PEAK_ACC 24
#define GK_PEAK_OPS 4
#include "tmpl_peak.inc.h"
#include "tmpl_undef.inc.h"

GK_TARGET_END
#endif
