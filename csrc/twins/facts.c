/* What a tensor says about its array and its memory, without the interpreter: tensor/facts.py says what each means. */
#include "twins/table.h"

/* The array of a tensor in the memory of the CPU, or NULL. */
static PyArrayObject *
array_of(PyObject *tensor)
{
    if (!is_tensor(tensor) || SLOT(tensor, core.t_xp) != core.cpu) {
        return NULL;
    }
    PyObject *array = SLOT(tensor, core.t_array);
    return PyArray_CheckExact(array) ? (PyArrayObject *)array : NULL;
}

PyObject *
dim(PyObject *const *arguments)
{
    PyArrayObject *array = array_of(arguments[0]);
    return array == NULL ? NULL : PyLong_FromLong(PyArray_NDIM(array));
}

PyObject *
numel(PyObject *const *arguments)
{
    PyArrayObject *array = array_of(arguments[0]);
    return array == NULL ? NULL : PyLong_FromSsize_t(count_of(array));
}

PyObject *
element_size(PyObject *const *arguments)
{
    PyArrayObject *array = array_of(arguments[0]);
    return array == NULL ? NULL : PyLong_FromSsize_t(PyArray_ITEMSIZE(array));
}

PyObject *
data_ptr(PyObject *const *arguments)
{
    PyArrayObject *array = array_of(arguments[0]);
    if (array == NULL) {
        return NULL;
    }
    return count_of(array) == 0 ? PyLong_FromLong(0) : PyLong_FromVoidPtr(PyArray_DATA(array));
}

/* is_contiguous(self), of no other format */
PyObject *
is_contiguous(PyObject *const *arguments)
{
    PyArrayObject *array = array_of(arguments[0]);
    return array == NULL ? NULL : PyBool_FromLong(PyArray_IS_C_CONTIGUOUS(array));
}

/* stride(self, dim), of all dimensions without one; a stride of 0 may have to be shown as another */
PyObject *
stride(PyObject *const *arguments)
{
    PyArrayObject *array = array_of(arguments[0]);
    npy_intp size = array == NULL ? 0 : PyArray_ITEMSIZE(array);
    for (int d = 0; array != NULL && d < PyArray_NDIM(array); d++) {
        if (PyArray_STRIDE(array, d) == 0 || PyArray_STRIDE(array, d) % size != 0) {
            return NULL;
        }
    }
    if (array != NULL && arguments[1] != NULL && arguments[1] != Py_None) {
        npy_intp dim, ndim = PyArray_NDIM(array);
        int is_there = read_size(arguments[1], &dim) && dim >= -ndim && dim < ndim;
        return is_there ? PyLong_FromSsize_t(PyArray_STRIDE(array, (int)(dim < 0 ? dim + ndim : dim)) / size) : NULL;
    }
    PyObject *strides = array == NULL ? NULL : PyTuple_New(PyArray_NDIM(array));
    for (int d = 0; strides != NULL && d < PyArray_NDIM(array); d++) {
        PyObject *one = PyLong_FromSsize_t(PyArray_STRIDE(array, d) / size);
        if (one == NULL) {
            Py_CLEAR(strides);
        }
        else {
            PyTuple_SET_ITEM(strides, d, one);
        }
    }
    return strides;
}

/* storage_offset(self), of an array that owns its memory, or shows a part of one that lies plainly and does */
PyObject *
storage_offset(PyObject *const *arguments)
{
    PyArrayObject *array = array_of(arguments[0]);
    PyObject *base = array == NULL ? NULL : PyArray_BASE(array);
    if (array == NULL || PyArray_ITEMSIZE(array) == 0) {
        return NULL;
    }
    if (count_of(array) == 0 || (base == NULL && PyArray_IS_C_CONTIGUOUS(array))) {
        return PyLong_FromLong(0);
    }
    if (base == NULL || !PyArray_CheckExact(base) || PyArray_BASE((PyArrayObject *)base) != NULL ||
        !PyArray_IS_C_CONTIGUOUS((PyArrayObject *)base) ||
        PyArray_DESCR((PyArrayObject *)base) != PyArray_DESCR(array)) {
        return NULL;
    }
    npy_intp bytes = (char *)PyArray_DATA(array) - (char *)PyArray_DATA((PyArrayObject *)base);
    return bytes < 0 ? NULL : PyLong_FromSsize_t(bytes / PyArray_ITEMSIZE(array));
}
