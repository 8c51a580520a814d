"""Dimensions of a batch taken as dimensions of one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.distribution import Distribution

if TYPE_CHECKING:
    from undertow.tensor import Tensor


def sum_last(value: Tensor, dims: int) -> Tensor:
    """The sum over the last dimensions."""
    return value.sum(tuple(range(-dims, 0))) if dims else value


class Independent(Distribution):
    """The last dimensions of a batch of distributions taken together as one value.

    base_distribution          the batch
    reinterpreted_batch_ndims  how many of its last dimensions

    >>> import undertow as ut
    >>> ut.distributions.Independent(ut.distributions.Normal(ut.zeros(3), ut.ones(3)), 1).log_prob(ut.zeros(3))
    tensor(-2.7568)
    """

    def __init__(
        self, base_distribution: Any, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        shape, dims = base_distribution.batch_shape, reinterpreted_batch_ndims
        if dims > len(shape):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                f"{dims} vs {len(shape)}"
            )
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, dims
        split = len(shape) - dims
        super().__init__(shape[:split], (*shape[split:], *base_distribution.event_shape), validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return bool(self.base_dist.has_rsample)

    @constraints.dependent_property
    def support(self) -> Constraint:
        inner = self.base_dist.support
        return constraints.independent(inner, self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Any:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        return not self.reinterpreted_batch_ndims and bool(self.base_dist.has_enumerate_support)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Independent:
        made: Independent = super().expand(batch_shape, _instance)
        made.base_dist = self.base_dist.expand((*batch_shape, *self._event_shape[: self.reinterpreted_batch_ndims]))
        return made

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_last(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_last(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"
