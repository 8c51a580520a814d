"""Losses of class scores: nll_loss and cross_entropy.

Scores have shape (C), (N, C) or (N, C, d1, ...); targets hold class numbers and have that shape without C, or are
probabilities of the same shape as the scores.

Both losses return, beside the loss, the coefficient of every target in it (its class weight, 0 where it is ignored,
over the sum of these for a mean), which their rules need again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.cpu import read_once
from undertow.backend.interface import Array, DType, Namespace
from undertow.compiled import twin
from undertow.modes import current
from undertow.ops.arguments.operands import as_tensors, require_kinds, type_name
from undertow.ops.declare import composite, nondifferentiable, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules.batch_in_front import batch_size, each, expanded, loop
from undertow.ops.network import row_kernels
from undertow.ops.network.losses import check_reduction
from undertow.ops.network.softmax import log_softmax
from undertow.ops.pointwise.comparison_logic_bits import ne
from undertow.ops.pointwise.where_clamp import where
from undertow.ops.reduce.sums_and_products import sum
from undertow.tensor import Tensor
from undertow.tensor.tensor import requires_grad

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims

#: what targets may be, and the same bits as unsigned numbers
UNSIGNED = {dtypes.int64: dtypes.uint64, dtypes.uint8: dtypes.uint8}

# ---- checks


def _class_axis(shape: Sequence[int]) -> int:
    return 0 if len(shape) == 1 else 1


def _check_shapes(input: Array, target: Array, weight: Array | None) -> None:
    shape, found = input.shape, target.shape
    if len(shape) == 0:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if target.dtype not in UNSIGNED:
        raise RuntimeError(
            f"expected target dtype to be Long or Byte, but got {type_name(target)}: class numbers are "
            "integers, and probabilities have the shape of the input"
        )
    expected = shape[:0] if len(shape) == 1 else (shape[0], *shape[2:])
    if tuple(found) != tuple(expected):
        _raise_target_shape(shape, found, expected)
    if weight is not None and weight.shape != (shape[_class_axis(shape)],):
        raise RuntimeError(
            f"weight tensor should be defined either for all {shape[_class_axis(shape)]} classes or no classes but got "
            f"weight tensor of shape: {list(weight.shape)}"
        )


def _raise_target_shape(shape: Sequence[int], found: Any, expected: Any) -> None:
    if len(shape) > 1 and found and found[0] != shape[0]:
        raise ValueError(f"Expected input batch_size ({shape[0]}) to match target batch_size ({found[0]}).")
    if len(shape) <= 2:
        raise RuntimeError(
            f"0D or 1D target tensor expected, multi-target not supported: the target has sizes {list(found)}, the "
            f"input {list(shape)}"
        )
    raise RuntimeError(f"Expected target size {list(expected)}, got {list(found)}")


def _known_classes(xp: Namespace, target: Array, classes: int, ignore_index: int) -> tuple[Array, Array]:
    """The targets with 0 in the place of ignored ones, and where they are not ignored (None: nowhere)."""
    if target.size == 0:
        return target, None
    if xp.checks_indices:  # nobody has to wait for a look
        kept = target != ignore_index
        known = xp.where(kept, target, 0)
        kernels.note_outside(xp, known, 0, classes)
        return known, kept
    target = read_once(target)  # it is looked at, and then used
    # as unsigned numbers, negative ones are large: one look finds both ends
    if ignore_index < 0 and target.view(UNSIGNED[target.dtype]).max() < classes:
        return target, None
    kept = target != ignore_index
    known = xp.where(kept, target, 0)
    if known.min() < 0 or known.max() >= classes:
        wrong = known[(known < 0) | (known >= classes)].flat[0]
        raise IndexError(f"Target {wrong} is out of bounds. There are {classes} classes.")
    return known, kept


# ---- one class of many: picking its score, and putting a value in its place


def _place_of(xp: Namespace, target: Array) -> tuple[Array, ...]:
    """The index of every target's class in an array of shape (N, C, d1, ...)."""
    if target.ndim == 0:
        return (target,)
    if target.ndim == 1:
        return xp.arange(target.shape[0]), target
    first, *rest = xp.indices(target.shape, sparse=True)
    return first, target, *rest


