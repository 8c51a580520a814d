/* x[index] and x[index] = value for indices of ints, slices, None and `...`: getitem and setitem of ops/index/. */
#include "call/shortcuts.h"
#include "quiet.h"

/* ---- reading */

enum { SELECT, SLICE, UNSQUEEZE, ALIAS };

/* Whether an item is a slice as PyTorch has them, of ints, forwards. */
static int
is_simple_slice(PyObject *item)
{
    if (!PySlice_Check(item)) {
        return 0;
    }
    PySliceObject *slice = (PySliceObject *)item;
    npy_intp step = 1;
    return (slice->start == Py_None || PyLong_CheckExact(slice->start)) &&
           (slice->stop == Py_None || PyLong_CheckExact(slice->stop)) &&
           (slice->step == Py_None || (read_size(slice->step, &step) && step > 0));
}

/* How many dimensions the items take; -1 if one of them is of another kind. */
static int
dimensions_taken(PyObject *const *items, Py_ssize_t count)
{
    int taken = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        if (PyLong_CheckExact(items[k]) || is_simple_slice(items[k])) {
            taken++;
        }
        else if (items[k] != Py_None && items[k] != Py_Ellipsis) {
            return -1;
        }
    }
    return taken;
}

/* Operation `which` of the shortcut, called with the tensor, a dimension (unless it is negative) and more. */
static PyObject *
call_view(const Shortcut *self, PyObject *state, int which, PyObject *tensor, int dim, PyObject *const *more, int count)
{
    PyObject *call[8] = {tensor}, *number = dim < 0 ? NULL : PyLong_FromLong(dim);
    int first = 1;
    if (dim >= 0 && (call[first++] = number) == NULL) {
        return NULL;
    }
    for (int k = 0; k < count; k++) {
        call[first + k] = more[k];
    }
    PyObject *result = call_in_state(self->targets[which], state, call, first + count);
    Py_XDECREF(number);
    return result;
}

/* The slice of a dimension, or the tensor itself where that is all of it and `skip` is set. */
static PyObject *
call_slice(const Shortcut *self, PyObject *state, PyObject *tensor, int dim, PyObject *item, int skip)
{
    static PyObject *zero, *one, *beyond;
    if (zero == NULL && ((zero = PyLong_FromLong(0)) == NULL || (one = PyLong_FromLong(1)) == NULL ||
                         (beyond = PyLong_FromSsize_t(PY_SSIZE_T_MAX)) == NULL)) {
        return NULL;
    }
    PySliceObject *slice = (PySliceObject *)item;
    PyObject *more[] = {slice->start == Py_None ? zero : slice->start, slice->stop == Py_None ? beyond : slice->stop,
                        slice->step == Py_None ? one : slice->step};
    npy_intp start, stop, step;
    if (skip && read_size(more[0], &start) && read_size(more[1], &stop) && read_size(more[2], &step) && start == 0 &&
        step == 1 && stop >= PyArray_DIM((PyArrayObject *)SLOT(tensor, core.t_array), dim)) {
        return Py_NewRef(tensor);
    }
    return call_view(self, state, SLICE, tensor, dim, more, 3);
}

/* The element of a dimension; NULL without an exception if there is none of that number. */
static PyObject *
call_select(const Shortcut *self, PyObject *state, PyObject *tensor, int dim, PyObject *item)
{
    PyArrayObject *array = (PyArrayObject *)SLOT(tensor, core.t_array);
    npy_intp index, size = PyArray_NDIM(array) == 0 ? 0 : PyArray_DIM(array, dim);
    if (!read_size(item, &index) || index < -size || index >= size) {
        return NULL;
    }
    return call_view(self, state, SELECT, tensor, dim, &item, 1);
}

/* The view that one item makes of a tensor (taken over), moving *dim on. */
static PyObject *
seen_through(const Shortcut *self, PyObject *state, PyObject *tensor, PyObject *item, int *dim, int *left)
{
    PyObject *view = NULL;
    if (usual_array(tensor) == NULL) {
        view = NULL; /* an operation gave something else */
    }
    else if (PyLong_CheckExact(item)) {
        view = call_select(self, state, tensor, *dim, item);
    }
    else if (item == Py_Ellipsis) {
        *dim += *left;
        *left = 0; /* a second one stands for nothing */
        return tensor;
    }
    else {
        view = item == Py_None ? call_view(self, state, UNSQUEEZE, tensor, *dim, NULL, 0)
                               : call_slice(self, state, tensor, *dim, item, 1);
        *dim += 1;
    }
    Py_DECREF(tensor);
    return view;
}

static PyObject *
seen_through_all(const Shortcut *self, PyObject *state, PyObject *tensor, PyObject *const *items, Py_ssize_t count)
{
    int taken = dimensions_taken(items, count), dim = 0;
    int left = PyArray_NDIM((PyArrayObject *)SLOT(tensor, core.t_array)) - taken;
    if (taken < 0 || left < 0) {
        return NULL;
    }
    PyObject *view = Py_NewRef(tensor);
    for (Py_ssize_t k = 0; view != NULL && k < count; k++) {
        view = seen_through(self, state, view, items[k], &dim, &left);
    }
    if (view == tensor) {
        Py_SETREF(view, call_view(self, state, ALIAS, tensor, -1, NULL, 0));
    }
    return view;
}

