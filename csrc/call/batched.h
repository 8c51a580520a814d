/* Batches of examples, for Python. */
#ifndef UNDERTOW_BATCHED_H
#define UNDERTOW_BATCHED_H

#include "core.h"

/* batch(value, dim, level): the BatchedTensor of a tensor */
PyObject *new_batch(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
