"""Formulas as one kernel: `g * xp.conj(xp.cos(input))` is one launch.

Every part must be arithmetic or an elementwise function that kernels know (`code_of_function`). What is no such formula
has no joined kernel; nor has one part alone, which is a kernel anyway. The trees are those of ops/declare/formula.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from undertow.backend.cuda import activations, elementwise
from undertow.backend.cuda.elementwise import Formula
from undertow.backend.cuda.formulas import FORMULAS
from undertow.backend.interface import Namespace

Tree = tuple[Any, ...]

#: the most operands of a kernel, and what they are called in its formula
LETTERS = "abcdefgh"


class NotJoinedError(Exception):
    """A formula has a part that kernels do not have."""


class Joining:
    """From a formula to the code of a kernel: its operands, in their order, and how many parts there are."""

    def __init__(self) -> None:
        self.operands: list[str] = []
        self.parts = 0

    def code(self, tree: Tree) -> str:
        match tree:
            case ("argument", name):
                return self.operand(name)
            case ("constant", value) if type(value) in (int, float):
                return f"T({value!r})"
            case ("conj", of):
                return self.code(of)  # of real numbers, for which alone there are joined kernels
            case ("unary", "-", operand):
                return self.part(f"-{self.code(operand)}")
            case ("binary", ("+" | "-" | "*" | "/") as symbol, left, right):
                return self.part(f"{self.code(left)} {symbol} {self.code(right)}")
            case ("call", None, ("function", name), *arguments):
                return self.function(name, [self.code(a) for a in arguments])
        raise NotJoinedError(tree)

    def part(self, code: str) -> str:
        self.parts += 1
        return f"({code})"

    def operand(self, name: str) -> str:
        if name not in self.operands:
            self.operands.append(name)
        if len(self.operands) > len(LETTERS):
            raise NotJoinedError(name)
        return LETTERS[self.operands.index(name)]

    def function(self, name: str, arguments: list[str]) -> str:
        code = code_of_function(name, len(arguments))
        if code is None:
            raise NotJoinedError(name)
        return self.part(re.sub(r"\b[a-h]\b", lambda letter: f"({arguments[LETTERS.index(letter[0])]})", code))


def code_of_function(name: str, count: int) -> str | None:
    """The formula of an array function on real numbers whose result is one; None if it has none."""
    if name in activations.IN_FORMULAS and count == 1:
        return activations.IN_FORMULAS[name]
    code = FORMULAS.get(name, {}).get("f")
    ufunc: Any = getattr(np, name, None)
    if code is None or ufunc.nin != count or name in elementwise.GIVE_BOOLS:
        return None
    return code


def joined_kernel(code: str, count: int, function: Callable[..., Any]) -> Any:
    """The kernel of a formula of real numbers; what it cannot compute, `function` does."""
    formula = Formula(count, elementwise.all_alike, lambda dtypes: code)
    return elementwise.kernel(f"joined: {code}", formula, lambda given, out: function(*given))


def joined(xp: Namespace, function: Callable[..., Any], tree: Tree, places: Mapping[str, int]) -> Tree | None:
    """The call of a kernel that computes all of a formula; None if there can be none.

    function  what the tree was read from: called where the kernel does not serve, with all the arguments
    """
    joining = Joining()
    try:
        code = joining.code(tree)
    except NotJoinedError:
        return None
    order = joining.operands
    if joining.parts < 2 or not order or set(order) != set(places):
        return None
    whole = lambda *operands: function(xp, **dict(zip(order, operands, strict=True)))
    return "call", None, ("constant", joined_kernel(code, len(order), whole)), *[("argument", places[n]) for n in order]
