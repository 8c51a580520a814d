/* Convolution of many channels: vectors hold neighbouring results (of one place) instead of neighbouring places.
 *
 * Every element of the matrix of windows is source[a + b], where a says which window it is of, and b which channel and
 * place. So the results and the gradients of weights are products of one kind, with a list of distances for the rows
 * and another for the sums:
 *
 *     results     out[window][result] = sum over (channel, place) of x[a_window + b_(channel, place)] * weight
 *     gradients   out[(channel, place)][result] = sum over windows of x[a_(channel, place) + b_window] * y
 *
 * There are no zeros between the rows of images here, and a stride costs nothing. What is asked of the second factor is
 * that it lies in panels: the results of up to two vectors beside each other, for every element of a sum.
 */

/* the product of panel_product.h, in vectors of the size that was chosen */
static void
NAME(multiply_panel)(const Convolution *given, const Panel *panel, Py_ssize_t rows, const REAL *x, const Py_ssize_t *a,
                     const Py_ssize_t *b, Py_ssize_t count, const REAL *packed, REAL *out)
{
#ifdef WIDE_VECTORS
    if (given->lanes > WIDTH) {
        JOIN(NAME(panel_product), wide)(panel->vectors, rows, x, a, b, count, packed, out);
        return;
    }
#endif
    NAME(panel_product)(panel->vectors, rows, x, a, b, count, packed, out);
}

/* ---- results */

/* the weights of a part for a panel: those of all results beside each other, for each channel and place */
CLONES static void
NAME(pack_panel)(const Convolution *given, const Part *part, const Panel *panel, const REAL *weights, REAL *packed)
{
    Py_ssize_t rows = given->source.channels * part->terms, step = given->by_result, row = 0, done = 0;
    weights += panel->first * step;
    if (given->by_source == given->places && part->terms == given->places) { /* in the same order, but turned */
        done = panel->count / WIDTH * WIDTH;
        for (; row + WIDTH <= rows; row += WIDTH) {
            for (Py_ssize_t o = 0; o < done; o += WIDTH) {
                NAME(turn)(weights + o * step + row, step, packed + row * panel->width + o, panel->width);
            }
        }
    }
    for (Py_ssize_t k = 0; k < rows; k++) {
        const REAL *from = weights + k / part->terms * given->by_source + part->numbers[k % part->terms];
        for (Py_ssize_t o = k < row ? done : 0; o < panel->width; o++) {
            packed[k * panel->width + o] = o < panel->count ? from[o * step] : 0;
        }
    }
}

/* a share of the panels of all groups */
static void
NAME(pack_panels)(void *context, Py_ssize_t begin, Py_ssize_t end)
{
    NAME(Task) *task = context;
    const Convolution *given = task->given;
    Py_ssize_t channels = given->source.channels;
    for (Py_ssize_t number = begin; number < end; number++) {
        Py_ssize_t group = number / given->blocks;
        REAL *packed = task->packed + group * (given->weights / given->groups);
        Panel panel = panel_of(given, number % given->blocks);
        for (const Part *part = given->part; part < given->part + given->parts; part++) {
            NAME(pack_panel)(given, part, &panel,
                             (const REAL *)given->weight + group * channels * given->results * given->places,
                             packed + panel.first * channels * part->terms);
            packed += given->panel_width * channels * part->terms;
        }
    }
}

/* so many windows from here on that lie side by side: a vector of them, or one */
INLINE Py_ssize_t
NAME(neighbours)(const Py_ssize_t *where, Py_ssize_t rows)
{
    return rows >= WIDTH && where[WIDTH - 1] - where[0] == WIDTH - 1 ? WIDTH : 1;
}

/* a stretch of windows from `flat`, window by window, to where the results belong */
CLONES static void
NAME(place_panel)(const Panel *panel, const Py_ssize_t *where, Py_ssize_t rows, Py_ssize_t pixels, const REAL *flat,
                  REAL *out)
{
    Py_ssize_t whole = panel->count / WIDTH * WIDTH, here;
    for (Py_ssize_t p = 0; p < rows; p += here) {
        REAL *to = out + panel->first * pixels + where[p];
        const REAL *from = flat + p * panel->width;
        here = NAME(neighbours)(where + p, rows - p);
        for (Py_ssize_t o = 0; o < whole && here > 1; o += WIDTH) {
            NAME(turn)(from + o, panel->width, to + o * pixels, pixels);
        }
        for (Py_ssize_t o = here > 1 ? whole : 0; o < panel->count; o++) {
            for (Py_ssize_t k = 0; k < here; k++) {
                to[o * pixels + k] = from[k * panel->width + o];
            }
        }
    }
}

