"""What a kernel will give, before it has run: the arrays that its results go into, for kernels where that is known.

A plan has the arrays that will hold the results, with NumPy's shape, dtype and layout, and the call that fills them on
the device's thread. Whoever launched the kernel goes on with these arrays meanwhile. Where NumPy tells the shape only
by running (an index of booleans), or might raise, there is no plan, and the launching thread waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from undertow.backend.cpu import sum_to
from undertow.backend.interface import Array, DType


class Plan:
    """What a kernel will do.

    targets  the new arrays
    call     what fills them, or changes arrays that there are
    returns  how many arrays the function returns: new ones or, if there are none, those it changes
    """

    __slots__ = ("call", "returns", "targets")

    def __init__(self, targets: list[Any], call: Callable[[], Any], returns: int = 1) -> None:
        self.targets, self.call, self.returns = targets, call, returns


def plan(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan | None:
    """The plan of a call of one of NumPy's functions; None if it has to run first."""
    try:
        if isinstance(function, np.ufunc):
            return plan_ufunc(function, args, kwargs)
        if isinstance(getattr(function, "__self__", None), np.ufunc):
            return plan_ufunc_reduce(function, args, kwargs)
        planner = PLANNERS.get(function)
        return None if planner is None else planner(function, args, kwargs)
    except (AttributeError, TypeError, ValueError, IndexError, KeyError, OverflowError):
        return None  # the call itself will tell what is wrong, in NumPy's words


def filling(function: Callable[..., Any], args: Any, kwargs: Any, shape: Any, dtype: DType) -> Plan:
    """The plan of a function that makes an array of its own, which is then copied."""
    return into(np.empty(shape, dtype), function, args, kwargs)


def into(target: Array, function: Callable[..., Any], args: Any, kwargs: Any) -> Plan:
    return Plan([target], partial(fill, target[...], function, args, kwargs))


def fill(target: Array, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    found = np.asarray(function(*args, **kwargs))
    if found.shape != target.shape or found.dtype != target.dtype:
        raise RuntimeError(
            f"{function} was expected to give {target.dtype} {list(target.shape)}, and gave {found.dtype} "
            f"{list(found.shape)}: the simulated devices do not know this function of this version of NumPy"
        )
    target[...] = found


# ---- ufuncs


def plan_ufunc(ufunc: Array, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Plan | None:
    out = kwargs.get("out", (None,) * ufunc.nout)
    if kwargs.keys() - {"out"} or len({a is None for a in out}) > 1:
        return None
    dtypes = resolved_dtypes(ufunc, tuple([kind_of(a) for a in (*args, *out)]))
    if dtypes is None or not all(fits(a, dtype) for a, dtype in zip(args, dtypes, strict=False)):
        return None
    if ufunc.__name__ == "power" and dtypes[-1].kind in "iu":
        return None  # a negative exponent is an error
    if ufunc.signature is not None:
        return plan_product(ufunc, args, dtypes[-1]) if ufunc is np.matmul and out[0] is None else None
    if out[0] is not None:
        return plan_in_place(ufunc, args, out)
    targets = [empty_for(args, dtype) for dtype in dtypes[ufunc.nin :]]
    call = partial(ufunc, *args, out=tuple([target[...] for target in targets]))
    return Plan(targets, call, ufunc.nout)


def plan_in_place(ufunc: Array, args: Any, out: Any) -> Plan | None:
    shape = np.broadcast_shapes(*[np.shape(a) for a in (*args, *out)])
    if any(a.shape != shape or not a.flags.writeable for a in out):
        return None
    return Plan([], partial(ufunc, *args, out=tuple([a[...] for a in out])), ufunc.nout)


def kind_of(value: Array | None) -> Any:
    """What NumPy's promotion looks at: a dtype, or int, float or complex for a Python number, which gives way."""
    if value is None:
        return None
    if type(value) in (int, float, complex):
        return type(value)
    if type(value) is bool:
        return np.dtype(bool)
    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError("no array and no number")
    return value.dtype


@lru_cache(4096)
def resolved_dtypes(ufunc: Array, kinds: tuple[Any, ...]) -> Any:
    dtypes = ufunc.resolve_dtypes(kinds)
    return dtypes if all(dtype.kind in "biufc" for dtype in dtypes) else None


def fits(value: Array | None, dtype: DType) -> bool:
    """Whether a Python number is one of the numbers that a dtype has; other values are cast, whatever they are."""
    if type(value) is complex or (type(value) is float and dtype.kind in "biu"):
        return bool(dtype.kind == "c")
    if type(value) is not int or dtype.kind not in "iu":
        return True
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def empty_for(args: tuple[Any, ...], dtype: DType) -> Array:
    """The array that an elementwise function of `args` makes: NumPy keeps the order of their axes in memory."""
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    shape = arrays[0].shape if arrays else ()
    if all(a.shape == shape and a.flags.c_contiguous for a in arrays):
        return np.empty(shape, dtype)
    operands: Any = [*arrays, None]
    flags: Any = [["readonly"]] * len(arrays) + [["writeonly", "allocate"]]
    return np.nditer(operands, ["zerosize_ok"], flags, [None] * len(arrays) + [dtype]).operands[-1]


def plan_product(product: Callable[..., Any], args: Any, dtype: DType) -> Plan | None:
    a, b = args
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.ndim and b.ndim):
        return None
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        return None
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if batch and not (is_stack(a) and is_stack(b)):
        return None
    shape = (*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ()))
    return filling(product, args, {}, shape, dtype)


