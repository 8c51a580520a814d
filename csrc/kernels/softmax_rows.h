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

CLONES static int
NAME(softmax)(const void *input, const void *unused, void *output, Py_ssize_t rows, Py_ssize_t count)
{
    const REAL *x = input;
    REAL *out = output;
    for (Py_ssize_t r = 0; r < rows; r++, x += count, out += count) {
        REAL most = NAME(largest)(x, count);
        if (isinf(most)) {
            return 0;
        }
        NAME(exponentials)(x, most, out, count);
        NAME(multiply)(out, (REAL)(1 / NAME(sum_of)(out, NULL, count)), count);
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
