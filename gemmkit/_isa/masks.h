/* Rows of an attention mask as numbers to add, of float32 or float64: bool as 0 and -inf, others converted.
 * Plain loops; types that need a packer's widening are not here.  SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_MASKS_H
#define GK_MASKS_H

#include <math.h>
#include <string.h>
#include "ukr.h"

/* n elements, `step` bytes apart; returns how many take part, which is all that are not -inf. */
#define GK_MASK_ROW(name, type, acc, value)                                            \
    static ptrdiff_t name(const char *src, ptrdiff_t step, ptrdiff_t n, acc *dst)      \
    {                                                                                  \
        ptrdiff_t live = 0;                                                            \
        if (step == (ptrdiff_t)sizeof(type)) {                                         \
            int some = 0;                                                              \
            for (ptrdiff_t j = 0; j < n; j++) {                                        \
                type x;                                                                \
                memcpy(&x, src + j * (ptrdiff_t)sizeof(type), sizeof x);               \
                dst[j] = (acc)(value);                                                 \
                some += dst[j] != -(acc)INFINITY; /* NaN counts */                     \
            }                                                                          \
            return some;                                                               \
        }                                                                              \
        for (ptrdiff_t j = 0; j < n; j++) {                                            \
            type x;                                                                    \
            memcpy(&x, src + j * step, sizeof x);                                      \
            dst[j] = (acc)(value);                                                     \
            live += dst[j] != -(acc)INFINITY;                                          \
        }                                                                              \
        return live;                                                                   \
    }
#define GK_MASK_ROWS(acc, a)                                                           \
    GK_MASK_ROW(gk_mask_bool_##a, uint8_t, acc, x ? 0 : -INFINITY)                     \
    GK_MASK_ROW(gk_mask_f32_##a, float, acc, x)                                        \
    GK_MASK_ROW(gk_mask_f64_##a, double, acc, x)                                       \
    GK_MASK_ROW(gk_mask_i8_##a, int8_t, acc, x)                                        \
    GK_MASK_ROW(gk_mask_u8_##a, uint8_t, acc, x)                                       \
    GK_MASK_ROW(gk_mask_i16_##a, int16_t, acc, x)                                      \
    GK_MASK_ROW(gk_mask_u16_##a, uint16_t, acc, x)                                     \
    GK_MASK_ROW(gk_mask_i32_##a, int32_t, acc, x)                                      \
    GK_MASK_ROW(gk_mask_u32_##a, uint32_t, acc, x)                                     \
    GK_MASK_ROW(gk_mask_i64_##a, int64_t, acc, x)                                      \
    GK_MASK_ROW(gk_mask_u64_##a, uint64_t, acc, x)
GK_MASK_ROWS(float, f32)
GK_MASK_ROWS(double, f64)

/* Whether a row of bools leaves no key, some, or all: most tiles of a mask are of one kind. */
enum { GK_MASK_NONE, GK_MASK_SOME, GK_MASK_ALL };
static inline int gk_mask_kind(const char *src, ptrdiff_t step, ptrdiff_t n)
{
    if (step == 1) {
        if (!memchr(src, 0, (size_t)n))
            return GK_MASK_ALL;
        return !src[0] && !memcmp(src, src + 1, (size_t)(n - 1)) ? GK_MASK_NONE : GK_MASK_SOME;
    }
    ptrdiff_t live = 0;
    for (ptrdiff_t j = 0; j < n; j++)
        live += src[j * step] != 0;
    return live == n ? GK_MASK_ALL : live ? GK_MASK_SOME : GK_MASK_NONE;
}

/* A row of any of these types; -1 for another. */
#define GK_MASK_CASES(a)                                                               \
    switch (type) {                                                                    \
    case GK_BOOL: return gk_mask_bool_##a(src, step, n, dst);                          \
    case GK_F32: return gk_mask_f32_##a(src, step, n, dst);                            \
    case GK_F64: return gk_mask_f64_##a(src, step, n, dst);                            \
    case GK_I8: return gk_mask_i8_##a(src, step, n, dst);                              \
    case GK_U8: return gk_mask_u8_##a(src, step, n, dst);                              \
    case GK_I16: return gk_mask_i16_##a(src, step, n, dst);                            \
    case GK_U16: return gk_mask_u16_##a(src, step, n, dst);                            \
    case GK_I32: return gk_mask_i32_##a(src, step, n, dst);                            \
    case GK_U32: return gk_mask_u32_##a(src, step, n, dst);                            \
    case GK_I64: return gk_mask_i64_##a(src, step, n, dst);                            \
    case GK_U64: return gk_mask_u64_##a(src, step, n, dst);                            \
    default: return -1;                                                                \
    }
static inline ptrdiff_t gk_mask_row_f32(int type, const char *src, ptrdiff_t step, ptrdiff_t n, float *dst) { GK_MASK_CASES(f32) }
static inline ptrdiff_t gk_mask_row_f64(int type, const char *src, ptrdiff_t step, ptrdiff_t n, double *dst) { GK_MASK_CASES(f64) }

#endif
