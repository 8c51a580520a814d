/* Shortcuts of functions that make numbers: at random, in new tensors or in ones that are there, and at equal distances. */
#include "call/shortcuts.h"
#include "kernels/draws.h"
#include "kernels/ranges.h"
#include "loops/memory.h"

#include <float.h>

/* ---- arguments */

#define MOST_SIZES 8

/* Read ints, or the one tuple or list of ints that is given: how many they are; -1 for anything else. */
static int
read_sizes(PyObject *const *items, Py_ssize_t count, npy_intp *sizes)
{
    if (count == 1 && (PyTuple_Check(items[0]) || PyList_CheckExact(items[0]))) {
        count = PySequence_Fast_GET_SIZE(items[0]);
        items = PySequence_Fast_ITEMS(items[0]);
    }
    else if (count == 0) {
        return -1;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        if (k == MOST_SIZES || !read_size(items[k], &sizes[k]) || sizes[k] < 0) {
            return -1;
        }
    }
    return (int)count;
}

/* Read a float, or an int that is one exactly; 0 for anything else. */
static int
read_number(PyObject *object, double *number)
{
    npy_intp whole;
    if (PyFloat_CheckExact(object)) {
        *number = PyFloat_AS_DOUBLE(object);
        return 1;
    }
    if (!read_size(object, &whole) || whole > (npy_intp)1 << 53 || whole < -((npy_intp)1 << 53)) {
        return 0;
    }
    *number = (double)whole;
    return 1;
}

/* What follows the tensor: two numbers, or the first, or none. */
static int
read_two(PyObject *const *given, Py_ssize_t count, double *first, double *second)
{
    return count <= 3 && (count < 2 || read_number(given[1], first)) && (count < 3 || read_number(given[2], second));
}

static int
default_float(void)
{
    PyObject *dtype = core.default_dtype == NULL ? NULL : PyList_GET_ITEM(core.default_dtype, 0);
    return dtype == NULL                           ? -1
           : dtype == (PyObject *)core.float32 ? NPY_FLOAT
           : dtype == (PyObject *)core.float64 ? NPY_DOUBLE
                                               : -1;
}

static PyObject *
new_array(int ndim, const npy_intp *sizes, int type)
{
    return new_large(ndim, sizes, NULL, PyArray_DescrFromType(type));
}

/* A tensor without history of an array, which is taken over; NULL if that is. */
static PyObject *
without_history(PyObject *array, PyObject *state)
{
    return array == NULL ? NULL : new_tensor(array, Py_None, SLOT(state, core.s_extra));
}

/* ---- the stream that numbers are drawn from */

typedef struct {
    PyObject *stream, *capsule, *lock;
    bitgen_t *bits;
} Source;

/* -1 with an exception, one that was there or a new one */
static int
close_source(Source *source, int status)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *done = PyObject_CallMethod(source->lock, "release", NULL);
    if (type != NULL) {
        PyErr_Restore(type, error, traceback);
    }
    Py_XDECREF(source->stream);
    Py_XDECREF(source->capsule);
    Py_XDECREF(done);
    return done == NULL ? -1 : status;
}

/* The stream of the default generator, whose lock is now held; 0 without an exception: leave it to Python. Targets are
 * usual_stream of ops/random/generator.py and that lock. It is taken first: the stream may have to load numpy.random, and
 * a child of a fork meanwhile, which waits for the lock, would wait for ever for the module. */
static int
open_source(const Shortcut *self, Source *source)
{
    *source = (Source){.lock = self->targets[1]};
    PyObject *held = PyObject_CallMethod(source->lock, "acquire", NULL);
    if (held == NULL) {
        return 0;
    }
    Py_DECREF(held);
    source->stream = PyObject_CallNoArgs(self->targets[0]);
    if (source->stream != NULL && source->stream != Py_None) {
        source->capsule = PyObject_GetAttrString(source->stream, "_capsule");
    }
    source->bits = source->capsule == NULL ? NULL : PyCapsule_GetPointer(source->capsule, "BitGenerator");
    if (source->bits == NULL) {
        close_source(source, 0);
        return 0;
    }
    return 1;
}

/* ---- into memory: 1 if it is done, 0 if Python has to do it, -1 with an exception */

