/* Formulas: the lambdas of the declarations, as trees that are evaluated without the interpreter.
 *
 * Two things make them faster than Python's own evaluation, beside having no bytecode: a sum, difference, product or
 * quotient of small arrays is computed by small_arrays.c, without NumPy's machinery; and one with an intermediate result
 * writes into that result instead of asking for memory.
 */
#include "device_arrays.h"
#include "formula/blocks.h"
#include "formula/small_arrays.h"
#include "quiet.h"

enum kind { ARGUMENT, CONSTANT, BINARY, UNARY, CALL, ATTRIBUTE, ITEM, CONDITION, COMPARE, AND, OR, NOT, TUPLE, CONJ, BLOCKS };

#define SHORT_ROW 32      /* elements */
#define MANY_ROWS 1000
#define MANY_FOR_TWIN 128 /* elements: twins are for few */
#define MANY_FOR_ARITHMETIC 1025

#define NEVER ((npy_intp)1 << 60)

static npy_intp large = 32768; /* elements from which on a formula is evaluated in blocks */
static int small = 1;          /* whether one may be that has fewer */

struct Expression {
    enum kind kind;
    int symbol;         /* of BINARY, UNARY and COMPARE, of a CALL that is + - * / (else -1); the number of an ARGUMENT;
                           from how many elements on BLOCKS, that are not large, may be better than what they stand for,
                           unless something is broadcast */
    int count;          /* how many parts */
    PyObject *constant; /* of CONSTANT; the name of an ATTRIBUTE; the names of a CALL's keyword arguments, or NULL; the
                           function of BLOCKS */
    Expression *parts[];
};

/* ---- compiling */

/* Numbers of operators: the first of these are those of arithmetic() and small_arrays.c. */
enum { ARITHMETIC = 4, POWER = 4, NEGATIVE = 0, POSITIVE = 1 };

static const char *const binary_names[] = {"+", "-", "*", "/", "**", "@", "//", "%", "&", "|", "^", "<<", ">>", NULL};
static const binaryfunc binary_functions[] = {
    PyNumber_Add, PyNumber_Subtract, PyNumber_Multiply, PyNumber_TrueDivide, NULL, PyNumber_MatrixMultiply,
    PyNumber_FloorDivide, PyNumber_Remainder, PyNumber_And, PyNumber_Or, PyNumber_Xor, PyNumber_Lshift,
    PyNumber_Rshift};
static const char *const unary_names[] = {"-", "+", "~", NULL};
static const char *const compare_names[] = {"<", "<=", "==", "!=", ">", ">=", "is", "is not", "in", "not in", NULL};

static int
position(const char *name, const char *const *names)
{
    for (int k = 0; names[k] != NULL; k++) {
        if (strcmp(name, names[k]) == 0) {
            return k;
        }
    }
    PyErr_Format(PyExc_ValueError, "no operator is called %s", name);
    return -1;
}

void
expression_free(Expression *expression)
{
    if (expression != NULL) {
        for (int k = 0; k < expression->count; k++) {
            expression_free(expression->parts[k]);
        }
        Py_XDECREF(expression->constant);
        PyMem_Free(expression);
    }
}

