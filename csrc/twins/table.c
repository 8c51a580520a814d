/* Twin: a Python function on arrays whose usual case is computed in C. What the C function leaves alone, the Python
 * function does; it is marked by the decorator `twin` of compiled.py.
 */
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "twins/table.h"

/* Returns NULL without an exception if Python should do it. */
typedef PyObject *(*Kernel)(PyObject *const *arguments);

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function; /* Python's */
    Kernel kernel;
    Py_ssize_t count; /* of arguments */
} Twin;

/* ---- looking at arrays */

static inline int
is_real(PyArrayObject *array)
{
    return PyArray_DESCR(array) == core.float32 || PyArray_DESCR(array) == core.float64;
}

/* The object as an array of real numbers with that many dimensions, one row after the other; or NULL. */
static inline PyArrayObject *
plain_array(PyObject *object, int ndim)
{
    PyArrayObject *array = (PyArrayObject *)object;
    int wanted = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
    return PyArray_CheckExact(object) && PyArray_NDIM(array) == ndim && is_real(array) &&
                   (PyArray_FLAGS(array) & wanted) == wanted
               ? array
               : NULL;
}

/* Whether two objects are arrays of real numbers of one shape and dtype, one row after the other. */
static int
are_alike(PyObject *first, PyObject *second)
{
    PyArrayObject *a = (PyArrayObject *)first, *b = (PyArrayObject *)second;
    return PyArray_CheckExact(first) && PyArray_CheckExact(second) && plain_array(first, PyArray_NDIM(a)) != NULL &&
           plain_array(second, PyArray_NDIM(a)) != NULL && PyArray_DESCR(a) == PyArray_DESCR(b) &&
           PyArray_SAMESHAPE(a, b);
}

/* Whether an object is a list of arrays of one shape and dtype, each one row after the other. */
static int
is_uniform(PyObject *list)
{
    if (!PyList_CheckExact(list) || PyList_GET_SIZE(list) == 0) {
        return 0;
    }
    PyArrayObject *first = (PyArrayObject *)PyList_GET_ITEM(list, 0);
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list); k++) {
        PyArrayObject *array = (PyArrayObject *)PyList_GET_ITEM(list, k);
        if (!PyArray_CheckExact(array) || !PyArray_CHKFLAGS(array, NPY_ARRAY_C_CONTIGUOUS) ||
            !PyArray_SAMESHAPE(array, first) || PyArray_DESCR(array) != PyArray_DESCR(first)) {
            return 0;
        }
    }
    return 1;
}

/* ---- shapes */

/* transpose_matrix(xp, input) */
static PyObject *
transpose_matrix(PyObject *const *arguments)
{
    PyArrayObject *input = (PyArrayObject *)arguments[1];
    return PyArray_CheckExact(input) && PyArray_NDIM(input) <= 2 ? PyArray_Transpose(input, NULL) : NULL;
}

/* broadcast_to(x, shape): x seen as if it had this shape, not to be written to */
PyObject *
broadcast_to(PyObject *const *arguments)
{
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    PyObject *shape = arguments[1];
    npy_intp dims[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    if (!PyArray_CheckExact(x) || !PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) > 32) {
        return NULL;
    }
    int ndim = (int)PyTuple_GET_SIZE(shape), lead = ndim - PyArray_NDIM(x);
    if (lead < 0) {
        return NULL;
    }
    for (int k = 0; k < ndim; k++) {
        PyObject *size = PyTuple_GET_ITEM(shape, k);
        npy_intp own = k < lead ? 1 : PyArray_DIM(x, k - lead);
        dims[k] = PyLong_CheckExact(size) ? PyLong_AsSsize_t(size) : -1;
        if (dims[k] < 0 || (own != 1 && own != dims[k])) {
            PyErr_Clear();
            return NULL;
        }
        strides[k] = own == dims[k] && k >= lead ? PyArray_STRIDE(x, k - lead) : 0;
    }
    PyArray_Descr *dtype = PyArray_DESCR(x);
    Py_INCREF(dtype);
    PyObject *view = PyArray_NewFromDescr(&PyArray_Type, dtype, ndim, dims, strides, PyArray_DATA(x), 0, NULL);
    if (view != NULL && PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef(x)) < 0) {
        Py_CLEAR(view);
    }
    return view;
}

