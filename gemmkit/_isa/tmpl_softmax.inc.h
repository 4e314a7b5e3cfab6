/* The softmax of attention over a tile of scores [n keys][lanes], a query a lane: nothing here is horizontal.  docs/attention.md.
 *
 *   scan     z = softcap(factor s) + bias, -inf outside [low, high); next = max(max, z)       s: L1
 *   weigh    p = exp(z - next), sum = sum alpha + sum of p, alpha = exp(max - next)           s, p: L1
 *   rescale  O *= alpha;  divide  O /= sum
 *
 * Needs GK_SOFT_OF (a type and a set, as f32_avx2), the V_* vocabulary with V_SUB, V_DIV, V_MAX, V_SET, V_LESS,
 * V_POW2_FROM(x, least, y, n), y 2^n or 0 where x < least, and the numbers of softmax_f32.inc.h or softmax_f64.inc.h.  V_MAX(a, b) is b if one is NaN. */
#define GK_EXP GK_CAT(gk_exp_, GK_SOFT_OF)
#define GK_TANH GK_CAT(gk_tanh_, GK_SOFT_OF)
#define GK_MAX_OF GK_CAT(gk_max_of_, GK_SOFT_OF)

/* e^x, 0 below the least normal number: x = n ln 2 + r, n ln 2 in two parts of which the first is exact. */
GK_INLINE V_TYPE GK_EXP(V_TYPE x)
{
    static const V_ELEM q[] = {X_EXP};
    enum { DEGREE = (int)(sizeof q / sizeof q[0]) - 1 };
    const V_TYPE n = V_SUB(V_FMA(x, V_SET(X_LOG2E), V_SET(X_ROUND)), V_SET(X_ROUND)); /* rounds, cheaper than the instruction */
    const V_TYPE r = V_FMA(n, V_SET(-X_LN2_LOW), V_FMA(n, V_SET(-X_LN2_HIGH), x));
    V_TYPE y = V_SET(q[DEGREE]);
    GK_UNROLL
    for (int i = DEGREE - 1; i >= 0; i--)
        y = V_FMA(y, r, V_SET(q[i]));
    y = V_FMA(V_FMA(y, r, V_SET(1)), r, V_SET(1));
    return V_POW2_FROM(x, V_SET(X_EXP_LEAST), y, n);
}

/* tanh x = x + x^3 P(x^2) near 0, where the other form, 1 - 2 / (e^2x + 1), would lose digits. */
GK_INLINE V_TYPE GK_TANH(V_TYPE x)
{
    static const V_ELEM q[] = {X_TANH};
    enum { DEGREE = (int)(sizeof q / sizeof q[0]) - 1 };
    const V_TYPE a = V_MAX(V_SUB(V_ZERO(), x), x), z = V_MUL(x, x), limit = V_SET(X_TANH_IS_ONE);
    V_TYPE y = V_SET(q[DEGREE]);
    GK_UNROLL
    for (int i = DEGREE - 1; i >= 0; i--)
        y = V_FMA(y, z, V_SET(q[i]));
    y = V_FMA(V_MUL(x, z), y, x);
    const V_TYPE b = V_LESS(limit, a, limit, a), e = GK_EXP(V_ADD(b, b));
    const V_TYPE far = V_SUB(V_SET(1), V_DIV(V_SET(2), V_ADD(e, V_SET(1))));
    return V_LESS(a, V_SET(X_TANH_NEAR), y, V_LESS(x, V_ZERO(), V_SUB(V_ZERO(), far), far));
}

