/* Rows of numbers with zero mean and unit variance, for the type REAL; see kernels/layer_norm.c.
 *
 * A mean is used in two parts: `shift`, which is a REAL near it, and the rest. x - shift is exact where the mean is
 * large, so that nothing is lost then.
 */

INLINE void
NAME(norm_row)(const REAL *x, const REAL *weight, const REAL *bias, REAL *out, Py_ssize_t width, REAL shift,
               REAL factor, REAL offset)
{
    for (Py_ssize_t k = 0; k < width; k++) {
        out[k] = ((x[k] - shift) * factor + offset) * weight[k] + bias[k];
    }
}

CLONES static void
NAME(norm_rows)(const REAL *x, const REAL *weight, const REAL *bias, REAL *out, REAL *mean, REAL *rstd,
                Py_ssize_t rows, Py_ssize_t width, double eps)
{
    for (Py_ssize_t r = 0; r < rows; r++, x += width, out += width) {
        REAL shift = mean == NULL ? 0 : (REAL)(NAME(total)(x, width) / width);
        double sum = 0, squares = 0;
        NAME(moments)(x, width, shift, &sum, &squares);
        double rest = mean == NULL ? 0 : sum / width, variance = squares / width - rest * rest;
        double factor = 1 / sqrt((variance < 0 ? 0 : variance) + eps);
        NAME(norm_row)(x, weight, bias, out, width, shift, (REAL)factor, (REAL)(-rest * factor));
        rstd[r] = (REAL)factor;
        if (mean != NULL) {
            mean[r] = (REAL)(shift + rest);
        }
    }
}

INLINE void
NAME(input_gradient)(const REAL *x, const REAL *g, const REAL *weight, REAL *out, Py_ssize_t width, REAL shift,
                     REAL factor, REAL slope, REAL offset)
{
    for (Py_ssize_t k = 0; k < width; k++) {
        out[k] = g[k] * weight[k] * factor - ((x[k] - shift) * slope + offset);
    }
}

INLINE void
NAME(weight_gradient)(const REAL *x, const REAL *g, REAL *of_weight, REAL *of_bias, Py_ssize_t width, REAL shift,
                      REAL factor, REAL offset)
{
    for (Py_ssize_t k = 0; k < width; k++) {
        of_weight[k] += g[k] * ((x[k] - shift) * factor + offset);
        of_bias[k] += g[k];
    }
}

INLINE void
NAME(flush)(REAL *parts, double *sums, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        sums[k] += parts[k];
        parts[k] = 0;
    }
}

/* Gradients of the input (unless out is NULL), and of weight and bias: added to sums, if that is not NULL, which has
 * room for one after the other, as has `parts`. */
CLONES static void
NAME(norm_rows_gradient)(const REAL *x, const REAL *g, const REAL *weight, const REAL *mean, const REAL *rstd,
                         REAL *out, REAL *parts, double *sums, Py_ssize_t rows, Py_ssize_t width)
{
    for (Py_ssize_t r = 0; r < rows; r++, x += width, g += width) {
        NAME(Sums) found = {0, 0, 0};
        REAL shift = mean == NULL ? 0 : mean[r];
        double factor = rstd[r];
        NAME(products)(x, g, weight, width, shift, &found);
        double rest = mean == NULL ? 0 : found.x / width;
        if (out != NULL) {
            double slope = factor * factor * factor * (found.product - rest * found.g) / width;
            double offset = mean == NULL ? 0 : factor * found.g / width - rest * slope;
            NAME(input_gradient)(x, g, weight, out, width, shift, (REAL)factor, (REAL)slope, (REAL)offset);
            out += width;
        }
        if (sums != NULL) {
            NAME(weight_gradient)(x, g, parts, parts + width, width, shift, (REAL)factor, (REAL)(-rest * factor));
            if (r % FEW_ROWS == FEW_ROWS - 1 || r == rows - 1) {
                NAME(flush)(parts, sums, 2 * width);
            }
        }
    }
}

/* ---- with the arrays: rows from `first` to before `last`, or pieces of them */

static void
NAME(run_norm_rows)(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const RowNorm *given = context;
    Py_ssize_t start = first * given->width;
    REAL *mean = given->mean;
    NAME(norm_rows)((const REAL *)given->x + start, given->weight, given->bias, (REAL *)given->out + start,
                    mean == NULL ? NULL : mean + first, (REAL *)given->rstd + first, last - first, given->width,
                    given->eps);
}

/* The sums of a piece are its own, so that their sum does not depend on who makes them. */
static void
NAME(run_norm_rows_gradient)(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const RowNorm *given = context;
    Py_ssize_t width = given->width;
    const REAL *mean = given->mean;
    REAL *out = given->out;
    for (Py_ssize_t piece = first; piece < last; piece++) {
        Py_ssize_t row = piece * given->in_piece, left = given->rows - row, start = row * width;
        double *sums = given->sums == NULL ? NULL : given->sums + piece * 4 * width;
        if (sums != NULL) {
            memset(sums, 0, 4 * width * sizeof(double));
        }
        NAME(norm_rows_gradient)((const REAL *)given->x + start, (const REAL *)given->g + start, given->weight,
                                 mean == NULL ? NULL : mean + row, (const REAL *)given->rstd + row,
                                 out == NULL ? NULL : out + start, sums == NULL ? NULL : (REAL *)(sums + 2 * width),
                                 sums, left < given->in_piece ? left : given->in_piece, width);
    }
}

/* Numbers in the place of weights that are not there; zeros behind them, in the place of a bias. */
static void
NAME(fill_plain)(double *memory, Py_ssize_t width)
{
    REAL *plain = (REAL *)memory;
    for (Py_ssize_t k = 0; k < width; k++) {
        plain[k] = 1;
        plain[width + k] = 0;
    }
}

/* The sums of all pieces, for weight and bias. */
static void
NAME(add_pieces)(const RowNorm *given, Py_ssize_t pieces)
{
    Py_ssize_t width = given->width;
    for (Py_ssize_t piece = 1; piece < pieces; piece++) {
        for (Py_ssize_t k = 0; k < 2 * width; k++) {
            given->sums[k] += given->sums[piece * 4 * width + k];
        }
    }
    for (Py_ssize_t k = 0; k < width && given->of_weight != NULL; k++) {
        ((REAL *)given->of_weight)[k] = (REAL)given->sums[k];
    }
    for (Py_ssize_t k = 0; k < width && given->of_bias != NULL; k++) {
        ((REAL *)given->of_bias)[k] = (REAL)given->sums[width + k];
    }
}
