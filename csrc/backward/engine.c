/* The inner loop of a backward pass: `_run_loop` of engine/loop.py, in C.
 *
 * It serves passes that nobody watches but a profile. Nodes with anything out of the ordinary (hooks, captures on the
 * way, undefined gradients), and the InputBuffers of nodes with several outputs, are left to the Python functions that
 * _run_loop calls for them, too.
 */
#include "backward/pass.h"
#include "rows.h"

static PyObject *name_pull;

/* What running a node gave: gradients for its edges. */
typedef struct {
    PyObject *edges;               /* a tuple or list, owned */
    Py_ssize_t count;
    PyObject *few[MOST_EDGES];     /* owned, NULL for none */
    PyObject *list;                /* the gradients, if Python computed them */
} Results;

static void
forget(Results *results)
{
    if (results->list == NULL) {
        for (Py_ssize_t k = 0; k < results->count; k++) {
            Py_CLEAR(results->few[k]);
        }
    }
    Py_CLEAR(results->list);
    Py_CLEAR(results->edges);
}

/* The k-th gradient: a new reference, or NULL for none. Nobody else keeps it. */
static PyObject *
take(Results *results, Py_ssize_t k)
{
    PyObject *grad;
    if (results->list == NULL) {
        grad = results->few[k];
        results->few[k] = NULL;
        return grad;
    }
    if (k >= PyList_GET_SIZE(results->list)) {
        PyErr_SetString(PyExc_IndexError, "a node returned fewer gradients than it has edges");
        return NULL;
    }
    grad = PyList_GET_ITEM(results->list, k);
    PyList_SET_ITEM(results->list, k, Py_NewRef(Py_None));
    if (grad == Py_None) {
        Py_DECREF(grad);
        return NULL;
    }
    return grad;
}

static PyObject *pull_of(PyTypeObject *type);

/* Whether an extra of a node's own says no more than which versions its saved outputs have, and where it ran. */
static int
says_versions_alone(PyObject *extra)
{
    static PyObject *counters, *stream;
    if (counters == NULL) {
        counters = PyUnicode_InternFromString("counters");
        stream = PyUnicode_InternFromString("stream");
    }
    if (extra == NULL || core.StreamExtra == NULL || !Py_IS_TYPE(extra, core.StreamExtra->tp_base)) {
        return 0;
    }
    PyObject *facts = counters == NULL || stream == NULL ? NULL : PyObject_GenericGetDict(extra, NULL);
    int known = facts != NULL && PyDict_Contains(facts, counters) == 1;
    int found = known && PyDict_GET_SIZE(facts) == 1 + (PyDict_Contains(facts, stream) == 1);
    Py_XDECREF(facts);
    PyErr_Clear(); /* Python meets what is wrong with it */
    return found;
}

static int
is_unusual(Pass *pass, PyObject *node, PyObject *grad)
{
    if (grad == NULL) {
        return 1;
    }
    if (!is_plain(node)) {
        PyObject *pull = says_versions_alone(SLOT(node, core.n_extra)) ? pull_of(Py_TYPE(node)) : NULL;
        if (pull == NULL || !Py_IS_TYPE(pull, &Pull_Type) || pull_applies(pull, pass->xp, grad) <= 0 ||
            !keeps_plainly(pull, node)) {
            return 1;
        }
    }
    return pass->info != Py_None && PyDict_GetItemWithError(pass->info, node) != core.RUNS;
}

static int
evaluate(Pass *pass, PyObject *node, PyObject *grad, Results *results)
{
    PyObject *arguments[] = {pass->task, node, grad == NULL ? Py_None : grad};
    PyObject *pair = PyObject_Vectorcall(core.evaluate, arguments, 3, NULL);
    if (pair == NULL) {
        return -1;
    }
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "evaluate() returns gradients and edges");
        Py_DECREF(pair);
        return -1;
    }
    results->list = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
    results->edges = checked_edges(Py_NewRef(PyTuple_GET_ITEM(pair, 1)));
    Py_DECREF(pair);
    if (results->edges == NULL) {
        return -1;
    }
    if (!PyList_CheckExact(results->list)) {
        Py_SETREF(results->list, PySequence_List(results->list));
    }
    return results->list == NULL ? -1 : 0;
}

