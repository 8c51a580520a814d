"""The registry drives the public names: what a declaration says is where a program finds the operation."""

from __future__ import annotations

import inspect

import pytest

import undertow as ut
from tests.rows import rows
from undertow.ops.declare import REGISTRY, Op, alias, composite, names_with
from undertow.ops.inplace.out_argument import besides_the_method


def test_functions_are_names_of_the_package() -> None:
    names = names_with("function")
    assert {"sin", "einsum", "tensor"} <= set(names)
    assert [name for name in names if not callable(getattr(ut, name, None))] == []


def test_methods_are_attributes_of_tensor() -> None:
    names = names_with("method")
    assert {"sin", "sum", "view"} <= set(names)
    assert [name for name in names if not callable(getattr(ut.Tensor, name, None))] == []


def test_in_place_forms_are_methods_or_functions() -> None:
    assert [name for name in names_with("in_place") if not hasattr(ut.Tensor, name + "_")] == []
    assert [name for name in names_with("in_place_function") if not hasattr(ut, name + "_")] == []


def test_functions_of_lists_are_names_of_the_package() -> None:
    assert [name for name in names_with("foreach") if not hasattr(ut, "_foreach_" + name)] == []
    assert ut._foreach_neg([ut.ones(1)])[0].tolist() == [-1.0]


@rows("name", [name for name in names_with("function") if REGISTRY[name].kind == "composite"])
def test_out_is_taken_where_the_declaration_says_so(name: str) -> None:
    function, op = getattr(ut, name), REGISTRY[name]
    takes_out = function not in (op.function, besides_the_method(op))
    assert takes_out == ("out" in op.variants[name])


@rows("name", [name for name in names_with("function") if name in names_with("method")])
def test_a_function_is_not_the_method(name: str) -> None:
    assert getattr(ut, name) is not vars(ut.Tensor)[name]


def test_an_operation_with_an_underscore_or_a_namespace_is_no_function() -> None:
    assert "_div_rounded" not in names_with("function")
    assert "linalg_qr" not in names_with("function") and callable(ut.linalg.qr)


def test_an_alias_says_its_variants_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ut.sin.op, "variants", dict(ut.sin.op.variants))
    monkeypatch.setitem(REGISTRY, "sinus", ut.sin.op)
    alias("sinus", ut.sin, variants="method")
    assert "sinus" in names_with("method") and "sinus" not in names_with("function")


def test_unknown_words_are_refused() -> None:
    with pytest.raises(TypeError, match=r"twice: variants are words among .* not \['methods'\]"):
        Op("twice", lambda xp, input: input + input, {"input": None}, variants="function methods")


def test_a_composite_may_be_declared_with_and_without_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bare", "said"):
        monkeypatch.setitem(REGISTRY, name, None)

    @composite
    def bare(input: ut.Tensor) -> ut.Tensor:
        return input

    @composite(variants="method", out=True)
    def said(input: ut.Tensor) -> ut.Tensor:
        return input

    assert bare.op.variants == {"bare": {"function"}}
    assert said.op.variants == {"said": {"method", "out"}}


def test_what_draws_random_numbers_says_so() -> None:
    takes_generator = [op for op in REGISTRY.values() if "generator" in inspect.signature(op.forward).parameters]
    assert [op.name for op in takes_generator if op.random not in ("new", "like", "given")] == []
