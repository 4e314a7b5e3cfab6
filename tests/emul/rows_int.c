/* The integer rows, packers and epilogues of the table against plain sums modulo 2^64, on random bits; see rows.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

static uint64_t noise(void)
{
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x * 2685821657736338717u;
}

static void fill(uint8_t *x, ptrdiff_t bytes)
{
    for (ptrdiff_t i = 0; i < bytes; i += 8) {
        const uint64_t some = noise();
        memcpy(x + i, &some, bytes - i < 8 ? (size_t)(bytes - i) : 8);
    }
}

/* 32 bits of any magnitude. */
static int32_t number(void)
{
    const int shift = (int)(noise() >> 59);
    return (int32_t)(noise() >> 32) >> shift;
}

/* Element i; of nibbles, two a byte, the low one first. */
static int64_t get(const uint8_t *x, int type, ptrdiff_t i)
{
    const int nibble = type == GK_I4 || type == GK_U4 ? x[i / 2] >> (i % 2 * 4) & 15 : 0;
    int16_t half;
    int32_t word;
    int64_t both;
    switch (type) {
    case GK_I4:
        return nibble < 8 ? nibble : nibble - 16;
    case GK_U4:
        return nibble;
    case GK_I8:
    case GK_QUADS_I8:
        return (int8_t)x[i];
    case GK_I16:
        memcpy(&half, x + 2 * i, 2);
        return half;
    case GK_I32:
        memcpy(&word, x + 4 * i, 4);
        return word;
    case GK_I64:
        memcpy(&both, x + 8 * i, 8);
        return both;
    default: /* GK_U8, GK_QUADS_U8 */
        return x[i];
    }
}

/* The low bytes: both machines are little-endian. */
static void set(uint8_t *x, int item, ptrdiff_t i, uint64_t value) { memcpy(x + item * i, &value, (size_t)item); }

static int differ(const uint8_t *x, const uint8_t *y, int item, ptrdiff_t count)
{
    int wrong = 0;
    for (ptrdiff_t i = 0; i < count; i++)
        wrong += memcmp(x + item * i, y + item * i, (size_t)item) != 0;
    return wrong;
}

/* One tile.  The sum starts at nothing, at C itself or at a row that repeats; A is in lines or, where a role takes them, panels. */
int check_integer_row(const gk_ukr *row, int m, int n, int k)
{
    static uint8_t a[(MOST_M + 1) * (MOST_K + 16) * 8], b[(MOST_K + 8) * (MOST_N + 1) * 8];
    static uint8_t c[MOST_M * (MOST_N + 1) * 8], want[sizeof c], start[(MOST_N + 1) * 8];
    const int type = row->acc_type, item = gk_item[type], kr = row->kr, steps = (k + kr - 1) / kr, ldc = n + 1;
    const int nibbles = row->b_type == GK_NIBBLES, dot = row->role == GK_DOT, turn = (m + n + k) % 6;
    const int bytes_stream = row->role == GK_STREAM && row->a_type == GK_QUADS_U8;
    /* All in bytes.  A step is KR elements, of nibbles half as many bytes. */
    const ptrdiff_t a_step = kr * gk_item[row->a_type], b_step = nibbles ? 4 : kr * gk_item[row->b_type];
    const int lines = dot || bytes_stream || turn < 3;
    const ptrdiff_t rs_a = lines ? (bytes_stream ? (k + 7) / 8 * 8 + 8 : (steps + 1) * a_step) : a_step;
    const ptrdiff_t cs_a = lines ? a_step : (m + 1) * a_step;
    const ptrdiff_t rs_b = dot ? b_step : (n + 1) * b_step, cs_b = dot ? (k + 1) * b_step : b_step;
    /* A row of bytes takes one operand where it lies, and that in the other signedness too. */
    const int a_shift = row->a_type == GK_I8 ? 128 : 0, b_shift = row->b_type == GK_U8 ? -128 : 0;
    const int add = turn % 3;
    fill(a, lines ? m * rs_a : (steps + 1) * cs_a);
    fill(b, dot ? n * cs_b : (steps + 1) * rs_b);
    fill(c, m * ldc * item);
    fill(start, n * item);
    memcpy(want, c, (size_t)(m * ldc * item));
    for (int i = 0; i < m; i++) {
        if (bytes_stream)
            memset(a + i * rs_a + k, 0, (size_t)(rs_a - k));
        for (int j = 0; j < n; j++) {
            uint64_t sum = add == 0 ? 0 : (uint64_t)(add == 1 ? get(c, type, i * ldc + j) : get(start, type, j));
            for (int p = 0; p < steps * kr; p++) {
                const uint8_t *x = a + i * rs_a + p / kr * cs_a, *y = b + p / kr * rs_b + j * cs_b;
                const int at = p % kr;
                const int64_t right = nibbles ? get(y, GK_U4, 2 * (at % 4) + at / 4) : get(y, row->b_type, at) + b_shift;
                sum += (uint64_t)(get(x, row->a_type, at) + a_shift) * (uint64_t)right;
            }
            set(want, item, i * ldc + j, sum);
        }
    }
    const gk_ukr_args g = {(const char *)a, rs_a, cs_a, (const char *)b, rs_b, cs_b, (char *)c, ldc * item,
                           add == 0 ? NULL : (const char *)(add == 1 ? c : start), add == 1 ? ldc * item : 0, m, n, steps};
    row->fn(&g);
    return differ(c, want, item, m * ldc);
}

