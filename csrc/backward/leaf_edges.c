/* Edges to leaves: `leaf_edge` and `resolve_leaves` of graph/accumulate.py, in C. See Note [Edges to leaves]. */
#include "backward/leaf_edges.h"
#include "call/operation.h"

/* What a leaf's Rare (tensor/extra.py) may say of its node: that gradients have a dtype of their own there, and that
 * graphs which are older than its memory have another one. */
enum { OTHER_DTYPE = 1, FORMER_MEMORY = 2 };

static int
said_of_node(PyObject *extra)
{
    static PyObject *name_dtype, *name_former;
    PyObject *rare = SLOT(extra, core.e_rare), *name, *value;
    if (rare == Py_None) {
        return 0;
    }
    if (name_former == NULL) {
        name_dtype = PyUnicode_InternFromString("grad_dtype");
        name_former = PyUnicode_InternFromString("former");
    }
    int is_readable = rare != NULL && name_dtype != NULL && name_former != NULL;
    PyObject *facts = is_readable ? PyObject_GenericGetDict(rare, NULL) : NULL;
    if (facts == NULL) {
        PyErr_Clear(); /* Python meets what is wrong with it */
        return OTHER_DTYPE | FORMER_MEMORY;
    }
    int said = 0;
    for (Py_ssize_t k = 0; PyDict_Next(facts, &k, &name, &value);) { /* names of attributes are interned */
        said |= name == name_dtype ? OTHER_DTYPE : name == name_former ? FORMER_MEMORY : 0;
    }
    Py_DECREF(facts);
    return said;
}

/* What all nodes of the stream of a node's extra share, if it is a stream of that device (a new reference), or NULL. */
static PyObject *
extra_of_stream(PyObject *extra, PyObject *xp)
{
    PyObject *stream = PyObject_GetAttrString(extra, "stream");
    PyObject *space = stream == NULL ? NULL : PyObject_GetAttrString(stream, "namespace");
    PyObject *shared = space == NULL || space != xp ? NULL : PyObject_GetAttrString(stream, "extra_of_nodes");
    Py_XDECREF(space);
    Py_XDECREF(stream);
    PyErr_Clear(); /* Python meets what is wrong with it */
    if (shared != NULL && Py_TYPE(shared) != core.StreamExtra) {
        Py_CLEAR(shared);
    }
    return shared;
}

/* What the node of a leaf on the GPU has: what nodes share on the stream of the operation that used the leaf first (a new
 * reference); NULL without an exception: Python has to look. See extra_of_user. */
static PyObject *
extra_of_first_user(PyObject *extra)
{
    PyObject *reference = SLOT(extra, core.e_used_by);
    PyObject *user = reference == Py_None ? NULL : referent(reference);
    PyObject *own = user == NULL ? NULL : SLOT(user, core.n_extra); /* NULL: it is being made */
    PyObject *shared = own == NULL || own == Py_None ? NULL : extra_of_stream(own, core.device_xp);
    Py_XDECREF(user);
    return shared;
}

/* Whether the core makes the nodes of a leaf with this array: one of NumPy's, or one on the only GPU that is in use. */
static int
is_known_array(PyObject *leaf, PyObject *array)
{
    PyObject *xp = SLOT(leaf, core.t_xp);
    return xp == core.cpu ? PyArray_CheckExact(array)
                          : xp == core.device_xp && core.device_xp != NULL && is_device_array(array);
}

/* See replace_leaf in graph/accumulate.py. */
static void
replace_leaf(PyObject *leaf, PyObject *extra, PyObject *node)
{
    PyObject *reference = SLOT(extra, core.e_used_by);
    PyObject *user = reference == Py_None ? NULL : referent(reference);
    PyObject *edges = user == NULL ? NULL : SLOT(user, core.n_recorded_edges); /* NULL: it is being made */
    int is_open = edges != NULL && PyList_CheckExact(edges);
    for (Py_ssize_t k = 0; is_open && k < PyList_GET_SIZE(edges); k++) {
        if (PyList_GET_ITEM(edges, k) == leaf) {
            PyList_SetItem(edges, k, Py_NewRef(node));
        }
    }
    Py_XDECREF(user);
}

