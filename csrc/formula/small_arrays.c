/* See small_arrays.h. */
#include "formula/small_arrays.h"

PyObject *ufuncs[4], *negative;

int
find_ufuncs(void)
{
    static const char *const names[] = {"add", "subtract", "multiply", "true_divide"};
    PyObject *numpy = PyImport_ImportModule("numpy");
    if (numpy == NULL) {
        return -1;
    }
    for (int k = 0; k < 4; k++) {
        ufuncs[k] = PyObject_GetAttrString(numpy, names[k]);
    }
    negative = PyObject_GetAttrString(numpy, "negative");
    Py_DECREF(numpy);
    return PyErr_Occurred() == NULL ? 0 : -1;
}

/* The largest array that is computed here: beyond, NumPy's vector instructions gain more than its machinery costs. */
#define SMALL 1024

#define LOOPS(type)                                                                                                   \
    static void loop_##type(int symbol, const type *a, int a_step, const type *b, int b_step, type *out, npy_intp n)  \
    {                                                                                                                 \
        if (a_step && b_step) {                                                                                       \
            switch (symbol) {                                                                                       \
            case 0: for (npy_intp i = 0; i < n; i++) { out[i] = a[i] + b[i]; } break;                                 \
            case 1: for (npy_intp i = 0; i < n; i++) { out[i] = a[i] - b[i]; } break;                                 \
            case 2: for (npy_intp i = 0; i < n; i++) { out[i] = a[i] * b[i]; } break;                                 \
            default: for (npy_intp i = 0; i < n; i++) { out[i] = a[i] / b[i]; } break;                                \
            }                                                                                                         \
        }                                                                                                             \
        else if (a_step) {                                                                                            \
            const type c = *b;                                                                                        \
            switch (symbol) {                                                                                       \
            case 0: for (npy_intp i = 0; i < n; i++) { out[i] = a[i] + c; } break;                                    \
            case 1: for (npy_intp i = 0; i < n; i++) { out[i] = a[i] - c; } break;                                    \
            case 2: for (npy_intp i = 0; i < n; i++) { out[i] = a[i] * c; } break;                                    \
            default: for (npy_intp i = 0; i < n; i++) { out[i] = a[i] / c; } break;                                   \
            }                                                                                                         \
        }                                                                                                             \
        else {                                                                                                        \
            const type c = *a;                                                                                        \
            switch (symbol) {                                                                                       \
            case 0: for (npy_intp i = 0; i < n; i++) { out[i] = c + b[i]; } break;                                    \
            case 1: for (npy_intp i = 0; i < n; i++) { out[i] = c - b[i]; } break;                                    \
            case 2: for (npy_intp i = 0; i < n; i++) { out[i] = c * b[i]; } break;                                    \
            default: for (npy_intp i = 0; i < n; i++) { out[i] = c / b[i]; } break;                                   \
            }                                                                                                         \
        }                                                                                                             \
    }

LOOPS(float)
LOOPS(double)

static inline int
lies_plainly(PyArrayObject *array)
{
    return (PyArray_FLAGS(array) & (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED)) ==
           (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED);
}

/* Whether it is an array of one number, without dimensions, that can be read where it lies. */
static inline int
is_aligned_number(PyArrayObject *array)
{
    return PyArray_NDIM(array) == 0 && PyArray_CHKFLAGS(array, NPY_ARRAY_ALIGNED);
}

PyObject *
small_result(int symbol, PyObject *left, PyObject *right)
{
    PyArrayObject *a = PyArray_CheckExact(left) ? (PyArrayObject *)left : NULL;
    PyArrayObject *b = PyArray_CheckExact(right) ? (PyArrayObject *)right : NULL;
    PyArrayObject *shaped = a == NULL || (b != NULL && PyArray_NDIM(b) > PyArray_NDIM(a)) ? b : a;
    if (shaped == NULL) {
        return NULL;
    }
    PyArray_Descr *descr = PyArray_DESCR(shaped);
    if ((descr != core.float32 && descr != core.float64) || !lies_plainly(shaped) || count_of(shaped) > SMALL) {
        return NULL;
    }
    double number = 0;
    float single;
    const void *from[2];
    int step[2];
    for (int side = 0; side < 2; side++) {
        PyArrayObject *array = side ? b : a;
        if (array == NULL) {
            if (!as_number(side ? right : left, &number)) {
                return NULL;
            }
            single = (float)number;
            from[side] = descr == core.float32 ? (void *)&single : (void *)&number;
            step[side] = 0;
        }
        else {
            step[side] = array == shaped || same_shape(array, shaped);
            if (PyArray_DESCR(array) != descr || !(step[side] ? lies_plainly(array) : is_aligned_number(array))) {
                return NULL;
            }
            from[side] = PyArray_DATA(array);
        }
    }
    PyObject *out;
    if (is_temporary((PyObject *)shaped)) {
        out = Py_NewRef(shaped);
    }
    else if (step[0] && step[1] && is_temporary(shaped == a ? right : left)) {
        out = Py_NewRef(shaped == a ? right : left);
    }
    else {
        Py_INCREF(descr);
        out = PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(shaped), PyArray_DIMS(shaped), NULL, NULL, 0,
                                   NULL);
        if (out == NULL) {
            PyErr_Clear();
            return NULL;
        }
    }
    void *to = PyArray_DATA((PyArrayObject *)out);
    npy_intp n = count_of(shaped);
    if (descr == core.float32) {
        loop_float(symbol, from[0], step[0], from[1], step[1], to, n);
    }
    else {
        loop_double(symbol, from[0], step[0], from[1], step[1], to, n);
    }
    return out;
}

int
symbol_of(PyObject *ufunc)
{
    for (int k = 0; k < 4; k++) {
        if (ufunc == ufuncs[k]) {
            return k;
        }
    }
    return -1;
}

int
change_small(PyObject *ufunc, PyArrayObject *target, PyObject *other)
{
    int symbol = symbol_of(ufunc), step = 0;
    PyArray_Descr *descr = PyArray_DESCR(target);
    double number, scratch[SMALL];
    float single;
    const void *from;
    if (symbol < 0 || (descr != core.float32 && descr != core.float64) || !lies_plainly(target) ||
        !PyArray_ISWRITEABLE(target) || count_of(target) > SMALL) {
        return 0;
    }
    if (PyArray_CheckExact(other)) {
        PyArrayObject *array = (PyArrayObject *)other;
        step = same_shape(array, target);
        if (PyArray_DESCR(array) != descr || !(step ? lies_plainly(array) : is_aligned_number(array))) {
            return 0;
        }
        from = PyArray_DATA(array);
    }
    else {
        if (!as_number(other, &number)) {
            return 0;
        }
        single = (float)number;
        from = descr == core.float32 ? (void *)&single : (void *)&number;
    }
    /* by way of `scratch`: `other` may overlap */
    if (descr == core.float32) {
        loop_float(symbol, PyArray_DATA(target), 1, from, step, (float *)scratch, count_of(target));
    }
    else {
        loop_double(symbol, PyArray_DATA(target), 1, from, step, scratch, count_of(target));
    }
    memcpy(PyArray_DATA(target), scratch, PyArray_NBYTES(target));
    return 1;
}
