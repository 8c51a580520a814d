"""Distributions with powers in them: both Paretos, Weibull, Kumaraswamy, InverseGamma, HalfCauchy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.continuous import AbsoluteValue, noise
from undertow.distributions.distribution import Distribution, broadcast_all
from undertow.distributions.gammas import GammaFamily, standard_gamma

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor

EULER = 0.57721566490153286060


class ByQuantiles(Distribution):
    """Two positive parameters; values are drawn by the inverse of the cdf."""

    has_rsample = True
    #: their names, in the order of the arguments
    names: ClassVar[tuple[str, str]]

    def __init__(self, first: Array, second: Array, validate_args: bool | None = None) -> None:
        values = broadcast_all(first, second)
        self.__dict__.update(zip(self.names, values, strict=True))
        super().__init__(values[0].shape, validate_args=validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        like = self.__dict__[self.names[0]]
        facts = like._xp.finfo(like.dtype)
        uniform = noise(like, self._extended_shape(sample_shape), ops.rand)
        return self.icdf(ops.clamp(uniform, float(facts.tiny), 1 - float(facts.eps)))


class Pareto(ByQuantiles):
    """Above `scale`, with a probability of x or more that falls like x ** -alpha.

    >>> import undertow as ut
    >>> ut.distributions.Pareto(1.0, 3.0).mean.item()
    1.5
    """

    names = ("scale", "alpha")
    arg_constraints: ClassVar[dict[str, Constraint]] = {"alpha": constraints.positive, "scale": constraints.positive}
    scale: Any
    alpha: Any

    def __init__(self, scale: Array, alpha: Array, validate_args: bool | None = None) -> None:
        super().__init__(scale, alpha, validate_args)

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

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return ops.log(self.alpha) + self.alpha * ops.log(self.scale) - (self.alpha + 1) * ops.log(value)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - (self.scale / value) ** self.alpha

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (1 - value) ** (-1 / self.alpha)

    def entropy(self) -> Tensor:
        return ops.log(self.scale / self.alpha) + 1 + 1 / self.alpha


class Weibull(ByQuantiles):
    """A power of an exponential variable: exp(-(x / scale) ** concentration) is the probability of x or more.

    >>> import undertow as ut
    >>> ut.distributions.Weibull(ut.tensor([1.0]), ut.tensor([1.0])).mean
    tensor([1.])
    """

    names = ("scale", "concentration")
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "scale": constraints.positive,
        "concentration": constraints.positive,
    }
    scale: Any
    concentration: Any

    def __init__(self, scale: Array, concentration: Array, validate_args: bool | None = None) -> None:
        super().__init__(scale, concentration, validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.positive

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

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        k, x = self.concentration, value / self.scale
        return ops.log(k / self.scale) + (k - 1) * ops.log(x) - x**k

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -ops.expm1(-((value / self.scale) ** self.concentration))

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-ops.log1p(-value)) ** (1 / self.concentration)

    def entropy(self) -> Tensor:
        k = self.concentration
        return EULER * (1 - 1 / k) + ops.log(self.scale / k) + 1


class Kumaraswamy(ByQuantiles):
    """Between 0 and 1, much like Beta, but with a cdf that can be written down: 1 - (1 - x ** a) ** b.

    >>> import undertow as ut
    >>> ut.distributions.Kumaraswamy(ut.tensor([1.0]), ut.tensor([1.0])).mean
    tensor([0.5000])
    """

    names = ("concentration1", "concentration0")
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    concentration1: Any
    concentration0: Any

    def __init__(self, concentration1: Array, concentration0: Array, validate_args: bool | None = None) -> None:
        super().__init__(concentration1, concentration0, validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.unit_interval

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

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return ops.log(a) + ops.log(b) + (a - 1) * ops.log(value) + (b - 1) * ops.log1p(-(value**a))

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - (1 - value**self.concentration1) ** self.concentration0

    def icdf(self, value: Tensor) -> Tensor:
        return (1 - (1 - value) ** (1 / self.concentration0)) ** (1 / self.concentration1)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = ops.digamma(b + 1) + EULER
        return (1 - 1 / b) + (1 - 1 / a) * harmonic - ops.log(a) - ops.log(b)


class InverseGamma(GammaFamily):
    """One over a gamma variable.

    >>> import undertow as ut
    >>> ut.distributions.InverseGamma(ut.tensor([3.0]), ut.tensor([4.0])).mean
    tensor([2.])
    """

    @property
    def support(self) -> Constraint:
        return constraints.positive

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

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.rate / standard_gamma(self.concentration, self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b = self.concentration, self.rate
        return a * ops.log(b) - (a + 1) * ops.log(value) - b / value - ops.lgamma(a)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + ops.log(self.rate) + ops.lgamma(a) - (1 + a) * ops.digamma(a)


class HalfCauchy(AbsoluteValue):
    """The absolute value of a Cauchy variable around 0.

    >>> import undertow as ut
    >>> ut.distributions.HalfCauchy(ut.tensor([1.0])).cdf(ut.tensor([1.0]))
    tensor([0.5000])
    """

    @property
    def mean(self) -> Any:
        return ops.full_like(self.scale, math.inf)

    @property
    def mode(self) -> Tensor:
        return ops.zeros_like(self.scale)

    @property
    def variance(self) -> Any:
        return ops.full_like(self.scale, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(noise(self.scale, self._extended_shape(sample_shape), ops.rand))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return math.log(2 / math.pi) - ops.log(self.scale) - ops.log1p((value / self.scale) ** 2)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 2 / math.pi * ops.atan(value / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * ops.tan(math.pi / 2 * value)

    def entropy(self) -> Tensor:
        return math.log(2 * math.pi) + ops.log(self.scale)


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
        return ops.where(k < 1, self.loc + self.scale / (1 - k), ops.full_like(k, math.inf))

    @property
    def variance(self) -> Tensor:
        k = self.concentration
        return ops.where(k < 0.5, self.scale**2 / ((1 - k) ** 2 * (1 - 2 * k)), ops.full_like(k, math.inf))

    @property
    def mode(self) -> Tensor:
        return self.loc

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
