"""Distributions of whole numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.backend import dtypes
from undertow.backend.interface import DType
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.distribution import Distribution, broadcast_all, clamp_probs
from undertow.modes import no_grad
from undertow.tensor import Size

if TYPE_CHECKING:
    from undertow.tensor import Tensor


class ByProbabilities(Distribution):
    """Probabilities, or their logits; what is not given is found when it is asked for."""

    @property
    def probs(self) -> Any:
        raise NotImplementedError("the probabilities")

    @property
    def logits(self) -> Any:
        raise NotImplementedError("their logits")

    def __repr__(self) -> str:
        name = "probs" if self._probs is not None else "logits"
        value = getattr(self, name)
        return f"{type(self).__name__}({name}: {value.item() if value.numel() == 1 else value.shape})"

    _probs: Any
    _logits: Any

    def _check_parameters(self) -> None:
        for name, value in (("probs", self._probs), ("logits", self._logits)):
            self._check_parameter(name, value, self.arg_constraints[name])


def check_one(probs: Any, logits: Tensor | None) -> None:
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class BySuccess(ByProbabilities):
    """The probability of one outcome of two, or its logit."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"probs": constraints.unit_interval, "logits": constraints.real}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        check_one(probs, logits)
        self._probs = None if probs is None else broadcast_all(probs)[0]
        self._logits = None if logits is None else broadcast_all(logits)[0]
        super().__init__((self._logits if self._probs is None else self._probs).shape, validate_args=validate_args)

    @property
    def probs(self) -> Any:
        return ops.sigmoid(self._logits) if self._probs is None else self._probs

    @property
    def logits(self) -> Any:
        if self._logits is not None:
            return self._logits
        clamped = clamp_probs(self._probs)
        return ops.log(clamped) - ops.log1p(-clamped)


