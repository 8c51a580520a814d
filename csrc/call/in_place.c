/* InPlace: the in-place form of an operation (`in_place` of ops/inplace/forms.py), with its usual case in C.
 *
 * The usual case: tensors on the CPU whose dtypes need no promotion, a result that fits, no interceptor and nobody who
 * is shown nodes or changes. Everything else goes to the Python function, also if it is found out late: until the memory
 * is written to, nothing has happened.
 */
#include "call/operation.h"
#include "formula/blocks.h"
#include "formula/small_arrays.h"
#include "kernels/copies.h"
#include "quiet.h"
#include "rows.h"

typedef struct {
    Operation operation;
    PyObject *shown; /* its name, as errors tell it */
    PyObject *check_history, *times_alpha;
    PyObject *ufunc; /* writes the result into the memory itself; NULL: the form's result is copied */
    int alpha;       /* the argument that the second operand is to be multiplied by; -1: none */
} InPlace;

/* ---- reading the plan */

/* An InPlacePlan. */
static int
read_in_place(Operation *operation, PyObject *plan)
{
    InPlace *self = (InPlace *)operation;
    if (check_plan(plan, IN_PLACE_PLAN_SIZE) < 0) {
        return -1;
    }
    PyObject *ufunc = FIELD(plan, IN_PLACE_PLAN_UFUNC);
    self->shown = Py_NewRef(FIELD(plan, IN_PLACE_PLAN_SHOWN));
    self->check_history = Py_NewRef(FIELD(plan, IN_PLACE_PLAN_CHECK_HISTORY));
    self->times_alpha = Py_NewRef(FIELD(plan, IN_PLACE_PLAN_TIMES_ALPHA));
    self->ufunc = ufunc == Py_None ? NULL : Py_NewRef(ufunc);
    self->alpha = int_field(plan, IN_PLACE_PLAN_ALPHA);
    return PyErr_Occurred() ? -1 : read_description(operation, FIELD(plan, IN_PLACE_PLAN_OPERATION));
}

/* ---- the result */

/* Whether the exception is one that the general way meets too, and explains; if so, it is forgotten. */
static int
is_explained(void)
{
    int explained = PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
                    PyErr_ExceptionMatches(PyExc_OverflowError);
    if (explained) {
        PyErr_Clear();
    }
    return explained;
}

/* The call of a program that can write the result of a form into the memory (a new reference), if that is large. */
static PyObject *
fitting_program(const Form *form, PyObject *const *arguments)
{
    PyObject *call = program_call_of(form->forward, arguments);
    if (call != NULL && !fits_target(call, (PyArrayObject *)arguments[0])) {
        Py_CLEAR(call);
    }
    return call;
}

/* The result of a form, if it fits into the memory (a new reference); NULL without an exception: leave it to Python. */
static PyObject *
fitting_result(const Form *form, PyObject *const *arguments)
{
    PyArrayObject *target = (PyArrayObject *)arguments[0];
    PyObject *result = expression_value(form->forward, arguments);
    result = result == NULL ? NULL : as_cpu_array(result);
    if (result == NULL) {
        is_explained();
        return NULL;
    }
    PyArrayObject *array = (PyArrayObject *)result;
    if (!PyArray_CheckExact(result) || !PyArray_SAMESHAPE(array, target) ||
        PyArray_DESCR(array) != PyArray_DESCR(target) || !PyArray_ISWRITEABLE(target)) {
        Py_CLEAR(result);
    }
    return result;
}

/* Whether NumPy cannot be trusted to negate the array where it lies: `np.negative(a, out=a)` of NumPy 2.4 reads as if
 * there were no gaps where elements of four bytes lie four elements apart, or those of eight eight. */
static int
negates_wrongly(PyObject *ufunc, PyObject *array)
{
    return ufunc == negative && !PyArray_ISONESEGMENT((PyArrayObject *)array);
}

