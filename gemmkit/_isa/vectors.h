/* Vectors of unsigned integers by the compiler's extension: element arithmetic wraps, and the compiler picks the set's
 * instructions (vpmulld, vpmullq; three vpmuludq for 64 bits without AVX-512).  The _at types may lie anywhere.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_VECTORS_H
#define GK_VECTORS_H

typedef uint16_t uint16_t_at __attribute__((aligned(1), may_alias));
typedef uint32_t uint32_t_at __attribute__((aligned(1), may_alias));
typedef uint64_t uint64_t_at __attribute__((aligned(1), may_alias));

#define GK_VECTOR(elem, bits, bytes)                                       \
    typedef elem gk_u##bits##v##bytes __attribute__((vector_size(bytes))); \
    typedef elem gk_u##bits##v##bytes##_at __attribute__((vector_size(bytes), aligned(1), may_alias));
GK_VECTOR(uint16_t, 16, 32)
GK_VECTOR(uint32_t, 32, 32)
GK_VECTOR(uint64_t, 64, 32)
GK_VECTOR(uint16_t, 16, 64)
GK_VECTOR(uint32_t, 32, 64)
GK_VECTOR(uint64_t, 64, 64)
#undef GK_VECTOR

/* The sum of a vector's elements. */
#define GK_SUM_OF(elem, vector, name)                             \
    GK_INLINE elem name(vector v)                                 \
    {                                                             \
        elem sum = 0;                                             \
        GK_UNROLL                                                 \
        for (int i = 0; i < (int)(sizeof v / sizeof(elem)); i++)  \
            sum = (elem)(sum + v[i]);                             \
        return sum;                                               \
    }

#endif
