/* Every row of the kernel table that this processor can run, over all tile sizes and a few k, against plain sums of
 * integers, which are exact; every packer and every epilogue, on all codes of a narrow type.  No Python: for processors
 * that exist only under an emulator (.ci/emulate).  Nothing here converts by the project's own functions.  Here are the
 * floating-point types, in rows_int.c the integers, in rows_soft.c softmax.  SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"
#include "cpu_features.h"

/* Fraction bits and bias of a narrow type, the largest finite magnitude, whether it has infinities, and a -0. */
static const struct {
    int fraction, bias, most, infinite, minus_zero;
} formats[GK_NUM_TYPES] = {
    [GK_F16] = {10, 15, 0x7bff, 1, 1}, [GK_BF16] = {7, 127, 0x7f7f, 1, 1},    [GK_E4M3FN] = {3, 7, 0x7e, 0, 1},
    [GK_E4M3FNUZ] = {3, 8, 0x7f, 0, 0}, [GK_E5M2] = {2, 15, 0x7b, 1, 1}, [GK_E5M2FNUZ] = {2, 16, 0x7f, 0, 0},
};

static double value_of(int type, int code)
{
    const int top = 8 * gk_item[type] - 1, size = code & ((1 << top) - 1), fraction = formats[type].fraction;
    const int exponent = size >> fraction, low = size & ((1 << fraction) - 1);
    double x = ldexp(low + (exponent ? 1 << fraction : 0), (exponent ? exponent : 1) - formats[type].bias - fraction);
    if (size > formats[type].most)
        x = formats[type].infinite && size == formats[type].most + 1 ? INFINITY : NAN;
    if (!formats[type].minus_zero && code == 1 << top)
        x = NAN;
    return code >> top ? -x : x;
}

static double get(const void *x, int type, int i)
{
    uint16_t word = ((const uint8_t *)x)[i];
    if (type == GK_F32)
        return ((const float *)x)[i];
    if (type == GK_F64)
        return ((const double *)x)[i];
    if (type == GK_BOOL) /* of a mask: what is added to scores */
        return word ? 0 : -INFINITY;
    if (gk_item[type] == 2)
        memcpy(&word, (const char *)x + 2 * i, 2);
    return value_of(type, word);
}

static void set(void *x, int type, int i, double value)
{
    if (type == GK_F32) {
        ((float *)x)[i] = (float)value;
    } else if (type == GK_F64) {
        ((double *)x)[i] = value;
    } else {
        static int codes[GK_NUM_TYPES][16]; /* of -8 to 7, found once by trying all */
        int *found = &codes[type][(int)value + 8];
        while (value && value_of(type, *found) != value)
            ++*found;
        if (gk_item[type] == 2)
            ((uint16_t *)x)[i] = (uint16_t)*found;
        else
            ((uint8_t *)x)[i] = (uint8_t)*found;
    }
}

/* Equal, NaN being equal to NaN. */
static int same(double x, double y) { return x == y || (isnan(x) && isnan(y)); }

