"""MetaArray: an array of the meta device, which has a shape, a dtype and strides, and no memory.

A function of NumPy, a ufunc, an operator or a method applied to one gives what it would give (outcomes.py); views are
views, and changes in place are checked and forgotten. Asking for a value raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from undertow.backend.interface import Array, DType, KnownShape
from undertow.backend.meta.geometry import dense_like, order_of_elementwise, shrunk, unmapped
from undertow.backend.meta.outcomes import outcome, refused
from undertow.backend.simulated.plans import is_basic, open_index
from undertow.errors import NoValuesError

#: functions that give views, whatever they are applied to
VIEWS = {"T", "mT", "real", "view", "transpose", "permute_dims", "swapaxes", "matrix_transpose", "moveaxis", "rollaxis",
         "squeeze", "expand_dims", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "broadcast_arrays",
         "split", "array_split", "hsplit", "vsplit", "dsplit", "diagonal", "flipud", "fliplr", "rot90", "as_strided",
         "sliding_window_view"}  # fmt: skip
#: functions that look at no element
ASK_SHAPE = {"shape", "ndim", "size", "result_type", "can_cast", "common_type", "min_scalar_type", "may_share_memory",
             "iscomplexobj", "isrealobj", "setflags"}  # fmt: skip
#: functions and methods that change their first argument
CHANGES_FIRST = {"put", "place", "putmask", "put_along_axis", "fill_diagonal", "fill", "sort", "partition", "at"}
#: the functions of that name leave it alone
RETURNS_COPY = {np.sort, np.partition}


class MetaArray(NDArrayOperatorsMixin, KnownShape):
    __slots__ = ("__weakref__", "_data", "base")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, data: Array, base: MetaArray | None = None) -> None:
        self._data = data
        self.base = base

    # ---- what NumPy is asked to do with it

    def __array_ufunc__(self, ufunc: Array, method: str, *inputs: Any, **kwargs: Any) -> Array | None:
        if method == "at":
            return None
        call = ufunc if method == "__call__" else getattr(ufunc, method)
        return apply(ufunc.__name__, call, inputs, kwargs)

    def __array_function__(self, function: Callable[..., Any], types: tuple[Any, ...], args: Any, kwargs: Any) -> Any:
        name = function.__name__
        if name in CHANGES_FIRST and function not in RETURNS_COPY:
            return None
        return apply(name, function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        method = getattr(np.ndarray, name, None)
        if name in ("T", "mT", "real", "imag"):
            return apply(name, getattr, (self, name), {})
        if name.startswith("__") or not callable(method):
            raise AttributeError(f"an array on the meta device has no attribute {name!r}")
        if name in CHANGES_FIRST:
            return lambda *args, **kwargs: None
        return lambda *args, **kwargs: apply(name, method, (self, *args), kwargs)

    def __getitem__(self, index: Any) -> Any:
        return apply("getitem", np.ndarray.__getitem__, (self, index), {})

    def __setitem__(self, index: Any, value: Array) -> None:
        check_write(self[open_index(index)] if is_basic(index) else self[index], value)

    # ---- values, which there are none of

    def to_host(self) -> Array:
        raise NoValuesError(
            "Cannot copy out of meta tensor; no data! Use Module.to_empty() instead of Module.to() to move a module "
            "away from meta, and empty_like(tensor, device=...) for a tensor."
        )

    def item(self, *index: Any) -> Any:
        raise NoValuesError("Tensor.item() cannot be called on meta tensors: they have no values")

    def tolist(self) -> Any:
        return self.to_host()

    def __bool__(self) -> bool:
        return self.item()  # type: ignore[no-any-return]

    __int__ = __float__ = __complex__ = __index__ = item

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    def __array__(self, dtype: DType | None = None, copy: Any = None) -> Any:
        self.to_host()

    def __reduce__(self) -> Any:
        return restore, (self.shape, self.dtype, self.strides)

    def __deepcopy__(self, memo: Any) -> MetaArray:
        return restore(self.shape, self.dtype, self.strides)

    def __repr__(self) -> str:
        return f"<array of {self.dtype} {list(self.shape)} on meta>"


def restore(shape: tuple[int, ...], dtype: DType, strides: tuple[int, ...]) -> MetaArray:
    return MetaArray(unmapped(shape, dtype, strides))


def apply(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What a function would return, as MetaArrays."""
    found: list[MetaArray] = []
    args, kwargs = uncovered(args, found), uncovered(kwargs, found)
    if name in ASK_SHAPE:
        return function(*args, **kwargs)
    special = SPECIAL.get(name)
    if special is not None:
        result = special(*args, **kwargs)
        if result is not NotImplemented:
            return covered(result, found)
    elif name in VIEWS:
        return covered(function(*args, **kwargs), found)
    out = kwargs.pop("out", None)
    result = outcome(name, function, args, kwargs, [array._data for array in found])
    if out is None or (isinstance(out, tuple) and all(o is None for o in out)):
        return covered(result, [])
    return written(name, out, result, found)


