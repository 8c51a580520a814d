/* A square of WIDTH by WIDTH numbers, turned: what was a row becomes a column. Included once for each REAL. */

#if defined(__GNUC__) && !defined(__clang__)
typedef __typeof__((NAME(Vector)){0} == (NAME(Vector)){0}) NAME(Choice); /* integers, as many as there are numbers */

/* exchange, within two rows that are `step` apart, the blocks of `step` numbers that are not where they belong */
INLINE void
NAME(exchange)(const int step, NAME(Vector) *first, NAME(Vector) *second)
{
    NAME(Choice) lower, upper;
    UNROLLED for (int k = 0; k < (int)WIDTH; k++) {
        lower[k] = k & step ? (int)WIDTH + k - step : k;
        upper[k] = k & step ? (int)WIDTH + k : k + step;
    }
    NAME(Vector) a = *first, b = *second;
    *first = __builtin_shuffle(a, b, lower);
    *second = __builtin_shuffle(a, b, upper);
}

INLINE void
NAME(turn)(const REAL *from, Py_ssize_t from_step, REAL *to, Py_ssize_t to_step)
{
    NAME(Vector) rows[VECTOR_BYTES / sizeof(REAL)];
    UNROLLED for (int k = 0; k < (int)WIDTH; k++) {
        NAME(load)(&rows[k], from + k * from_step);
    }
    UNROLLED for (int step = 1; step < (int)WIDTH; step *= 2) {
        UNROLLED for (int k = 0; k < (int)WIDTH; k++) {
            if (!(k & step)) {
                NAME(exchange)(step, &rows[k], &rows[k + step]);
            }
        }
    }
    UNROLLED for (int k = 0; k < (int)WIDTH; k++) {
        NAME(store)(to + k * to_step, &rows[k]);
    }
}

#else
INLINE void
NAME(turn)(const REAL *from, Py_ssize_t from_step, REAL *to, Py_ssize_t to_step)
{
    for (Py_ssize_t i = 0; i < WIDTH; i++) {
        for (Py_ssize_t k = 0; k < WIDTH; k++) {
            to[i * to_step + k] = from[k * from_step + i];
        }
    }
}
#endif
