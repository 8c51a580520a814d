/* Recording an operation: its node, the line of the program that it stands for, and its result, which may be a view.
 *
 * What write_recording of ops/templates.py writes for each operation.
 */
#include "operation.h"

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
int
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

PyObject *
edge_of(PyObject *tensor)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    if (extra != Py_None && SLOT(extra, core.e_view) != Py_None) {
        return PyObject_CallOneArg(core.current_edge, tensor);
    }
    return Py_NewRef(SLOT(tensor, core.t_edge));
}

PyObject *
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
        else if (value->kind == BY_COLUMNS) {
            PyArrayObject *array = (PyArrayObject *)argument;
            npy_intp step = PyArray_ITEMSIZE(array);
            found = PyBool_FromLong(PyArray_NDIM(array) == 2 && PyArray_STRIDE(array, 0) == step &&
                                    PyArray_STRIDE(array, 1) != step);
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

int
show_to_recorder(PyObject *node, PyObject *state)
{
    PyObject *record = SLOT(state, core.s_record);
    PyObject *nothing = record == Py_None ? Py_NewRef(record) : PyObject_CallFunctionObjArgs(record, node, state, NULL);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
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
    if (show_to_recorder(node, state) == 0) {
        return node;
    }
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
        if (!is_tensor(base)) {
            PyObject *nothing =
                PyObject_CallFunctionObjArgs(core.attach_view, result, source, function, arguments, state, NULL);
            Py_XDECREF(nothing);
            Py_DECREF(arguments);
            return nothing == NULL ? -1 : 0;
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

/* ---- the result */

PyObject *
record_result(Operation *self, const Form *form, PyObject *state, PyObject *const *values,
              PyObject *const *arguments, PyObject *out)
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
