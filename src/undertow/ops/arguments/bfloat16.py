"""bfloat16: operations compute it in float32, and round their results.

`apply` calls `widened` before the forward and `rounded` after it; a node's `pull` calls `wide` on the gradient and on
what was saved. So sums and products are accumulated in float32, as PyTorch does it, and
forwards and rules never see bfloat16. What is kept between operations is bfloat16: results, saved tensors, gradients
(the engine casts each to the dtype of its receiver).

`NARROW` is empty until bfloat16 is first used, so that programs without it ask nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes, namespace_of_array
from undertow.backend.dtypes import NARROW
from undertow.backend.interface import Array, DType, Namespace

if TYPE_CHECKING:
    from undertow.ops.declare import Op


def is_narrow(value: Any) -> bool:
    """Whether it is an array (or tensor) of bfloat16."""
    return getattr(value, "dtype", None) is not None and value.dtype.kind == "V"


def introduce(dtype: DType) -> DType:
    """NumPy's of a dtype that a call asks for: it may be bfloat16, of which undertow has not heard before."""
    dtype = dtypes.plain(dtype)
    scalar_type = getattr(dtype, "type", dtype)  # `dtype.name` would be imported, and not at the interpreter's exit
    if not NARROW and getattr(scalar_type, "__name__", None) == "bfloat16":
        dtypes.bfloat16()
    return dtypes.as_dtype(dtype) if isinstance(dtype, str) else dtype


def wide(value: Any) -> Any:
    """An array of bfloat16 in float32, and lists of such; anything else as it is."""
    if type(value) in (list, tuple):
        return type(value)(map(wide, value))
    return value.astype(dtypes.float32) if is_narrow(value) else value


def wide_dtype(dtype: Any) -> Any:
    """What a forward is told of a parameter `dtype`: float32 if bfloat16 is asked for."""
    return dtypes.float32 if any([dtype is narrow for narrow in NARROW]) else dtype


def _round_array(array: Array) -> Array:
    """Real floating-point numbers as bfloat16, the nearest; what is beyond its range is infinite, without a warning."""
    return namespace_of_array(array).astype(array, NARROW[0]) if array.dtype.kind == "f" else array


def rounded(out: Any, exact: Sequence[int] = ()) -> Any:
    """The result of an operation in bfloat16: an array, or several, of which those at `exact` are left as they are."""
    if type(out) is not tuple:
        return _round_array(out)
    return tuple([array if k in exact else _round_array(array) for k, array in enumerate(out)])


def widened(op: Op, xp: Namespace, arguments: Mapping[str, Any], names: Sequence[str], leading: str) -> list[Any]:
    """Whether the result is to be rounded, and the arrays called `names` to compute it with.

    arguments  all that the forward will be given, by name
    leading    the input that decides of the result's dtype, where the operation does not promote
    """
    arrays = [arguments[name] for name in names]
    asked = arguments.get("dtype")
    if asked is None:
        rounds = is_narrow(arguments[leading])
    else:
        rounds = any([asked is narrow for narrow in NARROW])
    if any(map(is_narrow, arrays)):
        _check_mixture(op, xp, arguments, names)
        return [rounds, *map(wide, arrays)]
    return [rounds, *arrays]


# ---- operands of several dtypes

#: the operations, with the dtypes of their inputs, that are known to take bfloat16 beside other floating-point numbers
_taken: set[Any] = set()


def _check_mixture(op: Op, xp: Namespace, arguments: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse bfloat16 beside another floating-point dtype where an operation wants one dtype.

    In float32 there might be no difference to see. So the forward is tried with another dtype in its place, once.
    """
    floats = [arguments[n].dtype for n in names if arguments[n] is not None and arguments[n].dtype.kind in "fcV"]
    if len(set(floats)) == 1:
        return
    key = op.name, tuple([None if arguments[n] is None else arguments[n].dtype for n in names])
    if key not in _taken:
        other = next(d for d in (dtypes.float16, dtypes.float64, dtypes.float32) if d not in floats)
        stand_ins = {n: xp.ones(v.shape, other) if is_narrow(v) else wide_dtype(v) for n, v in arguments.items()}
        try:
            with cpu.errstate(all="ignore"):
                op.compute(xp, stand_ins)
        except Exception as error:
            raise type(error)(_in_terms_of_bfloat16(str(error), other)) from None
        _taken.add(key)


def _in_terms_of_bfloat16(message: str, other: Array) -> str:
    """The message, in which bfloat16 goes by the names of another dtype."""
    names = {"c10::Half": "c10::BFloat16", "Half": "BFloat16", "float16": "bfloat16"}
    if other is not dtypes.float16:
        names = {dtypes.SCALAR_NAMES[other]: "BFloat16", str(other): "bfloat16"}
    for name, own in names.items():
        message = message.replace(name, own)
    return message
