/* Body of a packer of BF16 panels, in both forms of ukr.h: pairs of neighbours along k, which a dot instruction takes.
 *
 * Needs GK_PACK_OF, N_ITEM and N_WORDS(src, n, dst), which turns n adjacent elements into bfloat16.  A pair is one 32-bit
 * element to everything after that, so the float32 packer transposes pairs.  AVX-512 only. */

#define GK_PANELS GK_CAT(gk_panels_, GK_PACK_OF)
#define GK_LINES GK_CAT(gk_lines_, GK_PACK_OF)
#define GK_WORDS_ANY GK_CAT(gk_words_any_, GK_PACK_OF)
#define GK_PAIR_ROWS GK_CAT(gk_pair_rows_, GK_PACK_OF)
#define GK_TURN_LINES GK_CAT(gk_turn_lines_, GK_PACK_OF)

static void GK_WORDS_ANY(const char *src, ptrdiff_t step, ptrdiff_t n, uint16_t *dst)
{
    enum { AT_ONCE = 64 };
    char gathered[AT_ONCE * N_ITEM];
    if (step == N_ITEM) {
        N_WORDS(src, n, dst);
        return;
    }
    for (ptrdiff_t at = 0; at < n; at += AT_ONCE) {
        const ptrdiff_t some = n - at < AT_ONCE ? n - at : AT_ONCE;
        for (ptrdiff_t p = 0; p < some; p++)
            memcpy(gathered + p * N_ITEM, src + (at + p) * step, N_ITEM);
        N_WORDS(gathered, some, dst + at);
    }
}

/* One step of pairs: lines adjacent in `even` and, unless k has ended, `odd`. */
GK_INLINE __m512i GK_PAIR_ROWS(const char *even, const char *odd, ptrdiff_t full, ptrdiff_t R, char *dst, __m512i least)
{
    uint16_t words[2][GK_MOST_R];
    const uint16_t *x = words[0], *y = words[1];
    if (N_IS_WORDS) {
        x = (const uint16_t *)even;
        y = (const uint16_t *)odd;
    } else {
        N_WORDS(even, full, words[0]);
        if (odd)
            N_WORDS(odd, full, words[1]);
    }
    ptrdiff_t i = 0;
    for (; i + 16 <= full; i += 16) {
        __m512i pair = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(x + i)));
        if (odd)
            pair = _mm512_or_si512(pair, _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(y + i))), 16));
        _mm512_storeu_si512(dst + 4 * i, pair);
        least = gk_lesser_bf16_avx512(least, pair);
    }
    for (; i < R; i += 16) {
        const __mmask16 out = gk_first_avx512(R - i < 16 ? (int)(R - i) : 16);
        const __mmask16 in = i < full ? gk_first_avx512(full - i < 16 ? (int)(full - i) : 16) : 0;
        __m512i pair = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(in, x + i));
        if (odd)
            pair = _mm512_or_si512(pair, _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(in, y + i)), 16));
        _mm512_mask_storeu_epi32(dst + 4 * i, out, pair);
        least = gk_lesser_bf16_avx512(least, pair);
    }
    return least;
}

