/* Body of a peak measurement: GK_PEAK_ACC accumulators, one multiply-add each a turn, nothing from memory.
 * Needs GK_PEAK_NAME and GK_PEAK_ACC (what the register file holds beside two operands); GK_PEAK_OPS operations a lane,
 * 2 unless said otherwise. */
#ifndef GK_PEAK_OPS
#define GK_PEAK_OPS 2
#endif

static double GK_PEAK_NAME(long turns)
{
    /* Not constants to the compiler, which could turn a product of integers by one into shifts. */
    volatile V_ELEM given[2] = {(V_ELEM)(0.5 + 2 * ((V_ELEM)0.5 == 0)), 1};
    const V_ELEM x = given[0], y = given[1];
    const V_TYPE a = V_BROADCAST((const char *)&x), b = V_BROADCAST((const char *)&y);
    V_TYPE r[GK_PEAK_ACC];
    V_ELEM sum = 0;
    GK_UNROLL
    for (int i = 0; i < GK_PEAK_ACC; i++) {
        const V_ELEM start = (V_ELEM)(turns + i); /* all different, or the compiler keeps one for all */
        r[i] = V_BROADCAST((const char *)&start);
    }
    for (long t = 0; t < turns; t++) {
        GK_UNROLL
        for (int i = 0; i < GK_PEAK_ACC; i++)
            r[i] = V_FMA(r[i], a, b);
    }
    GK_UNROLL
    for (int i = 0; i < GK_PEAK_ACC; i++)
        sum += V_SUM(r[i]);
    /* The sum must be used, or the loop is no work. */
    given[0] = sum;
    return (double)GK_PEAK_OPS * GK_PEAK_ACC * V_LEN * (double)turns;
}
#undef GK_PEAK_NAME
#undef GK_PEAK_ACC
#undef GK_PEAK_OPS
