/* The V_* vocabulary of unsigned integers in the compiler's own vectors, whose sums and products wrap, for W_ELEM, W_VECTOR
 * (a type of vectors.h) and W_LOAD_TAIL, W_STORE_TAIL of a set; tmpl_undef.inc.h ends it. */
#define V_ELEM W_ELEM
#define V_TYPE W_VECTOR
#define V_LEN (int)(sizeof(W_VECTOR) / sizeof(W_ELEM))
#define V_ZERO() ((W_VECTOR){0})
#define V_LOAD(p) ((W_VECTOR)(*(const GK_CAT(W_VECTOR, _at) *)(p)))
#define V_STORE(p, v) (*(GK_CAT(W_VECTOR, _at) *)(p) = (v))
#define V_BROADCAST(p) (*(const GK_CAT(W_ELEM, _at) *)(p) - (W_VECTOR){0})
#define V_FMA(a, b, c) ((a) * (b) + (c))
#define V_ADD(a, b) ((a) + (b))
#define V_MUL(a, b) ((a) * (b))
