/* Numbers at equal distances, written into contiguous arrays of one dimension. */
#ifndef UNDERTOW_RANGES_H
#define UNDERTOW_RANGES_H

#include "core.h"

/* start, start + step, ..., in an array of int64 */
void put_whole_range(PyArrayObject *array, int64_t start, int64_t step);
/* the same, in one of float32 or float64 */
void put_range(PyArrayObject *array, double start, double step);
/* from `start` to `end`, counted from both ends towards the middle, in one of float32 or float64 */
void put_equal_distances(PyArrayObject *array, double start, double end);

PyObject *range_array(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *equal_distances(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

#endif
