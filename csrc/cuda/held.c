/* Blocks that are free, and may still be in use: by a stream they do not belong to, or because their memory is lent.
 *
 * Whoever lets another stream work with a block says so (record_stream). When nobody has the block any more, what those
 * streams were asked for so far is marked, and the block goes back to its own stream when they have passed the marks. Lent
 * memory goes back to its owner so, too: its streams are all those of the device, because nobody has said which.
 */
#include "cuda/cuda.h"

typedef struct Held {
    struct Held *next;
    Block *block;
    int count;
    Mark marks[];
} Held;

enum { EXACTLY = 2 }; /* of `has_uses`: what is lent is used on these streams, and no other */

static Held *first_held;
int held_count;

static int
is_used_on(const Block *block, const Lane *lane)
{
    if (block->owner != NULL && block->has_uses != EXACTLY) {
        return lane->gpu == block->lane->gpu;
    }
    return block->uses[lane->number / 64] >> (lane->number % 64) & 1;
}

static void
put_back(Held *held)
{
    Block *block = held->block;
    for (int k = 0; k < held->count; k++) {
        drop_mark(&held->marks[k]);
    }
    free(held);
    held_count--;
    block->has_uses = 0;
    memset(block->uses, 0, sizeof(block->uses));
    block_put_back(block); /* which may run Python, for an owner */
}

void
hold_block(Block *block)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback); /* an array may be freed while an exception is under way */
    Held *held = calloc(1, sizeof(Held) + lane_count * sizeof(Mark));
    for (int k = 0; held != NULL && k < lane_count; k++) {
        if (is_used_on(block, lanes[k]) && mark_lane(lanes[k], &held->marks[held->count]) == 0) {
            held->count++;
        }
        PyErr_Clear(); /* an error of the device, which the next look at it meets again */
    }
    if (held != NULL) {
        held->block = block;
        held->next = first_held;
        first_held = held;
        held_count++;
        look_at_held(0);
    }
    PyErr_Restore(type, value, traceback);
}

void
hold_object(PyObject *object, Lane *lane)
{
    Block *block = calloc(1, sizeof(Block));
    if (block != NULL) {
        *block = (Block){.owner = Py_NewRef(object), .lane = lane, .has_uses = EXACTLY};
        block->uses[lane->number / 64] |= 1ull << (lane->number % 64);
        hold_block(block);
    }
}

void
look_at_held(int wait)
{
    Held **place = &first_held;
    while (*place != NULL) {
        Held *held = *place;
        int passed = 0;
        while (passed < held->count && has_passed(&held->marks[passed])) {
            passed++;
        }
        if (passed < held->count && wait) {
            if (wait_for_lane(held->marks[passed].lane) < 0) { /* Python's lock was free: begin anew */
                PyErr_Clear();
            }
            place = &first_held;
        }
        else if (passed < held->count) {
            place = &held->next;
        }
        else {
            *place = held->next;
            put_back(held);
            place = &first_held; /* an owner's destructor may have changed the list */
        }
    }
}

/* record_stream(array, stream): the array's memory is in use by a stream that it does not belong to */
PyObject *
module_record_stream(PyObject *module, PyObject *args)
{
    PyObject *array, *number;
    if (!PyArg_ParseTuple(args, "O!O", &Array_Type, &array, &number)) {
        return NULL;
    }
    Block *block = ((Array *)array)->block;
    Lane *lane = lane_of_number(number);
    if (lane == NULL) {
        return NULL;
    }
    if (lane != block->lane) {
        block->uses[lane->number / 64] |= 1ull << (lane->number % 64);
        block->has_uses = block->has_uses == 0 ? 1 : block->has_uses;
    }
    Py_RETURN_NONE;
}
