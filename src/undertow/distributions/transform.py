"""A function of random values, with the logarithm of how much it stretches space, and its inverse."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Array


class Transform:
    """A function of tensors that can be inverted, element by element unless `event_dim` says otherwise.

    A subclass defines `_call`, `_inverse` and `log_abs_det_jacobian(x, y)`.

    cache_size  1: remember the last values, so that the inverse of a result is exactly what it was made of; 0: do not

    >>> import undertow as ut
    >>> ut.distributions.transforms.ExpTransform()(ut.tensor([0.0, 1.0]))
    tensor([1.0000, 2.7183])
    """

    bijective = True
    event_dim = 0
    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real
    #: 1 if it is increasing, -1 if it is decreasing
    sign: Any = 1

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size, self._last = cache_size, (None, None)

    def __call__(self, x: Any) -> Any:
        if self._cache_size and x is self._last[0]:
            return self._last[1]
        return self._remembered(x, self._call(x))[1]

    def invert(self, y: Tensor) -> Tensor:
        """What the function made `y` of."""
        if self._cache_size and y is self._last[1]:
            return self._last[0]
        return self._remembered(self._inverse(y), y)[0]

    def _remembered(self, x: Array, y: Array) -> tuple[Any, Any]:
        if self._cache_size:
            self._last = x, y
        return x, y

    def _call(self, x: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes: it needs _call")

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no inverse: it needs _inverse")

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log |dy / dx|.

        x, y  a value, and the transform of it
        """
        raise NotImplementedError(f"{type(self).__name__} has no formula for its derivative")

    @property
    def inv(self) -> Transform:
        """The inverse function."""
        return InverseTransform(self)

    _inv_call = invert

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same function with another `cache_size`."""
        if self._cache_size == cache_size:
            return self
        made = copy(self)
        made._cache_size, made._last = cache_size, (None, None)
        return made

    def forward_shape(self, shape: Any) -> Any:
        """The shape of a result, by that of what is given."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of what is given, by that of the result."""
        return shape

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def dims_before(transform: Transform) -> int:
    """How many dimensions at the end are one value that is given."""
    return max(int(transform.event_dim), int(transform.domain.event_dim))


def dims_after(transform: Transform) -> int:
    """How many dimensions at the end are one result."""
    return dims_before(transform) + int(transform.codomain.event_dim) - int(transform.domain.event_dim)


class InverseTransform(Transform):
    """The inverse of another."""

    def __init__(self, forward: Transform) -> None:
        super().__init__()
        self._forward = forward
        self.event_dim, self.bijective = dims_after(forward), forward.bijective
        self.sign = getattr(forward, "sign", 1)
        self.domain, self.codomain = forward.codomain, forward.domain

    def _call(self, x: Tensor) -> Tensor:
        return self._forward.invert(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._forward(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._forward.log_abs_det_jacobian(y, x)

    @property
    def inv(self) -> Transform:
        return self._forward

    def forward_shape(self, shape: Any) -> Any:
        return self._forward.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._forward.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InverseTransform) and self._forward == other._forward

    __hash__ = Transform.__hash__
