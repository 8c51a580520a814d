/* The states of connectionist temporal classification, step by step, and the gradients (ops/network/ctc.py). A state is
 * reached from itself, from the one before it, or, where it is said that one may jump, from the one before that.
 */
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/exp.h"
#include "loops/log_sincos.h"
#include "loops/threads.h"

#include <float.h>

#define IMPOSSIBLE -1e30 /* as in ops/network/ctc.py */
#define AHEAD 2          /* places before the first state, which nothing is reached from */

typedef struct {
    const void *start, *emissions, *states, *g;
    const npy_bool *jumps; /* whether each state of each example may be reached by one */
    const npy_int64 *running; /* steps of each example */
    void *out, *of_start, *of_emissions, *room;
    Py_ssize_t steps, examples, width;
} Lattice;

#define EXP_float decay_float
#define EXP_double decay_double
#define LOG_float log_of_normal
#define LOG_double log
#define LEAST_float -FLT_MAX
#define LEAST_double -DBL_MAX

#define LOOPS(REAL)                                                                                                 \
    /* the three ways to a state, less the most likely one; `before` has places ahead */                            \
    INLINE REAL ways_##REAL(const REAL *before, const REAL *jumps, Py_ssize_t k, REAL *stay, REAL *step, REAL *jump) \
    {                                                                                                               \
        REAL a = before[k + AHEAD], b = before[k + AHEAD - 1], c = before[k] + jumps[k], most = a > b ? a : b;      \
        most = most > c ? most : c;                                                                                 \
        most = most > LEAST_##REAL ? most : LEAST_##REAL; /* all may be -inf */                                     \
        *stay = EXP_##REAL(a - most);                                                                               \
        *step = EXP_##REAL(b - most);                                                                               \
        *jump = EXP_##REAL(c - most);                                                                               \
        return most;                                                                                                \
    }                                                                                                               \
    CLONES static void go_on_##REAL(const REAL *before, const REAL *restrict jumps, const REAL *restrict emission,  \
                                    REAL *restrict to, Py_ssize_t width)                                            \
    {                                                                                                               \
        for (Py_ssize_t k = 0; k < width; k++) {                                                                    \
            REAL stay, step, jump, most = ways_##REAL(before, jumps, k, &stay, &step, &jump);                       \
            REAL sum = stay + step + jump, log_of_sum = LOG_##REAL(sum);                                            \
            to[k] = most + (sum > 0 ? log_of_sum : (REAL)-INFINITY) + emission[k];                                                           \
        }                                                                                                           \
    }                                                                                                               \
    /* g of the states that were reached -> added to those before; shares: room for three rows */                   \
    CLONES static void go_back_##REAL(const REAL *before, const REAL *restrict jumps, const REAL *restrict g,       \
                                      REAL *restrict to, REAL *restrict shares, Py_ssize_t width)                   \
    {                                                                                                               \
        REAL *restrict steps = shares + width, *restrict leaps = steps + width;                                     \
        for (Py_ssize_t k = 0; k < width; k++) {                                                                    \
            REAL stay, step, jump;                                                                                  \
            ways_##REAL(before, jumps, k, &stay, &step, &jump);                                                     \
            REAL sum = stay + step + jump, share = g[k] / sum;                                                      \
            share = sum == 0 ? 0 : share; /* it was reached from nowhere */                                         \
            shares[k] = stay * share;                                                                               \
            steps[k] = step * share;                                                                                \
            leaps[k] = jump * share;                                                                                \
        }                                                                                                           \
        for (Py_ssize_t k = 0; k < width; k++) {                                                                    \
            to[k] += shares[k] + (k + 1 < width ? steps[k + 1] : 0) + (k + 2 < width ? leaps[k + 2] : 0);           \
        }                                                                                                           \
    }                                                                                                               \
    static REAL *padded_##REAL(const Lattice *l, Py_ssize_t example, Py_ssize_t rows)                               \
    {                                                                                                               \
        REAL *room = (REAL *)l->room + example * (AHEAD + rows * l->width);                                         \
        room[0] = room[1] = (REAL)IMPOSSIBLE;                                                                       \
        return room;                                                                                                \
    }                                                                                                               \
    /* what to add to a state before it is jumped from */                                                           \
    static const REAL *jumps_##REAL(const Lattice *l, Py_ssize_t example, REAL *room)                               \
    {                                                                                                               \
        for (Py_ssize_t k = 0; k < l->width; k++) {                                                                 \
            room[k] = l->jumps[example * l->width + k] ? 0 : (REAL)IMPOSSIBLE;                                      \
        }                                                                                                           \
        return room;                                                                                                \
    }                                                                                                               \
    static void forward_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                                    \
    {                                                                                                               \
        const Lattice *l = context;                                                                                 \
        Py_ssize_t width = l->width, all = l->examples * width;                                                     \
        for (Py_ssize_t n = first; n < last; n++) {                                                                 \
            REAL *before = padded_##REAL(l, n, 2), *to = (REAL *)l->out + n * width;                                \
            const REAL *jumps = jumps_##REAL(l, n, before + AHEAD + width);                                         \
            const REAL *emission = (const REAL *)l->emissions + n * width;                                          \
            memcpy(to, (const REAL *)l->start + n * width, width * sizeof(REAL));                                   \
            for (Py_ssize_t t = 1; t < l->steps; t++, to += all) {                                                  \
                memcpy(before + AHEAD, to, width * sizeof(REAL));                                                   \
                if (t < l->running[n]) {                                                                            \
                    go_on_##REAL(before, jumps, emission + t * all, to + all, width);                               \
                }                                                                                                   \
                else {                                                                                              \
                    memcpy(to + all, to, width * sizeof(REAL));                                                     \
                }                                                                                                   \
            }                                                                                                       \
        }                                                                                                           \
        forget_exceptions();                                                                                        \
    }                                                                                                               \
    static void backward_##REAL(void *context, Py_ssize_t first, Py_ssize_t last)                                   \
    {                                                                                                               \
        const Lattice *l = context;                                                                                 \
        Py_ssize_t width = l->width, all = l->examples * width, bytes = width * sizeof(REAL);                       \
        for (Py_ssize_t n = first; n < last; n++) {                                                                 \
            REAL *before = padded_##REAL(l, n, 6), *g = before + AHEAD + width, *shares = g + width;                \
            const REAL *jumps = jumps_##REAL(l, n, shares + 3 * width);                                              \
            memcpy(g, (const REAL *)l->g + (l->steps - 1) * all + n * width, bytes);                                \
            for (Py_ssize_t t = l->steps - 1; t > 0; t--) {                                                         \
                REAL *of_emission = (REAL *)l->of_emissions + t * all + n * width;                                  \
                const REAL *own = (const REAL *)l->g + (t - 1) * all + n * width;                                   \
                if (t < l->running[n]) {                                                                            \
                    memcpy(before + AHEAD, (const REAL *)l->states + (t - 1) * all + n * width, bytes);             \
                    memcpy(of_emission, g, bytes);                                                                  \
                    memset(g, 0, bytes);                                                                            \
                    go_back_##REAL(before, jumps, of_emission, g, shares, width);                                   \
                }                                                                                                   \
                else {                                                                                              \
                    memset(of_emission, 0, bytes);                                                                  \
                }                                                                                                   \
                for (Py_ssize_t k = 0; k < width; k++) {                                                            \
                    g[k] += own[k];                                                                                 \
                }                                                                                                   \
            }                                                                                                       \
            memset((REAL *)l->of_emissions + n * width, 0, bytes);                                                  \
            memcpy((REAL *)l->of_start + n * width, g, bytes);                                                      \
        }                                                                                                           \
        forget_exceptions();                                                                                        \
    }

