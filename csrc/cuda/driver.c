/* The driver, which is found when a device is first used, and the devices there are. */
#include "cuda/driver.h"

#include <dlfcn.h>

int is_emulated, gpu_count;
Gpu gpus[MOST_GPUS];
__thread Gpu *the_gpu = gpus;
long long *index_error;
char *staging;
Driver driver;

static long long emulated_index_error[4 * MOST_SITES];
static int site_count = 1;    /* lines that have words of their own; the first words are of all others */
static PyObject *site_namer; /* what names them */
static char emulated_staging[STAGING_BYTES];
static __thread Gpu *entered; /* the device whose context this thread has */

static const struct {
    const char *name;
    void *place;
} driver_names[] = {
    {"cuInit", &driver.init},
    {"cuDriverGetVersion", &driver.driver_version},
    {"cuDeviceGetCount", &driver.device_count},
    {"cuDeviceGet", &driver.device_get},
    {"cuDeviceGetName", &driver.device_name},
    {"cuDeviceGetAttribute", &driver.device_attribute},
    {"cuDeviceTotalMem_v2", &driver.device_memory},
    {"cuDeviceGetUuid", &driver.device_uuid},
    {"cuDevicePrimaryCtxRetain", &driver.context_retain},
    {"cuCtxSetCurrent", &driver.context_set},
    {"cuCtxSynchronize", &driver.context_synchronize},
    {"cuGetErrorString", &driver.error_text},
    {"cuStreamCreateWithPriority", &driver.stream_create},
    {"cuCtxGetStreamPriorityRange", &driver.stream_priorities},
    {"cuStreamSynchronize", &driver.stream_synchronize},
    {"cuStreamQuery", &driver.stream_query},
    {"cuStreamWaitEvent", &driver.stream_wait},
    {"cuEventCreate", &driver.event_create},
    {"cuEventRecord", &driver.event_record},
    {"cuEventQuery", &driver.event_query},
    {"cuEventSynchronize", &driver.event_synchronize},
    {"cuEventElapsedTime", &driver.event_elapsed},
    {"cuEventDestroy_v2", &driver.event_destroy},
    {"cuLibraryLoadData", &driver.library_load},
    {"cuLibraryGetKernel", &driver.library_kernel},
    {"cuLaunchKernelEx", &driver.launch},
    {"cuMemAlloc_v2", &driver.allocate},
    {"cuMemFree_v2", &driver.free},
    {"cuMemGetInfo_v2", &driver.memory_info},
    {"cuMemHostAlloc", &driver.allocate_host},
    {"cuMemFreeHost", &driver.free_host},
    {"cuMemcpyHtoDAsync_v2", &driver.to_device},
    {"cuMemcpyDtoHAsync_v2", &driver.to_host},
    {"cuMemcpyDtoDAsync_v2", &driver.within_device},
    {"cuMemcpyPeerAsync", &driver.to_peer},
    {"cuDeviceCanAccessPeer", &driver.can_reach_peer},
    {"cuMemsetD8Async", &driver.fill},
    {"cuStreamBeginCapture_v2", &driver.begin_capture},
    {"cuStreamEndCapture", &driver.end_capture},
    {"cuGraphInstantiateWithFlags", &driver.graph_instantiate},
    {"cuGraphLaunch", &driver.graph_launch},
    {"cuGraphDestroy", &driver.graph_destroy},
    {"cuGraphExecDestroy", &driver.graph_free},
};

int
failed(int result, const char *what)
{
    if (result == 0) {
        return 0;
    }
    const char *text = NULL;
    if (driver.error_text != NULL) {
        driver.error_text(result, &text);
    }
    PyErr_Format(PyExc_RuntimeError, "CUDA error while %s: %s (%d)", what, text == NULL ? "unknown" : text, result);
    return 1;
}

int
enter_context_of(Gpu *gpu)
{
    if (is_emulated || entered == gpu) {
        return 0;
    }
    if (failed(driver.context_set(gpu->context), "entering the context of a device")) {
        return -1;
    }
    entered = gpu;
    return 0;
}

int
enter_context(void)
{
    return enter_context_of(the_gpu);
}

