/* The packers of QUADS of one set; needs and undefines P_SET and P_PLAIN_PANELS (tmpl_quads.inc.h). */
#define GK_PACK_OF GK_CAT(u8quads_u8_, P_SET)
#define P_TO GK_QUADS_U8
#define P_TURN 0
#define P_OF_NIBBLES 0
#include "tmpl_quads.inc.h"
#define GK_PACK_OF GK_CAT(i8quads_u8_, P_SET)
#define P_TO GK_QUADS_U8
#define P_TURN 0x80
#define P_OF_NIBBLES 0
#include "tmpl_quads.inc.h"
#define GK_PACK_OF GK_CAT(u4quads_u8_, P_SET)
#define P_TO GK_QUADS_U8
#define P_TURN 0
#define P_OF_NIBBLES 1
#include "tmpl_quads.inc.h"
#define GK_PACK_OF GK_CAT(i4quads_u8_, P_SET)
#define P_TO GK_QUADS_U8
#define P_TURN 8
#define P_OF_NIBBLES 1
#include "tmpl_quads.inc.h"
#define GK_PACK_OF GK_CAT(i8quads_i8_, P_SET)
#define P_TO GK_QUADS_I8
#define P_TURN 0
#define P_OF_NIBBLES 0
#include "tmpl_quads.inc.h"
#define GK_PACK_OF GK_CAT(u8quads_i8_, P_SET)
#define P_TO GK_QUADS_I8
#define P_TURN 0x80
#define P_OF_NIBBLES 0
#include "tmpl_quads.inc.h"
#define GK_PACK_OF GK_CAT(u4quads_i8_, P_SET)
#define P_TO GK_QUADS_I8
#define P_TURN 0
#define P_OF_NIBBLES 1
#include "tmpl_quads.inc.h"
#define GK_PACK_OF GK_CAT(i4quads_i8_, P_SET)
#define P_TO GK_QUADS_I8
#define P_TURN 8
#define P_OF_NIBBLES 1
#include "tmpl_quads.inc.h"
#undef P_SET
#undef P_PLAIN_PANELS
