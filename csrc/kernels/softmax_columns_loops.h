/* Softmax of columns, for the type REAL; see kernels/softmax_columns.c. */

/* The largest number of each of these columns, exponentials of the distances from it, if they are wanted, and the
 * logarithms or inverses of their sums. 0 if a largest number is infinite. */
INLINE int
NAME(sum_columns)(const REAL *x, Py_ssize_t rows, Py_ssize_t step, Py_ssize_t count, REAL *most, REAL *out, double *sums)
{
    int is_fine = 1;
    REAL some[STRIP];
    memcpy(most, x, count * sizeof(REAL));
    for (Py_ssize_t i = 1; i < rows; i++) {
        for (Py_ssize_t k = 0; k < count; k++) {
            most[k] = x[i * step + k] > most[k] ? x[i * step + k] : most[k];
        }
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        is_fine &= !isinf(most[k]);
        sums[k] = 0;
    }
    for (Py_ssize_t first = 0; first < rows; first += FEW_ROWS) {
        Py_ssize_t last = rows - first < FEW_ROWS ? rows : first + FEW_ROWS;
        memset(some, 0, count * sizeof(REAL));
        for (Py_ssize_t i = first; i < last; i++) {
            for (Py_ssize_t k = 0; k < count; k++) {
                REAL value = NAME(decay)(x[i * step + k] - most[k]);
                some[k] += value;
                if (out != NULL) {
                    out[i * step + k] = value;
                }
            }
        }
        for (Py_ssize_t k = 0; k < count; k++) {
            sums[k] += some[k];
        }
    }
    return is_fine;
}

CLONES static int
NAME(softmax_of_strip)(const Columns *given, const REAL *x, const REAL *numbers, Py_ssize_t count, REAL *out)
{
    REAL most[STRIP], factors[STRIP];
    double sums[STRIP];
    if (!NAME(sum_columns)(x, given->rows, given->inner, count, most, out, sums)) {
        return 0;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        factors[k] = (REAL)((numbers == NULL ? 1 : numbers[k]) / sums[k]);
    }
    for (Py_ssize_t i = 0; i < given->rows; i++) {
        for (Py_ssize_t k = 0; k < count; k++) {
            out[i * given->inner + k] *= factors[k];
        }
    }
    return 1;
}

CLONES static int
NAME(log_softmax_of_strip)(const Columns *given, const REAL *x, const REAL *numbers, Py_ssize_t count, REAL *out)
{
    REAL most[STRIP], logarithms[STRIP];
    double sums[STRIP];
    if (!NAME(sum_columns)(x, given->rows, given->inner, count, most, NULL, sums)) {
        return 0;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        logarithms[k] = (REAL)LOGARITHM(sums[k]);
    }
    for (Py_ssize_t i = 0; i < given->rows; i++) {
        for (Py_ssize_t k = 0; k < count; k++) { /* one after the other: their sum would lose digits of the logarithm */
            out[i * given->inner + k] = (x[i * given->inner + k] - most[k]) - logarithms[k];
        }
    }
    return 1;
}

CLONES static int
NAME(logsumexp_of_strip)(const Columns *given, const REAL *x, const REAL *numbers, Py_ssize_t count, REAL *out)
{
    REAL most[STRIP];
    double sums[STRIP];
    if (!NAME(sum_columns)(x, given->rows, given->inner, count, most, NULL, sums)) {
        return 0;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        double above = numbers == NULL ? most[k] : (double)most[k] - numbers[k];
        out[k] = (REAL)(LOGARITHM(sums[k]) + above);
    }
    return 1;
}

/* strips, numbered from `first` to before `last`, of all columns */
static void
NAME(run_strips)(void *context, Py_ssize_t first, Py_ssize_t last)
{
    Columns *given = context;
    Py_ssize_t strips = (given->inner + STRIP - 1) / STRIP;
    for (Py_ssize_t number = first; number < last; number++) {
        Py_ssize_t outer = number / strips, column = number % strips * STRIP;
        Py_ssize_t count = given->inner - column < STRIP ? given->inner - column : STRIP;
        Py_ssize_t place = outer * given->rows * given->inner + column, kept = outer * given->inner + column;
        const REAL *x = (const REAL *)given->x + place;
        const REAL *numbers = given->numbers == NULL ? NULL : (const REAL *)given->numbers + kept;
        REAL *out = (REAL *)given->out + (given->what == LOGSUMEXP ? kept : place);
        int is_done = given->what == SOFTMAX       ? NAME(softmax_of_strip)(given, x, numbers, count, out)
                      : given->what == LOG_SOFTMAX ? NAME(log_softmax_of_strip)(given, x, numbers, count, out)
                                                   : NAME(logsumexp_of_strip)(given, x, numbers, count, out);
        if (!is_done) {
            atomic_store(&given->is_refused, 1);
        }
    }
}
