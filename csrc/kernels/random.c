/* Random numbers from a bit generator of NumPy, which draws words of 32 bits (ops/random/mersenne_twister.py says what they become).
 * Whoever calls these holds the lock of the generator.
 */
#include "kernels/kernels.h"
#include "kernels/draws.h"
#include "loops/compile.h"
#include "kernels/twister.h"
#include "loops/log_sincos.h"

#include <math.h>

/* The generator in a capsule; NULL with an error if it is none. */
static bitgen_t *
generator_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, "BitGenerator");
}

/* ---- words: by the hundreds from NumPy's Twister, if it is what it is taken for, otherwise one by one */

static uint32_t (*next_of_twister)(void *state); /* NULL until trust_twister has found out */

Twister *
twister_of(bitgen_t *bits)
{
    return bits->next_uint32 == next_of_twister ? bits->state : NULL;
}

#define WORDS 1024 /* a stretch of them; even */

static void
draw_words(bitgen_t *bits, uint32_t *out, Py_ssize_t count)
{
    Twister *twister = twister_of(bits);
    if (twister != NULL) {
        draw_twister(twister, out, count);
        return;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = bits->next_uint32(bits->state);
    }
}

/* trust_twister(capsule of NumPy's MT19937): whether its state is laid out as a Twister. Both ways of drawing go on from
 * copies of it; only if they agree is the faster one used, for all generators of the kind. */
PyObject *
trust_twister(PyObject *module, PyObject *capsule)
{
    bitgen_t *bits = generator_of(capsule);
    if (bits == NULL) {
        return NULL;
    }
    if (next_of_twister != bits->next_uint32) {
        Twister theirs, ours;
        uint32_t words[WORDS];
        memcpy(&theirs, bits->state, sizeof(theirs));
        ours = theirs;
        if (ours.pos < 0 || ours.pos > TWISTER_SIZE) {
            Py_RETURN_FALSE;
        }
        draw_twister(&ours, words, WORDS);
        for (int k = 0; k < WORDS; k++) {
            if (words[k] != bits->next_uint32(&theirs)) {
                Py_RETURN_FALSE;
            }
        }
        if (memcmp(&ours, &theirs, sizeof(ours)) != 0) {
            Py_RETURN_FALSE;
        }
        next_of_twister = bits->next_uint32;
    }
    Py_RETURN_TRUE;
}

/* read_twister(capsule) -> (words of the state as uint64, how many are used), or None */
PyObject *
read_twister(PyObject *module, PyObject *capsule)
{
    bitgen_t *bits = generator_of(capsule);
    Twister *twister = bits == NULL ? NULL : twister_of(bits);
    if (twister == NULL) {
        return bits == NULL ? NULL : Py_NewRef(Py_None);
    }
    npy_intp size = TWISTER_SIZE;
    PyObject *words = new_array(1, &size, NPY_UINT64);
    for (int k = 0; words != NULL && k < TWISTER_SIZE; k++) {
        ((uint64_t *)data_of(words))[k] = twister->key[k];
    }
    return words == NULL ? NULL : Py_BuildValue("Ni", words, twister->pos);
}

