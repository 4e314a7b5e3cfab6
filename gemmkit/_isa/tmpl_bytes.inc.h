/* Everything that an instruction set has for products of bytes, four at a time: kernels and, in tmpl_quantized.inc.h, epilogues.
 *
 * Needs the V_* vocabulary of 32-bit sums; V_DP(sums, u8, i8), which adds the products of four unsigned with four signed
 * bytes to each sum, exactly; B_SET, B_MR, B_NV, B_TILE, B_DOT_MR, B_DOT_NR, B_DOT_ACC, B_DOT_TILE, B_STREAM_TILE; and of
 * whole vectors of bytes
 *
 *   Q_LOAD(p), Q_LOAD_TAIL(p, n)   n < 4 V_LEN bytes exactly, zeros behind
 *   Q_ALL(byte)                    that byte everywhere
 *   Q_LOW8(x, y), Q_HIGH8(x, y)    interleave bytes within 128 bits; Q_LOW16, Q_HIGH16: pairs of bytes
 *   Q_ORDER(x)                     32-bit elements in such an order that interleaving four rows leaves columns in theirs
 */
#define B_NAME(stem, tile) GK_CAT(stem, GK_CAT(GK_CAT(_ukr_, tile), GK_CAT(_, B_SET)))
#define B_OF(stem) GK_CAT(stem, GK_CAT(_, B_SET))

/* ---- tiles: A by broadcasts of quads, B in panels of quads or of nibbles */
#define B_ITEM 4
#define B_LOAD(p) V_LOAD(p)
#define B_LOAD_TAIL(p, mask, n) V_LOAD_TAIL(p, mask)
#undef V_FMA
#define V_FMA(a, b, c) V_DP(c, a, b)
#define GK_UKR_NAME B_NAME(gk_gemm_u8i8, B_TILE)
#define GK_MR B_MR
#define GK_NV B_NV
#include "tmpl_gemm.inc.h"
#undef V_FMA

/* Eight steps of k at once: what V_FMA takes is two quads. */
typedef struct {
    V_TYPE low, high;
} B_OF(gk_octet);

GK_INLINE B_OF(gk_octet) B_OF(gk_nibbles)(V_TYPE x)
{
    const uint32_t halves = 0x0f0f0f0fu;
    const B_OF(gk_octet) r = {x & V_BROADCAST((const char *)&halves), (x >> 4) & V_BROADCAST((const char *)&halves)};
    return r;
}

GK_INLINE B_OF(gk_octet) B_OF(gk_eight)(const char *p)
{
    const B_OF(gk_octet) r = {V_BROADCAST(p), V_BROADCAST(p + 4)};
    return r;
}

#define A_TYPE B_OF(gk_octet)
#define A_BROADCAST(p) B_OF(gk_eight)(p)
#define B_TYPE B_OF(gk_octet)
#define B_ITEM 4
#define B_LOAD(p) B_OF(gk_nibbles)(V_LOAD(p))
#define B_LOAD_TAIL(p, mask, n) B_OF(gk_nibbles)(V_LOAD_TAIL(p, mask))
#define V_FMA(a, b, c) V_DP(V_DP(c, (a).low, (b).low), (a).high, (b).high)
#define GK_UKR_NAME B_NAME(gk_gemm_u8nibbles, B_TILE)
#define GK_MR B_MR
#define GK_NV B_NV
#include "tmpl_gemm.inc.h"
#undef V_FMA

/* ---- dot products: a vector is 4 V_LEN steps of k */
GK_INLINE V_TYPE B_OF(gk_turned)(V_TYPE x) { return x ^ Q_ALL(0x80); }

/* The template counts k in V_LEN. */
#pragma push_macro("V_LEN")
#pragma push_macro("V_TAIL_MASK")
#pragma push_macro("V_MASK")
#undef V_LEN
#undef V_TAIL_MASK
#undef V_MASK
#define V_LEN (int)sizeof(V_TYPE)
#define V_MASK int
#define V_TAIL_MASK(n) (n)
#define GK_NEXT_LINES 4096
#define V_FMA(a, b, c) V_DP(c, a, b)
#define A_ITEM 1
#define A_LOAD(p) Q_LOAD(p)
#define A_LOAD_TAIL(p, mask, n) Q_LOAD_TAIL(p, n)
#define B_ITEM 1
#define B_LOAD(p) Q_LOAD(p)
#define B_LOAD_TAIL(p, mask, n) Q_LOAD_TAIL(p, n)
#define GK_UKR_NAME B_NAME(gk_dot_u8i8, B_DOT_TILE)
#define GK_MR B_DOT_MR
#define GK_NR B_DOT_NR
#define GK_ACC B_DOT_ACC
#include "tmpl_dot.inc.h"
/* In a tail one operand is zero past its end, whatever turning makes of the other. */
#define A_ITEM 1
#define A_LOAD(p) Q_LOAD(p)
#define A_LOAD_TAIL(p, mask, n) Q_LOAD_TAIL(p, n)
#define B_ITEM 1
#define B_LOAD(p) B_OF(gk_turned)(Q_LOAD(p))
#define B_LOAD_TAIL(p, mask, n) B_OF(gk_turned)(Q_LOAD_TAIL(p, n))
#define GK_UKR_NAME B_NAME(gk_dot_u8u8, B_DOT_TILE)
#define GK_MR B_DOT_MR
#define GK_NR B_DOT_NR
#define GK_ACC B_DOT_ACC
#include "tmpl_dot.inc.h"
#define A_ITEM 1
#define A_LOAD(p) B_OF(gk_turned)(Q_LOAD(p))
#define A_LOAD_TAIL(p, mask, n) B_OF(gk_turned)(Q_LOAD_TAIL(p, n))
#define B_ITEM 1
#define B_LOAD(p) Q_LOAD(p)
#define B_LOAD_TAIL(p, mask, n) Q_LOAD_TAIL(p, n)
#define GK_UKR_NAME B_NAME(gk_dot_i8i8, B_DOT_TILE)
#define GK_MR B_DOT_MR
#define GK_NR B_DOT_NR
#define GK_ACC B_DOT_ACC
#include "tmpl_dot.inc.h"
#undef V_FMA
#undef GK_NEXT_LINES
#pragma pop_macro("V_LEN")
#pragma pop_macro("V_TAIL_MASK")
#pragma pop_macro("V_MASK")

