"""Transforms along one dimension, in the precision of what is transformed.

Where nothing is scaled, NumPy's functions hand their ufuncs the factor 1 as an int, for which these choose the loops in
double precision and cast a float32 signal there and back: six times the work. With the factor in the signal's own
precision they do not. The ufuncs are NumPy's private affair, so where they are not as expected its functions do it.
"""

from __future__ import annotations

from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace

#: the normalization with which a function scales nothing
UNSCALED = {"fft": "backward", "rfft": "backward", "ifft": "forward", "irfft": "forward"}
#: what NumPy would transform in double precision
SINGLE = (dtypes.float32, dtypes.complex64)


def transformed(xp: Namespace, name: str, input: Array, axis: int, norm: str, size: int | None = None) -> Any:
    """`fft`, `ifft`, `rfft` or `irfft` of NumPy; `size` is that of what irfft returns."""
    if xp.device.type != "meta" and UNSCALED[name] == norm and input.dtype in SINGLE and input.shape[axis] > 0:
        found = _in_single_precision(xp, name, input, axis, size)
        if found is not None:
            return found
    return getattr(xp.module.fft, name)(input, size, axis=axis, norm=norm)


def _in_single_precision(xp: Namespace, name: str, input: Array, axis: int, size: int | None) -> Any:
    length = input.shape[axis]
    if name == "rfft":
        private, loop, count = ("rfft_n_odd" if length % 2 else "rfft_n_even"), "ff->F", length // 2 + 1
    elif name == "irfft":
        private, loop, count = name, "Ff->f", size or 2 * (length - 1)
    else:
        private, loop, count = name, "Ff->F", length
    ufunc: Any = getattr(getattr(xp.module.fft, "_pocketfft_umath", None), private, None)
    if loop not in getattr(ufunc, "types", ()) or count < 1:
        return None
    if input.dtype.char != loop[0]:
        input = input.astype(dtypes.complex64)
    axis %= input.ndim
    out = xp.empty_like(input, shape=(*input.shape[:axis], count, *input.shape[axis + 1 :]), dtype=loop[-1])
    return ufunc(input, dtypes.float32.type(1), axes=[(axis,), (), (axis,)], out=out)
