/* Products of matrices of single and double precision, divided among the threads of the core.
 *
 * A BLAS has threads of its own. They look for work for a while after each product, on the processors on which the
 * core's threads are to work meanwhile, and share out products of a few hundred rows badly. So where there are several
 * threads, products are computed here, and also with one on processors of AMD that have vectors of 64 bytes: there a BLAS
 * uses those of 32 bytes. First the factors are packed, for as many elements of the sums as there is room for; then the result is divided into
 * blocks, each of which one thread computes. Which blocks there are and how much is packed at once depends on the number of
 * threads, but no number in the result does: sums are taken in an order that follows from the shape alone.
 */
#define FUSED_PRODUCTS
#include "kernels/products.h"
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

#define ELEMENTS_AT_ONCE 256 /* of the sums: what is packed of them stays in the cache */
#define ROWS_AT_ONCE 144     /* multiple of all numbers of rows of a tile */
#define MOST_LINES 2048       /* rows or columns, of one thread: what is packed of them is read again soon */
#define MOST_PACKED (1 << 18) /* numbers, likewise, if the elements of the sums can be divided */
#define MORE 4                /* times as much of both for several threads, which wait for each other after each turn */
#define FEW_LINES 48         /* of a block */
#define LONG_SUMS 1024       /* elements: so many are divided if there are few results */
#define FEW_RESULTS (1 << 16)

/* Multiplications beyond which products of all shapes are computed here, if there are several threads. */
static Py_ssize_t small_product = 1 << 23;
#define ONE_THREAD_OF_BLAS (1 << 18) /* multiplications that a BLAS does not divide among its threads */
#define WORTH_PACKING 20 /* multiplications for each number of the factors */
#define WORTH_IF_FEW 8   /* the same, if one thread of a BLAS would do them, or several would have to meet */

#ifdef WIDE_VECTORS
#define HAS_WIDE_VECTORS __builtin_cpu_supports("x86-64-v4")
#define IS_AHEAD_OF_BLAS (HAS_WIDE_VECTORS && __builtin_cpu_is("amd"))
#else
#define HAS_WIDE_VECTORS 0
#define IS_AHEAD_OF_BLAS 0
#endif

/* set_small_product(multiplications), for tests; returns what it was before */
PyObject *
set_small_product(PyObject *module, PyObject *wanted)
{
    Py_ssize_t before = small_product, number = PyLong_AsSsize_t(wanted);
    if (number == -1 && PyErr_Occurred()) {
        return NULL;
    }
    small_product = number;
    return PyLong_FromSsize_t(before);
}

/* is_ahead_of_blas(), for tests: whether products are computed here with one thread, too */
PyObject *
is_ahead_of_blas(PyObject *module, PyObject *nothing)
{
    return PyBool_FromLong(IS_AHEAD_OF_BLAS);
}

/* A factor: rows of the left one, columns of the right one are its lines. Distances are counted in numbers. */
typedef struct {
    const void *data;
    Py_ssize_t item, line, step; /* from one matrix, line, element of a line to the next */
    Py_ssize_t lines, width;     /* of a matrix; of a tile or panel */
    int may_halve;               /* whether its last group may be half as wide */
    void *packed;
    Py_ssize_t padded, groups, room; /* lines of all groups; how many groups; numbers of a packed matrix */
} Factor;

typedef struct {
    Factor left, right;
    void *out, *sums;                     /* sums: those of the parts of all sums but the first */
    Py_ssize_t items, rows, columns, elements;
    Py_ssize_t step;                      /* from one row of the results to the next */
    Py_ssize_t parts;                     /* into which sums are divided */
    Py_ssize_t row_blocks, column_blocks; /* of a matrix */
    Py_ssize_t start, stop;               /* elements of the sums that are packed */
    int is_wide, is_float;
} Product;

