/* Where the elements of a convolution are: how its source is laid out, and which results come of which elements. */
#ifndef UNDERTOW_CONVOLUTION_PLAN_H
#define UNDERTOW_CONVOLUTION_PLAN_H

#include "kernels/spatial_sizes.h"

#define MOST_OUTS 6   /* results that are computed together */
#define MOST_ROWS 4   /* results whose weights' gradients are */
#define STRETCH 1024  /* positions whose products are added up before they join the others; a multiple of vectors */
#define SLACK 64      /* numbers behind an array that may be read, or written, in vain */
#define MANY_PARTS 4096
#define WINDOWS 504     /* windows that a panel of results is computed for at a time; a multiple of tiles */
#define ROWS_AT_ONCE 96 /* rows of weights, and in turn the terms of a sum, that a panel is multiplied by */
#define MOST_TERMS 256
#define LONG_SUM 32     /* channels times places from which on panels are faster */
#define MOST_LANES 32   /* results of a panel */
#define MANY_PIECES 64  /* of the work, if there can be so many; not the number of threads, on which sums would depend */

#define NUMBERS_OF_PIECE (1 << 15) /* that one thread looks at, whether they are finite */

typedef struct {
    Py_ssize_t start[3], place[3], count[3]; /* the first element, where it is laid, and how many there are */
    Py_ssize_t base;                         /* where the phase begins */
} Phase;

typedef struct {
    Py_ssize_t size[3], step[3];  /* of the source */
    Py_ssize_t extent[3];         /* places of a laid phase */
    Py_ssize_t channels;          /* of a group */
    Py_ssize_t all_channels;      /* of an example */
    Py_ssize_t image, channel;    /* from one example to the next, and from one channel to the next */
    Py_ssize_t phases, total;
    Phase *phase;
} Layout;

typedef struct {
    Py_ssize_t start[3], step[3], count[3]; /* where the results belong */
    Py_ssize_t positions, width;            /* of a laid image, and with slack */
    Py_ssize_t terms;                       /* places of the window that contribute */
    Py_ssize_t *offsets, *numbers;          /* where they are in the laid source, and in the weights */
    Py_ssize_t stride[3];                   /* from one window to the next in the laid source */
    Py_ssize_t *at, *where, *rows;          /* see plan_panels */
    Py_ssize_t channels_at_once;
} Part;

typedef struct {
    const void *x, *y, *weight, *bias;
    void *out;
    Py_ssize_t examples, groups, results; /* results of a group */
    Py_ssize_t places, weights;           /* places of a window; all weights */
    Py_ssize_t by_result, by_source;      /* from one weight to the next */
    Py_ssize_t size[3];                   /* of the result */
    Py_ssize_t parts, chunk;              /* chunk: examples that are laid out together */
    Py_ssize_t blocks, flat;              /* of the results of a group; room for a block */
    Py_ssize_t windows;                   /* that a panel is computed for at a time, WINDOWS at most */
    Py_ssize_t stretches;                 /* of the windows of a batch, or of the rows of weights */
    Py_ssize_t turns;                     /* parts of the examples, whose gradients of weights are added up in the end */
    Py_ssize_t lanes;                     /* numbers of a vector of results */
    Py_ssize_t panel_width;               /* of all panels of a group, with what fills their vectors */
    Py_ssize_t pieces;                    /* of the work */
    int panels;                           /* whether results lie side by side, see kernels/convolution_products.h */
    int in_place;                         /* whether the source need not be laid out */
    double nanoseconds;                   /* that it may take */
    Layout source, target;
    Part *part;
} Convolution;

/* The results of a panel: from the first one on, how many, and with what fills the vectors. */
typedef struct {
    Py_ssize_t first, count, width;
    int vectors;
} Panel;

/* sizes along the (up to three) dimensions, the missing ones in front */
typedef struct {
    Py_ssize_t size[3], kernel[3], stride[3], padding[3], dilation[3], count[3];
} Windows;

/* The elements of n whose place in a padded line leaves this remainder. */
static void
find_phase(Py_ssize_t n, Py_ssize_t step, Py_ssize_t padding, Py_ssize_t remainder, Py_ssize_t *start,
           Py_ssize_t *place, Py_ssize_t *count)
{
    *start = ((remainder - padding) % step + step) % step;
    *place = (*start + padding) / step;
    *count = *start < n ? (n - *start + step - 1) / step : 0;
}

static Py_ssize_t
larger(Py_ssize_t a, Py_ssize_t b)
{
    return a > b ? a : b;
}

/* The position in a laid image of what is so far from its first element. */
static Py_ssize_t
position(const Layout *layout, const Py_ssize_t *distance)
{
    return (distance[0] * layout->extent[1] + distance[1]) * layout->extent[2] + distance[2];
}

static void
split(Py_ssize_t number, const Py_ssize_t *sizes, Py_ssize_t *indices)
{
    indices[2] = number % sizes[2];
    indices[1] = number / sizes[2] % sizes[1];
    indices[0] = number / sizes[2] / sizes[1];
}

