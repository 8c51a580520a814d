"""Transforms of vectors and matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.transform import Transform
from undertow.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


class SoftmaxTransform(Transform):
    """Numbers to a simplex, up to a constant factor: the inverse gives logarithms.

    >>> import undertow as ut
    >>> ut.distributions.transforms.SoftmaxTransform()(ut.zeros(2))
    tensor([0.5000, 0.5000])
    """

    bijective = False
    domain, codomain = constraints.real_vector, constraints.simplex
    event_dim = 1

    def _call(self, x: Array) -> Tensor:
        powers = (x - x.max(-1, True)[0]).exp()
        return powers / powers.sum(-1, True)

    def _inverse(self, y: Array) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """Numbers to a simplex with one more: each says how much of what is left of a stick is broken off.

    >>> import undertow as ut
    >>> ut.distributions.transforms.StickBreakingTransform()(ut.zeros(2))
    tensor([0.3333, 0.3333, 0.3333])
    """

    domain, codomain = constraints.real_vector, constraints.simplex
    event_dim = 1

    def _offset(self, x: Array) -> Tensor:
        count = x.shape[-1]
        return (count + 1 - ops.ones(count, dtype=x.dtype, device=x.device).cumsum(-1)).log()

    def _call(self, x: Array) -> Tensor:
        z = ops.sigmoid(x - self._offset(x))
        rest = (1 - z).cumprod(-1)
        one = ops.ones((*z.shape[:-1], 1), dtype=z.dtype, device=z.device)
        return ops.cat([z, one], -1) * ops.cat([one, rest], -1)

    def _inverse(self, y: Array) -> Tensor:
        cropped = y[..., :-1]
        rest = 1 - cropped.cumsum(-1)
        rest = ops.clamp(rest, min=float(y._xp.finfo(y.dtype.dtype).tiny))
        return cropped.log() - rest.log() + self._offset(cropped)

    def log_abs_det_jacobian(self, x: Array, y: Array) -> Tensor:
        shifted = x - self._offset(x)
        return (-shifted - ops.softplus(-shifted) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        return (*shape[:-1], shape[-1] - 1)


class LowerCholeskyTransform(Transform):
    """Matrices to lower triangles with a positive diagonal.

    >>> import undertow as ut
    >>> ut.distributions.transforms.LowerCholeskyTransform()(ut.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky
    event_dim = 2

    def _call(self, x: Array) -> Tensor:
        return ops.tril(x, -1) + ops.diag_embed(ops.diagonal(x, 0, -2, -1).exp())

    def _inverse(self, y: Array) -> Tensor:
        return ops.tril(y, -1) + ops.diag_embed(ops.diagonal(y, 0, -2, -1).log())


class PositiveDefiniteTransform(Transform):
    """Matrices to positive definite ones, by their Cholesky factors.

    >>> import undertow as ut
    >>> ut.distributions.transforms.PositiveDefiniteTransform()(ut.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite
    event_dim = 2

    def _call(self, x: Array) -> Tensor:
        triangle = LowerCholeskyTransform()(x)
        return triangle @ triangle.mT

    def _inverse(self, y: Array) -> Tensor:
        return LowerCholeskyTransform()._inverse(ops.linalg_cholesky(y))


class CorrCholeskyTransform(Transform):
    """Numbers to the Cholesky factor of a matrix of correlations.

    >>> import undertow as ut
    >>> ut.distributions.transforms.CorrCholeskyTransform()(ut.zeros(3))
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """

    domain, codomain = constraints.real_vector, constraints.corr_cholesky
    event_dim = 1

    def _call(self, x: Array) -> Tensor:
        x = ops.tanh(x)
        eps = float(x._xp.finfo(x.dtype.dtype).eps)
        r = vec_to_tril_matrix(ops.clamp(x, -1 + eps, 1 - eps), -1)
        rest = (1 - r * r).sqrt().cumprod(-1)
        r = r + ops.eye(r.shape[-1], dtype=r.dtype, device=r.device)
        one = ops.ones((*rest.shape[:-1], 1), dtype=r.dtype, device=r.device)
        return r * ops.cat([one, rest[..., :-1]], -1)

    def _inverse(self, y: Array) -> Tensor:
        squares = 1 - (y * y).cumsum(-1)
        one = ops.ones((*squares.shape[:-1], 1), dtype=y.dtype, device=y.device)
        shifted = ops.cat([one, squares[..., :-1]], -1)
        vector, rest = tril_matrix_to_vec(y, -1), tril_matrix_to_vec(shifted, -1)
        t = vector / rest.sqrt()
        return (t.log1p() - (-t).log1p()) / 2

    def log_abs_det_jacobian(self, x: Array, y: Array) -> Tensor:
        squares = 1 - (y * y).cumsum(-1)
        inner = tril_matrix_to_vec(squares, -2)
        stretch = 0.5 * inner.log().sum(-1)
        return stretch - 2 * (x + ops.softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        size = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Any) -> Any:
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


class ReshapeTransform(Transform):
    """The last dimensions, in another shape.

    in_shape, out_shape  the shape of what goes in and of what comes out; they have as many elements

    >>> import undertow as ut
    >>> ut.distributions.transforms.ReshapeTransform((4,), (2, 2))(ut.arange(4.0))
    tensor([[0., 1.],
            [2., 3.]])
    """

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError("in_shape, out_shape have different numbers of elements")
        self.event_dim = len(self.in_shape)
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Array) -> Tensor:
        return x.reshape(tuple(x.shape[: x.dim() - len(self.in_shape)]) + self.out_shape)

    def _inverse(self, y: Array) -> Tensor:
        return y.reshape(tuple(y.shape[: y.dim() - len(self.out_shape)]) + self.in_shape)

    def log_abs_det_jacobian(self, x: Array, y: Array) -> Tensor:
        batch = tuple(x.shape[: x.dim() - len(self.in_shape)])
        return ops.zeros(batch, dtype=x.dtype, device=x.device)

    def forward_shape(self, shape: Any) -> Any:
        return (*shape[: len(shape) - len(self.in_shape)], *self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return (*shape[: len(shape) - len(self.out_shape)], *self.in_shape)
