/* Gradients that are sent together: what distributed/data_parallel/arrivals.py does for each parameter, in C. */
#include "backward/arrivals.h"

/* From this many bytes on, other threads may run while a gradient is copied: one that waits for an exchange, say. */
enum { LONG_COPY = 1 << 18 };

/* The number at this place of an array of int64, or NULL if it is no such array. */
static npy_int64 *
number_at(PyObject *object, npy_intp place)
{
    PyArrayObject *array = (PyArrayObject *)object;
    if (object == NULL || !PyArray_CheckExact(object) || PyArray_TYPE(array) != NPY_INT64 || PyArray_NDIM(array) != 1 ||
        !PyArray_ISCARRAY(array) || place < 0 || place >= PyArray_DIM(array, 0)) {
        return NULL;
    }
    return (npy_int64 *)PyArray_DATA(array) + place;
}

/* The array (borrowed) of a tensor's gradient, or NULL if it has none. */
static PyObject *
gradient_of(PyObject *tensor)
{
    PyObject *extra = is_tensor(tensor) ? SLOT(tensor, core.t_extra) : Py_None;
    PyObject *grad = extra == Py_None ? NULL : SLOT(extra, core.e_grad);
    return grad != NULL && grad != Py_None && is_tensor(grad) ? SLOT(grad, core.t_array) : NULL;
}

/* ---- a gradient comes */

/* Whether one array can be copied into another byte by byte. */
static int
are_alike(PyObject *target, PyObject *source)
{
    PyArrayObject *a = (PyArrayObject *)target, *b = (PyArrayObject *)source;
    return PyArray_CheckExact(target) && PyArray_CheckExact(source) && PyArray_DESCR(a) == PyArray_DESCR(b) &&
           !PyDataType_REFCHK(PyArray_DESCR(a)) && PyArray_IS_C_CONTIGUOUS(a) && PyArray_IS_C_CONTIGUOUS(b) &&
           PyArray_ISWRITEABLE(a) && PyArray_SAMESHAPE(a, b);
}

static void
copy_bytes(PyObject *target, PyObject *source)
{
    char *to = PyArray_BYTES((PyArrayObject *)target), *from = PyArray_BYTES((PyArrayObject *)source);
    size_t bytes = PyArray_NBYTES((PyArrayObject *)target);
    if (bytes < LONG_COPY) {
        memmove(to, from, bytes);
        return;
    }
    Py_INCREF(target);
    Py_INCREF(source);
    Py_BEGIN_ALLOW_THREADS
    memmove(to, from, bytes);
    Py_END_ALLOW_THREADS
    Py_DECREF(target);
    Py_DECREF(source);
}

/* Let the gradient of a tensor, which has this array, lie in that one; 0 if it is not so. */
static int
replace_gradient(PyObject *tensor, PyObject *array, PyObject *view)
{
    if (gradient_of(tensor) != array) {
        return 0;
    }
    PyObject *grad = SLOT(SLOT(tensor, core.t_extra), core.e_grad);
    if (Py_REFCNT(grad) == 1 && SLOT(grad, core.t_edge) == Py_None && SLOT(grad, core.t_extra) == Py_None) {
        set_slot(grad, core.t_array, Py_NewRef(view)); /* the leaf has just been given it: nobody else knows it */
        return 1;
    }
    PyObject *made = new_tensor(Py_NewRef(view), Py_None, Py_None);
    if (made == NULL) {
        return -1;
    }
    if (gradient_of(tensor) != array) { /* making the tensor may have run the garbage collector */
        Py_DECREF(made);
        return 0;
    }
    set_slot(SLOT(tensor, core.t_extra), core.e_grad, made);
    return 1;
}

/* Copy a gradient into the memory that is sent, as `take` does; 0 if Python has to look at it. */
static int
take(PyObject *tensor, PyObject *view, int as_view)
{
    PyObject *array = gradient_of(tensor);
    if (array == NULL || array == view) {
        return array != NULL;
    }
    if (!are_alike(view, array)) {
        return 0;
    }
    Py_INCREF(array);
    Py_INCREF(view);
    copy_bytes(view, array);
    int taken = as_view ? replace_gradient(tensor, array, view) : 1;
    Py_DECREF(array);
    Py_DECREF(view);
    return taken;
}

/* The array is in the memory that is sent: how many of its bucket are still missing; -1 if there is no such number. */
static npy_int64
count_down(PyObject *arrivals, Py_ssize_t number)
{
    npy_int64 *left = number_at(SLOT(arrivals, core.arrivals_left), number);
    npy_int64 *bucket = number_at(SLOT(arrivals, core.arrivals_buckets), number);
    npy_int64 *missing = bucket == NULL ? NULL : number_at(SLOT(arrivals, core.arrivals_missing), *bucket);
    if (left == NULL || missing == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "an Arrivals was changed while a gradient came");
        return -1;
    }
    *left = 0;
    return --*missing;
}

