/* The innermost part of a product of matrices: tiles of TILE_ROWS rows and one or two vectors, whose sums stay in
 * registers. Included for each REAL, for vectors of each size.
 *
 * Both factors are packed (see kernels/product_blocks.h): for each element of the sums, the TILE_ROWS numbers of a tile
 * lie side by side, and so do the vectors of a panel.
 */

/* out[row][column] += the sum over `count` elements of left[element][row] * right[element][column] */
INLINE void
NAME(add_tile)(const int VECTORS, Py_ssize_t count, const REAL *left, const REAL *right, REAL *out, Py_ssize_t step)
{
    NAME(Vector) sums[2 * TILE_ROWS], y[2];
    UNROLLED for (int i = 0; i < TILE_ROWS; i++) {
        UNROLLED for (int j = 0; j < VECTORS; j++) {
            NAME(load)(&sums[i * VECTORS + j], out + i * step + j * WIDTH);
        }
    }
    for (Py_ssize_t k = 0; k < count; k++, left += TILE_ROWS, right += VECTORS * WIDTH) {
        UNROLLED for (int j = 0; j < VECTORS; j++) {
            NAME(load)(&y[j], right + j * WIDTH);
        }
        UNROLLED for (int i = 0; i < TILE_ROWS; i++) {
            UNROLLED for (int j = 0; j < VECTORS; j++) {
                NAME(add_multiple)(&sums[i * VECTORS + j], left[i], &y[j]);
            }
        }
    }
    UNROLLED for (int i = 0; i < TILE_ROWS; i++) {
        UNROLLED for (int j = 0; j < VECTORS; j++) {
            NAME(store)(out + i * step + j * WIDTH, &sums[i * VECTORS + j]);
        }
    }
}

/* the same for a tile of which only some rows and columns are there */
INLINE void
NAME(add_part_of_tile)(const int VECTORS, Py_ssize_t count, const REAL *left, const REAL *right, Py_ssize_t rows,
                       Py_ssize_t columns, REAL *out, Py_ssize_t step)
{
    REAL tile[2 * TILE_ROWS * VECTOR_BYTES / sizeof(REAL)] = {0};
    for (Py_ssize_t i = 0; i < rows; i++) {
        memcpy(tile + i * VECTORS * WIDTH, out + i * step, columns * sizeof(REAL));
    }
    NAME(add_tile)(VECTORS, count, left, right, tile, VECTORS * WIDTH);
    for (Py_ssize_t i = 0; i < rows; i++) {
        memcpy(out + i * step, tile + i * VECTORS * WIDTH, columns * sizeof(REAL));
    }
}

/* add to `rows` rows of a panel of so many columns: the tiles of `left` follow each other */
TILE_TARGET static void
NAME(add_panel_of_tiles)(Py_ssize_t count, const REAL *left, const REAL *right, Py_ssize_t rows, Py_ssize_t columns,
                         REAL *out, Py_ssize_t step)
{
    for (; rows > 0; rows -= TILE_ROWS, left += TILE_ROWS * count, out += TILE_ROWS * step) {
        if (columns == WIDTH && rows >= TILE_ROWS) {
            NAME(add_tile)(1, count, left, right, out, step);
        }
        else if (columns <= WIDTH) {
            NAME(add_part_of_tile)(1, count, left, right, rows < TILE_ROWS ? rows : TILE_ROWS, columns, out, step);
        }
        else if (rows < TILE_ROWS || columns < 2 * WIDTH) {
            NAME(add_part_of_tile)(2, count, left, right, rows < TILE_ROWS ? rows : TILE_ROWS, columns, out, step);
        }
        else {
            NAME(add_tile)(2, count, left, right, out, step);
        }
    }
}
