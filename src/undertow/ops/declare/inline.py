"""The formula of a declaration, as text: so that generated code contains it instead of calling it.

A rule is one short lambda, and calling it takes as long as a third of what it computes. Its text is read from the
source file, at the place that its code object names, and is used only if compiling it gives the same code again. Where
there is no source, or it is not a plain formula, the generated code calls the function.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Collection, Mapping
from types import CodeType
from typing import Any

#: what has scopes or values of its own, which moving the text would change
_NOT_PLAIN = (ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.NamedExpr, ast.Yield)


def formula(
    function: Any, names: Mapping[str, str], scope: dict[str, Any], taken: Collection[str], real: Collection[str] = ()
) -> str | None:
    """The body of a lambda, with its arguments called as `names` says; None if it must be called.

    scope  the globals of the generated code; what the formula needs of its own module is added
    taken  the local names of the generated code, which the formula must not use for anything else
    real   arrays whose conjugate is asked for only if they are complex
    """
    body = lambda_body(function)
    if body is None or not _lend_globals(function, body, set(names), scope, taken):
        return None
    return ast.unparse(_Renamed(names, real).visit(body))


def lambda_body(function: Any) -> ast.expr | None:
    """The expression that a lambda is, as a syntax tree; None if its source cannot be had or is not a plain formula."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or code.co_name != "<lambda>" or code.co_freevars or function.__defaults__:
        return None
    text = _text(code)
    if text is None:
        return None
    try:
        tree = ast.parse(f"lambda {', '.join(code.co_varnames)}: ({text})", mode="eval")
    except SyntaxError:
        return None
    body = tree.body.body  # type: ignore[attr-defined]
    if any([isinstance(node, _NOT_PLAIN) for node in ast.walk(body)]) or not _same_code(tree, code):
        return None
    return body


def _text(code: CodeType) -> str | None:
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


def _same_code(tree: ast.Expression, code: CodeType) -> bool:
    again = next(c for c in compile(tree, code.co_filename, "eval").co_consts if isinstance(c, CodeType))
    parts: list[Callable[[CodeType], Any]] = [
        lambda c: c.co_code,
        lambda c: c.co_names,
        lambda c: c.co_varnames,
        lambda c: [(type(v), v) for v in c.co_consts],
    ]
    return all([part(again) == part(code) for part in parts])


def _lend_globals(
    function: Any, body: ast.expr, arguments: set[str], scope: dict[str, Any], taken: Collection[str]
) -> bool:
    """Put the globals that the formula reads into `scope`; False if one of their names means something else there."""
    used = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)} - arguments
    own = function.__globals__
    if any([n in taken or (n in scope and scope[n] is not own.get(n, scope)) for n in used]):
        return False
    scope.update({n: own[n] for n in used if n in own})
    return True


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str], real: Collection[str]) -> None:
        self.names, self.real = names, real

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """`xp.conj(x)` as `x if x.dtype is FLOAT32 or x.dtype is FLOAT64 else xp.conj(x)`: a call less."""
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="xp"), attr="conj"), args=[ast.Name(id=x)], keywords=[]):
                if x in self.real:
                    text = f"{x} if {x}.dtype is FLOAT32 or {x}.dtype is FLOAT64 else xp.conj({x})"
                    return ast.parse(text, mode="eval").body
        return node
