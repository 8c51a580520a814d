"""Distributions of directions, of matrices, and of ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.continuous import noise
from undertow.distributions.distribution import Distribution, broadcast_all
from undertow.distributions.gammas import Beta, Chi2, Gamma
from undertow.distributions.utils import lazy_property
from undertow.modes import no_grad


class FisherSnedecor(Distribution):
    """The ratio of two variances, with df1 and df2 degrees of freedom.

    >>> import undertow as ut
    >>> ut.distributions.FisherSnedecor(ut.tensor([2.0]), ut.tensor([4.0])).mean
    tensor([2.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"df1": constraints.positive, "df2": constraints.positive}
    support: Any = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: Any = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        df2 = ops.where(self.df2 > 2, self.df2, ops.full_like(self.df2, math.nan))
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Any:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return ops.where(self.df1 > 2, mode, ops.full_like(mode, math.nan))

    @property
    def variance(self) -> Any:
        df2 = ops.where(self.df2 > 4, self.df2, ops.full_like(self.df2, math.nan))
        return 2 * df2**2 * (self.df1 + df2 - 2) / (self.df1 * (df2 - 2) ** 2 * (df2 - 4))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        tiny = float(self.df1._xp.finfo(self.df1.dtype.dtype).tiny)
        first = Gamma(self.df1 / 2, self.df1 / 2).rsample(sample_shape)
        second = ops.clamp(Gamma(self.df2 / 2, self.df2 / 2).rsample(sample_shape), min=tiny)
        return ops.clamp(first / second, min=tiny)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        constant = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return constant + a * ratio.log() + (a - 1) * value.log() - (a + b) * ops.log1p(ratio * value)


class GeneralizedPareto(Distribution):
    """The excess over a threshold: exponential for concentration 0, with heavier or bounded tails otherwise.

    >>> import undertow as ut
    >>> ut.distributions.GeneralizedPareto(0.0, 1.0, ut.tensor([0.25])).mean
    tensor([1.3333])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: Any = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        if not bool((self.concentration < 0).all()):
            return constraints.greater_than_eq(self.loc)
        return constraints.interval(self.loc, self.loc - self.scale / self.concentration)

    def _parts(self) -> tuple[Any, Any]:
        zero = self.concentration == 0
        return zero, ops.where(zero, ops.ones_like(self.concentration), self.concentration)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        u = ops.rand(tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype, device=self.loc.device)
        return self.icdf(u)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        z, (zero, k) = (value - self.loc) / self.scale, self._parts()
        return ops.where(zero, -z, -(1 + 1 / k) * ops.log1p(k * z)) - self.scale.log()

    def cdf(self, value: Any) -> Any:
        z, (zero, k) = (value - self.loc) / self.scale, self._parts()
        return 1 - ops.where(zero, ops.exp(-z), ops.exp(-ops.log1p(k * z) / k))

    def icdf(self, value: Any) -> Any:
        rest, (zero, k) = ops.log1p(-value), self._parts()
        return self.loc + self.scale * ops.where(zero, -rest, ops.expm1(-k * rest) / k)

    @property
    def mean(self) -> Any:
        k = self.concentration
        return ops.where(k < 1, self.loc + self.scale / (1 - k), ops.full_like(k, math.inf))

    @property
    def variance(self) -> Any:
        k = self.concentration
        return ops.where(k < 0.5, self.scale**2 / ((1 - k) ** 2 * (1 - 2 * k)), ops.full_like(k, math.inf))

    @property
    def mode(self) -> Any:
        return self.loc

    def entropy(self) -> Any:
        return self.scale.log() + self.concentration + 1


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors with covariance `cov_factor @ cov_factor.T + diag(cov_diag)`.

    >>> import undertow as ut
    >>> ut.distributions.LowRankMultivariateNormal(ut.zeros(2), ut.ones(2, 1), ut.ones(2)).covariance_matrix
    tensor([[2., 1.],
            [1., 2.]])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: Any = None) -> None:
        if loc.dim() < 1 or cov_factor.dim() < 2:
            raise ValueError(
                "loc must be at least one-dimensional, and cov_factor at least two-dimensional, with optional leading "
                "batch dimensions"
            )
        size, rank = cov_factor.shape[-2:]
        if loc.shape[-1] != size or cov_diag.shape[-1] != size:
            raise ValueError(f"loc and cov_diag must be vectors of the {size} rows of cov_factor")
        batch = ops.broadcast_tensors(loc[..., 0], cov_factor[..., 0, 0], cov_diag[..., 0])[0].shape
        self.loc, self.cov_diag = loc.expand((*batch, size)), cov_diag.expand((*batch, size))
        self.cov_factor = cov_factor.expand((*batch, size, rank))
        super().__init__(batch, (size,), validate_args)

    @property
    def _capacitance_tril(self) -> Any:
        """The Cholesky factor of I + W^T D^-1 W."""
        scaled = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        identity = ops.eye(self.cov_factor.shape[-1], dtype=scaled.dtype, device=scaled.device)
        return ops.linalg_cholesky(scaled @ self.cov_factor + identity)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        return self.cov_factor.pow(2).sum(-1) + self.cov_diag

    @lazy_property
    def covariance_matrix(self) -> Any:
        return self.cov_factor @ self.cov_factor.mT + ops.diag_embed(self.cov_diag)

    @lazy_property
    def scale_tril(self) -> Any:
        return ops.linalg_cholesky(self.covariance_matrix)

    @lazy_property
    def precision_matrix(self) -> Any:
        return ops.linalg_inv(self.covariance_matrix)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        factors = noise(self.loc, (*shape[:-1], self.cov_factor.shape[-1]))
        return (
            self.loc
            + (self.cov_factor @ factors.unsqueeze(-1)).squeeze(-1)
            + self.cov_diag.sqrt() * noise(self.loc, shape)
        )

    def _log_det(self) -> Any:
        diagonal = ops.diagonal(self._capacitance_tril, 0, -2, -1)
        return 2 * diagonal.log().sum(-1) + self.cov_diag.log().sum(-1)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        difference = value - self.loc
        scaled = (self.cov_factor.mT / self.cov_diag.unsqueeze(-2)) @ difference.unsqueeze(-1)
        solved = ops.linalg_solve_triangular(self._capacitance_tril, scaled, upper=False).squeeze(-1)
        distance = (difference.pow(2) / self.cov_diag).sum(-1) - solved.pow(2).sum(-1)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self) -> Any:
        return 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())


class VonMises(Distribution):
    """The normal distribution of angles.

    >>> import undertow as ut
    >>> ut.distributions.VonMises(ut.tensor([0.0]), ut.tensor([1.0])).mean
    tensor([0.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "concentration": constraints.positive}
    support: Any = constraints.real
    has_rsample = False

    def __init__(self, loc: Any, concentration: Any, validate_args: Any = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        k = self.concentration
        return k * ops.cos(value - self.loc) - math.log(2 * math.pi) - (ops.special_i0e(k).log() + k)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """By rejection, from a wrapped Cauchy distribution (Best and Fisher)."""
        shape = tuple(self._extended_shape(sample_shape))
        with no_grad():
            loc, k = self.loc.double().expand(shape), self.concentration.double().expand(shape)
            tau = 1 + (1 + 4 * k**2).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            r = ops.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))
            found = self._angles(k, r)
            return ((found + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    @staticmethod
    def _angles(k: Any, r: Any) -> Any:
        found, done = ops.zeros_like(k), ops.zeros(k.shape, dtype=bool)
        while not bool(done.all()):
            u = ops.rand((3, *k.shape), dtype=k.dtype)
            z = ops.cos(math.pi * u[0])
            f = (1 + r * z) / (r + z)
            c = k * (r - f)
            accepted = ((c * (2 - c) - u[1]) > 0) | ((c / u[1]).log() + 1 - c >= 0)
            found = ops.where(accepted & ~done, (u[2] - 0.5).sign() * f.clamp(-1, 1).acos(), found)
            done = done | accepted
        return found

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """1 - |mean of exp(i angle)|."""
        return 1 - ops.special_i1e(self.concentration) / ops.special_i0e(self.concentration)


class LKJCholesky(Distribution):
    """Cholesky factors of matrices of correlations, the nearer to the identity the higher the concentration.

    >>> import undertow as ut
    >>> ut.distributions.LKJCholesky(3, 0.5).sample().shape
    undertow.Size([3, 3])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"concentration": constraints.positive}
    support: Any = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: Any = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        marginal = self.concentration + 0.5 * (dim - 2)
        offset = ops.arange(dim - 1, dtype=self.concentration.dtype)
        offset = ops.cat([ops.zeros(1, dtype=offset.dtype), offset])
        self._beta = Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return type(self)(self.dim, self.concentration.expand(tuple(batch_shape)))

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """The rows: directions, scaled by the roots of Beta numbers (the "onion")."""
        with no_grad():
            y = self._beta.sample(sample_shape).unsqueeze(-1)
            u = ops.tril(noise(self.concentration, self._extended_shape(sample_shape)), -1)
            length = ops.linalg_vector_norm(u, dim=-1, keepdim=True)
            directions = ops.where(length > 0, u / ops.where(length > 0, length, ops.ones_like(length)), u)
            w = y.sqrt() * directions
            tiny = float(w._xp.finfo(w.dtype.dtype).tiny)
            return w + ops.diag_embed(ops.clamp(1 - (w**2).sum(-1), min=tiny).sqrt())

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        diagonal = ops.diagonal(value, 0, -2, -1)[..., 1:]
        order = ops.arange(2, self.dim + 1, dtype=self.concentration.dtype)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        unnormalized = (order * diagonal.log()).sum(-1)
        last = self.dim - 1
        alpha = self.concentration + 0.5 * last
        denominator = alpha.lgamma() * last
        numerator = ops.mvlgamma(alpha - 0.5, last)
        return unnormalized - (0.5 * last * math.log(math.pi) + numerator - denominator)


class Wishart(Distribution):
    """Sums of df products of normal vectors with themselves.

    >>> import undertow as ut
    >>> ut.distributions.Wishart(ut.tensor(3.0), ut.eye(2)).mean
    tensor([[3., 0.],
            [0., 3.]])
    """

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
        "df": constraints.greater_than(0),
    }
    support: Any = constraints.positive_definite

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: Any = None,
    ) -> None:
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        chosen = {name: matrix for name, matrix in given.items() if matrix is not None}
        if len(chosen) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = chosen.items()
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        df = ops.as_tensor(df, dtype=matrix.dtype)
        batch = ops.broadcast_tensors(df, matrix[..., 0, 0])[0].shape
        self.df = df.expand(tuple(batch))
        setattr(self, name, matrix.expand((*batch, *matrix.shape[-2:])))
        if bool((self.df <= matrix.shape[-1] - 1).any()):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {matrix.shape[-1] - 1}.")
        if name == "covariance_matrix":
            self._tril = ops.linalg_cholesky(self.covariance_matrix)
        elif name == "precision_matrix":
            self._tril = ops.linalg_cholesky(ops.linalg_inv(self.precision_matrix))
        else:
            self._tril = self.scale_tril
        super().__init__(batch, matrix.shape[-2:], validate_args)

    @lazy_property
    def scale_tril(self) -> Any:
        return self._tril

    @lazy_property
    def covariance_matrix(self) -> Any:
        return self._tril @ self._tril.mT

    @lazy_property
    def precision_matrix(self) -> Any:
        return ops.linalg_inv(self.covariance_matrix)

    @property
    def mean(self) -> Any:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self.df - self._event_shape[0] - 1
        factor = ops.where(factor > 0, factor, ops.full_like(factor, math.nan))
        return factor[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Any:
        v = self.covariance_matrix
        diagonal = ops.diagonal(v, 0, -2, -1)
        return self.df[..., None, None] * (v**2 + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """By Bartlett's decomposition."""
        size, shape = self._event_shape[0], self._extended_shape(sample_shape)
        degrees = self.df.unsqueeze(-1) - ops.arange(size, dtype=self.df.dtype)
        diagonal = Chi2(degrees).rsample(sample_shape).sqrt()
        triangle = self._tril @ (ops.tril(noise(self._tril, shape), -1) + ops.diag_embed(diagonal))
        return triangle @ triangle.mT

    def _half_log_det(self) -> Any:
        return ops.diagonal(self._tril, 0, -2, -1).log().sum(-1)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        nu, p = self.df, self._event_shape[0]
        trace = ops.diagonal(ops.cholesky_solve(value, self._tril), 0, -2, -1).sum(-1)
        return (
            -nu * (p * math.log(2.0) / 2 + self._half_log_det())
            - ops.mvlgamma(nu / 2, p)
            + (nu - p - 1) / 2 * ops.linalg_slogdet(value)[1]
            - trace / 2
        )

    def entropy(self) -> Any:
        nu, p = self.df, self._event_shape[0]
        halves = (nu.unsqueeze(-1) - ops.arange(p, dtype=nu.dtype)) / 2
        return (
            (p + 1) * (p * math.log(2.0) / 2 + self._half_log_det())
            + ops.mvlgamma(nu / 2, p)
            - (nu - p - 1) / 2 * ops.digamma(halves).sum(-1)
            + nu * p / 2
        )
