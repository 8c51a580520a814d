/* leaky_relu and its gradient: numbers as they are where x is positive, and times the slope elsewhere. */
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

/* both are computed, whichever it will be: so there is nothing to guess */
#define LEAK(REAL)                                                                                                    \
    CLONES static void leak_##REAL(const REAL *g, const REAL *x, REAL slope, REAL *restrict out, Py_ssize_t count)    \
    {                                                                                                                 \
        for (Py_ssize_t k = 0; k < count; k++) {                                                                      \
            REAL whole = g[k], part = whole * slope;                                                                  \
            out[k] = x[k] > 0 ? whole : part;                                                                         \
        }                                                                                                             \
    }

LEAK(float)
LEAK(double)

#define PIECE 16384 /* elements */

typedef struct {
    const char *g, *x;
    char *out;
    double slope;
    Py_ssize_t count, size; /* of elements; of one, in bytes */
} Leak;

static void
leak_pieces(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Leak *leak = context;
    Py_ssize_t start = first * PIECE, end = last * PIECE < leak->count ? last * PIECE : leak->count;
    const void *g = leak->g + start * leak->size, *x = leak->x + start * leak->size;
    void *out = leak->out + start * leak->size;
    if (leak->size == sizeof(float)) {
        leak_float(g, x, (float)leak->slope, out, end - start);
    }
    else {
        leak_double(g, x, leak->slope, out, end - start);
    }
}

/* leaky(g, x, slope) -> g where x is positive, else slope * g */
PyObject *
leaky(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3 || !is_plain(arguments[1]) || !PyFloat_CheckExact(arguments[2])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[1], *g = gradient_like(arguments[0], x);
    if (g == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    double slope = PyFloat_AS_DOUBLE(arguments[2]);
    PyObject *out = new_like(x);
    if (out != NULL) {
        Py_ssize_t n = PyArray_SIZE(x);
        Leak leak = {PyArray_DATA(g), PyArray_DATA(x), data_of(out), slope, n, PyArray_ITEMSIZE(x)};
        WORK(n, divide(leak_pieces, &leak, (n + PIECE - 1) / PIECE, 0.06 * leak.size * n));
    }
    Py_DECREF(g);
    return out;
}
