/* Shortcuts of functions that give a tensor another shape, reduce it, multiply it or cut it into parts. */
#include "call/shortcuts.h"

/* ---- sizes: reshape(x, 2, -1) or reshape(x, (2, -1)) */

/* The ints that follow the tensor, or the one tuple or list of ints that does: a new tuple; NULL without an exception
 * for anything else. */
static PyObject *
sizes_of(PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *const *items = given + 1;
    if (names != NULL || count < 2 || usual_array(given[0]) == NULL) {
        return NULL;
    }
    count--;
    if (count == 1 && (PyTuple_Check(items[0]) || PyList_CheckExact(items[0]))) {
        count = PySequence_Fast_GET_SIZE(items[0]);
        items = PySequence_Fast_ITEMS(items[0]);
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        if (!PyLong_CheckExact(items[k])) {
            return NULL;
        }
    }
    PyObject *sizes = count == 0 ? NULL : PyTuple_New(count);
    for (Py_ssize_t k = 0; sizes != NULL && k < count; k++) {
        PyTuple_SET_ITEM(sizes, k, Py_NewRef(items[k]));
    }
    return sizes;
}

/* target(tensor, second), the latter taken over; NULL if that is. */
static PyObject *
call_two(PyObject *target, PyObject *state, PyObject *tensor, PyObject *second)
{
    if (second == NULL) {
        return NULL;
    }
    PyObject *const call[] = {tensor, second};
    PyObject *result = call_in_state(target, state, call, 2);
    Py_DECREF(second);
    return result;
}

/* expand(input, *sizes), permute(input, *order) */
PyObject *
with_sizes(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    return call_two(self->targets[0], state, given[0], sizes_of(given, count, names));
}

/* Work out a -1 in the sizes (taken over) of so many elements; NULL without an exception if they do not fit. */
static PyObject *
inferred(PyObject *sizes, npy_intp elements)
{
    npy_intp known = 1, size;
    Py_ssize_t open = -1;
    for (Py_ssize_t k = 0; sizes != NULL && k < PyTuple_GET_SIZE(sizes); k++) {
        int read = read_size(PyTuple_GET_ITEM(sizes, k), &size);
        if (read && size == -1 && open < 0) {
            open = k;
        }
        else if (!read || size < 0 || size > elements) { /* one that is larger cannot be right, unless another is 0 */
            Py_CLEAR(sizes);
        }
        else {
            known *= size ? size : 1;
            if (size == 0 || known > elements) {
                Py_CLEAR(sizes);
            }
        }
    }
    if (sizes == NULL || (open < 0 ? known != elements : elements % known != 0)) {
        Py_XDECREF(sizes);
        return NULL;
    }
    if (open >= 0) {
        PyObject *number = PyLong_FromSsize_t(elements / known);
        if (number == NULL || PyTuple_SetItem(sizes, open, number) < 0) {
            Py_CLEAR(sizes);
        }
    }
    return sizes;
}

/* view(input, *shape), reshape(input, *sizes): the memory of contiguous ones can be seen under other sizes */
PyObject *
reshape(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = count < 1 ? NULL : usual_array(given[0]);
    if (array == NULL || !PyArray_IS_C_CONTIGUOUS(array)) {
        return NULL;
    }
    return call_two(self->targets[0], state, given[0], inferred(sizes_of(given, count, names), PyArray_SIZE(array)));
}

/* flatten(input, start_dim, end_dim) */
PyObject *
flatten(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = names != NULL || count < 1 || count > 3 ? NULL : usual_array(given[0]);
    npy_intp first = 0, last = -1, sizes[NPY_MAXDIMS];
    if (array == NULL || !PyArray_IS_C_CONTIGUOUS(array) || (count > 1 && !read_size(given[1], &first)) ||
        (count > 2 && !read_size(given[2], &last))) {
        return NULL;
    }
    npy_intp ndim = PyArray_NDIM(array);
    first = first < 0 ? first + ndim : first;
    last = last < 0 ? last + ndim : last;
    if (first < 0 || last < 0 || first >= ndim || last >= ndim || first > last) {
        return NULL;
    }
    if (first == last) {
        return Py_NewRef(given[0]);
    }
    npy_intp merged = 0;
    for (npy_intp k = 0; k < ndim; k++) {
        if (k > first && k <= last) {
            sizes[merged - 1] *= PyArray_DIM(array, k);
        }
        else {
            sizes[merged++] = PyArray_DIM(array, k);
        }
    }
    return call_two(self->targets[0], state, given[0], PyArray_IntTupleFromIntp((int)merged, sizes));
}

/* expand_as(input, other) */
PyObject *
expand_as(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *other = names != NULL || count != 2 || usual_array(given[0]) == NULL ? NULL : usual_array(given[1]);
    return other == NULL ? NULL : call_two(self->targets[0], state, given[0], shape_of((PyObject *)other));
}

/* numpy_T(input): of a matrix */
PyObject *
numpy_T(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = names != NULL || count != 1 ? NULL : usual_array(given[0]);
    if (array == NULL || PyArray_NDIM(array) != 2) {
        return NULL;
    }
    return call_two(self->targets[0], state, given[0], Py_BuildValue("(ii)", 1, 0));
}

/* contiguous(input): the tensor itself, most often */
PyObject *
contiguous(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = names != NULL || count != 1 ? NULL : usual_array(given[0]);
    return array != NULL && PyArray_IS_C_CONTIGUOUS(array) ? Py_NewRef(given[0]) : NULL;
}

/* ---- dimensions: sum(x, dim=1, keepdim=True) */

/* The argument of that name among those given from `first` on by position, or by name; `fallback` if it is not given,
 * NULL if there are other names. */
