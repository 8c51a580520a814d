"""Every operation is described in words that fit it, and every example runs."""

from __future__ import annotations

import pytest

import undertow as ut
from undertow.compiled import core
from undertow.ops.declare.op import REGISTRY, Op
from undertow.ops.reference.documentation import example_of, shapes_of
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
