/* Attention: what happens between the products of matrices, in place. Rows are queries, columns are keys. */
#include "kernels/kernels.h"
#include "loops/exp.h"
#include "loops/threads.h"

typedef struct {
    void *scores, *logs;
    const void *weights;
    Py_ssize_t rows, columns;
    Py_ssize_t queries; /* rows of a matrix, if there are several */
    Py_ssize_t first;   /* if not negative: a row sees the columns up to its own number, which begins here */
    double scale;
} Scores;

/* How many columns a row sees. */
INLINE Py_ssize_t
seen(const Scores *given, Py_ssize_t row)
{
    Py_ssize_t last = given->first + row % given->queries + 1;
    return given->first < 0 || last > given->columns ? given->columns : last;
}

#define REAL float
#include "loops/max_and_sum.h"
#include "kernels/attention_rows.h"
#undef REAL
#define REAL double
#include "loops/max_and_sum.h"
#include "kernels/attention_rows.h"
#undef REAL

/* Fill in the array of scores, which is overwritten, and its sizes; 0 if it does not serve. */
static int
take_scores(Scores *given, PyObject *scores, PyObject *scale)
{
    if (!is_plain(scores) || PyArray_NDIM((PyArrayObject *)scores) < 2 ||
        !PyArray_ISWRITEABLE((PyArrayObject *)scores)) {
        return 0;
    }
    PyArrayObject *array = (PyArrayObject *)scores;
    int ndim = PyArray_NDIM(array);
    given->scores = PyArray_DATA(array);
    given->columns = PyArray_DIM(array, ndim - 1);
    given->queries = PyArray_DIM(array, ndim - 2);
    given->rows = PyArray_SIZE(array) / given->columns;
    given->first = -1;
    given->scale = PyFloat_AsDouble(scale);
    return !PyErr_Occurred();
}

/* The rows are divided among threads: each is computed from itself alone. */
static void
run(Scores *given, PyObject *scores, Share of_float, Share of_double)
{
    Share share = PyArray_TYPE((PyArrayObject *)scores) == NPY_FLOAT ? of_float : of_double;
    WORK(given->rows * given->columns, divide(share, given, given->rows, 0.7 * given->rows * given->columns));
}

static PyObject *
refused(void)
{
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* softmax_scores(scores, scale, first) -> log(sum(exp(scale * scores))) for each row; the scores become their softmax.
 * If `first` is not negative, a row of a matrix sees the columns up to first + its number. */
PyObject *
softmax_scores(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Scores given;
    if (count != 3 || !take_scores(&given, arguments[0], arguments[1])) {
        return refused();
    }
    given.first = PyLong_AsSsize_t(arguments[2]);
    if (given.first == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyArrayObject *scores = (PyArrayObject *)arguments[0];
    PyObject *logs = new_array(PyArray_NDIM(scores) - 1, PyArray_DIMS(scores), PyArray_TYPE(scores));
    if (logs != NULL) {
        given.logs = data_of(logs);
        run(&given, arguments[0], softmax_scores_float, softmax_scores_double);
    }
    return logs;
}

/* weigh_scores(scores, scale, first, logs) -> True; the scores become exp(scale * scores - logs) */
PyObject *
weigh_scores(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Scores given;
    if (count != 4 || !take_scores(&given, arguments[0], arguments[1]) || arguments[3] == Py_None ||
        !is_alike(arguments[3], (PyArrayObject *)arguments[0], given.rows)) {
        return refused();
    }
    given.first = PyLong_AsSsize_t(arguments[2]);
    if (given.first == -1 && PyErr_Occurred()) {
        return NULL;
    }
    given.logs = data_of(arguments[3]);
    run(&given, arguments[0], weigh_scores_float, weigh_scores_double);
    Py_RETURN_TRUE;
}

/* slope_scores(slopes, scale, weights) -> True; gradients of a softmax become those of the scores it was taken of */
PyObject *
slope_scores(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Scores given;
    if (count != 3 || !take_scores(&given, arguments[0], arguments[1]) || arguments[2] == Py_None ||
        !is_alike(arguments[2], (PyArrayObject *)arguments[0], given.rows * given.columns)) {
        return refused();
    }
    given.weights = data_of(arguments[2]);
    run(&given, arguments[0], slope_scores_float, slope_scores_double);
    Py_RETURN_TRUE;
}
