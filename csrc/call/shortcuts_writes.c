/* Shortcuts of functions that write into a tensor: zero_ and its like, and the argument `out`. */
#include "call/shortcuts.h"
#include "kernels/copies.h"
#include "kernels/fills.h"
#include "quiet.h"

/* ---- overwriting */

/* The array of a tensor, one of so many arguments, that may be changed without asking anybody; or NULL. */
static PyArrayObject *
free_array(PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names, Py_ssize_t wanted)
{
    PyArrayObject *array = names != NULL || count != wanted ? NULL : usual_array(given[0]);
    return array != NULL && is_free(given[0], state) && PyArray_ISWRITEABLE(array) ? array : NULL;
}

/* The tensor, once the change of its memory is counted. */
static PyObject *
changed(PyObject *tensor, const char *operation)
{
    PyObject *name = PyUnicode_InternFromString(operation);
    int counted = name != NULL && count_change(tensor, name) != NULL;
    Py_XDECREF(name);
    return counted ? Py_NewRef(tensor) : NULL;
}

/* zero_(self) */
PyObject *
zero_(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = free_array(state, given, count, names, 1);
    if (array == NULL || !PyArray_ISONESEGMENT(array) || !PyTypeNum_ISNUMBER(PyArray_TYPE(array))) {
        return NULL;
    }
    Py_INCREF(array);
    zero_array(array);
    Py_DECREF(array);
    return changed(given[0], "zero_");
}

/* fill_(self, value) */
PyObject *
fill_(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = free_array(state, given, count, names, 2);
    npy_intp number;
    if (array == NULL || !(PyFloat_CheckExact(given[1])
                               ? PyArray_ISFLOAT(array)
                               : read_size(given[1], &number) && number >= 0 && number < 128 &&
                                     PyTypeNum_ISNUMBER(PyArray_TYPE(array)))) {
        return NULL;
    }
    Py_INCREF(array);
    int status = fill_array(array, given[1]);
    Py_DECREF(array);
    return status < 0 ? NULL : changed(given[0], "fill_");
}

/* copy_(self, src), with the form that is recorded */
PyObject *
copy_(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = names != NULL || count != 2 ? NULL : usual_array(given[0]);
    PyArrayObject *source = array == NULL ? NULL : usual_array(given[1]);
    if (source == NULL || PyArray_DESCR(array) != PyArray_DESCR(source) || !PyArray_SAMESHAPE(array, source)) {
        return NULL;
    }
    if (!is_free(given[0], state) || (SLOT(state, core.s_grad_enabled) == Py_True && may_require_grad(given[1]))) {
        return PyObject_Vectorcall(self->targets[0], given, 2, NULL);
    }
    if (!PyArray_ISWRITEABLE(array) || (array != source && may_overlap(array, source))) {
        return NULL;
    }
    Py_INCREF(array);
    Py_INCREF(source);
    int status = copy_into(array, source);
    Py_DECREF(array);
    Py_DECREF(source);
    return status < 0 ? NULL : changed(given[0], "copy_");
}

/* ---- functions with an argument `out` */

/* Whether a gradient may be asked of an argument: of a tensor, or one in a list. */
static int
may_be_differentiated(PyObject *value)
{
    if (is_tensor(value)) {
        return may_require_grad(value);
    }
    if (!PyTuple_Check(value) && !PyList_Check(value)) {
        return PyObject_TypeCheck(value, core.Tensor);
    }
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(value); k++) {
        if (may_be_differentiated(PySequence_Fast_GET_ITEM(value, k))) {
            return 1;
        }
    }
    return 0;
}

/* The result written into `out`, if that is a tensor of its shape and dtype, and nothing is to be recorded. */
static PyObject *
into_out(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *call[16], *out = NULL;
    Py_ssize_t named = PyTuple_GET_SIZE(names), kept = 0;
    PyObject *others = count + named > 16 ? NULL : PyTuple_New(named - 1);
    for (Py_ssize_t k = 0; others != NULL && k < count + named; k++) {
        PyObject *name = k < count ? NULL : PyTuple_GET_ITEM(names, k - count);
        if (name != NULL && PyUnicode_CompareWithASCIIString(name, "out") == 0) {
            out = given[k];
        }
        else {
            if (name != NULL) {
                PyTuple_SET_ITEM(others, kept - count, Py_NewRef(name));
            }
            call[kept++] = given[k];
            if (SLOT(state, core.s_grad_enabled) == Py_True && may_be_differentiated(given[k])) {
                Py_CLEAR(others);
            }
        }
    }
    PyObject *result = NULL, *array = NULL;
    PyArrayObject *target = others == NULL ? NULL : usual_array(out);
    for (Py_ssize_t k = 0; target != NULL && k < kept; k++) {
        target = may_overlap_any(target, call[k]) ? NULL : target;
    }
    if (target != NULL && is_free(out, state)) {
        result = PyObject_Vectorcall(self->targets[0], call, count, named > 1 ? others : NULL);
        array = result == NULL ? NULL : (PyObject *)usual_array(result);
    }
    Py_XDECREF(others);
    PyObject *written = array == NULL ? NULL : write_result(&self->operation, Py_NewRef(array), out);
    Py_XDECREF(result);
    return written;
}

/* Whether a class may have a say in a call (see Note [Functions that ask] in tensor/torch_function.py): that is for Python
 * to find out. */
static int
may_have_a_say(PyObject *const *given, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        if (!is_tensor(given[k]) && !PyLong_Check(given[k]) && !PyFloat_CheckExact(given[k]) && given[k] != Py_None) {
            return 1;
        }
    }
    return 0;
}

/* function(..., out=None), with that function without `out`, ForeignOperandError, and whether it draws numbers */
PyObject *
wrapped(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t all = count + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    if (count < 1 || (core.ask_first != NULL && may_have_a_say(given, all))) {
        return NULL;
    }
    int into = known_names(names, "out", "out");
    if (into && self->targets[2] == Py_True) {
        return NULL;
    }
    PyObject *result = into
                           ? into_out(self, state, given, count, names)
                           : PyObject_Vectorcall(self->targets[0], given, count, names);
    if (result == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(self->targets[1])) {
        PyErr_Clear(); /* Python asks the foreign operand */
    }
    return result;
}
