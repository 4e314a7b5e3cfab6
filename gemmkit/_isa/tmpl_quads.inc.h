/* Body of a packer of QUADS, in both forms of ukr.h, with the sums of lines.
 *
 * Needs GK_PACK_OF, P_TO (GK_QUADS_U8 or GK_QUADS_I8), P_TURN (what each byte is xor'ed with), P_OF_NIBBLES (whether the
 * source is nibbles; P_TURN 8 then means that they are signed) and P_SET, whose header has
 *
 *   gk_fetch_bytes_<set>(src, step, n, turn, dst)      n bytes, `step` apart, adjacent at dst
 *   gk_fetch_nibbles_<set>(src, step, n, to, turn, dst)
 *   gk_sum_bytes_<set>(line, n, is_signed)
 *   gk_interleave_<set>(rows, step, turn, quads, R, columns, dst, sums, w, is_signed)
 *                                                      4 x quads rows, `step` apart, of `columns` bytes rounded up to 16; R quads
 *                                                      from one step to the next at dst; the first w lines have sums
 *   gk_spread_<set>(quads, w, n, dst, rs_dst)          n quads of each of w lines, to the lines
 *   P_PLAIN_PANELS                                     the packer of 32-bit panels
 */
#define GK_PANELS GK_CAT(gk_panels_, GK_PACK_OF)
#define GK_LINES GK_CAT(gk_lines_, GK_PACK_OF)
#define P_OF(stem) GK_CAT(stem, P_SET)
#define P_SIGNED (P_TO == GK_QUADS_I8)
#if P_OF_NIBBLES
#define P_FETCH(src, step, n, dst) P_OF(gk_fetch_nibbles_)(src, step, n, P_TO, P_TURN, dst)
#else
#define P_FETCH(src, step, n, dst) P_OF(gk_fetch_bytes_)(src, step, n, P_TURN, dst)
#endif

static void GK_PANELS(const char *src, ptrdiff_t s_w, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R, char *dst,
                      int32_t *sums)
{
    enum { STEPS = 16, DEPTH = 256 };
    const ptrdiff_t depth = gk_depth(P_TO, k);
    if (s_w == 1) {
        /* A few steps of k at a time through all micro-panels, as in tmpl_pack.inc.h; rows pass L1, converted. */
        uint8_t rows[STEPS][GK_MOST_R];
        memset(rows, 0, sizeof rows);
        for (ptrdiff_t p0 = 0; p0 < k; p0 += STEPS) {
            const ptrdiff_t some = k - p0 < STEPS ? k - p0 : STEPS;
            for (ptrdiff_t w0 = 0; w0 < w; w0 += R) {
                const ptrdiff_t full = w - w0 < R ? w - w0 : R;
                char *to = dst + w0 * depth + p0 * R;
                ptrdiff_t p = 0, done = 0;
                if (!P_OF_NIBBLES && some == STEPS) {
                    done = full / 16 * 16;
                    P_OF(gk_interleave_)((const uint8_t *)src + w0 + p0 * s_k, s_k, P_TURN, STEPS / 4, R, done, to,
                                         sums ? sums + w0 : NULL, done, P_SIGNED);
                    if (done == full) {
                        for (ptrdiff_t q = 0; q < STEPS / 4 && done < R; q++)
                            memset(to + 4 * (q * R + done), 0, (size_t)(4 * (R - done)));
                        continue;
                    }
                }
                for (; p < some; p++) {
                    P_FETCH(src + w0 + done + (p0 + p) * s_k, 1, full - done, rows[p]);
                    memset(rows[p] + full - done, 0, (size_t)(R - full));
                }
                for (; p0 + p < depth && p < STEPS; p++)
                    memset(rows[p], 0, sizeof rows[p]);
                P_OF(gk_interleave_)(rows[0], GK_MOST_R, 0, p / 4, R, R - done, to + 4 * done, sums ? sums + w0 + done : NULL,
                                     full - done, P_SIGNED);
            }
        }
        return;
    }
    for (ptrdiff_t w0 = 0; w0 < w; w0 += R, dst += R * depth) {
        uint8_t lines[GK_MOST_R][DEPTH]; /* in L1, to be transposed from there, four bytes at a time */
        const ptrdiff_t full = w - w0 < R ? w - w0 : R;
        if (!P_OF_NIBBLES && P_TURN == 0 && s_k == 1 && k == depth) {
            P_PLAIN_PANELS(src + w0 * s_w, s_w, 4, full, k / 4, R, dst, NULL);
            for (ptrdiff_t i = 0; sums && i < full; i++)
                sums[w0 + i] = (int32_t)((uint32_t)sums[w0 + i]
                                         + P_OF(gk_sum_bytes_)((const uint8_t *)src + (w0 + i) * s_w, k, P_SIGNED));
            continue;
        }
        for (ptrdiff_t p = 0; p < k; p += DEPTH) {
            const ptrdiff_t some = k - p < DEPTH ? k - p : DEPTH, padded = gk_depth(P_TO, some);
            for (ptrdiff_t i = 0; i < full; i++) {
                P_FETCH(src + (w0 + i) * s_w + p * s_k, s_k, some, lines[i]);
                memset(lines[i] + some, 0, (size_t)(padded - some));
                if (sums)
                    sums[w0 + i] = (int32_t)((uint32_t)sums[w0 + i] + P_OF(gk_sum_bytes_)(lines[i], some, P_SIGNED));
            }
            P_PLAIN_PANELS((const char *)lines, DEPTH, 4, full, padded / 4, R, dst + p * R, NULL);
        }
    }
}