/* join(xp, tensors, dim): arrays of one shape and dtype, one behind the other */
static PyObject *
join(PyObject *const *arguments)
{
    PyObject *list = arguments[1];
    if (!is_uniform(list) || !PyLong_CheckExact(arguments[2])) {
        return NULL;
    }
    PyArrayObject *first = (PyArrayObject *)PyList_GET_ITEM(list, 0);
    long dim = PyLong_AsLong(arguments[2]), ndim = PyArray_NDIM(first);
    if (PyErr_Occurred() || dim < -ndim || dim >= ndim || PyArray_SIZE(first) == 0) {
        PyErr_Clear();
        return NULL;
    }
    return PyArray_Concatenate(list, (int)(dim < 0 ? dim + ndim : dim));
}

/* pile(xp, tensors, dim): arrays of one shape and dtype, along a new dimension */
static PyObject *
pile(PyObject *const *arguments)
{
    PyObject *list = arguments[1];
    npy_intp dims[NPY_MAXDIMS], outer = 1;
    if (!is_uniform(list) || !PyLong_CheckExact(arguments[2])) {
        return NULL;
    }
    PyArrayObject *first = (PyArrayObject *)PyList_GET_ITEM(list, 0);
    long ndim = PyArray_NDIM(first), dim = PyLong_AsLong(arguments[2]);
    PyErr_Clear();
    dim = dim < 0 ? dim + ndim + 1 : dim;
    if (ndim > 31 || dim < 0 || dim > ndim) {
        return NULL;
    }
    npy_intp count = dims[dim] = PyList_GET_SIZE(list);
    for (long k = 0; k < ndim; k++) {
        dims[k + (k >= dim)] = PyArray_DIM(first, (int)k);
        outer *= k < dim ? PyArray_DIM(first, (int)k) : 1;
    }
    PyArray_Descr *dtype = PyArray_DESCR(first);
    Py_INCREF(dtype);
    PyArrayObject *out =
        (PyArrayObject *)PyArray_NewFromDescr(&PyArray_Type, dtype, (int)ndim + 1, dims, NULL, NULL, 0, NULL);
    size_t size = outer ? PyArray_NBYTES(first) / outer : 0; /* of what lies together */
    for (npy_intp k = 0; out != NULL && k < count; k++) {
        const char *from = PyArray_BYTES((PyArrayObject *)PyList_GET_ITEM(list, k));
        for (npy_intp o = 0; size && o < outer; o++) {
            memcpy(PyArray_BYTES(out) + (o * count + k) * size, from + o * size, size);
        }
    }
    return (PyObject *)out;
}

/* ---- sums and products */

/* multiply_matrices(xp, input, mat2) */
static PyObject *
multiply_matrices(PyObject *const *arguments)
{
    PyArrayObject *a = (PyArrayObject *)arguments[1], *b = (PyArrayObject *)arguments[2];
    if (!PyArray_CheckExact(a) || !PyArray_CheckExact(b) || PyArray_NDIM(a) != 2 || PyArray_NDIM(b) != 2 ||
        PyArray_DESCR(a) != PyArray_DESCR(b) || PyArray_DIM(a, 1) != PyArray_DIM(b, 0) ||
        (PyArray_SIZE(b) > 4096 && PyArray_STRIDE(b, 0) == PyArray_ITEMSIZE(b))) { /* times_transposed may be faster */
        return NULL;
    }
    return PyArray_MatrixProduct2((PyObject *)a, (PyObject *)b, NULL);
}

/* How many rows are added up before their sum is added to the total, so that rounding errors do not grow with all. */
#define ROWS_AT_ONCE 64

