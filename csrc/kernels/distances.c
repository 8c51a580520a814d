/* Distances of every point of a set to every one of another, and their gradients, without an array of all differences:
 * vectors hold points that follow each other.
 */
#include "kernels/kernels.h"
#include "loops/threads.h"
#include "loops/compile.h"

#define AT_ONCE 256 /* points, a multiple of LANES */

/* Points x and y of so many items; what is filled; for gradients of x, those of the distances, and these. */
typedef struct {
    const void *x, *y, *g, *distances;
    void *to;
    Py_ssize_t items, rows, columns, dims;
    int is_euclidean; /* or sums of sizes */
    int failed;       /* there was no memory */
} Distances;

#define REAL float
#include "loops/vectors.h"
#include "kernels/distances_loops.h"
#undef REAL
#define REAL double
#include "loops/vectors.h"
#include "kernels/distances_loops.h"
#undef REAL

/* Whether these are points of as many items: (..., points, dimensions), and p is 1 or 2. */
static int
take_points(Distances *given, PyObject *first, PyObject *second, PyObject *p)
{
    if (!is_plain(first) || !is_plain(second) || !PyFloat_Check(p)) {
        return 0;
    }
    PyArrayObject *x = (PyArrayObject *)first, *y = (PyArrayObject *)second;
    int ndim = PyArray_NDIM(x);
    if (PyArray_TYPE(x) != PyArray_TYPE(y) || ndim < 2 || PyArray_NDIM(y) != ndim ||
        PyArray_DIM(x, ndim - 1) != PyArray_DIM(y, ndim - 1) ||
        !PyArray_CompareLists(PyArray_DIMS(x), PyArray_DIMS(y), ndim - 2)) {
        return 0;
    }
    given->x = PyArray_DATA(x);
    given->y = PyArray_DATA(y);
    given->rows = PyArray_DIM(x, ndim - 2);
    given->columns = PyArray_DIM(y, ndim - 2);
    given->dims = PyArray_DIM(x, ndim - 1);
    given->items = PyArray_SIZE(x) / (given->rows * given->dims);
    given->is_euclidean = PyFloat_AS_DOUBLE(p) == 2;
    return given->is_euclidean || PyFloat_AS_DOUBLE(p) == 1;
}

/* `out` (taken over), filled */
static PyObject *
compute(Distances *given, PyObject *out)
{
    if (out == NULL) {
        return NULL;
    }
    given->to = data_of(out);
    Share share = PyArray_TYPE((PyArrayObject *)out) == NPY_FLOAT ? share_float : share_double;
    Py_ssize_t rows = given->items * given->rows;
    double differences = (double)rows * given->columns * given->dims;
    WORK(differences, divide(share, given, rows, 0.2 * differences));
    if (given->failed) {
        Py_DECREF(out);
        return PyErr_NoMemory();
    }
    return out;
}

/* distances(x, y, p) -> those of all pairs; None if these are no plain points, or p is neither 1 nor 2 */
PyObject *
distances(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Distances given = {0};
    if (count != 3 || !take_points(&given, arguments[0], arguments[1], arguments[2])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    npy_intp shape[NPY_MAXDIMS];
    memcpy(shape, PyArray_DIMS(x), PyArray_NDIM(x) * sizeof(npy_intp));
    shape[PyArray_NDIM(x) - 1] = given.columns;
    return compute(&given, new_array(PyArray_NDIM(x), shape, PyArray_TYPE(x)));
}

/* distances_gradient(g, x, y, distances, p) -> the gradient of x */
PyObject *
distances_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Distances given = {0};
    if (count != 5 || !take_points(&given, arguments[1], arguments[2], arguments[4])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[1];
    Py_ssize_t pairs = given.items * given.rows * given.columns;
    if (arguments[0] == Py_None || arguments[3] == Py_None || !is_alike(arguments[0], x, pairs) ||
        !is_alike(arguments[3], x, pairs)) {
        Py_RETURN_NONE;
    }
    given.g = data_of(arguments[0]);
    given.distances = data_of(arguments[3]);
    PyObject *out = new_like(x);
    if (out != NULL) {
        memset(data_of(out), 0, PyArray_NBYTES((PyArrayObject *)out));
    }
    return compute(&given, out);
}
