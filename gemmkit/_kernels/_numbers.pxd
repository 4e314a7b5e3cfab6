"""Small integer arithmetic on sizes that are never negative."""

cdef inline ptrdiff_t ceil_div(ptrdiff_t a, ptrdiff_t b) noexcept nogil:
    return (a + b - 1) // b


cdef inline ptrdiff_t round_up(ptrdiff_t a, ptrdiff_t b) noexcept nogil:
    return ceil_div(a, b) * b


cdef inline ptrdiff_t least(ptrdiff_t a, ptrdiff_t b) noexcept nogil:
    return a if a < b else b


cdef inline ptrdiff_t clamp(ptrdiff_t x, ptrdiff_t low, ptrdiff_t high) noexcept nogil:
    return low if x < low else high if x > high else x


cdef inline ptrdiff_t magnitude(ptrdiff_t x) noexcept nogil:
    return -x if x < 0 else x
