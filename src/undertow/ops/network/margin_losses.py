"""Losses that compare embeddings and push scores apart by a margin.

The last three are functions of `nn.functional` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.backend.interface import Array
from undertow.ops.arguments.half_precision import in_float32
from undertow.ops.arguments.operands import as_tensors
from undertow.ops.create.like import zeros_like
from undertow.ops.declare import composite
from undertow.ops.index.gather_scatter import gather, scatter, scatter_add
from undertow.ops.index.index_select import index_select
from undertow.ops.network.losses import check_reduction, reduce
from undertow.ops.pointwise.activations import logsigmoid
from undertow.ops.pointwise.comparison_logic_bits import eq, logical_and, logical_not, ne
from undertow.ops.pointwise.powers import sqrt
from undertow.ops.pointwise.where_clamp import clamp_min, minimum, where
from undertow.ops.reduce.cumulative import cumprod
from undertow.ops.reduce.distances import pairwise_distance
from undertow.ops.reduce.sums_and_products import sum
from undertow.ops.views.dimensions import unsqueeze
from undertow.ops.views.reshape import reshape

if TYPE_CHECKING:
    from undertow.tensor import Tensor


@composite
@in_float32
def hinge_embedding_loss(input: Array, target: Array, margin: float = 1.0, *, reduction: str = "mean") -> Array:
    """input where target is 1, max(0, margin - input) where it is -1.

    >>> import undertow as ut
    >>> ut.hinge_embedding_loss(ut.tensor([0.5]), ut.tensor([-1.0]))
    tensor(0.5000)
    """
    input, target = as_tensors("hinge_embedding_loss", input=input, target=target)
    check_reduction(reduction)
    apart = where(ne(target, 1), clamp_min(margin - input, 0.0), 0.0)
    return reduce(apart + where(ne(target, -1), input, 0.0), reduction)


@composite
@in_float32
def cosine_embedding_loss(
    input1: Array, input2: Array, target: Array, margin: float = 0.0, *, reduction: str = "mean"
) -> Array:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1, of pairs of vectors.

    input1, input2  (N, D), or (D)

    >>> import undertow as ut
    >>> ut.cosine_embedding_loss(ut.ones(1, 3), ut.ones(1, 3), ut.tensor([1.0]))
    tensor(0.)
    """
    input1, input2, target = as_tensors("cosine_embedding_loss", input1=input1, input2=input2, target=target)
    check_reduction(reduction)
    if target.ndim + 1 != input1.ndim or input1.ndim != input2.ndim:
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    dot, square1, square2 = (sum(a * b, -1) for a, b in ((input1, input2), (input1, input1), (input2, input2)))
    cosine = dot / sqrt((square1 + 1e-12) * (square2 + 1e-12))
    together = where(eq(target, 1), 1 - cosine, 0.0)
    return reduce(together + where(eq(target, -1), clamp_min(cosine - margin, 0.0), 0.0), reduction)


@composite
@in_float32
def margin_ranking_loss(
    input1: Array, input2: Array, target: Array, margin: float = 0.0, *, reduction: str = "mean"
) -> Array:
    """max(0, -target * (input1 - input2) + margin): target 1 wants input1 larger, -1 smaller.

    >>> import undertow as ut
    >>> ut.margin_ranking_loss(ut.tensor([0.2]), ut.tensor([0.8]), ut.tensor([1.0]))
    tensor(0.6000)
    """
    input1, input2, target = as_tensors("margin_ranking_loss", input1=input1, input2=input2, target=target)
    check_reduction(reduction)
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
            f"{list(input1.shape)}, input2: {list(input2.shape)}, target: {list(target.shape)}"
        )
    return reduce(clamp_min(-target * (input1 - input2) + margin, 0.0), reduction)


