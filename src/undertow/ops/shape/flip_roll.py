"""Elements moved about: flip, roll, rot90. Never a view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu
from undertow.backend.interface import Array, Namespace
from undertow.backend.large_arrays import copied
from undertow.backend.memory_order import inverse, of_first
from undertow.ops.arguments.dims import wrap_dim, wrap_dims
from undertow.ops.arguments.sizes import as_int, ints
from undertow.ops.declare import adapter, composite, primitive
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import LINEAR
from undertow.ops.declare.rules.batch_in_front import in_front
from undertow.ops.declare.rules.shifted_dims import shift, shifted
from undertow.ops.views.reshape import reshape

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims

ALL, BACKWARDS = slice(None), slice(None, None, -1)

# ---- moving


def _flip_array(xp: Namespace, input: Array, dims: tuple[int, ...]) -> Array:
    dims = wrap_dims(dims, input.ndim)
    return copied(_reversed_view(xp, input, dims if input.ndim else ()), "C")


def _reversed_view(xp: Namespace, array: Array, dims: tuple[int, ...]) -> Array:
    """xp.flip(array, dims), of dimensions counted from the front, each once."""
    if type(array) is not cpu.ndarray:
        return xp.flip(array, dims)
    return array[tuple([BACKWARDS if d in dims else ALL for d in range(array.ndim)])]


def flipped(xp: Namespace, grad: Array, dims: Any) -> Array:
    """A gradient with the elements in reverse order, in memory of its own: one with negative strides is never seen."""
    return xp.flip(grad, dims) if xp is recorded else copied(xp.flip(grad, dims), "C")


_flip = primitive(
    "_flip",
    forward=lambda xp, input, dims: _flip_array(xp, input, dims),
    vjp={"input": lambda xp, g, dims: flipped(xp, g, dims) if g.ndim else g},
    jvp=LINEAR,
    batch=shifted(dims=(1,)),
    order="first",
)


@composite(variants="function method")
def flip(input: Array, *order: Any, dims: Sequence[int] | None = None) -> Array:
    """The tensor with the elements of some dimensions in reverse order.

    dims  the dimensions, as one list; or one by one

    >>> import undertow as ut
    >>> ut.flip(ut.tensor([1.0, 2.0, 3.0]), (0,))
    tensor([3., 2., 1.])
    """
    if not order and dims is None:
        raise TypeError('flip() missing 1 required positional arguments: "dims"')
    return _flip(input, ints(order, dims))


def backwards(input: Array) -> Array:
    """`reversed(tensor)`: the first dimension in reverse order."""
    return _flip(input, (0,)) if input.ndim else input


@composite(variants="function method")
def fliplr(input: Array) -> Array:
    """The second dimension (the columns of a matrix) in the other order.

    >>> import undertow as ut
    >>> ut.fliplr(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[2., 1.],
            [4., 3.]])
    """
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return _flip(input, (1,))


@composite(variants="function method")
def flipud(input: Array) -> Array:
    """The first dimension (the rows of a matrix) in the other order.

    >>> import undertow as ut
    >>> ut.flipud(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return _flip(input, (0,))


def _rolled(array: Array, shift: int, dim: int) -> Array:
    """An array whose last `shift` elements along `dim`, counted from the front, have become the first."""
    out, split = cpu.empty(array.shape, array.dtype), array.shape[dim] - shift
    before = (ALL,) * dim
    out[(*before, slice(shift, None))] = array[(*before, slice(None, split))]
    out[(*before, slice(None, shift))] = array[(*before, slice(split, None))]
    return out


def _roll_array(xp: Namespace, input: Array, shifts: tuple[int, ...], dims: tuple[int, ...]) -> Array:
    if not input.ndim:
        return input.copy()
    if len(dims) == 1 and type(input) is cpu.ndarray and input.shape[dims[0]]:
        return _rolled(input, shifts[0] % input.shape[dims[0]], dims[0])
    return xp.asarray(xp.roll(input, shifts, dims) if dims else xp.roll(input, shifts[0]), order="C")


def _batch_roll(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    input = in_front(args[0], in_dims[0])
    if args[2] and input.ndim > 1:
        return call(input, args[1], shift(args[2], input.ndim - 1)), 0
    flat = reshape(input, (input.shape[0], prod(input.shape[1:])))
    return reshape(call(flat, args[1], (1,)), tuple(input.shape)), 0


def _rolled_back(xp: Namespace, g: Array, shifts: tuple[int, ...], dims: tuple[int, ...]) -> Array:
    back = tuple([-s for s in shifts])
    return xp.roll(g, back, dims or None) if xp is recorded else _roll_array(xp, g, back, dims)


#: along dimensions channels stay last, as in a concatenation of the parts; as one long vector it lies by rows
_roll, _roll_all = [
    primitive(
        name,
        forward=_roll_array,
        vjp={"input": _rolled_back},
        jvp=LINEAR,
        batch=_batch_roll,
        node="RollBackward0",
        order=order,
    )
    for name, order in (("_roll", "channels"), ("_roll_all", "rows"))
]


@composite(variants="function method")
def roll(
    input: Array, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None, *, axis: Any = None
) -> Array:
    """The tensor with its elements shifted along dimensions, those pushed out coming in at the other end.

    Without `dims` it is shifted as one long vector.

    shifts  by how many places; one number, or one for each of `dims`

    >>> import undertow as ut
    >>> ut.roll(ut.tensor([1.0, 2.0, 3.0]), 1)
    tensor([3., 1., 2.])
    """
    dims = axis if dims is None else dims
    shifts, dims = ints((shifts,)), () if dims is None else ints((dims,))
    shifts = tuple([as_int("roll", "shifts", n) for n in shifts])
    if not shifts:
        raise RuntimeError("`shifts` required")
    if len(shifts) != len(dims) and (dims or len(shifts) > 1):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    if dims and not input.ndim:
        raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
    return (_roll if dims else _roll_all)(input, shifts, tuple([wrap_dim(d, input.ndim) for d in dims]))


def _turned(xp: Namespace, input: Array, k: int, dims: tuple[int, int]) -> Array:
    """A quarter turn is a flip, which lies as its input, and a transposition of that; see NumPy's rot90."""
    order = list(range(input.ndim))
    if k % 2:
        order[dims[0]], order[dims[1]] = order[dims[1]], order[dims[0]]
    nested = [order[d] for d in of_first([input], input.shape)] if k % 4 else order
    return xp.rot90(input, k, dims).transpose(nested).copy().transpose(inverse(nested))


_rot90 = primitive(
    "_rot90",
    forward=_turned,
    vjp={"input": lambda xp, g, k, dims: xp.rot90(g, -k, dims) if xp is recorded else _turned(xp, g, -k, dims)},
    jvp=LINEAR,
    batch=shifted(dims=(2,)),
    order="as_computed",
)


@composite(variants="function method")
def rot90(input: Array, k: int = 1, dims: Sequence[int] = (0, 1)) -> Array:
    """The tensor turned by `k` quarters in the plane of two dimensions, from the first towards the second.

    dims  the two dimensions

    >>> import undertow as ut
    >>> ut.rot90(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[2., 4.],
            [1., 3.]])
    """
    dims = ints((dims,))
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    if wrap_dim(dims[0], input.ndim) == wrap_dim(dims[1], input.ndim):
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    return _rot90(input, as_int("rot90", "k", k), dims)


adapter("flip")(lambda x, axis=None: _flip(x, wrap_dims(axis, x.ndim)))
adapter("roll")(lambda x, shift, axis=None: roll(x, shift, axis))
adapter("rot90")(rot90)