/* a stretch of windows of a part, and a panel of results; some channels after the others */
static void
NAME(convolve_panel)(const Convolution *given, const Part *part, const Panel *panel, const REAL *packed,
                     const REAL *bias, const REAL *laid, Py_ssize_t first, Py_ssize_t rows, REAL *flat, REAL *out)
{
    Py_ssize_t channels = given->source.channels, step = part->channels_at_once;
    REAL start[MOST_LANES] = {0};
    memcpy(start, bias == NULL ? start : bias + panel->first, bias == NULL ? 0 : panel->count * sizeof(REAL));
    for (Py_ssize_t k = 0; k < rows; k++) {
        memcpy(flat + k * panel->width, start, panel->width * sizeof(REAL));
    }
    for (Py_ssize_t c = 0; c < channels && part->terms > 0; c += step) {
        Py_ssize_t here = channels - c < step ? channels - c : step;
        NAME(multiply_panel)(given, panel, rows, laid + c * given->source.channel, part->at + first, part->rows,
                             here * part->terms, packed + c * part->terms * panel->width, flat);
    }
    NAME(place_panel)(panel, part->where + first, rows, product(given->size), flat, out);
}

/* examples of the batch that begins with number n */
static Py_ssize_t
NAME(in_batch)(const Convolution *given, Py_ssize_t n)
{
    return given->examples - n < given->chunk ? given->examples - n : given->chunk;
}

/* the channels from `first` to before `last` of a group of a batch as the lists of distances know them: in memory of its
 * own, unless it needs no zeros */
static const REAL *
NAME(laid_batch)(const Convolution *given, Py_ssize_t n, Py_ssize_t group, Py_ssize_t first, Py_ssize_t last, REAL *room)
{
    const Layout *source = &given->source;
    Py_ssize_t channel = n * source->all_channels + group * source->channels;
    const REAL *x = (const REAL *)given->x + channel * product(source->size);
    if (given->in_place) {
        return x;
    }
    NAME(lay)(source, x, NAME(in_batch)(given, n), first, last, room);
    return room;
}

/* a share of all panels of all stretches of all batches of examples */
static void
NAME(convolve_panels)(void *context, Py_ssize_t begin, Py_ssize_t end)
{
    NAME(Task) *task = context;
    const Convolution *given = task->given;
    Py_ssize_t channels = given->source.channels, there = -1;
    REAL *room = borrow_zeros(given->source.total + given->flat, sizeof(REAL));
    if (room == NULL) {
        task->failed = 1;
        return;
    }
    const REAL *laid = room;
    for (Py_ssize_t number = begin; number < end; number++) {
        Py_ssize_t k = number / given->blocks / given->stretches, group = k % given->groups;
        Py_ssize_t n = k / given->groups * given->chunk, first = number / given->blocks % given->stretches * given->windows;
        if (k != there) {
            laid = NAME(laid_batch)(given, n, group, 0, channels, room);
            there = k;
        }
        Panel panel = panel_of(given, number % given->blocks);
        const REAL *packed = task->packed + group * (given->weights / given->groups);
        const REAL *bias = given->bias == NULL ? NULL : (const REAL *)given->bias + group * given->results;
        Py_ssize_t channel = (n * given->groups + group) * given->results;
        for (Py_ssize_t p = 0; p < given->parts; p++) {
            const Part *part = given->part + p;
            Py_ssize_t rows = NAME(in_batch)(given, n) * product(part->count) - first;
            if (rows > 0) {
                NAME(convolve_panel)(given, part, &panel, packed + panel.first * channels * part->terms, bias, laid,
                                     first, rows < given->windows ? rows : given->windows, room + given->source.total,
                                     (REAL *)given->out + channel * product(given->size));
            }
            packed += given->panel_width * channels * part->terms;
        }
    }
    give_back(room);
}

/* ---- gradients of weights */

