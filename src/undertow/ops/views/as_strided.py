"""as_strided: any sizes and strides over the memory that an array lies in.

What as_strided shows depends on where the elements of its input lie, so the input's geometry (shape, strides
and offset, counted in elements of its memory) is part of the operation. Its gradient goes through a stretch
of memory of its own: each output element adds its gradient where it was read from, and each input element
picks up what lies in its place. What lies where several input elements are (an expanded input) is shared
among them evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend.interface import Array, DType, Namespace
from undertow.ops.arguments.sizes import ints
from undertow.ops.declare import composite, primitive
from undertow.ops.declare import view as declare_view
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import LINEAR, LOOP
from undertow.ops.pointwise.complex import _view_as_complex, view_as_real
from undertow.ops.views.dimensions import movedim
from undertow.ops.views.splitting import unbind
from undertow.tensor.extra import INFERENCE, NO_GRAD
from undertow.tensor.memory import byte_offset, memory_of

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims


class Geometry:
    """Where the elements of an array lie: shape, strides and offset in elements. It is never changed."""

    __slots__ = ("offset", "shape", "strides")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> None:
        self.shape, self.strides, self.offset = shape, strides, offset

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Geometry):
            return NotImplemented
        return (self.shape, self.strides, self.offset) == (other.shape, other.strides, other.offset)

    def __hash__(self) -> int:
        return hash((self.shape, self.strides, self.offset))

    def bounds(self) -> tuple[int, int]:
        """The lowest place, and the one behind the highest."""
        if 0 in self.shape:
            return self.offset, self.offset
        steps = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        return self.offset + sum([s for s in steps if s < 0]), self.offset + sum([s for s in steps if s > 0]) + 1

    def places(self, xp: Namespace) -> Array:
        """The place in memory of every element, in the array's shape."""
        places = xp.asarray(self.offset)
        for dim, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            places = places + (xp.arange(n) * stride).reshape((n,) + (1,) * (len(self.shape) - dim - 1))
        return places

    def overlaps(self, xp: Namespace) -> bool:
        """Whether two elements lie in the same place."""
        extent = 1
        for n, stride in sorted(zip(self.shape, self.strides, strict=True), key=lambda d: abs(d[1])):
            if n > 1 and abs(stride) < extent:
                places = self.places(xp)
                return bool(xp.unique(places).size < places.size)
            extent += (n - 1) * abs(stride)
        return False

    def lies_in(self, other: Geometry, xp: Namespace) -> bool:
        """Whether every place is one of the other's."""
        low, high = self.bounds()
        if low == high or other.is_dense():
            return low == high or other.bounds()[0] <= low < high <= other.bounds()[1]
        return bool(xp.isin(self.places(xp), other.places(xp)).all())

    def is_dense(self) -> bool:
        """Whether no place between the first and the last is left out, and none shown twice."""
        expected = 1
        for n, stride in sorted(zip(self.shape, self.strides, strict=True), key=lambda d: d[1]):
            if n > 1 and stride != expected:
                return False
            expected *= n
        return 0 not in self.shape


