"""Several tensors as one: cat, stack and their kin, blocks along a diagonal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from undertow.backend.interface import Array, Namespace
from undertow.backend.memory_order import is_channels_last, laid_out
from undertow.backend.sparse.coo import is_sparse
from undertow.compiled import twin
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.arguments.operands import as_operand, require_list
from undertow.ops.declare import adapter, alias, composite, variadic
from undertow.ops.declare.rules import LINEAR, LOOP
from undertow.ops.declare.rules.batch_in_front import batch_size, expanded
from undertow.ops.declare.rules.shifted_dims import shift
from undertow.ops.views.reshape import atleast_1d, atleast_2d, atleast_3d, reshape

if TYPE_CHECKING:
    from undertow.ops.declare.rules.batch_in_front import InDims

# ---- along a dimension


def _is_skipped(shape: tuple[int, ...]) -> bool:
    """cat passes over an empty vector, whatever the shape of the others."""
    return shape == (0,)


def _check_cat(shapes: list[tuple[int, ...]], dim: int) -> int:
    """`dim` counted from the front, if tensors of these shapes can be joined there."""
    if shapes[0] and shapes.count(shapes[0]) == len(shapes):
        return wrap_dim(dim, len(shapes[0]))
    for k, shape in enumerate(shapes):
        if not shape:
            raise RuntimeError(f"zero-dimensional tensor (at position {k}) cannot be concatenated")
    kept = [(k, s) for k, s in enumerate(shapes) if not _is_skipped(s)] or [(0, shapes[0])]
    first = kept[0][1]
    dim = wrap_dim(dim, len(first))
    for k, shape in kept:
        if len(shape) != len(first):
            raise RuntimeError(f"Tensors must have same number of dimensions: got {len(first)} and {len(shape)}")
        for d, (n, m) in enumerate(zip(first, shape, strict=True)):
            if n != m and d != dim:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size {n} but got size "
                    f"{m} for tensor number {k} in the list."
                )
    return dim


@twin
def join(xp: Namespace, tensors: list[Array], dim: int = 0) -> Array:
    dim = _check_cat([t.shape for t in tensors], dim)
    out = xp.concatenate([t for t in tensors if not _is_skipped(t.shape)] or tensors, axis=dim)
    if not is_sparse(out) and all([is_channels_last(t) for t in tensors]):
        return laid_out(out, [0, *range(2, out.ndim), 1])
    return row_major(xp, out)


def row_major(xp: Namespace, array: Array) -> Array:
    """The array with its elements in the order of its dimensions: NumPy follows the order of what it joins."""
    return array if array.flags.c_contiguous or is_sparse(array) else xp.ascontiguousarray(array)


def separate(xp: Namespace, g: Array, needs: list[bool], shapes: list[tuple[int, ...]], dim: int) -> list[Array | None]:
    dim = wrap_dim(dim, g.ndim)
    gradients: list[Any] = []
    start = 0
    for wanted, shape in zip(needs, shapes, strict=True):
        length = 0 if _is_skipped(shape) else shape[dim]
        if not wanted:
            gradients.append(None)
        elif _is_skipped(shape):
            gradients.append(xp._zeros_for(g, shape))
        else:
            gradients.append(xp.slice(g, dim, start, start + length, 1))
        start += length
    return gradients


def _batch_join(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    tensors = _batched_together(args[0], in_dims[0])
    kept = [t for t in tensors if not _is_skipped(tuple(t.shape[1:]))] or tensors
    _check_cat([tuple(t.shape[1:]) for t in tensors], args[1])
    return call(kept, shift(args[1], kept[0].ndim - 1)), 0


def _batched_together(tensors: Sequence[Array], in_dims: InDims) -> list[Any]:
    """All tensors with a batch dimension in front; those without one are repeated."""
    size = batch_size(tensors, in_dims)
    return [expanded(t, d, size) for t, d in zip(tensors, in_dims, strict=True)]


_cat = variadic("_cat", forward=join, vjp=separate, jvp=LINEAR, batch=_batch_join, promote="same")


@composite(out=True, overlap="any")
def cat(tensors: Sequence[Array], dim: int = 0, *, axis: int | None = None) -> Array:
    """The tensors one behind the other along a dimension they have.

    tensors  a list; sizes agree in all dimensions but `dim`

    >>> import undertow as ut
    >>> ut.cat([ut.zeros(2, 3), ut.ones(1, 3)]).shape
    undertow.Size([3, 3])
    """
    require_list("cat", tensors)
    if not len(tensors):
        raise ValueError("cat(): expected a non-empty list of Tensors")
    return _cat(tensors, dim if axis is None else axis)


@composite(out=True, overlap="any")
def concat(tensors: Sequence[Array], dim: int = 0, *, axis: int | None = None) -> Array:
    """Another name of `cat`.

    >>> import undertow as ut
    >>> ut.concat((ut.tensor([1.0, 2.0, 3.0]), ut.tensor([1.0, 2.0, 3.0])))
    tensor([1., 2., 3., 1., 2., 3.])
    """
    return cat(tensors, dim, axis=axis)


@composite(out=True, overlap="any")
def concatenate(tensors: Sequence[Array], dim: int = 0, *, axis: int | None = None) -> Array:
    """NumPy's name of `cat`.

    >>> import undertow as ut
    >>> ut.concatenate((ut.tensor([1.0, 2.0, 3.0]), ut.tensor([1.0, 2.0, 3.0])))
    tensor([1., 2., 3., 1., 2., 3.])
    """
    return cat(tensors, dim, axis=axis)


@twin
def pile(xp: Namespace, tensors: list[Array], dim: int = 0) -> Array:
    first = tensors[0].shape
    for k, t in enumerate(tensors):
        if t.shape != first:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 and "
                f"{list(t.shape)} at entry {k}"
            )
    return row_major(xp, xp.stack(tensors, axis=wrap_dim(dim, len(first) + 1)))


def _unpile(xp: Namespace, g: Array, needs: list[bool], dim: int) -> list[Array | None]:
    return [xp.select_at(g, dim, k) if wanted else None for k, wanted in enumerate(needs)]


def _batch_pile(call: Callable[..., Any], args: Sequence[Any], in_dims: InDims) -> tuple[Any, int]:
    tensors = _batched_together(args[0], in_dims[0])
    return call(tensors, wrap_dim(args[1], tensors[0].ndim) + 1), 0


_stack = variadic("_stack", forward=pile, vjp=_unpile, jvp=LINEAR, batch=_batch_pile, promote="same")


@composite(out=True, overlap="any")
def stack(tensors: Sequence[Array], dim: int = 0, *, axis: int | None = None) -> Array:
    """Tensors of one shape, side by side along a new dimension.

    tensors  a list of tensors of one shape

    >>> import undertow as ut
    >>> ut.stack((ut.tensor([1.0, 2.0, 3.0]), ut.tensor([1.0, 2.0, 3.0])))
    tensor([[1., 2., 3.],
            [1., 2., 3.]])
    """
    require_list("stack", tensors)
    if not len(tensors):
        raise RuntimeError("stack expects a non-empty TensorList")
    return _stack(tensors, dim if axis is None else axis)


@composite(out=True, overlap="any")
def hstack(tensors: Sequence[Array]) -> Array:
    """`cat` along columns (dimension 1; 0 for vectors).

    tensors  a list; sizes agree in all dimensions but the joined one

    >>> import undertow as ut
    >>> ut.hstack((ut.tensor([1.0, 2.0, 3.0]), ut.tensor([1.0, 2.0, 3.0])))
    tensor([1., 2., 3., 1., 2., 3.])
    """
    require_list("hstack", tensors)
    tensors = atleast_1d(tuple(tensors))
    return cat(tensors, 0 if tensors and tensors[0].ndim == 1 else 1)


@composite(out=True, overlap="any")
def vstack(tensors: Sequence[Array]) -> Array:
    """`cat` along rows; vectors are rows.

    tensors  a list; sizes agree in all dimensions but the joined one

    >>> import undertow as ut
    >>> ut.vstack((ut.tensor([1.0, 2.0, 3.0]), ut.tensor([1.0, 2.0, 3.0])))
    tensor([[1., 2., 3.],
            [1., 2., 3.]])
    """
    require_list("vstack", tensors)
    return cat(atleast_2d(tuple(tensors)), 0)


alias("row_stack", vstack, out=True)


@composite(out=True, overlap="any")
def dstack(tensors: Sequence[Array]) -> Array:
    """`cat` along dimension 2.

    tensors  a list; sizes agree in all dimensions but the joined one

    >>> import undertow as ut
    >>> ut.dstack((ut.tensor([1.0, 2.0, 3.0]), ut.tensor([1.0, 2.0, 3.0]))).shape
    undertow.Size([1, 3, 2])
    """
    require_list("dstack", tensors)
    return cat(atleast_3d(tuple(tensors)), 2)


@composite(out=True, overlap="any")
def column_stack(tensors: Sequence[Array]) -> Array:
    """`cat` along columns; vectors are columns.

    tensors  a list; sizes agree in all dimensions but the joined one

    >>> import undertow as ut
    >>> ut.column_stack((ut.tensor([1.0, 2.0, 3.0]), ut.tensor([1.0, 2.0, 3.0])))
    tensor([[1., 1.],
            [2., 2.],
            [3., 3.]])
    """
    require_list("column_stack", tensors)
    tensors = [as_operand("column_stack", "tensors", t) for t in tensors]
    return cat([t if t.ndim > 1 else reshape(t, (prod(t.shape), 1)) for t in tensors], 1)


adapter("concatenate")(cat)
adapter("stack")(stack)


# ---- into a grid


def corners(shapes: list[tuple[int, ...]]) -> list[tuple[int, int, int, int]]:
    """Where each block lies in block_diag: first row, last row, first column, last column."""
    found, row, column = [], 0, 0
    for shape in shapes:
        height, width = ((1, 1) + shape)[-2:]
        found.append((row, row + height, column, column + width))
        row, column = row + height, column + width
    return found


def _place_blocks(xp: Namespace, tensors: list[Array]) -> Array:
    for k, t in enumerate(tensors):
        if t.ndim > 2:
            raise RuntimeError(
                f"block_diag: Input tensors must have 2 or fewer dimensions. Input {k} has {t.ndim} dimensions"
            )
    places = corners([t.shape for t in tensors])
    out = xp.zeros((places[-1][1], places[-1][3]), tensors[0].dtype)
    for t, (top, bottom, left, right) in zip(tensors, places, strict=True):
        out[top:bottom, left:right] = t
    return out


def _take_blocks(xp: Namespace, g: Array, needs: list[bool], shapes: list[tuple[int, ...]]) -> list[Array | None]:
    return [
        xp.reshape(xp.slice(xp.slice(g, 0, top, bottom, 1), 1, left, right, 1), shape) if wanted else None
        for wanted, shape, (top, bottom, left, right) in zip(needs, shapes, corners(shapes), strict=True)
    ]


_block_diag = variadic("_block_diag", forward=_place_blocks, vjp=_take_blocks, jvp=LINEAR, batch=LOOP, promote="same")


@composite
def block_diag(*tensors: Array) -> Array:
    """A matrix with the given matrices on its diagonal and zeros elsewhere.

    *tensors  matrices; vectors are rows, numbers 1 x 1

    >>> import undertow as ut
    >>> ut.block_diag(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), ut.ones(1, 1))
    tensor([[1., 2., 0.],
            [3., 4., 0.],
            [0., 0., 1.]])
    """
    return _block_diag(tensors)
