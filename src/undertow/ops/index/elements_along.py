"""Array functions with one index per element along a dimension: taking, adding, and keeping the largest.

Of an index that is a vector, laid along the dimension and repeated over all others as programs on graphs do, only the
vector is read: it names whole rows.
"""

from __future__ import annotations

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.interface import Array, Namespace
from undertow.ops.arguments.dims import wrap_dim
from undertow.ops.index.index_arrays import INTEGERS, add_flat, add_rows, check_range, positions_of, taken

#: the kernels that combine what falls on one place, by NumPy's names
KERNELS = {
    "add": kernels.scatter_add,
    "multiply": kernels.scatter_multiply,
    "maximum": kernels.scatter_maximum,
    "minimum": kernels.scatter_minimum,
}


def gathered(xp: Namespace, input: Array, dim: int, index: Array, other: str = "self") -> Array:
    """The elements of `input` that an index names along `dim`."""
    dim = wrap_dim(dim, input.ndim)
    vector = _repeated_vector(xp, input, dim, index)
    if vector is not None:
        check_range(vector, input.shape[dim], dim)
        return taken(xp, input, vector, dim)
    found = kernels.gather(xp, input, dim, _packed(xp, index))
    if found is not None:
        return found
    return input.reshape(-1).take(positions_of(xp, "gather", input, dim, index, other))


def combine_along(
    xp: Namespace, out: Array, dim: int, index: Array, src: Array, by: str = "add", op: str = "scatter_add"
) -> Array:
    """Combine `src` with the elements of `out` (which is row-major) that an index names along `dim`; returns `out`."""
    dim = wrap_dim(dim, out.ndim)
    vector = _repeated_vector(xp, out, dim, index) if by == "add" and dim == 0 else None
    if vector is not None and src.shape == index.shape:
        check_range(vector, out.shape[dim], dim)
        return add_rows(xp, out, vector.astype(dtypes.int64, copy=False), src)
    if KERNELS[by](xp, out, dim, _packed(xp, index), _packed(xp, src)):
        return out
    positions = positions_of(xp, op, out, dim, index)
    if by == "add":
        return add_flat(xp, out, positions, src)
    getattr(xp, by).at(out.reshape(-1), positions.reshape(-1), src.reshape(-1))
    return out


def _packed(xp: Namespace, array: Array) -> Array:
    """The array as kernels take it, of which those of other devices do not ask that."""
    return array if xp is not cpu or array.flags.c_contiguous else array.copy()


def _repeated_vector(xp: Namespace, input: Array, dim: int, index: Array) -> Array | None:
    """The vector that an index along `dim` repeats over all other dimensions of `input`, if there are any."""
    if xp is not cpu or not 2 <= index.ndim == input.ndim or not index.size or index.dtype not in INTEGERS:
        return None
    others = [d for d in range(index.ndim) if d != dim]
    if any([index.strides[d] or index.shape[d] != input.shape[d] for d in others]):
        return None
    return xp.ascontiguousarray(index[tuple([slice(None) if d == dim else 0 for d in range(index.ndim)])])
