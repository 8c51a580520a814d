"""The one reader of declarations: what a forward or rule takes, and the formula it is, as a small tree.

    read(lambda xp, g, input: g * xp.conj(xp.cos(input)))
        Operator("*", (Argument("g"), Conjugate(Call(ArrayFunction("cos"), (Argument("input"),)))))

The plain path (apply.py, node.py) calls the function itself. Everything else consumes the tree: the compiled core's
evaluator gets it bound to a namespace (core_plan.py), and `ufunc_of` says which array function an operation is. A tree
names array functions (`xp.cos`) without saying whose: a namespace is chosen by whoever evaluates it.

A function that is no single expression, or whose source is not there, has no tree, and is called.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
from collections.abc import Callable, Sequence
from functools import cache
from types import CodeType
from typing import Any, NamedTuple

# ---- the tree


class Argument(NamedTuple):
    """What the function is given under a name."""

    name: str


class Constant(NamedTuple):
    """A value that is always the same: a number, or something of the module that the formula stands in."""

    value: Any


class NamespaceItself(NamedTuple):
    """`xp` itself, handed on to another function."""


class ArrayFunction(NamedTuple):
    """`xp.name`."""

    name: str


class Call(NamedTuple):
    function: Formula
    arguments: tuple[Formula, ...]
    keywords: tuple[tuple[str, Formula], ...] = ()


class Conjugate(NamedTuple):
    """`xp.conj(of)`: nothing to do for real numbers, which most are."""

    of: Formula


class Operator(NamedTuple):
    """An arithmetic operator of one operand or two."""

    symbol: str
    operands: tuple[Formula, ...]


class Comparison(NamedTuple):
    symbol: str
    left: Formula
    right: Formula


class Logic(NamedTuple):
    """`not`, `and`, `or`, of Python's truth."""

    word: str
    operands: tuple[Formula, ...]


class Condition(NamedTuple):
    test: Formula
    then: Formula
    otherwise: Formula


class Attribute(NamedTuple):
    """`of.name`: of an array `shape`, `dtype`, `ndim`, ..."""

    name: str
    of: Formula


class Item(NamedTuple):
    of: Formula
    place: Formula


class Several(NamedTuple):
    """A tuple."""

    items: tuple[Formula, ...]


Formula = (
    Argument | Constant | NamespaceItself | ArrayFunction | Call | Conjugate | Operator | Comparison | Logic | Condition
    | Attribute | Item | Several
)  # fmt: skip


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


def taking(names: Sequence[str], formula: Formula | None = None) -> Callable[[Any], Any]:
    """Decorate a function of `xp, *values` whose values have these names, and which computes that formula of them."""

    def name(function: Any) -> Any:
        function.takes, function.formula = tuple(names), formula
        return function

    return name


# ---- reading


@cache
def read(function: Callable[..., Any]) -> Formula | None:
    """The formula that a forward or rule is; None if it must be called."""
    given: Formula | None = getattr(function, "formula", None)
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
    """From the syntax tree of an expression to a Formula."""

    def __init__(self, function: Callable[..., Any]) -> None:
        code = function.__code__
        self.namespace = code.co_varnames[0]
        self.arguments = set(code.co_varnames[1:])
        self.scope = {**vars(builtins), **function.__globals__}

    def read(self, node: ast.expr) -> Formula:
        match node:
            case ast.Constant(value):
                return Constant(value)
            case ast.Name(name):
                return self.name(name)
            case ast.Attribute(ast.Name(self.namespace), name):
                return ArrayFunction(name)
            case ast.Attribute(of, name):
                return Attribute(name, self.read(of))
            case ast.Call(ast.Attribute(ast.Name(self.namespace), "conj"), [of], []):
                return Conjugate(self.read(of))
            case ast.Call(ast.Attribute(ast.Name(self.namespace), name), [left, right], []) if name in ARITHMETIC:
                return Operator(ARITHMETIC[name], (self.read(left), self.read(right)))
            case ast.Call(function, arguments, keywords):
                return Call(self.read(function), self.all(arguments), tuple([self.keyword(k) for k in keywords]))
            case ast.BinOp(left, symbol, right):
                return Operator(SYMBOLS[type(symbol)], (self.read(left), self.read(right)))
            case ast.UnaryOp(ast.Not(), operand):
                return Logic("not", (self.read(operand),))
            case ast.UnaryOp(symbol, operand):
                return Operator(SYMBOLS[type(symbol)], (self.read(operand),))
            case ast.Compare(left, [symbol], [right]):
                return Comparison(SYMBOLS[type(symbol)], self.read(left), self.read(right))
            case ast.BoolOp(symbol, operands):
                return Logic("and" if isinstance(symbol, ast.And) else "or", self.all(operands))
            case ast.IfExp(test, then, otherwise):
                return Condition(self.read(test), self.read(then), self.read(otherwise))
            case ast.Tuple(items):
                return Several(self.all(items))
            case ast.Subscript(of, index) if not isinstance(index, ast.Slice | ast.Tuple):
                return Item(self.read(of), self.read(index))
        raise NotReadableError(type(node).__name__)  # a starred argument, a comprehension, a slice, ...

    def all(self, nodes: Sequence[ast.expr]) -> tuple[Formula, ...]:
        return tuple([self.read(node) for node in nodes])

    def keyword(self, node: ast.keyword) -> tuple[str, Formula]:
        if node.arg is None:
            raise NotReadableError("**")
        return node.arg, self.read(node.value)

    def name(self, name: str) -> Formula:
        if name == self.namespace:
            return NamespaceItself()
        if name in self.arguments:
            return Argument(name)
        if name not in self.scope:
            raise NotReadableError(name)  # calling it will say so
        return Constant(self.scope[name])


def ufunc_of(function: Callable[..., Any]) -> str | None:
    """The array function that a forward is, if it does nothing but hand its arguments to it in their order."""
    names = parameters(function).names
    in_order = tuple([Argument(name) for name in names])
    match read(function):
        case Call(ArrayFunction(name), arguments, ()) if arguments == in_order:
            return name
        case Conjugate(of) if (of,) == in_order:
            return "conjugate"
        case Operator(symbol, operands) if operands == in_order:
            return UFUNCS.get((symbol, len(operands)))
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
