"""Plans for products of quantized operands: B packed once, with the sums of its columns."""
cimport numpy as cnp

import math

import numpy as np

from gemmkit._kernels._calls cimport Call, bind, finish
from gemmkit._kernels._integers cimport (Operand, is_float8, is_zero, like_operand, read_operand, set_result_zero, set_scales, set_types, set_zero,
                                         settle_addresses, settle_batch)
from gemmkit._kernels._plans cimport Plan, shape_of
from gemmkit._kernels._registry cimport GK_I8, GK_I32, GK_U8
from gemmkit._kernels._types cimport Types, dtype_of, type_of

cnp.import_array()

cdef enum: NIBBLE_ROWS = 16  # rows up to which reading B bounds the product, so that half the bytes pay for their expansion


cdef class IntegerPlan(Plan):
    """What MatMulIntegerPlan and QLinearMatMulPlan have in common."""
    cdef object a_dtype, given_b_dtype
    cdef object b_zero, b_scale  # of a constant B
    cdef int b_type  # of an owned B, as it was read
    cdef int b_added

    def __cinit__(self, *args, **kwargs):
        if type(self) is IntegerPlan:
            raise TypeError("IntegerPlan: make one of its subclasses")

    cdef int arrange(self, object a_shape, object b_shape, object a_dtype, object b_dtype, int result, object b, object b_zero,
                     object b_scale, bint scaled, str algorithm) except -1:
        cdef Call call
        cdef Operand x, y
        cdef list keep = []
        self.a_shape, self.b_shape = shape_of(a_shape, "a_shape"), shape_of(b_shape, "b_shape")
        x = like_operand(self.a_shape, a_dtype, "a_dtype")
        y = like_operand(self.b_shape, b_dtype, "b_dtype") if b is None else self.checked_operand(b, "b", self.b_shape, b_dtype)
        floats = is_float8(x.type)
        if floats != is_float8(y.type) or floats != is_float8(result):
            raise TypeError(f"a_dtype, b_dtype: expected integers, or float8 types for both operands and the result; got {x.dtype} and "
                            f"{y.dtype}, the result {dtype_of(result)}")
        self.a_dtype, self.given_b_dtype = x.dtype, y.dtype
        self.alpha, self.beta = 1.0, 0.0
        set_types(&self.types, x, y, result)
        bind(&call, &self.types, x.array, False, y.array, NULL, False)
        if floats:
            check_no_zero(b_zero, y, "b_zero_point")
        else:
            set_zero(&call, 0, None, self.a_shape, x, "a_zero_point", keep)
            set_zero(&call, 1, b_zero, self.b_shape, y, "b_zero_point", keep)
        if scaled:
            one = np.float32(1)
            set_scales(&call, one, self.a_shape, one if b_scale is None else b_scale, self.b_shape, one, keep)
        self.b_zero, self.b_scale = frozen(b_zero), frozen(b_scale)
        if b is not None:
            self.b_type, self.b_added = y.type, y.added
            # One matrix B serves the rows of all A's of a stack.
            rows = call.job.m if len(self.b_shape) > 2 else math.prod(self.a_shape[:len(self.a_shape) - 1])
            call.job.nibble_panels = y.dtype.name in ("int4", "uint4") and rows <= NIBBLE_ROWS
        return self.decide(&call, y.array if b is not None else None, algorithm)

    cdef Operand checked_operand(self, object x, str name, tuple shape, object dtype):
        cdef Operand o = read_operand(x, name, is_float8(self.types.c))
        if o.dtype != np.dtype(dtype):
            raise TypeError(f"{name}: expected dtype {np.dtype(dtype)}, got {o.dtype}")
        if (<object>o.array).shape != shape:
            raise ValueError(f"{name}: expected shape {shape}, got {(<object>o.array).shape}")
        return o

    cdef object call(self, object a, object a_scale, object a_zero, object b, object b_scale, object b_zero, object y_scale,
                     object y_zero, bint scaled, object out):
        cdef Call call
        cdef Types types = self.types  # a copy: other threads may call this plan
        cdef Operand x = self.checked_operand(a, "a", self.a_shape, self.a_dtype), y = None
        cdef list keep = []
        floats = is_float8(x.type)
        if self.owns_b:
            for given, name in ((b, "b"), (b_zero, "b_zero_point"), (b_scale, "b_scale")):
                if given is not None:
                    raise ValueError(f"{name}: this plan owns its B, given when it was made with its zero point and scale; "
                                     "call it without")
            b_zero, b_scale = self.b_zero, self.b_scale
            types.a = types.kernel_a = x.type  # a PackedInt4 or an array of the same values
            bind(&call, &types, x.array, False, self.own_b, &self.packed if self.job.b_prepacked else NULL, False)
            call.job.nibble_panels = self.job.nibble_panels
            y = Operand()
            y.type, y.added, y.dtype = self.b_type, self.b_added, self.given_b_dtype
            settle_addresses(&call, x, None)
        else:
            if b is None:
                raise ValueError("b: this plan owns no B; pass one of shape " + str(self.b_shape))
            y = self.checked_operand(b, "b", self.b_shape, self.given_b_dtype)
            set_types(&types, x, y, types.c)
            bind(&call, &types, x.array, False, y.array, NULL, False)
            settle_addresses(&call, x, y)
        if floats:
            check_no_zero(a_zero, x, "a_zero_point")
            check_no_zero(b_zero, y, "b_zero_point")
        else:
            set_zero(&call, 0, a_zero, self.a_shape, x, "a_zero_point", keep)
            set_zero(&call, 1, b_zero, self.b_shape, y, "b_zero_point", keep)
        if scaled:
            set_scales(&call, a_scale, self.a_shape, b_scale, self.b_shape, y_scale, keep)
            if isinstance(y_zero, int) and not isinstance(y_zero, bool):
                y_zero = whole_zero(y_zero, dtype_of(types.c))
            set_result_zero(&call, y_zero, types.c)
        settle_batch(&call)
        inputs = (x.array, y.array) if out is not None and not self.owns_b else (x.array,) if out is not None else ()
        return finish(&call, out, None, 1.0, 0.0, &self.job, self.forced, inputs)

    @property
    def dtype(self):
        """The number type of A."""
        return self.a_dtype

    @property
    def b_dtype(self):
        """The number type of B."""
        return self.given_b_dtype

    @property
    def panel_dtype(self):
        """What a packed B holds: int8, or for few rows of a constant 4-bit B its own type, two values a byte."""
        return self.given_b_dtype if self.job.nibble_panels else np.dtype(np.int8)


