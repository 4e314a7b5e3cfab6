/* The softmax rows of the table against expl and tanhl, with the bounds of tests/test_softmax.py; see rows.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

enum { MOST_KEYS = 129, MOST_LANES = 3 * 16, MARGIN = 64, MAGNITUDES = 40 };

/* The arrays of one call, one after the other, and what they held before it: to tell what else was written. */
static uint64_t memory[4 * MOST_KEYS * (MOST_LANES + 8) + 10 * (MOST_LANES + MARGIN)], before[sizeof memory / 8];

static uint64_t noise(void)
{
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x * 2685821657736338717u;
}

static double uniform(double from, double to) { return from + (to - from) * ((double)(noise() >> 11) * 0x1p-53); }

static double round_to(int type, double x) { return type == GK_F32 ? (double)(float)x : x; }

static double get(const char *x, int type, ptrdiff_t i)
{
    float single;
    double both;
    uint16_t half;
    uint32_t word;
    if (type == GK_F64) {
        memcpy(&both, x + 8 * i, 8);
        return both;
    }
    if (type == GK_F32) {
        memcpy(&single, x + 4 * i, 4);
        return single;
    }
    memcpy(&half, x + 2 * i, 2); /* GK_BF16: the upper half of a float32 */
    word = (uint32_t)half << 16;
    memcpy(&single, &word, 4);
    return single;
}

static void set(const char *x, int type, ptrdiff_t i, double value)
{
    const float single = (float)value;
    memcpy((char *)x + gk_item[type] * i, type == GK_F32 ? (const void *)&single : (const void *)&value, (size_t)gk_item[type]);
}

/* Equal, NaN being equal to NaN. */
static int same(long double x, long double y) { return x == y || (isnan(x) && isnan(y)); }

static int digits(int type) { return type == GK_F32 ? 24 : type == GK_F64 ? 53 : 8; }
static long double unit(int type) { return ldexpl(1, -digits(type)); }
static double least_normal(int type) { return type == GK_F64 ? 0x1p-1022 : 0x1p-126; }
static double least_of_all(int type) { return type == GK_F64 ? 0x1p-1074 : 0x1p-149; }
static long double exp_bound(const gk_soft *row) { return row->isa & (GK_ISA_AVX2 | GK_ISA_AVX512) ? 1.0L : 1.25L; }
static long double weight_bound(const gk_soft *row) { return row->out == GK_BF16 ? 0.5L + 0x1p-16L : exp_bound(row); }

/* |got - want| in units of the last place that `want` would have in a type. */
static long double ulps(double got, long double want, int type)
{
    int exponent;
    frexpl(want, &exponent);
    const int least = type == GK_F64 ? -1021 : -125;
    return ldexpl(fabsl(got - want), digits(type) - (exponent < least ? least : exponent));
}

/* Whether a weight is what expl says, in so many units of the last place; it vanishes below the least normal number. */
static int is_weight(double got, double x, int type, long double bound)
{
    const long double want = expl(x), least = least_normal(type);
    return got == 0 ? want < least * 1.0001L : got >= (double)least && ulps(got, want, type) <= bound;
}

/* Arrays for n keys and so many lanes, aligned to the element only, their rows apart. */
static gk_soft_args lay_out(const gk_soft *row, int n, int lanes)
{
    const ptrdiff_t item = gk_item[row->acc], line = lanes * item;
    const int pairs = row->out == GK_BF16;
    gk_soft_args a = {.n = n, .lanes = lanes, .factor = 1, .rs_s = line + 3 * item, .rs_bias = line + item};
    char **const vectors[] = {&a.max, &a.next, &a.alpha, &a.sum, (char **)&a.low, (char **)&a.high};
    char *at = (char *)memory + MARGIN + item;
    a.rs_p = pairs ? 4 * (lanes + 2) : line + 5 * item;
    memset(memory, 0xa5, sizeof memory);
    a.s = at;
    at += n * a.rs_s + MARGIN;
    a.p = at;
    at += (pairs ? (n + 1) / 2 : n) * a.rs_p + MARGIN;
    a.bias = at;
    at += n * a.rs_bias + MARGIN;
    for (int i = 0; i < 6; i++, at += line + MARGIN)
        *vectors[i] = at;
    return a;
}

