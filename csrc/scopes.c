/* Changes that end with a block or a call, whatever interrupts it: the twin of src/undertow/scopes.py, which says what
 * each of these is for. Interrupts and other signals, and tracers, come between two instructions of Python: never in
 * here, unless what is called here is Python itself. */
#include "core.h"

static PyObject *name_get, *name_set, *name_variable, *name_given, *name_at_once, *name_ended, *name_inside, *name_after,
    *name_prepare, *name_enter, *name_exit;

int
find_scope_names(void)
{
    struct {
        PyObject **place;
        const char *text;
    } names[] = {{&name_get, "get"},         {&name_set, "set"},       {&name_variable, "variable"},
                 {&name_given, "given"},     {&name_at_once, "at_once"}, {&name_ended, "ended"},
                 {&name_inside, "inside"},   {&name_after, "after"},   {&name_prepare, "prepare"},
                 {&name_enter, "__enter__"}, {&name_exit, "__exit__"}};
    for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
        if ((*names[k].place = PyUnicode_InternFromString(names[k].text)) == NULL) {
            return -1;
        }
    }
    return 0;
}

/* ---- variables: a ContextVar, or an object with get() and set(value) */

static PyObject *
variable_value(PyObject *variable)
{
    if (!PyContextVar_CheckExact(variable)) {
        return PyObject_CallMethodNoArgs(variable, name_get);
    }
    PyObject *value;
    if (PyContextVar_Get(variable, NULL, &value) < 0) {
        return NULL;
    }
    if (value == NULL) {
        PyErr_SetObject(PyExc_LookupError, variable);
    }
    return value;
}

/* Before Python 3.12 a collection may start in the middle of PyContextVar_Set. If a destructor sets a variable then, it
 * frees the table that is just being copied, and later the values that variables have in their caches. So collections
 * wait. */
static PyObject *
set_context_variable(PyObject *variable, PyObject *value)
{
#if PY_VERSION_HEX < 0x030c0000
    int collecting = PyGC_Disable();
    PyObject *done = PyContextVar_Set(variable, value);
    if (collecting) {
        PyGC_Enable();
    }
    return done;
#else
    return PyContextVar_Set(variable, value);
#endif
}

int
set_variable(PyObject *variable, PyObject *value)
{
    PyObject *done = PyContextVar_CheckExact(variable) ? set_context_variable(variable, value)
                                                       : PyObject_CallMethodOneArg(variable, name_set, value);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* set_value(variable, value) */
PyObject *
set_value(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "set_value() takes a variable and a value");
        return NULL;
    }
    if (set_variable(args[0], args[1]) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static int
reset_context_variable(PyObject *variable, PyObject *token)
{
#if PY_VERSION_HEX < 0x030c0000
    int collecting = PyGC_Disable(); /* as above */
    int status = PyContextVar_Reset(variable, token);
    if (collecting) {
        PyGC_Enable();
    }
    return status;
#else
    return PyContextVar_Reset(variable, token);
#endif
}

/* reset_variable(variable, token): undo the setting of a ContextVar that gave this token */
PyObject *
reset_variable(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "reset_variable() takes a variable and a token");
        return NULL;
    }
    return reset_context_variable(args[0], args[1]) < 0 ? NULL : Py_NewRef(Py_None);
}

/* set_for_now(variable, value): set a ContextVar; the token to undo that */
PyObject *
set_for_now(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "set_for_now() takes a variable and a value");
        return NULL;
    }
    return set_context_variable(args[0], args[1]);
}

/* Set a variable to what it was. An error that was there stays; without one, what goes wrong here is raised. A set()
 * in Python that is interrupted is called a second time. */
int
put_back(PyObject *variable, PyObject *value)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    int status = set_variable(variable, value);
    if (status < 0) {
        if (type == NULL) {
            PyErr_Fetch(&type, &error, &traceback);
        }
        PyErr_Clear();
        set_variable(variable, value);
        PyErr_Clear();
    }
    PyErr_Restore(type, error, traceback);
    return status;
}

/* call_with, with a ContextVar. One that was not set is not set afterwards: where no variable is set, Python need not look
 * for one that is read, and every operation and every new array reads one. */
