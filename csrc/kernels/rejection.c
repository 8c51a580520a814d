/* Random numbers whose parameters are arrays: proposals, until one is accepted. ops/random/rejection.py has the same
 * methods for a reader; both take the same words, and give the same numbers. Whoever calls these holds the lock of the
 * generator.
 */
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "kernels/twister.h"

typedef struct {
    bitgen_t *bits;
    Twister *twister; /* its state, or NULL */
    double spare;     /* the second of two normal numbers */
    int has_spare;
} Source;

static int
open_source(Source *source, PyObject *capsule)
{
    source->bits = PyCapsule_GetPointer(capsule, "BitGenerator");
    source->twister = source->bits == NULL ? NULL : twister_of(source->bits);
    source->has_spare = 0;
    return source->bits != NULL;
}

INLINE uint32_t
next_word(Source *source)
{
    Twister *twister = source->twister;
    if (twister == NULL) {
        return source->bits->next_uint32(source->bits->state);
    }
    if (twister->pos >= TWISTER_SIZE) {
        twist(twister);
    }
    return tempered(twister->key[twister->pos++]);
}

/* in [0, 1), from 53 bits */
INLINE double
next_fraction(Source *source)
{
    uint64_t high = next_word(source), low = next_word(source);
    return (double)(int64_t)((high << 32 | low) & (((uint64_t)1 << 53) - 1)) * 0x1p-53;
}

static double
next_normal(Source *source)
{
    if (source->has_spare) {
        source->has_spare = 0;
        return source->spare;
    }
    double angle = 6.283185307179586476925 * next_fraction(source);
    double radius = sqrt(-2 * log1p(-next_fraction(source)));
    source->spare = radius * sin(angle);
    source->has_spare = 1;
    return radius * cos(angle);
}

/* ---- gamma: Marsaglia and Tsang; with PyTorch's third, which it rounds to single precision */

