/* Queues that were forgotten: a program that turns to other work for a while has its launches sent all the same.
 *
 * A thread looks at the queues every now and then, without Python's lock, and sees whether one has something in it and
 * has not changed since it looked last. Then it takes the lock, looks again, and sends the queue. A program that goes on
 * asking for things is left alone, so that its sequences are cut where they were cut before, and stay graphs.
 */
#include "cuda/cuda.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long period;         /* microseconds between two looks; 0: the thread ends */
static pthread_t watcher;
static pid_t process;       /* whose thread it is; 0: there is none */
static volatile int sleeps; /* whether it waits for something to look at */

typedef struct {
    int waiting;
    size_t filled;
    uint64_t hash;
} Look;

static Look
look_at(const volatile Lane *lane)
{
    return (Look){lane->waiting, lane->filled, lane->hash};
}

static int
is_unchanged(Look one, Look other)
{
    return one.waiting && one.waiting == other.waiting && one.filled == other.filled && one.hash == other.hash;
}

/* Send the queues that are as they were; how many have something in them. */
static int
look(Look *before)
{
    int waiting = 0, forgotten = 0, count = lane_count;
    for (int k = 0; k < count; k++) {
        Look now = look_at(lanes[k]);
        waiting += now.waiting != 0;
        forgotten += is_unchanged(now, before[k]);
    }
    if (forgotten) {
        PyGILState_STATE state = PyGILState_Ensure();
        for (int k = 0; k < count; k++) {
            if (is_unchanged(look_at(lanes[k]), before[k]) && flush_lane(lanes[k]) < 0) {
                PyErr_Clear(); /* an error of the device, which the next look at it meets again */
            }
        }
        PyGILState_Release(state);
    }
    for (int k = 0; k < count; k++) {
        before[k] = look_at(lanes[k]);
    }
    return waiting;
}

static void *
watch(void *nothing)
{
    static Look before[MOST_LANES];
    int quiet = 0;
    pthread_mutex_lock(&lock);
    while (period) {
        if (quiet > 100) { /* nothing to do for a while */
            sleeps = 1;
            pthread_cond_wait(&changed, &lock);
            sleeps = 0;
            quiet = 0;
            continue;
        }
        struct timespec rest = {period / 1000000, period % 1000000 * 1000};
        pthread_mutex_unlock(&lock);
        nanosleep(&rest, NULL);
        quiet = look(before) ? 0 : quiet + 1;
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

void
note_waiting(void)
{
    if (sleeps) {
        pthread_mutex_lock(&lock);
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
    }
}

/* set_watch(microseconds): look at queues that often; 0: never */
PyObject *
module_set_watch(PyObject *module, PyObject *microseconds)
{
    long wanted = PyLong_AsLong(microseconds);
    if (wanted < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "a time cannot be negative");
    }
    pthread_mutex_lock(&lock);
    period = wanted;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    if (wanted == 0 && process == getpid()) {
        Py_BEGIN_ALLOW_THREADS /* it may be waiting for Python's lock */
        pthread_join(watcher, NULL);
        Py_END_ALLOW_THREADS
        process = 0;
    }
    if (wanted && process != getpid()) {
        process = pthread_create(&watcher, NULL, watch, NULL) == 0 ? getpid() : 0;
    }
    Py_RETURN_NONE;
}
