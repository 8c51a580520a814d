"""Functions that look at no element: NumPy's, called with shadows of arrays, where there is no memory to look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.backend.cuda import device
from undertow.backend.interface import Array

#: functions that always return views of their first argument, or several of it
FUNCTIONS = frozenset(
    "transpose permute_dims swapaxes matrix_transpose moveaxis rollaxis squeeze expand_dims atleast_1d atleast_2d "
    "atleast_3d broadcast_to split array_split hsplit vsplit dsplit unstack diagonal flip flipud fliplr rot90 "
    "as_strided sliding_window_view".split()
)
#: and methods
METHODS = frozenset({"squeeze", "diagonal"})


def of(array: Array, function: Callable[..., Any], args: Any, kwargs: Any = None) -> Any:
    """The views of `array` that a function gives which is called with its shadow in the array's place."""
    name = getattr(function, "__name__", "")
    if array.ndim == 0 and name in ("flip", "flipud", "fliplr", "rot90"):
        return array[...]  # NumPy would take the element out
    if name == "unstack":
        return unstacked(*args, **(kwargs or {}))
    shadow = device.extension().shadow(array)
    args = [shadow if a is array else a for a in args]
    kwargs = {key: shadow if a is array else a for key, a in (kwargs or {}).items()}
    return adopted(array, shadow, function(*args, **kwargs))


def adopted(array: Array, shadow: Array, result: Any) -> Any:
    if result is shadow:
        return array
    if isinstance(result, np.ndarray):
        return device.extension().adopt(array, result)
    return type(result)([adopted(array, shadow, r) for r in result])


def part(array: Array, name: str) -> Array:
    """The real or the imaginary part of a complex array."""
    return of(array, getattr, (array, name))


def unstacked(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """np.unstack, which looks at the elements of vectors."""
    moved = of(x, np.moveaxis, (x, axis, 0))
    return tuple([moved[i] for i in range(len(moved))])
