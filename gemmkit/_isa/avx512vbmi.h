/* AVX512-VBMI: a table of 128 bytes in two registers, looked up by 64 bytes at once.  That decodes float8.
 *
 *   for 64 codes           Sapphire Rapids
 *   vpermb                 1, port 5
 *   2 vpermi2b             2 x (1 + 2 of port 5)
 *   signs                  1
 *   2 vpunpck              2, port 5
 *   2 shifts, 2 ands       4
 *
 * which with four FMAs makes 18 operations of two vector ports for 64 multiply-adds, where the way through float16 takes
 * 12 for 16.  SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AVX512VBMI_H
#define GK_AVX512VBMI_H

/* The bfloat16 value of a float8 code without sign, as a constant expression. */
#define gk_code_to_bf16(...) gk_code_to_bf16_(__VA_ARGS__)
#define gk_code_to_bf16_(c, fraction, bias, most, above, nan, minus_zero)                                              \
    ((c) > (most) ? ((c) == (above) && (above) != (nan) ? 0x7f80 : 0x7fc0)                                             \
     : (c) >> (fraction) ? ((c) << (7 - (fraction))) + ((127 - (bias)) << 7)                                           \
     : (c) == 0 ? 0 : gk_subnormal_to_bf16(c, (c) >= 4 ? 2 : (c) >= 2 ? 1 : 0, fraction, bias))
/* c units of 2^(1 - bias - fraction), the highest bit being `top`. */
#define gk_subnormal_to_bf16(c, top, fraction, bias)                                                                   \
    (((127 + 1 - (bias) - (fraction) + (top)) << 7) | (((c) << (7 - (top))) & 0x7f))
#define GK_4(F, c) F(c), F((c) + 1), F((c) + 2), F((c) + 3)
#define GK_16(F, c) GK_4(F, c), GK_4(F, (c) + 4), GK_4(F, (c) + 8), GK_4(F, (c) + 12)
#define GK_64(F, c) GK_16(F, c), GK_16(F, (c) + 16), GK_16(F, (c) + 32), GK_16(F, (c) + 48)
#define GK_128(F) GK_64(F, 0), GK_64(F, 64)

/* Which code goes to each byte so that four vectors of float32, or two of words, come out in order. */
static const uint8_t gk_order_f32[64] = {
    0, 16, 1, 17, 2, 18, 3, 19, 32, 48, 33, 49, 34, 50, 35, 51,
    4, 20, 5, 21, 6, 22, 7, 23, 36, 52, 37, 53, 38, 54, 39, 55,
    8, 24, 9, 25, 10, 26, 11, 27, 40, 56, 41, 57, 42, 58, 43, 59,
    12, 28, 13, 29, 14, 30, 15, 31, 44, 60, 45, 61, 46, 62, 47, 63,
};
static const uint8_t gk_order_bf16[64] = {
    0, 1, 2, 3, 4, 5, 6, 7, 32, 33, 34, 35, 36, 37, 38, 39,
    8, 9, 10, 11, 12, 13, 14, 15, 40, 41, 42, 43, 44, 45, 46, 47,
    16, 17, 18, 19, 20, 21, 22, 23, 48, 49, 50, 51, 52, 53, 54, 55,
    24, 25, 26, 27, 28, 29, 30, 31, 56, 57, 58, 59, 60, 61, 62, 63,
};

GK_TARGET_BEGIN(GK_T_AVX512VBMI)

#define N_TYPE e4m3fn
#define N_FORMAT GK_FORMAT_e4m3fn
#define N_HAS_MINUS_ZERO 1
#include "tmpl_float8.inc.h"
#define N_TYPE e4m3fnuz
#define N_FORMAT GK_FORMAT_e4m3fnuz
#define N_HAS_MINUS_ZERO 0
#include "tmpl_float8.inc.h"
#define N_TYPE e5m2
#define N_FORMAT GK_FORMAT_e5m2
#define N_HAS_MINUS_ZERO 1
#include "tmpl_float8.inc.h"
#define N_TYPE e5m2fnuz
#define N_FORMAT GK_FORMAT_e5m2fnuz
#define N_HAS_MINUS_ZERO 0
#include "tmpl_float8.inc.h"

GK_TARGET_END
#endif