static Expression *
with_parts(enum kind kind, PyObject *description, Py_ssize_t first)
{
    Py_ssize_t count = PyTuple_GET_SIZE(description) - first;
    Expression *made = PyMem_Calloc(1, sizeof(Expression) + count * sizeof(Expression *));
    if (made == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    made->kind = kind;
    made->count = (int)count;
    int status = Py_EnterRecursiveCall(" in a formula") ? -1 : 0;
    for (Py_ssize_t k = 0; status == 0 && k < count; k++) {
        made->parts[k] = expression_new(PyTuple_GET_ITEM(description, first + k));
        if (made->parts[k] == NULL) {
            Py_LeaveRecursiveCall();
            status = -1;
        }
    }
    if (status < 0) {
        expression_free(made);
        return NULL;
    }
    Py_LeaveRecursiveCall();
    return made;
}

/* The number of an argument; -1 with an exception. */
static int
argument_number(PyObject *number)
{
    long found = PyLong_AsLong(number);
    if (!PyErr_Occurred() && (found < 0 || found > 255)) {
        PyErr_Format(PyExc_ValueError, "no argument of a formula has the number %ld", found);
    }
    return PyErr_Occurred() ? -1 : (int)found;
}

int
expression_reach(const Expression *expression)
{
    int reach = expression->kind == ARGUMENT ? expression->symbol + 1 : 0;
    for (int k = 0; k < expression->count; k++) {
        int of_part = expression_reach(expression->parts[k]);
        reach = of_part > reach ? of_part : reach;
    }
    return reach;
}

/* Whether a BLOCKS has only arguments behind the formula that it stands for, and not too many. */
static int
has_only_arguments(const Expression *expression)
{
    int found = expression->count - 1 <= MOST_INPUTS;
    for (int k = 1; k < expression->count; k++) {
        found &= expression->parts[k]->kind == ARGUMENT;
    }
    return found;
}

/* Which of + - * / a CALL with two operands is; -1: none. */
static int
arithmetic_symbol(const Expression *call)
{
    int is_plain_call = call->constant == NULL && call->count == 3 && call->parts[0]->kind == CONSTANT;
    return is_plain_call ? symbol_of(call->parts[0]->constant) : -1;
}

/* What a formula costs at least, in arithmetic of small arrays: other array functions cost twice as much. A conditional
 * part is the lesser one. */
static int
least_cost(const Expression *formula)
{
    int is_call = formula->kind == CALL || formula->kind == BINARY || formula->kind == UNARY || formula->kind == COMPARE;
    int is_arithmetic = (formula->kind == CALL || formula->kind == BINARY) && formula->symbol >= 0 &&
                        formula->symbol < ARITHMETIC;
    int cost = is_arithmetic ? 1 : is_call ? 2 : 0;
    if (formula->kind == CONDITION) {
        int one = least_cost(formula->parts[1]), other = least_cost(formula->parts[2]);
        return one < other ? one : other;
    }
    for (int k = 0; k < formula->count; k++) {
        cost += least_cost(formula->parts[k]);
    }
    return cost;
}

/* From how many elements on a formula that is not large is better evaluated in blocks. */
static int
least_in_blocks(const Expression *formula)
{
    PyObject *function = formula->kind == CALL ? formula->parts[0]->constant : NULL;
    if (function != NULL && is_twin_of_more(function)) {
        return MANY_FOR_TWIN;
    }
    int cost = function != NULL && PyFunction_Check(function) ? INT_MAX : least_cost(formula);
    return cost > 3 ? 1 : cost > 2 ? MANY_FOR_ARITHMETIC : INT_MAX;
}

/* ("argument", number), ("constant", object), (kind, operator or name, part, ...) or (kind, part, ...);
 * ("blocks", function, formula, argument, ...): the formula, or what the function gives for large arrays among these */
Expression *
expression_new(PyObject *description)
{
    static const struct {
        const char *name;
        enum kind kind;
        const char *const *symbols;   /* what the second item is one of */
        int first;                    /* where the parts begin */
        int count;                    /* how many there are; -1: at least one, -2: any number */
    } known[] = {{"argument", ARGUMENT, NULL, 2, 0}, {"constant", CONSTANT, NULL, 2, 0},
                 {"binary", BINARY, binary_names, 2, 2}, {"unary", UNARY, unary_names, 2, 1},
                 {"call", CALL, NULL, 2, -1}, {"attribute", ATTRIBUTE, NULL, 2, 1}, {"item", ITEM, NULL, 1, 2},
                 {"condition", CONDITION, NULL, 1, 3}, {"compare", COMPARE, compare_names, 2, 2},
                 {"and", AND, NULL, 1, 2}, {"or", OR, NULL, 1, 2}, {"not", NOT, NULL, 1, 1},
                 {"tuple", TUPLE, NULL, 1, -2}, {"conj", CONJ, NULL, 1, 2}, {"blocks", BLOCKS, NULL, 2, -1}};
    if (!PyTuple_Check(description) || PyTuple_GET_SIZE(description) < 1) {
        PyErr_SetString(PyExc_TypeError, "a formula is described by tuples");
        return NULL;
    }
    const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(description, 0));
    if (name == NULL) {
        return NULL;
    }
    for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
        if (strcmp(name, known[k].name) != 0) {
            continue;
        }
        Py_ssize_t parts = PyTuple_GET_SIZE(description) - known[k].first;
        if (known[k].count < 0 ? parts < 2 + known[k].count : parts != known[k].count) {
            PyErr_Format(PyExc_ValueError, "%s has %zd parts in a formula", name, parts);
            return NULL;
        }
        Expression *made = with_parts(known[k].kind, description, known[k].first);
        if (made == NULL || known[k].first == 1) {
            return made;
        }
        PyObject *second = PyTuple_GET_ITEM(description, 1);
        if (known[k].symbols != NULL) {
            const char *symbol = PyUnicode_AsUTF8(second);
            made->symbol = symbol == NULL ? -1 : position(symbol, known[k].symbols);
        }
        else if (known[k].kind == ARGUMENT) {
            made->symbol = argument_number(second);
        }
        else if (known[k].kind == CALL && second != Py_None &&
                 (!PyTuple_Check(second) || PyTuple_GET_SIZE(second) >= parts)) {
            PyErr_SetString(PyExc_ValueError, "a call in a formula names more arguments than it has");
        }
        else if (!(known[k].kind == CALL && second == Py_None)) {
            made->constant = Py_NewRef(second);
        }
        if (known[k].kind == CALL) {
            made->symbol = arithmetic_symbol(made);
        }
        if (known[k].kind == BLOCKS && !has_only_arguments(made)) {
            PyErr_SetString(PyExc_ValueError, "a formula in blocks is given arguments, not more than twelve");
        }
        else if (known[k].kind == BLOCKS) {
            made->symbol = least_in_blocks(made->parts[0]);
        }
        if (PyErr_Occurred()) {
            expression_free(made);
            return NULL;
        }
        return made;
    }
    PyErr_Format(PyExc_ValueError, "no part of a formula is called %s", name);
    return NULL;
}

