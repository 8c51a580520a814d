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
    if (rows == NULL || !Py_IS_TYPE(rows, &Rows_Type) || below == NULL || !Py_IS_TYPE(below, core.State) ||
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

/* ---- Rows: a list of rows (see Row in recorder.py), which are tuples only when they are read: a tuple and its numbers
 * take four times as long to make as what is written here, and collections of garbage go through all tuples. */

typedef struct {
    PyObject *what, *sequence_nr, *code, *shapes, *more; /* owned */
    long long begin, end;
    unsigned long thread;
    int kind, lasti;
} Record;

typedef struct {
    PyObject_HEAD
    Record *records;
    Py_ssize_t count, room;
} Rows;

/* Append a record, whose objects are borrowed. */
static int
append_record(Rows *self, Record record)
{
    if (self->count == self->room) {
        Py_ssize_t room = self->room + self->room / 2 + 64;
        Record *records = PyMem_Realloc(self->records, room * sizeof(Record));
        if (records == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->records = records;
        self->room = room;
    }
    Py_INCREF(record.what);
    Py_INCREF(record.sequence_nr);
    Py_INCREF(record.code);
    Py_INCREF(record.shapes);
    Py_INCREF(record.more);
    self->records[self->count++] = record;
    return 0;
}

/* append(row) */
static PyObject *
rows_append(Rows *self, PyObject *row)
{
    Record record;
    if (!PyTuple_Check(row)) {
        PyErr_SetString(PyExc_TypeError, "a row of a profile is a tuple");
        return NULL;
    }
    if (!PyArg_ParseTuple(row, "iOLLkOOiOO", &record.kind, &record.what, &record.begin, &record.end, &record.thread,
                          &record.sequence_nr, &record.code, &record.lasti, &record.shapes, &record.more) ||
        append_record(self, record) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static Py_ssize_t
rows_length(Rows *self)
{
    return self->count;
}

static PyObject *
rows_item(Rows *self, Py_ssize_t k)
{
    if (k < 0 || k >= self->count) {
        PyErr_SetString(PyExc_IndexError, "there are fewer rows");
        return NULL;
    }
    const Record *record = &self->records[k];
    return Py_BuildValue("iOLLkOOiOO", record->kind, record->what, record->begin, record->end, record->thread,
                         record->sequence_nr, record->code, record->lasti, record->shapes, record->more);
}

static PyObject *
rows_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return type->tp_alloc(type, 0);
}

static int
rows_traverse(Rows *self, visitproc visit, void *arg)
{
    for (Py_ssize_t k = 0; k < self->count; k++) {
        Py_VISIT(self->records[k].what);
        Py_VISIT(self->records[k].code);
        Py_VISIT(self->records[k].shapes);
        Py_VISIT(self->records[k].more);
    }
    return 0;
}

static int
rows_clear(Rows *self)
{
    Record *records = self->records;
    Py_ssize_t count = self->count;
    self->records = NULL; /* what is freed below may look at the rows */
    self->count = self->room = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        Py_DECREF(records[k].what);
        Py_DECREF(records[k].sequence_nr);
        Py_DECREF(records[k].code);
        Py_DECREF(records[k].shapes);
        Py_DECREF(records[k].more);
    }
    PyMem_Free(records);
    return 0;
}

static void
rows_dealloc(Rows *self)
{
    PyObject_GC_UnTrack(self);
    rows_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef rows_methods[] = {{"append", (PyCFunction)rows_append, METH_O}, {NULL}};
static PySequenceMethods rows_sequence = {.sq_length = (lenfunc)rows_length, .sq_item = (ssizeargfunc)rows_item};

PyTypeObject Rows_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Rows",
    .tp_basicsize = sizeof(Rows),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = rows_new,
    .tp_dealloc = (destructor)rows_dealloc,
    .tp_traverse = (traverseproc)rows_traverse,
    .tp_clear = (inquiry)rows_clear,
    .tp_methods = rows_methods,
    .tp_as_sequence = &rows_sequence,
};

/* ---- what they say */

static PyObject *
first_of(PyObject *result)
{
    return PyTuple_Check(result) && PyTuple_GET_SIZE(result) ? PyTuple_GET_ITEM(result, 0) : result;
}

/* The namespace of an operation's (first) result, if it is a tensor: borrowed, or NULL. */
static PyObject *
space_of_result(PyObject *result)
{
    result = first_of(result);
    return is_tensor(result) ? SLOT(result, core.t_xp) : NULL;
}

/* The node that an operation recorded, if its (first) result has one: borrowed, or NULL. */
static PyObject *
node_of_result(PyObject *result)
{
    result = first_of(result);
    PyObject *edge = is_tensor(result) ? SLOT(result, core.t_edge) : NULL;
    if (edge != NULL && PyTuple_Check(edge) && PyTuple_GET_SIZE(edge)) {
        edge = PyTuple_GET_ITEM(edge, 0);
    }
    return edge != NULL && PyObject_TypeCheck(edge, core.Node) ? edge : NULL;
}

/* The numbers of the nodes that edges lead to: a new tuple. */
static PyObject *
numbers_of(PyObject *edges)
{
    Py_ssize_t count = edges == NULL ? 0 : PySequence_Fast_GET_SIZE(edges), found = 0;
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

/* What is known of a node that leads to `edges` (NULL: it leads to none), besides its times: a new reference. */
static PyObject *
facts_of(PyObject *node, PyObject *edges)
{
    PyObject *numbers = numbers_of(edges), *extra = SLOT(node, core.n_extra);
    if (numbers == NULL || extra == NULL || extra == Py_None) {
        return numbers;
    }
    PyObject *arguments[] = {node, numbers}; /* it is on a device */
    PyObject *facts = PyObject_Vectorcall(core.facts_of_node, arguments, 2, NULL);
    Py_DECREF(numbers);
    return facts;
}

/* ---- writing them */

/* A place in code as a number. A program may have set ctx.lasti of a custom Function, and ctx.code. */
static int
place_in_code(PyObject *lasti)
{
    int is_beyond = 0;
    long place = PyLong_Check(lasti) ? PyLong_AsLongAndOverflow(lasti, &is_beyond) : 0;
    return is_beyond || place < 0 || place > INT_MAX ? 0 : (int)place;
}

/* How many composites of this thread, inside each other, are being timed. */
static _Thread_local int depth;

/* What ran from `begin` until now, of which no more is known. */
static Record
record_of(int kind, PyObject *what, long long begin)
{
    return (Record){.kind = kind,
                    .what = what,
                    .begin = begin,
                    .end = clock_now(),
                    .thread = PyThread_get_thread_ident(),
                    .sequence_nr = Py_None,
                    .code = Py_None,
                    .shapes = Py_None,
                    .more = Py_None};
}

/* Append a record with the number and the line of a node. */
static int
with_node(PyObject *rows, Record record, PyObject *node)
{
    PyObject *code = slot_or(node, core.n_code, Py_None);
    record.sequence_nr = slot_or(node, core.n_sequence_nr, Py_None);
    if (PyCode_Check(code)) {
        record.code = code;
        record.lasti = place_in_code(slot_or(node, core.n_lasti, Py_None));
    }
    return append_record((Rows *)rows, record);
}

int
append_node(PyObject *rows, PyObject *node, long long begin, PyObject *shape, PyObject *edges)
{
    Record record = record_of(ROW_NODE, (PyObject *)Py_TYPE(node), begin);
    PyObject *facts = facts_of(node, edges);
    if (facts == NULL) {
        return -1;
    }
    record.more = facts;
    record.shapes = shape == NULL ? Py_None : shape;
    int status = with_node(rows, record, node);
    Py_DECREF(facts);
    return status;
}

/* Append a record with the line of the program. Of what is inside a composite, `build.py` finds the line in that one:
 * frames would have to be made for it here. */
static int
with_site(PyObject *rows, Record record)
{
    PyCodeObject *code = depth ? NULL : user_site(&record.lasti);
    if (code != NULL) {
        record.code = (PyObject *)code;
    }
    int status = PyErr_Occurred() ? -1 : append_record((Rows *)rows, record);
    Py_XDECREF(code);
    return status;
}

/* The result, once its row has been written down: with the number and the line of its node, if it has one and
 * `has_node`, and with its device, if that is not the CPU. NULL if that failed. */
static PyObject *
written(PyObject *rows, Record record, PyObject *result, int has_node)
{
    PyObject *node = has_node ? node_of_result(result) : NULL, *space = space_of_result(result), *place = NULL;
    int status = 0;
    if (space != NULL && space != core.cpu) {
        place = PyObject_CallOneArg(core.place_of_space, space);
        status = place == NULL ? -1 : 0;
        record.more = place;
    }
    if (status == 0) {
        status = node == NULL ? with_site(rows, record) : with_node(rows, record, node);
    }
    Py_XDECREF(place);
    if (status < 0) {
        Py_CLEAR(result);
    }
    return result;
}

Begun
begin_composite(void)
{
    return (Begun){depth++, clock_now()};
}

PyObject *
end_composite(PyObject *rows, PyObject *name, PyObject *result, Begun begun)
{
    depth = begun.depth;
    return result == NULL ? NULL : written(rows, record_of(ROW_COMPOSITE, name, begun.time), result, 0);
}

PyObject *
timed(PyObject *rows, PyObject *what, PyObject *result, long long begin)
{
    return result == NULL ? NULL : written(rows, record_of(ROW_OPERATION, what, begin), result, 1);
}

/* The state without an interceptor, which is made when it is first wanted: a new reference. */
static PyObject *
state_below(PyObject *state)
{
    PyObject *below = SLOT(state, core.s_lowered);
    if (below != NULL && Py_IS_TYPE(below, core.State) && SLOT(below, core.s_intercept) == Py_None) {
        return Py_NewRef(below);
    }
    return PyObject_CallMethod(state, "with_intercept", "O", Py_None);
}

PyObject *
run_watched(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    if (count != 5 || !Py_IS_TYPE(given[0], &Rows_Type) || !PyTuple_Check(given[3]) || !PyDict_Check(given[4])) {
        PyErr_SetString(PyExc_TypeError, "run_watched takes Rows, a name, a function, a tuple and a dict");
        return NULL;
    }
    PyObject *outer, *result = NULL;
    if (PyContextVar_Get(core.state_variable, NULL, &outer) < 0) {
        return NULL;
    }
    PyObject *below = state_below(outer);
    if (below == NULL) {
        Py_DECREF(outer);
        return NULL;
    }
    long long begin = clock_now();
    if (set_variable(core.state_variable, below) == 0) {
        result = PyObject_Call(given[2], given[3], given[4]);
    }
    if (put_back(core.state_variable, outer) < 0) {
        Py_CLEAR(result);
    }
    Py_DECREF(below);
    Py_DECREF(outer);
    return timed(given[0], given[1], result, begin);
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
