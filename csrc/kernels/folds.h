/* Slices reduced to one number each: the largest, the smallest, products, sums of sizes and of squares. See folds.c. */
#ifndef UNDERTOW_FOLDS_H
#define UNDERTOW_FOLDS_H

#include "core.h"

typedef enum { LARGEST, SMALLEST, PRODUCT, SIZES, SQUARES, FOLDS } Fold;

/* out[o][i] = the fold over j of x[o][j][i], of `outer` times n times `inner` contiguous elements; `type` is float or
 * double. Whether it is done: not if memory is short, or an overflow or the like was noted, of which NumPy should speak. */
int fold_slices(Fold fold, int type, const void *x, npy_intp outer, npy_intp n, npy_intp inner, void *out);

/* The largest of every slice, or the smallest, and the first place where it is. NaN is that if there is one. */
void find_extremes(int smallest, int type, const void *x, npy_intp outer, npy_intp n, npy_intp inner, void *out,
                   npy_int64 *places);

#endif
