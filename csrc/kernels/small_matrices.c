/* Triangular and general linear systems, Cholesky's and LU factorisations of stacks of small matrices. LAPACK takes longer to
 * begin than such a matrix takes, and NumPy casts float32 to double for it and back.
 *
 * All return None for what they leave to NumPy: matrices that are large, singular or not positive-definite, of which it
 * says so; and stacks of different sizes.
 */
#include "kernels/kernels.h"
#define FUSED_PRODUCTS
#include "loops/compile.h"

#define LARGEST 32 /* rows of a matrix */

typedef struct {
    Py_ssize_t count, n, columns;
    int upper, unit;
} Stack;

#define REAL float
#include "kernels/small_matrices_loops.h"
#undef REAL
#define REAL double
#include "kernels/small_matrices_loops.h"
#undef REAL

/* Whether A holds small square matrices, and B (unless NULL) as many of as many rows. */
static int
read_stack(Stack *stack, PyObject *first, PyObject *second)
{
    PyArrayObject *a = (PyArrayObject *)first, *b = (PyArrayObject *)second;
    if (!is_plain(first) || PyArray_NDIM(a) < 2) {
        return 0;
    }
    int dims = PyArray_NDIM(a);
    stack->n = PyArray_DIM(a, dims - 1);
    stack->count = PyArray_SIZE(a) / (stack->n * stack->n);
    if (PyArray_DIM(a, dims - 2) != stack->n || stack->n > LARGEST) {
        return 0;
    }
    if (b == NULL) {
        return 1;
    }
    if (!is_plain(second) || PyArray_NDIM(b) != dims || PyArray_TYPE(b) != PyArray_TYPE(a) ||
        !PyArray_CompareLists(PyArray_DIMS(a), PyArray_DIMS(b), dims - 1)) {
        return 0;
    }
    stack->columns = PyArray_DIM(b, dims - 1);
    return 1;
}

static int
is_single(PyObject *array)
{
    return PyArray_TYPE((PyArrayObject *)array) == NPY_FLOAT;
}

/* The result (taken over), or None if it was not found. */
static PyObject *
found_or_none(PyObject *out, int done)
{
    if (!done) {
        Py_SETREF(out, Py_NewRef(Py_None));
    }
    return out;
}

/* solve_triangles(A, B, upper, unitriangular) */
PyObject *
solve_triangles(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Stack stack;
    if (count != 4 || !read_stack(&stack, arguments[0], arguments[1])) {
        Py_RETURN_NONE;
    }
    stack.upper = arguments[2] == Py_True;
    stack.unit = arguments[3] == Py_True;
    PyObject *out = PyArray_NewCopy((PyArrayObject *)arguments[1], NPY_CORDER);
    if (out != NULL) {
        const void *a = PyArray_DATA((PyArrayObject *)arguments[0]);
        WORK(PyArray_SIZE((PyArrayObject *)out),
             is_single(out) ? substitute_all_float(a, data_of(out), &stack)
                            : substitute_all_double(a, data_of(out), &stack));
    }
    return out;
}

/* solve_small(A, B) */
PyObject *
solve_small(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Stack stack;
    if (count != 2 || !read_stack(&stack, arguments[0], arguments[1])) {
        Py_RETURN_NONE;
    }
    PyObject *out = PyArray_NewCopy((PyArrayObject *)arguments[1], NPY_CORDER);
    if (out == NULL) {
        return NULL;
    }
    int done;
    const void *a = PyArray_DATA((PyArrayObject *)arguments[0]);
    WORK(PyArray_SIZE((PyArrayObject *)out), done = is_single(out) ? eliminate_all_float(a, data_of(out), &stack)
                                                                   : eliminate_all_double(a, data_of(out), &stack));
    return found_or_none(out, done);
}

