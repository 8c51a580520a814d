/* Memory for large arrays, which is kept for a while when they are gone. See memory.c. */
#ifndef UNDERTOW_MEMORY_H
#define UNDERTOW_MEMORY_H

#include "core.h"

/* A new array like PyArray_NewFromDescr makes it (which takes `descr` over); `strides` may be NULL. */
PyObject *new_large(int ndim, const npy_intp *shape, const npy_intp *strides, PyArray_Descr *descr);

/* Memory for a while, from what is kept, if it is large. NULL if there is none. Python's lock
 * need not be held. */
void *borrow(size_t bytes);
void *borrow_zeros(size_t count, size_t size);
void give_back(void *memory);

/* keep_memory(bytes): how much freed memory is kept at most; returns how much it was before. 0 frees it all. */
PyObject *keep_memory(PyObject *module, PyObject *bytes);

/* kept_memory(): how much is kept now */
PyObject *kept_memory(PyObject *module, PyObject *nothing);

#endif
