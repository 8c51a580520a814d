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

/* ---- with the arrays */

static void
NAME(run_norm_rows)(const RowNorm *given)
{
    Py_ssize_t width = given->width;
    REAL *plain = NULL;
    const REAL *weight = given->weight, *bias = given->bias;
    if (weight == NULL || bias == NULL) {
        plain = (REAL *)given->scratch;
        for (Py_ssize_t k = 0; k < width; k++) {
            plain[k] = 1;
            plain[width + k] = 0;
        }
    }
    NAME(norm_rows)(given->x, weight == NULL ? plain : weight, bias == NULL ? plain + width : bias, given->out,
                    given->mean, given->rstd, given->rows, width, given->eps);
}

static void
NAME(run_norm_rows_gradient)(const RowNorm *given)
{
    Py_ssize_t width = given->width;
    double *sums = given->scratch;
    REAL *parts = (REAL *)(sums + 2 * width), *ones = parts + 2 * width;
    memset(sums, 0, 2 * width * (sizeof(double) + sizeof(REAL)));
    for (Py_ssize_t k = 0; k < width; k++) {
        ones[k] = 1;
    }
    int sums_wanted = given->of_weight != NULL || given->of_bias != NULL;
    NAME(norm_rows_gradient)(given->x, given->g, given->weight == NULL ? ones : given->weight, given->mean,
                             given->rstd, given->out, parts, sums_wanted ? sums : NULL, given->rows, width);
    for (Py_ssize_t k = 0; k < width && given->of_weight != NULL; k++) {
        ((REAL *)given->of_weight)[k] = (REAL)sums[k];
    }
    for (Py_ssize_t k = 0; k < width && given->of_bias != NULL; k++) {
        ((REAL *)given->of_bias)[k] = (REAL)sums[width + k];
    }
}
