/* Variadic: the function of an operation on a list of tensors (ops/declare/list_of_tensors.py), with its usual case in C:
 * what `apply_to_list` does with tensors of one dtype on the CPU, without an interceptor. Everything else goes to the
 * Python function, which a Variadic passes for.
 */
#include "call/operation.h"
#include "quiet.h"
#include "rows.h"

#define MOST_TENSORS 64

typedef struct {
    STAND_IN_HEAD
    PyObject *forward;
    PyTypeObject *node;
    PyObject *values;   /* what the node keeps: the numbers of parameters, -1 for the shapes of the tensors */
    PyObject *names;    /* of the parameters, behind the list */
    PyObject *defaults; /* of each () or (default,) */
} Variadic;

/* The arrays of the tensors, as a list; NULL, without an exception, if Python has to deal with them. */
static PyObject *
arrays_of(PyObject *const *tensors, Py_ssize_t count)
{
    PyObject *arrays = PyList_New(count);
    for (Py_ssize_t k = 0; arrays != NULL && k < count; k++) {
        PyObject *tensor = tensors[k];
        PyObject *array = is_tensor(tensor) && SLOT(tensor, core.t_xp) == core.cpu ? SLOT(tensor, core.t_array) : NULL;
        if (array == NULL || !PyArray_CheckExact(array) || is_narrow(array) ||
            (k > 0 && PyArray_DESCR((PyArrayObject *)array) !=
                          PyArray_DESCR((PyArrayObject *)PyList_GET_ITEM(arrays, 0)))) {
            Py_CLEAR(arrays);
        }
        else {
            PyList_SET_ITEM(arrays, k, Py_NewRef(array));
        }
    }
    return arrays;
}

static PyObject *
shapes_of(PyObject *arrays)
{
    PyObject *shapes = PyList_New(PyList_GET_SIZE(arrays));
    for (Py_ssize_t k = 0; shapes != NULL && k < PyList_GET_SIZE(arrays); k++) {
        PyObject *shape = shape_of(PyList_GET_ITEM(arrays, k));
        if (shape == NULL) {
            Py_CLEAR(shapes);
        }
        else {
            PyList_SET_ITEM(shapes, k, shape);
        }
    }
    return shapes;
}

static PyObject *
kept_values(Variadic *self, PyObject *arrays, PyObject *params)
{
    PyObject *kept = PyTuple_New(PyTuple_GET_SIZE(self->values));
    for (Py_ssize_t k = 0; kept != NULL && k < PyTuple_GET_SIZE(self->values); k++) {
        long number = PyLong_AsLong(PyTuple_GET_ITEM(self->values, k));
        PyObject *value = number < 0 ? shapes_of(arrays) : Py_NewRef(PyTuple_GET_ITEM(params, number));
        if (value == NULL) {
            Py_CLEAR(kept);
        }
        else {
            PyTuple_SET_ITEM(kept, k, value);
        }
    }
    return kept;
}

/* The edges of the tensors (new references); how many want a gradient, or -1 with an exception. */
static Py_ssize_t
find_edges(PyObject *const *tensors, Py_ssize_t count, PyObject **edges)
{
    Py_ssize_t wanted = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        edges[k] = edge_of(tensors[k]);
        if (edges[k] == NULL) {
            while (k > 0) {
                Py_DECREF(edges[--k]);
            }
            return -1;
        }
        wanted += edges[k] != Py_None;
    }
    return wanted;
}

/* The node; edges (new references) are taken over. */
static PyObject *
new_variadic_node(Variadic *self, PyObject *state, PyObject *const *tensors, PyObject *arrays, PyObject *params,
                  PyObject *out, PyObject **edges)
{
    Py_ssize_t count = PyList_GET_SIZE(arrays);
    PyObject *node = allocate_node(self->node);
    PyObject *recorded = PyList_New(count); /* a list, as leaves may stand for their nodes: Note [Edges to leaves] */
    for (Py_ssize_t k = 0; k < count; k++) {
        if (node != NULL && edges[k] == core.LEAF) {
            Py_SETREF(edges[k], leaf_stands(tensors[k], node));
        }
        if (edges[k] == NULL || recorded == NULL) {
            Py_XDECREF(edges[k]);
            Py_CLEAR(node);
        }
        else {
            PyList_SET_ITEM(recorded, k, edges[k]);
        }
    }
    if (node == NULL || recorded == NULL) {
        Py_XDECREF(node);
        Py_XDECREF(recorded);
        return NULL;
    }
    SLOT(node, core.n_recorded_edges) = recorded;
    SLOT(node, core.n_sequence_nr) = Py_TYPE(core.sequence)->tp_iternext(core.sequence);
    SLOT(node, core.n_saved) = PyTuple_New(0);
    SLOT(node, core.n_extra) = Py_NewRef(Py_None);
    SLOT(node, core.n_shape) = shared_shape(out);
    SLOT(node, core.n_dtype) = Py_NewRef(PyArray_DESCR((PyArrayObject *)out));
    SLOT(node, core.n_params) = kept_values(self, arrays, params);
    if (PyErr_Occurred() || take_site(node) < 0 || show_to_recorder(node, state) < 0) {
        Py_CLEAR(node);
    }
    return node;
}

