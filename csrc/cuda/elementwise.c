/* Elementwise: a kernel of one formula, for operands of any dtypes, shapes and strides.
 *
 * Python compiles it for the dtypes that it meets (backend/cuda/elementwise.py): one function for operands that lie
 * alike, one that walks along strides, and for large arrays one that reads sixteen bytes at a time.
 */
#include "cuda/cuda.h"

enum { NUMBER_BIT = 32, PYTHON_INT = 16, PYTHON_FLOAT = 17, PYTHON_COMPLEX = 18 };
#define KEY_BITS 6

typedef struct {
    uint64_t key;
    PyArray_Descr *out;
    Function plain, strided, vector[1 << 5]; /* vector: by which operands are a single element, and INNER */
    char casts[MOST_IN]; /* the codes that operands are computed in */
} Variant;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *name, *compile, *compile_vector, *slow, *dict;
    int nin, count;
    Variant **variants;
} Elementwise;

/* An operand that is a number: what kernels find in the place of an array. */
typedef struct {
    union {
        long long i;
        double d;
    };
    double imaginary;
} Value;

typedef struct {
    Array *array; /* NULL: a number */
    Value value;
    int code, is_single, is_copy;
} Operand;

/* ---- variants */

static Variant *
make_variant(Elementwise *self, uint64_t key)
{
    PyObject *codes = PyTuple_New(self->nin);
    for (int k = 0; codes != NULL && k < self->nin; k++) {
        PyTuple_SET_ITEM(codes, k, PyLong_FromLong(key >> (KEY_BITS * k) & ((1 << KEY_BITS) - 1)));
    }
    PyObject *made = codes == NULL ? NULL : PyObject_CallOneArg(self->compile, codes);
    Py_XDECREF(codes);
    unsigned long long plain, strided;
    PyObject *out, *casts;
    if (made == NULL || !PyArg_ParseTuple(made, "O!KKO!", &PyArrayDescr_Type, &out, &plain, &strided, &PyTuple_Type,
                                          &casts)) {
        Py_XDECREF(made);
        return NULL;
    }
    Variant **room = realloc(self->variants, (self->count + 1) * sizeof(Variant *));
    Variant *variant = room == NULL ? NULL : calloc(1, sizeof(Variant));
    if (room != NULL) {
        self->variants = room;
    }
    if (variant == NULL) {
        Py_DECREF(made);
        PyErr_NoMemory();
        return NULL;
    }
    variant->key = key;
    variant->out = (PyArray_Descr *)Py_NewRef(out);
    variant->plain = (Function)(uintptr_t)plain;
    variant->strided = (Function)(uintptr_t)strided;
    for (int k = 0; k < self->nin && k < PyTuple_GET_SIZE(casts); k++) {
        variant->casts[k] = (char)PyLong_AsLong(PyTuple_GET_ITEM(casts, k));
    }
    Py_DECREF(made);
    self->variants[self->count++] = variant;
    return variant;
}

static Variant *
find_variant(Elementwise *self, uint64_t key)
{
    for (int k = 0; k < self->count; k++) {
        if (self->variants[k]->key == key) {
            return self->variants[k];
        }
    }
    return make_variant(self, key);
}

#define INNER (1 << 4) /* vectors lie side by side in the last dimension alone */

static Function
find_vector(Elementwise *self, Variant *variant, int singles)
{
    if (variant->vector[singles] == NULL) {
        PyObject *codes = PyTuple_New(self->nin);
        for (int k = 0; codes != NULL && k < self->nin; k++) {
            PyTuple_SET_ITEM(codes, k, PyLong_FromLong(variant->key >> (KEY_BITS * k) & ((1 << KEY_BITS) - 1)));
        }
        PyObject *made = codes == NULL ? NULL : PyObject_CallFunction(self->compile_vector, "Oi", codes, singles);
        Py_XDECREF(codes);
        if (made == NULL) {
            return NULL;
        }
        variant->vector[singles] = PyLong_AsVoidPtr(made);
        Py_DECREF(made);
    }
    return variant->vector[singles];
}

/* ---- operands */

static int
read_scalar_array(PyArrayObject *array, Operand *operand)
{
    PyArray_Descr *dtype = PyArray_DESCR(array);
    int code = code_of(dtype);
    if (PyArray_NDIM(array) != 0 || code >= CODE_BF16) {
        return 0;
    }
    PyObject *item = PyArray_GETITEM(array, PyArray_DATA(array));
    if (item == NULL) {
        return -1;
    }
    if (code >= CODE_C64) {
        operand->value.d = PyComplex_RealAsDouble(item);
        operand->value.imaginary = PyComplex_ImagAsDouble(item);
    }
    else if (code >= CODE_F16) {
        operand->value.d = PyFloat_AsDouble(item);
    }
    else if (code == CODE_U64) {
        operand->value.i = (long long)PyLong_AsUnsignedLongLong(item);
    }
    else {
        operand->value.i = PyLong_AsLongLong(item);
    }
    Py_DECREF(item);
    operand->code = code | NUMBER_BIT;
    return PyErr_Occurred() ? -1 : 1;
}