static int
find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        PyErr_Format(PyExc_RuntimeError,
                     "no NVIDIA driver was found (%s). Use device='cpu', or install one. (UNDERTOW_CUDA=emulate runs the "
                     "GPU's code on the CPU, for tests.)",
                     dlerror());
        return -1;
    }
    for (size_t k = 0; k < sizeof(driver_names) / sizeof(driver_names[0]); k++) {
        void *found = dlsym(library, driver_names[k].name);
        if (found == NULL) {
            PyErr_Format(PyExc_RuntimeError, "the NVIDIA driver is too old: it has no %s. CUDA 12 is needed.",
                         driver_names[k].name);
            return -1;
        }
        memcpy(driver_names[k].place, &found, sizeof(found));
    }
    return 0;
}

/* Make a device ready for its first use. */
static int
start_gpu(Gpu *gpu)
{
    int major = 0;
    gpu->index = (int)(gpu - gpus);
    if (!is_emulated) {
        if (failed(driver.device_get(&gpu->device, gpu->index), "asking for a device") ||
            failed(driver.context_retain(&gpu->context, gpu->device), "making a context")) {
            return -1;
        }
        driver.device_attribute(&major, CAPABILITY_MAJOR, gpu->device);
        gpu->overlaps_launches = major >= 9;
    }
    gpu->is_started = 1;
    return 0;
}

int
enter_gpu(int index)
{
    if (index < 0 || index >= gpu_count) {
        PyErr_Format(PyExc_RuntimeError, "invalid device ordinal: cuda:%d is none of the %d GPUs there are", index,
                     gpu_count);
        return -1;
    }
    if (!gpus[index].is_started && start_gpu(&gpus[index]) < 0) {
        return -1;
    }
    the_gpu = &gpus[index];
    return 0;
}

/* The words that kernels and copies of all devices use. */
static int
start_words(void)
{
    void *words;
    if (is_emulated) {
        index_error = emulated_index_error;
        staging = emulated_staging;
        return 0;
    }
    if (enter_context() < 0 ||
        failed(driver.allocate_host(&words, STAGING_BYTES + sizeof(emulated_index_error), PORTABLE_MEMORY), "pinning memory")) {
        return -1;
    }
    index_error = words;
    memset(index_error, 0, sizeof(emulated_index_error));
    staging = (char *)(index_error + 4 * MOST_SITES);
    return 0;
}

/* start(emulated, how many of those): find the driver and the devices, and make the first ready; how many there are */
PyObject *
module_start(PyObject *module, PyObject *args)
{
    int emulated, count; /* nothing is changed where there is no GPU to use */
    if (!PyArg_ParseTuple(args, "pi", &emulated, &count)) {
        return NULL;
    }
    count = count < 1 ? 1 : count;
    if (!emulated && (find_driver() < 0 || failed(driver.init(0), "starting the driver") ||
                      failed(driver.device_count(&count), "counting devices"))) {
        return NULL;
    }
    if (count == 0) {
        PyErr_SetString(PyExc_RuntimeError, "the NVIDIA driver is there, and no GPU. Use device='cpu'.");
        return NULL;
    }
    is_emulated = emulated;
    gpu_count = count > MOST_GPUS ? MOST_GPUS : count;
    return enter_gpu(0) < 0 || start_words() < 0 ? NULL : PyLong_FromLong(gpu_count);
}

/* describe(index): a dict of what is known of a device */
PyObject *
module_describe(PyObject *module, PyObject *index)
{
    char name[256] = "emulated device", uuid[16] = "";
    int major = 0, minor = 0, version = 0, processors = 1, threads = 2048;
    size_t bytes = (size_t)16 << 30;
    long number = PyLong_AsLong(index);
    if ((number == -1 && PyErr_Occurred()) || enter_gpu((int)number) < 0) {
        return NULL;
    }
    if (!is_emulated) {
        driver.device_name(name, sizeof(name), the_gpu->device);
        driver.device_attribute(&major, CAPABILITY_MAJOR, the_gpu->device);
        driver.device_attribute(&minor, CAPABILITY_MINOR, the_gpu->device);
        driver.device_attribute(&processors, PROCESSORS, the_gpu->device);
        driver.device_attribute(&threads, THREADS_OF_PROCESSOR, the_gpu->device);
        driver.device_memory(&bytes, the_gpu->device);
        driver.device_uuid(uuid, the_gpu->device);
        driver.driver_version(&version);
    }
    return Py_BuildValue("{s:s,s:i,s:i,s:i,s:i,s:n,s:i,s:i,s:y#}", "name", name, "major", major, "minor", minor,
                         "multi_processor_count", processors, "max_threads_per_multi_processor", threads,
                         "total_memory", (Py_ssize_t)bytes, "driver_version", version, "device_count", gpu_count, "uuid",
                         uuid, (Py_ssize_t)sizeof(uuid));
}

