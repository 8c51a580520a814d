"""Largest and smallest elements.

Where only the value is asked for, ties share the gradient evenly; where the index is given too, the element
at that index gets all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.interface import Array, Namespace
from undertow.compiled import shortcut, twin
from undertow.ops.arguments.dims import Dims, numpy_spelling, reduced_axes, restore, wrap_dim
from undertow.ops.arguments.operands import require_order, require_tensor
from undertow.ops.declare import adapter, composite, nondifferentiable, primitive, return_types
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import REDUCTION
from undertow.ops.declare.rules.batch_in_front import batch_size, expanded
from undertow.ops.index.gather_scatter import gather
from undertow.ops.reduce.folds import fold, places_along
from undertow.ops.reduce.sums_and_products import over_rows
from undertow.tensor import Tensor


def require_elements(name: str, shape: Sequence[int], dim: Dims, error: type[Exception] = RuntimeError) -> None:
    """An extreme of no elements does not exist."""
    axes = reduced_axes(dim, len(shape))
    empty = [d for d in axes if shape[d] == 0]
    if len(axes) == len(shape) and dim in (None, ()) and 0 in shape:
        raise error(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument."
        )
    if empty:
        raise IndexError(f"{name}(): Expected reduction dim {empty[0]} to have non-zero size.")


# ---- values alone


def _extreme(name: str, ufunc: str) -> Any:
    """The forward of amax, amin, max and min."""

    def forward(xp: Namespace, input: Array, dim: Dims = None, keepdim: bool = False) -> Any:
        axes = None if dim is None else reduced_axes(dim, input.ndim)
        require_order(name, input)
        if not input.size:
            require_elements(name, input.shape, dim)
        return fold(xp, input, ufunc, axes, keepdim)

    return forward


def share(xp: Namespace, values: Array, mask: Array, dim: Dims) -> Array:
    """Of values along `dim`, equal parts to the elements that are chosen, none to the others."""
    count = xp.sum(mask, reduced_axes(dim, len(mask.shape)), keepdims=True)
    return values / xp.astype(count, values.dtype) * mask  # which NumPy would divide in float64


def chosen(xp: Namespace, input: Array, out: Array, dim: Dims, keepdim: bool) -> Array:
    return xp.equal(input, restore(xp, out, tuple(input.shape), dim, keepdim))


def _spread_evenly(xp: Namespace, g: Array, input: Array, out: Array, dim: Dims, keepdim: bool) -> Array:
    mask = chosen(xp, input, out, dim, keepdim)
    return share(xp, restore(xp, g, tuple(input.shape), dim, keepdim), mask, dim)


def _read_evenly(xp: Namespace, t: Array, input: Array, out: Array, dim: Dims, keepdim: bool) -> Array:
    mask = chosen(xp, input, out, dim, keepdim)
    return xp.sum(share(xp, t, mask, dim), reduced_axes(dim, len(t.shape)), keepdims=keepdim)


def even(name: str, ufunc: str) -> Any:
    """The primitive of amax or amin."""
    return primitive(
        f"_{name}_dims",
        forward=_extreme(name, ufunc),
        vjp={"input": _spread_evenly},
        jvp={"input": _read_evenly},
        batch=REDUCTION,
        node=f"{name.capitalize()}Backward0",
    )


amax_dims = even("amax", "maximum")
amin_dims = even("amin", "minimum")


@composite(variants="function method", out=True)
@numpy_spelling
def amax(input: Array, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The largest element over `dim`, or of all; ties share the gradient evenly.

    >>> import undertow as ut
    >>> ut.amax(ut.tensor([[1.0, 3.0], [4.0, 2.0]]), dim=(0, 1))
    tensor(4.)
    """
    return amax_dims(input, dim, keepdim)


