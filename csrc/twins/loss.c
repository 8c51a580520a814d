/* Softmax and cross entropy: twins of functions of ops/network/softmax.py and ops/network/cross_entropy.py. */
#include "kernels/fills.h"
#include "kernels/kernels.h"
#include "loops/exp.h"
#include "twins/arrays.h"
#include "twins/table.h"

#include <math.h>

/* ---- cross entropy, where scores are few */

#define FEW_SCORES 4096

/* Whether these are so many targets of which none is to be ignored or refused. */
static int
are_simple_targets(PyObject *target, npy_intp rows, npy_intp count, PyObject *ignored)
{
    PyArrayObject *classes = (PyArrayObject *)target;
    if (!PyArray_CheckExact(target) || PyArray_NDIM(classes) != 1 || PyArray_TYPE(classes) != NPY_INT64 ||
        !PyArray_ISCARRAY_RO(classes) || PyArray_DIM(classes, 0) != rows || rows == 0 || !PyLong_CheckExact(ignored)) {
        return 0;
    }
    npy_int64 without = PyLong_AsLongLong(ignored);
    const npy_int64 *own = PyArray_DATA(classes);
    for (npy_intp i = 0; i < rows; i++) {
        if (own[i] < 0 || own[i] >= count || own[i] == without) {
            PyErr_Clear();
            return 0;
        }
    }
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return 1;
}

/* The scores (an array of rows) and targets of a loss that has no exceptions: no weights, no target to ignore or
 * refuse. Whether it is such a one. */
static int
is_simple_loss(PyObject *scores, PyObject *target, PyObject *ignored)
{
    PyArrayObject *input = plain_array(scores, 2);
    return input != NULL && PyArray_SIZE(input) <= FEW_SCORES && PyArray_DIM(input, 1) != 0 &&
           are_simple_targets(target, PyArray_DIM(input, 0), PyArray_DIM(input, 1), ignored);
}

#define REAL float
#include "loops/max_and_sum.h"
#undef REAL
#define REAL double
#include "loops/max_and_sum.h"
#undef REAL

/* below these, exponentials are 0; of -infinity, too, of which the processor would take note */
#define LEAST_float -100
#define LEAST_double -800

