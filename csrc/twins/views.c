/* Views of arrays: the twins of the functions behind the view operations of ops/views/dimensions.py, views/slices.py, views/reshape.py and
 * splitting.py. What they refuse with an error, and what is not an int where an int should be, Python deals with.
 */
#include "twins/table.h"

/* ---- making views */

/* The array seen with other sizes and strides, from another element on. */
static PyObject *
seen_as(PyArrayObject *array, int ndim, const npy_intp *dims, const npy_intp *strides, char *data)
{
    PyArray_Descr *dtype = PyArray_DESCR(array);
    Py_INCREF(dtype);
    PyObject *view = PyArray_NewFromDescr(&PyArray_Type, dtype, ndim, (npy_intp *)dims, (npy_intp *)strides, data,
                                          PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE, NULL);
    if (view != NULL && PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef(array)) < 0) {
        Py_CLEAR(view);
    }
    return view;
}

/* Some sizes or strides. (memcpy must not be given the NULL that those of an array without dimensions are.) */
static void
copy_some(npy_intp *to, const npy_intp *from, int count)
{
    for (int k = 0; k < count; k++) {
        to[k] = from[k];
    }
}

/* The sizes or the strides without those of a dimension. */
static void
leave_out(const npy_intp *from, int ndim, int dim, npy_intp *to)
{
    copy_some(to, from, dim);
    copy_some(to + dim, from + dim + 1, ndim - dim - 1);
}

/* The element `index` of a dimension. */
static PyObject *
selected(PyArrayObject *array, int dim, npy_intp index)
{
    npy_intp dims[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    int ndim = PyArray_NDIM(array);
    leave_out(PyArray_DIMS(array), ndim, dim, dims);
    leave_out(PyArray_STRIDES(array), ndim, dim, strides);
    return seen_as(array, ndim - 1, dims, strides, PyArray_BYTES(array) + index * PyArray_STRIDE(array, dim));
}

/* `count` elements of a dimension, from `start` on. */
static PyObject *
sliced(PyArrayObject *array, int dim, npy_intp start, npy_intp count, npy_intp step)
{
    npy_intp dims[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    int ndim = PyArray_NDIM(array);
    copy_some(dims, PyArray_DIMS(array), ndim);
    copy_some(strides, PyArray_STRIDES(array), ndim);
    dims[dim] = count;
    strides[dim] *= step;
    return seen_as(array, ndim, dims, strides, PyArray_BYTES(array) + start * PyArray_STRIDE(array, dim));
}

/* ---- reading arguments */

static PyArrayObject *
as_array(PyObject *object)
{
    return PyArray_CheckExact(object) ? (PyArrayObject *)object : NULL;
}

/* A dimension of an array of `ndim`, counted from the front; -1 if there is no such one. */
static int
as_dim(PyObject *object, int ndim)
{
    npy_intp dim;
    if (!read_size(object, &dim) || dim < -ndim || dim >= ndim) {
        return -1;
    }
    return (int)(dim < 0 ? dim + ndim : dim);
}

/* The sizes in a tuple; how many there are, or -1. */
static int
as_sizes(PyObject *tuple, npy_intp *sizes)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) > 32) {
        return -1;
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple); k++) {
        if (!read_size(PyTuple_GET_ITEM(tuple, k), &sizes[k])) {
            return -1;
        }
    }
    return (int)PyTuple_GET_SIZE(tuple);
}

/* A slice as `start:end:step` of so many elements: where it starts and how many it has; whether that could be told. */
static int
as_slice(PyObject *from, PyObject *to, PyObject *by, npy_intp length, npy_intp *start, npy_intp *count,
         npy_intp *step)
{
    npy_intp end = PY_SSIZE_T_MAX;
    *start = 0;
    if ((from != Py_None && !read_size(from, start)) || (to != Py_None && !read_size(to, &end)) || !read_size(by, step) ||
        *step <= 0) {
        return 0;
    }
    *count = PySlice_AdjustIndices(length, start, &end, *step);
    return 1;
}

/* ---- parts */

