"""`_foreach_*`: one operation on lists of tensors, tensor by tensor.

PyTorch runs them as one kernel; here they are loops that save the caller one, but where a GPU changes tensors in place
(ops/namespaces/foreach_together.py). Further arguments may be lists, too, or one number or tensor for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend.interface import Array, DType
from undertow.graph.operation_node import note
from undertow.modes import current
from undertow.ops.arguments.operands import NUMBERS
from undertow.ops.declare import REGISTRY, names_with
from undertow.ops.inplace.checks import check_history
from undertow.ops.inplace.forms import in_place
from undertow.ops.inplace.methods import copy_, fill_, zero_
from undertow.ops.linalg.norms import norm
from undertow.ops.pointwise.abs_sign import abs as absolute
from undertow.ops.pointwise.powers import pow as power
from undertow.ops.reduce.sums_and_products import sum as sum_of
from undertow.tensor import Tensor
from undertow.tensor.tensor import requires_grad

#: whose number for each tensor comes by name
VALUED = ("addcdiv", "addcmul")

#: of a number in the place of the other tensor
OF_NUMBER = {"maximum": "clamp_min", "minimum": "clamp_max"}


def each(name: str, function: Callable[..., Any], changes: bool) -> Callable[..., Any]:
    """`function` on every tensor of a list; gives the list of these tensors if it `changes` them, else a tuple."""

    def foreach(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        args = (*args, *[kwargs.pop(key) for key in ("scalar", "scalars") if key in kwargs])
        check_tensors(foreach.__name__, tensors)
        for arg in args:
            check_argument(foreach.__name__, arg, len(tensors))
        if changes:
            check_changes(foreach.__name__, tensors, args)
        if changes and not kwargs and _changed_together(name.rstrip("_"), tensors, args):
            return list(tensors)
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


def _changed_together(name: str, tensors: Any, args: tuple[Any, ...]) -> bool:
    from undertow.ops.namespaces.foreach_together import (
        changed_together,  # what GPUs do is loaded when lists are changed
    )

    return changed_together(name, tensors, args)


def check_tensors(name: str, tensors: Any) -> None:
    if not is_list(tensors):
        raise TypeError(f"{name}(): argument 'self' must be tuple of Tensors, not {type(tensors).__name__}")
    if not tensors:
        raise RuntimeError(f"{name}: Tensor list must have at least one tensor.")
    for k, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{name}: expected Tensor as element {k} in argument 0, but got {type(tensor).__name__}. Make it one "
                "by undertow.tensor()."
            )


def check_argument(name: str, arg: Any, count: int) -> None:
    """Refuse a list of another length, and a tensor for all that is more than a number."""
    if isinstance(arg, Tensor) and arg.ndim:
        raise RuntimeError(
            f"{name}: scalar tensor expected to be 0 dim but it has {arg.ndim} dimensions and {arg._array.size} "
            "elements. Give a list of tensors, one for each."
        )
    if not is_list(arg) or len(arg) == count:
        return
    if all([isinstance(item, NUMBERS) for item in arg]):
        raise RuntimeError(
            f"{name}: Tensor list must have same number of elements as scalar list, got {count} and {len(arg)}"
        )
    raise RuntimeError(f"{name}: Tensor lists must have the same number of tensors, got {count} and {len(arg)}")


def check_changes(name: str, tensors: Any, args: tuple[Any, ...]) -> None:
    """Refuse what one of the tensors refuses, before another is changed."""
    if not current().grad_enabled or current().intercept is not None:
        return
    for k, tensor in enumerate(tensors):
        others = [arg[k] if is_list(arg) else arg for arg in args]
        if any([isinstance(t, Tensor) and requires_grad(t) for t in (tensor, *others)]):
            check_history(tensor, name)


def note_scalars(results: list[Any], scalars: list[Any]) -> None:
    """The list is shown by every result's node, as `_saved_scalars`."""
    for result in results:
        if isinstance(result, Tensor) and result.grad_fn is not None:
            note(result.grad_fn, "scalars", scalars)


def is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def of_tensor_or_number(name: str) -> Callable[..., Any]:
    """`maximum` and `minimum`, of a number as well."""
    function, of_number = REGISTRY[name].function, REGISTRY[OF_NUMBER[name]].function

    def choose(tensor: Tensor, other: Array) -> Array:
        return (of_number if isinstance(other, NUMBERS) else function)(tensor, other)

    return choose


def with_values(foreach: Callable[..., Any]) -> Callable[..., Any]:
    """addcmul and addcdiv: the fourth argument is `value`, one number for all, or a list or row of them."""

    def function(self: Any, tensor1: Array, tensor2: Array, scalars: Any = None, *, value: Array = 1) -> Array:
        values = value if scalars is None else scalars
        if isinstance(values, Tensor) and values.ndim == 1:
            values = values.tolist()
        return foreach(self, tensor1, tensor2, values)

    function.__name__ = function.__qualname__ = foreach.__name__
    function.__doc__, function.__module__ = foreach.__doc__, "undertow"
    return function


def valued(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tensor, tensor1, tensor2, value: function(tensor, tensor1, tensor2, value=value)


def powers(foreach: Callable[..., Any]) -> Callable[..., Any]:
    """`_foreach_pow`: a number may be the base."""

    def _foreach_pow(self: Any, exponent: Any) -> Any:
        if not isinstance(self, NUMBERS):
            return foreach(self, exponent)
        check_tensors("_foreach_pow", exponent)
        return tuple([power(self, each) for each in exponent])

    _foreach_pow.__doc__, _foreach_pow.__module__ = foreach.__doc__, "undertow"
    return _foreach_pow


def table() -> dict[str, Callable[..., Any]]:
    """Every `_foreach_` function by name."""
    found = {
        f"_foreach_{change.__name__}": each(change.__name__, change, changes=True) for change in (copy_, fill_, zero_)
    }
    for name in names_with("foreach"):
        found |= valued_forms(name) if name in VALUED else plain_forms(name)
    found["_foreach_pow"] = powers(found["_foreach_pow"])
    found["_foreach_norm"] = each("norm", norm_of_each, changes=False)
    found["_foreach_powsum"] = each("powsum", powsum, changes=False)
    return found


def plain_forms(name: str) -> dict[str, Callable[..., Any]]:
    op = REGISTRY[name]
    function = of_tensor_or_number(name) if name in OF_NUMBER else op.function
    forms = {f"_foreach_{name}": each(name, function, changes=False)}
    if name in OF_NUMBER or "in_place" in op.variants[name]:
        forms[f"_foreach_{name}_"] = each(name + "_", in_place(name, function), changes=True)
    return forms


def valued_forms(name: str) -> dict[str, Callable[..., Any]]:
    function = REGISTRY[name].function
    return {
        f"_foreach_{name}": with_values(each(name, valued(function), changes=False)),
        f"_foreach_{name}_": with_values(each(name + "_", valued(in_place(name, function)), changes=True)),
    }


def norm_of_each(tensor: Tensor, ord: float = 2, dtype: DType | None = None) -> Array:
    return norm(tensor, ord, dtype=dtype)


def powsum(tensor: Tensor, ord: float = 2, dtype: DType | None = None) -> Array:
    """The sum of the absolute values to a power: a norm before its root is taken."""
    return sum_of(power(absolute(tensor), ord), dtype=dtype)
