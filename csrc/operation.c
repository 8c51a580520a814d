/* Operation: the function of an operation (ops/templates.py), with its usual case in C.
 *
 * The usual case: tensors on the CPU whose dtypes need no promotion, and no interceptor. Everything else goes to the
 * Python function, which an Operation passes for (its attributes are that one's).
 */
#include "core.h"

#define MOST_ARGUMENTS 12

enum value_kind { ITSELF, SHAPE, DTYPE, FIXED };

typedef struct {
    int argument;
    Py_ssize_t slot, version; /* where the node keeps the tensor and its version */
    unsigned users;           /* the edges (as bits) whose rules need it */
} Saved;

typedef struct {
    enum value_kind kind;
    int argument;
    PyObject *constant;
} Value;

/* One compiled form of an operation: that for tensors, or that for a Python number in the place of one. */
typedef struct {
    Expression *forward;
    PyTypeObject *node; /* NULL: not differentiable */
    unsigned dtypes;    /* the arguments (as bits) whose dtypes must be equal */
    int first;          /* the argument that the dtype of the result is compared with; -1: it is not */
    int any_float;      /* whether a result of another dtype is right if that one is a float's */
    int check_output;
    int edge_count, saved_count, value_count;
    int edges[MOST_EDGES]; /* the arguments; -1: always None */
    Saved saved[MOST_EDGES];
    Py_ssize_t saved_out; /* the slot, or 0 */
    unsigned out_users;
    Value *values;
} Form;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function; /* Python's */
    PyObject *plan;     /* a function that describes the forms (see ops/compiled.py), until it has been called */
    PyObject *weak_references;
    int count, positional; /* arguments; those that may be given by position */
    int is_view, elementwise;
    int number;            /* the argument that may be a number; -1: none */
    PyObject *names[MOST_ARGUMENTS], *defaults[MOST_ARGUMENTS];
    char inputs[MOST_ARGUMENTS]; /* 1: a tensor, 2: a tensor or None */
    Form *forms[2];
} Operation;

/* ---- reading the plan */

static Py_ssize_t
offset_of(PyTypeObject *type, PyObject *name)
{
    PyObject *found = PyObject_GetAttr((PyObject *)type, name);
    if (found == NULL) {
        return 0;
    }
    Py_ssize_t offset = 0;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        offset = ((PyMemberDescrObject *)found)->d_member->offset;
    }
    else {
        PyErr_Format(PyExc_TypeError, "%U of %s is no slot", name, type->tp_name);
    }
    Py_DECREF(found);
    return offset;
}

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
        item->slot = offset_of(form->node, slot);
        item->version = offset_of(form->node, version);
    }
    if (saved_out != Py_None) {
        form->saved_out = offset_of(form->node, saved_out);
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

/* ---- where in the program */

#define REMEMBERED 64

/* Whether a code object is undertow's own: the answers of the set of ids, which only grows. */
static int
is_internal(PyCodeObject *code)
{
    static struct {
        PyCodeObject *code;
        char answer;
    } answers[REMEMBERED];
    static Py_ssize_t size; /* of the set, when the answers were given */
    if (PySet_GET_SIZE(core.internal) != size) {
        memset(answers, 0, sizeof(answers));
        size = PySet_GET_SIZE(core.internal);
    }
    size_t place = ((size_t)code >> 5) % REMEMBERED;
    if (answers[place].code != code) {
        PyObject *id = PyLong_FromVoidPtr(code);
        if (id == NULL) {
            PyErr_Clear();
            return 0;
        }
        answers[place].answer = PySet_Contains(core.internal, id) == 1;
        answers[place].code = code;
        Py_DECREF(id);
    }
    return answers[place].answer;
}

/* Note in a node which line of the user's program made it: code and instruction of the nearest frame that is not
 * undertow's own. See graph/sites.py. */
static int
take_site(PyObject *node)
{
    PyFrameObject *frame = core.sites ? PyEval_GetFrame() : NULL;
    PyCodeObject *code = NULL;
    int lasti = 0;
    Py_XINCREF(frame);
    while (frame != NULL) {
        code = PyFrame_GetCode(frame);
        lasti = PyFrame_GetLasti(frame);
        PyFrameObject *back = is_internal(code) ? PyFrame_GetBack(frame) : NULL;
        Py_DECREF(frame);
        frame = back;
        if (frame != NULL) {
            Py_DECREF(code);
        }
    }
    SLOT(node, core.n_code) = code == NULL ? Py_NewRef(Py_None) : (PyObject *)code;
    SLOT(node, core.n_lasti) = PyLong_FromLong(lasti);
    return SLOT(node, core.n_lasti) == NULL ? -1 : 0;
}

/* ---- recording */

/* The edge that an operation on the tensor records, a new reference. */
static inline PyObject *
edge_of(PyObject *tensor)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    if (extra != Py_None && SLOT(extra, core.e_view) != Py_None) {
        return PyObject_CallOneArg(core.current_edge, tensor);
    }
    return Py_NewRef(SLOT(tensor, core.t_edge));
}

