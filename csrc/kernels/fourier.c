/* Fourier transforms of many signals, as many side by side as a vector has numbers: the passes of Stockham, for lengths
 * made of 2, 3 and 5. */
#include "kernels/kernels.h"
#define FUSED_PRODUCTS
#include "loops/compile.h"
#include "loops/threads.h"

#include <stdatomic.h>

#define ALIGNMENT 64
#define MOST_PASSES 40
#define LONGEST (1 << 17) /* bytes of the real numbers of a signal: of longer ones, a group does not fit into the caches */
#define PLAN "undertow._core.fourier_plan"

typedef struct {
    Py_ssize_t n; /* complex numbers in a signal */
    int is_float, passes;
    int radix[MOST_PASSES];
    void *twiddles; /* of pass after pass */
    void *turns;    /* exp(-2 pi i k / 2n), for real signals of 2n numbers */
} Fourier;

enum { FORWARD, INVERSE, OF_REAL, TO_REAL };

typedef struct {
    const Fourier *plan;
    const void *x;
    void *out;
    Py_ssize_t outer, inner;            /* signals are outer * inner, and lie `inner` apart */
    Py_ssize_t numbers_in, numbers_out; /* real ones of a signal and its transform */
    int kind;
    double factor;
    atomic_int failed;
} Signals;

/* ---- plans */

static void
put(void *numbers, int is_float, Py_ssize_t place, Py_ssize_t k, Py_ssize_t n) /* exp(-2 pi i k / n) */
{
    long double angle = 6.283185307179586476925286766559L * (long double)k / (long double)n;
    double real = (double)cosl(angle), imaginary = (double)-sinl(angle);
    if (is_float) {
        ((float *)numbers)[2 * place] = (float)real;
        ((float *)numbers)[2 * place + 1] = (float)imaginary;
    }
    else {
        ((double *)numbers)[2 * place] = real;
        ((double *)numbers)[2 * place + 1] = imaginary;
    }
}

static int /* whether a length is made of the factors that there are passes for */
read_factors(Fourier *plan)
{
    static const int FACTORS[] = {4, 2, 3, 5};
    Py_ssize_t left = plan->n;
    plan->passes = 0;
    for (int f = 0; f < 4; f++) {
        for (; left % FACTORS[f] == 0; left /= FACTORS[f]) {
            plan->radix[plan->passes++] = FACTORS[f];
        }
    }
    return left == 1;
}

static void
free_plan(PyObject *capsule)
{
    Fourier *plan = PyCapsule_GetPointer(capsule, PLAN);
    PyMem_Free(plan->twiddles);
    PyMem_Free(plan->turns);
    PyMem_Free(plan);
}

static void
fill_plan(Fourier *plan)
{
    Py_ssize_t m = plan->n, place = 0;
    for (int k = 0; k < plan->passes; k++) {
        int radix = plan->radix[k];
        m /= radix;
        for (Py_ssize_t p = 0; p < m; p++) {
            for (int j = 1; j < radix; j++) {
                put(plan->twiddles, plan->is_float, place++, j * p, radix * m);
            }
        }
    }
    for (Py_ssize_t k = 0; k <= plan->n / 2; k++) {
        put(plan->turns, plan->is_float, k, k, 2 * plan->n);
    }
}

/* fourier_plan(length, whether in single precision): what `fourier` must know of complex signals of a length; None if it
 * does not serve */
PyObject *
fourier_plan(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Fourier found = {.n = count == 2 ? PyLong_AsSsize_t(arguments[0]) : 0};
    if (PyErr_Occurred()) {
        return NULL;
    }
    found.is_float = count == 2 && arguments[1] == Py_True;
    Py_ssize_t bytes = found.is_float ? sizeof(float) : sizeof(double);
    if (found.n < 2 || found.n > LONGEST / bytes || !read_factors(&found)) {
        Py_RETURN_NONE;
    }
    Fourier *plan = PyMem_Malloc(sizeof(Fourier));
    found.twiddles = PyMem_Malloc(4 * bytes * found.n);
    found.turns = PyMem_Malloc(2 * bytes * (found.n / 2 + 1));
    PyObject *capsule = NULL;
    if (plan != NULL && found.twiddles != NULL && found.turns != NULL) {
        *plan = found;
        fill_plan(plan);
        capsule = PyCapsule_New(plan, PLAN, free_plan);
    }
    else {
        PyErr_NoMemory();
    }
    if (capsule == NULL) {
        PyMem_Free(found.twiddles);
        PyMem_Free(found.turns);
        PyMem_Free(plan);
    }
    return capsule;
}

