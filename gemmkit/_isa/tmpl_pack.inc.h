/* Body of a packer that keeps the type: both forms of ukr.h.
 *
 * Needs GK_PACK_OF (a type pair and a set, as f32f32_avx2) and V_TRANSPOSE(src, s_w, dst, s_dst), which moves a V_SQUARE x
 * V_SQUARE block.  Panels tell three layouts of the source apart by strides: lines adjacent (a copy), k adjacent (a
 * transpose in registers), neither. */

#define GK_PANELS GK_CAT(gk_panels_, GK_PACK_OF)
#define GK_LINES GK_CAT(gk_lines_, GK_PACK_OF)
#define GK_COPY_PANELS GK_CAT(gk_copy_panels_, GK_PACK_OF)

/* Lines adjacent: a copy, a few steps of k at a time through all micro-panels, so that the source is read along its
 * rows (a page each, if it is wide) and not in strips of R down to the last row. */
GK_INLINE void GK_COPY_PANELS(const char *src, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R, char *dst)
{
    enum { STEPS = 16 };
    const ptrdiff_t item = (ptrdiff_t)sizeof(V_ELEM), line = R * item;
    for (ptrdiff_t p0 = 0; p0 < k; p0 += STEPS) {
        const ptrdiff_t p1 = p0 + STEPS < k ? p0 + STEPS : k;
        for (ptrdiff_t w0 = 0; w0 < w; w0 += R) {
            const ptrdiff_t full = w - w0 < R ? w - w0 : R, whole = full / V_LEN * V_LEN;
            const V_MASK mask = V_TAIL_MASK(full > whole ? (int)(full - whole) : V_LEN);
            (void)mask;
            for (ptrdiff_t p = p0; p < p1; p++) {
                const char *s = src + w0 * item + p * s_k;
                char *d = dst + w0 * k * item + p * line;
                for (ptrdiff_t i = 0; i < whole; i += V_LEN)
                    V_STORE(d + i * item, V_LOAD(s + i * item));
                if (whole < full)
                    V_STORE_TAIL(d + whole * item, mask, V_LOAD_TAIL(s + whole * item, mask));
                if (full < R)
                    memset(d + full * item, 0, (size_t)((R - full) * item));
            }
        }
    }
}

static void GK_PANELS(const char *src, ptrdiff_t s_w, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R, char *dst,
                      int32_t *sums)
{
    (void)sums; /* of panels for integers only */
    enum { AHEAD = 256 };
    const ptrdiff_t item = (ptrdiff_t)sizeof(V_ELEM), line = R * item;
    if (s_w == item) {
        GK_COPY_PANELS(src, s_k, w, k, R, dst);
        return;
    }
    for (; w > 0; w -= R, src += R * s_w, dst += k * line) {
        const ptrdiff_t full = w < R ? w : R;
        ptrdiff_t done = 0; /* lines of this micro-panel written so far */
        if (s_k == item) {
            for (; done + V_SQUARE <= full; done += V_SQUARE) {
                const char *s = src + done * s_w;
                char *d = dst + done * item;
                ptrdiff_t p = 0;
                for (; p + V_SQUARE <= k; p += V_SQUARE) {
                    /* The same lines farther on, or where they end the next ones: too short for prefetchers to follow. */
                    const ptrdiff_t far = p * item + AHEAD < k * item ? p * item + AHEAD : V_SQUARE * s_w + (p - k) * item + AHEAD;
                    GK_UNROLL
                    for (int i = 0; i < V_SQUARE; i++)
                        __builtin_prefetch(s + i * s_w + far);
                    V_TRANSPOSE(s + p * item, s_w, d + p * line, line);
                }
                for (; p < k; p++) {
                    for (int i = 0; i < V_SQUARE; i++)
                        memcpy(d + p * line + i * item, s + i * s_w + p * item, sizeof(V_ELEM));
                }
            }
        }
        for (; done < full; done++) {
            for (ptrdiff_t p = 0; p < k; p++)
                memcpy(dst + p * line + done * item, src + done * s_w + p * s_k, sizeof(V_ELEM));
        }
        if (done < R) {
            for (ptrdiff_t p = 0; p < k; p++)
                memset(dst + p * line + done * item, 0, (size_t)((R - done) * item));
        }
    }
}

static void GK_LINES(const char *src, ptrdiff_t s_w, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R, char *dst,
                      int32_t *sums)
{
    (void)sums; /* of panels for integers only */
    const ptrdiff_t item = (ptrdiff_t)sizeof(V_ELEM);
    (void)R; /* no trailers: micro-panels of lines follow each other as the lines do */
    for (ptrdiff_t i = 0; i < w; i++, src += s_w) {
        if (s_k == item) {
            memcpy(dst, src, (size_t)(k * item));
            dst += k * item;
            continue;
        }
        for (ptrdiff_t p = 0; p < k; p++, dst += item)
            memcpy(dst, src + p * s_k, sizeof(V_ELEM));
    }
}
#undef GK_PANELS
#undef GK_LINES
#undef GK_COPY_PANELS
#undef GK_PACK_OF
