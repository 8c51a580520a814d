"""NumPy's functions on tensors: `np.sin(t)`, `array + t`, `np.concatenate([t, u])`, `np.asarray(t)`.

A NumPy function that has a counterpart here becomes that operation and is recorded. Any other is computed on the bare
arrays if no argument requires grad, and refused if one does: a gradient is never lost silently.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.backend import cpu
from undertow.interop import numpy_linalg as _more_entries  # noqa: F401
from undertow.interop.numpy_functions import FUNCTIONS, MUTATING, NONDIFFERENTIABLE, ops
from undertow.modes import current
from undertow.ops.data import adopt
from undertow.ops.inplace import check_in_place
from undertow.tensor import Tensor, counter_of, current_edge

#: ufunc -> operation, where the names differ
UFUNCS = {
    "absolute": "abs", "conjugate": "conj", "degrees": "rad2deg", "divide": "true_divide", "equal": "eq",
    "fabs": "abs", "greater": "gt", "greater_equal": "ge", "invert": "bitwise_not", "left_shift": "bitwise_left_shift",
    "less": "lt", "less_equal": "le", "multiply": "mul", "negative": "neg", "not_equal": "ne", "power": "pow",
    "radians": "deg2rad", "right_shift": "bitwise_right_shift", "rint": "round", "sign": "sgn", "subtract": "sub",
}  # fmt: skip

#: ufunc -> operation, for `ufunc.reduce` and `ufunc.accumulate`
REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "amax", "minimum": "amin", "logical_and": "all", "logical_or": "any",
}  # fmt: skip
ACCUMULATIONS = {"add": "cumsum", "multiply": "cumprod"}


# ---- to an array


def array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    """`__array__`: `np.asarray(tensor)` shares memory."""
    if self._xp is not cpu:
        self._array.__array__()  # raises: only `cpu()` brings elements to the host
    if current_edge(self) is not None:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead. (NumPy asked for "
            "the tensor's array, in which its history would be lost.)"
        )
    if dtype is None or np.dtype(dtype) == self._array.dtype:
        return self._array.copy() if copy else self._array.view()
    if copy is False:
        raise ValueError(f"cannot give a tensor of {self._array.dtype} as {np.dtype(dtype)} without a copy")
    return self._array.astype(dtype)


# ---- ufuncs


def array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
    """`__array_ufunc__`: what NumPy calls for `np.add(t, u)` and for `array + t`."""
    if out is not None:
        return write_out(getattr(ufunc, method), ufunc.__name__, inputs, out, options)
    if method == "at":
        return mutate(ufunc.at, f"{ufunc.__name__}.at", inputs, options)
    operation = operation_of(ufunc, method)
    known = () if method == "__call__" else ("axis", "keepdims")
    if operation is None or not set(options) <= set(known):
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        return on_arrays(getattr(ufunc, method), name, inputs, options)
    if method != "__call__":
        options = {"dim": options.pop("axis", 0), **({"keepdim": True} if options.get("keepdims") else {})}
    return operation(*map(as_operand, inputs), **options)


def operation_of(ufunc: Any, method: str) -> Any:
    """The operation that computes what the method of the ufunc does, or None."""
    name = ufunc.__name__
    if method == "__call__":
        return FUNCTIONS.get(ufunc) or ops.find(UFUNCS.get(name, name))
    return ops.find({"reduce": REDUCTIONS, "accumulate": ACCUMULATIONS}.get(method, {}).get(name))


def as_operand(value: Any) -> Any:
    """A tensor for an array or a list, a Python number for a NumPy one."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (np.ndarray, list, tuple)):
        return Tensor(adopt(np.asarray(value)), cpu)
    return value


# ---- functions


