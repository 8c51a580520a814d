/* Pooling for the type REAL, whose positions are numbers of the type INDEX, of the same size if possible. A row of
 * results is made at a time: each place of the windows contributes to all of them.
 */

/* The best of x[0], x[step], ... and what there was; a later nan counts as better. */
INLINE void
NAME(choose)(REAL *restrict best, INDEX *restrict at, const REAL *restrict x, const Py_ssize_t step, INDEX position,
             Py_ssize_t count)
{
    for (Py_ssize_t c = 0; c < count; c++) {
        REAL value = x[c * step], most = best[c];
        int is_better = (value > most) | (value != value);
        best[c] = is_better ? value : most;
        at[c] = is_better ? (INDEX)(position + c * step) : at[c];
    }
}

CLONES static void
NAME(choose_spaced)(REAL *best, INDEX *at, const REAL *x, Py_ssize_t step, INDEX position, Py_ssize_t count)
{
    switch (step) { /* a step that is known makes vectors possible */
        case 1: NAME(choose)(best, at, x, 1, position, count); break;
        case 2: NAME(choose)(best, at, x, 2, position, count); break;
        case 3: NAME(choose)(best, at, x, 3, position, count); break;
        default: NAME(choose)(best, at, x, step, position, count);
    }
}

/* The same for whole windows of SIDE by SIDE, which begin at a position of an image with lines of `width`. */
INLINE void
NAME(choose_in)(const int SIDE, const Py_ssize_t step, REAL *restrict best, INDEX *restrict at, const REAL *restrict x,
                Py_ssize_t line, Py_ssize_t width, INDEX position, const Py_ssize_t count)
{
    for (Py_ssize_t c = 0; c < count; c++) {
        REAL most = -INFINITY;
        INDEX place = (INDEX)(position + c * step);
        for (int i = 0; i < SIDE; i++) {
            for (int j = 0; j < SIDE; j++) {
                REAL value = x[i * line + c * step + j];
                int is_better = (value > most) | (value != value);
                most = is_better ? value : most;
                place = is_better ? (INDEX)(position + i * width + c * step + j) : place;
            }
        }
        best[c] = most;
        at[c] = place;
    }
}

/* For a row of fewer than eight windows: as if there were eight. */
INLINE void
NAME(choose_in_short_row)(const int SIDE, const Py_ssize_t step, REAL *best, INDEX *at, const REAL *x, Py_ssize_t line,
                          INDEX position, Py_ssize_t count)
{
    REAL lines[3 * 24] = {0}, values[8]; /* 7 * step + SIDE numbers at most */
    INDEX places[8];
    for (int i = 0; i < SIDE; i++) {
        memcpy(lines + 24 * i, x + i * line, ((count - 1) * step + SIDE) * sizeof(REAL));
    }
    NAME(choose_in)(SIDE, step, values, places, lines, 24, line, position, 8);
    memcpy(best, values, count * sizeof(REAL));
    memcpy(at, places, count * sizeof(INDEX));
}

/* For a whole row: eight windows at a time, the last of which may be done twice, so that vectors serve. */
INLINE void
NAME(choose_in_row)(const int SIDE, const Py_ssize_t step, const Pool *pool, REAL *best, INDEX *at, const REAL *x,
                    INDEX position)
{
    Py_ssize_t line = pool->size[2], count = pool->count[2];
    if (count < 8) {
        NAME(choose_in_short_row)(SIDE, step, best, at, x, line, position, count);
        return;
    }
    for (Py_ssize_t done = 0; done < count; done += 8) {
        Py_ssize_t c = done + 8 <= count ? done : count - 8;
        NAME(choose_in)(SIDE, step, best + c, at + c, x + c * step, line, line, (INDEX)(position + c * step), 8);
    }
}

CLONES static void
NAME(choose_in_whole)(const Pool *pool, REAL *best, INDEX *at, const REAL *x, INDEX position)
{
    switch (10 * pool->kernel[2] + pool->stride[2]) {
        case 22: NAME(choose_in_row)(2, 2, pool, best, at, x, position); break;
        case 31: NAME(choose_in_row)(3, 1, pool, best, at, x, position); break;
        case 32: NAME(choose_in_row)(3, 2, pool, best, at, x, position); break;
        default: NAME(choose_in_row)(3, 3, pool, best, at, x, position);
    }
}

