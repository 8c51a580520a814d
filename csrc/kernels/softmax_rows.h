/* Softmax of rows and its logarithm, for the type REAL; see kernels/softmax.c. Each loop tells whether it has served:
 * it does not where the largest number of a row is infinite. */

/* exp(x - shift) */
INLINE void
NAME(exponentials)(const REAL *x, REAL shift, REAL *out, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = NAME(decay)(x[k] - shift);
    }
}

/* The largest numbers of short rows, several at once, because one comparison waits for the one before. */
INLINE void
NAME(short_largest)(const REAL *x, Py_ssize_t rows, Py_ssize_t count, REAL *most)
{
    Py_ssize_t row = 0;
    for (; row + AT_ONCE <= rows; row += AT_ONCE, x += AT_ONCE * count) {
        for (int k = 0; k < AT_ONCE; k++) {
            most[row + k] = x[k * count];
        }
        for (Py_ssize_t j = 1; j < count; j++) {
            for (int k = 0; k < AT_ONCE; k++) {
                most[row + k] = x[k * count + j] > most[row + k] ? x[k * count + j] : most[row + k];
            }
        }
    }
    for (; row < rows; row++, x += count) {
        most[row] = x[0];
        for (Py_ssize_t j = 1; j < count; j++) {
            most[row] = x[j] > most[row] ? x[j] : most[row];
        }
    }
}

INLINE void
NAME(short_sums)(const REAL *x, Py_ssize_t rows, Py_ssize_t count, double *sums)
{
    Py_ssize_t row = 0;
    for (; row + AT_ONCE <= rows; row += AT_ONCE, x += AT_ONCE * count) {
        REAL some[AT_ONCE] = {0};
        for (Py_ssize_t j = 0; j < count; j++) {
            for (int k = 0; k < AT_ONCE; k++) {
                some[k] += x[k * count + j];
            }
        }
        for (int k = 0; k < AT_ONCE; k++) {
            sums[row + k] = some[k];
        }
    }
    for (; row < rows; row++, x += count) {
        REAL some = 0;
        for (Py_ssize_t j = 0; j < count; j++) {
            some += x[j];
        }
        sums[row] = some;
    }
}

/* How many rows are worked on together, so that vectors are full: of short ones many. */
INLINE Py_ssize_t
NAME(together)(Py_ssize_t rows, Py_ssize_t count)
{
    Py_ssize_t most = count > SHORT ? 1 : GROUP;
    return rows < most ? rows : most;
}

/* The largest number of each of these rows, exponentials of the distances from it, and their sum. 0 if one is infinite. */
INLINE int
NAME(exponentials_of_rows)(const REAL *x, Py_ssize_t rows, Py_ssize_t count, REAL *most, REAL *out, double *sums)
{
    if (count > SHORT) {
        most[0] = NAME(largest)(x, count);
        NAME(exponentials)(x, most[0], out, count);
        sums[0] = NAME(sum_of)(out, NULL, count);
        return !isinf(most[0]);
    }
    int is_fine = 1;
    NAME(short_largest)(x, rows, count, most);
    for (Py_ssize_t row = 0; row < rows; row++) {
        is_fine &= !isinf(most[row]);
        for (Py_ssize_t j = 0; j < count; j++) {
            out[row * count + j] = x[row * count + j] - most[row];
        }
    }
    NAME(exponentials)(out, 0, out, rows * count);
    NAME(short_sums)(out, rows, count, sums);
    return is_fine;
}

/* times a number for each row, unless that is NULL */
CLONES static int
NAME(softmax)(const void *input, const void *scales, void *output, Py_ssize_t rows, Py_ssize_t count)
{
    const REAL *x = input, *scale = scales;
    REAL *out = output, most[GROUP];
    double sums[GROUP];
    for (Py_ssize_t r = 0, some; r < rows; r += some, x += some * count) {
        some = NAME(together)(rows - r, count);
        if (!NAME(exponentials_of_rows)(x, some, count, most, out, sums)) {
            return 0;
        }
        for (Py_ssize_t k = 0; k < some; k++, out += count) {
            NAME(multiply)(out, (REAL)((scale == NULL ? 1 : scale[r + k]) / sums[k]), count);
        }
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

INLINE void
NAME(logarithms)(double *x, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        x[k] = LOGARITHM(x[k]);
    }
}

CLONES static int
NAME(log_softmax)(const void *input, const void *unused, void *output, Py_ssize_t rows, Py_ssize_t count)
{
    const REAL *x = input;
    REAL *out = output, most[GROUP];
    double sums[GROUP];
    for (Py_ssize_t r = 0, some; r < rows; r += some) {
        some = NAME(together)(rows - r, count);
        if (!NAME(exponentials_of_rows)(x, some, count, most, out, sums)) {
            return 0;
        }
        NAME(logarithms)(sums, some);
        for (Py_ssize_t k = 0; k < some; k++, x += count, out += count) {
            NAME(subtract)(x, most[k], (REAL)sums[k], out, count);
        }
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
    REAL *out = output, some[BLOCK], most[GROUP];
    double sums[GROUP];
    for (Py_ssize_t r = 0, now; r < rows; r += now, x += now * count) {
        now = NAME(together)(rows - r, count);
        if (count <= SHORT) {
            if (!NAME(exponentials_of_rows)(x, now, count, most, some, sums)) {
                return 0;
            }
        }
        else {
            most[0] = NAME(largest)(x, count);
            sums[0] = 0;
            if (isinf(most[0])) {
                return 0;
            }
            for (Py_ssize_t start = 0; start < count; start += BLOCK) {
                Py_ssize_t n = count - start < BLOCK ? count - start : BLOCK;
                NAME(exponentials)(x + start, most[0], some, n);
                sums[0] += NAME(sum_of_block)(some, NULL, n);
            }
        }
        NAME(logarithms)(sums, now);
        for (Py_ssize_t k = 0; k < now; k++) { /* which loses no digits */
            out[r + k] = (REAL)(less == NULL ? most[k] + sums[k] : sums[k] - (less[r + k] - most[k]));
        }
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