static PyObject *
call_with_context_variable(PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *token = set_context_variable(args[0], args[1]);
    PyObject *result = token == NULL ? NULL : PyObject_Vectorcall(args[2], args + 3, count - 3, names);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (token != NULL && reset_context_variable(args[0], token) < 0) {
        Py_CLEAR(result);
    }
    if (type != NULL) {
        PyErr_Restore(type, error, traceback);
    }
    Py_XDECREF(token);
    return result;
}

/* call_with(variable, value, function, *args, **kwargs): what the function returns, called while the variable has that
 * value */
PyObject *
call_with(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count < 3) {
        PyErr_SetString(PyExc_TypeError, "call_with() takes a variable, a value, a function and its arguments");
        return NULL;
    }
    PyObject *variable = args[0];
    if (PyContextVar_CheckExact(variable)) {
        return call_with_context_variable(args, count, names);
    }
    PyObject *outer = variable_value(variable);
    if (outer == NULL) {
        return NULL;
    }
    PyObject *result = NULL;
    if (set_variable(variable, args[1]) == 0) {
        result = PyObject_Vectorcall(args[2], args + 3, count - 3, names);
    }
    if (put_back(variable, outer) < 0) {
        Py_CLEAR(result);
    }
    Py_DECREF(outer);
    return result;
}

/* ---- Scope */

typedef struct {
    PyObject_HEAD
    PyObject *entered; /* NULL, or a list of pairs: what the variable was, and what it was set to */
} Scope;

static Py_ssize_t
depth_of(Scope *self)
{
    return self->entered == NULL ? 0 : PyList_GET_SIZE(self->entered);
}

static int
drop_last(Scope *self)
{
    Py_ssize_t depth = depth_of(self);
    return PyList_SetSlice(self->entered, depth - 1, depth, NULL);
}

static int
is_at_once(Scope *self)
{
    PyObject *at_once = PyObject_GetAttr((PyObject *)self, name_at_once);
    int found = at_once == NULL ? -1 : PyObject_IsTrue(at_once);
    Py_XDECREF(at_once);
    return found;
}

/* Note what the variable was and will be; again: it was noted by a Scope that acts at once, when it was made. */
static int
note_entry(Scope *self, PyObject *outer, PyObject *inner, int again)
{
    if (self->entered == NULL && (self->entered = PyList_New(0)) == NULL) {
        return -1;
    }
    Py_ssize_t last = depth_of(self) - 1;
    PyObject *first = again ? PyTuple_GET_ITEM(PyList_GET_ITEM(self->entered, last), 0) : outer;
    PyObject *pair = PyTuple_Pack(2, first, inner);
    if (pair == NULL) {
        return -1;
    }
    if (again) {
        return PyList_SetItem(self->entered, last, pair);
    }
    int status = PyList_Append(self->entered, pair);
    Py_DECREF(pair);
    return status;
}

/* Whether one that acts at once is entered already, since it was made. A mode may have been switched since: then it is
 * entered again. */
static int
is_inside(Scope *self, PyObject *variable)
{
    Py_ssize_t depth = depth_of(self);
    PyObject *inner = depth == 0 ? Py_None : PyTuple_GET_ITEM(PyList_GET_ITEM(self->entered, depth - 1), 1);
    if (inner == Py_None || !PyContextVar_CheckExact(variable)) {
        return inner != Py_None;
    }
    PyObject *value = variable_value(variable);
    Py_XDECREF(value);
    return value == inner;
}

/* From 3.14 on, `with` calls __enter__ as it calls other functions, and handles a signal behind the call, where the block
 * has not begun and will not be ended. So what has come by now is handled here, where all can be put back. */
static int
interrupted_in_enter(void)
{
#if PY_VERSION_HEX >= 0x030E0000
    return PyErr_CheckSignals();
#else
    return 0;
#endif
}

