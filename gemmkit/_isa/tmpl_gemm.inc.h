/* Body of a GEMM micro-kernel: an MR x (NV vectors) tile of C stays in registers while k runs.
 *
 * Needs GK_MR, GK_NV, GK_UKR_NAME and the V_* vocabulary of the including header; undefines the first three.  A B of
 * another type than the accumulator's comes with B_ITEM, B_LOAD and B_LOAD_TAIL, which widen (tmpl_load.inc.h).
 * Each step of k loads NV vectors of B and broadcasts MR scalars of A, so the loop does MR * NV multiply-adds for
 * MR + NV loads.  Edges are real smaller kernels, one for each (m, vectors): only a last partial vector is masked,
 * and only in kernels that have one, since a masked load takes an arithmetic port on Intel. */

#include "tmpl_load.inc.h"
#ifndef GK_PREFETCH_ROWS
#define GK_PREFETCH_ROWS 4
#endif
#define GK_BODY GK_CAT(GK_UKR_NAME, _body)

GK_INLINE void GK_BODY(const int m, const int nv, const int partial, const gk_ukr_args *g)
{
    V_TYPE r[GK_MR][GK_NV];
    const ptrdiff_t item = (ptrdiff_t)sizeof(V_ELEM), step = V_LEN * item, b_step = V_LEN * (ptrdiff_t)B_ITEM;
    const ptrdiff_t rs1 = g->rs_a, cs_a = g->cs_a, rs_b = g->rs_b, rs_c = g->rs_c;
    /* Rows in groups of four: base, base + rs, base + 2 rs, base + 3 rs are one addressing mode each. */
    const ptrdiff_t rs3 = 3 * rs1;
    const char *a[(GK_MR + 3) / 4];
    const char *b = g->b;
    char *const c0 = g->c; /* read before the stores, which might alias the arguments for all the compiler knows */
    const int rest = partial ? (int)(g->n - (ptrdiff_t)(nv - 1) * V_LEN) : V_LEN; /* columns of the last vector */
    const V_MASK mask = V_TAIL_MASK(rest);
    (void)mask;

    GK_UNROLL
    for (int q = 0; q < (m + 3) / 4; q++)
        a[q] = g->a + 4 * q * rs1;
    GK_UNROLL
    for (int i = 0; i < m; i++) {
        GK_UNROLL
        for (int j = 0; j < nv; j++)
            r[i][j] = V_ZERO();
    }
    for (ptrdiff_t p = g->k; p > 0; p--) {
        B_TYPE bv[GK_NV];
        GK_UNROLL
        for (int j = 0; j < nv; j++)
            bv[j] = partial && j == nv - 1 ? B_LOAD_TAIL(b + j * b_step, mask, rest) : B_LOAD(b + j * b_step);
        GK_UNROLL
        for (int i = 0; i < m; i++) {
            const char *ai = a[i / 4];
            const A_TYPE av = A_BROADCAST(i % 4 == 0 ? ai : i % 4 == 1 ? ai + rs1 : i % 4 == 2 ? ai + 2 * rs1 : ai + rs3);
            GK_UNROLL
            for (int j = 0; j < nv; j++)
                r[i][j] = V_FMA(av, bv[j], r[i][j]);
        }
        /* Rows of B read in place are apart by a stride that the prefetchers may not follow: 0.84 -> 0.94 of peak for
         * unaligned 256^3 on Sapphire Rapids; free for packed panels. */
        GK_UNROLL
        for (int j = 0; j < nv; j++)
            __builtin_prefetch(b + GK_PREFETCH_ROWS * rs_b + j * b_step);
        b += rs_b;
        GK_UNROLL
        for (int q = 0; q < (m + 3) / 4; q++)
            a[q] += cs_a;
    }
    if (g->add) {
        GK_UNROLL
        for (int i = 0; i < m; i++) {
            const char *x = g->add + i * g->rs_add;
            GK_UNROLL
            for (int j = 0; j < nv; j++)
                r[i][j] = V_ADD(r[i][j],
                                partial && j == nv - 1 ? V_LOAD_TAIL(x + j * step, mask) : V_LOAD(x + j * step));
        }
    }
    GK_UNROLL
    for (int i = 0; i < m; i++) {
        char *c = c0 + i * rs_c;
        GK_UNROLL
        for (int j = 0; j < nv; j++) {
            if (partial && j == nv - 1)
                V_STORE_TAIL(c + j * step, mask, r[i][j]);
            else
                V_STORE(c + j * step, r[i][j]);
        }
    }
}