static void
finish_layout(Layout *layout, Py_ssize_t chunk, const Py_ssize_t *furthest)
{
    layout->image = product(layout->extent);
    layout->channel = chunk * layout->image + SLACK;
    for (Py_ssize_t p = 0; p < layout->phases; p++) {
        layout->phase[p].base = p * layout->channels * layout->channel;
    }
    layout->total = layout->phases * layout->channels * layout->channel + position(layout, furthest) + 2 * SLACK;
}

static void
finish_part(Part *part, const Layout *layout)
{
    Py_ssize_t last[3] = {part->count[0] - 1, part->count[1] - 1, part->count[2] - 1};
    part->positions = position(layout, last) + 1;
    part->width = part->positions + SLACK;
}

/* The phase with these remainders, added if it is new. */
static const Phase *
phase_of(Layout *layout, const Windows *w, const Py_ssize_t *remainders)
{
    Phase *phase = layout->phase + layout->phases;
    for (int d = 0; d < 3; d++) {
        find_phase(w->size[d], w->stride[d], w->padding[d], remainders[d], &phase->start[d], &phase->place[d],
                   &phase->count[d]);
    }
    for (Py_ssize_t p = 0; p < layout->phases; p++) {
        if (memcmp(layout->phase[p].start, phase->start, sizeof(phase->start)) == 0) {
            return layout->phase + p;
        }
    }
    layout->phases++;
    return phase;
}

/* How far from the first place of its window, in elements of a phase, a place is; and of which phase. */
static void
steps_to(const Windows *w, Py_ssize_t number, Py_ssize_t *steps, Py_ssize_t *remainders)
{
    Py_ssize_t k[3];
    split(number, w->kernel, k);
    for (int d = 0; d < 3; d++) {
        steps[d] = w->dilation[d] * k[d] / w->stride[d];
        remainders[d] = w->dilation[d] * k[d] % w->stride[d];
    }
}

/* A source in phases, and one part: results lie side by side. */
static void
plan_forward(Convolution *given, const Windows *w)
{
    Layout *source = &given->source;
    Part *part = given->part;
    Py_ssize_t steps[3], remainders[3], furthest[3] = {0};
    int share = product(w->stride) == 1; /* the zeros behind a row may be those before the next one */
    memcpy(source->size, w->size, sizeof(w->size));
    memcpy(source->step, w->stride, sizeof(w->stride));
    memcpy(source->extent, w->count, sizeof(w->count));
    for (Py_ssize_t k = 0; k < given->places; k++) {
        steps_to(w, k, steps, remainders);
        const Phase *phase = phase_of(source, w, remainders);
        part->numbers[k] = phase - source->phase; /* for now */
        for (int d = 0; d < 3; d++) {
            Py_ssize_t before = phase->place[d], beyond = w->count[d] + steps[d] - before - phase->count[d];
            Py_ssize_t zeros = share ? larger(before, beyond) : before + larger(beyond, 0);
            source->extent[d] = larger(source->extent[d], phase->count[d] + zeros);
            furthest[d] = larger(furthest[d], steps[d]);
        }
    }
    finish_layout(source, given->chunk, furthest);
    for (Py_ssize_t k = 0; k < given->places; k++) {
        steps_to(w, k, steps, remainders);
        part->offsets[k] = source->phase[part->numbers[k]].base + position(source, steps);
        part->numbers[k] = k;
    }
    memcpy(part->count, w->count, sizeof(w->count));
    part->terms = given->places;
    part->step[0] = part->step[1] = part->step[2] = given->parts = 1;
    finish_part(part, source);
}

/* The extents of a source of w->count elements whose results, w->size of them, lie in phases. */
static void
plan_extent(const Windows *w, int d, Py_ssize_t *before, Py_ssize_t *extent)
{
    Py_ssize_t start, place, count, behind = 0, longest = 0, n = w->count[d], s = w->stride[d];
    *before = 0;
    for (Py_ssize_t k = 0; k < w->kernel[d]; k++) {
        Py_ssize_t steps = w->dilation[d] * k / s;
        find_phase(w->size[d], s, w->padding[d], w->dilation[d] * k % s, &start, &place, &count);
        if (count > 0) {
            *before = larger(*before, steps - place);
            behind = larger(behind, place + count - steps - n);
        }
    }
    for (Py_ssize_t remainder = 0; remainder < s; remainder++) {
        find_phase(w->size[d], s, w->padding[d], remainder, &start, &place, &count);
        longest = larger(longest, count);
    }
    *extent = larger(n + larger(*before, behind), longest);
}

/* Fill in the places of the window that contribute to the part with these remainders. */
static void
plan_terms(Part *part, const Layout *source, const Windows *w, const Py_ssize_t *remainders, const Py_ssize_t *first)
{
    Py_ssize_t steps[3], found[3];
    for (Py_ssize_t k = 0; k < product(w->kernel); k++) {
        steps_to(w, k, steps, found);
        if (memcmp(found, remainders, sizeof(found)) == 0) {
            Py_ssize_t distance[3] = {first[0] - steps[0], first[1] - steps[1], first[2] - steps[2]};
            part->offsets[part->terms] = position(source, distance);
            part->numbers[part->terms++] = k;
        }
    }
}

