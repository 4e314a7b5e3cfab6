/* AVX512-FP16: vcvtph2psx widens float16 by one instruction, from memory also one element into all lanes, so that an A in
 * float16 is read in place like a B.  Sums stay in float32: arithmetic in float16 would round every step.
 *
 * The instructions are written out: compilers that know them want a type _Float16 for the intrinsics, which clang 14 lacks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AVX512FP16_H
#define GK_AVX512FP16_H

GK_TARGET_BEGIN(GK_T_AVX512FP16)

typedef struct { uint16_t code[16]; } gk_sixteen_halves;

GK_INLINE __m512 gk_load_f16_avx512fp16(const char *p)
{
    __m512 v;
    __asm__("vcvtph2psx %1, %0" : "=v"(v) : "m"(*(const gk_sixteen_halves *)p));
    return v;
}

GK_INLINE __m512 gk_load_part_f16_avx512fp16(const char *p, int n)
{
    const __m256i x = _mm256_maskz_loadu_epi16(gk_first_avx512(n), p);
    __m512 v;
    __asm__("vcvtph2psx %1, %0" : "=v"(v) : "v"(x));
    return v;
}

GK_INLINE __m512 gk_broadcast_f16_avx512fp16(const char *p)
{
    __m512 v;
    __asm__("vcvtph2psx %1%{1to16%}, %0" : "=v"(v) : "m"(*(const uint16_t *)p));
    return v;
}

GK_INLINE __m256i gk_narrow_f16_avx512fp16(__m512 v)
{
    __m256i x;
    __asm__("vcvtps2phx %1, %0" : "=v"(x) : "v"(v)); /* by MXCSR: to nearest even, unless the program has changed it */
    return x;
}

GK_INLINE void gk_store_f16_avx512fp16(char *p, __m512 v) { _mm256_storeu_si256((__m256i *)p, gk_narrow_f16_avx512fp16(v)); }

GK_INLINE void gk_store_part_f16_avx512fp16(char *p, int n, __m512 v)
{
    _mm256_mask_storeu_epi16(p, gk_first_avx512(n), gk_narrow_f16_avx512fp16(v));
}

#include "vocabulary_avx512.inc.h"

#define N_ITEM 2
#define N_LOAD(p) gk_load_f16_avx512fp16(p)
#define N_LOAD_TAIL(p, mask, n) gk_load_part_f16_avx512fp16(p, n)
#define N_PLAIN_PANELS gk_panels_f32f32_avx512
#define GK_PACK_OF f16f32_avx512fp16
#include "tmpl_narrow_pack.inc.h"
#define GK_EPI_NAME gk_epilogue_f32f16_avx512fp16
#define C_ITEM 2
#define C_STORE(p, v) gk_store_f16_avx512fp16(p, v)
#define C_STORE_TAIL(p, mask, n, v) gk_store_part_f16_avx512fp16(p, n, v)
#include "tmpl_epilogue.inc.h"
#undef V_BROADCAST
#define V_BROADCAST(p) gk_broadcast_f16_avx512fp16(p)
#define GK_UKR_NAME gk_gemm_f16f16_ukr_8x48_avx512fp16
#define GK_MR 8
#define GK_NV 3
#define B_ITEM 2
#define B_LOAD(p) N_LOAD(p)
#define B_LOAD_TAIL(p, mask, n) N_LOAD_TAIL(p, mask, n)
#include "tmpl_gemm.inc.h"
#undef N_ITEM
#undef N_LOAD
#undef N_LOAD_TAIL
#undef N_PLAIN_PANELS
#include "tmpl_undef.inc.h"

GK_TARGET_END
#endif
