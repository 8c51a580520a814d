"""`size_average` and `reduce`: how the reduction of a loss was chosen before there was `reduction`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from undertow.graph.user_lines import warn_user

OLD = ("size_average", "reduce")


def reduction_of(size_average: bool | None, reduce: bool | None) -> str:
    """The reduction that the two old arguments ask for."""
    average, whole = (True if value is None else value for value in (size_average, reduce))
    found = "none" if not whole else "mean" if average else "sum"
    warn_user(
        f"size_average and reduce args will be deprecated, please use reduction='{found}' instead, which means the same"
    )
    return found


#: losses that PyTorch has had since, which never took them
YOUNGER = frozenset(("GaussianNLLLoss", "TripletMarginWithDistanceLoss", "LinearCrossEntropyLoss"))


def order_of(function: Callable[..., Any]) -> tuple[int, list[str]]:
    """How many arguments a function takes by place; and all its names in the order that PyTorch gives them places.

    What has to be named here may follow by place, too, with the old arguments where they were: before all of it, and
    before `reduction`.
    """
    kinds = {name: each.kind for name, each in inspect.signature(function).parameters.items()}
    placed = [name for name, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    named = [name for name, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY]
    if "reduction" not in named or function.__qualname__.partition(".")[0] in YOUNGER:
        return len(placed), placed
    place = named.index("reduction")
    return len(placed), [*placed, "size_average", *named[:place], "reduce", *named[place:]]


def takes_old_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with `reduction` that also understands the old arguments, by name and by place."""
    if set(OLD) & set(inspect.signature(function).parameters):
        return function
    count, order = order_of(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if count < len(args) <= len(order):
            further = dict(zip(order[count:], args[count:], strict=False))
            for name in further.keys() & kwargs.keys():
                raise TypeError(f"{function.__name__}() got multiple values for argument {name!r}")
            args, kwargs = args[:count], {**kwargs, **further}
        if "size_average" in kwargs or "reduce" in kwargs:
            chosen = [kwargs.pop(name, None) for name in OLD]
            if chosen != [None, None]:
                kwargs["reduction"] = reduction_of(*chosen)
        return function(*args, **kwargs)

    call.__module__ = "undertow.nn.functional" if "." not in function.__qualname__ else function.__module__
    return call
