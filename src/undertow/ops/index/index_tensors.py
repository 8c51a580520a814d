"""Reading and writing at index tensors: what `x[i, :, j]` and `x[i, :, j] = v` compute.

Note [Families]: an operation on a varying number of index tensors is declared once for each number, when it
is first needed. So index tensors are inputs like any other: saved, checked for in-place changes, hooked,
batched. `places` says which index tensor stands where: (0, None, 1) for x[i, :, j].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from undertow.backend import ArrayNamespace, dtypes
from undertow.backend.interface import Array, Namespace
from undertow.backend.memory_order import laid_out, nesting, strides_within
from undertow.graph.saved import SavedTensor
from undertow.ops.declare import Op, adapter
from undertow.ops.declare.apply import build as build_op
from undertow.ops.declare.formula import taking
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.batch_in_front import in_front, loop
from undertow.ops.index.index_arrays import (
    ALL,
    add_at,
    broadcast_shape,
    check_key,
    flat_positions,
    indexed_shape,
    is_mask,
    last_at,
    neighbours,
    set_at,
    take_at,
)
from undertow.ops.views.dimensions import movedim

if TYPE_CHECKING:
    from undertow.graph.node import Node
    from undertow.ops.declare.rules.batch_in_front import InDims

Places = tuple[int | None, ...]
Arrays = Sequence[Any]


def key_of(indices: Arrays, places: Places) -> tuple[Any, ...]:
    return tuple([ALL if place is None else indices[place] for place in places])


# ---- on arrays; rules reach these, and their recorded twins below, as xp.index_at(...)


def index_at(xp: Namespace, input: Array, indices: Arrays, places: Places) -> Array:
    return take_at(xp, input, key_of(indices, places))


def index_in_order(xp: Namespace, input: Array, indices: Arrays, places: Places) -> Array:
    """index_at, its elements in memory as an elementwise operation on input and indices would leave them."""
    out = index_at(xp, input, indices, places)
    if out.flags.c_contiguous and all([a.flags.c_contiguous for a in (input, *indices)]):
        return out
    return laid_out(out, nesting(out.shape, strides_of_operands(input, key_of(indices, places))))


def strides_of_operands(input: Array, key: tuple[Any, ...]) -> list[list[int]]:
    """The strides of input and indices along the dimensions of what the key selects."""
    found = [1 if item.dtype.kind == "b" else item.ndim for item in key if item is not ALL]
    taken = [k for k, item in enumerate(key) if item is not ALL]
    middle, dim = [0] * max(found), 0
    front: list[int] = []
    back: list[int] = []
    for k, item in enumerate(key):
        if item is ALL:
            (front if k < taken[0] and neighbours(taken) else back).append(input.strides[dim])
        dim += item.ndim if item is not ALL and item.dtype.kind == "b" else 1
    back += input.strides[dim:]
    whole = [[*front, *middle, *back]]
    for item in [key[k] for k in taken if key[k].dtype.kind != "b"]:
        own = strides_within(item, [0] * len(middle))
        whole.append([*[0] * len(front), *own, *[0] * len(back)])
    return whole


def index_into_zeros(xp: Namespace, input: Array, indices: Arrays, places: Places, sizes: tuple[int, ...]) -> Array:
    """Zeros of the given sizes with `input` added at the indices: the transpose of index_at."""
    out, key = xp.zeros(sizes, input.dtype), key_of(indices, places)
    return (set_at if is_mask(key) else add_at)(xp, out, key, input)


def index_write(xp: Namespace, input: Array, values: Array, indices: Arrays, places: Places, accumulate: bool) -> Array:
    """A copy of `input` with values written, or added, at the indices."""
    key = key_of(indices, places)
    check_values(xp, input, values, key)
    if accumulate:
        check_key(input.shape, key)
    return (add_at if accumulate else set_at)(xp, xp.array(input, order="C"), key, values)


def index_written(xp: Namespace, input: Array, indices: Arrays, places: Places) -> Array:
    """index_at, but zero where a later index names the same element: the transpose of writing into zeros."""
    key = key_of(indices, places)
    found = take_at(xp, input, key)
    if is_mask(key):
        return found
    last = last_at(xp, input.size, flat_positions(xp, input.shape, key))
    return xp.where(last, found, xp.zeros((), found.dtype))


def check_values(xp: Namespace, input: Array, values: Array, key: tuple[Any, ...]) -> None:
    """Refuse values that do not fit what the key selects."""
    if values.ndim:
        check_key(input.shape, key)
        target = indexed_shape(xp, input.shape, key)
        if broadcast_shape([values.shape, target]) != target:
            raise RuntimeError(
                f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of "
                f"shape {list(target)}"
            )
    if values.dtype != input.dtype:
        names = dtypes.SCALAR_NAMES
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {names[input.dtype]} for the "
            f"destination and {names[values.dtype]} for the source."
        )


# ---- recorded: see Note [Families]


def build(
    name: str,
    names: Sequence[str],
    n: int,
    forward: Callable[..., Any],
    vjp: dict[str, Rule],
    batch: Callable[..., Any],
    node: str | None = None,
    order: str | None = None,
) -> Any:
    """The operation for n index tensors.

    names    what the forward takes; "indices" stands for the tensors, which forward and rules get as a tuple
    vjp      for each input its rule, and what that takes behind the gradient
    """
    op = Op(
        f"{name}_{n}",
        with_indices(forward, names, n),
        {i: with_indices(rule, ("g", *taken), n) for i, (rule, taken) in vjp.items()} | dict.fromkeys(index_names(n)),
        jvp=LINEAR,
        batch=batch,
        node=node,
        order=order,
    )
    build_op(op)
    op.function.op = op
    _show_saved_indices(op.node_class)
    return op.function


#: a rule, and the names of what it takes behind `xp` and `g`
Rule = tuple[Callable[..., Any], Sequence[str]]


def index_names(n: int) -> list[str]:
    return [f"index{k}" for k in range(n)]


def with_indices(function: Callable[..., Any], names: Sequence[str], n: int) -> Callable[..., Any]:
    """A function that takes n index tensors by names of their own, where `function` takes a tuple `indices`."""
    place, indices = names.index("indices"), index_names(n)
    before, listed, after = [
        [("argument", name) for name in part] for part in (names[:place], indices, names[place + 1 :])
    ]
    formula = ("call", None, ("constant", function), ("namespace",), *before, ("tuple", *listed), *after)

    @taking([*names[:place], *indices, *names[place + 1 :]], formula)
    def spread(xp: Namespace, *values: Any) -> Array:
        return function(xp, *values[:place], values[place : place + n], *values[place + n :])

    return spread


def _show_saved_indices(node_class: Any) -> None:
    """PyTorch's `_saved_indices`: a tuple with None for dimensions that no tensor indexes."""

    def listed(prefix: str, absent: Callable[[], Any]) -> property:
        def read(node: Node) -> tuple[Any, ...]:
            return tuple([absent() if k is None else getattr(node, f"{prefix}{k}") for k in node._saved_places])

        return property(read)

    node_class._saved_indices = listed("_saved_index", lambda: None)
    node_class._raw_saved_indices = listed("_raw_saved_index", lambda: SavedTensor(None))


