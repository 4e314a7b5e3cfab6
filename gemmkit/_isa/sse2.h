/* SSE2, the baseline of x86-64: 16 registers of 128 bits, no FMA, no masks.
 * A partial vector is put together from scalar loads, so it never reads past the edge.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_SSE2_H
#define GK_SSE2_H

GK_TARGET_BEGIN(GK_T_SSE2)

GK_INLINE __m128 gk_load_tail_f32_sse2(const char *p, int n)
{
    const float *x = (const float *)p;
    if (n == 1)
        return _mm_load_ss(x);
    const __m128 low = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)p));
    return n == 2 ? low : _mm_movelh_ps(low, _mm_load_ss(x + 2));
}

GK_INLINE void gk_store_tail_f32_sse2(char *p, int n, __m128 v)
{
    float *x = (float *)p;
    if (n == 1) {
        _mm_store_ss(x, v);
        return;
    }
    _mm_storel_epi64((__m128i *)p, _mm_castps_si128(v));
    if (n == 3)
        _mm_store_ss(x + 2, _mm_movehl_ps(v, v));
}

GK_INLINE float gk_sum_f32_sse2(__m128 v)
{
    const __m128 pairs = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps(pairs, pairs, 1)));
}

GK_INLINE double gk_sum_f64_sse2(__m128d v) { return _mm_cvtsd_f64(_mm_add_sd(v, _mm_unpackhi_pd(v, v))); }

GK_INLINE __m128 gk_pow2_f32_sse2(__m128 n) { return _mm_castsi128_ps(_mm_slli_epi32(_mm_castps_si128(_mm_add_ps(n, _mm_set1_ps(GK_POW2_F32))), 23)); }
GK_INLINE __m128d gk_pow2_f64_sse2(__m128d n) { return _mm_castsi128_pd(_mm_slli_epi64(_mm_castpd_si128(_mm_add_pd(n, _mm_set1_pd(GK_POW2_F64))), 52)); }
GK_INLINE __m128 gk_pick_f32_sse2(__m128 mask, __m128 x, __m128 y) { return _mm_or_ps(_mm_and_ps(mask, x), _mm_andnot_ps(mask, y)); }
GK_INLINE __m128d gk_pick_f64_sse2(__m128d mask, __m128d x, __m128d y) { return _mm_or_pd(_mm_and_pd(mask, x), _mm_andnot_pd(mask, y)); }

GK_INLINE void gk_transpose_f32_sse2(const char *src, ptrdiff_t s_w, char *dst, ptrdiff_t s_dst)
{
    __m128 r0 = _mm_loadu_ps((const float *)src), r1 = _mm_loadu_ps((const float *)(src + s_w));
    __m128 r2 = _mm_loadu_ps((const float *)(src + 2 * s_w)), r3 = _mm_loadu_ps((const float *)(src + 3 * s_w));
    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    _mm_storeu_ps((float *)dst, r0);
    _mm_storeu_ps((float *)(dst + s_dst), r1);
    _mm_storeu_ps((float *)(dst + 2 * s_dst), r2);
    _mm_storeu_ps((float *)(dst + 3 * s_dst), r3);
}

GK_INLINE void gk_transpose_f64_sse2(const char *src, ptrdiff_t s_w, char *dst, ptrdiff_t s_dst)
{
    const __m128d r0 = _mm_loadu_pd((const double *)src), r1 = _mm_loadu_pd((const double *)(src + s_w));
    _mm_storeu_pd((double *)dst, _mm_unpacklo_pd(r0, r1));
    _mm_storeu_pd((double *)(dst + s_dst), _mm_unpackhi_pd(r0, r1));
}

#define V_MASK int
#define V_TAIL_MASK(n) (n)
#define V_FMA(a, b, c) V_ADD(V_MUL(a, b), c)

#define V_ELEM float
#define V_TYPE __m128
#define V_LEN 4
#define V_ZERO() _mm_setzero_ps()
#define V_LOAD(p) _mm_loadu_ps((const float *)(p))
#define V_LOAD_TAIL(p, mask) gk_load_tail_f32_sse2(p, mask)
#define V_STORE(p, v) _mm_storeu_ps((float *)(p), v)
#define V_STORE_TAIL(p, mask, v) gk_store_tail_f32_sse2(p, mask, v)
#define V_BROADCAST(p) _mm_set1_ps(*(const float *)(p))
#define V_ADD(a, b) _mm_add_ps(a, b)
#define V_MUL(a, b) _mm_mul_ps(a, b)
#define V_SUM(v) gk_sum_f32_sse2(v)
#define V_SUB(a, b) _mm_sub_ps(a, b)
#define V_DIV(a, b) _mm_div_ps(a, b)
#define V_MAX(a, b) _mm_max_ps(a, b)
#define V_SET(x) _mm_set1_ps(x)
#define V_POW2_FROM(x, least, v, n) _mm_andnot_ps(_mm_cmplt_ps(x, least), _mm_mul_ps(v, gk_pow2_f32_sse2(n)))
#define V_LESS(a, b, x, y) gk_pick_f32_sse2(_mm_cmplt_ps(a, b), x, y)
#define GK_SOFT_OF f32_sse2
#include "softmax_f32.inc.h"
#include "tmpl_softmax.inc.h"
#define V_SQUARE 4
#define V_TRANSPOSE gk_transpose_f32_sse2
#define GK_PACK_OF f32f32_sse2
#include "tmpl_pack.inc.h"
#define GK_EPI_NAME gk_epilogue_f32f32_sse2
#include "tmpl_epilogue.inc.h"
#define GK_PEAK_NAME gk_peak_f32_sse2
#define GK_PEAK_ACC 12
#include "tmpl_peak.inc.h"
#define GK_UKR_NAME gk_gemm_f32f32_ukr_6x8_sse2
#define GK_MR 6
#define GK_NV 2
#include "tmpl_gemm.inc.h"
#define GK_UKR_NAME gk_dot_f32f32_ukr_2x4_sse2
#define GK_MR 2
#define GK_NR 4
#define GK_ACC 8
#include "tmpl_dot.inc.h"
#define GK_UKR_NAME gk_stream_f32f32_ukr_4x4_sse2
#define GK_MR 4
#define GK_SCALARS 8
#include "tmpl_stream.inc.h"
#undef V_ELEM
#undef V_TYPE
#undef V_LEN
#undef V_ZERO
#undef V_LOAD
#undef V_LOAD_TAIL
#undef V_STORE
#undef V_STORE_TAIL
#undef V_BROADCAST
#undef V_ADD
#undef V_MUL
#undef V_SUM
#undef V_SUB
#undef V_DIV
#undef V_MAX
#undef V_SET
#undef V_POW2_FROM
#undef V_LESS
#undef V_SQUARE
#undef V_TRANSPOSE

#define V_ELEM double
#define V_TYPE __m128d
#define V_LEN 2
#define V_ZERO() _mm_setzero_pd()
#define V_LOAD(p) _mm_loadu_pd((const double *)(p))
#define V_LOAD_TAIL(p, mask) _mm_load_sd((const double *)(p)) /* partial of two is one */
#define V_STORE(p, v) _mm_storeu_pd((double *)(p), v)
#define V_STORE_TAIL(p, mask, v) _mm_store_sd((double *)(p), v)
#define V_BROADCAST(p) _mm_set1_pd(*(const double *)(p))
#define V_ADD(a, b) _mm_add_pd(a, b)
#define V_MUL(a, b) _mm_mul_pd(a, b)
#define V_SUM(v) gk_sum_f64_sse2(v)
#define V_SUB(a, b) _mm_sub_pd(a, b)
#define V_DIV(a, b) _mm_div_pd(a, b)
#define V_MAX(a, b) _mm_max_pd(a, b)
#define V_SET(x) _mm_set1_pd(x)
#define V_POW2_FROM(x, least, v, n) _mm_andnot_pd(_mm_cmplt_pd(x, least), _mm_mul_pd(v, gk_pow2_f64_sse2(n)))
#define V_LESS(a, b, x, y) gk_pick_f64_sse2(_mm_cmplt_pd(a, b), x, y)
#define GK_SOFT_OF f64_sse2
#include "softmax_f64.inc.h"
#include "tmpl_softmax.inc.h"
#define V_SQUARE 2
#define V_TRANSPOSE gk_transpose_f64_sse2
#define GK_PACK_OF f64f64_sse2
#include "tmpl_pack.inc.h"
#define GK_EPI_NAME gk_epilogue_f64f64_sse2
#include "tmpl_epilogue.inc.h"
#define GK_PEAK_NAME gk_peak_f64_sse2
#define GK_PEAK_ACC 12
#include "tmpl_peak.inc.h"
#define GK_UKR_NAME gk_gemm_f64f64_ukr_6x4_sse2
#define GK_MR 6
#define GK_NV 2
#include "tmpl_gemm.inc.h"
#define GK_UKR_NAME gk_dot_f64f64_ukr_2x4_sse2
#define GK_MR 2
#define GK_NR 4
#define GK_ACC 8
#include "tmpl_dot.inc.h"
#define GK_UKR_NAME gk_stream_f64f64_ukr_4x2_sse2
#define GK_MR 4
#define GK_SCALARS 8
#include "tmpl_stream.inc.h"
#include "tmpl_undef.inc.h"

GK_TARGET_END
#endif