static PyObject *
argument_of(PyObject *const *given, Py_ssize_t count, PyObject *names, Py_ssize_t first, const char *name,
            PyObject *fallback)
{
    if (first < count) {
        return given[first];
    }
    for (Py_ssize_t k = 0; names != NULL && k < PyTuple_GET_SIZE(names); k++) {
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k), name) == 0) {
            return given[count + k];
        }
    }
    return fallback;
}

Py_ssize_t
known_names(PyObject *names, const char *first, const char *second)
{
    Py_ssize_t known = 0;
    for (Py_ssize_t k = 0; names != NULL && k < PyTuple_GET_SIZE(names); k++) {
        PyObject *name = PyTuple_GET_ITEM(names, k);
        known += PyUnicode_CompareWithASCIIString(name, first) == 0 ||
                 PyUnicode_CompareWithASCIIString(name, second) == 0;
    }
    return known;
}

static int
is_ints(PyObject *value)
{
    for (Py_ssize_t k = 0; PyTuple_CheckExact(value) && k < PyTuple_GET_SIZE(value); k++) {
        if (!PyLong_CheckExact(PyTuple_GET_ITEM(value, k))) {
            return 0;
        }
    }
    return PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) > 0;
}

/* sum(input, dim, keepdim) and its like, with the operation for all elements, that for some dimensions, and the type of
 * its results if there are several, or None */
PyObject *
over_dims(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count < 1 || count + named > 3 || usual_array(given[0]) == NULL ||
        known_names(names, "dim", "keepdim") != named) {
        return NULL;
    }
    PyObject *dim = argument_of(given, count, names, 1, "dim", NULL);
    PyObject *keepdim = argument_of(given, count, names, 2, "keepdim", Py_False);
    if (count + named == 1) {
        return call_in_state(self->targets[0], state, given, 1);
    }
    int several = self->targets[2] != Py_None;
    if (dim == NULL || (count > 1 && known_names(names, "dim", "dim")) || !PyBool_Check(keepdim) ||
        !(PyLong_CheckExact(dim) || (!several && is_ints(dim)))) {
        return NULL;
    }
    PyObject *const call[] = {given[0], dim, keepdim};
    PyObject *result = call_in_state(self->targets[1], state, call, 3);
    if (several && result != NULL) {
        Py_SETREF(result, PyObject_CallOneArg(self->targets[2], result));
    }
    return result;
}

/* squeeze(input, dim), with the operations for all dimensions and for one */
PyObject *
squeeze(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count < 1 || count + named > 2 || usual_array(given[0]) == NULL || known_names(names, "dim", "dim") != named) {
        return NULL;
    }
    if (count + named == 1) {
        return call_in_state(self->targets[0], state, given, 1);
    }
    return PyLong_CheckExact(given[1]) ? call_in_state(self->targets[1], state, given, 2) : NULL;
}

/* matmul(input, other), with the operations for two matrices, a matrix and a vector, two vectors */
PyObject *
matmul(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *input = names != NULL || count != 2 ? NULL : usual_array(given[0]);
    PyArrayObject *other = input == NULL ? NULL : usual_array(given[1]);
    if (other == NULL) {
        return NULL;
    }
    int ndim = PyArray_NDIM(input), other_ndim = PyArray_NDIM(other);
    if (ndim < 1 || ndim > 2 || other_ndim < 1 || other_ndim > ndim) {
        return NULL;
    }
    return call_in_state(self->targets[ndim == 1 ? 2 : other_ndim == 1], state, given, 2);
}

/* ---- parts */

/* target(tensor, second, dim), the second taken over; NULL if that is. */
static PyObject *
call_along(PyObject *target, PyObject *state, PyObject *tensor, PyObject *second, PyObject *dim)
{
    PyObject *const call[] = {tensor, second, dim};
    PyObject *result = second == NULL ? NULL : call_in_state(target, state, call, 3);
    Py_XDECREF(second);
    return result;
}

/* The argument `dim` that follows two others, 0 (borrowed) by default; NULL if there are other arguments. */
static PyObject *
dim_after_two(PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    static PyObject *zero;
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count < 2 || count + named > 3 || usual_array(given[0]) == NULL || known_names(names, "dim", "dim") != named ||
        (zero == NULL && (zero = PyLong_FromLong(0)) == NULL)) {
        return NULL;
    }
    return argument_of(given, count, names, 2, "dim", zero);
}

/* chunk(input, chunks, dim) */
PyObject *
chunk(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *dim = dim_after_two(given, count, names);
    npy_intp chunks, axis;
    if (dim == NULL || !read_size(given[1], &chunks) || !read_size(dim, &axis) || chunks <= 0) {
        return NULL;
    }
    PyArrayObject *array = usual_array(given[0]);
    npy_intp ndim = PyArray_NDIM(array);
    if (axis < -ndim || axis >= ndim) {
        return NULL;
    }
    npy_intp length = PyArray_DIM(array, axis < 0 ? axis + ndim : axis);
    return length == 0 ? NULL
                       : call_along(self->targets[0], state, given[0], PyLong_FromSsize_t(1 + (length - 1) / chunks), dim);
}

/* split(input, split_size_or_sections, dim), with the operations for one size and for several */
PyObject *
split(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *dim = dim_after_two(given, count, names);
    if (dim == NULL || !PyLong_CheckExact(dim)) {
        return NULL;
    }
    if (PyLong_CheckExact(given[1])) {
        return call_along(self->targets[0], state, given[0], Py_NewRef(given[1]), dim);
    }
    return call_along(self->targets[1], state, given[0], sizes_of(given, 2, NULL), dim);
}
