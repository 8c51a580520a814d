/* The same memory with other shapes and strides: reshape, transpose, basic indices. */
#include "cuda/cuda.h"

PyObject *slow_getitem, *slow_setitem; /* Python's, for all other indices */

/* Fill in a size of -1; whether the sizes are those of so many elements. */
static int
complete_sizes(const Array *array, int nd, npy_intp *dims)
{
    npy_intp known = 1;
    int open = -1;
    for (int k = 0; k < nd; k++) {
        if (dims[k] < 0) {
            if (open >= 0) {
                PyErr_SetString(PyExc_ValueError, "can only specify one unknown dimension");
                return -1;
            }
            open = k;
        }
        else {
            known *= dims[k];
        }
    }
    if (open >= 0) {
        dims[open] = known ? array->size / known : 0;
        known *= dims[open];
    }
    if (known != array->size) {
        PyErr_Format(PyExc_ValueError, "cannot reshape array of size %zd into this shape", array->size);
        return -1;
    }
    return 0;
}

static void
strides_by_rows(npy_intp item, int nd, const npy_intp *dims, npy_intp *strides)
{
    for (int k = nd - 1; k >= 0; k--) {
        strides[k] = item;
        item *= dims[k] ? dims[k] : 1;
    }
}

/* Strides with which an array that is not contiguous has another shape, if there are any: groups of old and of new
 * dimensions with the same number of elements, in each of which the old ones follow each other without gaps. */
static int
strides_for(const Array *array, int nd, const npy_intp *dims, npy_intp *strides)
{
    npy_intp sizes[MOST_DIMS], steps[MOST_DIMS];
    int old = 0, from = 0, at = 0;
    for (int k = 0; k < array->nd; k++) {
        if (array->dims[k] != 1) {
            sizes[old] = array->dims[k];
            steps[old++] = array->strides[k];
        }
    }
    while (at < nd && from < old) {
        int to = from + 1, end = at + 1;
        npy_intp have = sizes[from], want = dims[at];
        while (have != want) {
            if (want < have ? end >= nd : to >= old) {
                return 0;
            }
            *(want < have ? &want : &have) *= want < have ? dims[end++] : sizes[to++];
        }
        for (int k = from; k < to - 1; k++) {
            if (steps[k] != sizes[k + 1] * steps[k + 1]) {
                return 0;
            }
        }
        strides[end - 1] = steps[to - 1];
        for (int k = end - 1; k > at; k--) {
            strides[k - 1] = strides[k] * dims[k];
        }
        from = to;
        at = end;
    }
    for (; at < nd; at++) {
        strides[at] = PyDataType_ELSIZE(array->dtype);
    }
    return 1;
}

PyObject *
array_reshape(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    Array *array = (Array *)self;
    npy_intp dims[MOST_DIMS], strides[MOST_DIMS];
    int nd = read_sizes(given, count, dims);
    if (nd < 0 || complete_sizes(array, nd, dims) < 0) {
        return NULL;
    }
    if (!array->is_contiguous && array->size && strides_for(array, nd, dims, strides)) {
        return (PyObject *)array_view(array, nd, dims, strides, 0, NULL);
    }
    Array *rows = contiguous(array);
    if (rows == NULL) {
        return NULL;
    }
    strides_by_rows(PyDataType_ELSIZE(array->dtype), nd, dims, strides);
    PyObject *view = (PyObject *)array_view(rows, nd, dims, strides, 0, NULL);
    Py_DECREF(rows);
    return view;
}

PyObject *
array_transpose(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    Array *array = (Array *)self;
    npy_intp axes[MOST_DIMS], dims[MOST_DIMS], strides[MOST_DIMS];
    int nd = array->nd, seen = 0;
    if (count == 0 || (count == 1 && given[0] == Py_None)) {
        for (int k = 0; k < nd; k++) {
            axes[k] = nd - 1 - k;
        }
    }
    else {
        int found = read_sizes(given, count, axes);
        if (found >= 0 && found != nd) {
            PyErr_SetString(PyExc_ValueError, "axes don't match array");
        }
        if (found != nd) {
            return NULL;
        }
    }
    for (int k = 0; k < nd; k++) {
        npy_intp from = axes[k] < 0 ? axes[k] + nd : axes[k];
        if (from < 0 || from >= nd || seen >> from & 1) {
            PyErr_SetString(PyExc_ValueError, "axes are out of range, or one is there twice");
            return NULL;
        }
        seen |= 1 << from;
        dims[k] = array->dims[from];
        strides[k] = array->strides[from];
    }
    return (PyObject *)array_view(array, nd, dims, strides, 0, NULL);
}

