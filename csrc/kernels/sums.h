/* Sums of many numbers, in an order that does not depend on the number of threads. See sums.c. */
#ifndef UNDERTOW_SUMS_H
#define UNDERTOW_SUMS_H

#include "core.h"

/* out[o][i] = the sum over j of x[o][j][i], of `outer` times n times `inner` contiguous elements, divided by something;
 * `type` is float or double. Whether it is done: not if memory is short, or an overflow or the like was noted, of which
 * NumPy should speak. */
int sum_slices(int type, const void *x, npy_intp outer, npy_intp n, npy_intp inner, double divisor, void *out);

/* The same for the sums of squares of the distances from the mean; or their roots. n is the innermost dimension. */
int variances_of_rows(int type, const void *x, npy_intp outer, npy_intp n, double divisor, int root, void *out);

#endif
