"""NumPy's functions on tensors: `np.sin(t)`, `array + t`, `np.concatenate([t, u])`, `np.asarray(t)`.

A NumPy function that has a counterpart here becomes that operation and is recorded. Any other is computed on the bare
arrays if no argument requires grad, and refused if one does: a gradient is never lost silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.autograd.interceptors.stack import active
from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array
from undertow.interop.numpy import calculus, fft, linalg, reductions  # noqa: F401  (more entries)
from undertow.interop.numpy import positions as positions
from undertow.interop.numpy import ufuncs as ufuncs
from undertow.interop.numpy.functions import FUNCTIONS, NONDIFFERENTIABLE, ops
from undertow.modes import current
from undertow.ops.arguments.nested_data import adopt
from undertow.ops.inplace.checks import check_in_place
from undertow.ops.inplace.methods import copy_
from undertow.tensor import Tensor, counter_of, current_edge

# ---- ufuncs


def array_ufunc(ufunc: Callable[..., Any], method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
    """`__array_ufunc__`: what NumPy calls for `np.add(t, u)` and for `array + t`."""
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    if any(map(is_foreign, (*inputs, *(out or ())))):
        return NotImplemented
    if method == "at":
        return change_at(ufunc, name, inputs)
    if out is not None and not is_followed([inputs, options, out]):
        return write_out(getattr(ufunc, method), name, inputs, out, options)
    targets = checked_targets(name, out)
    try:
        base = {"base": targets[0]} if targets and options.get("where", True) is not True else {}
        result = ufuncs.METHODS[method](ufunc, *inputs, **base, **options)
    except ops.Missing:
        return on_arrays(getattr(ufunc, method), name, inputs, {**options, **({"out": out} if out else {})})
    return store(name, result, targets) if targets else result


def is_foreign(value: Any) -> bool:
    """Whether it is of another library with rules of its own for ufuncs, which may know what to do with a tensor."""
    known = isinstance(value, (Tensor, np.ndarray, np.generic, bool, int, float, complex, list, tuple, type(None)))
    return not known and getattr(type(value), "__array_ufunc__", None) is not None


def change_at(ufunc: Array, name: str, inputs: Any) -> None:
    """`ufunc.at`: in place, recorded if a gradient is wanted of anything in it."""
    if not is_followed(inputs):
        mutate(ufunc.at, name, inputs, {})
    elif isinstance(inputs[0], Tensor) and ufuncs.operation_of(ufunc) is not None:
        check_in_place(inputs[0], name)
        ufuncs.at(ufunc, *inputs)
    else:
        refuse_mutation(name)


# ---- functions


def array_function(function: Array, types: Any, args: Any, kwargs: Any) -> Any:
    """`__array_function__`: what NumPy calls for `np.sum(t)`, `np.concatenate([t, u])`, ..."""
    name = f"{function.__module__}.{function.__name__}".removeprefix("numpy.")
    if not all(issubclass(t, (Tensor, np.ndarray)) for t in types):
        return NotImplemented
    if function in positions.MUTATING:
        return change_first(function, name, args, kwargs)
    out = kwargs.pop("out", None) if kwargs.get("out") is not None else None
    if out is None:
        return evaluate(function, name, args, kwargs)
    out = out if isinstance(out, tuple) else (out,)
    if not is_followed([args, kwargs, out]):
        return write_out(function, name, args, out, kwargs)
    targets = checked_targets(name, out)
    return store(name, evaluate(function, name, args, kwargs), targets)


def evaluate(function: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
    if function in FUNCTIONS:
        try:
            return FUNCTIONS[function](*map_arrays(args, as_tensor), **map_arrays(kwargs, as_tensor))
        except ops.Missing:
            pass
    if function in NONDIFFERENTIABLE:
        return wrap(function(*unwrap(args), **unwrap(kwargs)))
    return on_arrays(function, name, args, kwargs)


def change_first(function: Callable[..., Any], name: str, args: Any, kwargs: Any) -> None:
    """A function that writes into its first argument, such as np.copyto."""
    if not is_followed([args, kwargs]):
        mutate(function, name, args, kwargs)
    elif args and isinstance(args[0], Tensor):
        check_in_place(args[0], name)
        positions.rewrite(function, *args, **kwargs)
    else:
        refuse_mutation(name)


def as_tensor(value: Array) -> Array:
    return Tensor(adopt(value), cpu) if isinstance(value, np.ndarray) and dtypes.is_storable(value.dtype) else value


def map_arrays(value: Any, change: Callable[..., Any]) -> Any:
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

    def change(x: Array) -> Any:
        numeric = not isinstance(x, Tensor) and dtypes.is_storable(x.dtype)
        return Tensor(adopt(np.asarray(x)), cpu) if numeric else x

    return map_arrays(value, change)


# ---- on bare arrays


def is_followed(value: Any) -> bool:
    """Whether what happens to a tensor in the arguments is recorded: a gradient, a tangent or a batch depends on it."""
    found: list[Any] = []
    map_arrays(value, lambda x: found.append(x) if isinstance(x, Tensor) else None)
    if current().grad_enabled and any([current_edge(x) is not None for x in found]):
        return True
    return any([level.concerns(found) for level in active().order])


def on_arrays(function: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
    """A NumPy function that undertow has no operation for."""
    if is_followed([args, kwargs]):
        raise TypeError(
            f"{in_full(name)} with these arguments has no derivative in undertow, and one of them requires grad: its "
            "gradient would be lost. Use operations of undertow, or pass tensor.detach() if no gradient is wanted."
        )
    return wrap(function(*unwrap(args), **unwrap(kwargs)))


def in_full(name: str) -> str:
    """The function as one calls it; a ufunc may be of SciPy, or of the user's own."""
    return f"np.{name}" if hasattr(np, name.split(".")[0]) else f"the ufunc {name}"


