/* The end of the way: a gradient is stored in its leaf, or given to who asked for it. */
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
    if (extra == Py_None || SLOT(extra, core.e_grad) != Py_None || SLOT(variable, core.t_edge) == Py_None ||
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

/* Whether nothing rare hangs on a leaf with this extra that its gradient would have to meet. */
static int
is_quiet(PyObject *extra)
{
    PyObject *rare = extra == Py_None ? Py_None : SLOT(extra, core.e_rare);
    if (rare == Py_None) {
        return 1;
    }
    PyObject *answer = PyObject_GetAttrString(rare, "is_quiet");
    int quiet = answer == Py_True;
    Py_XDECREF(answer);
    PyErr_Clear(); /* Python meets what is wrong with it */
    return quiet;
}

/* 1 if the gradient was only given to who asked for it, and the leaf has nothing of it. */
static int
finish(Pass *pass, PyObject *node, PyObject *grad)
{
    PyObject *variable = SLOT(node, core.a_variable);
    PyObject *extra = variable != NULL && is_tensor(variable) ? SLOT(variable, core.t_extra) : NULL;
    int unshared = pass->in_place && grad != NULL && Py_REFCNT(grad) == 1;
    int status = 0;
    if (extra != NULL && is_plain(node) && is_quiet(extra)) {
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
    return !is_plain(node) || (extra != NULL && !is_quiet(extra));
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
        status = append_row(pass->rows, ROW_NODE, (PyObject *)Py_TYPE(node), begin, node, shape, NULL);
    }
    Py_XDECREF(shape);
    return status < 0 ? -1 : 0;
}
