"""Which algorithm multiplies a shape, and in which blocks: pure functions of numbers.

Nothing here knows the thread count: what decides the order of a summation (algorithm, KC, split of K) must not, or
results would change with it.  Each constant stands with its reason or the benchmark that found it.
"""
from gemmkit._kernels._numbers cimport ceil_div, clamp, least, magnitude, round_up

cdef enum:
    STREAM_ROWS = 4  # rows of C that one pass over B serves; from five on a register tile is as fast, if B is in a cache
    STREAM_ROWS_FAR = 16  # of a B that lies in memory, where jumping from page to page costs more than arithmetic
    DOT_ROWS = 16
    DOT_COLUMNS = 4
    TURNING_ROWS = 8
    TURNING_DEPTH = 64
    SMALL_K_DEPTH = 32
    SPLIT_OUTPUT = 4096  # outputs up to 64 x 64 have too few tiles for several threads
    KC_MOST = 1024
    RUNNING_SUM = 8192  # steps of K that one sum may run over before it is added to another
    SPLIT_SIDE = 128  # a longer side can be shared out as it is
    SPLIT_DEPTH = 512  # the least K a chunk is worth: adding its partial sum up costs one step of K per chunk
    SPLIT_MOST = 16
    SHORT_ROW = 2048  # columns of B up to which a piece of its rows is too short for each thread to have one
    IN_PLACE_TILES = 4  # tiles of rows for which packing B would never pay
    PACKING_ROWS = 384  # rows of A from which packing B pays even where a strip of it would stay in L2
    WIDENING_TILES = 2  # the same where B is float8, which takes longer to widen each time
    QUADS_ROWS = 8  # MR of every stream row of bytes
    QUADS_STREAMS = 8  # rows of C up to which a stream of bytes beats packing them
    QUADS_COLUMNS = 8  # columns of B up to which dot products of bytes beat packing A
    QUADS_DEPTH = 32  # steps of K from which dot products of bytes beat packing
    NARROW_COLUMNS = 1024  # columns of B at once where rows of A are only widened, or partial sums wait beside C

cdef double SPLIT_WORK = 2.0 * 1024 * 1024  # multiply-adds; below this one thread is as good
cdef ptrdiff_t L3_MOST = 8 << 20  # more of B than this gains nothing once it outgrows L2, and costs workspace
cdef ptrdiff_t A_MOST = 4 << 20  # the same of A
cdef ptrdiff_t SHORT_MOST = 1 << 20  # bytes that a chunk of a split product widens a narrow operand into
cdef ptrdiff_t SUMS_MOST = 4 << 20  # bytes of partial sums beside a narrow C

NAMES = {AUTO: "auto", DIRECT: "direct", GENERAL: "general", SMALL_K: "small_k", SKINNY_M: "skinny_m",
         SKINNY_N: "skinny_n", SPLIT_K: "split_k"}
CODES = {name: code for code, name in NAMES.items()}
INNER_NAMES = {INNER_GEMM: "gemm", INNER_DOT: "dot", INNER_STREAM: "stream"}


cdef inline ptrdiff_t gcd(ptrdiff_t a, ptrdiff_t b) noexcept nogil:
    while b:
        a, b = b, a % b
    return a