PyObject *
array_swapaxes(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    Array *array = (Array *)self;
    npy_intp axes[MOST_DIMS], dims[MOST_DIMS], strides[MOST_DIMS];
    if (read_sizes(given, count, axes) != 2) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "swapaxes() takes two axes");
        }
        return NULL;
    }
    for (int k = 0; k < 2; k++) {
        axes[k] += axes[k] < 0 ? array->nd : 0;
        if (axes[k] < 0 || axes[k] >= array->nd) {
            PyErr_SetString(PyExc_ValueError, "an axis is out of range");
            return NULL;
        }
    }
    memcpy(dims, array->dims, sizeof(dims));
    memcpy(strides, array->strides, sizeof(strides));
    dims[axes[0]] = array->dims[axes[1]];
    dims[axes[1]] = array->dims[axes[0]];
    strides[axes[0]] = array->strides[axes[1]];
    strides[axes[1]] = array->strides[axes[0]];
    return (PyObject *)array_view(array, array->nd, dims, strides, 0, NULL);
}

/* ---- indices */

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

/* broadcast_to(array, shape): nothing may be written to the result */
PyObject *
module_broadcast_to(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    npy_intp dims[MOST_DIMS], strides[MOST_DIMS];
    int nd = count == 2 && IS_ARRAY(given[0]) ? read_sizes(given + 1, 1, dims) : -1;
    if (nd < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "broadcast_to(array, shape)");
        }
        return NULL;
    }
    Array *array = (Array *)given[0];
    int lead = nd - array->nd, fits = lead >= 0;
    for (int d = 0; d < nd && fits; d++) {
        int at = d - lead;
        npy_intp size = at < 0 ? 1 : array->dims[at];
        fits = dims[d] >= 0 && (size == dims[d] || size == 1);
        strides[d] = at < 0 || size != dims[d] ? 0 : array->strides[at];
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "operands could not be broadcast together with remapped shapes: an array on "
                                          "cuda does not fit the shape it is to be broadcast to");
        return NULL;
    }
    Array *view = array_view(array, nd, dims, strides, 0, NULL);
    if (view != NULL) {
        view->is_writeable = 0;
    }
    return (PyObject *)view;
}

/* ---- any other view */

/* as_view(array, shape, strides, offset, dtype or None): strides and offset in bytes; nothing is checked */
PyObject *
module_as_view(PyObject *module, PyObject *args)
{
    PyObject *array, *shape, *steps, *dtype;
    Py_ssize_t offset;
    npy_intp dims[MOST_DIMS], strides[MOST_DIMS];
    if (!PyArg_ParseTuple(args, "O!O!O!nO", &Array_Type, &array, &PyTuple_Type, &shape, &PyTuple_Type, &steps, &offset,
                          &dtype)) {
        return NULL;
    }
    int nd = read_sizes(&shape, 1, dims);
    if (nd < 0 || read_sizes(&steps, 1, strides) != nd) {
        return NULL;
    }
    PyArray_Descr *other = PyArray_DescrCheck(dtype) ? (PyArray_Descr *)dtype : NULL;
    return (PyObject *)array_view((Array *)array, nd, dims, strides, offset, other);
}

/* Where shadows are: as far from the arrays as no process has memory, so that a look at an element ends the process on
 * every machine, and not on those with a GPU alone. */
#define AWAY ((uintptr_t)1 << 62)

/* shadow(array): an array of NumPy's with that geometry, which only functions that look at no element may be given */
PyObject *
module_shadow(PyObject *module, PyObject *object)
{
    if (!IS_ARRAY(object)) {
        PyErr_SetString(PyExc_TypeError, "shadow() takes an array on cuda");
        return NULL;
    }
    Array *array = (Array *)object;
    Py_INCREF(array->dtype);
    PyObject *shadow = PyArray_NewFromDescr(&PyArray_Type, array->dtype, array->nd, array->dims, array->strides,
                                            (void *)((uintptr_t)array->data + AWAY), NPY_ARRAY_WRITEABLE, NULL);
    if (shadow != NULL && PyArray_SetBaseObject((PyArrayObject *)shadow, Py_NewRef(object)) < 0) {
        Py_CLEAR(shadow);
    }
    return shadow;
}

/* adopt(array, view of its shadow): the same view of the array */
PyObject *
module_adopt(PyObject *module, PyObject *args)
{
    PyObject *of, *shown;
    if (!PyArg_ParseTuple(args, "O!O!", &Array_Type, &of, &PyArray_Type, &shown)) {
        return NULL;
    }
    PyArrayObject *view = (PyArrayObject *)shown;
    Array *array = (Array *)of;
    if (PyArray_NDIM(view) > MOST_DIMS) {
        PyErr_Format(PyExc_NotImplementedError, "an array on cuda has at most %d dimensions, not %d", MOST_DIMS,
                     PyArray_NDIM(view));
        return NULL;
    }
    npy_intp offset = 0;
    if (PyArray_SIZE(view)) {
        offset = (npy_intp)((uintptr_t)PyArray_DATA(view) - AWAY - (uintptr_t)array->data);
    }
    Array *made = array_view(array, PyArray_NDIM(view), PyArray_DIMS(view), PyArray_STRIDES(view), offset,
                             PyArray_DESCR(view));
    if (made != NULL) {
        made->is_writeable = array->is_writeable && PyArray_ISWRITEABLE(view);
    }
    return (PyObject *)made;
}
