/* See quiet.h.
 *
 * NumPy keeps in a context variable what it does about floating-point errors, and to set that and set it back takes longer
 * than most operations. To enter a context in which it is set takes a few instructions. A context can be entered once
 * at a time, so there is one for each call that runs now: they are kept here, and guarded by the interpreter's lock. */
#include "quiet.h"
#include "formula/direct.h"

#define MOST_KEPT 16
#define MOST_OPERANDS 32

static PyObject *kept[MOST_KEPT];
static int kept_count;

static int
is_quiet(void)
{
    PyObject *value = NULL;
    if (core.errors_variable == NULL || PyContextVar_Get(core.errors_variable, Py_None, &value) < 0) {
        PyErr_Clear();
        return 1; /* nothing is bound yet */
    }
    Py_DECREF(value);
    return value == core.QUIET;
}

/* A context in which NumPy is silent, entered; NULL without an exception if there is no memory. */
static PyObject *
new_entered(void)
{
    PyObject *context = PyContext_New();
    if (context != NULL && PyContext_Enter(context) == 0) {
        PyObject *token = PyContextVar_Set(core.errors_variable, core.QUIET);
        if (token != NULL) {
            Py_DECREF(token);
            return context;
        }
        PyContext_Exit(context);
    }
    PyErr_Clear();
    Py_XDECREF(context);
    return NULL;
}

PyObject *
enter_quiet(void)
{
    if (is_quiet()) {
        return NULL;
    }
    if (kept_count == 0) {
        return new_entered();
    }
    PyObject *context = kept[--kept_count];
    if (PyContext_Enter(context) < 0) {
        PyErr_Clear();
        Py_CLEAR(context);
    }
    return context;
}

void
leave_quiet(PyObject *context)
{
    if (context == NULL) {
        return;
    }
    PyContext_Exit(context); /* fails only if another context is the current one, or this was never entered */
    if (kept_count < MOST_KEPT) {
        kept[kept_count++] = context;
    }
    else {
        Py_DECREF(context);
    }
}

/* The call of what may run Python, which is to find all other context variables as they are. */
static PyObject *
call_with_quiet(PyObject *function, PyObject *const *arguments, size_t flagged, PyObject *names)
{
    PyObject *all[3 + MOST_OPERANDS];
    Py_ssize_t count = PyVectorcall_NARGS(flagged), named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count + named > MOST_OPERANDS) {
        PyErr_SetString(PyExc_SystemError, "a function on arrays has too many arguments");
        return NULL;
    }
    all[0] = core.errors_variable;
    all[1] = core.QUIET;
    all[2] = function;
    memcpy(all + 3, arguments, (count + named) * sizeof(*all));
    return call_with(NULL, all, count + 3, names);
}

PyObject *
quiet_call(PyObject *function, PyObject *const *arguments, size_t flagged, PyObject *names)
{
    if (Py_IS_TYPE(function, core.ufunc)) {
        PyObject *result = names == NULL ? direct_result(function, arguments, PyVectorcall_NARGS(flagged)) : NULL;
        if (result == NULL && !PyErr_Occurred()) {
            PyObject *context = enter_quiet();
            result = PyObject_Vectorcall(function, arguments, flagged, names);
            leave_quiet(context);
        }
        return result;
    }
    if (PyCFunction_CheckExact(function) || Py_IS_TYPE(function, &Twin_Type) || Py_IS_TYPE(function, &Program_Type) ||
        is_quiet()) {
        return PyObject_Vectorcall(function, arguments, flagged, names);
    }
    return call_with_quiet(function, arguments, flagged, names);
}
