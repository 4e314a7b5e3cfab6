/* The V_* vocabulary of one-element vectors, and the kernels made of it. */
#define V_LEN 1
#define V_MASK int
#define V_TAIL_MASK(n) (n)
#define V_ZERO() 0
#define V_LOAD_TAIL(p, mask) V_LOAD(p) /* a vector of one has no partial form */
#define V_STORE_TAIL(p, mask, v) V_STORE(p, v)
#define V_BROADCAST(p) V_LOAD(p)
#ifndef V_FMA
#define V_FMA(a, b, c) ((a) * (b) + (c)) /* two roundings: the build forbids contraction */
#endif
#define V_ADD(a, b) ((a) + (b))
#ifndef V_MUL
#define V_MUL(a, b) ((a) * (b))
#endif
#define V_SUM(v) (v)
#define V_SUB(a, b) ((a) - (b))
#define V_DIV(a, b) ((a) / (b))
#define V_MAX(a, b) ((a) > (b) ? (a) : (b))
#define V_LESS(a, b, x, y) ((a) < (b) ? (x) : (y))
#define V_SQUARE 1
#define V_TRANSPOSE(src, s_w, dst, s_dst) V_STORE(dst, V_LOAD(src))

#include "tmpl_pack.inc.h"
#include "tmpl_epilogue.inc.h"
#ifdef GK_SOFT_OF
#include "tmpl_softmax.inc.h"
#endif
#define GK_PEAK_ACC 12
#include "tmpl_peak.inc.h"
#define GK_UKR_NAME GK_GEMM_NAME
#define GK_MR 4
#define GK_NV 4
#include "tmpl_gemm.inc.h"
#define GK_UKR_NAME GK_DOT_NAME
#define GK_MR 2
#define GK_NR 2
#define GK_ACC 8
#include "tmpl_dot.inc.h"
#define GK_UKR_NAME GK_STREAM_NAME
#define GK_MR 4
#define GK_SCALARS 8
#include "tmpl_stream.inc.h"
#ifdef GK_NARROW_TOO
#define N_SET scalar
#define N_PLAIN_PANELS gk_panels_f32f32_scalar
#define N_MR 4
#define N_NV 4
#define N_TILE 4x4
#define N_DOT_MR 2
#define N_DOT_NR 2
#define N_DOT_ACC 8
#define N_DOT_TILE 2x2
#define N_SCALARS 8
#define N_STREAM_TILE 4x1
#include "tmpl_narrow_all.inc.h"
#undef GK_NARROW_TOO
#endif
#undef GK_GEMM_NAME
#undef GK_DOT_NAME
#undef GK_STREAM_NAME
#include "tmpl_undef.inc.h"
