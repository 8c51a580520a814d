"""The formulas of a declaration as text, for those who look at a node or read the reference."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from functools import cache
from typing import Any


@cache
def formula(rule: Any) -> str:
    """The expression of a rule or, if it is more than one, what it is called and takes."""
    given = list(inspect.signature(rule).parameters)
    call = f"{rule.__name__}({', '.join(given)})"
    if rule.__name__ != "<lambda>":
        return call
    try:
        source = textwrap.dedent(inspect.getsource(rule)).strip().rstrip(",")
    except OSError:
        return call
    for text in (source, f"{{{source}}}", f"f({source})", f"({source}"):
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for part in ast.walk(tree):
            if isinstance(part, ast.Lambda) and [a.arg for a in part.args.args] == given:
                return ast.unparse(part.body)
    return call


@cache
def mathematics(rule: Any) -> str | None:
    """The expression of a rule without the namespace that its functions come from, and without the underscores of those
    that are private; None if it is no expression."""
    text = formula(rule)
    return None if text.startswith(f"{rule.__name__}(") else re.sub(r"\bxp(\.|, )|\b_(?=[a-z]\w*\()", "", text)