/* float64, as `normals` of ops/random/mersenne_twister.py: fewer than NORMAL_BLOCK */
static int
draw_few_normals(Source *source, double *out, Py_ssize_t count)
{
    double numbers[NORMAL_BLOCK + 1];
    PyObject *spare = count == 0 ? NULL : PyObject_GetAttrString(source->stream, "spare");
    if (spare == NULL) {
        return count == 0 ? 1 : -1;
    }
    Py_ssize_t kept = spare != Py_None, drawn = (count - kept + 1) / 2 * 2;
    if (kept) {
        out[0] = PyFloat_AsDouble(spare);
    }
    Py_DECREF(spare);
    draw_normal_pairs(source->bits, numbers, drawn);
    memcpy(out + kept, numbers, (count - kept) * sizeof(double));
    PyObject *left = kept + drawn > count ? PyFloat_FromDouble(numbers[drawn - 1]) : Py_NewRef(Py_None);
    int status = left == NULL || PyErr_Occurred() ? -1 : PyObject_SetAttrString(source->stream, "spare", left);
    Py_XDECREF(left);
    return status < 0 ? -1 : 1;
}

static int
put_normals(Source *source, PyArrayObject *array, double mean, double std)
{
    Py_ssize_t count = PyArray_SIZE(array);
    double few[NORMAL_BLOCK];
    if (count >= NORMAL_BLOCK) {
        draw_normal_floats(source->bits, PyArray_DATA(array), count, mean, std);
        return 1;
    }
    int status = draw_few_normals(source, few, count);
    for (Py_ssize_t k = 0; k < count && status > 0; k++) {
        double number = mean != 0 || std != 1 ? few[k] * std + mean : few[k];
        if (PyArray_TYPE(array) == NPY_FLOAT) {
            ((float *)PyArray_DATA(array))[k] = (float)number;
        }
        else {
            ((double *)PyArray_DATA(array))[k] = number;
        }
    }
    return status;
}

static int
put_uniform(Source *source, PyArrayObject *array, double low, double high)
{
    Py_ssize_t count = PyArray_SIZE(array);
    if (PyArray_TYPE(array) == NPY_FLOAT) {
        draw_uniform_floats(source->bits, PyArray_DATA(array), count, low, high);
    }
    else {
        draw_uniform_doubles(source->bits, PyArray_DATA(array), count, low, high);
    }
    return 1;
}

typedef int (*Put)(Source *source, PyArrayObject *array, double first, double second);

/* ---- distributions over [0, 1) and around 0: rand(*sizes), randn(*sizes) */

static PyObject *
drawn_numbers(const Shortcut *self, PyObject *state, PyArrayObject *array, Put put)
{
    Source source;
    if (array != NULL && open_source(self, &source)) {
        if (close_source(&source, put(&source, array, 0, 1)) > 0) {
            return without_history((PyObject *)array, state);
        }
    }
    Py_XDECREF(array);
    return NULL;
}

PyObject *
rand_new(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    npy_intp sizes[MOST_SIZES];
    int ndim = names != NULL ? -1 : read_sizes(given, count, sizes), type = default_float();
    PyObject *array = ndim < 0 || type < 0 ? NULL : new_array(ndim, sizes, type);
    return drawn_numbers(self, state, (PyArrayObject *)array, put_uniform);
}

PyObject *
randn_new(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    npy_intp sizes[MOST_SIZES];
    int ndim = names != NULL ? -1 : read_sizes(given, count, sizes), type = default_float();
    if (ndim < 0 || type < 0 || (type == NPY_DOUBLE && PyArray_MultiplyList(sizes, ndim) >= NORMAL_BLOCK)) {
        return NULL;
    }
    return drawn_numbers(self, state, (PyArrayObject *)new_array(ndim, sizes, type), put_normals);
}

/* ---- whole numbers: randint(low, high, sizes), randperm(n) */

PyObject *
randint_new(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    npy_intp sizes[MOST_SIZES], low = 0, high;
    Source source;
    if (names != NULL || count < 2 || count > 3 || (count == 3 && !read_size(given[0], &low)) ||
        !read_size(given[count - 2], &high) || low >= high || PyLong_Check(given[count - 1])) {
        return NULL;
    }
    int ndim = read_sizes(given + count - 1, 1, sizes);
    PyObject *array = ndim < 0 ? NULL : new_array(ndim, sizes, NPY_INT64);
    if (array == NULL || !open_source(self, &source)) {
        Py_XDECREF(array);
        return NULL;
    }
    npy_intp size = PyArray_SIZE((PyArrayObject *)array);
    draw_integers(source.bits, PyArray_DATA((PyArrayObject *)array), size, low, (uint64_t)high - (uint64_t)low);
    if (close_source(&source, 1) < 0) {
        Py_CLEAR(array);
    }
    return without_history(array, state);
}

