/* The nodes of a pass that are ready to run: latest recorded first; of equals, the one that came first. */
#ifndef UNDERTOW_HEAP_H
#define UNDERTOW_HEAP_H

#include "core.h"

typedef struct {
    unsigned long long number; /* the sequence number */
    unsigned long arrival;
    PyObject *node, *grad;     /* grad: NULL for none */
} Ready;

typedef struct {
    Ready *items;
    Py_ssize_t count, room;
    unsigned long arrivals;
} Heap;

static inline int
runs_before(const Ready *a, const Ready *b)
{
    return a->number > b->number || (a->number == b->number && a->arrival < b->arrival);
}

static inline int
heap_push(Heap *heap, PyObject *node, PyObject *grad) /* takes both over */
{
    if (heap->count == heap->room) {
        Py_ssize_t room = heap->room ? 2 * heap->room : 32;
        Ready *items = PyMem_Realloc(heap->items, room * sizeof(Ready));
        if (items == NULL) {
            Py_DECREF(node);
            Py_XDECREF(grad);
            PyErr_NoMemory();
            return -1;
        }
        heap->items = items;
        heap->room = room;
    }
    Ready ready = {PyLong_AsUnsignedLongLong(SLOT(node, core.n_sequence_nr)), heap->arrivals++, node, grad};
    Py_ssize_t place = heap->count++;
    while (place > 0 && runs_before(&ready, &heap->items[(place - 1) / 2])) {
        heap->items[place] = heap->items[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap->items[place] = ready;
    return PyErr_Occurred() ? -1 : 0;
}

static inline Ready
heap_pop(Heap *heap)
{
    Ready first = heap->items[0], last = heap->items[--heap->count];
    Py_ssize_t place = 0, child;
    while ((child = 2 * place + 1) < heap->count) {
        if (child + 1 < heap->count && runs_before(&heap->items[child + 1], &heap->items[child])) {
            child++;
        }
        if (!runs_before(&heap->items[child], &last)) {
            break;
        }
        heap->items[place] = heap->items[child];
        place = child;
    }
    heap->items[place] = last;
    return first;
}

static inline void
heap_free(Heap *heap)
{
    for (Py_ssize_t k = 0; k < heap->count; k++) {
        Py_DECREF(heap->items[k].node);
        Py_XDECREF(heap->items[k].grad);
    }
    PyMem_Free(heap->items);
}

#endif