/* One form of a packer, from rows, columns, every other element of rows, or rows read backwards. */
static int check_layout(const gk_pack *pack, int in_lines, int layout, int w, int k, int R)
{
    enum { MARGIN = 64 };
    const int from = pack->from, to = pack->to, of_nibbles = from == GK_I4 || from == GK_U4, to_nibbles = to == GK_NIBBLES;
    const int quads = to == GK_QUADS_U8 || to == GK_QUADS_I8 || to_nibbles, multiple = to == GK_QUADS_I8 ? 4 : quads ? 8 : 1;
    const int depth = (k + multiple - 1) / multiple * multiple, item = gk_item[from], panels = (w + R - 1) / R;
    const int is_signed = from == GK_I8 || from == GK_I4, up = of_nibbles || to_nibbles ? 8 : 128;
    const int shift = to == GK_QUADS_I8 ? (from == GK_U8 ? -128 : 0) : quads && is_signed ? up : 0;
    const ptrdiff_t bytes = (ptrdiff_t)panels * R * depth * (quads ? 1 : item) / (to_nibbles ? 2 : 1);
    const ptrdiff_t s_w = layout == 1 ? 1 : layout == 2 ? 2 * k + 1 : layout == 3 ? -(k + 2) : k + 1;
    const ptrdiff_t s_k = layout == 1 ? w + 1 : layout == 2 ? 2 : layout == 3 ? -1 : 1;
    const ptrdiff_t room = (ptrdiff_t)(w + 1) * (2 * k + 3), first = (layout == 3 ? room - 2 : 0) + w % 2;
    uint8_t *src = malloc((size_t)(room + 8) * 8), *dst = malloc((size_t)bytes + MARGIN), *want = malloc((size_t)bytes + MARGIN);
    int32_t *sums = malloc((size_t)(w + 1) * 4), *want_sums = malloc((size_t)(w + 1) * 4);
    fill(src, (room + 8) * 8);
    for (ptrdiff_t i = 0; to_nibbles && !of_nibbles && i < room + 8; i++)
        src[i] = (uint8_t)(src[i] % 16 - (is_signed ? 8 : 0));
    memset(dst, 0xa5, (size_t)bytes + MARGIN);
    memset(want, 0xa5, (size_t)bytes + MARGIN);
    memset(want, in_lines ? 0xa5 : 0, (size_t)bytes);
    fill((uint8_t *)sums, (w + 1) * 4);
    memcpy(want_sums, sums, (size_t)(w + 1) * 4);
    for (int line = 0; line < w; line++) {
        uint8_t *panel = want + bytes / panels * (line / R);
        const int i = line % R;
        for (int p = 0; p < depth; p++) {
            const int64_t x = p < k ? get(src, from, first + line * s_w + p * s_k) + shift : 0;
            if (quads)
                want_sums[line] = (int32_t)((uint32_t)want_sums[line] + (uint32_t)x);
            if (to_nibbles)
                panel[(p / 8 * R + i) * 4 + p % 4] |= (uint8_t)(x << (p % 8 < 4 ? 0 : 4));
            else if (in_lines)
                set(panel, quads ? 1 : item, i * depth + p, (uint64_t)x);
            else if (quads)
                panel[(p / 4 * R + i) * 4 + p % 4] = (uint8_t)x;
            else
                set(panel, item, p * R + i, (uint64_t)x);
        }
    }
    const int summing = quads && (layout + w + k) % 2;
    const uintptr_t at = of_nibbles ? 2 * (uintptr_t)src + (uintptr_t)first : (uintptr_t)(src + first * item);
    (in_lines ? pack->lines : pack->panels)((const char *)at, s_w * item, s_k * item, w, k, R, (char *)dst, summing ? sums : NULL);
    int wrong = differ(dst, want, 1, bytes + MARGIN);
    if (summing)
        wrong += differ((const uint8_t *)sums, (const uint8_t *)want_sums, 4, w + 1);
    free(src);
    free(dst);
    free(want);
    free(sums);
    free(want_sums);
    return wrong;
}

