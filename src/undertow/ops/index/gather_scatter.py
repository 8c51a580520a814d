"""gather and scatter: one index per element, along one dimension."""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.arguments.operands import NUMBERS, as_operand, type_name
from undertow.ops.arguments.sizes import broadcast_shapes
from undertow.ops.declare import adapter, composite, nondifferentiable, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.shifted_dims import along
from undertow.ops.index.elements_along import combine_along, gathered
from undertow.ops.index.index_arrays import (
    check_wrapping_range,
    from_front,
    last_at,
    positions_of,
)
from undertow.ops.index.index_select import cast_number
from undertow.ops.index.scatter_reduce import fitted, scatter_reduce
from undertow.ops.views.dimensions import broadcast_to
from undertow.ops.views.reshape import reshape
from undertow.tensor import Tensor

# ---- gather


def _gather_array(xp: Namespace, input: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array | None:
    return gathered(xp, input, dim, index, "input")


def _gather_gradient(xp: Namespace, grad: Array, input_sizes: tuple[int, ...], dim: int, index: Array) -> Array:
    return combine_along(xp, xp.zeros(input_sizes, grad.dtype), dim, index, grad, op="gather")


def _gather_rule(
    xp: Namespace, g: Array, input_shape: tuple[int, ...], dim: int, index: Array, sparse_grad: bool
) -> Array:
    if not sparse_grad:
        return xp.gather_backward(g, input_shape, dim, index)
    places = xp._gather_places(index, input_shape, wrap_dim(dim, len(input_shape)))
    return xp._sparse_coo(xp.reshape(g, (-1,)), places, input_shape)


gather = primitive(
    "gather",
    forward=_gather_array,
    vjp={"input": _gather_rule, "index": None},
    jvp=LINEAR,
    batch=along(dim=1),
    variants="function method",
    overlap="any",
)

gather_backward = primitive(
    "gather_backward",
    forward=_gather_gradient,
    vjp={"grad": lambda xp, g, dim, index: xp.gather(g, dim, index), "index": None},
    jvp=LINEAR,
    batch=along(dim=2, sizes=1),
    variants="",
)


@composite(variants="function method", out=True)
def take_along_dim(input: Array, indices: Array, dim: int | None = None, *, axis: int | None = None) -> Array:
    """One element for each index along `dim`, other dimensions broadcast; flattened first if dim is None.

    indices  int64, with as many dimensions as `input`

    >>> import undertow as ut
    >>> ut.take_along_dim(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), ut.tensor([[1], [0]]), dim=1)
    tensor([[2.],
            [3.]])
    """
    dim = axis if dim is None else dim
    input, indices = [as_operand("take_along_dim", "input", t) for t in (input, indices)]
    if indices.dtype != dtypes.int64:
        name = type_name(indices)
        raise RuntimeError(f"take_along_dim(): dtype of indices should be Long but got {name}")
    if dim is None:
        flat = [t if t.ndim == 1 else reshape(t, (-1,)) for t in (input, indices)]
        return gather(flat[0], 0, _wrapped_index(flat[1], flat[0].shape[0], 0))
    if input.ndim != indices.ndim:
        raise RuntimeError(
            "take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    dim = wrap_dim(dim, input.ndim)
    shapes = [[1 if d == dim else n for d, n in enumerate(t.shape)] for t in (input, indices)]
    common = broadcast_shapes([tuple(s) for s in shapes])
    expanded = [broadcast_to(t, (*common[:dim], t.shape[dim], *common[dim + 1 :])) for t in (input, indices)]
    return gather(expanded[0], dim, _wrapped_index(expanded[1], input.shape[dim], dim))


def _wrapped_index_array(xp: Namespace, index: Array, size: int, dim: int) -> Array:
    check_wrapping_range(index, size, dim)
    return from_front(xp, index, size)


_wrapped_index = nondifferentiable("_wrapped_index", forward=_wrapped_index_array, inputs=("index",))


@adapter("take_along_axis")
def numpy_take_along_axis(x: Array, indices: Array, axis: int | None = -1) -> Array:
    return take_along_dim(x, indices, axis)


# ---- scatter


def _scatter_array(xp: Namespace, input: Array, dim: int, index: Array, src: Array) -> Array:
    positions = positions_of(xp, "scatter", input, dim, index)
    out = xp.array(input, order="C")
    out.reshape(-1)[positions.reshape(-1)] = src.reshape(-1)
    return out


def _gather_written_array(xp: Namespace, input: Array, dim: int, index: Array) -> Array:
    """gather, with zeros where a later index names the same element: the transpose of scatter into zeros."""
    positions = positions_of(xp, "scatter", input, dim, index)
    last = last_at(xp, input.size, positions)
    return xp.where(last, input.reshape(-1).take(positions), xp.zeros((), input.dtype))


def _scatter_number_array(xp: Namespace, input: Array, dim: int, index: Array, value: Any) -> Array:
    positions = positions_of(xp, "scatter", input, dim, index)
    value = cast_number("scatter", value, input.dtype)
    out = xp.array(input, order="C")
    out.reshape(-1)[positions.reshape(-1)] = value
    return out


def scatter_add_array(xp: Namespace, input: Array, dim: int, index: Array, src: Array) -> Array:
    return combine_along(xp, xp.array(input, order="C"), dim, index, src)


_scatter = primitive(
    "_scatter",
    forward=_scatter_array,
    vjp={
        "input": lambda xp, g, dim, index: xp._scatter_number(g, dim, index, 0),
        "src": lambda xp, g, dim, index: xp._gather_written(g, dim, index),
        "index": None,
    },
    jvp=LINEAR,
    batch=along(dim=1),
)

_gather_written = primitive(
    "_gather_written",
    forward=_gather_written_array,
    vjp={
        "input": lambda xp, g, input_shape, dim, index: xp._scatter(xp._zeros_for(g, input_shape), dim, index, g),
        "index": None,
    },
    jvp=LINEAR,
    batch=along(dim=1),
)

_scatter_number = primitive(
    "_scatter_number",
    forward=_scatter_number_array,
    vjp={"input": lambda xp, g, dim, index: xp._scatter_number(g, dim, index, 0), "index": None},
    jvp={"input": lambda xp, t, dim, index: xp._scatter_number(t, dim, index, 0)},
    batch=along(dim=1),
    node="ScatterBackward1",
)

_scatter_add = primitive(
    "_scatter_add",
    forward=scatter_add_array,
    vjp={
        "input": lambda xp, g: g,
        "src": lambda xp, g, dim, index: xp.gather(g, dim, index),
        "index": None,
    },
    jvp=LINEAR,
    batch=along(dim=1),
)


@composite(variants="function method in_place", out=True, overlap="any")
def scatter(
    input: Array,
    dim: int,
    index: Array,
    src: Array | None = None,
    *,
    value: Array | None = None,
    reduce: str | None = None,
) -> Array:
    """The tensor with `src` (a tensor, or a number) at the places that `index` names along `dim`.

    Of several writes to a place the last remains, and only that one has a gradient. `reduce` "add" or
    "multiply" combines them with what is there.

    value  the number to put there, by name, in the place of `src`

    >>> import undertow as ut
    >>> ut.scatter(ut.zeros(3), 0, ut.tensor([2, 0]), ut.tensor([1.0, 2.0]))
    tensor([2., 0., 1.])
    """
    src = value if src is None else src
    if reduce not in (None, "add", "multiply"):
        raise RuntimeError(f"reduce argument must be either add or multiply. Got {reduce!r}.")
    if src is None:
        raise TypeError("scatter() takes a tensor `src` or a number `value`; neither was given")
    if not isinstance(src, NUMBERS):
        src = fitted("scatter", input, dim, index, src)
        if reduce is None:
            return _scatter(input, dim, index, src)
    elif reduce is None:
        return _scatter_number(input, dim, index, src)
    else:
        src = Tensor(input._xp.full(index.shape, cast_number("scatter", src, input.dtype)), input._xp)
    if reduce == "add":
        return _scatter_add(input, dim, index, src)
    return scatter_reduce(input, dim, index, src, "prod")


@composite(variants="function method in_place", out=True, overlap="any")
def scatter_add(input: Array, dim: int, index: Array, src: Array) -> Array:
    """The tensor with `src` added at the places that `index` names along `dim`, as often as it names them.

    >>> import undertow as ut
    >>> ut.scatter_add(ut.zeros(3), 0, ut.tensor([0, 0]), ut.ones(2))
    tensor([2., 0., 0.])
    """
    if isinstance(src, NUMBERS):
        raise TypeError(f"scatter_add(): argument 'src' (position 3) must be Tensor, not {type(src).__name__}")
    return _scatter_add(input, dim, index, fitted("scatter", input, dim, index, src))
