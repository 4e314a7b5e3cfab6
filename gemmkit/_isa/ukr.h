/* The contract between the engine and its micro-kernels.  docs/kernel_contract.md is this file in prose.
 *
 * A micro-kernel computes one register tile  C[m x n] = add + A[m x k] B[k x n]  and knows nothing of shapes,
 * caches, threads or memory.  It is total: every 1 <= m <= MR, 1 <= n <= NR and k >= 0 is legal, it reads
 * exactly the m x k and k x n elements and writes exactly the m x n ones.  Operands may be packed micro-panels
 * or the caller's own arrays; the kernel can't tell, as both are a pointer and byte strides:
 *
 *              A, cs_a = step along k                B, rs_b = step along k
 *            +-----------------------+             +---------------+
 *     rs_a   | a00 a01 a02 ...       |             | b00 b01 ... n |  cs_b
 *       |    | a10 a11 a12 ...       |             | b10 b11 ...   |
 *       v    | ...        (m rows)   |             | ... (k rows)  |
 *            +-----------------------+             +---------------+
 *     a packed micro-panel has rs_a = item, cs_a = MR * item; rs_b = NR * item, cs_b = item
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_UKR_H
#define GK_UKR_H

#include <stddef.h>
#include <stdint.h>

/* One bit an instruction set; a row is usable when its bits are a subset of the machine's mask. */
enum {
    GK_ISA_SCALAR = 1 << 0,
    GK_ISA_SSE2 = 1 << 1,
    GK_ISA_AVX = 1 << 2,
    GK_ISA_AVX2 = 1 << 3, /* and FMA3, F16C */
    GK_ISA_AVXVNNI = 1 << 4, /* vpdpbusd in 256 bits without AVX-512 */
    GK_ISA_AVX512 = 1 << 5, /* F, BW, DQ, VL */
    GK_ISA_AVX512VNNI = 1 << 6,
    GK_ISA_AVX512VBMI = 1 << 7,
    GK_ISA_AVX512BF16 = 1 << 8,
    GK_ISA_AVX512FP16 = 1 << 9,
    GK_ISA_AMXINT8 = 1 << 10, /* tiles and their product of bytes */
    GK_ISA_AMXBF16 = 1 << 11, /* tiles and their bfloat16 product */
};

/* Float sums are of the first two types; the six after them are narrow: widened to float32, or to BF16 panels, by packers
 * and loads.  Integer sums are of GK_I16, GK_I32, GK_I64 and wrap, so that signed and unsigned are one type to a kernel. */
enum gk_type {
    GK_F32, GK_F64, GK_F16, GK_BF16, GK_E4M3FN, GK_E4M3FNUZ, GK_E5M2, GK_E5M2FNUZ,
    GK_I8, GK_U8, GK_I16, GK_I32, GK_I64,
    GK_U16, GK_U32, GK_U64, GK_BOOL, /* of arrays only: kernels know them as the types above */
    GK_I4, GK_U4, /* two a byte: pointers and strides count nibbles, the low one of a byte first */
    GK_QUADS_U8, GK_QUADS_I8, GK_NIBBLES, /* panels of bytes and of nibbles, docs/integers.md */
    GK_I32Q, GK_F32Q, /* sums of GK_I32 and GK_F32 that zero points and scales still wait for: what an epilogue reads */
    GK_NUM_TYPES
};

/* Bytes an element; of a type without memory of its own, 0. */
static const signed char gk_item[GK_NUM_TYPES] = {4, 8, 2, 2, 1, 1, 1, 1, 1, 1, 2, 4, 8, 2, 4, 8, 1, 1, 1, 1, 1, 1, 4, 4};

/* What a row does, which is to say which loop it keeps in registers.
 *   GEMM    an outer product a step of k: C tile in registers.       Needs cs_b == item.
 *   DOT     vectors along k, one accumulator set an element of C.    Needs cs_a == item and rs_b == item.
 *   STREAM  a few rows of C at once, B read row after row, C in L1.  Needs cs_b == item; n is unbounded.
 * `item` is the size of that operand's own type; C and `add` are of the accumulator's type. */
enum gk_role { GK_GEMM = 0, GK_DOT = 1, GK_STREAM = 2, GK_NUM_ROLES = 3 };

typedef struct gk_ukr_args {
    const char *a;
    ptrdiff_t rs_a, cs_a; /* bytes, any sign, zero included */
    const char *b;
    ptrdiff_t rs_b, cs_b; /* bytes */
    char *c;
    ptrdiff_t rs_c; /* bytes; C's columns are adjacent */
    const char *add; /* NULL: C is stored and never read.  Else add[m x n] is where the sum starts: C itself when */
    ptrdiff_t rs_add; /* a KC block continues an earlier one, or a bias (rs_add = 0 repeats one row). */
    ptrdiff_t m, n, k; /* k in steps of the row's KR elements */
} gk_ukr_args;

