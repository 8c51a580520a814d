/* Functions of the namespace that go without Python in the case they are mostly called for.
 *
 * Each is bound to the function that does everything else: shortcut(name, function).
 */
#include "cuda/cuda.h"

/* The product of two matrices; NULL without an exception: it is not for this file. */
static PyObject *
product_of_matrices(PyObject *const *pair)
{
    if (!IS_ARRAY(pair[1]) || !IS_ARRAY(pair[0]) || ((Array *)pair[0])->nd != 2 || ((Array *)pair[1])->nd != 2) {
        return NULL;
    }
    PyObject *found = module_matmul(NULL, pair, 2);
    if (found == NULL && (PyErr_ExceptionMatches(PyExc_NotImplementedError) || PyErr_ExceptionMatches(PyExc_ValueError))) {
        PyErr_Clear(); /* dtypes or sizes that do not agree: the function says so in its own words */
    }
    return found;
}

static PyObject *
short_mm(PyObject *whole, PyObject *const *given, Py_ssize_t count)
{
    PyObject *found = count == 2 ? product_of_matrices(given) : NULL;
    return found != NULL || PyErr_Occurred() ? found : PyObject_Vectorcall(whole, given, count, NULL);
}

static PyObject *
short_t(PyObject *whole, PyObject *const *given, Py_ssize_t count)
{
    if (count == 1 && IS_ARRAY(given[0]) && ((Array *)given[0])->nd == 2) {
        return array_transpose(given[0], NULL, 0);
    }
    return PyObject_Vectorcall(whole, given, count, NULL);
}

static PyObject *
short_conj(PyObject *whole, PyObject *const *given, Py_ssize_t count)
{
    if (count == 1 && IS_ARRAY(given[0])) {
        int code = ((Array *)given[0])->code;
        if (code != CODE_C64 && code != CODE_C128 && code != CODE_UNKNOWN) {
            return Py_NewRef(given[0]);
        }
    }
    return PyObject_Vectorcall(whole, given, count, NULL);
}

static PyObject *
short_swapaxes(PyObject *whole, PyObject *const *given, Py_ssize_t count)
{
    if (count == 3 && IS_ARRAY(given[0])) {
        return array_swapaxes(given[0], given + 1, 2);
    }
    return PyObject_Vectorcall(whole, given, count, NULL);
}

static PyObject *
short_transpose(PyObject *whole, PyObject *const *given, Py_ssize_t count)
{
    if ((count == 1 || count == 2) && IS_ARRAY(given[0])) {
        return array_transpose(given[0], given + 1, count - 1);
    }
    return PyObject_Vectorcall(whole, given, count, NULL);
}

/* reshape(array, shape) */
static PyObject *
short_reshape(PyObject *whole, PyObject *const *given, Py_ssize_t count)
{
    if (count == 2 && IS_ARRAY(given[0])) {
        return array_reshape(given[0], given + 1, 1);
    }
    return PyObject_Vectorcall(whole, given, count, NULL);
}

/* expand_dims(array, axis) */
static PyObject *
short_expand_dims(PyObject *whole, PyObject *const *given, Py_ssize_t count)
{
    if (count != 2 || !IS_ARRAY(given[0]) || !PyLong_CheckExact(given[1]) || ((Array *)given[0])->nd >= MOST_DIMS) {
        return PyObject_Vectorcall(whole, given, count, NULL);
    }
    Array *array = (Array *)given[0];
    npy_intp dims[MOST_DIMS], strides[MOST_DIMS];
    long axis = PyLong_AsLong(given[1]), nd = array->nd + 1;
    axis += axis < 0 ? nd : 0;
    if (axis < 0 || axis >= nd) {
        PyErr_Clear();
        return PyObject_Vectorcall(whole, given, count, NULL);
    }
    for (int k = 0, from = 0; k < nd; k++) {
        dims[k] = k == axis ? 1 : array->dims[from];
        strides[k] = k == axis ? 0 : array->strides[from];
        from += k != axis;
    }
    return (PyObject *)array_view(array, (int)nd, dims, strides, 0, NULL);
}

