/* batch_norm and group_norm: channels, or groups of them, over their standard deviations.
 *
 * The input has the shape (examples, channels, length), whatever dimensions the length stands for. What is normalised
 * together is a group of strips of that length: those of a channel in all examples, or of some channels in one example.
 */
#include "kernels/kernels.h"
#define SUMS_IN_ANY_ORDER
#include "loops/compile.h"
#include "loops/threads.h"

typedef struct {
    const void *x, *g, *weight, *bias;            /* weight and bias may be NULL */
    void *out, *mean, *rstd, *variance;           /* out may be NULL for gradients */
    void *of_weight, *of_bias;                    /* NULL if not wanted */
    double *scratch;
    Py_ssize_t examples, channels, length;
    Py_ssize_t groups;                            /* of channels in an example; 0 for batch_norm */
    double eps;
} ChannelNorm;

typedef struct {
    double rest, variance, rstd;
} Moments;

/* From sums over x - shift and its squares: what the mean is beyond shift, the variance, and 1 / sqrt(that + eps). */
INLINE Moments
moments_of(double sum, double squares, Py_ssize_t count, double eps)
{
    double rest = sum / count, variance = squares / count - rest * rest;
    variance = variance < 0 ? 0 : variance;
    return (Moments){rest, variance, 1 / sqrt(variance + eps)};
}

typedef struct {
    Py_ssize_t start, count, step;    /* where the first strip begins, how many there are, how far they are apart */
    Py_ssize_t channel, channel_step; /* the channel of the first one, and how that changes from one to the next */
} Strips;

INLINE Strips
strips_of(const ChannelNorm *given, Py_ssize_t group)
{
    if (given->groups == 0) {
        return (Strips){group * given->length, given->examples, given->channels * given->length, group, 0};
    }
    Py_ssize_t count = given->channels / given->groups;
    return (Strips){group * count * given->length, count, given->length, group % given->groups * count, 1};
}

INLINE Py_ssize_t
group_count(const ChannelNorm *given)
{
    return given->groups == 0 ? given->channels : given->examples * given->groups;
}

/* Channels that nothing is added to from elsewhere, or the groups of them in an example. */
INLINE Py_ssize_t
channel_pieces(const ChannelNorm *given)
{
    return given->groups == 0 ? given->channels : given->groups;
}

INLINE Py_ssize_t
strips_in_group(const ChannelNorm *given)
{
    return given->groups == 0 ? given->examples : given->channels / given->groups;
}

/* Arrays with a number for each column: how many, and how far apart in scratch memory. Not just as far as there are
 * columns, as the same places of several arrays would share a line of the cache if that is a power of two. */
#define COLUMN_ARRAYS 10

INLINE Py_ssize_t
column_stride(Py_ssize_t count)
{
    return count + 40;
}

#define REAL float
#include "loops/block_sums.h"
#include "kernels/batch_norm_strips.h"
#include "kernels/batch_norm_columns.h"
#undef REAL
#define REAL double
#include "loops/block_sums.h"
#include "kernels/batch_norm_strips.h"
#include "kernels/batch_norm_columns.h"
#undef REAL

/* Fill in the sizes; 0 if the array has none. */
static int
take_sizes(ChannelNorm *given, PyArrayObject *x, PyObject *groups)
{
    if (PyArray_NDIM(x) < 2) {
        return 0;
    }
    given->x = PyArray_DATA(x);
    given->examples = PyArray_DIM(x, 0);
    given->channels = PyArray_DIM(x, 1);
    given->length = PyArray_SIZE(x) / given->examples / given->channels;
    given->groups = PyLong_AsSsize_t(groups);
    return given->groups == 0 || (given->groups > 0 && given->channels % given->groups == 0);
}

/* Walk through rows where strips would be single numbers. */
static int
in_columns(const ChannelNorm *given)
{
    return given->groups == 0 && given->length == 1;
}

static double *
new_scratch(const ChannelNorm *given)
{
    Py_ssize_t strips = 2 * given->channels + 3 * channel_pieces(given) * strips_in_group(given);
    Py_ssize_t size = in_columns(given) ? COLUMN_ARRAYS * column_stride(given->channels) : strips;
    return PyMem_Malloc(size * sizeof(double));
}

static double
nanoseconds_for(const ChannelNorm *given, int type)
{
    return (type == NPY_FLOAT ? 0.8 : 1.6) * given->examples * given->channels * given->length;
}

