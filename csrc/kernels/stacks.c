/* Generalised ufuncs of NumPy (matmul, the Fourier transforms) over stacks: their own loops, divided among threads. */
#define PY_UFUNC_UNIQUE_SYMBOL UNDERTOW_STACKS_UFUNC_API
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#include <numpy/ufuncobject.h>

#define MOST_OPERANDS 4
#define MOST_SIZES 8  /* of one item: the named ones of a signature, and those of all operands */
#define MOST_PIECES 32 /* also the threads at most: a BLAS has only so many buffers for its callers */
#define SCRATCH 8     /* how many times its results a loop may ask for memory */

typedef struct {
    PyUFuncGenericFunction loop;
    void *data;
    int operands, ndim; /* ndim: dimensions of the stack, at least one */
    npy_intp count, pieces;
    npy_intp shape[NPY_MAXDIMS];
    npy_intp strides[MOST_OPERANDS][NPY_MAXDIMS];
    char *start[MOST_OPERANDS];
    npy_intp sizes[MOST_SIZES]; /* of an item, by the names of the signature */
    npy_intp steps[MOST_SIZES]; /* from one element of an item to the next, for all dimensions of all operands */
    int names, dims;
} Stacks;

/* ---- the work */

/* Run the loop over items that follow each other along the last dimension of the stack; returns how many. */
static npy_intp
run_along(const Stacks *stacks, npy_intp first, npy_intp last)
{
    char *args[MOST_OPERANDS];
    npy_intp sizes[1 + MOST_SIZES], steps[MOST_OPERANDS + MOST_SIZES];
    npy_intp line = stacks->shape[stacks->ndim - 1], place = first % line, rest = first / line;
    npy_intp run = last - first < line - place ? last - first : line - place;
    for (int k = 0; k < stacks->operands; k++) {
        steps[k] = stacks->strides[k][stacks->ndim - 1];
        args[k] = stacks->start[k] + place * steps[k];
    }
    for (int d = stacks->ndim - 2; d >= 0; d--) {
        for (int k = 0; k < stacks->operands; k++) {
            args[k] += rest % stacks->shape[d] * stacks->strides[k][d];
        }
        rest /= stacks->shape[d];
    }
    sizes[0] = run;
    memcpy(sizes + 1, stacks->sizes, stacks->names * sizeof(npy_intp));
    memcpy(steps + stacks->operands, stacks->steps, stacks->dims * sizeof(npy_intp));
    stacks->loop(args, sizes, steps, stacks->data);
    return run;
}

static void
run_pieces(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Stacks *stacks = context;
    npy_intp item = stacks->count * first / stacks->pieces, end = stacks->count * last / stacks->pieces;
    while (item < end) {
        item += run_along(stacks, item, end);
    }
}

/* ---- reading the arguments */

/* The sizes and steps of an item of one operand; 0 if they are not those of the signature. */
static int
read_item(Stacks *stacks, const PyUFuncObject *ufunc, int operand, PyArrayObject *array)
{
    int dims = ufunc->core_num_dims[operand], lead = PyArray_NDIM(array) - dims;
    const int *names = ufunc->core_dim_ixs + ufunc->core_offsets[operand];
    if (lead < 0 || stacks->dims + dims > MOST_SIZES) {
        return 0;
    }
    for (int d = 0; d < dims; d++) {
        npy_intp size = PyArray_DIM(array, lead + d), *known = &stacks->sizes[names[d]];
        if (*known >= 0 && *known != size) {
            return 0;
        }
        *known = size;
        stacks->steps[stacks->dims++] = PyArray_STRIDE(array, lead + d);
    }
    return 1;
}

/* Where the items of an operand are, which is broadcast to the stack of the result; 0 if it cannot be. */
static int
read_lead(Stacks *stacks, int operand, PyArrayObject *array, int lead)
{
    int missing = stacks->ndim - lead;
    stacks->start[operand] = PyArray_DATA(array);
    for (int d = 0; d < stacks->ndim; d++) {
        npy_intp size = d < missing ? 1 : PyArray_DIM(array, d - missing);
        if (size != 1 && size != stacks->shape[d]) {
            return 0;
        }
        stacks->strides[operand][d] = size == 1 ? 0 : PyArray_STRIDE(array, d - missing);
    }
    return missing >= 0;
}

static int
fits_loop(const PyUFuncObject *ufunc, long number, PyObject *const *operands, Py_ssize_t count)
{
    if (!ufunc->core_enabled || number < 0 || number >= ufunc->ntypes || ufunc->nargs != count || ufunc->nout != 1 ||
        count > MOST_OPERANDS || ufunc->core_num_dim_ix > MOST_SIZES) {
        return 0;
    }
    const char *types = ufunc->types + number * ufunc->nargs;
    for (Py_ssize_t k = 0; k < count; k++) {
        PyArrayObject *array = (PyArrayObject *)operands[k];
        if (!PyArray_CheckExact(array) || PyArray_TYPE(array) != types[k] || PyArray_TYPE(array) == NPY_OBJECT ||
            !PyArray_ISALIGNED(array) || !PyArray_ISNOTSWAPPED(array)) {
            return 0;
        }
    }
    return PyArray_ISWRITEABLE((PyArrayObject *)operands[count - 1]);
}

