"""Functions of random values, with the logarithm of how much they stretch space, and distributions made by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.distribution import Distribution
from undertow.distributions.joint import sum_last
from undertow.modes import no_grad
from undertow.tensor import Tensor


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

    def _remembered(self, x: Any, y: Any) -> tuple[Any, Any]:
        if self._cache_size:
            self._last = x, y
        return x, y

    def _call(self, x: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes: it needs _call")

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no inverse: it needs _inverse")

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log |dy / dx|."""
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


class ExpTransform(Transform):
    """exp(x).

    >>> import undertow as ut
    >>> ut.distributions.transforms.ExpTransform().log_abs_det_jacobian(ut.ones(1), None)
    tensor([1.])
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return ops.exp(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return ops.log(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x)).

    >>> import undertow as ut
    >>> ut.distributions.transforms.SigmoidTransform()(ut.zeros(1))
    tensor([0.5000])
    """

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        limits = x._xp.finfo(x.dtype)
        return ops.clamp(ops.sigmoid(x), float(limits.tiny), 1.0 - float(limits.eps))

    def _inverse(self, y: Tensor) -> Tensor:
        limits = y._xp.finfo(y.dtype)
        y = ops.clamp(y, float(limits.tiny), 1.0 - float(limits.eps))
        return ops.log(y) - ops.log1p(-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -ops.softplus(-x) - ops.softplus(x)


class TanhTransform(Transform):
    """tanh(x): for actions within bounds.

    The inverse of a value that was rounded to 1 or -1 is infinite: with cache_size=1, samples remember their origin.

    >>> import undertow as ut
    >>> ut.distributions.transforms.TanhTransform()(ut.zeros(1))
    tensor([0.])
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return ops.tanh(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return ops.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - ops.softplus(-2.0 * x))  # log(1 - tanh(x)^2), without cancellation


class AffineTransform(Transform):
    """loc + scale * x; `event_dim` dimensions at the end are one value.

    >>> import undertow as ut
    >>> ut.distributions.transforms.AffineTransform(1.0, 2.0)(ut.tensor([3.0]))
    tensor([7.])
    """

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim
        self.sign = ops.sign(scale) if isinstance(scale, Tensor) else (scale > 0) - (scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale
        stretch = ops.log(ops.abs(scale)) if isinstance(scale, Tensor) else math.log(abs(scale)) + ops.zeros_like(x)
        return sum_last(ops.broadcast_to(stretch, x.shape), self.event_dim)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and all(
            bool(ops.all(ops.as_tensor(a) == ops.as_tensor(b)))
            for a, b in ((self.loc, other.loc), (self.scale, other.scale))
        )

    __hash__ = Transform.__hash__


def widened(constraint: Constraint, dims: int) -> Constraint:
    """A condition on at least so many dimensions."""
    extra = dims - int(constraint.event_dim)
    return constraints.independent(constraint, extra) if extra > 0 else constraint


class ComposeTransform(Transform):
    """Several, one after the other.

    >>> import undertow as ut
    >>> transforms = ut.distributions.transforms
    >>> transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(1.0, 2.0)])(ut.zeros(1))
    tensor([3.])
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        self.domain = self.parts[0].domain if self.parts else constraints.real
        self.codomain = self.parts[-1].codomain if self.parts else constraints.real
        self.bijective = all([part.bijective for part in self.parts])
        self.sign = 1
        for part in self.parts:
            self.sign = self.sign * getattr(part, "sign", 1)
        needed = after = dims_after(self.parts[-1]) if self.parts else 0
        for part in reversed(self.parts):
            needed = max(needed + dims_before(part) - dims_after(part), dims_before(part))
        self.event_dim = needed
        after = needed
        for part in self.parts:
            after += dims_after(part) - dims_before(part)
        self.domain = widened(self.domain, needed)
        self.codomain = widened(self.codomain, after)

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.invert(y)
        return y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        dims = self.event_dim
        total: Any = ops.zeros_like(sum_last(x, dims))
        for part in self.parts:
            following = part(x)
            total = total + sum_last(part.log_abs_det_jacobian(x, following), dims - dims_before(part))
            dims += dims_after(part) - dims_before(part)
            x = following
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = Transform.__hash__


class TransformedDistribution(Distribution):
    """The distribution of a function of random values.

    >>> import undertow as ut
    >>> from undertow.distributions import Normal, TransformedDistribution, TanhTransform
    >>> policy = TransformedDistribution(Normal(0.0, 1.0), TanhTransform())
    >>> round(policy.log_prob(ut.tensor(0.0)).item(), 4)
    -0.9189
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {}

    def __init__(self, base_distribution: Distribution, transforms: Any, validate_args: bool | None = None) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        for transform in self.transforms:
            if not isinstance(transform, Transform):
                raise ValueError(f"transforms must be a Transform or a list of Transforms, but was {transforms}")
        self.base_dist: Any = base_distribution
        self._whole = ComposeTransform(self.transforms)
        given = (*base_distribution.batch_shape, *base_distribution.event_shape)
        values = tuple(self._whole.forward_shape(given))
        before = max(len(base_distribution.event_shape), self._whole.event_dim)
        dims = before + dims_after(self._whole) - dims_before(self._whole)
        missing = dims_before(self._whole) - len(given)
        if missing > 0:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {dims_before(self._whole)}, but got {given}."
            )
        split = len(values) - dims
        super().__init__(values[:split], values[split:], validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return bool(self.base_dist.has_rsample)

    @property
    def support(self) -> Constraint:
        inner = self._whole.codomain if self.transforms else self.base_dist.support
        extra = len(self._event_shape) - inner.event_dim
        return constraints.independent(inner, extra) if extra else inner

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return self._whole(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._whole(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        dims, total = len(self._event_shape), 0.0
        for transform in reversed(self.transforms):
            x = transform._inv_call(value)
            dims += dims_before(transform) - dims_after(transform)
            total = total - sum_last(transform.log_abs_det_jacobian(x, value), dims - dims_before(transform))
            value = x
        return total + sum_last(self.base_dist.log_prob(value), dims - len(self.base_dist.event_shape))

    def cdf(self, value: Tensor) -> Tensor:
        return self._turned(self.base_dist.cdf(self._whole.invert(value)))

    def icdf(self, value: Any) -> Any:
        return self._whole(self.base_dist.icdf(self._turned(value)))

    def _turned(self, probability: Tensor) -> Tensor:
        """A decreasing function turns the order of values."""
        sign = self._whole.sign
        return sign * (probability - 0.5) + 0.5

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        kept = len(self.base_dist.batch_shape) - len(self._batch_shape)
        inner = self.base_dist.batch_shape[len(self.base_dist.batch_shape) - kept :] if kept > 0 else ()
        made = super().expand(batch_shape, _instance)
        made.base_dist = self.base_dist.expand((*batch_shape, *inner))
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist!r}, {self.transforms!r})"
