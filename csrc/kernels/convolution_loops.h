/* Convolution as a product of matrices whose second one is never written down: its rows are stretches of the laid
 * source, each shifted by what a place of the window is away. See kernels/convolution.c.
 */

/* ---- laying out */

INLINE void
NAME(copy_spaced)(REAL *restrict to, Py_ssize_t to_step, const REAL *restrict from, Py_ssize_t from_step,
                  Py_ssize_t count)
{
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, count * sizeof(REAL));
        return;
    }
    if (to_step == 1 && from_step == 2) { /* the usual stride, for which there are instructions */
        for (Py_ssize_t k = 0; k < count; k++) {
            to[k] = from[2 * k];
        }
        return;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        to[k * to_step] = from[k * from_step];
    }
}

/* one channel of one example, as far as it belongs to this phase */
static void
NAME(lay_channel)(const Layout *layout, const Phase *phase, const REAL *source, REAL *laid)
{
    const Py_ssize_t *size = layout->size, *step = layout->step, *extent = layout->extent;
    for (Py_ssize_t a = 0; a < phase->count[0]; a++) {
        for (Py_ssize_t b = 0; b < phase->count[1]; b++) {
            Py_ssize_t from = (phase->start[0] + a * step[0]) * size[1] + phase->start[1] + b * step[1];
            Py_ssize_t to = (phase->place[0] + a) * extent[1] + phase->place[1] + b;
            NAME(copy_spaced)(laid + to * extent[2] + phase->place[2], 1, source + from * size[2] + phase->start[2],
                              step[2], phase->count[2]);
        }
    }
}

/* the channels from `first` to before `last` of a group, whose first one begins at `source`, of so many examples */
static void
NAME(lay)(const Layout *layout, const REAL *source, Py_ssize_t examples, Py_ssize_t first, Py_ssize_t last, REAL *laid)
{
    Py_ssize_t pixels = layout->size[0] * layout->size[1] * layout->size[2];
    for (Py_ssize_t p = 0; p < layout->phases; p++) {
        const Phase *phase = layout->phase + p;
        for (Py_ssize_t c = first; c < last; c++) {
            for (Py_ssize_t n = 0; n < examples; n++) {
                NAME(lay_channel)(layout, phase, source + (n * layout->all_channels + c) * pixels,
                                  laid + phase->base + c * layout->channel + n * layout->image);
            }
        }
    }
}

/* ---- products: OUTS results by VECTORS vectors of neighbouring places at a time */

/* Whichever are fewer, weights or vectors of places, wait in registers while the others come one after the other:
 * there are sixteen registers for all of them and the sums. */
INLINE void
NAME(add_term)(const int OUTS, const int VECTORS, const REAL *weights, const REAL *row, NAME(Vector) *sums)
{
    NAME(Vector) x[8];
    if (VECTORS <= OUTS) {
        UNROLLED for (int j = 0; j < VECTORS; j++) {
            NAME(load)(&x[j], row + j * WIDTH);
        }
        UNROLLED for (int i = 0; i < OUTS; i++) {
            UNROLLED for (int j = 0; j < VECTORS; j++) {
                NAME(add_multiple)(&sums[i * VECTORS + j], weights[i], &x[j]);
            }
        }
    }
    else {
        UNROLLED for (int j = 0; j < VECTORS; j++) {
            NAME(load)(&x[0], row + j * WIDTH);
            UNROLLED for (int i = 0; i < OUTS; i++) {
                NAME(add_multiple)(&sums[i * VECTORS + j], weights[i], &x[0]);
            }
        }
    }
}

INLINE void
NAME(tile)(const int OUTS, const int VECTORS, const Part *part, const Layout *layout, const REAL *weights,
           const REAL *start, const REAL *laid, REAL *flat, Py_ssize_t width)
{
    NAME(Vector) sums[12];
    UNROLLED for (int i = 0; i < OUTS; i++) {
        UNROLLED for (int j = 0; j < VECTORS; j++) {
            NAME(fill)(&sums[i * VECTORS + j], start[i]);
        }
    }
    for (Py_ssize_t c = 0; c < layout->channels; c++, laid += layout->channel) {
        for (Py_ssize_t t = 0; t < part->terms; t++, weights += OUTS) {
            NAME(add_term)(OUTS, VECTORS, weights, laid + part->offsets[t], sums);
        }
    }
    UNROLLED for (int i = 0; i < OUTS; i++) {
        UNROLLED for (int j = 0; j < VECTORS; j++) {
            NAME(store)(flat + i * width + j * WIDTH, &sums[i * VECTORS + j]);
        }
    }
}

