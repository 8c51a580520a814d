"""Arguments by name: those of a call, with defaults filled in, and those that an interceptor sees."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from undertow.ops.declare import Op

NUMPY_SPELLINGS = {"axis": "dim", "keepdims": "keepdim"}


@functools.cache
def parameter_names(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def argument_names(op: Op) -> tuple[str, ...]:
    """In the order of the operation's signature."""
    return parameter_names(op.forward)[1:]


def by_name(op: Op, args: Sequence[Any]) -> dict[str, Any]:
    """The arguments that an interceptor is handed, by name: all of them, in the order of the signature."""
    return dict(zip(argument_names(op), args, strict=True))


def bind(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Every argument of a call to the operation, by name, in the order of its signature."""
    if op.kind == "composite":
        raise TypeError(f"{op.name} is made of other operations, which have rules; it has none itself")
    signature = inspect.signature(op.forward)
    signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    named = {_spelling(op, n): v for n, v in (kwargs or {}).items()}
    bound = signature.bind(*args, **named)
    bound.apply_defaults()
    return dict(bound.arguments)


def _spelling(op: Op, name: str) -> str:
    known = NUMPY_SPELLINGS.get(name, name)
    return known if known in op.params else name
