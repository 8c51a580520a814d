"""Dropout as modules: they drop in training mode, and pass their input on in evaluation mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow.nn import functional as F
from undertow.nn.module import Module

if TYPE_CHECKING:
    from undertow.tensor import Tensor


class AnyDropout(Module):
    """What all kinds of dropout have in common."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(AnyDropout):
    """Every element 0 with probability p, the others over 1 - p.

    p        the probability of being dropped
    inplace  whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.Dropout(0.5).eval()(ut.ones(3))
    tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(AnyDropout):
    """Whole channels of (examples, channels, length) 0 with probability p.

    p        the probability of being dropped
    inplace  whether the input itself is changed

    >>> import undertow as ut
    >>> ut.nn.Dropout1d(0.5)(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 4, 8])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(AnyDropout):
    """Whole channels of (examples, channels, height, width) 0 with probability p.

    p        the probability of being dropped
    inplace  whether the input itself is changed

    >>> import undertow as ut
    >>> ut.nn.Dropout2d(0.5)(ut.ones(2, 4, 8, 8)).shape
    undertow.Size([2, 4, 8, 8])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(AnyDropout):
    """Whole channels of (examples, channels, depth, height, width) 0 with probability p.

    p        the probability of being dropped
    inplace  whether the input itself is changed

    >>> import undertow as ut
    >>> ut.nn.Dropout3d(0.5)(ut.ones(2, 4, 8, 8, 8)).shape
    undertow.Size([2, 4, 8, 8, 8])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(AnyDropout):
    """Dropout that keeps mean and variance of what SELU gives.

    p        the probability of being dropped
    inplace  whether the input itself is changed

    Shapes: any; the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.AlphaDropout()(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 4, 8])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(AnyDropout):
    """AlphaDropout of whole channels.

    p        the probability of being dropped
    inplace  whether the input itself is changed

    Shapes: (N, C, ...); the result has that of the input.

    >>> import undertow as ut
    >>> ut.nn.FeatureAlphaDropout()(ut.ones(2, 4, 8)).shape
    undertow.Size([2, 4, 8])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)
