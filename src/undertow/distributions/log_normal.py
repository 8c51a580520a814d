"""The distribution of exp(x) where x is normal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.continuous import Normal
from undertow.distributions.elementary_transforms import ExpTransform
from undertow.distributions.transformed_distribution import TransformedDistribution

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


class LogNormal(TransformedDistribution):
    """exp of a normal variable with mean `loc` and standard deviation `scale`.

    >>> import undertow as ut
    >>> ut.distributions.LogNormal(0.0, 1.0).mean
    tensor(1.6487)
    """

    support: Any = constraints.positive
    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(self, loc: Array, scale: Array, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return ops.exp(self.loc + self.scale**2 / 2)

    @property
    def mode(self) -> Tensor:
        return ops.exp(self.loc - self.scale**2)

    @property
    def variance(self) -> Tensor:
        return ops.expm1(self.scale**2) * ops.exp(2 * self.loc + self.scale**2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc
