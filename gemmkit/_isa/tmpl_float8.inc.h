/* Everything that AVX512-VBMI has for one float8 type: rows and packers that decode 64 codes at a time by table.
 *
 * Needs N_TYPE, N_FORMAT (narrow.h) and N_HAS_MINUS_ZERO; undefines them.  A code without its sign is the index, of seven
 * bits, into the two halves of its bfloat16 value; vpermi2b looks up 64 of them at once in a pair of registers. */
#define N_OF GK_CAT(N_TYPE, _avx512vbmi)
#define N_TABLE GK_CAT(gk_table_, N_OF)
#define N_LOOK_UP GK_CAT(gk_look_up_, N_OF)
#define N_DECODE GK_CAT(gk_decode_, N_OF)

static const uint8_t N_TABLE[2][128] = {
#define GK_ENTRY(c) (uint8_t)(gk_code_to_bf16(c, N_FORMAT) & 0xff)
    {GK_128(GK_ENTRY)},
#undef GK_ENTRY
#define GK_ENTRY(c) (uint8_t)(gk_code_to_bf16(c, N_FORMAT) >> 8)
    {GK_128(GK_ENTRY)},
#undef GK_ENTRY
};

/* bfloat16 values of 64 codes: their low and their high bytes. */
GK_INLINE void N_LOOK_UP(__m512i x, __m512i *low, __m512i *high)
{
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    *low = _mm512_permutex2var_epi8(_mm512_loadu_si512(N_TABLE[0]), x, _mm512_loadu_si512(N_TABLE[0] + 64));
    *high = _mm512_permutex2var_epi8(_mm512_loadu_si512(N_TABLE[1]), x, _mm512_loadu_si512(N_TABLE[1] + 64));
    *high = _mm512_ternarylogic_epi32(*high, x, sign, 0xf8); /* high | (x & sign) */
#if !N_HAS_MINUS_ZERO
    const __mmask64 nan = _mm512_cmpeq_epi8_mask(x, sign);
    *low = _mm512_mask_mov_epi8(*low, nan, _mm512_set1_epi8((char)0xc0));
    *high = _mm512_mask_mov_epi8(*high, nan, _mm512_set1_epi8(0x7f));
#endif
}

/* 64 codes as four vectors of float32 in order.  Bytes are put where unpacking, which stays within 128-bit lanes, and
 * taking even and odd words leave neighbours together. */
GK_INLINE void N_DECODE(__m512i x, __m512 v[4])
{
    __m512i low, high;
    N_LOOK_UP(_mm512_permutexvar_epi8(_mm512_loadu_si512(gk_order_f32), x), &low, &high);
    const __m512i first = _mm512_unpacklo_epi8(low, high), second = _mm512_unpackhi_epi8(low, high);
    const __m512i odd = _mm512_set1_epi32((int)0xffff0000u);
    v[0] = _mm512_castsi512_ps(_mm512_slli_epi32(first, 16));
    v[1] = _mm512_castsi512_ps(_mm512_and_si512(first, odd));
    v[2] = _mm512_castsi512_ps(_mm512_slli_epi32(second, 16));
    v[3] = _mm512_castsi512_ps(_mm512_and_si512(second, odd));
}

/* n = 64 of the elements at p, or fewer, which masks then see to. */
#define N_CODES(p, partial, n) ((partial) ? _mm512_maskz_loadu_epi8(~0ull >> (64 - (n)), p) : _mm512_loadu_si512(p))
#define N_MASK(n, q) ((__mmask16)((~0ull >> (64 - (n))) >> (16 * (q))))
#define N_FLOATS(p, partial, n, q)                                                                                     \
    ((partial) ? _mm512_maskz_loadu_ps(N_MASK(n, q), (p) + 64 * (q)) : _mm512_loadu_ps((p) + 64 * (q)))

/* ---- STREAM: up to four rows of C, a few rows of B at a time, 64 columns a step. */

