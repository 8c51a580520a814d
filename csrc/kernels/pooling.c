/* Pooling over the last one to three dimensions: the largest element of each window, or the mean. */
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "kernels/spatial_sizes.h"

typedef struct {
    Py_ssize_t images; /* all dimensions before */
    Py_ssize_t size[3], count[3], kernel[3], stride[3], padding[3], dilation[3];
    Py_ssize_t *inside; /* for each column of a window: the first result that has it inside, and the one behind the
                         * last */
    double *divisors;
    int is_whole; /* windows of 2 x 2 side by side, or of 3 x 3, without padding, none of which is cut off */
} Pool;

/* The first element of a window that is inside the image. */
static Py_ssize_t
first_inside(const Pool *pool, int d, Py_ssize_t window)
{
    Py_ssize_t first = window * pool->stride[d] - pool->padding[d], step = pool->dilation[d];
    return first < 0 ? (first % step + step) % step : first;
}

#define REAL float
#define INDEX npy_int32
#include "kernels/pooling_loops.h"
#undef REAL
#undef INDEX
#define REAL double
#define INDEX npy_int64
#include "kernels/pooling_loops.h"
#undef REAL
#undef INDEX

/* ---- arguments */

/* How many dimensions there are, by one of the tuples; 0 if they are too many for this array. */
static Py_ssize_t
dims_of(PyObject *tuple, PyArrayObject *array)
{
    Py_ssize_t dims = PyTuple_Check(tuple) ? PyTuple_GET_SIZE(tuple) : 0;
    return dims <= 3 && dims <= PyArray_NDIM(array) ? dims : 0;
}

static void
take_images(Pool *pool, PyArrayObject *array, Py_ssize_t dims)
{
    pool->images = PyArray_MultiplyList(PyArray_DIMS(array), (int)(PyArray_NDIM(array) - dims));
}

/* kernel, stride, padding */
static int
take_windows(Pool *pool, PyObject *const *arguments, Py_ssize_t dims)
{
    pool->dilation[0] = pool->dilation[1] = pool->dilation[2] = 1;
    return take_sizes(arguments[0], dims, 1, 1, pool->kernel) && take_sizes(arguments[1], dims, 1, 1, pool->stride) &&
           take_sizes(arguments[2], dims, 0, 0, pool->padding);
}

static int
find_inside(Pool *pool)
{
    Py_ssize_t n = pool->size[2], s = pool->stride[2];
    pool->inside = PyMem_Malloc(2 * pool->kernel[2] * sizeof(Py_ssize_t));
    for (Py_ssize_t k = 0; pool->inside != NULL && k < pool->kernel[2]; k++) {
        Py_ssize_t shift = k * pool->dilation[2] - pool->padding[2]; /* 0 <= c * s + shift < n */
        Py_ssize_t first = shift < 0 ? (-shift + s - 1) / s : 0, end = n > shift ? (n - shift + s - 1) / s : 0;
        pool->inside[2 * k] = first;
        pool->inside[2 * k + 1] = end < pool->count[2] ? end : pool->count[2];
    }
    return pool->inside != NULL;
}

/* Whether windows are such as most programs take. */
static int
are_whole(const Pool *pool)
{
    int whole = pool->kernel[0] == 1 && pool->stride[0] == 1 && pool->padding[0] == 0;
    for (int d = 1; d < 3; d++) {
        Py_ssize_t last = (pool->count[d] - 1) * pool->stride[d] + pool->kernel[d];
        whole &= pool->padding[d] == 0 && pool->dilation[d] == 1 && last <= pool->size[d];
    }
    return whole && pool->count[0] <= pool->size[0] && pool->kernel[1] == pool->kernel[2] &&
           ((pool->kernel[2] == 2 && pool->stride[2] == 2) || (pool->kernel[2] == 3 && pool->stride[2] <= 3));
}

/* What sums are divided by along one dimension. */
static Py_ssize_t
covered(const Pool *pool, int d, Py_ssize_t window, int include)
{
    Py_ssize_t n = pool->size[d], start = window * pool->stride[d] - pool->padding[d], end = start + pool->kernel[d];
    end = end < n + pool->padding[d] ? end : n + pool->padding[d];
    if (!include) {
        end = end < n ? end : n;
        start = start < 0 ? 0 : start;
    }
    return end - start;
}

