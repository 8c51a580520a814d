/* Changes in place: whether a tensor may be changed, and counting that it was. */
#include "call/operation.h"

/* The version counter of the memory that a tensor shows (borrowed), or NULL if nobody needed one yet. */
static PyObject *
found_counter(PyObject *tensor)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    if (extra != Py_None && SLOT(extra, core.e_view) != Py_None) {
        PyObject *view = readable_view(extra), *base = view == NULL ? NULL : SLOT(view, core.v_base);
        extra = base != NULL && is_tensor(base) ? SLOT(base, core.t_extra) : Py_None;
    }
    PyObject *counter = extra == Py_None ? Py_None : SLOT(extra, core.e_counter);
    return counter == Py_None ? NULL : counter;
}

PyObject *
count_change(PyObject *tensor, PyObject *name)
{
    PyObject *counter = found_counter(tensor);
    if (counter == NULL) {
        counter = PyObject_CallOneArg(core.counter_of, tensor);
        if (counter == NULL) {
            return NULL;
        }
        Py_DECREF(counter); /* the tensor, or its base, keeps it */
    }
    if (!Py_IS_TYPE(counter, core.VersionCounter)) {
        return counter; /* that of inference tensors counts nothing */
    }
    int lasti = 0;
    PyCodeObject *code = user_site(&lasti);
    PyObject *instruction = PyLong_FromLong(lasti);
    PyObject *version = PyLong_FromLongLong(PyLong_AsLongLong(SLOT(counter, core.c_value)) + 1);
    if (version == NULL || instruction == NULL || PyErr_Occurred()) {
        Py_XDECREF(code);
        Py_XDECREF(instruction);
        Py_XDECREF(version);
        return NULL;
    }
    set_slot(counter, core.c_value, version);
    set_slot(counter, core.c_operation, Py_NewRef(name));
    set_slot(counter, core.c_code, code == NULL ? Py_NewRef(Py_None) : (PyObject *)code);
    set_slot(counter, core.c_lasti, instruction);
    return counter;
}

int
may_require_grad(PyObject *tensor)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    if (SLOT(tensor, core.t_edge) != Py_None) {
        return 1;
    }
    if (extra == Py_None || SLOT(extra, core.e_view) == Py_None) {
        return 0;
    }
    PyObject *view = readable_view(extra), *base = view == NULL ? NULL : SLOT(view, core.v_base);
    return base == NULL || !is_tensor(base) || SLOT(base, core.t_edge) != Py_None;
}

int
is_free(PyObject *tensor, PyObject *state)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    if (extra != Py_None && SLOT(extra, core.e_counter) == core.NO_COUNTER &&
        SLOT(state, core.s_inference) != Py_True) {
        return 0;
    }
    return SLOT(state, core.s_grad_enabled) != Py_True || !may_require_grad(tensor);
}

PyObject *
version_of(PyObject *tensor)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    if (extra == Py_None || (SLOT(extra, core.e_counter) == Py_None && SLOT(extra, core.e_view) == Py_None)) {
        return PyLong_FromLong(0);
    }
    return PyObject_CallOneArg(core.version_of, tensor);
}

/* Where the memory of an array that is not empty begins and ends, with what lies in its gaps. */
static void
find_extent(PyArrayObject *array, const char **begin, const char **end)
{
    *begin = *end = PyArray_BYTES(array);
    for (int k = 0; k < PyArray_NDIM(array); k++) {
        npy_intp reach = (PyArray_DIM(array, k) - 1) * PyArray_STRIDE(array, k);
        *(reach < 0 ? begin : end) += reach;
    }
    *end += PyArray_ITEMSIZE(array);
}

int
may_overlap(PyArrayObject *a, PyArrayObject *b)
{
    const char *begin, *end, *other, *other_end;
    if (count_of(a) == 0 || count_of(b) == 0) {
        return 0;
    }
    find_extent(a, &begin, &end);
    find_extent(b, &other, &other_end);
    return begin < other_end && other < end;
}

int
may_overlap_any(PyArrayObject *array, PyObject *value)
{
    if (PyObject_TypeCheck(value, core.Tensor)) {
        PyObject *other = SLOT(value, core.t_array);
        return other == NULL || !PyArray_CheckExact(other) || may_overlap(array, (PyArrayObject *)other);
    }
    if (!PyTuple_Check(value) && !PyList_Check(value)) {
        return 0;
    }
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(value); k++) {
        if (may_overlap_any(array, PySequence_Fast_GET_ITEM(value, k))) {
            return 1;
        }
    }
    return 0;
}
