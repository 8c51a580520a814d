/* The end of the way: a gradient is stored in its leaf, or given to who asked for it. */
#include "backward/arrivals.h"
#include "backward/pass.h"
#include "rows.h"

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

static int
have_same_strides(PyArrayObject *a, PyArrayObject *b)
{
    for (int k = 0; k < PyArray_NDIM(a) && k < PyArray_NDIM(b); k++) {
        if (PyArray_STRIDE(a, k) != PyArray_STRIDE(b, k)) {
            return 0;
        }
    }
    return PyArray_NDIM(a) == PyArray_NDIM(b);
}

/* The same of an array on a GPU, which must also lie as the leaf does. */
static int
is_own_on_device(PyObject *grad, PyObject *leaf)
{
    if (!is_device_array(grad) || !is_device_array(leaf)) {
        return 0;
    }
    const Array *mine = (Array *)grad, *other = (Array *)leaf, *base = (Array *)mine->base;
    int alone = base == NULL || (Py_REFCNT(base) == 1 && base->base == NULL && base->size == mine->size);
    return alone && mine->block->owner == NULL && mine->is_writeable && mine->nd == other->nd &&
           memcmp(mine->strides, other->strides, mine->nd * sizeof(npy_intp)) == 0;
}

/* Make the gradient (borrowed) the leaf's own, if it has none and nobody else holds this one; whether that was done.
 *
 * Nothing runs between the look at the leaf's gradient and the store, so no lock is needed: accumulate() of
 * graph/accumulate.py looks again before it stores a first gradient. */
static int
give_first(PyObject *variable, PyObject *grad)
{
    PyObject *extra = SLOT(variable, core.t_extra), *array = SLOT(variable, core.t_array);
    if (extra == Py_None || SLOT(extra, core.e_grad) != Py_None || SLOT(variable, core.t_edge) != core.LEAF ||
        SLOT(variable, core.t_xp) != (is_device_array(grad) ? core.device_xp : core.cpu)) {
        return 0;
    }
    PyArrayObject *mine = (PyArrayObject *)grad, *leaf = (PyArrayObject *)array;
    if (!is_own_on_device(grad, array) && !(PyArray_CheckExact(grad) && PyArray_CheckExact(array) &&
                                            has_own_memory(mine) && have_same_strides(mine, leaf))) {
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

/* What hangs on a leaf that its gradient would have to meet: nothing, only functions to call when it has it, or more. */
enum { NOTHING, CALLBACKS, MORE };

static PyObject *name_hooks, *name_last_hooks, *name_moved, *name_resized_at, *name_node, *name_accumulate;

static int
find_names(void)
{
    if (name_node == NULL) {
        name_hooks = PyUnicode_InternFromString("post_accumulate_hooks");
        name_last_hooks = PyUnicode_InternFromString("last_hooks");
        name_moved = PyUnicode_InternFromString("moved");
        name_resized_at = PyUnicode_InternFromString("resized_at");
        name_accumulate = PyUnicode_InternFromString("accumulate");
        name_node = PyUnicode_InternFromString("node");
    }
    return name_hooks == NULL || name_last_hooks == NULL || name_moved == NULL || name_resized_at == NULL ||
                   name_accumulate == NULL || name_node == NULL
               ? -1
               : 0;
}

/* The functions to call, new references or NULL: a dictionary of those that a program has registered, and a tuple of the
 * last ones. */
typedef struct {
    PyObject *hooks, *last;
} Callbacks;

static void
release(Callbacks *callbacks)
{
    Py_CLEAR(callbacks->hooks);
    Py_CLEAR(callbacks->last);
}

/* The Rare of tensor/extra.py has only what was set; names of attributes are interned. */
static int
hanging_on(PyObject *extra, Callbacks *callbacks)
{
    PyObject *rare = extra == Py_None ? Py_None : SLOT(extra, core.e_rare);
    if (rare == Py_None) {
        return NOTHING;
    }
    PyObject *facts = find_names() < 0 ? NULL : PyObject_GenericGetDict(rare, NULL);
    if (facts == NULL) {
        PyErr_Clear(); /* Python meets what is wrong with it */
        return MORE;
    }
    int found = NOTHING;
    PyObject *name, *value;
    for (Py_ssize_t k = 0; PyDict_Next(facts, &k, &name, &value);) {
        if (name == name_hooks || name == name_last_hooks) {
            *(name == name_hooks ? &callbacks->hooks : &callbacks->last) = Py_NewRef(value);
            found = found == NOTHING ? CALLBACKS : found;
        }
        else if (name != name_moved && name != name_resized_at) {
            found = MORE;
        }
    }
    Py_DECREF(facts);
    return found;
}

/* Say of the error that is being raised that it happened in this node. */
static void
describe(PyObject *task, PyObject *node)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL) {
        PyException_SetTraceback(error, trace);
    }
    PyObject *arguments[] = {task, node, error};
    PyObject *nothing = PyObject_Vectorcall(core.describe_failure, arguments, 3, NULL);
    Py_XDECREF(nothing);
    PyErr_Clear();
    PyErr_Restore(type, error, trace);
}

