/* Rows, and single elements along a dimension, taken from where an index says or added there, as often as it does. */
#include "kernels/copies.h"
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#include <stdatomic.h>

#define STRIP 64 /* columns: threads that add rows have some columns each, so that the order of sums stays */

typedef struct {
    void *out;
    const npy_int64 *index;
    const void *rows;
    Py_ssize_t count, width;
} Rows;

#define ADD_ROWS(REAL)                                                                                                \
    CLONES static void add_columns_##REAL(REAL *out, const npy_int64 *index, const REAL *rows, Py_ssize_t count,      \
                                          Py_ssize_t width, Py_ssize_t columns)                                       \
    {                                                                                                                 \
        for (Py_ssize_t k = 0; k < count; k++) {                                                                      \
            REAL *restrict to = out + index[k] * width;                                                               \
            const REAL *restrict from = rows + k * width;                                                             \
            for (Py_ssize_t j = 0; j < columns; j++) {                                                                \
                to[j] += from[j];                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    static void add_strips_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                                   \
    {                                                                                                                 \
        const Rows *r = context;                                                                                      \
        Py_ssize_t start = first * STRIP, end = last * STRIP < r->width ? last * STRIP : r->width;                    \
        add_columns_##REAL((REAL *)r->out + start, r->index, (const REAL *)r->rows + start, r->count, r->width,       \
                           end - start);                                                                              \
    }

ADD_ROWS(float)
ADD_ROWS(double)

/* Note [Indices are read once]
 * A kernel that lets other threads run must not read an index again after it was found to be inside: one of them may
 * write to it meanwhile. So what only reads looks at an index when it uses it, and gives up in the end if it was outside.
 * What changes an array (where WORK lets others run, beyond WITHOUT_LOCK elements) copies the index first, and looks at
 * the copy and uses it. */

/* A copy of an index, one after the other. */
static PyArrayObject *
own_index(PyArrayObject *index)
{
    PyObject *copy = new_array(PyArray_NDIM(index), PyArray_DIMS(index), NPY_INT64);
    if (copy != NULL && copy_into((PyArrayObject *)copy, index) < 0) {
        Py_CLEAR(copy);
    }
    return (PyArrayObject *)copy;
}

/* An index (a new reference) that nobody else changes while that many elements are worked on. */
static PyArrayObject *
steady_index(PyArrayObject *index, Py_ssize_t elements)
{
    return elements <= WITHOUT_LOCK ? (PyArrayObject *)Py_NewRef(index) : own_index(index);
}

CLONES static int
are_inside(const npy_int64 *index, Py_ssize_t count, Py_ssize_t size)
{
    npy_int64 least = 0, most = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        least = index[k] < least ? index[k] : least;
        most = index[k] > most ? index[k] : most;
    }
    return least >= 0 && most < size;
}

/* add_rows(out, index, rows) -> True; out[index[k]] += rows[k] for every k. Of all of them, only the sizes count: rows
 * are as wide as those of `out`. */
PyObject *
add_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3 || !is_plain(arguments[0]) || !is_plain(arguments[2]) || !PyArray_CheckExact(arguments[1])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *out = (PyArrayObject *)arguments[0], *index = (PyArrayObject *)arguments[1];
    PyArrayObject *rows = (PyArrayObject *)arguments[2];
    if (PyArray_NDIM(out) == 0 || !PyArray_ISWRITEABLE(out) || PyArray_TYPE(out) != PyArray_TYPE(rows) ||
        PyArray_TYPE(index) != NPY_INT64 || !PyArray_ISCARRAY_RO(index)) {
        Py_RETURN_NONE;
    }
    Py_ssize_t size = PyArray_DIM(out, 0), width = PyArray_SIZE(out) / size, number = PyArray_SIZE(index);
    if (PyArray_SIZE(rows) != number * width) {
        Py_RETURN_NONE;
    }
    index = steady_index(index, number * width); /* See Note [Indices are read once] */
    if (index == NULL) {
        return NULL;
    }
    const npy_int64 *at = PyArray_DATA(index);
    int inside = are_inside(at, number, size);
    if (inside) {
        Rows given = {PyArray_DATA(out), at, PyArray_DATA(rows), number, width};
        int is_float = PyArray_TYPE(out) == NPY_FLOAT;
        double nanoseconds = (is_float ? 0.2 : 0.4) * number * width;
        WORK(number * width, divide(is_float ? add_strips_float : add_strips_double, &given, (width + STRIP - 1) / STRIP,
                                    nanoseconds));
    }
    Py_DECREF(index);
    return Py_NewRef(inside ? Py_True : Py_None);
}

