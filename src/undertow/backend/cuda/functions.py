"""Functions of NumPy on arrays of a GPU, made of kernels and views. What is not here is computed on the host (tail.py).

They take NumPy's arguments, and return NotImplemented where they do not serve.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device, indexing, ordering, scans, tail
from undertow.backend.cuda.indexing import at as at
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


def _overlap(a: Any, b: Any, *options: Any, **named: Any) -> bool:
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


# ---- making arrays


def strides_like(x: Array, dtype: np.dtype[Any], order: str = "K") -> tuple[int, ...] | None:
    """Strides that keep the order in memory of an array's dimensions; None for rows."""
    if order == "F" or (order == "A" and x.flags.fnc):
        wanted = list(range(x.ndim))[::-1]
    elif order != "K" or x.is_contiguous:
        return None
    else:
        wanted = sorted(range(x.ndim), key=lambda d: -abs(x.strides[d]))
    strides, step = [0] * x.ndim, dtype.itemsize
    for d in reversed(wanted):
        strides[d] = step
        step *= max(x.shape[d], 1)
    return tuple(strides)


def empty_like(x: Array, dtype: DType = None, order: str = "K", subok: bool = True, shape: Any = None) -> Array:
    dtype = x.dtype if dtype is None else np.dtype(dtype)
    if shape is not None:
        return device.extension().empty(tuple(np.atleast_1d(shape).tolist()), dtype)
    strides = strides_like(x, dtype, order)
    return device.extension().empty(x.shape, dtype, *(() if strides is None else (strides,)))


def zeros_like(x: Array, dtype: DType = None, order: str = "K", subok: bool = True, shape: Any = None) -> Array:
    return device.extension().zero(empty_like(x, dtype, order, subok, shape))


def full_like(
    x: Array, fill_value: Any, dtype: DType = None, order: str = "K", subok: bool = True, shape: Any = None
) -> Array:
    return filled(empty_like(x, dtype, order, subok, shape), fill_value)


def ones_like(x: Array, dtype: DType = None, order: str = "K", subok: bool = True, shape: Any = None) -> Array:
    return filled(empty_like(x, dtype, order, subok, shape), 1)


def is_number_of(value: Any, dtype: DType) -> bool:
    """Whether a value is a number of Python's that the dtype holds as it is, or rounded."""
    if type(value) is bool:
        return True
    return type(value) in (int, float) if dtype.kind in "fc" else type(value) is int and fits(value, dtype)


def fits(value: int, dtype: DType) -> bool:
    return dtype.kind in "iu" and bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def filled(array: Array, value: Any) -> Array:
    """Write one value everywhere."""
    if type(value) in (bool, int, float) or isinstance(value, np.generic):
        if value == 0 and array.dtype.kind in "bui":
            return device.extension().zero(array)
        return array.namespace.fill_kernel(array, value if array.dtype.kind != "b" else bool(value), array)
    if not tail.is_device_array(value):
        value = array.namespace.asarray(np.asarray(value).astype(array.dtype))
    copyto(array, value, casting="unsafe")
    return array


def copied(x: Array, order: str = "K") -> Array:
    out = empty_like(x, order=order or "K")
    x.namespace.copy_kernel(x, out)
    return out


def copyto(to: Array, value: Any, casting: Any = "same_kind", where: Any = True) -> Any:
    space = to.namespace
    if not tail.is_device_array(value):
        value = space.asarray(np.asarray(value), to.dtype)
    if not np.can_cast(value.dtype, to.dtype, casting) and not dtypes.is_narrow(to.dtype):
        raise TypeError(f"Cannot cast array data from {value.dtype} to {to.dtype} according to the rule '{casting}'")
    if not to.is_writeable:
        raise ValueError("assignment destination is read-only")
    if where is not True:
        value = space.where(where, value.astype(to.dtype, copy=False), to)
    while value.ndim > to.ndim and value.shape[0] == 1:
        value = value[0]
    if value.ndim > to.ndim:
        raise ValueError(f"could not broadcast input array from shape {value.shape} into shape {to.shape}")
    if value.dtype == to.dtype:
        space.copy_kernel(value, to)
    elif dtypes.is_narrow(to.dtype) or to.dtype.kind in "buifc":
        space.cast_to(to.dtype)(value, to)
    else:
        return NotImplemented
    return None


# ---- reductions