#define SUM_ROWS(type)                                                                                                \
    static void sum_rows_##type(const type *x, npy_intp rows, npy_intp columns, type *block, type *out)              \
    {                                                                                                                 \
        memset(out, 0, columns * sizeof(type));                                                                       \
        for (npy_intp first = 0; first < rows; first += ROWS_AT_ONCE) {                                               \
            npy_intp last = first + ROWS_AT_ONCE < rows ? first + ROWS_AT_ONCE : rows;                                \
            type *sum = rows <= ROWS_AT_ONCE ? out : block;                                                           \
            memcpy(sum, x + first * columns, columns * sizeof(type));                                                 \
            for (npy_intp i = first + 1; i < last; i++) {                                                             \
                const type *row = x + i * columns;                                                                    \
                for (npy_intp j = 0; j < columns; j++) {                                                              \
                    sum[j] += row[j];                                                                                 \
                }                                                                                                     \
            }                                                                                                         \
            if (sum != out) {                                                                                         \
                for (npy_intp j = 0; j < columns; j++) {                                                              \
                    out[j] += sum[j];                                                                                 \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }

SUM_ROWS(float)
SUM_ROWS(double)

/* sum_to(x, shape), for the sum of the rows of a matrix: the gradient of a bias */
static PyObject *
sum_to(PyObject *const *arguments)
{
    PyArrayObject *x = plain_array(arguments[0], 2);
    PyObject *shape = arguments[1];
    if (x == NULL || !PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) != 1 ||
        PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, 0)) != PyArray_DIM(x, 1)) {
        PyErr_Clear();
        return NULL;
    }
    npy_intp rows = PyArray_DIM(x, 0), columns = PyArray_DIM(x, 1);
    PyArrayObject *out = (PyArrayObject *)new_array(1, &columns, PyArray_TYPE(x));
    void *block = rows <= ROWS_AT_ONCE ? NULL : PyMem_Malloc(columns * PyArray_ITEMSIZE(x) + 1);
    if (out == NULL || (rows > ROWS_AT_ONCE && block == NULL)) {
        PyMem_Free(block);
        Py_XDECREF(out);
        return PyErr_NoMemory();
    }
    if (PyArray_DESCR(x) == core.float32) {
        sum_rows_float(PyArray_DATA(x), rows, columns, block, PyArray_DATA(out));
    }
    else {
        sum_rows_double(PyArray_DATA(x), rows, columns, block, PyArray_DATA(out));
    }
    PyMem_Free(block);
    return (PyObject *)out;
}

/* The largest array that is summed up here. */
#define FEW_TERMS 1024

#define SUM_ALL(type)                                                                                                 \
    static type sum_all_##type(const type *x, npy_intp n)                                                             \
    {                                                                                                                 \
        type sums[8] = {0}, rest = 0;                                                                                 \
        npy_intp i = 0;                                                                                               \
        for (; i + 8 <= n; i += 8) {                                                                                  \
            for (int k = 0; k < 8; k++) {                                                                             \
                sums[k] += x[i + k];                                                                                  \
            }                                                                                                         \
        }                                                                                                             \
        for (; i < n; i++) {                                                                                          \
            rest += x[i];                                                                                             \
        }                                                                                                             \
        return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7])) + rest;      \
    }

SUM_ALL(float)
SUM_ALL(double)

/* sum_all_forward(xp, input): the sum of all elements */
static PyObject *
sum_all_forward(PyObject *const *arguments)
{
    PyArrayObject *input = (PyArrayObject *)arguments[1];
    if (!PyArray_CheckExact(input) || !plain_array(arguments[1], PyArray_NDIM(input)) ||
        PyArray_SIZE(input) > FEW_TERMS) {
        return NULL;
    }
    PyArrayObject *out = (PyArrayObject *)new_array(0, NULL, PyArray_TYPE(input));
    if (out == NULL) {
        return NULL;
    }
    forget_exceptions();
    if (PyArray_DESCR(input) == core.float32) {
        *(float *)PyArray_DATA(out) = sum_all_float(PyArray_DATA(input), PyArray_SIZE(input));
    }
    else {
        *(double *)PyArray_DATA(out) = sum_all_double(PyArray_DATA(input), PyArray_SIZE(input));
    }
    if (exceptions_noted()) { /* NumPy says what it thinks of it */
        Py_CLEAR(out);
    }
    return (PyObject *)out;
}

