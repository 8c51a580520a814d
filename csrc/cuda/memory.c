/* Memory of the device, in size classes, each of which hands out its lowest free block.
 *
 * Lowest first, because a program that asks for memory and returns it in the same order again then gets the same
 * addresses again, step after step; a stack of free blocks would hand them out in another order every time.
 *
 * A block belongs to the stream on which it was first asked for, and goes back to it. It can be handed out there at once,
 * because whatever that stream is given later runs later. What other streams use it for, they say (held.c).
 */
#include "cuda/cuda.h"

#define BINS 256
#define SMALLEST 512
#define SLAB_BYTES ((size_t)8 << 20)
#define LARGEST_IN_SLAB ((size_t)256 << 10)

typedef struct {
    Block **blocks;
    uint64_t *free;          /* a bit for each block */
    int count, room, lowest; /* lowest: no word before this one has a bit set */
} Bin;

struct Pool {
    Bin bins[BINS];
    char *slab;
    size_t slab_left;
};

PyObject *out_of_memory_error;

/* The size class of so many bytes: four to the octave. */
static int
bin_of(size_t bytes, size_t *rounded)
{
    if (bytes <= SMALLEST) {
        *rounded = SMALLEST;
        return 0;
    }
    int shift = 63 - __builtin_clzll(bytes - 1) - 2;
    size_t units = ((bytes - 1) >> shift) + 1; /* 5 ... 8 */
    *rounded = units << shift;
    return (shift - 6) * 4 + (int)units - 4;
}

static char *
reserve(size_t bytes)
{
    Gpu *gpu = the_gpu;
    if (gpu->limit && gpu->reserved + bytes > gpu->limit) {
        return NULL;
    }
    char *found = driver_allocate(bytes);
    if (found != NULL) {
        gpu->driver_allocations++;
        gpu->reserved += bytes;
        gpu->most_reserved = gpu->most_reserved > gpu->reserved ? gpu->most_reserved : gpu->reserved;
    }
    return found;
}

/* Give free blocks of a size class that lie in no slab back to the driver. */
static void
give_back_bin(Bin *bin)
{
    int kept = 0;
    if (bin->count == 0 || bin->blocks[0]->size <= LARGEST_IN_SLAB) {
        return;
    }
    for (int k = 0; k < bin->count; k++) {
        Block *block = bin->blocks[k];
        if (bin->free[k / 64] >> (k % 64) & 1) {
            the_gpu->reserved -= block->size;
            driver_free(block->data);
            free(block);
        }
        else {
            block->index = kept;
            bin->blocks[kept++] = block;
        }
    }
    bin->count = kept;
    bin->lowest = 0;
    memset(bin->free, 0, bin->room / 64 * sizeof(uint64_t));
}

/* The same for all streams of the device in use, after everything that was asked of them. */
static void
give_back(void)
{
    const Gpu *gpu = the_gpu;
    look_at_held(1);
    for (int k = 0; k < lane_count; k++) {
        if (lanes[k]->gpu == gpu && wait_for_lane(lanes[k]) < 0) {
            PyErr_Clear(); /* an error of the device, which the next look at it meets again */
        }
    }
    for (int k = 0; k < lane_count; k++) {
        Pool *pool = lanes[k]->gpu == gpu ? lanes[k]->pool : NULL;
        for (int b = 0; pool != NULL && b < BINS; b++) {
            give_back_bin(&pool->bins[b]);
        }
    }
}

static char *
find_memory(Pool *pool, size_t bytes)
{
    size_t wanted = bytes <= LARGEST_IN_SLAB ? SLAB_BYTES : bytes;
    if (bytes <= LARGEST_IN_SLAB && pool->slab_left >= bytes) {
        pool->slab_left -= bytes;
        pool->slab += bytes;
        return pool->slab - bytes;
    }
    char *found = reserve(wanted);
    if (found == NULL) { /* once more, with what is kept for later given back */
        the_gpu->retries++;
        give_back();
        found = reserve(wanted);
    }
    if (found != NULL && bytes <= LARGEST_IN_SLAB) {
        pool->slab = found + bytes;
        pool->slab_left = SLAB_BYTES - bytes;
    }
    return found;
}

static int
make_room(Bin *bin)
{
    if (bin->count < bin->room) {
        return 0;
    }
    int room = bin->room ? bin->room * 2 : 64;
    Block **blocks = realloc(bin->blocks, room * sizeof(Block *));
    if (blocks != NULL) {
        bin->blocks = blocks;
    }
    uint64_t *bits = blocks == NULL ? NULL : realloc(bin->free, room / 64 * sizeof(uint64_t));
    if (bits == NULL) {
        return -1;
    }
    memset(bits + bin->room / 64, 0, (room - bin->room) / 64 * sizeof(uint64_t));
    bin->free = bits;
    bin->room = room;
    return 0;
}

static void
count_allocated(Gpu *gpu, size_t bytes)
{
    gpu->allocations++;
    gpu->allocated += bytes;
    gpu->most_allocated = gpu->most_allocated > gpu->allocated ? gpu->most_allocated : gpu->allocated;
}

static Block *
raise_out_of_memory(size_t bytes)
{
    the_gpu->out_of_memory++;
    PyErr_Format(out_of_memory_error == NULL ? PyExc_MemoryError : out_of_memory_error,
                 "CUDA out of memory. Tried to allocate %zu bytes: %zu are in use by tensors, and %zu are reserved. Use "
                 "smaller batches, or drop tensors (and losses that keep their graphs) that are no longer needed.",
                 bytes, the_gpu->allocated, the_gpu->reserved);
    return NULL;
}

