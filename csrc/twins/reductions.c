/* Reductions and sorting of small arrays along a dimension (or several neighbours): twins of functions of
 * ops/reduce/sums_and_products.py, statistics.py, extrema.py and sorting.py. Those of large arrays are in
 * kernels/sums.c and kernels/folds.c.
 */
#include "kernels/folds.h"
#include "kernels/kernels.h"
#include "kernels/sums.h"
#include "twins/arrays.h"
#include "twins/table.h"

#include <math.h>

/* The largest array that is reduced here. */
#define SMALL 4096

/* An array as `outer` times `inner` slices of n elements, and the sizes of what is left of it. */
typedef struct {
    PyArrayObject *array;
    npy_intp outer, n, inner;
    int ndim;
    npy_intp dims[NPY_MAXDIMS];
} Slices;

/* ---- reading arguments */

/* A dimension, counted from the front; -1 if it is none. */
static int
wrapped_dim(PyObject *object, int ndim)
{
    if (!PyLong_CheckExact(object)) {
        return -1;
    }
    int overflow;
    long dim = PyLong_AsLongAndOverflow(object, &overflow);
    return overflow || dim < -ndim || dim >= ndim ? -1 : (int)(dim < 0 ? dim + ndim : dim);
}

/* The dimensions that are reduced, one, several neighbours in their order, or all (None): the first and how many; whether
 * they are that. */
static int
read_dims(PyObject *dim, int ndim, int *first, int *count)
{
    if (dim == Py_None) {
        *first = 0;
        *count = ndim;
        return ndim > 0;
    }
    if (!PyTuple_CheckExact(dim)) {
        *first = wrapped_dim(dim, ndim);
        *count = 1;
        return *first >= 0;
    }
    *count = (int)PyTuple_GET_SIZE(dim);
    *first = *count == 0 ? -1 : wrapped_dim(PyTuple_GET_ITEM(dim, 0), ndim);
    for (int k = 1; k < *count && *first >= 0; k++) {
        if (wrapped_dim(PyTuple_GET_ITEM(dim, k), ndim) != *first + k) {
            return 0;
        }
    }
    return *first >= 0;
}

/* Look at an array of real numbers as slices; whether that can be done, and it is not empty. */
static int
read_any_slices(Slices *slices, PyObject *input, PyObject *dim, PyObject *keepdim)
{
    int first, count;
    if (!is_plain(input) || !PyBool_Check(keepdim)) {
        return 0;
    }
    PyArrayObject *array = slices->array = (PyArrayObject *)input;
    if (!read_dims(dim, PyArray_NDIM(array), &first, &count)) {
        return 0;
    }
    slices->outer = slices->n = slices->inner = 1;
    slices->ndim = 0;
    for (int k = 0; k < PyArray_NDIM(array); k++) {
        npy_intp size = PyArray_DIM(array, k);
        int is_reduced = k >= first && k < first + count;
        *(k < first ? &slices->outer : is_reduced ? &slices->n : &slices->inner) *= size;
        if (!is_reduced || keepdim == Py_True) {
            slices->dims[slices->ndim++] = is_reduced ? 1 : size;
        }
    }
    return 1;
}

static int
is_single(const Slices *slices)
{
    return PyArray_TYPE(slices->array) == NPY_FLOAT;
}

/* A new array of what is left. */
static PyArrayObject *
new_result(const Slices *slices, int type)
{
    return (PyArrayObject *)new_array(slices->ndim, slices->dims, type);
}

/* ---- the loops; not inlined, so that no arithmetic moves across the looks at the processor's notes */

#define NOT_INLINED static __attribute__((noinline)) void

#define FOR_SLICES                                                    \
    for (npy_intp o = 0; o < s->outer; o++)                           \
        for (npy_intp i = 0; i < s->inner; i++, out++)

