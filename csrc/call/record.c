/* Recording an operation: its node, the line of the program that it stands for, and its result, which may be a view.
 *
 * What write_recording of ops/declare/templates.py writes for each operation.
 */
#include "call/operation.h"

/* ---- where in the program */

#define REMEMBERED 256

/* Whether a file is one of undertow's own. All code of a file has the same string for its name, and the answers keep the
 * strings, so that no other can come to lie at the address of one. */
static int
is_own(PyObject *file)
{
    static struct {
        PyObject *file;
        int answer;
    } answers[REMEMBERED];
    size_t place = ((size_t)file >> 5) % REMEMBERED;
    if (answers[place].file != file) {
        PyObject *found = PyObject_GetItem(core.own_files, file);
        if (found == NULL) {
            PyErr_Clear();
            return 0;
        }
        answers[place].answer = found == Py_True;
        Py_DECREF(found);
        Py_XSETREF(answers[place].file, Py_NewRef(file));
    }
    return answers[place].answer;
}

/* The code (a new reference, NULL for none) and instruction of the nearest frame that is not undertow's own. */
static PyCodeObject *
user_site(int *lasti)
{
    PyFrameObject *frame = PyEval_GetFrame();
    PyCodeObject *code = NULL;
    Py_XINCREF(frame);
    while (frame != NULL) {
        code = PyFrame_GetCode(frame);
        *lasti = PyFrame_GetLasti(frame);
        PyFrameObject *back = is_own(code->co_filename) ? PyFrame_GetBack(frame) : NULL;
        Py_DECREF(frame);
        frame = back;
        if (frame != NULL) {
            Py_DECREF(code);
        }
    }
    return code;
}

int
take_site(PyObject *node)
{
    int lasti = 0;
    PyCodeObject *code = core.sites ? user_site(&lasti) : NULL;
    SLOT(node, core.n_code) = code == NULL ? Py_NewRef(Py_None) : (PyObject *)code;
    SLOT(node, core.n_lasti) = PyLong_FromLong(lasti);
    return SLOT(node, core.n_lasti) == NULL ? -1 : 0;
}

/* ---- changes in place */

/* The version counter of the memory that a tensor shows (borrowed), or NULL if nobody needed one yet. */
static PyObject *
found_counter(PyObject *tensor)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    if (extra != Py_None && SLOT(extra, core.e_view) != Py_None) {
        PyObject *base = SLOT(SLOT(extra, core.e_view), core.v_base);
        extra = is_tensor(base) ? SLOT(base, core.t_extra) : Py_None;
    }
    PyObject *counter = extra == Py_None ? Py_None : SLOT(extra, core.e_counter);
    return counter == Py_None ? NULL : counter;
}

PyObject *
count_change(PyObject *tensor, PyObject *name)
{
    PyObject *counter = found_counter(tensor);
    if (counter == NULL) {
        counter = PyObject_CallOneArg(core.counter_of, tensor);
        if (counter == NULL) {
            return NULL;
        }
        Py_DECREF(counter); /* the tensor, or its base, keeps it */
    }
    if (!Py_IS_TYPE(counter, core.VersionCounter)) {
        return counter; /* that of inference tensors counts nothing */
    }
    int lasti = 0;
    PyCodeObject *code = user_site(&lasti);
    PyObject *place = PyLong_FromLong(lasti);
    PyObject *version = PyLong_FromLongLong(PyLong_AsLongLong(SLOT(counter, core.c_value)) + 1);
    if (version == NULL || place == NULL || PyErr_Occurred()) {
        Py_XDECREF(code);
        Py_XDECREF(place);
        Py_XDECREF(version);
        return NULL;
    }
    set_slot(counter, core.c_value, version);
    set_slot(counter, core.c_operation, Py_NewRef(name));
    set_slot(counter, core.c_code, code == NULL ? Py_NewRef(Py_None) : (PyObject *)code);
    set_slot(counter, core.c_lasti, place);
    return counter;
}

int
may_require_grad(PyObject *tensor)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    if (SLOT(tensor, core.t_edge) != Py_None) {
        return 1;
    }
    if (extra == Py_None || SLOT(extra, core.e_view) == Py_None) {
        return 0;
    }
    PyObject *base = SLOT(SLOT(extra, core.e_view), core.v_base);
    return !is_tensor(base) || SLOT(base, core.t_edge) != Py_None;
}

