/* StandIn: what passes for a Python function, with the usual case of it in C. The types that operations, their in-place
 * forms, rules and twins are made of are based on it: it gives them the function's attributes, and makes them methods of
 * the classes that they are attributes of.
 */
#include "core.h"

#include <structmember.h>

static PyObject *
stand_in_getattr(StandIn *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr((PyObject *)self, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        found = PyObject_GetAttr(self->function, name);
    }
    return found;
}

static int
stand_in_setattr(StandIn *self, PyObject *name, PyObject *value)
{
    return PyObject_SetAttr(self->function, name, value);
}

static PyObject *
stand_in_repr(StandIn *self)
{
    return PyObject_Repr(self->function);
}

static PyObject *
stand_in_reduce(StandIn *self, PyObject *nothing)
{
    return PyObject_GetAttrString(self->function, "__qualname__"); /* as functions are: by their name */
}

static PyObject *
stand_in_bind(PyObject *self, PyObject *instance, PyObject *type)
{
    return instance == NULL || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

/* An attribute of the function (a new reference), or what its attribute `make` returns: of what nobody asks for nothing is
 * made, which would take a fifth of the time of importing undertow. */
static PyObject *
made_when_asked(StandIn *self, const char *name, const char *make)
{
    PyObject *found = PyObject_GetAttrString(self->function, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    else if (found != Py_None) {
        return found;
    }
    PyObject *maker = PyObject_GetAttrString(self->function, make);
    if (maker == NULL) {
        PyErr_Clear();
        if (found == NULL) {
            PyErr_SetString(PyExc_AttributeError, name);
        }
        return found;
    }
    Py_XDECREF(found);
    found = PyObject_CallNoArgs(maker);
    Py_DECREF(maker);
    return found;
}

static PyObject *
stand_in_documentation(StandIn *self, void *closure)
{
    return made_when_asked(self, "__doc__", "make_documentation");
}

static PyObject *
stand_in_signature(StandIn *self, void *closure)
{
    return made_when_asked(self, "__signature__", "make_signature");
}

static PyObject *
stand_in_module(StandIn *self, void *closure)
{
    return PyObject_GetAttrString(self->function, "__module__");
}

/* unasked(...): the call of the function, without asking */
static PyObject *
stand_in_unasked(StandIn *self, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    return call_unasked(self, given, count, names);
}

/* What type and object have too, and what must be the function's. Every type names it again, because Python gives each
 * a `__doc__` of its own. */
PyGetSetDef stand_in_attributes[] = {{"__signature__", (getter)stand_in_signature},
                                     {"__doc__", (getter)stand_in_documentation},
                                     {"__module__", (getter)stand_in_module},
                                     {NULL}};

static PyMemberDef stand_in_members[] = {{"function", T_OBJECT, offsetof(StandIn, function), READONLY}, {NULL}};

/* show(name): let profiles show it by that name, with what it calls inside; show(None): no longer */
static PyObject *
stand_in_show(StandIn *self, PyObject *name)
{
    Py_XSETREF(self->shown, name == Py_None ? NULL : Py_NewRef(name));
    Py_RETURN_NONE;
}

static PyMethodDef stand_in_methods[] = {{"__reduce__", (PyCFunction)stand_in_reduce, METH_NOARGS},
                                         {"show", (PyCFunction)stand_in_show, METH_O},
                                         {"unasked", (PyCFunction)(void (*)(void))stand_in_unasked,
                                          METH_FASTCALL | METH_KEYWORDS},
                                         {NULL}};

int
stand_in_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((StandIn *)self)->function);
    Py_VISIT(((StandIn *)self)->shown);
    return 0;
}

int
stand_in_clear(PyObject *self)
{
    Py_CLEAR(((StandIn *)self)->function);
    Py_CLEAR(((StandIn *)self)->shown);
    return 0;
}

void
stand_in_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    if (((StandIn *)self)->weak_references != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    Py_TYPE(self)->tp_clear(self);
    Py_TYPE(self)->tp_free(self);
}

PyTypeObject StandIn_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.StandIn",
    .tp_basicsize = sizeof(StandIn),
    .tp_flags = STAND_IN_FLAGS | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = stand_in_dealloc,
    .tp_traverse = stand_in_traverse,
    .tp_clear = stand_in_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(StandIn, vectorcall),
    .tp_weaklistoffset = offsetof(StandIn, weak_references),
    .tp_descr_get = stand_in_bind,
    .tp_getattro = (getattrofunc)stand_in_getattr,
    .tp_setattro = (setattrofunc)stand_in_setattr,
    .tp_repr = (reprfunc)stand_in_repr,
    .tp_getset = stand_in_attributes,
    .tp_members = stand_in_members,
    .tp_methods = stand_in_methods,
};
