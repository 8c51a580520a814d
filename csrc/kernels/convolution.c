/* Convolution over one to three dimensions, its transpose, and the gradient of its weights.
 *
 * The source is laid out with the zeros around it, so that a place of the window is a constant distance away from the
 * window's first place, whichever window it is. So a row of the matrix that others make of the windows (one row for
 * each channel and place) is a stretch of the laid source that begins a little later, and no matrix is made. What is
 * computed between the ends of rows is left out when the results are copied to where they belong.
 *
 * With a stride, neighbouring windows want elements that are `step` apart: the source is laid out in phases, each of
 * which has all elements with the same remainder. The transpose, whose results lie in phases, is computed in parts.
 *
 *     x[s * l + d * k - p] is element l + d * k / s of phase d * k % s
 *
 * That is for few channels (kernels/convolution_loops.h), where vectors hold neighbouring places. With many, vectors
 * hold results that belong to the same place, and neither gaps nor phases are needed: kernels/convolution_products.h.
 */
#include "kernels/kernels.h"
#include "loops/threads.h"
#define FUSED_PRODUCTS
#include "loops/compile.h"
#include "kernels/convolution_plan.h"

#include <stdatomic.h>

#define REAL float
#include "loops/vectors.h"
#include "loops/turn.h"
#include "kernels/panel_products.h"
#include "kernels/convolution_loops.h"
#include "kernels/convolution_products.h"
#undef REAL
#define REAL double
#include "loops/vectors.h"
#include "loops/turn.h"
#include "kernels/panel_products.h"
#include "kernels/convolution_loops.h"
#include "kernels/convolution_products.h"
#undef REAL

/* ---- arguments */

/* stride, padding and dilation */
static int
take_windows(Windows *w, PyObject *const *arguments, Py_ssize_t dims)
{
    return take_sizes(arguments[0], dims, 1, 1, w->stride) && take_sizes(arguments[1], dims, 0, 0, w->padding) &&
           take_sizes(arguments[2], dims, 1, 1, w->dilation) && product(w->stride) <= MANY_PARTS;
}

/* Whether both can be read beside each other: examples and channels first. */
static int
are_images(PyObject *first, PyObject *second)
{
    return is_plain(first) && is_plain(second) &&
           PyArray_TYPE((PyArrayObject *)first) == PyArray_TYPE((PyArrayObject *)second) &&
           PyArray_NDIM((PyArrayObject *)first) == PyArray_NDIM((PyArrayObject *)second) &&
           PyArray_NDIM((PyArrayObject *)first) >= 3 && PyArray_NDIM((PyArrayObject *)first) <= 5;
}

/* Whether w->count windows fit into w->size elements. */
static int
fits(const Windows *w)
{
    for (int d = 0; d < 3; d++) {
        Py_ssize_t covered = (w->count[d] - 1) * w->stride[d] + w->dilation[d] * (w->kernel[d] - 1) + 1;
        if (w->count[d] < 1 || w->size[d] < 1 || covered > w->size[d] + 2 * w->padding[d]) {
            return 0;
        }
    }
    return 1;
}

/* ---- running */

/* Room for plans: phases, parts and all the lists, which `part` owns. */
static int
make_room(Convolution *given, const Windows *w, Py_ssize_t parts)
{
    given->places = product(w->kernel);
    Py_ssize_t windows = given->panels ? given->chunk * product(given->size) : 0, places = given->places;
    Py_ssize_t rows = given->panels ? given->source.channels * places : 0;
    given->source.phase = PyMem_Calloc(places + 1, sizeof(Phase));
    given->part = PyMem_Calloc(1, parts * sizeof(Part) + (2 * places + 2 * windows + rows) * sizeof(Py_ssize_t));
    if (given->source.phase == NULL || given->part == NULL) {
        return 0;
    }
    given->part->offsets = (Py_ssize_t *)(given->part + parts);
    given->part->numbers = given->part->offsets + places;
    given->part->at = given->part->numbers + places;
    given->part->where = given->part->at + windows;
    given->part->rows = given->part->where + windows;
    return 1;
}

static void
free_room(Convolution *given)
{
    PyMem_Free(given->source.phase);
    PyMem_Free(given->part);
}

/* How many examples have about as many windows as a panel is computed for. */
static Py_ssize_t
examples_of_batch(const Convolution *given, Py_ssize_t windows)
{
    Py_ssize_t chunk = larger(WINDOWS / larger(windows, 1), 1);
    return chunk < given->examples ? chunk : given->examples;
}

