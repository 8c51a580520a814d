/* undertow._cuda: arrays in the memory of a GPU, and launching kernels on them.
 *
 * driver.c       the functions of the driver, found when a device is first used; the devices there are
 * sending.c      what is asked of the driver: memory, copies, launches, graphs
 * lanes.c        streams, and which of them work goes to      events.c   points in their work, to wait for
 * emulator.c     the threads that are the streams of emulated devices
 * memory.c       blocks of device memory: lowest free one first, statistics, what happens when there is none left
 * ranges.c       large ones: parts of segments, cut off and joined again
 * held.c         blocks that are free, and still in use by another stream       pinned.c   memory of the host for copies
 * queue.c        what is asked of a stream, sent together; repeated sequences as graphs        watch.c   forgotten ones
 * launch.c       a kernel, a grid and its arguments
 * chains.c       elementwise launches that become one        chain_kernels.c   the kernels of these
 * array.c        the array type            views.c, indices.c   the same memory with other shapes and strides
 * dlpack.c       memory shared with other libraries
 * copies.c       to and from the host      operators.c   what `+`, `<`, `@` and their like mean
 * elementwise.c  kernels of one formula, for arrays of any layout
 * reduce.c       sums and their like       products.c    matrix products, by cuBLAS
 * updates.c      one launch for many arrays: the steps of optimizers
 * convolution.c  convolutions, by cuDNN    plans.c       graphs of operations, by cuDNN
 * library_calls.c  what else cuSOLVER and cuBLAS are asked for
 * shortcuts.c    functions of Python that go without it in the usual case
 * light.c        matrix products, by cuBLASLt: half precision, and with a bias        product_on_host.c   emulated ones
 *
 * Everything happens under Python's lock, but waiting, and what the threads of emulator.c do. With UNDERTOW_CUDA=emulate
 * "device" memory is the host's, and the same kernels are compiled by the host's compiler.
 *
 * Note [The device in use]: a thread works on one device at a time, the_gpu: that of the array it has last asked something
 * of (its shape, a view, an operation), or the one it has entered by `enter(device)`. New arrays lie there, and launches
 * go to the current stream of it.
 */
#ifndef UNDERTOW_CUDA_H
#define UNDERTOW_CUDA_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define PY_ARRAY_UNIQUE_SYMBOL undertow_cuda_array_api
#ifndef UNDERTOW_CUDA_MODULE
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include <stdint.h>

#include "cuda/array.h"

/* ---- driver.c */

typedef unsigned long long DevicePointer;
typedef void *Stream, *Function, *Module;

#define MOST_GPUS 8
#define LANES_PER_GPU 32
#define MOST_LANES (MOST_GPUS * LANES_PER_GPU)

typedef struct Lane Lane;

/* A device, with the numbers of its memory: see memory.c. */
typedef struct {
    int index, device, is_started, overlaps_launches;
    void *context;
    Lane *first; /* its default stream */
    int lanes;
    size_t allocated, reserved, most_allocated, most_reserved, limit;
    long long allocations, driver_allocations, retries, out_of_memory;
} Gpu;

extern int is_emulated, gpu_count;
extern Gpu gpus[MOST_GPUS];
/* See Note [The device in use]. */
extern __thread Gpu *the_gpu;

/* Whether a call of the driver has failed; then with an exception that names what was being done. */
int failed(int result, const char *what);
/* Make the context of the device in use, or of another, that of this thread. */
int enter_context(void);
int enter_context_of(Gpu *gpu);
/* Make a device the one in use; it is made ready. */
int enter_gpu(int index);
/* The words that kernels write to when an index is out of range: four for each line of the program that has such
 * kernels. See backend/cuda/sites.py. */
extern long long *index_error;
#define MOST_SITES 1024
/* Raise what kernels have noted since the last look. */
int raise_index_error(void);
/* Memory of the host that the device reads and writes without a detour. */
extern char *staging;
#define STAGING_BYTES 4096