#define GAMMA(real, NAME)                                                                                              \
    static real next_##NAME(Source *source, real alpha)                                                               \
    {                                                                                                                 \
        double scale = 1;                                                                                             \
        if (!(alpha > 0) || isinf(alpha)) { /* what would wait for ever */                                            \
            return alpha < 0 ? (real)NAN : alpha;                                                                     \
        }                                                                                                             \
        if (alpha < 1) {                                                                                              \
            scale = pow(1 - next_fraction(source), (real)1 / alpha);                                                  \
            alpha += 1;                                                                                               \
        }                                                                                                             \
        double d = (real)(alpha - 1.0f / 3), c = 1 / sqrt(9 * d);                                                     \
        for (;;) {                                                                                                    \
            double x, y;                                                                                              \
            do {                                                                                                      \
                x = next_normal(source);                                                                              \
                y = 1 + c * x;                                                                                        \
            } while (y <= 0);                                                                                         \
            double v = y * y * y, u = 1 - next_fraction(source), xx = x * x;                                          \
            if (u < 1 - 0.0331f * xx * xx || log(u) < 0.5 * xx + d * (1 - v + log(v))) {                              \
                return (real)(scale * d * v);                                                                         \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    static void fill_##NAME(Source *source, const real *alpha, real *out, Py_ssize_t size)                            \
    {                                                                                                                 \
        for (Py_ssize_t k = 0; k < size; k++) {                                                                       \
            out[k] = next_##NAME(source, alpha[k]);                                                                   \
        }                                                                                                             \
    }

GAMMA(float, gamma_float)
GAMMA(double, gamma_double)

/* ---- Poisson: products of fractions; from 10 on, Hörmann's transformed rejection */

static double
next_poisson(Source *source, double rate)
{
    if (rate == 0) {
        return 0;
    }
    if (rate < 10) {
        double least = exp(-rate), product = 1, found = -1;
        do {
            product *= next_fraction(source);
            found++;
        } while (product > least);
        return found;
    }
    double log_rate = log(rate), b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
    double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), certain = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        double u = next_fraction(source) - 0.5, v = next_fraction(source);
        double left = 0.5 - fabs(u), k = floor((2 * a / left + b) * u + rate + 0.43);
        if (left >= 0.07 && v <= certain) {
            return k;
        }
        if (k < 0 || (left < 0.013 && v > left)) {
            continue;
        }
        if (log(v) + log(inverse_alpha) - log(a / (left * left) + b) <= -rate + k * log_rate - lgamma(k + 1)) {
            return k;
        }
    }
}

/* ---- binomial: waiting times; from 10 successes on, Hörmann's transformed rejection. As for gamma variables, what is
 * computed of the parameters alone is rounded to their type. */

/* what log(k!) has beyond Stirling's formula */
INLINE double
beyond_stirling(double k)
{
    static const double first[] = {
        0.08106146679532725822, 0.04134069595540929409, 0.02767792568499833915, 0.02079067210376509311,
        0.01664469118982119216, 0.01387612882307074800, 0.01189670994589177010, 0.01041126526197209650,
        0.00925546218271273292, 0.00833056343336287126,
    };
    if (k <= 9) {
        return first[(int)k];
    }
    double square = (k + 1) * (k + 1);
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

#define BINOMIAL(real, NAME)                                                                                          \
    static double few_##NAME(Source *source, real count, real prob)                                                   \
    {                                                                                                                 \
        double waited = 0, found = 0, log_failure = log1p(-(double)prob);                                             \
        for (;;) {                                                                                                    \
            waited += ceil(log(next_fraction(source)) / log_failure);                                                 \
            if (waited > count) {                                                                                     \
                return found;                                                                                         \
            }                                                                                                         \
            found++;                                                                                                  \
        }                                                                                                             \
    }                                                                                                                 \
    static double many_##NAME(Source *source, real count, real prob)                                                  \
    {                                                                                                                 \
        double deviation = sqrt((real)((real)(count * prob) * (1 - prob)));                                           \
        double b = 1.15 + 2.53 * deviation, a = -0.0873 + 0.0248 * b + 0.01 * prob;                                   \
        double c = (real)(count * prob) + 0.5, certain = 0.92 - 4.2 / b, odds = prob / (real)(1 - prob);              \
        double alpha = (2.83 + 5.1 / b) * deviation, m = floor((real)((real)(count + 1) * prob));                     \
        for (;;) {                                                                                                    \
            double u = next_fraction(source) - 0.5, v = next_fraction(source);                                        \
            double left = 0.5 - fabs(u), k = floor((2 * a / left + b) * u + c);                                       \
            if (left >= 0.07 && v <= certain) {                                                                       \
                return k;                                                                                             \
            }                                                                                                         \
            if (k < 0 || k > count) {                                                                                 \
                continue;                                                                                             \
            }                                                                                                         \
            double bound = (m + 0.5) * log((m + 1) / (odds * (count - m + 1))) +                                      \
                           (count + 1) * log((count - m + 1) / (count - k + 1)) +                                     \
                           (k + 0.5) * log(odds * (count - k + 1) / (k + 1)) + beyond_stirling(m) +                   \
                           beyond_stirling(count - m) - beyond_stirling(k) - beyond_stirling(count - k);              \
            if (log(v * alpha / (a / (left * left) + b)) <= bound) {                                                  \
                return k;                                                                                             \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    static double next_##NAME(Source *source, real count, real prob)                                                  \
    {                                                                                                                 \
        if (count <= 0 || prob <= 0) {                                                                                \
            return 0;                                                                                                 \
        }                                                                                                             \
        if (prob >= 1) {                                                                                              \
            return count;                                                                                             \
        }                                                                                                             \
        real rarer = prob <= (real)0.5 ? prob : 1 - prob;                                                             \
        double found = (real)(count * rarer) >= 10 ? many_##NAME(source, count, rarer) : few_##NAME(source, count, rarer); \
        return prob <= (real)0.5 ? found : count - found;                                                             \
    }                                                                                                                 \
    static void fill_##NAME(Source *source, const real *count, const real *prob, real *out, Py_ssize_t size)          \
    {                                                                                                                 \
        for (Py_ssize_t k = 0; k < size; k++) {                                                                       \
            out[k] = (real)next_##NAME(source, count[k], prob[k]);                                                    \
        }                                                                                                             \
    }

BINOMIAL(float, binomial_float)
BINOMIAL(double, binomial_double)

static void
fill_poisson(Source *source, const double *rate, double *out, Py_ssize_t size)
{
    for (Py_ssize_t k = 0; k < size; k++) {
        out[k] = next_poisson(source, rate[k]);
    }
}

/* ---- functions */

/* random_gammas(capsule, spare or None, concentrations) -> (array, the next spare or None), or None */
PyObject *
random_gammas(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Source source;
    if (count != 3 || !is_plain(arguments[2])) {
        Py_RETURN_NONE;
    }
    if (!open_source(&source, arguments[0])) {
        return NULL;
    }
    if (arguments[1] != Py_None) {
        source.spare = PyFloat_AsDouble(arguments[1]);
        source.has_spare = 1;
    }
    PyArrayObject *alpha = (PyArrayObject *)arguments[2];
    PyObject *out = PyErr_Occurred() ? NULL : new_like(alpha);
    if (out == NULL) {
        return NULL;
    }
    npy_intp size = PyArray_SIZE(alpha);
    if (PyArray_TYPE(alpha) == NPY_FLOAT) {
        WORK(size, fill_gamma_float(&source, PyArray_DATA(alpha), data_of(out), size));
    }
    else {
        WORK(size, fill_gamma_double(&source, PyArray_DATA(alpha), data_of(out), size));
    }
    return source.has_spare ? Py_BuildValue("Nd", out, source.spare) : Py_BuildValue("NO", out, Py_None);
}

/* random_poissons(capsule, rates) -> array, or None */
PyObject *
random_poissons(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Source source;
    PyObject *rates = count == 2 ? arguments[1] : Py_None;
    if (!is_plain(rates) || PyArray_TYPE((PyArrayObject *)rates) != NPY_DOUBLE) {
        Py_RETURN_NONE;
    }
    PyArrayObject *rate = (PyArrayObject *)rates;
    PyObject *out = open_source(&source, arguments[0]) ? new_like(rate) : NULL;
    if (out != NULL) {
        npy_intp size = PyArray_SIZE(rate);
        WORK(size, fill_poisson(&source, PyArray_DATA(rate), data_of(out), size));
    }
    return out;
}

/* random_binomials(capsule, counts, probabilities) -> array, or None */
PyObject *
random_binomials(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Source source;
    if (count != 3 || !is_plain(arguments[1]) || arguments[2] == Py_None ||
        !is_alike(arguments[2], (PyArrayObject *)arguments[1], PyArray_SIZE((PyArrayObject *)arguments[1]))) {
        Py_RETURN_NONE;
    }
    PyArrayObject *counts = (PyArrayObject *)arguments[1], *probs = (PyArrayObject *)arguments[2];
    PyObject *out = open_source(&source, arguments[0]) ? new_like(counts) : NULL;
    if (out != NULL) {
        npy_intp size = PyArray_SIZE(counts);
        if (PyArray_TYPE(counts) == NPY_FLOAT) {
            WORK(size, fill_binomial_float(&source, PyArray_DATA(counts), PyArray_DATA(probs), data_of(out), size));
        }
        else {
            WORK(size, fill_binomial_double(&source, PyArray_DATA(counts), PyArray_DATA(probs), data_of(out), size));
        }
    }
    return out;
}
