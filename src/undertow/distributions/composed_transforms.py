"""Transforms made of others: one after the other, side by side, over several dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.distributions import constraints
from undertow.distributions.constraints import Constraint
from undertow.distributions.independent import sum_last
from undertow.distributions.transform import Transform, dims_after, dims_before
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Array


def widened(constraint: Constraint, dims: int) -> Constraint:
    """A condition on at least so many dimensions."""
    extra = dims - int(constraint.event_dim)
    return constraints.independent(constraint, extra) if extra > 0 else constraint


class ComposeTransform(Transform):
    """Several, one after the other.

    parts  the transforms, the first of them first

    >>> import undertow as ut
    >>> transforms = ut.distributions.transforms
    >>> transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(1.0, 2.0)])(ut.zeros(1))
    tensor([3.])
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        self.domain = self.parts[0].domain if self.parts else constraints.real
        self.codomain = self.parts[-1].codomain if self.parts else constraints.real
        self.bijective = all([part.bijective for part in self.parts])
        self.sign = 1
        for part in self.parts:
            self.sign = self.sign * getattr(part, "sign", 1)
        needed = after = dims_after(self.parts[-1]) if self.parts else 0
        for part in reversed(self.parts):
            needed = max(needed + dims_before(part) - dims_after(part), dims_before(part))
        self.event_dim = needed
        after = needed
        for part in self.parts:
            after += dims_after(part) - dims_before(part)
        self.domain = widened(self.domain, needed)
        self.codomain = widened(self.codomain, after)

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.invert(y)
        return y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        dims = self.event_dim
        total: Any = ops.zeros_like(sum_last(x, dims))
        for part in self.parts:
            following = part(x)
            total = total + sum_last(part.log_abs_det_jacobian(x, following), dims - dims_before(part))
            dims += dims_after(part) - dims_before(part)
            x = following
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = Transform.__hash__


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """Another, whose last dimensions are one value.

    base_transform             the other one
    reinterpreted_batch_ndims  how many of the last dimensions

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

    def _call(self, x: Array) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Array) -> Tensor:
        return self.base_transform._inv_call(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return sum_last(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class CatTransform(Transform):
    """Several, each for its own part along one dimension.

    tseq     the transforms
    lengths  the sizes of their parts; None: 1 each

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

    def _parts(self, x: Array) -> list[Any]:
        starts = [sum(self.lengths[:n]) for n in range(len(self.lengths))]
        return [x.narrow(self.dim, start, length) for start, length in zip(starts, self.lengths, strict=True)]

    def _call(self, x: Array) -> Tensor:
        return ops.cat([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)], self.dim)

    def _inverse(self, y: Array) -> Tensor:
        return ops.cat([t._inv_call(part) for t, part in zip(self.transforms, self._parts(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        rows = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        found = [sum_last(t.log_abs_det_jacobian(a, b), self.event_dim - dims_before(t)) for t, a, b in rows]
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        return ops.cat(found, dim) if dim < 0 else sum(found)


class StackTransform(Transform):
    """Several, each for its own place along one dimension.

    tseq  the transforms, one for each place

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

    def _parts(self, x: Array) -> list[Any]:
        return [x.select(self.dim, n) for n in range(x.size(self.dim))]

    def _call(self, x: Array) -> Tensor:
        return ops.stack([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)], self.dim)

    def _inverse(self, y: Array) -> Tensor:
        return ops.stack([t._inv_call(part) for t, part in zip(self.transforms, self._parts(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        rows = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return ops.stack([t.log_abs_det_jacobian(a, b) for t, a, b in rows], self.dim)
