/* AMX tiles of bytes: tdpbusd adds the product of 16 x 64 unsigned and 64 x 16 signed bytes to 16 x 16 32-bit sums, 16384
 * multiply-adds in 16 cycles: eight times what two ports of vpdpbusd do.  A and B lie as amxbf16.h says, with quads for pairs;
 * sums wrap, and nothing is flushed or rounded.  SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AMXINT8_H
#define GK_AMXINT8_H

GK_TARGET_BEGIN(GK_T_AMXINT8)

#define GK_UKR_NAME gk_gemm_u8i8_ukr_32x32_amxint8
#define GK_PEAK_NAME gk_peak_u8_amxint8
#define T_PRODUCT _tile_dpbusd
#define T_ADD(x, y) _mm512_add_epi32(x, y)
#define T_OPS (2 * 16 * 16 * 64)
#include "tmpl_amx.inc.h"

GK_TARGET_END
#endif
