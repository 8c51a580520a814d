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

/* Count a change at a line that is known (all borrowed). */
static int
note_change(PyObject *counter, PyObject *name, PyObject *code, PyObject *instruction)
{
    PyObject *version = PyLong_FromLongLong(PyLong_AsLongLong(SLOT(counter, core.c_value)) + 1);
    if (version == NULL || PyErr_Occurred()) {
        Py_XDECREF(version);
        return -1;
    }
    set_slot(counter, core.c_value, version);
    set_slot(counter, core.c_operation, Py_NewRef(name));
    set_slot(counter, core.c_code, Py_NewRef(code));
    set_slot(counter, core.c_lasti, Py_NewRef(instruction));
    return 0;
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
    int status = instruction == NULL
                     ? -1
                     : note_change(counter, name, code == NULL ? Py_None : (PyObject *)code, instruction);
    Py_XDECREF(code);
    Py_XDECREF(instruction);
    return status < 0 ? NULL : counter;
}

/* note_all(tensors, operation, code, lasti): as in tensor/tensor.py */
PyObject *
note_all(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    PyObject *tensors = count == 4 ? PySequence_Fast(given[0], "note_all() takes a list of tensors") : NULL;
    if (tensors == NULL) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "note_all(tensors, operation, code, lasti)");
    }
    int status = 0;
    for (Py_ssize_t k = 0; status == 0 && k < PySequence_Fast_GET_SIZE(tensors); k++) {
        PyObject *tensor = PySequence_Fast_GET_ITEM(tensors, k), *made = NULL;
        PyObject *counter = is_tensor(tensor) ? found_counter(tensor) : NULL;
        if (counter == NULL) {
            counter = made = PyObject_CallOneArg(core.counter_of, tensor);
        }
        if (counter == NULL) {
            status = -1;
        }
        else if (Py_IS_TYPE(counter, core.VersionCounter)) { /* that of inference tensors counts nothing */
            status = note_change(counter, given[1], given[2], given[3]);
        }
        Py_XDECREF(made);
    }
    Py_DECREF(tensors);
    return status < 0 ? NULL : Py_NewRef(Py_None);
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
