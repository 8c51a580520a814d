/* Chains: elementwise launches that follow each other in a queue, each of which reads what one before it has written.
 *
 * The last launches of a queue are its chain while they fit together. When anything else is asked of the stream, or the
 * queue is sent, the chain is closed: if the same one has been closed before, its entries give way to a single one, of a
 * kernel that computes all of them and keeps what one hands to the next in registers. It writes the results that somebody
 * still has, and always the last.
 *
 * A chain may end in a kernel of another kind (a sum, a softmax) that reads each element of the last result once: its
 * text is compiled with the formulas in the place of reading. Then the last result, too, is written only if somebody has
 * it. Such a kernel may be the first of two: the second, which reads what the first has made, follows it.
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
#include "cuda/chains.h"

#define THREADS 256
#define END_BYTES ((size_t)256) /* the most arguments of a kernel that ends a chain */

static npy_intp least = (npy_intp)1 << 15; /* elements that arrays must have */
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
            int is_the_same = coincide(&piece->out, operand) && piece->out.code == operand->code && piece->block != NULL;
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
        if (piece->block != NULL && overlap(&piece->out, out, chain->size) && !coincide(&piece->out, out)) {
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
    if (chain->count == MOST_PIECES || chain->end != NULL || (chain->count && chain->size != out->size)) {
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
forget_chained(Block *block)
{
    for (int k = 0; k < lane_count; k++) {
        Chain *chain = lanes[k]->chain;
        for (int p = 0; chain != NULL && p < chain->count; p++) {
            if (chain->pieces[p].block == block) {
                chain->pieces[p].block = NULL;
            }
        }
    }
    block->is_chained = 0;
}

int
has_open_chain(const Lane *lane)
{
    return lane->chain != NULL && lane->chain->count > 0;
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
    return (size_t)(at - words) * sizeof(uint64_t);
}

/* Put one entry in the place of a chain's. */
static void
replace_entries(Lane *lane, const Chain *chain, const Shape *shape, Function function)
{
    uint64_t words[MOST_PIECES + MOST_SLOTS + 2 * MOST_NUMBERS + 1];
    size_t size = write_arguments(chain, shape, words);
    words[size / sizeof(uint64_t)] = (uint64_t)(chain->size / shape->wide);
    npy_intp each = (npy_intp)THREADS * 2 * shape->wide;
    unsigned grid[] = {(unsigned)((chain->size + each - 1) / each), 1, 1};
    lane->filled = chain->from;
    lane->waiting -= chain->count;
    write_entry(lane, KERNEL_ENTRY, function, grid, THREADS, words, size + sizeof(uint64_t));
    joined_launches += chain->count - 1;
}

/* The same for a chain with an end, whose arguments come first; the entry behind it moves up. */
static void
replace_with_end(Lane *lane, const Chain *chain, const Shape *shape, Function function)
{
    uint64_t words[END_BYTES / sizeof(uint64_t) + MOST_PIECES + MOST_SLOTS + 2 * MOST_NUMBERS];
    char behind[sizeof(Entry) + END_BYTES];
    size_t left = chain->behind_at ? lane->filled - chain->behind_at : 0;
    Entry end = *(const Entry *)(lane->queue + chain->end_at);
    memcpy(words, lane->queue + chain->end_at + sizeof(Entry), end.size);
    memcpy(behind, lane->queue + chain->behind_at, left);
    size_t size = end.size + write_arguments(chain, shape, words + end.size / sizeof(uint64_t));
    lane->filled = chain->from;
    lane->waiting -= chain->count + 1;
    write_entry(lane, KERNEL_ENTRY, function, end.grid, end.block, words, size);
    memcpy(lane->queue + lane->filled, behind, left);
    lane->filled += left;
    joined_launches += chain->count;
}

int
close_chain(Lane *lane)
{
    Chain *chain = lane->chain;
    if (chain == NULL || chain->count == 0) {
        return 0;
    }
    if (chain->count > 1 || chain->end != NULL) {
        Shape shape = shape_of(chain);
        Joined *joined = find_joined(&shape);
        if (joined != NULL && joined->function != NULL) {
            (chain->end == NULL ? replace_entries : replace_with_end)(lane, chain, &shape, joined->function);
        }
        else if (joined != NULL) {
            note_seen(joined);
        }
    }
    for (int p = 0; p < chain->count; p++) {
        if (chain->pieces[p].block != NULL) {
            chain->pieces[p].block->is_chained = 0;
        }
    }
    mix_entries(lane, chain->from);
    chain->count = chain->slot_count = chain->number_count = 0;
    chain->end = NULL;
    return chain->is_long;
}

int
enqueue_piece(Elementwise *kernel, Variant *variant, const Operand *operands, Array *out, const Launch *launch)
{
    if (out->size < least || !has_chain_maker()) {
        return enqueue(KERNEL_ENTRY, launch->function, launch->grid, launch->block, launch->arguments, launch->size,
                       launch->is_long);
    }
    make_wanted_chain();
    Lane *lane = open_queue(launch->arguments, launch->size);
    if (lane == NULL || (lane->chain == NULL && (lane->chain = calloc(1, sizeof(Chain))) == NULL)) {
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    Chain *chain = lane->chain;
    if (chain->count == 0 || !add_piece(chain, kernel, variant, operands, out)) {
        if (close_chain(lane) && end_long(lane) < 0) {
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

/* ---- kernels that end a chain */

static Slot
all_of(const Array *array)
{
    const char *low, *high;
    bounds_of(array, &low, &high);
    return (Slot){.data = low, .bytes = (int)(high - low > INT32_MAX ? 0 : high - low), .is_single = 1};
}

/* Whether an array is apart from what the chain writes and, if it is `written`, from what it reads: or `in_place`. */
static int
is_apart(const Chain *chain, const Array *array, int written, int in_place)
{
    Slot all = all_of(array), own = slot_of(array, !in_place || array->size != chain->size);
    int apart = all.bytes > 0; /* as arrays have that are as large as a chain's, or smaller */
    for (int p = 0; p < chain->count && apart; p++) {
        apart = chain->pieces[p].block == NULL || !overlap(&chain->pieces[p].out, &all, chain->size);
    }
    for (int k = 0; k < chain->slot_count && apart && written; k++) {
        apart = !overlap(&chain->slots[k], &all, chain->size) || coincide(&chain->slots[k], &own);
    }
    return apart;
}

static int
can_end(const Chain *chain, const Reader *reader)
{
    const Piece *last = chain->count ? &chain->pieces[chain->count - 1] : NULL;
    const Array *input = reader->input;
    int ends = last != NULL && chain->end == NULL && reader->size <= END_BYTES && input->data == last->out.data &&
               input->code == last->out.code && input->size == chain->size && last->block != NULL && input->is_contiguous;
    for (int k = 0; k < MOST_BESIDE && ends; k++) {
        ends = (reader->reads[k] == NULL || is_apart(chain, reader->reads[k], 0, 0)) &&
               (reader->writes[k] == NULL || is_apart(chain, reader->writes[k], 1, k == 0 && reader->is_in_place));
    }
    return ends;
}

static int
enqueue_plainly(const Reader *r)
{
    return enqueue(KERNEL_ENTRY, r->function, r->grid, r->block, r->arguments, r->size, r->is_long);
}

int
enqueue_reader(const Reader *reader)
{
    Lane *lane = open_queue(reader->arguments, reader->size);
    Chain *chain = lane == NULL ? NULL : lane->chain;
    if (chain == NULL || !can_end(chain, reader)) {
        return lane == NULL ? -1 : enqueue_plainly(reader);
    }
    chain->end = reader->function;
    chain->end_at = lane->filled;
    chain->behind_at = 0;
    chain->is_long |= reader->is_long;
    write_entry(lane, KERNEL_ENTRY, reader->function, reader->grid, reader->block, reader->arguments, reader->size);
    return end_entry(lane);
}

int
enqueue_behind(const Reader *reader)
{
    Lane *lane = open_queue(reader->arguments, reader->size);
    Chain *chain = lane == NULL ? NULL : lane->chain;
    if (chain == NULL || chain->count == 0 || chain->end == NULL || chain->behind_at || reader->size > END_BYTES) {
        return lane == NULL ? -1 : enqueue_plainly(reader);
    }
    chain->behind_at = lane->filled;
    write_entry(lane, KERNEL_ENTRY, reader->function, reader->grid, reader->block, reader->arguments, reader->size);
    return end_entry(lane);
}

/* ---- the module's */

/* set_joining(elements, sightings): join launches on so many elements, in chains that were seen so often before */
PyObject *
module_set_joining(PyObject *module, PyObject *args)
{
    Py_ssize_t elements;
    int often;
    if (!PyArg_ParseTuple(args, "ni", &elements, &often) || flush_all() < 0) {
        return NULL;
    }
    PyObject *before = Py_BuildValue("ni", (Py_ssize_t)least, chain_sightings);
    least = elements;
    chain_sightings = often;
    return before;
}
