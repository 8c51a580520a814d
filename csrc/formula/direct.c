/* See direct.h. The loop is the one that NumPy would choose, and the result lies in memory as NumPy's would: only what
 * NumPy does to find that out is left out, which for small arrays is most of the time. */
#include "formula/direct.h"
#include "formula/small_arrays.h"
#include "kernels/kernels.h"

#include <numpy/ufuncobject.h>

/* The operand with this number as NumPy's loop reads it: where it lies, and the step to the next element (0: one number,
 * which is kept in `number`). Whether it can be read so. */
static int
read_operand(PyObject *value, PyArrayObject *shaped, double *number, char **from, npy_intp *step)
{
    if (PyArray_CheckExact(value)) {
        PyArrayObject *array = (PyArrayObject *)value;
        *from = PyArray_BYTES(array);
        *step = PyArray_ITEMSIZE(array);
        return array == shaped ||
               (is_plain(value) && PyArray_TYPE(array) == PyArray_TYPE(shaped) && same_shape(array, shaped));
    }
    if (!as_number(value, number)) {
        return 0;
    }
    if (PyArray_TYPE(shaped) == NPY_FLOAT) {
        float single = (float)*number;
        memcpy(number, &single, sizeof(single));
    }
    *from = (char *)number;
    *step = 0;
    return 1;
}

/* The place of the loop for operands of this type whose result is of this type, too, or bool; -1 if there is none. */
static int
find_loop(const PyUFuncObject *ufunc, Py_ssize_t count, int type)
{
    if (ufunc->nin != count || ufunc->nout != 1 || ufunc->core_enabled) {
        return -1;
    }
    for (int k = 0; k < ufunc->ntypes; k++) {
        const char *types = ufunc->types + (count + 1) * k;
        if (types[0] == type && types[count - 1] == type && (types[count] == type || types[count] == NPY_BOOL)) {
            return k;
        }
    }
    return -1;
}

PyObject *
direct_result(PyObject *function, PyObject *const *arguments, Py_ssize_t count)
{
    PyObject *first = count == 2 && !PyArray_CheckExact(arguments[0]) ? arguments[1] : arguments[0];
    if (count < 1 || count > 2 || !is_plain(first)) {
        return NULL;
    }
    int symbol = count == 2 ? symbol_of(function) : -1;
    PyObject *small = symbol < 0 ? NULL : new_small_result(symbol, arguments[0], arguments[1]);
    if (small != NULL) {
        return small;
    }
    const PyUFuncObject *ufunc = (PyUFuncObject *)function;
    PyArrayObject *shaped = (PyArrayObject *)first;
    int type = PyArray_TYPE(shaped), place = find_loop(ufunc, count, type);
    double number;
    char *args[3];
    npy_intp steps[3], size = count_of(shaped);
    for (Py_ssize_t k = 0; place >= 0 && k < count; k++) {
        if (!read_operand(arguments[k], shaped, &number, &args[k], &steps[k])) {
            return NULL;
        }
    }
    if (place < 0) {
        return NULL;
    }
    PyObject *out = new_array(PyArray_NDIM(shaped), PyArray_DIMS(shaped), ufunc->types[(count + 1) * place + count]);
    if (out != NULL) {
        steps[count] = PyArray_ITEMSIZE((PyArrayObject *)out);
        args[count] = PyArray_BYTES((PyArrayObject *)out);
        WORK(size, ufunc->functions[place](args, &size, steps, ufunc->data == NULL ? NULL : ufunc->data[place]));
    }
    return out;
}