def _picked_scores(xp: Namespace, input: Array, target: Array, ignore_index: int) -> Array:
    target, kept = _known_classes(xp, target, input.shape[_class_axis(input.shape)], ignore_index)
    scores = input[_place_of(xp, target)]
    return scores if kept is None else xp.where(kept, scores, 0)


@twin
def scores_from_classes(xp: Namespace, input: Array, target: Array, classes: int, ignore_index: int) -> Array:
    target, kept = _known_classes(xp, target, classes, ignore_index)
    out = xp.zeros((classes,) if target.ndim == 0 else (target.shape[0], classes, *target.shape[1:]), input.dtype)
    out[_place_of(xp, target)] = input if kept is None else xp.where(kept, input, 0)
    return out


def _batch_classes(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    """Examples of N targets each are more targets of one call."""
    size = batch_size(args, in_dims)
    tensors = [expanded(x, d, size) if isinstance(x, Tensor) else x for x, d in zip(args, in_dims, strict=True)]
    if tensors[TARGET].ndim == 1:
        return op(*tensors), 0
    count = tensors[TARGET].shape[1]
    merged = [joined(x) if isinstance(x, Tensor) else x for x in tensors]
    return each(op(*merged), lambda out: recorded.reshape(out, (size, count, *out.shape[1:]))), 0


def joined(x: Array) -> Array:
    return recorded.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))


#: the place of the targets among the arguments of everything here
TARGET = 1

pick_class = primitive(
    "_pick_class",
    forward=_picked_scores,
    vjp={
        "input": lambda xp, g, target, input_shape, ignore_index: xp._put_class(
            g, target, input_shape[_class_axis(input_shape)], ignore_index
        ),
        "target": None,
    },
    jvp={"input": lambda xp, t, target, ignore_index: xp._pick_class(t, target, ignore_index)},
    batch=_batch_classes,
)

put_class = primitive(
    "_put_class",
    forward=scores_from_classes,
    vjp={
        "input": lambda xp, g, target, ignore_index: xp._pick_class(g, target, ignore_index),
        "target": None,
    },
    jvp={
        "input": lambda xp, t, target, classes, ignore_index: xp._put_class(t, target, classes, ignore_index),
    },
    batch=_batch_classes,
)

# ---- the losses


def _coefficients_of(
    xp: Namespace, target: Array, kept: Array | None, weight: Array | None, reduction: str, dtype: DType
) -> Array:
    """What every target counts in the loss."""
    if weight is None and kept is None:
        return xp.full(target.shape, 1 / max(target.size, 1) if reduction == "mean" else 1, dtype)
    of_targets = xp.ones(target.shape, dtype) if weight is None else xp.asarray(weight[target], dtype)
    if kept is not None:
        of_targets = of_targets * kept
    if reduction != "mean":
        return of_targets
    total = of_targets.sum()
    return of_targets / total if total != 0 else of_targets * xp.nan


def reduced(xp: Namespace, losses: Array, reduction: str) -> Array:
    if reduction == "mean" and losses.size == 0:
        return losses.dtype.type(xp.nan)
    return losses if reduction == "none" else xp.add.reduce(losses, axis=None)


@twin
def nll_forward(
    xp: Namespace, input: Array, target: Array, weight: Array | None, ignore_index: int, reduction: str
) -> tuple[Array, Array]:
    check_reduction(reduction)
    require_kinds("nll_loss_out_frame", input, "f")
    _check_shapes(input, target, weight)
    target, kept = _known_classes(xp, target, input.shape[_class_axis(input.shape)], ignore_index)
    coefficients = _coefficients_of(xp, target, kept, weight, reduction, input.dtype)
    losses = -input[_place_of(xp, target)]
    losses = losses * coefficients if kept is None else xp.where(kept, losses, 0) * coefficients
    return reduced(xp, losses, reduction), coefficients


