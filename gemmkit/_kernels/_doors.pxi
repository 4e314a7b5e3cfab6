# The doors through which tests and benchmarks call single kernels; part of _registry.pyx, which owns the table.

cdef int check_runnable(uint32_t isa) except -1:
    if isa & ~machine.isa_mask:
        raise ValueError(f"row: this processor lacks {isa_names(isa)[-1]}")
    return 0


cdef str memory_of(int type):
    """The dtype name of an array that holds a type of the table."""
    return MEMORY.get(TYPE_NAMES[type], TYPE_NAMES[type])


cdef int check_matrix(cnp.ndarray x, int type, str what) except -1:
    if cnp.PyArray_NDIM(x) != 2 or x.dtype.name != memory_of(type) or not cnp.PyArray_ISALIGNED(x):
        raise ValueError(f"{what}: expected an aligned {memory_of(type)} matrix, got {x.dtype} {(<object>x).shape}")
    return 0


def run_row(int index, cnp.ndarray a, cnp.ndarray b, cnp.ndarray c, cnp.ndarray add=None):
    """Call one micro-kernel: c = add + a @ b, in the arrays' own memory and strides.

    For tests and benchmarks of single kernels: a (m, k), b (k, n), c and add (m, n) hold the row's types; m <= MR, and
    n <= NR unless it is a stream row; c's and add's columns are adjacent, and the operands as the row's role needs.
    For a row of KR > 1 the caller passes panels: a (m, k / KR, KR), b (k / KR, n, KR), the last axis adjacent; NIBBLES as
    (k / 8, n, 4) bytes.  Rows that read QUADS_U8 line by line want a's memory to go on, with any bytes, to a multiple of 8.
    """
    cdef gk_ukr_args g
    cdef const gk_ukr *r
    if not 0 <= index < gk_num_rows:
        raise ValueError(f"index: {index} is no row of the table")
    r = &gk_rows[index]
    check_runnable(r.isa)
    pairs = r.kr > 1
    for x, type in ((a, r.a_type), (b, r.b_type)):
        if pairs:
            if (x.ndim != 3 or x.shape[2] != (4 if type == GK_NIBBLES else r.kr) or x.strides[2] != x.itemsize
                    or x.dtype.name != memory_of(type)):
                raise ValueError("run_row: expected interleaved panels")
        else:
            check_matrix(x, type, "run_row")
    for x in (c,) if add is None else (c, add):
        check_matrix(x, r.acc_type, "run_row")
    cdef ptrdiff_t item = cnp.PyArray_ITEMSIZE(c), a_item = cnp.PyArray_ITEMSIZE(a), b_item = cnp.PyArray_ITEMSIZE(b)
    g.m, g.n, g.k = c.shape[0], c.shape[1], a.shape[1]
    if a.shape[0] != g.m or b.shape[0] != g.k or b.shape[1] != g.n:
        raise ValueError("run_row: shapes disagree")
    if not 1 <= g.m <= r.mr or g.n < 1 or (r.role != GK_STREAM and g.n > r.nr):
        raise ValueError(f"run_row: a tile of {g.m} x {g.n} does not fit {r.mr} x {r.nr}")
    g.a, g.rs_a, g.cs_a = cnp.PyArray_BYTES(a), a.strides[0], a.strides[1]
    g.b, g.rs_b, g.cs_b = cnp.PyArray_BYTES(b), b.strides[0], b.strides[1]
    g.c, g.rs_c = cnp.PyArray_BYTES(c), c.strides[0]
    g.add, g.rs_add = NULL, 0
    if add is not None:
        if add.shape[0] != g.m or add.shape[1] != g.n:
            raise ValueError("run_row: add has another shape than c")
        g.add, g.rs_add = cnp.PyArray_BYTES(add), add.strides[0]
    if (g.n > 1 and c.strides[1] != item) or (add is not None and g.n > 1 and add.strides[1] != item):
        raise ValueError("run_row: the columns of c and add must be adjacent")
    if r.role == GK_DOT:
        if g.k > 1 and (g.cs_a != a_item or g.rs_b != b_item):
            raise ValueError("run_row: a dot row needs a's rows and b's columns contiguous")
    elif g.n > 1 and g.cs_b != (4 if r.b_type == GK_NIBBLES else b_item * r.kr):
        raise ValueError("run_row: this row needs b's rows contiguous")
    with nogil:
        r.fn(&g)
        if r.release != NULL:
            r.release()


