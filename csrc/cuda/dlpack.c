/* DLPack: giving memory of a device to other libraries, and taking theirs, without copies. The structures are those of its
 * specification, version 1. */
#include "cuda/driver.h"

enum { CUDA_DEVICE = 2, READ_ONLY = 1 };
enum { KIND_INT, KIND_UINT, KIND_FLOAT, KIND_HANDLE, KIND_BFLOAT, KIND_COMPLEX, KIND_BOOL };

typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t kind, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* in elements; strides NULL: row after row */
    uint64_t byte_offset;
} Shared;

typedef struct Managed {
    Shared tensor;
    void *context;
    void (*deleter)(struct Managed *);
} Managed;

typedef struct Versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct Versioned *);
    uint64_t flags;
    Shared tensor;
} Versioned;

static const struct {
    uint8_t kind, bits;
} forms[] = {
    [CODE_BOOL] = {KIND_BOOL, 8},     [CODE_U8] = {KIND_UINT, 8},     [CODE_U16] = {KIND_UINT, 16},
    [CODE_U32] = {KIND_UINT, 32},     [CODE_U64] = {KIND_UINT, 64},   [CODE_I8] = {KIND_INT, 8},
    [CODE_I16] = {KIND_INT, 16},      [CODE_I32] = {KIND_INT, 32},    [CODE_I64] = {KIND_INT, 64},
    [CODE_F16] = {KIND_FLOAT, 16},    [CODE_F32] = {KIND_FLOAT, 32},  [CODE_F64] = {KIND_FLOAT, 64},
    [CODE_C64] = {KIND_COMPLEX, 64},  [CODE_C128] = {KIND_COMPLEX, 128}, [CODE_BF16] = {KIND_BFLOAT, 16},
};

/* ---- giving */

typedef struct {
    Array *array;
    int64_t shape[MOST_DIMS], strides[MOST_DIMS];
    union {
        Managed old;
        Versioned new;
    } managed;
} Given;

/* Whoever has taken the memory is done with it, in any thread. */
static void
let_go(Given *given)
{
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF(given->array);
        PyGILState_Release(state);
    }
    free(given);
}

static void
delete_old(Managed *managed)
{
    let_go(managed->context);
}

static void
delete_new(Versioned *managed)
{
    let_go(managed->context);
}

/* A capsule that nobody has taken. */
static void
capsule_dealloc(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        Managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
        managed->deleter(managed);
    }
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        Versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        managed->deleter(managed);
    }
}

static Shared
described(Given *given)
{
    Array *array = given->array;
    npy_intp item = PyDataType_ELSIZE(array->dtype);
    for (int k = 0; k < array->nd; k++) {
        given->shape[k] = array->dims[k];
        given->strides[k] = array->strides[k] / item;
    }
    return (Shared){.data = array->data, .device_type = CUDA_DEVICE, .device_id = array->block->lane->gpu->index,
                    .ndim = array->nd, .kind = forms[(int)array->code].kind, .bits = forms[(int)array->code].bits,
                    .lanes = 1, .shape = given->shape, .strides = given->strides};
}

/* to_dlpack(array, whether in the form of version 1): a capsule */
PyObject *
module_to_dlpack(PyObject *module, PyObject *args)
{
    PyObject *object;
    int is_versioned;
    if (!PyArg_ParseTuple(args, "O!p", &Array_Type, &object, &is_versioned) || flush_all() < 0) {
        return NULL;
    }
    if (((Array *)object)->code == CODE_UNKNOWN) {
        PyErr_SetString(PyExc_BufferError, "DLPack has no form for this dtype");
        return NULL;
    }
    Given *given = calloc(1, sizeof(Given));
    if (given == NULL) {
        return PyErr_NoMemory();
    }
    given->array = (Array *)Py_NewRef(object);
    PyObject *capsule;
    if (is_versioned) {
        given->managed.new = (Versioned){.major = 1, .context = given, .deleter = delete_new, .tensor = described(given),
                                         .flags = given->array->is_writeable ? 0 : READ_ONLY};
        capsule = PyCapsule_New(&given->managed.new, "dltensor_versioned", capsule_dealloc);
    }
    else {
        given->managed.old = (Managed){.context = given, .deleter = delete_old, .tensor = described(given)};
        capsule = PyCapsule_New(&given->managed.old, "dltensor", capsule_dealloc);
    }
    if (capsule == NULL) {
        let_go(given);
    }
    return capsule;
}

/* ---- taking */

static void
taken_dealloc(PyObject *owner)
{
    Versioned *new = PyCapsule_IsValid(owner, "undertow_versioned") ? PyCapsule_GetPointer(owner, "undertow_versioned") : NULL;
    Managed *old = new == NULL ? PyCapsule_GetPointer(owner, "undertow_managed") : NULL;
    if (new != NULL && new->deleter != NULL) {
        new->deleter(new);
    }
    else if (old != NULL && old->deleter != NULL) {
        old->deleter(old);
    }
}