typedef struct {
    Py_ssize_t item, row, rows, column, columns;
    Py_ssize_t part; /* of the sums: every so many times ELEMENTS_AT_ONCE */
    void *out;
    Py_ssize_t step; /* from one row of it to the next */
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
    Block block = {.item = number / given->column_blocks / given->row_blocks / given->parts, .part = part};
    block.row = beginning(given->rows, given->left.width, row, given->row_blocks);
    block.rows = beginning(given->rows, given->left.width, row + 1, given->row_blocks) - block.row;
    block.column = beginning(given->columns, given->right.width, column, given->column_blocks);
    block.columns = beginning(given->columns, given->right.width, column + 1, given->column_blocks) - block.column;
    block.step = part == 0 ? given->step : given->columns;
    Py_ssize_t all = given->rows * given->columns, place = block.row * block.step + block.column;
    place += part == 0 ? block.item * all : (block.item * (given->parts - 1) + part - 1) * all;
    block.out = (char *)(part == 0 ? given->out : given->sums) +
                place * (given->is_float ? sizeof(float) : sizeof(double));
    return block;
}

static void
compute_blocks(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Product *given = context;
    for (Py_ssize_t number = first; number < last; number++) {
        Block block = block_of(given, number);
        (given->is_float ? compute_block_float : compute_block_double)(given, &block, given->start);
    }
}

/* tiles and panels, numbered from `first` to before `last`, of all matrices */
static void
pack_groups(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Product *given = context;
    Py_ssize_t all = given->left.groups + given->right.groups;
    for (Py_ssize_t number = first; number < last; number++) {
        Py_ssize_t item = number / all, group = number % all;
        const Factor *factor = group < given->left.groups ? &given->left : &given->right;
        group -= group < given->left.groups ? 0 : given->left.groups;
        (given->is_float ? pack_group_float : pack_group_double)(factor, item, group, given->start, given->stop);
    }
}

/* ---- sums that were divided */

