"""AttentionDescriptor: the attributes of an Attention node and what is wired to it."""

cdef class AttentionDescriptor:
    cdef readonly tuple inputs, outputs
    cdef readonly object scale, q_num_heads, kv_num_heads, softmax_precision
    cdef readonly double softcap
    cdef readonly bint is_causal
    cdef readonly int qk_matmul_output_mode
    cdef readonly ptrdiff_t left_window_size, right_window_size
    cdef ptrdiff_t q_heads, k_heads  # 0: not given
    cdef bint has_mask, has_past, has_nonpad, has_cache
    cdef tuple value(self)
