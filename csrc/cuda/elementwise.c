/* Elementwise: a kernel of one formula, for operands of any dtypes, shapes and strides.
 *
 * Python compiles it for the dtypes that it meets (backend/cuda/elementwise.py): one function for operands that lie
 * alike, one that walks along strides, and for large arrays one that reads sixteen bytes at a time.
 */
#include "cuda/elementwise.h"

/* ---- shapes */

static int
broadcast(const Operand *operands, int count, const Array *out, int *nd, npy_intp *dims)
{
    *nd = out == NULL ? 0 : out->nd;
    for (int k = 0; k < count; k++) {
        if (operands[k].array != NULL && operands[k].array->nd > *nd) {
            *nd = operands[k].array->nd;
        }
    }
    for (int d = 0; d < *nd; d++) {
        dims[d] = 1;
        for (int k = 0; k <= count; k++) {
            const Array *array = k == count ? out : operands[k].array;
            int at = array == NULL ? -1 : d - (*nd - array->nd);
            npy_intp size = at < 0 ? 1 : array->dims[at];
            if (size != 1 && dims[d] != 1 && dims[d] != size) {
                PyErr_SetString(PyExc_ValueError, "operands could not be broadcast together with these shapes");
                return -1;
            }
            dims[d] = size != 1 ? size : dims[d];
        }
    }
    if (out != NULL && (out->nd != *nd || memcmp(out->dims, dims, *nd * sizeof(npy_intp)) != 0)) {
        PyErr_SetString(PyExc_ValueError, "non-broadcastable output operand: the result has another shape");
        return -1;
    }
    return 0;
}

/* Whether an array's elements lie one behind the other, in some order of the dimensions. */
static int
is_dense(const Array *array)
{
    if (array->is_contiguous) {
        return 1;
    }
    npy_intp item = PyDataType_ELSIZE(array->dtype), span = item;
    for (int d = 0; d < array->nd; d++) {
        if (array->dims[d] == 1) {
            continue;
        }
        if (array->strides[d] <= 0) {
            return 0;
        }
        span += (array->dims[d] - 1) * array->strides[d];
        for (int e = 0; e < d; e++) {
            if (array->dims[e] != 1 && array->strides[e] == array->strides[d]) {
                return 0;
            }
        }
    }
    return span == array->size * item;
}

/* Whether two arrays have their elements in the same order: equal strides, counted in elements. */
static int
lie_alike(const Array *a, const Array *b)
{
    npy_intp of_a = PyDataType_ELSIZE(a->dtype), of_b = PyDataType_ELSIZE(b->dtype);
    for (int d = 0; d < a->nd; d++) {
        if (a->dims[d] != b->dims[d] || (a->dims[d] != 1 && a->strides[d] * of_b != b->strides[d] * of_a)) {
            return 0;
        }
    }
    return 1;
}

/* The operand after which the result can be laid out, if all that are no single elements lie alike; NULL otherwise. */
static Array *
common_layout(const Operand *operands, int count, int nd, const npy_intp *dims)
{
    Array *leading = NULL;
    for (int k = 0; k < count; k++) {
        Array *array = operands[k].array;
        if (array == NULL || operands[k].is_single) {
            continue;
        }
        if (array->nd != nd || memcmp(array->dims, dims, nd * sizeof(npy_intp)) != 0 ||
            (leading == NULL ? !is_dense(array) : !lie_alike(leading, array))) {
            return NULL;
        }
        leading = leading == NULL ? array : leading;
    }
    return leading;
}

static int
overlap(const Array *a, const Array *b)
{
    const char *low[2], *high[2];
    bounds_of(a, &low[0], &high[0]);
    bounds_of(b, &low[1], &high[1]);
    return low[0] < high[1] && low[1] < high[0];
}

/* An operand that lies in the memory of the result in another way is copied first. */
static int
separate(Operand *operands, int count, const Array *out)
{
    for (int k = 0; k < count; k++) {
        Array *array = operands[k].array;
        if (array == NULL || !overlap(array, out) ||
            (array->data == out->data && array->nd == out->nd && array->code == out->code && lie_alike(array, out))) {
            continue;
        }
        Array *copy = array_new(array->dtype, array->nd, array->dims, NULL);
        if (copy == NULL || copy_into(copy, array) < 0) {
            Py_XDECREF(copy);
            return -1;
        }
        operands[k].array = copy;
        operands[k].is_copy = 1;
        operands[k].is_single = copy->size == 1;
    }
    return 0;
}

static Array *
result_for(const Variant *variant, Array *leading, int nd, const npy_intp *dims)
{
    if (leading == NULL || leading->is_contiguous) {
        return array_new(variant->out, nd, dims, NULL);
    }
    npy_intp strides[MOST_DIMS], item = PyDataType_ELSIZE(variant->out), own = PyDataType_ELSIZE(leading->dtype);
    for (int d = 0; d < nd; d++) {
        strides[d] = leading->strides[d] / own * item;
    }
    return array_new(variant->out, nd, dims, strides);
}

/* Whether `out` can take the result; with an exception if not. */
static int
check_out(const Elementwise *self, const Variant *variant, const Array *out)
{
    if (!out->is_writeable) {
        PyErr_SetString(PyExc_ValueError, "output array is read-only");
        return -1;
    }
    if (out->code != code_of(variant->out)) {
        PyErr_Format(PyExc_NotImplementedError, "%U: the result has another dtype than out", self->name);
        return -1;
    }
    return 0;
}

