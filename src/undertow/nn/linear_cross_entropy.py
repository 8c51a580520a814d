"""The last linear layer of a classifier together with its loss, all at once or some rows at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.autograd.checkpoint import checkpoint
from undertow.modes import current

if TYPE_CHECKING:
    from undertow.backend.interface import Array, DType
    from undertow.tensor import Tensor


@dataclass(frozen=True, slots=True)
class LinearCrossEntropyOptions:
    """How `linear_cross_entropy` computes some rows at a time, so that not all logits are in memory at once.

    Each chunk of rows is computed again in the backward pass. Derivatives of any order, and `retain_graph`, work as
    they do without.

    batch_chunk_size   how many rows; None: as the method says
    chunking_method    "aspect_ratio": as many that their logits take about as much memory as the input, and with
                       ":4", say, a quarter of them; "auto": a half; None: all rows, if there is no size
    acc_policy, acc_dtype, allow_retain_graph    of PyTorch's kernels; there is nothing to choose here

    >>> import undertow as ut
    >>> x, w, target = ut.randn(6, 3), ut.randn(5, 3), ut.tensor([0, 1, 2, 4, 3, 0])
    >>> options = ut.nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    >>> loss = ut.nn.functional.linear_cross_entropy
    >>> ut.allclose(loss(x, w, target, options=options), loss(x, w, target))
    True
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}. It is auto, accurate, balanced or compact.")
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        self._parts()

    def _parts(self) -> int:
        """Into how many parts the rows are divided that take as much memory as the input."""
        method = self.chunking_method
        if method is None or method == "auto":
            return 2
        name, _, parts = method.partition(":")
        if name != "aspect_ratio" or not (parts or "1").isdigit() or int(parts or "1") < 1:
            raise ValueError(f"invalid chunking_method: {method!r}. It is auto, aspect_ratio, or aspect_ratio:4, say.")
        return int(parts or "1")

    def rows(self, count: int, features: int, classes: int) -> int:
        """How many of `count` rows to compute at a time.

        count, features, classes  the sizes of the problem
        """
        if self.chunking_method is None:
            return self.batch_chunk_size or count
        alike = math.ceil(count / math.ceil(classes / max(features, 1)) / self._parts()) if count and classes else 1
        found = 1 << max(alike - 1, 0).bit_length()
        if self.batch_chunk_size is not None and self.chunking_method != "auto" and self.batch_chunk_size != found:
            raise ValueError(
                f"batch_chunk_size={self.batch_chunk_size} and chunking_method={self.chunking_method!r}, which gives "
                f"{found}, disagree: leave one of them out"
            )
        return self.batch_chunk_size or found


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Array | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target).

    linear_weight  (classes, features), or (classes, d_1, ..., features) for a loss with more dimensions
    options        if given, matrices are multiplied some rows at a time: see `nn.LinearCrossEntropyOptions`

    >>> import undertow as ut
    >>> x, w = ut.randn(4, 3), ut.randn(5, 3)
    >>> ut.nn.functional.linear_cross_entropy(x, w, ut.tensor([0, 1, 2, 4])).shape
    undertow.Size([])
    """
    check_shapes(input, linear_weight, linear_bias)
    classes, *outputs = linear_weight.shape[:-1]
    if tuple(target.shape) == (*input.shape[:-1], classes, *outputs) and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    ignored = -100 if ignore_index is None else ignore_index
    given = linear_weight, linear_bias, weight, ignored, label_smoothing
    # transformations see all examples at once; and it is memory that chunks are for
    if options is not None and input.dim() == 2 and not outputs and current().intercept is None:
        rows = options.rows(len(input), input.shape[-1], classes)
        if rows < len(input) and reduction in ("none", "mean", "sum"):
            return _in_chunks(rows, input, target, reduction, *given)
    return _at_once(input, target, reduction, *given)


def _at_once(
    input: Tensor, target: Tensor, reduction: str, linear_weight: Tensor, linear_bias: Tensor | None,
    weight: Array | None, ignored: int, label_smoothing: float,
) -> Tensor:  # fmt: skip
    classes, *outputs = linear_weight.shape[:-1]
    count = math.prod(outputs, start=classes)
    bias = None if linear_bias is None else ops.reshape(linear_bias, (count,))
    logits = ops.linear(input, ops.reshape(linear_weight, (count, linear_weight.shape[-1])), bias)
    return ops.cross_entropy(
        ops.reshape(logits, (*input.shape[:-1], classes, *outputs)), target, weight=weight, reduction=reduction,
        ignore_index=ignored, label_smoothing=label_smoothing,
    )  # fmt: skip


def _in_chunks(rows: int, input: Tensor, target: Tensor, reduction: str, *given: Any) -> Tensor:
    chunks = [(input[k : k + rows], target[k : k + rows]) for k in range(0, len(input), rows)]
    losses = ops.cat([checkpoint(_at_once, x, y, "none", *given, use_reentrant=False) for x, y in chunks])
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / _total_weight(target, *given[2:4])


def _total_weight(target: Tensor, weight: Any, ignored: int) -> Any:
    """What the mean divides by: the weights of the classes that are not ignored."""
    if target.dim() > 1:  # probabilities
        return len(target)
    counted: Any = target != ignored
    return counted.sum() if weight is None else weight[target[counted]].sum()


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