PyObject *module_start(PyObject *module, PyObject *args);
PyObject *module_describe(PyObject *module, PyObject *index);
PyObject *module_enter(PyObject *module, PyObject *index);
PyObject *module_load(PyObject *module, PyObject *args);
PyObject *module_error_word(PyObject *module, PyObject *site);
PyObject *module_name_sites(PyObject *module, PyObject *function);
PyObject *module_can_reach_peer(PyObject *module, PyObject *args);
PyObject *module_free_memory(PyObject *module, PyObject *nothing);

/* ---- sending.c */

/* The stream that is being sent to; `flush` sets it. */
extern Stream the_stream;
extern Lane *the_lane;
/* Make a lane the one that is being sent to, and its device's context that of this thread. */
int send_to(Lane *lane);

/* Memory of the device in use, or NULL: it has none left. */
char *driver_allocate(size_t bytes);
void driver_free(char *memory);
/* Copies on the current stream of the device in use, which are waited for. */
int driver_copy_to_device(char *to, const void *from, size_t bytes);
int driver_copy_to_host(void *to, const char *from, size_t bytes);
int driver_fill_zero(char *memory, size_t bytes);
int driver_launch(Function function, const unsigned *grid, unsigned block, void *arguments);
int driver_begin_capture(void);
/* End it; with NULL for the graph what was recorded is dropped. */
int driver_end_capture(void **graph);
int driver_launch_graph(void *graph);
void driver_free_graph(void *graph);

/* ---- lanes.c */

typedef struct Sequence Sequence;
typedef struct Pool Pool;
typedef struct Worker Worker;
typedef struct Chain Chain;

/* A stream, with what was asked of it and not yet sent (queue.c), and the blocks that belong to it (memory.c). Streams are
 * never given back: a program that asks for more than there are gets one that it has had before, as in PyTorch. */
struct Lane {
    int number;   /* among all */
    int priority;
    Gpu *gpu;
    Stream stream;
    char *queue;
    size_t filled;
    int waiting; /* entries in the queue */
    int calls;   /* those of them that call a library, which takes its time unless a graph does it */
    int long_waiting, is_busy; /* those that keep the device busy; whether such were sent since it was last waited for */
    int is_fed; /* whether anything was */
    uint64_t hash;
    Chain *chain; /* of its last entries, which the hash leaves out until it is closed: chains.c */
    Pool *pool;
    Worker *worker; /* of an emulated one, once it is needed */
    char *workspace; /* for libraries: see workspace_of */
    void *blas, *solver;
    int is_alone; /* what is in the queue is not to become a graph */
    PyObject *extra; /* what nodes that ran on it share: shortcuts.c */
};

extern Lane *lanes[MOST_LANES];
extern int lane_count;

/* The current stream of the device in use; NULL with an exception. */
Lane *lane_now(void);
/* Memory that belongs to what a stream is sent, one after the other: nobody else uses it meanwhile. NULL: none is left. */
char *workspace_of(Lane *lane);
#define WORKSPACE_BYTES ((size_t)32 << 20)
/* Wait for everything that a stream was sent, without Python's lock. */
int wait_for_lane(Lane *lane);
Lane *lane_of_number(PyObject *number);

PyObject *module_start_lanes(PyObject *module, PyObject *args);
PyObject *module_new_lane(PyObject *module, PyObject *args);
PyObject *module_lane_handle(PyObject *module, PyObject *number);
PyObject *module_lane_is_idle(PyObject *module, PyObject *number);
PyObject *module_synchronize_lane(PyObject *module, PyObject *number);
PyObject *module_synchronize(PyObject *module, PyObject *nothing);
PyObject *module_stream(PyObject *module, PyObject *nothing);
PyObject *module_sleep(PyObject *module, PyObject *args);

/* ---- events.c */

/* A point in the work of a stream. */
typedef struct {
    Lane *lane;
    void *handle;           /* the driver's event; NULL on an emulated device */
    unsigned long long at;  /* on an emulated one: how much work the stream had been given */
} Mark;

