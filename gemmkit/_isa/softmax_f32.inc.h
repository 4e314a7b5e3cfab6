/* Numbers of tmpl_softmax.inc.h for float32, fitted to the least relative error: exp to 2^-28, tanh to 2^-27. */
#define X_INFINITY __builtin_inff()
#define X_MOST 3.402823466e38f
#define X_LOG2E 1.44269504089f
#define X_LN2_HIGH 0.693359375f /* 9 bits: its product with n is exact */
#define X_LN2_LOW -2.12194440e-4f
#define X_ROUND GK_ROUND_F32
#define X_EXP_LEAST -87.3365f /* just above the logarithm of the least normal number */
#define X_EXP 0.49999994f, 0.16666515f, 0.041668456f, 0.0083694188f, 0.0013813145f
#define X_TANH -0.33333284f, 0.13331492f, -0.053743552f, 0.020650664f, -0.0057170512f
#define X_TANH_NEAR 0.625f
#define X_TANH_IS_ONE 10.0f
