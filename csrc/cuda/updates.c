/* One launch for many arrays: the parameters of an optimizer, each with its gradient and what is kept for it; the lists of
 * `_foreach_` functions; gradients whose norm is wanted. */
#include "cuda/cuda.h"

#define MOST_NUMBERS 12
#define MOST_FIELDS 5
#define FEW 8
#define MANY_ARRAYS 64
#define CHUNK 4096 /* elements of a block: as in backend/cuda/updates.py */
#define THREADS 256

/* What the kernel finds: the count, how many blocks the launches before it had, an array that all of them share, the
 * numbers, and then, with room for FEW or MANY_ARRAYS, the pointers of each field, the sizes, and the number of the first
 * block of each array. */
typedef struct {
    long long count, before;
    char *shared;
    double numbers[MOST_NUMBERS];
    uint64_t words[(MOST_FIELDS + 2) * MANY_ARRAYS];
} Updates;

/* Whether arrays are of one size and one dtype of real numbers, and lie row after row. */
static int
are_alike(PyObject *arrays, int fields, int code)
{
    const Array *first = NULL;
    if (!PyTuple_Check(arrays) || PyTuple_GET_SIZE(arrays) != fields) {
        return 0;
    }
    for (int k = 0; k < fields; k++) {
        PyObject *item = PyTuple_GET_ITEM(arrays, k);
        if (!IS_ARRAY(item)) {
            return 0;
        }
        const Array *array = (Array *)item;
        first = k == 0 ? array : first;
        if (array->code != code || !array->is_contiguous || array->size != first->size ||
            (k != 1 && !array->is_writeable)) {
            return 0;
        }
    }
    return code == CODE_F32 || code == CODE_F64 || code == CODE_F16 || code == CODE_BF16;
}

static int
launch_some(Function function, PyObject *list, Py_ssize_t from, Py_ssize_t count, int fields, Updates *updates)
{
    int room = count <= FEW ? FEW : MANY_ARRAYS;
    long long blocks = 0;
    npy_intp total = 0;
    memset(updates->words, 0, sizeof(updates->words));
    updates->count = count;
    for (Py_ssize_t n = 0; n < count; n++) {
        PyObject *arrays = PyList_GET_ITEM(list, from + n);
        npy_intp size = ((Array *)PyTuple_GET_ITEM(arrays, 0))->size;
        for (int k = 0; k < fields; k++) {
            updates->words[k * room + n] = (uint64_t)(uintptr_t)((Array *)PyTuple_GET_ITEM(arrays, k))->data;
        }
        updates->words[fields * room + n] = (uint64_t)size;
        updates->words[(fields + 1) * room + n] = (uint64_t)blocks;
        blocks += (size + CHUNK - 1) / CHUNK;
        total += size;
    }
    if (blocks == 0) {
        return 0;
    }
    size_t bytes = offsetof(Updates, words) + (size_t)(fields + 2) * room * sizeof(uint64_t);
    int status = launch(function, (unsigned)blocks, THREADS, updates, bytes, total);
    updates->before += blocks;
    return status;
}

/* update_together(kernel for few arrays, kernel for many, list of tuples of arrays, numbers[, shared array]): whether all of
 * them could be; if not, nothing was changed. In each tuple the second is only read. */
PyObject *
module_update_together(PyObject *module, PyObject *args)
{
    PyObject *few, *many, *list, *numbers, *shared = NULL;
    Updates updates = {0};
    if (!PyArg_ParseTuple(args, "O!O!O!O!|O!", &Kernel_Type, &few, &Kernel_Type, &many, &PyList_Type, &list, &PyTuple_Type,
                          &numbers, &Array_Type, &shared)) {
        return NULL;
    }
    updates.shared = shared == NULL ? NULL : ((Array *)shared)->data;
    Py_ssize_t count = PyList_GET_SIZE(list);
    if (count == 0 || PyTuple_GET_SIZE(numbers) > MOST_NUMBERS) {
        return Py_NewRef(Py_False);
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(numbers); k++) {
        updates.numbers[k] = PyFloat_AsDouble(PyTuple_GET_ITEM(numbers, k));
    }
    PyObject *first = PyList_GET_ITEM(list, 0);
    int fields = PyTuple_Check(first) ? (int)PyTuple_GET_SIZE(first) : 0;
    if (PyErr_Occurred() || fields < 1 || fields > MOST_FIELDS || !IS_ARRAY(PyTuple_GET_ITEM(first, 0))) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    }
    int code = ((Array *)PyTuple_GET_ITEM(first, 0))->code;
    for (Py_ssize_t n = 0; n < count; n++) {
        if (!are_alike(PyList_GET_ITEM(list, n), fields, code)) {
            return Py_NewRef(Py_False);
        }
    }
    for (Py_ssize_t from = 0; from < count; from += MANY_ARRAYS) {
        Py_ssize_t some = count - from < MANY_ARRAYS ? count - from : MANY_ARRAYS;
        if (launch_some(kernel_function(some <= FEW ? few : many), list, from, some, fields, &updates) < 0) {
            return NULL;
        }
    }
    return Py_NewRef(Py_True);
}
