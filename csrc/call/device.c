/* The usual case of an operation on a GPU: tensors of one dtype, row after row. */
#include "call/operation.h"

/* Whether elements that lie row after row in all operands do so in the results. */
static int
has_simple_orders(const Form *form)
{
    for (int k = 0; k < form->order_count; k++) {
        int order = form->orders[k];
        if (order != ORDER_AS_COMPUTED && order != ORDER_ROWS && order != ORDER_OPERANDS && order != ORDER_FIRST &&
            order != ORDER_SECOND) {
            return 0;
        }
    }
    return form->order_count == 1 || (form->several && form->order_count > 1);
}

/* Whether rows follow each other, though there may be gaps between them and between elements. */
static int
follows_rows(const Array *array)
{
    npy_intp inner = 0;
    for (int d = array->nd - 1; !array->is_contiguous && d >= 0; d--) {
        if (array->dims[d] == 1) {
            continue;
        }
        if (array->strides[d] <= inner) {
            return 0;
        }
        inner = array->strides[d];
    }
    return 1;
}

/* Whether a result lies row after row whatever operands do, or this operand does. */
static int
fits_order(const Form *form, const Array *array)
{
    int is_free = 1;
    for (int k = 0; k < form->order_count; k++) {
        is_free = is_free && (form->orders[k] == ORDER_AS_COMPUTED || form->orders[k] == ORDER_ROWS);
    }
    return is_free || follows_rows(array);
}

/* The arrays of the tensors, and everything else as it is; whether the form can compute with them. */
static int
find_device_arrays(const Operation *self, const Form *form, int number, PyObject *const *values, PyObject **arguments)
{
    PyArray_Descr *dtype = NULL;
    for (int k = 0; k < self->count; k++) {
        PyObject *value = arguments[k] = values[k];
        if (!self->inputs[k] || k == number || (self->inputs[k] == 2 && value == Py_None)) {
            if (!take_option(&arguments[k], 0)) {
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
        if (!fits_order(form, (Array *)array)) {
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

static int
lies_as_said(const Form *form, int output, PyObject *out)
{
    int order = form->orders[output < form->order_count ? output : form->order_count - 1];
    return is_device_array(out) && (order == ORDER_AS_COMPUTED || ((Array *)out)->is_contiguous);
}

/* Whether a result is an array, or several, that need nothing done to them. */
static int
is_finished(const Form *form, PyObject *const *arguments, PyObject *out)
{
    if (form->several) {
        int finished = PyTuple_CheckExact(out) && PyTuple_GET_SIZE(out) > 0 && form->settled < 0;
        for (Py_ssize_t k = 0; finished && k < PyTuple_GET_SIZE(out); k++) {
            finished = lies_as_said(form, (int)k, PyTuple_GET_ITEM(out, k));
        }
        return finished;
    }
    if (!lies_as_said(form, 0, out)) {
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
    if (form == NULL || !has_simple_orders(form) ||
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