static void GK_LINES(const char *src, ptrdiff_t s_w, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R, char *dst,
                     int32_t *sums)
{
    enum { STEPS = 32 };
    const ptrdiff_t depth = gk_depth(P_TO, k);
    for (ptrdiff_t w0 = 0; w0 < w; w0 += R, dst += R * depth) {
        const ptrdiff_t full = w - w0 < R ? w - w0 : R;
        if (s_w == 1 && s_k != 1 && full >= 8) {
            /* Lines adjacent: quads first, which are then spread to their lines.  A few lines are as soon gathered. */
            uint8_t rows[STEPS][GK_MOST_R];
            char quads[STEPS / 4 * 4 * GK_MOST_R];
            memset(rows, 0, sizeof rows);
            for (ptrdiff_t p0 = 0; p0 < k; p0 += STEPS) {
                const ptrdiff_t some = k - p0 < STEPS ? k - p0 : STEPS;
                ptrdiff_t p = 0;
                if (!P_OF_NIBBLES && some == STEPS && full % 16 == 0) {
                    P_OF(gk_interleave_)((const uint8_t *)src + w0 + p0 * s_k, s_k, P_TURN, STEPS / 4, GK_MOST_R, full, quads,
                                         sums ? sums + w0 : NULL, full, P_SIGNED);
                    P_OF(gk_spread_)(quads, full, STEPS / 4, dst + p0, depth);
                    continue;
                }
                for (; p < some; p++)
                    P_FETCH(src + w0 + (p0 + p) * s_k, 1, full, rows[p]);
                for (; p0 + p < depth && p < STEPS; p++)
                    memset(rows[p], 0, sizeof rows[p]);
                P_OF(gk_interleave_)(rows[0], GK_MOST_R, 0, p / 4, GK_MOST_R, (full + 15) / 16 * 16, quads, sums ? sums + w0 : NULL, full,
                                     P_SIGNED);
                P_OF(gk_spread_)(quads, full, p / 4, dst + p0, depth);
            }
            continue;
        }
        for (ptrdiff_t i = 0; i < full; i++) {
            uint8_t *line = (uint8_t *)dst + i * depth;
            P_FETCH(src + (w0 + i) * s_w, s_k, k, line);
            memset(line + k, 0, (size_t)(depth - k));
            if (sums)
                sums[w0 + i] = (int32_t)((uint32_t)sums[w0 + i] + P_OF(gk_sum_bytes_)(line, k, P_SIGNED));
        }
    }
}
#undef GK_PANELS
#undef GK_LINES
#undef P_OF
#undef P_SIGNED
#undef P_FETCH
#undef GK_PACK_OF
#undef P_TO
#undef P_TURN
#undef P_OF_NIBBLES