/* The largest of a row need not be NaN where one of its numbers is: the sum is. */
#define CROSS_ENTROPY(type)                                                                                           \
    CLONES static double exponentials_##type(const type *x, type *largest, npy_intp columns, type *out)               \
    {                                                                                                                 \
        type most = *largest = largest_##type(x, columns);                                                            \
        for (npy_intp j = 0; j < columns; j++) {                                                                      \
            type below = x[j] - most;                                                                                 \
            out[j] = decay_##type(below < LEAST_##type ? LEAST_##type : below);                                       \
        }                                                                                                             \
        return sum_of_##type(out, NULL, columns);                                                                     \
    }                                                                                                                 \
                                                                                                                      \
    static double losses_##type(const type *x, const npy_int64 *target, npy_intp rows, npy_intp columns, type *out)   \
    {                                                                                                                 \
        double total = 0;                                                                                             \
        type largest, some[FEW_SCORES];                                                                               \
        for (npy_intp i = 0; i < rows; i++, x += columns) {                                                           \
            double sum = exponentials_##type(x, &largest, columns, some);                                             \
            double loss = log(sum) - (x[target[i]] - largest);                                                        \
            out[i] = (type)loss;                                                                                      \
            total += loss;                                                                                            \
        }                                                                                                             \
        return total;                                                                                                 \
    }                                                                                                                 \
                                                                                                                      \
    static void slopes_##type(const type *x, const npy_int64 *target, const type *grad, npy_intp rows,                \
                              npy_intp columns, type *out)                                                            \
    {                                                                                                                 \
        for (npy_intp i = 0; i < rows; i++, x += columns, out += columns) {                                           \
            type largest, scale = (type)(grad[i] / exponentials_##type(x, &largest, columns, out));                   \
            for (npy_intp j = 0; j < columns; j++) {                                                                  \
                out[j] *= scale;                                                                                      \
            }                                                                                                         \
            out[target[i]] -= grad[i];                                                                                \
        }                                                                                                             \
    }

CROSS_ENTROPY(float)
CROSS_ENTROPY(double)

static int
is_reduction(PyObject *reduction, const char *name)
{
    return PyUnicode_Check(reduction) && PyUnicode_CompareWithASCIIString(reduction, name) == 0;
}

/* cross_entropy_forward(xp, input, target, weight, ignore_index, reduction) */
PyObject *
cross_entropy_forward(PyObject *const *arguments)
{
    PyObject *reduction = arguments[5];
    int mean = is_reduction(reduction, "mean"), sum = !mean && is_reduction(reduction, "sum");
    if (arguments[3] != Py_None || !(mean || sum || is_reduction(reduction, "none")) ||
        !is_simple_loss(arguments[1], arguments[2], arguments[4])) {
        return NULL;
    }
    PyArrayObject *input = (PyArrayObject *)arguments[1];
    const npy_int64 *target = PyArray_DATA((PyArrayObject *)arguments[2]);
    npy_intp rows = PyArray_DIM(input, 0), columns = PyArray_DIM(input, 1);
    PyArrayObject *out = (PyArrayObject *)new_array(1, &rows, PyArray_TYPE(input));
    if (out == NULL) {
        return NULL;
    }
    int single = PyArray_DESCR(input) == core.float32;
    forget_exceptions();
    double total = single ? losses_float(PyArray_DATA(input), target, rows, columns, PyArray_DATA(out))
                          : losses_double(PyArray_DATA(input), target, rows, columns, PyArray_DATA(out));
    if (exceptions_noted() & ~UNDERFLOW_NOTED) { /* infinite scores: NumPy says what it thinks of them */
        Py_DECREF(out);
        return NULL;
    }
    if (mean || sum) {
        total = mean ? total / rows : total;
        Py_SETREF(out, (PyArrayObject *)new_array(0, NULL, PyArray_TYPE(input)));
        if (out != NULL && single) {
            *(float *)PyArray_DATA(out) = (float)total;
        }
        else if (out != NULL) {
            *(double *)PyArray_DATA(out) = total;
        }
    }
    return (PyObject *)out;
}

/* softmax_minus_target(xp, grad_output, target, input, ignore_index) */
PyObject *
softmax_minus_target(PyObject *const *arguments)
{
    PyArrayObject *grad = plain_array(arguments[1], 1), *input = (PyArrayObject *)arguments[3];
    if (grad == NULL || !is_simple_loss(arguments[3], arguments[2], arguments[4]) ||
        PyArray_DESCR(grad) != PyArray_DESCR(input) || PyArray_DIM(grad, 0) != PyArray_DIM(input, 0)) {
        return NULL;
    }
    const npy_int64 *target = PyArray_DATA((PyArrayObject *)arguments[2]);
    npy_intp rows = PyArray_DIM(input, 0), columns = PyArray_DIM(input, 1);
    PyArrayObject *out = (PyArrayObject *)new_array(2, PyArray_DIMS(input), PyArray_TYPE(input));
    if (out != NULL && PyArray_DESCR(input) == core.float32) {
        slopes_float(PyArray_DATA(input), target, PyArray_DATA(grad), rows, columns, PyArray_DATA(out));
    }
    else if (out != NULL) {
        slopes_double(PyArray_DATA(input), target, PyArray_DATA(grad), rows, columns, PyArray_DATA(out));
    }
    return (PyObject *)out;
}

/* target_coefficients(xp, target, weight, classes, ignore_index, reduction, dtype): how much every target counts */
PyObject *
target_coefficients(PyObject *const *arguments)
{
    PyArrayObject *target = (PyArrayObject *)arguments[1];
    PyArray_Descr *dtype = (PyArray_Descr *)arguments[6];
    if (!PyArray_CheckExact(target) || PyArray_NDIM(target) != 1 || PyArray_TYPE(target) != NPY_INT64 ||
        !PyArray_ISCARRAY_RO(target) || arguments[2] != Py_None || !PyLong_CheckExact(arguments[3]) ||
        !PyLong_CheckExact(arguments[4]) || (dtype != core.float32 && dtype != core.float64) ||
        !PyUnicode_Check(arguments[5])) {
        return NULL;
    }
    long long classes = PyLong_AsLongLong(arguments[3]), without = PyLong_AsLongLong(arguments[4]);
    const npy_int64 *own = PyArray_DATA(target);
    npy_intp count = PyArray_DIM(target, 0);
    for (npy_intp i = 0; i < count; i++) {
        if (own[i] < 0 || own[i] >= classes || own[i] == without) {
            return NULL;
        }
    }
    double each = is_reduction(arguments[5], "mean") && count ? 1.0 / count : 1;
    PyArrayObject *out = PyErr_Occurred() ? NULL : (PyArrayObject *)new_array(1, &count, dtype->type_num);
    for (npy_intp i = 0; out != NULL && i < count; i++) {
        if (dtype == core.float32) {
            ((float *)PyArray_DATA(out))[i] = (float)each;
        }
        else {
            ((double *)PyArray_DATA(out))[i] = each;
        }
    }
    return (PyObject *)out;
}

/* ---- the score of one class, and a number in its place */

#define CHOSEN(type)                                                                                                  \
    static double losses_of_chosen_##type(const type *x, const npy_int64 *target, npy_intp rows, npy_intp columns,    \
                                          double each, type *coefficients, type *out)                                 \
    {                                                                                                                 \
        double total = 0;                                                                                             \
        for (npy_intp i = 0; i < rows; i++, x += columns) {                                                           \
            type loss = -x[target[i]];                                                                                \
            coefficients[i] = (type)each;                                                                             \
            total += (double)loss * (type)each;                                                                       \
            if (out != NULL) {                                                                                        \
                out[i] = loss;                                                                                        \
            }                                                                                                         \
        }                                                                                                             \
        return total;                                                                                                 \
    }                                                                                                                 \
                                                                                                                      \
    static void put_chosen_##type(const type *x, const npy_int64 *target, npy_intp rows, npy_intp columns, type *out) \
    {                                                                                                                 \
        for (npy_intp i = 0; i < rows; i++, out += columns) {                                                         \
            out[target[i]] = x[i];                                                                                    \
        }                                                                                                             \
    }

