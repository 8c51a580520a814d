"""Transforms along one dimension, in the precision of what is transformed.

Where nothing is scaled, NumPy's functions hand their ufuncs the factor 1 as an int, for which these choose the loops in
double precision and cast a float32 signal there and back: six times the work. With the factor in the signal's own
precision they do not, and threads can divide the signals of a batch among them. The ufuncs are NumPy's private affair,
so where they are not as expected its functions do it.
"""

from __future__ import annotations

import math
from typing import Any

from undertow.backend import dtypes, stacks
from undertow.backend.interface import Array, Namespace

#: the normalization with which a function scales nothing; with the other ones it does by 1/size or its square root
UNSCALED = {"fft": "backward", "rfft": "backward", "ifft": "forward", "irfft": "forward"}
#: elements of signals that several threads may divide among them
MANY = 1 << 14
#: the loops that are called, by the kind and precision of the signal
TYPES = {
    "fft": {"F": "Ff->F", "D": "Dd->D"},
    "ifft": {"F": "Ff->F", "D": "Dd->D"},
    "rfft": {"f": "ff->F", "d": "dd->D"},
    "irfft": {"F": "Ff->f", "D": "Dd->d"},
}


def transformed(xp: Namespace, name: str, input: Array, axis: int, norm: str, size: int | None = None) -> Any:
    """`fft`, `ifft`, `rfft` or `irfft` of NumPy; `size` is that of what irfft returns."""
    if xp.device.type != "meta" and input.shape[axis] > 0:
        found = _by_ufunc(xp, name, input, axis, norm, size)
        if found is not None:
            return found
    return getattr(xp.module.fft, name)(input, size, axis=axis, norm=norm)


def _by_ufunc(xp: Namespace, name: str, input: Array, axis: int, norm: str, size: int | None) -> Any:
    if name != "rfft" and input.dtype in (dtypes.float32, dtypes.float64):
        input = input.astype(dtypes.complex_of(input.dtype))
    axis, length = axis % input.ndim, input.shape[axis]
    ufunc, types = _loop(xp, name, input.dtype.char, length)
    count = {"rfft": length // 2 + 1, "irfft": size or 2 * (length - 1)}.get(name, length)
    if ufunc is None or count < 1:
        return None
    points = count if name == "irfft" else length
    factor = 1.0 if norm == UNSCALED[name] else 1 / (points if norm != "ortho" else math.sqrt(points))
    shape = (*input.shape[:axis], count, *input.shape[axis + 1 :])
    if input.flags.c_contiguous:
        out = xp.empty(shape, types[-1])
    else:
        out = xp.empty_like(input, shape=shape, dtype=types[-1])
    signals = xp.moveaxis(input, axis, -1), dtypes.real_of(input.dtype).type(factor), xp.moveaxis(out, axis, -1)
    nanoseconds = 0.16 * points * math.log2(points + 1) * input.itemsize / 4
    if input.size < MANY or not stacks.over_rows(ufunc, types, signals, nanoseconds):
        ufunc(*signals[:2], out=signals[2])
    return out


def _loop(xp: Namespace, name: str, kind: str, length: int) -> tuple[Any, str]:
    """The ufunc that transforms signals of this length, and the types of its loop; None if there is none."""
    private = name if name != "rfft" else "rfft_n_odd" if length % 2 else "rfft_n_even"
    ufunc = getattr(getattr(xp.module.fft, "_pocketfft_umath", None), private, None)
    types = TYPES[name].get(kind, "")
    return (ufunc if types in getattr(ufunc, "types", ()) else None), types
