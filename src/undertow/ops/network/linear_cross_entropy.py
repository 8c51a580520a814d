"""The last linear layer of a classifier together with its loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from undertow.ops.network.cross_entropy import cross_entropy
from undertow.ops.network.linear import linear
from undertow.ops.views.reshape import reshape

if TYPE_CHECKING:
    from undertow.tensor import Tensor


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: None = None,
) -> Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target).

    linear_weight  (classes, features), or (classes, d_1, ..., features) for a loss with more dimensions
    options        PyTorch's for computing in chunks, which is not done here: None

    >>> import undertow as ut
    >>> x, w = ut.randn(4, 3), ut.randn(5, 3)
    >>> ut.nn.functional.linear_cross_entropy(x, w, ut.tensor([0, 1, 2, 4])).shape
    undertow.Size([])
    """
    if options is not None:
        raise ValueError("linear_cross_entropy does not compute in chunks here: leave `options` out")
    check_shapes(input, linear_weight, linear_bias)
    classes, *outputs = linear_weight.shape[:-1]
    logits_shape = (*input.shape[:-1], classes, *outputs)
    if tuple(target.shape) == logits_shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    count = math.prod(outputs, start=classes)
    bias = None if linear_bias is None else reshape(linear_bias, (count,))
    logits = linear(input, reshape(linear_weight, (count, linear_weight.shape[-1])), bias)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(
        reshape(logits, logits_shape), target, weight=weight, reduction=reduction, ignore_index=ignored,
        label_smoothing=label_smoothing,
    )  # fmt: skip


def check_shapes(input: Tensor, linear_weight: Tensor, linear_bias: Tensor | None) -> None:
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}")
    if input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {linear_weight.shape[-1]}, respectively"
        )
    wanted = tuple(linear_weight.shape[:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != wanted:
        raise RuntimeError(f"expected linear_bias shape {wanted}, got {tuple(linear_bias.shape)}")
    if len(wanted) > 1 and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {input.shape[-1]}), got unbatched input with shape {tuple(input.shape)}"
        )