CHOSEN(float)
CHOSEN(double)

/* nll_forward(xp, input, target, weight, ignore_index, reduction): the loss, and how much every target counts */
PyObject *
nll_forward(PyObject *const *arguments)
{
    PyObject *reduction = arguments[5];
    PyArrayObject *input = plain_array(arguments[1], 2);
    int mean = is_reduction(reduction, "mean"), all = !mean && is_reduction(reduction, "none");
    if (input == NULL || arguments[3] != Py_None || !(mean || all || is_reduction(reduction, "sum")) ||
        !are_simple_targets(arguments[2], PyArray_DIM(input, 0), PyArray_DIM(input, 1), arguments[4])) {
        return NULL;
    }
    const npy_int64 *target = PyArray_DATA((PyArrayObject *)arguments[2]);
    npy_intp rows = PyArray_DIM(input, 0), columns = PyArray_DIM(input, 1);
    int type = PyArray_TYPE(input);
    PyArrayObject *coefficients = (PyArrayObject *)new_array(1, &rows, type);
    PyArrayObject *out = (PyArrayObject *)new_array(all, &rows, type);
    double each = mean ? 1.0 / rows : 1;
    if (out == NULL || coefficients == NULL) {
        Py_XDECREF(out);
        Py_XDECREF(coefficients);
        return NULL;
    }
    void *to = PyArray_DATA(out), *counts = PyArray_DATA(coefficients);
    if (type == NPY_FLOAT) {
        double total = losses_of_chosen_float(PyArray_DATA(input), target, rows, columns, each, counts, all ? to : NULL);
        *(float *)to = all ? *(float *)to : (float)total;
    }
    else {
        double total = losses_of_chosen_double(PyArray_DATA(input), target, rows, columns, each, counts, all ? to : NULL);
        *(double *)to = all ? *(double *)to : total;
    }
    return Py_BuildValue("NN", out, coefficients);
}

