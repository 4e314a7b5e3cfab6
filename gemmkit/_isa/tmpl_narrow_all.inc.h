/* The six narrow types, and masks, of one instruction set; needs and undefines what tmpl_narrow.inc.h says about a set. */
#define N_TYPE f16
#define N_ITEM 2
#include "tmpl_narrow.inc.h"
#define N_TYPE bf16
#define N_ITEM 2
#include "tmpl_narrow.inc.h"
#define N_TYPE e4m3fn
#define N_ITEM 1
#include "tmpl_narrow.inc.h"
#define N_TYPE e4m3fnuz
#define N_ITEM 1
#include "tmpl_narrow.inc.h"
#define N_TYPE e5m2
#define N_ITEM 1
#include "tmpl_narrow.inc.h"
#define N_TYPE e5m2fnuz
#define N_ITEM 1
#include "tmpl_narrow.inc.h"
/* Bools of a mask as what is added to scores: 0 and -inf. */
#define GK_PACK_OF GK_CAT(boolf32_, N_SET)
#define N_ITEM 1
#define N_LOAD(p) GK_CAT(gk_load_bool_, N_SET)(p)
#define N_LOAD_TAIL(p, mask, n) GK_CAT(gk_load_part_bool_, N_SET)(p, n)
#include "tmpl_narrow_pack.inc.h"
#undef N_ITEM
#undef N_LOAD
#undef N_LOAD_TAIL
#undef N_SET
#undef N_PLAIN_PANELS
#undef N_MR
#undef N_NV
#undef N_TILE
#undef N_DOT_MR
#undef N_DOT_NR
#undef N_DOT_ACC
#undef N_DOT_TILE
#undef N_SCALARS
#undef N_STREAM_TILE
