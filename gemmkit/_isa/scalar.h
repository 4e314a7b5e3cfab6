/* Plain C: vectors of one element.  No intrinsics, no region: right on every machine, and what to read first.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef GK_SCALAR_H
#define GK_SCALAR_H

GK_INLINE float gk_load_f32(const char *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return x;
}

GK_INLINE double gk_load_f64(const char *p)
{
    double x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* y 2^n of whole n, by the bits of 2^n. */
GK_INLINE float gk_pow2_f32(float y, float n)
{
    const float x = n + GK_POW2_F32;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits <<= 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return y * power;
}

GK_INLINE double gk_pow2_f64(double y, double n)
{
    const double x = n + GK_POW2_F64;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits <<= 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return y * power;
}

GK_INLINE void gk_store_f32(char *p, float x) { memcpy(p, &x, sizeof x); }
GK_INLINE void gk_store_f64(char *p, double x) { memcpy(p, &x, sizeof x); }

#define V_ELEM float
#define V_TYPE float
#define V_LOAD(p) gk_load_f32(p)
#define V_STORE(p, v) gk_store_f32(p, v)
#define GK_PACK_OF f32f32_scalar
#define GK_EPI_NAME gk_epilogue_f32f32_scalar
#define GK_PEAK_NAME gk_peak_f32_scalar
#define V_SET(x) ((float)(x))
#define V_POW2_FROM(x, least, v, n) ((x) < (least) ? 0 : gk_pow2_f32(v, n))
#define GK_SOFT_OF f32_scalar
#include "softmax_f32.inc.h"
#define GK_GEMM_NAME gk_gemm_f32f32_ukr_4x4_scalar
#define GK_DOT_NAME gk_dot_f32f32_ukr_2x2_scalar
#define GK_STREAM_NAME gk_stream_f32f32_ukr_4x1_scalar
#define GK_NARROW_TOO /* the narrow types are widened to this one */
#include "tmpl_scalar.inc.h"

#define V_ELEM double
#define V_TYPE double
#define V_LOAD(p) gk_load_f64(p)
#define V_STORE(p, v) gk_store_f64(p, v)
#define GK_PACK_OF f64f64_scalar
#define GK_EPI_NAME gk_epilogue_f64f64_scalar
#define GK_PEAK_NAME gk_peak_f64_scalar
#define V_SET(x) ((double)(x))
#define V_POW2_FROM(x, least, v, n) ((x) < (least) ? 0 : gk_pow2_f64(v, n))
#define GK_SOFT_OF f64_scalar
#include "softmax_f64.inc.h"
#define GK_GEMM_NAME gk_gemm_f64f64_ukr_4x4_scalar
#define GK_DOT_NAME gk_dot_f64f64_ukr_2x2_scalar
#define GK_STREAM_NAME gk_stream_f64f64_ukr_4x1_scalar
#include "tmpl_scalar.inc.h"

#endif
