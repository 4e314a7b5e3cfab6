/* Rows that will be read soon: too short, or too many side by side, for the processor's own prefetchers to follow.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_PREFETCH_H
#define GK_PREFETCH_H

#include <stddef.h>

static inline void gk_prefetch_rows(const char *p, ptrdiff_t rows, ptrdiff_t apart, ptrdiff_t bytes)
{
    for (ptrdiff_t i = 0; i < rows; i++, p += apart)
        for (ptrdiff_t at = 0; at < bytes; at += 64)
            __builtin_prefetch(p + at);
}

#endif