#define TILES(outs, vectors)                                                                                      \
    for (Py_ssize_t p = 0; p < part->positions; p += vectors * WIDTH) {                                           \
        NAME(tile)(outs, vectors, part, layout, weights, start, laid + p, flat + p, part->width);                 \
    }                                                                                                             \
    break

/* up to six results at all positions of an image */
CLONES static void
NAME(block)(const Part *part, const Layout *layout, int outs, const REAL *weights, const REAL *start, const REAL *laid,
            REAL *flat)
{
    switch (outs) {
        case 6: TILES(6, 2);
        case 5: TILES(5, 2);
        case 4: TILES(4, 3);
        case 3: TILES(3, 4);
        case 2: TILES(2, 6);
        default: TILES(1, 8);
    }
}
#undef TILES

/* whether all of some numbers are */
CLONES static int
NAME(are_finite)(const REAL *x, Py_ssize_t count)
{
    NAME(Vector) sums[4], vector;
    REAL total = 0;
    Py_ssize_t k = 0;
    UNROLLED for (int j = 0; j < 4; j++) {
        NAME(fill)(&sums[j], 0);
    }
    for (; k + 4 * WIDTH <= count; k += 4 * WIDTH) {
        UNROLLED for (int j = 0; j < 4; j++) {
            NAME(load)(&vector, x + k + j * WIDTH);
            NAME(add_multiple)(&sums[j], 0, &vector);
        }
    }
    UNROLLED for (int j = 0; j < 4; j++) {
        total += NAME(sum_of_lanes)(&sums[j]);
    }
    for (; k < count; k++) {
        total += x[k] * 0;
    }
    return total == 0;
}

typedef struct {
    const REAL *x;
    Py_ssize_t count;
    atomic_int is_finite;
} NAME(Finite);

static void
NAME(look_at_numbers)(void *context, Py_ssize_t first, Py_ssize_t last)
{
    NAME(Finite) *finite = context;
    Py_ssize_t start = first * NUMBERS_OF_PIECE, end = last * NUMBERS_OF_PIECE;
    if (!NAME(are_finite)(finite->x + start, (end < finite->count ? end : finite->count) - start)) {
        atomic_store(&finite->is_finite, 0);
    }
}

/* the same of many */
static int
NAME(all_finite)(const REAL *x, Py_ssize_t count)
{
    NAME(Finite) finite = {x, count, 1};
    divide(NAME(look_at_numbers), &finite, (count + NUMBERS_OF_PIECE - 1) / NUMBERS_OF_PIECE,
           0.03 * sizeof(REAL) * count);
    return atomic_load(&finite.is_finite);
}

INLINE Py_ssize_t
NAME(all_weights)(const Convolution *given)
{
    return given->groups * given->results * given->source.channels * given->places;
}

/* the weights of a part, in the order in which its tiles ask for them */
static void
NAME(pack)(const Convolution *given, const Part *part, Py_ssize_t group, REAL *packed)
{
    Py_ssize_t sources = given->source.channels, results = given->results;
    const REAL *weights = (const REAL *)given->weight + group * sources * results * given->places;
    for (Py_ssize_t first = 0; first < results; first += MOST_OUTS) {
        Py_ssize_t outs = results - first < MOST_OUTS ? results - first : MOST_OUTS;
        for (Py_ssize_t c = 0; c < sources; c++) {
            for (Py_ssize_t t = 0; t < part->terms; t++) {
                for (Py_ssize_t i = 0; i < outs; i++) {
                    *packed++ = weights[(first + i) * given->by_result + c * given->by_source + part->numbers[t]];
                }
            }
        }
    }
}

/* the same for all parts of all groups */
static void
NAME(pack_all)(const Convolution *given, REAL *packed)
{
    for (Py_ssize_t group = 0; group < given->groups; group++) {
        REAL *to = packed + group * (given->weights / given->groups); /* parts may have fewer weights than there are */
        for (const Part *part = given->part; part < given->part + given->parts; part++) {
            NAME(pack)(given, part, group, to);
            to += part->terms * given->source.channels * given->results;
        }
    }
}