/* The tensor for an array (taken over) that the operation has computed. */
static PyObject *
variadic_result(Variadic *self, PyObject *state, PyObject *const *tensors, PyObject *arrays, PyObject *params,
                PyObject *out)
{
    PyObject *edges[MOST_TENSORS];
    Py_ssize_t count = PyList_GET_SIZE(arrays), wanted = 0;
    if (SLOT(state, core.s_grad_enabled) == Py_True) {
        wanted = find_edges(tensors, count, edges);
        int differentiable = PyArray_ISFLOAT((PyArrayObject *)out) || PyArray_ISCOMPLEX((PyArrayObject *)out);
        if (wanted < 0) {
            Py_DECREF(out);
            return NULL;
        }
        if (wanted > 0 && differentiable) {
            PyObject *node = new_variadic_node(self, state, tensors, arrays, params, out, edges);
            if (node == NULL) {
                Py_DECREF(out);
                return NULL;
            }
            PyObject *result = new_tensor(out, node, Py_None);
            Py_DECREF(node);
            return result;
        }
        for (Py_ssize_t k = 0; k < count; k++) {
            Py_DECREF(edges[k]);
        }
    }
    return new_tensor(out, Py_None, SLOT(state, core.s_extra));
}

static PyObject *
call_forward(Variadic *self, PyObject *arrays, PyObject *params)
{
    PyObject *arguments[8] = {core.cpu, arrays};
    Py_ssize_t count = PyTuple_GET_SIZE(params);
    for (Py_ssize_t k = 0; k < count; k++) {
        arguments[2 + k] = PyTuple_GET_ITEM(params, k);
    }
    PyObject *out = quiet_call(self->forward, arguments, 2 + count, NULL);
    return out == NULL ? NULL : as_cpu_array(out);
}

/* The parameters that the function was called with, in order: a tuple, or NULL without an exception if Python has to look
 * at them. */
static PyObject *
bound_params(const Variadic *self, PyObject *const *given, Py_ssize_t positional, PyObject *names)
{
    Py_ssize_t count = PyTuple_GET_SIZE(self->names), named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    Py_ssize_t known = 0;
    if (positional < 1 || positional > 1 + count) {
        return NULL;
    }
    PyObject *params = PyTuple_New(count);
    for (Py_ssize_t k = 0; params != NULL && k < count; k++) {
        PyObject *fallback = PyTuple_GET_ITEM(self->defaults, k);
        PyObject *value = PyTuple_GET_SIZE(fallback) ? PyTuple_GET_ITEM(fallback, 0) : NULL;
        if (k + 1 < positional) {
            value = given[k + 1];
        }
        else {
            for (Py_ssize_t n = 0; n < named; n++) { /* both are interned */
                if (PyTuple_GET_ITEM(names, n) == PyTuple_GET_ITEM(self->names, k)) {
                    value = given[positional + n];
                    known++;
                }
            }
        }
        if (value == NULL) {
            Py_CLEAR(params);
        }
        else {
            PyTuple_SET_ITEM(params, k, Py_NewRef(value));
        }
    }
    if (params != NULL && known != named) { /* a name that no parameter has, or of one that was given by position */
        Py_CLEAR(params);
    }
    return params;
}

