#include "rows.h"

#include "call/operation.h"

#include <time.h>

long long
clock_now(void)
{
#if defined(__linux__)
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
#else
    return -1;
#endif
}

PyObject *
rows_of_interceptor(PyObject *state, PyObject **lowered)
{
    PyObject *intercept = SLOT(state, core.s_intercept);
    if (core.Profiled == NULL || !Py_IS_TYPE(intercept, core.Profiled)) {
        return NULL;
    }
    PyObject *rows = SLOT(intercept, core.o_rows), *below = SLOT(state, core.s_lowered);
    if (rows == NULL || !PyList_CheckExact(rows) || below == NULL || !Py_IS_TYPE(below, core.State) ||
        SLOT(below, core.s_intercept) != Py_None) {
        return NULL; /* Python does it, and also makes the state */
    }
    *lowered = Py_NewRef(below);
    return Py_NewRef(rows);
}

static PyObject *
slot_or(PyObject *object, Py_ssize_t offset, PyObject *otherwise)
{
    PyObject *found = object == NULL ? NULL : SLOT(object, offset);
    return found == NULL ? otherwise : found;
}

static int
append(PyObject *rows, PyObject *row)
{
    int status = row == NULL ? -1 : PyList_Append(rows, row);
    Py_XDECREF(row);
    return status;
}

int
append_row(PyObject *rows, int kind, PyObject *what, long long begin, PyObject *node, PyObject *shape, PyObject *more)
{
    static PyObject *zero;
    long long end = clock_now();
    if (zero == NULL && (zero = PyLong_FromLong(0)) == NULL) {
        return -1;
    }
    PyObject *code = slot_or(node, core.n_code, Py_None);
    if (!PyCode_Check(code)) { /* a custom Function may have set ctx.code */
        code = Py_None;
    }
    PyObject *lasti = code == Py_None ? zero : slot_or(node, core.n_lasti, zero);
    return append(rows, Py_BuildValue("iOLLkOOOOO", kind, what, begin, end, PyThread_get_thread_ident(),
                                      slot_or(node, core.n_sequence_nr, Py_None), code, lasti,
                                      shape == NULL ? Py_None : shape, more == NULL ? Py_None : more));
}

PyObject *
composite_ran(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    PyObject *state, *lowered, *begin = given[1], *none = Py_None;
    long long end = clock_now();
    int lasti = 0;
    if (PyContextVar_Get(core.state_variable, NULL, &state) < 0) {
        return NULL;
    }
    PyObject *rows = rows_of_profile(state, &lowered);
    Py_DECREF(state);
    if (rows == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    }
    Py_DECREF(lowered);
    PyCodeObject *code = user_site(&lasti);
    PyObject *line = code == NULL ? none : (PyObject *)code;
    int status = PyErr_Occurred() ? -1
                                  : append(rows, Py_BuildValue("iOOLkOOiOO", ROW_COMPOSITE, given[0], begin, end,
                                                               PyThread_get_thread_ident(), none, line, lasti, none,
                                                               none));
    Py_XDECREF(code);
    Py_DECREF(rows);
    return status < 0 ? NULL : Py_NewRef(Py_True);
}

PyObject *
node_of_result(PyObject *result)
{
    if (PyTuple_Check(result) && PyTuple_GET_SIZE(result)) {
        result = PyTuple_GET_ITEM(result, 0);
    }
    PyObject *edge = is_tensor(result) ? SLOT(result, core.t_edge) : NULL;
    if (edge != NULL && PyTuple_Check(edge) && PyTuple_GET_SIZE(edge)) {
        edge = PyTuple_GET_ITEM(edge, 0);
    }
    return edge != NULL && PyObject_TypeCheck(edge, core.Node) ? edge : NULL;
}

PyObject *
numbers_of(PyObject *edges)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(edges), found = 0;
    PyObject *numbers = PyTuple_New(count);
    for (Py_ssize_t k = 0; numbers != NULL && k < count; k++) {
        PyObject *edge = PySequence_Fast_GET_ITEM(edges, k);
        if (PyTuple_Check(edge) && PyTuple_GET_SIZE(edge)) {
            edge = PyTuple_GET_ITEM(edge, 0);
        }
        if (PyObject_TypeCheck(edge, core.Node) && SLOT(edge, core.n_sequence_nr) != NULL) {
            PyTuple_SET_ITEM(numbers, found++, Py_NewRef(SLOT(edge, core.n_sequence_nr)));
        }
    }
    if (numbers != NULL && found < count) {
        _PyTuple_Resize(&numbers, found);
    }
    return numbers;
}