/* the results of a block, from flat positions to where they belong */
static void
NAME(unlay)(const Part *part, const Layout *layout, const Py_ssize_t *size, const REAL *flat, REAL *out)
{
    const Py_ssize_t *extent = layout->extent;
    for (Py_ssize_t a = 0; a < part->count[0]; a++) {
        for (Py_ssize_t b = 0; b < part->count[1]; b++) {
            Py_ssize_t to = (part->start[0] + a * part->step[0]) * size[1] + part->start[1] + b * part->step[1];
            NAME(copy_spaced)(out + to * size[2] + part->start[2], part->step[2],
                              flat + (a * extent[1] + b) * extent[2], 1, part->count[2]);
        }
    }
}

typedef struct {
    const Convolution *given;
    REAL *packed;
    int failed; /* there was no memory */
} NAME(Task);

/* a block of results of one group of one example */
static void
NAME(convolve_block)(const Convolution *given, const REAL *packed, const REAL *bias, Py_ssize_t first, const REAL *laid,
                     REAL *flat, REAL *out)
{
    const REAL none[MOST_OUTS] = {0};
    Py_ssize_t pixels = product(given->size), channels = given->source.channels;
    int outs = (int)(given->results - first < MOST_OUTS ? given->results - first : MOST_OUTS);
    for (Py_ssize_t k = 0; k < given->parts; k++) {
        const Part *part = given->part + k;
        NAME(block)(part, &given->source, outs, packed + first * channels * part->terms,
                    bias == NULL ? none : bias + first, laid, flat);
        for (int i = 0; i < outs; i++) {
            NAME(unlay)(part, &given->source, given->size, flat + i * part->width, out + (first + i) * pixels);
        }
        packed += given->results * channels * part->terms;
    }
}

/* a share of all blocks of all groups of all examples */
static void
NAME(convolve_share)(void *context, Py_ssize_t first, Py_ssize_t last)
{
    NAME(Task) *task = context;
    const Convolution *given = task->given;
    const Layout *source = &given->source;
    Py_ssize_t blocks = given->blocks, of_group = given->weights / given->groups, there = -1;
    REAL *laid = borrow_zeros(source->total + given->flat, sizeof(REAL)), *flat = laid + source->total;
    if (laid == NULL) {
        task->failed = 1;
        return;
    }
    for (Py_ssize_t number = first; number < last; number++) {
        Py_ssize_t k = number / blocks, group = k % given->groups;
        if (k != there) {
            const REAL *x = (const REAL *)given->x + k * source->channels * product(source->size);
            NAME(lay)(source, x, 1, 0, source->channels, laid);
            there = k;
        }
        const REAL *bias = given->bias == NULL ? NULL : (const REAL *)given->bias + group * given->results;
        NAME(convolve_block)(given, task->packed + group * of_group, bias, number % blocks * MOST_OUTS, laid, flat,
                             (REAL *)given->out + k * given->results * product(given->size));
    }
    give_back(laid);
}

/* ---- gradients of weights: OUTS by three sums of products at a time */

INLINE void
NAME(dots)(const int OUTS, const REAL *y, Py_ssize_t y_step, const REAL *const *rows, Py_ssize_t count, REAL *found)
{
    NAME(Vector) sums[12], x[3], w;
    UNROLLED for (int k = 0; k < 3 * OUTS; k++) {
        NAME(fill)(&sums[k], 0);
    }
    for (Py_ssize_t p = 0; p < count; p += WIDTH) {
        UNROLLED for (int j = 0; j < 3; j++) {
            NAME(load)(&x[j], rows[j] + p);
        }
        UNROLLED for (int i = 0; i < OUTS; i++) {
            NAME(load)(&w, y + i * y_step + p);
            UNROLLED for (int j = 0; j < 3; j++) {
                NAME(add_products)(&sums[i * 3 + j], &w, &x[j]);
            }
        }
    }
    UNROLLED for (int k = 0; k < 3 * OUTS; k++) {
        found[k] = NAME(sum_of_lanes)(&sums[k]);
    }
}