int
is_free(PyObject *tensor, PyObject *state)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    if (extra != Py_None && SLOT(extra, core.e_counter) == core.NO_COUNTER &&
        SLOT(state, core.s_inference) != Py_True) {
        return 0;
    }
    return SLOT(state, core.s_grad_enabled) != Py_True || !may_require_grad(tensor);
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

/* Note in the node of several results what they are. */
static int
describe_results(const Form *form, PyObject *node, PyObject *several)
{
    Py_ssize_t count = PyTuple_GET_SIZE(several);
    PyObject *shapes = PyList_New(count), *dtypes = PyList_New(count);
    for (Py_ssize_t k = 0; shapes != NULL && dtypes != NULL && k < count; k++) {
        PyArrayObject *array = (PyArrayObject *)PyTuple_GET_ITEM(several, k);
        PyObject *shape = shape_of(array);
        if (shape == NULL) {
            Py_CLEAR(shapes);
        }
        else {
            PyList_SET_ITEM(shapes, k, shape);
            PyList_SET_ITEM(dtypes, k, Py_NewRef(PyArray_DESCR(array)));
        }
    }
    SLOT(node, form->shapes) = shapes;
    SLOT(node, form->their_dtypes) = dtypes;
    return shapes == NULL || dtypes == NULL ? -1 : 0;
}

/* Note in a node what the result is. */
static int
describe_result(const Form *form, PyObject *node, PyObject *out)
{
    if (form->several) {
        return describe_results(form, node, out);
    }
    SLOT(node, core.n_shape) = shape_of((PyArrayObject *)out);
    SLOT(node, core.n_dtype) = Py_NewRef(PyArray_DESCR((PyArrayObject *)out));
    return SLOT(node, core.n_shape) == NULL ? -1 : 0;
}

