/* Starting kernels. A kernel takes one structure, whose fields follow each other in words of eight bytes. */
#include "cuda/cuda.h"

#define MANY ((npy_intp)1 << 18)

int
keeps_busy(npy_intp elements)
{
    return elements > MANY;
}

int
launch(Function function, unsigned blocks, unsigned block, const void *arguments, size_t size, npy_intp elements)
{
    unsigned grid[] = {blocks, 1, 1};
    return enqueue(KERNEL_ENTRY, function, grid, block, arguments, size, keeps_busy(elements));
}

/* ---- Kernel(address[, input]): kernel(grid, block, *arguments), of arrays, ints, floats, None and bytes. With `input`, the
 * place of an array among the arguments, it reads each of its elements once if the last argument is not 0; arrays before
 * that one are written, the first of them in the way the input is read. */

#define MOST_WORDS 512

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Function function;
    int input; /* -1: none */
} Kernel;

Function
kernel_function(PyObject *kernel)
{
    return ((Kernel *)kernel)->function;
}

static int
read_grid(PyObject *given, unsigned *grid)
{
    PyObject *single[] = {given}, **items = PyTuple_Check(given) ? &PyTuple_GET_ITEM(given, 0) : single;
    Py_ssize_t count = PyTuple_Check(given) ? PyTuple_GET_SIZE(given) : 1;
    for (Py_ssize_t k = 0; k < 3; k++) {
        long value = k < count ? PyLong_AsLong(items[k]) : 1;
        if (value < 1 || value > (k == 0 ? 2147483647L : 65535L)) {
            if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_ValueError, "a grid of %ld blocks in dimension %zd cannot be launched", value, k);
            }
            return -1;
        }
        grid[k] = (unsigned)value;
    }
    return 0;
}

/* Add an argument to the words; how many there are now, or -1 with an exception. */
static int
add_words(PyObject *value, char *words, int at)
{
    if (IS_ARRAY(value)) {
        memcpy(words + 8 * at, &((Array *)value)->data, 8);
    }
    else if (value == Py_None) {
        memset(words + 8 * at, 0, 8);
    }
    else if (PyFloat_Check(value)) {
        memcpy(words + 8 * at, &((PyFloatObject *)value)->ob_fval, 8);
    }
    else if (PyBytes_Check(value)) {
        Py_ssize_t bytes = PyBytes_GET_SIZE(value);
        if (bytes % 8 || at + bytes / 8 > MOST_WORDS) {
            PyErr_SetString(PyExc_ValueError, "too many bytes, or none that fill words of eight");
            return -1;
        }
        memcpy(words + 8 * at, PyBytes_AS_STRING(value), bytes);
        return at + (int)(bytes / 8);
    }
    else {
        long long number = PyLong_AsLongLong(value);
        if (number == -1 && PyErr_Occurred()) {
            return -1;
        }
        memcpy(words + 8 * at, &number, 8);
    }
    return at + 1;
}

/* Write down what a kernel reads and writes; 0: it does not read each element once. */
static int
note_arrays(Reader *reader, PyObject *const *given, Py_ssize_t count, int input)
{
    int reads = 0, writes = 0;
    if (input >= count || !PyLong_Check(given[count - 1]) || PyObject_Not(given[count - 1])) {
        return 0;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        if (!IS_ARRAY(given[k])) {
            continue;
        }
        const Array *array = (Array *)given[k];
        if (k == input) {
            reader->input = array;
        }
        else if ((k < input ? writes : reads) == MOST_BESIDE) {
            return 0;
        }
        else {
            *(k < input ? &reader->writes[writes++] : &reader->reads[reads++]) = array;
        }
    }
    reader->is_in_place = 1;
    return reader->input != NULL;
}

static PyObject *
kernel_call(PyObject *callable, PyObject *const *given, size_t flagged, PyObject *names)
{
    Kernel *self = (Kernel *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flagged);
    char words[8 * MOST_WORDS];
    unsigned grid[3];
    int at = 0;
    if (count < 2 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "a kernel is called as kernel(grid, block, *arguments)");
        return NULL;
    }
    long block = PyLong_AsLong(given[1]);
    if (read_grid(given[0], grid) < 0 || (block == -1 && PyErr_Occurred())) {
        return NULL;
    }
    for (Py_ssize_t k = 2; k < count; k++) {
        if (at >= MOST_WORDS || (at = add_words(given[k], words, at)) < 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "too many arguments of a kernel");
            }
            return NULL;
        }
    }
    Reader reader = {self->function, {grid[0], grid[1], grid[2]}, (unsigned)block, words, 8 * (size_t)at,
                     keeps_busy((npy_intp)grid[0] * grid[1] * grid[2] * block)};
    int reads = self->input >= 0 && note_arrays(&reader, given + 2, count - 2, self->input);
    int status = reads ? enqueue_reader(&reader)
                       : enqueue(KERNEL_ENTRY, self->function, grid, (unsigned)block, words, 8 * (size_t)at,
                                 reader.is_long);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
kernel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *address;
    int input = -1;
    if (!PyArg_ParseTuple(args, "O!|i", &PyLong_Type, &address, &input)) {
        return NULL;
    }
    Kernel *self = (Kernel *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = kernel_call;
        self->function = PyLong_AsVoidPtr(address);
        self->input = input;
    }
    return (PyObject *)self;
}

PyTypeObject Kernel_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._cuda.Kernel",
    .tp_basicsize = sizeof(Kernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = kernel_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Kernel, vectorcall),
};
