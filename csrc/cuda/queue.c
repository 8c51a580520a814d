/* The queue of launches. What is asked of the device is written down, and sent when somebody looks at the device, when
 * enough has come together, or behind work that takes the device long.
 *
 * A queue that holds the same as one before it, to the last byte (the same kernels, grids, addresses and numbers, in the
 * same order) is the same work. The third time it is sent while the driver records a graph, and from then on that graph
 * is launched: one call of the driver in the place of many. Programs that repeat themselves get equal queues because
 * memory is handed out lowest first (memory.c). Programs that do not lose the time of one hash.
 *
 * Assumes: Python's lock. What an entry points at stays valid until the queue is sent: memory of ours is not given back
 * to the driver, and lent memory not returned, before `flush`.
 */
#include "cuda/cuda.h"

#define QUEUE_BYTES ((size_t)1 << 20)
#define BUCKETS 1024
#define MOST_REMEMBERED 1024
#define MOST_REMEMBERED_BYTES ((size_t)64 << 20)
#define SEED 1469598103934665603ull

typedef struct {
    int kind;
    unsigned size; /* of the arguments that follow, a multiple of 8 */
    unsigned grid[3], block;
    Function function;
} Entry;

typedef struct Sequence {
    uint64_t hash;
    size_t bytes;
    int seen;
    char *data;
    void *graph;
    struct Sequence *next;
} Sequence;

static char *queue;
static size_t filled, remembered_bytes;
static int waiting, remembered;
static int limit = 128; /* entries that are sent together; 0: each at once */
static int is_blocking; /* whether each is waited for, too */
static uint64_t hash = SEED;
static Sequence *table[BUCKETS];
static struct {
    long long launches, flushes, graphs, captures;
} counted;

static int
issue(const Entry *entry)
{
    const void *arguments = entry + 1;
    if (entry->kind == PRODUCT_ENTRY) {
        return issue_product(arguments);
    }
    if (entry->kind == CALL_ENTRY) { /* of a library, by a function of ours */
        int (*call)(const void *);
        memcpy(&call, &entry->function, sizeof(call));
        return call(arguments);
    }
    if (entry->kind == ZERO_ENTRY) {
        const Zero *zero = arguments;
        return driver_fill_zero(zero->memory, zero->bytes);
    }
    return driver_launch(entry->function, entry->grid, entry->block, (void *)arguments);
}

static int
issue_all(void)
{
    for (size_t at = 0; at < filled;) {
        const Entry *entry = (const Entry *)(queue + at);
        if (issue(entry) < 0) {
            return -1;
        }
        at += sizeof(Entry) + entry->size;
    }
    return 0;
}

/* ---- what was sent before */

static void
forget_all(void)
{
    for (int k = 0; k < BUCKETS; k++) {
        while (table[k] != NULL) {
            Sequence *old = table[k];
            table[k] = old->next;
            driver_free_graph(old->graph);
            free(old->data);
            free(old);
        }
    }
    remembered = 0;
    remembered_bytes = 0;
}

static Sequence *
find_sequence(void)
{
    Sequence *found = table[hash % BUCKETS];
    while (found != NULL && !(found->hash == hash && found->bytes == filled && memcmp(found->data, queue, filled) == 0)) {
        found = found->next;
    }
    return found;
}

static void
remember(void)
{
    if (remembered >= MOST_REMEMBERED || remembered_bytes + filled > MOST_REMEMBERED_BYTES) {
        forget_all(); /* those in use come back at once */
    }
    Sequence *made = calloc(1, sizeof(Sequence));
    char *data = malloc(filled);
    if (made == NULL || data == NULL) { /* then it is met as a new one next time */
        free(made);
        free(data);
        return;
    }
    memcpy(data, queue, filled);
    *made = (Sequence){.hash = hash, .bytes = filled, .data = data, .next = table[hash % BUCKETS]};
    table[hash % BUCKETS] = made;
    remembered++;
    remembered_bytes += filled;
}