def is_stack(array: Array) -> bool:
    """Whether it holds matrices one after the other; each may lie there as its transpose."""
    return bool(array.flags.c_contiguous or (array.ndim > 1 and array.swapaxes(-1, -2).flags.c_contiguous))


def plan_dot(function: Callable[..., Any], args: Any, kwargs: Any) -> Plan | None:
    a, b = args
    if kwargs or max(a.ndim, b.ndim) > 2 or a.dtype != b.dtype or a.dtype.kind not in "fc":
        return None
    return plan_product(function, args, a.dtype)


# ---- reductions

#: the ufuncs that reduce several axes at once
REDUCING = {np.add, np.multiply, np.maximum, np.minimum, np.logical_and, np.logical_or}


def plan_ufunc_reduce(method: Any, args: Any, kwargs: dict[str, Any]) -> Plan | None:
    if method.__name__ != "reduce" or method.__self__ not in REDUCING:
        return None
    return plan_reduction(method, args, kwargs if len(args) > 1 else {"axis": 0, **kwargs})


def plan_reduction(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Plan | None:
    x, *rest = args
    if len(rest) > 1 or kwargs.keys() - {"axis", "keepdims", "dtype"} or not x.size or x.dtype.kind not in "biufc":
        return None
    axis = rest[0] if rest else kwargs.get("axis")
    axes = range(x.ndim) if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, x.ndim)
    kept = 1 if kwargs.get("keepdims") else None
    shape = [n for n in [kept if k in axes else n for k, n in enumerate(x.shape)] if n is not None]
    if len(shape) > 1 and not x.flags.c_contiguous:
        return None
    dtype = kwargs.get("dtype")
    return filling(function, args, kwargs, shape, reduced_dtype(function, x.dtype, dtype))


@lru_cache(1024)
def reduced_dtype(function: Callable[..., Any], kind: DType, dtype: DType) -> DType:
    one = np.ones(1, kind)
    return (function(one) if dtype is None else function(one, dtype=dtype)).dtype


def plan_sum_to(function: Callable[..., Any], args: Any, kwargs: Any) -> Plan | None:
    x, shape = args
    if x.dtype.kind not in "fc" or (len(shape) > 1 and not x.flags.c_contiguous):
        return None
    return filling(function, args, kwargs, shape, x.dtype)


# ---- copies


def plan_copy(function: Callable[..., Any], args: Any, kwargs: Any) -> Plan | None:
    x, *rest = args
    if rest or kwargs.keys() - {"order"}:
        return None
    order = kwargs.get("order", "K" if function is np.copy else "C")
    return copying(np.empty_like(x, order=order), x)


def plan_array(function: Callable[..., Any], args: Any, kwargs: Any) -> Plan | None:
    x, dtype = args
    return None if kwargs else copying(np.empty_like(x, dtype=dtype), x)


def plan_astype(function: Callable[..., Any], args: Any, kwargs: Any) -> Plan | None:
    x, dtype, *rest = args
    if rest or kwargs.keys() - {"order"} or x.dtype.kind not in "biufc" or np.dtype(dtype).kind not in "biufc":
        return None
    return copying(np.empty_like(x, dtype=dtype, **kwargs), x)


def copying(target: Array, source: Array) -> Plan:
    return Plan([target], partial(np.copyto, target[...], source, casting="unsafe"))


def plan_getitem(function: Callable[..., Any], args: Any, kwargs: Any) -> Plan | None:
    """The single number at an index; an index that gives an array gives a view of it, or has no plan."""
    x, index = args
    if not is_basic(index):
        return None
    place = x[open_index(index)]
    return copying(np.empty((), x.dtype), place) if place.ndim == 0 else None


# ---- changes


def plan_setitem(function: Callable[..., Any], args: Any, kwargs: Any) -> Plan | None:
    x, index, value = args
    return writing(x[open_index(index)], value) if is_basic(index) else None


def plan_fill(function: Callable[..., Any], args: Any, kwargs: Any) -> Plan | None:
    x, value = args
    return writing(x, value) if np.ndim(value) == 0 else None