/* select_array(xp, input, dim, index) */
PyObject *
select_array(PyObject *const *arguments)
{
    PyArrayObject *input = as_array(arguments[1]);
    npy_intp index;
    int dim = input == NULL ? -1 : as_dim(arguments[2], PyArray_NDIM(input));
    if (dim < 0 || !read_size(arguments[3], &index)) {
        return NULL;
    }
    npy_intp size = PyArray_DIM(input, dim);
    if (index < -size || index >= size) {
        return NULL;
    }
    return selected(input, dim, index < 0 ? index + size : index);
}

/* slice_array(xp, input, dim, start, end, step) */
PyObject *
slice_array(PyObject *const *arguments)
{
    PyArrayObject *input = as_array(arguments[1]);
    npy_intp start, count, step;
    int dim = input == NULL ? -1 : as_dim(arguments[2], PyArray_NDIM(input));
    if (dim < 0 ||
        !as_slice(arguments[3], arguments[4], arguments[5], PyArray_DIM(input, dim), &start, &count, &step)) {
        return NULL;
    }
    return sliced(input, dim, start, count, step);
}

/* unbind_array(xp, input, dim) */
PyObject *
unbind_array(PyObject *const *arguments)
{
    PyArrayObject *input = as_array(arguments[1]);
    int dim = input == NULL ? -1 : as_dim(arguments[2], PyArray_NDIM(input));
    if (dim < 0) {
        return NULL;
    }
    PyObject *parts = PyTuple_New(PyArray_DIM(input, dim));
    for (npy_intp k = 0; parts != NULL && k < PyArray_DIM(input, dim); k++) {
        PyObject *part = selected(input, dim, k);
        if (part == NULL) {
            Py_CLEAR(parts);
        }
        else {
            PyTuple_SET_ITEM(parts, k, part);
        }
    }
    return parts;
}

/* cut_evenly(xp, input, split_size, dim) */
PyObject *
cut_evenly(PyObject *const *arguments)
{
    PyArrayObject *input = as_array(arguments[1]);
    npy_intp size;
    int dim = input == NULL ? -1 : as_dim(arguments[3], PyArray_NDIM(input));
    if (dim < 0 || !read_size(arguments[2], &size) || size <= 0 || PyArray_DIM(input, dim) == 0) {
        return NULL;
    }
    npy_intp length = PyArray_DIM(input, dim), count = 1 + (length - 1) / size;
    PyObject *parts = PyTuple_New(count);
    for (npy_intp k = 0; parts != NULL && k < count; k++) {
        npy_intp left = length - k * size;
        PyObject *part = sliced(input, dim, k * size, left < size ? left : size, 1);
        if (part == NULL) {
            Py_CLEAR(parts);
        }
        else {
            PyTuple_SET_ITEM(parts, k, part);
        }
    }
    return parts;
}

/* ---- gradients of parts: zeros with the gradient in its place */

/* Zeros of these sizes (a tuple) and the dtype of the gradient; NULL without an exception if Python should make them. */
static PyArrayObject *
zeros_for(PyArrayObject *grad, PyObject *sizes)
{
    npy_intp dims[NPY_MAXDIMS];
    int ndim = grad == NULL || PyArray_TYPE(grad) >= NPY_USERDEF ? -1 : as_sizes(sizes, dims);
    if (ndim <= 0) {
        return NULL;
    }
    PyArray_Descr *dtype = PyArray_DESCR(grad);
    Py_INCREF(dtype);
    return (PyArrayObject *)PyArray_Zeros(ndim, dims, dtype, 0);
}

/* The whole (taken over) once the gradient is in the place that `part` (taken over) shows. */
static PyObject *
filled_in(PyArrayObject *whole, PyObject *part, PyArrayObject *grad)
{
    int fits = part != NULL && PyArray_SAMESHAPE((PyArrayObject *)part, grad);
    if (!fits || PyArray_CopyInto((PyArrayObject *)part, grad) < 0) {
        Py_CLEAR(whole);
    }
    Py_XDECREF(part);
    return (PyObject *)whole;
}

