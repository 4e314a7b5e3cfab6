/* Body of a packer that widens a narrow type to float32, in both forms of ukr.h.
 *
 * Needs GK_PACK_OF, N_ITEM, N_PLAIN_PANELS (the packer of float32 panels), V_ELEM and N_WIDEN_LINE(src, n, dst), which widens
 * n adjacent elements; without that one it is made of N_LOAD, N_LOAD_TAIL (tmpl_narrow.inc.h) and the V_* vocabulary.  Lines are widened by vectors; a layout that has neither lines nor k adjacent is gathered first, as it
 * is, so that no element is ever converted alone. */

#define GK_PANELS GK_CAT(gk_panels_, GK_PACK_OF)
#define GK_LINES GK_CAT(gk_lines_, GK_PACK_OF)
#define GK_WIDEN_ANY GK_CAT(gk_widen_any_, GK_PACK_OF)

#ifdef N_WIDEN_LINE
#define GK_WIDEN N_WIDEN_LINE
#else
#define GK_WIDEN GK_CAT(gk_widen_, GK_PACK_OF)
/* n adjacent elements. */
GK_INLINE void GK_WIDEN(const char *src, ptrdiff_t n, char *dst)
{
    for (; n >= V_LEN; n -= V_LEN, src += V_LEN * N_ITEM, dst += V_LEN * sizeof(V_ELEM))
        V_STORE(dst, N_LOAD(src));
    if (n > 0) {
        const V_MASK mask = V_TAIL_MASK((int)n);
        (void)mask;
        V_STORE_TAIL(dst, mask, N_LOAD_TAIL(src, mask, (int)n));
    }
}
#endif

static void GK_WIDEN_ANY(const char *src, ptrdiff_t step, ptrdiff_t n, char *dst)
{
    enum { AT_ONCE = 64 };
    char gathered[AT_ONCE * N_ITEM];
    if (step == N_ITEM) {
        GK_WIDEN(src, n, dst);
        return;
    }
    for (ptrdiff_t at = 0; at < n; at += AT_ONCE) {
        const ptrdiff_t some = n - at < AT_ONCE ? n - at : AT_ONCE;
        for (ptrdiff_t p = 0; p < some; p++)
            memcpy(gathered + p * N_ITEM, src + (at + p) * step, N_ITEM);
        GK_WIDEN(gathered, some, dst + at * (ptrdiff_t)sizeof(V_ELEM));
    }
}

static void GK_PANELS(const char *src, ptrdiff_t s_w, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R, char *dst,
                      int32_t *sums)
{
    (void)sums; /* of panels for integers only */
    enum { STEPS = 16, DEPTH = 32 };
    const ptrdiff_t item = (ptrdiff_t)sizeof(V_ELEM), line = R * item;
    if (s_w == N_ITEM) {
        /* A few steps of k at a time through all micro-panels, as in tmpl_pack.inc.h. */
        for (ptrdiff_t p0 = 0; p0 < k; p0 += STEPS) {
            const ptrdiff_t p1 = p0 + STEPS < k ? p0 + STEPS : k;
            for (ptrdiff_t w0 = 0; w0 < w; w0 += R) {
                const ptrdiff_t full = w - w0 < R ? w - w0 : R;
                for (ptrdiff_t p = p0; p < p1; p++) {
                    char *d = dst + w0 * k * item + p * line;
                    GK_WIDEN(src + w0 * N_ITEM + p * s_k, full, d);
                    if (full < R)
                        memset(d + full * item, 0, (size_t)((R - full) * item));
                }
            }
        }
        return;
    }
    for (; w > 0; w -= R, src += R * s_w, dst += k * line) {
        V_ELEM wide[GK_MOST_R][DEPTH]; /* in L1, to be transposed from there */
        const ptrdiff_t full = w < R ? w : R;
        for (ptrdiff_t p = 0; p < k; p += DEPTH) {
            const ptrdiff_t some = k - p < DEPTH ? k - p : DEPTH;
            for (ptrdiff_t i = 0; i < full; i++)
                GK_WIDEN_ANY(src + i * s_w + p * s_k, s_k, some, (char *)wide[i]);
            N_PLAIN_PANELS((const char *)wide, DEPTH * item, item, full, some, R, dst + p * line, NULL);
        }
    }
}

static void GK_LINES(const char *src, ptrdiff_t s_w, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R, char *dst,
                      int32_t *sums)
{
    (void)sums; /* of panels for integers only */
    (void)R;
    for (ptrdiff_t i = 0; i < w; i++)
        GK_WIDEN_ANY(src + i * s_w, s_k, k, dst + i * k * (ptrdiff_t)sizeof(V_ELEM));
}
#undef GK_PANELS
#undef GK_LINES
#undef GK_WIDEN
#undef GK_WIDEN_ANY
#undef GK_PACK_OF
