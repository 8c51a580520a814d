/* What a pass will run: `compute_dependencies` of engine/dependencies.py, in C. */
#include "backward/leaf_edges.h"

typedef struct {
    PyObject **items;
    Py_ssize_t count, room;
} Stack;

static int
stack_push(Stack *stack, PyObject *item)
{
    if (stack->count == stack->room) {
        Py_ssize_t room = stack->room ? 2 * stack->room : 64;
        PyObject **items = PyMem_Realloc(stack->items, room * sizeof(PyObject *));
        if (items == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        stack->items = items;
        stack->room = room;
    }
    stack->items[stack->count++] = Py_NewRef(item);
    return 0;
}

/* One more edge leads to the node; 1 if it is the first. */
static int
count_edge(PyObject *dependencies, PyObject *node)
{
    PyObject *known = PyDict_GetItemWithError(dependencies, node);
    if (known == NULL && PyErr_Occurred()) {
        return -1;
    }
    PyObject *number = PyLong_FromSsize_t(known == NULL ? 1 : PyLong_AsSsize_t(known) + 1);
    int status = number == NULL ? -1 : PyDict_SetItem(dependencies, node, number);
    Py_XDECREF(number);
    return status < 0 ? -1 : known == NULL;
}

static int
count_edges_of(PyObject *dependencies, PyObject *node, unsigned long long lowest, Stack *stack)
{
    PyObject *edges = edges_of(node);
    if (edges != NULL && PyList_CheckExact(edges) && resolve_leaves(node, edges) < 0) { /* See Note [Edges to leaves] */
        Py_CLEAR(edges);
    }
    if (edges == NULL) {
        return -1;
    }
    int status = 0;
    for (Py_ssize_t k = 0; status == 0 && k < PySequence_Fast_GET_SIZE(edges); k++) {
        PyObject *edge = PySequence_Fast_GET_ITEM(edges, k);
        if (edge == Py_None) {
            continue;
        }
        PyObject *below = node_behind(edge);
        int first = below == NULL ? -1 : count_edge(dependencies, below);
        if (first < 0) {
            status = -1;
        }
        else if (first && !Py_IS_TYPE(below, core.AccumulateGrad) &&
                 (!lowest || PyLong_AsUnsignedLongLong(SLOT(below, core.n_sequence_nr)) >= lowest)) {
            status = stack_push(stack, below);
        }
    }
    Py_DECREF(edges);
    return status;
}

/* are_all_ends(dependencies, chosen): whether every node without an edge is among the chosen */
PyObject *
are_all_ends(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    PyObject *node, *number;
    Py_ssize_t position = 0;
    if (count != 2 || !PyDict_Check(arguments[0]) || !PyDict_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "are_all_ends(dependencies, chosen)");
        return NULL;
    }
    while (PyDict_Next(arguments[0], &position, &node, &number)) {
        PyObject *edges = node_behind(node) == NULL ? NULL : edges_of(node);
        if (edges == NULL) {
            return NULL;
        }
        int is_end = 1;
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(edges); k++) {
            is_end &= PySequence_Fast_GET_ITEM(edges, k) == Py_None;
        }
        Py_DECREF(edges);
        if (is_end && !PyDict_Contains(arguments[1], node)) {
            Py_RETURN_FALSE;
        }
    }
    Py_RETURN_TRUE;
}

/* compute_dependencies(dependencies, root, lowest) */
PyObject *
compute_dependencies(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 3 || !PyDict_Check(arguments[0]) || !PyObject_TypeCheck(arguments[1], core.Node)) {
        PyErr_SetString(PyExc_TypeError, "compute_dependencies(dependencies, root, lowest)");
        return NULL;
    }
    unsigned long long lowest = PyLong_AsUnsignedLongLong(arguments[2]);
    Stack stack = {0};
    int status = PyErr_Occurred() ? -1 : stack_push(&stack, arguments[1]);
    while (status == 0 && stack.count) {
        PyObject *node = stack.items[--stack.count];
        status = count_edges_of(arguments[0], node, lowest, &stack);
        Py_DECREF(node);
    }
    while (stack.count) {
        Py_DECREF(stack.items[--stack.count]);
    }
    PyMem_Free(stack.items);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}