def run_pack(int index, cnp.ndarray src, ptrdiff_t R, cnp.ndarray dst, bint lines=False, cnp.ndarray sums=None,
             ptrdiff_t offset=0, shape=None, strides=None):
    """Call a packer on src (w, k), in either form, into dst, a contiguous array of the bytes that the panels take.

    sums: contiguous int32 of w elements, added to.  For a source of packed nibbles src is a contiguous array of bytes, and
    offset, shape (w, k) and strides count nibbles.
    """
    cdef const gk_pack *p = &gk_packs[index]
    check_runnable(p.isa)
    cdef bint nibbles = p.source == GK_I4 or p.source == GK_U4
    cdef const char *at = cnp.PyArray_BYTES(src)
    if nibbles:
        at = <const char *>(2 * <size_t>at + offset)
    else:
        shape, strides = (<object>src).shape, (<object>src).strides
    cdef ptrdiff_t w = shape[0], k = shape[1], s_w = strides[0], s_k = strides[1]
    cdef int32_t *found = NULL
    if src.dtype.name != ("uint8" if nibbles else memory_of(p.source)) or not 1 <= R <= GK_MOST_R:
        raise ValueError(f"run_pack: expected {TYPE_NAMES[p.source]} and R up to {GK_MOST_R}")
    if dst.dtype != np.uint8 or not dst.flags.c_contiguous or dst.size != (w + R - 1) // R * gk_panel_bytes(p.to, R, k):
        raise ValueError("run_pack: dst must be the bytes of the panels")
    if lines and p.lines == NULL:
        raise ValueError("run_pack: this packer makes panels only")
    if sums is not None:
        if sums.dtype != np.int32 or not sums.flags.c_contiguous or sums.size != w:
            raise ValueError(f"run_pack: sums must be {w} contiguous int32")
        found = <int32_t *>cnp.PyArray_BYTES(sums)
    (p.lines if lines else p.panels)(at, s_w, s_k, w, k, R, cnp.PyArray_BYTES(dst), found)


def panel_bytes(str type, ptrdiff_t R, ptrdiff_t k):
    """Bytes of one micro-panel, trailer included."""
    return gk_panel_bytes(TYPE_CODES[type], R, k)


def flush_free(int least_a, int least_b):
    """Whether a row that flushes may multiply micro-panels of these least magnitudes."""
    return bool(gk_flush_free(least_a, least_b))


cdef const int32_t *whole_numbers(cnp.ndarray x, ptrdiff_t n, list keep) except? NULL:
    if x is None:
        return NULL
    if x.dtype != np.int32 or not x.flags.c_contiguous or x.size != n:
        raise ValueError(f"run_epilogue: expected {n} contiguous int32")
    keep.append(x)
    return <const int32_t *>cnp.PyArray_BYTES(x)


def run_epilogue(int index, cnp.ndarray acc, cnp.ndarray c, alpha=1.0, beta=1.0, cnp.ndarray bias=None, *,
                 cnp.ndarray row_add=None, cnp.ndarray col_add=None, products=(), cnp.ndarray row_scale=None,
                 cnp.ndarray col_scale=None, double scale=1.0, double zero=0.0,
                 bint single=False):
    """Call one epilogue row: c = alpha * acc + beta * bias; bias has c's shape (zero strides repeat).

    alpha and beta are whole numbers for integer sums.  From int32q and float32q instead: what to add to rows and columns
    (int32), up to two pairs (row, column) of int32 vectors whose products are added, scales (float64; `single` says that they
    may be taken as float32) and the zero point.
    """
    cdef gk_epi_args e
    cdef const gk_epi *row = &gk_epis[index]
    cdef int i
    keep = []
    check_runnable(row.isa)
    check_matrix(acc, row.acc, "acc")
    check_matrix(c, row.out, "c")
    memset(&e, 0, sizeof(e))
    e.acc, e.rs_acc = cnp.PyArray_BYTES(acc), acc.strides[0]
    e.c, e.rs_c, e.m, e.n = cnp.PyArray_BYTES(c), c.strides[0], c.shape[0], c.shape[1]
    if (<object>acc).shape != (<object>c).shape or (e.n > 1 and (c.strides[1] != c.itemsize or acc.strides[1] != acc.itemsize)):
        raise ValueError("run_epilogue: acc and c must have one shape and adjacent columns")
    e.alpha, e.beta, e.bias, e.rs_bias, e.cs_bias = float(alpha), float(beta), NULL, 0, 0
    if float(alpha).is_integer() and float(beta).is_integer():
        e.whole_alpha, e.whole_beta = modular(alpha), modular(beta)
    if bias is not None:
        check_matrix(bias, row.acc, "bias")
        if (<object>bias).shape != (<object>c).shape or (e.n > 1 and bias.strides[1] not in (0, bias.itemsize)):
            raise ValueError("run_epilogue: bias must have c's shape and adjacent or repeated columns")
        e.bias, e.rs_bias, e.cs_bias = cnp.PyArray_BYTES(bias), bias.strides[0], bias.strides[1]
    e.row_add, e.col_add = whole_numbers(row_add, e.m, keep), whole_numbers(col_add, e.n, keep)
    for i, pair in enumerate(products):
        e.row_mul[i], e.col_mul[i] = whole_numbers(pair[0], e.m, keep), whole_numbers(pair[1], e.n, keep)
    for x, n in ((row_scale, e.m), (col_scale, e.n)):
        if x is not None and (x.dtype != np.float64 or not x.flags.c_contiguous or x.size != n):
            raise ValueError(f"run_epilogue: expected {n} contiguous float64")
    if row_scale is not None:
        e.row_scale = <const double *>cnp.PyArray_BYTES(row_scale)
    if col_scale is not None:
        e.col_scale = <const double *>cnp.PyArray_BYTES(col_scale)
    e.scale, e.zero, e.single = scale, zero, single
    if single and col_scale is not None:
        keep.append(col_scale.astype(np.float32))
        e.col_single = <const float *>cnp.PyArray_BYTES(<cnp.ndarray>keep[len(keep) - 1])
    with nogil:
        row.fn(&e)


