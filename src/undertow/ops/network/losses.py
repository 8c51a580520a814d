"""Losses of numbers: squared and absolute errors, cross entropy of probabilities, divergences.

Losses of class scores are in network/cross_entropy.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from undertow.backend.interface import Array, Namespace
from undertow.graph.user_lines import warn_user
from undertow.ops.arguments.half_precision import in_float32
from undertow.ops.arguments.operands import as_tensors, require_float, require_kinds
from undertow.ops.arguments.sizes import broadcast_problem
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.declare.rules.batch_in_front import batch_size, expanded, padded
from undertow.ops.pointwise.abs_sign import abs
from undertow.ops.pointwise.activations import log1p_of_exp, logsigmoid
from undertow.ops.pointwise.comparison_logic_bits import gt
from undertow.ops.pointwise.exp_log import exp, log, xlogy
from undertow.ops.pointwise.where_clamp import clamp_min, where
from undertow.ops.reduce.sums_and_products import mean, sum

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims

REDUCTIONS = ("none", "mean", "sum")
#: rounds to the smallest positive float32, whose logarithm is below -100
LEAST_POSITIVE = 1e-45


def check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction: use 'none', 'mean' or 'sum'")


def _warn_about_sizes(input: Array, target: Array) -> None:
    """Broadcasting in a loss is nearly always a mistake."""
    if input.shape != target.shape:
        warn_user(
            f"Using a target size ({list(target.shape)}) that is different to the input size ({list(input.shape)}). "
            "This will likely lead to incorrect results due to broadcasting. Please ensure they have the same size."
        )
        problem = broadcast_problem([tuple(input.shape), tuple(target.shape)])
        if problem is not None:
            raise RuntimeError(problem)


def _reduce_array(xp: Namespace, values: Array, reduction: str) -> Array:
    if reduction == "none":
        return values
    total = xp.add.reduce(values, axis=None)
    return total / xp.size(values) if reduction == "mean" else total


def reduce(values: Array, reduction: str) -> Array:
    check_reduction(reduction)
    return values if reduction == "none" else mean(values) if reduction == "mean" else sum(values)


def _spread(g: Array, slope: Array, reduction: str) -> Array:
    """The gradient of a loss from the slopes of its elements."""
    return slope * (g / math.prod(slope.shape) if reduction == "mean" else g)


def gathered(xp: Namespace, values: Array, reduction: str) -> Array:
    """`values` reduced, as the tangent of a loss is from those of its elements."""
    return values if reduction == "none" else xp.mean(values) if reduction == "mean" else xp.sum(values)


def _batch_loss(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    """The losses of all elements at once, then reduced for each example."""
    input, target, *params = args
    size = batch_size(args, in_dims)
    batched = [expanded(x, d, size) for x, d in zip((input, target), in_dims, strict=False)]
    rank = max(x.ndim for x in batched) - 1
    aligned = [padded(x, rank) for x in batched]
    place = next(k for k, p in enumerate(params) if p in REDUCTIONS)
    reduction, params[place] = params[place], "none"
    losses = op(*aligned, *params)
    rest = tuple(range(1, losses.ndim))
    if reduction == "none" or not rest:
        return losses, 0
    return (mean if reduction == "mean" else sum)(losses, rest), 0


# ---- errors: functions of input - target


def _squared_error(xp: Namespace, input: Array, target: Array, *, reduction: str = "mean") -> Array:
    check_reduction(reduction)
    _warn_about_sizes(input, target)
    difference = input - target
    require_kinds("mse_cpu", difference, "f")
    return _reduce_array(xp, difference * difference, reduction)


mse_loss = primitive(
    "mse_loss",
    forward=_squared_error,
    vjp={
        "input": lambda xp, g, input, target, reduction: _spread(g, (input - target) * 2, reduction),
        "target": lambda xp, g, input, target, reduction: _spread(g, (target - input) * 2, reduction),
    },
    jvp={
        "input": lambda xp, t, input, target, reduction: gathered(xp, t * (input - target) * 2, reduction),
        "target": lambda xp, t, input, target, reduction: gathered(xp, t * (target - input) * 2, reduction),
    },
    batch=_batch_loss,
    map_reduce=True,
    promote="same",
    autocast="float32",
    order="operands",
)


@composite
@in_float32
def l1_loss(input: Array, target: Array, *, reduction: str = "mean") -> Array:
    """The mean (or sum) of |input - target|.

    >>> import undertow as ut
    >>> ut.l1_loss(ut.tensor([1.0, 2.0, 3.0]), ut.zeros(3))
    tensor(2.)
    """
    input, target = as_tensors("l1_loss", input=input, target=target)
    check_reduction(reduction)
    _warn_about_sizes(input, target)
    return reduce(abs(input - target), reduction)


def _smooth_error(xp: Namespace, input: Array, target: Array, *, reduction: str = "mean", beta: float = 1.0) -> Array:
    check_reduction(reduction)
    _warn_about_sizes(input, target)
    require_float("smooth_l1_loss", "beta", beta)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    require_kinds("smooth_l1_cpu", input, "f")
    size = xp.abs(input - target)
    if beta == 0:
        return _reduce_array(xp, size, reduction)
    return _reduce_array(xp, xp.where(size < beta, size * size * (0.5 / beta), size - 0.5 * beta), reduction)


def _smooth_slope(xp: Namespace, x: Array, beta: float) -> Array:
    if beta == 0:
        return xp.sgn(x)
    return xp.where(xp.greater_equal(xp.abs(x), beta), xp.sgn(x), x / beta)


smooth_l1_loss = primitive(
    "smooth_l1_loss",
    forward=_smooth_error,
    vjp={
        "input": lambda xp, g, input, target, reduction, beta: _spread(
            g, _smooth_slope(xp, input - target, beta), reduction
        ),
        "target": lambda xp, g, input, target, reduction, beta: _spread(
            g, _smooth_slope(xp, target - input, beta), reduction
        ),
    },
    jvp={
        "input": lambda xp, t, input, target, reduction, beta: gathered(
            xp, t * _smooth_slope(xp, input - target, beta), reduction
        ),
        "target": lambda xp, t, input, target, reduction, beta: gathered(
            xp, t * _smooth_slope(xp, target - input, beta), reduction
        ),
    },
    batch=_batch_loss,
    map_reduce=True,
    promote="same",
    node="SmoothL1LossBackward0",
    autocast="float32",
    order="operands",
)


def _huber_error(xp: Namespace, input: Array, target: Array, *, reduction: str = "mean", delta: float = 1.0) -> Array:
    check_reduction(reduction)
    _warn_about_sizes(input, target)
    require_float("huber_loss", "delta", delta)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    require_kinds("huber_cpu", input, "f")
    size = xp.abs(input - target)
    return _reduce_array(xp, xp.where(size <= delta, size * size * 0.5, delta * (size - 0.5 * delta)), reduction)


def _huber_slope(xp: Namespace, x: Array, delta: float) -> Array:
    # on the border both are the same, and the second derivative is that of the line, as in PyTorch
    return xp.where(xp.greater_equal(xp.abs(x), delta), xp.sgn(x) * delta, x)


huber_loss = primitive(
    "huber_loss",
    forward=_huber_error,
    vjp={
        "input": lambda xp, g, input, target, reduction, delta: _spread(
            g, _huber_slope(xp, input - target, delta), reduction
        ),
        "target": lambda xp, g, input, target, reduction, delta: _spread(
            g, _huber_slope(xp, target - input, delta), reduction
        ),
    },
    jvp={
        "input": lambda xp, t, input, target, reduction, delta: gathered(
            xp, t * _huber_slope(xp, input - target, delta), reduction
        ),
        "target": lambda xp, t, input, target, reduction, delta: gathered(
            xp, t * _huber_slope(xp, target - input, delta), reduction
        ),
    },
    batch=_batch_loss,
    map_reduce=True,
    promote="same",
    autocast="float32",
    order="operands",
)

# ---- binary cross entropy


def _cross_entropy_of_bits(xp: Namespace, input: Array, target: Array, *, reduction: str = "mean") -> Array:
    check_reduction(reduction)
    require_kinds("binary_cross_entropy", input, "f")
    if input.shape != target.shape:
        raise ValueError(
            f"Using a target size ({list(target.shape)}) that is different to the input size ({list(input.shape)}) is "
            "deprecated. Please ensure they have the same size."
        )
    if not xp.all((input >= 0) & (input <= 1)):
        raise RuntimeError(
            "all elements of input should be between 0 and 1: pass probabilities, or use "
            "binary_cross_entropy_with_logits"
        )
    return _reduce_array(xp, -(target * _log_above(xp, input) + (1 - target) * _log_above(xp, 1 - input)), reduction)


def _log_above(xp: Namespace, x: Array) -> Array:
    """log(x), but never below -100, so that a wrong certainty costs much and not infinitely much."""
    return xp.maximum(xp.log(xp.maximum(x, LEAST_POSITIVE)), -100)


def _bits_slope(xp: Namespace, input: Array, target: Array) -> Array:
    return (input - target) / xp.maximum(input * (1 - input), 1e-12)


def _bits_target_slope(xp: Namespace, input: Array) -> Array:
    return xp.log1p(-input) - xp.log(input)


bce_of_probabilities = primitive(
    "_bce_of_probabilities",
    forward=_cross_entropy_of_bits,
    vjp={
        "input": lambda xp, g, input, target, reduction: _spread(g, _bits_slope(xp, input, target), reduction),
        "target": lambda xp, g, input, reduction: _spread(g, _bits_target_slope(xp, input), reduction),
    },
    jvp={
        "input": lambda xp, t, input, target, reduction: gathered(xp, t * _bits_slope(xp, input, target), reduction),
        "target": lambda xp, t, input, reduction: gathered(xp, t * _bits_target_slope(xp, input), reduction),
    },
    batch=_batch_loss,
    map_reduce=True,
    node="BinaryCrossEntropyBackward0",
    autocast="float32",
    order="operands",
)


@composite
def binary_cross_entropy(input: Array, target: Array, weight: Array | None = None, *, reduction: str = "mean") -> Array:
    """-(target * log(input) + (1 - target) * log(1 - input)) of probabilities; every element may have a weight.

    >>> import undertow as ut
    >>> round(ut.binary_cross_entropy(ut.tensor([0.9, 0.1]), ut.tensor([1.0, 0.0])).item(), 4)
    0.1054
    """
    if weight is None:
        return bce_of_probabilities(input, target, reduction=reduction)
    check_reduction(reduction)
    return reduce(bce_of_probabilities(input, target, reduction="none") * weight, reduction)


def _cross_entropy_of_logits(xp: Namespace, input: Array, target: Array, *, reduction: str = "mean") -> Array:
    check_reduction(reduction)
    require_kinds("log_sigmoid_cpu", input, "f")
    _check_same_size(input, target)
    # -log(sigmoid(x)) for the one, -log(sigmoid(-x)) for the other, without overflow for either; x is multiplied once,
    # because the difference of two products would be nan where x is infinite
    losses = ((input > 0) - target) * input + log1p_of_exp(xp, -xp.abs(input))
    return _reduce_array(xp, losses, reduction)


def _check_same_size(input: Array, target: Array) -> None:
    if tuple(input.shape) != tuple(target.shape):
        raise ValueError(f"Target size ({list(target.shape)}) must be the same as input size ({list(input.shape)})")


bce_of_logits = primitive(
    "_bce_of_logits",
    forward=_cross_entropy_of_logits,
    vjp={
        "input": lambda xp, g, input, target, reduction: _spread(g, xp.sigmoid(input) - target, reduction),
        "target": lambda xp, g, input, reduction: _spread(g, -input, reduction),
    },
    jvp={
        "input": lambda xp, t, input, target, reduction: gathered(xp, t * (xp.sigmoid(input) - target), reduction),
        "target": lambda xp, t, input, reduction: gathered(xp, -t * input, reduction),
    },
    batch=_batch_loss,
    map_reduce=True,
    promote="same",
    node="BinaryCrossEntropyWithLogitsBackward0",
    autocast="float32",
    order="second",
)


@composite
def binary_cross_entropy_with_logits(
    input: Array,
    target: Array,
    weight: Array | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Array | None = None,
) -> Array:
    """binary_cross_entropy(sigmoid(input), target), computed without overflow.

    weight      of every element
    pos_weight  of the positive targets, broadcast from the right (one for each class)

    >>> import undertow as ut
    >>> ut.binary_cross_entropy_with_logits(ut.zeros(2), ut.ones(2))
    tensor(0.6931)
    """
    if weight is None and pos_weight is None:
        return bce_of_logits(input, target, reduction=reduction)
    check_reduction(reduction)
    if pos_weight is None:
        losses = bce_of_logits(input, target, reduction="none")
    else:
        losses = _weighted_bce_of_logits(
            *as_tensors("binary_cross_entropy_with_logits", input=input, target=target, pos_weight=pos_weight)
        )
    return reduce(losses if weight is None else losses * weight, reduction)


def _weighted_bce_of_logits(input: Array, target: Array, pos_weight: Array) -> Array:
    _check_same_size(input, target)
    return (1 - target) * input - ((pos_weight - 1) * target + 1) * logsigmoid(input)


# ---- divergences and likelihoods


@composite
@in_float32
def kl_div(input: Array, target: Array, *, reduction: str = "mean", log_target: bool = False) -> Array:
    """target * (log(target) - input): how far log-probabilities `input` are from probabilities `target`.

    reduction "batchmean" divides by the number of examples only, which is the divergence as defined.

    log_target  whether `target` holds logarithms, too

    >>> import undertow as ut
    >>> ut.kl_div(ut.tensor([0.5, 0.5]).log(), ut.tensor([0.25, 0.75]), reduction="sum")
    tensor(0.1308)
    """
    input, target = as_tensors("kl_div", input=input, target=target)
    if reduction != "batchmean":
        check_reduction(reduction)
    losses = exp(target) * (target - input) if log_target else xlogy(target, target) - target * input
    if reduction == "batchmean" and input.ndim:
        return sum(losses) / input.shape[0]
    return reduce(losses, "sum" if reduction == "batchmean" else reduction)


def _variance_at_least(xp: Namespace, input: Array, eps: float) -> Array:
    if not xp.all(~(input < 0)):
        raise ValueError("var has negative entry/entries")
    return xp.maximum(input, eps)


# PyTorch raises small variances behind autograd's back: their gradient is not affected
floor_variance = primitive(
    "_floor_variance",
    forward=_variance_at_least,
    vjp={"input": lambda xp, g: g},
    jvp={"input": lambda xp, t: t},
    batch=ELEMENTWISE,
)


@composite
def gaussian_nll_loss(
    input: Array, target: Array, var: Array, full: bool = False, eps: float = 1e-6, *, reduction: str = "mean"
) -> Array:
    """The negative log-likelihood of `target` under normal distributions of mean `input` and variance `var`.

    Variances below `eps` count as eps; their gradient ignores that.

    full  also add the constant, log(2 pi) / 2

    >>> import undertow as ut
    >>> ut.gaussian_nll_loss(ut.zeros(2), ut.ones(2), ut.ones(2))
    tensor(0.5000)
    """
    if isinstance(var, Real):
        if var < 0:
            raise ValueError(f"var has negative entry/entries: {var}")
        var = recorded.full_like(input, float(var))
    input, target, var = as_tensors("gaussian_nll_loss", input=input, target=target, var=var)
    check_reduction(reduction)
    var = floor_variance(_aligned_variance(input, var), eps)
    error = input - target
    losses = (log(var) + error * error / var) * 0.5
    return reduce(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


def _aligned_variance(input: Array, var: Array) -> Array:
    """`var` in a shape that broadcasts to the input's: the same, without the last dimension, or of size one in one."""
    shape, size = tuple(input.shape), tuple(var.shape)
    if shape == size:
        return var
    if shape[:-1] == size:
        return recorded.expand_dims(var, -1)
    if len(shape) == len(size) and [m for n, m in zip(shape, size, strict=True) if n != m] == [1]:
        return var
    raise ValueError(f"var is of incorrect size: {list(size)} for an input of size {list(shape)}")


@composite
@in_float32
def poisson_nll_loss(
    input: Array,
    target: Array,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Array:
    """The negative log-likelihood of counts `target` under Poisson distributions of rate exp(input) (or input).

    log_input  whether `input` is the logarithm of the rate
    full       also add Stirling's approximation of log(target!), where `target` is above 1
    eps        added to a rate that is not a logarithm, against log(0)

    >>> import undertow as ut
    >>> ut.nn.functional.poisson_nll_loss(ut.zeros(2), ut.ones(2))
    tensor(1.)
    """
    input, target = as_tensors("poisson_nll_loss", input=input, target=target)
    check_reduction(reduction)
    losses = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        losses = losses + where(gt(target, 1), _stirling(clamp_min(target, 1.0)), 0.0)
    return reduce(losses, reduction)


def _stirling(n: Array) -> Array:
    """log(n!) for large n."""
    return n * log(n) - n + log(n * (2 * math.pi)) * 0.5
