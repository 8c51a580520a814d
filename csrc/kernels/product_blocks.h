/* A block of a product of matrices, packed and computed by one thread. Included once for each REAL.
 *
 * For some elements of the sums at a time, the rows of the left factor are laid down in tiles and the columns of the
 * right one in panels, whatever their order in memory: so the innermost loop reads both from front to back.
 */

#define TILE_TARGET CLONES
#define TILE_ROWS 6 /* twelve sums, two vectors of a panel and a number: sixteen registers */
#include "kernels/product_tiles.h"
#undef TILE_ROWS
#undef TILE_TARGET

#ifdef WIDE_VECTORS
#pragma push_macro("NAME")
#pragma push_macro("VECTOR_BYTES")
#undef NAME
#undef VECTOR_BYTES
#define NAME(name) JOIN(JOIN(name, REAL), wide)
#define VECTOR_BYTES 64
#define TILE_TARGET __attribute__((target("arch=x86-64-v4")))
#define TILE_ROWS 12 /* of 32 registers */
#include "loops/vectors.h"
#include "kernels/product_tiles.h"
#undef TILE_ROWS
#undef TILE_TARGET
#pragma pop_macro("VECTOR_BYTES")
#pragma pop_macro("NAME")
#endif

/* `lines` lines of `count` numbers, where numbers of a line are next to each other in memory, beside each other: number k
 * of line i becomes to[k * width + i]. Lines up to `readable` may be read; what is beyond `width` is overwritten later. */
INLINE Py_ssize_t
NAME(turn_lines)(const REAL *from, Py_ssize_t line, Py_ssize_t readable, Py_ssize_t count, REAL *to, Py_ssize_t width)
{
    Py_ssize_t groups = (width + WIDTH - 1) / WIDTH, k = 0;
    if (groups * WIDTH > readable) {
        return 0;
    }
    for (; k + WIDTH < count; k += WIDTH) { /* not the last ones: nothing would overwrite what is too much */
        for (Py_ssize_t group = groups - 1; group >= 0; group--) {
            NAME(turn)(from + group * WIDTH * line + k, line, to + k * width + group * WIDTH, width);
        }
    }
    return k;
}

/* Up to `width` lines beside each other, those that are missing as zeros. Lines are `line` apart, their numbers `step`. */
CLONES static void
NAME(pack_lines)(const REAL *from, Py_ssize_t line, Py_ssize_t step, Py_ssize_t lines, Py_ssize_t readable,
                 Py_ssize_t count, REAL *to, Py_ssize_t width)
{
    if (line == 1 && lines == width) {
        for (Py_ssize_t k = 0; k < count; k++) {
            memcpy(to + k * width, from + k * step, width * sizeof(REAL));
        }
        return;
    }
    Py_ssize_t k = step == 1 && lines == width ? NAME(turn_lines)(from, line, readable, count, to, width) : 0;
    for (; k < count; k++) {
        for (Py_ssize_t i = 0; i < width; i++) {
            to[k * width + i] = i < lines ? from[i * line + k * step] : 0;
        }
    }
}

/* the lines in groups of `width`, which follow each other; the last group may be of half as many, if it is a panel */
static void
NAME(pack)(const REAL *from, Py_ssize_t line, Py_ssize_t step, Py_ssize_t lines, Py_ssize_t readable, Py_ssize_t count,
           REAL *to, Py_ssize_t width, int may_halve)
{
    for (Py_ssize_t first = 0; first < lines; first += width) {
        Py_ssize_t here = lines - first < width ? lines - first : width;
        Py_ssize_t wide = may_halve && 2 * here <= width ? width / 2 : width;
        NAME(pack_lines)(from + first * line, line, step, here, readable - first, count, to + first * count, wide);
    }
}

static void
NAME(add_packed_panel)(const Product *given, Py_ssize_t count, const REAL *left, const REAL *right, Py_ssize_t rows,
                       Py_ssize_t columns, REAL *out)
{
#ifdef WIDE_VECTORS
    if (given->is_wide) {
        JOIN(NAME(add_panel_of_tiles), wide)(count, left, right, rows, columns, out, given->step);
        return;
    }
#endif
    NAME(add_panel_of_tiles)(count, left, right, rows, columns, out, given->step);
}

/* add what some elements of the sums give to a block: its right factor is packed, its left one is being packed */
static void
NAME(add_rows_of_block)(const Product *given, const Block *block, Py_ssize_t count, const REAL *left, const REAL *right,
                        REAL *room)
{
    for (Py_ssize_t first = 0; first < block->rows; first += ROWS_AT_ONCE) {
        Py_ssize_t rows = block->rows - first < ROWS_AT_ONCE ? block->rows - first : ROWS_AT_ONCE;
        NAME(pack)(left + first * given->left.line, given->left.line, given->left.step, rows,
                   given->rows - block->row - first, count, room, given->tile, 0);
        for (Py_ssize_t column = 0; column < block->columns; column += given->panel) {
            Py_ssize_t columns = block->columns - column < given->panel ? block->columns - column : given->panel;
            NAME(add_packed_panel)(given, count, room, right + column * count, rows, columns,
                                   (REAL *)block->out + first * given->step + column);
        }
    }
}

/* Compute a block; `room` is for what is packed. */
static void
NAME(compute_block)(const Product *given, const Block *block, void *room)
{
    const REAL *left = (const REAL *)given->left.data + block->item * given->left.item + block->row * given->left.line;
    const REAL *right = (const REAL *)given->right.data + block->item * given->right.item +
                        block->column * given->right.line;
    REAL *packed = (REAL *)room + ROOM_OF_TILES;
    for (Py_ssize_t i = 0; i < block->rows; i++) {
        memset((REAL *)block->out + i * given->step, 0, block->columns * sizeof(REAL));
    }
    for (Py_ssize_t k = block->first; k < block->last; k += ELEMENTS_AT_ONCE) {
        Py_ssize_t count = block->last - k < ELEMENTS_AT_ONCE ? block->last - k : ELEMENTS_AT_ONCE;
        NAME(pack)(right + k * given->right.step, given->right.line, given->right.step, block->columns,
                   given->columns - block->column, count, packed, given->panel, 1);
        NAME(add_rows_of_block)(given, block, count, left + k * given->left.step, packed, room);
    }
}