/* ---- rows, each times a number */

typedef struct {
    void *out;
    const npy_int64 *to, *from;
    const void *factors, *rows;
    Py_ssize_t count, width;
} Weighted;

#define ADD_WEIGHTED(REAL)                                                                                            \
    CLONES static void add_weighted_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                          \
    {                                                                                                                 \
        const Weighted *w = context;                                                                                  \
        const Py_ssize_t start = first * STRIP, end = last * STRIP < w->width ? last * STRIP : w->width;              \
        const Py_ssize_t width = w->width, columns = end - start;                                                     \
        const REAL *factors = w->factors, *rows = (const REAL *)w->rows + start;                                      \
        REAL *out = (REAL *)w->out + start;                                                                           \
        for (Py_ssize_t k = 0; k < w->count; k++) {                                                                   \
            const REAL factor = factors[k], *restrict from = rows + w->from[k] * width;                               \
            REAL *restrict to = out + w->to[k] * width;                                                               \
            for (Py_ssize_t j = 0; j < columns; j++) {                                                                \
                to[j] += factor * from[j];                                                                            \
            }                                                                                                         \
        }                                                                                                             \
    }

ADD_WEIGHTED(float)
ADD_WEIGHTED(double)

/* Whether it is a vector of as many int64 as that array has elements. */
static int
is_index_for(PyObject *object, PyArrayObject *array)
{
    return PyArray_CheckExact(object) && PyArray_TYPE((PyArrayObject *)object) == NPY_INT64 &&
           PyArray_ISBEHAVED_RO((PyArrayObject *)object) && PyArray_NDIM((PyArrayObject *)object) == 1 &&
           PyArray_SIZE((PyArrayObject *)object) == PyArray_SIZE(array);
}

/* The first number of rows, and how long they are. */
static Py_ssize_t
width_of(PyArrayObject *rows)
{
    return PyArray_SIZE(rows) / PyArray_DIM(rows, 0);
}

/* add_weighted_rows(out, to, factors, from, rows) -> True; out[to[k]] += factors[k] * rows[from[k]] for every k: the product
 * of a sparse matrix and a dense one. `out` is no part of the others. */
PyObject *
add_weighted_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 5 || !is_plain(arguments[0]) || !is_plain(arguments[2]) || !is_plain(arguments[4])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *out = (PyArrayObject *)arguments[0], *factors = (PyArrayObject *)arguments[2];
    PyArrayObject *rows = (PyArrayObject *)arguments[4];
    if (PyArray_NDIM(out) == 0 || PyArray_NDIM(rows) == 0 || !PyArray_ISWRITEABLE(out) ||
        PyArray_TYPE(out) != PyArray_TYPE(factors) || PyArray_TYPE(out) != PyArray_TYPE(rows) ||
        width_of(out) != width_of(rows) || !is_index_for(arguments[1], factors) || !is_index_for(arguments[3], factors)) {
        Py_RETURN_NONE;
    }
    Py_ssize_t number = PyArray_SIZE(factors), width = width_of(out);
    PyArrayObject *to = own_index((PyArrayObject *)arguments[1]), *from = own_index((PyArrayObject *)arguments[3]);
    int inside = 0;
    if (to != NULL && from != NULL) { /* See Note [Indices are read once] */
        Weighted given = {PyArray_DATA(out),     PyArray_DATA(to),   PyArray_DATA(from),
                          PyArray_DATA(factors), PyArray_DATA(rows), number, width};
        inside = are_inside(given.to, number, PyArray_DIM(out, 0)) && are_inside(given.from, number, PyArray_DIM(rows, 0));
        if (inside) {
            int is_float = PyArray_TYPE(out) == NPY_FLOAT;
            WORK(number * width, divide(is_float ? add_weighted_float : add_weighted_double, &given,
                                        (width + STRIP - 1) / STRIP, (is_float ? 0.2 : 0.4) * number * width));
        }
    }
    int failed = to == NULL || from == NULL;
    Py_XDECREF(to);
    Py_XDECREF(from);
    return failed ? NULL : Py_NewRef(inside ? Py_True : Py_None);
}