/* Wrong elements of one tile, and elements written beside it. */
static int check_row(const gk_ukr *row, int m, int n, int k)
{
    static double a_memory[MOST_M * (MOST_K + 4)], b_memory[(MOST_K + 4) * (MOST_N + 1)], c_memory[MOST_M * (MOST_N + 1)];
    const int a_item = gk_item[row->a_type], b_item = gk_item[row->b_type], item = gk_item[row->acc_type];
    /* A dot row wants B's columns contiguous, the others its rows; groups of KR are adjacent, so one is a step of k. */
    const int kr = row->kr, steps = (k + kr - 1) / kr, lda = (steps + 1) * kr, ldc = n + 1;
    const int rs_b = row->role == GK_DOT ? 1 : n * kr, cs_b = row->role == GK_DOT ? k + 1 : kr;
    int wrong = 0;
    for (int i = 0; i < m * lda; i++)
        set(a_memory, row->a_type, i, i * 7 % 13 - 6);
    for (int i = 0; i < (steps + 1) * kr * (n + 1); i++)
        set(b_memory, row->b_type, i, i * 5 % 11 - 5);
    for (int i = 0; i < m && kr > 1; i++) { /* the last group ends with zeros */
        for (int p = k; p < steps * kr; p++)
            set(a_memory, row->a_type, i * lda + p, 0);
    }
    for (int i = 0; i < m * ldc; i++)
        set(c_memory, row->acc_type, i, NAN);
    const gk_ukr_args g = {(const char *)a_memory, lda * a_item, kr * a_item, (const char *)b_memory, rs_b * b_item,
                           cs_b * b_item, (char *)c_memory, ldc * item, NULL, 0, m, n, steps};
    row->fn(&g);
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int p = 0; p < k; p++)
                sum += get(a_memory, row->a_type, i * lda + p) * get(b_memory, row->b_type, p / kr * rs_b + j * cs_b + p % kr);
            wrong += get(c_memory, row->acc_type, i * ldc + j) != sum;
        }
        wrong += !isnan(get(c_memory, row->acc_type, i * ldc + n));
    }
    return wrong;
}

/* What a source of a packer or of an epilogue holds at i: all codes in order, or numbers.  Half of the bools are 0. */
static void fill(void *x, int type, int count)
{
    for (int i = 0; i < count; i++) {
        if (type == GK_F32)
            ((float *)x)[i] = (float)(i * 2654435761.0);
        else if (type == GK_F64)
            ((double *)x)[i] = i * 2654435761.0;
        else if (type == GK_BOOL)
            ((uint8_t *)x)[i] = (uint8_t)(i % 2 ? i / 2 : 0);
        else if (gk_item[type] == 2)
            ((uint16_t *)x)[i] = (uint16_t)i;
        else
            ((uint8_t *)x)[i] = (uint8_t)i;
    }
}

/* Wrong elements of both forms of a packer, which takes lines of `depth` from one long array. */
static int check_pack(const gk_pack *pack, int count, int depth, int R, int transposed)
{
    const int from = pack->from, to = pack->to, kr = to == GK_BF16 ? 2 : 1, lines = count / depth;
    const int panels = (lines + R - 1) / R, steps = (depth + kr - 1) / kr * kr;
    const size_t bytes = (size_t)gk_panel_bytes(to, R, depth);
    char *src = malloc((size_t)count * 8), *dst = malloc(panels * bytes);
    int wrong = 0;
    fill(src, from, count);
    for (int form = 0; form < 2; form++) {
        const ptrdiff_t s_w = transposed ? 1 : depth, s_k = transposed ? lines : 1;
        (form ? pack->lines : pack->panels)(src, s_w * gk_item[from], s_k * gk_item[from], lines, depth, R, dst, NULL);
        for (int q = 0; q < panels; q++) {
            const char *panel = dst + (size_t)q * bytes;
            int least = 0x7fff;
            for (int i = 0; i < R && (!form || q * R + i < lines); i++) {
                for (int p = 0; p < steps; p++) {
                    const int at = form ? i * steps + p : p / kr * R * kr + i * kr + p % kr, line = q * R + i;
                    const double x = line < lines && p < depth ? get(src, from, (int)(line * s_w + p * s_k)) : 0;
                    wrong += !same(get(panel, to, at), x);
                    if (to == GK_BF16) {
                        const int size = ((const uint16_t *)panel)[at] & 0x7fff;
                        least = size && size < least ? size : least;
                    }
                }
            }
            wrong += to == GK_BF16 && gk_least_of(panel, R, depth) != least;
        }
    }
    free(src);
    free(dst);
    return wrong;
}

