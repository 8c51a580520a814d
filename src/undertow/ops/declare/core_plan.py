"""Operations with the compiled core: what it must know of a declaration to do the usual case itself.

`operation` and `pull` put C objects in the place of the generated functions (templates.py), which stay behind them for
every other case. Their plans are described by the tuples made here, which csrc/call/operation.c and
csrc/backward/pull.c read, when they are first called.

A formula becomes a tree, `("binary", "*", ("argument", 0), ("constant", 2.0))`, if it is an expression; otherwise a
call of its function. csrc/formula/expression.c evaluates trees.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu
from undertow.compiled import core
from undertow.graph import user_lines
from undertow.graph.accumulate import AccumulateGrad, leaf_edge, resolve_leaves
from undertow.graph.history import rebase_history, recorded_edge
from undertow.graph.node import Node, OutputEdge, sequence
from undertow.graph.saved import Freed, unpack_input, unpack_output
from undertow.modes import State, state_variable
from undertow.ops.declare.inline import lambda_body
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.tensor import LEAF, Extra, Tensor, counter_of, current_edge, extra_of, version_of
from undertow.tensor.extra import DEFAULT, INFERENCE, MULTIPLE_OUTPUTS, NO_GRAD
from undertow.tensor.version_counter import NO_COUNTER, VersionCounter
from undertow.tensor.views import Replay, View, attach_view, current_replay, share_inference

if TYPE_CHECKING:
    from undertow.ops.declare import Op
    from undertow.ops.declare.inplace_templates import InPlaceBuild
    from undertow.ops.declare.templates import Build

if core is not None:
    core.bind(
        Tensor=Tensor, Extra=Extra, View=View, Replay=Replay, State=State, Node=Node,
        AccumulateGrad=AccumulateGrad, OutputEdge=OutputEdge, Freed=Freed, LEAF=LEAF, NO_COUNTER=NO_COUNTER,
        extra_of=extra_of, version_of=version_of, current_replay=current_replay, DEFAULT=DEFAULT, NO_GRAD=NO_GRAD,
        INFERENCE=INFERENCE, share_inference=share_inference, attach_view=attach_view, state_variable=state_variable,
        sequence=sequence, current_edge=recorded_edge, leaf_edge=leaf_edge,
        resolve_leaves=resolve_leaves, unpack_input=unpack_input, unpack_output=unpack_output,
        internal=user_lines.INTERNAL, cpu=cpu, recorded=recorded, VersionCounter=VersionCounter, counter_of=counter_of,
        own_edge=current_edge, rebase_history=rebase_history, MULTIPLE_OUTPUTS=MULTIPLE_OUTPUTS,
    )  # fmt: skip
    user_lines.tell(core.take_sites)

Tree = tuple[Any, ...]

#: the most arguments, tensors, and outputs kept by the node, of an operation that the core deals with
MOST_ARGUMENTS, MOST_EDGES, MOST_SAVED_OUTPUTS = 12, 8, 4


# ---- operations


def operation(op: Op, function: Any, build: type[Build]) -> Any:
    """The function, or a compiled object that passes for it and calls it in unusual cases."""
    if core is None or not is_usual(op):
        return function
    return core.Operation(function, lambda: describe(op, build))


def with_out(op: Op, function: Any) -> Any:
    """The same for the form of an operation that takes `out`: what it computes is described by the one without."""
    return core.Operation(function, op.function) if is_compiled(op) else function


def is_compiled(op: Op) -> bool:
    return core is not None and type(op.function) is core.Operation


def is_usual(op: Op) -> bool:
    return op.moves_to is None and len(op.ordered) <= MOST_ARGUMENTS


def describe(op: Op, build: type[Build]) -> Tree | None:
    """The plan of an operation: its arguments, and its one or two forms."""
    main = build(op, ())
    if len(main.all_edges) > MOST_EDGES or len(main.saved_outputs) > MOST_SAVED_OUTPUTS:
        return None
    inputs = tuple([0 if n not in op.inputs else 2 if n in op.optional else 1 for n in op.ordered])
    number = None if op.number is None else form(build(op, (op.number,)), number_node_class(op))
    return (
        tuple([sys.intern(n) for n in op.ordered]),
        tuple([(op.defaults[n],) if n in op.defaults else () for n in op.ordered]),
        inputs,
        sum([n not in op.keyword_only for n in op.ordered]),
        -1 if op.number is None else op.ordered.index(op.number),
        int(op.kind == "view"),
        int(op.batch is ELEMENTWISE),
        form(main, op.node_class),
        number,
    )


def number_node_class(op: Op) -> Any:
    return op.function.__globals__[f"{op.name}_number"].__globals__.get("Backward")


def form(build: Build, node_class: Any) -> Tree:
    """One form: how the result is computed and recorded, with arguments called by their numbers."""
    op = build.op
    places = {name: k for k, name in enumerate(op.ordered)}
    required = [i for i in build.inputs if i not in op.optional]
    taking_part = [i for i in required if i in (build.edges or build.inputs)] if op.promote else []
    first, any_float = -1, op.promote == "float" and not build.numbers
    if op.promote and build.edges and (build.numbers or any_float):
        first = places[build.edges[0]]
    return (
        tree(op.forward, range(len(op.ordered)), cpu, op.keyword_only),
        node_class if build.edges else None,
        sum([1 << places[i] for i in taking_part]),
        first,
        int(any_float),
        int(op.check_output),
        tuple([-1 if i in build.numbers else places[i] for i in build.all_edges]) if build.edges else (),
        tuple([(places[n], f"saved_{n}", f"version_{n}", users(build, n)) for n in build.saved_inputs]),
        tuple([value(build, n, places) for n in build.values]),
        tuple([(build.output_nr(n), f"saved_{n}", users(build, n)) for n in build.saved_outputs]),
        int(op.outputs is not None),
        sum([1 << list(op.outputs or ()).index(n) for n in op.nondifferentiable]),
    )


def users(build: Build, name: str) -> int:
    """The edges, as bits, whose rules need a value."""
    return sum([1 << build.all_edges.index(i) for i in dict.fromkeys(build.users[name])])


ITSELF, SHAPE, DTYPE, FIXED, BY_COLUMNS = range(5)


def value(build: Build, name: str, places: Mapping[str, int]) -> Tree:
    """A value that the node keeps: (what of an argument, its number, the value if it is always the same)."""
    if name in build.op.params or name in build.numbers:
        return ITSELF, places[name], None
    kinds = {"_shape": (SHAPE, ()), "_dtype": (DTYPE, None), "_by_columns": (BY_COLUMNS, False)}
    kind, of_a_number = next(found for suffix, found in kinds.items() if name.endswith(suffix))
    stem = name.removesuffix(next(suffix for suffix in kinds if name.endswith(suffix)))
    return (FIXED, 0, of_a_number) if stem in build.numbers else (kind, places[stem], None)


# ---- functions that call operations


def shortcut(*targets: Any, name: str | None = None) -> Any:
    """Decorate a function that sorts out its arguments and calls operations, and whose usual case is in the core.

    targets  what csrc/call/shortcuts.c calls for it
    name     what it is called there, if not by its own name
    """

    def join(function: Any) -> Any:
        if core is None:
            return function
        user_lines.register_code(inspect.unwrap(function).__code__)
        user_lines.register_code(function.__code__)
        return core.Shortcut(name or function.__name__, function, targets)

    return join


# ---- operations in place


def in_place(op: Op, function: Any, describe: Any) -> Any:
    """The in-place form of an operation, or a compiled object that passes for it."""
    return core.InPlace(function, describe) if is_compiled(op) and op.ordered[0] == "input" else function


def describe_in_place(shown: str, forms: Sequence[InPlaceBuild], lent: Mapping[str, Any]) -> Tree | None:
    """The plan of an operation in place: the operation's, and how each form writes its result.

    shown  the name that errors tell
    lent   what the generated functions call, too
    """
    op, (main, *numbers) = forms[0].op, forms
    described = describe(op, type(main).__base__)  # type: ignore[arg-type]
    if described is None:
        return None
    *arguments, form, number_form = described
    plain = alike(op, form, main), None if number_form is None else alike(op, number_form, numbers[0])
    changes = writing(main), writing(numbers[0]) if numbers else None
    return (*arguments, *plain), shown, lent["check_history"], lent["times_alpha"], *changes


def alike(op: Op, form: Tree, build: Build) -> Tree:
    """A form whose tensors must all have the same dtype, if promotion would make it one."""
    forward, node, _, *rest = form
    return forward, node, sum([1 << op.ordered.index(i) for i in build.inputs]) if op.promote else 0, *rest


def writing(build: InPlaceBuild) -> Tree:
    """How a form writes: (the ufunc that does or None, its further arguments, the number of the argument `alpha`)."""
    if not build.is_direct():
        return None, (), -1
    name, further = build.ufunc  # type: ignore[misc]
    return getattr(cpu, name), further, build.op.ordered.index("alpha") if build.op.params else -1


# ---- nodes


def pull(build: Build, function: Any, node_class: Any) -> Any:
    """A node's method `pull`, compiled; `node_class` is a function that gives the class."""
    if core is None:
        return function
    return core.Pull(function, lambda: describe_pull(build, node_class()))


