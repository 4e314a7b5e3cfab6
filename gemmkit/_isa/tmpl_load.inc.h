/* How a kernel template loads vectors of A and of B: as the accumulator's type, unless the including header has said how
 * to widen another.  X_ITEM: bytes an element; X_LOAD(p); X_LOAD_TAIL(p, mask, n): n elements exactly, zeros behind.  A_TYPE and B_TYPE are what V_FMA takes. */
#ifndef A_TYPE
#define A_TYPE V_TYPE
#define A_BROADCAST(p) V_BROADCAST(p)
#endif
#ifndef B_TYPE
#define B_TYPE V_TYPE
#endif
#ifndef A_LOAD
#define A_ITEM sizeof(V_ELEM)
#define A_LOAD(p) V_LOAD(p)
#define A_LOAD_TAIL(p, mask, n) V_LOAD_TAIL(p, mask)
#endif
#ifndef B_LOAD
#define B_ITEM sizeof(V_ELEM)
#define B_LOAD(p) V_LOAD(p)
#define B_LOAD_TAIL(p, mask, n) V_LOAD_TAIL(p, mask)
#endif