/* All that is to be called, a new list. */
static PyObject *
listed(const Callbacks *callbacks)
{
    PyObject *hooks = callbacks->hooks, *last = callbacks->last;
    PyObject *all = hooks != NULL && PyDict_Check(hooks) ? PyDict_Values(hooks) : PyList_New(0);
    if (all != NULL && last != NULL && PyList_SetSlice(all, PyList_GET_SIZE(all), PyList_GET_SIZE(all), last) < 0) {
        Py_CLEAR(all);
    }
    return all;
}

/* The Arrival (borrowed) that is all there is to call, or NULL. */
static PyObject *
only_arrival(const Callbacks *callbacks)
{
    PyObject *last = callbacks->last;
    if (callbacks->hooks != NULL || last == NULL || !PyTuple_CheckExact(last) || PyTuple_GET_SIZE(last) != 1) {
        return NULL;
    }
    return Py_IS_TYPE(PyTuple_GET_ITEM(last, 0), &Arrival_Type) ? PyTuple_GET_ITEM(last, 0) : NULL;
}

/* Call one function; `noted` is what an Arrival has left to do, or -1. */
static int
call_one(PyObject *function, int noted, PyObject *variable)
{
    PyObject *result =
        noted < 0 ? PyObject_CallOneArg(function, variable) : go_on_after_arrival(function, noted, variable);
    if (result != NULL && result != Py_None && result != variable) {
        Py_SETREF(result, PyObject_CallOneArg(core.refuse_result, result));
    }
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Call these functions, as part of this node. */
static int
call_each(Pass *pass, PyObject *node, PyObject *variable, PyObject *called, int noted)
{
    if (PyObject_SetAttr(pass->task, name_node, node) < 0) {
        return -1;
    }
    Py_INCREF(variable);
    int status = 0;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(called) && status == 0; k++) {
        status = call_one(PyList_GET_ITEM(called, k), noted, variable);
    }
    Py_DECREF(variable);
    if (status < 0) {
        describe(pass->task, node);
    }
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    if (PyObject_SetAttr(pass->task, name_node, Py_None) < 0) {
        PyErr_Clear();
    }
    PyErr_Restore(type, error, trace);
    return status;
}

/* Call what wants to know that the leaf has its gradient. For the parameters of a model whose gradients are averaged
 * that is an Arrival, whose usual work is done without a call. */
static int
call_back(Pass *pass, PyObject *node, PyObject *variable, const Callbacks *callbacks)
{
    PyObject *arrival = only_arrival(callbacks), *called = NULL;
    int noted = -1;
    if (arrival == NULL) {
        called = listed(callbacks);
    }
    else {
        Py_INCREF(arrival);
        noted = note_arrival(arrival, variable);
        called = noted == COMPLETE || noted == UNUSUAL ? PyList_New(0) : NULL;
        if (called != NULL && PyList_Append(called, arrival) < 0) {
            Py_CLEAR(called);
        }
        Py_DECREF(arrival);
        if (noted == TAKEN) {
            return 0;
        }
    }
    int status = called == NULL ? -1 : call_each(pass, node, variable, called, noted);
    Py_XDECREF(called);
    return status;
}

