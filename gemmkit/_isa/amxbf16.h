/* AMX tiles: 8 registers of 16 rows x 64 bytes.  tdpbf16ps adds the product of 16 x 32 and 32 x 16 bfloat16 numbers to
 * 16 x 16 float32 sums, 8192 multiply-adds in 16 cycles: sixteen times what two FMA ports do.
 *
 *   tmm0..3   C, 32 x 32        per 32 steps of k: 4 tdpbf16ps, 64 cycles, for 4 loads of 1 KiB, about 32 cycles from L1
 *   tmm4, 5   A, two of 16 rows, from a micro-panel of lines, which is what a tile load wants
 *   tmm6, 7   B, two of 16 columns: pairs along k, exactly a BF16 panel
 *
 * Every tile has the size of its part of C, so nothing past an edge is read or written; only the last steps of k, if
 * fewer than 16 pairs, are copied and filled up with zeros.  Sums start at zero and `add` is added after, by vector
 * instructions, because tdpbf16ps flushes subnormal numbers like vdpbf16ps.  SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AMXBF16_H
#define GK_AMXBF16_H

GK_TARGET_BEGIN(GK_T_AVX512)

/* The stand-in for tiles that would be flushed: the 8-row kernel of the same panels, four times. */
#include "vocabulary_avx512.inc.h"
#undef V_BROADCAST
#define V_BROADCAST(p) _mm512_castsi512_ps(_mm512_set1_epi32(gk_load_pair(p)))
#undef V_FMA
#define V_FMA(a, b, c) GK_FMA_OF_PAIRS(a, b, c)
#define GK_UKR_NAME gk_gemm_bf16bf16_ukr_32x32_part_avx512
#define GK_MR 8
#define GK_NV 2
#include "tmpl_gemm.inc.h"
#include "tmpl_undef.inc.h"

static void gk_gemm_bf16bf16_ukr_32x32_avx512(const gk_ukr_args *g)
{
    gk_ukr_args part = *g;
    for (ptrdiff_t i = 0; i < g->m; i += 8) {
        part.m = g->m - i < 8 ? g->m - i : 8;
        part.a = g->a + i * g->rs_a;
        part.c = g->c + i * g->rs_c;
        if (g->add)
            part.add = g->add + i * g->rs_add;
        gk_gemm_bf16bf16_ukr_32x32_part_avx512(&part);
    }
}

GK_TARGET_END

GK_TARGET_BEGIN(GK_T_AMXBF16)

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* a row */
    uint8_t rows[16];
} gk_tile_config;

/* Loading a configuration takes some 200 cycles, and asking which one is loaded few less: so a thread remembers the tile
 * size it is for, until the engine says that it is done.  Nothing else runs in the thread meanwhile. */
static __thread int gk_configured_amxbf16 __attribute__((tls_model("initial-exec")));

static void gk_configure_amxbf16(ptrdiff_t m, ptrdiff_t n)
{
    gk_tile_config config = {.palette = 1};
    for (int i = 0; i < 2; i++) {
        const ptrdiff_t rows = m - 16 * i < 0 ? 0 : m - 16 * i < 16 ? m - 16 * i : 16;
        const ptrdiff_t columns = n - 16 * i < 0 ? 0 : n - 16 * i < 16 ? n - 16 * i : 16;
        config.rows[2 * i] = config.rows[2 * i + 1] = config.rows[4 + i] = (uint8_t)rows;
        config.bytes[i] = config.bytes[2 + i] = config.bytes[6 + i] = (uint16_t)(4 * columns);
        config.bytes[4 + i] = 64;
        config.rows[6 + i] = 16;
    }
    for (int t = 0; t < 8; t++) { /* a tile of nothing is one without rows and without columns */
        if (!config.rows[t] || !config.bytes[t])
            config.rows[t] = 0, config.bytes[t] = 0;
    }
    /* The compiler's own intrinsic names only the first bytes of the configuration as what it reads. */
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
    gk_configured_amxbf16 = (int)(m << 8 | n);
}

static void gk_release_amxbf16(void)
{
    gk_configured_amxbf16 = 0;
    _tile_release();
}

/* 16 steps of pairs from lines that are not 64 bytes of neighbours: copied, `pairs` of them, zeros behind. */
GK_INLINE void gk_gather_pairs_amxbf16(const char *a, ptrdiff_t rs_a, ptrdiff_t cs_a, ptrdiff_t m, int pairs, uint32_t dst[32][16])
{
    const __mmask16 mask = (__mmask16)(0xffffu >> (16 - pairs));
    for (ptrdiff_t i = 0; i < m; i++) {
        if (cs_a == 4) {
            _mm512_store_si512(dst[i], _mm512_maskz_loadu_epi32(mask, a + i * rs_a));
            continue;
        }
        for (int p = 0; p < 16; p++)
            dst[i][p] = p < pairs ? (uint32_t)gk_load_pair(a + i * rs_a + p * cs_a) : 0;
    }
}

#ifndef GK_AHEAD
#define GK_AHEAD 32
#endif
/* One step: `mt` x `nt` tiles of C. */
#define GK_TILE_STEP(mt, nt, a, rs_a, b, rs_b)                                                                    \
    do {                                                                                                          \
        _tile_loadd(6, b, rs_b);                                                                                  \
        _tile_loadd(4, a, rs_a);                                                                                  \
        _tile_dpbf16ps(0, 4, 6);                                                                                  \
        if (nt == 2) {                                                                                            \
            _tile_loadd(7, (b) + 64, rs_b);                                                                       \
            _tile_dpbf16ps(1, 4, 7);                                                                              \
        }                                                                                                         \
        if (mt == 2) {                                                                                            \
            _tile_loadd(5, (a) + 16 * (rs_a), rs_a);                                                              \
            _tile_dpbf16ps(2, 5, 6);                                                                              \
            if (nt == 2)                                                                                          \
                _tile_dpbf16ps(3, 5, 7);                                                                          \
        }                                                                                                         \
    } while (0)

