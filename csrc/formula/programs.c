/* Programs: for each kind of arguments that a function was called with, the program that it is (blocks.c), and from how
 * many elements on. What one is, backend/blocks.py finds out when a kind comes for the first time.
 *
 * Arguments are of one kind if arrays have the same dtype, number of dimensions and order, and all others are the same.
 */
#include "formula/blocks.h"
#include "quiet.h"

#define MOST_KINDS 64

/* What is known of one argument. */
typedef struct {
    PyObject *object;  /* the dtype of an array, any other argument itself */
    int ndim;          /* -1: it is no array */
    int is_contiguous;
    npy_intp *shape;   /* NULL if it does not matter */
} Mark;

typedef struct {
    Mark marks[MOST_INPUTS];
    int count;
    PyObject *program;          /* NULL: there is none; None: the result is the only input */
    int inputs, places[MOST_INPUTS];
    npy_intp least;             /* elements */
} Kind;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *prepare;
    int by_shape;
    int count;
    Kind *kinds[MOST_KINDS]; /* the one that was asked for last comes first */
} Programs;

static void
kind_free(Kind *kind)
{
    for (int k = 0; k < kind->count; k++) {
        Py_XDECREF(kind->marks[k].object);
        PyMem_Free(kind->marks[k].shape);
    }
    Py_XDECREF(kind->program);
    PyMem_Free(kind);
}

/* ---- comparing */

/* Whether two values that are no arrays are the same to a program: -0.0 is not 0.0, and 1 is not True. */
static int
are_same(PyObject *a, PyObject *b)
{
    if (a == b || Py_TYPE(a) != Py_TYPE(b)) {
        return a == b;
    }
    if (PyFloat_Check(a)) {
        double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
        return memcmp(&x, &y, sizeof(x)) == 0;
    }
    if (PyComplex_CheckExact(a)) {
        Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
        return memcmp(&x, &y, sizeof(x)) == 0;
    }
    if (PyTuple_CheckExact(a)) {
        Py_ssize_t count = PyTuple_GET_SIZE(a), k = 0;
        while (count == PyTuple_GET_SIZE(b) && k < count && are_same(PyTuple_GET_ITEM(a, k), PyTuple_GET_ITEM(b, k))) {
            k++;
        }
        return k == count && count == PyTuple_GET_SIZE(b);
    }
    return (PyLong_CheckExact(a) || PyUnicode_CheckExact(a)) && PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

/* Whether a value can be told from others, and holds nothing large. */
static int
is_plain(PyObject *value)
{
    if (PyTuple_CheckExact(value)) {
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(value); k++) {
            if (!is_plain(PyTuple_GET_ITEM(value, k))) {
                return 0;
            }
        }
        return 1;
    }
    return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_Check(value) ||
           PyComplex_CheckExact(value) || PyUnicode_CheckExact(value) || PyArray_DescrCheck(value) ||
           PyType_Check(value);
}

static int
matches(const Mark *mark, PyObject *argument)
{
    if (!PyArray_CheckExact(argument)) {
        return mark->ndim < 0 && are_same(mark->object, argument);
    }
    PyArrayObject *array = (PyArrayObject *)argument;
    return mark->ndim == PyArray_NDIM(array) && mark->object == (PyObject *)PyArray_DESCR(array) &&
           mark->is_contiguous == PyArray_IS_C_CONTIGUOUS(array) &&
           (mark->shape == NULL || PyArray_CompareLists(mark->shape, PyArray_DIMS(array), mark->ndim));
}

/* The kind of these arguments, now the first; NULL if it is new. */
static Kind *
known_kind(Programs *self, PyObject *const *arguments, int count)
{
    for (int n = 0; n < self->count; n++) {
        Kind *kind = self->kinds[n];
        int k = 0;
        while (k < count && kind->count == count && matches(&kind->marks[k], arguments[k])) {
            k++;
        }
        if (k == count && kind->count == count) {
            memmove(self->kinds + 1, self->kinds, n * sizeof(Kind *));
            return self->kinds[0] = kind;
        }
    }
    return NULL;
}