int check_integer_pack(const gk_pack *pack)
{
    static const int widths[] = {1, 3, 8, 17, 40, 131}, depths[] = {1, 2, 5, 8, 19, 33, 64, 300, 531};
    static const int panels[] = {2, 4, 6, 16, 48, 64};
    int wrong = 0;
    for (int w = 0; w < 6; w++) {
        for (int k = 0; k < 9; k++) {
            for (int R = 0; R < 6; R++) {
                for (int layout = 0; layout < 4; layout++) {
                    wrong += check_layout(pack, 0, layout, widths[w], depths[k], panels[R]);
                    if (pack->lines)
                        wrong += check_layout(pack, 1, layout, widths[w], depths[k], panels[R]);
                }
            }
        }
    }
    return wrong;
}

static double some_scale(int least)
{
    return ldexp(noise() % 2 ? 1 : 1 + (double)(noise() >> 41) / (1 << 23), least + (int)(noise() % 8));
}

/* Three rows of n sums.  Of GK_I32Q with each member of gk_epi_args present and absent, of others with each form of bias.  Half
 * the times that there are scales, their products are small powers of two and so are sums, so that there are ties. */
int check_integer_epilogue(const gk_epi *epi, int n)
{
    enum { M = 3, N = 64 };
    const int quantized = epi->acc == GK_I32Q, type = quantized ? GK_I32 : epi->acc, acc_item = gk_item[type];
    const int item = gk_item[epi->out], requantized = quantized && item == 1, lda = n + 2, ldc = n + 1;
    int32_t row[3][M], col[3][N];
    double row_scale[M], col_scale[N];
    float col_single[N];
    uint8_t acc[M * (N + 2) * 8], bias[M * (N + 2) * 8], c[M * (N + 1) * 8], want[sizeof c];
    int wrong = 0;
    for (int turn = 0; turn < 48; turn++) {
        const int kinds = quantized ? turn / 4 % 3 : 0, biased = quantized ? 0 : turn % 4;
        const int ties = noise() % 2, lowest = epi->out == GK_I8 ? -128 : 0;
        gk_epi_args e = {.acc = (const char *)acc, .rs_acc = lda * acc_item, .c = (char *)c, .rs_c = ldc * item, .alpha = 1,
                         .whole_alpha = 1, .scale = 1, .m = M, .n = n};
        fill(acc, sizeof acc);
        fill(bias, sizeof bias);
        fill(c, sizeof c);
        memcpy(want, c, sizeof c);
        if (epi->acc == epi->out) { /* the others take the sum as it is */
            e.whole_alpha = (int64_t)noise();
            e.whole_beta = (int64_t)noise();
            e.alpha = e.beta = NAN; /* for floats only */
            e.bias = biased ? (const char *)bias : NULL;
            e.rs_bias = biased == 2 ? 0 : lda * acc_item;
            e.cs_bias = biased == 3 ? 0 : acc_item;
        }
        if (quantized) {
            for (int t = 0; t < 3; t++) {
                for (int i = 0; i < M; i++)
                    row[t][i] = number();
                for (int j = 0; j < n; j++)
                    col[t][j] = number();
            }
            e.row_add = turn & 1 ? row[0] : NULL;
            e.col_add = turn & 2 ? col[0] : NULL;
            for (int t = 0; t < kinds; t++) {
                e.row_mul[t] = row[1 + t];
                e.col_mul[t] = col[1 + t];
            }
        }
        if (requantized) {
            for (int i = 0; i < M; i++)
                row_scale[i] = ties ? 1 - i % 2 * 0.5 : some_scale(-4);
            for (int j = 0; j < n; j++)
                col_scale[j] = ties ? 1 - j % 2 * 0.5 : some_scale(-4);
            e.scale = ties ? 0.5 : some_scale(-8 * (int)(noise() % 4));
            e.zero = (int)(noise() % 256) + lowest;
            e.row_scale = turn / 12 & 1 ? row_scale : NULL;
            e.col_scale = turn / 12 & 2 ? col_scale : NULL;
            e.single = ties && noise() % 2; /* float32 is exact too for these scales */
            e.col_single = e.col_scale ? col_single : NULL;
            for (int j = 0; j < n; j++)
                col_single[j] = (float)col_scale[j];
        }
        for (int i = 0; i < M; i++) {
            for (int j = 0; j < n; j++) {
                uint64_t added = (e.row_add ? (uint64_t)row[0][i] : 0) + (e.col_add ? (uint64_t)col[0][j] : 0);
                for (int t = 0; t < kinds; t++)
                    added += (uint64_t)((int64_t)row[1 + t][i] * col[1 + t][j]);
                if (requantized)
                    set(acc, 4, i * lda + j, (ties ? noise() % 1024 - 512 : (uint64_t)number()) - added);
                else if (item == 1 && noise() % 2) /* sums without low byte, or without anything */
                    set(acc, 4, i * lda + j, noise() % 2 ? 0 : 256 * noise());
                const int at = (biased == 2 ? 0 : i * lda) + (biased == 3 ? 0 : j);
                added += e.bias ? (uint64_t)e.whole_beta * (uint64_t)get(bias, type, at) : 0;
                uint64_t x = (uint64_t)get(acc, type, i * lda + j) * (uint64_t)e.whole_alpha + added;
                if (epi->out == GK_BOOL)
                    x = (uint32_t)x != 0;
                if (requantized) {
                    const double m = (e.row_scale ? e.scale * row_scale[i] : e.scale) * (e.col_scale ? col_scale[j] : 1);
                    const double y = rint((int32_t)x * m) + e.zero;
                    x = (uint64_t)(int64_t)(y < lowest ? lowest : y > lowest + 255 ? lowest + 255 : y);
                }
                set(want, item, i * ldc + j, x);
            }
        }
        epi->fn(&e);
        wrong += differ(c, want, item, M * ldc);
        if (item == acc_item) { /* in place */
            e.c = (char *)acc;
            e.rs_c = e.rs_acc;
            epi->fn(&e);
            for (int i = 0; i < M; i++)
                wrong += differ(acc + i * lda * item, want + i * ldc * item, item, n);
        }
    }
    return wrong;
}