INLINE void
NAME(add_from)(REAL *restrict sums, const REAL *restrict x, const Py_ssize_t step, Py_ssize_t count)
{
    for (Py_ssize_t c = 0; c < count; c++) {
        sums[c] += x[c * step];
    }
}

INLINE void
NAME(add_to)(REAL *restrict x, const REAL *restrict parts, const Py_ssize_t step, Py_ssize_t count)
{
    for (Py_ssize_t c = 0; c < count; c++) {
        x[c * step] += parts[c];
    }
}

#define BY_STEP(function, a, b)                          \
    switch (step) {                                      \
        case 1: NAME(function)(a, b, 1, count); break;   \
        case 2: NAME(function)(a, b, 2, count); break;   \
        case 3: NAME(function)(a, b, 3, count); break;   \
        default: NAME(function)(a, b, step, count);      \
    }

CLONES static void
NAME(add_from_spaced)(REAL *sums, const REAL *x, Py_ssize_t step, Py_ssize_t count)
{
    BY_STEP(add_from, sums, x)
}

CLONES static void
NAME(add_to_spaced)(REAL *x, const REAL *parts, Py_ssize_t step, Py_ssize_t count)
{
    BY_STEP(add_to, x, parts)
}
#undef BY_STEP

/* For each row of the source that the windows of row (a, b) see, and each place there: where the row begins, and the
 * columns of results that have this place inside. */
