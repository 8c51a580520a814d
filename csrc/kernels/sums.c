/* See sums.h. Every sum is made of the sums of fixed pieces: a piece is added up by one thread, in its own type for short
 * stretches and in double beyond, and the sums of the pieces are added one after the other.
 */
#include "kernels/sums.h"

#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#include <math.h>
#include <stdatomic.h>

#define PIECE 32768     /* elements of a row */
#define ROWS 256        /* rows of a matrix whose columns are added up */
#define COLUMNS 512
#define FEW_COLUMNS 16  /* of a small matrix */
#define NARROW 64       /* columns of which rows are joined */
#define SHORT 64        /* a row of fewer elements is one sum */
#define AT_ONCE 8       /* short rows */

#define REAL float
#include "loops/max_and_sum.h"
#undef REAL
#define REAL double
#include "loops/max_and_sum.h"
#undef REAL

typedef struct {
    const void *x;
    npy_intp outer, n, inner, pieces; /* pieces: of n */
    const double *shift;              /* for every row: the squares of distances from this are added up; or NULL */
    double divisor;
    int root;                         /* whether a result is the root of its sum */
    void *out;
    double *sums;                     /* of pieces */
    atomic_int noted;
} Sums;

static void
note(Sums *given)
{
    int noted = exceptions_noted() & ~UNDERFLOW_NOTED;
    if (noted) {
        atomic_fetch_or(&given->noted, noted);
    }
}

/* Of narrow rows, more. */
static npy_intp
rows_of_piece(npy_intp inner)
{
    return inner < NARROW ? ROWS * NARROW / inner : ROWS;
}

