/* softmax and log_softmax along the last dimension, a row at a time, so that it stays in the cache. */
#include "kernels/kernels.h"
#include "loops/exp.h"
#include "loops/threads.h"

#include <stdatomic.h>

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
    Py_ssize_t columns, size; /* of a row, in bytes */
    atomic_int is_refused;
} Rows;

static void
run_rows(void *context, Py_ssize_t first, Py_ssize_t last)
{
    Rows *rows = context;
    Py_ssize_t bytes = first * rows->size;
    if (!rows->loop(rows->first + bytes, rows->second == NULL ? NULL : rows->second + bytes, rows->out + bytes,
                    last - first, rows->columns)) {
        atomic_store(&rows->is_refused, 1);
    }
}

static PyObject *
over_rows(PyObject *first, PyArrayObject *like, const void *second, Loop of_float, Loop of_double)
{
    PyObject *out = new_like(like);
    if (out != NULL) {
        Py_ssize_t columns = PyArray_DIM(like, PyArray_NDIM(like) - 1), size = PyArray_SIZE(like);
        int is_float = PyArray_TYPE(like) == NPY_FLOAT;
        Rows rows = {is_float ? of_float : of_double, data_of(first), second, data_of(out), columns,
                     columns * PyArray_ITEMSIZE(like)};
        WORK(size, divide(run_rows, &rows, size / columns, (is_float ? 0.7 : 2.0) * size));
        if (rows.is_refused) { /* NumPy warns of infinite numbers, or raises, as np.errstate says */
            Py_SETREF(out, Py_NewRef(Py_None));
        }
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
