"""Half precision, float16 and bfloat16: operations compute it in float32, and round their results.

`apply` calls `widen` before the forward and `rounded` after it; a node's `pull` calls `wide` on the gradient and on
what was saved. So sums and products are accumulated in float32, as PyTorch does it, and
forwards and rules never see it. What is kept between operations has half precision: results, saved tensors, gradients
(the engine casts each to the dtype of its receiver).

`in_float32` decorates functions of several operations that autocast computes in float32 as a whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes, namespace_of_array
from undertow.backend.dtypes import NARROW
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.large_arrays import cast
from undertow.modes import Interceptor, current

if TYPE_CHECKING:
    from undertow.ops.declare import Op


def is_narrow(value: Any) -> bool:
    """Whether it is an array (or tensor) of half precision."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and dtypes.is_narrow(dtype)


def stays(known: frozenset[str], op: Op, values: Sequence[Any]) -> bool:
    """Whether a device computes an operation, or its rules, in half precision itself.

    `known` are the names of those operations; all floating-point numbers must be of one such dtype.
    """
    if op.name not in known:
        return False
    if any([type(x) is list for x in values]):  # the gradients of several outputs
        values = [x for v in values for x in (v if type(v) is list else (v,))]
    found = {x.dtype for x in values if getattr(getattr(x, "dtype", None), "kind", "") in ("f", "V", "c")}
    return len(found) == 1 and all(map(dtypes.is_narrow, found))


def introduce(dtype: DType) -> DType:
    """NumPy's of a dtype that a call asks for: it may be bfloat16, of which undertow has not heard before."""
    dtype = dtypes.plain(dtype)
    scalar_type = getattr(dtype, "type", dtype)  # `dtype.name` would be imported, and not at the interpreter's exit
    if getattr(scalar_type, "__name__", None) == "bfloat16":
        dtypes.bfloat16()
    return dtypes.as_dtype(dtype) if isinstance(dtype, str) else dtype


#: what is no array, and holds none
PLAIN = frozenset({int, float, bool, complex, str, type(None)})


def holds_narrow(value: Any) -> bool:
    """Whether it is an array of half precision, or a list or tuple that holds one."""
    kind = type(value)
    if kind is list or kind is tuple:
        for v in value:  # noqa: SIM110  (this runs for every node)
            if type(v) not in PLAIN and holds_narrow(v):
                return True
        return False
    dtype = getattr(value, "dtype", None)
    return dtype is not None and dtype.itemsize == 2 and dtypes.is_narrow(dtype)


def wide(value: Any) -> Any:
    """An array of half precision in float32, and lists of such; anything else as it is."""
    if type(value) in (list, tuple):
        return type(value)(map(wide, value))
    return cast(value, dtypes.float32) if is_narrow(value) else value


def wide_dtype(dtype: DType) -> DType:
    """What a forward is told of a parameter `dtype`: float32 if half precision is asked for."""
    return dtypes.float32 if dtype in NARROW else dtype


def _round_array(array: Array, dtype: DType) -> Array:
    """Real floating-point numbers as the nearest of a dtype; beyond its range they are infinite, without a warning."""
    return namespace_of_array(array).astype(array, dtype) if array.dtype.kind == "f" else array


def rounded(out: Array, dtype: DType, exact: Sequence[int] = ()) -> Any:
    """The result of an operation in half precision: an array, or several, with those at `exact` left as they are."""
    if type(out) is not tuple:
        return _round_array(out, dtype)
    return tuple([array if k in exact else _round_array(array, dtype) for k, array in enumerate(out)])


# ---- operands of several dtypes

#: the operations, with the dtypes of their inputs, that are known to take half precision beside other floating-point
#: numbers
_taken: set[Any] = set()


def check_mixture(op: Op, xp: Namespace, arguments: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse half precision beside another floating-point dtype where an operation wants one dtype.

    In float32 there might be no difference to see. So the forward is tried once with the dtypes themselves, and another
    in the place of bfloat16, which it does not know.
    """
    floats = [arguments[n].dtype for n in names if arguments[n] is not None and arguments[n].dtype.kind in "fcV"]
    if len(set(floats)) == 1:
        return
    key = op.name, tuple([None if arguments[n] is None else arguments[n].dtype for n in names])
    if key not in _taken:
        other = next(d for d in (dtypes.float16, dtypes.float64, dtypes.float32) if d not in floats)
        stand_ins = {n: _stand_in(xp, v, other) if is_narrow(v) else v for n, v in arguments.items()}
        if "dtype" in stand_ins:
            stand_ins["dtype"] = wide_dtype(stand_ins["dtype"])
        try:
            with cpu.errstate(all="ignore"):
                op.compute(xp, stand_ins)
        except Exception as error:
            raise type(error)(_in_terms_of_bfloat16(str(error), other)) from None
        _taken.add(key)


def _stand_in(xp: Namespace, array: Array, other: DType) -> Array:
    return xp.ones(array.shape, other if array.dtype.kind == "V" else array.dtype)


def _in_terms_of_bfloat16(message: str, other: Array) -> str:
    """The message, in which bfloat16 goes by the names of another dtype."""
    names = {"c10::Half": "c10::BFloat16", "Half": "BFloat16", "float16": "bfloat16"}
    if other is not dtypes.float16:
        names = {dtypes.SCALAR_NAMES[other]: "BFloat16", str(other): "bfloat16"}
    for name, own in names.items():
        message = message.replace(name, own)
    return message


# ---- under autocast


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Under autocast, let the function have float32 for tensors of lower precision, and no autocast inside."""

    @functools.wraps(function)
    def widened_first(*args: Any, **kwargs: Any) -> Any:
        intercept = current().intercept
        if isinstance(intercept, Interceptor):
            return intercept.in_float32(function, args, kwargs)
        return function(*args, **kwargs)

    return widened_first