GK_INLINE void GK_CAT(gk_step_, N_OF)(const int m, const int rows, const int partial, __m512 s[4][8], const char *b,
                                      ptrdiff_t rs_b, const char *from, ptrdiff_t rs_from, char *c, ptrdiff_t rs_c, ptrdiff_t n)
{
    __m512 y[4][4], v[4];
    GK_UNROLL
    for (int i = 0; i < m; i++) {
        GK_UNROLL
        for (int q = 0; q < 4; q++)
            y[i][q] = from ? N_FLOATS(from + i * rs_from, partial, n, q) : _mm512_setzero_ps();
    }
    GK_UNROLL
    for (int u = 0; u < rows; u++) {
        N_DECODE(N_CODES(b + u * rs_b, partial, n), v);
        GK_UNROLL
        for (int i = 0; i < m; i++) {
            GK_UNROLL
            for (int q = 0; q < 4; q++)
                y[i][q] = _mm512_fmadd_ps(s[i][u], v[q], y[i][q]);
        }
    }
    GK_UNROLL
    for (int i = 0; i < m; i++) {
        GK_UNROLL
        for (int q = 0; q < 4; q++) {
            if (partial)
                _mm512_mask_storeu_ps(c + i * rs_c + 64 * q, N_MASK(n, q), y[i][q]);
            else
                _mm512_storeu_ps(c + i * rs_c + 64 * q, y[i][q]);
        }
    }
}

GK_INLINE void GK_CAT(gk_pass_, N_OF)(const int m, const int rows, ptrdiff_t p, const gk_ukr_args *g)
{
    const ptrdiff_t rs_b = g->rs_b, rs_c = g->rs_c;
    const char *b = g->b + p * rs_b;
    char *c = g->c;
    /* The first pass starts from `add`, or zero; each later one from what the pass before left in C. */
    const char *from = p ? g->c : g->add;
    const ptrdiff_t rs_from = p ? g->rs_c : g->rs_add;
    ptrdiff_t n = g->n;
    __m512 s[4][8];
    GK_UNROLL
    for (int i = 0; i < m; i++) {
        GK_UNROLL
        for (int u = 0; u < rows; u++)
            s[i][u] = _mm512_set1_ps(*(const float *)(g->a + i * g->rs_a + (p + u) * g->cs_a));
    }
    for (; n >= 64; n -= 64, b += 64, c += 256, from += from ? 256 : 0)
        GK_CAT(gk_step_, N_OF)(m, rows, 0, s, b, rs_b, from, rs_from, c, rs_c, 64);
    if (n > 0)
        GK_CAT(gk_step_, N_OF)(m, rows, 1, s, b, rs_b, from, rs_from, c, rs_c, n);
}

GK_INLINE void GK_CAT(gk_stream_body_, N_OF)(const int m, const gk_ukr_args *g)
{
    /* m times that many scalars, 4 m accumulators, 4 to decode into, 7 for tables and masks: 32 registers, more for m = 4. */
    const int rows = m == 1 ? 8 : m == 2 ? 4 : 2;
    ptrdiff_t p = 0;
    for (; p + rows <= g->k; p += rows)
        GK_CAT(gk_pass_, N_OF)(m, rows, p, g);
    for (; p < g->k; p++)
        GK_CAT(gk_pass_, N_OF)(m, 1, p, g);
    if (g->k == 0)
        GK_CAT(gk_pass_, N_OF)(m, 0, 0, g);
}

#define GK_UKR_NAME GK_CAT(GK_CAT(gk_stream_f32, N_TYPE), _ukr_4x64_avx512vbmi)
#define GK_EDGE(m) GK_CAT(GK_UKR_NAME, _m##m)
GK_KERNEL void GK_EDGE(1)(const gk_ukr_args *g) { GK_CAT(gk_stream_body_, N_OF)(1, g); }
GK_KERNEL void GK_EDGE(2)(const gk_ukr_args *g) { GK_CAT(gk_stream_body_, N_OF)(2, g); }
GK_KERNEL void GK_EDGE(3)(const gk_ukr_args *g) { GK_CAT(gk_stream_body_, N_OF)(3, g); }
GK_KERNEL void GK_EDGE(4)(const gk_ukr_args *g) { GK_CAT(gk_stream_body_, N_OF)(4, g); }

