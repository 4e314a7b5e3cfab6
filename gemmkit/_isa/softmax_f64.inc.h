/* Numbers of tmpl_softmax.inc.h for float64, fitted to the least relative error: both to 2^-56. */
#define X_INFINITY __builtin_inf()
#define X_MOST 1.7976931348623157e308
#define X_LOG2E 1.4426950408889634074
#define X_LN2_HIGH 6.93145751953125e-1 /* 20 bits: its product with n is exact */
#define X_LN2_LOW 1.42860682030941723212e-6
#define X_ROUND GK_ROUND_F64
#define X_EXP_LEAST -708.396418532264 /* just above the logarithm of the least normal number */
#define X_EXP                                                                                                     \
    0.5000000000000012, 0.16666666666666385, 0.04166666666651916, 0.008333333333507656, 0.001388888894691977,       \
        0.00019841269486175895, 2.480148935244266e-05, 2.755759717273762e-06, 2.763168729148181e-07, 2.4998997344267413e-08
#define X_TANH                                                                                                    \
    -0.3333333333333333, 0.13333333333333042, -0.05396825396789636, 0.02186948851898143, -0.008863235102653483,     \
        0.0035921217436959856, -0.0014557753532096296, 0.0005896603606552671, -0.0002375896885211701,             \
        9.256923588512033e-05, -3.119892666773487e-05, 6.484104982405479e-06
#define X_TANH_NEAR 0.625
#define X_TANH_IS_ONE 20.0
