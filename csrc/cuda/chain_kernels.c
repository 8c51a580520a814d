/* The kernels of chains: by the shapes that were seen, made by Python (backend/cuda/chains.py) when they come again. */
#include "cuda/chains.h"

#define MOST_SHAPES 4096
#define BUCKETS 512

static Joined *table[BUCKETS], *wanted;
static int shapes;
static PyObject *chain_maker;
int chain_sightings = 2;

int
has_chain_maker(void)
{
    return chain_maker != NULL;
}

/* Whether a piece's result is written: somebody has it, and none behind it is written there. */
static int
is_stored(const Chain *chain, int p)
{
    for (int later = p + 1; later < chain->count; later++) {
        if (chain->pieces[later].out.data == chain->pieces[p].out.data) {
            return 0;
        }
    }
    return (p == chain->count - 1 && chain->end == NULL) || chain->pieces[p].block != NULL;
}

Shape
shape_of(const Chain *chain)
{
    Shape shape;
    int most = 1;
    memset(&shape, 0, sizeof(shape));
    shape.count = chain->count;
    shape.slot_count = chain->slot_count;
    shape.number_count = chain->number_count;
    shape.end = chain->end;
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

Joined *
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

void
note_seen(Joined *joined)
{
    if (!joined->has_failed && joined->seen++ >= chain_sightings) {
        wanted = joined;
    }
}

void
make_wanted_chain(void)
{
    Joined *joined = wanted;
    if (joined == NULL) {
        return;
    }
    wanted = NULL;
    PyObject *pieces = PyTuple_New(joined->shape.count), *slots = PyTuple_New(joined->shape.slot_count), *made = NULL;
    for (int p = 0; pieces != NULL && p < joined->shape.count; p++) {
        PyTuple_SET_ITEM(pieces, p, describe(&joined->shape, p));
    }
    for (int k = 0; slots != NULL && k < joined->shape.slot_count; k++) {
        PyTuple_SET_ITEM(slots, k, Py_BuildValue("ii", joined->shape.slots[k][0], joined->shape.slots[k][1]));
    }
    if (!PyErr_Occurred()) {
        made = PyObject_CallFunction(chain_maker, "OOiK", pieces, slots, joined->shape.wide,
                                     (unsigned long long)(uintptr_t)joined->shape.end);
    }
    joined->function = made == NULL ? NULL : PyLong_AsVoidPtr(made);
    joined->has_failed = joined->function == NULL;
    PyErr_Clear(); /* then its launches stay single */
    Py_XDECREF(pieces);
    Py_XDECREF(slots);
    Py_XDECREF(made);
}

/* set_chain_maker(function): what makes the kernel of a chain, of descriptions of its pieces and arrays */
PyObject *
module_set_chain_maker(PyObject *module, PyObject *function)
{
    Py_XSETREF(chain_maker, Py_NewRef(function));
    Py_RETURN_NONE;
}
