/* batch_norm of examples without further dimensions: columns of a matrix, for the type REAL; see kernels/batch_norm.c.
 *
 * The matrix is walked through row by row. What has one number for each column lies in scratch memory: first sums in
 * double, then as many parts of them in REAL, which FEW_ROWS rows are added to, then what is applied to all rows.
 */

typedef struct {
    Py_ssize_t stride; /* from an array to the next */
    double *sums;      /* three arrays */
    REAL *parts;       /* three arrays */
    REAL *shift, *factor, *slope, *offset;
} NAME(Columns);

static NAME(Columns) NAME(columns_in)(double *scratch, Py_ssize_t count)
{
    Py_ssize_t stride = column_stride(count);
    REAL *parts = (REAL *)(scratch + 3 * stride), *rest = parts + 3 * stride;
    memset(scratch, 0, COLUMN_ARRAYS * stride * sizeof(double));
    return (NAME(Columns)){stride, scratch, parts, rest, rest + stride, rest + 2 * stride, rest + 3 * stride};
}

/* After some rows, and after the last one: move what the first parts have gathered to the sums. */
INLINE void
NAME(gather)(const NAME(Columns) * at, int arrays, Py_ssize_t row, Py_ssize_t rows)
{
    if (row % FEW_ROWS == FEW_ROWS - 1 || row == rows - 1) {
        for (Py_ssize_t k = 0; k < arrays * at->stride; k++) {
            at->sums[k] += at->parts[k];
            at->parts[k] = 0;
        }
    }
}

/* Add a row; x - shift and its square; x - shift, g and their product. */
INLINE void
NAME(add_row)(const REAL *restrict x, REAL *restrict s, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        s[k] += x[k];
    }
}

INLINE void
NAME(add_squares)(const REAL *restrict x, const REAL *restrict shift, REAL *restrict s, REAL *restrict q,
                  Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        REAL p = x[k] - shift[k];
        s[k] += p;
        q[k] += p * p;
    }
}

INLINE void
NAME(add_products)(const REAL *restrict x, const REAL *restrict g, const REAL *restrict shift, REAL *restrict s,
                   REAL *restrict t, REAL *restrict u, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        REAL p = x[k] - shift[k];
        s[k] += p;
        t[k] += g[k];
        u[k] += p * g[k];
    }
}

INLINE void
NAME(apply_to_row)(const REAL *restrict x, const NAME(Columns) * at, REAL *restrict out, Py_ssize_t count)
{
    const REAL *restrict shift = at->shift, *restrict factor = at->factor, *restrict offset = at->offset;
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = (x[k] - shift[k]) * factor[k] + offset[k];
    }
}

INLINE void
NAME(gradient_of_row)(const REAL *restrict x, const REAL *restrict g, const NAME(Columns) * at, REAL *restrict out,
                      Py_ssize_t count)
{
    const REAL *restrict shift = at->shift, *restrict factor = at->factor, *restrict slope = at->slope,
               *restrict offset = at->offset;
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = g[k] * factor[k] - ((x[k] - shift[k]) * slope[k] + offset[k]);
    }
}

CLONES static void
NAME(norm_columns)(const ChannelNorm *given)
{
    Py_ssize_t rows = given->examples, count = given->channels;
    const REAL *x = given->x, *weight = given->weight, *bias = given->bias;
    NAME(Columns) at = NAME(columns_in)(given->scratch, count);
    for (Py_ssize_t r = 0; r < rows; r++) {
        NAME(add_row)(x + r * count, at.parts, count);
        NAME(gather)(&at, 1, r, rows);
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        at.shift[k] = (REAL)(at.sums[k] / rows);
        at.sums[k] = 0;
    }
    for (Py_ssize_t r = 0; r < rows; r++) {
        NAME(add_squares)(x + r * count, at.shift, at.parts, at.parts + at.stride, count);
        NAME(gather)(&at, 2, r, rows);
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        Moments found = moments_of(at.sums[k], at.sums[at.stride + k], rows, given->eps);
        double scale = found.rstd * (weight == NULL ? 1 : weight[k]);
        at.factor[k] = (REAL)scale;
        at.offset[k] = (REAL)((bias == NULL ? 0 : bias[k]) - found.rest * scale);
        NAME(store_moments)(given, k, at.shift[k], found);
    }
    REAL *out = given->out;
    for (Py_ssize_t r = 0; r < rows; r++, x += count, out += count) {
        NAME(apply_to_row)(x, &at, out, count);
    }
}

CLONES static void
NAME(norm_columns_gradient)(const ChannelNorm *given)
{
    Py_ssize_t rows = given->examples, count = given->channels;
    const REAL *x = given->x, *g = given->g, *weight = given->weight, *rstd = given->rstd;
    NAME(Columns) at = NAME(columns_in)(given->scratch, count);
    memcpy(at.shift, given->mean, count * sizeof(REAL));
    for (Py_ssize_t r = 0; r < rows; r++) {
        NAME(add_products)(x + r * count, g + r * count, at.shift, at.parts, at.parts + at.stride,
                           at.parts + 2 * at.stride, count);
        NAME(gather)(&at, 3, r, rows);
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        double rest = at.sums[k] / rows, of_bias = at.sums[at.stride + k];
        double along = at.sums[2 * at.stride + k] - rest * of_bias;
        double factor = rstd[k] * (weight == NULL ? 1.0 : weight[k]), slope = along * rstd[k] * rstd[k] * factor / rows;
        at.factor[k] = (REAL)factor;
        at.slope[k] = (REAL)slope;
        at.offset[k] = (REAL)(factor * of_bias / rows - rest * slope);
        NAME(store_gradients)(given, k, along * rstd[k], of_bias);
    }
    REAL *out = given->out;
    for (Py_ssize_t r = 0; r < rows && out != NULL; r++, x += count, g += count, out += count) {
        NAME(gradient_of_row)(x, g, &at, out, count);
    }
}
