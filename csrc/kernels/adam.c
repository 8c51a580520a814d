/* What an optimizer does to all elements of a parameter, in one pass. The order of operations is that of the formulas
 * in NumPy (optim/adam.py), so that the results are the same to the last bit.
 */
#include "kernels/kernels.h"
#include "loops/compile.h"
#include "loops/threads.h"

enum { KEEP_MEAN, TAKE_MEAN, KEEP_SQUARE, TAKE_SQUARE, SCALE, EPSILON, RATE, NUMBERS };

typedef struct {
    Py_ssize_t count;
    void *param, *mean, *square, *largest; /* `largest` is NULL without AMSGrad */
    const void *grad;
    const void *numbers[NUMBERS];
} Moments;

#define ADAM(REAL, ROOT)                                                                                     \
    CLONES static void adam_##REAL(const Moments *given)                                                     \
    {                                                                                                        \
        REAL number[NUMBERS];                                                                                \
        for (int k = 0; k < NUMBERS; k++) {                                                                  \
            number[k] = *(const REAL *)given->numbers[k];                                                    \
        }                                                                                                    \
        REAL *restrict param = given->param, *restrict mean = given->mean, *restrict square = given->square; \
        REAL *restrict largest = given->largest;                                                             \
        const REAL *restrict grad = given->grad;                                                             \
        if (largest == NULL) {                                                                               \
            for (Py_ssize_t k = 0; k < given->count; k++) {                                                  \
                mean[k] = mean[k] * number[KEEP_MEAN] + grad[k] * number[TAKE_MEAN];                         \
                square[k] = square[k] * number[KEEP_SQUARE] + grad[k] * grad[k] * number[TAKE_SQUARE];       \
                param[k] -= mean[k] / (ROOT(square[k]) * number[SCALE] + number[EPSILON]) * number[RATE];    \
            }                                                                                                \
            return;                                                                                          \
        }                                                                                                    \
        for (Py_ssize_t k = 0; k < given->count; k++) {                                                      \
            mean[k] = mean[k] * number[KEEP_MEAN] + grad[k] * number[TAKE_MEAN];                             \
            square[k] = square[k] * number[KEEP_SQUARE] + grad[k] * grad[k] * number[TAKE_SQUARE];           \
            largest[k] = largest[k] > square[k] || largest[k] != largest[k] ? largest[k] : square[k];        \
            param[k] -= mean[k] / (ROOT(largest[k]) * number[SCALE] + number[EPSILON]) * number[RATE];       \
        }                                                                                                    \
    }

ADAM(float, sqrtf)
ADAM(double, sqrt)

#define PIECE 8192 /* elements */

typedef struct {
    Moments all;
    int is_float;
} Update;

static void
update_pieces(void *context, Py_ssize_t first, Py_ssize_t last)
{
    const Update *update = context;
    Moments some = update->all;
    Py_ssize_t start = first * PIECE, end = last * PIECE < some.count ? last * PIECE : some.count;
    Py_ssize_t bytes = start * (update->is_float ? sizeof(float) : sizeof(double));
    some.count = end - start;
    some.param = (char *)some.param + bytes;
    some.mean = (char *)some.mean + bytes;
    some.square = (char *)some.square + bytes;
    some.largest = some.largest == NULL ? NULL : (char *)some.largest + bytes;
    some.grad = (const char *)some.grad + bytes;
    (update->is_float ? adam_float : adam_double)(&some);
}

/* adam_update(param, grad, mean, square, largest or None, the NUMBERS as arrays of no dimensions) */
PyObject *
adam_update(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    enum { ARRAYS = 5 };
    if (count != ARRAYS + NUMBERS || !is_plain(arguments[0]) || !PyArray_ISWRITEABLE((PyArrayObject *)arguments[0])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *param = (PyArrayObject *)arguments[0];
    Moments given = {PyArray_SIZE(param), PyArray_DATA(param)};
    for (Py_ssize_t k = 1; k < count; k++) {
        if ((arguments[k] == Py_None && k != 4) || !is_alike(arguments[k], param, k < ARRAYS ? given.count : 1)) {
            Py_RETURN_NONE;
        }
    }
    given.grad = data_of(arguments[1]);
    given.mean = data_of(arguments[2]);
    given.square = data_of(arguments[3]);
    given.largest = data_of(arguments[4]);
    for (int k = 0; k < NUMBERS; k++) {
        given.numbers[k] = data_of(arguments[ARRAYS + k]);
    }
    Update update = {given, PyArray_TYPE(param) == NPY_FLOAT};
    WORK(given.count, divide(update_pieces, &update, (given.count + PIECE - 1) / PIECE,
                             (update.is_float ? 1.0 : 2.5) * given.count));
    Py_RETURN_TRUE;
}
