/* Large blocks: ranges of what was asked of the driver, cut off where they fit best, and joined with free neighbours.
 *
 * The choice depends on nothing but which ranges are free (the smallest that is large enough, the lowest of equals), so a
 * program that asks for memory and returns it in the same order again gets the same addresses again.
 *
 * Blocks of a few megabytes have segments of their own, lest one of them keeps a large segment from being whole again.
 */
#include "cuda/cuda.h"

#define MEDIUM ((size_t)4 << 20)
#define MEDIUM_SEGMENT ((size_t)16 << 20)

static void
list(Block *block)
{
    Block **first = block->free_list;
    block->is_free = 1;
    block->previous_free = NULL;
    block->next_free = *first;
    if (*first != NULL) {
        (*first)->previous_free = block;
    }
    *first = block;
}

static void
unlist(Block *block)
{
    block->is_free = 0;
    if (block->next_free != NULL) {
        block->next_free->previous_free = block->previous_free;
    }
    *(block->previous_free == NULL ? block->free_list : &block->previous_free->next_free) = block->next_free;
}

/* Let the first of two neighbours be both. */
static void
join(Block *block, Block *behind)
{
    block->size += behind->size;
    block->behind = behind->behind;
    if (block->behind != NULL) {
        block->behind->before = block;
    }
    free(behind);
}

/* Make what a block has beyond so many bytes a free block. */
static void
cut(Block *block, size_t bytes)
{
    Block *rest = block->size == bytes ? NULL : malloc(sizeof(Block));
    if (rest == NULL) {
        return;
    }
    *rest = (Block){.data = block->data + bytes, .size = block->size - bytes, .lane = block->lane,
                    .free_list = block->free_list, .before = block, .behind = block->behind};
    if (rest->behind != NULL) {
        rest->behind->before = rest;
    }
    block->behind = rest;
    block->size = bytes;
    list(rest);
}

size_t
segment_of(size_t bytes)
{
    return bytes <= MEDIUM ? MEDIUM_SEGMENT : bytes;
}

Block *
take_range(Ranges *ranges, size_t bytes)
{
    Block *best = NULL;
    for (Block *b = ranges->free[bytes > MEDIUM]; b != NULL; b = b->next_free) {
        if (b->size >= bytes && (best == NULL || b->size < best->size || (b->size == best->size && b->data < best->data))) {
            best = b;
        }
    }
    if (best != NULL) {
        unlist(best);
        cut(best, bytes);
        best->references = 1;
    }
    return best;
}

int
add_segment(Ranges *ranges, Lane *lane, char *data, size_t size, size_t bytes)
{
    Segment *segment = malloc(sizeof(Segment));
    Block *block = malloc(sizeof(Block));
    if (segment == NULL || block == NULL) {
        free(segment);
        free(block);
        return -1;
    }
    *block = (Block){.data = data, .size = size, .lane = lane, .free_list = &ranges->free[bytes > MEDIUM]};
    list(block);
    *segment = (Segment){.next = ranges->segments, .first = block};
    ranges->segments = segment;
    return 0;
}

void
put_back_range(Block *block)
{
    Block *before = block->before, *behind = block->behind;
    if (behind != NULL && behind->is_free) {
        unlist(behind);
        join(block, behind);
    }
    if (before != NULL && before->is_free) {
        unlist(before);
        join(before, block);
        block = before;
    }
    list(block);
}

size_t
give_back_segments(Ranges *ranges)
{
    size_t bytes = 0;
    for (Segment **place = &ranges->segments; *place != NULL;) {
        Segment *segment = *place;
        Block *block = segment->first;
        if (block->is_free && block->behind == NULL) {
            unlist(block);
            bytes += block->size;
            driver_free(block->data);
            *place = segment->next;
            free(block);
            free(segment);
        }
        else {
            place = &segment->next;
        }
    }
    return bytes;
}
