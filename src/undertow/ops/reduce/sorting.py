"""Sorting, and searching in what is sorted."""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin
from undertow.ops.arguments.dims import numpy_spelling, wrap_dim
from undertow.ops.arguments.operands import as_operand, require_kinds, type_name
from undertow.ops.declare import adapter, composite, nondifferentiable, primitive, return_types
from undertow.ops.declare.rules import LOOP, REDUCTION
from undertow.ops.reduce.extrema import SELECTING, require_elements, select, with_values
from undertow.ops.reduce.stable_order import in_order, order
from undertow.tensor import Tensor

#: the rules of what returns (values, indices) along `dim` without reducing it
REORDERING: dict[str, Any] = {
    "vjp": {
        "input": lambda xp, g, indices, input_shape, dim: xp.value_selecting_reduction_backward(
            g, indices, input_shape, dim, True
        )
    },
    "jvp": {"input": lambda xp, t, indices, dim: select(xp, t, indices, dim)},
    "batch": REDUCTION,
    "outputs": ("values", "indices"),
    "nondifferentiable": ("indices",),
}


def refuse(name: str, input: Array, kinds: str) -> None:
    if input.dtype.kind in kinds:
        kind = "bool" if input.dtype.kind == "b" else "complex"
        raise RuntimeError(f"{name} does not support {kind} dtypes on CPU, got {type_name(input)}")


# ---- sort, topk, kthvalue


@twin
def sort_forward(xp: Namespace, input: Array, dim: int = -1, descending: bool = False) -> tuple[Array, ...]:
    axis = wrap_dim(dim, input.ndim)
    refuse("Sort", input, "c")
    if input.ndim == 0:
        return input.copy(), xp.zeros((), dtypes.int64)
    return in_order(xp, input, axis, descending)


sort_along = primitive("_sort_along", sort_forward, node="SortBackward0", order="first", **REORDERING)
stable_sort_along = primitive("_stable_sort_along", sort_forward, node="SortBackward1", order="first", **REORDERING)


