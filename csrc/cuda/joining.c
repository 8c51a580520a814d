/* Arrays behind each other in one of their dimensions. */
#include "cuda/cuda.h"

/* Whether all are arrays of one dtype whose sizes agree in all dimensions but one; the sum of those in `dims`. */
static int
can_join(PyObject *const *parts, Py_ssize_t count, int axis, npy_intp *dims)
{
    const Array *first = (const Array *)parts[0];
    if (count == 0 || !IS_ARRAY(parts[0]) || first->code == CODE_UNKNOWN || axis < 0 || axis >= first->nd) {
        return 0;
    }
    memcpy(dims, first->dims, first->nd * sizeof(npy_intp));
    for (Py_ssize_t k = 1; k < count; k++) {
        const Array *part = (const Array *)parts[k];
        if (!IS_ARRAY(parts[k]) || part->code != first->code || part->nd != first->nd ||
            Py_TYPE(part) != Py_TYPE(first)) {
            return 0;
        }
        for (int d = 0; d < first->nd; d++) {
            if (d != axis && part->dims[d] != first->dims[d]) {
                return 0;
            }
        }
        dims[axis] += part->dims[axis];
    }
    return 1;
}

/* join(list of arrays, dimension): one array of them all; None: they do not fit, or are not of one dtype */
PyObject *
module_join(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    npy_intp dims[MOST_DIMS], offset = 0;
    long axis = count == 2 && PyList_CheckExact(given[0]) ? PyLong_AsLong(given[1]) : -1;
    if (axis == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject **parts = axis < 0 ? NULL : ((PyListObject *)given[0])->ob_item;
    Py_ssize_t length = axis < 0 ? 0 : PyList_GET_SIZE(given[0]);
    if (length == 0 || !can_join(parts, length, (int)axis, dims)) {
        Py_RETURN_NONE;
    }
    Array *first = (Array *)parts[0];
    use_gpu_of(first);
    Array *out = array_new(first->dtype, first->nd, dims, NULL);
    for (Py_ssize_t k = 0; out != NULL && k < length; k++) {
        Array *part = (Array *)parts[k];
        Array *place = array_view(out, out->nd, part->dims, out->strides, offset, out->dtype);
        if (place == NULL || (part->size && copy_into(place, part) < 0)) {
            Py_CLEAR(out);
        }
        else {
            offset += part->dims[axis] * out->strides[axis];
        }
        Py_XDECREF(place);
    }
    return (PyObject *)out;
}
