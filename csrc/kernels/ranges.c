/* Numbers at equal distances, computed in double precision; by threads if there are many. */
#include "kernels/ranges.h"

#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#define PIECE 8192 /* numbers */
#define NANOSECONDS 0.5 /* for a number */

typedef struct {
    PyArrayObject *array;
    npy_intp count;
    int64_t first, jump;      /* of whole numbers */
    double start, step, end; /* of others: those from `half` on are counted from the end */
    npy_intp half;
} Range;

CLONES static void
count_whole(int64_t *out, const Range *range, npy_intp from, npy_intp to)
{
    for (npy_intp k = from; k < to; k++) {
        out[k] = (int64_t)((uint64_t)range->first + (uint64_t)range->jump * (uint64_t)k);
    }
}

#define COUNT(type)                                                                                       \
    CLONES static void count_##type(type *out, const Range *range, npy_intp from, npy_intp to)            \
    {                                                                                                     \
        npy_intp half = range->half < from ? from : range->half < to ? range->half : to;                  \
        double start = range->start, step = range->step, end = range->end;                                \
        for (npy_intp k = from; k < half; k++) {                                                          \
            out[k] = (type)(start + step * (double)(int64_t)k);                                           \
        }                                                                                                 \
        for (npy_intp k = half; k < to; k++) {                                                            \
            out[k] = (type)(end - step * (double)(int64_t)(range->count - 1 - k));                        \
        }                                                                                                 \
    }

COUNT(float)
COUNT(double)

static void
count_pieces(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Range *range = context;
    npy_intp from = first * PIECE, to = last * PIECE < range->count ? last * PIECE : range->count;
    void *out = PyArray_DATA(range->array);
    switch (PyArray_TYPE(range->array)) {
    case NPY_FLOAT:
        count_float(out, range, from, to);
        break;
    case NPY_DOUBLE:
        count_double(out, range, from, to);
        break;
    default:
        count_whole(out, range, from, to);
    }
}

static void
run_range(Range *range)
{
    npy_intp count = range->count = PyArray_SIZE(range->array);
    WORK(count, divide(count_pieces, range, (count + PIECE - 1) / PIECE, NANOSECONDS * count));
}

void
put_whole_range(PyArrayObject *array, int64_t start, int64_t step)
{
    Range range = {.array = array, .first = start, .jump = step};
    run_range(&range);
}

void
put_range(PyArrayObject *array, double start, double step)
{
    Range range = {.array = array, .start = start, .step = step, .half = PyArray_SIZE(array)};
    run_range(&range);
}

void
put_equal_distances(PyArrayObject *array, double start, double end)
{
    npy_intp count = PyArray_SIZE(array);
    Range range = {.array = array, .start = start, .end = end, .half = count < 2 ? count : count / 2};
    range.step = count < 2 ? 0 : (end - start) / (double)(count - 1);
    run_range(&range);
}

/* Read `count` and `dtype`, the last two of four arguments: a new array; NULL without an exception if it is of another
 * kind than these. */
static PyObject *
array_of(PyObject *const *arguments, Py_ssize_t count, int *type)
{
    npy_intp size;
    *type = count == 4 && PyArray_DescrCheck(arguments[3]) ? ((PyArray_Descr *)arguments[3])->type_num : NPY_NOTYPE;
    if ((*type != NPY_INT64 && *type != NPY_FLOAT && *type != NPY_DOUBLE) || !read_size(arguments[2], &size)) {
        return NULL;
    }
    return new_array(1, &size, *type);
}

/* range_array(start, step, count, dtype) -> start, start + step, ... in float32, float64 or int64; None for others */
PyObject *
range_array(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int type;
    PyObject *array = array_of(arguments, count, &type);
    if (array != NULL && type == NPY_INT64) {
        put_whole_range((PyArrayObject *)array, PyLong_AsLongLong(arguments[0]), PyLong_AsLongLong(arguments[1]));
    }
    else if (array != NULL) {
        put_range((PyArrayObject *)array, PyFloat_AsDouble(arguments[0]), PyFloat_AsDouble(arguments[1]));
    }
    if (PyErr_Occurred()) {
        Py_CLEAR(array);
        return NULL;
    }
    return array == NULL ? Py_NewRef(Py_None) : array;
}

/* equal_distances(start, end, count, dtype) -> from the one to the other, in float32 or float64; None for others */
PyObject *
equal_distances(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int type;
    PyObject *array = count == 4 && !PyComplex_Check(arguments[0]) && !PyComplex_Check(arguments[1])
                          ? array_of(arguments, count, &type)
                          : NULL;
    if (array != NULL && type != NPY_INT64) {
        put_equal_distances((PyArrayObject *)array, PyFloat_AsDouble(arguments[0]), PyFloat_AsDouble(arguments[1]));
    }
    else {
        Py_CLEAR(array);
    }
    if (PyErr_Occurred()) {
        Py_CLEAR(array);
        return NULL;
    }
    return array == NULL ? Py_NewRef(Py_None) : array;
}
