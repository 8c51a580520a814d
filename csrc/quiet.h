/* Calls of NumPy that do not speak of infinities and NaN. See Note [Silence] in backend/cpu.py. */
#pragma once
#include "core.h"

/* Let NumPy be silent in this thread until leave_quiet: for calls of ufuncs, and of arrays' operators, in which no Python
 * can run. Other context variables have their default values meanwhile. Gives what leave_quiet takes over: NULL without
 * an exception if it is silent already (or there is no memory). */
PyObject *enter_quiet(void);
void leave_quiet(PyObject *context);

/* PyObject_Vectorcall of any function that computes with NumPy, silently. */
PyObject *quiet_call(PyObject *function, PyObject *const *arguments, size_t flagged, PyObject *names);
