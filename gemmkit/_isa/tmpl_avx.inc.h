/* The kernels of 256-bit vectors without mask registers, for AVX and for AVX2 + FMA.
 * Needs GK_ISA_NAME, V_FMA_F32, V_FMA_F64, V_POW2_F32, V_POW2_F64 and, where the set
 * converts narrow types, GK_HAS_F16C; undefines them.  6 x 2 vectors: 12 accumulators, two vectors of B and
 * a broadcast make 15 of the 16 registers. */
#define GK_OF(stem) GK_CAT(stem, GK_ISA_NAME)

#define V_ELEM float
#define V_TYPE __m256
#define V_LEN 8
#define V_MASK __m256i
#define V_TAIL_MASK(n) gk_mask_f32_avx(n)
#define V_ZERO() _mm256_setzero_ps()
#define V_LOAD(p) _mm256_loadu_ps((const float *)(p))
#define V_LOAD_TAIL(p, mask) _mm256_maskload_ps((const float *)(p), mask)
#define V_STORE(p, v) _mm256_storeu_ps((float *)(p), v)
#define V_STORE_TAIL(p, mask, v) _mm256_maskstore_ps((float *)(p), mask, v)
#define V_BROADCAST(p) _mm256_broadcast_ss((const float *)(p))
#define V_FMA(a, b, c) V_FMA_F32(a, b, c)
#define V_ADD(a, b) _mm256_add_ps(a, b)
#define V_MUL(a, b) _mm256_mul_ps(a, b)
#define V_SUM(v) gk_sum_f32_avx(v)
#define V_SUM_FOUR(a, b, c, d, add, to) gk_sum_four_f32_avx(a, b, c, d, add, to)
#define V_SUB(a, b) _mm256_sub_ps(a, b)
#define V_DIV(a, b) _mm256_div_ps(a, b)
#define V_MAX(a, b) _mm256_max_ps(a, b)
#define V_SET(x) _mm256_set1_ps(x)
#define V_POW2_FROM(x, least, v, n) _mm256_andnot_ps(_mm256_cmp_ps(x, least, _CMP_LT_OQ), _mm256_mul_ps(v, V_POW2_F32(n)))
#define V_LESS(a, b, x, y) _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ))
#define GK_SOFT_OF GK_OF(f32_)
#include "softmax_f32.inc.h"
#include "tmpl_softmax.inc.h"
#define V_SQUARE 8
#define V_TRANSPOSE gk_transpose_f32_avx
#define GK_PACK_OF GK_OF(f32f32_)
#include "tmpl_pack.inc.h"
#define GK_EPI_NAME GK_OF(gk_epilogue_f32f32_)
#include "tmpl_epilogue.inc.h"
#define GK_PEAK_NAME GK_OF(gk_peak_f32_)
#define GK_PEAK_ACC 12
#include "tmpl_peak.inc.h"
#define GK_UKR_NAME GK_OF(gk_gemm_f32f32_ukr_6x16_)
#define GK_MR 6
#define GK_NV 2
#include "tmpl_gemm.inc.h"
#define GK_UKR_NAME GK_OF(gk_dot_f32f32_ukr_2x4_)
#define GK_MR 2
#define GK_NR 4
#define GK_ACC 8
#include "tmpl_dot.inc.h"
#define GK_UKR_NAME GK_OF(gk_stream_f32f32_ukr_4x8_)
#define GK_MR 4
#define GK_SCALARS 8
#include "tmpl_stream.inc.h"
#ifdef GK_HAS_F16C
#define N_SET GK_ISA_NAME
#define N_PLAIN_PANELS GK_OF(gk_panels_f32f32_)
#define N_MR 6
#define N_NV 2
#define N_TILE 6x16
#define N_DOT_MR 2
#define N_DOT_NR 4
#define N_DOT_ACC 8
#define N_DOT_TILE 2x4
#define N_SCALARS 8
#define N_STREAM_TILE 4x8
#include "tmpl_narrow_all.inc.h"
#endif
#include "tmpl_undef.inc.h"

#define V_ELEM double
#define V_TYPE __m256d
#define V_LEN 4
#define V_MASK __m256i
#define V_TAIL_MASK(n) gk_mask_f64_avx(n)
#define V_ZERO() _mm256_setzero_pd()
#define V_LOAD(p) _mm256_loadu_pd((const double *)(p))
#define V_LOAD_TAIL(p, mask) _mm256_maskload_pd((const double *)(p), mask)
#define V_STORE(p, v) _mm256_storeu_pd((double *)(p), v)
#define V_STORE_TAIL(p, mask, v) _mm256_maskstore_pd((double *)(p), mask, v)
#define V_BROADCAST(p) _mm256_broadcast_sd((const double *)(p))
#define V_FMA(a, b, c) V_FMA_F64(a, b, c)
#define V_ADD(a, b) _mm256_add_pd(a, b)
#define V_MUL(a, b) _mm256_mul_pd(a, b)
#define V_SUM(v) gk_sum_f64_avx(v)
#define V_SUB(a, b) _mm256_sub_pd(a, b)
#define V_DIV(a, b) _mm256_div_pd(a, b)
#define V_MAX(a, b) _mm256_max_pd(a, b)
#define V_SET(x) _mm256_set1_pd(x)
#define V_POW2_FROM(x, least, v, n) _mm256_andnot_pd(_mm256_cmp_pd(x, least, _CMP_LT_OQ), _mm256_mul_pd(v, V_POW2_F64(n)))
#define V_LESS(a, b, x, y) _mm256_blendv_pd(y, x, _mm256_cmp_pd(a, b, _CMP_LT_OQ))
#define GK_SOFT_OF GK_OF(f64_)
#include "softmax_f64.inc.h"
#include "tmpl_softmax.inc.h"
#define V_SQUARE 4
#define V_TRANSPOSE gk_transpose_f64_avx
#define GK_PACK_OF GK_OF(f64f64_)
#include "tmpl_pack.inc.h"
#define GK_EPI_NAME GK_OF(gk_epilogue_f64f64_)
#include "tmpl_epilogue.inc.h"
#define GK_PEAK_NAME GK_OF(gk_peak_f64_)
#define GK_PEAK_ACC 12
#include "tmpl_peak.inc.h"
#define GK_UKR_NAME GK_OF(gk_gemm_f64f64_ukr_6x8_)
#define GK_MR 6
#define GK_NV 2
#include "tmpl_gemm.inc.h"
#define GK_UKR_NAME GK_OF(gk_dot_f64f64_ukr_2x4_)
#define GK_MR 2
#define GK_NR 4
#define GK_ACC 8
#include "tmpl_dot.inc.h"
#define GK_UKR_NAME GK_OF(gk_stream_f64f64_ukr_4x4_)
#define GK_MR 4
#define GK_SCALARS 8
#include "tmpl_stream.inc.h"
#include "tmpl_undef.inc.h"

#undef GK_OF
#undef GK_ISA_NAME
#undef V_FMA_F32
#undef V_FMA_F64
#undef V_POW2_F32
#undef V_POW2_F64
#undef GK_HAS_F16C
