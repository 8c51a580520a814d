"""What declared operations compute, in words, and how each is called: for `help` and for the reference.

It is loaded when somebody asks. Functions made of others say it in their docstrings; a declaration is mathematics, and
has none. The second part is an example, where `EXAMPLES` below does not have one for all of its kind.
"""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    summary: str
    example: str | None = None


_M = "ut.tensor([[1.0, 2.0], [3.0, 4.0]])"  # what many examples begin with

WORDS = {
    # copies and arithmetic
    "clone": Words("A copy with memory of its own, through which gradients flow.", f"ut.clone({_M})"),
    "add": Words("The sum of two tensors, the second times `alpha`."),
    "sub": Words("The difference of two tensors, the second times `alpha`."),
    "rsub": Words("The difference the other way round: `other` minus `input` times `alpha`."),
    "neg": Words("Each element with the other sign."),
    "mul": Words("The product, element by element."),
    "addcmul": Words("`input` plus `value` times the product of two tensors.", f"ut.addcmul(*3 * [{_M}])"),
    "lerp": Words("From `input` towards `end`, by the fraction `weight`.", f"ut.lerp({_M}, 10 * {_M}, 0.5)"),
    "true_divide": Words("The quotient, element by element; of integers, too, it is a floating-point number."),
    "floor_divide": Words("The quotient, rounded down."),
    "remainder": Words("What a division rounded down leaves: it has the sign of the divisor, as Python's `%` has."),
    "fmod": Words("What a division rounded towards zero leaves: it has the sign of the dividend, as C's `fmod` has."),
    "addcdiv": Words("`input` plus `value` times the quotient of two tensors.", f"ut.addcdiv(*3 * [{_M}])"),
    "copy": Words("The elements of `src`, in the shape and dtype of `input`.", f"ut.ones(2, 2).copy_({_M})"),
    "zero": Words("Zeros in the place of all elements.", "ut.ones(2).zero_()"),
    "fill": Words("`value` in the place of all elements.", "ut.fill(ut.ones(2), 3.0)"),
    "pow": Words("`input` to the power of `exponent`, element by element; either may be a number."),
    "sqrt": Words("The square root of each element."),
    "rsqrt": Words("One over the square root of each element."),
    "cbrt": Words("The cube root of each element, negative ones included."),
    "reciprocal": Words("One over each element."),
    "abs": Words("The absolute value of each element; of complex numbers, the modulus."),
    "sgn": Words("The sign of each element; of complex numbers, the number divided by its modulus, and 0 at 0."),
    "sign": Words("The sign of each element: -1, 0 or 1."),
    "ldexp": Words("`input` times two to the power of `other`."),
    "hypot": Words("The length of the hypotenuse: the root of the sum of two squares, without overflow on the way."),
    "xlogy": Words("`input` times the logarithm of `other`; 0 where `input` is 0."),
    # exponentials and logarithms
    "exp": Words("e to the power of each element."),
    "exp2": Words("2 to the power of each element."),
    "expm1": Words("e to the power of each element, minus 1; exact for small ones."),
    "log": Words("The natural logarithm of each element."),
    "log2": Words("The logarithm to base 2 of each element."),
    "log10": Words("The logarithm to base 10 of each element."),
    "log1p": Words("The logarithm of 1 plus each element; exact for small ones."),
    "sigmoid": Words("The logistic function of each element: 1 / (1 + exp(-x)), between 0 and 1."),
    "sigmoid_backward": Words("The gradient of `sigmoid`, from that of its output and the output."),
    "logit": Words("The inverse of `sigmoid`: log(x / (1 - x)); `eps` keeps x that far from 0 and 1."),
    "logaddexp": Words("The logarithm of the sum of two exponentials, without overflow."),
    "logaddexp2": Words("The logarithm to base 2 of the sum of two powers of 2, without overflow."),
    # angles
    "sin": Words("The sine of each element, in radians."),
    "cos": Words("The cosine of each element, in radians."),
    "tan": Words("The tangent of each element, in radians."),
    "asin": Words("The inverse sine of each element, between -pi/2 and pi/2."),
    "acos": Words("The inverse cosine of each element, between 0 and pi."),
    "atan": Words("The inverse tangent of each element, between -pi/2 and pi/2."),
    "atan2": Words("The angle of the point (`other`, `input`), between -pi and pi; both signs count."),
    "sinh": Words("The hyperbolic sine of each element."),
    "cosh": Words("The hyperbolic cosine of each element."),
    "tanh": Words("The hyperbolic tangent of each element, between -1 and 1."),
    "tanh_backward": Words("The gradient of `tanh`, from that of its output and the output."),
    "asinh": Words("The inverse hyperbolic sine of each element."),
    "acosh": Words("The inverse hyperbolic cosine of each element, which is at least 1.", f"ut.acosh({_M})"),
    "atanh": Words("The inverse hyperbolic tangent of each element, which lies between -1 and 1."),
    "sinc": Words("sin(pi x) / (pi x) of each element; 1 at 0."),
    "deg2rad": Words("Degrees as radians."),
    "rad2deg": Words("Radians as degrees."),
    # rounding
    "floor": Words("The greatest integer that is not above each element."),
    "ceil": Words("The least integer that is not below each element."),
    "trunc": Words("Each element without what follows the point."),
    "round": Words("Each element rounded to `decimals` places, halves to the even neighbour."),
    "frac": Words("What follows the point, with the sign of the element."),
    # complex numbers
    "view_as_real": Words(
        "The memory of complex numbers as pairs of real ones, along a new last dimension.",
        "ut.view_as_real(ut.tensor([1 + 2j]))",
    ),
    "complex": Words("Complex numbers from their real and imaginary parts.", f"ut.complex({_M}, {_M})"),
    "polar": Words("Complex numbers from absolute values and angles.", f"ut.polar({_M}, {_M})"),
    "angle": Words("The angle of each number in the complex plane; of a real one, 0 or pi."),
    # choosing
    "maximum": Words("The larger of two elements; nan if one of them is."),
    "minimum": Words("The smaller of two elements; nan if one of them is."),
    "fmax": Words("The larger of two elements; the other one if one is nan."),
    "fmin": Words("The smaller of two elements; the other one if one is nan."),
    "clamp_min": Words("Each element, or `min` if that is larger.", f"ut.clamp_min({_M}, 2.5)"),
    "clamp_max": Words("Each element, or `max` if that is smaller.", f"ut.clamp_max({_M}, 2.5)"),
    "heaviside": Words("0 below 0, 1 above, and `values` at 0."),
    "nan_to_num": Words("Finite numbers in the place of nan (0) and infinities (the largest and least of the dtype)."),
    "copysign": Words("The size of `input` with the sign of `other`."),
    "nextafter": Words("The next number that the dtype has, from `input` towards `other`."),
    # comparisons and tests
    "eq": Words("Whether two elements are equal."),
    "ne": Words("Whether two elements differ."),
    "lt": Words("Whether `input` is less than `other`."),
    "le": Words("Whether `input` is at most `other`."),
    "gt": Words("Whether `input` is greater than `other`."),
    "ge": Words("Whether `input` is at least `other`."),
    "logical_and": Words("Whether both are true, that is, not zero."),
    "logical_or": Words("Whether one of both is true, that is, not zero."),
    "logical_xor": Words("Whether exactly one of both is true, that is, not zero."),
    "logical_not": Words("Whether an element is zero."),
    "bitwise_and": Words("The bits that both integers have."),
    "bitwise_or": Words("The bits that one of both integers has."),
    "bitwise_xor": Words("The bits that exactly one of both integers has."),
    "bitwise_not": Words("The bits that an integer has not."),
    "bitwise_left_shift": Words("The bits of `input`, moved up by `other` places."),
    "bitwise_right_shift": Words("The bits of `input`, moved down by `other` places; the sign is kept."),
    "isnan": Words("Whether each element is nan."),
    "isinf": Words("Whether each element is infinite, of either sign."),
    "isfinite": Words("Whether each element is neither infinite nor nan."),
    "isposinf": Words("Whether each element is positive infinity."),
    "isneginf": Words("Whether each element is negative infinity."),
    "isreal": Words("Whether each element has no imaginary part."),
    "signbit": Words("Whether each element has a minus in front, which -0.0 has, too."),
    "isclose": Words("Whether two elements differ by at most `atol` plus `rtol` times the size of `other`."),
    "isin": Words("Whether each element is among `test_elements`.", f"ut.isin({_M}, ut.tensor([2.0, 3.0]))"),
    "gcd": Words("The greatest common divisor of two integers."),
    "lcm": Words("The least common multiple of two integers."),
    # activations
    "threshold_backward": Words("`grad_output` where `input` is above the threshold, and 0 elsewhere."),
    "relu": Words("Each element, or 0 if it is negative."),
    "leaky_relu": Words("Each element; negative ones times `negative_slope`."),
    "hardtanh": Words("Each element, kept between `min_val` and `max_val`."),
    "hardsigmoid": Words("A sigmoid of three straight lines: x / 6 + 1 / 2, kept between 0 and 1."),
    "hardswish": Words("Each element times its `hardsigmoid`."),
    "hardshrink": Words("Each element, or 0 if it is within `lambd` of 0."),
    "softshrink": Words("Each element, moved towards 0 by `lambd`, and 0 within that distance."),
    "elu": Words("Each element; below 0, `alpha` times (exp(x) - 1)."),
    "celu": Words("Each element; below 0, `alpha` times (exp(x / alpha) - 1), which is smooth for every alpha."),
    "silu": Words("Each element times its sigmoid, also called swish."),
    "softplus": Words("A smooth `relu`: log(1 + exp(beta x)) / beta; x itself once beta x is above `threshold`."),
    "logsigmoid": Words("The logarithm of the sigmoid, without underflow."),
    "mish": Words("Each element times tanh(softplus(x))."),
    "gelu": Words("Each element times the normal distribution's probability below it (or its tanh approximation)."),
    # special functions
    "erf": Words("The error function: the probability that a normal number of variance 1/2 lies within x of 0."),
    "erfc": Words("1 - erf(x), exact where that is small."),
    "erfinv": Words("The inverse of `erf`, for x between -1 and 1."),
    "lgamma": Words("The logarithm of the absolute value of the gamma function."),
    "digamma": Words("The derivative of `lgamma`."),
    "mvlgamma": Words("The logarithm of the multivariate gamma function of dimension `p`.", f"ut.mvlgamma({_M}, 1)"),
    "igamma": Words("The regularised lower incomplete gamma function P(`input`, `other`)."),
    "igammac": Words("The regularised upper incomplete gamma function Q(`input`, `other`), 1 - P."),
    "i0": Words("The modified Bessel function of the first kind, of order 0."),
    "special_i0e": Words("`i0` times exp(-|x|), which does not overflow."),
    "special_i1": Words("The modified Bessel function of the first kind, of order 1."),
    "special_i1e": Words("`i1` times exp(-|x|), which does not overflow."),
    "special_erfcx": Words("exp(x^2) times erfc(x), which does not underflow."),
    "special_log_ndtr": Words("The logarithm of the normal distribution's probability below x, without underflow."),
    "special_ndtri": Words("The number below which a normal variable lies with probability x: the inverse of `ndtr`."),
    "special_entr": Words("-x log(x), an element's part of an entropy; 0 at 0, -inf below."),
    "special_xlog1py": Words("`input` times log(1 + `other`); 0 where `input` is 0."),
    "special_zeta": Words("Hurwitz's zeta function: the sum of (n + other) to the power of -input over all n >= 0."),
    "special_gamma": Words("The gamma function: (x - 1)! for positive integers, and what continues it."),
    "special_bessel_j0": Words("The Bessel function of the first kind, of order 0."),
    "special_bessel_j1": Words("The Bessel function of the first kind, of order 1."),
    "special_bessel_y0": Words("The Bessel function of the second kind, of order 0."),
    "special_bessel_y1": Words("The Bessel function of the second kind, of order 1."),
    "special_modified_bessel_k0": Words("The modified Bessel function of the second kind, of order 0."),
    "special_modified_bessel_k1": Words("The modified Bessel function of the second kind, of order 1."),
    "special_scaled_modified_bessel_k0": Words("`modified_bessel_k0` times exp(x)."),
    "special_scaled_modified_bessel_k1": Words("`modified_bessel_k1` times exp(x)."),
    "special_spherical_bessel_j0": Words("sin(x) / x, and 1 at 0."),
    "special_airy_ai": Words("The Airy function Ai."),
    # views
    "transpose": Words("The same memory with two dimensions exchanged.", f"ut.transpose({_M}, 0, 1)"),
    "t": Words("The transposed matrix, in the same memory; a vector is itself.", f"ut.t({_M})"),
    "unsqueeze": Words("The same memory with a new dimension of size 1 at `dim`.", f"ut.unsqueeze({_M}, 0)"),
    "alias": Words("The same memory, as another tensor."),
    "select": Words("The part at one `index` along `dim`, without that dimension.", f"ut.select({_M}, 0, 1)"),
    "select_backward": Words("Zeros of `input_sizes`, with the gradient where `select` took its part."),
    "slice": Words("The part from `start` to `end` along `dim`, in steps of `step`, as `input[start:end:step]`."),
    "slice_backward": Words("Zeros of `input_sizes`, with the gradient where `slice` took its part."),
    "diagonal": Words("A diagonal of each matrix, as the last dimension, in the same memory.", f"ut.diagonal({_M})"),
    "diagonal_backward": Words("Zeros of `input_sizes`, with the gradient on the diagonal."),
    "diagonal_copy": Words("As `diagonal`, in new memory.", f"ut.diagonal_copy({_M})"),
    "unfold": Words(
        "All windows of `size` along a dimension, `step` apart, in a new last dimension of the same memory.",
        "ut.arange(5.0).unfold(0, 3, 1)",
    ),
    "unfold_backward": Words("The sum, at each place, of the gradients of the windows it is in."),
    "unbind": Words("The parts along `dim`, without it, in a tuple.", f"ut.unbind({_M})"),
    "unsafe_split": Words("As `split`, with parts that count as tensors of their own.", f"ut.unsafe_split({_M}, 1)"),
    "as_strided_backward": Words("The gradient of `as_strided`: a sum, where places of the result share memory."),
    "select_scatter": Words(
        "A copy with `src` at one index along `dim`.", f"ut.select_scatter({_M}, ut.zeros(2), 0, 1)"
    ),
    "slice_scatter": Words(
        "A copy with `src` in a slice along `dim`.", f"ut.slice_scatter({_M}, ut.zeros(1, 2), start=1)"
    ),
    "diagonal_scatter": Words("A copy with `src` on a diagonal.", f"ut.diagonal_scatter({_M}, ut.zeros(2))"),
    # places that data names
    "index_select": Words("The parts along `dim` that `index` names.", f"ut.index_select({_M}, 0, ut.tensor([1, 1]))"),
    "index_select_backward": Words("Zeros of `input_sizes`, with gradients added up where `index` names."),
    "index_add": Words(
        "`input` with the parts of `source` times `alpha` added where `index` names them along `dim`.",
        f"ut.index_add({_M}, 0, ut.tensor([0, 0]), ut.ones(2, 2))",
    ),
    "index_copy": Words(
        "`input` with the parts of `source` where `index` names them along `dim`.",
        f"ut.index_copy({_M}, 0, ut.tensor([1]), ut.zeros(1, 2))",
    ),
    "index_reduce": Words(
        "`input` with the parts of `source` reduced into where `index` names them: prod, mean, amax or amin.",
        f'ut.index_reduce({_M}, 0, ut.tensor([0]), ut.ones(1, 2), "amax")',
    ),
    "take": Words("The elements at places of the flattened tensor.", f"ut.take({_M}, ut.tensor([0, 3]))"),
    "masked_select": Words("The elements where `mask` is true, in one row.", f"ut.masked_select({_M}, {_M} > 2)"),
    "masked_scatter": Words(
        "`input` with elements of `source`, one after the other, where `mask` is true.",
        f"ut.masked_scatter({_M}, {_M} > 2, ut.zeros(2))",
    ),
    "masked_scatter_backward": Words("The gradients where `mask` is true, in the sizes of the source."),
    "gather": Words(
        "Along `dim`, the element that `index` names at each place.",
        f"ut.gather({_M}, 1, ut.tensor([[0, 0], [1, 0]]))",
    ),
    "gather_backward": Words("Zeros of `input_sizes`, with gradients added up where `gather` read."),
    # shapes
    "tril": Words("Matrices with 0 above the diagonal number `diagonal`.", f"ut.tril({_M})"),
    "triu": Words("Matrices with 0 below the diagonal number `diagonal`.", f"ut.triu({_M})"),
    "diag_embed": Words("Matrices of 0, with the last dimension on a diagonal.", "ut.diag_embed(ut.ones(2))"),
    "constant_pad_nd": Words(
        "`input` with `value` around it; `pad` has a pair for each dimension, from the last one on.",
        f"ut.constant_pad_nd({_M}, (1, 0))",
    ),
    "pad_backward": Words("The gradient of `pad`: its middle, and what the margins add to it."),
    "reflection_pad1d": Words("A margin that mirrors one dimension."),
    "reflection_pad2d": Words("A margin that mirrors images."),
    "reflection_pad3d": Words("A margin that mirrors volumes."),
    "replication_pad1d": Words("A margin of the outermost elements."),
    "replication_pad2d": Words("A margin of the outermost points of images."),
    "replication_pad3d": Words("A margin of the outermost points of volumes."),
    # along dimensions
    "sum_to": Words("The sum over the dimensions that broadcasting from `shape` has added or widened."),
    "count_nonzero": Words("How many elements are not 0, along `dim` or of all.", f"ut.count_nonzero({_M})"),
    "value_selecting_reduction_backward": Words("Zeros of `shape`, with the gradient at the places chosen."),
    "argmax": Words(
        "Where the largest element is: along `dim`, or in the flattened tensor.", f"ut.argmax({_M}, dim=1)"
    ),
    "argmin": Words(
        "Where the smallest element is: along `dim`, or in the flattened tensor.", f"ut.argmin({_M}, dim=1)"
    ),
    "cumsum": Words("The sums of everything up to each place along `dim`.", f"ut.cumsum({_M}, dim=1)"),
    "cumprod": Words("The products of everything up to each place along `dim`.", f"ut.cumprod({_M}, dim=1)"),
    "logcumsumexp": Words(
        "The logarithms of the sums of exponentials up to each place along `dim`.", f"ut.logcumsumexp({_M}, dim=1)"
    ),
    "cummaxmin_backward": Words("The gradient of `cummax` and `cummin`: added up at the places chosen."),
    "argsort": Words("The places of the elements along `dim`, in the order of their sizes.", f"ut.argsort({_M})"),
    "dist": Words("The p-norm of the difference of two tensors.", f"ut.dist({_M}, ut.zeros(2, 2))"),
    "bincount": Words("How often each integer occurs, or the sum of its weights.", "ut.bincount(ut.tensor([0, 2, 2]))"),
    "histc": Words(
        "How many elements fall into each of `bins` equal intervals, between the extremes or from `min` to `max`.",
        f"ut.histc({_M}, bins=2)",
    ),
    # random
    "bernoulli": Words("1 with the probability that `input` (or `p`) gives, else 0.", "ut.bernoulli(ut.ones(2))"),
    "poisson": Words("Numbers from the Poisson distributions with these rates.", "ut.poisson(ut.zeros(2))"),
    "binomial": Words(
        "How many of `count` trials succeed with probability `prob`.", "ut.binomial(ut.ones(2), ut.ones(2))"
    ),
    "multinomial": Words(
        "Indices drawn with the probabilities that each row is proportional to.",
        "ut.multinomial(ut.tensor([0.0, 1.0]), 1)",
    ),
    "native_dropout": Words(
        "Every element 0 with probability p, else over 1 - p; and which were kept.",
        "ut.native_dropout(ut.ones(2), 0.5, False)",
    ),
    "native_dropout_backward": Words("`grad` times `scale` where the mask is set, and 0 elsewhere."),
    # products
    "mm": Words("The product of two matrices.", f"ut.mm({_M}, {_M})"),
    "mv": Words("The product of a matrix and a vector.", f"ut.mv({_M}, ut.ones(2))"),
    "dot": Words(
        "The inner product of two vectors; complex ones are not conjugated.", "ut.dot(ut.ones(3), ut.ones(3))"
    ),
    "vdot": Words("The inner product of two vectors, the first one conjugated.", "ut.vdot(ut.ones(3), ut.ones(3))"),
    "bmm": Words(
        "The products of two stacks of matrices, pair by pair.", "ut.bmm(ut.ones(5, 2, 3), ut.ones(5, 3, 4)).shape"
    ),
    "addmm": Words("`beta` times `input` plus `alpha` times a product of two matrices.", f"ut.addmm(*3 * [{_M}])"),
    "addmv": Words(
        "`beta` times `input` plus `alpha` times a matrix-vector product.", f"ut.addmv(ut.ones(2), {_M}, ut.ones(2))"
    ),
    "addr": Words(
        "`beta` times `input` plus `alpha` times an outer product.", f"ut.addr({_M}, ut.ones(2), ut.ones(2))"
    ),
    "baddbmm": Words(
        "`beta` times `input` plus `alpha` times the products of two stacks of matrices.",
        "ut.baddbmm(ut.ones(5, 2, 4), ut.ones(5, 2, 3), ut.ones(5, 3, 4)).shape",
    ),
    "addbmm": Words(
        "`beta` times `input` plus `alpha` times the sum of the products of two stacks of matrices.",
        "ut.addbmm(ut.ones(2, 4), ut.ones(5, 2, 3), ut.ones(5, 3, 4)).shape",
    ),
    "trace": Words("The sum of the diagonal of a matrix.", f"ut.trace({_M})"),
    "trace_backward": Words("The gradient of `trace`: it, on the diagonal of a matrix of 0."),
    # linear algebra
    "linalg_cross": Words(
        "The cross product along `dim`, which has 3 elements.",
        "ut.linalg.cross(ut.tensor([1.0, 0.0, 0.0]), ut.tensor([0.0, 1.0, 0.0]))",
    ),
    "linalg_inv": Words("The inverse of each square matrix.", f"ut.linalg.inv({_M})"),
    "linalg_det": Words("The determinant of each square matrix.", f"ut.linalg.det({_M})"),
    "det_backward": Words("The matrix of cofactors: what the determinant's gradient is times."),
    "linalg_matrix_exp": Words("The exponential of each square matrix.", "ut.linalg.matrix_exp(ut.zeros(2, 2))"),
    # layers
    "softmax": Words(
        "Exponentials divided by their sum along `dim`: positive, and adding up to 1.", f"ut.softmax({_M}, dim=1)"
    ),
    "softmax_backward_data": Words("The gradient of `softmax`, from that of its output and the output."),
    "log_softmax": Words("The logarithm of `softmax`, without underflow.", f"ut.log_softmax({_M}, dim=1)"),
    "log_softmax_backward_data": Words("The gradient of `log_softmax`, from that of its output and the output."),
    "native_layer_norm": Words("`layer_norm`, with the means and the inverse deviations it used."),
    "linear": Words(
        "`input` times the transposed `weight`, plus `bias`.", f"ut.nn.functional.linear(ut.ones(3, 2), {_M})"
    ),
    "mse_loss": Words(
        "The mean (or sum) of squared differences; reduction='none' leaves them as they are.",
        f"ut.nn.functional.mse_loss({_M}, ut.zeros(2, 2))",
    ),
    "smooth_l1_loss": Words(
        "Squared differences over 2 `beta` where they are below `beta`, else absolute ones less `beta` / 2; reduced.",
        f"ut.nn.functional.smooth_l1_loss({_M}, ut.zeros(2, 2))",
    ),
    "huber_loss": Words(
        "Half of squared differences below `delta`, else `delta` times (absolute ones less `delta` / 2); reduced.",
        f"ut.nn.functional.huber_loss({_M}, ut.zeros(2, 2))",
    ),
    "cross_entropy_backward": Words("The gradient of the cross entropy of classes with respect to the scores."),
    "max_pool_backward": Words("Zeros of `input_sizes`, with gradients added up at the maxima."),
    "avg_pool_backward": Words("The gradient of average pooling: each window's, spread evenly over it."),
    "adaptive_avg_pool_backward": Words("The gradient of adaptive average pooling, spread evenly over each window."),
    "upsample_backward": Words("The gradient of an interpolation: the transposed weights, applied."),
    "embedding": Words(
        "The rows of `weight` that `indices` name; the row `padding_idx` gets no gradient.",
        f"ut.embedding({_M}, ut.tensor([1, 1]))",
    ),
    "one_hot": Words(
        "A row of 0 with one 1, where each integer says; as many columns as the largest needs, unless said.",
        "ut.nn.functional.one_hot(ut.tensor([0, 2]))",
    ),
}