def _batch_losses(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    *tensors, weight, ignore_index, reduction = args
    if in_dims[2] is not None:
        return loop(op, args, in_dims)
    (losses, coefficients), _ = _batch_classes(
        lambda input, target: op(input, target, weight, ignore_index, "none"), tensors, in_dims[:2]
    )
    rest = tuple(range(1, losses.ndim))
    if reduction != "none" and rest:
        losses = sum(losses, rest)
    if reduction == "mean":
        total = sum(coefficients, rest) if rest else coefficients
        losses = losses / recorded.astype(total, losses.dtype)
        coefficients = coefficients / recorded.reshape(total, (total.shape[0], *[1] * len(rest)))
    return (losses, coefficients), 0


def _total_tangent(xp: Namespace, values: Array, reduction: str) -> tuple[Any, None]:
    return (values if reduction == "none" else xp.sum(values)), None


nll_of_classes = primitive(
    "_nll_of_classes",
    forward=nll_forward,
    vjp={
        "input": lambda xp, g, target, weight, coefficients, input_shape, ignore_index: xp._put_class(
            -g * coefficients, target, input_shape[_class_axis(input_shape)], ignore_index
        ),
        "target": None,
        "weight": None,
    },
    jvp={
        "input": lambda xp, t, target, coefficients, ignore_index, reduction: _total_tangent(
            xp, -xp._pick_class(t, target, ignore_index) * coefficients, reduction
        )
    },
    batch=_batch_losses,
    outputs=("loss", "coefficients"),
    nondifferentiable=("coefficients",),
    exact=("coefficients",),
    optional=("weight",),
    node="NllLossBackward0",
    autocast="float32",
)


def cross_entropies(xp: Namespace, input: Array, place: Any) -> Array:
    found = kernels.logsumexp_rows(xp, input, input[place]) if input.ndim == 2 else None
    if found is not None:
        return found
    if input.ndim == 2 and row_kernels.has_long_rows(xp, input):
        return row_kernels.cross_entropies(input, input[place])
    axis = _class_axis(input.shape)
    if input.ndim > 2:
        found = kernels.softmax_columns(xp, input, axis, kernels.LOGSUMEXP, _scores_at(xp, input, place))
        if found is not None:
            return found
    scores = input - xp.maximum.reduce(input, axis=axis, keepdims=True)
    own = scores[place]
    return xp.log(xp.add.reduce(xp.exp(scores, out=scores), axis=axis)) - own


def _scores_at(xp: Namespace, input: Array, place: Any) -> Array:
    """The scores of the targets' classes, which are in the second place."""
    found = kernels.gather(xp, input, 1, xp.expand_dims(place[1], 1))
    return input[place] if found is None else found[:, 0]


@twin
def cross_entropy_forward(
    xp: Namespace, input: Array, target: Array, weight: Array | None, ignore_index: int, reduction: str
) -> Array:
    check_reduction(reduction)
    require_kinds("log_softmax", input, "f")
    _check_shapes(input, target, weight)
    found = kernels.cross_entropy(xp, input, target, weight, ignore_index, reduction)
    if found is not None:
        return found
    target, kept = _known_classes(xp, target, input.shape[_class_axis(input.shape)], ignore_index)
    losses = cross_entropies(xp, input, _place_of(xp, target))
    if kept is not None or weight is not None:
        coefficients = _coefficients_of(xp, target, kept, weight, reduction, input.dtype)
        losses = (losses if kept is None else xp.where(kept, losses, 0)) * coefficients
        return reduced(xp, losses, reduction)
    total = reduced(xp, losses, reduction)
    return total / losses.size if reduction == "mean" and losses.size else total


@twin
def target_coefficients(
    xp: Namespace, target: Array, weight: Array | None, classes: int, ignore_index: int, reduction: str, dtype: DType
) -> Array:
    found = kernels.target_coefficients(xp, target, weight, classes, ignore_index, reduction, dtype)
    if found is not None:
        return found
    target, kept = _known_classes(xp, target, classes, ignore_index)
    return _coefficients_of(xp, target, kept, weight, reduction, dtype)


coefficients_for = nondifferentiable(
    "_target_coefficients", forward=target_coefficients, inputs=("target", "weight"), optional=("weight",)
)


def _coefficients_again(
    xp: Namespace, input: Array, target: Array, weight: Array | None, ignore_index: int, reduction: str
) -> Array:
    """What every target counted in the loss. Computing it anew is cheaper than a second output."""
    classes = input.shape[_class_axis(input.shape)]
    return xp._target_coefficients(target, weight, classes, ignore_index, reduction, input.dtype)


def _gradient_of_scores(
    xp: Namespace, g: Array, input: Array, target: Array, weight: Array | None, ignore_index: int, reduction: str
) -> Array:
    if xp is not cpu:
        found = kernels.cross_entropy_gradient(xp, g, input, target, weight, ignore_index, reduction)
        if found is not None:
            return found
    coefficients = _coefficients_again(xp, input, target, weight, ignore_index, reduction)
    return xp.cross_entropy_backward(g * coefficients, target, input, ignore_index)


def _batch_cross_entropy(op: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    *tensors, weight, ignore_index, reduction = args
    if in_dims[2] is not None:
        return loop(op, args, in_dims)
    losses, _ = _batch_classes(lambda x, t: op(x, t, weight, ignore_index, "none"), tensors, in_dims[:2])
    rest = tuple(range(1, losses.ndim))
    total = sum(losses, rest) if reduction != "none" and rest else losses
    if reduction != "mean":
        return total, 0
    counted, _ = _batch_classes(
        lambda x, t: nll_of_classes(x, t, weight, ignore_index, "none")[1], tensors, in_dims[:2]
    )
    return total / recorded.astype(sum(counted, rest) if rest else counted, total.dtype), 0


cross_entropy_of_classes = primitive(
    "_cross_entropy_of_classes",
    forward=cross_entropy_forward,
    vjp={
        "input": lambda xp, g, input, target, weight, ignore_index, reduction: _gradient_of_scores(
            xp, g, input, target, weight, ignore_index, reduction
        ),
        "target": None,
        "weight": None,
    },
    jvp={
        "input": lambda xp, t, input, target, weight, ignore_index, reduction: _total_tangent(
            xp,
            _coefficients_again(xp, input, target, weight, ignore_index, reduction)
            * _above_chosen(xp, t, input, target, ignore_index),
            reduction,
        )[0]
    },
    batch=_batch_cross_entropy,
    optional=("weight",),
    node="CrossEntropyBackward0",
    autocast="float32",
)


def _above_chosen(xp: Namespace, x: Array, input: Array, target: Array, ignore_index: int) -> Array:
    """The mean of x under the probabilities of the classes, minus x at the target: how cross entropy moves with x."""
    axis = _class_axis(input.shape)
    return xp.sum(xp.softmax(input, axis) * x, axis=axis) - xp._pick_class(x, target, ignore_index)


@twin
def softmax_minus_target(xp: Namespace, grad_output: Array, target: Array, input: Array, ignore_index: int) -> Array:
    found = kernels.softmax_minus_target(xp, grad_output, target, input, ignore_index)
    if found is not None:
        return found
    target, kept = _known_classes(xp, target, input.shape[_class_axis(input.shape)], ignore_index)
    grad_output = grad_output if kept is None else xp.where(kept, grad_output, 0)
    found = kernels.scaled_softmax_rows(xp, input, grad_output) if input.ndim == 2 else None
    if found is not None:
        out = found
    elif input.ndim == 2 and row_kernels.has_long_rows(xp, input):
        out = row_kernels.scaled_softmax(input, grad_output)
    else:
        out = _scaled_softmax(xp, input, grad_output)
    if target.ndim > 1 and kernels.scatter_add(
        xp, out, 1, xp.expand_dims(target, 1), xp.expand_dims(xp.negative(grad_output), 1)
    ):
        return out
    out[_place_of(xp, target)] -= grad_output
    return out


def _scaled_softmax(xp: Namespace, input: Array, scales: Array) -> Array:
    """The softmax over the classes, times a number for each place that has them."""
    axis = _class_axis(input.shape)
    found = kernels.softmax_columns(xp, input, axis, kernels.SOFTMAX, scales) if input.ndim > 2 else None
    if found is None:
        found = xp.softmax(input, axis)
        found *= scales[:, None] if input.ndim > 1 else scales
    return found


def _unless_ignored(xp: Namespace, x: Array, target: Array, ignore_index: int) -> Array:
    return xp.where(xp.not_equal(target, ignore_index), x, 0)


def _softmax_slope(xp: Namespace, x: Array, input: Array) -> Array:
    """The derivative of softmax(input) along x, which is symmetric."""
    axis = _class_axis(input.shape)
    return xp.softmax_backward_data(x, xp.softmax(input, axis), axis)


def wide(xp: Namespace, x: Array) -> Array:
    """With a dimension for the classes."""
    return xp.expand_dims(x, 0 if x.ndim == 0 else 1)


# grad_output * (softmax(input) - 1 at the target), and 0 for ignored targets
cross_entropy_backward = primitive(
    "cross_entropy_backward",
    forward=softmax_minus_target,
    vjp={
        "grad_output": lambda xp, g, target, input, ignore_index: _unless_ignored(
            xp, _above_chosen(xp, g, input, target, ignore_index), target, ignore_index
        ),
        "target": None,
        "input": lambda xp, g, grad_output, target, input, ignore_index: _softmax_slope(
            xp, g * wide(xp, _unless_ignored(xp, grad_output, target, ignore_index)), input
        ),
    },
    jvp={
        "grad_output": lambda xp, t, target, input, ignore_index: xp.cross_entropy_backward(
            t, target, input, ignore_index
        ),
        "input": lambda xp, t, grad_output, target, input, ignore_index: (
            wide(xp, _unless_ignored(xp, grad_output, target, ignore_index)) * _softmax_slope(xp, t, input)
        ),
    },
    batch=_batch_classes,
    variants="",
)

# ---- what users call


def _check_weight(name: str, weight: Array | None) -> None:
    if isinstance(weight, Tensor) and requires_grad(weight) and current().grad_enabled:
        raise RuntimeError(
            f"The function '{name}' is not differentiable with respect to argument 'weight'. This input cannot have "
            "requires_grad True: pass weight.detach()."
        )


@composite
def nll_loss(
    input: Array, target: Array, weight: Array | None = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    """The negative log-likelihood of the target classes, given log-probabilities.

    weight        what each class counts, (C)
    ignore_index  examples of this class do not count

    >>> import undertow as ut
    >>> ut.nll_loss(ut.tensor([[-0.5, -1.0], [-0.2, -2.0]]), ut.tensor([1, 0])).item()
    0.6000000238418579
    """
    _check_weight("nll_loss_forward", weight)
    return nll_of_classes(input, target, weight, ignore_index, reduction)[0]


@composite
def cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """nll_loss(log_softmax(input), target), as one operation that saves nothing but its input.

    target           class numbers, or probabilities in the shape of the input
    label_smoothing  how much of each target is spread evenly over all classes
    weight           what each class counts, (C)
    ignore_index     examples of this class do not count

    >>> import undertow as ut
    >>> ut.cross_entropy(ut.zeros(2, 4), ut.tensor([0, 3])).item() == ut.log(ut.tensor(4.0)).item()
    True
    """
    input, target = as_tensors("cross_entropy", input=input, target=target)
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if 0 < input.ndim == target.ndim and input.shape == target.shape:
        if ignore_index >= 0:
            raise RuntimeError(
                f"ignore_index is not supported for floating point target, got {ignore_index}: give class numbers, or "
                "leave it out"
            )
        return _cross_entropy_of_probabilities(input, target, weight, reduction, label_smoothing)
    _check_weight("nll_loss_forward", weight)
    if label_smoothing == 0:
        return cross_entropy_of_classes(input, target, weight, ignore_index, reduction)
    return _smoothed_cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


def _smoothed_cross_entropy(
    input: Array, target: Array, weight: Array | None, ignore_index: int, reduction: str, label_smoothing: float
) -> Array:
    check_reduction(reduction)
    axis = _class_axis(input.shape)
    logs = log_softmax(input, axis)
    own, of_targets = nll_of_classes(logs, target, weight, ignore_index, "none")
    of_all = sum(logs if weight is None else logs * _along_classes(weight, input.ndim), axis)
    of_all = where(ne(target, ignore_index), of_all, 0.0)
    losses = own * (1 - label_smoothing) - of_all * (label_smoothing / input.shape[axis])
    if reduction == "none":
        return losses
    return sum(losses) if reduction == "sum" else sum(losses) / recorded.astype(sum(of_targets), losses.dtype)


def _cross_entropy_of_probabilities(
    input: Array, target: Array, weight: Array | None, reduction: str, label_smoothing: float
) -> Array:
    check_reduction(reduction)
    if not dtypes.is_floating(target.dtype):
        name = type_name(target)
        raise RuntimeError(f"Expected floating point type for target with class probabilities, got {name}")
    axis = _class_axis(input.shape)
    classes = input.shape[axis]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    products = log_softmax(input, axis) * target
    losses = -sum(products if weight is None else products * _along_classes(weight, input.ndim), axis)
    if reduction == "none":
        return losses
    return sum(losses) if reduction == "sum" else sum(losses) / (math.prod(input.shape) // max(classes, 1))


def _along_classes(weight: Array, ndim: int) -> Array:
    return recorded.reshape(weight, (weight.shape[0], *[1] * (ndim - 2)))
