"""NumPy's ufuncs and their methods on tensors: `np.add(t, u)`, `np.add.reduce(t)`, `np.multiply.outer(t, u)`, ...

Each function here takes what NumPy hands to `__array_ufunc__`: the ufunc, its inputs and its options, without `out`.
What it cannot express in recorded operations raises `ops.Missing`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import reduce as fold
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend import cpu
from undertow.backend.interface import Array, DType
from undertow.interop.numpy.functions import FUNCTIONS, ops
from undertow.interop.scipy import ufuncs
from undertow.ops.arguments.nested_data import adopt
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.ops.arguments.dims import Dims

#: ufunc -> operation, where the names differ
NAMES = {
    "absolute": "abs", "conjugate": "conj", "degrees": "rad2deg", "divide": "true_divide", "equal": "eq",
    "fabs": "abs", "greater": "gt", "greater_equal": "ge", "invert": "bitwise_not", "left_shift": "bitwise_left_shift",
    "less": "lt", "less_equal": "le", "multiply": "mul", "negative": "neg", "not_equal": "ne", "power": "pow",
    "radians": "deg2rad", "right_shift": "bitwise_right_shift", "rint": "round", "sign": "sgn", "subtract": "sub",
}  # fmt: skip

#: ufunc -> the function that its `reduce` is
REDUCTIONS = {
    np.add: np.sum, np.multiply: np.prod, np.maximum: np.amax, np.minimum: np.amin, np.logical_and: np.all,
    np.logical_or: np.any,
}  # fmt: skip

#: ufunc -> operation that its `accumulate` is
ACCUMULATIONS = {
    np.add: "cumsum", np.multiply: "cumprod", np.maximum: "cummax", np.minimum: "cummin",
    np.logaddexp: "logcumsumexp",
}  # fmt: skip


def operation_of(ufunc: Callable[..., Any]) -> Callable[..., Any] | None:
    """The operation that computes what the ufunc does, or None."""
    name = ufunc.__name__
    if ufunc in FUNCTIONS:
        return FUNCTIONS[ufunc]
    if getattr(np, name, None) is ufunc:
        return ops.find(NAMES.get(name, name))
    return ufuncs.operation_of(ufunc)


def require_operation(ufunc: Callable[..., Any]) -> Callable[..., Any]:
    operation = operation_of(ufunc)
    if operation is None:
        raise ops.Missing(ufunc.__name__)
    return operation


def as_operand(value: Any) -> Any:
    """A tensor for an array or a list, a Python number for a NumPy one."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (np.ndarray, list, tuple)):
        return Tensor(adopt(np.asarray(value)), cpu)
    return value


# ---- calling


def call(
    ufunc: Callable[..., Any],
    *inputs: Any,
    base: Array | None = None,
    where: Any = True,
    dtype: DType | None = None,
    **options: Any,
) -> Any:
    """`ufunc(*inputs)`. With `where`, elements that are left out come from `base`, or are zero."""
    operation = require_operation(ufunc)
    inputs = tuple(map(as_operand, inputs))
    options = understood(ufunc, options)
    if dtype is not None:
        inputs = tuple([cast(ufunc, value, dtype) for value in inputs])
    if where is not True:
        return call_where(operation, inputs, as_operand(where), base)
    return operation(*inputs, **options)


def understood(ufunc: Array, options: dict[str, Any]) -> dict[str, Any]:
    """The options that change the result; those that only say how to compute it are dropped."""
    harmless = {"order": "KAC", "subok": (True, False), "casting": ("same_kind", "unsafe")}
    rest = {name: value for name, value in options.items() if value not in harmless.get(name, ())}
    if set(rest) - ({"axis"} if ufunc.signature else set()):
        raise ops.Missing(f"{ufunc.__name__} with {', '.join(rest)}")
    return rest


def cast(ufunc: Callable[..., Any], value: Array, dtype: DType) -> Array:
    """An input of a ufunc that is told to compute in `dtype`."""
    if np.dtype(dtype).kind not in "fc":
        raise ops.Missing(f"{ufunc.__name__} with dtype={dtype}")
    return ops.to_dtype(value, np.dtype(dtype)) if isinstance(value, Tensor) else value


def call_where(operation: Callable[..., Any], inputs: tuple[Any, ...], where: Array, base: Array) -> Array:
    """Computed on the chosen elements alone, so that the others have no part in any gradient."""
    example = next(t for t in (*inputs, where, base) if isinstance(t, Tensor))
    where = where if isinstance(where, Tensor) else ops.full((), where, dtype=np.dtype(bool))
    shapes = [t._array.shape for t in (*inputs, where, base) if isinstance(t, Tensor)]
    shape = np.broadcast_shapes(*shapes)
    where = ops.broadcast_to(where, shape)
    chosen = [ops.broadcast_to(t, shape)[where] if isinstance(t, Tensor) else t for t in inputs]
    values = operation(*chosen)
    if not isinstance(values, Tensor):
        raise ops.Missing("where= for several outputs")
    if base is None:
        base = ops.zeros_like(ops.broadcast_to(example, shape), dtype=values.dtype)
    return ops.masked_scatter(ops.to_dtype(base, values.dtype), where, values)


