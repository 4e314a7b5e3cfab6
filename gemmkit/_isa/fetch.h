/* Bytes and nibbles out of any layout, converted, in plain loops which a set's region vectorizes.  SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_FETCH_H
#define GK_FETCH_H

/* Where a nibble address points (ukr.h): the byte is half of it, the low bit says which half. */
GK_INLINE int gk_nibble_at(const char *address)
{
    const uintptr_t x = (uintptr_t)address;
    return *(const uint8_t *)(x >> 1) >> (x & 1 ? 4 : 0) & 15;
}

/* A nibble as a byte of QUADS: unsigned plus 8 or as it is for GK_QUADS_U8, its value for GK_QUADS_I8. */
GK_INLINE uint8_t gk_nibble_as(int x, const int to, const int turn)
{
    return (uint8_t)(to == GK_QUADS_I8 ? (x ^ turn) - turn : x ^ turn);
}

GK_INLINE void gk_fetch_bytes(const char *src, ptrdiff_t step, ptrdiff_t n, const int turn, uint8_t *restrict dst)
{
    if (step == 1) {
        for (ptrdiff_t i = 0; i < n; i++)
            dst[i] = (uint8_t)(src[i] ^ turn);
        return;
    }
    for (ptrdiff_t i = 0; i < n; i++)
        dst[i] = (uint8_t)(src[i * step] ^ turn);
}

GK_INLINE void gk_fetch_nibbles(const char *src, ptrdiff_t step, ptrdiff_t n, const int to, const int turn, uint8_t *restrict dst)
{
    if (step == 1) {
        if ((uintptr_t)src & 1 && n > 0) {
            *dst++ = gk_nibble_as(gk_nibble_at(src++), to, turn);
            n--;
        }
        const uint8_t *from = (const uint8_t *)((uintptr_t)src >> 1);
        for (ptrdiff_t i = 0; i < n / 2; i++) {
            dst[2 * i] = gk_nibble_as(from[i] & 15, to, turn);
            dst[2 * i + 1] = gk_nibble_as(from[i] >> 4, to, turn);
        }
        if (n % 2)
            dst[n - 1] = gk_nibble_as(from[n / 2] & 15, to, turn);
        return;
    }
    for (ptrdiff_t i = 0; i < n; i++)
        dst[i] = gk_nibble_as(gk_nibble_at((const char *)((uintptr_t)src + (uintptr_t)(i * step))), to, turn);
}

#endif
