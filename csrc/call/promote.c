/* Operands of different dtypes, cast to the dtype that they have in common: `promote`, `promote_number` and
 * `float_array` of ops/arguments/operands.py.
 *
 * The rules are Python's. Which dtype operands have in common is asked once for each combination of what decides it:
 * the operation's policy, the default dtype, and of each operand its dtype and whether it has dimensions, has none or is
 * a number. Half precision, and dtypes that are not NumPy's own objects (of another byte order, or with metadata), are left to
 * Python.
 */
#include "call/operation.h"

/* ---- the common dtype */

/* The classes of operands, the higher of which change a common dtype only by their kind. */
enum rank { WITH_DIMENSIONS, WITHOUT_DIMENSIONS, NUMBER };

/* What decides a common dtype, in bits: RANK_BITS and TYPE_BITS for each operand; in front of them, so that there is
 * room for MOST_EDGES, the type number of the default dtype and the policy. */
#define RANK_BITS 2
#define TYPE_BITS 5

typedef npy_uint64 Combination;

/* The answers given so far: each has one entry, which a later one takes over. */
#define ANSWERS 512

static struct {
    Combination combination; /* 0: none */
    PyArray_Descr *dtype;
} answers[ANSWERS];

static PyObject *name_is_number, *policies[4]; /* by enum Promotion; the first is not used */

static int
find_names(void)
{
    name_is_number = PyUnicode_InternFromString("is_number");
    policies[PROMOTION_SAME] = PyUnicode_InternFromString("same");
    policies[PROMOTION_FLOAT] = PyUnicode_InternFromString("float");
    policies[PROMOTION_NUMBERS] = PyUnicode_InternFromString("numbers");
    return PyErr_Occurred() ? -1 : 0;
}

/* Whether a dtype is NumPy's own of its type number. */
static int
is_builtin(PyArray_Descr *dtype)
{
    static PyArray_Descr *builtin[1 << TYPE_BITS];
    int number = dtype->type_num;
    if (number < 0 || number > NPY_CLONGDOUBLE) {
        return 0;
    }
    if (builtin[number] == NULL) {
        builtin[number] = PyArray_DescrFromType(number);
    }
    return dtype == builtin[number];
}

/* The dtype of floats made from Python numbers (borrowed), or NULL if it is of half precision or not NumPy's own. */
static PyArray_Descr *
default_dtype(void)
{
    if (core.default_dtype == NULL || !PyList_CheckExact(core.default_dtype) ||
        PyList_GET_SIZE(core.default_dtype) != 1) {
        return NULL;
    }
    PyObject *dtype = PyList_GET_ITEM(core.default_dtype, 0);
    if (!PyArray_DescrCheck(dtype) || is_narrow_type(((PyArray_Descr *)dtype)->type_num)) {
        return NULL;
    }
    return is_builtin((PyArray_Descr *)dtype) ? (PyArray_Descr *)dtype : NULL;
}

/* Whether a tensor stands for a Python number (Rare.is_number); -1 with an exception. */
static int
stands_for_number(PyObject *tensor)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    PyObject *rare = extra == Py_None ? Py_None : SLOT(extra, core.e_rare);
    if (rare == NULL || rare == Py_None) {
        return 0;
    }
    PyObject *answer = PyObject_GetAttr(rare, name_is_number);
    int is_number = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return is_number;
}

static Combination
with_operand(Combination combination, int type, enum rank rank)
{
    return (combination << TYPE_BITS | (unsigned)type) << RANK_BITS | (unsigned)rank;
}

/* Ask Python, if it has not been asked yet, for the common dtype of operands, tensors or numbers; borrowed. NULL without
 * an exception: Python has to promote these. */
static PyArray_Descr *
answer_to(Combination combination, enum Promotion policy, PyObject *const *operands, Py_ssize_t count)
{
    size_t entry = (combination * 0x9E3779B97F4A7C15u) >> 55; /* the highest nine bits: below ANSWERS */
    if (answers[entry].combination == combination) {
        return answers[entry].dtype;
    }
    PyObject *given = PyTuple_New(count);
    for (Py_ssize_t k = 0; given != NULL && k < count; k++) {
        PyTuple_SET_ITEM(given, k, Py_NewRef(operands[k]));
    }
    PyObject *dtype = given == NULL ? NULL
                                    : PyObject_CallFunctionObjArgs(core.common_dtype, given, policies[policy], NULL);
    Py_XDECREF(given);
    if (dtype == NULL) {
        PyErr_Clear(); /* Python meets the same error */
        return NULL;
    }
    if (!PyArray_DescrCheck(dtype) || !is_builtin((PyArray_Descr *)dtype)) {
        Py_DECREF(dtype);
        return NULL;
    }
    PyArray_Descr *former = answers[entry].dtype;
    answers[entry].combination = combination;
    answers[entry].dtype = (PyArray_Descr *)dtype; /* NumPy keeps it: it outlives the entry */
    Py_XDECREF(former);
    return (PyArray_Descr *)dtype;
}

/* The beginning of a combination: 0 if Python has to promote. */
static Combination
combination_of(enum Promotion policy)
{
    PyArray_Descr *floats = default_dtype();
    if (floats == NULL || core.common_dtype == NULL || policy == PROMOTION_NONE ||
        (name_is_number == NULL && find_names() < 0)) {
        PyErr_Clear();
        return 0;
    }
    return (Combination)(1 + floats->type_num) << 2 | policy;
}

/* ---- casting */

/* Conversions of few numbers that lie one after the other, without NumPy's machinery. Not inlined, so that the compiler
 * moves no arithmetic across the looks at the processor's notes. */
#define FEW_NUMBERS 1024

