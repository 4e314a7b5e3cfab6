/* Integers with AVX2: vpmullw, vpmulld (two uops on Intel), and for 64 bits three vpmuludq that the compiler puts together.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AVX2_INT_H
#define GK_AVX2_INT_H

GK_TARGET_BEGIN(GK_T_AVX2)

GK_SUM_OF(uint16_t, gk_u16v32, gk_sum_u16_avx2)
GK_SUM_OF(uint32_t, gk_u32v32, gk_sum_u32_avx2)
GK_SUM_OF(uint64_t, gk_u64v32, gk_sum_u64_avx2)

/* 16-bit elements have no masked moves: a partial vector goes by way of the stack. */
GK_INLINE gk_u16v32 gk_load_tail_u16_avx2(const char *p, int n)
{
    gk_u16v32 v = {0};
    memcpy(&v, p, (size_t)(2 * n));
    return v;
}

GK_INLINE void gk_store_tail_u16_avx2(char *p, int n, gk_u16v32 v) { memcpy(p, &v, (size_t)(2 * n)); }

/* 8 x 8 elements of 16 bits. */
GK_INLINE void gk_transpose_u16_sse2(const char *src, ptrdiff_t s_w, char *dst, ptrdiff_t s_dst)
{
    __m128i r[8], t[8];
    GK_UNROLL
    for (int i = 0; i < 8; i++)
        r[i] = _mm_loadu_si128((const __m128i *)(src + i * s_w));
    GK_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm_unpacklo_epi16(r[i], r[i + 4]);
        t[i + 4] = _mm_unpackhi_epi16(r[i], r[i + 4]);
    }
    /* t[i]: rows i and i + 4 of columns 0..3, t[i + 4]: of columns 4..7. */
    GK_UNROLL
    for (int h = 0; h < 2; h++) {
        const __m128i a = _mm_unpacklo_epi16(t[4 * h], t[4 * h + 2]), b = _mm_unpackhi_epi16(t[4 * h], t[4 * h + 2]);
        const __m128i c = _mm_unpacklo_epi16(t[4 * h + 1], t[4 * h + 3]), d = _mm_unpackhi_epi16(t[4 * h + 1], t[4 * h + 3]);
        _mm_storeu_si128((__m128i *)(dst + (4 * h) * s_dst), _mm_unpacklo_epi16(a, c));
        _mm_storeu_si128((__m128i *)(dst + (4 * h + 1) * s_dst), _mm_unpackhi_epi16(a, c));
        _mm_storeu_si128((__m128i *)(dst + (4 * h + 2) * s_dst), _mm_unpacklo_epi16(b, d));
        _mm_storeu_si128((__m128i *)(dst + (4 * h + 3) * s_dst), _mm_unpackhi_epi16(b, d));
    }
}

#define W_SET avx2
#define W_NV 2
#define W_DOT_MR 2
#define W_DOT_NR 4
#define W_DOT_ACC 8
#define W_DOT_TILE 2x4
#define W_SCALARS 8

#define W_ELEM uint16_t
#define W_VECTOR gk_u16v32
#include "tmpl_lanes.inc.h"
#define V_MASK int
#define V_TAIL_MASK(n) (n)
#define V_LOAD_TAIL(p, mask) gk_load_tail_u16_avx2(p, mask)
#define V_STORE_TAIL(p, mask, v) gk_store_tail_u16_avx2(p, mask, v)
#define V_SUM(v) gk_sum_u16_avx2(v)
#define V_SQUARE 8
#define V_TRANSPOSE gk_transpose_u16_sse2
#define GK_PACK_OF i16i16_avx2
#include "tmpl_pack.inc.h"
#define W_MR 6
#define W_TYPE i16
#define W_TILE 6x32
#define W_STREAM_TILE 4x16
#include "tmpl_whole.inc.h"
#undef W_ELEM
#undef W_VECTOR
#include "tmpl_undef.inc.h"

#define W_ELEM uint32_t
#define W_VECTOR gk_u32v32
#include "tmpl_lanes.inc.h"
#define V_MASK __m256i
#define V_TAIL_MASK(n) gk_mask_f32_avx(n)
#define V_LOAD_TAIL(p, mask) ((gk_u32v32)_mm256_maskload_epi32((const int *)(p), mask))
#define V_STORE_TAIL(p, mask, v) _mm256_maskstore_epi32((int *)(p), mask, (__m256i)(v))
#define V_SUM(v) gk_sum_u32_avx2(v)
#define W_TYPE i32
#define W_TILE 6x16
#define W_STREAM_TILE 4x8
#include "tmpl_whole.inc.h"
#undef W_MR
#undef W_ELEM
#undef W_VECTOR
#include "tmpl_undef.inc.h"

/* A product of 64 bits takes registers of its own. */
#define W_ELEM uint64_t
#define W_VECTOR gk_u64v32
#include "tmpl_lanes.inc.h"
#define V_MASK __m256i
#define V_TAIL_MASK(n) gk_mask_f64_avx(n)
#define V_LOAD_TAIL(p, mask) ((gk_u64v32)_mm256_maskload_epi64((const long long *)(p), mask))
#define V_STORE_TAIL(p, mask, v) _mm256_maskstore_epi64((long long *)(p), mask, (__m256i)(v))
#define V_SUM(v) gk_sum_u64_avx2(v)
#define W_MR 4
#define W_TYPE i64
#define W_TILE 4x8
#define W_STREAM_TILE 4x4
#include "tmpl_whole.inc.h"
#undef W_MR
#undef W_ELEM
#undef W_VECTOR
#include "tmpl_undef.inc.h"
#undef W_SET
#undef W_NV
#undef W_DOT_MR
#undef W_DOT_NR
#undef W_DOT_ACC
#undef W_DOT_TILE
#undef W_SCALARS

GK_TARGET_END
#endif
