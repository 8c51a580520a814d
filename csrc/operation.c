/* Operation: the function of an operation (ops/templates.py), with its usual case in C.
 *
 * The usual case: tensors on the CPU whose dtypes need no promotion, and no interceptor. Everything else goes to the
 * Python function, which an Operation passes for (its attributes are that one's).
 */
#include "operation.h"

/* ---- reading the plan */

static void
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

/* A form from its description, the tuple of ops/compiled.py's `form`. */
static Form *
form_new(PyObject *description)
{
    PyObject *forward, *node, *edges, *saved, *values, *saved_out;
    Form *form = PyMem_Calloc(1, sizeof(Form));
    if (form == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (!PyArg_ParseTuple(description, "OOIiiiO!O!O!OI", &forward, &node, &form->dtypes, &form->first,
                          &form->any_float, &form->check_output, &PyTuple_Type, &edges, &PyTuple_Type, &saved,
                          &PyTuple_Type, &values, &saved_out, &form->out_users)) {
        goto failed;
    }
    form->forward = expression_new(forward);
    if (form->forward == NULL) {
        goto failed;
    }
    form->node = node == Py_None ? NULL : (PyTypeObject *)Py_NewRef(node);
    form->edge_count = (int)PyTuple_GET_SIZE(edges);
    form->saved_count = (int)PyTuple_GET_SIZE(saved);
    if (form->edge_count > MOST_EDGES || form->saved_count > MOST_EDGES) {
        PyErr_SetString(PyExc_ValueError, "an operation has too many inputs");
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
    if (saved_out != Py_None && find_slot(form->node, saved_out, &form->saved_out) < 0) {
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

/* Ask for the plan; 0 if there is none. A thread that comes second finds it made, or leaves it to Python. */
static int
make_plan(Operation *self)
{
    PyObject *plan = self->plan, *names, *defaults, *inputs, *form, *number_form;
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
    Py_DECREF(description);
    return PyErr_Occurred() ? -1 : ok;
}

/* ---- calling */

/* Put what the function was called with in the order of its arguments; whether that can be done here. */
static int
bind_arguments(const Operation *self, PyObject *const *given, Py_ssize_t count, PyObject *names, PyObject **values)
{
    if (count > self->positional) {
        return 0;
    }
    memcpy(values, given, count * sizeof(PyObject *));
    memset(values + count, 0, (self->count - count) * sizeof(PyObject *));
    for (Py_ssize_t k = 0; names != NULL && k < PyTuple_GET_SIZE(names); k++) {
        PyObject *name = PyTuple_GET_ITEM(names, k);
        int place = 0;
        while (place < self->count && self->names[place] != name) { /* both are interned */
            place++;
        }
        if (place == self->count || values[place] != NULL) {
            return 0;
        }
        values[place] = given[count + k];
    }
    for (int k = 0; k < self->count; k++) {
        if (values[k] == NULL) {
            values[k] = self->defaults[k];
            if (values[k] == NULL) {
                return 0;
            }
        }
    }
    return 1;
}

/* The arrays of the tensors, and everything else as it is; whether the form can compute with them. */
static int
find_arrays(const Operation *self, const Form *form, int number, PyObject *const *values, PyObject **arguments)
{
    PyArray_Descr *dtype = NULL;
    for (int k = 0; k < self->count; k++) {
        PyObject *value = arguments[k] = values[k];
        if (!self->inputs[k] || k == number || (self->inputs[k] == 2 && value == Py_None)) {
            continue;
        }
        if (!is_tensor(value) || SLOT(value, core.t_xp) != core.cpu) {
            return 0;
        }
        arguments[k] = SLOT(value, core.t_array);
        if (!PyArray_CheckExact(arguments[k])) {
            return 0;
        }
        if (form->dtypes >> k & 1) {
            PyArray_Descr *own = PyArray_DESCR((PyArrayObject *)arguments[k]);
            if (dtype != NULL && own != dtype) {
                return 0;
            }
            dtype = own;
        }
    }
    return 1;
}

PyObject *
as_cpu_array(PyObject *value)
{
    if (PyArray_CheckExact(value)) {
        return value;
    }
    PyObject *array;
    if (PyArray_CheckScalar(value)) {
        array = PyArray_FromScalar(value, NULL);
    }
    else {
        PyObject *asarray = PyObject_GetAttrString(core.cpu, "asarray"); /* looked up: sparse arrays change it */
        array = asarray == NULL ? NULL : PyObject_CallOneArg(asarray, value);
        Py_XDECREF(asarray);
    }
    Py_DECREF(value);
    return array;
}

/* Whether the result has the dtype that it should: otherwise Python converts the operands and computes it anew. */
static int
dtype_is_right(const Form *form, PyObject *const *arguments, PyObject *out)
{
    if (form->first < 0) {
        return 1;
    }
    PyArrayObject *first = (PyArrayObject *)arguments[form->first];
    return PyArray_DESCR((PyArrayObject *)out) == PyArray_DESCR(first) ||
           (form->any_float && (PyArray_ISFLOAT(first) || PyArray_ISCOMPLEX(first)));
}

/* The result of a form for these values; NULL without an exception: Python has to compute it. */
static PyObject *
compute(Operation *self, const Form *form, PyObject *state, PyObject *const *values, PyObject *const *arguments)
{
    PyObject *out = expression_value(form->forward, arguments);
    if (out != NULL) {
        out = as_cpu_array(out);
    }
    if (out == NULL) {
        if (self->elementwise &&
            (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
             PyErr_ExceptionMatches(PyExc_OverflowError))) {
            PyErr_Clear(); /* Python meets the same error, and explains it */
        }
        return NULL;
    }
    if (!PyArray_CheckExact(out) || !dtype_is_right(form, arguments, out)) {
        Py_DECREF(out);
        return NULL;
    }
    return record_result(self, form, state, values, arguments, out);
}

static PyObject *
operation_call(PyObject *callable, PyObject *const *given, size_t flagged, PyObject *names)
{
    Operation *self = (Operation *)callable;
    PyObject *values[MOST_ARGUMENTS], *arguments[MOST_ARGUMENTS], *state = NULL;
    if (self->forms[0] == NULL) {
        int made = make_plan(self);
        if (made < 0) {
            return NULL;
        }
        if (!made) {
            goto python;
        }
    }
    if (!bind_arguments(self, given, PyVectorcall_NARGS(flagged), names, values) ||
        PyContextVar_Get(core.state_variable, NULL, &state) < 0) {
        goto python;
    }
    if (SLOT(state, core.s_intercept) != Py_None) {
        goto python;
    }
    int is_number = self->number >= 0 && (PyFloat_CheckExact(values[self->number]) ||
                                          PyLong_CheckExact(values[self->number]));
    const Form *form = self->forms[is_number];
    if (form == NULL || !find_arrays(self, form, is_number ? self->number : -1, values, arguments)) {
        goto python;
    }
    for (int k = 0; k < self->count; k++) { /* a tensor may be given another array while we compute with this one */
        Py_INCREF(arguments[k]);
    }
    PyObject *result = compute(self, form, state, values, arguments);
    for (int k = 0; k < self->count; k++) {
        Py_DECREF(arguments[k]);
    }
    if (result != NULL || PyErr_Occurred()) {
        Py_DECREF(state);
        return result;
    }
python:
    Py_XDECREF(state);
    return PyObject_Vectorcall(self->function, given, flagged, names);
}

/* ---- the type */

static PyObject *
operation_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "plan", NULL};
    PyObject *function, *plan;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", keywords, &function, &plan)) {
        return NULL;
    }
    Operation *self = (Operation *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = operation_call;
        self->function = Py_NewRef(function);
        self->plan = Py_NewRef(plan);
        self->number = -1;
    }
    return (PyObject *)self;
}

static int
operation_traverse(Operation *self, visitproc visit, void *arg)
{
    Py_VISIT(self->function);
    Py_VISIT(self->plan);
    for (int k = 0; k < MOST_ARGUMENTS; k++) {
        Py_VISIT(self->defaults[k]);
    }
    return 0; /* what the forms refer to lives as long as the process */
}

static int
operation_clear(Operation *self)
{
    Py_CLEAR(self->function);
    Py_CLEAR(self->plan);
    return 0;
}

static void
operation_dealloc(Operation *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weak_references != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    operation_clear(self);
    for (int k = 0; k < MOST_ARGUMENTS; k++) {
        Py_XDECREF(self->names[k]);
        Py_XDECREF(self->defaults[k]);
    }
    form_free(self->forms[0]);
    form_free(self->forms[1]);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *
operation_getattr(Operation *self, PyObject *name)
{
    return attribute_of((PyObject *)self, self->function, name);
}

static int
operation_setattr(Operation *self, PyObject *name, PyObject *value)
{
    return PyObject_SetAttr(self->function, name, value);
}

static PyObject *
operation_repr(Operation *self)
{
    return PyObject_Repr(self->function);
}

static PyObject *
operation_reduce(Operation *self, PyObject *nothing)
{
    return PyObject_GetAttrString(self->function, "__qualname__"); /* as functions are: by their name */
}

/* What type and object have too, and what must be the function's. */
static PyObject *
operation_documentation(Operation *self, void *closure)
{
    return PyObject_GetAttrString(self->function, "__doc__");
}

static PyObject *
operation_module(Operation *self, void *closure)
{
    return PyObject_GetAttrString(self->function, "__module__");
}

static PyGetSetDef operation_attributes[] = {{"__doc__", (getter)operation_documentation},
                                             {"__module__", (getter)operation_module},
                                             {NULL}};

static PyMemberDef operation_members[] = {{"function", T_OBJECT, offsetof(Operation, function), READONLY}, {NULL}};

static PyMethodDef operation_methods[] = {{"__reduce__", (PyCFunction)operation_reduce, METH_NOARGS}, {NULL}};

PyTypeObject Operation_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Operation",
    .tp_basicsize = sizeof(Operation),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = operation_new,
    .tp_dealloc = (destructor)operation_dealloc,
    .tp_traverse = (traverseproc)operation_traverse,
    .tp_clear = (inquiry)operation_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Operation, vectorcall),
    .tp_weaklistoffset = offsetof(Operation, weak_references),
    .tp_descr_get = bind_method,
    .tp_getattro = (getattrofunc)operation_getattr,
    .tp_setattro = (setattrofunc)operation_setattr,
    .tp_repr = (reprfunc)operation_repr,
    .tp_getset = operation_attributes,
    .tp_members = operation_members,
    .tp_methods = operation_methods,
};