#define CLASSES 64

/* The `pull` of a class of nodes, borrowed. The last found are kept: the tag of a class changes with its attributes. */
static PyObject *
pull_of(PyTypeObject *type)
{
    static struct {
        PyTypeObject *type;
        unsigned int tag;
        PyObject *pull;
    } found[CLASSES];
    size_t place = ((size_t)type / 64) % CLASSES;
    if (found[place].type == type && found[place].tag == type->tp_version_tag && type->tp_version_tag != 0) {
        return found[place].pull;
    }
    PyObject *pull = PyObject_GetAttr((PyObject *)type, name_pull);
    if (pull != NULL) {
        Py_DECREF(pull); /* its class keeps it */
        found[place].type = type;
        found[place].tag = type->tp_version_tag;
        found[place].pull = pull;
    }
    return pull;
}

/* Run a node: its gradients, and the edges they are for. */
static int
run_node(Pass *pass, PyObject *node, PyObject *grad, Results *results)
{
    results->list = results->edges = NULL;
    results->count = 0;
    if (is_unusual(pass, node, grad)) {
        return PyErr_Occurred() ? -1 : evaluate(pass, node, grad, results);
    }
    if (pass->wanted == Py_None) {
        results->edges = edges_of(node);
    }
    else {
        PyObject *edges = PyDict_GetItemWithError(pass->wanted, node);
        results->edges = edges != NULL ? checked_edges(Py_NewRef(edges)) : PyErr_Occurred() ? NULL : PyTuple_New(0);
    }
    if (results->edges == NULL) {
        return -1;
    }
    PyObject *pull = pull_of(Py_TYPE(node));
    if (pull == NULL) {
        return -1;
    }
    if (Py_IS_TYPE(pull, &Pull_Type)) {
        int size = pull_applies(pull, pass->xp, grad);
        if (size < 0) {
            return -1;
        }
        if (size > 0 && PySequence_Fast_GET_SIZE(results->edges) == size) {
            if (pull_gradients(pull, node, grad, results->edges, pass->keep, pass->xp, results->few) < 0) {
                return -1;
            }
            results->count = size;
            return 0;
        }
    }
    PyObject *arguments[] = {node, pass->xp, grad, results->edges, pass->keep};
    results->list = PyObject_VectorcallMethod(name_pull, arguments, 5, NULL);
    if (results->list != NULL && !PyList_CheckExact(results->list)) {
        Py_SETREF(results->list, PySequence_List(results->list));
    }
    return results->list == NULL ? -1 : 0;
}

/* Run a node of a pass that is profiled. What evaluate() runs has its row from the watch of the profile. */
static int
run_timed(Pass *pass, PyObject *node, PyObject *grad, Results *results)
{
    int by_python = is_unusual(pass, node, grad);
    long long begin = clock_now();
    int status = run_node(pass, node, grad, results);
    if (status < 0 || by_python) {
        return status;
    }
    return append_node(pass->rows, node, begin, SLOT(node, core.n_shape), results->edges);
}

static int
set_dependencies(Pass *pass, PyObject *node, Py_ssize_t count)
{
    PyObject *number = PyLong_FromSsize_t(count);
    int status = number == NULL ? -1 : PyDict_SetItem(pass->dependencies, node, number);
    Py_XDECREF(number);
    return status;
}

static int
dependencies_of(Pass *pass, PyObject *node, Py_ssize_t *count)
{
    PyObject *number = PyDict_GetItemWithError(pass->dependencies, node);
    if (number == NULL) {
        Py_XDECREF(PyErr_Occurred() ? NULL : PyObject_GetItem(pass->dependencies, node)); /* which says why */
        return -1;
    }
    *count = PyLong_AsSsize_t(number);
    return 0;
}

/* Bring the gradient of one edge to the node below. *ready is that node (a new reference), if it can run now and is no
 * leaf, and *ready_grad its gradient. */
