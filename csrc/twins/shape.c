/* Arrays seen in another shape, put together, multiplied as matrices and summed to a smaller shape: twins of functions of
 * backend/ and of ops/linalg/matmul.py and ops/shape/joining.py.
 */
#include "kernels/copies.h"
#include "kernels/kernels.h"
#include "kernels/sums.h"
#include "quiet.h"
#include "twins/small_products.h"
#include "twins/arrays.h"
#include "twins/table.h"

/* ---- putting arrays together */

/* Whether an object is a list of arrays of one shape and dtype, each one row after the other. */
static int
is_uniform(PyObject *list)
{
    if (!PyList_CheckExact(list) || PyList_GET_SIZE(list) == 0) {
        return 0;
    }
    PyArrayObject *first = (PyArrayObject *)PyList_GET_ITEM(list, 0);
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list); k++) {
        PyArrayObject *array = (PyArrayObject *)PyList_GET_ITEM(list, k);
        if (!PyArray_CheckExact(array) || !PyArray_CHKFLAGS(array, NPY_ARRAY_C_CONTIGUOUS) ||
            !PyArray_SAMESHAPE(array, first) || PyArray_DESCR(array) != PyArray_DESCR(first)) {
            return 0;
        }
    }
    return 1;
}

/* transpose_matrix(xp, input) */
PyObject *
transpose_matrix(PyObject *const *arguments)
{
    PyArrayObject *input = (PyArrayObject *)arguments[1];
    return PyArray_CheckExact(input) && PyArray_NDIM(input) <= 2 ? PyArray_Transpose(input, NULL) : NULL;
}

/* broadcast_to(x, shape): x seen as if it had this shape, not to be written to */
PyObject *
broadcast_to(PyObject *const *arguments)
{
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    PyObject *shape = arguments[1];
    npy_intp dims[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    if (!PyArray_CheckExact(x) || !PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) > 32) {
        return NULL;
    }
    int ndim = (int)PyTuple_GET_SIZE(shape), lead = ndim - PyArray_NDIM(x);
    if (lead < 0) {
        return NULL;
    }
    for (int k = 0; k < ndim; k++) {
        PyObject *size = PyTuple_GET_ITEM(shape, k);
        npy_intp own = k < lead ? 1 : PyArray_DIM(x, k - lead);
        dims[k] = PyLong_CheckExact(size) ? PyLong_AsSsize_t(size) : -1;
        if (dims[k] < 0 || (own != 1 && own != dims[k])) {
            PyErr_Clear();
            return NULL;
        }
        strides[k] = own == dims[k] && k >= lead ? PyArray_STRIDE(x, k - lead) : 0;
    }
    PyArray_Descr *dtype = PyArray_DESCR(x);
    Py_INCREF(dtype);
    PyObject *view = PyArray_NewFromDescr(&PyArray_Type, dtype, ndim, dims, strides, PyArray_DATA(x), 0, NULL);
    if (view != NULL && PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef(x)) < 0) {
        Py_CLEAR(view);
    }
    return view;
}

#define MANY_TO_JOIN 32768 /* elements of each */

/* Put the parts of arrays of one shape and dtype in turns: `bytes` of each lie together. */
static void
put_in_turns(PyObject *list, PyArrayObject *out, npy_intp bytes)
{
    npy_intp count = PyList_GET_SIZE(list), size = PyArray_ITEMSIZE(out);
    for (npy_intp k = 0; k < count && bytes > 0; k++) {
        PyArrayObject *array = (PyArrayObject *)PyList_GET_ITEM(list, k);
        Copy copy = {.ndim = 2,
                     .size = size,
                     .shape = {PyArray_NBYTES(array) / bytes, bytes / size},
                     .to_strides = {bytes * count, size},
                     .from_strides = {bytes, size},
                     .to = PyArray_BYTES(out) + k * bytes,
                     .from = PyArray_BYTES(array)};
        WORK(PyArray_SIZE(array), copy_elements(&copy));
    }
}

