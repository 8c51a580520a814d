"""NumPy's functions in terms of undertow's operations, with NumPy's signatures and defaults.

Each entry takes the arguments that NumPy's function documents (those that make sense for a tensor; any other is a
TypeError) and calls operations by name. Arrays among the arguments have become tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.ops.declare import REGISTRY
from undertow.tensor import Tensor


class _Operations:
    """Operations by name: `ops.sum(t)`."""

    class Missing(AttributeError):
        """There is no such operation."""

    def __getattr__(self, name: str) -> Any:
        if name not in REGISTRY:
            raise self.Missing(name)
        return REGISTRY[name].function

    def find(self, name: str | None) -> Any:
        return REGISTRY[name].function if name in REGISTRY else None


ops = _Operations()

#: NumPy function -> its counterpart
FUNCTIONS: dict[Any, Callable[..., Any]] = {}


def counterpart(*functions: Any) -> Callable[[Any], Any]:
    def join(function: Any) -> Any:
        FUNCTIONS.update(dict.fromkeys(functions, function))
        return function

    return join


# ---- the same leading arguments


def same(function: Any, name: str) -> None:
    """Arguments as they are: for functions whose every accepted argument means the same to the operation."""
    FUNCTIONS[function] = lambda *args, **kwargs: getattr(ops, name)(*args, **kwargs)


for _name in ("allclose", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "column_stack", "diff", "dstack",
              "expand_dims", "fliplr", "flipud", "hstack", "imag", "isclose", "isneginf", "isposinf", "isreal", "kron",
              "moveaxis", "ones_like", "real", "sinc", "swapaxes", "trapezoid", "vstack", "zeros_like"):  # fmt: skip
    same(getattr(np, _name), _name)


def reduction(function: Any, name: str) -> None:
    def reduce(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return getattr(ops, name)(a, axis, keepdim=keepdims)

    FUNCTIONS[function] = reduce


for _name in ("all", "any", "argmax", "argmin"):
    reduction(getattr(np, _name), _name)


def reduction_with_dtype(function: Any, name: str) -> None:
    def reduce(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
        return getattr(ops, name)(a, axis, keepdim=keepdims, dtype=dtype)

    FUNCTIONS[function] = reduce


for _name in ("sum", "mean", "nansum", "nanmean"):
    reduction_with_dtype(getattr(np, _name), _name)


def with_diagonal(function: Any, name: str) -> None:
    def call(v: Any, k: int = 0) -> Any:
        return getattr(ops, name)(v, k)

    FUNCTIONS[function] = call


for _name in ("diag", "diagflat", "tril", "triu"):
    with_diagonal(getattr(np, _name), _name)


# ---- elementwise


@counterpart(np.clip)
def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    return ops.clamp(a, a_min if min is None else min, a_max if max is None else max)


@counterpart(np.round, np.around)
def round_(a: Any, decimals: int = 0) -> Any:
    return ops.round(a, decimals=decimals)


@counterpart(np.nan_to_num)
def nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    return ops.nan_to_num(x, nan, posinf, neginf)


@counterpart(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    return ops.rad2deg(ops.angle(z)) if deg else ops.angle(z)


@counterpart(np.copy)
def copy(a: Any) -> Any:
    return ops.clone(a)


@counterpart(np.where)
def where(condition: Any, *choices: Any) -> Any:
    return ops.where(condition, *choices)


@counterpart(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None) -> Any:
    return ops.full_like(a, fill_value, dtype=dtype)


# ---- reductions


@counterpart(np.max, np.amax)
def amax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return ops.amax(a, () if axis is None else axis, keepdim=keepdims)


@counterpart(np.min, np.amin)
def amin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return ops.amin(a, () if axis is None else axis, keepdim=keepdims)


@counterpart(np.prod)
def prod(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    if axis is None and not keepdims:
        return ops.prod(a, dtype=dtype)
    axes = range(a._array.ndim) if axis is None else np.atleast_1d(axis).tolist()
    for k in sorted([k % a._array.ndim for k in axes], reverse=True):
        a = ops.prod(a, k, keepdim=keepdims, dtype=dtype)
    return a


@counterpart(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None) -> Any:
    return ops.count_nonzero(a, axis)


@counterpart(np.var)
def var(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    return ops.var(a, axis, correction=ddof, keepdim=keepdims)


@counterpart(np.std)
def std(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    return ops.std(a, axis, correction=ddof, keepdim=keepdims)


@counterpart(np.ptp)
def ptp(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return ops.sub(amax(a, axis, keepdims=keepdims), amin(a, axis, keepdims=keepdims))


@counterpart(np.median)
def median(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    # the mean of both middle values, where the operation `median` takes the lower one
    return ops.quantile(a, 0.5, axis, keepdim=keepdims)


@counterpart(np.nanmedian)
def nanmedian(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return ops.nanquantile(a, 0.5, axis, keepdim=keepdims)


@counterpart(np.quantile)
def quantile(a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    return ops.quantile(a, like_input(q, a), axis, keepdim=keepdims, interpolation=method)


@counterpart(np.percentile)
def percentile(a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    return quantile(a, np.asarray(unwrapped(q)) / 100, axis, method=method, keepdims=keepdims)


def like_input(q: Any, a: Tensor) -> Any:
    """Quantiles as a number or as a tensor of the input's dtype."""
    array = np.asarray(unwrapped(q), dtype=a._array.dtype)
    return float(array) if array.ndim == 0 else Tensor(array, a._xp)


