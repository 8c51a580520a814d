/* Elementwise functions of small arrays: twins of functions of ops/pointwise/ (activations.py, where_clamp.py, exp_log.py,
 * sigmoid_logit.py, trigonometric.py, abs_sign.py). They are computed in double precision, one number after the other:
 * beyond a few hundred, NumPy's vectors are faster.
 */
#include "kernels/kernels.h"
#include "twins/table.h"

#include <math.h>

#define SMALL 512

/* ---- reading arguments */

/* The array, if it is one of a few real numbers that lie one after the other. */
static PyArrayObject *
small_array(PyObject *object)
{
    return is_plain(object) && PyArray_SIZE((PyArrayObject *)object) <= SMALL ? (PyArrayObject *)object : NULL;
}

/* The same, if it is of the shape and dtype of another, too. */
static PyArrayObject *
small_beside(PyObject *object, PyArrayObject *other)
{
    PyArrayObject *array = other == NULL ? NULL : small_array(object);
    return array != NULL && PyArray_TYPE(array) == PyArray_TYPE(other) && PyArray_SAMESHAPE(array, other) ? array
                                                                                                         : NULL;
}

/* Finite numbers; whether all are. */
static int
read_numbers(PyObject *const *objects, int count, double *numbers)
{
    for (int k = 0; k < count; k++) {
        if (!PyFloat_CheckExact(objects[k]) && !PyLong_CheckExact(objects[k])) {
            return 0;
        }
        numbers[k] = PyFloat_AsDouble(objects[k]);
        if (PyErr_Occurred() || !isfinite(numbers[k])) {
            PyErr_Clear();
            return 0;
        }
    }
    return 1;
}

/* ---- the loops: v is an element of the first array, w of the second, p the numbers */

static inline double
sigmoid(double v)
{
    double e = exp(-fabs(v));
    return (v >= 0 ? 1 : e) / (1 + e);
}

typedef void (*Loop)(const void *first, const void *second, const double *p, void *out, npy_intp n);

/* Not inlined, so that the compiler moves no arithmetic across the looks at the processor's notes. */
#define LOOP(NAME, REAL, FORMULA)                                                                                     \
    static __attribute__((noinline)) void NAME##_##REAL(const void *first, const void *second, const double *p,       \
                                                        void *out, npy_intp n)                                        \
    {                                                                                                                 \
        for (npy_intp i = 0; i < n; i++) {                                                                            \
            const double v = ((const REAL *)first)[i], w = ((const REAL *)second)[i];                                 \
            (void)w;                                                                                                  \
            (void)p;                                                                                                  \
            ((REAL *)out)[i] = (REAL)(FORMULA);                                                                       \
        }                                                                                                             \
    }

