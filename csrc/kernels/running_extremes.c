/* cummax and cummin: the running extreme along a dimension and the latest place at which it was met; a NaN stays. */
#include "kernels/running_extremes.h"

#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#define COLUMNS 256

typedef struct {
    const void *x;
    void *out;
    npy_int64 *places;
    npy_intp n, inner;
    int smallest;
} Scan;

/* `count` columns side by side, `step` from one element of a column to the next */
#define LOOPS(REAL, NAME, WINS)                                                                                       \
    CLONES static void NAME##_columns_##REAL(const REAL *x, REAL *out, npy_int64 *places, npy_intp n, npy_intp step,  \
                                             npy_intp count)                                                          \
    {                                                                                                                 \
        memcpy(out, x, count * sizeof(REAL));                                                                         \
        memset(places, 0, count * sizeof(npy_int64));                                                                 \
        for (npy_intp j = 1; j < n; j++) {                                                                            \
            const REAL *from = x + j * step, *before = out + (j - 1) * step;                                          \
            const npy_int64 *place = places + (j - 1) * step;                                                         \
            _Pragma("GCC ivdep") for (npy_intp k = 0; k < count; k++)                                                 \
            {                                                                                                         \
                REAL v = from[k], most = before[k];                                                                   \
                int is_new = (v WINS most) | (v != v);                                                                \
                out[j * step + k] = is_new ? v : most;                                                                \
                places[j * step + k] = is_new ? j : place[k];                                                         \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    static void NAME##_row_##REAL(const REAL *x, REAL *out, npy_int64 *places, npy_intp n)                            \
    {                                                                                                                 \
        REAL most = x[0];                                                                                             \
        npy_int64 place = 0;                                                                                          \
        for (npy_intp j = 0; j < n; j++) {                                                                            \
            int is_new = (x[j] WINS most) | (x[j] != x[j]);                                                           \
            most = is_new ? x[j] : most;                                                                              \
            place = is_new ? j : place;                                                                               \
            out[j] = most;                                                                                            \
            places[j] = place;                                                                                        \
        }                                                                                                             \
    }                                                                                                                 \
    static void NAME##_pieces_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                                \
    {                                                                                                                 \
        const Scan *scan = context;                                                                                   \
        npy_intp n = scan->n, inner = scan->inner, strips = (inner + COLUMNS - 1) / COLUMNS;                          \
        for (Py_ssize_t piece = first; piece < last; piece++) {                                                       \
            npy_intp column = piece % strips * COLUMNS, start = piece / strips * n * inner + column;                  \
            npy_intp count = inner - column < COLUMNS ? inner - column : COLUMNS;                                     \
            const REAL *x = (const REAL *)scan->x + start;                                                            \
            REAL *out = (REAL *)scan->out + start;                                                                    \
            if (inner == 1) {                                                                                         \
                NAME##_row_##REAL(x, out, scan->places + start, n);                                                   \
            }                                                                                                         \
            else {                                                                                                    \
                NAME##_columns_##REAL(x, out, scan->places + start, n, inner, count);                                 \
            }                                                                                                         \
        }                                                                                                             \
        forget_exceptions();                                                                                          \
    }

LOOPS(float, largest, >=)
LOOPS(float, smallest, <=)
LOOPS(double, largest, >=)
LOOPS(double, smallest, <=)

/* running_extremes(x, dim, whether the smallest) -> (extremes, places) */
PyObject *
running_extremes(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    static const Share shares[2][2] = {{largest_pieces_float, smallest_pieces_float},
                                       {largest_pieces_double, smallest_pieces_double}};
    if (count != 3 || !is_plain(arguments[0]) || !PyLong_CheckExact(arguments[1])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    long dim = PyLong_AsLong(arguments[1]);
    int ndim = PyArray_NDIM(x);
    if (PyErr_Occurred() || dim < 0 || dim >= ndim) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *out = new_like(x), *places = out == NULL ? NULL : new_array(ndim, PyArray_DIMS(x), NPY_INT64);
    PyObject *both = places == NULL ? NULL : PyTuple_Pack(2, out, places);
    Py_XDECREF(out);
    Py_XDECREF(places);
    if (both == NULL) {
        return NULL;
    }
    Scan scan = {PyArray_DATA(x), data_of(out), data_of(places), PyArray_DIM(x, dim),
                 PyArray_MultiplyList(PyArray_DIMS(x) + dim + 1, ndim - (int)dim - 1), arguments[2] == Py_True};
    npy_intp outer = PyArray_MultiplyList(PyArray_DIMS(x), (int)dim);
    WORK(PyArray_SIZE(x), divide(shares[PyArray_TYPE(x) == NPY_DOUBLE][scan.smallest], &scan,
                                 outer * ((scan.inner + COLUMNS - 1) / COLUMNS), 1.5 * PyArray_SIZE(x)));
    return both;
}