/* ---- activations */

/* both are read, whichever it will be: so there is nothing to guess */
#define KEEP_ABOVE(type)                                                                                              \
    CLONES static void keep_above_##type(const type *restrict grad, const type *restrict input, type threshold,       \
                                         type *restrict out, npy_intp n)                                              \
    {                                                                                                                 \
        for (npy_intp i = 0; i < n; i++) {                                                                            \
            type given = grad[i];                                                                                     \
            out[i] = input[i] <= threshold ? 0 : given;                                                               \
        }                                                                                                             \
    }

KEEP_ABOVE(float)
KEEP_ABOVE(double)

/* threshold_gradient(xp, grad_output, input, threshold): the gradient where the input is above the threshold, else 0 */
static PyObject *
threshold_gradient(PyObject *const *arguments)
{
    PyArrayObject *grad = (PyArrayObject *)arguments[1], *input = (PyArrayObject *)arguments[2];
    if (!are_alike(arguments[1], arguments[2]) ||
        !(PyFloat_CheckExact(arguments[3]) || PyLong_CheckExact(arguments[3]))) {
        return NULL;
    }
    double threshold = PyFloat_AsDouble(arguments[3]);
    if (threshold == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return NULL;
    }
    if (PyArray_DESCR(grad) == core.float32 && (float)threshold != threshold) {
        return NULL;
    }
    PyArrayObject *out = (PyArrayObject *)new_array(PyArray_NDIM(grad), PyArray_DIMS(grad), PyArray_TYPE(grad));
    if (out != NULL) {
        const void *from = PyArray_DATA(grad), *by = PyArray_DATA(input);
        npy_intp n = PyArray_SIZE(grad);
        void *to = PyArray_DATA(out);
        WORK(n, PyArray_DESCR(out) == core.float32 ? keep_above_float(from, by, (float)threshold, to, n)
                                                   : keep_above_double(from, by, threshold, to, n));
    }
    return (PyObject *)out;
}

#define POSITIVE_PART(type)                                                                                           \
    CLONES static void positive_part_##type(const type *restrict input, type *restrict out, npy_intp n)               \
    {                                                                                                                 \
        for (npy_intp i = 0; i < n; i++) {                                                                            \
            out[i] = input[i] <= 0 ? 0 : input[i]; /* nan stays */                                                    \
        }                                                                                                             \
    }

POSITIVE_PART(float)
POSITIVE_PART(double)

/* positive_part(xp, input) */
static PyObject *
positive_part(PyObject *const *arguments)
{
    if (arguments[0] != core.cpu || !is_plain(arguments[1])) {
        return NULL;
    }
    PyArrayObject *input = (PyArrayObject *)arguments[1];
    PyObject *out = new_like(input);
    if (out != NULL) {
        npy_intp n = PyArray_SIZE(input);
        WORK(n, PyArray_TYPE(input) == NPY_FLOAT ? positive_part_float(PyArray_DATA(input), data_of(out), n)
                                                 : positive_part_double(PyArray_DATA(input), data_of(out), n));
    }
    return out;
}

/* ---- cross entropy, where rows are few and short: longer ones gain from NumPy's vector instructions */

#define FEW_SCORES 4096

/* The scores (an array of rows) and targets of a loss that has no exceptions: no weights, no target to ignore or
 * refuse. Whether it is such a one. */
static int
is_simple_loss(PyObject *scores, PyObject *target, PyObject *ignored)
{
    PyArrayObject *input = plain_array(scores, 2), *classes = (PyArrayObject *)target;
    if (input == NULL || PyArray_SIZE(input) > FEW_SCORES || PyArray_DIM(input, 1) == 0 ||
        !PyArray_CheckExact(target) || PyArray_NDIM(classes) != 1 || PyArray_TYPE(classes) != NPY_INT64 ||
        !PyArray_ISCARRAY_RO(classes) || PyArray_DIM(classes, 0) != PyArray_DIM(input, 0) ||
        PyArray_DIM(classes, 0) == 0 || !PyLong_CheckExact(ignored)) {
        return 0;
    }
    npy_int64 without = PyLong_AsLongLong(ignored), count = PyArray_DIM(input, 1);
    const npy_int64 *own = PyArray_DATA(classes);
    for (npy_intp i = 0; i < PyArray_DIM(classes, 0); i++) {
        if (own[i] < 0 || own[i] >= count || own[i] == without) {
            PyErr_Clear();
            return 0;
        }
    }
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return 1;
}

