/* The product of rows that lie anywhere with a panel of one or two vectors: see kernels/convolution_products.h. Included
 * for each REAL, for vectors of each size, with the numbers of rows that are computed together: as many as there are
 * registers for.
 */

/* ROWS rows of a panel of VECTORS vectors: add the sums to what is there */
INLINE void
NAME(panel_tile)(const int ROWS, const int VECTORS, const REAL *x, const Py_ssize_t *a, const Py_ssize_t *b,
                 Py_ssize_t count, const REAL *panel, REAL *out)
{
    NAME(Vector) sums[16], y[2];
    const REAL *rows[12];
    UNROLLED for (int i = 0; i < ROWS; i++) {
        rows[i] = x + a[i];
        UNROLLED for (int j = 0; j < VECTORS; j++) {
            NAME(load)(&sums[i * VECTORS + j], out + (i * VECTORS + j) * WIDTH);
        }
    }
    for (Py_ssize_t k = 0; k < count; k++, panel += VECTORS * WIDTH) {
        Py_ssize_t at = b[k];
        UNROLLED for (int j = 0; j < VECTORS; j++) {
            NAME(load)(&y[j], panel + j * WIDTH);
        }
        UNROLLED for (int i = 0; i < ROWS; i++) {
            REAL factor = rows[i][at];
            UNROLLED for (int j = 0; j < VECTORS; j++) {
                NAME(add_multiple)(&sums[i * VECTORS + j], factor, &y[j]);
            }
        }
    }
    UNROLLED for (int i = 0; i < ROWS; i++) {
        UNROLLED for (int j = 0; j < VECTORS; j++) {
            NAME(store)(out + (i * VECTORS + j) * WIDTH, &sums[i * VECTORS + j]);
        }
    }
}

/* fewer rows than a tile has: the last one is computed several times, in vain */
INLINE void
NAME(panel_end)(const int ROWS, const int VECTORS, Py_ssize_t rows, const REAL *x, const Py_ssize_t *a,
                const Py_ssize_t *b, Py_ssize_t count, const REAL *panel, REAL *out)
{
    Py_ssize_t all[12];
    REAL tile[16 * VECTOR_BYTES / sizeof(REAL)] = {0};
    size_t size = rows * VECTORS * WIDTH * sizeof(REAL);
    for (Py_ssize_t i = 0; i < ROWS; i++) {
        all[i] = a[i < rows ? i : rows - 1];
    }
    memcpy(tile, out, size);
    NAME(panel_tile)(ROWS, VECTORS, x, all, b, count, panel, tile);
    memcpy(out, tile, size);
}

#define TILES(per_tile, vectors)                                                                                  \
    for (; rows >= per_tile; rows -= per_tile, a += per_tile, out += per_tile * vectors * WIDTH) {                \
        NAME(panel_tile)(per_tile, vectors, x, a, b, count, panel, out);                                          \
    }                                                                                                             \
    if (rows > 0) {                                                                                               \
        NAME(panel_end)(per_tile, vectors, rows, x, a, b, count, panel, out);                                     \
    }

/* add to each row of `out`, of so many vectors, a sum over `count` elements: x[a of the row + b of the element] times
 * the element's vectors in the panel */
PANEL_TARGET static void
NAME(panel_product)(int vectors, Py_ssize_t rows, const REAL *x, const Py_ssize_t *a, const Py_ssize_t *b,
                    Py_ssize_t count, const REAL *panel, REAL *out)
{
    if (vectors == 2) {
        TILES(ROWS_OF_TWO, 2)
    }
    else {
        TILES(ROWS_OF_ONE, 1)
    }
}
#undef TILES
