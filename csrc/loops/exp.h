/* exp, in a form that compilers turn into vectors: 2^n * e^r, where n is a whole number and r is small. The error is
 * below 1.5 units in the last place. It is made for numbers that are not above zero: results below e^-87 (e^-708 in
 * double precision) are 0, and above e^88.3 (e^709) infinite.
 * This must not be compiled with SUMS_IN_ANY_ORDER: its rounding, by adding a large number, would be left out.
 */
#ifndef UNDERTOW_EXPONENTIAL_H
#define UNDERTOW_EXPONENTIAL_H

#include <float.h>
#include <stdint.h>

#include "loops/compile.h"

#define ROUNDING 12582912.0f /* 1.5 * 2^23: the bits behind the point do not fit beside it */

INLINE float
decay_float(float x)
{
#if FLT_EVAL_METHOD != 0
    return expf(x);
#else
    float sum = x * 1.44269504f + ROUNDING, n = sum - ROUNDING, power;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f; /* ln 2 in two parts, the first of which has few digits */
    float p = 0.0013748823f;
    p = p * r + 0.0083696283f;
    p = p * r + 0.0416696444f;
    p = p * r + 0.166665122f;
    p = p * r + 0.499999881f;
    uint32_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    bits = (bits << 23) + 0x3f800000u; /* n, moved to where a number has its exponent */
    memcpy(&power, &bits, sizeof(power));
    float value = (p * r * r + r + 1.0f) * power;
    value = x > 88.3f ? INFINITY : value;
    return x < -87.0f ? 0.0f : value;
#endif
}

INLINE double
decay_double(double x)
{
#if FLT_EVAL_METHOD != 0
    return exp(x);
#else
    const double rounding = 6755399441055744.0; /* 1.5 * 2^52 */
    double sum = x * 1.44269504088896340736 + rounding, n = sum - rounding, power;
    double r = x - n * 6.93147180369123816490e-01 - n * 1.90821492927058770002e-10;
    double p = 1 / 6227020800.0; /* 1 / 13! */
    p = p * r + 1 / 479001600.0;
    p = p * r + 1 / 39916800.0;
    p = p * r + 1 / 3628800.0;
    p = p * r + 1 / 362880.0;
    p = p * r + 1 / 40320.0;
    p = p * r + 1 / 5040.0;
    p = p * r + 1 / 720.0;
    p = p * r + 1 / 120.0;
    p = p * r + 1 / 24.0;
    p = p * r + 1 / 6.0;
    p = p * r + 0.5;
    uint64_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    bits = (bits << 52) + 0x3ff0000000000000u;
    memcpy(&power, &bits, sizeof(power));
    double value = (p * r * r + r + 1) * power;
    value = x > 709 ? INFINITY : value;
    return x < -708 ? 0 : value;
#endif
}

#endif
