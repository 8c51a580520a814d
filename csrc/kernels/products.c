/* Products of matrices of single and double precision, divided among the threads of the core.
 *
 * A BLAS has threads of its own. They look for work for a while after each product, on the processors on which the
 * core's threads are to work meanwhile, and share out products of a few hundred rows badly. So where there are several
 * threads, products are computed here. The result is divided into blocks, and each block is computed from beginning to
 * end by one thread. Which blocks there are depends on the number of threads, but no number in them does: sums are taken
 * in an order that follows from the shape alone.
 */
#define FUSED_PRODUCTS
#include "kernels/products.h"
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#define SMALL_PRODUCT (1 << 18) /* multiplications up to which a BLAS takes one thread by itself */
#define ELEMENTS_AT_ONCE 256 /* of the sums: what is packed of them stays in the cache */
#define ROWS_AT_ONCE 144     /* multiple of all numbers of rows of a tile */
#define MOST_COLUMNS 512     /* of a block */
#define ROOM_OF_TILES ((ROWS_AT_ONCE + 16) * ELEMENTS_AT_ONCE)
#define ROOM_OF_BLOCK (ROOM_OF_TILES + (MOST_COLUMNS + 64) * ELEMENTS_AT_ONCE) /* numbers */
#define FEW_LINES 48         /* of a block */
#define LONG_SUMS 1024       /* elements: so many are divided if there are few results */
#define FEW_RESULTS (1 << 16)

/* A factor: rows of the left one, columns of the right one are its lines. Distances are counted in numbers. */
typedef struct {
    const void *data;
    Py_ssize_t item, line, step; /* from one matrix, line, element of a line to the next */
} Factor;

typedef struct {
    Factor left, right;
    void *out, *sums;                     /* sums: those of the parts of all sums but the first */
    Py_ssize_t items, rows, columns, elements;
    Py_ssize_t step;                      /* from one row of the results to the next */
    Py_ssize_t parts;                     /* into which sums are divided */
    Py_ssize_t row_blocks, column_blocks; /* of a matrix */
    Py_ssize_t tile, panel;               /* rows and columns that are computed together */
    int is_wide, is_float;
    int failed;
} Product;

typedef struct {
    Py_ssize_t item, row, rows, column, columns;
    Py_ssize_t first, last; /* elements of the sums */
    void *out;
} Block;

#define REAL float
#include "loops/vectors.h"
#include "loops/turn.h"
#include "kernels/product_blocks.h"
#undef REAL
#define REAL double
#include "loops/vectors.h"
#include "loops/turn.h"
#include "kernels/product_blocks.h"
#undef REAL

/* ---- blocks */

/* Where part number k of `parts` of a length begins, in multiples of a unit. */
static Py_ssize_t
beginning(Py_ssize_t length, Py_ssize_t unit, Py_ssize_t k, Py_ssize_t parts)
{
    Py_ssize_t units = (length + unit - 1) / unit, start = units * k / parts * unit;
    return start < length ? start : length;
}

static Block
block_of(const Product *given, Py_ssize_t number)
{
    Py_ssize_t column = number % given->column_blocks, row = number / given->column_blocks % given->row_blocks;
    Py_ssize_t part = number / given->column_blocks / given->row_blocks % given->parts;
    Block block = {.item = number / given->column_blocks / given->row_blocks / given->parts};
    block.row = beginning(given->rows, given->tile, row, given->row_blocks);
    block.rows = beginning(given->rows, given->tile, row + 1, given->row_blocks) - block.row;
    block.column = beginning(given->columns, given->panel, column, given->column_blocks);
    block.columns = beginning(given->columns, given->panel, column + 1, given->column_blocks) - block.column;
    block.first = beginning(given->elements, ELEMENTS_AT_ONCE, part, given->parts);
    block.last = beginning(given->elements, ELEMENTS_AT_ONCE, part + 1, given->parts);
    Py_ssize_t all = given->rows * given->columns, place = block.row * given->step + block.column;
    place += part == 0 ? block.item * all : (block.item * (given->parts - 1) + part - 1) * all;
    block.out = (char *)(part == 0 ? given->out : given->sums) +
                place * (given->is_float ? sizeof(float) : sizeof(double));
    return block;
}

static void
compute_blocks(void *context, Py_ssize_t first, Py_ssize_t last)
{
    Product *given = context;
    void *room = borrow(ROOM_OF_BLOCK * (given->is_float ? sizeof(float) : sizeof(double)));
    if (room == NULL) {
        given->failed = 1;
        return;
    }
    for (Py_ssize_t number = first; number < last; number++) {
        Block block = block_of(given, number);
        (given->is_float ? compute_block_float : compute_block_double)(given, &block, room);
    }
    give_back(room);
}

/* ---- sums that were divided */

#define ADD_PARTS(REAL)                                                                             \
    CLONES static void add_parts_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)           \
    {                                                                                               \
        const Product *given = context;                                                             \
        Py_ssize_t all = given->rows * given->columns;                                              \
        for (Py_ssize_t row = first; row < last; row++) {                                           \
            REAL *restrict to = (REAL *)given->out + row * given->columns;                          \
            const REAL *restrict from = (const REAL *)given->sums +                                 \
                row / given->rows * (given->parts - 1) * all + row % given->rows * given->columns;  \
            for (Py_ssize_t part = 1; part < given->parts; part++, from += all) {                   \
                for (Py_ssize_t k = 0; k < given->columns; k++) {                                   \
                    to[k] += from[k];                                                               \
                }                                                                                   \
            }                                                                                       \
        }                                                                                           \
    }

ADD_PARTS(float)
ADD_PARTS(double)

/* ---- the plan */

