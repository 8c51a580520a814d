/* Operations: what the files of this folder share. */
#ifndef UNDERTOW_OPERATION_H
#define UNDERTOW_OPERATION_H

#include "device_arrays.h"

/* ---- reading plans (ops/declare/plans.py) */

#define FIELD(plan, place) PyTuple_GET_ITEM(plan, place)

/* Whether it is a tuple of that size; -1 with an exception if not. */
int check_plan(PyObject *plan, Py_ssize_t size);

static inline int
int_field(PyObject *plan, int place)
{
    return (int)PyLong_AsLong(FIELD(plan, place));
}

static inline unsigned
bits_field(PyObject *plan, int place)
{
    return (unsigned)PyLong_AsUnsignedLong(FIELD(plan, place));
}

typedef struct {
    int argument;
    Py_ssize_t slot, version; /* where the node keeps the tensor and its version */
    unsigned users;           /* the edges (as bits) whose rules need it */
} Saved;

typedef struct {
    int output;
    Py_ssize_t slot;
    unsigned users;
} SavedOutput;

typedef struct {
    enum Fact kind;
    int argument;
    PyObject *constant;
} Value;

/* One compiled form of an operation: that for tensors, or that for a Python number in the place of one. */
typedef struct {
    Expression *forward;
    PyTypeObject *node; /* NULL: not differentiable */
    unsigned taking_part; /* the arguments (as bits) whose dtypes must be equal, or are made so */
    enum Promotion policy; /* what becomes of operands of different dtypes */
    int settled;        /* the argument that the dtype of the result is compared with; -1: it is not */
    int any_float;      /* whether a result of another dtype is right if that one is a float's */
    int check_output;
    int several;        /* whether there are several results, in a tuple */
    unsigned constant;  /* those of them (as bits) that have no gradient */
    unsigned exact;     /* and those that are not rounded to half precision */
    int order_count;
    char orders[MOST_ORDERS]; /* of each result: enum Order, in which its elements lie in memory */
    Py_ssize_t shapes, their_dtypes; /* where the node of several keeps what they are */
    int edge_count, saved_count, value_count, output_count;
    int edges[MOST_EDGES]; /* the arguments; -1: always None */
    Saved saved[MOST_EDGES];
    SavedOutput outputs[MOST_SAVED_OUTPUTS];
    Value *values;
} Form;

typedef struct Operation {
    STAND_IN_HEAD
    PyObject *plan;       /* a function that describes the forms (see ops/declare/core_plan.py), until it has been called */
    int (*read)(struct Operation *, PyObject *); /* reads what the plan returns */
    struct Operation *of; /* the operation whose forms it uses, and to whose arguments it adds `out`; or NULL */
    int count, positional; /* arguments; those that may be given by position */
    int is_view, takes_narrow, elementwise, widens, in_front;
    int number;            /* the argument that may be a number; -1: none */
    PyObject *names[MOST_ARGUMENTS], *defaults[MOST_ARGUMENTS];
    char inputs[MOST_ARGUMENTS]; /* 1: a tensor, 2: a tensor or None */
    Form *forms[2];
    Form *device_forms[2]; /* the same on a GPU */
    int asked_for_device;  /* whether these have been asked for */
} Operation;

/* ---- plan.c */

/* Read the description of the arguments and forms; whether it is a good one, and -1 with an exception. */
int read_description(Operation *self, PyObject *description);
/* Whether the forms are there, made now if they can be; -1 with an exception. */
int has_plan(Operation *self);
/* The same for those of a GPU. */
int has_device_plan(Operation *self);
void form_free(Form *form);

/* ---- operation.c */

/* Put what the function was called with in the order of its arguments; whether that can be done here.
 *
 * out  where the argument `out` goes, which need not be given; NULL if there is none */
int bind_arguments(const Operation *self, PyObject *const *given, Py_ssize_t count, PyObject *names,
                   PyObject **values, PyObject **out);
/* The arrays of the tensors, and everything else as it is; whether the form can compute with them: 2 if their dtypes
 * differ and have to be promoted before.
 *
 * by_rows  set to whether the elements of all arrays lie by rows, without gaps */
int find_arrays(const Operation *self, const Form *form, int number, PyObject *const *values, PyObject **arguments,
                int *by_rows);
/* Whether an argument is given as a number, and so the second form is the one to use. */
int is_given_number(const Operation *self, PyObject *const *values);
/* An option as forwards take it; 0 if Python has to look at it: a dtype of half precision, a class, a scalar, a tensor. */
int take_option(PyObject **option, int takes_narrow);
/* The tensor `out`, with the result, an array (taken over), written into it; NULL without an exception: Python has to do
 * it. */
PyObject *write_result(const Operation *self, PyObject *result, PyObject *out);
/* What `target`, an operation or any other callable, returns for these arguments. `state` is the current one, unless there
 * is a profile, which wants to see the call. */
PyObject *call_in_state(PyObject *target, PyObject *state, PyObject *const *given, Py_ssize_t count);
/* for the types that are made of Operation's */
PyObject *operation_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);

/* ---- batched.c */

/* The result of an operation under vmap; NULL without an exception: Python has to compute it. */
PyObject *batched_result(Operation *self, PyObject *state, PyObject *const *values);

/* ---- device.c */

