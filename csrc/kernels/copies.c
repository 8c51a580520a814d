/* See copies.h. The target is walked through in the order of its memory. If the source has another dimension innermost,
 * squares of both dimensions are turned, a line of the cache wide: each line is read once and written once.
 */
#include "kernels/copies.h"

#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#define REAL float
#include "loops/vectors.h"
#include "loops/turn.h"
#undef REAL
#define REAL double
#include "loops/vectors.h"
#include "loops/turn.h"
#undef REAL

#define MANY 32768   /* elements that are worth it */
#define PIECE 8192   /* elements that are copied by one thread */
#define LINE 64      /* bytes */

/* ---- the description */

static npy_intp
distance(npy_intp stride)
{
    return stride < 0 ? -stride : stride;
}

static void
swap_dimensions(Copy *copy, int a, int b)
{
    npy_intp *lists[] = {copy->shape, copy->to_strides, copy->from_strides};
    for (int k = 0; k < 3; k++) {
        npy_intp kept = lists[k][a];
        lists[k][a] = lists[k][b];
        lists[k][b] = kept;
    }
}

/* Dimensions of one element are left out, the others are put in the order of the target, and joined where they can be. */
static void
simplify(Copy *copy)
{
    int ndim = 0;
    for (int d = 0; d < copy->ndim; d++) {
        if (copy->shape[d] != 1) {
            swap_dimensions(copy, ndim++, d);
        }
    }
    for (int d = 1; d < ndim; d++) {
        for (int k = d; k > 0 && distance(copy->to_strides[k - 1]) < distance(copy->to_strides[k]); k--) {
            swap_dimensions(copy, k - 1, k);
        }
    }
    int last = 0;
    for (int d = 1; d < ndim; d++) {
        npy_intp n = copy->shape[d];
        if (copy->to_strides[last] == n * copy->to_strides[d] && copy->from_strides[last] == n * copy->from_strides[d]) {
            copy->shape[last] *= n;
        }
        else {
            copy->shape[++last] = n;
        }
        copy->to_strides[last] = copy->to_strides[d];
        copy->from_strides[last] = copy->from_strides[d];
    }
    copy->ndim = ndim == 0 ? 0 : last + 1;
}

/* ---- runs of elements */

#define RUN(TYPE)                                                                      \
    for (npy_intp k = 0; k < count; k++) {                                             \
        *(TYPE *)(to + k * to_step) = *(const TYPE *)(from + k * from_step);           \
    }                                                                                  \
    break

/* the same backwards, element by element of a row that is flipped: a step that is known makes vectors possible */
#define BACKWARDS(TYPE)                                                                \
    CLONES static void backwards_##TYPE(TYPE *restrict to, const TYPE *restrict from, npy_intp count) \
    {                                                                                  \
        for (npy_intp k = 0; k < count; k++) {                                         \
            to[k] = from[-k];                                                          \
        }                                                                              \
    }

BACKWARDS(npy_uint8)
BACKWARDS(npy_uint32)
BACKWARDS(npy_uint64)

static int
copied_backwards(char *to, const char *from, npy_intp count, npy_intp size)
{
    switch (size) {
    case 1: backwards_npy_uint8((npy_uint8 *)to, (const npy_uint8 *)from, count); return 1;
    case 4: backwards_npy_uint32((npy_uint32 *)to, (const npy_uint32 *)from, count); return 1;
    case 8: backwards_npy_uint64((npy_uint64 *)to, (const npy_uint64 *)from, count); return 1;
    }
    return 0;
}

static void
copy_run(char *to, npy_intp to_step, const char *from, npy_intp from_step, npy_intp count, npy_intp size)
{
    if (to_step == size && from_step == size) {
        memcpy(to, from, count * size);
        return;
    }
    if (to_step == size && from_step == -size && copied_backwards(to, from, count, size)) {
        return;
    }
    switch (size) {
    case 1: RUN(npy_uint8);
    case 2: RUN(npy_uint16);
    case 4: RUN(npy_uint32);
    case 8: RUN(npy_uint64);
    default:
        for (npy_intp k = 0; k < count; k++) {
            memcpy(to + k * to_step, from + k * from_step, size);
        }
    }
}

