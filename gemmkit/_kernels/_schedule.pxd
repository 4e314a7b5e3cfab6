"""Decisions as pure functions of numbers: which algorithm, which blocks.  No kernel, no memory, no thread count."""
from gemmkit._kernels._registry cimport gk_cache

cdef enum Algorithm:
    AUTO = 0
    DIRECT = 1
    GENERAL = 2
    SMALL_K = 3
    SKINNY_M = 4
    SKINNY_N = 5
    SPLIT_K = 6
    NUM_ALGORITHMS = 7
    NEVER_SPLIT = 8  # AUTO, but K stays whole: what a chunk of a split product asks for

# The kernel a product's inner loop calls: the roles of the table.
cdef enum Inner:
    INNER_GEMM = 0
    INNER_DOT = 1
    INNER_STREAM = 2

cdef enum: STREAM_STEP = 4  # MR of every stream row

cdef struct Problem:
    ptrdiff_t m, n, k
    ptrdiff_t item  # bytes of a sum, and of a narrow operand's element once it is widened
    ptrdiff_t a_item, b_item  # as the operands lie
    ptrdiff_t panel_item  # as the general algorithm packs them
    bint widen_a, widen_b  # narrower than the sums
    bint lines_a  # the row that reads panels wants A packed by lines, whatever its layout
    bint place_a  # but the row that reads B in place reads such an A so too
    bint narrow_c  # so is C: partial sums can't wait in it
    bint quads  # bytes or nibbles: only packed panels and lines can be multiplied
    bint nibble_a, nibble_b  # two of them a byte: they have no row that reads them in place
    bint serves_many  # quads: a stream of B can serve many rows
    bint pack_a  # quads: the tile row can't read A where it lies
    ptrdiff_t rs_a, cs_a, rs_b, cs_b  # bytes
    bint b_prepacked  # B is in micro-panels of NR columns already
    int mr, nr, vl  # the register block and vector length of the GEMM row that reads panels
    int place_mr, place_nr, place_vl  # of the one that reads B in place
    gk_cache l1d, l2, l3

cdef struct Choice:
    int algorithm
    int inner  # of a split-K product: that of one chunk
    bint pack_a, pack_b
    bint panels  # packed operands are of the panel type; otherwise of the sums' type
    bint a_lines  # A is packed row by row, not interleaved
    ptrdiff_t mc, nc, kc
    ptrdiff_t nb  # columns of B that stay in L2 while rows of A pass
    ptrdiff_t mb  # rows of C whose partial sums are held at once; M unless C is narrow and K is cut
    ptrdiff_t ms, ns  # step of the tile loops: MR and NR, or less so that tiles come out even
    ptrdiff_t splits, chunk  # of K; 1 and K when it is not split

cdef ptrdiff_t rows_at_once(ptrdiff_t m, ptrdiff_t line, int mr, bint packed) noexcept nogil
# Rows of C whose partial sums are held at once.
cdef ptrdiff_t rows_of_sums(ptrdiff_t m, ptrdiff_t nc, ptrdiff_t item, int mr, int nr) noexcept nogil
cdef void choose(const Problem *p, int forced, Choice *c) noexcept nogil
# NULL when the operands' layout lets `algorithm` be forced, else why not.
cdef const char *refusal(const Problem *p, int algorithm) noexcept nogil