/* What stands in the node's edges for a leaf: its AccumulateGrad node, or the leaf itself. See Note [Edges to leaves]. */
static PyObject *
leaf_stands(PyObject *leaf, PyObject *node)
{
    PyObject *extra = SLOT(leaf, core.t_extra), *found;
    if (extra == Py_None) {
        extra = PyObject_CallOneArg(core.extra_of, leaf);
        if (extra == NULL) {
            return NULL;
        }
        Py_DECREF(extra); /* the leaf keeps it */
    }
    PyObject *reference = SLOT(extra, core.e_accumulate);
    if (reference != Py_None && (found = referent(reference)) != NULL) {
        return found;
    }
    reference = SLOT(extra, core.e_used_by);
    PyObject *user = reference == Py_None ? NULL : referent(reference);
    if (user != NULL && user != node) {
        Py_DECREF(user);
        return PyObject_CallOneArg(core.leaf_edge, leaf);
    }
    Py_XDECREF(user);
    if (user == NULL) {
        reference = PyWeakref_NewRef(node, NULL);
        if (reference == NULL) {
            return NULL;
        }
        set_slot(extra, core.e_used_by, reference);
    }
    return Py_NewRef(leaf);
}

static inline PyObject *
shape_of(PyArrayObject *array)
{
    return PyArray_IntTupleFromIntp(PyArray_NDIM(array), PyArray_DIMS(array));
}

/* The version of a tensor, a new reference. See version_of in tensor/tensor.py. */
static PyObject *
version_of(PyObject *tensor)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    if (extra == Py_None || (SLOT(extra, core.e_counter) == Py_None && SLOT(extra, core.e_view) == Py_None)) {
        return PyLong_FromLong(0);
    }
    return PyObject_CallOneArg(core.version_of, tensor);
}

static PyObject *
params_of(const Form *form, PyObject *const *values, PyObject *const *arguments)
{
    PyObject *params = PyTuple_New(form->value_count);
    for (int k = 0; params != NULL && k < form->value_count; k++) {
        const Value *value = &form->values[k];
        PyObject *found;
        PyObject *argument = value->kind == FIXED ? NULL : arguments[value->argument];
        if (value->kind == FIXED) {
            found = Py_NewRef(value->constant);
        }
        else if (value->kind == ITSELF || argument == Py_None) {
            found = Py_NewRef(argument);
        }
        else if (value->kind == SHAPE) {
            found = shape_of((PyArrayObject *)argument);
        }
        else { /* of the tensor, not of what was made of it */
            found = Py_NewRef(PyArray_DESCR((PyArrayObject *)SLOT(values[value->argument], core.t_array)));
        }
        if (found == NULL) {
            Py_CLEAR(params);
        }
        else {
            PyTuple_SET_ITEM(params, k, found);
        }
    }
    return params;
}

