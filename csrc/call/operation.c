/* Operation: the function of an operation (`function_of` and `apply` of ops/declare/apply.py), with its usual case in C.
 *
 * The usual case: tensors on the CPU, and no interceptor. Beside it there are half precision, arrays on GPUs, batches of
 * vmap (batched.c), and calls that a profile looks at. Everything else goes to the Python function, which an Operation
 * passes for (its attributes are that one's).
 */
#include "call/operation.h"
#include "kernels/casts.h"
#include "kernels/copies.h"
#include "quiet.h"
#include "rows.h"

static PyObject *name_out, *name_name;

/* ---- calling */

int
bind_arguments(const Operation *self, PyObject *const *given, Py_ssize_t count, PyObject *names, PyObject **values,
               PyObject **out)
{
    if (count > self->positional) {
        return 0;
    }
    memcpy(values, given, count * sizeof(PyObject *));
    memset(values + count, 0, (self->count - count) * sizeof(PyObject *));
    for (Py_ssize_t k = 0; names != NULL && k < PyTuple_GET_SIZE(names); k++) {
        PyObject *name = PyTuple_GET_ITEM(names, k);
        int argument = 0;
        if (out != NULL && name == name_out) {
            *out = given[count + k];
            continue;
        }
        while (argument < self->count && self->names[argument] != name) { /* both are interned */
            argument++;
        }
        if (argument == self->count || values[argument] != NULL) {
            return 0;
        }
        values[argument] = given[count + k];
    }
    for (int k = 0; k < self->count; k++) {
        if (values[k] == NULL) {
            values[k] = self->defaults[k];
            if (values[k] == NULL) {
                return 0;
            }
        }
    }
    return 1;
}

/* Whether Python has to look at an option: it may be a dtype of half precision, or its class; or it is a scalar of
 * NumPy's, or a tensor, which the Binder makes a Python number. */
static int
is_unusual_option(PyObject *value, int takes_narrow)
{
    if (value == Py_None || PyLong_Check(value) || PyTuple_Check(value) || PyFloat_CheckExact(value)) {
        return 0;
    }
    return PyType_Check(value) || PyArray_IsScalar(value, Generic) || is_tensor(value) ||
           (!takes_narrow && PyArray_DescrCheck(value) && is_narrow_type(((PyArray_Descr *)value)->type_num));
}

/* An option as forwards take it: a dtype as NumPy's, of half precision where they take it. Returns 0 if Python has to look
 * at it. */
int
take_option(PyObject **option, int takes_narrow)
{
    if (Py_IS_TYPE(*option, core.PublicDtype)) {
        *option = SLOT(*option, core.d_numpy);
    }
    return !is_unusual_option(*option, takes_narrow);
}

int
find_arrays(const Operation *self, const Form *form, int number, PyObject *const *values, PyObject **arguments,
            int *by_rows)
{
    PyArray_Descr *dtype = NULL;
    int found = 1;
    *by_rows = 1;
    for (int k = 0; k < self->count; k++) {
        PyObject *value = arguments[k] = values[k];
        if (!self->inputs[k] || k == number || (self->inputs[k] == 2 && value == Py_None)) {
            if (!take_option(&arguments[k], self->takes_narrow)) {
                return 0;
            }
            continue;
        }
        if (!is_tensor(value) || SLOT(value, core.t_xp) != core.cpu) {
            return 0;
        }
        arguments[k] = SLOT(value, core.t_array);
        if (!PyArray_CheckExact(arguments[k]) || (is_narrow(arguments[k]) && !self->takes_narrow)) {
            return 0;
        }
        *by_rows &= PyArray_IS_C_CONTIGUOUS((PyArrayObject *)arguments[k]) != 0;
        if (form->taking_part >> k & 1) {
            PyArray_Descr *own = PyArray_DESCR((PyArrayObject *)arguments[k]);
            if (dtype != NULL && own != dtype) {
                found = 2;
            }
            dtype = own;
        }
    }
    return found;
}