/* What nodes on the current stream of the first device share; the first time, by the function. See graph/node.py */
static PyObject *
short_extra_on(PyObject *whole, PyObject *const *given, Py_ssize_t count)
{
    the_gpu = gpus;
    Lane *lane = lane_now();
    if (lane == NULL) {
        return NULL;
    }
    if (lane->extra == NULL) {
        lane->extra = PyObject_Vectorcall(whole, given, count, NULL);
    }
    return Py_XNewRef(lane->extra);
}

/* sum_all(array): the sum of all elements, which losses are */
static PyObject *
short_sum_all(PyObject *whole, PyObject *const *given, Py_ssize_t count)
{
    if (count == 1 && IS_ARRAY(given[0])) {
        Array *array = (Array *)given[0];
        if (array->nd && (array->code == CODE_F32 || array->code == CODE_F64)) {
            use_gpu_of(array);
            return (PyObject *)reduce(SUM, array, 0, array->nd, 0, array->dtype, 1);
        }
    }
    return PyObject_Vectorcall(whole, given, count, NULL);
}

#define FAST(name) {#name, (PyCFunction)(void (*)(void)) short_##name, METH_FASTCALL}
static PyMethodDef shortcuts[] = {FAST(mm), FAST(t), FAST(conj), FAST(swapaxes), FAST(transpose), FAST(reshape),
                                  FAST(expand_dims), FAST(extra_on), FAST(sum_all), {NULL}};

/* shortcut(name, function): the function, with a short way for what it is mostly called with */
PyObject *
module_shortcut(PyObject *module, PyObject *args)
{
    const char *name;
    PyObject *whole;
    if (!PyArg_ParseTuple(args, "sO", &name, &whole)) {
        return NULL;
    }
    for (PyMethodDef *found = shortcuts; found->ml_name != NULL; found++) {
        if (strcmp(found->ml_name, name) == 0) {
            return PyCFunction_New(found, whole);
        }
    }
    return PyErr_Format(PyExc_ValueError, "there is no short way for %s", name);
}

PyObject *
array_dot(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    PyObject *pair[] = {self, count == 1 ? given[0] : NULL};
    if (count != 1) {
        PyErr_SetString(PyExc_TypeError, "dot() of an array on cuda takes one other array");
        return NULL;
    }
    PyObject *found = product_of_matrices(pair);
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    PyObject *space = PyObject_GetAttrString(self, "namespace");
    found = space == NULL ? NULL : PyObject_CallMethod(space, "dot", "OO", self, given[0]);
    Py_XDECREF(space);
    return found;
}

/* self.copy(order="C") */
PyObject *
array_copy(PyObject *self, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    Array *array = (Array *)self;
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count + named > 1 || (named && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "order") != 0)) {
        PyErr_SetString(PyExc_TypeError, "copy() of an array on cuda takes an order");
        return NULL;
    }
    PyObject *order = count + named ? given[0] : NULL;
    int by_rows = order == NULL || (PyUnicode_Check(order) && PyUnicode_CompareWithASCIIString(order, "C") == 0);
    int is_kept = !by_rows && array->is_contiguous && PyUnicode_Check(order) &&
                  PyUnicode_CompareWithASCIIString(order, "K") == 0;
    if (!(by_rows || is_kept) || array->code == CODE_UNKNOWN) {
        return PyObject_CallMethod(self, "copy_in_order", "O", order == NULL ? Py_None : order);
    }
    use_gpu_of(array);
    Array *copy = array_new(array->dtype, array->nd, array->dims, NULL);
    if (copy != NULL && copy_into(copy, array) < 0) {
        Py_CLEAR(copy);
    }
    return (PyObject *)copy;
}

/* self.reshape(*sizes); with more than sizes, by Python */
PyObject *
array_reshape_by(PyObject *self, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    if (names == NULL) {
        return array_reshape(self, given, count);
    }
    PyObject *whole = PyObject_GetAttrString(self, "reshape_in_order");
    PyObject *found = whole == NULL ? NULL : PyObject_Vectorcall(whole, given, count, names);
    Py_XDECREF(whole);
    return found;
}
