"""Plans: a product's decisions made once, B packed once, then called with nothing but pointers.

A plan is immutable: a call works on a copy of its `Job` and on workspace borrowed for the call, so any number of threads
may call one plan at once.  Its attributes tell what was decided for operands with contiguous rows (after the
transpositions it was made with); a call with another layout is decided for that call and gives the same result to
rounding.
"""
cimport numpy as cnp

import numpy as np

from gemmkit._kernels._calls cimport Call, Prepacked, bind, bind_result, finish, real, result_for, whole_number
from gemmkit._kernels._engine cimport (Batch, describe, prepack_b, prepacked_bytes, prepare, run_group, workspace_bytes)
from gemmkit._kernels._loops cimport Job, Place
from gemmkit._kernels._parallel cimport threads_for
from gemmkit._kernels._registry cimport GK_F64, GK_I4, GK_I32, GK_I64, GK_U4, GK_U32, GK_U64, panel_type
from gemmkit._kernels._schedule cimport AUTO, STREAM_STEP, Problem, refusal
from gemmkit._kernels._types cimport Types, clean_bools, dtype_of, is_integer, is_number, operand, plain_type, settle, type_of
from libc.stdlib cimport free, malloc

from gemmkit._kernels import _registry, _schedule

cnp.import_array()

cdef enum: PANEL_ALIGN = 64


def size(x, str name):
    """A dimension given by the user: an integer of at least 0."""
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        raise TypeError(f"{name}: expected an integer, got {type(x).__name__}")
    x = x.__index__()
    if not 0 <= x < 2 ** 62:
        raise ValueError(f"{name}: expected a size of at least 0, got {x}")
    return x


cdef tuple shape_of(object x, str name):
    if isinstance(x, (str, bytes)) or not hasattr(x, "__iter__"):
        raise TypeError(f"{name}: expected a tuple of sizes, got {type(x).__name__}")
    shape = tuple(size(s, name) for s in x)
    if not 1 <= len(shape) <= 64:
        raise ValueError(f"{name}: expected 1 to 64 dimensions, got shape {shape}")
    return shape


cdef Types types_of(object dtype, object b_dtype, object out_dtype) except *:
    """What a plan's operands and result are."""
    cdef Types types
    types.a = type_of(dtype, "dtype")
    types.b = type_of(b_dtype, "b_dtype") if b_dtype is not None else types.a
    settle(&types, out_dtype, None, -1)
    return types


cdef cnp.ndarray checked(object x, str name, tuple shape, int given, int type):
    """x, of a plan's `given` dtype and shape, as an array that kernels can read as `type`."""
    if plain_type(x) == type == given and has_shape(<cnp.ndarray>x, shape):
        return clean_bools(x, type)
    x = np.asarray(x)
    if x.dtype.newbyteorder("=") != dtype_of(given):
        hint = " (b_dtype= lets it differ)" if name == "b" else ""
        raise TypeError(f"{name}: expected dtype {dtype_of(given)}, got {x.dtype}{hint}")
    if x.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {x.shape}")
    return clean_bools(operand(x, name, type), type)


cdef bint better_unpacked(const Job *job) noexcept nogil:
    """Whether a plan's own B is kept as it is: a narrow one that is read once a call, for a few rows, and that panels would
    have to hold wider."""
    return job.m <= STREAM_STEP and job.b_type != job.acc and not job.quads and panel_type(job.a_type, job.b_type) == job.acc


cdef bint has_shape(cnp.ndarray x, tuple shape):
    cdef int d
    if cnp.PyArray_NDIM(x) != len(shape):
        return False
    for d in range(cnp.PyArray_NDIM(x)):
        if cnp.PyArray_DIMS(x)[d] != <ptrdiff_t>shape[d]:
            return False
    return True


