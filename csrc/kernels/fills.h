/* Arrays of one number. See fills.c. */
#ifndef UNDERTOW_FILLS_H
#define UNDERTOW_FILLS_H

#include "core.h"

/* Set all elements to a number, as `array.fill(number)` does, silently; -1 with an exception. */
int fill_array(PyArrayObject *array, PyObject *number);
/* The same of an array of numbers in one piece, and 0. */
void zero_array(PyArrayObject *array);

#endif
