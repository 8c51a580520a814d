/* Pinned memory of the host, which the device reads and writes by itself, and copies that nobody waits for. */
#include "cuda/driver.h"

/* ---- Pinned memory: a buffer for NumPy's arrays, which goes back when the last of them is gone */

typedef struct {
    PyObject_HEAD
    void *data;
    Py_ssize_t bytes;
} Pinned;

static PyTypeObject Pinned_Type;

static int
pinned_buffer(Pinned *self, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, (PyObject *)self, self->data, self->bytes, 0, flags);
}

static void
pinned_dealloc(Pinned *self)
{
    /* no copy is under way: copy_later holds what it copies */
    if (is_emulated) {
        free(self->data);
    }
    else if (self->data != NULL) {
        driver.free_host(self->data);
    }
    Py_TYPE(self)->tp_free(self);
}

static PyBufferProcs pinned_as_buffer = {.bf_getbuffer = (getbufferproc)pinned_buffer};

static PyTypeObject Pinned_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._cuda.Pinned",
    .tp_basicsize = sizeof(Pinned),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = (destructor)pinned_dealloc,
    .tp_as_buffer = &pinned_as_buffer,
};

/* pinned(bytes): a buffer */
PyObject *
module_pinned(PyObject *module, PyObject *count)
{
    Py_ssize_t bytes = PyLong_AsSsize_t(count);
    if ((bytes < 0 && PyErr_Occurred()) || PyType_Ready(&Pinned_Type) < 0) {
        return NULL;
    }
    Pinned *self = PyObject_New(Pinned, &Pinned_Type);
    if (self == NULL) {
        return NULL;
    }
    self->data = NULL;
    self->bytes = bytes;
    size_t wanted = bytes < 1 ? 1 : (size_t)bytes;
    if (is_emulated) {
        self->data = malloc(wanted);
    }
    else if (enter_context() < 0 || failed(driver.allocate_host(&self->data, wanted, PORTABLE_MEMORY), "pinning memory")) {
        Py_DECREF(self);
        return NULL;
    }
    if (self->data == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static Pinned *
pinned_of(PyObject *array)
{
    while (array != NULL && PyArray_Check(array)) {
        array = PyArray_BASE((PyArrayObject *)array);
    }
    if (array != NULL && PyMemoryView_Check(array)) {
        array = PyMemoryView_GET_BUFFER(array)->obj;
    }
    return array != NULL && Py_TYPE(array) == &Pinned_Type ? (Pinned *)array : NULL;
}

/* is_pinned(array of NumPy's) */
PyObject *
module_is_pinned(PyObject *module, PyObject *array)
{
    return PyBool_FromLong(pinned_of(array) != NULL);
}

/* ---- copies */

/* copy_later(array, array of NumPy's in pinned memory, whether it is to the device): all that both have, which lies alike;
 * on the current stream, and not waited for. Whether that was possible. */
PyObject *
module_copy_later(PyObject *module, PyObject *args)
{
    PyObject *there, *host;
    int is_to_device, result;
    if (!PyArg_ParseTuple(args, "O!O!p", &Array_Type, &there, &PyArray_Type, &host, &is_to_device)) {
        return NULL;
    }
    Array *array = (Array *)there;
    PyArrayObject *numbers = (PyArrayObject *)host;
    size_t bytes = (size_t)PyArray_NBYTES(numbers);
    if (pinned_of(host) == NULL || !array->is_contiguous || !PyArray_IS_C_CONTIGUOUS(numbers) ||
        bytes != (size_t)(array->size * PyDataType_ELSIZE(array->dtype))) {
        Py_RETURN_FALSE;
    }
    the_gpu = array->block->lane->gpu;
    Lane *lane = lane_now();
    if (lane == NULL || flush_lane(lane) < 0 || send_to(lane) < 0) {
        return NULL;
    }
    void *data = PyArray_DATA(numbers);
    if (bytes == 0) {
        Py_RETURN_TRUE;
    }
    if (is_emulated) {
        result = is_to_device ? emulate_copy(lane, array->data, data, bytes) : emulate_copy(lane, data, array->data, bytes);
    }
    else {
        result = is_to_device ? driver.to_device((DevicePointer)array->data, data, bytes, lane->stream)
                              : driver.to_host(data, (DevicePointer)array->data, bytes, lane->stream);
        result = failed(result, "copying") ? -1 : 0;
    }
    if (result < 0) {
        return NULL;
    }
    hold_object(host, lane); /* the program may drop it before the copy is done */
    Py_RETURN_TRUE;
}

/* copy_to_peer(to, from): between two devices, both row after row, on the current stream of the second one's */
PyObject *
module_copy_to_peer(PyObject *module, PyObject *args)
{
    PyObject *first, *second;
    if (!PyArg_ParseTuple(args, "O!O!", &Array_Type, &first, &Array_Type, &second)) {
        return NULL;
    }
    Array *to = (Array *)first, *from = (Array *)second;
    size_t bytes = (size_t)(from->size * PyDataType_ELSIZE(from->dtype));
    if (!to->is_contiguous || !from->is_contiguous || to->size != from->size || to->dtype != from->dtype) {
        PyErr_SetString(PyExc_ValueError, "copy_to_peer(to, from) takes arrays that lie alike");
        return NULL;
    }
    the_gpu = from->block->lane->gpu;
    Lane *lane = lane_now();
    if (lane == NULL || flush_lane(lane) < 0 || send_to(lane) < 0) {
        return NULL;
    }
    if (bytes == 0) {
        Py_RETURN_NONE;
    }
    if (is_emulated) {
        return emulate_copy(lane, to->data, from->data, bytes) < 0 ? NULL : Py_NewRef(Py_None);
    }
    int result = driver.to_peer((DevicePointer)to->data, to->block->lane->gpu->context, (DevicePointer)from->data,
                                lane->gpu->context, bytes, lane->stream);
    return failed(result, "copying between devices") ? NULL : Py_NewRef(Py_None);
}
