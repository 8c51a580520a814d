/* Softmax of rows and its logarithm, for the type REAL; see kernels/softmax.c. Each loop tells whether it has served:
 * it does not where the largest number of a row is infinite. */

/* exp(x - shift) */
INLINE void
NAME(exponentials)(const REAL *restrict x, REAL shift, REAL *restrict out, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = NAME(decay)(x[k] - shift);
    }
}

/* times a number for each row, unless that is NULL */
CLONES static int
NAME(softmax)(const void *input, const void *scales, void *output, Py_ssize_t rows, Py_ssize_t count)
{
    const REAL *x = input, *scale = scales;
    REAL *out = output;
    for (Py_ssize_t r = 0; r < rows; r++, x += count, out += count) {
        REAL most = NAME(largest)(x, count);
        if (isinf(most)) {
            return 0;
        }
        NAME(exponentials)(x, most, out, count);
        double sum = NAME(sum_of)(out, NULL, count);
        NAME(multiply)(out, (REAL)((scale == NULL ? 1 : scale[r]) / sum), count);
    }
    return 1;
}

INLINE void
NAME(subtract)(const REAL *restrict x, REAL first, REAL second, REAL *restrict out, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = (x[k] - first) - second; /* one after the other: their sum would lose digits of the logarithm */
    }
}

CLONES static int
NAME(log_softmax)(const void *input, const void *unused, void *output, Py_ssize_t rows, Py_ssize_t count)
{
    const REAL *x = input;
    REAL *out = output;
    for (Py_ssize_t r = 0; r < rows; r++, x += count, out += count) {
        REAL most = NAME(largest)(x, count);
        if (isinf(most)) {
            return 0;
        }
        NAME(exponentials)(x, most, out, count);
        NAME(subtract)(x, most, (REAL)log(NAME(sum_of)(out, NULL, count)), out, count);
    }
    return 1;
}

INLINE void
NAME(across)(const REAL *restrict g, const REAL *restrict y, REAL along, REAL *restrict out, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = y[k] * (g[k] - along);
    }
}

CLONES static int
NAME(softmax_gradient)(const void *grad, const void *result, void *output, Py_ssize_t rows, Py_ssize_t count)
{
    const REAL *g = grad, *y = result;
    REAL *out = output;
    for (Py_ssize_t r = 0; r < rows; r++, g += count, y += count, out += count) {
        NAME(across)(g, y, (REAL)NAME(sum_of)(g, y, count), out, count);
    }
    return 1;
}

INLINE void
NAME(less_share)(const REAL *restrict g, const REAL *restrict y, REAL total, REAL *restrict out, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = g[k] - NAME(decay)(y[k]) * total;
    }
}

CLONES static int
NAME(log_softmax_gradient)(const void *grad, const void *result, void *output, Py_ssize_t rows, Py_ssize_t count)
{
    const REAL *g = grad, *y = result;
    REAL *out = output;
    for (Py_ssize_t r = 0; r < rows; r++, g += count, y += count, out += count) {
        NAME(less_share)(g, y, (REAL)NAME(sum_of)(g, NULL, count), out, count);
    }
    return 1;
}

/* log(sum(exp(x))) of every row, minus a number that is given for it, unless that is NULL */
CLONES static int
NAME(logsumexp)(const void *input, const void *numbers, void *output, Py_ssize_t rows, Py_ssize_t count)
{
    const REAL *x = input, *less = numbers;
    REAL *out = output, some[BLOCK];
    for (Py_ssize_t r = 0; r < rows; r++, x += count) {
        REAL most = NAME(largest)(x, count);
        double sum = 0;
        if (isinf(most)) {
            return 0;
        }
        for (Py_ssize_t start = 0; start < count; start += BLOCK) {
            Py_ssize_t n = count - start < BLOCK ? count - start : BLOCK;
            NAME(exponentials)(x + start, most, some, n);
            sum += NAME(sum_of_block)(some, NULL, n);
        }
        out[r] = (REAL)(less == NULL ? most + log(sum) : log(sum) - (less[r] - most)); /* which loses no digits */
    }
    return 1;
}

/* its gradient, from those of the results and the results, two for every row */
CLONES static int
NAME(logsumexp_gradient)(const void *input, const void *pairs, void *output, Py_ssize_t rows, Py_ssize_t count)
{
    const REAL *x = input, *pair = pairs;
    REAL *out = output;
    for (Py_ssize_t r = 0; r < rows; r++, x += count, out += count, pair += 2) {
        if (isinf(pair[1])) {
            return 0;
        }
        NAME(exponentials)(x, pair[1], out, count);
        NAME(multiply)(out, pair[0], count);
    }
    return 1;
}
