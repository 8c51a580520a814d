/* The array: a dtype of NumPy's, a shape, strides, and a block of device memory that views share. */
#include "cuda/cuda.h"

PyTypeObject *array_classes[MOST_GPUS];
int bfloat16_number = -1;
static PyObject *flags_class;

int
code_of(const PyArray_Descr *dtype)
{
    switch (dtype->type_num) {
    case NPY_BOOL: return CODE_BOOL;
    case NPY_UBYTE: return CODE_U8;
    case NPY_USHORT: return CODE_U16;
    case NPY_UINT: return CODE_U32;
    case NPY_ULONG:
    case NPY_ULONGLONG: return CODE_U64;
    case NPY_BYTE: return CODE_I8;
    case NPY_SHORT: return CODE_I16;
    case NPY_INT: return CODE_I32;
    case NPY_LONG:
    case NPY_LONGLONG: return CODE_I64;
    case NPY_HALF: return CODE_F16;
    case NPY_FLOAT: return CODE_F32;
    case NPY_DOUBLE: return CODE_F64;
    case NPY_CFLOAT: return CODE_C64;
    case NPY_CDOUBLE: return CODE_C128;
    }
    return dtype->type_num == bfloat16_number ? CODE_BF16 : CODE_UNKNOWN;
}

int
lies_by_rows(int nd, const npy_intp *dims, const npy_intp *strides, npy_intp item)
{
    for (int k = 0; k < nd; k++) {
        if (dims[k] == 0) {
            return 1;
        }
    }
    for (int k = nd - 1; k >= 0; k--) {
        if (dims[k] != 1 && strides[k] != item) {
            return 0;
        }
        item *= dims[k];
    }
    return 1;
}

Array *
array_alloc(PyArray_Descr *dtype, int nd)
{
    if (nd > MOST_DIMS) {
        PyErr_Format(PyExc_NotImplementedError, "an array on cuda has at most %d dimensions, not %d", MOST_DIMS, nd);
        return NULL;
    }
    PyTypeObject *type = array_classes[the_gpu->index];
    Array *array = type == NULL ? NULL : (Array *)type->tp_alloc(type, 0);
    if (array != NULL) {
        array->dtype = (PyArray_Descr *)Py_NewRef(dtype);
        array->nd = nd;
        array->code = (char)code_of(dtype);
        array->is_writeable = 1;
    }
    return array;
}

/* Set the shape, with strides for rows; whether all its bytes can be counted. */
static int
set_shape(Array *array, int nd, const npy_intp *dims)
{
    npy_intp step = PyDataType_ELSIZE(array->dtype);
    array->size = 1;
    for (int k = nd - 1; k >= 0; k--) {
        array->dims[k] = dims[k];
        array->strides[k] = step;
        if (dims[k] < 0 || __builtin_mul_overflow(array->size, dims[k], &array->size) ||
            __builtin_mul_overflow(step, dims[k] ? dims[k] : 1, &step)) {
            PyErr_SetString(PyExc_ValueError, "a dimension is negative, or all of them together are too large");
            return -1;
        }
    }
    array->is_contiguous = 1;
    return 0;
}

Array *
array_new(PyArray_Descr *dtype, int nd, const npy_intp *dims, const npy_intp *strides)
{
    Array *array = array_alloc(dtype, nd);
    if (array == NULL || set_shape(array, nd, dims) < 0 ||
        (array->block = block_new(array->size * PyDataType_ELSIZE(dtype))) == NULL) {
        Py_XDECREF(array);
        return NULL;
    }
    array->data = array->block->data;
    if (strides != NULL) {
        memcpy(array->strides, strides, nd * sizeof(npy_intp));
        array->is_contiguous = (char)lies_by_rows(nd, array->dims, array->strides, PyDataType_ELSIZE(dtype));
    }
    return array;
}

Array *
array_view(Array *of, int nd, const npy_intp *dims, const npy_intp *strides, npy_intp offset, PyArray_Descr *dtype)
{
    use_gpu_of(of);
    Array *array = array_alloc(dtype == NULL ? of->dtype : dtype, nd);
    if (array == NULL) {
        return NULL;
    }
    array->size = 1;
    for (int k = 0; k < nd; k++) {
        array->dims[k] = dims[k];
        array->strides[k] = strides[k];
        array->size *= dims[k];
    }
    array->block = of->block;
    array->block->references++;
    array->data = of->data + offset;
    array->base = Py_NewRef(of->base == NULL ? (PyObject *)of : of->base);
    array->is_writeable = of->is_writeable;
    array->is_contiguous = (char)lies_by_rows(nd, array->dims, array->strides, PyDataType_ELSIZE(array->dtype));
    return array;
}

void
bounds_of(const Array *array, const char **low, const char **high)
{
    *low = *high = array->data;
    for (int k = 0; k < array->nd; k++) {
        if (array->dims[k] == 0) {
            *low = *high = array->data;
            return;
        }
        *(array->strides[k] < 0 ? low : high) += (array->dims[k] - 1) * array->strides[k];
    }
    *high += PyDataType_ELSIZE(array->dtype);
}

