/* Calls of cuSOLVER and cuBLAS that Python makes up (backend/cuda/solver.py); here they become entries of the queue.
 *
 * Note [Words]: these functions take pointers and whole numbers alone, behind a handle, and the calling conventions of
 * 64-bit Linux pass each of them as a word. So one type of function serves for all, and words that one does not take are
 * not looked at.
 */
#include "cuda/cuda.h"

#include <dlfcn.h>

#define MOST_TAKEN 16
#define EACH_TAKEN(W) W(0), W(1), W(2), W(3), W(4), W(5), W(6), W(7), W(8), W(9), W(10), W(11), W(12), W(13), W(14), W(15)
#define TAKEN_TYPE(k) long long
#define TAKEN_WORD(k) c->words[k] + z * c->steps[k]

typedef int (*LibraryFunction)(void *, EACH_TAKEN(TAKEN_TYPE));

typedef struct {
    LibraryFunction function;
    int is_blas;
    int times; /* how often it is called; words grow by their steps in between */
    long long words[MOST_TAKEN], steps[MOST_TAKEN];
} LibraryCall;

static int (*solver_create)(void **), (*solver_set_stream)(void *, Stream);

/* cuSOLVER's handle of the stream that is being sent to. */
static void *
solver_handle(void)
{
    if (the_lane->solver == NULL) {
        void *made = NULL;
        if (solver_create == NULL || solver_create(&made) || solver_set_stream(made, the_stream)) {
            PyErr_SetString(PyExc_RuntimeError, "cuSOLVER could not be started on this device");
            return NULL;
        }
        the_lane->solver = made;
    }
    return the_lane->solver;
}

static int
issue_library_call(const void *arguments)
{
    const LibraryCall *c = arguments;
    void *handle = is_emulated ? NULL : c->is_blas ? blas_handle() : solver_handle();
    int result = handle == NULL && !is_emulated ? -1 : 0;
    for (long long z = 0; z < c->times && result == 0; z++) {
        result = c->function(handle, EACH_TAKEN(TAKEN_WORD));
    }
    if (result > 0) {
        PyErr_Format(PyExc_RuntimeError, "%s failed at matrices, with status %d", c->is_blas ? "cuBLAS" : "cuSOLVER",
                     result);
    }
    return result ? -1 : 0;
}

/* start_solver(path) */
PyObject *
module_start_solver(PyObject *module, PyObject *path)
{
    const char *text = PyUnicode_AsUTF8(path);
    void *library = text == NULL ? NULL : dlopen(text, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        return text == NULL ? NULL : PyErr_Format(PyExc_RuntimeError, "cuSOLVER cannot be loaded: %s", dlerror());
    }
    *(void **)&solver_create = dlsym(library, "cusolverDnCreate");
    *(void **)&solver_set_stream = dlsym(library, "cusolverDnSetStream");
    if (solver_create == NULL || solver_set_stream == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this is no cuSOLVER that undertow knows: functions of it are missing");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Read an argument: an array's address, a number, or (either of them, what it grows by from call to call). */
static int
read_word(PyObject *given, long long *word, long long *step)
{
    if (PyTuple_Check(given) && PyTuple_GET_SIZE(given) == 2) {
        *step = PyLong_AsLongLong(PyTuple_GET_ITEM(given, 1));
        given = PyTuple_GET_ITEM(given, 0);
    }
    *word = IS_ARRAY(given) ? (long long)(uintptr_t)((Array *)given)->data : PyLong_AsLongLong(given);
    return PyErr_Occurred() ? -1 : 0;
}

/* call_library(address of the function, whether it is of cuBLAS, how often, *arguments behind the handle). Functions of
 * cuSOLVER may look at numbers on the way, which no graph can hold: they are sent by themselves. */
PyObject *
module_call_library(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    static const unsigned grid[] = {1, 1, 1};
    LibraryCall c;
    memset(&c, 0, sizeof(c)); /* equal ones are equal to the last byte */
    if (count < 3 || count > 3 + MOST_TAKEN) {
        PyErr_SetString(PyExc_TypeError, "call_library(function, is_blas, times, *arguments) takes up to 16 of these");
        return NULL;
    }
    void *address = PyLong_AsVoidPtr(given[0]);
    memcpy(&c.function, &address, sizeof(c.function));
    c.is_blas = PyObject_IsTrue(given[1]);
    c.times = (int)PyLong_AsLong(given[2]);
    for (Py_ssize_t k = 3; k < count && !PyErr_Occurred(); k++) {
        if (read_word(given[k], &c.words[k - 3], &c.steps[k - 3]) < 0) {
            return NULL;
        }
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    Function function;
    int (*call)(const void *) = issue_library_call;
    memcpy(&function, &call, sizeof(function));
    int status = c.is_blas ? enqueue(CALL_ENTRY, function, grid, 1, &c, sizeof(c), 0)
                           : enqueue_alone(function, &c, sizeof(c));
    return status < 0 ? NULL : Py_NewRef(Py_None);
}