#define LOOPS(NAME, FORMULA)    \
    LOOP(NAME, float, FORMULA)  \
    LOOP(NAME, double, FORMULA) \
    static const Loop NAME[] = {NAME##_float, NAME##_double};

LOOPS(clamp_low, v < p[0] ? p[0] : v)
LOOPS(clamp_high, v > p[0] ? p[0] : v)
LOOPS(clamp_both, v != v ? v : p[1] < p[0] || v > p[1] ? p[1] : v < p[0] ? p[0] : v)
LOOPS(keep_above, v >= p[0] ? w : 0)
LOOPS(keep_below, v <= p[0] ? w : 0)
LOOPS(keep_inside, v >= p[0] && v <= p[1] ? w : 0)
LOOPS(sigmoid_of, sigmoid(v))
LOOPS(slope_of_sigmoid, w * v * (1 - v))
LOOPS(slope_of_tanh, w *(1 - v * v))
LOOPS(silu_of, v *sigmoid(v))
LOOPS(slope_of_silu, w *sigmoid(v) * (1 + v * (1 - sigmoid(v))))
LOOPS(softplus, v *p[0] > p[1] ? v : (fmax(v * p[0], 0) + log1p(exp(-fabs(v * p[0])))) / p[0])
LOOPS(elu, v > 0 ? v * p[1] : expm1(v * p[2]) * (p[0] * p[1]))
LOOPS(slope_of_elu, w *(v <= 0 ? exp(v * p[2]) * (p[0] * p[1] * p[2]) : p[1]))

/* The result of a loop; NULL without an exception if there are no such arrays, or the processor noted an exception:
 * NumPy says what it thinks of it. */
static PyObject *
run(const Loop *loops, PyArrayObject *first, PyArrayObject *second, const double *p)
{
    PyArrayObject *out = first == NULL || second == NULL ? NULL : (PyArrayObject *)new_like(first);
    if (out == NULL) {
        return NULL;
    }
    forget_exceptions();
    loops[PyArray_TYPE(first) == NPY_DOUBLE](PyArray_DATA(first), PyArray_DATA(second), p, PyArray_DATA(out),
                                             PyArray_SIZE(first));
    if (exceptions_noted() & ~UNDERFLOW_NOTED) {
        Py_CLEAR(out);
    }
    return (PyObject *)out;
}

static PyObject *
run_one(const Loop *loops, PyObject *object, const double *p)
{
    PyArrayObject *array = small_array(object);
    return run(loops, array, array, p);
}

/* ---- straight lines */

/* Whether a bound is a number that arrays of this dtype can hold. */
static int
is_bound(PyObject *bound, PyArrayObject *array, double *number)
{
    if (!read_numbers(&bound, 1, number)) {
        return 0;
    }
    *number = PyArray_TYPE(array) == NPY_FLOAT ? (float)*number : *number; /* as NumPy compares them */
    return isfinite(*number);
}

/* Which of three loops the bounds ask for (lower, upper, both); NULL if they are not numbers. */
static const Loop *
bounded(PyArrayObject *array, PyObject *low, PyObject *high, const Loop *const *loops, double *p)
{
    if (array == NULL || (low == Py_None && high == Py_None)) {
        return NULL;
    }
    if (low == Py_None || high == Py_None) {
        return is_bound(low == Py_None ? high : low, array, p) ? loops[low == Py_None] : NULL;
    }
    return is_bound(low, array, p) && is_bound(high, array, p + 1) ? loops[2] : NULL;
}

/* clamped_to_numbers(xp, input, min, max) */
PyObject *
clamped_to_numbers(PyObject *const *arguments)
{
    const Loop *const loops[] = {clamp_low, clamp_high, clamp_both};
    double p[2];
    PyArrayObject *input = small_array(arguments[1]);
    const Loop *chosen = bounded(input, arguments[2], arguments[3], loops, p);
    return chosen == NULL ? NULL : run(chosen, input, input, p);
}

/* clamp_to_numbers_rule(xp, g, input, min, max) */
PyObject *
clamp_to_numbers_rule(PyObject *const *arguments)
{
    const Loop *const loops[] = {keep_above, keep_below, keep_inside};
    double p[2];
    PyArrayObject *input = small_array(arguments[2]), *grad = small_beside(arguments[1], input);
    const Loop *chosen = grad == NULL ? NULL : bounded(input, arguments[3], arguments[4], loops, p);
    return chosen == NULL ? NULL : run(chosen, input, grad, p);
}

#define FILL(REAL)                                                                                                    \
    static void fill_##REAL(const REAL *x, const npy_bool *mask, REAL value, REAL *out, npy_intp n)                   \
    {                                                                                                                 \
        for (npy_intp i = 0; i < n; i++) {                                                                            \
            out[i] = mask[i] ? value : x[i];                                                                          \
        }                                                                                                             \
    }

FILL(float)
FILL(double)

/* masked_fill_array(xp, input, mask, value), of a number */
PyObject *
masked_fill_array(PyObject *const *arguments)
{
    PyArrayObject *input = (PyArrayObject *)arguments[1], *mask = (PyArrayObject *)arguments[2];
    PyObject *value = arguments[3];
    if (!is_plain(arguments[1]) || !PyArray_CheckExact(mask) || PyArray_TYPE(mask) != NPY_BOOL ||
        !PyArray_ISCARRAY_RO(mask) || !PyArray_SAMESHAPE(input, mask) ||
        !(PyFloat_CheckExact(value) || PyLong_CheckExact(value))) {
        return NULL;
    }
    double number = PyFloat_AsDouble(value);
    int single = PyArray_TYPE(input) == NPY_FLOAT;
    if (PyErr_Occurred() || (single && isfinite(number) && !isfinite((float)number))) {
        PyErr_Clear();
        return NULL;
    }
    PyArrayObject *out = (PyArrayObject *)new_like(input);
    npy_intp n = PyArray_SIZE(input);
    if (out != NULL) {
        WORK(n, single ? fill_float(PyArray_DATA(input), PyArray_DATA(mask), (float)number, PyArray_DATA(out), n)
                       : fill_double(PyArray_DATA(input), PyArray_DATA(mask), number, PyArray_DATA(out), n));
    }
    return (PyObject *)out;
}

/* ---- exponentials */

/* logistic(xp, input) */
PyObject *
logistic(PyObject *const *arguments)
{
    return run_one(sigmoid_of, arguments[1], NULL);
}

/* sigmoid_gradient(xp, grad_output, output) */
PyObject *
sigmoid_gradient(PyObject *const *arguments)
{
    PyArrayObject *output = small_array(arguments[2]);
    return run(slope_of_sigmoid, output, small_beside(arguments[1], output), NULL);
}

/* tanh_gradient(xp, grad_output, output) */
PyObject *
tanh_gradient(PyObject *const *arguments)
{
    PyArrayObject *output = small_array(arguments[2]);
    return run(slope_of_tanh, output, small_beside(arguments[1], output), NULL);
}

/* sigmoid_linear(xp, input) */
PyObject *
sigmoid_linear(PyObject *const *arguments)
{
    return run_one(silu_of, arguments[1], NULL);
}

/* silu_gradient(xp, g, input) */
PyObject *
slope_of_silu_twin(PyObject *const *arguments)
{
    PyArrayObject *input = small_array(arguments[2]);
    return run(slope_of_silu, input, small_beside(arguments[1], input), NULL);
}

/* log_one_plus_exp(xp, input, beta, threshold) */
PyObject *
log_one_plus_exp(PyObject *const *arguments)
{
    double p[2];
    return read_numbers(arguments + 2, 2, p) && p[0] != 0 ? run_one(softplus, arguments[1], p) : NULL;
}

/* exponential_linear(xp, input, alpha, scale, input_scale) */
PyObject *
exponential_linear(PyObject *const *arguments)
{
    double p[3];
    return read_numbers(arguments + 2, 3, p) ? run_one(elu, arguments[1], p) : NULL;
}

/* elu_gradient(xp, g, input, alpha, scale, input_scale) */
PyObject *
elu_gradient(PyObject *const *arguments)
{
    double p[3];
    PyArrayObject *input = small_array(arguments[2]);
    return read_numbers(arguments + 3, 3, p) ? run(slope_of_elu, input, small_beside(arguments[1], input), p) : NULL;
}
