/* A multiple added in place, without an array of the products: x.add_(y, alpha=a) and x.sub_(y, alpha=a) of large arrays,
 * and a step of gradient descent.
 */
#include "kernels/kernels.h"
#include "formula/blocks.h"
#include "loops/compile.h"
#include "loops/threads.h"
#include "twins/arrays.h"
#include "twins/table.h"

#define AT_ONCE 1024

#define MULTIPLES(REAL)                                                                                               \
    CLONES static void add_multiple_##REAL(REAL *x, const REAL *y, REAL factor, int minus, npy_intp n)                \
    {                                                                                                                 \
        if (minus) {                                                                                                  \
            _Pragma("GCC ivdep") for (npy_intp i = 0; i < n; i++) { x[i] = x[i] - y[i] * factor; }                    \
        }                                                                                                             \
        else {                                                                                                        \
            _Pragma("GCC ivdep") for (npy_intp i = 0; i < n; i++) { x[i] = x[i] + y[i] * factor; }                    \
        }                                                                                                             \
    }

MULTIPLES(float)
MULTIPLES(double)

/* ---- very large arrays, divided among threads */

#define MANY (1 << 17) /* elements */
#define PIECE 16384

typedef struct {
    void *x;
    const void *y;
    double factor;
    int minus, is_float;
    npy_intp count;
} Multiple;

#define ADD_IN_PLACE(REAL)                                                                                            \
    CLONES static void add_in_place_##REAL(REAL *x, const REAL *y, REAL factor, npy_intp n)                           \
    {                                                                                                                 \
        _Pragma("GCC ivdep") for (npy_intp i = 0; i < n; i++) { x[i] += y[i] * factor; }                              \
    }

ADD_IN_PLACE(float)
ADD_IN_PLACE(double)

/* A difference is the sum with the negative factor, to the last bit. */
static void
add_pieces(void *context, Py_ssize_t first, Py_ssize_t last)
{
    Multiple *given = context;
    npy_intp start = first * PIECE, end = last * PIECE < given->count ? last * PIECE : given->count;
    double factor = given->minus ? -given->factor : given->factor;
    if (given->is_float) {
        add_in_place_float((float *)given->x + start, (const float *)given->y + start, (float)factor, end - start);
    }
    else {
        add_in_place_double((double *)given->x + start, (const double *)given->y + start, factor, end - start);
    }
}

static void
add_large(Multiple *given)
{
    divide(add_pieces, given, (given->count + PIECE - 1) / PIECE, (given->is_float ? 0.2 : 0.4) * given->count);
}

/* 1 for subtract, 0 for add, -1 for others */
static int
is_minus(PyObject *ufunc)
{
    PyObject *name = PyObject_GetAttrString(ufunc, "__name__");
    int found = name == NULL                                            ? -1
                : PyUnicode_CompareWithASCIIString(name, "subtract") == 0 ? 1
                : PyUnicode_CompareWithASCIIString(name, "add") == 0      ? 0
                                                                          : -1;
    Py_XDECREF(name);
    PyErr_Clear();
    return found;
}

/* Whether all of one lies before the other, or both are the same. */
static int
are_apart(PyArrayObject *x, PyArrayObject *y)
{
    const char *first = PyArray_BYTES(x), *second = PyArray_BYTES(y);
    return first == second || first + PyArray_NBYTES(x) <= second || second + PyArray_NBYTES(y) <= first;
}

/* target += alpha * other (or -=, by the ufunc), in place; whether it is done */
int
add_multiple(PyObject *ufunc, PyObject *target, PyObject *other, PyObject *alpha)
{
    if (!PyFloat_CheckExact(alpha) || !is_plain(target) || !is_plain(other) ||
        PyArray_SIZE((PyArrayObject *)target) <= AT_ONCE) {
        return 0;
    }
    PyArrayObject *x = (PyArrayObject *)target, *y = (PyArrayObject *)other;
    int minus = is_minus(ufunc);
    double factor = PyFloat_AS_DOUBLE(alpha);
    if (minus < 0 || PyArray_TYPE(x) != PyArray_TYPE(y) || !PyArray_SAMESHAPE(x, y) || !PyArray_ISWRITEABLE(x) ||
        !are_apart(x, y)) {
        return 0;
    }
    npy_intp size = PyArray_SIZE(x);
    void *to = PyArray_DATA(x), *from = PyArray_DATA(y);
    if (size >= MANY) {
        Multiple given = {to, from, factor, minus, PyArray_TYPE(x) == NPY_FLOAT, size};
        WORK(size, add_large(&given));
        return 1;
    }
    WORK(size, PyArray_TYPE(x) == NPY_FLOAT ? add_multiple_float(to, from, (float)factor, minus, size)
                                            : add_multiple_double(to, from, factor, minus, size));
    return 1;
}

/* ---- a step of gradient descent */

#define DESCEND(type)                                                                                                 \
    static void descend_##type(type *param, const type *grad, type rate, npy_intp n)                                  \
    {                                                                                                                 \
        for (npy_intp i = 0; i < n; i++) {                                                                            \
            param[i] -= grad[i] * rate;                                                                               \
        }                                                                                                             \
    }

DESCEND(float)
DESCEND(double)

/* descend(xp, param, grad, rate): param -= rate * grad, rate an array of one number */
PyObject *
descend(PyObject *const *arguments)
{
    PyArrayObject *param = (PyArrayObject *)arguments[1], *grad = (PyArrayObject *)arguments[2];
    PyArrayObject *rate = plain_array(arguments[3], 0);
    if (rate == NULL || !are_alike(arguments[1], arguments[2]) || PyArray_DESCR(param) != PyArray_DESCR(rate) ||
        !PyArray_ISWRITEABLE(param)) {
        return NULL;
    }
    npy_intp size = PyArray_SIZE(param);
    if (size >= MANY) {
        int is_float = PyArray_DESCR(param) == core.float32;
        double factor = is_float ? *(float *)PyArray_DATA(rate) : *(double *)PyArray_DATA(rate);
        Multiple given = {PyArray_DATA(param), PyArray_DATA(grad), factor, 1, is_float, size};
        WORK(size, add_large(&given));
        return Py_NewRef(Py_None);
    }
    if (PyArray_DESCR(param) == core.float32) {
        descend_float(PyArray_DATA(param), PyArray_DATA(grad), *(float *)PyArray_DATA(rate), PyArray_SIZE(param));
    }
    else {
        descend_double(PyArray_DATA(param), PyArray_DATA(grad), *(double *)PyArray_DATA(rate), PyArray_SIZE(param));
    }
    return Py_NewRef(Py_None);
}
