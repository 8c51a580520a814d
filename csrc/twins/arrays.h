/* Looking at the arrays that a twin is given. */
#ifndef UNDERTOW_TWIN_ARRAYS_H
#define UNDERTOW_TWIN_ARRAYS_H

#include "core.h"

static inline int
is_real(PyArrayObject *array)
{
    return PyArray_DESCR(array) == core.float32 || PyArray_DESCR(array) == core.float64;
}

/* The object as an array of real numbers with that many dimensions, one row after the other; or NULL. */
static inline PyArrayObject *
plain_array(PyObject *object, int ndim)
{
    PyArrayObject *array = (PyArrayObject *)object;
    int wanted = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
    return PyArray_CheckExact(object) && PyArray_NDIM(array) == ndim && is_real(array) &&
                   (PyArray_FLAGS(array) & wanted) == wanted
               ? array
               : NULL;
}

/* Whether two objects are arrays of real numbers of one shape and dtype, one row after the other. */
static inline int
are_alike(PyObject *first, PyObject *second)
{
    PyArrayObject *a = (PyArrayObject *)first, *b = (PyArrayObject *)second;
    return PyArray_CheckExact(first) && PyArray_CheckExact(second) && plain_array(first, PyArray_NDIM(a)) != NULL &&
           plain_array(second, PyArray_NDIM(a)) != NULL && PyArray_DESCR(a) == PyArray_DESCR(b) &&
           PyArray_SAMESHAPE(a, b);
}

#endif
