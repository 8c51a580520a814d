/* See blocks.h. */
#include "formula/blocks.h"
#include "loops/memory.h"

#include <string.h>

/* The shape that all arrays are broadcast to; whether there is one. */
static int
common_shape(PyArrayObject *const *arrays, int count, int *ndim, npy_intp *shape)
{
    *ndim = 0;
    for (int k = 0; k < count; k++) {
        *ndim = PyArray_NDIM(arrays[k]) > *ndim ? PyArray_NDIM(arrays[k]) : *ndim;
    }
    for (int d = 0; d < *ndim; d++) {
        shape[d] = 1;
    }
    for (int k = 0; k < count; k++) {
        int lead = *ndim - PyArray_NDIM(arrays[k]);
        for (int d = lead; d < *ndim; d++) {
            npy_intp size = PyArray_DIM(arrays[k], d - lead);
            if (size != 1 && shape[d] != 1 && shape[d] != size) {
                return 0;
            }
            shape[d] = size == 1 ? shape[d] : size;
        }
    }
    return 1;
}

/* Whether dimension `outer`, which now comes before `inner`, should come after it: if an operand has smaller steps
 * there, and none has it the other way round. */
static int
is_swapped(const Walk *walk, int outer, int inner)
{
    int swapped = 0;
    for (int k = 0; k < walk->count; k++) {
        npy_intp first = walk->operands[k].strides[outer], second = walk->operands[k].strides[inner];
        first = first < 0 ? -first : first;
        second = second < 0 ? -second : second;
        if (first != 0 && second != 0) {
            if (first >= second) {
                return 0;
            }
            swapped = 1;
        }
    }
    return swapped;
}

/* Where no operand says anything of two dimensions, those further out decide (as in NumPy's iterators). */
static int
has_say(const Walk *walk, int outer, int inner)
{
    for (int k = 0; k < walk->count; k++) {
        if (walk->operands[k].strides[outer] != 0 && walk->operands[k].strides[inner] != 0) {
            return 1;
        }
    }
    return 0;
}

/* order[d]: the dimension that is the d-th from outside. */
static void
find_order(const Walk *walk, int *order)
{
    for (int d = 0; d < walk->ndim; d++) {
        order[d] = d;
    }
    for (int d = walk->ndim - 2; d >= 0; d--) { /* put the d-th among those inside of it, which are in order */
        int place = d, moving = order[d];
        for (int next = d + 1; next < walk->ndim; next++) {
            if (!has_say(walk, moving, order[next])) {
                continue;
            }
            if (!is_swapped(walk, moving, order[next])) {
                break;
            }
            place = next;
        }
        memmove(order + d, order + d + 1, (place - d) * sizeof(int));
        order[place] = moving;
    }
}

/* A new array or, if its elements lie in the order of the result, `into`: NULL without an exception if they do not. */
static PyObject *
result_for(const Walk *walk, const int *order, const npy_intp *shape, int type, PyArrayObject *into)
{
    PyArray_Descr *descr = PyArray_DescrFromType(type);
    npy_intp strides[NPY_MAXDIMS], step = descr == NULL ? 0 : PyDataType_ELSIZE(descr);
    int fits = into != NULL && PyArray_NDIM(into) == walk->ndim;
    for (int d = walk->ndim - 1; d >= 0; d--) {
        int place = order[d];
        strides[place] = step;
        step *= shape[place];
        fits = fits && PyArray_DIM(into, place) == shape[place] &&
               (PyArray_STRIDE(into, place) == strides[place] || shape[place] == 1);
    }
    if (descr == NULL || into == NULL) {
        return descr == NULL ? NULL : new_large(walk->ndim, shape, strides, descr);
    }
    Py_DECREF(descr);
    return fits && PyArray_TYPE(into) == type ? Py_NewRef(into) : NULL;
}

/* Join dimensions that all operands pass through without a jump. */
static void
join_dimensions(Walk *walk)
{
    int last = 0;
    for (int d = 1; d < walk->ndim; d++) {
        int joins = 1;
        for (int k = 0; k < walk->count; k++) {
            const npy_intp *strides = walk->operands[k].strides;
            joins &= strides[last] == strides[d] * walk->shape[d];
        }
        last += !joins;
        walk->shape[last] = joins ? walk->shape[last] * walk->shape[d] : walk->shape[d];
        for (int k = 0; k < walk->count; k++) {
            walk->operands[k].strides[last] = walk->operands[k].strides[d];
        }
    }
    walk->ndim = walk->ndim == 0 ? 0 : last + 1;
}