# ---- into memory that exists


def checked_targets(name: str, out: Any) -> Any:
    """The tensors that results are to be written into."""
    if out is None:
        return None
    if not all(isinstance(target, Tensor) for target in out):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation where `out` is an "
            "array, which has no history, but one of the arguments requires grad. Give a tensor as out=, or leave it "
            "away (and write `x = x + t` instead of `x += t` for an array x)."
        )
    for target in out:
        check_in_place(target, name)
    return out


def store(name: str, result: Array, targets: tuple[Any, ...]) -> Array:
    """Write results into tensors, as a recorded change in place."""
    results = result if isinstance(result, tuple) else (result,)
    for target, value in zip(targets, results, strict=True):
        if not np.can_cast(value.dtype, target.dtype, "same_kind"):
            raise TypeError(f"Cannot cast {name} output from {value.dtype} to {target.dtype} with rule 'same_kind'")
    for target, value in zip(targets, results, strict=True):
        copy_(target, value)
    return targets if len(targets) > 1 else targets[0]


def write_out(function: Callable[..., Any], name: str, args: Any, out: tuple[Any, ...], kwargs: Any) -> Array:
    """A NumPy function with `out=` of which no gradient is wanted: computed on the bare arrays."""
    announce_change(out, name)
    arrays = unwrap(out)
    function(*unwrap(args), out=arrays if len(arrays) > 1 else arrays[0], **unwrap(kwargs))
    count_version(out, name)
    return out if len(out) > 1 else out[0]


def mutate(function: Callable[..., Any], name: str, args: Any, kwargs: Any) -> None:
    """A NumPy function that writes into its first argument, of which no gradient is wanted."""
    changed = [*args, *kwargs.values()][:1]
    announce_change(changed, name)
    function(*unwrap(args), **unwrap(kwargs))
    count_version(changed, name)


def refuse_mutation(name: str) -> None:
    raise TypeError(
        f"np.{name} writes into an array, which has no history, and one of its arguments requires grad: its gradient "
        "would be lost. Write into a tensor (t.copy_(u), t[index] = u, ...), or pass tensor.detach()."
    )


def announce_change(changed: Any, name: str) -> None:
    for value in changed:
        if isinstance(value, Tensor):
            check_in_place(value, name)


def count_version(changed: Any, name: str) -> None:
    for value in changed:
        if isinstance(value, Tensor):
            counter_of(value).bump(name)
