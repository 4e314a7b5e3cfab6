/* The kernels of extensions of AVX2 and AVX-512, AMX.  SPDX-License-Identifier: Apache-2.0 */
#define GK_UNIT more
#include "tables.inc.h"