PyObject *
as_cpu_array(PyObject *value)
{
    if (PyArray_CheckExact(value)) {
        return value;
    }
    PyObject *array;
    if (PyArray_CheckScalar(value)) {
        array = PyArray_FromScalar(value, NULL);
    }
    else {
        PyObject *asarray = PyObject_GetAttrString(core.cpu, "asarray"); /* looked up: sparse arrays change it */
        array = asarray == NULL ? NULL : PyObject_CallOneArg(asarray, value);
        Py_XDECREF(asarray);
    }
    Py_DECREF(value);
    return array;
}

/* Several results (taken over): a tuple of arrays. */
static PyObject *
as_arrays(PyObject *several)
{
    PyObject *sequence = PySequence_Fast(several, "an operation returns its results in a tuple");
    Py_DECREF(several);
    Py_ssize_t count = sequence == NULL ? 0 : PySequence_Fast_GET_SIZE(sequence);
    PyObject *arrays = sequence == NULL ? NULL : PyTuple_New(count);
    for (Py_ssize_t k = 0; arrays != NULL && k < count; k++) {
        PyObject *array = as_cpu_array(Py_NewRef(PySequence_Fast_GET_ITEM(sequence, k)));
        if (array == NULL) {
            Py_CLEAR(arrays);
        }
        else {
            PyTuple_SET_ITEM(arrays, k, array);
        }
    }
    Py_XDECREF(sequence);
    return arrays;
}

static int
are_arrays(PyObject *several)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(several); k++) {
        if (!PyArray_CheckExact(PyTuple_GET_ITEM(several, k))) {
            return 0;
        }
    }
    return 1;
}

/* Whether the result has the dtype that it should: otherwise operands are converted, and it is computed anew. */
static int
dtype_is_right(const Form *form, PyObject *const *arguments, PyObject *out)
{
    if (form->settled < 0) {
        return 1;
    }
    PyArrayObject *first = (PyArrayObject *)arguments[form->settled];
    return PyArray_DESCR((PyArrayObject *)out) == PyArray_DESCR(first) ||
           (form->any_float && (PyArray_ISFLOAT(first) || PyArray_ISCOMPLEX(first)));
}

/* The value of a form's formula, an array or a tuple of them; NULL without an exception: Python has to compute it. */
static PyObject *
forward_value(const Operation *self, const Form *form, PyObject *const *arguments)
{
    PyObject *out = arithmetic_value(form->forward, arguments);
    if (out != NULL) {
        return out;
    }
    out = expression_value(form->forward, arguments);
    if (out != NULL) {
        out = form->several ? as_arrays(out) : as_cpu_array(out);
    }
    if (out == NULL) {
        if (self->elementwise &&
            (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
             PyErr_ExceptionMatches(PyExc_OverflowError))) {
            PyErr_Clear(); /* Python meets the same error, and explains it */
        }
        return NULL;
    }
    if (form->several ? !are_arrays(out) : !PyArray_CheckExact(out)) {
        Py_CLEAR(out);
    }
    return out;
}

/* A view of the first element, of as many dimensions. */
static PyObject *
first_element(PyArrayObject *array)
{
    npy_intp ones[NPY_MAXDIMS];
    for (int d = 0; d < PyArray_NDIM(array); d++) {
        ones[d] = 1;
    }
    PyArray_Descr *descr = PyArray_DESCR(array);
    Py_INCREF(descr);
    PyObject *view = PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(array), ones, NULL, PyArray_DATA(array), 0,
                                          NULL);
    if (view != NULL && PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef(array)) < 0) {
        Py_CLEAR(view);
    }
    return view;
}

#define WORTH_A_TRIAL 4096 /* elements */

/* Whether the result would not have the dtype that it should, as a quotient of whole numbers has not: of many, one is
 * tried, so that not all of them are computed twice. */
