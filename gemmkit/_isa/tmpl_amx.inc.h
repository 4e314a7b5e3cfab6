/* Body of an AMX micro-kernel: 2 x 2 tiles of 16 x 16 sums stay in tmm0..3 while k runs.
 *
 * Needs GK_UKR_NAME, GK_PEAK_NAME, T_PRODUCT(sums, a, b), a tile instruction, T_ADD(x, y) of vectors of sums as integers, and
 * T_OPS, what a product counts; undefines them.  16 words of 32 bits along k, pairs or quads, are a step. */
#define GK_TILES GK_CAT(GK_UKR_NAME, _tiles)
#define GK_EDGE(m, n) GK_CAT(GK_UKR_NAME, _m##m##_n##n)

/* One step: `mt` x `nt` tiles of C. */
#define GK_TILE_STEP(mt, nt, a, rs_a, b, rs_b)                                                                    \
    do {                                                                                                          \
        _tile_loadd(6, b, rs_b);                                                                                  \
        _tile_loadd(4, a, rs_a);                                                                                  \
        T_PRODUCT(0, 4, 6);                                                                                  \
        if (nt == 2) {                                                                                            \
            _tile_loadd(7, (b) + 64, rs_b);                                                                       \
            T_PRODUCT(1, 4, 7);                                                                              \
        }                                                                                                         \
        if (mt == 2) {                                                                                            \
            _tile_loadd(5, (a) + 16 * (rs_a), rs_a);                                                              \
            T_PRODUCT(2, 5, 6);                                                                              \
            if (nt == 2)                                                                                          \
                T_PRODUCT(3, 5, 7);                                                                          \
        }                                                                                                         \
    } while (0)

GK_INLINE void GK_TILES(const int mt, const int nt, const gk_ukr_args *g)
{
    const ptrdiff_t m = g->m, n = g->n, rs_a = g->rs_a, cs_a = g->cs_a, rs_b = g->rs_b;
    const char *a = g->a, *b = g->b;
    ptrdiff_t k = g->k;
    if (gk_configured_amx != (int)(m << 8 | n))
        gk_configure_amx(m, n);
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
            const int words = k < 16 ? (int)k : 16;
            gk_gather_amx(a, rs_a, cs_a, m, words, lines);
            const __mmask16 first = (__mmask16)(0xffffu >> (n < 16 ? 16 - n : 0));
            const __mmask16 second = (__mmask16)(n > 16 ? 0xffffu >> (32 - n) : 0);
            for (int p = 0; p < 16; p++) {
                const char *row = p < words ? b + p * rs_b : b;
                _mm512_store_si512(panel[p], _mm512_maskz_loadu_epi32(p < words ? first : 0, row));
                _mm512_store_si512(panel[p] + 16, _mm512_maskz_loadu_epi32(p < words ? second : 0, row + 64));
            }
            GK_TILE_STEP(mt, nt, (const char *)lines, 64, (const char *)panel, 128);
        }
    }
    int32_t sums[32][32] __attribute__((aligned(64))); /* float32 sums too */
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
                const __m512i add = _mm512_maskz_loadu_epi32(mask, g->add + i * g->rs_add + 4 * j);
                _mm512_mask_storeu_epi32(g->c + i * g->rs_c + 4 * j, mask, T_ADD(_mm512_load_si512(&sums[i][j]), add));
            }
        }
    }
}

GK_KERNEL void GK_EDGE(1, 1)(const gk_ukr_args *g) { GK_TILES(1, 1, g); }
GK_KERNEL void GK_EDGE(1, 2)(const gk_ukr_args *g) { GK_TILES(1, 2, g); }
GK_KERNEL void GK_EDGE(2, 1)(const gk_ukr_args *g) { GK_TILES(2, 1, g); }
GK_KERNEL void GK_EDGE(2, 2)(const gk_ukr_args *g) { GK_TILES(2, 2, g); }

static void GK_UKR_NAME(const gk_ukr_args *g)
{
    static const gk_ukr_fn edges[2][2] = {
        {GK_EDGE(1, 1), GK_EDGE(1, 2)},
        {GK_EDGE(2, 1), GK_EDGE(2, 2)},
    };
    edges[g->m > 16][g->n > 16](g);
}

static double GK_PEAK_NAME(long turns)
{
    gk_configure_amx(32, 32);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(6);
    /* A hundredth of the turns: each is a thousand times the work of a vector instruction. */
    turns /= 100;
    for (long t = 0; t < turns; t++) {
        T_PRODUCT(0, 4, 6);
        T_PRODUCT(1, 4, 6);
        T_PRODUCT(2, 4, 6);
        T_PRODUCT(3, 4, 6);
    }
    gk_release_amx();
    return 4.0 * T_OPS * (double)turns;
}

#undef GK_TILE_STEP
#undef GK_TILES
#undef GK_EDGE
#undef GK_UKR_NAME
#undef GK_PEAK_NAME
#undef T_PRODUCT
#undef T_ADD
#undef T_OPS