/* cholesky_small(A) */
PyObject *
cholesky_small(PyObject *module, PyObject *matrices)
{
    Stack stack;
    if (!read_stack(&stack, matrices, NULL)) {
        Py_RETURN_NONE;
    }
    PyArrayObject *a = (PyArrayObject *)matrices;
    PyObject *out = new_array(PyArray_NDIM(a), PyArray_DIMS(a), PyArray_TYPE(a));
    if (out == NULL) {
        return NULL;
    }
    int done;
    WORK(PyArray_SIZE(a), done = is_single(out) ? factorise_all_float(PyArray_DATA(a), data_of(out), &stack)
                                                : factorise_all_double(PyArray_DATA(a), data_of(out), &stack));
    return found_or_none(out, done);
}

/* lu_small(A) -> (L and U in one matrix, the rows, from 1, that rows were exchanged with in turn) */
PyObject *
lu_small(PyObject *module, PyObject *matrices)
{
    PyArrayObject *a = (PyArrayObject *)matrices;
    int dims = is_plain(matrices) ? PyArray_NDIM(a) : 0;
    if (dims < 2 || PyArray_DIM(a, dims - 2) > LARGEST || PyArray_DIM(a, dims - 1) > LARGEST) {
        Py_RETURN_NONE;
    }
    npy_intp rows = PyArray_DIM(a, dims - 2), columns = PyArray_DIM(a, dims - 1), shape[NPY_MAXDIMS];
    Py_ssize_t count = PyArray_SIZE(a) / (rows * columns);
    memcpy(shape, PyArray_DIMS(a), dims * sizeof(npy_intp));
    shape[dims - 2] = rows < columns ? rows : columns;
    PyObject *out = PyArray_NewCopy(a, NPY_CORDER), *pivots = new_array(dims - 1, shape, NPY_INT32);
    if (out != NULL && pivots != NULL) {
        WORK(PyArray_SIZE(a), is_single(out) ? decompose_all_float(data_of(out), data_of(pivots), count, rows, columns)
                                             : decompose_all_double(data_of(out), data_of(pivots), count, rows, columns));
    }
    PyObject *both = out == NULL || pivots == NULL ? NULL : PyTuple_Pack(2, out, pivots);
    Py_XDECREF(out);
    Py_XDECREF(pivots);
    return both;
}

/* Whether no exchange is one with a row that is not there. */
static int
name_rows(const int32_t *pivots, Py_ssize_t count, Py_ssize_t rows)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        if (pivots[k] < 1 || pivots[k] > rows) {
            return 0;
        }
    }
    return 1;
}

/* places_of_rows(pivots, rows) -> the places that so many rows had before they were exchanged in turn, for a stack */
PyObject *
places_of_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    PyArrayObject *pivots = (PyArrayObject *)arguments[0];
    Py_ssize_t rows = count == 2 ? PyLong_AsSsize_t(arguments[1]) : -1;
    if (rows < 0 || !PyArray_CheckExact(arguments[0]) || PyArray_NDIM(pivots) != 2 || PyArray_TYPE(pivots) != NPY_INT32 ||
        !PyArray_ISCARRAY_RO(pivots) || PyArray_DIM(pivots, 1) > rows) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    npy_intp shape[2] = {PyArray_DIM(pivots, 0), rows}, length = PyArray_DIM(pivots, 1);
    const int32_t *with = PyArray_DATA(pivots);
    if (!name_rows(with, shape[0] * length, rows)) {
        Py_RETURN_NONE;
    }
    PyObject *places = new_array(2, shape, NPY_INT64);
    int64_t *place = places == NULL ? NULL : data_of(places);
    for (Py_ssize_t stack = 0; place != NULL && stack < shape[0]; stack++, place += rows, with += length) {
        for (Py_ssize_t k = 0; k < rows; k++) {
            place[k] = k;
        }
        for (Py_ssize_t k = 0; k < length; k++) {
            int64_t kept = place[k];
            place[k] = place[with[k] - 1];
            place[with[k] - 1] = kept;
        }
    }
    return places;
}
