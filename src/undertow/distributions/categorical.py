"""Choices among several: one, one as a vector, and counts of many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.backend import dtypes
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.discrete import Binomial, ByProbabilities, check_one, enumerated
from undertow.distributions.distribution import broadcast_all, clamp_probs
from undertow.modes import no_grad
from undertow.tensor import Size

if TYPE_CHECKING:
    from undertow.tensor import Tensor


class Categorical(ByProbabilities):
    """The number of a class, with probabilities `probs` along the last dimension, or softmax(logits).

    >>> import undertow as ut
    >>> choice = ut.distributions.Categorical(probs=ut.tensor([0.25, 0.75]))
    >>> round(choice.log_prob(ut.tensor(1)).exp().item(), 4)
    0.75
    """

    has_enumerate_support = True

    arg_constraints: ClassVar[dict[str, Constraint]] = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        check_one(probs, logits)
        given = logits if probs is None else probs
        if given.dim() < 1:
            raise ValueError(f"`{'logits' if probs is None else 'probs'}` parameter must be at least one-dimensional.")
        self._probs = None if probs is None else probs / probs.sum(-1, True)
        self._logits = None if logits is None else logits - ops.logsumexp(logits, -1, True)
        self._num_events = int(given.shape[-1])
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @property
    def probs(self) -> Tensor:
        return ops.softmax(self._logits, -1) if self._probs is None else self._probs

    @property
    def logits(self) -> Tensor:
        return ops.log(clamp_probs(self._probs)) if self._logits is None else self._logits

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return ops.full(self._batch_shape, math.nan, dtype=self.probs.dtype, device=self.probs.device)

    @property
    def variance(self) -> Tensor:
        return self.mean

    @property
    def mode(self) -> Tensor:
        return ops.argmax(self.probs, -1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        count = Size(sample_shape).numel()
        with no_grad():
            rows = ops.reshape(self.probs, (-1, self._num_events))
            return ops.reshape(ops.t(ops.multinomial(rows, count, True)), self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits = self.logits
        shape = ops.broadcast_tensors(value, logits[..., 0])[0].shape
        places = ops.unsqueeze(ops.broadcast_to(value.long(), shape), -1)
        spread = ops.broadcast_to(logits, (*shape, self._num_events))
        return ops.squeeze(ops.gather(spread, -1, places), -1)

    def entropy(self) -> Tensor:
        logits = ops.clamp(self.logits, min=float(self.logits._xp.finfo(self.logits.dtype).min))  # 0 * -inf is nan
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return enumerated(self._num_events, dtypes.int64, self, expand)


class OverCategorical(ByProbabilities):
    """Vectors with an element for each class, made of choices of classes."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args=False)
        self._probs, self._logits = self._categorical._probs, self._categorical._logits
        given = self._logits if self._probs is None else self._probs
        super().__init__(given.shape[:-1], given.shape[-1:], validate_args)

    @property
    def probs(self) -> Tensor:
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        return self._categorical.logits

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        made = super().expand(batch_shape, _instance)
        made._categorical = self._categorical.expand(batch_shape)
        return made


class OneHotCategorical(OverCategorical):
    """A class as a vector: 1 at its number, 0 elsewhere.

    >>> import undertow as ut
    >>> ut.distributions.OneHotCategorical(ut.tensor([0.25, 0.75])).mode
    tensor([0., 1.])
    """

    has_enumerate_support = True
    support: Any = constraints.one_hot

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._as_vectors(self._categorical.mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _as_vectors(self, numbers: Tensor) -> Tensor:
        return ops.one_hot(numbers, self._event_shape[0]).to(self.probs.dtype)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._as_vectors(self._categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._categorical.log_prob(ops.argmax(value, -1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count, dims = self._event_shape[0], len(self._batch_shape)
        values = ops.reshape(ops.eye(count, dtype=self.probs.dtype), (count, *[1] * dims, count))
        return ops.expand(values, (count, *self._batch_shape, count)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose samples have the gradient of the probabilities.

    >>> import undertow as ut
    >>> ut.distributions.OneHotCategoricalStraightThrough(ut.tensor([0.25, 0.75])).rsample().sum()
    tensor(1.)
    """

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        probs = self.probs
        return self.sample(sample_shape) + (probs - probs.detach())


class Multinomial(OverCategorical):
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
        super().__init__(probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
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

    def entropy(self) -> Tensor:
        counts = Binomial(self.total_count, self.probs, validate_args=False)
        some = counts.enumerate_support(False)[1:]
        repeated = (ops.exp(counts.log_prob(some)) * ops.lgamma(some + 1)).sum((0, -1))
        return self.total_count * self._categorical.entropy() - math.lgamma(self.total_count + 1) + repeated