/* the gradients of a panel at a stretch of windows, window by window */
CLONES static void
NAME(pack_gradient)(const Panel *panel, const Py_ssize_t *where, Py_ssize_t rows, Py_ssize_t pixels, const REAL *y,
                    REAL *packed)
{
    Py_ssize_t whole = panel->count / WIDTH * WIDTH, here;
    for (Py_ssize_t p = 0; p < rows; p += here, packed += here * panel->width) {
        const REAL *from = y + panel->first * pixels + where[p];
        here = NAME(neighbours)(where + p, rows - p);
        for (Py_ssize_t o = 0; o < whole && here > 1; o += WIDTH) {
            NAME(turn)(from + o * pixels, pixels, packed + o, panel->width);
        }
        for (Py_ssize_t o = here > 1 ? whole : 0; o < panel->width; o++) {
            for (Py_ssize_t k = 0; k < here; k++) {
                packed[k * panel->width + o] = o < panel->count ? from[o * pixels + k] : 0;
            }
        }
    }
}

/* add sums, row by row, to the gradients of a panel, result by result */
CLONES static void
NAME(add_turned)(const Panel *panel, Py_ssize_t rows, const REAL *sums, REAL *out, Py_ssize_t step)
{
    REAL turned[MOST_LANES * 32 / sizeof(REAL)];
    Py_ssize_t whole = panel->width / WIDTH * WIDTH;
    for (Py_ssize_t i = 0; i < rows; i += WIDTH, sums += WIDTH * panel->width, out += WIDTH) {
        Py_ssize_t here = rows - i < WIDTH ? rows - i : WIDTH;
        for (Py_ssize_t o = 0; o < whole; o += WIDTH) {
            NAME(turn)(sums + o, panel->width, turned + o * WIDTH, WIDTH);
        }
        for (Py_ssize_t o = 0; o < panel->count; o++) {
            for (Py_ssize_t k = 0; k < here; k++) {
                out[o * step + k] += turned[o * WIDTH + k];
            }
        }
    }
}

/* add the sums over a stretch of windows to the gradients of a panel, for some rows of weights */
static void
NAME(add_panel)(const Convolution *given, const Panel *panel, Py_ssize_t row, Py_ssize_t rows, const REAL *laid,
                const Py_ssize_t *at, Py_ssize_t count, const REAL *packed, REAL *out)
{
    Py_ssize_t all = given->source.channels * given->places;
    REAL sums[ROWS_AT_ONCE * MOST_LANES];
    memset(sums, 0, rows * panel->width * sizeof(REAL));
    NAME(multiply_panel)(given, panel, rows, laid, given->part->rows + row, at, count, packed, sums);
    NAME(add_turned)(panel, rows, sums, out + panel->first * all + row, all);
}

/* the gradients of a panel of a group, for the rows of weights from `row` to before `end`, of a laid batch */
static void
NAME(add_batch)(const Convolution *given, Py_ssize_t n, Py_ssize_t group, const Panel *panel, Py_ssize_t row,
                Py_ssize_t end, const REAL *laid, REAL *packed, REAL *out)
{
    const Part *part = given->part;
    Py_ssize_t all = given->source.channels * given->places, windows = NAME(in_batch)(given, n) * product(part->count);
    Py_ssize_t channel = (n * given->groups + group) * given->results, pixels = product(given->size);
    for (Py_ssize_t first = 0; first < windows; first += WINDOWS) {
        Py_ssize_t count = windows - first < WINDOWS ? windows - first : WINDOWS;
        NAME(pack_gradient)(panel, part->where + first, count, pixels, (const REAL *)given->y + channel * pixels, packed);
        for (Py_ssize_t r = row; r < end; r += ROWS_AT_ONCE) {
            NAME(add_panel)(given, panel, r, end - r < ROWS_AT_ONCE ? end - r : ROWS_AT_ONCE, laid, part->at + first,
                            count, packed, out + group * given->results * all);
        }
    }
}

/* blocks of rows of panels of groups, numbered from `begin` to before `end`, of a batch */
static void
NAME(add_panels_of_batch)(const Convolution *given, Py_ssize_t n, Py_ssize_t begin, Py_ssize_t end, REAL *room, REAL *out)
{
    const REAL *laid = room;
    Py_ssize_t there = -1, from = 0, to = 0, all = given->source.channels * given->places; /* channels that are laid */
    for (Py_ssize_t number = begin, next; number < end; number = next) {
        Py_ssize_t k = number / given->stretches, group = k / given->blocks;
        next = (k + 1) * given->stretches < end ? (k + 1) * given->stretches : end;
        Py_ssize_t row = (number - k * given->stretches) * ROWS_AT_ONCE;
        Py_ssize_t last = (next - k * given->stretches) * ROWS_AT_ONCE;
        last = last < all ? last : all;
        if (group != there || row / given->places < from || (last - 1) / given->places >= to) {
            there = group;
            from = row / given->places;
            to = (last - 1) / given->places + 1;
            laid = NAME(laid_batch)(given, n, group, from, to, room);
        }
        Panel panel = panel_of(given, k % given->blocks);
        NAME(add_batch)(given, n, group, &panel, row, last, laid, room + given->source.total, out);
    }
}