static int
is_wrong_for_one(const Operation *self, const Form *form, PyObject *const *arguments)
{
    PyArrayObject *first = form->settled < 0 ? NULL : (PyArrayObject *)arguments[form->settled];
    if (first == NULL || !self->elementwise || form->several || PyArray_SIZE(first) < WORTH_A_TRIAL ||
        !(PyArray_ISINTEGER(first) || PyArray_ISBOOL(first))) {
        return 0;
    }
    PyObject *some[MOST_ARGUMENTS], *out = NULL;
    int count = 0;
    for (; count < self->count; count++) {
        PyArrayObject *array = PyArray_CheckExact(arguments[count]) ? (PyArrayObject *)arguments[count] : NULL;
        some[count] = array == NULL || PyArray_SIZE(array) == 0 ? Py_NewRef(arguments[count]) : first_element(array);
        if (some[count] == NULL) {
            break;
        }
    }
    out = count < self->count ? NULL : forward_value(self, form, some);
    int is_wrong = out != NULL && !dtype_is_right(form, some, out);
    PyErr_Clear(); /* whatever it is, all of them meet it, too */
    Py_XDECREF(out);
    while (count > 0) {
        Py_DECREF(some[--count]);
    }
    return is_wrong;
}

/* What a form computes, an array or a tuple of them; NULL without an exception: Python has to compute it.
 *
 * arguments  owned; operands that have to be converted first are replaced */
static PyObject *
compute(const Operation *self, const Form *form, PyObject **arguments)
{
    PyObject *out = NULL;
    if (!is_wrong_for_one(self, form, arguments)) {
        out = forward_value(self, form, arguments);
        if (out == NULL || form->several || dtype_is_right(form, arguments, out)) {
            return out;
        }
    }
    Py_XDECREF(out);
    int done = form == self->forms[1] ? promote_beside_number(self, form, arguments)
                                      : make_floats(self, form, arguments);
    return done > 0 ? forward_value(self, form, arguments) : NULL;
}

/* Whether the result can be written into `out` as it is, and nothing is to be recorded: write_out of
 * ops/inplace/out_argument.py refuses the rest, or makes it fit. */
static int
takes_result(const Operation *self, PyObject *state, PyObject *const *values, PyObject *out)
{
    if (!is_tensor(out) || SLOT(out, core.t_xp) != core.cpu || SLOT(state, core.s_unusual) != Py_False ||
        !is_free(out, state)) {
        return 0;
    }
    PyObject *array = SLOT(out, core.t_array);
    int recording = SLOT(state, core.s_grad_enabled) == Py_True;
    for (int k = 0; k < self->count; k++) {
        if ((recording && is_tensor(values[k]) && may_require_grad(values[k])) || !PyArray_CheckExact(array) ||
            may_overlap_any((PyArrayObject *)array, values[k])) {
            return 0;
        }
    }
    return 1;
}

PyObject *
write_result(const Operation *self, PyObject *result, PyObject *out)
{
    PyArrayObject *from = (PyArrayObject *)result, *to = (PyArrayObject *)SLOT(out, core.t_array);
    PyObject *name = NULL;
    Py_INCREF(to);
    int status = PyArray_CheckExact(to) && PyArray_DESCR(from) == PyArray_DESCR(to) && PyArray_SAMESHAPE(from, to) &&
                 PyArray_ISWRITEABLE(to);
    if (status) {
        name = PyObject_GetAttr(self->function, name_name);
        status = name != NULL && copy_into(to, from) == 0 && count_change(out, name) != NULL;
    }
    Py_XDECREF(name);
    Py_DECREF(from);
    Py_DECREF(to);
    return status ? Py_NewRef(out) : NULL;
}

int
is_given_number(const Operation *self, PyObject *const *values)
{
    return self->number >= 0 &&
           (PyFloat_CheckExact(values[self->number]) || PyLong_CheckExact(values[self->number]));
}