/* The same for large arrays of numbers, each of which is divided among threads. */
static PyObject *
join_large(PyObject *list, int dim)
{
    PyArrayObject *first = (PyArrayObject *)PyList_GET_ITEM(list, 0);
    PyArray_Descr *descr = PyArray_DESCR(first);
    npy_intp dims[NPY_MAXDIMS], bytes = PyArray_ITEMSIZE(first);
    if (PyDataType_REFCHK(descr)) {
        return PyArray_Concatenate(list, dim);
    }
    memcpy(dims, PyArray_DIMS(first), PyArray_NDIM(first) * sizeof(npy_intp));
    for (int d = dim; d < PyArray_NDIM(first); d++) {
        bytes *= dims[d];
    }
    dims[dim] *= PyList_GET_SIZE(list);
    Py_INCREF(descr);
    PyObject *out = new_large(PyArray_NDIM(first), dims, NULL, descr);
    if (out != NULL) {
        put_in_turns(list, (PyArrayObject *)out, bytes);
    }
    return out;
}

/* join(xp, tensors, dim): arrays of one shape and dtype, one behind the other */
PyObject *
join(PyObject *const *arguments)
{
    PyObject *list = arguments[1];
    if (!is_uniform(list) || !PyLong_CheckExact(arguments[2])) {
        return NULL;
    }
    PyArrayObject *first = (PyArrayObject *)PyList_GET_ITEM(list, 0);
    long dim = PyLong_AsLong(arguments[2]), ndim = PyArray_NDIM(first);
    if (PyErr_Occurred() || dim < -ndim || dim >= ndim || PyArray_SIZE(first) == 0) {
        PyErr_Clear();
        return NULL;
    }
    dim = dim < 0 ? dim + ndim : dim;
    return PyArray_SIZE(first) < MANY_TO_JOIN ? PyArray_Concatenate(list, (int)dim) : join_large(list, (int)dim);
}

/* Whether an array can lie in another one along a dimension: it is alike in all else. Those of images with the channels last
 * are left to NumPy, which keeps their order. */
static int
fits_along(PyObject *object, PyArrayObject *other, long dim)
{
    PyArrayObject *array = (PyArrayObject *)object;
    if (!PyArray_CheckExact(object) || PyArray_DESCR(array) != PyArray_DESCR(other) ||
        PyArray_NDIM(array) != PyArray_NDIM(other)) {
        return 0;
    }
    for (int d = 0; d < PyArray_NDIM(array); d++) {
        if (d != dim && PyArray_DIM(array, d) != PyArray_DIM(other, d)) {
            return 0;
        }
    }
    return PyArray_NDIM(array) < 4 || PyArray_DIM(array, 1) == 1 ||
           PyArray_STRIDE(array, 1) != PyArray_ITEMSIZE(array);
}

/* Copy an array to where it lies in another one, `start` numbers along a dimension behind its beginning. */
static void
put_along(PyArrayObject *array, PyArrayObject *out, long dim, npy_intp start)
{
    Copy copy = {.ndim = PyArray_NDIM(array),
                 .size = PyArray_ITEMSIZE(out),
                 .to = PyArray_BYTES(out) + start * PyArray_STRIDE(out, (int)dim),
                 .from = PyArray_BYTES(array)};
    memcpy(copy.shape, PyArray_DIMS(array), copy.ndim * sizeof(npy_intp));
    memcpy(copy.to_strides, PyArray_STRIDES(out), copy.ndim * sizeof(npy_intp));
    memcpy(copy.from_strides, PyArray_STRIDES(array), copy.ndim * sizeof(npy_intp));
    if (PyArray_SIZE(array) > 0) {
        WORK(PyArray_SIZE(array), copy_elements(&copy));
    }
}