/* so many results, and what fills the last of vectors of so many lanes */
static Py_ssize_t
filled(Py_ssize_t results, Py_ssize_t lanes)
{
    return (results + lanes - 1) / lanes * lanes;
}

/* Numbers that a vector of results should have: so many, or twice as many where the processor has a choice. */
static Py_ssize_t
lanes_for(Py_ssize_t results, Py_ssize_t lanes)
{
#ifdef WIDE_VECTORS
    /* a lane of the wider ones takes a little more than half the time, also if nothing is in it */
    if (__builtin_cpu_supports("x86-64-v4") && 3 * filled(results, 2 * lanes) < 5 * filled(results, lanes)) {
        return 2 * lanes;
    }
#endif
    return lanes;
}

/* Panels of results are worth it if their vectors are full, or nearly so, and the sums long. */
static void
choose_panels(Convolution *given, Py_ssize_t places, int type)
{
    Py_ssize_t fewest = 32 / (type == NPY_FLOAT ? sizeof(float) : sizeof(double));
    given->lanes = lanes_for(given->results, fewest);
    given->panel_width = filled(given->results, given->lanes);
    given->panels = given->results >= fewest && 4 * given->results >= 3 * filled(given->results, fewest) &&
                    given->source.channels * places >= LONG_SUM;
}

/* The lists of all parts, and how results are divided into panels. Returns the windows of a batch. */
static Py_ssize_t
plan_all_panels(Convolution *given)
{
    Py_ssize_t longest = 0;
    find_in_place(given);
    for (Part *part = given->part; part < given->part + given->parts; part++) {
        Py_ssize_t windows = given->chunk * product(part->count);
        if (part > given->part) {
            part->at = part[-1].at + given->chunk * product(part[-1].count);
            part->where = part[-1].where + given->chunk * product(part[-1].count);
            part->rows = part[-1].rows + given->source.channels * part[-1].terms;
        }
        plan_panels(given, part);
        longest = larger(longest, windows);
    }
    given->blocks = (given->results + 2 * given->lanes - 1) / (2 * given->lanes);
    given->windows = WINDOWS;
    given->stretches = (longest + WINDOWS - 1) / WINDOWS;
    given->flat = WINDOWS * 2 * given->lanes;
    return longest;
}

static Py_ssize_t
batches(const Convolution *given)
{
    return (given->examples + given->chunk - 1) / given->chunk;
}

/* Shorter stretches of windows, if there would be few pieces. */
static void
shorten_stretches(Convolution *given, Py_ssize_t longest)
{
    static const Py_ssize_t shorter[] = {240, 120, 72}; /* multiples of tiles, too */
    Py_ssize_t panels = batches(given) * given->groups * given->blocks;
    for (int k = 0; k < 3 && panels * given->stretches < MANY_PIECES; k++) {
        given->windows = shorter[k];
        given->stretches = (longest + shorter[k] - 1) / shorter[k];
    }
}

/* A result (taken over), None in its place if it does not serve, or the error that there is no memory. */
static PyObject *
served(PyObject *out, int done)
{
    if (done < 0) {
        Py_XDECREF(out);
        return PyErr_NoMemory();
    }
    if (done == 0) {
        Py_SETREF(out, Py_NewRef(Py_None));
    }
    return out;
}

/* How long so many products and sums take, more or less. */
static double
duration(const Convolution *given, Py_ssize_t positions)
{
    return 0.03 * given->examples * given->groups * given->results * given->source.channels * given->places * positions;
}

/* 1: done; 0: there are numbers that are not finite; -1: no memory */
static int
run(Convolution *given, PyObject *out, int (*of_float)(const Convolution *), int (*of_double)(const Convolution *))
{
    int done;
    Py_ssize_t work = PyArray_SIZE((PyArrayObject *)out) + given->source.total;
    WORK(work, done = (PyArray_TYPE((PyArrayObject *)out) == NPY_FLOAT ? of_float : of_double)(given));
    return done;
}