typedef void (*gk_ukr_fn)(const gk_ukr_args *);

enum {
    /* The row takes subnormal operands for zero and gives zero for subnormal sums. */
    GK_FLUSHES_DENORMALS = 1,
    /* A is to be packed as lines, even if its own are not contiguous; other layouts are right, but slow. */
    GK_WANTS_LINES = 2,
    /* A stream row that costs no more than a tile for each row of C, so that many rows may share a pass over B. */
    GK_SERVES_MANY = 4,
};

typedef struct gk_ukr {
    const char *name;
    uint32_t isa;
    int role;
    int a_type, b_type, acc_type;
    int mr, nr, kr; /* nr of a STREAM row is its vector length: n is unbounded.  kr > 1: elements interleaved in panels */
    int vl; /* accumulators a vector */
    uint32_t flags;
    gk_ukr_fn fn;
    void (*release)(void); /* gives back what fn holds from call to call in this thread; NULL: nothing */
} gk_ukr;

/* ---- Packers ---------------------------------------------------------------------------------------------------
 * A packer turns w lines of k elements of one type into panels of another; s_w, s_k: byte strides from line to line and
 * along k.  Narrow types are widened on the way.  Both forms hold ceil(w / R) micro-panels of R lines, R <= GK_MOST_R:
 *
 *   panels  [micro-panel][k / KR][R][KR]   what a GEMM row reads with one vector a step; zeros past w
 *   lines   [micro-panel][R][k]            each line by itself; lines past w are left alone
 *
 * KR is 2 for BF16 panels, whose k is rounded up to pairs with zeros, and 1 for others.  Each BF16 micro-panel is
 * followed by a trailer: the least magnitude in it, by which the engine tells whether a row that flushes may be used.
 *
 * KR is 4 for QUADS and 8 for NIBBLES, whose 32-bit elements hold four steps of k in low halves of bytes, the next four in
 * high ones.  Their packers add the sum of each line, as packed, to sums[0..w), unless sums is NULL. */
typedef void (*gk_pack_fn)(const char *src, ptrdiff_t s_w, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R,
                           char *dst, int32_t *sums);

enum { GK_MOST_R = 64, GK_TRAILER = 64 };

typedef struct gk_pack {
    const char *name;
    uint32_t isa;
    int from, to;
    gk_pack_fn panels, lines;
} gk_pack;

/* Steps of k that a micro-panel holds. */
static inline ptrdiff_t gk_depth(int type, ptrdiff_t k)
{
    const ptrdiff_t step = type == GK_BF16 ? 2 : type == GK_QUADS_I8 ? 4 : type == GK_QUADS_U8 || type == GK_NIBBLES ? 8 : 1;
    return (k + step - 1) / step * step;
}

/* Bytes from one micro-panel to the next. */
static inline ptrdiff_t gk_panel_bytes(int type, ptrdiff_t R, ptrdiff_t k)
{
    const ptrdiff_t bytes = R * gk_depth(type, k) * gk_item[type];
    return type == GK_BF16 ? bytes + GK_TRAILER : type == GK_NIBBLES ? bytes / 2 : bytes;
}

/* What a packer to QUADS or NIBBLES, or a load for a kernel that takes such, adds to each value. */
static inline int gk_shift(int from, int to)
{
    if (to == GK_QUADS_U8)
        return from == GK_I8 ? 128 : from == GK_I4 ? 8 : 0;
    if (to == GK_QUADS_I8)
        return from == GK_U8 ? -128 : 0;
    return to == GK_NIBBLES && (from == GK_I8 || from == GK_I4) ? 8 : 0;
}

/* The least magnitude of a BF16 micro-panel: the smallest nonzero value's bits without sign, 0x7fff if all are zero. */
static inline int gk_least_of(const char *panel, ptrdiff_t R, ptrdiff_t k)
{
    return *(const uint16_t *)(panel + R * (k + k % 2) * 2);
}

/* Whether a row that flushes gives what IEEE arithmetic would for these two micro-panels.  No operand may be subnormal.
 * A bfloat16 number is a multiple of 2^(e - 7), e its exponent, so if the smallest exponents add up to -112 or more every
 * product is a multiple of 2^-126, and so is every sum of them, rounded or not: none is subnormal unless it is zero. */
