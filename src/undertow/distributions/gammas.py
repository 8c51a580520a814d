"""Distributions made of gamma variables: Gamma, Chi2, Beta, Dirichlet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.autograd.function import Function, once_differentiable
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.distribution import broadcast_all
from undertow.distributions.exponential_family import ExponentialFamily

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


def standard_gamma(alpha: Tensor, shape: Sequence[int]) -> Tensor:
    """Gamma variables of rate 1."""
    return ops._standard_gamma(ops.broadcast_to(alpha, tuple(shape)))


def dirichlet_gradient(x: Tensor, concentration: Tensor, grad: Tensor) -> Tensor:
    """The gradient of the concentration from that of x: each share moves by itself, and all together keep the sum."""
    total = concentration.sum(-1, True).expand_as(concentration)
    return ops._dirichlet_grad(x, concentration, total) * (grad - (x * grad).sum(-1, True))


class DirichletSample(Function):
    """Shares of one, as a function of their concentrations."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor) -> Tensor:
        x = ops._sample_dirichlet(concentration)
        ctx.save_for_backward(x, concentration)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, concentration = ctx.saved_tensors
        return dirichlet_gradient(x, concentration, grad)


class Gamma(ExponentialFamily):
    """x ** (concentration - 1) * exp(-rate * x), normalised.

    >>> import undertow as ut
    >>> ut.distributions.Gamma(2.0, 4.0).mean.item()
    0.5
    """

    has_rsample = True
    support: Any = constraints.nonnegative
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }

    def __init__(self, concentration: Array, rate: Array, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ops.clamp((self.concentration - 1) / self.rate, min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return standard_gamma(self.concentration, self._extended_shape(sample_shape)) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b = self.concentration, self.rate
        return ops.xlogy(a, b) + ops.xlogy(a - 1, value) - b * value - ops.lgamma(a)

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return ops.igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - ops.log(self.rate) + ops.lgamma(a) + (1 - a) * ops.digamma(a)

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return ops.lgamma(x + 1) + (x + 1) * ops.log(-1 / y)


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal variables.

    >>> import undertow as ut
    >>> ut.distributions.Chi2(ut.tensor([3.0])).variance
    tensor([6.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"df": constraints.positive}

    def __init__(self, df: Array, validate_args: bool | None = None) -> None:
        (self.df,) = broadcast_all(df)
        super().__init__(0.5 * self.df, 0.5, validate_args)


class Dirichlet(ExponentialFamily):
    """Probabilities of classes: products of powers, whose exponents are `concentration` - 1.

    >>> import undertow as ut
    >>> ut.distributions.Dirichlet(ut.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500])
    """

    support: Any = constraints.simplex
    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.independent(constraints.positive, 1)
    }

    def __init__(self, concentration: Array, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    def total(self) -> Tensor:
        return self.concentration.sum(-1, True)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.total()

    @property
    def mode(self) -> Tensor:
        above = ops.clamp(self.concentration - 1, min=0.0)
        inner = above / above.sum(-1, True)
        corner = ops.one_hot(ops.argmax(inner, -1), self.concentration.shape[-1]).to(inner.dtype)
        return ops.where((self.concentration < 1).all(-1, True), corner, inner)

    @property
    def variance(self) -> Tensor:
        a, total = self.concentration, self.total()
        return a * (total - a) / (total**2 * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return DirichletSample.apply(ops.broadcast_to(self.concentration, self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return ops.xlogy(a - 1, value).sum(-1) + ops.lgamma(a.sum(-1)) - ops.lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a, total, k = self.concentration, self.concentration.sum(-1), self.concentration.shape[-1]
        corner = ops.lgamma(a).sum(-1) - ops.lgamma(total)
        return corner - (k - total) * ops.digamma(total) - ((a - 1) * ops.digamma(a)).sum(-1)

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.concentration - 1,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return ops.lgamma(x + 1).sum(-1) - ops.lgamma((x + 1).sum(-1))


class Beta(ExponentialFamily):
    """A probability: x ** (concentration1 - 1) * (1 - x) ** (concentration0 - 1), normalised.

    >>> import undertow as ut
    >>> ut.distributions.Beta(1.0, 3.0).mean.item()
    0.25
    """

    support: Any = constraints.unit_interval
    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }

    def __init__(self, concentration1: Array, concentration0: Array, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        both = ops.stack([self.concentration1, self.concentration0], -1)
        self._dirichlet = Dirichlet(both, validate_args=False)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        made = super().expand(batch_shape, _instance)
        made._dirichlet = self._dirichlet.expand(batch_shape)
        return made

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._dirichlet.log_prob(ops.stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return self.concentration1 - 1, self.concentration0 - 1

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return ops.lgamma(x + 1) + ops.lgamma(y + 1) - ops.lgamma(x + y + 2)
