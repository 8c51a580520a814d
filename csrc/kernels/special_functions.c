/* Special functions, element by element: the gamma function's logarithm and the derivatives of that, error functions.
 *
 * All are computed in double precision, single precision is rounded in the end. For arguments on the right they are
 * written without branches, so that compilers turn them into vectors; what is on the left (of 0) is found from there by
 * a second loop, for stretches that have any. So a value does not depend on its neighbours.
 */
#include "kernels/kernels.h"
#include "loops/threads.h"
#define FUSED_PRODUCTS
#include "kernels/digamma.h"

#ifdef HAS_FUNCTIONS

#define PI 3.14159265358979323846
#define AT_ONCE 512 /* elements that are computed before the next ones are read */
#define VECTOR 32   /* numbers; of which all vectors of all processors are a part */
#define WHOLE(count) (((count) + VECTOR - 1) & ~(Py_ssize_t)(VECTOR - 1))

/* How far x is from the nearest integer. */
INLINE double
from_integer(double x)
{
    double size = size_double(x), whole = size < 4503599627370496.0 ? (size + 4503599627370496.0) - 4503599627370496.0 : size;
    return x - signed_double(whole, x);
}

/* ---- the logarithm of the gamma function: Stirling's series, from 8 on */

INLINE double
lgamma_right(double x)
{
    int is_small = x < 8;
    double y = is_small ? x + 8 : x, z = 1 / (y * y), t = is_small ? x : 0;
    double product = t * (t + 1) * (t + 2) * (t + 3) * ((t + 4) * (t + 5) * (t + 6) * (t + 7));
    double series = POLYNOMIAL(z, -3617.0 / 122400, 1.0 / 156, -691.0 / 360360, 1.0 / 1188, -1.0 / 1680, 1.0 / 1260,
                               -1.0 / 360, 1.0 / 12);
    double value = (y - 0.5) * (log_double(y) - 1) + series / y + 0.41893853320467274178;
    value -= log_double(is_small ? product : 1);
    return x == 1 || x == 2 ? 0 : value;
}

INLINE double
lgamma_left(double x, double of_reflected)
{
    double size = size_double(sin_double(PI * from_integer(x)));
    double value = 1.14472988584940017414 - log_double(size) - of_reflected;
    return x == -INFINITY ? INFINITY : value;
}

/* ---- its derivatives: see kernels/digamma.h */

INLINE double
digamma_left(double x, double of_reflected)
{
    double angle = PI * from_integer(x), value = of_reflected - PI * cos_double(angle) / sin_double(angle);
    return angle == 0 ? NAN : value;
}

INLINE double
digamma_at_zero(double x)
{
    return signed_double(INFINITY, -x);
}

INLINE double
trigamma_right(double x)
{
    int is_small = x < 10;
    double y = is_small ? x + 10 : x, z = 1 / (y * y), t = is_small ? x : 1, sum = 0;
    UNROLLED for (int k = 0; k < 10; k++) {
        sum += 1 / ((t + k) * (t + k));
    }
    double series = POLYNOMIAL(z, -174611.0 / 330, 43867.0 / 798, -3617.0 / 510, 7.0 / 6, -691.0 / 2730, 5.0 / 66,
                               -1.0 / 30, 1.0 / 42, -1.0 / 30, 1.0 / 6);
    return 1 / y + 0.5 * z + series * z / y + (is_small ? sum : 0);
}

INLINE double
trigamma_left(double x, double of_reflected)
{
    double sine = sin_double(PI * from_integer(x)) / PI;
    return 1 / (sine * sine) - of_reflected;
}

/* ---- 1 - erf, by Cody's approximations (see backend/special.py) */

/* e^(-factor x x), with x x in two parts, so that no digits are lost; the factor is a power of 2 */
INLINE double
exp_of_minus_square(double x, const double factor)
{
    double exact = ((x * 16 + ROUND_DOUBLE) - ROUND_DOUBLE) / 16;
    return exp_double(-factor * (exact * exact)) * exp_double(factor * ((exact - x) * (exact + x)));
}

