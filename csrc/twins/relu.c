/* relu and threshold, of arrays of any size: twins of functions of ops/pointwise/activations.py. */
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "twins/arrays.h"
#include "twins/table.h"

/* both are read, whichever it will be: so there is nothing to guess */
#define KEEP_ABOVE(type)                                                                                              \
    CLONES static void keep_above_##type(const type *restrict grad, const type *restrict input, type threshold,       \
                                         type *restrict out, npy_intp n)                                              \
    {                                                                                                                 \
        for (npy_intp i = 0; i < n; i++) {                                                                            \
            type given = grad[i];                                                                                     \
            out[i] = input[i] <= threshold ? 0 : given;                                                               \
        }                                                                                                             \
    }

KEEP_ABOVE(float)
KEEP_ABOVE(double)

/* threshold_gradient(xp, grad_output, input, threshold): the gradient where the input is above the threshold, else 0 */
PyObject *
threshold_gradient(PyObject *const *arguments)
{
    PyArrayObject *grad = (PyArrayObject *)arguments[1], *input = (PyArrayObject *)arguments[2];
    if (!are_alike(arguments[1], arguments[2]) ||
        !(PyFloat_CheckExact(arguments[3]) || PyLong_CheckExact(arguments[3]))) {
        return NULL;
    }
    double threshold = PyFloat_AsDouble(arguments[3]);
    if (threshold == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return NULL;
    }
    if (PyArray_DESCR(grad) == core.float32 && (float)threshold != threshold) {
        return NULL;
    }
    PyArrayObject *out = (PyArrayObject *)new_array(PyArray_NDIM(grad), PyArray_DIMS(grad), PyArray_TYPE(grad));
    if (out != NULL) {
        const void *from = PyArray_DATA(grad), *by = PyArray_DATA(input);
        npy_intp n = PyArray_SIZE(grad);
        void *to = PyArray_DATA(out);
        WORK(n, PyArray_DESCR(out) == core.float32 ? keep_above_float(from, by, (float)threshold, to, n)
                                                   : keep_above_double(from, by, threshold, to, n));
    }
    return (PyObject *)out;
}

#define POSITIVE_PART(type)                                                                                           \
    CLONES static void positive_part_##type(const type *restrict input, type *restrict out, npy_intp n)               \
    {                                                                                                                 \
        for (npy_intp i = 0; i < n; i++) {                                                                            \
            out[i] = input[i] <= 0 ? 0 : input[i]; /* nan stays */                                                    \
        }                                                                                                             \
    }

POSITIVE_PART(float)
POSITIVE_PART(double)

/* positive_part(xp, input) */
PyObject *
positive_part(PyObject *const *arguments)
{
    if (arguments[0] != core.cpu || !is_plain(arguments[1])) {
        return NULL;
    }
    PyArrayObject *input = (PyArrayObject *)arguments[1];
    PyObject *out = new_like(input);
    if (out != NULL) {
        npy_intp n = PyArray_SIZE(input);
        WORK(n, PyArray_TYPE(input) == NPY_FLOAT ? positive_part_float(PyArray_DATA(input), data_of(out), n)
                                                 : positive_part_double(PyArray_DATA(input), data_of(out), n));
    }
    return out;
}
