"""Slices named by a vector (index_select and its kin), elements by flat position (take, put)."""

from __future__ import annotations

from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, DType, Namespace
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.arguments.operands import NUMBERS, type_name
from undertow.ops.create.creation import fit
from undertow.ops.declare import adapter, composite, nondifferentiable, primitive
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.batch_in_front import loop
from undertow.ops.declare.rules.shifted_dims import along
from undertow.ops.index.index_arrays import (
    ALL,
    INTEGERS,
    add_at,
    add_flat,
    check_range,
    from_front,
    last_at,
    set_at,
    taken,
)
from undertow.ops.index.index_tensors import recorded_index_at

LONG = (dtypes.int64,)


# ---- checks


def check_vector(
    op: str, index: Array, allowed: tuple[Any, ...] = INTEGERS, error: type[Exception] = RuntimeError
) -> None:
    if index.ndim > 1:
        raise IndexError(f"{op}(): Index is supposed to be a vector; Index has to be a vector/scalar")
    if index.dtype not in allowed:
        expected = "a long tensor (Expected dtype int64)" if allowed is LONG else "dtype int32 or int64"
        raise error(f"{op}(): Expected {expected} for index, but got {type_name(index)}")


def _check_same_dtype(op: str, input: Array, source: Array) -> None:
    if input.dtype != source.dtype:
        mine, its = type_name(input), type_name(source)
        raise RuntimeError(
            f"{op}(): self and source expected to have the same dtype, but got (self) {mine} and (source) {its}: self "
            f"({mine}) and source ({its}) must have the same scalar type. Convert one of them with .to(dtype)."
        )


def check_source(op: str, input: Array, dim: int, index: Array, source: Array) -> None:
    """Refuse a source that is not one slice per index."""
    if op == "index_add_":
        _check_same_dtype(op, input, source)
        if input.ndim != source.ndim:
            raise RuntimeError(_unlike_slices(op, input, source))
    if source.ndim and input.ndim != source.ndim:
        raise IndexError(
            f"{op}(): When source and destination are not scalars, their dimensionality must match. Source "
            f"dimensionality ({source.ndim}), destination dimensionality ({input.ndim})"
        )
    if index.size != (source.shape[dim] if source.ndim else 1):
        raise (IndexError if op == "index_copy_" else RuntimeError)(
            f"{op}(): Number of indices ({index.size}) should be equal to source.size(dim): "
            f"({source.shape[dim] if source.ndim else 1}), for dim: {dim}"
        )
    _check_same_dtype(op, input, source)
    others = [tuple(a.shape[:dim]) + tuple(a.shape[dim + 1 :]) for a in (input, source)]
    if others[0] != others[1]:
        raise RuntimeError(_unlike_slices(op, input, source))


def _unlike_slices(op: str, input: Array, source: Array) -> str:
    return (
        f"{op}(): Source/destination tensor must have same slice shapes: source tensor shape must match self tensor "
        f"shape, excluding the specified dimension. Got self.shape = {list(input.shape)} source.shape = "
        f"{list(source.shape)}"
    )


def cast_number(op: str, value: Any, dtype: DType) -> Array:
    """A Python number as a 0-d array of a tensor's dtype."""
    if type(value) is complex and dtype.kind != "c":
        raise RuntimeError(
            f"{op}(): value cannot be converted to type {dtype} without overflow; Converting complex Scalar to "
            "non-complex type is not supported"
        )
    return cpu.array(fit(value, dtype), dtype)


def check_real(op: str, value: Array, dtype: DType) -> None:
    """Refuse a complex number for a tensor that is not."""
    if value.dtype.kind == "c" and dtype.kind != "c" and (op == "index_fill_" or value.imag.any()):
        raise RuntimeError(
            f"{op}(): value cannot be converted to type {dtype} without overflow; Converting complex Scalar to "
            "non-complex type is not supported"
        )


# ---- slices named by a vector


def slices(input: Array, dim: int, index: Array) -> tuple[Any, ...]:
    """The key of the slices of dimension `dim` that a vector names; a 0-d array is its own only slice."""
    return (ALL,) * dim + (index.reshape(-1),) if input.ndim else (Ellipsis,)


