"""Number types: the table's codes and numpy's dtypes, which result type a product has, and arrays that kernels can read.

The types that numpy lacks are ml_dtypes'.  A float operand keeps its own type: what is narrower than the sums is widened
by packers and loads.  Only float64 is contagious, as in numpy: then every operand is converted.  Integers of different
types are converted to numpy's common type.
"""
cimport numpy as cnp

import ml_dtypes
import numpy as np

from gemmkit._kernels._registry cimport (GK_BF16, GK_BOOL, GK_E4M3FN, GK_E4M3FNUZ, GK_E5M2, GK_E5M2FNUZ, GK_F16, GK_F32, GK_F64,
                                         GK_I8, GK_I16, GK_I32, GK_I64, GK_U8, GK_U16, GK_U32, GK_U64)

cnp.import_array()

DTYPES = {GK_F32: np.dtype(np.float32), GK_F64: np.dtype(np.float64), GK_F16: np.dtype(np.float16),
          GK_BF16: np.dtype(ml_dtypes.bfloat16), GK_E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
          GK_E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz), GK_E5M2: np.dtype(ml_dtypes.float8_e5m2),
          GK_E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz), GK_I8: np.dtype(np.int8), GK_U8: np.dtype(np.uint8),
          GK_I16: np.dtype(np.int16), GK_I32: np.dtype(np.int32), GK_I64: np.dtype(np.int64), GK_U16: np.dtype(np.uint16),
          GK_U32: np.dtype(np.uint32), GK_U64: np.dtype(np.uint64), GK_BOOL: np.dtype(np.bool_)}
CODES = {dtype: code for code, dtype in DTYPES.items()}
NAMES = ", ".join(dtype.name for dtype in DTYPES.values())

cdef enum: NUM_TYPES = 17  # those of arrays

cdef int numbers[17]  # numpy's type number of each code
for code, dtype in DTYPES.items():
    numbers[code] = dtype.num


cdef bint is_integer(int type) noexcept:
    return type >= GK_I8


cdef int kernel_type(int type) noexcept:
    return GK_I16 if type == GK_U16 else GK_I32 if type == GK_U32 else GK_I64 if type == GK_U64 else type


cdef object dtype_of(int type):
    return DTYPES[type]


cdef int numpy_type(int type) noexcept:
    return numbers[type]


cdef int plain_type(object x) noexcept:
    cdef int i, number
    if not cnp.PyArray_CheckExact(x) or not cnp.PyArray_ISALIGNED(<cnp.ndarray>x) or not cnp.PyArray_ISNOTSWAPPED(<cnp.ndarray>x):
        return -1
    number = cnp.PyArray_TYPE(<cnp.ndarray>x)
    if number == cnp.NPY_LONGLONG:  # the other name of int64, or that of int64 where long is shorter
        number = numbers[GK_I64]
    elif number == cnp.NPY_ULONGLONG:
        number = numbers[GK_U64]
    for i in range(NUM_TYPES):
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


cdef int settle_integers(Types *types, int bias) except -2:
    """numpy's common type of integer operands, in which products and sums wrap; -1 if it is a float."""
    cdef int common = types.a
    if types.b != common or (bias >= 0 and bias != common):
        given = [DTYPES[types.a], DTYPES[types.b]] + ([DTYPES[bias]] if bias >= 0 else [])
        common = CODES[np.result_type(*given)]
        if not is_integer(common):  # int64 and uint64
            types.a = types.b = common
            return -1
    types.a = types.b = types.c = common
    if common == GK_I8 or common == GK_U8 or common == GK_BOOL:
        # The low byte of a sum is the same whatever the signs are taken for: no byte has to be shifted.
        types.acc, types.kernel_a, types.kernel_b = GK_I32, GK_U8, GK_I8
        types.kernel_c = GK_BOOL if common == GK_BOOL else GK_I8
        return 0
    types.acc = types.kernel_a = types.kernel_b = types.kernel_c = kernel_type(common)
    return 0


cdef int meet_float(int integer, int other, str name) except -1:
    """What an integer operand becomes beside a float one: numpy's common type, but float32 beside float8."""
    if GK_E4M3FN <= other <= GK_E5M2FNUZ and integer in (GK_I8, GK_U8, GK_BOOL):
        return GK_F32
    try:
        return CODES[np.result_type(DTYPES[integer], DTYPES[other])]
    except (TypeError, KeyError):
        raise TypeError(f"{name}: {DTYPES[integer]} has no common type with {DTYPES[other]}") from None


cdef int settle(Types *types, object out_dtype, object out, int bias) except -1:
    """Set the type of sums and of the result from those of the operands; `bias` is -1 where there is none.

    Integers give numpy's common type.  Else the result is float64 with a float64 operand, float16 or bfloat16 if all
    operands are, float32 otherwise; an integer operand is converted to its common type with the other.  `out_dtype`, or
    the dtype of `out`, chooses another among those that sums in float32 can be rounded to.
    """
    cdef int wanted, result = -1
    if is_integer(types.a) and is_integer(types.b) and (bias < 0 or is_integer(bias)):
        result = settle_integers(types, bias)
    if result < 0:
        if is_integer(types.a):
            types.a = meet_float(types.a, bias if is_integer(types.b) else types.b, "a")
        if is_integer(types.b):
            types.b = meet_float(types.b, types.a, "b")
        if is_integer(bias):
            bias = meet_float(bias, types.a, "c")
        if types.a == GK_F64 or types.b == GK_F64 or bias == GK_F64:
            types.acc = types.a = types.b = types.c = GK_F64
        else:
            types.acc = types.c = GK_F32
            if types.a == types.b and (bias < 0 or bias == types.a) and (types.a == GK_F16 or types.a == GK_BF16):
                types.c = types.a
        types.kernel_a, types.kernel_b, types.kernel_c = types.a, types.b, types.c
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
    if result == 0:
        if wanted != types.c:
            raise TypeError(f"{name}: expected dtype {DTYPES[types.c]}, which integers of these types give, got {DTYPES[wanted]}")
        return 0
    if (wanted == GK_F64) != (types.acc == GK_F64) or is_integer(wanted):
        raise TypeError(f"{name}: expected dtype {'float64' if types.acc == GK_F64 else 'float32 or a narrower float type'}, "
                        f"got {DTYPES[wanted]}")
    types.c = types.kernel_c = wanted
    return 0


cdef cnp.ndarray clean_bools(cnp.ndarray x, int type):
    """Bytes from elsewhere may be any; all but 0 are true."""
    if type == GK_BOOL and cnp.PyArray_SIZE(x) and x.view(np.uint8).max() > 1:
        return x.view(np.uint8) != 0
    return x


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
