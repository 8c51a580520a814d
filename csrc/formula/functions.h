/* NumPy's ufuncs for elementary functions, with the loops of loops/functions.h for float and double. */
#ifndef UNDERTOW_FORMULA_FUNCTIONS_H
#define UNDERTOW_FORMULA_FUNCTIONS_H

#include "core.h"

/* make_functions(): a dict of ufuncs by name. They have the loops of NumPy's ufunc of that name for all other dtypes. */
PyObject *make_functions(PyObject *module, PyObject *nothing);

/* How long a ufunc's loop may take for one element, in nanoseconds. */
double nanoseconds_of(const char *name, int is_double);

#endif