/* ---- evaluating */

/* Whether left (+ - * /) right can be written into `into`, one of the two. */
static int
fits_into(PyObject *into, PyObject *other)
{
    double number;
    if (!is_temporary(into) || !is_float(into)) {
        return 0;
    }
    PyArrayObject *array = (PyArrayObject *)into;
    if (!PyArray_CheckExact(other)) {
        return as_number(other, &number);
    }
    return PyArray_DESCR((PyArrayObject *)other) == PyArray_DESCR(array) &&
           (PyArray_NDIM((PyArrayObject *)other) == 0 || same_shape((PyArrayObject *)other, array));
}

static inline int
is_array_or_number(PyObject *value)
{
    return PyArray_CheckExact(value) || PyFloat_CheckExact(value) || PyLong_CheckExact(value);
}

/* left (+ - * /) right; both are taken over. */
static PyObject *
arithmetic(int symbol, PyObject *left, PyObject *right)
{
    PyObject *result = NULL;
    int arrays = PyArray_CheckExact(left) || PyArray_CheckExact(right);
    if (arrays) {
        result = small_result(symbol, left, right);
    }
    if (result == NULL && arrays && is_array_or_number(left) && is_array_or_number(right)) {
        PyObject *operands[3] = {left, right, NULL};
        operands[2] = fits_into(left, right) ? left : fits_into(right, left) ? right : NULL;
        result = quiet_call(ufuncs[symbol], operands, operands[2] == NULL ? 2 : 3, NULL);
    }
    else if (result == NULL) {
        result = binary_functions[symbol](left, right);
    }
    Py_DECREF(left);
    Py_DECREF(right);
    return result;
}

/* The value (borrowed) of a part that need not be computed; otherwise NULL. */
static inline PyObject *
given_value(const Expression *part, PyObject *const *arguments)
{
    return part->kind == ARGUMENT ? arguments[part->symbol] : part->kind == CONSTANT ? part->constant : NULL;
}