def reduction(name: str) -> Callable[..., Any]:
    def function(
        a: Array, axis: Any = None, dtype: DType = None, out: Any = None, keepdims: Any = NOTHING, **options: Any
    ) -> Any:
        to = result_dtype(name, a, dtype)
        if not tail.is_device_array(a) or out is not None or not supported(name, a, to, options):
            return NotImplemented
        return reduce(name, a, axis, to, keepdims is not NOTHING and bool(keepdims))

    return function


def extremum(name: str) -> Callable[..., Any]:
    function = reduction(name)
    return lambda a, axis=None, out=None, keepdims=NOTHING, **options: function(a, axis, None, out, keepdims, **options)


def truth(name: str) -> Callable[..., Any]:
    function = reduction(name)
    return lambda a, axis=None, out=None, keepdims=NOTHING, **options: function(a, axis, None, out, keepdims, **options)


def mean(
    a: Array, axis: Any = None, dtype: DType = None, out: Any = None, keepdims: Any = NOTHING, **options: Any
) -> Any:
    kind = dtypes.kind_of(a.dtype)
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
    arrays: Sequence[Any], axis: int | None = 0, out: Any = None, dtype: DType = None, casting: str = "same_kind"
) -> Any:
    given = list(arrays)
    if out is not None or axis is None or not any(map(tail.is_device_array, given)):
        return NotImplemented
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


def stack(arrays: Sequence[Any], axis: int = 0, out: Any = None, **options: Any) -> Any:
    given = list(arrays)
    if not all(map(tail.is_device_array, given)) or not given:
        return NotImplemented
    nd = given[0].ndim + 1
    axis = np.lib.array_utils.normalize_axis_index(axis, nd)
    if len({a.shape for a in given}) > 1:
        raise ValueError("all input arrays must have the same shape")
    index = (slice(None),) * axis + (None,)
    return concatenate([a[index] for a in given], axis, out, **options)


# ---- products