PyObject *
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
    SLOT(node, core.n_params) = params_of(form, values, arguments);
    if (describe_result(form, node, out) < 0) {
        goto failed;
    }
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
    for (int k = 0; k < form->output_count; k++) {
        const SavedOutput *saved = &form->outputs[k];
        PyObject *array = form->several ? PyTuple_GET_ITEM(out, saved->output) : out;
        SLOT(node, saved->slot) = Py_NewRef(saved->users & wanted ? array : Py_None);
    }
    if (SLOT(node, core.n_sequence_nr) == NULL || SLOT(node, core.n_params) == NULL || take_site(node) < 0) {
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

/* The same for a view of a tensor whose slots cannot be read. */
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

/* Mark a result as a view of the source, as attach_view in tensor/views.py does; `arguments` is taken over.
 *
 * number  which of several results it is; None if it is the only one */
static int
attach_view(PyObject *result, PyObject *number, PyObject *source, PyObject *function, PyObject *arguments,
            PyObject *state)
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
    PyObject *replay = core.Replay->tp_alloc(core.Replay, 0);
    PyObject *view = core.View->tp_alloc(core.View, 0);
    PyObject *made = core.Extra->tp_alloc(core.Extra, 0);
    PyObject *version = version_of(base);
    if (before != NULL && replay != NULL && view != NULL && made != NULL && version != NULL) {
        SLOT(replay, core.r_before) = Py_NewRef(before);
        SLOT(replay, core.r_function) = Py_NewRef(function);
        SLOT(replay, core.r_arguments) = Py_NewRef(arguments);
        SLOT(replay, core.r_output) = Py_NewRef(number);
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

/* The edges (new references) that the operation would record; those that are not None, as bits. -1: an exception. */
static int
find_edges(const Form *form, PyObject *const *values, PyObject **edges)
{
    int wanted = 0;
    for (int k = 0; k < form->edge_count; k++) {
        PyObject *tensor = form->edges[k] < 0 ? Py_None : values[form->edges[k]];
        edges[k] = tensor == Py_None ? Py_NewRef(Py_None) : edge_of(tensor);
        if (edges[k] == NULL) {
            while (k > 0) {
                Py_DECREF(edges[--k]);
            }
            return -1;
        }
        wanted |= (edges[k] != Py_None) << k;
    }
    return wanted;
}

/* The node of the operation (a new reference), or None if nothing is recorded. */
static PyObject *
recorded_node(const Form *form, PyObject *state, PyObject *const *values, PyObject *const *arguments, PyObject *out)
{
    PyObject *edges[MOST_EDGES];
    int wanted = find_edges(form, values, edges);
    if (wanted < 0) {
        return NULL;
    }
    if (form->check_output && !PyArray_ISFLOAT((PyArrayObject *)out) && !PyArray_ISCOMPLEX((PyArrayObject *)out)) {
        wanted = 0;
    }
    if (wanted) {
        return new_node(form, state, values, arguments, out, edges, wanted);
    }
    for (int k = 0; k < form->edge_count; k++) {
        Py_DECREF(edges[k]);
    }
    return Py_NewRef(Py_None);
}

/* The edge to one of several results of a node, or None. */
static PyObject *
output_edge(PyObject *node, Py_ssize_t number)
{
    PyObject *edge = core.OutputEdge->tp_alloc(core.OutputEdge, 2);
    PyObject *second = edge == NULL ? NULL : PyLong_FromSsize_t(number);
    if (second == NULL) {
        Py_XDECREF(edge);
        return NULL;
    }
    PyTuple_SET_ITEM(edge, 0, Py_NewRef(node));
    PyTuple_SET_ITEM(edge, 1, second);
    return edge;
}

/* A node that keeps an output without history (indices) has to know its version counter: no edge leads to the node. */
static int
watch_constants(const Form *form, PyObject *node, PyObject *results)
{
    for (int k = 0; k < form->output_count; k++) {
        const SavedOutput *saved = &form->outputs[k];
        if (!(form->constant >> saved->output & 1) || SLOT(node, saved->slot) == Py_None) {
            continue;
        }
        PyObject *counter =
            PyObject_CallFunctionObjArgs(core.counter_of, PyTuple_GET_ITEM(results, saved->output), NULL);
        PyObject *nothing =
            counter == NULL ? NULL : PyObject_CallMethod(node, "watch_output", "iO", saved->output, counter);
        Py_XDECREF(counter);
        Py_XDECREF(nothing);
        if (nothing == NULL) {
            return -1;
        }
    }
    return 0;
}

/* The tensors for several arrays (a tuple, borrowed). */
static PyObject *
several_results(Operation *self, const Form *form, PyObject *state, PyObject *const *values,
                PyObject *const *arguments, PyObject *out, PyObject *node, PyObject *extra)
{
    Py_ssize_t count = PyTuple_GET_SIZE(out);
    PyObject *results = PyTuple_New(count);
    for (Py_ssize_t k = 0; results != NULL && k < count; k++) {
        int constant = node == Py_None || (k < 32 && form->constant >> k & 1);
        PyObject *edge = constant ? Py_NewRef(Py_None) : output_edge(node, k);
        PyObject *number = self->is_view ? PyLong_FromSsize_t(k) : Py_NewRef(Py_None);
        PyObject *result = edge == NULL || number == NULL
                               ? NULL
                               : new_tensor(Py_NewRef(PyTuple_GET_ITEM(out, k)), edge, extra);
        if (result != NULL && self->is_view &&
            attach_view(result, number, values[0], (PyObject *)self, view_arguments(self, arguments), state) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(edge);
        Py_XDECREF(number);
        if (result == NULL) {
            Py_CLEAR(results);
        }
        else {
            PyTuple_SET_ITEM(results, k, result);
        }
    }
    if (results != NULL && node != Py_None && form->constant && watch_constants(form, node, results) < 0) {
        Py_CLEAR(results);
    }
    return results;
}

PyObject *
record_result(Operation *self, const Form *form, PyObject *state, PyObject *const *values,
              PyObject *const *arguments, PyObject *out)
{
    PyObject *extra = SLOT(state, core.s_extra), *node = NULL, *result;
    if (form->node != NULL && SLOT(state, core.s_grad_enabled) == Py_True) {
        extra = Py_None;
        node = recorded_node(form, state, values, arguments, out);
        if (node == NULL) {
            Py_DECREF(out);
            return NULL;
        }
    }
    PyObject *edge = node == NULL ? Py_None : node;
    if (form->several) {
        result = several_results(self, form, state, values, arguments, out, edge, extra);
        Py_DECREF(out);
    }
    else {
        result = new_tensor(out, edge, extra);
        if (result != NULL && self->is_view &&
            attach_view(result, Py_None, values[0], (PyObject *)self, view_arguments(self, arguments), state) < 0) {
            Py_CLEAR(result);
        }
    }
    Py_XDECREF(node);
    return result;
}
