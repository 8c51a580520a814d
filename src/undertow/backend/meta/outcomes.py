"""What a function of NumPy would return, found without the values, and without memory for large arrays.

One mechanism serves all functions. Where operands are small, the function is run, on harmless values, and what is kept
of its result is shape, dtype and strides. Where they are large it is run on small stand-ins, in which equal sizes stay
equal, different ones different and in their order, even ones even and odd ones odd; large integers among the arguments
count as sizes, too. Then each of the sizes is made larger in three equal steps, and all of them in one. A size of the
result that grows by equal steps, too, and by their sum in the last run, follows a line, on which the real sizes are
found. What fits none of this is refused, by name, and so is an operation whose result has a shape that depends on
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from undertow.backend.cpu import cpu
from undertow.backend.interface import Array, for_shapes_alone
from undertow.backend.meta.geometry import (
    VALUES,
    bytes_needed,
    dense_like,
    order_of_elementwise,
    representative,
    unmapped,
)
from undertow.errors import NoValuesError
from undertow.scopes import call_with

#: the product of the operands' sizes up to which a function is simply run, and the bytes of each; and the product of
#: the two largest up to which it is run on stand-ins
RUN_UP_TO, BYTES_UP_TO, STAND_INS_UP_TO = 1 << 20, 1 << 24, 1 << 32
#: sizes and integers up to this stay as they are in stand-ins
KEPT = 8
#: what larger ones become, smallest first: FIRST, or the next number if they are odd, then SPACING further
FIRST, SPACING = 10, 8
#: how much larger each is made. Even, so that halves grow by equal steps; three of these tell halves from thirds
STEP, STEPS = 2, 3

#: functions whose result has a shape that depends on values
BY_VALUES = {"nonzero", "flatnonzero", "argwhere", "unique", "unique_all", "unique_counts", "unique_inverse",
             "unique_values", "compress", "extract", "bincount", "trim_zeros", "union1d", "intersect1d", "setdiff1d",
             "setxor1d", "histogram_bin_edges", "resize", "array_equal", "allclose",
             "array_equiv", "array2string", "array_repr", "array_str", "shares_memory"}  # fmt: skip


def refused(name: str, why: str) -> NoValuesError:
    return NoValuesError(
        f"{name}: {why}. The tensor is on the meta device and has no values; do this on a device with data, for "
        "example with Module.to_empty() or empty_like(tensor, device='cpu')."
    )


def outcome(name: str, function: Any, args: Any, kwargs: Any, arrays: list[Array]) -> Array | None:
    """The result of `function(*args, **kwargs)`, whose `arrays` have no memory, as the result has none."""
    if name in BY_VALUES:
        raise refused(name, "the shape of its result depends on values")
    if is_elementwise(function, kwargs):
        return outcome_of_ufunc(function, args, kwargs)
    if is_small(arrays):
        return without_memory(run(name, function, args, kwargs, arrays, None))
    rule = RULES.get(function)
    return outcome_by_stand_ins(name, function, args, kwargs, arrays) if rule is None else rule(*args, **kwargs)


def outcome_of_operation(name: str, forward: Callable[..., Any], args: Any, arrays: list[Array]) -> Any:
    """The result of a whole operation, whose forward has asked for values: run on the CPU, with some sets of them."""
    function = partial(forward, cpu)
    sizes = None if is_small(arrays) else stand_ins(large_sizes(arrays, args))
    runs, error = {}, None
    for values in range(len(VALUES)):
        try:
            runs[values] = run(name, function, args, {}, arrays, sizes, values)
        except (ArithmeticError, IndexError, RuntimeError, ValueError) as found:  # these values will not do
            error = error or found
    if error is not None and not runs:
        raise error
    if len({str(facts(result)) for result in runs.values()}) > 1:
        raise refused(name, "the shape of its result depends on values")
    values, result = next(iter(runs.items()))
    return without_memory(result) if sizes is None else outcome_by_stand_ins(name, function, args, {}, arrays, values)


def facts(result: Any) -> Any:
    if isinstance(result, (np.ndarray, np.generic)):
        return result.shape, result.dtype
    return [facts(r) for r in result] if isinstance(result, (tuple, list)) else None


def is_small(arrays: list[Array]) -> bool:
    return math.prod([max(a.size, 1) for a in arrays]) <= RUN_UP_TO and all(
        [bytes_needed(a) <= BYTES_UP_TO for a in arrays]
    )


def large_sizes(arrays: list[Array], args: Any) -> list[int]:
    return sorted({n for a in arrays for n in a.shape if n > KEPT} | set(large_integers(args)))


def large_integers(value: Any) -> list[int]:
    """The integers among arguments that sizes might be compared with."""
    if isinstance(value, (tuple, list)):
        return [n for v in value for n in large_integers(v)]
    if isinstance(value, dict):
        return large_integers(list(value.values()))
    if isinstance(value, slice):
        return large_integers([value.start, value.stop, value.step])
    return [int(value)] if isinstance(value, (int, np.integer)) and int(value) > KEPT else []


# ---- running


def run(
    name: str,
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    arrays: list[Array],
    sizes: dict[int, int] | None,
    values: int = 0,
) -> Any:
    """Call the function with real arrays in the place of those without memory; `sizes` says what their sizes become."""
    real = {
        id(a): representative(a, None if sizes is None else [sizes.get(n, n) for n in a.shape], values) for a in arrays
    }
    try:
        with np.errstate(all="ignore"):
            args, kwargs = replaced(args, real, sizes or {}), replaced(kwargs, real, sizes or {})
            return call_with(for_shapes_alone, True, function, *args, **kwargs)
    except np.linalg.LinAlgError as error:
        raise refused(name, f"it depends on values ({error})") from None


def replaced(value: Any, real: dict[int, Array], sizes: dict[int, int]) -> Any:
    if isinstance(value, np.ndarray):
        return real.get(id(value), value)
    if type(value) is int:
        return sizes.get(value, value)
    if type(value) is slice:
        return slice(*[replaced(v, real, sizes) for v in (value.start, value.stop, value.step)])
    if type(value) in (tuple, list):
        return type(value)([replaced(v, real, sizes) for v in value])
    return {key: replaced(v, real, sizes) for key, v in value.items()} if type(value) is dict else value


def without_memory(result: Any) -> Any:
    """What is left of a result when the values are forgotten."""
    if isinstance(result, (np.ndarray, np.generic)):
        return unmapped(result.shape, result.dtype, result.strides)
    if isinstance(result, (tuple, list)):
        parts = [without_memory(r) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


# ---- elementwise functions, of any size


def is_elementwise(function: Callable[..., Any], kwargs: Any) -> bool:
    return isinstance(function, np.ufunc) and function.signature is None and not kwargs.keys() - {"dtype", "casting"}


def outcome_of_ufunc(ufunc: np.ufunc, args: Any, kwargs: Any) -> Array:
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    with np.errstate(all="ignore"):
        single = ufunc(*[np.ones((1,) * a.ndim, a.dtype) if isinstance(a, np.ndarray) else a for a in args], **kwargs)
    shape, order = np.broadcast_shapes(*[a.shape for a in arrays]), order_of_elementwise(arrays)
    made = [dense_like(order, shape, r.dtype) for r in (single if ufunc.nout > 1 else (single,))]
    return tuple(made) if ufunc.nout > 1 else made[0]


# ---- large operands of other functions


def stand_ins(large: list[int]) -> dict[int, int]:
    return {n: FIRST + SPACING * k + n % 2 for k, n in enumerate(large)}


def outcome_by_stand_ins(
    name: str, function: Callable[..., Any], args: Any, kwargs: Any, arrays: list[Array], values: int = 0
) -> Any:
    large = large_sizes(arrays, (args, kwargs))
    first = stand_ins(large)
    steps = [{n: first[n] + STEP * step} for n in large for step in range(1, STEPS + 1)]
    results = []
    for changes in ({}, *steps, {n: first[n] + STEP for n in large}):
        sizes = first | changes
        elements = sorted([max(math.prod([sizes.get(n, n) for n in a.shape]), 1) for a in arrays])
        if math.prod(elements[-2:]) > STAND_INS_UP_TO:
            raise refused(name, "it has too many operands, or dimensions, to be run on smaller ones")
        try:
            results.append(run(name, function, args, kwargs, arrays, sizes, values))
        except (IndexError, RuntimeError, ValueError) as error:
            raise refused(name, f"run on smaller arrays, it says: {error}") from error
    return scaled(name, results, large)


def scaled(name: str, found: list[Any], large: list[int]) -> Any:
    """The result for the large sizes, from those of the runs."""
    first = found[0]
    if isinstance(first, (np.ndarray, np.generic)):
        if len({f.ndim for f in found}) > 1:
            raise refused(name, "the number of its dimensions depends on sizes")
        shape = [size_of(name, sizes, large) for sizes in zip(*[f.shape for f in found], strict=True)]
        return dense_like(first, shape, first.dtype)
    if isinstance(first, (tuple, list)):
        if len({len(f) for f in found}) > 1:
            raise refused(name, "how many results it has depends on sizes")
        parts = [scaled(name, list(each), large) for each in zip(*found, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    if all(f == first for f in found):
        return first
    raise refused(name, "its result depends on sizes, or values")


def size_of(name: str, sizes: tuple[int, ...], large: list[int]) -> int:
    """The size on the line through those that the runs gave."""
    start, *grown, together = sizes
    first = stand_ins(large)
    answer, expected = start, start
    for k, n in enumerate(large):
        growth = [size - start for size in grown[k * STEPS : (k + 1) * STEPS]]
        if growth != [growth[0] * step for step in range(1, STEPS + 1)]:
            raise refused(name, "what it gives for arrays of this size is not known without running it")
        answer += growth[0] * (n - first[n]) // STEP
        expected += growth[0]
    if together != expected:
        raise refused(name, "what it gives for arrays of this size is not known without running it")
    return answer


# ---- functions whose results have sizes that are sums or products


def joined(arrays: Sequence[Array], axis: int = 0, **options: Any) -> Array:
    if axis is None or options.keys() - {"dtype"}:
        raise refused("concatenate", "these options are not known for large arrays")
    axis = np.lib.array_utils.normalize_axis_index(axis, arrays[0].ndim)
    others = {(*a.shape[:axis], *a.shape[axis + 1 :]) for a in arrays}
    if len(others) > 1:
        raise ValueError(f"arrays of shapes {[a.shape for a in arrays]} cannot be joined along axis {axis}")
    shape = list(arrays[0].shape)
    shape[axis] = sum([a.shape[axis] for a in arrays])
    dtype = options.get("dtype") or np.result_type(*[a.dtype for a in arrays])
    few = run("concatenate", np.concatenate, (list(arrays[:2]), axis), {}, list(arrays[:2]), SMALL)
    return dense_like(few, shape, dtype)


def stacked(arrays: Sequence[Array], axis: int = 0) -> Array:
    axis = np.lib.array_utils.normalize_axis_index(axis, arrays[0].ndim + 1)
    return joined([np.expand_dims(a, axis) for a in arrays], axis)


class _Small(dict[int, int]):
    """A stand-in of two for every size that is larger."""

    def get(self, n: int, default: Any = None) -> int:
        return min(n, 2)


SMALL = _Small()


def padded(array: Array, pad_width: Any, mode: str = "constant", **options: Any) -> Array:
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2))
    return unmapped([n + int(before) + int(after) for n, (before, after) in zip(array.shape, widths, strict=True)],
                    array.dtype)  # fmt: skip


def tiled(array: Array, repeats: Any) -> Array:
    repeats = repeats if isinstance(repeats, tuple) else (repeats,)
    rank = max(len(repeats), array.ndim)
    shape = (1,) * (rank - array.ndim) + array.shape
    return unmapped([n * r for n, r in zip(shape, (1,) * (rank - len(repeats)) + repeats, strict=True)], array.dtype)


RULES: dict[Any, Callable[..., Any]] = {np.concatenate: joined, np.stack: stacked, np.pad: padded, np.tile: tiled}
