/* In which order the elements of a result lie in memory: backend/memory_order.py, which says what the orders are.
 *
 * Results that lie by rows beside operands that do, nearly all there are, cost a look at their flags.
 */
#include "call/operation.h"
#include "kernels/copies.h"
#include "loops/memory.h"

/* What an array tells about two dimensions of a result of which it is an operand: its strides along them, 0 where it is
 * broadcast. */
static npy_intp
stride_within(PyArrayObject *operand, PyArrayObject *out, int dim)
{
    int own = dim - (PyArray_NDIM(out) - PyArray_NDIM(operand));
    if (own < 0 || PyArray_DIM(operand, own) == 1) {
        return 0;
    }
    npy_intp stride = PyArray_STRIDE(operand, own);
    return stride < 0 ? -stride : stride;
}

/* 1 if dimension `first` belongs outside of `second`, -1 if inside, 0 if no operand says. */
static int
compare(PyArrayObject *const *operands, int count, PyArrayObject *out, int first, int second)
{
    for (int k = 0; k < count; k++) {
        if (PyArray_NDIM(operands[k]) > PyArray_NDIM(out)) {
            continue;
        }
        npy_intp a = stride_within(operands[k], out, first), b = stride_within(operands[k], out, second);
        if (a == 0 || b == 0) {
            continue;
        }
        if (a != b) {
            return a > b ? 1 : -1;
        }
        if (PyArray_DIM(out, first) > PyArray_DIM(out, second)) {
            return 1;
        }
    }
    return 0;
}

/* The dimensions from the outermost to the innermost: `nesting` of backend/memory_order.py. */
static void
nest(PyArrayObject *const *operands, int count, PyArrayObject *out, npy_intp *dims)
{
    npy_intp inner_first[NPY_MAXDIMS], swapped;
    int ndim = PyArray_NDIM(out), found = 0, ones = 0;
    for (int dim = ndim - 1; dim >= 0; dim--) {
        if (PyArray_DIM(out, dim) != 1) {
            inner_first[found++] = dim;
        }
    }
    for (int place = 1; place < found; place++) {
        int here = place;
        for (int other = place - 1; other >= 0; other--) {
            int compared = compare(operands, count, out, (int)inner_first[other], (int)inner_first[here]);
            if (compared < 0) {
                break;
            }
            if (compared > 0) {
                swapped = inner_first[other];
                inner_first[other] = inner_first[here];
                inner_first[here] = swapped;
                here = other;
            }
        }
    }
    for (int dim = 0; dim < ndim; dim++) {
        if (PyArray_DIM(out, dim) == 1) {
            dims[ones++] = dim;
        }
    }
    for (int k = 0; k < found; k++) {
        dims[ones + k] = inner_first[found - 1 - k];
    }
}

/* Strides in bytes, where NumPy's 0 for dimensions of size 1 is what the next one spans. */
static void
find_shown_strides(PyArrayObject *array, npy_intp *strides)
{
    npy_intp span = PyArray_ITEMSIZE(array);
    for (int dim = PyArray_NDIM(array) - 1; dim >= 0; dim--) {
        npy_intp n = PyArray_DIM(array, dim);
        strides[dim] = PyArray_STRIDE(array, dim) == 0 && n == 1 ? span : PyArray_STRIDE(array, dim);
        span = (n > 1 ? n : 1) * strides[dim];
    }
}

static int
is_channels_last(PyArrayObject *array, int least_ndim)
{
    npy_intp strides[5], least = 0;
    int ndim = PyArray_NDIM(array);
    if (ndim < least_ndim || ndim > 5 || PyArray_SIZE(array) == 0) {
        return 0;
    }
    find_shown_strides(array, strides);
    for (int k = 0; k < ndim; k++) {
        int dim = k == 0 ? 1 : k == ndim - 1 ? 0 : ndim - k;
        if (strides[dim] < least || strides[1] <= 0 || (dim == 0 && least == strides[1])) {
            return 0;
        }
        least = strides[dim] * PyArray_DIM(array, dim);
    }
    return 1;
}

/* Whether a single volume lies without gaps, point after point, each with all its channels. */
static int
lies_with_first_last(PyArrayObject *array)
{
    npy_intp span = PyArray_ITEMSIZE(array);
    for (int k = 0; k < 4; k++) {
        int dim = (4 - k) % 4;
        if (PyArray_DIM(array, dim) != 1 && PyArray_STRIDE(array, dim) != span) {
            return 0;
        }
        span *= PyArray_DIM(array, dim);
    }
    return 1;
}