/* enter(index): see Note [The device in use] */
PyObject *
module_enter(PyObject *module, PyObject *index)
{
    long number = PyLong_AsLong(index);
    return (number == -1 && PyErr_Occurred()) || enter_gpu((int)number) < 0 ? NULL : Py_NewRef(Py_None);
}

/* can_reach_peer(index, other): whether one device sees the memory of another */
PyObject *
module_can_reach_peer(PyObject *module, PyObject *args)
{
    int index, other, can = 1;
    if (!PyArg_ParseTuple(args, "ii", &index, &other) || enter_gpu(other) < 0 || enter_gpu(index) < 0) {
        return NULL;
    }
    if (!is_emulated && failed(driver.can_reach_peer(&can, gpus[index].device, gpus[other].device), "asking a device")) {
        return NULL;
    }
    return PyBool_FromLong(can && index != other);
}

/* free_memory(): the bytes that the device in use has left, and all it has */
PyObject *
module_free_memory(PyObject *module, PyObject *nothing)
{
    size_t left = ((size_t)16 << 30) - the_gpu->reserved, all = (size_t)16 << 30;
    if (!is_emulated && (enter_context() < 0 || failed(driver.memory_info(&left, &all), "asking for memory"))) {
        return NULL;
    }
    return Py_BuildValue("nn", (Py_ssize_t)left, (Py_ssize_t)all);
}

int
raise_index_error(void)
{
    for (int site = 0; site < site_count; site++) {
        volatile long long *words = index_error + 4 * site;
        if (words[0] == 0) {
            continue;
        }
        long long index = words[1], size = words[2];
        for (int other = site; other < site_count; other++) { /* what followed from it, most of the time */
            ((volatile long long *)index_error)[4 * other] = 0;
        }
        PyObject *name = site_namer == NULL ? NULL : PyObject_CallFunction(site_namer, "i", site);
        if (name != NULL) {
            PyErr_Format(PyExc_IndexError,
                         "index %lld is out of bounds for dimension with size %lld, in an operation on cuda %S", index,
                         size, name);
        }
        Py_XDECREF(name);
        return -1;
    }
    return 0;
}

/* load(cubin, names): its kernels, which run on every device */
PyObject *
module_load(PyObject *module, PyObject *args)
{
    const char *data;
    Py_ssize_t size;
    PyObject *names;
    Module loaded;
    if (!PyArg_ParseTuple(args, "y#O!", &data, &size, &PyTuple_Type, &names) || enter_context() < 0 ||
        failed(driver.library_load(&loaded, data, NULL, NULL, 0, NULL, NULL, 0), "loading a kernel")) {
        return NULL;
    }
    PyObject *found = PyTuple_New(PyTuple_GET_SIZE(names));
    for (Py_ssize_t k = 0; found != NULL && k < PyTuple_GET_SIZE(names); k++) {
        const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, k));
        Function function = NULL;
        if (name == NULL || failed(driver.library_kernel(&function, loaded, name), name)) {
            Py_CLEAR(found);
            break;
        }
        PyTuple_SET_ITEM(found, k, PyLong_FromVoidPtr(function));
    }
    return found;
}

/* error_word(site): the address of the words of a line, by its number */
PyObject *
module_error_word(PyObject *module, PyObject *site)
{
    long number = PyLong_AsLong(site);
    if (number < 0 || number >= MOST_SITES) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "there are words for %d lines", MOST_SITES);
    }
    site_count = number >= site_count ? (int)number + 1 : site_count;
    return PyLong_FromVoidPtr(index_error + 4 * number);
}

/* name_sites(function): what says where the line of a number is */
PyObject *
module_name_sites(PyObject *module, PyObject *function)
{
    Py_XSETREF(site_namer, Py_NewRef(function));
    Py_RETURN_NONE;
}
