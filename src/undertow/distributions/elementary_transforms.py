"""Transforms of single numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.independent import sum_last
from undertow.distributions.transform import Transform
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Array


class ExpTransform(Transform):
    """exp(x).

    >>> import undertow as ut
    >>> ut.distributions.transforms.ExpTransform().log_abs_det_jacobian(ut.ones(1), None)
    tensor([1.])
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return ops.exp(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return ops.log(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


def _clipped_sigmoid(x: Tensor) -> Tensor:
    """The sigmoid, kept away from 0 and 1 by what the dtype can tell from them."""
    limits = x._xp.finfo(x.dtype)
    return ops.clamp(ops.sigmoid(x), float(limits.tiny), 1.0 - float(limits.eps))


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x)).

    >>> import undertow as ut
    >>> ut.distributions.transforms.SigmoidTransform()(ut.zeros(1))
    tensor([0.5000])
    """

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        limits = y._xp.finfo(y.dtype)
        y = ops.clamp(y, float(limits.tiny), 1.0 - float(limits.eps))
        return ops.log(y) - ops.log1p(-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -ops.softplus(-x) - ops.softplus(x)


class TanhTransform(Transform):
    """tanh(x): for actions within bounds.

    The inverse of a value that was rounded to 1 or -1 is infinite: with cache_size=1, samples remember their origin.

    >>> import undertow as ut
    >>> ut.distributions.transforms.TanhTransform()(ut.zeros(1))
    tensor([0.])
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return ops.tanh(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return ops.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - ops.softplus(-2.0 * x))  # log(1 - tanh(x)^2), without cancellation


class AffineTransform(Transform):
    """loc + scale * x; `event_dim` dimensions at the end are one value.

    >>> import undertow as ut
    >>> ut.distributions.transforms.AffineTransform(1.0, 2.0)(ut.tensor([3.0]))
    tensor([7.])
    """

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim
        self.sign = ops.sign(scale) if isinstance(scale, Tensor) else (scale > 0) - (scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale
        stretch = ops.log(ops.abs(scale)) if isinstance(scale, Tensor) else math.log(abs(scale)) + ops.zeros_like(x)
        return sum_last(ops.broadcast_to(stretch, x.shape), self.event_dim)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and all(
            bool(ops.all(ops.as_tensor(a) == ops.as_tensor(b)))
            for a, b in ((self.loc, other.loc), (self.scale, other.scale))
        )

    __hash__ = Transform.__hash__


class AbsTransform(Transform):
    """|x|, whose inverse is the positive one.

    >>> import undertow as ut
    >>> ut.distributions.transforms.AbsTransform()(ut.tensor([-2.0]))
    tensor([2.])
    """

    bijective = False
    codomain = constraints.positive

    def _call(self, x: Array) -> Tensor:
        return x.abs()

    def _inverse(self, y: Array) -> Tensor:
        return y


class PowerTransform(Transform):
    """x ** exponent, of positive numbers.

    >>> import undertow as ut
    >>> ut.distributions.transforms.PowerTransform(ut.tensor(2.0))(ut.tensor([3.0]))
    tensor([9.])
    """

    domain = codomain = constraints.positive

    def __init__(self, exponent: Array, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = ops.as_tensor(exponent)
        self.sign = ops.sign(self.exponent)

    def _call(self, x: Array) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Array) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Array, y: Array) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool((self.exponent == other.exponent).all())

    __hash__ = Transform.__hash__


class SoftplusTransform(Transform):
    """log(1 + exp(x)).

    >>> import undertow as ut
    >>> ut.distributions.transforms.SoftplusTransform().inv(ut.ones(1))
    tensor([0.5413])
    """

    codomain = constraints.positive

    def _call(self, x: Array) -> Tensor:
        return ops.softplus(x)

    def _inverse(self, y: Array) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Array, y: Array) -> Tensor:
        return -ops.softplus(-x)


class CumulativeDistributionTransform(Transform):
    """The cdf of a distribution.

    >>> import undertow as ut
    >>> ut.distributions.transforms.CumulativeDistributionTransform(ut.distributions.Normal(0.0, 1.0))(ut.zeros(1))
    tensor([0.5000])
    """

    codomain = constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution
        self.domain = distribution.support

    def _call(self, x: Array) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Array) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Array, y: Array) -> Tensor:
        return self.distribution.log_prob(x)
