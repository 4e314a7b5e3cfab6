/* Loads and stores of the narrow types in plain C, a vector being one element.  SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_SCALAR_NARROW_H
#define GK_SCALAR_NARROW_H

GK_INLINE float gk_load_bool_scalar(const char *p) { return *p ? 0 : -__builtin_inff(); }
GK_INLINE float gk_load_part_bool_scalar(const char *p, int n)
{
    (void)n; /* a vector of one has no partial form */
    return gk_load_bool_scalar(p);
}

GK_INLINE int32_t gk_bits_scalar(float x)
{
    int32_t i;
    memcpy(&i, &x, sizeof i);
    return i;
}

GK_INLINE float gk_floats_scalar(int32_t i)
{
    float x;
    memcpy(&x, &i, sizeof x);
    return x;
}

#define GK_CODE_NAME gk_code_scalar
#define V_TYPE float
#define V_ADD(a, b) ((a) + (b))
#define I_TYPE int32_t
#define I_ALL(x) ((int32_t)(x))
#define I_BITS(v) gk_bits_scalar(v)
#define I_FLOATS(i) gk_floats_scalar(i)
#define I_PLUS(a, b) ((a) + (b))
#define I_MINUS(a, b) ((a) - (b))
#define I_AND(a, b) ((a) & (b))
#define I_OR(a, b) ((a) | (b))
#define I_RIGHT(a, n) ((int32_t)((uint32_t)(a) >> (n)))
#define I_MORE(a, b, x, y) ((a) > (b) ? (x) : (y))
#include "tmpl_code.inc.h"
#undef V_TYPE
#undef V_ADD

#define GK_NARROW_SCALAR(type, bits, word)                                                                    \
    GK_INLINE float gk_load_##type##_scalar(const char *p)                                                    \
    {                                                                                                         \
        word code;                                                                                            \
        memcpy(&code, p, sizeof code);                                                                        \
        return gk_decode(code, bits, GK_FORMAT_##type);                                                       \
    }                                                                                                         \
    GK_INLINE float gk_load_part_##type##_scalar(const char *p, int n) { return (void)n, gk_load_##type##_scalar(p); } \
    GK_INLINE void gk_store_##type##_scalar(char *p, float x)                                                 \
    {                                                                                                         \
        const word code = (word)gk_code_scalar(x, bits, GK_FORMAT_##type);                                    \
        memcpy(p, &code, sizeof code);                                                                        \
    }                                                                                                         \
    GK_INLINE void gk_store_part_##type##_scalar(char *p, int n, float x) { (void)n, gk_store_##type##_scalar(p, x); }

GK_NARROW_SCALAR(f16, 16, uint16_t)
GK_NARROW_SCALAR(bf16, 16, uint16_t)
GK_NARROW_SCALAR(e4m3fn, 8, uint8_t)
GK_NARROW_SCALAR(e4m3fnuz, 8, uint8_t)
GK_NARROW_SCALAR(e5m2, 8, uint8_t)
GK_NARROW_SCALAR(e5m2fnuz, 8, uint8_t)
#undef GK_NARROW_SCALAR

#endif
