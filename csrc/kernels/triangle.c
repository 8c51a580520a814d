/* tril and triu: rows are copied as far as they belong to the triangle. */
#include "kernels/kernels.h"

static void
copy_triangles(const char *from, char *to, Py_ssize_t matrices, Py_ssize_t rows, Py_ssize_t columns, Py_ssize_t item,
               Py_ssize_t diagonal, int upper)
{
    for (Py_ssize_t k = 0; k < matrices * rows; k++, from += columns * item, to += columns * item) {
        Py_ssize_t edge = k % rows + diagonal + !upper; /* the first column behind the lower part, or of the upper one */
        edge = (edge < 0 ? 0 : edge > columns ? columns : edge) * item;
        if (upper) {
            memset(to, 0, edge);
            memcpy(to + edge, from + edge, columns * item - edge);
        }
        else {
            memcpy(to, from, edge);
            memset(to + edge, 0, columns * item - edge);
        }
    }
}

/* triangle(x, diagonal, whether the upper one): None for arrays that are not contiguous numbers, or empty */
PyObject *
triangle(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    if (count != 3 || !PyArray_CheckExact(arguments[0]) || !PyArray_ISCARRAY_RO(x) || PyArray_NDIM(x) < 2 ||
        PyArray_SIZE(x) == 0 || !PyTypeNum_ISNUMBER(PyArray_TYPE(x)) || !PyLong_CheckExact(arguments[1])) {
        Py_RETURN_NONE;
    }
    Py_ssize_t diagonal = PyLong_AsSsize_t(arguments[1]), most = (Py_ssize_t)1 << 40;
    if (diagonal == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    diagonal = diagonal > most ? most : diagonal < -most ? -most : diagonal;
    int dims = PyArray_NDIM(x);
    Py_ssize_t rows = PyArray_DIM(x, dims - 2), columns = PyArray_DIM(x, dims - 1), size = PyArray_SIZE(x);
    PyObject *out = new_array(dims, PyArray_DIMS(x), PyArray_TYPE(x));
    if (out != NULL) {
        WORK(size, copy_triangles(PyArray_DATA(x), data_of(out), size / rows / columns, rows, columns,
                                  PyArray_ITEMSIZE(x), diagonal, arguments[2] == Py_True));
    }
    return out;
}
