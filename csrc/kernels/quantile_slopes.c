/* How random numbers move with a parameter of their distribution while the probability below them stays. The sums are
 * those of ops/pointwise/special/quantile_slopes.py, for some numbers at a time: so many that they fill vectors, and so
 * few that one whose sum is long keeps few others waiting.
 */
#include "kernels/kernels.h"
#include "loops/threads.h"
#define FUSED_PRODUCTS
#include "kernels/digamma.h"

#ifdef HAS_FUNCTIONS

#define TOGETHER 32  /* numbers */
#define AT_ONCE 512  /* numbers of a share */
#define NOTHING 1e-17
#define FEW_TERMS 3
#define MOST_NODES 96

/* Up to three operands of `count` numbers each; points and weights of the integral. */
typedef struct {
    const double *operands[3];
    double *out;
    Py_ssize_t count;
    int nodes;
    double points[MOST_NODES], weights[MOST_NODES];
} Slopes;

CLONES static void
gamma_by_series(const double *alpha, const double *x, double *out)
{
    double term[TOGETHER], log[TOGETHER], psi[TOGETHER];
    for (int k = 0; k < TOGETHER; k++) {
        term[k] = x[k] / alpha[k];
        log[k] = log_double(x[k]);
        psi[k] = digamma_right(alpha[k] + 1);
        out[k] = 0;
    }
    for (int64_t n = 1, more = 1; more; n++) {
        more = n <= FEW_TERMS;
        for (int k = 0; k < TOGETHER; k++) {
            double change = term[k] * (log[k] - psi[k]), share = 1 / (alpha[k] + n);
            out[k] -= change;
            psi[k] += share;
            term[k] *= x[k] * share;
            more |= size_double(change) > NOTHING * size_double(out[k]);
        }
    }
}

CLONES static void
gamma_by_integral(const Slopes *given, const double *alpha, const double *x, double *out)
{
    double log[TOGETHER], width[TOGETHER];
    for (int k = 0; k < TOGETHER; k++) {
        width[k] = (x[k] < alpha[k] ? -1 : 1) / (size_double(x[k] - alpha[k]) + sqrt(x[k]));
        log[k] = log_double(x[k]) - digamma_right(alpha[k]);
        out[k] = 0;
    }
    for (int node = 0; node < given->nodes; node++) {
        double point = given->points[node], weight = given->weights[node];
        for (int k = 0; k < TOGETHER; k++) {
            double v = point * width[k];
            out[k] += weight * (log[k] + v) * exp_double(alpha[k] * v - x[k] * expm1_double(v));
        }
    }
    for (int k = 0; k < TOGETHER; k++) {
        out[k] *= x[k] * width[k];
    }
}

CLONES static void
beta_by_series(const double *x, const double *a, const double *b, double *out)
{
    double y[TOGETHER], c[TOGETHER], term[TOGETHER], psi[TOGETHER], left[TOGETHER];
    for (int k = 0; k < TOGETHER; k++) {
        int is_left = x[k] * (a[k] + b[k] + 2) <= a[k] + 1;
        left[k] = is_left ? 1 : 0;
        y[k] = is_left ? x[k] : 1 - x[k];
        c[k] = is_left ? a[k] : b[k];
        term[k] = x[k] * (1 - x[k]) / c[k];
        psi[k] = digamma_right(a[k] + b[k]) - digamma_right(a[k] + left[k]) + log_double(x[k]);
        out[k] = 0;
    }
    for (int64_t n = 0, more = 1; more; n++) {
        more = 0;
        for (int k = 0; k < TOGETHER; k++) {
            double change = term[k] * psi[k], both = a[k] + b[k] + n;
            out[k] += change;
            psi[k] += 1 / both - left[k] / (a[k] + n + 1);
            term[k] *= y[k] * both / (c[k] + 1 + n);
            more |= size_double(change) > NOTHING * size_double(out[k]);
        }
    }
    for (int k = 0; k < TOGETHER; k++) {
        out[k] = left[k] == 1 ? -out[k] : out[k];
    }
}

/* the numbers at these places, the first one again where there are no more */
static void
pick(const double *from, const Py_ssize_t *places, Py_ssize_t count, double *to)
{
    for (Py_ssize_t k = 0; k < TOGETHER; k++) {
        to[k] = from[places[k < count ? k : 0]];
    }
}