#define CROSS_ENTROPY(type, exponential)                                                                              \
    static type largest_##type(const type *row, npy_intp columns)                                                     \
    {                                                                                                                 \
        type largest = row[0];                                                                                        \
        for (npy_intp j = 1; j < columns; j++) {                                                                      \
            largest = row[j] > largest || row[j] != row[j] ? row[j] : largest;                                        \
        }                                                                                                             \
        return largest;                                                                                               \
    }                                                                                                                 \
                                                                                                                      \
    static double losses_##type(const type *x, const npy_int64 *target, npy_intp rows, npy_intp columns, type *out)   \
    {                                                                                                                 \
        double total = 0;                                                                                             \
        for (npy_intp i = 0; i < rows; i++, x += columns) {                                                           \
            type largest = largest_##type(x, columns);                                                                \
            double sum = 0;                                                                                           \
            for (npy_intp j = 0; j < columns; j++) {                                                                  \
                sum += exponential(x[j] - largest);                                                                   \
            }                                                                                                         \
            double loss = log(sum) - (x[target[i]] - largest);                                                        \
            out[i] = (type)loss;                                                                                      \
            total += loss;                                                                                            \
        }                                                                                                             \
        return total;                                                                                                 \
    }                                                                                                                 \
                                                                                                                      \
    static void slopes_##type(const type *x, const npy_int64 *target, const type *grad, npy_intp rows,                \
                              npy_intp columns, type *out)                                                            \
    {                                                                                                                 \
        for (npy_intp i = 0; i < rows; i++, x += columns, out += columns) {                                           \
            type largest = largest_##type(x, columns);                                                                \
            double sum = 0;                                                                                           \
            for (npy_intp j = 0; j < columns; j++) {                                                                  \
                sum += out[j] = exponential(x[j] - largest);                                                          \
            }                                                                                                         \
            type scale = (type)(grad[i] / sum);                                                                       \
            for (npy_intp j = 0; j < columns; j++) {                                                                  \
                out[j] *= scale;                                                                                      \
            }                                                                                                         \
            out[target[i]] -= grad[i];                                                                                \
        }                                                                                                             \
    }

CROSS_ENTROPY(float, expf)
CROSS_ENTROPY(double, exp)

static int
is_reduction(PyObject *reduction, const char *name)
{
    return PyUnicode_Check(reduction) && PyUnicode_CompareWithASCIIString(reduction, name) == 0;
}

/* cross_entropy_forward(xp, input, target, weight, ignore_index, reduction) */
static PyObject *
cross_entropy_forward(PyObject *const *arguments)
{
    PyObject *reduction = arguments[5];
    int mean = is_reduction(reduction, "mean"), sum = !mean && is_reduction(reduction, "sum");
    if (arguments[3] != Py_None || !(mean || sum || is_reduction(reduction, "none")) ||
        !is_simple_loss(arguments[1], arguments[2], arguments[4])) {
        return NULL;
    }
    PyArrayObject *input = (PyArrayObject *)arguments[1];
    const npy_int64 *target = PyArray_DATA((PyArrayObject *)arguments[2]);
    npy_intp rows = PyArray_DIM(input, 0), columns = PyArray_DIM(input, 1);
    PyArrayObject *out = (PyArrayObject *)new_array(1, &rows, PyArray_TYPE(input));
    if (out == NULL) {
        return NULL;
    }
    int single = PyArray_DESCR(input) == core.float32;
    forget_exceptions();
    double total = single ? losses_float(PyArray_DATA(input), target, rows, columns, PyArray_DATA(out))
                          : losses_double(PyArray_DATA(input), target, rows, columns, PyArray_DATA(out));
    if (exceptions_noted() & ~UNDERFLOW_NOTED) { /* infinite scores: NumPy says what it thinks of them */
        Py_DECREF(out);
        return NULL;
    }
    if (mean || sum) {
        total = mean ? total / rows : total;
        Py_SETREF(out, (PyArrayObject *)new_array(0, NULL, PyArray_TYPE(input)));
        if (out != NULL && single) {
            *(float *)PyArray_DATA(out) = (float)total;
        }
        else if (out != NULL) {
            *(double *)PyArray_DATA(out) = total;
        }
    }
    return (PyObject *)out;
}