static int
read_stacks(Stacks *stacks, const PyUFuncObject *ufunc, PyObject *const *operands)
{
    PyArrayObject *out = (PyArrayObject *)operands[ufunc->nargs - 1];
    int lead = PyArray_NDIM(out) - ufunc->core_num_dims[ufunc->nargs - 1];
    if (lead < 0) {
        return 0;
    }
    stacks->operands = ufunc->nargs;
    stacks->names = ufunc->core_num_dim_ix;
    stacks->dims = 0;
    stacks->ndim = lead == 0 ? 1 : lead;
    stacks->shape[0] = 1;
    stacks->count = 1;
    for (int d = 0; d < lead; d++) {
        stacks->shape[d] = PyArray_DIM(out, d);
        stacks->count *= PyArray_DIM(out, d);
    }
    for (int k = 0; k < stacks->names; k++) {
        stacks->sizes[k] = -1;
    }
    for (int k = 0; k < stacks->operands; k++) {
        PyArrayObject *array = (PyArrayObject *)operands[k];
        if (!read_item(stacks, ufunc, k, array) ||
            !read_lead(stacks, k, array, PyArray_NDIM(array) - ufunc->core_num_dims[k])) {
            return 0;
        }
    }
    return stacks->count > 0;
}

/* over_stacks(ufunc, number of its loop, (*inputs, out), nanoseconds that an item takes) -> True; the results are in
 * `out`, which is no part of an input. Items are the last dimensions of the operands, as the ufunc's signature says. */
PyObject *
over_stacks(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (PyUFunc_API == NULL && _import_umath() < 0) {
        return NULL;
    }
    if (count != 4 || !PyObject_TypeCheck(arguments[0], &PyUFunc_Type) || !PyTuple_Check(arguments[2])) {
        Py_RETURN_NONE;
    }
    const PyUFuncObject *ufunc = (const PyUFuncObject *)arguments[0];
    long number = PyLong_AsLong(arguments[1]);
    double nanoseconds = PyFloat_AsDouble(arguments[3]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Stacks stacks;
    PyObject *const *operands = &PyTuple_GET_ITEM(arguments[2], 0);
    if (!fits_loop(ufunc, number, operands, PyTuple_GET_SIZE(arguments[2])) || !read_stacks(&stacks, ufunc, operands)) {
        Py_RETURN_NONE;
    }
    stacks.loop = ufunc->functions[number];
    stacks.data = ufunc->data == NULL ? NULL : ufunc->data[number];
    stacks.pieces = stacks.count < MOST_PIECES ? stacks.count : MOST_PIECES;
    /* A loop without memory says so to Python, and nobody would hear it from another thread: so there is to be some. */
    PyArrayObject *out = (PyArrayObject *)operands[stacks.operands - 1];
    void *scratch = malloc(PyArray_NBYTES(out) / stacks.count * SCRATCH * stacks.pieces);
    if (scratch == NULL) {
        Py_RETURN_NONE;
    }
    free(scratch);
    WORK(PyArray_SIZE(out), divide(run_pieces, &stacks, stacks.pieces, nanoseconds * stacks.count));
    Py_RETURN_TRUE;
}

/* ---- a bias, added to the rows of a product */

typedef struct {
    void *rows;
    const void *bias;
    Py_ssize_t width;
} Biased;

#define ADD_BIAS(REAL)                                                                              \
    CLONES static void add_bias_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)            \
    {                                                                                               \
        const Biased *given = context;                                                              \
        const Py_ssize_t width = given->width;                                                      \
        const REAL *restrict bias = given->bias;                                                    \
        for (Py_ssize_t row = first; row < last; row++) {                                           \
            REAL *restrict to = (REAL *)given->rows + row * width;                                  \
            for (Py_ssize_t k = 0; k < width; k++) {                                                \
                to[k] += bias[k];                                                                   \
            }                                                                                       \
        }                                                                                           \
    }

ADD_BIAS(float)
ADD_BIAS(double)

/* add_bias(rows, bias) -> True; rows += bias, where the rows (the last dimension) are many */
PyObject *
add_bias(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2 || !is_plain(arguments[0]) || !is_plain(arguments[1])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *rows = (PyArrayObject *)arguments[0], *bias = (PyArrayObject *)arguments[1];
    int ndim = PyArray_NDIM(rows);
    if (!PyArray_ISWRITEABLE(rows) || PyArray_TYPE(rows) != PyArray_TYPE(bias) || ndim == 0 || PyArray_NDIM(bias) != 1 ||
        PyArray_DIM(rows, ndim - 1) != PyArray_DIM(bias, 0) || PyArray_SIZE(rows) <= WITHOUT_LOCK ||
        PyArray_DATA(rows) == PyArray_DATA(bias)) {
        Py_RETURN_NONE;
    }
    Biased given = {PyArray_DATA(rows), PyArray_DATA(bias), PyArray_DIM(bias, 0)};
    int is_float = PyArray_TYPE(rows) == NPY_FLOAT;
    WORK(PyArray_SIZE(rows), divide(is_float ? add_bias_float : add_bias_double, &given, PyArray_SIZE(rows) / given.width,
                                    (is_float ? 0.15 : 0.3) * PyArray_SIZE(rows)));
    Py_RETURN_TRUE;
}
