"""Sequences of numbers: arange, linspace, logspace."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from undertow.backend import default_device, dtypes, kernels, namespace_of
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.silence import quietly
from undertow.compiled import shortcut
from undertow.ops.arguments.sizes import as_int
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.create.creation import as_number, leaf
from undertow.ops.declare import composite
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Device


@composite(out=True)
@shortcut(default_device)
def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The numbers from `start` (0 if left out) up to but not including `end`, `step` apart.

    >>> import undertow as ut
    >>> ut.arange(3), ut.arange(1, 2, 0.5)
    (tensor([0, 1, 2]), tensor([1.0000, 1.5000]))
    """
    if end is None:
        start, end = 0, start
    if end is None:
        raise TypeError('arange() missing 1 required positional arguments: "end"')
    bounds = [
        as_number("arange", name, number)
        for name, number in (("start", 0 if start is None else start), ("end", end), ("step", step))
    ]
    dtype = _range_dtype(bounds) if dtype is None else dtypes.as_dtype(dtype, "arange")
    if dtypes.kind_of(dtype) not in "iuf":
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{dtypes.SCALAR_NAMES[dtype]}'")
    xp = namespace_of(device)
    return leaf(quietly(_range_array, bounds, dtype, xp), xp, requires_grad)


def _range_dtype(bounds: list[Any]) -> DType:
    if any(isinstance(b, complex) for b in bounds):
        raise RuntimeError("value cannot be converted to type double without overflow: arange() takes real numbers")
    return dtypes.default_dtype() if any(isinstance(b, float) for b in bounds) else dtypes.int64


def _range_array(bounds: list[Any], dtype: DType, xp: Namespace) -> Array:
    if not all(math.isfinite(b) for b in bounds[:2]):
        raise RuntimeError(f"unsupported range: {bounds[0]} -> {bounds[1]}")
    if dtype is dtypes.int64:  # numbers lose their fraction before they are counted; in other dtypes, afterwards
        bounds = [int(b) for b in bounds]
    start, end, step = bounds
    if not step:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError(f"upper bound and lower bound inconsistent with step sign: from {start} to {end} by {step}")
    if dtype is dtypes.int64:
        return xp.arange(start, end, step, dtype)
    count = math.ceil((end - start) / step)
    if dtype.kind in "iu":
        return (int(start) + int(step) * xp.arange(count, dtype=dtypes.int64)).astype(dtype, copy=False)
    found = kernels.range_array(xp, start, step, count, dtype)
    return (start + step * xp.arange(count, dtype=dtypes.float64)).astype(dtype, copy=False) if found is None else found


@composite(out=True)
@shortcut(default_device)
@example_by_example
def linspace(
    start: Array,
    end: Array,
    steps: int,
    *,
    dtype: DType = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """`steps` numbers at equal distances, from `start` to `end`, both included.

    >>> import undertow as ut
    >>> ut.linspace(0, 1, 3)
    tensor([0.0000, 0.5000, 1.0000])
    """
    dtype, values, xp = _spaced("linspace", start, end, steps, dtype, device)
    return leaf(xp.astype(values, dtype, copy=False), xp, requires_grad)


@composite(out=True)
@example_by_example
def logspace(
    start: Array,
    end: Array,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The powers of `base` with exponents at equal distances, from `start` to `end`.

    steps  how many numbers

    >>> import undertow as ut
    >>> ut.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """
    dtype, exponents, xp = _spaced("logspace", start, end, steps, dtype, device)
    return leaf(xp.power(base, exponents).astype(dtype, copy=False), xp, requires_grad)


def _spaced(
    function: str, start: Array, end: Array, steps: Any, dtype: DType | None, device: Device | None
) -> tuple[Any, Any, Any]:
    """The dtype, the numbers at equal distances in double precision, and the namespace."""
    for name, value in (("start", start), ("end", end)):
        if isinstance(value, Tensor) and value._array.ndim:
            raise RuntimeError(
                f"{function} only supports 0-dimensional start and end tensors, but got {name} with "
                f"{value._array.ndim} dimension(s)."
            )
    start, end = as_number(function, "start", start), as_number(function, "end", end)
    steps = as_int(function, "steps", steps)
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, got {steps}")
    complex_ = isinstance(start, complex) or isinstance(end, complex)
    if dtype is None:
        dtype = dtypes.number_dtype(3 if complex_ else 2)
    dtype = dtypes.as_dtype(dtype, function)
    if complex_ and dtype.kind != "c":
        raise RuntimeError(f"{function}: complex start or end needs a complex dtype, got {dtype}")
    if dtype.kind in "iu":
        start, end = int(start), int(end)  # the ends lose their fractions before the numbers between them are found
    xp = namespace_of(device)
    return dtype, _equal_distances(start, end, steps, dtype, xp), xp


def _equal_distances(start: Any, end: Any, steps: int, dtype: DType, xp: Namespace) -> Array:
    """Counted from both ends towards the middle, so that both are met exactly and reversal is symmetric."""
    wide = dtypes.complex128 if dtype.kind == "c" else dtypes.float64
    found = kernels.equal_distances(xp, start, end, steps, wide)
    if found is not None:
        return found
    if steps < 2:
        return xp.full(steps, start, wide)
    step = (end - start) / (steps - 1)
    half = steps // 2
    numbers = xp.arange(steps, dtype=dtypes.float64)
    return xp.concatenate([start + step * numbers[:half], end - step * (steps - 1 - numbers[half:])]).astype(wide)
