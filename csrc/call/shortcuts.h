/* Shortcuts: functions of tensors that sort out their arguments and call operations, with the usual case in C. */
#ifndef UNDERTOW_SHORTCUTS_H
#define UNDERTOW_SHORTCUTS_H

#include "call/operation.h"

#define MOST_TARGETS 4

typedef struct Shortcut Shortcut;

/* The result for the arguments (as of a vectorcall), or NULL without an exception: Python has to deal with them. The state
 * has no interceptor, and nobody who is shown changes. */
typedef PyObject *(*Way)(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count,
                         PyObject *names);

struct Shortcut {
    Operation operation; /* for the type's sake: only `function` is used */
    Way way;
    PyObject *targets[MOST_TARGETS]; /* what it calls */
    PyObject *row; /* what a profile calls it if it is shown as one operation, with nothing inside; or NULL */
};

/* ---- indexing.c */

PyObject *getitem(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *setitem(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);

/* ---- shortcuts_shapes.c */

PyObject *with_sizes(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *reshape(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *flatten(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *expand_as(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *numpy_T(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *contiguous(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *over_dims(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *matmul(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *squeeze(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *chunk(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *split(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);

/* How many of the names are among these two. */
Py_ssize_t known_names(PyObject *names, const char *first, const char *second);

/* ---- shortcuts_writes.c */

PyObject *zero_(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *fill_(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *copy_(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *wrapped(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);

/* ---- shortcuts_new.c */

PyObject *rand_new(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *randn_new(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *randint_new(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *randperm_new(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *fill_uniform(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *fill_normal(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *arange_new(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);
PyObject *linspace_new(const Shortcut *self, PyObject *state, PyObject *const *given, Py_ssize_t count, PyObject *names);

/* ---- small things */

/* The array of a tensor that is what most are: on the CPU, of a dtype that NumPy knows; or NULL. */
static inline PyArrayObject *
usual_array(PyObject *tensor)
{
    if (!is_tensor(tensor) || SLOT(tensor, core.t_xp) != core.cpu) {
        return NULL;
    }
    PyObject *array = SLOT(tensor, core.t_array);
    return PyArray_CheckExact(array) && !is_narrow(array) ? (PyArrayObject *)array : NULL;
}

#endif
