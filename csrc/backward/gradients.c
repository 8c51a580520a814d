/* Gradients on their way to a node: brought into the shape it expects, and added up until all have come. */
#include "backward/pass.h"
#include "formula/blocks.h"
#include "formula/small_arrays.h"

static PyObject *name_asarray, *name_sum_to, *name_dtype, *name_shape;

int
find_array_names(void)
{
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
has_shape(PyObject *array, PyObject *shape)
{
    int ndim = ndim_of(array);
    const npy_intp *dims = dims_of(array);
    if (!PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) != ndim) {
        return 0;
    }
    for (int k = 0; k < ndim; k++) {
        if (PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k)) != dims[k]) {
            PyErr_Clear();
            return 0;
        }
    }
    return 1;
}

int
fits(PyObject *grad, PyObject *shape, PyObject *dtype)
{
    if (!PyArray_CheckExact(grad) && is_tensor(grad) && PyArray_CheckExact(SLOT(grad, core.t_array))) {
        grad = SLOT(grad, core.t_array);
    }
    if (PyArray_CheckExact(grad) || is_device_array(grad)) {
        return (PyObject *)dtype_of(grad) == dtype && has_shape(grad, shape);
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
    PyObject *object = is_tensor(grad) ? SLOT(grad, core.t_array) : grad;
    if (!(PyArray_CheckExact(object) || is_device_array(object)) || (PyObject *)dtype_of(object) != dtype ||
        !PyTuple_CheckExact(shape) || PyTuple_GET_SIZE(shape) > ndim_of(object)) {
        return 0;
    }
    int lead = ndim_of(object) - (int)PyTuple_GET_SIZE(shape);
    for (int k = lead; k < ndim_of(object); k++) {
        Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k - lead));
        if (size != 1 && size != dims_of(object)[k]) {
            PyErr_Clear();
            return 0;
        }
    }
    return 1;
}

PyObject *
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

/* The sum of two gradients that are small arrays; otherwise NULL. In the place of the first, if that is our own. */
static PyObject *
small_sum(Pass *pass, PyObject *old, PyObject *grad, int own)
{
    if (pass->xp != core.cpu) {
        return NULL;
    }
    if (!own) {
        return new_small_result(symbol_of(pass->add), old, grad);
    }
    return PyArray_CheckExact(old) && change_small(pass->add, (PyArrayObject *)old, grad) ? Py_NewRef(old) : NULL;
}

/* The sum of any two. */
static PyObject *
added(Pass *pass, PyObject *old, PyObject *grad, int own)
{
    PyObject *operands[] = {old, grad, old}, *sum = small_sum(pass, old, grad, own);
    if (sum != NULL) {
        return sum;
    }
    if (own) {
        int done = change_large(pass->add, old, grad);
        sum = done > 0 ? Py_NewRef(old) : NULL;
    }
    else {
        sum = large_result(pass->add, old, grad);
    }
    return sum != NULL || PyErr_Occurred() ? sum : PyObject_Vectorcall(pass->add, operands, own ? 3 : 2, NULL);
}

int
gather_gradient(Pass *pass, PyObject *below, PyObject *grad)
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
    PyObject *sum = own < 0 ? NULL : added(pass, old, grad, own);
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

PyObject *
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
