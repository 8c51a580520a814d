/* Stacks of small matrices, one after the other, in the precision they come in. See kernels/small_matrices.c. */

/* x[j] -= factor * y[j] */
INLINE void
NAME(subtract_multiple)(REAL *restrict x, REAL factor, const REAL *restrict y, Py_ssize_t count)
{
    for (Py_ssize_t j = 0; j < count; j++) {
        x[j] -= factor * y[j];
    }
}

INLINE void
NAME(divide_row)(REAL *x, REAL divisor, Py_ssize_t count)
{
    for (Py_ssize_t j = 0; j < count; j++) {
        x[j] /= divisor;
    }
}

/* X of A X = B, in the place of B; the other triangle of A is not read, nor is its diagonal if it is `unit` */
CLONES static void
NAME(substitute)(const REAL *a, REAL *x, Py_ssize_t n, Py_ssize_t columns, int upper, int unit)
{
    for (Py_ssize_t k = 0; k < n; k++) {
        Py_ssize_t i = upper ? n - 1 - k : k;
        for (Py_ssize_t j = upper ? i + 1 : 0; j < (upper ? n : i); j++) {
            NAME(subtract_multiple)(x + i * columns, a[i * n + j], x + j * columns, columns);
        }
        if (!unit) {
            NAME(divide_row)(x + i * columns, a[i * n + i], columns);
        }
    }
}

/* the lower factor of a matrix of which the lower triangle is read; 0 if it is not positive-definite */
CLONES static int
NAME(factorise)(const REAL *a, REAL *out, Py_ssize_t n)
{
    memset(out, 0, n * n * sizeof(REAL));
    for (Py_ssize_t i = 0; i < n; i++) {
        for (Py_ssize_t j = 0; j <= i; j++) {
            REAL sum = a[i * n + j];
            for (Py_ssize_t k = 0; k < j; k++) {
                sum -= out[i * n + k] * out[j * n + k];
            }
            if (i > j) {
                out[i * n + j] = sum / out[j * n + j];
            }
            else if (sum > 0) {
                out[i * n + i] = (REAL)sqrt((double)sum);
            }
            else {
                return 0;
            }
        }
    }
    return 1;
}

INLINE void
NAME(exchange_rows)(REAL *x, REAL *y, Py_ssize_t count)
{
    for (Py_ssize_t j = 0; j < count; j++) {
        REAL kept = x[j];
        x[j] = y[j];
        y[j] = kept;
    }
}

/* X of A X = B, in the place of B, by elimination with the largest pivot of each column; A is lost. 0: it is singular */
CLONES static int
NAME(eliminate)(REAL *a, REAL *x, Py_ssize_t n, Py_ssize_t columns)
{
    for (Py_ssize_t k = 0; k < n; k++) {
        Py_ssize_t pivot = k;
        for (Py_ssize_t i = k + 1; i < n; i++) {
            pivot = fabs((double)a[i * n + k]) > fabs((double)a[pivot * n + k]) ? i : pivot;
        }
        if (!(a[pivot * n + k] != 0)) {
            return 0;
        }
        if (pivot != k) {
            NAME(exchange_rows)(a + k * n, a + pivot * n, n);
            NAME(exchange_rows)(x + k * columns, x + pivot * columns, columns);
        }
        for (Py_ssize_t i = k + 1; i < n; i++) {
            REAL factor = a[i * n + k] / a[k * n + k];
            NAME(subtract_multiple)(a + i * n + k + 1, factor, a + k * n + k + 1, n - k - 1);
            NAME(subtract_multiple)(x + i * columns, factor, x + k * columns, columns);
        }
    }
    NAME(substitute)(a, x, n, columns, 1, 0);
    return 1;
}

/* A = P L U in the place of A: the largest pivot of each column, and the row (from 1) that it was exchanged with */
CLONES static void
NAME(decompose)(REAL *a, int32_t *pivots, Py_ssize_t rows, Py_ssize_t columns)
{
    for (Py_ssize_t k = 0; k < rows && k < columns; k++) {
        Py_ssize_t pivot = k;
        for (Py_ssize_t i = k; i < rows; i++) {
            REAL now = a[i * columns + k], most = a[pivot * columns + k];
            pivot = most == most && !(fabs((double)now) <= fabs((double)most)) ? i : pivot; /* the first nan, if any */
        }
        if (pivot != k) {
            NAME(exchange_rows)(a + k * columns, a + pivot * columns, columns);
        }
        pivots[k] = (int32_t)pivot + 1;
        REAL top = a[k * columns + k];
        for (Py_ssize_t i = k + 1; i < rows; i++) {
            REAL *row = a + i * columns + k;
            *row /= top == 0 ? 1 : top;
            NAME(subtract_multiple)(row + 1, *row, a + k * columns + k + 1, columns - k - 1);
        }
    }
}

static void
NAME(decompose_all)(REAL *a, int32_t *pivots, Py_ssize_t count, Py_ssize_t rows, Py_ssize_t columns)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        NAME(decompose)(a + k * rows * columns, pivots + k * (rows < columns ? rows : columns), rows, columns);
    }
}

static void
NAME(substitute_all)(const REAL *a, REAL *x, const Stack *s)
{
    for (Py_ssize_t k = 0; k < s->count; k++) {
        NAME(substitute)(a + k * s->n * s->n, x + k * s->n * s->columns, s->n, s->columns, s->upper, s->unit);
    }
}

static int
NAME(factorise_all)(const REAL *a, REAL *out, const Stack *s)
{
    int done = 1;
    for (Py_ssize_t k = 0; k < s->count && done; k++) {
        done = NAME(factorise)(a + k * s->n * s->n, out + k * s->n * s->n, s->n);
    }
    return done;
}

static int
NAME(eliminate_all)(const REAL *a, REAL *x, const Stack *s)
{
    REAL room[LARGEST * LARGEST];
    int done = 1;
    for (Py_ssize_t k = 0; k < s->count && done; k++) {
        memcpy(room, a + k * s->n * s->n, s->n * s->n * sizeof(REAL));
        done = NAME(eliminate)(room, x + k * s->n * s->columns, s->n, s->columns);
    }
    return done;
}
