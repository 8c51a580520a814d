/* gelu: every number times the probability that a normal variable is less, or times a curve that is close to it; and
 * silu: the same of a logistic variable.
 *
 * Both ways the value is x * p, where p is small and exact for negative x: p = exp(-a) * q, with a tame function q of
 * |x|, and 1 - exp(-a) * q for positive x. The derivative is p + x * p'.
 */
#include "kernels/kernels.h"
#include "loops/threads.h"
#define FUSED_PRODUCTS
#include "loops/exp.h"

typedef struct {
    const void *x, *g;
    void *out;
    Py_ssize_t count;
} Elements;

/* ---- the probability */

/* exp(u * u) * erfc(u) for u >= 0, within 2e-8 of it: t * (1 + s * p(s)) with t = 1 / (1 + 0.3 u) and s = 1 - t, which
 * is exact at 0 */
INLINE float
scaled_tail_float(float u)
{
    float t = 1.0f / (1.0f + 0.3f * u), s = 0.3f * u * t;
    float p = -0.128817528f;
    p = p * s + 0.548389614f;
    p = p * s - 0.737063229f;
    p = p * s - 0.419624329f;
    p = p * s + 2.88869524f;
    p = p * s - 4.80957508f;
    p = p * s + 4.58845043f;
    p = p * s - 2.76126099f;
    return t * (p * s + 1.0f);
}

INLINE float
probability_float(float x, float *slope)
{
    float density = decay_float(-0.5f * x * x), size = x < 0 ? -x : x;
    float u = 0.707106781f * (size < 20 ? size : 20); /* beyond, the density is 0 */
    float tail = 0.5f * density * scaled_tail_float(u);
    *slope = density * 0.398942280f;
    return x < 0 ? tail : 1.0f - tail;
}

INLINE double
probability_double(double x, double *slope)
{
    *slope = 0.39894228040143267794 * decay_double(-0.5 * x * x);
    return 0.5 * erfc(-0.70710678118654752440 * x);
}

/* ---- the curve: (1 + tanh(y)) / 2 with y = sqrt(2 / pi) * (x + 0.044715 x^3), which is 1 / (1 + exp(-2 y)) */

#define CURVE(REAL)                                                                              \
    INLINE REAL curve_##REAL(REAL x, REAL *slope)                                                \
    {                                                                                            \
        const REAL twice = (REAL)1.5957691216057307118, cubic = (REAL)0.044715;                  \
        REAL y = twice * x * (1 + cubic * x * x);                                                \
        REAL small = decay_##REAL(y < 0 ? y : -y), inverse = 1 / (1 + small);                    \
        *slope = small * inverse * inverse * (twice * (1 + 3 * cubic * x * x));                  \
        return y < 0 ? small * inverse : inverse;                                                \
    }

CURVE(float)
CURVE(double)

#define LOGISTIC(REAL)                                                                           \
    INLINE REAL logistic_##REAL(REAL x, REAL *slope)                                             \
    {                                                                                            \
        REAL small = decay_##REAL(x < 0 ? x : -x), inverse = 1 / (1 + small);                    \
        *slope = small * inverse * inverse;                                                      \
        return x < 0 ? small * inverse : inverse;                                                \
    }

LOGISTIC(float)
LOGISTIC(double)

/* ---- for all elements */

#define LOOPS(kind, REAL)                                                                        \
    CLONES static void kind##_values_##REAL(const Elements *given)                               \
    {                                                                                            \
        const REAL *restrict x = given->x;                                                       \
        REAL *restrict out = given->out;                                                         \
        for (Py_ssize_t k = 0; k < given->count; k++) {                                          \
            REAL slope;                                                                          \
            out[k] = x[k] * kind##_##REAL(x[k], &slope);                                         \
        }                                                                                        \
    }                                                                                            \
    CLONES static void kind##_gradients_##REAL(const Elements *given)                            \
    {                                                                                            \
        const REAL *restrict x = given->x, *restrict g = given->g;                               \
        REAL *restrict out = given->out;                                                         \
        for (Py_ssize_t k = 0; k < given->count; k++) {                                          \
            REAL slope, value = kind##_##REAL(x[k], &slope);                                     \
            out[k] = g[k] * (value + x[k] * slope);                                              \
        }                                                                                        \
    }

LOOPS(probability, float)
LOOPS(probability, double)
LOOPS(curve, float)
LOOPS(curve, double)
LOOPS(logistic, float)
LOOPS(logistic, double)

typedef void (*Loop)(const Elements *);

enum { PROBABILITY, TANH_CURVE, SIGMOID };

/* by whether it is a gradient, by the kind of curve, by whether it is double */
static const Loop loops[2][3][2] = {{{probability_values_float, probability_values_double},
                                     {curve_values_float, curve_values_double},
                                     {logistic_values_float, logistic_values_double}},
                                    {{probability_gradients_float, probability_gradients_double},
                                     {curve_gradients_float, curve_gradients_double},
                                     {logistic_gradients_float, logistic_gradients_double}}};

#define PIECE 4096 /* elements */

typedef struct {
    Loop loop;
    Elements all;
    size_t size; /* of one */
} Pieces;

static void
run_pieces(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Pieces *pieces = context;
    const Elements *all = &pieces->all;
    Py_ssize_t start = first * PIECE, end = last * PIECE < all->count ? last * PIECE : all->count;
    size_t bytes = start * pieces->size;
    Elements some = {(const char *)all->x + bytes, all->g == NULL ? NULL : (const char *)all->g + bytes,
                     (char *)all->out + bytes, end - start};
    pieces->loop(&some);
}

static PyObject *
run(PyArrayObject *x, PyArrayObject *g, int kind)
{
    PyObject *out = new_like(x);
    if (out != NULL) {
        int is_double = PyArray_TYPE(x) == NPY_DOUBLE;
        Py_ssize_t count = PyArray_SIZE(x);
        Pieces pieces = {loops[g != NULL][kind][is_double],
                         {PyArray_DATA(x), g == NULL ? NULL : PyArray_DATA(g), data_of(out), count},
                         PyArray_ITEMSIZE(x)};
        WORK(count, divide(run_pieces, &pieces, (count + PIECE - 1) / PIECE, (is_double ? 5.0 : 0.7) * count));
    }
    return out;
}

static PyObject *
values(PyObject *x, int kind)
{
    return is_plain(x) ? run((PyArrayObject *)x, NULL, kind) : Py_NewRef(Py_None);
}

static PyObject *
gradients(PyObject *given, PyObject *x, int kind)
{
    PyArrayObject *g = is_plain(x) ? gradient_like(given, (PyArrayObject *)x) : NULL;
    if (g == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *out = run((PyArrayObject *)x, g, kind);
    Py_DECREF(g);
    return out;
}

/* gelu(x, curve) */
PyObject *
gelu(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return count != 2 ? Py_NewRef(Py_None) : values(arguments[0], arguments[1] == Py_True ? TANH_CURVE : PROBABILITY);
}

/* gelu_gradient(g, x, curve) */
PyObject *
gelu_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return count != 3 ? Py_NewRef(Py_None)
                      : gradients(arguments[0], arguments[1], arguments[2] == Py_True ? TANH_CURVE : PROBABILITY);
}

/* silu_values(x) */
PyObject *
silu_values(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return count != 1 ? Py_NewRef(Py_None) : values(arguments[0], SIGMOID);
}

/* silu_slopes(g, x) -> the gradient */
PyObject *
silu_slopes(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return count != 2 ? Py_NewRef(Py_None) : gradients(arguments[0], arguments[1], SIGMOID);
}
