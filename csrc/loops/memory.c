/* The system clears the pages of memory that it gives to a process, and takes them back when a large block is freed: for
 * results of a few megabytes that takes longer than computing them. So blocks of large arrays that the core has made are
 * kept when they are freed, up to a limit, and given to the next array of about that size.
 *
 * Only arrays that the core makes itself are concerned. NumPy asks the array's own handler to free its memory. Smaller
 * ones, and those that NumPy makes, are the C library's: see teach_heap.
 */
#include "loops/memory.h"

#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
#include <unistd.h>
#endif

#define LARGE (1 << 18)        /* bytes: smaller blocks are the C library's */
#define MEDIUM (1 << 16)       /* bytes from which on it matters what that does with them */
#define LESSON (1 << 24)       /* bytes up to which it is to keep them */
#define HUGE (1 << 22)         /* bytes from which on large pages are asked for, as NumPy does */
#define MOST_BLOCKS 64
#define MOST_KEPT ((size_t)1 << 29)

/* What lies before the numbers. */
typedef union {
    size_t capacity; /* of a block that may be kept; 0 for others */
    char room[64];   /* so that the numbers begin where vectors do */
} Head;

#if !defined(_WIN32)
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
#define LOCK pthread_mutex_lock(&lock)
#define UNLOCK pthread_mutex_unlock(&lock)
#else
#define LOCK /* Python's lock has to do */
#define UNLOCK
#endif
static Head *blocks[MOST_BLOCKS]; /* the oldest first */
static int block_count;
static size_t kept, limit = (size_t)-1;
static struct {
    size_t used, most_used; /* bytes of blocks that arrays have */
    size_t made, reused;    /* how often the system was asked for one, and how often one was there */
} counts;

/* An eighth of the memory that there is, but not more than half a gigabyte. */
static size_t
usual_limit(void)
{
#if defined(_SC_PHYS_PAGES)
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    size_t part = pages > 0 && size > 0 ? (size_t)pages / 8 * (size_t)size : 0;
    return part < MOST_KEPT ? part : MOST_KEPT;
#else
    return 0;
#endif
}

/* The size of the blocks that serve for so many bytes: one of eight between powers of two. */
static size_t
capacity_for(size_t bytes)
{
    size_t step = LARGE / 8;
    while (step * 16 < bytes) {
        step *= 2;
    }
    return (bytes + step - 1) / step * step;
}

static void
remove_block(int place)
{
    kept -= blocks[place]->capacity;
    memmove(blocks + place, blocks + place + 1, (--block_count - place) * sizeof(*blocks));
}

static Head *
kept_block(size_t capacity)
{
    Head *found = NULL;
    LOCK;
    for (int k = block_count - 1; k >= 0 && found == NULL; k--) {
        if (blocks[k]->capacity == capacity) {
            found = blocks[k];
            remove_block(k);
        }
    }
    counts.used += capacity;
    counts.most_used = counts.used > counts.most_used ? counts.used : counts.most_used;
    counts.reused += found != NULL;
    counts.made += found == NULL;
    UNLOCK;
    return found;
}

static void
count_out(size_t capacity)
{
    LOCK;
    counts.used -= capacity;
    UNLOCK;
}

/* Free the oldest blocks until there is room for one more of that size. */
static void
make_room(size_t capacity)
{
    while (block_count > 0 && (block_count == MOST_BLOCKS || kept + capacity > limit)) {
        Head *oldest = blocks[0];
        remove_block(0);
        free(oldest);
    }
}

/* Memory that begins where vectors do. */
static void *
aligned(size_t bytes)
{
#if defined(_WIN32)
    return malloc(bytes);
#else
    void *memory;
    return posix_memalign(&memory, sizeof(Head), bytes) == 0 ? memory : NULL;
#endif
}

static void *
allocate(void *context, size_t bytes)
{
    size_t capacity = bytes < LARGE ? 0 : capacity_for(bytes);
    Head *head = capacity == 0 ? NULL : kept_block(capacity);
    if (head == NULL) {
        head = bytes > SIZE_MAX / 2 ? NULL : capacity ? aligned(sizeof(Head) + capacity) : malloc(sizeof(Head) + bytes);
        if (head == NULL) {
            count_out(capacity);
            return NULL;
        }
        head->capacity = capacity;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
        if (capacity >= HUGE) {
            size_t page = 4096, first = ((size_t)head + page - 1) / page * page;
            madvise((void *)first, ((size_t)head + capacity - first) / page * page, MADV_HUGEPAGE);
        }
#endif
    }
    return head + 1;
}

