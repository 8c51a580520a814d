/* Gradients that are sent together: what arrivals.c and leaves.c share. */
#ifndef UNDERTOW_ARRIVALS_H
#define UNDERTOW_ARRIVALS_H

#include "core.h"

typedef struct {
    PyObject_HEAD
    PyObject *arrivals; /* an Arrivals of distributed/data_parallel/arrivals.py */
    Py_ssize_t number;  /* of the parameter */
} Arrival;

/* What is left to be done when a gradient has come: nothing; its bucket is to be sent; Python has to look at it. */
enum { TAKEN, COMPLETE, UNUSUAL };

/* A tensor has its gradient: do what is usual. -1: an exception. */
int note_arrival(PyObject *arrival, PyObject *tensor);
/* Do the rest, which is Python: a new reference. */
PyObject *go_on_after_arrival(PyObject *arrival, int noted, PyObject *tensor);

#endif