LOOPS(float)
LOOPS(double)

static int
is_like(PyObject *object, PyArrayObject *emissions, int first)
{
    PyArrayObject *array = (PyArrayObject *)object;
    return is_plain(object) && PyArray_TYPE(array) == PyArray_TYPE(emissions) &&
           PyArray_NDIM(array) == 3 - first &&
           PyArray_CompareLists(PyArray_DIMS(array), PyArray_DIMS(emissions) + first, 3 - first);
}

/* (start, emissions, jumps, running); whether they are what the loops are made for */
static int
take_lattice(PyObject *const *arguments, Lattice *lattice)
{
    PyArrayObject *emissions = (PyArrayObject *)arguments[1], *jumps = (PyArrayObject *)arguments[2];
    PyArrayObject *running = (PyArrayObject *)arguments[3];
    if (!is_plain(arguments[1]) || PyArray_NDIM(emissions) != 3 || !is_like(arguments[0], emissions, 1) ||
        !PyArray_CheckExact(arguments[2]) || PyArray_TYPE(jumps) != NPY_BOOL || !PyArray_ISCARRAY_RO(jumps) ||
        PyArray_NDIM(jumps) != 2 || !PyArray_CompareLists(PyArray_DIMS(jumps), PyArray_DIMS(emissions) + 1, 2) ||
        !PyArray_CheckExact(arguments[3]) || PyArray_TYPE(running) != NPY_INT64 || !PyArray_ISCARRAY_RO(running) ||
        PyArray_SIZE(running) != PyArray_DIM(emissions, 1)) {
        return 0;
    }
    *lattice = (Lattice){.start = data_of(arguments[0]), .emissions = PyArray_DATA(emissions),
                         .jumps = PyArray_DATA(jumps), .running = PyArray_DATA(running),
                         .steps = PyArray_DIM(emissions, 0), .examples = PyArray_DIM(emissions, 1),
                         .width = PyArray_DIM(emissions, 2)};
    return 1;
}