/* scores_from_classes(xp, input, target, classes, ignore_index): zeros, but for the numbers in the places of the targets */
PyObject *
scores_from_classes(PyObject *const *arguments)
{
    PyArrayObject *input = plain_array(arguments[1], 1);
    long long classes = PyLong_CheckExact(arguments[3]) ? PyLong_AsLongLong(arguments[3]) : -1;
    if (input == NULL || classes < 0 ||
        !are_simple_targets(arguments[2], PyArray_DIM(input, 0), (npy_intp)classes, arguments[4])) {
        PyErr_Clear();
        return NULL;
    }
    const npy_int64 *target = PyArray_DATA((PyArrayObject *)arguments[2]);
    npy_intp shape[2] = {PyArray_DIM(input, 0), (npy_intp)classes};
    PyArray_Descr *dtype = PyArray_DESCR(input);
    Py_INCREF(dtype);
    PyArrayObject *out = (PyArrayObject *)new_large(2, shape, NULL, dtype);
    if (out == NULL) {
        return NULL;
    }
    zero_array(out);
    if (dtype == core.float32) {
        put_chosen_float(PyArray_DATA(input), target, shape[0], shape[1], PyArray_DATA(out));
    }
    else {
        put_chosen_double(PyArray_DATA(input), target, shape[0], shape[1], PyArray_DATA(out));
    }
    return (PyObject *)out;
}

/* ---- softmax, along the last dimension: the kernels of kernels/softmax.c */

typedef PyObject *(*RowKernel)(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

/* What a kernel gives for the rows of `like`, if they lie along `dim`. */
static PyObject *
along_rows(RowKernel kernel, PyObject *const *arguments, Py_ssize_t count, PyObject *like, PyObject *dim)
{
    if (!PyArray_CheckExact(like) || !PyLong_CheckExact(dim)) {
        return NULL;
    }
    int overflow;
    long axis = PyLong_AsLongAndOverflow(dim, &overflow);
    if (overflow || (axis != -1 && axis != PyArray_NDIM((PyArrayObject *)like) - 1)) {
        return NULL;
    }
    PyObject *out = kernel(NULL, arguments, count);
    if (out == Py_None) { /* it leaves these to NumPy */
        Py_CLEAR(out);
    }
    return out;
}

/* normalized_exponentials(xp, input, dim, dtype) */
PyObject *
normalized_exponentials(PyObject *const *arguments)
{
    return arguments[3] == Py_None ? along_rows(softmax_rows, arguments + 1, 1, arguments[1], arguments[2]) : NULL;
}

/* logs_of_softmax(xp, input, dim, dtype) */
PyObject *
logs_of_softmax(PyObject *const *arguments)
{
    return arguments[3] == Py_None ? along_rows(log_softmax_rows, arguments + 1, 1, arguments[1], arguments[2]) : NULL;
}

/* softmax_gradient(xp, grad_output, output, dim) */
PyObject *
softmax_gradient(PyObject *const *arguments)
{
    return along_rows(softmax_rows_gradient, arguments + 1, 2, arguments[2], arguments[3]);
}

/* log_softmax_gradient(xp, grad_output, output, dim) */
PyObject *
log_softmax_gradient(PyObject *const *arguments)
{
    return along_rows(log_softmax_rows_gradient, arguments + 1, 2, arguments[2], arguments[3]);
}