/* The arrays of tensors of one dtype of half precision, and everything else as it is; that dtype, or NULL: Python has to
 * look. References are borrowed. */
static PyArray_Descr *
narrow_operands(const Operation *self, int number, PyObject *const *values, PyObject **arguments, int *by_rows)
{
    PyArray_Descr *dtype = NULL;
    *by_rows = 1;
    for (int k = 0; k < self->count; k++) {
        PyObject *value = arguments[k] = values[k];
        if (!self->inputs[k] || k == number || (self->inputs[k] == 2 && value == Py_None)) {
            if (!take_option(&arguments[k], 0) || PyArray_DescrCheck(arguments[k])) {
                return NULL;
            }
            continue;
        }
        if (!is_tensor(value) || SLOT(value, core.t_xp) != core.cpu || !is_narrow(SLOT(value, core.t_array))) {
            return NULL;
        }
        PyArrayObject *array = (PyArrayObject *)(arguments[k] = SLOT(value, core.t_array));
        if (dtype != NULL && PyArray_DESCR(array) != dtype) {
            return NULL;
        }
        dtype = PyArray_DESCR(array);
        *by_rows &= PyArray_IS_C_CONTIGUOUS(array) != 0;
    }
    return dtype;
}

/* An array (taken over), if it is one of real numbers as those of a dtype: beyond its range they are infinite. */
static PyObject *
rounded_array(PyObject *array, PyArray_Descr *dtype)
{
    if (!PyArray_ISFLOAT((PyArrayObject *)array)) {
        return array;
    }
    PyObject *quiet = enter_quiet();
    Py_INCREF(dtype);
    Py_SETREF(array, cast_array((PyArrayObject *)array, dtype));
    leave_quiet(quiet);
    return array;
}

/* The same of several results, in a new tuple, but for those that stay exact. */
static PyObject *
rounded_arrays(const Form *form, PyObject *results, PyArray_Descr *dtype)
{
    Py_ssize_t count = PyTuple_GET_SIZE(results);
    PyObject *rounded = PyTuple_New(count);
    for (Py_ssize_t k = 0; rounded != NULL && k < count; k++) {
        PyObject *array = Py_NewRef(PyTuple_GET_ITEM(results, k));
        array = form->exact >> k & 1 ? array : rounded_array(array, dtype);
        if (array == NULL) {
            Py_CLEAR(rounded);
        }
        else {
            PyTuple_SET_ITEM(rounded, k, array);
        }
    }
    Py_DECREF(results);
    return rounded;
}

/* What a form computes of arrays of half precision in float32, rounded; NULL without an exception: Python has to. */
static PyObject *
widened_result(const Operation *self, const Form *form, PyObject *const *arguments, PyArray_Descr *dtype)
{
    PyObject *wide[MOST_ARGUMENTS], *result = NULL;
    int count = 0;
    for (int is_fine = 1; is_fine && count < self->count; count += is_fine) {
        wide[count] = is_narrow(arguments[count])
                          ? cast_array((PyArrayObject *)arguments[count], PyArray_DescrFromType(NPY_FLOAT))
                          : Py_NewRef(arguments[count]);
        is_fine = wide[count] != NULL;
    }
    if (count == self->count) {
        result = compute(self, form, wide);
    }
    if (result != NULL) {
        result = form->several ? rounded_arrays(form, result, dtype) : rounded_array(result, dtype);
    }
    while (count > 0) {
        Py_DECREF(wide[--count]);
    }
    return result;
}

/* The result of an operation on half precision, computed in float32 and rounded (`widen` and `finished` of
 * ops/declare/apply.py); NULL without an exception: Python has to compute it. */