static int
deliver(Pass *pass, PyObject *node, int index, PyObject *edge, PyObject *grad, PyObject **ready, PyObject **ready_grad)
{
    PyObject *below = node_behind(edge);
    Py_ssize_t waiting;
    if (below == NULL) {
        Py_XDECREF(grad);
        return -1;
    }
    if (below != edge) {
        PyObject *number = PyLong_FromLong(index);
        PyObject *arguments[] = {pass->task, node, number, edge, grad == NULL ? Py_None : grad};
        PyObject *content = number == NULL ? NULL : PyObject_Vectorcall(core.buffered, arguments, 5, NULL);
        Py_XDECREF(number);
        Py_XDECREF(grad);
        if (content == NULL || dependencies_of(pass, below, &waiting) < 0) {
            Py_XDECREF(content);
            return -1;
        }
        if (waiting) {
            Py_DECREF(content);
            return 0;
        }
        if (content == Py_None) {
            Py_CLEAR(content);
        }
        grad = content;
    }
    else {
        if (grad != NULL && (grad = conformed(pass, node, index, grad, below)) == NULL) {
            return -1;
        }
        if (dependencies_of(pass, below, &waiting) < 0) {
            Py_XDECREF(grad);
            return -1;
        }
        int earlier = waiting != 1 || (PyDict_GET_SIZE(pass->not_ready) && PyDict_Contains(pass->not_ready, below));
        if (set_dependencies(pass, below, waiting - 1) < 0) {
            Py_XDECREF(grad);
            return -1;
        }
        if (earlier) {
            if (gather_gradient(pass, below, grad) < 0) {
                return -1;
            }
            if (waiting != 1) {
                return 0;
            }
            grad = gathered(pass, below);
            if (grad == NULL && PyErr_Occurred()) {
                return -1;
            }
        }
    }
    if (Py_IS_TYPE(below, core.AccumulateGrad)) {
        return finish_leaf(pass, below, grad);
    }
    *ready = Py_NewRef(below);
    *ready_grad = grad;
    return 0;
}

/* How many nodes run before other threads and signal handlers get their turn. */
#define TURN 128

/* Calling a Python function makes the interpreter look whether a signal came or another thread waits for its lock.
 * (Giving up the lock unasked would keep that thread from ever asking.) */
