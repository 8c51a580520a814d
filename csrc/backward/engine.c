/* The inner loop of a backward pass: `_run` of engine/engine.py, in C.
 *
 * It serves passes that nobody watches. Nodes with anything out of the ordinary (hooks, captures on the way, undefined
 * gradients, several outputs) are left to the Python functions that _run calls for them, too.
 */
#include "backward/heap.h"

/* ---- a pass */

typedef struct {
    PyObject *task, *xp, *keep, *info, *wanted, *dependencies, *not_ready, *captured; /* of the GraphTask */
    PyObject *add;
    PyTypeObject *ndarray;
    PyObject *owned; /* the nodes whose gathered gradient is the engine's own */
    int in_place;
    Heap heap;
} Pass;

static PyObject *name_pull, *name_asarray, *name_sum_to, *name_dtype, *name_shape;

static int
intern_names(void)
{
    name_pull = PyUnicode_InternFromString("pull");
    name_sum_to = PyUnicode_InternFromString("sum_to");
    name_asarray = PyUnicode_InternFromString("asarray");
    name_dtype = PyUnicode_InternFromString("dtype");
    name_shape = PyUnicode_InternFromString("shape");
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *
as_array(Pass *pass, PyObject *value) /* takes the value over */
{
    if (Py_IS_TYPE(value, pass->ndarray)) {
        return value;
    }
    if (pass->xp == core.cpu) {
        return as_cpu_array(value);
    }
    PyObject *array = PyObject_CallMethodOneArg(pass->xp, name_asarray, value);
    Py_DECREF(value);
    return array;
}

static int
has_shape(PyArrayObject *array, PyObject *shape)
{
    if (!PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) != PyArray_NDIM(array)) {
        return 0;
    }
    for (int k = 0; k < PyArray_NDIM(array); k++) {
        if (PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k)) != PyArray_DIM(array, k)) {
            PyErr_Clear();
            return 0;
        }
    }
    return 1;
}

/* Whether a gradient is what the node below expects; -1 and an exception if that cannot be told. */
static int
fits(PyObject *grad, PyObject *shape, PyObject *dtype)
{
    if (Py_IS_TYPE(grad, core.Tensor) && PyArray_CheckExact(SLOT(grad, core.t_array))) {
        grad = SLOT(grad, core.t_array);
    }
    if (PyArray_CheckExact(grad)) {
        return (PyObject *)PyArray_DESCR((PyArrayObject *)grad) == dtype && has_shape((PyArrayObject *)grad, shape);
    }
    PyObject *own_dtype = PyObject_GetAttr(grad, name_dtype), *own_shape = PyObject_GetAttr(grad, name_shape);
    int same = own_dtype == NULL || own_shape == NULL ? -1
               : own_dtype != dtype                   ? 0
                                                      : PyObject_RichCompareBool(own_shape, shape, Py_EQ);
    Py_XDECREF(own_dtype);
    Py_XDECREF(own_shape);
    return same;
}

/* Whether a gradient need only be summed up to have that shape: the operand was broadcast. */
static int
was_broadcast(PyObject *grad, PyObject *shape, PyObject *dtype)
{
    PyObject *object = Py_IS_TYPE(grad, core.Tensor) ? SLOT(grad, core.t_array) : grad;
    PyArrayObject *array = (PyArrayObject *)object;
    if (!PyArray_CheckExact(object) || (PyObject *)PyArray_DESCR(array) != dtype || !PyTuple_CheckExact(shape) ||
        PyTuple_GET_SIZE(shape) > PyArray_NDIM(array)) {
        return 0;
    }
    int lead = PyArray_NDIM(array) - (int)PyTuple_GET_SIZE(shape);
    for (int k = lead; k < PyArray_NDIM(array); k++) {
        Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k - lead));
        if (size != 1 && size != PyArray_DIM(array, k)) {
            PyErr_Clear();
            return 0;
        }
    }
    return 1;
}

