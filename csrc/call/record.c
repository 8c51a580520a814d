/* Recording an operation, its node and its result: what `record` of ops/declare/record.py does. */
#include "backward/leaf_edges.h"
#include "call/operation.h"

/* ---- edges and nodes */

PyObject *
edge_of(PyObject *tensor)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    if (extra != Py_None && SLOT(extra, core.e_view) != Py_None) {
        return PyObject_CallOneArg(core.recorded_edge, tensor);
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
        found = new_leaf_edge(leaf, extra);
        return found != NULL || PyErr_Occurred() ? found : PyObject_CallOneArg(core.leaf_edge, leaf);
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

static PyObject *
params_of(const Form *form, PyObject *const *values, PyObject *const *arguments)
{
    PyObject *params = PyTuple_New(form->value_count);
    for (int k = 0; params != NULL && k < form->value_count; k++) {
        const Value *value = &form->values[k];
        PyObject *found;
        PyObject *argument = value->kind == FACT_FIXED ? NULL : arguments[value->argument];
        if (value->kind == FACT_FIXED) {
            found = Py_NewRef(value->constant);
        }
        else if (value->kind == FACT_ITSELF || argument == Py_None) {
            found = Py_NewRef(argument);
        }
        else if (value->kind == FACT_SHAPE) {
            found = shared_shape(argument);
        }
        else if (value->kind == FACT_BY_COLUMNS) {
            npy_intp step = PyDataType_ELSIZE(dtype_of(argument));
            const npy_intp *strides = strides_of(argument);
            found = PyBool_FromLong(ndim_of(argument) == 2 && strides[0] == step && strides[1] != step);
        }
        else { /* of the tensor, not of what was made of it */
            found = Py_NewRef(dtype_of(SLOT(values[value->argument], core.t_array)));
        }
        if (found == NULL) {
            Py_CLEAR(params);
        }
        else {
            PyTuple_SET_ITEM(params, k, found);
        }
    }
    if (params != NULL && form->value_count > 0) {
        untrack(params);
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
        PyObject *array = PyTuple_GET_ITEM(several, k), *shape = shape_of(array);
        if (shape == NULL) {
            Py_CLEAR(shapes);
        }
        else {
            PyList_SET_ITEM(shapes, k, shape);
            PyList_SET_ITEM(dtypes, k, Py_NewRef(dtype_of(array)));
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
    SLOT(node, core.n_shape) = shared_shape(out);
    SLOT(node, core.n_dtype) = Py_NewRef(dtype_of(out));
    return SLOT(node, core.n_shape) == NULL ? -1 : 0;
}

/* Whether the result is on a GPU, or the several, of which there may be none. */
static int
is_on_device(const Form *form, PyObject *out)
{
    return form->several ? PyTuple_GET_SIZE(out) > 0 && is_device_array(PyTuple_GET_ITEM(out, 0)) : is_device_array(out);
}

/* Give the node its edges (taken over), in which leaves may stand for their nodes. See Note [Edges to leaves]. */
static int
set_edges(const Form *form, PyObject *node, PyObject *const *values, PyObject **edges)
{
    int standing = 0, is_complete = 1;
    for (int k = 0; k < form->edge_count; k++) {
        if (edges[k] == core.LEAF && is_complete) {
            PyObject *tensor = values[form->edges[k]];
            Py_DECREF(edges[k]);
            edges[k] = leaf_stands(tensor, node);
            standing |= edges[k] == tensor;
            is_complete = edges[k] != NULL;
        }
    }
    PyObject *recorded = !is_complete ? NULL : standing ? PyList_New(form->edge_count) : PyTuple_New(form->edge_count);
    for (int k = 0; k < form->edge_count; k++) {
        if (recorded == NULL) {
            Py_XDECREF(edges[k]);
        }
        else if (standing) {
            PyList_SET_ITEM(recorded, k, edges[k]);
        }
        else {
            PyTuple_SET_ITEM(recorded, k, edges[k]);
        }
    }
    if (recorded == NULL) {
        return -1;
    }
    if (!standing) {
        hide_edges(node, recorded);
    }
    SLOT(node, core.n_recorded_edges) = recorded;
    return 0;
}

/* Let the node keep what its rules will need.
 * wanted: the edges that are there, as bits */
static int
keep_values(const Form *form, PyObject *node, PyObject *const *values, PyObject *out, unsigned wanted)
{
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
                return -1;
            }
        }
    }
    for (int k = 0; k < form->output_count; k++) {
        const SavedOutput *saved = &form->outputs[k];
        PyObject *array = form->several ? PyTuple_GET_ITEM(out, saved->output) : out;
        SLOT(node, saved->slot) = Py_NewRef(saved->users & wanted ? array : Py_None);
    }
    return 0;
}

PyObject *
new_node(const Form *form, PyObject *state, PyObject *const *values, PyObject *const *arguments, PyObject *out,
         PyObject **edges, unsigned wanted)
{
    PyObject *node = allocate_node(form->node);
    if (node == NULL) {
        for (int k = 0; k < form->edge_count; k++) {
            Py_DECREF(edges[k]);
        }
        return NULL;
    }
    if (set_edges(form, node, values, edges) < 0) {
        goto failed;
    }
    SLOT(node, core.n_sequence_nr) = Py_TYPE(core.sequence)->tp_iternext(core.sequence);
    SLOT(node, core.n_extra) =
        is_on_device(form, out) ? PyObject_CallOneArg(core.extra_on, core.device_xp) : Py_NewRef(Py_None);
    SLOT(node, core.n_params) = params_of(form, values, arguments);
    if (SLOT(node, core.n_sequence_nr) == NULL || SLOT(node, core.n_extra) == NULL ||
        SLOT(node, core.n_params) == NULL || describe_result(form, node, out) < 0 ||
        keep_values(form, node, values, out, wanted) < 0 || take_site(node) < 0) {
        goto failed;
    }
    if (show_to_recorder(node, state) == 0) {
        return node;
    }
failed:
    Py_DECREF(node);
    return NULL;
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
    if (form->check_output && !has_floats(out)) {
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