/* The lowest free block of a size class; NULL: there is none. */
static Block *
take_free(Bin *bin)
{
    int words = (bin->count + 63) / 64;
    while (bin->lowest < words && bin->free[bin->lowest] == 0) {
        bin->lowest++;
    }
    if (bin->lowest >= words) {
        return NULL;
    }
    int bit = __builtin_ctzll(bin->free[bin->lowest]);
    bin->free[bin->lowest] &= bin->free[bin->lowest] - 1;
    Block *block = bin->blocks[bin->lowest * 64 + bit];
    block->references = 1;
    return block;
}

Block *
block_new(size_t bytes)
{
    size_t rounded;
    Lane *lane = lane_now();
    if (lane == NULL || (lane->pool == NULL && (lane->pool = calloc(1, sizeof(Pool))) == NULL)) {
        return PyErr_Occurred() ? NULL : (Block *)PyErr_NoMemory();
    }
    if (held_count) {
        look_at_held(0);
    }
    if (bytes > (size_t)1 << 46) {
        return raise_out_of_memory(bytes);
    }
    int number = bin_of(bytes, &rounded);
    Bin *bin = &lane->pool->bins[number];
    Block *block = take_free(bin);
    if (block != NULL) {
        count_allocated(lane->gpu, rounded);
        return block;
    }
    char *data = find_memory(lane->pool, rounded); /* Python's lock may be free meanwhile */
    block = data == NULL || make_room(bin) < 0 ? NULL : calloc(1, sizeof(Block));
    if (block == NULL) {
        return raise_out_of_memory(bytes);
    }
    *block = (Block){.data = data, .size = rounded, .references = 1, .bin = number, .index = bin->count, .lane = lane};
    bin->blocks[bin->count++] = block;
    count_allocated(lane->gpu, rounded);
    return block;
}

Block *
block_lent(char *data, PyObject *owner)
{
    Lane *lane = lane_now();
    Block *block = lane == NULL ? NULL : calloc(1, sizeof(Block));
    if (block == NULL) {
        return PyErr_Occurred() ? NULL : (Block *)PyErr_NoMemory();
    }
    *block = (Block){.data = data, .references = 1, .owner = Py_NewRef(owner), .lane = lane};
    return block;
}

void
block_put_back(Block *block)
{
    if (block->owner != NULL) {
        PyObject *owner = block->owner;
        free(block);
        Py_DECREF(owner);
        return;
    }
    Bin *bin = &block->lane->pool->bins[block->bin];
    block->lane->gpu->allocated -= block->size;
    bin->free[block->index / 64] |= 1ull << (block->index % 64);
    if (block->index / 64 < bin->lowest) {
        bin->lowest = block->index / 64;
    }
}

void
block_release(Block *block)
{
    if (block == NULL || --block->references) {
        return;
    }
    if (block->has_uses || block->owner != NULL) {
        hold_block(block);
    }
    else {
        if (block->is_chained) {
            forget_chained(block);
        }
        block_put_back(block);
    }
}

/* ---- questions, about the device in use */

PyObject *
module_memory_stats(PyObject *module, PyObject *nothing)
{
    const Gpu *gpu = the_gpu;
    return Py_BuildValue("{s:n,s:n,s:n,s:n,s:L,s:L,s:L,s:L,s:i}", "allocated", (Py_ssize_t)gpu->allocated, "reserved",
                         (Py_ssize_t)gpu->reserved, "most_allocated", (Py_ssize_t)gpu->most_allocated,
                         "most_reserved", (Py_ssize_t)gpu->most_reserved, "allocations", gpu->allocations,
                         "driver_allocations", gpu->driver_allocations, "retries", gpu->retries, "out_of_memory",
                         gpu->out_of_memory, "held", held_count);
}

PyObject *
module_reset_peak(PyObject *module, PyObject *nothing)
{
    the_gpu->most_allocated = the_gpu->allocated;
    the_gpu->most_reserved = the_gpu->reserved;
    Py_RETURN_NONE;
}

PyObject *
module_empty_cache(PyObject *module, PyObject *nothing)
{
    give_back();
    Py_RETURN_NONE;
}

/* set_memory_limit(bytes): reserve no more than that on the device in use; 0: whatever there is */
PyObject *
module_set_memory_limit(PyObject *module, PyObject *bytes)
{
    size_t limit = PyLong_AsSize_t(bytes);
    if (limit == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    the_gpu->limit = limit;
    Py_RETURN_NONE;
}

/* memory_blocks(): (address, bytes, stream, whether it is free) of every block of the device in use */
PyObject *
module_memory_blocks(PyObject *module, PyObject *nothing)
{
    PyObject *found = PyList_New(0);
    for (int k = 0; found != NULL && k < lane_count; k++) {
        const Pool *pool = lanes[k]->gpu == the_gpu ? lanes[k]->pool : NULL;
        for (int b = 0; pool != NULL && b < BINS; b++) {
            const Bin *bin = &pool->bins[b];
            for (int n = 0; found != NULL && n < bin->count; n++) {
                PyObject *row = Py_BuildValue("KniO", (unsigned long long)(uintptr_t)bin->blocks[n]->data,
                                              (Py_ssize_t)bin->blocks[n]->size, lanes[k]->number,
                                              bin->free[n / 64] >> (n % 64) & 1 ? Py_True : Py_False);
                if (row == NULL || PyList_Append(found, row) < 0) {
                    Py_CLEAR(found);
                }
                Py_XDECREF(row);
            }
        }
    }
    return found;
}
