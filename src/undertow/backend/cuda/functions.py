"""Functions of NumPy on arrays of a GPU, made of kernels and views. What is not here is computed on the host (tail.py).

They take NumPy's arguments, and return NotImplemented where they do not serve.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import compositions, counting, device, indexing, scans, searching, sorting, tail
from undertow.backend.cuda.indexing import at as at
from undertow.backend.cuda.making import copied, copyto, empty_like, full_like, ones_like, zeros_like
from undertow.backend.cuda.products import dot, matmul, outer, tensordot
from undertow.backend.cuda.reductions import OPERATIONS, axes_of, mean_of, reduce, result_dtype, supported
from undertow.backend.interface import Array, DType

REDUCTIONS = frozenset(OPERATIONS)

#: the modules whose functions are meant: numpy.linalg has some of the same names
MODULES = ("numpy", "numpy.lib.stride_tricks")

#: functions that change their first argument, and methods
CHANGES_FIRST = frozenset({"copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal"})
METHODS_THAT_CHANGE = frozenset({"sort", "partition", "put", "resize", "byteswap"})

NOTHING = np._NoValue


# ---- what is asked of shapes and dtypes


def _overlap(a: Array, b: Array, *options: Any, **named: Any) -> bool:
    return tail.is_device_array(a) and tail.is_device_array(b) and shadowed(a, b)


def shadowed(a: Array, b: Array) -> bool:
    """Whether the bytes between the first and the last element of two arrays meet."""
    shadow = device.extension().shadow
    low, high = np.lib.array_utils.byte_bounds(shadow(a))
    other_low, other_high = np.lib.array_utils.byte_bounds(shadow(b))
    return bool(a.size and b.size and low < other_high and other_low < high)


def _of_dtypes(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **named: function(*[a.dtype if tail.is_device_array(a) else a for a in args], **named)


ASK_SHAPE: dict[str, Callable[..., Any]] = {
    "shape": lambda a: a.shape,
    "ndim": lambda a: a.ndim,
    "size": lambda a, axis=None: a.size if axis is None else a.shape[axis],
    "result_type": _of_dtypes(np.result_type),
    "can_cast": _of_dtypes(np.can_cast),
    "min_scalar_type": _of_dtypes(np.min_scalar_type),
    "common_type": lambda *a: np.common_type(*[np.empty(0, x.dtype) for x in a]),
    "iscomplexobj": lambda a: a.dtype.kind == "c",
    "isrealobj": lambda a: a.dtype.kind != "c",
    "may_share_memory": _overlap,
    "shares_memory": _overlap,
}


# ---- reductions


def reduction(name: str) -> Callable[..., Any]:
    def function(
        a: Array, axis: Any = None, dtype: DType = None, out: Any = None, keepdims: Array = NOTHING, **options: Any
    ) -> Any:
        to = result_dtype(name, a, dtype)
        if not tail.is_device_array(a) or out is not None or not supported(name, a, to, options):
            return NotImplemented
        return reduce(name, a, axis, to, keepdims is not NOTHING and bool(keepdims))

    return function


def extremum(name: str) -> Callable[..., Any]:
    function = reduction(name)

    def found(
        a: Array, axis: Any = None, out: Any = None, keepdims: Array = NOTHING, initial: Array = NOTHING, **options: Any
    ) -> Any:
        if initial is not NOTHING and (not a.size or type(initial) not in (int, float)):
            return NotImplemented
        most = function(a, axis, None, out, keepdims, **options)
        return most if initial is NOTHING or most is NotImplemented else a.namespace.kernels[name](most, initial)

    return found


def truth(name: str) -> Callable[..., Any]:
    function = reduction(name)
    return lambda a, axis=None, out=None, keepdims=NOTHING, **options: function(a, axis, None, out, keepdims, **options)


def mean(
    a: Array, axis: Any = None, dtype: DType = None, out: Any = None, keepdims: Array = NOTHING, **options: Any
) -> Array:
    kind = dtypes.kind_of(a.dtype)
    if kind == "c" and out is None and dtype is None and not options:
        count = math.prod([a.shape[d] for d in axes_of(axis, a.ndim)])
        return reduce("add", a, axis, a.dtype, keepdims is not NOTHING and bool(keepdims)) / float(count)
    if out is not None or options or kind not in "buif":
        return NotImplemented
    to = np.dtype(dtype) if dtype is not None else a.dtype if kind == "f" else np.dtype(np.float64)
    if dtypes.kind_of(to) != "f":
        return NotImplemented
    return mean_of(a, axis, keepdims is not NOTHING and bool(keepdims), to)


def var(
    a: Array,
    axis: Any = None,
    dtype: DType = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = NOTHING,
    **options: Any,
) -> Any:
    if out is not None or options or dtype is not None or a.dtype.kind != "f" or dtypes.is_narrow(a.dtype):
        return NotImplemented
    deviations = a - mean_of(a, axis, True, a.dtype)
    count = math.prod([a.shape[d] for d in axes_of(axis, a.ndim)])
    total = reduce("add", deviations * deviations, axis, a.dtype, keepdims is not NOTHING and bool(keepdims))
    return total / max(count - ddof, 0) if count - ddof > 0 else total / 0.0


def std(a: Array, *args: Any, **options: Any) -> Any:
    found = var(a, *args, **options)
    return found if found is NotImplemented else found.namespace.sqrt(found)


# ---- joining


def concatenate(
    arrays: Sequence[Array], axis: int | None = 0, out: Any = None, dtype: DType = None, casting: str = "same_kind"
) -> Array:
    given = list(arrays)
    if out is not None or axis is None or not any(map(tail.is_device_array, given)):
        return NotImplemented
    if dtype is None and tail.is_device_array(given[0]):
        joined = device.extension().join(given, axis if axis >= 0 else axis + given[0].ndim)
        if joined is not None:
            return joined
    space = next(a for a in given if tail.is_device_array(a)).namespace
    given = [a if tail.is_device_array(a) else space.asarray(a) for a in given]
    first = given[0]
    axis = np.lib.array_utils.normalize_axis_index(axis, first.ndim)
    for a in given:
        if a.ndim != first.ndim or a.shape[:axis] + a.shape[axis + 1 :] != first.shape[:axis] + first.shape[axis + 1 :]:
            raise ValueError("all the input array dimensions except for the concatenation axis must match exactly")
    to = np.dtype(dtype) if dtype is not None else common_dtype(given)
    sizes = [a.shape[axis] for a in given]
    made = device.extension().empty((*first.shape[:axis], sum(sizes), *first.shape[axis + 1 :]), to)
    start = 0
    for a, size in zip(given, sizes, strict=True):
        copyto(made[(slice(None),) * axis + (slice(start, start + size),)], a, casting="unsafe")
        start += size
    return made


def common_dtype(arrays: Sequence[Array]) -> np.dtype[Any]:
    first: np.dtype[Any] = arrays[0].dtype
    return first if all([a.dtype == first for a in arrays]) else np.result_type(*[a.dtype for a in arrays])


def stack(arrays: Sequence[Array], axis: int = 0, out: Any = None, **options: Any) -> Array:
    given = list(arrays)
    if not all(map(tail.is_device_array, given)) or not given:
        return NotImplemented
    nd = given[0].ndim + 1
    axis = np.lib.array_utils.normalize_axis_index(axis, nd)
    if len({a.shape for a in given}) > 1:
        raise ValueError("all input arrays must have the same shape")
    index = (slice(None),) * axis + (None,)
    return concatenate([a[index] for a in given], axis, out, **options)


# ---- choosing and moving


def where(condition: Array, *values: Any) -> Array:
    if len(values) != 2:
        return NotImplemented
    arrays = [v for v in (condition, *values) if tail.is_device_array(v)]
    if not arrays:
        return NotImplemented
    space = arrays[0].namespace
    operands = [space.asarray(v) if isinstance(v, np.ndarray) and v.ndim else v for v in (condition, *values)]
    return space.where_kernel(*operands)


def clip(
    a: Array, a_min: Any = NOTHING, a_max: Any = NOTHING, out: Any = None, *, min: Array = NOTHING,
    max: Array = NOTHING, **options: Any,
) -> Array:  # fmt: skip
    low, high = (a_min if a_min is not NOTHING else min), (a_max if a_max is not NOTHING else max)
    if out is not None or options or a.dtype.kind == "c":
        return NotImplemented
    space = a.namespace
    found = a if low is None or low is NOTHING else space.maximum(a, low)
    found = found if high is None or high is NOTHING else space.minimum(found, high)
    return copied(a) if found is a else found


def take(a: Array, indices: Array, axis: int | None = None, out: Any = None, mode: str = "raise") -> Array | None:
    if out is not None or mode != "raise":
        return NotImplemented
    a = a.reshape(-1) if axis is None else a
    axis = 0 if axis is None else axis % a.ndim
    if not tail.is_device_array(indices) and np.ndim(indices) == 0:
        return a[(slice(None),) * axis + (int(indices),)].copy("C")
    return a[(slice(None),) * axis + (indices if tail.is_device_array(indices) else np.asarray(indices),)]


def repeat(a: Array, repeats: Any, axis: int | None = None) -> Any:
    if tail.is_device_array(repeats):
        repeats = repeats.to_host()
    a = a.reshape(-1) if axis is None else a
    axis = 0 if axis is None else axis
    return take(a, np.repeat(np.arange(a.shape[axis]), repeats), axis)


def tile(a: Array, reps: Any) -> Array:
    times = [int(n) for n in (reps if isinstance(reps, (tuple, list)) else (reps,))]
    times = [1] * (a.ndim - len(times)) + times
    shape = [1] * (len(times) - a.ndim) + list(a.shape)
    pairs = a.reshape([k for n in shape for k in (1, n)])
    spread = a.namespace.broadcast_to(pairs, tuple([k for pair in zip(times, shape, strict=True) for k in pair]))
    return spread.copy("C").reshape([t * n for t, n in zip(times, shape, strict=True)])


def roll(a: Array, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return roll(a.reshape(-1), shift, 0).reshape(a.shape)
    shifts, axes = np.broadcast_arrays(shift, axis)
    for by, dim in zip(shifts.ravel().tolist(), axes.ravel().tolist(), strict=True):
        n = a.shape[dim]
        cut = (n - by % n) if n else 0
        before = (slice(None),) * (dim % a.ndim)
        a = concatenate([a[(*before, slice(cut, None))], a[(*before, slice(0, cut))]], dim)
    return a


def triangle(keep: Callable[[Array, Array], Array]) -> Callable[..., Any]:
    def function(m: Array, k: int = 0) -> Any:
        space = m.namespace
        diagonal, columns = (space.arange(n, dtype=np.int32) for n in m.shape[-2:])
        within = np.int32(min(max(k, -m.shape[-2]), m.shape[-1]))
        return space.where(keep(columns, diagonal[:, None] + within), m, m.dtype.type(0))

    return function


def array_equal(a: Array, b: Array, equal_nan: bool = False) -> bool:
    if a.shape != b.shape or equal_nan:
        return a.shape == b.shape and bool(np.array_equal(a.to_host(), b.to_host(), equal_nan))
    return bool((a == b).all())


def astype(x: Array, dtype: DType, /, *, copy: bool = True, **options: Any) -> Array:
    return x.astype(dtype, copy=copy)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "empty_like": empty_like, "zeros_like": zeros_like, "ones_like": ones_like, "full_like": full_like,
    "copy": lambda a, order="K", subok=False: copied(a, order), "copyto": copyto, "astype": astype,
    "sum": reduction("add"), "prod": reduction("multiply"), "max": extremum("maximum"), "amax": extremum("maximum"),
    "min": extremum("minimum"), "amin": extremum("minimum"), "any": truth("logical_or"), "all": truth("logical_and"),
    "mean": mean, "var": var, "std": std,
    "concatenate": concatenate, "concat": concatenate, "stack": stack,
    "dot": dot, "tensordot": tensordot, "outer": outer, "where": where, "clip": clip,
    "take": take, "take_along_axis": indexing.take_along_axis, "put_along_axis": indexing.put_along_axis,
    "repeat": repeat, "tile": tile, "roll": roll, "array_equal": array_equal,
    "tril": triangle(operator.le), "triu": triangle(operator.ge),
    "real": lambda a: a.real, "imag": lambda a: a.imag, "ravel": lambda a, order="C": a.ravel(order),
    "reshape": lambda a, /, shape, order="C", *, copy=None: a.reshape(shape, order=order),
    "broadcast_arrays": lambda *a, subok=False: tuple(
        [x.namespace.broadcast_to(x, np.broadcast_shapes(*[y.shape for y in a])) for x in a]
    ),
    **scans.FUNCTIONS, **sorting.FUNCTIONS, **searching.FUNCTIONS, **compositions.FUNCTIONS,
    **counting.FUNCTIONS,
}  # fmt: skip

#: ufuncs that are no elementwise functions
UFUNCS: dict[str, Callable[..., Any]] = {
    "matmul": matmul, "divmod": lambda a, b: (np.floor_divide(a, b), np.remainder(a, b)),
    "frexp": compositions.frexp,
}  # fmt: skip

#: functions that are methods of arrays, too
OWN_METHODS = (
    "sum prod max min any all mean var std clip take repeat nonzero argmax argmin argsort cumsum cumprod round "
    "searchsorted trace"
).split()
METHODS: dict[str, Callable[..., Any]] = {name: FUNCTIONS[name] for name in OWN_METHODS}