def run_soft(int index, str which, cnp.ndarray s, cnp.ndarray max=None, cnp.ndarray next=None, cnp.ndarray alpha=None,
             cnp.ndarray sum=None, cnp.ndarray p=None, *, double factor=1.0, double softcap=0.0, cnp.ndarray bias=None,
             cnp.ndarray low=None, cnp.ndarray high=None):
    """Call scan, weigh, rescale or divide of one softmax row, on memory that the caller has made fit (ukr.h).

    s (n, lanes) and p, or p of pairs (ceil(n / 2), lanes, 2): any distance between rows; bias (n, lanes), or (n, 1); the
    others (lanes,).  Returns what weigh returns.
    """
    cdef gk_soft_args a
    cdef const gk_soft *row = &gk_softs[index]
    check_runnable(row.isa)
    memset(&a, 0, sizeof(a))
    check_matrix(s, row.acc, "s")
    a.s, a.rs_s, a.n, a.lanes = cnp.PyArray_BYTES(s), s.strides[0], s.shape[0], s.shape[1]
    if a.lanes % row.vl or (a.lanes > 1 and s.strides[1] != s.itemsize):
        raise ValueError(f"run_soft: expected adjacent lanes, a multiple of {row.vl}")
    for x in (max, next, alpha, sum, low, high):
        if x is not None and (x.dtype != s.dtype or not x.flags.c_contiguous or x.size != a.lanes):
            raise ValueError(f"run_soft: expected {a.lanes} contiguous {s.dtype}")
    needed = {"scan": (max, next), "weigh": (max, next, alpha, sum, p), "rescale": (alpha,), "divide": (sum,)}[which]
    if any(x is None for x in needed):
        raise ValueError(f"run_soft: {which} needs more arguments")
    if max is not None:
        a.max = cnp.PyArray_BYTES(max)
    if next is not None:
        a.next = cnp.PyArray_BYTES(next)
    if alpha is not None:
        a.alpha = cnp.PyArray_BYTES(alpha)
    if sum is not None:
        a.sum = cnp.PyArray_BYTES(sum)
    if (low is None) != (high is None):
        raise ValueError("run_soft: low and high come together")
    if low is not None:
        a.low, a.high = cnp.PyArray_BYTES(low), cnp.PyArray_BYTES(high)
    if bias is not None:
        check_matrix(bias, row.acc, "bias")
        if bias.shape[0] != a.n or bias.shape[1] not in (1, a.lanes):
            raise ValueError("run_soft: bias has another shape than s")
        a.bias, a.rs_bias, a.one_bias = cnp.PyArray_BYTES(bias), bias.strides[0], bias.shape[1] == 1
    if p is not None:
        if p.dtype.name != memory_of(row.out):
            raise ValueError(f"run_soft: expected weights of {memory_of(row.out)}")
        a.p, a.rs_p = cnp.PyArray_BYTES(p), p.strides[0]
    a.factor, a.softcap = factor, softcap
    if which == "weigh":
        return row.weigh(&a)
    (row.scan if which == "scan" else row.rescale if which == "rescale" else row.divide)(&a)
    return None


cdef int64_t modular(object x) except? -1:
    """A whole number modulo 2^64, as integer sums take it."""
    cdef uint64_t low = int(x) & 0xffffffffffffffff
    return <int64_t>low
