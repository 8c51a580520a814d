"""Op: what is known of an operation, from its declaration; and REGISTRY, every operation by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
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
    variants  name -> where programs find it (variants.py): its own name and the aliases
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
        bfloat16: str = "in_float32",
        exact: tuple[str, ...] = (),
        variants: str | None = None,
        out: bool | None = None,
        autocast: str | None = None,
        random: str | None = None,
        piecewise_constant: bool = False,
        same_in_numpy: bool = False,
    ) -> None:
        signature = list(inspect.signature(forward).parameters.values())[1:]
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
        self.widens = bfloat16 == "in_float32" and kind != "view"
        self.exact = exact
        self.variants = {name: read_variants(name, kind, variants, out)}
        self.autocast = autocast
        self.random = random
        self.piecewise_constant = piecewise_constant
        self.same_in_numpy = same_in_numpy
        rules = vjp.inputs if isinstance(vjp, Joint) else vjp
        self.inputs = [p.name for p in signature if p.name in rules]
        self.edges = [i for i in rules if isinstance(vjp, Joint) or vjp[i] is not None]
        self.params = [p.name for p in signature if p.name not in rules]
        self.ordered = [p.name for p in signature]
        self.defaults = {p.name: p.default for p in signature if p.default is not inspect.Parameter.empty}
        self.keyword_only = {p.name for p in signature if p.kind is inspect.Parameter.KEYWORD_ONLY}
        unknown = set(rules) - set(self.inputs)
        if unknown:
            raise TypeError(f"{name}: vjp names {sorted(unknown)}, which forward does not take")
        self.function: Any = None
        self.node_class: type[Node] | None = None

    @classmethod
    def of_composite(
        cls, function: Any, *, variants: str | None = None, out: bool | None = None, random: str | None = None
    ) -> Op:
        """What is known of a function made of other operations."""
        op = cls.__new__(cls)
        op.name, op.kind, op.forward, op.function = function.__name__, "composite", function, function
        op.vjp, op.jvp, op.batch, op.node_class = {}, None, None, None
        op.variants = {op.name: read_variants(op.name, op.kind, variants, out)}
        op.autocast, op.random, op.piecewise_constant, op.same_in_numpy = None, random, False, False
        return op

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
            return {"*": list(inspect.signature(self.vjp.rule).parameters)[3:]}
        return {i: list(inspect.signature(rule).parameters)[2:] for i, rule in self.vjp.items() if rule is not None}

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class Joint:
    """One rule for several inputs that share work: `rule(xp, g, needs, ...)` returns a gradient (or None) for each.

    `needs` holds a bool for each input, in order.
    """

    def __init__(self, inputs: tuple[str, ...], rule: Callable[..., Any]) -> None:
        self.inputs = inputs
        self.rule = rule


#: where a program finds `sin`: undertow.sin, Tensor.sin, Tensor.sin_, undertow.sin_, undertow._foreach_sin
VARIANTS = frozenset(["function", "method", "in_place", "in_place_function", "foreach"])
#: an operation of such a name is found in that namespace alone, unless it says otherwise
NAMESPACES = ("fft_", "linalg_", "sparse_", "special_")


def read_variants(name: str, kind: str, variants: str | None, out: bool | None) -> frozenset[str]:
    """A declaration's `variants=` and `out=` as a set, "out" being one of them; or what is usual for such a name."""
    if variants is None:
        variants = "" if name.startswith(("_", *NAMESPACES)) else "function"
    words = set(variants.split())
    if not words <= VARIANTS:
        raise TypeError(f"{name}: variants are words among {sorted(VARIANTS)}, not {sorted(words - VARIANTS)}")
    if out is None:
        in_namespace = name.startswith(NAMESPACES) and not name.startswith("sparse_")
        out = kind in ("primitive", "nondifferentiable") or in_namespace
    return frozenset(words | {"out"} if out else words)


def names_with(variant: str) -> list[str]:
    """The names, of operations and their aliases, that have a variant."""
    return [name for name, op in REGISTRY.items() if variant in op.variants[name]]


def camel_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.strip("_").split("_"))
