/* Chains: elementwise launches that follow each other in a queue, each of which reads what one before it has written.
 *
 * The last launches of a queue are its chain while they fit together. When anything else is asked of the stream, or the
 * queue is sent, the chain is closed: if the same one has been closed before, its entries give way to a single one, of a
 * kernel that computes all of them and keeps what one hands to the next in registers. It writes the results that somebody
 * still has, and always the last.
 *
 * Guarantees: the bits are those of single launches (every result is rounded to its dtype before it is read), and
 * whoever else is given memory finds it written, because a chain is closed before the next entry, whatever that is.
 *
 * Assumes: element i of every array is read and written by one thread, all reads first. So the arrays of a chain lie in
 * memory in one way, and of any two that overlap, one of which is written, all elements overlap with themselves alone.
 *
 * A chain is compiled before a later launch, and never while it is closed: Python runs then, and with it other threads,
 * which may launch.
 */
#include "cuda/elementwise.h"

#define MOST_PIECES 8
#define MOST_SLOTS 8
#define MOST_NUMBERS 16
#define MOST_SHAPES 4096
#define BUCKETS 512
#define THREADS 256

/* An array, or where all elements of a chain are read from one: `bytes` of each. */
typedef struct {
    const char *data;
    int code, is_single, bytes;
} Slot;

typedef struct {
    Elementwise *kernel;
    Variant *variant;
    int sources[MOST_IN]; /* slots; ~p: the result of piece p; a number's is not looked at */
    Slot out;
    const Block *block;
    int is_dead; /* nobody has the result any more */
} Piece;

struct Chain {
    int count, slot_count, number_count, is_long;
    size_t from; /* where its entries begin in the queue */
    npy_intp size;
    Piece pieces[MOST_PIECES];
    Slot slots[MOST_SLOTS];
    Value numbers[MOST_NUMBERS];
};

/* What a kernel is made for. */
typedef struct {
    int count, slot_count, number_count, wide;
    struct {
        Elementwise *kernel;
        uint64_t key;
        signed char sources[MOST_IN], is_stored[8];
    } pieces[MOST_PIECES];
    signed char slots[MOST_SLOTS][2]; /* code, whether it is a single element */
} Shape;

typedef struct Joined {
    Shape shape;
    int seen, has_failed;
    Function function;
    struct Joined *next;
} Joined;

static Joined *table[BUCKETS], *wanted;
static int shapes;
/* how many elements arrays must have, and how often a chain must have been seen before its kernel is made */
static npy_intp least = (npy_intp)1 << 15;
static int sightings = 2;
static PyObject *chain_maker;
long long joined_launches;

/* ---- which launches fit together */

static int
overlap(const Slot *a, const Slot *b, npy_intp size)
{
    const char *end_of_a = a->data + a->bytes * (a->is_single ? 1 : size);
    const char *end_of_b = b->data + b->bytes * (b->is_single ? 1 : size);
    return a->data < end_of_b && b->data < end_of_a;
}

/* Whether two that overlap do so element by element. */
static int
coincide(const Slot *a, const Slot *b)
{
    return a->data == b->data && a->bytes == b->bytes && !a->is_single && !b->is_single;
}

/* Where an operand comes from; MOST_SLOTS: the chain cannot go on with it. */
static int
source_of(Chain *chain, const Slot *operand, int *is_read)
{
    for (int p = chain->count - 1; p >= 0; p--) {
        const Piece *piece = &chain->pieces[p];
        if (overlap(&piece->out, operand, chain->size)) {
            int is_the_same = coincide(&piece->out, operand) && piece->out.code == operand->code && !piece->is_dead;
            *is_read |= is_the_same;
            return is_the_same ? ~p : MOST_SLOTS;
        }
    }
    for (int k = 0; k < chain->slot_count; k++) {
        const Slot *slot = &chain->slots[k];
        if (slot->data == operand->data && slot->code == operand->code && slot->is_single == operand->is_single) {
            return k;
        }
    }
    if (chain->slot_count < MOST_SLOTS) {
        chain->slots[chain->slot_count++] = *operand;
        return chain->slot_count - 1;
    }
    return MOST_SLOTS;
}

