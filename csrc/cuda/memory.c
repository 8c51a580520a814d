/* Memory of the device, in size classes, each of which hands out its lowest free block.
 *
 * Lowest first, because a program that asks for memory and returns it in the same order again then gets the same
 * addresses again, step after step; a stack of free blocks would hand them out in another order every time. A block that
 * is returned can be handed out at once: whatever is launched later runs later, there being one stream.
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

static Bin bins[BINS];
static char *slab;
static size_t slab_left;
static struct {
    size_t allocated, reserved, most_allocated, most_reserved, limit;
    long long allocations, driver_allocations, retries, out_of_memory;
} memory;

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
    if (memory.limit && memory.reserved + bytes > memory.limit) {
        return NULL;
    }
    char *found = driver_allocate(bytes);
    if (found != NULL) {
        memory.driver_allocations++;
        memory.reserved += bytes;
        memory.most_reserved = memory.most_reserved > memory.reserved ? memory.most_reserved : memory.reserved;
    }
    return found;
}

/* Give free blocks that lie in no slab back to the driver, after what was asked of them. */
static void
give_back(void)
{
    if (flush() < 0) {
        PyErr_Clear(); /* an error of the device, which the next look at it meets again */
    }
    for (int b = 0; b < BINS; b++) {
        Bin *bin = &bins[b];
        int kept = 0;
        if (bin->count == 0 || bin->blocks[0]->size <= LARGEST_IN_SLAB) {
            continue;
        }
        for (int k = 0; k < bin->count; k++) {
            Block *block = bin->blocks[k];
            if (bin->free[k / 64] >> (k % 64) & 1) {
                memory.reserved -= block->size;
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
}

static char *
find_memory(size_t bytes)
{
    size_t wanted = bytes <= LARGEST_IN_SLAB ? SLAB_BYTES : bytes;
    if (bytes <= LARGEST_IN_SLAB && slab_left >= bytes) {
        slab_left -= bytes;
        slab += bytes;
        return slab - bytes;
    }
    char *found = reserve(wanted);
    if (found == NULL) { /* once more, with what is kept for later given back */
        memory.retries++;
        give_back();
        found = reserve(wanted);
    }
    if (found != NULL && bytes <= LARGEST_IN_SLAB) {
        slab = found + bytes;
        slab_left = SLAB_BYTES - bytes;
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
count_allocated(size_t bytes)
{
    memory.allocations++;
    memory.allocated += bytes;
    memory.most_allocated = memory.most_allocated > memory.allocated ? memory.most_allocated : memory.allocated;
}

static Block *
raise_out_of_memory(size_t bytes)
{
    memory.out_of_memory++;
    PyErr_Format(out_of_memory_error == NULL ? PyExc_MemoryError : out_of_memory_error,
                 "CUDA out of memory. Tried to allocate %zu bytes: %zu are in use by tensors, and %zu are reserved. Use "
                 "smaller batches, or drop tensors (and losses that keep their graphs) that are no longer needed.",
                 bytes, memory.allocated, memory.reserved);
    return NULL;
}

Block *
block_new(size_t bytes)
{
    size_t rounded;
    if (bytes > (size_t)1 << 46) {
        return raise_out_of_memory(bytes);
    }
    int number = bin_of(bytes, &rounded);
    Bin *bin = &bins[number];
    int words = (bin->count + 63) / 64;
    while (bin->lowest < words && bin->free[bin->lowest] == 0) {
        bin->lowest++;
    }
    if (bin->lowest < words) {
        int bit = __builtin_ctzll(bin->free[bin->lowest]);
        bin->free[bin->lowest] &= bin->free[bin->lowest] - 1;
        Block *block = bin->blocks[bin->lowest * 64 + bit];
        block->references = 1;
        count_allocated(rounded);
        return block;
    }
    Block *block = calloc(1, sizeof(Block));
    char *data = block == NULL || make_room(bin) < 0 ? NULL : find_memory(rounded);
    if (data == NULL) {
        free(block);
        return raise_out_of_memory(bytes);
    }
    *block = (Block){.data = data, .size = rounded, .references = 1, .bin = number, .index = bin->count};
    bin->blocks[bin->count++] = block;
    count_allocated(rounded);
    return block;
}

Block *
block_lent(char *data, PyObject *owner)
{
    Block *block = calloc(1, sizeof(Block));
    if (block == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *block = (Block){.data = data, .references = 1, .owner = Py_NewRef(owner)};
    return block;
}

void
block_release(Block *block)
{
    if (block == NULL || --block->references) {
        return;
    }
    if (block->owner != NULL) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback); /* an array may be freed while an exception is under way */
        if (flush() < 0) {
            PyErr_Clear();
        }
        PyErr_Restore(type, value, traceback);
        Py_DECREF(block->owner);
        free(block);
        return;
    }
    Bin *bin = &bins[block->bin];
    memory.allocated -= block->size;
    bin->free[block->index / 64] |= 1ull << (block->index % 64);
    if (block->index / 64 < bin->lowest) {
        bin->lowest = block->index / 64;
    }
}

/* ---- questions */

PyObject *
module_memory_stats(PyObject *module, PyObject *nothing)
{
    return Py_BuildValue("{s:n,s:n,s:n,s:n,s:L,s:L,s:L,s:L}", "allocated", (Py_ssize_t)memory.allocated, "reserved",
                         (Py_ssize_t)memory.reserved, "most_allocated", (Py_ssize_t)memory.most_allocated,
                         "most_reserved", (Py_ssize_t)memory.most_reserved, "allocations", memory.allocations,
                         "driver_allocations", memory.driver_allocations, "retries", memory.retries, "out_of_memory",
                         memory.out_of_memory);
}

PyObject *
module_reset_peak(PyObject *module, PyObject *nothing)
{
    memory.most_allocated = memory.allocated;
    memory.most_reserved = memory.reserved;
    Py_RETURN_NONE;
}

PyObject *
module_empty_cache(PyObject *module, PyObject *nothing)
{
    if (driver_synchronize() < 0) {
        return NULL;
    }
    give_back();
    Py_RETURN_NONE;
}

/* set_memory_limit(bytes): reserve no more than that; 0: whatever there is */
PyObject *
module_set_memory_limit(PyObject *module, PyObject *bytes)
{
    size_t limit = PyLong_AsSize_t(bytes);
    if (limit == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    memory.limit = limit;
    Py_RETURN_NONE;
}