/* Some of the pieces of one turn: its examples, from `n` to before `stop`, add to `out`. */
typedef void (*NAME(OfTurn))(const Convolution *given, Py_ssize_t n, Py_ssize_t stop, Py_ssize_t begin, Py_ssize_t end,
                             REAL *room, REAL *out);

static void
NAME(add_panels)(const Convolution *given, Py_ssize_t n, Py_ssize_t stop, Py_ssize_t begin, Py_ssize_t end, REAL *room,
                 REAL *out)
{
    for (; n < stop; n += given->chunk) {
        NAME(add_panels_of_batch)(given, n, begin, end, room, out);
    }
}

/* a share of all pieces of all turns */
static void
NAME(convolve_weight_share)(void *context, Py_ssize_t begin, Py_ssize_t end)
{
    NAME(Task) *task = context;
    const Convolution *given = task->given;
    NAME(OfTurn) of_turn = given->panels ? NAME(add_panels) : NAME(add_places);
    Py_ssize_t batches = (given->examples + given->chunk - 1) / given->chunk, pieces = given->pieces / given->turns;
    REAL *room = borrow_zeros(given->source.total + (given->panels ? given->flat : given->target.total), sizeof(REAL));
    if (room == NULL) {
        task->failed = 1;
        return;
    }
    for (Py_ssize_t next; begin < end; begin = next) {
        Py_ssize_t turn = begin / pieces, stop = batches * (turn + 1) / given->turns * given->chunk;
        next = (turn + 1) * pieces < end ? (turn + 1) * pieces : end;
        of_turn(given, batches * turn / given->turns * given->chunk, stop < given->examples ? stop : given->examples,
                begin - turn * pieces, next - turn * pieces, room,
                turn == 0 ? (REAL *)given->out : task->packed + (turn - 1) * NAME(all_weights)(given));
    }
    give_back(room);
}

/* out, to which the sums of the other turns are added, in their order */
static void
NAME(add_turns)(const Convolution *given, const REAL *sums, REAL *out)
{
    Py_ssize_t size = NAME(all_weights)(given);
    for (Py_ssize_t turn = 1; turn < given->turns; turn++, sums += size) {
        for (Py_ssize_t k = 0; k < size; k++) {
            out[k] += sums[k];
        }
    }
}

/* ---- both ways */

/* 1: done; 0: some weights are not finite, and nothing is computed; -1: no memory */
static int
NAME(convolve)(const Convolution *given)
{
    if (!NAME(all_finite)(given->weight, NAME(all_weights)(given))) {
        return 0;
    }
    NAME(Task) task = {given, borrow(given->weights * sizeof(REAL)), 0};
    if (task.packed == NULL) {
        return -1;
    }
    if (given->panels) {
        divide(NAME(pack_panels), &task, given->groups * given->blocks, (double)given->weights);
        divide(NAME(convolve_panels), &task, given->pieces, given->nanoseconds);
    }
    else {
        NAME(pack_all)(given, task.packed);
        divide(NAME(convolve_share), &task, given->pieces, given->nanoseconds);
    }
    give_back(task.packed);
    return task.failed ? -1 : 1;
}

/* 1: done; 0: some gradients are not finite; -1: no memory */
static int
NAME(convolve_weight)(const Convolution *given)
{
    Py_ssize_t size = NAME(all_weights)(given);
    NAME(Task) task = {given, borrow_zeros((given->turns - 1) * size + 1, sizeof(REAL)), 0};
    if (task.packed == NULL) {
        return -1;
    }
    memset(given->out, 0, size * sizeof(REAL));
    divide(NAME(convolve_weight_share), &task, given->pieces, given->nanoseconds);
    NAME(add_turns)(given, task.packed, given->out);
    give_back(task.packed);
    return task.failed ? -1 : NAME(all_finite)(given->out, size);
}
