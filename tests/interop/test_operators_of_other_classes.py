"""Operands of other classes that have operators of their own, as Python asks for them when the left one gives up."""

from __future__ import annotations

import operator
from typing import Any

import pytest

import undertow as ut

REFLECTED = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "pow": operator.pow,
    "floordiv": operator.floordiv, "mod": operator.mod, "matmul": operator.matmul, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor,
}  # fmt: skip


@pytest.mark.parametrize("name", REFLECTED)
def test_their_operators_are_asked(name: str) -> None:
    x: Any = ut.ones(2, 2, dtype=ut.int64 if name in ("and", "or", "xor") else ut.float32)
    kind = type("Operand", (), {f"__r{name}__": lambda self, other: (name, other)})
    assert REFLECTED[name](x, kind())[1] is x
    with pytest.raises(TypeError):
        REFLECTED[name](x, type("Plain", (), {})())
    with pytest.raises(TypeError):
        REFLECTED[name](x, {"a": 1})
