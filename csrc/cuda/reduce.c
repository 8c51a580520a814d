/* Sums and their like over adjacent dimensions.
 *
 * What is reduced lies between `outer` dimensions before it and `inner` ones behind it. Without inner ones a block of
 * threads adds up a row, otherwise 32 columns (64 of half precision). If that makes few blocks, each adds up a piece, and
 * then the pieces, which are float32 for results in half precision: these are rounded once.
 */
#include "cuda/cuda.h"

enum { ROWS, COLUMNS };
#define MOST_OPS 8

PyObject *reduction_maker; /* (operation, code of the elements, code of the result, layout) -> address */

static Function made[MOST_OPS][CODE_UNKNOWN][CODE_UNKNOWN][2];

static Function
reduction_of(int op, int from, int to, int layout)
{
    if (op < 0 || op >= MOST_OPS || from >= CODE_UNKNOWN || to >= CODE_UNKNOWN) {
        PyErr_SetString(PyExc_NotImplementedError, "a reduction of arrays of this dtype on cuda");
        return NULL;
    }
    Function *place = &made[op][from][to][layout];
    if (*place == NULL) {
        PyObject *address = PyObject_CallFunction(reduction_maker, "iiii", op, from, to, layout);
        *place = address == NULL ? NULL : PyLong_AsVoidPtr(address);
        Py_XDECREF(address);
    }
    return *place;
}

typedef struct {
    int op, from, to; /* the operation, and the codes of elements and result */
    npy_intp outer, length, inner;
} Reduction;

/* The columns of one block; as in backend/cuda/reductions.py. */
static npy_intp
width_of(int code)
{
    return code == CODE_F16 || code == CODE_BF16 || code == CODE_I16 || code == CODE_U16 ? 64 : 32;
}

/* Elements that a block may go through, and how many blocks must share more, if formulas are computed on the way. */
#define FEW_ELEMENTS 8192
#define MANY_BLOCKS 64

/* One step: pieces of `piece` elements each. The second of two follows the first. */
static int
reduce_step(const Reduction *r, const Array *out, const Array *in, npy_intp piece, npy_intp pieces, double scale,
            int is_second)
{
    int layout = r->inner == 1 ? ROWS : COLUMNS;
    Function function = reduction_of(r->op, r->from, r->to, layout);
    struct {
        char *out;
        const char *in;
        long long outer, length, inner, piece, pieces;
        double scale;
    } arguments = {out->data, in->data, r->outer, r->length, r->inner, piece, pieces, scale};
    unsigned block = 256;
    npy_intp blocks = r->outer * pieces;
    if (function == NULL) {
        return -1;
    }
    if (layout == COLUMNS) {
        blocks *= (r->inner + width_of(r->from) - 1) / width_of(r->from);
        block = piece >= 128 ? 512 : 256;
    }
    else {
        for (block = 32; block < 1024 && block * 8 < piece;) {
            block *= 2;
        }
    }
    if (blocks > INT32_MAX) {
        PyErr_SetString(PyExc_NotImplementedError, "a reduction of an array with so many elements on cuda");
        return -1;
    }
    npy_intp elements = r->outer * r->length * r->inner;
    Reader reader = {function, {(unsigned)blocks, 1, 1}, block, &arguments, sizeof(arguments), keeps_busy(elements), in,
                     .writes = {out}};
    if (is_second) {
        return enqueue_behind(&reader);
    }
    if (blocks < MANY_BLOCKS && elements > blocks * FEW_ELEMENTS) {
        return launch(function, (unsigned)blocks, block, &arguments, sizeof(arguments), elements);
    }
    return enqueue_reader(&reader);
}

/* How many pieces the elements that make one of the result are added up in. */
static npy_intp
pieces_of(const Reduction *r)
{
    npy_intp width = width_of(r->from), blocks = r->outer * ((r->inner + width - 1) / width);
    npy_intp least = r->inner == 1 ? 32768 : 1024;
    if (blocks >= 256 || r->length <= least) {
        return 1;
    }
    npy_intp pieces = r->length / (least / 2);
    return pieces < 512 ? pieces : 512;
}

