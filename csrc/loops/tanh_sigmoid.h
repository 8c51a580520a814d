/* tanh, and the sigmoid of twice a number, in a form that compilers turn into vectors; errors are below 3 units in the
 * last place. Like loops/exp.h, this must not be compiled with SUMS_IN_ANY_ORDER.
 */
#ifndef UNDERTOW_SIGMOIDS_H
#define UNDERTOW_SIGMOIDS_H

#include "loops/exp.h"

/* near zero, where (1 - e) / (1 + e) would lose digits */
INLINE float
small_tanh_float(float x)
{
    float z = x * x, p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    return p * z * x + x;
}

INLINE double
small_tanh_double(double x)
{
    double z = x * x;
    double p = (-9.64399179425052238628e-1 * z - 9.92877231001918586564e1) * z - 1.61468768441708447952e3;
    double q = ((z + 1.12811678491632931402e2) * z + 2.23548839060100448583e3) * z + 4.84406305325125486048e3;
    return p / q * z * x + x;
}

#define SIGMOIDS(REAL)                                                       \
    INLINE REAL decayed_tanh_##REAL(REAL x)                                  \
    {                                                                        \
        REAL size = x < 0 ? -x : x, e = decay_##REAL(-2 * size);             \
        REAL outer = (1 - e) / (1 + e);                                      \
        outer = x < 0 ? -outer : outer;                                      \
        return size < (REAL)0.625 ? small_tanh_##REAL(x) : outer;            \
    }                                                                        \
    INLINE REAL sigmoid_of_twice_##REAL(REAL x)                              \
    {                                                                        \
        REAL e = decay_##REAL(x < 0 ? 2 * x : -2 * x), inverse = 1 / (1 + e); \
        return x < 0 ? e * inverse : inverse;                                \
    }

SIGMOIDS(float)
SIGMOIDS(double)

#endif