#define LOOPS(REAL)                                                                                          \
    NOT_INLINED sums_##REAL(const Slices *s, double divisor, REAL *out)                                      \
    {                                                                                                        \
        const REAL *x = PyArray_DATA(s->array);                                                              \
        FOR_SLICES {                                                                                         \
            double sum = 0;                                                                                  \
            for (npy_intp j = 0; j < s->n; j++) {                                                            \
                sum += x[(o * s->n + j) * s->inner + i];                                                     \
            }                                                                                                \
            *out = (REAL)((REAL)sum / divisor); /* overflows where the sum does */                           \
        }                                                                                                    \
    }                                                                                                        \
                                                                                                             \
    NOT_INLINED variances_##REAL(const Slices *s, double divisor, int root, REAL *out)                       \
    {                                                                                                        \
        const REAL *x = PyArray_DATA(s->array);                                                              \
        FOR_SLICES {                                                                                         \
            double sum = 0, squares = 0;                                                                     \
            for (npy_intp j = 0; j < s->n; j++) {                                                            \
                sum += x[(o * s->n + j) * s->inner + i];                                                     \
            }                                                                                                \
            double mean = (REAL)sum / (double)s->n; /* overflows where the sum does */                       \
            for (npy_intp j = 0; j < s->n; j++) {                                                            \
                double distance = x[(o * s->n + j) * s->inner + i] - mean;                                   \
                squares += distance * distance;                                                              \
            }                                                                                                \
            squares = (REAL)squares;                                                                         \
            *out = (REAL)(root ? sqrt(squares / divisor) : squares / divisor);                               \
        }                                                                                                    \
    }                                                                                                        \
                                                                                                             \
    /* the first of the largest (of the smallest, if sign is -1); NaN is that if there is one */             \
    NOT_INLINED extremes_##REAL(const Slices *s, int sign, REAL *out, npy_int64 *place)                      \
    {                                                                                                        \
        const REAL *x = PyArray_DATA(s->array);                                                              \
        FOR_SLICES {                                                                                         \
            REAL found = x[o * s->n * s->inner + i];                                                         \
            npy_int64 where = 0;                                                                             \
            for (npy_intp j = 1; j < s->n; j++) {                                                            \
                REAL v = x[(o * s->n + j) * s->inner + i];                                                   \
                if ((sign > 0 ? v > found : v < found) || (v != v && found == found)) {                      \
                    found = v;                                                                               \
                    where = j;                                                                               \
                }                                                                                            \
            }                                                                                                \
            *out = found;                                                                                    \
            *place++ = where;                                                                                \
        }                                                                                                    \
    }                                                                                                        \
                                                                                                             \
    /* the first k in order, equal ones as they came; NaN counts as the largest */                           \
    NOT_INLINED sorted_##REAL(const Slices *s, int descending, npy_intp k, REAL *out, npy_int64 *place)      \
    {                                                                                                        \
        const REAL *x = PyArray_DATA(s->array);                                                              \
        npy_int64 order[MOST_SORTED];                                                                        \
        for (npy_intp o = 0; o < s->outer; o++) {                                                            \
            for (npy_intp i = 0; i < s->inner; i++) {                                                        \
                const REAL *from = x + o * s->n * s->inner + i;                                              \
                for (npy_intp j = 0; j < s->n && k > 0; j++) {                                               \
                    REAL v = from[j * s->inner];                                                             \
                    npy_intp at = j < k ? j : k;                                                             \
                    if (at == k) { /* it takes the place of the last one, or is no candidate */              \
                        REAL w = from[order[k - 1] * s->inner];                                              \
                        if (!(descending ? v > w || (v != v && w == w) : v < w || (w != w && v == v))) {     \
                            continue;                                                                        \
                        }                                                                                    \
                        at--;                                                                                \
                    }                                                                                        \
                    for (; at > 0; at--) {                                                                   \
                        REAL w = from[order[at - 1] * s->inner];                                             \
                        int before = descending ? v > w || (v != v && w == w) : v < w || (w != w && v == v); \
                        if (!before) {                                                                       \
                            break;                                                                           \
                        }                                                                                    \
                        order[at] = order[at - 1];                                                           \
                    }                                                                                        \
                    order[at] = j;                                                                           \
                }                                                                                            \
                for (npy_intp j = 0; j < k; j++) {                                                           \
                    out[(o * k + j) * s->inner + i] = from[order[j] * s->inner];                             \
                    place[(o * k + j) * s->inner + i] = order[j];                                            \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
    }

/* The longest slice that is sorted here, by insertion; and of a longer one, how many elements are found. */
#define MOST_SORTED 32

LOOPS(float)
LOOPS(double)

/* ---- sums */

/* The sums of the slices, divided by something; left to NumPy if the processor noted an exception. */
static PyObject *
divided_sums(const Slices *slices, double divisor)
{
    PyArrayObject *out = new_result(slices, PyArray_TYPE(slices->array));
    if (out == NULL) {
        return NULL;
    }
    if (PyArray_SIZE(slices->array) > SMALL) {
        if (!sum_slices(PyArray_TYPE(slices->array), PyArray_DATA(slices->array), slices->outer, slices->n,
                        slices->inner, divisor, PyArray_DATA(out))) {
            Py_CLEAR(out);
        }
        return (PyObject *)out;
    }
    forget_exceptions();
    if (is_single(slices)) {
        sums_float(slices, divisor, PyArray_DATA(out));
    }
    else {
        sums_double(slices, divisor, PyArray_DATA(out));
    }
    if (exceptions_noted() & ~UNDERFLOW_NOTED) {
        Py_CLEAR(out);
    }
    return (PyObject *)out;
}

/* sum_dims_forward(xp, input, dim, keepdim) */
PyObject *
sum_dims_forward(PyObject *const *arguments)
{
    Slices slices;
    return read_any_slices(&slices, arguments[1], arguments[2], arguments[3]) ? divided_sums(&slices, 1) : NULL;
}

/* mean_forward(xp, input, dim, keepdim) */
PyObject *
mean_forward(PyObject *const *arguments)
{
    Slices slices;
    return read_any_slices(&slices, arguments[1], arguments[2], arguments[3]) ? divided_sums(&slices, (double)slices.n)
                                                                              : NULL;
}

/* var_forward(xp, input, dim, correction, keepdim, name), of "var" and "std" */
PyObject *
var_forward(PyObject *const *arguments)
{
    Slices slices;
    PyObject *correction = arguments[3], *name = arguments[5];
    int is_std = PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "std") == 0;
    if (!(is_std || (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "var") == 0)) ||
        !(PyLong_CheckExact(correction) || PyFloat_CheckExact(correction))) {
        return NULL;
    }
    double less = PyFloat_AsDouble(correction);
    PyErr_Clear();
    if (!read_any_slices(&slices, arguments[1], arguments[2], arguments[4]) || !(slices.n - less > 0) ||
        (PyArray_SIZE(slices.array) > SMALL && slices.inner > 1)) {
        return NULL;
    }
    PyArrayObject *out = new_result(&slices, PyArray_TYPE(slices.array));
    if (out == NULL) {
        return NULL;
    }
    if (PyArray_SIZE(slices.array) > SMALL) {
        if (!variances_of_rows(PyArray_TYPE(slices.array), PyArray_DATA(slices.array), slices.outer, slices.n,
                               slices.n - less, is_std, PyArray_DATA(out))) {
            Py_CLEAR(out);
        }
        return (PyObject *)out;
    }
    forget_exceptions();
    if (is_single(&slices)) {
        variances_float(&slices, slices.n - less, is_std, PyArray_DATA(out));
    }
    else {
        variances_double(&slices, slices.n - less, is_std, PyArray_DATA(out));
    }
    if (exceptions_noted() & ~UNDERFLOW_NOTED) {
        Py_CLEAR(out);
    }
    return (PyObject *)out;
}

/* The largest array that is summed up here. */
#define FEW_TERMS 1024

#define SUM_ALL(type)                                                                                                 \
    static type sum_all_##type(const type *x, npy_intp n)                                                             \
    {                                                                                                                 \
        type sums[8] = {0}, rest = 0;                                                                                 \
        npy_intp i = 0;                                                                                               \
        for (; i + 8 <= n; i += 8) {                                                                                  \
            for (int k = 0; k < 8; k++) {                                                                             \
                sums[k] += x[i + k];                                                                                  \
            }                                                                                                         \
        }                                                                                                             \
        for (; i < n; i++) {                                                                                          \
            rest += x[i];                                                                                             \
        }                                                                                                             \
        return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7])) + rest;      \
    }

