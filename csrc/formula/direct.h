/* Ufuncs of a few plain arrays, computed by their loops alone. */
#pragma once
#include "core.h"

/* ufunc(array), or ufunc(array, array or number), in a new array; NULL without an exception: NumPy has to do it. */
PyObject *direct_result(PyObject *function, PyObject *const *arguments, Py_ssize_t count);