/* place_twister(capsule, words as read_twister returns them, how many are used) -> True, or None */
PyObject *
place_twister(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    bitgen_t *bits = count == 3 ? generator_of(arguments[0]) : NULL;
    if (bits == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    Twister *twister = twister_of(bits);
    PyArrayObject *words = (PyArrayObject *)arguments[1];
    long pos = PyLong_AsLong(arguments[2]);
    if (twister == NULL || !PyArray_CheckExact(arguments[1]) || PyArray_TYPE(words) != NPY_UINT64 ||
        !PyArray_ISCARRAY_RO(words) || PyArray_SIZE(words) != TWISTER_SIZE || pos < 0 || pos > TWISTER_SIZE) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    for (int k = 0; k < TWISTER_SIZE; k++) {
        twister->key[k] = (uint32_t)((const uint64_t *)PyArray_DATA(words))[k];
    }
    twister->pos = (int)pos;
    Py_RETURN_TRUE;
}

/* ---- loops */

/* A loop over stretches: fill `out` from `words`, PER of which make one number. */
#define FILL(name, type, PER, statement)                                                            \
    CLONES static void name##_of(const uint32_t *words, type *out, Py_ssize_t count)                \
    {                                                                                               \
        for (Py_ssize_t k = 0; k < count; k++) {                                                    \
            statement;                                                                              \
        }                                                                                           \
    }                                                                                               \
    static void fill_##name(bitgen_t *bits, type *out, Py_ssize_t count)                            \
    {                                                                                               \
        uint32_t words[WORDS];                                                                      \
        for (Py_ssize_t k = 0; k < count; k += WORDS / PER) {                                       \
            Py_ssize_t here = count - k < WORDS / PER ? count - k : WORDS / PER;                    \
            draw_words(bits, words, PER * here);                                                    \
            name##_of(words, out + k, here);                                                        \
        }                                                                                           \
    }

FILL(words, uint64_t, 1, out[k] = words[k])
FILL(singles, float, 1, out[k] = (float)(int32_t)(words[k] & 0xffffff) * 0x1p-24f)
FILL(doubles, double, 2,
     out[k] = (double)(int64_t)(((uint64_t)words[2 * k] << 32 | words[2 * k + 1]) & (((uint64_t)1 << 53) - 1)) * 0x1p-53)

/* two at a time, by the transform of Box and Muller; `count` is even */
static void
fill_normals(bitgen_t *bits, double *out, Py_ssize_t count)
{
    fill_doubles(bits, out, count);
    for (Py_ssize_t k = 0; k < count; k += 2) {
        double angle = 6.283185307179586476925 * out[k];
        double radius = sqrt(-2 * log1p(-out[k + 1]));
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
    uint32_t words[WORDS];
    for (Py_ssize_t k = 0; k < count - 1; k++) {
        if (k % WORDS == 0) {
            draw_words(bits, words, count - 1 - k < WORDS ? count - 1 - k : WORDS);
        }
        Py_ssize_t other = k + words[k % WORDS] % (uint64_t)(count - k);
        int64_t kept = out[k];
        out[k] = out[other];
        out[other] = kept;
    }
}

/* Box and Muller's transform of blocks of sixteen: the first half gives radii, the second angles */
CLONES static void
turn_blocks(const float *drawn, float *out, Py_ssize_t blocks)
{
    for (Py_ssize_t k = 0; k < blocks; k++, drawn += 16, out += 16) {
        float radius[8], angle[8], sine[8], cosine[8];
        for (int i = 0; i < 8; i++) {
            radius[i] = sqrtf(-2 * log_of_normal(1 - drawn[i]));
            angle[i] = drawn[i + 8] * 6.283185307179586f;
        }
        for (int i = 0; i < 8; i++) {
            sin_and_cos(angle[i], &sine[i], &cosine[i]);
        }
        for (int i = 0; i < 8; i++) {
            out[i] = radius[i] * cosine[i];
            out[i + 8] = radius[i] * sine[i];
        }
    }
}

/* blocks_to_normal(fractions of float) -> normal numbers, or None */
PyObject *
blocks_to_normal(PyObject *module, PyObject *fractions)
{
    PyArrayObject *drawn = (PyArrayObject *)fractions;
    if (!is_plain(fractions) || PyArray_TYPE(drawn) != NPY_FLOAT || PyArray_NDIM(drawn) != 1 ||
        PyArray_SIZE(drawn) % 16 != 0) {
        Py_RETURN_NONE;
    }
    PyObject *out = new_array(1, PyArray_DIMS(drawn), NPY_FLOAT);
    if (out != NULL) {
        npy_intp size = PyArray_SIZE(drawn);
        WORK(size, turn_blocks(PyArray_DATA(drawn), data_of(out), size / 16));
    }
    return out;
}

/* ---- numbers in memory that is there */

/* numbers * factor + start, rounded once; below `end`, which does not belong to the interval */
CLONES static void
spread_floats(float *out, Py_ssize_t count, float factor, float start, float end)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        float number = (float)(out[k] * (double)factor + start);
        out[k] = number == end ? start : number;
    }
}

void
draw_uniform_floats(bitgen_t *bits, float *out, Py_ssize_t count, double low, double high)
{
    WORK(count, fill_singles(bits, out, count));
    if (low != 0 || high != 1) {
        spread_floats(out, count, (float)high - (float)low, (float)low, (float)high);
    }
}

void
draw_uniform_doubles(bitgen_t *bits, double *out, Py_ssize_t count, double low, double high)
{
    WORK(count, fill_doubles(bits, out, count));
    for (Py_ssize_t k = 0; (low != 0 || high != 1) && k < count; k++) {
        double number = out[k] * (high - low) + low;
        out[k] = number == high ? low : number;
    }
}

static void
fill_normal_floats(bitgen_t *bits, float *out, Py_ssize_t count, double mean, double std)
{
    fill_singles(bits, out, count);
    turn_blocks(out, out, count / NORMAL_BLOCK);
    if (count % NORMAL_BLOCK) { /* the last ones are drawn again, as a block */
        float *last = out + count - NORMAL_BLOCK;
        fill_singles(bits, last, NORMAL_BLOCK);
        turn_blocks(last, last, 1);
    }
    if (mean != 0 || std != 1) {
        spread_floats(out, count, (float)std, (float)mean, NAN);
    }
}

void
draw_normal_floats(bitgen_t *bits, float *out, Py_ssize_t count, double mean, double std)
{
    WORK(count, fill_normal_floats(bits, out, count, mean, std));
}

void
draw_normal_pairs(bitgen_t *bits, double *out, Py_ssize_t count)
{
    fill_normals(bits, out, count);
}

static void
fill_integers(bitgen_t *bits, int64_t *out, Py_ssize_t count, int64_t low, uint64_t range)
{
    int per = range < WIDE_RANGE ? 1 : 2;
    uint32_t words[WORDS];
    for (Py_ssize_t k = 0; k < count; k += WORDS / per) {
        Py_ssize_t here = count - k < WORDS / per ? count - k : WORDS / per;
        draw_words(bits, words, per * here);
        for (Py_ssize_t i = 0; i < here && per == 1; i++) {
            out[k + i] = low + (int64_t)(words[i] % (uint32_t)range);
        }
        for (Py_ssize_t i = 0; i < here && per == 2; i++) {
            out[k + i] = low + (int64_t)(((uint64_t)words[2 * i] << 32 | words[2 * i + 1]) % range);
        }
    }
}

void
draw_integers(bitgen_t *bits, int64_t *out, Py_ssize_t count, int64_t low, uint64_t range)
{
    WORK(count, fill_integers(bits, out, count, low, range));
}

void
draw_permutation(bitgen_t *bits, int64_t *out, Py_ssize_t count)
{
    WORK(count, fill_permutation(bits, out, count));
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
