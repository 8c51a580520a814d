/* Large arrays copied in threads, whatever order their elements are in. See copies.c. */
#ifndef UNDERTOW_COPIES_H
#define UNDERTOW_COPIES_H

#include "core.h"

/* The sizes and bytes between elements of two arrays of one shape, whose elements have `size` bytes. */
typedef struct {
    int ndim;
    npy_intp size, shape[NPY_MAXDIMS], to_strides[NPY_MAXDIMS], from_strides[NPY_MAXDIMS];
    char *to;
    const char *from;
} Copy;

/* Copy all elements, which do not overlap. The description is changed. */
void copy_elements(Copy *copy);

/* Copy the elements of one array into another of the same shape and dtype, or leave it to NumPy; -1 with an exception. */
int copy_into(PyArrayObject *to, PyArrayObject *from);

#endif
