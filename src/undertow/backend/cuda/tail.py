"""What there is no kernel for: NumPy's function, on copies in the memory of the host.

It is right, and slow: the device is waited for, and elements travel. `counts` says how often each function was computed
that way, and `undertow.cuda.set_host_functions("error")` makes it an error, for programs that must not be slow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow.backend.cuda import device
from undertow.backend.sparse.protocol import AnySparse
from undertow.errors import warn_once

#: how often each function of NumPy was computed on the host
counts: Counter[str] = Counter()


class _Setting:
    """What happens when a function has no kernel: "allow", "warn" (once for each) or "error"."""

    mode = "allow"


setting = _Setting()


def on_host(name: str, function: Callable[..., Any], args: Any, kwargs: Any, written: Sequence[Any] = ()) -> Any:
    """Call a function of NumPy on copies of arrays; those in `written` are written back. Results are on the device.

    Sparse arrays know what to do on their device, so there is nothing to copy.
    """
    if any([isinstance(value, AnySparse) for value in args]):
        return function(*args, **kwargs)
    meet_setting(name)
    counts[name] += 1
    copies: dict[int, Any] = {}
    given = fetched(list(args), copies), fetched(kwargs, copies)
    result = function(*given[0], **given[1])
    for array in written:
        device.extension().overwrite(array, copies[id(array)])
    return sent(result, {id(copies[id(array)]): array for array in written})


def meet_setting(name: str) -> None:
    text = f"{name} has no kernel on cuda, and is computed on the host"
    if setting.mode == "error":
        raise NotImplementedError(
            f"{text}, which undertow.cuda.set_host_functions('error') forbids. Compute it on the CPU, or allow it."
        )
    if setting.mode == "warn":
        warn_once(
            f"cuda-on-host-{name}", f"{text}: the device is waited for, and its elements are copied", stacklevel=6
        )


def is_device_array(value: Any) -> bool:
    return isinstance(value, device.array_type())


def fetched(value: Any, copies: dict[int, Any]) -> Any:
    """`value` with every array of the device in it replaced by a copy on the host, the same one for the same array."""
    if is_device_array(value):
        if id(value) not in copies:
            copies[id(value)] = value.to_host()
        return copies[id(value)]
    if type(value) in (tuple, list):
        return type(value)([fetched(v, copies) for v in value])
    if type(value) is dict:
        return {key: fetched(v, copies) for key, v in value.items()}
    return value


def sent(value: Any, known: dict[int, Any]) -> Any:
    """The result of a function of NumPy as arrays of the device; what was written is the array that was given."""
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, (np.ndarray, np.generic)):
        return device.extension().from_host(np.asarray(value)) if np.asarray(value).dtype.kind != "O" else value
    if isinstance(value, (tuple, list)):
        parts = [sent(v, known) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
