"""gradient: the slopes of sampled functions, by finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.backend import dtypes
from undertow.ops.arguments.dims import numpy_spelling, wrap_dims
from undertow.ops.arguments.operands import NUMBERS, as_operand
from undertow.ops.declare import composite
from undertow.ops.shape.joining import cat
from undertow.ops.views.reshape import reshape, to_dtype
from undertow.ops.views.slices import narrow
from undertow.tensor import Tensor

#: the weights of three equally spaced values, for the slope at the first, the middle and the last
EQUAL = ((-1.5, 2.0, -0.5), (-0.5, 0.0, 0.5), (0.5, -2.0, 1.5))


@composite
@numpy_spelling
def gradient(input: Any, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> list[Tensor]:
    """The slope along each of the dimensions `dim` (by default all), for values `spacing` apart.

    spacing      a number, one for each dimension, or for each a tensor of coordinates
    edge_order   1: differences of two values at the ends; 2: of three

    >>> import undertow as ut
    >>> ut.gradient(ut.tensor([0.0, 1.0, 4.0]))[0].tolist()
    [1.0, 2.0, 3.0]
    """
    input = as_operand("gradient", "input", input)
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    dims = wrap_dims(dim, input.ndim)
    spacings = for_each_dim(input, spacing, dims, dim is None)
    if any(input.shape[d] < edge_order + 1 for d in dims):
        raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    if not dtypes.is_differentiable(input.dtype):
        input = to_dtype(input, dtypes.get_default_dtype())
    return [slope(input, d, step, edge_order) for d, step in zip(dims, spacings, strict=True)]


def for_each_dim(input: Any, spacing: Any, dims: Sequence[int], all_dims: bool) -> list[Any]:
    if isinstance(spacing, NUMBERS) or getattr(spacing, "ndim", None) == 0:
        return [spacing] * len(dims)
    spacings = [spacing] if hasattr(spacing, "ndim") else list(spacing)
    if len(spacings) != len(dims):
        wanted = f"'self.dim() = {input.ndim}', since dim argument was not given" if all_dims else f"{len(dims)}"
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to "
            f"{wanted}, but got a list of length {len(spacings)}"
        )
    for d, step in zip(dims, spacings, strict=True):
        if getattr(step, "ndim", 0) == 1 and step.shape[0] != input.shape[d]:
            raise RuntimeError(
                f"torch.gradient expected {input.shape[d]} coordinates for dimension {d}, but got {step.shape[0]}"
            )
    return spacings


def slope(x: Any, dim: int, step: Any, edge_order: int) -> Tensor:
    at_coordinates = getattr(step, "ndim", 0) == 1
    size = x.shape[dim]
    gaps = column(narrow(step, 0, 1, size - 1) - narrow(step, 0, 0, size - 1), x, dim) if at_coordinates else None
    parts = [end(x, dim, 0, step, gaps, edge_order)]
    if size > 2:
        parts.append(middle(x, dim, step, gaps))
    parts.append(end(x, dim, 2, step, gaps, edge_order))
    return cat(parts, dim)


def column(values: Any, x: Any, dim: int) -> Any:
    """Numbers for the elements along one dimension, to be multiplied with x."""
    return reshape(values, (-1, *[1] * (x.ndim - 1 - dim)))


def middle(x: Any, dim: int, step: Any, gaps: Any) -> Any:
    count = x.shape[dim] - 2
    before, here, after = [narrow(x, dim, k, count) for k in range(3)]
    if gaps is None:
        return (after - before) / (2 * step)
    one, two = gap_pair(gaps, 0, count)
    weights = (-two / (one * (one + two)), (two - one) / (one * two), one / (two * (one + two)))
    return weights[0] * before + weights[1] * here + weights[2] * after


def gap_pair(gaps: Any, start: int, count: int) -> tuple[Any, Any]:
    """The gaps before and behind `count` values."""
    return narrow(gaps, 0, start, count), narrow(gaps, 0, start + 1, count)


def end(x: Any, dim: int, side: int, step: Any, gaps: Any, edge_order: int) -> Any:
    """The slope at the first (side 0) or the last (side 2) value."""
    size = x.shape[dim]
    if edge_order == 1:
        first = 0 if side == 0 else size - 2
        rise = narrow(x, dim, first + 1, 1) - narrow(x, dim, first, 1)
        return rise / (step if gaps is None else narrow(gaps, 0, first, 1))
    first = 0 if side == 0 else size - 3
    values = [narrow(x, dim, first + k, 1) for k in range(3)]
    weights = EQUAL[side] if gaps is None else unequal(side, *gap_pair(gaps, first, 1))
    total = weights[0] * values[0] + weights[1] * values[1] + weights[2] * values[2]
    return total / step if gaps is None else total


def unequal(side: int, one: Any, two: Any) -> tuple[Any, Any, Any]:
    """The weights of three values with these gaps between them."""
    if side == 0:
        return -(2 * one + two) / (one * (one + two)), (one + two) / (one * two), -one / (two * (one + two))
    return two / (one * (one + two)), -(one + two) / (one * two), (2 * two + one) / (two * (one + two))