int
note_arrival(PyObject *hook, PyObject *tensor)
{
    PyObject *arrivals = ((Arrival *)hook)->arrivals;
    Py_ssize_t number = ((Arrival *)hook)->number;
    npy_int64 *left = number_at(SLOT(arrivals, core.arrivals_left), number);
    PyObject *views = SLOT(arrivals, core.arrivals_views);
    if (SLOT(arrivals, core.arrivals_is_open) != Py_True || left == NULL || *left < 1) {
        return UNUSUAL;
    }
    if (*left > 1) {
        --*left;
        return TAKEN;
    }
    if (views == NULL || !PyList_CheckExact(views) || number >= PyList_GET_SIZE(views)) {
        return UNUSUAL;
    }
    int taken = take(tensor, PyList_GET_ITEM(views, number), SLOT(arrivals, core.arrivals_as_view) == Py_True);
    if (taken <= 0) {
        return taken < 0 ? -1 : UNUSUAL;
    }
    npy_int64 missing = count_down(arrivals, number);
    return missing < 0 ? -1 : missing == 0 ? COMPLETE : TAKEN;
}

PyObject *
go_on_after_arrival(PyObject *hook, int noted, PyObject *tensor)
{
    PyObject *arrivals = ((Arrival *)hook)->arrivals;
    if (noted < 0) {
        return NULL;
    }
    if (noted == TAKEN) {
        Py_RETURN_NONE;
    }
    PyObject *function = SLOT(arrivals, noted == COMPLETE ? core.arrivals_complete : core.arrivals_unusual);
    PyObject *number = function == NULL ? NULL : PyLong_FromSsize_t(((Arrival *)hook)->number);
    if (number == NULL) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_AttributeError, "an Arrivals is called before it is made");
    }
    Py_INCREF(function);
    PyObject *arguments[] = {number, tensor};
    PyObject *result = PyObject_Vectorcall(function, arguments, noted == COMPLETE ? 0 : 2, NULL);
    Py_DECREF(function);
    Py_DECREF(number);
    return result;
}

/* ---- Arrival: what a parameter calls when it has its gradient */

static PyObject *
arrival_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *arrivals;
    Py_ssize_t number;
    if (!PyArg_ParseTuple(args, "O!n", core.Arrivals, &arrivals, &number)) {
        return NULL;
    }
    Arrival *self = (Arrival *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->arrivals = Py_NewRef(arrivals);
        self->number = number;
    }
    return (PyObject *)self;
}

static PyObject *
arrival_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *tensor;
    if (!PyArg_ParseTuple(args, "O", &tensor)) {
        return NULL;
    }
    return go_on_after_arrival(self, note_arrival(self, tensor), tensor);
}

static int
arrival_traverse(Arrival *self, visitproc visit, void *arg)
{
    Py_VISIT(self->arrivals);
    return 0;
}

/* No tp_clear: circles go through the Arrivals, which can be cleared, and whoever calls this finds it whole. */
static void
arrival_dealloc(Arrival *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->arrivals);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject Arrival_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "undertow._core.Arrival",
    .tp_basicsize = sizeof(Arrival),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = arrival_new,
    .tp_dealloc = (destructor)arrival_dealloc,
    .tp_traverse = (traverseproc)arrival_traverse,
    .tp_call = arrival_call,
};

/* ---- the gradients of a bucket */

static int
append_number(PyObject *list, Py_ssize_t number)
{
    PyObject *boxed = PyLong_FromSsize_t(number);
    int status = boxed == NULL ? -1 : PyList_Append(list, boxed);
    Py_XDECREF(boxed);
    return status;
}

static int
check_lists(PyObject *const *lists, Py_ssize_t count, const char *usage)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        if (!PyList_CheckExact(lists[k]) || PyList_GET_SIZE(lists[k]) != PyList_GET_SIZE(lists[0])) {
            PyErr_SetString(PyExc_TypeError, usage);
            return -1;
        }
    }
    return 0;
}

/* give_gradients(tensors, views): the places of tensors into whose gradient nothing was copied */
PyObject *
give_gradients(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    const char *usage = "give_gradients(tensors, views), two lists of one length";
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, usage);
        return NULL;
    }
    PyObject *left = check_lists(arguments, 2, usage) < 0 ? NULL : PyList_New(0);
    for (Py_ssize_t k = 0; left != NULL && check_lists(arguments, 2, usage) == 0 && k < PyList_GET_SIZE(arguments[0]);
         k++) {
        PyObject *view = Py_NewRef(PyList_GET_ITEM(arguments[1], k));
        PyObject *gradient = gradient_of(PyList_GET_ITEM(arguments[0], k));
        int given = gradient != NULL && (gradient == view || are_alike(gradient, view));
        if (given && gradient != view) {
            copy_bytes(gradient, view);
        }
        Py_DECREF(view);
        if (!given && append_number(left, k) < 0) {
            Py_CLEAR(left);
        }
    }
    if (PyErr_Occurred()) {
        Py_CLEAR(left);
    }
    return left;
}