static PyObject *
narrow_result(Operation *self, const Form *form, int number, PyObject *state, PyObject *const *values)
{
    PyObject *arguments[MOST_ARGUMENTS];
    int by_rows;
    PyArray_Descr *dtype = narrow_operands(self, number, values, arguments, &by_rows);
    if (dtype == NULL) {
        return NULL;
    }
    Py_INCREF(dtype);
    for (int k = 0; k < self->count; k++) { /* a tensor may be given another array meanwhile */
        Py_INCREF(arguments[k]);
    }
    PyObject *result = form->several ? NULL : narrow_value(form->forward, arguments);
    if (result != NULL ? !dtype_is_right(form, arguments, result) : !PyErr_Occurred()) {
        Py_XSETREF(result, widened_result(self, form, arguments, dtype));
    }
    if (result != NULL && (lies_right(form, by_rows, result) ||
                           (result = in_its_order(self, form, number, values, result)) != NULL)) {
        result = record_result(self, form, state, values, arguments, result);
    }
    for (int k = 0; k < self->count; k++) {
        Py_DECREF(arguments[k]);
    }
    Py_DECREF(dtype);
    return result;
}

/* The result of the operation; NULL without an exception: Python has to compute it. */
static PyObject *
usual_result(Operation *self, PyObject *state, PyObject *const *values, PyObject *out)
{
    PyObject *arguments[MOST_ARGUMENTS];
    int is_number = is_given_number(self, values);
    const Form *form = self->forms[is_number];
    if (SLOT(state, core.s_intercept) != Py_None || form == NULL ||
        (out != NULL && (form->several || !takes_result(self, state, values, out)))) {
        return NULL;
    }
    int number = is_number ? self->number : -1, by_rows;
    int found = find_arrays(self, form, number, values, arguments, &by_rows);
    if (!found && self->widens && out == NULL) {
        PyObject *result = narrow_result(self, form, number, state, values);
        if (result != NULL || PyErr_Occurred()) {
            return result;
        }
    }
    if (!found) {
        return core.device_xp == NULL || out != NULL ? NULL : device_result(self, state, values);
    }
    for (int k = 0; k < self->count; k++) { /* a tensor may be given another array while we compute with this one */
        Py_INCREF(arguments[k]);
    }
    int done = found == 1 ? 1 : promote_operands(self, form, values, arguments);
    PyObject *result = done > 0 ? compute(self, form, arguments) : NULL;
    if (result != NULL && out != NULL) {
        result = write_result(self, result, out);
    }
    else if (result != NULL &&
             (lies_right(form, by_rows, result) || (result = in_its_order(self, form, number, values, result)) != NULL)) {
        result = record_result(self, form, state, values, arguments, result);
    }
    for (int k = 0; k < self->count; k++) {
        Py_DECREF(arguments[k]);
    }
    return result;
}

/* The same while a profile is under way, which also looks on at what is left to Python. */
static PyObject *
timed_result(Operation *self, Operation *planned, PyObject *state, PyObject *const *values, PyObject *out,
             PyObject *const *given, size_t flagged, PyObject *names)
{
    PyObject *lowered, *rows = rows_of_profile(state, &lowered);
    if (rows == NULL) {
        return NULL;
    }
    long long begin = clock_now();
    PyObject *result = usual_result(planned, lowered, values, out);
    if (result == NULL && !PyErr_Occurred()) {
        result = called_below(lowered, self->function, given, flagged, names);
    }
    result = timed(rows, (PyObject *)planned, result, begin);
    Py_DECREF(lowered);
    Py_DECREF(rows);
    return result;
}

