"""Distributions with powers in them: both Paretos, Weibull, Kumaraswamy, InverseGamma."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.continuous import Exponential, Uniform
from undertow.distributions.distribution import Distribution, broadcast_all
from undertow.distributions.elementary_transforms import AffineTransform, ExpTransform, PowerTransform
from undertow.distributions.gammas import Gamma
from undertow.distributions.transformed_distribution import TransformedDistribution
from undertow.distributions.utils import euler_constant

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


class Pareto(TransformedDistribution):
    """Above `scale`, with a probability of x or more that falls like x ** -alpha.

    >>> import undertow as ut
    >>> ut.distributions.Pareto(1.0, 3.0).mean.item()
    1.5
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Array, alpha: Array, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        steps = [ExpTransform(), AffineTransform(0, self.scale)]
        super().__init__(Exponential(self.alpha, validate_args=False), steps, validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = ops.clamp(self.alpha, min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = ops.clamp(self.alpha, min=2)
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    def entropy(self) -> Tensor:
        return ops.log(self.scale / self.alpha) + 1 + 1 / self.alpha


class Weibull(TransformedDistribution):
    """A power of an exponential variable: exp(-(x / scale) ** concentration) is the probability of x or more.

    >>> import undertow as ut
    >>> ut.distributions.Weibull(ut.tensor([1.0]), ut.tensor([1.0])).mean
    tensor([1.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "scale": constraints.positive,
        "concentration": constraints.positive,
    }
    support: Any = constraints.positive

    def __init__(self, scale: Array, concentration: Array, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(ops.ones_like(self.scale), validate_args=False)
        steps = [PowerTransform(1 / self.concentration), AffineTransform(0, self.scale)]
        super().__init__(base, steps, validate_args)

    @property
    def concentration_reciprocal(self) -> Tensor:
        return 1 / self.concentration

    def _moment(self, n: int) -> Tensor:
        return ops.exp(ops.lgamma(1 + n / self.concentration))

    @property
    def mean(self) -> Tensor:
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** (1 / k)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (self._moment(2) - self._moment(1) ** 2)

    def entropy(self) -> Tensor:
        k = self.concentration
        return euler_constant * (1 - 1 / k) + ops.log(self.scale / k) + 1


class Kumaraswamy(TransformedDistribution):
    """Between 0 and 1, much like Beta, but with a cdf that can be written down: 1 - (1 - x ** a) ** b.

    concentration1, concentration0  a and b in that formula

    >>> import undertow as ut
    >>> ut.distributions.Kumaraswamy(ut.tensor([1.0]), ut.tensor([1.0])).mean
    tensor([0.5000])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support: Any = constraints.unit_interval

    def __init__(self, concentration1: Array, concentration0: Array, validate_args: bool | None = None) -> None:
        a, b = self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(ops.zeros_like(b), ops.ones_like(b), validate_args=False)
        steps = [PowerTransform(1 / b), AffineTransform(1, -1), PowerTransform(1 / a)]
        super().__init__(base, steps, validate_args)

    def _moment(self, n: int) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return b * ops.exp(ops.lgamma(1 + n / a) + ops.lgamma(b) - ops.lgamma(1 + n / a + b))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        inside = (a >= 1) & (b >= 1) & (a * b > 1)
        inner = (ops.where(inside, a - 1, 1.0) / ops.where(inside, a * b - 1, 1.0)) ** (1 / a)
        return ops.where(inside, inner, math.nan)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = ops.digamma(b + 1) + euler_constant
        return (1 - 1 / b) + (1 - 1 / a) * harmonic - ops.log(a) - ops.log(b)


class InverseGamma(TransformedDistribution):
    """One over a gamma variable.

    concentration, rate  of the gamma variable

    >>> import undertow as ut
    >>> ut.distributions.InverseGamma(ut.tensor([3.0]), ut.tensor([4.0])).mean
    tensor([2.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support: Any = constraints.positive

    def __init__(self, concentration: Array, rate: Array, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-ops.ones_like(base.rate)), validate_args)

    @property
    def concentration(self) -> Tensor:
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return ops.where(a > 1, self.rate / ops.where(a > 1, a - 1, 1.0), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        above = ops.where(a > 2, a, 3.0)
        return ops.where(a > 2, self.rate**2 / ((above - 1) ** 2 * (above - 2)), math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + ops.log(self.rate) + ops.lgamma(a) - (1 + a) * ops.digamma(a)


class GeneralizedPareto(Distribution):
    """The excess over a threshold: exponential for concentration 0, with heavier or bounded tails otherwise.

    >>> import undertow as ut
    >>> ut.distributions.GeneralizedPareto(0.0, 1.0, ut.tensor([0.25])).mean
    tensor([1.3333])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(self, loc: Array, scale: Array, concentration: Array, validate_args: Any = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        if not bool((self.concentration < 0).all()):
            return constraints.greater_than_eq(self.loc)
        return constraints.interval(self.loc, self.loc - self.scale / self.concentration)

    def _parts(self) -> tuple[Any, Any]:
        zero = self.concentration == 0
        return zero, ops.where(zero, ops.ones_like(self.concentration), self.concentration)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = ops.rand(tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype, device=self.loc.device)
        return self.icdf(u)

    def log_prob(self, value: Array) -> Tensor:
        self._validate_sample(value)
        z, (zero, k) = (value - self.loc) / self.scale, self._parts()
        return ops.where(zero, -z, -(1 + 1 / k) * ops.log1p(k * z)) - self.scale.log()

    def cdf(self, value: Array) -> Tensor:
        z, (zero, k) = (value - self.loc) / self.scale, self._parts()
        return 1 - ops.where(zero, ops.exp(-z), ops.exp(-ops.log1p(k * z) / k))

    def icdf(self, value: Array) -> Tensor:
        rest, (zero, k) = ops.log1p(-value), self._parts()
        return self.loc + self.scale * ops.where(zero, -rest, ops.expm1(-k * rest) / k)

    @property
    def mean(self) -> Tensor:
        k = self.concentration
        return ops.where(k < 1, self.loc + self.scale / (1 - k), math.nan)

    @property
    def variance(self) -> Tensor:
        k = self.concentration
        return ops.where(k < 0.5, self.scale**2 / ((1 - k) ** 2 * (1 - 2 * k)), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