static inline int gk_flush_free(int least_a, int least_b)
{
    const int a = least_a >> 7, b = least_b >> 7; /* exponents with their bias of 127 */
    return a > 0 && b > 0 && a + b >= 2 * 127 - 112;
}

/* ---- Epilogues -------------------------------------------------------------------------------------------------
 * C[m x n] = alpha * acc + beta * bias, rounded once to C's type, on a tile of sums that a kernel has just left in L1.
 * acc and bias are of the accumulator's type; C may be acc itself.  bias NULL: alpha only.  To GK_I8, the low byte; to
 * GK_BOOL, whether the sum is not 0.  From GK_I32Q and GK_F32Q there is neither alpha nor bias, but zero points and scales. */
typedef struct gk_epi_args {
    const char *acc;
    ptrdiff_t rs_acc; /* columns are adjacent */
    char *c;
    ptrdiff_t rs_c; /* columns are adjacent */
    const char *bias;
    ptrdiff_t rs_bias, cs_bias; /* bytes; cs_bias is the item or 0, which repeats */
    double alpha, beta; /* used at the accumulator's precision */
    int64_t whole_alpha, whole_beta; /* instead of them for integers, modulo 2^bits */
    /* Of GK_I32Q and GK_F32Q: the sum x = acc + row_add + col_add + sum of row_mul * col_mul, modulo 2^32, each member NULL
     * or m or n numbers; then y = saturate(round(x * scale * row_scale * col_scale) + zero). */
    const int32_t *row_add, *col_add, *row_mul[2], *col_mul[2];
    const double *row_scale, *col_scale;
    /* Whether all scales and their products are far from the limits of float32, in which sums below 2^24 are then scaled. */
    int single;
    const float *col_single; /* col_scale as float32, if there is one */
    double scale, zero;
    ptrdiff_t m, n;
} gk_epi_args;

typedef void (*gk_epi_fn)(const gk_epi_args *);

typedef struct gk_epi {
    const char *name;
    uint32_t isa;
    int acc, out;
    gk_epi_fn fn;
} gk_epi;

/* ---- Softmax ---------------------------------------------------------------------------------------------------
 * What attention does between its two products, on a tile of scores [n keys][lanes], a lane a query (docs/attention.md).
 * Everything is of the accumulator's type and adjacent along lanes, a multiple of the row's VL; tmpl_softmax.inc.h says
 * what each function computes. */
typedef struct gk_soft_args {
    char *s; /* scores; of rescale and divide, what is scaled */
    ptrdiff_t rs_s;
    ptrdiff_t n, lanes;
    double factor, softcap; /* softcap 0: none */
    const char *bias; /* added to scores; NULL: nothing */
    ptrdiff_t rs_bias;
    int one_bias; /* the bias is one number a key, not one a lane */
    const char *low, *high; /* numbers of the tile's keys, one a lane: those below low or from high on are -inf; NULL: none */
    char *max, *next; /* a lane's maximum before the tile and with it: scan writes next, weigh moves it to max */
    char *alpha, *sum;
    char *p; /* weights: as s (it may be s), or pairs along n in BF16 */
    ptrdiff_t rs_p; /* from one key, or pair, to the next */
} gk_soft_args;

typedef void (*gk_soft_fn)(const gk_soft_args *);
typedef int (*gk_weigh_fn)(const gk_soft_args *); /* whether any alpha is not 1 */

typedef struct gk_soft {
    const char *name;
    uint32_t isa;
    int acc, out; /* types of scores and of weights */
    int vl;
    gk_soft_fn scan, rescale, divide;
    gk_weigh_fn weigh;
} gk_soft;

/* Floating-point operations done by `turns` turns of independent multiply-adds in registers: the machine's peak. */
typedef double (*gk_peak_fn)(long turns);

typedef struct gk_peak {
    const char *name;
    uint32_t isa;
    int type; /* of the operands */
    gk_peak_fn fn;
} gk_peak;

/* What one translation unit of kernels contributes (tables.inc.h): the whole table, with the functions of its own sets. */
typedef struct gk_tables {
    const gk_ukr *rows;
    const gk_pack *packs;
    const gk_epi *epis;
    const gk_soft *softs;
    const gk_peak *peaks;
    size_t num_rows, num_packs, num_epis, num_softs, num_peaks;
} gk_tables;

/* Each in the order of the table: best first within a role and types. */
extern const gk_ukr *const gk_rows;
extern int gk_num_rows;
extern const gk_pack *const gk_packs;
extern int gk_num_packs;
extern const gk_epi *const gk_epis;
extern int gk_num_epis;
extern const gk_soft *const gk_softs;
extern int gk_num_softs;
extern const gk_peak *const gk_peaks;
extern int gk_num_peaks;

#endif
