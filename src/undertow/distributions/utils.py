"""What distributions, and those that libraries write, are made with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend.interface import DType
from undertow.distributions.distribution import broadcast_all as broadcast_all
from undertow.distributions.distribution import clamp_probs as clamp_probs
from undertow.modes import enable_grad

if TYPE_CHECKING:
    from undertow.backend.interface import Array, Device
    from undertow.tensor import Tensor

euler_constant = 0.57721566490153286060


class lazy_property:
    """A property that is computed when it is first asked for, and an attribute from then on."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__, self.__name__ = wrapped.__doc__, wrapped.__name__

    def __get__(self, instance: Any, obj_type: Any = None) -> Any:
        if instance is None:
            return _lazy_property_and_property(self.wrapped)
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _lazy_property_and_property(lazy_property, property):
    """What a class shows of a lazy property: something that tools take for a property."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        property.__init__(self, wrapped)


def logits_to_probs(logits: Array, is_binary: bool = False) -> Tensor:
    """Probabilities from the logarithms of odds (binary), or from logarithms up to a constant."""
    return ops.sigmoid(logits) if is_binary else ops.softmax(logits, -1)


def probs_to_logits(probs: Array, is_binary: bool = False) -> Tensor:
    """The inverse of `logits_to_probs`."""
    clamped = clamp_probs(probs)
    return ops.log(clamped) - ops.log1p(-clamped) if is_binary else ops.log(clamped)


def vec_to_tril_matrix(vec: Array, diag: int = 0) -> Tensor:
    """A lower triangle, filled row by row."""
    length = vec.shape[-1]
    size = round((-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * length + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2)
    rows, columns = ops.tril_indices(size, size, diag)
    if len(rows) != length:
        raise ValueError(
            f"The size of last dimension is {length} which cannot be expressed as the lower triangular part of a "
            "square matrix."
        )
    matrix = ops.zeros((*vec.shape[:-1], size, size), dtype=vec.dtype, device=vec.device)
    matrix[..., rows, columns] = vec
    return matrix


def tril_matrix_to_vec(mat: Array, diag: int = 0) -> Tensor:
    """The lower triangle of a matrix, row by row."""
    size = mat.shape[-1]
    if not -size <= diag < size:
        raise ValueError(f"diag ({diag}) provided is outside [{-size}, {size - 1}].")
    rows, columns = ops.tril_indices(size, size, diag)
    return mat[..., rows, columns]


def _standard_normal(shape: Any, dtype: DType, device: Device | str | int | None) -> Any:
    return ops.randn(tuple(shape), dtype=dtype, device=device)


def _sum_rightmost(value: Any, dim: int) -> Any:
    return value if dim == 0 else value.reshape((*value.shape[: value.dim() - dim], -1)).sum(-1)