#: arguments that the words about an operation leave out
ARGUMENTS: dict[str, dict[str, str]] = {
    "elu": {"scale": "what the result is multiplied by", "input_scale": "what x is multiplied by in exp(x)"},
    "gelu": {"approximate": '"none", or "tanh": by x + 0.044715 x^3 inside of a tanh'},
    "isin": {
        "elements": "a tensor, or a number",
        "test_elements": "a tensor, or a number",
        "assume_unique": "accepted, without effect",
        "invert": "whether each element is not among them",
    },
    "nan_to_num": {
        "nan": "in the place of nan; None: 0",
        "posinf": "in the place of infinity; None: the largest number of the dtype",
        "neginf": "in the place of -infinity; None: the least number of the dtype",
    },
    "slice_scatter": {
        "start": "where the slice begins; None: 0",
        "end": "where it ends, which is not part of it; None: the size",
        "step": "the distance of its elements, at least 1",
    },
    "unsafe_split": {"split_size": "how long each part is; the last is shorter if nothing else is left"},
    "gather": {"sparse_grad": "whether the gradient of `input` is sparse"},
    "index_select": {"sparse_grad": "whether the gradient of `input` is sparse"},
    "index_reduce": {
        "index": "int64 or int32, one number for each slice of `source` along `dim`",
        "reduce": '"prod", "mean", "amax" or "amin"',
        "include_self": "whether what is there takes part",
    },
    "argsort": {
        "descending": "the largest first",
        "stable": "accepted: equal elements always keep their order",
    },
    "bincount": {"input": "integers of at least 0, a vector", "minlength": "how many counts there are at least"},
    "multinomial": {
        "input": "(classes), or (rows, classes): numbers of at least 0, which need not add up to 1",
        "num_samples": "how many draws of each row",
        "replacement": "whether a class may be drawn again",
    },
    "embedding": {
        "scale_grad_by_freq": "divide the gradient of a row by how often it was used",
        "sparse": "whether the gradient of `weight` is sparse",
    },
    "one_hot": {
        "input": "integers of at least 0, of any shape",
        "num_classes": "how many columns; -1: as many as needed",
    },
}

