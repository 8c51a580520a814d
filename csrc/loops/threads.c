#include "loops/threads.h"

#define MOST_THREADS 256
#define WORTHWHILE 20000.0 /* nanoseconds of work for which a thread is woken, which takes a quarter of that */

static int threads = 1;

#ifdef _WIN32

void
divide(Share share, void *context, Py_ssize_t count, double nanoseconds)
{
    share(context, 0, count);
}

static void
end_surplus(void)
{
}

#else

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define PARTS_EACH 4   /* so that who is interrupted by another program leaves less undone */
#define LOOKS 1000     /* how often a thread looks before it sleeps: some tens of microseconds */
#define STACK (1 << 20)

/* What is being done. A member enters and leaves under the lock, so that the caller, who closes the work first, knows
 * when nobody reads it any more. */
typedef struct {
    Share share;
    void *context;
    Py_ssize_t count, parts;
    atomic_long next;   /* part that nobody has taken */
    int wanted;         /* how many members may still enter */
    atomic_int inside;  /* how many have not left */
} Work;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `work`, `made` and `ending` */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, left = PTHREAD_COND_INITIALIZER;
static Work *work;              /* NULL: none that could be entered */
static atomic_uint calls;       /* counts the works, for members that look without the lock */
static atomic_flag busy = ATOMIC_FLAG_INIT; /* whether somebody has the crew: it may use and change what is below */
static pthread_t crew[MOST_THREADS];
static int made, ending, prepared;

static inline void
rest(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void
do_parts(Work *some)
{
    for (;;) {
        long part = atomic_fetch_add(&some->next, 1);
        if (part >= some->parts) {
            return;
        }
        some->share(some->context, some->count * part / some->parts, some->count * (part + 1) / some->parts);
    }
}

static void *
run_member(void *nothing)
{
    unsigned seen = atomic_load(&calls);
    pthread_mutex_lock(&lock);
    while (!ending) {
        if (work != NULL && work->wanted > 0) {
            Work *some = work;
            some->wanted--;
            some->inside++;
            pthread_mutex_unlock(&lock);
            do_parts(some);
            pthread_mutex_lock(&lock);
            if (--some->inside == 0) {
                pthread_cond_signal(&left);
            }
            seen = atomic_load(&calls);
            pthread_mutex_unlock(&lock);
            for (int look = 0; look < LOOKS && atomic_load_explicit(&calls, memory_order_relaxed) == seen; look++) {
                rest();
            }
            pthread_mutex_lock(&lock);
        }
        else {
            pthread_cond_wait(&wake, &lock);
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* In the child of a fork: the threads are not there, and what they held is nobody's. */
static void
forget_crew(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&wake, NULL);
    pthread_cond_init(&left, NULL);
    atomic_flag_clear(&busy);
    work = NULL;
    made = ending = 0;
}

/* End all members; for whoever is `busy`. */
static void
end_crew(void)
{
    pthread_mutex_lock(&lock);
    ending = 1;
    atomic_fetch_add(&calls, 1);
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    for (int k = 0; k < made; k++) {
        pthread_join(crew[k], NULL);
    }
    made = ending = 0;
}

static void
end_at_exit(void)
{
    if (made > 0 && !atomic_flag_test_and_set(&busy)) { /* a thread that still works is left alone */
        end_crew();
        atomic_flag_clear(&busy);
    }
}

/* More members than are asked for now end; if they are at work, they stay and sleep. */
static void
end_surplus(void)
{
    if (made > threads - 1) {
        end_at_exit();
    }
}

/* Have so many members, or as many as there can be; for whoever is `busy`. */
static void
make_crew(int members)
{
    if (!prepared) {
        prepared = 1;
        pthread_atfork(NULL, NULL, forget_crew);
        Py_AtExit(end_at_exit);
    }
    sigset_t all, before; /* signals are for the threads that Python knows */
    pthread_attr_t small;
    sigfillset(&all);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (made < members && pthread_create(&crew[made], &small, run_member, NULL) == 0) {
        made++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&small);
}

static int
members_for(Py_ssize_t count, double nanoseconds)
{
    double worth = nanoseconds / WORTHWHILE;
    int members = threads < count ? threads : count < 1 ? 1 : (int)count;
    return worth < members ? (worth < 1 ? 1 : (int)worth) : members;
}

/* Close the work, and wait until all who entered have left. */
static void
finish(Work *some)
{
    pthread_mutex_lock(&lock);
    work = NULL;
    pthread_mutex_unlock(&lock);
    for (int look = 0; look < LOOKS && atomic_load(&some->inside) > 0; look++) {
        rest();
    }
    pthread_mutex_lock(&lock);
    while (some->inside > 0) {
        pthread_cond_wait(&left, &lock);
    }
    pthread_mutex_unlock(&lock);
}

void
divide(Share share, void *context, Py_ssize_t count, double nanoseconds)
{
    int members = members_for(count, nanoseconds);
    if (members < 2 || atomic_flag_test_and_set(&busy)) {
        share(context, 0, count);
        return;
    }
    if (made < members - 1) {
        make_crew(members - 1);
    }
    Py_ssize_t parts = members * PARTS_EACH < count ? members * PARTS_EACH : count;
    Work some = {.share = share, .context = context, .count = count, .parts = parts, .wanted = members - 1};
    pthread_mutex_lock(&lock);
    work = &some;
    atomic_fetch_add(&calls, 1);
    if (members - 1 < made) {
        for (int k = 1; k < members; k++) {
            pthread_cond_signal(&wake);
        }
    }
    else {
        pthread_cond_broadcast(&wake);
    }
    pthread_mutex_unlock(&lock);
    do_parts(&some);
    finish(&some);
    atomic_flag_clear(&busy);
}

#endif

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
    end_surplus();
    return PyLong_FromLong(before);
}
