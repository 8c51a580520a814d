/* Rows of attention scores, for the type REAL; see kernels/attention.c. */

/* exp(x * factor - shift), where that is not above zero, but for rounding */
INLINE void
NAME(decay_row)(REAL *x, REAL factor, REAL shift, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        x[k] = NAME(decay)(x[k] * factor - shift);
    }
}

CLONES static void
NAME(softmax_scores)(void *context, Py_ssize_t begin, Py_ssize_t end)
{
    const Scores *given = context;
    REAL *x = (REAL *)given->scores + begin * given->columns, *logs = given->logs, scale = (REAL)given->scale;
    for (Py_ssize_t r = begin; r < end; r++, x += given->columns) {
        Py_ssize_t count = seen(given, r);
        if (scale < 0) { /* the largest score would become the smallest */
            NAME(multiply)(x, scale, count);
        }
        REAL factor = scale < 0 ? 1 : scale, most = NAME(largest)(x, count) * factor;
        if (most == -INFINITY) { /* it sees nothing; any logarithm but -inf gives zeros again */
            memset(x, 0, given->columns * sizeof(REAL));
            logs[r] = 0;
            continue;
        }
        NAME(decay_row)(x, factor, most, count);
        double sum = NAME(sum_of)(x, NULL, count);
        NAME(multiply)(x, (REAL)(1 / sum), count);
        memset(x + count, 0, (given->columns - count) * sizeof(REAL));
        logs[r] = most + (REAL)log(sum);
    }
}

CLONES static void
NAME(weigh_scores)(void *context, Py_ssize_t begin, Py_ssize_t end)
{
    const Scores *given = context;
    REAL *x = (REAL *)given->scores + begin * given->columns, *logs = given->logs;
    for (Py_ssize_t r = begin; r < end; r++, x += given->columns) {
        Py_ssize_t count = seen(given, r);
        NAME(decay_row)(x, (REAL)given->scale, logs[r], count);
        memset(x + count, 0, (given->columns - count) * sizeof(REAL));
    }
}

INLINE void
NAME(slope_row)(const REAL *restrict p, REAL *restrict g, REAL along, REAL scale, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        g[k] = p[k] * (g[k] - along) * scale;
    }
}

CLONES static void
NAME(slope_scores)(void *context, Py_ssize_t begin, Py_ssize_t end)
{
    const Scores *given = context;
    const REAL *p = (const REAL *)given->weights + begin * given->columns;
    REAL *g = (REAL *)given->scores + begin * given->columns;
    for (Py_ssize_t r = begin; r < end; r++, p += given->columns, g += given->columns) {
        NAME(slope_row)(p, g, (REAL)NAME(sum_of)(p, g, given->columns), (REAL)given->scale, given->columns);
    }
}