SUM_ALL(float)
SUM_ALL(double)

/* sum_all_forward(xp, input): the sum of all elements */
PyObject *
sum_all_forward(PyObject *const *arguments)
{
    PyArrayObject *input = (PyArrayObject *)arguments[1];
    if (Py_TYPE(arguments[1]) == core.device_array) {
        static PyObject *name;
        name = name == NULL ? PyUnicode_InternFromString("sum_all") : name;
        return name == NULL ? NULL : PyObject_CallMethodOneArg(arguments[0], name, arguments[1]);
    }
    if (!PyArray_CheckExact(input) || !plain_array(arguments[1], PyArray_NDIM(input))) {
        return NULL;
    }
    PyArrayObject *out = (PyArrayObject *)new_array(0, NULL, PyArray_TYPE(input));
    if (out == NULL) {
        return NULL;
    }
    if (PyArray_SIZE(input) > FEW_TERMS) {
        if (!sum_slices(PyArray_TYPE(input), PyArray_DATA(input), 1, PyArray_SIZE(input), 1, 1, PyArray_DATA(out))) {
            Py_CLEAR(out);
        }
        return (PyObject *)out;
    }
    forget_exceptions();
    if (PyArray_DESCR(input) == core.float32) {
        *(float *)PyArray_DATA(out) = sum_all_float(PyArray_DATA(input), PyArray_SIZE(input));
    }
    else {
        *(double *)PyArray_DATA(out) = sum_all_double(PyArray_DATA(input), PyArray_SIZE(input));
    }
    if (exceptions_noted()) { /* NumPy says what it thinks of it */
        Py_CLEAR(out);
    }
    return (PyObject *)out;
}

