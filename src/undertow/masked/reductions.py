"""Reductions of what a mask leaves: `masked.sum(input, dim, mask=mask)` and its kin, on ordinary tensors.

A mask is True where an element counts, and is broadcast to the shape of the input. Elements that do not count are
replaced by the number that changes nothing (0 in a sum, 1 in a product, -inf in a maximum) before the reduction runs;
they get no gradient. Of a slice in which nothing counts, the result is that number, or nan where there is none.
"""

from __future__ import annotations

import math
from typing import Any

from undertow import ops
from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, DType
from undertow.ops.arguments.dims import reduced_axes
from undertow.tensor import Tensor


def counted(input: Tensor, mask: Array | None) -> Array:
    """The mask in the shape of the input."""
    if mask is None:
        return Tensor(cpu.ones(input.shape, bool), cpu)
    if mask.dtype != dtypes.bool_:
        raise TypeError(f"mask must have dtype bool, got {mask.dtype}. Compare it with something: mask != 0.")
    return ops.broadcast_to(mask, tuple(input.shape))


def filled(input: Tensor, mask: Array | None, value: float) -> Array:
    return input if mask is None else ops.where(counted(input, mask), input, value)


def cast(input: Tensor, dtype: DType) -> Tensor:
    return input if dtype is None else ops.to_dtype(input, dtype)


def as_floats(input: Tensor, dtype: DType) -> Array:
    input = cast(input, dtype)
    return input if dtypes.is_differentiable(input.dtype) else ops.to_dtype(input, dtypes.default_dtype())


def largest(dtype: DType) -> float:
    """What no number of the dtype exceeds."""
    return math.inf if dtypes.is_differentiable(dtype) else int(cpu.iinfo(dtype).max)


def smallest(dtype: DType) -> float:
    return -math.inf if dtypes.is_differentiable(dtype) else int(cpu.iinfo(dtype).min)


def dims_of(input: Tensor, dim: Any) -> tuple[int, ...]:
    return tuple(reduced_axes(dim, input.ndim))


def output_mask(mask: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """Where at least one element counts."""
    return Tensor(cpu.asarray(mask._array.any(axis=dims_of(mask, dim), keepdims=keepdim)), cpu)


# ---- reductions


def sum(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Array | None = None
) -> Tensor:
    """The sum of the elements that count.

    >>> import undertow as ut
    >>> x = ut.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> ut.masked.sum(x, 1, mask=ut.tensor([[True, True], [True, False]]))
    tensor([3., 3.])
    """
    return ops.sum(filled(cast(input, dtype), mask, 0), dims_of(input, dim), keepdim)


def prod(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Array | None = None
) -> Tensor:
    """The product of the elements that count.

    >>> import undertow as ut
    >>> ut.masked.prod(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor(3.)
    """
    if dtype is None and input.dtype.kind in "bui":
        dtype = dtypes.int64
    input = filled(cast(input, dtype), mask, 1)
    for d in sorted(dims_of(input, dim), reverse=True):
        input = ops.prod(input, d, keepdim)
    return input


def mean(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Array | None = None
) -> Tensor:
    """The mean of the elements that count; nan if there are none.

    >>> import undertow as ut
    >>> ut.masked.mean(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor(2.)
    """
    input = as_floats(input, dtype)
    return ops.true_divide(sum(input, dim, keepdim=keepdim, mask=mask), count(input, dim, keepdim, mask))


def count(input: Tensor, dim: Any, keepdim: bool, mask: Array | None) -> Tensor:
    """How many elements count, in the dtype of the input."""
    return ops.to_dtype(ops.sum(counted(input, mask), dims_of(input, dim), keepdim), input.dtype)


def amin(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Array | None = None
) -> Tensor:
    """The smallest of the elements that count.

    >>> import undertow as ut
    >>> ut.masked.amin(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor(1.)
    """
    input = cast(input, dtype)
    return ops.amin(filled(input, mask, largest(input.dtype)), dims_of(input, dim), keepdim)


def amax(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Array | None = None
) -> Tensor:
    """The largest of the elements that count.

    >>> import undertow as ut
    >>> ut.masked.amax(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor(3.)
    """
    input = cast(input, dtype)
    return ops.amax(filled(input, mask, smallest(input.dtype)), dims_of(input, dim), keepdim)


def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Array | None = None,
) -> Tensor:
    """Where the smallest of the elements that count is.

    >>> import undertow as ut
    >>> ut.masked.argmin(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor(0)
    """
    input = cast(input, dtype)
    return ops.argmin(filled(input, mask, largest(input.dtype)), dim, keepdim)


def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Array | None = None,
) -> Tensor:
    """Where the largest of the elements that count is.

    >>> import undertow as ut
    >>> ut.masked.argmax(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor(2)
    """
    input = cast(input, dtype)
    return ops.argmax(filled(input, mask, smallest(input.dtype)), dim, keepdim)