/* A gradient (taken over) in the shape and dtype that the node below expects. */
static PyObject *
conformed(Pass *pass, PyObject *node, int index, PyObject *grad, PyObject *below)
{
    grad = as_array(pass, grad);
    PyObject *shape = SLOT(below, core.n_shape), *dtype = SLOT(below, core.n_dtype);
    if (grad == NULL || shape == NULL || dtype == NULL) {
        Py_XDECREF(grad);
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_AttributeError, "a node does not say which gradient it expects");
        }
        return NULL;
    }
    int same = fits(grad, shape, dtype);
    if (same > 0) {
        return grad;
    }
    if (same == 0 && was_broadcast(grad, shape, dtype)) {
        PyObject *summed = PyObject_CallMethodObjArgs(pass->xp, name_sum_to, grad, shape, NULL);
        Py_DECREF(grad);
        return summed == NULL ? NULL : as_array(pass, summed);
    }
    PyObject *number = same < 0 ? NULL : PyLong_FromLong(index);
    PyObject *made =
        number == NULL ? NULL
                       : PyObject_CallFunctionObjArgs(core.conform, node, number, grad, shape, dtype, pass->xp, NULL);
    Py_XDECREF(number);
    Py_DECREF(grad);
    return made == NULL ? NULL : as_array(pass, made);
}

/* Add a gradient (taken over; NULL: none) to what the node below has got. */
static int
gather(Pass *pass, PyObject *below, PyObject *grad)
{
    if (grad == NULL) {
        return 0;
    }
    PyObject *old = PyDict_GetItemWithError(pass->not_ready, below);
    int status = -1;
    if (old == NULL) {
        status = PyErr_Occurred() ? -1 : PyDict_SetItem(pass->not_ready, below, grad);
        Py_DECREF(grad);
        return status;
    }
    Py_INCREF(old);
    int own = pass->owned == NULL ? 0 : PySet_Contains(pass->owned, below);
    PyObject *operands[] = {old, grad, old};
    PyObject *sum = own < 0 ? NULL : PyObject_Vectorcall(pass->add, operands, own ? 3 : 2, NULL);
    Py_DECREF(grad);
    if (sum != NULL && own) {
        status = 0;
    }
    else if (sum != NULL) {
        int dense = Py_IS_TYPE(sum, pass->ndarray);
        sum = as_array(pass, sum); /* a number; or sparse, which a dense one would not fit into */
        if (sum != NULL && dense && pass->in_place) {
            if (pass->owned == NULL) {
                pass->owned = PySet_New(NULL);
            }
            status = pass->owned == NULL ? -1 : PySet_Add(pass->owned, below);
        }
        else {
            status = sum == NULL ? -1 : 0;
        }
        status = status < 0 ? -1 : PyDict_SetItem(pass->not_ready, below, sum);
    }
    Py_XDECREF(sum);
    Py_DECREF(old);
    return status;
}

/* What the node below has got, taken from it: a new reference, or NULL for none. */
static PyObject *
gathered(Pass *pass, PyObject *below)
{
    PyObject *grad = PyDict_GetItemWithError(pass->not_ready, below);
    if (grad != NULL) {
        Py_INCREF(grad);
        if (PyDict_DelItem(pass->not_ready, below) < 0) {
            Py_CLEAR(grad);
        }
    }
    return grad;
}

/* ---- leaves */

/* Store the gradients that were asked for; 1 if the leaf is to get its gradient too, 2 if Python has to do it all. */
static int
capture(Pass *pass, PyObject *node, PyObject *grad)
{
    PyObject *info = PyDict_GetItemWithError(pass->info, node);
    if (info == NULL || !Py_IS_TYPE(info, core.ExecInfo)) {
        return PyErr_Occurred() ? -1 : 2;
    }
    PyObject *captures = SLOT(info, core.x_captures);
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(captures); k++) {
        if (PyObject_IsTrue(SLOT(PyList_GET_ITEM(captures, k), core.p_hooks))) {
            return 2;
        }
    }
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(captures); k++) {
        Py_ssize_t place = PyLong_AsSsize_t(SLOT(PyList_GET_ITEM(captures, k), core.p_output_idx));
        PyObject *value = grad == NULL ? Py_None : grad;
        if (PyList_SetItem(pass->captured, place, Py_NewRef(value)) < 0) {
            return -1;
        }
    }
    return SLOT(info, core.x_needed) == Py_True;
}

