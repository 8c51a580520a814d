/* See softmax_columns.c. */
#ifndef UNDERTOW_SOFTMAX_COLUMNS_H
#define UNDERTOW_SOFTMAX_COLUMNS_H

#include "core.h"

PyObject *softmax_columns(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

#endif
