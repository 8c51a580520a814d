"""The one reader of declarations: what functions take, and the trees of their formulas."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from undertow.backend import cpu
from undertow.ops import REGISTRY
from undertow.ops.declare import formula
from undertow.ops.declare.core_plan import bound
from undertow.ops.declare.formula import parameters, read, taking, ufunc_of

OFFSET = 3.0

g, x = ("argument", "g"), ("argument", "x")


def outer() -> Any:
    hidden = 2.0
    return lambda xp, g: g * hidden


def two(xp: Any, g: Any) -> Any:
    return g * 2


# ------------------------------------------------------------------ trees

# fmt: off
TREES: list[tuple[Callable[..., Any], Any]] = [
    (lambda xp, g, x: g * xp.conj(xp.cos(x)), ("binary", "*", g, ("conj", ("call", None, ("function", "cos"), x)))),
    (lambda xp, g, x: g if x is None else -g,
     ("condition", ("compare", "is", x, ("constant", None)), g, ("unary", "-", g))),
    (lambda xp, g: two(xp, g), ("call", None, ("constant", two), ("namespace",), g)),
    (lambda xp, g, x: xp.sum(g, axis=0), ("call", ("axis",), ("function", "sum"), g, ("constant", 0))),
    (lambda xp, g, x: (g + OFFSET, x.shape[0]),
     ("tuple", ("binary", "+", g, ("constant", 3.0)), ("item", ("attribute", "shape", x), ("constant", 0)))),
    (lambda xp, g, x: not g or (g and x), ("or", ("not", g), ("and", g, x))),
    (lambda xp, g, x: g and x and 2, ("and", g, ("and", x, ("constant", 2)))),
    (lambda xp, g, x: xp.add(g, xp.multiply(g, x)), ("binary", "+", g, ("binary", "*", g, x))),
    (lambda xp, g, x=2: (g
                         * x), ("binary", "*", g, x)),
    (lambda xp, g, *, x: g ** x, ("binary", "**", g, x)),
]
# fmt: on


@pytest.mark.parametrize(("function", "tree"), TREES)
def test_a_lambda_is_read(function: Any, tree: Any) -> None:
    assert read(function) == tree


@pytest.mark.parametrize(
    "function",
    [
        two,
        outer(),
        lambda xp, g: [x for x in g],
        lambda xp, g: (lambda: g)(),
        lambda xp, g: g[1:],
        lambda xp, g: xp.stack(*g),
        lambda xp, g: xp.sum(**g),
        lambda xp, g: f"{g}",
        np.add,
    ],
    ids=["def", "closure", "comprehension", "nested", "slice", "star", "two stars", "text", "no Python function"],
)
def test_what_is_not_a_plain_formula_has_no_tree(function: Callable[..., Any]) -> None:
    assert read(function) is None


def test_without_the_source_there_is_no_tree() -> None:
    assert read(eval("lambda xp, g: g * 2")) is None


def test_a_source_that_has_changed_since_is_noticed(tmp_path: Any) -> None:
    path = tmp_path / "rules.py"
    path.write_text("rule = lambda xp, g: g * 2\n")
    scope: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    path.write_text("rule = lambda xp, g: g * 3\n")
    assert read(scope["rule"]) is None


def test_a_name_that_nothing_has_is_left_to_the_call() -> None:
    assert read(lambda xp, g: g * no_such_name) is None  # type: ignore[name-defined]  # noqa: F821


def test_most_rules_of_the_library_are_trees() -> None:
    """The tree is what the fast paths work from: a declaration that is no formula is the exception."""
    ops = {op.name: op for op in REGISTRY.values() if op.kind == "primitive" and not hasattr(op.vjp, "rule")}
    rules = [rule for op in ops.values() for rule in op.vjp.values() if rule is not None]
    assert len([rule for rule in rules if read(rule) is not None]) > len(rules) * 2 / 3


# ------------------------------------------------------------------ what functions take


def test_parameters_of_all_kinds() -> None:
    found = parameters(lambda xp, input, dim=1, *, keepdim=False, out: None)
    assert found.names == ["input", "dim", "keepdim", "out"]
    assert found.defaults == {"dim": 1, "keepdim": False}
    assert found.keyword_only == ["keepdim", "out"]


def test_a_partial_says_what_it_still_takes() -> None:
    assert parameters(partial(lambda xp, g, n, input: g, n=2)).names == ["g", "n", "input"]


def test_names_given_to_a_function_of_any_values() -> None:
    @taking(["input", "index0", "index1"])
    def function(xp: Any, *values: Any) -> Any:
        return values

    assert parameters(function).names == ["input", "index0", "index1"]


# ------------------------------------------------------------------ what trees are for


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda xp, input: xp.exp(input), "exp"),
        (lambda xp, input, other: xp.arctan2(input, other), "arctan2"),
        (lambda xp, input, other: input * other, "multiply"),
        (lambda xp, input: -input, "negative"),
        (lambda xp, input: xp.conj(input), "conjugate"),
        (lambda xp, input, other: xp.arctan2(other, input), None),
        (lambda xp, input: xp.sum(input, axis=0), None),
        (lambda xp, input: xp.maximum(input, 0), None),
        (lambda xp, input: xp.exp(xp.sin(input)), None),
        (two, None),
    ],
)
def test_the_ufunc_that_a_forward_is(function: Any, name: str | None) -> None:
    assert ufunc_of(function) == name


def test_operations_that_are_one_ufunc() -> None:
    assert [REGISTRY[n].ufunc for n in ("sin", "mul", "add", "sub", "neg")] == [
        "sin", "multiply", "add", "subtract", "negative",
    ]  # fmt: skip
    assert REGISTRY["lerp"].ufunc is None


def test_a_tree_is_bound_to_a_namespace() -> None:
    tree = bound(lambda xp, g, x: g * xp.cos(x), {"g": 0, "x": 2}, cpu)
    assert tree == ("binary", "*", ("argument", 0), ("call", None, ("constant", cpu.cos), ("argument", 2)))
    assert formula.read(two) is None
    assert bound(two, {"g": 1}, cpu) == ("call", None, ("constant", two), ("constant", cpu), ("argument", 1))


def test_a_function_that_the_namespace_lacks_is_left_to_the_call() -> None:
    rule = lambda xp, g: xp.no_such_function(g)
    assert bound(rule, {"g": 0}, cpu)[:4] == ("call", None, ("constant", rule), ("constant", cpu))
