/* The kernels of plain C, SSE2, AVX, AVX2.  SPDX-License-Identifier: Apache-2.0 */
#define GK_UNIT base
#include "tables.inc.h"
