/* The vocabulary of tmpl_bytes.inc.h in 512-bit vectors; tmpl_undef.inc.h ends it. */
#include "tmpl_lanes.inc.h"
#define V_MASK __mmask16
#define V_TAIL_MASK(n) ((__mmask16)(0xffffu >> (16 - (n))))
#define V_LOAD_TAIL(p, mask) ((gk_u32v64)_mm512_maskz_loadu_epi32(mask, p))
#define V_STORE_TAIL(p, mask, v) _mm512_mask_storeu_epi32(p, mask, (__m512i)(v))
#define V_SUM(v) gk_sum_u32_avx512(v)
#define V_SUM_FOUR(a, b, c, d, add, to) gk_sum_four_avx512((__m512i)(a), (__m512i)(b), (__m512i)(c), (__m512i)(d), add, to)
#define Q_LOAD(p) V_LOAD(p)
#define Q_LOAD_TAIL(p, n) ((gk_u32v64)_mm512_maskz_loadu_epi8(~0ull >> (64 - (n)), p))
#define Q_ALL(byte) ((gk_u32v64)_mm512_set1_epi8((char)(byte)))
#define Q_LOW8(x, y) ((gk_u32v64)_mm512_unpacklo_epi8((__m512i)(x), (__m512i)(y)))
#define Q_HIGH8(x, y) ((gk_u32v64)_mm512_unpackhi_epi8((__m512i)(x), (__m512i)(y)))
#define Q_LOW16(x, y) ((gk_u32v64)_mm512_unpacklo_epi16((__m512i)(x), (__m512i)(y)))
#define Q_HIGH16(x, y) ((gk_u32v64)_mm512_unpackhi_epi16((__m512i)(x), (__m512i)(y)))
#define Q_ORDER(x)                                                                                                     \
    ((gk_u32v64)_mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), (__m512i)(x)))