static PyObject *
call_value(const Expression *expression, PyObject *const *arguments)
{
    PyObject *values[16], *computed[16];
    PyObject *result = NULL;
    int found = 0, owned = 0;
    if (expression->count > 16) {
        PyErr_SetString(PyExc_SystemError, "a call in a formula has too many arguments");
        return NULL;
    }
    for (; found < expression->count; found++) {
        values[found] = given_value(expression->parts[found], arguments);
        if (values[found] != NULL) {
            continue;
        }
        values[found] = computed[owned] = expression_value(expression->parts[found], arguments);
        if (computed[owned] == NULL) {
            goto done;
        }
        owned++;
    }
    Py_ssize_t named = expression->constant == NULL ? 0 : PyTuple_GET_SIZE(expression->constant);
    result = quiet_call(values[0], values + 1, (expression->count - 1 - named), expression->constant);
done:
    while (owned > 0) {
        Py_DECREF(computed[--owned]);
    }
    return result;
}

static PyObject *
compare(int symbol, PyObject *left, PyObject *right)
{
    switch (symbol) {
    case 6:
        return PyBool_FromLong(left == right);
    case 7:
        return PyBool_FromLong(left != right);
    case 8:
    case 9: {
        int found = PySequence_Contains(right, left);
        return found < 0 ? NULL : PyBool_FromLong(found == (symbol == 8));
    }
    case 2:
        if (left == right && PyLong_CheckExact(left)) {
            Py_RETURN_TRUE;
        } /* fall through */
    default: /* in the order of Py_LT, Py_LE, Py_EQ, Py_NE, Py_GT, Py_GE */
        return PyObject_RichCompare(left, right, symbol);
    }
}

/* How many elements arrays have that are broadcast against each other. */
static npy_intp
broadcast_size(PyObject *const *values, int count)
{
    npy_intp size = 1;
    for (int d = 1, more = 1; more; d++) { /* the d-th dimension from the end */
        npy_intp longest = 1;
        more = 0;
        for (int k = 0; k < count; k++) {
            PyArrayObject *array = (PyArrayObject *)values[k];
            if (PyArray_CheckExact(values[k]) && PyArray_NDIM(array) >= d) {
                npy_intp length = PyArray_DIM(array, PyArray_NDIM(array) - d);
                longest = length > longest ? length : longest;
                more = 1;
            }
        }
        size *= longest;
    }
    return size;
}

/* Whether there are many short rows, to which something is broadcast: a ufunc's loop would start again with each. */
static int
have_short_rows(PyObject *const *values, int count)
{
    npy_intp row = 1, least = NPY_MAX_INTP;
    for (int k = 0; k < count; k++) {
        PyArrayObject *array = (PyArrayObject *)values[k];
        if (PyArray_CheckExact(values[k]) && PyArray_NDIM(array) > 0) {
            npy_intp size = count_of(array), length = PyArray_DIM(array, PyArray_NDIM(array) - 1);
            least = size < least ? size : least;
            row = length > row ? length : row;
        }
    }
    if (row == 1 || row >= SHORT_ROW) {
        return 0;
    }
    npy_intp size = broadcast_size(values, count);
    return least < size && size >= row * MANY_ROWS;
}

/* Whether the result of an elementwise function of these is large: one of them is, or two that are not alike make it
 * so; or it has many short rows. */
static int
are_large(PyObject *const *values, int count)
{
    npy_intp largest = 0;
    double product = 1;
    for (int k = 0; k < count; k++) {
        if (PyArray_CheckExact(values[k])) {
            npy_intp size = count_of((PyArrayObject *)values[k]);
            product *= (double)size;
            largest = size > largest ? size : largest;
        }
    }
    return largest >= large || (product >= (double)large && broadcast_size(values, count) >= large) ||
           (product >= 2 * MANY_ROWS && have_short_rows(values, count));
}

/* set_large(elements): from how many on formulas are evaluated in blocks, for tests; returns what it was before. A very
 * large number keeps small ones from it, too. */
