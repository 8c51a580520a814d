/* Running sums along a dimension, from either end: added up in double precision, several rows or columns side by side,
 * because one addition waits for the one before.
 */
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#include <stdatomic.h>

#define FEW 4096    /* elements that are left to NumPy */
#define AT_ONCE 8   /* rows */
#define COLUMNS 256

typedef struct {
    const void *x;
    void *out;
    npy_intp outer, n, inner;
    int backwards;
    atomic_int noted;
} Scan;

/* `count` columns, each element of which is `step` behind the one before; `apart` is between two columns */
#define LOOPS(REAL)                                                                                                   \
    INLINE void scan_##REAL(const REAL *x, REAL *out, npy_intp n, npy_intp step, npy_intp apart, npy_intp count,      \
                            double *sums)                                                                             \
    {                                                                                                                 \
        for (npy_intp k = 0; k < count; k++) {                                                                        \
            sums[k] = 0;                                                                                              \
        }                                                                                                             \
        for (npy_intp j = 0; j < n; j++, x += step, out += step) {                                                    \
            for (npy_intp k = 0; k < count; k++) {                                                                    \
                sums[k] += x[k * apart];                                                                              \
                out[k * apart] = (REAL)sums[k];                                                                       \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    CLONES static void columns_##REAL(const REAL *x, REAL *out, npy_intp n, npy_intp step, npy_intp count)            \
    {                                                                                                                 \
        double sums[COLUMNS];                                                                                         \
        scan_##REAL(x, out, n, step, 1, count, sums);                                                                 \
    }                                                                                                                 \
    static void rows_##REAL(const REAL *x, REAL *out, npy_intp n, npy_intp step, npy_intp width, npy_intp count)      \
    {                                                                                                                 \
        double sums[AT_ONCE];                                                                                         \
        if (count == AT_ONCE) {                                                                                       \
            scan_##REAL(x, out, n, step, width, AT_ONCE, sums);                                                       \
        }                                                                                                             \
        else {                                                                                                        \
            scan_##REAL(x, out, n, step, width, count, sums);                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    static void pieces_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                                       \
    {                                                                                                                 \
        Scan *scan = context;                                                                                         \
        npy_intp n = scan->n, inner = scan->inner, end = scan->backwards ? (n - 1) * inner : 0;                       \
        npy_intp step = scan->backwards ? -inner : inner, blocks = (inner + COLUMNS - 1) / COLUMNS;                   \
        forget_exceptions();                                                                                          \
        for (Py_ssize_t piece = first; piece < last; piece++) {                                                       \
            npy_intp start = inner == 1 ? piece * AT_ONCE * n : piece / blocks * n * inner + piece % blocks * COLUMNS; \
            npy_intp left = inner == 1 ? scan->outer - piece * AT_ONCE : inner - piece % blocks * COLUMNS;            \
            const REAL *x = (const REAL *)scan->x + start + end;                                                      \
            REAL *out = (REAL *)scan->out + start + end;                                                              \
            if (inner == 1) {                                                                                         \
                rows_##REAL(x, out, n, step, n, left < AT_ONCE ? left : AT_ONCE);                                     \
            }                                                                                                         \
            else {                                                                                                    \
                columns_##REAL(x, out, n, step, left < COLUMNS ? left : COLUMNS);                                     \
            }                                                                                                         \
        }                                                                                                             \
        atomic_fetch_or(&scan->noted, exceptions_noted() & ~UNDERFLOW_NOTED);                                         \
    }

LOOPS(float)
LOOPS(double)

/* running_sums(x, dim, backwards): None also if the sums overflow, of which NumPy should speak */
PyObject *
running_sums(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3 || !is_plain(arguments[0]) || !PyLong_CheckExact(arguments[1])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    long dim = PyLong_AsLong(arguments[1]);
    if (PyErr_Occurred() || dim < 0 || dim >= PyArray_NDIM(x) || PyArray_SIZE(x) < FEW) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *out = new_like(x);
    if (out == NULL) {
        return NULL;
    }
    Scan scan = {PyArray_DATA(x), data_of(out), PyArray_MultiplyList(PyArray_DIMS(x), (int)dim), PyArray_DIM(x, dim),
                 PyArray_MultiplyList(PyArray_DIMS(x) + dim + 1, PyArray_NDIM(x) - (int)dim - 1),
                 arguments[2] == Py_True};
    npy_intp pieces = scan.inner == 1 ? (scan.outer + AT_ONCE - 1) / AT_ONCE
                                      : scan.outer * ((scan.inner + COLUMNS - 1) / COLUMNS);
    npy_intp size = PyArray_SIZE(x);
    WORK(size, divide(PyArray_TYPE(x) == NPY_FLOAT ? pieces_float : pieces_double, &scan, pieces, 0.5 * size));
    if (scan.noted) {
        Py_SETREF(out, Py_NewRef(Py_None));
    }
    return out;
}