cdef bint strip_fits(ptrdiff_t rows, ptrdiff_t width, ptrdiff_t stride, const gk_cache *cache) noexcept nogil:
    """Whether `rows` pieces of `width` bytes, `stride` apart, can lie in `cache` at once and leave a quarter free.

    A power of two as stride sends every row to the same few sets: the cache is then as small as those sets.
    """
    if cache.size <= 0 or cache.ways <= 0 or cache.line <= 0:
        return False
    cdef ptrdiff_t sets = cache.size // (cache.ways * cache.line)
    cdef ptrdiff_t lines = ceil_div(width, cache.line) + (1 if width % cache.line or stride % cache.line else 0)
    cdef ptrdiff_t step, usable = sets
    stride = magnitude(stride)
    if stride % cache.line == 0 and stride > 0:
        step = gcd(stride // cache.line, sets)
        usable = sets // step * (lines if lines < step else step)
    return rows * lines * 4 <= usable * cache.ways * 3


cdef ptrdiff_t rows_at_once(ptrdiff_t m, ptrdiff_t line, int mr, bint packed) noexcept nogil:
    """MC: all rows, or equal parts that are packed into A_MOST bytes each; `line` is the bytes of a row's KC steps."""
    if packed and m * line > A_MOST:
        m = ceil_div(m, ceil_div(m, clamp(A_MOST // line, mr, 1 << 30)))
    return round_up(m if m > 0 else 1, mr)


cdef ptrdiff_t rows_of_sums(ptrdiff_t m, ptrdiff_t nc, ptrdiff_t item, int mr, int nr) noexcept nogil:
    """MB: all rows, or equal parts whose sums take SUMS_MOST bytes each."""
    cdef ptrdiff_t bytes = m * round_up(nc, nr) * item
    return m if bytes <= SUMS_MOST else round_up(ceil_div(m, ceil_div(bytes, SUMS_MOST)), mr)


cdef void choose_blocking(const Problem *p, Choice *c) noexcept nogil:
    """MC, NC, KC for the tile algorithms, from the sizes of the caches.

    KC: an MR x KC micro-panel of A takes half of L1 and is read again for each tile of its row; B's micro-panels stream
        from L2 past it.  Each KC block is a pass over C, so it should not be shorter.
    NB: a KC x NB block of B takes half of L2 and is read again by each micro-panel of A.
    NC: a KC x NC panel of B is packed at once: NB columns, so that it is used in L2, where it was packed; with a packed A,
        which each panel of B packs again, half of the last level, L3_MOST bytes at most.
    MC: an MC x KC panel of A is packed at once, if at all, into A_MOST bytes.
    MB: MB x NC partial sums wait beside a narrow C, if K is cut, in SUMS_MOST bytes.
    """
    cdef ptrdiff_t last = p.l3.size if p.l3.size > p.l2.size else p.l2.size, line, b_line
    cdef ptrdiff_t item = p.panel_item if c.panels else p.item
    last = last // 2 if last // 2 < L3_MOST else L3_MOST
    # A division is worth a small product's time, so each is taken only by operands that outgrow the block.
    c.kc = p.k
    if p.k > 128:
        # Rows that want lines are AMX's, so fast that a pass over C costs more than an A from L2.
        c.kc = clamp(p.l1d.size // 2 // (p.mr * item), KC_MOST if c.panels and p.lines_a else 128, KC_MOST)
        c.kc = p.k if p.k <= c.kc else round_up(ceil_div(p.k, ceil_div(p.k, c.kc)), 8)
    if c.algorithm == DIRECT and p.k <= 2 * c.kc:
        c.kc = p.k
    if c.algorithm == DIRECT and p.m > p.mr:
        # Rows of A after the first MR find the strip of B in L2 only if it is short enough for the sets it maps to.
        while c.kc > 128 and not strip_fits(c.kc, least(p.n, p.nr) * p.b_item, p.rs_b, &p.l2):
            c.kc = round_up(c.kc // 2, 8)
    line = (c.kc if c.kc > 0 else 1) * item
    b_line = line if c.pack_b or p.b_prepacked else (c.kc if c.kc > 0 else 1) * p.b_item
    # Equal blocks: a short last one would cost a pass over A or C for little work.
    c.mc = rows_at_once(p.m, line, p.mr, c.pack_a)
    c.nc = p.n if p.n > 0 else 1
    if (c.pack_b or p.b_prepacked) and p.n * line > last:
        c.nc = ceil_div(p.n, ceil_div(p.n, clamp(last // line, p.nr, 1 << 30)))
    c.mb = p.m
    if c.nc > NARROW_COLUMNS and (c.a_lines or (p.narrow_c and c.kc < p.k)):
        c.nc = ceil_div(p.n, ceil_div(p.n, NARROW_COLUMNS))
    if p.narrow_c and c.kc < p.k:
        c.mb = rows_of_sums(p.m, c.nc, p.item, p.mr, p.nr)
        if c.mb < p.m:
            c.mc = rows_at_once(c.mb, line, p.mr, c.pack_a)
    c.nc = round_up(c.nc, p.nr)
    c.nb = c.nc
    if c.nb * b_line > p.l2.size // 2:
        c.nb = clamp(p.l2.size // 2 // b_line, p.nr, 1 << 30)
        c.nb = ceil_div(c.nc, ceil_div(c.nc, c.nb))
    if c.pack_b and not c.pack_a:
        # Nothing but a packed A gains from more columns at once, and a block that is used at once is packed into L2.
        c.nc = c.nb = round_up(c.nb, p.nr)


cdef void even_steps(const Problem *p, Choice *c) noexcept nogil:
    """Steps of the tile loops.  Packed operands fix them; others are cut evenly: 64 columns as 32 + 32, not 48 + 16."""
    cdef ptrdiff_t vectors
    c.ms, c.ns = p.mr, p.nr
    if p.n > p.nr and not c.pack_b and not p.b_prepacked:
        vectors = ceil_div(p.n, p.vl)
        c.ns = ceil_div(vectors, ceil_div(vectors * p.vl, p.nr)) * p.vl
    if p.m > p.mr and not c.pack_a:
        c.ms = ceil_div(p.m, ceil_div(p.m, p.mr))
    if not c.pack_b and not p.b_prepacked and c.nb > c.ns:
        # In place, a block whose rows share a few sets of L2 does not stay there: a single strip has to do.
        if p.m > p.mr and not strip_fits(c.kc, c.nb * p.b_item, p.rs_b, &p.l2):
            c.nb = c.ns
    c.nb = round_up(c.nb, c.ns)


cdef inline bint k_adjacent_in_a(const Problem *p) noexcept nogil:
    return p.cs_a == p.a_item or p.k <= 1


cdef inline bint k_adjacent_in_b(const Problem *p) noexcept nogil:
    return p.rs_b == p.b_item or p.k <= 1


cdef inline bint n_adjacent_in_b(const Problem *p) noexcept nogil:
    return p.cs_b == p.b_item or p.n <= 1


cdef void choose_tiles(const Problem *p, int forced, Choice *c) noexcept nogil:
    """Direct, small-K or general: whether operands are read in place or packed.

    A narrow A is packed, which widens it, since a kernel broadcasts its elements one by one; only AVX512-FP16 can widen as
    it broadcasts.  A narrow B can be read in place, at the price of widening it again for every tile of rows.
    """
    cdef bint a_k_unit = k_adjacent_in_a(p), b_n_unit = n_adjacent_in_b(p)
    cdef ptrdiff_t width, tiles
    c.inner = INNER_GEMM
    c.splits, c.chunk = 1, p.k
    c.pack_a = c.pack_b = False
    if p.b_prepacked or forced == GENERAL:
        c.algorithm = GENERAL
    elif forced == DIRECT or forced == SMALL_K:
        c.algorithm = forced
    elif p.widen_b:
        # Panels of half the bytes and twice the rate, or more, are worth packing sooner.
        tiles = 1 if p.panel_item < p.item else IN_PLACE_TILES if p.b_item == 2 else WIDENING_TILES
        # An AMX tile takes 32 steps of K at least.
        c.algorithm = DIRECT if b_n_unit and (p.m <= tiles * p.place_mr or (p.lines_a and p.k < 16)) else GENERAL
    elif p.k <= SMALL_K_DEPTH and p.m >= 4 * p.mr and p.n >= 2 * p.nr:
        c.algorithm = SMALL_K
    elif not b_n_unit:
        c.algorithm = GENERAL
    else:
        # In place as long as a strip of B, NR columns wide and K deep, stays in L2 while A passes by it.
        width = (p.nr if p.n > p.nr else p.n) * p.b_item
        if p.m <= IN_PLACE_TILES * p.mr or (strip_fits(p.k, width, p.rs_b, &p.l2)
                               and (p.m < PACKING_ROWS or p.k * p.n * p.b_item <= p.l2.size // 4)):
            c.algorithm = DIRECT
        else:
            c.algorithm = GENERAL
        # A column of A is one line a row of C: worth packing when several strips of B will read it again.
        if not a_k_unit and p.k > 64 and (p.n > 2 * p.nr or p.m * p.k * p.a_item > p.l2.size // 2):
            c.algorithm = GENERAL
    if c.algorithm == GENERAL:
        c.pack_b = not p.b_prepacked
        c.pack_a = not a_k_unit
    elif c.algorithm == SMALL_K:
        c.pack_b = not b_n_unit
    c.panels = c.pack_b or p.b_prepacked
    c.pack_a = c.pack_a or (p.widen_a and not (p.place_a and not c.pack_b and not p.b_prepacked))
    c.a_lines = c.pack_a and (a_k_unit or (c.panels and p.lines_a))
    cdef Problem tile = p[0]
    if not c.pack_b and not p.b_prepacked:
        tile.mr, tile.nr, tile.vl = p.place_mr, p.place_nr, p.place_vl
    choose_blocking(&tile, c)
    even_steps(&tile, c)


cdef const char *refusal(const Problem *p, int algorithm) noexcept nogil:
    cdef bint a_k_unit = k_adjacent_in_a(p), b_n_unit = n_adjacent_in_b(p), b_k_unit = k_adjacent_in_b(p)
    if algorithm == AUTO or algorithm == GENERAL:
        return NULL
    if p.b_prepacked:
        return b"B is prepacked for the general algorithm"
    if p.quads and (algorithm == DIRECT or algorithm == SMALL_K):
        return b"bytes are multiplied four at a time, which only packed panels allow"
    if p.quads and ((algorithm == SKINNY_M and p.nibble_b) or (algorithm == SKINNY_N and p.nibble_a)):
        return b"packed nibbles can't be read in place"
    if algorithm == DIRECT and not b_n_unit:
        return b"B's rows are not contiguous"
    if algorithm == SMALL_K and p.k > 512:
        return b"K is not small"
    if algorithm == SKINNY_M and p.m > 64:
        return b"M is not small"
    if algorithm == SKINNY_M and not b_n_unit and not b_k_unit:
        return b"neither B's rows nor its columns are contiguous"
    if algorithm == SKINNY_N and p.n > 64:
        return b"N is not small"
    if algorithm == SKINNY_N and not a_k_unit:
        return b"A's rows are not contiguous"
    if algorithm == SPLIT_K and (p.m * p.n > 64 * SPLIT_OUTPUT or p.k < 2):
        return b"the output is not small, or there is no K to split"
    return NULL


cdef inline ptrdiff_t stream_rows(const Problem *p) noexcept nogil:
    """Rows up to which B is better streamed than cut into strips: the more, the farther away B lies.

    From L1 a register tile reads as fast, and only one row leaves it without parallel sums.
    """
    cdef ptrdiff_t bytes = p.n * p.k * p.b_item
    if p.quads and p.serves_many:
        return QUADS_STREAMS
    return 1 if bytes <= p.l1d.size else STREAM_ROWS if bytes <= L3_MOST else STREAM_ROWS_FAR


cdef inline ptrdiff_t dot_columns(const Problem *p) noexcept nogil:
    """Columns up to which A is better read as it lies: more if it would have to be widened to be packed."""
    return 2 * DOT_COLUMNS if p.widen_a and (p.panel_item == p.item or p.a_item == 2) else DOT_COLUMNS


cdef inline bint turns_too_much(const Problem *p) noexcept nogil:
    """Whether laying B's columns out along K, element by element, costs more than the few rows of A gain by it."""
    return p.m < TURNING_ROWS and p.k <= TURNING_DEPTH and not k_adjacent_in_b(p) and n_adjacent_in_b(p)


cdef void choose_quads(const Problem *p, int forced, Choice *c) noexcept nogil:
    """Bytes: the long operand in place if the other is short, else packed panels.  K stays whole."""
    cdef bint a_k_unit = k_adjacent_in_a(p), b_n_unit = n_adjacent_in_b(p), b_k_unit = k_adjacent_in_b(p)
    cdef bint free = not p.b_prepacked and forced != GENERAL
    c.splits, c.chunk = 1, p.k
    c.panels = c.a_lines = True
    c.mb = p.m
    if (free and a_k_unit and not p.nibble_a
            and (forced == SKINNY_N or (forced != SKINNY_M and p.n <= QUADS_COLUMNS and p.k >= QUADS_DEPTH))):
        c.algorithm, c.inner = SKINNY_N, INNER_DOT
        c.pack_a, c.pack_b = False, True
        skinny_blocks(p, c)
        return
    if free and b_n_unit and not p.nibble_b and (forced == SKINNY_M or (p.n > p.vl and p.m <= stream_rows(p))):
        c.algorithm, c.inner = SKINNY_M, INNER_STREAM
        c.pack_a, c.pack_b = True, False
        skinny_blocks(p, c)
        return
    if free and b_k_unit and not p.nibble_b and (forced == SKINNY_M or (p.m <= DOT_ROWS and p.k >= QUADS_DEPTH)):
        c.algorithm, c.inner = SKINNY_M, INNER_DOT
        c.pack_a, c.pack_b = True, False
        skinny_blocks(p, c)
        return
    c.algorithm, c.inner = GENERAL, INNER_GEMM
    c.pack_a, c.pack_b = p.pack_a, not p.b_prepacked
    c.a_lines = c.pack_a
    choose_blocking(p, c)
    even_steps(p, c)
    c.a_lines = True


cdef void choose(const Problem *p, int forced, Choice *c) noexcept nogil:
    """Fill `c` with the algorithm and blocks for `p`; `forced` must have no `refusal`."""
    cdef bint a_k_unit = k_adjacent_in_a(p), b_n_unit = n_adjacent_in_b(p), b_k_unit = k_adjacent_in_b(p)
    cdef double work = <double>p.m * p.n * p.k
    cdef ptrdiff_t splits
    cdef Problem chunk
    if p.m == 0 or p.n == 0 or p.k == 0:
        # Nothing to compute: the engine won't get as far as these blocks, but they are what a plan shows.
        c.algorithm = DIRECT if forced == AUTO or forced == NEVER_SPLIT else forced
        c.inner, c.splits, c.chunk = INNER_GEMM, 1, p.k
        c.pack_a = c.pack_b = c.panels = c.a_lines = False
        c.ms, c.ns, c.mc, c.kc, c.mb = p.mr, p.nr, round_up(p.m, p.mr), p.k, p.m
        c.nc = c.nb = round_up(p.n, p.nr)
        return
    if p.b_prepacked:
        if p.quads:
            choose_quads(p, GENERAL, c)
        else:
            choose_tiles(p, GENERAL, c)
        return
    splits = 1
    if forced == SPLIT_K or (forced == AUTO and p.k >= 2 * SPLIT_DEPTH and p.m * p.n <= SPLIT_OUTPUT
                             and p.m <= SPLIT_SIDE and p.n <= SPLIT_SIDE and work >= SPLIT_WORK):
        splits = clamp(p.k // SPLIT_DEPTH, 2, SPLIT_MOST)
    if forced == AUTO and p.k > RUNNING_SUM and not p.quads and b_n_unit and p.n > p.vl and p.m <= stream_rows(p):
        # A stream kernel keeps one running sum an element, whose error grows with its length.
        splits = splits if splits > ceil_div(p.k, RUNNING_SUM) else ceil_div(p.k, RUNNING_SUM)
    if (forced == AUTO and splits == 1 and b_n_unit and p.n > p.vl and p.n <= SHORT_ROW and p.m <= stream_rows(p)
            and p.k >= SPLIT_DEPTH and work >= SPLIT_WORK // 4):
        # Rows of B too short to be cut: threads had better have rows of their own.
        splits = clamp(p.k // (SPLIT_DEPTH // 2), 2, 4)
    if splits > 1 and not p.quads and (p.widen_a or p.widen_b):
        # The short operand of a chunk is widened as a whole, so that long vectors need more chunks.
        splits = clamp(ceil_div(p.k, clamp(SHORT_MOST // (least(p.m, p.n) * p.item), SPLIT_DEPTH, 1 << 30)), splits, 1 << 30)
    if splits > 1:
        chunk = p[0]
        chunk.k = round_up(ceil_div(p.k, splits), 8)
        choose(&chunk, NEVER_SPLIT, c)
        c.algorithm = SPLIT_K
        c.chunk = chunk.k
        c.splits = ceil_div(p.k, c.chunk)
        return
    if p.quads:
        choose_quads(p, AUTO if forced == NEVER_SPLIT else forced, c)
        return
    c.splits, c.chunk = 1, p.k
    c.pack_a = c.pack_b = c.panels = c.a_lines = False
    c.mb = p.m
    if forced == AUTO or forced == NEVER_SPLIT or forced == SKINNY_M or forced == SKINNY_N:
        if (forced == SKINNY_N or (forced != SKINNY_M and p.n <= dot_columns(p) and p.k >= 2 * p.vl
                                        and not turns_too_much(p))) and a_k_unit:
            c.algorithm, c.inner = SKINNY_N, INNER_DOT
            c.pack_b = not b_k_unit or p.widen_b
            skinny_blocks(p, c)
            return
        if b_n_unit and (forced == SKINNY_M or (p.n > p.vl and p.m <= stream_rows(p))):
            c.algorithm, c.inner = SKINNY_M, INNER_STREAM
            c.pack_a = p.widen_a
            skinny_blocks(p, c)
            return
        if b_k_unit and not b_n_unit and (forced == SKINNY_M or (p.m <= DOT_ROWS and p.k >= 2 * p.vl)):
            c.algorithm, c.inner = SKINNY_M, INNER_DOT
            c.pack_a = not a_k_unit or p.widen_a
            skinny_blocks(p, c)
            return
    choose_tiles(p, AUTO if forced == NEVER_SPLIT else forced, c)


cdef void skinny_blocks(const Problem *p, Choice *c) noexcept nogil:
    """Blocks of the skinny algorithms; steps are those of the row that the engine takes.

    The short operand is laid out by lines of the sums' type if it isn't; the long one is read where and as it lies.
    STREAM: nc columns, whose part of C stays in half of L1 while K runs; more than MR rows come back to the same kc
    rows of B, which then stay in half of L2.
    DOT: kc steps of K between visits to C; NR columns of B stay in L2 while rows of A pass.
    """
    cdef ptrdiff_t rows = least(p.m, QUADS_ROWS if p.quads else STREAM_STEP)
    if c.inner == INNER_STREAM:
        c.ms, c.ns = QUADS_ROWS if p.quads else STREAM_STEP, p.vl
        c.nc = clamp(round_up(p.l1d.size // 2 // (rows * p.item), 4 * p.vl), 4 * p.vl, 8192)
        c.kc = p.k
        if p.m > c.ms:
            c.kc = clamp(p.l2.size // 2 // ((c.nc if c.nc < p.n else p.n) * p.b_item) // 8 * 8, 8, 1 << 30)
        c.mc, c.nb = p.m, c.nc
    else:
        c.ms, c.ns = p.mr, p.nr
        c.mc, c.nc, c.nb = p.m, p.n, p.n
        c.kc = p.k if p.k < RUNNING_SUM else RUNNING_SUM


cdef dict as_dict(const Choice *c):
    return {"algorithm": NAMES[c.algorithm], "inner": INNER_NAMES[c.inner], "pack_a": bool(c.pack_a),
            "pack_b": bool(c.pack_b), "panels": bool(c.panels), "a_lines": bool(c.a_lines), "mc": c.mc, "mb": c.mb, "nc": c.nc, "kc": c.kc, "nb": c.nb,
            "ms": c.ms, "ns": c.ns, "splits": c.splits, "chunk": c.chunk}


def choose_algorithm(ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, *, int item=4, a_item=None, b_item=None, c_item=None,
                     panel_item=None, a_strides=None, b_strides=None, bint b_prepacked=False, int mr=8, int nr=48, int vl=16,
                     l1d=(32768, 8, 64), l2=(1048576, 8, 64), l3=(33554432, 16, 64), str algorithm="auto"):
    """What `choose` decides for these numbers, as a dict: the pure function, for tests and explanations.

    Parameters
    ----------
    m, n, k : int
        The product is (m, k) @ (k, n).
    item : int
        Bytes of a sum.
    a_item, b_item, c_item, panel_item : int, optional
        Bytes an element of the operands, the result and packed panels; as a sum by default.
    a_strides, b_strides : (int, int), optional
        Byte strides; contiguous rows by default.
    b_prepacked : bool
        B lies in micro-panels.
    mr, nr, vl : int
        The GEMM row's register block and vector length.
    l1d, l2, l3 : (int, int, int)
        Size in bytes, ways, line in bytes.
    algorithm : str
        Force one.

    Raises
    ------
    ValueError
        The forced algorithm can't take these operands.
    """
    cdef Problem p
    cdef Choice c
    p.m, p.n, p.k, p.item, p.b_prepacked = m, n, k, item, b_prepacked
    p.a_item, p.b_item, p.panel_item = a_item or item, b_item or item, panel_item or item
    p.place_a = p.lines_a = p.quads = p.nibble_a = p.nibble_b = p.serves_many = p.pack_a = False
    p.widen_a, p.widen_b, p.narrow_c = p.a_item < item, p.b_item < item, (c_item or item) < item
    p.rs_a, p.cs_a = a_strides or (k * p.a_item, p.a_item)
    p.rs_b, p.cs_b = b_strides or (n * p.b_item, p.b_item)
    p.mr, p.nr, p.vl = p.place_mr, p.place_nr, p.place_vl = mr, nr, vl
    p.l1d.size, p.l1d.ways, p.l1d.line = l1d
    p.l2.size, p.l2.ways, p.l2.line = l2
    p.l3.size, p.l3.ways, p.l3.line = l3
    if algorithm not in CODES:
        raise ValueError(f"algorithm: unknown {algorithm!r}; known are {', '.join(CODES)}")
    cdef const char *why = refusal(&p, CODES[algorithm])
    if why != NULL:
        raise ValueError(f"algorithm: {algorithm} can't run {m} x {n} x {k}: {why.decode()}")
    choose(&p, CODES[algorithm], &c)
    return as_dict(&c)


def fits(ptrdiff_t rows, ptrdiff_t width, ptrdiff_t stride, cache):
    """Whether `rows` pieces of `width` bytes, `stride` apart, can lie in a cache (size, ways, line) at once."""
    cdef gk_cache c
    c.size, c.ways, c.line = cache
    return bool(strip_fits(rows, width, stride, &c))