/* ---- extremes and order */

/* The two (taken over) as a tuple; NULL if one of them is. */
static PyObject *
pair(PyArrayObject *first, PyArrayObject *second)
{
    PyObject *both = first == NULL || second == NULL ? NULL : PyTuple_Pack(2, first, second);
    Py_XDECREF(first);
    Py_XDECREF(second);
    return both;
}

static PyObject *
extremes(PyObject *const *arguments, int sign)
{
    Slices slices;
    if (!PyLong_CheckExact(arguments[2]) || !read_any_slices(&slices, arguments[1], arguments[2], arguments[3])) {
        return NULL;
    }
    int type = PyArray_TYPE(slices.array);
    PyArrayObject *values = new_result(&slices, type), *places = new_result(&slices, NPY_INT64);
    if (values != NULL && places != NULL && PyArray_SIZE(slices.array) > SMALL) {
        find_extremes(sign < 0, type, PyArray_DATA(slices.array), slices.outer, slices.n, slices.inner,
                      PyArray_DATA(values), PyArray_DATA(places));
    }
    else if (values != NULL && places != NULL && type == NPY_FLOAT) {
        extremes_float(&slices, sign, PyArray_DATA(values), PyArray_DATA(places));
    }
    else if (values != NULL && places != NULL) {
        extremes_double(&slices, sign, PyArray_DATA(values), PyArray_DATA(places));
    }
    return pair(values, places);
}