static void
choose_tiles(Product *given)
{
    given->tile = 6;
    given->panel = 2 * 32 / (given->is_float ? sizeof(float) : sizeof(double));
#ifdef WIDE_VECTORS
    given->is_wide = __builtin_cpu_supports("x86-64-v4");
    if (given->is_wide) {
        given->tile = 12;
        given->panel *= 2;
    }
#endif
}

/* Divide sums, if they are long and there are few of them. */
static void
choose_parts(Product *given)
{
    Py_ssize_t results = given->items * given->rows * given->columns, most = given->elements / (LONG_SUMS / 2);
    given->parts = 1;
    if (given->elements >= LONG_SUMS && results < FEW_RESULTS) {
        Py_ssize_t wanted = FEW_RESULTS / results + 1;
        given->parts = wanted < most ? wanted : most;
        given->parts = given->parts < 32 ? given->parts : 32;
    }
}

/* Divide results until there are enough blocks, or they become too small to be worth being packed. */
static void
choose_blocks(Product *given, int threads)
{
    Py_ssize_t wanted = threads > 1 ? 3 * threads : 1;
    given->row_blocks = 1;
    given->column_blocks = (given->columns + MOST_COLUMNS - 1) / MOST_COLUMNS;
    while (given->items * given->parts * given->row_blocks * given->column_blocks < wanted) {
        Py_ssize_t rows = given->rows / given->row_blocks, columns = given->columns / given->column_blocks;
        if (rows >= columns && rows >= 2 * FEW_LINES) {
            given->row_blocks *= 2;
        }
        else if (columns >= 2 * FEW_LINES && columns >= 2 * given->panel) {
            given->column_blocks *= 2;
        }
        else if (rows >= 2 * FEW_LINES) {
            given->row_blocks *= 2;
        }
        else {
            return;
        }
    }
}

static int
compute_product(Product *given)
{
    Py_ssize_t results = given->items * given->rows * given->columns, item = given->is_float ? sizeof(float) : sizeof(double);
    double nanoseconds = (double)results * given->elements * (given->is_float ? 0.02 : 0.04);
    choose_tiles(given);
    choose_parts(given);
    choose_blocks(given, threads_now());
    given->sums = given->parts > 1 ? borrow((given->parts - 1) * results * item) : NULL;
    if (given->parts > 1 && given->sums == NULL) {
        return 0;
    }
    divide(compute_blocks, given, given->items * given->parts * given->row_blocks * given->column_blocks, nanoseconds);
    if (given->parts > 1) {
        divide(given->is_float ? add_parts_float : add_parts_double, given, given->items * given->rows,
               0.2 * results * given->parts);
        give_back(given->sums);
    }
    return !given->failed;
}

/* ---- reading the arguments */

static int
read_factor(Factor *factor, PyArrayObject *array, int type, Py_ssize_t items, int of_lines)
{
    int ndim = PyArray_NDIM(array);
    npy_intp size = PyArray_ITEMSIZE(array);
    if (PyArray_TYPE(array) != type || !PyArray_ISALIGNED(array) || !PyArray_ISNOTSWAPPED(array) || ndim < 2 || ndim > 3 ||
        (ndim == 3 && PyArray_DIM(array, 0) != items && PyArray_DIM(array, 0) != 1)) {
        return 0;
    }
    for (int d = 0; d < ndim; d++) {
        if (PyArray_STRIDE(array, d) % size != 0) {
            return 0;
        }
    }
    factor->data = PyArray_DATA(array);
    factor->item = ndim == 3 && PyArray_DIM(array, 0) > 1 ? PyArray_STRIDE(array, 0) / size : 0;
    factor->line = PyArray_STRIDE(array, ndim - 2 + of_lines) / size;
    factor->step = PyArray_STRIDE(array, ndim - 1 - of_lines) / size;
    return 1;
}

int
product_in_threads(PyArrayObject *left, PyArrayObject *right, PyArrayObject *out)
{
    int ndim = PyArray_NDIM(out), type = PyArray_TYPE(out), done;
    Product given = {.is_float = type == NPY_FLOAT, .items = ndim == 3 ? PyArray_DIM(out, 0) : 1};
    if (threads_now() < 2 || ndim < 2 || ndim > 3 || (type != NPY_FLOAT && type != NPY_DOUBLE) || !PyArray_ISWRITEABLE(out) ||
        !read_factor(&given.left, left, type, given.items, 0) || !read_factor(&given.right, right, type, given.items, 1)) {
        return 0;
    }
    given.out = PyArray_DATA(out);
    given.rows = PyArray_DIM(out, ndim - 2);
    given.columns = given.step = PyArray_DIM(out, ndim - 1);
    given.elements = PyArray_DIM(left, PyArray_NDIM(left) - 1);
    if (PyArray_DIM(left, PyArray_NDIM(left) - 2) != given.rows || PyArray_DIM(right, PyArray_NDIM(right) - 1) != given.columns ||
        PyArray_DIM(right, PyArray_NDIM(right) - 2) != given.elements || PyArray_SIZE(out) * given.elements <= SMALL_PRODUCT) {
        return 0;
    }
    WORK(PyArray_SIZE(out), done = compute_product(&given));
    return done;
}

/* matrix_product(left, right, out) -> whether the product of two matrices, or of stacks of them, is in `out`, which is no
 * part of them */
PyObject *
matrix_product(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3 || !PyArray_CheckExact(arguments[0]) || !PyArray_CheckExact(arguments[1]) || !is_plain(arguments[2])) {
        Py_RETURN_NONE;
    }
    return PyBool_FromLong(product_in_threads((PyArrayObject *)arguments[0], (PyArrayObject *)arguments[1],
                                              (PyArrayObject *)arguments[2]));
}
