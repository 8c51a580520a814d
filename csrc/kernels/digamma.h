/* The derivative of the gamma function's logarithm, right of 0: Stirling's series from 10 on, and the sum of 1 / (x + k)
 * below. */
#ifndef UNDERTOW_DIGAMMA_H
#define UNDERTOW_DIGAMMA_H

#include "loops/functions.h"

#ifdef HAS_FUNCTIONS

/* The polynomial with these coefficients, highest power first. */
INLINE double
polynomial(const double *coefficients, const int count, double x)
{
    double p = coefficients[0];
    UNROLLED for (int k = 1; k < count; k++) {
        p = p * x + coefficients[k];
    }
    return p;
}

#define POLYNOMIAL(x, ...) polynomial((const double[]){__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double), x)

INLINE double
digamma_right(double x)
{
    int is_small = x < 10;
    double y = is_small ? x + 10 : x, z = 1 / (y * y), t = is_small ? x : 1, above = 0, below = 1;
    UNROLLED for (int k = 0; k < 10; k++) { /* the sum of 1 / (t + k) as one fraction */
        above = above * (t + k) + below;
        below = below * (t + k);
    }
    double series = POLYNOMIAL(z, 3617.0 / 8160, -1.0 / 12, 691.0 / 32760, -1.0 / 132, 1.0 / 240, -1.0 / 252, 1.0 / 120,
                               -1.0 / 12);
    return log_double(y) - 0.5 / y + series * z - (is_small ? above / below : 0);
}

#endif
#endif
