"""The operation mode behind `detect_anomaly(check_forward=True)`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from undertow import pytree
from undertow.autograd.interceptors.op_mode import Operation, OpMode
from undertow.backend import cpu
from undertow.backend.limits import is_finite
from undertow.errors import AutogradError
from undertow.own_files import user_frame
from undertow.tensor import Tensor


class FirstNotFinite(OpMode):
    """Raises at the first operation that gives an infinity, or nan, of finite numbers."""

    def on_operation(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = pytree.flatten((args, kwargs))[0]
        were_finite = all([is_finite(a) for a in plain_arrays(values)])  # before: it may change one of them
        were_finite = were_finite and all([math.isfinite(n) for n in values if isinstance(n, float)])
        result = op(*args, **kwargs)
        for array in plain_arrays(pytree.flatten(result)[0]):
            if were_finite and not is_finite(array):
                frame = user_frame()
                kind = "nan" if (array != array).any() else "inf"
                raise AutogradError(
                    f"{op}() gave {kind} of finite numbers, at {frame.f_code.co_filename}:{frame.f_lineno}: it is the "
                    "first operation that did, in a block of detect_anomaly(check_forward=True)."
                )
        return result


def plain_arrays(values: Iterable[Any]) -> list[Any]:
    """The arrays of those that are tensors with values: not sparse, not on the meta device, not many at once."""
    return [t._array for t in values if isinstance(t, Tensor) and t._xp is cpu and type(t._array) is cpu.ndarray]
