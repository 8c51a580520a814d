/* Shortcut: a function of tensors that sorts out its arguments and calls operations, with the usual case in C; marked by
 * the decorator `shortcut` of ops/declare/core_plan.py.
 */
#include "call/shortcuts.h"

/* ---- sizes: reshape(x, 2, -1) or reshape(x, (2, -1)) */

/* The ints that follow the tensor, or the one tuple or list of ints that does: a new tuple; NULL without an exception
 * for anything else. */
static PyObject *
sizes_of(PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *const *items = given + 1;
    if (names != NULL || count < 2 || usual_array(given[0]) == NULL) {
        return NULL;
    }
    count--;
    if (count == 1 && (PyTuple_Check(items[0]) || PyList_CheckExact(items[0]))) {
        count = PySequence_Fast_GET_SIZE(items[0]);
        items = PySequence_Fast_ITEMS(items[0]);
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        if (!PyLong_CheckExact(items[k])) {
            return NULL;
        }
    }
    PyObject *sizes = count == 0 ? NULL : PyTuple_New(count);
    for (Py_ssize_t k = 0; sizes != NULL && k < count; k++) {
        PyTuple_SET_ITEM(sizes, k, Py_NewRef(items[k]));
    }
    return sizes;
}

/* target(tensor, second), the latter taken over; NULL if that is. */
static PyObject *
call_two(PyObject *target, PyObject *tensor, PyObject *second)
{
    if (second == NULL) {
        return NULL;
    }
    PyObject *const call[] = {tensor, second};
    PyObject *result = PyObject_Vectorcall(target, call, 2, NULL);
    Py_DECREF(second);
    return result;
}

/* expand(input, *sizes), permute(input, *order) */
static PyObject *
with_sizes(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    return call_two(self->targets[0], given[0], sizes_of(given, count, names));
}

/* Work out a -1 in the sizes (taken over) of so many elements; NULL without an exception if they do not fit. */
static PyObject *
inferred(PyObject *sizes, npy_intp elements)
{
    npy_intp known = 1, size;
    Py_ssize_t open = -1;
    for (Py_ssize_t k = 0; sizes != NULL && k < PyTuple_GET_SIZE(sizes); k++) {
        int read = read_size(PyTuple_GET_ITEM(sizes, k), &size);
        if (read && size == -1 && open < 0) {
            open = k;
        }
        else if (!read || size < 0 || size > elements) { /* one that is larger cannot be right, unless another is 0 */
            Py_CLEAR(sizes);
        }
        else {
            known *= size ? size : 1;
            if (size == 0 || known > elements) {
                Py_CLEAR(sizes);
            }
        }
    }
    if (sizes == NULL || (open < 0 ? known != elements : elements % known != 0)) {
        Py_XDECREF(sizes);
        return NULL;
    }
    if (open >= 0) {
        PyObject *number = PyLong_FromSsize_t(elements / known);
        if (number == NULL || PyTuple_SetItem(sizes, open, number) < 0) {
            Py_CLEAR(sizes);
        }
    }
    return sizes;
}

/* view(input, *shape), reshape(input, *sizes): the memory of contiguous ones can be seen under other sizes */
static PyObject *
reshape(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = count < 1 ? NULL : usual_array(given[0]);
    if (array == NULL || !PyArray_IS_C_CONTIGUOUS(array)) {
        return NULL;
    }
    return call_two(self->targets[0], given[0], inferred(sizes_of(given, count, names), PyArray_SIZE(array)));
}

