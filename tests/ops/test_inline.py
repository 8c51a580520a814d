"""Formulas in generated code: the text of a declaration's lambda, or a call where the text cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.ops import REGISTRY
from undertow.ops.declare import core_plan, inline, templates

OFFSET = 3.0


def outer() -> Any:
    hidden = 2.0
    return lambda xp, g: g * hidden


def two(xp: Any, g: Any) -> Any:
    return g * 2


NAMES = {"xp": "_xp", "g": "g", "input": "input_array"}


def test_arguments_are_renamed_and_globals_lent() -> None:
    scope: dict[str, Any] = {}
    text = inline.formula(lambda xp, g, input: g * xp.cos(input) + OFFSET, NAMES, scope, ())
    assert text == "g * _xp.cos(input_array) + OFFSET"
    assert scope == {"OFFSET": 3.0}


def test_a_formula_over_several_lines_and_with_a_condition() -> None:
    # fmt: off
    rule = lambda xp, g, input: (g if input is None
                                 else xp.multiply(g,
                                                  input))
    # fmt: on
    text = inline.formula(rule, NAMES, {}, ())
    assert text == "g if input_array is None else _xp.multiply(g, input_array)"


def test_the_conjugate_of_a_real_array_is_not_asked_for() -> None:
    text = inline.formula(lambda xp, g, x: g * xp.conj(x), {n: n for n in ("xp", "g", "x")}, {}, (), ("x",))
    assert text == "g * (x if x.dtype is FLOAT32 or x.dtype is FLOAT64 else xp.conj(x))"


@pytest.mark.parametrize(
    "function",
    [two, outer(), lambda xp, g: [x for x in g], lambda xp, g, n=1: g * n, lambda xp, g: (lambda: g)(), np.add],
    ids=["def", "closure", "comprehension", "default", "nested", "no Python function"],
)
def test_what_is_not_a_plain_formula_is_called(function: Callable[..., Any]) -> None:
    assert inline.formula(function, {"xp": "xp", "g": "g"}, {}, ()) is None


def test_a_name_that_means_something_else_in_the_generated_code_is_not_inlined() -> None:
    rule = lambda xp, g: g * OFFSET
    assert inline.formula(rule, {"xp": "xp", "g": "g"}, {"OFFSET": 4.0}, ()) is None
    assert inline.formula(rule, {"xp": "xp", "g": "g"}, {}, ("OFFSET",)) is None
    assert inline.formula(rule, {"xp": "xp", "g": "g"}, {"OFFSET": OFFSET}, ()) == "g * OFFSET"


def test_without_the_source_the_function_is_called() -> None:
    rule = eval("lambda xp, g: g * 2")
    assert inline.formula(rule, {"xp": "xp", "g": "g"}, {}, ()) is None


def test_a_source_that_has_changed_since_is_noticed(tmp_path: Any) -> None:
    path = tmp_path / "rules.py"
    path.write_text("rule = lambda xp, g: g * 2\n")
    scope: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    path.write_text("rule = lambda xp, g: g * 3\n")
    assert inline.formula(scope["rule"], {"xp": "xp", "g": "g"}, {}, ()) is None


@pytest.mark.parametrize("name", ["mul", "true_divide", "tanh", "sin", "exp"])
def test_called_or_written_out_the_result_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(function: Any) -> list[Any]:
        leaves = [ut.tensor([0.5, 1.5, -2.0], dtype=ut.complex128 if z else ut.float64) for z in (False, True)]
        found = []
        for leaf in leaves:
            leaf.requires_grad_()
            operands = (leaf, leaf * 2) if len(REGISTRY[name].inputs) == 2 else (leaf,)
            out = function(*operands)
            (grad,) = ut.autograd.grad(out, leaf, ut.ones_like(out))
            found += [out.tolist(), grad.tolist()]
        return found

    written_out = run(REGISTRY[name].function)
    monkeypatch.setattr(templates, "formula", lambda *args: None)
    monkeypatch.setattr(core_plan, "core", None)
    op = REGISTRY[name]
    kept = op.function, op.node_class
    try:
        templates.build(op)
        called = run(op.function)
        assert "forward(_xp" in op.function.source and "rule_input(" in op.node_class.pull.source
    finally:
        op.function, op.node_class = kept
    assert called == written_out