/* The dimensions from the outermost to the innermost, in an order of which the flags did not tell that it is kept. */
static void
find_dims(enum Order order, PyArrayObject *const *operands, int count, PyArrayObject *out, npy_intp *dims)
{
    int ndim = PyArray_NDIM(out);
    PyArrayObject *turned[MOST_ARGUMENTS];
    if (order == ORDER_SECOND && count > 1) {
        memcpy(turned, operands, count * sizeof(PyArrayObject *));
        turned[0] = operands[1];
        turned[1] = operands[0];
        operands = turned;
    }
    if (order == ORDER_OPERANDS || order == ORDER_SECOND || (order == ORDER_FIRST && count && PyArray_SAMESHAPE(operands[0], out))) {
        nest(operands, order == ORDER_FIRST ? 1 : count, out, dims);
        return;
    }
    for (int dim = 0; dim < ndim; dim++) {
        dims[dim] = dim;
    }
    if (order == ORDER_COLUMNS && ndim > 1) {
        dims[ndim - 2] = ndim - 1;
        dims[ndim - 1] = ndim - 2;
    }
    if (order == ORDER_VOLUMES && ndim == 4) {
        if (count && PyArray_NDIM(operands[0]) == 4 && !PyArray_IS_C_CONTIGUOUS(operands[0]) &&
            lies_with_first_last(operands[0])) {
            for (int dim = 0; dim < 4; dim++) {
                dims[dim] = (dim + 1) % 4;
            }
        }
        return;
    }
    int may_be_last = order == ORDER_VOLUMES || order == ORDER_CHANNELS || (order == ORDER_IMAGES && ndim < 5) ||
                      (order == ORDER_CONVOLUTION && (ndim < 5 || PyArray_TYPE(out) == NPY_FLOAT));
    int least_ndim = order == ORDER_CONVOLUTION || order == ORDER_IMAGES ? 3 : 4;
    for (int k = 0; may_be_last && k < count; k++) {
        if (PyArray_NDIM(operands[k]) == ndim && is_channels_last(operands[k], least_ndim)) {
            for (int dim = 1; dim < ndim - 1; dim++) {
                dims[dim] = dim + 1;
            }
            dims[ndim - 1] = 1;
            return;
        }
    }
}

/* The strides of elements that lie in that order without gaps; whether those of the array are the same. */
static int
find_strides(PyArrayObject *array, const npy_intp *dims, npy_intp *strides)
{
    npy_intp span = PyArray_ITEMSIZE(array);
    int same = 1;
    for (int k = PyArray_NDIM(array) - 1; k >= 0; k--) {
        npy_intp n = PyArray_DIM(array, dims[k]);
        strides[dims[k]] = span;
        same = same && (n == 1 || PyArray_STRIDE(array, dims[k]) == span);
        span *= n;
    }
    return same || span == 0;
}

/* The array (taken over), or a copy of it, whose elements lie in that order. */
static PyObject *
laid_out(PyArrayObject *array, const npy_intp *dims)
{
    npy_intp strides[NPY_MAXDIMS];
    if (find_strides(array, dims, strides)) {
        return (PyObject *)array;
    }
    PyArray_Descr *descr = PyArray_DESCR(array);
    Py_INCREF(descr);
    PyObject *copy = new_large(PyArray_NDIM(array), PyArray_DIMS(array), strides, descr);
    if (copy != NULL && copy_into((PyArrayObject *)copy, array) < 0) {
        Py_CLEAR(copy);
    }
    Py_DECREF(array);
    return copy;
}

static PyObject *
arranged(enum Order order, PyArrayObject *const *operands, int count, int by_rows, PyObject *out)
{
    PyArrayObject *array = (PyArrayObject *)out;
    npy_intp dims[NPY_MAXDIMS];
    if (order == ORDER_AS_COMPUTED || !PyArray_CheckExact(out) ||
        (PyArray_IS_C_CONTIGUOUS(array) && order != ORDER_COLUMNS && (by_rows || order == ORDER_ROWS))) {
        return out;
    }
    for (int k = 0; k < count; k++) {
        if (operands[k] == array) {
            return out; /* nothing was computed */
        }
    }
    find_dims(order, operands, count, array, dims);
    return laid_out(array, dims);
}

PyObject *
in_its_order(const Operation *self, const Form *form, int number, PyObject *const *values, PyObject *out)
{
    PyArrayObject *operands[MOST_ARGUMENTS];
    int count = 0, by_rows = 1, last = form->order_count - 1;
    if (last < 0 || (last == 0 && form->orders[0] == ORDER_AS_COMPUTED)) {
        return out;
    }
    for (int k = 0; k < self->count; k++) {
        PyObject *array = self->inputs[k] && k != number && values[k] != Py_None ? SLOT(values[k], core.t_array) : NULL;
        if (array != NULL && PyArray_CheckExact(array)) {
            operands[count++] = (PyArrayObject *)array;
            by_rows = by_rows && PyArray_IS_C_CONTIGUOUS((PyArrayObject *)array);
        }
    }
    if (!form->several) {
        return arranged(form->orders[0], operands, count, by_rows, out);
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(out); k++) { /* a new tuple, which nobody else has seen */
        PyObject *one =
            arranged(form->orders[k < last ? k : last], operands, count, by_rows, PyTuple_GET_ITEM(out, k));
        PyTuple_SET_ITEM(out, k, one);
        if (one == NULL) {
            Py_DECREF(out);
            return NULL;
        }
    }
    return out;
}