/* flatten(input, start_dim, end_dim) */
static PyObject *
flatten(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = names != NULL || count < 1 || count > 3 ? NULL : usual_array(given[0]);
    npy_intp first = 0, last = -1, sizes[NPY_MAXDIMS];
    if (array == NULL || !PyArray_IS_C_CONTIGUOUS(array) || (count > 1 && !read_size(given[1], &first)) ||
        (count > 2 && !read_size(given[2], &last))) {
        return NULL;
    }
    npy_intp ndim = PyArray_NDIM(array);
    first = first < 0 ? first + ndim : first;
    last = last < 0 ? last + ndim : last;
    if (first < 0 || last < 0 || first >= ndim || last >= ndim || first > last) {
        return NULL;
    }
    if (first == last) {
        return Py_NewRef(given[0]);
    }
    npy_intp merged = 0;
    for (npy_intp k = 0; k < ndim; k++) {
        if (k > first && k <= last) {
            sizes[merged - 1] *= PyArray_DIM(array, k);
        }
        else {
            sizes[merged++] = PyArray_DIM(array, k);
        }
    }
    return call_two(self->targets[0], given[0], PyArray_IntTupleFromIntp((int)merged, sizes));
}

/* expand_as(input, other) */
static PyObject *
expand_as(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *other = names != NULL || count != 2 || usual_array(given[0]) == NULL ? NULL : usual_array(given[1]);
    return other == NULL ? NULL : call_two(self->targets[0], given[0], shape_of(other));
}

/* numpy_T(input): of a matrix */
static PyObject *
numpy_T(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = names != NULL || count != 1 ? NULL : usual_array(given[0]);
    if (array == NULL || PyArray_NDIM(array) != 2) {
        return NULL;
    }
    return call_two(self->targets[0], given[0], Py_BuildValue("(ii)", 1, 0));
}

/* contiguous(input): the tensor itself, most often */
static PyObject *
contiguous(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = names != NULL || count != 1 ? NULL : usual_array(given[0]);
    return array != NULL && PyArray_IS_C_CONTIGUOUS(array) ? Py_NewRef(given[0]) : NULL;
}

/* ---- dimensions: sum(x, dim=1, keepdim=True) */

/* The argument of that name among those given from `place` on by position, or by name; `fallback` if it is not given,
 * NULL if there are other names. */
static PyObject *
argument_of(PyObject *const *given, Py_ssize_t count, PyObject *names, Py_ssize_t place, const char *name,
            PyObject *fallback)
{
    if (place < count) {
        return given[place];
    }
    for (Py_ssize_t k = 0; names != NULL && k < PyTuple_GET_SIZE(names); k++) {
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k), name) == 0) {
            return given[count + k];
        }
    }
    return fallback;
}

/* How many of the names are among these two. */
static Py_ssize_t
known_names(PyObject *names, const char *first, const char *second)
{
    Py_ssize_t known = 0;
    for (Py_ssize_t k = 0; names != NULL && k < PyTuple_GET_SIZE(names); k++) {
        PyObject *name = PyTuple_GET_ITEM(names, k);
        known += PyUnicode_CompareWithASCIIString(name, first) == 0 ||
                 PyUnicode_CompareWithASCIIString(name, second) == 0;
    }
    return known;
}

static int
is_ints(PyObject *value)
{
    for (Py_ssize_t k = 0; PyTuple_CheckExact(value) && k < PyTuple_GET_SIZE(value); k++) {
        if (!PyLong_CheckExact(PyTuple_GET_ITEM(value, k))) {
            return 0;
        }
    }
    return PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) > 0;
}

/* sum(input, dim, keepdim) and its like, with the operation for all elements, that for some dimensions, and the type of
 * its results if there are several, or None */
static PyObject *
over_dims(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count < 1 || count + named > 3 || usual_array(given[0]) == NULL ||
        known_names(names, "dim", "keepdim") != named) {
        return NULL;
    }
    PyObject *dim = argument_of(given, count, names, 1, "dim", NULL);
    PyObject *keepdim = argument_of(given, count, names, 2, "keepdim", Py_False);
    if (count + named == 1) {
        return PyObject_Vectorcall(self->targets[0], given, 1, NULL);
    }
    int several = self->targets[2] != Py_None;
    if (dim == NULL || (count > 1 && known_names(names, "dim", "dim")) || !PyBool_Check(keepdim) ||
        !(PyLong_CheckExact(dim) || (!several && is_ints(dim)))) {
        return NULL;
    }
    PyObject *const call[] = {given[0], dim, keepdim};
    PyObject *result = PyObject_Vectorcall(self->targets[1], call, 3, NULL);
    if (several && result != NULL) {
        Py_SETREF(result, PyObject_CallOneArg(self->targets[2], result));
    }
    return result;
}