/* erfc(y) of y up to SMALL, exp(y y) erfc(y) beyond: what is left when the exponential is taken out, where there is one */
#define SMALL 0.46875
INLINE double
erfc_factor(double y)
{
    double z = y * y, u = 1 / (y > 1 ? z : 1);
    double above_small = POLYNOMIAL(z, 1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2,
                                    3.77485237685302021e2, 3.20937758913846947e3);
    double below_small = POLYNOMIAL(z, 1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
                                    2.84423683343917062e3);
    double above_middle = POLYNOMIAL(y, 2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594,
                                     6.61191906371416295e1, 2.98635138197400131e2, 8.81952221241769090e2,
                                     1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3);
    double below_middle = POLYNOMIAL(y, 1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
                                     1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3,
                                     3.43936767414372164e3, 1.23033935480374942e3);
    double above_large = POLYNOMIAL(u, 1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
                                    1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4);
    double below_large = POLYNOMIAL(u, 1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1,
                                    6.05183413124413191e-2, 2.33520497626869185e-3);
    int is_small = y <= SMALL, is_large = y > 4;
    double ratio = (is_small ? above_small : is_large ? above_large : above_middle) /
                   (is_small ? below_small : is_large ? below_large : below_middle);
    return is_small ? 1 - y * ratio : is_large ? (0.56418958354775628695 - u * ratio) / y : ratio;
}

INLINE double
erfc_by(double x, const int is_single)
{
    double y = x < 30 ? x : 30, factor = erfc_factor(y);
    double value = y <= SMALL ? factor : (is_single ? exp_double(-y * y) : exp_of_minus_square(y, 1)) * factor;
    return x == x ? value : x;
}

INLINE double
erfc_right_float(double x)
{
    return erfc_by(x, 1);
}

INLINE double
erfc_right_double(double x)
{
    return erfc_by(x, 0);
}

INLINE double
erfc_left(double x, double of_reflected)
{
    return 2 - of_reflected;
}

/* exp(x x) erfc(x), for x from 0 on; exp(x x) erfc(-x) is 2 exp(x x) less that */
INLINE double
erfcx_right(double x)
{
    double factor = erfc_factor(x);
    return x <= SMALL ? exp_double(x * x) * factor : factor;
}

INLINE double
erfcx_left(double x, double of_reflected)
{
    double y = x > -40 ? -x : 40; /* from where on it is infinity */
    return x == x ? 2 / exp_of_minus_square(y, 1) - of_reflected : x;
}

/* The logarithm of the normal distribution: log(1 - q) with q the probability of the other side, digits that 1 - q lost
 * added; left of -1 log(erfcx / 2) less the exponent. */
INLINE double
log_ndtr_anywhere(double x)
{
    double size = size_double(x), near = size < 40 ? size : 40, y = size * 0.70710678118654752440;
    double factor = erfc_factor(y), right = (y <= SMALL ? factor : exp_of_minus_square(near, 0.5) * factor) / 2;
    double q = x < 0 ? 1 - right : right, rest = 1 - q;
    double value = x < -1 ? log_double(factor / 2) - x * x / 2 : -(((rest - 1) + q) / rest - log_double(rest));
    return x == x ? value : x;
}

/* ---- the inverse of erf, by Wichura's approximations of normal quantiles (see ops/pointwise/special) */