/* elements from the one with the number first * PIECE on */
static void
copy_pieces(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Copy *copy = context;
    npy_intp index[NPY_MAXDIMS], number = first * PIECE, total = 1, left;
    char *to = copy->to;
    const char *from = copy->from;
    int inner = copy->ndim - 1;
    for (int d = inner; d >= 0; d--) {
        index[d] = number % copy->shape[d];
        number /= copy->shape[d];
        total *= copy->shape[d];
        to += index[d] * copy->to_strides[d];
        from += index[d] * copy->from_strides[d];
    }
    left = (last * PIECE < total ? last * PIECE : total) - first * PIECE;
    while (left > 0) {
        npy_intp run = copy->shape[inner] - index[inner];
        run = run < left ? run : left;
        copy_run(to, copy->to_strides[inner], from, copy->from_strides[inner], run, copy->size);
        to += run * copy->to_strides[inner];
        from += run * copy->from_strides[inner];
        left -= run;
        index[inner] += run;
        for (int d = inner; d > 0 && index[d] == copy->shape[d]; d--) {
            to += copy->to_strides[d - 1] - index[d] * copy->to_strides[d];
            from += copy->from_strides[d - 1] - index[d] * copy->from_strides[d];
            index[d] = 0;
            index[d - 1]++;
        }
    }
}

/* ---- squares; the last two dimensions: along the first of them the source follows, along the second the target */

#define SQUARE(REAL, BYTES)                                                                                    \
    CLONES static void turn_strip_##REAL(char *to, npy_intp to_step, const char *from, npy_intp from_step,     \
                                         npy_intp count)                                                       \
    {                                                                                                          \
        const npy_intp side = LINE / (BYTES), width = 32 / (BYTES), step = from_step / (BYTES);                \
        for (npy_intp start = 0; start + side <= count; start += side) {                                       \
            for (npy_intp k = 0; k < side; k += width) {                                                       \
                for (npy_intp j = 0; j < side; j += width) {                                                   \
                    turn_##REAL((const REAL *)from + (start + k) * step + j, step,                             \
                                (REAL *)(to + j * to_step) + start + k, to_step / (BYTES));                    \
                }                                                                                              \
            }                                                                                                  \
        }                                                                                                      \
    }

SQUARE(float, 4)
SQUARE(double, 8)

/* `rows` rows of the target, at most LINE bytes of each row of the source */
static void
copy_strip(const Copy *copy, char *to, const char *from, npy_intp rows)
{
    int inner = copy->ndim - 1;
    npy_intp size = copy->size, side = LINE / size, done = 0, count = copy->shape[inner];
    npy_intp to_step = copy->to_strides[inner - 1], from_step = copy->from_strides[inner];
    int is_even = to_step % size == 0 && from_step % size == 0;
    if (rows == side && is_even && (size == 4 || size == 8)) {
        (size == 4 ? turn_strip_float : turn_strip_double)(to, to_step, from, from_step, count);
        done = count / side * side;
    }
    for (npy_intp start = done; start < count; start += side) {
        npy_intp some = count - start < side ? count - start : side;
        for (npy_intp row = 0; row < rows; row++) {
            copy_run(to + row * to_step + start * size, size, from + row * size + start * from_step, from_step, some,
                     size);
        }
    }
}

static void
copy_strips(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Copy *copy = context;
    int outer = copy->ndim - 2;
    npy_intp side = LINE / copy->size, rows = copy->shape[outer], strips = (rows + side - 1) / side;
    for (Py_ssize_t strip = first; strip < last; strip++) {
        npy_intp row = strip % strips * side, number = strip / strips;
        char *to = copy->to + row * copy->to_strides[outer];
        const char *from = copy->from + row * copy->from_strides[outer];
        for (int d = outer - 1; d >= 0; d--) {
            to += number % copy->shape[d] * copy->to_strides[d];
            from += number % copy->shape[d] * copy->from_strides[d];
            number /= copy->shape[d];
        }
        copy_strip(copy, to, from, rows - row < side ? rows - row : side);
    }
}

/* Bring the dimension along which the source follows next to the innermost; whether there is one that is worth it. */
static int
find_square(Copy *copy)
{
    int inner = copy->ndim - 1;
    npy_intp side = copy->size > 0 && copy->size <= 16 ? LINE / copy->size : 0;
    if (inner < 1 || side < 4 || copy->to_strides[inner] != copy->size || copy->shape[inner] < side) {
        return 0;
    }
    for (int d = 0; d < inner; d++) {
        if (copy->from_strides[d] == copy->size && copy->shape[d] >= 4) {
            for (int k = d; k < inner - 1; k++) {
                swap_dimensions(copy, k, k + 1);
            }
            return 1;
        }
    }
    return 0;
}

