/* Integers with AVX-512: vpmullw, vpmulld (two uops on Intel), vpmullq (three uops on Intel, one on Zen 4).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AVX512_INT_H
#define GK_AVX512_INT_H

GK_TARGET_BEGIN(GK_T_AVX512)

GK_SUM_OF(uint16_t, gk_u16v64, gk_sum_u16_avx512)

/* The compiler's reductions end in additions of signed numbers, which may overflow. */
GK_INLINE uint32_t gk_sum_u32_avx512(gk_u32v64 v)
{
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256((__m512i)v), _mm512_extracti64x4_epi64((__m512i)v, 1));
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    x = _mm_add_epi32(x, _mm_unpackhi_epi64(x, x));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 1)));
}

GK_INLINE uint64_t gk_sum_u64_avx512(gk_u64v64 v)
{
    const __m256i half = _mm256_add_epi64(_mm512_castsi512_si256((__m512i)v), _mm512_extracti64x4_epi64((__m512i)v, 1));
    const __m128i x = _mm_add_epi64(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    return (uint64_t)_mm_cvtsi128_si64(_mm_add_epi64(x, _mm_unpackhi_epi64(x, x)));
}

#define W_SET avx512
#define W_MR 8
#define W_DOT_MR 4
#define W_DOT_NR 4
#define W_DOT_ACC 16
#define W_DOT_TILE 4x4
#define W_SCALARS 16

#define W_ELEM uint16_t
#define W_VECTOR gk_u16v64
#include "tmpl_lanes.inc.h"
#define V_MASK __mmask32
#define V_TAIL_MASK(n) ((__mmask32)(0xffffffffu >> (32 - (n))))
#define V_LOAD_TAIL(p, mask) ((gk_u16v64)_mm512_maskz_loadu_epi16(mask, p))
#define V_STORE_TAIL(p, mask, v) _mm512_mask_storeu_epi16(p, mask, (__m512i)(v))
#define V_SUM(v) gk_sum_u16_avx512(v)
#define V_SQUARE 8
#define V_TRANSPOSE gk_transpose_u16_sse2
#define GK_PACK_OF i16i16_avx512
#include "tmpl_pack.inc.h"
#define W_NV 2
#define W_TYPE i16
#define W_TILE 8x64
#define W_STREAM_TILE 4x32
#include "tmpl_whole.inc.h"
#undef W_ELEM
#undef W_VECTOR
#include "tmpl_undef.inc.h"

#define W_ELEM uint32_t
#define W_VECTOR gk_u32v64
#include "tmpl_lanes.inc.h"
#define V_MASK __mmask16
#define V_TAIL_MASK(n) ((__mmask16)(0xffffu >> (16 - (n))))
#define V_LOAD_TAIL(p, mask) ((gk_u32v64)_mm512_maskz_loadu_epi32(mask, p))
#define V_STORE_TAIL(p, mask, v) _mm512_mask_storeu_epi32(p, mask, (__m512i)(v))
#define V_SUM(v) gk_sum_u32_avx512(v)
#undef W_NV
#define W_NV 3
#define W_TYPE i32
#define W_TILE 8x48
#define W_STREAM_TILE 4x16
#include "tmpl_whole.inc.h"
#undef W_ELEM
#undef W_VECTOR
#include "tmpl_undef.inc.h"

#define W_ELEM uint64_t
#define W_VECTOR gk_u64v64
#include "tmpl_lanes.inc.h"
#define V_MASK __mmask8
#define V_TAIL_MASK(n) ((__mmask8)(0xffu >> (8 - (n))))
#define V_LOAD_TAIL(p, mask) ((gk_u64v64)_mm512_maskz_loadu_epi64(mask, p))
#define V_STORE_TAIL(p, mask, v) _mm512_mask_storeu_epi64(p, mask, (__m512i)(v))
#define V_SUM(v) gk_sum_u64_avx512(v)
#define W_TYPE i64
#define W_TILE 8x24
#define W_STREAM_TILE 4x8
#include "tmpl_whole.inc.h"
#undef W_ELEM
#undef W_VECTOR
#include "tmpl_undef.inc.h"
#undef W_SET
#undef W_MR
#undef W_NV
#undef W_DOT_MR
#undef W_DOT_NR
#undef W_DOT_ACC
#undef W_DOT_TILE
#undef W_SCALARS

GK_TARGET_END
#endif
