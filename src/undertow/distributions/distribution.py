"""What all distributions have in common."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import getattr_static
from typing import Any, ClassVar

from undertow import ops
from undertow.autograd.batched_tensor import physical
from undertow.backend import dtypes
from undertow.distributions.constraints import Constraint, is_dependent
from undertow.modes import no_grad
from undertow.tensor import Size, Tensor


def holds(checked: Tensor) -> bool:
    """Whether all values are as they have to be; under vmap, those of all examples."""
    whole = physical(checked)
    return bool(checked.all()) if whole is checked else bool(whole._xp.all(whole._array))


class Distribution:
    """A distribution of values of shape `event_shape`, or `batch_shape` of them that are independent.

    validate_args  check parameters and values, which is the default

    >>> import undertow as ut
    >>> normal = ut.distributions.Normal(0.0, 1.0)  # one of those derived from it
    >>> normal.log_prob(ut.zeros(2)), normal.rsample((3,)).shape
    (tensor([-0.9189, -0.9189]), undertow.Size([3]))
    """

    has_rsample = False
    #: whether `enumerate_support` gives all values
    has_enumerate_support = False
    #: parameter -> what it must satisfy
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    _validate_args = True

    def __init__(
        self, batch_shape: Sequence[int] = (), event_shape: Any = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check their parameters and values from now on.

        value  True or False
        """
        if value not in (True, False):
            raise ValueError("validate_args is True or False")
        Distribution._validate_args = value

    def _known_parameters(self) -> dict[str, Any]:
        """What it was made of, and so not what would have to be computed first."""
        known = {}
        for name in self.arg_constraints:
            if name in self.__dict__ or type(getattr_static(type(self), name, None)) is property:
                known[name] = getattr(self, name)
        return known

    def _check_parameters(self) -> None:
        for name, value in self._known_parameters().items():
            if not is_dependent(self.arg_constraints[name]):
                self._check_parameter(name, value, self.arg_constraints[name])

    def _check_parameter(self, name: str, value: Tensor | None, constraint: Constraint) -> None:
        if value is not None and not holds(constraint.check(value)):
            raise ValueError(
                f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
            )

    def _validate_sample(self, value: Tensor) -> None:
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        start = value.ndim - len(self._event_shape)
        if start < 0 or tuple(value.shape[start:]) != tuple(self._event_shape):
            raise ValueError(
                f"The right-most size of value must match event_shape: {value.shape} vs {self._event_shape}."
            )
        for a, b in zip(reversed(value.shape), reversed(self._extended_shape()), strict=False):
            if 1 not in (a, b) and a != b:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs "
                    f"{self._extended_shape()}."
                )
        if not holds(self.support.check(value)):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the "
                f"support ({self.support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    # ---- what it is

    @property
    def batch_shape(self) -> Size:
        """The shape of the independent distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one value."""
        return self._event_shape

    @property
    def support(self) -> Constraint:
        """Where values are."""
        raise NotImplementedError(f"{type(self).__name__} does not say where its values are")

    @property
    def mean(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no formula for its mean")

    @property
    def mode(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not implement mode")

    @property
    def variance(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no formula for its variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return ops.sqrt(self.variance)

    # ---- values

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw values; no gradient leads to the parameters.

        sample_shape  how many: a shape, which comes before batch_shape and event_shape
        """
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Draw values as a function of the parameters, so that gradients lead to them.

        sample_shape  how many: a shape, which comes before batch_shape and event_shape
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot be sampled with gradients: use sample() and log_prob()"
        )

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the probability (density) of values.

        value  shaped as what `sample` gives, or what can be broadcast to it
        """
        raise NotImplementedError(f"{type(self).__name__} has no formula for its density")

    def cdf(self, value: Any) -> Any:
        """The probability of a value up to this one."""
        raise NotImplementedError(f"{type(self).__name__} has no formula for its cdf")

    def icdf(self, value: Any) -> Any:
        """The value that `cdf` gives this probability."""
        raise NotImplementedError(f"{type(self).__name__} has no formula for its inverse cdf")

    def entropy(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no formula for its entropy")

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values, along a new first dimension; the same for all distributions of a batch (expand=False: once)."""
        raise NotImplementedError(f"{type(self).__name__} has no list of its values")

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same distribution for a larger batch.

        _instance    a new object of a subclass, which has set what it knows better, to be completed
        batch_shape  the new one, to which the present one can be broadcast
        """
        made = type(self).__new__(type(self)) if _instance is None else _instance
        open_names = [name for name in self.__dict__ if name not in made.__dict__]
        dims = len(self._batch_shape)
        for name in open_names:
            made.__dict__[name] = value = self.__dict__[name]
            if isinstance(value, Tensor) and tuple(value.shape[:dims]) == tuple(self._batch_shape):
                made.__dict__[name] = ops.expand(value, (*batch_shape, *value.shape[dims:]))
        made._batch_shape = Size(batch_shape)
        return made

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """A new object for `expand`: `_instance`, or one of this class, which must then be made as a `cls` is."""
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also "
                "define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return ops.exp(self.entropy())

    def __repr__(self) -> str:
        known = self._known_parameters().items()
        return f"{type(self).__name__}({', '.join(f'{n}: {v if v.numel() == 1 else v.shape}' for n, v in known)})"


def broadcast_all(*values: Any) -> list[Any]:
    """Numbers and tensors as tensors of one shape."""
    given = [v for v in values if isinstance(v, Tensor)]
    dtype: Any = given[0].dtype if given else dtypes.default_dtype()
    device = given[0].device if given else None
    tensors = [v if isinstance(v, Tensor) else ops.full((), v, dtype=dtype, device=device) for v in values]
    return list(ops.broadcast_tensors(*tensors))


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities whose logarithms are finite."""
    eps = float(probs._xp.finfo(probs.dtype).eps)
    return ops.clamp(probs, eps, 1 - eps)
