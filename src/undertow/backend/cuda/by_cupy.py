"""Long Fourier transforms by CuPy, where it is installed: on the same memory, and the same stream.

CuPy calls cuFFT. Where it is missing, or refuses the operands, NumPy does it on the host (tail.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

from undertow.backend.cuda import device, exchange

#: the modules of NumPy, and functions that CuPy has in those of the same name
FUNCTIONS = {
    "fft": frozenset("fft ifft rfft irfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn".split()),
}


@functools.cache
def library() -> Any:
    """CuPy; None where it is not installed."""
    if device.emulates():
        return None
    try:
        return import_module("cupy")
    except ImportError:
        return None


class Handle:
    """A stream of the driver, as CuPy takes one."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.number


def is_taken(value: Any) -> bool:
    """Whether CuPy can be given a value: numbers, names, and arrays with elements that its libraries know."""
    if isinstance(value, device.extension().Array):
        return value.size > 0 and value.dtype.kind in "fc" and value.dtype.itemsize > 2
    return value is None or isinstance(value, (int, float, str, tuple, list))


def lent(cupy: Any, value: Any) -> Any:
    return cupy.from_dlpack(value) if isinstance(value, device.extension().Array) else value


def taken(result: Any) -> Any:
    """What CuPy has returned: its arrays as ours."""
    return tuple([taken(part) for part in result]) if isinstance(result, tuple) else exchange.from_dlpack(result)


def call(space: Any, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A function of NumPy by CuPy; NotImplemented where that does not serve."""
    room = str(function.__module__).removeprefix("numpy.")
    if function.__name__ not in FUNCTIONS.get(room, ()) or not all(map(is_taken, (*args, *options.values()))):
        return NotImplemented
    found = library()
    if found is None:
        return NotImplemented
    cupy = found
    own = getattr(getattr(cupy, room), function.__name__)
    handle = space.current_stream().cuda_stream
    stream = (
        cupy.cuda.Stream.from_external(Handle(handle))
        if hasattr(cupy.cuda.Stream, "from_external")
        else cupy.cuda.ExternalStream(handle)
    )
    try:
        with cupy.cuda.Device(space.index), stream:
            given = [lent(cupy, a) for a in args]
            return taken(own(*given, **{name: lent(cupy, a) for name, a in options.items()}))
    except Exception:  # operands that CuPy does not take, in any of its ways to say so
        return NotImplemented
