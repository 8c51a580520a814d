"""Distributions made of several: mixtures, and counts of repeated choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.discrete import BySuccess, Categorical, check_one
from undertow.distributions.distribution import Distribution, broadcast_all
from undertow.distributions.gammas import Gamma
from undertow.modes import no_grad

if TYPE_CHECKING:
    from undertow.tensor import Tensor


class MixtureSameFamily(Distribution):
    """A choice among distributions of one kind: those along the last dimension of a batch.

    >>> import undertow as ut
    >>> d = ut.distributions
    >>> two = d.MixtureSameFamily(d.Categorical(ut.tensor([0.5, 0.5])), d.Normal(ut.tensor([-1.0, 3.0]), 1.0))
    >>> two.mean.item()
    1.0
    """

    def __init__(
        self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("The Mixture distribution needs to be an instance of distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of distributions.Distribution")
        shape = component_distribution.batch_shape
        if not shape or mixture_distribution._num_events != shape[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({mixture_distribution._num_events}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({shape[-1] if shape else None})"
            )
        self.mixture_distribution, self.component_distribution = mixture_distribution, component_distribution
        super().__init__(shape[:-1], component_distribution.event_shape, validate_args)

    @property
    def support(self) -> Constraint:
        return self.component_distribution.support

    def _dim(self) -> int:
        return -1 - len(self._event_shape)

    def _weights(self) -> Tensor:
        probs = self.mixture_distribution.probs
        return ops.reshape(probs, (*probs.shape, *[1] * len(self._event_shape)))

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self.component_distribution.mean).sum(self._dim())

    @property
    def variance(self) -> Tensor:
        """That within the components, and that of their means."""
        away = self.component_distribution.mean - ops.unsqueeze(self.mean, self._dim())
        return (self._weights() * (self.component_distribution.variance + away**2)).sum(self._dim())

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            choice = self.mixture_distribution.sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            dims = len(self._event_shape)
            place = ops.reshape(choice, (*choice.shape, *[1] * (dims + 1)))
            place = ops.expand(place, (*drawn.shape[: drawn.dim() - dims - 1], 1, *self._event_shape))
            return ops.squeeze(ops.gather(drawn, self._dim() + drawn.dim(), place), self._dim())

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        each = self.component_distribution.log_prob(ops.unsqueeze(value, self._dim()))
        return ops.logsumexp(each + ops.log_softmax(self.mixture_distribution.logits, -1), -1)

    def cdf(self, value: Tensor) -> Tensor:
        each = self.component_distribution.cdf(ops.unsqueeze(value, self._dim()))
        return (each * self.mixture_distribution.probs).sum(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"


class NegativeBinomial(BySuccess):
    """How many successes come before `total_count` failures.

    >>> import undertow as ut
    >>> ut.distributions.NegativeBinomial(3, ut.tensor([0.5])).mean
    tensor([3.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.interval(0.0, 1.0),
        "logits": constraints.real,
    }

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        check_one(probs, logits)
        self.total_count, given = broadcast_all(total_count, logits if probs is None else probs)
        self.total_count = self.total_count.to(given.dtype)
        self._probs, self._logits = (given, None) if logits is None else (None, given)
        Distribution.__init__(self, given.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative_integer

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


class Multinomial(Distribution):
    """How often each class is chosen in `total_count` choices.

    >>> import undertow as ut
    >>> ut.distributions.Multinomial(10, ut.tensor([0.25, 0.75])).mean
    tensor([2.5000, 7.5000])
    """

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.probs.shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def probs(self) -> Tensor:
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        return self._categorical.logits

    @property
    def support(self) -> Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            chosen = self._categorical.sample((self.total_count, *sample_shape))
            return ops.one_hot(chosen, self._event_shape[0]).sum(0).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        ways = ops.lgamma(value.sum(-1) + 1) - ops.lgamma(value + 1).sum(-1)
        return ways + ops.where(value == 0, 0.0, logits * value).sum(-1)