def matmul(a: Any, b: Any) -> Any:
    with contextlib.suppress(NotImplementedError, TypeError):
        return device.extension().matmul(a, b)  # two matrices, or stacks, of one dtype
    if not (tail.is_device_array(a) and tail.is_device_array(b)):
        return tail.on_host("matmul", np.matmul, (a, b), {})
    if not a.ndim or not b.ndim:
        raise ValueError("matmul: Input operand does not have enough dimensions")
    if a.ndim == 1:
        return matmul(a[None], b)[..., 0, :] if b.ndim > 1 else matmul(a[None], b[:, None])[0, 0]
    if b.ndim == 1:
        return matmul(a, b[:, None])[..., 0]
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"matmul: Input operand 1 has a mismatch in its core dimension 0 (size {b.shape[-2]} is different from "
            f"{a.shape[-1]})"
        )
    dtype = a.dtype if a.dtype == b.dtype else np.result_type(a.dtype, b.dtype)
    if dtype.kind not in "fc" or dtypes.is_narrow(dtype):
        return tail.on_host("matmul", np.matmul, (a, b), {})
    a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*lead, a.shape[-2], b.shape[-1])
    if not a.size or not b.size:
        return a.namespace.zeros(shape, dtype)
    if math.prod(a.shape[:-2]) != 1 and math.prod(b.shape[:-2]) != 1:
        a, b = (x.namespace.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
    else:
        a, b = (x.reshape(x.shape[-2:]) if math.prod(x.shape[:-2]) == 1 else x for x in (a, b))
    product = device.extension().matmul(a, b)
    return product if product.shape == shape else product.reshape(shape)


def linear(x: Array, weight: Array, bias: Array) -> Any:
    """x @ weight.T + bias in one step; None where that is impossible."""
    return device.extension().linear(x, weight, bias)


def dot(a: Any, b: Any, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    if not getattr(a, "ndim", 0) or not getattr(b, "ndim", 0):
        return a * b
    if a.ndim <= 2 and b.ndim <= 2:
        return matmul(a, b)
    return tensordot(a, b, ([a.ndim - 1], [max(b.ndim - 2, 0)]))


def tensordot(a: Array, b: Array, axes: Any = 2) -> Any:
    if isinstance(axes, int):
        axes = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    left, right = ([x] if isinstance(x, int) else list(x) for x in axes)
    left, right = [d % a.ndim for d in left], [d % b.ndim for d in right]
    kept_a = [d for d in range(a.ndim) if d not in left]
    kept_b = [d for d in range(b.ndim) if d not in right]
    shape = [*[a.shape[d] for d in kept_a], *[b.shape[d] for d in kept_b]]
    length = math.prod([a.shape[d] for d in left])
    rows = a.transpose(*kept_a, *left).reshape(math.prod([a.shape[d] for d in kept_a]), length)
    columns = b.transpose(*right, *kept_b).reshape(length, math.prod([b.shape[d] for d in kept_b]))
    return matmul(rows, columns).reshape(shape)


def outer(a: Array, b: Array, out: Any = None) -> Any:
    return NotImplemented if out is not None else a.reshape(-1, 1) * b.reshape(1, -1)


# ---- choosing and moving


def where(condition: Any, *values: Any) -> Any:
    if len(values) != 2:
        return NotImplemented
    arrays = [v for v in (condition, *values) if tail.is_device_array(v)]
    if not arrays:
        return NotImplemented
    space = arrays[0].namespace
    operands = [space.asarray(v) if isinstance(v, np.ndarray) and v.ndim else v for v in (condition, *values)]
    return space.where_kernel(*operands)


def clip(
    a: Array, a_min: Any = NOTHING, a_max: Any = NOTHING, out: Any = None, *, min: Any = NOTHING, max: Any = NOTHING,
    **options: Any,
) -> Any:  # fmt: skip
    low, high = (a_min if a_min is not NOTHING else min), (a_max if a_max is not NOTHING else max)
    if out is not None or options or a.dtype.kind == "c":
        return NotImplemented
    space = a.namespace
    found = a if low is None or low is NOTHING else space.maximum(a, low)
    found = found if high is None or high is NOTHING else space.minimum(found, high)
    return copied(a) if found is a else found


def take(a: Array, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
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


def tile(a: Array, reps: Any) -> Any:
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


def triangle(keep: Callable[[Any, Any, int], Any]) -> Callable[..., Any]:
    def function(m: Array, k: int = 0) -> Any:
        space = m.namespace
        rows, columns = np.arange(m.shape[-2])[:, None], np.arange(m.shape[-1])
        mask = space.asarray(keep(columns - rows, k, 0))
        return space.where(mask, m, m.dtype.type(0))

    return function


def array_equal(a: Array, b: Array, equal_nan: bool = False) -> bool:
    if a.shape != b.shape or equal_nan:
        return a.shape == b.shape and bool(np.array_equal(a.to_host(), b.to_host(), equal_nan))
    return bool((a == b).all())


def astype(x: Array, dtype: DType, /, *, copy: bool = True, **options: Any) -> Array:
    return x.astype(dtype, copy=copy)


def nonzero(a: Array) -> Any:
    return tuple([device.extension().from_host(i) for i in np.nonzero(a.to_host())])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "empty_like": empty_like, "zeros_like": zeros_like, "ones_like": ones_like, "full_like": full_like,
    "copy": lambda a, order="K", subok=False: copied(a, order), "copyto": copyto, "astype": astype,
    "sum": reduction("add"), "prod": reduction("multiply"), "max": extremum("maximum"), "amax": extremum("maximum"),
    "min": extremum("minimum"), "amin": extremum("minimum"), "any": truth("logical_or"), "all": truth("logical_and"),
    "mean": mean, "var": var, "std": std,
    "concatenate": concatenate, "concat": concatenate, "stack": stack,
    "dot": dot, "tensordot": tensordot, "outer": outer, "where": where, "clip": clip,
    "take": take, "take_along_axis": indexing.take_along_axis, "put_along_axis": indexing.put_along_axis,
    "repeat": repeat, "tile": tile, "roll": roll, "nonzero": nonzero, "array_equal": array_equal,
    "tril": triangle(lambda distance, k, _: distance <= k), "triu": triangle(lambda distance, k, _: distance >= k),
    "real": lambda a: a.real, "imag": lambda a: a.imag, "ravel": lambda a, order="C": a.ravel(order),
    "reshape": lambda a, /, shape, order="C", *, copy=None: a.reshape(shape, order=order),
    "broadcast_arrays": lambda *a, subok=False: tuple(
        [x.namespace.broadcast_to(x, np.broadcast_shapes(*[y.shape for y in a])) for x in a]
    ),
    **scans.FUNCTIONS, **ordering.FUNCTIONS,
}  # fmt: skip

#: ufuncs that are no elementwise functions
UFUNCS: dict[str, Callable[..., Any]] = {"matmul": matmul}

#: functions that are methods of arrays, too
OWN_METHODS = (
    "sum prod max min any all mean var std clip take repeat nonzero argmax argmin argsort cumsum cumprod"
).split()
METHODS: dict[str, Callable[..., Any]] = {name: FUNCTIONS[name] for name in OWN_METHODS}