/* getitem(input, index), with the operations select, slice, unsqueeze and alias */
PyObject *
getitem(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    if (names != NULL || count != 2 || usual_array(given[0]) == NULL) {
        return NULL;
    }
    PyObject *tensor = given[0], *index = given[1];
    if (PyLong_CheckExact(index)) {
        return call_select(self, state, tensor, 0, index);
    }
    if (PyTuple_CheckExact(index)) {
        return seen_through_all(self, state, tensor, &PyTuple_GET_ITEM(index, 0), PyTuple_GET_SIZE(index));
    }
    if (index == Py_None) {
        return call_view(self, state, UNSQUEEZE, tensor, 0, NULL, 0);
    }
    if (index == Py_Ellipsis) {
        return call_view(self, state, ALIAS, tensor, -1, NULL, 0);
    }
    return is_simple_slice(index) ? call_slice(self, state, tensor, 0, index, 0) : NULL;
}

/* ---- writing, where nothing is recorded */

/* What can be written into an array of that dtype without a cast: an array or a number (borrowed); or NULL. */
static PyObject *
simple_value(PyObject *value, PyArray_Descr *dtype)
{
    npy_intp number;
    if (Py_IS_TYPE(value, core.Tensor)) {
        PyArrayObject *array = usual_array(value);
        return array != NULL && PyArray_DESCR(array) == dtype ? (PyObject *)array : NULL;
    }
    if (PyFloat_CheckExact(value)) {
        return PyTypeNum_ISFLOAT(dtype->type_num) ? value : NULL;
    }
    if (!PyLong_CheckExact(value)) {
        return NULL;
    }
    int fits = PyTypeNum_ISFLOAT(dtype->type_num) ||
               (PyTypeNum_ISSIGNED(dtype->type_num) && PyTypeNum_ISINTEGER(dtype->type_num) &&
                read_size(value, &number) && number >= 0 && number < 128);
    return fits ? value : NULL;
}

/* The index as a key of the array (a new reference) that always shows an array; NULL: it is not of the simple kinds. */
static PyObject *
array_key(PyObject *index)
{
    PyObject *const *items = PyTuple_CheckExact(index) ? &PyTuple_GET_ITEM(index, 0) : &index;
    Py_ssize_t count = PyTuple_CheckExact(index) ? PyTuple_GET_SIZE(index) : 1;
    if (dimensions_taken(items, count) < 0) {
        return NULL;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        if (items[k] == Py_Ellipsis) {
            return Py_NewRef(index);
        }
    }
    PyObject *key = PyTuple_New(count + 1);
    for (Py_ssize_t k = 0; key != NULL && k <= count; k++) {
        PyTuple_SET_ITEM(key, k, Py_NewRef(k < count ? items[k] : Py_Ellipsis));
    }
    return key;
}

/* Whether a value lies just where it is to be written, as the one of `h[0] *= 3` does; -1: elsewhere in that memory. */
static int
is_there_already(PyArrayObject *array, PyObject *key, PyObject *value)
{
    if (!PyArray_Check(value) || !may_overlap(array, (PyArrayObject *)value)) {
        return 0;
    }
    PyArrayObject *part = (PyArrayObject *)PyObject_GetItem((PyObject *)array, key), *other = (PyArrayObject *)value;
    int same = part != NULL && PyArray_Check(part) && PyArray_DATA(part) == PyArray_DATA(other) &&
               PyArray_SAMESHAPE(part, other) &&
               (PyArray_NDIM(part) == 0 ||
                memcmp(PyArray_STRIDES(part), PyArray_STRIDES(other), PyArray_NDIM(part) * sizeof(npy_intp)) == 0);
    Py_XDECREF(part);
    return same ? 1 : -1;
}

static int
write_at(PyArrayObject *array, PyObject *index, PyObject *value)
{
    PyObject *key = array_key(index);
    int there = key == NULL ? -1 : is_there_already(array, key, value);
    PyObject *context = enter_quiet();
    int status = there != 0 ? there - 1 : PyObject_SetItem((PyObject *)array, key, value);
    leave_quiet(context);
    Py_XDECREF(key);
    if (status < 0 && PyErr_Occurred() &&
        (PyErr_ExceptionMatches(PyExc_IndexError) || PyErr_ExceptionMatches(PyExc_ValueError))) {
        PyErr_Clear(); /* the general way explains it */
    }
    return status;
}

/* setitem(self, index, value) */
PyObject *
setitem(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    static PyObject *name;
    PyArrayObject *array = names != NULL || count != 3 ? NULL : usual_array(given[0]);
    PyObject *value = array == NULL ? NULL : simple_value(given[2], PyArray_DESCR(array));
    if (value == NULL || (name == NULL && (name = PyUnicode_InternFromString("__setitem__")) == NULL)) {
        return NULL;
    }
    if (!is_free(given[0], state) || (SLOT(state, core.s_grad_enabled) == Py_True &&
                                      Py_IS_TYPE(given[2], core.Tensor) && may_require_grad(given[2]))) {
        return NULL;
    }
    Py_INCREF(array);
    Py_INCREF(value);
    int status = write_at(array, given[1], value);
    Py_DECREF(array);
    Py_DECREF(value);
    return status < 0 || count_change(given[0], name) == NULL ? NULL : Py_NewRef(Py_None);
}
