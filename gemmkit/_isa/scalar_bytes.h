/* Products of bytes in plain C: a vector is one 32-bit element, four columns' bytes or four steps of k.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_SCALAR_BYTES_H
#define GK_SCALAR_BYTES_H

/* ---- packers */
static void gk_fetch_bytes_scalar(const char *src, ptrdiff_t step, ptrdiff_t n, int turn, uint8_t *dst)
{
    gk_fetch_bytes(src, step, n, turn, dst);
}

static void gk_fetch_nibbles_scalar(const char *src, ptrdiff_t step, ptrdiff_t n, int to, int turn, uint8_t *dst)
{
    gk_fetch_nibbles(src, step, n, to, turn, dst);
}

static uint32_t gk_sum_bytes_scalar(const uint8_t *line, ptrdiff_t n, int is_signed)
{
    uint32_t sum = 0;
    for (ptrdiff_t p = 0; p < n; p++)
        sum += is_signed ? (uint32_t)(int32_t)(int8_t)line[p] : line[p];
    return sum;
}

static void gk_interleave_scalar(const uint8_t *rows, ptrdiff_t step, int turn, ptrdiff_t quads, ptrdiff_t R, ptrdiff_t columns,
                                 char *dst, int32_t *sums, ptrdiff_t w, int is_signed)
{
    for (ptrdiff_t q = 0; q < quads; q++) {
        for (ptrdiff_t i = 0; i < columns; i++) {
            uint8_t quad[4];
            for (int u = 0; u < 4; u++)
                quad[u] = (uint8_t)(rows[(4 * q + u) * step + i] ^ turn);
            memcpy(dst + 4 * (q * R + i), quad, 4);
            if (sums && i < w)
                sums[i] = (int32_t)((uint32_t)sums[i] + gk_sum_bytes_scalar(quad, 4, is_signed));
        }
    }
}

static void gk_spread_scalar(const char *quads, ptrdiff_t w, ptrdiff_t n, char *dst, ptrdiff_t rs_dst)
{
    for (ptrdiff_t i = 0; i < w; i++) {
        for (ptrdiff_t q = 0; q < n; q++)
            memcpy(dst + i * rs_dst + 4 * q, quads + 4 * (q * GK_MOST_R + i), 4);
    }
}

#define P_SET scalar
#define P_PLAIN_PANELS gk_panels_i32i32_scalar
#include "tmpl_quads_all.inc.h"

/* Nibble panels are made once, for a constant: plain C for all sets. */
GK_INLINE void gk_panels_nibbles(const char *src, ptrdiff_t s_w, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R, char *dst,
                                 int32_t *sums, const int from_nibbles, const int turn)
{
    for (ptrdiff_t w0 = 0; w0 < w; w0 += R) {
        const ptrdiff_t full = w - w0 < R ? w - w0 : R;
        for (ptrdiff_t p0 = 0; p0 < k; p0 += 8) {
            const ptrdiff_t some = k - p0 < 8 ? k - p0 : 8;
            for (ptrdiff_t i = 0; i < R; i++, dst += 4) {
                const char *at = (const char *)((uintptr_t)src + (uintptr_t)((w0 + i) * s_w + p0 * s_k));
                uint8_t x[8] = {0};
                for (ptrdiff_t p = 0; i < full && p < some; p++) {
                    const char *here = (const char *)((uintptr_t)at + (uintptr_t)(p * s_k));
                    x[p] = (uint8_t)(((from_nibbles ? gk_nibble_at(here) : *here) ^ turn) & 15);
                }
                for (int u = 0; u < 4; u++)
                    dst[u] = (char)(x[u] | x[4 + u] << 4);
                if (sums && i < full)
                    sums[w0 + i] = (int32_t)((uint32_t)sums[w0 + i] + gk_sum_bytes_scalar(x, 8, 0));
            }
        }
    }
}

#define GK_NIBBLE_PACKER(of, from_nibbles, turn)                                                                  \
    static void gk_panels_##of(const char *src, ptrdiff_t s_w, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R, \
                               char *dst, int32_t *sums)                                                          \
    {                                                                                                             \
        gk_panels_nibbles(src, s_w, s_k, w, k, R, dst, sums, from_nibbles, turn);                                 \
    }
