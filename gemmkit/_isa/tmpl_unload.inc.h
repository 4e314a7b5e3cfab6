/* Ends one kernel: its operands' loads (tmpl_load.inc.h). */
#undef A_TYPE
#undef A_BROADCAST
#undef B_TYPE
#undef A_ITEM
#undef A_LOAD
#undef A_LOAD_TAIL
#undef B_ITEM
#undef B_LOAD
#undef B_LOAD_TAIL
