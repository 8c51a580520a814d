/* The variants of an elementwise kernel: compiled by Python for the dtypes that they meet. */
#include "cuda/elementwise.h"

static Variant *
make_variant(Elementwise *self, uint64_t key)
{
    PyObject *codes = PyTuple_New(self->nin);
    for (int k = 0; codes != NULL && k < self->nin; k++) {
        PyTuple_SET_ITEM(codes, k, PyLong_FromLong(key >> (KEY_BITS * k) & ((1 << KEY_BITS) - 1)));
    }
    PyObject *made = codes == NULL ? NULL : PyObject_CallOneArg(self->compile, codes);
    Py_XDECREF(codes);
    unsigned long long plain, strided;
    PyObject *out, *casts;
    if (made == NULL || !PyArg_ParseTuple(made, "O!KKO!", &PyArrayDescr_Type, &out, &plain, &strided, &PyTuple_Type,
                                          &casts)) {
        Py_XDECREF(made);
        return NULL;
    }
    Variant **room = realloc(self->variants, (self->count + 1) * sizeof(Variant *));
    Variant *variant = room == NULL ? NULL : calloc(1, sizeof(Variant));
    if (room != NULL) {
        self->variants = room;
    }
    if (variant == NULL) {
        Py_DECREF(made);
        PyErr_NoMemory();
        return NULL;
    }
    variant->key = key;
    variant->out = (PyArray_Descr *)Py_NewRef(out);
    variant->plain = (Function)(uintptr_t)plain;
    variant->strided = (Function)(uintptr_t)strided;
    for (int k = 0; k < self->nin && k < PyTuple_GET_SIZE(casts); k++) {
        variant->casts[k] = (char)PyLong_AsLong(PyTuple_GET_ITEM(casts, k));
    }
    Py_DECREF(made);
    self->variants[self->count++] = variant;
    return variant;
}

Variant *
find_variant(Elementwise *self, uint64_t key)
{
    for (int k = 0; k < self->count; k++) {
        if (self->variants[k]->key == key) {
            return self->variants[k];
        }
    }
    return make_variant(self, key);
}

Function
find_vector(Elementwise *self, Variant *variant, int singles)
{
    if (variant->vector[singles] == NULL) {
        PyObject *codes = PyTuple_New(self->nin);
        for (int k = 0; codes != NULL && k < self->nin; k++) {
            PyTuple_SET_ITEM(codes, k, PyLong_FromLong(variant->key >> (KEY_BITS * k) & ((1 << KEY_BITS) - 1)));
        }
        PyObject *made = codes == NULL ? NULL : PyObject_CallFunction(self->compile_vector, "Oi", codes, singles);
        Py_XDECREF(codes);
        if (made == NULL) {
            return NULL;
        }
        variant->vector[singles] = PyLong_AsVoidPtr(made);
        Py_DECREF(made);
    }
    return variant->vector[singles];
}
