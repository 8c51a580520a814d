"""Distributions of whole numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.backend.interface import DType
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.distribution import Distribution, broadcast_all, clamp_probs
from undertow.distributions.exponential_family import ExponentialFamily
from undertow.distributions.gammas import Gamma
from undertow.modes import no_grad

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


class ByProbabilities(Distribution):
    """Probabilities, or their logits; what is not given is found when it is asked for."""

    @property
    def probs(self) -> Any:
        raise NotImplementedError("the probabilities")

    @property
    def logits(self) -> Any:
        raise NotImplementedError("their logits")

    _probs: Any
    _logits: Any

    def _known_parameters(self) -> dict[str, Any]:
        given = "logits" if self._probs is None else "probs"
        return {name: getattr(self, name) for name in self.arg_constraints if name in self.__dict__ or name == given}


def check_one(probs: Array | None, logits: Tensor | None) -> None:
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class BySuccess(ByProbabilities):
    """The probability of one outcome of two, or its logit."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"probs": constraints.unit_interval, "logits": constraints.real}

    def __init__(
        self, probs: Array | None = None, logits: Array | None = None, validate_args: bool | None = None
    ) -> None:
        check_one(probs, logits)
        self._probs = None if probs is None else broadcast_all(probs)[0]
        self._logits = None if logits is None else broadcast_all(logits)[0]
        super().__init__((self._logits if self._probs is None else self._probs).shape, validate_args=validate_args)

    @property
    def probs(self) -> Tensor:
        return ops.sigmoid(self._logits) if self._probs is None else self._probs

    @property
    def logits(self) -> Tensor:
        if self._logits is not None:
            return self._logits
        clamped = clamp_probs(self._probs)
        return ops.log(clamped) - ops.log1p(-clamped)


class Bernoulli(BySuccess, ExponentialFamily):
    """1 with probability `probs`, which is sigmoid(logits), else 0.

    >>> import undertow as ut
    >>> ut.distributions.Bernoulli(ut.tensor([0.25])).entropy()
    tensor([0.5623])
    """

    support: Any = constraints.boolean
    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        probs = self.probs
        return ops.where(probs == 0.5, math.nan, ops._to_copy(probs >= 0.5, probs.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return ops.bernoulli(ops.broadcast_to(self.probs, self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -ops.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return ops.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return enumerated(2, self.probs.dtype, self, expand)

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (ops.logit(self.probs),)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return ops.softplus(x)


def enumerated(count: int, dtype: DType, distribution: Distribution, expand: bool) -> Tensor:
    """0, 1, ... along a new first dimension, before those of the batch."""
    shape = distribution.batch_shape
    values = ops.reshape(ops.arange(count, dtype=dtype), (count, *[1] * len(shape)))
    return ops.expand(values, (count, *shape)) if expand else values


class Poisson(ExponentialFamily):
    """The number of events that come at `rate`.

    >>> import undertow as ut
    >>> ut.distributions.Poisson(ut.tensor([4.0])).variance
    tensor([4.])
    """

    support: Any = constraints.nonnegative_integer
    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.nonnegative}

    def __init__(self, rate: Array, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return ops.floor(self.rate)

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return ops.poisson(ops.broadcast_to(self.rate, self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return ops.xlogy(value, rate) - rate - ops.lgamma(value + 1)

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (ops.log(self.rate),)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return ops.exp(x)


class Geometric(BySuccess):
    """How many failures come before the first success, which has probability `probs`.

    >>> import undertow as ut
    >>> ut.distributions.Geometric(ut.tensor([0.25])).mean
    tensor([3.])
    """

    support: Any = constraints.nonnegative_integer

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return ops.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            probs = ops.broadcast_to(self.probs, self._extended_shape(sample_shape))
            uniform = ops.clamp_min(ops.rand_like(probs), float(probs._xp.finfo(probs.dtype).tiny))
            return ops.floor(ops.log(uniform) / ops.log1p(-probs))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        safe = ops.where((probs == 1) & (value == 0), 0.0, probs)
        return value * ops.log1p(-safe) + ops.log(probs)

    def entropy(self) -> Tensor:
        return ops.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class ByTrials(BySuccess):
    """Trials until there are `total_count` of them, or of their failures."""

    def __init__(
        self, total_count: Any = 1, probs: Array | None = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        check_one(probs, logits)
        count, given = broadcast_all(total_count, logits if probs is None else probs)
        self.total_count = count.to(given.dtype)
        self._probs, self._logits = (given, None) if logits is None else (None, given)
        Distribution.__init__(self, given.shape, validate_args=validate_args)


class Binomial(ByTrials):
    """How many of `total_count` trials succeed, each with probability `probs`.

    >>> import undertow as ut
    >>> ut.distributions.Binomial(10, ut.tensor([0.5])).mean
    tensor([5.])
    """

    has_enumerate_support = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "total_count": constraints.nonnegative_integer,
        **BySuccess.arg_constraints,
    }

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ops.clamp_max(ops.floor((self.total_count + 1) * self.probs), self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return ops.binomial(ops.broadcast_to(self.total_count, shape), ops.broadcast_to(self.probs, shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        count, logits = self.total_count, self.logits
        ways = ops.lgamma(count + 1) - ops.lgamma(value + 1) - ops.lgamma(count - value + 1)
        return ways + value * logits - count * ops.softplus(logits)

    def _one_count(self, purpose: str) -> int:
        count = int(self.total_count.max())
        if not bool((self.total_count == count).all()):
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{purpose}`.")
        return count

    def entropy(self) -> Tensor:
        self._one_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(ops.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return enumerated(self._one_count("enumerate_support") + 1, self.probs.dtype, self, expand)


class NegativeBinomial(ByTrials):
    """How many successes come before `total_count` failures.

    >>> import undertow as ut
    >>> ut.distributions.NegativeBinomial(3, ut.tensor([0.5])).mean
    tensor([3.])
    """

    support: Any = constraints.nonnegative_integer
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }

    @property
    def mean(self) -> Tensor:
        return self.total_count * ops.exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return ops.clamp(ops.floor((self.total_count - 1) * ops.exp(self.logits)), min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / ops.sigmoid(-self.logits)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return ops.poisson(Gamma(self.total_count, ops.exp(-self.logits), False).sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n, logits = self.total_count, self.logits
        plain = n * ops.logsigmoid(-logits) + value * ops.logsigmoid(logits)
        ways = ops.lgamma(n + value) - ops.lgamma(1 + value) - ops.lgamma(n)
        return plain + ops.where(n + value == 0, 0.0, ways)