static void
norm(ChannelNorm *given, int type)
{
    if (in_columns(given)) {
        (type == NPY_FLOAT ? norm_columns_float : norm_columns_double)(given);
    }
    else {
        divide(type == NPY_FLOAT ? norm_strips_float : norm_strips_double, given, group_count(given),
               nanoseconds_for(given, type));
    }
}

static void
norm_gradient(ChannelNorm *given, int type)
{
    if (in_columns(given)) {
        (type == NPY_FLOAT ? norm_columns_gradient_float : norm_columns_gradient_double)(given);
    }
    else {
        divide(type == NPY_FLOAT ? norm_strips_gradient_float : norm_strips_gradient_double, given, channel_pieces(given),
               nanoseconds_for(given, type));
    }
}

/* norm_channels(x, groups, weight, bias, eps) -> (out, mean, rstd, variance) */
PyObject *
norm_channels(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    ChannelNorm given = {.groups = 0};
    if (count != 5 || !is_plain(arguments[0]) || !take_sizes(&given, (PyArrayObject *)arguments[0], arguments[1])) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    given.eps = PyFloat_AsDouble(arguments[4]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!is_alike(arguments[2], x, given.channels) || !is_alike(arguments[3], x, given.channels)) {
        Py_RETURN_NONE;
    }
    int type = PyArray_TYPE(x);
    npy_intp shape[2] = {given.examples, given.groups};
    const npy_intp *of_group = given.groups == 0 ? PyArray_DIMS(x) + 1 : shape;
    int dims = given.groups == 0 ? 1 : 2;
    PyObject *out = new_like(x), *mean = new_array(dims, of_group, type), *rstd = new_array(dims, of_group, type),
             *variance = new_array(dims, of_group, type), *found = NULL;
    given.scratch = new_scratch(&given);
    if (out != NULL && mean != NULL && rstd != NULL && variance != NULL && given.scratch != NULL) {
        given.weight = data_of(arguments[2]), given.bias = data_of(arguments[3]);
        given.out = data_of(out), given.mean = data_of(mean), given.rstd = data_of(rstd);
        given.variance = data_of(variance);
        WORK(PyArray_SIZE(x), norm(&given, type));
        found = PyTuple_Pack(4, out, mean, rstd, variance);
    }
    Py_XDECREF(out);
    Py_XDECREF(mean);
    Py_XDECREF(rstd);
    Py_XDECREF(variance);
    return finished(found, given.scratch);
}

/* norm_channels_gradient(g, x, groups, mean, rstd, weight, needs) -> gradients of x, weight and bias, None where none
 * is needed */
PyObject *
norm_channels_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    ChannelNorm given = {.groups = 0};
    if (count != 7 || !is_plain(arguments[1]) || !take_sizes(&given, (PyArrayObject *)arguments[1], arguments[2]) ||
        !PyTuple_Check(arguments[6]) || PyTuple_GET_SIZE(arguments[6]) != 3) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyArrayObject *x = (PyArrayObject *)arguments[1];
    Py_ssize_t groups = group_count(&given);
    if (arguments[3] == Py_None || !is_alike(arguments[3], x, groups) || arguments[4] == Py_None ||
        !is_alike(arguments[4], x, groups) || !is_alike(arguments[5], x, given.channels)) {
        Py_RETURN_NONE;
    }
    PyArrayObject *g = gradient_like(arguments[0], x);
    if (g == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *needs = arguments[6];
    int type = PyArray_TYPE(x);
    PyObject *found = three(new_if(PyTuple_GET_ITEM(needs, 0) == Py_True, PyArray_NDIM(x), PyArray_DIMS(x), type),
                            new_if(PyTuple_GET_ITEM(needs, 1) == Py_True, 1, PyArray_DIMS(x) + 1, type),
                            new_if(PyTuple_GET_ITEM(needs, 2) == Py_True, 1, PyArray_DIMS(x) + 1, type));
    given.scratch = new_scratch(&given);
    if (found != NULL && given.scratch != NULL) {
        given.g = PyArray_DATA(g), given.weight = data_of(arguments[5]);
        given.mean = data_of(arguments[3]), given.rstd = data_of(arguments[4]);
        given.out = data_of(PyTuple_GET_ITEM(found, 0)), given.of_weight = data_of(PyTuple_GET_ITEM(found, 1));
        given.of_bias = data_of(PyTuple_GET_ITEM(found, 2));
        WORK(PyArray_SIZE(x), norm_gradient(&given, type));
    }
    Py_DECREF(g);
    return finished(found, given.scratch);
}
