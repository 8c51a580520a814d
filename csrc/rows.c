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

/* A row (see Row in recorder.py), which takes the two times over. Py_BuildValue would take three times as long. */
static PyObject *
row_of(int kind, PyObject *what, PyObject *begin, PyObject *end, PyObject *sequence_nr, PyObject *code, PyObject *lasti,
       PyObject *shapes, PyObject *more)
{
    PyObject *row = PyTuple_New(10);
    PyObject *items[] = {PyLong_FromLong(kind), Py_NewRef(what), begin, end,
                         PyLong_FromUnsignedLong(PyThread_get_thread_ident()), Py_NewRef(sequence_nr), Py_NewRef(code),
                         lasti == NULL ? NULL : Py_NewRef(lasti), Py_NewRef(shapes == NULL ? Py_None : shapes),
                         Py_NewRef(more == NULL ? Py_None : more)};
    int whole = row != NULL;
    for (int k = 0; k < 10; k++) {
        whole = whole && items[k] != NULL;
    }
    for (int k = 0; k < 10; k++) {
        if (whole) {
            PyTuple_SET_ITEM(row, k, items[k]);
        }
        else {
            Py_XDECREF(items[k]);
        }
    }
    if (!whole) {
        Py_CLEAR(row);
    }
    return row;
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
    PyObject *end = PyLong_FromLongLong(clock_now());
    if (zero == NULL && (zero = PyLong_FromLong(0)) == NULL) {
        Py_XDECREF(end);
        return -1;
    }
    PyObject *code = slot_or(node, core.n_code, Py_None);
    if (!PyCode_Check(code)) { /* a custom Function may have set ctx.code */
        code = Py_None;
    }
    PyObject *lasti = code == Py_None ? zero : slot_or(node, core.n_lasti, zero);
    return append(rows, row_of(kind, what, PyLong_FromLongLong(begin), end,
                               slot_or(node, core.n_sequence_nr, Py_None), code, lasti, shape, more));
}

/* The same for an operation made of others; takes `begin` over. */
static int
append_composite(PyObject *rows, PyObject *name, PyObject *begin)
{
    PyObject *end = PyLong_FromLongLong(clock_now());
    int lasti = 0;
    PyCodeObject *code = user_site(&lasti);
    PyObject *number = PyErr_Occurred() ? NULL : PyLong_FromLong(lasti);
    PyObject *line = code == NULL ? Py_None : (PyObject *)code;
    int status = append(rows, row_of(ROW_COMPOSITE, name, begin, end, Py_None, line, number, NULL, NULL));
    Py_XDECREF(number);
    Py_XDECREF(code);
    return status;
}

PyObject *
composite_ran(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    PyObject *state, *lowered;
    if (PyContextVar_Get(core.state_variable, NULL, &state) < 0) {
        return NULL;
    }
    PyObject *rows = rows_of_profile(state, &lowered);
    Py_DECREF(state);
    if (rows == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    }
    Py_DECREF(lowered);
    int status = append_composite(rows, given[0], Py_NewRef(given[1]));
    Py_DECREF(rows);
    return status < 0 ? NULL : Py_NewRef(Py_True);
}

PyObject *
timed(PyObject *rows, PyObject *what, PyObject *result, long long begin)
{
    if (result != NULL && append_row(rows, ROW_OPERATION, what, begin, node_of_result(result), NULL, NULL) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

PyObject *
timed_composite(PyObject *rows, PyObject *name, PyObject *result, long long begin)
{
    if (result != NULL && append_composite(rows, name, PyLong_FromLongLong(begin)) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

PyObject *
run_watched(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    PyObject *rows = given[0], *lowered = given[1], *outer, *result = NULL;
    if (PyContextVar_Get(core.state_variable, NULL, &outer) < 0) {
        return NULL;
    }
    PyObject *const inner[] = {core.state_variable, lowered};
    long long begin = clock_now();
    PyObject *done = set_value(NULL, inner, 2);
    if (done != NULL) {
        result = PyObject_Call(given[3], given[4], given[5]);
        Py_DECREF(done);
    }
    if (put_back(core.state_variable, outer) < 0) {
        Py_CLEAR(result);
    }
    Py_DECREF(outer);
    return timed(rows, given[2], result, begin);
}

/* ---- what C leaves to Python */

#define MOST_HANDED_ON 24

/* Whether nobody but undertow has a say in what is done with a value. */
static int
is_ours(PyObject *value)
{
    if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(value); k++) {
            PyObject *item = PySequence_Fast_GET_ITEM(value, k);
            if (!is_tensor(item) && !PyLong_CheckExact(item) && item != Py_None) {
                return 0;
            }
        }
        return 1;
    }
    return is_tensor(value) || PyLong_Check(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) ||
           value == Py_None;
}

PyObject *
called_below(PyObject *lowered, PyObject *function, PyObject *const *given, size_t flagged, PyObject *names)
{
    PyObject *call[MOST_HANDED_ON + 3] = {core.state_variable, lowered, function};
    Py_ssize_t count = PyVectorcall_NARGS(flagged), all = count + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    int ours = all <= MOST_HANDED_ON;
    for (Py_ssize_t k = 0; ours && k < all; k++) {
        call[k + 3] = given[k];
        ours = is_ours(given[k]);
    }
    return ours ? call_with(NULL, call, count + 3, names) : NULL;
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