GK_INLINE void gk_tiles_amxbf16(const int mt, const int nt, const gk_ukr_args *g)
{
    const ptrdiff_t m = g->m, n = g->n, rs_a = g->rs_a, cs_a = g->cs_a, rs_b = g->rs_b;
    const char *a = g->a, *b = g->b;
    ptrdiff_t k = g->k;
    if (gk_configured_amxbf16 != (int)(m << 8 | n))
        gk_configure_amxbf16(m, n);
    _tile_zero(0);
    if (nt == 2)
        _tile_zero(1);
    if (mt == 2) {
        _tile_zero(2);
        if (nt == 2)
            _tile_zero(3);
    }
    if (cs_a == 4) {
        for (; k >= 16; k -= 16, a += 64, b += 16 * rs_b) {
            /* B comes from L2; the prefetchers don't follow tile loads closely. */
            GK_UNROLL
            for (int p = 0; p < 16; p++) {
                __builtin_prefetch(b + (GK_AHEAD + p) * rs_b);
                if (nt == 2)
                    __builtin_prefetch(b + (GK_AHEAD + p) * rs_b + 64);
            }
            GK_TILE_STEP(mt, nt, a, rs_a, b, rs_b);
        }
    }
    if (k > 0) {
        uint32_t lines[32][16] __attribute__((aligned(64))), panel[16][32] __attribute__((aligned(64)));
        for (; k > 0; k -= 16, a += 16 * cs_a, b += 16 * rs_b) {
            const int pairs = k < 16 ? (int)k : 16;
            gk_gather_pairs_amxbf16(a, rs_a, cs_a, m, pairs, lines);
            const __mmask16 first = (__mmask16)(0xffffu >> (n < 16 ? 16 - n : 0));
            const __mmask16 second = (__mmask16)(n > 16 ? 0xffffu >> (32 - n) : 0);
            for (int p = 0; p < 16; p++) {
                const char *row = p < pairs ? b + p * rs_b : b;
                _mm512_store_si512(panel[p], _mm512_maskz_loadu_epi32(p < pairs ? first : 0, row));
                _mm512_store_si512(panel[p] + 16, _mm512_maskz_loadu_epi32(p < pairs ? second : 0, row + 64));
            }
            GK_TILE_STEP(mt, nt, (const char *)lines, 64, (const char *)panel, 128);
        }
    }
    float sums[32][32] __attribute__((aligned(64)));
    char *c = g->c;
    ptrdiff_t rs_c = g->rs_c;
    if (g->add) {
        c = (char *)sums;
        rs_c = sizeof sums[0];
    }
    _tile_stored(0, c, rs_c);
    if (nt == 2)
        _tile_stored(1, c + 64, rs_c);
    if (mt == 2) {
        _tile_stored(2, c + 16 * rs_c, rs_c);
        if (nt == 2)
            _tile_stored(3, c + 16 * rs_c + 64, rs_c);
    }
    if (g->add) {
        for (ptrdiff_t i = 0; i < m; i++) {
            for (ptrdiff_t j = 0; j < n; j += 16) {
                const __mmask16 mask = (__mmask16)(n - j < 16 ? 0xffffu >> (16 - (n - j)) : 0xffffu);
                const __m512 add = _mm512_maskz_loadu_ps(mask, g->add + i * g->rs_add + 4 * j);
                _mm512_mask_storeu_ps(g->c + i * g->rs_c + 4 * j, mask, _mm512_add_ps(_mm512_load_ps(&sums[i][j]), add));
            }
        }
    }
}

GK_KERNEL void gk_gemm_bf16bf16_ukr_32x32_amxbf16_m1_n1(const gk_ukr_args *g) { gk_tiles_amxbf16(1, 1, g); }
GK_KERNEL void gk_gemm_bf16bf16_ukr_32x32_amxbf16_m1_n2(const gk_ukr_args *g) { gk_tiles_amxbf16(1, 2, g); }
GK_KERNEL void gk_gemm_bf16bf16_ukr_32x32_amxbf16_m2_n1(const gk_ukr_args *g) { gk_tiles_amxbf16(2, 1, g); }
GK_KERNEL void gk_gemm_bf16bf16_ukr_32x32_amxbf16_m2_n2(const gk_ukr_args *g) { gk_tiles_amxbf16(2, 2, g); }

static void gk_gemm_bf16bf16_ukr_32x32_amxbf16(const gk_ukr_args *g)
{
    static const gk_ukr_fn edges[2][2] = {
        {gk_gemm_bf16bf16_ukr_32x32_amxbf16_m1_n1, gk_gemm_bf16bf16_ukr_32x32_amxbf16_m1_n2},
        {gk_gemm_bf16bf16_ukr_32x32_amxbf16_m2_n1, gk_gemm_bf16bf16_ukr_32x32_amxbf16_m2_n2},
    };
    edges[g->m > 16][g->n > 16](g);
}

static double gk_peak_bf16_amxbf16(long turns)
{
    gk_configure_amxbf16(32, 32);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(6);
    /* A hundredth of the turns: each is a thousand times the work of a vector instruction. */
    turns /= 100;
    for (long t = 0; t < turns; t++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 6);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 6);
    }
    gk_release_amxbf16();
    return 4.0 * 2 * 16 * 16 * 32 * (double)turns;
}

GK_TARGET_END
#endif