static void GK_PANELS(const char *src, ptrdiff_t s_w, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R, char *dst,
                      int32_t *sums)
{
    (void)sums; /* of panels for integers only */
    enum { STEPS = 16, DEPTH = 64 };
    const ptrdiff_t bytes = gk_panel_bytes(GK_BF16, R, k), line = 4 * R, pairs = (k + 1) / 2;
    /* While a micro-panel fills up, its trailer holds a vector of least magnitudes. */
    for (ptrdiff_t w0 = 0, at = pairs * line; w0 < w; w0 += R, at += bytes)
        memset(dst + at, 0xff, GK_TRAILER);
    if (s_w == N_ITEM) {
        for (ptrdiff_t p0 = 0; p0 < k; p0 += STEPS) {
            const ptrdiff_t p1 = p0 + STEPS < k ? p0 + STEPS : k;
            char *panel = dst;
            for (ptrdiff_t w0 = 0; w0 < w; w0 += R, panel += bytes) {
                const ptrdiff_t full = w - w0 < R ? w - w0 : R;
                __m512i least = _mm512_loadu_si512(panel + pairs * line);
                for (ptrdiff_t p = p0; p < p1; p += 2) {
                    const char *even = src + w0 * N_ITEM + p * s_k;
                    least = GK_PAIR_ROWS(even, p + 1 < k ? even + s_k : NULL, full, R, panel + p / 2 * line, least);
                }
                _mm512_storeu_si512(panel + pairs * line, least);
            }
        }
    } else {
        char *panel = dst;
        for (ptrdiff_t w0 = 0; w0 < w; w0 += R, panel += bytes) {
            uint16_t words[GK_MOST_R][DEPTH];
            const ptrdiff_t full = w - w0 < R ? w - w0 : R;
            for (ptrdiff_t p = 0; p < k; p += DEPTH) {
                const ptrdiff_t some = k - p < DEPTH ? k - p : DEPTH, steps = (some + 1) / 2;
                const char *pairs_of_lines = src + w0 * s_w + p * s_k;
                const int as_is = N_IS_WORDS && s_k == N_ITEM && some % 2 == 0;
                for (ptrdiff_t i = 0; i < full && !as_is; i++) {
                    GK_WORDS_ANY(pairs_of_lines + i * s_w, s_k, some, words[i]);
                    if (some % 2)
                        words[i][some] = 0;
                }
                gk_panels_f32f32_avx512(as_is ? pairs_of_lines : (const char *)words, as_is ? s_w : DEPTH * 2, 4, full, steps,
                                        R, panel + p / 2 * line, NULL);
                gk_update_least_avx512(panel + p / 2 * line, steps * R * 2, panel + pairs * line);
            }
        }
    }
    for (ptrdiff_t w0 = 0, at = pairs * line; w0 < w; w0 += R, at += bytes)
        gk_settle_least_avx512(dst + at);
}

/* Lines adjacent: 16 steps of k at a time become pairs in L1, of which 8 x 8 are turned over at once.  Returns how many
 * lines are done, a multiple of 8. */
GK_INLINE ptrdiff_t GK_TURN_LINES(const char *src, ptrdiff_t s_k, ptrdiff_t full, ptrdiff_t k, char *dst, char *trailer)
{
    enum { STEPS = 16 };
    const ptrdiff_t length = 2 * (k + k % 2), lines = full / 8 * 8;
    char pairs[STEPS / 2][4 * GK_MOST_R];
    __m512i least = _mm512_loadu_si512(trailer);
    if (!lines)
        return 0;
    for (ptrdiff_t p0 = 0; p0 < k; p0 += STEPS) {
        const ptrdiff_t some = k - p0 < STEPS ? k - p0 : STEPS;
        for (ptrdiff_t p = 0; p < some; p += 2) {
            const char *even = src + (p0 + p) * s_k;
            least = GK_PAIR_ROWS(even, p + 1 < some ? even + s_k : NULL, lines, lines, pairs[p / 2], least);
        }
        for (ptrdiff_t i = 0; i < lines; i += 8) {
            char *d = dst + i * length + 2 * p0;
            if (some == STEPS) {
                gk_transpose_f32_avx(pairs[0] + 4 * i, sizeof pairs[0], d, length);
                continue;
            }
            for (ptrdiff_t j = 0; j < 8; j++) {
                for (ptrdiff_t p = 0; p < some; p += 2)
                    memcpy(d + j * length + 2 * p, pairs[p / 2] + 4 * (i + j), 4);
            }
        }
    }
    _mm512_storeu_si512(trailer, least);
    return lines;
}

static void GK_LINES(const char *src, ptrdiff_t s_w, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R, char *dst,
                      int32_t *sums)
{
    (void)sums; /* of panels for integers only */
    const ptrdiff_t length = k + k % 2;
    for (; w > 0; w -= R, src += R * s_w, dst += gk_panel_bytes(GK_BF16, R, k)) {
        const ptrdiff_t full = w < R ? w : R;
        char *trailer = dst + R * length * 2;
        memset(trailer, 0xff, GK_TRAILER);
        ptrdiff_t done = 0;
        if (s_w == N_ITEM)
            done = GK_TURN_LINES(src, s_k, full, k, dst, trailer);
        for (ptrdiff_t i = done; i < full; i++) {
            uint16_t *line = (uint16_t *)dst + i * length;
            GK_WORDS_ANY(src + i * s_w, s_k, k, line);
            if (k % 2)
                line[k] = 0;
            gk_update_least_avx512((const char *)line, length, trailer);
        }
        gk_settle_least_avx512(trailer);
    }
}
#undef GK_PANELS
#undef GK_LINES
#undef GK_WORDS_ANY
#undef GK_PAIR_ROWS
#undef GK_TURN_LINES
#undef GK_PACK_OF
#undef N_ITEM
#undef N_WORDS
#undef N_IS_WORDS