/* Store a gradient (borrowed), or add it to the leaf's, and call back. */
static int
accumulate_and_call_back(Pass *pass, PyObject *node, PyObject *variable, PyObject *grad, int unshared,
                         const Callbacks *callbacks)
{
    int stored = unshared ? give_first(variable, grad) : 0;
    if (stored == 0) {
        PyObject *own = unshared ? Py_True : Py_False;
        PyObject *nothing = PyObject_CallMethodObjArgs(node, name_accumulate, grad, own, NULL);
        Py_XDECREF(nothing);
        stored = nothing == NULL ? -1 : 1;
        if (nothing == NULL) {
            describe(pass->task, node);
        }
    }
    return stored < 0 ? -1 : call_back(pass, node, variable, callbacks);
}

/* 1 if the gradient was only given to who asked for it, and the leaf has nothing of it. */
static int
finish(Pass *pass, PyObject *node, PyObject *grad)
{
    PyObject *variable = SLOT(node, core.a_variable);
    PyObject *extra = variable != NULL && is_tensor(variable) ? SLOT(variable, core.t_extra) : NULL;
    int unshared = pass->in_place && grad != NULL && Py_REFCNT(grad) == 1;
    int status = 0;
    Callbacks callbacks = {NULL, NULL};
    int hanging = extra == NULL || !is_plain(node) ? MORE : hanging_on(extra, &callbacks);
    if (hanging == CALLBACKS && grad != NULL && pass->info == Py_None && pass->rows == Py_None) {
        status = accumulate_and_call_back(pass, node, variable, grad, unshared, &callbacks);
        Py_DECREF(grad);
        release(&callbacks);
        return status;
    }
    else if (hanging == NOTHING) {
        status = pass->info == Py_None ? 1 : capture(pass, node, grad);
        if (status < 1 || grad == NULL) {
            Py_XDECREF(grad);
            return status < 0 ? -1 : status == 0;
        }
        if (status == 1 && unshared && pass->info == Py_None && (status = give_first(variable, grad)) != 0) {
            Py_DECREF(grad);
            return status < 0 ? -1 : 0;
        }
    }
    release(&callbacks);
    PyObject *arguments[] = {pass->task, node, grad == NULL ? Py_None : grad, unshared ? Py_True : Py_False};
    PyObject *nothing = PyObject_Vectorcall(core.finish_leaf, arguments, 4, NULL);
    Py_XDECREF(nothing);
    Py_XDECREF(grad);
    return nothing == NULL ? -1 : 0;
}

/* Whether _finish_leaf leaves the node to evaluate(), and so to the watch of a profile. */
static int
is_evaluated(PyObject *node)
{
    PyObject *variable = SLOT(node, core.a_variable);
    PyObject *extra = variable != NULL && is_tensor(variable) ? SLOT(variable, core.t_extra) : NULL;
    Callbacks callbacks = {NULL, NULL};
    int is_plain_leaf = is_plain(node) && (extra == NULL || hanging_on(extra, &callbacks) == NOTHING);
    release(&callbacks);
    return !is_plain_leaf;
}

int
finish_leaf(Pass *pass, PyObject *node, PyObject *grad)
{
    if (pass->rows == Py_None || is_evaluated(node)) {
        return finish(pass, node, grad) < 0 ? -1 : 0;
    }
    PyObject *variable = SLOT(node, core.a_variable), *shape = NULL;
    if (variable != NULL && is_tensor(variable)) {
        shape = PyObject_GetAttrString(SLOT(variable, core.t_array), "shape");
    }
    long long begin = clock_now();
    int status = shape == NULL && PyErr_Occurred() ? -1 : finish(pass, node, grad);
    if (status == 0) {
        status = append_node(pass->rows, node, begin, shape, NULL);
    }
    Py_XDECREF(shape);
    return status < 0 ? -1 : 0;
}
