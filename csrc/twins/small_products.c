/* See small_products.h. */
#include "twins/small_products.h"
#include "kernels/kernels.h"
#include "kernels/products.h"
#include "quiet.h"
#include "twins/arrays.h"
#define FUSED_PRODUCTS
#include "loops/compile.h"

#define MOST_MULTIPLICATIONS 4096 /* beyond, a BLAS is as quick */
#define MOST_PACKED 1024          /* numbers of the second factor */
#define FEW 4                     /* rows that are computed together */

typedef struct {
    const void *a, *b;
    void *out;
    npy_intp rows, inner, columns;
    npy_intp a_row, a_column, b_row, b_column; /* distances, in numbers */
} Small;

#define REAL float
#include "loops/vectors.h"
#include "twins/small_products_loops.h"
#undef REAL
#define REAL double
#include "loops/vectors.h"
#include "twins/small_products_loops.h"
#undef REAL

/* Where the numbers of a matrix lie; whether they can be read there. */
static int
read_matrix(PyArrayObject *matrix, const void **data, npy_intp *row, npy_intp *column)
{
    npy_intp size = PyArray_ITEMSIZE(matrix);
    *data = PyArray_DATA(matrix);
    *row = PyArray_STRIDE(matrix, 0) / size;
    *column = PyArray_STRIDE(matrix, 1) / size;
    return PyArray_ISALIGNED(matrix) && *row * size == PyArray_STRIDE(matrix, 0) &&
           *column * size == PyArray_STRIDE(matrix, 1);
}

PyObject *
small_product(PyArrayObject *a, PyArrayObject *b)
{
    Small p = {.rows = PyArray_DIM(a, 0), .inner = PyArray_DIM(a, 1), .columns = PyArray_DIM(b, 1)};
    if (!is_real(a) || p.inner * p.columns > MOST_PACKED || p.rows > MOST_MULTIPLICATIONS ||
        p.rows * p.inner * p.columns > MOST_MULTIPLICATIONS || !read_matrix(a, &p.a, &p.a_row, &p.a_column) ||
        !read_matrix(b, &p.b, &p.b_row, &p.b_column)) {
        return NULL;
    }
    npy_intp sizes[2] = {p.rows, p.columns};
    PyArray_Descr *descr = PyArray_DESCR(a);
    Py_INCREF(descr);
    PyObject *out = PyArray_NewFromDescr(&PyArray_Type, descr, 2, sizes, NULL, NULL, 0, NULL);
    if (out == NULL) {
        return NULL;
    }
    p.out = PyArray_DATA((PyArrayObject *)out);
    if (descr == core.float32) {
        multiply_small_float(&p);
    }
    else {
        multiply_small_double(&p);
    }
    return out;
}

#define FEW_RESULTS 128 /* up to which a BLAS is as quick */

/* The result of a product that has still to be computed, in memory that was kept where it is large; None if it is better
 * made by whoever computes it. */
static PyObject *
room_for_product(PyArrayObject *a, PyArrayObject *b)
{
    npy_intp sizes[2] = {PyArray_DIM(a, 0), PyArray_DIM(b, 1)};
    if (sizes[0] * sizes[1] <= FEW_RESULTS || !(PyArray_ISFLOAT(a) || PyArray_ISCOMPLEX(a)) || !PyArray_ISNOTSWAPPED(a)) {
        Py_RETURN_NONE;
    }
    return new_large(2, sizes, NULL, (PyArray_Descr *)Py_NewRef(PyArray_DESCR(a)));
}

PyObject *
product_of_matrices(PyArrayObject *a, PyArrayObject *b)
{
    PyObject *out = small_product(a, b);
    if (out != NULL || PyErr_Occurred() || (out = room_for_product(a, b)) == NULL) {
        return out;
    }
    if (out != Py_None && own_product(a, b, (PyArrayObject *)out)) {
        return out;
    }
    PyObject *context = enter_quiet();
    PyObject *product = PyArray_MatrixProduct2((PyObject *)a, (PyObject *)b, out == Py_None ? NULL : (PyArrayObject *)out);
    leave_quiet(context);
    Py_DECREF(out);
    return product;
}
