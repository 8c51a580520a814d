/* Random numbers from a bit generator of NumPy, which draws words of 32 bits (ops/random/mersenne_twister.py says what they become).
 * Whoever calls these holds the lock of the generator.
 */
#include "kernels/kernels.h"

#include <math.h>
#include <numpy/random/bitgen.h>

/* The generator in a capsule; NULL with an error if it is none. */
static bitgen_t *
generator_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, "BitGenerator");
}

static uint64_t
long_word(bitgen_t *bits)
{
    uint64_t high = bits->next_uint32(bits->state);
    return high << 32 | bits->next_uint32(bits->state);
}

static double
fraction(bitgen_t *bits)
{
    return (double)(long_word(bits) & (((uint64_t)1 << 53) - 1)) * 0x1p-53;
}

/* ---- loops */

static void
fill_words(bitgen_t *bits, uint64_t *out, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = bits->next_uint32(bits->state);
    }
}

static void
fill_singles(bitgen_t *bits, float *out, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = (float)(bits->next_uint32(bits->state) & 0xffffff) * 0x1p-24f;
    }
}

static void
fill_doubles(bitgen_t *bits, double *out, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = fraction(bits);
    }
}

/* two at a time, by the transform of Box and Muller; `count` is even */
static void
fill_normals(bitgen_t *bits, double *out, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k += 2) {
        double angle = 6.283185307179586476925 * fraction(bits);
        double radius = sqrt(-2 * log1p(-fraction(bits)));
        out[k] = radius * cos(angle);
        out[k + 1] = radius * sin(angle);
    }
}

/* every number changes places with one that comes after it, or with itself */
static void
fill_permutation(bitgen_t *bits, int64_t *out, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = k;
    }
    for (Py_ssize_t k = 0; k < count - 1; k++) {
        Py_ssize_t other = k + bits->next_uint32(bits->state) % (uint64_t)(count - k);
        int64_t kept = out[k];
        out[k] = out[other];
        out[other] = kept;
    }
}

/* ---- functions: (capsule, count) -> array */

#define DRAW(name, TYPE, type)                                                                      \
    PyObject *random_##name(PyObject *module, PyObject *const *arguments, Py_ssize_t count)         \
    {                                                                                               \
        if (count != 2) {                                                                           \
            PyErr_SetString(PyExc_TypeError, "random_" #name " takes a generator and a count");     \
            return NULL;                                                                            \
        }                                                                                           \
        bitgen_t *bits = generator_of(arguments[0]);                                                \
        npy_intp size = bits == NULL ? -1 : PyLong_AsSsize_t(arguments[1]);                         \
        PyObject *out = PyErr_Occurred() ? NULL : new_array(1, &size, TYPE);                        \
        if (out != NULL) {                                                                          \
            WORK(size, fill_##name(bits, (type *)data_of(out), size));                              \
        }                                                                                           \
        return out;                                                                                 \
    }

DRAW(words, NPY_UINT64, uint64_t)
DRAW(singles, NPY_FLOAT, float)
DRAW(doubles, NPY_DOUBLE, double)
DRAW(normals, NPY_DOUBLE, double)
DRAW(permutation, NPY_INT64, int64_t)
