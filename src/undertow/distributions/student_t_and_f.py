"""Quotients of normal and chi-squared numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.continuous import noise
from undertow.distributions.distribution import Distribution, broadcast_all
from undertow.distributions.gammas import Gamma, standard_gamma

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


class StudentT(Distribution):
    """Student's t with `df` degrees of freedom, moved and scaled.

    >>> import undertow as ut
    >>> ut.distributions.StudentT(ut.tensor([4.0])).variance
    tensor([2.])
    """

    support: Any = constraints.real
    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }

    def __init__(self, df: Array, loc: Array = 0.0, scale: Array = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return ops.where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.scale**2 * self.df / ops.where(self.df > 2, self.df - 2, 1.0)
        return ops.where(self.df > 2, finite, ops.where(self.df > 1, math.inf, math.nan))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        normal = noise(self.loc, shape)  # drawn first, as PyTorch does: the same seed gives the same numbers
        squares = 2 * standard_gamma(0.5 * self.df, shape)
        return self.loc + self.scale * normal * ops.rsqrt(squares / self.df)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        y, df = (value - self.loc) / self.scale, self.df
        norm = ops.log(self.scale) + 0.5 * ops.log(df) + 0.5 * math.log(math.pi)
        norm = norm + ops.lgamma(0.5 * df) - ops.lgamma(0.5 * (df + 1))
        return -0.5 * (df + 1) * ops.log1p(y**2 / df) - norm

    def entropy(self) -> Tensor:
        df, more = self.df, 0.5 * (self.df + 1)
        log_beta = ops.lgamma(0.5 * df) + math.lgamma(0.5) - ops.lgamma(more)
        return ops.log(self.scale) + more * (ops.digamma(more) - ops.digamma(0.5 * df)) + 0.5 * ops.log(df) + log_beta


class FisherSnedecor(Distribution):
    """The ratio of two variances, with df1 and df2 degrees of freedom.

    >>> import undertow as ut
    >>> ut.distributions.FisherSnedecor(ut.tensor([2.0]), ut.tensor([4.0])).mean
    tensor([2.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"df1": constraints.positive, "df2": constraints.positive}
    support: Any = constraints.positive
    has_rsample = True

    def __init__(self, df1: Array, df2: Array, validate_args: Any = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        df2 = ops.where(self.df2 > 2, self.df2, ops.full_like(self.df2, math.nan))
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return ops.where(self.df1 > 2, mode, ops.full_like(mode, math.nan))

    @property
    def variance(self) -> Tensor:
        df2 = ops.where(self.df2 > 4, self.df2, ops.full_like(self.df2, math.nan))
        return 2 * df2**2 * (self.df1 + df2 - 2) / (self.df1 * (df2 - 2) ** 2 * (df2 - 4))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        tiny = float(self.df1._xp.finfo(self.df1.dtype.dtype).tiny)
        first = Gamma(self.df1 / 2, self.df1 / 2).rsample(sample_shape)
        second = ops.clamp(Gamma(self.df2 / 2, self.df2 / 2).rsample(sample_shape), min=tiny)
        return ops.clamp(first / second, min=tiny)

    def log_prob(self, value: Array) -> Tensor:
        self._validate_sample(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        constant = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return constant + a * ratio.log() + (a - 1) * value.log() - (a + b) * ops.log1p(ratio * value)
