"""The one reader of declarations: what a forward or rule takes, and the formula it is, as a small tree.

    read(lambda xp, g, input: g * xp.conj(xp.cos(input)))
        ("binary", "*", ("argument", "g"), ("conj", ("call", None, ("function", "cos"), ("argument", "input"))))

A tree is a tuple that begins with its kind:

    ("argument", name)                   what the function is given under a name
    ("constant", value)                  a number, or something of the module that the formula stands in
    ("namespace",)  ("function", name)   `xp` itself, handed on to another function; `xp.name`
    ("call", names, function, *values)   the last values are given by the names; None if there are none
    ("conj", of)                         `xp.conj(of)`: nothing to do for real numbers, which most are
    ("unary", symbol, of)  ("binary", symbol, left, right)  ("compare", symbol, left, right)
    ("not", of)  ("and", left, right)  ("or", left, right)  ("condition", test, then, otherwise)
    ("attribute", name, of)  ("item", of, place)  ("tuple", *items)

The plain path (apply.py, node.py) calls the function itself. Everything else consumes the tree: the compiled core's
evaluator gets it `bound` to a namespace, kernels of a GPU are made of it (backend/cuda/joined.py), and `ufunc_of` says
which array function an operation is. A tree says `cos` without saying whose: a namespace is chosen by whoever evaluates
it.

A function that is no single expression, or whose source is not there, has no tree, and is called.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from undertow.backend.interface import Namespace
from undertow.ops.declare.plans import Tree

# ---- what a function takes


class Parameters(NamedTuple):
    """The arguments of a forward or rule, without `xp`."""

    names: list[str]
    defaults: dict[str, Any]
    keyword_only: list[str]


def parameters(function: Callable[..., Any]) -> Parameters:
    """What a forward or rule takes behind `xp`."""
    named = getattr(function, "takes", None)
    if named is not None:
        return Parameters(list(named), {}, [])
    code = getattr(function, "__code__", None)
    if code is None:
        return _by_inspection(function)
    # inspect.signature takes twenty times as long, and there are thousands of rules
    positional, named_count = code.co_argcount, code.co_kwonlyargcount
    names = list(code.co_varnames[1 : positional + named_count])
    given = function.__defaults__ or ()
    defaults = dict(zip(code.co_varnames[positional - len(given) : positional], given, strict=True))
    keyword_only = names[positional - 1 :]
    by_name = function.__kwdefaults__ or {}
    return Parameters(names, {**defaults, **by_name}, keyword_only)


def _by_inspection(function: Callable[..., Any]) -> Parameters:
    _, *found = inspect.signature(function).parameters.values()
    return Parameters(
        [p.name for p in found],
        {p.name: p.default for p in found if p.default is not p.empty},
        [p.name for p in found if p.kind is p.KEYWORD_ONLY],
    )


def by_position(function: Callable[..., Any], taken: Parameters) -> Callable[..., Any]:
    """The same forward, taking also those arguments by position that programs give by name only."""
    if not taken.keyword_only:
        return function
    code = function.__code__.replace(co_argcount=1 + len(taken.names), co_kwonlyargcount=0)
    required = [k for k, name in enumerate(taken.names) if name not in taken.defaults]
    defaults = tuple([taken.defaults[name] for name in taken.names[required[-1] + 1 :]])
    made = FunctionType(code, function.__globals__, function.__name__, defaults, function.__closure__)
    made.__annotations__ = function.__annotations__
    return made


def taking(names: Sequence[str], formula: Tree | None = None) -> Callable[[Any], Any]:
    """Decorate a function of `xp, *values` whose values have these names, and which computes that formula of them."""

    def name(function: Any) -> Any:
        function.takes, function.formula = tuple(names), formula
        return function

    return name


# ---- reading


@cache
def read(function: Callable[..., Any]) -> Tree | None:
    """The formula that a forward or rule is; None if it must be called."""
    given: Tree | None = getattr(function, "formula", None)
    if given is not None:
        return given
    body = expression_of(function)
    if body is None:
        return None
    try:
        return Reader(function).read(body)
    except NotReadableError:
        return None


class NotReadableError(Exception):
    """The expression has a part that trees have no node for."""


SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.MatMult: "@", ast.FloorDiv: "//",
    ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Gt: ">", ast.GtE: ">=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip

#: array functions that are operators
ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/"}


class Reader:
    """From the syntax tree of an expression to a formula's."""

    def __init__(self, function: Callable[..., Any]) -> None:
        code = function.__code__
        self.namespace = code.co_varnames[0]
        self.arguments = set(code.co_varnames[1:])
        self.scope = {**vars(builtins), **function.__globals__}

    def read(self, node: ast.expr) -> Tree:
        match node:
            case ast.Constant(value):
                return "constant", value
            case ast.Name(name):
                return self.name(name)
            case ast.Attribute(ast.Name(self.namespace), name):
                return "function", name
            case ast.Attribute(of, name):
                return "attribute", sys.intern(name), self.read(of)
            case ast.Call(ast.Attribute(ast.Name(self.namespace), "conj"), [of], []):
                return "conj", self.read(of)
            case ast.Call(ast.Attribute(ast.Name(self.namespace), name), [left, right], []) if name in ARITHMETIC:
                return "binary", ARITHMETIC[name], self.read(left), self.read(right)
            case ast.Call(function, arguments, keywords) if all([k.arg for k in keywords]):  # no **
                names = tuple([sys.intern(k.arg) for k in keywords])  # type: ignore[arg-type]
                return "call", names or None, *self.all([function, *arguments, *[k.value for k in keywords]])
            case ast.BinOp(left, symbol, right):
                return "binary", SYMBOLS[type(symbol)], self.read(left), self.read(right)
            case ast.UnaryOp(ast.Not(), operand):
                return "not", self.read(operand)
            case ast.UnaryOp(symbol, operand):
                return "unary", SYMBOLS[type(symbol)], self.read(operand)
            case ast.Compare(left, [symbol], [right]):
                return "compare", SYMBOLS[type(symbol)], self.read(left), self.read(right)
            case ast.BoolOp(symbol, operands):
                word = "and" if isinstance(symbol, ast.And) else "or"
                *first, last = self.all(operands)
                return reduce(lambda right, left: (word, left, right), reversed(first), last)
            case ast.IfExp(test, then, otherwise):
                return "condition", *self.all([test, then, otherwise])
            case ast.Tuple(items):
                return "tuple", *self.all(items)
            case ast.Subscript(of, index) if not isinstance(index, ast.Slice | ast.Tuple):
                return "item", self.read(of), self.read(index)
        raise NotReadableError(type(node).__name__)  # a starred argument, a comprehension, a slice, ...

    def all(self, nodes: Sequence[ast.expr]) -> list[Tree]:
        return [self.read(node) for node in nodes]

    def name(self, name: str) -> Tree:
        if name == self.namespace:
            return ("namespace",)
        if name in self.arguments:
            return "argument", name
        if name not in self.scope:
            raise NotReadableError(name)  # calling it will say so
        return "constant", self.scope[name]


