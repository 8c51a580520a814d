/* layer_norm and rms_norm: rows over their standard deviations, a row at a time, so that it stays in the cache. */
#include "kernels/kernels.h"
#define SUMS_IN_ANY_ORDER
#include "loops/compile.h"

typedef struct {
    const void *x, *g, *weight, *bias; /* weight and bias may be NULL */
    void *out, *mean, *rstd;           /* mean is NULL for rms_norm, which subtracts none */
    void *of_weight, *of_bias;         /* NULL if not wanted */
    double *scratch;
    Py_ssize_t rows, width;
    double eps;
} RowNorm;

#define REAL float
#include "loops/block_sums.h"
#include "kernels/layer_norm_rows.h"
#undef REAL
#define REAL double
#include "loops/block_sums.h"
#include "kernels/layer_norm_rows.h"
#undef REAL

/* The shape of what there is one of for every row: the last dimensions have become 1. */
static void
row_shape(PyArrayObject *x, int dims, npy_intp *shape)
{
    for (int k = 0; k < PyArray_NDIM(x); k++) {
        shape[k] = k < PyArray_NDIM(x) - dims ? PyArray_DIM(x, k) : 1;
    }
}

static Py_ssize_t
row_width(PyArrayObject *x, int dims)
{
    return PyArray_MultiplyList(PyArray_DIMS(x) + PyArray_NDIM(x) - dims, dims);
}

/* norm_rows(x, dims, weight, bias, eps, centred) -> (out, mean, rstd); rows are the last `dims` dimensions; without
 * `centred` no mean is subtracted, and it is None */
PyObject *
norm_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 6 || !is_plain(arguments[0])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    int dims = (int)PyLong_AsLong(arguments[1]), type = PyArray_TYPE(x), centred = PyObject_IsTrue(arguments[5]);
    double eps = PyFloat_AsDouble(arguments[4]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t width = row_width(x, dims);
    if (!is_alike(arguments[2], x, width) || !is_alike(arguments[3], x, width)) {
        Py_RETURN_NONE;
    }
    npy_intp shape[NPY_MAXDIMS];
    row_shape(x, dims, shape);
    PyObject *found = three(new_like(x), new_if(centred, PyArray_NDIM(x), shape, type),
                            new_array(PyArray_NDIM(x), shape, type));
    double *scratch = PyMem_Malloc(2 * width * sizeof(double));
    if (found != NULL && scratch != NULL) {
        RowNorm given = {.x = PyArray_DATA(x), .weight = data_of(arguments[2]), .bias = data_of(arguments[3]),
                         .out = data_of(PyTuple_GET_ITEM(found, 0)), .mean = data_of(PyTuple_GET_ITEM(found, 1)),
                         .rstd = data_of(PyTuple_GET_ITEM(found, 2)), .scratch = scratch,
                         .rows = PyArray_SIZE(x) / width, .width = width, .eps = eps};
        WORK(PyArray_SIZE(x), type == NPY_FLOAT ? run_norm_rows_float(&given) : run_norm_rows_double(&given));
    }
    return finished(found, scratch);
}

/* norm_rows_gradient(g, x, dims, mean, rstd, weight, needs) -> gradients of x, weight and bias, None where none is
 * needed; mean is None if none was subtracted */
PyObject *
norm_rows_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 7 || !is_plain(arguments[1]) || !PyTuple_Check(arguments[6]) || PyTuple_GET_SIZE(arguments[6]) != 3) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[1];
    int dims = (int)PyLong_AsLong(arguments[2]), type = PyArray_TYPE(x);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t width = row_width(x, dims), rows = PyArray_SIZE(x) / width;
    if (!is_alike(arguments[3], x, rows) || arguments[4] == Py_None || !is_alike(arguments[4], x, rows) ||
        !is_alike(arguments[5], x, width)) {
        Py_RETURN_NONE;
    }
    PyArrayObject *g = gradient_like(arguments[0], x);
    if (g == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *needs = arguments[6];
    const npy_intp *shape = PyArray_DIMS(x) + PyArray_NDIM(x) - dims;
    PyObject *found = three(new_if(PyTuple_GET_ITEM(needs, 0) == Py_True, PyArray_NDIM(x), PyArray_DIMS(x), type),
                            new_if(PyTuple_GET_ITEM(needs, 1) == Py_True, dims, shape, type),
                            new_if(PyTuple_GET_ITEM(needs, 2) == Py_True, dims, shape, type));
    double *scratch = PyMem_Malloc(5 * width * sizeof(double));
    if (found != NULL && scratch != NULL) {
        RowNorm given = {.x = PyArray_DATA(x), .g = PyArray_DATA(g), .weight = data_of(arguments[5]),
                         .mean = data_of(arguments[3]), .rstd = data_of(arguments[4]),
                         .out = data_of(PyTuple_GET_ITEM(found, 0)), .of_weight = data_of(PyTuple_GET_ITEM(found, 1)),
                         .of_bias = data_of(PyTuple_GET_ITEM(found, 2)), .scratch = scratch, .rows = rows,
                         .width = width};
        WORK(PyArray_SIZE(x),
             type == NPY_FLOAT ? run_norm_rows_gradient_float(&given) : run_norm_rows_gradient_double(&given));
    }
    Py_DECREF(g);
    return finished(found, scratch);
}