/* Send the queue while the driver records it, and launch what it has recorded. */
static int
capture(Sequence *sequence)
{
    if (driver_begin_capture() < 0) {
        return -1;
    }
    int failed_to_issue = issue_all() < 0;
    if (driver_end_capture(failed_to_issue ? NULL : &sequence->graph) < 0 || failed_to_issue) {
        return -1;
    }
    counted.captures++;
    return driver_launch_graph(sequence->graph);
}

static int
send(void)
{
    if (waiting < 3 || limit == 0) {
        return issue_all();
    }
    Sequence *sequence = find_sequence();
    if (sequence == NULL) {
        remember();
        return issue_all();
    }
    if (sequence->graph != NULL) {
        counted.graphs++;
        return is_emulated ? issue_all() : driver_launch_graph(sequence->graph);
    }
    if (++sequence->seen < 2) {
        return issue_all();
    }
    if (is_emulated) {
        sequence->graph = sequence; /* stands for one */
        counted.captures++;
        return issue_all();
    }
    return capture(sequence);
}

int
flush(void)
{
    if (waiting == 0) {
        return 0;
    }
    int status = enter_context() < 0 ? -1 : send();
    counted.flushes++;
    filled = 0;
    waiting = 0;
    hash = SEED;
    return status;
}

/* ---- what is asked for */

static void
mix(const void *data, size_t bytes)
{
    const uint64_t *words = data;
    for (size_t k = 0; k < bytes / 8; k++) {
        hash = (hash ^ words[k]) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 29;
    }
}

int
enqueue(int kind, Function function, const unsigned *grid, unsigned block, const void *arguments, size_t size, int is_long)
{
    size_t padded = (size + 7) & ~(size_t)7;
    if (queue == NULL && (queue = malloc(QUEUE_BYTES)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (filled + sizeof(Entry) + padded > QUEUE_BYTES && flush() < 0) {
        return -1;
    }
    Entry *entry = (Entry *)(queue + filled);
    memset(entry, 0, sizeof(Entry) + padded);
    *entry = (Entry){.kind = kind, .size = (unsigned)padded, .block = block, .function = function};
    memcpy(entry->grid, grid, sizeof(entry->grid));
    memcpy(entry + 1, arguments, size);
    filled += sizeof(Entry) + padded;
    waiting++;
    counted.launches++;
    if (limit == 0) {
        int status = flush();
        return status == 0 && is_blocking ? driver_synchronize() : status;
    }
    mix(entry, sizeof(Entry) + padded);
    return waiting >= limit || is_long ? flush() : 0;
}

int
enqueue_zero(char *memory, size_t bytes)
{
    static const unsigned grid[] = {1, 1, 1};
    Zero zero = {memory, bytes};
    return enqueue(ZERO_ENTRY, NULL, grid, 1, &zero, sizeof(zero), bytes > (size_t)1 << 20);
}

/* ---- the module's */

PyObject *
module_flush(PyObject *module, PyObject *nothing)
{
    return flush() < 0 ? NULL : Py_NewRef(Py_None);
}

/* set_launch_mode(entries that are sent together, whether each is waited for) */
PyObject *
module_set_launch_mode(PyObject *module, PyObject *args)
{
    int entries, blocking;
    if (!PyArg_ParseTuple(args, "ip", &entries, &blocking) || flush() < 0) {
        return NULL;
    }
    limit = entries < 0 ? 0 : entries;
    is_blocking = blocking;
    Py_RETURN_NONE;
}

PyObject *
module_launch_stats(PyObject *module, PyObject *nothing)
{
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:i,s:i}", "launches", counted.launches, "flushes", counted.flushes, "graphs",
                         counted.graphs, "captures", counted.captures, "remembered", remembered, "waiting", waiting);
}

/* forget_graphs(): free the graphs there are */
PyObject *
module_forget_graphs(PyObject *module, PyObject *nothing)
{
    if (flush() < 0) {
        return NULL;
    }
    forget_all();
    Py_RETURN_NONE;
}