#define LOOPS(REAL)                                                                                            \
    /* rows of n elements, several at once, because one addition waits for the one before */                   \
    static void short_rows_##REAL(const REAL *x, npy_intp rows, npy_intp n, double *sums)                      \
    {                                                                                                          \
        npy_intp row = 0;                                                                                      \
        for (; row + AT_ONCE <= rows; row += AT_ONCE, x += AT_ONCE * n) {                                      \
            REAL some[AT_ONCE] = {0};                                                                          \
            for (npy_intp j = 0; j < n; j++) {                                                                 \
                for (int k = 0; k < AT_ONCE; k++) {                                                            \
                    some[k] += x[k * n + j];                                                                   \
                }                                                                                              \
            }                                                                                                  \
            for (int k = 0; k < AT_ONCE; k++) {                                                                \
                sums[row + k] = some[k];                                                                       \
            }                                                                                                  \
        }                                                                                                      \
        for (; row < rows; row++, x += n) {                                                                    \
            REAL sum = 0;                                                                                      \
            for (npy_intp j = 0; j < n; j++) {                                                                 \
                sum += x[j];                                                                                   \
            }                                                                                                  \
            sums[row] = sum;                                                                                   \
        }                                                                                                      \
    }                                                                                                          \
    CLONES static double long_row_##REAL(const REAL *x, npy_intp n)                                            \
    {                                                                                                          \
        return sum_of_##REAL(x, NULL, n);                                                                      \
    }                                                                                                          \
    CLONES static double squares_##REAL(const REAL *x, npy_intp n, REAL shift)                                 \
    {                                                                                                          \
        REAL some[BLOCK];                                                                                      \
        double sum = 0;                                                                                        \
        for (npy_intp start = 0; start < n; start += BLOCK) {                                                  \
            npy_intp count = n - start < BLOCK ? n - start : BLOCK;                                            \
            for (npy_intp k = 0; k < count; k++) {                                                             \
                some[k] = x[start + k] - shift;                                                                \
            }                                                                                                  \
            sum += sum_of_block_##REAL(some, some, count);                                                     \
        }                                                                                                      \
        return sum;                                                                                            \
    }                                                                                                          \
    static void row_pieces_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                            \
    {                                                                                                          \
        Sums *given = context;                                                                                 \
        const REAL *x = given->x;                                                                              \
        npy_intp n = given->n, pieces = given->pieces;                                                         \
        forget_exceptions();                                                                                   \
        if (n < SHORT && given->shift == NULL) {                                                               \
            short_rows_##REAL(x + first * n, last - first, n, given->sums + first);                            \
            first = last;                                                                                      \
        }                                                                                                      \
        for (Py_ssize_t piece = first; piece < last; piece++) {                                                \
            npy_intp start = piece % pieces * PIECE, left = n - start, count = left < PIECE ? left : PIECE;    \
            const REAL *from = x + piece / pieces * n + start;                                                 \
            given->sums[piece] = given->shift == NULL                                                          \
                                     ? long_row_##REAL(from, count)                                            \
                                     : squares_##REAL(from, count, (REAL)given->shift[piece / pieces]);        \
        }                                                                                                      \
        note(given);                                                                                           \
    }                                                                                                          \
    /* sums[i] = the sum of `rows` rows, each of which lies `width` behind the one before */                   \
    CLONES static void columns_##REAL(const REAL *x, npy_intp rows, npy_intp count, npy_intp width, double *sums) \
    {                                                                                                          \
        REAL some[COLUMNS];                                                                                    \
        memset(sums, 0, count * sizeof(double));                                                               \
        for (npy_intp start = 0; start < rows; start += FEW_ROWS) {                                            \
            npy_intp end = start + FEW_ROWS < rows ? start + FEW_ROWS : rows;                                  \
            memset(some, 0, count * sizeof(REAL));                                                             \
            for (npy_intp row = start; row < end; row++) {                                                     \
                const REAL *from = x + row * width;                                                            \
                for (npy_intp k = 0; k < count; k++) {                                                         \
                    some[k] += from[k];                                                                        \
                }                                                                                              \
            }                                                                                                  \
            for (npy_intp k = 0; k < count; k++) {                                                             \
                sums[k] += some[k];                                                                            \
            }                                                                                                  \
        }                                                                                                      \
    }                                                                                                          \
    /* the same of rows that are narrow and follow each other: several are taken for one, so that vectors are full */ \
    static void narrow_columns_##REAL(const REAL *x, npy_intp rows, npy_intp count, double *sums)              \
    {                                                                                                          \
        double wide[2 * NARROW];                                                                               \
        npy_intp together = 2 * NARROW / count, wides = rows / together, width = together * count;             \
        columns_##REAL(x + wides * width, rows - wides * together, count, count, sums);                        \
        columns_##REAL(x, wides, width, width, wide);                                                          \
        for (npy_intp k = 0; k < width; k += count) {                                                          \
            for (npy_intp j = 0; j < count; j++) {                                                             \
                sums[j] += wide[k + j];                                                                        \
            }                                                                                                  \
        }                                                                                                      \
    }                                                                                                          \
    /* the same of many small matrices, several at once */                                                     \
    static void small_matrices_##REAL(const REAL *x, npy_intp count, npy_intp n, npy_intp inner, double *sums) \
    {                                                                                                          \
        for (npy_intp o = 0, here; o < count; o += here, x += here * n * inner) {                              \
            here = count - o < AT_ONCE ? 1 : AT_ONCE;                                                          \
            for (npy_intp k = 0; k < inner; k++) {                                                             \
                REAL some[AT_ONCE] = {0};                                                                      \
                for (npy_intp j = 0; here > 1 && j < n; j++) {                                                 \
                    for (int i = 0; i < AT_ONCE; i++) {                                                        \
                        some[i] += x[(i * n + j) * inner + k];                                                 \
                    }                                                                                          \
                }                                                                                              \
                for (npy_intp j = 0; here == 1 && j < n; j++) {                                                \
                    some[0] += x[j * inner + k];                                                               \
                }                                                                                              \
                for (npy_intp i = 0; i < here; i++) {                                                          \
                    sums[(o + i) * inner + k] = some[i];                                                       \
                }                                                                                              \
            }                                                                                                  \
        }                                                                                                      \
    }                                                                                                          \
    static void column_pieces_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                         \
    {                                                                                                          \
        Sums *given = context;                                                                                 \
        npy_intp inner = given->inner, blocks = (inner + COLUMNS - 1) / COLUMNS;                               \
        forget_exceptions();                                                                                   \
        if (inner <= FEW_COLUMNS && given->n <= FEW_ROWS) {                                                    \
            small_matrices_##REAL((const REAL *)given->x + first * given->n * inner, last - first, given->n,   \
                                  inner, given->sums + first * inner);                                         \
            first = last;                                                                                      \
        }                                                                                                      \
        for (Py_ssize_t piece = first; piece < last; piece++) {                                                \
            npy_intp column = piece % blocks * COLUMNS, slice = piece / blocks;                                \
            npy_intp most = rows_of_piece(inner), row = slice % given->pieces * most;                          \
            npy_intp rows = given->n - row < most ? given->n - row : most, o = slice / given->pieces;          \
            npy_intp count = inner - column < COLUMNS ? inner - column : COLUMNS;                              \
            const REAL *from = (const REAL *)given->x + (o * given->n + row) * inner + column;                 \
            double *sums = given->sums + slice * inner + column;                                               \
            if (inner <= NARROW) {                                                                             \
                narrow_columns_##REAL(from, rows, inner, sums);                                                \
            }                                                                                                  \
            else {                                                                                             \
                columns_##REAL(from, rows, count, inner, sums);                                                \
            }                                                                                                  \
        }                                                                                                      \
        note(given);                                                                                           \
    }                                                                                                          \
    /* the sums of slices that are one piece each, as below */                                                 \
    CLONES static void finish_whole_##REAL(const double *sums, double divisor, REAL *out, npy_intp count)      \
    {                                                                                                          \
        for (npy_intp k = 0; k < count; k++) {                                                                 \
            out[k] = (REAL)((REAL)(0 + sums[k]) / divisor);                                                    \
        }                                                                                                      \
    }                                                                                                          \
    /* the sums of the pieces of every slice, as the type at hand before they are divided: it may overflow */  \
    static void finish_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                                \
    {                                                                                                          \
        Sums *given = context;                                                                                 \
        npy_intp inner = given->inner, pieces = given->pieces;                                                 \
        forget_exceptions();                                                                                   \
        if (pieces == 1 && !given->root) {                                                                     \
            finish_whole_##REAL(given->sums + first, given->divisor, (REAL *)given->out + first, last - first); \
            first = last;                                                                                      \
        }                                                                                                      \
        for (npy_intp slice = first; slice < last; slice++) {                                                  \
            const double *sums = given->sums + (inner == 1 ? slice * pieces                                    \
                                                           : slice / inner * pieces * inner + slice % inner);  \
            double sum = 0;                                                                                    \
            for (npy_intp piece = 0; piece < pieces; piece++) {                                                \
                sum += sums[piece * inner];                                                                    \
            }                                                                                                  \
            sum = (REAL)sum / given->divisor;                                                                  \
            ((REAL *)given->out)[slice] = (REAL)(given->root ? sqrt(sum) : sum);                               \
        }                                                                                                      \
        note(given);                                                                                           \
    }