/* Whatever these rows hold now was the call's to write. */
static void allow(const char *x, ptrdiff_t step, ptrdiff_t rows, ptrdiff_t bytes)
{
    for (ptrdiff_t i = 0; i < rows; i++)
        memcpy((char *)before + (x + i * step - (char *)memory), x + i * step, (size_t)bytes);
}

static int written_elsewhere(void)
{
    int wrong = 0;
    if (!memcmp(memory, before, sizeof memory)) /* much sooner known than by the bytes */
        return 0;
    for (size_t i = 0; i < sizeof memory; i++)
        wrong += ((const char *)memory)[i] != ((const char *)before)[i];
    return wrong;
}

static double weight(const gk_soft *row, const gk_soft_args *a, int key, int lane)
{
    if (row->out == GK_BF16)
        return get(a->p + key / 2 * a->rs_p, GK_BF16, 2 * lane + key % 2);
    return get(a->p + key * a->rs_p, row->acc, lane);
}

/* Numbers of every exponent up to the largest that exp takes, most of them negative; others evenly between -most and 1, or
 * near the logarithm of the least normal number. */
static double magnitude(int type, int i)
{
    const int exponents = type == GK_F64 ? 1084 : 156, lowest = type == GK_F64 ? -1074 : -149;
    const double most = type == GK_F64 ? 709 : 88;
    const double sign = i / 2 / exponents % 4 ? -1 : 1;
    if (i % 16 == 1)
        return round_to(type, log(least_normal(type)) + uniform(-0.02, 0.02));
    return round_to(type, i % 2 ? uniform(-most, 1) : sign * ldexp(uniform(1, 2), lowest + i / 2 % exponents));
}

/* Weights beside a maximum of 0, and what a cap of 1 makes of scores, which is tanh. */
static int check_magnitudes(const gk_soft *row)
{
    enum { KEYS = 128 };
    const int type = row->acc, lanes = 3 * row->vl, count = (type == GK_F64 ? 1084 : 156) * MAGNITUDES * 2;
    static double x[KEYS][MOST_LANES];
    int wrong = 0;
    for (int i = 0; i < count;) {
        gk_soft_args a = lay_out(row, KEYS, lanes);
        a.bias = a.low = a.high = NULL;
        for (int j = 0; j < KEYS; j++) {
            for (int l = 0; l < lanes; l++)
                set(a.s + j * a.rs_s, type, l, x[j][l] = magnitude(type, i++));
        }
        for (int l = 0; l < lanes; l++) {
            set(a.max, type, l, 0);
            set(a.next, type, l, 0);
            set(a.sum, type, l, 0);
        }
        wrong += row->weigh(&a) != 0;
        for (int j = 0; j < KEYS; j++) {
            for (int l = 0; l < lanes; l++) {
                if (x[j][l] <= 1)
                    wrong += !is_weight(weight(row, &a, j, l), x[j][l], row->out, weight_bound(row));
            }
        }
        a.softcap = 1;
        row->scan(&a);
        for (int j = 0; j < KEYS; j++) {
            for (int l = 0; l < lanes; l++)
                wrong += ulps(get(a.s + j * a.rs_s, type, l), tanhl(x[j][l]), type) > 1.5L;
        }
    }
    return wrong;
}

/* Any score: in some lanes there is no key, in others few, or all far below one. */
static double some_score(int lane, int key)
{
    const double x = uniform(-20, 20);
    switch (lane % 5) {
    case 1:
        return -INFINITY;
    case 2:
        return noise() % 3 ? -INFINITY : x;
    case 3:
        return key ? -1e20 : x;
    default:
        return x;
    }
}