def _index_select_array(xp: Namespace, input: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    check_vector("index_select", index)
    dim = wrap_dim(dim, input.ndim)
    if not input.ndim and index.size != 1:
        raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {index.size} value(s)")
    if not input.size and index.size:
        _check_selection_of_nothing(input.shape[dim], index)
    check_range(index, input.shape[dim] if input.ndim else 1, dim, IndexError, "index out of range in self: ")
    return taken(xp, input, index.reshape(-1), dim) if input.ndim else input.copy()


def _check_selection_of_nothing(size: int, index: Array) -> None:
    if not size:
        raise RuntimeError("index_select(): self indexing axis dim should be positive: there is nothing to select from")
    if index.max() >= size or index.min() < 0:
        raise RuntimeError(f"INDICES element is out of DATA bounds, id={int(index.max())} axis_dim={size}")


def _index_select_gradient(xp: Namespace, grad: Array, input_sizes: tuple[int, ...], dim: int, index: Array) -> Array:
    out = xp.zeros(input_sizes, grad.dtype)
    return add_at(xp, out, slices(out, wrap_dim(dim, out.ndim), index), grad) if out.ndim else grad.copy()


def _index_select_rule(
    xp: Namespace, g: Array, input_shape: tuple[int, ...], dim: int, index: Array, sparse_grad: bool
) -> Array:
    if not sparse_grad:
        return xp.index_select_backward(g, input_shape, dim, index)
    dim = wrap_dim(dim, len(input_shape))
    blocks = xp.reshape(g, (-1, *input_shape[dim + 1 :]))
    return xp._sparse_coo(blocks, xp._slice_places(index, input_shape, dim), input_shape)


index_select = primitive(
    "index_select",
    forward=_index_select_array,
    vjp={"input": _index_select_rule, "index": None},
    jvp=LINEAR,
    batch=along(dim=1, shared=2),
    variants="function method",
    overlap="any",
)

index_select_backward = primitive(
    "index_select_backward",
    forward=_index_select_gradient,
    vjp={"grad": lambda xp, g, dim, index: xp.index_select(g, dim, index), "index": None},
    jvp=LINEAR,
    batch=along(dim=2, sizes=1, shared=3),
    variants="",
)


def _index_add_array(xp: Namespace, input: Array, dim: int, index: Array, source: Array, *, alpha: Any = 1) -> Array:
    check_vector("index_add_", index)
    dim = wrap_dim(dim, input.ndim)
    check_source("index_add_", input, dim, index, source)
    check_range(index, input.shape[dim] if input.ndim else 1, dim)
    out = xp.array(input, order="C")
    if alpha != 1:
        if dtypes.kind_of(input.dtype) == "u":  # -1 is the number that subtracts, which NumPy says of arrays only
            alpha = xp.asarray(alpha).astype(input.dtype)
        source = (alpha * source).astype(input.dtype)
    return add_at(xp, out, slices(out, dim, index), source) if out.ndim else out + source


index_add = primitive(
    "index_add",
    forward=_index_add_array,
    vjp={
        "input": lambda xp, g: g,
        "source": lambda xp, g, dim, index, alpha: xp.index_select(g, dim, index) * alpha,
        "index": None,
    },
    jvp=LINEAR,
    batch=along(dim=1, shared=2),
    variants="function method in_place",
    overlap="any",
)


def _index_copy_array(xp: Namespace, input: Array, dim: int, index: Array, source: Array) -> Array:
    if not input.ndim:
        return _index_copy_array(xp, input.reshape(1), dim, index, source).reshape(())
    check_vector("index_copy_", index, LONG)
    dim = wrap_dim(dim, input.ndim)
    check_source("index_copy_", input, dim, index, source)
    check_range(index, input.shape[dim], dim, IndexError, "index_copy_(): ")
    out = xp.array(input, order="C")
    return set_at(xp, out, slices(out, dim, index), source)


def _index_copied_array(xp: Namespace, input: Array, dim: int, index: Array) -> Array:
    """index_select, but zero where a later index names the same slice: the transpose of copying to zeros."""
    found = _index_select_array(xp, input, dim, index)
    if not input.ndim:
        return found
    dim = wrap_dim(dim, input.ndim)
    last = last_at(xp, input.shape[dim], index.reshape(-1))
    found[(ALL,) * dim + (~last,)] = 0
    return found


index_copy = primitive(
    "index_copy",
    forward=_index_copy_array,
    vjp={
        "input": lambda xp, g, dim, index: xp._index_fill_number(g, dim, index, 0),
        "source": lambda xp, g, dim, index, source_shape: xp.reshape(xp._index_copied(g, dim, index), source_shape),
        "index": None,
    },
    jvp=LINEAR,
    batch=along(dim=1, shared=2),
    variants="function method in_place",
    overlap="any",
)

_index_copied = primitive(
    "_index_copied",
    forward=_index_copied_array,
    vjp={
        "input": lambda xp, g, input_shape, dim, index: xp.index_copy(xp._zeros_for(g, input_shape), dim, index, g),
        "index": None,
    },
    jvp=LINEAR,
    batch=along(dim=1, shared=2),
    order="first",
)


def _index_fill_array(xp: Namespace, input: Array, dim: int, index: Array, value: Array) -> Array:
    check_vector("index_fill_", index, LONG, IndexError)
    dim = wrap_dim(dim, input.ndim)
    if not hasattr(value, "ndim"):
        value = cast_number("index_fill_", value, input.dtype)
    if value.ndim:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    check_real("index_fill_", value, input.dtype)
    out = xp.array(input, order="C")
    key = slices(out.reshape(1) if not out.ndim else out, dim, index)
    set_at(xp, out.reshape(1) if not out.ndim else out, key, value.astype(input.dtype))
    return out


_index_fill_number = primitive(
    "_index_fill_number",
    forward=_index_fill_array,
    vjp={"input": lambda xp, g, dim, index: xp._index_fill_number(g, dim, index, 0), "index": None},
    jvp={"input": lambda xp, t, dim, index: xp._index_fill_number(t, dim, index, 0)},
    batch=along(dim=1, shared=2),
    node="IndexFillBackward0",
    order="first",
)

_index_fill_tensor = primitive(
    "_index_fill_tensor",
    forward=_index_fill_array,
    vjp={
        "input": lambda xp, g, dim, index: xp._index_fill_number(g, dim, index, 0),
        "value": lambda xp, g, dim, index: xp.index_select(g, dim, xp._distinct_index(index, g.shape, dim)),
        "index": None,
    },
    jvp=LINEAR,
    batch=loop,
    node="IndexFillBackward1",
    order="first",
)

_distinct_index = nondifferentiable(
    "_distinct_index",
    forward=lambda xp, index, sizes, dim: xp.unique(from_front(xp, index, sizes[dim] if sizes else 1)),
    inputs=("index",),
)


@composite(variants="function method in_place")
def index_fill(input: Array, dim: int, index: Array, value: Array) -> Array:
    """The tensor with the slices of `dim` that `index` names filled with a number or a 0-d tensor.

    value  a number, or a 0-d tensor, to which gradients flow

    >>> import undertow as ut
    >>> ut.index_fill(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), 0, ut.tensor([1]), 0.0)
    tensor([[1., 2.],
            [0., 0.]])
    """
    fill = _index_fill_number if isinstance(value, NUMBERS) else _index_fill_tensor
    return fill(input, dim, index, value)


# ---- elements by flat position


def _take_array(xp: Namespace, input: Array, index: Array) -> Array:
    _check_flat("take", input, index)
    return input.reshape(-1).take(index)


def _check_flat(op: str, input: Array, index: Array) -> None:
    if index.dtype != dtypes.int64:
        raise RuntimeError(f"{op}(): Expected a long tensor for index, but got {type_name(index)}")
    size = input.size
    if index.size and (index.min() < -size or index.max() >= size):
        bad = index[(index < -size) | (index >= size)].reshape(-1)[0]
        raise IndexError(f"out of range: tried to access index {int(bad)} on a tensor of {size} elements.")


def _take_written_array(xp: Namespace, input: Array, index: Array) -> Array:
    """take, with zeros where a later index names the same element: the transpose of put into zeros."""
    last = last_at(xp, input.size, from_front(xp, index, input.size))
    return xp.where(last, _take_array(xp, input, index), xp.zeros((), input.dtype))


def _put_array(xp: Namespace, input: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    _check_flat("put_", input, index)
    _check_same_dtype("put_", input, source)
    if index.size != source.size:
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{source.size}, index.numel() = {index.size}"
        )
    out = xp.array(input, order="C")
    positions = from_front(xp, index, input.size).reshape(-1)
    if accumulate:
        return add_flat(xp, out, positions, source.reshape(-1))
    out.reshape(-1)[positions] = source.reshape(-1)
    return out


take = primitive(
    "take",
    forward=_take_array,
    vjp={
        "input": lambda xp, g, input_shape, index: xp._put(xp._zeros_for(g, input_shape), index, g, True),
        "index": None,
    },
    jvp=LINEAR,
    batch=loop,
    variants="function method",
    overlap="any",
)

_take_written = primitive(
    "_take_written",
    forward=_take_written_array,
    vjp={
        "input": lambda xp, g, input_shape, index: xp._put(xp._zeros_for(g, input_shape), index, g, False),
        "index": None,
    },
    jvp=LINEAR,
    batch=loop,
)

_put = primitive(
    "_put",
    forward=_put_array,
    vjp={
        "input": lambda xp, g, index, accumulate: (
            g if accumulate else xp._put(g, index, xp._zeros_for(g, tuple(index.shape)), False)
        ),
        "source": lambda xp, g, index, source_shape, accumulate: xp.reshape(
            (xp.take if accumulate else xp._take_written)(g, index), source_shape
        ),
        "index": None,
    },
    jvp=LINEAR,
    batch=loop,
    order="first",
)


@composite(variants="function method in_place", overlap="any")
def put(input: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    """The tensor with `source` at flat positions: added, or (the last of several) in place of the old.

    index       positions in the flattened tensor, of any shape; negative ones count from the end
    accumulate  add, instead of putting in the place of the old

    >>> import undertow as ut
    >>> ut.zeros(3).put(ut.tensor([1]), ut.tensor([5.0]))
    tensor([0., 5., 0.])
    """
    return _put(input, index, source, accumulate)


@adapter("take")
def numpy_take(x: Array, indices: Array, axis: int | None = None) -> Any:
    if axis is None:
        return take(x, indices)
    return recorded_index_at(x, (indices,), (None,) * wrap_dim(axis, x.ndim) + (0,))