/* The result of an operation on a GPU; NULL without an exception: Python has to compute it. */
PyObject *device_result(Operation *self, PyObject *state, PyObject *const *values);

/* ---- promote.c: all change the arrays (owned) among the arguments. 1 if it is done, 0 if Python has to do it, -1 with an
 * exception */

/* Cast operands of different dtypes to their common one. */
int promote_operands(const Operation *self, const Form *form, PyObject *const *values, PyObject **arguments);
/* Cast the first operand to what it is beside a Python number. */
int promote_beside_number(const Operation *self, const Form *form, PyObject **arguments);
/* Cast operands that are no floats to the default dtype. */
int make_floats(const Operation *self, const Form *form, PyObject **arguments);

/* ---- memory_order.c */

/* The result (taken over), an array or a tuple of them, with its elements in the order that the form names.
 *
 * number  the argument that is a number; -1: none
 * values  the arguments of the operation, in which find_arrays has found tensors: a cast may have put promoted operands
 *         in another order */
PyObject *in_its_order(const Operation *self, const Form *form, int number, PyObject *const *values, PyObject *out);

/* Whether a look at the result suffices: it lies by rows, as it should if its operands do (`by_rows`), or in any case. */
static inline int
lies_right(const Form *form, int by_rows, PyObject *out)
{
    if (form->order_count != 1 || form->several) {
        return 0;
    }
    enum Order order = form->orders[0];
    return order == ORDER_AS_COMPUTED || (PyArray_IS_C_CONTIGUOUS((PyArrayObject *)out) && order != ORDER_COLUMNS &&
                                          (by_rows || order == ORDER_ROWS));
}

/* ---- record.c */

/* The tensor for an array (taken over) that the operation has computed, recorded if the state says so; a tuple of them
 * for a tuple.
 *
 * values     the arguments of the operation
 * arguments  the same, but arrays in the place of tensors */
PyObject *record_result(Operation *self, const Form *form, PyObject *state, PyObject *const *values,
                        PyObject *const *arguments, PyObject *out);
/* The node of an operation whose result is `out`. `edges` (new references) are taken over.
 *
 * wanted  the edges (as bits) that are not None */
PyObject *new_node(const Form *form, PyObject *state, PyObject *const *values, PyObject *const *arguments,
                   PyObject *out, PyObject **edges, unsigned wanted);

/* ---- pieces of it */

/* The edge that an operation on the tensor records, a new reference. */
PyObject *edge_of(PyObject *tensor);
/* What stands in a node's edges for a leaf: its AccumulateGrad node, or the leaf itself. See Note [Edges to leaves]. */
PyObject *leaf_stands(PyObject *leaf, PyObject *node);
/* Show a node to who wants to see all (State.record), if somebody does. */
int show_to_recorder(PyObject *node, PyObject *state);

/* ---- nodes.c */

/* Have the nodes of a class, which an operation makes, come and go and be looked at here, if they can. */
void adopt_node_class(PyTypeObject *type);
/* A new node, with empty slots. */
PyObject *allocate_node(PyTypeObject *type);
/* The shape of an array, a tuple that nodes have in common (a new reference). */
PyObject *shared_shape(PyObject *array);
/* Keep a tuple that refers to nothing of the kind from the garbage collector. */
void untrack(PyObject *tuple);
/* Let a node show its edges itself, if nodes of its class do. */
void hide_edges(PyObject *node, PyObject *edges);

/* ---- nodes_apart.c */

/* Keep an object that the garbage collector knows from it for a while, if that can be done. */
void set_apart(PyObject *object);

/* ---- user_line.c */

/* The code (a new reference, NULL for none) and instruction of the nearest frame that is not undertow's own. */
PyCodeObject *user_site(int *lasti);
/* Note in a node which line of the user's program made it. */
int take_site(PyObject *node);

/* ---- changes.c */

/* The version of a tensor, a new reference. See version_of in tensor/tensor.py. */
PyObject *version_of(PyObject *tensor);
/* Count a change of the tensor's memory by the operation `name`, as VersionCounter.bump does; the counter (borrowed), or
 * NULL with an exception. */
PyObject *count_change(PyObject *tensor, PyObject *name);
/* Whether a tensor may be changed without asking anybody: is_free of ops/inplace/methods.py, and it has no history itself. */
int is_free(PyObject *tensor, PyObject *state);
/* Whether a gradient is asked of the tensor, or may be, as of a view. */
int may_require_grad(PyObject *tensor);
/* Whether two arrays may have a part of their memory in common, or all of it: then Python decides whether one may be
 * written to and the other read (ops/inplace/overlap.py). */
int may_overlap(PyArrayObject *a, PyArrayObject *b);
/* The same for an array and a value: a tensor, or a list of them. */
int may_overlap_any(PyArrayObject *array, PyObject *value);

/* ---- views.c */

/* Mark a result as a view of the source, as attach_view in tensor/views.py does; `arguments` is taken over.
 *
 * number  which of several results it is; None if it is the only one */
int attach_view(PyObject *result, PyObject *number, PyObject *source, PyObject *function, PyObject *arguments,
                PyObject *state);
/* The arguments of a view operation behind the tensor, a new tuple: what its replay keeps. */
PyObject *view_arguments(const Operation *self, PyObject *const *arguments);

#endif
