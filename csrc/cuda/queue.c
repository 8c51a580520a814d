/* The queues of launches, one for each stream. What is asked of a stream is written down, and sent when somebody looks at
 * the device, when enough has come together, or behind work that takes the device long.
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

struct Sequence {
    uint64_t hash;
    const Lane *lane; /* that it was sent to: workspaces of libraries are a stream's own */
    size_t bytes;
    int seen;
    char *data;
    void *graph;
    struct Sequence *next;
};

static size_t remembered_bytes;
static int remembered;
static int limit = 32; /* entries that are sent together; 0: each at once */
static const int first = 8; /* the same, to a device that has nothing to do */
static const int few = 16;  /* fewer may wait for a step behind a pass */
static int is_blocking; /* whether each is waited for, too */
static int together = 5; /* long ones that are sent together to a device that has something to do */
static Sequence *table[BUCKETS];
static struct {
    long long launches, flushes, graphs, captures;
} counted;

int
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
issue_all(Lane *lane)
{
    if (is_emulated) {
        return emulate(lane, lane->queue, lane->filled);
    }
    for (size_t at = 0; at < lane->filled;) {
        const Entry *entry = (const Entry *)(lane->queue + at);
        if (issue(entry) < 0) {
            return -1;
        }
        at += sizeof(Entry) + entry->size;
    }
    return 0;
}

/* ---- what was sent before */

void
forget_graphs(void)
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
find_sequence(const Lane *lane)
{
    Sequence *found = table[lane->hash % BUCKETS];
    while (found != NULL && !(found->hash == lane->hash && found->lane == lane && found->bytes == lane->filled &&
                              memcmp(found->data, lane->queue, lane->filled) == 0)) {
        found = found->next;
    }
    return found;
}

static void
remember(const Lane *lane)
{
    if (remembered >= MOST_REMEMBERED || remembered_bytes + lane->filled > MOST_REMEMBERED_BYTES) {
        forget_graphs(); /* those in use come back at once */
    }
    Sequence *made = calloc(1, sizeof(Sequence));
    char *data = malloc(lane->filled);
    if (made == NULL || data == NULL) { /* then it is met as a new one next time */
        free(made);
        free(data);
        return;
    }
    memcpy(data, lane->queue, lane->filled);
    Sequence **bucket = &table[lane->hash % BUCKETS];
    *made = (Sequence){.hash = lane->hash, .lane = lane, .bytes = lane->filled, .data = data, .next = *bucket};
    *bucket = made;
    remembered++;
    remembered_bytes += lane->filled;
}

/* Send the queue while the driver records it, and launch what it has recorded. */
static int
capture(Lane *lane, Sequence *sequence)
{
    if (driver_begin_capture() < 0) {
        return -1;
    }
    int failed_to_issue = issue_all(lane) < 0;
    if (driver_end_capture(failed_to_issue ? NULL : &sequence->graph) < 0 || failed_to_issue) {
        return -1;
    }
    counted.captures++;
    return driver_launch_graph(sequence->graph);
}

static int
send(Lane *lane)
{
    if ((lane->waiting < 3 && lane->calls == 0) || limit == 0 || lane->is_alone) {
        return issue_all(lane);
    }
    Sequence *sequence = find_sequence(lane);
    if (sequence == NULL) {
        remember(lane);
        return issue_all(lane);
    }
    if (sequence->graph != NULL) {
        counted.graphs++;
        return is_emulated ? issue_all(lane) : driver_launch_graph(sequence->graph);
    }
    if (++sequence->seen < 2) {
        return issue_all(lane);
    }
    if (is_emulated) {
        sequence->graph = sequence; /* stands for one */
        counted.captures++;
        return issue_all(lane);
    }
    return capture(lane, sequence);
}

int
flush_lane(Lane *lane)
{
    if (lane->waiting == 0) {
        return 0;
    }
    lane->long_waiting += close_chain(lane);
    int status = send_to(lane) < 0 ? -1 : send(lane);
    counted.flushes++;
    lane->is_busy |= lane->long_waiting > 0;
    lane->is_fed = 1;
    lane->filled = 0;
    lane->waiting = lane->long_waiting = lane->calls = 0;
    lane->hash = SEED;
    return status;
}

static Occasion left_out; /* see Occasion in cuda.h */

int
flush_at(Occasion occasion, Lane *lane)
{
    return occasion == left_out ? 0 : flush_lane(lane);
}

int
flush_all_at(Occasion occasion)
{
    return occasion == left_out ? 0 : flush_all();
}

int
flush(void)
{
    Lane *lane = lane_now();
    return lane == NULL ? -1 : flush_lane(lane);
}

int
flush_all(void)
{
    int status = 0;
    for (int k = 0; k < lane_count; k++) {
        if (flush_lane(lanes[k]) < 0) {
            status = -1; /* the others are sent all the same */
        }
    }
    return status;
}

/* ---- what is asked for */

static void
mix(Lane *lane, const void *data, size_t bytes)
{
    const uint64_t *words = data;
    uint64_t hash = lane->hash;
    for (size_t k = 0; k < bytes / 8; k++) {
        hash = (hash ^ words[k]) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 29;
    }
    lane->hash = hash;
}

void
mix_entries(Lane *lane, size_t from)
{
    mix(lane, lane->queue + from, lane->filled - from);
}