def plan_copyto(function: Callable[..., Any], args: Any, kwargs: Any) -> Plan | None:
    x, value = args
    return writing(x, value) if not kwargs and np.can_cast(kind_of(value), x.dtype, "same_kind") else None


def writing(target: Array, value: Array) -> Plan | None:
    kind_of(value)
    shape = np.shape(value)
    if not target.flags.writeable or len(shape) > target.ndim or not fits(value, target.dtype):
        return None
    if np.broadcast_shapes(shape, target.shape) != target.shape:
        return None
    return Plan([], partial(np.copyto, target[...], value, casting="unsafe"), returns=0)


def is_basic(index: Any) -> bool:
    """Whether an index selects by numbers and slices only, which never copies."""
    parts = index if type(index) is tuple else (index,)
    return all(p is None or p is Ellipsis or type(p) in (int, slice) or isinstance(p, np.integer) for p in parts)


def open_index(index: Any) -> tuple[Any, ...]:
    """The index with an Ellipsis, so that it gives a view even of a single number."""
    parts = index if type(index) is tuple else (index,)
    return parts if Ellipsis in parts else (*parts, Ellipsis)


# ---- new arrays


#: functions that make an array of one value they know, and that value; None: any
FILLED: dict[Any, int | None] = {
    np.zeros: 0,
    np.ones: 1,
    np.empty: None,
    np.zeros_like: 0,
    np.ones_like: 1,
    np.empty_like: None,
}


def plan_filled(function: Callable[..., Any], args: Any, kwargs: Any) -> Plan | None:
    """zeros, ones, empty, full; and the same `_like` another array."""
    first, *rest = args
    options = dict(kwargs)
    value: Any = FILLED[function] if function in FILLED else rest.pop(0) if rest else options.pop("fill_value")
    dtype = rest.pop(0) if rest else options.pop("dtype", np.asarray(value).dtype if function is np.full else None)
    like = function.__name__.endswith("_like")
    if rest or options.keys() - ({"shape", "order"} if like else {}) or np.ndim(value):
        return None
    target = np.empty_like(first, dtype=dtype, **options) if like else np.empty(first, dtype)
    if target.dtype.kind not in "biufc" or not fits(value, target.dtype):
        return None
    call = int if value is None else partial(np.copyto, target[...], value, casting="unsafe")
    return Plan([target], call)


# ---- several arrays into one


def plan_where(function: Callable[..., Any], args: Any, kwargs: Any) -> Plan | None:
    condition, x, y = args
    kinds = [kind_of(value) for value in (x, y)]
    if isinstance(kinds[0], type) and isinstance(kinds[1], type):
        return None
    dtype = np.result_type(
        *[value if isinstance(kind, type) else kind for value, kind in zip((x, y), kinds, strict=True)]
    )
    kind_of(condition)
    return into(empty_for(args, dtype), function, args, kwargs) if dtype.kind in "biufc" else None


def plan_concatenate(function: Callable[..., Any], args: Any, kwargs: Any) -> Plan | None:
    arrays, *rest = args
    if (
        len(rest) > 1
        or kwargs.keys() - {"axis"}
        or not all(isinstance(a, np.ndarray) and a.flags.c_contiguous for a in arrays)
    ):
        return None
    axis = rest[0] if rest else kwargs.get("axis", 0)
    shape, joins = list(arrays[0].shape), function is np.concatenate
    axis = np.lib.array_utils.normalize_axis_index(axis, len(shape) + (not joins))
    others = {(*a.shape[:axis], *a.shape[axis + joins :]) for a in arrays}
    if len(others) > 1:
        return None
    length = sum(a.shape[axis] for a in arrays) if joins else len(arrays)
    shape[axis : axis + joins] = [length]
    return filling(function, args, kwargs, shape, np.result_type(*[a.dtype for a in arrays]))


nd = np.ndarray
PLANNERS: dict[Any, Callable[[Any, Any, Any], Plan | None]] = {
    **dict.fromkeys((np.sum, np.prod, np.max, np.min, np.amax, np.amin, np.any, np.all, np.mean), plan_reduction),
    **dict.fromkeys((nd.sum, nd.prod, nd.max, nd.min, nd.any, nd.all, nd.mean), plan_reduction),
    **dict.fromkeys((*FILLED, np.full, np.full_like), plan_filled),
    **dict.fromkeys((np.concatenate, np.stack), plan_concatenate),
    np.array: plan_array,
    np.copy: plan_copy,
    nd.copy: plan_copy,
    nd.astype: plan_astype,
    nd.__getitem__: plan_getitem,
    nd.__setitem__: plan_setitem,
    nd.fill: plan_fill,
    np.copyto: plan_copyto,
    np.where: plan_where,
    np.dot: plan_dot,
    nd.dot: plan_dot,
    sum_to: plan_sum_to,
}
