/* The narrow types in numbers, and their conversions in plain C: what every other version is tested against.
 *
 *   type       bits  exponent  fraction  bias  largest code   above it        NaN                    -0
 *   f16        16    5         10        15    0x7bff         0x7c00 (inf)    0x7e00 and others      yes
 *   bf16       16    8         7         127   0x7f7f         0x7f80 (inf)    0x7fc0 and others      yes
 *   e4m3fn     8     4         3         7     0x7e (448)     0x7f (NaN)      0x7f, 0xff             yes
 *   e4m3fnuz   8     4         3         8     0x7f (240)     0x80 (NaN)      0x80                   no
 *   e5m2       8     5         2         15    0x7b (57344)   0x7c (inf)      0x7d..0x7f and others  yes
 *   e5m2fnuz   8     5         2         16    0x7f (57344)   0x80 (NaN)      0x80                   no
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_NARROW_H
#define GK_NARROW_H

/* fraction bits, bias, largest code, code above it, NaN, whether there is a -0 */
#define GK_FORMAT_f16 10, 15, 0x7bff, 0x7c00, 0x7e00, 1
#define GK_FORMAT_bf16 7, 127, 0x7f7f, 0x7f80, 0x7fc0, 1
#define GK_FORMAT_e4m3fn 3, 7, 0x7e, 0x7f, 0x7f, 1
#define GK_FORMAT_e4m3fnuz 3, 8, 0x7f, 0x80, 0x80, 0
#define GK_FORMAT_e5m2 2, 15, 0x7b, 0x7c, 0x7e, 1
#define GK_FORMAT_e5m2fnuz 2, 16, 0x7f, 0x80, 0x80, 0

/* The largest finite float8 values. */
#define GK_MOST_e4m3fn 448.0
#define GK_MOST_e4m3fnuz 240.0
#define GK_MOST_e5m2 57344.0
#define GK_MOST_e5m2fnuz 57344.0

/* y as a float32 whose last bit tells that something was cut off: rounding that to a code of fewer bits is rounding y once. */
GK_INLINE float gk_to_odd(double y)
{
    union { float f; uint32_t u; } x;
    x.f = (float)y;
    const double back = (double)x.f;
    const int away = (back > y) == (y > 0); /* the magnitude went up */
    if (back != y && y == y)
        x.u = (x.u - (uint32_t)away) | 1;
    return x.f;
}

/* The value of a code of `bits` bits; every one is exact in float32. */
GK_INLINE float gk_decode(uint32_t code, const int bits, const int fraction, const int bias, const uint32_t most,
                          const uint32_t above, const uint32_t nan, const int minus_zero)
{
    const uint32_t sign = code >> (bits - 1), magnitude = code & ((1u << (bits - 1)) - 1);
    const uint32_t normal = (magnitude << (23 - fraction)) + ((uint32_t)(127 - bias) << 23);
    union { uint32_t u; float f; } x, unit;
    unit.u = (uint32_t)(127 + 1 - bias - fraction) << 23; /* the smallest subnormal */
    if (bias == 127)
        return x.u = code << 16, x.f; /* the upper half of a float32, subnormals too */
    x.u = normal;
    if (!(magnitude >> fraction))
        x.f = (float)(int32_t)magnitude * unit.f;
    if (magnitude > most)
        x.u = magnitude == above && above != nan ? 0x7f800000u : 0x7fc00000u;
    if (!minus_zero && sign && !magnitude)
        x.u = 0x7fc00000u;
    x.u |= sign << 31;
    return x.f;
}
#endif
