/* AVX2 with FMA3 and F16C: 16 registers of 256 bits; two FMAs and two loads a cycle on Haswell and later, Zen 2 and later.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AVX2_H
#define GK_AVX2_H

GK_TARGET_BEGIN(GK_T_AVX2)

#define V_POW2_F32(n) _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(_mm256_add_ps(n, _mm256_set1_ps(GK_POW2_F32))), 23))
#define V_POW2_F64(n) _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(_mm256_add_pd(n, _mm256_set1_pd(GK_POW2_F64))), 52))
#define V_FMA_F32(a, b, c) _mm256_fmadd_ps(a, b, c)
#define V_FMA_F64(a, b, c) _mm256_fmadd_pd(a, b, c)
#define GK_ISA_NAME avx2
#define GK_HAS_F16C
#include "tmpl_avx.inc.h"

GK_TARGET_END
#endif