/* squeeze(input, dim), with the operations for all dimensions and for one */
static PyObject *
squeeze(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count < 1 || count + named > 2 || usual_array(given[0]) == NULL || known_names(names, "dim", "dim") != named) {
        return NULL;
    }
    if (count + named == 1) {
        return PyObject_Vectorcall(self->targets[0], given, 1, NULL);
    }
    return PyLong_CheckExact(given[1]) ? PyObject_Vectorcall(self->targets[1], given, 2, NULL) : NULL;
}

/* ---- parts */

/* target(tensor, second, dim), the second taken over; NULL if that is. */
static PyObject *
call_along(PyObject *target, PyObject *tensor, PyObject *second, PyObject *dim)
{
    PyObject *const call[] = {tensor, second, dim};
    PyObject *result = second == NULL ? NULL : PyObject_Vectorcall(target, call, 3, NULL);
    Py_XDECREF(second);
    return result;
}

/* The argument `dim` that follows two others, 0 (borrowed) by default; NULL if there are other arguments. */
static PyObject *
dim_after_two(PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    static PyObject *zero;
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count < 2 || count + named > 3 || usual_array(given[0]) == NULL || known_names(names, "dim", "dim") != named ||
        (zero == NULL && (zero = PyLong_FromLong(0)) == NULL)) {
        return NULL;
    }
    return argument_of(given, count, names, 2, "dim", zero);
}

/* chunk(input, chunks, dim) */
static PyObject *
chunk(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *dim = dim_after_two(given, count, names);
    npy_intp chunks, place;
    if (dim == NULL || !read_size(given[1], &chunks) || !read_size(dim, &place) || chunks <= 0) {
        return NULL;
    }
    PyArrayObject *array = usual_array(given[0]);
    npy_intp ndim = PyArray_NDIM(array);
    if (place < -ndim || place >= ndim) {
        return NULL;
    }
    npy_intp length = PyArray_DIM(array, place < 0 ? place + ndim : place);
    return length == 0 ? NULL
                       : call_along(self->targets[0], given[0], PyLong_FromSsize_t(1 + (length - 1) / chunks), dim);
}

/* split(input, split_size_or_sections, dim), with the operations for one size and for several */
static PyObject *
split(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *dim = dim_after_two(given, count, names);
    if (dim == NULL || !PyLong_CheckExact(dim)) {
        return NULL;
    }
    if (PyLong_CheckExact(given[1])) {
        return call_along(self->targets[0], given[0], Py_NewRef(given[1]), dim);
    }
    return call_along(self->targets[1], given[0], sizes_of(given, 2, NULL), dim);
}

/* ---- overwriting */

/* The array of a tensor, one of so many arguments, that may be changed without asking anybody; or NULL. */
static PyArrayObject *
free_array(PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names, Py_ssize_t wanted)
{
    PyArrayObject *array = names != NULL || count != wanted ? NULL : usual_array(given[0]);
    return array != NULL && is_free(given[0], state) && PyArray_ISWRITEABLE(array) ? array : NULL;
}

/* The tensor, once the change of its memory is counted. */
static PyObject *
changed(PyObject *tensor, const char *operation)
{
    PyObject *name = PyUnicode_InternFromString(operation);
    int counted = name != NULL && count_change(tensor, name) != NULL;
    Py_XDECREF(name);
    return counted ? Py_NewRef(tensor) : NULL;
}

/* zero_(self) */
static PyObject *
zero_(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = free_array(state, given, count, names, 1);
    if (array == NULL || !PyArray_ISONESEGMENT(array) || !PyTypeNum_ISNUMBER(PyArray_TYPE(array))) {
        return NULL;
    }
    memset(PyArray_DATA(array), 0, PyArray_NBYTES(array));
    return changed(given[0], "zero_");
}