static void
array_dealloc(Array *array)
{
    if (array->weak_references != NULL) {
        PyObject_ClearWeakRefs((PyObject *)array);
    }
    block_release(array->block);
    Py_XDECREF(array->base);
    Py_XDECREF(array->dtype);
    Py_TYPE(array)->tp_free(array);
}

int
read_sizes(PyObject *const *given, Py_ssize_t count, npy_intp *sizes)
{
    PyObject *sequence = NULL;
    if (count == 1 && (PyTuple_Check(given[0]) || PyList_Check(given[0]))) {
        sequence = PySequence_Fast(given[0], "sizes are a tuple");
        given = PySequence_Fast_ITEMS(sequence);
        count = PySequence_Fast_GET_SIZE(sequence);
    }
    if (count > MOST_DIMS) {
        PyErr_Format(PyExc_NotImplementedError, "an array on cuda has at most %d dimensions, not %zd", MOST_DIMS, count);
        Py_XDECREF(sequence);
        return -1;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        sizes[k] = PyNumber_AsSsize_t(given[k], PyExc_OverflowError);
        if (sizes[k] == -1 && PyErr_Occurred()) {
            Py_XDECREF(sequence);
            return -1;
        }
    }
    Py_XDECREF(sequence);
    return (int)count;
}

/* ---- attributes */

static PyObject *
tuple_of(int count, const npy_intp *values)
{
    PyObject *tuple = PyTuple_New(count);
    for (int k = 0; tuple != NULL && k < count; k++) {
        PyObject *number = PyLong_FromSsize_t(values[k]);
        if (number == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, k, number);
    }
    return tuple;
}

/* Whoever asks for these is about to make an array like it: see Note [The device in use]. */
static PyObject *get_shape(Array *a, void *c) { return use_gpu_of(a), tuple_of(a->nd, a->dims); }
static PyObject *get_strides(Array *a, void *c) { return use_gpu_of(a), tuple_of(a->nd, a->strides); }
static PyObject *get_dtype(Array *a, void *c) { return use_gpu_of(a), Py_NewRef(a->dtype); }
static PyObject *get_itemsize(Array *a, void *c) { return PyLong_FromSsize_t(PyDataType_ELSIZE(a->dtype)); }
static PyObject *get_nbytes(Array *a, void *c) { return PyLong_FromSsize_t(a->size * PyDataType_ELSIZE(a->dtype)); }
static PyObject *get_address(Array *a, void *c) { return PyLong_FromVoidPtr(a->data); }
/* for whoever reads or writes there: what was asked of the memory is sent first */
static PyObject *get_pointer(Array *a, void *c) { return flush_all_at(AT_EXPORT) < 0 ? NULL : PyLong_FromVoidPtr(a->data); }
static PyObject *get_base(Array *a, void *c) { return Py_NewRef(a->base == NULL ? Py_None : a->base); }
static PyObject *get_transposed(PyObject *a, void *c) { return array_transpose(a, NULL, 0); }
static PyObject *get_contiguous(Array *a, void *c) { return PyBool_FromLong(a->is_contiguous); }
static PyObject *get_writeable(Array *a, void *c) { return PyBool_FromLong(a->is_writeable); }
static PyObject *get_flags(Array *a, void *c) { return PyObject_CallOneArg(flags_class, (PyObject *)a); }

static PyObject *
get_by_columns(Array *a, void *c)
{
    npy_intp dims[MOST_DIMS], strides[MOST_DIMS];
    for (int k = 0; k < a->nd; k++) {
        dims[k] = a->dims[a->nd - 1 - k];
        strides[k] = a->strides[a->nd - 1 - k];
    }
    return PyBool_FromLong(lies_by_rows(a->nd, dims, strides, PyDataType_ELSIZE(a->dtype)));
}

static int
set_writeable(Array *a, PyObject *value, void *c)
{
    int truth = value == NULL ? -1 : PyObject_IsTrue(value);
    if (truth < 0) {
        return -1;
    }
    a->is_writeable = (char)truth;
    return 0;
}

static PyGetSetDef array_getset[] = {
    {"shape", (getter)get_shape},
    {"strides", (getter)get_strides},
    {"itemsize", (getter)get_itemsize},
    {"nbytes", (getter)get_nbytes},
    {"pointer", (getter)get_pointer},
    {"address", (getter)get_address},
    {"base", (getter)get_base},
    {"dtype", (getter)get_dtype},
    {"T", get_transposed},
    {"flags", (getter)get_flags},
    {"is_contiguous", (getter)get_contiguous},
    {"is_contiguous_by_columns", (getter)get_by_columns},
    {"is_writeable", (getter)get_writeable, (setter)set_writeable},
    {NULL},
};

static PyMemberDef array_members[] = {
    {"ndim", T_INT, offsetof(Array, nd), READONLY},
    {"size", T_PYSSIZET, offsetof(Array, size), READONLY},
    {NULL},
};