PyObject *
set_large(PyObject *module, PyObject *elements)
{
    npy_intp wanted = PyLong_AsSsize_t(elements), before = large;
    if (wanted == -1 && PyErr_Occurred()) {
        return NULL;
    }
    large = wanted;
    small = wanted < NEVER;
    return PyLong_FromSsize_t(before);
}

/* The arguments of a formula in blocks, and whether they are large. */
static int
find_large(const Expression *expression, PyObject *const *arguments, PyObject **values)
{
    for (int k = 0; k < expression->count - 1; k++) {
        values[k] = arguments[expression->parts[k + 1]->symbol];
    }
    return are_large(values, expression->count - 1);
}

PyObject *
program_call_of(const Expression *expression, PyObject *const *arguments)
{
    PyObject *values[MOST_INPUTS];
    if (expression->kind != BLOCKS || !find_large(expression, arguments, values)) {
        return NULL;
    }
    return program_and_inputs(expression->constant, values, expression->count - 1);
}

PyObject *
narrow_value(const Expression *expression, PyObject *const *arguments)
{
    PyObject *values[MOST_INPUTS];
    if (expression->kind != BLOCKS || !find_large(expression, arguments, values)) {
        return NULL;
    }
    PyObject *result = quiet_call(expression->constant, values, expression->count - 1, NULL);
    if (result == Py_NotImplemented) {
        Py_CLEAR(result);
    }
    return result;
}

/* Whether an argument is an array of so many elements. */
static int
is_one_of(PyObject *const *values, int count, npy_intp least)
{
    for (int k = 0; k < count; k++) {
        if (PyArray_CheckExact(values[k]) && count_of((PyArrayObject *)values[k]) >= least) {
            return 1;
        }
    }
    return 0;
}

/* The value of a formula; if its arguments are large, or it is worth it, in blocks. */
static PyObject *
value_in_blocks(const Expression *expression, PyObject *const *arguments)
{
    PyObject *values[MOST_INPUTS];
    int count = expression->count - 1;
    if (find_large(expression, arguments, values)) {
        PyObject *result = quiet_call(expression->constant, values, count, NULL);
        if (result != Py_NotImplemented) {
            return result;
        }
        Py_DECREF(result);
    }
    else if (small && (is_one_of(values, count, expression->symbol) || are_broadcast(values, count))) {
        PyObject *result = value_of_small(expression->constant, values, count);
        if (result != NULL || PyErr_Occurred()) {
            return result;
        }
    }
    return expression_value(expression->parts[0], arguments);
}

/* The argument that an operand is, itself or in `other if alpha == 1 else ...`; NULL: it has to be computed. */
static PyObject *
argument_itself(const Expression *operand, PyObject *const *arguments)
{
    if (operand->kind == CONDITION) {
        const Expression *test = operand->parts[0];
        if (test->kind != COMPARE || test->symbol != Py_EQ || test->parts[0]->kind != ARGUMENT ||
            test->parts[1]->kind != CONSTANT || !PyLong_CheckExact(test->parts[1]->constant) ||
            arguments[test->parts[0]->symbol] != test->parts[1]->constant) {
            return NULL;
        }
        operand = operand->parts[1];
    }
    return operand->kind == ARGUMENT ? arguments[operand->symbol] : NULL;
}

PyObject *
arithmetic_value(const Expression *expression, PyObject *const *arguments)
{
    const Expression *formula = expression->kind == BLOCKS ? expression->parts[0] : expression;
    int first = formula->kind == CALL, is_arithmetic = first || formula->kind == BINARY;
    if (!is_arithmetic || formula->symbol < 0 || formula->symbol >= ARITHMETIC) {
        return NULL;
    }
    PyObject *left = argument_itself(formula->parts[first], arguments);
    PyObject *right = argument_itself(formula->parts[first + 1], arguments);
    return left == NULL || right == NULL ? NULL : new_small_result(formula->symbol, left, right);
}