/* Let a ufunc write into the memory; -1 with an exception. */
static int
call_ufunc(const InPlace *self, PyObject *const *arguments)
{
    PyObject *operands[MOST_ARGUMENTS + 1], *scaled = NULL, *written;
    int count = 0;
    for (int k = 0; k < self->operation.count; k++) {
        if (self->operation.inputs[k]) {
            operands[count++] = arguments[k];
        }
    }
    if (self->alpha >= 0) {
        PyObject *alpha = arguments[self->alpha];
        int is_one = PyLong_CheckExact(alpha) ? PyLong_AsLong(alpha) == 1
                                              : PyFloat_CheckExact(alpha) && PyFloat_AS_DOUBLE(alpha) == 1;
        PyErr_Clear();
        if (!is_one && add_multiple(self->ufunc, arguments[0], operands[1], alpha)) {
            return 0;
        }
        if (!is_one) {
            PyObject *factors[] = {arguments[0], operands[1], alpha};
            scaled = quiet_call(self->times_alpha, factors, 3, NULL);
            if (scaled == NULL) {
                return -1;
            }
            operands[1] = scaled;
        }
    }
    int done = count == 2 && change_small(self->ufunc, (PyArrayObject *)arguments[0], operands[1]);
    if (count == 2 && !done) {
        done = change_large(self->ufunc, arguments[0], operands[1]);
    }
    if (negates_wrongly(self->ufunc, arguments[0])) {
        PyObject *negated = quiet_call(self->ufunc, operands, 1, NULL);
        int status = negated == NULL ? -1 : copy_into((PyArrayObject *)arguments[0], (PyArrayObject *)negated);
        Py_XDECREF(negated);
        return status;
    }
    operands[count++] = arguments[0];
    written = done ? Py_NewRef(Py_None) : quiet_call(self->ufunc, operands, count, NULL);
    Py_XDECREF(scaled);
    Py_XDECREF(written);
    return written == NULL ? -1 : 0;
}

#define FEW_BYTES (1 << 17)

static int
put_result(PyArrayObject *target, PyObject *value)
{
    if (PyTuple_Check(value)) {
        return write_target(value, target);
    }
    PyArrayObject *result = (PyArrayObject *)value;
    if (PyArray_NBYTES(target) < FEW_BYTES && PyArray_IS_C_CONTIGUOUS(target) && PyArray_IS_C_CONTIGUOUS(result) &&
        !PyDataType_REFCHK(PyArray_DESCR(target))) {
        memmove(PyArray_DATA(target), PyArray_DATA(result), PyArray_NBYTES(target));
        return 0;
    }
    return copy_into(target, result);
}

/* Write into the memory and count a version: the counter (borrowed). NULL without an exception: leave it to Python. */
static PyObject *
write_change(const InPlace *self, PyObject *tensor, PyObject *const *arguments,
             PyObject *result)
{
    if (result != NULL) {
        if (put_result((PyArrayObject *)arguments[0], result) < 0) {
            return NULL;
        }
    }
    else if (call_ufunc(self, arguments) < 0) {
        is_explained();
        return NULL;
    }
    return count_change(tensor, self->shown);
}

/* ---- recording */

/* The edges of the arguments (new references), as the operation records them; those that are not None, as bits. The
 * first is the changed tensor's own. -1: an exception. */
static int
edges_of_change(const InPlace *self, const Form *form, PyObject *const *values, PyObject **edges)
{
    int wanted = 0;
    for (int k = 0; k < form->edge_count; k++) {
        PyObject *tensor = form->edges[k] < 0 ? Py_None : values[form->edges[k]];
        edges[k] = tensor == Py_None ? Py_NewRef(Py_None)
                   : k == 0          ? Py_NewRef(SLOT(tensor, core.t_edge))
                                     : edge_of(tensor);
        if (edges[k] == NULL) {
            while (k > 0) {
                Py_DECREF(edges[--k]);
            }
            return -1;
        }
        wanted |= (edges[k] != Py_None) << k;
    }
    return wanted;
}

static void
forget_edges(const Form *form, PyObject **edges)
{
    for (int k = 0; k < form->edge_count; k++) {
        Py_DECREF(edges[k]);
    }
}

static int
is_view(PyObject *tensor)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    return extra != Py_None && SLOT(extra, core.e_view) != Py_None;
}

/* Refuse what cannot be followed, and bring the edge of a view up to date. */
static int
check_own_edge(const InPlace *self, PyObject *tensor, PyObject **edge, int *wanted)
{
    if (!is_view(tensor) && *edge != core.LEAF) {
        return 0;
    }
    PyObject *nothing = PyObject_CallFunctionObjArgs(self->check_history, tensor, self->shown, NULL);
    PyObject *current = nothing == NULL ? NULL : PyObject_CallOneArg(core.current_edge, tensor);
    Py_XDECREF(nothing);
    if (current == NULL) {
        return -1;
    }
    *wanted = (*wanted & ~1) | (current != Py_None);
    Py_SETREF(*edge, current);
    return 0;
}

/* Whether a rule needs what the tensor was, or the tensor is its own operand, as in `x.mul_(x)`. */
static int
needs_former(const Form *form, PyObject *const *values, int wanted)
{
    for (int k = 0; k < form->saved_count; k++) {
        const Saved *saved = &form->saved[k];
        if (saved->argument == 0 ? saved->users & wanted : values[saved->argument] == values[0]) {
            return 1;
        }
    }
    return 0;
}

