/* What a profile writes down, as instrument/profiler/recorder.py does: one row for each operation and node. */
#ifndef UNDERTOW_ROWS_H
#define UNDERTOW_ROWS_H

#include "core.h"

extern PyTypeObject Rows_Type;

/* The list of the profile that is under way, if C may write into it, and the state without the profile: new references;
 * otherwise NULL. What runs with that state is what would run without a profile. */
PyObject *rows_of_interceptor(PyObject *state, PyObject **lowered);

static inline PyObject *
rows_of_profile(PyObject *state, PyObject **lowered)
{
    return SLOT(state, core.s_intercept) == Py_None ? NULL : rows_of_interceptor(state, lowered);
}

/* Nanoseconds on the clock of Python's perf_counter_ns; -1 where that clock is not known to C. */
long long clock_now(void);
/* Append the row of a node that ran from `begin` until now, and led to `edges` (NULL: to none). `shape` is that of its
 * gradient (NULL: not known). -1 and an exception if that failed. */
int append_node(PyObject *rows, PyObject *node, long long begin, PyObject *shape, PyObject *edges);

/* The result of an operation that began at `begin`, written down if it is not NULL. */
PyObject *timed(PyObject *rows, PyObject *what, PyObject *result, long long begin);

typedef struct {
    int depth; /* in how many others */
    long long time;
} Begun;

/* An operation made of others begins; and its result, written down if it is not NULL. */
Begun begin_composite(void);
PyObject *end_composite(PyObject *rows, PyObject *name, PyObject *result, Begun begun);

/* What a function in Python returns, called with the state without the profile; NULL without an exception, and it was
 * not called, if one of the arguments may be of a class that has a say: what that does is to be seen in the profile. */
PyObject *called_below(PyObject *lowered, PyObject *function, PyObject *const *given, size_t flagged, PyObject *names);

/* run_watched(rows, name, function, args, kwargs): what the function returns, called with the state without the profile,
 * and written down as one operation. */
PyObject *run_watched(PyObject *module, PyObject *const *given, Py_ssize_t count);

enum { ROW_OPERATION, ROW_NODE, ROW_COMPOSITE = 4 };

#endif
