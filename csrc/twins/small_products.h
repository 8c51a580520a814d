/* Products of small matrices, computed without NumPy's machinery and without a BLAS, which takes longer to begin than
 * such a product takes. */
#ifndef UNDERTOW_SMALL_PRODUCTS_H
#define UNDERTOW_SMALL_PRODUCTS_H

#include "core.h"

/* a @ b, of two matrices that fit and have one dtype; NULL without an exception if that is not computed here. */
PyObject *small_product(PyArrayObject *a, PyArrayObject *b);

/* a @ b, of two matrices that fit and have one dtype, by whoever is quickest. */
PyObject *product_of_matrices(PyArrayObject *a, PyArrayObject *b);

#endif
