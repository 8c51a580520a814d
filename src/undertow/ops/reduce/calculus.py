"""Slopes and integrals of sampled functions: gradient, diff, trapezoid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array
from undertow.ops.arguments.dims import numpy_spelling, wrap_dim, wrap_dims
from undertow.ops.arguments.operands import NUMBERS, as_operand
from undertow.ops.arguments.sizes import as_int
from undertow.ops.declare import composite
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.pointwise.comparison_logic_bits import logical_xor
from undertow.ops.reduce.cumulative import cumsum
from undertow.ops.reduce.sums_and_products import sum as sum_of
from undertow.ops.shape.joining import cat
from undertow.ops.views.clone import clone, to_dtype
from undertow.ops.views.reshape import reshape
from undertow.ops.views.slices import narrow
from undertow.tensor import Tensor

#: the weights of three equally spaced values, for the slope at the first, the middle and the last
EQUAL = ((-1.5, 2.0, -0.5), (-0.5, 0.0, 0.5), (0.5, -2.0, 1.5))


@composite
@numpy_spelling
def gradient(input: Array, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """The slope along each of the dimensions `dim` (by default all), for values `spacing` apart.

    spacing      a number (1 unless given), one for each dimension, or for each a tensor of coordinates
    edge_order   1: differences of two values at the ends; 2: of three

    >>> import undertow as ut
    >>> ut.gradient(ut.tensor([0.0, 1.0, 4.0]))[0].tolist()
    [1.0, 2.0, 3.0]
    """
    input = as_operand("gradient", "input", input)
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    dims = wrap_dims(dim, input.ndim)
    spacings = _for_each_dim(input, 1 if spacing is None else spacing, dims, dim is None)
    if any(input.shape[d] < edge_order + 1 for d in dims):
        raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    if not dtypes.is_differentiable(input.dtype):
        input = to_dtype(input, dtypes.default_dtype())
    return tuple([slope(input, d, step, edge_order) for d, step in zip(dims, spacings, strict=True)])


def _for_each_dim(input: Array, spacing: Any, dims: Sequence[int], all_dims: bool) -> list[Any]:
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


def slope(x: Array, dim: int, step: Array, edge_order: int) -> Tensor:
    at_coordinates = getattr(step, "ndim", 0) == 1
    size = x.shape[dim]
    gaps = column(narrow(step, 0, 1, size - 1) - narrow(step, 0, 0, size - 1), x, dim) if at_coordinates else None
    parts = [end(x, dim, 0, step, gaps, edge_order)]
    if size > 2:
        parts.append(middle(x, dim, step, gaps))
    parts.append(end(x, dim, 2, step, gaps, edge_order))
    return cat(parts, dim)


def column(values: Array, x: Array, dim: int) -> Array:
    """Numbers for the elements along one dimension, to be multiplied with x."""
    return reshape(values, (-1, *[1] * (x.ndim - 1 - dim)))


def middle(x: Array, dim: int, step: Array, gaps: Array | None) -> Array:
    count = x.shape[dim] - 2
    before, here, after = [narrow(x, dim, k, count) for k in range(3)]
    if gaps is None:
        return (after - before) / (2 * step)
    one, two = _gap_pair(gaps, 0, count)
    weights = (-two / (one * (one + two)), (two - one) / (one * two), one / (two * (one + two)))
    return weights[0] * before + weights[1] * here + weights[2] * after


def _gap_pair(gaps: Array, start: int, count: int) -> tuple[Any, Any]:
    """The gaps before and behind `count` values."""
    return narrow(gaps, 0, start, count), narrow(gaps, 0, start + 1, count)


def end(x: Array, dim: int, side: int, step: Array, gaps: Array | None, edge_order: int) -> Array:
    """The slope at the first (side 0) or the last (side 2) value."""
    size = x.shape[dim]
    if edge_order == 1:
        first = 0 if side == 0 else size - 2
        rise = narrow(x, dim, first + 1, 1) - narrow(x, dim, first, 1)
        return rise / (step if gaps is None else narrow(gaps, 0, first, 1))
    first = 0 if side == 0 else size - 3
    values = [narrow(x, dim, first + k, 1) for k in range(3)]
    weights = EQUAL[side] if gaps is None else unequal(side, *_gap_pair(gaps, first, 1))
    total = weights[0] * values[0] + weights[1] * values[1] + weights[2] * values[2]
    return total / step if gaps is None else total


def unequal(side: int, one: Array, two: Array) -> tuple[Any, Any, Any]:
    """The weights of three values with these gaps between them."""
    if side == 0:
        return -(2 * one + two) / (one * (one + two)), (one + two) / (one * two), -one / (two * (one + two))
    return two / (one * (one + two)), -(one + two) / (one * two), (2 * two + one) / (two * (one + two))


def neighbours(input: Array, dim: int) -> tuple[Any, Any]:
    """All elements but the first along `dim`, and all but the last."""
    n = input.shape[dim] - 1
    return narrow(input, dim, 1, n), narrow(input, dim, 0, n)


@composite(variants="function method", out=True, overlap="any")
@numpy_spelling
def diff(
    input: Array, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The n-th differences of neighbours along `dim`.

    prepend, append  tensors put before and behind it, along `dim`, at first

    >>> import undertow as ut
    >>> ut.diff(ut.tensor([1.0, 4.0, 9.0]))
    tensor([3., 5.])
    """
    input, n = as_operand("diff", "input", input), as_int("diff", "n", n)
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    dim = wrap_dim(dim, input.ndim)
    parts = [t for t in (prepend, input, append) if t is not None]
    if {t.ndim for t in parts} != {input.ndim}:
        raise RuntimeError("diff expects prepend or append to be the same dimension as input")
    if n and len(parts) > 1:
        input = cat(parts, dim)
    if not n:
        return clone(input)
    for _ in range(min(n, input.shape[dim])):
        later, earlier = neighbours(input, dim)
        input = logical_xor(later, earlier) if input.dtype.kind == "b" else later - earlier
    return input