def describe_pull(build: Build, node_class: Any) -> Tree | None:
    inputs = [(n, f"saved_{n}", f"version_{n}", -1) for n in build.saved_inputs]
    outputs = [(n, f"saved_{n}", None, build.output_nr(n)) for n in build.saved_outputs]
    kept = (*inputs, *outputs)
    names = ["g", *[k[0] for k in kept], *build.values]
    if len(kept) > MOST_EDGES or len(names) + 1 > 2 * MOST_EDGES or len(build.all_edges) > MOST_EDGES:
        return None
    several = build.op.outputs is not None
    only = build.single_gradient()
    rules = rules_of(build, names, cpu)
    # in recorded passes Python deals with several outputs
    recorded_rules = rules if several else rules_of(build, names, recorded)
    return node_class, kept, len(build.values), *rules, *recorded_rules, int(several), -1 if only is None else only


def rules_of(build: Build, names: Sequence[str], xp: Any) -> tuple[Tree, Tree | None]:
    """The rules of a node, computed with `xp`: that of each edge, and the one for all of them, if it is one."""
    op = build.op
    places = {name: k for k, name in enumerate(names)}
    wanted = op.rule_names()
    arguments = {i: [places[n] for n in of_rule] for i, of_rule in wanted.items() if i not in build.numbers}
    if "*" in wanted:
        needs = len(names)
        joint = tree(op.vjp.rule, [0, needs, *arguments["*"]], xp)  # type: ignore[union-attr]
        return (None,) * len(build.all_edges), joint
    rules: Mapping[str, Any] = op.vjp  # type: ignore[assignment]
    trees = [None if i in build.numbers else tree(rules[i], [0, *arguments[i]], xp) for i in build.all_edges]
    return tuple(trees), None