cdef int check_no_zero(object zero, Operand x, str name) except -1:
    """Subtracting a float8 zero point would change the type that B was packed for."""
    if zero is not None and not is_zero(zero, x, name):
        raise ValueError(f"{name}: a plan takes float8 operands with zero points of 0 only; gemmkit.qlinear_matmul takes others")
    return 0


cdef object whole_zero(object zero, object dtype):
    """A Python integer as the zero point of a result, whose dtype a plan knows."""
    low, high = (-128, 127) if dtype == np.int8 else (0, 255) if dtype == np.uint8 else (0, 0)
    if not low <= zero <= high:
        raise ValueError(f"y_zero_point: expected {low} to {high} for {dtype}, got {zero}")
    return np.asarray(zero).astype(dtype)


cdef object frozen(object x):
    """A copy that the caller can't change."""
    return x if x is None or isinstance(x, (int, float)) else np.array(x)


cdef class MatMulIntegerPlan(IntegerPlan):
    """MatMulIntegerPlan(a_shape, b_shape, a_dtype, b_dtype, *, b=None, b_zero_point=None, algorithm="auto")

    `gemmkit.matmul_integer` of fixed shapes (ONNX MatMulInteger 10).

    Parameters
    ----------
    a_shape, b_shape : tuple of int
        As for `gemmkit.matmul`, batch axes and rank 1 included.
    a_dtype, b_dtype : dtype
        int8, uint8, or ml_dtypes' int4 or uint4, which `PackedInt4` operands have too.
    b : array_like or PackedInt4, optional
        Packed now, with the sums of its columns, and owned by the plan.  A 4-bit one is kept as nibbles if a product has up
        to 16 rows.
    b_zero_point : array_like, optional
        Of that b, as for `gemmkit.matmul_integer`.
    algorithm : str
        Force one of general, skinny_m, skinny_n, split_k; "auto" chooses.  A constant b is packed for general, the only one then.

    Raises
    ------
    ValueError, TypeError
        As `gemmkit.matmul_integer`, for what is known when the plan is made; an algorithm that can't run.
    """

    def __cinit__(self, a_shape, b_shape, a_dtype, b_dtype, *, b=None, b_zero_point=None, str algorithm="auto"):
        if b is None and b_zero_point is not None:
            raise ValueError("b_zero_point: belongs to a constant b; without one it is an argument of the call")
        self.arrange(a_shape, b_shape, a_dtype, b_dtype, GK_I32, b, b_zero_point, None, False, algorithm)

    def __call__(self, a, b=None, a_zero_point=None, b_zero_point=None, out=None):
        """Return the int32 product; arguments as for `gemmkit.matmul_integer`, of the plan's own shapes and types."""
        return self.call(a, None, a_zero_point, b, None, b_zero_point, None, None, False, out)

    def __repr__(self):
        return self.described(f"{self.a_shape} @ {self.b_shape}")