def _check_samples(name: str, y: Array, x: Array | None, dx: Any, dim: int) -> None:
    if y.ndim == 0:
        raise IndexError(f"{name}(): Dimension specified as {dim} but tensor has no dimensions")
    for argument, samples in (("y", y), ("x", x)):
        if samples is not None and samples.dtype.kind == "b":
            raise RuntimeError(f"{name}: received a bool input for `{argument}`, but bool is not supported")
    if x is not None and dx is not None:
        raise TypeError(f"{name}(): pass either x (the samples' places) or dx (their distance), not both")


def _heights(y: Array, dim: int) -> Array:
    """The sums of neighbours: twice the mean height of each trapezoid."""
    later, earlier = neighbours(y, dim) if y.shape[dim] else (y, y)
    return later + earlier


def _sample_distances(y: Array, x: Array, dim: int) -> Array:
    """Differences of x along the dimension that belongs to y's; a 1-d x serves every row."""
    if x.ndim == 1:
        if x.shape[0] != y.shape[dim]:
            raise RuntimeError(
                "trapezoid: There must be one `x` value for each sample point: "
                f"got {x.shape[0]} for a dimension of size {y.shape[dim]}"
            )
        return recorded.reshape(diff(x), [-1 if d == dim else 1 for d in range(y.ndim)])
    return diff(x, dim=dim - y.ndim)


@composite
@numpy_spelling
def trapezoid(y: Array, x: Array | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral of samples y by the trapezoidal rule, at places x or at distances dx.

    y   the samples
    x   where they lie: a vector, or a tensor of the shape of `y`
    dx  how far they are apart, if that is one number; 1 by default

    >>> import undertow as ut
    >>> ut.trapezoid(ut.tensor([1.0, 5.0, 10.0]))
    tensor(10.5000)
    """
    y = as_operand("trapezoid", "y", y)
    _check_samples("trapezoid", y, x, dx, dim)
    dim = wrap_dim(dim, y.ndim)
    if not y.shape[dim]:
        return Tensor(y._xp.zeros((*y.shape[:dim], *y.shape[dim + 1 :]), y.dtype), y._xp)
    if x is None:
        return sum_of(_heights(y, dim), dim) * ((1.0 if dx is None else dx) / 2.0)
    return sum_of(_heights(y, dim) * _sample_distances(y, x, dim), dim) / 2.0


@composite
@numpy_spelling
def trapz(y: Array, x: Array | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The older name of `trapezoid`.

    y, x, dx  the samples, where they lie, and how far apart they are, as `trapezoid` takes them

    >>> import undertow as ut
    >>> ut.trapz(ut.tensor([1.0, 2.0, 3.0]))
    tensor(4.)
    """
    return trapezoid(y, x, dx=dx, dim=dim)


@composite
@numpy_spelling
def cumulative_trapezoid(y: Array, x: Array | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The running integral of samples y by the trapezoidal rule.

    y   the samples
    x   where they lie: a vector, or a tensor of the shape of `y`
    dx  how far they are apart, if that is one number; 1 by default

    >>> import undertow as ut
    >>> ut.cumulative_trapezoid(ut.tensor([1.0, 2.0, 3.0]))
    tensor([1.5000, 4.0000])
    """
    y = as_operand("cumulative_trapezoid", "y", y)
    _check_samples("cumulative_trapezoid", y, x, dx, dim)
    dim = wrap_dim(dim, y.ndim)
    if x is None:
        return cumsum(_heights(y, dim) * ((1.0 if dx is None else dx) / 2.0), dim)
    return cumsum(_heights(y, dim) * _sample_distances(y, x, dim), dim) / 2.0
