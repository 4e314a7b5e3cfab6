/* Body of a STREAM micro-kernel: up to MR rows of C live in L1 while B passes once, several of its rows at a time.
 *
 * Needs GK_MR, GK_SCALARS (broadcasts that fit the register file beside C's and B's vectors) and GK_UKR_NAME.  B_*
 * loads widen a B of another type (tmpl_load.inc.h).
 * A group of `rows` rows of B is read from left to right, each vector once for all m rows of C: long contiguous
 * reads, which the prefetchers follow, where a register tile would jump a whole row of B each step of k. */

#include "tmpl_load.inc.h"
#define GK_BODY GK_CAT(GK_UKR_NAME, _body)
#define GK_PASS GK_CAT(GK_UKR_NAME, _pass)

/* One pass over n columns with `rows` rows of B, from row p on. */
GK_INLINE void GK_PASS(const int m, const int rows, ptrdiff_t p, const gk_ukr_args *g)
{
    const ptrdiff_t item = (ptrdiff_t)sizeof(V_ELEM), step = V_LEN * item, b_step = V_LEN * (ptrdiff_t)B_ITEM;
    const ptrdiff_t rs_b = g->rs_b, rs_c = g->rs_c;
    const char *b = g->b + p * rs_b;
    char *const c = g->c;
    /* The first pass starts from `add`, or zero; each later one from what the pass before left in C. */
    const char *from = p ? g->c : g->add;
    const ptrdiff_t rs_from = p ? g->rs_c : g->rs_add;
    V_TYPE s[GK_MR][GK_SCALARS];
    ptrdiff_t n = g->n, at = 0; /* bytes of C behind us */

    GK_UNROLL
    for (int i = 0; i < m; i++) {
        GK_UNROLL
        for (int u = 0; u < rows; u++)
            s[i][u] = V_BROADCAST(g->a + i * g->rs_a + (p + u) * g->cs_a);
    }
    for (; n >= V_LEN; n -= V_LEN, at += step, b += b_step) {
        V_TYPE y[GK_MR], z[GK_MR];
        GK_UNROLL
        for (int i = 0; i < m; i++)
            y[i] = from ? V_LOAD(from + i * rs_from + at) : V_ZERO();
        /* Even and odd rows of B have sums of their own: half the latency from one pass to the next. */
        GK_UNROLL
        for (int i = 0; i < m; i++)
            z[i] = V_ZERO();
        GK_UNROLL
        for (int u = 0; u < rows; u++) {
            const V_TYPE bv = B_LOAD(b + u * rs_b);
            GK_UNROLL
            for (int i = 0; i < m; i++) {
                if (u % 2)
                    z[i] = V_FMA(s[i][u], bv, z[i]);
                else
                    y[i] = V_FMA(s[i][u], bv, y[i]);
            }
        }
        GK_UNROLL
        for (int i = 0; i < m; i++)
            V_STORE(c + i * rs_c + at, rows > 1 ? V_ADD(y[i], z[i]) : y[i]);
    }
    if (n > 0) {
        const V_MASK mask = V_TAIL_MASK((int)n);
        (void)mask;
        V_TYPE y[GK_MR], z[GK_MR];
        GK_UNROLL
        for (int i = 0; i < m; i++)
            y[i] = from ? V_LOAD_TAIL(from + i * rs_from + at, mask) : V_ZERO();
        GK_UNROLL
        for (int i = 0; i < m; i++)
            z[i] = V_ZERO();
        GK_UNROLL
        for (int u = 0; u < rows; u++) {
            const V_TYPE bv = B_LOAD_TAIL(b + u * rs_b, mask, (int)n);
            GK_UNROLL
            for (int i = 0; i < m; i++) {
                if (u % 2)
                    z[i] = V_FMA(s[i][u], bv, z[i]);
                else
                    y[i] = V_FMA(s[i][u], bv, y[i]);
            }
        }
        GK_UNROLL
        for (int i = 0; i < m; i++)
            V_STORE_TAIL(c + i * rs_c + at, mask, rows > 1 ? V_ADD(y[i], z[i]) : y[i]);
    }
}

GK_INLINE void GK_BODY(const int m, const gk_ukr_args *g)
{
    const int rows = GK_SCALARS / m >= 8 ? 8 : GK_SCALARS / m >= 4 ? 4 : 2;
    ptrdiff_t p = 0;
    for (; p + rows <= g->k; p += rows)
        GK_PASS(m, rows, p, g);
    for (; p < g->k; p++)
        GK_PASS(m, 1, p, g);
    if (g->k == 0)
        GK_PASS(m, 0, 0, g);
}

#define GK_EDGE(m) GK_CAT(GK_UKR_NAME, _m##m)
GK_KERNEL void GK_EDGE(1)(const gk_ukr_args *g) { GK_BODY(1, g); }
GK_KERNEL void GK_EDGE(2)(const gk_ukr_args *g) { GK_BODY(2, g); }
GK_KERNEL void GK_EDGE(3)(const gk_ukr_args *g) { GK_BODY(3, g); }
GK_KERNEL void GK_EDGE(4)(const gk_ukr_args *g) { GK_BODY(4, g); }

static void GK_UKR_NAME(const gk_ukr_args *g)
{
    static const gk_ukr_fn edges[GK_MR] = {GK_EDGE(1), GK_EDGE(2), GK_EDGE(3), GK_EDGE(4)};
    edges[g->m - 1](g);
}

#undef GK_EDGE
#undef GK_PASS
#undef GK_BODY
#include "tmpl_unload.inc.h"
#undef GK_MR
#undef GK_SCALARS
#undef GK_UKR_NAME
