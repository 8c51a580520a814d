#include "loops/threads.h"

#define MOST_THREADS 256
#define WORTHWHILE 100000.0 /* nanoseconds of work for which a thread is made, which takes a tenth of that */

static int threads = 1;

/* set_threads(number): how many may work on one thing; returns how many might before */
PyObject *
set_threads(PyObject *module, PyObject *number)
{
    long wanted = PyLong_AsLong(number);
    if (wanted == -1 && PyErr_Occurred()) {
        return NULL;
    }
    int before = threads;
    threads = wanted < 1 ? 1 : wanted > MOST_THREADS ? MOST_THREADS : (int)wanted;
    return PyLong_FromLong(before);
}

#ifdef _WIN32

void
divide(Share share, void *context, Py_ssize_t count, double nanoseconds)
{
    share(context, 0, count);
}

#else

#include <pthread.h>

typedef struct {
    Share share;
    void *context;
    Py_ssize_t first, last;
    pthread_t thread;
    int is_running;
} Member;

static void *
run_member(void *argument)
{
    Member *member = argument;
    member->share(member->context, member->first, member->last);
    return NULL;
}

static int
members_for(Py_ssize_t count, double nanoseconds)
{
    double worth = nanoseconds / WORTHWHILE;
    int members = threads < count ? threads : count < 1 ? 1 : (int)count;
    return worth < members ? (worth < 1 ? 1 : (int)worth) : members;
}

void
divide(Share share, void *context, Py_ssize_t count, double nanoseconds)
{
    int members = members_for(count, nanoseconds);
    Member crew[MOST_THREADS];
    for (int k = 1; k < members; k++) { /* the first share is done here */
        crew[k] = (Member){share, context, count * k / members, count * (k + 1) / members};
        crew[k].is_running = pthread_create(&crew[k].thread, NULL, run_member, &crew[k]) == 0;
    }
    share(context, 0, count / members);
    for (int k = 1; k < members; k++) {
        if (crew[k].is_running) {
            pthread_join(crew[k].thread, NULL);
        }
        else {
            run_member(&crew[k]);
        }
    }
}

#endif