/* The node of the change; edges are taken over. */
static PyObject *
node_of_change(const InPlace *self, const Form *form, PyObject *state, PyObject *const *values,
               PyObject *const *arguments, PyObject **edges, int wanted)
{
    PyObject *seen[MOST_ARGUMENTS], *former = NULL;
    memcpy(seen, values, self->operation.count * sizeof(PyObject *));
    if (needs_former(form, values, wanted)) {
        PyObject *copy = PyArray_NewCopy((PyArrayObject *)arguments[0], NPY_CORDER);
        former = copy == NULL ? NULL : new_tensor(copy, edges[0], Py_None);
        if (former == NULL) {
            forget_edges(form, edges);
            return NULL;
        }
        for (int k = 0; k < form->saved_count; k++) {
            if (values[form->saved[k].argument] == values[0]) {
                seen[form->saved[k].argument] = former;
            }
        }
    }
    PyObject *node = new_node(form, state, seen, arguments, arguments[0], edges, wanted);
    Py_XDECREF(former);
    return node;
}

/* Move the changed tensor to its new history. */
static int
move_history(PyObject *tensor, PyObject *node)
{
    PyObject *extra = SLOT(tensor, core.t_extra);
    if (extra == Py_None || (SLOT(extra, core.e_view) == Py_None && SLOT(extra, core.e_rare) == Py_None)) {
        set_slot(tensor, core.t_edge, Py_NewRef(node));
        return 0;
    }
    PyObject *nothing = PyObject_CallFunctionObjArgs(core.rebase_history, tensor, node, NULL);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

/* Let a node that keeps its output, which is the memory itself, notice when that is changed again. */
static int
watch_output(const Form *form, PyObject *node, PyObject *counter)
{
    if (form->output_count == 0 || SLOT(node, form->outputs[0].slot) == Py_None) {
        return 0;
    }
    PyObject *nothing = PyObject_CallMethod(node, "watch_output", "iO", 0, counter);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

/* Change the tensor and record it; NULL without an exception: leave it to Python. Edges are taken over. */
static PyObject *
recorded_change(const InPlace *self, const Form *form, PyObject *state, PyObject *const *values,
                PyObject *const *arguments, PyObject *result, PyObject **edges, int wanted)
{
    PyObject *tensor = values[0];
    if (check_own_edge(self, tensor, &edges[0], &wanted) < 0) {
        forget_edges(form, edges);
        return NULL;
    }
    PyObject *node = node_of_change(self, form, state, values, arguments, edges, wanted);
    if (node == NULL) {
        return NULL;
    }
    PyObject *counter = write_change(self, tensor, arguments, result);
    int done = counter != NULL && watch_output(form, node, counter) == 0 && move_history(tensor, node) == 0;
    Py_DECREF(node);
    return done ? Py_NewRef(tensor) : NULL;
}

/* ---- calling */

/* Integers and truth values have no derivative, whatever is written into them. */
static int
may_have_history(PyObject *array)
{
    char kind = PyArray_DESCR((PyArrayObject *)array)->kind;
    return kind != 'b' && kind != 'i' && kind != 'u';
}

/* Change the tensor, given its new value if that is not written by a ufunc. */
static PyObject *
apply_change(const InPlace *self, const Form *form, PyObject *state, PyObject *const *values,
             PyObject *const *arguments, PyObject *result)
{
    PyObject *edges[MOST_EDGES], *tensor = values[0], *extra = SLOT(tensor, core.t_extra);
    int wanted = 0, recording = 0;
    if (extra != Py_None && SLOT(extra, core.e_counter) == core.NO_COUNTER &&
        SLOT(state, core.s_inference) != Py_True) {
        return NULL; /* refused */
    }
    if (SLOT(state, core.s_grad_enabled) == Py_True && may_have_history(arguments[0])) {
        wanted = edges_of_change(self, form, values, edges);
        if (wanted < 0) {
            return NULL;
        }
        recording = wanted || may_require_grad(tensor);
        if (recording && form->node != NULL) {
            return recorded_change(self, form, state, values, arguments, result, edges, wanted);
        }
        forget_edges(form, edges);
    }
    if (recording || write_change(self, tensor, arguments, result) == NULL) {
        return NULL;
    }
    return Py_NewRef(tensor);
}

/* Whether an operand may lie in the memory that is going to be written to; an elementwise operation may be given just
 * that. */
static int
reads_what_it_writes(const Operation *operation, PyObject *const *arguments)
{
    for (int k = 1; k < operation->count; k++) {
        if (operation->inputs[k] && PyArray_CheckExact(arguments[k]) &&
            !(operation->elementwise && arguments[k] == arguments[0]) &&
            may_overlap((PyArrayObject *)arguments[0], (PyArrayObject *)arguments[k])) {
            return 1;
        }
    }
    return 0;
}

/* The changed tensor; NULL without an exception: leave it to Python. */
static PyObject *
usual_change(const InPlace *self, PyObject *state, PyObject *const *values)
{
    const Operation *operation = &self->operation;
    PyObject *arguments[MOST_ARGUMENTS], *result = NULL, *changed = NULL;
    int is_number = is_given_number(operation, values), by_rows;
    const Form *form = operation->forms[is_number];
    if (SLOT(state, core.s_unusual) != Py_False || SLOT(state, core.s_record) != Py_None || form == NULL ||
        find_arrays(operation, form, is_number ? operation->number : -1, values, arguments, &by_rows) != 1 ||
        reads_what_it_writes(operation, arguments)) {
        return NULL;
    }
    for (int k = 0; k < operation->count; k++) {
        Py_INCREF(arguments[k]);
    }
    if (self->ufunc == NULL || operation->count == 1) { /* those of two write large results themselves */
        result = fitting_program(form, arguments);
    }
    if (result == NULL && self->ufunc == NULL && !PyErr_Occurred()) {
        result = fitting_result(form, arguments);
    }
    if (result != NULL || (self->ufunc != NULL && !PyErr_Occurred())) {
        changed = apply_change(self, form, state, values, arguments, result);
    }
    Py_XDECREF(result);
    for (int k = 0; k < operation->count; k++) {
        Py_DECREF(arguments[k]);
    }
    return changed;
}

/* The same while a profile is under way, which also looks on at what is left to Python. */
static PyObject *
timed_change(const InPlace *self, PyObject *state, PyObject *const *values, PyObject *const *given, size_t flagged,
             PyObject *names)
{
    PyObject *lowered, *rows = rows_of_profile(state, &lowered);
    if (rows == NULL) {
        return NULL;
    }
    long long begin = clock_now();
    PyObject *changed = usual_change(self, lowered, values);
    if (changed == NULL && !PyErr_Occurred()) {
        changed = called_below(lowered, self->operation.function, given, flagged, names);
    }
    changed = timed(rows, self->shown, changed, begin);
    Py_DECREF(lowered);
    Py_DECREF(rows);
    return changed;
}

static PyObject *
in_place_call(PyObject *callable, PyObject *const *given, size_t flagged, PyObject *names)
{
    InPlace *self = (InPlace *)callable;
    PyObject *values[MOST_ARGUMENTS], *state;
    int made = has_plan(&self->operation);
    if (made < 0) {
        return NULL;
    }
    if (made && bind_arguments(&self->operation, given, PyVectorcall_NARGS(flagged), names, values, NULL)) {
        if (PyContextVar_Get(core.state_variable, NULL, &state) < 0) {
            return NULL;
        }
        PyObject *changed = SLOT(state, core.s_intercept) == Py_None
                                ? usual_change(self, state, values)
                                : timed_change(self, state, values, given, flagged, names);
        Py_DECREF(state);
        if (changed != NULL || PyErr_Occurred()) {
            return changed;
        }
    }
    return PyObject_Vectorcall(self->operation.function, given, flagged, names);
}

/* ---- the type: all but this is Operation's */

static PyObject *
in_place_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *self = operation_new(type, args, kwargs);
    if (self != NULL) {
        ((Operation *)self)->vectorcall = in_place_call;
        ((Operation *)self)->read = read_in_place;
    }
    return self;
}

static int
in_place_traverse(PyObject *self, visitproc visit, void *arg)
{
    return Operation_Type.tp_traverse(self, visit, arg);
}

static int
in_place_clear(PyObject *self)
{
    return Operation_Type.tp_clear(self);
}

static void
in_place_dealloc(InPlace *self)
{
    PyObject_GC_UnTrack(self); /* untracked twice is no error */
    Py_CLEAR(self->shown);
    Py_CLEAR(self->check_history);
    Py_CLEAR(self->times_alpha);
    Py_CLEAR(self->ufunc);
    Operation_Type.tp_dealloc((PyObject *)self);
}

PyTypeObject InPlace_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.InPlace",
    .tp_base = &Operation_Type,
    .tp_basicsize = sizeof(InPlace),
    .tp_flags = STAND_IN_FLAGS,
    .tp_new = in_place_new,
    .tp_dealloc = (destructor)in_place_dealloc,
    .tp_traverse = in_place_traverse,
    .tp_getset = stand_in_attributes,
    .tp_clear = in_place_clear,
};
