/* Memory of the device: small blocks in size classes, each of which hands out its lowest free one; large ones in ranges.c.
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
    Ranges ranges;
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

/* Give what is free back to the driver, of all streams of the device in use, after everything that was asked of them. */
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
        if (lanes[k]->gpu == gpu && lanes[k]->pool != NULL) {
            the_gpu->reserved -= give_back_segments(&lanes[k]->pool->ranges);
        }
    }
}

/* Memory of the driver: so much as is best, or else so much as is needed. */
static char *
find_memory(size_t best, size_t needed, size_t *size)
{
    *size = best;
    char *found = reserve(best);
    if (found == NULL) { /* once more, with what is kept for later given back */
        the_gpu->retries++;
        give_back();
        *size = needed;
        found = reserve(needed);
    }
    return found;
}

static char *
part_of_slab(Pool *pool, size_t bytes)
{
    if (pool->slab_left < bytes) {
        char *slab = find_memory(SLAB_BYTES, SLAB_BYTES, &pool->slab_left);
        if (slab == NULL) {
            pool->slab_left = 0;
            return NULL;
        }
        pool->slab = slab;
    }
    pool->slab_left -= bytes;
    pool->slab += bytes;
    return pool->slab - bytes;
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

static Block *
small_block(Lane *lane, int number, size_t bytes)
{
    Bin *bin = &lane->pool->bins[number];
    Block *block = take_free(bin);
    if (block != NULL) {
        return block;
    }
    char *data = part_of_slab(lane->pool, bytes); /* Python's lock may be free meanwhile */
    block = data == NULL || make_room(bin) < 0 ? NULL : calloc(1, sizeof(Block));
    if (block != NULL) {
        *block = (Block){.data = data, .size = bytes, .references = 1, .bin = number, .index = bin->count, .lane = lane};
        bin->blocks[bin->count++] = block;
    }
    return block;
}

static Block *
large_block(Lane *lane, size_t bytes)
{
    Ranges *ranges = &lane->pool->ranges;
    Block *block = take_range(ranges, bytes);
    if (block == NULL) {
        size_t size;
        char *data = find_memory(segment_of(bytes), bytes, &size);
        block = data == NULL || add_segment(ranges, lane, data, size, bytes) < 0 ? NULL : take_range(ranges, bytes);
    }
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
    Block *block = rounded <= LARGEST_IN_SLAB ? small_block(lane, number, rounded) : large_block(lane, rounded);
    if (block == NULL) {
        return raise_out_of_memory(bytes);
    }
    count_allocated(lane->gpu, block->size);
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
    if (block->is_chained) {
        forget_chained(block);
    }
    block->lane->gpu->allocated -= block->size;
    if (block->free_list != NULL) {
        put_back_range(block);
        return;
    }
    Bin *bin = &block->lane->pool->bins[block->bin];
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

static int
add_row(PyObject *rows, const Block *block, int is_free)
{
    PyObject *row = Py_BuildValue("KniO", (unsigned long long)(uintptr_t)block->data, (Py_ssize_t)block->size,
                                  block->lane->number, is_free ? Py_True : Py_False);
    int status = row == NULL ? -1 : PyList_Append(rows, row);
    Py_XDECREF(row);
    return status;
}

static int
add_rows(PyObject *rows, const Pool *pool)
{
    int status = 0;
    for (int b = 0; b < BINS; b++) {
        const Bin *bin = &pool->bins[b];
        for (int n = 0; status == 0 && n < bin->count; n++) {
            status = add_row(rows, bin->blocks[n], bin->free[n / 64] >> (n % 64) & 1);
        }
    }
    for (const Segment *segment = pool->ranges.segments; segment != NULL; segment = segment->next) {
        for (const Block *block = segment->first; status == 0 && block != NULL; block = block->behind) {
            status = add_row(rows, block, block->is_free);
        }
    }
    return status;
}

/* memory_blocks(): (address, bytes, stream, whether it is free) of every block of the device in use */
PyObject *
module_memory_blocks(PyObject *module, PyObject *nothing)
{
    PyObject *found = PyList_New(0);
    for (int k = 0; found != NULL && k < lane_count; k++) {
        const Pool *pool = lanes[k]->gpu == the_gpu ? lanes[k]->pool : NULL;
        if (pool != NULL && add_rows(found, pool) < 0) {
            Py_CLEAR(found);
        }
    }
    return found;
}
