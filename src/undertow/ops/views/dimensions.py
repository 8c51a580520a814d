"""Views of a whole tensor: its dimensions repeated, reordered, dropped or added.

Views of a part are in views/slices.py, those with several outputs in splitting.py, those that merge or split
dimensions in views/reshape.py, and as_strided, which sees nothing but memory, in views/as_strided.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend.interface import Array, Namespace
from undertow.compiled import shortcut, twin
from undertow.errors import warn_once
from undertow.ops.arguments.dims import wrap_dim, wrap_dims
from undertow.ops.arguments.sizes import broadcast_shapes, ints
from undertow.ops.declare import adapter, composite, view
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules.batch_in_front import example_rank, in_front
from undertow.ops.declare.rules.shifted_dims import shifted
from undertow.ops.pointwise.complex import conj

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims

EVERYTHING = slice(None)


def at(dim: int, index: Any) -> tuple[Any, ...]:
    """The key that applies `index` at `dim`, giving an array (not a scalar) even if no dimension is left."""
    return (EVERYTHING,) * dim + (index, Ellipsis)


# ---- extent


@twin
def expand_array(xp: Namespace, input: Array, size: tuple[int, ...]) -> Array:
    size = expanded_sizes(input.shape, size)
    if math.prod(size) == input.size:
        return input.reshape(size)  # no element appears twice, so the view may be written to
    return xp.broadcast_to(input, size)


def expanded_sizes(shape: tuple[int, ...], size: tuple[int, ...]) -> tuple[int, ...]:
    """`size` with -1 replaced by the existing size, if `shape` can be expanded to it."""
    lead = len(size) - len(shape)
    if lead < 0:
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(size)}) must be greater or equal to the number of "
            f"dimensions in the tensor ({len(shape)}); the tensor has sizes {list(shape)}, asked for were "
            f"{list(size)}"
        )
    for dim, n in enumerate(size[:lead]):
        if n < 0:
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) isn't allowed in a leading, non-existing dimension {dim}"
            )
    resolved = size[:lead] + tuple([m if n == -1 else n for m, n in zip(shape, size[lead:], strict=True)])
    for dim, (m, n) in enumerate(zip(shape, resolved[lead:], strict=True), lead):
        if m not in (1, n) or n < 0:
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({m}) at non-singleton "
                f"dimension {dim}.  Target sizes: {list(size)}.  Tensor sizes: {list(shape)}"
            )
    return resolved


def _batch_expand(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    input = in_front(args[0], in_dims[0])
    batch, *shape = input.shape
    size = expanded_sizes(tuple(shape), tuple(args[1]))
    padded = (batch, *[1] * (len(size) - len(shape)), *shape)
    return call(recorded.reshape(input, padded), (batch, *size)), 0


_expand = view(
    "_expand",
    forward=expand_array,
    vjp={"input": lambda xp, g, input_shape: xp.sum_to(g, input_shape)},
    batch=_batch_expand,
)


@composite(variants="function method")
def broadcast_to(input: Array, size: Sequence[int]) -> Array:
    """The tensor seen as if it had another shape: dimensions of size 1 are repeated, without copying.

    input  the tensor, whose sizes are 1 or those of `size`, counted from the end

    >>> import undertow as ut
    >>> ut.broadcast_to(ut.tensor([1.0, 2.0, 3.0]), (2, 3))
    tensor([[1., 2., 3.],
            [1., 2., 3.]])
    """
    return _expand(input, tuple(size))


@composite(variants="method")
@shortcut(_expand)
def expand(input: Array, *sizes: Any, size: Sequence[int] | None = None) -> Array:
    """The tensor with dimensions of size 1 shown repeatedly (and so read-only); -1 keeps a size.

    *sizes  the sizes, one by one or as one list; `size` by name

    >>> import undertow as ut
    >>> ut.ones(3, 1).expand(3, 4).shape
    undertow.Size([3, 4])
    """
    return _expand(input, ints(sizes, size))


@composite(variants="method")
@shortcut(_expand)
def expand_as(input: Array, other: Array) -> Array:
    """As `expand`, to the shape of another tensor.

    other  the tensor that has the shape

    >>> import undertow as ut
    >>> ut.ones(3, 1).expand_as(ut.ones(3, 4)).shape
    undertow.Size([3, 4])
    """
    return _expand(input, tuple(other.shape))


@composite
def broadcast_tensors(*tensors: Array) -> tuple[Any, ...]:
    """The tensors, expanded to their common shape.

    >>> import undertow as ut
    >>> ut.broadcast_tensors(ut.ones(2, 1), ut.zeros(2))
    (tensor([[1., 1.],
            [1., 1.]]), tensor([[0., 0.],
            [0., 0.]]))
    """
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    shape = broadcast_shapes([tuple(t.shape) for t in tensors])
    return tuple([t if tuple(t.shape) == shape else _expand(t, shape) for t in tensors])


# ---- order


def _shifted_or_alias(*places: int) -> Callable[..., tuple[Any, int]]:
    """`shifted`; but an example without dimensions, of which the dims 0 and -1 are taken all the same, is itself."""
    rule = shifted(dims=places)

    def batch(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
        if example_rank(args[0], in_dims[0]):
            return rule(call, args, in_dims)
        for place in places:
            wrap_dims(args[place], 0)  # or an error
        return alias(args[0]), in_dims[0]

    return batch


@twin
def swap(xp: Namespace, input: Array, dim0: int, dim1: int) -> Array:
    dim0, dim1 = wrap_dim(dim0, input.ndim), wrap_dim(dim1, input.ndim)
    return input.swapaxes(dim0, dim1) if input.ndim else input[...]


transpose = view(
    "transpose",
    forward=swap,
    vjp={"input": lambda xp, g, dim0, dim1: xp.swapaxes(g, dim0, dim1) if g.ndim else g},
    batch=_shifted_or_alias(1, 2),
    variants="function method",
)


@composite(variants="function method")
def swapaxes(input: Array, axis0: int, axis1: int) -> Array:
    """NumPy's name of `transpose`.

    axis0, axis1  the two dimensions

    >>> import undertow as ut
    >>> ut.swapaxes(ut.ones(2, 3), 0, 1).shape
    undertow.Size([3, 2])
    """
    return transpose(input, axis0, axis1)


@composite(variants="function method")
def swapdims(input: Array, dim0: int, dim1: int) -> Array:
    """Another name of `transpose`.

    >>> import undertow as ut
    >>> ut.swapdims(ut.ones(2, 3), 0, 1).shape
    undertow.Size([3, 2])
    """
    return transpose(input, dim0, dim1)


@twin
def permute_array(xp: Namespace, input: Array, dims: tuple[int, ...]) -> Array:
    if len(dims) != input.ndim:
        raise RuntimeError(
            "permute: number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(dims)}"
        )
    wrapped = [wrap_dim(d, input.ndim) for d in dims]
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError(f"permute(): duplicate dims are not allowed. Got dims {list(dims)}.")
    return input.transpose(wrapped)


@twin
def inverse(dims: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes `dims`."""
    ndim = len(dims)
    return tuple(sorted(range(ndim), key=[d % ndim for d in dims].__getitem__))


