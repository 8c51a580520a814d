/* The plan of an operation (ops/declare/plans.py), read when it is first called. */
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

int
check_plan(PyObject *plan, Py_ssize_t size)
{
    if (!PyTuple_Check(plan) || PyTuple_GET_SIZE(plan) != size) {
        PyErr_SetString(PyExc_TypeError, "a plan has another form than the compiled core knows");
        return -1;
    }
    return 0;
}

/* How many items a tuple of a plan has, if that is not too many; -1 with an exception. */
static int
count_field(PyObject *plan, int place, int most)
{
    PyObject *items = FIELD(plan, place);
    if (!PyTuple_Check(items) || PyTuple_GET_SIZE(items) > most) {
        PyErr_SetString(PyExc_ValueError, "an operation has too many arguments, inputs or outputs");
        return -1;
    }
    return (int)PyTuple_GET_SIZE(items);
}

/* Where the node keeps inputs: a tuple of SavedInput. */
static int
read_saved(Form *form, PyObject *saved)
{
    for (int k = 0; k < form->saved_count; k++) {
        PyObject *plan = PyTuple_GET_ITEM(saved, k);
        Saved *item = &form->saved[k];
        if (check_plan(plan, SAVED_INPUT_SIZE) < 0) {
            return -1;
        }
        item->argument = int_field(plan, SAVED_INPUT_ARGUMENT);
        item->users = bits_field(plan, SAVED_INPUT_USERS);
        if (find_slot(form->node, FIELD(plan, SAVED_INPUT_SLOT), &item->slot) < 0 ||
            find_slot(form->node, FIELD(plan, SAVED_INPUT_VERSION), &item->version) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Where the node keeps outputs, a tuple of SavedOutput, and what all of several are. */
static int
read_outputs(Form *form, PyObject *outputs)
{
    for (int k = 0; k < form->output_count; k++) {
        PyObject *plan = PyTuple_GET_ITEM(outputs, k);
        SavedOutput *item = &form->outputs[k];
        if (check_plan(plan, SAVED_OUTPUT_SIZE) < 0) {
            return -1;
        }
        item->output = int_field(plan, SAVED_OUTPUT_OUTPUT);
        item->users = bits_field(plan, SAVED_OUTPUT_USERS);
        if (find_slot(form->node, FIELD(plan, SAVED_OUTPUT_SLOT), &item->slot) < 0) {
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

/* What the node keeps in `params`: a tuple of Value. */
static int
read_values(Form *form, PyObject *values)
{
    form->values = PyMem_Calloc(PyTuple_GET_SIZE(values) + 1, sizeof(Value));
    if (form->values == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(values); k++) {
        PyObject *plan = PyTuple_GET_ITEM(values, k);
        if (check_plan(plan, VALUE_SIZE) < 0) {
            return -1;
        }
        form->values[k].kind = int_field(plan, VALUE_KIND);
        form->values[k].argument = int_field(plan, VALUE_ARGUMENT);
        form->values[k].constant = Py_NewRef(FIELD(plan, VALUE_CONSTANT));
        form->value_count++;
    }
    return 0;
}

static int
read_form(Form *form, PyObject *plan)
{
    if (check_plan(plan, FORM_PLAN_SIZE) < 0) {
        return -1;
    }
    PyObject *node = FIELD(plan, FORM_PLAN_NODE), *edges = FIELD(plan, FORM_PLAN_EDGES);
    form->forward = expression_new(FIELD(plan, FORM_PLAN_FORWARD));
    form->node = node == Py_None ? NULL : (PyTypeObject *)Py_NewRef(node);
    form->taking_part = bits_field(plan, FORM_PLAN_TAKING_PART);
    form->policy = int_field(plan, FORM_PLAN_POLICY);
    form->settled = int_field(plan, FORM_PLAN_SETTLED);
    form->any_float = int_field(plan, FORM_PLAN_ANY_FLOAT);
    form->check_output = int_field(plan, FORM_PLAN_CHECK_OUTPUT);
    form->several = int_field(plan, FORM_PLAN_SEVERAL);
    form->constant = bits_field(plan, FORM_PLAN_CONSTANT);
    form->exact = bits_field(plan, FORM_PLAN_EXACT);
    form->order_count = count_field(plan, FORM_PLAN_ORDER, MOST_ORDERS);
    form->edge_count = count_field(plan, FORM_PLAN_EDGES, MOST_EDGES);
    form->saved_count = count_field(plan, FORM_PLAN_SAVED, MOST_EDGES);
    form->output_count = count_field(plan, FORM_PLAN_OUTPUTS, MOST_SAVED_OUTPUTS);
    if (form->forward == NULL || PyErr_Occurred()) {
        return -1;
    }
    if (form->node != NULL) {
        adopt_node_class(form->node);
    }
    for (int k = 0; k < form->edge_count; k++) {
        form->edges[k] = int_field(edges, k);
    }
    for (int k = 0; k < form->order_count; k++) {
        form->orders[k] = (char)int_field(FIELD(plan, FORM_PLAN_ORDER), k);
    }
    return read_saved(form, FIELD(plan, FORM_PLAN_SAVED)) < 0 ||
                   read_outputs(form, FIELD(plan, FORM_PLAN_OUTPUTS)) < 0 ||
                   read_values(form, FIELD(plan, FORM_PLAN_VALUES)) < 0 || PyErr_Occurred()
               ? -1
               : 0;
}

/* A form from its FormPlan; NULL with an exception. */
static Form *
form_new(PyObject *plan)
{
    Form *form = PyMem_Calloc(1, sizeof(Form));
    if (form == NULL) {
        PyErr_NoMemory();
    }
    else if (read_form(form, plan) < 0) {
        form_free(form);
        form = NULL;
    }
    return form;
}

/* Whether a form speaks only of arguments that there are. */
static int
is_within(const Form *form, int count)
{
    int reach = expression_reach(form->forward);
    for (int k = 0; k < form->edge_count; k++) {
        reach = form->edges[k] >= reach ? form->edges[k] + 1 : reach;
    }
    return reach <= count;
}

int
read_description(Operation *self, PyObject *plan)
{
    if (check_plan(plan, OPERATION_PLAN_SIZE) < 0) {
        return -1;
    }
    PyObject *names = FIELD(plan, OPERATION_PLAN_NAMES), *defaults = FIELD(plan, OPERATION_PLAN_DEFAULTS);
    PyObject *number_form = FIELD(plan, OPERATION_PLAN_NUMBER_FORM);
    int count = count_field(plan, OPERATION_PLAN_NAMES, MOST_ARGUMENTS);
    for (int k = 0; k < count; k++) {
        self->names[k] = Py_NewRef(PyTuple_GET_ITEM(names, k));
        PyObject *given = PyTuple_GET_ITEM(defaults, k); /* () or (default,) */
        self->defaults[k] = PyTuple_GET_SIZE(given) ? Py_NewRef(PyTuple_GET_ITEM(given, 0)) : NULL;
        self->inputs[k] = (char)int_field(FIELD(plan, OPERATION_PLAN_INPUTS), k);
    }
    self->positional = int_field(plan, OPERATION_PLAN_POSITIONAL);
    self->number = int_field(plan, OPERATION_PLAN_NUMBER);
    self->is_view = int_field(plan, OPERATION_PLAN_IS_VIEW);
    self->takes_narrow = int_field(plan, OPERATION_PLAN_TAKES_NARROW);
    self->elementwise = int_field(plan, OPERATION_PLAN_ELEMENTWISE);
    self->in_front = int_field(plan, OPERATION_PLAN_IN_FRONT);
    self->widens = int_field(plan, OPERATION_PLAN_WIDENS);
    self->count = count;
    if (count >= 0 && !PyErr_Occurred() && number_form != Py_None) {
        self->forms[1] = form_new(number_form);
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    Form *form = form_new(FIELD(plan, OPERATION_PLAN_FORM));
    if (form != NULL && !(is_within(form, count) && (self->forms[1] == NULL || is_within(self->forms[1], count)))) {
        PyErr_SetString(PyExc_ValueError, "a form of an operation speaks of more arguments than there are");
        form_free(form);
        form = NULL;
    }
    self->forms[0] = form; /* last: it says that the plan is made */
    return form == NULL ? -1 : 1;
}

int
has_device_plan(Operation *self)
{
    if (!self->asked_for_device) {
        self->asked_for_device = 1;
        PyObject *forms = core.device_forms == NULL ? NULL : PyObject_CallOneArg(core.device_forms, (PyObject *)self);
        if (forms == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
        for (int k = 0; k < 2 && PyTuple_Check(forms) && PyTuple_GET_SIZE(forms) == 2; k++) {
            PyObject *plan = PyTuple_GET_ITEM(forms, k);
            Form *form = plan == Py_None ? NULL : form_new(plan);
            if (form != NULL && !is_within(form, self->count)) {
                PyErr_SetString(PyExc_ValueError, "a form of an operation speaks of more arguments than there are");
                form_free(form);
                form = NULL;
            }
            self->device_forms[k] = form;
        }
        Py_DECREF(forms);
    }
    return PyErr_Occurred() ? -1 : self->device_forms[0] != NULL;
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
