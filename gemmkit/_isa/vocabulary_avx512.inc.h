/* The V_* vocabulary of float32 in 512-bit vectors; tmpl_undef.inc.h ends it. */
#define V_ELEM float
#define V_TYPE __m512
#define V_LEN 16
#define V_MASK __mmask16
#define V_TAIL_MASK(n) ((__mmask16)(0xffffu >> (16 - (n))))
#define V_ZERO() _mm512_setzero_ps()
#define V_LOAD(p) _mm512_loadu_ps((const float *)(p))
#define V_LOAD_TAIL(p, mask) _mm512_maskz_loadu_ps(mask, (const float *)(p))
#define V_STORE(p, v) _mm512_storeu_ps((float *)(p), v)
#define V_STORE_TAIL(p, mask, v) _mm512_mask_storeu_ps((float *)(p), mask, v)
#define V_BROADCAST(p) _mm512_set1_ps(*(const float *)(p))
#define V_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define V_ADD(a, b) _mm512_add_ps(a, b)
#define V_MUL(a, b) _mm512_mul_ps(a, b)
#define V_SUM(v) gk_sum_f32_avx(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)))
#define V_SUM_FOUR(a, b, c, d, add, to) gk_sum_four_f32_avx512(a, b, c, d, add, to)
#define V_SUB(a, b) _mm512_sub_ps(a, b)
#define V_DIV(a, b) _mm512_div_ps(a, b)
#define V_MAX(a, b) _mm512_max_ps(a, b)
#define V_SET(x) _mm512_set1_ps(x)
#define V_POW2_FROM(x, least, v, n) _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), v, n)
#define V_LESS(a, b, x, y) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x)
