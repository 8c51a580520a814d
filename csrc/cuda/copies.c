/* Copies between the host and the device. */
#include "cuda/cuda.h"

/* The strides of NumPy's array, if it lies without gaps in some order of its dimensions; whether it does. */
static int
is_dense(int nd, const npy_intp *dims, const npy_intp *strides, npy_intp item)
{
    npy_intp size = 1, span = item;
    for (int k = 0; k < nd; k++) {
        if (dims[k] == 0 || (dims[k] != 1 && strides[k] <= 0)) {
            return 0;
        }
        size *= dims[k];
        span += (dims[k] - 1) * strides[k];
    }
    if (span != size * item) {
        return 0;
    }
    for (int k = 0; k < nd; k++) { /* as many bytes as elements have; and no two at one place */
        for (int l = 0; l < k; l++) {
            if (dims[k] != 1 && dims[l] != 1 && strides[k] == strides[l]) {
                return 0;
            }
        }
    }
    return 1;
}

PyObject *
module_from_host(PyObject *module, PyObject *object)
{
    if (!PyArray_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "from_host() takes an array of NumPy's");
        return NULL;
    }
    PyArrayObject *host = (PyArrayObject *)Py_NewRef(object);
    if (PyArray_NDIM(host) > MOST_DIMS || !PyArray_ISBEHAVED_RO(host) ||
        !is_dense(PyArray_NDIM(host), PyArray_DIMS(host), PyArray_STRIDES(host), PyArray_ITEMSIZE(host))) {
        Py_SETREF(host, (PyArrayObject *)PyArray_FROM_OF((PyObject *)host, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_NOTSWAPPED |
                                                                                NPY_ARRAY_ALIGNED));
    }
    if (host == NULL) {
        return NULL;
    }
    Array *array = array_new(PyArray_DESCR(host), PyArray_NDIM(host), PyArray_DIMS(host), PyArray_STRIDES(host));
    if (array != NULL && array->size && driver_copy_to_device(array->data, PyArray_DATA(host), PyArray_NBYTES(host)) < 0) {
        Py_CLEAR(array);
    }
    Py_DECREF(host);
    return (PyObject *)array;
}

PyObject *
array_to_host(PyObject *self, PyObject *nothing)
{
    Array *array = (Array *)self;
    npy_intp item = PyDataType_ELSIZE(array->dtype);
    Array *source = is_dense(array->nd, array->dims, array->strides, item) ? (Array *)Py_NewRef(array)
                                                                           : contiguous(array);
    if (source == NULL) {
        return NULL;
    }
    use_gpu_of(source);
    Py_INCREF(source->dtype);
    PyObject *host = PyArray_NewFromDescr(&PyArray_Type, source->dtype, source->nd, source->dims, NULL, NULL, 0, NULL);
    if (host != NULL && source->size) {
        for (int d = 0; d < source->nd; d++) {
            PyArray_STRIDES((PyArrayObject *)host)[d] = source->strides[d];
        }
        PyArray_UpdateFlags((PyArrayObject *)host, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS);
        if (driver_copy_to_host(PyArray_DATA((PyArrayObject *)host), source->data, source->size * item) < 0) {
            Py_CLEAR(host);
        }
    }
    else if (host != NULL && raise_index_error() < 0) {
        Py_CLEAR(host);
    }
    Py_DECREF(source);
    return host;
}

/* overwrite(array, array of NumPy's with the same shape and dtype): write elements of the host into an array */
PyObject *
module_overwrite(PyObject *module, PyObject *args)
{
    PyObject *to, *host;
    if (!PyArg_ParseTuple(args, "O!O!", &Array_Type, &to, &PyArray_Type, &host)) {
        return NULL;
    }
    use_gpu_of((Array *)to);
    PyObject *there = module_from_host(module, host);
    int status = there == NULL ? -1 : copy_into((Array *)to, (Array *)there);
    Py_XDECREF(there);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}
