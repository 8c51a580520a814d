/* Logarithms, sines and cosines of float for loops that compilers turn into vectors: no branches, no tables. Errors are
 * below two units in the last place.
 */
#ifndef UNDERTOW_LOG_SINCOS_H
#define UNDERTOW_LOG_SINCOS_H

#include <stdint.h>
#include <string.h>

/* log(x) of a normal, positive x: its exponent, and 2 atanh(s) of a fraction between sqrt(1/2) and sqrt(2) */
INLINE float
log_of_normal(float x)
{
    int32_t bits, exponent;
    float fraction;
    memcpy(&bits, &x, sizeof(bits));
    exponent = (bits - 0x3f3504f3) >> 23;
    bits -= exponent << 23;
    memcpy(&fraction, &bits, sizeof(fraction));
    float s = (fraction - 1) / (fraction + 1), z = s * s, e = (float)exponent;
    float series = z * (1.0f / 3 + z * (1.0f / 5 + z * (1.0f / 7 + z * (1.0f / 9))));
    return e * 0.693359375f + (2 * s + (2 * s * series - e * 2.12194440e-4f)); /* log(2) in two parts */
}

/* sin(x) and cos(x) for 0 <= x <= 7, by the distance from the nearest multiple of pi / 2 */
INLINE void
sin_and_cos(float x, float *sine, float *cosine)
{
    int32_t quarters = (int32_t)(x * 0.636619772f + 0.5f);
    float q = (float)quarters;
    float r = (x - q * 1.5703125f) - q * 4.83826794897e-4f; /* pi / 2 in two parts, the first exact times q */
    float z = r * r;
    float s = r + r * z * (-1.0f / 6 + z * (1.0f / 120 + z * (-1.0f / 5040 + z * (1.0f / 362880))));
    float c = 1 + z * (-0.5f + z * (1.0f / 24 + z * (-1.0f / 720 + z * (1.0f / 40320 - z * (1.0f / 3628800)))));
    float odd = (float)(quarters & 1), even = 1 - odd;
    float sign_of_sine = (float)(1 - (quarters & 2)), sign_of_cosine = (float)(1 - ((quarters + 1) & 2));
    *sine = sign_of_sine * (even * s + odd * c);
    *cosine = sign_of_cosine * (even * c + odd * s);
}

#endif
