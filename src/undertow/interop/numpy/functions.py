"""NumPy's functions in terms of undertow's operations, with NumPy's signatures and defaults.

Each entry takes the arguments that NumPy's function documents (those that make sense for a tensor; any other is a
TypeError) and calls operations by name. Arrays among the arguments have become tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend import cpu
from undertow.backend.interface import Array, DType, Namespace
from undertow.ops.declare import REGISTRY
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.ops.arguments.dims import Dims


class _Operations:
    """Operations by name: `ops.sum(t)`."""

    class Missing(AttributeError):
        """There is no such operation."""

    def __getattr__(self, name: str) -> Any:
        if name not in REGISTRY:
            raise self.Missing(name)
        return REGISTRY[name].function

    def find(self, name: str | None) -> Callable[..., Any] | None:
        return REGISTRY[name].function if name in REGISTRY else None


ops = _Operations()

#: NumPy function -> its counterpart
FUNCTIONS: dict[Any, Callable[..., Any]] = {}


def counterpart(*functions: Any) -> Callable[[Any], Any]:
    def join(function: Callable[..., Any]) -> Any:
        FUNCTIONS.update(dict.fromkeys(functions, function))
        return function

    return join


def tensors(values: Any) -> list[Any]:
    """The members of a sequence, numbers, arrays and lists among them as tensors too."""
    example = next((v for v in values if isinstance(v, Tensor)), None)
    xp = cpu if example is None else example._xp
    return [v if isinstance(v, Tensor) else as_tensor_on(v, xp) for v in values]


def as_tensor_on(value: Any, xp: Namespace) -> Array:
    if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value):
        return ops.stack(tensors(value))
    return Tensor(np.asarray(value), xp)


def unwrapped(value: Any) -> Any:
    """The array of a tensor; anything else as it is, lists of tensors included."""
    if isinstance(value, (list, tuple)):
        return type(value)([unwrapped(v) for v in value])
    return value._array if isinstance(value, Tensor) else value


def flat(a: Array, axis: int) -> tuple[Any, int]:
    """The flattened input, for functions that do so when no axis is given."""
    return ops.reshape(a, (-1,)), axis


# ---- the same leading arguments


def same(function: Callable[..., Any], name: str) -> None:
    """Arguments as they are: for functions whose every accepted argument means the same to the operation."""
    FUNCTIONS[function] = lambda *args, **kwargs: getattr(ops, name)(*args, **kwargs)


for _name in ("atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "expand_dims", "fliplr", "flipud",
              "isneginf", "isposinf", "isreal", "kron", "moveaxis", "ones_like", "real", "sinc", "trapezoid",
              "zeros_like"):  # fmt: skip
    same(getattr(np, _name), _name)


@counterpart(np.imag)
def imag(val: Array) -> Array:
    return ops.imag(val) if val._array.dtype.kind == "c" else ops.zeros_like(val)


@counterpart(np.swapaxes)
def swapaxes(a: Array, axis1: int, axis2: int) -> Array:
    return ops.swapaxes(a, axis1, axis2)


@counterpart(np.hstack)
def hstack(tup: Any, *, dtype: DType | None = None, casting: str = "same_kind") -> Array:
    return _in_dtype(ops.hstack(tensors(tup)), dtype, casting)


@counterpart(np.vstack)
def vstack(tup: Any, *, dtype: DType | None = None, casting: str = "same_kind") -> Array:
    return _in_dtype(ops.vstack(tensors(tup)), dtype, casting)


@counterpart(np.column_stack)
def column_stack(tup: Any) -> Array:
    return ops.column_stack(tensors(tup))


@counterpart(np.dstack)
def dstack(tup: Any) -> Array:
    return ops.dstack(tensors(tup))


def _in_dtype(found: Array, dtype: DType, casting: Any) -> Array:
    if dtype is None:
        return found
    if not np.can_cast(found._array.dtype, dtype, casting):
        raise TypeError(f"Cannot cast array data from {found._array.dtype!r} to {np.dtype(dtype)!r} according to the "
                        f"rule {casting!r}")  # fmt: skip
    return ops.to_dtype(found, np.dtype(dtype))


def with_diagonal(function: Callable[..., Any], name: str) -> None:
    def call(v: Array, k: int = 0) -> Any:
        return getattr(ops, name)(v, k)

    FUNCTIONS[function] = call


for _name in ("diag", "diagflat", "tril", "triu"):
    with_diagonal(getattr(np, _name), _name)


# ---- elementwise


def _of_one_dtype(a: Array, b: Array) -> list[Any]:
    """Both as tensors of the dtype that NumPy would compare them in."""
    pair = tensors([a, b])
    weak = (bool, int, float, complex)
    dtype = np.result_type(*[x if isinstance(x, weak) else v._array for x, v in zip((a, b), pair, strict=True)])
    return [ops.to_dtype(v, dtype) for v in pair]


@counterpart(np.isclose)
def isclose(a: Array, b: Array, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Array:
    return ops.isclose(*_of_one_dtype(a, b), rtol, atol, equal_nan)


@counterpart(np.allclose)
def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    return ops.allclose(*_of_one_dtype(a, b), rtol, atol, equal_nan)


@counterpart(np.clip)
def clip(a: Array, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Array:
    return ops.clamp(a, a_min if min is None else min, a_max if max is None else max)


@counterpart(np.round, np.around)
def round_(a: Array, decimals: int = 0) -> Array:
    if a._array.dtype.kind == "c":
        return ops.complex(ops.round(ops.real(a), decimals=decimals), ops.round(ops.imag(a), decimals=decimals))
    return ops.round(a, decimals=decimals)


@counterpart(np.nan_to_num)
def nan_to_num(
    x: Array, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Array:
    return ops.nan_to_num(x, nan, posinf, neginf)


@counterpart(np.angle)
def angle(z: Array, deg: bool = False) -> Array:
    return ops.rad2deg(ops.angle(z)) if deg else ops.angle(z)


@counterpart(np.copy)
def copy(a: Array) -> Array:
    return ops.clone(a)


@counterpart(np.where)
def where(condition: Array, *choices: Any) -> Array:
    return ops.where(condition, *choices)


@counterpart(np.full_like)
def full_like(a: Array, fill_value: Any, dtype: DType | None = None) -> Array:
    return ops.full_like(a, fill_value, dtype=dtype)


# ---- choices


@counterpart(np.select)
def select(condlist: Any, choicelist: Any, default: Array = 0) -> Array:
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    found = default
    for condition, choice in list(zip(condlist, choicelist, strict=True))[::-1]:
        (condition, _) = tensors((condition, choice))
        found = ops.where(condition, choice, found)
    return found


@counterpart(np.piecewise)
def piecewise(x: Array, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Array:
    masks = masks_of(x, condlist)
    if len(funclist) == len(masks) + 1:
        masks.append(~np.logical_or.reduce(masks))
    found = ops.zeros_like(x)
    for mask, function in zip(masks, funclist, strict=True):
        index = Tensor(mask, x._xp)
        found[index] = function(x[index], *args, **kw) if callable(function) else function
    return found


def masks_of(x: Array, condlist: Any) -> list[Any]:
    """One boolean array for each condition."""
    several = isinstance(condlist, (list, tuple)) and np.ndim(unwrapped(condlist[0])) == np.ndim(x._array)
    several = several or (isinstance(condlist, Tensor) and condlist._array.ndim > x._array.ndim)
    return [np.asarray(unwrapped(c), bool) for c in (condlist if several else [condlist])]


@counterpart(np.real_if_close)
def real_if_close(a: Array, tol: float = 100) -> Array:
    bare = unwrapped(a)
    return ops.real(a) if bare.dtype.kind == "c" and np.isrealobj(np.real_if_close(bare, tol)) else a


@counterpart(np.iscomplex)
def iscomplex(x: Array) -> Array:
    return ops.logical_not(ops.isreal(x))


@counterpart(np.fix)
def fix(x: Array) -> Array:
    return ops.trunc(x)


@counterpart(np.i0)
def i0(x: Array) -> Array:
    return ops.i0(x)


@counterpart(np.vander)
def vander(x: Array, N: Any = None, increasing: bool = False) -> Array:
    return ops.vander(x, N, increasing)


@counterpart(np.astype)
def astype(x: Array, dtype: DType, /, *, copy: bool = True, device: Device | str | int | None = None) -> Array:
    return ops.clone(ops.to_dtype(x, np.dtype(dtype))) if copy else ops.to_dtype(x, np.dtype(dtype))


@counterpart(np.modf)
def modf(x: Array) -> tuple[Array, Array]:
    return ops.sub(x, ops.trunc(x)), ops.trunc(x)


@counterpart(np.divmod)
def divmod_(x1: Array, x2: Array) -> tuple[Array, Array]:
    return ops.floor_divide(x1, x2), ops.remainder(x1, x2)


# ---- one row after the other


@counterpart(np.apply_along_axis)
def apply_along_axis(func1d: Any, axis: int, arr: Array, *args: Any, **kwargs: Any) -> Array:
    axis %= arr._array.ndim
    rows = ops.movedim(arr, axis, -1)
    lead = rows._array.shape[:-1]
    found = [func1d(row, *args, **kwargs) for row in ops.unbind(ops.reshape(rows, (-1, rows._array.shape[-1])), 0)]
    stacked = ops.stack(tensors([*found, arr])[:-1])
    result = ops.reshape(stacked, (*lead, *stacked._array.shape[1:]))
    inner = range(len(lead), result._array.ndim)
    return ops.movedim(result, tuple(inner), tuple(axis + k for k in range(len(inner))))


@counterpart(np.apply_over_axes)
def apply_over_axes(func: Callable[..., Any], a: Array, axes: Any) -> Tensor:
    for axis in np.atleast_1d(axes).tolist():
        found = func(a, axis)
        a = found if found._array.ndim == a._array.ndim else ops.unsqueeze(found, axis % a._array.ndim)
    return a


# ---- shapes


@counterpart(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: Array, /) -> Array:
    return ops.swapaxes(x, -1, -2)


@counterpart(np.hsplit)
def hsplit(ary: Array, indices_or_sections: Any) -> list[Tensor]:
    return split(ary, indices_or_sections, 0 if ary._array.ndim == 1 else 1)


@counterpart(np.vsplit)
def vsplit(ary: Array, indices_or_sections: Any) -> list[Tensor]:
    return split(ary, indices_or_sections, 0)


@counterpart(np.dsplit)
def dsplit(ary: Array, indices_or_sections: Any) -> list[Tensor]:
    return split(ary, indices_or_sections, 2)


@counterpart(np.meshgrid)
def meshgrid(*xi: Any, indexing: str = "xy", copy: bool = True, sparse: bool = False) -> tuple[Any, ...]:
    if sparse:
        raise ops.Missing("meshgrid")
    return tuple(ops.meshgrid(*tensors(xi), indexing=indexing))


@counterpart(np.ravel)
def ravel(a: Array) -> Array:
    return ops.reshape(a, (-1,))


@counterpart(np.reshape)
def reshape(a: Array, /, shape: Any, *, order: str = "C") -> Array:
    if order != "C":
        raise TypeError(f"np.reshape of a tensor takes order='C', not {order!r}")
    return ops.reshape(a, (shape,) if isinstance(shape, int) else shape)


@counterpart(np.transpose)
def transpose(a: Array, axes: Any = None) -> Array:
    return ops.permute(a, tuple(range(a._array.ndim))[::-1] if axes is None else tuple(axes))


@counterpart(np.squeeze)
def squeeze(a: Array, axis: Any = None) -> Array:
    for k in () if axis is None else np.atleast_1d(axis):
        if a._array.shape[k] != 1:
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return ops.squeeze(a) if axis is None else ops.squeeze(a, axis)


@counterpart(np.flip)
def flip(m: Array, axis: Any = None) -> Array:
    axes = range(m._array.ndim) if axis is None else np.atleast_1d(axis).tolist()
    return ops.flip(m, tuple(axes))


@counterpart(np.rot90)
def rot90(m: Array, k: int = 1, axes: Any = (0, 1)) -> Array:
    return ops.rot90(m, k, axes)


@counterpart(np.roll)
def roll(a: Array, shift: Any, axis: Dims = None) -> Array:
    return ops.roll(a, shift) if axis is None else ops.roll(a, shift, axis)


@counterpart(np.tile)
def tile(A: Array, reps: Any) -> Array:
    return ops.tile(A, (reps,) if isinstance(reps, int) else tuple(reps))


@counterpart(np.repeat)
def repeat(a: Array, repeats: Any, axis: Dims = None) -> Array:
    if axis is not None and not isinstance(repeats, (int, Tensor)):
        repeats = Tensor(np.asarray(repeats), a._xp)
    return ops.repeat_interleave(a, repeats, axis)


@counterpart(np.concatenate)
def concatenate(arrays: Any, /, axis: Dims = 0) -> Array:
    arrays = tensors(arrays)
    return ops.cat([flat(a, 0)[0] for a in arrays]) if axis is None else ops.cat(arrays, axis)


@counterpart(np.stack)
def stack(arrays: Any, axis: int = 0) -> Array:
    return ops.stack(tensors(arrays), axis)


@counterpart(np.array_split)
def array_split(ary: Array, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    return list(ops.tensor_split(ary, indices_or_sections, axis))


@counterpart(np.split)
def split(ary: Array, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    if isinstance(indices_or_sections, int) and ary._array.shape[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


@counterpart(np.take)
def take(a: Array, indices: Any, axis: Any = None, *, mode: str = "raise") -> Array:
    if axis is None:
        a, axis = flat(a, 0)
    index = inside(as_index(indices, a), a._array.shape[axis], mode)
    taken = ops.index_select(a, axis, ops.reshape(index, (-1,)))
    shape = a._array.shape
    axis %= len(shape)
    return ops.reshape(taken, (*shape[:axis], *index._array.shape, *shape[axis + 1 :]))


@counterpart(np.take_along_axis)
def take_along_axis(arr: Array, indices: Array, axis: Dims = -1) -> Array:
    return ops.take_along_dim(arr, indices, axis)


def inside(index: Tensor, size: int, mode: str) -> Tensor:
    """Indices counted from the front; those beyond the end by the rule that `mode` names."""
    array = index._array
    if mode == "clip":
        return Tensor(array.clip(0, max(size - 1, 0)), index._xp)
    if mode == "wrap" and size:
        return Tensor(array % size, index._xp)
    return Tensor(np.where((array < 0) & (array >= -size), array + size, array), index._xp)


def as_index(indices: Any, a: Tensor) -> Tensor:
    array = np.asarray(unwrapped(indices))
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"indices must be integers, not {array.dtype}")
    return Tensor(array.astype(np.int64), a._xp)


# ---- no derivative at all: computed on the bare arrays, whatever the arguments require; all give integers or truths

NONDIFFERENTIABLE = {
    np.argpartition, np.argwhere, np.array_equal, np.array_equiv, np.digitize, np.flatnonzero, np.isin, np.lexsort,
    np.ndim, np.nonzero, np.result_type, np.searchsorted, np.shape, np.size, np.nanargmax, np.nanargmin,
    np.unravel_index, np.empty_like, np.shares_memory, np.may_share_memory, np.can_cast, np.iscomplexobj,
    np.isrealobj, np.array_repr, np.array_str, np.array2string, np.diag_indices_from, np.tril_indices_from,
    np.triu_indices_from, np.einsum_path, np.common_type, np.min_scalar_type, np.linalg.matrix_rank,
}  # fmt: skip