CLONES static void
NAME(dots_of)(int outs, const REAL *y, Py_ssize_t y_step, const REAL *const *rows, Py_ssize_t count, REAL *found)
{
    switch (outs) {
        case 4: NAME(dots)(4, y, y_step, rows, count, found); break;
        case 3: NAME(dots)(3, y, y_step, rows, count, found); break;
        case 2: NAME(dots)(2, y, y_step, rows, count, found); break;
        default: NAME(dots)(1, y, y_step, rows, count, found);
    }
}

/* add the products of one stretch of positions to the gradients of up to four results */
static void
NAME(add_stretch)(const Convolution *given, int outs, const REAL *laid, const REAL *y, Py_ssize_t count, REAL *out)
{
    Py_ssize_t all = given->source.channels * given->places;
    const Py_ssize_t *offsets = given->part[0].offsets;
    for (Py_ssize_t first = 0; first < all; first += 3) {
        const REAL *rows[3];
        REAL found[12];
        Py_ssize_t here = all - first < 3 ? all - first : 3;
        for (Py_ssize_t j = 0; j < 3; j++) {
            Py_ssize_t row = j < here ? first + j : first;
            rows[j] = laid + row / given->places * given->source.channel + offsets[row % given->places];
        }
        NAME(dots_of)(outs, y, given->target.channel, rows, count, found);
        for (int i = 0; i < outs; i++) {
            for (Py_ssize_t j = 0; j < here; j++) {
                out[i * all + first + j] += found[i * 3 + j];
            }
        }
    }
}

/* the same for the results of a group from `first` to before `last`, and some examples that are laid out */
static void
NAME(add_group)(const Convolution *given, Py_ssize_t first, Py_ssize_t last, Py_ssize_t examples, const REAL *laid,
                const REAL *y, REAL *out)
{
    Py_ssize_t positions = (examples - 1) * given->source.image + given->part[0].positions;
    for (Py_ssize_t p = 0; p < positions; p += STRETCH) {
        Py_ssize_t count = positions - p < STRETCH ? positions - p : STRETCH;
        for (Py_ssize_t o = first; o < last; o += MOST_ROWS) {
            NAME(add_stretch)(given, (int)(last - o < MOST_ROWS ? last - o : MOST_ROWS), laid + p,
                              y + o * given->target.channel + p, count,
                              out + o * given->source.channels * given->places);
        }
    }
}

/* lay out some examples, from number n on, of a group and results of it */
static void
NAME(lay_both)(const Convolution *given, Py_ssize_t n, Py_ssize_t examples, Py_ssize_t group, Py_ssize_t first,
               Py_ssize_t last, REAL *laid, REAL *y)
{
    const Layout *source = &given->source, *target = &given->target;
    Py_ssize_t of_x = n * source->all_channels + group * source->channels;
    Py_ssize_t of_y = n * target->all_channels + group * given->results;
    NAME(lay)(source, (const REAL *)given->x + of_x * product(source->size), examples, 0, source->channels, laid);
    NAME(lay)(target, (const REAL *)given->y + of_y * product(target->size), examples, first, last, y);
    for (Py_ssize_t o = first; o < last && examples < given->chunk; o++) { /* what was there before */
        memset(y + o * target->channel + examples * source->image, 0, WIDTH * sizeof(REAL));
    }
}

/* some results of all groups, by fours */
static void
NAME(add_places)(const Convolution *given, Py_ssize_t n, Py_ssize_t stop, Py_ssize_t begin, Py_ssize_t end, REAL *laid,
                 REAL *out)
{
    Py_ssize_t tiles = given->blocks, of_group = given->results * given->source.channels * given->places;
    REAL *y = laid + given->source.total;
    for (; n < stop; n += given->chunk) {
        Py_ssize_t examples = given->examples - n < given->chunk ? given->examples - n : given->chunk;
        for (Py_ssize_t number = begin; number < end;) {
            Py_ssize_t group = number / tiles, first = number % tiles * MOST_ROWS;
            Py_ssize_t next = (group + 1) * tiles < end ? (group + 1) * tiles : end;
            Py_ssize_t last = first + (next - number) * MOST_ROWS;
            last = last < given->results ? last : given->results;
            NAME(lay_both)(given, n, examples, group, first, last, laid, y);
            NAME(add_group)(given, first, last, examples, laid, y, out + group * of_group);
            number = next;
        }
    }
}
