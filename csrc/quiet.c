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

/* ---- calls of what may run Python, which is to find all other context variables as they are */

/* A context that is the program's own but for NumPy's silence, where the program has set no variables but undertow's
 * state, and this is a plain one, which refers to nothing of the user's. */
typedef struct {
    PyObject *context;
    PyObject *state; /* NULL: not set */
} Own;

static Own own[MOST_KEPT];
static int own_count;

/* The value of a variable, borrowed, in the current context; NULL: it is not set there. */
static PyObject *
value_set(PyObject *variable)
{
    PyObject *value = NULL;
    if (PyContextVar_Get(variable, Py_Ellipsis, &value) < 0) {
        PyErr_Clear();
    }
    Py_XDECREF(value); /* the context has it */
    return value == Py_Ellipsis ? NULL : value;
}

static int
is_plain_state(PyObject *state)
{
    return SLOT(state, core.s_unusual) == Py_False && SLOT(state, core.s_record) == Py_None;
}

static void
drop_own(Own *dropped)
{
    Py_DECREF(dropped->context);
    Py_XDECREF(dropped->state);
}

/* Enter a context as the current one, but silent. 0: there is none. */
static int
enter_own(Own *entered)
{
    PyObject *current = PyThreadState_Get()->context, *state = value_set(core.state_variable);
    if (current == NULL || (state != NULL && !is_plain_state(state)) ||
        PyMapping_Size(current) != (state != NULL) + (value_set(core.errors_variable) != NULL)) {
        return 0;
    }
    for (int k = own_count - 1; k >= 0; k--) {
        if (own[k].state == state) {
            *entered = own[k];
            own[k] = own[--own_count];
            if (PyContext_Enter(entered->context) == 0) {
                return 1;
            }
            PyErr_Clear();
            drop_own(entered);
            return 0;
        }
    }
    entered->context = new_entered();
    if (entered->context == NULL) {
        return 0;
    }
    entered->state = Py_XNewRef(state);
    if (state != NULL && set_variable(core.state_variable, state) < 0) {
        PyErr_Clear();
        PyContext_Exit(entered->context);
        drop_own(entered);
        return 0;
    }
    return 1;
}

/* Set the variables that were set in a context that was left, by a signal's handler say, in the current one. */
static void
carry_over(PyObject *left)
{
    PyObject *items = PyMapping_Items(left);
    for (Py_ssize_t k = 0; items != NULL && k < PyList_GET_SIZE(items); k++) {
        PyObject *pair = PyList_GET_ITEM(items, k), *variable = PyTuple_GET_ITEM(pair, 0);
        if (variable != core.errors_variable) {
            set_variable(variable, PyTuple_GET_ITEM(pair, 1));
        }
    }
    Py_XDECREF(items);
}

static void
leave_own(Own *entered)
{
    int changed = value_set(core.state_variable) != entered->state ||
                  PyMapping_Size(entered->context) != 1 + (entered->state != NULL);
    PyContext_Exit(entered->context);
    if (!changed && own_count < MOST_KEPT) {
        own[own_count++] = *entered;
        return;
    }
    if (changed) {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        carry_over(entered->context);
        PyErr_Restore(type, error, traceback);
    }
    drop_own(entered);
}

/* ... wherever variables of the program are set. */
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
    if (PyCFunction_CheckExact(function) || Py_IS_TYPE(function, &Twin_Type) || Py_IS_TYPE(function, &Programs_Type) ||
        is_quiet()) {
        return PyObject_Vectorcall(function, arguments, flagged, names);
    }
    Own entered;
    if (!enter_own(&entered)) {
        return call_with_quiet(function, arguments, flagged, names);
    }
    PyObject *result = PyObject_Vectorcall(function, arguments, flagged, names);
    leave_own(&entered);
    return result;
}
