/* Sizes along three dimensions, as convolution and pooling take them: where there are fewer, ones are put in front. */
#ifndef UNDERTOW_SIZES_H
#define UNDERTOW_SIZES_H

#include "kernels/kernels.h"

static inline Py_ssize_t
product(const Py_ssize_t *sizes)
{
    return sizes[0] * sizes[1] * sizes[2];
}

/* Up to three numbers, all at least `least`, behind as many of `missing` as make three; whether they are that. */
static inline int
take_sizes(PyObject *tuple, Py_ssize_t dims, Py_ssize_t least, Py_ssize_t missing, Py_ssize_t *sizes)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != dims) {
        return 0;
    }
    for (Py_ssize_t d = 0; d < 3; d++) {
        sizes[d] = d < 3 - dims ? missing : PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, d - 3 + dims));
        if (sizes[d] < least || sizes[d] > 1 << 30) {
            PyErr_Clear();
            return 0;
        }
    }
    return 1;
}

/* The last `dims` sizes of an array. */
static inline void
take_shape(PyArrayObject *array, Py_ssize_t dims, Py_ssize_t *sizes)
{
    for (Py_ssize_t d = 0; d < 3; d++) {
        sizes[d] = d < 3 - dims ? 1 : PyArray_DIM(array, (int)(PyArray_NDIM(array) - 3 + d));
    }
}

#endif