static PyObject *
tuple_value(const Expression *expression, PyObject *const *arguments)
{
    PyObject *result = PyTuple_New(expression->count);
    for (int k = 0; result != NULL && k < expression->count; k++) {
        PyObject *item = expression_value(expression->parts[k], arguments);
        if (item == NULL) {
            Py_CLEAR(result);
        }
        else {
            PyTuple_SET_ITEM(result, k, item);
        }
    }
    return result;
}

/* CONDITION, AND, OR: parts of which not all are computed */
static PyObject *
chosen_value(const Expression *expression, PyObject *const *arguments)
{
    PyObject *first = expression_value(expression->parts[0], arguments);
    if (first == NULL) {
        return NULL;
    }
    int truth = PyObject_IsTrue(first);
    if (truth >= 0 && expression->kind != CONDITION && truth == (expression->kind == OR)) {
        return first;
    }
    Py_DECREF(first);
    if (truth < 0) {
        return NULL;
    }
    int next = expression->kind == CONDITION && !truth ? 2 : 1;
    return expression_value(expression->parts[next], arguments);
}

static PyObject *
unary(int symbol, PyObject *operand)
{
    if (symbol == NEGATIVE && PyArray_CheckExact(operand)) {
        PyObject *operands[2] = {operand, operand};
        return PyObject_Vectorcall(negative, operands, is_temporary(operand) && is_float(operand) ? 2 : 1, NULL);
    }
    return symbol == NEGATIVE   ? PyNumber_Negative(operand)
           : symbol == POSITIVE ? PyNumber_Positive(operand)
                                : PyNumber_Invert(operand);
}

/* BINARY, ITEM, COMPARE */
static PyObject *
value_of_two(const Expression *expression, PyObject *left, PyObject *right)
{
    int symbol = expression->symbol;
    if (expression->kind == ITEM) {
        return PyObject_GetItem(left, right);
    }
    if (expression->kind == COMPARE) {
        return compare(symbol, left, right);
    }
    PyObject *context = is_array_or_number(left) && is_array_or_number(right) ? enter_quiet() : NULL;
    PyObject *result = symbol == POWER ? PyNumber_Power(left, right, Py_None) : binary_functions[symbol](left, right);
    leave_quiet(context);
    return result;
}

static inline int
is_real(PyObject *value)
{
    if (PyArray_CheckExact(value) || is_device_array(value)) {
        return !PyTypeNum_ISCOMPLEX(dtype_of(value)->type_num);
    }
    return PyFloat_CheckExact(value) || PyLong_CheckExact(value);
}

PyObject *
expression_value(const Expression *expression, PyObject *const *arguments)
{
    switch (expression->kind) {
    case BLOCKS:
        return value_in_blocks(expression, arguments);
    case ARGUMENT:
        return Py_NewRef(arguments[expression->symbol]);
    case CONSTANT:
        return Py_NewRef(expression->constant);
    case CALL:
        return call_value(expression, arguments);
    case TUPLE:
        return tuple_value(expression, arguments);
    case CONDITION:
    case AND:
    case OR:
        return chosen_value(expression, arguments);
    default:
        break;
    }
    PyObject *b = NULL, *result = NULL, *a = expression_value(expression->parts[0], arguments);
    if (a == NULL || (expression->kind == CONJ && is_real(a))) {
        return a;
    }
    if (expression->count > 1) {
        b = expression_value(expression->parts[1], arguments);
        if (b == NULL) {
            Py_DECREF(a);
            return NULL;
        }
        if (expression->kind == BINARY && expression->symbol < ARITHMETIC) {
            return arithmetic(expression->symbol, a, b);
        }
    }
    switch (expression->kind) {
    case UNARY:
        result = unary(expression->symbol, a);
        break;
    case ATTRIBUTE:
        result = PyObject_GetAttr(a, expression->constant);
        break;
    case NOT: {
        int truth = PyObject_IsTrue(a);
        result = truth < 0 ? NULL : PyBool_FromLong(!truth);
        break;
    }
    case CONJ: /* the function comes second */
        result = PyObject_CallOneArg(b, a);
        break;
    default:
        result = value_of_two(expression, a, b);
    }
    Py_XDECREF(b);
    Py_DECREF(a);
    return result;
}