/* Of two threads the second finds the first one's: the interpreter's lock is let go of by collections alone, and so only
 * before the second look. */
static PyObject *
make_leaf_edge(PyObject *leaf, PyObject *extra, int said)
{
    PyObject *array = SLOT(leaf, core.t_array), *found;
    if (said & OTHER_DTYPE || !is_known_array(leaf, array)) {
        return NULL;
    }
    PyObject *shared = is_device_array(array) ? extra_of_first_user(extra) : Py_NewRef(Py_None);
    if (shared == NULL) {
        return NULL;
    }
    PyObject *node = core.AccumulateGrad->tp_alloc(core.AccumulateGrad, 0);
    PyObject *reference = node == NULL ? NULL : PyWeakref_NewRef(node, NULL);
    PyObject *shape = reference == NULL ? NULL : shared_shape(array);
    if (shape == NULL) {
        Py_XDECREF(reference);
        Py_XDECREF(node);
        Py_DECREF(shared);
        return NULL;
    }
    SLOT(node, core.a_variable) = Py_NewRef(leaf);
    SLOT(node, core.n_sequence_nr) = Py_NewRef(core.LAST);
    SLOT(node, core.n_shape) = shape;
    SLOT(node, core.n_dtype) = Py_NewRef(dtype_of(array));
    SLOT(node, core.n_extra) = shared;
    PyObject *earlier = SLOT(extra, core.e_accumulate);
    if (earlier != Py_None && (found = referent(earlier)) != NULL) { /* another thread was faster */
        Py_DECREF(reference);
        Py_DECREF(node);
        return found;
    }
    set_slot(extra, core.e_accumulate, reference);
    if (!(said & FORMER_MEMORY)) {
        replace_leaf(leaf, extra, node);
    }
    return node;
}

PyObject *
new_leaf_edge(PyObject *leaf, PyObject *extra)
{
    return make_leaf_edge(leaf, extra, said_of_node(extra));
}

/* plain_leaf_edge(leaf): its AccumulateGrad node, new or not; None if it is not for C to make */
PyObject *
plain_leaf_edge(PyObject *module, PyObject *leaf)
{
    PyObject *made = is_tensor(leaf) && SLOT(leaf, core.t_extra) != Py_None
                         ? new_leaf_edge(leaf, SLOT(leaf, core.t_extra))
                         : NULL;
    return made != NULL || PyErr_Occurred() ? made : Py_NewRef(Py_None);
}

/* The node that a leaf stands for, whichever graph asks: a new reference, or NULL, without an exception if Python has to
 * find it. */
static PyObject *
node_of_leaf(PyObject *leaf)
{
    PyObject *extra = is_tensor(leaf) ? SLOT(leaf, core.t_extra) : Py_None;
    int said = extra == Py_None ? FORMER_MEMORY : said_of_node(extra);
    if (said & FORMER_MEMORY) {
        return NULL;
    }
    PyObject *reference = SLOT(extra, core.e_accumulate);
    PyObject *found = reference == Py_None ? NULL : referent(reference);
    return found != NULL || PyErr_Occurred() ? found : make_leaf_edge(leaf, extra, said);
}

int
resolve_leaves(PyObject *node, PyObject *edges)
{
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(edges); k++) {
        PyObject *leaf = PyList_GET_ITEM(edges, k);
        if (!PyObject_TypeCheck(leaf, core.Tensor)) {
            continue;
        }
        Py_INCREF(leaf);
        PyObject *found = node_of_leaf(leaf);
        Py_DECREF(leaf);
        if (found != NULL && PyList_SetItem(edges, k, found) == 0) {
            continue;
        }
        if (!PyErr_Occurred()) { /* Python looks at this one, and at those behind it */
            PyObject *nothing = PyObject_CallFunctionObjArgs(core.resolve_leaves, node, edges, NULL);
            Py_XDECREF(nothing);
        }
        return PyErr_Occurred() ? -1 : 0;
    }
    return 0;
}