/* ---- elements along a dimension */

typedef struct {
    Py_ssize_t outer, inner; /* the sizes of what is before the dimension, and behind it */
    Py_ssize_t size, count;  /* of the dimension: of the array, and of the index */
} Along;

typedef struct {
    Along along;
    void *out;
    const npy_int64 *index;
    const void *x;
    atomic_int is_outside;
} Elements;

#define ADD(to, x) ((to) + (x))
#define MULTIPLY(to, x) ((to) * (x))
#define MAXIMUM(to, x) ((to) >= (x) || (to) != (to) ? (to) : (x)) /* nan is largest, and smallest, as in NumPy */
#define MINIMUM(to, x) ((to) <= (x) || (to) != (to) ? (to) : (x))
#define LAST(to, x) (x)

/* elements combined with those where an index says: whole slices by one thread, or if there is only one, some of its
 * columns */
#define SCATTER(NAME, REAL, COMBINED)                                                                                 \
    static void NAME(void *context, Py_ssize_t first, Py_ssize_t last)                                                \
    {                                                                                                                 \
        const Elements *e = context;                                                                                  \
        Py_ssize_t inner = e->along.inner, size = e->along.size, count = e->along.count;                              \
        int by_columns = e->along.outer == 1;                                                                         \
        Py_ssize_t low = by_columns ? first : 0, high = by_columns ? last : inner;                                    \
        for (Py_ssize_t o = by_columns ? 0 : first; o < (by_columns ? 1 : last); o++) {                               \
            REAL *out = (REAL *)e->out + o * size * inner;                                                            \
            for (Py_ssize_t j = o * count; j < (o + 1) * count; j++) {                                                \
                const npy_int64 *index = e->index + j * inner;                                                        \
                const REAL *x = (const REAL *)e->x + j * inner;                                                       \
                for (Py_ssize_t i = low; i < high; i++) {                                                             \
                    REAL *to = out + index[i] * inner + i;                                                            \
                    *to = COMBINED(*to, x[i]);                                                                        \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }

/* rows of the index, counted through */
#define ALONG(REAL)                                                                                                   \
    static void gather_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                                       \
    {                                                                                                                 \
        Elements *e = context;                                                                                        \
        const Py_ssize_t inner = e->along.inner, count = e->along.count;                                              \
        const npy_uint64 size = (npy_uint64)e->along.size;                                                            \
        npy_uint64 outside = 0;                                                                                       \
        for (Py_ssize_t row = first; row < last;) {                                                                   \
            const REAL *x = (const REAL *)e->x + row / count * e->along.size * inner;                                 \
            Py_ssize_t end = (row / count + 1) * count;                                                               \
            for (end = end < last ? end : last; row < end; row++) {                                                   \
                const npy_int64 *index = e->index + row * inner;                                                      \
                REAL *out = (REAL *)e->out + row * inner;                                                             \
                for (Py_ssize_t i = 0; i < inner; i++) {                                                              \
                    npy_uint64 at = (npy_uint64)index[i]; /* See Note [Indices are read once] */                      \
                    outside |= at >= size;                                                                            \
                    out[i] = x[(Py_ssize_t)(at < size ? at : 0) * inner + i];                                         \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
        if (outside) {                                                                                                \
            atomic_store(&e->is_outside, 1);                                                                          \
        }                                                                                                             \
    }                                                                                                                 \
    SCATTER(add_##REAL, REAL, ADD)                                                                                    \
    SCATTER(multiply_##REAL, REAL, MULTIPLY)                                                                          \
    SCATTER(maximum_##REAL, REAL, MAXIMUM)                                                                            \
    SCATTER(minimum_##REAL, REAL, MINIMUM)                                                                            \
    SCATTER(last_##REAL, REAL, LAST)

ALONG(float)
ALONG(double)

/* An index along this dimension of the array, of the same sizes otherwise: a new reference. If an array is going to be
 * changed, all of it is inside, and nobody else changes it. NULL if it is none, without an exception, or with one. */
static PyArrayObject *
take_along(Along *along, PyArrayObject *array, PyObject *number, PyObject *object, int changes)
{
    PyArrayObject *index = (PyArrayObject *)object;
    Py_ssize_t dim = PyLong_AsSsize_t(number);
    if (!PyArray_CheckExact(object) || PyArray_TYPE(index) != NPY_INT64 || !PyArray_ISCARRAY_RO(index) || dim < 0 ||
        dim >= PyArray_NDIM(array) || PyArray_NDIM(index) != PyArray_NDIM(array)) {
        PyErr_Clear();
        return NULL;
    }
    for (int d = 0; d < PyArray_NDIM(array); d++) {
        if (d != dim && PyArray_DIM(index, d) != PyArray_DIM(array, d)) {
            return NULL;
        }
    }
    along->size = PyArray_DIM(array, dim);
    along->count = PyArray_DIM(index, dim);
    along->outer = PyArray_MultiplyList(PyArray_DIMS(array), (int)dim);
    along->inner = PyArray_SIZE(array) / (along->outer * along->size);
    if (!changes) {
        return (PyArrayObject *)Py_NewRef(index);
    }
    index = steady_index(index, PyArray_SIZE(index)); /* See Note [Indices are read once] */
    if (index != NULL && !are_inside(PyArray_DATA(index), PyArray_SIZE(index), along->size)) {
        Py_CLEAR(index);
    }
    return index;
}

/* gather(x, dim, index): the elements of x that the index names along a dimension */
PyObject *
gather(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3 || !is_plain(arguments[0])) {
        Py_RETURN_NONE;
    }
    Elements given = {.is_outside = 0};
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    PyArrayObject *index = take_along(&given.along, x, arguments[1], arguments[2], 0);
    if (index == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *out = new_array(PyArray_NDIM(index), PyArray_DIMS(index), PyArray_TYPE(x));
    if (out != NULL) {
        given.x = PyArray_DATA(x);
        given.index = PyArray_DATA(index);
        given.out = data_of(out);
        WORK(PyArray_SIZE(index), divide(PyArray_TYPE(x) == NPY_FLOAT ? gather_float : gather_double, &given,
                                         given.along.outer * given.along.count, 1.0 * PyArray_SIZE(index)));
    }
    Py_DECREF(index);
    if (out != NULL && given.is_outside) {
        Py_SETREF(out, Py_NewRef(Py_None));
    }
    return out;
}

static PyObject *
scattered(PyObject *const *arguments, Py_ssize_t count, Share of_floats, Share of_doubles)
{
    if (count != 4 || !is_plain(arguments[0]) || !PyArray_ISWRITEABLE((PyArrayObject *)arguments[0]) ||
        !is_plain(arguments[3])) {
        Py_RETURN_NONE;
    }
    Elements given = {.is_outside = 0};
    PyArrayObject *out = (PyArrayObject *)arguments[0], *x = (PyArrayObject *)arguments[3];
    PyArrayObject *index = take_along(&given.along, out, arguments[1], arguments[2], 1);
    if (index == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    int fits = PyArray_TYPE(x) == PyArray_TYPE(out) && PyArray_SAMESHAPE(x, index);
    if (fits) {
        given.out = PyArray_DATA(out);
        given.x = PyArray_DATA(x);
        given.index = PyArray_DATA(index);
        WORK(PyArray_SIZE(index),
             divide(PyArray_TYPE(x) == NPY_FLOAT ? of_floats : of_doubles, &given,
                    given.along.outer == 1 ? given.along.inner : given.along.outer, 1.0 * PyArray_SIZE(index)));
    }
    Py_DECREF(index);
    return Py_NewRef(fits ? Py_True : Py_None);
}

/* scatter_add(out, dim, index, x) -> True; adds the elements of x, as many as the index has, where it says; the others
 * multiply, keep the larger or smaller one, or put them there, of which the last one stays */
#define SCATTERED(NAME, SHARE)                                                                                        \
    PyObject *NAME(PyObject *module, PyObject *const *arguments, Py_ssize_t count)                                    \
    {                                                                                                                 \
        return scattered(arguments, count, SHARE##_float, SHARE##_double);                                            \
    }

SCATTERED(scatter_add, add)
SCATTERED(scatter_multiply, multiply)
SCATTERED(scatter_maximum, maximum)
SCATTERED(scatter_minimum, minimum)
SCATTERED(scatter, last)

/* ---- rows of any kind of elements */

typedef struct {
    char *out;
    const char *x;
    const npy_int64 *index;
    npy_intp count, size, bytes; /* of the index; of the dimension; of a row */
    atomic_int is_outside;
} Taken;

static void
take_rows(void *context, Py_ssize_t first, Py_ssize_t last)
{
    Taken *taken = context;
    for (Py_ssize_t row = first; row < last; row++) {
        npy_uint64 at = (npy_uint64)taken->index[row % taken->count]; /* See Note [Indices are read once] */
        if (at >= (npy_uint64)taken->size) {
            atomic_store(&taken->is_outside, 1);
            return;
        }
        const char *from = taken->x + (row / taken->count * taken->size + (npy_intp)at) * taken->bytes;
        memcpy(taken->out + row * taken->bytes, from, taken->bytes);
    }
}

#define MANY_BYTES (1 << 17)
#define WIDE_ROW 64 /* bytes; for narrower ones NumPy has quick loops */

/* take(x, index, dim): the slices of x that an index of any shape names along a dimension. None: NumPy should do it, also
 * because an index is outside, or counts from behind. */
PyObject *
take(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    PyArrayObject *x = (PyArrayObject *)arguments[0], *index = (PyArrayObject *)arguments[1];
    if (count != 3 || !PyArray_CheckExact(arguments[0]) || !PyArray_CheckExact(arguments[1]) ||
        !PyLong_CheckExact(arguments[2]) || PyDataType_REFCHK(PyArray_DESCR(x)) || !PyArray_ISCARRAY_RO(x) ||
        PyArray_TYPE(index) != NPY_INT64 || !PyArray_ISCARRAY_RO(index) || PyArray_SIZE(x) == 0) {
        Py_RETURN_NONE;
    }
    long dim = PyLong_AsLong(arguments[2]);
    npy_intp dims[NPY_MAXDIMS], outer = 1, bytes = PyArray_ITEMSIZE(x);
    int ndim = 0, wide = PyArray_NDIM(x) - 1 + PyArray_NDIM(index);
    PyErr_Clear();
    if (dim < 0 || dim >= PyArray_NDIM(x) || wide > 32) {
        Py_RETURN_NONE;
    }
    for (int d = 0; d < PyArray_NDIM(x); d++) {
        outer *= d < dim ? PyArray_DIM(x, d) : 1;
        bytes *= d > dim ? PyArray_DIM(x, d) : 1;
        if (d == dim) {
            for (int e = 0; e < PyArray_NDIM(index); e++) { /* an index without dimensions has none to point at */
                dims[ndim++] = PyArray_DIM(index, e);
            }
        }
        else {
            dims[ndim++] = PyArray_DIM(x, d);
        }
    }
    npy_intp number = PyArray_SIZE(index), rows = outer * number;
    if (bytes < WIDE_ROW || rows * bytes < MANY_BYTES) {
        Py_RETURN_NONE;
    }
    PyArray_Descr *descr = PyArray_DESCR(x);
    Py_INCREF(descr);
    PyObject *out = new_large(ndim, dims, NULL, descr);
    if (out != NULL) {
        Taken taken = {data_of(out), PyArray_BYTES(x), PyArray_DATA(index), number, PyArray_DIM(x, (int)dim), bytes};
        WORK(rows * bytes, divide(take_rows, &taken, rows, 0.1 * rows * bytes));
        if (taken.is_outside) {
            Py_SETREF(out, Py_NewRef(Py_None));
        }
    }
    return out;
}
