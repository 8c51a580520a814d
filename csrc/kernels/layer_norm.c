/* layer_norm and rms_norm: rows over their standard deviations, a row at a time, so that it stays in the cache. */
#include "kernels/kernels.h"
#define SUMS_IN_ANY_ORDER
#include "loops/compile.h"
#include "loops/threads.h"

typedef struct {
    const void *x, *g, *weight, *bias;
    void *out, *mean, *rstd;        /* mean is NULL for rms_norm, which subtracts none */
    void *of_weight, *of_bias;      /* NULL if not wanted */
    double *sums;                   /* NULL if neither is: room for both, and as much again, for every piece */
    Py_ssize_t rows, width;
    Py_ssize_t in_piece;            /* rows whose sums are one */
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

/* The rows of a piece: not so few that the sums of all pieces would take much memory. */
static Py_ssize_t
rows_in_piece(Py_ssize_t rows)
{
    return rows < 256 * 64 ? 64 : (rows + 255) / 256;
}

static void
norm(RowNorm *given, int type, double *plain)
{
    (type == NPY_FLOAT ? fill_plain_float : fill_plain_double)(plain, given->width);
    size_t size = type == NPY_FLOAT ? sizeof(float) : sizeof(double);
    given->weight = given->weight == NULL ? plain : given->weight;
    given->bias = given->bias == NULL ? (char *)plain + given->width * size : given->bias;
    divide(type == NPY_FLOAT ? run_norm_rows_float : run_norm_rows_double, given, given->rows,
           (type == NPY_FLOAT ? 0.6 : 1.2) * given->rows * given->width);
}

static void
norm_gradient(RowNorm *given, int type, double *plain)
{
    Py_ssize_t pieces = (given->rows + given->in_piece - 1) / given->in_piece;
    (type == NPY_FLOAT ? fill_plain_float : fill_plain_double)(plain, given->width);
    given->weight = given->weight == NULL ? plain : given->weight;
    divide(type == NPY_FLOAT ? run_norm_rows_gradient_float : run_norm_rows_gradient_double, given, pieces,
           (type == NPY_FLOAT ? 1.0 : 2.0) * given->rows * given->width);
    if (given->sums != NULL) {
        (type == NPY_FLOAT ? add_pieces_float : add_pieces_double)(given, pieces);
    }
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
                         .rstd = data_of(PyTuple_GET_ITEM(found, 2)),
                         .rows = PyArray_SIZE(x) / width, .width = width, .eps = eps};
        WORK(PyArray_SIZE(x), norm(&given, type, scratch));
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
    int has_sums = PyTuple_GET_ITEM(needs, 1) == Py_True || PyTuple_GET_ITEM(needs, 2) == Py_True;
    Py_ssize_t in_piece = rows_in_piece(rows), pieces = has_sums ? (rows + in_piece - 1) / in_piece : 0;
    double *scratch = PyMem_Malloc((2 + 4 * pieces) * width * sizeof(double));
    if (found != NULL && scratch != NULL) {
        RowNorm given = {.x = PyArray_DATA(x), .g = PyArray_DATA(g), .weight = data_of(arguments[5]),
                         .mean = data_of(arguments[3]), .rstd = data_of(arguments[4]),
                         .out = data_of(PyTuple_GET_ITEM(found, 0)), .of_weight = data_of(PyTuple_GET_ITEM(found, 1)),
                         .of_bias = data_of(PyTuple_GET_ITEM(found, 2)), .rows = rows, .width = width,
                         .sums = has_sums ? scratch + 2 * width : NULL, .in_piece = in_piece};
        WORK(PyArray_SIZE(x), norm_gradient(&given, type, scratch));
    }
    Py_DECREF(g);
    return finished(found, scratch);
}
