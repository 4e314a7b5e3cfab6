/* Body of a packer: w lines of k elements into micro-panels dst[panel][k][R], zero past w.
 *
 * Needs GK_PACK_NAME and V_TRANSPOSE(src, s_w, dst, s_dst), which moves a V_SQUARE x V_SQUARE block.  Three layouts of
 * the source, told apart by strides: lines adjacent (a copy), k adjacent (a transpose in registers), neither. */

static void GK_PACK_NAME(const char *src, ptrdiff_t s_w, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R, char *dst)
{
    const ptrdiff_t item = (ptrdiff_t)sizeof(V_ELEM), line = R * item;
    for (; w > 0; w -= R, src += R * s_w, dst += k * line) {
        const ptrdiff_t full = w < R ? w : R;
        if (s_w == item) {
            for (ptrdiff_t p = 0; p < k; p++) {
                const char *s = src + p * s_k;
                char *d = dst + p * line;
                ptrdiff_t i = 0;
                for (; i + V_LEN <= full; i += V_LEN)
                    V_STORE(d + i * item, V_LOAD(s + i * item));
                for (; i < full; i++)
                    memcpy(d + i * item, s + i * item, sizeof(V_ELEM));
                if (i < R)
                    memset(d + i * item, 0, (size_t)((R - i) * item));
            }
            continue;
        }
        ptrdiff_t done = 0; /* lines of this micro-panel written so far */
        if (s_k == item) {
            for (; done + V_SQUARE <= full; done += V_SQUARE) {
                const char *s = src + done * s_w;
                char *d = dst + done * item;
                ptrdiff_t p = 0;
                for (; p + V_SQUARE <= k; p += V_SQUARE)
                    V_TRANSPOSE(s + p * item, s_w, d + p * line, line);
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
#undef GK_PACK_NAME