/* Weights of scores as they are now; the maxima have been found. */
static int check_weigh(const gk_soft *row, gk_soft_args *a)
{
    const int type = row->acc, lanes = (int)a->lanes, n = (int)a->n, pairs = row->out == GK_BF16;
    const ptrdiff_t line = lanes * gk_item[type], out_rows = pairs ? (n + 1) / 2 : n;
    const double f = round_to(type, a->factor);
    int wrong = 0, any = 0;
    memcpy(before, memory, sizeof memory);
    const int changed = row->weigh(a);
    for (int l = 0; l < lanes; l++) {
        const char *const old = (const char *)before; /* what weigh has overwritten */
        const double last = get(old + (a->max - (char *)memory), type, l), next = get(a->next, type, l);
        const double sum = get(old + (a->sum - (char *)memory), type, l), alpha = get(a->alpha, type, l);
        const double m = next == -INFINITY ? 0 : next;
        long double total = (long double)sum * alpha;
        for (int j = 0; j < n; j++) {
            const double x = round_to(type, round_to(type, get(a->s + j * a->rs_s, type, l) * f) - m), p = weight(row, a, j, l);
            wrong += !is_weight(p, x, row->out, weight_bound(row));
            total += p;
        }
        if (pairs && n % 2)
            wrong += get(a->p + n / 2 * a->rs_p, GK_BF16, 2 * l + 1) != 0;
        wrong += !is_weight(alpha, round_to(type, last - m), type, exp_bound(row));
        wrong += last == next && next != -INFINITY && alpha != 1;
        wrong += fabsl(get(a->sum, type, l) - total) > (n + 4) * unit(type) * total;
        wrong += get(a->max, type, l) != next;
        any |= alpha != 1;
    }
    allow(a->p, a->rs_p, out_rows, pairs ? 4 * lanes : line);
    allow(a->max, 0, 1, line);
    allow(a->sum, 0, 1, line);
    allow(a->alpha, 0, 1, line);
    return wrong + (!changed != !any) + written_elsewhere();
}