@composite(variants="function method", out=True)
@numpy_spelling
def amin(input: Array, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The smallest element over `dim`, or of all; ties share the gradient evenly.

    >>> import undertow as ut
    >>> ut.amin(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=1)
    tensor([1., 3.])
    """
    return amin_dims(input, dim, keepdim)


def _aminmax_forward(xp: Namespace, input: Array, dim: int | None = None, keepdim: bool = False) -> tuple[Array, ...]:
    if dim is None and input.size == 0:
        raise RuntimeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity."
        )
    dim = None if dim is None else wrap_dim(dim, input.ndim)
    forwards = _extreme("aminmax", "minimum"), _extreme("aminmax", "maximum")
    return tuple([forward(xp, input, dim, keepdim) for forward in forwards])


def _aminmax_gradient(xp: Namespace, g: Any, input: Array, min: Array, max: Array, dim: Any, keepdim: bool) -> Array:
    flowing = [(one, out) for one, out in zip(g, (min, max), strict=True) if one is not None]
    parts = [_spread_evenly(xp, one, input, out, dim, keepdim) for one, out in flowing]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _aminmax_tangents(
    xp: Namespace, t: Array, input: Array, min: Array, max: Array, dim: Any, keepdim: bool
) -> tuple[Array, Array]:
    return tuple([_read_evenly(xp, t, input, out, dim, keepdim) for out in (min, max)])


aminmax_dim = primitive(
    "_aminmax_dim",
    forward=_aminmax_forward,
    vjp={"input": _aminmax_gradient},
    jvp={"input": _aminmax_tangents},
    batch=REDUCTION,
    node="AminmaxBackward0",
    outputs=("min", "max"),
)


@composite(variants="function method", out=True)
@numpy_spelling
def aminmax(input: Array, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """(min, max) along `dim`, or of all elements.

    >>> import undertow as ut
    >>> ut.aminmax(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    undertow.return_types.aminmax(
    min=tensor(1.),
    max=tensor(4.))
    """
    return return_types.aminmax(aminmax_dim(input, dim, keepdim))


# ---- all elements; a NaN is the extreme, and NaNs share as ties do


def _same_value(xp: Namespace, input: Array, out: Array) -> Array:
    return xp.logical_or(xp.equal(input, out), xp.logical_and(xp.isnan(out), xp.isnan(input)))


def of_all(name: str, forward: Callable[..., Any], batch: Any, node: str) -> Any:
    """The primitive of an operation that picks one value out of all elements."""
    return primitive(
        name,
        forward=forward,
        vjp={"input": lambda xp, g, input, out: share(xp, g, _same_value(xp, input, out), None)},
        jvp={"input": lambda xp, t, input, out: xp.sum(share(xp, t, _same_value(xp, input, out), None))},
        batch=batch,
        node=node,
    )


def _extreme_of_all(name: str, ufunc: str) -> Any:
    def forward(xp: Namespace, input: Array) -> Any:
        require_order(name, input)
        if not input.size:
            require_elements(name, input.shape, None)
        return fold(xp, input, ufunc, None, False)

    return forward


max_all = of_all("_max_all", _extreme_of_all("max", "maximum"), over_rows(amax_dims), "MaxBackward1")
min_all = of_all("_min_all", _extreme_of_all("min", "minimum"), over_rows(amin_dims), "MinBackward1")


# ---- values and indices


@twin
def scatter_selected(
    xp: Namespace, grad: Array, indices: Array, shape: Sequence[int], dim: int, keepdim: bool = True
) -> Array:
    """Zeros of `shape`, with the elements of grad at their indices along `dim`."""
    if not shape:
        return xp.array(grad)
    axis = wrap_dim(dim, len(shape))
    if not keepdim:
        grad, indices = xp.expand_dims(grad, axis), xp.expand_dims(indices, axis)
    out = xp.zeros(shape, grad.dtype)
    if not kernels.scatter(xp, out, axis, indices, xp.ascontiguousarray(grad)):
        xp.put_along_axis(out, indices, grad, axis)
    return out


def select(xp: Namespace, input: Array, indices: Array, dim: int, keepdim: bool = True) -> Array:
    """The elements at `indices` along `dim`: the transpose of `scatter_selected`."""
    shape = tuple(input.shape)
    if not shape:
        return input
    axis = wrap_dim(dim, len(shape))
    if keepdim:
        return xp.take_along_axis(input, indices, axis)
    kept = tuple(indices.shape)
    indices = xp.reshape(indices, (*kept[:axis], 1, *kept[axis:]))
    return xp.reshape(xp.take_along_axis(input, indices, axis), kept)


def _batch_scatter(call: Callable[..., Any], args: list[Any], in_dims: list[Any]) -> tuple[Any, int]:
    grad, indices, shape, dim, keepdim = args
    size = batch_size(args, in_dims)
    grad, indices = (expanded(t, d, size) for t, d in zip(args[:2], in_dims[:2], strict=True))
    if not shape:
        return grad, 0
    return call(grad, indices, (size, *shape), wrap_dim(dim, len(shape)) + 1, keepdim), 0


value_selecting_reduction_backward = primitive(
    "value_selecting_reduction_backward",
    forward=scatter_selected,
    vjp={"grad": select, "indices": None},
    jvp={
        "grad": lambda xp, t, indices, shape, dim, keepdim: xp.value_selecting_reduction_backward(
            t, indices, shape, dim, keepdim
        )
    },
    batch=_batch_scatter,
    variants="",
)

#: the rules of every operation that returns (values, indices) with one element per slice along `dim`
SELECTING: dict[str, Any] = {
    "vjp": {
        "input": lambda xp, g, indices, input_shape, dim, keepdim: xp.value_selecting_reduction_backward(
            g, indices, input_shape, dim, keepdim
        )
    },
    "jvp": {"input": select},
    "batch": REDUCTION,
    "outputs": ("values", "indices"),
    "nondifferentiable": ("indices",),
}


def with_values(xp: Namespace, input: Array, indices: Array, axis: int, keepdim: bool) -> tuple[Array, Array]:
    """(values, indices), from indices that keep the dimension."""
    values = xp.take_along_axis(input, indices, axis)
    return (values, indices) if keepdim else (xp.squeeze(values, axis), xp.squeeze(indices, axis))


def _extreme_along(name: str, ufunc: str, choose: str) -> Any:
    """The forward of max and min along a dimension."""

    def forward(xp: Namespace, input: Array, dim: int, keepdim: bool = False) -> Any:
        axis = wrap_dim(dim, input.ndim)
        require_order(name, input)
        if input.ndim == 0:
            return input.copy(), xp.zeros((), dtypes.int64)
        if not input.size:
            require_elements(name, input.shape, axis)
        values = getattr(xp, ufunc).reduce(input, axis, keepdims=keepdim)
        return values, getattr(input, choose)(axis, keepdims=keepdim)

    forward.__name__ = f"{name}_along"
    return twin(forward)


max_dim = primitive("_max_dim", _extreme_along("max", "maximum", "argmax"), node="MaxBackward0", **SELECTING)
min_dim = primitive("_min_dim", _extreme_along("min", "minimum", "argmin"), node="MinBackward0", **SELECTING)


@composite(variants="function method foreach", out=True)
@shortcut(max_all, max_dim, return_types.max)
@numpy_spelling
def max(input: Array, dim: Array | None = None, keepdim: bool = False, *, other: Array | None = None) -> Any:
    """The largest element; along `dim`, (values, indices); of two tensors, the larger elements.

    other  a second tensor, broadcast with the first

    >>> import undertow as ut
    >>> ut.max(ut.tensor([[1.0, 3.0], [4.0, 2.0]]), dim=1).values
    tensor([3., 4.])
    """
    if other is not None or isinstance(dim, (Tensor, cpu.ndarray)):
        require_tensor("max", input=input)
        return recorded.maximum(input, dim if other is None else other)
    if dim is None and not keepdim:
        return max_all(input)
    return return_types.max(max_dim(input, dim, keepdim))


@composite(variants="function method", out=True)
@shortcut(min_all, min_dim, return_types.min)
@numpy_spelling
def min(input: Array, dim: Array | None = None, keepdim: bool = False, *, other: Array | None = None) -> Any:
    """The smallest element; along `dim`, (values, indices); of two tensors, the smaller elements.

    other  a second tensor, broadcast with the first

    >>> import undertow as ut
    >>> ut.min(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=1)
    undertow.return_types.min(
    values=tensor([1., 3.]),
    indices=tensor([0, 0]))
    """
    if other is not None or isinstance(dim, (Tensor, cpu.ndarray)):
        require_tensor("min", input=input)
        return recorded.minimum(input, dim if other is None else other)
    if dim is None and not keepdim:
        return min_all(input)
    return return_types.min(min_dim(input, dim, keepdim))


# ---- indices alone


def _extreme_index(name: str) -> Any:
    def forward(xp: Namespace, input: Array, dim: int | None = None, keepdim: bool = False) -> Any:
        if input.dtype.kind in "bc":
            kind = "bool" if input.dtype.kind == "b" else "complex"
            raise RuntimeError(f"{name}(): does not support {kind} input")
        axis = None if dim is None else wrap_dim(dim, input.ndim)
        if not input.size:
            require_elements(name, input.shape, axis, IndexError)
        if input.ndim == 0:
            return xp.zeros((), dtypes.int64)
        if axis is None:
            return getattr(input, name)(axis, keepdims=keepdim)
        places = places_along(xp, input, axis, name == "argmin")
        return places if keepdim else xp.squeeze(places, axis)

    return forward


argmax = nondifferentiable(
    "argmax", _extreme_index("argmax"), inputs=("input",), batch=REDUCTION, variants="function method"
)
argmin = nondifferentiable(
    "argmin", _extreme_index("argmin"), inputs=("input",), batch=REDUCTION, variants="function method"
)


@adapter("take_along_axis")
def take_along_axis(input: Array, indices: Array, axis: int) -> Tensor:
    return gather(input, axis, indices)


adapter("amax")(amax)
adapter("amin")(amin)
adapter("max")(amax)
adapter("min")(amin)
adapter("argmax")(argmax)
adapter("argmin")(argmin)