def written(name: str, out: Any, result: Array, found: list[MetaArray]) -> Array:
    """The arrays that a function was told to write to, if its results fit into them."""
    places = out if isinstance(out, tuple) else (out,)
    for place, made in zip(places, result if isinstance(result, tuple) else (result,), strict=True):
        if np.broadcast_shapes(made.shape, place.shape) != place.shape:
            raise ValueError(f"{name}: the result of shape {made.shape} does not fit into out= of shape {place.shape}")
    shown = covered(tuple(places), found)
    return shown if len(places) > 1 else shown[0]


def uncovered(value: Any, found: list[MetaArray]) -> Any:
    """`value` with every MetaArray in it replaced by the NumPy array that stands for it; these are added to `found`."""
    if isinstance(value, MetaArray):
        found.append(value)
        return value._data
    if type(value) in (tuple, list):
        return type(value)([uncovered(v, found) for v in value])
    if type(value) is dict:
        return {key: uncovered(v, found) for key, v in value.items()}
    return value


def covered(result: Any, found: list[MetaArray]) -> Any:
    """A result as MetaArrays; what shows the addresses of an argument is a view of it."""
    if isinstance(result, np.ndarray):
        for source in found:
            if source._data is result:
                return source
            if owner(result) is owner(source._data):
                return MetaArray(result, source if source.base is None else source.base)
        return MetaArray(result)
    if isinstance(result, np.generic):
        return MetaArray(unmapped((), result.dtype))
    if isinstance(result, (tuple, list)):
        parts = [covered(r, found) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def owner(array: Array) -> Any:
    """What holds the addresses that an array shows."""
    while getattr(array, "base", None) is not None:
        array = array.base
    return array


# ---- functions that may copy or may give a view


def getitem(array: Array, index: Any) -> Any:
    if is_basic(index):
        shown, parts = array[open_index(index)], index if type(index) is tuple else (index,)
        return shown if shown.ndim or Ellipsis in parts else unmapped((), array.dtype)
    if any(is_mask(part) for part in (index if type(index) is tuple else (index,))):
        raise refused("getitem", "the shape of what a mask selects depends on values")
    return NotImplemented


def is_mask(part: Array) -> bool:
    if isinstance(part, (list, bool, np.bool_)):
        part = np.asarray(part)
    return isinstance(part, np.ndarray) and part.dtype.kind == "b"


def reshape(array: Array, *shape: Any, **options: Any) -> Array:
    shape = options.pop("shape", shape[0] if len(shape) == 1 else shape)
    options.pop("copy", None)
    order = options.pop("order", "C")
    sizes = [int(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,))]
    if -1 in sizes:
        known = math.prod([n for n in sizes if n != -1])
        if not known or array.size % known or sizes.count(-1) > 1:
            raise ValueError(f"cannot reshape array of size {array.size} into shape {tuple(sizes)}")
        sizes[sizes.index(-1)] = array.size // known
    if math.prod(sizes) != array.size:
        raise ValueError(f"cannot reshape array of size {array.size} into shape {tuple(sizes)}")
    try:
        return np.reshape(array, sizes, order=order, copy=False)
    except ValueError:
        return copied_in(order, array.dtype, tuple(sizes))


