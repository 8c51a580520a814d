/* softmax and log_softmax along the last dimension, a row at a time, so that it stays in the cache. */
#include "kernels/kernels.h"
#include "loops/exp.h"
#include "loops/functions.h"
#include "loops/threads.h"

#include <stdatomic.h>

#define SHORT 32  /* elements of a short row */
#define GROUP 64  /* short rows that are worked on together; their elements fit into a BLOCK */
#define AT_ONCE 8

#ifdef HAS_FUNCTIONS
#define LOGARITHM log_double
#else
#define LOGARITHM log
#endif

#define REAL float
#include "loops/max_and_sum.h"
#include "kernels/softmax_rows.h"
#undef REAL
#define REAL double
#include "loops/max_and_sum.h"
#include "kernels/softmax_rows.h"
#undef REAL

/* (input, NULL, output, rows, columns), or (gradient, result, output, rows, columns) */
typedef int (*Loop)(const void *, const void *, void *, Py_ssize_t, Py_ssize_t);

typedef struct {
    Loop loop;
    const char *first, *second; /* second may be NULL */
    char *out;
    Py_ssize_t columns, size, second_size, out_size; /* of a row, in bytes */
    atomic_int is_refused;
} Rows;

static void
run_rows(void *context, Py_ssize_t first, Py_ssize_t last)
{
    Rows *rows = context;
    const char *second = rows->second == NULL ? NULL : rows->second + first * rows->second_size;
    if (!rows->loop(rows->first + first * rows->size, second, rows->out + first * rows->out_size, last - first,
                    rows->columns)) {
        atomic_store(&rows->is_refused, 1);
    }
}

/* The result (taken over), or None. */
static PyObject *
run(Rows *rows, int is_float, Py_ssize_t size, PyObject *out)
{
    WORK(size, divide(run_rows, rows, size / rows->columns, (is_float ? 0.7 : 2.0) * size));
    if (rows->is_refused) { /* NumPy warns of infinite numbers, or raises, as np.errstate says */
        Py_SETREF(out, Py_NewRef(Py_None));
    }
    return out;
}

static PyObject *
over_rows(PyObject *first, PyArrayObject *like, const void *second, Loop of_float, Loop of_double)
{
    PyObject *out = new_like(like);
    if (out != NULL) {
        Py_ssize_t columns = PyArray_DIM(like, PyArray_NDIM(like) - 1), size = PyArray_SIZE(like);
        int is_float = PyArray_TYPE(like) == NPY_FLOAT;
        Py_ssize_t row = columns * PyArray_ITEMSIZE(like);
        Rows rows = {is_float ? of_float : of_double, data_of(first), second, data_of(out), columns, row, row, row};
        out = run(&rows, is_float, size, out);
    }
    return out;
}

static PyObject *
values(PyObject *const *arguments, Py_ssize_t count, Loop of_float, Loop of_double)
{
    if (count != 1 || !is_plain(arguments[0]) || PyArray_NDIM((PyArrayObject *)arguments[0]) == 0) {
        Py_RETURN_NONE;
    }
    return over_rows(arguments[0], (PyArrayObject *)arguments[0], NULL, of_float, of_double);
}

static PyObject *
gradients(PyObject *const *arguments, Py_ssize_t count, Loop of_float, Loop of_double)
{
    if (count != 2 || !is_plain(arguments[1]) || PyArray_NDIM((PyArrayObject *)arguments[1]) == 0) {
        Py_RETURN_NONE;
    }
    PyArrayObject *result = (PyArrayObject *)arguments[1], *g = gradient_like(arguments[0], result);
    if (g == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *out = over_rows((PyObject *)g, result, PyArray_DATA(result), of_float, of_double);
    Py_DECREF(g);
    return out;
}

/* softmax_rows(x) */
PyObject *
softmax_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return values(arguments, count, softmax_float, softmax_double);
}

/* softmax_rows_gradient(g, result) */
PyObject *
softmax_rows_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return gradients(arguments, count, softmax_gradient_float, softmax_gradient_double);
}