/* Scan and weigh as the engine calls them, then rescale and divide, on one tile; `turn` says what scan has to do. */
static int check_tile(const gk_soft *row, int n, int lanes, int turn)
{
    static double s[MOST_KEYS][MOST_LANES];
    const int type = row->acc, item = gk_item[type], biased = turn % 3, bounded = turn / 3 % 2, plain = !(turn % 12);
    const ptrdiff_t line = lanes * item;
    const double factor = turn / 12 ? 1.37 : 1, f = round_to(type, factor), cap = turn / 6 % 2 ? round_to(type, 30.3) : 0;
    const long double u = unit(type);
    int wrong = 0;
    gk_soft_args a = lay_out(row, n, lanes);
    const char *const bias = a.bias, *const low = a.low, *const high = a.high;
    a.factor = factor;
    a.softcap = cap;
    a.one_bias = biased == 2;
    for (int l = 0; l < lanes; l++) {
        for (int j = 0; j < n; j++) {
            set(a.s + j * a.rs_s, type, l, some_score(l + turn, j));
            set(bias + j * a.rs_bias, type, l, noise() % 4 ? uniform(-9, 9) : -INFINITY);
            s[j][l] = get(a.s + j * a.rs_s, type, l);
        }
        const int is_new = noise() % 3 == 0, first = (int)(noise() % (unsigned)(n + 1));
        set(a.max, type, l, is_new ? -INFINITY : uniform(-30, 30));
        set(a.sum, type, l, is_new ? 0 : uniform(1, 9));
        set(low, type, l, l % 3 ? first : 0);
        set(high, type, l, l % 3 == 2 ? first + (int)(noise() % (unsigned)(n + 1 - first)) : n);
    }
    a.bias = biased ? bias : NULL;
    a.low = bounded ? low : NULL;
    a.high = bounded ? high : NULL;
    memcpy(before, memory, sizeof memory);
    row->scan(&a);
    for (int l = 0; l < lanes; l++) {
        double most = get(a.max, type, l);
        for (int j = 0; j < n; j++) {
            const double stored = get(a.s + j * a.rs_s, type, l), scaled = round_to(type, s[j][l] * f);
            long double z = scaled, off = 0;
            if (cap) {
                z = cap * tanhl(scaled / (long double)cap);
                off = 5.5L * u * fabsl(z) + (cap + 1) * least_of_all(type);
            }
            if (biased) {
                const double added = get(bias + j * a.rs_bias, type, biased == 2 ? 0 : l);
                z = cap ? z + added : round_to(type, (double)z + added);
                z = added == -INFINITY ? added : z; /* whatever the score is */
                off += cap ? u * fabsl(z) : 0;
            }
            if (bounded && (j < get(low, type, l) || j >= get(high, type, l)))
                z = -INFINITY;
            wrong += plain ? !same(stored, s[j][l]) : !same(stored, z) && !(isfinite(z) && fabsl(stored - z) <= off);
            most = fmax(most, plain ? scaled : stored);
        }
        wrong += get(a.next, type, l) != most;
    }
    allow(a.next, 0, 1, line);
    if (!plain)
        allow(a.s, a.rs_s, n, line);
    wrong += written_elsewhere();
    a.factor = plain ? factor : 1; /* scan has multiplied what it stores */
    wrong += check_weigh(row, &a);
    for (int divides = 0; divides < 2; divides++) {
        for (int l = 0; l < lanes; l++) {
            for (int j = 0; j < n; j++)
                set(a.s + j * a.rs_s, type, l, s[j][l] = round_to(type, uniform(-3, 3)));
        }
        memcpy(before, memory, sizeof memory);
        (divides ? row->divide : row->rescale)(&a);
        for (int l = 0; l < lanes; l++) {
            const double by = get(divides ? a.sum : a.alpha, type, l);
            for (int j = 0; j < n; j++)
                wrong += !same(get(a.s + j * a.rs_s, type, l), round_to(type, divides ? s[j][l] / by : s[j][l] * by));
        }
        allow(a.s, a.rs_s, n, line);
        wrong += written_elsewhere();
    }
    return wrong;
}

/* NaN and infinity in one lane leave the others alone; NaN and +inf make its sum NaN, -inf is no key. */
static int check_special(const gk_soft *row)
{
    static const double specials[] = {NAN, -NAN, INFINITY, -INFINITY};
    const int type = row->acc, lanes = 2 * row->vl;
    int wrong = 0;
    for (int turn = 0; turn < 4 * lanes; turn++) {
        gk_soft_args a = lay_out(row, 7, lanes);
        const int lane = turn / 4, key = turn % 7;
        const double special = specials[turn % 4];
        for (int l = 0; l < lanes; l++) {
            for (int j = 0; j < 7; j++)
                set(a.s + j * a.rs_s, type, l, l == lane && j == key ? special : 2);
            set(a.max, type, l, -INFINITY);
            set(a.sum, type, l, 0);
        }
        a.bias = a.low = a.high = NULL;
        row->scan(&a);
        row->weigh(&a);
        for (int l = 0; l < lanes; l++) {
            const double sum = get(a.sum, type, l), p = weight(row, &a, key, l);
            if (l != lane)
                wrong += sum != 7 || p != 1 || get(a.max, type, l) != 2;
            else if (special == -INFINITY)
                wrong += sum != 6 || p != 0;
            else
                wrong += !isnan(sum) || !isnan(p);
        }
    }
    return wrong;
}

int check_soft(const gk_soft *row)
{
    static const int keys[] = {0, 1, 2, 3, 4, 5, 7, 8, 31, 128, MOST_KEYS};
    int wrong = check_magnitudes(row) + check_special(row);
    for (int i = 0; i < 11; i++) {
        for (int vectors = 1; vectors <= 3; vectors++) {
            for (int turn = 0; turn < 24; turn++)
                wrong += check_tile(row, keys[i], vectors * row->vl, turn);
        }
    }
    return wrong;
}