/* Whether a result may be written while the chain's operands are read and its other results written. */
static int
can_write(const Chain *chain, const Slot *out)
{
    for (int k = 0; k < chain->slot_count; k++) {
        if (overlap(&chain->slots[k], out, chain->size) && !coincide(&chain->slots[k], out)) {
            return 0;
        }
    }
    for (int p = 0; p < chain->count; p++) {
        const Piece *piece = &chain->pieces[p];
        if (!piece->is_dead && overlap(&piece->out, out, chain->size) && !coincide(&piece->out, out)) {
            return 0;
        }
    }
    return 1;
}

static Slot
slot_of(const Array *array, int is_single)
{
    return (Slot){array->data, array->code, is_single, (int)PyDataType_ELSIZE(array->dtype)};
}

/* Add a launch to a chain; 0, and nothing is changed: it does not fit. The first one always does. */
static int
add_piece(Chain *chain, Elementwise *kernel, Variant *variant, const Operand *operands, Array *out)
{
    int slot_count = chain->slot_count, number_count = chain->number_count, is_read = chain->count == 0, fits = 1;
    if (chain->count == MOST_PIECES || (chain->count && chain->size != out->size)) {
        return 0;
    }
    chain->size = out->size;
    Piece *piece = &chain->pieces[chain->count];
    *piece = (Piece){.kernel = kernel, .variant = variant, .out = slot_of(out, 0), .block = out->block};
    for (int k = 0; k < kernel->nin && fits; k++) {
        const Operand *operand = &operands[k];
        if (operand->array == NULL) {
            fits = chain->number_count < MOST_NUMBERS;
            if (fits) {
                chain->numbers[chain->number_count++] = operand->value;
            }
        }
        else {
            Slot slot = slot_of(operand->array, operand->is_single);
            piece->sources[k] = source_of(chain, &slot, &is_read);
            fits = piece->sources[k] != MOST_SLOTS;
        }
    }
    if (!fits || !is_read || !can_write(chain, &piece->out)) {
        chain->slot_count = slot_count;
        chain->number_count = number_count;
        return 0;
    }
    chain->count++;
    out->block->is_chained = 1;
    return 1;
}

void
forget_chained(const Block *block)
{
    for (int k = 0; k < lane_count; k++) {
        Chain *chain = lanes[k]->chain;
        for (int p = 0; chain != NULL && p < chain->count; p++) {
            chain->pieces[p].is_dead |= chain->pieces[p].block == block;
        }
    }
}

/* ---- kernels */

/* Whether a piece's result is written: somebody has it, and none behind it is written there. */
static int
is_stored(const Chain *chain, int p)
{
    for (int later = p + 1; later < chain->count; later++) {
        if (chain->pieces[later].out.data == chain->pieces[p].out.data) {
            return 0;
        }
    }
    return p == chain->count - 1 || !chain->pieces[p].is_dead;
}

static Shape
shape_of(const Chain *chain)
{
    Shape shape;
    int most = 1;
    memset(&shape, 0, sizeof(shape));
    shape.count = chain->count;
    shape.slot_count = chain->slot_count;
    shape.number_count = chain->number_count;
    for (int p = 0; p < chain->count; p++) {
        const Piece *piece = &chain->pieces[p];
        shape.pieces[p].kernel = piece->kernel;
        shape.pieces[p].key = piece->variant->key;
        shape.pieces[p].is_stored[0] = (signed char)is_stored(chain, p);
        for (int k = 0; k < piece->kernel->nin; k++) {
            shape.pieces[p].sources[k] = (signed char)piece->sources[k];
        }
        most = piece->out.bytes > most ? piece->out.bytes : most;
    }
    for (int k = 0; k < chain->slot_count; k++) {
        const Slot *slot = &chain->slots[k];
        shape.slots[k][0] = (signed char)slot->code;
        shape.slots[k][1] = (signed char)slot->is_single;
        most = slot->bytes > most ? slot->bytes : most;
    }
    shape.wide = 16 / most; /* elements that are read at a time: sixteen bytes of the largest */
    return shape;
}

