/* Elementary functions of float and double, in a form that compilers turn into vectors: no branches, no tables.
 *
 * Every function is made of three steps: the argument is brought into a short interval (n * ln 2 is taken from it, its
 * exponent, or n * pi / 2), a polynomial is evaluated there, and the step is undone. The polynomials interpolate the
 * functions at Chebyshev nodes. Infinity, NaN and numbers below the normal range are right; errors are in
 * docs/compiled-core.md, and tests/compiled/test_functions.py measures them.
 *
 * This must not be compiled with SUMS_IN_ANY_ORDER: rounding by adding a large number would be left out. Products may
 * be fused.
 */
#ifndef UNDERTOW_FUNCTIONS_H
#define UNDERTOW_FUNCTIONS_H

#include <float.h>
#include <stdint.h>

#include "loops/compile.h"

#if FLT_EVAL_METHOD == 0 && defined(__GNUC__)
#define HAS_FUNCTIONS 1

#define ROUND_FLOAT 12582912.0f          /* 1.5 * 2^23: the bits behind the point do not fit beside it */
#define ROUND_DOUBLE 6755399441055744.0  /* 1.5 * 2^52 */

INLINE uint32_t
bits_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

INLINE float
of_bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

INLINE uint64_t
bits_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

INLINE double
of_bits_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* 2^n, for whole numbers n within the range of exponents */
INLINE float
power_of_two_float(float n)
{
    return of_bits_float((bits_float(n + ROUND_FLOAT) << 23) + 0x3f800000u);
}

INLINE double
power_of_two_double(double n)
{
    return of_bits_double((bits_double(n + ROUND_DOUBLE) << 52) + 0x3ff0000000000000u);
}

INLINE float
size_float(float x)
{
    return of_bits_float(bits_float(x) & 0x7fffffffu);
}

INLINE double
size_double(double x)
{
    return of_bits_double(bits_double(x) & 0x7fffffffffffffffu);
}

/* |x| with the sign of another */
INLINE float
signed_float(float x, float sign)
{
    return of_bits_float((bits_float(x) & 0x7fffffffu) | (bits_float(sign) & 0x80000000u));
}

INLINE double
signed_double(double x, double sign)
{
    return of_bits_double((bits_double(x) & 0x7fffffffffffffffu) | (bits_double(sign) & 0x8000000000000000u));
}

/* ---- exponentials: x = n * ln 2 + r */

/* e^r - 1 for |r| <= ln 2 / 2 */
INLINE float
small_expm1_float(float r)
{
    float p = 0.00139262512f;
    p = p * r + 0.00836323288f;
    p = p * r + 0.0416665542f;
    p = p * r + 0.166665767f;
    p = p * r + 0.5f;
    return p * r * r + r;
}

INLINE double
small_expm1_double(double r)
{
    double p = 1.60866776667873615e-10;
    p = p * r + 2.09182123191339782e-9;
    p = p * r + 2.5052070959803662e-8;
    p = p * r + 2.75572630773094115e-7;
    p = p * r + 2.75573192473445095e-6;
    p = p * r + 2.4801587336630947e-5;
    p = p * r + 1.98412698412632519e-4;
    p = p * r + 1.38888888888790031e-3;
    p = p * r + 8.33333333333333401e-3;
    p = p * r + 4.16666666666666769e-2;
    p = p * r + 0.166666666666666667;
    p = p * r + 0.5;
    return p * r * r + r;
}

/* x is what is left of it, and the result is n; ln 2 is in two parts, the first of which has few digits */
INLINE float
whole_powers_float(float *x)
{
    float n = (*x * 1.44269504f + ROUND_FLOAT) - ROUND_FLOAT;
    *x = *x - n * 0.693359375f + n * 2.12194440e-4f;
    return n;
}

INLINE double
whole_powers_double(double *x)
{
    double n = (*x * 1.44269504088896340736 + ROUND_DOUBLE) - ROUND_DOUBLE;
    *x = *x - n * 6.93147180369123816490e-01 - n * 1.90821492927058770002e-10;
    return n;
}

