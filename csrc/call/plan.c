/* The plan of an operation: what ops/declare/core_plan.py says of its arguments and forms, read when it is first called.
 */
#include "call/operation.h"

void
form_free(Form *form)
{
    if (form != NULL) {
        expression_free(form->forward);
        Py_XDECREF(form->node);
        for (int k = 0; k < form->value_count; k++) {
            Py_XDECREF(form->values[k].constant);
        }
        PyMem_Free(form->values);
        PyMem_Free(form);
    }
}

/* Where the node keeps outputs, and what all of several are. */
static int
read_outputs(Form *form, PyObject *outputs)
{
    for (int k = 0; k < form->output_count; k++) {
        SavedOutput *item = &form->outputs[k];
        PyObject *slot;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(outputs, k), "iUI", &item->output, &slot, &item->users) ||
            find_slot(form->node, slot, &item->slot) < 0) {
            return -1;
        }
    }
    if (!form->several || form->node == NULL) {
        return 0;
    }
    PyObject *shapes = PyUnicode_FromString("_shapes"), *dtypes = PyUnicode_FromString("_dtypes");
    int status = shapes == NULL || dtypes == NULL || find_slot(form->node, shapes, &form->shapes) < 0 ||
                 find_slot(form->node, dtypes, &form->their_dtypes) < 0;
    Py_XDECREF(shapes);
    Py_XDECREF(dtypes);
    return status ? -1 : 0;
}

/* A form from its description, the tuple of ops/declare/core_plan.py's `form`. */
static Form *
form_new(PyObject *description)
{
    PyObject *forward, *node, *edges, *saved, *values, *outputs;
    int policy;
    Form *form = PyMem_Calloc(1, sizeof(Form));
    if (form == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (!PyArg_ParseTuple(description, "OOIiiiO!O!O!O!iIi", &forward, &node, &form->dtypes, &form->first,
                          &form->any_float, &form->check_output, &PyTuple_Type, &edges, &PyTuple_Type, &saved,
                          &PyTuple_Type, &values, &PyTuple_Type, &outputs, &form->several, &form->constant,
                          &policy)) {
        goto failed;
    }
    form->policy = policy;
    form->forward = expression_new(forward);
    if (form->forward == NULL) {
        goto failed;
    }
    form->node = node == Py_None ? NULL : (PyTypeObject *)Py_NewRef(node);
    form->edge_count = (int)PyTuple_GET_SIZE(edges);
    form->saved_count = (int)PyTuple_GET_SIZE(saved);
    form->output_count = (int)PyTuple_GET_SIZE(outputs);
    if (form->edge_count > MOST_EDGES || form->saved_count > MOST_EDGES || form->output_count > MOST_SAVED_OUTPUTS) {
        PyErr_SetString(PyExc_ValueError, "an operation has too many inputs or outputs");
        goto failed;
    }
    for (int k = 0; k < form->edge_count; k++) {
        form->edges[k] = (int)PyLong_AsLong(PyTuple_GET_ITEM(edges, k));
    }
    for (int k = 0; k < form->saved_count; k++) {
        PyObject *slot, *version;
        Saved *item = &form->saved[k];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(saved, k), "iUUI", &item->argument, &slot, &version, &item->users)) {
            goto failed;
        }
        if (find_slot(form->node, slot, &item->slot) < 0 || find_slot(form->node, version, &item->version) < 0) {
            goto failed;
        }
    }
    if (read_outputs(form, outputs) < 0) {
        goto failed;
    }
    form->values = PyMem_Calloc(PyTuple_GET_SIZE(values) + 1, sizeof(Value));
    if (form->values == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    form->value_count = (int)PyTuple_GET_SIZE(values);
    for (int k = 0; k < form->value_count; k++) {
        Value *value = &form->values[k];
        int kind;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(values, k), "iiO", &kind, &value->argument, &value->constant)) {
            value->constant = NULL;
            goto failed;
        }
        value->kind = kind;
        Py_INCREF(value->constant);
    }
    if (!PyErr_Occurred()) {
        return form;
    }
failed:
    form_free(form);
    return NULL;
}

/* Whether the forms speak only of arguments that there are. */
static int
are_within(const Operation *self)
{
    for (int f = 0; f < 2; f++) {
        const Form *form = self->forms[f];
        int reach = form == NULL ? 0 : expression_reach(form->forward);
        for (int k = 0; form != NULL && k < form->edge_count; k++) {
            reach = form->edges[k] >= reach ? form->edges[k] + 1 : reach;
        }
        if (reach > self->count) {
            return 0;
        }
    }
    return 1;
}

int
read_description(Operation *self, PyObject *description)
{
    PyObject *names, *defaults, *inputs, *form, *number_form;
    int ok = PyArg_ParseTuple(description, "O!O!O!iiiiOO", &PyTuple_Type, &names, &PyTuple_Type, &defaults,
                              &PyTuple_Type, &inputs, &self->positional, &self->number, &self->is_view,
                              &self->elementwise, &form, &number_form) &&
             PyTuple_GET_SIZE(names) <= MOST_ARGUMENTS;
    for (Py_ssize_t k = 0; ok && k < PyTuple_GET_SIZE(names); k++) {
        self->names[k] = Py_NewRef(PyTuple_GET_ITEM(names, k));
        PyObject *given = PyTuple_GET_ITEM(defaults, k); /* () or (default,) */
        self->defaults[k] = PyTuple_GET_SIZE(given) ? Py_NewRef(PyTuple_GET_ITEM(given, 0)) : NULL;
        self->inputs[k] = (char)PyLong_AsLong(PyTuple_GET_ITEM(inputs, k));
    }
    if (ok) {
        self->count = (int)PyTuple_GET_SIZE(names);
        if (number_form != Py_None) {
            self->forms[1] = form_new(number_form);
        }
        self->forms[0] = PyErr_Occurred() ? NULL : form_new(form); /* last: it says that the plan is made */
    }
    if (ok && !PyErr_Occurred() && !are_within(self)) {
        PyErr_SetString(PyExc_ValueError, "a form of an operation speaks of more arguments than there are");
        form_free(self->forms[0]);
        self->forms[0] = NULL;
    }
    return PyErr_Occurred() ? -1 : ok;
}

/* Ask for the plan; 0 if there is none. A thread that comes second finds it made, or leaves it to Python. */
static int
make_plan(Operation *self)
{
    PyObject *plan = self->plan;
    if (plan == NULL) {
        return 0;
    }
    self->plan = NULL;
    PyObject *description = PyObject_CallNoArgs(plan);
    Py_DECREF(plan);
    if (description == NULL) {
        return -1;
    }
    if (description == Py_None) {
        Py_DECREF(description);
        return 0;
    }
    int made = self->read(self, description);
    Py_DECREF(description);
    return made;
}

int
has_plan(Operation *self)
{
    return self->forms[0] != NULL ? 1 : make_plan(self);
}