/* Whether the memory that an array shows is no other array's: its own, or that of an array which only it refers to. */
static int
has_own_memory(PyArrayObject *array)
{
    PyObject *base = PyArray_BASE(array);
    if (base == NULL) {
        return 1;
    }
    PyArrayObject *owner = (PyArrayObject *)base;
    return PyArray_CheckExact(base) && Py_REFCNT(base) == 1 && PyArray_BASE(owner) == NULL &&
           PyArray_CHKFLAGS(owner, NPY_ARRAY_OWNDATA) && PyArray_NBYTES(owner) == PyArray_NBYTES(array) &&
           PyArray_ISWRITEABLE(array);
}

/* Make the gradient (borrowed) the leaf's own, if it has none and nobody else holds this one; whether that was done.
 *
 * Nothing runs between the look at the leaf's gradient and the store, so no lock is needed: accumulate() of
 * graph/accumulate.py looks again before it stores a first gradient. */
static int
give_first(PyObject *variable, PyObject *grad)
{
    PyObject *extra = SLOT(variable, core.t_extra), *array = SLOT(variable, core.t_array);
    if (extra == Py_None || SLOT(extra, core.e_grad) != Py_None || SLOT(variable, core.t_edge) == Py_None ||
        SLOT(variable, core.t_xp) != core.cpu || !PyArray_CheckExact(grad) || !PyArray_CheckExact(array)) {
        return 0;
    }
    PyArrayObject *mine = (PyArrayObject *)grad, *leaf = (PyArrayObject *)array;
    if (!has_own_memory(mine) || PyArray_NDIM(mine) != PyArray_NDIM(leaf) ||
        memcmp(PyArray_STRIDES(mine), PyArray_STRIDES(leaf), PyArray_NDIM(mine) * sizeof(npy_intp)) != 0) {
        return 0;
    }
    PyObject *tensor = new_tensor(Py_NewRef(grad), Py_None, Py_None);
    if (tensor == NULL) {
        return -1;
    }
    if (SLOT(extra, core.e_grad) != Py_None) { /* making the tensor may have run the garbage collector */
        Py_DECREF(tensor);
        return 0;
    }
    set_slot(extra, core.e_grad, tensor);
    return 1;
}

/* Run an AccumulateGrad node, as _finish_leaf does; the gradient (NULL: none) is taken over. */
static int
finish_leaf(Pass *pass, PyObject *node, PyObject *grad)
{
    PyObject *variable = SLOT(node, core.a_variable);
    PyObject *extra = is_tensor(variable) ? SLOT(variable, core.t_extra) : NULL;
    int unshared = pass->in_place && grad != NULL && Py_REFCNT(grad) == 1;
    int status = 0;
    if (extra != NULL && SLOT(node, core.n_extra) == Py_None &&
        (extra == Py_None || SLOT(extra, core.e_rare) == Py_None)) {
        status = pass->info == Py_None ? 1 : capture(pass, node, grad);
        if (status < 1 || grad == NULL) {
            Py_XDECREF(grad);
            return status < 0 ? -1 : 0;
        }
        if (status == 1 && unshared && pass->info == Py_None && (status = give_first(variable, grad)) != 0) {
            Py_DECREF(grad);
            return status < 0 ? -1 : 0;
        }
    }
    PyObject *arguments[] = {pass->task, node, grad == NULL ? Py_None : grad, unshared ? Py_True : Py_False};
    PyObject *nothing = PyObject_Vectorcall(core.finish_leaf, arguments, 4, NULL);
    Py_XDECREF(nothing);
    Py_XDECREF(grad);
    return nothing == NULL ? -1 : 0;
}

/* ---- running */

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

