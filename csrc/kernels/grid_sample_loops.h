/* Images at the points of a grid, by the four elements around each point. Included once for each REAL. */

/* How coordinates between -1 and 1 become places in a row of n elements: ((c + 1) * factor - shift) * unit. */
typedef struct {
    REAL factor, shift, unit, slope, low, span, last;
} NAME(Row);

static NAME(Row)
NAME(row_of)(Py_ssize_t n, int align_corners)
{
    if (align_corners) {
        REAL half = (REAL)((n - 1) / 2.0);
        return (NAME(Row)){half, 0, 1, half, 0, (REAL)(n > 1 ? n - 1 : 1), (REAL)(n - 1)}; /* one has no room to move */
    }
    return (NAME(Row)){(REAL)n, 1, (REAL)0.5, (REAL)(n / 2.0), (REAL)-0.5, (REAL)n, (REAL)(n - 1)};
}

/* Where a coordinate is, and how fast it moves there. */
INLINE REAL
NAME(place_of)(const int PADDING, NAME(Row) row, REAL coordinate, REAL *slope)
{
    REAL place = ((coordinate + 1) * row.factor - row.shift) * row.unit, speed = row.slope;
    if (PADDING == REFLECTION) {
        REAL distance = place - row.low;
        speed = distance < 0 ? -speed : speed;
        distance = distance < 0 ? -distance : distance;
        REAL turns = FLOOR(distance / row.span), rest = distance - turns * row.span;
        int is_even = turns == 2 * FLOOR(turns / 2);
        speed = is_even ? speed : -speed;
        place = is_even ? rest + row.low : row.low + row.span - rest;
    }
    if (PADDING != ZEROS) {
        speed = (place > 0) & !(place >= row.last) ? speed : 0;
        place = place > 0 ? (place >= row.last ? row.last : place) : 0;
    }
    *slope = speed;
    return place;
}

/* Some points, and the four elements around each: where they are (0 if outside), and what each counts. */
typedef struct {
    int32_t at[4][POINTS], is_inside[4][POINTS];
    REAL weight[4][POINTS], part[2][POINTS], slope[2][POINTS]; /* of rows, then of columns */
} NAME(Points);

INLINE void
NAME(find_padded)(const int PADDING, const Grid *grid, const REAL *xy, NAME(Points) *points)
{
    const NAME(Row) of_rows = NAME(row_of)(grid->height, grid->align_corners);
    const NAME(Row) of_columns = NAME(row_of)(grid->width, grid->align_corners);
    const int32_t width = (int32_t)grid->width;
    for (int p = 0; p < POINTS; p++) {
        REAL column = NAME(place_of)(PADDING, of_columns, xy[2 * p], &points->slope[1][p]);
        REAL row = NAME(place_of)(PADDING, of_rows, xy[2 * p + 1], &points->slope[0][p]);
        REAL left = FLOOR(column), top = FLOOR(row), b = column - left, a = row - top;
        points->part[0][p] = a;
        points->part[1][p] = b;
        UNROLLED for (int k = 0; k < 4; k++) {
            REAL i = top + (REAL)(k / 2), j = left + (REAL)(k % 2);
            int is_inside = (i >= 0) & (i <= of_rows.last) & (j >= 0) & (j <= of_columns.last);
            int32_t at = (int32_t)(is_inside ? i : 0) * width + (int32_t)(is_inside ? j : 0);
            points->at[k][p] = at;
            points->is_inside[k][p] = is_inside;
            points->weight[k][p] = (k / 2 ? a : 1 - a) * (k % 2 ? b : 1 - b);
        }
    }
}

CLONES static void
NAME(find_points)(const Grid *grid, const REAL *xy, Py_ssize_t count, NAME(Points) *points)
{
    REAL some[2 * POINTS] = {0};
    if (count < POINTS) {
        memcpy(some, xy, 2 * count * sizeof(REAL));
        xy = some;
    }
    switch (grid->padding) {
    case ZEROS: NAME(find_padded)(ZEROS, grid, xy, points); break;
    case BORDER: NAME(find_padded)(BORDER, grid, xy, points); break;
    default: NAME(find_padded)(REFLECTION, grid, xy, points);
    }
}