/* scale times the quantile above which the probability is `beyond` = (1 - x) / 2 */
INLINE double
quantile(double x, double beyond, const double scale)
{
    double q = 0.180625 - x * x / 4, r = sqrt(-log_double(beyond)), m = r - 1.6, t = r - 5;
    double centre = POLYNOMIAL(q, 2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
                               4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
                               1.3314166789178437745e2, 3.3871328727963666080e0);
    double below_centre = POLYNOMIAL(q, 5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
                                     2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
                                     4.2313330701600911252e1, 1.0);
    double middle = POLYNOMIAL(m, 7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
                               1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
                               4.63033784615654529590e0, 1.42343711074968357734e0);
    double below_middle = POLYNOMIAL(m, 1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
                                     1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
                                     2.05319162663775882187e0, 1.0);
    double tail = POLYNOMIAL(t, 2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
                             2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
                             5.46378491116411436990e0, 6.65790464350110377720e0);
    double below_tail = POLYNOMIAL(t, 2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
                                   7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
                                   5.99832206555887937690e-1, 1.0);
    int is_centre = x <= 0.85, is_tail = r > 5;
    double ratio = (is_centre ? centre : is_tail ? tail : middle) /
                   (is_centre ? below_centre : is_tail ? below_tail : below_middle);
    return ratio * (is_centre ? x * (scale / 2) : scale);
}

INLINE double
erfinv_right(double x)
{
    double value = quantile(x, (1 - x) / 2, 0.70710678118654752440);
    return x < 1 ? value : x == 1 ? INFINITY : NAN;
}

INLINE double
erfinv_left(double x, double of_reflected)
{
    return -of_reflected;
}

INLINE double
ndtri_anywhere(double p)
{
    double size = quantile(2 * size_double(p - 0.5), p < 0.5 ? p : 1 - p, 1.0);
    double value = p == 0 || p == 1 ? INFINITY : size;
    return p >= 0 && p <= 1 ? signed_double(value, p - 0.5) : NAN;
}

/* ---- modified Bessel functions of order 0 and 1: the power series up to 20, whose terms have one sign, then the
 * asymptotic one. Both are sums of products of ratios of neighbouring terms. What rounding x * x takes from the power
 * series is added with its slope, of which two digits are enough. */

/* fifteen terms, from this one down: as many as compilers unroll */
INLINE double
near_terms(double sum, double z, const int order, const int last)
{
    UNROLLED for (int k = last; k > last - 15; k--) {
        sum = 1 + sum * (z * (1.0 / (k * (k + order))));
    }
    return sum;
}

INLINE double
far_terms(double sum, double u, const int order, const int last)
{
    UNROLLED for (int k = last; k > last - 15; k--) {
        sum = 1 + sum * (u * (((2 * k - 1) * (2 * k - 1) - 4 * order) / (8.0 * k)));
    }
    return sum;
}

INLINE double
bessel_i(double x, const int order, const int is_scaled)
{
    int is_near = !(x > 20);
    double y = is_near ? x : 20, z = y * y / 4, u = 1 / (is_near ? 20 : x), near = 1, far = 1;
    near = near_terms(near_terms(near_terms(near_terms(near, z, order, 60), z, order, 45), z, order, 30), z, order, 15);
    far = far_terms(far_terms(far, u, order, 30), u, order, 15);
    double high = (y + 3221225472.0) - 3221225472.0, low = y - high; /* 3 * 2^30: high * high is exact */
    double lost = ((high * high - y * y) + 2 * high * low) + low * low;
    near += near * (lost * 0.5 / (order + 1 + sqrt((order + 1) * (order + 1) + y * y)));
    near = near * (order ? y / 2 : 1) * (is_scaled ? exp_double(-y) : 1);
    far = far / (2.50662827463100050242 * sqrt(x));
    double half = exp_double(x / 2); /* in two steps, because exp(x) overflows before the value does */
    far = is_scaled ? far : x == INFINITY ? x : far * half * half;
    return is_near ? near : far;
}

#define BESSEL_I(NAME, ORDER, IS_SCALED)                                                                    \
    INLINE double NAME##_right(double x)                                                                    \
    {                                                                                                       \
        return bessel_i(x, ORDER, IS_SCALED);                                                               \
    }                                                                                                       \
    INLINE double NAME##_left(double x, double of_reflected)                                                \
    {                                                                                                       \
        return ORDER ? -of_reflected : of_reflected;                                                        \
    }