/* The node of the operation. `edges` (new references) are taken over. */
static PyObject *
new_node(const Form *form, PyObject *state, PyObject *const *values, PyObject *const *arguments, PyObject *out,
         PyObject **edges, unsigned wanted)
{
    int standing = 0;
    PyObject *node = form->node->tp_alloc(form->node, 0);
    for (int k = 0; k < form->edge_count; k++) {
        if (node != NULL && edges[k] == core.LEAF) {
            PyObject *tensor = values[form->edges[k]];
            Py_DECREF(edges[k]);
            edges[k] = leaf_stands(tensor, node);
            standing |= edges[k] == tensor;
        }
        if (edges[k] == NULL) {
            edges[k] = Py_NewRef(Py_None);
            Py_CLEAR(node);
        }
    }
    PyObject *recorded = standing ? PyList_New(form->edge_count) : PyTuple_New(form->edge_count);
    for (int k = 0; k < form->edge_count; k++) {
        if (recorded == NULL) {
            Py_DECREF(edges[k]);
        }
        else if (standing) {
            PyList_SET_ITEM(recorded, k, edges[k]);
        }
        else {
            PyTuple_SET_ITEM(recorded, k, edges[k]);
        }
    }
    if (node == NULL || recorded == NULL) {
        Py_XDECREF(recorded);
        Py_XDECREF(node);
        return NULL;
    }
    SLOT(node, core.n_recorded_edges) = recorded;
    SLOT(node, core.n_sequence_nr) = Py_TYPE(core.sequence)->tp_iternext(core.sequence);
    SLOT(node, core.n_extra) = Py_NewRef(Py_None);
    SLOT(node, core.n_shape) = shape_of((PyArrayObject *)out);
    SLOT(node, core.n_dtype) = Py_NewRef(PyArray_DESCR((PyArrayObject *)out));
    SLOT(node, core.n_params) = params_of(form, values, arguments);
    for (int k = 0; k < form->saved_count; k++) {
        const Saved *saved = &form->saved[k];
        PyObject *tensor = values[saved->argument];
        if (tensor == Py_None || !(saved->users & wanted)) {
            SLOT(node, saved->slot) = Py_NewRef(Py_None);
        }
        else {
            SLOT(node, saved->slot) = Py_NewRef(tensor);
            SLOT(node, saved->version) = version_of(tensor);
            if (SLOT(node, saved->version) == NULL) {
                goto failed;
            }
        }
    }
    if (form->saved_out) {
        SLOT(node, form->saved_out) = Py_NewRef(form->out_users & wanted ? out : Py_None);
    }
    if (SLOT(node, core.n_sequence_nr) == NULL || SLOT(node, core.n_shape) == NULL ||
        SLOT(node, core.n_params) == NULL || take_site(node) < 0) {
        goto failed;
    }
    PyObject *record = SLOT(state, core.s_record);
    if (record != Py_None) {
        PyObject *nothing = PyObject_CallFunctionObjArgs(record, node, state, NULL);
        if (nothing == NULL) {
            goto failed;
        }
        Py_DECREF(nothing);
    }
    return node;
failed:
    Py_DECREF(node);
    return NULL;
}

/* ---- views */

