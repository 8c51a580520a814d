#include "loops/threads.h"

#include <math.h>

#define MOST_THREADS 256
/* nanoseconds that each thread costs the others: somebody waits for the last one to be done. Between the kernels of a
 * program threads look for work, and need not be woken. */
#define COST_OF_THREAD 600.0
#define LEAST_WORK 12000.0 /* nanoseconds that one thread does alone */

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

static void
choose_looks(void)
{
}

#else

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#define PARTS_EACH 4   /* so that who is interrupted by another program leaves less undone */
/* How often a thread looks before it sleeps: for 0.2 to 0.5 milliseconds, so that it need not be woken for the next function
 * of a program. */
#define LOOKS 10000
#define FEW_LOOKS 100  /* if there are more threads than processors, so that it takes time from another */
#define STACK (1 << 20)

/* What is being done. Whoever has the crew writes it while no member is inside, then opens it by giving out seats in
 * `state`, and closes it by taking back those that are left. A member takes a seat and is inside, in one step, until it
 * has left: nobody needs the lock for that. */
static struct {
    Share share;
    void *context;
    Py_ssize_t count, parts;
    atomic_long next; /* part that nobody has taken */
} work;
static atomic_uint state;       /* SEAT times the seats that are free, plus the number of members that are inside */
#define SEAT 0x10000u

/* Who finds nothing to do for long sleeps. It says so before it looks for the last time, and who has news gives them before
 * looking whether somebody sleeps: so one of them sees the other. */
static atomic_int calls;        /* counts works that were opened: members wait for the next */
static atomic_int sleepers;     /* members that do */
static atomic_int done;         /* counts works that all have left: the caller waits for the next */
static atomic_int is_waiting;   /* whether it does */
static atomic_flag busy = ATOMIC_FLAG_INIT; /* whether somebody has the crew: it may use and change what is below */
static pthread_t crew[MOST_THREADS];
static int made, prepared;
static atomic_int ending, looks = LOOKS;

static inline void
rest(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void
do_parts(void)
{
    for (;;) {
        long part = atomic_fetch_add(&work.next, 1);
        if (part >= work.parts) {
            return;
        }
        work.share(work.context, work.count * part / work.parts, work.count * (part + 1) / work.parts);
    }
}

static int
has_seats(void)
{
    return atomic_load(&state) >= SEAT;
}

static int
take_seat(void)
{
    unsigned now = atomic_load(&state);
    while (now >= SEAT) {
        if (atomic_compare_exchange_weak(&state, &now, now - SEAT + 1)) {
            return 1;
        }
    }
    return 0;
}

/* ---- sleeping: until a counter is no longer what it was */

#if defined(__linux__)
static void
sleep_at(atomic_int *counter, int seen)
{
    syscall(SYS_futex, counter, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0); /* or not, if it has changed; or by a signal */
}

static void
wake_at(atomic_int *counter, int number)
{
    syscall(SYS_futex, counter, FUTEX_WAKE_PRIVATE, number, NULL, NULL, 0);
}

#else
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards falling asleep and waking up */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void
sleep_at(atomic_int *counter, int seen)
{
    pthread_mutex_lock(&lock);
    if (atomic_load(counter) == seen) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static void
wake_at(atomic_int *counter, int number)
{
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}
#endif

static void
leave(void)
{
    if (atomic_fetch_sub(&state, 1) == 1) { /* closed, and this was the last */
        atomic_fetch_add(&done, 1);
        if (atomic_load(&is_waiting)) {
            wake_at(&done, 1);
        }
    }
}

static void
sleep_until_wanted(void)
{
    int seen = atomic_load(&calls);
    atomic_fetch_add(&sleepers, 1);
    if (!has_seats() && !atomic_load(&ending)) {
        sleep_at(&calls, seen);
    }
    atomic_fetch_sub(&sleepers, 1);
}

static void *
run_member(void *nothing)
{
    while (!atomic_load(&ending)) {
        if (take_seat()) {
            do_parts();
            leave();
            int most = atomic_load(&looks);
            for (int look = 0; look < most && !has_seats() && !atomic_load(&ending); look++) {
                rest();
            }
        }
        else {
            sleep_until_wanted();
        }
    }
    return NULL;
}

/* In the child of a fork: the threads are not there, and what they held is nobody's. */
static void
forget_crew(void)
{
#if !defined(__linux__)
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&changed, NULL);
#endif
    atomic_flag_clear(&busy);
    atomic_store(&state, 0);
    atomic_store(&sleepers, 0);
    atomic_store(&is_waiting, 0);
    atomic_store(&ending, 0);
    made = 0;
}

/* End all members; for whoever is `busy`. */
static void
end_crew(void)
{
    atomic_store(&ending, 1);
    atomic_fetch_add(&calls, 1);
    wake_at(&calls, MOST_THREADS);
    for (int k = 0; k < made; k++) {
        pthread_join(crew[k], NULL);
    }
    made = 0;
    atomic_store(&ending, 0);
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

/* Whoever looks for work must not take the time of whoever does it. */
static void
choose_looks(void)
{
    atomic_store(&looks, threads <= sysconf(_SC_NPROCESSORS_ONLN) ? LOOKS : FEW_LOOKS);
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
    /* where work / threads + cost * threads is least */
    double worth = nanoseconds < LEAST_WORK ? 1 : sqrt(nanoseconds / COST_OF_THREAD);
    int members = threads < count ? threads : count < 1 ? 1 : (int)count;
    return worth < members ? (worth < 1 ? 1 : (int)worth) : members;
}

/* Close the work, and wait until all who entered have left. */
static void
finish(void)
{
    int most = atomic_load(&looks), seen = atomic_load(&done);
    atomic_fetch_and(&state, SEAT - 1);
    for (int look = 0; look < most && atomic_load(&state) > 0; look++) {
        rest();
    }
    atomic_store(&is_waiting, 1);
    while (atomic_load(&state) > 0) {
        sleep_at(&done, seen);
        seen = atomic_load(&done);
    }
    atomic_store(&is_waiting, 0);
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
    work.share = share;
    work.context = context;
    work.count = count;
    work.parts = members * PARTS_EACH < count ? members * PARTS_EACH : count;
    atomic_store(&work.next, 0);
    atomic_store(&state, SEAT * (members - 1));
    atomic_fetch_add(&calls, 1);
    int asleep = atomic_load(&sleepers), wanted = members - 1 - (made - asleep); /* who is awake need not be woken */
    if (asleep > 0 && wanted > 0) {
        wake_at(&calls, wanted);
    }
    do_parts();
    finish();
    atomic_flag_clear(&busy);
}

#endif

int
threads_now(void)
{
    return threads;
}

/* threads_at_most() -> how many may work on one thing */
PyObject *
threads_at_most(PyObject *module, PyObject *nothing)
{
    return PyLong_FromLong(threads);
}

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
    choose_looks();
    return PyLong_FromLong(before);
}
