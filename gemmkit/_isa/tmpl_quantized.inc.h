/* Epilogues of 32-bit sums: zero points, requantization, the low byte, whether there is anything.
 *
 * Needs E_SET, the V_* vocabulary of 32-bit sums, and
 *
 *   E_TO_BYTES(p, n, x)          stores the low bytes of the first n <= V_LEN lanes
 *   E_IS(x)                      1 where a lane is not 0, else 0
 *   E_ROUNDED(x, row, col, n, least, most)  lanes as float64, times row and, unless col is NULL, col[0..n), limited, to nearest even
 *   E_ROUNDED_SINGLE(...)        the same with float32 for all of them
 *   E_FITS(x)                    whether every lane is a float32: 2^24 at most in magnitude
 *   E_WHERE_FITS(x, y, z)        y where a lane is, z elsewhere
 */
#define E_OF(stem) GK_CAT(stem, GK_CAT(_, E_SET))

/* acc and what the zero points add to it.  kinds: how many products of a row number with a column number. */
GK_INLINE V_TYPE E_OF(gk_corrected)(const gk_epi_args *e, const int kinds, ptrdiff_t j, const int partial, const V_MASK mask,
                                    V_TYPE x, V_TYPE row, const V_TYPE mul[2])
{
    (void)mask;
    x = V_ADD(x, row);
    if (e->col_add) {
        const char *p = (const char *)(e->col_add + j);
        x = V_ADD(x, partial ? V_LOAD_TAIL(p, mask) : V_LOAD(p));
    }
    GK_UNROLL
    for (int t = 0; t < kinds; t++) {
        const char *p = (const char *)(e->col_mul[t] + j);
        x = V_ADD(x, V_MUL(mul[t], partial ? V_LOAD_TAIL(p, mask) : V_LOAD(p)));
    }
    return x;
}

GK_INLINE void E_OF(gk_quantized_body)(const gk_epi_args *e, const int kinds, const int requantize, const double lowest,
                                       const double highest)
{
    const int32_t nothing = 0;
    const double least = lowest - e->zero, most = highest - e->zero;
    const int32_t zero = (int32_t)e->zero;
    const V_TYPE zeros = V_BROADCAST((const char *)&zero);
    for (ptrdiff_t i = 0; i < e->m; i++) {
        const char *acc = e->acc + i * e->rs_acc;
        char *c = e->c + i * e->rs_c;
        const V_TYPE row = V_BROADCAST((const char *)(e->row_add ? e->row_add + i : &nothing));
        const double scale = requantize ? e->row_scale ? e->scale * e->row_scale[i] : e->scale : 1.0;
        V_TYPE mul[2] = {row, row};
        GK_UNROLL
        for (int t = 0; t < kinds; t++)
            mul[t] = V_BROADCAST((const char *)(e->row_mul[t] + i));
        for (ptrdiff_t j = 0; j < e->n; j += V_LEN) {
            const int partial = e->n - j < V_LEN, some = partial ? (int)(e->n - j) : V_LEN;
            const V_MASK mask = V_TAIL_MASK(some);
            (void)mask;
            V_TYPE x = partial ? V_LOAD_TAIL(acc + 4 * j, mask) : V_LOAD(acc + 4 * j);
            x = E_OF(gk_corrected)(e, kinds, j, partial, mask, x, row, mul);
            if (requantize) {
                /* Lane by lane: a result must not depend on which others its vector holds. */
                const double *col = e->col_scale ? e->col_scale + j : NULL;
                V_TYPE y = zeros;
                if (e->single)
                    y = E_ROUNDED_SINGLE(x, (float)scale, e->col_single ? e->col_single + j : NULL, some, (float)least, (float)most);
                if (!e->single)
                    y = E_ROUNDED(x, scale, col, some, least, most);
                else if (!E_FITS(x))
                    y = E_WHERE_FITS(x, y, E_ROUNDED(x, scale, col, some, least, most));
                x = V_ADD(y, zeros);
                E_TO_BYTES(c + j, some, x);
            } else if (partial) {
                V_STORE_TAIL(c + 4 * j, mask, x);
            } else {
                V_STORE(c + 4 * j, x);
            }
        }
    }
}

/* row_mul[0] is set before row_mul[1]. */
#define GK_QUANTIZED(name, ...)                                        \
    static void E_OF(name)(const gk_epi_args *e)                       \
    {                                                                  \
        if (e->row_mul[1])                                             \
            E_OF(gk_quantized_body)(e, 2, __VA_ARGS__);                \
        else if (e->row_mul[0])                                        \
            E_OF(gk_quantized_body)(e, 1, __VA_ARGS__);                \
        else                                                           \
            E_OF(gk_quantized_body)(e, 0, __VA_ARGS__);                \
    }
GK_QUANTIZED(gk_epilogue_i32qi32, 0, 0, 0)
GK_QUANTIZED(gk_epilogue_i32qi8, 1, -128, 127)
GK_QUANTIZED(gk_epilogue_i32qu8, 1, 0, 255)
#undef GK_QUANTIZED

GK_INLINE void E_OF(gk_bytes_body)(const gk_epi_args *e, const int is)
{
    for (ptrdiff_t i = 0; i < e->m; i++) {
        const char *acc = e->acc + i * e->rs_acc;
        char *c = e->c + i * e->rs_c;
        for (ptrdiff_t j = 0; j < e->n; j += V_LEN) {
            const int some = e->n - j < V_LEN ? (int)(e->n - j) : V_LEN;
            const V_MASK mask = V_TAIL_MASK(some);
            (void)mask;
            const V_TYPE x = some < V_LEN ? V_LOAD_TAIL(acc + 4 * j, mask) : V_LOAD(acc + 4 * j);
            E_TO_BYTES(c + j, some, is ? E_IS(x) : x);
        }
    }
}
static void E_OF(gk_epilogue_i32i8)(const gk_epi_args *e) { E_OF(gk_bytes_body)(e, 0); }
static void E_OF(gk_epilogue_i32bool)(const gk_epi_args *e) { E_OF(gk_bytes_body)(e, 1); }

#undef E_OF
#undef E_SET
#undef E_TO_BYTES
#undef E_IS
#undef E_ROUNDED
#undef E_ROUNDED_SINGLE
#undef E_FITS
#undef E_WHERE_FITS
