/* Elementwise functions that look at dtypes first, where these are the usual ones: twins of functions of
 * ops/pointwise/arithmetic.py, comparison.py, powers.py and gelu.py, and of backend/large_arrays.py. */
#include "formula/direct.h"
#include "formula/small_arrays.h"
#include "kernels/kernels.h"
#include "quiet.h"
#include "twins/table.h"

#include <math.h>

/* The value of a ufunc of small arrays; those that are large may be divided among threads. */
static PyObject *
small_value(PyObject *ufunc, PyObject *const *operands, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        if (PyArray_CheckExact(operands[k]) && PyArray_SIZE((PyArrayObject *)operands[k]) > WITHOUT_LOCK) {
            return NULL;
        }
    }
    return direct_result(ufunc, operands, count);
}

/* difference(xp, a, b) */
PyObject *
difference(PyObject *const *arguments)
{
    return small_value(ufuncs[1], arguments + 1, 2);
}

/* negated(xp, input) */
PyObject *
negated(PyObject *const *arguments)
{
    return small_value(negative, arguments + 1, 1);
}

/* One of NumPy's comparisons, found by its name when it is first needed. */
static PyObject *
compared(PyObject *const *arguments, PyObject **ufunc, const char *name)
{
    if (*ufunc == NULL) {
        PyObject *numpy = PyImport_ImportModule("numpy");
        *ufunc = numpy == NULL ? NULL : PyObject_GetAttrString(numpy, name);
        Py_XDECREF(numpy);
    }
    return *ufunc == NULL ? NULL : small_value(*ufunc, arguments + 1, 2);
}

#define COMPARISON(name)                                  \
    PyObject *name(PyObject *const *arguments)            \
    {                                                     \
        static PyObject *ufunc;                           \
        return compared(arguments, &ufunc, #name);        \
    }

COMPARISON(less)
COMPARISON(less_equal)
COMPARISON(greater)
COMPARISON(greater_equal)

#define FEW_POWERS 64

/* Exponents for which the loops of formula/functions.c multiply, and NumPy's takes logarithms. */
static int
is_better_multiplied(double exponent)
{
    return fabs(exponent) > 2 || exponent == -2;
}

/* power(xp, input, exponent), of real numbers */
PyObject *
power(PyObject *const *arguments)
{
    PyObject *input = arguments[1], *exponent = arguments[2];
    if (!is_plain(input) || PyArray_SIZE((PyArrayObject *)input) > WITHOUT_LOCK ||
        !(PyLong_CheckExact(exponent) || PyFloat_CheckExact(exponent))) {
        return NULL;
    }
    if (PyLong_CheckExact(exponent) && PyLong_AsLong(exponent) == 2) {
        PyObject *factors[2] = {input, input};
        return small_value(ufuncs[2], factors, 2);
    }
    PyErr_Clear(); /* of an exponent that is no C integer */
    double number = PyFloat_AsDouble(exponent);
    PyErr_Clear();
    if (number == -0.5 || (PyArray_SIZE((PyArrayObject *)input) > FEW_POWERS && is_better_multiplied(number))) {
        return NULL;
    }
    PyObject *context = enter_quiet();
    PyObject *result = PyNumber_Power(input, exponent, Py_None);
    leave_quiet(context);
    return result;
}

/* gaussian_linear(xp, input, approximate) */
PyObject *
gaussian_linear(PyObject *const *arguments)
{
    PyObject *approximate = arguments[2];
    if (!is_plain(arguments[1]) || PyArray_SIZE((PyArrayObject *)arguments[1]) > 4096 ||
        !PyUnicode_CheckExact(approximate)) {
        return NULL;
    }
    int by_tanh = PyUnicode_CompareWithASCIIString(approximate, "tanh") == 0;
    if (!by_tanh && PyUnicode_CompareWithASCIIString(approximate, "none") != 0) {
        return NULL;
    }
    PyObject *given[2] = {arguments[1], by_tanh ? Py_True : Py_False};
    PyObject *found = gelu(NULL, given, 2);
    if (found == Py_None) {
        Py_CLEAR(found);
    }
    return found;
}

/* copied(array) */
PyObject *
copied_small(PyObject *const *arguments)
{
    PyArrayObject *array = (PyArrayObject *)arguments[0];
    return PyArray_CheckExact(array) && PyArray_SIZE(array) < WITHOUT_LOCK ? PyArray_NewCopy(array, NPY_KEEPORDER) : NULL;
}