# ---- formulas


def tree(function: Any, arguments: Sequence[int], xp: Any = cpu, by_name: Collection[str] = ()) -> Tree:
    """A formula `function(xp, *arguments)`, with its arguments by their numbers: a lambda's, or the call of a function.

    by_name  the parameters that must be given by name
    """
    namespace, *parameters = inspect.signature(function).parameters
    places = dict(zip(parameters, arguments, strict=False))
    body = lambda_body(function)
    if body is not None:
        try:
            return Translation(function, namespace, places, xp).of(body)
        except (AttributeError, NotImplementedError):
            pass
    named = tuple([sys.intern(n) for n in places if n in by_name])
    values = [("argument", places[n]) for n in (*[n for n in places if n not in by_name], *named)]
    return ("call", named or None, ("constant", function), ("constant", xp), *values)


SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.MatMult: "@", ast.FloorDiv: "//",
    ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Gt: ">", ast.GtE: ">=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip

#: functions that are operators
ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/"}

#: functions of the namespace that may be replaced while the program runs (backend/sparse/coo.py)
CHANGING = {"asarray"}


class Translation:
    """From the syntax tree of a formula to the trees of the compiled core."""

    def __init__(self, function: Any, namespace: str, places: Mapping[str, int], xp: Any) -> None:
        self.scope = {**vars(builtins), **function.__globals__}
        self.namespace, self.xp = namespace, xp  # what the formula calls its namespace, and that
        self.places = places

    def of(self, node: ast.expr) -> Tree:
        match node:
            case ast.Constant(value):
                return "constant", value
            case ast.Name(name):
                return self.name(name)
            case ast.Attribute(ast.Name(self.namespace), name) if name not in CHANGING:
                return "constant", getattr(self.xp, name)
            case ast.Attribute(value, name):
                return "attribute", sys.intern(name), self.of(value)
            case ast.Call(ast.Attribute(ast.Name(self.namespace), "conj"), [argument], []):
                return "conj", self.of(argument), ("constant", self.xp.conj)
            case ast.Call(ast.Attribute(ast.Name(self.namespace), name), [left, right], []) if name in ARITHMETIC:
                return "binary", ARITHMETIC[name], self.of(left), self.of(right)
            case ast.Call(function, arguments, keywords):
                return self.call(function, arguments, keywords)
            case ast.BinOp(left, symbol, right):
                return "binary", SYMBOLS[type(symbol)], self.of(left), self.of(right)
            case ast.UnaryOp(ast.Not(), operand):
                return "not", self.of(operand)
            case ast.UnaryOp(symbol, operand):
                return "unary", SYMBOLS[type(symbol)], self.of(operand)
            case ast.Compare(left, [symbol], [right]):
                return "compare", SYMBOLS[type(symbol)], self.of(left), self.of(right)
            case ast.BoolOp(symbol, values):
                return self.chain("and" if isinstance(symbol, ast.And) else "or", values)
            case ast.IfExp(test, body, orelse):
                return "condition", self.of(test), self.of(body), self.of(orelse)
            case ast.Tuple(items) if not any([isinstance(item, ast.Starred) for item in items]):
                return "tuple", *[self.of(item) for item in items]
            case ast.Subscript(value, index) if not isinstance(index, ast.Slice | ast.Tuple):
                return "item", self.of(value), self.of(index)
        raise NotImplementedError(type(node).__name__)

    def name(self, name: str) -> Tree:
        if name == self.namespace:
            return "constant", self.xp
        if name in self.places:
            return "argument", self.places[name]
        return "constant", self.scope[name]

    def call(self, function: ast.expr, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> Tree:
        if len(arguments) + len(keywords) > 15 or any([isinstance(a, ast.Starred) for a in arguments]):
            raise NotImplementedError("a call with unknown arguments")
        names = tuple([sys.intern(k.arg) for k in keywords if k.arg is not None])
        if len(names) < len(keywords):
            raise NotImplementedError("a call with unknown keywords")
        values = [*arguments, *[k.value for k in keywords]]
        return "call", names or None, self.of(function), *[self.of(v) for v in values]

    def chain(self, kind: str, values: Sequence[ast.expr]) -> Tree:
        first, *rest = values
        return self.of(first) if not rest else (kind, self.of(first), self.chain(kind, rest))
