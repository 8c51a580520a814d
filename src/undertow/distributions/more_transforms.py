"""Transforms beyond the elementary ones: of vectors and matrices, of parts, and those that cannot be inverted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.elementary_transforms import ComposeTransform, Transform, dims_after, dims_before, widened
from undertow.distributions.joint import sum_last
from undertow.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix

identity_transform = ComposeTransform([])


class AbsTransform(Transform):
    """|x|, whose inverse is the positive one.

    >>> import undertow as ut
    >>> ut.distributions.transforms.AbsTransform()(ut.tensor([-2.0]))
    tensor([2.])
    """

    bijective = False
    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


class PowerTransform(Transform):
    """x ** exponent, of positive numbers.

    >>> import undertow as ut
    >>> ut.distributions.transforms.PowerTransform(ut.tensor(2.0))(ut.tensor([3.0]))
    tensor([9.])
    """

    domain = codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = ops.as_tensor(exponent)
        self.sign = ops.sign(self.exponent)

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return (self.exponent * y / x).abs().log()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool((self.exponent == other.exponent).all())

    __hash__ = Transform.__hash__


class SoftplusTransform(Transform):
    """log(1 + exp(x)).

    >>> import undertow as ut
    >>> ut.distributions.transforms.SoftplusTransform().inv(ut.ones(1))
    tensor([0.5413])
    """

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return ops.softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -ops.softplus(-x)


class SoftmaxTransform(Transform):
    """Numbers to a simplex, up to a constant factor: the inverse gives logarithms.

    >>> import undertow as ut
    >>> ut.distributions.transforms.SoftmaxTransform()(ut.zeros(2))
    tensor([0.5000, 0.5000])
    """

    bijective = False
    domain, codomain = constraints.real_vector, constraints.simplex
    event_dim = 1

    def _call(self, x: Any) -> Any:
        powers = (x - x.max(-1, True)[0]).exp()
        return powers / powers.sum(-1, True)

    def _inverse(self, y: Any) -> Any:
        return y.log()


class StickBreakingTransform(Transform):
    """Numbers to a simplex with one more: each says how much of what is left of a stick is broken off.

    >>> import undertow as ut
    >>> ut.distributions.transforms.StickBreakingTransform()(ut.zeros(2))
    tensor([0.3333, 0.3333, 0.3333])
    """

    domain, codomain = constraints.real_vector, constraints.simplex
    event_dim = 1

    def _offset(self, x: Any) -> Any:
        count = x.shape[-1]
        return (count + 1 - ops.ones(count, dtype=x.dtype, device=x.device).cumsum(-1)).log()

    def _call(self, x: Any) -> Any:
        z = ops.sigmoid(x - self._offset(x))
        rest = (1 - z).cumprod(-1)
        one = ops.ones((*z.shape[:-1], 1), dtype=z.dtype, device=z.device)
        return ops.cat([z, one], -1) * ops.cat([one, rest], -1)

    def _inverse(self, y: Any) -> Any:
        cropped = y[..., :-1]
        rest = 1 - cropped.cumsum(-1)
        rest = ops.clamp(rest, min=float(y._xp.finfo(y.dtype.dtype).tiny))
        return cropped.log() - rest.log() + self._offset(cropped)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
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

    def _call(self, x: Any) -> Any:
        return ops.tril(x, -1) + ops.diag_embed(ops.diagonal(x, 0, -2, -1).exp())

    def _inverse(self, y: Any) -> Any:
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

    def _call(self, x: Any) -> Any:
        triangle = LowerCholeskyTransform()(x)
        return triangle @ triangle.mT

    def _inverse(self, y: Any) -> Any:
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

    def _call(self, x: Any) -> Any:
        x = ops.tanh(x)
        eps = float(x._xp.finfo(x.dtype.dtype).eps)
        r = vec_to_tril_matrix(ops.clamp(x, -1 + eps, 1 - eps), -1)
        rest = (1 - r * r).sqrt().cumprod(-1)
        r = r + ops.eye(r.shape[-1], dtype=r.dtype, device=r.device)
        one = ops.ones((*rest.shape[:-1], 1), dtype=r.dtype, device=r.device)
        return r * ops.cat([one, rest[..., :-1]], -1)

    def _inverse(self, y: Any) -> Any:
        squares = 1 - (y * y).cumsum(-1)
        one = ops.ones((*squares.shape[:-1], 1), dtype=y.dtype, device=y.device)
        shifted = ops.cat([one, squares[..., :-1]], -1)
        vector, rest = tril_matrix_to_vec(y, -1), tril_matrix_to_vec(shifted, -1)
        t = vector / rest.sqrt()
        return (t.log1p() - (-t).log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
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


class CumulativeDistributionTransform(Transform):
    """The cdf of a distribution.

    >>> import undertow as ut
    >>> ut.distributions.transforms.CumulativeDistributionTransform(ut.distributions.Normal(0.0, 1.0))(ut.zeros(1))
    tensor([0.5000])
    """

    codomain = constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution
        self.domain = distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)


class IndependentTransform(Transform):
    """Another, whose last dimensions are one value.

    >>> import undertow as ut
    >>> transforms = ut.distributions.transforms
    >>> transforms.IndependentTransform(transforms.ExpTransform(), 1).log_abs_det_jacobian(ut.ones(3), ut.ones(3))
    tensor(3.)
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.bijective, self.sign = base_transform.bijective, getattr(base_transform, "sign", 1)
        self.event_dim = dims_before(base_transform) + reinterpreted_batch_ndims
        self.domain = widened(base_transform.domain, self.event_dim)
        self.codomain = widened(base_transform.codomain, dims_after(base_transform) + reinterpreted_batch_ndims)

    def _call(self, x: Any) -> Any:
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        return self.base_transform._inv_call(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return sum_last(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """The last dimensions, in another shape.

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

    def _call(self, x: Any) -> Any:
        return x.reshape(tuple(x.shape[: x.dim() - len(self.in_shape)]) + self.out_shape)

    def _inverse(self, y: Any) -> Any:
        return y.reshape(tuple(y.shape[: y.dim() - len(self.out_shape)]) + self.in_shape)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        batch = tuple(x.shape[: x.dim() - len(self.in_shape)])
        return ops.zeros(batch, dtype=x.dtype, device=x.device)

    def forward_shape(self, shape: Any) -> Any:
        return (*shape[: len(shape) - len(self.in_shape)], *self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return (*shape[: len(shape) - len(self.out_shape)], *self.in_shape)


class CatTransform(Transform):
    """Several, each for its own part along one dimension.

    >>> import undertow as ut
    >>> transforms = ut.distributions.transforms
    >>> transforms.CatTransform([transforms.ExpTransform(), transforms.TanhTransform()])(ut.zeros(2))
    tensor([1., 0.])
    """

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        self.bijective = all([t.bijective for t in self.transforms])
        self.event_dim = max([dims_before(t) for t in self.transforms])
        self.domain = constraints.cat([t.domain for t in self.transforms], dim, self.lengths)
        self.codomain = constraints.cat([t.codomain for t in self.transforms], dim, self.lengths)

    def _parts(self, x: Any) -> list[Any]:
        starts = [sum(self.lengths[:n]) for n in range(len(self.lengths))]
        return [x.narrow(self.dim, start, length) for start, length in zip(starts, self.lengths, strict=True)]

    def _call(self, x: Any) -> Any:
        return ops.cat([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)], self.dim)

    def _inverse(self, y: Any) -> Any:
        return ops.cat([t._inv_call(part) for t, part in zip(self.transforms, self._parts(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        rows = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        found = [sum_last(t.log_abs_det_jacobian(a, b), self.event_dim - dims_before(t)) for t, a, b in rows]
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        return ops.cat(found, dim) if dim < 0 else sum(found)


class StackTransform(Transform):
    """Several, each for its own place along one dimension.

    >>> import undertow as ut
    >>> transforms = ut.distributions.transforms
    >>> transforms.StackTransform([transforms.ExpTransform(), transforms.TanhTransform()])(ut.zeros(2))
    tensor([1., 0.])
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.bijective = all([t.bijective for t in self.transforms])
        self.domain = constraints.stack([t.domain for t in self.transforms], dim)
        self.codomain = constraints.stack([t.codomain for t in self.transforms], dim)

    def _parts(self, x: Any) -> list[Any]:
        return [x.select(self.dim, n) for n in range(x.size(self.dim))]

    def _call(self, x: Any) -> Any:
        return ops.stack([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)], self.dim)

    def _inverse(self, y: Any) -> Any:
        return ops.stack([t._inv_call(part) for t, part in zip(self.transforms, self._parts(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        rows = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return ops.stack([t.log_abs_det_jacobian(a, b) for t, a, b in rows], self.dim)
