/* What the core asks of an array, whether it is NumPy's or one on a GPU. */
#ifndef UNDERTOW_DEVICE_ARRAYS_H
#define UNDERTOW_DEVICE_ARRAYS_H

#include "core.h"
#include "cuda/array.h"

static inline int
is_device_array(PyObject *object)
{
    return Py_TYPE(object) == core.device_array; /* which is NULL until a program uses a GPU */
}

static inline PyArray_Descr *
dtype_of(PyObject *array)
{
    return is_device_array(array) ? ((Array *)array)->dtype : PyArray_DESCR((PyArrayObject *)array);
}

static inline int
ndim_of(PyObject *array)
{
    return is_device_array(array) ? ((Array *)array)->nd : PyArray_NDIM((PyArrayObject *)array);
}

static inline const npy_intp *
dims_of(PyObject *array)
{
    return is_device_array(array) ? ((Array *)array)->dims : PyArray_DIMS((PyArrayObject *)array);
}

static inline const npy_intp *
strides_of(PyObject *array)
{
    return is_device_array(array) ? ((Array *)array)->strides : PyArray_STRIDES((PyArrayObject *)array);
}

static inline PyObject *
shape_of(PyObject *array)
{
    return PyArray_IntTupleFromIntp(ndim_of(array), dims_of(array));
}

static inline int
has_floats(PyObject *array)
{
    int number = dtype_of(array)->type_num;
    return PyTypeNum_ISFLOAT(number) || PyTypeNum_ISCOMPLEX(number) || is_narrow_type(number);
}

/* Whether a node has nothing out of the ordinary: no extra, or that which all nodes of a stream share. */
static inline int
is_plain(PyObject *node)
{
    PyObject *extra = SLOT(node, core.n_extra);
    return extra == Py_None ||
           (extra != NULL && core.StreamExtra != NULL && Py_TYPE(extra) == core.StreamExtra); /* NULL: deleted */
}

#endif