Array *
reduce(int op, Array *array, int first, int last, int keepdims, PyArray_Descr *dtype, double scale)
{
    npy_intp dims[MOST_DIMS];
    int nd = 0;
    Reduction r = {op, array->code, code_of(dtype), 1, 1, 1};
    for (int d = 0; d < array->nd; d++) {
        *(d < first ? &r.outer : d < last ? &r.length : &r.inner) *= array->dims[d];
        if (d < first || d >= last) {
            dims[nd++] = array->dims[d];
        }
        else if (keepdims) {
            dims[nd++] = 1;
        }
    }
    Array *rows = contiguous(array), *part = NULL;
    Array *out = rows == NULL ? NULL : array_new(dtype, nd, dims, NULL);
    int status = out == NULL ? -1 : 0;
    if (status == 0 && out->size) {
        npy_intp pieces = pieces_of(&r), piece = (r.length + pieces - 1) / pieces;
        pieces = piece ? (r.length + piece - 1) / piece : 1; /* none of them empty */
        if (pieces == 1) {
            status = reduce_step(&r, out, rows, r.length, 1, scale, 0);
        }
        else {
            npy_intp count = r.outer * pieces * r.inner;
            int is_half = r.to == CODE_F16 || r.to == CODE_BF16;
            PyArray_Descr *exact = is_half ? PyArray_DescrFromType(NPY_FLOAT) : (PyArray_Descr *)Py_NewRef(dtype);
            part = array_new(exact, 1, &count, NULL);
            Py_DECREF(exact);
            Reduction again = {op, is_half ? CODE_F32 : r.to, r.to, r.outer, pieces, r.inner};
            r.to = again.from;
            status = part == NULL || reduce_step(&r, part, rows, piece, pieces, 1, 0) < 0 ||
                             reduce_step(&again, out, part, pieces, 1, scale, 1) < 0
                         ? -1
                         : 0;
        }
    }
    Py_XDECREF(rows);
    Py_XDECREF(part);
    if (status < 0) {
        Py_CLEAR(out);
    }
    return out;
}

/* reduce(operation, array, first dimension, the one behind the last, keepdims, dtype, scale) */
PyObject *
module_reduce(PyObject *module, PyObject *args)
{
    int op, first, last, keepdims;
    double scale;
    PyObject *array, *dtype;
    if (!PyArg_ParseTuple(args, "iO!iipO!d", &op, &Array_Type, &array, &first, &last, &keepdims, &PyArrayDescr_Type,
                          &dtype, &scale)) {
        return NULL;
    }
    use_gpu_of((Array *)array);
    return (PyObject *)reduce(op, (Array *)array, first, last, keepdims, (PyArray_Descr *)dtype, scale);
}

/* sum_to(array, shape): the transpose of broadcasting */
PyObject *
module_sum_to(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    npy_intp dims[MOST_DIMS];
    int nd = count == 2 && IS_ARRAY(given[0]) ? read_sizes(given + 1, 1, dims) : -1;
    if (nd < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "sum_to(array, shape)");
        }
        return NULL;
    }
    Array *array = (Array *)Py_NewRef(given[0]);
    int lead = array->nd - nd;
    if (lead > 0) {
        Py_SETREF(array, reduce(SUM, array, 0, lead, 0, array->dtype, 1));
    }
    for (int d = nd - 1; array != NULL && d >= 0; d--) { /* adjacent ones at once */
        int from = d;
        while (from >= 0 && dims[from] == 1 && array->dims[from] != 1) {
            from--;
        }
        if (from < d) {
            Py_SETREF(array, reduce(SUM, array, from + 1, d + 1, 1, array->dtype, 1));
            d = from;
        }
    }
    return (PyObject *)array;
}