def copied_in(order: str, dtype: DType, shape: tuple[int, ...]) -> Array:
    """A new array of a shape, row-major or column-major."""
    return unmapped(shape[::-1], dtype).T if order == "F" else unmapped(shape, dtype)


def ravel(array: Array, order: str = "C") -> Array:
    return reshape(array, -1, order=order if order in "CF" else "C")


def flatten(array: Array, order: str = "C") -> Array:
    return unmapped((array.size,), array.dtype)


def empty_like(array: Array, dtype: DType = None, order: Any = "K", subok: bool = True, shape: Any = None) -> Array:
    dtype = array.dtype if dtype is None else np.dtype(dtype)
    if shape is not None and tuple(np.atleast_1d(shape)) != array.shape:
        return unmapped(np.atleast_1d(shape).tolist(), dtype)
    if order in "CF":
        return copied_in(order, dtype, array.shape)
    return dense_like(np.empty_like(shrunk(array), order=order), array.shape, dtype)


def full_like(array: Array, fill_value: Any, dtype: DType = None, **options: Any) -> Array:
    return empty_like(array, dtype, **options)


def copy(array: Array, order: str = "C", **options: Any) -> Array:
    return empty_like(array, order=order)


def astype(array: Array, dtype: DType, order: str = "K", copy: bool = True, **options: Any) -> Array:
    return array if not copy and array.dtype == dtype else empty_like(array, dtype, order)


def where(condition: Array, *choices: Any) -> Array:
    if not choices:
        raise refused("where", "how many elements are not zero depends on values")
    with np.errstate(all="ignore"):
        dtype = np.where(True, *[np.ones((), c.dtype) if isinstance(c, np.ndarray) else c for c in choices]).dtype
    arrays = [a for a in (condition, *choices) if isinstance(a, np.ndarray)]
    shape = np.broadcast_shapes(*[np.shape(a) for a in (condition, *choices)])
    return dense_like(order_of_elementwise(arrays), shape, dtype)


def repeat(array: Array, repeats: Any, axis: int | None = None) -> Array:
    if not isinstance(repeats, (int, np.integer)):
        raise refused("repeat", "how often each element is repeated depends on values")
    array = ravel(array) if axis is None else array
    shape = list(array.shape)
    shape[axis or 0] *= int(repeats)
    return unmapped(shape, array.dtype)


def copyto(target: Array, value: Array, **options: Any) -> None:
    check_write(target, value)


def check_write(target: Array, value: Array) -> None:
    if np.broadcast_shapes(np.shape(value), target.shape) != target.shape:
        raise ValueError(f"could not broadcast input array from shape {np.shape(value)} into shape {target.shape}")


def imaginary(array: Array, *name: str) -> Array:
    return array.imag if array.dtype.kind == "c" else empty_like(array)


def flip(array: Array, axis: Any = None) -> Array:
    return np.flip(array, axis) if array.ndim else array[...]  # NumPy would read a single number


def unstack(array: Array, *, axis: int = 0) -> tuple[Array, ...]:
    first = np.moveaxis(array, axis, 0)
    return tuple([first[k, ...] for k in range(len(first))])


SPECIAL: dict[str, Callable[..., Any]] = {
    "getitem": getitem, "reshape": reshape, "ravel": ravel, "flatten": flatten, "empty_like": empty_like,
    "zeros_like": empty_like, "ones_like": empty_like, "full_like": full_like, "astype": astype, "where": where,
    "copy": copy, "repeat": repeat, "copyto": copyto, "imag": imaginary, "flip": flip, "unstack": unstack,
}  # fmt: skip