/* ---- a kind that is new */

static int
read_mark(Mark *mark, PyObject *argument, int by_shape)
{
    mark->ndim = -1;
    if (!PyArray_CheckExact(argument)) {
        mark->object = Py_NewRef(argument);
        return 1;
    }
    PyArrayObject *array = (PyArrayObject *)argument;
    mark->ndim = PyArray_NDIM(array);
    mark->object = Py_NewRef((PyObject *)PyArray_DESCR(array));
    mark->is_contiguous = PyArray_IS_C_CONTIGUOUS(array);
    if (by_shape) {
        mark->shape = PyMem_Malloc((mark->ndim + 1) * sizeof(npy_intp));
        if (mark->shape == NULL) {
            PyErr_NoMemory();
            return 0;
        }
        for (int d = 0; d < mark->ndim; d++) { /* an array without dimensions has no place for them */
            mark->shape[d] = PyArray_DIM(array, d);
        }
    }
    return 1;
}

/* What `prepare` returned: None, or (program or None, places of the inputs, least number of elements). */
static int
read_prepared(Kind *kind, PyObject *prepared)
{
    PyObject *places;
    if (prepared == Py_None) {
        return 1;
    }
    if (!PyArg_ParseTuple(prepared, "OO!n", &kind->program, &PyTuple_Type, &places, &kind->least)) {
        kind->program = NULL;
        return 0;
    }
    Py_INCREF(kind->program);
    kind->inputs = (int)PyTuple_GET_SIZE(places);
    for (int k = 0; k < kind->inputs && !PyErr_Occurred(); k++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(places, k));
        if (!PyErr_Occurred() && (place < 0 || place >= kind->count || kind->marks[place].ndim < 0)) {
            PyErr_SetString(PyExc_ValueError, "an input of a program is no array among the arguments");
        }
        kind->places[k] = (int)place;
    }
    return !PyErr_Occurred();
}

static Kind *
new_kind(Programs *self, PyObject *const *arguments, int count)
{
    Kind *kind = PyMem_Calloc(1, sizeof(Kind));
    if (kind == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    int is_fine = 1;
    for (; is_fine && kind->count < count; kind->count++) {
        is_fine = read_mark(&kind->marks[kind->count], arguments[kind->count], self->by_shape);
    }
    PyObject *prepared = is_fine ? quiet_call(self->prepare, arguments, count, NULL) : NULL;
    if (prepared == NULL || !read_prepared(kind, prepared)) {
        Py_XDECREF(prepared);
        kind_free(kind);
        return NULL;
    }
    Py_DECREF(prepared);
    if (self->count == MOST_KINDS) {
        kind_free(self->kinds[--self->count]);
    }
    memmove(self->kinds + 1, self->kinds, self->count * sizeof(Kind *));
    self->count++;
    return self->kinds[0] = kind;
}

/* ---- calling */

int
are_broadcast(PyObject *const *values, int count)
{
    PyArrayObject *first = NULL;
    for (int k = 0; k < count; k++) {
        PyArrayObject *array = (PyArrayObject *)values[k];
        if (!PyArray_CheckExact(values[k]) || PyArray_NDIM(array) == 0) {
            continue;
        }
        if (first == NULL) {
            first = array;
        }
        else if (PyArray_NDIM(array) != PyArray_NDIM(first) ||
                 !PyArray_CompareLists(PyArray_DIMS(array), PyArray_DIMS(first), PyArray_NDIM(first))) {
            return 1;
        }
    }
    return 0;
}

/* The program for these arguments (None: the result is its only input), a new reference, and its inputs; otherwise
 * NULL, without an exception if there is none. */
static PyObject *
find_program(Programs *self, PyObject *const *arguments, Py_ssize_t count, PyObject **inputs, int *number)
{
    int is_fine = count <= MOST_INPUTS;
    for (Py_ssize_t k = 0; is_fine && k < count; k++) {
        is_fine = PyArray_CheckExact(arguments[k]) || is_plain(arguments[k]);
    }
    if (!is_fine) {
        return NULL;
    }
    Kind *kind = known_kind(self, arguments, (int)count);
    if (kind == NULL) {
        kind = new_kind(self, arguments, (int)count);
    }
    if (kind == NULL || kind->program == NULL) {
        return NULL;
    }
    npy_intp largest = 0;
    for (int k = 0; k < kind->inputs; k++) {
        inputs[k] = arguments[kind->places[k]];
        npy_intp size = PyArray_SIZE((PyArrayObject *)inputs[k]);
        largest = size > largest ? size : largest;
    }
    *number = kind->inputs;
    int pays = largest >= kind->least || are_broadcast(inputs, *number);
    return pays ? Py_NewRef(kind->program) : NULL; /* of its own: other kinds may come while the program runs */
}

static PyObject *
programs_call(PyObject *callable, PyObject *const *arguments, size_t flagged, PyObject *names)
{
    PyObject *inputs[MOST_INPUTS], *result = NULL;
    int number;
    PyObject *program = NULL;
    if (names == NULL) {
        program = find_program((Programs *)callable, arguments, PyVectorcall_NARGS(flagged), inputs, &number);
    }
    if (program == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_NotImplemented);
    }
    result = program == Py_None ? Py_NewRef(inputs[0]) : PyObject_Vectorcall(program, inputs, number, NULL);
    Py_DECREF(program);
    return result;
}

