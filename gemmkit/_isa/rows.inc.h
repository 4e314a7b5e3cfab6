/* THE TABLE.  One line a micro-kernel, best first within a role and type.  Selection, tests, benchmarks and the
 * table in docs/kernels.md are all read from here; nothing else lists kernels.
 *
 * GK_UKR(role, isa, a type, b type, accumulator, MR, NR, KR, VL, flags, packer of A, packer of B, function)
 * GK_VEC(isa, type, epilogue of one tile, peak measurement)
 * SPDX-License-Identifier: Apache-2.0 */

#ifdef GK_X86
/* 24 accumulators of 32 registers; 11 loads for 24 FMAs. */
GK_UKR(GK_GEMM, GK_ISA_AVX512, GK_F32, GK_F32, GK_F32, 8, 48, 1, 16, 0, gk_pack_f32_avx512, gk_pack_f32_avx512, gk_gemm_f32f32_ukr_8x48_avx512)
GK_UKR(GK_GEMM, GK_ISA_AVX512, GK_F64, GK_F64, GK_F64, 8, 24, 1, 8, 0, gk_pack_f64_avx512, gk_pack_f64_avx512, gk_gemm_f64f64_ukr_8x24_avx512)
/* Half-width vectors for products of eight columns or fewer, where a full one would be half empty. */
GK_UKR(GK_GEMM, GK_ISA_AVX512, GK_F32, GK_F32, GK_F32, 8, 8, 1, 8, 0, gk_pack_f32_avx512, gk_pack_f32_avx512, gk_gemm_f32f32_ukr_8x8_avx512)
GK_UKR(GK_GEMM, GK_ISA_AVX512, GK_F64, GK_F64, GK_F64, 8, 4, 1, 4, 0, gk_pack_f64_avx512, gk_pack_f64_avx512, gk_gemm_f64f64_ukr_8x4_avx512)
GK_UKR(GK_DOT, GK_ISA_AVX512, GK_F32, GK_F32, GK_F32, 4, 4, 1, 16, 0, gk_pack_f32_avx512, gk_pack_f32_avx512, gk_dot_f32f32_ukr_4x4_avx512)
GK_UKR(GK_DOT, GK_ISA_AVX512, GK_F64, GK_F64, GK_F64, 4, 4, 1, 8, 0, gk_pack_f64_avx512, gk_pack_f64_avx512, gk_dot_f64f64_ukr_4x4_avx512)
GK_UKR(GK_STREAM, GK_ISA_AVX512, GK_F32, GK_F32, GK_F32, 4, 16, 1, 16, 0, gk_pack_f32_avx512, gk_pack_f32_avx512, gk_stream_f32f32_ukr_4x16_avx512)
GK_UKR(GK_STREAM, GK_ISA_AVX512, GK_F64, GK_F64, GK_F64, 4, 8, 1, 8, 0, gk_pack_f64_avx512, gk_pack_f64_avx512, gk_stream_f64f64_ukr_4x8_avx512)
GK_VEC(GK_ISA_AVX512, GK_F32, gk_epilogue_f32_avx512, gk_peak_f32_avx512)
GK_VEC(GK_ISA_AVX512, GK_F64, gk_epilogue_f64_avx512, gk_peak_f64_avx512)

/* 12 accumulators, two B vectors and one broadcast of 16 registers; 8 loads for 12 FMAs. */
GK_UKR(GK_GEMM, GK_ISA_AVX2, GK_F32, GK_F32, GK_F32, 6, 16, 1, 8, 0, gk_pack_f32_avx2, gk_pack_f32_avx2, gk_gemm_f32f32_ukr_6x16_avx2)
GK_UKR(GK_GEMM, GK_ISA_AVX2, GK_F64, GK_F64, GK_F64, 6, 8, 1, 4, 0, gk_pack_f64_avx2, gk_pack_f64_avx2, gk_gemm_f64f64_ukr_6x8_avx2)
GK_UKR(GK_DOT, GK_ISA_AVX2, GK_F32, GK_F32, GK_F32, 2, 4, 1, 8, 0, gk_pack_f32_avx2, gk_pack_f32_avx2, gk_dot_f32f32_ukr_2x4_avx2)
GK_UKR(GK_DOT, GK_ISA_AVX2, GK_F64, GK_F64, GK_F64, 2, 4, 1, 4, 0, gk_pack_f64_avx2, gk_pack_f64_avx2, gk_dot_f64f64_ukr_2x4_avx2)
GK_UKR(GK_STREAM, GK_ISA_AVX2, GK_F32, GK_F32, GK_F32, 4, 8, 1, 8, 0, gk_pack_f32_avx2, gk_pack_f32_avx2, gk_stream_f32f32_ukr_4x8_avx2)
GK_UKR(GK_STREAM, GK_ISA_AVX2, GK_F64, GK_F64, GK_F64, 4, 4, 1, 4, 0, gk_pack_f64_avx2, gk_pack_f64_avx2, gk_stream_f64f64_ukr_4x4_avx2)
GK_VEC(GK_ISA_AVX2, GK_F32, gk_epilogue_f32_avx2, gk_peak_f32_avx2)
GK_VEC(GK_ISA_AVX2, GK_F64, gk_epilogue_f64_avx2, gk_peak_f64_avx2)