/* ---- transforms */

#if defined(__GNUC__)

#define REAL float
#include "loops/vectors.h"
#include "loops/turn.h"
#include "kernels/fourier_loops.h"
#undef REAL
#define REAL double
#include "loops/vectors.h"
#include "loops/turn.h"
#include "kernels/fourier_loops.h"
#undef REAL

/* Whether an array has so many numbers along a dimension, and is of that type. */
static int
is_signal(PyObject *object, Py_ssize_t dim, int is_float, int is_real, Py_ssize_t length)
{
    PyArrayObject *array = (PyArrayObject *)object;
    int type = is_float ? (is_real ? NPY_FLOAT : NPY_CFLOAT) : (is_real ? NPY_DOUBLE : NPY_CDOUBLE);
    return PyArray_CheckExact(object) && PyArray_TYPE(array) == type && PyArray_ISCARRAY_RO(array) && dim >= 0 &&
           dim < PyArray_NDIM(array) && PyArray_DIM(array, (int)dim) == length;
}

static int
read_signals(Signals *signals, PyObject *x, PyObject *out, Py_ssize_t dim)
{
    const Fourier *plan = signals->plan;
    int from_real = signals->kind == OF_REAL, to_real = signals->kind == TO_REAL;
    Py_ssize_t n = plan->n, length_in = from_real ? 2 * n : n + to_real, length_out = to_real ? 2 * n : n + from_real;
    if (!is_signal(x, dim, plan->is_float, from_real, length_in) ||
        !is_signal(out, dim, plan->is_float, to_real, length_out) || !PyArray_ISWRITEABLE((PyArrayObject *)out) ||
        PyArray_NDIM((PyArrayObject *)x) != PyArray_NDIM((PyArrayObject *)out)) {
        return 0;
    }
    npy_intp *dims = PyArray_DIMS((PyArrayObject *)x);
    for (int d = 0; d < PyArray_NDIM((PyArrayObject *)x); d++) {
        if (d != dim && dims[d] != PyArray_DIM((PyArrayObject *)out, d)) {
            return 0;
        }
    }
    signals->x = data_of(x);
    signals->out = data_of(out);
    signals->outer = PyArray_MultiplyList(dims, (int)dim);
    signals->inner = PyArray_MultiplyList(dims + dim + 1, PyArray_NDIM((PyArrayObject *)x) - (int)dim - 1);
    signals->numbers_in = from_real ? length_in : 2 * length_in;
    signals->numbers_out = to_real ? length_out : 2 * length_out;
    return signals->inner == 1 || !(from_real || to_real);
}

/* fourier(plan, x, out, dim, kind, factor) -> True; the transforms of the signals along a dimension, times a factor */
PyObject *
fourier(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 6 || !PyCapsule_IsValid(arguments[0], PLAN)) {
        Py_RETURN_NONE;
    }
    Signals signals = {PyCapsule_GetPointer(arguments[0], PLAN), .failed = 0};
    Py_ssize_t dim = PyLong_AsSsize_t(arguments[3]);
    signals.kind = (int)PyLong_AsLong(arguments[4]);
    signals.factor = PyFloat_AsDouble(arguments[5]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t width = 32 / (signals.plan->is_float ? 4 : 8);
    if (!read_signals(&signals, arguments[1], arguments[2], dim)) {
        Py_RETURN_NONE;
    }
    Py_ssize_t n = signals.plan->n, side_by_side = signals.inner > 1 ? signals.inner : signals.outer;
    if (side_by_side < width / 2) {
        Py_RETURN_NONE;
    }
    Py_ssize_t groups = (side_by_side + width - 1) / width * (signals.inner > 1 ? signals.outer : 1);
    Share share = signals.plan->is_float ? transform_float : transform_double;
    WORK(groups * width * n, divide(share, &signals, groups, 0.5 * groups * width * n * signals.plan->passes));
    return Py_NewRef(atomic_load(&signals.failed) ? Py_None : Py_True);
}

#else
PyObject *
fourier(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_RETURN_NONE;
}
#endif
