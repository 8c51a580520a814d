/* Streams: those there are, and which of them the work of this thread goes to.
 *
 * Which stream a thread has chosen for a device is Python's to say, in a context variable: backend/streams.py. It is
 * looked at for every launch, once there is more than one stream to choose from; a mapping that was seen before is known
 * by its identity.
 */
#include "cuda/driver.h"

Lane *lanes[MOST_LANES];
int lane_count;

static PyObject *choices, *find_chosen; /* the context variable; what tells the numbers of chosen streams of a mapping */
static __thread PyObject *seen;         /* the mapping that this thread has seen last */
static __thread Lane *chosen[MOST_GPUS];

/* A stream of the device in use; NULL with an exception. */
static Lane *
make_lane(int priority, Stream handle)
{
    Lane *lane = lane_count < MOST_LANES ? calloc(1, sizeof(Lane)) : NULL;
    if (lane == NULL) {
        PyErr_SetString(PyExc_MemoryError, "no more streams can be made");
        return NULL;
    }
    *lane = (Lane){.number = lane_count, .priority = priority, .gpu = the_gpu, .stream = handle};
    if (!is_emulated && handle == NULL &&
        (enter_context() < 0 ||
         failed(driver.stream_create(&lane->stream, NON_BLOCKING_STREAM, priority), "making a stream"))) {
        free(lane);
        return NULL;
    }
    lanes[lane_count++] = lane;
    the_gpu->lanes++;
    return lane;
}

static Lane *
first_lane(void)
{
    if (the_gpu->first == NULL) {
        the_gpu->first = make_lane(0, NULL);
    }
    return the_gpu->first;
}

/* Read the streams that a mapping names. */
static int
read_choices(PyObject *mapping)
{
    PyObject *numbers = PyObject_CallOneArg(find_chosen, mapping); /* a list of numbers of streams */
    if (numbers == NULL || !PyList_Check(numbers)) {
        Py_XDECREF(numbers);
        return -1;
    }
    memset(chosen, 0, sizeof(chosen));
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(numbers); k++) {
        Lane *lane = lane_of_number(PyList_GET_ITEM(numbers, k));
        if (lane == NULL) {
            Py_DECREF(numbers);
            return -1;
        }
        chosen[lane->gpu->index] = lane;
    }
    Py_DECREF(numbers);
    Py_XSETREF(seen, Py_NewRef(mapping));
    return 0;
}

Lane *
lane_now(void)
{
    if (the_gpu->lanes > 1) {
        PyObject *mapping;
        if (PyContextVar_Get(choices, NULL, &mapping) < 0) {
            return NULL;
        }
        int status = mapping == seen || mapping == NULL ? 0 : read_choices(mapping);
        Py_XDECREF(mapping);
        if (status < 0) {
            return NULL;
        }
        if (chosen[the_gpu->index] != NULL) {
            return chosen[the_gpu->index];
        }
    }
    return first_lane();
}

char *
workspace_of(Lane *lane)
{
    if (lane->workspace == NULL) {
        Gpu *before = the_gpu;
        the_gpu = lane->gpu;
        lane->workspace = driver_allocate(WORKSPACE_BYTES);
        the_gpu = before;
    }
    return lane->workspace;
}

int
wait_for_lane(Lane *lane)
{
    int result = 0;
    if (flush_at(AT_WAIT, lane) < 0 || send_to(lane) < 0) {
        return -1;
    }
    lane->is_busy = lane->is_fed = 0;
    if (is_emulated) {
        wait_emulated(lane, emulated_work(lane));
        return 0;
    }
    Py_BEGIN_ALLOW_THREADS
    result = driver.stream_synchronize(lane->stream);
    Py_END_ALLOW_THREADS
    return failed(result, "waiting for a stream") ? -1 : 0;
}

Lane *
lane_of_number(PyObject *number)
{
    long found = PyLong_AsLong(number);
    if (found < 0 || found >= lane_count) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_ValueError, "there is no stream %ld", found);
        }
        return NULL;
    }
    return lanes[found];
}

