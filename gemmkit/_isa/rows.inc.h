/* THE TABLE.  One line a micro-kernel, packer, epilogue or peak, best first within a role and types.  Selection, tests,
 * benchmarks and the table in docs/kernels.md are all read from here; nothing else lists kernels.
 *
 * GK_UKR(role, isa, a type, b type, accumulator, MR, NR, KR, VL, flags, function)
 * GK_UKR_RELEASED(..., release)         a row that holds something from call to call
 * GK_PACK(isa, from, to, of)            the functions gk_panels_<of> and gk_lines_<of>
 * GK_PANELS_ONLY(isa, from, to, of)     gk_panels_<of>: no kernel reads lines of these
 * GK_EPI(isa, accumulator, type of C, function)
 * GK_SOFT(isa, type of scores, of weights, VL, of, weigh)    the functions gk_scan_<of>, gk_rescale_<of>, gk_divide_<of>, weigh
 * GK_PEAK(isa, type, function)
 * SPDX-License-Identifier: Apache-2.0 */

/* What a set with loads and stores of a narrow type has for it: B read in place by each role, a dot row for a narrow A,
 * the packer that widens, the epilogue that rounds. */
#define GK_NARROW(isa, set, T, t, MR, NR, VL, tile, dot_mr, dot_nr, dot_tile, stream_tile)                                  \
    GK_UKR(GK_GEMM, isa, GK_F32, T, GK_F32, MR, NR, 1, VL, 0, gk_gemm_f32##t##_ukr_##tile##_##set)                          \
    GK_UKR(GK_DOT, isa, GK_F32, T, GK_F32, dot_mr, dot_nr, 1, VL, 0, gk_dot_f32##t##_ukr_##dot_tile##_##set)                \
    GK_UKR(GK_DOT, isa, T, GK_F32, GK_F32, dot_mr, dot_nr, 1, VL, 0, gk_dot_##t##f32_ukr_##dot_tile##_##set)                \
    GK_UKR(GK_STREAM, isa, GK_F32, T, GK_F32, 4, VL, 1, VL, 0, gk_stream_f32##t##_ukr_##stream_tile##_##set)                \
    GK_PACK(isa, T, GK_F32, t##f32_##set)                                                                                   \
    GK_EPI(isa, GK_F32, T, gk_epilogue_f32##t##_##set)
#define GK_NARROW_ALL(isa, set, ...)                                                                                        \
    GK_NARROW(isa, set, GK_F16, f16, __VA_ARGS__)                                                                           \
    GK_NARROW(isa, set, GK_BF16, bf16, __VA_ARGS__)                                                                         \
    GK_NARROW(isa, set, GK_E4M3FN, e4m3fn, __VA_ARGS__)                                                                     \
    GK_NARROW(isa, set, GK_E4M3FNUZ, e4m3fnuz, __VA_ARGS__)                                                                 \
    GK_NARROW(isa, set, GK_E5M2, e5m2, __VA_ARGS__)                                                                         \
    GK_NARROW(isa, set, GK_E5M2FNUZ, e5m2fnuz, __VA_ARGS__)                                                                 \
    GK_PACK(isa, GK_BOOL, GK_F32, boolf32_##set)                                                                            \
    GK_EPI(isa, GK_F32Q, GK_E4M3FN, gk_epilogue_f32qe4m3fn_##set)                                                           \
    GK_EPI(isa, GK_F32Q, GK_E4M3FNUZ, gk_epilogue_f32qe4m3fnuz_##set)                                                       \
    GK_EPI(isa, GK_F32Q, GK_E5M2, gk_epilogue_f32qe5m2_##set)                                                               \
    GK_EPI(isa, GK_F32Q, GK_E5M2FNUZ, gk_epilogue_f32qe5m2fnuz_##set)

/* float8 by table, and all of its packers. */
#define GK_FLOAT8(isa, set, T, t)                                                                                           \
    GK_UKR(GK_DOT, isa, GK_F32, T, GK_F32, 4, 4, 1, 64, 0, gk_dot_f32##t##_ukr_4x4_##set)                                    \
    GK_UKR(GK_DOT, isa, T, GK_F32, GK_F32, 4, 4, 1, 64, 0, gk_dot_##t##f32_ukr_4x4_##set)                                    \
    GK_UKR(GK_STREAM, isa, GK_F32, T, GK_F32, 4, 64, 1, 64, 0, gk_stream_f32##t##_ukr_4x64_##set)                            \
    GK_PACK(isa, T, GK_F32, t##f32_##set)                                                                                   \
    GK_PACK(isa, T, GK_BF16, t##bf16_##set)

/* Integers of one width: a tile of 24 accumulators as for floats, of 16 where a product takes registers of its own. */
#define GK_WHOLE(isa, set, T, t, MR, NR, VL, tile, dot_mr, dot_nr, dot_tile, stream_tile)                                   \
    GK_UKR(GK_GEMM, isa, T, T, T, MR, NR, 1, VL, 0, gk_gemm_##t##t##_ukr_##tile##_##set)                                    \
    GK_UKR(GK_DOT, isa, T, T, T, dot_mr, dot_nr, 1, VL, 0, gk_dot_##t##t##_ukr_##dot_tile##_##set)                          \
    GK_UKR(GK_STREAM, isa, T, T, T, 4, VL, 1, VL, 0, gk_stream_##t##t##_ukr_##stream_tile##_##set)                          \
    GK_EPI(isa, T, T, gk_epilogue_##t##t##_##set)                                                                           \
    GK_PEAK(isa, T, gk_peak_##t##_##set)

/* Bytes in quads; VL counts sums, VB the bytes of a vector.  Dot and stream rows read the long operand where it lies. */
#define GK_BYTES(isa, set, flags, MR, NR, VL, VB, tile, dot_mr, dot_nr, dot_tile, stream_tile)                                     \
    GK_UKR(GK_GEMM, isa, GK_QUADS_U8, GK_QUADS_I8, GK_I32, MR, NR, 4, VL, 0, gk_gemm_u8i8_ukr_##tile##_##set)               \
    GK_UKR(GK_GEMM, isa, GK_QUADS_U8, GK_NIBBLES, GK_I32, MR, NR, 8, VL, 0, gk_gemm_u8nibbles_ukr_##tile##_##set)           \
    GK_UKR(GK_DOT, isa, GK_QUADS_U8, GK_I8, GK_I32, dot_mr, dot_nr, 1, VB, 0, gk_dot_u8i8_ukr_##dot_tile##_##set)           \
    GK_UKR(GK_DOT, isa, GK_QUADS_U8, GK_U8, GK_I32, dot_mr, dot_nr, 1, VB, 0, gk_dot_u8u8_ukr_##dot_tile##_##set)           \
    GK_UKR(GK_DOT, isa, GK_U8, GK_QUADS_I8, GK_I32, dot_mr, dot_nr, 1, VB, 0, gk_dot_u8i8_ukr_##dot_tile##_##set)           \
    GK_UKR(GK_DOT, isa, GK_I8, GK_QUADS_I8, GK_I32, dot_mr, dot_nr, 1, VB, 0, gk_dot_i8i8_ukr_##dot_tile##_##set)           \
    GK_UKR(GK_STREAM, isa, GK_QUADS_U8, GK_I8, GK_I32, 8, VB, 1, VB, flags, gk_stream_u8i8_ukr_##stream_tile##_##set)           \
    GK_UKR(GK_STREAM, isa, GK_QUADS_U8, GK_U8, GK_I32, 8, VB, 1, VB, flags, gk_stream_u8u8_ukr_##stream_tile##_##set)           \
    GK_PEAK(isa, GK_QUADS_U8, gk_peak_u8_##set)
#define GK_QUADS(isa, set)                                                                                                  \
    GK_PACK(isa, GK_U8, GK_QUADS_U8, u8quads_u8_##set)                                                                      \
    GK_PACK(isa, GK_I8, GK_QUADS_U8, i8quads_u8_##set)                                                                      \
    GK_PACK(isa, GK_U4, GK_QUADS_U8, u4quads_u8_##set)                                                                      \
    GK_PACK(isa, GK_I4, GK_QUADS_U8, i4quads_u8_##set)                                                                      \
    GK_PACK(isa, GK_I8, GK_QUADS_I8, i8quads_i8_##set)                                                                      \
    GK_PACK(isa, GK_U8, GK_QUADS_I8, u8quads_i8_##set)                                                                      \
    GK_PACK(isa, GK_U4, GK_QUADS_I8, u4quads_i8_##set)                                                                      \
    GK_PACK(isa, GK_I4, GK_QUADS_I8, i4quads_i8_##set)
#define GK_QUANTIZED(isa, set)                                                                                              \
    GK_EPI(isa, GK_I32, GK_I8, gk_epilogue_i32i8_##set)                                                                     \
    GK_EPI(isa, GK_I32, GK_BOOL, gk_epilogue_i32bool_##set)                                                                 \
    GK_EPI(isa, GK_I32Q, GK_I32, gk_epilogue_i32qi32_##set)                                                                 \
    GK_EPI(isa, GK_I32Q, GK_I8, gk_epilogue_i32qi8_##set)                                                                   \
    GK_EPI(isa, GK_I32Q, GK_U8, gk_epilogue_i32qu8_##set)

#ifdef GK_X86
/* float16 operands read in place, both of them. */
GK_UKR(GK_GEMM, GK_ISA_AVX512FP16, GK_F16, GK_F16, GK_F32, 8, 48, 1, 16, 0, gk_gemm_f16f16_ukr_8x48_avx512fp16)
GK_PACK(GK_ISA_AVX512FP16, GK_F16, GK_F32, f16f32_avx512fp16)
GK_EPI(GK_ISA_AVX512FP16, GK_F32, GK_F16, gk_epilogue_f32f16_avx512fp16)

GK_FLOAT8(GK_ISA_AVX512VBMI, avx512vbmi, GK_E4M3FN, e4m3fn)
GK_FLOAT8(GK_ISA_AVX512VBMI, avx512vbmi, GK_E4M3FNUZ, e4m3fnuz)
GK_FLOAT8(GK_ISA_AVX512VBMI, avx512vbmi, GK_E5M2, e5m2)
GK_FLOAT8(GK_ISA_AVX512VBMI, avx512vbmi, GK_E5M2FNUZ, e5m2fnuz)

/* Integers.  gcc 12 and clang keep every accumulator of these tiles in a register; AVX2's vpmaddwd rows widen both operands. */
GK_UKR_RELEASED(GK_GEMM, GK_ISA_AMXINT8, GK_QUADS_U8, GK_QUADS_I8, GK_I32, 32, 32, 4, 16, GK_WANTS_LINES, gk_gemm_u8i8_ukr_32x32_amxint8, gk_release_amx)
GK_PEAK(GK_ISA_AMXINT8, GK_QUADS_U8, gk_peak_u8_amxint8)
GK_BYTES(GK_ISA_AVX512VNNI, avx512vnni, GK_SERVES_MANY, 8, 48, 16, 64, 8x48, 4, 4, 4x4, 8x64)
GK_BYTES(GK_ISA_AVXVNNI, avxvnni, GK_SERVES_MANY, 6, 16, 8, 32, 6x16, 2, 4, 2x4, 8x32)
GK_BYTES(GK_ISA_AVX512, avx512, 0, 8, 32, 16, 64, 8x32, 2, 4, 2x4, 8x64)
GK_BYTES(GK_ISA_AVX2, avx2, 0, 4, 16, 8, 32, 4x16, 2, 2, 2x2, 8x32)
GK_QUADS(GK_ISA_AVX2, avx2)
GK_QUANTIZED(GK_ISA_AVX512, avx512)
GK_QUANTIZED(GK_ISA_AVX2, avx2)
GK_WHOLE(GK_ISA_AVX512, avx512, GK_I16, i16, 8, 64, 32, 8x64, 4, 4, 4x4, 4x32)
GK_WHOLE(GK_ISA_AVX512, avx512, GK_I32, i32, 8, 48, 16, 8x48, 4, 4, 4x4, 4x16)
GK_WHOLE(GK_ISA_AVX512, avx512, GK_I64, i64, 8, 24, 8, 8x24, 4, 4, 4x4, 4x8)
GK_WHOLE(GK_ISA_AVX2, avx2, GK_I16, i16, 6, 32, 16, 6x32, 2, 4, 2x4, 4x16)
GK_WHOLE(GK_ISA_AVX2, avx2, GK_I32, i32, 6, 16, 8, 6x16, 2, 4, 2x4, 4x8)
GK_WHOLE(GK_ISA_AVX2, avx2, GK_I64, i64, 4, 8, 4, 4x8, 2, 4, 2x4, 4x4)
/* Packing moves elements, whatever they mean. */
GK_PACK(GK_ISA_AVX512, GK_I16, GK_I16, i16i16_avx512)
GK_PACK(GK_ISA_AVX512, GK_I32, GK_I32, f32f32_avx512)
GK_PACK(GK_ISA_AVX512, GK_I64, GK_I64, f64f64_avx512)
GK_PACK(GK_ISA_AVX2, GK_I16, GK_I16, i16i16_avx2)
GK_PACK(GK_ISA_AVX2, GK_I32, GK_I32, f32f32_avx2)
GK_PACK(GK_ISA_AVX2, GK_I64, GK_I64, f64f64_avx2)

/* BF16 panels.  The rows that flush, and of each size a stand-in for tiles where that would show. */
GK_UKR_RELEASED(GK_GEMM, GK_ISA_AMXBF16, GK_BF16, GK_BF16, GK_F32, 32, 32, 2, 16, GK_FLUSHES_DENORMALS | GK_WANTS_LINES, gk_gemm_bf16bf16_ukr_32x32_amxbf16, gk_release_amx)
GK_UKR(GK_GEMM, GK_ISA_AVX512BF16, GK_BF16, GK_BF16, GK_F32, 8, 48, 2, 16, GK_FLUSHES_DENORMALS, gk_gemm_bf16bf16_ukr_8x48_avx512bf16)
GK_UKR(GK_GEMM, GK_ISA_AVX512, GK_BF16, GK_BF16, GK_F32, 8, 48, 2, 16, 0, gk_gemm_bf16bf16_ukr_8x48_avx512)
GK_UKR(GK_GEMM, GK_ISA_AVX512, GK_BF16, GK_BF16, GK_F32, 32, 32, 2, 16, 0, gk_gemm_bf16bf16_ukr_32x32_avx512)
GK_PACK(GK_ISA_AVX512, GK_BF16, GK_BF16, bf16bf16_avx512)
GK_PACK(GK_ISA_AVX512, GK_E4M3FN, GK_BF16, e4m3fnbf16_avx512)
GK_PACK(GK_ISA_AVX512, GK_E4M3FNUZ, GK_BF16, e4m3fnuzbf16_avx512)
GK_PACK(GK_ISA_AVX512, GK_E5M2, GK_BF16, e5m2bf16_avx512)
GK_PACK(GK_ISA_AVX512, GK_E5M2FNUZ, GK_BF16, e5m2fnuzbf16_avx512)
GK_PEAK(GK_ISA_AMXBF16, GK_BF16, gk_peak_bf16_amxbf16)
GK_PEAK(GK_ISA_AVX512BF16, GK_BF16, gk_peak_bf16_avx512bf16)

/* 24 accumulators of 32 registers; 11 loads for 24 FMAs. */
GK_UKR(GK_GEMM, GK_ISA_AVX512, GK_F32, GK_F32, GK_F32, 8, 48, 1, 16, 0, gk_gemm_f32f32_ukr_8x48_avx512)
GK_UKR(GK_GEMM, GK_ISA_AVX512, GK_F64, GK_F64, GK_F64, 8, 24, 1, 8, 0, gk_gemm_f64f64_ukr_8x24_avx512)
/* Half-width vectors for products of eight columns or fewer, where a full one would be half empty. */
GK_UKR(GK_GEMM, GK_ISA_AVX512, GK_F32, GK_F32, GK_F32, 8, 8, 1, 8, 0, gk_gemm_f32f32_ukr_8x8_avx512)
GK_UKR(GK_GEMM, GK_ISA_AVX512, GK_F64, GK_F64, GK_F64, 8, 4, 1, 4, 0, gk_gemm_f64f64_ukr_8x4_avx512)
GK_UKR(GK_DOT, GK_ISA_AVX512, GK_F32, GK_F32, GK_F32, 4, 4, 1, 16, 0, gk_dot_f32f32_ukr_4x4_avx512)
GK_UKR(GK_DOT, GK_ISA_AVX512, GK_F64, GK_F64, GK_F64, 4, 4, 1, 8, 0, gk_dot_f64f64_ukr_4x4_avx512)
GK_UKR(GK_STREAM, GK_ISA_AVX512, GK_F32, GK_F32, GK_F32, 4, 16, 1, 16, 0, gk_stream_f32f32_ukr_4x16_avx512)
GK_UKR(GK_STREAM, GK_ISA_AVX512, GK_F64, GK_F64, GK_F64, 4, 8, 1, 8, 0, gk_stream_f64f64_ukr_4x8_avx512)
GK_PACK(GK_ISA_AVX512, GK_F32, GK_F32, f32f32_avx512)
GK_EPI(GK_ISA_AVX512, GK_F32, GK_F32, gk_epilogue_f32f32_avx512)
GK_PEAK(GK_ISA_AVX512, GK_F32, gk_peak_f32_avx512)
GK_PACK(GK_ISA_AVX512, GK_F64, GK_F64, f64f64_avx512)
GK_EPI(GK_ISA_AVX512, GK_F64, GK_F64, gk_epilogue_f64f64_avx512)
GK_PEAK(GK_ISA_AVX512, GK_F64, gk_peak_f64_avx512)

GK_NARROW_ALL(GK_ISA_AVX512, avx512, 8, 48, 16, 8x48, 4, 4, 4x4, 4x16)

/* 12 accumulators, two B vectors and one broadcast of 16 registers; 8 loads for 12 FMAs. */
GK_UKR(GK_GEMM, GK_ISA_AVX2, GK_F32, GK_F32, GK_F32, 6, 16, 1, 8, 0, gk_gemm_f32f32_ukr_6x16_avx2)
GK_UKR(GK_GEMM, GK_ISA_AVX2, GK_F64, GK_F64, GK_F64, 6, 8, 1, 4, 0, gk_gemm_f64f64_ukr_6x8_avx2)
GK_UKR(GK_DOT, GK_ISA_AVX2, GK_F32, GK_F32, GK_F32, 2, 4, 1, 8, 0, gk_dot_f32f32_ukr_2x4_avx2)
GK_UKR(GK_DOT, GK_ISA_AVX2, GK_F64, GK_F64, GK_F64, 2, 4, 1, 4, 0, gk_dot_f64f64_ukr_2x4_avx2)
GK_UKR(GK_STREAM, GK_ISA_AVX2, GK_F32, GK_F32, GK_F32, 4, 8, 1, 8, 0, gk_stream_f32f32_ukr_4x8_avx2)
GK_UKR(GK_STREAM, GK_ISA_AVX2, GK_F64, GK_F64, GK_F64, 4, 4, 1, 4, 0, gk_stream_f64f64_ukr_4x4_avx2)
GK_PACK(GK_ISA_AVX2, GK_F32, GK_F32, f32f32_avx2)
GK_EPI(GK_ISA_AVX2, GK_F32, GK_F32, gk_epilogue_f32f32_avx2)
GK_PEAK(GK_ISA_AVX2, GK_F32, gk_peak_f32_avx2)
GK_PACK(GK_ISA_AVX2, GK_F64, GK_F64, f64f64_avx2)
GK_EPI(GK_ISA_AVX2, GK_F64, GK_F64, gk_epilogue_f64f64_avx2)
GK_PEAK(GK_ISA_AVX2, GK_F64, gk_peak_f64_avx2)

GK_NARROW_ALL(GK_ISA_AVX2, avx2, 6, 16, 8, 6x16, 2, 4, 2x4, 4x8)

/* The same tiles without FMA: the product takes a register more, which the broadcast gives back. */
GK_UKR(GK_GEMM, GK_ISA_AVX, GK_F32, GK_F32, GK_F32, 6, 16, 1, 8, 0, gk_gemm_f32f32_ukr_6x16_avx)
GK_UKR(GK_GEMM, GK_ISA_AVX, GK_F64, GK_F64, GK_F64, 6, 8, 1, 4, 0, gk_gemm_f64f64_ukr_6x8_avx)
GK_UKR(GK_DOT, GK_ISA_AVX, GK_F32, GK_F32, GK_F32, 2, 4, 1, 8, 0, gk_dot_f32f32_ukr_2x4_avx)
GK_UKR(GK_DOT, GK_ISA_AVX, GK_F64, GK_F64, GK_F64, 2, 4, 1, 4, 0, gk_dot_f64f64_ukr_2x4_avx)
GK_UKR(GK_STREAM, GK_ISA_AVX, GK_F32, GK_F32, GK_F32, 4, 8, 1, 8, 0, gk_stream_f32f32_ukr_4x8_avx)
GK_UKR(GK_STREAM, GK_ISA_AVX, GK_F64, GK_F64, GK_F64, 4, 4, 1, 4, 0, gk_stream_f64f64_ukr_4x4_avx)
GK_PACK(GK_ISA_AVX, GK_F32, GK_F32, f32f32_avx)
GK_EPI(GK_ISA_AVX, GK_F32, GK_F32, gk_epilogue_f32f32_avx)
GK_PEAK(GK_ISA_AVX, GK_F32, gk_peak_f32_avx)
GK_PACK(GK_ISA_AVX, GK_F64, GK_F64, f64f64_avx)
GK_EPI(GK_ISA_AVX, GK_F64, GK_F64, gk_epilogue_f64f64_avx)
GK_PEAK(GK_ISA_AVX, GK_F64, gk_peak_f64_avx)

GK_UKR(GK_GEMM, GK_ISA_SSE2, GK_F32, GK_F32, GK_F32, 6, 8, 1, 4, 0, gk_gemm_f32f32_ukr_6x8_sse2)
GK_UKR(GK_GEMM, GK_ISA_SSE2, GK_F64, GK_F64, GK_F64, 6, 4, 1, 2, 0, gk_gemm_f64f64_ukr_6x4_sse2)
GK_UKR(GK_DOT, GK_ISA_SSE2, GK_F32, GK_F32, GK_F32, 2, 4, 1, 4, 0, gk_dot_f32f32_ukr_2x4_sse2)
GK_UKR(GK_DOT, GK_ISA_SSE2, GK_F64, GK_F64, GK_F64, 2, 4, 1, 2, 0, gk_dot_f64f64_ukr_2x4_sse2)
GK_UKR(GK_STREAM, GK_ISA_SSE2, GK_F32, GK_F32, GK_F32, 4, 4, 1, 4, 0, gk_stream_f32f32_ukr_4x4_sse2)
GK_UKR(GK_STREAM, GK_ISA_SSE2, GK_F64, GK_F64, GK_F64, 4, 2, 1, 2, 0, gk_stream_f64f64_ukr_4x2_sse2)
GK_PACK(GK_ISA_SSE2, GK_F32, GK_F32, f32f32_sse2)
GK_EPI(GK_ISA_SSE2, GK_F32, GK_F32, gk_epilogue_f32f32_sse2)
GK_PEAK(GK_ISA_SSE2, GK_F32, gk_peak_f32_sse2)
GK_PACK(GK_ISA_SSE2, GK_F64, GK_F64, f64f64_sse2)
GK_EPI(GK_ISA_SSE2, GK_F64, GK_F64, gk_epilogue_f64f64_sse2)
GK_PEAK(GK_ISA_SSE2, GK_F64, gk_peak_f64_sse2)
#endif

/* The softmax of attention. */
#ifdef GK_X86
GK_SOFT(GK_ISA_AVX512, GK_F32, GK_F32, 16, f32_avx512, gk_weigh_f32_avx512)
GK_SOFT(GK_ISA_AVX512, GK_F32, GK_BF16, 16, f32_avx512, gk_weigh_f32bf16_avx512)
GK_SOFT(GK_ISA_AVX512, GK_F64, GK_F64, 8, f64_avx512, gk_weigh_f64_avx512)
GK_SOFT(GK_ISA_AVX2, GK_F32, GK_F32, 8, f32_avx2, gk_weigh_f32_avx2)
GK_SOFT(GK_ISA_AVX2, GK_F64, GK_F64, 4, f64_avx2, gk_weigh_f64_avx2)
GK_SOFT(GK_ISA_AVX, GK_F32, GK_F32, 8, f32_avx, gk_weigh_f32_avx)
GK_SOFT(GK_ISA_AVX, GK_F64, GK_F64, 4, f64_avx, gk_weigh_f64_avx)
GK_SOFT(GK_ISA_SSE2, GK_F32, GK_F32, 4, f32_sse2, gk_weigh_f32_sse2)
GK_SOFT(GK_ISA_SSE2, GK_F64, GK_F64, 2, f64_sse2, gk_weigh_f64_sse2)
#endif
GK_SOFT(GK_ISA_SCALAR, GK_F32, GK_F32, 1, f32_scalar, gk_weigh_f32_scalar)
GK_SOFT(GK_ISA_SCALAR, GK_F64, GK_F64, 1, f64_scalar, gk_weigh_f64_scalar)

/* Plain C, on every machine: the reference that the other rows are read against, and never missing. */
GK_UKR(GK_GEMM, GK_ISA_SCALAR, GK_F32, GK_F32, GK_F32, 4, 4, 1, 1, 0, gk_gemm_f32f32_ukr_4x4_scalar)
GK_UKR(GK_GEMM, GK_ISA_SCALAR, GK_F64, GK_F64, GK_F64, 4, 4, 1, 1, 0, gk_gemm_f64f64_ukr_4x4_scalar)
GK_UKR(GK_DOT, GK_ISA_SCALAR, GK_F32, GK_F32, GK_F32, 2, 2, 1, 1, 0, gk_dot_f32f32_ukr_2x2_scalar)
GK_UKR(GK_DOT, GK_ISA_SCALAR, GK_F64, GK_F64, GK_F64, 2, 2, 1, 1, 0, gk_dot_f64f64_ukr_2x2_scalar)
GK_UKR(GK_STREAM, GK_ISA_SCALAR, GK_F32, GK_F32, GK_F32, 4, 1, 1, 1, 0, gk_stream_f32f32_ukr_4x1_scalar)
GK_UKR(GK_STREAM, GK_ISA_SCALAR, GK_F64, GK_F64, GK_F64, 4, 1, 1, 1, 0, gk_stream_f64f64_ukr_4x1_scalar)
GK_PACK(GK_ISA_SCALAR, GK_F32, GK_F32, f32f32_scalar)
GK_EPI(GK_ISA_SCALAR, GK_F32, GK_F32, gk_epilogue_f32f32_scalar)
GK_PEAK(GK_ISA_SCALAR, GK_F32, gk_peak_f32_scalar)
GK_PACK(GK_ISA_SCALAR, GK_F64, GK_F64, f64f64_scalar)
GK_EPI(GK_ISA_SCALAR, GK_F64, GK_F64, gk_epilogue_f64f64_scalar)
GK_PEAK(GK_ISA_SCALAR, GK_F64, gk_peak_f64_scalar)
GK_NARROW_ALL(GK_ISA_SCALAR, scalar, 4, 4, 1, 4x4, 2, 2, 2x2, 4x1)
GK_BYTES(GK_ISA_SCALAR, scalar, 0, 4, 4, 1, 4, 4x4, 2, 2, 2x2, 8x4)
GK_QUADS(GK_ISA_SCALAR, scalar)
GK_PANELS_ONLY(GK_ISA_SCALAR, GK_U8, GK_NIBBLES, u8nibbles_scalar)
GK_PANELS_ONLY(GK_ISA_SCALAR, GK_I8, GK_NIBBLES, i8nibbles_scalar)
GK_PANELS_ONLY(GK_ISA_SCALAR, GK_U4, GK_NIBBLES, u4nibbles_scalar)
GK_PANELS_ONLY(GK_ISA_SCALAR, GK_I4, GK_NIBBLES, i4nibbles_scalar)
GK_QUANTIZED(GK_ISA_SCALAR, scalar)
GK_WHOLE(GK_ISA_SCALAR, scalar, GK_I16, i16, 4, 4, 1, 4x4, 2, 2, 2x2, 4x1)
GK_WHOLE(GK_ISA_SCALAR, scalar, GK_I32, i32, 4, 4, 1, 4x4, 2, 2, 2x2, 4x1)
GK_WHOLE(GK_ISA_SCALAR, scalar, GK_I64, i64, 4, 4, 1, 4x4, 2, 2, 2x2, 4x1)
GK_PACK(GK_ISA_SCALAR, GK_I16, GK_I16, i16i16_scalar)
GK_PACK(GK_ISA_SCALAR, GK_I32, GK_I32, i32i32_scalar)
GK_PACK(GK_ISA_SCALAR, GK_I64, GK_I64, i64i64_scalar)
#undef GK_WHOLE
#undef GK_BYTES
#undef GK_QUADS
#undef GK_QUANTIZED
#undef GK_NARROW
#undef GK_NARROW_ALL
#undef GK_FLOAT8
