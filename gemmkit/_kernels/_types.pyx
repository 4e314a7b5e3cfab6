"""Number types: the table's codes and numpy's dtypes, which result type a product has, and arrays that kernels can read.

The types that numpy lacks are ml_dtypes'.  An operand keeps its own type: what is narrower than the sums is widened by
packers and loads.  Only float64 is contagious, as in numpy: then every operand is converted.
"""
cimport numpy as cnp

import ml_dtypes
import numpy as np

from gemmkit._kernels._registry cimport (GK_BF16, GK_E4M3FN, GK_E4M3FNUZ, GK_E5M2, GK_E5M2FNUZ, GK_F16, GK_F32, GK_F64,
                                           GK_NUM_TYPES)

cnp.import_array()

DTYPES = {GK_F32: np.dtype(np.float32), GK_F64: np.dtype(np.float64), GK_F16: np.dtype(np.float16),
          GK_BF16: np.dtype(ml_dtypes.bfloat16), GK_E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
          GK_E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz), GK_E5M2: np.dtype(ml_dtypes.float8_e5m2),
          GK_E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz)}
CODES = {dtype: code for code, dtype in DTYPES.items()}
NAMES = ", ".join(dtype.name for dtype in DTYPES.values())

cdef int numbers[8]  # numpy's type number of each code
for code, dtype in DTYPES.items():
    numbers[code] = dtype.num


cdef object dtype_of(int type):
    return DTYPES[type]


cdef int numpy_type(int type) noexcept:
    return numbers[type]


cdef int plain_type(object x) noexcept:
    cdef int i, number
    if not cnp.PyArray_CheckExact(x) or not cnp.PyArray_ISALIGNED(<cnp.ndarray>x) or not cnp.PyArray_ISNOTSWAPPED(<cnp.ndarray>x):
        return -1
    number = cnp.PyArray_TYPE(<cnp.ndarray>x)
    for i in range(GK_NUM_TYPES):
        if numbers[i] == number:
            return i
    return -1


cdef int type_of(object dtype, str name) except -1:
    """The code of a dtype, whatever its byte order."""
    if dtype is None:
        raise TypeError(f"{name}: expected one of {NAMES}, got None")
    try:
        dtype = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    code = CODES.get(dtype.newbyteorder("="))
    if code is None:
        raise TypeError(f"{name}: dtype {dtype} is not supported; expected one of {NAMES}")
    return code


cdef int settle(Types *types, object out_dtype, object out, int bias) except -1:
    """Set the type of sums and of the result from those of the operands; `bias` is -1 where there is none.

    The result: float64 with a float64 operand; float16 or bfloat16 if all operands are; float32 otherwise.  `out_dtype`,
    or the dtype of `out`, chooses another among those that sums in float32 can be rounded to.
    """
    cdef int wanted
    if types.a == GK_F64 or types.b == GK_F64 or bias == GK_F64:
        types.acc = types.a = types.b = types.c = GK_F64
    else:
        types.acc = types.c = GK_F32
        if types.a == types.b and (bias < 0 or bias == types.a) and (types.a == GK_F16 or types.a == GK_BF16):
            types.c = types.a
    if out_dtype is None and out is None:
        return 0
    if isinstance(out, tuple) and len(out) == 1:  # as numpy's ufuncs take it
        out = out[0]
    if out_dtype is not None:
        wanted = type_of(out_dtype, "out_dtype")
        name = "out_dtype"
    elif isinstance(out, np.ndarray) and out.dtype.newbyteorder("=") in CODES:
        wanted = CODES[out.dtype.newbyteorder("=")]
        name = "out"
    else:
        return 0
    if (wanted == GK_F64) != (types.acc == GK_F64):
        raise TypeError(f"{name}: expected dtype {'float64' if types.acc == GK_F64 else 'float32 or a narrower type'}, "
                        f"got {DTYPES[wanted]}")
    types.c = wanted
    return 0


cdef cnp.ndarray operand(object x, str name, int type):
    """x as an aligned native array of `type`, copied only if it isn't one."""
    cdef cnp.ndarray a
    try:
        a = np.asarray(x, dtype=DTYPES[type])
    except OverflowError as error:
        raise OverflowError(f"{name}: {error}") from None
    if not cnp.PyArray_ISALIGNED(a):
        a = a.copy()
    return a


cdef bint is_number(object x):
    return isinstance(x, (int, float)) and not isinstance(x, (bool, np.generic))
