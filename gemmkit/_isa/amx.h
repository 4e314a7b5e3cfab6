/* AMX tiles, for any product of theirs: the configuration that a thread holds, and steps that don't fill a tile.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_AMX_H
#define GK_AMX_H

GK_TARGET_BEGIN(GK_T_AMX)

GK_INLINE int32_t gk_load_word_amx(const char *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* a row */
    uint8_t rows[16];
} gk_tile_config;

/* Loading a configuration takes some 200 cycles, and asking which one is loaded few less: so a thread remembers the tile
 * size it is for, until the engine says that it is done.  Nothing else runs in the thread meanwhile. */
static __thread int gk_configured_amx __attribute__((tls_model("initial-exec")));

static void gk_configure_amx(ptrdiff_t m, ptrdiff_t n)
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
    gk_configured_amx = (int)(m << 8 | n);
}

static void gk_release_amx(void)
{
    gk_configured_amx = 0;
    _tile_release();
}

/* 16 words along k from lines that are not 64 bytes of neighbours: copied, `words` of them, zeros behind. */
GK_INLINE void gk_gather_amx(const char *a, ptrdiff_t rs_a, ptrdiff_t cs_a, ptrdiff_t m, int words, uint32_t dst[32][16])
{
    const __mmask16 mask = (__mmask16)(0xffffu >> (16 - words));
    for (ptrdiff_t i = 0; i < m; i++) {
        if (cs_a == 4) {
            _mm512_store_si512(dst[i], _mm512_maskz_loadu_epi32(mask, a + i * rs_a));
            continue;
        }
        for (int p = 0; p < 16; p++)
            dst[i][p] = p < words ? (uint32_t)gk_load_word_amx(a + i * rs_a + p * cs_a) : 0;
    }
}

#ifndef GK_AHEAD
#define GK_AHEAD 32
#endif

GK_TARGET_END
#endif
