#include "loops/threads.h"

#define MOST_THREADS 256
#define WORTHWHILE 8000.0 /* nanoseconds of work for which another thread is asked */

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

#define PARTS_EACH 4   /* so that who is interrupted by another program leaves less undone */
#define LOOKS 4000     /* how often a thread looks before it sleeps: a tenth of a millisecond, or two */
#define FEW_LOOKS 100  /* if there are more threads than processors, so that it takes time from another */
#define STACK (1 << 20)
#define LINE 64        /* bytes that processors hand to each other as one */

/* What is being done, which whoever has the crew writes while nobody is inside. Everybody has a place, 0 is the caller's,
 * and some parts that are its own: it does those first, and then what others have not begun. So if the same arrays are
 * worked on again, they are still near the same processor. */
static struct {
    Share share;
    void *context;
    Py_ssize_t count, parts;
    int places;
} work;
static struct {
    _Alignas(LINE) atomic_long next; /* part of this place that nobody has taken */
} places[MOST_THREADS];

/* The number of the work; up to which place members may enter it, none if it is closed; and how many are inside. A member
 * enters in one step, without a lock, and once. */
static atomic_ullong state;
#define WORKS(state) ((unsigned)((state) >> 32))
#define OPEN(state) ((int)((state) >> 16 & 0xffff))
#define INSIDE(state) ((int)((state) & 0xffff))

/* A member that finds nothing to do for long sleeps. It says so before it looks for the last time, and who has news gives
 * them before looking whether somebody sleeps: so one of them sees the other. */
typedef struct {
    _Alignas(LINE) pthread_t thread;
    pthread_mutex_t lock; /* guards falling asleep and waking up */
    pthread_cond_t wake;
    atomic_int is_asleep;
    int place;
    unsigned seen; /* the number of the last work that it has entered */
} Member;

static Member crew[MOST_THREADS]; /* the one at place p is crew[p] */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the same for a caller that waits for members to leave */
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;
static atomic_int is_waiting;
static atomic_flag busy = ATOMIC_FLAG_INIT; /* whether somebody has the crew: it may use and change what is below */
static int made, prepared;      /* made: members, at the places 1 to `made` */
static atomic_int ending, looks = LOOKS;

static inline void
rest(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Part number k of a place; whether there is one. */
static int
do_part(int place, long k)
{
    Py_ssize_t first = work.parts * place / work.places + k;
    if (first >= work.parts * (place + 1) / work.places) {
        return 0;
    }
    work.share(work.context, work.count * first / work.parts, work.count * (first + 1) / work.parts);
    return 1;
}

static void
do_parts(int own)
{
    for (int k = 0; k < work.places; k++) {
        int place = (own + k) % work.places;
        while (atomic_load(&places[place].next) < work.parts && do_part(place, atomic_fetch_add(&places[place].next, 1))) {
        }
    }
}

static int
is_wanted(const Member *member)
{
    unsigned long long now = atomic_load(&state);
    return OPEN(now) > member->place && WORKS(now) != member->seen;
}

static int
enter(Member *member)
{
    unsigned long long now = atomic_load(&state);
    while (OPEN(now) > member->place && WORKS(now) != member->seen) {
        if (atomic_compare_exchange_weak(&state, &now, now + 1)) {
            member->seen = WORKS(now);
            return 1;
        }
    }
    return 0;
}

static void
leave(void)
{
    unsigned long long before = atomic_fetch_sub(&state, 1);
    if (OPEN(before) == 0 && INSIDE(before) == 1 && atomic_load(&is_waiting)) {
        pthread_mutex_lock(&lock);
        pthread_cond_signal(&left);
        pthread_mutex_unlock(&lock);
    }
}

static void
wake(Member *member)
{
    if (atomic_load(&member->is_asleep)) {
        pthread_mutex_lock(&member->lock);
        pthread_cond_signal(&member->wake);
        pthread_mutex_unlock(&member->lock);
    }
}

/* Everybody wakes two others, who wake two others: it takes as long as several steps, and not as many as there are. */
static void
wake_others(int place)
{
    for (int other = 2 * place + 1; other <= 2 * place + 2 && other < work.places; other++) {
        wake(&crew[other]);
    }
}

static void
sleep_until_wanted(Member *member)
{
    pthread_mutex_lock(&member->lock);
    atomic_store(&member->is_asleep, 1);
    while (!is_wanted(member) && !atomic_load(&ending)) {
        pthread_cond_wait(&member->wake, &member->lock);
    }
    atomic_store(&member->is_asleep, 0);
    pthread_mutex_unlock(&member->lock);
}

static void *
run_member(void *given)
{
    Member *member = given;
    while (!atomic_load(&ending)) {
        if (enter(member)) {
            wake_others(member->place);
            do_parts(member->place);
            leave();
            int most = atomic_load(&looks);
            for (int look = 0; look < most && !is_wanted(member) && !atomic_load(&ending); look++) {
                rest();
            }
        }
        else {
            sleep_until_wanted(member);
        }
    }
    return NULL;
}

/* In the child of a fork: the threads are not there, and what they held is nobody's. */
static void
forget_crew(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&left, NULL);
    atomic_flag_clear(&busy);
    atomic_store(&state, 0);
    atomic_store(&is_waiting, 0);
    atomic_store(&ending, 0);
    made = 0;
}

/* End all members; for whoever is `busy`. */
static void
end_crew(void)
{
    atomic_store(&ending, 1);
    for (int place = 1; place <= made; place++) {
        wake(&crew[place]);
    }
    for (int place = 1; place <= made; place++) {
        pthread_join(crew[place].thread, NULL);
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

static int
make_member(int place, const pthread_attr_t *small)
{
    Member *member = &crew[place];
    pthread_mutex_init(&member->lock, NULL);
    pthread_cond_init(&member->wake, NULL);
    atomic_store(&member->is_asleep, 0);
    member->place = place;
    member->seen = WORKS(atomic_load(&state));
    return pthread_create(&member->thread, small, run_member, member) == 0;
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
    while (made < members && make_member(made + 1, &small)) {
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
finish(void)
{
    int most = atomic_load(&looks);
    atomic_fetch_and(&state, ~(0xffffull << 16));
    for (int look = 0; look < most && INSIDE(atomic_load(&state)) > 0; look++) {
        rest();
    }
    if (INSIDE(atomic_load(&state)) == 0) {
        return;
    }
    pthread_mutex_lock(&lock);
    atomic_store(&is_waiting, 1);
    while (INSIDE(atomic_load(&state)) > 0) {
        pthread_cond_wait(&left, &lock);
    }
    atomic_store(&is_waiting, 0);
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
    work.share = share;
    work.context = context;
    work.count = count;
    work.parts = members * PARTS_EACH < count ? members * PARTS_EACH : count;
    work.places = members;
    for (int place = 0; place < members; place++) {
        atomic_store_explicit(&places[place].next, 0, memory_order_relaxed);
    }
    unsigned number = WORKS(atomic_load(&state)) + 1;
    atomic_store(&state, (unsigned long long)number << 32 | (unsigned long long)members << 16);
    wake_others(0);
    do_parts(0);
    finish();
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
    choose_looks();
    return PyLong_FromLong(before);
}