/* Every (m, vectors, partial) as a function of its own, and the tables that find them. */
#define GK_EDGE(m, nv, partial) GK_CAT(GK_CAT(GK_UKR_NAME, _m##m), _v##nv##_p##partial)
#define GK_EDGE_FN(m, nv, partial)                                             \
    GK_KERNEL void GK_EDGE(m, nv, partial)(const gk_ukr_args *g) { GK_BODY(m, nv, partial, g); }
#define GK_EDGES_OF(m, nv) GK_EDGE_FN(m, nv, 0) GK_EDGE_FN(m, nv, 1)
#if GK_NV == 1
#define GK_ROW_OF(m) GK_EDGES_OF(m, 1)
#define GK_COL_OF(m) {GK_EDGE(m, 1, 0), GK_EDGE(m, 1, 1)},
#elif GK_NV == 2
#define GK_ROW_OF(m) GK_EDGES_OF(m, 1) GK_EDGES_OF(m, 2)
#define GK_COL_OF(m) {GK_EDGE(m, 1, 0), GK_EDGE(m, 1, 1), GK_EDGE(m, 2, 0), GK_EDGE(m, 2, 1)},
#elif GK_NV == 3
#define GK_ROW_OF(m) GK_EDGES_OF(m, 1) GK_EDGES_OF(m, 2) GK_EDGES_OF(m, 3)
#define GK_COL_OF(m)                                                           \
    {GK_EDGE(m, 1, 0), GK_EDGE(m, 1, 1), GK_EDGE(m, 2, 0), GK_EDGE(m, 2, 1), GK_EDGE(m, 3, 0), GK_EDGE(m, 3, 1)},
#elif GK_NV == 4
#define GK_ROW_OF(m) GK_EDGES_OF(m, 1) GK_EDGES_OF(m, 2) GK_EDGES_OF(m, 3) GK_EDGES_OF(m, 4)
#define GK_COL_OF(m)                                                                                  \
    {GK_EDGE(m, 1, 0), GK_EDGE(m, 1, 1), GK_EDGE(m, 2, 0), GK_EDGE(m, 2, 1), GK_EDGE(m, 3, 0), GK_EDGE(m, 3, 1), \
     GK_EDGE(m, 4, 0), GK_EDGE(m, 4, 1)},
#endif
#if GK_MR == 4
#define GK_ALL(F) F(1) F(2) F(3) F(4)
#elif GK_MR == 6
#define GK_ALL(F) F(1) F(2) F(3) F(4) F(5) F(6)
#elif GK_MR == 8
#define GK_ALL(F) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8)
#endif

GK_ALL(GK_ROW_OF)

static void GK_UKR_NAME(const gk_ukr_args *g)
{
    static const gk_ukr_fn edges[GK_MR][2 * GK_NV] = {GK_ALL(GK_COL_OF)};
    const ptrdiff_t full = g->n / V_LEN, rest = g->n % V_LEN;
    edges[g->m - 1][rest ? 2 * full + 1 : 2 * (full - 1)](g);
}

#undef GK_ALL
#undef GK_COL_OF
#undef GK_ROW_OF
#undef GK_EDGES_OF
#undef GK_EDGE_FN
#undef GK_EDGE
#undef GK_BODY
#include "tmpl_unload.inc.h"
#undef GK_MR
#undef GK_NV
#undef GK_UKR_NAME