/* Mark the present end of a stream, all of which is sent. */
int mark_lane(Lane *lane, Mark *mark);
int has_passed(const Mark *mark);
void drop_mark(Mark *mark);
extern PyTypeObject Event_Type;
PyObject *module_wait_lane(PyObject *module, PyObject *args);

/* ---- emulator.c */

/* Run a queue of entries on the thread of an emulated stream; at once, while there is no second stream to run beside. */
int emulate(Lane *lane, const char *entries, size_t bytes);
int emulate_wait(Lane *lane, const Mark *mark);
/* Let the stream sleep, or write down the time when it comes there. */
int emulate_sleep(Lane *lane, long long nanoseconds);
int emulate_stamp(Lane *lane, double *place);
unsigned long long emulated_work(const Lane *lane);
int is_emulated_done(Lane *lane, unsigned long long work);
void wait_emulated(Lane *lane, unsigned long long work);
int emulate_copy(Lane *lane, void *to, const void *from, size_t bytes);
/* Whether words of arguments point into the memory of another device: then with an exception. */
int check_emulated_pointers(const Lane *lane, const void *arguments, size_t size);
PyObject *module_close_gate(PyObject *module, PyObject *number);
PyObject *module_open_gates(PyObject *module, PyObject *nothing);
char *emulated_memory(size_t bytes);
void emulated_free(char *memory);

/* ---- memory.c */

/* A block of at least so many bytes, of the current stream of the device in use; NULL with OutOfMemoryError. */
Block *block_new(size_t bytes);
Block *block_lent(char *data, PyObject *owner);
void block_release(Block *block);
/* Let it be handed out again. */
void block_put_back(Block *block);

PyObject *module_memory_stats(PyObject *module, PyObject *nothing);
PyObject *module_reset_peak(PyObject *module, PyObject *nothing);
PyObject *module_empty_cache(PyObject *module, PyObject *nothing);
PyObject *module_set_memory_limit(PyObject *module, PyObject *bytes);
PyObject *module_memory_blocks(PyObject *module, PyObject *nothing);
extern PyObject *out_of_memory_error;

/* ---- ranges.c */

typedef struct Segment {
    struct Segment *next;
    Block *first; /* of its blocks, which follow by `behind` */
} Segment;

/* The large blocks of a stream. */
typedef struct {
    Segment *segments;
    Block *free[2]; /* those of segments for blocks of a few megabytes, and all others */
} Ranges;

/* The best free range, cut to so many bytes; NULL: there is none. */
Block *take_range(Ranges *ranges, size_t bytes);
/* How much to ask of the driver for a block of so many bytes. */
size_t segment_of(size_t bytes);
/* Let memory of the driver serve blocks like one of so many bytes; -1, without an exception: there was no memory. */
int add_segment(Ranges *ranges, Lane *lane, char *data, size_t size, size_t bytes);
void put_back_range(Block *block);
/* Give the segments that are free as a whole back to the driver; how many bytes these were. */
size_t give_back_segments(Ranges *ranges);

/* ---- held.c */

/* Keep a block that has no owner any more until the streams that use it have come that far. */
void hold_block(Block *block);
/* Keep an object until a stream has done what it was asked for so far. */
void hold_object(PyObject *object, Lane *lane);
/* Put back those that are through; with `wait`, all. */
void look_at_held(int wait);
extern int held_count;
PyObject *module_record_stream(PyObject *module, PyObject *args);

/* ---- pinned.c */

PyObject *module_pinned(PyObject *module, PyObject *bytes);
PyObject *module_is_pinned(PyObject *module, PyObject *array);
PyObject *module_copy_later(PyObject *module, PyObject *args);
PyObject *module_copy_to_peer(PyObject *module, PyObject *args);

/* ---- watch.c */

/* Tell the thread that looks after forgotten queues that there is something in one. */
void note_waiting(void);
PyObject *module_set_watch(PyObject *module, PyObject *microseconds);

/* ---- dlpack.c */

