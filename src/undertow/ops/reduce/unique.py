"""unique and unique_consecutive: what differs."""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.errors import NotDifferentiableError
from undertow.ops.arguments.dims import numpy_spelling, wrap_dim
from undertow.ops.arguments.operands import require_order
from undertow.ops.declare import composite, primitive
from undertow.ops.declare.rules import LOOP
from undertow.tensor import Tensor


def _no_derivative(name: str) -> Any:
    """A rule for values whose number depends on the data: an error, not a gradient lost in silence."""

    def rule(xp: Namespace, g: Array) -> Any:
        raise NotDifferentiableError(name, "Its shape depends on the data. Call detach() on its input first.")

    return rule


def runs(xp: Namespace, rows: Array) -> tuple[Array, Array, Array]:
    """Of neighbours that are equal: (first ones, which run each belongs to, lengths)."""
    n = rows.shape[0]
    new = xp.ones(n, dtypes.bool_)
    new[1:] = xp.any(rows[1:] != rows[:-1], tuple(range(1, rows.ndim)))
    starts = xp.flatnonzero(new)
    return rows[starts], xp.cumsum(new) - 1, xp.diff(xp.append(starts, n))


def _slice_dim(shape: tuple[int, ...], dim: int) -> int:
    """The dimension whose slices are compared; they must have elements."""
    if not shape:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    axis = wrap_dim(dim, len(shape))
    if 0 in shape[:axis] + shape[axis + 1 :]:
        raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    return axis


def _unique_forward(
    xp: Namespace, input: Array, dim: int | None = None, consecutive: bool = False
) -> tuple[Array, ...]:
    axis = None if dim is None else _slice_dim(input.shape, dim)
    require_order("unique", input)
    rows = input.reshape(-1) if axis is None else xp.moveaxis(input, axis, 0)
    if consecutive:
        values, inverse, counts = runs(xp, rows)
    else:
        options = {"return_inverse": True, "return_counts": True, "equal_nan": False}
        values, inverse, counts = xp.unique(rows, axis=0, **options)
    if axis is None:
        return values, inverse.reshape(input.shape), counts
    return xp.moveaxis(xp.ascontiguousarray(values), 0, axis), inverse.reshape(-1), counts


def _declare_unique(public: str, node: str, consecutive: bool) -> Any:
    return primitive(
        f"_{public}_values",
        forward=lambda xp, input, dim=None: _unique_forward(xp, input, dim, consecutive),
        vjp={"input": _no_derivative(public)},
        jvp={"input": _no_derivative(public)},
        batch=LOOP,
        node=node,
        outputs=("values", "inverse", "counts"),
        nondifferentiable=("inverse", "counts"),
        order="as_computed rows",
    )


unique_values = _declare_unique("unique", "Unique2Backward0", False)


unique_consecutive_values = _declare_unique("unique_consecutive", "UniqueConsecutiveBackward0", True)


def _asked_for(results: tuple[Any, ...], return_inverse: bool, return_counts: bool) -> Any:
    values, inverse, counts = results
    chosen = [values, *([inverse] if return_inverse else []), *([counts] if return_counts else [])]
    return values if len(chosen) == 1 else tuple(chosen)


@composite(variants="function method")
@numpy_spelling
def unique(
    input: Array,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements (or slices along `dim`), sorted; if asked, where each went and how many.

    return_inverse  also return which of the results each element is
    return_counts   also return how often each was there

    >>> import undertow as ut
    >>> ut.unique(ut.tensor([3, 1, 3]))
    tensor([1, 3])
    """
    return _asked_for(unique_values(input, dim), return_inverse, return_counts)


@composite(variants="function method")
@numpy_spelling
def unique_consecutive(
    input: Array, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements (or slices along `dim`) without those that repeat the one before.

    return_inverse  also return which of the results each element is
    return_counts   also return how often each was there in a row

    >>> import undertow as ut
    >>> ut.unique_consecutive(ut.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    return _asked_for(unique_consecutive_values(input, dim), return_inverse, return_counts)


@composite(variants="function")
def _unique2(
    input: Array, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """`unique` with all three results; those that are not asked for are empty."""
    values, inverse, counts = unique(input, sorted, True, True)
    empty = Tensor(inverse._xp.zeros(0, dtypes.int64), inverse._xp)
    return values, inverse if return_inverse or return_counts else empty, counts if return_counts else empty


@composite(variants="function")
def _unique(input: Array, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, Tensor]:
    """`unique` with both results; the inverse is empty if it is not asked for."""
    values, inverse, _ = _unique2(input, sorted, return_inverse)
    return values, inverse
