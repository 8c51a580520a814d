"""Similarities and distances of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow import ops
from undertow.nn.module import Module

if TYPE_CHECKING:
    from undertow.tensor import Tensor


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along `dim`.

    dim  the dimension
    eps  added before a division, against zeros

    Shapes: both alike, or such that they broadcast; the result lacks `dim`.

    >>> import undertow as ut
    >>> ut.nn.CosineSimilarity()(ut.ones(2, 3), ut.ones(2, 3))
    tensor([1.0000, 1.0000])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return ops.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of the difference of vectors along the last dimension.

    p        the exponent of the norm
    eps      added before a division, against zeros
    keepdim  whether the dimension stays, with size 1

    Shapes: (N, D) or (D), both; the result is (N) or ().

    >>> import undertow as ut
    >>> ut.nn.PairwiseDistance()(ut.ones(2, 4), ut.zeros(2, 4))
    tensor([2.0000, 2.0000])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return ops.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