#: for elementwise operations: what they are called with, by the number of tensors
EXAMPLES = {
    1: "ut.tensor([0.25, 0.75])",
    2: "ut.tensor([0.25, 0.75]), ut.tensor([1.0, 2.0])",
}
OF_INTEGERS = {1: "ut.tensor([6, 9])", 2: "ut.tensor([6, 9]), ut.tensor([4, 3])"}

#: of forms in place, where the operation's own example does not say how they are called
IN_PLACE = {
    "addbmm_": "ut.zeros(2, 2).addbmm_(ut.ones(3, 2, 4), ut.ones(3, 4, 2))",
    "as_strided_": "ut.arange(6).as_strided_((2, 2), (3, 1))",
    "baddbmm_": "ut.zeros(1, 2, 2).baddbmm_(ut.ones(1, 2, 3), ut.ones(1, 3, 2))",
    "cauchy_": "ut.empty(3).cauchy_().shape",
    "clamp_": "ut.tensor([-2.0, 0.5, 2.0]).clamp_(-1, 1)",
    "clip_": "ut.tensor([-2.0, 0.5, 2.0]).clip_(-1, 1)",
    "copy_": "ut.zeros(2).copy_(ut.tensor([1.0, 2.0]))",
    "detach_": "(2 * ut.ones(1, requires_grad=True)).detach_()",
    "div_": "ut.tensor([3.0, 5.0]).div_(2, rounding_mode='floor')",
    "divide_": "ut.tensor([3.0, 5.0]).divide_(2)",
    "elu_": "ut.nn.functional.elu_(ut.tensor([-1.0, 2.0]))",
    "exponential_": "ut.empty(3).exponential_().shape",
    "fill_": "ut.zeros(2).fill_(3.0)",
    "float_power_": "ut.ones(2, dtype=ut.float64).float_power_(2)",
    "geometric_": "ut.empty(3).geometric_(0.5).shape",
    "hardtanh_": "ut.nn.functional.hardtanh_(ut.tensor([-2.0, 0.5]))",
    "index_put_": "ut.zeros(3).index_put_((ut.tensor([0, 2]),), ut.tensor([1.0, 2.0]))",
    "leaky_relu_": "ut.nn.functional.leaky_relu_(ut.tensor([-1.0, 2.0]))",
    "log_normal_": "ut.empty(3).log_normal_().shape",
    "normal_": "ut.empty(3).normal_(0, 1).shape",
    "polygamma_": "ut.tensor([1.0]).polygamma_(1)",
    "put_": "ut.zeros(3).put_(ut.tensor([0, 2]), ut.tensor([1.0, 2.0]))",
    "resize_as_": "ut.arange(6).resize_as_(ut.ones(2, 2))",
    "scatter_reduce_": "ut.zeros(2).scatter_reduce_(0, ut.tensor([0, 0]), ut.tensor([1.0, 2.0]), 'sum')",
    "squeeze_": "ut.ones(1, 3).squeeze_().shape",
    "swapaxes_": "ut.ones(2, 3).swapaxes_(0, 1).shape",
    "swapdims_": "ut.ones(2, 3).swapdims_(0, 1).shape",
    "uniform_": "ut.empty(3).uniform_(0, 1).shape",
    "zero_": "ut.ones(2).zero_()",
}
