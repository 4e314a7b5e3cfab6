/* weigh of tmpl_softmax.inc.h: scores become weights.
 *
 * Needs GK_WEIGH_OF and what its includer has.  Weights are of the scores' type, or with P_NARROW(v), which rounds, and
 * P_STORE_PAIR(p, v, w) pairs of keys in BF16, whose sum is of what they were rounded to. */
static int GK_CAT(gk_weigh_, GK_WEIGH_OF)(const gk_soft_args *a)
{
    const ptrdiff_t item = (ptrdiff_t)sizeof(V_ELEM), step = V_LEN * item, rs_s = a->rs_s, rs_p = a->rs_p;
    const V_TYPE f = V_SET((V_ELEM)a->factor);
    int changed = 0;
    for (ptrdiff_t at = 0; at < a->lanes * item; at += step) {
        const V_TYPE next = V_LOAD(a->next + at);
        /* Of a lane that has seen no key: any finite number makes its weights 0. */
        const V_TYPE m = V_LESS(next, V_SET(-X_MOST), V_ZERO(), next);
        const V_TYPE alpha = GK_EXP(V_SUB(V_LOAD(a->max + at), m));
        /* Products are rounded as scan rounded them: fused with the difference, a large maximum would not be 0 from itself. */
        V_ELEM alphas[V_LEN];
        V_TYPE sum = V_ZERO();
        const char *s = a->s + at;
        char *p = a->p + at;
        ptrdiff_t j = 0;
#ifdef P_NARROW
        for (; j + 2 <= a->n; j += 2, s += 2 * rs_s, p += rs_p) {
            const V_TYPE x = P_NARROW(GK_EXP(V_SUB(V_MUL(V_LOAD(s), f), m))), y = P_NARROW(GK_EXP(V_SUB(V_MUL(V_LOAD(s + rs_s), f), m)));
            sum = V_ADD(sum, V_ADD(x, y));
            P_STORE_PAIR(p, x, y);
        }
        if (j < a->n) {
            const V_TYPE x = P_NARROW(GK_EXP(V_SUB(V_MUL(V_LOAD(s), f), m)));
            sum = V_ADD(sum, x);
            P_STORE_PAIR(p, x, V_ZERO());
        }
#else
        V_TYPE other = V_ZERO();
        for (; j + 2 <= a->n; j += 2, s += 2 * rs_s, p += 2 * rs_p) {
            const V_TYPE x = GK_EXP(V_SUB(V_MUL(V_LOAD(s), f), m)), y = GK_EXP(V_SUB(V_MUL(V_LOAD(s + rs_s), f), m));
            sum = V_ADD(sum, x);
            other = V_ADD(other, y);
            V_STORE(p, x);
            V_STORE(p + rs_p, y);
        }
        if (j < a->n) {
            const V_TYPE x = GK_EXP(V_SUB(V_MUL(V_LOAD(s), f), m));
            sum = V_ADD(sum, x);
            V_STORE(p, x);
        }
        sum = V_ADD(sum, other);
#endif
        V_STORE(a->sum + at, V_FMA(V_LOAD(a->sum + at), alpha, sum));
        V_STORE(a->max + at, next);
        V_STORE(a->alpha + at, alpha);
        V_STORE((char *)alphas, alpha);
        GK_UNROLL
        for (int i = 0; i < V_LEN; i++)
            changed |= alphas[i] != 1;
    }
    return changed;
}
#undef GK_WEIGH_OF
#undef P_NARROW
#undef P_STORE_PAIR