@composite(order="operands")
@in_float32
def soft_margin_loss(input: Array, target: Array, *, reduction: str = "mean") -> Array:
    """log(1 + exp(-target * input)), for targets 1 and -1.

    >>> import undertow as ut
    >>> ut.soft_margin_loss(ut.zeros(2), ut.ones(2))
    tensor(0.6931)
    """
    input, target = as_tensors("soft_margin_loss", input=input, target=target)
    check_reduction(reduction)
    return reduce(-logsigmoid(target * input), reduction)


@composite
def multilabel_soft_margin_loss(
    input: Array, target: Array, weight: Array | None = None, *, reduction: str = "mean"
) -> Array:
    """The mean over classes of binary cross entropies of logits.

    target  1 where a class is meant and 0 elsewhere; of the shape of `input`, (N, C)
    weight  what each class counts, (C)

    >>> import undertow as ut
    >>> ut.multilabel_soft_margin_loss(ut.zeros(1, 2), ut.ones(1, 2))
    tensor(0.6931)
    """
    input, target = as_tensors("multilabel_soft_margin_loss", input=input, target=target)
    check_reduction(reduction)
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    losses = losses if weight is None else losses * weight
    return reduce(sum(losses, -1) / input.shape[-1], reduction)


@composite
@in_float32
def triplet_margin_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Array:
    """max(0, distance to the positive - distance to the negative + margin).

    anchor  what both are compared with, (N, D)
    p       of which norm the distances are
    eps     added to differences, against zeros
    swap    take the distance of `positive` and `negative` where that is the smaller one

    >>> import undertow as ut
    >>> ut.triplet_margin_loss(ut.zeros(1, 2), ut.zeros(1, 2), ut.ones(1, 2))
    tensor(0.)
    """
    check_reduction(reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduce(clamp_min(near - far + margin, 0.0), reduction)


# ---- of scores for classes, and with a distance of your own


def check_classes(input: Tensor, target: Tensor, target_dims: int) -> tuple[Any, Any, bool]:
    """Scores (N, C) and targets with a dimension of examples; whether one had to be added."""
    if input.ndim == 0:
        input, target = reshape(input, (1,)), target if target_dims == 1 else reshape(target, (-1,))
    if input.ndim not in (1, 2) or input.shape[-1] == 0:
        raise RuntimeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {input.shape}"
        )
    single = input.ndim == 1 and (target.ndim == 0 or target_dims == 2)
    if input.ndim == 1:
        input, target = unsqueeze(input, 0), reshape(target, (1, -1) if target_dims == 2 else (1,))
    if target.ndim != target_dims or target.shape[0] != input.shape[0]:
        raise RuntimeError(f"inconsistent target size, got: {list(target.shape)}")
    return input, target, single


@in_float32
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Array | None = None,
    *,
    reduction: str = "mean",
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
    places = unsqueeze(target, 1)
    own = gather(input, 1, places)
    gaps = clamp_min(margin - own + input, 0.0) ** p
    gaps = scatter(gaps, 1, places, 0.0)
    if weight is not None:
        gaps = gaps * index_select(weight, 0, target).unsqueeze(1)
    losses = sum(gaps, 1) / input.shape[1]
    return reduce(losses[0] if single else losses, reduction)


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
    listed = cumprod(ne(target, -1).long(), 1).bool()
    places = where(listed, target, 0)
    is_target = scatter_add(zeros_like(input), 1, places, listed.to(input.dtype)) > 0
    gaps = clamp_min(1.0 - gather(input, 1, places).unsqueeze(2) + input.unsqueeze(1), 0.0)
    counts = logical_and(listed.unsqueeze(2), logical_not(is_target).unsqueeze(1))
    losses = sum(where(counts, gaps, 0.0), (1, 2)) / input.shape[1]
    return reduce(losses[0] if single else losses, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, distance to the positive - distance to the negative + margin), with a distance of your own.

    >>> import undertow as ut
    >>> ut.nn.functional.triplet_margin_with_distance_loss(ut.zeros(1, 2), ut.zeros(1, 2), ut.ones(1, 2))
    tensor(0.)
    """
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduce(clamp_min(near - far + margin, 0.0), reduction)