def unwrapped(value: Any) -> Any:
    return value._array if isinstance(value, Tensor) else value


@counterpart(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, *, keepdims: bool = False) -> Any:
    if weights is None:
        return ops.mean(a, axis, keepdim=keepdims)
    if weights._array.shape != a._array.shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        weights = ops.reshape(weights, [-1 if k == axis % a._array.ndim else 1 for k in range(a._array.ndim)])
    weights = ops.broadcast_to(weights, a._array.shape)
    total = ops.sum(weights, axis, keepdim=keepdims)
    return ops.true_divide(ops.sum(ops.mul(a, weights), axis, keepdim=keepdims), total)


@counterpart(np.cumsum)
def cumsum(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    return ops.cumsum(*(flat(a, 0) if axis is None else (a, axis)), dtype=dtype)


@counterpart(np.cumprod)
def cumprod(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    return ops.cumprod(*(flat(a, 0) if axis is None else (a, axis)), dtype=dtype)


def flat(a: Any, axis: int) -> tuple[Any, int]:
    """The flattened input, for functions that do so when no axis is given."""
    return ops.reshape(a, (-1,)), axis


@counterpart(np.sort)
def sort(a: Any, axis: Any = -1, *, kind: Any = None, stable: Any = None) -> Any:
    return ops.sort(*(flat(a, 0) if axis is None else (a, axis)))[0]


@counterpart(np.argsort)
def argsort(a: Any, axis: Any = -1, *, kind: Any = None, stable: Any = None) -> Any:
    return ops.argsort(*(flat(a, 0) if axis is None else (a, axis)), stable=True)


@counterpart(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return ops.sum(ops.diagonal(a, offset, axis1, axis2), -1)


@counterpart(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return ops.diagonal(a, offset, axis1, axis2)


# ---- shapes


@counterpart(np.ravel)
def ravel(a: Any) -> Any:
    return ops.reshape(a, (-1,))


@counterpart(np.reshape)
def reshape(a: Any, /, shape: Any, *, order: str = "C") -> Any:
    if order != "C":
        raise TypeError(f"np.reshape of a tensor takes order='C', not {order!r}")
    return ops.reshape(a, (shape,) if isinstance(shape, int) else shape)


@counterpart(np.transpose)
def transpose(a: Any, axes: Any = None) -> Any:
    return ops.permute(a, tuple(range(a._array.ndim))[::-1] if axes is None else tuple(axes))


@counterpart(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Any:
    for k in () if axis is None else np.atleast_1d(axis):
        if a._array.shape[k] != 1:
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return ops.squeeze(a) if axis is None else ops.squeeze(a, axis)


@counterpart(np.flip)
def flip(m: Any, axis: Any = None) -> Any:
    axes = range(m._array.ndim) if axis is None else np.atleast_1d(axis).tolist()
    return ops.flip(m, tuple(axes))


@counterpart(np.rot90)
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    return ops.rot90(m, k, axes)


@counterpart(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    return ops.roll(a, shift) if axis is None else ops.roll(a, shift, axis)


@counterpart(np.tile)
def tile(A: Any, reps: Any) -> Any:
    return ops.tile(A, (reps,) if isinstance(reps, int) else tuple(reps))


@counterpart(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    if axis is not None and not isinstance(repeats, (int, Tensor)):
        repeats = Tensor(np.asarray(repeats), a._xp)
    return ops.repeat_interleave(a, repeats, axis)


@counterpart(np.concatenate)
def concatenate(arrays: Any, /, axis: Any = 0) -> Any:
    arrays = tensors(arrays)
    return ops.cat([flat(a, 0)[0] for a in arrays]) if axis is None else ops.cat(arrays, axis)


@counterpart(np.stack)
def stack(arrays: Any, axis: int = 0) -> Any:
    return ops.stack(tensors(arrays), axis)


def tensors(values: Any) -> list[Any]:
    """The members of a sequence, numbers and lists among them as tensors too."""
    example = next(v for v in values if isinstance(v, Tensor))
    return [v if isinstance(v, Tensor) else Tensor(np.asarray(v), example._xp) for v in values]


@counterpart(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return list(ops.tensor_split(ary, indices_or_sections, axis))


@counterpart(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    if isinstance(indices_or_sections, int) and ary._array.shape[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


@counterpart(np.take)
def take(a: Any, indices: Any, axis: Any = None) -> Any:
    index = as_index(indices, a)
    if axis is None:
        a, axis = flat(a, 0)
    taken = ops.index_select(a, axis, ops.reshape(index, (-1,)))
    shape = a._array.shape
    axis %= len(shape)
    return ops.reshape(taken, (*shape[:axis], *index._array.shape, *shape[axis + 1 :]))


@counterpart(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    return ops.take_along_dim(arr, indices, axis)


def as_index(indices: Any, a: Tensor) -> Tensor:
    array = np.asarray(unwrapped(indices))
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"indices must be integers, not {array.dtype}")
    return Tensor(array.astype(np.int64), a._xp)


@counterpart(np.pad)
def pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    if mode != "constant" or not isinstance(constant_values, (int, float, complex)):
        raise ops.Missing("pad")
    widths = np.broadcast_to(np.asarray(pad_width), (array._array.ndim, 2))
    return ops.constant_pad_nd(array, [int(n) for pair in widths[::-1] for n in pair], constant_values)


@counterpart(np.meshgrid)
def meshgrid(*xi: Any, indexing: str = "xy", copy: bool = True, sparse: bool = False) -> Any:
    if sparse:
        raise ops.Missing("meshgrid")
    return tuple(ops.meshgrid(*tensors(xi), indexing=indexing))


# ---- no derivative at all: computed on the bare arrays, whatever the arguments require

NONDIFFERENTIABLE = {
    np.argpartition, np.argwhere, np.array_equal, np.array_equiv, np.bincount, np.digitize, np.flatnonzero,
    np.histogram, np.isin, np.lexsort, np.ndim, np.nonzero, np.result_type, np.searchsorted, np.shape, np.size,
    np.argmax, np.argmin, np.nanargmax, np.nanargmin, np.unravel_index, np.empty_like, np.shares_memory,
    np.may_share_memory, np.can_cast, np.iscomplexobj, np.isrealobj, np.array_repr, np.array_str, np.array2string,
}  # fmt: skip

#: functions that write into their first argument
MUTATING = {np.copyto, np.fill_diagonal, np.put, np.place, np.putmask, np.put_along_axis}
