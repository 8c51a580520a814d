"""Op: what is known of an operation, from its declaration; and REGISTRY, every operation by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from undertow.graph.node import Node

Vjp = Callable[..., Any] | None

#: every operation by name: primitives, views, non-differentiable ones and composites
REGISTRY: dict[str, Op] = {}


class Op:
    """What is known of an operation; its function carries it as `function.op`.

    kind      "primitive", "variadic", "view", "nondifferentiable" or "composite"
    inputs    names of the tensor arguments; `edges` those among them that can have a gradient
    params    names of the other arguments
    """

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any],
        vjp: Mapping[str, Vjp] | Joint,
        *,
        kind: str = "primitive",
        jvp: Any = None,
        batch: Any = None,
        node: str | None = None,
        promote: str | None = None,
        number: str | None = None,
        number_node: str | None = None,
        number_edge: bool = True,
        optional: tuple[str, ...] = (),
        outputs: tuple[str, ...] | str | None = None,
        nondifferentiable: tuple[str, ...] = (),
        check_output: bool = False,
        moves_to: str | None = None,
        widens: bool = True,
        exact: tuple[str, ...] = (),
    ) -> None:
        ordered, self.defaults, self.keyword_only = arguments_of(forward)
        self.ordered = ordered[1:]  # all but the namespace
        self.name = name
        self.kind = kind
        self.forward = forward
        self.vjp = vjp
        self.jvp = jvp
        self.batch = batch
        self.node_name = node or camel_case(name) + "Backward0"
        self.promote = promote
        self.number = number
        self.number_node_name = number_node or self.node_name
        self.number_edge = number_edge
        self.optional = optional
        self.outputs = outputs
        self.nondifferentiable = nondifferentiable
        self.check_output = check_output
        self.moves_to = moves_to
        self.widens = widens and kind != "view"
        self.exact = exact
        rules = vjp.inputs if isinstance(vjp, Joint) else vjp
        self.inputs = [n for n in self.ordered if n in rules]
        self.edges = [i for i in rules if isinstance(vjp, Joint) or vjp[i] is not None]
        self.params = [n for n in self.ordered if n not in rules]
        unknown = set(rules) - set(self.inputs)
        if unknown:
            raise TypeError(f"{name}: vjp names {sorted(unknown)}, which forward does not take")
        self.function: Any = None
        self.node_class: type[Node] | None = None

    def signature(self) -> inspect.Signature:
        """How the function is called."""
        parameters = list(inspect.signature(self.forward).parameters.values())[1:]
        for dim, axis in (("dim", "axis"), ("keepdim", "keepdims")):
            if dim in self.params:
                parameters.append(inspect.Parameter(axis, inspect.Parameter.KEYWORD_ONLY, default=None))
        return inspect.Signature(parameters)

    def source(self) -> str:
        """The generated function."""
        self.function.complete()
        return self.function.source

    def rule_names(self) -> dict[str, list[str]]:
        """For each rule, the names it takes after `xp, g` (and `needs`, for a joint one)."""
        if isinstance(self.vjp, Joint):
            return {"*": arguments_of(self.vjp.rule)[0][3:]}
        return {i: arguments_of(rule)[0][2:] for i, rule in self.vjp.items() if rule is not None}

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class Joint:
    """One rule for several inputs that share work: `rule(xp, g, needs, ...)` returns a gradient (or None) for each.

    `needs` holds a bool for each input, in order.
    """

    def __init__(self, inputs: tuple[str, ...], rule: Callable[..., Any]) -> None:
        self.inputs = inputs
        self.rule = rule


def arguments_of(function: Callable[..., Any]) -> tuple[list[str], dict[str, Any], set[str]]:
    """The names of a function's arguments, their defaults, and which of them are keyword-only.

    Those of a plain function are read off its code: `inspect.signature` took a fifth of the time of importing undertow.
    """
    if type(function) is FunctionType and not function.__dict__ and not function.__code__.co_flags & VARIABLE:
        code = function.__code__
        count, end = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        names, values = code.co_varnames, function.__defaults__ or ()
        defaults = dict(zip(names[count - len(values) : count], values, strict=True), **function.__kwdefaults__ or {})
        return list(names[:end]), defaults, set(names[count:end])
    found = inspect.signature(function).parameters.values()
    return (
        [p.name for p in found],
        {p.name: p.default for p in found if p.default is not p.empty},
        {p.name for p in found if p.kind is p.KEYWORD_ONLY},
    )


#: flags of functions that take *arguments or **options
VARIABLE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def camel_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.strip("_").split("_"))
