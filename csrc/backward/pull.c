/* Pull: the method `pull` of the nodes of operations (ops/declare/node.py), in C for gradients that are arrays of the
 * CPU or of a GPU, and for those of a recorded pass, which are tensors.
 *
 * In every other case the Python function is called that it stands in for.
 */
#include "backward/pass.h"
#include "call/operation.h"
#include "kernels/casts.h"

typedef struct {
    PyObject *name;
    Py_ssize_t slot, version; /* version: 0 for an output */
    int output;               /* its number, if it is one; -1 */
} Kept;

typedef struct {
    Expression *joint;             /* the rule for all edges at once, if there is one */
    Expression *edges[MOST_EDGES]; /* that of each edge; NULL: it never has a gradient */
} Rules;

typedef struct {
    STAND_IN_HEAD
    PyObject *plan;     /* a function that describes the rules (see ops/declare/core_plan.py), until it has been called */
    PyTypeObject *node; /* the class that it is a method of */
    int edge_count;     /* 0 until the plan is made */
    int several;        /* whether the node has several outputs, and their gradients come in a list */
    int only;           /* the one of them that has a gradient, which the rules get; -1: they get the list */
    int kept_count, value_count;
    Kept kept[MOST_EDGES];
    Rules rules[3]; /* for arrays, for tensors in a recorded pass, and for arrays on a GPU */
    int has_device_rules; /* 1 if the last are there, -1 if there are none, 0 before they were asked for */
} Pull;

enum { OF_ARRAYS, OF_TENSORS, OF_DEVICE_ARRAYS };

/* ---- reading the plan */

/* A Rules plan. */
static int
read_rules(Rules *rules, PyObject *plan)
{
    PyObject *joint = FIELD(plan, RULES_JOINT), *edges = FIELD(plan, RULES_EDGES);
    if (joint != Py_None && (rules->joint = expression_new(joint)) == NULL) {
        return -1;
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(edges); k++) {
        PyObject *rule = PyTuple_GET_ITEM(edges, k);
        if (rule != Py_None && (rules->edges[k] = expression_new(rule)) == NULL) {
            return -1;
        }
    }
    return 0;
}

static int
reach_of_rules(const Rules *rules)
{
    int reach = rules->joint == NULL ? 0 : expression_reach(rules->joint);
    for (int k = 0; k < MOST_EDGES; k++) {
        int of_edge = rules->edges[k] == NULL ? 0 : expression_reach(rules->edges[k]);
        reach = of_edge > reach ? of_edge : reach;
    }
    return reach;
}

/* What the nodes keep: a tuple of Kept. */
static int
read_kept(Pull *self, PyTypeObject *node, PyObject *kept)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kept); k++) {
        Kept *item = &self->kept[k];
        PyObject *plan = PyTuple_GET_ITEM(kept, k);
        if (check_plan(plan, KEPT_SIZE) < 0) {
            return -1;
        }
        PyObject *version = FIELD(plan, KEPT_VERSION);
        item->name = Py_NewRef(FIELD(plan, KEPT_NAME));
        item->output = int_field(plan, KEPT_OUTPUT);
        self->kept_count++;
        if (find_slot(node, FIELD(plan, KEPT_SLOT), &item->slot) < 0 ||
            (version != Py_None && find_slot(node, version, &item->version) < 0)) {
            return -1;
        }
    }
    return 0;
}

