"""Functions of NumPy that are a few kernels one after the other."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device, elementwise, sorting, tail, wrappers
from undertow.backend.interface import Array

if TYPE_CHECKING:
    from undertow.backend.interface import DType


def round_to(a: Array, decimals: int = 0, out: Any = None) -> Any:
    if out is None and decimals >= 0 and a.dtype.kind in "iu":
        return a.copy("K")
    if out is not None or a.dtype.kind != "f" or dtypes.is_narrow(a.dtype):
        return NotImplemented
    if decimals == 0:
        return a.namespace.rint(a)
    scale = float(10 ** abs(decimals))
    return a.namespace.rint(a * scale) / scale if decimals > 0 else a.namespace.rint(a / scale) * scale


def partition(a: Array, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Array:
    """Sorted, every element is where a partition would have put it."""
    return NotImplemented if order is not None else sorting.sort(a, axis)


def sinc(x: Array) -> Any:
    if not is_taken(x):
        return NotImplemented
    space = x.namespace
    x = x if x.dtype.kind in "fc" else x.astype(np.float64)
    angle = space.where(x == 0, x.dtype.type(1.0e-20), x) * math.pi
    return space.sin(angle) / angle


def angle(z: Array, deg: bool = False) -> Any:
    if deg or z.dtype.kind not in "fc" or dtypes.is_narrow(z.dtype):
        return NotImplemented
    return z.namespace.arctan2(z.imag, z.real)


def trace(
    a: Array, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DType | None = None, out: Any = None
) -> Any:
    if out is not None:
        return NotImplemented
    return np.diagonal(a, offset, axis1, axis2).sum(-1, dtype=dtype)


def isclose(a: Any, b: Any, rtol: float = 1.0e-5, atol: float = 1.0e-8, equal_nan: bool = False) -> Any:
    if not all([is_taken(x) for x in (a, b)]):
        return NotImplemented
    space = a.namespace
    a, b = [x.astype(np.float64) if x.dtype.kind in "bui" else x for x in (a, b)]
    near = (space.abs(a - b) <= space.abs(b) * rtol + atol) & space.isfinite(b) | (a == b)
    return near | (space.isnan(a) & space.isnan(b)) if equal_nan else near


def is_taken(x: Any) -> bool:
    """Whether it is an array of the device, of numbers that these functions know."""
    return isinstance(x, device.array_type()) and x.dtype.kind in "buifc" and not dtypes.is_narrow(x.dtype)


def is_real(x: Array) -> Any:
    return x.imag == 0 if x.dtype.kind == "c" else x.namespace.ones(x.shape, bool)


def nan_to_num(x: Array, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    return x.copy("K") if copy and x.dtype.kind in "bui" else NotImplemented


def diff(a: Array, n: int = 1, axis: int = -1, prepend: Any = np._NoValue, append: Any = np._NoValue) -> Any:
    if prepend is not np._NoValue or append is not np._NoValue or n < 0 or not a.ndim:
        return NotImplemented
    before = (slice(None),) * (axis % a.ndim)
    for _ in range(n):
        later, sooner = a[(*before, slice(1, None))], a[(*before, slice(-1))]
        a = later != sooner if a.dtype.kind == "b" else later - sooner
    return a


def append(arr: Array, values: Any, axis: int | None = None) -> Any:
    space = arr.namespace
    given = [space.asarray(x) for x in (arr, values)]
    return space.concatenate([x.reshape(-1) for x in given] if axis is None else given, axis=axis or 0)


def unravel_index(indices: Array, shape: Any, order: str = "C") -> Any:
    """The places of numbers of elements; the host waits to know whether they are inside."""
    sizes, space = (shape if isinstance(shape, (tuple, list)) else (shape,)), indices.namespace
    if order != "C" or indices.dtype.kind not in "iu" or not indices.size:
        return NotImplemented
    if space.min(indices).item() < 0 or space.max(indices).item() >= math.prod(sizes):
        return NotImplemented  # NumPy's error
    found = []
    for size in reversed(sizes):
        found.append(indices % size)
        indices = indices // size
    return tuple(found[::-1])


def frexp(x: Array) -> Any:
    """Fractions and exponents of two."""
    if x.dtype.kind != "f" or dtypes.is_narrow(x.dtype):
        return tail.on_host("frexp", np.frexp, (x,), {})
    return part_kernel("fraction_of(a)")(x), part_kernel("exponent_of(a)", np.dtype(np.int32))(x)


@functools.cache
def part_kernel(code: str, result: Any = None) -> Any:
    formula = elementwise.Formula(1, lambda kinds: (kinds[0], result or kinds[0]), lambda dtypes: code)
    return elementwise.kernel(code, formula, wrappers.refuse("frexp"))


def infinity(sign: float) -> Callable[..., Any]:
    def function(x: Array, out: Any = None) -> Any:
        return NotImplemented if out is not None or not is_taken(x) or x.dtype.kind == "c" else x == sign * math.inf

    return function


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isclose": isclose, "isposinf": infinity(1.0), "isneginf": infinity(-1.0),
    "round": round_to, "around": round_to, "partition": partition, "sinc": sinc, "angle": angle,
    "trace": trace, "isreal": is_real, "nan_to_num": nan_to_num, "diff": diff, "append": append,
    "unravel_index": unravel_index,
}  # fmt: skip