cdef class Plan:
    """What every plan has: the decided job, and B if it owns one."""

    # Plans are filled by __cinit__, which runs once and always: none is ever half made, or made again.
    def __cinit__(self, *args, **kwargs):
        if type(self) is Plan:
            raise TypeError("Plan: make one of its subclasses")

    cdef int settle_whole(self, object alpha, object beta) except -1:
        """alpha and beta of integer sums."""
        cdef bint whole
        if not isinstance(self, MatMulPlan) and self.types.c not in (GK_I32, GK_I64, GK_U32, GK_U64):
            raise TypeError(f"dtype: expected int32, int64, uint32, uint64 or a float, as ONNX Gemm has them, got {dtype_of(self.types.c)}")
        self.whole_alpha = whole_number(alpha, "alpha", &whole)
        if not whole:
            raise ValueError(f"alpha: expected a whole number for {dtype_of(self.types.c)}, got {alpha}")
        self.whole_beta = whole_number(beta, "beta", &whole)
        if not whole:
            raise ValueError(f"beta: expected a whole number for {dtype_of(self.types.c)}, got {beta}")
        return 0

    cdef int set_up(self, tuple a_shape, tuple b_shape, tuple dtypes, object alpha, object beta, bint trans_a,
                    bint trans_b, object b, str algorithm) except -1:
        cdef Call call
        cdef cnp.ndarray b_array = None, a_like, b_like
        self.types = types_of(dtypes[0], dtypes[1], dtypes[2])
        self.a_given = type_of(dtypes[0], "dtype")
        self.b_given = self.a_given if dtypes[1] is None else type_of(dtypes[1], "b_dtype")
        if not isinstance(self, MatMulPlan) and is_integer(self.a_given) != is_integer(self.b_given):
            raise TypeError(f"b_dtype: expected {'an integer' if is_integer(self.a_given) else 'a float'} type beside "
                            f"{dtype_of(self.a_given)}, as ONNX Gemm has them, got {dtype_of(self.b_given)}")
        self.whole_alpha = self.whole_beta = 1
        if is_integer(self.types.c):
            self.settle_whole(alpha, beta)
            # As in gemm: only whether they are 1 or 0 counts.
            self.alpha = 1.0 if self.whole_alpha == 1 else 2.0
            self.beta = 0.0 if beta == 0 else 1.0 if self.whole_beta == 1 else 2.0
        else:
            self.alpha, self.beta = real(alpha, "alpha"), real(beta, "beta")
        self.trans_a, self.trans_b = trans_a, trans_b
        self.a_shape, self.b_shape = a_shape, b_shape
        a_like, b_like = contiguous_shape(a_shape, dtype_of(self.types.a)), contiguous_shape(b_shape, dtype_of(self.types.b))
        bind(&call, &self.types, a_like, trans_a, b_like, NULL, trans_b)
        call.job.epilogue.alpha, call.job.epilogue.beta = self.alpha, self.beta
        if b is not None:
            b_array = checked(b, "b", b_shape, self.b_given, self.types.b)
        return self.decide(&call, b_array, algorithm)

    cdef int decide(self, Call *call, cnp.ndarray b_array, str algorithm) except -1:
        cdef Problem p
        cdef int d
        cdef const char *why
        if algorithm not in _schedule.CODES:
            raise ValueError(f"algorithm: unknown {algorithm!r}; known are {', '.join(_schedule.CODES)}")
        self.forced = _schedule.CODES[algorithm]
        self.out_shape = tuple([call.shape[d] for d in range(call.ndim)])
        self.count = 1
        for d in range(call.batch_ndim):
            self.count *= call.shape[d]
        call.job.rs_c = call.job.n * call.job.c_item
        call.job.epilogue.has_bias = False
        call.job.epilogue.rs_bias = call.job.epilogue.cs_bias = 0
        self.owns_b = b_array is not None
        if self.owns_b and self.forced == AUTO and better_unpacked(&call.job):
            self.own_b = b_array.copy()
        if self.owns_b and self.own_b is None:
            call.job.b_prepacked = True
            call.job.rs_b, call.job.cs_b = 0, call.job.b_item
        describe(&call.job, &p)
        why = refusal(&p, self.forced)
        if why != NULL:
            raise ValueError(f"algorithm: {algorithm} can't run {call.job.m} x {call.job.n} x {call.job.k}: {why.decode()}")
        prepare(&call.job, self.forced)
        self.job = call.job
        if self.job.b_prepacked:
            self.pack(b_array)
        return 0

    cdef int pack(self, cnp.ndarray b) except -1:
        """Pack each matrix of b into memory of the plan's own."""
        cdef ptrdiff_t each = (prepacked_bytes(&self.job) + PANEL_ALIGN - 1) // PANEL_ALIGN * PANEL_ALIGN
        cdef ptrdiff_t matrices = 1, index
        cdef size_t address
        cdef cnp.ndarray matrix
        cdef char *start
        cdef int d, n = len(self.b_shape)
        for d in range(n - 2):
            matrices *= self.b_shape[d]
        nr = self.job.gemm.nr
        if (self.job.n + nr) * <object>self.job.k * self.job.item * max(matrices, 1) >= 2 ** 62:
            raise MemoryError(f"b: no memory for the panels of a constant of shape {self.b_shape}")
        self.storage = np.empty(matrices * each + PANEL_ALIGN, np.uint8)
        address = <size_t>cnp.PyArray_BYTES(<cnp.ndarray>self.storage)
        self.packed.panels = <char *>((address + PANEL_ALIGN - 1) // PANEL_ALIGN * PANEL_ALIGN)
        self.packed.each = each
        self.packed.ndim = n
        for d in range(n):
            self.packed.shape[d] = self.b_shape[d]
        if n == 1:
            b = b[:, None]
        elif self.trans_b:
            b = b.swapaxes(-1, -2)
        for index, batch_index in enumerate(np.ndindex(*self.b_shape[:max(n - 2, 0)])):
            matrix = b[batch_index]
            start = cnp.PyArray_BYTES(matrix)
            if self.job.b_type == GK_I4 or self.job.b_type == GK_U4:
                # An array of nibble strides: what lies before this matrix is counted in nibbles, so the address doubles.
                start = <char *>(<size_t>cnp.PyArray_BYTES(b) + <size_t>start)
            prepack_b(&self.job, start, cnp.PyArray_STRIDES(matrix)[0], cnp.PyArray_STRIDES(matrix)[1],
                      self.packed.panels + index * each)
        return 0

    cdef cnp.ndarray checked_c(self, object c):
        """c as a bias that broadcasts one way to the result."""
        if is_number(c):
            if is_integer(self.types.c) and isinstance(c, float) and not c.is_integer():
                raise TypeError(f"c: expected a whole number beside {dtype_of(self.types.c)} operands, got {c}")
            c = operand(int(c), "c", self.types.c) if is_integer(self.types.c) else operand(c, "c", self.types.acc)
        c = np.asarray(c)
        cdef int type = type_of(c.dtype, "c")
        if is_integer(self.types.c) or is_integer(type):
            if type != self.types.c:
                raise TypeError(f"c: expected dtype {dtype_of(self.types.c)}, got {c.dtype}")
        elif (type == GK_F64) != (self.types.acc == GK_F64):
            raise TypeError(f"c: expected dtype {dtype_of(self.types.acc)}"
                            f"{'' if self.types.acc == GK_F64 else ' or a narrower type'}, got {c.dtype}")
        full = self.out_shape
        if c.ndim > len(full) or any(s not in (1, f) for s, f in zip(c.shape[::-1], full[::-1])):
            raise ValueError(f"c: shape {c.shape} doesn't broadcast to the result's {full}")
        return operand(c, "c", type) if self.beta != 0.0 else None

    cdef object run(self, object a, object b, object c, object out):
        cdef Call call
        cdef cnp.ndarray x = checked(a, "a", self.a_shape, self.a_given, self.types.a), y = None, bias = None
        if self.owns_b:
            if b is not None:
                raise ValueError("b: this plan owns its B, packed when it was made; call it without")
            y = self.own_b
        else:
            if b is None:
                raise ValueError("b: this plan owns no B; pass one of shape " + str(self.b_shape))
            y = checked(b, "b", self.b_shape, self.b_given, self.types.b)
        if c is not None:
            bias = self.checked_c(c)
        bind(&call, &self.types, x, self.trans_a, y, &self.packed if self.job.b_prepacked else NULL, self.trans_b)
        call.job.epilogue.whole_alpha, call.job.epilogue.whole_beta = self.whole_alpha, self.whole_beta
        return finish(&call, out, bias, self.alpha, self.beta, &self.job, self.forced,
                      (x, y, bias) if out is not None else ())

    @property
    def dtype(self):
        """The number type of A."""
        return dtype_of(self.a_given)

    @property
    def b_dtype(self):
        """The number type of B."""
        return dtype_of(self.b_given)

    @property
    def out_dtype(self):
        """The number type of the result."""
        return dtype_of(self.types.c)

    @property
    def panel_dtype(self):
        """The number type that packed operands have: that of the sums, bfloat16 for its dot instructions, B's bytes for
        those of bytes."""
        return np.dtype(np.int8) if self.job.quads else dtype_of(self.job.panel)

    @property
    def algorithm(self):
        """general, direct, small_k, skinny_m, skinny_n or split_k."""
        return _schedule.NAMES[self.job.how.algorithm]

    @property
    def isa(self):
        """The instruction set of the kernel."""
        return _registry.isa_names(self.job.inner.isa)[-1]

    @property
    def kernel(self):
        """The micro-kernel: a name of the kernel table."""
        return self.job.inner.name.decode()

    @property
    def mr(self):
        """Rows of C that the kernel holds."""
        return self.job.inner.mr

    @property
    def nr(self):
        """Columns of C that the kernel holds; of a stream kernel, its vector length."""
        return self.job.inner.nr

    @property
    def mc(self):
        """Rows of A that are packed, or walked, at once."""
        return self.job.how.mc

    @property
    def nc(self):
        """Columns of B in a panel, which is packed at once."""
        return self.job.how.nc

    @property
    def nb(self):
        """Columns of B that stay in L2 while the rows of A pass."""
        return self.job.how.nb

    @property
    def kc(self):
        """Steps of K between visits to C."""
        return self.job.how.kc

    @property
    def packs(self):
        """Operands that a call packs: a subset of ("a", "b")."""
        return ("a",) * bool(self.job.how.pack_a) + ("b",) * bool(self.job.how.pack_b)

    @property
    def splits(self):
        """Parts that K is summed up in; 1 unless the algorithm is split_k."""
        return self.job.how.splits

    @property
    def num_threads(self):
        """Threads that a call made now would use."""
        return threads_for(<double>self.job.m * self.job.n * self.job.k * self.count)

    @property
    def workspace_bytes(self):
        """Bytes that a call made now would borrow for packed panels and partial sums, one product of a batch at a time."""
        return workspace_bytes(&self.job, self.num_threads if self.count == 1 else 1)

    @property
    def work(self):
        """Multiply-adds of a call."""
        return <object>self.job.m * self.job.n * self.job.k * self.count

    @property
    def packed_bytes(self):
        """Bytes of the plan's own B, in panels or, where few rows read a narrow one, as it was."""
        if self.own_b is not None:
            return self.own_b.nbytes
        return self.storage.nbytes if self.owns_b else 0

    def refusal(self, str algorithm):
        """Why `algorithm` can't run this plan's shape and layout; None if it can."""
        cdef Problem p
        if algorithm not in _schedule.CODES:
            raise ValueError(f"algorithm: unknown {algorithm!r}; known are {', '.join(_schedule.CODES)}")
        describe(&self.job, &p)
        cdef const char *why = refusal(&p, _schedule.CODES[algorithm])
        return None if why == NULL else why.decode()

    cdef str described(self, str what):
        owned = f", B packed in {self.packed_bytes:,} bytes" if self.owns_b else ""
        types = str(self.dtype) if self.dtype == self.b_dtype else f"{self.dtype} x {self.b_dtype}"
        if self.out_dtype != self.dtype or self.job.q.on:
            types += f" -> {self.out_dtype}"
        return (f"<{type(self).__name__} {what} {types}: {self.algorithm}, {self.kernel}, "
                f"MC {self.mc} NC {self.nc} KC {self.kc} NB {self.nb}, threads {self.num_threads}, "
                f"workspace {self.workspace_bytes:,} bytes{owned}>")


cdef cnp.ndarray contiguous_shape(tuple shape, object dtype):
    """An array with `shape` and the strides of a contiguous one of `dtype`, but no memory behind it: never to be read."""
    steps, step = [], dtype.itemsize
    for s in reversed(shape):
        steps.append(step)
        step *= max(s, 1)
    if step > 2 ** 62:
        raise ValueError(f"an operand of shape {shape} is larger than memory can be")
    return np.lib.stride_tricks.as_strided(np.empty(1, f"u{dtype.itemsize}"), shape, tuple(reversed(steps)))


cdef class GemmPlan(Plan):
    """GemmPlan(m, n, k, dtype, *, trans_a=False, trans_b=False, alpha=1.0, beta=1.0, b=None, algorithm="auto", b_dtype=None, out_dtype=None)

    A Gemm of fixed shape: ``alpha * A @ B + beta * C`` (ONNX Gemm 13).

    Parameters
    ----------
    m, n, k : int
        A is (m, k), B is (k, n).
    dtype : dtype
        A float type, or int32, int64, uint32, uint64.  Of A, and of B and the result as `gemmkit.matmul` does it unless said
        otherwise.  c has no say in that: it may have
        any type but float64, which only a plan of float64 takes.
    trans_a, trans_b : bool
        The plan is called with A as (k, m), B as (n, k).
    alpha, beta : float
        Whole numbers for integers.
    b : array_like, optional
        Packed now and owned by the plan, whatever happens to the array later.  Its dtype must be `b_dtype`.  Panels are
        float32 for a narrow type, or bfloat16 where its dot instructions are in use, so they can be larger than b
        (`packed_bytes`); for up to four rows a narrow b is kept as it is.
    algorithm : str
        Force one of general, direct, small_k, skinny_m, skinny_n, split_k; "auto" chooses.
    b_dtype, out_dtype : dtype, optional
        Types of B and of the result, where they differ from the default.

    Raises
    ------
    ValueError, TypeError
        A size below 0, a B of another shape or type, an algorithm that can't run this shape.
    """

    def __cinit__(self, m, n, k, dtype, *, bint trans_a=False, bint trans_b=False, alpha=1.0, beta=1.0, b=None,
                 str algorithm="auto", b_dtype=None, out_dtype=None):
        m, n, k = size(m, "m"), size(n, "n"), size(k, "k")
        self.set_up((k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n), (dtype, b_dtype, out_dtype),
                    alpha, beta, trans_a, trans_b, b, algorithm)

    def __call__(self, a, b=None, c=None, out=None):
        """Return ``alpha * A @ B + beta * c``; arguments as for `gemmkit.gemm`, of the plan's own shapes and types."""
        return self.run(a, b, c, out)

    def __repr__(self):
        return self.described(f"M {self.job.m} N {self.job.n} K {self.job.k}")


cdef class MatMulPlan(Plan):
    """MatMulPlan(a_shape, b_shape, dtype, *, b=None, algorithm="auto", b_dtype=None, out_dtype=None)

    A matrix product of fixed shapes (numpy.matmul, ONNX MatMul 13).

    Parameters
    ----------
    a_shape, b_shape : tuple of int
        As for `gemmkit.matmul`, batch axes and rank 1 included.
    dtype : dtype
        A float or integer type or bool.  Of A, and of B and the result as `gemmkit.matmul` does it unless said otherwise.
    b : array_like, optional
        Packed now and owned by the plan, batch axes included.
    algorithm : str
        Force one of general, direct, small_k, skinny_m, skinny_n, split_k; "auto" chooses.
    b_dtype, out_dtype : dtype, optional
        Types of B and of the result, where they differ from the default.
    """

    def __cinit__(self, a_shape, b_shape, dtype, *, b=None, str algorithm="auto", b_dtype=None, out_dtype=None):
        self.set_up(shape_of(a_shape, "a_shape"), shape_of(b_shape, "b_shape"), (dtype, b_dtype, out_dtype), 1, 0, False,
                    False, b, algorithm)

    def __call__(self, a, b=None, out=None):
        """Return ``a @ b``; arguments as for `gemmkit.matmul`, of the plan's own shapes and types."""
        return self.run(a, b, None, out)

    def __repr__(self):
        return self.described(f"{self.a_shape} @ {self.b_shape}")


cdef class StridedBatchedGemm(Plan):
    """StridedBatchedGemm(batch, m, n, k, dtype, *, trans_a=False, trans_b=False, alpha=1.0, beta=1.0, b=None, algorithm="auto", b_dtype=None, out_dtype=None)

    `batch` Gemms of one shape, each operand a stack with any strides.

    Parameters
    ----------
    batch, m, n, k : int
        The plan is called with a (batch, m, k) and b (batch, k, n).
    dtype, trans_a, trans_b, alpha, beta, algorithm, b_dtype, out_dtype
        As for `GemmPlan`; a transposed operand is (batch, k, m) or (batch, n, k).
    b : array_like, optional
        (batch, k, n), packed now and owned by the plan.
    """

    def __cinit__(self, batch, m, n, k, dtype, *, bint trans_a=False, bint trans_b=False, alpha=1.0, beta=1.0, b=None,
                 str algorithm="auto", b_dtype=None, out_dtype=None):
        batch, m, n, k = size(batch, "batch"), size(m, "m"), size(n, "n"), size(k, "k")
        self.set_up((batch, k, m) if trans_a else (batch, m, k), (batch, n, k) if trans_b else (batch, k, n),
                    (dtype, b_dtype, out_dtype), alpha, beta, trans_a, trans_b, b, algorithm)

    def __call__(self, a, b=None, c=None, out=None):
        """Return ``alpha * A @ B + beta * c`` of shape (batch, m, n); c broadcasts one way to it."""
        return self.run(a, b, c, out)

    def __repr__(self):
        return self.described(f"batch {self.count} M {self.job.m} N {self.job.n} K {self.job.k}")


cdef class GroupedGemm:
    """GroupedGemm(shapes, dtype, *, trans_a=False, trans_b=False, alpha=1.0, b_dtype=None, out_dtype=None)

    Unequal products scheduled together: those that can use every thread one by one, the others side by side.

    Parameters
    ----------
    shapes : sequence of (m, n, k)
    dtype : dtype
        Of all A, and of B and results as for `GemmPlan`.
    trans_a, trans_b : bool
        For all products.
    alpha : float
    b_dtype, out_dtype : dtype, optional
    """
    cdef readonly tuple plans
    cdef tuple order

    def __cinit__(self, shapes, dtype, *, bint trans_a=False, bint trans_b=False, alpha=1.0, b_dtype=None, out_dtype=None):
        plans = []
        types_of(dtype, b_dtype, out_dtype)
        for index, shape in enumerate(shapes):
            shape = shape_of(shape, f"shapes[{index}]")
            if len(shape) != 3:
                raise ValueError(f"shapes[{index}]: expected (m, n, k), got {shape}")
            plans.append(GemmPlan(*shape, dtype, trans_a=trans_a, trans_b=trans_b, alpha=alpha, b_dtype=b_dtype,
                                  out_dtype=out_dtype))
        self.plans = tuple(plans)
        self.order = tuple(sorted(range(len(plans)), key=lambda i: -plans[i].work))

    def __call__(self, a, b, out=None):
        """Return the list of products ``alpha * A[i] @ B[i]``.

        Parameters
        ----------
        a, b : sequences of array_like
            One matrix a product, of its shape and the plan's types.
        out : sequence of ndarray, optional
            One result a product, or None; they must not overlap each other.
        """
        cdef ptrdiff_t count = len(self.plans), i
        cdef Call call
        cdef Plan plan
        cdef cnp.ndarray x, y, result
        cdef Job *jobs = NULL
        cdef Place *places = NULL
        cdef ptrdiff_t *order = NULL
        cdef int status
        a, b = list(a), list(b)
        outs = [None] * count if out is None else list(out)
        for name, given in (("a", a), ("b", b), ("out", outs)):
            if len(given) != count:
                raise ValueError(f"{name}: expected {count} arrays, got {len(given)}")
        if not count:
            return []
        keep, results = [], []
        jobs = <Job *>malloc(count * sizeof(Job))
        places = <Place *>malloc(count * sizeof(Place))
        order = <ptrdiff_t *>malloc(count * sizeof(ptrdiff_t))
        try:
            if jobs == NULL or places == NULL or order == NULL:
                raise MemoryError("no memory for a group of products")
            pairs = [(checked(a[i], f"a[{i}]", (<Plan>p).a_shape, (<Plan>p).a_given, (<Plan>p).types.a),
                      checked(b[i], f"b[{i}]", (<Plan>p).b_shape, (<Plan>p).b_given, (<Plan>p).types.b)) for i, p in enumerate(self.plans)]
            inputs = tuple([z for pair in pairs for z in pair])
            for i in range(count):
                plan = self.plans[i]
                x, y = pairs[i]
                order[i] = self.order[i]
                bind(&call, &plan.types, x, plan.trans_a, y, NULL, plan.trans_b)
                call.job.epilogue.whole_alpha = plan.whole_alpha
                result = result_for(&call, outs[i], inputs if outs[i] is not None else (), f"out[{i}]")
                if bind_result(&call, result, None, plan.alpha, 0.0, &plan.job, plan.forced):
                    result = np.empty(plan.out_shape, plan.out_dtype)
                    bind_result(&call, result, None, plan.alpha, 0.0, &plan.job, plan.forced)
                jobs[i], places[i] = call.job, call.at
                results.append(result)
            with nogil:
                status = run_group(jobs, places, count, order)
            if status:
                raise MemoryError("no memory for the workspace of a group of products")
        finally:
            free(jobs)
            free(places)
            free(order)
        if out is None:
            return results
        for given, result in zip(outs, results):
            if given is not None and result is not given:
                given[...] = result
        return [result if given is None else given for given, result in zip(outs, results)]

    def __repr__(self):
        return f"<GroupedGemm of {len(self.plans)} products: {', '.join(repr(p) for p in self.plans[:4])}{', ...' if len(self.plans) > 4 else ''}>"
