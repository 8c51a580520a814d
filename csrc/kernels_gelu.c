/* gelu: every number times the probability that a normal variable is less, or times a curve that is close to it.
 *
 * Both ways the value is x * p, where p is small and exact for negative x: p = exp(-a) * q, with a tame function q of
 * |x|, and 1 - exp(-a) * q for positive x. The derivative is p + x * p'.
 */
#include "kernels.h"
#include "exponential.h"

typedef struct {
    const void *x, *g;
    void *out;
    Py_ssize_t count;
} Elements;

/* ---- the probability */

/* exp(u * u) * erfc(u) for u >= 0, by a polynomial of 1 / (1 + 0.3 u), within 2e-8 of it */
INLINE float
scaled_tail_float(float u)
{
    float t = 1.0f / (1.0f + 0.3f * u);
    float p = -0.129406974f;
    p = p * t + 0.484953791f;
    p = p * t - 0.510904372f;
    p = p * t + 0.545988381f;
    p = p * t - 0.0933176130f;
    p = p * t + 0.214285195f;
    p = p * t + 0.148526743f;
    p = p * t + 0.170684710f;
    p = p * t + 0.169190124f;
    return p * t;
}

/* for |x| < 1.25, where digits would be lost otherwise; within 3e-9 */
INLINE float
central_float(float x)
{
    float z = x * x, p = -6.71799535e-06f;
    p = p * z + 0.000110655412f;
    p = p * z - 0.00118325162f;
    p = p * z + 0.00997190084f;
    p = p * z - 0.0664901137f;
    p = p * z + 0.398942262f;
    return p * x + 0.5f;
}

INLINE float
probability_float(float x, float *slope)
{
    float density = decay_float(-0.5f * x * x), size = x < 0 ? -x : x;
    float tail = 0.5f * density * scaled_tail_float(size * 0.707106781f), outer = x < 0 ? tail : 1.0f - tail;
    *slope = density * 0.398942280f;
    return size < 1.25f ? central_float(x) : outer;
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

typedef void (*Loop)(const Elements *);

/* by whether it is a gradient, by whether it is the curve, by whether it is double */
static const Loop loops[2][2][2] = {
    {{probability_values_float, probability_values_double}, {curve_values_float, curve_values_double}},
    {{probability_gradients_float, probability_gradients_double}, {curve_gradients_float, curve_gradients_double}}};

static PyObject *
run(PyArrayObject *x, PyArrayObject *g, int curve)
{
    PyObject *out = new_like(x);
    if (out != NULL) {
        Loop loop = loops[g != NULL][curve][PyArray_TYPE(x) == NPY_DOUBLE];
        Elements given = {PyArray_DATA(x), g == NULL ? NULL : PyArray_DATA(g), data_of(out), PyArray_SIZE(x)};
        WORK(given.count, loop(&given));
    }
    return out;
}

/* gelu(x, curve) */
PyObject *
gelu(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2 || !is_plain(arguments[0])) {
        Py_RETURN_NONE;
    }
    return run((PyArrayObject *)arguments[0], NULL, arguments[1] == Py_True);
}

/* gelu_gradient(g, x, curve) */
PyObject *
gelu_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3 || !is_plain(arguments[1])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[1], *g = gradient_like(arguments[0], x);
    if (g == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *out = run(x, g, arguments[2] == Py_True);
    Py_DECREF(g);
    return out;
}
