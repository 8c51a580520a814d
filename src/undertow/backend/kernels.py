"""Kernels of the compiled core (csrc/kernels/), which do in one step what takes NumPy several.

Each takes the array namespace and then the arguments that its C function names. It returns None where it does not
serve (no compiled core, arrays that are not contiguous, not float32 or float64, or empty): the caller then computes the
same with array functions. Other devices may have kernels of the same names (`own_kernels` of their namespaces).
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from undertow.backend.cpu import cpu
from undertow.backend.interface import Namespace
from undertow.compiled import core

if TYPE_CHECKING:
    from undertow.backend.interface import Array

#: functions that are told of every kernel that has run: its name, its arguments, and how many nanoseconds it took
listeners: list[Callable[[str, tuple[Any, ...], int], None]] = []


def kernel(name: str) -> Callable[..., Any]:
    def call(xp: Namespace, *arguments: Any) -> Any:
        if xp is cpu:
            compiled = getattr(core, name, None)
            if listeners and compiled is not None:
                return told(name, compiled, arguments)
            return None if compiled is None else compiled(*arguments)
        own = getattr(xp, "own_kernels", None)
        if own is not None and name in own:
            return own[name](*arguments)
        if getattr(xp, "traces", False) and all([getattr(a, "is_contiguous", True) for a in arguments]):
            raise LookupError(f"{name} is there, and better than a program of array functions")
        return None

    return call


def told(name: str, compiled: Callable[..., Any], arguments: tuple[Any, ...]) -> Array:
    begin = perf_counter_ns()
    found = compiled(*arguments)
    if found is not None:
        took = perf_counter_ns() - begin
        for listener in tuple(listeners):
            listener(name, arguments, took)
    return found


#: (matrix, in any order in memory) -> it as the left factor of packed_product
packed_rows = kernel("packed_rows")
#: (left factor, right, out) -> True; out = left @ right
packed_product = kernel("packed_product")
#: (x, dims, weight, bias, eps, centred) -> (out, mean, rstd)
norm_rows = kernel("norm_rows")
#: (g, x, dims, mean, rstd, weight, needs) -> gradients of x, weight and bias
norm_rows_gradient = kernel("norm_rows_gradient")
#: (x, groups, weight, bias, eps) -> (out, mean, rstd, variance)
norm_channels = kernel("norm_channels")
#: (g, x, groups, mean, rstd, weight, needs) -> gradients of x, weight and bias
norm_channels_gradient = kernel("norm_channels_gradient")
#: (g, mask, scale) -> g * scale where the mask is set, 0 elsewhere
dropout_gradient = kernel("dropout_gradient")
#: (x, whether by the curve of tanh) -> gelu(x); and its gradient, with g before x
gelu = kernel("gelu")
gelu_gradient = kernel("gelu_gradient")
#: (x, weight, bias, stride, padding, dilation, groups) -> the convolution
convolve = kernel("convolve")
#: (y, weight, bias, sizes of the result, stride, padding, dilation, groups) -> its transpose
convolve_transposed = kernel("convolve_transposed")
#: (x, y, sizes of windows, stride, padding, dilation, groups) -> the gradient of its weights
convolve_weight = kernel("convolve_weight")
#: (x, kernel, stride, padding, dilation, counts) -> (values, flat places)
max_pool = kernel("max_pool")
#: (x, counts) -> (values, flat places)
adaptive_max_pool = kernel("adaptive_max_pool")
#: (g, flat places, sizes) -> zeros of these sizes to which g was added
max_pool_gradient = kernel("max_pool_gradient")
#: (x, counts, kernel, stride, padding, whether padding counts, divisor or 0) -> means; then with g and sizes instead
avg_pool = kernel("avg_pool")
avg_pool_gradient = kernel("avg_pool_gradient")
#: (out, index, rows) -> True; out[index[k]] += rows[k] for every k, in place
add_rows = kernel("add_rows")
#: (out, to, factors, from, rows) -> True; out[to[k]] += factors[k] * rows[from[k]] for every k, in place
add_weighted_rows = kernel("add_weighted_rows")
#: (start, emissions, jumps, running) -> the states of all steps; these, the states and their gradient -> the gradients
#: of start and emissions
ctc_states = kernel("ctc_states")
ctc_gradients = kernel("ctc_gradients")
#: (g, input, target, weight, ignore_index, reduction) -> the gradient of the input
cross_entropy_gradient = kernel("cross_entropy_gradient")
#: (formula of a, b, c, numbers s[k] and `shared`; tuples of arrays; numbers; an array of one number or None) -> True:
#: the first of each tuple has changed
change_all = kernel("change_all")
#: (arrays, order) -> the norm of all their elements
total_norm = kernel("total_norm")
#: (x, scales) -> softmax(x) along the last dimension, times a number for each row
scaled_softmax_rows = kernel("scaled_softmax_rows")
#: (x) -> log(sum(exp(x))) along the last dimension, which is left out; (x, numbers) -> the same, minus one for each row
logsumexp_rows = kernel("logsumexp_rows")
#: (x, dim, SOFTMAX or LOG_SOFTMAX or LOGSUMEXP, a number for each column or None), along a dimension before the last
softmax_columns = kernel("softmax_columns")
SOFTMAX, LOG_SOFTMAX, LOGSUMEXP = range(3)
#: (x, pairs) -> its gradient; a pair is the gradient of a result, and the result
logsumexp_rows_gradient = kernel("logsumexp_rows_gradient")
#: (x, index, dim) -> x.take(index, dim)
take = kernel("take")
#: on other devices alone: (index, first, end) -> True; one outside of [first, end) is an IndexError at the next look
note_outside = kernel("note_outside")
#: on other devices alone: (values, order, starts) -> values[order] added up from each start to the next
sum_ordered_runs = kernel("sum_ordered_runs")
#: (x, dim, index) -> the elements that an index names along a dimension; of the same sizes in all others
gather = kernel("gather")
#: (out, dim, index, x) -> True; adds elements where such an index says, in place
scatter_add = kernel("scatter_add")
#: the same, but puts them there, or combines them with what is there
scatter = kernel("scatter")
scatter_multiply = kernel("scatter_multiply")
scatter_maximum = kernel("scatter_maximum")
scatter_minimum = kernel("scatter_minimum")
#: on other devices alone: (x, whether its logarithm, zeros for rows of -inf) -> softmax of the last dimension; (g, what
#: that gave, whether it was the logarithm) -> its gradient
softmax_rows_of = kernel("softmax_rows_of")
softmax_rows_slope = kernel("softmax_rows_slope")
#: (input, target, weight, ignore_index, reduction) -> the loss; (g, target, input, ignore_index) -> its gradient;
#: (target, weight, classes, ignore_index, reduction, dtype) -> what each target counts in the loss
cross_entropy = kernel("cross_entropy")
softmax_minus_target = kernel("softmax_minus_target")
target_coefficients = kernel("target_coefficients")
#: (plan, signals, out, dim, kind, factor) -> True; their Fourier transforms
fourier = kernel("fourier")
#: (x) -> silu(x); and its gradient, with g before x
silu = kernel("silu_values")
silu_gradient = kernel("silu_slopes")
#: on other devices alone: (x, weight, bias) -> x @ weight.T + bias
linear = kernel("linear")
#: on other devices alone: (x, dim, whether the largest comes first) -> the indices that sort
sorted_order = kernel("sorted_order")
#: on other devices alone: (x, dim, whether the largest comes first, count) -> the first elements of their order, and
#: their indices
first_in_order = kernel("first_in_order")
#: (name, x) -> a special function of real floating-point numbers, of those that are there
special_function = kernel("special_function")
#: (g, x, slope) -> g where x is positive, else slope * g
leaky = kernel("leaky")
#: (x, dim, whether from the end) -> running sums
running_sums = kernel("running_sums")
#: (x, dim) -> running products
running_products = kernel("running_products")
#: (x, dim, whether the smallest) -> (running extremes, the latest places where they were met)
running_extremes = kernel("running_extremes")
#: on other devices alone: (query, key, value, whether causal, scale) -> (attention, logs of the sums); (g, needs,
#: query, key, value, result, logs, whether causal, scale) -> its gradients
attention = kernel("attention")
attention_gradients = kernel("attention_gradients")
#: (rows, whether descending, wanted, rank or -1) -> the places of their elements in order, or that of one rank
order_rows = kernel("order_rows")
#: (input, grid, number of the padding, whether corners are aligned) -> the images at the points of the grid; the same,
#: g, and whether each is needed -> gradients of input and grid
grid_sample = kernel("grid_sample")
grid_sample_gradients = kernel("grid_sample_gradients")
#: (rows, bias) -> True; rows += bias, in place, if there are many
add_bias = kernel("add_bias")
#: (scores, scale, first) -> logs of the sums; the scores become their softmax
softmax_scores = kernel("softmax_scores")
#: (scores, scale, first, logs) -> True; the same, when the logs are known
weigh_scores = kernel("weigh_scores")
#: (slopes, scale, weights) -> True; gradients of weights become those of scores
slope_scores = kernel("slope_scores")
#: (gates, cell, next cell, its tanh, hidden) -> True; one step of an LSTM in place, of which only the cell stays
lstm_step = kernel("lstm_step")
#: (gates, their gradients, cell, tanh of the next, gradients of hidden and cell) -> True; in place as well
lstm_step_gradient = kernel("lstm_step_gradient")
#: on other devices alone: (x, h0, c0, weights and biases, reverse) -> (outputs, gates after activation, cells);
#: (gradients of outputs and of the last h and c, c0, weight_hh, gates, cells, reverse) -> those of gates before
#: activation, and of the first h and c
lstm_layer = kernel("lstm_layer")
lstm_layer_gradients = kernel("lstm_layer_gradients")
#: (gates, h0, weight_hh, bias_hh, reverse) -> (outputs, gates after activation, what the reset gate multiplies);
#: (gradients of outputs and of the last h, h0, weight_hh, these three, reverse) -> those of gates before activation, of
#: what h contributed to them, and of the first h
gru_layer = kernel("gru_layer")
gru_layer_gradients = kernel("gru_layer_gradients")
#: (gradients of gates, first h, outputs, reverse) -> that of weight_hh
recurrent_weight_gradient = kernel("recurrent_weight_gradient")
#: (param, grad, mean, square, largest square or None, numbers) -> True; an update of Adam, see optim/adam.py
adam_update = kernel("adam_update")
#: on other devices alone: ([(param, grad, mean, square), ...], numbers) -> True; all updates at once, see
#: optim/together.py; ([(param, grad) or (param, grad, momentum), ...], numbers) -> the same for SGD
adam_updates = kernel("adam_updates")
sgd_updates = kernel("sgd_updates")
#: (x, diagonal, whether the upper one) -> a triangle of matrices of any real dtype
triangle = kernel("triangle")
#: rows of a small matrix, at most: LARGEST of csrc/kernels/small_matrices.c
SMALL_MATRIX = 32
#: (A, B, upper, unitriangular) -> X of A X = B, for stacks of small triangular matrices
solve_triangles = kernel("solve_triangles")
#: (A, B) -> X of A X = B, for stacks of small matrices that are not singular
solve_small = kernel("solve_small")
#: (A) -> the lower factors of stacks of small positive-definite matrices
cholesky_small = kernel("cholesky_small")
#: (A) -> (L and U in one matrix, the rows, from 1, that rows were exchanged with in turn), for stacks of small matrices
lu_small = kernel("lu_small")
#: (such exchanges of rows, number of rows) -> the places that rows had before, for stacks
places_of_rows = kernel("places_of_rows")
#: on other devices alone: (A) -> the first minor of each matrix that is not positive-definite, or 0; the same of pivots
#: that are zero
first_bad_minors = kernel("first_bad_minors")
first_zero_pivots = kernel("first_zero_pivots")


def take_matrix(xp: Namespace, size: int) -> bool:
    """Whether `solve_triangles` takes matrices of so many rows."""
    return size <= SMALL_MATRIX or getattr(xp, "takes_any_matrix", False)


#: (float32 fractions, sixteen to a block) -> normal numbers
blocks_to_normal = kernel("blocks_to_normal")
#: (capsule of NumPy's MT19937) -> whether its state is what the next two, and faster draws, take it for
trust_twister = kernel("trust_twister")
#: (capsule) -> (words of the state, position)
read_twister = kernel("read_twister")
#: (capsule, words, position) -> True
place_twister = kernel("place_twister")
#: (capsule of a bit generator, count) -> array; what ops/random/mersenne_twister.py makes of its words
random_words = kernel("random_words")
random_singles = kernel("random_singles")
random_doubles = kernel("random_doubles")
random_normals = kernel("random_normals")
random_permutation = kernel("random_permutation")
#: (points x, points y, p: 1.0 or 2.0) -> distances of all pairs; and, of g before and the distances behind, those of x
distances = kernel("distances")
distances_gradient = kernel("distances_gradient")
#: (concentrations, gamma variables of rate 1), both in double precision -> how the variables move with them
gamma_slopes = kernel("gamma_slopes")
#: (beta variables, a, b), likewise -> how the variables move with a
beta_slopes = kernel("beta_slopes")
#: (capsule, spare normal number or None, concentrations) -> (array, the next spare); see ops/random/rejection.py
random_gammas = kernel("random_gammas")
#: (capsule, float64 rates) -> array
random_poissons = kernel("random_poissons")
#: (capsule, counts, probabilities of the same dtype) -> array
random_binomials = kernel("random_binomials")