PyObject *
program_and_inputs(PyObject *programs, PyObject *const *arguments, Py_ssize_t count)
{
    PyObject *inputs[MOST_INPUTS];
    int number;
    PyObject *program = find_program((Programs *)programs, arguments, count, inputs, &number);
    PyObject *found = program == NULL ? NULL : PyTuple_New(number + 1);
    if (found == NULL) {
        Py_XDECREF(program);
        return NULL;
    }
    PyTuple_SET_ITEM(found, 0, program);
    for (int k = 0; k < number; k++) {
        PyTuple_SET_ITEM(found, k + 1, Py_NewRef(inputs[k]));
    }
    return found;
}

PyObject *
value_of_small(PyObject *programs, PyObject *const *arguments, Py_ssize_t count)
{
    PyObject *inputs[MOST_INPUTS], *result;
    int number;
    PyObject *program = find_program((Programs *)programs, arguments, count, inputs, &number);
    if (program == NULL) {
        return NULL;
    }
    result = program == Py_None ? Py_NewRef(inputs[0]) : program_value((Program *)program, inputs, number);
    Py_DECREF(program);
    return result;
}

/* ---- the type */

/* Programs(prepare, by_shape): `prepare` is called with arguments of a new kind, and says what read_prepared() reads;
 * with by_shape, arrays of other shapes are of another kind, too. Calling it gives the result, or NotImplemented. */
static PyObject *
programs_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *prepare;
    int by_shape;
    if (!PyArg_ParseTuple(args, "Op", &prepare, &by_shape)) {
        return NULL;
    }
    Programs *self = (Programs *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = programs_call;
        self->prepare = Py_NewRef(prepare);
        self->by_shape = by_shape;
    }
    return (PyObject *)self;
}

static void
programs_dealloc(Programs *self)
{
    for (int k = 0; k < self->count; k++) {
        kind_free(self->kinds[k]);
    }
    Py_DECREF(self->prepare);
    Py_TYPE(self)->tp_free(self);
}

static Py_ssize_t
programs_length(Programs *self)
{
    return self->count;
}

static PySequenceMethods as_sequence = {.sq_length = (lenfunc)programs_length};

PyTypeObject Programs_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Programs",
    .tp_basicsize = sizeof(Programs),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = programs_new,
    .tp_dealloc = (destructor)programs_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Programs, vectorcall),
    .tp_as_sequence = &as_sequence,
};
