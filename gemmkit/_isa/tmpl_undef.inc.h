/* Ends one (instruction set, type): the V_* vocabulary is free for the next. */
#undef V_ELEM
#undef V_TYPE
#undef V_LEN
#undef V_MASK
#undef V_TAIL_MASK
#undef V_ZERO
#undef V_LOAD
#undef V_LOAD_TAIL
#undef V_STORE
#undef V_STORE_TAIL
#undef V_BROADCAST
#undef V_FMA
#undef V_ADD
#undef V_MUL
#undef V_SUM
#undef V_SQUARE
#undef V_TRANSPOSE
