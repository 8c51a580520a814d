/* Included once for each REAL: the loops of small_products.c. */

/* The matrix b in `packed`, one row after the other. */
static void
NAME(pack)(const Small *p, REAL *restrict packed)
{
    const REAL *from = p->b;
    for (npy_intp k = 0; k < p->inner; k++, from += p->b_row) {
        for (npy_intp j = 0; j < p->columns; j++) {
            *packed++ = from[j * p->b_column];
        }
    }
}

/* So many rows of the result, from row i on: vectors of columns, and then the columns that are left. */
INLINE void
NAME(few_rows)(const Small *p, const REAL *b, npy_intp i, int rows)
{
    const REAL *a = (const REAL *)p->a + i * p->a_row;
    REAL *out = (REAL *)p->out + i * p->columns;
    npy_intp j = 0;
    for (; j + WIDTH <= p->columns; j += WIDTH) {
        NAME(Vector) sums[FEW], b_row;
        for (int r = 0; r < rows; r++) {
            NAME(fill)(&sums[r], 0);
        }
        for (npy_intp k = 0; k < p->inner; k++) {
            NAME(load)(&b_row, b + k * p->columns + j);
            for (int r = 0; r < rows; r++) {
                NAME(add_multiple)(&sums[r], a[r * p->a_row + k * p->a_column], &b_row);
            }
        }
        for (int r = 0; r < rows; r++) {
            NAME(store)(out + r * p->columns + j, &sums[r]);
        }
    }
    for (; j < p->columns; j++) {
        for (int r = 0; r < rows; r++) {
            REAL sum = 0;
            for (npy_intp k = 0; k < p->inner; k++) {
                sum += a[r * p->a_row + k * p->a_column] * b[k * p->columns + j];
            }
            out[r * p->columns + j] = sum;
        }
    }
}

CLONES static void
NAME(multiply_small)(const Small *p)
{
    REAL packed[MOST_PACKED];
    const REAL *b = p->b;
    if (p->b_column != 1 || p->b_row != p->columns) {
        NAME(pack)(p, packed);
        b = packed;
    }
    npy_intp i = 0;
    for (; i + FEW <= p->rows; i += FEW) {
        NAME(few_rows)(p, b, i, FEW);
    }
    for (; i < p->rows; i++) {
        NAME(few_rows)(p, b, i, 1);
    }
}