/* ---- streams: eight rows of B become two quads of each column in registers; C in L1 */
GK_INLINE void B_OF(gk_quads_of_rows)(const V_TYPE r[4], V_TYPE q[4])
{
    const V_TYPE a = Q_LOW8(r[0], r[1]), b = Q_HIGH8(r[0], r[1]), c = Q_LOW8(r[2], r[3]), d = Q_HIGH8(r[2], r[3]);
    q[0] = Q_LOW16(a, c);
    q[1] = Q_HIGH16(a, c);
    q[2] = Q_LOW16(b, d);
    q[3] = Q_HIGH16(b, d);
}

/* Columns at..at + n of C for `rows` rows of B from row p on; turn is what every byte of B is turned by. */
GK_INLINE void B_OF(gk_stream_part)(const gk_ukr_args *g, const int whole, const int rows, ptrdiff_t p, ptrdiff_t at, int n,
                                    const V_TYPE turn)
{
    enum { PER_ROW = (int)sizeof(V_TYPE) };
    const char *from = p ? g->c : g->add, *b = g->b + p * g->rs_b + at;
    const ptrdiff_t rs_from = p ? g->rs_c : g->rs_add;
    V_TYPE r[8], q[8];
    GK_UNROLL
    for (int u = 0; u < 8; u++) {
        r[u] = V_ZERO();
        if (u < rows)
            r[u] = Q_ORDER((whole ? Q_LOAD(b + u * g->rs_b) : Q_LOAD_TAIL(b + u * g->rs_b, n)) ^ turn);
    }
    B_OF(gk_quads_of_rows)(r, q);
    B_OF(gk_quads_of_rows)(r + 4, q + 4);
    for (ptrdiff_t i = 0; i < g->m; i++) {
        const char *a = g->a + i * g->rs_a + p;
        /* Without k there is no A to be read. */
        const V_TYPE first = rows ? V_BROADCAST(a) : V_ZERO(), second = rows ? V_BROADCAST(a + 4) : V_ZERO();
        char *c = g->c + i * g->rs_c + 4 * at;
        const char *x = from ? from + i * rs_from + 4 * at : NULL;
        GK_UNROLL
        for (int v = 0; v < 4; v++) {
            const int left = whole ? V_LEN : n - v * V_LEN;
            V_TYPE y = V_ZERO();
            if (left <= 0)
                break;
            if (left < V_LEN) {
                const V_MASK mask = V_TAIL_MASK(left);
                (void)mask;
                if (x)
                    y = V_LOAD_TAIL(x + 4 * v * V_LEN, mask);
                y = V_DP(V_DP(y, first, q[v]), second, q[4 + v]);
                V_STORE_TAIL(c + 4 * v * V_LEN, mask, y);
                continue;
            }
            if (x)
                y = V_LOAD(x + 4 * v * V_LEN);
            y = V_DP(V_DP(y, first, q[v]), second, q[4 + v]);
            V_STORE(c + 4 * v * V_LEN, y);
        }
    }
}

GK_INLINE void B_OF(gk_stream_body)(const gk_ukr_args *g, const V_TYPE turn)
{
    enum { PER_ROW = (int)sizeof(V_TYPE) };
    ptrdiff_t p = 0;
    do { /* at least once: without k, C is `add` or zeros */
        const int rows = g->k - p < 8 ? (int)(g->k - p) : 8;
        ptrdiff_t at = 0;
        if (rows == 8) {
            for (; at + PER_ROW <= g->n; at += PER_ROW)
                B_OF(gk_stream_part)(g, 1, 8, p, at, PER_ROW, turn);
        }
        for (; at < g->n; at += PER_ROW)
            B_OF(gk_stream_part)(g, 0, rows, p, at, g->n - at < PER_ROW ? (int)(g->n - at) : PER_ROW, turn);
        p += 8;
    } while (p < g->k);
}

static void B_NAME(gk_stream_u8i8, B_STREAM_TILE)(const gk_ukr_args *g) { B_OF(gk_stream_body)(g, V_ZERO()); }
static void B_NAME(gk_stream_u8u8, B_STREAM_TILE)(const gk_ukr_args *g) { B_OF(gk_stream_body)(g, Q_ALL(0x80)); }

#define GK_PEAK_NAME GK_CAT(gk_peak_u8_, B_SET)
#define GK_PEAK_ACC (B_MR * B_NV)
#define GK_PEAK_OPS 8
#define V_FMA(a, b, c) V_DP(a, b, c)
#include "tmpl_peak.inc.h"
#undef V_FMA

#undef B_NAME
#undef B_OF
#undef B_SET
#undef B_MR
#undef B_NV
#undef B_TILE
#undef B_DOT_MR
#undef B_DOT_NR
#undef B_DOT_ACC
#undef B_DOT_TILE
#undef B_STREAM_TILE
#undef V_DP