/* places_along(xp, input, dim, smallest): where the extremes along a dimension are; the dimension stays */
PyObject *
places_along(PyObject *const *arguments)
{
    PyObject *given[] = {arguments[0], arguments[1], arguments[2], Py_True};
    PyObject *both = PyBool_Check(arguments[3]) ? extremes(given, arguments[3] == Py_True ? -1 : 1) : NULL;
    PyObject *places = both == NULL ? NULL : Py_NewRef(PyTuple_GET_ITEM(both, 1));
    Py_XDECREF(both);
    return places;
}

/* fold(xp, input, name, dim, keepdim) */
PyObject *
fold(PyObject *const *arguments)
{
    static const char *const names[FOLDS] = {"maximum", "minimum", "multiply", "sizes", "squares"};
    Slices slices;
    int chosen = 0;
    PyObject *name = arguments[2];
    if (arguments[0] != core.cpu || !PyUnicode_Check(name) ||
        !read_any_slices(&slices, arguments[1], arguments[3], arguments[4])) {
        return NULL;
    }
    while (chosen < FOLDS && PyUnicode_CompareWithASCIIString(name, names[chosen]) != 0) {
        chosen++;
    }
    PyArrayObject *out = chosen == FOLDS ? NULL : new_result(&slices, PyArray_TYPE(slices.array));
    if (out != NULL && !fold_slices((Fold)chosen, PyArray_TYPE(slices.array), PyArray_DATA(slices.array), slices.outer,
                                    slices.n, slices.inner, PyArray_DATA(out))) {
        Py_CLEAR(out);
    }
    return (PyObject *)out;
}

/* max_along(xp, input, dim, keepdim) */
PyObject *
max_along(PyObject *const *arguments)
{
    return extremes(arguments, 1);
}

/* min_along(xp, input, dim, keepdim) */
PyObject *
min_along(PyObject *const *arguments)
{
    return extremes(arguments, -1);
}

/* The first k (all, if k is -1) along a dimension, in order, of few elements; for more, see kernels/sorting.c. */
static PyObject *
in_order(PyObject *input, PyObject *dim, npy_intp k, int descending)
{
    Slices slices;
    if (!PyLong_CheckExact(dim) || !read_any_slices(&slices, input, dim, Py_True) || k > slices.n ||
        (k < 0 ? slices.n : k) > MOST_SORTED || PyArray_SIZE(slices.array) > SMALL) {
        return NULL;
    }
    k = k < 0 ? slices.n : k;
    slices.dims[wrapped_dim(dim, slices.ndim)] = k;
    PyArrayObject *values = new_result(&slices, PyArray_TYPE(slices.array)), *places = new_result(&slices, NPY_INT64);
    if (values != NULL && places != NULL) {
        WORK(PyArray_SIZE(slices.array),
             is_single(&slices) ? sorted_float(&slices, descending, k, PyArray_DATA(values), PyArray_DATA(places))
                                : sorted_double(&slices, descending, k, PyArray_DATA(values), PyArray_DATA(places)));
    }
    return pair(values, places);
}

/* sort_forward(xp, input, dim, descending) */
PyObject *
sort_forward(PyObject *const *arguments)
{
    return PyBool_Check(arguments[3]) ? in_order(arguments[1], arguments[2], -1, arguments[3] == Py_True) : NULL;
}

/* topk_forward(xp, input, k, dim, largest, sorted) */
PyObject *
topk_forward(PyObject *const *arguments)
{
    if (!PyLong_CheckExact(arguments[2]) || !PyBool_Check(arguments[4])) {
        return NULL;
    }
    npy_intp k = PyLong_AsSsize_t(arguments[2]);
    PyErr_Clear();
    return k < 0 ? NULL : in_order(arguments[1], arguments[3], k, arguments[4] == Py_True);
}

/* ---- their gradients */

