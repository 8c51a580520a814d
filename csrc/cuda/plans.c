/* Graphs of operations by cuDNN. Engines for them are found by Python (backend/cuda/cudnn_graph.py); here they become
 * entries of the queue. */
#include "cuda/cuda.h"

#include <dlfcn.h>

#define MOST_TENSORS 16

enum { VARIANT_PACK = 16, UNIQUE_IDS = 1000, DATA_POINTERS = 1001, WORKSPACE = 1003, OF_LONGS = 3, OF_POINTERS = 6 };

typedef struct {
    void *engine;
    long long count, numbers[MOST_TENSORS];
    void *pointers[MOST_TENSORS], *workspace;
} Execution;

static struct {
    int (*create)(int, void **), (*set)(void *, int, int, int64_t, const void *), (*finish)(void *);
    int (*execute)(void *, void *, void *), (*drop)(void *);
} dnn;

static const struct {
    const char *name;
    void *place;
} names[] = {
    {"cudnnBackendCreateDescriptor", &dnn.create}, {"cudnnBackendSetAttribute", &dnn.set},
    {"cudnnBackendFinalize", &dnn.finish},         {"cudnnBackendExecute", &dnn.execute},
    {"cudnnBackendDestroyDescriptor", &dnn.drop},
};

void
find_plan_functions(void *library)
{
    for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
        void *found = dlsym(library, names[k].name);
        memcpy(names[k].place, &found, sizeof(found));
    }
}

static int
issue_plan(const void *arguments)
{
    const Execution *e = arguments;
    void *pack = NULL, *handle = dnn_handle();
    int result = handle == NULL ? -1 : dnn.create(VARIANT_PACK, &pack);
    result = result ? result : dnn.set(pack, UNIQUE_IDS, OF_LONGS, e->count, e->numbers);
    result = result ? result : dnn.set(pack, DATA_POINTERS, OF_POINTERS, e->count, e->pointers);
    result = result ? result : dnn.set(pack, WORKSPACE, OF_POINTERS, 1, &e->workspace);
    result = result ? result : dnn.finish(pack);
    result = result ? result : dnn.execute(handle, e->engine, pack);
    if (pack != NULL) {
        dnn.drop(pack);
    }
    if (result) {
        PyErr_Format(PyExc_RuntimeError, "cuDNN failed at a graph of operations, with status %d", result);
    }
    return result ? -1 : 0;
}

/* execute_plan(engine, numbers of tensors, arrays or addresses, workspace or None) */
PyObject *
module_execute_plan(PyObject *module, PyObject *args)
{
    static const unsigned grid[] = {1, 1, 1};
    PyObject *numbers, *pointers, *workspace;
    unsigned long long engine;
    npy_intp most = 0;
    Execution e;
    memset(&e, 0, sizeof(e)); /* equal ones are equal to the last byte */
    if (!PyArg_ParseTuple(args, "KO!O!O", &engine, &PyTuple_Type, &numbers, &PyTuple_Type, &pointers, &workspace)) {
        return NULL;
    }
    e.engine = (void *)(uintptr_t)engine;
    e.count = PyTuple_GET_SIZE(numbers);
    if (dnn.execute == NULL || e.count != PyTuple_GET_SIZE(pointers) || e.count > MOST_TENSORS) {
        PyErr_SetString(PyExc_ValueError, "execute_plan() takes a number for each of at most 16 tensors, and cuDNN 9");
        return NULL;
    }
    for (long long k = 0; k < e.count; k++) {
        PyObject *given = PyTuple_GET_ITEM(pointers, k);
        int is_ours = IS_ARRAY(given);
        e.numbers[k] = PyLong_AsLongLong(PyTuple_GET_ITEM(numbers, k));
        e.pointers[k] = is_ours ? ((Array *)given)->data : PyLong_AsVoidPtr(given);
        most = is_ours && ((Array *)given)->size > most ? ((Array *)given)->size : most;
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    e.workspace = workspace != Py_None && IS_ARRAY(workspace) ? ((Array *)workspace)->data : NULL;
    Function function;
    int (*call)(const void *) = issue_plan;
    memcpy(&function, &call, sizeof(function));
    int status = enqueue(CALL_ENTRY, function, grid, 1, &e, sizeof(e), keeps_busy(most));
    return status < 0 ? NULL : Py_NewRef(Py_None);
}
