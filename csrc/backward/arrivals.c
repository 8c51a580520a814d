/* Gradients that are sent together: what distributed/data_parallel/arrivals.py does for each parameter, in C. */
#include "core.h"

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

/* Note a gradient: 1, 2 if it is the last of its bucket, and 0 if there is more to do. */
static int
note(PyObject *arrivals, Py_ssize_t number, PyObject *tensor)
{
    npy_int64 *came = number_at(SLOT(arrivals, core.arrivals_came), number);
    npy_int64 *bucket = number_at(SLOT(arrivals, core.arrivals_buckets), number);
    npy_int64 *place = number_at(SLOT(arrivals, core.arrivals_places), number);
    npy_int64 *missing = bucket == NULL ? NULL : number_at(SLOT(arrivals, core.arrivals_missing), *bucket);
    PyObject *arrays = SLOT(arrivals, core.arrivals_arrays), *gradient = gradient_of(tensor);
    if (SLOT(arrivals, core.arrivals_is_open) != Py_True || came == NULL || *came || place == NULL || missing == NULL ||
        gradient == NULL || arrays == NULL || !PyList_CheckExact(arrays) || *bucket >= PyList_GET_SIZE(arrays)) {
        return 0;
    }
    PyObject *row = PyList_GET_ITEM(arrays, *bucket);
    if (!PyList_CheckExact(row) || *place < 0 || *place >= PyList_GET_SIZE(row)) {
        return 0;
    }
    int is_last = --*missing == 0;
    *came = 1;
    PyList_SetItem(row, *place, Py_NewRef(gradient)); /* what was there may run code as it goes: last of all */
    return 1 + is_last;
}

/* arrived(arrivals, number, tensor) */
PyObject *
arrived(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3 || !Py_IS_TYPE(arguments[0], core.Arrivals) || !PyLong_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "arrived(arrivals, number, tensor)");
        return NULL;
    }
    int noted = note(arguments[0], PyLong_AsSsize_t(arguments[1]), arguments[2]);
    if (noted == 1) {
        Py_RETURN_NONE;
    }
    PyObject *function = SLOT(arguments[0], noted ? core.arrivals_complete : core.arrivals_unusual);
    if (function == NULL) {
        PyErr_SetString(PyExc_AttributeError, "an Arrivals is called before it is made");
        return NULL;
    }
    Py_INCREF(function);
    PyObject *result = noted ? PyObject_CallNoArgs(function) : PyObject_Vectorcall(function, arguments + 1, 2, NULL);
    Py_DECREF(function);
    return result;
}

/* ---- the gradients of a bucket */

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

static int
append_number(PyObject *list, Py_ssize_t number)
{
    PyObject *boxed = PyLong_FromSsize_t(number);
    int status = boxed == NULL ? -1 : PyList_Append(list, boxed);
    Py_XDECREF(boxed);
    return status;
}

/* Let the gradient of a tensor, which has this array, lie in that one; 0 if it is not so. */
static int
replace_gradient(PyObject *tensor, PyObject *array, PyObject *view)
{
    if (gradient_of(tensor) != array) {
        return 0;
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

/* 1 if the gradient at this place was taken, 0 if Python has to look at it */
static int
take_one(PyObject *tensor, PyObject *view, PyObject *array, int as_view)
{
    if (array == view) {
        return 1;
    }
    if (!are_alike(view, array)) {
        return 0;
    }
    copy_bytes(view, array);
    return as_view ? replace_gradient(tensor, array, view) : 1;
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

/* take_gradients(tensors, views, arrays, as_view): the places that were not taken */
PyObject *
take_gradients(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    const char *usage = "take_gradients(tensors, views, arrays, as_view), three lists of one length";
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, usage);
        return NULL;
    }
    PyObject *left = check_lists(arguments, 3, usage) < 0 ? NULL : PyList_New(0);
    int as_view = PyObject_IsTrue(arguments[3]);
    for (Py_ssize_t k = 0; left != NULL && check_lists(arguments, 3, usage) == 0 && k < PyList_GET_SIZE(arguments[0]);
         k++) {
        PyObject *tensor = Py_NewRef(PyList_GET_ITEM(arguments[0], k));
        PyObject *view = Py_NewRef(PyList_GET_ITEM(arguments[1], k));
        PyObject *array = Py_NewRef(PyList_GET_ITEM(arguments[2], k));
        int taken = take_one(tensor, view, array, as_view);
        Py_DECREF(tensor);
        Py_DECREF(view);
        Py_DECREF(array);
        if (taken < 0 || (taken == 0 && append_number(left, k) < 0)) {
            Py_CLEAR(left);
        }
    }
    if (PyErr_Occurred()) {
        Py_CLEAR(left);
    }
    return left;
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