def outer(ufunc: Callable[..., Any], a: Array, b: Array, **options: Any) -> Array:
    """The ufunc of every pair of elements."""
    a, b = as_operand(a), as_operand(b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        a = ops.reshape(a, (*a._array.shape, *[1] * b._array.ndim))
    return call(ufunc, a, b, **options)


# ---- along an axis


def reduce(
    ufunc: Callable[..., Any],
    a: Array,
    *,
    axis: Dims = 0,
    keepdims: bool = False,
    dtype: DType | None = None,
    **options: Any,
) -> Array:
    """`ufunc.reduce(a)`: by the function that it is, or one element after the other."""
    a = as_operand(a)
    if ufunc in REDUCTIONS:
        options.update({"dtype": dtype} if dtype is not None else {})
        return FUNCTIONS[REDUCTIONS[ufunc]](a, axis=axis, keepdims=keepdims, **options)
    if options or dtype is not None:
        raise ops.Missing(f"{ufunc.__name__}.reduce with {', '.join(options) or 'dtype'}")
    operation, axes = require_operation(ufunc), as_axes(axis, a._array.ndim)
    if len(axes) != 1 and ufunc not in (np.logaddexp, np.logaddexp2, np.hypot, np.fmax, np.fmin, np.logical_xor):
        raise ValueError(
            f"reduction operation '{ufunc.__name__}' is not reorderable, so at most one axis may be specified"
        )
    for k in sorted(axes, reverse=True):
        a = fold(operation, rows_of(a, k))
        a = ops.unsqueeze(a, k) if keepdims else a
    return a


def as_axes(axis: Any, ndim: int) -> list[int]:
    chosen = range(ndim) if axis is None else np.atleast_1d(axis).tolist()
    return [int(k) % ndim for k in chosen]


def rows_of(a: Array, axis: int) -> tuple[Any, ...]:
    rows = ops.unbind(a, axis)
    if not rows:
        raise ValueError("zero-size array to reduction operation which has no identity")
    return rows


def accumulate(ufunc: Callable[..., Any], a: Array, *, axis: int = 0, dtype: DType | None = None) -> Array:
    """`ufunc.accumulate(a)`: the results so far."""
    a = as_operand(a) if dtype is None else cast(ufunc, as_operand(a), dtype)
    if ufunc in ACCUMULATIONS:
        found = getattr(ops, ACCUMULATIONS[ufunc])(a, axis)
        return found if isinstance(found, Tensor) else found[0]
    return ops.stack(list(itertools.accumulate(rows_of(a, axis), require_operation(ufunc))), axis)


def reduceat(ufunc: Callable[..., Any], a: Array, indices: Any, *, axis: int = 0, dtype: DType | None = None) -> Array:
    """`ufunc.reduceat(a, indices)`: over the parts that begin at each index; one element where the next is no later."""
    a, starts = as_operand(a), [int(k) for k in np.atleast_1d(unwrapped(indices))]
    stops = [*starts[1:], a._array.shape[axis]]
    given = {} if dtype is None else {"dtype": dtype}
    parts = [ops.narrow(a, axis, k, max(n - k, 1)) for k, n in zip(starts, stops, strict=True)]
    return ops.stack([reduce(ufunc, part, axis=axis, **given) for part in parts], axis)


def unwrapped(value: Any) -> Any:
    return value._array if isinstance(value, Tensor) else value


# ---- in place


def at(ufunc: Callable[..., Any], a: Array, indices: Any, *values: Any) -> None:
    """`ufunc.at(a, indices, values)`: in place, an element that is named twice is changed twice."""
    operation = require_operation(ufunc)
    index = indices if isinstance(indices, tuple) else (indices,)
    index = tuple([np.asarray(unwrapped(i)) if isinstance(i, (Tensor, list, np.ndarray)) else i for i in index])
    places = np.arange(a._array.size).reshape(a._array.shape)[index]
    operands = [ops.broadcast_to(v, places.shape) for v in map(as_operand, values) if isinstance(v, Tensor)]
    numbers = [v for v in map(as_operand, values) if not isinstance(v, Tensor)]
    for turn in turns(places.ravel()):
        chosen = Tensor(places.ravel()[turn], cpu)
        others = [ops.take(v, Tensor(turn, cpu)) for v in operands]
        a.put_(chosen, ops.to_dtype(operation(ops.take(a, chosen), *others, *numbers), a._array.dtype))


def turns(places: Array) -> Iterator[Any]:
    """The numbers 0, 1, ... of the places, in groups within which no place occurs twice, in order."""
    rest = np.arange(places.size)
    while rest.size:
        first = np.sort(np.unique(places[rest], return_index=True)[1])
        yield rest[first]
        rest = np.delete(rest, first)


METHODS: dict[str, Callable[..., Any]] = {
    "__call__": call, "reduce": reduce, "accumulate": accumulate, "reduceat": reduceat, "outer": outer,
}  # fmt: skip