#define FOR_EACH_PLACE(pool, a, b, body)                                                                              \
    for (Py_ssize_t i = 0; i < pool->kernel[0]; i++) {                                                                \
        Py_ssize_t plane = a * pool->stride[0] + i * pool->dilation[0] - pool->padding[0];                            \
        for (Py_ssize_t j = 0; j < pool->kernel[1] && plane >= 0 && plane < pool->size[0]; j++) {                     \
            Py_ssize_t line = b * pool->stride[1] + j * pool->dilation[1] - pool->padding[1];                         \
            for (Py_ssize_t k = 0; k < pool->kernel[2] && line >= 0 && line < pool->size[1]; k++) {                   \
                Py_ssize_t first = pool->inside[2 * k], columns = pool->inside[2 * k + 1] - first;                    \
                Py_ssize_t shift = first * pool->stride[2] + k * pool->dilation[2] - pool->padding[2];                \
                Py_ssize_t start = (plane * pool->size[1] + line) * pool->size[2] + shift;                            \
                if (columns > 0) {                                                                                    \
                    body;                                                                                             \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }

/* ---- the largest */

static void
NAME(max_pool_row)(const Pool *pool, const REAL *x, Py_ssize_t a, Py_ssize_t b, REAL *best, INDEX *at)
{
    Py_ssize_t begin = (first_inside(pool, 0, a) * pool->size[1] + first_inside(pool, 1, b)) * pool->size[2];
    if (pool->is_whole) {
        NAME(choose_in_whole)(pool, best, at, x + begin, (INDEX)begin);
        return;
    }
    for (Py_ssize_t c = 0; c < pool->count[2]; c++) {
        best[c] = -INFINITY;
        at[c] = (INDEX)(begin + first_inside(pool, 2, c));
    }
    FOR_EACH_PLACE(pool, a, b, NAME(choose_spaced)(best + first, at + first, x + start, pool->stride[2], (INDEX)start,
                                                   columns))
}

static int
NAME(max_pool)(const Pool *pool, const void *source, void *result, npy_int64 *indices, void *scratch)
{
    const REAL *x = source;
    REAL *values = result;
    INDEX *at = scratch;
    for (Py_ssize_t n = 0; n < pool->images; n++, x += product(pool->size)) {
        for (Py_ssize_t a = 0; a < pool->count[0]; a++) {
            for (Py_ssize_t b = 0; b < pool->count[1]; b++) {
                NAME(max_pool_row)(pool, x, a, b, values, at);
                for (Py_ssize_t c = 0; c < pool->count[2]; c++) {
                    indices[c] = at[c];
                }
                values += pool->count[2];
                indices += pool->count[2];
            }
        }
    }
    return 1;
}

/* the largest of a window whose sides are known */
static void
NAME(largest_inside)(const Py_ssize_t *size, const REAL *x, const Py_ssize_t *from, const Py_ssize_t *to, REAL *value,
                     npy_int64 *index)
{
    Py_ssize_t at = (from[0] * size[1] + from[1]) * size[2] + from[2];
    REAL best = -INFINITY;
    for (Py_ssize_t a = from[0]; a < to[0]; a++) {
        for (Py_ssize_t b = from[1]; b < to[1]; b++) {
            for (Py_ssize_t c = from[2]; c < to[2]; c++) {
                Py_ssize_t here = (a * size[1] + b) * size[2] + c;
                if (x[here] > best || x[here] != x[here]) {
                    best = x[here];
                    at = here;
                }
            }
        }
    }
    *value = best;
    *index = at;
}

static int
NAME(adaptive_max_pool)(const Pool *pool, const void *source, void *result, npy_int64 *indices, void *scratch)
{
    const REAL *x = source;
    REAL *values = result;
    Py_ssize_t windows = product(pool->count), cell[3], from[3], to[3];
    for (Py_ssize_t n = 0; n < pool->images; n++, x += product(pool->size)) {
        for (Py_ssize_t k = 0; k < windows; k++) {
            cell[2] = k % pool->count[2];
            cell[1] = k / pool->count[2] % pool->count[1];
            cell[0] = k / pool->count[2] / pool->count[1];
            for (int d = 0; d < 3; d++) {
                from[d] = cell[d] * pool->size[d] / pool->count[d];
                to[d] = ((cell[d] + 1) * pool->size[d] + pool->count[d] - 1) / pool->count[d];
            }
            NAME(largest_inside)(pool->size, x, from, to, values++, indices++);
        }
    }
    return 1;
}

/* whether all indices are inside */
static int
NAME(put_back)(const Pool *pool, const void *gradient, void *result, npy_int64 *indices, void *scratch)
{
    const REAL *g = gradient;
    REAL *out = result;
    Py_ssize_t count = product(pool->count), size = product(pool->size);
    memset(out, 0, pool->images * size * sizeof(REAL));
    for (Py_ssize_t n = 0; n < pool->images; n++, g += count, indices += count, out += size) {
        for (Py_ssize_t k = 0; k < count; k++) {
            npy_int64 at = *(const volatile npy_int64 *)&indices[k]; /* See Note [Indices are read once] */
            if (at < 0 || at >= size) {
                return 0;
            }
            out[at] += g[k];
        }
    }
    return 1;
}

/* ---- the mean */

static int
NAME(avg_pool)(const Pool *pool, const void *source, void *result, npy_int64 *indices, void *scratch)
{
    const REAL *x = source;
    REAL *out = result;
    for (Py_ssize_t n = 0; n < pool->images; n++, x += product(pool->size)) {
        const double *by = pool->divisors;
        for (Py_ssize_t a = 0; a < pool->count[0]; a++) {
            for (Py_ssize_t b = 0; b < pool->count[1]; b++) {
                memset(out, 0, pool->count[2] * sizeof(REAL));
                FOR_EACH_PLACE(pool, a, b, NAME(add_from_spaced)(out + first, x + start, pool->stride[2], columns))
                for (Py_ssize_t c = 0; c < pool->count[2]; c++) {
                    out[c] = (REAL)(out[c] / by[c]);
                }
                out += pool->count[2];
                by += pool->count[2];
            }
        }
    }
    return 1;
}

static int
NAME(avg_pool_gradient)(const Pool *pool, const void *gradient, void *result, npy_int64 *indices, void *scratch)
{
    const REAL *g = gradient;
    REAL *out = result, *parts = scratch;
    memset(out, 0, pool->images * product(pool->size) * sizeof(REAL));
    for (Py_ssize_t n = 0; n < pool->images; n++, out += product(pool->size)) {
        const double *by = pool->divisors;
        for (Py_ssize_t a = 0; a < pool->count[0]; a++) {
            for (Py_ssize_t b = 0; b < pool->count[1]; b++) {
                for (Py_ssize_t c = 0; c < pool->count[2]; c++) {
                    parts[c] = (REAL)(g[c] / by[c]);
                }
                FOR_EACH_PLACE(pool, a, b, NAME(add_to_spaced)(out + start, parts + first, pool->stride[2], columns))
                g += pool->count[2];
                by += pool->count[2];
            }
        }
    }
    return 1;
}
#undef FOR_EACH_PLACE
