"""Mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.categorical import Categorical
from undertow.distributions.constraints import Constraint
from undertow.distributions.distribution import Distribution
from undertow.modes import no_grad

if TYPE_CHECKING:
    from undertow.tensor import Tensor


class MixtureSameFamily(Distribution):
    """A choice among distributions of one kind: those along the last dimension of a batch.

    mixture_distribution    a Categorical: how often each is chosen
    component_distribution  the batch

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

    @constraints.dependent_property
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
