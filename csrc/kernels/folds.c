/* See folds.h. As in sums.c, a slice is folded in fixed pieces, and these one after the other, so that the result does
 * not depend on the number of threads. In a piece, LANES numbers are in the making side by side.
 */
#include "kernels/folds.h"

#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#include <math.h>
#include <stdatomic.h>

#define PIECE 32768 /* elements of a row */
#define ROWS 256    /* rows of a matrix whose columns are folded */
#define COLUMNS 512
#define MANY_LANES 64 /* of what takes long to compare, and gives the same in any order */

typedef struct {
    Fold fold;
    const void *x;
    npy_intp outer, n, inner, pieces; /* pieces: of n */
    double *parts;                    /* what the pieces give */
    void *out;
    npy_int64 *places;
    atomic_int noted;
} Given;

/* a and b are folded, v is an element. NaN stays what it is, and is larger and smaller than all others. */
#define LARGER(a, v) ((v) > (a) || (v) != (v) ? (v) : (a))
#define SMALLER(a, v) ((v) < (a) || (v) != (v) ? (v) : (a))
#define TIMES(a, v) ((a) * (v))
#define PLUS(a, v) ((a) + (v))
#define PLUS_SIZE(a, v) ((a) + ((v) < 0 ? -(v) : (v)))
#define PLUS_SQUARE(a, v) ((a) + (v) * (v))

/* `again`: an element may be folded twice, so that a last vector may overlap the one before */
#define FOLD(NAME, REAL, LANES, again, FIRST, ADD, JOIN_TWO)                                                   \
    CLONES static double NAME##_of_row_##REAL(const REAL *x, npy_intp n)                                       \
    {                                                                                                          \
        double all = FIRST;                                                                                    \
        for (npy_intp start = 0; start < n; start += BLOCK) {                                                  \
            npy_intp count = n - start < BLOCK ? n - start : BLOCK, k = 0;                                     \
            const REAL *from = x + start;                                                                      \
            REAL lanes[LANES], rest = (REAL)FIRST;                                                             \
            for (int j = 0; j < LANES; j++) {                                                                  \
                lanes[j] = (REAL)FIRST;                                                                        \
            }                                                                                                  \
            for (; k + LANES <= count; k += LANES) {                                                           \
                for (int j = 0; j < LANES; j++) {                                                              \
                    lanes[j] = ADD(lanes[j], from[k + j]);                                                     \
                }                                                                                              \
            }                                                                                                  \
            if (again && count >= LANES && k < count) {                                                        \
                for (int j = 0; j < LANES; j++) {                                                              \
                    lanes[j] = ADD(lanes[j], from[count - LANES + j]);                                         \
                }                                                                                              \
                k = count;                                                                                     \
            }                                                                                                  \
            for (; k < count; k++) {                                                                           \
                rest = ADD(rest, from[k]);                                                                     \
            }                                                                                                  \
            for (int half = count < LANES ? 0 : LANES / 2; half > 0; half /= 2) {                              \
                for (int j = 0; j < half; j++) {                                                               \
                    lanes[j] = JOIN_TWO(lanes[j], lanes[j + half]);                                            \
                }                                                                                              \
            }                                                                                                  \
            rest = count < LANES ? rest : JOIN_TWO(rest, lanes[0]);                                            \
            all = JOIN_TWO(all, rest);                                                                         \
        }                                                                                                      \
        return all;                                                                                            \
    }                                                                                                          \
    /* parts[i] = the fold of `rows` rows, each of which lies `width` behind the one before */                 \
    CLONES static void NAME##_of_columns_##REAL(const REAL *x, npy_intp rows, npy_intp count, npy_intp width,  \
                                                double *parts)                                                 \
    {                                                                                                          \
        REAL some[COLUMNS];                                                                                    \
        for (npy_intp k = 0; k < count; k++) {                                                                 \
            parts[k] = FIRST;                                                                                  \
        }                                                                                                      \
        for (npy_intp start = 0; start < rows; start += FEW_ROWS) {                                            \
            npy_intp end = start + FEW_ROWS < rows ? start + FEW_ROWS : rows;                                  \
            for (npy_intp k = 0; k < count; k++) {                                                             \
                some[k] = (REAL)FIRST;                                                                         \
            }                                                                                                  \
            for (npy_intp row = start; row < end; row++) {                                                     \
                const REAL *from = x + row * width;                                                            \
                for (npy_intp k = 0; k < count; k++) {                                                         \
                    some[k] = ADD(some[k], from[k]);                                                           \
                }                                                                                              \
            }                                                                                                  \
            for (npy_intp k = 0; k < count; k++) {                                                             \
                parts[k] = JOIN_TWO(parts[k], some[k]);                                                        \
            }                                                                                                  \
        }                                                                                                      \
    }

