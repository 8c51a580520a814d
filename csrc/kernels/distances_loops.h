/* Distances of all pairs of points, and their gradients. Included for each REAL; see kernels/distances.c. */

/* the points of an item, those numbers side by side that belong to the same dimension */
static void
NAME(turn_points)(const Distances *given, Py_ssize_t item, REAL *turned)
{
    const REAL *y = (const REAL *)given->y + item * given->columns * given->dims;
    for (Py_ssize_t j = 0; j < given->columns; j++) {
        for (Py_ssize_t d = 0; d < given->dims; d++) {
            turned[d * given->columns + j] = y[j * given->dims + d];
        }
    }
}

/* the distances of one point to some others */
CLONES static void
NAME(find_distances)(const Distances *given, const REAL *x, const REAL *turned, Py_ssize_t count, REAL *restrict out)
{
    REAL sums[AT_ONCE] = {0};
    for (Py_ssize_t d = 0; d < given->dims; d++, turned += given->columns) {
        REAL at = x[d];
        if (given->is_euclidean) {
            for (Py_ssize_t j = 0; j < count; j++) {
                sums[j] += (at - turned[j]) * (at - turned[j]);
            }
        }
        else {
            for (Py_ssize_t j = 0; j < count; j++) {
                sums[j] += at < turned[j] ? turned[j] - at : at - turned[j];
            }
        }
    }
    for (Py_ssize_t j = 0; j < count; j++) {
        REAL root = sizeof(REAL) == sizeof(float) ? (REAL)sqrtf((float)sums[j]) : (REAL)sqrt((double)sums[j]);
        out[j] = given->is_euclidean ? root : sums[j];
    }
}

/* Add to the gradient of one point what comes from some others. What lies on another point gets nothing from that. A
 * distance's inverse is finite, and its product with a difference is at most about 1, so only `g` can make it large. */
CLONES static void
NAME(add_gradients)(const Distances *given, const REAL *x, const REAL *turned, Py_ssize_t count, const REAL *g,
                    const REAL *distances, REAL *to)
{
    REAL inverses[AT_ONCE], parts[AT_ONCE] = {0};
    for (Py_ssize_t j = 0; j < count && given->is_euclidean; j++) {
        inverses[j] = distances[j] == 0 ? 0 : 1 / distances[j];
    }
    for (Py_ssize_t d = 0; d < given->dims; d++, turned += given->columns) {
        REAL at = x[d], sums[LANES] = {0};
        if (given->is_euclidean) {
            for (Py_ssize_t j = 0; j < count; j++) {
                parts[j] = g[j] * ((at - turned[j]) * inverses[j]);
            }
        }
        else {
            for (Py_ssize_t j = 0; j < count; j++) {
                REAL apart = at - turned[j], sign = (REAL)((apart > 0) - (apart < 0));
                parts[j] = g[j] * (apart == apart ? sign : apart);
            }
        }
        for (Py_ssize_t j = 0; j < count; j += LANES) {
            for (int k = 0; k < LANES; k++) {
                sums[k] += parts[j + k];
            }
        }
        for (int k = 0; k < LANES; k++) {
            to[d] += sums[k];
        }
    }
}

/* a share of the rows of all items */
static void
NAME(share)(void *context, Py_ssize_t first, Py_ssize_t last)
{
    Distances *given = context;
    Py_ssize_t dims = given->dims, columns = given->columns, there = -1;
    REAL *turned = borrow(columns * dims * sizeof(REAL));
    if (turned == NULL) {
        given->failed = 1;
        return;
    }
    for (Py_ssize_t row = first; row < last; row++) {
        if (row / given->rows != there) {
            there = row / given->rows;
            NAME(turn_points)(given, there, turned);
        }
        const REAL *x = (const REAL *)given->x + row * dims;
        REAL *to = (REAL *)given->to + row * (given->g == NULL ? columns : dims);
        for (Py_ssize_t j = 0; j < columns; j += AT_ONCE) {
            Py_ssize_t count = columns - j < AT_ONCE ? columns - j : AT_ONCE;
            if (given->g == NULL) {
                NAME(find_distances)(given, x, turned + j, count, to + j);
            }
            else {
                NAME(add_gradients)(given, x, turned + j, count, (const REAL *)given->g + row * columns + j,
                                    (const REAL *)given->distances + row * columns + j, to);
            }
        }
    }
    give_back(turned);
}
