/* See running_extremes.c. */
#ifndef UNDERTOW_RUNNING_EXTREMES_H
#define UNDERTOW_RUNNING_EXTREMES_H

#include "core.h"

PyObject *running_extremes(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

#endif