/* A PullPlan. */
static int
read_plan(Pull *self, PyObject *plan)
{
    if (check_plan(plan, PULL_PLAN_SIZE) < 0) {
        return -1;
    }
    PyObject *kept = FIELD(plan, PULL_PLAN_KEPT), *node = FIELD(plan, PULL_PLAN_NODE);
    PyObject *rules = FIELD(plan, PULL_PLAN_RULES), *recorded = FIELD(plan, PULL_PLAN_RECORDED_RULES);
    if (check_plan(rules, RULES_SIZE) < 0 || check_plan(recorded, RULES_SIZE) < 0) {
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(FIELD(rules, RULES_EDGES));
    int values = int_field(plan, PULL_PLAN_VALUE_COUNT);
    if (PyTuple_GET_SIZE(kept) > MOST_EDGES || count > MOST_EDGES || !PyType_Check(node) ||
        PyTuple_GET_SIZE(FIELD(recorded, RULES_EDGES)) != count ||
        PyTuple_GET_SIZE(kept) + values + 2 > MOST_VALUES) {
        PyErr_SetString(PyExc_ValueError, "a node has too many inputs");
        return -1;
    }
    self->several = int_field(plan, PULL_PLAN_SEVERAL);
    self->only = int_field(plan, PULL_PLAN_ONLY);
    if (read_kept(self, (PyTypeObject *)node, kept) < 0 || read_rules(&self->rules[0], rules) < 0 ||
        read_rules(&self->rules[1], recorded) < 0 || PyErr_Occurred()) {
        return -1;
    }
    for (int k = 0; k < 2; k++) {
        if (reach_of_rules(&self->rules[k]) > PyTuple_GET_SIZE(kept) + values + 2) {
            PyErr_SetString(PyExc_ValueError, "a rule speaks of more arguments than there are");
            return -1;
        }
    }
    self->node = (PyTypeObject *)Py_NewRef(node);
    self->value_count = values;
    self->edge_count = (int)count; /* last: it says that the plan is made */
    return 0;
}

/* How many edges the nodes have; 0 if pull_gradients cannot be used, -1 with an exception. */
static int
pull_size(Pull *self)
{
    if (self->edge_count == 0 && self->plan != NULL) {
        PyObject *plan = self->plan;
        self->plan = NULL;
        PyObject *description = PyObject_CallNoArgs(plan);
        Py_DECREF(plan);
        if (description == NULL || (description != Py_None && read_plan(self, description) < 0)) {
            Py_XDECREF(description);
            return -1;
        }
        Py_DECREF(description);
    }
    return self->edge_count;
}

/* Whether there are rules for a GPU, asked for when they are first needed; -1 with an exception. */
static int
find_device_rules(Pull *self)
{
    if (self->has_device_rules == 0) {
        self->has_device_rules = -1;
        PyObject *plan = core.device_rules == NULL ? NULL : PyObject_CallOneArg(core.device_rules, (PyObject *)self->node);
        if (plan == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
        if (plan != Py_None) {
            Rules *rules = &self->rules[OF_DEVICE_ARRAYS];
            int most = self->kept_count + self->value_count + 2;
            if (check_plan(plan, RULES_SIZE) < 0 || PyTuple_GET_SIZE(FIELD(plan, RULES_EDGES)) != self->edge_count ||
                read_rules(rules, plan) < 0 || reach_of_rules(rules) > most) {
                Py_DECREF(plan);
                if (!PyErr_Occurred()) {
                    PyErr_SetString(PyExc_ValueError, "a rule speaks of more edges or arguments than there are");
                }
                return -1;
            }
            self->has_device_rules = 1;
        }
        Py_DECREF(plan);
    }
    return self->has_device_rules > 0;
}

/* ---- running */

/* Whether a tensor was made into another one, by detach_ or by its .data: what check_identity of graph/saved.py looks at. */
static int
may_be_another(PyObject *rare)
{
    static PyObject *detached_at, *resized_at;
    if (rare == Py_None) {
        return 0;
    }
    if (resized_at == NULL) {
        detached_at = PyUnicode_InternFromString("detached_at");
        resized_at = PyUnicode_InternFromString("resized_at");
    }
    PyObject *facts = detached_at == NULL || resized_at == NULL ? NULL : PyObject_GenericGetDict(rare, NULL);
    int found = facts == NULL || PyDict_Contains(facts, detached_at) != 0 || PyDict_Contains(facts, resized_at) != 0;
    Py_XDECREF(facts);
    PyErr_Clear(); /* Python meets what is wrong with it */
    return found;
}

/* Whether a tensor that is no view has the version it had, and is no other one: as parameters after a step. */
static int
is_unchanged(PyObject *extra, PyObject *version)
{
    PyObject *counter = SLOT(extra, core.e_counter);
    if (SLOT(extra, core.e_view) != Py_None || version == NULL || !PyLong_CheckExact(version) ||
        !Py_IS_TYPE(counter, core.VersionCounter)) {
        return 0;
    }
    PyObject *present = SLOT(counter, core.c_value);
    return present != NULL && PyLong_CheckExact(present) && PyObject_RichCompareBool(present, version, Py_EQ) == 1 &&
           !may_be_another(SLOT(extra, core.e_rare));
}

/* A kept input, if it is still what it was: the tensor (a new reference) or None. */
static PyObject *
unpack_input(const Kept *kept, PyObject *node, PyObject *value)
{
    PyObject *version = SLOT(node, kept->version);
    if (is_tensor(value)) {
        PyObject *extra = SLOT(value, core.t_extra);
        if (extra == Py_None || (SLOT(extra, core.e_counter) == Py_None && SLOT(extra, core.e_view) == Py_None) ||
            is_unchanged(extra, version)) {
            return Py_NewRef(value);
        }
    }
    return PyObject_CallFunctionObjArgs(core.unpack_input, node, kept->name, value,
                                        version == NULL ? Py_None : version, NULL);
}

/* A kept output, if it is still what it was: its array (a new reference) or None. */
static PyObject *
unpack_output(const Kept *kept, PyObject *node, PyObject *value, PyObject *number)
{
    if (is_plain(node) && Py_TYPE(value) != core.Freed) {
        return Py_NewRef(value);
    }
    return PyObject_CallFunctionObjArgs(core.unpack_output, node, number, kept->name, value, NULL);
}

/* What a slot of the node keeps (a new reference): an array, or in a recorded pass a tensor; or None. */
static PyObject *
unpack(const Kept *kept, PyObject *node, int recorded)
{
    PyObject *value = SLOT(node, kept->slot);
    if (value == NULL) {
        PyErr_Format(PyExc_AttributeError, "saved_%U", kept->name);
        return NULL;
    }
    if (value == Py_None) {
        return Py_NewRef(value);
    }
    if (kept->version) {
        PyObject *tensor = unpack_input(kept, node, value);
        if (tensor == NULL || tensor == Py_None || recorded) {
            return tensor;
        }
        PyObject *array = is_tensor(tensor) ? Py_NewRef(SLOT(tensor, core.t_array))
                                            : PyObject_GetAttrString(tensor, "_array");
        Py_DECREF(tensor);
        return array;
    }
    PyObject *number = PyLong_FromLong(kept->output);
    PyObject *array = number == NULL ? NULL : unpack_output(kept, node, value, number);
    if (recorded && array != NULL && array != Py_None) {
        Py_SETREF(array, PyObject_CallMethod(node, "output_tensor", "OOO", number, array, core.cpu));
    }
    Py_XDECREF(number);
    return array;
}

static PyObject *
needs_of(PyObject **edges, int count)
{
    PyObject *needs = PyTuple_New(count);
    for (int k = 0; needs != NULL && k < count; k++) {
        PyTuple_SET_ITEM(needs, k, PyBool_FromLong(edges[k] != Py_None));
    }
    return needs;
}

static int
joint_gradients(Pull *self, const Expression *rule, PyObject *const *arguments, PyObject **gradients)
{
    PyObject *returned = expression_value(rule, arguments);
    PyObject *sequence = returned == NULL ? NULL : PySequence_Fast(returned, "a rule returns its gradients in a list");
    Py_XDECREF(returned);
    if (sequence == NULL) {
        return -1;
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
    for (int k = 0; k < self->edge_count; k++) {
        PyObject *grad = k < count ? PySequence_Fast_GET_ITEM(sequence, k) : Py_None;
        gradients[k] = grad == Py_None ? NULL : Py_NewRef(grad);
    }
    Py_DECREF(sequence);
    return 0;
}

/* A value (taken over) that rules compute with: arrays of half precision in float32. */
static PyObject *
widened(PyObject *value)
{
    if (value == NULL || !is_narrow(value)) {
        return value;
    }
    PyObject *wide = cast_array((PyArrayObject *)value, PyArray_DescrFromType(NPY_FLOAT));
    Py_DECREF(value);
    return wide;
}

/* Whether the node behind an edge expects such a gradient as this one. */
static int
is_expected_below(PyObject *edge, PyObject *grad)
{
    PyObject *below = node_behind(edge);
    PyObject *shape = below == edge ? SLOT(below, core.n_shape) : NULL, *dtype = shape ? SLOT(below, core.n_dtype) : NULL;
    int is_so = dtype != NULL && fits(grad, shape, dtype) > 0;
    PyErr_Clear();
    return is_so;
}

/* Gradients of half precision that are computed block by block. Those of operands that were broadcast are not: their sums
 * are rounded, not what is added up. Returns whether all are there, -1 with an exception. */
static int
narrow_gradients(const Pull *self, const Rules *rules, PyObject **edges, PyObject *const *arguments, PyObject **gradients)
{
    int are_all_there = 1;
    for (int k = 0; k < self->edge_count; k++) {
        if (edges[k] == Py_None || rules->edges[k] == NULL) {
            continue;
        }
        if (is_expected_below(edges[k], arguments[0])) {
            gradients[k] = narrow_value(rules->edges[k], arguments);
        }
        if (gradients[k] == NULL && PyErr_Occurred()) {
            return -1;
        }
        are_all_there &= gradients[k] != NULL;
    }
    return are_all_there;
}

static int
widen_all(PyObject **arguments, int count)
{
    for (int k = 0; k < count; k++) {
        PyObject *wide = widened(Py_NewRef(arguments[k]));
        if (wide == NULL) {
            return -1;
        }
        Py_SETREF(arguments[k], wide);
    }
    return 0;
}

/* Put what the node keeps behind the gradient (new references): tensors, then values. How many arguments these are. -1
 * with an exception, and none. */
static int
read_back(const Pull *self, PyObject *node, int recorded, PyObject *grad, PyObject **arguments)
{
    int owned = 0;
    PyObject *params = SLOT(node, core.n_params);
    arguments[owned++] = Py_NewRef(grad);
    for (int k = 0; k < self->kept_count; k++) {
        PyObject *value = unpack(&self->kept[k], node, recorded);
        if (value == NULL) {
            goto failed;
        }
        arguments[owned++] = value;
    }
    if (self->value_count && (params == NULL || !PyTuple_Check(params) || PyTuple_GET_SIZE(params) < self->value_count)) {
        PyErr_Format(PyExc_ValueError, "the params of %s are not those that it was recorded with", Py_TYPE(node)->tp_name);
        goto failed;
    }
    for (int k = 0; k < self->value_count; k++) {
        arguments[owned++] = Py_NewRef(PyTuple_GET_ITEM(params, k));
    }
    return owned;
failed:
    while (owned > 0) {
        Py_DECREF(arguments[--owned]);
    }
    return -1;
}

/* See Note [When saved values die]. */
static void
drop_saved(const Pull *self, PyObject *node, PyObject *freed)
{
    for (int k = 0; k < self->kept_count; k++) {
        if (SLOT(node, self->kept[k].slot) != Py_None) {
            set_slot(node, self->kept[k].slot, Py_NewRef(freed));
        }
    }
}

/* What the rules of the edges give, where there is no gradient yet; -1 with an exception. */
static int
gradients_of_edges(const Pull *self, const Rules *rules, PyObject **edges, PyObject *const *arguments,
                   PyObject **gradients)
{
    for (int k = 0; k < self->edge_count; k++) {
        if (edges[k] == Py_None || rules->edges[k] == NULL || gradients[k] != NULL) {
            continue;
        }
        gradients[k] = expression_value(rules->edges[k], arguments);
        if (gradients[k] == NULL) {
            return -1;
        }
        if (gradients[k] == Py_None) {
            Py_CLEAR(gradients[k]);
        }
    }
    return 0;
}

/* The arguments of the rules are: gradient, kept tensors, values, needs. */
int
pull_gradients(PyObject *pull, PyObject *node, PyObject *grad, PyObject *edges, PyObject *keep, PyObject *xp,
               PyObject **gradients)
{
    Pull *self = (Pull *)pull;
    int recorded = xp == core.recorded;
    const Rules *rules = &self->rules[recorded ? OF_TENSORS : xp == core.cpu ? OF_ARRAYS : OF_DEVICE_ARRAYS];
    PyObject *arguments[MOST_VALUES + MOST_EDGES];
    if (!PyObject_TypeCheck(node, self->node)) {
        PyErr_Format(PyExc_TypeError, "pull() of %s was called with %s", self->node->tp_name, Py_TYPE(node)->tp_name);
        return -1;
    }
    memset(gradients, 0, self->edge_count * sizeof(PyObject *));
    PyObject **items = PyTuple_Check(edges) ? &PyTuple_GET_ITEM(edges, 0) : PySequence_Fast_ITEMS(edges);
    if (self->several && self->only >= 0) {
        grad = PyList_GET_ITEM(grad, self->only);
    }
    int owned = read_back(self, node, recorded, grad, arguments), status = -1;
    if (owned < 0) {
        return -1;
    }
    if (keep != Py_True) {
        drop_saved(self, node, keep);
    }
    int is_narrow_rule = xp == core.cpu && rules->joint == NULL && is_narrow(grad);
    int found = is_narrow_rule ? narrow_gradients(self, rules, items, arguments, gradients) : 0;
    if (found != 0 || widen_all(arguments, 1 + self->kept_count) < 0) {
        status = found > 0 ? 0 : -1;
    }
    else if (rules->joint == NULL) {
        status = gradients_of_edges(self, rules, items, arguments, gradients);
    }
    else if ((arguments[owned] = needs_of(items, self->edge_count)) != NULL) {
        owned++;
        status = joint_gradients(self, rules->joint, arguments, gradients);
    }
    while (owned > 0) {
        Py_DECREF(arguments[--owned]);
    }
    for (int k = 0; status < 0 && k < self->edge_count; k++) {
        Py_CLEAR(gradients[k]);
    }
    return status;
}

/* Whether the gradients of several outputs are a list of arrays, and None where there is none: not of the only one. */
static int
are_gradients(const Pull *self, PyObject *list, int on_device)
{
    if (!PyList_CheckExact(list) || self->only >= PyList_GET_SIZE(list) ||
        (self->only >= 0 && PyList_GET_ITEM(list, self->only) == Py_None)) {
        return 0;
    }
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list); k++) {
        PyObject *grad = PyList_GET_ITEM(list, k);
        if (grad != Py_None && (!(on_device ? is_device_array(grad) : PyArray_CheckExact(grad)) ||
                                is_narrow_type(dtype_of(grad)->type_num))) {
            return 0;
        }
    }
    return 1;
}

int
keeps_plainly(PyObject *pull, PyObject *node)
{
    Pull *self = (Pull *)pull;
    if (!PyObject_TypeCheck(node, self->node)) {
        return 0;
    }
    for (int k = 0; k < self->kept_count; k++) {
        PyObject *value = SLOT(node, self->kept[k].slot);
        if (value == NULL ||
            !(value == Py_None || is_tensor(value) || PyArray_CheckExact(value) || is_device_array(value))) {
            return 0;
        }
    }
    return 1;
}

int
pull_applies(PyObject *pull, PyObject *xp, PyObject *grad)
{
    Pull *self = (Pull *)pull;
    int size = pull_size(self);
    if (size <= 0) {
        return size;
    }
    int on_device = xp == core.device_xp && xp != NULL;
    if (self->several && !((on_device || xp == core.cpu) && are_gradients(self, grad, on_device))) {
        return 0;
    }
    if (on_device) {
        int applies = self->several || (is_device_array(grad) && !is_narrow_type(dtype_of(grad)->type_num));
        int found = applies ? find_device_rules(self) : 0;
        return found > 0 ? size : found;
    }
    if (self->several) {
        return size;
    }
    return (xp == core.cpu ? PyArray_CheckExact(grad) : xp == core.recorded && is_tensor(grad)) ? size : 0;
}

/* pull(node, xp, grad, edges, keep) */
static PyObject *
pull_call(PyObject *callable, PyObject *const *given, size_t flagged, PyObject *names)
{
    Pull *self = (Pull *)callable;
    PyObject *gradients[MOST_EDGES];
    Py_ssize_t count = PyVectorcall_NARGS(flagged);
    int size = names != NULL || count != 5 ? 0 : pull_applies(callable, given[1], given[2]);
    if (size < 0) {
        return NULL;
    }
    PyObject *edges = size == 0 ? NULL : given[3];
    if (size == 0 || !(PyTuple_Check(edges) || PyList_Check(edges)) || PySequence_Fast_GET_SIZE(edges) != size) {
        return PyObject_Vectorcall(self->function, given, flagged, names);
    }
    if (pull_gradients(callable, given[0], given[2], edges, given[4], given[1], gradients) < 0) {
        return NULL;
    }
    PyObject *results = PyList_New(size);
    for (int k = 0; k < size; k++) {
        PyObject *grad = gradients[k] == NULL ? Py_NewRef(Py_None) : gradients[k];
        if (results == NULL) {
            Py_DECREF(grad);
        }
        else {
            PyList_SET_ITEM(results, k, grad);
        }
    }
    return results;
}

/* ---- the type */

static PyObject *
pull_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "plan", NULL};
    PyObject *function, *plan;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", keywords, &function, &plan)) {
        return NULL;
    }
    Pull *self = (Pull *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = pull_call;
        self->function = Py_NewRef(function);
        self->plan = Py_NewRef(plan);
    }
    return (PyObject *)self;
}

