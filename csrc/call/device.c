/* The usual case of an operation on a GPU: tensors of one dtype, row after row. */
#include "call/operation.h"

/* Whether elements that lie row after row in all operands do so in the result. */
static int
is_simple_order(int order)
{
    return order == ORDER_AS_COMPUTED || order == ORDER_ROWS || order == ORDER_OPERANDS || order == ORDER_FIRST ||
           order == ORDER_SECOND;
}

/* The arrays of the tensors, and everything else as it is; whether the form can compute with them. */
static int
find_device_arrays(const Operation *self, const Form *form, int number, PyObject *const *values, PyObject **arguments)
{
    PyArray_Descr *dtype = NULL;
    for (int k = 0; k < self->count; k++) {
        PyObject *value = arguments[k] = values[k];
        if (!self->inputs[k] || k == number || (self->inputs[k] == 2 && value == Py_None)) {
            if (!take_option(&arguments[k])) {
                return 0;
            }
            continue;
        }
        if (!is_tensor(value) || SLOT(value, core.t_xp) != core.device_xp) {
            return 0;
        }
        PyObject *array = arguments[k] = SLOT(value, core.t_array);
        if (!is_device_array(array) || (is_narrow_type(dtype_of(array)->type_num) && !self->is_view)) {
            return 0;
        }
        if (form->orders[0] != ORDER_AS_COMPUTED && !((Array *)array)->is_contiguous) {
            return 0;
        }
        if (form->taking_part >> k & 1) {
            if (dtype != NULL && dtype_of(array) != dtype) {
                return 0;
            }
            dtype = dtype_of(array);
        }
    }
    return 1;
}

/* Whether a result is an array that needs nothing done to it. */
static int
is_finished(const Form *form, PyObject *const *arguments, PyObject *out)
{
    if (!is_device_array(out) || (form->orders[0] != ORDER_AS_COMPUTED && !((Array *)out)->is_contiguous)) {
        return 0;
    }
    if (form->settled < 0) {
        return 1;
    }
    PyObject *first = arguments[form->settled];
    return dtype_of(out) == dtype_of(first) || (form->any_float && has_floats(first));
}

PyObject *
device_result(Operation *self, PyObject *state, PyObject *const *values)
{
    PyObject *arguments[MOST_ARGUMENTS], *out = NULL, *result = NULL;
    int made = has_device_plan(self), is_number = is_given_number(self, values);
    const Form *form = made > 0 ? self->device_forms[is_number] : NULL;
    if (form == NULL || form->several || form->order_count != 1 || !is_simple_order(form->orders[0]) ||
        !find_device_arrays(self, form, is_number ? self->number : -1, values, arguments)) {
        return NULL;
    }
    for (int k = 0; k < self->count; k++) {
        Py_INCREF(arguments[k]);
    }
    out = expression_value(form->forward, arguments);
    if (out == NULL) {
        if (self->elementwise &&
            (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
             PyErr_ExceptionMatches(PyExc_OverflowError))) {
            PyErr_Clear(); /* Python meets the same error, and explains it */
        }
    }
    else if (is_finished(form, arguments, out)) {
        result = record_result(self, form, state, values, arguments, out);
    }
    else {
        Py_DECREF(out);
    }
    for (int k = 0; k < self->count; k++) {
        Py_DECREF(arguments[k]);
    }
    return result;
}