/* log_softmax_rows(x) */
PyObject *
log_softmax_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return values(arguments, count, log_softmax_float, log_softmax_double);
}

/* log_softmax_rows_gradient(g, result) */
PyObject *
log_softmax_rows_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return gradients(arguments, count, log_softmax_gradient_float, log_softmax_gradient_double);
}

/* Whether there is a number for each row of x. */
static int
has_row_numbers(PyObject *numbers, PyArrayObject *x)
{
    return is_plain(numbers) && PyArray_TYPE((PyArrayObject *)numbers) == PyArray_TYPE(x) &&
           PyArray_SIZE((PyArrayObject *)numbers) * PyArray_DIM(x, PyArray_NDIM(x) - 1) == PyArray_SIZE(x);
}

/* scaled_softmax_rows(x, scales): softmax_rows(x) times a number for each row */
PyObject *
scaled_softmax_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    if (count != 2 || !is_plain(arguments[0]) || PyArray_NDIM(x) == 0 || !has_row_numbers(arguments[1], x)) {
        Py_RETURN_NONE;
    }
    int is_float = PyArray_TYPE(x) == NPY_FLOAT;
    Py_ssize_t columns = PyArray_DIM(x, PyArray_NDIM(x) - 1), size = PyArray_ITEMSIZE(x);
    PyObject *out = new_like(x);
    Rows rows = {is_float ? softmax_float : softmax_double, PyArray_BYTES(x), data_of(arguments[1]), data_of(out),
                 columns, columns * size, size, columns * size};
    return out == NULL ? NULL : run(&rows, is_float, PyArray_SIZE(x), out);
}

/* logsumexp_rows(x), along the last dimension, which is left out; logsumexp_rows(x, numbers) is less by a number for each
 * row */
PyObject *
logsumexp_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    if (count < 1 || count > 2 || !is_plain(arguments[0]) || PyArray_NDIM(x) == 0 ||
        (count == 2 && !has_row_numbers(arguments[1], x))) {
        Py_RETURN_NONE;
    }
    int last = PyArray_NDIM(x) - 1, is_float = PyArray_TYPE(x) == NPY_FLOAT;
    PyObject *out = new_array(last, PyArray_DIMS(x), PyArray_TYPE(x));
    Py_ssize_t columns = PyArray_DIM(x, last), size = PyArray_ITEMSIZE(x);
    const void *less = count == 2 ? data_of(arguments[1]) : NULL;
    Rows rows = {is_float ? logsumexp_float : logsumexp_double, PyArray_BYTES(x), less, data_of(out), columns,
                 columns * size, size, size};
    return out == NULL ? NULL : run(&rows, is_float, PyArray_SIZE(x), out);
}

/* logsumexp_rows_gradient(x, pairs of the gradient of a result and the result) */
PyObject *
logsumexp_rows_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    PyArrayObject *x = (PyArrayObject *)arguments[0], *pairs = (PyArrayObject *)arguments[1];
    if (count != 2 || !is_plain(arguments[0]) || PyArray_NDIM(x) == 0 || !is_plain(arguments[1]) ||
        PyArray_TYPE(x) != PyArray_TYPE(pairs)) {
        Py_RETURN_NONE;
    }
    Py_ssize_t columns = PyArray_DIM(x, PyArray_NDIM(x) - 1), size = PyArray_ITEMSIZE(x);
    if (PyArray_SIZE(pairs) * columns != 2 * PyArray_SIZE(x)) {
        Py_RETURN_NONE;
    }
    int is_float = PyArray_TYPE(x) == NPY_FLOAT;
    PyObject *out = new_like(x);
    Rows rows = {is_float ? logsumexp_gradient_float : logsumexp_gradient_double, PyArray_BYTES(x),
                 PyArray_BYTES(pairs), data_of(out), columns, columns * size, 2 * size, columns * size};
    return out == NULL ? NULL : run(&rows, is_float, PyArray_SIZE(x), out);
}