PyObject *module_to_dlpack(PyObject *module, PyObject *args);
PyObject *module_from_dlpack(PyObject *module, PyObject *capsule);
PyObject *module_capsule_device(PyObject *module, PyObject *capsule);
PyObject *module_let_wait(PyObject *module, PyObject *handle);
PyObject *module_wait_for(PyObject *module, PyObject *handle);

/* ---- queue.c */

enum { KERNEL_ENTRY, PRODUCT_ENTRY, ZERO_ENTRY, WAIT_ENTRY, SLEEP_ENTRY, STAMP_ENTRY, COPY_ENTRY, CALL_ENTRY = 16 };

typedef struct {
    char *memory;
    size_t bytes;
} Zero;

typedef struct {
    int kind;
    unsigned size; /* of the arguments that follow, a multiple of 8 */
    unsigned grid[3], block;
    Function function;
} Entry;

/* Ask for a launch on the current stream of the device in use. `size` is that of the arguments; is_long: it keeps the device
 * busy, and is sent soon. */
int enqueue(int kind, Function function, const unsigned *grid, unsigned block, const void *arguments, size_t size,
            int is_long);
int enqueue_zero(char *memory, size_t bytes);
/* Send a call of a library by itself, never as a part of a graph. */
int enqueue_alone(Function function, const void *arguments, size_t size);
/* The parts of it: the current stream, with room for an entry (NULL with an exception); writing the entry; counting it, and
 * sending what must be; what entries from a place on add to the hash. */
Lane *open_queue(const void *arguments, size_t size);
void write_entry(Lane *lane, int kind, Function function, const unsigned *grid, unsigned block, const void *arguments,
                 size_t size);
int end_entry(Lane *lane);
/* Count one that keeps the device busy. The first is sent at once, so that the device has something to do; those behind it
 * wait for each other, and a sequence of them can be a graph. */
int end_long(Lane *lane);
void mix_entries(Lane *lane, size_t from);
/* Send what was asked of the current stream, of one, of all: before anybody looks at memory of the device, or gives it
 * away. */
int flush(void);
int flush_lane(Lane *lane);
int flush_all(void);

/* Why a queue is sent before it is full. A test leaves out each of these in turn, and sees that something goes wrong. */
typedef enum {
    AT_NONE,
    AT_LOOK,       /* elements go to the host */
    AT_COPY_IN,    /* elements of the host take memory that was in use */
    AT_EVENT,      /* somebody is going to wait for this point; memory is given away behind it */
    AT_WAIT,       /* the program waits */
    AT_QUERY,      /* the program asks whether all is done */
    AT_EXPORT,     /* another library gets the pointer */
    AT_LATER_COPY, /* a copy that nobody waits for */
    AT_PEER_COPY,  /* the same to another device */
    AT_END,        /* of a pass, or a step: the device would have nothing to do */
    FLUSH_KINDS
} Occasion;
int flush_at(Occasion occasion, Lane *lane);
int flush_all_at(Occasion occasion);
PyObject *module_leave_out_flush(PyObject *module, PyObject *occasion);
/* Send one entry: the driver's call of it, or on an emulated device its work. */
int issue(const Entry *entry);
/* Forget the graphs of all streams. */
void forget_graphs(void);

PyObject *module_flush(PyObject *module, PyObject *nothing);
PyObject *module_flush_pass(PyObject *module, PyObject *nothing);
PyObject *module_set_launch_mode(PyObject *module, PyObject *args);
PyObject *module_launch_stats(PyObject *module, PyObject *nothing);
PyObject *module_forget_graphs(PyObject *module, PyObject *nothing);

/* ---- launch.c */

/* Whether a kernel on so many elements is sent at once. */
int keeps_busy(npy_intp elements);
/* Start a kernel on so many elements. `size` is that of the arguments. */
int launch(Function function, unsigned blocks, unsigned block, const void *arguments, size_t size, npy_intp elements);
extern PyTypeObject Kernel_Type;
Function kernel_function(PyObject *kernel);

