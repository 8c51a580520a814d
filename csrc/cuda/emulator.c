/* The streams of emulated devices: a thread for each, so that what no wait orders really runs in any order.
 *
 * While there is one stream, nothing could be told from a thread, and what it is sent runs at once. Kernels run one at a
 * time, whatever stream they are of, because those that g++ has compiled keep the number of their block in one place.
 *
 * Guarantees: the work of a stream runs in the order in which it was given. Whoever waits gives up Python's lock first.
 */
#include "cuda/cuda.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

typedef struct Job {
    struct Job *next;
    size_t bytes;
    char entries[];
} Job;

struct Worker {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t moved;
    Job *first, **last;
    unsigned long long given, done;
    pid_t process; /* whose thread it is: after a fork there is none */
};

static pthread_mutex_t processor = PTHREAD_MUTEX_INITIALIZER; /* held by the kernel that runs */

typedef struct {
    Lane *lane;
    unsigned long long work;
} Wait;

typedef struct {
    void *to;
    const void *from;
    size_t bytes;
} Copy;

static void
wait_until(Worker *worker, unsigned long long work)
{
    pthread_mutex_lock(&worker->lock);
    while (worker->done < work) {
        pthread_cond_wait(&worker->moved, &worker->lock);
    }
    pthread_mutex_unlock(&worker->lock);
}

static void
sleep_for(long long nanoseconds)
{
    struct timespec left = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

static void
perform(const Entry *entry)
{
    const void *arguments = entry + 1;
    struct timespec now;
    switch (entry->kind) {
    case WAIT_ENTRY:
        wait_until(((const Wait *)arguments)->lane->worker, ((const Wait *)arguments)->work);
        break;
    case SLEEP_ENTRY:
        sleep_for(*(const long long *)arguments);
        break;
    case STAMP_ENTRY:
        clock_gettime(CLOCK_MONOTONIC, &now);
        **(double *const *)arguments = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
        break;
    case COPY_ENTRY:
        memcpy(((const Copy *)arguments)->to, ((const Copy *)arguments)->from, ((const Copy *)arguments)->bytes);
        break;
    default:
        pthread_mutex_lock(&processor);
        issue(entry);
        pthread_mutex_unlock(&processor);
    }
}

static void
perform_all(const char *entries, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const Entry *entry = (const Entry *)(entries + at);
        perform(entry);
        at += sizeof(Entry) + entry->size;
    }
}

static void *
work(void *given)
{
    Worker *self = given;
    for (;;) {
        pthread_mutex_lock(&self->lock);
        while (self->first == NULL) {
            pthread_cond_wait(&self->moved, &self->lock);
        }
        Job *job = self->first;
        pthread_mutex_unlock(&self->lock);
        perform_all(job->entries, job->bytes);
        pthread_mutex_lock(&self->lock);
        self->first = job->next;
        if (self->first == NULL) {
            self->last = &self->first;
        }
        self->done++;
        pthread_cond_broadcast(&self->moved);
        pthread_mutex_unlock(&self->lock);
        free(job);
    }
    return NULL;
}

/* The thread of a stream, which is started if there is none, as in the child of a fork. */
static Worker *
worker_of(Lane *lane)
{
    static pid_t process; /* whose kernels hold `processor` */
    pthread_t thread;
    if (lane->worker != NULL && lane->worker->process == getpid()) {
        return lane->worker;
    }
    Worker *made = calloc(1, sizeof(Worker));
    if (made == NULL) {
        return NULL;
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->moved, NULL);
    made->last = &made->first;
    made->process = getpid();
    if (process != made->process) { /* a thread of the parent may have held it */
        pthread_mutex_init(&processor, NULL);
        process = made->process;
    }
    if (lane->worker != NULL) { /* what the parent's thread was about to do is not done here */
        made->given = made->done = lane->worker->given;
    }
    if (pthread_create(&thread, NULL, work, made) != 0) {
        free(made);
        return NULL;
    }
    pthread_detach(thread);
    return lane->worker = made;
}

static int
give(Worker *worker, const char *entries, size_t bytes)
{
    Job *job = malloc(sizeof(Job) + bytes);
    if (worker == NULL || job == NULL) {
        free(job);
        PyErr_NoMemory();
        return -1;
    }
    job->next = NULL;
    job->bytes = bytes;
    memcpy(job->entries, entries, bytes);
    pthread_mutex_lock(&worker->lock);
    *worker->last = job;
    worker->last = &job->next;
    worker->given++;
    pthread_cond_broadcast(&worker->moved);
    pthread_mutex_unlock(&worker->lock);
    return 0;
}

int
emulate(Lane *lane, const char *entries, size_t bytes)
{
    if (lane_count == 1 && lane->worker == NULL) {
        perform_all(entries, bytes);
        return 0;
    }
    return give(worker_of(lane), entries, bytes);
}

