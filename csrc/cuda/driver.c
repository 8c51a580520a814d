/* The driver: declared here, so that building needs no CUDA headers, and found when a device is first used. */
#include "cuda/cuda.h"

#include <dlfcn.h>

int is_emulated, is_started;
Stream the_stream;
long long *index_error;
char *staging;

static long long emulated_index_error[4];
static char emulated_staging[STAGING_BYTES];
static void *context;
static __thread int has_context; /* whether this thread has been given the context */
static int overlaps_launches;    /* whether kernels may start before the one ahead has ended, as those of sm_90 */

typedef struct {
    unsigned id;
    char padding[4];
    union {
        char room[64];
        int allowed;
    } value;
} LaunchAttribute;

typedef struct {
    unsigned grid[3], block[3], shared;
    Stream stream;
    LaunchAttribute *attributes;
    unsigned count;
} LaunchConfiguration;

enum { PROGRAMMATIC_SERIALIZATION = 6, NON_BLOCKING_STREAM = 1, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76,
       PROCESSORS = 16, RELAXED_CAPTURE = 2 };

static struct {
    int (*init)(unsigned);
    int (*driver_version)(int *);
    int (*device_count)(int *);
    int (*device_get)(int *, int);
    int (*device_name)(char *, int, int);
    int (*device_attribute)(int *, int, int);
    int (*device_memory)(size_t *, int);
    int (*context_retain)(void **, int);
    int (*context_set)(void *);
    int (*error_text)(int, const char **);
    int (*stream_create)(Stream *, unsigned);
    int (*stream_synchronize)(Stream);
    int (*module_load)(Module *, const void *);
    int (*module_function)(Function *, Module, const char *);
    int (*launch)(const LaunchConfiguration *, Function, void **, void **);
    int (*allocate)(DevicePointer *, size_t);
    int (*free)(DevicePointer);
    int (*allocate_host)(void **, size_t);
    int (*to_device)(DevicePointer, const void *, size_t, Stream);
    int (*to_host)(void *, DevicePointer, size_t, Stream);
    int (*fill)(DevicePointer, unsigned char, size_t, Stream);
    int (*begin_capture)(Stream, int);
    int (*end_capture)(Stream, void **);
    int (*graph_instantiate)(void **, void *, unsigned long long);
    int (*graph_launch)(void *, Stream);
    int (*graph_destroy)(void *);
    int (*graph_free)(void *);
} driver;

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
    {"cuDevicePrimaryCtxRetain", &driver.context_retain},
    {"cuCtxSetCurrent", &driver.context_set},
    {"cuGetErrorString", &driver.error_text},
    {"cuStreamCreate", &driver.stream_create},
    {"cuStreamSynchronize", &driver.stream_synchronize},
    {"cuModuleLoadData", &driver.module_load},
    {"cuModuleGetFunction", &driver.module_function},
    {"cuLaunchKernelEx", &driver.launch},
    {"cuMemAlloc_v2", &driver.allocate},
    {"cuMemFree_v2", &driver.free},
    {"cuMemAllocHost_v2", &driver.allocate_host},
    {"cuMemcpyHtoDAsync_v2", &driver.to_device},
    {"cuMemcpyDtoHAsync_v2", &driver.to_host},
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
enter_context(void)
{
    if (is_emulated || has_context) {
        return 0;
    }
    if (failed(driver.context_set(context), "entering the context of the device")) {
        return -1;
    }
    has_context = 1;
    return 0;
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

/* What start() returns of the first device. */
static PyObject *
described(int device, int count)
{
    char name[256] = "";
    int major = 0, minor = 0, version = 0, processors = 0;
    size_t bytes = 0;
    driver.device_name(name, sizeof(name), device);
    driver.device_attribute(&major, CAPABILITY_MAJOR, device);
    driver.device_attribute(&minor, CAPABILITY_MINOR, device);
    driver.device_attribute(&processors, PROCESSORS, device);
    driver.device_memory(&bytes, device);
    driver.driver_version(&version);
    overlaps_launches = major >= 9;
    return Py_BuildValue("{s:s,s:i,s:i,s:i,s:n,s:i,s:i}", "name", name, "major", major, "minor", minor,
                         "multi_processor_count", processors, "total_memory", (Py_ssize_t)bytes, "driver_version",
                         version, "device_count", count);
}

/* start(emulated): find the driver, and the first device; a dict of what is known of it */
PyObject *
module_start(PyObject *module, PyObject *args)
{
    int device = 0, count = 0;
    if (!PyArg_ParseTuple(args, "p", &is_emulated)) {
        return NULL;
    }
    if (is_emulated) {
        is_started = 1;
        index_error = emulated_index_error;
        staging = emulated_staging;
        return Py_BuildValue("{s:s,s:i,s:i,s:i,s:n,s:i,s:i}", "name", "emulated device", "major", 0, "minor", 0,
                             "multi_processor_count", 1, "total_memory", (Py_ssize_t)16 << 30, "driver_version", 0,
                             "device_count", 1);
    }
    if (find_driver() < 0 || failed(driver.init(0), "starting the driver") ||
        failed(driver.device_count(&count), "counting devices")) {
        return NULL;
    }
    if (count == 0) {
        PyErr_SetString(PyExc_RuntimeError, "the NVIDIA driver is there, and no GPU. Use device='cpu'.");
        return NULL;
    }
    void *words;
    if (failed(driver.device_get(&device, 0), "asking for the device") ||
        failed(driver.context_retain(&context, device), "making a context") || enter_context() < 0 ||
        failed(driver.stream_create(&the_stream, NON_BLOCKING_STREAM), "making a stream") ||
        failed(driver.allocate_host(&words, STAGING_BYTES + 4 * sizeof(long long)), "pinning memory")) {
        return NULL;
    }
    index_error = words;
    memset(index_error, 0, 4 * sizeof(long long));
    staging = (char *)(index_error + 4);
    is_started = 1;
    return described(device, count);
}

char *
driver_allocate(size_t bytes)
{
    if (is_emulated) {
        return aligned_alloc(512, (bytes + 511) & ~(size_t)511);
    }
    DevicePointer found = 0;
    if (enter_context() < 0) {
        PyErr_Clear();
        return NULL;
    }
    return driver.allocate(&found, bytes) == 0 ? (char *)found : NULL;
}

void
driver_free(char *memory)
{
    if (is_emulated) {
        free(memory);
    }
    else if (enter_context() == 0) {
        driver.free((DevicePointer)memory); /* which waits for the device */
    }
    else {
        PyErr_Clear();
    }
}

int
driver_copy_to_device(char *to, const void *from, size_t bytes)
{
    if (flush() < 0) {
        return -1;
    }
    if (is_emulated) {
        memcpy(to, from, bytes);
        return 0;
    }
    if (enter_context() < 0) {
        return -1;
    }
    int result = driver.to_device((DevicePointer)to, from, bytes, the_stream);
    if (result == 0) {
        result = driver.stream_synchronize(the_stream); /* the caller's memory may be gone after this */
    }
    return failed(result, "copying to the device") ? -1 : 0;
}

int
driver_copy_to_host(void *to, const char *from, size_t bytes)
{
    int result;
    if (flush() < 0) {
        return -1;
    }
    if (is_emulated) {
        memcpy(to, from, bytes);
        return raise_index_error();
    }
    if (enter_context() < 0) {
        return -1;
    }
    if (bytes <= STAGING_BYTES) { /* under the lock: there is one staging buffer */
        result = driver.to_host(staging, (DevicePointer)from, bytes, the_stream);
        result = result ? result : driver.stream_synchronize(the_stream);
        memcpy(to, staging, bytes);
    }
    else {
        Py_BEGIN_ALLOW_THREADS
        result = driver.to_host(to, (DevicePointer)from, bytes, the_stream);
        result = result ? result : driver.stream_synchronize(the_stream);
        Py_END_ALLOW_THREADS
    }
    return failed(result, "copying to the host") ? -1 : raise_index_error();
}

int
driver_fill_zero(char *memory, size_t bytes)
{
    if (is_emulated) {
        memset(memory, 0, bytes);
        return 0;
    }
    return enter_context() < 0 || failed(driver.fill((DevicePointer)memory, 0, bytes, the_stream), "filling memory")
               ? -1
               : 0;
}

int
driver_synchronize(void)
{
    int result = 0;
    if (flush() < 0) {
        return -1;
    }
    if (!is_emulated) {
        if (enter_context() < 0) {
            return -1;
        }
        Py_BEGIN_ALLOW_THREADS
        result = driver.stream_synchronize(the_stream);
        Py_END_ALLOW_THREADS
    }
    return failed(result, "waiting for the device") ? -1 : raise_index_error();
}

int
raise_index_error(void)
{
    volatile long long *words = index_error;
    if (words[0] == 0) {
        return 0;
    }
    long long index = words[1], size = words[2];
    words[0] = 0;
    PyErr_Format(PyExc_IndexError,
                 "index %lld is out of bounds for dimension with size %lld, in an operation on cuda that has run since "
                 "the program last waited for the device",
                 index, size);
    return -1;
}

typedef void (*HostKernel)(const void *arguments, unsigned gx, unsigned gy, unsigned gz, unsigned block);

int
driver_launch(Function function, const unsigned *grid, unsigned block, void *arguments)
{
    if (is_emulated) {
        HostKernel kernel;
        memcpy(&kernel, &function, sizeof(kernel));
        kernel(arguments, grid[0], grid[1], grid[2], block);
        return 0;
    }
    LaunchAttribute attribute = {.id = PROGRAMMATIC_SERIALIZATION, .value.allowed = 1};
    LaunchConfiguration configuration = {{grid[0], grid[1], grid[2]}, {block, 1, 1}, 0, the_stream,
                                         &attribute, (unsigned)overlaps_launches};
    void *list[] = {arguments};
    return failed(driver.launch(&configuration, function, list, NULL), "launching a kernel") ? -1 : 0;
}

/* ---- graphs */

int
driver_begin_capture(void)
{
    return failed(driver.begin_capture(the_stream, RELAXED_CAPTURE), "recording a graph") ? -1 : 0;
}

int
driver_end_capture(void **made)
{
    void *graph = NULL;
    int result = driver.end_capture(the_stream, &graph);
    if (made == NULL) { /* the error that is under way matters more */
        if (result == 0) {
            driver.graph_destroy(graph);
        }
        return 0;
    }
    if (failed(result, "recording a graph")) {
        return -1;
    }
    result = driver.graph_instantiate(made, graph, 0);
    driver.graph_destroy(graph);
    return failed(result, "making a graph") ? -1 : 0;
}

int
driver_launch_graph(void *graph)
{
    return failed(driver.graph_launch(graph, the_stream), "launching a graph") ? -1 : 0;
}

void
driver_free_graph(void *graph)
{
    if (graph != NULL && !is_emulated) {
        driver.graph_free(graph);
    }
}

/* load(cubin, names): the addresses of its kernels */
PyObject *
module_load(PyObject *module, PyObject *args)
{
    const char *data;
    Py_ssize_t size;
    PyObject *names;
    Module loaded;
    if (!PyArg_ParseTuple(args, "y#O!", &data, &size, &PyTuple_Type, &names) || enter_context() < 0 ||
        failed(driver.module_load(&loaded, data), "loading a kernel")) {
        return NULL;
    }
    PyObject *found = PyTuple_New(PyTuple_GET_SIZE(names));
    for (Py_ssize_t k = 0; found != NULL && k < PyTuple_GET_SIZE(names); k++) {
        const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, k));
        Function function = NULL;
        if (name == NULL || failed(driver.module_function(&function, loaded, name), name)) {
            Py_CLEAR(found);
            break;
        }
        PyTuple_SET_ITEM(found, k, PyLong_FromVoidPtr(function));
    }
    return found;
}

PyObject *
module_synchronize(PyObject *module, PyObject *nothing)
{
    return driver_synchronize() < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *
module_stream(PyObject *module, PyObject *nothing)
{
    return PyLong_FromVoidPtr(the_stream);
}

PyObject *
module_error_word(PyObject *module, PyObject *nothing)
{
    return PyLong_FromVoidPtr(index_error);
}
