/* Gate: a Python function that asks classes with __torch_function__ first, once there are any. See Note [Functions that
 * ask] in tensor/torch_function.py. A profile times it here.
 */
#include "core.h"
#include "rows.h"

#include <structmember.h>

#define MOST_GIVEN 32

/* A function in Python that is told of calls, with two objects in front of their arguments. */
static PyObject *
call_told(PyObject *told, PyObject *first, PyObject *second, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t all = count + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    PyObject *few[MOST_GIVEN + 2];
    PyObject **call = all <= MOST_GIVEN ? few : PyMem_New(PyObject *, all + 2);
    if (call == NULL) {
        return PyErr_NoMemory();
    }
    call[0] = first;
    call[1] = second;
    for (Py_ssize_t k = 0; k < all; k++) {
        call[k + 2] = given[k];
    }
    PyObject *result = PyObject_Vectorcall(told, call, count + 2, names);
    if (call != few) {
        PyMem_Free(call);
    }
    return result;
}

/* What the function returns while some profile is under way: timed here, or by `look_on` if that writes down more than C
 * does. Inside an operation, which is shown as one, and in threads without a profile, nobody looks on. */
static PyObject *
call_shown(StandIn *self, PyObject *const *given, size_t flagged, PyObject *names)
{
    PyObject *state, *lowered, *result;
    if (PyContextVar_Get(core.state_variable, NULL, &state) < 0) {
        return NULL;
    }
    PyObject *rows = rows_of_profile(state, &lowered);
    if (rows != NULL) {
        Py_DECREF(lowered);
        PyObject *name = Py_NewRef(self->shown); /* the last profile may end while the function runs */
        Begun begun = begin_composite();
        result = PyObject_Vectorcall(self->function, given, flagged, names);
        result = end_composite(rows, name, result, begun);
        Py_DECREF(name);
        Py_DECREF(rows);
    }
    else if (SLOT(state, core.s_intercept) == Py_None || core.look_on == NULL) {
        result = PyObject_Vectorcall(self->function, given, flagged, names);
    }
    else {
        result = call_told(core.look_on, (PyObject *)self, self->function, given, PyVectorcall_NARGS(flagged), names);
    }
    Py_DECREF(state);
    return result;
}

PyObject *
call_unasked(StandIn *self, PyObject *const *given, size_t flagged, PyObject *names)
{
    return self->shown == NULL ? PyObject_Vectorcall(self->function, given, flagged, names)
                               : call_shown(self, given, flagged, names);
}

/* The function called by way of `ask_first`, which may leave it out. */
static PyObject *
call_after_asking(StandIn *self, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *unasked = self->shown == NULL ? Py_NewRef(self->function)
                                            : PyObject_GetAttrString((PyObject *)self, "unasked");
    if (unasked == NULL) {
        return NULL;
    }
    PyObject *result = call_told(core.ask_first, (PyObject *)self, unasked, given, count, names);
    Py_DECREF(unasked);
    return result;
}

PyObject *
call_python(StandIn *self, PyObject *const *given, size_t flagged, PyObject *names)
{
    return core.ask_first == NULL ? call_unasked(self, given, flagged, names)
                                  : call_after_asking(self, given, PyVectorcall_NARGS(flagged), names);
}

static PyObject *
gate_call(PyObject *callable, PyObject *const *given, size_t flagged, PyObject *names)
{
    return call_python((StandIn *)callable, given, flagged, names);
}

/* Gate(function) */
static PyObject *
gate_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *function;
    if (!PyArg_ParseTuple(args, "O", &function)) {
        return NULL;
    }
    StandIn *self = (StandIn *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = gate_call;
        self->function = Py_NewRef(function);
    }
    return (PyObject *)self;
}

/* by which `inspect` and `doctest` find the function */
static PyMemberDef gate_members[] = {{"__wrapped__", T_OBJECT, offsetof(StandIn, function), READONLY}, {NULL}};

PyTypeObject Gate_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Gate",
    .tp_base = &StandIn_Type,
    .tp_basicsize = sizeof(StandIn),
    .tp_flags = STAND_IN_FLAGS,
    .tp_new = gate_new,
    .tp_dealloc = stand_in_dealloc,
    .tp_traverse = stand_in_traverse,
    .tp_clear = stand_in_clear,
    .tp_getset = stand_in_attributes,
    .tp_members = gate_members,
};
