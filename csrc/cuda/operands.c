/* The operands of elementwise kernels: arrays of the device, and numbers, which travel with the launch. */
#include "cuda/elementwise.h"

static int
read_scalar_array(PyArrayObject *array, Operand *operand)
{
    PyArray_Descr *dtype = PyArray_DESCR(array);
    int code = code_of(dtype);
    if (PyArray_NDIM(array) != 0 || code >= CODE_BF16) {
        return 0;
    }
    PyObject *item = PyArray_GETITEM(array, PyArray_DATA(array));
    if (item == NULL) {
        return -1;
    }
    if (code >= CODE_C64) {
        operand->value.d = PyComplex_RealAsDouble(item);
        operand->value.imaginary = PyComplex_ImagAsDouble(item);
    }
    else if (code >= CODE_F16) {
        operand->value.d = PyFloat_AsDouble(item);
    }
    else if (code == CODE_U64) {
        operand->value.i = (long long)PyLong_AsUnsignedLongLong(item);
    }
    else {
        operand->value.i = PyLong_AsLongLong(item);
    }
    Py_DECREF(item);
    operand->code = code | NUMBER_BIT;
    return PyErr_Occurred() ? -1 : 1;
}

/* An operand that is no array of the device: 1 if it is a number, 0 if it is none, -1 with an exception. */
static int
read_number(PyObject *object, Operand *operand)
{
    operand->value = (Value){.i = 0};
    if (PyFloat_CheckExact(object)) {
        operand->value.d = PyFloat_AS_DOUBLE(object);
        operand->code = PYTHON_FLOAT | NUMBER_BIT;
        return 1;
    }
    if (PyBool_Check(object)) {
        operand->value.i = object == Py_True;
        operand->code = CODE_BOOL | NUMBER_BIT;
        return 1;
    }
    if (PyLong_CheckExact(object)) {
        int overflow;
        operand->value.i = PyLong_AsLongLongAndOverflow(object, &overflow);
        if (overflow > 0) {
            operand->value.i = (long long)PyLong_AsUnsignedLongLong(object); /* or an OverflowError */
            if (PyErr_Occurred()) {
                return -1;
            }
            operand->code = CODE_U64 | NUMBER_BIT;
            return 1;
        }
        operand->code = PYTHON_INT | NUMBER_BIT;
        return overflow < 0 ? 0 : 1;
    }
    if (PyComplex_CheckExact(object)) {
        operand->value.d = PyComplex_RealAsDouble(object);
        operand->value.imaginary = PyComplex_ImagAsDouble(object);
        operand->code = PYTHON_COMPLEX | NUMBER_BIT;
        return 1;
    }
    if (PyArray_Check(object)) {
        return read_scalar_array((PyArrayObject *)object, operand);
    }
    if (PyArray_CheckScalar(object)) {
        PyObject *array = PyArray_FromScalar(object, NULL);
        int found = array == NULL ? -1 : read_scalar_array((PyArrayObject *)array, operand);
        Py_XDECREF(array);
        return found;
    }
    return 0;
}

int
read_operand(const Elementwise *self, PyObject *object, Operand *operand)
{
    operand->array = NULL;
    operand->is_single = operand->is_copy = 0;
    operand->value = (Value){.i = 0}; /* equal launches are equal to the last byte */
    if (!IS_ARRAY(object)) {
        int found = read_number(object, operand);
        if (found == 0) {
            PyErr_Format(PyExc_TypeError, "%U: an operand on cuda or a number is expected, not %s", self->name,
                         Py_TYPE(object)->tp_name);
        }
        return found > 0 ? 0 : -1;
    }
    Array *array = operand->array = (Array *)object;
    operand->code = array->code;
    operand->is_single = 1;
    for (int d = 0; d < array->nd && operand->is_single; d++) {
        operand->is_single = array->dims[d] == 1 || array->strides[d] == 0;
    }
    if (array->code == CODE_UNKNOWN) {
        PyErr_Format(PyExc_NotImplementedError, "%U of an array of this dtype on cuda", self->name);
        return -1;
    }
    return 0;
}

/* NumPy refuses a Python int that the dtype of the others does not hold. */
int
check_range(const Operand *operand, int cast)
{
    static const long long most[] = {1, 255, 65535, 4294967295LL, INT64_MAX, 127, 32767, 2147483647LL, INT64_MAX};
    if (operand->code != (PYTHON_INT | NUMBER_BIT) || cast > CODE_I64 || cast == CODE_BOOL) {
        return 0;
    }
    long long value = operand->value.i, lowest = cast >= CODE_I8 ? -most[cast] - 1 : 0;
    if (value < lowest || value > most[cast]) {
        PyErr_Format(PyExc_OverflowError, "Python integer %lld out of bounds for the dtype of the other operands", value);
        return -1;
    }
    return 0;
}