/* concatenate(arrays, axis), of arrays of one dtype; large ones are copied by several threads */
PyObject *
concatenate(PyObject *const *arguments)
{
    PyObject *list = arguments[0];
    if (!PyList_CheckExact(list) || PyList_GET_SIZE(list) == 0 || !PyArray_CheckExact(PyList_GET_ITEM(list, 0)) ||
        !PyLong_CheckExact(arguments[1])) {
        return NULL;
    }
    PyArrayObject *first = (PyArrayObject *)PyList_GET_ITEM(list, 0);
    npy_intp dims[NPY_MAXDIMS], total = 0, start = 0;
    int overflow, ndim = PyArray_NDIM(first);
    long axis = PyLong_AsLongAndOverflow(arguments[1], &overflow), dim = axis < 0 ? axis + ndim : axis;
    if (overflow || dim < 0 || dim >= ndim || PyDataType_REFCHK(PyArray_DESCR(first)) ||
        PyArray_ISBYTESWAPPED(first)) {
        return NULL;
    }
    memcpy(dims, PyArray_DIMS(first), ndim * sizeof(npy_intp));
    dims[dim] = 0;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list); k++) {
        PyObject *array = PyList_GET_ITEM(list, k);
        if (!fits_along(array, first, dim)) {
            return NULL;
        }
        dims[dim] += PyArray_DIM((PyArrayObject *)array, (int)dim);
        total += PyArray_SIZE((PyArrayObject *)array);
    }
    if (total < MANY_TO_JOIN) {
        return PyArray_Concatenate(list, (int)dim);
    }
    PyArray_Descr *descr = PyArray_DESCR(first);
    Py_INCREF(descr);
    PyObject *out = new_large(ndim, dims, NULL, descr);
    for (Py_ssize_t k = 0; out != NULL && k < PyList_GET_SIZE(list); k++) {
        PyArrayObject *array = (PyArrayObject *)PyList_GET_ITEM(list, k);
        put_along(array, (PyArrayObject *)out, dim, start);
        start += PyArray_DIM(array, (int)dim);
    }
    return out;
}

/* pile(xp, tensors, dim): arrays of one shape and dtype, along a new dimension */
PyObject *
pile(PyObject *const *arguments)
{
    PyObject *list = arguments[1];
    npy_intp dims[NPY_MAXDIMS], outer = 1;
    if (!is_uniform(list) || !PyLong_CheckExact(arguments[2])) {
        return NULL;
    }
    PyArrayObject *first = (PyArrayObject *)PyList_GET_ITEM(list, 0);
    int overflow;
    long ndim = PyArray_NDIM(first), dim = PyLong_AsLongAndOverflow(arguments[2], &overflow);
    dim = dim < 0 ? dim + ndim + 1 : dim;
    if (overflow || ndim > 31 || dim < 0 || dim > ndim) {
        return NULL;
    }
    npy_intp count = dims[dim] = PyList_GET_SIZE(list);
    for (long k = 0; k < ndim; k++) {
        dims[k + (k >= dim)] = PyArray_DIM(first, (int)k);
        outer *= k < dim ? PyArray_DIM(first, (int)k) : 1;
    }
    PyArray_Descr *dtype = PyArray_DESCR(first);
    Py_INCREF(dtype);
    PyArrayObject *out = (PyArrayObject *)new_large((int)ndim + 1, dims, NULL, dtype);
    size_t size = outer ? PyArray_NBYTES(first) / outer : 0; /* of what lies together */
    if (out != NULL && PyArray_SIZE(first) >= MANY_TO_JOIN) {
        put_in_turns(list, out, size);
        return (PyObject *)out;
    }
    for (npy_intp k = 0; out != NULL && k < count; k++) {
        const char *from = PyArray_BYTES((PyArrayObject *)PyList_GET_ITEM(list, k));
        for (npy_intp o = 0; size && o < outer; o++) {
            memcpy(PyArray_BYTES(out) + (o * count + k) * size, from + o * size, size);
        }
    }
    return (PyObject *)out;
}

/* ---- matrices */

/* multiply_matrices(xp, input, mat2) */
PyObject *
multiply_matrices(PyObject *const *arguments)
{
    PyArrayObject *a = (PyArrayObject *)arguments[1], *b = (PyArrayObject *)arguments[2];
    if (!PyArray_CheckExact(a) || !PyArray_CheckExact(b) || PyArray_NDIM(a) != 2 || PyArray_NDIM(b) != 2 ||
        PyArray_DESCR(a) != PyArray_DESCR(b) || PyArray_DIM(a, 1) != PyArray_DIM(b, 0) ||
        (PyArray_SIZE(b) > 4096 && PyArray_STRIDE(b, 0) == PyArray_ITEMSIZE(b) && PyArray_DIM(a, 0) < 8)) {
        /* times_transposed may be faster */
        return NULL;
    }
    return product_of_matrices(a, b);
}

/* How many rows are added up before their sum is added to the total, so that rounding errors do not grow with all. */
#define ROWS_AT_ONCE 64