/* fill_(self, value) */
static PyObject *
fill_(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = free_array(state, given, count, names, 2);
    npy_intp number;
    if (array == NULL || !(PyFloat_CheckExact(given[1])
                               ? PyArray_ISFLOAT(array)
                               : read_size(given[1], &number) && number >= 0 && number < 128 &&
                                     PyTypeNum_ISNUMBER(PyArray_TYPE(array)))) {
        return NULL;
    }
    Py_INCREF(array);
    int status = PyArray_FillWithScalar(array, given[1]);
    Py_DECREF(array);
    return status < 0 ? NULL : changed(given[0], "fill_");
}

/* copy_(self, src), with the form that is recorded */
static PyObject *
copy_(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyArrayObject *array = names != NULL || count != 2 ? NULL : usual_array(given[0]);
    PyArrayObject *source = array == NULL ? NULL : usual_array(given[1]);
    if (source == NULL || PyArray_DESCR(array) != PyArray_DESCR(source) || !PyArray_SAMESHAPE(array, source)) {
        return NULL;
    }
    if (!is_free(given[0], state) || (SLOT(state, core.s_grad_enabled) == Py_True && may_require_grad(given[1]))) {
        return PyObject_Vectorcall(self->targets[0], given, 2, NULL);
    }
    if (!PyArray_ISWRITEABLE(array)) {
        return NULL;
    }
    Py_INCREF(array);
    Py_INCREF(source);
    int status = PyArray_CopyInto(array, source);
    Py_DECREF(array);
    Py_DECREF(source);
    return status < 0 ? NULL : changed(given[0], "copy_");
}

/* ---- functions with an argument `out` */

/* Whether a gradient may be asked of an argument: of a tensor, or one in a list. */
static int
may_be_differentiated(PyObject *value)
{
    if (is_tensor(value)) {
        return may_require_grad(value);
    }
    if (!PyTuple_Check(value) && !PyList_Check(value)) {
        return PyObject_TypeCheck(value, core.Tensor);
    }
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(value); k++) {
        if (may_be_differentiated(PySequence_Fast_GET_ITEM(value, k))) {
            return 1;
        }
    }
    return 0;
}

/* The result written into `out`, if that is a tensor of its shape and dtype, and nothing is to be recorded. */
static PyObject *
into_out(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *call[16], *out = NULL;
    Py_ssize_t named = PyTuple_GET_SIZE(names), kept = 0;
    PyObject *others = count + named > 16 ? NULL : PyTuple_New(named - 1);
    for (Py_ssize_t k = 0; others != NULL && k < count + named; k++) {
        PyObject *name = k < count ? NULL : PyTuple_GET_ITEM(names, k - count);
        if (name != NULL && PyUnicode_CompareWithASCIIString(name, "out") == 0) {
            out = given[k];
        }
        else {
            if (name != NULL) {
                PyTuple_SET_ITEM(others, kept - count, Py_NewRef(name));
            }
            call[kept++] = given[k];
            if (SLOT(state, core.s_grad_enabled) == Py_True && may_be_differentiated(given[k])) {
                Py_CLEAR(others);
            }
        }
    }
    PyObject *result = NULL, *array = NULL;
    if (others != NULL && usual_array(out) != NULL && is_free(out, state)) {
        result = PyObject_Vectorcall(self->targets[0], call, count, named > 1 ? others : NULL);
        array = result == NULL ? NULL : (PyObject *)usual_array(result);
    }
    Py_XDECREF(others);
    PyObject *written = array == NULL ? NULL : write_result(&self->operation, Py_NewRef(array), out);
    Py_XDECREF(result);
    return written;
}

