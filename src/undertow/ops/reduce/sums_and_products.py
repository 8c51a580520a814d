"""Sums, products and their kin over one, several or all dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.blocks import elementwise
from undertow.backend.interface import Array, DType, Namespace
from undertow.compiled import core, shortcut, twin
from undertow.ops.arguments.dims import (
    Dims,
    numpy_spelling,
    reduced_axes,
    restore,
    wrap_dim,
    wrap_dims,
)
from undertow.ops.arguments.operands import as_operand, type_name
from undertow.ops.declare import adapter, composite, nondifferentiable, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import LINEAR, REDUCTION
from undertow.ops.declare.rules.batch_in_front import in_front
from undertow.ops.reduce.folds import fold
from undertow.ops.views.reshape import reshape
from undertow.tensor import Tensor

#: elements from which on it is worth adding up some dimensions, and then the others
MANY = 4096

#: what sums and products are accumulated in, where that is not the input's own dtype
ACCUMULATOR = {d: dtypes.int64 for d in dtypes.ALL if d.kind in "bui"}


def accumulate(ufunc: Any, input: Array, axis: Any, keepdim: bool = False) -> Array:
    """ufunc.reduce as PyTorch does it: integers in int64."""
    return ufunc.reduce(input, axis, ACCUMULATOR.get(input.dtype), keepdims=keepdim)


def reduced_size(shape: tuple[int, ...], dim: Dims) -> int:
    """How many elements go into one."""
    return math.prod(shape[d] for d in reduced_axes(dim, len(shape)))


def over_rows(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Batching for an op that reduces everything: `reduce(rows, 1)`, with a row for each example."""

    def batch(call: Callable[..., Any], args: list[Any], in_dims: list[Any]) -> tuple[Any, int]:
        front = in_front(args[0], in_dims[0])
        size, *rest = front._array.shape
        return reduce(front if len(rest) == 1 else recorded.reshape(front, (size, math.prod(rest))), 1), 0

    return batch


def cast(input: Array, dtype: DType) -> Any:
    return input if dtype is None else recorded.astype(input, dtype)


# ---- sum


