/* The vocabulary of tmpl_bytes.inc.h in 256-bit vectors; tmpl_undef.inc.h ends it. */
#include "tmpl_lanes.inc.h"
#define V_MASK __m256i
#define V_TAIL_MASK(n) gk_mask_f32_avx(n)
#define V_LOAD_TAIL(p, mask) ((gk_u32v32)_mm256_maskload_epi32((const int *)(p), mask))
#define V_STORE_TAIL(p, mask, v) _mm256_maskstore_epi32((int *)(p), mask, (__m256i)(v))
#define V_SUM(v) gk_sum_u32_avx2(v)
#define Q_LOAD(p) V_LOAD(p)
#define Q_LOAD_TAIL(p, n) gk_load_quads_avx2(p, n)
#define Q_ALL(byte) ((gk_u32v32)_mm256_set1_epi8((char)(byte)))
#define Q_LOW8(x, y) ((gk_u32v32)_mm256_unpacklo_epi8((__m256i)(x), (__m256i)(y)))
#define Q_HIGH8(x, y) ((gk_u32v32)_mm256_unpackhi_epi8((__m256i)(x), (__m256i)(y)))
#define Q_LOW16(x, y) ((gk_u32v32)_mm256_unpacklo_epi16((__m256i)(x), (__m256i)(y)))
#define Q_HIGH16(x, y) ((gk_u32v32)_mm256_unpackhi_epi16((__m256i)(x), (__m256i)(y)))
#define Q_ORDER(x) ((gk_u32v32)_mm256_permutevar8x32_epi32((__m256i)(x), _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)))