PyObject *
randperm_new(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    npy_intp size;
    Source source;
    if (names != NULL || count != 1 || !read_size(given[0], &size) || size < 0) {
        return NULL;
    }
    PyObject *array = new_array(1, &size, NPY_INT64);
    if (array == NULL || !open_source(self, &source)) {
        Py_XDECREF(array);
        return NULL;
    }
    draw_permutation(source.bits, PyArray_DATA((PyArrayObject *)array), size);
    if (close_source(&source, 1) < 0) {
        Py_CLEAR(array);
    }
    return without_history(array, state);
}

/* ---- in place: uniform_(x, low, high), normal_(x, mean, std) */

/* The array of a tensor that may be filled with floats by rows without asking anybody; or NULL. */
static PyArrayObject *
fillable(PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = names != NULL || count < 1 ? NULL : usual_array(given[0]);
    int type = array == NULL ? NPY_NOTYPE : PyArray_TYPE(array);
    return (type == NPY_FLOAT || type == NPY_DOUBLE) && PyArray_ISCARRAY(array) && is_free(given[0], state) ? array : NULL;
}

static PyObject *
filled(const Shortcut *self, PyObject *tensor, PyArrayObject *array, Put put, double first, double second)
{
    Source source;
    if (!open_source(self, &source)) {
        return NULL;
    }
    Py_INCREF(array);
    int status = close_source(&source, put(&source, array, first, second));
    Py_DECREF(array);
    return status > 0 && count_change(tensor, self->row) != NULL ? Py_NewRef(tensor) : NULL;
}

PyObject *
fill_uniform(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    double low = 0, high = 1;
    PyArrayObject *array = fillable(state, given, count, names);
    if (array == NULL || !read_two(given, count, &low, &high) || !(low <= high)) {
        return NULL;
    }
    double most = PyArray_TYPE(array) == NPY_FLOAT ? FLT_MAX : DBL_MAX;
    if (!(-most / 2 <= low && high <= most / 2)) { /* Python knows what to say, and what a wider range gives */
        return NULL;
    }
    return filled(self, given[0], array, put_uniform, low, high);
}

PyObject *
fill_normal(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    double mean = 0, std = 1;
    PyArrayObject *array = fillable(state, given, count, names);
    if (array == NULL || !read_two(given, count, &mean, &std) || !(std >= 0) ||
        (PyArray_TYPE(array) == NPY_DOUBLE && PyArray_SIZE(array) >= NORMAL_BLOCK)) {
        return NULL;
    }
    return filled(self, given[0], array, put_normals, mean, std);
}

/* ---- at equal distances: arange(start, end, step), linspace(start, end, steps) */

#define MOST_WHOLE ((double)((npy_intp)1 << 31)) /* so that a quotient of two is rounded to no other whole number */

/* Whether tensors are made on the CPU, unless another device is named. The target is default_device of backend. */
static int
makes_on_cpu(const Shortcut *self)
{
    PyObject *device;
    if (PyContextVar_Get(self->targets[0], NULL, &device) < 0) {
        return 0;
    }
    Py_XDECREF(device);
    return device == Py_None;
}

PyObject *
arange_new(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    double bounds[3] = {0, 0, 1};
    int are_whole = 1, place = count == 1;
    if (names != NULL || count < 1 || count > 3) {
        return NULL;
    }
    for (Py_ssize_t k = 0; k < count; k++, place++) {
        if (!read_number(given[k], &bounds[place]) || !(fabs(bounds[place]) < MOST_WHOLE)) {
            return NULL;
        }
        are_whole &= PyLong_CheckExact(given[k]);
    }
    double start = bounds[0], step = bounds[2], size = ceil((bounds[1] - start) / step);
    int type = are_whole ? NPY_INT64 : default_float();
    if (!(size >= 0 && size < MOST_WHOLE) || step == 0 || type < 0 || !makes_on_cpu(self)) {
        return NULL;
    }
    npy_intp length = (npy_intp)size;
    PyObject *array = new_array(1, &length, type);
    if (array != NULL && are_whole) {
        put_whole_range((PyArrayObject *)array, (int64_t)start, (int64_t)step);
    }
    else if (array != NULL) {
        put_range((PyArrayObject *)array, start, step);
    }
    return without_history(array, state);
}

PyObject *
linspace_new(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    double start, end;
    npy_intp steps;
    int type = default_float();
    if (names != NULL || count != 3 || !read_number(given[0], &start) || !read_number(given[1], &end) ||
        !read_size(given[2], &steps) || steps < 0 || type < 0 || !makes_on_cpu(self)) {
        return NULL;
    }
    PyObject *array = new_array(1, &steps, type);
    if (array != NULL) {
        put_equal_distances((PyArrayObject *)array, start, end);
    }
    return without_history(array, state);
}