static int
find_divisors(Pool *pool, int include, double override)
{
    Py_ssize_t windows = product(pool->count);
    pool->divisors = PyMem_Malloc(windows * sizeof(double));
    for (Py_ssize_t k = 0; pool->divisors != NULL && k < windows; k++) {
        Py_ssize_t row = k / pool->count[2], c = k % pool->count[2], b = row % pool->count[1], a = row / pool->count[1];
        pool->divisors[k] = override != 0 ? override
                                          : (double)(covered(pool, 0, a, include) * covered(pool, 1, b, include) *
                                                     covered(pool, 2, c, include));
    }
    return pool->divisors != NULL;
}

/* A new array with the first dimensions of this one, and these last ones. */
static PyObject *
new_images(PyArrayObject *like, Py_ssize_t dims, const Py_ssize_t *sizes, int type)
{
    npy_intp shape[NPY_MAXDIMS];
    int lead = (int)(PyArray_NDIM(like) - dims);
    memcpy(shape, PyArray_DIMS(like), lead * sizeof(npy_intp));
    memcpy(shape + lead, sizes + 3 - dims, dims * sizeof(npy_intp));
    return new_array(PyArray_NDIM(like), shape, type);
}

/* Values and their indices, not filled in yet. */
static PyObject *
new_pair(PyArrayObject *like, Py_ssize_t dims, const Py_ssize_t *sizes)
{
    PyObject *values = new_images(like, dims, sizes, PyArray_TYPE(like));
    PyObject *indices = new_images(like, dims, sizes, NPY_INT64);
    PyObject *pair = values != NULL && indices != NULL ? PyTuple_Pack(2, values, indices) : NULL;
    Py_XDECREF(values);
    Py_XDECREF(indices);
    return pair;
}

/* ---- the largest */