static PyObject *
operation_call(PyObject *callable, PyObject *const *given, size_t flagged, PyObject *names)
{
    Operation *self = (Operation *)callable, *planned = self->of == NULL ? self : self->of;
    PyObject *values[MOST_ARGUMENTS], *state, *out = Py_None;
    int made = has_plan(planned);
    if (made < 0) {
        return NULL;
    }
    if (made && bind_arguments(planned, given, PyVectorcall_NARGS(flagged), names, values,
                               self->of == NULL ? NULL : &out)) {
        if (PyContextVar_Get(core.state_variable, NULL, &state) < 0) {
            return NULL;
        }
        out = out == Py_None ? NULL : out;
        PyObject *result = SLOT(state, core.s_intercept) == Py_None
                               ? usual_result(planned, state, values, out)
                               : timed_result(self, planned, state, values, out, given, flagged, names);
        if (result == NULL && out == NULL && self == planned && planned->in_front && !PyErr_Occurred()) {
            result = batched_result(planned, state, values);
        }
        Py_DECREF(state);
        if (result != NULL || PyErr_Occurred()) {
            return result;
        }
    }
    return PyObject_Vectorcall(self->function, given, flagged, names);
}

PyObject *
call_in_state(PyObject *target, PyObject *state, PyObject *const *given, Py_ssize_t count)
{
    Operation *self = (Operation *)target;
    PyObject *values[MOST_ARGUMENTS];
    if (!Py_IS_TYPE(target, &Operation_Type) || self->of != NULL || SLOT(state, core.s_intercept) != Py_None ||
        core.Profiled != NULL) {
        return PyObject_Vectorcall(target, given, count, NULL);
    }
    int made = has_plan(self);
    PyObject *result =
        made > 0 && bind_arguments(self, given, count, NULL, values, NULL) ? usual_result(self, state, values, NULL) : NULL;
    return result != NULL || PyErr_Occurred() ? result : PyObject_Vectorcall(self->function, given, count, NULL);
}

/* ---- the type */

/* Operation(function, plan): `plan` is a function, or the Operation that this one is with an argument `out` */
PyObject *
operation_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "plan", NULL};
    PyObject *function, *plan;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", keywords, &function, &plan)) {
        return NULL;
    }
    if (name_out == NULL && ((name_out = PyUnicode_InternFromString("out")) == NULL ||
                             (name_name = PyUnicode_InternFromString("__name__")) == NULL)) {
        return NULL;
    }
    Operation *self = (Operation *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = operation_call;
        self->function = Py_NewRef(function);
        self->read = read_description;
        self->number = -1;
        if (Py_IS_TYPE(plan, &Operation_Type)) {
            self->of = (Operation *)Py_NewRef(plan);
        }
        else {
            self->plan = Py_NewRef(plan);
        }
    }
    return (PyObject *)self;
}

static int
operation_traverse(Operation *self, visitproc visit, void *arg)
{
    Py_VISIT(self->plan);
    Py_VISIT(self->of);
    for (int k = 0; k < MOST_ARGUMENTS; k++) {
        Py_VISIT(self->defaults[k]);
    }
    return stand_in_traverse((PyObject *)self, visit, arg); /* what the forms refer to lives as long as the process */
}

static int
operation_clear(Operation *self)
{
    Py_CLEAR(self->plan);
    Py_CLEAR(self->of);
    return stand_in_clear((PyObject *)self);
}

static void
operation_dealloc(Operation *self)
{
    PyObject_GC_UnTrack(self);
    for (int k = 0; k < MOST_ARGUMENTS; k++) {
        Py_CLEAR(self->names[k]);
        Py_CLEAR(self->defaults[k]);
    }
    form_free(self->forms[0]);
    form_free(self->forms[1]);
    form_free(self->device_forms[0]);
    form_free(self->device_forms[1]);
    stand_in_dealloc((PyObject *)self);
}

PyTypeObject Operation_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Operation",
    .tp_base = &StandIn_Type,
    .tp_basicsize = sizeof(Operation),
    .tp_flags = STAND_IN_FLAGS,
    .tp_new = operation_new,
    .tp_dealloc = (destructor)operation_dealloc,
    .tp_traverse = (traverseproc)operation_traverse,
    .tp_clear = (inquiry)operation_clear,
    .tp_getset = stand_in_attributes,
};
