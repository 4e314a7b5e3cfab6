/* Body of an epilogue: C = alpha C + beta bias over a tile that is still in L1.  Needs GK_EPI_NAME.
 * Products and sums are rounded apart (no FMA), so that beta = 1 gives the same bits as a fused bias. */

static void GK_EPI_NAME(const gk_epi_args *e)
{
    const ptrdiff_t item = (ptrdiff_t)sizeof(V_ELEM), step = V_LEN * item;
    const V_ELEM alpha = (V_ELEM)e->alpha, beta = (V_ELEM)e->beta;
    const V_TYPE va = V_BROADCAST((const char *)&alpha), vb = V_BROADCAST((const char *)&beta);
    for (ptrdiff_t i = 0; i < e->m; i++) {
        char *c = e->c + i * e->rs_c;
        const char *x = e->bias ? e->bias + i * e->rs_bias : NULL;
        ptrdiff_t j = 0;
        if (!x) {
            for (; j + V_LEN <= e->n; j += V_LEN, c += step)
                V_STORE(c, V_MUL(va, V_LOAD(c)));
        } else if (e->cs_bias == item) {
            for (; j + V_LEN <= e->n; j += V_LEN, c += step, x += step)
                V_STORE(c, V_ADD(V_MUL(va, V_LOAD(c)), V_MUL(vb, V_LOAD(x))));
        } else if (e->cs_bias == 0) {
            const V_TYPE bias = V_MUL(vb, V_BROADCAST(x));
            for (; j + V_LEN <= e->n; j += V_LEN, c += step)
                V_STORE(c, V_ADD(V_MUL(va, V_LOAD(c)), bias));
        }
        for (; j < e->n; j++, c += item) {
            V_ELEM v, b;
            memcpy(&v, c, sizeof v);
            v = alpha * v;
            if (x) {
                memcpy(&b, x, sizeof b);
                x += e->cs_bias;
                v = v + beta * b;
            }
            memcpy(c, &v, sizeof v);
        }
    }
}
#undef GK_EPI_NAME
