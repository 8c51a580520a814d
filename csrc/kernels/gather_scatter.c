/* Rows, and single elements along a dimension, taken from where an index says or added there, as often as it does. */
#include "kernels/kernels.h"
#include "loops/compile.h"

#define ADD_ROWS(REAL)                                                                                                \
    CLONES static void add_rows_##REAL(REAL *out, const npy_int64 *index, const REAL *rows, Py_ssize_t count,         \
                                       Py_ssize_t width)                                                              \
    {                                                                                                                 \
        for (Py_ssize_t k = 0; k < count; k++) {                                                                      \
            REAL *restrict to = out + index[k] * width;                                                               \
            const REAL *restrict from = rows + k * width;                                                             \
            for (Py_ssize_t j = 0; j < width; j++) {                                                                  \
                to[j] += from[j];                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }

ADD_ROWS(float)
ADD_ROWS(double)

/* Note [Indices are read once]
 * A kernel that lets other threads run must not read an index again after it was found to be inside: one of them may
 * write to it meanwhile. So where it will (WORK does so beyond WITHOUT_LOCK elements), the index is copied first, and the
 * copy is looked at and used; copying costs little beside the sums. */

/* An index (a new reference) that nobody else changes while that many elements are worked on. */
static PyArrayObject *
steady_index(PyArrayObject *index, Py_ssize_t elements)
{
    return elements > WITHOUT_LOCK ? (PyArrayObject *)PyArray_NewCopy(index, NPY_CORDER)
                                   : (PyArrayObject *)Py_NewRef(index);
}

static int
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
        void *to = PyArray_DATA(out);
        const void *from = PyArray_DATA(rows);
        WORK(number * width, PyArray_TYPE(out) == NPY_FLOAT ? add_rows_float(to, at, from, number, width)
                                                            : add_rows_double(to, at, from, number, width));
    }
    Py_DECREF(index);
    return Py_NewRef(inside ? Py_True : Py_None);
}

/* ---- elements along a dimension */

typedef struct {
    Py_ssize_t outer, inner; /* the sizes of what is before the dimension, and behind it */
    Py_ssize_t size, count;  /* of the dimension: of the array, and of the index */
} Along;

/* elements added, or written (the last one stays), where an index says */
#define SCATTER(NAME, REAL, OPERATOR)                                                                                 \
    static void NAME(const Along *a, REAL *out, const npy_int64 *index, const REAL *x)                                \
    {                                                                                                                 \
        for (Py_ssize_t o = 0; o < a->outer; o++, out += a->size * a->inner) {                                        \
            for (Py_ssize_t j = 0; j < a->count; j++, index += a->inner, x += a->inner) {                             \
                for (Py_ssize_t i = 0; i < a->inner; i++) {                                                           \
                    out[index[i] * a->inner + i] OPERATOR x[i];                                                       \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }

#define ALONG(REAL)                                                                                                   \
    static void gather_##REAL(const Along *a, const REAL *x, const npy_int64 *index, REAL *out)                       \
    {                                                                                                                 \
        for (Py_ssize_t o = 0; o < a->outer; o++, x += a->size * a->inner) {                                          \
            for (Py_ssize_t j = 0; j < a->count; j++, index += a->inner, out += a->inner) {                           \
                for (Py_ssize_t i = 0; i < a->inner; i++) {                                                           \
                    out[i] = x[index[i] * a->inner + i];                                                              \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    SCATTER(scatter_add_##REAL, REAL, +=)                                                                             \
    SCATTER(scatter_##REAL, REAL, =)

ALONG(float)
ALONG(double)

/* An index along this dimension of the array, of the same sizes otherwise, and all inside: a new reference that nobody
 * else changes. NULL if it is none, without an exception, or with one. */
static PyArrayObject *
take_along(Along *along, PyArrayObject *array, PyObject *number, PyObject *object)
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
    Along along;
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    PyArrayObject *index = take_along(&along, x, arguments[1], arguments[2]);
    if (index == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *out = new_array(PyArray_NDIM(index), PyArray_DIMS(index), PyArray_TYPE(x));
    if (out != NULL) {
        const void *from = PyArray_DATA(x), *at = PyArray_DATA(index);
        WORK(PyArray_SIZE(index), PyArray_TYPE(x) == NPY_FLOAT ? gather_float(&along, from, at, data_of(out))
                                                               : gather_double(&along, from, at, data_of(out)));
    }
    Py_DECREF(index);
    return out;
}

static PyObject *
scattered(PyObject *const *arguments, Py_ssize_t count, int adds)
{
    if (count != 4 || !is_plain(arguments[0]) || !PyArray_ISWRITEABLE((PyArrayObject *)arguments[0]) ||
        !is_plain(arguments[3])) {
        Py_RETURN_NONE;
    }
    Along along;
    PyArrayObject *out = (PyArrayObject *)arguments[0], *x = (PyArrayObject *)arguments[3];
    PyArrayObject *index = take_along(&along, out, arguments[1], arguments[2]);
    if (index == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    int fits = PyArray_TYPE(x) == PyArray_TYPE(out) && PyArray_SAMESHAPE(x, index);
    if (fits) {
        void *to = PyArray_DATA(out);
        const void *from = PyArray_DATA(x), *at = PyArray_DATA(index);
        WORK(PyArray_SIZE(index),
             PyArray_TYPE(x) == NPY_FLOAT ? (adds ? scatter_add_float : scatter_float)(&along, to, at, from)
                                          : (adds ? scatter_add_double : scatter_double)(&along, to, at, from));
    }
    Py_DECREF(index);
    return Py_NewRef(fits ? Py_True : Py_None);
}

/* scatter_add(out, dim, index, x) -> True; adds the elements of x, as many as the index has, where it says */
PyObject *
scatter_add(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return scattered(arguments, count, 1);
}

/* scatter(out, dim, index, x) -> True; the same, but puts them there */
PyObject *
scatter(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    return scattered(arguments, count, 0);
}
