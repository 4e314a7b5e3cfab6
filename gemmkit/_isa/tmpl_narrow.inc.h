/* Everything that an instruction set has for one narrow type, made of four functions of its header:
 *
 *   gk_load_<type>_<set>(p)          V_LEN elements widened to a vector of float32
 *   gk_load_part_<type>_<set>(p, n)  n < V_LEN elements exactly, zeros behind them
 *   gk_store_<type>_<set>(p, v)      a vector rounded to nearest even
 *   gk_store_part_<type>_<set>(p, n, v)
 *
 * Needs N_TYPE (f16, ...), N_ITEM, the V_* vocabulary of float32 and N_SET, N_PLAIN_PANELS, N_MR, N_NV, N_TILE, N_DOT_MR,
 * N_DOT_NR, N_DOT_ACC, N_DOT_TILE, N_SCALARS, N_STREAM_TILE; undefines the first two. */
#define N_SUFFIX GK_CAT(_, N_SET)
#define N_NAME2(stem, tile) GK_CAT(GK_CAT(stem, tile), N_SUFFIX)
#define N_OF GK_CAT(N_TYPE, N_SUFFIX)
#define N_FROM_F32 GK_CAT(f32, N_TYPE)
#define N_TO_F32 GK_CAT(N_TYPE, f32)
#define N_LOAD(p) GK_CAT(gk_load_, N_OF)(p)
#define N_LOAD_TAIL(p, mask, n) GK_CAT(gk_load_part_, N_OF)(p, n)

#define GK_PACK_OF GK_CAT(N_TO_F32, N_SUFFIX)
#include "tmpl_narrow_pack.inc.h"

#define GK_EPI_NAME GK_CAT(gk_epilogue_, GK_CAT(N_FROM_F32, N_SUFFIX))
#define C_ITEM N_ITEM
#define C_STORE(p, v) GK_CAT(gk_store_, N_OF)(p, v)
#define C_STORE_TAIL(p, mask, n, v) GK_CAT(gk_store_part_, N_OF)(p, n, v)
#include "tmpl_epilogue.inc.h"
#if N_ITEM == 1
#define GK_EPI_NAME GK_CAT(gk_epilogue_f32q, N_OF)
#define S_MOST GK_CAT(GK_MOST_, N_TYPE)
#define C_STORE(p, v) GK_CAT(gk_store_, N_OF)(p, v)
#define C_STORE_TAIL(p, mask, n, v) GK_CAT(gk_store_part_, N_OF)(p, n, v)
#include "tmpl_scaled.inc.h"
#endif

#define GK_UKR_NAME N_NAME2(GK_CAT(gk_gemm_, GK_CAT(N_FROM_F32, _ukr_)), N_TILE)
#define GK_MR N_MR
#define GK_NV N_NV
#define B_ITEM N_ITEM
#define B_LOAD(p) N_LOAD(p)
#define B_LOAD_TAIL(p, mask, n) N_LOAD_TAIL(p, mask, n)
#include "tmpl_gemm.inc.h"

#define GK_UKR_NAME N_NAME2(GK_CAT(gk_stream_, GK_CAT(N_FROM_F32, _ukr_)), N_STREAM_TILE)
#define GK_MR 4
#define GK_SCALARS N_SCALARS
#define B_ITEM N_ITEM
#define B_LOAD(p) N_LOAD(p)
#define B_LOAD_TAIL(p, mask, n) N_LOAD_TAIL(p, mask, n)
#include "tmpl_stream.inc.h"

#define GK_UKR_NAME N_NAME2(GK_CAT(gk_dot_, GK_CAT(N_FROM_F32, _ukr_)), N_DOT_TILE)
#define GK_MR N_DOT_MR
#define GK_NR N_DOT_NR
#define GK_ACC N_DOT_ACC
#define B_ITEM N_ITEM
#define B_LOAD(p) N_LOAD(p)
#define B_LOAD_TAIL(p, mask, n) N_LOAD_TAIL(p, mask, n)
#include "tmpl_dot.inc.h"

#define GK_UKR_NAME N_NAME2(GK_CAT(gk_dot_, GK_CAT(N_TO_F32, _ukr_)), N_DOT_TILE)
#define GK_MR N_DOT_MR
#define GK_NR N_DOT_NR
#define GK_ACC N_DOT_ACC
#define A_ITEM N_ITEM
#define A_LOAD(p) N_LOAD(p)
#define A_LOAD_TAIL(p, mask, n) N_LOAD_TAIL(p, mask, n)
#include "tmpl_dot.inc.h"

#undef N_SUFFIX
#undef N_NAME2
#undef N_OF
#undef N_FROM_F32
#undef N_TO_F32
#undef N_LOAD
#undef N_LOAD_TAIL
#undef N_TYPE
#undef N_ITEM