/* select_gradient(xp, grad, input_sizes, dim, index) */
PyObject *
select_gradient(PyObject *const *arguments)
{
    PyArrayObject *grad = as_array(arguments[1]), *whole = zeros_for(grad, arguments[2]);
    if (whole == NULL) {
        return NULL;
    }
    PyObject *const call[] = {NULL, (PyObject *)whole, arguments[3], arguments[4]};
    return filled_in(whole, select_array(call), grad);
}

/* slice_gradient(xp, grad, input_sizes, dim, start, end, step) */
PyObject *
slice_gradient(PyObject *const *arguments)
{
    PyArrayObject *grad = as_array(arguments[1]), *whole = zeros_for(grad, arguments[2]);
    if (whole == NULL) {
        return NULL;
    }
    PyObject *const call[] = {NULL, (PyObject *)whole, arguments[3], arguments[4], arguments[5], arguments[6]};
    return filled_in(whole, slice_array(call), grad);
}

/* ---- the order of dimensions */

/* swap(xp, input, dim0, dim1) */
PyObject *
swap(PyObject *const *arguments)
{
    npy_intp dims[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    PyArrayObject *input = as_array(arguments[1]);
    int ndim = input == NULL ? 0 : PyArray_NDIM(input);
    int first = ndim == 0 ? -1 : as_dim(arguments[2], ndim), second = first < 0 ? -1 : as_dim(arguments[3], ndim);
    if (second < 0) {
        return NULL;
    }
    copy_some(dims, PyArray_DIMS(input), ndim);
    copy_some(strides, PyArray_STRIDES(input), ndim);
    dims[first] = PyArray_DIM(input, second);
    dims[second] = PyArray_DIM(input, first);
    strides[first] = PyArray_STRIDE(input, second);
    strides[second] = PyArray_STRIDE(input, first);
    return seen_as(input, ndim, dims, strides, PyArray_BYTES(input));
}

/* The dimensions that a tuple names, each once; whether it does. */
static int
as_order(PyObject *tuple, int ndim, int *order)
{
    unsigned long long seen = 0;
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != ndim || ndim > 32) {
        return 0;
    }
    for (int k = 0; k < ndim; k++) {
        order[k] = as_dim(PyTuple_GET_ITEM(tuple, k), ndim);
        if (order[k] < 0 || seen >> order[k] & 1) {
            return 0;
        }
        seen |= 1ull << order[k];
    }
    return 1;
}