def _batch_permute(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    ndim = args[0].ndim - 1
    kept = [d for d in range(ndim + 1) if d != in_dims[0]]
    return call(args[0], (in_dims[0], *[kept[wrap_dim(d, ndim)] for d in args[1]])), 0


_permute = view(
    "_permute",
    forward=permute_array,
    vjp={"input": lambda xp, g, dims: xp.transpose(g, inverse(dims))},
    batch=_batch_permute,
)


@composite(variants="function method")
@shortcut(_permute)
def permute(input: Array, *order: Any, dims: Sequence[int] | None = None) -> Array:
    """The tensor with its dimensions in another order.

    dims  the order, as one list; or its numbers one by one

    >>> import undertow as ut
    >>> ut.permute(ut.zeros(2, 3, 4), (2, 0, 1)).shape
    undertow.Size([4, 2, 3])
    """
    if not order and dims is None:
        raise TypeError('permute() missing 1 required positional arguments: "dims"')
    return _permute(input, ints(order, dims))


@composite(variants="function method")
def movedim(input: Array, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """The tensor with some dimensions moved and the others in the order they had.

    source       the dimension to move, or several
    destination  where each of them goes

    >>> import undertow as ut
    >>> ut.movedim(ut.ones(2, 3, 4), 0, 2).shape
    undertow.Size([3, 4, 2])
    """
    ndim = input.ndim
    sources, destinations = _moved_dims(source, ndim, "source"), _moved_dims(destination, ndim, "destination")
    if len(sources) != len(destinations):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(sources)} dims) should contain the "
            f"same number of dims as destination ({list(destinations)} dims)"
        )
    if not ndim:
        return alias(input)
    order: list[int | None] = [None] * ndim
    for s, d in zip(sources, destinations, strict=True):
        order[d] = s
    rest = iter([d for d in range(ndim) if d not in sources])
    return _permute(input, tuple([next(rest) if d is None else d for d in order]))


