/* Gate: a Python function that asks classes with __torch_function__ first, once there are any. See Note [Functions that
 * ask] in tensor/torch_function.py.
 */
#include "core.h"

#include <structmember.h>

#define MOST_GIVEN 32

/* The function behind a C object, called by way of `ask_first`: with both in front of its arguments. */
static PyObject *
ask_first(StandIn *self, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t all = count + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    PyObject *few[MOST_GIVEN + 2];
    PyObject **call = all <= MOST_GIVEN ? few : PyMem_New(PyObject *, all + 2);
    if (call == NULL) {
        return PyErr_NoMemory();
    }
    call[0] = (PyObject *)self;
    call[1] = self->function;
    for (Py_ssize_t k = 0; k < all; k++) {
        call[k + 2] = given[k];
    }
    PyObject *result = PyObject_Vectorcall(core.ask_first, call, count + 2, names);
    if (call != few) {
        PyMem_Free(call);
    }
    return result;
}

PyObject *
call_python(StandIn *self, PyObject *const *given, size_t flagged, PyObject *names)
{
    return core.ask_first == NULL ? PyObject_Vectorcall(self->function, given, flagged, names)
                                  : ask_first(self, given, PyVectorcall_NARGS(flagged), names);
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