static void
put_down(const double *from, const Py_ssize_t *places, Py_ssize_t count, double *to)
{
    for (Py_ssize_t k = 0; k < count && k < TOGETHER; k++) {
        to[places[k]] = from[k];
    }
}

static void
gamma_places(const Slopes *given, const Py_ssize_t *places, Py_ssize_t count, int is_small)
{
    double alpha[TOGETHER], x[TOGETHER], out[TOGETHER];
    for (; count > 0; places += TOGETHER, count -= TOGETHER) {
        pick(given->operands[0], places, count, alpha);
        pick(given->operands[1], places, count, x);
        if (is_small) {
            gamma_by_series(alpha, x, out);
        }
        else {
            gamma_by_integral(given, alpha, x, out);
        }
        put_down(out, places, count, given->out);
    }
}

static void
gamma_share(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Slopes *given = context;
    for (Py_ssize_t start = first * AT_ONCE; start < last * AT_ONCE; start += AT_ONCE) {
        Py_ssize_t small[AT_ONCE], others[AT_ONCE], count[2] = {0, 0};
        for (Py_ssize_t k = start; k < start + AT_ONCE && k < given->count; k++) {
            int is_small = given->operands[1][k] < FEW_TERMS;
            (is_small ? small : others)[count[is_small]++] = k;
        }
        gamma_places(given, small, count[1], 1);
        gamma_places(given, others, count[0], 0);
    }
}

static void
beta_share(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Slopes *given = context;
    Py_ssize_t end = last * AT_ONCE < given->count ? last * AT_ONCE : given->count;
    for (Py_ssize_t start = first * AT_ONCE; start < end; start += TOGETHER) {
        Py_ssize_t places[TOGETHER], count = end - start;
        double x[TOGETHER], a[TOGETHER], b[TOGETHER], out[TOGETHER];
        for (Py_ssize_t k = 0; k < TOGETHER; k++) {
            places[k] = start + k;
        }
        pick(given->operands[0], places, count, x);
        pick(given->operands[1], places, count, a);
        pick(given->operands[2], places, count, b);
        beta_by_series(x, a, b, out);
        put_down(out, places, count, given->out);
    }
}

/* The points exp(t - exp(-t)) of equal steps in t. */
static void
find_nodes(Slopes *given)
{
    for (int k = -38; k <= 43; k++) {
        double t = 0.1 * k, point = exp(t - exp(-t));
        given->points[given->nodes] = point;
        given->weights[given->nodes++] = 0.1 * point * (1 + exp(-t));
    }
}

/* A new array for the slopes of operands of double precision and one size; None if they are something else. */
static PyObject *
slopes(Slopes *given, PyObject *const *operands, Py_ssize_t count, Share share, double nanoseconds)
{
    PyArrayObject *first = (PyArrayObject *)operands[0];
    for (Py_ssize_t k = 0; k < count; k++) {
        if (!is_plain(operands[k]) || PyArray_TYPE((PyArrayObject *)operands[k]) != NPY_DOUBLE ||
            PyArray_SIZE((PyArrayObject *)operands[k]) != PyArray_SIZE(first)) {
            Py_RETURN_NONE;
        }
        given->operands[k] = data_of(operands[k]);
    }
    PyObject *out = new_like(first);
    if (out != NULL) {
        given->out = data_of(out);
        given->count = PyArray_SIZE(first);
        WORK(100 * given->count, divide(share, given, (given->count + AT_ONCE - 1) / AT_ONCE,
                                        nanoseconds * given->count));
    }
    return out;
}

/* gamma_slopes(alpha, x): of gamma variables x of rate 1, by their concentrations */
PyObject *
gamma_slopes(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        Py_RETURN_NONE;
    }
    Slopes given = {0};
    find_nodes(&given);
    return slopes(&given, arguments, 2, gamma_share, 100);
}

/* beta_slopes(x, a, b): of beta variables x, whose densities have the exponents a - 1 and b - 1, by a */
PyObject *
beta_slopes(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3) {
        Py_RETURN_NONE;
    }
    Slopes given = {0};
    return slopes(&given, arguments, 3, beta_share, 100);
}

#else

PyObject *
gamma_slopes(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_RETURN_NONE;
}

PyObject *
beta_slopes(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_RETURN_NONE;
}

#endif