/* softmax_minus_target(xp, grad_output, target, input, ignore_index) */
static PyObject *
softmax_minus_target(PyObject *const *arguments)
{
    PyArrayObject *grad = plain_array(arguments[1], 1), *input = (PyArrayObject *)arguments[3];
    if (grad == NULL || !is_simple_loss(arguments[3], arguments[2], arguments[4]) ||
        PyArray_DESCR(grad) != PyArray_DESCR(input) || PyArray_DIM(grad, 0) != PyArray_DIM(input, 0)) {
        return NULL;
    }
    const npy_int64 *target = PyArray_DATA((PyArrayObject *)arguments[2]);
    npy_intp rows = PyArray_DIM(input, 0), columns = PyArray_DIM(input, 1);
    PyArrayObject *out = (PyArrayObject *)new_array(2, PyArray_DIMS(input), PyArray_TYPE(input));
    if (out != NULL && PyArray_DESCR(input) == core.float32) {
        slopes_float(PyArray_DATA(input), target, PyArray_DATA(grad), rows, columns, PyArray_DATA(out));
    }
    else if (out != NULL) {
        slopes_double(PyArray_DATA(input), target, PyArray_DATA(grad), rows, columns, PyArray_DATA(out));
    }
    return (PyObject *)out;
}

/* target_coefficients(xp, target, weight, classes, ignore_index, reduction, dtype): how much every target counts */
static PyObject *
target_coefficients(PyObject *const *arguments)
{
    PyArrayObject *target = (PyArrayObject *)arguments[1];
    PyArray_Descr *dtype = (PyArray_Descr *)arguments[6];
    if (!PyArray_CheckExact(target) || PyArray_NDIM(target) != 1 || PyArray_TYPE(target) != NPY_INT64 ||
        !PyArray_ISCARRAY_RO(target) || arguments[2] != Py_None || !PyLong_CheckExact(arguments[3]) ||
        !PyLong_CheckExact(arguments[4]) || (dtype != core.float32 && dtype != core.float64) ||
        !PyUnicode_Check(arguments[5])) {
        return NULL;
    }
    long long classes = PyLong_AsLongLong(arguments[3]), without = PyLong_AsLongLong(arguments[4]);
    const npy_int64 *own = PyArray_DATA(target);
    npy_intp count = PyArray_DIM(target, 0);
    for (npy_intp i = 0; i < count; i++) {
        if (own[i] < 0 || own[i] >= classes || own[i] == without) {
            return NULL;
        }
    }
    double each = is_reduction(arguments[5], "mean") && count ? 1.0 / count : 1;
    PyArrayObject *out = PyErr_Occurred() ? NULL : (PyArrayObject *)new_array(1, &count, dtype->type_num);
    for (npy_intp i = 0; out != NULL && i < count; i++) {
        if (dtype == core.float32) {
            ((float *)PyArray_DATA(out))[i] = (float)each;
        }
        else {
            ((double *)PyArray_DATA(out))[i] = each;
        }
    }
    return (PyObject *)out;
}

/* ---- softmax, along the last dimension: the kernels of kernels/softmax.c */