/* An epilogue with alpha 1 takes every code's value to that code, and a value a quarter of a step from it too. */
static int check_epilogue(const gk_epi *epi, int n)
{
    const int narrow = epi->out != epi->acc, count = !narrow ? 1000 : gk_item[epi->out] == 2 ? 1 << 16 : 256;
    double acc[100], c[100];
    int wrong = 0;
    for (int first = 0; first < count; first += n) {
        for (int quarter = -1; quarter <= 1; quarter++) {
            double want[100];
            const int some = count - first < n ? count - first : n;
            for (int j = 0; j < some; j++) {
                const int code = first + j;
                want[j] = narrow ? value_of(epi->out, code) : code - 500;
                double x = want[j];
                if (narrow && isfinite(x)) { /* half a step down where codes get twice as dense: stay above that */
                    const int top = 8 * gk_item[epi->out] - 1, size = code & ((1 << top) - 1);
                    const double up = value_of(epi->out, size + 1);
                    x += quarter * 0.24 * (isfinite(up) ? up - fabs(x) : 0);
                }
                if (epi->acc == GK_F32)
                    ((float *)acc)[j] = (float)x;
                else
                    acc[j] = x;
            }
            memset(c, 0xff, sizeof c);
            const gk_epi_args e = {.acc = (const char *)acc, .c = (char *)c, .alpha = 1, .m = 1, .n = some};
            epi->fn(&e);
            for (int j = 0; j < some; j++)
                wrong += !same(get(c, epi->out, j), want[j]);
            wrong += ((const uint8_t *)c)[some * gk_item[epi->out]] != 0xff;
        }
    }
    return wrong;
}

/* Sums that scales wait for: what is a code's value after them gives that code, a quarter of a step from it too, and what is
 * too large the largest. */
static int check_scaled(const gk_epi *epi, int n)
{
    const int type = epi->out, most = formats[type].most;
    int wrong = 0;
    for (int first = 0; first < 256; first += n) {
        for (int turn = 0; turn < 24; turn++) {
            const int some = 256 - first < n ? 256 - first : n, quarter = turn % 3 - 1;
            const double zero = turn & 8 ? -1.5 : 0, row_scale = 0.25;
            double col_scale[100], want[100];
            float acc[100];
            uint8_t c[101];
            gk_epi_args e = {.acc = (const char *)acc, .c = (char *)c, .scale = 0.5, .zero = zero, .m = 1, .n = some};
            e.row_scale = turn & 1 ? &row_scale : NULL;
            e.col_scale = turn & 2 ? col_scale : NULL;
            for (int j = 0; j < some; j++) {
                const int code = first + j, size = code & 127;
                const double up = value_of(type, size + 1), sign = code >> 7 ? -1 : 1;
                double x = want[j] = value_of(type, code);
                col_scale[j] = j % 2 ? 8 : -2;
                if (isfinite(x) && size != most)
                    x += quarter * 0.24 * (up - fabs(x));
                if (size == most)
                    x *= turn < 12 ? 1 : quarter ? 1e5 : 1.2;
                if (isinf(x))
                    want[j] = sign * value_of(type, most);
                acc[j] = (float)((x - zero) / (0.5 * (turn & 1 ? row_scale : 1) * (turn & 2 ? col_scale[j] : 1)));
            }
            memset(c, 0xff, sizeof c);
            epi->fn(&e);
            for (int j = 0; j < some; j++)
                wrong += !same(value_of(type, c[j]), want[j]);
            wrong += c[some] != 0xff;
        }
    }
    return wrong;
}

/* The same halfway between two codes, and so near it that float32 can't tell. */
static int check_scaled_ties(const gk_epi *epi, int n)
{
    int wrong = 0;
    for (int first = 0; first < 2 * formats[epi->out].most; first += n) {
        for (int off = -1; off <= 1; off++) {
            double col_scale[100], want[100];
            float acc[100];
            uint8_t c[100];
            const gk_epi_args e = {.acc = (const char *)acc, .c = (char *)c, .scale = 1, .col_scale = col_scale, .m = 1, .n = n};
            for (int j = 0; j < n; j++) {
                const int size = (first + j) / 2 % formats[epi->out].most, upwards = off ? off > 0 : size % 2;
                col_scale[j] = (value_of(epi->out, size) + value_of(epi->out, size + 1)) / 2 * (1 + off * 0x1p-40);
                acc[j] = (first + j) % 2 ? -1 : 1;
                want[j] = acc[j] * value_of(epi->out, size + upwards);
            }
            epi->fn(&e);
            for (int j = 0; j < n; j++)
                wrong += !same(value_of(epi->out, c[j]), want[j]);
        }
    }
    return wrong;
}