/* Everything about how results are found, from the windows on. */
static void
plan_results(Convolution *given, const Windows *w, int transposed)
{
    if (given->panels) {
        (transposed ? plan_transposed : plan_whole)(given, w);
        shorten_stretches(given, plan_all_panels(given));
        given->weights = given->groups * given->panel_width * given->source.channels * given->places;
        given->pieces = batches(given) * given->groups * given->stretches;
    }
    else {
        (transposed ? plan_transposed : plan_forward)(given, w);
        for (Py_ssize_t k = 0; k < given->parts; k++) {
            given->flat = larger(given->flat, MOST_OUTS * given->part[k].width);
        }
        given->blocks = (given->results + MOST_OUTS - 1) / MOST_OUTS;
        given->pieces = given->examples * given->groups;
    }
    given->pieces *= given->blocks;
    given->nanoseconds = duration(given, product(w->count));
}

static PyObject *
convolve_with(Convolution *given, PyArrayObject *x, const Windows *w, int transposed)
{
    npy_intp shape[5] = {given->examples, given->groups * given->results};
    const Py_ssize_t *sizes = transposed ? w->size : w->count;
    memcpy(shape + 2, sizes + 5 - PyArray_NDIM(x), (PyArray_NDIM(x) - 2) * sizeof(npy_intp));
    memcpy(given->size, sizes, sizeof(given->size));
    PyObject *out = new_array(PyArray_NDIM(x), shape, PyArray_TYPE(x));
    if (out == NULL) {
        return NULL;
    }
    Py_ssize_t parts = transposed ? product(w->stride) : 1;
    choose_panels(given, product(w->kernel), PyArray_TYPE(x));
    given->chunk = given->panels ? examples_of_batch(given, product(given->size) / parts) : 1;
    int done = -1;
    if (make_room(given, w, parts)) {
        plan_results(given, w, transposed);
        given->out = data_of(out);
        done = run(given, out, convolve_float, convolve_double);
    }
    free_room(given);
    return served(out, done);
}

