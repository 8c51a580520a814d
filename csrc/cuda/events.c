/* Events: points in the work of streams, for other streams or the program to wait for. */
#include "cuda/driver.h"

int
mark_lane(Lane *lane, Mark *mark)
{
    if (flush_lane(lane) < 0 || send_to(lane) < 0) {
        return -1;
    }
    mark->lane = lane;
    if (is_emulated) {
        mark->at = emulated_work(lane);
        return 0;
    }
    if (mark->handle == NULL && failed(driver.event_create(&mark->handle, EVENT_WITHOUT_TIME), "making an event")) {
        return -1;
    }
    return failed(driver.event_record(mark->handle, lane->stream), "recording an event") ? -1 : 0;
}

int
has_passed(const Mark *mark)
{
    if (mark->lane == NULL) {
        return 1;
    }
    return is_emulated ? is_emulated_done(mark->lane, mark->at) : driver.event_query(mark->handle) != NOT_READY;
}

void
drop_mark(Mark *mark)
{
    if (mark->handle != NULL) {
        driver.event_destroy(mark->handle); /* the driver keeps what still waits for it */
    }
}

/* Let a stream wait for a mark, after all that it was asked for so far. */
static int
wait_for_mark(Lane *lane, const Mark *mark)
{
    if (mark->lane == NULL || mark->lane == lane) {
        return 0;
    }
    if (flush_lane(lane) < 0 || send_to(lane) < 0) {
        return -1;
    }
    if (is_emulated) {
        return emulate_wait(lane, mark);
    }
    return failed(driver.stream_wait(lane->stream, mark->handle, 0), "waiting for an event") ? -1 : 0;
}

/* ---- Event(whether it takes the time) */

typedef struct {
    PyObject_HEAD
    Mark mark;
    int is_timed;
    double *time; /* of an emulated one: milliseconds */
} Event;

static PyObject *
event_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    int is_timed;
    if (!PyArg_ParseTuple(args, "p", &is_timed)) {
        return NULL;
    }
    Event *self = (Event *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->is_timed = is_timed;
    }
    return (PyObject *)self;
}

static void
event_dealloc(Event *self)
{
    if (has_passed(&self->mark)) {
        free(self->time); /* else a stream is still going to write there, and 8 bytes are lost */
    }
    drop_mark(&self->mark);
    Py_TYPE(self)->tp_free(self);
}

/* record(stream) */
static PyObject *
event_record(Event *self, PyObject *number)
{
    Lane *lane = lane_of_number(number);
    if (lane == NULL) {
        return NULL;
    }
    if (self->mark.handle == NULL && !is_emulated && self->is_timed &&
        (send_to(lane) < 0 || failed(driver.event_create(&self->mark.handle, 0), "making an event"))) {
        return NULL;
    }
    if (is_emulated && self->is_timed) {
        if (self->time == NULL && (self->time = calloc(1, sizeof(double))) == NULL) {
            return PyErr_NoMemory();
        }
        if (flush_lane(lane) < 0 || emulate_stamp(lane, self->time) < 0) {
            return NULL;
        }
    }
    return mark_lane(lane, &self->mark) < 0 ? NULL : Py_NewRef(Py_None);
}

/* hold(stream): let a stream wait for it */
static PyObject *
event_hold(Event *self, PyObject *number)
{
    Lane *lane = lane_of_number(number);
    return lane == NULL || wait_for_mark(lane, &self->mark) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
event_query(Event *self, PyObject *nothing)
{
    return PyBool_FromLong(has_passed(&self->mark));
}

static PyObject *
event_synchronize(Event *self, PyObject *nothing)
{
    int result = 0;
    Mark mark = self->mark; /* it may be recorded again meanwhile */
    if (mark.lane != NULL && is_emulated) {
        wait_emulated(mark.lane, mark.at);
    }
    else if (mark.lane != NULL) {
        Py_BEGIN_ALLOW_THREADS
        result = driver.event_synchronize(mark.handle);
        Py_END_ALLOW_THREADS
    }
    return failed(result, "waiting for an event") || raise_index_error() < 0 ? NULL : Py_NewRef(Py_None);
}

/* elapsed(later one): milliseconds between the two, both of which have passed */
static PyObject *
event_elapsed(Event *self, PyObject *other)
{
    float milliseconds = 0;
    if (Py_TYPE(other) != &Event_Type) {
        PyErr_SetString(PyExc_TypeError, "elapsed() takes an event");
        return NULL;
    }
    Event *end = (Event *)other;
    if (self->time != NULL && end->time != NULL) {
        return PyFloat_FromDouble(*end->time - *self->time);
    }
    if (failed(driver.event_elapsed(&milliseconds, self->mark.handle, end->mark.handle), "asking events for their time")) {
        return NULL;
    }
    return PyFloat_FromDouble(milliseconds);
}

static PyObject *
event_handle(Event *self, void *closure)
{
    return PyLong_FromVoidPtr(self->mark.handle);
}

static PyObject *
event_is_recorded(Event *self, void *closure)
{
    return PyBool_FromLong(self->mark.lane != NULL);
}

static PyMethodDef event_methods[] = {
    {"record", (PyCFunction)event_record, METH_O},
    {"hold", (PyCFunction)event_hold, METH_O},
    {"query", (PyCFunction)event_query, METH_NOARGS},
    {"synchronize", (PyCFunction)event_synchronize, METH_NOARGS},
    {"elapsed", (PyCFunction)event_elapsed, METH_O},
    {NULL},
};

static PyGetSetDef event_getset[] = {
    {"handle", (getter)event_handle},
    {"is_recorded", (getter)event_is_recorded},
    {NULL},
};

PyTypeObject Event_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._cuda.Event",
    .tp_basicsize = sizeof(Event),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = event_new,
    .tp_dealloc = (destructor)event_dealloc,
    .tp_methods = event_methods,
    .tp_getset = event_getset,
};

/* wait_lane(stream, other): let a stream wait for all that another was asked for so far */
PyObject *
module_wait_lane(PyObject *module, PyObject *args)
{
    PyObject *first, *second;
    Mark mark = {.lane = NULL};
    if (!PyArg_ParseTuple(args, "OO", &first, &second)) {
        return NULL;
    }
    Lane *lane = lane_of_number(first), *other = lane == NULL ? NULL : lane_of_number(second);
    int status = other == NULL || mark_lane(other, &mark) < 0 || wait_for_mark(lane, &mark) < 0 ? -1 : 0;
    drop_mark(&mark);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}