/* permute_array(xp, input, dims) */
PyObject *
permute_array(PyObject *const *arguments)
{
    npy_intp dims[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    int order[32];
    PyArrayObject *input = as_array(arguments[1]);
    if (input == NULL || !as_order(arguments[2], PyArray_NDIM(input), order)) {
        return NULL;
    }
    for (int k = 0; k < PyArray_NDIM(input); k++) {
        dims[k] = PyArray_DIM(input, order[k]);
        strides[k] = PyArray_STRIDE(input, order[k]);
    }
    return seen_as(input, PyArray_NDIM(input), dims, strides, PyArray_BYTES(input));
}

/* inverse(dims): the permutation that undoes another */
PyObject *
inverse(PyObject *const *arguments)
{
    int order[32], ndim = PyTuple_Check(arguments[0]) ? (int)PyTuple_GET_SIZE(arguments[0]) : 0;
    if (ndim == 0 || !as_order(arguments[0], ndim, order)) {
        return NULL;
    }
    PyObject *undone = PyTuple_New(ndim);
    for (int k = 0; undone != NULL && k < ndim; k++) {
        PyObject *place = PyLong_FromLong(k);
        if (place == NULL) {
            Py_CLEAR(undone);
        }
        else {
            PyTuple_SET_ITEM(undone, order[k], place);
        }
    }
    return undone;
}

/* ---- dimensions of size one */

/* unsqueeze_array(xp, input, dim) */
PyObject *
unsqueeze_array(PyObject *const *arguments)
{
    npy_intp dims[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    PyArrayObject *input = as_array(arguments[1]);
    int ndim = input == NULL ? 32 : PyArray_NDIM(input), dim = ndim > 31 ? -1 : as_dim(arguments[2], ndim + 1);
    if (dim < 0) {
        return NULL;
    }
    copy_some(dims, PyArray_DIMS(input), dim);
    copy_some(strides, PyArray_STRIDES(input), dim);
    dims[dim] = 1;
    strides[dim] = 0;
    for (int k = dim; k < ndim; k++) {
        dims[k + 1] = PyArray_DIM(input, k);
        strides[k + 1] = PyArray_STRIDE(input, k);
    }
    return seen_as(input, ndim + 1, dims, strides, PyArray_BYTES(input));
}

/* The array without those dimensions (as bits) that are of size 1. */
static PyObject *
squeezed(PyArrayObject *input, unsigned long long which)
{
    npy_intp dims[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    int ndim = 0;
    for (int k = 0; k < PyArray_NDIM(input); k++) {
        if (PyArray_DIM(input, k) != 1 || !(which >> k & 1)) {
            dims[ndim] = PyArray_DIM(input, k);
            strides[ndim++] = PyArray_STRIDE(input, k);
        }
    }
    return seen_as(input, ndim, dims, strides, PyArray_BYTES(input));
}

/* squeeze_all(xp, input) */
PyObject *
squeeze_all(PyObject *const *arguments)
{
    PyArrayObject *input = as_array(arguments[1]);
    return input == NULL ? NULL : squeezed(input, ~0ull);
}

/* squeeze_one(xp, input, dim) */
PyObject *
squeeze_one(PyObject *const *arguments)
{
    PyArrayObject *input = as_array(arguments[1]);
    int dim = input == NULL ? -1 : as_dim(arguments[2], PyArray_NDIM(input));
    return dim < 0 ? NULL : squeezed(input, 1ull << dim);
}

/* ---- sizes */

static PyObject *
reshaped(PyArrayObject *input, int ndim, npy_intp *sizes)
{
    PyArray_Dims dims = {sizes, ndim};
    return PyArray_Newshape(input, &dims, NPY_CORDER);
}

/* expand_array(xp, input, size) */
PyObject *
expand_array(PyObject *const *arguments)
{
    npy_intp sizes[NPY_MAXDIMS], count = 1;
    PyArrayObject *input = as_array(arguments[1]);
    int ndim = input == NULL ? -1 : as_sizes(arguments[2], sizes);
    int lead = input == NULL ? 0 : ndim - PyArray_NDIM(input);
    if (ndim < 0 || lead < 0) {
        return NULL;
    }
    for (int k = 0; k < ndim; k++) {
        npy_intp own = k < lead ? 1 : PyArray_DIM(input, k - lead);
        if (sizes[k] == -1 && k >= lead) {
            sizes[k] = own;
        }
        if (sizes[k] < 0 || (own != 1 && own != sizes[k]) || count > PY_SSIZE_T_MAX / (sizes[k] + 1)) {
            return NULL;
        }
        count *= sizes[k];
    }
    if (count == PyArray_SIZE(input)) { /* no element appears twice, so the view may be written to */
        return reshaped(input, ndim, sizes);
    }
    PyObject *shape = PyArray_IntTupleFromIntp(ndim, sizes);
    PyObject *const call[] = {(PyObject *)input, shape};
    PyObject *view = shape == NULL ? NULL : broadcast_to(call);
    Py_XDECREF(shape);
    return view;
}

/* view_array(xp, input, size) */
PyObject *
view_array(PyObject *const *arguments)
{
    npy_intp sizes[NPY_MAXDIMS], count = 1;
    PyArrayObject *input = as_array(arguments[1]);
    int ndim = input == NULL || !PyArray_IS_C_CONTIGUOUS(input) ? -1 : as_sizes(arguments[2], sizes);
    for (int k = 0; k < ndim; k++) {
        if (sizes[k] < 0 || count > PY_SSIZE_T_MAX / (sizes[k] + 1)) {
            return NULL;
        }
        count *= sizes[k];
    }
    return ndim < 0 || count != PyArray_SIZE(input) ? NULL : reshaped(input, ndim, sizes);
}