#define ADD_PARTS(REAL)                                                                             \
    CLONES static void add_parts_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)           \
    {                                                                                               \
        const Product *given = context;                                                             \
        Py_ssize_t all = given->rows * given->columns;                                              \
        for (Py_ssize_t row = first; row < last; row++) {                                           \
            REAL *restrict to = (REAL *)given->out + row * given->step;                             \
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
choose_widths(Product *given)
{
    given->left.width = 6;
    given->right.width = 2 * 32 / (given->is_float ? sizeof(float) : sizeof(double));
    given->is_wide = HAS_WIDE_VECTORS;
    if (given->is_wide) {
        given->left.width = 12;
        given->right.width *= 2;
    }
    given->right.may_halve = 1;
    given->left.lines = given->rows;
    given->right.lines = given->columns;
}

/* Returns the numbers of all packed matrices for so many elements of the sums. */
static Py_ssize_t
plan_packing(Product *given, Py_ssize_t elements)
{
    Factor *factors[2] = {&given->left, &given->right};
    for (int k = 0; k < 2; k++) {
        Factor *factor = factors[k];
        factor->groups = (factor->lines + factor->width - 1) / factor->width;
        factor->padded = factor->groups * factor->width;
        factor->room = factor->padded * elements + 16; /* what is turned may reach behind its end */
    }
    return given->items * (given->left.room + given->right.room);
}

/* How many elements of the sums are packed at once. */
static Py_ssize_t
elements_at_once(Product *given)
{
    Py_ssize_t of_one = given->items * (given->rows + given->columns);
    Py_ssize_t most = MOST_PACKED * (threads_now() > 1 ? MORE : 1) / of_one;
    most = most / ELEMENTS_AT_ONCE * ELEMENTS_AT_ONCE;
    most = most < ELEMENTS_AT_ONCE ? ELEMENTS_AT_ONCE : most;
    return most < given->elements ? most : given->elements;
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

/* Divide results until there are enough blocks, or they become too small. */
static void
choose_blocks(Product *given, int threads)
{
    Py_ssize_t wanted = threads > 1 ? 3 * threads : 1;
    given->row_blocks = 1;
    given->column_blocks = 1;
    while (given->items * given->parts * given->row_blocks * given->column_blocks < wanted) {
        Py_ssize_t rows = given->rows / given->row_blocks, columns = given->columns / given->column_blocks;
        if (rows >= columns && rows >= 2 * FEW_LINES) {
            given->row_blocks *= 2;
        }
        else if (columns >= 2 * FEW_LINES && columns >= 2 * given->right.width) {
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

/* Compute it, some elements of the sums after the others. */
static void
add_all_elements(Product *given, Py_ssize_t at_once, double nanoseconds)
{
    Py_ssize_t blocks = given->items * given->parts * given->row_blocks * given->column_blocks;
    Py_ssize_t groups = given->items * (given->left.groups + given->right.groups);
    for (given->start = 0; given->start < given->elements; given->start = given->stop) {
        given->stop = given->start + at_once < given->elements ? given->start + at_once : given->elements;
        double share = (double)(given->stop - given->start) / given->elements;
        double packed = (double)given->items * (given->left.padded + given->right.padded) * (given->stop - given->start);
        divide(pack_groups, given, groups, 0.15 * packed);
        divide(compute_blocks, given, blocks, nanoseconds * share);
    }
}

/* 0 if there is not enough memory */
static int
compute_product(Product *given)
{
    Py_ssize_t results = given->items * given->rows * given->columns, item = given->is_float ? sizeof(float) : sizeof(double);
    choose_widths(given);
    choose_blocks(given, threads_now());
    Py_ssize_t at_once = elements_at_once(given), packed = plan_packing(given, at_once);
    char *room = borrow((packed + (given->parts - 1) * results) * item);
    if (room == NULL) {
        return 0;
    }
    given->left.packed = room;
    given->right.packed = room + given->items * given->left.room * item;
    given->sums = room + packed * item;
    add_all_elements(given, at_once, (double)results * given->elements * (given->is_float ? 0.04 : 0.08));
    if (given->parts > 1) {
        divide(given->is_float ? add_parts_float : add_parts_double, given, given->items * given->rows,
               0.2 * results * given->parts);
    }
    give_back(room);
    return 1;
}

static Py_ssize_t
lesser(Py_ssize_t a, Py_ssize_t b)
{
    return a < b ? a : b;
}

/* Compute it in slabs of so many matrices, rows and columns that what is packed of them stays small beside them. */
static int
compute_in_slabs(Product *all)
{
    Py_ssize_t size = all->is_float ? sizeof(float) : sizeof(double);
    Py_ssize_t lines = MOST_LINES * (threads_now() > 1 ? MORE : 1), items = lines / (all->rows + all->columns);
    items = items < 1 ? 1 : items;
    choose_parts(all);
    for (Py_ssize_t item = 0; item < all->items; item += items) {
        for (Py_ssize_t row = 0; row < all->rows; row += lines) {
            for (Py_ssize_t column = 0; column < all->columns; column += lines) {
                Product slab = *all;
                slab.items = lesser(items, all->items - item);
                slab.rows = lesser(lines, all->rows - row);
                slab.columns = lesser(lines, all->columns - column);
                slab.left.data = (const char *)all->left.data + (item * all->left.item + row * all->left.line) * size;
                slab.right.data = (const char *)all->right.data +
                                  (item * all->right.item + column * all->right.line) * size;
                slab.out = (char *)all->out + ((item * all->rows + row) * all->step + column) * size;
                if (!compute_product(&slab)) {
                    return 0;
                }
            }
        }
    }
    return 1;
}

/* ---- a left factor that is packed once, for many products */

/* Pack the groups of both factors that are counted, all elements of the sums at once. */
static void
pack_all(Product *given)
{
    Py_ssize_t groups = given->left.groups + given->right.groups;
    given->stop = given->elements;
    divide(pack_groups, given, groups, 0.15 * groups * given->left.width * given->elements);
}

static void
multiply_packed(Product *given)
{
    Py_ssize_t blocks = given->row_blocks * given->column_blocks;
    double multiplications = (double)given->rows * given->columns * given->elements;
    given->left.groups = 0; /* is packed */
    pack_all(given);
    divide(compute_blocks, given, blocks, multiplications * (given->is_float ? 0.04 : 0.08));
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

/* Whether it is computed sooner here than by a BLAS. Sums of nothing are not: no block of elements would write them. */
static int
is_worth_packing(const Product *given)
{
    if (given->elements == 0) {
        return 0;
    }
    double each = (double)given->rows * given->columns / (given->rows + given->columns);
    double all = (double)given->items * given->rows * given->columns * given->elements;
    if (threads_now() > 1 && all > ONE_THREAD_OF_BLAS) {
        return all > small_product || each >= WORTH_IF_FEW;
    }
    return IS_AHEAD_OF_BLAS && each >= (all > ONE_THREAD_OF_BLAS ? WORTH_PACKING : WORTH_IF_FEW);
}

int
own_product(PyArrayObject *left, PyArrayObject *right, PyArrayObject *out)
{
    int ndim = PyArray_NDIM(out), type = PyArray_TYPE(out), done;
    Product given = {.is_float = type == NPY_FLOAT, .items = ndim == 3 ? PyArray_DIM(out, 0) : 1};
    if (ndim < 2 || ndim > 3 || (type != NPY_FLOAT && type != NPY_DOUBLE) || !PyArray_ISWRITEABLE(out) ||
        !read_factor(&given.left, left, type, given.items, 0) || !read_factor(&given.right, right, type, given.items, 1)) {
        return 0;
    }
    given.out = PyArray_DATA(out);
    given.rows = PyArray_DIM(out, ndim - 2);
    given.columns = given.step = PyArray_DIM(out, ndim - 1);
    given.elements = PyArray_DIM(left, PyArray_NDIM(left) - 1);
    if (PyArray_DIM(left, PyArray_NDIM(left) - 2) != given.rows || PyArray_DIM(right, PyArray_NDIM(right) - 1) != given.columns ||
        PyArray_DIM(right, PyArray_NDIM(right) - 2) != given.elements || !is_worth_packing(&given)) {
        return 0;
    }
    WORK(PyArray_SIZE(out), done = compute_in_slabs(&given));
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
    return PyBool_FromLong(own_product((PyArrayObject *)arguments[0], (PyArrayObject *)arguments[1],
                                       (PyArrayObject *)arguments[2]));
}

/* packed_rows(left) -> what packed_product takes as its left factor, whatever the order of that in memory. None if it is no
 * matrix of float or double, or empty. */
PyObject *
packed_rows(PyObject *module, PyObject *left)
{
    PyArrayObject *matrix = (PyArrayObject *)left;
    if (!PyArray_CheckExact(left) || PyArray_NDIM(matrix) != 2 || PyArray_SIZE(matrix) == 0 ||
        (PyArray_TYPE(matrix) != NPY_FLOAT && PyArray_TYPE(matrix) != NPY_DOUBLE)) {
        Py_RETURN_NONE;
    }
    Product given = {.is_float = PyArray_TYPE(matrix) == NPY_FLOAT, .items = 1, .rows = PyArray_DIM(matrix, 0),
                     .elements = PyArray_DIM(matrix, 1)};
    if (!read_factor(&given.left, matrix, PyArray_TYPE(matrix), 1, 0)) {
        Py_RETURN_NONE;
    }
    choose_widths(&given);
    plan_packing(&given, given.elements);
    PyObject *packed = PyArray_SimpleNew(1, &given.left.room, PyArray_TYPE(matrix));
    if (packed != NULL) {
        given.left.packed = PyArray_DATA((PyArrayObject *)packed);
        WORK(given.left.room, pack_all(&given));
    }
    return packed;
}

/* packed_product(packed, right, out) -> True: the product is in `out`. None if these are no plain matrices that fit. */
PyObject *
packed_product(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3 || !is_plain(arguments[0]) || !is_plain(arguments[1]) || !is_plain(arguments[2])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *packed = (PyArrayObject *)arguments[0], *right = (PyArrayObject *)arguments[1];
    PyArrayObject *out = (PyArrayObject *)arguments[2];
    int type = PyArray_TYPE(out);
    if (PyArray_TYPE(packed) != type || PyArray_TYPE(right) != type || !PyArray_ISWRITEABLE(out) || PyArray_NDIM(right) != 2 ||
        PyArray_NDIM(out) != 2 || PyArray_DIM(right, 1) != PyArray_DIM(out, 1)) {
        Py_RETURN_NONE;
    }
    Product given = {.is_float = type == NPY_FLOAT, .items = 1, .parts = 1, .out = PyArray_DATA(out),
                     .rows = PyArray_DIM(out, 0), .columns = PyArray_DIM(out, 1), .step = PyArray_DIM(out, 1),
                     .elements = PyArray_DIM(right, 0)};
    choose_widths(&given);
    choose_blocks(&given, threads_now());
    plan_packing(&given, given.elements);
    read_factor(&given.right, right, type, 1, 1);
    void *room = PyArray_SIZE(packed) == given.left.room ? borrow(given.right.room * PyArray_ITEMSIZE(out)) : NULL;
    if (room == NULL) {
        Py_RETURN_NONE;
    }
    given.left.packed = PyArray_DATA(packed);
    given.right.packed = room;
    WORK(PyArray_SIZE(out), multiply_packed(&given));
    give_back(room);
    Py_RETURN_TRUE;
}
