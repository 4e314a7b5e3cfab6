/* Everything that an instruction set has for one integer type that is multiplied and added in its own width.
 *
 * Needs W_TYPE (i16, i32, i64), W_SET, W_MR, W_NV, W_TILE, W_DOT_MR, W_DOT_NR, W_DOT_ACC, W_DOT_TILE, W_SCALARS, W_STREAM_TILE,
 * and the V_* vocabulary of the unsigned type, whose products wrap; undefines W_TYPE and the tiles. */
#define W_NAME(stem, tile) GK_CAT(GK_CAT(stem, GK_CAT(W_TYPE, W_TYPE)), GK_CAT(GK_CAT(_ukr_, tile), GK_CAT(_, W_SET)))
#define W_OF(stem) GK_CAT(stem, GK_CAT(GK_CAT(W_TYPE, W_TYPE), GK_CAT(_, W_SET)))

#define E_SCALE(real, whole) (V_ELEM)(whole)
#define GK_EPI_NAME W_OF(gk_epilogue_)
#include "tmpl_epilogue.inc.h"
#define GK_PEAK_NAME GK_CAT(GK_CAT(gk_peak_, W_TYPE), GK_CAT(_, W_SET))
#define GK_PEAK_ACC (W_MR * W_NV)
#include "tmpl_peak.inc.h"
#define GK_UKR_NAME W_NAME(gk_gemm_, W_TILE)
#define GK_MR W_MR
#define GK_NV W_NV
#include "tmpl_gemm.inc.h"
#define GK_UKR_NAME W_NAME(gk_dot_, W_DOT_TILE)
#define GK_MR W_DOT_MR
#define GK_NR W_DOT_NR
#define GK_ACC W_DOT_ACC
#include "tmpl_dot.inc.h"
#define GK_UKR_NAME W_NAME(gk_stream_, W_STREAM_TILE)
#define GK_MR 4
#define GK_SCALARS W_SCALARS
#include "tmpl_stream.inc.h"

#undef W_NAME
#undef W_OF
#undef W_TYPE
#undef W_TILE
#undef W_STREAM_TILE
