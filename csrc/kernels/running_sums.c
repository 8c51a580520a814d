/* Running sums and products along a dimension, sums from either end too: in double precision, several rows or columns
 * side by side, because one operation waits for the one before.
 */
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#include <stdatomic.h>

#define AT_ONCE 8   /* rows */
#define FEW_ELEMENTS 8
#define COLUMNS 256

typedef struct {
    const void *x;
    void *out;
    npy_intp outer, n, inner;
    int backwards;
    atomic_int noted;
} Scan;

/* `count` columns or rows, each element of which is `step` behind the one before */
#define LOOPS(REAL, OF, FIRST, JOINS)                                                                                 \
    CLONES static void OF##_columns_##REAL(const REAL *x, REAL *out, npy_intp n, npy_intp step, npy_intp count)       \
    {                                                                                                                 \
        double now[COLUMNS];                                                                                          \
        for (npy_intp k = 0; k < count; k++) {                                                                        \
            now[k] = FIRST;                                                                                           \
        }                                                                                                             \
        for (npy_intp j = 0; j < n; j++, x += step, out += step) {                                                    \
            for (npy_intp k = 0; k < count; k++) {                                                                    \
                now[k] JOINS x[k];                                                                                    \
                out[k] = (REAL)now[k];                                                                                \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    /* a few elements of each row at a time: rows may be apart by what processors take for the same place */          \
    static void OF##_rows_##REAL(const REAL *x, REAL *out, npy_intp n, npy_intp step, npy_intp width, npy_intp count) \
    {                                                                                                                 \
        double now[AT_ONCE];                                                                                          \
        for (npy_intp k = 0; k < count; k++) {                                                                        \
            now[k] = FIRST;                                                                                           \
        }                                                                                                             \
        for (npy_intp start = 0; start < n; start += FEW_ELEMENTS) {                                                  \
            npy_intp end = start + FEW_ELEMENTS < n ? start + FEW_ELEMENTS : n;                                       \
            for (npy_intp k = 0; k < count; k++) {                                                                    \
                const REAL *from = x + k * width;                                                                     \
                REAL *to = out + k * width;                                                                           \
                double value = now[k];                                                                                \
                for (npy_intp j = start; j < end; j++) {                                                              \
                    value JOINS from[j * step];                                                                       \
                    to[j * step] = (REAL)value;                                                                       \
                }                                                                                                     \
                now[k] = value;                                                                                       \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    static void OF##_pieces_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                                  \
    {                                                                                                                 \
        Scan *scan = context;                                                                                         \
        npy_intp n = scan->n, inner = scan->inner, end = scan->backwards ? (n - 1) * inner : 0;                       \
        npy_intp step = scan->backwards ? -inner : inner, blocks = (inner + COLUMNS - 1) / COLUMNS;                   \
        forget_exceptions();                                                                                          \
        for (Py_ssize_t piece = first; piece < last; piece++) {                                                       \
            npy_intp start = inner == 1 ? piece * AT_ONCE * n : piece / blocks * n * inner + piece % blocks * COLUMNS;\
            npy_intp left = inner == 1 ? scan->outer - piece * AT_ONCE : inner - piece % blocks * COLUMNS;            \
            const REAL *x = (const REAL *)scan->x + start + end;                                                      \
            REAL *out = (REAL *)scan->out + start + end;                                                              \
            if (inner == 1) {                                                                                         \
                OF##_rows_##REAL(x, out, n, step, n, left < AT_ONCE ? left : AT_ONCE);                                \
            }                                                                                                         \
            else {                                                                                                    \
                OF##_columns_##REAL(x, out, n, step, left < COLUMNS ? left : COLUMNS);                                \
            }                                                                                                         \
        }                                                                                                             \
        atomic_fetch_or(&scan->noted, exceptions_noted() & ~UNDERFLOW_NOTED);                                         \
    }

LOOPS(float, sum, 0, +=)
LOOPS(double, sum, 0, +=)
LOOPS(float, product, 1, *=)
LOOPS(double, product, 1, *=)

/* For each of `count` rows or columns, `width` apart, the products of the other elements: what comes after each, and then
 * what comes before. */
#define OTHERS(REAL)                                                                                                  \
    CLONES static void others_##REAL(const REAL *x, REAL *out, npy_intp n, npy_intp step, npy_intp width,             \
                                     npy_intp count)                                                                  \
    {                                                                                                                 \
        double now[COLUMNS];                                                                                          \
        for (npy_intp k = 0; k < count; k++) {                                                                        \
            now[k] = 1;                                                                                               \
        }                                                                                                             \
        for (npy_intp j = n - 1; j >= 0; j--) {                                                                       \
            for (npy_intp k = 0; k < count; k++) {                                                                    \
                out[j * step + k * width] = (REAL)now[k];                                                             \
                now[k] *= x[j * step + k * width];                                                                    \
            }                                                                                                         \
        }                                                                                                             \
        for (npy_intp k = 0; k < count; k++) {                                                                        \
            now[k] = 1;                                                                                               \
        }                                                                                                             \
        for (npy_intp j = 0; j < n; j++) {                                                                            \
            for (npy_intp k = 0; k < count; k++) {                                                                    \
                out[j * step + k * width] = (REAL)(out[j * step + k * width] * now[k]);                               \
                now[k] *= x[j * step + k * width];                                                                    \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    static void others_pieces_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                                \
    {                                                                                                                 \
        Scan *scan = context;                                                                                         \
        npy_intp n = scan->n, inner = scan->inner, blocks = (inner + COLUMNS - 1) / COLUMNS;                          \
        for (Py_ssize_t piece = first; piece < last; piece++) {                                                       \
            npy_intp start = inner == 1 ? piece * AT_ONCE * n : piece / blocks * n * inner + piece % blocks * COLUMNS;\
            npy_intp left = inner == 1 ? scan->outer - piece * AT_ONCE : inner - piece % blocks * COLUMNS;            \
            npy_intp most = inner == 1 ? AT_ONCE : COLUMNS;                                                           \
            others_##REAL((const REAL *)scan->x + start, (REAL *)scan->out + start, n, inner, inner == 1 ? n : 1,     \
                          left < most ? left : most);                                                                 \
        }                                                                                                             \
    }

OTHERS(float)
OTHERS(double)

/* (x, dim[, backwards]) */
static PyObject *
scanned(PyObject *const *arguments, int backwards, Share of_floats, Share of_doubles)
{
    if (!is_plain(arguments[0]) || !PyLong_CheckExact(arguments[1])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    long dim = PyLong_AsLong(arguments[1]);
    if (PyErr_Occurred() || dim < 0 || dim >= PyArray_NDIM(x)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *out = new_like(x);
    if (out == NULL) {
        return NULL;
    }
    Scan scan = {PyArray_DATA(x), data_of(out), PyArray_MultiplyList(PyArray_DIMS(x), (int)dim), PyArray_DIM(x, dim),
                 PyArray_MultiplyList(PyArray_DIMS(x) + dim + 1, PyArray_NDIM(x) - (int)dim - 1),
                 backwards};
    npy_intp pieces = scan.inner == 1 ? (scan.outer + AT_ONCE - 1) / AT_ONCE
                                      : scan.outer * ((scan.inner + COLUMNS - 1) / COLUMNS);
    npy_intp size = PyArray_SIZE(x);
    WORK(size, divide(PyArray_TYPE(x) == NPY_FLOAT ? of_floats : of_doubles, &scan, pieces, 0.5 * size));
    if (scan.noted) {
        Py_SETREF(out, Py_NewRef(Py_None));
    }
    return out;
}

/* running_sums(x, dim, backwards): None also if the sums overflow, of which NumPy should speak */
PyObject *
running_sums(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3) {
        Py_RETURN_NONE;
    }
    return scanned(arguments, arguments[2] == Py_True, sum_pieces_float, sum_pieces_double);
}

/* running_products(x, dim): the same of products */
PyObject *
running_products(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        Py_RETURN_NONE;
    }
    return scanned(arguments, 0, product_pieces_float, product_pieces_double);
}

/* products_of_others(x, dim): for every element, the product of the others along a dimension */
PyObject *
products_of_others(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        Py_RETURN_NONE;
    }
    return scanned(arguments, 0, others_pieces_float, others_pieces_double);
}