/* An operand that is no array of the device: 1 if it is a number, 0 if it is none, -1 with an exception. */
static int
read_number(PyObject *object, Operand *operand)
{
    operand->value = (Value){.i = 0};
    if (PyFloat_CheckExact(object)) {
        operand->value.d = PyFloat_AS_DOUBLE(object);
        operand->code = PYTHON_FLOAT | NUMBER_BIT;
        return 1;
    }
    if (PyBool_Check(object)) {
        operand->value.i = object == Py_True;
        operand->code = CODE_BOOL | NUMBER_BIT;
        return 1;
    }
    if (PyLong_CheckExact(object)) {
        int overflow;
        operand->value.i = PyLong_AsLongLongAndOverflow(object, &overflow);
        if (overflow > 0) {
            operand->value.i = (long long)PyLong_AsUnsignedLongLong(object); /* or an OverflowError */
            if (PyErr_Occurred()) {
                return -1;
            }
            operand->code = CODE_U64 | NUMBER_BIT;
            return 1;
        }
        operand->code = PYTHON_INT | NUMBER_BIT;
        return overflow < 0 ? 0 : 1;
    }
    if (PyComplex_CheckExact(object)) {
        operand->value.d = PyComplex_RealAsDouble(object);
        operand->value.imaginary = PyComplex_ImagAsDouble(object);
        operand->code = PYTHON_COMPLEX | NUMBER_BIT;
        return 1;
    }
    if (PyArray_Check(object)) {
        return read_scalar_array((PyArrayObject *)object, operand);
    }
    if (PyArray_CheckScalar(object)) {
        PyObject *array = PyArray_FromScalar(object, NULL);
        int found = array == NULL ? -1 : read_scalar_array((PyArrayObject *)array, operand);
        Py_XDECREF(array);
        return found;
    }
    return 0;
}

static int
read_operand(const Elementwise *self, PyObject *object, Operand *operand)
{
    operand->array = NULL;
    operand->is_single = operand->is_copy = 0;
    operand->value = (Value){.i = 0}; /* equal launches are equal to the last byte */
    if (!IS_ARRAY(object)) {
        int found = read_number(object, operand);
        if (found == 0) {
            PyErr_Format(PyExc_TypeError, "%U: an operand on cuda or a number is expected, not %s", self->name,
                         Py_TYPE(object)->tp_name);
        }
        return found > 0 ? 0 : -1;
    }
    Array *array = operand->array = (Array *)object;
    operand->code = array->code;
    operand->is_single = 1;
    for (int d = 0; d < array->nd && operand->is_single; d++) {
        operand->is_single = array->dims[d] == 1 || array->strides[d] == 0;
    }
    if (array->code == CODE_UNKNOWN) {
        PyErr_Format(PyExc_NotImplementedError, "%U of an array of this dtype on cuda", self->name);
        return -1;
    }
    return 0;
}

/* NumPy refuses a Python int that the dtype of the others does not hold. */
static int
check_range(const Operand *operand, int cast)
{
    static const long long most[] = {1, 255, 65535, 4294967295LL, INT64_MAX, 127, 32767, 2147483647LL, INT64_MAX};
    if (operand->code != (PYTHON_INT | NUMBER_BIT) || cast > CODE_I64 || cast == CODE_BOOL) {
        return 0;
    }
    long long value = operand->value.i, lowest = cast >= CODE_I8 ? -most[cast] - 1 : 0;
    if (value < lowest || value > most[cast]) {
        PyErr_Format(PyExc_OverflowError, "Python integer %lld out of bounds for the dtype of the other operands", value);
        return -1;
    }
    return 0;
}

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

/* ---- launching */

typedef struct {
    char *bytes;
    size_t size;
} Words;

static void
add(Words *words, const void *data, size_t bytes)
{
    memcpy(words->bytes + words->size, data, bytes);
    words->size += bytes;
}

static void
add_number(Words *words, long long number)
{
    add(words, &number, sizeof(number));
}

/* Dimensions that all operands and the result walk through in equal steps are joined; how many are left. */
static int
join_dimensions(const Operand *operands, int count, const Array *out, npy_intp *loop, npy_intp steps[][MOST_DIMS])
{
    int found = 0;
    for (int d = 0; d < out->nd; d++) {
        npy_intp own[MOST_IN + 1];
        if (out->dims[d] == 1) {
            continue;
        }
        int joins = found > 0;
        for (int k = 0; k <= count; k++) {
            const Array *array = k == count ? out : operands[k].array;
            int at = array == NULL ? -1 : d - (out->nd - array->nd);
            own[k] = at < 0 || array->dims[at] == 1 ? 0 : array->strides[at];
            joins = joins && steps[k][found - 1] == own[k] * out->dims[d];
        }
        if (joins) {
            loop[found - 1] *= out->dims[d];
        }
        else {
            loop[found++] = out->dims[d];
        }
        for (int k = 0; k <= count; k++) {
            steps[k][found - 1] = own[k];
        }
    }
    return found;
}