typedef PyObject *(*RowKernel)(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

/* What a kernel gives for the rows of `like`, if they lie along `dim`. */
static PyObject *
along_rows(RowKernel kernel, PyObject *const *arguments, Py_ssize_t count, PyObject *like, PyObject *dim)
{
    if (!PyArray_CheckExact(like) || !PyLong_CheckExact(dim)) {
        return NULL;
    }
    long axis = PyLong_AsLong(dim);
    PyErr_Clear();
    if (axis != -1 && axis != PyArray_NDIM((PyArrayObject *)like) - 1) {
        return NULL;
    }
    PyObject *out = kernel(NULL, arguments, count);
    if (out == Py_None) { /* it leaves these to NumPy */
        Py_CLEAR(out);
    }
    return out;
}

/* normalized_exponentials(xp, input, dim, dtype) */
static PyObject *
normalized_exponentials(PyObject *const *arguments)
{
    return arguments[3] == Py_None ? along_rows(softmax_rows, arguments + 1, 1, arguments[1], arguments[2]) : NULL;
}

/* logs_of_softmax(xp, input, dim, dtype) */
static PyObject *
logs_of_softmax(PyObject *const *arguments)
{
    return arguments[3] == Py_None ? along_rows(log_softmax_rows, arguments + 1, 1, arguments[1], arguments[2]) : NULL;
}

/* softmax_gradient(xp, grad_output, output, dim) */
static PyObject *
softmax_gradient(PyObject *const *arguments)
{
    return along_rows(softmax_rows_gradient, arguments + 1, 2, arguments[2], arguments[3]);
}

/* log_softmax_gradient(xp, grad_output, output, dim) */
static PyObject *
log_softmax_gradient(PyObject *const *arguments)
{
    return along_rows(log_softmax_rows_gradient, arguments + 1, 2, arguments[2], arguments[3]);
}

/* ---- optimizers */

#define DESCEND(type)                                                                                                 \
    static void descend_##type(type *param, const type *grad, type rate, npy_intp n)                                  \
    {                                                                                                                 \
        for (npy_intp i = 0; i < n; i++) {                                                                            \
            param[i] -= grad[i] * rate;                                                                               \
        }                                                                                                             \
    }

DESCEND(float)
DESCEND(double)

/* descend(xp, param, grad, rate): param -= rate * grad, rate an array of one number */
static PyObject *
descend(PyObject *const *arguments)
{
    PyArrayObject *param = (PyArrayObject *)arguments[1], *grad = (PyArrayObject *)arguments[2];
    PyArrayObject *rate = plain_array(arguments[3], 0);
    if (rate == NULL || !are_alike(arguments[1], arguments[2]) || PyArray_DESCR(param) != PyArray_DESCR(rate) ||
        !PyArray_ISWRITEABLE(param)) {
        return NULL;
    }
    if (PyArray_DESCR(param) == core.float32) {
        descend_float(PyArray_DATA(param), PyArray_DATA(grad), *(float *)PyArray_DATA(rate), PyArray_SIZE(param));
    }
    else {
        descend_double(PyArray_DATA(param), PyArray_DATA(grad), *(double *)PyArray_DATA(rate), PyArray_SIZE(param));
    }
    return Py_NewRef(Py_None);
}

/* ---- the type */

static const struct {
    const char *name;
    Kernel kernel;
    Py_ssize_t count;
} kernels[] = {{"transpose_matrix", transpose_matrix, 2}, {"broadcast_to", broadcast_to, 2}, {"sum_to", sum_to, 2},
               {"multiply_matrices", multiply_matrices, 3}, {"threshold_gradient", threshold_gradient, 4},
               {"positive_part", positive_part, 2},
               {"cross_entropy_forward", cross_entropy_forward, 6},
               {"softmax_minus_target", softmax_minus_target, 5}, {"target_coefficients", target_coefficients, 7},
               {"descend", descend, 4}, {"sum_all_forward", sum_all_forward, 2}, {"join", join, 3}, {"pile", pile, 3},
               {"normalized_exponentials", normalized_exponentials, 4}, {"logs_of_softmax", logs_of_softmax, 4},
               {"softmax_gradient", softmax_gradient, 4}, {"log_softmax_gradient", log_softmax_gradient, 4},
                {"select_array", select_array, 4},
               {"slice_array", slice_array, 6}, {"swap", swap, 4}, {"permute_array", permute_array, 3},
               {"inverse", inverse, 1}, {"unsqueeze_array", unsqueeze_array, 3}, {"squeeze_all", squeeze_all, 2},
               {"squeeze_one", squeeze_one, 3}, {"expand_array", expand_array, 3}, {"view_array", view_array, 3},
               {"unbind_array", unbind_array, 3}, {"cut_evenly", cut_evenly, 4},
               {"select_gradient", select_gradient, 5}, {"slice_gradient", slice_gradient, 7},
               {"sum_dims_forward", sum_dims_forward, 4}, {"mean_forward", mean_forward, 4},
               {"var_forward", var_forward, 6}, {"max_along", max_along, 4}, {"min_along", min_along, 4},
               {"sort_forward", sort_forward, 4}, {"topk_forward", topk_forward, 6},
               {"scatter_selected", scatter_selected, 6}, {"restore", restore, 5},
               {"clamped_to_numbers", clamped_to_numbers, 4}, {"masked_fill_array", masked_fill_array, 4},
               {"clamp_to_numbers_rule", clamp_to_numbers_rule, 5}, {"logistic", logistic, 2},
               {"sigmoid_gradient", sigmoid_gradient, 3}, {"sigmoid_linear", sigmoid_linear, 2},
               {"silu_gradient", slope_of_silu_twin, 3}, {"log_one_plus_exp", log_one_plus_exp, 4},
               {"exponential_linear", exponential_linear, 5}, {"elu_gradient", elu_gradient, 6}};

static PyObject *
twin_call(PyObject *callable, PyObject *const *given, size_t flagged, PyObject *names)
{
    Twin *self = (Twin *)callable;
    if (names == NULL && PyVectorcall_NARGS(flagged) == self->count && !core.without_twins) {
        PyObject *result = self->kernel(given);
        if (result != NULL || PyErr_Occurred()) {
            return result;
        }
    }
    return PyObject_Vectorcall(self->function, given, flagged, names);
}

static PyObject *
twin_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *function, *name;
    if (!PyArg_ParseTuple(args, "O", &function)) {
        return NULL;
    }
    name = PyObject_GetAttrString(function, "__name__");
    const char *text = name == NULL ? NULL : PyUnicode_AsUTF8(name);
    Twin *self = NULL;
    size_t k = 0, known = sizeof(kernels) / sizeof(kernels[0]);
    while (text != NULL && k < known && strcmp(kernels[k].name, text) != 0) {
        k++;
    }
    if (text != NULL && k == known) {
        PyErr_Format(PyExc_ValueError, "the compiled core has no %s", text);
    }
    else if (text != NULL && (self = (Twin *)type->tp_alloc(type, 0)) != NULL) {
        self->vectorcall = twin_call;
        self->function = Py_NewRef(function);
        self->kernel = kernels[k].kernel;
        self->count = kernels[k].count;
    }
    Py_XDECREF(name);
    return (PyObject *)self;
}

static int
twin_traverse(Twin *self, visitproc visit, void *arg)
{
    Py_VISIT(self->function);
    return 0;
}

static int
twin_clear(Twin *self)
{
    Py_CLEAR(self->function);
    return 0;
}

static void
twin_dealloc(Twin *self)
{
    PyObject_GC_UnTrack(self);
    twin_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *
twin_getattr(Twin *self, PyObject *name)
{
    return attribute_of((PyObject *)self, self->function, name);
}

static PyMemberDef twin_members[] = {{"__wrapped__", T_OBJECT, offsetof(Twin, function), READONLY}, {NULL}};

PyTypeObject Twin_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Twin",
    .tp_basicsize = sizeof(Twin),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = twin_new,
    .tp_dealloc = (destructor)twin_dealloc,
    .tp_traverse = (traverseproc)twin_traverse,
    .tp_clear = (inquiry)twin_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Twin, vectorcall),
    .tp_descr_get = bind_method,
    .tp_getattro = (getattrofunc)twin_getattr,
    .tp_members = twin_members,
};