/* The result; NULL without an exception: leave it to Python. */
static PyObject *
usual_result(Variadic *self, PyObject *state, PyObject *list, PyObject *params)
{
    if (SLOT(state, core.s_intercept) != Py_None || !(PyList_CheckExact(list) || PyTuple_CheckExact(list)) ||
        PyTuple_GET_SIZE(params) > 6) {
        return NULL;
    }
    PyObject *tensors = PySequence_Tuple(list); /* the list may be changed while we work with it */
    if (tensors == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(tensors);
    PyObject *const *items = &PyTuple_GET_ITEM(tensors, 0);
    PyObject *arrays = count > 0 && count <= MOST_TENSORS ? arrays_of(items, count) : NULL, *result = NULL;
    if (arrays != NULL) {
        PyObject *out = call_forward(self, arrays, params);
        if (out != NULL && PyArray_CheckExact(out)) {
            result = variadic_result(self, state, items, arrays, params, out);
        }
        else {
            Py_XDECREF(out);
        }
        Py_DECREF(arrays);
    }
    Py_DECREF(tensors);
    return result;
}

/* The same while a profile is under way, which also looks on at what is left to Python. */
static PyObject *
timed_result(Variadic *self, PyObject *state, PyObject *params, PyObject *const *given, size_t flagged, PyObject *names)
{
    PyObject *lowered, *rows = rows_of_profile(state, &lowered);
    if (rows == NULL) {
        return NULL;
    }
    long long begin = clock_now();
    PyObject *result = usual_result(self, lowered, given[0], params);
    if (result == NULL && !PyErr_Occurred()) {
        result = called_below(lowered, self->function, given, flagged, names);
    }
    result = timed(rows, (PyObject *)self, result, begin);
    Py_DECREF(lowered);
    Py_DECREF(rows);
    return result;
}

static PyObject *
variadic_call(PyObject *callable, PyObject *const *given, size_t flagged, PyObject *names)
{
    Variadic *self = (Variadic *)callable;
    PyObject *params = bound_params(self, given, PyVectorcall_NARGS(flagged), names), *state;
    if (params != NULL) {
        if (PyContextVar_Get(core.state_variable, NULL, &state) < 0) {
            Py_DECREF(params);
            return NULL;
        }
        PyObject *result = SLOT(state, core.s_intercept) == Py_None
                               ? usual_result(self, state, given[0], params)
                               : timed_result(self, state, params, given, flagged, names);
        Py_DECREF(state);
        Py_DECREF(params);
        if (result != NULL || PyErr_Occurred()) {
            return result;
        }
    }
    return PyErr_Occurred() ? NULL : PyObject_Vectorcall(self->function, given, flagged, names);
}

/* ---- the type */

/* Variadic(function, forward, node, values, names, defaults) */
static PyObject *
variadic_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *function, *forward, *node, *values, *names, *defaults;
    if (!PyArg_ParseTuple(args, "OOO!O!O!O!", &function, &forward, &PyType_Type, &node, &PyTuple_Type, &values,
                          &PyTuple_Type, &names, &PyTuple_Type, &defaults)) {
        return NULL;
    }
    Variadic *self = (Variadic *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = variadic_call;
        self->function = Py_NewRef(function);
        self->forward = Py_NewRef(forward);
        self->node = (PyTypeObject *)Py_NewRef(node);
        adopt_node_class(self->node);
        self->values = Py_NewRef(values);
        self->names = Py_NewRef(names);
        self->defaults = Py_NewRef(defaults);
    }
    return (PyObject *)self;
}

static int
variadic_traverse(Variadic *self, visitproc visit, void *arg)
{
    Py_VISIT(self->forward);
    Py_VISIT(self->node);
    Py_VISIT(self->defaults);
    return stand_in_traverse((PyObject *)self, visit, arg);
}

static int
variadic_clear(Variadic *self)
{
    Py_CLEAR(self->forward);
    Py_CLEAR(self->node);
    Py_CLEAR(self->values);
    Py_CLEAR(self->names);
    Py_CLEAR(self->defaults);
    return stand_in_clear((PyObject *)self);
}

PyTypeObject Variadic_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Variadic",
    .tp_base = &StandIn_Type,
    .tp_basicsize = sizeof(Variadic),
    .tp_flags = STAND_IN_FLAGS,
    .tp_new = variadic_new,
    .tp_dealloc = stand_in_dealloc,
    .tp_traverse = (traverseproc)variadic_traverse,
    .tp_clear = (inquiry)variadic_clear,
    .tp_getset = stand_in_attributes,
};
