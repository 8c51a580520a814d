"""The distribution of a function of a random value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow.distributions import constraints
from undertow.distributions.composed_transforms import ComposeTransform
from undertow.distributions.constraints import Constraint
from undertow.distributions.distribution import Distribution
from undertow.distributions.independent import sum_last
from undertow.distributions.transform import Transform, dims_after, dims_before
from undertow.modes import no_grad
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Array


class TransformedDistribution(Distribution):
    """The distribution of a function of random values.

    base_distribution  of what the random values are
    transforms         the function: a Transform, or a list of them, the first of them first

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

    @constraints.dependent_property(is_discrete=False)
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
        self._validate_sample(value)
        return self._turned(self.base_dist.cdf(self._whole.invert(value)))

    def icdf(self, value: Array) -> Tensor:
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
        if self.arg_constraints:  # a kind of its own
            return super().__repr__()
        return f"{type(self).__name__}({self.base_dist!r}, {self.transforms!r})"