static PyMethodDef array_methods[] = {
    {"reshape_to", (PyCFunction)(void (*)(void))array_reshape, METH_FASTCALL},
    {"transpose", (PyCFunction)(void (*)(void))array_transpose, METH_FASTCALL},
    {"swapaxes", (PyCFunction)(void (*)(void))array_swapaxes, METH_FASTCALL},
    {"copy", (PyCFunction)(void (*)(void))array_copy, METH_FASTCALL | METH_KEYWORDS},
    {"reshape", (PyCFunction)(void (*)(void))array_reshape_by, METH_FASTCALL | METH_KEYWORDS},
    {"dot", (PyCFunction)(void (*)(void))array_dot, METH_FASTCALL},
    {"to_host", array_to_host, METH_NOARGS},
    {NULL},
};

static Py_ssize_t
array_length(Array *array)
{
    if (array->nd == 0) {
        PyErr_SetString(PyExc_TypeError, "len() of unsized object");
        return -1;
    }
    return array->dims[0];
}

static PyMappingMethods array_mapping = {
    .mp_length = (lenfunc)array_length,
    .mp_subscript = array_getitem,
    .mp_ass_subscript = array_setitem,
};

PyTypeObject Array_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._cuda.Array",
    .tp_basicsize = sizeof(Array),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_dealloc = (destructor)array_dealloc,
    .tp_weaklistoffset = offsetof(Array, weak_references),
    .tp_getset = array_getset,
    .tp_members = array_members,
    .tp_methods = array_methods,
    .tp_as_number = &array_number,
    .tp_as_mapping = &array_mapping,
    .tp_richcompare = array_compare,
    .tp_hash = PyObject_HashNotImplemented,
};

/* ---- making them */

/* empty(shape, dtype[, strides]) */
PyObject *
module_empty(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    npy_intp dims[MOST_DIMS], strides[MOST_DIMS];
    if (count < 2 || !PyArray_DescrCheck(given[1])) {
        PyErr_SetString(PyExc_TypeError, "empty(shape, dtype[, strides])");
        return NULL;
    }
    int nd = read_sizes(given, 1, dims);
    if (nd < 0 || (count > 2 && read_sizes(given + 2, 1, strides) != nd)) {
        return NULL;
    }
    return (PyObject *)array_new((PyArray_Descr *)given[1], nd, dims, count > 2 ? strides : NULL);
}

/* lent(pointer, shape, strides, dtype, owner): memory of somebody else's */
PyObject *
module_lent(PyObject *module, PyObject *args)
{
    unsigned long long pointer;
    PyObject *shape, *steps, *dtype, *owner;
    npy_intp dims[MOST_DIMS], strides[MOST_DIMS];
    if (!PyArg_ParseTuple(args, "KO!O!O!O", &pointer, &PyTuple_Type, &shape, &PyTuple_Type, &steps,
                          &PyArrayDescr_Type, &dtype, &owner)) {
        return NULL;
    }
    int nd = read_sizes(&shape, 1, dims);
    if (nd < 0 || read_sizes(&steps, 1, strides) != nd) {
        return NULL;
    }
    Array *array = array_alloc((PyArray_Descr *)dtype, nd);
    if (array == NULL || set_shape(array, nd, dims) < 0 ||
        (array->block = block_lent((char *)(uintptr_t)pointer, owner)) == NULL) {
        Py_XDECREF(array);
        return NULL;
    }
    memcpy(array->strides, strides, nd * sizeof(npy_intp));
    array->is_contiguous = (char)lies_by_rows(nd, dims, strides, PyDataType_ELSIZE(array->dtype));
    array->data = array->block->data;
    return (PyObject *)array;
}

/* set_class(device, array class) */
PyObject *
module_set_class(PyObject *module, PyObject *args)
{
    int index;
    PyObject *type;
    if (!PyArg_ParseTuple(args, "iO!", &index, &PyType_Type, &type) || enter_gpu(index) < 0) {
        return NULL;
    }
    array_classes[index] = (PyTypeObject *)Py_NewRef(type);
    Py_RETURN_NONE;
}

/* setup(flags class, operators, getitem, setitem, reductions, error): what Python adds */
PyObject *
module_setup(PyObject *module, PyObject *args)
{
    PyObject *flags, *operators, *getitem, *setitem, *maker, *error;
    if (!PyArg_ParseTuple(args, "OO!OOOO", &flags, &PyDict_Type, &operators, &getitem, &setitem, &maker, &error) ||
        read_operators(operators) < 0) {
        return NULL;
    }
    Py_XSETREF(flags_class, Py_NewRef(flags));
    Py_XSETREF(slow_getitem, Py_NewRef(getitem));
    Py_XSETREF(slow_setitem, Py_NewRef(setitem));
    Py_XSETREF(reduction_maker, Py_NewRef(maker));
    Py_XSETREF(out_of_memory_error, Py_NewRef(error));
    Py_RETURN_NONE;
}
