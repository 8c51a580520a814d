"""Formulas as one kernel, on a device whose kernels are made from formulas: `g * xp.conj(xp.cos(input))` is one launch.

Every part must be arithmetic or an elementwise function that the device knows (`xp.code_of_function`). What is no such
formula has no joined kernel; nor has one part alone, which is a kernel anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from undertow.backend.interface import Namespace
from undertow.ops.declare import formula
from undertow.ops.declare.plans import Tree

#: the most operands of a kernel, and what they are called in its formula
LETTERS = "abcdefgh"


class NotJoinedError(Exception):
    """A formula has a part that kernels do not have."""


class Joining:
    """From a formula to the code of a kernel: its operands, in their order, and how many parts there are."""

    def __init__(self, xp: Namespace) -> None:
        self.xp = xp
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
        code = self.xp.code_of_function(name, len(arguments))
        if code is None:
            raise NotJoinedError(name)
        return self.part(re.sub(r"\b[a-h]\b", lambda letter: f"({arguments[LETTERS.index(letter[0])]})", code))


def joined(function: Callable[..., Any], places: Mapping[str, int], xp: Namespace) -> Tree | None:
    """The call of a kernel that computes all of a formula; None if there can be none."""
    tree = formula.read(function)
    if tree is None or not hasattr(type(xp), "code_of_function"):
        return None
    joining = Joining(xp)
    try:
        code = joining.code(tree)
    except NotJoinedError:
        return None
    if joining.parts < 2 or not joining.operands:
        return None
    names, order = list(places), joining.operands
    if set(order) != set(names):
        return None  # the function itself is called where the kernel does not serve, and takes them all
    kernel = xp.joined_kernel(code, order, lambda *operands: function(xp, **dict(zip(order, operands, strict=True))))
    return "call", None, ("constant", kernel), *[("argument", places[name]) for name in order]