/* Join those that this operand alone passes through without a jump, or does not move along. */
static void
join_own_dimensions(const Walk *walk, Operand *operand)
{
    int last = -1;
    for (int d = 0; d < walk->ndim; d++) {
        npy_intp size = walk->shape[d], step = operand->strides[d];
        int joins = last >= 0 && operand->steps[last] == step * size;
        last += !joins;
        operand->shape[last] = joins ? operand->shape[last] * size : size;
        operand->steps[last] = step;
    }
    operand->ndim = last + 1;
}

static void
find_kind(const Walk *walk, Operand *operand, npy_intp size)
{
    int in_order = 1, one = 1;
    for (int d = walk->ndim - 1; d >= 0; d--) {
        in_order &= operand->strides[d] == size;
        one &= operand->strides[d] == 0;
        size *= walk->shape[d];
    }
    operand->kind = one ? ONE_NUMBER : in_order ? IN_ORDER : SCATTERED;
}

PyObject *
begin_walk(Walk *walk, PyArrayObject *const *arrays, int count, int type, int adds_up, PyArrayObject *into)
{
    npy_intp shape[NPY_MAXDIMS];
    int order[NPY_MAXDIMS], kept = 0;
    walk->count = count;
    walk->size = 1;
    if (!common_shape(arrays, count, &walk->ndim, shape)) {
        return NULL;
    }
    for (int d = 0; d < walk->ndim; d++) {
        walk->size *= shape[d];
    }
    for (int k = 0; k < count; k++) {
        int lead = walk->ndim - PyArray_NDIM(arrays[k]);
        walk->operands[k].data = PyArray_BYTES(arrays[k]);
        for (int d = 0; d < walk->ndim; d++) {
            int is_there = d >= lead && PyArray_DIM(arrays[k], d - lead) != 1;
            walk->operands[k].strides[d] = is_there ? PyArray_STRIDE(arrays[k], d - lead) : 0;
        }
    }
    if (walk->size == 0) {
        return NULL;
    }
    find_order(walk, order);
    PyObject *result = adds_up ? PyArray_SimpleNew(0, NULL, type) : result_for(walk, order, shape, type, into);
    npy_intp strides[NPY_MAXDIMS];
    for (int d = 0; d < walk->ndim; d++) { /* dimensions of one element are left out */
        if (shape[order[d]] != 1) {
            walk->shape[kept++] = shape[order[d]];
        }
    }
    for (int k = 0; k < count; k++) {
        int place = 0;
        for (int d = 0; d < walk->ndim; d++) {
            if (shape[order[d]] != 1) {
                strides[place++] = walk->operands[k].strides[order[d]];
            }
        }
        memcpy(walk->operands[k].strides, strides, place * sizeof(npy_intp));
    }
    walk->ndim = kept;
    join_dimensions(walk);
    for (int k = 0; k < count; k++) {
        find_kind(walk, &walk->operands[k], PyArray_ITEMSIZE(arrays[k]));
        if (walk->operands[k].kind == SCATTERED) {
            join_own_dimensions(walk, &walk->operands[k]);
        }
    }
    return result;
}

#define COPY(TYPE)                                                             \
    if (stride == 0) {                                                         \
        TYPE value = *(const TYPE *)from;                                      \
        for (npy_intp k = 0; k < count; k++) {                                 \
            ((TYPE *)to)[k] = value;                                           \
        }                                                                      \
        break;                                                                 \
    }                                                                          \
    for (npy_intp k = 0; k < count; k++) {                                     \
        ((TYPE *)to)[k] = *(const TYPE *)(from + k * stride);                  \
    }                                                                          \
    break

static void
copy_run(char *to, const char *from, npy_intp stride, npy_intp count, int size)
{
    if (stride == size) {
        memcpy(to, from, count * size);
        return;
    }
    switch (size) {
    case 1: COPY(npy_uint8);
    case 2: COPY(npy_uint16);
    case 4: COPY(npy_uint32);
    case 8: COPY(npy_uint64);
    default:
        for (npy_intp k = 0; k < count; k++) {
            memcpy(to + k * size, from + k * stride, size);
        }
    }
}

