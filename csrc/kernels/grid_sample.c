/* Images looked up at the points of a grid, between their elements; and the gradients of both. */
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

enum { ZEROS, BORDER, REFLECTION }; /* what is outside: ops/network/grid_sample.py has them in this order */

typedef struct {
    const void *input, *grid, *g;
    void *out, *of_input, *of_grid;
    Py_ssize_t examples, channels, height, width, rows, columns; /* of images; of points */
    int padding, align_corners;
} Grid;

#define POINTS 64 /* that are looked up together */
#define FLOOR(x) (sizeof(REAL) == sizeof(float) ? (REAL)floorf((float)(x)) : (REAL)floor(x))

#define REAL float
#include "kernels/grid_sample_loops.h"
#undef REAL
#define REAL double
#include "kernels/grid_sample_loops.h"
#undef REAL

/* (input, grid, number of the padding, whether corners are aligned); whether they are what the loops are made for */
static int
take_grid(PyObject *const *arguments, Grid *grid)
{
    PyArrayObject *input = (PyArrayObject *)arguments[0], *points = (PyArrayObject *)arguments[1];
    if (!is_plain(arguments[0]) || !is_plain(arguments[1]) || PyArray_TYPE(input) != PyArray_TYPE(points) ||
        PyArray_NDIM(input) != 4 || PyArray_NDIM(points) != 4 || PyArray_DIM(points, 3) != 2 ||
        PyArray_DIM(input, 0) != PyArray_DIM(points, 0)) {
        return 0;
    }
    const npy_intp *sizes = PyArray_DIMS(input);
    *grid = (Grid){.input = PyArray_DATA(input), .grid = PyArray_DATA(points), .examples = sizes[0],
                   .channels = sizes[1], .height = sizes[2], .width = sizes[3], .rows = PyArray_DIM(points, 1),
                   .columns = PyArray_DIM(points, 2), .padding = (int)PyLong_AsLong(arguments[2]),
                   .align_corners = PyObject_IsTrue(arguments[3])};
    PyErr_Clear();
    return grid->padding >= ZEROS && grid->padding <= REFLECTION && sizes[2] * sizes[3] < INT32_MAX;
}

static double
nanoseconds(const Grid *grid)
{
    return (double)grid->examples * grid->rows * grid->columns * (8 + 4 * grid->channels);
}

/* grid_sample(input, grid, padding, align_corners): the elements between which each point lies, weighted */
PyObject *
grid_sample(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Grid grid;
    if (count != 4 || !take_grid(arguments, &grid)) {
        Py_RETURN_NONE;
    }
    npy_intp shape[] = {grid.examples, grid.channels, grid.rows, grid.columns};
    PyObject *out = new_array(4, shape, PyArray_TYPE((PyArrayObject *)arguments[0]));
    if (out != NULL) {
        grid.out = data_of(out);
        int is_single = PyArray_TYPE((PyArrayObject *)out) == NPY_FLOAT;
        WORK(PyArray_SIZE((PyArrayObject *)out), divide(is_single ? sample_rows_float : sample_rows_double, &grid,
                                                        grid.examples * grid.rows, nanoseconds(&grid)));
    }
    return out;
}

/* grid_sample_gradients(input, grid, padding, align_corners, g, needs): of input and grid, None where there is no need */
PyObject *
grid_sample_gradients(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Grid grid;
    if (count != 6 || !take_grid(arguments, &grid) || !PyTuple_Check(arguments[5]) ||
        PyTuple_GET_SIZE(arguments[5]) != 2 || !is_plain(arguments[4]) ||
        !is_alike(arguments[4], (PyArrayObject *)arguments[0],
                  grid.examples * grid.channels * grid.rows * grid.columns)) {
        Py_RETURN_NONE;
    }
    PyObject *found[2];
    for (int k = 0; k < 2; k++) {
        int is_needed = PyTuple_GET_ITEM(arguments[5], k) == Py_True;
        found[k] = is_needed ? new_like((PyArrayObject *)arguments[k]) : Py_NewRef(Py_None);
    }
    PyObject *both = found[0] == NULL || found[1] == NULL ? NULL : PyTuple_Pack(2, found[0], found[1]);
    if (both != NULL) {
        grid.g = data_of(arguments[4]);
        grid.of_input = data_of(found[0]);
        grid.of_grid = data_of(found[1]);
        if (grid.of_input != NULL) {
            memset(grid.of_input, 0, PyArray_NBYTES((PyArrayObject *)found[0]));
        }
        int is_single = PyArray_TYPE((PyArrayObject *)arguments[0]) == NPY_FLOAT;
        WORK(PyArray_SIZE((PyArrayObject *)arguments[4]),
             divide(is_single ? sample_slopes_float : sample_slopes_double, &grid, grid.examples,
                    2 * nanoseconds(&grid)));
    }
    Py_XDECREF(found[0]);
    Py_XDECREF(found[1]);
    return both;
}
