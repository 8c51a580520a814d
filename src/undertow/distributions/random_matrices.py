"""Distributions of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.continuous import noise
from undertow.distributions.distribution import Distribution, broadcast_all
from undertow.distributions.gammas import Beta, Chi2
from undertow.distributions.utils import lazy_property
from undertow.modes import no_grad

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


class LKJCholesky(Distribution):
    """Cholesky factors of matrices of correlations, the nearer to the identity the higher the concentration.

    >>> import undertow as ut
    >>> ut.distributions.LKJCholesky(3, 0.5).sample().shape
    undertow.Size([3, 3])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"concentration": constraints.positive}
    support: Any = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Array = 1.0, validate_args: Any = None) -> None:
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

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The rows: directions, scaled by the roots of Beta numbers (the "onion").

        sample_shape  how many: a shape
        """
        with no_grad():
            y = self._beta.sample(sample_shape).unsqueeze(-1)
            u = ops.tril(noise(self.concentration, self._extended_shape(sample_shape)), -1)
            length = ops.linalg_vector_norm(u, dim=-1, keepdim=True)
            directions = ops.where(length > 0, u / ops.where(length > 0, length, ops.ones_like(length)), u)
            w = y.sqrt() * directions
            tiny = float(w._xp.finfo(w.dtype.dtype).tiny)
            return w + ops.diag_embed(ops.clamp(1 - (w**2).sum(-1), min=tiny).sqrt())

    def log_prob(self, value: Array) -> Tensor:
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

    df  the degrees of freedom, greater than n - 1
    covariance_matrix, precision_matrix, scale_tril  of the normal vectors, (n, n), one of the three: the covariance,
        its inverse, or its Cholesky factor

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
        df: Array,
        covariance_matrix: Array | None = None,
        precision_matrix: Array | None = None,
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
    def covariance_matrix(self) -> Tensor:
        return self._tril @ self._tril.mT

    @lazy_property
    def precision_matrix(self) -> Any:
        return ops.linalg_inv(self.covariance_matrix)

    @property
    def mean(self) -> Tensor:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self._event_shape[0] - 1
        factor = ops.where(factor > 0, factor, ops.full_like(factor, math.nan))
        return factor[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = ops.diagonal(v, 0, -2, -1)
        return self.df[..., None, None] * (v**2 + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """By Bartlett's decomposition.

        sample_shape  how many: a shape
        """
        size, shape = self._event_shape[0], self._extended_shape(sample_shape)
        degrees = self.df.unsqueeze(-1) - ops.arange(size, dtype=self.df.dtype)
        diagonal = Chi2(degrees).rsample(sample_shape).sqrt()
        triangle = self._tril @ (ops.tril(noise(self._tril, shape), -1) + ops.diag_embed(diagonal))
        return triangle @ triangle.mT

    def _half_log_det(self) -> Tensor:
        return ops.diagonal(self._tril, 0, -2, -1).log().sum(-1)

    def log_prob(self, value: Array) -> Tensor:
        self._validate_sample(value)
        nu, p = self.df, self._event_shape[0]
        trace = ops.diagonal(ops.cholesky_solve(value, self._tril), 0, -2, -1).sum(-1)
        return (
            -nu * (p * math.log(2.0) / 2 + self._half_log_det())
            - ops.mvlgamma(nu / 2, p)
            + (nu - p - 1) / 2 * ops.linalg_slogdet(value)[1]
            - trace / 2
        )

    def entropy(self) -> Tensor:
        nu, p = self.df, self._event_shape[0]
        halves = (nu.unsqueeze(-1) - ops.arange(p, dtype=nu.dtype)) / 2
        return (
            (p + 1) * (p * math.log(2.0) / 2 + self._half_log_det())
            + ops.mvlgamma(nu / 2, p)
            - (nu - p - 1) / 2 * ops.digamma(halves).sum(-1)
            + nu * p / 2
        )