static PyObject *
scope_enter(Scope *self, PyObject *ignored)
{
    int at_once = is_at_once(self);
    PyObject *variable = at_once < 0 ? NULL : PyObject_GetAttr((PyObject *)self, name_variable);
    if (variable != NULL && at_once && is_inside(self, variable)) {
        Py_DECREF(variable);
        return PyObject_GetAttr((PyObject *)self, name_given);
    }
    PyObject *outer = variable == NULL ? NULL : variable_value(variable);
    PyObject *inner = outer == NULL ? NULL : PyObject_CallMethodOneArg((PyObject *)self, name_inside, outer);
    PyObject *given = inner == NULL ? NULL : PyObject_GetAttr((PyObject *)self, name_given);
    if (given != NULL) {
        int again = at_once && depth_of(self) > 0;
        if (note_entry(self, outer, inner, again) < 0) {
            Py_CLEAR(given);
        }
        else if (set_variable(variable, inner) < 0 || interrupted_in_enter() < 0) {
            put_back(variable, outer);
            if (!again) {
                drop_last(self);
            }
            Py_CLEAR(given);
        }
    }
    Py_XDECREF(variable);
    Py_XDECREF(outer);
    Py_XDECREF(inner);
    return given;
}

/* Set the variable to what `after` says, and if that fails to what it was. */
static int
leave(Scope *self, PyObject *variable, PyObject *outer)
{
    PyObject *inner = variable_value(variable);
    PyObject *value = inner == NULL ? NULL : PyObject_CallMethodObjArgs((PyObject *)self, name_after, inner, outer, NULL);
    int failed = value == NULL;
    int status = put_back(variable, failed ? outer : value);
    Py_XDECREF(inner);
    Py_XDECREF(value);
    return failed ? -1 : status;
}

static PyObject *
scope_exit(Scope *self, PyObject *const *args, Py_ssize_t count)
{
    int at_once = is_at_once(self);
    PyObject *variable = at_once < 0 ? NULL : PyObject_GetAttr((PyObject *)self, name_variable);
    if (variable == NULL) {
        return NULL;
    }
    Py_ssize_t depth = depth_of(self);
    PyObject *outer = depth == 0 ? variable_value(variable)
                                 : Py_NewRef(PyTuple_GET_ITEM(PyList_GET_ITEM(self->entered, depth - 1), 0));
    if (outer == NULL) {
        Py_DECREF(variable);
        return NULL;
    }
    int status = depth == 0 ? 0 : at_once ? note_entry(self, outer, Py_None, 1) : drop_last(self);
    if (leave(self, variable, outer) < 0) {
        status = -1;
    }
    Py_DECREF(variable);
    Py_DECREF(outer);
    PyObject *ended = status < 0 ? NULL : PyObject_GetAttr((PyObject *)self, name_ended);
    if (ended == NULL || ended == Py_None) {
        return ended;
    }
    PyObject *nothing = PyObject_CallNoArgs(ended);
    Py_DECREF(ended);
    return nothing;
}

/* The block was left by an error that came on the way to its end, or in its beginning: a tracer can raise there. (One
 * that dies without an error was entered by hand, as in no_grad().__enter__(), and is to last.) */
static void
scope_finalize(PyObject *object)
{
    Scope *self = (Scope *)object;
    if (depth_of(self) == 0 || !PyErr_Occurred()) {
        return;
    }
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *variable = PyObject_GetAttr(object, name_variable);
    for (Py_ssize_t k = depth_of(self) - 1; k >= 0 && variable != NULL; k--) {
        PyObject *pair = PyList_GET_ITEM(self->entered, k);
        if (PyTuple_GET_ITEM(pair, 1) != Py_None) { /* else it acts at once, and has ended */
            leave(self, variable, PyTuple_GET_ITEM(pair, 0));
            PyErr_Clear();
        }
    }
    Py_CLEAR(self->entered);
    Py_XDECREF(variable);
    PyErr_Clear();
    PyErr_Restore(type, error, traceback);
}

static int
scope_traverse(Scope *self, visitproc visit, void *arg)
{
    Py_VISIT(self->entered);
    return 0;
}

static int
scope_clear(Scope *self)
{
    Py_CLEAR(self->entered);
    return 0;
}