/* function(..., out=None), with that function without `out` and ForeignOperandError */
static PyObject *
wrapped(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    if (count < 1) {
        return NULL;
    }
    PyObject *result = known_names(names, "out", "out")
                           ? into_out(self, state, given, count, names)
                           : PyObject_Vectorcall(self->targets[0], given, count, names);
    if (result == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(self->targets[1])) {
        PyErr_Clear(); /* Python asks the foreign operand */
    }
    return result;
}

/* ---- the type: all but this is Operation's */

static const struct {
    const char *name;
    Way way;
} ways[] = {{"getitem", getitem}, {"setitem", setitem}, {"expand", with_sizes}, {"permute", with_sizes},
            {"view", reshape}, {"reshape", reshape}, {"flatten", flatten}, {"expand_as", expand_as},
            {"numpy_T", numpy_T}, {"contiguous", contiguous}, {"sum", over_dims}, {"mean", over_dims},
            {"max", over_dims}, {"min", over_dims},
            {"squeeze", squeeze}, {"chunk", chunk}, {"split", split}, {"zero_", zero_}, {"fill_", fill_},
            {"copy_", copy_}, {"with_out", wrapped}};

static PyObject *
shortcut_call(PyObject *callable, PyObject *const *given, size_t flagged, PyObject *names)
{
    Shortcut *self = (Shortcut *)callable;
    PyObject *state, *result = NULL;
    if (PyContextVar_Get(core.state_variable, NULL, &state) < 0) {
        return NULL;
    }
    if (SLOT(state, core.s_unusual) == Py_False) {
        result = self->way(self, state, given, PyVectorcall_NARGS(flagged), names);
    }
    Py_DECREF(state);
    if (result != NULL || PyErr_Occurred()) {
        return result;
    }
    return PyObject_Vectorcall(self->operation.function, given, flagged, names);
}

/* Shortcut(name, function, targets) */
static PyObject *
shortcut_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    const char *name;
    PyObject *function, *targets;
    if (!PyArg_ParseTuple(args, "sOO!", &name, &function, &PyTuple_Type, &targets)) {
        return NULL;
    }
    size_t k = 0, known = sizeof(ways) / sizeof(ways[0]);
    while (k < known && strcmp(ways[k].name, name) != 0) {
        k++;
    }
    if (k == known || PyTuple_GET_SIZE(targets) > MOST_TARGETS) {
        PyErr_Format(PyExc_ValueError, "the compiled core has no shortcut for %s", name);
        return NULL;
    }
    PyObject *both = PyTuple_Pack(2, function, Py_None);
    Shortcut *self = both == NULL ? NULL : (Shortcut *)operation_new(type, both, NULL);
    Py_XDECREF(both);
    if (self != NULL) {
        self->operation.vectorcall = shortcut_call;
        self->way = ways[k].way;
        for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(targets); n++) {
            self->targets[n] = Py_NewRef(PyTuple_GET_ITEM(targets, n));
        }
    }
    return (PyObject *)self;
}

static int
shortcut_traverse(Shortcut *self, visitproc visit, void *arg)
{
    for (int k = 0; k < MOST_TARGETS; k++) {
        Py_VISIT(self->targets[k]);
    }
    return Operation_Type.tp_traverse((PyObject *)self, visit, arg);
}

static int
shortcut_clear(Shortcut *self)
{
    for (int k = 0; k < MOST_TARGETS; k++) {
        Py_CLEAR(self->targets[k]);
    }
    return Operation_Type.tp_clear((PyObject *)self);
}

static void
shortcut_dealloc(Shortcut *self)
{
    PyObject_GC_UnTrack(self);
    shortcut_clear(self);
    PyObject_GC_Track(self); /* as what follows expects it */
    Operation_Type.tp_dealloc((PyObject *)self);
}

PyTypeObject Shortcut_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Shortcut",
    .tp_base = &Operation_Type,
    .tp_basicsize = sizeof(Shortcut),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = shortcut_new,
    .tp_dealloc = (destructor)shortcut_dealloc,
    .tp_traverse = (traverseproc)shortcut_traverse,
    .tp_getset = operation_attributes,
    .tp_clear = (inquiry)shortcut_clear,
};
