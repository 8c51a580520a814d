/* The C functions of the twins, by file. Each gets the arguments of its Python function, and returns NULL without an
 * exception for what it leaves to that one. */
#ifndef UNDERTOW_TWINS_H
#define UNDERTOW_TWINS_H

#include "core.h"

/* ---- views.c */

PyObject *select_array(PyObject *const *arguments);
PyObject *slice_array(PyObject *const *arguments);
PyObject *swap(PyObject *const *arguments);
PyObject *permute_array(PyObject *const *arguments);
PyObject *inverse(PyObject *const *arguments);
PyObject *unsqueeze_array(PyObject *const *arguments);
PyObject *squeeze_all(PyObject *const *arguments);
PyObject *squeeze_one(PyObject *const *arguments);
PyObject *expand_array(PyObject *const *arguments);
PyObject *view_array(PyObject *const *arguments);
PyObject *unbind_array(PyObject *const *arguments);
PyObject *cut_evenly(PyObject *const *arguments);
PyObject *select_gradient(PyObject *const *arguments);
PyObject *slice_gradient(PyObject *const *arguments);

/* ---- reductions.c */

PyObject *sum_all_forward(PyObject *const *arguments);
PyObject *sum_dims_forward(PyObject *const *arguments);
PyObject *mean_forward(PyObject *const *arguments);
PyObject *var_forward(PyObject *const *arguments);
PyObject *max_along(PyObject *const *arguments);
PyObject *min_along(PyObject *const *arguments);
PyObject *places_along(PyObject *const *arguments);
PyObject *fold(PyObject *const *arguments);
PyObject *sort_forward(PyObject *const *arguments);
PyObject *topk_forward(PyObject *const *arguments);
PyObject *scatter_selected(PyObject *const *arguments);
PyObject *restore(PyObject *const *arguments);

/* ---- relu.c */

PyObject *threshold_gradient(PyObject *const *arguments);
PyObject *positive_part(PyObject *const *arguments);

/* ---- pointwise.c */

PyObject *difference(PyObject *const *arguments);
PyObject *negated(PyObject *const *arguments);
PyObject *less(PyObject *const *arguments);
PyObject *less_equal(PyObject *const *arguments);
PyObject *greater(PyObject *const *arguments);
PyObject *greater_equal(PyObject *const *arguments);
PyObject *power(PyObject *const *arguments);
PyObject *gaussian_linear(PyObject *const *arguments);
PyObject *copied_small(PyObject *const *arguments);

/* ---- activations.c */

PyObject *clamped_to_numbers(PyObject *const *arguments);
PyObject *clamp_to_numbers_rule(PyObject *const *arguments);
PyObject *masked_fill_array(PyObject *const *arguments);
PyObject *logistic(PyObject *const *arguments);
PyObject *sigmoid_gradient(PyObject *const *arguments);
PyObject *tanh_gradient(PyObject *const *arguments);
PyObject *sigmoid_linear(PyObject *const *arguments);
PyObject *slope_of_silu_twin(PyObject *const *arguments);
PyObject *log_one_plus_exp(PyObject *const *arguments);
PyObject *exponential_linear(PyObject *const *arguments);
PyObject *elu_gradient(PyObject *const *arguments);

/* ---- shape.c */

PyObject *transpose_matrix(PyObject *const *arguments);
PyObject *broadcast_to(PyObject *const *arguments);
PyObject *join(PyObject *const *arguments);
PyObject *pile(PyObject *const *arguments);
PyObject *multiply_matrices(PyObject *const *arguments);
PyObject *sum_to(PyObject *const *arguments);

/* ---- linear.c */

PyObject *apply_linear(PyObject *const *arguments);

/* ---- loss.c */

PyObject *cross_entropy_forward(PyObject *const *arguments);
PyObject *nll_forward(PyObject *const *arguments);
PyObject *scores_from_classes(PyObject *const *arguments);
PyObject *softmax_minus_target(PyObject *const *arguments);
PyObject *target_coefficients(PyObject *const *arguments);
PyObject *normalized_exponentials(PyObject *const *arguments);
PyObject *logs_of_softmax(PyObject *const *arguments);
PyObject *softmax_gradient(PyObject *const *arguments);
PyObject *log_softmax_gradient(PyObject *const *arguments);

/* ---- multiples.c */

PyObject *descend(PyObject *const *arguments);

/* ---- facts.c */

PyObject *dim(PyObject *const *arguments);
PyObject *numel(PyObject *const *arguments);
PyObject *element_size(PyObject *const *arguments);
PyObject *data_ptr(PyObject *const *arguments);
PyObject *is_contiguous(PyObject *const *arguments);
PyObject *stride(PyObject *const *arguments);
PyObject *storage_offset(PyObject *const *arguments);

#endif
