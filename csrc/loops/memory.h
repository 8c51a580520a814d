/* Memory for large arrays, which is kept for a while when they are gone. See memory.c. */
#ifndef UNDERTOW_MEMORY_H
#define UNDERTOW_MEMORY_H

#include "core.h"

/* A new array like PyArray_NewFromDescr makes it (which takes `descr` over); `strides` may be NULL. */
PyObject *new_large(int ndim, const npy_intp *shape, const npy_intp *strides, PyArray_Descr *descr);

/* keep_memory(bytes): how much freed memory is kept at most; returns how much it was before. 0 frees it all. */
PyObject *keep_memory(PyObject *module, PyObject *bytes);

/* kept_memory(): how much is kept now */
PyObject *kept_memory(PyObject *module, PyObject *nothing);

#endif
