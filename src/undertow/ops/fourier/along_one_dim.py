"""Transforms along one dimension, in the precision of what is transformed.

Several signals of a length made of 2, 3 and 5 are the core's (csrc/kernels/fourier.c). Others are NumPy's: where
nothing is scaled, its functions hand their ufuncs the factor 1 as an int, for which these choose the loops in double
precision and cast a float32 signal there and back: six times the work. With the factor in the signal's own precision
they do not, and threads can divide the signals of a batch among them. The ufuncs are NumPy's private affair, so where
they are not as expected its functions do it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

from undertow.backend import cpu, dtypes, kernels, large_arrays
from undertow.backend.interface import Array, DType, Namespace
from undertow.compiled import core

#: the normalization with which a function scales nothing; with the other ones it does by 1/size or its square root
UNSCALED = {"fft": "backward", "rfft": "backward", "ifft": "forward", "irfft": "forward"}
#: the kinds of transforms as the core's kernel numbers them
KINDS = {"fft": 0, "ifft": 1, "rfft": 2, "irfft": 3}
#: elements of signals that several threads may divide among them
MANY = 1 << 14
#: the loops that are called, by the kind and precision of the signal
TYPES = {
    "fft": {"F": "Ff->F", "D": "Dd->D"},
    "ifft": {"F": "Ff->F", "D": "Dd->D"},
    "rfft": {"f": "ff->F", "d": "dd->D"},
    "irfft": {"F": "Ff->f", "D": "Dd->d"},
}


def transformed(xp: Namespace, name: str, input: Array, axis: int, norm: str, size: int | None = None) -> Array:
    """`fft`, `ifft`, `rfft` or `irfft` of NumPy; `size` is that of what irfft returns."""
    if xp.device.type not in ("meta", "cuda") and input.shape[axis] > 0:
        found = _by_ufunc(xp, name, input, axis, norm, size)
        if found is not None:
            return found
    return getattr(xp.module.fft, name)(input, size, axis=axis, norm=norm)


class Plan(NamedTuple):
    """What is the same for all signals of a kind and length."""

    ufunc: Any
    types: str
    #: elements of a result
    points: int
    #: by what it is multiplied, in the precision of the signal
    factor: Any
    #: that a signal takes
    nanoseconds: float
    #: of the core's kernel; None if it does not serve
    own: Any


def _by_ufunc(xp: Namespace, name: str, input: Array, axis: int, norm: str, size: int | None) -> Array:
    if name != "rfft" and input.dtype in (dtypes.float32, dtypes.float64):
        input = input.astype(dtypes.complex_of(input.dtype))
    axis = axis % input.ndim
    plan = _plan(xp, name, input.dtype, input.shape[axis], norm, size)
    if plan is None:
        return None
    shape = (*input.shape[:axis], plan.points, *input.shape[axis + 1 :])
    if input.flags.c_contiguous:
        out = xp.empty(shape, plan.types[-1])
        if plan.own and kernels.fourier(xp, plan.own, input, out, axis, KINDS[name], float(plan.factor)):
            return out
    else:
        out = xp.empty_like(input, shape=shape, dtype=plan.types[-1])
    signals = input.swapaxes(axis, -1), plan.factor, out.swapaxes(axis, -1)
    if input.size < MANY or not large_arrays.over_rows(plan.ufunc, plan.types, signals, plan.nanoseconds):
        plan.ufunc(*signals[:2], out=signals[2])
    return out


@lru_cache(256)
def _plan(xp: Namespace, name: str, dtype: DType, length: int, norm: str, size: int | None) -> Plan | None:
    ufunc, types = _loop(xp, name, dtype.char, length)
    count = {"rfft": length // 2 + 1, "irfft": size or 2 * (length - 1)}.get(name, length)
    if ufunc is None or count < 1:
        return None
    points = count if name == "irfft" else length
    factor = 1.0 if norm == UNSCALED[name] else 1 / (points if norm != "ortho" else math.sqrt(points))
    nanoseconds = 0.16 * points * math.log2(points + 1) * dtype.itemsize / 4
    real = dtypes.real_of(dtype)
    return Plan(ufunc, types, count, real.type(factor), nanoseconds, _own_plan(xp, name, real, points))


def _own_plan(xp: Namespace, name: str, real: DType, points: int) -> Any:
    """What the core's kernel must know of signals of so many elements, in this precision."""
    halved = name in ("rfft", "irfft")  # a real signal is transformed as a complex one of half its length
    if core is None or xp is not cpu or (halved and points % 2):
        return None
    return core.fourier_plan(points // 2 if halved else points, real == dtypes.float32)


def _loop(xp: Namespace, name: str, kind: str, length: int) -> tuple[Any, str]:
    """The ufunc that transforms signals of this length, and the types of its loop; None if there is none."""
    private = name if name != "rfft" else "rfft_n_odd" if length % 2 else "rfft_n_even"
    ufunc = getattr(getattr(xp.module.fft, "_pocketfft_umath", None), private, None)
    types = TYPES[name].get(kind, "")
    return (ufunc if types in getattr(ufunc, "types", ()) else None), types