static int
yield_turn(void)
{
    PyObject *nothing = PyObject_CallNoArgs(core.pause);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

/* Run the pass from its root on, whose gradient is taken over (NULL: none); *node is the one that runs (a new
 * reference), also if it fails. */
static int
run_nodes(Pass *pass, PyObject **node, PyObject *grad)
{
    for (unsigned long ran = 0;; ran++) {
        Results results;
        if (ran % TURN == TURN - 1 && yield_turn() < 0) {
            Py_XDECREF(grad);
            return -1;
        }
        /* a GraphRoot stands for nothing that a program did */
        int is_timed = pass->rows != Py_None && !(ran == 0 && pass->has_graph_root);
        int status = (is_timed ? run_timed : run_node)(pass, *node, grad, &results);
        Py_CLEAR(grad);
        PyObject *following = NULL;
        Py_ssize_t count = status < 0 ? 0 : PySequence_Fast_GET_SIZE(results.edges);
        for (Py_ssize_t k = 0; k < count && status == 0; k++) {
            PyObject *edge = PySequence_Fast_GET_ITEM(results.edges, k);
            if (edge == Py_None) {
                continue;
            }
            PyObject *received = take(&results, k), *ready = NULL, *ready_grad = NULL;
            if (received == NULL && PyErr_Occurred()) {
                status = -1;
                break;
            }
            status = deliver(pass, *node, (int)k, edge, received, &ready, &ready_grad);
            if (ready != NULL && following == NULL) {
                following = ready;
                grad = ready_grad;
            }
            else if (ready != NULL) {
                status = heap_push(&pass->heap, ready, ready_grad);
            }
        }
        forget(&results);
        if (status == 0 && following != NULL && pass->heap.count) {
            status = heap_push(&pass->heap, following, grad);
            following = grad = NULL;
        }
        if (status < 0) {
            Py_XDECREF(following);
            Py_XDECREF(grad);
            return -1;
        }
        if (following == NULL) {
            if (!pass->heap.count) {
                return 0;
            }
            Ready next = heap_pop(&pass->heap);
            following = next.node;
            grad = next.grad;
        }
        Py_SETREF(*node, following);
    }
}

static PyObject *
field(PyObject *task, const char *name, int *failed)
{
    PyObject *value = PyObject_GetAttrString(task, name);
    *failed |= value == NULL;
    return value;
}

/* Whether the fields of a task, and its root, are what the loop takes them for. */
static int
is_runnable(const Pass *pass, PyObject *root)
{
    return PyObject_TypeCheck(root, core.Node) && PyDict_Check(pass->dependencies) && PyDict_Check(pass->not_ready) &&
           PyList_Check(pass->captured) && (pass->rows == Py_None || Py_IS_TYPE(pass->rows, &Rows_Type)) &&
           (pass->info == Py_None || PyDict_Check(pass->info)) &&
           (pass->wanted == Py_None || PyDict_Check(pass->wanted)) && PyType_Check((PyObject *)pass->ndarray);
}

/* run_pass(task, root, grad, running): run the task from its root. `running` is a list of one node, the one that runs. */
PyObject *
run_pass(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 4 || !PyList_Check(arguments[3]) || PyList_GET_SIZE(arguments[3]) == 0) {
        PyErr_SetString(PyExc_TypeError, "run_pass(task, root, grad, running)");
        return NULL;
    }
    if (name_pull == NULL && (find_array_names() < 0 || (name_pull = PyUnicode_InternFromString("pull")) == NULL)) {
        return NULL;
    }
    Pass pass = {.task = arguments[0]};
    int failed = 0;
    pass.xp = field(pass.task, "xp", &failed);
    pass.keep = field(pass.task, "keep", &failed);
    pass.info = field(pass.task, "exec_info", &failed);
    pass.wanted = field(pass.task, "wanted_edges", &failed);
    pass.dependencies = field(pass.task, "dependencies", &failed);
    pass.not_ready = field(pass.task, "not_ready", &failed);
    pass.captured = field(pass.task, "captured_vars", &failed);
    pass.rows = field(pass.task, "rows", &failed);
    PyObject *seed = field(pass.task, "seed", &failed);
    pass.has_graph_root = seed == Py_None;
    Py_XDECREF(seed);
    PyObject *in_place = field(pass.task, "in_place", &failed);
    pass.in_place = in_place == Py_True;
    Py_XDECREF(in_place);
    pass.add = failed ? NULL : field(pass.xp, "add", &failed);
    PyObject *ndarray = failed ? NULL : field(pass.xp, "ndarray", &failed);
    pass.ndarray = (PyTypeObject *)ndarray;
    PyObject *node = Py_NewRef(arguments[1]);
    if (!failed && !is_runnable(&pass, node)) {
        PyErr_SetString(PyExc_TypeError, "run_pass() was given a task that no pass can run");
        failed = 1;
    }
    if (!failed) {
        failed = run_nodes(&pass, &node, arguments[2] == Py_None ? NULL : Py_NewRef(arguments[2])) < 0;
        if (failed) { /* PyList_SetItem would lose the exception only if it failed itself, which it cannot */
            PyList_SetItem(arguments[3], 0, Py_NewRef(node));
        }
    }
    Py_DECREF(node);
    heap_free(&pass.heap);
    Py_XDECREF(pass.xp);
    Py_XDECREF(pass.keep);
    Py_XDECREF(pass.info);
    Py_XDECREF(pass.wanted);
    Py_XDECREF(pass.dependencies);
    Py_XDECREF(pass.not_ready);
    Py_XDECREF(pass.captured);
    Py_XDECREF(pass.rows);
    Py_XDECREF(pass.add);
    Py_XDECREF(ndarray);
    Py_XDECREF(pass.owned);
    return failed ? NULL : Py_NewRef(Py_None);
}
