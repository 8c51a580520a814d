/* Convolutions by cuDNN, which is found when the first one is asked for. Descriptors and algorithms are Python's
 * (backend/cuda/cudnn.py); here they become entries of the queue. */
#include "cuda/cuda.h"

#include <dlfcn.h>

typedef void *Handle;
typedef int (*Call)(Handle, const void *, void *, const void *, void *, const void *, void *, int, void *, size_t,
                    const void *, void *, void *);

static Handle handles[MOST_GPUS]; /* made when a device is first used */
static int (*create)(Handle *), (*set_stream)(Handle, Stream);
static Call calls[3]; /* forward, the gradient of the input, that of the weight */

typedef struct {
    int which, algorithm, is_double, padding;
    void *first, *second, *convolution, *result; /* descriptors */
    const char *a, *b;
    char *out, *workspace;
    size_t workspace_bytes;
} Convolution;

void *
dnn_handle(void)
{
    Handle *handle = &handles[the_lane->gpu->index];
    return (*handle == NULL && create(handle)) || set_stream(*handle, the_stream) ? NULL : *handle;
}

static int
issue_convolution(const void *arguments)
{
    const Convolution *c = arguments;
    const float one = 1, zero = 0;
    const double ones = 1, zeros = 0;
    const void *alpha = c->is_double ? (const void *)&ones : &one, *beta = c->is_double ? (const void *)&zeros : &zero;
    Handle handle = dnn_handle();
    int result = handle == NULL ? -1 : 0;
    if (result == 0) {
        result = calls[c->which](handle, alpha, c->first, c->a, c->second, c->b, c->convolution, c->algorithm,
                                 c->workspace, c->workspace_bytes, beta, c->result, c->out);
    }
    if (result) {
        PyErr_Format(PyExc_RuntimeError, "cuDNN failed at a convolution, with status %d", result);
    }
    return result ? -1 : 0;
}

/* start_dnn(path): the handle, a number */
PyObject *
module_start_dnn(PyObject *module, PyObject *path)
{
    static const char *const names[] = {"cudnnConvolutionForward", "cudnnConvolutionBackwardData",
                                        "cudnnConvolutionBackwardFilter"};
    const char *text = PyUnicode_AsUTF8(path);
    void *library = text == NULL ? NULL : dlopen(text, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        if (text != NULL) {
            PyErr_Format(PyExc_RuntimeError, "cuDNN cannot be loaded: %s", dlerror());
        }
        return NULL;
    }
    *(void **)&create = dlsym(library, "cudnnCreate");
    *(void **)&set_stream = dlsym(library, "cudnnSetStream");
    for (int k = 0; k < 3; k++) {
        *(void **)&calls[k] = dlsym(library, names[k]);
    }
    find_plan_functions(library);
    if (create == NULL || set_stream == NULL || calls[0] == NULL || calls[1] == NULL || calls[2] == NULL ||
        enter_context() < 0 || create(&handles[the_gpu->index])) {
        PyErr_SetString(PyExc_RuntimeError, "cuDNN could not be started on this device");
        return NULL;
    }
    return PyLong_FromVoidPtr(handles[the_gpu->index]);
}

/* convolution(which, algorithm, is_double, four descriptors, a, b, out, workspace or None) */
PyObject *
module_convolution(PyObject *module, PyObject *args)
{
    static const unsigned grid[] = {1, 1, 1};
    Convolution c;
    unsigned long long descriptors[4];
    PyObject *a, *b, *out, *workspace;
    memset(&c, 0, sizeof(c)); /* equal ones are equal to the last byte */
    if (!PyArg_ParseTuple(args, "iipKKKKOOOO", &c.which, &c.algorithm, &c.is_double, &descriptors[0], &descriptors[1],
                          &descriptors[2], &descriptors[3], &a, &b, &out, &workspace)) {
        return NULL;
    }
    if (!IS_ARRAY(a) || !IS_ARRAY(b) || !IS_ARRAY(out) || !(workspace == Py_None || IS_ARRAY(workspace))) {
        PyErr_SetString(PyExc_TypeError, "convolution() takes arrays on cuda");
        return NULL;
    }
    c.first = (void *)(uintptr_t)descriptors[0];
    c.second = (void *)(uintptr_t)descriptors[1];
    c.convolution = (void *)(uintptr_t)descriptors[2];
    c.result = (void *)(uintptr_t)descriptors[3];
    c.a = ((Array *)a)->data;
    c.b = ((Array *)b)->data;
    c.out = ((Array *)out)->data;
    if (workspace != Py_None) {
        c.workspace = ((Array *)workspace)->data;
        c.workspace_bytes = ((Array *)workspace)->size;
    }
    Function function;
    int (*call)(const void *) = issue_convolution;
    memcpy(&function, &call, sizeof(function));
    int status = enqueue(CALL_ENTRY, function, grid, 1, &c, sizeof(c), 0); /* a graph saves most of a call's time */
    return status < 0 ? NULL : Py_NewRef(Py_None);
}
