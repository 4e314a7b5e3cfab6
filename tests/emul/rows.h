/* What the checks of floating-point types, rows.c, of integers, rows_int.c, and of softmax, rows_soft.c, share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef ROWS_H
#define ROWS_H

#include "target.h"
#include "ukr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Of any tile that is tried; room for all of its types. */
enum { MOST_M = 32, MOST_N = 3 * 64 + 1, MOST_K = 300 };

/* Each gives the number of elements that are wrong, or changed though they are not the function's to write. */
int check_integer_row(const gk_ukr *row, int m, int n, int k);
int check_integer_pack(const gk_pack *pack);
int check_integer_epilogue(const gk_epi *epi, int n);
int check_soft(const gk_soft *row);

#endif
