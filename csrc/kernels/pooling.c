/* Pooling over the last one to three dimensions: the largest element of each window, or the mean. */
#include "kernels/kernels.h"
#include "kernels/spatial_sizes.h"
#include "loops/compile.h"
#include "loops/threads.h"

#include <stdatomic.h>

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

/* ---- images, divided among threads */

#define MOST_PIECES 256

/* (pool, of so many images; source; result; places; room for a row); whether it has served */
typedef int (*Loop)(const Pool *, const void *, void *, npy_int64 *, void *);

typedef struct {
    const Pool *pool;
    Loop loop;
    const char *source;
    char *result, *scratch;
    npy_int64 *indices;
    Py_ssize_t pieces, source_size, result_size, index_count, row_size; /* of an image, and of a row in scratch */
    atomic_int is_refused;
} Images;

static void
run_images(void *context, Py_ssize_t first, Py_ssize_t last)
{
    Images *all = context;
    for (Py_ssize_t piece = first; piece < last; piece++) {
        Pool pool = *all->pool;
        Py_ssize_t image = pool.images * piece / all->pieces;
        pool.images = pool.images * (piece + 1) / all->pieces - image;
        if (!all->loop(&pool, all->source + image * all->source_size, all->result + image * all->result_size,
                       all->indices == NULL ? NULL : all->indices + image * all->index_count,
                       all->scratch + piece * all->row_size)) {
            atomic_store(&all->is_refused, 1);
        }
    }
}

/* Whether all images were worked on; not if there is no memory for it, or an index is outside. */
static int
run(const Pool *pool, Loop single, Loop twice, PyArrayObject *source, PyObject *result, npy_int64 *indices)
{
    Py_ssize_t size = PyArray_ITEMSIZE(source), most = PyArray_SIZE(source);
    Images all = {.pool = pool, .source = PyArray_BYTES(source), .result = data_of(result), .indices = indices};
    all.loop = PyArray_TYPE(source) == NPY_FLOAT ? single : twice;
    all.pieces = pool->images < MOST_PIECES ? pool->images : MOST_PIECES;
    all.source_size = most / pool->images * size;
    all.result_size = PyArray_SIZE((PyArrayObject *)result) / pool->images * size;
    all.index_count = product(pool->count);
    all.row_size = pool->count[2] * sizeof(npy_int64);
    all.scratch = PyMem_Malloc(all.pieces * all.row_size);
    if (all.scratch == NULL) {
        return 0;
    }
    most = PyArray_SIZE((PyArrayObject *)result) > most ? PyArray_SIZE((PyArrayObject *)result) : most;
    WORK(most, divide(run_images, &all, all.pieces, 1.0 * most));
    PyMem_Free(all.scratch);
    return !all.is_refused;
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
    if (found != NULL && (!find_inside(&pool) ||
                          !run(&pool, max_pool_float, max_pool_double, x, PyTuple_GET_ITEM(found, 0),
                               data_of(PyTuple_GET_ITEM(found, 1))))) {
        Py_SETREF(found, PyErr_NoMemory());
    }
    PyMem_Free(pool.inside);
    return found;
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
    if (found != NULL && !run(&pool, adaptive_max_pool_float, adaptive_max_pool_double, x, PyTuple_GET_ITEM(found, 0),
                              data_of(PyTuple_GET_ITEM(found, 1)))) {
        Py_SETREF(found, PyErr_NoMemory());
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
    take_shape(g, dims, pool.count);
    take_images(&pool, g, dims);
    PyObject *out = new_images(g, dims, pool.size, PyArray_TYPE(g));
    if (out != NULL && !run(&pool, put_back_float, put_back_double, g, out, data_of(arguments[1]))) {
        Py_SETREF(out, Py_NewRef(Py_None)); /* NumPy says what is wrong */
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
    if (out != NULL && !run(&pool, avg_pool_float, avg_pool_double, x, out, NULL)) {
        Py_SETREF(out, PyErr_NoMemory());
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
    if (out != NULL && !run(&pool, avg_pool_gradient_float, avg_pool_gradient_double, g, out, NULL)) {
        Py_SETREF(out, PyErr_NoMemory());
    }
    return freed(&pool, out);
}
