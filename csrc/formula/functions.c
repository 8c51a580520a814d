/* See functions.h. A value does not depend on its place: what does not fill the last vector is computed in one, too.
 *
 * Vectors compute all branches of a function, so what the processor notes of them means nothing, and is taken back. If
 * a result is not finite, all are looked at: infinity of a finite number is an overflow, or a division by zero at a pole,
 * and NaN of a number is invalid, as NumPy reports them.
 */
#define PY_UFUNC_UNIQUE_SYMBOL UNDERTOW_UFUNC_API
#include "formula/functions.h"

#include <fenv.h>
#include <numpy/ufuncobject.h>

#define FUSED_PRODUCTS
#include "loops/functions.h"

#define AT_ONCE 512
#define VECTOR 32 /* numbers; of which all vectors of all processors are a part */

#ifdef HAS_FUNCTIONS

/* ---- contiguous loops, for multiples of VECTOR numbers; whether all results are finite */

#define LOOP(NAME, REAL, BITS)                                                                              \
    CLONES static int NAME##_values_##REAL(const REAL *x, REAL *out, npy_intp count)                        \
    {                                                                                                       \
        BITS odd = 0; /* whose highest bit is set by exponents that only infinity and NaN have */           \
        count &= ~(npy_intp)(VECTOR - 1);                                                                   \
        _Pragma("GCC ivdep") for (npy_intp k = 0; k < count; k++)                                           \
        {                                                                                                   \
            REAL value = NAME##_##REAL(x[k]);                                                               \
            odd |= (bits_##REAL(value) & ((BITS)-1 >> 1)) + ((BITS)1 << (sizeof(REAL) == 4 ? 23 : 52));     \
            out[k] = value;                                                                                 \
        }                                                                                                   \
        return odd >> (8 * sizeof(REAL) - 1) == 0;                                                          \
    }

#define LOOPS(NAME) LOOP(NAME, float, uint32_t) LOOP(NAME, double, uint64_t)

LOOPS(exp)
LOOPS(expm1)
LOOPS(sigmoid)
LOOPS(cosh)
LOOPS(sinh)
LOOPS(tanh)
LOOPS(log)
LOOPS(log2)
LOOPS(log1p)
LOOPS(log1p_of_exp)
LOOPS(direction)
LOOPS(sin)
LOOPS(cos)
LOOPS(arctan)
LOOPS(erf)
LOOPS(exp2)
LOOPS(sqrt) /* NumPy's takes three times as long where vectors are of 64 bytes */

/* Whether pow_float has nothing to do with it: what is no number, and roots and the like of zero. */
INLINE int
is_no_power(float x, float y)
{
    int is_between = y != floorf(y), is_number = x < 0 && x > -INFINITY;
    return is_between & (is_number | ((x == 0) & (y > 0)));
}

CLONES static void
power_values_float(const float *x, const float *y, float *out, npy_intp count)
{
    count &= ~(npy_intp)(VECTOR - 1);
    _Pragma("GCC ivdep") for (npy_intp k = 0; k < count; k++)
    {
        out[k] = pow_float(x[k], y[k]);
    }
}

/* Mend what is no power; whether all of them are right then. */
CLONES static int
mend_powers_float(const float *x, const float *y, float *out, npy_intp count)
{
    int wrong = 0;
    _Pragma("GCC ivdep") for (npy_intp k = 0; k < count; k++)
    {
        int no_power = is_no_power(x[k], y[k]);
        wrong |= !no_power & !((x[k] > 0) & (x[k] < INFINITY) & (fabsf(out[k]) < INFINITY));
        out[k] = no_power ? (x[k] < 0 ? NAN : 0) : out[k];
    }
    return !wrong;
}

/* ---- what NumPy's loops are */

typedef struct {
    const char *name;
    int (*singles)(const float *, float *, npy_intp);
    int (*doubles)(const double *, double *, npy_intp);
    float (*far_single)(float); /* beyond FARTHEST */
    double (*far_double)(double);
    int has_pole; /* where infinity of a finite number is a division by zero */
    float nanoseconds[2];
    int left_to_avx512; /* which makes NumPy's loop much faster than ours, and a value does not depend on its place there */
} Function;

static const Function known[] = {{"exp", exp_values_float, exp_values_double, .nanoseconds = {0.5, 1.4}},
                                 {"expm1", expm1_values_float, expm1_values_double, .nanoseconds = {0.7, 1.5}},
                                 {"logistic", sigmoid_values_float, sigmoid_values_double, .nanoseconds = {0.7, 1.5}},
                                 {"cosh", cosh_values_float, cosh_values_double, .nanoseconds = {0.6, 1.3}},
                                 {"sinh", sinh_values_float, sinh_values_double, .nanoseconds = {0.7, 1.7}},
                                 {"tanh", tanh_values_float, tanh_values_double, .nanoseconds = {0.8, 2.0},
                                  .left_to_avx512 = 1},
                                 {"log", log_values_float, log_values_double, NULL, NULL, 1, {0.7, 1.5}},
                                 {"log2", log2_values_float, log2_values_double, NULL, NULL, 1, {0.7, 1.5}},
                                 {"log1p", log1p_values_float, log1p_values_double, NULL, NULL, 1, {0.9, 1.7}},
                                 {"log1p_of_exp", log1p_of_exp_values_float, log1p_of_exp_values_double,
                                  .nanoseconds = {1.0, 2.5}},
                                 {"direction", direction_values_float, direction_values_double,
                                  .nanoseconds = {0.15, 0.3}},
                                 {"sin", sin_values_float, sin_values_double, sinf, sin, 0, {0.8, 1.2}},
                                 {"cos", cos_values_float, cos_values_double, cosf, cos, 0, {0.8, 1.2}},
                                 {"arctan", arctan_values_float, arctan_values_double, .nanoseconds = {0.7, 1.5}},
                                 {"error_function", erf_values_float, erf_values_double, .nanoseconds = {1.2, 2.5}},
                                 {"exp2", exp2_values_float, exp2_values_double, .nanoseconds = {0.5, 1.4}},
                                 {"sqrt", sqrt_values_float, sqrt_values_double, .nanoseconds = {0.2, 0.5}}};

#define KNOWN ((int)(sizeof(known) / sizeof(known[0])))

/* Forget what was noted since `noted` was. */
static void
take_back(int noted)
{
    if (exceptions_noted() != noted) {
        forget_exceptions();
        if (noted) {
            feraiseexcept(noted);
        }
    }
}

/* Say of the results what the processor would have said of a plain computation. */
#define NOTE(REAL)                                                                                           \
    static void note_##REAL(const Function *function, const REAL *x, const REAL *out, npy_intp count)        \
    {                                                                                                        \
        int found = 0;                                                                                       \
        for (npy_intp k = 0; k < count; k++) {                                                               \
            if (isnan(out[k])) {                                                                             \
                found |= isnan(x[k]) ? 0 : FE_INVALID;                                                       \
            }                                                                                                \
            else if (isinf(out[k]) && isfinite(x[k])) {                                                      \
                found |= function->has_pole ? FE_DIVBYZERO : FE_OVERFLOW;                                    \
            }                                                                                                \
        }                                                                                                    \
        if (found) {                                                                                         \
            feraiseexcept(found);                                                                            \
        }                                                                                                    \
    }

NOTE(float)
NOTE(double)

/* `count` values; `out` may be `x`. Both have room for whole vectors. */
#define STRETCH(REAL, BITS, values, far)                                                                     \
    INLINE int is_far_##REAL(REAL x) /* by its bits: a comparison with NaN would be noted */                 \
    {                                                                                                        \
        return (BITS)bits_##REAL(size_##REAL(x)) > (BITS)bits_##REAL(FARTHEST_##REAL);                       \
    }                                                                                                        \
    static int are_near_##REAL(const REAL *x, npy_intp count)                                                \
    {                                                                                                        \
        int found = 0;                                                                                       \
        for (npy_intp k = 0; k < count; k++) {                                                               \
            found |= is_far_##REAL(x[k]);                                                                    \
        }                                                                                                    \
        return !found;                                                                                       \
    }                                                                                                        \
    static void stretch_##REAL(const Function *function, const REAL *x, REAL *out, npy_intp count)           \
    {                                                                                                        \
        REAL copy[AT_ONCE];                                                                                  \
        const REAL *before = x != out ? x : memcpy(copy, x, count * sizeof(REAL));                           \
        int noted = exceptions_noted();                                                                      \
        int is_finite = function->values(x, out, (count + VECTOR - 1) & ~(npy_intp)(VECTOR - 1));            \
        take_back(noted);                                                                                    \
        if (function->far != NULL && !are_near_##REAL(before, count)) {                                      \
            for (npy_intp k = 0; k < count; k++) {                                                           \
                out[k] = is_far_##REAL(before[k]) ? function->far(before[k]) : out[k];                       \
            }                                                                                                \
        }                                                                                                    \
        if (!is_finite) {                                                                                    \
            note_##REAL(function, before, out, count);                                                       \
        }                                                                                                    \
    }                                                                                                        \
    static void loop_##REAL(char **args, const npy_intp *dimensions, const npy_intp *strides, void *data)    \
    {                                                                                                        \
        const Function *function = data;                                                                     \
        REAL some[AT_ONCE];                                                                                  \
        int is_plain = strides[0] == sizeof(REAL) && strides[1] == sizeof(REAL);                             \
        for (npy_intp start = 0; start < dimensions[0]; start += AT_ONCE) {                                  \
            npy_intp count = dimensions[0] - start < AT_ONCE ? dimensions[0] - start : AT_ONCE;              \
            const char *from = args[0] + start * strides[0];                                                 \
            char *to = args[1] + start * strides[1];                                                         \
            if (is_plain && count % VECTOR == 0) {                                                           \
                stretch_##REAL(function, (const REAL *)from, (REAL *)to, count);                             \
                continue;                                                                                    \
            }                                                                                                \
            for (npy_intp k = 0; k < count; k++) {                                                           \
                some[k] = *(const REAL *)(from + k * strides[0]);                                            \
            }                                                                                                \
            for (npy_intp k = count; k % VECTOR; k++) {                                                      \
                some[k] = 1;                                                                                 \
            }                                                                                                \
            stretch_##REAL(function, some, some, count);                                                     \
            for (npy_intp k = 0; k < count; k++) {                                                           \
                *(REAL *)(to + k * strides[1]) = some[k];                                                    \
            }                                                                                                \
        }                                                                                                    \
    }

STRETCH(float, int32_t, singles, far_single)
STRETCH(double, int64_t, doubles, far_double)

typedef struct {
    PyUFuncGenericFunction loop;
    void *data;
} Theirs;

/* Whether a function of two numbers would write what it reads later: as reductions and accumulations do. */
static int
depends_on_itself(char **args, const npy_intp *dimensions, const npy_intp *strides)
{
    npy_intp length = *dimensions - 1, step = strides[2];
    const char *low = step < 0 ? args[2] + length * step : args[2];
    const char *high = step < 0 ? args[2] : args[2] + length * step;
    for (int k = 0; k < 2; k++) {
        const char *first = strides[k] < 0 ? args[k] + length * strides[k] : args[k];
        const char *last = strides[k] < 0 ? args[k] : args[k] + length * strides[k];
        if (first <= high && low <= last && !(args[k] == args[2] && strides[k] == step)) {
            return 1;
        }
    }
    return step == 0;
}

/* NumPy's own loop. */
static void
run_theirs(char **args, const npy_intp *dimensions, const npy_intp *strides, void *data)
{
    const Theirs *theirs = data;
    theirs->loop(args, dimensions, strides, theirs->data);
}

/* ---- powers */

#define FEW_FACTORS_float 8 /* multiplied in double precision, and rounded once */
#define FEW_FACTORS_double 4
#define FEWER_BELOW_float 8 /* if it is the reciprocal that is wanted */
#define FEWER_BELOW_double 2

/* x to a whole power from 1 to 8, or its reciprocal; to 0 for the root */
#define RAISE(REAL, ROOT)                                                                                   \
    INLINE void raise_to_##REAL(const REAL *x, REAL *out, npy_intp count, const int n, const int below)     \
    {                                                                                                       \
        for (npy_intp k = 0; k < count; k++) {                                                              \
            double a = x[k], b = a * a, c = b * b, found = n & 1 ? a : 1;                                   \
            found = n & 2 ? found * b : found;                                                              \
            found = n == 8 ? c * c : n & 4 ? found * c : found;                                             \
            found = n == 0 ? ROOT(x[k] + 0) : found; /* of +0, if it is -0 */                               \
            out[k] = below ? (n <= 2 ? 1 / (REAL)found : (REAL)(1 / found)) : (REAL)found;                  \
        }                                                                                                   \
    }                                                                                                       \
                                                                                                            \
    CLONES static void raise_##REAL(const REAL *x, REAL *out, npy_intp count, double exponent)              \
    {                                                                                                       \
        int below = exponent < 0, n = (int)fabs(exponent); /* 0 for a half */                               \
        switch (2 * n + below) {                                                                            \
            RAISE_CASES(REAL)                                                                               \
        }                                                                                                   \
    }                                                                                                       \
                                                                                                            \
    static int is_raised_##REAL(double exponent)                                                            \
    {                                                                                                       \
        double most = exponent < 0 ? FEWER_BELOW_##REAL : FEW_FACTORS_##REAL, n = fabs(exponent);           \
        return n == 0.5 || (n == floor(n) && n >= 1 && n <= most);                                          \
    }

#define RAISE_CASE(REAL, N)                              \
    case 2 * N: raise_to_##REAL(x, out, count, N, 0); return; \
    case 2 * N + 1: raise_to_##REAL(x, out, count, N, 1); return;
#define RAISE_CASES(REAL)                                                                       \
    RAISE_CASE(REAL, 0) RAISE_CASE(REAL, 1) RAISE_CASE(REAL, 2) RAISE_CASE(REAL, 3) RAISE_CASE(REAL, 4) \
    RAISE_CASE(REAL, 5) RAISE_CASE(REAL, 6) RAISE_CASE(REAL, 7) RAISE_CASE(REAL, 8)

RAISE(float, sqrtf)
RAISE(double, sqrt)

/* All powers with one exponent for which a few multiplications or a root are enough; whether that was done. */
#define RAISE_ALL(REAL)                                                                                     \
    static int raise_all_##REAL(char **args, const npy_intp *dimensions, const npy_intp *strides)           \
    {                                                                                                       \
        REAL x[AT_ONCE], out[AT_ONCE];                                                                      \
        if (dimensions[0] < 1 || strides[1] != 0 || !is_raised_##REAL(*(const REAL *)args[1])) {            \
            return 0;                                                                                       \
        }                                                                                                   \
        double exponent = *(const REAL *)args[1];                                                           \
        for (npy_intp start = 0; start < dimensions[0]; start += AT_ONCE) {                                 \
            npy_intp count = dimensions[0] - start < AT_ONCE ? dimensions[0] - start : AT_ONCE;             \
            for (npy_intp k = 0; k < count; k++) {                                                          \
                x[k] = *(const REAL *)(args[0] + (start + k) * strides[0]);                                 \
            }                                                                                               \
            raise_##REAL(x, out, count, exponent);                                                          \
            for (npy_intp k = 0; k < count; k++) {                                                          \
                *(REAL *)(args[2] + (start + k) * strides[2]) = out[k];                                     \
            }                                                                                               \
        }                                                                                                   \
        return 1;                                                                                           \
    }

RAISE_ALL(float)
RAISE_ALL(double)

static void
loop_power_double(char **args, const npy_intp *dimensions, const npy_intp *strides, void *data)
{
    if (depends_on_itself(args, dimensions, strides) || !raise_all_double(args, dimensions, strides)) {
        run_theirs(args, dimensions, strides, data);
    }
}

static void
loop_power_float(char **args, const npy_intp *dimensions, const npy_intp *strides, void *data)
{
    float x[AT_ONCE], y[AT_ONCE], out[AT_ONCE];
    if (depends_on_itself(args, dimensions, strides)) {
        run_theirs(args, dimensions, strides, data);
        return;
    }
    if (raise_all_float(args, dimensions, strides)) {
        return;
    }
    for (npy_intp start = 0; start < dimensions[0]; start += AT_ONCE) {
        npy_intp count = dimensions[0] - start < AT_ONCE ? dimensions[0] - start : AT_ONCE;
        int noted = exceptions_noted();
        for (npy_intp k = 0; k < count; k++) {
            x[k] = *(const float *)(args[0] + (start + k) * strides[0]);
            y[k] = *(const float *)(args[1] + (start + k) * strides[1]);
        }
        for (npy_intp k = count; k % VECTOR; k++) {
            x[k] = y[k] = 1;
        }
        power_values_float(x, y, out, (count + VECTOR - 1) & ~(npy_intp)(VECTOR - 1));
        if (!mend_powers_float(x, y, out, count)) {
            take_back(noted);
            for (npy_intp k = 0; k < count; k++) {
                if (!is_no_power(x[k], y[k]) && !(x[k] > 0 && x[k] < INFINITY && out[k] - out[k] == 0)) {
                    out[k] = powf(x[k], y[k]);
                }
            }
        }
        for (npy_intp k = 0; k < count; k++) {
            *(float *)(args[2] + (start + k) * strides[2]) = out[k];
        }
    }
}

/* ---- the larger and the smaller; NumPy's own loops have no vectors for an array and a number */

#define EXTREME(NAME, REAL, WINS)                                                                            \
    CLONES static void NAME##_values_##REAL(const REAL *x, const REAL *y, REAL *out, npy_intp count, int kind) \
    {                                                                                                        \
        const REAL a = *x, b = *y;                                                                           \
        if (kind == 0) {                                                                                     \
            _Pragma("GCC ivdep") for (npy_intp k = 0; k < count; k++)                                        \
            {                                                                                                \
                out[k] = x[k] WINS y[k] || x[k] != x[k] ? x[k] : y[k];                                       \
            }                                                                                                \
        }                                                                                                    \
        else if (kind == 1) {                                                                                \
            _Pragma("GCC ivdep") for (npy_intp k = 0; k < count; k++)                                        \
            {                                                                                                \
                out[k] = x[k] WINS b || x[k] != x[k] ? x[k] : b;                                             \
            }                                                                                                \
        }                                                                                                    \
        else {                                                                                               \
            _Pragma("GCC ivdep") for (npy_intp k = 0; k < count; k++)                                        \
            {                                                                                                \
                out[k] = a WINS y[k] || a != a ? a : y[k];                                                   \
            }                                                                                                \
        }                                                                                                    \
    }                                                                                                        \
    static void NAME##_loop_##REAL(char **args, const npy_intp *dimensions, const npy_intp *strides, void *data) \
    {                                                                                                        \
        const npy_intp size = sizeof(REAL);                                                                  \
        int kind = strides[2] != size                           ? -1                                         \
                   : strides[0] == size && strides[1] == size ? 0                                            \
                   : strides[0] == size && strides[1] == 0    ? 1                                            \
                   : strides[0] == 0 && strides[1] == size    ? 2                                            \
                                                              : -1;                                          \
        if (kind < 0 || depends_on_itself(args, dimensions, strides)) {                                      \
            run_theirs(args, dimensions, strides, data);                                                     \
            return;                                                                                          \
        }                                                                                                    \
        int noted = exceptions_noted(); /* comparisons with NaN are */                                       \
        NAME##_values_##REAL((const REAL *)args[0], (const REAL *)args[1], (REAL *)args[2], *dimensions, kind); \
        take_back(noted);                                                                                    \
    }

EXTREME(maximum, float, >=)
EXTREME(maximum, double, >=)
EXTREME(minimum, float, <=)
EXTREME(minimum, double, <=)

/* ---- remainders and whole quotients, as NumPy defines them */

/* a - n * b, for the whole number n next to a / b on the side of zero: exact, unless `plain` is cleared. For quotients
 * below 2^24, those of two floats are further from the next whole number than double rounds. */
INLINE float
rest_float(float a, float b, int *plain)
{
    double quotient = (double)a / b;
    int is_plain = fabs(quotient) < 16777216 && b - b == 0;
    *plain &= is_plain;
    int32_t n = (int32_t)(is_plain ? quotient : 0);
    return copysignf((float)(a - (double)n * b), a);
}

/* The quotient may be rounded to the next whole number, which shows: the rest is exact all the same. */
INLINE double
rest_double(double a, double b, int *plain)
{
    double quotient = a / b, size = fabs(b);
    int is_plain = fabs(quotient) < 2251799813685248 && b - b == 0; /* 2^51 */
    *plain &= is_plain;
    double rest = fma(-trunc(is_plain ? quotient : 0), b, a);
    rest = a < 0 ? -rest : rest;
    rest += rest < 0 ? size : 0;
    rest -= rest >= size ? size : 0;
    return copysign(rest, a);
}

#define QUOTIENTS(REAL, FLOOR, SIGNED)                                                                       \
    INLINE REAL fmod_of_##REAL(REAL a, REAL b, int *plain)                                                   \
    {                                                                                                        \
        return rest_##REAL(a, b, plain);                                                                     \
    }                                                                                                        \
    INLINE REAL remainder_of_##REAL(REAL a, REAL b, int *plain)                                              \
    {                                                                                                        \
        REAL rest = rest_##REAL(a, b, plain);                                                                \
        return rest == 0 ? SIGNED(0, b) : (b < 0) != (rest < 0) ? rest + b : rest;                           \
    }                                                                                                        \
    INLINE REAL floor_divide_of_##REAL(REAL a, REAL b, int *plain)                                           \
    {                                                                                                        \
        REAL rest = rest_##REAL(a, b, plain), quotient = (a - rest) / b;                                     \
        quotient -= rest != 0 && (b < 0) != (rest < 0) ? 1 : 0;                                              \
        REAL whole = FLOOR(quotient);                                                                        \
        whole += quotient - whole > (REAL)0.5 ? 1 : 0;                                                       \
        return quotient == 0 ? SIGNED(0, a / b) : whole;                                                     \
    }                                                                                                        \
    QUOTIENT_LOOP(fmod, REAL)                                                                                \
    QUOTIENT_LOOP(remainder, REAL)                                                                           \
    QUOTIENT_LOOP(floor_divide, REAL)

/* What is infinite, NaN or far apart is left to NumPy, with those around it. */
#define QUOTIENT_LOOP(NAME, REAL)                                                                            \
    CLONES static int NAME##_values_##REAL(const REAL *x, const REAL *y, REAL *out, npy_intp count)          \
    {                                                                                                        \
        int plain = 1;                                                                                       \
        for (npy_intp k = 0; k < count; k++) {                                                               \
            out[k] = NAME##_of_##REAL(x[k], y[k], &plain);                                                   \
        }                                                                                                    \
        return plain;                                                                                        \
    }                                                                                                        \
    static void NAME##_loop_##REAL(char **args, const npy_intp *dimensions, const npy_intp *strides, void *data) \
    {                                                                                                        \
        REAL x[AT_ONCE], y[AT_ONCE], out[AT_ONCE];                                                           \
        if (depends_on_itself(args, dimensions, strides)) {                                                  \
            run_theirs(args, dimensions, strides, data);                                                     \
            return;                                                                                          \
        }                                                                                                    \
        for (npy_intp start = 0, count; start < dimensions[0]; start += count) {                             \
            count = dimensions[0] - start < AT_ONCE ? dimensions[0] - start : AT_ONCE;                       \
            int noted = exceptions_noted();                                                                  \
            char *now[3];                                                                                    \
            for (int j = 0; j < 3; j++) {                                                                    \
                now[j] = args[j] + start * strides[j];                                                       \
            }                                                                                                \
            for (npy_intp k = 0; k < count; k++) {                                                           \
                x[k] = *(const REAL *)(now[0] + k * strides[0]);                                             \
                y[k] = *(const REAL *)(now[1] + k * strides[1]);                                             \
            }                                                                                                \
            int plain = NAME##_values_##REAL(x, y, out, count);                                              \
            take_back(noted);                                                                                \
            if (!plain) {                                                                                    \
                run_theirs(now, &count, strides, data);                                                      \
                continue;                                                                                    \
            }                                                                                                \
            for (npy_intp k = 0; k < count; k++) {                                                           \
                *(REAL *)(now[2] + k * strides[2]) = out[k];                                                 \
            }                                                                                                \
        }                                                                                                    \
    }

QUOTIENTS(float, floorf, copysignf)
QUOTIENTS(double, floor, copysign)

/* ---- e^z of complex numbers: what is not finite, or may overflow, or has a large imaginary part, is left to NumPy */

#define MOST_REAL_float 80
#define MOST_REAL_double 700

#define COMPLEX_EXP(REAL)                                                                                    \
    static void complex_exp_##REAL(char **args, const npy_intp *dimensions, const npy_intp *strides, void *data) \
    {                                                                                                        \
        REAL size[AT_ONCE], sine[AT_ONCE], cosine[AT_ONCE];                                                  \
        for (npy_intp start = 0, count; start < dimensions[0]; start += count) {                             \
            char *now[2] = {args[0] + start * strides[0], args[1] + start * strides[1]};                     \
            int noted = exceptions_noted(), plain = 1;                                                       \
            count = dimensions[0] - start < AT_ONCE ? dimensions[0] - start : AT_ONCE;                       \
            npy_intp whole = (count + VECTOR - 1) & ~(npy_intp)(VECTOR - 1);                                 \
            for (npy_intp k = 0; k < whole; k++) {                                                           \
                const REAL *z = (const REAL *)(now[0] + (k < count ? k : 0) * strides[0]);                   \
                size[k] = z[0];                                                                              \
                sine[k] = cosine[k] = z[1];                                                                  \
                plain &= z[0] > -MOST_REAL_##REAL && z[0] < MOST_REAL_##REAL && !is_far_##REAL(z[1]);        \
            }                                                                                                \
            if (plain) {                                                                                     \
                exp_values_##REAL(size, size, whole);                                                        \
                sin_values_##REAL(sine, sine, whole);                                                        \
                cos_values_##REAL(cosine, cosine, whole);                                                    \
            }                                                                                                \
            take_back(noted);                                                                                \
            if (!plain) {                                                                                    \
                run_theirs(now, &count, strides, data);                                                      \
            }                                                                                                \
            for (npy_intp k = 0; k < count && plain; k++) {                                                  \
                REAL *out = (REAL *)(now[1] + k * strides[1]);                                               \
                out[0] = size[k] * cosine[k];                                                                \
                out[1] = size[k] * sine[k];                                                                  \
            }                                                                                                \
        }                                                                                                    \
    }

COMPLEX_EXP(float)
COMPLEX_EXP(double)

/* Our loop of that function for complex numbers, or NULL. */
static PyUFuncGenericFunction
complex_loop(const char *name, int type)
{
    int is_exp = strcmp(name, "exp") == 0;
    return is_exp && type == NPY_CFLOAT ? complex_exp_float : is_exp && type == NPY_CDOUBLE ? complex_exp_double : NULL;
}

/* ---- making ufuncs */

/* A ufunc of these loops, which stay where they are as long as the process lives. */
static PyObject *
ufunc_of(const char *name, PyUFuncGenericFunction *loops, void **data, char *types, int count, int inputs, int identity)
{
    return PyUFunc_FromFuncAndDataAndSignature(loops, data, types, count, inputs, 1, identity, name, NULL, 0,
                                               NULL);
}

/* NumPy's ufunc with our loops for its functions of float and double; what they are given is NumPy's own loop, unless
 * something else is. */
static PyObject *
replaced(PyObject *object, const char *name, PyUFuncGenericFunction single, PyUFuncGenericFunction twice, void *given,
         int identity)
{
    PyUFuncObject *theirs = (PyUFuncObject *)object;
    int count = theirs->ntypes, width = theirs->nargs;
    PyUFuncGenericFunction *loops = PyMem_Malloc(count * sizeof(*loops));
    void **data = PyMem_Malloc(count * sizeof(*data));
    char *types = PyMem_Malloc(count * width);
    if (loops == NULL || data == NULL || types == NULL) {
        return PyErr_NoMemory();
    }
    memcpy(types, theirs->types, count * width);
    for (int k = 0; k < count; k++) {
        int type = types[k * width], is_same = 1;
        for (int j = 1; j < width; j++) {
            is_same &= types[k * width + j] == type;
        }
        PyUFuncGenericFunction ours = !is_same ? NULL : type == NPY_FLOAT ? single : type == NPY_DOUBLE ? twice : NULL;
        PyUFuncGenericFunction of_complex = is_same ? complex_loop(name, type) : NULL;
        ours = of_complex != NULL ? of_complex : ours;
        loops[k] = ours == NULL ? theirs->functions[k] : ours;
        data[k] = ours == NULL ? theirs->data[k] : given;
        if (of_complex != NULL || (ours != NULL && given == NULL)) {
            Theirs *their = data[k] = PyMem_Malloc(sizeof(Theirs));
            if (their == NULL) {
                return PyErr_NoMemory();
            }
            *their = (Theirs){theirs->functions[k], theirs->data == NULL ? NULL : theirs->data[k]};
        }
    }
    return ufunc_of(name, loops, data, types, count, theirs->nin, identity);
}

/* One of float and double alone. */
static PyObject *
own_ufunc(const Function *function)
{
    static PyUFuncGenericFunction loops[] = {loop_float, loop_double};
    static char types[] = {NPY_FLOAT, NPY_FLOAT, NPY_DOUBLE, NPY_DOUBLE};
    void **data = PyMem_Malloc(2 * sizeof(*data));
    if (data == NULL) {
        return PyErr_NoMemory();
    }
    data[0] = data[1] = (void *)function;
    return ufunc_of(function->name, loops, data, types, 2, 1, PyUFunc_None);
}

static const struct {
    const char *name;
    PyUFuncGenericFunction single, twice;
    int identity;
} of_two[] = {
    {"power", loop_power_float, loop_power_double, PyUFunc_None},
    {"maximum", maximum_loop_float, maximum_loop_double, PyUFunc_ReorderableNone},
    {"minimum", minimum_loop_float, minimum_loop_double, PyUFunc_ReorderableNone},
    {"fmod", fmod_loop_float, fmod_loop_double, PyUFunc_None},
    {"remainder", remainder_loop_float, remainder_loop_double, PyUFunc_None},
    {"floor_divide", floor_divide_loop_float, floor_divide_loop_double, PyUFunc_None},
};
#define OF_TWO (int)(sizeof(of_two) / sizeof(of_two[0]))

/* Whether the processor has what NumPy compiles its loops for. */
static int
has_avx512(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
#else
    return 0;
#endif
}

/* Ours of that name: one of those known, or of functions of two numbers. */
static PyObject *
made(PyObject *numpy, const Function *function, const char *name)
{
    if (function != NULL && !PyObject_HasAttrString(numpy, name)) {
        return own_ufunc(function);
    }
    PyObject *theirs = PyObject_GetAttrString(numpy, name), *ours = NULL;
    if (theirs == NULL || !PyObject_TypeCheck(theirs, &PyUFunc_Type)) {
        PyErr_Format(PyExc_TypeError, "numpy.%s is no ufunc", name);
    }
    else if (function != NULL && function->left_to_avx512 && has_avx512()) {
        ours = Py_NewRef(theirs);
    }
    else if (function != NULL) {
        ours = replaced(theirs, name, loop_float, loop_double, (void *)function, PyUFunc_None);
    }
    else {
        for (int k = 0; k < OF_TWO; k++) {
            if (strcmp(name, of_two[k].name) == 0) {
                ours = replaced(theirs, name, of_two[k].single, of_two[k].twice, NULL, of_two[k].identity);
            }
        }
    }
    Py_XDECREF(theirs);
    return ours;
}

PyObject *
make_functions(PyObject *module, PyObject *nothing)
{
    PyObject *numpy = _import_umath() < 0 ? NULL : PyImport_ImportModule("numpy"), *found = PyDict_New();
    for (int k = 0; numpy != NULL && found != NULL && k < KNOWN + OF_TWO; k++) {
        const char *name = k < KNOWN ? known[k].name : of_two[k - KNOWN].name;
        PyObject *ours = made(numpy, k < KNOWN ? &known[k] : NULL, name);
        if (ours == NULL || PyDict_SetItemString(found, name, ours) < 0) {
            Py_CLEAR(found);
        }
        Py_XDECREF(ours);
    }
    if (numpy == NULL) {
        Py_CLEAR(found);
    }
    Py_XDECREF(numpy);
    return found;
}

#else /* NumPy's serve */

#define KNOWN 0
static const struct {
    const char *name;
    float nanoseconds[2];
} known[1];

PyObject *
make_functions(PyObject *module, PyObject *nothing)
{
    return PyDict_New();
}

#endif

double
nanoseconds_of(const char *name, int is_double)
{
    static const char *const quick[] = {"add", "subtract", "multiply", "negative", "absolute", "maximum", "minimum"};
    for (int k = 0; k < KNOWN; k++) {
        if (strcmp(name, known[k].name) == 0) {
            return known[k].nanoseconds[is_double];
        }
    }
    for (size_t k = 0; k < sizeof(quick) / sizeof(quick[0]); k++) {
        if (strcmp(name, quick[k]) == 0) {
            return is_double ? 0.3 : 0.15;
        }
    }
    return is_double ? 1.0 : 0.5; /* of the rest, some take longer by far */
}
