/* How the nodes of operations come, go and are looked at by the garbage collector. Their classes are Python's, which has one
 * way for the objects of all classes: it asks each class between theirs and `object` for its slots. A node has nothing but
 * slots, one beside the other, so here they are gone through as they lie.
 *
 * Note [What the collector sees of a node]: a graph is made of many small objects, and the collector looks at all of them
 * again and again while it grows. So a node's edges are no object of their own to it: their tuple is untracked, and as long
 * as nobody but the node has it, the node shows what is in it as if that were the node's. Numbers, the shape and the
 * line of the program lead to nothing that leads back, and are not shown at all.
 */
#include "call/operation.h"

#define MOST_WORDS 32
#define MOST_KEPT 64

/* ---- memory */

/* Nodes that are gone, by size: the next ones take their memory. */
static PyObject *kept[MOST_WORDS + 1][MOST_KEPT];
static int kept_count[MOST_WORDS + 1];

/* How many words an object of the class has behind its head. */
static inline Py_ssize_t
words_of(PyTypeObject *type)
{
    return (type->tp_basicsize - (Py_ssize_t)sizeof(PyObject)) / (Py_ssize_t)sizeof(PyObject *);
}

static inline PyObject **
first_word(PyObject *node)
{
    return (PyObject **)(node + 1);
}

/* Since Python 3.12 weak references lie in front of an object, and their number is negative. */
static inline Py_ssize_t
word_at(Py_ssize_t offset)
{
    return (offset - (Py_ssize_t)sizeof(PyObject)) / (Py_ssize_t)sizeof(PyObject *);
}

PyObject *
allocate_node(PyTypeObject *type)
{
    Py_ssize_t words = words_of(type);
    if (type->tp_dealloc != free_node || words > MOST_WORDS || kept_count[words] == 0) {
        PyObject *made = type->tp_alloc(type, 0);
        if (made != NULL && type->tp_dealloc == free_node) {
            set_apart(made);
        }
        return made;
    }
    PyObject *node = kept[words][--kept_count[words]]; /* its words are NULL */
    PyObject_Init(node, type);
    PyObject_GC_Track(node);
    set_apart(node);
    return node;
}

void
free_node(PyObject *node)
{
    PyTypeObject *type = Py_TYPE(node);
    Py_ssize_t words = words_of(type), weak_references = word_at(type->tp_weaklistoffset);
    PyObject_GC_UnTrack(node);
    Py_TRASHCAN_BEGIN(node, free_node) /* a long chain of nodes must not be a deep recursion */
    PyObject **word = first_word(node);
    if (word[weak_references] != NULL) {
        PyObject_ClearWeakRefs(node);
    }
    for (Py_ssize_t k = 0; k < words; k++) {
        if (k != weak_references) {
            Py_CLEAR(word[k]);
        }
    }
    if (type->tp_dealloc == free_node && words <= MOST_WORDS && kept_count[words] < MOST_KEPT) {
        kept[words][kept_count[words]++] = node;
    }
    else {
        type->tp_free(node);
    }
    Py_DECREF(type);
    Py_TRASHCAN_END
}

/* ---- the collector */

/* What is in the edges of a node, if nobody else has them and the collector does not know them. */
static int
visit_edges(PyObject *edges, visitproc visit, void *arg)
{
    if (!PyTuple_CheckExact(edges) || Py_REFCNT(edges) > 1 || PyObject_GC_IsTracked(edges)) {
        return visit(edges, arg);
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(edges); k++) {
        Py_VISIT(PyTuple_GET_ITEM(edges, k));
    }
    return 0;
}

static int
visit_node(PyObject *node, visitproc visit, void *arg)
{
    PyTypeObject *type = Py_TYPE(node);
    PyObject **word = first_word(node), *edges = SLOT(node, core.n_recorded_edges);
    Py_ssize_t words = words_of(type);
    unsigned long hidden = 1UL << word_at(core.n_recorded_edges) | 1UL << word_at(core.n_sequence_nr) |
                           1UL << word_at(core.n_shape) | 1UL << word_at(core.n_dtype) | 1UL << word_at(core.n_code) |
                           1UL << word_at(core.n_lasti);
    if (type->tp_weaklistoffset > 0) {
        hidden |= 1UL << word_at(type->tp_weaklistoffset);
    }
    Py_VISIT(type);
    for (Py_ssize_t k = 0; k < words; k++) {
        if (!(hidden >> k & 1) && word[k] != Py_None) {
            Py_VISIT(word[k]);
        }
    }
    return edges == NULL ? 0 : visit_edges(edges, visit, arg);
}

/* Let the collector see the edges as the node's own, if its class is one whose nodes show them. */
void
hide_edges(PyObject *node, PyObject *edges)
{
    if (Py_TYPE(node)->tp_traverse == visit_node) {
        PyObject_GC_UnTrack(edges);
    }
}

/* ---- what nodes keep */

#define MOST_SIZES 4
#define SHAPES 64

PyObject *
shared_shape(PyObject *array)
{
    static struct {
        int ndim;
        npy_intp dims[MOST_SIZES];
        PyObject *shape;
    } shapes[SHAPES];
    int ndim = ndim_of(array);
    const npy_intp *dims = dims_of(array);
    if (ndim > MOST_SIZES) {
        return shape_of(array);
    }
    size_t place = (size_t)ndim;
    for (int k = 0; k < ndim; k++) {
        place = place * 31 + (size_t)dims[k];
    }
    place %= SHAPES;
    int known = shapes[place].shape != NULL && shapes[place].ndim == ndim;
    for (int k = 0; known && k < ndim; k++) {
        known = shapes[place].dims[k] == dims[k];
    }
    if (!known) {
        PyObject *shape = shape_of(array);
        if (shape == NULL) {
            return NULL;
        }
        untrack(shape);
        shapes[place].ndim = ndim;
        for (int k = 0; k < ndim; k++) { /* there need not be an address of no sizes */
            shapes[place].dims[k] = dims[k];
        }
        Py_XSETREF(shapes[place].shape, shape);
    }
    return Py_NewRef(shapes[place].shape);
}

void
untrack(PyObject *tuple)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple); k++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, k);
        if (PyObject_IS_GC(item) && (!PyTuple_CheckExact(item) || PyObject_GC_IsTracked(item))) {
            return;
        }
    }
    PyObject_GC_UnTrack(tuple);
}

/* ---- classes */

void
adopt_node_class(PyTypeObject *type)
{
    if (type->tp_dealloc == core.Node->tp_dealloc && type->tp_traverse == core.Node->tp_traverse &&
        type->tp_free == PyObject_GC_Del && type->tp_alloc == PyType_GenericAlloc && type->tp_finalize == NULL &&
        type->tp_del == NULL && type->tp_dictoffset == 0 && type->tp_weaklistoffset != 0 &&
        words_of(type) <= MOST_WORDS) {
        type->tp_dealloc = free_node;
        type->tp_traverse = visit_node;
    }
}