/* the points of a row, so many at a time */
CLONES static void
NAME(sample_row)(const Grid *grid, const REAL *image, const REAL *xy, REAL *out)
{
    Py_ssize_t pixels = grid->height * grid->width, all = grid->rows * grid->columns;
    NAME(Points) points;
    for (Py_ssize_t start = 0; start < grid->columns; start += POINTS) {
        Py_ssize_t count = grid->columns - start < POINTS ? grid->columns - start : POINTS;
        NAME(find_points)(grid, xy + 2 * start, count, &points);
        for (Py_ssize_t c = 0; c < grid->channels; c++) {
            const REAL *channel = image + c * pixels;
            REAL *to = out + c * all + start;
            for (Py_ssize_t p = 0; p < count; p++) {
                REAL sum = 0;
                UNROLLED for (int k = 0; k < 4; k++) {
                    REAL element = channel[points.at[k][p]];
                    sum += points.weight[k][p] * (points.is_inside[k][p] ? element : 0);
                }
                to[p] = sum;
            }
        }
    }
}

static void
NAME(sample_rows)(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Grid *grid = context;
    Py_ssize_t pixels = grid->height * grid->width, all = grid->rows * grid->columns;
    for (Py_ssize_t number = first; number < last; number++) {
        Py_ssize_t n = number / grid->rows, start = number % grid->rows * grid->columns;
        NAME(sample_row)(grid, (const REAL *)grid->input + n * grid->channels * pixels,
                         (const REAL *)grid->grid + 2 * (n * all + start),
                         (REAL *)grid->out + n * grid->channels * all + start);
    }
}

/* add the gradients of some points to those of a channel */
INLINE void
NAME(add_to_elements)(const NAME(Points) *points, Py_ssize_t count, const REAL *g, REAL *of_channel)
{
    for (Py_ssize_t p = 0; p < count; p++) {
        UNROLLED for (int k = 0; k < 4; k++) {
            if (points->is_inside[k][p]) {
                of_channel[points->at[k][p]] += g[p] * points->weight[k][p];
            }
        }
    }
}

/* how what is looked up in a channel changes with the places of some points: by row, and by column */
INLINE void
NAME(add_to_places)(const NAME(Points) *points, Py_ssize_t count, const REAL *channel, const REAL *g, REAL *by_row,
                    REAL *by_column)
{
    for (Py_ssize_t p = 0; p < count; p++) {
        REAL x[4], a = points->part[0][p], b = points->part[1][p];
        UNROLLED for (int k = 0; k < 4; k++) {
            REAL element = channel[points->at[k][p]];
            x[k] = points->is_inside[k][p] ? element : 0;
        }
        by_row[p] += g[p] * ((1 - b) * (x[2] - x[0]) + b * (x[3] - x[1]));
        by_column[p] += g[p] * ((1 - a) * (x[1] - x[0]) + a * (x[3] - x[2]));
    }
}

/* the gradients of an example, of what is not NULL */
CLONES static void
NAME(slopes_of_example)(const Grid *grid, const REAL *image, const REAL *xy, const REAL *g, REAL *of_input, REAL *of_grid)
{
    Py_ssize_t pixels = grid->height * grid->width, all = grid->rows * grid->columns;
    NAME(Points) points;
    for (Py_ssize_t start = 0; start < all; start += POINTS) {
        Py_ssize_t count = all - start < POINTS ? all - start : POINTS;
        REAL by_row[POINTS] = {0}, by_column[POINTS] = {0};
        NAME(find_points)(grid, xy + 2 * start, count, &points);
        for (Py_ssize_t c = 0; c < grid->channels; c++) {
            const REAL *now = g + c * all + start;
            if (of_input != NULL) {
                NAME(add_to_elements)(&points, count, now, of_input + c * pixels);
            }
            if (of_grid != NULL) {
                NAME(add_to_places)(&points, count, image + c * pixels, now, by_row, by_column);
            }
        }
        for (Py_ssize_t p = 0; p < count && of_grid != NULL; p++) {
            of_grid[2 * (start + p)] = by_column[p] * points.slope[1][p];
            of_grid[2 * (start + p) + 1] = by_row[p] * points.slope[0][p];
        }
    }
}

static void
NAME(sample_slopes)(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Grid *grid = context;
    Py_ssize_t image = grid->channels * grid->height * grid->width, points = grid->rows * grid->columns;
    for (Py_ssize_t n = first; n < last; n++) {
        NAME(slopes_of_example)(grid, (const REAL *)grid->input + n * image, (const REAL *)grid->grid + 2 * n * points,
                                (const REAL *)grid->g + n * grid->channels * points,
                                grid->of_input == NULL ? NULL : (REAL *)grid->of_input + n * image,
                                grid->of_grid == NULL ? NULL : (REAL *)grid->of_grid + 2 * n * points);
    }
}