#: FEW_ONES[dtype][n]: n ones. For a few numbers, a dot product takes half the time of np.add.reduce.
FEW_ONES = {
    d: [cpu.module.ones(n, d) for n in range(33)]
    for d in (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
}


@twin
def sum_all_forward(xp: Namespace, input: Array) -> Array:
    ones = FEW_ONES.get(input.dtype)
    if ones is None:
        return accumulate(xp.add, input, None)
    if input.size <= 32 and xp is cpu:
        return (input if input.ndim == 1 else input.ravel()).dot(ones[input.size])
    if core is not None and xp is cpu and input.dtype.kind == "c" and input.flags.c_contiguous:
        # two sums of real numbers, for which there are kernels
        parts = input.reshape(-1).view(dtypes.real_of(input.dtype)).reshape(-1, 2)
        return sum_dims_forward(xp, parts, (0,), False).view(input.dtype)[0]
    return xp.add.reduce(input, axis=None)


@twin
def sum_dims_forward(xp: Namespace, input: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    axes = reduced_axes(dim, input.ndim)
    inner = _last_neighbours(axes)
    if len(inner) < len(axes) and core is not None and xp is cpu and input.size >= MANY:
        rows = sum_dims_forward(xp, input, inner, True)  # for which there are kernels, unlike for all at once
        outer = sum_dims_forward(xp, rows, tuple([d for d in axes if d not in inner]), True)
        return outer if keepdim else outer.reshape([n for d, n in enumerate(input.shape) if d not in axes])
    return accumulate(xp.add, input, axes, keepdim)


def _last_neighbours(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The last of these, with those next to it."""
    last = max(axes, default=0)
    return tuple([d for d in axes if all([k in axes for k in range(d, last)])])


sum_dims = primitive(
    "_sum_dims",
    forward=sum_dims_forward,
    vjp={
        "input": lambda xp, g, input_shape, dim, keepdim: xp.broadcast_to(
            restore(xp, g, input_shape, dim, keepdim), input_shape
        )
    },
    jvp=LINEAR,
    batch=REDUCTION,
    node="SumBackward1",
)

sum_all = primitive(
    "_sum_all",
    forward=sum_all_forward,
    vjp={"input": lambda xp, g, input_shape: xp.broadcast_to(g, input_shape)},
    jvp=LINEAR,
    batch=over_rows(sum_dims),
    node="SumBackward0",
)


@composite(variants="function method", out=True)
@shortcut(sum_all, sum_dims, None)
def sum(
    input: Array,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    axis: Dims = None,
    keepdims: bool | None = None,
) -> Tensor:
    """The sum over `dim`, or of all elements; bools and integers add up in int64.

    >>> import undertow as ut
    >>> ut.sum(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=1)
    tensor([3., 7.])
    """
    if dim is axis is dtype is None and not keepdim and not keepdims:
        return sum_all(input)
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    if type(dim) is list:
        dim = tuple(dim)
    if dtype is not None:
        input = cast(input, dtype)
    total = sum_all(input) if dim is None and not keepdim else sum_dims(input, dim, keepdim)
    return cast(total, dtype)  # integers are summed up as int64


def _batch_sum_to(call: Callable[..., Any], args: list[Any], in_dims: list[Any]) -> tuple[Any, int]:
    """Every example is summed to `shape`, so the batch is, to (size, *ones, *shape)."""
    front = recorded.moveaxis(args[0], in_dims[0], 0)
    size, *rest = front._array.shape
    shape = tuple(args[1])
    summed = call(front, (size, *[1] * (len(rest) - len(shape)), *shape))
    return recorded.reshape(summed, (size, *shape)), 0


sum_to = primitive(
    "sum_to",
    forward=lambda xp, input, shape: xp.sum_to(input, shape),
    vjp={"input": lambda xp, g, input_shape: xp.broadcast_to(g, input_shape)},
    jvp=LINEAR,
    batch=_batch_sum_to,
    node="SumToSizeBackward0",
    variants="",
)
adapter("sum_to")(sum_to)


# ---- mean


def _require_inexact(name: str, input: Array) -> None:
    if not dtypes.is_differentiable(input.dtype):
        got = type_name(input)
        raise RuntimeError(
            f"{name}(): could not infer output dtype. Input dtype must be either a floating point or complex "
            f"dtype. Got: {got}. Pass dtype=undertow.float32, or convert the tensor."
        )


@twin
def mean_forward(xp: Namespace, input: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    _require_inexact("mean", input)
    total = sum_dims_forward(xp, input, dim, keepdim)
    n = reduced_size(input.shape, dim)
    return total / n if n else total * xp.nan


def _mean_all_forward(xp: Namespace, input: Array) -> Array:
    if input.dtype in FEW_ONES and input.size:
        return sum_all_forward(xp, input) / input.size
    return mean_forward(xp, input)


mean_dims = primitive(
    "_mean_dims",
    forward=mean_forward,
    vjp={
        "input": lambda xp, g, input_shape, dim, keepdim: xp.broadcast_to(
            restore(xp, g, input_shape, dim, keepdim) / reduced_size(input_shape, dim), input_shape
        )
    },
    jvp=LINEAR,
    batch=REDUCTION,
    node="MeanBackward1",
)

mean_all = primitive(
    "_mean_all",
    forward=_mean_all_forward,
    vjp={"input": lambda xp, g, input_shape: xp.broadcast_to(g / math.prod(input_shape), input_shape)},
    jvp=LINEAR,
    batch=over_rows(mean_dims),
    node="MeanBackward0",
)


@composite(variants="function method", out=True)
@shortcut(mean_all, mean_dims, None)
def mean(
    input: Array,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    axis: Dims = None,
    keepdims: bool | None = None,
) -> Tensor:
    """The mean over `dim`, or of all elements.

    >>> import undertow as ut
    >>> ut.mean(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=0)
    tensor([2., 3.])
    """
    if axis is not None:
        dim = axis
    if keepdims is not None:
        keepdim = keepdims
    if type(dim) is list:
        dim = tuple(dim)
    if dtype is not None:
        input = cast(input, dtype)
    return mean_all(input) if dim is None and not keepdim else mean_dims(input, dim, keepdim)


# ---- leaving NaN out


_without_nan = elementwise(lambda xp, input: xp.where(xp.isnan(input), input.dtype.type(0), input))


def _nansum_forward(xp: Namespace, input: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    return accumulate(xp.add, _without_nan(xp, input), reduced_axes(dim, input.ndim), keepdim)


def _is_present(xp: Namespace, input: Array) -> Array:
    return xp.logical_not(xp.isnan(input))


nansum_dims = primitive(
    "_nansum_dims",
    forward=_nansum_forward,
    vjp={
        "input": lambda xp, g, input, input_shape, dim, keepdim: (
            restore(xp, g, input_shape, dim, keepdim) * _is_present(xp, input)
        )
    },
    jvp={
        "input": lambda xp, t, input, dim, keepdim: xp.sum(
            t * _is_present(xp, input), reduced_axes(dim, input.ndim), keepdims=keepdim
        )
    },
    batch=REDUCTION,
    node="NansumBackward0",
)


@composite(variants="function method", out=True)
@numpy_spelling
def nansum(input: Array, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The sum, with NaN counted as zero.

    >>> import undertow as ut
    >>> ut.nansum(ut.tensor([1.0, ut.nan, 3.0]))
    tensor(4.)
    """
    return cast(nansum_dims(cast(input, dtype), dim, keepdim), dtype)


@composite(variants="function method", out=True)
@numpy_spelling
def nanmean(input: Array, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The mean of the elements that are not NaN; NaN where there are none.

    >>> import undertow as ut
    >>> ut.nanmean(ut.tensor([1.0, ut.nan, 3.0]))
    tensor(2.)
    """
    input = cast(input, dtype)
    if not dtypes.is_differentiable(input.dtype):
        got = type_name(input)
        raise RuntimeError(f"nanmean(): expected input to have floating point or complex dtype but got {got}")
    count = sum_dims(_is_present(recorded, input), dim, keepdim)
    return nansum_dims(input, dim, keepdim) / count


# ---- prod


def _product(xp: Namespace, input: Array, axes: Any, keepdim: bool) -> Array:
    if input.dtype.kind == "f":
        return fold(xp, input, "multiply", axes, keepdim)
    return accumulate(xp.multiply, input, axes, keepdim)


def _product_of_others(xp: Namespace, input: Array, dim: int) -> Array:
    """For every element, the product of the others along `dim`: from both sides, so that zeros do no harm."""
    found = None if xp is recorded else kernels.products_of_others(xp, xp.ascontiguousarray(input), dim)
    if found is not None:
        return found
    before = xp._shifted(xp.cumprod(input, dim), dim, 1, 1)
    after = xp.flip(xp._shifted(xp.cumprod(xp.flip(input, dim), dim), dim, 1, 1), dim)
    return before * after


def _prod_gradient(xp: Namespace, g: Array, input: Array, out: Array, dim: int) -> Array:
    if xp is not recorded and xp.all(out) and xp.all(xp.isfinite(out)):
        return g * xp.conj(out / input)
    return g * xp.conj(_product_of_others(xp, input, dim))


def flat(xp: Namespace, input: Array) -> Array:
    return xp.reshape(input, (math.prod(input.shape),))


def _prod_dim_gradient(xp: Namespace, g: Array, input: Array, out: Array, dim: int, keepdim: bool) -> Array:
    shape = tuple(input.shape)
    if not shape:
        return g
    g, out = restore(xp, g, shape, dim, keepdim), restore(xp, out, shape, dim, keepdim)
    return _prod_gradient(xp, g, input, out, wrap_dim(dim, len(shape)))


def _prod_dim_tangent(xp: Namespace, t: Array, input: Array, dim: int, keepdim: bool) -> Array:
    if not input.shape:
        return t
    return xp.sum(t * _product_of_others(xp, input, wrap_dim(dim, input.ndim)), dim, keepdims=keepdim)


prod_dim = primitive(
    "_prod_dim",
    forward=lambda xp, input, dim, keepdim=False: _product(
        xp, input, reduced_axes(wrap_dim(dim, input.ndim), input.ndim), keepdim
    ),
    vjp={"input": _prod_dim_gradient},
    jvp={"input": _prod_dim_tangent},
    batch=REDUCTION,
    node="ProdBackward1",
    autocast="float32",
)

prod_all = primitive(
    "_prod_all",
    forward=lambda xp, input: _product(xp, input, None, False),
    vjp={
        "input": lambda xp, g, input, input_shape, out: xp.reshape(
            _prod_gradient(xp, g, flat(xp, input), out, 0), input_shape
        )
    },
    jvp={"input": lambda xp, t, input: xp.sum(flat(xp, t) * _product_of_others(xp, flat(xp, input), 0))},
    batch=over_rows(prod_dim),
    node="ProdBackward0",
    autocast="float32",
)


@composite(variants="function method", out=True)
@numpy_spelling
def prod(input: Array, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The product over `dim`, or of all elements; its gradient is exact where elements are zero.

    >>> import undertow as ut
    >>> ut.prod(ut.tensor([2.0, 3.0, 4.0]))
    tensor(24.)
    """
    input = cast(input, dtype)
    if dim is None and not keepdim:
        return cast(prod_all(input), dtype)
    if not isinstance(dim, Iterable) and dim is not None:
        return cast(prod_dim(input, dim, keepdim), dtype)
    for d in sorted(wrap_dims(dim, input.ndim), reverse=True):
        input = prod_dim(input, d, keepdim)
    return cast(input, dtype)


# ---- the names that rules use


adapter("sum")(sum)
adapter("mean")(mean)
adapter("prod")(prod)
adapter("nansum")(nansum)


@composite(variants="method")
def sum_to_size(input: Array, *size: Any) -> Tensor:
    """The sum over the dimensions along which a tensor of `size` would be broadcast to the shape of `input`.

    >>> import undertow as ut
    >>> ut.ones(2, 3).sum_to_size(1, 3)
    tensor([[2., 2., 2.]])
    """
    input = as_operand("sum_to_size", "input", input)
    wanted = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    if not wanted:
        return sum(input)
    shape = tuple(input.shape)
    extra = len(shape) - len(wanted)
    if extra < 0 or any(n not in (1, m) for n, m in zip(wanted, shape[extra:], strict=True)):
        raise RuntimeError(f"size {{{list(wanted)}}} is not expandable to size {{{list(shape)}}}.")
    dims = [*range(extra), *[d + extra for d, n in enumerate(wanted) if n == 1 and shape[d + extra] != 1]]
    if not dims:
        return input
    total = sum(input, tuple(dims), keepdim=True)
    return reshape(total, wanted) if extra else total


count_nonzero = nondifferentiable(
    "count_nonzero",
    forward=lambda xp, input, dim=None: xp.add.reduce(
        xp.not_equal(input, 0), reduced_axes(dim, input.ndim), dtypes.int64
    ),
    inputs=("input",),
    batch=REDUCTION,
    variants="function method",
)

adapter("count_nonzero")(count_nonzero)
