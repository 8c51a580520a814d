"""Discrete distributions made continuous, so that gradients lead through their samples, and the like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.categorical import Categorical
from undertow.distributions.composed_transforms import ComposeTransform
from undertow.distributions.constraints import Constraint
from undertow.distributions.continuous import Normal
from undertow.distributions.distribution import Distribution, broadcast_all, clamp_probs
from undertow.distributions.elementary_transforms import ExpTransform, SigmoidTransform
from undertow.distributions.exponential_family import ExponentialFamily
from undertow.distributions.transformed_distribution import TransformedDistribution
from undertow.distributions.utils import lazy_property, logits_to_probs, probs_to_logits
from undertow.distributions.vector_transforms import StickBreakingTransform

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


def uniform_inside(like: Array, shape: Sequence[int]) -> Tensor:
    """Uniform numbers that are neither 0 nor 1."""
    return clamp_probs(ops.rand(tuple(shape), dtype=like.dtype, device=like.device))


class ByOdds(Distribution):
    """Given by `probs` or by `logits`, of which the other is computed when it is asked for."""

    def _take(self, probs: Array | None, logits: Array | None) -> Tensor:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        (given,) = broadcast_all(probs if logits is None else logits)
        setattr(self, "probs" if logits is None else "logits", given)
        return given

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits, is_binary=True)

    def _given(self) -> Any:
        return self.__dict__.get("probs", self.__dict__.get("logits"))


class LogitRelaxedBernoulli(ByOdds):
    """The log odds of a RelaxedBernoulli."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.real
    has_rsample = True

    def __init__(
        self, temperature: Array, probs: Array | None = None, logits: Any = None, validate_args: Any = None
    ) -> None:
        self.temperature = temperature
        super().__init__(self._take(probs, logits).shape, validate_args=validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = uniform_inside(probs, shape)
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Array) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        temperature = ops.as_tensor(self.temperature, dtype=logits.dtype)
        difference = logits - value * temperature
        return temperature.log() + difference - 2 * difference.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    """Values between 0 and 1, the nearer to the ends the lower the temperature.

    >>> import undertow as ut
    >>> ut.distributions.RelaxedBernoulli(ut.tensor(0.5), ut.tensor([0.5])).rsample().shape
    undertow.Size([1])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.unit_interval

    def __init__(
        self, temperature: Array, probs: Array | None = None, logits: Any = None, validate_args: Any = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return type(self)(self.temperature, logits=self.logits.expand(tuple(batch_shape)))

    @property
    def temperature(self) -> Any:
        return self.base_dist.temperature

    @property
    def logits(self) -> Any:
        return self.base_dist.logits

    @property
    def probs(self) -> Any:
        return self.base_dist.probs


class ExpRelaxedCategorical(Distribution):
    """The logarithms of a RelaxedOneHotCategorical."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(
        self, temperature: Array, probs: Array | None = None, logits: Any = None, validate_args: Any = None
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        shape = self._categorical.logits.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def logits(self) -> Tensor:
        return self._categorical.logits

    @property
    def probs(self) -> Any:
        return self._categorical.probs

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return type(self)(self.temperature, logits=self.logits.expand((*batch_shape, self.logits.shape[-1])))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        noise = -(-uniform_inside(self.logits, shape).log()).log()
        scores = (self.logits.expand(tuple(shape)) + noise) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def log_prob(self, value: Array) -> Tensor:
        count = self._event_shape[0]
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        temperature = ops.as_tensor(self.temperature, dtype=logits.dtype)
        scale = math.lgamma(count) - (-(count - 1) * temperature.log())
        score = logits - value * temperature
        return (score - score.logsumexp(-1, keepdim=True)).sum(-1) + scale