@composite(variants="function method", out=True, overlap="part")
@numpy_spelling
def sort(input: Array, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    """(values, indices) in rising order along `dim`; equal elements keep their order.

    descending  the largest first
    stable      accepted: equal elements always keep their order

    >>> import undertow as ut
    >>> ut.sort(ut.tensor([3.0, 1.0, 2.0])).indices
    tensor([1, 2, 0])
    """
    along = sort_along if stable is None else stable_sort_along
    return return_types.sort(along(input, dim, descending))


@composite(variants="function method", out=True)
def msort(input: Array) -> Tensor:
    """The values sorted along the first dimension.

    >>> import undertow as ut
    >>> ut.msort(ut.tensor([3.0, 1.0, 2.0]))
    tensor([1., 2., 3.])
    """
    return sort_along(input, 0)[0]


argsort = nondifferentiable(
    "argsort",
    forward=lambda xp, input, dim=-1, descending=False, stable=False: sort_forward(xp, input, dim, descending)[1],
    inputs=("input",),
    batch=REDUCTION,
    variants="function method",
    order="first",
)


@adapter("sort")
def sorted_values(input: Array, axis: int = -1, kind: str | None = None) -> Tensor:
    return sort_along(input, axis)[0]


@adapter("argsort")
def sorting_indices(input: Array, axis: int = -1, kind: str | None = None) -> Tensor:
    return argsort(input, axis)


@twin
def topk_forward(
    xp: Namespace, input: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Array, ...]:
    axis = wrap_dim(dim, input.ndim)
    refuse("topk", input, "bc")
    if not 0 <= k <= (input.shape[axis] if input.ndim else 1):
        raise RuntimeError(f"selected index k out of range: {k} along dimension {axis} of {list(input.shape)}")
    if input.ndim == 0:
        return input.copy(), xp.zeros((), dtypes.int64)
    return in_order(xp, input, axis, largest, k)


topk_along = primitive("_topk_along", topk_forward, node="TopkBackward0", **REORDERING)


@composite(variants="function method", out=True, overlap="part")
@numpy_spelling
def topk(input: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """(values, indices) of the k largest (or smallest) elements along `dim`, in order.

    sorted  accepted: they always come in order

    >>> import undertow as ut
    >>> ut.topk(ut.tensor([3.0, 1.0, 2.0]), 2).values
    tensor([3., 2.])
    """
    return return_types.topk(topk_along(input, k, dim, largest, sorted))


def _kthvalue_forward(xp: Namespace, input: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, ...]:
    axis = wrap_dim(dim, input.ndim)
    require_elements("kthvalue", input.shape, axis)
    require_kinds("kthvalue_cpu", input, "iuf")
    if not 1 <= k <= (input.shape[axis] if input.ndim else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {axis}: k is {k}")
    if input.ndim == 0:
        return input.copy(), xp.zeros((), dtypes.int64)
    indices = xp.take(order(xp, input, axis, False, k), xp.asarray([k - 1]), axis)
    return with_values(xp, input, indices, axis, keepdim)


kthvalue_dim = primitive("_kthvalue_dim", _kthvalue_forward, node="KthvalueBackward0", **SELECTING)


@composite(variants="function method", out=True, overlap="any")
@numpy_spelling
def kthvalue(input: Array, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """(values, indices) of the k-th smallest element along `dim`, counted from 1.

    >>> import undertow as ut
    >>> ut.kthvalue(ut.tensor([1.0, 2.0, 3.0]), 2)
    undertow.return_types.kthvalue(
    values=tensor(2.),
    indices=tensor(1))
    """
    return return_types.kthvalue(kthvalue_dim(input, k, dim, keepdim))


# ---- searching


def _search_forward(
    xp: Namespace,
    sorted_sequence: Array,
    input: Array,
    sorter: Array | None = None,
    right: bool = False,
    int32: bool = False,
) -> Array:
    side = "right" if right else "left"
    dtype = dtypes.int32 if int32 else dtypes.int64
    if sorter is not None:
        sorted_sequence = xp.take_along_axis(sorted_sequence, sorter, -1)
    if sorted_sequence.ndim == 1:
        return xp.asarray(xp.searchsorted(sorted_sequence, input, side)).astype(dtype)
    out = xp.empty(input.shape, dtype)
    for row in xp.ndindex(input.shape[:-1]):
        out[row] = xp.searchsorted(sorted_sequence[row], input[row], side)
    return out


search = nondifferentiable(
    "_search", _search_forward, ("sorted_sequence", "input", "sorter"), optional=("sorter",), batch=LOOP
)


def _check_search(boundaries: Array, input: Array) -> None:
    if boundaries.ndim == 1:
        return
    if not boundaries.ndim:
        raise RuntimeError("searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension")
    described = f"boundaries tensor {list(boundaries.shape)} and input value tensor {list(input.shape)}"
    if input.ndim == 0:
        raise RuntimeError(
            "searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, "
            f"but we got {described}"
        )
    if boundaries.shape[:-1] != input.shape[:-1]:
        raise RuntimeError(
            "searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of "
            f"boundaries tensor and input value tensor must match, but we got {described}"
        )


@composite(out=True)
def searchsorted(
    sorted_sequence: Array,
    input: Array,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Array | None = None,
) -> Tensor:
    """Where to insert the elements of input into the sorted rows to keep them sorted.

    sorted_sequence  rising along its last dimension: a vector, or the shape of `input` but for that dimension
    input            a tensor or a number
    right            behind equal elements, instead of before them
    side             "left" or "right": the same in a word
    sorter           int64, the order that sorts the sequence, if it is not sorted itself
    out_int32        int32 instead of int64

    >>> import undertow as ut
    >>> ut.searchsorted(ut.tensor([1, 3, 5]), ut.tensor([3, 6]))
    tensor([1, 3])
    """
    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError(
            "searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    sequence = as_operand("searchsorted", "sorted_sequence", sorted_sequence)
    input = as_operand("searchsorted", "input", input)
    _check_search(sequence, input)
    return search(sequence, input, sorter, right or side == "right", out_int32)


@composite(out=True)
def bucketize(input: Array, boundaries: Array, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The bucket, between sorted boundaries, that each element falls into.

    right      whether a boundary belongs to the bucket above it, instead of the one below
    out_int32  int32 instead of int64

    >>> import undertow as ut
    >>> ut.bucketize(ut.tensor([0.5, 2.5]), ut.tensor([1.0, 2.0]))
    tensor([0, 2])
    """
    input = as_operand("bucketize", "input", input)
    boundaries = as_operand("bucketize", "boundaries", boundaries)
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)
