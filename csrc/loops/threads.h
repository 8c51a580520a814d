/* Large pieces of work, divided among threads that sleep in between.
 *
 * The threads are made when they are first needed, one fewer than were asked for: the caller works, too. They know
 * nothing of Python, and end when fewer are asked for or when the interpreter ends. The child of a fork has none of them
 * and makes its own. There is one crew: who finds it busy (another thread's kernel, or one within a kernel) does all of
 * the work alone, so that there are never more threads at work than were asked for, and nobody waits for anybody.
 */
#ifndef UNDERTOW_CREW_H
#define UNDERTOW_CREW_H

#include "core.h"

/* Do the pieces from `first` to before `last`. It must not touch Python objects; no two pieces write to one place, and
 * what a piece gives must not depend on who does it, nor with which others. */
typedef void (*Share)(void *context, Py_ssize_t first, Py_ssize_t last);

/* Have all of `count` pieces done, which may take so many nanoseconds in all, by as many threads as were asked for (see
 * set_threads) and are worth it. Python's lock should be open. */
void divide(Share share, void *context, Py_ssize_t count, double nanoseconds);

/* how many were asked for */
int threads_now(void);

PyObject *threads_at_most(PyObject *module, PyObject *nothing);
PyObject *set_threads(PyObject *module, PyObject *number);

#endif
