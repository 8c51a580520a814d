/* Results that are views of their operand: what tensor/views.py notes of them. */
#include "call/operation.h"

/* attach_view for a source whose slots cannot be read. */
static int
attach_to_other(PyObject *result, PyObject *number, PyObject *source, PyObject *function, PyObject *arguments,
                PyObject *state)
{
    PyObject *nothing = PyObject_CallFunctionObjArgs(core.attach_view, result, source, function, arguments, state,
                                                     number, NULL);
    Py_XDECREF(nothing);
    Py_DECREF(arguments);
    return nothing == NULL ? -1 : 0;
}

/* The Extra of a new view (a new reference), or NULL with an exception. */
static PyObject *
extra_of_view(PyObject *base, PyObject *before, PyObject *function, PyObject *arguments, PyObject *number,
              PyObject *creation)
{
    PyObject *replay = core.Replay->tp_alloc(core.Replay, 0);
    PyObject *view = replay == NULL ? NULL : core.View->tp_alloc(core.View, 0);
    PyObject *made = view == NULL ? NULL : core.Extra->tp_alloc(core.Extra, 0);
    PyObject *version = made == NULL ? NULL : version_of(base);
    if (version == NULL) {
        Py_XDECREF(replay);
        Py_XDECREF(view);
        Py_XDECREF(made);
        return NULL;
    }
    SLOT(replay, core.r_before) = Py_NewRef(before);
    SLOT(replay, core.r_function) = Py_NewRef(function);
    SLOT(replay, core.r_arguments) = Py_NewRef(arguments);
    SLOT(replay, core.r_output) = Py_NewRef(number);
    SLOT(view, core.v_base) = Py_NewRef(base);
    SLOT(view, core.v_replay) = replay;
    SLOT(view, core.v_creation) = Py_NewRef(creation);
    SLOT(view, core.v_version) = version;
    SLOT(made, core.e_view) = view;
    SLOT(made, core.e_counter) = Py_NewRef(Py_None);
    SLOT(made, core.e_accumulate) = Py_NewRef(Py_None);
    SLOT(made, core.e_used_by) = Py_NewRef(Py_None);
    SLOT(made, core.e_grad) = Py_NewRef(Py_None);
    SLOT(made, core.e_rare) = Py_NewRef(Py_None);
    return made;
}

int
attach_view(PyObject *result, PyObject *number, PyObject *source, PyObject *function, PyObject *arguments,
            PyObject *state)
{
    PyObject *extra = SLOT(source, core.t_extra), *base = source, *before = NULL, *creation = core.DEFAULT;
    if (arguments == NULL) {
        return -1;
    }
    if (extra == Py_None || SLOT(extra, core.e_view) == Py_None) {
        if (extra != Py_None && SLOT(extra, core.e_counter) == core.NO_COUNTER) {
            PyObject *nothing = PyObject_CallOneArg(core.share_inference, result);
            Py_XDECREF(nothing);
            Py_DECREF(arguments);
            return nothing == NULL ? -1 : 0;
        }
        before = Py_NewRef(Py_None);
    }
    else {
        PyObject *view = readable_view(extra);
        base = view == NULL ? NULL : SLOT(view, core.v_base);
        if (base == NULL || !is_tensor(base) || SLOT(view, core.v_creation) == NULL || SLOT(view, core.v_replay) == NULL) {
            return attach_to_other(result, number, source, function, arguments, state);
        }
        creation = SLOT(view, core.v_creation);
        PyObject *of_base = SLOT(base, core.t_extra);
        if (of_base == Py_None || SLOT(of_base, core.e_rare) == Py_None) {
            before = Py_NewRef(SLOT(view, core.v_replay));
        }
        else {
            before = PyObject_CallOneArg(core.current_replay, source);
        }
    }
    if (SLOT(state, core.s_inference) == Py_True) {
        creation = core.INFERENCE;
    }
    else if (SLOT(state, core.s_grad_enabled) != Py_True) {
        creation = core.NO_GRAD;
    }
    else if (number != Py_None) {
        creation = core.MULTIPLE_OUTPUTS;
    }
    PyObject *made = before == NULL ? NULL : extra_of_view(base, before, function, arguments, number, creation);
    Py_XDECREF(before);
    Py_DECREF(arguments);
    if (made == NULL) {
        return -1;
    }
    set_slot(result, core.t_extra, made);
    return 0;
}

PyObject *
view_arguments(const Operation *self, PyObject *const *arguments)
{
    PyObject *found = PyTuple_New(self->count - 1); /* all but the tensor, which is the first */
    for (int k = 1; found != NULL && k < self->count; k++) {
        PyTuple_SET_ITEM(found, k - 1, Py_NewRef(arguments[k]));
    }
    return found;
}