def bound(tree: Tree, places: Mapping[str, int], xp: Namespace) -> Tree:
    """The tree for one namespace, with arguments by number, as csrc/formula/expression.c evaluates it."""
    match tree:
        case ("argument", name):
            return "argument", places[name]
        case ("constant", _):
            return tree
        case ("namespace",):
            return "constant", xp
        case ("function", name):
            return (
                ("attribute", sys.intern(name), ("constant", xp))
                if name in CHANGING
                else ("constant", getattr(xp, name))
            )
        case ("conj", of):
            return "conj", bound(of, places, xp), ("constant", xp.conj)
        case ("call", _, _, *values) if len(values) > MOST_CALLED_WITH:
            raise NotImplementedError("a call with so many arguments")
    words = 2 if tree[0] in ("call", "unary", "binary", "compare", "attribute") else 1
    return (*tree[:words], *[bound(part, places, xp) for part in tree[words:]])


#: the most arguments of a call that the core makes
MOST_CALLED_WITH = 15
#: functions of a namespace that may be replaced while the program runs (backend/sparse/coo.py)
CHANGING = frozenset({"asarray"})


def ufunc_of(function: Callable[..., Any]) -> str | None:
    """The array function that a forward is, if it does nothing but hand its arguments to it in their order."""
    in_order = [("argument", name) for name in parameters(function).names]
    match read(function):
        case ("call", None, ("function", name), *arguments) if arguments == in_order:
            return name
        case ("conj", *arguments) if arguments == in_order:
            return "conjugate"
        case ("unary" | "binary", symbol, *arguments) if arguments == in_order:
            return UFUNCS.get((symbol, len(arguments)))
    return None


#: operators, with the number of their operands, as array functions
UFUNCS = {("+", 2): "add", ("-", 2): "subtract", ("*", 2): "multiply", ("/", 2): "divide", ("-", 1): "negative"}


# ---- the source of a lambda


def expression_of(function: Callable[..., Any]) -> ast.expr | None:
    """The expression that a lambda is, as a syntax tree; None if it has none, or its source cannot be had.

    A code object knows where in its file its instructions come from. What is found there counts only if compiling it
    gives the same code again: the file may have changed, or not be there.
    """
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or code.co_name != "<lambda>" or code.co_freevars:
        return None
    text = _source_of(code)
    if text is None:
        return None
    try:
        tree = _parsed(f"lambda {', '.join(code.co_varnames)}: ({text})")
    except SyntaxError:
        return None
    return tree.body.body if _is_same_code(tree, code) else None  # type: ignore[attr-defined]


def _parsed(text: str) -> ast.Expression:
    """The syntax tree. Before Python 3.13 two threads that make one at a time can disturb each other: SystemError."""
    for _ in range(100):
        try:
            return ast.parse(text, mode="eval")
        except SystemError:
            continue
    raise SyntaxError(text)


def _source_of(code: CodeType) -> str | None:
    """The part of the source file that the instructions of the code were compiled from."""
    # what opens the function has no place of its own, and says so by an empty one
    places = [p for p in code.co_positions() if None not in p and (p[0], p[2]) != (p[1], p[3])]
    if not places:
        return None
    start = min([(line, column) for line, _, column, _ in places])
    end = max([(line, column) for _, line, _, column in places])
    lines = [linecache.getline(code.co_filename, n) for n in range(start[0], end[0] + 1)]  # type: ignore[arg-type,operator]
    if not all(lines):
        return None
    lines[-1] = lines[-1][: end[1]]
    lines[0] = lines[0][start[1] :]
    return "".join(lines)


def _is_same_code(tree: ast.Expression, code: CodeType) -> bool:
    again = next(c for c in compile(tree, code.co_filename, "eval").co_consts if isinstance(c, CodeType))
    parts: list[Callable[[CodeType], Any]] = [
        lambda c: c.co_code,
        lambda c: c.co_names,
        lambda c: c.co_varnames,
        lambda c: [(type(v), v) for v in c.co_consts],
    ]
    return all([part(again) == part(code) for part in parts])