class RelaxedOneHotCategorical(TransformedDistribution):
    """Points of a simplex, the nearer to its corners the lower the temperature.

    >>> import undertow as ut
    >>> ut.distributions.RelaxedOneHotCategorical(ut.tensor(0.5), ut.tensor([0.25, 0.75])).rsample().shape
    undertow.Size([2])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    support: Any = constraints.simplex

    def __init__(
        self, temperature: Array, probs: Array | None = None, logits: Any = None, validate_args: Any = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return type(self)(self.temperature, logits=self.logits.expand((*batch_shape, self.logits.shape[-1])))

    @property
    def temperature(self) -> Any:
        return self.base_dist.temperature

    @property
    def logits(self) -> Any:
        return self.base_dist.logits

    @property
    def probs(self) -> Any:
        return self.base_dist.probs


class LogisticNormal(TransformedDistribution):
    """A normal distribution carried to a simplex.

    >>> import undertow as ut
    >>> ut.distributions.LogisticNormal(ut.zeros(2), ut.ones(2)).sample().shape
    undertow.Size([3])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.simplex

    def __init__(self, loc: Array, scale: Array, validate_args: Any = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, ComposeTransform([StickBreakingTransform()]), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        shape = (*batch_shape, self.loc.shape[-1])
        return type(self)(self.loc.expand(shape), self.scale.expand(shape))

    @property
    def loc(self) -> Any:
        return self.base_dist.loc

    @property
    def scale(self) -> Any:
        return self.base_dist.scale


class ContinuousBernoulli(ByOdds, ExponentialFamily):
    """Values between 0 and 1 with a density that is exponential in them.

    lims  between which probabilities the exact formulas would divide nearly zero by nearly zero

    >>> import undertow as ut
    >>> ut.distributions.ContinuousBernoulli(ut.tensor([0.5])).mean
    tensor([0.5000])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        probs: Array | None = None,
        logits: Array | None = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: Any = None,
    ) -> None:
        given = self._take(probs, logits)
        if "probs" in self.__dict__:
            self.probs = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(given.shape, validate_args=validate_args)

    def _outside(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut(self) -> Tensor:
        return ops.where(self._outside(), self.probs, self._lims[0] * ops.ones_like(self.probs))

    def _log_constant(self) -> Tensor:
        p = self._cut()
        below = ops.where(p <= 0.5, p, ops.zeros_like(p))
        above = ops.where(p >= 0.5, p, ops.ones_like(p))
        exact = ((-p).log1p() - p.log()).abs().log() - ops.where(
            p <= 0.5, (-2.0 * below).log1p(), (2.0 * above - 1.0).log()
        )
        x = (self.probs - 0.5) ** 2
        return ops.where(self._outside(), exact, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Tensor:
        p = self._cut()
        exact = p / (2.0 * p - 1.0) + 1.0 / ((-p).log1p() - p.log())
        x = self.probs - 0.5
        return ops.where(self._outside(), exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x**2) * x)

    @property
    def variance(self) -> Tensor:
        p = self._cut()
        exact = p * (p - 1.0) / (1.0 - 2.0 * p) ** 2 + 1.0 / ((-p).log1p() - p.log()) ** 2
        x = (self.probs - 0.5) ** 2
        return ops.where(self._outside(), exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def icdf(self, value: Array) -> Tensor:
        p = self._cut()
        exact = ((-p + value * (2.0 * p - 1.0)).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())
        return ops.where(self._outside(), exact, value)

    def cdf(self, value: Array) -> Tensor:
        self._validate_sample(value)
        p = self._cut()
        exact = (p**value * (1.0 - p) ** (1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inside = ops.where(self._outside(), exact, value)
        return ops.where(value <= 0.0, ops.zeros_like(value), ops.where(value >= 1.0, ops.ones_like(value), inside))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(ops.rand(tuple(self._extended_shape(sample_shape)), dtype=self.probs.dtype))

    def log_prob(self, value: Array) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -ops.binary_cross_entropy_with_logits(logits, value, reduction="none") + self._log_constant()

    def entropy(self) -> Tensor:
        odds = self.probs.log() - (-self.probs).log1p()
        return self.mean * -odds - self._log_constant() - (-self.probs).log1p()

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (probs_to_logits(self.probs, is_binary=True),)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        low, high = self._lims[0] - 0.5, self._lims[1] - 0.5
        outside = (x <= low) | (x > high)
        cut = ops.where(outside, x, low)
        exact = ops.expm1(cut).abs().log() - cut.abs().log()
        return ops.where(outside, exact, 0.5 * x + x**2 / 24.0 - x**4 / 2880.0)
