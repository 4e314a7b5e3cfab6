/* Body of an epilogue from float32 sums that scales still wait for to a float8 type, saturating: y = x * scale * row * col + zero in
 * float64, limited to the largest finite value, rounded to the code.  NaN stays NaN.
 *
 * Needs GK_EPI_NAME, S_MOST and C_STORE, C_STORE_TAIL as tmpl_epilogue.inc.h does; undefines them. */
static void GK_EPI_NAME(const gk_epi_args *e)
{
    enum { AT_ONCE = 64 };
    for (ptrdiff_t i = 0; i < e->m; i++) {
        const double row = e->row_scale ? e->scale * e->row_scale[i] : e->scale, zero = e->zero;
        char *c = e->c + i * e->rs_c;
        for (ptrdiff_t j0 = 0; j0 < e->n; j0 += AT_ONCE) {
            float x[AT_ONCE];
            const ptrdiff_t some = e->n - j0 < AT_ONCE ? e->n - j0 : AT_ONCE;
            memcpy(x, e->acc + i * e->rs_acc + 4 * j0, (size_t)some * sizeof x[0]);
            for (ptrdiff_t j = 0; j < some; j++) {
                const double y = (double)x[j] * (e->col_scale ? row * e->col_scale[j0 + j] : row) + zero;
                const double least = y < -S_MOST ? -S_MOST : y;
                x[j] = gk_to_odd(least > S_MOST ? S_MOST : least);
            }
            ptrdiff_t j = 0;
            for (; j + V_LEN <= some; j += V_LEN)
                C_STORE(c + j0 + j, V_LOAD((const char *)(x + j)));
            if (j < some)
                C_STORE_TAIL(c + j0 + j, 0, (int)(some - j), V_LOAD_TAIL((const char *)(x + j), V_TAIL_MASK((int)(some - j))));
        }
    }
}
#undef GK_EPI_NAME
#undef S_MOST
#undef C_STORE
#undef C_STORE_TAIL