static const char *
form_of(const Shared *tensor, int *code)
{
    for (*code = 0; *code < CODE_UNKNOWN; (*code)++) {
        if (forms[*code].kind == tensor->kind && forms[*code].bits == tensor->bits && tensor->lanes == 1) {
            static const char *const names[] = {"?", "u1", "u2", "u4", "u8", "i1", "i2", "i4",
                                                "i8", "f2", "f4", "f8", "c8", "c16", "bfloat16"};
            return names[*code];
        }
    }
    return NULL;
}

/* capsule_device(capsule): DLPack's number of the kind of device whose memory it holds */
PyObject *
module_capsule_device(PyObject *module, PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        const Versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        return PyLong_FromLong(managed->tensor.device_type);
    }
    const Managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    return managed == NULL ? NULL : PyLong_FromLong(managed->tensor.device_type);
}

/* from_dlpack(capsule): (pointer, shape, strides in bytes, name of the dtype, device, whether it is writeable, owner) */
PyObject *
module_from_dlpack(PyObject *module, PyObject *capsule)
{
    int is_versioned = PyCapsule_IsValid(capsule, "dltensor_versioned"), code;
    if (!is_versioned && !PyCapsule_IsValid(capsule, "dltensor")) {
        PyErr_SetString(PyExc_BufferError, "from_dlpack takes a capsule that nobody has taken yet");
        return NULL;
    }
    void *managed = PyCapsule_GetPointer(capsule, is_versioned ? "dltensor_versioned" : "dltensor");
    const Shared *tensor = is_versioned ? &((Versioned *)managed)->tensor : &((Managed *)managed)->tensor;
    const char *name = form_of(tensor, &code);
    if (name == NULL || tensor->device_type != CUDA_DEVICE || tensor->ndim > MOST_DIMS) {
        PyErr_Format(PyExc_BufferError,
                     "from_dlpack cannot take this memory: device type %d (2 is CUDA), kind of dtype %d with %d bits, %d "
                     "dimensions (of at most %d)",
                     tensor->device_type, tensor->kind, tensor->bits, tensor->ndim, MOST_DIMS);
        return NULL;
    }
    PyObject *shape = PyTuple_New(tensor->ndim), *strides = PyTuple_New(tensor->ndim);
    int64_t step = tensor->bits / 8;
    for (int k = tensor->ndim - 1; shape != NULL && strides != NULL && k >= 0; k--) {
        int64_t own = tensor->strides == NULL ? step : tensor->strides[k] * (tensor->bits / 8);
        PyTuple_SET_ITEM(shape, k, PyLong_FromLongLong(tensor->shape[k]));
        PyTuple_SET_ITEM(strides, k, PyLong_FromLongLong(own));
        step *= tensor->shape[k];
    }
    PyObject *owner = PyCapsule_New(managed, is_versioned ? "undertow_versioned" : "undertow_managed", taken_dealloc);
    if (shape == NULL || strides == NULL || owner == NULL ||
        PyCapsule_SetName(capsule, is_versioned ? "used_dltensor_versioned" : "used_dltensor") < 0) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        return NULL;
    }
    int is_writeable = !(is_versioned && ((Versioned *)managed)->flags & READ_ONLY);
    return Py_BuildValue("KNNsiON", (unsigned long long)(uintptr_t)((char *)tensor->data + tensor->byte_offset), shape,
                         strides, name, tensor->device_id, is_writeable ? Py_True : Py_False, owner);
}

/* ---- streams of other libraries: 1 is the driver's old default one, 2 that of each thread, others are handles */

/* let_wait(handle): let a stream of somebody else's wait for the current one; on an emulated device, the program waits */
PyObject *
module_let_wait(PyObject *module, PyObject *handle)
{
    unsigned long long other = PyLong_AsUnsignedLongLong(handle);
    Lane *lane = PyErr_Occurred() ? NULL : lane_now();
    if (lane == NULL) {
        return NULL;
    }
    if (is_emulated) {
        return wait_for_lane(lane) < 0 ? NULL : Py_NewRef(Py_None);
    }
    Mark mark = {.lane = NULL};
    int status = mark_lane(lane, &mark);
    if (status == 0 && failed(driver.stream_wait((Stream)(uintptr_t)other, mark.handle, 0), "waiting for an event")) {
        status = -1;
    }
    drop_mark(&mark);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

/* wait_for(handle): let the current stream wait for one of somebody else's */
PyObject *
module_wait_for(PyObject *module, PyObject *handle)
{
    unsigned long long other = PyLong_AsUnsignedLongLong(handle);
    Lane *lane = PyErr_Occurred() ? NULL : lane_now();
    void *event = NULL;
    if (lane == NULL || flush_lane(lane) < 0 || send_to(lane) < 0) {
        return NULL;
    }
    if (is_emulated) {
        Py_RETURN_NONE;
    }
    int result = driver.event_create(&event, EVENT_WITHOUT_TIME);
    result = result ? result : driver.event_record(event, (Stream)(uintptr_t)other);
    result = result ? result : driver.stream_wait(lane->stream, event, 0);
    if (event != NULL) {
        driver.event_destroy(event);
    }
    return failed(result, "waiting for a stream of another library") ? NULL : Py_NewRef(Py_None);
}
