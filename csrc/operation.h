/* Operations: what operation.c and record.c share. */
#ifndef UNDERTOW_OPERATION_H
#define UNDERTOW_OPERATION_H

#include "core.h"

#define MOST_ARGUMENTS 12

enum value_kind { ITSELF, SHAPE, DTYPE, FIXED, BY_COLUMNS };

typedef struct {
    int argument;
    Py_ssize_t slot, version; /* where the node keeps the tensor and its version */
    unsigned users;           /* the edges (as bits) whose rules need it */
} Saved;

typedef struct {
    enum value_kind kind;
    int argument;
    PyObject *constant;
} Value;

/* One compiled form of an operation: that for tensors, or that for a Python number in the place of one. */
typedef struct {
    Expression *forward;
    PyTypeObject *node; /* NULL: not differentiable */
    unsigned dtypes;    /* the arguments (as bits) whose dtypes must be equal */
    int first;          /* the argument that the dtype of the result is compared with; -1: it is not */
    int any_float;      /* whether a result of another dtype is right if that one is a float's */
    int check_output;
    int edge_count, saved_count, value_count;
    int edges[MOST_EDGES]; /* the arguments; -1: always None */
    Saved saved[MOST_EDGES];
    Py_ssize_t saved_out; /* the slot, or 0 */
    unsigned out_users;
    Value *values;
} Form;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function; /* Python's */
    PyObject *plan;     /* a function that describes the forms (see ops/compiled.py), until it has been called */
    PyObject *weak_references;
    int count, positional; /* arguments; those that may be given by position */
    int is_view, elementwise;
    int number;            /* the argument that may be a number; -1: none */
    PyObject *names[MOST_ARGUMENTS], *defaults[MOST_ARGUMENTS];
    char inputs[MOST_ARGUMENTS]; /* 1: a tensor, 2: a tensor or None */
    Form *forms[2];
} Operation;

/* The tensor for an array (taken over) that the operation has computed, recorded if the state says so.
 *
 * values     the arguments of the operation
 * arguments  the same, but arrays in the place of tensors */
PyObject *record_result(Operation *self, const Form *form, PyObject *state, PyObject *const *values,
                        PyObject *const *arguments, PyObject *out);

/* ---- pieces of it */

/* The edge that an operation on the tensor records, a new reference. */
PyObject *edge_of(PyObject *tensor);
/* What stands in a node's edges for a leaf: its AccumulateGrad node, or the leaf itself. See Note [Edges to leaves]. */
PyObject *leaf_stands(PyObject *leaf, PyObject *node);
/* Note in a node which line of the user's program made it. */
int take_site(PyObject *node);
/* Show a node to who wants to see all (State.record), if somebody does. */
int show_to_recorder(PyObject *node, PyObject *state);

static inline PyObject *
shape_of(PyArrayObject *array)
{
    return PyArray_IntTupleFromIntp(PyArray_NDIM(array), PyArray_DIMS(array));
}

#endif