/* What is known about chains of a shape; NULL: nothing, and no more of them are remembered. */
static Joined *
find_joined(const Shape *shape)
{
    const uint64_t *words = (const uint64_t *)shape;
    uint64_t hash = 1469598103934665603ull;
    for (size_t k = 0; k < sizeof(*shape) / sizeof(*words); k++) {
        hash = (hash ^ words[k]) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 29;
    }
    Joined **bucket = &table[hash % BUCKETS], *found = *bucket;
    while (found != NULL && memcmp(&found->shape, shape, sizeof(*shape)) != 0) {
        found = found->next;
    }
    if (found == NULL && shapes < MOST_SHAPES && (found = calloc(1, sizeof(Joined))) != NULL) {
        found->shape = *shape;
        found->next = *bucket;
        *bucket = found;
        shapes++;
    }
    return found;
}

/* (kernel, codes of its operands, where they come from, whether the result is written) of a piece */
static PyObject *
describe(const Shape *shape, int p)
{
    int nin = shape->pieces[p].kernel->nin;
    PyObject *codes = PyTuple_New(nin), *sources = PyTuple_New(nin);
    for (int k = 0; codes != NULL && sources != NULL && k < nin; k++) {
        long code = (long)(shape->pieces[p].key >> (KEY_BITS * k) & ((1 << KEY_BITS) - 1));
        PyTuple_SET_ITEM(codes, k, PyLong_FromLong(code));
        PyTuple_SET_ITEM(sources, k, PyLong_FromLong(shape->pieces[p].sources[k]));
    }
    return Py_BuildValue("ONNi", (PyObject *)shape->pieces[p].kernel, codes, sources, shape->pieces[p].is_stored[0]);
}

/* Make the kernel of the chain that was last found to want one. */
static void
make_wanted(void)
{
    Joined *joined = wanted;
    wanted = NULL;
    PyObject *pieces = PyTuple_New(joined->shape.count), *slots = PyTuple_New(joined->shape.slot_count), *made = NULL;
    for (int p = 0; pieces != NULL && p < joined->shape.count; p++) {
        PyTuple_SET_ITEM(pieces, p, describe(&joined->shape, p));
    }
    for (int k = 0; slots != NULL && k < joined->shape.slot_count; k++) {
        PyTuple_SET_ITEM(slots, k, Py_BuildValue("ii", joined->shape.slots[k][0], joined->shape.slots[k][1]));
    }
    if (!PyErr_Occurred()) {
        made = PyObject_CallFunction(chain_maker, "OOi", pieces, slots, joined->shape.wide);
    }
    joined->function = made == NULL ? NULL : PyLong_AsVoidPtr(made);
    joined->has_failed = joined->function == NULL;
    PyErr_Clear(); /* then its launches stay single */
    Py_XDECREF(pieces);
    Py_XDECREF(slots);
    Py_XDECREF(made);
}

/* ---- closing */

static size_t
write_arguments(const Chain *chain, const Shape *shape, uint64_t *words)
{
    uint64_t *at = words;
    for (int p = 0; p < chain->count; p++) {
        if (shape->pieces[p].is_stored[0]) {
            *at++ = (uint64_t)(uintptr_t)chain->pieces[p].out.data;
        }
    }
    for (int k = 0; k < chain->slot_count; k++) {
        *at++ = (uint64_t)(uintptr_t)chain->slots[k].data;
    }
    memcpy(at, chain->numbers, chain->number_count * sizeof(Value));
    at += chain->number_count * sizeof(Value) / sizeof(uint64_t);
    *at++ = (uint64_t)(chain->size / shape->wide);
    return (size_t)(at - words) * sizeof(uint64_t);
}