@cache
def index_op(n: int) -> Any:
    return build(
        "index",
        ("input", "indices", "places"),
        n,
        index_in_order,
        {
            "input": (
                lambda xp, g, indices, places, shape: xp.index_into_zeros(g, indices, places, shape),
                ("indices", "places", "input_shape"),
            )
        },
        _batch_reading,
        node="IndexBackward0",
        order="as_computed",
    )


@cache
def into_zeros_op(n: int) -> Any:
    return build(
        "index_into_zeros",
        ("input", "indices", "places", "sizes"),
        n,
        index_into_zeros,
        {"input": (lambda xp, g, indices, places: xp.index_at(g, indices, places), ("indices", "places"))},
        _batch_into_zeros,
    )


@cache
def written_op(n: int) -> Any:
    return build(
        "index_written",
        ("input", "indices", "places"),
        n,
        index_written,
        {
            "input": (
                lambda xp, g, indices, places, shape: xp.index_write(
                    xp._zeros_for(g, shape), g, indices, places, False
                ),
                ("indices", "places", "input_shape"),
            )
        },
        _batch_reading,
    )


def gradient_of_overwritten(xp: Namespace, g: Array, indices: Array, places: Places, accumulate: bool) -> Array:
    return g if accumulate else xp.index_write(g, xp._zeros_for(g, ()), indices, places, False)


def gradient_of_written(xp: Namespace, g: Array, indices: Array, places: Places, accumulate: bool) -> Array:
    return (xp.index_at if accumulate else xp.index_written)(g, indices, places)


@cache
def write_op(n: int) -> Any:
    taken = ("indices", "places", "accumulate")
    return build(
        "index_put",
        ("input", "values", *taken),
        n,
        index_write,
        {"input": (gradient_of_overwritten, taken), "values": (gradient_of_written, taken)},
        loop,
        node="IndexPutBackward0",
        order="first",
    )


for _kernel in (index_at, index_into_zeros, index_written, index_write):
    ArrayNamespace.define(_kernel.__name__, _kernel)


@adapter("index_at")
def recorded_index_at(input: Array, indices: Arrays, places: Places) -> Array:
    return index_op(len(indices))(input, *indices, places)


@adapter("index_into_zeros")
def recorded_index_into_zeros(input: Array, indices: Arrays, places: Places, sizes: tuple[int, ...]) -> Array:
    return into_zeros_op(len(indices))(input, *indices, places, sizes)


@adapter("index_written")
def recorded_index_written(input: Array, indices: Arrays, places: Places) -> Array:
    return written_op(len(indices))(input, *indices, places)


@adapter("index_write")
def recorded_index_write(input: Array, values: Array, indices: Arrays, places: Places, accumulate: bool) -> Array:
    return write_op(len(indices))(input, values, *indices, places, accumulate)


# ---- batching: one more whole dimension in front, or a loop where the indices themselves differ


def _batch_reading(call: Callable[..., Any], args: Arrays, in_dims: InDims) -> tuple[Any, int]:
    input, *indices, places = args
    if any(d is not None for d in in_dims[1:]):
        return loop(call, args, in_dims)
    out = call(in_front(input, in_dims[0]), *indices, (None, *places))
    return out, _batch_place(indices, places)


def _batch_into_zeros(call: Callable[..., Any], args: Arrays, in_dims: InDims) -> tuple[Any, int]:
    input, *indices, places, sizes = args
    if any(d is not None for d in in_dims[1:]):
        return loop(call, args, in_dims)
    size = input.shape[in_dims[0]]
    moved = movedim(input, in_dims[0], _batch_place(indices, places))
    return call(moved, *indices, (None, *places), (size, *sizes)), 0


def _batch_place(indices: Arrays, places: Places) -> int:
    """Where a whole dimension in front of all others stands in what the indices select."""
    if neighbours([k for k, place in enumerate(places) if place is not None]):
        return 0
    return max(1 if i._array.dtype.kind == "b" else i._array.ndim for i in indices)
