/* Operations under vmap: what VmapLevel.run (autograd/vmap/level.py) does with an operation that is computed as always,
 * the dimension of the examples in front, which is that of all batches already. Everything else is left to Python. */
#include "call/batched.h"
#include "call/operation.h"

/* ---- batches */

static PyObject *
physical_array(PyObject *array) /* borrowed; NULL if it is no array of NumPy's */
{
    if (core.Example != NULL && Py_IS_TYPE(array, core.Example)) {
        array = SLOT(array, core.example_array);
    }
    return array != NULL && PyArray_CheckExact(array) ? array : NULL;
}

/* An array that looks like one example, which must be there. */
static PyObject *
example_of(PyArrayObject *array, npy_intp dim)
{
    int ndim = PyArray_NDIM(array);
    npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    for (int k = 0, to = 0; k < ndim; k++) {
        if (k != dim) {
            shape[to] = PyArray_DIMS(array)[k];
            strides[to++] = PyArray_STRIDES(array)[k];
        }
    }
    PyArray_Descr *dtype = PyArray_DESCR(array);
    Py_INCREF(dtype);
    PyObject *example = PyArray_NewFromDescr(&PyArray_Type, dtype, ndim - 1, shape, strides, PyArray_DATA(array),
                                             PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE, NULL);
    if (example != NULL && PyArray_SetBaseObject((PyArrayObject *)example, Py_NewRef(array)) < 0) {
        Py_CLEAR(example);
    }
    return example;
}

/* The BatchedTensor of a tensor (borrowed), whose dimension `dim` is that of the examples. */
static PyObject *
batch_of(PyObject *value, PyObject *dim, PyObject *level)
{
    PyObject *array = NULL;
    npy_intp place;
    if (is_tensor(value) || Py_IS_TYPE(value, core.BatchedTensor)) {
        array = physical_array(SLOT(value, core.t_array));
    }
    if (array == NULL || !read_size(dim, &place) || place < 0 || place >= PyArray_NDIM((PyArrayObject *)array) ||
        PyArray_DIMS((PyArrayObject *)array)[place] == 0) {
        return PyObject_CallFunctionObjArgs((PyObject *)core.BatchedTensor, value, dim, level, NULL);
    }
    PyObject *first = example_of((PyArrayObject *)array, place);
    PyObject *example = first == NULL ? NULL : core.Example->tp_alloc(core.Example, 0);
    PyObject *batch = example == NULL ? NULL : core.BatchedTensor->tp_alloc(core.BatchedTensor, 0);
    if (batch == NULL) {
        Py_XDECREF(example);
        Py_XDECREF(first);
        return NULL;
    }
    SLOT(example, core.example_array) = first;
    SLOT(batch, core.t_array) = example;
    SLOT(batch, core.t_xp) = Py_NewRef(SLOT(value, core.t_xp));
    SLOT(batch, core.t_extra) = Py_NewRef(Py_None);
    SLOT(batch, core.b_value) = Py_NewRef(value);
    SLOT(batch, core.b_dim) = Py_NewRef(dim);
    SLOT(batch, core.b_level) = Py_NewRef(level);
    return batch;
}

PyObject *
new_batch(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "batch() takes a tensor, a dimension and a level");
        return NULL;
    }
    return batch_of(args[0], args[1], args[2]);
}

/* ---- operations */

/* The innermost vmap that one of the values is a batch of (borrowed); NULL if there is none. */
static PyObject *
level_of(const Operation *self, PyObject *order, PyObject *const *values)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(order); k++) {
        PyObject *level = PyTuple_GET_ITEM(order, k);
        if (!Py_IS_TYPE(level, core.VmapLevel)) {
            return NULL;
        }
        for (int n = 0; n < self->count; n++) {
            if (Py_IS_TYPE(values[n], core.BatchedTensor) && SLOT(values[n], core.b_level) == level) {
                return level;
            }
        }
    }
    return NULL;
}

/* The values, with tensors of all examples in the place of batches; whether the operation can be called with these as it
 * is: they have one dtype, and the examples as many dimensions as anything beside them.
 *
 * duals  whether there is forward mode, in which the tangent of any tensor may be a batch */