static void
scope_dealloc(Scope *self)
{
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->entered);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* One that acts at once is told its arguments (`prepare`) and entered. No frame of Python's, which a traceback could keep,
 * holds it after that: whatever interrupts the call, scope_finalize is called. */
static int
scope_init(Scope *self, PyObject *args, PyObject *kwargs)
{
    int at_once = is_at_once(self);
    if (at_once < 0) {
        return -1;
    }
    if (!at_once) {
        if (PyTuple_GET_SIZE(args) == 0 && (kwargs == NULL || PyDict_GET_SIZE(kwargs) == 0)) {
            return 0;
        }
        PyErr_Format(PyExc_TypeError, "%s() takes no arguments", Py_TYPE(self)->tp_name);
        return -1;
    }
    PyObject *prepare = PyObject_GetAttr((PyObject *)self, name_prepare);
    PyObject *done = prepare == NULL ? NULL : PyObject_Call(prepare, args, kwargs);
    PyObject *given = done == NULL ? NULL : scope_enter(self, NULL);
    Py_XDECREF(prepare);
    Py_XDECREF(done);
    Py_XDECREF(given);
    return given == NULL ? -1 : 0;
}

static PyMethodDef scope_methods[] = {
    {"__enter__", (PyCFunction)scope_enter, METH_NOARGS},
    {"__exit__", (PyCFunction)(void (*)(void))scope_exit, METH_FASTCALL},
    {NULL}};

static PyObject *
scope_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return type->tp_alloc(type, 0); /* arguments are for __init__ */
}

PyTypeObject Scope_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Scope",
    .tp_basicsize = sizeof(Scope),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = scope_new,
    .tp_init = (initproc)scope_init,
    .tp_dealloc = (destructor)scope_dealloc,
    .tp_finalize = scope_finalize,
    .tp_traverse = (traverseproc)scope_traverse,
    .tp_clear = (inquiry)scope_clear,
    .tp_methods = scope_methods,
};

/* ---- Held */

typedef struct {
    PyObject_HEAD
    PyObject *lock;
    int depth;
} Held;

static PyObject *
held_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *lock;
    if (!PyArg_ParseTuple(args, "O", &lock)) {
        return NULL;
    }
    Held *self = (Held *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->lock = Py_NewRef(lock);
    }
    return (PyObject *)self;
}

static PyObject *
held_enter(Held *self, PyObject *ignored)
{
    PyObject *done = PyObject_CallMethodNoArgs(self->lock, name_enter);
    if (done == NULL) {
        return NULL;
    }
    Py_DECREF(done);
    self->depth++; /* held_dealloc ends it if a signal comes before the block */
    Py_RETURN_NONE;
}

static PyObject *
held_exit(Held *self, PyObject *const *args, Py_ssize_t count)
{
    if (self->depth == 0) {
        Py_RETURN_NONE;
    }
    self->depth--;
    PyObject *done = PyObject_CallMethodObjArgs(self->lock, name_exit, Py_None, Py_None, Py_None, NULL);
    Py_XDECREF(done);
    if (done == NULL) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* If it is still held, the block was left on the way to its end. */
static void
held_dealloc(Held *self)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    while (self->depth > 0) {
        Py_XDECREF(held_exit(self, NULL, 0));
        PyErr_Clear();
    }
    PyErr_Restore(type, error, traceback);
    Py_XDECREF(self->lock);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef held_methods[] = {
    {"__enter__", (PyCFunction)held_enter, METH_NOARGS},
    {"__exit__", (PyCFunction)(void (*)(void))held_exit, METH_FASTCALL},
    {NULL}};

PyTypeObject Held_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.held",
    .tp_basicsize = sizeof(Held),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = held_new,
    .tp_dealloc = (destructor)held_dealloc,
    .tp_methods = held_methods,
};

/* calls_left(): how many calls may still be nested in this thread before Python raises RecursionError */
PyObject *
calls_left(PyObject *module, PyObject *ignored)
{
    PyThreadState *thread = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030c0000
    return PyLong_FromLong(thread->py_recursion_remaining);
#else
    return PyLong_FromLong(thread->recursion_remaining);
#endif
}