static void
release(void *context, void *memory, size_t bytes)
{
    Head *head = memory == NULL ? NULL : (Head *)memory - 1;
    if (head == NULL || head->capacity == 0) {
        free(head);
        return;
    }
    LOCK;
    counts.used -= head->capacity;
    if (limit == (size_t)-1) {
        limit = usual_limit();
    }
    if (head->capacity <= limit) {
        make_room(head->capacity);
        blocks[block_count++] = head;
        kept += head->capacity;
        head = NULL;
    }
    UNLOCK;
    free(head);
}

static void *
allocate_zeros(void *context, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size) {
        return NULL;
    }
    void *memory = allocate(context, count * size);
    return memory == NULL ? NULL : memset(memory, 0, count * size);
}

static void *
reallocate(void *context, void *memory, size_t bytes)
{
    if (memory == NULL) {
        return allocate(context, bytes);
    }
    Head *head = (Head *)memory - 1;
    if (head->capacity == 0) { /* stays the C library's, whatever becomes of it */
        head = bytes > SIZE_MAX - sizeof(Head) ? NULL : realloc(head, sizeof(Head) + bytes);
        return head == NULL ? NULL : head + 1;
    }
    if (bytes <= head->capacity) {
        return memory;
    }
    void *larger = allocate(context, bytes);
    if (larger != NULL) {
        memcpy(larger, memory, head->capacity);
        release(context, memory, 0);
    }
    return larger;
}

/* glibc learns from the large blocks that a program frees: the next ones of that size come from the heap, whose end it
 * keeps up to twice that size. Here large blocks are never freed, so it would learn nothing, and give a heap of blocks of
 * 200 KB back at every step of a loop, page by page. One that nobody has used teaches it, and costs nothing. */
static void
teach_heap(void)
{
#if defined(__GLIBC__)
    static int done; /* guarded by the interpreter's lock */
    if (!done) {
        done = 1;
        void *volatile unused = malloc(LESSON); /* volatile: or the compiler leaves both out */
        free(unused);
    }
#endif
}

void *
borrow(size_t bytes)
{
    return allocate(NULL, bytes);
}

void *
borrow_zeros(size_t count, size_t size)
{
    return allocate_zeros(NULL, count, size);
}

void
give_back(void *memory)
{
    release(NULL, memory, 0);
}

static PyDataMem_Handler handler = {"undertow", 1, {NULL, allocate, allocate_zeros, reallocate, release}};

PyObject *
new_large(int ndim, const npy_intp *shape, const npy_intp *strides, PyArray_Descr *descr)
{
    static PyObject *capsule;
    size_t bytes = PyDataType_ELSIZE(descr);
    for (int d = 0; d < ndim; d++) {
        bytes *= (size_t)shape[d];
    }
    PyObject *before = NULL;
    if (bytes >= MEDIUM) {
        teach_heap();
    }
    if (bytes >= LARGE) {
        if (capsule == NULL && (capsule = PyCapsule_New(&handler, "mem_handler", NULL)) == NULL) {
            PyErr_Clear();
        }
        before = capsule == NULL ? NULL : PyDataMem_SetHandler(capsule);
        PyErr_Clear();
    }
    PyObject *made = PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, strides, NULL, 0, NULL);
    if (before != NULL) {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        Py_XDECREF(PyDataMem_SetHandler(before));
        Py_DECREF(before);
        PyErr_Restore(type, value, trace);
    }
    return made;
}

PyObject *
keep_memory(PyObject *module, PyObject *bytes)
{
    size_t wanted = PyLong_AsSize_t(bytes);
    if (wanted == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    LOCK;
    size_t before = limit == (size_t)-1 ? usual_limit() : limit;
    limit = wanted;
    make_room(0);
    UNLOCK;
    return PyLong_FromSize_t(before);
}

/* kept_memory() -> bytes that are kept, bytes that arrays have, the most they had, blocks made, blocks used again */
PyObject *
kept_memory(PyObject *module, PyObject *nothing)
{
    LOCK;
    size_t now = kept, used = counts.used, most = counts.most_used, made = counts.made, reused = counts.reused;
    UNLOCK;
    return Py_BuildValue("nnnnn", (Py_ssize_t)now, (Py_ssize_t)used, (Py_ssize_t)most, (Py_ssize_t)made,
                         (Py_ssize_t)reused);
}