BESSEL_I(i0, 0, 0)
BESSEL_I(i0e, 0, 1)
BESSEL_I(i1, 1, 0)
BESSEL_I(i1e, 1, 1)

/* ---- loops: the right side of each, then what is left */

#define ONE_MINUS(x) (1 - (x))
#define MINUS(x) (-(x))
#define SAME(x, value) value
#define ITSELF(x, ...) (x)

#define LOOP(NAME, REAL, REFLECTED, AT_ZERO) LOOP_OF(NAME, NAME##_right, REAL, REFLECTED, AT_ZERO)
#define RIGHTS(NAME, RIGHT, REAL, REFLECTED)                                                                \
    CLONES static void NAME##_rights_##REAL(const REAL *x, double *out, Py_ssize_t count)                   \
    {                                                                                                       \
        count = WHOLE(count);                                                                               \
        _Pragma("GCC ivdep") for (Py_ssize_t k = 0; k < count; k++)                                         \
        {                                                                                                   \
            double now = x[k];                                                                              \
            out[k] = RIGHT(now < 0 ? REFLECTED(now) : now);                                                 \
        }                                                                                                   \
    }
#define LOOP_OF(NAME, RIGHT, REAL, REFLECTED, AT_ZERO)                                                      \
    RIGHTS(NAME, RIGHT, REAL, REFLECTED)                                                                    \
    CLONES static void NAME##_lefts_##REAL(const REAL *x, double *out, Py_ssize_t count)                    \
    {                                                                                                       \
        count = WHOLE(count);                                                                               \
        _Pragma("GCC ivdep") for (Py_ssize_t k = 0; k < count; k++)                                         \
        {                                                                                                   \
            double now = x[k], value = out[k];                                                              \
            out[k] = now < 0 ? NAME##_left(now, value) : now == 0 ? AT_ZERO(now, value) : value;            \
        }                                                                                                   \
    }

#define POLE(x, value) digamma_at_zero(x)
#define LOOPS(NAME, REFLECTED, AT_ZERO) LOOP(NAME, float, REFLECTED, AT_ZERO) LOOP(NAME, double, REFLECTED, AT_ZERO)

LOOP(lgamma, float, ONE_MINUS, SAME)
LOOPS(digamma, ONE_MINUS, POLE)
LOOPS(trigamma, ONE_MINUS, SAME)
LOOP_OF(erfc, erfc_right_float, float, MINUS, SAME)
LOOP_OF(erfc, erfc_right_double, double, MINUS, SAME)
LOOPS(erfinv, MINUS, SAME)
LOOPS(erfcx, MINUS, SAME)
LOOPS(i0, MINUS, SAME)
LOOPS(i0e, MINUS, SAME)
LOOPS(i1, MINUS, ITSELF)
LOOPS(i1e, MINUS, ITSELF)
RIGHTS(log_ndtr, log_ndtr_anywhere, float, ITSELF)
RIGHTS(log_ndtr, log_ndtr_anywhere, double, ITSELF)
RIGHTS(ndtri, ndtri_anywhere, float, ITSELF)
RIGHTS(ndtri, ndtri_anywhere, double, ITSELF)

/* Near its zeros at 1 and 2 the logarithm needs more digits than a double has. */
#ifdef _WIN32
#define lgamma_rights_double NULL
#else
static void
lgamma_rights_double(const double *x, double *out, Py_ssize_t count)
{
    int sign;
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = lgamma_r(x[k], &sign);
    }
}
#endif

typedef struct {
    const char *name;
    void (*single_rights)(const float *, double *, Py_ssize_t), (*single_lefts)(const float *, double *, Py_ssize_t);
    void (*double_rights)(const double *, double *, Py_ssize_t), (*double_lefts)(const double *, double *, Py_ssize_t);
    double nanoseconds;
} Special;