/* How operands and result are walked through. */
typedef struct {
    npy_intp loop[MOST_DIMS], steps[MOST_IN + 1][MOST_DIMS]; /* in elements; in bytes, those of the result come last */
    int left;
} Walk;

static int
add_walk(Words *words, const Walk *walk, int count)
{
    if (walk->left > MOST_LOOP) {
        PyErr_Format(PyExc_NotImplementedError, "operands on cuda with %d dimensions that cannot be joined", walk->left);
        return -1;
    }
    add_number(words, walk->left);
    for (int d = 0; d < MOST_LOOP; d++) {
        add_number(words, d < walk->left ? walk->loop[d] : 1);
    }
    for (int k = count; k >= 0; k--) { /* the result first, then operands from the last to the first */
        for (int d = 0; d < MOST_LOOP; d++) {
            add_number(words, d < walk->left ? walk->steps[k][d] : 0);
        }
    }
    return 0;
}

/* Whether the last dimension can be walked through in vectors; then the walk does, and it is how many elements each has.
 * 1: it cannot. Single elements are read once. */
static npy_intp
walk_in_vectors(Walk *walk, const Operand *operands, int count, const Array *out)
{
    npy_intp wide = 16 / PyDataType_ELSIZE(out->dtype);
    int last = walk->left - 1;
    if (last < 0 || walk->loop[last] % wide) {
        return 1;
    }
    for (int k = 0; k <= count; k++) {
        const Array *array = k == count ? out : operands[k].array;
        if (array == NULL || (k < count && operands[k].is_single)) {
            continue;
        }
        npy_intp item = PyDataType_ELSIZE(array->dtype), bytes = wide * item;
        for (int d = 0; d < last; d++) {
            if (walk->steps[k][d] % (bytes < 16 ? bytes : 16)) {
                return 1;
            }
        }
        if (walk->steps[k][last] != item) {
            return 1;
        }
    }
    walk->loop[last] /= wide;
    for (int k = 0; k <= count; k++) {
        walk->steps[k][last] *= wide;
    }
    return wide;
}

/* Whether sixteen bytes can be written at a time; the bits of operands that are single elements, or -1. */
static int
vector_operands(const Operand *operands, int count, const Array *out)
{
    npy_intp item = PyDataType_ELSIZE(out->dtype), wide = 16 / item;
    int singles = 0;
    if (count > 4 || out->size < 4096 || item > 8 || out->size % wide || (uintptr_t)out->data % 16) {
        return -1;
    }
    for (int k = 0; k < count; k++) {
        const Array *array = operands[k].array;
        if (array == NULL || operands[k].is_single) {
            singles |= 1 << k;
        }
        else {
            npy_intp bytes = wide * PyDataType_ELSIZE(array->dtype);
            if ((uintptr_t)array->data % (bytes < 16 ? bytes : 16)) {
                return -1;
            }
        }
    }
    return singles;
}

static int
launch_variant(Elementwise *self, Variant *variant, const Operand *operands, Array *out, int alike)
{
    char room[8 * (4 + 4 * MOST_IN + MOST_LOOP * (MOST_IN + 2))];
    Words words = {room, 0};
    Walk walk;
    Function function = alike ? variant->plain : variant->strided;
    npy_intp threads = 128, each = alike ? 4 : 1, wide = 1; /* elements of a thread, and of a vector */
    int singles = vector_operands(operands, self->nin, out);
    if (!alike) {
        walk.left = join_dimensions(operands, self->nin, out, walk.loop, walk.steps);
        wide = singles < 0 ? 1 : walk_in_vectors(&walk, operands, self->nin, out);
        if (wide > 1) {
            function = find_vector(self, variant, singles | INNER);
            each = wide;
        }
    }
    else if (singles >= 0) {
        function = find_vector(self, variant, singles);
        threads = 256;
        each = 2 * 16 / PyDataType_ELSIZE(out->dtype);
    }
    add(&words, &out->data, 8);
    for (int k = 0; k < self->nin; k++) {
        const char *data = operands[k].array == NULL ? NULL : operands[k].array->data;
        add(&words, &data, 8);
    }
    for (int k = 0; k < self->nin; k++) {
        add(&words, &operands[k].value, sizeof(Value));
    }
    add_number(&words, out->size / wide);
    for (int k = 0; alike && k < self->nin; k++) {
        add_number(&words, operands[k].array != NULL && !operands[k].is_single);
    }
    if (!alike && add_walk(&words, &walk, self->nin) < 0) {
        return -1;
    }
    npy_intp blocks = (out->size + threads * each - 1) / (threads * each);
    if (function == NULL || blocks > INT32_MAX) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_NotImplementedError, "an array with so many elements on cuda");
        }
        return -1;
    }
    return launch(function, (unsigned)blocks, (unsigned)threads, room, words.size, out->size);
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