def _moved_dims(dims: int | Sequence[int], ndim: int, name: str) -> tuple[int, ...]:
    wrapped = [wrap_dim(d, ndim) for d in (dims if isinstance(dims, Iterable) else (dims,))]
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError(f"movedim: repeated dim in `{name}` ({wrapped})")
    return tuple(wrapped)


@composite(variants="function method")
def moveaxis(input: Array, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """NumPy's name of `movedim`.

    source       the dimension to move, or several
    destination  where each of them goes

    >>> import undertow as ut
    >>> ut.moveaxis(ut.ones(2, 3, 4), 0, 2).shape
    undertow.Size([3, 4, 2])
    """
    return movedim(input, source, destination)


@twin
def transpose_matrix(xp: Namespace, input: Array) -> Array:
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return input.T


def _batch_t(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    input = in_front(args[0], in_dims[0])
    if input.ndim > 3:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim - 1}D")
    return transpose(input, 1, 2) if input.ndim == 3 else alias(input), 0


t = view(
    "t",
    forward=transpose_matrix,
    vjp={"input": lambda xp, g: xp.transpose(g)},
    batch=_batch_t,
    variants="function method",
)


@composite(variants="")
@shortcut(_permute)
def numpy_T(input: Array) -> Array:
    """`tensor.T`: all dimensions in reverse order."""
    if input.ndim not in (0, 2):
        warn_once(
            "numpy_T",
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated "
            "and it will throw an error in a future release. Consider `x.mT` to transpose batches of "
            "matrices or `x.permute(...)` to reverse the dimensions of a tensor.",
        )
    return _permute(input, tuple(range(input.ndim))[::-1])


@composite(variants="")
def matrix_transpose(input: Array) -> Array:
    """`tensor.mT`: the last two dimensions swapped."""
    return _transpose_of_matrices(input, "tensor.mT")


@composite(variants="function method")
def adjoint(input: Array) -> Array:
    """`tensor.mH`: the last two dimensions swapped, and the conjugate.

    >>> import undertow as ut
    >>> ut.adjoint(ut.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[1., 3.],
            [2., 4.]])
    """
    return conj(_transpose_of_matrices(input, "tensor.adjoint()"))


@composite(variants="")
def matrix_H(input: Array) -> Array:
    """`tensor.H`: the conjugate transpose of one matrix."""
    if input.ndim not in (0, 2):
        batches = " For batches of matrices, consider using tensor.mH" if input.ndim > 2 else ""
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {input.ndim}-D tensor.{batches}")
    return conj(_transpose_of_matrices(input, "tensor.H"))


def _transpose_of_matrices(input: Array, name: str) -> Array:
    if input.ndim == 1:
        raise RuntimeError(f"{name} is only supported on matrices or batches of matrices. Got 1-D tensor.")
    if input.ndim == 0:
        warn_once(name, f"{name} is deprecated on 0-D tensors, where it only conjugates. Consider using x.conj().")
        return input
    return transpose(input, -2, -1)


# ---- dimensions of size one


def _squeeze_array(xp: Namespace, input: Array, dims: tuple[int, ...]) -> Array:
    shape = input.shape
    return input[tuple([0 if n == 1 and d in dims else EVERYTHING for d, n in enumerate(shape)]) + (Ellipsis,)]


def _batch_squeeze(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    input = in_front(args[0], in_dims[0])
    return _squeeze_dims(input, tuple(range(1, input.ndim))), 0


@twin
def squeeze_all(xp: Namespace, input: Array) -> Array:
    return _squeeze_array(xp, input, tuple(range(input.ndim)))


@twin
def squeeze_one(xp: Namespace, input: Array, dim: int) -> Array:
    return _squeeze_array(xp, input, (wrap_dim(dim, input.ndim),))


_squeeze_all = view(
    "_squeeze_all",
    forward=squeeze_all,
    vjp={"input": lambda xp, g, input_shape: xp.reshape(g, input_shape)},
    batch=_batch_squeeze,
    node="SqueezeBackward0",
)

_squeeze_dim = view(
    "_squeeze_dim",
    forward=squeeze_one,
    vjp={"input": lambda xp, g, input_shape, dim: xp.reshape(g, input_shape)},
    batch=_shifted_or_alias(1),
    node="SqueezeBackward1",
)

_squeeze_dims = view(
    "_squeeze_dims",
    forward=lambda xp, input, dim: _squeeze_array(xp, input, wrap_dims(dim, input.ndim)),
    vjp={"input": lambda xp, g, input_shape, dim: xp.reshape(g, input_shape)},
    batch=_shifted_or_alias(1),
    node="SqueezeBackward2",
)


@composite(variants="function method")
@shortcut(_squeeze_all, _squeeze_dim)
def squeeze(input: Array, dim: int | Sequence[int] | None = None, *, axis: Any = None) -> Array:
    """The tensor without its dimensions of size 1 (or those of them that `dim` names).

    >>> import undertow as ut
    >>> ut.squeeze(ut.ones(1, 3)).shape
    undertow.Size([3])
    """
    dim = axis if dim is None else dim
    if dim is None:
        return _squeeze_all(input)
    return _squeeze_dims(input, tuple(dim)) if isinstance(dim, Iterable) else _squeeze_dim(input, dim)


def _batch_unsqueeze(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    input = in_front(args[0], in_dims[0])
    return call(input, wrap_dim(args[1], input.ndim) + 1), 0


@twin
def unsqueeze_array(xp: Namespace, input: Array, dim: int) -> Array:
    return input[at(wrap_dim(dim, input.ndim + 1), None)]


unsqueeze = view(
    "unsqueeze",
    forward=unsqueeze_array,
    vjp={"input": lambda xp, g, dim: xp.squeeze(g, dim)},
    batch=_batch_unsqueeze,
    variants="function method",
)


@composite
def expand_dims(input: Array, axis: int | Sequence[int]) -> Array:
    """NumPy's name for `unsqueeze`; several axes count in the result.

    >>> import undertow as ut
    >>> ut.expand_dims(ut.tensor([1.0, 2.0, 3.0]), 0)
    tensor([[1., 2., 3.]])
    """
    axes = axis if isinstance(axis, Iterable) else (axis,)
    for dim in sorted(wrap_dims(axes, input.ndim + len(tuple(axes)))):
        input = unsqueeze(input, dim)
    return input


alias = view(
    "alias", forward=lambda xp, input: input[...], vjp={"input": lambda xp, g: g}, batch=shifted(), variants=""
)


# ---- as rules spell it


@adapter("transpose")
def numpy_transpose(x: Array, axes: Sequence[int] | None = None) -> Array:
    return _permute(x, tuple(range(x.ndim))[::-1] if axes is None else tuple(axes))


adapter("broadcast_to")(broadcast_to)
adapter("swapaxes")(swapaxes)
adapter("moveaxis")(moveaxis)
adapter("squeeze")(squeeze)
adapter("expand_dims")(expand_dims)
