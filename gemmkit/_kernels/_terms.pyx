"""Zero points as terms of an epilogue.

With a' and b' as packed, za and zb the zero points shifted as the operands were,

    sum (a - za)(b - zb) = sum a' b'  -  za (sum b' - K zb)  -  zb sum a'

and what is the same for all rows or all columns needs no product in the epilogue:

    za, zb        row_add           col_add               row_mul x col_mul
    one, one      -zb sum a'        -za (sum b' - K zb)
    rows, one     -zb (sum a' - K za)                      -za x sum b'
    one, columns                    -za (sum b' - K zb)   sum a' x -zb
    rows, columns                                          -za x (sum b' - K zb), sum a' x -zb

All modulo 2^32, hence unsigned.  A side whose zero points are all zero has no sums of the other, and no term.
"""
from libc.stdint cimport int32_t, uint32_t


cdef inline uint32_t zero_a(const Job *job, const Place *at, ptrdiff_t i) noexcept nogil:
    return <uint32_t>at.za[i * job.q.inc_za] + <uint32_t>job.q.shift_a


cdef inline uint32_t zero_b(const Job *job, const Place *at, ptrdiff_t j) noexcept nogil:
    return <uint32_t>at.zb[j * job.q.inc_zb] + <uint32_t>job.q.shift_b


cdef size_t terms_bytes(ptrdiff_t rows, ptrdiff_t columns) noexcept nogil:
    return 3 * (rows + columns) * sizeof(int32_t)


cdef void row_terms(const Job *job, const Place *at, const int32_t *sums, int32_t *space, ptrdiff_t i0, ptrdiff_t m,
                    Terms *t) noexcept nogil:
    cdef int32_t *first = space
    cdef int32_t *second = space + m
    cdef uint32_t k = <uint32_t>job.k, zb
    cdef ptrdiff_t i
    t.i0 = i0
    t.row_add = t.row_mul[0] = t.row_mul[1] = NULL
    if job.q.sums_of_b and job.q.inc_za:
        for i in range(m):
            second[i] = <int32_t>(0 - zero_a(job, at, i0 + i))
        t.row_mul[0] = second
    if not job.q.sums_of_a:
        return
    if job.q.inc_zb:
        t.row_mul[1 if t.row_mul[0] != NULL else 0] = sums
        return
    zb = zero_b(job, at, 0)
    for i in range(m):
        first[i] = <int32_t>(0 - zb * (<uint32_t>sums[i] - (k * zero_a(job, at, i0 + i) if job.q.inc_za else 0)))
    t.row_add = first


cdef void column_terms(const Job *job, const Place *at, const int32_t *sums, int32_t *space, ptrdiff_t j0, ptrdiff_t n,
                       Terms *t) noexcept nogil:
    cdef int32_t *first = space
    cdef int32_t *second = space + n
    cdef uint32_t k = <uint32_t>job.k, za
    cdef ptrdiff_t j
    cdef int at_product = 0
    t.j0 = j0
    t.col_add = t.col_mul[0] = t.col_mul[1] = NULL
    if job.q.sums_of_b:
        if not job.q.inc_za:
            za = zero_a(job, at, 0)
            for j in range(n):
                first[j] = <int32_t>(0 - za * (<uint32_t>sums[j] - k * zero_b(job, at, j0 + j)))
            t.col_add = first
        else:
            t.col_mul[0] = sums
            if job.q.inc_zb:
                for j in range(n):
                    first[j] = <int32_t>(<uint32_t>sums[j] - k * zero_b(job, at, j0 + j))
                t.col_mul[0] = first
            at_product = 1
    if job.q.sums_of_a and job.q.inc_zb:
        for j in range(n):
            second[j] = <int32_t>(0 - zero_b(job, at, j0 + j))
        t.col_mul[at_product] = second
