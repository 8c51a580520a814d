/* The kernels, and how they take and make arrays.
 *
 * A kernel is a function of the module that takes NumPy arrays. It returns None if they are not what it is made for
 * (exact ndarrays of float32 or float64, contiguous, not empty): the formulas in NumPy then run instead.
 */
#ifndef UNDERTOW_KERNELS_H
#define UNDERTOW_KERNELS_H

#include "core.h"
#include "loops/memory.h"

/* Run a statement, letting other threads run meanwhile if there is much to do: more than so many elements. */
#define WITHOUT_LOCK 16384

#define WORK(size, statement)             \
    do {                                  \
        if ((size) > WITHOUT_LOCK) {      \
            Py_BEGIN_ALLOW_THREADS        \
            statement;                    \
            Py_END_ALLOW_THREADS          \
        }                                 \
        else {                            \
            statement;                    \
        }                                 \
    } while (0)

/* Whether a kernel can read this array. */
static inline int
is_plain(PyObject *object)
{
    if (!PyArray_CheckExact(object)) {
        return 0;
    }
    PyArrayObject *array = (PyArrayObject *)object;
    int type = PyArray_TYPE(array);
    return (type == NPY_FLOAT || type == NPY_DOUBLE) && PyArray_ISCARRAY_RO(array) && PyArray_SIZE(array) > 0;
}

/* Whether a kernel that reads `first` can read this one beside it; None stands for no array, and is fine. */
static inline int
is_alike(PyObject *object, PyArrayObject *first, Py_ssize_t size)
{
    return object == Py_None || (is_plain(object) && PyArray_TYPE((PyArrayObject *)object) == PyArray_TYPE(first) &&
                                 PyArray_SIZE((PyArrayObject *)object) == size);
}

/* A gradient for an output like `first`: contiguous (a new reference), or NULL if it is of another kind. */
static inline PyArrayObject *
gradient_like(PyObject *object, PyArrayObject *first)
{
    if (!PyArray_CheckExact(object) || PyArray_TYPE((PyArrayObject *)object) != PyArray_TYPE(first) ||
        !PyArray_SAMESHAPE((PyArrayObject *)object, first)) {
        return NULL;
    }
    return (PyArrayObject *)PyArray_FROM_OF(object, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED);
}

static inline void *
data_of(PyObject *object) /* NULL for None */
{
    return object == NULL || object == Py_None ? NULL : PyArray_DATA((PyArrayObject *)object);
}

static inline PyObject *
new_array(int ndim, const npy_intp *shape, int type)
{
    PyArray_Descr *descr = PyArray_DescrFromType(type);
    return descr == NULL ? NULL : new_large(ndim, shape, NULL, descr);
}

/* A new array like this one. */
static inline PyObject *
new_like(PyArrayObject *array)
{
    return new_array(PyArray_NDIM(array), PyArray_DIMS(array), PyArray_TYPE(array));
}

static inline PyObject *
new_if(int wanted, int ndim, const npy_intp *shape, int type)
{
    return wanted ? new_array(ndim, shape, type) : Py_NewRef(Py_None);
}

/* The three as a tuple (takes them over); NULL if one of them is. */
static inline PyObject *
three(PyObject *a, PyObject *b, PyObject *c)
{
    PyObject *tuple = a != NULL && b != NULL && c != NULL ? PyTuple_Pack(3, a, b, c) : NULL;
    Py_XDECREF(a);
    Py_XDECREF(b);
    Py_XDECREF(c);
    return tuple;
}

/* The result of a kernel, whose scratch memory is freed; an error if there was not enough memory for either. */
static inline PyObject *
finished(PyObject *found, void *scratch)
{
    if (scratch == NULL) {
        Py_CLEAR(found);
    }
    PyMem_Free(scratch);
    return found != NULL || PyErr_Occurred() ? found : PyErr_NoMemory();
}

/* ---- the kernels, by file */

PyObject *norm_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *norm_rows_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *norm_channels(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *norm_channels_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *gelu(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *gelu_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *softmax_scores(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *weigh_scores(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *slope_scores(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *softmax_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *softmax_rows_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *log_softmax_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *log_softmax_rows_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *convolve(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *convolve_transposed(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *convolve_weight(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *max_pool(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *adaptive_max_pool(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *max_pool_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *avg_pool(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *avg_pool_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *add_weighted_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *ctc_states(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *ctc_gradients(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *add_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *converted(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *take(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *scaled_softmax_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *logsumexp_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *logsumexp_rows_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *copied(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *gather(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *scatter_add(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *scatter_multiply(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *scatter_maximum(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *scatter_minimum(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *scatter(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *fourier(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *fourier_plan(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *silu_values(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *silu_slopes(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *running_sums(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *running_products(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *leaky(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *lstm_step(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *lstm_step_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *adam_update(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *random_words(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *random_singles(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *random_doubles(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *random_normals(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *triangle(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *solve_triangles(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *solve_small(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *cholesky_small(PyObject *module, PyObject *matrices);
PyObject *lu_small(PyObject *module, PyObject *matrices);
PyObject *places_of_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *blocks_to_normal(PyObject *module, PyObject *fractions);
PyObject *trust_twister(PyObject *module, PyObject *capsule);
PyObject *read_twister(PyObject *module, PyObject *capsule);
PyObject *place_twister(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *over_stacks(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *is_ahead_of_blas(PyObject *module, PyObject *nothing);
PyObject *matrix_product(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *packed_rows(PyObject *module, PyObject *left);
PyObject *packed_product(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *set_small_product(PyObject *module, PyObject *wanted);
PyObject *add_bias(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *new_filled(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *fill(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *special_function(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *grid_sample(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *grid_sample_gradients(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *order_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *distances(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *distances_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *gamma_slopes(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *beta_slopes(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *random_gammas(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *random_poissons(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *random_binomials(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *random_permutation(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

#endif
