/* A backward pass that runs in C: what engine.c, gradients.c and leaves.c share. */
#ifndef UNDERTOW_PASS_H
#define UNDERTOW_PASS_H

#include "backward/heap.h"
#include "device_arrays.h"

typedef struct {
    PyObject *task, *xp, *keep, *info, *wanted, *dependencies, *not_ready, *captured; /* of the GraphTask */
    PyObject *add;
    PyTypeObject *ndarray;
    PyObject *owned; /* the nodes whose gathered gradient is the engine's own */
    int in_place;
    int has_graph_root; /* whether the first node is a GraphRoot */
    PyObject *rows; /* None, or the list of a profile: see rows.h */
    Heap heap;
} Pass;

/* ---- gradients.c */

/* Look up what these functions ask arrays and namespaces for; once, before they are called. */
int find_array_names(void);
/* Whether a gradient has the shape and dtype that a node expects; -1 and an exception if that cannot be told. */
int fits(PyObject *grad, PyObject *shape, PyObject *dtype);
/* A gradient (taken over) in the shape and dtype that the node below expects. */
PyObject *conformed(Pass *pass, PyObject *node, int index, PyObject *grad, PyObject *below);
/* Add a gradient (taken over; NULL: none) to what the node below has got. */
int gather_gradient(Pass *pass, PyObject *below, PyObject *grad);
/* What the node below has got, taken from it: a new reference, or NULL for none. */
PyObject *gathered(Pass *pass, PyObject *below);

/* ---- leaves.c */

/* Run an AccumulateGrad node, as _finish_leaf does; the gradient (NULL: none) is taken over. */
int finish_leaf(Pass *pass, PyObject *node, PyObject *grad);

#endif
