"""Normal distributions of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.continuous import noise
from undertow.distributions.distribution import Distribution
from undertow.distributions.utils import lazy_property
from undertow.modes import no_grad
from undertow.tensor import Size

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


def precision_to_scale_tril(matrix: Tensor) -> Tensor:
    """The Cholesky factor of the inverse of a matrix."""
    # the inverse of the reversed factor of the reversed matrix, which is triangular the right way round
    turned = ops.linalg_cholesky(ops.flip(matrix, (-2, -1)))
    inverse = ops.transpose(ops.flip(turned, (-2, -1)), -2, -1)
    one = ops.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return ops.linalg_solve_triangular(inverse, one, upper=False)


_precision_to_scale_tril = precision_to_scale_tril  # PyTorch's name


class MultivariateNormal(Distribution):
    """The normal distribution of vectors, by its mean and one of three matrices.

    covariance_matrix, precision_matrix  the covariance, or its inverse
    scale_tril                           its Cholesky factor, a lower triangle

    >>> import undertow as ut
    >>> ut.distributions.MultivariateNormal(ut.zeros(2), ut.eye(2)).log_prob(ut.zeros(2))
    tensor(-1.8379)
    """

    support: Any = constraints.real_vector
    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }

    def __init__(
        self,
        loc: Array,
        covariance_matrix: Array | None = None,
        precision_matrix: Array | None = None,
        scale_tril: Array | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        chosen = {name: matrix for name, matrix in given.items() if matrix is not None}
        if len(chosen) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = chosen.items()
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch = ops.broadcast_tensors(loc[..., 0], matrix[..., 0, 0])[0].shape
        size = loc.shape[-1]
        self.loc = ops.broadcast_to(loc, (*batch, size))
        self.__dict__[name] = ops.broadcast_to(matrix, (*batch, size, size))
        super().__init__(batch, (size,), validate_args)
        self._unbroadcasted_scale_tril = self._factor(name, matrix)

    def _factor(self, name: str, matrix: Tensor) -> Tensor:
        if name == "scale_tril":
            return matrix
        if name == "covariance_matrix":
            return ops.linalg_cholesky(matrix)
        return precision_to_scale_tril(matrix)

    def _for_all(self, matrix: Tensor) -> Tensor:
        return ops.expand(matrix, (*self._batch_shape, *self._event_shape, *self._event_shape))

    @lazy_property
    def scale_tril(self) -> Tensor:
        return self._for_all(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        factor = self._unbroadcasted_scale_tril
        return self._for_all(factor @ ops.transpose(factor, -2, -1))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        return self._for_all(ops.cholesky_inverse(self._unbroadcasted_scale_tril))

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same distribution for a larger batch.

        batch_shape  the new one, to which the present one can be broadcast
        _instance    a new object of a subclass, to be completed
        """
        made = self._get_checked_instance(MultivariateNormal, _instance)
        made.loc = ops.expand(self.loc, (*batch_shape, *self._event_shape))
        made._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        made._batch_shape, made._event_shape = Size(batch_shape), self._event_shape
        for name in ("covariance_matrix", "scale_tril", "precision_matrix"):
            if name in self.__dict__:
                made.__dict__[name] = made._for_all(self.__dict__[name])
        made._validate_args = self._validate_args
        return made

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return ops.expand((self._unbroadcasted_scale_tril**2).sum(-1), (*self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = noise(self.loc, self._extended_shape(sample_shape))
        return self.loc + ops.squeeze(self._unbroadcasted_scale_tril @ ops.unsqueeze(drawn, -1), -1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return self.rsample(sample_shape)

    def half_log_det(self) -> Tensor:
        return ops.log(ops.diagonal(self._unbroadcasted_scale_tril, 0, -2, -1)).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        away = ops.unsqueeze(value - self.loc, -1)
        white = ops.squeeze(ops.linalg_solve_triangular(self._unbroadcasted_scale_tril, away, upper=False), -1)
        size = self._event_shape[0]
        return -0.5 * (size * math.log(2 * math.pi) + (white**2).sum(-1)) - self.half_log_det()

    def entropy(self) -> Tensor:
        entropy = 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi)) + self.half_log_det()
        return ops.expand(entropy, tuple(self._batch_shape))


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

    def __init__(self, loc: Array, cov_factor: Array, cov_diag: Array, validate_args: Any = None) -> None:
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
    def _capacitance_tril(self) -> Tensor:
        """The Cholesky factor of I + W^T D^-1 W."""
        scaled = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        identity = ops.eye(self.cov_factor.shape[-1], dtype=scaled.dtype, device=scaled.device)
        return ops.linalg_cholesky(scaled @ self.cov_factor + identity)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
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

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        factors = noise(self.loc, (*shape[:-1], self.cov_factor.shape[-1]))
        return (
            self.loc
            + (self.cov_factor @ factors.unsqueeze(-1)).squeeze(-1)
            + self.cov_diag.sqrt() * noise(self.loc, shape)
        )

    def _log_det(self) -> Tensor:
        diagonal = ops.diagonal(self._capacitance_tril, 0, -2, -1)
        return 2 * diagonal.log().sum(-1) + self.cov_diag.log().sum(-1)

    def log_prob(self, value: Array) -> Tensor:
        self._validate_sample(value)
        difference = value - self.loc
        scaled = (self.cov_factor.mT / self.cov_diag.unsqueeze(-2)) @ difference.unsqueeze(-1)
        solved = ops.linalg_solve_triangular(self._capacitance_tril, scaled, upper=False).squeeze(-1)
        distance = (difference.pow(2) / self.cov_diag).sum(-1) - solved.pow(2).sum(-1)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self) -> Tensor:
        return 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())