static int
emulate_one(Lane *lane, int kind, const void *arguments, size_t size)
{
    char room[sizeof(Entry) + 32];
    Entry entry = {.kind = kind, .size = (unsigned)size};
    memcpy(room, &entry, sizeof(entry));
    memcpy(room + sizeof(entry), arguments, size);
    return emulate(lane, room, sizeof(entry) + size);
}

int
emulate_wait(Lane *lane, const Mark *mark)
{
    Wait wait = {mark->lane, mark->at};
    if (mark->lane == lane || mark->lane->worker == NULL) {
        return 0;
    }
    return emulate_one(lane, WAIT_ENTRY, &wait, sizeof(wait));
}

int
emulate_sleep(Lane *lane, long long nanoseconds)
{
    return emulate_one(lane, SLEEP_ENTRY, &nanoseconds, sizeof(nanoseconds));
}

int
emulate_stamp(Lane *lane, double *place)
{
    return emulate_one(lane, STAMP_ENTRY, &place, sizeof(place));
}

int
emulate_copy(Lane *lane, void *to, const void *from, size_t bytes)
{
    Copy copy = {to, from, bytes};
    return emulate_one(lane, COPY_ENTRY, &copy, sizeof(copy));
}

/* ---- gates: streams that stand still until the program says so, for tests of what waits for what */

static Worker program = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
static Lane program_lane = {.worker = &program};

/* close_gate(stream): let it stand still until open_gates() is called */
PyObject *
module_close_gate(PyObject *module, PyObject *number)
{
    Lane *lane = lane_of_number(number);
    if (lane == NULL || !is_emulated || flush_lane(lane) < 0) {
        return lane == NULL || is_emulated ? NULL : PyErr_Format(PyExc_RuntimeError, "gates are for emulated devices");
    }
    Wait wait = {&program_lane, ++program.given};
    return worker_of(lane) == NULL || emulate_one(lane, WAIT_ENTRY, &wait, sizeof(wait)) < 0 ? NULL : Py_NewRef(Py_None);
}

/* open_gates(): let all streams go on that stand at one */
PyObject *
module_open_gates(PyObject *module, PyObject *nothing)
{
    pthread_mutex_lock(&program.lock);
    program.done = program.given;
    pthread_cond_broadcast(&program.moved);
    pthread_mutex_unlock(&program.lock);
    Py_RETURN_NONE;
}

/* ---- how far a stream has come */

unsigned long long
emulated_work(const Lane *lane)
{
    return lane->worker == NULL ? 0 : lane->worker->given;
}

int
is_emulated_done(Lane *lane, unsigned long long work)
{
    if (lane->worker == NULL) {
        return 1;
    }
    Worker *worker = worker_of(lane);
    if (worker == NULL) {
        return 1;
    }
    pthread_mutex_lock(&worker->lock);
    int done = worker->done >= work;
    pthread_mutex_unlock(&worker->lock);
    return done;
}

void
wait_emulated(Lane *lane, unsigned long long work)
{
    Worker *worker = lane->worker == NULL ? NULL : worker_of(lane);
    if (worker != NULL && !is_emulated_done(lane, work)) {
        Py_BEGIN_ALLOW_THREADS
        wait_until(worker, work);
        Py_END_ALLOW_THREADS
    }
}

/* ---- memory: which device's it is, so that a kernel of another device cannot use it unnoticed */

typedef struct {
    char *start, *end;
    const Gpu *gpu;
} Range;

static Range *ranges;
static int range_count, range_room;

char *
emulated_memory(size_t bytes)
{
    size_t rounded = (bytes + 511) & ~(size_t)511;
    if (range_count == range_room) {
        int room = range_room ? 2 * range_room : 64;
        Range *more = realloc(ranges, room * sizeof(Range));
        if (more == NULL) {
            return NULL;
        }
        ranges = more;
        range_room = room;
    }
    char *found = aligned_alloc(512, rounded);
    if (found != NULL) {
        ranges[range_count++] = (Range){found, found + rounded, the_gpu};
    }
    return found;
}

void
emulated_free(char *memory)
{
    for (int k = 0; k < range_count; k++) {
        if (ranges[k].start == memory) {
            ranges[k] = ranges[--range_count];
            break;
        }
    }
    free(memory);
}

int
check_emulated_pointers(const Lane *lane, const void *arguments, size_t size)
{
    char *const *words = arguments;
    for (size_t k = 0; k < size / 8; k++) {
        for (int r = 0; r < range_count; r++) {
            if (ranges[r].gpu != lane->gpu && words[k] >= ranges[r].start && words[k] < ranges[r].end) {
                PyErr_Format(PyExc_RuntimeError, "a kernel of cuda:%d was given memory of cuda:%d", lane->gpu->index,
                             ranges[r].gpu->index);
                return -1;
            }
        }
    }
    return 0;
}