static int check_any_row(const gk_ukr *row)
{
    static const int depths[] = {0, 1, 2, 3, 4, 9, 14, 19, 37, 64, 131, MOST_K}; /* of vectors along k: the longer ones too */
    const int integer = row->acc_type != GK_F32 && row->acc_type != GK_F64;
    const int widest = row->role == GK_STREAM ? 3 * row->vl + 1 : row->nr, some = row->role == GK_DOT ? 12 : row->kr > 1 ? 11 : 8;
    int wrong = 0;
    for (int m = 1; m <= row->mr; m++) {
        for (int n = 1; n <= widest; n++) {
            for (int k = 0; k < some; k++)
                wrong += (integer ? check_integer_row : check_row)(row, m, n, depths[k]);
        }
    }
    return wrong;
}

static int check_any_pack(const gk_pack *pack)
{
    int wrong = 0;
    if (pack->from > GK_E5M2FNUZ && pack->from != GK_BOOL)
        return check_integer_pack(pack);
    for (int transposed = 0; transposed < 2; transposed++) {
        wrong += check_pack(pack, gk_item[pack->from] == 1 ? 512 : 1 << 16, 64, 48, transposed);
        wrong += check_pack(pack, 5 * 37, 37, 4, transposed);
    }
    return wrong;
}

static int check_any_epilogue(const gk_epi *epi)
{
    int (*const check)(const gk_epi *, int) =
        epi->acc == GK_F32Q ? check_scaled : epi->acc > GK_E5M2FNUZ ? check_integer_epilogue : check_epilogue;
    int wrong = 0;
    for (int n = 1; n <= 40; n += n < 17 ? 5 : 11) {
        wrong += check(epi, n);
        wrong += epi->acc == GK_F32Q ? check_scaled_ties(epi, n) : 0;
    }
    return wrong;
}

/* Names what is wrong. */
static int counted(const char *name, int wrong)
{
    if (wrong)
        fprintf(stderr, "%s: wrong elements %d\n", name, wrong);
    return wrong;
}

int main(void)
{
    gk_cpu cpu;
    int wrong = 0, ran = 0, packed = 0, finished = 0, weighed = 0;
    gk_cpu_detect(&cpu);
    for (int i = 0; i < gk_num_rows; i++) {
        if (gk_rows[i].isa & ~cpu.isa_mask)
            continue;
        ran++;
        wrong += counted(gk_rows[i].name, check_any_row(&gk_rows[i]));
    }
    for (int i = 0; i < gk_num_packs; i++) {
        if (gk_packs[i].isa & ~cpu.isa_mask)
            continue;
        packed++;
        wrong += counted(gk_packs[i].name, check_any_pack(&gk_packs[i]));
    }
    for (int i = 0; i < gk_num_epis; i++) {
        if (gk_epis[i].isa & ~cpu.isa_mask)
            continue;
        finished++;
        wrong += counted(gk_epis[i].name, check_any_epilogue(&gk_epis[i]));
    }
    for (int i = 0; i < gk_num_softs; i++) {
        if (gk_softs[i].isa & ~cpu.isa_mask)
            continue;
        weighed++;
        wrong += counted(gk_softs[i].name, check_soft(&gk_softs[i]));
    }
    printf("instruction sets %x, rows run %d of %d, packers %d of %d, epilogues %d of %d, softmax rows %d of %d, ",
           cpu.isa_mask, ran, gk_num_rows, packed, gk_num_packs, finished, gk_num_epis, weighed, gk_num_softs);
    printf("wrong elements %d\n", wrong);
    return wrong != 0;
}
