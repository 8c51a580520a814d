"""Every operation under a mode that only looks on: the same values and gradients, and it was shown something."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, assert_same, cases, every
from undertow.ops import REGISTRY

CASES = cases()


class Looking(ut.OpMode):
    def __init__(self) -> None:
        self.names: list[str] = []

    def on_operation(self, op, args, kwargs):
        self.names.append(str(op))
        return op(*args, **kwargs)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


@every(CASES)
def test_a_mode_that_looks_on_changes_nothing(case: Case) -> None:
    expected, expected_gradient = case.result, case.gradient if case.differentiable else []  # before the mode looks on
    with Looking() as mode:
        result = case.forward(case.arrays)
        forward = list(mode.names)
        gradient = case.gradient_at(case.arrays, case.cotangents) if case.differentiable else []
    for k, (got, wanted) in enumerate(zip(result, expected, strict=True)):
        assert_same(got, wanted, 1e-13, 1e-15, f"output {k}")
    for k, (got, wanted) in enumerate(zip(gradient, expected_gradient, strict=True)):
        assert_same(got, wanted, 1e-9, 1e-12, f"gradient {k}")
    operation = REGISTRY.get(case.sample.op)
    if operation is not None and operation.kind != "composite":
        assert forward, "nothing was shown"