void
copy_elements(Copy *copy)
{
    simplify(copy);
    npy_intp total = 1;
    for (int d = 0; d < copy->ndim; d++) {
        total *= copy->shape[d];
    }
    if (total == 0) {
        return;
    }
    if (copy->ndim == 0) {
        memcpy(copy->to, copy->from, copy->size);
        return;
    }
    double nanoseconds = 0.05 * copy->size * total;
    if (find_square(copy)) {
        npy_intp side = LINE / copy->size, rows = copy->shape[copy->ndim - 2];
        npy_intp outer = total / rows / copy->shape[copy->ndim - 1];
        divide(copy_strips, copy, outer * ((rows + side - 1) / side), 4 * nanoseconds);
    }
    else {
        divide(copy_pieces, copy, (total + PIECE - 1) / PIECE, nanoseconds);
    }
}

/* ---- arrays */

static int
is_simple(PyArrayObject *array)
{
    return !PyDataType_REFCHK(PyArray_DESCR(array)) && PyArray_ISALIGNED(array) && PyArray_SIZE(array) >= MANY;
}

static void
describe(Copy *copy, PyArrayObject *to, PyArrayObject *from)
{
    copy->ndim = PyArray_NDIM(to);
    copy->size = PyArray_ITEMSIZE(to);
    copy->to = PyArray_BYTES(to);
    copy->from = PyArray_BYTES(from);
    for (int d = 0; d < copy->ndim; d++) {
        copy->shape[d] = PyArray_DIM(to, d);
        copy->to_strides[d] = PyArray_STRIDE(to, d);
        copy->from_strides[d] = PyArray_STRIDE(from, d);
    }
}

/* The first byte of an array, and the one behind its last. */
static void
find_ends(PyArrayObject *array, const char **low, const char **high)
{
    *low = PyArray_BYTES(array);
    *high = *low + PyArray_ITEMSIZE(array);
    for (int d = 0; d < PyArray_NDIM(array); d++) {
        npy_intp reach = (PyArray_DIM(array, d) - 1) * PyArray_STRIDE(array, d);
        *(reach < 0 ? low : high) += reach;
    }
}

static int
lie_apart(PyArrayObject *a, PyArrayObject *b)
{
    const char *low_a, *high_a, *low_b, *high_b;
    find_ends(a, &low_a, &high_a);
    find_ends(b, &low_b, &high_b);
    return high_a <= low_b || high_b <= low_a;
}

int
copy_into(PyArrayObject *to, PyArrayObject *from)
{
    if (PyArray_DESCR(to) != PyArray_DESCR(from) || !PyArray_SAMESHAPE(to, from) || !PyArray_ISWRITEABLE(to) ||
        !is_simple(to) || !is_simple(from) || !lie_apart(to, from)) {
        return PyArray_CopyInto(to, from);
    }
    Copy copy;
    describe(&copy, to, from);
    WORK(PyArray_SIZE(to), copy_elements(&copy));
    return 0;
}

/* copied(array, order): a new array with the same elements, in the order "C", or in "K", that of the array; None if it is
 * small */
PyObject *
copied(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    PyArrayObject *array = (PyArrayObject *)arguments[0];
    if (count != 2 || !PyArray_CheckExact(arguments[0]) || !is_simple(array) || !PyUnicode_Check(arguments[1])) {
        Py_RETURN_NONE;
    }
    npy_intp strides[NPY_MAXDIMS];
    int keeps = PyUnicode_CompareWithASCIIString(arguments[1], "K") == 0;
    if (keeps && !PyArray_IS_C_CONTIGUOUS(array)) { /* NumPy knows how such an array would lie: nothing is written to it */
        PyObject *like = PyArray_NewLikeArray(array, NPY_KEEPORDER, NULL, 0);
        if (like == NULL) {
            return NULL;
        }
        memcpy(strides, PyArray_STRIDES((PyArrayObject *)like), PyArray_NDIM(array) * sizeof(npy_intp));
        Py_DECREF(like);
    }
    else if (!keeps && PyUnicode_CompareWithASCIIString(arguments[1], "C") != 0) {
        Py_RETURN_NONE;
    }
    else {
        keeps = 0;
    }
    PyArray_Descr *descr = PyArray_DESCR(array);
    Py_INCREF(descr);
    PyObject *out = new_large(PyArray_NDIM(array), PyArray_DIMS(array), keeps ? strides : NULL, descr);
    if (out != NULL && copy_into((PyArrayObject *)out, array) < 0) {
        Py_CLEAR(out);
    }
    return out;
}