static void GK_UKR_NAME(const gk_ukr_args *g)
{
    static const gk_ukr_fn edges[4] = {GK_EDGE(1), GK_EDGE(2), GK_EDGE(3), GK_EDGE(4)};
    edges[g->m - 1](g);
}
#undef GK_EDGE
#undef GK_UKR_NAME

/* ---- DOT: `narrow` lines of codes against `wide` lines of float32, 64 steps of k at a time.  Each element of C has four
 * accumulators while four lines of codes are not too many registers, else one. */

GK_INLINE void GK_CAT(gk_dot_step_, N_OF)(const int narrow, const int wide, const int chains, const int partial, const char *x,
                                          ptrdiff_t s_x, const char *y, ptrdiff_t s_y, ptrdiff_t k, __m512 r[4][4][4])
{
    __m512 v[4];
    GK_UNROLL
    for (int i = 0; i < narrow; i++) {
        N_DECODE(N_CODES(x + i * s_x, partial, k), v);
        GK_UNROLL
        for (int j = 0; j < wide; j++) {
            GK_UNROLL
            for (int q = 0; q < 4; q++)
                r[i][j][q % chains] = _mm512_fmadd_ps(v[q], N_FLOATS(y + j * s_y, partial, k, q), r[i][j][q % chains]);
        }
    }
}

GK_INLINE void GK_CAT(gk_dot_body_, N_OF)(const int narrow, const int wide, const char *x, ptrdiff_t s_x, const char *y,
                                          ptrdiff_t s_y, ptrdiff_t k, float sums[4][4])
{
    const int chains = narrow * wide <= 4 ? 4 : 1;
    __m512 r[4][4][4];
    GK_UNROLL
    for (int i = 0; i < narrow; i++) {
        GK_UNROLL
        for (int j = 0; j < wide; j++) {
            GK_UNROLL
            for (int q = 0; q < chains; q++)
                r[i][j][q] = _mm512_setzero_ps();
        }
    }
    for (; k >= 64; k -= 64, x += 64, y += 256)
        GK_CAT(gk_dot_step_, N_OF)(narrow, wide, chains, 0, x, s_x, y, s_y, 64, r);
    if (k > 0)
        GK_CAT(gk_dot_step_, N_OF)(narrow, wide, chains, 1, x, s_x, y, s_y, k, r);
    GK_UNROLL
    for (int i = 0; i < narrow; i++) {
        GK_UNROLL
        for (int j = 0; j < wide; j++) {
            __m512 s = r[i][j][0];
            if (chains == 4)
                s = _mm512_add_ps(_mm512_add_ps(s, r[i][j][1]), _mm512_add_ps(r[i][j][2], r[i][j][3]));
            sums[i][j] = _mm512_reduce_add_ps(s);
        }
    }
}