/* ---- chains.c */

/* Let no more launches be joined to the last of a queue; whether they keep the device busy, and want to be sent. */
int close_chain(Lane *lane);
int has_open_chain(const Lane *lane);
/* Nobody has what a block holds any more, so it need not be written. */
void forget_chained(Block *block);
/* A kernel that reads an array, each of its elements once; what else it reads and writes; NULLs are left out. Text that
 * reads through `take` (backend/cuda/reading.py) is of such kernels. */
#define MOST_BESIDE 6
typedef struct {
    Function function;
    unsigned grid[3], block;
    const void *arguments;
    size_t size;
    int is_long;
    const Array *input, *reads[MOST_BESIDE], *writes[MOST_BESIDE];
    int is_in_place; /* whether the thread that reads an element writes that of the first result */
} Reader;
/* Ask for its launch; the launches that make what it reads may be done in it, too. */
int enqueue_reader(const Reader *reader);
/* Ask for a launch that follows one, and works on what that has made; the chain before it stays open. */
int enqueue_behind(const Reader *reader);
extern long long joined_launches; /* how many were left out */
PyObject *module_set_chain_maker(PyObject *module, PyObject *function);
PyObject *module_set_joining(PyObject *module, PyObject *args);

/* ---- updates.c */

PyObject *module_update_together(PyObject *module, PyObject *args);

/* ---- array.c */

extern PyTypeObject Array_Type;
extern PyTypeObject *array_classes[MOST_GPUS]; /* the subclasses that Python made of it, one for each device */

/* Make the device of an array the one in use. */
static inline void
use_gpu_of(const Array *array)
{
    the_gpu = array->block->lane->gpu;
}

/* Whether an object is an array; its device is then the one in use. */
static inline int
is_array(PyObject *object)
{
    if (Py_TYPE(object) == array_classes[0]) {
        the_gpu = gpus;
        return 1;
    }
    if (gpu_count > 1 && PyObject_TypeCheck(object, &Array_Type)) {
        use_gpu_of((const Array *)object);
        return 1;
    }
    return 0;
}
#define IS_ARRAY(object) is_array(object)

/* The numbers of dtypes, in the order of `DTYPES` in backend/cuda/kernel_text.py; of one that kernels do not know. */
enum { CODE_BOOL, CODE_U8, CODE_U16, CODE_U32, CODE_U64, CODE_I8, CODE_I16, CODE_I32, CODE_I64, CODE_F16, CODE_F32,
       CODE_F64, CODE_C64, CODE_C128, CODE_BF16, CODE_UNKNOWN };
int code_of(const PyArray_Descr *dtype);
extern int bfloat16_number; /* NumPy's number of the dtype of ml_dtypes; -1 before its first use */

/* A new array; `strides` NULL: row after row. All borrow the dtype. */
Array *array_new(PyArray_Descr *dtype, int nd, const npy_intp *dims, const npy_intp *strides);
Array *array_view(Array *of, int nd, const npy_intp *dims, const npy_intp *strides, npy_intp offset,
                  PyArray_Descr *dtype);
Array *array_alloc(PyArray_Descr *dtype, int nd);
/* The array itself or a copy, row after row; a new reference. */
Array *contiguous(Array *array);
int lies_by_rows(int nd, const npy_intp *dims, const npy_intp *strides, npy_intp item);
/* Sizes from a tuple, a list or several numbers; how many, or -1 with an exception. */
int read_sizes(PyObject *const *given, Py_ssize_t count, npy_intp *sizes);
/* The lowest byte of an array's elements, and the one behind the highest. */
void bounds_of(const Array *array, const char **low, const char **high);

