"""Arguments by name: those of a call, with defaults filled in, and those that an interceptor sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from undertow.ops.declare import Op
from undertow.ops.declare.formula import parameters


@cache
def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """What a rule takes, `xp` (or what it calls that) first."""
    return ("xp", *parameters(function).names)


def by_name(op: Op, args: Sequence[Any]) -> dict[str, Any]:
    """The arguments that an interceptor is handed, by name: all of them, in the order of the signature."""
    return dict(zip(op.ordered, args, strict=True))


def bind(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Every argument of a call to the operation, by name, in the order of its signature."""
    if op.kind == "composite":
        raise TypeError(f"{op.name} is made of other operations, which have rules; it has none itself")
    return by_name(op, op.bind(tuple(args), dict(kwargs or {})))
