/* Body of an epilogue: C = alpha acc + beta bias over a tile of sums that is still in L1.  Needs GK_EPI_NAME.
 *
 * C has the accumulator's type unless the including header defines C_ITEM, C_STORE(p, v) and C_STORE_TAIL(p, mask, n, v),
 * which round to another; E_SCALE(real, whole) says which of alpha's two forms an integer type takes.  Products and sums are rounded apart (no FMA), so that beta = 1 gives the same bits as a bias
 * that the kernel has started from. */
#ifndef E_SCALE
#define E_SCALE(real, whole) (V_ELEM)(real)
#endif
#ifndef C_STORE
#define C_ITEM sizeof(V_ELEM)
#define C_STORE(p, v) V_STORE(p, v)
#define C_STORE_TAIL(p, mask, n, v) V_STORE_TAIL(p, mask, v)
#endif

static void GK_EPI_NAME(const gk_epi_args *e)
{
    const ptrdiff_t step = V_LEN * (ptrdiff_t)sizeof(V_ELEM), c_step = V_LEN * (ptrdiff_t)C_ITEM;
    const ptrdiff_t whole = e->n / V_LEN * V_LEN;
    const int rest = (int)(e->n - whole);
    const V_MASK mask = V_TAIL_MASK(rest ? rest : V_LEN);
    const V_ELEM alpha = E_SCALE(e->alpha, e->whole_alpha), beta = E_SCALE(e->beta, e->whole_beta);
    const V_TYPE va = V_BROADCAST((const char *)&alpha), vb = V_BROADCAST((const char *)&beta);
    (void)mask;
    for (ptrdiff_t i = 0; i < e->m; i++) {
        const char *acc = e->acc + i * e->rs_acc;
        char *c = e->c + i * e->rs_c;
        const char *x = e->bias ? e->bias + i * e->rs_bias : NULL;
        if (!x) {
            for (ptrdiff_t j = 0; j < whole; j += V_LEN, acc += step, c += c_step)
                C_STORE(c, V_MUL(va, V_LOAD(acc)));
            if (rest)
                C_STORE_TAIL(c, mask, rest, V_MUL(va, V_LOAD_TAIL(acc, mask)));
        } else if (e->cs_bias) {
            for (ptrdiff_t j = 0; j < whole; j += V_LEN, acc += step, c += c_step, x += step)
                C_STORE(c, V_ADD(V_MUL(va, V_LOAD(acc)), V_MUL(vb, V_LOAD(x))));
            if (rest)
                C_STORE_TAIL(c, mask, rest, V_ADD(V_MUL(va, V_LOAD_TAIL(acc, mask)), V_MUL(vb, V_LOAD_TAIL(x, mask))));
        } else {
            const V_TYPE bias = V_MUL(vb, V_BROADCAST(x));
            for (ptrdiff_t j = 0; j < whole; j += V_LEN, acc += step, c += c_step)
                C_STORE(c, V_ADD(V_MUL(va, V_LOAD(acc)), bias));
            if (rest)
                C_STORE_TAIL(c, mask, rest, V_ADD(V_MUL(va, V_LOAD_TAIL(acc, mask)), bias));
        }
    }
}
#undef GK_EPI_NAME
#undef E_SCALE
#undef C_ITEM
#undef C_STORE
#undef C_STORE_TAIL