#define SUM_ROWS(type)                                                                                                \
    static void sum_rows_##type(const type *x, npy_intp rows, npy_intp columns, type *block, type *out)              \
    {                                                                                                                 \
        memset(out, 0, columns * sizeof(type));                                                                       \
        for (npy_intp first = 0; first < rows; first += ROWS_AT_ONCE) {                                               \
            npy_intp last = first + ROWS_AT_ONCE < rows ? first + ROWS_AT_ONCE : rows;                                \
            type *sum = rows <= ROWS_AT_ONCE ? out : block;                                                           \
            memcpy(sum, x + first * columns, columns * sizeof(type));                                                 \
            for (npy_intp i = first + 1; i < last; i++) {                                                             \
                const type *row = x + i * columns;                                                                    \
                for (npy_intp j = 0; j < columns; j++) {                                                              \
                    sum[j] += row[j];                                                                                 \
                }                                                                                                     \
            }                                                                                                         \
            if (sum != out) {                                                                                         \
                for (npy_intp j = 0; j < columns; j++) {                                                              \
                    out[j] += sum[j];                                                                                 \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }

SUM_ROWS(float)
SUM_ROWS(double)

/* The largest array whose sums are made here. */
#define FEW_TERMS 4096

/* Look at the elements of x as outer times n times inner, of which n are to be added up for an array of that shape;
 * whether the dimensions that are summed over are neighbours. */
static int
read_summed(PyArrayObject *x, PyObject *shape, npy_intp *sizes)
{
    int lead = PyArray_NDIM(x) - (int)PyTuple_GET_SIZE(shape), part = 0;
    sizes[0] = sizes[1] = sizes[2] = 1;
    for (int d = 0; lead >= 0 && d < PyArray_NDIM(x); d++) {
        npy_intp size = PyArray_DIM(x, d), wanted = d < lead ? 1 : PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, d - lead));
        int is_summed = size != 1 && wanted == 1;
        if (PyErr_Occurred() || (!is_summed && wanted != size) || (part == 2 && is_summed)) {
            PyErr_Clear();
            return 0;
        }
        part = is_summed ? 1 : part == 1 && size != 1 ? 2 : part;
        sizes[part] *= size;
    }
    return lead >= 0;
}

static PyObject *
large_sum_to(PyArrayObject *x, PyObject *shape)
{
    npy_intp sizes[3], dims[NPY_MAXDIMS];
    int ndim = (int)PyTuple_GET_SIZE(shape);
    if (ndim > NPY_MAXDIMS || !read_summed(x, shape, sizes) || sizes[1] == 1) {
        return NULL;
    }
    for (int d = 0; d < ndim; d++) {
        dims[d] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, d));
    }
    PyArrayObject *out = (PyArrayObject *)new_array(ndim, dims, PyArray_TYPE(x));
    if (out != NULL && !sum_slices(PyArray_TYPE(x), PyArray_DATA(x), sizes[0], sizes[1], sizes[2], 1, PyArray_DATA(out))) {
        Py_CLEAR(out);
    }
    return (PyObject *)out;
}

/* sum_to(x, shape), for the sum of the rows of a matrix, which is the gradient of a bias; and for any large array */
PyObject *
sum_to(PyObject *const *arguments)
{
    PyObject *shape = arguments[1];
    if (PyArray_CheckExact(arguments[0]) && PyTuple_Check(shape) && is_plain(arguments[0]) &&
        PyArray_SIZE((PyArrayObject *)arguments[0]) > FEW_TERMS) {
        return large_sum_to((PyArrayObject *)arguments[0], shape);
    }
    PyArrayObject *x = plain_array(arguments[0], 2);
    if (x == NULL || !PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) != 1 ||
        PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, 0)) != PyArray_DIM(x, 1)) {
        PyErr_Clear();
        return NULL;
    }
    npy_intp rows = PyArray_DIM(x, 0), columns = PyArray_DIM(x, 1);
    PyArrayObject *out = (PyArrayObject *)new_array(1, &columns, PyArray_TYPE(x));
    void *block = rows <= ROWS_AT_ONCE ? NULL : PyMem_Malloc(columns * PyArray_ITEMSIZE(x) + 1);
    if (out == NULL || (rows > ROWS_AT_ONCE && block == NULL)) {
        PyMem_Free(block);
        Py_XDECREF(out);
        return PyErr_NoMemory();
    }
    if (PyArray_DESCR(x) == core.float32) {
        sum_rows_float(PyArray_DATA(x), rows, columns, block, PyArray_DATA(out));
    }
    else {
        sum_rows_double(PyArray_DATA(x), rows, columns, block, PyArray_DATA(out));
    }
    PyMem_Free(block);
    return (PyObject *)out;
}