/* ---- the module's */

/* start_lanes(context variable, what tells the numbers of streams of a mapping that it holds) */
PyObject *
module_start_lanes(PyObject *module, PyObject *args)
{
    PyObject *variable, *finder;
    if (!PyArg_ParseTuple(args, "O!O", &PyContextVar_Type, &variable, &finder)) {
        return NULL;
    }
    Py_XSETREF(choices, Py_NewRef(variable));
    Py_XSETREF(find_chosen, Py_NewRef(finder));
    Py_RETURN_NONE;
}

/* new_lane(device, kind, priority or handle): the number of a stream of a device. kind: 0 its default stream, 1 one of
 * its own of a priority, 2 one that somebody else has made */
PyObject *
module_new_lane(PyObject *module, PyObject *args)
{
    int index, kind;
    long long which;
    if (!PyArg_ParseTuple(args, "iiL", &index, &kind, &which) || enter_gpu(index) < 0 || first_lane() == NULL) {
        return NULL;
    }
    if (kind == 0) {
        return PyLong_FromLong(the_gpu->first->number);
    }
    if (kind == 2) {
        for (int k = 0; k < lane_count; k++) {
            if (lanes[k]->gpu == the_gpu && lanes[k]->stream == (Stream)(uintptr_t)which) {
                return PyLong_FromLong(k);
            }
        }
    }
    Lane *made = make_lane(kind == 1 ? (int)which : 0, kind == 2 ? (Stream)(uintptr_t)which : NULL);
    return made == NULL ? NULL : PyLong_FromLong(made->number);
}

/* lane_handle(number): the driver's */
PyObject *
module_lane_handle(PyObject *module, PyObject *number)
{
    Lane *lane = lane_of_number(number);
    return lane == NULL ? NULL : PyLong_FromVoidPtr(lane->stream);
}

/* lane_is_idle(number): whether all that it was asked for is done */
PyObject *
module_lane_is_idle(PyObject *module, PyObject *number)
{
    Lane *lane = lane_of_number(number);
    if (lane == NULL || flush_at(AT_QUERY, lane) < 0 || send_to(lane) < 0) {
        return NULL;
    }
    if (is_emulated) {
        return PyBool_FromLong(is_emulated_done(lane, emulated_work(lane)));
    }
    int result = driver.stream_query(lane->stream);
    return result != NOT_READY && failed(result, "asking a stream") ? NULL : PyBool_FromLong(result == 0);
}

PyObject *
module_synchronize_lane(PyObject *module, PyObject *number)
{
    Lane *lane = lane_of_number(number);
    return lane == NULL || wait_for_lane(lane) < 0 || raise_index_error() < 0 ? NULL : Py_NewRef(Py_None);
}

/* synchronize(): wait for all streams of the device in use */
PyObject *
module_synchronize(PyObject *module, PyObject *nothing)
{
    Gpu *gpu = the_gpu;
    for (int k = 0; k < lane_count; k++) {
        if (lanes[k]->gpu == gpu && wait_for_lane(lanes[k]) < 0) {
            return NULL;
        }
    }
    look_at_held(0);
    return raise_index_error() < 0 ? NULL : Py_NewRef(Py_None);
}

/* sleep(stream, nanoseconds): let it do nothing for that long, on an emulated device */
PyObject *
module_sleep(PyObject *module, PyObject *args)
{
    PyObject *number;
    long long time;
    if (!PyArg_ParseTuple(args, "OL", &number, &time)) {
        return NULL;
    }
    Lane *lane = lane_of_number(number);
    return lane == NULL || flush_lane(lane) < 0 || emulate_sleep(lane, time) < 0 ? NULL : Py_NewRef(Py_None);
}

/* stream(): the driver's handle of the current stream */
PyObject *
module_stream(PyObject *module, PyObject *nothing)
{
    Lane *lane = lane_now();
    return lane == NULL ? NULL : PyLong_FromVoidPtr(lane->stream);
}
