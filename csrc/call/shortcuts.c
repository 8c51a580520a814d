/* Shortcut: a function of tensors that sorts out its arguments and calls operations, with the usual case in C; marked by
 * the decorator `shortcut` of compiled.py.
 */
#include "call/shortcuts.h"
#include "rows.h"

/* ---- the type: all but this is Operation's */

static const struct {
    const char *name;
    Way way;
    const char *row; /* what a profile calls it, if it is shown as one operation */
} ways[] = {{"getitem", getitem}, {"setitem", setitem, "copy_"}, {"expand", with_sizes}, {"permute", with_sizes},
            {"view", reshape}, {"reshape", reshape}, {"flatten", flatten}, {"expand_as", expand_as},
            {"numpy_T", numpy_T}, {"contiguous", contiguous}, {"sum", over_dims}, {"mean", over_dims},
            {"max", over_dims}, {"min", over_dims},
            {"matmul", matmul}, {"squeeze", squeeze}, {"chunk", chunk}, {"split", split}, {"zero_", zero_, "zero_"},
            {"fill_", fill_, "fill_"}, {"copy_", copy_, "copy_"}, {"with_out", wrapped},
            {"rand", rand_new, "rand"}, {"randn", randn_new, "randn"}, {"randint", randint_new, "randint"},
            {"randperm", randperm_new, "randperm"},
            {"uniform_", fill_uniform, "uniform_"}, {"normal_", fill_normal, "normal_"},
            {"arange", arange_new}, {"linspace", linspace_new}};

/* What the shortcut does with that state, if it calls operations that read it. */
static PyObject *
way_below(const Shortcut *self, PyObject *lowered, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *outer;
    if (self->targets[0] == NULL) {
        return self->way(self, lowered, given, count, names);
    }
    if (PyContextVar_Get(core.state_variable, NULL, &outer) < 0) {
        return NULL;
    }
    PyObject *const inner[] = {core.state_variable, lowered};
    PyObject *done = set_value(NULL, inner, 2);
    PyObject *result = done == NULL ? NULL : self->way(self, lowered, given, count, names);
    Py_XDECREF(done);
    if (put_back(core.state_variable, outer) < 0) {
        Py_CLEAR(result);
    }
    Py_DECREF(outer);
    return result;
}

/* The result while a profile is under way, if that is all that is unusual. What a shortcut calls writes its own rows,
 * unless the shortcut is shown as one operation. */
static PyObject *
timed_way(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *lowered, *rows = rows_of_profile(state, &lowered), *result = NULL;
    if (rows == NULL) {
        return NULL;
    }
    if (SLOT(lowered, core.s_unusual) == Py_False) {
        PyObject *shown = Py_XNewRef(self->operation.shown); /* the last profile may end in the middle */
        if (self->row != NULL) {
            long long begin = clock_now();
            result = timed(rows, self->row, way_below(self, lowered, given, count, names), begin);
        }
        else if (shown != NULL) {
            Begun begun = begin_composite();
            result = end_composite(rows, shown, self->way(self, lowered, given, count, names), begun);
        }
        else {
            result = self->way(self, lowered, given, count, names);
        }
        Py_XDECREF(shown);
    }
    Py_DECREF(lowered);
    Py_DECREF(rows);
    return result;
}

static PyObject *
shortcut_call(PyObject *callable, PyObject *const *given, size_t flagged, PyObject *names)
{
    Shortcut *self = (Shortcut *)callable;
    PyObject *state, *result = NULL;
    if (PyContextVar_Get(core.state_variable, NULL, &state) < 0) {
        return NULL;
    }
    if (SLOT(state, core.s_unusual) == Py_False) {
        result = self->way(self, state, given, PyVectorcall_NARGS(flagged), names);
    }
    else {
        result = timed_way(self, state, given, PyVectorcall_NARGS(flagged), names);
    }
    Py_DECREF(state);
    if (result != NULL || PyErr_Occurred()) {
        return result;
    }
    return call_python((StandIn *)self, given, flagged, names);
}

/* Shortcut(name, function, targets) */
static PyObject *
shortcut_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const char *name;
    PyObject *function, *targets;
    if (!PyArg_ParseTuple(args, "sOO!", &name, &function, &PyTuple_Type, &targets)) {
        return NULL;
    }
    size_t k = 0, known = sizeof(ways) / sizeof(ways[0]);
    while (k < known && strcmp(ways[k].name, name) != 0) {
        k++;
    }
    if (k == known || PyTuple_GET_SIZE(targets) > MOST_TARGETS) {
        PyErr_Format(PyExc_ValueError, "the compiled core has no shortcut for %s", name);
        return NULL;
    }
    PyObject *both = PyTuple_Pack(2, function, Py_None);
    Shortcut *self = both == NULL ? NULL : (Shortcut *)operation_new(type, both, NULL);
    Py_XDECREF(both);
    if (self != NULL) {
        self->operation.vectorcall = shortcut_call;
        self->way = ways[k].way;
        if (ways[k].row != NULL) {
            self->row = PyUnicode_InternFromString(ways[k].row);
        }
        for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(targets); n++) {
            self->targets[n] = Py_NewRef(PyTuple_GET_ITEM(targets, n));
        }
    }
    return (PyObject *)self;
}

static int
shortcut_traverse(Shortcut *self, visitproc visit, void *arg)
{
    for (int k = 0; k < MOST_TARGETS; k++) {
        Py_VISIT(self->targets[k]);
    }
    return Operation_Type.tp_traverse((PyObject *)self, visit, arg);
}

static int
shortcut_clear(Shortcut *self)
{
    for (int k = 0; k < MOST_TARGETS; k++) {
        Py_CLEAR(self->targets[k]);
    }
    Py_CLEAR(self->row);
    return Operation_Type.tp_clear((PyObject *)self);
}

static void
shortcut_dealloc(Shortcut *self)
{
    PyObject_GC_UnTrack(self); /* untracked twice is no error */
    shortcut_clear(self);
    Operation_Type.tp_dealloc((PyObject *)self);
}

static PyMemberDef shortcut_members[] = {{"__wrapped__", T_OBJECT, offsetof(StandIn, function), READONLY}, {NULL}};

PyTypeObject Shortcut_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Shortcut",
    .tp_base = &Operation_Type,
    .tp_basicsize = sizeof(Shortcut),
    .tp_flags = STAND_IN_FLAGS,
    .tp_new = shortcut_new,
    .tp_dealloc = (destructor)shortcut_dealloc,
    .tp_traverse = (traverseproc)shortcut_traverse,
    .tp_getset = stand_in_attributes,
    .tp_members = shortcut_members,
    .tp_clear = (inquiry)shortcut_clear,
};