def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Array | None = None,
) -> Tensor:
    """The variance of the elements that count, divided by their number less `correction`.

    That is 1, or 0 if not `unbiased`.

    >>> import undertow as ut
    >>> ut.masked.var(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor(2.)
    """
    if unbiased is not None and correction is not None:
        raise ValueError("Only one of unbiased and correction may be given")
    correction = correction if correction is not None else float(unbiased is not False)
    input = as_floats(input, dtype)
    center: Any = mean(input, dim, keepdim=True, mask=mask)
    distance = filled(input - center, mask, 0)
    squares = ops.real(distance * ops.conj(distance)) if input.dtype.kind == "c" else distance * distance
    number = count(squares, dim, keepdim, mask)
    return ops.sum(squares, dims_of(input, dim), keepdim) / ops.clamp_min(number - correction, 0)


def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Array | None = None,
) -> Tensor:
    """The square root of `var`.

    unbiased, correction  as `var` takes them

    >>> import undertow as ut
    >>> ut.masked.std(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor(1.4142)
    """
    return ops.sqrt(var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask))


def norm(
    input: Tensor,
    ord: float = 2.0,
    dim: Any = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Array | None = None,
) -> Tensor:
    """The vector norm of the elements that count.

    ord  of which norm

    >>> import undertow as ut
    >>> ut.masked.norm(ut.tensor([1.0, 2.0, 3.0]), 2.0, 0, mask=ut.tensor([True, False, True]))
    tensor(3.1623)
    """
    neutral = math.inf if ord == -math.inf else 0
    return ops.linalg_vector_norm(filled(as_floats(input, dtype), mask, neutral), ord, dims_of(input, dim), keepdim)


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None, mask: Array | None = None
) -> Tensor:
    """The median of the elements that count, along one dimension.

    >>> import undertow as ut
    >>> ut.masked.median(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor(1.)
    """
    values: Tensor = ops.nanmedian(filled(as_floats(input, dtype), mask, math.nan), dim, keepdim).values
    return values


def logsumexp(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Array | None = None
) -> Tensor:
    """log(sum(exp(x))) over the elements that count.

    >>> import undertow as ut
    >>> ut.masked.logsumexp(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor(3.1269)
    """
    return ops.logsumexp(filled(as_floats(input, dtype), mask, -math.inf), dims_of(input, dim), keepdim)


# ---- of the same shape as the input


def softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Array | None = None) -> Tensor:
    """exp(x), divided by its sum over the elements that count; 0 for the others.

    >>> import undertow as ut
    >>> ut.masked.softmax(ut.zeros(3), 0, mask=ut.tensor([True, True, False]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    return ops.softmax(filled(as_floats(input, dtype), mask, -math.inf), dim)


def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Array | None = None) -> Tensor:
    """The logarithm of `softmax`.

    >>> import undertow as ut
    >>> ut.masked.log_softmax(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor([-2.1269,    -inf, -0.1269])
    """
    return ops.log_softmax(filled(as_floats(input, dtype), mask, -math.inf), dim)


def softmin(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Array | None = None) -> Tensor:
    """softmax of -x.

    >>> import undertow as ut
    >>> ut.masked.softmin(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor([0.8808, 0.0000, 0.1192])
    """
    return ops.softmax(-filled(as_floats(input, dtype), mask, math.inf), dim)


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: DType | None = None, mask: Array | None = None
) -> Tensor:
    """Divided by the norm of the elements that count, or by `eps` if that is larger; 0 for the others.

    ord  of which norm

    >>> import undertow as ut
    >>> ut.masked.normalize(ut.tensor([1.0, 2.0, 3.0]), 2.0, 0, mask=ut.tensor([True, False, True]))
    tensor([0.3162, 0.0000, 0.9487])
    """
    input = as_floats(input, dtype)
    size = ops.clamp_min(norm(input, ord, dim, keepdim=True, mask=mask), eps)
    return filled(input, mask, 0) / size


def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Array | None = None) -> Tensor:
    """Sums from the beginning, of the elements that count.

    >>> import undertow as ut
    >>> ut.masked.cumsum(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor([1., 1., 4.])
    """
    return ops.cumsum(filled(cast(input, dtype), mask, 0), dim)


def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Array | None = None) -> Tensor:
    """Products from the beginning, of the elements that count.

    >>> import undertow as ut
    >>> ut.masked.cumprod(ut.tensor([1.0, 2.0, 3.0]), 0, mask=ut.tensor([True, False, True]))
    tensor([1., 1., 3.])
    """
    return ops.cumprod(filled(cast(input, dtype), mask, 1), dim)


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: DType | None = None,
    input_mask: Array | None = None,
    other_mask: Array | None = None,
) -> Tensor:
    """log(exp(x) + exp(y)) of the elements that count.

    input, other            tensors, or MaskedTensors
    input_mask, other_mask  bools that can be broadcast to each: true where elements count

    >>> import undertow as ut
    >>> mask = ut.tensor([True, False])
    >>> ut.masked.logaddexp(ut.zeros(2), ut.zeros(2), input_mask=mask, other_mask=mask)
    tensor([0.6931,   -inf])
    """
    first = filled(as_floats(input, dtype), input_mask, -math.inf)
    return ops.logaddexp(first, filled(as_floats(other, dtype), other_mask, -math.inf))
