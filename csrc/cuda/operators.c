/* Copies within the device, and what `+`, `<`, `@` and their like mean between arrays. */
#include "cuda/cuda.h"

enum { ADD, SUBTRACT, MULTIPLY, DIVIDE, FLOOR_DIVIDE, REMAINDER, NEGATIVE, ABSOLUTE, AND, OR, XOR, INVERT, POWER,
       LEFT_SHIFT, RIGHT_SHIFT, LESS, LESS_EQUAL, EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, COPY, MATMUL, OPERATORS };
static const char *const operator_names[] = {
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "negative", "absolute", "bitwise_and",
    "bitwise_or", "bitwise_xor", "invert", "power", "left_shift", "right_shift", "less", "less_equal", "equal",
    "not_equal", "greater", "greater_equal", "copy", "matmul"};
static PyObject *operators[OPERATORS];

int
read_operators(PyObject *table)
{
    for (int k = 0; k < OPERATORS; k++) {
        PyObject *found = PyDict_GetItemString(table, operator_names[k]);
        if (found == NULL) {
            PyErr_Format(PyExc_KeyError, "%s", operator_names[k]);
            return -1;
        }
        Py_XSETREF(operators[k], Py_NewRef(found));
    }
    return 0;
}

int
copy_into(Array *to, Array *value)
{
    PyObject *given[] = {(PyObject *)value}, *done;
    if (to->code != value->code) {
        PyErr_SetString(PyExc_TypeError, "a copy within cuda is between arrays of one dtype");
        return -1;
    }
    int writeable = to->is_writeable;
    to->is_writeable = 1; /* whoever may not write to it has asked before */
    done = elementwise_run(operators[COPY], given, (PyObject *)to);
    to->is_writeable = (char)writeable;
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

Array *
contiguous(Array *array)
{
    if (array->is_contiguous) {
        return (Array *)Py_NewRef(array);
    }
    use_gpu_of(array);
    Array *copy = array_new(array->dtype, array->nd, array->dims, NULL);
    if (copy != NULL && copy_into(copy, array) < 0) {
        Py_CLEAR(copy);
    }
    return copy;
}

static int
is_operand(PyObject *object)
{
    return IS_ARRAY(object) || PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyBool_Check(object) ||
           PyComplex_CheckExact(object) || PyArray_Check(object) || PyArray_CheckScalar(object);
}

static PyObject *
operate(int which, PyObject *a, PyObject *b, PyObject *out)
{
    PyObject *given[] = {a, b};
    if (!is_operand(a) || (b != NULL && !is_operand(b))) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    if (which == MATMUL) {
        return PyObject_Vectorcall(operators[MATMUL], given, 2, NULL);
    }
    return elementwise_or_leave(operators[which], given, out);
}

#define BINARY(name, which)                                                                                            \
    static PyObject *array_##name(PyObject *a, PyObject *b) { return operate(which, a, b, NULL); }
#define IN_PLACE(name, which)                                                                                          \
    static PyObject *array_i##name(PyObject *a, PyObject *b) { return operate(which, a, b, a); }
#define BOTH(name, which) BINARY(name, which) IN_PLACE(name, which)

BOTH(add, ADD)
BOTH(subtract, SUBTRACT)
BOTH(multiply, MULTIPLY)
BOTH(divide, DIVIDE)
BOTH(floor_divide, FLOOR_DIVIDE)
BOTH(remainder, REMAINDER)
BOTH(and, AND)
BOTH(or, OR)
BOTH(xor, XOR)
BOTH(left_shift, LEFT_SHIFT)
BOTH(right_shift, RIGHT_SHIFT)
BINARY(matmul, MATMUL)

static PyObject *array_negative(PyObject *a) { return operate(NEGATIVE, a, NULL, NULL); }
static PyObject *array_absolute(PyObject *a) { return operate(ABSOLUTE, a, NULL, NULL); }
static PyObject *array_invert(PyObject *a) { return operate(INVERT, a, NULL, NULL); }
static PyObject *array_power(PyObject *a, PyObject *b, PyObject *modulus) { return operate(POWER, a, b, NULL); }
static PyObject *array_ipower(PyObject *a, PyObject *b, PyObject *modulus) { return operate(POWER, a, b, a); }

PyObject *
array_compare(PyObject *a, PyObject *b, int op)
{
    static const int which[] = {LESS, LESS_EQUAL, EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL};
    return operate(which[op], a, b, NULL);
}

PyNumberMethods array_number = {
    .nb_add = array_add,
    .nb_subtract = array_subtract,
    .nb_multiply = array_multiply,
    .nb_true_divide = array_divide,
    .nb_floor_divide = array_floor_divide,
    .nb_remainder = array_remainder,
    .nb_negative = array_negative,
    .nb_absolute = array_absolute,
    .nb_invert = array_invert,
    .nb_power = array_power,
    .nb_and = array_and,
    .nb_or = array_or,
    .nb_xor = array_xor,
    .nb_lshift = array_left_shift,
    .nb_rshift = array_right_shift,
    .nb_matrix_multiply = array_matmul,
    .nb_inplace_add = array_iadd,
    .nb_inplace_subtract = array_isubtract,
    .nb_inplace_multiply = array_imultiply,
    .nb_inplace_true_divide = array_idivide,
    .nb_inplace_floor_divide = array_ifloor_divide,
    .nb_inplace_remainder = array_iremainder,
    .nb_inplace_power = array_ipower,
    .nb_inplace_and = array_iand,
    .nb_inplace_or = array_ior,
    .nb_inplace_xor = array_ixor,
    .nb_inplace_lshift = array_ileft_shift,
    .nb_inplace_rshift = array_iright_shift,
};