static PyObject *
run(Elementwise *self, Operand *operands, Array *out)
{
    npy_intp dims[MOST_DIMS];
    uint64_t key = 0;
    int nd, arrays = 0, nin = self->nin;
    for (int k = 0; k < nin; k++) {
        key |= (uint64_t)operands[k].code << (KEY_BITS * k);
        arrays += operands[k].array != NULL;
    }
    if (arrays == 0) {
        PyErr_Format(PyExc_TypeError, "%U: no operand is on cuda", self->name);
        return NULL;
    }
    Variant *variant = find_variant(self, key);
    if (variant == NULL || broadcast(operands, nin, out, &nd, dims) < 0 ||
        (out != NULL && (check_out(self, variant, out) < 0 || separate(operands, nin, out) < 0))) {
        return NULL;
    }
    for (int k = 0; k < nin; k++) {
        if (check_range(&operands[k], variant->casts[k]) < 0) {
            return NULL;
        }
    }
    Array *leading = common_layout(operands, nin, nd, dims);
    int all_single = leading == NULL;
    for (int k = 0; k < nin; k++) {
        all_single = all_single && (operands[k].array == NULL || operands[k].is_single);
    }
    Array *result = out == NULL ? result_for(variant, leading, nd, dims) : (Array *)Py_NewRef(out);
    int alike = leading != NULL ? out == NULL || lie_alike(leading, out) : all_single && (out == NULL || is_dense(out));
    if (result != NULL && result->size && launch_variant(self, variant, operands, result, alike) < 0) {
        Py_CLEAR(result);
    }
    return (PyObject *)result;
}

PyObject *
elementwise_run(PyObject *kernel, PyObject *const *given, PyObject *out)
{
    Elementwise *self = (Elementwise *)kernel;
    Operand operands[MOST_IN];
    if (out != NULL && !IS_ARRAY(out)) {
        PyErr_Format(PyExc_TypeError, "%U: out must be an array on cuda, not %s", self->name, Py_TYPE(out)->tp_name);
        return NULL;
    }
    for (int k = 0; k < self->nin; k++) {
        if (read_operand(self, given[k], &operands[k]) < 0) {
            return NULL;
        }
    }
    PyObject *result = run(self, operands, (Array *)out);
    for (int k = 0; k < self->nin; k++) {
        if (operands[k].is_copy) {
            Py_DECREF(operands[k].array);
        }
    }
    return result;
}

PyObject *
elementwise_or_leave(PyObject *kernel, PyObject *const *given, PyObject *out)
{
    Elementwise *self = (Elementwise *)kernel;
    PyObject *result = elementwise_run(kernel, given, out);
    if (result != NULL || !(PyErr_ExceptionMatches(PyExc_NotImplementedError) || PyErr_ExceptionMatches(PyExc_TypeError))) {
        return result;
    }
    PyErr_Clear();
    PyObject *operands = PyTuple_New(self->nin);
    for (int k = 0; operands != NULL && k < self->nin; k++) {
        PyTuple_SET_ITEM(operands, k, Py_NewRef(given[k]));
    }
    result = operands == NULL ? NULL
                              : PyObject_CallFunctionObjArgs(self->slow, operands, out == NULL ? Py_None : out, NULL);
    Py_XDECREF(operands);
    return result;
}

/* ---- the type */

static PyObject *name_out;

static PyObject *
elementwise_call(PyObject *callable, PyObject *const *given, size_t flagged, PyObject *names)
{
    Elementwise *self = (Elementwise *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flagged), named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    PyObject *out = count == self->nin + 1 ? given[--count] : NULL;
    if (named == 1 && out == NULL && PyUnicode_Compare(PyTuple_GET_ITEM(names, 0), name_out) == 0) {
        out = given[count];
        named = 0;
        if (PyTuple_Check(out) && PyTuple_GET_SIZE(out) == 1) {
            out = PyTuple_GET_ITEM(out, 0);
        }
    }
    if (named || count != self->nin) { /* where=, dtype=, ... */
        PyObject *options = PyObject_GetAttrString(callable, "with_options"), *result = NULL;
        if (options != NULL) {
            result = PyObject_Vectorcall(options, given, flagged, names);
            Py_DECREF(options);
        }
        return result;
    }
    return elementwise_or_leave(callable, given, out == Py_None ? NULL : out);
}

static PyObject *
elementwise_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *name, *compile, *compile_vector, *slow;
    int nin;
    if (!PyArg_ParseTuple(args, "UiOOO", &name, &nin, &compile, &compile_vector, &slow)) {
        return NULL;
    }
    if (nin < 1 || nin > MOST_IN) {
        PyErr_Format(PyExc_ValueError, "a kernel of 1 to %d operands, not of %d", MOST_IN, nin);
        return NULL;
    }
    if (name_out == NULL && (name_out = PyUnicode_InternFromString("out")) == NULL) {
        return NULL;
    }
    Elementwise *self = (Elementwise *)type->tp_alloc(type, 0);
    if (self != NULL) { /* they live as long as the process */
        self->vectorcall = elementwise_call;
        self->name = Py_NewRef(name);
        self->compile = Py_NewRef(compile);
        self->compile_vector = Py_NewRef(compile_vector);
        self->slow = Py_NewRef(slow);
        self->nin = nin;
    }
    return (PyObject *)self;
}

static PyMemberDef elementwise_members[] = {
    {"name", T_OBJECT, offsetof(Elementwise, name), READONLY},
    {"nin", T_INT, offsetof(Elementwise, nin), READONLY},
    {"variants", T_INT, offsetof(Elementwise, count), READONLY},
    {NULL},
};

PyTypeObject Elementwise_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._cuda.Elementwise",
    .tp_basicsize = sizeof(Elementwise),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = elementwise_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Elementwise, vectorcall),
    .tp_dictoffset = offsetof(Elementwise, dict),
    .tp_members = elementwise_members,
};