#define BOTH(name) name##_rights_float, name##_lefts_float, name##_rights_double, name##_lefts_double
#define ANYWHERE(name) name##_rights_float, NULL, name##_rights_double, NULL

static const Special known[] = {
    {"lgamma", lgamma_rights_float, lgamma_lefts_float, lgamma_rights_double, NULL, 6},
    {"digamma", BOTH(digamma), 6},
    {"trigamma", BOTH(trigamma), 12},
    {"erfc", BOTH(erfc), 6},
    {"erfinv", BOTH(erfinv), 8},
    {"special_erfcx", BOTH(erfcx), 8},
    {"special_log_ndtr", ANYWHERE(log_ndtr), 12},
    {"special_ndtri", ANYWHERE(ndtri), 8},
    {"i0", BOTH(i0), 20},
    {"special_i0e", BOTH(i0e), 20},
    {"special_i1", BOTH(i1), 20},
    {"special_i1e", BOTH(i1e), 20},
};

typedef struct {
    const Special *function;
    const void *x;
    void *out;
    Py_ssize_t count;
} Elements;

#define STRETCH(REAL, rights, lefts)                                                                        \
    static void stretch_##REAL(const Special *function, const REAL *x, REAL *out, Py_ssize_t count)         \
    {                                                                                                       \
        REAL some[AT_ONCE];                                                                                 \
        double values[AT_ONCE];                                                                             \
        int has_left = 0;                                                                                   \
        for (Py_ssize_t k = 0; k < count; k++) {                                                            \
            has_left |= !(x[k] > 0);                                                                        \
        }                                                                                                   \
        if (count % VECTOR != 0) {                                                                          \
            for (Py_ssize_t k = 0; k < WHOLE(count); k++) {                                                 \
                some[k] = k < count ? x[k] : (REAL)0.5;                                                     \
            }                                                                                               \
            x = some;                                                                                       \
        }                                                                                                   \
        function->rights(x, values, count);                                                                 \
        if (has_left && function->lefts != NULL) {                                                          \
            function->lefts(x, values, count);                                                              \
        }                                                                                                   \
        for (Py_ssize_t k = 0; k < count; k++) {                                                            \
            out[k] = (REAL)values[k];                                                                       \
        }                                                                                                   \
    }                                                                                                       \
    static void share_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                              \
    {                                                                                                       \
        const Elements *all = context;                                                                      \
        for (Py_ssize_t k = first; k < last; k++) {                                                         \
            Py_ssize_t start = k * AT_ONCE, left = all->count - start;                                      \
            stretch_##REAL(all->function, (const REAL *)all->x + start, (REAL *)all->out + start,           \
                           left < AT_ONCE ? left : AT_ONCE);                                                \
        }                                                                                                   \
    }

STRETCH(float, single_rights, single_lefts)
STRETCH(double, double_rights, double_lefts)

/* special_function(name, x): its values, in a new array; None if it is not here, or not for such arrays */
PyObject *
special_function(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2 || !PyUnicode_Check(arguments[0]) || !is_plain(arguments[1])) {
        Py_RETURN_NONE;
    }
    for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
        PyArrayObject *x = (PyArrayObject *)arguments[1];
        if (PyUnicode_CompareWithASCIIString(arguments[0], known[k].name) == 0 &&
            (PyArray_TYPE(x) == NPY_FLOAT || known[k].double_rights != NULL)) {
            PyObject *out = new_like(x);
            if (out != NULL) {
                Elements all = {&known[k], PyArray_DATA(x), data_of(out), PyArray_SIZE(x)};
                Share share = PyArray_TYPE(x) == NPY_FLOAT ? share_float : share_double;
                WORK(all.count, divide(share, &all, (all.count + AT_ONCE - 1) / AT_ONCE,
                                       known[k].nanoseconds * all.count));
            }
            return out;
        }
    }
    Py_RETURN_NONE;
}

#else

PyObject *
special_function(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_RETURN_NONE;
}

#endif