GK_NIBBLE_PACKER(u8nibbles_scalar, 0, 0)
GK_NIBBLE_PACKER(i8nibbles_scalar, 0, 8)
GK_NIBBLE_PACKER(u4nibbles_scalar, 1, 0)
GK_NIBBLE_PACKER(i4nibbles_scalar, 1, 8)
#undef GK_NIBBLE_PACKER

/* ---- kernels */
GK_INLINE uint32_t gk_dp_scalar(uint32_t c, uint32_t a, uint32_t b)
{
    for (int u = 0; u < 32; u += 8)
        c += (uint32_t)((int32_t)(a >> u & 255) * (int8_t)(b >> u & 255));
    return c;
}

GK_INLINE uint32_t gk_low8_scalar(uint32_t x, uint32_t y)
{
    return (x & 0xff) | (y & 0xff) << 8 | (x & 0xff00) << 8 | (y & 0xff00) << 16;
}

GK_INLINE uint32_t gk_load_part_scalar(const char *p, int n)
{
    uint32_t x = 0;
    memcpy(&x, p, (size_t)n);
    return x;
}

GK_INLINE uint32_t gk_rounded_scalar(uint32_t x, double row, const double *col, double least, double most)
{
    const double shift = 6755399441055744.0; /* 1.5 x 2^52, whose unit is 1 */
    double v = (double)(int32_t)x * (col ? row * *col : row);
    v = v < most ? v : most; /* in this order a NaN gives `most`, as in vectors */
    v = v > least ? v : least;
    return (uint32_t)(int32_t)((v + shift) - shift);
}

GK_INLINE uint32_t gk_rounded_single_scalar(uint32_t x, float row, const float *col, float least, float most)
{
    const float shift = 12582912.0f; /* 1.5 x 2^23 */
    float v = (float)(int32_t)x * (col ? row * *col : row);
    v = v < most ? v : most;
    v = v > least ? v : least;
    return (uint32_t)(int32_t)((v + shift) - shift);
}

#define W_ELEM uint32_t
#define V_ELEM uint32_t
#define V_TYPE uint32_t
#define V_LEN 1
#define V_MASK int
#define V_TAIL_MASK(n) (n)
#define V_ZERO() 0
#define V_LOAD(p) (*(const uint32_t_at *)(p))
#define V_STORE(p, v) gk_store_u32(p, v)
#define V_LOAD_TAIL(p, mask) V_LOAD(p)
#define V_STORE_TAIL(p, mask, v) V_STORE(p, v)
#define V_BROADCAST(p) V_LOAD(p)
#define V_ADD(a, b) ((a) + (b))
#define V_MUL(a, b) ((a) * (b))
#define V_SUM(v) (v)
#define V_DP(c, a, b) gk_dp_scalar(c, a, b)
#define Q_LOAD(p) V_LOAD(p)
#define Q_LOAD_TAIL(p, n) gk_load_part_scalar(p, (int)(n))
#define Q_ALL(byte) ((byte)*0x01010101u)
#define Q_LOW8(x, y) gk_low8_scalar(x, y)
#define Q_HIGH8(x, y) gk_low8_scalar((x) >> 16, (y) >> 16)
#define Q_LOW16(x, y) (((x) & 0xffff) | (y) << 16)
#define Q_HIGH16(x, y) ((x) >> 16 | ((y) & 0xffff0000u))
#define Q_ORDER(x) (x)
#define B_SET scalar
#define B_MR 4
#define B_NV 4
#define B_TILE 4x4
#define B_DOT_MR 2
#define B_DOT_NR 2
#define B_DOT_ACC 8
#define B_DOT_TILE 2x2
#define B_STREAM_TILE 8x4
#include "tmpl_bytes.inc.h"
#define E_SET scalar
#define E_TO_BYTES(p, n, x) (*(p) = (char)(x))
#define E_IS(x) ((uint32_t)((x) != 0))
#define E_ROUNDED(x, row, col, n, least, most) gk_rounded_scalar(x, row, col, least, most)
#define E_ROUNDED_SINGLE(x, row, col, n, least, most) gk_rounded_single_scalar(x, row, col, least, most)
#define E_FITS(x) ((x) + (1u << 24) <= 2u << 24)
#define E_WHERE_FITS(x, y, z) (E_FITS(x) ? (y) : (z))
#include "tmpl_quantized.inc.h"
#undef W_ELEM
#include "tmpl_undef.inc.h"

#endif
