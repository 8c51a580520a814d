"""Losses that ask for a margin between the scores of the right classes and the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.ops.arguments.autocast_float32 import in_float32
from undertow.ops.arguments.operands import as_tensors

if TYPE_CHECKING:
    from undertow.tensor import Tensor


def check_reduction(reduction: str) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")


def reduced(losses: Tensor, reduction: str) -> Tensor:
    check_reduction(reduction)
    if reduction == "none":
        return losses
    return ops.mean(losses) if reduction == "mean" else ops.sum(losses)


def check_classes(input: Tensor, target: Tensor, target_dims: int) -> tuple[Any, Any, bool]:
    """Scores (N, C) and targets with a dimension of examples; whether one had to be added."""
    if input.ndim == 0:
        input, target = ops.reshape(input, (1,)), target if target_dims == 1 else ops.reshape(target, (-1,))
    if input.ndim not in (1, 2) or input.shape[-1] == 0:
        raise RuntimeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {input.shape}"
        )
    single = input.ndim == 1 and (target.ndim == 0 or target_dims == 2)
    if input.ndim == 1:
        input, target = ops.unsqueeze(input, 0), ops.reshape(target, (1, -1) if target_dims == 2 else (1,))
    if target.ndim != target_dims or target.shape[0] != input.shape[0]:
        raise RuntimeError(f"inconsistent target size, got: {list(target.shape)}")
    return input, target, single


@in_float32
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Any = None, *, reduction: str = "mean"
) -> Tensor:
    """The mean over the other classes of max(0, margin - score of the target + score of the other) ** p.

    >>> import undertow as ut
    >>> ut.nn.functional.multi_margin_loss(ut.tensor([[0.1, 0.8]]), ut.tensor([1]))
    tensor(0.1500)
    """
    check_reduction(reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError(f"weight must be one-dimensional, got {weight.ndim} dimensions")
    input, target = as_tensors("multi_margin_loss", input=input, target=target)
    input, target, single = check_classes(input, target, 1)
    places = ops.unsqueeze(target, 1)
    own = ops.gather(input, 1, places)
    gaps = ops.clamp_min(margin - own + input, 0.0) ** p
    gaps = ops.scatter(gaps, 1, places, 0.0)
    if weight is not None:
        gaps = gaps * ops.index_select(weight, 0, target).unsqueeze(1)
    losses = ops.sum(gaps, 1) / input.shape[1]
    return reduced(losses[0] if single else losses, reduction)


@in_float32
def multilabel_margin_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """The mean over pairs of a target class and another one of max(0, 1 - score of the target + score of the other).

    target  class numbers, shaped as the input; those after the first -1 do not count

    >>> import undertow as ut
    >>> ut.nn.functional.multilabel_margin_loss(ut.tensor([[0.1, 0.8]]), ut.tensor([[1, -1]]))
    tensor(0.1500)
    """
    check_reduction(reduction)
    input, target = as_tensors("multilabel_margin_loss", input=input, target=target)
    input, target, single = check_classes(input, target, 2)
    listed = ops.cumprod(ops.ne(target, -1).long(), 1).bool()
    places = ops.where(listed, target, 0)
    is_target = ops.scatter_add(ops.zeros_like(input), 1, places, listed.to(input.dtype)) > 0
    gaps = ops.clamp_min(1.0 - ops.gather(input, 1, places).unsqueeze(2) + input.unsqueeze(1), 0.0)
    counts = ops.logical_and(listed.unsqueeze(2), ops.logical_not(is_target).unsqueeze(1))
    losses = ops.sum(ops.where(counts, gaps, 0.0), (1, 2)) / input.shape[1]
    return reduced(losses[0] if single else losses, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """max(0, distance to the positive - distance to the negative + margin), with a distance of your own.

    >>> import undertow as ut
    >>> ut.nn.functional.triplet_margin_with_distance_loss(ut.zeros(1, 2), ut.zeros(1, 2), ut.ones(1, 2))
    tensor(0.)
    """
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = ops.pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = ops.minimum(far, distance(positive, negative))
    return reduced(ops.clamp_min(near - far + margin, 0.0), reduction)