LOOPS(float)
LOOPS(double)

static void
finish(int type, Sums *given)
{
    npy_intp slices = given->outer * given->inner;
    divide(type == NPY_FLOAT ? finish_float : finish_double, given, slices, (given->pieces == 1 ? 0.5 : 3.0 + given->pieces) * slices);
}

static void
add_rows_up(int type, Sums *given)
{
    double nanoseconds = (given->n < SHORT ? 0.3 : 0.1) * (type == NPY_FLOAT ? 1 : 2) * given->outer * given->n;
    divide(type == NPY_FLOAT ? row_pieces_float : row_pieces_double, given, given->outer * given->pieces, nanoseconds);
}

static void
add_columns_up(int type, Sums *given)
{
    npy_intp blocks = (given->inner + COLUMNS - 1) / COLUMNS;
    double nanoseconds = (type == NPY_FLOAT ? 0.15 : 0.3) * given->outer * given->n * given->inner;
    divide(type == NPY_FLOAT ? column_pieces_float : column_pieces_double, given,
           given->outer * given->pieces * blocks, nanoseconds);
}

int
sum_slices(int type, const void *x, npy_intp outer, npy_intp n, npy_intp inner, double divisor, void *out)
{
    npy_intp piece = inner == 1 ? PIECE : rows_of_piece(inner);
    Sums given = {.x = x, .outer = outer, .n = n, .inner = inner, .divisor = divisor, .out = out};
    given.pieces = (n + piece - 1) / piece;
    given.sums = malloc(outer * given.pieces * inner * sizeof(double) + 1);
    if (given.sums == NULL) {
        return 0;
    }
    if (inner == 1) {
        WORK(outer * n, add_rows_up(type, &given); finish(type, &given));
    }
    else {
        WORK(outer * n * inner, add_columns_up(type, &given); finish(type, &given));
    }
    free(given.sums);
    return !given.noted;
}

static void
find_variances(int type, Sums *given, double *means)
{
    add_rows_up(type, given);
    for (npy_intp o = 0; o < given->outer; o++) {
        double sum = 0;
        for (npy_intp piece = 0; piece < given->pieces; piece++) {
            sum += given->sums[o * given->pieces + piece];
        }
        means[o] = sum / (double)given->n;
    }
    given->shift = means;
    add_rows_up(type, given);
    finish(type, given);
}

int
variances_of_rows(int type, const void *x, npy_intp outer, npy_intp n, double divisor, int root, void *out)
{
    Sums given = {.x = x, .outer = outer, .n = n, .inner = 1, .divisor = divisor, .root = root, .out = out};
    given.pieces = (n + PIECE - 1) / PIECE;
    given.sums = malloc((outer * given.pieces + outer) * sizeof(double) + 1);
    if (given.sums == NULL) {
        return 0;
    }
    WORK(outer * n, find_variances(type, &given, given.sums + outer * given.pieces));
    free(given.sums);
    return !given.noted;
}
