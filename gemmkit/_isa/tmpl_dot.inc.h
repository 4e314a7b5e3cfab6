/* Body of a DOT micro-kernel: vectors run along k, and each element of C has accumulators of its own.
 *
 * Needs GK_MR, GK_NR, GK_ACC (accumulators that fit the register file) and GK_UKR_NAME; undefines them.  V_SUM_FOUR(a, b, c, d,
 * add, c), if there is one, stores the sums of four vectors at once, plus add's if that is not NULL: no other order for integers.  A_* and B_*
 * loads widen operands of another type (tmpl_load.inc.h).
 * Small tiles give each element several accumulators so that the adder's latency is covered; how many depends on
 * (m, n) alone, and the engine places tiles by shape alone, so that the order of summation never depends on threads. */

#include "tmpl_load.inc.h"
#define GK_BODY GK_CAT(GK_UKR_NAME, _body)

GK_INLINE void GK_BODY(const int m, const int n, const gk_ukr_args *g)
{
    enum { MOST = 4 };
    const int chains = m * n * 4 <= GK_ACC ? 4 : m * n * 2 <= GK_ACC ? 2 : 1;
    const ptrdiff_t item = (ptrdiff_t)sizeof(V_ELEM), a_step = V_LEN * (ptrdiff_t)A_ITEM, b_step = V_LEN * (ptrdiff_t)B_ITEM;
    V_TYPE r[GK_MR][GK_NR][MOST];
    const char *a[GK_MR], *b[GK_NR];
    ptrdiff_t k = g->k;

    GK_UNROLL
    for (int i = 0; i < m; i++)
        a[i] = g->a + i * g->rs_a;
    GK_UNROLL
    for (int j = 0; j < n; j++)
        b[j] = g->b + j * g->cs_b;
    GK_UNROLL
    for (int i = 0; i < m; i++) {
        GK_UNROLL
        for (int j = 0; j < n; j++) {
            GK_UNROLL
            for (int u = 0; u < chains; u++)
                r[i][j][u] = V_ZERO();
        }
    }
    ptrdiff_t at = 0; /* vectors of k behind us */
    for (; k >= chains * V_LEN; k -= chains * V_LEN, at += chains) {
#ifdef GK_NEXT_LINES
        /* Short lines end before prefetchers have followed them: the next tile's, of the longer operand. */
        if (g->k * A_ITEM <= GK_NEXT_LINES) {
            GK_UNROLL
            for (int u = 0; u < chains; u++) {
                GK_UNROLL
                for (int j = 0; j < n && m < n; j++)
                    __builtin_prefetch(b[j] + n * g->cs_b + (at + u) * b_step);
                GK_UNROLL
                for (int i = 0; i < m && n < m; i++)
                    __builtin_prefetch(a[i] + m * g->rs_a + (at + u) * a_step);
            }
        }
#endif
        GK_UNROLL
        for (int u = 0; u < chains; u++) {
            V_TYPE bv[GK_NR];
            GK_UNROLL
            for (int j = 0; j < n; j++)
                bv[j] = B_LOAD(b[j] + (at + u) * b_step);
            GK_UNROLL
            for (int i = 0; i < m; i++) {
                const V_TYPE av = A_LOAD(a[i] + (at + u) * a_step);
                GK_UNROLL
                for (int j = 0; j < n; j++)
                    r[i][j][u] = V_FMA(av, bv[j], r[i][j][u]);
            }
        }
    }
    for (; k > 0; k -= V_LEN, at++) {
        const int partial = k < V_LEN, rest = partial ? (int)k : V_LEN;
        const V_MASK mask = V_TAIL_MASK(rest);
        (void)mask;
        GK_UNROLL
        for (int i = 0; i < m; i++) {
            const V_TYPE av = partial ? A_LOAD_TAIL(a[i] + at * a_step, mask, rest) : A_LOAD(a[i] + at * a_step);
            GK_UNROLL
            for (int j = 0; j < n; j++) {
                const V_TYPE bv = partial ? B_LOAD_TAIL(b[j] + at * b_step, mask, rest) : B_LOAD(b[j] + at * b_step);
                r[i][j][0] = V_FMA(av, bv, r[i][j][0]);
            }
        }
    }
    GK_UNROLL
    for (int i = 0; i < m; i++) {
        GK_UNROLL
        for (int j = 0; j < n; j++) {
            V_TYPE s = r[i][j][0];
            if (chains >= 2)
                s = V_ADD(s, r[i][j][1]);
            if (chains == 4)
                s = V_ADD(s, V_ADD(r[i][j][2], r[i][j][3]));
            r[i][j][0] = s;
        }
#ifdef V_SUM_FOUR
        if (m == 4 && n == 1 && !g->add) { /* a column: at its last row, all are ready */
            V_ELEM column[4];
            if (i < 3)
                continue;
            V_SUM_FOUR(r[0][0][0], r[1][0][0], r[2 % GK_MR][0][0], r[3 % GK_MR][0][0], NULL, (char *)column);
            for (int x = 0; x < 4; x++)
                memcpy(g->c + x * g->rs_c, &column[x], sizeof column[x]);
            continue;
        }
        if (n == 4) {
            V_SUM_FOUR(r[i][0][0], r[i][1 % GK_NR][0], r[i][2 % GK_NR][0], r[i][3 % GK_NR][0], g->add ? g->add + i * g->rs_add : NULL,
                       g->c + i * g->rs_c);
            continue;
        }
#endif
        GK_UNROLL
        for (int j = 0; j < n; j++) {
            V_ELEM sum = V_SUM(r[i][j][0]), start;
            if (g->add) {
                memcpy(&start, g->add + i * g->rs_add + j * item, sizeof start);
                sum += start;
            }
            memcpy(g->c + i * g->rs_c + j * item, &sum, sizeof sum);
        }
    }
}

#define GK_EDGE(m, n) GK_CAT(GK_UKR_NAME, _m##m##_n##n)
#define GK_EDGE_FN(m, n)                                                       \
    GK_KERNEL void GK_EDGE(m, n)(const gk_ukr_args *g) { GK_BODY(m, n, g); }
#if GK_NR == 4
#define GK_ROW_OF(m) GK_EDGE_FN(m, 1) GK_EDGE_FN(m, 2) GK_EDGE_FN(m, 3) GK_EDGE_FN(m, 4)
#define GK_COL_OF(m) {GK_EDGE(m, 1), GK_EDGE(m, 2), GK_EDGE(m, 3), GK_EDGE(m, 4)},
#elif GK_NR == 2
#define GK_ROW_OF(m) GK_EDGE_FN(m, 1) GK_EDGE_FN(m, 2)
#define GK_COL_OF(m) {GK_EDGE(m, 1), GK_EDGE(m, 2)},
#endif
#if GK_MR == 4
#define GK_ALL(F) F(1) F(2) F(3) F(4)
#elif GK_MR == 2
#define GK_ALL(F) F(1) F(2)
#endif

GK_ALL(GK_ROW_OF)

static void GK_UKR_NAME(const gk_ukr_args *g)
{
    static const gk_ukr_fn edges[GK_MR][GK_NR] = {GK_ALL(GK_COL_OF)};
    edges[g->m - 1][g->n - 1](g);
}

#undef GK_ALL
#undef GK_COL_OF
#undef GK_ROW_OF
#undef GK_EDGE_FN
#undef GK_EDGE
#undef GK_BODY
#include "tmpl_unload.inc.h"
#undef GK_MR
#undef GK_NR
#undef GK_ACC
#undef GK_UKR_NAME