def array_function(self: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """`__array_function__`: what NumPy calls for `np.sum(t)`, `np.concatenate([t, u])`, ..."""
    name = f"{function.__module__}.{function.__name__}".removeprefix("numpy.")
    if function in MUTATING:
        return mutate(function, name, args, kwargs)
    if kwargs.get("out") is not None:
        out = kwargs.pop("out")
        return write_out(function, name, args, out if isinstance(out, tuple) else (out,), kwargs)
    if function in FUNCTIONS:
        try:
            return FUNCTIONS[function](*map_arrays(args, as_tensor), **map_arrays(kwargs, as_tensor))
        except ops.Missing:
            pass
    if function in NONDIFFERENTIABLE:
        return wrap(function(*unwrap(args), **unwrap(kwargs)))
    return on_arrays(function, name, args, kwargs)


def as_tensor(value: Any) -> Any:
    return Tensor(adopt(value), cpu) if isinstance(value, np.ndarray) and value.dtype.kind in "biufc" else value


def map_arrays(value: Any, change: Any) -> Any:
    """`value` with every tensor or array in it, also in lists, tuples and dicts, replaced by `change` of it."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        return change(value)
    if isinstance(value, dict):
        return {key: map_arrays(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[map_arrays(item, change) for item in value])
    if isinstance(value, (list, tuple)):
        return type(value)([map_arrays(item, change) for item in value])
    return value


def unwrap(value: Any) -> Any:
    return map_arrays(value, lambda x: x._array if isinstance(x, Tensor) else x)


def wrap(value: Any) -> Any:
    """Tensors in the place of arrays and NumPy numbers."""

    def change(x: Any) -> Any:
        numeric = not isinstance(x, Tensor) and x.dtype.kind in "biufc"
        return Tensor(adopt(np.asarray(x)), cpu) if numeric else x

    return map_arrays(value, change)


# ---- on bare arrays


def needs_grad(value: Any) -> bool:
    """Whether a gradient is wanted of any tensor in the arguments."""
    found = []
    map_arrays(value, lambda x: found.append(isinstance(x, Tensor) and current_edge(x) is not None))
    return current().grad_enabled and any(found)


def on_arrays(function: Any, name: str, args: Any, kwargs: Any) -> Any:
    """A NumPy function that undertow has no operation for."""
    if needs_grad([args, kwargs]):
        raise TypeError(
            f"np.{name} with these arguments has no derivative in undertow, and one of them requires grad: its "
            "gradient would be lost. Use operations of undertow, or pass tensor.detach() if no gradient is wanted."
        )
    return wrap(function(*unwrap(args), **unwrap(kwargs)))


def write_out(function: Any, name: str, args: Any, out: tuple[Any, ...], kwargs: Any) -> Any:
    """A NumPy function with `out=`: computed on the bare arrays, into memory that already exists."""
    if needs_grad([args, kwargs, out]):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad. Leave out= away (and write `x = x + t` instead of `x += t` for an array x)."
        )
    announce_change(out, name)
    arrays = unwrap(out)
    function(*unwrap(args), out=arrays if len(arrays) > 1 else arrays[0], **unwrap(kwargs))
    count_version(out, name)
    return out if len(out) > 1 else out[0]


def mutate(function: Any, name: str, args: Any, kwargs: Any) -> Any:
    """A NumPy function that writes into its first argument, such as np.copyto."""
    if needs_grad([args, kwargs]):
        raise TypeError(
            f"np.{name} writes into an array, which autograd cannot follow, and one of its arguments requires grad. "
            "Use an in-place operation of undertow (t.copy_(u), t[index] = u, ...), or tensor.detach()."
        )
    changed = [*args, *kwargs.values()][:1]
    announce_change(changed, name)
    result = function(*unwrap(args), **unwrap(kwargs))
    count_version(changed, name)
    return result


def announce_change(changed: Any, name: str) -> None:
    for value in changed:
        if isinstance(value, Tensor):
            check_in_place(value, name)


def count_version(changed: Any, name: str) -> None:
    for value in changed:
        if isinstance(value, Tensor):
            counter_of(value).bump(name)


METHODS = {"__array__": array, "__array_ufunc__": array_ufunc, "__array_function__": array_function}
