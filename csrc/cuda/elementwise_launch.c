/* Starting elementwise kernels: how operands and result are walked through, and how many bytes at a time. */
#include "cuda/elementwise.h"

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

int
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
    if (alike && singles >= 0) {
        Launch alone = {function, {(unsigned)blocks, 1, 1}, (unsigned)threads, room, words.size, keeps_busy(out->size)};
        return enqueue_piece(self, variant, operands, out, &alone);
    }
    return launch(function, (unsigned)blocks, (unsigned)threads, room, words.size, out->size);
}
