/* Numbers of one type as those of another. See casts.c. */
#ifndef UNDERTOW_CASTS_H
#define UNDERTOW_CASTS_H

#include "core.h"

#include <numpy/ufuncobject.h>

/* The loop that casts between these types (NumPy's numbers), and what it is given; NULL: none of ours. One between half and
 * single precision takes elements that follow each other, or are all the same. */
PyUFuncGenericFunction cast_of(int from, int to, void **data);

/* The same numbers in another dtype (taken over), in the order of the array; beyond its range they are infinite. */
PyObject *cast_array(PyArrayObject *array, PyArray_Descr *descr);

#endif