cdef class QLinearMatMulPlan(IntegerPlan):
    """QLinearMatMulPlan(a_shape, b_shape, a_dtype, b_dtype, y_dtype, *, b=None, b_scale=None, b_zero_point=None, algorithm="auto")

    `gemmkit.qlinear_matmul` of fixed shapes (ONNX QLinearMatMul 21).

    Parameters
    ----------
    a_shape, b_shape, a_dtype, b_dtype, b, algorithm
        As for `MatMulIntegerPlan`.
    y_dtype : dtype
        int8 or uint8, the result's; a float8 type if a_dtype and b_dtype are such, whose zero points must then be 0.
    b_scale, b_zero_point : array_like, optional
        Of a constant b, as for `gemmkit.qlinear_matmul`; the scale is required with one, the zero point is 0 by default.
    """

    def __cinit__(self, a_shape, b_shape, a_dtype, b_dtype, y_dtype, *, b=None, b_scale=None, b_zero_point=None,
                  str algorithm="auto"):
        for x, name in ((b_scale, "b_scale"), (b_zero_point, "b_zero_point")):
            if b is None and x is not None:
                raise ValueError(f"{name}: belongs to a constant b; without one it is an argument of the call")
        if b is not None and b_scale is None:
            raise ValueError("b_scale: expected one beside a constant b, got None")
        result = type_of(y_dtype, "y_dtype")
        if result != GK_I8 and result != GK_U8 and not is_float8(result):
            raise TypeError(f"y_dtype: expected int8, uint8 or a float8 type, got {np.dtype(y_dtype)}")
        self.types.c = result
        self.arrange(a_shape, b_shape, a_dtype, b_dtype, result, b, b_zero_point, b_scale, True,
                     algorithm)

    def __call__(self, a, a_scale, a_zero_point, y_scale, y_zero_point, b=None, b_scale=None, b_zero_point=None, out=None):
        """Return the requantized product; arguments as for `gemmkit.qlinear_matmul`, of the plan's own shapes and types, those of
        b last, as a plan with a constant b takes none."""
        needed = [(a_scale, "a_scale"), (a_zero_point, "a_zero_point"), (y_scale, "y_scale"), (y_zero_point, "y_zero_point")]
        if not self.owns_b and b is not None:
            needed += [(b_scale, "b_scale"), (b_zero_point, "b_zero_point")]
        for x, name in needed:
            if x is None:
                raise TypeError(f"{name}: expected one, got None")
        return self.call(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point, True, out)

    def __repr__(self):
        return self.described(f"{self.a_shape} @ {self.b_shape}")
