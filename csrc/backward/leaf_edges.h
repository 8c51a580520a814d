/* Edges to leaves: what the recording of operations, and passes that begin, share. See Note [Edges to leaves]. */
#ifndef UNDERTOW_LEAF_EDGES_H
#define UNDERTOW_LEAF_EDGES_H

#include "core.h"

/* The AccumulateGrad node of a leaf that has none yet (a new reference); NULL without an exception: C does not make it. */
PyObject *new_leaf_edge(PyObject *leaf, PyObject *extra);
/* Put AccumulateGrad nodes where leaves stand for them in the edges (a list) of a node. */
int resolve_leaves(PyObject *node, PyObject *edges);

#endif
