/* Compiler and architecture differences, and nothing else: which intrinsics exist, how a target region is
 * opened and closed, how a loop is unrolled.  No kernel header tests a compiler macro itself.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_TARGET_H
#define GK_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#define GK_X86 1
/* Included before any region opens: an intrinsics header first seen inside a region breaks later regions. */
#include <immintrin.h>
#endif

#define GK_PRAGMA(x) _Pragma(#x)

/* The register tile must become registers.  gcc leaves the loops rolled at -O2 and clang ignores gcc's pragma;
 * either mistake costs a factor of two to three. */
#if defined(__clang__)
#define GK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define GK_UNROLL GK_PRAGMA(GCC unroll 64)
#endif

/* A region: every function between BEGIN and END is compiled for the named instruction sets.  Strings are
 * cumulative, since gcc's avx512f implies avx2 but neither fma nor f16c. */
#if defined(__clang__)
#define GK_TARGET_BEGIN(features) GK_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define GK_TARGET_END _Pragma("clang attribute pop")
#else
#define GK_TARGET_BEGIN(features) _Pragma("GCC push_options") GK_PRAGMA(GCC target(features))
#define GK_TARGET_END _Pragma("GCC pop_options")
#endif

#define GK_T_SSE2 "sse2"
#define GK_T_AVX "avx"
#define GK_T_AVX2 "avx2,fma,f16c"
#define GK_T_AVXVNNI GK_T_AVX2 ",avxvnni"
#define GK_T_AVX512 GK_T_AVX2 ",avx512f,avx512bw,avx512dq,avx512vl"
#define GK_T_AVX512VBMI GK_T_AVX512 ",avx512vbmi"
#define GK_T_AVX512BF16 GK_T_AVX512 ",avx512bf16"
#define GK_T_AVX512VNNI GK_T_AVX512 ",avx512vnni"
#define GK_T_AMX GK_T_AVX512 ",amx-tile"
#define GK_T_AMXINT8 GK_T_AMX ",amx-int8"
#define GK_T_AMXBF16 GK_T_AMX ",amx-bf16"
#define GK_T_AVX512FP16 GK_T_AVX512 ",avx512fp16"

/* Numbers which, added to a whole n, leave it (ROUND) or n plus the exponent's bias (POW2) in the low bits of the sum. */
#define GK_ROUND_F32 12582912.0f /* 1.5 * 2^23 */
#define GK_POW2_F32 (GK_ROUND_F32 + 127)
#define GK_ROUND_F64 6755399441055744.0 /* 1.5 * 2^52 */
#define GK_POW2_F64 (GK_ROUND_F64 + 1023)

#define GK_INLINE static inline __attribute__((always_inline))
#define GK_KERNEL static __attribute__((noinline))

#define GK_CAT_(a, b) a##b
#define GK_CAT(a, b) GK_CAT_(a, b)

#endif
