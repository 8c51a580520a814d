/* Large pieces of work, divided among threads that are made for it and end with it: nothing waits in between, and there
 * is nothing that a fork could leave behind.
 */
#ifndef UNDERTOW_CREW_H
#define UNDERTOW_CREW_H

#include "core.h"

/* Do the pieces from `first` to before `last`. It must not touch Python objects; no two pieces write to one place. */
typedef void (*Share)(void *context, Py_ssize_t first, Py_ssize_t last);

/* Have all of `count` pieces done, which may take so many nanoseconds in all, by as many threads as were asked for (see
 * set_threads) and are worth it. Python's lock should be open. */
void divide(Share share, void *context, Py_ssize_t count, double nanoseconds);

PyObject *set_threads(PyObject *module, PyObject *number);

#endif
