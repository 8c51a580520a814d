/* Sums, differences, products and quotients of small arrays, computed without NumPy's machinery.
 *
 * Results are the same to the last bit.
 */
#ifndef UNDERTOW_SMALL_ARRAYS_H
#define UNDERTOW_SMALL_ARRAYS_H

#include "core.h"

#include <string.h>

/* NumPy's ufuncs for + - * /, in that order, and for the unary -; filled by find_ufuncs, when the module is made. */
extern PyObject *ufuncs[4], *negative;

int find_ufuncs(void);

/* The symbol of one of those four; -1 for any other ufunc. */
int symbol_of(PyObject *ufunc);

/* a (+ - * /) b, symbols 0 to 3, of arrays or numbers; NULL without an exception if that cannot be computed here. An
 * operand that is held once is taken for an intermediate result, whose memory takes this one. */
PyObject *small_result(int symbol, PyObject *left, PyObject *right);

/* The same, in new memory in any case. */
static inline PyObject *
new_small_result(int symbol, PyObject *left, PyObject *right)
{
    Py_INCREF(left);
    Py_INCREF(right);
    PyObject *result = small_result(symbol, left, right);
    Py_DECREF(left);
    Py_DECREF(right);
    return result;
}

/* target (+ - * /)= other, an array or a number, if that can be computed here; whether it was. */
int change_small(PyObject *ufunc, PyArrayObject *target, PyObject *other);

static inline int
same_shape(PyArrayObject *a, PyArrayObject *b)
{
    return PyArray_NDIM(a) == PyArray_NDIM(b) &&
           (PyArray_NDIM(a) == 0 || memcmp(PyArray_DIMS(a), PyArray_DIMS(b), PyArray_NDIM(a) * sizeof(npy_intp)) == 0);
}

/* A real number as an operand of floating-point arrays; whether it is one. */
static inline int
as_number(PyObject *value, double *number)
{
    if (PyFloat_CheckExact(value)) {
        *number = PyFloat_AS_DOUBLE(value);
        return 1;
    }
    if (PyLong_CheckExact(value)) {
        int overflow;
        long whole = PyLong_AsLongAndOverflow(value, &overflow);
        if (overflow || whole > 1 << 24 || whole < -(1 << 24)) { /* beyond, float32 would round it */
            return 0;
        }
        *number = (double)whole;
        return 1;
    }
    return 0;
}

/* An intermediate result that nobody else holds: its memory can take the next one. */
static inline int
is_temporary(PyObject *value)
{
    return Py_REFCNT(value) == 1 && PyArray_CheckExact(value) && PyArray_BASE((PyArrayObject *)value) == NULL &&
           (PyArray_FLAGS((PyArrayObject *)value) & (NPY_ARRAY_OWNDATA | NPY_ARRAY_WRITEABLE)) ==
               (NPY_ARRAY_OWNDATA | NPY_ARRAY_WRITEABLE);
}

static inline int
is_float(PyObject *array)
{
    PyArray_Descr *descr = PyArray_DESCR((PyArrayObject *)array);
    return descr == core.float32 || descr == core.float64;
}

#endif