/* For each tile size a function for codes in A and one for codes in B. */
#define GK_DOT_TILE(a, b)                                                                                              \
    GK_KERNEL void GK_CAT(N_DOT_NAME, _m##a##_n##b)(const gk_ukr_args *g)                                              \
    {                                                                                                                  \
        float sums[4][4];                                                                                              \
        N_DOT_CALL(a, b);                                                                                              \
        for (int i = 0; i < a; i++) {                                                                                  \
            for (int j = 0; j < b; j++) {                                                                              \
                float sum = N_DOT_SUM(i, j);                                                                           \
                if (g->add)                                                                                            \
                    sum += *(const float *)(g->add + i * g->rs_add + 4 * j);                                           \
                *(float *)(g->c + i * g->rs_c + 4 * j) = sum;                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }
#define GK_DOT_ROW(a) GK_DOT_TILE(a, 1) GK_DOT_TILE(a, 2) GK_DOT_TILE(a, 3) GK_DOT_TILE(a, 4)
#define GK_DOT_LINE(a)                                                                                                 \
    {GK_CAT(N_DOT_NAME, _m##a##_n1), GK_CAT(N_DOT_NAME, _m##a##_n2), GK_CAT(N_DOT_NAME, _m##a##_n3),                   \
     GK_CAT(N_DOT_NAME, _m##a##_n4)}
#define GK_DOT_ALL                                                                                                     \
    GK_DOT_ROW(1) GK_DOT_ROW(2) GK_DOT_ROW(3) GK_DOT_ROW(4)                                                            \
    static void N_DOT_NAME(const gk_ukr_args *g)                                                                       \
    {                                                                                                                  \
        static const gk_ukr_fn edges[4][4] = {GK_DOT_LINE(1), GK_DOT_LINE(2), GK_DOT_LINE(3), GK_DOT_LINE(4)};         \
        edges[g->m - 1][g->n - 1](g);                                                                                  \
    }

#define N_DOT_NAME GK_CAT(GK_CAT(gk_dot_f32, N_TYPE), _ukr_4x4_avx512vbmi)
#define N_DOT_CALL(rows, columns) GK_CAT(gk_dot_body_, N_OF)(columns, rows, g->b, g->cs_b, g->a, g->rs_a, g->k, sums)
#define N_DOT_SUM(i, j) sums[j][i]
GK_DOT_ALL
#undef N_DOT_NAME
#undef N_DOT_CALL
#undef N_DOT_SUM
#define N_DOT_NAME GK_CAT(GK_CAT(gk_dot_, N_TYPE), f32_ukr_4x4_avx512vbmi)
#define N_DOT_CALL(rows, columns) GK_CAT(gk_dot_body_, N_OF)(rows, columns, g->a, g->rs_a, g->b, g->cs_b, g->k, sums)
#define N_DOT_SUM(i, j) sums[i][j]
GK_DOT_ALL
#undef N_DOT_NAME
#undef N_DOT_CALL
#undef N_DOT_SUM
#undef GK_DOT_TILE
#undef GK_DOT_ROW
#undef GK_DOT_LINE
#undef GK_DOT_ALL

/* ---- Packers: lines of float32 and of bfloat16. */

GK_INLINE void GK_CAT(gk_wide_line_, N_OF)(const char *src, ptrdiff_t n, char *dst)
{
    for (; n > 0; n -= 64, src += 64, dst += 256) {
        const __mmask64 codes = n < 64 ? ~0ull >> (64 - n) : ~0ull;
        __m512 v[4];
        N_DECODE(_mm512_maskz_loadu_epi8(codes, src), v);
        GK_UNROLL
        for (int q = 0; q < 4; q++)
            _mm512_mask_storeu_ps(dst + 64 * q, (__mmask16)(codes >> (16 * q)), v[q]);
    }
}

GK_INLINE void GK_CAT(gk_words_, N_OF)(const char *src, ptrdiff_t n, uint16_t *dst)
{
    for (; n > 0; n -= 64, src += 64, dst += 64) {
        const __mmask64 codes = n < 64 ? ~0ull >> (64 - n) : ~0ull;
        __m512i low, high;
        N_LOOK_UP(_mm512_permutexvar_epi8(_mm512_loadu_si512(gk_order_bf16), _mm512_maskz_loadu_epi8(codes, src)), &low, &high);
        _mm512_mask_storeu_epi16(dst, (__mmask32)codes, _mm512_unpacklo_epi8(low, high));
        _mm512_mask_storeu_epi16(dst + 32, (__mmask32)(codes >> 32), _mm512_unpackhi_epi8(low, high));
    }
}

#define N_ITEM 1
#define N_WIDEN_LINE GK_CAT(gk_wide_line_, N_OF)
#define N_PLAIN_PANELS gk_panels_f32f32_avx512
#define V_ELEM float
#define GK_PACK_OF GK_CAT(N_TYPE, f32_avx512vbmi)
#include "tmpl_narrow_pack.inc.h"
#undef V_ELEM
#undef N_WIDEN_LINE
#undef N_PLAIN_PANELS
#define GK_PACK_OF GK_CAT(N_TYPE, bf16_avx512vbmi)
#define N_WORDS GK_CAT(gk_words_, N_OF)
#define N_IS_WORDS 0
#include "tmpl_pairs.inc.h"

#undef N_OF
#undef N_TABLE
#undef N_LOOK_UP
#undef N_DECODE
#undef N_CODES
#undef N_MASK
#undef N_FLOATS
#undef N_TYPE
#undef N_FORMAT
#undef N_HAS_MINUS_ZERO
