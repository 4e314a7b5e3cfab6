/* Every row of the kernel table that this processor can run, over all tile sizes and a few k, against plain sums of
 * integers, which are exact.  No Python: for processors that exist only under an emulator (.ci/emulate).
 * SPDX-License-Identifier: Apache-2.0 */
#include "target.h"
#include "ukr.h"
#include "cpu_features.h"

#include <math.h>
#include <stdio.h>

enum { MOST_K = 20, MOST_N = 64, MOST_M = 16 };

static double a_memory[MOST_M * (MOST_K + 1)], b_memory[(MOST_K + 1) * (MOST_N + 1)], c_memory[MOST_M * (MOST_N + 1)];

static void set(void *x, int type, int i, double value)
{
    if (type == GK_F32)
        ((float *)x)[i] = (float)value;
    else
        ((double *)x)[i] = value;
}

static double get(const void *x, int type, int i) { return type == GK_F32 ? ((const float *)x)[i] : ((const double *)x)[i]; }

/* Wrong elements of one tile, and elements written beside it. */
static int check(const gk_ukr *row, int m, int n, int k)
{
    const int type = row->acc_type, item = type == GK_F32 ? 4 : 8, lda = k + 1, ldc = n + 1;
    /* A dot row wants B's columns contiguous, the others its rows. */
    const int rs_b = row->role == GK_DOT ? 1 : n, cs_b = row->role == GK_DOT ? k + 1 : 1;
    int wrong = 0;
    for (int i = 0; i < m * lda; i++)
        set(a_memory, type, i, i * 7 % 13 - 6);
    for (int i = 0; i < (k + 1) * (n + 1); i++)
        set(b_memory, type, i, i * 5 % 11 - 5);
    for (int i = 0; i < m * ldc; i++)
        set(c_memory, type, i, NAN);
    const gk_ukr_args g = {(const char *)a_memory, lda * item, item, (const char *)b_memory, rs_b * item, cs_b * item,
                           (char *)c_memory, ldc * item, NULL, 0, m, n, k};
    row->fn(&g);
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int p = 0; p < k; p++)
                sum += get(a_memory, type, i * lda + p) * get(b_memory, type, p * rs_b + j * cs_b);
            wrong += get(c_memory, type, i * ldc + j) != sum;
        }
        wrong += !isnan(get(c_memory, type, i * ldc + n));
    }
    return wrong;
}

int main(void)
{
    gk_cpu cpu;
    int wrong = 0, ran = 0;
    gk_cpu_detect(&cpu);
    for (int r = 0; r < gk_num_rows; r++) {
        const gk_ukr *row = &gk_rows[r];
        if (row->isa & ~cpu.isa_mask)
            continue;
        ran++;
        const int widest = row->role == GK_STREAM ? 3 * row->vl + 1 : row->nr;
        for (int m = 1; m <= row->mr; m++) {
            for (int n = 1; n <= widest; n++) {
                for (int k = 0; k < MOST_K; k += k < 4 ? 1 : 5)
                    wrong += check(row, m, n, k);
            }
        }
    }
    printf("instruction sets %x, rows run %d of %d, wrong elements %d\n", cpu.isa_mask, ran, gk_num_rows, wrong);
    return wrong != 0;
}