const char *
find_element(const Walk *walk, const Operand *operand, npy_intp number)
{
    const char *found = operand->data;
    for (int d = walk->ndim - 1; d >= 0; d--) {
        found += number % walk->shape[d] * operand->strides[d];
        number /= walk->shape[d];
    }
    return found;
}

/* After how many elements an operand comes back to its first one, for good; all if it never does. */
static npy_intp
period_of(const Walk *walk, const Operand *operand)
{
    return operand->steps[0] == 0 ? walk->size / operand->shape[0] : walk->size;
}

#define AT_LEAST 16 /* elements that are written at a time: what is too much is written over by the next */

#define REPEAT(TYPE)                                                           \
    for (; rows * times >= AT_LEAST + times; rows--, from += stride) {         \
        TYPE value = *(const TYPE *)from;                                      \
        for (npy_intp k = 0; k < AT_LEAST; k++) {                              \
            ((TYPE *)to)[k] = value;                                           \
        }                                                                      \
        to += times * size;                                                    \
    }                                                                          \
    break

/* Every element of a column (`rows` of them, a stride apart) several times, AT_LEAST at most. */
static void
repeat_elements(char *to, const char *from, npy_intp stride, npy_intp rows, npy_intp times, int size)
{
    switch (size) {
    case 4: REPEAT(npy_uint32);
    case 8: REPEAT(npy_uint64);
    }
    for (; rows > 0; rows--, from += stride, to += times * size) {
        copy_run(to, from, 0, times, size);
    }
}

/* `count` elements, of which `done` are there: the others repeat them. */
static void
repeat_run(char *to, npy_intp done, npy_intp count, int size)
{
    while (done < count) {
        npy_intp more = count - done < done ? count - done : done;
        memcpy(to + done * size, to, more * size);
        done += more;
    }
}

/* From the beginning of a row on, how many rows can be copied at once, because they are one element each or all the same. */
static npy_intp
copy_short_rows(const Operand *operand, const npy_intp *index, const char *from, npy_intp count, int size, char *to)
{
    int inner = operand->ndim - 1;
    npy_intp run = operand->shape[inner], rows = operand->shape[inner - 1] - index[inner - 1];
    rows = rows < count / run ? rows : count / run;
    if (operand->steps[inner] == 0 && run <= AT_LEAST) {
        repeat_elements(to, from, operand->steps[inner - 1], rows, run, size);
        return rows;
    }
    if (operand->steps[inner - 1] == 0 && rows > 1) {
        copy_run(to, from, operand->steps[inner], run, size);
        repeat_run(to, run, rows * run, size);
        return rows;
    }
    return 0;
}

/* Copy `count` elements from the one with the number `first` on, one run along the last dimension after the other. */
static void
gather_runs(const Operand *operand, npy_intp first, npy_intp count, int size, char *to)
{
    npy_intp index[NPY_MAXDIMS];
    const char *from = operand->data;
    int inner = operand->ndim - 1;
    for (int d = inner; d >= 0; d--) {
        index[d] = first % operand->shape[d];
        first /= operand->shape[d];
        from += index[d] * operand->steps[d];
    }
    while (count > 0) {
        npy_intp run = operand->shape[inner] - index[inner];
        npy_intp rows = inner > 0 && index[inner] == 0 ? copy_short_rows(operand, index, from, count, size, to) : 0;
        if (rows > 0) {
            run = rows * operand->shape[inner];
            from += rows * operand->steps[inner - 1];
            index[inner - 1] += rows;
        }
        else {
            run = run < count ? run : count;
            copy_run(to, from, operand->steps[inner], run, size);
            from += run * operand->steps[inner];
            index[inner] += run;
        }
        to += run * size;
        count -= run;
        for (int d = inner; d > 0; d--) {
            if (index[d] == operand->shape[d]) {
                from += operand->steps[d - 1] - index[d] * operand->steps[d];
                index[d] = 0;
                index[d - 1]++;
            }
        }
    }
}

void
gather_elements(const Walk *walk, const Operand *operand, npy_intp first, npy_intp count, int size, char *to)
{
    npy_intp period = period_of(walk, operand), done = count < period ? count : period;
    gather_runs(operand, first, done, size, to);
    repeat_run(to, done, count, size); /* if there are more, `done` is the period */
}