def geometry_of(xp: Namespace, array: Array) -> Geometry:
    offset = byte_offset(xp, array)
    if any(s % array.itemsize for s in (offset, *array.strides)):
        raise RuntimeError(
            f"the elements of this array lie {array.strides} bytes apart, from byte {offset} on: not a "
            f"multiple of their size, {array.itemsize}. Use a clone() of it."
        )
    strides = tuple([s // array.itemsize for s in array.strides])
    return Geometry(array.shape, strides, offset // array.itemsize)


def _target_geometry(
    size: Sequence[int], stride: Sequence[int], storage_offset: int | None, source: Geometry
) -> Geometry:
    return Geometry(tuple(size), tuple(stride), source.offset if storage_offset is None else storage_offset)


# ---- the view


def _restride(
    xp: Namespace,
    input: Array,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    storage_offset: int | None,
    source: Geometry,
) -> Array:
    target = _target_geometry(size, stride, storage_offset, source)
    if geometry_of(xp, input) != source:
        return _read_elsewhere(xp, input, source, target)
    memory = memory_of(xp, input)
    if target.bounds()[1] * input.itemsize >= 2**63:
        raise RuntimeError(
            f"Storage size calculation overflowed with sizes={list(size)} and strides={list(stride)}: no memory has "
            "that many bytes"
        )
    if target.bounds()[1] > memory.size and 0 not in size:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {target.offset}, and "
            f"itemsize {input.itemsize} requiring a storage size of {target.bounds()[1] * input.itemsize} "
            f"are out of bounds for storage of size {memory.size * input.itemsize}"
        )
    strides = tuple([s * input.itemsize for s in stride])
    out = xp.lib.stride_tricks.as_strided(memory[target.offset :], size, strides)
    if target.overlaps(xp):
        out.flags.writeable = False
    return out


def _read_elsewhere(xp: Namespace, input: Array, source: Geometry, target: Geometry) -> Array:
    """What as_strided of `source` shows, for elements that lie otherwise: a copy, which cannot be changed."""
    if not target.lies_in(source, xp):
        raise RuntimeError(
            f"as_strided: memory was read that lies outside of the tensor ({target} of {source}), and "
            "cannot be read again for a tensor laid out otherwise"
        )
    out = xp.asarray(_carry(xp, input, source, target, source))  # NumPy makes a scalar of a single element
    out.flags.writeable = False
    return out


def _batch_restride(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    """A view where all examples lie in one memory as `source` says, a step apart; else a copy for each."""
    input, size, stride, storage_offset, source = args
    batch = in_dims[0]
    whole = geometry_of(input._xp, input._array)
    steps, step = without(whole.strides, batch), whole.strides[batch]
    if len(source.shape) == len(whole.shape):
        source = Geometry(without(whole.shape, batch), steps, whole.offset)
    target = _target_geometry(size, stride, storage_offset, source)
    low, high = source.bounds()
    if 0 not in size and not low <= target.bounds()[0] <= target.bounds()[1] <= high:
        raise RuntimeError(
            f"vmap: as_strided with sizes {list(size)} and strides {list(stride)} can access memory outside of "
            "`tensor`, which is one example"
        )
    if steps != source.strides:
        examples = unbind(input, batch)
        return recorded.stack([as_strided_gather(e, source, target) for e in examples]), 0
    offset = whole.offset + target.offset - source.offset
    return as_strided(input, (whole.shape[batch], *size), (step, *stride), offset), 0


def without(values: tuple[int, ...], place: int) -> tuple[int, ...]:
    return values[:place] + values[place + 1 :]


_as_strided = declare_view(
    "_as_strided",
    forward=_restride,
    vjp={
        "input": lambda xp, g, size, stride, storage_offset, source: xp.as_strided_backward(
            g, source, _target_geometry(size, stride, storage_offset, source)
        )
    },
    batch=_batch_restride,
)


@composite(variants="function method in_place_function")
def as_strided(input: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Array:
    """A view of the memory behind `input` with any sizes, strides and offset, all counted in elements.

    Elements may appear more than once (then the view is read-only); none may lie outside the memory.
    Gradients reach all memory of the tensor that `input` is a view of.

    >>> import undertow as ut
    >>> ut.as_strided(ut.tensor([1.0, 2.0, 3.0]), (2, 2), (1, 1))
    tensor([[1., 2.],
            [2., 3.]])
    """
    size, stride = ints((size,)), ints((stride,))
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: {len(stride)} strides, {len(size)} sizes")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    if any(n < 0 for n in size):
        raise RuntimeError(f"as_strided: sizes must not be negative, got {list(size)}")
    if storage_offset is not None and storage_offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {storage_offset}")
    source = geometry_of(input._xp, getattr(input._array, "first", input._array))  # under vmap, of the first example
    base = None if input._extra is None or input._extra.view is None else input._extra.view.base
    target = _target_geometry(size, stride, storage_offset, source)
    dual = base is not None and input._extra.tangents is not None  # an alias of its base that has a tangent of its own
    if dual and input._edge is not None and not target.lies_in(source, input._xp):
        raise RuntimeError(
            "as_strided: a dual tensor that requires grad is to be read outside of its elements, where it has no "
            "gradient. Take its primal (unpack_dual) first."
        )
    # no gradient reaches the base through a view that was made where none is recorded
    is_cut = base is not None and input._extra.view.creation in (NO_GRAD, INFERENCE)
    if base is None or dual or is_cut or target.lies_in(source, input._xp):
        return _as_strided(input, size, stride, storage_offset, source)
    return _in_memory_of(base, target, input._array.dtype)


def _in_memory_of(base: Array, target: Geometry, dtype: DType) -> Array:
    """What lies outside of a view belongs to its base, and its gradient with it."""
    if dtype.kind == "c" and base.dtype.kind != "c":
        doubled = Geometry((*target.shape, 2), (*[2 * s for s in target.strides], 1), 2 * target.offset)
        return _view_as_complex(_in_memory_of(base, doubled, base.dtype))
    if dtype.kind != "c" and base.dtype.kind == "c":
        base = view_as_real(base)
    return _as_strided(base, target.shape, target.strides, target.offset, geometry_of(base._xp, base._array))


# ---- its linear map, from elements to elements, and the transpose


def _carry(xp: Namespace, values: Array, origin: Geometry, destination: Geometry, shared: Geometry) -> Array:
    """Add `values` to memory in the places of `origin`, then read the places of `destination`.

    A place that `shared` shows several times counts for one of them.
    """
    low = min(origin.bounds()[0], destination.bounds()[0])
    high = max(origin.bounds()[1], destination.bounds()[1])
    memory = xp.zeros(high - low, values.dtype)
    places = origin.places(xp) - low
    if origin.overlaps(xp):
        xp.add.at(memory, places, values)
    else:
        memory[places] = values
    if shared.overlaps(xp):
        shown = xp.bincount((shared.places(xp) - low).ravel(), minlength=high - low)
        memory /= xp.maximum(shown, 1)
    return memory[destination.places(xp) - low]


as_strided_gather = primitive(
    "_as_strided_gather",
    forward=lambda xp, input, source, target: _carry(xp, input, source, target, source),
    vjp={"input": lambda xp, g, source, target: xp.as_strided_backward(g, source, target)},
    jvp=LINEAR,
    batch=LOOP,
)

as_strided_backward = primitive(
    "as_strided_backward",
    forward=lambda xp, grad, source, target: _carry(xp, grad, target, source, source),
    vjp={"grad": lambda xp, g, source, target: xp._as_strided_gather(g, source, target)},
    jvp=LINEAR,
    batch=LOOP,
    variants="",
)


# ---- copies in a given layout


def layout_of(tensor: Array) -> Geometry | None:
    """How the tensor's elements lie; None if row by row in memory of their own."""
    array = tensor._array
    return None if array.flags.c_contiguous and array.base is None else geometry_of(tensor._xp, array)


def order_of(tensor: Array) -> Geometry | None:
    """The tensor's elements in the order in which they lie, without gaps; None if row by row."""
    array = tensor._array
    if array.flags.c_contiguous:
        return None
    strides, step = [0] * array.ndim, 1
    for dim in sorted(range(array.ndim - 1, -1, -1), key=lambda dim: abs(array.strides[dim])):
        strides[dim] = step
        step *= array.shape[dim]
    return Geometry(tuple(array.shape), tuple(strides), 0)


def lay_out(xp: Namespace, input: Array, layout: Geometry | None) -> Array:
    if layout is None or layout.overlaps(xp):
        return input.copy(order="C")
    low, high = layout.bounds()
    memory = xp.zeros(high - min(low, 0), input.dtype)
    strides = tuple([s * input.itemsize for s in layout.strides])
    out = xp.lib.stride_tricks.as_strided(memory[layout.offset - min(low, 0) :], layout.shape, strides)
    out[...] = input
    return out


def _batch_lay_out(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    """One example behind the other, each laid out as it was asked for."""
    input, layout = args
    front = movedim(input, in_dims[0], 0)
    if layout is not None and not layout.overlaps(input._xp):
        low, high = layout.bounds()
        layout = Geometry((front.shape[0], *layout.shape), (high - low, *layout.strides), layout.offset)
    return call(front, layout), 0


# views of a tensor can be taken again of a copy that is laid out as it is
clone_as = primitive(
    "_clone_as",
    forward=lay_out,
    vjp={"input": lambda xp, g: g},
    jvp=LINEAR,
    batch=_batch_lay_out,
    node="CloneBackward0",
    order="as_computed",
)
