/* Products of matrices by several threads. See products.c. */
#ifndef UNDERTOW_PRODUCTS_H
#define UNDERTOW_PRODUCTS_H

#include "core.h"

/* Whether the product of two matrices, or of stacks of them, was computed into `out`, which is contiguous, of float or
 * double, and no part of them. If not, a BLAS serves as well, or memory is short. */
int own_product(PyArrayObject *left, PyArrayObject *right, PyArrayObject *out);

#endif