PyObject *module_empty(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *module_lent(PyObject *module, PyObject *args);
PyObject *module_setup(PyObject *module, PyObject *args);
PyObject *module_set_class(PyObject *module, PyObject *args);

/* ---- views.c, indices.c */

extern PyMethodDef view_methods[];
PyObject *array_reshape(PyObject *self, PyObject *const *given, Py_ssize_t count);
PyObject *array_transpose(PyObject *self, PyObject *const *given, Py_ssize_t count);
PyObject *array_swapaxes(PyObject *self, PyObject *const *given, Py_ssize_t count);
PyObject *array_getitem(PyObject *self, PyObject *index);
int array_setitem(PyObject *self, PyObject *index, PyObject *value);
PyObject *module_as_view(PyObject *module, PyObject *args);
PyObject *module_broadcast_to(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *module_join(PyObject *module, PyObject *const *given, Py_ssize_t count); /* joining.c */
PyObject *module_shadow(PyObject *module, PyObject *array);
PyObject *module_adopt(PyObject *module, PyObject *args);
extern PyObject *slow_getitem, *slow_setitem;

/* ---- shortcuts.c */

PyObject *module_shortcut(PyObject *module, PyObject *args);
/* Methods of arrays: dot(other), copy(order), reshape(*sizes) */
PyObject *array_dot(PyObject *self, PyObject *const *given, Py_ssize_t count);
PyObject *array_copy(PyObject *self, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *array_reshape_by(PyObject *self, PyObject *const *given, Py_ssize_t count, PyObject *names);

/* ---- copies.c */

PyObject *module_from_host(PyObject *module, PyObject *array);
PyObject *array_to_host(PyObject *self, PyObject *nothing);
PyObject *module_overwrite(PyObject *module, PyObject *args);

/* ---- elementwise.c */

extern PyTypeObject Elementwise_Type;
#define MOST_IN 8
#define MOST_LOOP 12
/* The result of a kernel, a new reference; `out` may be NULL. */
PyObject *elementwise_run(PyObject *kernel, PyObject *const *operands, PyObject *out);
/* The same; what there is no kernel for (dtypes, operands of the host) goes the long way. */
PyObject *elementwise_or_leave(PyObject *kernel, PyObject *const *operands, PyObject *out);

/* ---- operators.c */

extern PyNumberMethods array_number;
PyObject *array_compare(PyObject *a, PyObject *b, int op);
int read_operators(PyObject *table);
/* Write `value` into `to` by the kernel of copies. */
int copy_into(Array *to, Array *value);

/* ---- reduce.c */

enum { SUM }; /* operations have the numbers of backend/cuda/reductions.py */
/* Elements joined over the dimensions from `first` up to `last`, which is not one of them; times a scale. */
Array *reduce(int op, Array *array, int first, int last, int keepdims, PyArray_Descr *dtype, double scale);
PyObject *module_reduce(PyObject *module, PyObject *args);
PyObject *module_sum_to(PyObject *module, PyObject *const *given, Py_ssize_t count);
extern PyObject *reduction_maker;

/* ---- products.c */

/* cuBLAS's handle of the stream that is being sent to; NULL with an exception. */
void *blas_handle(void);
/* Send a product that was asked for. */
int issue_product(const void *product);
PyObject *module_start_blas(PyObject *module, PyObject *path);
PyObject *module_matmul(PyObject *module, PyObject *const *given, Py_ssize_t count);

/* ---- light.c */

PyObject *module_start_light(PyObject *module, PyObject *path);
PyObject *module_allow_tf32(PyObject *module, PyObject *allowed);
PyObject *module_multiply_into(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *module_linear(PyObject *module, PyObject *const *given, Py_ssize_t count);

/* ---- library_calls.c */

PyObject *module_start_solver(PyObject *module, PyObject *path);
PyObject *module_call_library(PyObject *module, PyObject *const *given, Py_ssize_t count);

/* ---- convolution.c */

PyObject *module_start_dnn(PyObject *module, PyObject *path);
PyObject *module_convolution(PyObject *module, PyObject *args);
/* cuDNN's handle of the device that is being sent to, on its stream; NULL: it could not be made. */
void *dnn_handle(void);

/* ---- plans.c */

void find_plan_functions(void *library);
PyObject *module_execute_plan(PyObject *module, PyObject *args);

#endif
