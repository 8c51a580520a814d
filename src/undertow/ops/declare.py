"""Declaring an operation: one entry gives the function, its Node class, what it saves, and all its rules.

    sin = primitive(
        "sin",
        forward=lambda xp, input: xp.sin(input),
        vjp={"input": lambda xp, g, input: g * xp.conj(xp.cos(input))},
        jvp=ELEMENTWISE,
        batch=ELEMENTWISE,
        promote="float",
    )

`forward` takes arrays. The keys of `vjp` are its tensor inputs (value None: an input without derivative, such as an
index); the rest of its arguments are parameters. A rule names what it uses after `xp, g`, and exactly that is saved:

    an input, `out`              a tensor, released after use, saved only if a rule that names it will run
    `<input>_shape`, `<input>_dtype`, a parameter    a plain value
    `<input>_by_columns`         whether a matrix lies in memory column by column, so that its gradient can, too

Rules return the gradient in any shape that broadcasting made: the engine sums it down, and casts it.

The function and the Node's `pull` are compiled from a template when declared (see templates.py), so a call looks
nothing up.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from undertow.backend import ArrayNamespace, cpu
from undertow.graph.node import Node
from undertow.ops import templates
from undertow.ops.recorded import recorded
from undertow.ops.rules import Rule
from undertow.ops.variadic import build_variadic

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
        self.widens = widens and kind != "view"
        self.exact = exact
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


def camel_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.strip("_").split("_"))


def primitive(
    name: str, forward: Callable[..., Any], vjp: Mapping[str, Vjp] | Joint, jvp: Any, batch: Any, **options: Any
) -> Any:
    """Declare a differentiable operation and return its function.

    node       the Node's class name, if not NameBackward0
    promote    None: operands keep their dtypes; "same": PyTorch's promotion of the differentiable inputs;
               "float": that, and integers become the default float dtype
    number     the input that may be a Python number on a path of its own (`x * 2.0`)
    number_node   the Node's class name on that path, where it differs
    number_edge   whether its node still has a (None) edge for the number, as PyTorch's has for most
    optional   inputs that may be None
    outputs    names of the outputs when forward returns a tuple, or "list" when their number varies;
               rules then get `g` as a list (None where nothing flowed) - or, when only one output is
               differentiable, just that output's gradient, and never None
    nondifferentiable   those outputs that have no gradient (indices)
    check_output        the output may be of integer dtype, and then has no gradient
    moves_to            the parameter that names the namespace of the output, if it is not that of the inputs
    widens              whether bfloat16 is computed in float32 (see narrow.py); False: the forward knows about it
    exact               outputs that stay float32 where others are rounded to bfloat16: what only rules use
    """
    return register(Op(name, forward, vjp, jvp=jvp, batch=batch, **options))


def variadic(
    name: str, forward: Callable[..., Any], vjp: Callable[..., Any], jvp: Any, batch: Any, **options: Any
) -> Any:
    """Declare an operation on a list of tensors, `forward(xp, tensors, ...)`; see variadic.py for its rule."""
    return register(Op(name, forward, {"tensors": vjp}, kind="variadic", jvp=jvp, batch=batch, **options))


def view(name: str, forward: Callable[..., Any], vjp: Mapping[str, Vjp], batch: Any, **options: Any) -> Any:
    """Declare an operation whose output shows the memory of its single tensor input. Views are linear."""
    return register(Op(name, forward, vjp, kind="view", jvp=Rule.LINEAR, batch=batch, **options))


def nondifferentiable(name: str, forward: Callable[..., Any], inputs: tuple[str, ...], **options: Any) -> Any:
    """Declare an operation that has no derivative because its values are not continuous (or not numbers)."""
    return register(Op(name, forward, dict.fromkeys(inputs), kind="nondifferentiable", **options))


def composite(function: Callable[..., Any]) -> Any:
    """Register a function made of other operations: their rules are its rules."""
    op = Op.__new__(Op)
    op.name, op.kind, op.forward, op.function = function.__name__, "composite", function, function
    op.vjp, op.jvp, op.batch, op.node_class = {}, None, None, None
    function.op = op  # type: ignore[attr-defined]
    REGISTRY[op.name] = op
    return function


def register(op: Op) -> Any:
    if op.name in REGISTRY:
        raise TypeError(f"the operation {op.name!r} is declared twice")
    (build_variadic if op.kind == "variadic" else templates.build)(op)
    REGISTRY[op.name] = op
    if not hasattr(cpu, op.name):
        ArrayNamespace.define(op.name, op.forward)
        setattr(recorded, op.name, op.function)
    elif op.batch is Rule.ELEMENTWISE or op.name in SAME_IN_NUMPY:
        setattr(recorded, op.name, op.function)
    op.function.op = op
    return op.function


#: operations beyond the elementwise ones that NumPy calls by the same name with the same leading arguments;
#: the other shared names need an adapter (see `adapter`) before a rule can use them
SAME_IN_NUMPY = {"where", "matmul", "cumsum", "cumprod", "broadcast_to", "squeeze", "reshape", "flip", "roll", "tril",
                 "triu", "diagonal", "swapaxes", "moveaxis", "outer", "dot", "trace"}  # fmt: skip


def alias(name: str, function: Any) -> None:
    """Give an operation a second name; rules may use it too where NumPy has the same one."""
    REGISTRY[name] = function.op
    if hasattr(cpu, name):
        setattr(recorded, name, function)


def adapter(name: str) -> Callable[[Any], Any]:
    """Decorate a function on tensors that rules reach as `xp.name`, with the arguments NumPy's function takes."""

    def join(function: Any) -> Any:
        setattr(recorded, name, function)
        return function

    return join