static int
unwrap_all(const Operation *self, PyObject *level, int duals, PyObject *const *values, PyObject **whole)
{
    PyArray_Descr *dtype = NULL;
    int rank = -1, most = 0;
    for (int k = 0; k < self->count; k++) {
        PyObject *value = whole[k] = values[k];
        int is_batch = Py_IS_TYPE(value, core.BatchedTensor);
        if (!self->inputs[k] || !(is_batch || is_tensor(value))) {
            if (is_batch || is_tensor(value) || PyList_Check(value) || PyTuple_Check(value) ||
                (self->inputs[k] && value != Py_None && !PyFloat_CheckExact(value) && !PyLong_CheckExact(value))) {
                return 0;
            }
            continue;
        }
        PyObject *array = physical_array(SLOT(value, core.t_array));
        if (array == NULL || (dtype != NULL && PyArray_DESCR((PyArrayObject *)array) != dtype)) {
            return 0;
        }
        dtype = PyArray_DESCR((PyArrayObject *)array);
        int ndim = PyArray_NDIM((PyArrayObject *)array);
        if (is_batch && SLOT(value, core.b_level) == level) {
            npy_intp dim;
            if (!read_size(SLOT(value, core.b_dim), &dim) || dim != 0 || (rank >= 0 && rank != ndim)) {
                return 0;
            }
            rank = ndim;
            whole[k] = SLOT(value, core.b_value);
        }
        else if (duals && (is_batch || SLOT(value, core.t_extra) != Py_None)) {
            return 0;
        }
        most = ndim > most ? ndim : most;
    }
    return rank >= most;
}

/* Call the operation with these values while the state is `lowered`. */
static PyObject *
call_lowered(Operation *self, PyObject *state, PyObject *lowered, PyObject **whole)
{
    PyObject *result = NULL;
    if (set_variable(core.state_variable, lowered) == 0) {
        result = PyObject_Vectorcall((PyObject *)self, whole, self->positional, NULL);
    }
    if (put_back(core.state_variable, state) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

PyObject *
batched_result(Operation *self, PyObject *state, PyObject *const *values)
{
    PyObject *transforms = SLOT(state, core.s_intercept), *whole[MOST_ARGUMENTS];
    if (core.Transforms == NULL || !Py_IS_TYPE(transforms, core.Transforms)) {
        return NULL;
    }
    for (int k = self->positional; k < self->count; k++) {
        if (values[k] != self->defaults[k]) {
            return NULL;
        }
    }
    PyObject *order = SLOT(transforms, core.transforms_order);
    PyObject *level = level_of(self, order, values), *zero, *method;
    if (level == NULL ||
        !unwrap_all(self, level, PyTuple_GET_SIZE(SLOT(transforms, core.transforms_duals)) != 0, values, whole)) {
        return NULL;
    }
    Py_INCREF(level);
    for (int k = 0; k < self->positional; k++) { /* a batch may be told to look at other memory meanwhile */
        Py_INCREF(whole[k]);
    }
    method = PyUnicode_InternFromString("without");
    PyObject *below = method == NULL ? NULL : PyObject_CallMethodOneArg(transforms, method, level);
    Py_XDECREF(method);
    method = below == NULL ? NULL : PyUnicode_InternFromString("with_intercept");
    PyObject *lowered = method == NULL ? NULL : PyObject_CallMethodOneArg(state, method, below);
    Py_XDECREF(method);
    PyObject *out = lowered == NULL ? NULL : call_lowered(self, state, lowered, whole), *result = NULL;
    if (out != NULL && (zero = PyLong_FromLong(0)) != NULL) {
        result = batch_of(out, zero, level);
        Py_DECREF(zero);
    }
    for (int k = 0; k < self->positional; k++) {
        Py_DECREF(whole[k]);
    }
    Py_XDECREF(out);
    Py_XDECREF(lowered);
    Py_XDECREF(below);
    Py_DECREF(level);
    return result;
}