/* convolve(x, weight, bias, stride, padding, dilation, groups) */
PyObject *
convolve(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 7 || !are_images(arguments[0], arguments[1])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[0], *weight = (PyArrayObject *)arguments[1];
    Py_ssize_t groups = PyLong_AsSsize_t(arguments[6]), outputs = PyArray_DIM(weight, 0), dims = PyArray_NDIM(x) - 2;
    Windows w;
    if (groups < 1 || !take_windows(&w, arguments + 3, dims) || outputs % groups != 0 ||
        PyArray_DIM(x, 1) != PyArray_DIM(weight, 1) * groups || !is_alike(arguments[2], x, outputs)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    take_shape(x, dims, w.size);
    take_shape(weight, dims, w.kernel);
    for (int d = 0; d < 3; d++) {
        Py_ssize_t room = w.size[d] + 2 * w.padding[d] - w.dilation[d] * (w.kernel[d] - 1) - 1;
        w.count[d] = room < 0 ? 0 : room / w.stride[d] + 1;
    }
    if (!fits(&w)) {
        Py_RETURN_NONE;
    }
    Py_ssize_t channels = PyArray_DIM(weight, 1), places = product(w.kernel);
    Convolution given = {.x = PyArray_DATA(x), .weight = PyArray_DATA(weight), .bias = data_of(arguments[2]),
                         .examples = PyArray_DIM(x, 0), .groups = groups, .results = outputs / groups,
                         .weights = PyArray_SIZE(weight), .by_result = channels * places, .by_source = places,
                         .source = {.channels = channels, .all_channels = PyArray_DIM(x, 1)}};
    return convolve_with(&given, x, &w, 0);
}

/* convolve_transposed(y, weight, bias, sizes of the result, stride, padding, dilation, groups) */
PyObject *
convolve_transposed(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 8 || !are_images(arguments[0], arguments[1])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *y = (PyArrayObject *)arguments[0], *weight = (PyArrayObject *)arguments[1];
    Py_ssize_t groups = PyLong_AsSsize_t(arguments[7]), inputs = PyArray_DIM(weight, 0), dims = PyArray_NDIM(y) - 2;
    Windows w;
    if (groups < 1 || !take_windows(&w, arguments + 4, dims) || !take_sizes(arguments[3], dims, 1, 1, w.size) ||
        inputs % groups != 0 || PyArray_DIM(y, 1) != inputs ||
        !is_alike(arguments[2], y, PyArray_DIM(weight, 1) * groups)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    take_shape(y, dims, w.count);
    take_shape(weight, dims, w.kernel);
    if (!fits(&w)) {
        Py_RETURN_NONE;
    }
    Py_ssize_t results = PyArray_DIM(weight, 1), places = product(w.kernel);
    Convolution given = {.x = PyArray_DATA(y), .weight = PyArray_DATA(weight), .bias = data_of(arguments[2]),
                         .examples = PyArray_DIM(y, 0), .groups = groups, .results = results,
                         .weights = PyArray_SIZE(weight), .by_result = places, .by_source = results * places,
                         .source = {.channels = inputs / groups, .all_channels = inputs}};
    return convolve_with(&given, y, &w, 1);
}

/* The gradient is laid out like the source, with zeros between its rows. */
static void
plan_target(Convolution *given, const Windows *w, Phase *phase)
{
    Layout *target = &given->target;
    memcpy(target->size, w->count, sizeof(w->count));
    memcpy(target->extent, given->source.extent, sizeof(target->extent));
    memcpy(phase->count, w->count, sizeof(w->count));
    target->step[0] = target->step[1] = target->step[2] = target->phases = 1;
    target->channels = given->results;
    target->all_channels = given->results * given->groups;
    target->phase = phase;
    Py_ssize_t nowhere[3] = {0};
    finish_layout(target, given->chunk, nowhere);
}

/* So many examples that there is a stretch or two of positions. */
static Py_ssize_t
examples_at_once(const Convolution *given, const Windows *w)
{
    Py_ssize_t chunk = larger(2 * STRETCH / larger(product(w->size), product(w->count)), 1);
    return chunk < given->examples ? chunk : given->examples;
}

static void
plan_gradient(Convolution *given, const Windows *w, Phase *phase)
{
    if (given->panels) {
        plan_whole(given, w);
        plan_all_panels(given);
        given->stretches = (given->source.channels * given->places + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
        given->pieces = given->groups * given->blocks * given->stretches;
    }
    else {
        plan_forward(given, w);
        plan_target(given, w, phase);
        given->blocks = (given->results + MOST_ROWS - 1) / MOST_ROWS;
        given->pieces = given->groups * given->blocks;
    }
    given->turns = MANY_PIECES / given->pieces;
    given->turns = given->turns < 1 ? 1 : given->turns < batches(given) ? given->turns : batches(given);
    given->pieces *= given->turns;
    given->nanoseconds = duration(given, product(w->count));
}

/* convolve_weight(x, y, sizes of windows, stride, padding, dilation, groups): the gradient of weights */
PyObject *
convolve_weight(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 7 || !are_images(arguments[0], arguments[1])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[0], *y = (PyArrayObject *)arguments[1];
    Py_ssize_t groups = PyLong_AsSsize_t(arguments[6]), dims = PyArray_NDIM(x) - 2;
    Windows w;
    if (groups < 1 || !take_windows(&w, arguments + 3, dims) || !take_sizes(arguments[2], dims, 1, 1, w.kernel) ||
        PyArray_DIM(x, 1) % groups != 0 || PyArray_DIM(y, 1) % groups != 0 ||
        PyArray_DIM(x, 0) != PyArray_DIM(y, 0)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    take_shape(x, dims, w.size);
    take_shape(y, dims, w.count);
    if (!fits(&w)) {
        Py_RETURN_NONE;
    }
    Convolution given = {.x = PyArray_DATA(x), .y = PyArray_DATA(y), .examples = PyArray_DIM(x, 0), .groups = groups,
                         .results = PyArray_DIM(y, 1) / groups,
                         .source = {.channels = PyArray_DIM(x, 1) / groups, .all_channels = PyArray_DIM(x, 1)}};
    npy_intp shape[5] = {PyArray_DIM(y, 1), given.source.channels};
    memcpy(shape + 2, w.kernel + 3 - dims, dims * sizeof(npy_intp));
    memcpy(given.size, w.count, sizeof(w.count));
    PyObject *out = new_array((int)dims + 2, shape, PyArray_TYPE(x));
    if (out == NULL) {
        return NULL;
    }
    int done = -1;
    choose_panels(&given, product(w.kernel), PyArray_TYPE(x));
    given.chunk = given.panels ? examples_of_batch(&given, product(w.count)) : examples_at_once(&given, &w);
    if (make_room(&given, &w, 1)) {
        Phase phase = {0};
        plan_gradient(&given, &w, &phase);
        given.out = data_of(out);
        done = run(&given, out, convolve_weight_float, convolve_weight_double);
    }
    free_room(&given);
    return served(out, done);
}
