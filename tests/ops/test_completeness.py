"""No operation is forgotten: each has a sample row, its rules, and every row belongs to one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.systems import all_cases
from tests.samples import all_samples
from tests.samples.sparse import SPARSE_OPERATIONS
from undertow.ops.declare import REGISTRY

#: operations that no row can describe -> why, and where they are tested instead
ELSEWHERE: dict[str, str] = {
    "rand_like": "random numbers: tests/tensor/test_random.py",
    "randn_like": "random numbers: tests/tensor/test_random.py",
    **dict.fromkeys(
        ("_standard_gamma", "_standard_gamma_grad", "_sample_dirichlet", "_dirichlet_grad"),
        "random numbers and their slopes: tests/distributions/test_gammas.py",
    ),
    "_once_differentiable": "its derivative is an error: test_indexing.py",
    **dict.fromkeys(SPARSE_OPERATIONS, "sparse tensors: tests/sparse/test_operations.py"),
}

PRIMITIVE = ("primitive", "variadic", "view")


@pytest.fixture(scope="module")
def reached() -> set[str]:
    """The declared operations that run when the rows do, also underneath composites."""
    with np.errstate(all="ignore"):
        return {call.op.name for case in all_cases() for call in case.calls}


def test_every_public_operation_has_a_row() -> None:
    sampled = {sample.op for sample in all_samples()}
    public = {name for name in REGISTRY if not name.startswith("_")}
    assert sorted(public - sampled - set(ELSEWHERE)) == []


def test_every_declared_operation_is_reached(reached: set[str]) -> None:
    declared = {op.name for op in REGISTRY.values() if op.kind != "composite"}  # not the aliases
    assert sorted(declared - reached - set(ELSEWHERE)) == []


def test_every_row_names_an_operation() -> None:
    assert sorted({sample.op for sample in all_samples()} - set(REGISTRY)) == []


def test_the_list_of_exceptions_is_not_stale() -> None:
    sampled = {sample.op for sample in all_samples()}
    assert sorted(name for name in ELSEWHERE if name in sampled or name not in REGISTRY) == []


def test_every_primitive_declares_its_rules() -> None:
    declared = [op for op in REGISTRY.values() if op.kind in PRIMITIVE]
    assert sorted(op.name for op in declared if op.jvp is None) == []
    assert sorted(op.name for op in declared if op.batch is None) == []