static int
pull_traverse(Pull *self, visitproc visit, void *arg)
{
    Py_VISIT(self->plan);
    Py_VISIT(self->node);
    return stand_in_traverse((PyObject *)self, visit, arg); /* what the rules refer to lives as long as the process */
}

static int
pull_clear(Pull *self)
{
    Py_CLEAR(self->plan);
    Py_CLEAR(self->node);
    return stand_in_clear((PyObject *)self);
}

static void
pull_dealloc(Pull *self)
{
    PyObject_GC_UnTrack(self);
    for (int k = 0; k < MOST_EDGES; k++) {
        Py_CLEAR(self->kept[k].name);
        expression_free(self->rules[0].edges[k]);
        expression_free(self->rules[1].edges[k]);
        expression_free(self->rules[2].edges[k]);
    }
    expression_free(self->rules[0].joint);
    expression_free(self->rules[1].joint);
    expression_free(self->rules[2].joint);
    stand_in_dealloc((PyObject *)self);
}

PyTypeObject Pull_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Pull",
    .tp_base = &StandIn_Type,
    .tp_basicsize = sizeof(Pull),
    .tp_flags = STAND_IN_FLAGS,
    .tp_new = pull_new,
    .tp_dealloc = (destructor)pull_dealloc,
    .tp_traverse = (traverseproc)pull_traverse,
    .tp_clear = (inquiry)pull_clear,
    .tp_getset = stand_in_attributes,
};
