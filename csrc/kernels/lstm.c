/* One step of an LSTM between the products of matrices, and its gradient. Gates are in the order of PyTorch: input,
 * forget, cell, output. The input of those that are sigmoids comes halved.
 */
#include "kernels/kernels.h"
#include "loops/tanh_sigmoid.h"

/* arrays of one step: `gates` has four blocks of `size`, the others one */
typedef struct {
    Py_ssize_t size;
    void *gates, *next_cell, *tanh_cell, *hidden; /* written by a step */
    const void *cell;                             /* before the step */
    void *d_gates, *d_hidden, *d_cell;            /* written by its gradient; d_hidden is only read */
} Step;

#define STEPS(REAL)                                                                                       \
    INLINE void sigmoids_##REAL(REAL *x, Py_ssize_t count)                                                \
    {                                                                                                     \
        for (Py_ssize_t k = 0; k < count; k++) {                                                          \
            x[k] = sigmoid_of_twice_##REAL(x[k]);                                                         \
        }                                                                                                 \
    }                                                                                                     \
    INLINE void tanhs_##REAL(const REAL *x, REAL *out, Py_ssize_t count)                                  \
    {                                                                                                     \
        for (Py_ssize_t k = 0; k < count; k++) {                                                          \
            out[k] = decayed_tanh_##REAL(x[k]);                                                                   \
        }                                                                                                 \
    }                                                                                                     \
    CLONES static void step_##REAL(const Step *given)                                                     \
    {                                                                                                     \
        Py_ssize_t size = given->size;                                                                    \
        REAL *gates = given->gates, *restrict c = given->next_cell, *restrict h = given->hidden;          \
        const REAL *start = given->cell, *t = given->tanh_cell;                                           \
        const REAL *i = gates, *f = gates + size, *g = gates + 2 * size, *o = gates + 3 * size;           \
        sigmoids_##REAL(gates, 2 * size);                                                                 \
        tanhs_##REAL(g, gates + 2 * size, size);                                                          \
        sigmoids_##REAL(gates + 3 * size, size);                                                          \
        for (Py_ssize_t k = 0; k < size; k++) {                                                           \
            c[k] = f[k] * start[k] + i[k] * g[k];                                                         \
        }                                                                                                 \
        tanhs_##REAL(c, given->tanh_cell, size);                                                          \
        for (Py_ssize_t k = 0; k < size; k++) {                                                           \
            h[k] = o[k] * t[k];                                                                           \
        }                                                                                                 \
    }                                                                                                     \
    CLONES static void gradient_##REAL(const Step *given)                                                 \
    {                                                                                                     \
        Py_ssize_t size = given->size;                                                                    \
        const REAL *i = given->gates, *f = i + size, *g = f + size, *o = g + size;                        \
        const REAL *start = given->cell, *t = given->tanh_cell, *dh = given->d_hidden;                    \
        REAL *restrict d = given->d_gates, *restrict dc = given->d_cell;                                  \
        for (Py_ssize_t k = 0; k < size; k++) {                                                           \
            dc[k] += dh[k] * o[k] * (1 - t[k] * t[k]);                                                    \
        }                                                                                                 \
        for (Py_ssize_t k = 0; k < size; k++) {                                                           \
            d[k] = dc[k] * g[k] * i[k] * (1 - i[k]);                                                      \
        }                                                                                                 \
        for (Py_ssize_t k = 0; k < size; k++) {                                                           \
            d[size + k] = dc[k] * start[k] * f[k] * (1 - f[k]);                                           \
        }                                                                                                 \
        for (Py_ssize_t k = 0; k < size; k++) {                                                           \
            d[2 * size + k] = dc[k] * i[k] * (1 - g[k] * g[k]);                                           \
        }                                                                                                 \
        for (Py_ssize_t k = 0; k < size; k++) {                                                           \
            d[3 * size + k] = dh[k] * t[k] * o[k] * (1 - o[k]);                                           \
        }                                                                                                 \
        for (Py_ssize_t k = 0; k < size; k++) {                                                           \
            dc[k] *= f[k];                                                                                \
        }                                                                                                 \
    }

STEPS(float)
STEPS(double)

/* Whether these are arrays for a step: `gates` with four times the elements of each of the others. */
static int
are_of_a_step(PyObject *const *arrays, Py_ssize_t gates, Py_ssize_t others)
{
    if (!is_plain(arrays[0])) {
        return 0;
    }
    PyArrayObject *first = (PyArrayObject *)arrays[0];
    Py_ssize_t size = PyArray_SIZE(first) / 4;
    for (Py_ssize_t k = 0; k < gates + others; k++) {
        if (arrays[k] == Py_None || !is_alike(arrays[k], first, k < gates ? 4 * size : size)) {
            return 0;
        }
    }
    return 1;
}

/* lstm_step(gates, cell, next_cell, tanh_cell, hidden): the first is changed, the last three are filled. */
PyObject *
lstm_step(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 5 || !are_of_a_step(arguments, 1, 4)) {
        Py_RETURN_NONE;
    }
    Step given = {
        .size = PyArray_SIZE((PyArrayObject *)arguments[1]), .gates = data_of(arguments[0]),
        .cell = data_of(arguments[1]), .next_cell = data_of(arguments[2]), .tanh_cell = data_of(arguments[3]),
        .hidden = data_of(arguments[4])};
    WORK(4 * given.size, (PyArray_TYPE((PyArrayObject *)arguments[0]) == NPY_FLOAT ? step_float : step_double)(&given));
    Py_RETURN_TRUE;
}

/* lstm_step_gradient(gates, d_gates, cell, tanh_cell, d_hidden, d_cell): d_gates is filled, d_cell becomes that of the
 * step before. */
PyObject *
lstm_step_gradient(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 6 || !are_of_a_step(arguments, 2, 4)) {
        Py_RETURN_NONE;
    }
    Step given = {
        .size = PyArray_SIZE((PyArrayObject *)arguments[2]), .gates = data_of(arguments[0]),
        .d_gates = data_of(arguments[1]), .cell = data_of(arguments[2]), .tanh_cell = data_of(arguments[3]),
        .d_hidden = data_of(arguments[4]), .d_cell = data_of(arguments[5])};
    WORK(4 * given.size,
         (PyArray_TYPE((PyArrayObject *)arguments[0]) == NPY_FLOAT ? gradient_float : gradient_double)(&given));
    Py_RETURN_TRUE;
}