/* The same tiles without FMA: the product takes a register more, which the broadcast gives back. */
GK_UKR(GK_GEMM, GK_ISA_AVX, GK_F32, GK_F32, GK_F32, 6, 16, 1, 8, 0, gk_pack_f32_avx, gk_pack_f32_avx, gk_gemm_f32f32_ukr_6x16_avx)
GK_UKR(GK_GEMM, GK_ISA_AVX, GK_F64, GK_F64, GK_F64, 6, 8, 1, 4, 0, gk_pack_f64_avx, gk_pack_f64_avx, gk_gemm_f64f64_ukr_6x8_avx)
GK_UKR(GK_DOT, GK_ISA_AVX, GK_F32, GK_F32, GK_F32, 2, 4, 1, 8, 0, gk_pack_f32_avx, gk_pack_f32_avx, gk_dot_f32f32_ukr_2x4_avx)
GK_UKR(GK_DOT, GK_ISA_AVX, GK_F64, GK_F64, GK_F64, 2, 4, 1, 4, 0, gk_pack_f64_avx, gk_pack_f64_avx, gk_dot_f64f64_ukr_2x4_avx)
GK_UKR(GK_STREAM, GK_ISA_AVX, GK_F32, GK_F32, GK_F32, 4, 8, 1, 8, 0, gk_pack_f32_avx, gk_pack_f32_avx, gk_stream_f32f32_ukr_4x8_avx)
GK_UKR(GK_STREAM, GK_ISA_AVX, GK_F64, GK_F64, GK_F64, 4, 4, 1, 4, 0, gk_pack_f64_avx, gk_pack_f64_avx, gk_stream_f64f64_ukr_4x4_avx)
GK_VEC(GK_ISA_AVX, GK_F32, gk_epilogue_f32_avx, gk_peak_f32_avx)
GK_VEC(GK_ISA_AVX, GK_F64, gk_epilogue_f64_avx, gk_peak_f64_avx)

GK_UKR(GK_GEMM, GK_ISA_SSE2, GK_F32, GK_F32, GK_F32, 6, 8, 1, 4, 0, gk_pack_f32_sse2, gk_pack_f32_sse2, gk_gemm_f32f32_ukr_6x8_sse2)
GK_UKR(GK_GEMM, GK_ISA_SSE2, GK_F64, GK_F64, GK_F64, 6, 4, 1, 2, 0, gk_pack_f64_sse2, gk_pack_f64_sse2, gk_gemm_f64f64_ukr_6x4_sse2)
GK_UKR(GK_DOT, GK_ISA_SSE2, GK_F32, GK_F32, GK_F32, 2, 4, 1, 4, 0, gk_pack_f32_sse2, gk_pack_f32_sse2, gk_dot_f32f32_ukr_2x4_sse2)
GK_UKR(GK_DOT, GK_ISA_SSE2, GK_F64, GK_F64, GK_F64, 2, 4, 1, 2, 0, gk_pack_f64_sse2, gk_pack_f64_sse2, gk_dot_f64f64_ukr_2x4_sse2)
GK_UKR(GK_STREAM, GK_ISA_SSE2, GK_F32, GK_F32, GK_F32, 4, 4, 1, 4, 0, gk_pack_f32_sse2, gk_pack_f32_sse2, gk_stream_f32f32_ukr_4x4_sse2)
GK_UKR(GK_STREAM, GK_ISA_SSE2, GK_F64, GK_F64, GK_F64, 4, 2, 1, 2, 0, gk_pack_f64_sse2, gk_pack_f64_sse2, gk_stream_f64f64_ukr_4x2_sse2)
GK_VEC(GK_ISA_SSE2, GK_F32, gk_epilogue_f32_sse2, gk_peak_f32_sse2)
GK_VEC(GK_ISA_SSE2, GK_F64, gk_epilogue_f64_sse2, gk_peak_f64_sse2)
#endif

/* Plain C, on every machine: the reference that the other rows are read against, and never missing. */
GK_UKR(GK_GEMM, GK_ISA_SCALAR, GK_F32, GK_F32, GK_F32, 4, 4, 1, 1, 0, gk_pack_f32_scalar, gk_pack_f32_scalar, gk_gemm_f32f32_ukr_4x4_scalar)
GK_UKR(GK_GEMM, GK_ISA_SCALAR, GK_F64, GK_F64, GK_F64, 4, 4, 1, 1, 0, gk_pack_f64_scalar, gk_pack_f64_scalar, gk_gemm_f64f64_ukr_4x4_scalar)
GK_UKR(GK_DOT, GK_ISA_SCALAR, GK_F32, GK_F32, GK_F32, 2, 2, 1, 1, 0, gk_pack_f32_scalar, gk_pack_f32_scalar, gk_dot_f32f32_ukr_2x2_scalar)
GK_UKR(GK_DOT, GK_ISA_SCALAR, GK_F64, GK_F64, GK_F64, 2, 2, 1, 1, 0, gk_pack_f64_scalar, gk_pack_f64_scalar, gk_dot_f64f64_ukr_2x2_scalar)
GK_UKR(GK_STREAM, GK_ISA_SCALAR, GK_F32, GK_F32, GK_F32, 4, 1, 1, 1, 0, gk_pack_f32_scalar, gk_pack_f32_scalar, gk_stream_f32f32_ukr_4x1_scalar)
GK_UKR(GK_STREAM, GK_ISA_SCALAR, GK_F64, GK_F64, GK_F64, 4, 1, 1, 1, 0, gk_pack_f64_scalar, gk_pack_f64_scalar, gk_stream_f64f64_ukr_4x1_scalar)
GK_VEC(GK_ISA_SCALAR, GK_F32, gk_epilogue_f32_scalar, gk_peak_f32_scalar)
GK_VEC(GK_ISA_SCALAR, GK_F64, gk_epilogue_f64_scalar, gk_peak_f64_scalar)
