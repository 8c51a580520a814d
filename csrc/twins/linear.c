/* Linear layers with small weights: the twin of a function of ops/network/linear.py. */
#include "kernels/kernels.h"
#include "twins/arrays.h"
#include "twins/small_products.h"
#include "twins/table.h"

/* The largest weight for which nothing but the plain product is considered. */
#define SMALL_WEIGHT 4096

#define ADD_TO_ROWS(REAL)                                                                                 \
    static void add_to_rows_##REAL(REAL *restrict out, npy_intp rows, npy_intp columns, const REAL *bias) \
    {                                                                                                     \
        for (npy_intp i = 0; i < rows; i++, out += columns) {                                             \
            for (npy_intp j = 0; j < columns; j++) {                                                      \
                out[j] += bias[j];                                                                        \
            }                                                                                             \
        }                                                                                                 \
    }

ADD_TO_ROWS(float)
ADD_TO_ROWS(double)

/* The array in another shape; takes it over. */
static PyObject *
reshaped(PyObject *array, int ndim, npy_intp *dims)
{
    PyArray_Dims wanted = {dims, ndim};
    PyObject *made = array == NULL ? NULL : PyArray_Newshape((PyArrayObject *)array, &wanted, NPY_CORDER);
    Py_XDECREF(array);
    return made;
}

/* rows @ weight.T, a new array */
static PyObject *
times_turned(PyObject *rows, PyArrayObject *weight)
{
    PyObject *turned = rows == NULL ? NULL : PyArray_Transpose(weight, NULL);
    PyObject *out = turned == NULL ? NULL : product_of_matrices((PyArrayObject *)rows, (PyArrayObject *)turned);
    Py_XDECREF(turned);
    return out;
}

/* apply_linear(xp, input, weight, bias) */
PyObject *
apply_linear(PyObject *const *arguments)
{
    PyObject *bias = arguments[3];
    if (!is_plain(arguments[1]) || !is_plain(arguments[2])) {
        return NULL;
    }
    PyArrayObject *input = (PyArrayObject *)arguments[1], *weight = (PyArrayObject *)arguments[2];
    int ndim = PyArray_NDIM(input);
    if (ndim < 2 || PyArray_NDIM(weight) != 2 || PyArray_SIZE(weight) > SMALL_WEIGHT ||
        PyArray_DESCR(input) != PyArray_DESCR(weight) || PyArray_DIM(input, ndim - 1) != PyArray_DIM(weight, 1) ||
        (bias != Py_None && (!is_alike(bias, weight, PyArray_DIM(weight, 0)) ||
                             PyArray_NDIM((PyArrayObject *)bias) != 1))) {
        return NULL;
    }
    npy_intp columns = PyArray_DIM(weight, 0), rows = PyArray_SIZE(input) / PyArray_DIM(weight, 1);
    if (rows * columns > WITHOUT_LOCK) { /* the bias is added in threads */
        return NULL;
    }
    npy_intp flat[2] = {rows, PyArray_DIM(weight, 1)}, dims[NPY_MAXDIMS];
    PyObject *matrix = Py_NewRef(input);
    if (ndim > 2) {
        matrix = reshaped(matrix, 2, flat);
    }
    PyObject *out = times_turned(matrix, weight);
    Py_XDECREF(matrix);
    if (out != NULL && bias != Py_None) {
        void *to = PyArray_DATA((PyArrayObject *)out), *from = data_of(bias);
        if (PyArray_TYPE(weight) == NPY_FLOAT) {
            add_to_rows_float(to, rows, columns, from);
        }
        else {
            add_to_rows_double(to, rows, columns, from);
        }
    }
    if (ndim > 2) {
        memcpy(dims, PyArray_DIMS(input), (ndim - 1) * sizeof(*dims));
        dims[ndim - 1] = columns;
        out = reshaped(out, ndim, dims);
    }
    return out;
}
