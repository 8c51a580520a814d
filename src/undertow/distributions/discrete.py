"""Distributions of whole numbers."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.distribution import Distribution, broadcast_all, clamp_probs
from undertow.modes import no_grad
from undertow.tensor import Size


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


def check_one(probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class Bernoulli(ByProbabilities):
    """1 with probability `probs`, which is sigmoid(logits), else 0."""

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

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return ops.bernoulli(ops.broadcast_to(self.probs, self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -ops.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Any:
        return ops.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")


class Categorical(ByProbabilities):
    """The number of a class, with probabilities `probs` along the last dimension, or softmax(logits).

    >>> import undertow as ut
    >>> choice = ut.distributions.Categorical(probs=ut.tensor([0.25, 0.75]))
    >>> round(choice.log_prob(ut.tensor(1)).exp().item(), 4)
    0.75
    """

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

    def sample(self, sample_shape: Any = ()) -> Any:
        count = Size(sample_shape).numel()
        with no_grad():
            rows = ops.reshape(self.probs, (-1, self._num_events))
            return ops.reshape(ops.t(ops.multinomial(rows, count, True)), self._extended_shape(sample_shape))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        logits = self.logits
        shape = ops.broadcast_tensors(value, logits[..., 0])[0].shape
        places = ops.unsqueeze(ops.broadcast_to(value.long(), shape), -1)
        spread = ops.broadcast_to(logits, (*shape, self._num_events))
        return ops.squeeze(ops.gather(spread, -1, places), -1)

    def entropy(self) -> Any:
        logits = ops.clamp(self.logits, min=float(self.logits._xp.finfo(self.logits.dtype).min))  # 0 * -inf is nan
        return -(logits * self.probs).sum(-1)


class Poisson(Distribution):
    """The number of events that come at `rate`."""

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

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return ops.poisson(ops.broadcast_to(self.rate, self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return ops.xlogy(value, rate) - rate - ops.lgamma(value + 1)