/* The largest of n scores of a lane; four chains, since a maximum takes as long as an addition. */
GK_INLINE V_TYPE GK_MAX_OF(const char *s, ptrdiff_t rs, ptrdiff_t n)
{
    V_TYPE m[4];
    ptrdiff_t j = 0;
    GK_UNROLL
    for (int u = 0; u < 4; u++)
        m[u] = V_SET(-X_INFINITY);
    for (; j + 4 <= n; j += 4, s += 4 * rs) {
        GK_UNROLL
        for (int u = 0; u < 4; u++)
            m[u] = V_MAX(m[u], V_LOAD(s + u * rs));
    }
    for (; j < n; j++, s += rs)
        m[0] = V_MAX(m[0], V_LOAD(s));
    return V_MAX(V_MAX(m[0], m[1]), V_MAX(m[2], m[3]));
}

static void GK_CAT(gk_scan_, GK_SOFT_OF)(const gk_soft_args *a)
{
    const ptrdiff_t item = (ptrdiff_t)sizeof(V_ELEM), step = V_LEN * item;
    const V_TYPE f = V_SET((V_ELEM)a->factor);
    const int cap = a->softcap > 0, all = !a->low;
    const V_TYPE c = V_SET((V_ELEM)a->softcap);
    for (ptrdiff_t at = 0; at < a->lanes * item; at += step) {
        const V_TYPE before = V_LOAD(a->max + at);
        char *s = a->s + at;
        if (!cap && !a->bias && all) { /* scores stay as they are: weigh multiplies them by the factor */
            V_STORE(a->next + at, V_MAX(before, V_MUL(GK_MAX_OF(s, a->rs_s, a->n), f)));
            continue;
        }
        const char *bias = a->bias ? a->one_bias ? a->bias : a->bias + at : NULL;
        const V_TYPE low = all ? V_ZERO() : V_LOAD(a->low + at), high = all ? V_ZERO() : V_LOAD(a->high + at);
        const V_TYPE none = V_SET(-X_INFINITY);
        V_TYPE m = before;
        for (ptrdiff_t j = 0; j < a->n; j++, s += a->rs_s) {
            V_TYPE z = V_MUL(V_LOAD(s), f);
            if (cap)
                z = V_MUL(c, GK_TANH(V_DIV(z, c)));
            if (bias) { /* -inf decides whatever the score is, NaN included */
                const V_TYPE x = a->one_bias ? V_BROADCAST(bias) : V_LOAD(bias);
                z = V_LESS(x, V_SET(-X_MOST), none, V_ADD(z, x));
                bias += a->rs_bias;
            }
            if (!all) {
                const V_TYPE key = V_SET((V_ELEM)j);
                z = V_LESS(key, high, V_LESS(key, low, none, z), none);
            }
            V_STORE(s, z);
            m = V_MAX(m, z);
        }
        V_STORE(a->next + at, m);
    }
}

static void GK_CAT(gk_rescale_, GK_SOFT_OF)(const gk_soft_args *a)
{
    const ptrdiff_t item = (ptrdiff_t)sizeof(V_ELEM), step = V_LEN * item;
    for (ptrdiff_t at = 0; at < a->lanes * item; at += step) {
        const V_TYPE x = V_LOAD(a->alpha + at);
        char *s = a->s + at;
        for (ptrdiff_t j = 0; j < a->n; j++, s += a->rs_s)
            V_STORE(s, V_MUL(V_LOAD(s), x));
    }
}

static void GK_CAT(gk_divide_, GK_SOFT_OF)(const gk_soft_args *a)
{
    const ptrdiff_t item = (ptrdiff_t)sizeof(V_ELEM), step = V_LEN * item;
    for (ptrdiff_t at = 0; at < a->lanes * item; at += step) {
        const V_TYPE x = V_LOAD(a->sum + at);
        char *s = a->s + at;
        for (ptrdiff_t j = 0; j < a->n; j++, s += a->rs_s)
            V_STORE(s, V_DIV(V_LOAD(s), x));
    }
}

#define GK_WEIGH_OF GK_SOFT_OF
#include "tmpl_weigh.inc.h"
#undef GK_SOFT_OF
#undef GK_EXP
#undef GK_TANH
#undef GK_MAX_OF
#include "softmax_end.inc.h"
