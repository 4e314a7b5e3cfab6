/* The kernels of AVX-512.  SPDX-License-Identifier: Apache-2.0 */
#define GK_UNIT avx512
#include "tables.inc.h"
