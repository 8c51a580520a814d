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


def test_sequences_are_repeated_as_often_as_an_integer_tensor_says(L: Any) -> None:
    three: Any = L.tensor(3)
    assert [0] * three == three * [0] == [0, 0, 0]
    assert (1,) * L.tensor([2]) == (1, 1) and three * "ab" == "ababab"
    for wrong in (L.tensor(2.0), L.tensor([1, 2])):
        with pytest.raises(TypeError):
            [0] * wrong
    with pytest.raises(TypeError):
        [0] + three
    with pytest.raises(TypeError, match="Tensor"):
        L.mul(three, [0])


@pytest.mark.parametrize("name", REFLECTED)
def test_their_operators_are_asked(name: str) -> None:
    x: Any = ut.ones(2, 2, dtype=ut.int64 if name in ("and", "or", "xor") else ut.float32)
    kind = type("Operand", (), {f"__r{name}__": lambda self, other: (name, other)})
    assert REFLECTED[name](x, kind())[1] is x
    with pytest.raises(TypeError):
        REFLECTED[name](x, type("Plain", (), {})())
    with pytest.raises(TypeError):
        REFLECTED[name](x, {"a": 1})
