"""AttentionDescriptor: the attributes of an Attention node and what is wired to it, checked once.

What needs no shapes is refused here: ONNX's rules of Attention 23 to 25 and, where executors differ, the strict one.
"""
import numpy as np

from gemmkit._kernels._calls cimport real
from gemmkit._kernels._types cimport type_of
from gemmkit._kernels._registry cimport GK_BF16, GK_F16, GK_F32, GK_F64

INPUTS = ("q", "k", "v", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen", "cache")
ATTRIBUTES = ("scale", "is_causal", "softcap", "q_num_heads", "kv_num_heads", "qk_matmul_output_mode", "softmax_precision",
              "left_window_size", "right_window_size")
OUTPUTS = ("y", "present_key", "present_value", "qk_matmul_output")


cdef ptrdiff_t whole(object x, str name) except? -2:
    if isinstance(x, (bool, np.bool_)) or not hasattr(x, "__index__"):
        raise TypeError(f"{name}: expected an integer, got {type(x).__name__}")
    try:
        x = x.__index__()
    except TypeError:  # an array
        raise TypeError(f"{name}: expected an integer, got {type(x).__name__}") from None
    # Beyond any length there is nothing to tell apart.
    return min(x, 1 << 62) if x >= 0 else max(x, -(1 << 62))


cdef ptrdiff_t head_count(object x, str name) except -1:
    if x is None:
        return 0
    cdef ptrdiff_t n = whole(x, name)
    if n < 1:
        raise ValueError(f"{name}: expected at least 1, got {n}")
    return n


cdef ptrdiff_t window(object x, str name) except -2:
    cdef ptrdiff_t n = whole(x, name)
    if n < -1:
        raise ValueError(f"{name}: expected -1 (open) or a number of keys, got {x}")
    return n


cdef tuple names(object x, str name, tuple known):
    if isinstance(x, (str, np.ndarray)) or not hasattr(x, "__iter__"):
        raise TypeError(f"{name}: expected a tuple of names, got {x!r}")
    given = tuple(x)
    for one in given:
        if not isinstance(one, str) or one not in known:
            raise ValueError(f"{name}: expected names out of {', '.join(known)}, got {one!r}")
    if len(set(given)) < len(given):
        raise ValueError(f"{name}: each only once, got {given}")
    return given


cdef class AttentionDescriptor:
    """AttentionDescriptor(inputs=("q", "k", "v"), outputs=("y",), *, scale=None, is_causal=False, softcap=0.0, q_num_heads=None, kv_num_heads=None, qk_matmul_output_mode=0, softmax_precision=None, left_window_size=-1, right_window_size=-1)

    Attributes and wiring of an Attention node (ONNX Attention 23, 24, 25), without shapes.  Immutable.

    Parameters
    ----------
    inputs : tuple of str
        Which inputs there are: "q", "k", "v", and out of "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen", "cache"
        (a `KVCache` in place of past_key and past_value).
    outputs : tuple of str
        Out of "y", "present_key", "present_value", "qk_matmul_output", in the order wanted.
    scale, is_causal, softcap, q_num_heads, kv_num_heads, qk_matmul_output_mode, softmax_precision, left_window_size, right_window_size
        As for `gemmkit.attention`.

    Raises
    ------
    ValueError
        past_key without past_value or the reverse; nonpad_kv_seqlen or cache with past, nonpad_kv_seqlen with cache or present
        outputs; scale negative or not finite, softcap negative or not finite, a mode outside 0 to 3, a window below -1, head
        counts below 1 or not divisible.
    TypeError
        A value of the wrong type.
    """

    def __cinit__(self, inputs=("q", "k", "v"), outputs=("y",), *, scale=None, is_causal=False, softcap=0.0, q_num_heads=None,
                  kv_num_heads=None, qk_matmul_output_mode=0, softmax_precision=None, left_window_size=-1, right_window_size=-1):
        cdef double x
        cdef int precision
        self.inputs, self.outputs = names(inputs, "inputs", INPUTS), names(outputs, "outputs", OUTPUTS)
        if not self.outputs:
            raise ValueError("outputs: expected at least one name, got none")
        for name in ("q", "k", "v"):
            if name not in self.inputs:
                raise ValueError(f"inputs: expected q, k and v among them, got {self.inputs}")
        past, value = "past_key" in self.inputs, "past_value" in self.inputs
        if past != value:
            missing, given = ("past_key", "past_value") if value else ("past_value", "past_key")
            raise ValueError(f"{missing}: expected one beside {given}, got None")
        self.has_mask, self.has_past, self.has_nonpad = "attn_mask" in self.inputs, past, "nonpad_kv_seqlen" in self.inputs
        self.has_cache = "cache" in self.inputs
        if self.has_nonpad and past:
            raise ValueError("nonpad_kv_seqlen: not together with past_key and past_value, which it replaces")
        if self.has_cache and past:
            raise ValueError("cache: not together with past_key and past_value, which it replaces")
        if self.has_cache and self.has_nonpad:
            raise ValueError("nonpad_kv_seqlen: not together with cache, whose tokens are all valid")
        for name in ("present_key", "present_value"):
            if self.has_nonpad and name in self.outputs:
                raise ValueError(f"outputs: {name} is not together with nonpad_kv_seqlen, with which K and V are the cache already")
        if scale is not None:
            x = real(scale, "scale")
            if not (x >= 0 and x - x == 0):
                raise ValueError(f"scale: expected a finite number of at least 0, got {scale}")
            scale = x
        self.scale = scale
        self.softcap = real(softcap, "softcap")
        if not (self.softcap >= 0 and self.softcap - self.softcap == 0):
            raise ValueError(f"softcap: expected a finite number of at least 0 (0 is none), got {softcap}")
        if not isinstance(is_causal, (bool, int, np.bool_, np.integer)):
            raise TypeError(f"is_causal: expected a bool, got {type(is_causal).__name__}")
        self.is_causal = bool(is_causal)
        self.q_heads, self.k_heads = head_count(q_num_heads, "q_num_heads"), head_count(kv_num_heads, "kv_num_heads")
        self.q_num_heads, self.kv_num_heads = self.q_heads or None, self.k_heads or None
        if self.q_heads and self.k_heads and self.q_heads % self.k_heads:
            raise ValueError(f"q_num_heads: expected a multiple of kv_num_heads, {self.k_heads}, got {self.q_heads}")
        mode = whole(qk_matmul_output_mode, "qk_matmul_output_mode")
        if not 0 <= mode <= 3:
            raise ValueError(f"qk_matmul_output_mode: expected 0, 1, 2 or 3, got {mode}")
        self.qk_matmul_output_mode = mode
        if softmax_precision is not None:
            if isinstance(softmax_precision, int):
                raise TypeError("softmax_precision: expected a dtype; ONNX's 1, 10, 11 and 16 are float32, float16, float64 and bfloat16")
            precision = type_of(softmax_precision, "softmax_precision")
            if precision not in (GK_F32, GK_F64, GK_F16, GK_BF16):
                raise TypeError(f"softmax_precision: expected float32, float64, float16 or bfloat16, got {np.dtype(softmax_precision)}")
            softmax_precision = np.dtype(softmax_precision)
        self.softmax_precision = softmax_precision
        self.left_window_size = window(left_window_size, "left_window_size")
        self.right_window_size = window(right_window_size, "right_window_size")

    cdef tuple value(self):
        return self.inputs, self.outputs, *[getattr(self, name) for name in ATTRIBUTES]

    def __eq__(self, other):
        return isinstance(other, AttentionDescriptor) and self.value() == (<AttentionDescriptor>other).value()

    def __hash__(self):
        return hash(self.value())

    def __reduce__(self):
        return rebuilt, (self.inputs, self.outputs, {name: getattr(self, name) for name in ATTRIBUTES})

    def __repr__(self):
        parts = [", ".join(self.inputs) + " -> " + ", ".join(self.outputs)]
        for name, default in (("scale", None), ("is_causal", False), ("softcap", 0.0), ("q_num_heads", None), ("kv_num_heads", None),
                              ("softmax_precision", None), ("left_window_size", -1), ("right_window_size", -1)):
            value = getattr(self, name)
            if value != default:
                parts.append(f"{name}={value}")
        if "qk_matmul_output" in self.outputs:
            parts.append(f"qk_matmul_output_mode={self.qk_matmul_output_mode}")
        return f"AttentionDescriptor({', '.join(parts)})"


def rebuilt(inputs, outputs, attributes):
    """A descriptor out of a pickle or a copy."""
    return AttentionDescriptor(inputs, outputs, **attributes)
