"""The Kullback-Leibler divergence of two distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.distributions.categorical import Categorical, OneHotCategorical
from undertow.distributions.continuous import Cauchy, Exponential, Laplace, Normal, Uniform
from undertow.distributions.discrete import Bernoulli, Geometric, Poisson
from undertow.distributions.extremes_and_halves import Gumbel, HalfNormal
from undertow.distributions.gammas import Beta, Dirichlet, Gamma
from undertow.distributions.independent import Independent, sum_last
from undertow.distributions.log_normal import LogNormal
from undertow.distributions.multivariate_normal import MultivariateNormal
from undertow.distributions.utils import euler_constant

if TYPE_CHECKING:
    from undertow.distributions.distribution import Distribution
    from undertow.tensor import Tensor

#: classes -> the formula
FORMULAS: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Any], Any]:
    """Decorate a function of two distributions of these classes that gives their divergence.

    type_p, type_q  the classes of the first and of the second

    >>> import undertow as ut
    >>> class Mine(ut.distributions.Normal):
    ...     pass
    >>> @ut.distributions.register_kl(Mine, Mine)
    ... def kl_of_mine(p, q):
    ...     return ut.tensor(0.0)
    >>> ut.distributions.kl_divergence(Mine(0.0, 1.0), Mine(1.0, 1.0))
    tensor(0.)
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        FORMULAS[type_p, type_q] = function
        return function

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean of log(p / q) over values from p.

    >>> import undertow as ut
    >>> from undertow.distributions import Normal, kl_divergence
    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
    0.5
    """
    for type_p in type(p).__mro__:
        for type_q in type(q).__mro__:
            if (type_p, type_q) in FORMULAS:
                return FORMULAS[type_p, type_q](p, q)
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}: register one with "
        "register_kl, or average p.log_prob(x) - q.log_prob(x) over samples of p"
    )


@register_kl(Normal, Normal)
def _normals(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ops.log(ratio))


@register_kl(LogNormal, LogNormal)
def _log_normals(p: LogNormal, q: LogNormal) -> Tensor:
    return _normals(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplaces(p: Laplace, q: Laplace) -> Tensor:
    ratio, away = p.scale / q.scale, ops.abs(p.loc - q.loc)
    return -ops.log(ratio) + away / q.scale + ratio * ops.exp(-away / p.scale) - 1


@register_kl(Uniform, Uniform)
def _uniforms(p: Uniform, q: Uniform) -> Tensor:
    found = ops.log((q.high - q.low) / (p.high - p.low))
    return ops.where((q.low > p.low) | (q.high < p.high), math.inf, found)


@register_kl(Exponential, Exponential)
def _exponentials(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ops.log(ratio)


@register_kl(Poisson, Poisson)
def _poissons(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (ops.log(p.rate) - ops.log(q.rate)) - (p.rate - q.rate)


@register_kl(Bernoulli, Bernoulli)
def _bernoullis(p: Bernoulli, q: Bernoulli) -> Tensor:
    one = ops.xlogy(p.probs, p.probs) - ops.xlogy(p.probs, q.probs)
    zero = ops.xlogy(1 - p.probs, 1 - p.probs) - ops.xlogy(1 - p.probs, 1 - q.probs)
    return one + zero


@register_kl(Categorical, Categorical)
def _categoricals(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = ops.where(q.probs == 0, math.inf, terms)
    return ops.where(ops.broadcast_tensors(p.probs, terms)[0] == 0, 0.0, terms).sum(-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normals(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be computed"
        )
    white = ops.linalg_solve_triangular(q._unbroadcasted_scale_tril, p._unbroadcasted_scale_tril, upper=False)
    away = ops.linalg_solve_triangular(q._unbroadcasted_scale_tril, ops.unsqueeze(q.loc - p.loc, -1), upper=False)
    spread = (white**2).sum((-2, -1)) + (away**2).sum((-2, -1))
    return q.half_log_det() - p.half_log_det() + 0.5 * (spread - p.event_shape[0])


@register_kl(Independent, Independent)
def _independents(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("the two must take the same number of dimensions together")
    return sum_last(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(HalfNormal, HalfNormal)
def _half_normals(p: HalfNormal, q: HalfNormal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio - 1 - ops.log(ratio))


@register_kl(Cauchy, Cauchy)
def _cauchys(p: Cauchy, q: Cauchy) -> Tensor:
    apart = (p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2
    return ops.log(apart) - ops.log(4 * p.scale * q.scale)


@register_kl(Gumbel, Gumbel)
def _gumbels(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, away = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return (
        -ops.log(ratio) - away + ratio * euler_constant + ops.exp(away + ops.lgamma(1 + ratio)) - (1 + euler_constant)
    )


@register_kl(Gamma, Gamma)
def _gammas(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    rates = b * ops.log(p.rate / q.rate) + (q.rate - p.rate) * (a / p.rate)
    return rates + ops.lgamma(b) - ops.lgamma(a) + (a - b) * ops.digamma(a)


@register_kl(Dirichlet, Dirichlet)
def _dirichlets(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    norms = ops.lgamma(total) - ops.lgamma(b.sum(-1)) - (ops.lgamma(a) - ops.lgamma(b)).sum(-1)
    return norms + ((a - b) * (ops.digamma(a) - ops.unsqueeze(ops.digamma(total), -1))).sum(-1)


@register_kl(Beta, Beta)
def _betas(p: Beta, q: Beta) -> Tensor:
    return _dirichlets(p._dirichlet, q._dirichlet)


@register_kl(Geometric, Geometric)
def _geometrics(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - ops.log1p(-q.probs) / p.probs - q.logits


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hots(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categoricals(p._categorical, q._categorical)
