/* softmax, its logarithm and logsumexp along a dimension that is not the last one: many columns at a time, in vectors. */
#include "kernels/softmax_columns.h"

#include "kernels/kernels.h"
#include "loops/exp.h"
#include "loops/functions.h"
#include "loops/threads.h"

#include <stdatomic.h>

#define STRIP 128 /* columns that are worked on together */

#ifdef HAS_FUNCTIONS
#define LOGARITHM log_double
#else
#define LOGARITHM log
#endif

enum { SOFTMAX, LOG_SOFTMAX, LOGSUMEXP };

typedef struct {
    const void *x, *numbers; /* numbers: one for each column, or NULL */
    void *out;
    Py_ssize_t rows, inner; /* elements of a column; how many columns lie side by side */
    int what;
    atomic_int is_refused;
} Columns;

#define REAL float
#include "kernels/softmax_columns_loops.h"
#undef REAL
#define REAL double
#include "kernels/softmax_columns_loops.h"
#undef REAL

/* softmax_columns(x, dim, which of the above, numbers or None): softmax is multiplied by the number of its column,
 * logsumexp is less by it. None where the largest number of a column is infinite. */
PyObject *
softmax_columns(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 4 || !is_plain(arguments[0]) || !PyLong_Check(arguments[1]) || !PyLong_Check(arguments[2])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *x = (PyArrayObject *)arguments[0];
    long dim = PyLong_AsLong(arguments[1]), what = PyLong_AsLong(arguments[2]);
    npy_intp shape[NPY_MAXDIMS], outer = 1, inner = 1;
    int ndim = PyArray_NDIM(x);
    dim += dim < 0 ? ndim : 0;
    if (PyErr_Occurred() || dim < 0 || dim >= ndim || what < SOFTMAX || what > LOGSUMEXP) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    for (int d = 0, kept = 0; d < ndim; d++) {
        outer *= d < dim ? PyArray_DIM(x, d) : 1;
        inner *= d > dim ? PyArray_DIM(x, d) : 1;
        if (d != dim) {
            shape[kept++] = PyArray_DIM(x, d);
        }
    }
    if (inner == 1 || !is_alike(arguments[3], x, outer * inner)) {
        Py_RETURN_NONE;
    }
    PyObject *out = what == LOGSUMEXP ? new_array(ndim - 1, shape, PyArray_TYPE(x)) : new_like(x);
    if (out == NULL) {
        return NULL;
    }
    int is_float = PyArray_TYPE(x) == NPY_FLOAT;
    Columns given = {PyArray_DATA(x), data_of(arguments[3]), data_of(out), PyArray_DIM(x, (int)dim), inner, (int)what};
    WORK(PyArray_SIZE(x), divide(is_float ? run_strips_float : run_strips_double, &given,
                                 outer * ((inner + STRIP - 1) / STRIP), (is_float ? 0.7 : 2.0) * PyArray_SIZE(x)));
    if (given.is_refused) { /* NumPy warns of infinite numbers, or raises, as np.errstate says */
        Py_SETREF(out, Py_NewRef(Py_None));
    }
    return out;
}
