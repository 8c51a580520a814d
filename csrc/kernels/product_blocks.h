/* The factors of a product of matrices, packed, and a block of it. Included once for each REAL.
 *
 * The rows of the left factor are laid down in tiles and the columns of the right one in panels, some elements of the sums
 * after the others, whatever their order in memory was: so the innermost loop reads both from front to back.
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

/* A group of up to `width` lines of a factor, of which there are `lines`, with the elements of the sums from `first` to
 * before `last`, ELEMENTS_AT_ONCE after each other: those of all groups lie together. The last panel may be half as wide. */
static void
NAME(pack_group)(const Factor *factor, Py_ssize_t item, Py_ssize_t group, Py_ssize_t first, Py_ssize_t last)
{
    Py_ssize_t line = group * factor->width, here = factor->lines - line < factor->width ? factor->lines - line : factor->width;
    Py_ssize_t width = factor->may_halve && 2 * here <= factor->width ? factor->width / 2 : factor->width;
    const REAL *from = (const REAL *)factor->data + item * factor->item + line * factor->line;
    REAL *to = (REAL *)factor->packed + item * factor->room;
    for (Py_ssize_t k = first; k < last; k += ELEMENTS_AT_ONCE) {
        Py_ssize_t count = last - k < ELEMENTS_AT_ONCE ? last - k : ELEMENTS_AT_ONCE;
        NAME(pack_lines)(from + k * factor->step, factor->line, factor->step, here, factor->lines - line, count,
                         to + (k - first) * factor->padded + line * count, width);
    }
}

static void
NAME(add_packed_panel)(const Product *given, Py_ssize_t count, const REAL *left, const REAL *right, Py_ssize_t rows,
                       Py_ssize_t columns, REAL *out, Py_ssize_t step)
{
#ifdef WIDE_VECTORS
    if (given->is_wide) {
        JOIN(NAME(add_panel_of_tiles), wide)(count, left, right, rows, columns, out, step);
        return;
    }
#endif
    NAME(add_panel_of_tiles)(count, left, right, rows, columns, out, step);
}

/* Add to a block what the elements of its sums give that are packed, which begin with number `start`. */
static void
NAME(compute_block)(const Product *given, const Block *block, Py_ssize_t start)
{
    const REAL *left = (const REAL *)given->left.packed + block->item * given->left.room;
    const REAL *right = (const REAL *)given->right.packed + block->item * given->right.room;
    for (Py_ssize_t i = 0; i < block->rows && start == 0; i++) {
        memset((REAL *)block->out + i * block->step, 0, block->columns * sizeof(REAL));
    }
    Py_ssize_t turn = given->parts * ELEMENTS_AT_ONCE, first = start - start % turn + block->part * ELEMENTS_AT_ONCE;
    for (Py_ssize_t k = first < start ? first + turn : first; k < given->stop; k += turn) {
        Py_ssize_t count = given->stop - k < ELEMENTS_AT_ONCE ? given->stop - k : ELEMENTS_AT_ONCE;
        const REAL *rows = left + (k - start) * given->left.padded + block->row * count;
        const REAL *columns = right + (k - start) * given->right.padded + block->column * count;
        for (Py_ssize_t first = 0; first < block->rows; first += ROWS_AT_ONCE) {
            Py_ssize_t here = block->rows - first < ROWS_AT_ONCE ? block->rows - first : ROWS_AT_ONCE;
            for (Py_ssize_t column = 0; column < block->columns; column += given->right.width) {
                Py_ssize_t wide = block->columns - column;
                NAME(add_packed_panel)(given, count, rows + first * count, columns + column * count, here,
                                       wide < given->right.width ? wide : given->right.width,
                                       (REAL *)block->out + first * block->step + column, block->step);
            }
        }
    }
}