static int
is_unusual(Pass *pass, PyObject *node, PyObject *grad)
{
    if (SLOT(node, core.n_extra) != Py_None || grad == NULL) {
        return 1;
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
    results->list = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
    results->edges = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
    Py_DECREF(pair);
    if (!PyList_CheckExact(results->list)) {
        Py_SETREF(results->list, PySequence_List(results->list));
    }
    return results->list == NULL ? -1 : 0;
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
        results->edges = edges != NULL ? Py_NewRef(edges) : PyErr_Occurred() ? NULL : PyTuple_New(0);
    }
    if (results->edges == NULL) {
        return -1;
    }
    PyObject *pull = PyObject_GetAttr((PyObject *)Py_TYPE(node), name_pull);
    if (pull == NULL) {
        return -1;
    }
    Py_DECREF(pull); /* its class keeps it */
    if (Py_IS_TYPE(pull, &Pull_Type)) {
        int size = pull_applies(pull, pass->xp, grad);
        if (size < 0) {
            return -1;
        }
        if (size > 0 && PySequence_Fast_GET_SIZE(results->edges) == size) {
            if (pull_gradients(pull, node, grad, results->edges, pass->keep, pass->xp != core.cpu, results->few) < 0) {
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

/* One gradient less to wait for; how many are left, and -1 with an exception. */
static Py_ssize_t
count_down(Pass *pass, PyObject *below, Py_ssize_t waiting)
{
    /* counted up from below zero once the first of several has come: 1 always means the only one */
    waiting = waiting < 0 ? waiting + 1 : 1 - waiting;
    PyObject *number = PyLong_FromSsize_t(waiting);
    int status = number == NULL ? -1 : PyDict_SetItem(pass->dependencies, below, number);
    Py_XDECREF(number);
    return status < 0 ? -1 : waiting != 0;
}

static int
dependencies_of(Pass *pass, PyObject *node, Py_ssize_t *count)
{
    PyObject *number = PyDict_GetItemWithError(pass->dependencies, node);
    if (number == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetObject(PyExc_KeyError, node);
        }
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
    PyObject *below = edge;
    Py_ssize_t waiting;
    if (Py_IS_TYPE(edge, core.OutputEdge)) {
        below = PyTuple_GET_ITEM(edge, 0);
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
        if (waiting != 1) {
            if (gather(pass, below, grad) < 0) {
                return -1;
            }
            waiting = count_down(pass, below, waiting);
            if (waiting) {
                return waiting < 0 ? -1 : 0;
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

/* Run the pass from its root on; *node is the one that runs (a new reference), also if it fails. */
static int
run_nodes(Pass *pass, PyObject **node)
{
    PyObject *grad = Py_NewRef(Py_True); /* the root's; it is not looked at */
    for (unsigned long ran = 0;; ran++) {
        Results results;
        if (ran % TURN == TURN - 1 && yield_turn() < 0) {
            Py_XDECREF(grad);
            return -1;
        }
        int status = run_node(pass, *node, grad, &results);
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

/* run_pass(task, root, running): run the task from its root. `running` is a list of one node, the one that runs. */
PyObject *
run_pass(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3 || !PyList_Check(arguments[2]) || (name_pull == NULL && intern_names() < 0)) {
        PyErr_SetString(PyExc_TypeError, "run_pass(task, root, running)");
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
    PyObject *in_place = field(pass.task, "in_place", &failed);
    pass.in_place = in_place == Py_True;
    Py_XDECREF(in_place);
    pass.add = failed ? NULL : field(pass.xp, "add", &failed);
    PyObject *ndarray = failed ? NULL : field(pass.xp, "ndarray", &failed);
    pass.ndarray = (PyTypeObject *)ndarray;
    PyObject *node = Py_NewRef(arguments[1]);
    if (!failed) {
        failed = run_nodes(&pass, &node) < 0;
        if (failed) { /* PyList_SetItem would lose the exception only if it failed itself, which it cannot */
            PyList_SetItem(arguments[2], 0, Py_NewRef(node));
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
    Py_XDECREF(pass.add);
    Py_XDECREF(ndarray);
    Py_XDECREF(pass.owned);
    return failed ? NULL : Py_NewRef(Py_None);
}
