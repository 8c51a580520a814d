/* Which nodes the garbage collector looks at.
 *
 * Note [Nodes apart]: the collector looks at new objects again and again, at old ones now and then, and while a graph grows
 * that is most of the time. It is in vain, for a graph goes when nobody has its end any more, unless something that it
 * leads to leads back: a hook, metadata, a gradient with a history, an attribute of a tensor. So new nodes, and results of
 * operations that they save, are moved to a list of their own, which the collector does not know; to it, what only these
 * refer to is in use. It gets them all back, at the cost of four assignments,
 * - when a full collection begins, so that no cycle stays for ever,
 * - and when somebody does what most cycles need: adds a hook, asks for metadata, or starts a pass that is recorded. Then
 *   nodes stay where they are made until the collector has looked at those of the middle generation twice, so that cycles
 *   are found as soon as those of other objects.
 *
 * The collector keeps its objects in circles that go through two words in front of each. Since Python 3.14 old objects are
 * looked at bit by bit, in circles of another kind: there nodes stay where they are.
 */
#include "call/operation.h"

#if PY_VERSION_HEX < 0x030E0000 && !defined(Py_GIL_DISABLED) && !defined(PYPY_VERSION)

typedef struct {
    uintptr_t next, previous; /* the lowest two bits of `previous` are notes of the collector's */
} Link;

#define NOTES ((uintptr_t)3)
#define BEING_LOOKED_AT ((uintptr_t)2)
#define ENOUGH 2

static Link apart = {(uintptr_t)&apart, (uintptr_t)&apart};
/* An empty list that is put among the youngest objects for a moment, to find them. */
static PyObject *marker;
/* How many collections of the middle generation are to begin before nodes are set apart again. */
static int wary;

static inline Link *
link_of(PyObject *object)
{
    return (Link *)object - 1;
}

static inline void
connect(Link *first, Link *second)
{
    first->next = (uintptr_t)second;
    second->previous = (second->previous & NOTES) | (uintptr_t)first;
}

/* Move everything that is apart to the youngest objects. */
static void
give_back(void)
{
    if (apart.next == (uintptr_t)&apart) {
        return;
    }
    PyObject_GC_Track(marker);
    Link *own = link_of(marker), *behind = (Link *)own->next;
    connect(own, (Link *)apart.next);
    connect((Link *)apart.previous, behind);
    connect(&apart, &apart);
    PyObject_GC_UnTrack(marker);
}

/* One of `gc.callbacks`, which are called with a phase, and a dict that has the generation. */
static PyObject *
note_collection(PyObject *nobody, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs == 2 && PyUnicode_CompareWithASCIIString(args[0], "start") == 0) {
        PyObject *generation = PyDict_GetItemString(args[1], "generation");
        long number = generation == NULL ? 2 : PyLong_AsLong(generation);
        if (number >= 2 || wary) {
            give_back();
        }
        wary -= wary > 0 && number >= 1;
    }
    Py_RETURN_NONE;
}

/* Ask to be told of collections; whether that could be done. */
static int
listen(void)
{
    static PyMethodDef method = {"note_collection", (PyCFunction)(void (*)(void))note_collection, METH_FASTCALL};
    PyObject *collector = PyImport_ImportModule("gc");
    PyObject *callbacks = collector == NULL ? NULL : PyObject_GetAttrString(collector, "callbacks");
    PyObject *function = callbacks == NULL ? NULL : PyCFunction_New(&method, NULL);
    marker = function == NULL ? NULL : PyList_New(0);
    int done = marker != NULL && PyList_Append(callbacks, function) == 0;
    if (done) {
        PyObject_GC_UnTrack(marker);
    }
    PyErr_Clear();
    Py_XDECREF(function);
    Py_XDECREF(callbacks);
    Py_XDECREF(collector);
    return done;
}

/* Move an object, which the collector knows, unless it is just looking at it. */
void
set_apart(PyObject *object)
{
    static int listens = -1;
    if (listens < 0) {
        listens = listen();
    }
    Link *own = link_of(object);
    if (listens && !wary && !(own->previous & BEING_LOOKED_AT)) {
        PyObject_GC_UnTrack(object);
        connect((Link *)apart.previous, own);
        connect(own, &apart);
    }
}

/* watch_nodes(): somebody does something that most cycles through nodes need */
PyObject *
watch_nodes(PyObject *module, PyObject *nothing)
{
    give_back();
    wary = ENOUGH;
    Py_RETURN_NONE;
}

#else

void
set_apart(PyObject *object)
{
}

PyObject *
watch_nodes(PyObject *module, PyObject *nothing)
{
    Py_RETURN_NONE;
}

#endif

/* keep_apart(node): a node that Python has made, and its edges */
PyObject *
keep_apart(PyObject *module, PyObject *node)
{
    PyObject *edges = PyObject_TypeCheck(node, core.Node) ? SLOT(node, core.n_recorded_edges) : NULL;
    if (edges != NULL && PyObject_GC_IsTracked(node)) {
        set_apart(node);
    }
    if (edges != NULL && PyTuple_CheckExact(edges) && PyObject_GC_IsTracked(edges)) {
        set_apart(edges);
    }
    Py_RETURN_NONE;
}
