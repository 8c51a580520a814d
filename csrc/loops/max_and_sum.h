/* The largest of many numbers, and sums of them, for the type REAL. LANES of either are in the making at the same time,
 * so that compilers can use vectors, although the order of additions is fixed.
 */

INLINE REAL
NAME(largest)(const REAL *x, Py_ssize_t count)
{
    REAL most[LANES], result = x[0];
    for (int j = 0; j < LANES; j++) {
        most[j] = x[0];
    }
    Py_ssize_t k = 0;
    for (; k + LANES <= count; k += LANES) {
        for (int j = 0; j < LANES; j++) {
            most[j] = x[k + j] > most[j] ? x[k + j] : most[j];
        }
    }
    for (; k < count; k++) {
        result = x[k] > result ? x[k] : result;
    }
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++) {
            most[j] = most[j + half] > most[j] ? most[j + half] : most[j];
        }
    }
    return most[0] > result ? most[0] : result;
}

/* the sum of x * y, or of x if y is NULL; of no more than BLOCK numbers */
INLINE REAL
NAME(sum_of_block)(const REAL *x, const REAL *y, Py_ssize_t count)
{
    REAL sums[LANES] = {0}, result = 0;
    Py_ssize_t k = 0;
    for (; k + LANES <= count; k += LANES) {
        for (int j = 0; j < LANES; j++) {
            sums[j] += y == NULL ? x[k + j] : x[k + j] * y[k + j];
        }
    }
    for (; k < count; k++) {
        result += y == NULL ? x[k] : x[k] * y[k];
    }
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++) {
            sums[j] += sums[j + half];
        }
    }
    return result + sums[0];
}

/* the same for any number of them: blocks are added up in double */
INLINE double
NAME(sum_of)(const REAL *x, const REAL *y, Py_ssize_t count)
{
    double sum = 0;
    for (Py_ssize_t start = 0; start < count; start += BLOCK) {
        Py_ssize_t n = count - start < BLOCK ? count - start : BLOCK;
        sum += NAME(sum_of_block)(x + start, y == NULL ? NULL : y + start, n);
    }
    return sum;
}

INLINE void
NAME(multiply)(REAL *x, REAL factor, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        x[k] *= factor;
    }
}