/* of the argument, what gives neither 0 nor infinity for certain */
#define LEAST_float -104.0f
#define MOST_float 91.0f
#define LEAST_double -746.0
#define MOST_double 712.0

/* 2^LIFT * LOWER = 1 */
#define LIFT_float 24
#define LOWER_float 5.9604644775390625e-8f
#define LIFT_double 54
#define LOWER_double 5.5511151231257827021181583404541015625e-17

#define EXPONENTIALS(REAL, ROUND)                                                                    \
    /* e^x / 2^less; in two steps, because 2^n may be beyond the range where the result is not */    \
    INLINE REAL scaled_exp_##REAL(REAL x, REAL less)                                                 \
    {                                                                                                \
        x = x < LEAST_##REAL ? LEAST_##REAL : x;                                                     \
        x = x > MOST_##REAL ? MOST_##REAL : x;                                                       \
        REAL n = whole_powers_##REAL(&x) - less, half = (n * (REAL)0.5 + ROUND) - ROUND;             \
        return (small_expm1_##REAL(x) + 1) * power_of_two_##REAL(half) * power_of_two_##REAL(n - half); \
    }                                                                                                \
    /* e^x of what is not above 0: 2^n is too small at most, so one step is always the same */       \
    INLINE REAL decaying_exp_##REAL(REAL x)                                                          \
    {                                                                                                \
        x = x < LEAST_##REAL ? LEAST_##REAL : x;                                                     \
        REAL n = whole_powers_##REAL(&x);                                                            \
        return (small_expm1_##REAL(x) + 1) * power_of_two_##REAL(n + LIFT_##REAL) * LOWER_##REAL;    \
    }                                                                                                \
    INLINE REAL exp_##REAL(REAL x)                                                                   \
    {                                                                                                \
        return scaled_exp_##REAL(x, 0);                                                              \
    }                                                                                                \
    INLINE REAL exp2_##REAL(REAL x)                                                                  \
    {                                                                                                \
        const REAL least = sizeof(REAL) == 4 ? -151 : -1076, most = sizeof(REAL) == 4 ? 129 : 1025;  \
        x = x < least ? least : x;                                                                   \
        x = x > most ? most : x;                                                                     \
        REAL n = (x + ROUND) - ROUND, half = (n * (REAL)0.5 + ROUND) - ROUND;                        \
        REAL value = small_expm1_##REAL((x - n) * (REAL)0.69314718055994530942) + 1;                 \
        return value * power_of_two_##REAL(half) * power_of_two_##REAL(n - half);                    \
    }                                                                                                \
    INLINE REAL expm1_##REAL(REAL x)                                                                 \
    {                                                                                                \
        const REAL most = sizeof(REAL) == 4 ? 89 : 710;                                              \
        REAL r = x < -40 ? -40 : x > most ? most : x;                                                \
        REAL n = whole_powers_##REAL(&r), p = small_expm1_##REAL(r);                                 \
        REAL half = power_of_two_##REAL(n - 1), outer = (p * half + (half - (REAL)0.5)) * 2;         \
        return x == 0 ? x : n == 0 ? p : outer;                                                      \
    }                                                                                                \
    /* 1 / (1 + e^-x) */                                                                             \
    INLINE REAL sigmoid_##REAL(REAL x)                                                               \
    {                                                                                                \
        REAL e = decaying_exp_##REAL(-size_##REAL(x));                                               \
        return (x < 0 ? e : 1) / (1 + e);                                                            \
    }                                                                                                \
    /* half of e^x, so that the sum is within the range where the result is */                       \
    INLINE REAL cosh_##REAL(REAL x)                                                                  \
    {                                                                                                \
        REAL half = scaled_exp_##REAL(size_##REAL(x), 1);                                            \
        return half + (REAL)0.25 / half;                                                             \
    }                                                                                                \
    INLINE REAL sinh_##REAL(REAL x)                                                                  \
    {                                                                                                \
        REAL half = scaled_exp_##REAL(size_##REAL(x), 1), outer = half - (REAL)0.25 / half;          \
        return size_##REAL(x) < 1 ? small_sinh_##REAL(x) : signed_##REAL(outer, x);                  \
    }                                                                                                \
    INLINE REAL tanh_##REAL(REAL x)                                                                  \
    {                                                                                                \
        REAL size = size_##REAL(x);                                                                  \
        REAL outer = 1 - 2 / (exp_##REAL(2 * (size > 20 ? 20 : size)) + 1);                          \
        return signed_##REAL(size < (REAL)0.625 ? small_tanh_##REAL(size) : outer, x);               \
    }

INLINE float
small_sinh_float(float x)
{
    float z = x * x, p = 2.80628026e-6f;
    p = p * z + 1.9838102e-4f;
    p = p * z + 8.33333968e-3f;
    p = p * z + 0.166666666f;
    return p * z * x + x;
}

INLINE double
small_sinh_double(double x)
{
    double z = x * x, p = 2.84452641699285026e-15;
    p = p * z + 7.6466253616565331e-13;
    p = p * z + 1.60590483963505635e-10;
    p = p * z + 2.50521083640580407e-8;
    p = p * z + 2.75573192240403386e-6;
    p = p * z + 1.98412698412697732e-4;
    p = p * z + 8.33333333333333337e-3;
    p = p * z + 0.166666666666666667;
    return p * z * x + x;
}

#include "loops/tanh_sigmoid.h"

EXPONENTIALS(float, ROUND_FLOAT)
EXPONENTIALS(double, ROUND_DOUBLE)

/* ---- logarithms: x = 2^k * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), and log(1 + f) by way of f / (2 + f) */

/* log(1 + f) - f, given s = f / (2 + f) */
INLINE float
bent_log_float(float f, float s)
{
    float z = s * s, half = 0.5f * f * f, p = 0.233304672f;
    p = p * z + 0.285508208f;
    p = p * z + 0.400001218f;
    p = p * z + 0.666666666f;
    return s * (half + p * z) - half;
}

INLINE double
bent_log_double(double f, double s)
{
    double z = s * s, half = 0.5 * f * f, p = 0.130866261478873112;
    p = p * z + 0.132687731386516761;
    p = p * z + 0.153862397028148881;
    p = p * z + 0.181817956401329011;
    p = p * z + 0.222222223917139175;
    p = p * z + 0.285714285708036118;
    p = p * z + 0.40000000000000877;
    p = p * z + 0.666666666666666665;
    return s * (half + p * z) - half;
}

#define LN2_HIGH_float 0.693145751953125f
#define LN2_LOW_float 1.42860677e-6f
#define LN2_HIGH_double 6.93147180369123816490e-01
#define LN2_LOW_double 1.90821492927058770002e-10

/* k, of a positive number; f is what is left of it */
INLINE float
exponent_float(float x, float *f)
{
    float lift = x < FLT_MIN ? 25.0f : 0.0f; /* into the normal range */
    x = x < FLT_MIN ? x * 33554432.0f : x;
    uint32_t bits = bits_float(x) + (0x3f800000u - 0x3f3504f3u);
    *f = of_bits_float((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    return (float)((int32_t)(bits >> 23) - 127) - lift;
}

INLINE double
exponent_double(double x, double *f)
{
    double lift = x < DBL_MIN ? 54.0 : 0.0;
    x = x < DBL_MIN ? x * 18014398509481984.0 : x;
    uint64_t bits = bits_double(x) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
    *f = of_bits_double((bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0;
    return of_bits_double((bits >> 52) | 0x4330000000000000u) - 4503599627370496.0 - 1023.0 - lift;
}

#define LOGARITHMS(REAL)                                                                             \
    /* a logarithm, or what it is where there is none */                                             \
    INLINE REAL defined_log_##REAL(REAL value, REAL x)                                               \
    {                                                                                                \
        REAL edge = x == 0 ? -(REAL)INFINITY : (REAL)NAN;                                            \
        value = x > 0 ? value : edge;                                                                \
        return x < (REAL)INFINITY ? value : x;                                                       \
    }                                                                                                \
    INLINE REAL log_##REAL(REAL x)                                                                   \
    {                                                                                                \
        REAL f, k = exponent_##REAL(x, &f), s = f / (2 + f);                                         \
        REAL low = bent_log_##REAL(f, s) + k * LN2_LOW_##REAL;                                       \
        return defined_log_##REAL(k * LN2_HIGH_##REAL + (low + f), x);                               \
    }                                                                                                \
    INLINE REAL log2_##REAL(REAL x)                                                                  \
    {                                                                                                \
        REAL f, k = exponent_##REAL(x, &f), s = f / (2 + f);                                         \
        return defined_log_##REAL(k + (bent_log_##REAL(f, s) + f) * (REAL)1.44269504088896340736, x); \
    }                                                                                                \
    /* `lost` is what was rounded off when 1 was added, measured in 2^k */                           \
    INLINE REAL log1p_##REAL(REAL x)                                                                 \
    {                                                                                                \
        REAL sum = 1 + x, rest = x > 1 ? 1 - (sum - x) : x - (sum - 1);                              \
        REAL f, k = exponent_##REAL(sum, &f);                                                        \
        int is_near = x > (REAL)-0.29 && x < (REAL)0.41;                                             \
        REAL lost = rest * power_of_two_##REAL(k > MOST_EXPONENT_##REAL ? 0 : -k) * (1 - f);         \
        f = is_near ? x : f;                                                                         \
        k = is_near ? 0 : k;                                                                         \
        lost = is_near || k > MOST_EXPONENT_##REAL ? 0 : lost;                                       \
        REAL s = f / (2 + f), low = bent_log_##REAL(f, s) + (k * LN2_LOW_##REAL + lost);             \
        REAL value = defined_log_##REAL(k * LN2_HIGH_##REAL + (low + f), sum);                       \
        return x == 0 ? x : value;                                                                   \
    }

#define MOST_EXPONENT_float 60
#define MOST_EXPONENT_double 120

LOGARITHMS(float)
LOGARITHMS(double)

/* log(1 + e^x), by way of e^-|x|, which is between 0 and 1: of the sum, half is taken if that is nearer to 1 */
#define SOFTPLUS(REAL)                                                                               \
    INLINE REAL log1p_of_exp_##REAL(REAL x)                                                          \
    {                                                                                                \
        REAL e = decaying_exp_##REAL(-size_##REAL(x)), halves = e < (REAL)0.41 ? 0 : 1;              \
        REAL f = e < (REAL)0.41 ? e : (e - 1) * (REAL)0.5, s = f / (2 + f);                          \
        REAL low = bent_log_##REAL(f, s) + halves * LN2_LOW_##REAL;                                  \
        return (x > 0 ? x : 0) + (halves * LN2_HIGH_##REAL + (low + f));                             \
    }                                                                                                \
    /* 1, -1 or 0, which it also is of NaN */                                                        \
    INLINE REAL direction_##REAL(REAL x)                                                             \
    {                                                                                                \
        return (REAL)(x > 0) - (REAL)(x < 0);                                                        \
    }

SOFTPLUS(float)
SOFTPLUS(double)

/* ---- trigonometric functions: x = n * pi / 2 + r */

/* Beyond, somebody else has to compute them. */
#define FARTHEST_float 100000.0f
#define FARTHEST_double 100000.0

INLINE float
sine_float(float r)
{
    float z = r * r, p = 2.72493141e-6f;
    p = p * z - 1.9840082e-4f;
    p = p * z + 8.33333187e-3f;
    p = p * z - 0.166666667f;
    return p * z * r + r;
}

INLINE float
cosine_float(float r)
{
    float z = r * r, p = -2.73004486e-7f;
    p = p * z + 2.48005964e-5f;
    p = p * z - 1.38888877e-3f;
    p = p * z + 4.16666667e-2f;
    return p * z * z + (1.0f - 0.5f * z);
}

INLINE double
sine_double(double r)
{
    double z = r * r, p = -7.58657658816129883e-13;
    p = p * z + 1.605852957226768e-10;
    p = p * z - 2.50521062195218927e-8;
    p = p * z + 2.75573192193019187e-6;
    p = p * z - 1.9841269841265017e-4;
    p = p * z + 8.33333333333333147e-3;
    p = p * z - 0.166666666666666667;
    return p * z * r + r;
}

INLINE double
cosine_double(double r)
{
    double z = r * r, p = -1.13824567780470612e-11;
    p = p * z + 2.08761438279928904e-9;
    p = p * z - 2.75573172600088367e-7;
    p = p * z + 2.48015872987430693e-5;
    p = p * z - 1.38888888888873823e-3;
    p = p * z + 4.16666666666666654e-2;
    double half = 0.5 * z, one = 1.0 - half; /* and what was rounded off it */
    return one + (((1.0 - one) - half) + p * z * z);
}

/* r, and n in the lowest bits of `turns`; in double, pi / 2 in three parts, the first two of which have 33 digits */
INLINE double
turned_double(double x, uint64_t *turns)
{
    double sum = x * 0.636619772367581343 + ROUND_DOUBLE, n = sum - ROUND_DOUBLE;
    *turns = bits_double(sum);
    return ((x - n * 1.57079632673412561417) - n * 6.07710050630396597660e-11) - n * 2.02226624879595063154e-21;
}

INLINE float
turned_float(float x, uint32_t *turns)
{
    float n = (x * 0.636619772f + ROUND_FLOAT) - ROUND_FLOAT;
    *turns = bits_float(n + ROUND_FLOAT);
    double wide = n;
    return (float)((x - wide * 1.57079632673412561417) - wide * 6.07710050630396597660e-11);
}

/* a quarter of a turn exchanges sine and cosine, half a turn changes the sign */
#define WAVES(REAL, BITS, SHIFT)                                                                     \
    INLINE REAL wave_##REAL(REAL x, BITS quarters)                                                   \
    {                                                                                                \
        BITS turns;                                                                                  \
        REAL r = turned_##REAL(x, &turns);                                                           \
        turns += quarters;                                                                           \
        REAL value = turns & 1 ? cosine_##REAL(r) : sine_##REAL(r);                                  \
        return of_bits_##REAL(bits_##REAL(value) ^ ((turns & 2) << SHIFT));                          \
    }                                                                                                \
    INLINE REAL sin_##REAL(REAL x)                                                                   \
    {                                                                                                \
        return x == 0 ? x : wave_##REAL(x, 0);                                                       \
    }                                                                                                \
    INLINE REAL cos_##REAL(REAL x)                                                                   \
    {                                                                                                \
        return wave_##REAL(x, 1);                                                                    \
    }

WAVES(float, uint32_t, 30)
WAVES(double, uint64_t, 62)

/* ---- arctan: above 1 by way of 1 / x, and above tan(pi / 8) by way of (t - 1) / (t + 1) */

INLINE float
small_arctan_float(float t)
{
    float z = t * t, p = -0.0644983522f;
    p = p * z + 0.107430997f;
    p = p * z - 0.142638971f;
    p = p * z + 0.199995388f;
    p = p * z - 0.333333318f;
    return p * z * t + t;
}

INLINE double
small_arctan_double(double t)
{
    double z = t * t, p = 0.0162719447429611957;
    p = p * z - 0.0345580925428452283;
    p = p * z + 0.0455110812595662053;
    p = p * z - 0.0523034787292569987;
    p = p * z + 0.0587891454438670395;
    p = p * z - 0.0666642362806785983;
    p = p * z + 0.0769229630497437802;
    p = p * z - 0.0909090875107663198;
    p = p * z + 0.11111111105106705;
    p = p * z - 0.142857142856593273;
    p = p * z + 0.199999999999998025;
    p = p * z - 0.333333333333333332;
    return p * z * t + t;
}

/* one quotient does for both: (t - 1) / (t + 1) of 1 / x is (1 - x) / (1 + x) */
#define ARCTAN(REAL)                                                                                 \
    INLINE REAL arctan_##REAL(REAL x)                                                                \
    {                                                                                                \
        const REAL corner = (REAL)0.41421356237309503, eighth = (REAL)0.78539816339744831;           \
        REAL size = size_##REAL(x);                                                                  \
        int is_far = size > 1, is_middle = size > corner && size * corner < 1;                       \
        REAL above = is_middle ? (is_far ? 1 - size : size - 1) : is_far ? 1 : size;                 \
        REAL below = is_middle ? size + 1 : is_far ? size : 1;                                       \
        REAL value = small_arctan_##REAL(above / below);                                             \
        value = is_middle ? eighth + value : value;                                                  \
        value = is_far ? 2 * eighth - value : value;                                                 \
        return signed_##REAL(value, x);                                                              \
    }

ARCTAN(float)
ARCTAN(double)

/* ---- erf: near zero a polynomial, and 1 - e^(-x x + p(x)) beyond */

INLINE float
erf_float(float x)
{
    float size = size_float(x), z = x * x, far = size > 4.0f ? 4.0f : size;
    float p = -9.66704457e-6f;
    p = p * z + 1.1265959e-4f;
    p = p * z - 8.48408041e-4f;
    p = p * z + 5.22103181e-3f;
    p = p * z - 0.0268654307f;
    p = p * z + 0.112837825f;
    p = p * z - 0.376126385f;
    p = p * z + 1.12837917f;
    float q = 1.64306366e-6f;
    q = q * far - 4.61638586e-5f;
    q = q * far + 5.9758577e-4f;
    q = q * far - 4.76262583e-3f;
    q = q * far + 0.0264276372f;
    q = q * far - 0.110087166f;
    q = q * far + 0.368176082f;
    q = q * far - 1.13023106f;
    q = q * far + 3.18539662e-4f;
    float outer = 1.0f - exp_float(q - far * far);
    return size < 1.0f ? p * x : signed_float(outer, x);
}

INLINE double
erf_double(double x)
{
    double size = size_double(x), z = x * x, far = size > 6 ? 6 : size;
    double p = 5.94525558422348744e-11;
    p = p * z - 1.13656706718271593e-9;
    p = p * z + 1.46578835309196535e-8;
    p = p * z - 1.63500261920772685e-7;
    p = p * z + 1.64609729541537657e-6;
    p = p * z - 1.49255935187282267e-5;
    p = p * z + 1.20553310375511081e-4;
    p = p * z - 8.54832697876514882e-4;
    p = p * z + 5.22397762478136979e-3;
    p = p * z - 0.0268661706450729592;
    p = p * z + 0.112837916709548579;
    p = p * z - 0.376126389031837476;
    p = p * z + 1.12837916709551257;
    double q = -4.86493936075202247e-12;
    q = q * far + 2.02028582551201362e-10;
    q = q * far - 3.88992052456773827e-9;
    q = q * far + 4.59322854267384142e-8;
    q = q * far - 3.69559034575268786e-7;
    q = q * far + 2.11476724968835968e-6;
    q = q * far - 8.57865352991734421e-6;
    q = q * far + 2.25324771599145672e-5;
    q = q * far - 1.95218596827232601e-5;
    q = q * far - 1.3655804223341625e-4;
    q = q * far + 7.73049102486955354e-4;
    q = q * far - 1.91895303263902861e-3;
    q = q * far + 4.13543654655590126e-4;
    q = q * far + 0.0189880368774647719;
    q = q * far - 0.102702287041034235;
    q = q * far + 0.363355943880868249;
    q = q * far - 1.12837399147836758;
    q = q * far - 5.13266140530212784e-7;
    double outer = 1 - decaying_exp_double(q - far * far);
    return size < 1 ? p * x : signed_double(outer, x);
}

INLINE float
sqrt_float(float x)
{
    return sqrtf(x);
}

INLINE double
sqrt_double(double x)
{
    return sqrt(x);
}

/* ---- powers of positive numbers, in double */

INLINE float
pow_float(float x, float y)
{
    return (float)exp_double((double)y * log_double((double)x));
}

#endif
#endif
