/* Arrays of one number: what lies in one piece is written as plain memory, by threads if there is much of it. */
#include "kernels/fills.h"

#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/memory.h"
#include "loops/threads.h"
#include "quiet.h"

#define PIECE (1 << 16) /* bytes */
#define NANOSECONDS 0.01 /* for a byte */
#define MOST_BYTES 16   /* of an element */

typedef struct {
    char *to;
    npy_intp bytes, size;       /* in all; of an element */
    char some[4 * MOST_BYTES];  /* the element again and again */
} Fill;

CLONES static void
repeat(char *to, npy_intp bytes, const Fill *fill)
{
    char some[sizeof(fill->some)];
    memcpy(some, fill->some, sizeof(some));
    for (; bytes >= (npy_intp)sizeof(some); to += sizeof(some), bytes -= sizeof(some)) {
        memcpy(to, some, sizeof(some));
    }
    memcpy(to, some, bytes);
}

static void
fill_pieces(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Fill *fill = context;
    npy_intp start = first * PIECE, end = last * PIECE < fill->bytes ? last * PIECE : fill->bytes;
    if (fill->size == 1) {
        memset(fill->to + start, fill->some[0], end - start);
        return;
    }
    repeat(fill->to + start, end - start, fill);
}

static void
run_fill(Fill *fill)
{
    WORK(fill->bytes, divide(fill_pieces, fill, (fill->bytes + PIECE - 1) / PIECE, NANOSECONDS * fill->bytes));
}

/* The usual case of PyArray_Pack. */
static int
store_double(PyArray_Descr *descr, char *to, PyObject *number)
{
    if (!PyFloat_CheckExact(number) || (descr->type_num != NPY_FLOAT && descr->type_num != NPY_DOUBLE)) {
        return 0;
    }
    double value = PyFloat_AS_DOUBLE(number);
    float single = (float)value;
    memcpy(to, descr->type_num == NPY_FLOAT ? (void *)&single : (void *)&value, PyDataType_ELSIZE(descr));
    return 1;
}

int
fill_array(PyArrayObject *array, PyObject *number)
{
    PyArray_Descr *descr = PyArray_DESCR(array);
    Fill fill = {PyArray_BYTES(array), PyArray_NBYTES(array), PyArray_ITEMSIZE(array), {0}};
    int is_plain = PyArray_ISONESEGMENT(array) && PyArray_ISBEHAVED(array) && PyTypeNum_ISNUMBER(descr->type_num) &&
                   fill.size <= MOST_BYTES && sizeof(fill.some) % fill.size == 0;
    if (!is_plain || !store_double(descr, fill.some, number)) {
        PyObject *context = enter_quiet();
        int status = is_plain ? PyArray_Pack(descr, fill.some, number) : PyArray_FillWithScalar(array, number);
        leave_quiet(context);
        if (status < 0 || !is_plain) {
            return status;
        }
    }
    for (size_t done = fill.size; done < sizeof(fill.some); done += fill.size) {
        memcpy(fill.some + done, fill.some, fill.size);
    }
    run_fill(&fill);
    return 0;
}

void
zero_array(PyArrayObject *array)
{
    Fill fill = {PyArray_BYTES(array), PyArray_NBYTES(array), 1, {0}};
    run_fill(&fill);
}

/* fill(array, number) */
PyObject *
fill(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2 || !PyArray_Check(arguments[0]) || !PyArray_ISWRITEABLE((PyArrayObject *)arguments[0])) {
        PyErr_SetString(PyExc_ValueError, "fill takes an array that can be written to, and a number");
        return NULL;
    }
    return fill_array((PyArrayObject *)arguments[0], arguments[1]) < 0 ? NULL : Py_NewRef(Py_None);
}

/* empty(shape, dtype): an array whose memory may be that of one that was freed (loops/memory.c);
 * filled(shape, dtype, number): the same, with that number everywhere */
PyObject *
new_filled(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    PyArray_Dims dims = {NULL, 0};
    PyArray_Descr *descr = NULL;
    if (count < 2 || count > 3 || !PyArray_IntpConverter(arguments[0], &dims) ||
        !PyArray_DescrConverter(arguments[1], &descr)) {
        PyDimMem_FREE(dims.ptr);
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *out = new_large(dims.len, dims.ptr, NULL, descr);
    PyDimMem_FREE(dims.ptr);
    if (out != NULL && count == 3 && fill_array((PyArrayObject *)out, arguments[2]) < 0) {
        Py_CLEAR(out);
    }
    return out;
}