/* max_pool(x, kernel, stride, padding, dilation, counts of windows) -> (values, flat indices) */
PyObject *
max_pool(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Pool pool = {0};
    if (count != 6 || !is_plain(arguments[0])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    Py_ssize_t dims = dims_of(arguments[1], x);
    if (dims == 0 || !take_windows(&pool, arguments + 1, dims) ||
        !take_sizes(arguments[4], dims, 1, 1, pool.dilation) || !take_sizes(arguments[5], dims, 1, 1, pool.count)) {
        Py_RETURN_NONE;
    }
    take_shape(x, dims, pool.size);
    take_images(&pool, x, dims);
    if (product(pool.size) > NPY_MAX_INT32) {
        Py_RETURN_NONE;
    }
    pool.is_whole = are_whole(&pool);
    PyObject *found = new_pair(x, dims, pool.count);
    void *row = PyMem_Malloc(pool.count[2] * sizeof(npy_int64));
    if (found != NULL && row != NULL && find_inside(&pool)) {
        void *values = data_of(PyTuple_GET_ITEM(found, 0)), *indices = data_of(PyTuple_GET_ITEM(found, 1));
        const void *from = PyArray_DATA(x);
        WORK(PyArray_SIZE(x), PyArray_TYPE(x) == NPY_FLOAT ? max_pool_float(&pool, from, values, indices, row)
                                                           : max_pool_double(&pool, from, values, indices, row));
    }
    else {
        Py_CLEAR(found);
    }
    PyMem_Free(pool.inside);
    return finished(found, row);
}

/* adaptive_max_pool(x, counts of windows) -> (values, flat indices) */
PyObject *
adaptive_max_pool(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Pool pool = {0};
    if (count != 2 || !is_plain(arguments[0])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    Py_ssize_t dims = dims_of(arguments[1], x);
    if (dims == 0 || !take_sizes(arguments[1], dims, 1, 1, pool.count)) {
        Py_RETURN_NONE;
    }
    take_shape(x, dims, pool.size);
    take_images(&pool, x, dims);
    PyObject *found = new_pair(x, dims, pool.count);
    if (found != NULL) {
        void *values = data_of(PyTuple_GET_ITEM(found, 0)), *indices = data_of(PyTuple_GET_ITEM(found, 1));
        const void *from = PyArray_DATA(x);
        WORK(PyArray_SIZE(x), PyArray_TYPE(x) == NPY_FLOAT ? adaptive_max_pool_float(&pool, from, values, indices)
                                                           : adaptive_max_pool_double(&pool, from, values, indices));
    }
    return found;
}

/* Whether these are indices for the elements of g. */
static int
are_indices(PyObject *object, PyArrayObject *g)
{
    return PyArray_CheckExact(object) && PyArray_TYPE((PyArrayObject *)object) == NPY_INT64 &&
           PyArray_ISCARRAY_RO((PyArrayObject *)object) && PyArray_SAMESHAPE((PyArrayObject *)object, g);
}

/* max_pool_gradient(g, flat indices, sizes) -> zeros of these sizes, to which g was added at the indices */
PyObject *
max_pool_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Pool pool = {0};
    if (count != 3 || !is_plain(arguments[0]) || !are_indices(arguments[1], (PyArrayObject *)arguments[0])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *g = (PyArrayObject *)arguments[0];
    Py_ssize_t dims = dims_of(arguments[2], g);
    if (dims == 0 || !take_sizes(arguments[2], dims, 1, 1, pool.size)) {
        Py_RETURN_NONE;
    }
    take_images(&pool, g, dims);
    PyObject *out = new_images(g, dims, pool.size, PyArray_TYPE(g));
    if (out != NULL) {
        Py_ssize_t each = PyArray_SIZE(g) / pool.images, size = product(pool.size);
        const void *from = PyArray_DATA(g), *at = data_of(arguments[1]);
        int done;
        WORK(PyArray_SIZE((PyArrayObject *)out),
             done = PyArray_TYPE(g) == NPY_FLOAT ? put_back_float(from, at, pool.images, each, data_of(out), size)
                                                 : put_back_double(from, at, pool.images, each, data_of(out), size));
        if (!done) { /* NumPy says what is wrong */
            Py_SETREF(out, Py_NewRef(Py_None));
        }
    }
    return out;
}

/* ---- the mean */

/* Take kernel, stride, padding, whether padding counts, and a divisor or 0 for none; the counts or sizes are known. */
static int
take_means(Pool *pool, PyObject *const *arguments)
{
    double override = PyFloat_AsDouble(arguments[4]);
    if (override == -1 && PyErr_Occurred()) {
        return 0;
    }
    if (!find_inside(pool) || !find_divisors(pool, arguments[3] == Py_True, override)) {
        PyErr_NoMemory();
        return 0;
    }
    return 1;
}

static PyObject *
freed(Pool *pool, PyObject *out)
{
    PyMem_Free(pool->inside);
    PyMem_Free(pool->divisors);
    return out;
}

/* avg_pool(x, counts of windows, kernel, stride, padding, include, override) */
PyObject *
avg_pool(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Pool pool = {0};
    if (count != 7 || !is_plain(arguments[0])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    Py_ssize_t dims = dims_of(arguments[1], x);
    if (dims == 0 || !take_sizes(arguments[1], dims, 1, 1, pool.count) ||
        !take_windows(&pool, arguments + 2, dims)) {
        Py_RETURN_NONE;
    }
    take_shape(x, dims, pool.size);
    take_images(&pool, x, dims);
    PyObject *out = take_means(&pool, arguments + 2) ? new_images(x, dims, pool.count, PyArray_TYPE(x)) : NULL;
    if (out != NULL) {
        WORK(PyArray_SIZE(x), PyArray_TYPE(x) == NPY_FLOAT ? avg_pool_float(&pool, PyArray_DATA(x), data_of(out))
                                                           : avg_pool_double(&pool, PyArray_DATA(x), data_of(out)));
    }
    return freed(&pool, out);
}

/* avg_pool_gradient(g, sizes, kernel, stride, padding, include, override) */
PyObject *
avg_pool_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Pool pool = {0};
    if (count != 7 || !is_plain(arguments[0])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *g = (PyArrayObject *)arguments[0];
    Py_ssize_t dims = dims_of(arguments[1], g);
    if (dims == 0 || !take_sizes(arguments[1], dims, 1, 1, pool.size) ||
        !take_windows(&pool, arguments + 2, dims)) {
        Py_RETURN_NONE;
    }
    take_shape(g, dims, pool.count);
    take_images(&pool, g, dims);
    PyObject *out = take_means(&pool, arguments + 2) ? new_images(g, dims, pool.size, PyArray_TYPE(g)) : NULL;
    void *row = PyMem_Malloc(pool.count[2] * sizeof(double));
    if (out != NULL && row != NULL) {
        WORK(PyArray_SIZE((PyArrayObject *)out),
             PyArray_TYPE(g) == NPY_FLOAT ? avg_pool_gradient_float(&pool, PyArray_DATA(g), data_of(out), row)
                                          : avg_pool_gradient_double(&pool, PyArray_DATA(g), data_of(out), row));
    }
    return finished(freed(&pool, out), row);
}