Lane *
open_queue(const void *arguments, size_t size)
{
    Lane *lane = lane_now();
    if (lane == NULL || (is_emulated && gpu_count > 1 && check_emulated_pointers(lane, arguments, size) < 0)) {
        return NULL;
    }
    if (lane->queue == NULL) {
        lane->hash = SEED;
        if ((lane->queue = malloc(QUEUE_BYTES)) == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
    }
    return lane->filled + sizeof(Entry) + size + 8 > QUEUE_BYTES && flush_lane(lane) < 0 ? NULL : lane;
}

void
write_entry(Lane *lane, int kind, Function function, const unsigned *grid, unsigned block, const void *arguments,
            size_t size)
{
    size_t padded = (size + 7) & ~(size_t)7;
    Entry *entry = (Entry *)(lane->queue + lane->filled);
    memset(entry, 0, sizeof(Entry) + padded);
    *entry = (Entry){.kind = kind, .size = (unsigned)padded, .block = block, .function = function};
    memcpy(entry->grid, grid, sizeof(entry->grid));
    memcpy(entry + 1, arguments, size);
    lane->filled += sizeof(Entry) + padded;
    lane->waiting++;
    lane->calls += kind == PRODUCT_ENTRY || kind == CALL_ENTRY;
}

int
end_entry(Lane *lane)
{
    if (lane->waiting == 1) {
        note_waiting();
    }
    counted.launches++;
    if (limit == 0) {
        int status = flush_lane(lane);
        return status == 0 && is_blocking ? (wait_for_lane(lane) < 0 ? -1 : raise_index_error()) : status;
    }
    return lane->waiting >= (lane->is_fed || limit < first ? limit : first) ? flush_lane(lane) : 0;
}

int
end_long(Lane *lane)
{
    lane->long_waiting++;
    return lane->long_waiting >= (lane->is_busy ? together : 1) ? flush_lane(lane) : 0;
}

int
enqueue(int kind, Function function, const unsigned *grid, unsigned block, const void *arguments, size_t size, int is_long)
{
    Lane *lane = open_queue(arguments, size);
    if (lane == NULL || (close_chain(lane) && end_long(lane) < 0)) {
        return -1;
    }
    size_t from = lane->filled;
    write_entry(lane, kind, function, grid, block, arguments, size);
    mix_entries(lane, from);
    return end_entry(lane) < 0 || (is_long && lane->waiting && end_long(lane) < 0) ? -1 : 0;
}

int
enqueue_alone(Function function, const void *arguments, size_t size)
{
    static const unsigned grid[] = {1, 1, 1};
    Lane *lane = lane_now();
    if (lane == NULL || flush_lane(lane) < 0) {
        return -1;
    }
    lane->is_alone = 1;
    int status = enqueue(CALL_ENTRY, function, grid, 1, arguments, size, 0);
    status = flush_lane(lane) < 0 ? -1 : status;
    lane->is_alone = 0;
    return status;
}

int
enqueue_zero(char *memory, size_t bytes)
{
    static const unsigned grid[] = {1, 1, 1};
    Zero zero = {memory, bytes};
    return enqueue(ZERO_ENTRY, NULL, grid, 1, &zero, sizeof(zero), bytes > (size_t)1 << 20);
}

/* ---- the module's */

/* flush(): send what was asked of all streams */
PyObject *
module_flush(PyObject *module, PyObject *nothing)
{
    return flush_all_at(AT_END) < 0 ? NULL : Py_NewRef(Py_None);
}

/* flush_pass(): the same at the end of a pass, but for a few short launches behind others: those of an optimizer's step
 * follow them, or the watcher sends them */
PyObject *
module_flush_pass(PyObject *module, PyObject *nothing)
{
    for (int k = 0; k < lane_count; k++) {
        Lane *lane = lanes[k];
        int can_wait = lane->is_fed && lane->waiting < few && lane->long_waiting == 0 && !has_open_chain(lane);
        if (!can_wait && flush_at(AT_END, lane) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

/* leave_out_flush(occasion): do not send queues there, for tests; 0: everywhere. How many occasions there are */
PyObject *
module_leave_out_flush(PyObject *module, PyObject *occasion)
{
    long found = PyLong_AsLong(occasion);
    if (found < 0 || found >= FLUSH_KINDS) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "there is no occasion %ld to send queues", found);
    }
    left_out = (Occasion)found;
    return PyLong_FromLong(FLUSH_KINDS);
}

/* set_launch_mode(entries that are sent together, whether each is waited for[, long ones that are sent together]) */
PyObject *
module_set_launch_mode(PyObject *module, PyObject *args)
{
    int entries, blocking, many = together;
    if (!PyArg_ParseTuple(args, "ip|i", &entries, &blocking, &many) || flush_all() < 0) {
        return NULL;
    }
    together = many;
    limit = entries < 0 ? 0 : entries;
    is_blocking = blocking;
    Py_RETURN_NONE;
}

PyObject *
module_launch_stats(PyObject *module, PyObject *nothing)
{
    int waiting = 0;
    for (int k = 0; k < lane_count; k++) {
        waiting += lanes[k]->waiting;
    }
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:i,s:i}", "launches", counted.launches, "joined", joined_launches, "flushes", counted.flushes, "graphs",
                         counted.graphs, "captures", counted.captures, "remembered", remembered, "waiting", waiting);
}

/* forget_graphs(): free the graphs there are */
PyObject *
module_forget_graphs(PyObject *module, PyObject *nothing)
{
    if (flush_all() < 0) {
        return NULL;
    }
    forget_graphs();
    Py_RETURN_NONE;
}