#define EACH_FOLD(REAL)                                            \
    FOLD(largest, REAL, MANY_LANES, 1, -INFINITY, LARGER, LARGER)  \
    FOLD(smallest, REAL, MANY_LANES, 1, INFINITY, SMALLER, SMALLER)\
    FOLD(product, REAL, LANES, 0, 1, TIMES, TIMES)                 \
    FOLD(sizes, REAL, LANES, 0, 0, PLUS_SIZE, PLUS)                \
    FOLD(squares, REAL, LANES, 0, 0, PLUS_SQUARE, PLUS)            \
    static double (*const of_row_##REAL[FOLDS])(const REAL *, npy_intp) = {                                    \
        largest_of_row_##REAL, smallest_of_row_##REAL, product_of_row_##REAL, sizes_of_row_##REAL,             \
        squares_of_row_##REAL};                                                                                \
    static void (*const of_columns_##REAL[FOLDS])(const REAL *, npy_intp, npy_intp, npy_intp, double *) = {    \
        largest_of_columns_##REAL, smallest_of_columns_##REAL, product_of_columns_##REAL,                      \
        sizes_of_columns_##REAL, squares_of_columns_##REAL};

EACH_FOLD(float)
EACH_FOLD(double)

static double
joined(Fold fold, double a, double b)
{
    return fold == LARGEST ? LARGER(a, b) : fold == SMALLEST ? SMALLER(a, b) : fold == PRODUCT ? a * b : a + b;
}

static void
note(Given *given)
{
    int noted = exceptions_noted() & ~UNDERFLOW_NOTED;
    if (noted && given->fold > SMALLEST) { /* comparisons with NaN are noted, too */
        atomic_fetch_or(&given->noted, noted);
    }
}

#define SHARES(REAL)                                                                                           \
    static void row_pieces_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                            \
    {                                                                                                          \
        Given *given = context;                                                                                \
        npy_intp n = given->n, pieces = given->pieces;                                                         \
        forget_exceptions();                                                                                   \
        for (Py_ssize_t piece = first; piece < last; piece++) {                                                \
            npy_intp start = piece % pieces * PIECE, left = n - start;                                         \
            const REAL *from = (const REAL *)given->x + piece / pieces * n + start;                            \
            given->parts[piece] = of_row_##REAL[given->fold](from, left < PIECE ? left : PIECE);               \
        }                                                                                                      \
        note(given);                                                                                           \
    }                                                                                                          \
    static void column_pieces_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                         \
    {                                                                                                          \
        Given *given = context;                                                                                \
        npy_intp inner = given->inner, strips = (inner + COLUMNS - 1) / COLUMNS;                               \
        forget_exceptions();                                                                                   \
        for (Py_ssize_t piece = first; piece < last; piece++) {                                                \
            npy_intp column = piece % strips * COLUMNS, slice = piece / strips;                                \
            npy_intp row = slice % given->pieces * ROWS, o = slice / given->pieces;                            \
            npy_intp rows = given->n - row < ROWS ? given->n - row : ROWS;                                     \
            npy_intp count = inner - column < COLUMNS ? inner - column : COLUMNS;                              \
            of_columns_##REAL[given->fold]((const REAL *)given->x + (o * given->n + row) * inner + column,     \
                                           rows, count, inner, given->parts + slice * inner + column);         \
        }                                                                                                      \
        note(given);                                                                                           \
    }                                                                                                          \
    CLONES static void finish_whole_##REAL(const double *parts, REAL *out, npy_intp count)                     \
    {                                                                                                          \
        for (npy_intp k = 0; k < count; k++) {                                                                 \
            out[k] = (REAL)parts[k];                                                                           \
        }                                                                                                      \
    }                                                                                                          \
    static void finish_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                                \
    {                                                                                                          \
        Given *given = context;                                                                                \
        npy_intp inner = given->inner, pieces = given->pieces;                                                 \
        forget_exceptions();                                                                                   \
        if (pieces == 1) {                                                                                     \
            finish_whole_##REAL(given->parts + first, (REAL *)given->out + first, last - first);               \
            first = last;                                                                                      \
        }                                                                                                      \
        for (npy_intp slice = first; slice < last; slice++) {                                                  \
            const double *parts = given->parts + (inner == 1 ? slice * pieces                                  \
                                                             : slice / inner * pieces * inner + slice % inner); \
            double all = parts[0];                                                                             \
            for (npy_intp piece = 1; piece < pieces; piece++) {                                                \
                all = joined(given->fold, all, parts[piece * inner]);                                          \
            }                                                                                                  \
            ((REAL *)given->out)[slice] = (REAL)all;                                                           \
        }                                                                                                      \
        note(given);                                                                                           \
    }

SHARES(float)
SHARES(double)

static void
fold_all(int type, Given *given)
{
    int is_float = type == NPY_FLOAT;
    npy_intp slices = given->outer * given->inner, strips = (given->inner + COLUMNS - 1) / COLUMNS;
    double nanoseconds = (is_float ? 0.15 : 0.3) * slices * given->n;
    if (given->inner == 1) {
        divide(is_float ? row_pieces_float : row_pieces_double, given, given->outer * given->pieces, nanoseconds);
    }
    else {
        divide(is_float ? column_pieces_float : column_pieces_double, given, given->outer * given->pieces * strips,
               nanoseconds);
    }
    divide(is_float ? finish_float : finish_double, given, slices, (given->pieces == 1 ? 0.5 : 3.0 + given->pieces) * slices);
}

int
fold_slices(Fold fold, int type, const void *x, npy_intp outer, npy_intp n, npy_intp inner, void *out)
{
    Given given = {.fold = fold, .x = x, .outer = outer, .n = n, .inner = inner, .out = out};
    npy_intp piece = inner == 1 ? PIECE : ROWS;
    given.pieces = (n + piece - 1) / piece;
    given.parts = malloc(outer * given.pieces * inner * sizeof(double) + 1);
    if (given.parts == NULL) {
        return 0;
    }
    WORK(outer * n * inner, fold_all(type, &given));
    free(given.parts);
    return !given.noted;
}

/* ---- extremes, and where they are */

#define EXTREMES(NAME, REAL, PLACE, WINS)                                                                      \
    static npy_int64 place_of_##NAME##_##REAL(const REAL *x, npy_intp n, REAL found)                           \
    {                                                                                                          \
        npy_intp k = 0;                                                                                        \
        while (k < n && !(found == found ? x[k] == found : x[k] != x[k])) {                                    \
            k++;                                                                                               \
        }                                                                                                      \
        return k < n ? k : 0; /* another thread may write meanwhile */                                         \
    }                                                                                                          \
    static void NAME##_rows_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                           \
    {                                                                                                          \
        Given *given = context;                                                                                \
        for (Py_ssize_t row = first; row < last; row++) {                                                      \
            const REAL *x = (const REAL *)given->x + row * given->n;                                           \
            REAL found = (REAL)NAME##_of_row_##REAL(x, given->n);                                              \
            ((REAL *)given->out)[row] = found;                                                                 \
            given->places[row] = place_of_##NAME##_##REAL(x, given->n, found);                                 \
        }                                                                                                      \
        forget_exceptions();                                                                                   \
    }                                                                                                          \
    /* of columns side by side; places are counted in numbers as wide as the elements */                       \
    CLONES static void NAME##_columns_##REAL(const REAL *x, npy_intp n, npy_intp count, npy_intp width, REAL *out, \
                                             PLACE *places)                                                    \
    {                                                                                                          \
        for (npy_intp k = 0; k < count; k++) {                                                                 \
            out[k] = x[k];                                                                                     \
            places[k] = 0;                                                                                     \
        }                                                                                                      \
        for (npy_intp row = 1; row < n; row++) {                                                               \
            const REAL *from = x + row * width;                                                                \
            _Pragma("GCC ivdep") for (npy_intp k = 0; k < count; k++)                                          \
            {                                                                                                  \
                REAL v = from[k], most = out[k];                                                               \
                int is_new = (v WINS most) | ((v != v) & (most == most));                                      \
                out[k] = is_new ? v : most;                                                                    \
                places[k] = is_new ? (PLACE)row : places[k];                                                   \
            }                                                                                                  \
        }                                                                                                      \
    }                                                                                                          \
    static void NAME##_strips_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                         \
    {                                                                                                          \
        Given *given = context;                                                                                \
        npy_intp inner = given->inner, strips = (inner + COLUMNS - 1) / COLUMNS;                               \
        REAL found[COLUMNS];                                                                                   \
        PLACE places[COLUMNS];                                                                                 \
        for (Py_ssize_t piece = first; piece < last; piece++) {                                                \
            npy_intp column = piece % strips * COLUMNS, o = piece / strips;                                    \
            npy_intp count = inner - column < COLUMNS ? inner - column : COLUMNS, to = o * inner + column;     \
            NAME##_columns_##REAL((const REAL *)given->x + o * given->n * inner + column, given->n, count,     \
                                  inner, found, places);                                                       \
            memcpy((REAL *)given->out + to, found, count * sizeof(REAL));                                      \
            for (npy_intp k = 0; k < count; k++) {                                                             \
                given->places[to + k] = places[k];                                                             \
            }                                                                                                  \
        }                                                                                                      \
        forget_exceptions();                                                                                   \
    }

EXTREMES(largest, float, npy_uint32, >)
EXTREMES(smallest, float, npy_uint32, <)
EXTREMES(largest, double, npy_uint64, >)
EXTREMES(smallest, double, npy_uint64, <)

void
find_extremes(int smallest, int type, const void *x, npy_intp outer, npy_intp n, npy_intp inner, void *out,
              npy_int64 *places)
{
    static const Share of_rows[2][2] = {{largest_rows_float, smallest_rows_float},
                                        {largest_rows_double, smallest_rows_double}};
    static const Share of_strips[2][2] = {{largest_strips_float, smallest_strips_float},
                                          {largest_strips_double, smallest_strips_double}};
    Given given = {.x = x, .outer = outer, .n = n, .inner = inner, .out = out, .places = places};
    int is_double = type == NPY_DOUBLE;
    npy_intp strips = (inner + COLUMNS - 1) / COLUMNS;
    Share share = (inner == 1 ? of_rows : of_strips)[is_double][smallest];
    double nanoseconds = (is_double ? 0.6 : 0.4) * outer * n * inner;
    WORK(outer * n * inner, divide(share, &given, inner == 1 ? outer : outer * strips, nanoseconds));
}
