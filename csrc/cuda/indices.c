/* Basic indices: numbers, slices, None and `...`, which give views. All others are Python's: backend/cuda/indexing.py. */
#include "cuda/cuda.h"

PyObject *slow_getitem, *slow_setitem;

typedef struct {
    npy_intp dims[2 * MOST_DIMS], strides[2 * MOST_DIMS], offset;
    int nd, at; /* dimensions of the view so far, and of the array that are used up */
} Taken;

static void
take_whole(Taken *taken, const Array *array)
{
    taken->dims[taken->nd] = array->dims[taken->at];
    taken->strides[taken->nd++] = array->strides[taken->at++];
}

static int
take_number(Taken *taken, const Array *array, PyObject *item)
{
    npy_intp index = PyLong_AsSsize_t(item), size = array->dims[taken->at];
    if (index == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (index < -size || index >= size) {
        PyErr_Format(PyExc_IndexError, "index %zd is out of bounds for axis %d with size %zd", index, taken->at, size);
        return -1;
    }
    taken->offset += (index < 0 ? index + size : index) * array->strides[taken->at++];
    return 0;
}

static int
take_slice(Taken *taken, const Array *array, PyObject *item)
{
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(item, &start, &stop, &step) < 0) {
        return -1;
    }
    Py_ssize_t length = PySlice_AdjustIndices(array->dims[taken->at], &start, &stop, step);
    taken->offset += length ? start * array->strides[taken->at] : 0;
    taken->dims[taken->nd] = length;
    taken->strides[taken->nd++] = array->strides[taken->at++] * step;
    return 0;
}

/* The view that a basic index gives; NULL without an exception: the index is not basic, or wrong. */
static Array *
basic_view(Array *array, PyObject *index)
{
    PyObject *single[] = {index}, **items = PyTuple_Check(index) ? &PyTuple_GET_ITEM(index, 0) : single;
    Py_ssize_t count = PyTuple_Check(index) ? PyTuple_GET_SIZE(index) : 1;
    Taken taken = {.nd = 0};
    int used = 0, rest = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        if (items[k] == Py_Ellipsis) {
            rest++;
        }
        else if (PyLong_CheckExact(items[k]) || PySlice_Check(items[k])) {
            used++;
        }
        else if (items[k] != Py_None) {
            return NULL;
        }
    }
    if (used > array->nd || rest > 1 || count > MOST_DIMS) {
        return NULL;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        if (items[k] == Py_None) {
            taken.dims[taken.nd] = 1;
            taken.strides[taken.nd++] = 0;
        }
        else if (items[k] == Py_Ellipsis) {
            for (int left = array->nd - used; left > 0; left--) {
                take_whole(&taken, array);
            }
        }
        else if ((PySlice_Check(items[k]) ? take_slice : take_number)(&taken, array, items[k]) < 0) {
            return NULL;
        }
    }
    while (taken.at < array->nd) {
        take_whole(&taken, array);
    }
    return array_view(array, taken.nd, taken.dims, taken.strides, taken.offset, NULL);
}

PyObject *
array_getitem(PyObject *self, PyObject *index)
{
    Array *view = basic_view((Array *)self, index);
    if (view != NULL || PyErr_Occurred()) {
        return (PyObject *)view;
    }
    PyObject *arguments[] = {self, index};
    return PyObject_Vectorcall(slow_getitem, arguments, 2, NULL);
}

int
array_setitem(PyObject *self, PyObject *index, PyObject *value)
{
    if (value == NULL) {
        PyErr_SetString(PyExc_ValueError, "elements of an array cannot be deleted");
        return -1;
    }
    Array *view = basic_view((Array *)self, index);
    if (view == NULL && PyErr_Occurred()) {
        return -1;
    }
    PyObject *arguments[] = {self, view == NULL ? Py_None : (PyObject *)view, index, value};
    PyObject *done = PyObject_Vectorcall(slow_setitem, arguments, 4, NULL);
    Py_XDECREF(view);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}
