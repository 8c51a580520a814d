/* leaky_relu and its gradient: numbers as they are where x is positive, and times the slope elsewhere. */
#include "kernels/kernels.h"
#include "loops/compile.h"

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
        const void *whole = PyArray_DATA(g), *by = PyArray_DATA(x);
        WORK(n, PyArray_TYPE(x) == NPY_FLOAT ? leak_float(whole, by, (float)slope, data_of(out), n)
                                             : leak_double(whole, by, slope, data_of(out), n));
    }
    Py_DECREF(g);
    return out;
}