/* Mark a result as a view of the source, as attach_view in tensor/views.py does; `arguments` is taken over. */
static int
attach_view(PyObject *result, PyObject *source, PyObject *function, PyObject *arguments, PyObject *state)
{
    PyObject *extra = SLOT(source, core.t_extra), *base = source, *before = NULL, *creation = core.DEFAULT;
    int status = -1;
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
        PyObject *view = SLOT(extra, core.e_view);
        base = SLOT(view, core.v_base);
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
    PyObject *replay = core.Replay->tp_alloc(core.Replay, 0);
    PyObject *view = core.View->tp_alloc(core.View, 0);
    PyObject *made = core.Extra->tp_alloc(core.Extra, 0);
    PyObject *version = version_of(base);
    if (before != NULL && replay != NULL && view != NULL && made != NULL && version != NULL) {
        SLOT(replay, core.r_before) = Py_NewRef(before);
        SLOT(replay, core.r_function) = Py_NewRef(function);
        SLOT(replay, core.r_arguments) = Py_NewRef(arguments);
        SLOT(replay, core.r_output) = Py_NewRef(Py_None);
        SLOT(view, core.v_base) = Py_NewRef(base);
        SLOT(view, core.v_replay) = Py_NewRef(replay);
        SLOT(view, core.v_creation) = Py_NewRef(creation);
        SLOT(view, core.v_version) = Py_NewRef(version);
        SLOT(made, core.e_view) = Py_NewRef(view);
        SLOT(made, core.e_counter) = Py_NewRef(Py_None);
        SLOT(made, core.e_accumulate) = Py_NewRef(Py_None);
        SLOT(made, core.e_used_by) = Py_NewRef(Py_None);
        SLOT(made, core.e_grad) = Py_NewRef(Py_None);
        SLOT(made, core.e_rare) = Py_NewRef(Py_None);
        set_slot(result, core.t_extra, Py_NewRef(made));
        status = 0;
    }
    Py_XDECREF(before);
    Py_XDECREF(replay);
    Py_XDECREF(view);
    Py_XDECREF(made);
    Py_XDECREF(version);
    Py_DECREF(arguments);
    return status;
}

static PyObject *
view_arguments(const Operation *self, PyObject *const *arguments)
{
    PyObject *found = PyTuple_New(self->count - 1); /* all but the tensor, which is the first */
    for (int k = 1; found != NULL && k < self->count; k++) {
        PyTuple_SET_ITEM(found, k - 1, Py_NewRef(arguments[k]));
    }
    return found;
}

/* ---- calling */

/* The tensor for an array (taken over) that the operation has computed. */
static PyObject *
finish(Operation *self, const Form *form, PyObject *state, PyObject *const *values, PyObject *const *arguments,
       PyObject *out)
{
    PyObject *edges[MOST_EDGES], *result;
    PyObject *extra = SLOT(state, core.s_extra);
    unsigned wanted = 0;
    int count = 0;
    if (form->node != NULL && SLOT(state, core.s_grad_enabled) == Py_True) {
        extra = Py_None;
        for (; count < form->edge_count; count++) {
            PyObject *tensor = form->edges[count] < 0 ? Py_None : values[form->edges[count]];
            edges[count] = tensor == Py_None ? Py_NewRef(Py_None) : edge_of(tensor);
            if (edges[count] == NULL) {
                goto failed;
            }
            wanted |= (edges[count] != Py_None) << count;
        }
        if (form->check_output && !PyArray_ISFLOAT((PyArrayObject *)out) &&
            !PyArray_ISCOMPLEX((PyArrayObject *)out)) {
            wanted = 0;
        }
    }
    if (wanted) {
        PyObject *node = new_node(form, state, values, arguments, out, edges, wanted);
        count = 0;
        if (node == NULL) {
            goto failed;
        }
        result = new_tensor(out, node, Py_None);
        Py_DECREF(node);
    }
    else {
        while (count > 0) {
            Py_DECREF(edges[--count]);
        }
        result = new_tensor(out, Py_None, extra);
    }
    if (result != NULL && self->is_view &&
        attach_view(result, values[0], (PyObject *)self, view_arguments(self, arguments), state) < 0) {
        Py_CLEAR(result);
    }
    return result;
failed:
    while (count > 0) {
        Py_DECREF(edges[--count]);
    }
    Py_DECREF(out);
    return NULL;
}

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
    return finish(self, form, state, values, arguments, out);
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
operation_bind(PyObject *self, PyObject *instance, PyObject *type)
{
    return instance == NULL || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

static PyObject *
operation_getattr(Operation *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr((PyObject *)self, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        found = PyObject_GetAttr(self->function, name);
    }
    return found;
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
    .tp_descr_get = operation_bind,
    .tp_getattro = (getattrofunc)operation_getattr,
    .tp_setattro = (setattrofunc)operation_setattr,
    .tp_repr = (reprfunc)operation_repr,
    .tp_getset = operation_attributes,
    .tp_members = operation_members,
    .tp_methods = operation_methods,
};
