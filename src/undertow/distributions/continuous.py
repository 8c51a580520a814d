"""Distributions of real numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.distribution import Distribution, broadcast_all
from undertow.distributions.exponential_family import ExponentialFamily

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


def noise(like: Tensor, shape: Sequence[int], draw: Callable[..., Any] | None = None) -> Tensor:
    """Standard normal numbers (or others) with the dtype and device of a parameter."""
    return (draw or ops.randn)(tuple(shape), dtype=like.dtype, device=like.device)


class Located(Distribution):
    """A location and a scale."""

    support: Any = constraints.real
    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(self, loc: Array, scale: Array, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc


class Normal(Located, ExponentialFamily):
    """The normal distribution with mean `loc` and standard deviation `scale`.

    >>> import undertow as ut
    >>> round(ut.distributions.Normal(0.0, 1.0).log_prob(ut.tensor(0.0)).item(), 4)
    -0.9189
    """

    @property
    def variance(self) -> Tensor:
        return self.scale**2

    @property
    def stddev(self) -> Tensor:
        return self.scale

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.loc + noise(self.loc, self._extended_shape(sample_shape)) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - ops.log(self.scale) - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 0.5 * (1 + ops.erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * ops.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + ops.log(self.scale)

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return self.loc / self.scale**2, -0.5 / self.scale**2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return -0.25 * x**2 / y + 0.5 * ops.log(-math.pi / y)


class Laplace(Located):
    """exp(-|x - loc| / scale) / (2 scale).

    >>> import undertow as ut
    >>> ut.distributions.Laplace(ut.tensor([0.0]), ut.tensor([1.0])).variance
    tensor([2.])
    """

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        uniform = noise(self.loc, self._extended_shape(sample_shape), ops.rand) * 2 - 1
        uniform = ops.clamp(uniform, min=float(self.loc._xp.finfo(self.loc.dtype).eps) - 1)  # log1p(-1) is -inf
        return self.loc - self.scale * ops.sign(uniform) * ops.log1p(-ops.abs(uniform))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -ops.log(2 * self.scale) - ops.abs(value - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        away = value - self.loc
        return 0.5 - 0.5 * ops.sign(away) * ops.expm1(-ops.abs(away) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * ops.sign(term) * ops.log1p(-2 * ops.abs(term))

    def entropy(self) -> Tensor:
        return 1 + ops.log(2 * self.scale)


class Uniform(Distribution):
    """Every number from `low` to `high` alike.

    >>> import undertow as ut
    >>> ut.distributions.Uniform(0.0, ut.tensor([4.0])).mean
    tensor([2.])
    """

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {"low": constraints.real, "high": constraints.real}

    def __init__(self, low: Array, high: Array, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_parameter("low", self.low, constraints.less_than(self.high))

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return math.nan * self.high

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.low + noise(self.low, self._extended_shape(sample_shape), ops.rand) * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        inside = (self.low <= value) & (self.high > value)
        return ops.where(inside, -ops.log(self.high - self.low), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return ops.clamp((value - self.low) / (self.high - self.low), 0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return ops.log(self.high - self.low)


class Exponential(ExponentialFamily):
    """rate * exp(-rate * x).

    >>> import undertow as ut
    >>> ut.distributions.Exponential(ut.tensor([2.0])).mean
    tensor([0.5000])
    """

    support: Any = constraints.nonnegative
    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.positive}

    def __init__(self, rate: Array, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        return ops.zeros_like(self.rate)

    @property
    def variance(self) -> Tensor:
        return self.rate**-2

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return noise(self.rate, self._extended_shape(sample_shape), ops.empty).exponential_() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return ops.log(self.rate) - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -ops.expm1(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -ops.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1 - ops.log(self.rate)

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (-self.rate,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return -ops.log(-x)


class Cauchy(Located):
    """The ratio of two normal numbers: so heavy tails that there is no mean.

    >>> import undertow as ut
    >>> ut.distributions.Cauchy(0.0, 1.0).log_prob(ut.tensor([0.0]))
    tensor([-1.1447])
    """

    @property
    def mean(self) -> Tensor:
        return ops.full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return ops.full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.loc + noise(self.loc, self._extended_shape(sample_shape), ops.empty).cauchy_() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -math.log(math.pi) - ops.log(self.scale) - ops.log1p(((value - self.loc) / self.scale) ** 2)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return ops.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return ops.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + ops.log(self.scale)