/* scatter_selected(xp, grad, indices, shape, dim, keepdim): zeros, with the gradients at their indices along `dim` */
PyObject *
scatter_selected(PyObject *const *arguments)
{
    PyArrayObject *grad = (PyArrayObject *)arguments[1], *indices = (PyArrayObject *)arguments[2];
    PyObject *shape = arguments[3];
    npy_intp dims[NPY_MAXDIMS], outer = 1, inner = 1;
    if (!is_plain(arguments[1]) || !PyArray_CheckExact(indices) || PyArray_TYPE(indices) != NPY_INT64 ||
        !PyArray_ISCARRAY_RO(indices) || !PyArray_SAMESHAPE(grad, indices) || !PyTuple_Check(shape) ||
        PyTuple_GET_SIZE(shape) == 0 || PyTuple_GET_SIZE(shape) > 32 || !PyBool_Check(arguments[5])) {
        return NULL;
    }
    int ndim = (int)PyTuple_GET_SIZE(shape), axis = wrapped_dim(arguments[4], ndim);
    if (axis < 0 || PyArray_NDIM(grad) != ndim - (arguments[5] == Py_False)) {
        return NULL;
    }
    for (int k = 0; k < ndim; k++) {
        PyObject *size = PyTuple_GET_ITEM(shape, k);
        dims[k] = PyLong_CheckExact(size) ? PyLong_AsSsize_t(size) : -1;
        npy_intp own = k == axis ? 1 : PyArray_DIM(grad, k > axis && arguments[5] == Py_False ? k - 1 : k);
        PyErr_Clear();
        if (dims[k] < 0 || (k != axis && own != dims[k])) {
            return NULL;
        }
        *(k < axis ? &outer : &inner) *= k == axis ? 1 : dims[k];
    }
    npy_intp count = arguments[5] == Py_False ? 1 : PyArray_DIM(grad, axis);
    const npy_int64 *at = PyArray_DATA(indices);
    for (npy_intp k = 0; k < PyArray_SIZE(indices); k++) {
        if (at[k] < 0 || at[k] >= dims[axis]) {
            return NULL;
        }
    }
    PyArray_Descr *dtype = PyArray_DESCR(grad);
    Py_INCREF(dtype);
    PyArrayObject *out = (PyArrayObject *)PyArray_Zeros(ndim, dims, dtype, 0);
    size_t size = PyArray_ITEMSIZE(grad);
    const char *from = PyArray_BYTES(grad);
    for (npy_intp o = 0; out != NULL && o < outer; o++) {
        for (npy_intp j = 0; j < count; j++) {
            for (npy_intp i = 0; i < inner; i++, at++, from += size) {
                memcpy(PyArray_BYTES(out) + ((o * dims[axis] + *at) * inner + i) * size, from, size);
            }
        }
    }
    return (PyObject *)out;
}

/* restore(xp, reduced, shape, dim, keepdim): the reduced dimensions put back, of size 1 */
PyObject *
restore(PyObject *const *arguments)
{
    PyArrayObject *reduced = (PyArrayObject *)arguments[1];
    PyObject *shape = arguments[2];
    npy_intp dims[NPY_MAXDIMS];
    int first, count, own = 0;
    if (!PyArray_CheckExact(reduced) || !PyBool_Check(arguments[4]) || !PyTuple_Check(shape)) {
        return NULL;
    }
    if (arguments[4] == Py_True || PyArray_NDIM(reduced) == 0) {
        return Py_NewRef(reduced);
    }
    int ndim = (int)PyTuple_GET_SIZE(shape);
    if (ndim > 32 || !read_dims(arguments[3], ndim, &first, &count) || ndim - count != PyArray_NDIM(reduced)) {
        return NULL;
    }
    for (int k = 0; k < ndim; k++) {
        PyObject *size = PyTuple_GET_ITEM(shape, k);
        int is_reduced = k >= first && k < first + count;
        dims[k] = is_reduced ? 1 : PyArray_DIM(reduced, own++);
        if (!is_reduced && (!PyLong_CheckExact(size) || PyLong_AsSsize_t(size) != dims[k])) {
            PyErr_Clear();
            return NULL;
        }
    }
    PyArray_Dims wanted = {dims, ndim};
    return PyArray_Newshape(reduced, &wanted, NPY_CORDER);
}
