"""The largest of many numbers, and absolute values: functions of uniform, normal and Cauchy numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.continuous import Cauchy, Normal, Uniform
from undertow.distributions.distribution import broadcast_all
from undertow.distributions.elementary_transforms import AbsTransform, AffineTransform, ExpTransform
from undertow.distributions.transformed_distribution import TransformedDistribution
from undertow.distributions.utils import euler_constant

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


class Gumbel(TransformedDistribution):
    """The largest of many numbers: loc - scale * log(-log(u)) for a uniform u.

    >>> import undertow as ut
    >>> ut.distributions.Gumbel(ut.tensor([0.0]), ut.tensor([1.0])).mean
    tensor([0.5772])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real

    def __init__(self, loc: Array, scale: Array, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        facts, one = self.loc._xp.finfo(self.loc.dtype), ops.ones_like(self.loc)
        uniform = Uniform(one * float(facts.tiny), one * (1 - float(facts.eps)), validate_args)
        logarithm = ExpTransform().inv
        steps = [logarithm, AffineTransform(0, -one), logarithm, AffineTransform(self.loc, -self.scale)]
        super().__init__(uniform, steps, validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return (math.pi / math.sqrt(6)) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev**2

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return (y - ops.exp(y)) - ops.log(self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return ops.exp(-ops.exp((self.loc - value) / self.scale))

    def entropy(self) -> Tensor:
        return ops.log(self.scale) + (1 + euler_constant)


class AbsoluteValue(TransformedDistribution):
    """The absolute value of a number that is distributed alike on both sides of zero."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"scale": constraints.positive}
    support: Any = constraints.nonnegative
    #: the distribution on both sides, made of a location and a scale
    both_sides: ClassVar[Any]

    def __init__(self, scale: Array, validate_args: bool | None = None) -> None:
        super().__init__(self.both_sides(0, scale, validate_args=False), AbsTransform(), validate_args)

    @property
    def scale(self) -> Tensor:
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        return ops.zeros_like(self.scale)

    def log_prob(self, value: Array) -> Tensor:
        self._validate_sample(value)
        value = ops.as_tensor(value, dtype=self.scale.dtype, device=self.scale.device)
        return ops.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(AbsoluteValue):
    """The absolute value of a normal number around zero.

    >>> import undertow as ut
    >>> ut.distributions.HalfNormal(ut.tensor([1.0])).mean
    tensor([0.7979])
    """

    both_sides = Normal

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)


class HalfCauchy(AbsoluteValue):
    """The absolute value of a Cauchy number around zero.

    >>> import undertow as ut
    >>> ut.distributions.HalfCauchy(ut.tensor([1.0])).cdf(ut.tensor([1.0]))
    tensor([0.5000])
    """

    both_sides = Cauchy

    @property
    def mean(self) -> Any:
        return ops.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance
