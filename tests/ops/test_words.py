"""Every operation is described in words that fit it, and every example runs."""

from __future__ import annotations

import ast
import math
from typing import Any

import pytest

import undertow as ut
from undertow.compiled import core
from undertow.ops.declare.op import REGISTRY, Op
from undertow.ops.reference.documentation import example_of, formulas_of, shapes_of
from undertow.ops.reference.formulas import FORMULAS
from undertow.ops.reference.words import WORDS

DECLARED = [op for op in {id(op): op for op in REGISTRY.values()}.values() if op.kind != "composite"]


def is_public(op: Op) -> bool:
    return any(not name.startswith("_") for name in op.variants)


def test_words_and_operations_belong_together() -> None:
    assert sorted(op.name for op in DECLARED if is_public(op) and op.name not in WORDS) == []
    assert sorted(set(WORDS) - {op.name for op in DECLARED}) == []


def test_everything_public_says_what_it_does() -> None:
    unsaid = [name for name, op in REGISTRY.items() if not name.startswith("_") and not op.function.__doc__]
    assert unsaid == []
    assert [name for name in WORDS if "As PyTorch's" in REGISTRY[name].function.__doc__] == []


def test_examples_run() -> None:
    ut.manual_seed(0)
    examples = {op.name: example_of(op) for op in DECLARED}
    for name, example in examples.items():
        assert example is None or eval(example, {"ut": ut}) is not None, name
    assert len([example for example in examples.values() if example]) > 190


ELEMENTWISE = [op for op in DECLARED if op.elementwise and op.kind != "view" and op.name in ut.__dict__]


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: str(op.name))
def test_shapes_are_what_is_said(op: Op) -> None:
    dtype = ut.int64 if op.name.startswith("bitwise") or op.name in ("gcd", "lcm") else ut.float32
    operands = [ut.ones(2, 1, dtype=dtype), ut.ones(1, 3, dtype=dtype), ut.ones(3, dtype=dtype)][: len(op.inputs)]
    further = {"mvlgamma": (1,), "native_dropout": (0.5, True)}.get(op.name, ())
    result = getattr(ut, op.name)(*operands, *further)
    shape = (result[0] if isinstance(result, tuple) else result).shape
    assert shape == ((2, 1) if len(operands) == 1 else (2, 3))
    if len(operands) == 1:
        assert shapes_of(op) == f"`{op.inputs[0]}` has any shape, and the result the same."
    else:
        assert "are broadcast to one shape" in shapes_of(op)


@pytest.mark.skipif(core is None, reason="without the core formulas are left out")
def test_help_shows_the_formulas() -> None:
    text = ut.sin.__doc__
    assert "value: sin(input)" in text and "gradient of input: g * conj(cos(input))" in text
    assert "SinBackward0, which keeps input" in text


#: differentiable operations whose derivatives are no single expression, or raise
WITHOUT_DERIVATIVES = {
    "angle", "binomial", "floor_divide", "heaviside", "igamma", "igammac", "index_reduce", "native_layer_norm",
    "special_zeta", "unbind", "unsafe_split",
}  # fmt: skip


def test_derivatives_are_shown() -> None:
    lacking = {
        op.name
        for op in DECLARED
        if is_public(op) and "backward" not in op.name and not op.name.startswith("_")
        for text in ["\n".join(formulas_of(op))]
        if any(f"gradient of {edge}: " not in text for edge in op.edges)
    }
    assert lacking == WITHOUT_DERIVATIVES


def called_in_the_example(op: Op) -> dict[str, Any]:
    """The arguments of an operation's example by name, in double precision and requiring grad."""
    call: Any = ast.parse(str(example_of(op)), mode="eval").body
    call = call.value if isinstance(call, ast.Attribute) else call  # of `....shape`
    given: list[Any] = []
    for each in call.args:
        value = eval(ast.unparse(each.value if isinstance(each, ast.Starred) else each), {"ut": ut})
        given += value if isinstance(each, ast.Starred) else [value]
    found = op.signature().bind(*given, **{k.arg: eval(ast.unparse(k.value), {"ut": ut}) for k in call.keywords})
    found.apply_defaults()
    values = {name: found.arguments[name] for name in op.ordered}
    for name in op.inputs:
        value = ut.tensor(values[name]) if isinstance(values[name], float | int) else values[name]
        if isinstance(value, ut.Tensor) and value.is_floating_point():
            values[name] = value.detach().double().requires_grad_(name in op.edges)
    return values


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_are_what_is_computed(name: str) -> None:
    """Those that are written by hand; the others are the declaration itself."""
    ut.manual_seed(0)
    op = REGISTRY[name]
    values = called_in_the_example(op)
    by_name = {n: values[n] for n in op.keyword_only if n in values}
    out: Any = op.function(*[values[n] for n in op.ordered if n not in op.keyword_only], **by_name)
    g = ut.rand_like(out, dtype=ut.float64)
    known = {n: getattr(ut, n) for n in dir(ut)} | {"pi": math.pi, "range": range} | values | {"out": out, "g": g}
    known |= {"sqrt": lambda x: x**0.5, "bias": 0 if values.get("bias") is None else values["bias"]}
    if name == "mvlgamma":
        known |= {"sum": sum, "log": math.log}
    for key, text in FORMULAS[name].items():
        wanted: Any = out if key == "value" else ut.autograd.grad(out, values[key], g, retain_graph=True)[0]
        found = ut.as_tensor(eval(text, known)).to(wanted.dtype).expand_as(wanted)
        assert ut.allclose(found, wanted, rtol=1e-4, atol=1e-6), (key, text, found, wanted)