/* Run a loop over the examples with room for that many rows each; 0 with an exception if there is no memory. */
static int
run_examples(Lattice *lattice, Share share, int rows, PyArrayObject *emissions)
{
    lattice->room = malloc(lattice->examples * (AHEAD + rows * lattice->width) * PyArray_ITEMSIZE(emissions));
    if (lattice->room == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    WORK(PyArray_SIZE(emissions), divide(share, lattice, lattice->examples,
                                         (PyArray_TYPE(emissions) == NPY_FLOAT ? 5.0 : 20.0) * PyArray_SIZE(emissions)));
    free(lattice->room);
    return 1;
}

/* ctc_states(start, emissions, jumps, running) -> the states of all steps */
PyObject *
ctc_states(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Lattice lattice;
    if (count != 4 || !take_lattice(arguments, &lattice)) {
        Py_RETURN_NONE;
    }
    PyArrayObject *emissions = (PyArrayObject *)arguments[1];
    PyObject *out = new_like(emissions);
    if (out != NULL) {
        lattice.out = data_of(out);
        if (!run_examples(&lattice, PyArray_TYPE(emissions) == NPY_FLOAT ? forward_float : forward_double, 2, emissions)) {
            Py_CLEAR(out);
        }
    }
    return out;
}

/* ctc_gradients(start, emissions, jumps, running, states, g) -> the gradients of start and emissions */
PyObject *
ctc_gradients(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Lattice lattice;
    if (count != 6 || !take_lattice(arguments, &lattice)) {
        Py_RETURN_NONE;
    }
    PyArrayObject *emissions = (PyArrayObject *)arguments[1];
    if (!is_like(arguments[4], emissions, 0) || !is_like(arguments[5], emissions, 0)) {
        Py_RETURN_NONE;
    }
    lattice.states = data_of(arguments[4]);
    lattice.g = data_of(arguments[5]);
    PyObject *of_start = new_like((PyArrayObject *)arguments[0]), *of_emissions = new_like(emissions), *both = NULL;
    if (of_start != NULL && of_emissions != NULL) {
        lattice.of_start = data_of(of_start);
        lattice.of_emissions = data_of(of_emissions);
        Share share = PyArray_TYPE(emissions) == NPY_FLOAT ? backward_float : backward_double;
        if (run_examples(&lattice, share, 6, emissions)) {
            both = PyTuple_Pack(2, of_start, of_emissions);
        }
    }
    Py_XDECREF(of_start);
    Py_XDECREF(of_emissions);
    return both;
}