#define CONVERT(from, to)                                                                   \
    static __attribute__((noinline)) void convert_##from##_##to(const void *x, void *y, npy_intp n) \
    {                                                                                       \
        for (npy_intp i = 0; i < n; i++) {                                                  \
            ((to *)y)[i] = (to)((const from *)x)[i];                                        \
        }                                                                                   \
    }

CONVERT(npy_bool, float)
CONVERT(npy_bool, double)
CONVERT(npy_int32, float)
CONVERT(npy_int32, double)
CONVERT(npy_int64, float)
CONVERT(npy_int64, double)
CONVERT(float, double)
CONVERT(double, float)

typedef void (*Conversion)(const void *from, void *to, npy_intp n);

static Conversion
conversion_between(int from, int to)
{
    if (to == NPY_DOUBLE) {
        return from == NPY_FLOAT   ? convert_float_double
               : from == NPY_INT64 ? convert_npy_int64_double
               : from == NPY_INT32 ? convert_npy_int32_double
               : from == NPY_BOOL  ? convert_npy_bool_double
                                   : NULL;
    }
    if (to == NPY_FLOAT) {
        return from == NPY_DOUBLE  ? convert_double_float
               : from == NPY_INT64 ? convert_npy_int64_float
               : from == NPY_INT32 ? convert_npy_int32_float
               : from == NPY_BOOL  ? convert_npy_bool_float
                                   : NULL;
    }
    return NULL;
}

/* Convert the numbers here; whether that was done. */
static int
convert_few(PyArrayObject *from, PyArrayObject *to)
{
    int plain = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
    Conversion convert = conversion_between(PyArray_TYPE(from), PyArray_TYPE(to));
    if (convert == NULL || PyArray_SIZE(from) > FEW_NUMBERS || (PyArray_FLAGS(from) & plain) != plain ||
        (PyArray_FLAGS(to) & plain) != plain) {
        return 0;
    }
    convert(PyArray_DATA(from), PyArray_DATA(to), PyArray_SIZE(from));
    return 1;
}

/* Put `array.astype(dtype)` in the place of an array that is owned; -1 with an exception. */
static int
cast(PyObject **array, PyArray_Descr *dtype)
{
    PyArrayObject *from = (PyArrayObject *)*array;
    if (PyArray_DESCR(from) == dtype) {
        return 0;
    }
    Py_INCREF(dtype);
    PyArrayObject *to = (PyArrayObject *)PyArray_NewLikeArray(from, NPY_KEEPORDER, dtype, 0);
    if (to == NULL || (!convert_few(from, to) && PyArray_CopyInto(to, from) < 0)) {
        Py_XDECREF(to);
        return -1;
    }
    Py_SETREF(*array, (PyObject *)to);
    return 0;
}

/* ---- promoting */

int
promote_operands(const Operation *self, const Form *form, PyObject *const *values, PyObject **arguments)
{
    PyObject *operands[MOST_EDGES];
    int count = 0;
    Combination combination = combination_of(form->policy);
    for (int k = 0; combination && k < self->count; k++) {
        if (!(form->taking_part >> k & 1)) {
            continue;
        }
        PyArrayObject *array = (PyArrayObject *)arguments[k];
        int is_number = stands_for_number(values[k]);
        if (is_number < 0) {
            return -1;
        }
        if (count == MOST_EDGES || !is_builtin(PyArray_DESCR(array))) {
            return 0;
        }
        operands[count++] = values[k];
        combination = with_operand(combination, PyArray_TYPE(array),
                                   is_number                  ? NUMBER
                                   : PyArray_NDIM(array) == 0 ? WITHOUT_DIMENSIONS
                                                              : WITH_DIMENSIONS);
    }
    PyArray_Descr *dtype = combination ? answer_to(combination, form->policy, operands, count) : NULL;
    for (int k = 0; dtype != NULL && k < self->count; k++) {
        if (form->taking_part >> k & 1 && cast(&arguments[k], dtype) < 0) {
            return -1;
        }
    }
    return dtype != NULL;
}

int
promote_beside_number(const Operation *self, const Form *form, PyObject **arguments)
{
    PyObject *number = arguments[self->number];
    PyArrayObject *array = (PyArrayObject *)arguments[form->settled];
    Combination combination = is_builtin(PyArray_DESCR(array)) ? combination_of(form->policy) : 0;
    if (!combination) {
        return 0;
    }
    combination = with_operand(combination, PyArray_TYPE(array),
                               PyArray_NDIM(array) == 0 ? WITHOUT_DIMENSIONS : WITH_DIMENSIONS);
    combination = with_operand(combination, PyFloat_CheckExact(number) ? NPY_DOUBLE : NPY_INT64, NUMBER);
    PyObject *tensor = new_tensor(Py_NewRef(array), Py_None, Py_None);
    if (tensor == NULL) {
        return -1;
    }
    PyObject *const operands[] = {tensor, number};
    PyArray_Descr *dtype = answer_to(combination, form->policy, operands, 2);
    Py_DECREF(tensor);
    return dtype == NULL ? 0 : cast(&arguments[form->settled], dtype) < 0 ? -1 : 1;
}

int
make_floats(const Operation *self, const Form *form, PyObject **arguments)
{
    PyArray_Descr *floats = default_dtype();
    for (int k = 0; floats != NULL && k < form->edge_count; k++) {
        int argument = form->edges[k];
        if (argument < 0 || self->inputs[argument] != 1) {
            continue;
        }
        PyArrayObject *array = (PyArrayObject *)arguments[argument];
        if (!PyArray_ISFLOAT(array) && !PyArray_ISCOMPLEX(array) && cast(&arguments[argument], floats) < 0) {
            return -1;
        }
    }
    return floats != NULL;
}
