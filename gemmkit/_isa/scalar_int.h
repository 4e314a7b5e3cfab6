/* Integers in plain C.  Unsigned arithmetic, which wraps; 16 bits by way of 32, since a product of promoted 16-bit numbers
 * can overflow an int.  SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_SCALAR_INT_H
#define GK_SCALAR_INT_H

#define W_SET scalar
GK_INLINE void gk_store_u16(char *p, uint16_t x) { memcpy(p, &x, sizeof x); }
GK_INLINE void gk_store_u32(char *p, uint32_t x) { memcpy(p, &x, sizeof x); }
GK_INLINE void gk_store_u64(char *p, uint64_t x) { memcpy(p, &x, sizeof x); }

#define V_LEN 1
#define V_MASK int
#define V_TAIL_MASK(n) (n)
#define V_ZERO() 0
#define V_LOAD_TAIL(p, mask) V_LOAD(p)
#define V_STORE_TAIL(p, mask, v) V_STORE(p, v)
#define V_BROADCAST(p) V_LOAD(p)
#define V_SUM(v) (v)
#define V_SQUARE 1
#define V_TRANSPOSE(src, s_w, dst, s_dst) V_STORE(dst, V_LOAD(src))
#define W_MR 4
#define W_NV 4
#define W_DOT_MR 2
#define W_DOT_NR 2
#define W_DOT_ACC 8
#define W_DOT_TILE 2x2
#define W_SCALARS 8

#define V_ELEM uint16_t
#define V_TYPE uint16_t
#define V_LOAD(p) (*(const uint16_t_at *)(p))
#define V_STORE(p, v) gk_store_u16(p, v)
#define V_FMA(a, b, c) ((uint16_t)((uint32_t)(a) * (b) + (c)))
#define V_ADD(a, b) ((uint16_t)((a) + (b)))
#define V_MUL(a, b) ((uint16_t)((uint32_t)(a) * (b)))
#define GK_PACK_OF i16i16_scalar
#include "tmpl_pack.inc.h"
#define W_TYPE i16
#define W_TILE 4x4
#define W_STREAM_TILE 4x1
#include "tmpl_whole.inc.h"
#undef V_ELEM
#undef V_TYPE
#undef V_LOAD
#undef V_STORE
#undef V_FMA
#undef V_ADD
#undef V_MUL

#define V_FMA(a, b, c) ((a) * (b) + (c))
#define V_ADD(a, b) ((a) + (b))
#define V_MUL(a, b) ((a) * (b))
#define V_ELEM uint32_t
#define V_TYPE uint32_t
#define V_LOAD(p) (*(const uint32_t_at *)(p))
#define V_STORE(p, v) gk_store_u32(p, v)
#define GK_PACK_OF i32i32_scalar
#include "tmpl_pack.inc.h"
#define W_TYPE i32
#define W_TILE 4x4
#define W_STREAM_TILE 4x1
#include "tmpl_whole.inc.h"
#undef V_ELEM
#undef V_TYPE
#undef V_LOAD
#undef V_STORE

#define V_ELEM uint64_t
#define V_TYPE uint64_t
#define V_LOAD(p) (*(const uint64_t_at *)(p))
#define V_STORE(p, v) gk_store_u64(p, v)
#define GK_PACK_OF i64i64_scalar
#include "tmpl_pack.inc.h"
#define W_TYPE i64
#define W_TILE 4x4
#define W_STREAM_TILE 4x1
#include "tmpl_whole.inc.h"
#undef W_SET
#undef W_MR
#undef W_NV
#undef W_DOT_MR
#undef W_DOT_NR
#undef W_DOT_ACC
#undef W_DOT_TILE
#undef W_SCALARS
#include "tmpl_undef.inc.h"

#endif
