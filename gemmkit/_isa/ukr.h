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
    GK_ISA_AVX2 = 1 << 3, /* and FMA3 */
    GK_ISA_AVX512 = 1 << 4, /* F, BW, DQ, VL */
};

enum gk_type { GK_F32 = 0, GK_F64 = 1, GK_NUM_TYPES = 2 };

/* What a row does, which is to say which loop it keeps in registers.
 *   GEMM    an outer product a step of k: C tile in registers.       Needs cs_b == item.
 *   DOT     vectors along k, one accumulator set an element of C.    Needs cs_a == item and rs_b == item.
 *   STREAM  a few rows of C at once, B read row after row, C in L1.  Needs cs_b == item; n is unbounded. */
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
    ptrdiff_t m, n, k;
} gk_ukr_args;

typedef void (*gk_ukr_fn)(const gk_ukr_args *);

/* Packs w lines of k elements into ceil(w / R) micro-panels of R lines: dst[panel][k][R], zero past w.
 * s_w, s_k: byte strides from line to line and along k. */
typedef void (*gk_pack_fn)(const char *src, ptrdiff_t s_w, ptrdiff_t s_k, ptrdiff_t w, ptrdiff_t k, ptrdiff_t R,
                           char *dst);

/* C[m x n] = alpha * C + beta * bias on a tile that a kernel has just left in L1.  bias NULL: alpha only. */
typedef struct gk_epi_args {
    char *c;
    ptrdiff_t rs_c;
    const char *bias;
    ptrdiff_t rs_bias, cs_bias; /* bytes, 0 repeats */
    double alpha, beta; /* used at the accumulator's precision */
    ptrdiff_t m, n;
} gk_epi_args;

typedef void (*gk_epi_fn)(const gk_epi_args *);

typedef struct gk_ukr {
    const char *name;
    uint32_t isa;
    int role;
    int a_type, b_type, acc_type;
    int mr, nr, kr; /* nr of a STREAM row is its vector length: n is unbounded */
    int vl; /* elements a vector */
    uint32_t flags;
    gk_pack_fn pack_a, pack_b;
    gk_ukr_fn fn;
} gk_ukr;

/* Floating-point operations done by `turns` turns of independent multiply-adds in registers: the machine's peak. */
typedef double (*gk_peak_fn)(long turns);

typedef struct gk_vec {
    const char *name;
    uint32_t isa;
    int type;
    gk_epi_fn epilogue;
    gk_peak_fn peak;
} gk_vec;

/* Rows in the order of the table: best first within a role and a type triple. */
extern const gk_ukr gk_rows[];
extern const int gk_num_rows;
extern const gk_vec gk_vecs[];
extern const int gk_num_vecs;

#endif
