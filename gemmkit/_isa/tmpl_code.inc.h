/* float32 to the code of a narrow type, to nearest even, lane by lane.  Needs GK_CODE_NAME, V_TYPE, V_ADD and
 *
 *   I_TYPE                         lanes of int32
 *   I_ALL(x), I_BITS(v), I_FLOATS(i)
 *   I_PLUS, I_MINUS, I_AND, I_OR, I_RIGHT(i, n)  (a logical shift)
 *   I_MORE(a, b, x, y)             x where a > b (signed), else y
 *
 * Both ways of rounding are computed: of a normal number by adding just less than half of the last place, of one that is
 * subnormal in the format by adding a float32 whose last place is the format's smallest subnormal. */
GK_INLINE I_TYPE GK_CODE_NAME(V_TYPE v, const int bits, const int fraction, const int bias, const int most, const int above,
                              const int nan, const int minus_zero)
{
    const int drop = 23 - fraction;
    const I_TYPE x = I_BITS(v), size = I_AND(x, I_ALL(0x7fffffff));
    I_TYPE sign = I_AND(I_RIGHT(x, 32 - bits), I_ALL(1 << (bits - 1)));
    const I_TYPE odd = I_AND(I_RIGHT(size, drop), I_ALL(1));
    I_TYPE code = I_RIGHT(I_PLUS(size, I_PLUS(odd, I_ALL((1 << (drop - 1)) - 1))), drop);
    if (bias != 127) { /* else the exponents are float32's own, and so are subnormals */
        const I_TYPE magic = I_ALL((127 + 24 - bias - fraction) << 23);
        const I_TYPE small = I_MINUS(I_BITS(V_ADD(I_FLOATS(size), I_FLOATS(magic))), magic);
        code = I_MINUS(code, I_ALL((127 - bias) << fraction));
        code = I_MORE(I_ALL((127 + 1 - bias) << 23), size, small, code);
        code = I_MORE(code, I_ALL(most), I_ALL(above), code);
    }
    code = I_MORE(size, I_ALL(0x7f800000), I_ALL(nan), code);
    if (!minus_zero)
        sign = I_MORE(code, I_ALL(0), sign, I_ALL(0));
    return I_OR(code, sign);
}
#undef GK_CODE_NAME
#undef I_TYPE
#undef I_ALL
#undef I_BITS
#undef I_FLOATS
#undef I_PLUS
#undef I_MINUS
#undef I_AND
#undef I_OR
#undef I_RIGHT
#undef I_MORE
