"""Losses that compare embeddings and push scores apart by a margin."""

from __future__ import annotations

from undertow.backend.interface import Array
from undertow.ops.arguments.autocast_float32 import in_float32
from undertow.ops.arguments.operands import as_tensors
from undertow.ops.declare import composite
from undertow.ops.network.losses import check_reduction, reduce
from undertow.ops.pointwise.activations import logsigmoid
from undertow.ops.pointwise.comparison import eq, ne
from undertow.ops.pointwise.elementary import sqrt
from undertow.ops.pointwise.where_clamp import clamp_min, minimum, where
from undertow.ops.reduce.distances import pairwise_distance
from undertow.ops.reduce.sums_and_products import sum


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