class Bernoulli(BySuccess):
    """1 with probability `probs`, which is sigmoid(logits), else 0.

    >>> import undertow as ut
    >>> ut.distributions.Bernoulli(ut.tensor([0.25])).entropy()
    tensor([0.5623])
    """

    has_enumerate_support = True

    @property
    def support(self) -> Constraint:
        return constraints.boolean

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        probs = self.probs
        return ops.where(probs == 0.5, math.nan, ops._to_copy(probs >= 0.5, probs.dtype))

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        with no_grad():
            return ops.bernoulli(ops.broadcast_to(self.probs, self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Any:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -ops.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Any:
        return ops.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Any:
        return enumerated(2, self.probs.dtype, self, expand)


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
    def probs(self) -> Any:
        return ops.softmax(self._logits, -1) if self._probs is None else self._probs

    @property
    def logits(self) -> Any:
        return ops.log(clamp_probs(self._probs)) if self._logits is None else self._logits

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Any:
        return ops.full(self._batch_shape, math.nan, dtype=self.probs.dtype, device=self.probs.device)

    @property
    def variance(self) -> Any:
        return self.mean

    @property
    def mode(self) -> Any:
        return ops.argmax(self.probs, -1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        count = Size(sample_shape).numel()
        with no_grad():
            rows = ops.reshape(self.probs, (-1, self._num_events))
            return ops.reshape(ops.t(ops.multinomial(rows, count, True)), self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Any:
        self._validate_sample(value)
        logits = self.logits
        shape = ops.broadcast_tensors(value, logits[..., 0])[0].shape
        places = ops.unsqueeze(ops.broadcast_to(value.long(), shape), -1)
        spread = ops.broadcast_to(logits, (*shape, self._num_events))
        return ops.squeeze(ops.gather(spread, -1, places), -1)

    def entropy(self) -> Any:
        logits = ops.clamp(self.logits, min=float(self.logits._xp.finfo(self.logits.dtype).min))  # 0 * -inf is nan
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        return enumerated(self._num_events, dtypes.int64, self, expand)


def enumerated(count: int, dtype: DType, distribution: Distribution, expand: bool) -> Any:
    """0, 1, ... along a new first dimension, before those of the batch."""
    shape = distribution.batch_shape
    values = ops.reshape(ops.arange(count, dtype=dtype), (count, *[1] * len(shape)))
    return ops.expand(values, (count, *shape)) if expand else values


class Poisson(Distribution):
    """The number of events that come at `rate`.

    >>> import undertow as ut
    >>> ut.distributions.Poisson(ut.tensor([4.0])).variance
    tensor([4.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.nonnegative}

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative_integer

    @property
    def mean(self) -> Any:
        return self.rate

    @property
    def mode(self) -> Any:
        return ops.floor(self.rate)

    @property
    def variance(self) -> Any:
        return self.rate

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        with no_grad():
            return ops.poisson(ops.broadcast_to(self.rate, self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Any:
        self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return ops.xlogy(value, rate) - rate - ops.lgamma(value + 1)


class Geometric(BySuccess):
    """How many failures come before the first success, which has probability `probs`.

    >>> import undertow as ut
    >>> ut.distributions.Geometric(ut.tensor([0.25])).mean
    tensor([3.])
    """

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative_integer

    @property
    def mean(self) -> Any:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Any:
        return ops.zeros_like(self.probs)

    @property
    def variance(self) -> Any:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        with no_grad():
            probs = ops.broadcast_to(self.probs, self._extended_shape(sample_shape))
            uniform = ops.clamp_min(ops.rand_like(probs), float(probs._xp.finfo(probs.dtype).tiny))
            return ops.floor(ops.log(uniform) / ops.log1p(-probs))

    def log_prob(self, value: Tensor) -> Any:
        self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        safe = ops.where((probs == 1) & (value == 0), 0.0, probs)
        return value * ops.log1p(-safe) + ops.log(probs)

    def entropy(self) -> Any:
        return ops.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class OneHotCategorical(ByProbabilities):
    """A class as a vector: 1 at its number, 0 elsewhere.

    >>> import undertow as ut
    >>> ut.distributions.OneHotCategorical(ut.tensor([0.25, 0.75])).mode
    tensor([0., 1.])
    """

    has_enumerate_support = True

    arg_constraints: ClassVar[dict[str, Constraint]] = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args=False)
        self._probs, self._logits = self._categorical._probs, self._categorical._logits
        given = self._logits if self._probs is None else self._probs
        super().__init__(given.shape[:-1], given.shape[-1:], validate_args)

    @property
    def probs(self) -> Any:
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        return self._categorical.logits

    @property
    def support(self) -> Constraint:
        return constraints.one_hot

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return self._as_vectors(self._categorical.mode)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def _as_vectors(self, numbers: Tensor) -> Any:
        return ops.one_hot(numbers, self._event_shape[0]).to(self.probs.dtype)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        return self._as_vectors(self._categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Any:
        self._validate_sample(value)
        return self._categorical.log_prob(ops.argmax(value, -1))

    def entropy(self) -> Any:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        count, dims = self._event_shape[0], len(self._batch_shape)
        values = ops.reshape(ops.eye(count, dtype=self.probs.dtype), (count, *[1] * dims, count))
        return ops.expand(values, (count, *self._batch_shape, count)) if expand else values

    def expand(self, batch_shape: Any, _instance: Any = None) -> OneHotCategorical:
        made = super().expand(batch_shape, _instance)
        made._categorical = self._categorical.expand(batch_shape)
        return made


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose samples have the gradient of the probabilities.

    >>> import undertow as ut
    >>> ut.distributions.OneHotCategoricalStraightThrough(ut.tensor([0.25, 0.75])).rsample().sum()
    tensor(1.)
    """

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        probs = self.probs
        return self.sample(sample_shape) + (probs - probs.detach())


class Binomial(Distribution):
    """How many of `total_count` trials succeed, each with probability `probs`.

    >>> import undertow as ut
    >>> ut.distributions.Binomial(10, ut.tensor([0.5])).mean
    tensor([5.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"total_count": constraints.nonnegative_integer}

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        check_one(probs, logits)
        self.total_count, given = broadcast_all(total_count, logits if probs is None else probs)
        self._trial = Bernoulli(given if logits is None else None, given if probs is None else None, validate_args)
        super().__init__(given.shape, validate_args=validate_args)

    @property
    def probs(self) -> Any:
        return self._trial.probs

    @property
    def logits(self) -> Any:
        return self._trial.logits

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        return ops.clamp_max(ops.floor((self.total_count + 1) * self.probs), self.total_count)

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            count, probs = (ops.broadcast_to(t, shape) for t in (self.total_count, self.probs))
            return ops.binomial(count.to(probs.dtype), probs)

    def log_prob(self, value: Tensor) -> Any:
        self._validate_sample(value)
        count, logits = self.total_count, self.logits
        ways = ops.lgamma(count + 1) - ops.lgamma(value + 1) - ops.lgamma(count - value + 1)
        return ways + value * logits - count * ops.softplus(logits)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Binomial:
        made = super().expand(batch_shape, _instance)
        made._trial = self._trial.expand(batch_shape)
        return made