/* Put one entry in the place of a chain's. */
static void
replace_entries(Lane *lane, const Chain *chain, const Shape *shape, Function function)
{
    uint64_t words[MOST_PIECES + MOST_SLOTS + 2 * MOST_NUMBERS + 1];
    size_t size = write_arguments(chain, shape, words);
    npy_intp each = (npy_intp)THREADS * 2 * shape->wide;
    unsigned grid[] = {(unsigned)((chain->size + each - 1) / each), 1, 1};
    lane->filled = chain->from;
    lane->waiting -= chain->count;
    write_entry(lane, KERNEL_ENTRY, function, grid, THREADS, words, size);
    joined_launches += chain->count - 1;
}

int
close_chain(Lane *lane)
{
    Chain *chain = lane->chain;
    if (chain == NULL || chain->count == 0) {
        return 0;
    }
    if (chain->count > 1) {
        Shape shape = shape_of(chain);
        Joined *joined = find_joined(&shape);
        if (joined != NULL && joined->function != NULL) {
            replace_entries(lane, chain, &shape, joined->function);
        }
        else if (joined != NULL && !joined->has_failed && joined->seen++ >= sightings) {
            wanted = joined;
        }
    }
    for (int p = 0; p < chain->count; p++) {
        ((Block *)chain->pieces[p].block)->is_chained = 0;
    }
    mix_entries(lane, chain->from);
    chain->count = chain->slot_count = chain->number_count = 0;
    return chain->is_long;
}

int
enqueue_piece(Elementwise *kernel, Variant *variant, const Operand *operands, Array *out, const Launch *launch)
{
    if (out->size < least || chain_maker == NULL) {
        return enqueue(KERNEL_ENTRY, launch->function, launch->grid, launch->block, launch->arguments, launch->size,
                       launch->is_long);
    }
    if (wanted != NULL) {
        make_wanted();
    }
    Lane *lane = open_queue(launch->arguments, launch->size);
    if (lane == NULL || (lane->chain == NULL && (lane->chain = calloc(1, sizeof(Chain))) == NULL)) {
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    Chain *chain = lane->chain;
    if (chain->count == 0 || !add_piece(chain, kernel, variant, operands, out)) {
        if (close_chain(lane) && flush_lane(lane) < 0) {
            return -1;
        }
        chain->from = lane->filled;
        chain->is_long = 0;
        if (!add_piece(chain, kernel, variant, operands, out)) { /* a result that lies across its operands */
            return enqueue(KERNEL_ENTRY, launch->function, launch->grid, launch->block, launch->arguments, launch->size,
                           launch->is_long);
        }
    }
    chain->is_long |= launch->is_long;
    write_entry(lane, KERNEL_ENTRY, launch->function, launch->grid, launch->block, launch->arguments, launch->size);
    return end_entry(lane);
}

/* ---- the module's */

/* set_chain_maker(function): what makes the kernel of a chain, of descriptions of its pieces and arrays */
PyObject *
module_set_chain_maker(PyObject *module, PyObject *function)
{
    Py_XSETREF(chain_maker, Py_NewRef(function));
    Py_RETURN_NONE;
}

/* set_joining(elements, sightings): join launches on so many elements, in chains that were seen so often before */
PyObject *
module_set_joining(PyObject *module, PyObject *args)
{
    Py_ssize_t elements;
    int often;
    if (!PyArg_ParseTuple(args, "ni", &elements, &often) || flush_all() < 0) {
        return NULL;
    }
    PyObject *before = Py_BuildValue("ni", (Py_ssize_t)least, sightings);
    least = elements;
    sightings = often;
    return before;
}