/* A source as it is, and a part for each phase of results. */
static void
plan_transposed(Convolution *given, const Windows *w)
{
    Layout *source = &given->source;
    Py_ssize_t before[3], furthest[3], remainders[3], first[3];
    Py_ssize_t *offsets = given->part->offsets, *numbers = given->part->numbers;
    memcpy(source->size, w->count, sizeof(w->count));
    source->phases = source->step[0] = source->step[1] = source->step[2] = 1;
    for (int d = 0; d < 3; d++) {
        plan_extent(w, d, &before[d], &source->extent[d]);
        source->phase->place[d] = before[d];
        source->phase->count[d] = w->count[d];
        furthest[d] = before[d] + (w->size[d] + w->padding[d]) / w->stride[d];
    }
    finish_layout(source, given->chunk, furthest);
    for (Py_ssize_t k = 0; k < product(w->stride); k++) {
        Part *part = given->part + given->parts;
        split(k, w->stride, remainders);
        for (int d = 0; d < 3; d++) {
            find_phase(w->size[d], w->stride[d], w->padding[d], remainders[d], &part->start[d], &first[d],
                       &part->count[d]);
            first[d] += before[d];
            part->step[d] = w->stride[d];
            part->stride[d] = 1;
        }
        if (product(part->count) > 0) {
            part->offsets = offsets;
            part->numbers = numbers;
            plan_terms(part, source, w, remainders, first);
            finish_part(part, source);
            offsets += part->terms;
            numbers += part->terms;
            given->parts++;
        }
    }
}

/* ---- panels, see kernels/convolution_products.h */

static Panel
panel_of(const Convolution *given, Py_ssize_t number)
{
    Py_ssize_t lanes = given->lanes, first = number * 2 * lanes, count = given->results - first;
    count = count < 2 * lanes ? count : 2 * lanes;
    int vectors = count > lanes ? 2 : 1;
    return (Panel){first, count, vectors * lanes, vectors};
}

/* A source in one piece, whatever the stride. */
static void
plan_whole(Convolution *given, const Windows *w)
{
    Layout *source = &given->source;
    Part *part = given->part;
    Py_ssize_t furthest[3], k[3];
    memcpy(source->size, w->size, sizeof(w->size));
    for (int d = 0; d < 3; d++) {
        Py_ssize_t reach = w->dilation[d] * (w->kernel[d] - 1), last = (w->count[d] - 1) * w->stride[d] + reach;
        source->extent[d] = w->size[d] + larger(w->padding[d], last + 1 - w->padding[d] - w->size[d]);
        source->phase->place[d] = w->padding[d];
        source->phase->count[d] = w->size[d];
        part->stride[d] = w->stride[d];
        furthest[d] = reach;
    }
    source->phases = source->step[0] = source->step[1] = source->step[2] = 1;
    finish_layout(source, given->chunk, furthest);
    for (Py_ssize_t number = 0; number < given->places; number++) {
        split(number, w->kernel, k);
        Py_ssize_t steps[3] = {w->dilation[0] * k[0], w->dilation[1] * k[1], w->dilation[2] * k[2]};
        part->offsets[number] = position(source, steps);
        part->numbers[number] = number;
    }
    memcpy(part->count, w->count, sizeof(w->count));
    part->terms = given->places;
    part->step[0] = part->step[1] = part->step[2] = given->parts = 1;
}

/* A source without zeros around it can be read where it is. */
static void
find_in_place(Convolution *given)
{
    Layout *source = &given->source;
    given->in_place = memcmp(source->size, source->extent, sizeof(source->size)) == 0;
    if (given->in_place) {
        source->channel = product(source->size);
        source->image = source->all_channels * source->channel;
        source->total = 0;
    }
}

/* For each window of a batch, where it begins in the laid source (`at`) and where its result is (`where`); for each
 * channel and place of a window, how far it is from there (`rows`). */
static void
plan_panels(Convolution *given, Part *part)
{
    const Layout *source = &given->source;
    Py_ssize_t windows = product(part->count), all_results = given->groups * given->results, index[3];
    for (Py_ssize_t n = 0; n < given->chunk; n++) {
        for (Py_ssize_t k = 0; k < windows; k++) {
            split(k, part->count, index);
            Py_ssize_t start[3], place[3];
            for (int d = 0; d < 3; d++) {
                start[d] = index[d] * part->stride[d];
                place[d] = part->start[d] + index[d] * part->step[d];
            }
            part->at[n * windows + k] = n * source->image + position(source, start);
            part->where[n * windows + k] = n * all_results * product(given->size) +
                                           (place[0] * given->size[1] + place[1]) * given->size[2] + place[2];
        }
    }
    for (Py_ssize_t k = 0; k < source->channels * part->terms; k++) {
        part->rows[k] = k / part->terms * source->channel + part->offsets[k % part->terms];
    }
    part->channels_at_once = part->terms == 0 ? 1 : larger(MOST_TERMS / part->terms, 1);
}

#endif
