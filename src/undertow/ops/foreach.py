"""`_foreach_*`: one operation on lists of tensors, tensor by tensor.

PyTorch runs them as one kernel; here they are loops that save the caller one. Further arguments may be lists, too, or
one number or tensor for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.graph.saved import note
from undertow.modes import current
from undertow.ops.declare import REGISTRY
from undertow.ops.inplace import copy_, fill_, in_place, zero_
from undertow.ops.operands import NUMBERS
from undertow.tensor import Tensor

UNARY = """
abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt
sigmoid sign sin sinh sqrt tan tanh trunc
""".split()

OTHERS = "add addcdiv addcmul clamp_max clamp_min div lerp maximum minimum mul pow sub".split()

#: of a number in the place of the other tensor
OF_NUMBER = {"maximum": "clamp_min", "minimum": "clamp_max"}


def each(name: str, function: Callable[..., Any], changes: bool) -> Callable[..., Any]:
    """`function` on every tensor of a list; gives the list of these tensors if it `changes` them, else a tuple."""

    def foreach(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        count = len(tensors)
        for arg in args:
            if is_list(arg) and len(arg) != count:
                raise RuntimeError(
                    f"{foreach.__name__}: Tensor lists must have the same number of tensors, got {count} and {len(arg)}"
                )
        results = [
            function(tensor, *[arg[k] if is_list(arg) else arg for arg in args], **kwargs)
            for k, tensor in enumerate(tensors)
        ]
        for arg in args:
            if is_list(arg) and current().grad_enabled and all(isinstance(number, NUMBERS) for number in arg):
                note_scalars(results, list(arg))
        return results if changes else tuple(results)

    foreach.__name__ = foreach.__qualname__ = f"_foreach_{name}"
    foreach.__doc__ = f"`{name}` of every tensor of a list."
    foreach.__module__ = "undertow"
    return foreach


def note_scalars(results: list[Any], scalars: list[Any]) -> None:
    """The list is shown by every result's node, as `_saved_scalars`."""
    for result in results:
        if isinstance(result, Tensor) and result.grad_fn is not None:  # type: ignore[attr-defined]
            note(result.grad_fn, "scalars", scalars)  # type: ignore[attr-defined]


def is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def of_tensor_or_number(name: str) -> Callable[..., Any]:
    """`maximum` and `minimum`, of a number as well."""
    function, of_number = REGISTRY[name].function, REGISTRY[OF_NUMBER[name]].function

    def choose(tensor: Tensor, other: Any) -> Any:
        return (of_number if isinstance(other, NUMBERS) else function)(tensor, other)

    return choose


def table() -> dict[str, Callable[..., Any]]:
    """Every `_foreach_` function by name."""
    found: dict[str, Callable[..., Any]] = {}
    for name in [*UNARY, *OTHERS]:
        function = of_tensor_or_number(name) if name in OF_NUMBER else REGISTRY[name].function
        found[f"_foreach_{name}"] = each(name, function, changes=False)
        found[f"_foreach_{name}_"] = each(name + "_", in_place(name, function), changes=True)
    for change in (copy_, fill_, zero_):
        name = change.__name__
        found[f"_foreach_{name}"] = each(name, change, changes=True)
    found["_foreach_norm"] = each("norm", norm, changes=False)
    return found


def norm(tensor: Tensor, ord: float = 2, dtype: Any = None) -> Any:
    return REGISTRY["norm"].function(tensor, ord, dtype=dtype)
